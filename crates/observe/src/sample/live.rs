//! Code that lies in a process's memory only: what a JIT compiler has made.

#![allow(unsafe_code)] // process_vm_readv

use super::weigh::Shares;
use crate::task::Pid;
use colocate_isa::{ClassCounts, Decoded, Decoder, Isa};

/// How many bytes after a sampled instruction are looked at. Chosen: a loop that is longer is
/// rarely innermost.
pub const AHEAD_B: usize = 2048;
/// How many bytes before a sampled instruction are looked at, for the head of its loop.
pub const BEHIND_B: usize = 2048;

/// Up to `bytes.len()` bytes of the memory of `pid` from `address` on; how many could be read.
///
/// Needs what ptrace(2) asks for: the same user or `CAP_SYS_PTRACE`, and under Yama's restricted
/// mode a child of ours.
pub fn read(pid: Pid, address: u64, bytes: &mut [u8]) -> usize {
    let Ok(address) = usize::try_from(address) else { return 0 };
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let theirs =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, and checks the addresses of
    // the other process itself.
    let got = unsafe { libc::process_vm_readv(pid.0, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(got).unwrap_or(0)
}

/// The memory around `ip` of `pid`, from [`BEHIND_B`] bytes before it to [`AHEAD_B`] after it where
/// that much is mapped: its first address and its bytes.
#[must_use]
pub fn around(pid: Pid, ip: u64) -> Option<(u64, Vec<u8>)> {
    // A read that begins in a hole fails as a whole, so the part before is a read of its own.
    let mut ahead = vec![0; AHEAD_B];
    let got = read(pid, ip, &mut ahead);
    ahead.truncate(got);
    if ahead.is_empty() {
        return None;
    }
    let start = ip.saturating_sub(BEHIND_B as u64);
    let mut bytes = vec![0; usize::try_from(ip - start).unwrap_or(0)];
    if read(pid, start, &mut bytes) < bytes.len() {
        return Some((ip, ahead));
    }
    bytes.extend(ahead);
    Some((start, bytes))
}

/// What a sample at `ip` stands for, in `bytes` that lie at `start`; `None` if nothing there can be
/// decoded.
#[must_use]
pub fn shares_around(isa: Isa, start: u64, bytes: &[u8], ip: u64) -> Option<Shares> {
    let mut counts = ClassCounts::default();
    for instruction in code_around(isa, start, bytes, ip) {
        counts.count(instruction.classes);
    }
    Shares::of(&counts)
}

/// The innermost loop around `ip` in `bytes`, which lie at `start`; what follows `ip` up to the
/// next jump if there is no loop.
///
/// On x86 it is not known where instructions before `ip` begin. So this walks forward from `ip`
/// until an instruction jumps back to `ip` or before it: from where that one leads to is the loop.
#[must_use]
pub fn code_around(isa: Isa, start: u64, bytes: &[u8], ip: u64) -> Vec<Decoded> {
    let from = |address: u64| {
        let skip = usize::try_from(address.checked_sub(start)?).ok()?;
        bytes.get(skip..).map(|rest| Decoder::new(isa, rest, address))
    };
    let Some(walk) = from(ip) else { return Vec::new() };
    for instruction in walk.clone() {
        let Some(head) = instruction.flow.jump_target().filter(|target| *target <= ip) else {
            continue;
        };
        if let Some(body) = from(head) {
            let body: Vec<Decoded> = body.take_while(|i| i.ip <= instruction.ip).collect();
            // Only if the walk from the head meets both can it be the loop that we are in.
            let meets = |ip| body.binary_search_by_key(&ip, |i| i.ip).is_ok();
            if meets(ip) && meets(instruction.ip) {
                return body;
            }
        }
    }
    let mut straight: Vec<Decoded> = Vec::new();
    for instruction in walk {
        straight.push(instruction);
        if !instruction.flow.falls_through() {
            break;
        }
    }
    straight
}
