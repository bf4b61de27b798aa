//! Predicted overlap of a plan, beside the overlap of random placement and of the baseline.
//!
//! Only the overlap is stated, with its unit. The slowdown per clash depends on the machine and is
//! unknown before a measurement, so no slowdown is predicted.

use crate::places::UsableMachine;
use crate::plan::{Per, Task};
use colocate_machine::PuIdx;
use colocate_model::{UnitDemand, overlap};

/// Unit of [`demands`]: per cycle if the rate of every task is known. Amounts per instruction and
/// per cycle are not comparable, so a single unknown rate makes the unit "per instruction" for all
/// tasks.
pub(crate) fn unit(tasks: &[&Task]) -> Per {
    let known = !tasks.is_empty() && tasks.iter().all(|task| task.rate().is_some());
    if known { Per::Cycle } else { Per::PairOfInstructions }
}

/// Demand of each task in the unit of [`unit()`]; an unknown class is the mean of the known.
pub(crate) fn demands(tasks: &[&Task]) -> Vec<UnitDemand> {
    let assumed = overlap::mean_mix(tasks.iter().map(|task| &task.mix));
    let per = unit(tasks);
    let demands = tasks.iter().map(|task| {
        let of_an_instruction = UnitDemand::of(&task.mix, task.weight(), &assumed);
        match per {
            Per::PairOfInstructions => of_an_instruction,
            // The unit is per cycle only if every rate is known, so the default is not used.
            Per::Cycle => of_an_instruction.scaled(task.rate().unwrap_or(1.0)),
        }
    });
    demands.collect()
}

/// Demand of tasks that share a PU.
///
/// Only one task runs at a time. If the busy shares sum to more than 1, the demands are scaled
/// down: `Σ d(t) / max(1, Σ b(t))`.
pub(crate) fn taking_turns(tasks: impl Iterator<Item = (UnitDemand, f64)>) -> UnitDemand {
    let sum = tasks.fold((UnitDemand::NONE, 0.0), |sum, task| (sum.0 + task.0, sum.1 + task.1));
    sum.0.scaled(1.0 / sum.1.max(1.0))
}

/// Overlap between the PUs of a core, summed over the usable cores.
pub(crate) fn total_overlap(
    places: &UsableMachine<'_>,
    tasks: &[&Task],
    demands: &[UnitDemand],
    seats: &[PuIdx],
) -> f64 {
    let mut on_pu = vec![(UnitDemand::NONE, 0.0); places.machine.pus.len()];
    for ((task, demand), pu) in tasks.iter().zip(demands).zip(seats) {
        let sum = &mut on_pu[pu.idx()];
        *sum = (sum.0 + *demand, sum.1 + task.weight());
    }
    let of_cores = places.cores.iter().map(|core| {
        // The sums of a PU's tasks are scaled as if they were one task.
        within(core.pus.iter().map(|pu| taking_turns(std::iter::once(on_pu[pu.idx()]))))
    });
    of_cores.sum()
}

/// Overlap summed over all pairs of `demands`.
pub(crate) fn within(demands: impl IntoIterator<Item = UnitDemand>) -> f64 {
    let mut before = UnitDemand::NONE;
    let mut sum = 0.0;
    for demand in demands {
        sum += before.overlap(&demand);
        // Overlap is bilinear: the sum of all earlier demands replaces a loop over them.
        before += demand;
    }
    sum
}

