//! Counting one thread from look to look: instructions, cycles, and requests to caches and memory.
//!
//! # Problem
//! Schedulers want to know what a thread did in each quantum. Where counters take turns, the count
//! since the thread's birth, scaled by the time since its birth, is no sum of quanta: a later one
//! may even be lower.
//! # Approach
//! What was counted between two looks is scaled by the time between those two, and added up. A look
//! that came before every group had its turn is left for the next one. Where cycles went is told for each such
//! stretch by itself ([`super::stack`]); one of which it is not known adds nothing.
//! # Properties
//! - **Grows**: no figure is ever lower than before. -> test `sums_never_shrink`
//! - **Unknown is not 0**: what has no counter, or one that others held, is `None`. -> test
//!   `what_others_hold_is_unknown`
//! - **Stacks follow**: those of all stretches of which it is known where cycles went add up. -> test
//!   `stacks_of_stretches_add_up`

use super::counters::{Counters, OpenCounters};
use super::extras::Extra;
use super::open::{OpenGroup, Start};
use super::plan::{Bundle, Group, Role};
use super::scale::{ENOUGH, Reading, due, is_enough, scaled};
use super::stack::{StackPlan, of_readings};
use crate::sys::SysError;
use crate::task::Tid;
use colocate_machine::Nanos;
use colocate_model::{Class, Stack};

/// Levels of caches that events are known for.
pub const LEVELS: usize = 3;

/// What was counted of one thread since its counters were opened. `None` is what they do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metered {
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// Core cycles.
    pub cycles: Option<u64>,
    /// Loads and stores.
    pub accesses: Option<u64>,
    /// Misses of the data caches of levels 1 to 3.
    pub misses: [Option<u64>; LEVELS],
    /// Where the cycles went, in so far as that is known of them.
    pub stack: Option<Stack>,
    /// Time on CPUs.
    pub on_cpu: Nanos,
}

/// What is added up, in this order.
const ROLES: [Role; 4 + LEVELS] = [
    Role::Instructions,
    Role::Cycles,
    Role::Class(Class::Load),
    Role::Class(Class::Store),
    Role::Extra(Extra::Misses(1)),
    Role::Extra(Extra::Misses(2)),
    Role::Extra(Extra::Misses(3)),
];
const INSTRUCTIONS: usize = 0;
const CYCLES: usize = 1;
const LOADS: usize = 2;
const STORES: usize = 3;
const MISSES: usize = 4;

/// CPU time after which a look counts although not every group has had its turn: some are held by
/// others then. Chosen: the kernel changes groups every tick, and no machine has ten of them.
const TURNS_NS: u64 = 100_000_000;

/// Of all that a processor can count, what is worth counting here; misses first, as they matter most
/// where not everything fits.
pub(super) fn traffic(classes: Vec<Bundle>, extras: Vec<Bundle>) -> Vec<Bundle> {
    let is_one = |bundle: &Bundle| bundle.last().is_some_and(|event| ROLES.contains(&event.role));
    let (cycles, classes): (Vec<Bundle>, Vec<Bundle>) = classes
        .into_iter()
        .filter(is_one)
        .partition(|bundle| bundle.last().is_some_and(|event| event.role == Role::Cycles));
    cycles.into_iter().chain(extras.into_iter().filter(is_one)).chain(classes).collect()
}

/// The counters of one thread, read again and again.
#[derive(Debug)]
pub struct Meter {
    open: OpenCounters,
    pmus: Vec<Sums>,
}

/// What a PMU counts together, and how that tells where cycles went.
type Planned<'a> = (&'a [Group], Option<&'a StackPlan>);

/// What one PMU has counted.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// The readings up to which everything is added up.
    taken: Vec<Reading>,
    /// The last readings.
    latest: Vec<Reading>,
    sums: [u64; ROLES.len()],
    /// Where the cycles went in the stretches of which that is known.
    stack: Option<Stack>,
}

