//! The table of what colocate can use, and the check of each row.

use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{Capability, Cause, Fix, Own, Place, Section, Status, advice};
use colocate_evidence::Source;

/// The inputs of all checks.
struct Inputs<'a> {
    place: &'a Place,
    probes: &'a dyn Probes,
    own: &'a Own,
}

/// Row: a capability and its check.
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
    row("calibration", "predict with this machine's own speeds and costs", calibration),
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
        Source::WakeUps => wake_ups,
        Source::Sharing => accesses,
        Source::Phases => ebpf,
        Source::Switches => switches,
        Source::Pages => page_groups,
    };
    row(source.name(), source.reports(), check)
}

/// All checks, in the order of the output.
pub fn all(place: &Place, probes: &dyn Probes, own: &Own) -> Vec<Section> {
    let inputs = Inputs { place, probes, own };
    let section = |title, rows: &[Row]| {
        let found =
            |row: &Row| Capability { name: row.name, what: row.what, ..(row.check)(&inputs) };
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

/// Result of a check; the row gives the name.
type Finding = Capability;

impl Finding {
    fn yes(found: impl Into<String>) -> Self {
        Self { name: "", what: "", status: Status::Yes, found: found.into(), cause: None }
    }

    fn no(found: impl Into<String>, cause: Cause) -> Self {
        Self { status: Status::No, cause: Some(cause), ..Self::yes(found) }
    }

    fn partly(found: impl Into<String>, cause: Cause) -> Self {
        Self { status: Status::Partly, cause: Some(cause), ..Self::yes(found) }
    }
}

impl Inputs<'_> {
    /// Tries `probe`, described as `what`: it works, or does not for the cause named by `why`.
    fn tried(&self, probe: Probe, what: &str, why: impl FnOnce(Errno) -> Cause) -> Finding {
        match self.probes.run(probe) {
            Ok(()) => Finding::yes(format!("{what}: works")),
            Err(errno) => Finding::no(format!("{what}: {errno}"), why(errno)),
        }
    }

    /// Cause of the refusal of `call`.
    fn refused(&self, call: &str, errno: Errno) -> Cause {
        advice::call_refused(call, errno, self.place)
    }

    /// Cause whose remedy is root's rights.
    fn only_root(&self, why: &str) -> Cause {
        advice::only_root(why, self.place, self.own)
    }

    /// Cause whose remedy is the kernel setting `name`.
    fn setting(&self, why: impl Into<String>, name: &str, value: &str) -> Cause {
        advice::with_setting(Cause::of(why), self.place, name, value)
    }

    /// Tries a call on another process, which needs a capability for another user's process; `may`
    /// is whether this user has it. `refused` is the cause of any failure with the capability.
    fn of_others(
        &self,
        (probe, call): (Probe, &str),
        (capability, may): (&str, bool),
        refused: impl FnOnce(Errno) -> Option<Cause>,
    ) -> Finding {
        let found = |outcome: &str| format!("{call}: {outcome}");
        let missing = || {
            self.only_root(&format!(
                "expected {capability}, found it missing; this user's own programs do not need it"
            ))
        };
        match (self.probes.run(probe), may) {
            (Ok(()), true) => Finding::yes(found("permitted")),
            (Ok(()), false) => {
                Finding::partly(found("permitted, since it is this user's"), missing())
            }
            (Err(errno), _) => {
                Finding::no(found(&errno.to_string()), refused(errno).unwrap_or_else(missing))
            }
        }
    }
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
        return Finding::no(format!("{found}, mounted read-only"), Cause::of(why));
    }
    let Some(own) = own.filter(|_| inputs.place.user != Some(0)) else {
        return groups_of_root(inputs, found, inputs.place.cgroups.v2_refuses);
    };
    let found = format!("{found}, own group {} is ours", own.folder);
    let Some(needs) = needs.filter(|_| !own.cpuset) else { return Finding::yes(found) };
    let above = own.folder.rsplit_once('/').map_or(point, |(above, _)| above);
    let tee = inputs.place.as_root(&format!("tee {above}/cgroup.subtree_control"));
    let why = format!("expected {needs} in {}/cgroup.controllers; run needs none", own.folder);
    Finding::no(found, Cause::of(why).with(Fix::now(format!("echo +{needs} | {tee}"))))
}