/// Predicted overlap of a placement, one sentence; `None` if no mix is known.
pub(crate) fn sentence(
    places: &UsableMachine<'_>,
    tasks: &[&Task],
    seats: &[PuIdx],
) -> Option<String> {
    let unknown = tasks.iter().filter(|task| task.mix.is_unknown()).count();
    if unknown == tasks.len() {
        return None;
    }
    let demands = demands(tasks);
    let cores = places.cores.len() as f64;
    let mine = total_overlap(places, tasks, &demands, seats) / cores;
    // Round-robin in logical order, as the policy of this name.
    let baseline: Vec<PuIdx> = places.pus.iter().cycle().take(tasks.len()).copied().collect();
    let baseline = total_overlap(places, tasks, &demands, &baseline) / cores;
    let chance = by_chance(places, &demands, seats).map_or(String::new(), |overlap| {
        format!("{:.4} for the same places with partners drawn at random, ", overlap / cores)
    });
    let assumed = match unknown {
        0 => String::new(),
        n => format!("; {n} of {} mixes are not known and taken as average", tasks.len()),
    };
    Some(format!(
        "mean overlap of a core {mine:.4} unit clashes {}; {chance}{baseline:.4} for round-robin{assumed}",
        unit(tasks).words()
    ))
}

/// Mean overlap per core of random placement on the same PUs, minus the overlap of `seats`; `None`
/// if unknown or if tasks share a PU.
pub(crate) fn better_than_chance(
    places: &UsableMachine<'_>,
    tasks: &[&Task],
    seats: &[PuIdx],
) -> Option<f64> {
    let demands = demands(tasks);
    let by_chance = by_chance(places, &demands, seats)?;
    Some((by_chance - total_overlap(places, tasks, &demands, seats)) / places.cores.len() as f64)
}

/// Expected overlap of a random placement on the PUs of `seats`.
///
/// Any two PUs hold any two tasks with equal probability. The result is the number of pairs of used
/// siblings times the mean overlap of two tasks. `None` if tasks share a PU, or for fewer than two
/// tasks.
fn by_chance(places: &UsableMachine<'_>, demands: &[UnitDemand], seats: &[PuIdx]) -> Option<f64> {
    let mut used = vec![false; places.machine.pus.len()];
    for pu in seats {
        // Two tasks on one PU.
        if std::mem::replace(&mut used[pu.idx()], true) {
            return None;
        }
    }
    let n = demands.len() as f64;
    let in_use = places.cores.iter().map(|core| core.pus.iter().filter(|pu| used[pu.idx()]));
    let pairs: f64 =
        in_use.map(|pus| pus.count() as f64).map(|used| used * (used - 1.0) / 2.0).sum();
    (demands.len() > 1).then(|| pairs * within(demands.iter().copied()) / (n * (n - 1.0) / 2.0))
}

/// Arithmetic mean; of no values 0, not 0 / 0.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(crate) fn variance(values: &[f64]) -> f64 {
    let mean_value = mean(values);
    mean(&values.iter().map(|v| (v - mean_value).powi(2)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use expect_test::expect;

    /// Two cores, float 80 % and int 80 %: f·f = 0.32 a pair, i·i = 0.16, f·i = 0. Round-robin has
    /// (0.32 + 0.16) / 2 cores; at random a pair has (0.32 + 0.16) / 6.
    #[test]
    fn by_hand() {
        check(
            "round-robin",
            "core:2 pu:2",
            "AABB",
            "A f80, B i80",
            expect![[r#"
            [A A][B B]
            mean overlap of a core 0.2400 unit clashes per pair of instructions; 0.0800 for the same places with partners drawn at random, 0.2400 for round-robin
        "#]],
        );
        check(
            "scatter",
            "core:2 pu:2",
            "AABB",
            "A f80, B i80",
            expect![[r#"
            [A B][A B]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0800 for the same places with partners drawn at random, 0.2400 for round-robin
        "#]],
        );
    }

    #[test]
    fn says_what_is_assumed() {
        check(
            "scatter",
            "core:2 pu:2",
            "AABB",
            "A f80",
            expect![[r#"
            [A B][A B]
            mean overlap of a core 0.3200 unit clashes per pair of instructions; 0.3200 for the same places with partners drawn at random, 0.3200 for round-robin; 2 of 4 mixes are not known and taken as average
        "#]],
        );
        check(
            "scatter",
            "core:2 pu:2",
            "AABB",
            "",
            expect![[r#"
            [A B][A B]
        "#]],
        );
    }
}
