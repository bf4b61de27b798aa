//! Whether the loop around an instruction only waits.
//!
//! # Problem
//! A thread that waits for others in a loop uses its PU as one that works does. Its code shows the difference, but not by
//! one instruction: most loops of waiting have `pause`, some have nothing but a load, a comparison and a jump, and so do
//! loops that search.
//! # Approach
//! A loop waits if it hints at that to the processor (`pause`, `yield`), or if a round of it leaves nothing behind that the next
//! round could build on. What a round can leave behind is worked out by following values through one round, from the
//! head of the loop to each jump back.
//! # Terms
//! *Place*: a register, or a slot of the stack, that the loop writes. *Origin*: the value that a place had at the beginning of
//! the round. *Fresh*: read in this round at an address, or from a clock. *State*: a place whose new value comes from its old one,
//! directly or by way of others; it *counts* if it is the old value plus what is constant in the loop, or shifted.
//! # Algorithm
//! 1. The innermost loop around the instruction (`sample::flow`), however many entries it has. Without one it works.
//! 2. If a hint lies on a way through this loop that leads through the instruction too, without a round of an inner loop or
//!    one more round of this one, it waits. So a loop of work that holds a small loop of waiting still works. But it waits
//!    as well if every way from the instruction back to it leads through a hint, maybe of an inner loop, and the loop calls
//!    nothing and writes nothing but slots and locks: so do locks that wait longer and longer between two attempts.
//! 3. Otherwise it works if it calls, is longer than [`LONGEST`], writes to memory that is no slot of the stack (but see 5),
//!    does anything that [`colocate_isa::effect`] does not know, or if an address, at which it reads or writes, depends on state:
//!    then it walks through memory.
//! 4. It works if it has state that does not count: it computes.
//! 5. A write that locks (`xchg`, `lock cmpxchg`, `lock bts`, `stxr`) is allowed where it would write the same in each round. A new
//!    value made of the old one is an atomic addition, not a lock that is tried.
//! 6. It waits if one of its conditional jumps depends on something fresh and on no state. Otherwise it works: it only counts.
//! 7. What works by 3 to 6 but calls nothing and writes nothing but slots and locks waits all the same if the shortest way from
//!    the instruction back to it locks nothing, leaves no state behind, not even a count, and waits by 6: so a semaphore waits
//!    until there is something to be taken, and the first of a loop of flags until it is set.
//! # Limits
//! Two names of the same memory are taken for two places. Memory that the loop waits for is taken to be written by others.
//! A loop that does nothing but count until a flag is set waits by this definition.
//! # Properties
//! - **Hints decide where they are on the way**, not beside it -> `both` in test `loops_of_x86`
//! - **Nothing that walks, computes, stores or calls waits** -> `work` in tests `loops_of_x86` and `loops_of_aarch64`
//! - **However it is compiled**: counters in registers or slots, pointers read before or after -> `wait` in the same

use crate::sample::budget::Budget;
use crate::sample::flow::{Block, BlockIdx, Graph, LoopIdx};
use crate::sample::live;
use colocate_isa::effect::{Access, Address, Effect, Registers, Way, effect};
use colocate_isa::{Decoded, Decoder, Flow, Isa, system};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Instructions of a loop that waits without a hint, at most. Chosen: that of LLVM's OpenMP, which has a hint, has some
/// 100; those without are shorter than 20.
pub const LONGEST: usize = 64;

/// What the code around an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It waits, and hints so to the processor.
    Hints,
    /// It waits: it reads the same memory, or a clock, again and again.
    Asks,
    /// It waits: it gives its PU to others (`sched_yield`).
    Yields,
    /// It works, for this reason.
    Works(Work),
}

/// Why code is taken to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// There is no loop around it.
    NoLoop,
    /// It is in the kernel, which does what it asked for.
    Kernel,
    /// The loop is longer than [`LONGEST`].
    Long,
    /// It calls functions, or jumps to where a register says.
    Calls,
    /// It writes to memory.
    Stores,
    /// It has an instruction whose effects are not known.
    Unknown,
    /// It reads another address in each round.
    Walks,
    /// It makes new values of those of the last round.
    Computes,
    /// It only counts.
    Counts,
}

impl Verdict {
    /// Whether it waits.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Hints | Self::Asks | Self::Yields)
    }
}

/// Code that is judged: instructions that lie one after the other, entered at the first.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Its instruction set.
    pub isa: Isa,
    /// Address of its first byte.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Whether the function at an address does little more than hint; see [`relaxes`].