impl Counters {
    /// Opens the counters on thread `tid`, to be read from look to look.
    ///
    /// # Errors
    /// As [`Counters::open`].
    pub fn meter(&self, tid: Tid, start: Start) -> Result<Meter, SysError> {
        let open = self.open(tid, start)?;
        Ok(Meter { open, pmus: vec![Sums::default(); self.pmus.len()] })
    }
}

impl Meter {
    /// What was counted so far by these `counters`, which opened it; also after the thread has
    /// ended, and `ended` says that.
    ///
    /// # Errors
    /// If a group cannot be read.
    pub fn read(&mut self, counters: &Counters, ended: bool) -> Result<Metered, SysError> {
        let alone = counters.pmus.len() == 1;
        let mut known = [None; ROLES.len()];
        let mut on_cpu_ns = 0;
        for ((pmu, groups), sums) in counters.pmus.iter().zip(&self.open.0).zip(&mut self.pmus) {
            sums.latest = groups.iter().map(OpenGroup::read).collect::<Result<_, _>>()?;
            on_cpu_ns = sums.latest.iter().map(|r| r.enabled_ns).fold(on_cpu_ns, u64::max);
            sums.take((&pmu.groups, pmu.stack.as_ref()), alone, ended);
        }
        let parts = counters.pmus.iter().zip(&self.pmus);
        // A kind of core that the thread was never on says nothing, and need not.
        let ran: Vec<_> = parts.clone().filter(|(_, sums)| alone || sums.has_run()).collect();
        for (place, known) in known.iter_mut().enumerate() {
            let of_kinds = ran.iter().map(|(pmu, sums)| sums.known(place, &pmu.groups, alone));
            *known = of_kinds.sum();
        }
        let stacks: Option<Vec<Stack>> = ran.iter().map(|(_, sums)| sums.stack).collect();
        let stack = stacks.and_then(|all| all.into_iter().map(Some).reduce(both).flatten());
        Ok(Metered { stack, ..metered(&known, Nanos(on_cpu_ns)) })
    }
}

/// Both together, if they have the same parts.
fn both(one: Option<Stack>, other: Option<Stack>) -> Option<Stack> {
    one?.plus(&other?)
}

fn metered(known: &[Option<u64>; ROLES.len()], on_cpu: Nanos) -> Metered {
    let accesses = known[LOADS].zip(known[STORES]).map(|(loads, stores)| loads + stores);
    let (instructions, cycles) = (known[INSTRUCTIONS], known[CYCLES]);
    let misses = [known[MISSES], known[MISSES + 1], known[MISSES + 2]];
    Metered { instructions, cycles, accesses, misses, stack: None, on_cpu }
}

impl Sums {
    fn has_run(&self) -> bool {
        self.latest.iter().any(|reading| reading.running_ns > 0)
    }

    /// Adds what the latest readings say beyond those taken, if every group had its turn.
    fn take(&mut self, (groups, stack): Planned<'_>, alone: bool, ended: bool) {
        if self.taken.is_empty() {
            self.taken = self.latest.iter().map(zero).collect();
        }
        let between: Vec<Reading> =
            self.latest.iter().zip(&self.taken).map(|(now, then)| since(now, then)).collect();
        let ran = |reading: &Reading| reading.running_ns > 0;
        let waited_long = between.iter().any(|reading| reading.enabled_ns >= TURNS_NS);
        let due_now = between.iter().all(ran) || ended || waited_long;
        if !due_now || !between.iter().any(ran) {
            return;
        }
        let due = due(&between, alone);
        for (sum, role) in self.sums.iter_mut().zip(ROLES) {
            let counted = groups.iter().zip(&between).find_map(|(group, reading)| {
                let count = group.count_of(role, &reading.counts)?;
                (reading.running_ns > 0)
                    .then(|| scaled(count, due(reading), reading.running_ns))
                    .flatten()
            });
            *sum = sum.saturating_add(counted.unwrap_or(0));
        }
        let stack = stack.and_then(|plan| of_readings(plan, groups, &between, alone).ok());
        if let Some(stack) = stack {
            self.stack = Some(self.stack.map_or(stack, |sum| sum.plus(&stack).unwrap_or(sum)));
        }
        self.taken.clone_from(&self.latest);
    }

