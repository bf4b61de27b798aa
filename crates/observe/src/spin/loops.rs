//! Decides whether the loop around an instruction is a spin loop.
//!
//! # Problem
//! A thread in a spin loop uses its PU as a working thread does. Only its code shows the
//! difference, but no single instruction decides: most spin loops have `pause`; some have only a
//! load, a comparison and a jump, as search loops do.
//! # Approach
//! A loop waits if it executes a spin hint (`pause`, `yield`), or if a round leaves no value that
//! the next round builds on. Values are followed through one round, from the head of the loop to
//! each jump back.
//! # Terms
//! *Place*: a register or stack slot that the loop writes. *Origin*: value of a place at the start
//! of the round. *Fresh*: read in this round from memory or from a clock. *State*: a place whose
//! new value comes from its old value, directly or through other places. State *counts* if the new
//! value is the old value plus a constant of the loop, or shifted.
//! # Algorithm
//! 1. Take the innermost loop around the instruction (`sample::flow`), however many entries the
//!    loop has. Without a loop the code works.
//! 2. The loop waits if a hint lies on a path through the loop and the instruction, without a round
//!    of an inner loop or a second round of this loop. So a work loop that contains a small spin
//!    loop still works. The loop also waits if every path from the instruction back to itself
//!    passes a hint, maybe in an inner loop, and the loop calls nothing and writes only slots and
//!    locks: back-off locks do so.
//! 3. Otherwise the loop works if it calls, is longer than [`LONGEST`], writes memory other than
//!    stack slots (but see 5), or has an instruction unknown to [`colocate_isa::effect`]. It also
//!    works if a load or store address depends on state: the loop then walks through memory.
//! 4. The loop works if it has state that does not count: it computes.
//! 5. A locked write (`xchg`, `lock cmpxchg`, `lock bts`, `stxr`) is allowed if each round would
//!    write the same value. A new value made from the old value is an atomic addition, not a lock
//!    attempt.
//! 6. The loop waits if a conditional jump depends on a fresh value and on no state. Otherwise the
//!    loop works: it only counts.
//! 7. A loop that works by 3 to 6, but calls nothing and writes only slots and locks, still waits
//!    if the shortest path from the instruction back to itself locks nothing, leaves no state, not
//!    even a count, and waits by 6. So a semaphore waits until it is positive, and the first flag
//!    of a scan until it is set.
//! # Limits
//! Two names of the same memory count as two places. Polled memory is assumed to be written by
//! other threads. A loop that only counts until a flag is set waits by this definition.
//! # Properties
//! - **Hints decide where they are on the way**, not beside it -> `both` in test `loops_of_x86`
//! - **Nothing that walks, computes, stores or calls waits** -> `work` in tests `loops_of_x86` and
//!   `loops_of_aarch64`
//! - **However it is compiled**: counters in registers or slots, pointers read before or after
//!   -> `wait` in the same

mod values;

use crate::sample::budget::StepBudget;
use crate::sample::flow::{BasicBlock, BlockIdx, Graph, LoopIdx};
use crate::sample::live;
pub use crate::sample::live::CodeBytes;
use colocate_isa::effect::{Address, Effect, Registers, Transfer, effect};
use colocate_isa::{Decoded, Decoder, Flow, Isa, system};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use values::{WriteLocations, locks};

/// Length limit, in instructions, of a spin loop without a hint. Chosen: LLVM OpenMP's loop has
/// some 100 and a hint; loops without a hint are shorter than 20.
pub const LONGEST: usize = 64;

/// Verdict on the code around an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeVerdict {
    /// Waits, and executes a spin hint.
    Hints,
    /// Waits: polls the same memory, or a clock.
    Asks,
    /// Waits: yields its PU (`sched_yield`).
    Yields,
    /// Works, for the given reason.
    Works(WorkReason),
}

/// Reason for taking code as work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkReason {
    /// No loop around the instruction.
    NoLoop,
    /// In the kernel, in a call other than `sched_yield`.
    Kernel,
    /// Loop longer than [`LONGEST`].
    Long,
    /// Calls functions, or jumps to the address in a register.
    Calls,
    /// Writes memory.
    Stores,
    /// Has an instruction with unknown effects.
    Unknown,
    /// Reads another address in each round.
    Walks,
    /// Computes new values from those of the last round.
    Computes,
    /// Only counts.
    Counts,
}

impl CodeVerdict {
    /// Whether the code is a wait loop.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Hints | Self::Asks | Self::Yields)
    }
}

/// Whether the function at an address does little more than execute a hint; see [`relaxes`].
pub type Relaxes<'a> = &'a dyn Fn(u64) -> bool;

