//! `random`: drawn by a seeded generator.
//!
//! # Problem
//! A policy that looks at what tasks do must beat one that looks at nothing.
//! # Approach
//! Draw a random order of the usable PUs. Each of the `P!` orders is equally likely.
//! # Terms
//! `P`: usable PUs, a count. *Seed*: a number; see [`SplitMix64`].
//! # Algorithm
//! Shuffle the PUs; task `i` takes place `i`. When all PUs are taken, shuffle again for the next `P`.
//! Where jobs may wait: each quantum jobs are drawn as far as there are PUs, then a PU for each thread.
//! # Properties
//! - **Repeatable**: a seed gives the same plan with every version. -> test `repeatable`
//! - **Balanced**: no PU gets two tasks more than another. -> test `balanced` of the crate's
//!   whole-plan tests

use super::{Choice, Placement, planned};
use crate::evidence::Evidence;
use crate::places::Places;
use crate::plan::{DefaultPlacement, Plan, Why};
use crate::policy::Policy;
use crate::rng::SplitMix64;
use crate::row::{Cadence, Kind, Preset, Row, Setting, Shown};
use crate::schedule::allocate::{choices, threads_of};
use crate::schedule::{self, Allocated, Quantum, Selected};
use crate::source::SourceSet;

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "random",
    summary: "draws PUs, and where jobs wait also jobs",
    source: "a baseline",
    settings: &[Setting {
        name: "seed",
        kind: Kind::Count(0),
        default: Preset::Shown(Shown::Count(0)),
        meaning: "seed of the generator",
    }],
    needs: SourceSet::NONE,
    prior: &[],
    cadence: Cadence::Either,
    waits: true,
    make: |values, _| Box::new(Random::new(values.long("seed"))),
};

/// The policy.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    rng: SplitMix64,
}

impl Random {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, rng: SplitMix64::new(seed) }
    }

    /// Which threads run in this quantum, and where.
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<schedule::Choice> {
        let mut order: Vec<usize> = (0..now.queue.len()).collect();
        self.rng.shuffle(&mut order);
        let mut left = now.pus.len();
        let mut chosen = Vec::new();
        for at in order {
            let width = now.queue[at].width(now.pus.len());
            if width <= left {
                left -= width;
                chosen.push((at, Selected::Drawn));
            }
        }
        let mut pus = now.pus.to_vec();
        self.rng.shuffle(&mut pus);
        let threads = threads_of(now.queue, &chosen, pus.len()).len();
        choices(now, chosen, &pus[..threads], |_| Allocated::Next)
    }
}

impl Policy for Random {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        if evidence.is_control {
            return evidence.empty_plan();
        }
        if evidence.may_wait {
            return evidence.plan(&self.choose(&evidence.now));
        }
        planned(evidence, |places, tasks| place(places, tasks.len(), self.seed))
    }
}

pub(super) fn place(places: &Places<'_>, tasks: usize, seed: u64) -> Placement {
    let mut rng = SplitMix64::new(seed);
    let mut order = places.pus().to_vec();
    rng.shuffle(&mut order);
    let default_placement = DefaultPlacement::FillInOrder { pus: places.nrs(&order) };
    let mut choices = Vec::with_capacity(tasks);
    while choices.len() < tasks {
        let left = tasks - choices.len();
        let drawn = order.iter().take(left);
        choices.extend(drawn.map(|&pu| Choice { pu: Some(pu), why: Why::Drawn { seed } }));
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

    /// Of ten jobs on four PUs, each runs about as often, and a seed repeats itself.
    #[test]
    fn random_is_fair_and_repeatable() {
        let machine = machine("core:4");
        let pus: Vec<_> = machine.all_pus().collect();
        let queue = queue(&[1.0; 10]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let run = || {
            let mut random = Random::new(5);
            let mut times = [0; 10];
            for _ in 0..1000 {
                for (job, _) in chosen(&random.choose(&now)) {
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
