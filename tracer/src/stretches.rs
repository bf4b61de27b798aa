//! Stretches of consecutively executed instructions, sampled over a whole run.
//!
//! # Approach
//! Every block adds its instructions to the clock of its virtual CPU. When the clock reaches
//! [`STRIKES`], a callback records block after block until the stretch is long enough, and sets the
//! clock back. Outside of stretches a block costs one addition and one comparison.
//!
//! The thread's counts at the end of a stretch are kept with the stretch. So the run is divided
//! into parts, each with a stretch of its code.
//!
//! # Properties
//! - **Bounded**: at most [`MOST`] stretches are kept. At this number every second stretch is
//!   dropped and the gap between stretches doubles, so the remaining stretches cover the whole run.
//! - **Out of step**: gaps vary randomly around their mean, so no loop has the same period.
//!   -> test `gaps_of_half_to_one_and_a_half_times_the_mean`

use crate::snapshot::Snapshot;
use colocate_isa::counts::{BlockSequence, CodeBlock, ExecutionCounts};
use std::collections::HashMap;

/// Clock value at which a stretch begins. Far from 0, so that any gap can be subtracted.
pub const STRIKES: u64 = 1 << 62;

/// Largest number of stretches; a long run keeps at least half as many.
pub const MOST: usize = 128;

/// First gap between stretches, in instructions. Chosen: a program of a second of CPU time reaches
/// [`MOST`] within a hundredth of this time.
const FIRST_GAP: u64 = 50_000;

/// Longest mean gap, in instructions: some hours of CPU time, and a product with 16 bits fits.
const LONGEST_GAP: u64 = 1 << 46;

/// A stretch under way.
struct Open {
    tid: i32,
    /// Indexes of the executed blocks.
    blocks: Vec<usize>,
    instructions: usize,
}

/// A complete stretch.
struct CompleteStretch {
    tid: i32,
    /// Indexes of the executed blocks.
    blocks: Vec<usize>,
    /// The thread's counts at the end of the stretch; `None` if not recorded (yet).
    counted: Option<Box<Snapshot>>,
}

/// Stretches of this process.
pub struct Stretches {
    /// Least number of instructions of a stretch.
    length: usize,
    /// Mean gap between stretches, in instructions.
    gap: u64,
    blocks: Vec<CodeBlock>,
    /// Index into `blocks`, to store equal blocks once.
    place_of: HashMap<CodeBlock, usize>,
    done: Vec<CompleteStretch>,
    /// Stretch under way, by virtual CPU.
    open: HashMap<u32, Open>,
    /// State of the random generator of gaps.
    random: u64,
}

impl Stretches {
    /// Without stretches yet. A stretch has at least `length` instructions, and ends with a block.
    pub fn new(length: usize) -> Self {
        Self {
            length,
            gap: FIRST_GAP,
            blocks: Vec::new(),
            place_of: HashMap::new(),
            done: Vec::new(),
            open: HashMap::new(),
            // A fixed seed: the same run has the same stretches.
            random: 1,
        }
    }

    /// Index of a block; a new block is added.
    pub fn block(&mut self, code: CodeBlock) -> usize {
        if let Some(place) = self.place_of.get(&code) {
            return *place;
        }
        self.place_of.insert(code.clone(), self.blocks.len());
        self.blocks.push(code);
        self.blocks.len() - 1
    }

    /// Clock value by which the next stretch begins after a gap of 0.5 to 1.5 times the mean.
    pub fn wound_up(&mut self) -> u64 {
        // Knuth's MMIX generator; the upper bits vary well.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = self.random >> 48;
        // `part` is a fraction in units of 2⁻¹⁶.
        STRIKES - self.gap / 2 - ((self.gap * part) >> 16) - 1
    }

    /// Adds block `place`, about to run on `cpu` in thread `tid`, to the stretch under way. Returns
    /// the clock's new value if the stretch is complete.
    pub fn note(&mut self, cpu: u32, tid: i32, place: usize) -> Option<u64> {
        let code = self.blocks.get(place)?;
        let new = Open { tid, blocks: Vec::new(), instructions: 0 };
        let open = self.open.entry(cpu).or_insert(new);
        open.blocks.push(place);
        open.instructions += code.instructions.len();
        if open.instructions < self.length {
            return None;
        }
        if let Some(Open { tid, blocks, .. }) = self.open.remove(&cpu) {
            self.done.push(CompleteStretch { tid, blocks, counted: None });
        }
        if self.done.len() >= MOST {
            let mut keep = false;
            self.done.retain(|_| {
                keep = !keep;
                keep
            });
            self.gap = (self.gap * 2).min(LONGEST_GAP);
        }
        Some(self.wound_up())
    }

    /// Adds thread `tid`'s counts at the end of its last stretch.
    pub fn counted(&mut self, tid: i32, counted: Snapshot) {
        if let Some(last) = self.done.iter_mut().rfind(|done| done.tid == tid) {
            last.counted = Some(Box::new(counted));
        }
    }

    /// Drops the incomplete stretch of a CPU that begins or ends.
    pub fn drop_open(&mut self, cpu: u32) {
        self.open.remove(&cpu);
    }

    /// Drops all stretches in a forked process. The blocks stay, as they stay translated.
    pub fn clear(&mut self) {
        self.done.clear();
        self.open.clear();
        self.gap = FIRST_GAP;
    }

    /// The blocks of all stretches, and the stretches with indexes into these blocks.
    pub fn taken(&self) -> (Vec<CodeBlock>, Vec<BlockSequence>) {
        let mut used: Vec<usize> =
            self.done.iter().flat_map(|s| s.blocks.iter().copied()).collect();
        used.sort_unstable();
        used.dedup();
        let stretches = self.done.iter().zip(self.parts()).map(|(done, ran)| {
            let blocks = done.blocks.iter();
            let blocks = blocks.map(|place| used.partition_point(|other| other < place)).collect();
            BlockSequence { tid: done.tid, blocks, ran }
        });
        let stretches = stretches.collect();
        (used.iter().map(|place| self.blocks[*place].clone()).collect(), stretches)
    }

    /// For each stretch, its thread's counts since the end of the thread's stretch before.
    fn parts(&self) -> Vec<Option<ExecutionCounts>> {
        let mut last: HashMap<i32, &Snapshot> = HashMap::new();
        let mut parts = Vec::new();
        for done in &self.done {
            let counted = done.counted.as_deref();
            parts.push(counted.map(|now| now.since(last.get(&done.tid).copied())));
            if let Some(now) = counted {
                last.insert(done.tid, now);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_half_to_one_and_a_half_times_the_mean() {
        for gap in [FIRST_GAP, 2 * FIRST_GAP, LONGEST_GAP] {
            let mut stretches = Stretches { gap, ..Stretches::new(1) };
            let parts: Vec<f64> =
                (0..1000).map(|_| (STRIKES - stretches.wound_up()) as f64 / gap as f64).collect();
            let mean = parts.iter().sum::<f64>() / 1000.0;
            let least = parts.iter().copied().fold(f64::MAX, f64::min);
            let most = parts.iter().copied().fold(f64::MIN, f64::max);
            assert!((0.98..1.02).contains(&mean), "{gap}: {mean}");
            assert!((0.5..0.51).contains(&least), "{gap}: {least}");
            assert!((1.49..=1.5).contains(&most), "{gap}: {most}");
        }
    }
}