/// Code with its control-flow graph and loops; caches a verdict for each block.
#[derive(Debug)]
pub struct AnalysedCode {
    isa: Isa,
    start: u64,
    bytes: Vec<u8>,
    decoded: Vec<Decoded>,
    graph: Graph,
    /// Cached verdicts.
    known: HashMap<BlockIdx, CodeVerdict>,
}

impl AnalysedCode {
    /// Graph of `code`, whose instruction at `ip` is known to run. `None` if `budget` is spent.
    #[must_use]
    pub fn of(code: CodeBytes<'_>, ip: u64, budget: &mut StepBudget) -> Option<Self> {
        let decoded: Vec<Decoded> = Decoder::new(code.isa, code.bytes, code.start).collect();
        let graph = Graph::of(&decoded, &BTreeSet::from([ip]), budget)?;
        Some(Self::with(code, decoded, graph))
    }

    /// Graph of `code` around `ip`, without known boundaries; see [`live::code_around`].
    #[must_use]
    pub fn around(code: CodeBytes<'_>, ip: u64, budget: &mut StepBudget) -> Option<Self> {
        let (decoded, graph) = live::code_around(code, ip, budget)?;
        Some(Self::with(code, decoded, graph))
    }

    fn with(code: CodeBytes<'_>, decoded: Vec<Decoded>, graph: Graph) -> Self {
        Self {
            isa: code.isa,
            start: code.start,
            bytes: code.bytes.to_vec(),
            decoded,
            graph,
            known: HashMap::new(),
        }
    }

    /// Number of instructions, at most some 300 bytes of memory each.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.decoded.len()
    }

    /// Verdict at `ip`; `None` if `ip` is not known to run, or if `budget` is spent.
    pub fn judge(
        &mut self,
        ip: u64,
        relaxed: Relaxes<'_>,
        budget: &mut StepBudget,
    ) -> Option<CodeVerdict> {
        let here = self.graph.block_at(ip)?;
        // A block outside of the order is not known to run, and may be padding or data.
        self.graph.order.contains(&here).then_some(())?;
        if let Some(known) = self.known.get(&here) {
            return Some(*known);
        }
        let verdict = self.verdict(here, relaxed, budget)?;
        self.known.insert(here, verdict);
        Some(verdict)
    }

    fn verdict(
        &self,
        here: BlockIdx,
        relaxed: Relaxes<'_>,
        budget: &mut StepBudget,
    ) -> Option<CodeVerdict> {
        let Some(innermost) = self.graph.blocks[here].innermost else {
            return Some(CodeVerdict::Works(WorkReason::NoLoop));
        };
        let graph = &self.graph;
        let body = graph.body(innermost).iter();
        if body.map(|block| graph.blocks[*block].counts.instructions).sum::<u64>()
            > LONGEST_WITH_HINT
        {
            return Some(CodeVerdict::Works(WorkReason::Long));
        }
        let inside: usize =
            graph.loops[innermost].inside.clone().map(|inside| graph.body(inside).len()).sum();
        budget.spend_each(inside, STEPS_A_BLOCK)?;
        let code = CodeBytes { isa: self.isa, start: self.start, bytes: &self.bytes };
        let round = LoopAnalysis { code, graph, innermost, relaxed };
        let steps = round.steps(&self.decoded);
        if round.hints(&steps, here) {
            return Some(CodeVerdict::Hints);
        }
        let verdict = round.verdict(&steps);
        let waits = verdict.waits() || round.repeats(&steps, here);
        Some(if waits { CodeVerdict::Asks } else { verdict })
    }
}

/// Instructions of block `of`.
fn instructions<'a>(decoded: &'a [Decoded], of: &BasicBlock) -> &'a [Decoded] {
    let first = decoded.partition_point(|one| one.ip < of.start);
    let end = decoded.partition_point(|one| one.ip < of.end);
    &decoded[first..end]
}

/// Length limit, in instructions, of an analysed loop. Chosen: ten times LLVM OpenMP's.
const LONGEST_WITH_HINT: u64 = 1_000;

/// Budget per block of an analysed loop, again for each loop around the block. Chosen: its
/// instructions are decoded again, and their writes inserted into sets.
const STEPS_A_BLOCK: u64 = 1_000;

/// Whether `code`, a whole function, only executes a hint: few instructions and no loop.
#[must_use]
pub fn relaxes(code: CodeBytes<'_>) -> bool {
    let mut decoded = Decoder::new(code.isa, code.bytes, code.start).take(SHORT);
    let mut hints = false;
    let ends = decoded.any(|one| {
        let step = code.effect(one);
        hints |= step.as_ref().is_some_and(|step| step.way == Transfer::Hint);
        !matches!(one.flow, Flow::Next) || step.is_none()
    });
    hints && ends
}

