//! Every message, in places that this machine is not.

mod groups;
mod perf;

use super::place::Cgroups;
use super::probe::{Errno, Probe, Probes};
use super::{Diagnosis, Needs, Own, Status, SystemFacts, Tier, examine};
use colocate_evidence::{Source, SourceSet};
use expect_test::{Expect, expect};
use std::collections::BTreeMap;

/// Probes whose answers are written down; those that are not work.
#[derive(Default)]
struct Written(BTreeMap<Probe, i32>);

impl Probes for Written {
    fn run(&self, probe: Probe) -> Result<(), Errno> {
        self.0.get(&probe).map_or(Ok(()), |errno| Err(Errno(*errno)))
    }
}

/// A place that differs in a few things from a friendly one.
struct Case {
    place: SystemFacts,
    probes: Written,
    own: Own,
}

/// A plain user on a server with a recent kernel, where all that needs no privilege works.
fn user() -> Case {
    let cgroups =
        Cgroups { v2: Some("/sys/fs/cgroup".into()), v2_cpuset: true, ..Cgroups::default() };
    let place = SystemFacts {
        kernel: Some("6.12.0".into()),
        distribution: Some("ubuntu debian".into()),
        user: Some(1000),
        seccomp: Some(0),
        paranoid: Some(2),
        mlock_kb: Some(516),
        nmi_watchdog: Some(false),
        ptrace_scope: Some(0),
        numa_balancing: Some(0),
        unprivileged_userfault: Some(true),
        sched_ext: Some("disabled".into()),
        descriptors: Some((1024, 1_048_576)),
        nodes: Some(2),
        cpus_allowed: Some("0-63".into()),
        cgroups,
        schedstat: true,
        io: true,
        ..SystemFacts::default()
    };
    let own = Own {
        program: "/usr/bin/colocate".into(),
        journal: Ok("/run/user/1000/colocate".into()),
        emulator: Ok("/home/u/.cache/colocate/qemu/qemu-x86_64".into()),
        stacks: Ok("Arm cycles without dispatch: frontend, backend, dispatching".into()),
        policies: vec![
            Needs { name: "auto", is_default: true, sources: SourceSet::of(&[Source::WakeUps]) },
            Needs { name: "mix", is_default: false, sources: SourceSet::of(&[Source::Mix]) },
        ],
        measured: Ok("92 figures of 2026-11-25 in /var/lib/colocate/machine-1.json".into()),
    };
    let others = [Probe::AffinityOfOthers, Probe::MovePagesOfOthers];
    let probes = Written(others.map(|probe| (probe, libc::EPERM)).into());
    Case { place, probes, own }
}

impl Case {
    fn at(mut self, change: impl FnOnce(&mut SystemFacts)) -> Self {
        change(&mut self.place);
        self
    }

    fn refusing(mut self, probes: &[Probe], errno: i32) -> Self {
        self.probes.0.extend(probes.iter().map(|probe| (*probe, errno)));
        self
    }

    fn examine(&self) -> Diagnosis {
        examine(&self.place, &self.probes, &self.own)
    }

    /// The lines about one capability.
    fn check(&self, name: &str, expected: &Expect) {
        let diagnosis = self.examine();
        let all = diagnosis.text(false);
        let is_its = |line: &&str| line.get(8..).is_some_and(|rest| rest.starts_with(name));
        let mut lines = all.lines().skip_while(|line| !is_its(line));
        let first = lines.next().unwrap();
        // The lines that follow it are indented deeper than its status.
        let more = lines.take_while(|line| line.starts_with("        "));
        let more = more.map(|line| &line[4..]);
        let lines = std::iter::once(first.trim_start()).chain(more);
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        expected.assert_eq(&text);
    }
}

/// Everything that calls `perf_event_open`.
const PERF: [Probe; 7] = [
    Probe::CountTime,
    Probe::CountInstructions,
    Probe::CountTogether,
    Probe::TaskEvents,
    Probe::TaskEventsSmall,
    Probe::Samples,
    Probe::SampleWakeUps,
];

