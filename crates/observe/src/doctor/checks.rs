//! The table of what colocate can use, and the check of each row.

use super::finding::{Check, Finding, Inputs, live_code, numa_calls, ring_refused};
use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{FailureCause, Fix, Own, Section, SystemFacts, advice};
use crate::sources;
use caps::Capability;
use colocate_evidence::Source;

/// Row: name and purpose of a capability, and its check.
type CapabilityCheck = (&'static str, &'static str, Check);

const PLACING: &[CapabilityCheck] = &[
    ("affinity", "pin this user's tasks to PUs", affinity),
    ("other-tasks", "pin other users' tasks", other_tasks),
    ("thread-creation", "see every thread creation at once", lifecycle),
    ("processes", "find threads in /proc", processes),
    ("cpuset", "place whole groups of processes", cpuset),
    ("freezer", "pause groups of processes", freezer),
    ("scheduler", "the kernel's own scheduler decides when tasks run", sched_ext),
];

const WATCHING: &[CapabilityCheck] = &[
    ("live-code", "read code that JIT compilers make", live_code),
    ("event-names", "codes of hardware events from libpfm4", event_names),
    ("emulate", "exact counts under QEMU", emulate),
    ("calibration", "predict with this machine's own speeds and costs", calibration),
];

const MEMORY: &[CapabilityCheck] = &[
    ("numa-calls", "ask where pages are, and move them", numa_calls),
    ("other-memory", "read other users' code for samples, and move their pages", other_memory),
    ("pages-stay", "pages stay where they are put", numa_balancing),
    ("user-faults", "see which pages are written, by userfaultfd", user_faults),
    ("page-scan", "find written pages quickly", page_scan),
];

const UPKEEP: &[CapabilityCheck] = &[
    ("files", "keep counters and run states open", files),
    ("journal", "put masks back after kill -9", journal),
];

/// The row of a source of evidence.
const fn of_source(source: Source) -> CapabilityCheck {
    (source.name(), source.reports(), sources::check(source))
}

/// All checks, in the order of the output.
pub fn all(place: &SystemFacts, probes: &dyn Probes, own: &Own) -> Vec<Section> {
    let inputs = Inputs { place, probes, own };
    let section = |title, rows: &[CapabilityCheck]| {
        let found =
            |&(name, what, check): &CapabilityCheck| Finding { name, what, ..check(&inputs) };
        Section { title, capabilities: rows.iter().map(found).collect() }
    };
    vec![
        section("placing", PLACING),
        section("evidence", &Source::ALL.map(of_source)),
        section("what else evidence uses", WATCHING),
        section("memory", MEMORY),
        section("upkeep", UPKEEP),
    ]
}

fn affinity(inputs: &Inputs<'_>) -> Finding {
    const CALL: &str = "sched_setaffinity";
    match inputs.probes.run(Probe::Affinity) {
        Ok(()) => Finding::yes("sched_setaffinity of a child, read back as it was set"),
        Err(errno) => {
            Finding::no(format!("{CALL} of a child: {errno}"), inputs.refused(CALL, errno))
        }
    }
}

fn other_tasks(inputs: &Inputs<'_>) -> Finding {
    let probe = (Probe::AffinityOfOthers, "sched_setaffinity of process 1");
    let may = inputs.place.capable(Capability::CAP_SYS_NICE);
    inputs.of_others(probe, ("CAP_SYS_NICE", may), |_| None)
}

fn lifecycle(inputs: &Inputs<'_>) -> Finding {
    let instead = "; /proc is scanned instead, and short-lived threads are missed";
    match inputs.probes.run(Probe::TaskEvents) {
        Ok(()) => Finding::yes("perf_event_open with task events: works"),
        Err(errno) => match inputs.probes.run(Probe::TaskEventsSmall) {
            Ok(()) => Finding::partly(
                format!("a ring of 16 pages: {errno}; of 1 page: works"),
                advice::mlock(inputs.place),
            ),
            Err(errno) => {
                let mut cause = ring_refused(inputs, errno);
                cause.why += instead;
                let found = format!("perf_event_open with task events: {errno}");
                Finding::partly(found, cause)
            }
        },
    }
}

fn processes(inputs: &Inputs<'_>) -> Finding {
    // Root sees them all the same.
    if !inputs.place.hides_processes || inputs.place.user == Some(0) {
        return Finding::yes("/proc shows all processes");
    }
    let cause =
        FailureCause::of("/proc is mounted with hidepid, so other users' programs are not seen")
            .with(Fix::now(inputs.place.as_root("mount -o remount,hidepid=0 /proc")));
    Finding::partly("/proc shows this user's processes", cause)
}