/// Whether `code`, a whole function, only calls `sched_yield`: few instructions and no loop.
#[must_use]
pub fn gives_way(code: CodeBytes<'_>) -> bool {
    let before_a_jump = Decoder::new(code.isa, code.bytes, code.start)
        .take(SHORT)
        .take_while(|one| matches!(one.flow, Flow::Next));
    let mut ends = before_a_jump.filter_map(|one| usize::try_from(one.next_ip() - code.start).ok());
    ends.any(|end| code.bytes.get(..end).is_some_and(|bytes| system::gives_way(code.isa, bytes)))
}

/// Longest function that only hints, in instructions. Chosen: unoptimised, GCC's has five.
const SHORT: usize = 8;

impl CodeBytes<'_> {
    fn effect(&self, of: Decoded) -> Option<Effect> {
        let from = usize::try_from(of.ip.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..from + usize::from(of.len))?;
        effect(self.isa, bytes, of.ip)
    }
}

/// Effects of the instructions of each block of a loop; `None` for an unknown instruction.
type Steps = BTreeMap<BlockIdx, Vec<Option<Effect>>>;

/// A loop under analysis.
struct LoopAnalysis<'a> {
    code: CodeBytes<'a>,
    graph: &'a Graph,
    innermost: LoopIdx,
    relaxed: Relaxes<'a>,
}

