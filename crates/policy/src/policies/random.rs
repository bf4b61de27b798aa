//! `random`: drawn by a seeded generator.
//!
//! # Problem
//! A policy with evidence must beat a policy without.
//! # Approach
//! Draw a random order of the usable PUs. Each of the `P!` orders is equally likely.
//! # Terms
//! `P`: usable PUs, a count. *Seed*: a number; see [`SplitMix64`].
//! # Algorithm
//! Shuffle the PUs; task `i` takes place `i`. When all PUs are taken, shuffle again for the next
//! `P`. Where jobs may wait: each quantum jobs are drawn as far as there are PUs, then a PU for
//! each thread.
//! # Properties
//! - **Repeatable**: a seed gives the same plan with every version. -> test `repeatable`
//! - **Balanced**: no PU gets two tasks more than another. -> test `balanced` of the crate's
//!   whole-plan tests

use super::{Placement, PuChoice, planned};
use crate::places::UsableMachine;
use crate::plan::{DefaultPlacement, PlaceReason};
use crate::policy::by_rule;
use crate::rng::SplitMix64;
use crate::row::{Cadence, PolicyRow, Purpose, Setting};
use crate::schedule::allocate::seated;
use crate::schedule::{self, Allocated, Quantum, Selected, select};
use colocate_evidence::SourceSet;

pub static ROW: PolicyRow = PolicyRow {
    name: "random",
    purpose: Purpose::Baseline,
    summary: "draws PUs, and where jobs wait also jobs",
    source: "a baseline",
    settings: &[Setting::count("seed", 0, 0, "seed of the generator").shown()],
    cadence: Cadence::Either,
    waits: true,
    make: |values, _| {
        let seed = values.long("seed");
        let mut rng = SplitMix64::new(seed);
        by_rule(SourceSet::NONE, move |evidence| {
            // Draws nothing, so that control quanta do not shift the sequence.
            if evidence.is_control {
                evidence.empty_plan()
            } else if evidence.may_wait {
                evidence.plan(&choose(&mut rng, &evidence.now))
            } else {
                planned(evidence, |places, tasks| place(places, tasks.len(), seed))
            }
        })
    },
    ..PolicyRow::ONCE
};

/// Draws jobs for the quantum, and PUs for their threads.
fn choose(rng: &mut SplitMix64, now: &Quantum<'_>) -> Vec<schedule::SelectedJob> {
    let mut order: Vec<usize> = (0..now.queue.len()).collect();
    rng.shuffle(&mut order);
    let contexts = now.pus.len();
    let drawn = select::fitting(order, contexts, |at| now.queue[at].width(contexts));
    let chosen = drawn.map(|at| (at, Selected::Drawn)).collect();
    let mut pus = now.pus.to_vec();
    rng.shuffle(&mut pus);
    seated(now, chosen, |threads| pus[..threads.len()].to_vec(), |_| Allocated::Next)
}

fn place(places: &UsableMachine<'_>, tasks: usize, seed: u64) -> Placement {
    let mut rng = SplitMix64::new(seed);
    let mut order = places.pus.to_vec();
    rng.shuffle(&mut order);
    let default_placement = DefaultPlacement::FillInOrder { pus: places.nrs(&order) };
    let mut choices = Vec::with_capacity(tasks);
    while choices.len() < tasks {
        let left = tasks - choices.len();
        let drawn = order.iter().take(left);
        choices
            .extend(drawn.map(|&pu| PuChoice { pu: Some(pu), why: PlaceReason::Drawn { seed } }));
        rng.shuffle(&mut order);
    }
    Placement { choices, default_placement }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::{chosen, queue};
    use crate::testing::{check, machine};
    use expect_test::expect;

    #[test]
    fn repeatable() {
        check(
            "random:seed=7",
            "core:4 pu:2",
            "ABCDEFGH",
            "",
            expect![[r#"
            [F A][D G][B C][E H]
        "#]],
        );
        check(
            "random:seed=8",
            "core:4 pu:2",
            "ABCDEFGH",
            "",
            expect![[r#"
            [C F][D A][E B][H G]
        "#]],
        );
    }

    /// Ten jobs on four PUs run about equally often, and a seed repeats the sequence.
    #[test]
    fn random_is_fair_and_repeatable() {
        let machine = machine("core:4");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 10]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let run = || {
            let mut rng = SplitMix64::new(5);
            let mut times = [0; 10];
            for _ in 0..1000 {
                for (job, _) in chosen(&choose(&mut rng, &now)) {
                    times[job as usize] += 1;
                }
            }
            times
        };
        let times = run();
        assert_eq!(times, run());
        assert_eq!(times.iter().sum::<u32>(), 4000);
        assert!(times.iter().all(|times| (330..=470).contains(times)), "{times:?}");
    }
}