pub type Relaxes<'a> = &'a dyn Fn(u64) -> bool;

/// Code whose loops are known, so that many places in it can be judged.
#[derive(Debug)]
pub struct Drawn {
    isa: Isa,
    start: u64,
    bytes: Vec<u8>,
    decoded: Vec<Decoded>,
    graph: Graph,
    /// Verdicts on blocks.
    known: HashMap<BlockIdx, Verdict>,
}

impl Drawn {
    /// `code` with its loops. `ip` is an instruction of it that is known to run. `None` if that takes more than `budget`.
    #[must_use]
    pub fn of(code: Code<'_>, ip: u64, budget: &mut Budget) -> Option<Self> {
        let decoded: Vec<Decoded> = Decoder::new(code.isa, code.bytes, code.start).collect();
        let graph = Graph::of(&decoded, &BTreeSet::from([ip]), budget)?;
        Some(Self::with(code, decoded, graph))
    }

    /// What is known of `code` around `ip`, where it is not known where instructions begin; see [`live::code_around`].
    #[must_use]
    pub fn around(code: Code<'_>, ip: u64, budget: &mut Budget) -> Option<Self> {
        let (decoded, graph) = live::code_around(code.isa, code.start, code.bytes, ip, budget)?;
        Some(Self::with(code, decoded, graph))
    }

    fn with(code: Code<'_>, decoded: Vec<Decoded>, graph: Graph) -> Self {
        let (isa, start, bytes) = (code.isa, code.start, code.bytes.to_vec());
        Self { isa, start, bytes, decoded, graph, known: HashMap::new() }
    }

    /// How many instructions it has, some 300 bytes each at most.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.decoded.len()
    }

    /// What a thread does that was seen at `ip`; `None` where this is not known to run, or if `budget` ends.
    pub fn judge(&mut self, ip: u64, relaxed: Relaxes<'_>, budget: &mut Budget) -> Option<Verdict> {
        let here = self.graph.block_at(ip)?;
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
        budget: &mut Budget,
    ) -> Option<Verdict> {
        let Some(innermost) = self.graph.blocks[here].innermost else {
            return Some(Verdict::Works(Work::NoLoop));
        };
        let (graph, body) = (&self.graph, self.graph.body(innermost));
        let count = |block: &BlockIdx| graph.blocks[*block].counts.instructions;
        if body.iter().map(count).sum::<u64>() > LONGEST_WITH_HINT {
            return Some(Verdict::Works(Work::Long));
        }
        let inside: usize =
            graph.loops[innermost].inside.clone().map(|inside| graph.body(inside).len()).sum();
        budget.spend_each(inside, STEPS_A_BLOCK)?;
        let code = Code { isa: self.isa, start: self.start, bytes: &self.bytes };
        let round = Round { code, graph, innermost, relaxed };
        let steps = round.steps(&self.decoded);
        if round.hints(&steps, here) {
            return Some(Verdict::Hints);
        }
        let verdict = round.verdict(&steps);
        let waits = verdict.waits() || round.repeats(&steps, here);
        Some(if waits { Verdict::Asks } else { verdict })
    }
}

/// Those of `decoded` that are of a block.
fn instructions<'a>(decoded: &'a [Decoded], of: &Block) -> &'a [Decoded] {
    let place = |address: u64| decoded.partition_point(|one| one.ip < address);
    &decoded[place(of.start)..place(of.end)]
}

/// Instructions of a loop that is analysed, at most. Chosen: ten times LLVM's.
const LONGEST_WITH_HINT: u64 = 1_000;

/// Steps for a block of a loop that is analysed, once more for each loop that it is in. Chosen: its instructions are decoded
/// again, and what they write is put into sets.
const STEPS_A_BLOCK: u64 = 1_000;

/// Whether this code, all of a function, does little more than hint: some instructions and no loop.
#[must_use]
pub fn relaxes(code: Code<'_>) -> bool {
    let mut decoded = Decoder::new(code.isa, code.bytes, code.start).take(SHORT);
    let mut hints = false;
    let ends = decoded.any(|one| {
        let step = code.effect(one);
        hints |= step.as_ref().is_some_and(|step| step.way == Way::Hint);
        !matches!(one.flow, Flow::Next) || step.is_none()
    });
    hints && ends
}

