//! Countable events of a PMU, determined by counting the calling thread.

use super::extras;
use super::open::{OpenGroup, Spec, Start};
use super::plan::{Bundle, EventGroup, Grouping, Role, grouping, traffic, wanted};
use super::scale::ENOUGH;
use super::specs::{counts, specs};
use super::stack::{self, MOST_EVENTS, StackPlan};
use super::sysfs::CorePmu;
use colocate_linux::Tid;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Set of events to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterSet {
    /// Instructions, cycles and classes.
    Mix,
    /// The mix and the other components of demand vectors.
    Demand,
    /// Instructions, cycles, and cache and memory requests: a scheduler's inputs for every quantum.
    Traffic,
    /// CPI stacks first, then as [`CounterSet::Traffic`].
    Stacks,
}

/// Groups counted by a PMU, and their conversion to CPI stacks.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedGrouping {
    /// Groups, and the events refused.
    pub grouping: Grouping,
    /// Conversion to CPI stacks, if the groups allow it.
    pub stack: Option<StackPlan>,
    /// Reason for missing stacks, if they were requested.
    pub no_stack: Option<String>,
}

/// Groups the countable events of `pmu` by trials on the calling thread.
pub(super) fn try_out(pmu: &CorePmu, alone: bool, set: CounterSet) -> CountedGrouping {
    let mut wanted = wanted(pmu.family, |code| pmu.has(code));
    let extras = extras::wanted(pmu.family, |code| pmu.has(code));
    match set {
        CounterSet::Mix => {}
        CounterSet::Demand => wanted.extend(extras),
        CounterSet::Traffic | CounterSet::Stacks => wanted = traffic(wanted, extras),
    }
    let mut no_stack = None;
    if set == CounterSet::Stacks {
        let tried = stack::plan(pmu).and_then(|plan| {
            let grouping = group(&with_stack(&plan, wanted.clone()), pmu, alone);
            check(&plan, &grouping, |group| specs(&group.events, pmu, alone))
                .map(|()| (plan, grouping))
        });
        match tried {
            Ok((plan, grouping)) => {
                return CountedGrouping { grouping, stack: Some(plan), no_stack };
            }
            Err(why) => no_stack = Some(format!("{}: {why}", pmu.name)),
        }
    }
    CountedGrouping { grouping: group(&wanted, pmu, alone), stack: None, no_stack }
}

fn group(wanted: &[Bundle], pmu: &CorePmu, alone: bool) -> Grouping {
    grouping(wanted, |events| counts(&specs(events, pmu, alone)).is_ok())
}

/// Inserts a stack's events after the cycles and before all other events; before the cycles if a
/// stack's event leads its group.
fn with_stack(plan: &StackPlan, others: Vec<Bundle>) -> Vec<Bundle> {
    let stack = stack::wanted(plan);
    let leads = stack.first().is_some_and(|first| stack::leads(first));
    let first = usize::from(!leads).min(others.len());
    let mut all = others;
    all.splice(first..first, stack);
    all
}

/// Checks that all events of a stack are counted, and that the events that cannot be 0 count.
fn check(
    plan: &StackPlan,
    grouping: &Grouping,
    specs: impl Fn(&EventGroup) -> Vec<Spec>,
) -> Result<(), String> {
    let mut refused = grouping.refused.iter();
    let refused = refused.find_map(|role| plan.table.events.get(stack_place(*role)?));
    if let Some(code) = refused {
        return Err(format!("expected to count {} for {}, refused", code.name, plan.table.name));
    }
    let mut seen = [false; MOST_EVENTS];
    for group in &grouping.groups {
        note_alive(group, &specs(group), &mut seen);
    }
    let sets = plan.table.alive.iter();
    let dead = sets.filter(|set| !set.iter().any(|place| seen[*place])).flatten();
    let names: Vec<&str> = dead.map(|place| plan.table.events[*place].name).collect();
    match names.len() {
        0 => Ok(()),
        1 => Err(format!("{} stays at 0", names[0])),
        _ => Err(format!("{} stay at 0", names.join(" and "))),
    }
}

