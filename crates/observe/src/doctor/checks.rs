//! The table of what colocate can use, and the check of each row.

use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{Capability, Cause, Own, Place, Section, Status, advice};
use colocate_policy::Source;

/// The inputs of all checks.
struct Inputs<'a> {
    place: &'a Place,
    probes: &'a dyn Probes,
    own: &'a Own,
}

/// A row: what can be used, and the check whether it works.
struct Row {
    name: &'static str,
    what: &'static str,
    check: fn(&Inputs<'_>) -> Finding,
}

const fn row(name: &'static str, what: &'static str, check: fn(&Inputs<'_>) -> Finding) -> Row {
    Row { name, what, check }
}

const PLACING: &[Row] = &[
    row("affinity", "pin this user's tasks to PUs", affinity),
    row("other-tasks", "pin other users' tasks", other_tasks),
    row("thread-creation", "see every thread creation at once", lifecycle),
    row("processes", "find threads in /proc", processes),
    row("cpuset", "place whole groups of processes", cpuset),
    row("freezer", "pause groups of processes", freezer),
    row("scheduler", "the kernel's own scheduler decides when tasks run", sched_ext),
];

const WATCHING: &[Row] = &[
    row("live-code", "read code that JIT compilers make", live_code),
    row("event-names", "codes of hardware events from libpfm4", event_names),
    row("emulate", "exact counts under QEMU", emulate),
];

const MEMORY: &[Row] = &[
    row("numa-calls", "ask where pages are, and move them", numa_calls),
    row("other-memory", "read other users' code for samples, and move their pages", other_memory),
    row("pages-stay", "pages stay where they are put", numa_balancing),
    row("user-faults", "see which pages are written, by userfaultfd", user_faults),
    row("page-scan", "find written pages quickly", page_scan),
];

const UPKEEP: &[Row] = &[
    row("files", "keep counters and run states open", files),
    row("journal", "put masks back after kill -9", journal),
];

/// The row of a source of evidence.
const fn of_source(source: Source) -> Row {
    let check = match source {
        Source::Mix | Source::Spinning => sample,
        Source::Counters => pmu,
        Source::Stacks => stacks,
        Source::RunStates => run_state,
    };
    row(source.name(), source.reports(), check)
}

/// All checks, in the order they are shown.
pub fn all(place: &Place, probes: &dyn Probes, own: &Own) -> Vec<Section> {
    let inputs = Inputs { place, probes, own };
    let section = |title, rows: &[Row]| {
        let found = |row: &Row| (row.check)(&inputs).of(row.name, row.what);
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

/// What a check has found.
struct Finding {
    status: Status,
    found: String,
    cause: Option<Cause>,
}

impl Finding {
    fn yes(found: impl Into<String>) -> Self {
        Self { status: Status::Yes, found: found.into(), cause: None }
    }

    fn no(found: impl Into<String>, cause: Cause) -> Self {
        Self { status: Status::No, found: found.into(), cause: Some(cause) }
    }

    fn partly(found: impl Into<String>, cause: Cause) -> Self {
        Self { status: Status::Partly, ..Self::no(found, cause) }
    }

    fn of(self, name: &'static str, what: &'static str) -> Capability {
        let Self { status, found, cause } = self;
        Capability { name, what, status, found, cause }
    }
}

fn affinity(inputs: &Inputs<'_>) -> Finding {
    match inputs.probes.run(Probe::Affinity) {
        Ok(()) => Finding::yes("sched_setaffinity of a child, read back as it was set"),
        Err(errno) => Finding::no(
            format!("sched_setaffinity of a child: {errno}"),
            advice::call_refused("sched_setaffinity", errno, inputs.place),
        ),
    }
}

fn other_tasks(inputs: &Inputs<'_>) -> Finding {
    let tried = inputs.probes.run(Probe::AffinityOfOthers);
    let found = |outcome: &str| format!("sched_setaffinity of process 1: {outcome}");
    match (tried, inputs.place.may_place_all()) {
        (Ok(()), true) => Finding::yes(found("permitted")),
        (Ok(()), false) => {
            Finding::partly(found("permitted, since it is this user's"), no_sys_nice(inputs))
        }
        (Err(errno), _) => Finding::no(found(&errno.to_string()), no_sys_nice(inputs)),
    }
}

fn no_sys_nice(inputs: &Inputs<'_>) -> Cause {
    let why = "expected CAP_SYS_NICE, found it missing; this user's own programs do not need it";
    advice::only_root(why, inputs.place, inputs.own)
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

fn ring_refused(inputs: &Inputs<'_>, errno: Errno) -> Cause {
    let own_event = inputs.probes.run(Probe::CountTime).is_ok();
    advice::ring_refused(errno, own_event, inputs.place, inputs.own)
}

fn processes(inputs: &Inputs<'_>) -> Finding {
    // Root sees them all the same.
    if !inputs.place.hides_processes || inputs.place.user == Some(0) {
        return Finding::yes("/proc shows all processes");
    }
    let cause = Cause::of("/proc is mounted with hidepid, so other users' programs are not seen")
        .with(super::Fix::now(inputs.place.as_root("mount -o remount,hidepid=0 /proc")));
    Finding::partly("/proc shows this user's processes", cause)
}

/// What a check of control groups says where the groups are there: `yes` if this user may change some.
///
/// `needs` is the controller that is wanted, if it is one that a group may lack.
fn groups(inputs: &Inputs<'_>, needs: Option<&str>) -> Finding {
    let Cgroups { v2, v2_read_only, own, .. } = &inputs.place.cgroups;
    let point = v2.as_deref().unwrap_or_default();
    let found = format!("version 2 at {point}");
    let no = |found: String, cause| Finding::no(found, cause);
    match (inputs.place.user, own) {
        _ if *v2_read_only => no(
            format!("{found}, read-only"),
            Cause::of(
                "expected a mount that may be written to, as containers do not have; run needs none",
            ),
        ),
        (Some(0), _) => Finding::yes(found),
        (_, Some(own)) if own.ours && (own.cpuset || needs.is_none()) => {
            Finding::yes(format!("{found}, own group {} is ours", own.folder))
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

/// The same in version 1, where only root is given groups.
fn old_groups(inputs: &Inputs<'_>, point: &str) -> Finding {
    let found = format!("version 1 at {point}");
    if inputs.place.user == Some(0) {
        return Finding::yes(found);
    }
    let command = format!("{} ARGUMENTS", inputs.own.program);
    let cause = Cause::of("expected a control group of this user's own; run needs none");
    let cause = cause.with(super::Fix::now(inputs.place.as_root(&command)));
    Finding::no(format!("{found}, for root to change"), cause)
}

fn cpuset(inputs: &Inputs<'_>) -> Finding {
    let there = &inputs.place.cgroups;
    match (&there.v2, &there.v1_cpuset) {
        (Some(_), _) if there.v2_cpuset => groups(inputs, Some("cpuset")),
        (_, Some(v1)) => old_groups(inputs, v1),
        (Some(v2), None) => Finding::no(
            format!("version 2 at {v2} without the controller"),
            Cause::of(format!("expected cpuset in {v2}/cgroup.controllers; run needs none")),
        ),
        (None, None) => Finding::no(
            "no control groups are mounted",
            Cause::of("expected a cgroup2 or cpuset mount; run needs none"),
        ),
    }
}

fn freezer(inputs: &Inputs<'_>) -> Finding {
    let there = &inputs.place.cgroups;
    match (&there.v1_freezer, &there.v2) {
        // Every group of version 2 has cgroup.freeze since Linux 5.2, without a controller.
        (None, Some(_)) => groups(inputs, None),
        (Some(v1), _) => old_groups(inputs, v1),
        (None, None) => Finding::no(
            "no control groups are mounted",
            Cause::of("expected a cgroup2 or freezer mount; signals pause single processes"),
        ),
    }
}

fn sched_ext(inputs: &Inputs<'_>) -> Finding {
    match inputs.place.sched_ext.as_deref() {
        None => Finding::yes("this kernel has no sched_ext"),
        Some("disabled") => Finding::yes("sched_ext is there and unused"),
        Some(state) => Finding::partly(
            format!("sched_ext is {state}"),
            Cause::of(
                "a sched_ext scheduler is loaded; it keeps to affinity masks, but decides by rules \
                 of its own when threads run",
            ),
        ),
    }
}

fn sample(inputs: &Inputs<'_>) -> Finding {
    match inputs.probes.run(Probe::Samples) {
        Ok(()) => Finding::yes("software clock with samples on a child: works"),
        Err(errno) => Finding::no(
            format!("software clock with samples on a child: {errno}"),
            ring_refused(inputs, errno),
        ),
    }
}

fn live_code(inputs: &Inputs<'_>) -> Finding {
    let attach = "code of programs that colocate has not started is not read";
    match (inputs.probes.run(Probe::ReadMemory), inputs.place.ptrace_scope) {
        (Ok(()), None | Some(0)) => Finding::yes("process_vm_readv of a child: works"),
        (Ok(()), Some(scope)) => {
            let mut cause = Cause::of(format!(
                "expected kernel.yama.ptrace_scope 0 to read others, found {scope}; {attach}"
            ));
            cause = advice::with_setting(cause, inputs.place, "kernel.yama.ptrace_scope", "0");
            Finding::partly("process_vm_readv of a child: works", cause)
        }
        (Err(errno), Some(3)) => Finding::no(
            format!("process_vm_readv of a child: {errno}"),
            Cause::of("kernel.yama.ptrace_scope is 3, which lasts until the next boot"),
        ),
        (Err(errno), scope @ Some(2)) => {
            let mut cause = Cause::of(format!(
                "expected kernel.yama.ptrace_scope of at most 1, found {}",
                scope.unwrap_or(2)
            ));
            cause = advice::with_setting(cause, inputs.place, "kernel.yama.ptrace_scope", "1");
            Finding::no(format!("process_vm_readv of a child: {errno}"), cause)
        }
        (Err(errno), _) => Finding::no(
            format!("process_vm_readv of a child: {errno}"),
            advice::call_refused("process_vm_readv", errno, inputs.place),
        ),
    }
}

fn pmu(inputs: &Inputs<'_>) -> Finding {
    let software = inputs.probes.run(Probe::CountTime);
    let hardware = inputs.probes.run(Probe::CountInstructions);
    match (software, hardware) {
        (_, Ok(())) => match inputs.probes.run(Probe::CountTogether) {
            Ok(()) => Finding::yes("all events of this thread at once: counted"),
            Err(errno) => Finding::partly(
                format!("instructions of this thread: counted; all events at once: {errno}"),
                advice::take_turns(inputs.place),
            ),
        },
        (Ok(()), Err(errno)) => Finding::no(
            format!("task-clock: counted; instructions: {errno}"),
            advice::counters_refused(errno, inputs.place, inputs.own),
        ),
        (Err(errno), Err(_)) => Finding::no(
            format!("task-clock: {errno}; instructions: {errno}"),
            advice::perf_refused(errno, inputs.place, inputs.own),
        ),
    }
}

fn event_names(inputs: &Inputs<'_>) -> Finding {
    match inputs.probes.run(Probe::LibPfm) {
        Ok(()) => Finding::yes("libpfm.so.4 is loaded"),
        Err(_) => {
            let mut cause = Cause::of(
                "expected the library libpfm 4; the codes of colocate's own table are used",
            );
            cause.fixes.extend(advice::install_libpfm(inputs.place));
            Finding::partly("libpfm.so.4 is not found", cause)
        }
    }
}

fn stacks(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.stacks {
        Ok(found) => Finding::yes(found),
        Err(why) => Finding::no(
            why,
            Cause::of(
                "expected counters of stalls (docs/pmu.md); without them symbiotic needs \
                 --machine-speeds and demand vectors, and nothing else needs them",
            ),
        ),
    }
}

fn emulate(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.emulator {
        Ok(found) => Finding::yes(found),
        Err(why) => Finding::no(
            why,
            Cause::of(
                "expected a QEMU built with plugins and our plugin beside it; distributions' QEMUs \
                 are older or built without; neither run nor plan needs it",
            )
            .with(super::Fix::always("make tracer").noting("in the folder of colocate's source")),
        ),
    }
}

fn run_state(inputs: &Inputs<'_>) -> Finding {
    if inputs.place.schedstat {
        return Finding::yes("/proc/self/schedstat is there");
    }
    let why = "expected a kernel with CONFIG_SCHED_INFO, found no /proc/self/schedstat";
    Finding::no("/proc/self/schedstat is missing", Cause::of(why))
}

fn numa_calls(inputs: &Inputs<'_>) -> Finding {
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
        return Finding::yes(format!("{all}: work"));
    };
    let found = refused.iter().map(|(call, errno)| format!("{call}: {errno}"));
    let found = found.collect::<Vec<_>>().join(", ");
    // Asking and moving are one call; the others are other ways.
    let few = refused.iter().all(|(call, _)| *call != "move_pages");
    let cause = advice::call_refused(&names(&refused), *errno, inputs.place);
    match few {
        true => Finding::partly(found, cause),
        false => Finding::no(found, cause),
    }
}

fn other_memory(inputs: &Inputs<'_>) -> Finding {
    let tried = inputs.probes.run(Probe::MovePagesOfOthers);
    let found = |outcome: &str| format!("move_pages of process 1: {outcome}");
    let cause = || {
        let why =
            "expected CAP_SYS_PTRACE, found it missing; this user's own programs do not need it";
        advice::only_root(why, inputs.place, inputs.own)
    };
    match (tried, inputs.place.may_read_all_memory()) {
        (Ok(()), true) => Finding::yes(found("permitted")),
        (Ok(()), false) => {
            let found = found("permitted, since it is this user's");
            Finding::partly(found, cause())
        }
        (Err(errno @ Errno(libc::EPERM)), false) if !inputs.place.filtered() => {
            Finding::no(found(&errno.to_string()), cause())
        }
        (Err(errno), _) => Finding::no(
            found(&errno.to_string()),
            advice::call_refused("move_pages", errno, inputs.place),
        ),
    }
}

fn numa_balancing(inputs: &Inputs<'_>) -> Finding {
    let nodes = inputs.place.nodes.unwrap_or(1);
    match inputs.place.numa_balancing {
        None => Finding::yes("this kernel does not balance NUMA nodes"),
        Some(0) => Finding::yes("kernel.numa_balancing is 0"),
        Some(_) if nodes < 2 => Finding::yes("kernel.numa_balancing is on, with one node"),
        Some(mode) => {
            let mut cause = Cause::of("the kernel moves pages by itself and may undo ours");
            cause = advice::with_setting(cause, inputs.place, "kernel.numa_balancing", "0");
            let found = format!("kernel.numa_balancing is {mode}, with {nodes} nodes");
            Finding::partly(found, cause)
        }
    }
}

fn user_faults(inputs: &Inputs<'_>) -> Finding {
    match (inputs.probes.run(Probe::UserFault), inputs.place.unprivileged_userfault) {
        (Ok(()), _) => Finding::yes("userfaultfd: works"),
        (Err(errno), Some(false)) if errno.0 == libc::EPERM && !inputs.place.filtered() => {
            let mut cause = Cause::of(
                "expected vm.unprivileged_userfaultfd 1 or CAP_SYS_PTRACE, found neither",
            );
            cause = advice::with_setting(cause, inputs.place, "vm.unprivileged_userfaultfd", "1");
            Finding::no("userfaultfd: EPERM", cause)
        }
        (Err(errno), _) => Finding::no(
            format!("userfaultfd: {errno}"),
            advice::call_refused("userfaultfd", errno, inputs.place),
        ),
    }
}

fn page_scan(inputs: &Inputs<'_>) -> Finding {
    match inputs.probes.run(Probe::PagemapScan) {
        Ok(()) => Finding::yes("ioctl PAGEMAP_SCAN: works"),
        Err(errno @ Errno(libc::ENOTTY | libc::EINVAL)) => Finding::no(
            format!("ioctl PAGEMAP_SCAN: {errno}"),
            Cause::of("expected Linux 6.7 or later, found a kernel that does not know it"),
        ),
        Err(errno) => Finding::no(
            format!("ioctl PAGEMAP_SCAN: {errno}"),
            advice::call_refused("PAGEMAP_SCAN", errno, inputs.place),
        ),
    }
}

/// Counters for 500 threads, 6 events each, and their run states. Chosen.
const FILES_WANTED: u64 = 4096;

fn files(inputs: &Inputs<'_>) -> Finding {
    match inputs.place.descriptors {
        // The soft limit is raised when it is reached; only the hard one stops us.
        Some((soft, hard)) if hard >= FILES_WANTED => {
            Finding::yes(format!("limit {soft}, may be raised to {hard}"))
        }
        Some((soft, hard)) => Finding::partly(
            format!("limit {soft}, may be raised to {hard}"),
            advice::descriptors(inputs.place),
        ),
        None => Finding::partly(
            "/proc/self/limits cannot be read",
            Cause::of("the limit on open files is not known"),
        ),
    }
}

fn journal(inputs: &Inputs<'_>) -> Finding {
    match &inputs.own.journal {
        Ok(folder) => Finding::yes(format!("{folder} is ours")),
        Err(why) => Finding::partly(
            why,
            Cause::of("without a folder for its journal colocate cannot undo after a crash").with(
                super::Fix::now("export XDG_RUNTIME_DIR=FOLDER")
                    .noting("one that only you can write to"),
            ),
        ),
    }
}
