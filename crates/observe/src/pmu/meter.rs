//! Counts of one thread from reading to reading: instructions, cycles, cache misses and memory
//! requests.
//!
//! # Problem
//! Schedulers need a thread's counts in each quantum. With multiplexed counters, the count since
//! the thread's creation, scaled by the time since then, is no sum of quanta: a later total may
//! even be lower.
//! # Approach
//! The counts between two readings are scaled by the time between them, and added up. A reading
//! before every group had its turn is deferred to the next one. The CPI stack is computed for each
//! such interval by itself ([`super::stack`]); an unknown stack adds nothing. A figure is given
//! only at readings before which it was counted all the time, so its difference to the previous
//! reading belongs to the interval.
//! # Properties
//! - **Grows**: no figure is ever lower than before. -> test `sums_never_shrink`
//! - **Unknown is not 0**: a figure without a counter, or whose counter was held by others since
//!   the last reading, is `None`. -> tests `what_others_hold_is_unknown`,
//!   `what_others_take_over_is_unknown`
//! - **Rates are of their own time**: the counts of a deferred reading would be divided by the time
//!   of the next one, so requests are `None` at it. Instructions and cycles, which are divided by
//!   each other, stay. -> test `a_group_that_was_not_scheduled_is_waited_for`
//! - **Nothing counted is lost**: instructions once counted stay, even if others take the counters.
//!   -> test `what_others_take_over_is_unknown`
//! - **Kinds of cores do not blind each other**: a kind that cannot count a figure hides the other
//!   kinds' counts only while the thread is on it. -> test `a_visit_to_the_other_kind`
//! - **Stacks follow**: the stacks of all intervals with a known stack add up.
//!   -> test `stacks_of_stretches_add_up`

use super::counters::{Counters, OpenCounters};
use super::events::Reading;
use super::open::{OpenGroup, Start};
use super::plan::{EventGroup, ROLES, Role};
use super::scale::{ENOUGH, counted, due, is_enough};
use super::stack::{StackPlan, of_readings};
use colocate_linux::{SysError, Tid};
use colocate_machine::Nanos;
use colocate_model::Stack;

pub use super::plan::LEVELS;

/// Counts of a thread since its counters were opened, over the intervals counted. `None` is
/// unknown since the last reading: only differences of two known figures are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metered {
    /// Instructions retired; `None` only until some are counted. While others hold the counters,
    /// only actual counts are added.
    pub instructions: Option<u64>,
    /// Core cycles.
    pub cycles: Option<u64>,
    /// Loads and stores.
    pub accesses: Option<u64>,
    /// Misses of the data caches of levels 1 to 3.
    pub misses: [Option<u64>; LEVELS],
    /// CPI stack of the intervals with a known stack; `None` without one.
    pub stack: Option<Stack>,
    /// CPU time.
    pub on_cpu: Nanos,
}

const INSTRUCTIONS: usize = 0;
const CYCLES: usize = 1;
const LOADS: usize = 2;
const STORES: usize = 3;
const MISSES: usize = 4;

/// CPU time after which a reading counts although a group had no turn: others hold its counters.
/// Chosen: the kernel rotates groups every tick, and no machine has ten groups.
const TURNS_NS: u64 = 100_000_000;

/// Counters of a thread, for repeated readings.
#[derive(Debug)]
pub struct Meter {
    open: OpenCounters,
    pmus: Vec<PmuSums>,
    /// CPU time of the thread at the last reading.
    on_cpu_ns: u64,
}

/// Groups of a PMU, and their conversion to a CPI stack.
type PlannedGroups<'a> = (&'a [EventGroup], Option<&'a StackPlan>);

/// Counts of a PMU.
#[derive(Clone, Debug, Default)]
struct PmuSums {
    /// Readings already added to `sums`.
    taken: Vec<Reading>,
    /// Last readings.
    latest: Vec<Reading>,
    sums: [u64; ROLES.len()],
    /// Figures known at least once.
    ever: [bool; ROLES.len()],
    /// CPI stack over the intervals with a known stack; `None` if the PMU has none.
    stack: Option<Stack>,
    last: LastReading,
}

/// Effect of the last reading of a PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum LastReading {
    /// The thread was not on the PMU's cores, or did not run.
    #[default]
    Idle,
    /// Deferred: a group has had no turn yet.
    Deferred,
    /// Added the marked figures.
    Added([bool; ROLES.len()]),
}