/// Limit of a trial. Chosen: a million instructions take a millisecond, a turn 20 times as long.
const PATIENCE: Duration = Duration::from_millis(50);

/// Marks the stack's events of a group that count anything in a million instructions, by index.
/// Under an emulator or a hypervisor some counters or all stay at 0.
fn note_alive(group: &EventGroup, specs: &[Spec], seen: &mut [bool; MOST_EVENTS]) {
    let places: Vec<usize> =
        group.events.iter().filter_map(|event| stack_place(event.role)).collect();
    // Only events of stacks are known never to stay at 0.
    if places.is_empty() {
        return;
    }
    let Ok(open) = OpenGroup::open(specs, Tid(0), Start::Now) else { return };
    let begun = Instant::now();
    loop {
        work();
        let Ok(reading) = open.read() else { return };
        for (event, count) in group.events.iter().zip(&reading.counts) {
            if let Some(place) = stack_place(event.role) {
                seen[place] |= *count > 0;
            }
        }
        let enough = group.count_of(Role::Instructions, &reading.counts) >= Some(ENOUGH);
        if places.iter().all(|place| seen[*place]) || enough || begun.elapsed() >= PATIENCE {
            return;
        }
    }
}

fn stack_place(role: Role) -> Option<usize> {
    match role {
        Role::Stack(place) => Some(usize::from(place)),
        _ => None,
    }
}
/// Runs some tens of thousands of instructions.
fn work() {
    let mut state = black_box(1_u64);
    for step in 0..10_000 {
        // `black_box` keeps the compiler from computing the loop in advance.
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005) ^ step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::Counters;
    use crate::pmu::cpu::Cpu;
    use crate::pmu::events::{EventKind, PmuEvent, StackTable};
    use crate::pmu::table::{self, Family};
    use colocate_testing::skip;
    use perf_event_open_sys::bindings as c;

    fn plan(table: &'static StackTable) -> StackPlan {
        StackPlan { table, width: 0.0 }
    }

    /// What comes first where not everything fits.
    #[test]
    fn the_order_of_what_matters() {
        let family = table::family(Cpu::Intel { family: 6, model: 85 }, "cpu");
        let all = traffic(wanted(family, |_| true), extras::wanted(family, |_| true));
        let roles = |plan: &StackPlan| -> Vec<Role> {
            let all = with_stack(plan, all.clone());
            all.iter().take(3).map(|bundle| bundle.last().unwrap().role).collect()
        };
        let part = Role::Stack;
        assert_eq!(roles(&plan(table::stack("arm-cycles"))), [Role::Cycles, part(0), part(1)]);
        assert_eq!(roles(&plan(table::stack("intel-metrics")))[..2], [part(4), Role::Cycles]);
        assert_eq!(with_stack(&plan(table::stack("power8")), Vec::new()).len(), 5);
    }

    /// The kernel's own events replace a processor's: one of emulated faults stays at 0 everywhere but on Alpha
    /// and a few more; time passes.
    #[test]
    fn dead_counters_are_found_out() {
        let (time, dead) = (c::PERF_COUNT_SW_TASK_CLOCK, c::PERF_COUNT_SW_EMULATION_FAULTS);
        let tried = |table, numbers: &[u32]| {
            let mut events = vec![(Role::Instructions, u64::from(time))];
            let stack = (0..).map(Role::Stack).zip(numbers.iter().copied().map(u64::from));
            events.extend(stack);
            let counters = Counters::of_software(&events);
            let [planned] = &counters.pmus[..] else { panic!("one PMU") };
            let grouping = Grouping { groups: planned.groups.clone(), refused: Vec::new() };
            check(&plan(table), &grouping, |_| planned.specs[0].clone())
        };
        if Counters::of_software(&[(Role::Cycles, 1)]).open(Tid(0), Start::Now).is_err() {
            skip!(Perf, "no events can be opened here");
        }
        let names = |found: Result<(), String>| found.unwrap_err();
        let both = "STALL_FRONTEND and STALL_BACKEND stay at 0";
        assert_eq!(names(tried(table::stack("arm-cycles"), &[dead, dead])), both);
        // One of them would yield a stack of which the other one's part is 0.
        assert_eq!(
            names(tried(table::stack("arm-cycles"), &[dead, time])),
            "STALL_FRONTEND stays at 0"
        );
        assert_eq!(
            names(tried(table::stack("arm-cycles"), &[time, dead])),
            "STALL_BACKEND stays at 0"
        );
        assert_eq!(tried(table::stack("arm-cycles"), &[time, time]), Ok(()));
        // Only the clock counts, as where a hypervisor lets none but the architecture's events through.
        let clock = [dead, dead, dead, dead, dead, time];
        let found = names(tried(table::stack("intel-2015"), &clock));
        assert!(found.starts_with("UOPS_ISSUED:ANY and UOPS_RETIRED:RETIRE_SLOTS and"), "{found}");
        // Without wrong paths nothing recovers, and a thread need not be alone on its core.
        assert_eq!(
            tried(table::stack("intel-2015"), &[time, time, time, dead, dead, time]),
            Ok(())
        );
    }

    /// How many descriptors a thread needs on a kind of cores that has so many counters, beside those that serve one
    /// event each: cycles, Intel's instructions and its slots.
    fn descriptors(family: &Family, stack: Option<&'static StackTable>, set: CounterSet) -> usize {
        let intel = family.name.starts_with("Intel");
        let needs = |event: &&PmuEvent| match event.source {
            EventKind::Raw(code) => !(stack::leads(&[**event]) || code.config & !0x300 == 0x8000),
            _ => event.role != Role::Cycles && !intel,
        };
        let counters = if intel || family.name.starts_with("POWER") { 4 } else { 6 };
        let fits = |events: &[PmuEvent]| events.iter().filter(needs).count() <= counters;
        let (classes, extras) =
            (wanted(Some(family), |_| true), extras::wanted(Some(family), |_| true));
        let all = match (set, stack) {
            (CounterSet::Mix, _) => classes,
            (CounterSet::Demand, _) => [classes, extras].concat(),
            (CounterSet::Stacks, Some(table)) => with_stack(&plan(table), traffic(classes, extras)),
            _ => traffic(classes, extras),
        };
        grouping(&all, fits).groups.iter().map(|group| group.events.len()).sum()
    }

    /// The most that docs/reference/pmu.md names.
    #[test]
    fn descriptors_of_a_thread() {
        let most = |set: CounterSet| {
            let tables = |family: &Family| {
                let arm = stack::arm().into_iter().filter(|_| family.name.starts_with("Arm"));
                family.stack.into_iter().chain(arm).map(Some).chain([None]).collect::<Vec<_>>()
            };
            let of = |family: &'static Family| {
                let each = tables(family).into_iter();
                each.map(|table| descriptors(family, table, set)).max().unwrap()
            };
            table::all().iter().map(of).max().unwrap()
        };
        let wants = [CounterSet::Mix, CounterSet::Demand, CounterSet::Traffic, CounterSet::Stacks];
        assert_eq!(wants.map(most), [11, 17, 10, 15]);
    }

    #[test]
    fn a_refused_event_is_named() {
        let refused = vec![Role::Stack(3)];
        let why = check(
            &plan(table::stack("power8")),
            &Grouping { refused, ..Grouping::default() },
            |_| vec![],
        );
        assert_eq!(
            why.unwrap_err(),
            "expected to count PM_CMPLU_STALL_THRD for POWER8 CPI breakdown, top level, refused"
        );
    }
}
