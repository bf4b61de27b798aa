//! Instructions that ran in a row.

use crate::emulate::Trace;
use colocate_isa::{Isa, assembly};
use std::collections::BTreeMap;

/// Instructions of a stretch, or a few more. Chosen: some times what the window of any processor
/// holds at once would be better, but simulation takes longer in proportion; see docs/solo-cpi.md.
pub const LENGTH: usize = 400;

/// Instructions that a thread ran in a row, and how many it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// The thread, by its order in the profile.
    pub thread: u32,
    /// Instructions of the run that it stands for.
    pub weight: f64,
    /// Its instructions.
    pub instructions: usize,
    /// As `llvm-mca` reads them.
    pub text: String,
    /// Where the block begins in which it spends most instructions.
    pub hottest: u64,
}

impl Stretch {
    /// The stretch of `blocks`, each an address and the bytes of its instructions; `None` if there is
    /// none or one is not known to this decoder.
    #[must_use]
    pub fn of<'a>(
        isa: Isa,
        thread: u32,
        weight: f64,
        blocks: impl IntoIterator<Item = (u64, &'a [Vec<u8>])>,
    ) -> Option<Self> {
        let (mut text, mut instructions) = (String::new(), 0);
        let mut in_block: BTreeMap<u64, usize> = BTreeMap::new();
        for (address, block) in blocks {
            let mut ip = address;
            for bytes in block {
                text += &assembly(isa, bytes, ip)?;
                text.push('\n');
                ip = ip.wrapping_add(bytes.len() as u64);
            }
            instructions += block.len();
            *in_block.entry(address).or_default() += block.len();
        }
        let (hottest, _) = in_block.into_iter().max_by_key(|(_, count)| *count)?;
        Some(Self { thread, weight, instructions, text, hottest })
    }
}

/// The stretches of one process; `order_of` says which thread of the profile has a number. Each stands
/// for its part of its thread's instructions.
pub fn of_trace(trace: &Trace, order_of: impl Fn(u32) -> Option<u32>) -> Vec<Stretch> {
    let isa = match &trace.target[..] {
        "x86_64" => Isa::X86_64,
        "aarch64" => Isa::Aarch64,
        _ => return Vec::new(),
    };
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for stretch in &trace.stretches {
        *count.entry(stretch.tid).or_default() += 1;
    }
    let one = |stretch: &crate::emulate::trace::Stretch| {
        let ran = trace.threads.iter().rfind(|thread| thread.tid == stretch.tid)?;
        #[allow(clippy::cast_precision_loss)] // a weight needs few digits
        let weight = ran.counts.instructions as f64 / count[&stretch.tid] as f64;
        let blocks = stretch.blocks.iter().map(|at| &trace.blocks[*at]);
        let blocks = blocks.map(|block| (block.address, &block.instructions[..]));
        Stretch::of(isa, order_of(stretch.tid)?, weight, blocks)
    };
    trace.stretches.iter().filter_map(one).collect()
}
