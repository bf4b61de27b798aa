//! `filtered ERRNO COMMAND...`: the command under a seccomp filter against NUMA system calls.

#![allow(unsafe_code)] // prctl

use anyhow::{Context as _, bail};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const CALLS: [libc::c_long; 5] = [
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// Installs the filter and executes the command.
///
/// # Errors
/// If the filter is refused or the command cannot be executed.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let [errno, command, rest @ ..] = arguments else { bail!("expected ERRNO COMMAND...") };
    let errno = match errno.as_str() {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        other => bail!("expected EPERM or ENOSYS, found {other}"),
    };
    install(errno.cast_unsigned()).context("seccomp")?;
    Err(Command::new(command).args(rest).exec()).with_context(|| command.clone())
}

/// A BPF instruction that jumps over `jt` instructions if its condition is true.
fn step(code: u32, jt: usize, k: u32) -> anyhow::Result<libc::sock_filter> {
    Ok(libc::sock_filter { code: u16::try_from(code)?, jt: u8::try_from(jt)?, jf: 0, k })
}

/// Installs a filter by which all [`CALLS`] fail with `errno`.
fn install(errno: u32) -> anyhow::Result<()> {
    // The call's number is the first word of `struct seccomp_data`. A listed call jumps to the last
    // instruction, which returns the error.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)?];
    for (place, call) in CALLS.into_iter().enumerate() {
        let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(step(compare, CALLS.len() - place, u32::try_from(call)?)?);
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW)?);
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | errno)?);
    let filter =
        libc::sock_fprog { len: u16::try_from(program.len())?, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only.
    let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: `filter` points to `len` instructions, which live through the call.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    anyhow::ensure!(quiet == 0 && set == 0, "{}", std::io::Error::last_os_error());
    Ok(())
}
