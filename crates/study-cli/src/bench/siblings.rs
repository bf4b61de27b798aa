//! Measurement of shared execution units, independent of the topology.
//!
//! # Problem
//! Hypervisors often hide or invent SMT siblings, so the topology cannot be believed.
//!
//! # Approach
//! A loop that saturates a unit takes twice as long beside itself on a sibling, and as long as
//! alone elsewhere. Effects on all loops (clock rate, a hypervisor that takes time away) are
//! divided out: each time is taken in *steps*, the time of a loop that waits for its own loads and
//! leaves the units idle, measured under the same conditions.
//!
//! # Terms
//! - *cost* of a probe on a PU: its time over the meter's time there, without unit.
//! - *slowdown* of a PU: its cost in company over its cost alone; of a pair: the geometric mean of
//!   both sides.
//!
//! # Algorithm
//! 1. Up to [`ALL_PAIRS_UP_TO`] PUs, every pair is tested. Beyond, whole groups run at once, first
//!    all PUs, then random halves: a PU that is not slowed has no sibling in that group. What is
//!    left, and every pair that the topology claims, is tested pair by pair.
//! 2. Every repetition measures each PU alone and each pair, in random order.
//! 3. A pair shares units if the [`CONFIDENCE`] interval of one probe's slowdown lies above
//!    [`THRESHOLD`], and none if those of all probes lie below. Pairs in between are repeated, up
//!    to [`MOST_ROUNDS`] times, and then called unclear.
//!
//! # Properties
//! - **Finds siblings**: exactly the sharing pairs of a noisy machine.   -> `finds_siblings`
//! - **Ignores claims**: the topology does not change the findings.      -> `ignores_claims`
//! - **Ignores the clock**: half the clock rate in company is no sharing. -> `ignores_the_clock`
//! - **Admits**: without undisturbed time, it says that it cannot decide. -> `admits`
//! - **Short**: on 64 PUs at most 1,500 measurements, 30 s.               -> `short`

use colocate_cli::measure::beside::{Bench, Quality};
use colocate_cli::measure::harness::{Measurement, by_cell, rounds};
use colocate_figures::stats::{Estimate, Random, geometric_interval, geometric_mean};
use serde::Serialize;
use smt_bench::measure::Job;
use smt_bench::{Kernel, ListSize, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Loops that saturate one unit: a multiplier with one operation a cycle and a divider with one in
/// several cycles. Few programs use either much, so an unrelated program on the sibling hardly
/// changes the time alone. Two probes, because some cores share only their floating-point units.
pub const PROBES: [Kernel; 2] = [Kernel::IntMul, Kernel::FpDiv];

/// Loop that a sibling does not slow: one load in flight, in a list that fits every L1 twice.
const METER: Workload = Workload {
    kernel: Kernel::LoadDep,
    list: match ListSize::from_kib(4) {
        Some(list) => list,
        None => unreachable!(),
    },
};

/// √2, the geometric middle between 1 (nothing shared) and 2 (a saturated unit, shared by halves).
pub const THRESHOLD: f64 = std::f64::consts::SQRT_2;

/// Confidence of a verdict. Chosen above the common 95 %, because many pairs are tested and each is
/// evaluated again after every repetition.
const CONFIDENCE: f64 = 0.999;

/// Most PUs of which every pair is tested (28 pairs). Chosen: about 6 s at 20 ms a measurement.
const ALL_PAIRS_UP_TO: usize = 8;

/// Most repetitions of a pair that stays unclear. Chosen.
pub const MOST_ROUNDS: u32 = 12;

/// Most groups that are tested. Chosen: about 8 s at 20 ms a measurement. A random half holds both
/// PUs of a pair in one case of four. On a two-way machine, three in four of these pairs have a PU
/// that is not slowed: 3 in 16 are cleared, so 40 groups leave less than one false pair of 2,016.
const MOST_GROUPS: usize = 128;

/// Groups without a result after which the test of groups ends.
const LOST_GROUPS: usize = 3;

type Pair = (u32, u32);
/// Cost of each probe.
type Costs = [f64; PROBES.len()];

/// Parameters of a search.
pub struct Question<'a> {
    /// PUs to test, in ascending order.
    pub pus: &'a [u32],
    /// Sets of PUs that share a core by the topology; `None` if the topology is unknown.
    pub claimed: Option<Vec<Vec<u32>>>,
    /// Least repetitions of a pair, at least 3.
    pub repeat: u32,
    /// Seed of the order of measurements.
    pub seed: u64,
}

