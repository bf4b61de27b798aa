//! Code in a process's memory without a file, such as a JIT compiler's.

use super::budget::StepBudget;
use super::flow::{BlockIdx, Graph, LoopIdx, STEPS_AN_INSTRUCTION};
use super::shares::Shares;
use colocate_isa::{ClassCounts, Decoded, Decoder, Isa};
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, foreign};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes read after a sampled instruction. Chosen: a longer loop is rarely innermost.
pub const AHEAD_B: usize = 2048;
/// Bytes read before a sampled instruction, for the head of its loop.
pub const BEHIND_B: usize = 2048;

/// Budget for the code around one instruction, about a millisecond. Chosen: twice the cost of a
/// full traversal and of one loop, if every instruction has one byte; many jumps that lead nowhere
/// cost more.
pub const MOST_STEPS: u64 = 1_000_000;

/// Consecutive machine code.
#[derive(Clone, Copy, Debug)]
pub struct CodeBytes<'a> {
    /// Instruction set.
    pub isa: Isa,
    /// Address of the first byte.
    pub start: u64,
    /// Machine code.
    pub bytes: &'a [u8],
}

/// Reads up to `bytes.len()` bytes of the memory of `pid` at `address`; returns the number read.
fn read(pid: Pid, address: u64, bytes: &mut [u8]) -> usize {
    match foreign::memory(pid, address, bytes) {
        // An exited main thread has no memory, even while other threads live.
        Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {
            let other = Proc::default().living_thread(pid).filter(|tid| *tid != pid.first_thread());
            other.map_or(0, |tid| foreign::memory(Pid(tid.0), address, bytes).unwrap_or(0))
        }
        got => got.unwrap_or(0),
    }
}