    /// A sum, if it is known.
    fn known(&self, place: usize, groups: &[Group], alone: bool) -> Option<u64> {
        let role = ROLES[place];
        let due = due(&self.latest, alone);
        let counts = |(group, reading): &(&Group, &Reading)| {
            group.count_of(role, &reading.counts).is_some() && is_enough(reading, due(reading))
        };
        groups.iter().zip(&self.latest).find(counts)?;
        let silent = place > CYCLES && self.sums[place] == 0 && self.sums[INSTRUCTIONS] >= ENOUGH;
        (!silent).then_some(self.sums[place])
    }
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
    use crate::pmu::open::tests::touch;
    use crate::pmu::plan::{grouping, wanted};
    use crate::pmu::stack::ARM_CYCLES;
    use crate::pmu::{extras, table};
    use perf_event_open_sys::bindings as c;
    use proptest::prelude::*;

    fn reading(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> Reading {
        Reading { enabled_ns, running_ns, counts: counts.to_vec() }
    }

    /// Instructions with cycles, and instructions with misses of the first cache.
    fn two() -> Vec<Group> {
        let misses = Role::Extra(Extra::Misses(1));
        vec![
            Group::of_roles(&[Role::Instructions, Role::Cycles]),
            Group::of_roles(&[Role::Instructions, misses]),
        ]
    }

    fn look(sums: &mut Sums, readings: [Reading; 2]) -> [Option<u64>; 3] {
        sums.latest = readings.to_vec();
        sums.take((&two(), None), true, false);
        [INSTRUCTIONS, CYCLES, MISSES].map(|place| sums.known(place, &two(), true))
    }

    /// A thread that runs at 2 instructions a ns at first and at 1 later: in the first 10 ns each group counts for
    /// 5, in the second 10 ns the first one for 2 and the other one for 8. Scaled as a whole, the first group's
    /// 12 would be 12 / 7 * 20 = 34.
    #[test]
    fn each_look_is_scaled_by_itself() {
        let mut sums = Sums::default();
        let first = [reading(10, 5, &[10, 5]), reading(10, 5, &[10, 1])];
        assert_eq!(look(&mut sums, first), [Some(20), Some(10), Some(2)]);
        let second = [reading(20, 7, &[12, 7]), reading(20, 13, &[18, 9])];
        assert_eq!(look(&mut sums, second), [Some(30), Some(20), Some(12)]);
    }

    #[test]
    fn a_group_without_its_turn_is_waited_for() {
        let mut sums = Sums::default();
        let first = [reading(10, 10, &[20, 10]), reading(10, 0, &[0, 0])];
        assert_eq!(look(&mut sums, first), [Some(0), Some(0), None], "nothing is added yet");
        let second = [reading(20, 10, &[20, 10]), reading(20, 10, &[20, 4])];
        assert_eq!(look(&mut sums, second), [Some(40), Some(20), Some(8)]);
    }

    #[test]
    fn what_others_hold_is_unknown() {
        let mut sums = Sums::default();
        let long = 2 * TURNS_NS;
        let held = [reading(long, long, &[90, 60]), reading(long, 0, &[0, 0])];
        assert_eq!(look(&mut sums, held), [Some(90), Some(60), None]);
        let mut sums = Sums::default();
        let silent = [reading(10, 10, &[ENOUGH, ENOUGH]), reading(10, 10, &[ENOUGH, 0])];
        assert_eq!(look(&mut sums, silent), [Some(ENOUGH), Some(ENOUGH), None]);
    }

    #[test]
    fn what_came_last_counts_at_the_end() {
        let mut sums = Sums {
            latest: vec![reading(3, 3, &[6, 3]), reading(3, 0, &[0, 0])],
            ..Sums::default()
        };
        sums.take((&two(), None), true, true);
        assert_eq!(sums.sums[INSTRUCTIONS], 6);
    }

    /// Of three stretches of 1,000 cycles each the second counts more stalls than cycles: of 2,000 it is known.
    #[test]
    fn stacks_of_stretches_add_up() {
        let plan = StackPlan { table: &ARM_CYCLES, width: 0.0 };
        let roles = [Role::Instructions, Role::Cycles, Role::Stack(0), Role::Stack(1)];
        let groups = [Group::of_roles(&roles)];
        let mut sums = Sums::default();
        let mut known = Vec::new();
        for (time, counts) in (1..).zip([
            [900, 1_000, 100, 300],
            [1_800, 2_000, 1_100, 1_300],
            [2_700, 3_000, 1_200, 1_700],
        ]) {
            sums.latest = vec![reading(10 * time, 10 * time, &counts)];
            sums.take((&groups, Some(&plan)), true, false);
            known.push(sums.stack.map(|stack| stack.cycles().to_vec()));
        }
        let first = Some(vec![100.0, 300.0, 600.0]);
        assert_eq!(known, [first.clone(), first, Some(vec![200.0, 700.0, 1_100.0])]);
        assert_eq!(sums.known(CYCLES, &groups, true), Some(3_000));
    }

    proptest! {
        #[test]
        fn sums_never_shrink(steps in prop::collection::vec((0_u64..50, 0_u64..50, 0_u64..99), 1..30)) {
            let (mut sums, mut now) = (Sums::default(), [reading(0, 0, &[0, 0]), reading(0, 0, &[0, 0])]);
            let mut before = [0; ROLES.len()];
            for (first, second, count) in steps {
                for (reading, ran) in now.iter_mut().zip([first, second]) {
                    reading.enabled_ns += first + second;
                    reading.running_ns += ran;
                    reading.counts.iter_mut().for_each(|sum| *sum += if ran > 0 { count } else { 0 });
                }
                look(&mut sums, now.clone());
                prop_assert!(sums.sums.iter().zip(before).all(|(now, then)| *now >= then));
                before = sums.sums;
            }
        }
    }

    /// On a processor with four counters beside the fixed ones: what is wanted of it takes two groups, and the misses
    /// are in the first.
    #[test]
    fn what_schedulers_want_of_a_server() {
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

    /// Page faults stand for misses and stalls, time for instructions and cycles.
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
        counters.pmus[0].stack = Some(StackPlan { table: &ARM_CYCLES, width: 0.0 });
        let mut meter = match counters.meter(Tid(0), Start::Now) {
            Ok(meter) => meter,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let before = meter.read(&counters, false).unwrap();
        touch(3_000 * 4096);
        let after = meter.read(&counters, false).unwrap();
        assert!(after.instructions > before.instructions && after.on_cpu > before.on_cpu);
        assert!(after.misses[0] > before.misses[0]);
        assert_eq!((after.accesses, after.misses[1]), (None, None));
        let (stack, cycles) = (after.stack.unwrap(), after.cycles.unwrap());
        assert_eq!(counters.stack_parts(), Some(stack.parts()));
        #[allow(clippy::cast_precision_loss)] // milliseconds
        let away = (stack.total() - cycles as f64).abs();
        // A stretch in which nothing was waited for is not known.
        let unknown = before.stack.map_or(before.cycles.unwrap(), |_| 0);
        assert!(away <= unknown as f64 + 1.0, "{stack:?} {cycles}");
        assert!(stack.cycles()[0] >= 1.0 && stack.cycles()[0] == stack.cycles()[1]);
    }
}