/// Verdict on a pair of PUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The PUs share execution units.
    Shared,
    /// The PUs share no execution units.
    Separate,
    /// The measurements do not decide.
    Unclear,
}

/// A pair of PUs and its measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The two PUs, by the kernel's numbers.
    pub pus: Pair,
    /// Whether the PUs share a core by the topology; `None` if the topology is unknown.
    pub claimed: Option<bool>,
    /// Slowdown beside each other by probe, in the order of the report's `probes`, with its 99.9 %
    /// interval from three rounds on; `None` if no time could be measured.
    pub slowdown: [Option<Estimate>; PROBES.len()],
    /// Verdict of the measurements.
    pub verdict: Verdict,
}

/// Answer for all PUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Some PUs share execution units.
    Shared,
    /// No two PUs share execution units.
    None,
    /// Other load leaves too little undisturbed time to decide.
    TooBusy,
    /// Fewer than two PUs.
    OnePu,
}

/// Result of the search (docs/schemas/bench-siblings.json).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub version: u32,
    pub pus: Vec<u32>,
    pub probes: [&'static str; PROBES.len()],
    pub threshold: f64,
    pub answer: Answer,
    pub sets: Vec<Vec<u32>>,
    pub claimed: Option<Vec<Vec<u32>>>,
    pub agrees: Option<bool>,
    pub pairs: Vec<Finding>,
    pub groups: usize,
    pub untested: usize,
    pub quality: Quality,
}

/// Finds the PUs that share execution units on `bench`.
pub fn find(bench: &mut impl Bench, question: &Question) -> anyhow::Result<Report> {
    let mut random = Random::new(question.seed);
    let mut search = Search {
        bench,
        quality: Quality::default(),
        alone: BTreeMap::new(),
        samples: BTreeMap::new(),
    };
    let claimed: BTreeSet<Pair> =
        question.claimed.iter().flatten().flat_map(|s| pairs_of(s)).collect();
    let mut suspects: BTreeSet<Pair> = pairs_of(question.pus).collect();
    let mut groups = 0;
    if question.pus.len() > ALL_PAIRS_UP_TO {
        groups = search.clear(question.pus, &mut suspects, &mut random)?;
    }
    // With more suspects than this, the tests of groups have failed.
    let cleared = suspects.len() <= 4 * question.pus.len().max(ALL_PAIRS_UP_TO);
    let nominated = if cleared { suspects.clone() } else { BTreeSet::new() };
    let tested: BTreeSet<Pair> = nominated.union(&claimed).copied().collect();
    search.test(&tested, question.repeat, &mut random)?;
    let pairs = tested.iter().map(|&pus| {
        let slowdown = search.slowdown(pus);
        let claimed = question.claimed.as_ref().map(|_| claimed.contains(&pus));
        Finding { pus, claimed, verdict: verdict(&slowdown), slowdown }
    });
    let pairs: Vec<Finding> = pairs.collect();
    let untested = suspects.difference(&tested).count();
    Ok(concluded(question, pairs, groups, untested, search.quality))
}

