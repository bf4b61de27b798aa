//! Values of the registers and stack slots that a loop writes, followed through one round.

use super::{CodeVerdict, LoopAnalysis, Steps, WorkReason};
use crate::sample::flow::BlockIdx;
use colocate_isa::Flow;
use colocate_isa::effect::{Effect, MemoryAccess, Registers, Transfer};
use std::collections::{BTreeMap, BTreeSet};

/// Location that a loop writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WriteLocation {
    Register(u8),
    Slot(u8, i64),
}

/// Bit set of place numbers.
type Set = u128;

/// Places that a loop writes, each numbered below 128.
pub(super) struct WriteLocations(BTreeMap<WriteLocation, u32>);

/// Abstract value at a point of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// Places whose origins went into the value.
    from: Set,
    /// Whether only counting operations were applied to these origins.
    counts: bool,
    /// Whether a fresh value went into it.
    fresh: bool,
}

/// Loop-invariant value.
const CONSTANT: Value = Value { from: 0, counts: true, fresh: false };
const FRESH: Value = Value { fresh: true, ..CONSTANT };

impl Value {
    /// Either of two values.
    fn or(self, other: Self) -> Self {
        Self {
            from: self.from | other.from,
            counts: self.counts && other.counts,
            fresh: self.fresh || other.fresh,
        }
    }

    /// Function of both values.
    fn with(self, other: Self) -> Self {
        let both = self.or(other);
        // Any function of state but a sum is no count.
        Self { counts: both.from == 0, ..both }
    }

    /// Sum of both values.
    fn plus(self, other: Self) -> Self {
        // A constant summand leaves a count a count.
        if other == CONSTANT {
            self
        } else if self == CONSTANT {
            other
        } else {
            self.with(other)
        }
    }
}

/// Abstract value of each place, by place number.
type AbstractState = Vec<Value>;

impl WriteLocations {
    /// Places that these instructions write; `None` for other memory, or more than 128 places.
    pub fn of(steps: &Steps) -> Option<Self> {
        let all = steps.values().flatten().flatten();
        let written = all.clone().fold(Registers::NONE, |sum, step| sum | step.writes);
        let mut places: BTreeSet<WriteLocation> =
            written.numbers().map(WriteLocation::Register).collect();
        for step in all.filter(|step| !locks(step)) {
            for access in step.memory.iter().filter(|access| access.writes) {
                let (base, at) = access.address.slot?;
                // A slot is a fixed place only if the loop leaves its base register alone.
                if written.numbers().any(|number| number == base) {
                    return None;
                }
                places.insert(WriteLocation::Slot(base, at));
            }
        }
        let numbered: BTreeMap<WriteLocation, u32> = places.into_iter().zip(0..).collect();
        // A place's number is a bit of a `Set`.
        (numbered.len() <= 128).then_some(Self(numbered))
    }

    fn slot(&self, access: &MemoryAccess) -> Option<usize> {
        let (base, at) = access.address.slot?;
        self.0.get(&WriteLocation::Slot(base, at)).map(|number| *number as usize)
    }

    fn register(&self, number: u8) -> Option<usize> {
        self.0.get(&WriteLocation::Register(number)).map(|number| *number as usize)
    }

