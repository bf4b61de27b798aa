//! What is said of perf events: levels, filters, limits and names.

use super::{PERF, user};
use crate::doctor::Status;
use crate::doctor::probe::Probe;
use expect_test::expect;

#[test]
fn paranoid_levels_that_forbid_name_the_level_and_both_commands() {
    for level in [3, 4] {
        let case = user().at(|place| place.paranoid = Some(level)).refusing(&PERF, libc::EACCES);
        let diagnosis = case.examine();
        let sample = &diagnosis.sections[1].capabilities[0];
        let why = &sample.cause.as_ref().unwrap().why;
        let expected = "expected kernel.perf_event_paranoid of at most 2, found";
        assert_eq!(why, &format!("{expected} {level}"));
    }
    user().at(|place| place.paranoid = Some(4)).refusing(&PERF, libc::EACCES).check(
        "mix",
        &expect![[r#"
            no  mix             which instructions programs execute: software clock with samples on a child: EACCES
                expected kernel.perf_event_paranoid of at most 2, found 4
                  now:      sudo sysctl -w kernel.perf_event_paranoid=2
                  for good: echo 'kernel.perf_event_paranoid = 2' | sudo tee -a /etc/sysctl.d/90-colocate.conf
                  or:       sudo /usr/bin/colocate ARGUMENTS
        "#]],
    );
}

#[test]
fn paranoid_levels_that_allow_are_not_blamed() {
    for level in -1..=2 {
        let case = user().at(|place| place.paranoid = Some(level)).refusing(&PERF, libc::EACCES);
        let text = case.examine().text(false);
        assert!(!text.contains("sysctl -w kernel.perf_event_paranoid"), "{text}");
        assert!(text.contains("a security module (SELinux, AppArmor) forbids it"), "{text}");
    }
    // A holder of CAP_SYS_ADMIN is not stopped by the level, so something else is to blame.
    let with = |capability: u32| {
        let case = user().at(|place| {
            place.paranoid = Some(4);
            place.capabilities = 1 << capability;
        });
        case.refusing(&PERF, libc::EACCES)
    };
    let text = with(21).examine().text(false);
    assert!(!text.contains("perf_event_paranoid of at most"), "{text}");
    // CAP_PERFMON is not enough in the kernels that know such levels.
    with(38).check("mix", &expect![[r#"
        no  mix             which instructions programs execute: software clock with samples on a child: EACCES
            expected kernel.perf_event_paranoid of at most 2, found 4; above that, CAP_PERFMON is not enough here
              now:      sudo sysctl -w kernel.perf_event_paranoid=2
              for good: echo 'kernel.perf_event_paranoid = 2' | sudo tee -a /etc/sysctl.d/90-colocate.conf
              or:       sudo /usr/bin/colocate ARGUMENTS
    "#]]);
}

#[test]
fn a_seccomp_filter_that_answers_eperm() {
    let docker = user().at(|place| {
        place.seccomp = Some(2);
        place.container = Some("Docker");
    });
    docker.refusing(&PERF, libc::EPERM).check(
        "thread-creation",
        &expect![[r#"
            partly  thread-creation see every thread creation at once: perf_event_open with task events: EPERM
                a seccomp filter of Docker answers perf_event_open with EPERM; /proc is scanned instead, and short-lived threads are missed
                  now:      docker run --security-opt seccomp=unconfined IMAGE COMMAND
        "#]],
    );
}

#[test]
fn a_seccomp_filter_that_answers_enosys() {
    let podman = user().at(|place| {
        place.seccomp = Some(2);
        place.container = Some("Podman");
    });
    podman.refusing(&PERF, libc::ENOSYS).check(
        "counters",
        &expect![[r#"
            no  counters        how many instructions threads execute and what they request from caches and memory: task-clock: ENOSYS; instructions: ENOSYS
                a seccomp filter of Podman answers perf_event_open with ENOSYS
                  now:      podman run --security-opt seccomp=unconfined IMAGE COMMAND
        "#]],
    );
    let unit = user().at(|place| place.seccomp = Some(2)).refusing(&PERF, libc::EPERM);
    unit.check(
        "mix",
        &expect![[r#"
            no  mix             which instructions programs execute: software clock with samples on a child: EPERM
                a seccomp filter answers perf_event_open with EPERM
                  for good: sudo systemctl edit UNIT  # if a unit set the filter: add [Service] and SystemCallFilter=CALL; else start colocate outside of what set it
        "#]],
    );
}

#[test]
fn a_kernel_without_perf_is_not_a_filter() {
    let case = user().at(|place| place.paranoid = None).refusing(&PERF, libc::ENOSYS);
    case.check(
        "mix",
        &expect![[r#"
            no  mix             which instructions programs execute: software clock with samples on a child: ENOSYS
                expected a kernel with CONFIG_PERF_EVENTS, found one without (ENOSYS, and no /proc/sys/kernel/perf_event_paranoid)
        "#]],
    );
}

#[test]
fn a_virtual_machine_without_counters_still_works() {
    let case = user()
        .at(|place| place.virtual_machine = true)
        .refusing(&[Probe::CountInstructions], libc::ENOENT);
    assert!(case.examine().works);
    case.check(
        "counters",
        &expect![[r#"
            no  counters        how many instructions threads execute and what they request from caches and memory: task-clock: counted; instructions: ENOENT
                this virtual machine was given no counters (ENOENT); nothing inside it can change that; `sample` and `emulate` need none
                  or:       qemu-system-ARCH -enable-kvm -cpu host,pmu=on  # on the host
                  or:       virsh edit GUEST  # on the host, with libvirt: add <pmu state='on'/> to its <features>
        "#]],
    );
    let bare = user().refusing(&[Probe::CountInstructions], libc::EOPNOTSUPP);
    bare.check(
        "counters",
        &expect![[r#"
            no  counters        how many instructions threads execute and what they request from caches and memory: task-clock: counted; instructions: EOPNOTSUPP
                the kernel knows no counters of this processor (EOPNOTSUPP): they are off in the firmware, or the kernel is older than the processor
        "#]],
    );
}

#[test]
fn the_watchdog_and_missing_names() {
    let turns = |watchdog| {
        let case = user().refusing(&[Probe::CountTogether], libc::EBUSY);
        case.at(|place| place.nmi_watchdog = Some(watchdog))
    };
    turns(false).check("counters", &expect![[r#"
        partly  counters        how many instructions threads execute and what they request from caches and memory: instructions of this thread: counted; all events at once: EBUSY
            too few counters are free for all events, so they take turns and figures are scaled
    "#]]);
    let taken = user().refusing(&[Probe::CountInstructions, Probe::CountTogether], libc::EBUSY);
    taken.check("counters", &expect![[r#"
        no  counters        how many instructions threads execute and what they request from caches and memory: task-clock: counted; instructions: EBUSY
            other programs hold every counter (EBUSY), as `perf stat -a` with many events does
    "#]]);
    // Where all events fit, the watchdog does no harm.
    let fits = user().at(|place| place.nmi_watchdog = Some(true)).examine();
    assert_eq!(fits.sections[1].capabilities[2].status, Status::Yes);
    turns(true).check(
        "counters",
        &expect![[r#"
            partly  counters        how many instructions threads execute and what they request from caches and memory: instructions of this thread: counted; all events at once: EBUSY
                too few counters are free for all events, so they take turns and figures are scaled; the NMI watchdog may hold one
                  now:      sudo sysctl -w kernel.nmi_watchdog=0
                  for good: echo 'kernel.nmi_watchdog = 0' | sudo tee -a /etc/sysctl.d/90-colocate.conf
        "#]],
    );
    user().refusing(&[Probe::LibPfm], libc::ENOENT).check(
        "event-names",
        &expect![[r#"
            partly  event-names     codes of hardware events from libpfm4: libpfm.so.4 is not found
                expected the library libpfm 4; the codes of colocate's own table are used
                  for good: sudo apt-get install libpfm4
        "#]],
    );
}

#[test]
fn other_distributions_name_the_library_otherwise() {
    let command = |distribution: Option<&str>| {
        let case = user().at(|place| place.distribution = distribution.map(str::to_owned));
        let diagnosis = case.refusing(&[Probe::LibPfm], libc::ENOENT).examine();
        let names = &diagnosis.sections[2].capabilities[1];
        assert_eq!(names.name, "event-names");
        names.cause.as_ref().unwrap().fixes.first().map(|fix| fix.command.clone())
    };
    assert_eq!(command(Some("debian")).as_deref(), Some("sudo apt-get install libpfm4"));
    assert_eq!(command(Some("rocky rhel fedora")).as_deref(), Some("sudo dnf install libpfm"));
    assert_eq!(command(Some("nixos")), None);
    assert_eq!(command(None), None);
}

#[test]
fn too_few_files() {
    let case = user().at(|place| {
        place.descriptors = Some((256, 1024));
        place.user = Some(0);
    });
    case.check(
        "files",
        &expect![[r#"
            partly  files           keep counters and run states open: limit 256, may be raised to 1024
                expected room for more open files, found limits of 256 (soft) and 1024 (hard)
                  now:      prlimit --pid $$ --nofile=65536:65536  # for this shell
                  for good: echo 'root - nofile 65536' | tee -a /etc/security/limits.d/90-colocate.conf  # from the next login on
        "#]],
    );
    let none_left = user().refusing(&PERF, libc::EMFILE).at(|place| {
        place.descriptors = Some((64, 64));
    });
    none_left.check(
        "mix",
        &expect![[r#"
            no  mix             which instructions programs execute: software clock with samples on a child: EMFILE
                expected room for more open files, found limits of 64 (soft) and 64 (hard)
                  now:      sudo prlimit --pid $$ --nofile=65536:65536  # for this shell
                  for good: echo '* - nofile 65536' | sudo tee -a /etc/security/limits.d/90-colocate.conf  # from the next login on
        "#]],
    );
}

#[test]
fn small_rings() {
    user().refusing(&[Probe::TaskEvents], libc::EPERM).at(|p| p.mlock_kb = Some(64)).check(
        "thread-creation",
        &expect![[r#"
            partly  thread-creation see every thread creation at once: a ring of 16 pages: EPERM; of 1 page: works
                expected kernel.perf_event_mlock_kb of at least 516, found 64, or other programs have used it up; small rings lose records when threads are created in bursts
                  now:      sudo sysctl -w kernel.perf_event_mlock_kb=2048
                  for good: echo 'kernel.perf_event_mlock_kb = 2048' | sudo tee -a /etc/sysctl.d/90-colocate.conf
        "#]],
    );
}

#[test]
fn no_room_for_any_ring_is_not_a_security_module() {
    let rings = [Probe::TaskEvents, Probe::TaskEventsSmall, Probe::Samples];
    let case = user().refusing(&rings, libc::EPERM);
    let diagnosis = case.examine();
    let causes = [&diagnosis.sections[0].capabilities[2], &diagnosis.sections[1].capabilities[0]];
    for found in causes {
        let cause = found.cause.as_ref().unwrap();
        assert!(cause.why.starts_with("expected kernel.perf_event_mlock_kb"), "{}", cause.why);
        assert_eq!(cause.fixes[0].command, "sudo sysctl -w kernel.perf_event_mlock_kb=2048");
    }
}