/// Whether this code, all of a function, does little more than give its PU to others: some instructions, and no loop, of which
/// one is a call of `sched_yield`.
#[must_use]
pub fn gives_way(code: Code<'_>) -> bool {
    let before_a_jump = Decoder::new(code.isa, code.bytes, code.start)
        .take(SHORT)
        .take_while(|one| matches!(one.flow, Flow::Next));
    let mut ends = before_a_jump.filter_map(|one| usize::try_from(one.next_ip() - code.start).ok());
    ends.any(|end| code.bytes.get(..end).is_some_and(|bytes| system::gives_way(code.isa, bytes)))
}

/// Instructions of a function that does little more than hint, at most. Chosen: GCC's without optimisation has five.
const SHORT: usize = 8;

impl Code<'_> {
    fn effect(&self, of: Decoded) -> Option<Effect> {
        let from = usize::try_from(of.ip.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..from + usize::from(of.len))?;
        effect(self.isa, bytes, of.ip)
    }
}

/// Instructions of each block of the loop; `None` is one that is not known.
type Steps = BTreeMap<BlockIdx, Vec<Option<Effect>>>;

/// One loop.
struct Round<'a> {
    code: Code<'a>,
    graph: &'a Graph,
    innermost: LoopIdx,
    relaxed: Relaxes<'a>,
}