fn concluded(
    question: &Question,
    pairs: Vec<Finding>,
    groups: usize,
    untested: usize,
    quality: Quality,
) -> Report {
    let shared = pairs.iter().filter(|finding| finding.verdict == Verdict::Shared);
    let sets = joined(shared.map(|finding| finding.pus));
    let unclear = untested > 0 || pairs.iter().any(|pair| pair.verdict == Verdict::Unclear);
    let answer = match question.pus.len() {
        0 | 1 => Answer::OnePu,
        _ if !sets.is_empty() => Answer::Shared,
        _ if unclear => Answer::TooBusy,
        _ => Answer::None,
    };
    let sure = !unclear && answer != Answer::OnePu;
    Report {
        version: 1,
        pus: question.pus.to_vec(),
        probes: PROBES.map(Kernel::name),
        threshold: THRESHOLD,
        answer,
        claimed: question.claimed.clone(),
        agrees: question.claimed.as_ref().filter(|_| sure).map(|claimed| *claimed == sets),
        sets,
        pairs,
        groups,
        untested,
        quality,
    }
}

/// All pairs of an ascending list.
fn pairs_of(pus: &[u32]) -> impl Iterator<Item = Pair> {
    (0..pus.len()).flat_map(move |place| pus[place + 1..].iter().map(move |&b| (pus[place], b)))
}

/// Sets connected by pairs, each ascending, in ascending order of their first PU.
fn joined(pairs: impl Iterator<Item = Pair>) -> Vec<Vec<u32>> {
    let mut sets: Vec<BTreeSet<u32>> = Vec::new();
    for (a, b) in pairs {
        let touched = sets.extract_if(.., |set| set.contains(&a) || set.contains(&b));
        let mut joined: BTreeSet<u32> = touched.flatten().collect();
        joined.extend([a, b]);
        sets.push(joined);
    }
    sets.sort();
    sets.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// Verdict of a pair's measurements.
fn verdict(slowdown: &[Option<Estimate>]) -> Verdict {
    let known: Option<Vec<_>> = slowdown.iter().map(|s| s.and_then(|s| s.interval)).collect();
    match known {
        Some(all) if all.iter().any(|interval| interval.low > THRESHOLD) => Verdict::Shared,
        Some(all) if all.iter().all(|interval| interval.high < THRESHOLD) => Verdict::Separate,
        _ => Verdict::Unclear,
    }
}

struct Search<'a, B> {
    bench: &'a mut B,
    quality: Quality,
    /// Latest costs of each PU alone.
    alone: BTreeMap<u32, Costs>,
    /// Slowdowns by pair, one for each usable round.
    samples: BTreeMap<Pair, Vec<Costs>>,
}

impl<B: Bench> Measurement for Search<'_, B> {
    /// PUs that all work.
    type Cell = Vec<u32>;
    /// Costs on each PU, or `None` without undisturbed time.
    type Sample = Option<Vec<Costs>>;
    const UNIT: &'static str = "groups of PUs";

    fn measure(&mut self, pus: &Vec<u32>) -> anyhow::Result<Option<Self::Sample>> {
        let Some(meter) = self.times(METER, pus)? else { return Ok(Some(None)) };
        let mut costs = vec![[0.0; PROBES.len()]; pus.len()];
        for (probe, kernel) in PROBES.into_iter().enumerate() {
            let Some(times) = self.times(kernel.into(), pus)? else { return Ok(Some(None)) };
            for ((cost, time), step) in costs.iter_mut().zip(times).zip(&meter) {
                cost[probe] = time / step;
            }
        }
        Ok(Some(Some(costs)))
    }
}