/// Finding of a control-group check on a machine with control groups: `yes` if this user may change
/// some.
///
/// `needs` is the required controller, if it may be missing in a group.
fn groups(inputs: &Inputs<'_>, needs: Option<&str>) -> Finding {
    let Cgroups { v2, v2_read_only, own, .. } = &inputs.place.cgroups;
    let point = v2.as_deref().unwrap_or_default();
    let found = format!("version 2 at {point}");
    let own = own.as_ref().filter(|own| own.ours);
    if *v2_read_only {
        return read_only(&found);
    }
    let Some(own) = own.filter(|_| inputs.place.user != Some(0)) else {
        return groups_of_root(inputs, found, inputs.place.cgroups.v2_refuses);
    };
    let found = format!("{found}, own group {} is ours", own.folder);
    let Some(needs) = needs.filter(|_| !own.cpuset) else { return Finding::yes(found) };
    let above = own.folder.rsplit_once('/').map_or(point, |(above, _)| above);
    let tee = inputs.place.as_root(&format!("tee {above}/cgroup.subtree_control"));
    let why = format!("expected {needs} in {}/cgroup.controllers; run needs none", own.folder);
    Finding::no(found, FailureCause::of(why).with(Fix::now(format!("echo +{needs} | {tee}"))))
}

fn read_only(found: &str) -> Finding {
    let why = "expected a mount that may be written to, as containers do not have; run needs none";
    Finding::no(format!("{found}, mounted read-only"), why)
}

/// Control groups that only root may change, as all of version 1 and some of version 2. `refuses`
/// is the kernel's error on creating a group.
fn groups_of_root(inputs: &Inputs<'_>, found: String, refuses: Option<Errno>) -> Finding {
    match (refuses, inputs.place.user) {
        (Some(Errno(libc::EROFS)), _) => {
            return read_only(&found);
        }
        (Some(errno), Some(0)) => {
            let why = "expected groups that this user may change, found those of another user namespace; run needs none";
            return Finding::no(format!("{found}, not to be changed ({errno})"), why);
        }
        (None, Some(0)) => return Finding::yes(found),
        _ => {}
    }
    let why = "expected a control group of this user's own; run needs none";
    Finding::no(format!("{found}, for root to change"), inputs.only_root(why))
}

fn cpuset(inputs: &Inputs<'_>) -> Finding {
    let there = &inputs.place.cgroups;
    match (&there.v2, &there.v1_cpuset) {
        (Some(_), _) if there.v2_cpuset => groups(inputs, Some("cpuset")),
        (_, Some(v1)) => {
            groups_of_root(inputs, format!("version 1 at {v1}"), there.v1_cpuset_refuses)
        }
        (Some(v2), None) => Finding::no(
            format!("version 2 at {v2} without the controller"),
            format!("expected cpuset in {v2}/cgroup.controllers; run needs none"),
        ),
        (None, None) => Finding::no(
            "no control groups are mounted",
            "expected a cgroup2 or cpuset mount; run needs none",
        ),
    }
}

fn freezer(inputs: &Inputs<'_>) -> Finding {
    let there = &inputs.place.cgroups;
    match (&there.v1_freezer, &there.v2) {
        // Every group of version 2 has cgroup.freeze since Linux 5.2, without a controller.
        (None, Some(_)) => groups(inputs, None),
        (Some(v1), _) => {
            groups_of_root(inputs, format!("version 1 at {v1}"), there.v1_freezer_refuses)
        }
        (None, None) => Finding::no(
            "no control groups are mounted",
            "expected a cgroup2 or freezer mount; signals pause single processes",
        ),
    }
}

fn sched_ext(inputs: &Inputs<'_>) -> Finding {
    match inputs.place.sched_ext.as_deref() {
        None => Finding::yes("this kernel has no sched_ext"),
        Some("disabled") => Finding::yes("sched_ext is there and unused"),
        Some(state) => Finding::partly(
            format!("sched_ext is {state}"),
            "a sched_ext scheduler is loaded; it keeps to affinity masks, but decides by rules of \
             its own when threads run",
        ),
    }
}

