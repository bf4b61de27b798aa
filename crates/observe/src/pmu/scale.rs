//! Counts and shares from readings of counters.
//!
//! The kernel multiplexes groups if a thread has more events than the processor has counters. A
//! reading then gives the time for which its group was enabled and the time for which it counted,
//! both in nanoseconds of the thread's CPU time. Shares are taken inside one group, whose events
//! always count together, so they need no scaling; totals are scaled by enabled over running.

use super::events::{EventGroup, Reading, Role};
use super::extras::Extras;
use colocate_model::{Mix, Share};

/// Totals of a thread, on a PMU or on all PMUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadTotals {
    /// Instructions retired, scaled; `None` if no counter ran for long enough.
    pub instructions: Option<u64>,
    /// Core cycles, scaled; `None` if no counter ran for long enough, or without a counter.
    pub cycles: Option<u64>,
    /// Shares of the classes; unknown without a counter, or if the counter ran for too little.
    pub mix: Mix,
    /// Share of the time for which the group with the least time counted; `None` if no figure was
    /// scaled. Counters are multiplexed or taken away.
    pub scaled: Option<Share>,
    /// Components of demand vectors beside the mix; unknown if not requested.
    pub extras: Extras,
}

/// Scales `count` from the time counted to the time due.
///
/// `None` if the counter was due and never counted; a thread that never ran has a known count of 0.
/// Rounds to nearest; saturates.
pub fn scaled(count: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    if running_ns == 0 {
        return (enabled_ns == 0).then_some(count);
    }
    if running_ns >= enabled_ns {
        return Some(count);
    }
    // The product can exceed 64 bits; half the divisor makes the division round to nearest.
    let product = u128::from(count) * u128::from(enabled_ns) + u128::from(running_ns / 2);
    Some(u64::try_from(product / u128::from(running_ns)).unwrap_or(u64::MAX))
}

/// Instructions after which a class count of 0 means a dead counter.
///
/// Chosen: a program cannot run a million instructions without a load, a store or a branch.
pub(super) const ENOUGH: u64 = 1_000_000;

/// Inverse of the least part of its time that a group needs to have counted to be scaled.
///
/// Chosen: no machine has more than twenty multiplexed groups, so less means that others hold the
/// counters. In an aarch64 guest whose counters were taken after 0.2 % of a loop, scaling gave a
/// fifth of its length.
const LEAST_PART: u64 = 20;

/// Totals of a thread on a PMU, from the readings of `groups` in order.
///
/// On a hybrid machine a thread spends only part of its time on the PMU's kind of core, and the
/// kernel's "enabled" time goes on elsewhere. So the time due comes from the readings: the running
/// times of multiplexed groups add up to the time on the PMU, unless all groups fit and run at the
/// same time. `alone` says that the PMU is the machine's only one.
pub fn totals(groups: &[EventGroup], readings: &[Reading], alone: bool) -> ThreadTotals {
    let mut totals = ThreadTotals::default();
    let due = due(readings, alone);
    totals.instructions = total(Role::Instructions, groups, readings, &due);
    totals.cycles = total(Role::Cycles, groups, readings, &due);
    let pairs = groups.iter().zip(readings);
    let known = pairs.filter(|(_, r)| r.running_ns > 0 && is_enough(r, due(r)));
    let known: Vec<(&EventGroup, &Reading)> = known.collect();
    totals.scaled = least(
        known
            .iter()
            .map(|(_, r)| Share::of(r.running_ns, due(r)).filter(|_| r.running_ns < due(r))),
    );
    for (group, reading) in known {
        totals.extras.add(group, reading, due(reading));
        for (class, base) in group.classes() {
            let whole = group.count_of(base, &reading.counts);
            let part = group.count_of(Role::Class(class), &reading.counts);
            if let (Some(whole), Some(part)) = (whole, part) {
                // A program can do without floating-point operations.
                let silent = part == 0 && whole >= ENOUGH && class != colocate_model::Class::Float;
                totals.mix.set(class, if silent { None } else { Share::of(part, whole) });
            }
        }
    }
    totals
}

/// Scaled count of `role`, from the first group with such an event.
fn total(
    role: Role,
    groups: &[EventGroup],
    readings: &[Reading],
    due: &impl Fn(&Reading) -> u64,
) -> Option<u64> {
    groups.iter().zip(readings).find_map(|(group, reading)| {
        let count = group.count_of(role, &reading.counts)?;
        let has_no_turn = reading.running_ns == 0 && reading.enabled_ns > 0;
        if has_no_turn || !is_enough(reading, due(reading)) {
            return None;
        }
        scaled(count, due(reading), reading.running_ns)
    })
}
/// Time for which a group of a PMU should have counted, in ns; see [`totals`].
pub(super) fn due(readings: &[Reading], alone: bool) -> impl Fn(&Reading) -> u64 + use<> {
    let together = readings.iter().all(|r| r.running_ns == r.enabled_ns);
    let on_pmu = readings.iter().map(|r| r.running_ns).sum::<u64>();
    let one = readings.len() == 1;
    move |reading| match (alone, together || one) {
        (true, _) => reading.enabled_ns,
        (false, true) => reading.running_ns,
        (false, false) => on_pmu,
    }
}

