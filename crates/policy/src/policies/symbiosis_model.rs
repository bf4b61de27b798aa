//! `symbiosis-model`: least slowdown between the tasks of a core, by the contention model.
//!
//! # Problem
//! The overlap of two tasks ranks pairs, but does not predict slowdowns: dependencies, the front
//! end, caches and stalls matter, too.
//! # Approach
//! Predict the slowdown of tasks that share a core of this machine ([`colocate_model::system`]),
//! and choose the groups whose losses add up to the least: pairs by minimum-weight perfect
//! matching; for more siblings pairs, then pairs of pairs (Jiang et al., PACT 2008), each by the
//! prediction for the whole group.
//! # Terms
//! - *Slowdown*: rate alone on the core over rate beside the others; at least about 1.
//! - *Loss* of a group: the sum over its tasks of slowdown − 1, each weighted by how busy the task
//!   is and how busy the others are on average (unknown: always busy). No unit.
//! - *Item*, *room*: as in [`mix`].
//! # Algorithm
//! 1. At most as many tasks as cores: each has a core of its own.
//! 2. Items as in `mix`. The loss of a group of items is that of the first tasks of each.
//! 3. Match as in `mix`, by losses. Compare with the groups that `mix` and `instruction` make, by
//!    the same losses, and keep the best. Cores are chosen as in `mix`.
//!
//! The prediction is for one core alone on the machine, of the kind that most usable PUs are
//! siblings on. How much better that is than `mix` and `instruction` where LLVM's scheduler
//! decides: docs/method/validation.md. `O(n²)` predictions of pairs of tasks that differ.
//! # Properties
//! - **Never worse** than `mix` and `instruction` by its own losses, where each task has a PU.
//!   -> test `never_worse_by_its_own_losses`
//! - **Optimal pairs** by brute force over all of them. -> test `optimal_pairs`
//! - **Without figures** of the machine's speed it is `mix`. -> test `without_figures_it_is_mix`

use super::instruction::partners;
use super::mix::{self, Items};
use super::{MIX, Placement, PuChoice, own_cores, planned, spread_default};
use crate::judge::SlowdownPredictor;
use crate::matching;
use crate::places::UsableMachine;
use crate::plan::{PlaceReason, Task};
use crate::policy::by_rule;
use crate::row::{PolicyRow, Prior};
use colocate_machine::Performance;

pub static ROW: PolicyRow = PolicyRow {
    name: "symbiosis-model",
    summary: "groups tasks that slow each other down least, by the model",
    source: "ours, after Jiang et al., PACT 2008",
    prior: &[Prior::Speeds],
    make: |_, known| {
        let performance = known.performance.cloned();
        by_rule(MIX, move |it| planned(it, |p, tasks| place(p, performance.as_ref(), tasks)))
    },
    ..PolicyRow::ONCE
};

fn place(
    places: &UsableMachine<'_>,
    performance: Option<&Performance>,
    tasks: &[&Task],
) -> Placement {
    if tasks.len() <= places.cores.len() {
        return own_cores(places, tasks);
    }
    let judge =
        performance.and_then(|performance| SlowdownPredictor::new(places, performance, tasks));
    let Some(mut judge) = judge else { return mix::place(places, tasks) };
    let items = Items::new(places, tasks);
    let (on_pu, mut choices) = items.seated(best(&items, &mut judge));
    explain(&items, &on_pu, &mut judge, &mut choices);
    Placement { choices, default_placement: spread_default(places) }
}

/// Groups with the least loss, of those by matching, `mix` and `instruction`.
fn best(items: &Items<'_>, judge: &mut SlowdownPredictor<'_>) -> Vec<Vec<usize>> {
    let mut found = vec![items.groups(), items.dealt()];
    let cores = items.places.cores.len();
    let width = items.places.width().max(2);
    // Matching of more than pairs makes groups of one size.
    if items.places.is_even() || width == 2 {
        let count = items.items.len();
        found.push(matching::in_groups(count, cores, width, |group| loss(group, items, judge)));
    }
    let totals: Vec<f64> = found
        .iter()
        .map(|groups| groups.iter().map(|group| loss(group, items, judge)).sum())
        .collect();
    let least = (0..found.len()).min_by(|&a, &b| totals[a].total_cmp(&totals[b]));
    // Never empty: two are found in any case.
    found.swap_remove(least.unwrap_or(0))
}

/// Loss of a group of items, each counted by its first task.
fn loss(group: &[usize], items: &Items<'_>, judge: &mut SlowdownPredictor<'_>) -> f64 {
    judge.loss(&group.iter().map(|&item| items.items[item][0]).collect::<Vec<_>>())
}