/// Control groups that only root may change, as all of version 1 and some of version 2. `refuses`
/// is the kernel's error on creating a group.
fn groups_of_root(inputs: &Inputs<'_>, found: String, refuses: Option<Errno>) -> Finding {
    match (refuses, inputs.place.user) {
        (Some(Errno(libc::EROFS)), _) => {
            let why = "expected a mount that may be written to, as containers do not have; run needs none";
            return Finding::no(format!("{found}, mounted read-only"), Cause::of(why));
        }
        (Some(errno), Some(0)) => {
            let why = "expected groups that this user may change, found those of another user namespace; run needs none";
            return Finding::no(format!("{found}, not to be changed ({errno})"), Cause::of(why));
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
        (Some(v1), _) => {
            groups_of_root(inputs, format!("version 1 at {v1}"), there.v1_freezer_refuses)
        }
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
    let what = "software clock with samples on a child";
    inputs.tried(Probe::Samples, what, |errno| ring_refused(inputs, errno))
}

/// Access samples, and decoding the sampled code.
fn accesses(inputs: &Inputs<'_>) -> Finding {
    if !cfg!(target_arch = "x86_64") {
        let why = "which address an instruction accesses is worked out for x86-64 only";
        return Finding::no("another processor".to_owned(), Cause::of(why));
    }
    let samples = sample(inputs);
    if samples.status == Status::Yes { live_code(inputs) } else { samples }
}

/// Samples on each PU, and the nodes of pages: per-thread samples alone cost programs with frequent
/// switches too much.
fn page_groups(inputs: &Inputs<'_>) -> Finding {
    let samples = accesses(inputs);
    if samples.status != Status::Yes {
        return samples;
    }
    match inputs.probes.run(Probe::SampleWakeUps) {
        Err(errno) if matches!(errno.0, libc::EACCES | libc::EPERM) => {
            Finding::no(format!("samples on each PU: {errno}"), ring_refused(inputs, errno))
        }
        _ => numa_calls(inputs),
    }
}

fn live_code(inputs: &Inputs<'_>) -> Finding {
    const NAME: &str = "kernel.yama.ptrace_scope";
    let scope = inputs.place.ptrace_scope;
    let found =
        inputs.tried(Probe::ReadMemory, "process_vm_readv of a child", |errno| match scope {
            Some(3) => Cause::of(format!("{NAME} is 3, which lasts until the next boot")),
            Some(2) => inputs.setting(format!("expected {NAME} of at most 1, found 2"), NAME, "1"),
            _ => inputs.refused("process_vm_readv", errno),
        });
    match scope {
        Some(scope @ 1..) if found.status == Status::Yes => {
            let attach = "code of programs that colocate has not started is not read";
            let why = format!("expected {NAME} 0 to read others, found {scope}; {attach}");
            Finding::partly(found.found, inputs.setting(why, NAME, "0"))
        }
        _ => found,
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
                "expected counters of stalls (docs/reference/pmu.md); without them symbiotic needs \
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
            .with(Fix::always("make tracer").noting("in the folder of colocate's source")),
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

fn switches(inputs: &Inputs<'_>) -> Finding {
    if inputs.place.io {
        return Finding::yes("/proc/self/io is there");
    }
    let why = "expected a kernel with CONFIG_TASK_IO_ACCOUNTING, found no /proc/self/io";
    Finding::partly(
        "/proc/self/io is missing: calls that read and write are unknown",
        Cause::of(why),
    )
}

fn ebpf(inputs: &Inputs<'_>) -> Finding {
    inputs.tried(Probe::LoadEbpf, "an eBPF program at sched_waking and sched_switch", |errno| match errno.0 {
        libc::ENOEXEC => Cause::of("expected a build with clang, found one without"),
        libc::EPERM => advice::no_ebpf(inputs.place, inputs.own),
        _ => Cause::of(
            "expected Linux 5.15 or later with its types (/sys/kernel/btf/vmlinux), found a kernel that loads no such program",
        ),
    })
}

fn wake_ups(inputs: &Inputs<'_>) -> Finding {
    let ebpf = ebpf(inputs);
    let Some(mut cause) = ebpf.cause else { return ebpf };
    let found = |outcome: &str| format!("{}; perf events there: {outcome}", ebpf.found);
    match inputs.probes.run(Probe::SampleWakeUps) {
        Ok(()) => {
            cause.why += "; samples do not show where and when woken threads run";
            Finding::partly(found("work"), cause)
        }
        Err(Errno(libc::ENXIO)) => {
            cause.why += "; perf events have the numbers of the first PID namespace, and this is another one";
            Finding::no(found("ENXIO"), cause)
        }
        Err(errno) => {
            cause.why +=
                "; perf events need CAP_PERFMON and a readable tracefs (/sys/kernel/tracing)";
            if errno.0 == libc::ENOENT {
                let mount = "mount -t tracefs tracefs /sys/kernel/tracing";
                cause.fixes.push(Fix::now(inputs.place.as_root(mount)));
            }
            Finding::no(found(&errno.to_string()), cause)
        }
    }
}

fn numa_calls(inputs: &Inputs<'_>) -> Finding {
    let calls = [
        ("move_pages", Probe::MovePages),
        ("get_mempolicy", Probe::MemoryPolicy),
        ("set_mempolicy", Probe::SetPolicy),
        ("mbind", Probe::BindMemory),
        ("migrate_pages", Probe::MigratePages),
    ];
    let refused: Vec<(&str, Errno)> = calls
        .into_iter()
        .filter_map(|(call, probe)| inputs.probes.run(probe).err().map(|errno| (call, errno)))
        .collect();
    let Some((_, errno)) = refused.first() else {
        return Finding::yes(format!("{}: work", calls.map(|(call, _)| call).join(", ")));
    };
    let found: Vec<String> =
        refused.iter().map(|(call, errno)| format!("{call}: {errno}")).collect();
    let names: Vec<&str> = refused.iter().map(|(call, _)| *call).collect();
    let cause = inputs.refused(&names.join(", "), *errno);
    // Asking and moving are one call; the others are other ways.
    match names.contains(&"move_pages") {
        true => Finding::no(found.join(", "), cause),
        false => Finding::partly(found.join(", "), cause),
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
            Cause::of("expected Linux 6.7 or later, found a kernel that does not know it")
        }
        _ => inputs.refused("PAGEMAP_SCAN", errno),
    })
}

/// Counters for 500 threads, 6 events each, and their run states. Chosen.
const FILES_WANTED: u64 = 4096;

fn files(inputs: &Inputs<'_>) -> Finding {
    let Some((soft, hard)) = inputs.place.descriptors else {
        let cause = Cause::of("the limit on open files is not known");
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
            Cause::of("without figures of its own this machine is taken for one of its kind (docs/reference/calibrate.md)").with(
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
            Cause::of("without a folder for its journal colocate cannot undo after a crash").with(
                Fix::now("export XDG_RUNTIME_DIR=FOLDER").noting("one that only you can write to"),
            ),
        ),
    }
}