impl<B: Bench> Search<'_, B> {
    fn times(&mut self, workload: Workload, pus: &[u32]) -> anyhow::Result<Option<Vec<f64>>> {
        let jobs: Vec<Job> = pus.iter().map(|&cpu| Job { workload, cpu }).collect();
        let Some(sample) = self.bench.measure(&jobs)? else { return Ok(None) };
        self.quality.note(&sample);
        Ok(sample.iteration_ns)
    }

    /// Tests pairs until each is clear or has had its rounds.
    fn test(
        &mut self,
        pairs: &BTreeSet<Pair>,
        repeat: u32,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        for round in 0..MOST_ROUNDS.max(repeat) {
            let open = pairs.iter().copied().filter(|pair| {
                round < repeat || verdict(&self.slowdown(*pair)) == Verdict::Unclear
            });
            let open: Vec<Pair> = open.collect();
            if open.is_empty() {
                break;
            }
            self.round(&open, random)?;
        }
        Ok(())
    }

    /// Measures every PU of `pairs` alone and every pair once.
    fn round(&mut self, pairs: &[Pair], random: &mut Random) -> anyhow::Result<()> {
        let pus: BTreeSet<u32> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
        let alone = pus.iter().map(|&pu| vec![pu]);
        let cells: Vec<Vec<u32>> = alone.chain(pairs.iter().map(|&(a, b)| vec![a, b])).collect();
        let taken = rounds(self, &cells, 1, random, true)?;
        let costs: Vec<_> =
            by_cell(taken, cells.len()).into_iter().map(|mut once| once.pop().flatten()).collect();
        let (alone, together) = costs.split_at(pus.len());
        for (&pu, costs) in pus.iter().zip(alone) {
            self.alone.extend(costs.as_ref().map(|costs| (pu, costs[0])));
        }
        for (&(a, b), costs) in pairs.iter().zip(together) {
            // If this round lost a PU's costs alone, the costs of an earlier round serve.
            let alone = (self.alone.get(&a), self.alone.get(&b));
            if let (Some(costs), (Some(of_a), Some(of_b))) = (costs, alone) {
                let slowdowns = std::array::from_fn(|probe| {
                    (costs[0][probe] / of_a[probe] * (costs[1][probe] / of_b[probe])).sqrt()
                });
                self.samples.entry((a, b)).or_default().push(slowdowns);
            }
        }
        Ok(())
    }

    /// Slowdown of a pair by probe.
    fn slowdown(&self, pus: Pair) -> [Option<Estimate>; PROBES.len()] {
        let samples = self.samples.get(&pus).map_or(&[][..], Vec::as_slice);
        // Fewer than three rounds make no interval worth the name.
        let enough = samples.len() >= 3;
        std::array::from_fn(|probe| {
            let values: Vec<f64> = samples.iter().map(|costs| costs[probe]).collect();
            let interval = geometric_interval(&values, CONFIDENCE).filter(|_| enough);
            geometric_mean(&values).map(|value| Estimate { value, interval })
        })
    }

    /// Removes pairs from the suspects by tests of groups; returns the number of tested groups.
    fn clear(
        &mut self,
        pus: &[u32],
        suspects: &mut BTreeSet<Pair>,
        random: &mut Random,
    ) -> anyhow::Result<usize> {
        for &pu in pus {
            let costs = self.measure(&vec![pu])?.flatten();
            self.alone.extend(costs.map(|costs| (pu, costs[0])));
        }
        let mut groups = 0;
        let mut lost = 0;
        while groups < MOST_GROUPS && lost < LOST_GROUPS && suspects.len() > pus.len() {
            // The first group is all PUs, the others are random halves.
            let drawn = pus.iter().copied().filter(|_| groups == 0 || random.below(2) == 0);
            let group: Vec<u32> = drawn.collect();
            groups += 1;
            match self.measure(&group)?.flatten() {
                None => lost += 1,
                Some(costs) => clear(suspects, &group, &costs, &self.alone),
            }
        }
        Ok(groups)
    }
}