fn explain(
    items: &Items<'_>,
    on_pu: &[Vec<usize>],
    judge: &mut SlowdownPredictor<'_>,
    choices: &mut [PuChoice],
) {
    let partners = partners(items.places, items.tasks, choices);
    for core in &items.places.cores {
        // An item counts by its first task, as in `loss`.
        let sitting: Vec<usize> =
            core.pus.iter().filter_map(|pu| on_pu[pu.idx()].first().copied()).collect();
        let loss = judge.loss(&sitting);
        for &task in core.pus.iter().flat_map(|pu| &on_pu[pu.idx()]) {
            choices[task].why = PlaceReason::Modelled { loss, partners: partners[task].clone() };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::judge::SlowdownPredictor;
    use crate::places::UsableMachine;
    use crate::rng::SplitMix64;
    use crate::testing::random_tasks;
    use crate::{Knowledge, Plan, PolicySpec, Task};
    use colocate_machine::{Machine, Performance, PuIdx, described};
    use proptest::prelude::*;

    fn plan_on(
        policy: &str,
        machine: &Machine,
        performance: Option<&Performance>,
        usable: &[PuIdx],
        tasks: &[Task],
    ) -> Plan {
        let known = Knowledge { performance, ..Knowledge::default() };
        PolicySpec::named(policy).plan(&known, machine, usable, tasks)
    }

    fn known(name: &str) -> (Machine, Performance) {
        let (_, text) = described::MACHINES.into_iter().find(|(known, _)| *known == name).unwrap();
        let machine = described::from_toml(text).unwrap().machine;
        (machine, described::performance(text).unwrap().unwrap())
    }

    /// The first cores of a machine.
    fn cores(machine: &Machine, count: usize) -> Vec<PuIdx> {
        machine.cores[..count].iter().flat_map(|core| core.pus.clone()).collect()
    }

    /// The losses of all cores that `policy` makes of `tasks`.
    fn loss(
        policy: &str,
        (machine, performance): &(Machine, Performance),
        usable: &[PuIdx],
        tasks: &[Task],
    ) -> f64 {
        let made = plan_on(policy, machine, Some(performance), usable, tasks);
        let places = UsableMachine::new(machine, usable);
        let tasks: Vec<&Task> = tasks.iter().collect();
        let mut judge = SlowdownPredictor::new(&places, performance, &tasks).unwrap();
        let mut on_core = vec![Vec::new(); machine.cores.len()];
        for (task, decision) in made.decisions.iter().enumerate() {
            let pu = machine.pu_by_os(decision.place.pu().unwrap()).unwrap();
            on_core[machine.core_of(pu).idx()].push(task);
        }
        on_core.iter().map(|group| judge.loss(group)).sum()
    }

    /// The least loss of all ways to make pairs of `left`.
    fn by_brute_force(left: &[usize], judge: &mut SlowdownPredictor<'_>) -> f64 {
        let Some((&first, rest)) = left.split_first() else { return 0.0 };
        let mut least = f64::INFINITY;
        for at in 0..rest.len() {
            let mut others = rest.to_vec();
            let pair = [first, others.remove(at)];
            least = least.min(judge.loss(&pair) + by_brute_force(&others, judge));
        }
        least
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn optimal_pairs(pairs in 2_usize..=4, seed: u64) {
            let epyc = known("epyc-7301");
            let usable = cores(&epyc.0, pairs);
            let tasks = random_tasks(&mut SplitMix64::new(seed), 2 * pairs);
            let places = UsableMachine::new(&epyc.0, &usable);
            let all: Vec<&Task> = tasks.iter().collect();
            let mut judge = SlowdownPredictor::new(&places, &epyc.1, &all).unwrap();
            let least = by_brute_force(&(0..2 * pairs).collect::<Vec<_>>(), &mut judge);
            let found = loss("symbiosis-model", &epyc, &usable, &tasks);
            prop_assert!((found - least).abs() < 1e-7, "found {found}, least {least}");
        }

        #[test]
        fn never_worse_by_its_own_losses(count in 3_usize..=16, seed: u64) {
            for (name, used) in [("epyc-7301", 8), ("power8-10c", 2)] {
                let machine = known(name);
                let usable = cores(&machine.0, used);
                let tasks = random_tasks(&mut SplitMix64::new(seed), count.min(usable.len()));
                let mine = loss("symbiosis-model", &machine, &usable, &tasks);
                for other in ["mix", "instruction"] {
                    let theirs = loss(other, &machine, &usable, &tasks);
                    prop_assert!(mine <= theirs + 1e-7, "{name}: {mine}, {other} {theirs}");
                }
            }
        }
    }

    #[test]
    fn without_figures_it_is_mix() {
        let (machine, _) = known("epyc-7301");
        let usable = cores(&machine, 4);
        let tasks = random_tasks(&mut SplitMix64::new(1), 8);
        let mine = plan_on("symbiosis-model", &machine, None, &usable, &tasks);
        let mix = plan_on("mix", &machine, None, &usable, &tasks);
        assert_eq!(mine.decisions, mix.decisions);
    }
}