/// Whether a group due for `due_ns` counted for long enough to be scaled.
pub(super) fn is_enough(reading: &Reading, due_ns: u64) -> bool {
    reading.running_ns.saturating_mul(LEAST_PART) >= due_ns
}

/// Scaled count of `role` between two readings; `None` if counted for too little of the time.
pub(super) fn counted(
    role: Role,
    groups: &[EventGroup],
    between: &[Reading],
    alone: bool,
) -> Option<u64> {
    let due = due(between, alone);
    groups.iter().zip(between).find_map(|(group, reading)| {
        let count = group.count_of(role, &reading.counts)?;
        let enough = reading.running_ns > 0 && is_enough(reading, due(reading));
        enough.then(|| scaled(count, due(reading), reading.running_ns)).flatten()
    })
}

/// Least known part.
fn least(parts: impl Iterator<Item = Option<Share>>) -> Option<Share> {
    parts.flatten().min_by(|a, b| a.get().total_cmp(&b.get()))
}

/// Totals of a thread over several PMUs: counts add up, shares are weighted by instructions.
///
/// A class that a kind of core cannot count is unknown if the thread ran there, unless for less
/// than 1 % of its instructions.
pub fn over_pmus(parts: &[ThreadTotals]) -> ThreadTotals {
    let ran: Vec<&ThreadTotals> =
        parts.iter().filter(|t| t.instructions.is_some_and(|n| n > 0)).collect();
    let Some(first) = ran.first() else {
        return parts.first().copied().unwrap_or_default();
    };
    if ran.len() == 1 {
        return **first;
    }
    let instructions = sum_of(&ran, |totals| totals.instructions);
    let whole = instructions.unwrap_or(0) as f64;
    let mut mix = Mix::default();
    for class in colocate_model::Class::ALL {
        let mut weighted = 0.0;
        let mut known = 0.0;
        for part in &ran {
            let weight = part.instructions.unwrap_or(0) as f64;
            if let Some(share) = part.mix.get(class) {
                weighted += share.get() * weight;
                known += weight;
            }
        }
        let enough = known >= 0.99 * whole && known > 0.0;
        // Rounding can lead beyond 1.
        mix.set(class, enough.then(|| Share::new((weighted / known).min(1.0))).flatten());
    }
    let scaled = least(ran.iter().map(|t| t.scaled));
    let of_kinds = ran.iter().map(|t| (t.instructions.unwrap_or(0), t.extras));
    let extras = Extras::over_kinds(&of_kinds.collect::<Vec<_>>());
    let cycles = sum_of(&ran, |totals| totals.cycles);
    ThreadTotals { instructions, cycles, mix, scaled, extras }
}