    fn values<'a>(
        &'a self,
        state: &'a AbstractState,
        registers: Registers,
    ) -> impl Iterator<Item = Value> + 'a {
        registers
            .numbers()
            .map(|number| self.register(number).map_or(CONSTANT, |place| state[place]))
    }

    /// Follows values through a round. A block comes after its predecessors in the block order.
    pub fn follow(&self, round: &LoopAnalysis<'_>, steps: &Steps) -> RoundValues {
        let count = self.0.len();
        let mut followed = RoundValues { back: vec![CONSTANT; count], ..RoundValues::default() };
        let heads = self.heads(round, steps);
        let mut ends: BTreeMap<BlockIdx, AbstractState> = BTreeMap::new();
        for block in round.graph.order.iter().filter(|block| round.contains(**block)) {
            let before = round.graph.blocks[*block].before.iter();
            // The predecessors of the header belong to the round before.
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

    /// Follows values along one path. A place written only elsewhere in the loop is constant on
    /// this path, and so is a stack slot.
    pub fn follow_way(&self, way: &[&Effect]) -> RoundValues {
        let mut state = vec![CONSTANT; self.0.len()];
        for place in way.iter().flat_map(|step| self.written(step)) {
            state[place] = Value { from: 1 << place, ..CONSTANT };
        }
        let mut followed = RoundValues { own_slots: true, ..RoundValues::default() };
        for step in way {
            self.step(step, &mut state, &mut followed);
        }
        RoundValues { back: state, ..followed }
    }

    /// Heads of the loop and of its inner loops, with the places that each loop writes.
    fn heads(&self, round: &LoopAnalysis<'_>, steps: &Steps) -> BTreeMap<BlockIdx, Vec<usize>> {
        let inside = round.graph.loops[round.innermost].inside.clone();
        inside
            .map(|inner| {
                let body = round.graph.body(inner).iter();
                let steps = body.filter_map(|block| steps.get(block)).flatten().flatten();
                let places: BTreeSet<usize> = steps.flat_map(|step| self.written(step)).collect();
                (round.graph.loops[inner].header, places.into_iter().collect())
            })
            .collect()
    }

    fn written(&self, step: &Effect) -> Vec<usize> {
        let registers = step.writes.numbers().filter_map(|number| self.register(number));
        let slots = step.memory.iter().filter(|access| access.writes && !locks(step));
        registers.chain(slots.filter_map(|access| self.slot(access))).collect()
    }

    fn step(&self, step: &Effect, state: &mut AbstractState, followed: &mut RoundValues) {
        // The flags of a conditional move choose between its values, but are no input.
        let chooses = step.way == Transfer::Copy && !step.writes.is_empty();
        let reads = if chooses { step.reads.without(Registers::FLAGS) } else { step.reads };
        let mut sources: Vec<Value> = self.values(state, reads).collect();
        for access in &step.memory {
            let address = self.values(state, access.address.registers);
            let address = address.fold(CONSTANT, Value::with);
            followed.addresses.push(address);
            if access.reads {
                // The loaded value depends on its address: so the traversal of a list is state.
                let is_own = followed.own_slots && access.address.slot.is_some();
                let read = if is_own { CONSTANT } else { FRESH.with(address) };
                sources.push(self.slot(access).map_or(read, |slot| state[slot]));
            }
        }
        if locks(step) {
            // The expected value is an input of the new value, as in an atomic maximum.
            let compares = step.way == Transfer::CompareSwap;
            let stored = if compares { step.reads } else { step.stored };
            let stored = self.values(state, stored).fold(CONSTANT, Value::with);
            // The register then holds the old value: `xchg [lock], eax; test eax, eax; jne`.
            let own = step.way == Transfer::Swap && step.stored.without(step.writes).is_empty();
            followed.stored.push((stored, own));
        }
        if matches!(step.decoded.flow, Flow::Conditional { .. }) {
            followed.conditions.push(sources.iter().copied().fold(CONSTANT, Value::with));
        }
        let result = match step.way {
            Transfer::Copy => sources.into_iter().reduce(Value::or).unwrap_or(CONSTANT),
            Transfer::Sum => sources.into_iter().fold(CONSTANT, Value::plus),
            Transfer::Mix => sources.into_iter().fold(CONSTANT, Value::with),
            Transfer::Swap | Transfer::CompareSwap | Transfer::SetBits | Transfer::Clock => FRESH,
            Transfer::Hint | Transfer::System | Transfer::Unknown => CONSTANT,
        };
        for place in self.written(step) {
            state[place] = result;
        }
    }
}

/// Whether an instruction writes memory as a lock attempt does.
pub(super) fn locks(step: &Effect) -> bool {
    matches!(step.way, Transfer::Swap | Transfer::CompareSwap | Transfer::SetBits)
}

fn merge(one: &AbstractState, other: &AbstractState) -> AbstractState {
    one.iter().zip(other).map(|(one, other)| one.or(*other)).collect()
}

/// Values at the end of a round.
#[derive(Default)]
pub(super) struct RoundValues {
    /// Value of each place at the jumps back.
    back: AbstractState,
    /// Values from which addresses were computed.
    addresses: Vec<Value>,
    /// Values written by locked instructions, and whether the value may be the one read there.
    stored: Vec<(Value, bool)>,
    /// Values that conditional jumps depend on.
    conditions: Vec<Value>,
    /// Whether stack slots are assumed to be written by the loop only.
    own_slots: bool,
}

impl RoundValues {
    /// Whether no state is left, not even a count, and another round depends on a fresh value.
    pub fn repeats(&self) -> bool {
        self.back.iter().all(|value| value.from == 0) && self.verdict() == CodeVerdict::Asks
    }

    pub fn verdict(&self) -> CodeVerdict {
        let origins = Origins::of(&self.back);
        if self.addresses.iter().any(|address| origins.has_state(address)) {
            CodeVerdict::Works(WorkReason::Walks)
        } else if self
            .stored
            .iter()
            .any(|(value, is_own)| origins.has_state(value) || (origins.is_fresh(value) && !is_own))
        {
            CodeVerdict::Works(WorkReason::Stores)
        } else if origins.states().any(|place| !origins.counts(place)) {
            CodeVerdict::Works(WorkReason::Computes)
        } else if self
            .conditions
            .iter()
            .any(|value| origins.is_fresh(value) && !origins.has_state(value))
        {
            CodeVerdict::Asks
        } else {
            CodeVerdict::Works(WorkReason::Counts)
        }
    }
}

/// Transitive origins of the values at the jumps back.
struct Origins<'a> {
    back: &'a AbstractState,
    /// Places from which each place's value comes, directly or through other places.
    reached: Vec<Set>,
}

impl<'a> Origins<'a> {
    fn of(back: &'a AbstractState) -> Self {
        let mut reached: Vec<Set> = back.iter().map(|value| value.from).collect();
        // Transitive closure (Warshall).
        for through in 0..reached.len() {
            for place in 0..reached.len() {
                if contains(reached[place], through) {
                    reached[place] |= reached[through];
                }
            }
        }
        Self { back, reached }
    }

    /// Places whose new value comes from their old value.
    fn states(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.reached.len()).filter(|place| contains(self.reached[*place], *place))
    }

    /// Whether `place` counts. Its other origins must not depend on `place` in turn.
    fn counts(&self, place: usize) -> bool {
        let value = &self.back[place];
        value.counts
            && (0..self.reached.len())
                .filter(|other| *other != place && contains(value.from, *other))
                .all(|other| !contains(self.reached[other], place))
    }

    fn all_of(&self, value: &Value) -> Set {
        let direct = (0..self.reached.len()).filter(|place| contains(value.from, *place));
        direct.fold(value.from, |all, place| all | self.reached[place])
    }

    /// Whether `value` depends on state.
    fn has_state(&self, value: &Value) -> bool {
        let from = self.all_of(value);
        self.states().any(|place| contains(from, place))
    }

    /// Whether a fresh value went into `value`, in this round or in an earlier round.
    fn is_fresh(&self, value: &Value) -> bool {
        let from = self.all_of(value);
        value.fresh
            || (0..self.reached.len()).any(|place| contains(from, place) && self.back[place].fresh)
    }
}

const fn contains(set: Set, place: usize) -> bool {
    set >> place & 1 == 1
}
