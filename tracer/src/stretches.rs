//! Stretches of instructions as they ran, one after the other, taken now and then all through a run.
//!
//! # Approach
//! Every block adds its instructions to a clock that each virtual CPU has. When the clock strikes, a
//! callback notes block after block until the stretch is long enough, and winds the clock up again.
//! Only blocks inside of stretches pay for more than one addition and one comparison.
//!
//! Whenever a stretch ends, what its thread has counted until then is kept with it. So the run falls into parts, each with a
//! stretch of its code.
//! # Properties
//! - **Bounded**: at most [`MOST`] stretches are kept. When there are more, every second one goes and
//!   the gap between them doubles, so those that stay are spread over the whole run.
//! - **Out of step**: gaps vary around their mean, so that no loop keeps time with them.

use crate::snapshot::Snapshot;
use colocate_isa::counts::{Block, Part, Stretch};
use std::collections::HashMap;

/// The clock strikes here. Far from 0, so that any gap can be taken off.
pub const STRIKES: u64 = 1 << 62;

/// Most stretches that are kept; at least half as many of a program that runs long enough.
pub const MOST: usize = 128;

/// Instructions between two stretches at first. Chosen: a program of a second of CPU time then reaches
/// [`MOST`] within a hundredth of it.
const FIRST_GAP: u64 = 50_000;

/// A stretch that is being taken.
struct Open {
    tid: i32,
    blocks: Vec<usize>,
    instructions: usize,
}

/// A stretch that was taken, and what its thread had counted at its end, once that is known.
struct Done {
    tid: i32,
    blocks: Vec<usize>,
    counted: Option<Box<Snapshot>>,
}

/// All that is known of stretches in this process.
pub struct Stretches {
    /// Instructions of a stretch, at least.
    length: usize,
    gap: u64,
    blocks: Vec<Block>,
    place_of: HashMap<Block, usize>,
    done: Vec<Done>,
    /// The stretch under way on each virtual CPU.
    open: HashMap<u32, Open>,
    random: u64,
}

impl Stretches {
    /// None yet; each will be of `length` instructions or a few more.
    pub fn new(length: usize) -> Self {
        Self {
            length,
            gap: FIRST_GAP,
            blocks: Vec::new(),
            place_of: HashMap::new(),
            done: Vec::new(),
            open: HashMap::new(),
            random: 1,
        }
    }

    /// The place of a block, which may be new.
    pub fn block(&mut self, code: Block) -> usize {
        if let Some(place) = self.place_of.get(&code) {
            return *place;
        }
        self.place_of.insert(code.clone(), self.blocks.len());
        self.blocks.push(code);
        self.blocks.len() - 1
    }

    /// What the clock of a CPU is set to: strikes after about a gap.
    pub fn wound_up(&mut self) -> u64 {
        // Knuth's MMIX generator; the upper bits vary well.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let part = self.random >> 48;
        STRIKES - self.gap / 2 - (self.gap >> 16) * part - 1
    }

    /// Block `place` is about to run on `cpu` in thread `tid`, after the clock struck. What to set the
    /// clock to, if this ends the stretch.
    pub fn note(&mut self, cpu: u32, tid: i32, place: usize) -> Option<u64> {
        let code = self.blocks.get(place)?;
        let empty = || Open { tid, blocks: Vec::new(), instructions: 0 };
        let open = self.open.entry(cpu).or_insert_with(empty);
        open.blocks.push(place);
        open.instructions += code.instructions.len();
        if open.instructions < self.length {
            return None;
        }
        let done = |Open { tid, blocks, .. }| Done { tid, blocks, counted: None };
        self.done.extend(self.open.remove(&cpu).map(done));
        if self.done.len() >= MOST {
            let mut keep = false;
            self.done.retain(|_| {
                keep = !keep;
                keep
            });
            self.gap = self.gap.saturating_mul(2).min(STRIKES / 4);
        }
        Some(self.wound_up())
    }

    /// What thread `tid` had counted when its last stretch ended.
    pub fn counted(&mut self, tid: i32, counted: Snapshot) {
        if let Some(last) = self.done.iter_mut().rfind(|done| done.tid == tid) {
            last.counted = Some(Box::new(counted));
        }
    }

    /// A CPU begins or ends: what was under way there is not whole.
    pub fn drop_open(&mut self, cpu: u32) {
        self.open.remove(&cpu);
    }

    /// Forgets all stretches, as a new process does; the blocks stay translated.
    pub fn clear(&mut self) {
        self.done.clear();
        self.open.clear();
        self.gap = FIRST_GAP;
    }

    /// The stretches, and the blocks that they have.
    pub fn taken(&self) -> (Vec<Block>, Vec<Stretch>) {
        let mut used: Vec<usize> =
            self.done.iter().flat_map(|s| s.blocks.iter().copied()).collect();
        used.sort_unstable();
        used.dedup();
        let number = |place: &usize| used.partition_point(|other| other < place);
        let one = |(done, ran): (&Done, Option<Part>)| Stretch {
            tid: done.tid,
            blocks: done.blocks.iter().map(number).collect(),
            ran,
        };
        let stretches = self.done.iter().zip(self.parts()).map(one).collect();
        (used.iter().map(|place| self.blocks[*place].clone()).collect(), stretches)
    }

    /// What its thread ran between each stretch and the one before it.
    fn parts(&self) -> Vec<Option<Part>> {
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