/// Removes the PUs that `group` did not slow, and their pairs within it, from the suspects.
fn clear(
    suspects: &mut BTreeSet<Pair>,
    group: &[u32],
    costs: &[Costs],
    alone: &BTreeMap<u32, Costs>,
) {
    for (&pu, cost) in group.iter().zip(costs) {
        let Some(before) = alone.get(&pu) else { continue };
        if cost.iter().zip(before).all(|(now, before)| now / before < THRESHOLD) {
            for &other in group {
                suspects.remove(&(pu.min(other), pu.max(other)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_cli::measure::testing::Pretend;
    use colocate_figures::stats::Interval;
    use proptest::prelude::*;

    fn ask<'a>(pus: &'a [u32], claimed: &[Vec<u32>]) -> Question<'a> {
        Question { pus, claimed: Some(claimed.to_vec()), repeat: 3, seed: 1 }
    }

    /// PU n and PU n + `cores` share a core, as Linux numbers them on most x86 machines.
    fn two_way(cores: u32) -> Vec<Vec<u32>> {
        (0..cores).map(|first| vec![first, first + cores]).collect()
    }

    fn all(pus: u32) -> Vec<u32> {
        (0..pus).collect()
    }

    /// 1.9 times slower beside a sibling, every figure up to 10 % wrong.
    #[test]
    fn finds_siblings() {
        for cores in [1, 2, 4, 5, 16] {
            let mut machine =
                Pretend { saturated: 1.9, noise: 0.1, ..Pretend::quiet(two_way(cores)) };
            let pus = all(2 * cores);
            let report = find(&mut machine, &ask(&pus, &two_way(cores))).unwrap();
            assert_eq!(report.sets, two_way(cores));
            assert_eq!((report.answer, report.agrees), (Answer::Shared, Some(true)));
        }
    }

    #[test]
    fn finds_four_way_siblings() {
        let cores: Vec<Vec<u32>> = (0..10).map(|core| (4 * core..4 * core + 4).collect()).collect();
        let report = find(&mut Pretend::quiet(cores.clone()), &ask(&all(40), &[])).unwrap();
        assert_eq!(report.sets, cores);
    }

    #[test]
    fn ignores_claims() {
        let hidden = find(&mut Pretend::quiet(two_way(2)), &ask(&all(4), &[])).unwrap();
        assert_eq!((hidden.sets, hidden.agrees), (two_way(2), Some(false)));
        let invented = find(&mut Pretend::quiet(vec![]), &ask(&all(16), &two_way(8))).unwrap();
        assert_eq!((invented.answer, invented.agrees), (Answer::None, Some(false)));
        assert_eq!(invented.pairs.len(), 8);
        let swapped = vec![vec![0, 1], vec![2, 3]];
        let report = find(&mut Pretend::quiet(two_way(2)), &ask(&all(4), &swapped)).unwrap();
        assert_eq!((report.sets, report.agrees), (two_way(2), Some(false)));
    }

    #[test]
    fn ignores_the_clock() {
        for pus in [2, 4, 64] {
            let mut machine = Pretend { turbo: 2.0, noise: 0.05, ..Pretend::quiet(vec![]) };
            let report = find(&mut machine, &ask(&all(pus), &[])).unwrap();
            assert_eq!((report.answer, report.agrees), (Answer::None, Some(true)), "{pus}");
        }
    }

    /// Bulldozer's modules share the floating-point units only.
    #[test]
    fn one_shared_unit_is_enough() {
        let modules = vec![vec![0, 1], vec![2, 3]];
        let mut machine = Pretend { modules: modules.clone(), ..Pretend::quiet(vec![]) };
        let report = find(&mut machine, &ask(&all(4), &[])).unwrap();
        assert_eq!(report.sets, modules);
        let [int, float] = report.pairs[0].slowdown.map(Option::unwrap);
        assert!(int.interval.unwrap().high < THRESHOLD && float.interval.unwrap().low > THRESHOLD);
    }

    #[test]
    fn admits() {
        for pus in [2, 64] {
            let mut machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
            let report = find(&mut machine, &ask(&all(pus), &[])).unwrap();
            assert_eq!((report.answer, report.agrees), (Answer::TooBusy, None), "{pus}");
            assert_eq!(report.quality.measured, report.quality.discarded);
        }
    }

    /// Figures that are wrong by up to a factor of 3 either way prove nothing.
    #[test]
    fn noise_is_never_taken_for_sharing() {
        for seed in 0..20 {
            let mut machine =
                Pretend { noise: 2.0, random: Random::new(seed), ..Pretend::quiet(vec![]) };
            let report = find(&mut machine, &ask(&[0, 1], &[])).unwrap();
            assert_ne!(report.answer, Answer::Shared, "{seed}: {:?}", report.pairs);
        }
    }

    #[test]
    fn lost_measurements_are_made_up_for() {
        let mut machine = Pretend { lost_one_in: 8, ..Pretend::quiet(two_way(2)) };
        let report = find(&mut machine, &ask(&all(4), &two_way(2))).unwrap();
        assert_eq!(report.sets, two_way(2));
        assert!(report.quality.discarded > 0);
    }

    #[test]
    fn short() {
        for (siblings, most) in [(vec![], 400), (two_way(32), 1_500)] {
            let mut machine = Pretend::quiet(siblings.clone());
            let report = find(&mut machine, &ask(&all(64), &siblings)).unwrap();
            assert_eq!(report.sets, siblings);
            assert!(report.quality.measured <= most, "{:?}", report.quality);
        }
    }

    #[test]
    fn one_pu_has_no_sibling() {
        let report = find(&mut Pretend::quiet(vec![]), &ask(&[5], &[])).unwrap();
        assert_eq!((report.answer, report.quality.measured), (Answer::OnePu, 0));
    }

    #[test]
    fn same_seed_same_report() {
        let told = || {
            let report = find(&mut Pretend::quiet(two_way(8)), &ask(&all(16), &[])).unwrap();
            serde_json::to_string(&report).unwrap()
        };
        assert_eq!(told(), told());
    }

    /// Both probes' intervals decide: (low, high) of each.
    #[test]
    fn verdicts_traced_by_hand() {
        let estimate = |low: f64, high: f64| {
            Some(Estimate { value: low, interval: Some(Interval { low, high }) })
        };
        let lone = Some(Estimate { value: 1.0, interval: None });
        for (slowdown, expected) in [
            ([estimate(0.99, 1.02), estimate(0.9, 1.41)], Verdict::Separate),
            ([estimate(0.99, 1.02), estimate(1.42, 2.1)], Verdict::Shared),
            ([estimate(1.9, 2.0), estimate(0.5, 3.0)], Verdict::Shared),
            ([estimate(0.99, 1.02), estimate(0.9, 1.42)], Verdict::Unclear),
            ([estimate(0.99, 1.02), lone], Verdict::Unclear),
            ([estimate(0.99, 1.02), None], Verdict::Unclear),
        ] {
            assert_eq!(verdict(&slowdown), expected, "{slowdown:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Any partition of up to 24 PUs into cores of one to four, in any numbering.
        #[test]
        fn any_machine(order in Just(all(24)).prop_shuffle(), widths in prop::collection::vec(1..5_usize, 1..8)) {
            let mut left = order.into_iter();
            let mut cores: Vec<Vec<u32>> = widths.iter().map(|&w| left.by_ref().take(w).collect()).collect();
            cores.iter_mut().for_each(|core: &mut Vec<u32>| core.sort_unstable());
            cores.retain(|core| core.len() > 1);
            cores.sort();
            let report = find(&mut Pretend::quiet(cores.clone()), &ask(&all(24), &[])).unwrap();
            prop_assert_eq!(report.sets, cores);
        }

        #[test]
        fn joined_sets_are_disjoint_and_complete(pairs in prop::collection::vec((0..20_u32, 20..40_u32), 0..30)) {
            let sets = joined(pairs.iter().copied());
            let members: Vec<u32> = sets.iter().flatten().copied().collect();
            let unique: BTreeSet<u32> = members.iter().copied().collect();
            prop_assert_eq!(members.len(), unique.len());
            for (a, b) in pairs {
                prop_assert!(sets.iter().any(|set| set.contains(&a) && set.contains(&b)));
            }
        }
    }
}