/// Sum of a figure; `None` if unknown in any of the totals.
fn sum_of(all: &[&ThreadTotals], figure: fn(&ThreadTotals) -> Option<u64>) -> Option<u64> {
    all.iter().map(|totals| figure(totals)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::plan::{EventGroup, Role};
    use colocate_model::Class;

    fn reading(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> Reading {
        Reading { enabled_ns, running_ns, counts: counts.to_vec() }
    }

    fn one_group() -> Vec<EventGroup> {
        let roles = [
            Role::Instructions,
            Role::Cycles,
            Role::Class(Class::Branch),
            Role::Class(Class::Load),
        ];
        vec![EventGroup::of_roles(&roles)]
    }

    #[test]
    fn scaling_is_exact_and_never_invents() {
        // 30 counted in a third of the time: 90.
        assert_eq!(scaled(30, 9, 3), Some(90));
        // 1 of 2/3: 1.5 rounds to 2.
        assert_eq!(scaled(1, 3, 2), Some(2));
        assert_eq!(scaled(7, 5, 5), Some(7));
        // Due, but never counted: unknown, not 0.
        assert_eq!(scaled(0, 5, 0), None);
        // Asleep all the time: nothing was done.
        assert_eq!(scaled(0, 0, 0), Some(0));
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), Some(u64::MAX));
        // Kernels round the two times apart; a count is never scaled down.
        assert_eq!(scaled(10, 4, 5), Some(10));
    }

    #[test]
    fn shares_come_from_one_group() {
        let totals = totals(&one_group(), &[reading(10, 10, &[2_000, 1_000, 400, 600])], true);
        assert_eq!(totals.instructions, Some(2_000));
        assert_eq!(totals.cycles, Some(1_000));
        assert_eq!(totals.mix.branch, Share::new(0.2));
        assert_eq!(totals.mix.load, Share::new(0.3));
        assert_eq!(totals.mix.float, None);
        assert_eq!(totals.scaled, None);
    }

    #[test]
    fn multiplexed_groups_scale_totals_but_not_shares() {
        let groups = vec![
            EventGroup::of_roles(&[Role::Instructions, Role::Cycles, Role::Class(Class::Branch)]),
            EventGroup::of_roles(&[Role::Instructions, Role::Class(Class::Load)]),
        ];
        // Each counted half the time: 1,000 instructions seen of about 2,000.
        let readings = [reading(100, 50, &[1_000, 500, 100]), reading(100, 50, &[800, 400])];
        let totals = totals(&groups, &readings, true);
        assert_eq!(totals.instructions, Some(2_000));
        assert_eq!(totals.cycles, Some(1_000));
        assert_eq!(totals.mix.branch, Share::new(0.1));
        assert_eq!(totals.mix.load, Share::new(0.5));
        assert_eq!(totals.scaled, Share::new(0.5));
    }

    #[test]
    fn a_group_that_others_drove_out_early_is_unknown() {
        let ran = |running_ns| {
            totals(&one_group(), &[reading(1_000, running_ns, &[500, 400, 100, 200])], true)
        };
        assert_eq!(ran(49), ThreadTotals::default());
        assert_eq!((ran(50).instructions, ran(50).scaled), (Some(10_000), Share::new(0.05)));
        // Where another group counted for long enough, its instructions are used.
        let groups = vec![
            EventGroup::of_roles(&[Role::Instructions, Role::Cycles]),
            EventGroup::of_roles(&[Role::Instructions, Role::Class(Class::Load)]),
        ];
        let readings = [reading(1_000, 10, &[5, 5]), reading(1_000, 500, &[1_000, 100])];
        let totals = totals(&groups, &readings, true);
        assert_eq!((totals.instructions, totals.cycles), (Some(2_000), None));
        assert_eq!(totals.mix.load, Share::new(0.1));
    }

    #[test]
    fn a_group_that_never_ran_is_unknown() {
        let totals = totals(&one_group(), &[reading(10, 0, &[0, 0, 0, 0])], true);
        assert_eq!(totals, ThreadTotals::default());
    }

    #[test]
    fn a_class_that_is_never_seen_in_a_million_instructions_is_unknown() {
        let counts = [5_000_000, 1, 0, 100];
        let totals = totals(&one_group(), &[reading(10, 10, &counts)], true);
        assert_eq!(totals.mix.branch, None);
        assert!(totals.mix.load.is_some());
        // A short thread may really have none.
        let short = super::totals(&one_group(), &[reading(10, 10, &[50, 1, 0, 1])], true);
        assert_eq!(short.mix.branch, Some(Share::ZERO));
    }

    #[test]
    fn time_on_the_other_kind_of_core_is_not_scaled_up() {
        // 100 ns enabled, but only 40 of them on this kind of core; nothing took turns.
        let totals = totals(&one_group(), &[reading(100, 40, &[4_000, 2_000, 400, 400])], false);
        assert_eq!(totals.instructions, Some(4_000));
        assert_eq!(totals.scaled, None);
    }

    #[test]
    fn kinds_of_cores_add_up_weighted_by_instructions() {
        let fast = ThreadTotals {
            instructions: Some(3_000),
            cycles: Some(1_000),
            mix: Mix { branch: Share::new(0.2), float: Share::new(0.4), ..Mix::default() },
            ..ThreadTotals::default()
        };
        let slow = ThreadTotals {
            instructions: Some(1_000),
            cycles: Some(1_000),
            mix: Mix { branch: Share::new(0.6), ..Mix::default() },
            scaled: Share::new(0.25),
            ..ThreadTotals::default()
        };
        let both = over_pmus(&[fast, slow]);
        assert_eq!(both.instructions, Some(4_000));
        assert_eq!(both.cycles, Some(2_000));
        // (0.2 * 3000 + 0.6 * 1000) / 4000 = 0.3
        assert!((both.mix.branch.unwrap().get() - 0.3).abs() < 1e-12);
        assert_eq!(both.mix.float, None);
        assert_eq!(both.scaled, Share::new(0.25));
        // A thread that never was on the slow cores keeps what the fast ones know.
        assert_eq!(over_pmus(&[fast, ThreadTotals::default()]), fast);
        assert_eq!(over_pmus(&[]), ThreadTotals::default());
    }
}