/// Memory around `ip` of `pid`: first address and bytes. From [`BEHIND_B`] bytes before `ip` to
/// [`AHEAD_B`] after it, as far as mapped; `None` if `ip` is unreadable.
#[must_use]
pub fn around(pid: Pid, ip: u64) -> Option<(u64, Vec<u8>)> {
    // A read that begins in an unmapped page fails as a whole, so `ip` begins a read of its own.
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

/// Mix of `code` around a sample at `ip`: the innermost loop, or else the code up to the next
/// unconditional jump. `None` if nothing can be decoded within `budget`.
#[must_use]
pub fn shares_around(code: CodeBytes<'_>, ip: u64, budget: &mut StepBudget) -> Option<Shares> {
    let (_, graph) = code_around(code, ip, budget)?;
    let all: Vec<BlockIdx> = (0..graph.blocks.len()).collect();
    let innermost = graph.blocks[graph.block_at(ip)?].innermost;
    let mut counts = ClassCounts::default();
    for block in innermost.map_or(&all[..], |of| graph.body(of)) {
        counts += graph.blocks[*block].counts;
    }
    Shares::of(&counts)
}

/// Instructions of the outermost loop around `ip`, in the order of addresses, with their graph.
/// Without a loop: the code from `ip` to the next unconditional jump.
///
/// On x86 the instruction boundaries before `ip` are unknown. But each instruction of a loop is
/// reachable from each other one, so jumps are followed from `ip` on. The loop's entry is unknown,
/// too, and taken to be its lowest address. `None` if `ip` is not in `code`, or if `budget` is
/// spent.
#[must_use]
pub fn code_around(
    code: CodeBytes<'_>,
    ip: u64,
    budget: &mut StepBudget,
) -> Option<(Vec<Decoded>, Graph)> {
    let mut code = reached(code, ip, budget)?;
    let seen = BTreeSet::from([ip]);
    let graph = Graph::of(&code, &seen, budget)?;
    // Outer loops come before their inner loops.
    if let Some(outermost) = (0..graph.loops.len()).find(|of| is_inside(&graph, *of, ip)) {
        code.retain(|one| is_inside(&graph, outermost, one.ip));
    } else {
        code = straight(&code, ip);
    }
    // Without the other code, the lowest address is the entry.
    let graph = Graph::of(&code, &seen, budget)?;
    Some((code, graph))
}

/// Whether the instruction at an address is in a loop.
fn is_inside(graph: &Graph, of: LoopIdx, address: u64) -> bool {
    graph.block_at(address).is_some_and(|block| graph.is_inside(block, of))
}
/// Instructions reachable from `ip`, in the order of addresses; `None` if there are none.
fn reached(code: CodeBytes<'_>, ip: u64, budget: &mut StepBudget) -> Option<Vec<Decoded>> {
    let mut found = BTreeMap::new();
    let mut rest = vec![ip];
    while let Some(from) = rest.pop() {
        let skip = from.checked_sub(code.start).and_then(|skip| usize::try_from(skip).ok());
        let Some(bytes) = skip.and_then(|skip| code.bytes.get(skip..)) else { continue };
        for instruction in Decoder::new(code.isa, bytes, from) {
            budget.spend(STEPS_AN_INSTRUCTION)?;
            // The code from here on has been decoded already.
            if found.insert(instruction.ip, instruction).is_some() {
                break;
            }
            rest.extend(instruction.flow.jump_target());
            if !instruction.flow.falls_through() {
                break;
            }
        }
    }
    (!found.is_empty()).then(|| found.into_values().collect())
}

/// Consecutive instructions from `ip` on.
fn straight(code: &[Decoded], ip: u64) -> Vec<Decoded> {
    let mut next = Some(ip);
    let mut found = Vec::new();
    for one in code {
        if next == Some(one.ip) {
            next = one.flow.falls_through().then(|| one.next_ip());
            found.push(*one);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of the instructions found around `ip` in `bytes` at 0x1000, and that of the innermost loop's header.
    fn x86(bytes: &[u8]) -> CodeBytes<'_> {
        CodeBytes { isa: Isa::X86_64, start: 0x1000, bytes }
    }

    fn around(isa: Isa, bytes: &[u8], ip: u64) -> (Vec<u64>, Option<u64>) {
        let found = code_around(
            CodeBytes { isa, start: 0x1000, bytes },
            ip,
            &mut StepBudget::of(MOST_STEPS),
        );
        let (code, graph) = found.unwrap_or_default();
        let innermost = graph.block_at(ip).and_then(|block| graph.blocks[block].innermost);
        let header = |of: LoopIdx| graph.blocks[graph.loops[of].header].start - 0x1000;
        (code.iter().map(|i| i.ip - 0x1000).collect(), innermost.map(header))
    }

    /// `nop; add rax, 1; add rbx, 1; dec rcx; jnz add; ret`, the loop from 1 to 14.
    const X86: [u8; 15] =
        [0x90, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x83, 0xc3, 0x01, 0x48, 0xff, 0xc9, 0x75, 0xf3, 0xc3];

    #[test]
    fn the_loop_around_a_sample() {
        for ip in [1, 5, 9, 12] {
            let expected = (vec![1, 5, 9, 12], Some(1));
            assert_eq!(around(Isa::X86_64, &X86, 0x1000 + ip), expected, "{ip}");
        }
    }

    /// Entered in its midst, and with three jumps back.
    #[test]
    fn all_that_leads_back_is_of_the_loop() {
        let code = [
            &[0xeb, 0x02][..],   // 0: jmp 4
            &[0xf3, 0x90],       // 2: pause
            &[0x83, 0x3f, 0x00], // 4: cmp dword [rdi], 0
            &[0x75, 0x02],       // 7: jne 11
            &[0xeb, 0xf7],       // 9: jmp 2
            &[0x83, 0x3e, 0x00], // 11: cmp dword [rsi], 0
            &[0x74, 0xf2],       // 14: je 2
            &[0x75, 0xf2],       // 16: jne 4
            &[0xc3],
        ]
        .concat();
        for ip in [2, 4, 7, 9, 11, 14, 16] {
            let (found, header) = around(Isa::X86_64, &code, 0x1000 + ip);
            assert_eq!(found, [2, 4, 7, 9, 11, 14, 16], "{ip}");
            assert!(header.is_some(), "{ip}");
        }
    }

    /// Outer loop from 0, inner one from 3: `inc rax; inc rbx; jne 3; inc rcx; jne 0; ret`.
    #[test]
    fn the_innermost_of_nested_loops() {
        let code = [
            &[0x48, 0xff, 0xc0, 0x48, 0xff, 0xc3, 0x75, 0xfb][..],
            &[0x48, 0xff, 0xc1, 0x75, 0xf3, 0xc3],
        ]
        .concat();
        for (ip, header) in [(0, 0), (3, 3), (6, 3), (8, 0), (11, 0)] {
            let expected = (vec![0, 3, 6, 8, 11], Some(header));
            assert_eq!(around(Isa::X86_64, &code, 0x1000 + ip), expected, "{ip}");
        }
    }

    #[test]
    fn straight_code_up_to_its_end() {
        assert_eq!(around(Isa::X86_64, &X86, 0x100e), (vec![14], None));
        let code = [0x90, 0x90, 0xc3, 0x90];
        assert_eq!(around(Isa::X86_64, &code, 0x1000), (vec![0, 1, 2], None));
    }

    #[test]
    fn the_loop_around_a_sample_on_aarch64() {
        // add x0, x0, #1; subs x1, x1, #1; b.ne first; ret
        let words: [u32; 4] = [0x9100_0400, 0xf100_0421, 0x54ff_ffc1, 0xd65f_03c0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(around(Isa::Aarch64, &bytes, 0x1004), (vec![0, 4, 8], Some(0)));
    }

    #[test]
    fn outside_of_what_was_read() {
        let around = |ip| code_around(x86(&X86), ip, &mut StepBudget::of(MOST_STEPS));
        assert!(around(0x900).is_none());
        assert!(around(0x2000).is_none());
    }

    /// Each jump leads into the midst of an instruction before it, so that other code begins at every byte; and all that is read
    /// is one loop. Both are within the budget or refused.
    #[test]
    fn code_at_every_byte_is_within_the_budget() {
        let mut bytes = Vec::new();
        while bytes.len() < BEHIND_B + AHEAD_B {
            // `je` to the byte behind its first one, as far back as it goes.
            let back = -i8::try_from(bytes.len().min(120) + 1).unwrap();
            bytes.extend([0x74, back.cast_unsigned()]);
        }
        let mut budget = StepBudget::of(MOST_STEPS);
        let found = code_around(x86(&bytes), 0x1000, &mut budget);
        assert!(found.is_some() || budget.left() == 0);
        let mut budget = StepBudget::of(MOST_STEPS / 100);
        assert!(code_around(x86(&bytes), 0x1000, &mut budget).is_none());
        assert_eq!(budget.left(), 0);
    }

    #[test]
    fn our_own_memory() {
        let here = Pid(std::process::id().cast_signed());
        let known = [7_u8; 64];
        let mut copy = [0; 64];
        assert_eq!(foreign::memory(here, known.as_ptr().addr() as u64, &mut copy).unwrap(), 64);
        assert_eq!(copy, known);
        assert!(foreign::memory(here, 0, &mut copy).is_err());
    }
}