#[test]
fn where_cycles_go() {
    let mut case = user();
    case.own.stacks = Err("armv8_pmuv3_0: STALL_FRONTEND and STALL_BACKEND stay at 0".into());
    case.check("stacks", &expect![[r#"
        no  stacks          where threads' cycles go: armv8_pmuv3_0: STALL_FRONTEND and STALL_BACKEND stay at 0
            expected counters of stalls (docs/reference/pmu.md); without them symbiotic needs --machine-speeds and demand vectors, and nothing else needs them
    "#]]);
}

/// Where nothing counts wake-ups the default policy has nothing to decide by, though others have.
#[test]
fn a_default_policy_without_evidence() {
    let case = user().refusing(&[Probe::LoadEbpf, Probe::SampleWakeUps], libc::ENXIO);
    let text = case.examine().text(true);
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("colocate works here"), "{text}");
    let warning =
        "but not by the default policy: auto has no evidence for this user without wake-ups";
    assert!(lines.next().unwrap().starts_with(warning), "{text}");
    let verdict = "\npolicies, by their evidence\n    no  auto (the default, without wake-ups)\n";
    assert!(text.contains(verdict), "{text}");
}

#[test]
fn wake_ups_without_ebpf() {
    let without = |errno| user().refusing(&[Probe::LoadEbpf], errno);
    without(libc::ENOEXEC).check("wake-ups", &expect![[r#"
        partly  wake-ups        which threads wake which: an eBPF program at sched_waking and sched_switch: ENOEXEC; perf events there: work
            expected a build with clang, found one without; samples do not show where and when woken threads run
    "#]]);
    without(libc::EPERM)
        .refusing(&[Probe::SampleWakeUps], libc::EACCES)
        .check("wake-ups", &expect![[r#"
            no  wake-ups        which threads wake which: an eBPF program at sched_waking and sched_switch: EPERM; perf events there: EACCES
                expected CAP_BPF and CAP_PERFMON, found one of them missing; perf events need CAP_PERFMON and a readable tracefs (/sys/kernel/tracing)
                  now:      sudo /usr/bin/colocate ARGUMENTS
                  for good: sudo chgrp GROUP /usr/bin/colocate && sudo chmod 0750 /usr/bin/colocate && sudo setcap cap_bpf,cap_perfmon+ep /usr/bin/colocate  # for the users in GROUP; without the first two for everyone who may execute the file
        "#]]);
    without(libc::EINVAL)
        .refusing(&[Probe::SampleWakeUps], libc::ENOENT)
        .check("wake-ups", &expect![[r#"
            no  wake-ups        which threads wake which: an eBPF program at sched_waking and sched_switch: EINVAL; perf events there: ENOENT
                expected Linux 5.15 or later with its types (/sys/kernel/btf/vmlinux), found a kernel that loads no such program; perf events need CAP_PERFMON and a readable tracefs (/sys/kernel/tracing)
                  now:      sudo mount -t tracefs tracefs /sys/kernel/tracing
        "#]]);
}

#[test]
fn a_machine_that_was_measured_under_another_kernel() {
    let mut case = user();
    case.own.measured = Err("measured under Linux 6.1.0, and this is Linux 6.12.0".into());
    case.check("calibration", &expect![[r#"
        partly  calibration     predict with this machine's own speeds and costs: measured under Linux 6.1.0, and this is Linux 6.12.0
            without figures of its own this machine is taken for one of its kind (docs/reference/calibrate.md)
              now:      /usr/bin/colocate calibrate  # less than two minutes, on an idle machine
    "#]]);
}

#[test]
fn a_plain_user_on_a_friendly_server() {
    let diagnosis = user().examine();
    assert!(diagnosis.works);
    expect![[r#"
        colocate works here: tasks can be placed, programs can be watched

        this place
                kernel          6.12.0
                user            1000, tier own-process
                cpus allowed    0-63
                numa nodes      2
                machine         no hypervisor seen
                container       none seen
                seccomp         no filter

        placing
           yes  affinity        pin this user's tasks to PUs: sched_setaffinity of a child, read back as it was set
            no  other-tasks     pin other users' tasks: sched_setaffinity of process 1: EPERM
                expected CAP_SYS_NICE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS
           yes  thread-creation see every thread creation at once: perf_event_open with task events: works
           yes  processes       find threads in /proc: /proc shows all processes
            no  cpuset          place whole groups of processes: version 2 at /sys/fs/cgroup, for root to change
                expected a control group of this user's own; run needs none
                  now:      sudo /usr/bin/colocate ARGUMENTS
            no  freezer         pause groups of processes: version 2 at /sys/fs/cgroup, for root to change
                expected a control group of this user's own; run needs none
                  now:      sudo /usr/bin/colocate ARGUMENTS
           yes  scheduler       the kernel's own scheduler decides when tasks run: sched_ext is there and unused

        evidence
           yes  mix             which instructions programs execute: software clock with samples on a child: works
           yes  counters        how many instructions threads execute and what they request from caches and memory: all events of this thread at once: counted
           yes  stacks          where threads' cycles go: Arm cycles without dispatch: frontend, backend, dispatching
           yes  run-states      how long threads run and wait for a PU: /proc/self/schedstat is there
           yes  phases          at once when a serial phase begins or ends: an eBPF program at sched_waking and sched_switch: works
           yes  spinning        which threads only wait for others in a loop: software clock with samples on a child: works
           yes  wake-ups        which threads wake which: an eBPF program at sched_waking and sched_switch: works
           yes  sharing         which threads use the same memory: process_vm_readv of a child: works
           yes  switches        how often threads wait for others, read and write: /proc/self/io is there
           yes  pages           which threads use which pages: move_pages, get_mempolicy, set_mempolicy, mbind, migrate_pages: work

        what else evidence uses
           yes  live-code       read code that JIT compilers make: process_vm_readv of a child: works
           yes  event-names     codes of hardware events from libpfm4: libpfm.so.4 is loaded
           yes  emulate         exact counts under QEMU: /home/u/.cache/colocate/qemu/qemu-x86_64
           yes  calibration     predict with this machine's own speeds and costs: 92 figures of 2026-11-25 in /var/lib/colocate/machine-1.json

        memory
           yes  numa-calls      ask where pages are, and move them: move_pages, get_mempolicy, set_mempolicy, mbind, migrate_pages: work
            no  other-memory    read other users' code for samples, and move their pages: move_pages of another process: EPERM
                expected CAP_SYS_PTRACE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS
           yes  pages-stay      pages stay where they are put: kernel.numa_balancing is 0
           yes  user-faults     see which pages are written, by userfaultfd: userfaultfd: works
           yes  page-scan       find written pages quickly: ioctl PAGEMAP_SCAN: works

        upkeep
           yes  files           keep counters and run states open: limit 1024, may be raised to 1048576
           yes  journal         put masks back after kill -9: /run/user/1000/colocate is ours

        policies, by their evidence
           yes  auto (the default), mix

        beyond the tier own-process
                CAP_PERFMON (Linux 5.8) would add: counting what other users' programs do
                  for good: sudo chgrp GROUP /usr/bin/colocate && sudo chmod 0750 /usr/bin/colocate && sudo setcap cap_perfmon+ep /usr/bin/colocate  # for the users in GROUP; without the first two for everyone who may execute the file
                root would add: placing other users' programs, moving pages that several processes share, changing cpusets and kernel settings
                  now:      sudo /usr/bin/colocate ARGUMENTS
    "#]]
    .assert_eq(&diagnosis.text(false));
}

#[test]
fn quiet_says_only_what_does_not_work() {
    expect![[r#"
        colocate works here: tasks can be placed, programs can be watched

        placing
            no  other-tasks     pin other users' tasks: sched_setaffinity of process 1: EPERM
                expected CAP_SYS_NICE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS
            no  cpuset          place whole groups of processes: version 2 at /sys/fs/cgroup, for root to change
                expected a control group of this user's own; run needs none
                  now:      sudo /usr/bin/colocate ARGUMENTS
            no  freezer         pause groups of processes: version 2 at /sys/fs/cgroup, for root to change
                expected a control group of this user's own; run needs none
                  now:      sudo /usr/bin/colocate ARGUMENTS

        memory
            no  other-memory    read other users' code for samples, and move their pages: move_pages of another process: EPERM
                expected CAP_SYS_PTRACE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS
    "#]]
    .assert_eq(&user().examine().text(true));
}

#[test]
fn yama() {
    user().at(|place| place.ptrace_scope = Some(1)).check(
        "live-code",
        &expect![[r#"
            partly  live-code       read code that JIT compilers make: process_vm_readv of a child: works
                expected kernel.yama.ptrace_scope 0 to read others, found 1; code of programs that colocate has not started is not read
                  now:      sudo sysctl -w kernel.yama.ptrace_scope=0
                  for good: echo 'kernel.yama.ptrace_scope = 0' | sudo tee -a /etc/sysctl.d/90-colocate.conf
        "#]],
    );
    let refused = |scope| {
        let case = user().at(|place| place.ptrace_scope = Some(scope));
        case.refusing(&[Probe::ReadMemory], libc::EPERM)
    };
    refused(2).check(
        "live-code",
        &expect![[r#"
            no  live-code       read code that JIT compilers make: process_vm_readv of a child: EPERM
                expected kernel.yama.ptrace_scope of at most 1, found 2
                  now:      sudo sysctl -w kernel.yama.ptrace_scope=1
                  for good: echo 'kernel.yama.ptrace_scope = 1' | sudo tee -a /etc/sysctl.d/90-colocate.conf
        "#]],
    );
    // The kernel refuses to lower 3, so no command is offered.
    refused(3).check(
        "live-code",
        &expect![[r#"
            no  live-code       read code that JIT compilers make: process_vm_readv of a child: EPERM
                kernel.yama.ptrace_scope is 3, which lasts until the next boot
        "#]],
    );
}

#[test]
fn memory_in_a_container() {
    let kubernetes = user().at(|place| {
        place.seccomp = Some(2);
        place.container = Some("Kubernetes");
        place.numa_balancing = Some(1);
        place.unprivileged_userfault = Some(false);
    });
    let case = kubernetes
        .refusing(&[Probe::MovePages, Probe::UserFault], libc::EPERM)
        .refusing(&[Probe::PagemapScan], libc::ENOTTY);
    let diagnosis = case.examine();
    assert!(diagnosis.works);
    case.check(
        "numa-calls",
        &expect![[r#"
            no  numa-calls      ask where pages are, and move them: move_pages: EPERM
                a seccomp filter of Kubernetes answers move_pages with EPERM
                  for good: kubectl patch deployment NAME --type=merge -p '{"spec":{"template":{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}}}}'
        "#]],
    );
    kubernetes_without(&[Probe::BindMemory, Probe::SetPolicy]).check("numa-calls", &expect![[r#"
        partly  numa-calls      ask where pages are, and move them: set_mempolicy: ENOSYS, mbind: ENOSYS
            a seccomp filter of Kubernetes answers set_mempolicy, mbind with ENOSYS
              for good: kubectl patch deployment NAME --type=merge -p '{"spec":{"template":{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}}}}'
    "#]]);
    case.check(
        "pages-stay",
        &expect![[r#"
            partly  pages-stay      pages stay where they are put: kernel.numa_balancing is 1, with 2 nodes
                the kernel moves pages by itself and may undo ours
                  now:      sudo sysctl -w kernel.numa_balancing=0  # outside of the container
                  for good: echo 'kernel.numa_balancing = 0' | sudo tee -a /etc/sysctl.d/90-colocate.conf  # outside of the container
        "#]],
    );
    case.check(
        "page-scan",
        &expect![[r#"
            no  page-scan       find written pages quickly: ioctl PAGEMAP_SCAN: ENOTTY
                expected Linux 6.7 or later, found a kernel that does not know it
        "#]],
    );
    let plain = user().at(|place| place.unprivileged_userfault = Some(false));
    plain.refusing(&[Probe::UserFault], libc::EPERM).check(
        "user-faults",
        &expect![[r#"
            no  user-faults     see which pages are written, by userfaultfd: userfaultfd: EPERM
                expected vm.unprivileged_userfaultfd 1 or CAP_SYS_PTRACE, found neither
                  now:      sudo sysctl -w vm.unprivileged_userfaultfd=1
                  for good: echo 'vm.unprivileged_userfaultfd = 1' | sudo tee -a /etc/sysctl.d/90-colocate.conf
        "#]],
    );
}

#[test]
fn hidden_processes_a_foreign_scheduler_and_no_journal() {
    let mut case = user().at(|place| {
        place.hides_processes = true;
        place.sched_ext = Some("enabled".into());
        place.cgroups = Cgroups::default();
        place.schedstat = false;
    });
    case.own.journal = Err("/tmp/colocate-1000: expected a folder, found a file".into());
    case.own.emulator = Err("no qemu-x86_64 in /home/u/.cache/colocate/qemu".into());
    expect![[r#"
        colocate works here: tasks can be placed, programs can be watched

        placing
            no  other-tasks     pin other users' tasks: sched_setaffinity of process 1: EPERM
                expected CAP_SYS_NICE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS
        partly  processes       find threads in /proc: /proc shows this user's processes
                /proc is mounted with hidepid, so other users' programs are not seen
                  now:      sudo mount -o remount,hidepid=0 /proc
            no  cpuset          place whole groups of processes: no control groups are mounted
                expected a cgroup2 or cpuset mount; run needs none
            no  freezer         pause groups of processes: no control groups are mounted
                expected a cgroup2 or freezer mount; signals pause single processes
        partly  scheduler       the kernel's own scheduler decides when tasks run: sched_ext is enabled
                a sched_ext scheduler is loaded; it keeps to affinity masks, but decides by rules of its own when threads run

        evidence
            no  run-states      how long threads run and wait for a PU: /proc/self/schedstat is missing
                expected a kernel with CONFIG_SCHED_INFO, found no /proc/self/schedstat

        what else evidence uses
            no  emulate         exact counts under QEMU: no qemu-x86_64 in /home/u/.cache/colocate/qemu
                expected a QEMU built with plugins and our plugin beside it; distributions' QEMUs are older or built without; neither run nor plan needs it
                  for good: make tracer  # in the folder of colocate's source

        memory
            no  other-memory    read other users' code for samples, and move their pages: move_pages of another process: EPERM
                expected CAP_SYS_PTRACE, found it missing; this user's own programs do not need it
                  now:      sudo /usr/bin/colocate ARGUMENTS

        upkeep
        partly  journal         put masks back after kill -9: /tmp/colocate-1000: expected a folder, found a file
                without a folder for its journal colocate cannot undo after a crash
                  now:      export XDG_RUNTIME_DIR=FOLDER  # one that only you can write to
    "#]]
    .assert_eq(&case.examine().text(true));
}

#[test]
fn nothing_works_without_a_way_to_watch_or_to_place() {
    let mut blind = user().at(|place| place.seccomp = Some(2)).refusing(&PERF, libc::EPERM);
    blind.own.emulator = Err("none".into());
    assert!(!blind.examine().works);
    blind.own.emulator = Ok("/qemu".into());
    assert!(blind.examine().works);
    let bound = user().refusing(&[Probe::Affinity], libc::EPERM);
    assert!(!bound.examine().works);
    let first = bound.examine().text(true).lines().next().unwrap().to_owned();
    assert!(first.starts_with("colocate does not work here"), "{first}");
}

#[test]
fn root_needs_no_sudo_and_no_tier() {
    let root = user().at(|place| {
        place.user = Some(0);
        place.capabilities = u64::MAX;
        place.nmi_watchdog = Some(true);
    });
    let mut root = root;
    root.probes.0 = BTreeMap::from([(Probe::CountTogether, libc::EBUSY)]);
    let diagnosis = root.examine();
    assert_eq!(diagnosis.tier, Tier::Root);
    assert!(diagnosis.next.is_empty());
    let text = diagnosis.text(false);
    assert!(!text.contains("sudo"), "{text}");
    assert!(text.contains("now:      sysctl -w kernel.nmi_watchdog=0"), "{text}");
}

#[test]
fn whatever_comes_back_has_a_cause_and_nothing_panics() {
    let errnos = [1, 2, 3, 11, 12, 13, 16, 19, 22, 24, 25, 38, 95, 999];
    let all = [
        Probe::Affinity,
        Probe::AffinityOfOthers,
        Probe::ReadMemory,
        Probe::MovePages,
        Probe::MovePagesOfOthers,
        Probe::BindMemory,
        Probe::SetPolicy,
        Probe::MigratePages,
        Probe::MemoryPolicy,
        Probe::UserFault,
        Probe::PagemapScan,
        Probe::LibPfm,
    ];
    for errno in errnos {
        for seccomp in [None, Some(0), Some(2)] {
            let case = user().at(|place| place.seccomp = seccomp);
            let diagnosis = case.refusing(&all, errno).refusing(&PERF, errno).examine();
            for capability in diagnosis.sections.iter().flat_map(|s| &s.capabilities) {
                let explained =
                    capability.cause.as_ref().is_some_and(|cause| !cause.why.is_empty());
                assert_eq!(explained, capability.status < Status::Yes, "{capability:?}");
            }
            let empty = examine(&SystemFacts::default(), &case_probes(&all, errno), &user().own);
            assert_eq!(empty.version, super::VERSION);
        }
    }
}

#[test]
fn every_command_is_one_that_a_shell_can_read() {
    let mut commands = std::collections::BTreeSet::new();
    let containers = [None, Some("Docker"), Some("Podman"), Some("Kubernetes"), Some("LXC")];
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EMFILE, libc::ENOENT, libc::EBUSY]
    {
        for container in containers {
            let mut case = user().refusing(&PERF, errno).at(|place| {
                place.container = container;
                place.seccomp = container.map(|_| 2);
                place.virtual_machine = container.is_none();
                place.nmi_watchdog = Some(true);
                place.paranoid = Some(if container.is_none() { 4 } else { 2 });
                place.ptrace_scope = Some(1);
                place.numa_balancing = Some(1);
                place.hides_processes = true;
                place.descriptors = Some((64, 128));
            });
            case = case.refusing(&[Probe::LibPfm, Probe::MovePages], errno);
            if errno == libc::EBUSY {
                // Only then is turn-taking all that is wrong.
                case.probes.0.remove(&Probe::CountTime);
                case.probes.0.remove(&Probe::CountInstructions);
            }
            case.own.journal = Err("none".into());
            case.own.emulator = Err("none".into());
            let diagnosis = case.examine();
            let all = diagnosis.sections.iter().flat_map(|section| &section.capabilities);
            let causes = all.filter_map(|found| found.cause.as_ref()).chain(&diagnosis.next);
            commands.extend(causes.flat_map(|cause| &cause.fixes).map(|fix| fix.command.clone()));
        }
    }
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let read = std::process::Command::new("sh").args(["-n", "-c", &command]).status().unwrap();
        assert!(read.success(), "{command}");
    }
}

/// In Kubernetes, whose filter answers these.
fn kubernetes_without(probes: &[Probe]) -> Case {
    let case = user().at(|place| {
        place.seccomp = Some(2);
        place.container = Some("Kubernetes");
    });
    case.refusing(probes, libc::ENOSYS)
}

fn case_probes(probes: &[Probe], errno: i32) -> Written {
    Written(probes.iter().map(|probe| (*probe, errno)).collect())
}
