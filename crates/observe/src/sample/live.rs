//! Code that lies in a process's memory only: what a JIT compiler has made.

#![allow(unsafe_code)] // process_vm_readv

use super::budget::Budget;
use super::flow::STEPS_AN_INSTRUCTION;
use super::shares::Shares;
use crate::task::Pid;
use colocate_isa::{ClassCounts, Decoded, Decoder, Isa};

/// How many bytes after a sampled instruction are read. Chosen: a loop that is longer is
/// rarely innermost.
pub const AHEAD_B: usize = 2048;
/// How many bytes before a sampled instruction are read, for the head of its loop.
pub const BEHIND_B: usize = 2048;

/// Steps that the code around one instruction may cost, about a millisecond. Chosen: twice what a traversal of all that is
/// looked at and of one loop in it takes if every instruction has one byte; many jumps that lead nowhere cost more.
pub const MOST_STEPS: u64 = 1_000_000;

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

/// What a sample at `ip` represents, in `bytes` that lie at `start`; `None` if nothing there can be
/// decoded within `budget`.
#[must_use]
pub fn shares_around(
    isa: Isa,
    start: u64,
    bytes: &[u8],
    ip: u64,
    budget: &mut Budget,
) -> Option<Shares> {
    let mut counts = ClassCounts::default();
    for instruction in code_around(isa, start, bytes, ip, budget)? {
        counts.count(instruction.classes);
    }
    Shares::of(&counts)
}

/// The innermost loop around `ip` in `bytes`, which lie at `start`; what follows `ip` up to the
/// next jump if there is no loop.
///
/// On x86 it is not known where instructions before `ip` begin. So this walks forward from `ip`
/// until an instruction jumps back to `ip` or before it: from where that one leads to is the loop.
/// `None` if `ip` is not in `bytes`, or if that takes more than `budget`.
#[must_use]
pub fn code_around(
    isa: Isa,
    start: u64,
    bytes: &[u8],
    ip: u64,
    budget: &mut Budget,
) -> Option<Vec<Decoded>> {
    let from = |address: u64| {
        let skip = usize::try_from(address.checked_sub(start)?).ok()?;
        bytes.get(skip..).map(|rest| Decoder::new(isa, rest, address))
    };
    let walk = from(ip)?;
    for instruction in walk.clone() {
        budget.spend(STEPS_AN_INSTRUCTION)?;
        let Some(head) = instruction.flow.jump_target().filter(|target| *target <= ip) else {
            continue;
        };
        if let Some(body) = from(head) {
            let body: Vec<Decoded> = body.take_while(|i| i.ip <= instruction.ip).collect();
            budget.spend_each(body.len(), STEPS_AN_INSTRUCTION)?;
            // Only if the walk from the head meets both can it be the loop that we are in.
            let meets = |ip| body.binary_search_by_key(&ip, |i| i.ip).is_ok();
            if meets(ip) && meets(instruction.ip) {
                return Some(body);
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
    Some(straight)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of the instructions found around `ip` in `bytes` at 0x1000.
    fn around(isa: Isa, bytes: &[u8], ip: u64) -> Vec<u64> {
        let found = code_around(isa, 0x1000, bytes, ip, &mut Budget::of(MOST_STEPS));
        found.unwrap_or_default().iter().map(|i| i.ip - 0x1000).collect()
    }

    /// `nop; add rax, 1; add rbx, 1; dec rcx; jnz add; ret`, the loop from 1 to 14.
    const X86: [u8; 15] =
        [0x90, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x83, 0xc3, 0x01, 0x48, 0xff, 0xc9, 0x75, 0xf3, 0xc3];

    #[test]
    fn the_loop_around_a_sample() {
        for ip in [1, 5, 9, 12] {
            assert_eq!(around(Isa::X86_64, &X86, 0x1000 + ip), [1, 5, 9, 12], "{ip}");
        }
    }

    #[test]
    fn straight_code_up_to_its_end() {
        assert_eq!(around(Isa::X86_64, &X86, 0x100e), [14]);
        assert_eq!(around(Isa::X86_64, &[0x90, 0x90, 0xc3, 0x90], 0x1000), [0, 1, 2]);
    }

    #[test]
    fn the_loop_around_a_sample_on_aarch64() {
        // add x0, x0, #1; subs x1, x1, #1; b.ne first; ret
        let words: [u32; 4] = [0x9100_0400, 0xf100_0421, 0x54ff_ffc1, 0xd65f_03c0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(around(Isa::Aarch64, &bytes, 0x1004), [0, 4, 8]);
    }

    #[test]
    fn outside_of_what_was_read() {
        assert!(around(Isa::X86_64, &X86, 0x900).is_empty());
        assert!(around(Isa::X86_64, &X86, 0x2000).is_empty());
    }

    /// Jumps back to where 2,047 instructions begin, the last of which reaches into the first jump: none of them is a loop's,
    /// and each would have all of them decoded again.
    #[test]
    fn jumps_that_lead_nowhere_are_not_all_followed() {
        let mut bytes = vec![0x90; BEHIND_B];
        // `mov eax` and four bytes of what comes next.
        bytes[BEHIND_B - 1] = 0xb8;
        while bytes.len() < BEHIND_B + AHEAD_B {
            // `jne` to the first byte.
            let back = -i32::try_from(bytes.len() + 6).unwrap();
            bytes.extend([0x0f, 0x85]);
            bytes.extend(back.to_le_bytes());
        }
        let ip = 0x1000 + BEHIND_B as u64;
        let mut budget = Budget::of(MOST_STEPS);
        assert!(code_around(Isa::X86_64, 0x1000, &bytes, ip, &mut budget).is_none());
        assert_eq!(budget.left(), 0);
    }

    #[test]
    fn our_own_memory() {
        let here = Pid(std::process::id().cast_signed());
        let known = [7_u8; 64];
        let mut copy = [0; 64];
        assert_eq!(read(here, known.as_ptr().addr() as u64, &mut copy), 64);
        assert_eq!(copy, known);
        assert_eq!(read(here, 0, &mut copy), 0);
    }
}
