//! Tests of stacks, by hand.

use super::super::plan::{grouping, traffic};
use super::super::table;
use super::*;
use proptest::prelude::*;

/// Every table that there is, with a width where one is needed.
fn plans() -> Vec<StackPlan> {
    let families = table::all().iter().filter_map(|family| family.stack);
    let tables = families.chain(arm());
    tables.map(|table| StackPlan { table, width: 8.0 }).collect()
}

fn plan(table: &'static StackTable, width: f64) -> StackPlan {
    StackPlan { table, width }
}

/// Shares of the parts, to the thousandth, and how far off they were.
fn check(plan: &StackPlan, counts: &[f64], cycles: f64, shares: &[f64], off: f64) {
    let mut all = [0.0; MOST_EVENTS];
    all[..counts.len()].copy_from_slice(counts);
    let stack = of_counts(plan, all, cycles).unwrap();
    let found = stack.shares().unwrap();
    let near = found.iter().zip(shares).all(|(a, b)| (a - b).abs() < 5e-4);
    assert!(near && found.len() == shares.len(), "{}: {found:?}", plan.table.name);
    assert!((stack.off() - off).abs() < 5e-4, "{}: off by {}", plan.table.name, stack.off());
    assert!((stack.total() - cycles).abs() < 1e-6 * cycles);
}

/// Of 6,000 slots 2,400 retire, 600 are wasted, 1,200 and 1,800 lost: to the fractions' precision they miss 1 %.
#[test]
fn intels_register() {
    let counts = [6_000.0, 2_400.0, 600.0, 1_200.0, 1_740.0];
    check(
        &plan(table::stack("intel-metrics"), 0.0),
        &counts,
        1_000.0,
        &[0.404, 0.101, 0.202, 0.293],
        0.01,
    );
}

/// 1,000 cycles alone have 4,000 slots: 1,600 retire; 1,760 are issued and 10 cycles recover, so 200 are wasted;
/// 800 are lost by the front end, 1,400 by the back end.
#[test]
fn intels_four_slots_alone() {
    let counts = [800.0, 1_760.0, 1_600.0, 10.0, 250.0, 250.0];
    let plan = plan(table::stack("intel-2015"), 0.0);
    check(&plan, &counts, 1_000.0, &[0.4, 0.05, 0.2, 0.35], 0.0);
    // Beside a sibling that is never halted there are half as many: what was lost to it is not there.
    let beside = [400.0, 880.0, 800.0, 10.0, 0.0, 250.0];
    check(&plan, &beside, 1_000.0, &[0.4, 0.05, 0.2, 0.35], 0.0);
    // Half of the time: three quarters.
    let half = [600.0, 1_320.0, 1_200.0, 10.0, 125.0, 250.0];
    check(&plan, &half, 1_000.0, &[0.4, 0.05, 0.2, 0.35], 0.0);
}

#[test]
fn efficient_cores_have_five_slots() {
    let counts = [2_500.0, 250.0, 1_000.0, 1_250.0];
    check(&plan(table::stack("intel-atom"), 0.0), &counts, 1_000.0, &[0.5, 0.05, 0.2, 0.25], 0.0);
}

/// 6,000 slots: 3,000 retire, 600, 1,200 and 900 are lost, and 300 are left for wrong paths. With 8 slots a
/// cycle, 2,300 are.
#[test]
fn amds_slots() {
    let counts = [3_000.0, 600.0, 1_200.0, 900.0];
    check(&plan(table::stack("zen4"), 0.0), &counts, 1_000.0, &[0.5, 0.1, 0.2, 0.15, 0.05], 0.0);
    let shares = [0.375, 0.075, 0.15, 0.1125, 0.2875];
    check(&plan(table::stack("zen5"), 0.0), &counts, 1_000.0, &shares, 0.0);
    // Counted at different times: 2 % more than there are.
    let more = [3_300.0, 600.0, 1_200.0, 1_020.0];
    check(
        &plan(table::stack("zen4"), 0.0),
        &more,
        1_000.0,
        &[0.539, 0.098, 0.196, 0.167, 0.0],
        0.02,
    );
}

/// 8,000 slots: 1,600 and 2,400 are lost, half are sent, and of ten that begin nine retire. With five slots the
/// front end's count is one a cycle too high.
#[test]
fn arms_slots() {
    let counts = [1_600.0, 2_400.0, 3_600.0, 4_000.0];
    check(&plan(table::stack("arm-slots"), 8.0), &counts, 1_000.0, &[0.45, 0.05, 0.2, 0.3], 0.0);
    let counts = [2_000.0, 1_500.0, 2_250.0, 2_500.0];
    check(&plan(table::stack("arm-slots"), 5.0), &counts, 1_000.0, &[0.45, 0.05, 0.2, 0.3], 0.0);
}

#[test]
fn arms_cycles() {
    check(&plan(table::stack("arm-cycles"), 0.0), &[100.0, 300.0], 1_000.0, &[0.1, 0.3, 0.6], 0.0);
}

