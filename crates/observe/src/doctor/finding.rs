//! Inputs and findings of checks, and the checks that several rows share.

use super::probe::{Errno, Probe, Probes};
use super::{Capability, FailureCause, Own, Status, SystemFacts, advice};

/// The inputs of all checks.
pub(crate) struct Inputs<'a> {
    pub place: &'a SystemFacts,
    pub probes: &'a dyn Probes,
    pub own: &'a Own,
}

/// Check of a capability.
pub(crate) type Check = fn(&Inputs<'_>) -> Finding;

/// Result of a check; the row gives the name.
pub(crate) type Finding = Capability;

impl Finding {
    /// Finding of a capability that works.
    pub(crate) fn yes(found: impl Into<String>) -> Self {
        Self { name: "", what: "", status: Status::Yes, found: found.into(), cause: None }
    }

    /// Finding of a capability that does not work.
    pub(crate) fn no(found: impl Into<String>, cause: impl Into<FailureCause>) -> Self {
        Self { status: Status::No, cause: Some(cause.into()), ..Self::yes(found) }
    }

    /// Finding of a capability that works with a limit.
    pub(crate) fn partly(found: impl Into<String>, cause: impl Into<FailureCause>) -> Self {
        Self { status: Status::Partly, cause: Some(cause.into()), ..Self::yes(found) }
    }
}

impl Inputs<'_> {
    /// Tries `probe`, described as `what`: it works, or does not for the cause named by `why`.
    pub(crate) fn tried(
        &self,
        probe: Probe,
        what: &str,
        why: impl FnOnce(Errno) -> FailureCause,
    ) -> Finding {
        match self.probes.run(probe) {
            Ok(()) => Finding::yes(format!("{what}: works")),
            Err(errno) => Finding::no(format!("{what}: {errno}"), why(errno)),
        }
    }

    /// Cause of the refusal of `call`.
    pub(crate) fn refused(&self, call: &str, errno: Errno) -> FailureCause {
        advice::call_refused(call, errno, self.place)
    }

    /// Cause whose remedy is root's rights.
    pub(crate) fn only_root(&self, why: &str) -> FailureCause {
        advice::only_root(why, self.place, self.own)
    }

    /// Cause whose remedy is the kernel setting `name`.
    pub(crate) fn setting(&self, why: impl Into<String>, name: &str, value: &str) -> FailureCause {
        advice::with_setting(FailureCause::of(why), self.place, name, value)
    }

    /// Tries a call on another process, which needs a capability for another user's process; `may`
    /// is whether this user has it. `refused` is the cause of any failure with the capability.
    pub(crate) fn of_others(
        &self,
        (probe, call): (Probe, &str),
        (capability, may): (&str, bool),
        refused: impl FnOnce(Errno) -> Option<FailureCause>,
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

/// Cause of a refused ring of records.
pub(crate) fn ring_refused(inputs: &Inputs<'_>, errno: Errno) -> FailureCause {
    // The room for rings is used up: mmap says so with the number of a missing permission.
    match errno.0 == libc::EPERM && inputs.probes.run(Probe::CountTime).is_ok() {
        true => advice::mlock(inputs.place),
        false => advice::perf_refused(errno, inputs.place, inputs.own),
    }
}

/// Samples of instruction pointers.
pub(crate) fn samples(inputs: &Inputs<'_>) -> Finding {
    let what = "software clock with samples on a child";
    inputs.tried(Probe::Samples, what, |errno| ring_refused(inputs, errno))
}

/// Reading of code in the memory of a process.
pub(crate) fn live_code(inputs: &Inputs<'_>) -> Finding {
    const NAME: &str = "kernel.yama.ptrace_scope";
    let scope = inputs.place.ptrace_scope;
    let found =
        inputs.tried(Probe::ReadMemory, "process_vm_readv of a child", |errno| match scope {
            Some(3) => FailureCause::of(format!("{NAME} is 3, which lasts until the next boot")),
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

/// Calls on the nodes of pages.
pub(crate) fn numa_calls(inputs: &Inputs<'_>) -> Finding {
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