impl Round<'_> {
    fn steps(&self, decoded: &[Decoded]) -> Steps {
        let of_block = |block: &BlockIdx| {
            let inside = instructions(decoded, &self.graph.blocks[*block]);
            (*block, inside.iter().map(|one| self.effect(*one)).collect())
        };
        let mut steps: Steps = self.graph.body(self.innermost).iter().map(of_block).collect();
        name_slots(&mut steps);
        steps
    }

    /// What an instruction does: a call of a function that hints is a hint.
    fn effect(&self, of: Decoded) -> Option<Effect> {
        match of.flow {
            Flow::Call { target } if (self.relaxed)(target) => Some(Effect {
                decoded: Decoded { flow: Flow::Next, ..of },
                way: Way::Hint,
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

    /// Whether a hint of this very loop is on a way with the block `here`.
    fn hints(&self, steps: &Steps, here: BlockIdx) -> bool {
        let is_hint =
            |step: &Option<Effect>| step.as_ref().is_some_and(|step| step.way == Way::Hint);
        let own = |block: &&BlockIdx| self.graph.blocks[**block].innermost == Some(self.innermost);
        let hints = steps.iter().filter(|(_, steps)| steps.iter().any(is_hint));
        let hints: BTreeSet<BlockIdx> = hints.map(|(block, _)| *block).collect();
        let (before, after) = (self.before(here), self.after(here));
        let on_a_way =
            |hint: &BlockIdx| *hint == here || after.contains(hint) || before.contains(hint);
        hints.iter().filter(own).any(on_a_way)
            || (self.only_reads(steps) && self.is_cut(here, &hints))
    }

    /// Whether the loop calls nothing and writes nothing but slots of the stack and locks.
    fn only_reads(&self, steps: &Steps) -> bool {
        let mut all = steps.values().flatten();
        all.all(|step| refused(step.as_ref()).is_none()) && Places::of(steps).is_some()
    }

    /// Whether all ways in the loop from this block back to it lead through one of `blocks`.
    fn is_cut(&self, here: BlockIdx, blocks: &BTreeSet<BlockIdx>) -> bool {
        blocks.contains(&here) || !self.reached(here, |to| !blocks.contains(&to)).contains(&here)
    }

    /// Blocks of the loop that may run after `from` in the same round.
    fn after(&self, from: BlockIdx) -> BTreeSet<BlockIdx> {
        self.reached(from, |to| to != self.header())
    }

    /// Blocks of the loop that may run after `from`, by way of those of which `may` holds.
    fn reached(&self, from: BlockIdx, may: impl Fn(BlockIdx) -> bool) -> BTreeSet<BlockIdx> {
        let (mut found, mut rest) = (BTreeSet::new(), vec![from]);
        while let Some(block) = rest.pop() {
            let next = self.graph.blocks[block].next.iter().copied();
            let inside = next.filter(|to| self.contains(*to) && may(*to));
            rest.extend(inside.filter(|to| found.insert(*to)));
        }
        found
    }

    /// Blocks of the loop that `to` may run after in the same round.
    fn before(&self, to: BlockIdx) -> BTreeSet<BlockIdx> {
        let (mut found, mut rest) = (BTreeSet::new(), vec![to]);
        while let Some(block) = rest.pop() {
            // What leads to the header is of the round before.
            if block != self.header() {
                let before = self.graph.blocks[block].before.iter().copied();
                rest.extend(before.filter(|from| self.contains(*from) && found.insert(*from)));
            }
        }
        found
    }

    fn verdict(&self, steps: &Steps) -> Verdict {
        let length: usize = steps.values().map(Vec::len).sum();
        if length > LONGEST {
            return Verdict::Works(Work::Long);
        }
        for step in steps.values().flatten() {
            if let Some(why) = refused(step.as_ref()) {
                return Verdict::Works(why);
            }
        }
        match Places::of(steps) {
            Some(places) => places.follow(self, steps).verdict(),
            None => Verdict::Works(Work::Stores),
        }
    }

    /// Whether there is a way from this block back to it that leaves all as it was and ends by what others write.
    ///
    /// The loop calls nothing and writes nothing but slots of the stack and, on other ways, locks.
    fn repeats(&self, steps: &Steps, here: BlockIdx) -> bool {
        let Some(places) = Places::of(steps).filter(|_| self.only_reads(steps)) else {
            return false;
        };
        let way = self.shortest_way(here, |block| !steps[&block].iter().flatten().any(locks));
        way.is_some_and(|way| {
            let on_it: Vec<&Effect> =
                way.iter().flat_map(|block| &steps[block]).flatten().collect();
            on_it.len() <= LONGEST && places.follow_way(&on_it).repeats()
        })
    }

    /// The fewest blocks from this one back to it, of which all but itself come after it and of each of which `may` holds.
    fn shortest_way(
        &self,
        here: BlockIdx,
        may: impl Fn(BlockIdx) -> bool,
    ) -> Option<Vec<BlockIdx>> {
        let (mut before, mut rest) = (BTreeMap::new(), VecDeque::from([here]));
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

/// Accesses by a register that only ever holds the address of one slot are accesses to that, as in code that is not optimised.
fn name_slots(steps: &mut Steps) {
    let mut pointers: BTreeMap<u8, Option<(u8, i64)>> = BTreeMap::new();
    for step in steps.values().flatten().flatten() {
        for register in step.writes.numbers() {
            let pointer = pointers.entry(register).or_insert(step.points);
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

/// Why an instruction may not be in a loop that waits without a hint.
fn refused(step: Option<&Effect>) -> Option<Work> {
    let Some(step) = step else { return Some(Work::Unknown) };
    match step.decoded.flow {
        Flow::Call { .. } | Flow::IndirectCall | Flow::IndirectJump => Some(Work::Calls),
        Flow::Trap => Some(Work::Unknown),
        _ => matches!(step.way, Way::Unknown | Way::System).then_some(Work::Unknown),
    }
}

/// What a loop writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Register(u8),
    Slot(u8, i64),
}

/// A set of places, by their numbers.
type Set = u128;

/// All that a loop writes, each with a number below 128.
struct Places(BTreeMap<Place, u32>);

/// What is known of a value in the midst of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// The places whose origins went into it.
    from: Set,
    /// Whether all that was done to those was counting.
    counts: bool,
    /// Whether something fresh went into it.
    fresh: bool,
}

/// The same in every round.
const CONSTANT: Value = Value { from: 0, counts: true, fresh: false };
const FRESH: Value = Value { fresh: true, ..CONSTANT };

impl Value {
    /// One of the two.
    fn or(self, other: Self) -> Self {
        Self {
            from: self.from | other.from,
            counts: self.counts && other.counts,
            fresh: self.fresh || other.fresh,
        }
    }

    /// A function of both.
    fn with(self, other: Self) -> Self {
        let both = self.or(other);
        Self { counts: both.from == 0, ..both }
    }

    /// Their sum.
    fn plus(self, other: Self) -> Self {
        if other == CONSTANT {
            self
        } else if self == CONSTANT {
            other
        } else {
            self.with(other)
        }
    }
}

/// What each place holds, by its number.
type State = Vec<Value>;

impl Places {
    /// What these instructions write; `None` if they write to memory elsewhere, or to too many places.
    fn of(steps: &Steps) -> Option<Self> {
        let all = || steps.values().flatten().flatten();
        let written = all().fold(Registers::NONE, |sum, step| sum | step.writes);
        let moves = |base: u8| written.numbers().any(|number| number == base);
        let mut places: BTreeSet<Place> = written.numbers().map(Place::Register).collect();
        for step in all().filter(|step| !locks(step)) {
            for access in step.memory.iter().filter(|access| access.writes) {
                let (base, at) = access.address.slot.filter(|(base, _)| !moves(*base))?;
                places.insert(Place::Slot(base, at));
            }
        }
        let numbered: BTreeMap<Place, u32> = places.into_iter().zip(0..).collect();
        (numbered.len() <= 128).then_some(Self(numbered))
    }

    fn slot(&self, access: &Access) -> Option<usize> {
        let (base, at) = access.address.slot?;
        self.0.get(&Place::Slot(base, at)).map(|number| *number as usize)
    }

    fn register(&self, number: u8) -> Option<usize> {
        self.0.get(&Place::Register(number)).map(|number| *number as usize)
    }

    fn values<'a>(
        &'a self,
        state: &'a State,
        registers: Registers,
    ) -> impl Iterator<Item = Value> + 'a {
        let value = |number| self.register(number).map_or(CONSTANT, |place| state[place]);
        registers.numbers().map(value)
    }

    /// Follows values through a round, blocks in an order in which each comes after those before it.
    fn follow(&self, round: &Round<'_>, steps: &Steps) -> Followed {
        let count = self.0.len();
        let mut followed = Followed { back: vec![CONSTANT; count], ..Followed::default() };
        let heads = self.heads(round, steps);
        let mut ends: BTreeMap<BlockIdx, State> = BTreeMap::new();
        for block in round.graph.order.iter().filter(|block| round.contains(**block)) {
            let before = round.graph.blocks[*block].before.iter();
            let known = before.filter(|_| *block != round.header()).filter_map(|b| ends.get(b));
            let merged = known.cloned().reduce(|one, other| merge(&one, &other));
            let mut state = merged.unwrap_or_else(|| vec![CONSTANT; count]);
            for place in heads.get(block).into_iter().flatten() {
                let origin = Value { from: 1 << place, ..CONSTANT };
                state[*place] = state[*place].or(origin);
            }
            for step in steps[block].iter().flatten() {
                self.step(step, &mut state, &mut followed);
            }
            let back = round.graph.blocks[*block].next.iter().any(|next| heads.contains_key(next));
            if back {
                followed.back = merge(&followed.back, &state);
            }
            ends.insert(*block, state);
        }
        followed
    }

    /// Follows values along one way. What is written elsewhere in the loop only is the same in all rounds on this one, and so
    /// are slots of the stack.
    fn follow_way(&self, way: &[&Effect]) -> Followed {
        let mut state = vec![CONSTANT; self.0.len()];
        for place in way.iter().flat_map(|step| self.written(step)) {
            state[place] = Value { from: 1 << place, ..CONSTANT };
        }
        let mut followed = Followed { own_slots: true, ..Followed::default() };
        for step in way {
            self.step(step, &mut state, &mut followed);
        }
        Followed { back: state, ..followed }
    }

    /// The heads of the loop and of those inside it, with the places that each writes.
    fn heads(&self, round: &Round<'_>, steps: &Steps) -> BTreeMap<BlockIdx, Vec<usize>> {
        let written = |one: LoopIdx| {
            let body = round.graph.body(one).iter();
            let steps = body.filter_map(|block| steps.get(block)).flatten().flatten();
            let places: BTreeSet<usize> = steps.flat_map(|step| self.written(step)).collect();
            places.into_iter().collect()
        };
        let inside = round.graph.loops[round.innermost].inside.clone();
        inside.map(|one| (round.graph.loops[one].header, written(one))).collect()
    }

    fn written(&self, step: &Effect) -> Vec<usize> {
        let registers = step.writes.numbers().filter_map(|number| self.register(number));
        let slots = step.memory.iter().filter(|access| access.writes && !locks(step));
        registers.chain(slots.filter_map(|access| self.slot(access))).collect()
    }

    fn step(&self, step: &Effect, state: &mut State, followed: &mut Followed) {
        // A conditional move writes one of its values; the condition only says which.
        let chooses = step.way == Way::Copy && !step.writes.is_empty();
        let reads = if chooses { step.reads.without(Registers::FLAGS) } else { step.reads };
        let mut sources: Vec<Value> = self.values(state, reads).collect();
        for access in &step.memory {
            let address = self.values(state, access.address.registers);
            let address = address.fold(CONSTANT, Value::with);
            followed.addresses.push(address);
            if access.reads {
                // What is found depends on where: so a list is gone through.
                let is_own = followed.own_slots && access.address.slot.is_some();
                let read = if is_own { CONSTANT } else { FRESH.with(address) };
                sources.push(self.slot(access).map_or(read, |slot| state[slot]));
            }
        }
        if locks(step) {
            // An expected value that was read makes it a change of that, such as an atomic maximum.
            let compares = step.way == Way::CompareSwap;
            let stored = if compares { step.reads } else { step.stored };
            let stored = self.values(state, stored).fold(CONSTANT, Value::with);
            // What is exchanged is what was there before: `xchg [lock], eax; test eax, eax; jne` again.
            let own = step.way == Way::Swap && step.stored.without(step.writes).is_empty();
            followed.stored.push((stored, own));
        }
        if matches!(step.decoded.flow, Flow::Conditional { .. }) {
            followed.conditions.push(sources.iter().copied().fold(CONSTANT, Value::with));
        }
        let result = match step.way {
            Way::Copy => sources.into_iter().reduce(Value::or).unwrap_or(CONSTANT),
            Way::Sum => sources.into_iter().fold(CONSTANT, Value::plus),
            Way::Mix => sources.into_iter().fold(CONSTANT, Value::with),
            Way::Swap | Way::CompareSwap | Way::SetBits | Way::Clock => FRESH,
            Way::Hint | Way::System | Way::Unknown => CONSTANT,
        };
        for place in self.written(step) {
            state[place] = result;
        }
    }
}

/// Whether an instruction writes to memory as locks are taken.
fn locks(step: &Effect) -> bool {
    matches!(step.way, Way::Swap | Way::CompareSwap | Way::SetBits)
}

fn merge(one: &State, other: &State) -> State {
    one.iter().zip(other).map(|(one, other)| one.or(*other)).collect()
}

/// What came out of a round.
#[derive(Default)]
struct Followed {
    /// What each place holds at jumps back.
    back: State,
    /// What addresses were computed from.
    addresses: Vec<Value>,
    /// What was written under a lock, and whether it may be what was read there.
    stored: Vec<(Value, bool)>,
    /// What decided where to go on.
    conditions: Vec<Value>,
    /// Whether slots of the stack are taken to be written by the loop only.
    own_slots: bool,
}

impl Followed {
    /// Whether the round leaves nothing behind, not even a count, and it depends on something fresh whether there is another.
    fn repeats(&self) -> bool {
        let from_others = |value: &Value| value.from == 0;
        self.back.iter().all(from_others) && self.verdict() == Verdict::Asks
    }

    fn verdict(&self) -> Verdict {
        let mut reached: Vec<Set> = self.back.iter().map(|value| value.from).collect();
        // Origins of origins, until nothing is added (Warshall).
        for through in 0..reached.len() {
            for place in 0..reached.len() {
                if reached[place] >> through & 1 == 1 {
                    reached[place] |= reached[through];
                }
            }
        }
        let is_state = |place: usize| reached[place] >> place & 1 == 1;
        // What it comes from beside itself may not come from it.
        let alone = |place: usize| {
            let from = |other: &usize| self.back[place].from >> other & 1 == 1;
            let others = (0..reached.len()).filter(|other| *other != place).filter(from);
            others.into_iter().all(|other| reached[other] >> place & 1 == 0)
        };
        let counts = |place: usize| self.back[place].counts && alone(place);
        let states = (0..reached.len()).filter(|place| is_state(*place));
        let state: Set = states.clone().fold(0, |all, place| all | 1 << place);
        let all_from = |value: &Value| {
            let direct = (0..reached.len()).filter(|place| value.from >> place & 1 == 1);
            direct.fold(value.from, |all, place| all | reached[place])
        };
        let on_state = |value: &Value| all_from(value) & state != 0;
        let is_fresh = |value: &Value| {
            let from = all_from(value);
            value.fresh
                || (0..reached.len()).any(|place| from >> place & 1 == 1 && self.back[place].fresh)
        };
        let changes = |(value, own): &(Value, bool)| on_state(value) || (is_fresh(value) && !own);
        if self.addresses.iter().any(on_state) {
            Verdict::Works(Work::Walks)
        } else if self.stored.iter().any(changes) {
            Verdict::Works(Work::Stores)
        } else if states.clone().any(|place| !counts(place)) {
            Verdict::Works(Work::Computes)
        } else if self.conditions.iter().any(|value| is_fresh(value) && !on_state(value)) {
            Verdict::Asks
        } else {
            Verdict::Works(Work::Counts)
        }
    }
}

#[cfg(test)]
mod tests;
