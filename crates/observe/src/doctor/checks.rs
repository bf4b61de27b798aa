//! The table of what colocate can use, and the check of each row.

use super::finding::{Check, Finding, Inputs, live_code, numa_calls, ring_refused};
use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{Capability, FailureCause, Fix, Own, Section, SystemFacts, advice};
use crate::sources;
use colocate_evidence::Source;

/// Row: a capability and its check.
struct CapabilityCheck {
    name: &'static str,
    what: &'static str,
    check: Check,
}

const fn row(name: &'static str, what: &'static str, check: Check) -> CapabilityCheck {
    CapabilityCheck { name, what, check }
}

const PLACING: &[CapabilityCheck] = &[
    row("affinity", "pin this user's tasks to PUs", affinity),
    row("other-tasks", "pin other users' tasks", other_tasks),
    row("thread-creation", "see every thread creation at once", lifecycle),
    row("processes", "find threads in /proc", processes),
    row("cpuset", "place whole groups of processes", cpuset),
    row("freezer", "pause groups of processes", freezer),
    row("scheduler", "the kernel's own scheduler decides when tasks run", sched_ext),
];

const WATCHING: &[CapabilityCheck] = &[
    row("live-code", "read code that JIT compilers make", live_code),
    row("event-names", "codes of hardware events from libpfm4", event_names),
    row("emulate", "exact counts under QEMU", emulate),
    row("calibration", "predict with this machine's own speeds and costs", calibration),
];

const MEMORY: &[CapabilityCheck] = &[
    row("numa-calls", "ask where pages are, and move them", numa_calls),
    row("other-memory", "read other users' code for samples, and move their pages", other_memory),
    row("pages-stay", "pages stay where they are put", numa_balancing),
    row("user-faults", "see which pages are written, by userfaultfd", user_faults),
    row("page-scan", "find written pages quickly", page_scan),
];

const UPKEEP: &[CapabilityCheck] = &[
    row("files", "keep counters and run states open", files),
    row("journal", "put masks back after kill -9", journal),
];

/// The row of a source of evidence.
const fn of_source(source: Source) -> CapabilityCheck {
    row(source.name(), source.reports(), sources::check(source))
}

/// All checks, in the order of the output.
pub fn all(place: &SystemFacts, probes: &dyn Probes, own: &Own) -> Vec<Section> {
    let inputs = Inputs { place, probes, own };
    let section = |title, rows: &[CapabilityCheck]| {
        let found = |row: &CapabilityCheck| Capability {
            name: row.name,
            what: row.what,
            ..(row.check)(&inputs)
        };
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
    inputs.of_others(probe, ("CAP_SYS_NICE", inputs.place.may_place_all()), |_| None)
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
        let why =
            "expected a mount that may be written to, as containers do not have; run needs none";
        return Finding::no(format!("{found}, mounted read-only"), FailureCause::of(why));
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

/// Control groups that only root may change, as all of version 1 and some of version 2. `refuses`
/// is the kernel's error on creating a group.
fn groups_of_root(inputs: &Inputs<'_>, found: String, refuses: Option<Errno>) -> Finding {
    match (refuses, inputs.place.user) {
        (Some(Errno(libc::EROFS)), _) => {
            let why = "expected a mount that may be written to, as containers do not have; run needs none";
            return Finding::no(format!("{found}, mounted read-only"), FailureCause::of(why));
        }
        (Some(errno), Some(0)) => {
            let why = "expected groups that this user may change, found those of another user namespace; run needs none";
            return Finding::no(
                format!("{found}, not to be changed ({errno})"),
                FailureCause::of(why),
            );
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
            FailureCause::of(format!("expected cpuset in {v2}/cgroup.controllers; run needs none")),
        ),
        (None, None) => Finding::no(
            "no control groups are mounted",
            FailureCause::of("expected a cgroup2 or cpuset mount; run needs none"),
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
            FailureCause::of("expected a cgroup2 or freezer mount; signals pause single processes"),
        ),
    }
}

fn sched_ext(inputs: &Inputs<'_>) -> Finding {
    match inputs.place.sched_ext.as_deref() {
        None => Finding::yes("this kernel has no sched_ext"),
        Some("disabled") => Finding::yes("sched_ext is there and unused"),
        Some(state) => Finding::partly(
            format!("sched_ext is {state}"),
            FailureCause::of(
                "a sched_ext scheduler is loaded; it keeps to affinity masks, but decides by rules \
                 of its own when threads run",
            ),
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
    let may = inputs.place.may_read_all_memory();
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
        let cause = FailureCause::of("the limit on open files is not known");
        return Finding::partly("/proc/self/limits cannot be read", cause);
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
