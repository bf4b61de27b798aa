//! The capabilities, one function each.

use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{Capability, Cause, Own, Place, Section, advice};

/// Everything that the checks look at.
struct Inputs<'a> {
    place: &'a Place,
    probes: &'a dyn Probes,
    own: &'a Own,
}

/// All checks, in the order they are shown.
pub fn all(place: &Place, probes: &dyn Probes, own: &Own) -> Vec<Section> {
    let inputs = Inputs { place, probes, own };
    let section = |title, checks: &[fn(&Inputs<'_>) -> Capability]| Section {
        title,
        capabilities: checks.iter().map(|check| check(&inputs)).collect(),
    };
    vec![
        section("placing", &[affinity, other_tasks, births, processes, cpuset, freezer, sched_ext]),
        section("watching", &[sample, live_code, pmu, event_names, stacks, emulate, run_state]),
        section("memory", &[numa_calls, other_memory, numa_balancing, user_faults, page_scan]),
        section("upkeep", &[files, journal]),
    ]
}

fn affinity(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "pin this user's tasks to PUs";
    match inputs.probes.run(Probe::Affinity) {
        Ok(()) => Capability::yes(
            "affinity",
            WHAT,
            "sched_setaffinity of a child, read back as it was set",
        ),
        Err(errno) => Capability::no(
            "affinity",
            WHAT,
            format!("sched_setaffinity of a child: {errno}"),
            advice::call_refused("sched_setaffinity", errno, inputs.place),
        ),
    }
}

fn other_tasks(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "pin other users' tasks";
    let tried = inputs.probes.run(Probe::AffinityOfOthers);
    let found = |outcome: &str| format!("sched_setaffinity of process 1: {outcome}");
    match (tried, inputs.place.may_place_all()) {
        (Ok(()), true) => Capability::yes("other-tasks", WHAT, found("permitted")),
        (Ok(()), false) => Capability::partly(
            "other-tasks",
            WHAT,
            found("permitted, since it is this user's"),
            no_sys_nice(inputs),
        ),
        (Err(errno), _) => {
            Capability::no("other-tasks", WHAT, found(&errno.to_string()), no_sys_nice(inputs))
        }
    }
}

fn no_sys_nice(inputs: &Inputs<'_>) -> Cause {
    let why = "expected CAP_SYS_NICE, found it missing; this user's own programs do not need it";
    advice::only_root(why, inputs.place, inputs.own)
}

fn births(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "hear of every thread's birth at once";
    let instead = "; /proc is looked through instead, and short threads are missed";
    match inputs.probes.run(Probe::TaskNotes) {
        Ok(()) => Capability::yes("births", WHAT, "perf_event_open with notes of tasks: works"),
        Err(errno) => match inputs.probes.run(Probe::TaskNotesSmall) {
            Ok(()) => Capability::partly(
                "births",
                WHAT,
                format!("a ring of 16 pages: {errno}; of 1 page: works"),
                advice::mlock(inputs.place),
            ),
            Err(errno) => {
                let mut cause = ring_refused(inputs, errno);
                cause.why += instead;
                let found = format!("perf_event_open with notes of tasks: {errno}");
                Capability::partly("births", WHAT, found, cause)
            }
        },
    }
}

fn ring_refused(inputs: &Inputs<'_>, errno: Errno) -> Cause {
    let own_event = inputs.probes.run(Probe::CountTime).is_ok();
    advice::ring_refused(errno, own_event, inputs.place, inputs.own)
}

fn processes(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "find threads in /proc";
    // Root sees them all the same.
    if !inputs.place.hides_processes || inputs.place.user == Some(0) {
        return Capability::yes("processes", WHAT, "/proc shows all processes");
    }
    let cause = Cause::of("/proc is mounted with hidepid, so other users' programs are not seen")
        .with(super::Fix::now(inputs.place.as_root("mount -o remount,hidepid=0 /proc")));
    Capability::partly("processes", WHAT, "/proc shows this user's processes", cause)
}

/// What a check of control groups says where the groups are there: `yes` if this user may change some.
///
/// `needs` is the controller that is wanted, if it is one that a group may lack.
fn groups(
    inputs: &Inputs<'_>,
    name: &'static str,
    what: &'static str,
    needs: Option<&str>,
) -> Capability {
    let Cgroups { v2, v2_read_only, own, .. } = &inputs.place.cgroups;
    let point = v2.as_deref().unwrap_or_default();
    let found = format!("version 2 at {point}");
    let no = |found: String, cause| Capability::no(name, what, found, cause);
    match (inputs.place.user, own) {
        _ if *v2_read_only => no(
            format!("{found}, read-only"),
            Cause::of(
                "expected a mount that may be written to, as containers do not have; run needs none",
            ),
        ),
        (Some(0), _) => Capability::yes(name, what, found),
        (_, Some(own)) if own.ours && (own.cpuset || needs.is_none()) => {
            Capability::yes(name, what, format!("{found}, own group {} is ours", own.folder))
        }
        (_, Some(own)) if own.ours => {
            let above = own.folder.rsplit_once('/').map_or(point, |(above, _)| above);
            let needs = needs.unwrap_or_default();
            let tee = inputs.place.as_root(&format!("tee {above}/cgroup.subtree_control"));
            no(
                format!("{found}, own group {} is ours", own.folder),
                Cause::of(format!(
                    "expected {needs} in {}/cgroup.controllers; run needs none",
                    own.folder
                ))
                .with(super::Fix::now(format!("echo +{needs} | {tee}"))),
            )
        }
        _ => {
            let command = format!("{} ARGUMENTS", inputs.own.program);
            no(
                format!("{found}, for root to change"),
                Cause::of("expected a control group of this user's own; run needs none")
                    .with(super::Fix::now(inputs.place.as_root(&command))),
            )
        }
    }
}

/// The same in version 1, where nobody but root is given groups.
fn old_groups(
    inputs: &Inputs<'_>,
    name: &'static str,
    what: &'static str,
    point: &str,
) -> Capability {
    let found = format!("version 1 at {point}");
    if inputs.place.user == Some(0) {
        return Capability::yes(name, what, found);
    }
    let command = format!("{} ARGUMENTS", inputs.own.program);
    let cause = Cause::of("expected a control group of this user's own; run needs none");
    let cause = cause.with(super::Fix::now(inputs.place.as_root(&command)));
    Capability::no(name, what, format!("{found}, for root to change"), cause)
}

fn cpuset(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "place whole groups of processes";
    let there = &inputs.place.cgroups;
    match (&there.v2, &there.v1_cpuset) {
        (Some(_), _) if there.v2_cpuset => groups(inputs, "cpuset", WHAT, Some("cpuset")),
        (_, Some(v1)) => old_groups(inputs, "cpuset", WHAT, v1),
        (Some(v2), None) => Capability::no(
            "cpuset",
            WHAT,
            format!("version 2 at {v2} without the controller"),
            Cause::of(format!("expected cpuset in {v2}/cgroup.controllers; run needs none")),
        ),
        (None, None) => Capability::no(
            "cpuset",
            WHAT,
            "no control groups are mounted",
            Cause::of("expected a cgroup2 or cpuset mount; run needs none"),
        ),
    }
}

fn freezer(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "pause groups of processes";
    let there = &inputs.place.cgroups;
    match (&there.v1_freezer, &there.v2) {
        // Every group of version 2 has cgroup.freeze since Linux 5.2, without a controller.
        (None, Some(_)) => groups(inputs, "freezer", WHAT, None),
        (Some(v1), _) => old_groups(inputs, "freezer", WHAT, v1),
        (None, None) => Capability::no(
            "freezer",
            WHAT,
            "no control groups are mounted",
            Cause::of("expected a cgroup2 or freezer mount; signals pause single processes"),
        ),
    }
}

fn sched_ext(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "the kernel's own scheduler decides when tasks run";
    match inputs.place.sched_ext.as_deref() {
        None => Capability::yes("scheduler", WHAT, "this kernel has no sched_ext"),
        Some("disabled") => Capability::yes("scheduler", WHAT, "sched_ext is there and unused"),
        Some(state) => Capability::partly(
            "scheduler",
            WHAT,
            format!("sched_ext is {state}"),
            Cause::of(
                "a sched_ext scheduler is loaded; it keeps to affinity masks, but decides by rules \
                 of its own when threads run",
            ),
        ),
    }
}

fn sample(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "watch programs by samples of the instruction pointer";
    match inputs.probes.run(Probe::Samples) {
        Ok(()) => Capability::yes("sample", WHAT, "software clock with samples on a child: works"),
        Err(errno) => Capability::no(
            "sample",
            WHAT,
            format!("software clock with samples on a child: {errno}"),
            ring_refused(inputs, errno),
        ),
    }
}

fn live_code(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "read code that JIT compilers make";
    let attach = "code of programs that colocate has not started is not read";
    match (inputs.probes.run(Probe::ReadMemory), inputs.place.ptrace_scope) {
        (Ok(()), None | Some(0)) => {
            Capability::yes("live-code", WHAT, "process_vm_readv of a child: works")
        }
        (Ok(()), Some(scope)) => {
            let mut cause = Cause::of(format!(
                "expected kernel.yama.ptrace_scope 0 to read others, found {scope}; {attach}"
            ));
            cause = advice::with_setting(cause, inputs.place, "kernel.yama.ptrace_scope", "0");
            Capability::partly("live-code", WHAT, "process_vm_readv of a child: works", cause)
        }
        (Err(errno), Some(3)) => Capability::no(
            "live-code",
            WHAT,
            format!("process_vm_readv of a child: {errno}"),
            Cause::of("kernel.yama.ptrace_scope is 3, which lasts until the next boot"),
        ),
        (Err(errno), scope @ Some(2)) => {
            let mut cause = Cause::of(format!(
                "expected kernel.yama.ptrace_scope of at most 1, found {}",
                scope.unwrap_or(2)
            ));
            cause = advice::with_setting(cause, inputs.place, "kernel.yama.ptrace_scope", "1");
            Capability::no(
                "live-code",
                WHAT,
                format!("process_vm_readv of a child: {errno}"),
                cause,
            )
        }
        (Err(errno), _) => Capability::no(
            "live-code",
            WHAT,
            format!("process_vm_readv of a child: {errno}"),
            advice::call_refused("process_vm_readv", errno, inputs.place),
        ),
    }
}

fn pmu(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "watch programs by hardware counters";
    let software = inputs.probes.run(Probe::CountTime);
    let hardware = inputs.probes.run(Probe::CountInstructions);
    match (software, hardware) {
        (_, Ok(())) => match inputs.probes.run(Probe::CountTogether) {
            Ok(()) => Capability::yes("pmu", WHAT, "all events of this thread at once: counted"),
            Err(errno) => Capability::partly(
                "pmu",
                WHAT,
                format!("instructions of this thread: counted; all events at once: {errno}"),
                advice::take_turns(inputs.place),
            ),
        },
        (Ok(()), Err(errno)) => Capability::no(
            "pmu",
            WHAT,
            format!("task-clock: counted; instructions: {errno}"),
            advice::counters_refused(errno, inputs.place, inputs.own),
        ),
        (Err(errno), Err(_)) => Capability::no(
            "pmu",
            WHAT,
            format!("task-clock: {errno}; instructions: {errno}"),
            advice::perf_refused(errno, inputs.place, inputs.own),
        ),
    }
}

fn event_names(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "codes of hardware events from libpfm4";
    match inputs.probes.run(Probe::LibPfm) {
        Ok(()) => Capability::yes("event-names", WHAT, "libpfm.so.4 is loaded"),
        Err(_) => {
            let mut cause = Cause::of(
                "expected the library libpfm 4; the codes of colocate's own table are used",
            );
            cause.fixes.extend(advice::install_libpfm(inputs.place));
            Capability::partly("event-names", WHAT, "libpfm.so.4 is not found", cause)
        }
    }
}

fn stacks(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "tell where threads' cycles go (CPI stacks)";
    match &inputs.own.stacks {
        Ok(found) => Capability::yes("stacks", WHAT, found),
        Err(why) => Capability::no(
            "stacks",
            WHAT,
            why,
            Cause::of(
                "expected counters of stalls (docs/pmu.md); without them symbiotic needs \
                 --machine-speeds and demand vectors, and nothing else needs them",
            ),
        ),
    }
}

fn emulate(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "exact counts under QEMU";
    match &inputs.own.emulator {
        Ok(found) => Capability::yes("emulate", WHAT, found),
        Err(why) => Capability::no(
            "emulate",
            WHAT,
            why,
            Cause::of(
                "expected a QEMU built with plugins and our plugin beside it; distributions' QEMUs \
                 are older or built without; neither run nor plan needs it",
            )
            .with(super::Fix::always("make tracer").noting("in the folder of colocate's source")),
        ),
    }
}

fn run_state(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "see which threads want a CPU";
    if inputs.place.schedstat {
        return Capability::yes("run-state", WHAT, "/proc/self/schedstat is there");
    }
    let why = "expected a kernel with CONFIG_SCHED_INFO, found no /proc/self/schedstat";
    Capability::no("run-state", WHAT, "/proc/self/schedstat is missing", Cause::of(why))
}

fn numa_calls(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "ask where pages are, and move them";
    let calls = [
        ("move_pages", Probe::MovePages),
        ("get_mempolicy", Probe::MemoryPolicy),
        ("set_mempolicy", Probe::SetPolicy),
        ("mbind", Probe::BindMemory),
        ("migrate_pages", Probe::MigratePages),
    ];
    let refusal = |(call, probe)| inputs.probes.run(probe).err().map(|errno| (call, errno));
    let refused: Vec<(&str, Errno)> = calls.into_iter().filter_map(refusal).collect();
    let names =
        |list: &[(&str, Errno)]| list.iter().map(|(call, _)| *call).collect::<Vec<_>>().join(", ");
    let Some((_, errno)) = refused.first() else {
        let all = calls.map(|(call, _)| call).join(", ");
        return Capability::yes("numa-calls", WHAT, format!("{all}: work"));
    };
    let found = refused.iter().map(|(call, errno)| format!("{call}: {errno}"));
    let found = found.collect::<Vec<_>>().join(", ");
    // Asking and moving are one call; the others are other ways.
    let few = refused.iter().all(|(call, _)| *call != "move_pages");
    let cause = advice::call_refused(&names(&refused), *errno, inputs.place);
    match few {
        true => Capability::partly("numa-calls", WHAT, found, cause),
        false => Capability::no("numa-calls", WHAT, found, cause),
    }
}

fn other_memory(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "read other users' code for samples, and move their pages";
    let tried = inputs.probes.run(Probe::MovePagesOfOthers);
    let found = |outcome: &str| format!("move_pages of process 1: {outcome}");
    let cause = || {
        let why =
            "expected CAP_SYS_PTRACE, found it missing; this user's own programs do not need it";
        advice::only_root(why, inputs.place, inputs.own)
    };
    match (tried, inputs.place.may_look_into_all()) {
        (Ok(()), true) => Capability::yes("other-memory", WHAT, found("permitted")),
        (Ok(()), false) => {
            let found = found("permitted, since it is this user's");
            Capability::partly("other-memory", WHAT, found, cause())
        }
        (Err(errno @ Errno(libc::EPERM)), false) if !inputs.place.filtered() => {
            Capability::no("other-memory", WHAT, found(&errno.to_string()), cause())
        }
        (Err(errno), _) => Capability::no(
            "other-memory",
            WHAT,
            found(&errno.to_string()),
            advice::call_refused("move_pages", errno, inputs.place),
        ),
    }
}

fn numa_balancing(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "pages stay where they are put";
    let nodes = inputs.place.nodes.unwrap_or(1);
    match inputs.place.numa_balancing {
        None => Capability::yes("pages-stay", WHAT, "this kernel does not balance NUMA nodes"),
        Some(0) => Capability::yes("pages-stay", WHAT, "kernel.numa_balancing is 0"),
        Some(_) if nodes < 2 => {
            Capability::yes("pages-stay", WHAT, "kernel.numa_balancing is on, with one node")
        }
        Some(mode) => {
            let mut cause = Cause::of("the kernel moves pages by itself and may undo ours");
            cause = advice::with_setting(cause, inputs.place, "kernel.numa_balancing", "0");
            let found = format!("kernel.numa_balancing is {mode}, with {nodes} nodes");
            Capability::partly("pages-stay", WHAT, found, cause)
        }
    }
}

fn user_faults(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "see which pages are written, by userfaultfd";
    match (inputs.probes.run(Probe::UserFault), inputs.place.unprivileged_userfault) {
        (Ok(()), _) => Capability::yes("user-faults", WHAT, "userfaultfd: works"),
        (Err(errno), Some(false)) if errno.0 == libc::EPERM && !inputs.place.filtered() => {
            let mut cause = Cause::of(
                "expected vm.unprivileged_userfaultfd 1 or CAP_SYS_PTRACE, found neither",
            );
            cause = advice::with_setting(cause, inputs.place, "vm.unprivileged_userfaultfd", "1");
            Capability::no("user-faults", WHAT, "userfaultfd: EPERM", cause)
        }
        (Err(errno), _) => Capability::no(
            "user-faults",
            WHAT,
            format!("userfaultfd: {errno}"),
            advice::call_refused("userfaultfd", errno, inputs.place),
        ),
    }
}

fn page_scan(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "find written pages quickly";
    match inputs.probes.run(Probe::PagemapScan) {
        Ok(()) => Capability::yes("page-scan", WHAT, "ioctl PAGEMAP_SCAN: works"),
        Err(errno @ Errno(libc::ENOTTY | libc::EINVAL)) => Capability::no(
            "page-scan",
            WHAT,
            format!("ioctl PAGEMAP_SCAN: {errno}"),
            Cause::of("expected Linux 6.7 or later, found a kernel that does not know it"),
        ),
        Err(errno) => Capability::no(
            "page-scan",
            WHAT,
            format!("ioctl PAGEMAP_SCAN: {errno}"),
            advice::call_refused("PAGEMAP_SCAN", errno, inputs.place),
        ),
    }
}

/// Counters for 500 threads, 6 events each, and their run states. Chosen.
const FILES_WANTED: u64 = 4096;

fn files(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "keep counters and run states open";
    match inputs.place.descriptors {
        // The soft limit is raised when it is reached; only the hard one stops us.
        Some((soft, hard)) if hard >= FILES_WANTED => {
            Capability::yes("files", WHAT, format!("limit {soft}, may be raised to {hard}"))
        }
        Some((soft, hard)) => Capability::partly(
            "files",
            WHAT,
            format!("limit {soft}, may be raised to {hard}"),
            advice::descriptors(inputs.place),
        ),
        None => Capability::partly(
            "files",
            WHAT,
            "/proc/self/limits cannot be read",
            Cause::of("the limit on open files is not known"),
        ),
    }
}

fn journal(inputs: &Inputs<'_>) -> Capability {
    const WHAT: &str = "put masks back after kill -9";
    match &inputs.own.journal {
        Ok(folder) => Capability::yes("journal", WHAT, format!("{folder} is ours")),
        Err(why) => Capability::partly(
            "journal",
            WHAT,
            why,
            Cause::of("without a folder for its journal colocate cannot undo after a crash").with(
                super::Fix::now("export XDG_RUNTIME_DIR=FOLDER")
                    .noting("one that only you can write to"),
            ),
        ),
    }
}
