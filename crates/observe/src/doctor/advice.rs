//! From an answer of the kernel to the cause and to the commands that remedy it.

use super::place::or_unknown;
use super::probe::Errno;
use super::{FailureCause, Fix, Own, SystemFacts, Tier};
use caps::Capability;

/// Level of `kernel.perf_event_paranoid` up to which every user may watch its own processes at user
/// level. Kernels of Debian and Ubuntu (and Android) have levels 3 and 4, which forbid this too and
/// require `CAP_SYS_ADMIN`; `CAP_PERFMON` is not enough (seen in guests with Debian's 6.1 and
/// 6.12). In mainline kernels, levels above 2 mean the same as 2.
const OPEN_TO_OWNERS: i32 = 2;

/// Cause of a refused `perf_event_open` for an event without a hardware counter.
pub fn perf_refused(errno: Errno, place: &SystemFacts, own: &Own) -> FailureCause {
    match (errno.0, place.paranoid) {
        (libc::ENOSYS, None) => FailureCause::of(
            "expected a kernel with CONFIG_PERF_EVENTS, found one without (ENOSYS, and no \
             /proc/sys/kernel/perf_event_paranoid)",
        ),
        (libc::ENOSYS, Some(_)) => filtered("perf_event_open", errno, place),
        (libc::EACCES | libc::EPERM, Some(level))
            if level > OPEN_TO_OWNERS && !place.capable(Capability::CAP_SYS_ADMIN) =>
        {
            paranoid(level, place, own)
        }
        (libc::EACCES | libc::EPERM, _) if place.filtered() => {
            filtered("perf_event_open", errno, place)
        }
        (libc::EACCES | libc::EPERM, level) => {
            let level = or_unknown(level.as_ref());
            FailureCause::of(format!(
                "the kernel answered {errno} although kernel.perf_event_paranoid is {level} and no \
                 seccomp filter is in force: a security module (SELinux, AppArmor) forbids it; its \
                 log says which rule"
            ))
            .with(Fix::instead(place.as_root("journalctl -k --grep='avc|apparmor'")))
        }
        (libc::EMFILE, _) => descriptors(place),
        _ => FailureCause::of(format!("the kernel answered {errno} to perf_event_open")),
    }
}

/// Cause of a refused hardware event while software events work.
pub fn counters_refused(errno: Errno, place: &SystemFacts, own: &Own) -> FailureCause {
    match errno.0 {
        libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL => no_counters(errno, place),
        libc::EBUSY => FailureCause::of(
            "other programs hold every counter (EBUSY), as `perf stat -a` with many events does",
        ),
        _ => perf_refused(errno, place, own),
    }
}

fn no_counters(errno: Errno, place: &SystemFacts) -> FailureCause {
    if !place.virtual_machine {
        return FailureCause::of(format!(
            "the kernel knows no counters of this processor ({errno}): they are off in the \
             firmware, or the kernel is older than the processor"
        ));
    }
    FailureCause::of(format!(
        "this virtual machine was given no counters ({errno}); nothing inside it can change that; \
         `sample` and `emulate` need none"
    ))
    .with(Fix::instead("qemu-system-ARCH -enable-kvm -cpu host,pmu=on").noting("on the host"))
    .with(
        Fix::instead("virsh edit GUEST")
            .noting("on the host, with libvirt: add <pmu state='on'/> to its <features>"),
    )
}

/// Not all events fit at once.
pub fn take_turns(place: &SystemFacts) -> FailureCause {
    let few = "too few counters are free for all events, so they take turns and figures are scaled";
    match place.nmi_watchdog {
        // Since Linux 6.5 there is a kind of watchdog that needs no counter, and no file shows which it is.
        Some(true) => {
            let cause = FailureCause::of(format!("{few}; the NMI watchdog may hold one"));
            with_setting(cause, place, "kernel.nmi_watchdog", "0")
        }
        _ => FailureCause::of(few),
    }
}

fn paranoid(level: i32, place: &SystemFacts, own: &Own) -> FailureCause {
    let beyond =
        if place.may_watch_all() { "; above that, CAP_PERFMON is not enough here" } else { "" };
    let cause = FailureCause::of(format!(
        "expected kernel.perf_event_paranoid of at most {OPEN_TO_OWNERS}, found {level}{beyond}"
    ));
    let cause = with_setting(cause, place, "kernel.perf_event_paranoid", "2");
    let run = place.as_root(&format!("{} ARGUMENTS", own.program));
    unless_root(cause, place, Fix::instead(run))
}

/// Adds `fix`, but for root in a container without its capabilities.
fn unless_root(cause: FailureCause, place: &SystemFacts, fix: Fix) -> FailureCause {
    if place.user == Some(0) { cause } else { cause.with(fix) }
}

/// A seccomp filter answered in the kernel's stead.
fn filtered(call: &str, errno: Errno, place: &SystemFacts) -> FailureCause {
    let inside = place.container.map_or(String::new(), |kind| format!(" of {kind}"));
    let cause = FailureCause::of(format!("a seccomp filter{inside} answers {call} with {errno}"));
    match place.container {
        Some("Docker") => {
            cause.with(Fix::now("docker run --security-opt seccomp=unconfined IMAGE COMMAND"))
        }
        Some("Podman") => {
            cause.with(Fix::now("podman run --security-opt seccomp=unconfined IMAGE COMMAND"))
        }
        Some("Kubernetes") => cause.with(Fix::always(
            "kubectl patch deployment NAME --type=merge -p \
             '{\"spec\":{\"template\":{\"spec\":{\"securityContext\":{\"seccompProfile\":\
             {\"type\":\"Unconfined\"}}}}}}'",
        )),
        _ => cause.with(Fix::always(place.as_root("systemctl edit UNIT")).noting(
            "if a unit set the filter: add [Service] and SystemCallFilter=CALL; else start colocate \
             outside of what set it",
        )),
    }
}