impl Counters {
    /// Opens the counters on thread `tid` for repeated readings.
    ///
    /// # Errors
    /// As [`Counters::open`].
    pub fn meter(&self, tid: Tid, start: Start) -> Result<Meter, SysError> {
        let open = self.open(tid, start)?;
        Ok(Meter { open, pmus: vec![PmuSums::default(); self.pmus.len()], on_cpu_ns: 0 })
    }
}

impl Meter {
    /// Counts so far by these `counters`, which opened the meter. Works after the thread's exit,
    /// too, given by `ended`.
    ///
    /// # Errors
    /// If a group cannot be read.
    pub fn read(&mut self, counters: &Counters, ended: bool) -> Result<Metered, SysError> {
        let alone = counters.alone;
        let mut on_cpu_ns = 0;
        for ((pmu, groups), sums) in counters.pmus.iter().zip(&self.open.0).zip(&mut self.pmus) {
            let latest: Vec<Reading> =
                groups.iter().map(OpenGroup::read).collect::<Result<_, _>>()?;
            on_cpu_ns = latest.iter().map(|r| r.enabled_ns).fold(on_cpu_ns, u64::max);
            sums.take(latest, (&pmu.groups, pmu.stack.as_ref()), alone, ended);
        }
        let groups = counters.pmus.iter().map(|pmu| &pmu.groups[..]);
        let kinds: Vec<KindGroups<'_>> = groups.zip(&self.pmus).collect();
        // The thread ran, but on cores without counters.
        let unseen = on_cpu_ns > self.on_cpu_ns && self.pmus.iter().all(PmuSums::is_idle);
        self.on_cpu_ns = on_cpu_ns;
        let known: [_; ROLES.len()] = std::array::from_fn(|place| {
            known(&kinds, place, alone).filter(|_| !unseen || place == INSTRUCTIONS)
        });
        Ok(Metered { stack: stack(&self.pmus), ..metered(&known, Nanos(on_cpu_ns)) })
    }
}

/// A kind of cores: groups of its PMU, and their counts.
type KindGroups<'a> = (&'a [EventGroup], &'a PmuSums);

