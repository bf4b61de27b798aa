//! What is kept of the power that the program's file gives to the user that executes it.
//!
//! # Problem
//! A file with capabilities (setcap(8)) or with set-user-ID gives its power to every user who may execute it, and what
//! colocate does with it is up to that user: which journal is undone, which process is looked into, which file is
//! written.
//! # Approach
//! Before anything is read, all of it is given up for good but `CAP_PERFMON`, the right to watch programs, which is
//! what `doctor` advises to give, and `CAP_BPF`, which loads colocate's own eBPF program beside it. These are in force only
//! while an event is opened or that program is used, since newer kernels (6.14 and later) show the address maps of other
//! users' programs to the holder of the first. So the kernel's own checks are those for the
//! plain user, and none of ours can be forgotten. Environment variables by which a library that colocate loads would
//! load others go as well: their code could take the capability.
//!
//! Where the file gives nothing, the caller's own capabilities stay, as root's or ambient ones.

#![allow(unsafe_code)] // what the kernel says of this program, and the user that it runs as

use crate::SysError;
use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use thiserror::Error;

/// Capabilities kept: `CAP_PERFMON` for `perf_event_open(2)` on other users' programs, and both for
/// bpf(2).
const KEPT: [Capability; 2] = [Capability::CAP_PERFMON, Capability::CAP_BPF];

/// Prefixes of environment variables read by colocate's libraries. hwloc loads plugins from a
/// folder and reads machines from files named by variables; libpfm writes to a named file. The C
/// library removes its own variables (ld.so(8), "Secure-execution mode").
const VARIABLES: [&str; 2] = ["HWLOC_", "LIBPFM_"];

/// Failure to give up privileges, after which the program must end.
#[derive(Debug, Error)]
pub enum PrivilegeError {
    /// The caller's user and group could not be taken.
    #[error("cannot give up the user of the program's file: {0}")]
    User(#[from] SysError),
    /// The capabilities could not be given up.
    #[error("cannot give up the capabilities of the program's file: {0}")]
    Capabilities(#[from] CapsError),
}

/// Gives up for good all privileges of the program's file except `CAP_PERFMON` and `CAP_BPF`; no
/// effect without file privileges (`AT_SECURE`, getauxval(3)).
///
/// Must come first in `main`: capabilities belong to a thread, and removing a variable is only safe
/// with a single thread.
///
/// # Errors
/// [`PrivilegeError`]; afterwards the program must end.
pub fn give_up() -> Result<(), PrivilegeError> {
    if !is_secure_execution() {
        return Ok(());
    }
    become_caller()?;
    // After the change of user, which takes away the capabilities of root.
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = permitted.into_iter().filter(|one| KEPT.contains(one)).collect();
    // First the effective set, which must lie within the permitted set (capset(2)).
    caps::clear(None, CapSet::Effective)?;
    // The kernel takes out of the ambient set what is not inheritable.
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_for_libraries(name)) {
        // SAFETY: the caller guarantees that there is no other thread yet that could read variables.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}

/// Gives up the kept capabilities in a child before its exec, by system calls only.
pub fn let_go() {
    if !taken().is_empty() {
        // A set can always be made smaller.
        let _ = caps::clear(None, CapSet::Permitted);
    }
}

/// Kept capabilities that are permitted but not effective.
fn taken() -> &'static [Capability] {
    static TAKEN: OnceLock<Vec<Capability>> = OnceLock::new();
    TAKEN.get_or_init(|| {
        KEPT.into_iter()
            // Effective capabilities are the caller's own, e.g. root's: they stay.
            .filter(|one| has(CapSet::Permitted, *one) && !has(CapSet::Effective, *one))
            .collect()
    })
}

/// Whether this program has both capabilities, effective or permitted for use when needed.
pub fn may_load_programs() -> bool {
    KEPT.into_iter().all(|one| has(CapSet::Permitted, one))
}

fn has(set: CapSet, one: Capability) -> bool {
    // In doubt not permitted: the kernel then denies what needs the capability.
    caps::has_cap(None, set, one).unwrap_or(false)
}

/// Runs `open`, which opens an event or uses the eBPF program, with the kept capabilities effective
/// as far as permitted.
pub fn watching<R>(open: impl FnOnce() -> R) -> R {
    for one in taken() {
        // Without it the kernel refuses, and says so.
        let _ = caps::raise(None, CapSet::Effective, *one);
    }
    let opened = open();
    for one in taken() {
        // A set can always be made smaller.
        let _ = caps::drop(None, CapSet::Effective, *one);
    }
    opened
}

fn is_for_libraries(name: &OsStr) -> bool {
    VARIABLES.iter().any(|first| name.as_bytes().starts_with(first.as_bytes()))
}

/// Whether the kernel reports more privileges of this program than of its caller.
fn is_secure_execution() -> bool {
    // SAFETY: takes a number; one that the kernel does not know gives 0.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Sets the effective and saved user and group to the real: afterwards the file's user of a
/// set-user-ID program cannot be restored, nor a root user's capabilities (capabilities(7)).
fn become_caller() -> Result<(), SysError> {
    // SAFETY: takes nothing and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    // The group first: afterwards the right to change the group may be gone.
    // SAFETY: takes numbers.
    outcome("setresgid", unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: takes numbers.
    outcome("setresuid", unsafe { libc::setresuid(user, user, user) })
}

fn outcome(call: &'static str, ret: libc::c_int) -> Result<(), SysError> {
    if ret == 0 { Ok(()) } else { Err(SysError::last(call)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests are executed from a plain file, and keep what they have.
    #[test]
    fn a_plain_file_gives_nothing() {
        let before = caps::read(None, CapSet::Permitted).unwrap();
        give_up().unwrap();
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
    }

    #[test]
    fn variables_for_libraries() {
        let found = ["HWLOC_PLUGINS_PATH", "LIBPFM_DEBUG_STDOUT", "PATH", "XHWLOC_"]
            .map(|name| is_for_libraries(OsStr::new(name)));
        assert_eq!(found, [true, true, false, false]);
    }
}