impl LoopAnalysis<'_> {
    fn steps(&self, decoded: &[Decoded]) -> Steps {
        let body = self.graph.body(self.innermost).iter();
        let mut steps: Steps = body
            .map(|block| {
                let inside = instructions(decoded, &self.graph.blocks[*block]);
                (*block, inside.iter().map(|one| self.effect(*one)).collect())
            })
            .collect();
        name_slots(&mut steps);
        steps
    }

    /// Effect of an instruction; a call of a function that only hints counts as a hint.
    fn effect(&self, of: Decoded) -> Option<Effect> {
        match of.flow {
            Flow::Call { target } if (self.relaxed)(target) => Some(Effect {
                decoded: Decoded { flow: Flow::Next, ..of },
                way: Transfer::Hint,
                reads: Registers::NONE,
                writes: Registers::NONE,
                stored: Registers::NONE,
                memory: Vec::new(),
                points: None,
            }),
            _ => self.code.effect(of),
        }
    }

    fn header(&self) -> BlockIdx {
        self.graph.loops[self.innermost].header
    }

    fn contains(&self, block: BlockIdx) -> bool {
        self.graph.is_inside(block, self.innermost)
    }

    /// Whether a hint of this loop, not of an inner loop, is on a path through block `here`.
    fn hints(&self, steps: &Steps, here: BlockIdx) -> bool {
        let with_hint = steps
            .iter()
            .filter(|(_, steps)| steps.iter().flatten().any(|step| step.way == Transfer::Hint));
        let hints: BTreeSet<BlockIdx> = with_hint.map(|(block, _)| *block).collect();
        let before = self.before(here);
        let after = self.after(here);
        let is_decided = hints.iter().any(|hint| {
            let is_on_path = *hint == here || after.contains(hint) || before.contains(hint);
            is_on_path && self.graph.blocks[*hint].innermost == Some(self.innermost)
        });
        is_decided || (self.only_reads(steps) && self.is_cut(here, &hints))
    }

    /// Whether the loop calls nothing and writes only stack slots and locks.
    fn only_reads(&self, steps: &Steps) -> bool {
        let mut all = steps.values().flatten();
        all.all(|step| refused(step.as_ref()).is_none()) && WriteLocations::of(steps).is_some()
    }

    /// Whether every path in the loop from `here` back to itself passes one of `blocks`.
    fn is_cut(&self, here: BlockIdx, blocks: &BTreeSet<BlockIdx>) -> bool {
        blocks.contains(&here) || !self.reached(here, |to| !blocks.contains(&to)).contains(&here)
    }

    /// Blocks of the loop that may run after `from` in the same round.
    fn after(&self, from: BlockIdx) -> BTreeSet<BlockIdx> {
        self.reached(from, |to| to != self.header())
    }

    /// Blocks of the loop reachable from `from` through blocks for which `may` is true.
    fn reached(&self, from: BlockIdx, may: impl Fn(BlockIdx) -> bool) -> BTreeSet<BlockIdx> {
        let mut found = BTreeSet::new();
        let mut rest = vec![from];
        while let Some(block) = rest.pop() {
            let next = self.graph.blocks[block].next.iter().copied();
            let inside = next.filter(|to| self.contains(*to) && may(*to));
            rest.extend(inside.filter(|to| found.insert(*to)));
        }
        found
    }

    /// Blocks of the loop that may run before `to` in the same round.
    fn before(&self, to: BlockIdx) -> BTreeSet<BlockIdx> {
        let mut found = BTreeSet::new();
        let mut rest = vec![to];
        while let Some(block) = rest.pop() {
            // Predecessors of the header belong to the round before.
            if block != self.header() {
                let before = self.graph.blocks[block].before.iter().copied();
                rest.extend(before.filter(|from| self.contains(*from) && found.insert(*from)));
            }
        }
        found
    }

    fn verdict(&self, steps: &Steps) -> CodeVerdict {
        let length: usize = steps.values().map(Vec::len).sum();
        if length > LONGEST {
            return CodeVerdict::Works(WorkReason::Long);
        }
        for step in steps.values().flatten() {
            if let Some(why) = refused(step.as_ref()) {
                return CodeVerdict::Works(why);
            }
        }
        match WriteLocations::of(steps) {
            Some(places) => places.follow(self, steps).verdict(),
            None => CodeVerdict::Works(WorkReason::Stores),
        }
    }

    /// Whether a path from `here` to itself changes no value and ends by one that others write.
    ///
    /// The loop calls nothing and writes only stack slots and, on other paths, locks.
    fn repeats(&self, steps: &Steps, here: BlockIdx) -> bool {
        let Some(places) = WriteLocations::of(steps).filter(|_| self.only_reads(steps)) else {
            return false;
        };
        let way = self.shortest_way(here, |block| !steps[&block].iter().flatten().any(locks));
        way.is_some_and(|way| {
            let on_it: Vec<&Effect> =
                way.iter().flat_map(|block| &steps[block]).flatten().collect();
            on_it.len() <= LONGEST && places.follow_way(&on_it).repeats()
        })
    }

    /// Shortest path, in blocks, from `here` back to itself through blocks for which `may` is true.
    fn shortest_way(
        &self,
        here: BlockIdx,
        may: impl Fn(BlockIdx) -> bool,
    ) -> Option<Vec<BlockIdx>> {
        // Breadth-first search, so the first path found is the shortest.
        let mut before = BTreeMap::new();
        let mut rest = VecDeque::from([here]);
        while let Some(block) = rest.pop_front().filter(|_| !before.contains_key(&here)) {
            let next = self.graph.blocks[block].next.iter().copied();
            for next in next.filter(|next| self.contains(*next) && may(*next)) {
                before.entry(next).or_insert_with(|| {
                    rest.push_back(next);
                    block
                });
            }
        }
        let mut way = vec![*before.get(&here)?];
        while let Some(block) = way.last().filter(|block| **block != here) {
            way.push(before[block]);
        }
        way.reverse();
        Some(way)
    }
}

/// Rewrites an access through a register that only ever holds the address of one stack slot as an
/// access to the slot. Unoptimised code has such accesses.
fn name_slots(steps: &mut Steps) {
    let mut pointers: BTreeMap<u8, Option<(u8, i64)>> = BTreeMap::new();
    for step in steps.values().flatten().flatten() {
        for register in step.writes.numbers() {
            let pointer = pointers.entry(register).or_insert(step.points);
            // A register that gets two different addresses names no slot.
            *pointer = pointer.filter(|slot| step.points == Some(*slot));
        }
    }
    for access in steps.values_mut().flatten().flatten().flat_map(|step| &mut step.memory) {
        let Some((base, distance)) = access.address.near else { continue };
        if let Some((frame, slot)) = pointers.get(&base).copied().flatten() {
            let slot = Some((frame, slot.wrapping_add(distance)));
            access.address = Address { registers: Registers::one(frame), slot, near: slot };
        }
    }
}

/// Reason why an instruction cannot be in a spin loop without a hint; `None` if it can.
fn refused(step: Option<&Effect>) -> Option<WorkReason> {
    let Some(step) = step else { return Some(WorkReason::Unknown) };
    match step.decoded.flow {
        Flow::Call { .. } | Flow::IndirectCall | Flow::IndirectJump => Some(WorkReason::Calls),
        Flow::Trap => Some(WorkReason::Unknown),
        _ => {
            matches!(step.way, Transfer::Unknown | Transfer::System).then_some(WorkReason::Unknown)
        }
    }
}

#[cfg(test)]
mod tests;