fn event_names(inputs: &Inputs<'_>) -> Finding {
    match inputs.probes.run(Probe::LibPfm) {
        Ok(()) => Finding::yes("libpfm.so.4 is loaded"),
        Err(_) => {
            let mut cause = FailureCause::of(
                "expected the library libpfm 4; the codes of colocate's own table are used",
            );
            cause.fixes.extend(advice::install_libpfm(inputs.place));
            Finding::partly("libpfm.so.4 is not found", cause)
        }
    }
}

fn emulate(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.emulator {
        Ok(found) => Finding::yes(found),
        Err(why) => Finding::no(
            why,
            FailureCause::of(
                "expected a QEMU built with plugins and our plugin beside it; distributions' QEMUs \
                 are older or built without; neither run nor plan needs it",
            )
            .with(Fix::always("make tracer").noting("in the folder of colocate's source")),
        ),
    }
}

fn other_memory(inputs: &Inputs<'_>) -> Finding {
    let may = inputs.place.capable(Capability::CAP_SYS_PTRACE);
    let probe = (Probe::MovePagesOfOthers, "move_pages of another process");
    inputs.of_others(probe, ("CAP_SYS_PTRACE", may), |errno| {
        let is_for_want = errno.0 == libc::EPERM && !may && !inputs.place.filtered();
        (!is_for_want).then(|| inputs.refused("move_pages", errno))
    })
}

fn numa_balancing(inputs: &Inputs<'_>) -> Finding {
    const NAME: &str = "kernel.numa_balancing";
    let nodes = inputs.place.nodes.unwrap_or(1);
    match inputs.place.numa_balancing {
        None => Finding::yes("this kernel does not balance NUMA nodes"),
        Some(0) => Finding::yes(format!("{NAME} is 0")),
        Some(_) if nodes < 2 => Finding::yes(format!("{NAME} is on, with one node")),
        Some(mode) => Finding::partly(
            format!("{NAME} is {mode}, with {nodes} nodes"),
            inputs.setting("the kernel moves pages by itself and may undo ours", NAME, "0"),
        ),
    }
}

fn user_faults(inputs: &Inputs<'_>) -> Finding {
    const NAME: &str = "vm.unprivileged_userfaultfd";
    let place = inputs.place;
    inputs.tried(Probe::UserFault, "userfaultfd", |errno| {
        let is_off = place.unprivileged_userfault == Some(false);
        match is_off && errno.0 == libc::EPERM && !place.filtered() {
            true => {
                let why = format!("expected {NAME} 1 or CAP_SYS_PTRACE, found neither");
                inputs.setting(why, NAME, "1")
            }
            false => inputs.refused("userfaultfd", errno),
        }
    })
}

fn page_scan(inputs: &Inputs<'_>) -> Finding {
    inputs.tried(Probe::PagemapScan, "ioctl PAGEMAP_SCAN", |errno| match errno.0 {
        libc::ENOTTY | libc::EINVAL => {
            FailureCause::of("expected Linux 6.7 or later, found a kernel that does not know it")
        }
        _ => inputs.refused("PAGEMAP_SCAN", errno),
    })
}

/// Counters for 500 threads, 6 events each, and their run states. Chosen.
const FILES_WANTED: u64 = 4096;

fn files(inputs: &Inputs<'_>) -> Finding {
    let Some((soft, hard)) = inputs.place.descriptors else {
        let why = "the limit on open files is not known";
        return Finding::partly("/proc/self/limits cannot be read", why);
    };
    let found = format!("limit {soft}, may be raised to {hard}");
    // The soft limit is raised when it is reached; only the hard one stops us.
    match hard >= FILES_WANTED {
        true => Finding::yes(found),
        false => Finding::partly(found, advice::descriptors(inputs.place)),
    }
}

fn calibration(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.measured {
        Ok(found) => Finding::yes(found),
        Err(why) => Finding::partly(
            why,
            FailureCause::of("without figures of its own this machine is taken for one of its kind (docs/reference/calibrate.md)").with(
                Fix::now(format!("{} calibrate", inputs.own.program)).noting("less than two minutes, on an idle machine"),
            ),
        ),
    }
}

fn journal(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.journal {
        Ok(folder) => Finding::yes(format!("{folder} is ours")),
        Err(why) => Finding::partly(
            why,
            FailureCause::of("without a folder for its journal colocate cannot undo after a crash")
                .with(
                    Fix::now("export XDG_RUNTIME_DIR=FOLDER")
                        .noting("one that only you can write to"),
                ),
        ),
    }
}
