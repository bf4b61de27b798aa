//! Consecutively executed instructions.

use crate::emulate::{Trace, trace};
use colocate_isa::{Arithmetic, Class, Isa, arithmetic, assembly, classify};
use colocate_machine::performance::WorkKind;
use std::collections::BTreeMap;

/// Instructions of a stretch, or a few more. Chosen: several times the window of any processor
/// would be better, but simulation time grows in proportion; see docs/results/solo-cpi.md.
pub const LENGTH: usize = 400;

/// Part of a run that a stretch represents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// Number of instructions.
    Instructions(f64),
    /// Time, in any unit; the simulation gives the instructions. Stretches that wait for events
    /// unknown to the simulation get too much weight.
    Time(f64),
}

impl Weight {
    /// Instructions, or time in its unit.
    pub(super) fn value(self) -> f64 {
        let (Self::Instructions(value) | Self::Time(value)) = self;
        value
    }
}

/// Consecutive instructions of a thread, and the part of the run that they represent.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Thread, by its order in the profile; `None` if the stretch represents all threads.
    pub thread: Option<u32>,
    /// Part of the run that the stretch represents.
    pub weight: Weight,
    /// Number of instructions.
    pub instructions: usize,
    /// Assembly text for `llvm-mca`.
    pub text: String,
    /// Work of each kind, in the order of [`WorkKind::ALL`].
    pub kinds: [u32; WorkKind::ALL.len()],
    /// Taken jumps: transitions between blocks that are not adjacent in memory. The jump from the
    /// end back to the start, when simulated as a loop, does not count.
    pub taken: u32,
    /// Address of the block with the most executed instructions.
    pub hottest: u64,
}

impl Stretch {
    /// Builds a stretch from `blocks`, each an address and the bytes of its instructions; `None` if
    /// there are no blocks, or if an instruction is unknown to the decoder.
    pub fn of<'a>(
        isa: Isa,
        thread: Option<u32>,
        weight: Weight,
        blocks: impl IntoIterator<Item = (u64, &'a [Vec<u8>])>,
    ) -> Option<Self> {
        let mut text = String::new();
        let mut instructions = 0;
        let mut taken = 0;
        let mut end = None;
        let mut kinds = [0; WorkKind::ALL.len()];
        let mut in_block: BTreeMap<u64, usize> = BTreeMap::new();
        for (address, block) in blocks {
            // Adjacent blocks fall through.
            taken += u32::from(end.is_some_and(|end| end != address));
            let mut ip = address;
            for bytes in block {
                text += &assembly(isa, bytes, ip)?;
                text.push('\n');
                for kind in kinds_of(isa, bytes, ip)? {
                    kinds[kind as usize] += 1;
                }
                ip = ip.wrapping_add(bytes.len() as u64);
            }
            end = Some(ip);
            instructions += block.len();
            *in_block.entry(address).or_default() += block.len();
        }
        let (hottest, _) = in_block.into_iter().max_by_key(|(_, count)| *count)?;
        Some(Self { thread, weight, instructions, text, kinds, taken, hottest })
    }
}

/// Kinds of work of an instruction. Integer vector work counts as integer work.
fn kinds_of(isa: Isa, bytes: &[u8], ip: u64) -> Option<Vec<WorkKind>> {
    let classes = classify(isa, bytes, ip)?.classes;
    let arithmetic = arithmetic(isa, bytes)?;
    let classes = Class::ALL.into_iter().filter(|class| classes.has(*class));
    let kinds = classes.map(|class| match (class, &arithmetic) {
        (Class::Branch, _) => WorkKind::Branch,
        (Class::Float, Arithmetic::Other) => WorkKind::FloatAdd,
        (Class::Float, Arithmetic::Multiply) => WorkKind::FloatMul,
        (Class::Float, Arithmetic::Divide) => WorkKind::FloatDiv,
        (Class::Int, Arithmetic::Other) => WorkKind::Int,
        (Class::Int, Arithmetic::Multiply) => WorkKind::IntMul,
        (Class::Int, Arithmetic::Divide) => WorkKind::IntDiv,
        (Class::Load, _) => WorkKind::Load,
        (Class::Store, _) => WorkKind::Store,
    });
    Some(kinds.collect())
}

/// Stretches of a process; `order_of` gives the profile's order of a thread by its TID. Each
/// stretch represents an equal part of its thread's instructions.
pub fn of_trace(trace: &Trace, order_of: impl Fn(i32) -> Option<u32>) -> Vec<Stretch> {
    let mut count: BTreeMap<i32, usize> = BTreeMap::new();
    for stretch in &trace.stretches {
        *count.entry(stretch.tid).or_default() += 1;
    }
    let stretches = trace.stretches.iter().filter_map(|stretch| {
        // A TID can be reused: the last thread with the number is meant.
        let ran = trace.threads.iter().rfind(|thread| thread.tid == stretch.tid)?;
        let weight = ran.counts.instructions as f64 / count[&stretch.tid] as f64;
        of_one(trace, stretch, order_of(stretch.tid)?, weight)
    });
    stretches.collect()
}

/// Converts a stretch, which represents `weight` instructions of `thread`.
pub fn of_one(
    trace: &Trace,
    stretch: &trace::BlockSequence,
    thread: u32,
    weight: f64,
) -> Option<Stretch> {
    let blocks = stretch.blocks.iter().map(|at| &trace.blocks[*at]);
    let blocks = blocks.map(|block| (block.address, &block.instructions[..]));
    Stretch::of(trace::isa(trace), Some(thread), Weight::Instructions(weight), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: [&[u8]; 5] = [
        &[0xf2, 0x0f, 0x59, 0x07], // mulsd (%rdi),%xmm0
        &[0x48, 0xf7, 0xf1],       // div %rcx
        &[0x55],                   // push %rbp
        &[0x48, 0xff, 0xc8],       // dec %rax
        &[0x75, 0xf2],             // jne
    ];

    #[test]
    fn a_stretch_is_its_blocks_in_a_row() {
        let [first, second] = [&LOOP[..2], &LOOP[2..]]
            .map(|block| block.iter().map(|bytes| bytes.to_vec()).collect::<Vec<_>>());
        // From 0x10 to 0x17 it goes on, then it jumps back.
        let blocks = [(0x10, &first[..]), (0x17, &second[..]), (0x17, &second[..])];
        let found = Stretch::of(Isa::X86_64, Some(3), Weight::Time(1.0), blocks).unwrap();
        assert_eq!((found.thread, found.instructions, found.hottest), (Some(3), 8, 0x17));
        assert_eq!(found.taken, 1);
        let rest = "movq %rbp,-8(%rsp)\ndecq %rax\njne 0\n";
        assert_eq!(found.text, format!("mulsd (%rdi),%xmm0\ndivq %rcx\n{rest}{rest}"));
        let expected = [
            (WorkKind::Branch, 2),
            (WorkKind::Int, 2),
            (WorkKind::IntDiv, 1),
            (WorkKind::FloatMul, 1),
            (WorkKind::Load, 1),
            (WorkKind::Store, 2),
        ];
        for kind in WorkKind::ALL {
            let count = expected.iter().find(|(of, _)| *of == kind).map_or(0, |(_, count)| *count);
            assert_eq!(found.kinds[kind as usize], count, "{kind}");
        }
    }

    #[test]
    fn what_is_no_instruction_makes_no_stretch() {
        let block = [vec![0x06]];
        assert_eq!(Stretch::of(Isa::X86_64, None, Weight::Time(1.0), [(0, &block[..])]), None);
        assert_eq!(Stretch::of(Isa::X86_64, None, Weight::Time(1.0), []), None);
    }
}