/// Cause of a refused system call other than `perf_event_open`.
pub fn call_refused(call: &str, errno: Errno, place: &SystemFacts) -> FailureCause {
    match errno.0 {
        libc::EPERM | libc::EACCES | libc::ENOSYS if place.filtered() => {
            filtered(call, errno, place)
        }
        libc::ENOSYS => {
            FailureCause::of(format!("expected a kernel with {call}, found one without"))
        }
        _ => FailureCause::of(format!("the kernel answered {errno} to {call}")),
    }
}

/// Too few descriptors.
pub fn descriptors(place: &SystemFacts) -> FailureCause {
    let (soft, hard) = place.descriptors.unwrap_or((0, 0));
    let cause = FailureCause::of(format!(
        "expected room for more open files, found limits of {soft} (soft) and {hard} (hard)"
    ));
    // Raising the soft limit is no help: we do that ourselves.
    let shell = place.as_root("prlimit --pid $$ --nofile=65536:65536");
    let cause = cause.with(Fix::now(shell).noting("for this shell"));
    let line = if place.user == Some(0) { "root - nofile 65536" } else { "* - nofile 65536" };
    let file = "/etc/security/limits.d/90-colocate.conf";
    cause.with(Fix::always(written(place, line, file)).noting("from the next login on"))
}

/// Rings of the default size may not be locked.
pub fn mlock(place: &SystemFacts) -> FailureCause {
    let found = or_unknown(place.mlock_kb.as_ref());
    let cause = FailureCause::of(format!(
        "expected kernel.perf_event_mlock_kb of at least 516, found {found}, or other programs have \
         used it up; small rings lose records when threads are created in bursts"
    ));
    with_setting(cause, place, "kernel.perf_event_mlock_kb", "2048")
}

/// Package with libpfm4, by the distribution's family; `None` if unknown.
pub fn install_libpfm(place: &SystemFacts) -> Option<Fix> {
    let names = place.distribution.as_deref().unwrap_or_default();
    let command = names.split(' ').find_map(|name| match name {
        "debian" | "ubuntu" => Some("apt-get install libpfm4"),
        "fedora" | "rhel" => Some("dnf install libpfm"),
        _ => None,
    })?;
    Some(Fix::always(place.as_root(command)))
}

/// Adds the commands for a kernel setting, for now and permanently, to a cause.
pub fn with_setting(
    cause: FailureCause,
    place: &SystemFacts,
    name: &str,
    value: &str,
) -> FailureCause {
    let line = format!("{name} = {value}");
    let fixes = [
        Fix::now(place.as_root(&format!("sysctl -w {name}={value}"))),
        Fix::always(written(place, &line, "/etc/sysctl.d/90-colocate.conf")),
    ];
    // Containers show these settings read-only, except privileged ones.
    let outside = place.container.is_some() && place.tier() < Tier::Root;
    let fixes = fixes.map(|fix| if outside { fix.noting("outside of the container") } else { fix });
    fixes.into_iter().fold(cause, FailureCause::with)
}

/// Command that adds `line` to `file`.
fn written(place: &SystemFacts, line: &str, file: &str) -> String {
    let tee = place.as_root(&format!("tee -a {file}"));
    format!("echo '{line}' | {tee}")
}

/// Commands that give capabilities to the members of a group, by colocate's file. Group and mode
/// come first: the kernel removes a file's capabilities on a change of owner or group.
fn give(place: &SystemFacts, own: &Own, capabilities: &str) -> Fix {
    let setcap = format!("setcap {capabilities}+ep");
    let commands = ["chgrp GROUP", "chmod 0750", &setcap];
    let commands = commands.map(|command| place.as_root(&format!("{command} {}", own.program)));
    Fix::always(commands.join(" && ")).noting(
        "for the users in GROUP; without the first two for everyone who may execute the file",
    )
}

/// Cause for a missing capability reserved for root: with the capability in colocate's file, every
/// user of the file could change objects of different users.
pub fn only_root(why: &str, place: &SystemFacts, own: &Own) -> FailureCause {
    let run = place.as_root(&format!("{} ARGUMENTS", own.program));
    unless_root(FailureCause::of(why), place, Fix::now(run))
}

/// Cause of refused eBPF. The capabilities are effective only while colocate's program is used.
pub fn no_ebpf(place: &SystemFacts, own: &Own) -> FailureCause {
    let cause =
        only_root("expected CAP_BPF and CAP_PERFMON, found one of them missing", place, own);
    unless_root(cause, place, give(place, own, "cap_bpf,cap_perfmon"))
}

/// Additions of the tiers above the present tier, and the command for each.
pub fn next_tiers(place: &SystemFacts, own: &Own) -> Vec<FailureCause> {
    let mut next = Vec::new();
    let tier = place.tier();
    if tier < Tier::Perfmon {
        let what = "counting what other users' programs do";
        let if_open = match place.paranoid {
            Some(level) if level > OPEN_TO_OWNERS => ", if kernel.perf_event_paranoid is at most 2",
            _ => "",
        };
        next.push(
            FailureCause::of(format!("CAP_PERFMON (Linux 5.8) would add: {what}{if_open}"))
                .with(give(place, own, "cap_perfmon")),
        );
    }
    if tier < Tier::Root && place.user != Some(0) {
        let others = match tier {
            Tier::SysNice => "",
            _ => "placing other users' programs, moving pages that several processes share, ",
        };
        let why = format!("root would add: {others}changing cpusets and kernel settings");
        next.push(only_root(&why, place, own));
    }
    next
}