/// Figure over all kinds of cores. `None` unless a kind counts it, and each kind on which the
/// thread ran since the last reading.
fn known(kinds: &[KindGroups<'_>], place: usize, alone: bool) -> Option<u64> {
    let counts = kinds.iter().any(|(groups, sums)| sums.counts(place, groups, alone));
    let reported = place == INSTRUCTIONS || kinds.iter().all(|(_, sums)| sums.reports(place));
    let sum = kinds.iter().fold(0_u64, |sum, (_, sums)| sum.saturating_add(sums.sums[place]));
    (counts && reported).then_some(sum)
}

/// CPI stack over all kinds of cores.
fn stack(kinds: &[PmuSums]) -> Option<Stack> {
    if kinds.iter().any(|sums| sums.stack.is_none() && !sums.is_idle()) {
        return None;
    }
    let stacks = kinds.iter().filter_map(|sums| sums.stack);
    let reported = stacks.filter(|stack| stack.total() > 0.0).map(Some).reduce(both);
    // Without cycles in any, an empty stack still names the parts.
    reported.unwrap_or_else(|| kinds.iter().find_map(|sums| sums.stack))
}

/// Sum of two stacks; `None` if their parts differ.
fn both(one: Option<Stack>, other: Option<Stack>) -> Option<Stack> {
    one?.plus(&other?)
}

fn metered(known: &[Option<u64>; ROLES.len()], on_cpu: Nanos) -> Metered {
    let accesses = known[LOADS].zip(known[STORES]).map(|(loads, stores)| loads + stores);
    let instructions = known[INSTRUCTIONS];
    let cycles = known[CYCLES];
    let misses = [known[MISSES], known[MISSES + 1], known[MISSES + 2]];
    Metered { instructions, cycles, accesses, misses, stack: None, on_cpu }
}

impl PmuSums {
    fn is_idle(&self) -> bool {
        self.last == LastReading::Idle
    }

    /// Adds the difference of the latest readings to those taken, once every group had its turn.
    fn take(&mut self, latest: Vec<Reading>, planned: PlannedGroups<'_>, alone: bool, ended: bool) {
        if self.taken.is_empty() {
            self.taken = latest.iter().map(zero).collect();
            self.stack = planned.1.map(|plan| Stack::empty(plan.table.parts));
        }
        self.latest = latest;
        let pairs = self.latest.iter().zip(&self.taken);
        let between: Vec<Reading> = pairs.map(|(now, then)| since(now, then)).collect();
        let waited_long = between.iter().any(|reading| reading.enabled_ns >= TURNS_NS);
        let due_now = between.iter().all(ran) || ended || waited_long;
        self.last = if between.iter().any(ran) && due_now {
            let mut reported = self.add(&between, planned, alone);
            // An exit before a group's turn does not make all cycles so far unknown.
            reported[CYCLES] |= ended && !waited_long && self.ever[CYCLES];
            LastReading::Added(reported)
        } else if between.iter().any(|reading| ran(reading) || alone && reading.enabled_ns > 0) {
            LastReading::Deferred
        } else {
            LastReading::Idle
        };
    }

    /// Adds the counts between two readings; returns which figures were counted.
    fn add(
        &mut self,
        between: &[Reading],
        (groups, stack): PlannedGroups<'_>,
        alone: bool,
    ) -> [bool; ROLES.len()] {
        let mut reported = [false; ROLES.len()];
        for (place, reported) in reported.iter_mut().enumerate() {
            let counted = counted(ROLES[place], groups, between, alone);
            *reported = counted.is_some();
            self.ever[place] |= *reported;
            let added = match counted {
                Some(count) => count,
                // Unscaled counts are a lower bound, but real instructions.
                None if place == INSTRUCTIONS => instructions(groups, between),
                None => 0,
            };
            self.sums[place] = self.sums[place].saturating_add(added);
        }
        let stack = stack.and_then(|plan| of_readings(plan, groups, between, alone).ok());
        // An interval without a known stack adds nothing.
        self.stack = both(self.stack, stack).or(self.stack);
        self.taken.clone_from(&self.latest);
        reported
    }

    /// Whether the figure at `place` is known for the time since the last reading.
    fn reports(&self, place: usize) -> bool {
        match self.last {
            LastReading::Idle => true,
            LastReading::Deferred => place <= CYCLES,
            LastReading::Added(reported) => reported[place] && !self.is_silent(place),
        }
    }

    /// Whether the figure at `place` is counted: once known, or its counter free for long enough.
    fn counts(&self, place: usize, groups: &[EventGroup], alone: bool) -> bool {
        let due = due(&self.latest, alone);
        let mut pairs = groups.iter().zip(&self.latest);
        let is_counted = self.ever[place]
            || pairs.any(|(group, reading)| {
                group.count_of(ROLES[place], &reading.counts).is_some()
                    && is_enough(reading, due(reading))
            });
        !self.is_silent(place) && is_counted
    }

    /// Whether the counter at `place` seems dead.
    fn is_silent(&self, place: usize) -> bool {
        place > CYCLES && self.sums[place] == 0 && self.sums[INSTRUCTIONS] >= ENOUGH
    }
}

fn ran(reading: &Reading) -> bool {
    reading.running_ns > 0
}
/// Instructions actually counted between two readings, unscaled.
fn instructions(groups: &[EventGroup], between: &[Reading]) -> u64 {
    let pairs = groups.iter().zip(between);
    let each = pairs.filter_map(|(group, r)| group.count_of(Role::Instructions, &r.counts));
    // Each group counts the same instructions; the largest count misses the fewest.
    each.max().unwrap_or(0)
}

fn zero(like: &Reading) -> Reading {
    Reading { counts: vec![0; like.counts.len()], ..Reading::default() }
}

fn since(now: &Reading, then: &Reading) -> Reading {
    let counts = now.counts.iter().zip(&then.counts);
    Reading {
        enabled_ns: now.enabled_ns.saturating_sub(then.enabled_ns),
        running_ns: now.running_ns.saturating_sub(then.running_ns),
        counts: counts.map(|(now, then)| now.saturating_sub(*then)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::cpu::Cpu;
    use crate::pmu::events::Extra;
    use crate::pmu::open::tests::touch;
    use crate::pmu::plan::traffic;
    use crate::pmu::plan::{grouping, wanted};
    use crate::pmu::{extras, table};
    use colocate_model::Class;
    use colocate_testing::skip;
    use perf_event_open_sys::bindings as c;
    use proptest::prelude::*;

    fn reading(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> Reading {
        Reading { enabled_ns, running_ns, counts: counts.to_vec() }
    }

    /// Instructions with cycles, and instructions with misses of the first cache.
    fn two() -> Vec<EventGroup> {
        let misses = Role::Extra(Extra::Misses(1));
        vec![
            EventGroup::of_roles(&[Role::Instructions, Role::Cycles]),
            EventGroup::of_roles(&[Role::Instructions, misses]),
        ]
    }

    /// What is known of instructions, cycles and misses after a reading.
    fn read(sums: &mut PmuSums, readings: [Reading; 2]) -> [Option<u64>; 3] {
        sums.take(readings.to_vec(), (&two(), None), true, false);
        [INSTRUCTIONS, CYCLES, MISSES].map(|place| known(&[(&two(), sums)], place, true))
    }

    /// A thread that runs at 2 instructions a ns at first and at 1 later: in the first 10 ns each group counts for
    /// 5, in the second 10 ns the first one for 2 and the other one for 8. Scaled as a whole, the first group's
    /// 12 would be 12 / 7 * 20 = 34.
    #[test]
    fn each_reading_is_scaled_by_itself() {
        let mut sums = PmuSums::default();
        let first = [reading(10, 5, &[10, 5]), reading(10, 5, &[10, 1])];
        assert_eq!(read(&mut sums, first), [Some(20), Some(10), Some(2)]);
        let second = [reading(20, 7, &[12, 7]), reading(20, 13, &[18, 9])];
        assert_eq!(read(&mut sums, second), [Some(30), Some(20), Some(12)]);
    }

    /// The second reading is deferred to the third one. Its misses are not 0, and those of the third are of both times.
    #[test]
    fn a_group_that_was_not_scheduled_is_waited_for() {
        let mut sums = PmuSums::default();
        let first = [reading(10, 10, &[20, 10]), reading(10, 0, &[0, 0])];
        assert_eq!(read(&mut sums, first), [Some(0), Some(0), None], "nothing is added yet");
        let second = [reading(20, 10, &[20, 10]), reading(20, 10, &[20, 4])];
        assert_eq!(read(&mut sums, second), [Some(40), Some(20), Some(8)]);
        let third = [reading(30, 20, &[40, 20]), reading(30, 10, &[20, 4])];
        assert_eq!(read(&mut sums, third.clone()), [Some(40), Some(20), None], "left");
        assert_eq!(read(&mut sums, third), [Some(40), Some(20), None], "still deferred, sleeping");
        let fourth = [reading(40, 20, &[40, 20]), reading(40, 20, &[40, 8])];
        let all = [Some(80), Some(40), Some(16)];
        assert_eq!(read(&mut sums, fourth.clone()), all);
        assert_eq!(read(&mut sums, fourth), all, "sleeping");
    }

    #[test]
    fn what_others_hold_is_unknown() {
        let mut sums = PmuSums::default();
        let long = 2 * TURNS_NS;
        let held = [reading(long, long, &[90, 60]), reading(long, 0, &[0, 0])];
        assert_eq!(read(&mut sums, held), [Some(90), Some(60), None]);
        let mut sums = PmuSums::default();
        let silent = [reading(10, 10, &[ENOUGH, ENOUGH]), reading(10, 10, &[ENOUGH, 0])];
        assert_eq!(read(&mut sums, silent), [Some(ENOUGH), Some(ENOUGH), None]);
        let mut sums = PmuSums::default();
        let all_held = [reading(long, 0, &[0, 0]), reading(long, 0, &[0, 0])];
        assert_eq!(read(&mut sums, all_held), [None; 3]);
    }

    /// Both groups count for 1 s. Then others take the counters of the second one for 1 s; then all of them for 1 s,
    /// but for a thousandth, of which the instructions are not lost; then they give them back.
    #[test]
    fn what_others_take_over_is_unknown() {
        const S: u64 = 1_000_000_000;
        let mut sums = PmuSums::default();
        let at = |enabled, first: (u64, [u64; 2]), second: (u64, [u64; 2])| {
            [reading(enabled, first.0, &first.1), reading(enabled, second.0, &second.1)]
        };
        let first = at(S, (S, [8_000, 4_000]), (S, [8_000, 1_000]));
        assert_eq!(read(&mut sums, first), [Some(8_000), Some(4_000), Some(1_000)]);
        let second = at(2 * S, (2 * S, [16_000, 8_000]), (S, [8_000, 1_000]));
        assert_eq!(read(&mut sums, second), [Some(16_000), Some(8_000), None]);
        let ms = S / 1_000;
        let third = at(3 * S, (2 * S + ms, [16_009, 8_004]), (S, [8_000, 1_000]));
        assert_eq!(read(&mut sums, third), [Some(16_009), None, None]);
        let fourth = at(4 * S, (3 * S + ms, [24_009, 12_004]), (2 * S, [16_000, 2_000]));
        assert_eq!(read(&mut sums, fourth), [Some(24_009), Some(12_000), Some(2_000)]);
    }

    /// Two kinds of cores, of which the second counts no misses. The thread goes there once.
    #[test]
    fn a_visit_to_the_other_kind() {
        let fast = [EventGroup::of_roles(&[Role::Instructions, Role::Cycles, ROLES[MISSES]])];
        let slow = [EventGroup::of_roles(&[Role::Instructions, Role::Cycles])];
        let mut sums = [PmuSums::default(), PmuSums::default()];
        let mut read = |enabled, first: (u64, [u64; 3]), second: (u64, [u64; 2])| {
            let latest = [
                vec![reading(enabled, first.0, &first.1)],
                vec![reading(enabled, second.0, &second.1)],
            ];
            let [on_fast, on_slow] = latest;
            sums[0].take(on_fast, (&fast, None), false, false);
            sums[1].take(on_slow, (&slow, None), false, false);
            let kinds: [KindGroups<'_>; 2] = [(&fast, &sums[0]), (&slow, &sums[1])];
            [INSTRUCTIONS, CYCLES, MISSES].map(|place| known(&kinds, place, false))
        };
        let begins = read(10, (10, [20, 10, 3]), (0, [0, 0]));
        assert_eq!(begins, [Some(20), Some(10), Some(3)]);
        assert_eq!(read(20, (10, [20, 10, 3]), (10, [5, 10])), [Some(25), Some(20), None]);
        let back = read(30, (20, [40, 20, 6]), (10, [5, 10]));
        assert_eq!(back, [Some(45), Some(30), Some(6)]);
    }

    /// One kind of cores has stacks, another one has none, and a third one others.
    #[test]
    fn stacks_of_kinds() {
        let of = |parts, cycles: &[f64], last| PmuSums {
            stack: Stack::new(parts, cycles, 0.0),
            last,
            ..PmuSums::default()
        };
        let took = LastReading::Added([true; ROLES.len()]);
        let first = of(table::stack("arm-cycles").parts, &[1.0, 2.0, 3.0], took);
        let reported = first.stack;
        let none = |last| PmuSums { last, ..PmuSums::default() };
        assert_eq!(stack(&[first.clone(), none(LastReading::Idle)]), reported);
        assert_eq!(stack(&[first.clone(), none(took)]), None);
        let same = of(table::stack("arm-cycles").parts, &[0.0; 3], took);
        assert_eq!(stack(&[first.clone(), same.clone()]), reported, "nothing is known of it yet");
        assert_eq!(stack(&[same.clone(), same.clone()]), same.stack);
        let parts = crate::pmu::stack::arm()[0].parts;
        assert_eq!(stack(&[first.clone(), of(parts, &[0.0; 4], LastReading::Idle)]), reported);
        assert_eq!(stack(&[first, of(parts, &[1.0; 4], took)]), None, "they do not add up");
    }

    #[test]
    fn what_came_last_counts_at_the_end() {
        let mut sums = PmuSums::default();
        let latest = vec![reading(3, 3, &[6, 3]), reading(3, 0, &[0, 0])];
        sums.take(latest, (&two(), None), true, true);
        assert_eq!(sums.sums[INSTRUCTIONS], 6);
        // Of the last 2 ns the second group counted all.
        let latest = vec![reading(5, 3, &[6, 3]), reading(5, 2, &[4, 1])];
        sums.take(latest, (&two(), None), true, true);
        let all =
            [INSTRUCTIONS, CYCLES, MISSES].map(|place| known(&[(&two(), &sums)], place, true));
        assert_eq!(all, [Some(10), Some(3), Some(1)]);
    }

    /// Of three stretches of 1,000 cycles each the second counts more stalls than cycles: of 2,000 it is known.
    #[test]
    fn stacks_of_stretches_add_up() {
        let plan = StackPlan { table: table::stack("arm-cycles"), width: 0.0 };
        let roles = [Role::Instructions, Role::Cycles, Role::Stack(0), Role::Stack(1)];
        let groups = [EventGroup::of_roles(&roles)];
        let mut sums = PmuSums::default();
        let mut stacks = Vec::new();
        for (time, counts) in (1..).zip([
            [900, 1_000, 100, 300],
            [1_800, 2_000, 1_100, 1_300],
            [2_700, 3_000, 1_200, 1_700],
        ]) {
            let latest = vec![reading(10 * time, 10 * time, &counts)];
            sums.take(latest, (&groups, Some(&plan)), true, false);
            stacks.push(sums.stack.map(|stack| stack.cycles().to_vec()));
        }
        let first = Some(vec![100.0, 300.0, 600.0]);
        assert_eq!(stacks, [first.clone(), first, Some(vec![200.0, 700.0, 1_100.0])]);
        assert_eq!(known(&[(&groups, &sums)], CYCLES, true), Some(3_000));
    }

    proptest! {
        #[test]
        fn sums_never_shrink(steps in prop::collection::vec((0_u64..50, 0_u64..50, 0_u64..99), 1..30)) {
            let (mut sums, mut now) = (PmuSums::default(), [reading(0, 0, &[0, 0]), reading(0, 0, &[0, 0])]);
            let mut before = [0; ROLES.len()];
            for (first, second, count) in steps {
                for (reading, ran) in now.iter_mut().zip([first, second]) {
                    reading.enabled_ns += first + second;
                    reading.running_ns += ran;
                    reading.counts.iter_mut().for_each(|sum| *sum += if ran > 0 { count } else { 0 });
                }
                read(&mut sums, now.clone());
                prop_assert!(sums.sums.iter().zip(before).all(|(now, then)| *now >= then));
                before = sums.sums;
            }
        }
    }

    /// On a processor with four counters beside the fixed ones: what is wanted of it takes two groups, and the misses
    /// are in the first.
    #[test]
    fn what_schedulers_need_of_a_server() {
        let family = table::family(Cpu::Intel { family: 6, model: 85 }, "cpu").unwrap();
        let bundles =
            traffic(wanted(Some(family), |_| true), extras::wanted(Some(family), |_| true));
        let roles: Vec<Role> = bundles.iter().flatten().map(|event| event.role).collect();
        let misses = |level| Role::Extra(Extra::Misses(level));
        let (load, store) = (Role::Class(Class::Load), Role::Class(Class::Store));
        assert_eq!(roles, [Role::Cycles, misses(1), misses(2), misses(3), load, store]);
        let plan = grouping(&bundles, |events| events.len() <= 2 + 4);
        assert_eq!(plan.groups.len(), 2);
        let of_second: Vec<Role> = plan.groups[1].events.iter().map(|event| event.role).collect();
        assert_eq!(of_second, [Role::Instructions, store]);
    }

    /// Page faults replace misses and stalls, time replaces instructions and cycles.
    #[test]
    fn a_real_thread() {
        let clock = u64::from(c::PERF_COUNT_SW_TASK_CLOCK);
        let faults = u64::from(c::PERF_COUNT_SW_PAGE_FAULTS);
        let mut counters = Counters::of_software(&[
            (Role::Instructions, clock),
            (Role::Cycles, clock),
            (ROLES[MISSES], faults),
            (Role::Stack(0), faults),
            (Role::Stack(1), faults),
        ]);
        counters.pmus[0].stack = Some(StackPlan { table: table::stack("arm-cycles"), width: 0.0 });
        let mut meter = match counters.meter(Tid(0), Start::Now) {
            Ok(meter) => meter,
            Err(error) => skip!(Perf, "{error}"),
        };
        let before = meter.read(&counters, false).unwrap();
        touch(3_000 * 4096);
        let after = meter.read(&counters, false).unwrap();
        assert!(after.instructions > before.instructions && after.on_cpu > before.on_cpu);
        assert!(after.misses[0] > before.misses[0]);
        assert_eq!((after.accesses, after.misses[1]), (None, None));
        let (stack, cycles) = (after.stack.unwrap(), after.cycles.unwrap());
        assert_eq!(counters.stack_parts(), Some(stack.parts()));
        let away = (stack.total() - cycles as f64).abs();
        // A stretch in which nothing was waited for is not known.
        let unknown = if before.stack.unwrap().total() > 0.0 { 0 } else { before.cycles.unwrap() };
        assert!(away <= unknown as f64 + 1.0, "{stack:?} {cycles}");
        assert!(stack.cycles()[0] >= 1.0 && stack.cycles()[0] == stack.cycles()[1]);
    }
}