/// The five components and what they leave over; where they count more than there are, that is 0.
#[test]
fn power8s_five() {
    let counts = [300.0, 400.0, 50.0, 120.0, 100.0];
    check(
        &plan(table::stack("power8"), 0.0),
        &counts,
        1_000.0,
        &[0.3, 0.4, 0.05, 0.12, 0.1, 0.03],
        0.0,
    );
    let counts = [350.0, 450.0, 50.0, 100.0, 100.0];
    let shares = [0.333, 0.429, 0.048, 0.095, 0.095, 0.0];
    check(&plan(table::stack("power8"), 0.0), &counts, 1_000.0, &shares, 0.05);
}

#[test]
fn what_does_not_belong_together_is_unknown() {
    let apart = |table, counts| of_counts(&plan(table, 0.0), counts, 1_000.0);
    let found = apart(table::stack("arm-cycles"), [700.0, 450.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(matches!(found, Err(NoStack::Apart(off)) if (off - 0.15).abs() < 1e-9), "{found:?}");
    let found =
        apart(table::stack("intel-metrics"), [6_000.0, 2_400.0, 0.0, 1_200.0, 1_200.0, 0.0]);
    assert!(matches!(found, Err(NoStack::Apart(off)) if (off - 0.2).abs() < 1e-9), "{found:?}");
    assert_eq!(
        found.unwrap_err().to_string(),
        "expected parts that add up to the cycles within 0.1, found them 0.20 away"
    );
}

#[test]
fn counters_that_stay_at_0() {
    for plan in plans() {
        let found = of_counts(&plan, [0.0; MOST_EVENTS], 1e6);
        assert_eq!(found, Err(NoStack::Silent), "{}", plan.table.name);
        let found = of_counts(&plan, [1.0; MOST_EVENTS], 0.0);
        assert_eq!(found, Err(NoStack::NotCounted), "{}: nothing ran", plan.table.name);
    }
}

/// Where only the clock counts, all would be lost by the back end, and that adds up. A short stretch may be one
/// long wait.
#[test]
fn nothing_retires_in_a_million_cycles() {
    let clock_only = [0.0, 0.0, 0.0, 0.0, 0.0, 250.0];
    assert_eq!(
        of_counts(&plan(table::stack("intel-2015"), 0.0), clock_only, 1e6),
        Err(NoStack::Silent)
    );
    assert!(of_counts(&plan(table::stack("intel-2015"), 0.0), clock_only, 9e5).is_ok());
    for plan in plans() {
        let Some(place) = retired(plan.table.formula) else { continue };
        let mut counts = [1e5; MOST_EVENTS];
        counts[place] = 0.0;
        assert_eq!(of_counts(&plan, counts, 1e6), Err(NoStack::Silent), "{}", plan.table.name);
    }
}

fn reading(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> Reading {
    Reading { enabled_ns, running_ns, counts: counts.to_vec() }
}

/// Instructions, cycles and one stall; instructions and the other stall.
fn two_groups() -> Vec<EventGroup> {
    vec![
        EventGroup::of_roles(&[Role::Instructions, Role::Cycles, Role::Stack(0)]),
        EventGroup::of_roles(&[Role::Instructions, Role::Stack(1)]),
    ]
}

/// 1,000 cycles in 10 ns, of which each group saw half.
#[test]
fn groups_that_took_turns_are_scaled() {
    let plan = plan(table::stack("arm-cycles"), 0.0);
    let readings = [reading(10, 5, &[900, 500, 50]), reading(10, 5, &[900, 150])];
    let stack = of_readings(&plan, &two_groups(), &readings, true).unwrap();
    let near = stack.cycles().iter().zip([100.0, 300.0, 600.0]).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(near, "{stack:?}");
}

#[test]
fn an_event_without_its_turn() {
    let plan = plan(table::stack("arm-cycles"), 0.0);
    let readings = [reading(10, 10, &[900, 500, 50]), reading(10, 0, &[0, 0])];
    let found = of_readings(&plan, &two_groups(), &readings, true);
    assert_eq!(found, Err(NoStack::NotCounted));
    // Less than a twentieth of the time says nothing of the rest.
    let short = |ns| [reading(1_000, 950, &[900, 500, 50]), reading(1_000, ns, &[90, 5])];
    let of_short = |ns| of_readings(&plan, &two_groups(), &short(ns), true);
    assert_eq!(of_short(49), Err(NoStack::NotCounted));
    assert!(of_short(50).is_ok());
    let one = &two_groups()[..1];
    assert_eq!(of_readings(&plan, one, &readings[..1], true), Err(NoStack::NotCounted));
}

/// What the first event of a group is, as one letter: `S` slots, `i` instructions.
#[test]
fn intels_slots_lead_and_the_others_follow() {
    let plan = plan(table::stack("intel-metrics"), 0.0);
    let cycles = table::family(Cpu::Intel { family: 6, model: 143 }, "cpu").unwrap();
    let all = [wanted(&plan), super::super::plan::wanted(Some(cycles), |_| true)].concat();
    let found = grouping(&all, |_| true);
    assert_eq!(found.groups.len(), 1);
    let roles: Vec<Role> = found.groups[0].events.iter().map(|event| event.role).take(7).collect();
    let stack = |place| Role::Stack(place);
    let expected =
        [stack(0), stack(1), stack(2), stack(3), stack(4), Role::Instructions, Role::Cycles];
    assert_eq!(roles, expected);
}

/// POWER8's first counter serves two of the events, so they take turns.
#[test]
fn power8_needs_two_groups() {
    let counter = |event: &PmuEvent| match event.source {
        EventKind::Raw(code) => code.config >> 16,
        _ => 0,
    };
    let fits = |events: &[PmuEvent]| {
        (1..=4).all(|each| events.iter().filter(|event| counter(event) == each).count() <= 1)
    };
    let found = grouping(&wanted(&plan(table::stack("power8"), 0.0)), fits);
    let sizes: Vec<usize> = found.groups.iter().map(|group| group.events.len()).collect();
    assert_eq!((sizes, found.refused), (vec![5, 2], vec![]));
    // Nor is there a third one for the requests, of which it counts loads alone: those cannot be used.
    let family = table::family(Cpu::Power { generation: 8 }, "cpu");
    let classes = super::super::plan::wanted(family, |_| true);
    let all = [wanted(&plan(table::stack("power8"), 0.0)), traffic(classes, Vec::new())].concat();
    assert_eq!(grouping(&all, fits).groups.len(), 2);
}

#[test]
fn tables_are_whole() {
    for plan in plans() {
        let StackTable { name, parts, events, alive, formula, .. } = plan.table;
        let rest =
            usize::from(matches!(formula, Formula::OfWidthAndRest(_) | Formula::CyclesAndRest));
        let fits = match formula {
            Formula::Slots => parts.len() + 1 == events.len(),
            Formula::FourIssued | Formula::Sent => parts.len() == 4,
            _ => parts.len() == events.len() + rest,
        };
        assert!(fits && parts.len() <= MOST_PARTS && events.len() <= MOST_EVENTS, "{name}");
        let retiring = retired(*formula).is_none_or(|place| alive.contains(&vec![place]));
        let are_there = alive.iter().all(|set| set.iter().all(|place| *place < events.len()));
        assert!(retiring && are_there && !alive.is_empty(), "{name}");
        let mut names = parts.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), parts.len(), "{name}");
    }
}

proptest! {
    /// Whatever is counted: the parts of a stack are not below 0 and add up to the cycles, and what they were off
    /// by is within the limit; or there is none.
    #[test]
    fn adds_up_or_is_unknown(
        which in 0_usize..100,
        counts in prop::array::uniform6(prop_oneof![Just(0.0), 0.0..9e9_f64]),
        cycles in prop_oneof![Just(0.0), 1.0..1e9_f64],
    ) {
        let plans = plans();
        let plan = &plans[which % plans.len()];
        if let Ok(stack) = of_counts(plan, counts, cycles) {
            prop_assert!(stack.cycles().iter().all(|each| *each >= 0.0));
            prop_assert!((stack.total() - cycles).abs() <= 1e-9 * cycles);
            prop_assert!((0.0..=LARGEST_GAP).contains(&stack.off()));
            prop_assert_eq!(stack.parts(), plan.table.parts);
        }
    }

    /// Counts that can be give a stack: shares of the cycles that add up to less than all.
    #[test]
    fn possible_stacks_are_found(frontend in 1_u64..500_000, backend in 1_u64..500_000) {
        let groups = [EventGroup::of_roles(&[Role::Cycles, Role::Stack(0), Role::Stack(1)])];
        let readings = [reading(1_000, 1_000, &[1_000_000, frontend, backend])];
        let plan = plan(table::stack("arm-cycles"), 0.0);
        let stack = of_readings(&plan, &groups, &readings, true).unwrap();
        prop_assert!((stack.cycles()[0] - frontend as f64).abs() < 1e-3);
        prop_assert!(stack.off() < 1e-9);
    }

    /// A program that is alike all the time, counted in turns: as if it had been counted all the time.
    #[test]
    fn turns_change_nothing(frontend in 0_u64..400, backend in 1_u64..400, first in 5_u64..96) {
        let plan = plan(table::stack("arm-cycles"), 0.0);
        let second = 100 - first;
        let turns = [
            reading(100, first, &[first * 900, first * 1_000, first * frontend]),
            reading(100, second, &[second * 900, second * backend]),
        ];
        let all = [
            reading(100, 100, &[90_000, 100_000, 100 * frontend]),
            reading(100, 100, &[90_000, 100 * backend]),
        ];
        let found = of_readings(&plan, &two_groups(), &turns, true).unwrap();
        let expected = of_readings(&plan, &two_groups(), &all, true).unwrap();
        for (found, expected) in found.cycles().iter().zip(expected.cycles()) {
            prop_assert!((found - expected).abs() <= 2.0, "{} {}", found, expected);
        }
    }
}
