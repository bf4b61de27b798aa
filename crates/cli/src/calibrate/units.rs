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
//! 1. Every round measures each PU alone and each pair, in random order.
//! 2. A pair shares units if the [`SURE`] interval of one probe's slowdown lies above
//!    [`THRESHOLD`], and none if those of all probes lie below. Pairs in between are repeated, up
//!    to [`MOST_ROUNDS`] times, and then called unclear.
//!
//! # Properties
//! - **Finds siblings**: exactly the sharing pairs of a noisy machine.   -> `finds_siblings`
//! - **Ignores the clock**: half the clock rate in company is no sharing. -> `ignores_the_clock`
//! - **Admits**: without undisturbed time, it says that it cannot decide. -> `admits`

use crate::measure::beside::KernelBench;
use crate::measure::harness::{Measurement, by_cell, rounds};
use colocate_figures::stats::{Estimate, Interval, geometric_interval, geometric_mean};
use colocate_machine::calibrated::{CONFIDENCE as SURE, Calibration, Figure, Quantity};
use colocate_machine::{Machine, PuNr, PuSet};
use colocate_model::rng::SplitMix64;
use smt_bench::measure::PinnedKernel;
use smt_bench::{Kernel, KernelSpec, ListSize};
use std::collections::{BTreeMap, BTreeSet};

/// Loops that saturate one unit: a multiplier with one operation a cycle and a divider with one in
/// several cycles. Few programs use either much, so an unrelated program on the sibling hardly
/// changes the time alone. Two probes, because some cores share only their floating-point units.
const PROBES: [Kernel; 2] = [Kernel::IntMul, Kernel::FpDiv];

/// Loop that a sibling does not slow: one load in flight, in a list that fits every L1 twice.
const METER: KernelSpec = KernelSpec {
    kernel: Kernel::LoadDep,
    list: match ListSize::from_kib(4) {
        Some(list) => list,
        // Decided at compile time: 4 KiB is a valid size.
        None => unreachable!(),
    },
};

/// √2, the geometric middle between 1 (nothing shared) and 2 (a saturated unit, shared by halves).
const THRESHOLD: f64 = std::f64::consts::SQRT_2;

/// Least rounds of a pair: fewer make no interval worth the name.
const LEAST_ROUNDS: u32 = 3;

/// Most rounds of a pair that stays unclear. Chosen.
const MOST_ROUNDS: u32 = 12;

/// Most PUs of which every pair is tested (28 pairs).
const ALL_PAIRS_UP_TO: usize = 8;

/// Most pairs tested of more PUs. Chosen: 96 cells, some 9 s.
const MOST_PAIRS: usize = 32;

/// Two PUs, the lower number first.
type PuPair = (u32, u32);
/// Cost of each probe.
type ProbeCosts = [f64; PROBES.len()];
/// Slowdown of a pair by each probe; `None` without a valid sample.
type Slowdown = [Option<Estimate>; PROBES.len()];

/// Pairs to test: all of few PUs; of more, pairs `alike` that share a core by a report or by
/// passing cache lines.
pub fn pairs(pus: &[u32], mut alike: Vec<[u32; 2]>, random: &mut SplitMix64) -> BTreeSet<PuPair> {
    if pus.len() <= ALL_PAIRS_UP_TO {
        let all = (0..pus.len()).flat_map(|at| pus[at + 1..].iter().map(move |&b| (pus[at], b)));
        return all.collect();
    }
    random.shuffle(&mut alike);
    alike.into_iter().take(MOST_PAIRS).map(|[a, b]| (a.min(b), a.max(b))).collect()
}

/// Slowdown of each of `pairs` on `bench`, as a figure; pairs without a valid sample are missing.
pub fn figures(
    bench: &mut impl KernelBench,
    pairs: &BTreeSet<PuPair>,
    unix_s: u64,
    random: &mut SplitMix64,
) -> anyhow::Result<Vec<Figure>> {
    let mut search = UnitSearch { bench, alone: BTreeMap::new(), samples: BTreeMap::new() };
    search.test(pairs, random)?;
    let found = pairs.iter().filter_map(|&(pu, other)| {
        let what = Quantity::SharedUnits { pu: PuNr(pu), other: PuNr(other) };
        let (estimate, interval) = decisive(&search.slowdown((pu, other)))?;
        let source = format!(
            "{} and {} beside themselves, in steps of load-dep; the loop that is slowed most, 99.9 %",
            PROBES[0], PROBES[1]
        );
        Some(super::figures::of(what, estimate.value, interval, unix_s, source))
    });
    Ok(found.collect())
}

/// Slowdown that decides on a pair: one above [`THRESHOLD`], else the farthest; `None` if unknown.
fn decisive(slowdown: &Slowdown) -> Option<(Estimate, Interval)> {
    let known = slowdown.iter().map(|one| one.and_then(|one| Some((one, one.interval?))));
    let known: Vec<(Estimate, Interval)> = known.collect::<Option<_>>()?;
    let above = known.iter().find(|(_, interval)| interval.low > THRESHOLD);
    let farthest = known.iter().max_by(|(_, a), (_, b)| a.high.total_cmp(&b.high));
    above.or(farthest).copied()
}

/// Verdict on a pair of PUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairVerdict {
    Shared,
    Separate,
    Unclear,
}

impl PairVerdict {
    fn of(low: f64, high: f64) -> Self {
        if low > THRESHOLD {
            Self::Shared
        } else if high < THRESHOLD {
            Self::Separate
        } else {
            Self::Unclear
        }
    }
}

/// Adds a line where the figures and the cores of `machine` differ, and one on undecided pairs.
pub fn compare(machine: &Machine, to: &mut Calibration) {
    let mut shared: Vec<PuSet> = Vec::new();
    let mut differing = false;
    let mut unclear = Vec::new();
    for figure in &to.figures {
        let Quantity::SharedUnits { pu, other } = figure.what else { continue };
        let one_core =
            machine.core_sets().iter().any(|core| core.contains(pu) && core.contains(other));
        match PairVerdict::of(figure.low, figure.high) {
            PairVerdict::Shared => {
                join(&mut shared, pu, other);
                differing |= !one_core;
            }
            PairVerdict::Separate => differing |= one_core,
            PairVerdict::Unclear => unclear.push(format!("{} and {}", pu.0, other.0)),
        }
    }
    if differing {
        let cores = machine.core_sets().into_iter().filter(|core| core.len() > 1).collect();
        to.disagreements.push(format!(
            "PUs that share execution units by measurement: {}; PUs of one core: {}",
            listed(shared),
            listed(cores)
        ));
    }
    if !unclear.is_empty() {
        to.absent.push(format!(
            "whether execution units are shared by PUs {}: other load left too little undisturbed time",
            unclear.join(", ")
        ));
    }
}

/// Adds a pair to connected sets.
fn join(sets: &mut Vec<PuSet>, a: PuNr, b: PuNr) {
    // All sets that the pair connects become one.
    let touched = sets.extract_if(.., |set| set.contains(a) || set.contains(b));
    let joined: PuSet =
        touched.flat_map(|set| set.iter().collect::<Vec<_>>()).chain([a, b]).collect();
    sets.push(joined);
}

/// `0-1 | 2-3`, or `none`.
fn listed(mut sets: Vec<PuSet>) -> String {
    sets.sort_by_key(|set| set.iter().next());
    let lists: Vec<String> = sets.iter().map(ToString::to_string).collect();
    if lists.is_empty() { "none".to_owned() } else { lists.join(" | ") }
}

struct UnitSearch<'a, B> {
    bench: &'a mut B,
    /// Latest costs of each PU alone.
    alone: BTreeMap<u32, ProbeCosts>,
    /// Slowdowns by pair, one for each usable round.
    samples: BTreeMap<PuPair, Vec<ProbeCosts>>,
}

impl<B: KernelBench> Measurement for UnitSearch<'_, B> {
    /// PUs that all work.
    type Cell = Vec<u32>;
    /// Costs on each PU, or `None` without undisturbed time.
    type Sample = Option<Vec<ProbeCosts>>;
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

impl<B: KernelBench> UnitSearch<'_, B> {
    fn times(&mut self, workload: KernelSpec, pus: &[u32]) -> anyhow::Result<Option<Vec<f64>>> {
        let jobs: Vec<PinnedKernel> =
            pus.iter().map(|&cpu| PinnedKernel { workload, cpu }).collect();
        let Some(sample) = self.bench.measure(&jobs)? else { return Ok(None) };
        Ok(sample.iteration_ns)
    }

    /// Tests pairs until each is clear or has had its rounds.
    fn test(&mut self, pairs: &BTreeSet<PuPair>, random: &mut SplitMix64) -> anyhow::Result<()> {
        for round in 0..MOST_ROUNDS {
            let open = pairs.iter().copied().filter(|pair| {
                round < LEAST_ROUNDS || verdict(&self.slowdown(*pair)) == PairVerdict::Unclear
            });
            let open: Vec<PuPair> = open.collect();
            if open.is_empty() {
                break;
            }
            self.round(&open, random)?;
        }
        Ok(())
    }

    /// Measures every PU of `pairs` alone and every pair once.
    fn round(&mut self, pairs: &[PuPair], random: &mut SplitMix64) -> anyhow::Result<()> {
        let pus: BTreeSet<u32> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
        let alone = pus.iter().map(|&pu| vec![pu]);
        let cells: Vec<Vec<u32>> = alone.chain(pairs.iter().map(|&(a, b)| vec![a, b])).collect();
        let taken = rounds(self, &cells, 1, random, true)?;
        let costs: Vec<_> =
            by_cell(taken, cells.len()).into_iter().map(|mut once| once.pop().flatten()).collect();
        let (alone, together) = costs.split_at(pus.len());
        for (&pu, costs) in pus.iter().zip(alone) {
            // A cell alone has one PU.
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
    fn slowdown(&self, pus: PuPair) -> Slowdown {
        let samples = self.samples.get(&pus).map_or(&[][..], Vec::as_slice);
        let enough = samples.len() >= LEAST_ROUNDS as usize;
        std::array::from_fn(|probe| {
            let values: Vec<f64> = samples.iter().map(|costs| costs[probe]).collect();
            let interval = geometric_interval(&values, SURE).filter(|_| enough);
            geometric_mean(&values).map(|value| Estimate { value, interval })
        })
    }
}

/// Verdict of a pair's measurements.
fn verdict(slowdown: &Slowdown) -> PairVerdict {
    decisive(slowdown)
        .map_or(PairVerdict::Unclear, |(_, found)| PairVerdict::of(found.low, found.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Pretend;
    use colocate_machine::read;

    fn all(pus: u32) -> BTreeSet<PuPair> {
        let pus: Vec<u32> = (0..pus).collect();
        pairs(&pus, Vec::new(), &mut SplitMix64::new(1))
    }

    /// Verdicts on all pairs of `pus` PUs; a pair without a figure is unclear.
    fn found(machine: &mut Pretend, pus: u32) -> BTreeMap<PuPair, PairVerdict> {
        let pairs = all(pus);
        let figures = figures(machine, &pairs, 0, &mut SplitMix64::new(1)).unwrap();
        let mut verdicts: BTreeMap<PuPair, PairVerdict> =
            pairs.into_iter().map(|pair| (pair, PairVerdict::Unclear)).collect();
        for figure in figures {
            let Quantity::SharedUnits { pu, other } = figure.what else { panic!("{figure:?}") };
            verdicts.insert((pu.0, other.0), PairVerdict::of(figure.low, figure.high));
        }
        verdicts
    }

    fn shared(verdicts: &BTreeMap<PuPair, PairVerdict>) -> Vec<PuPair> {
        let shared = verdicts.iter().filter(|(_, verdict)| **verdict == PairVerdict::Shared);
        shared.map(|(pair, _)| *pair).collect()
    }

    /// PU n and PU n + `cores` share a core, as Linux numbers them on most x86 machines.
    fn two_way(cores: u32) -> Vec<Vec<u32>> {
        (0..cores).map(|first| vec![first, first + cores]).collect()
    }

    /// 1.9 times slower beside a sibling, every figure up to 10 % wrong.
    #[test]
    fn finds_siblings() {
        for cores in [1, 2, 4] {
            let mut machine =
                Pretend { saturated: 1.9, noise: 0.1, ..Pretend::quiet(two_way(cores)) };
            let found = found(&mut machine, 2 * cores);
            let expected: Vec<PuPair> = (0..cores).map(|first| (first, first + cores)).collect();
            assert_eq!(shared(&found), expected);
            assert!(found.values().all(|verdict| *verdict != PairVerdict::Unclear), "{found:?}");
        }
    }

    #[test]
    fn ignores_the_clock() {
        for pus in [2, 4, 8] {
            let mut machine = Pretend { turbo: 2.0, noise: 0.05, ..Pretend::quiet(vec![]) };
            let found = found(&mut machine, pus);
            assert!(found.values().all(|verdict| *verdict == PairVerdict::Separate), "{found:?}");
        }
    }

    /// Bulldozer's modules share the floating-point units only.
    #[test]
    fn one_shared_unit_is_enough() {
        let modules = vec![vec![0, 1], vec![2, 3]];
        let mut machine = Pretend { modules, ..Pretend::quiet(vec![]) };
        assert_eq!(shared(&found(&mut machine, 4)), [(0, 1), (2, 3)]);
    }

    #[test]
    fn admits() {
        let mut machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
        assert!(found(&mut machine, 2).values().all(|verdict| *verdict == PairVerdict::Unclear));
    }

    /// Figures that are wrong by up to a factor of 3 either way prove nothing.
    #[test]
    fn noise_is_never_taken_for_sharing() {
        for seed in 0..20 {
            let mut machine =
                Pretend { noise: 2.0, random: SplitMix64::new(seed), ..Pretend::quiet(vec![]) };
            assert_eq!(shared(&found(&mut machine, 2)), [], "{seed}");
        }
    }

    #[test]
    fn lost_measurements_are_made_up_for() {
        let mut machine = Pretend { lost_one_in: 8, ..Pretend::quiet(two_way(2)) };
        assert_eq!(shared(&found(&mut machine, 4)), [(0, 2), (1, 3)]);
    }

    #[test]
    fn of_many_pus_only_pairs_of_one_core_are_tested() {
        let pus: Vec<u32> = (0..128).collect();
        let alike: Vec<[u32; 2]> = (0..64).map(|first| [first + 64, first]).collect();
        let pairs = pairs(&pus, alike, &mut SplitMix64::new(1));
        assert_eq!(pairs.len(), MOST_PAIRS);
        assert!(pairs.iter().all(|(a, b)| a + 64 == *b), "{pairs:?}");
    }

    /// Both probes' intervals decide: (low, high) of each.
    #[test]
    fn verdicts_traced_by_hand() {
        let estimate = |low: f64, high: f64| {
            Some(Estimate { value: low, interval: Some(Interval { low, high }) })
        };
        let lone = Some(Estimate { value: 1.0, interval: None });
        for (slowdown, expected) in [
            ([estimate(0.99, 1.02), estimate(0.9, 1.41)], PairVerdict::Separate),
            ([estimate(0.99, 1.02), estimate(1.42, 2.1)], PairVerdict::Shared),
            ([estimate(1.9, 2.0), estimate(0.5, 3.0)], PairVerdict::Shared),
            ([estimate(0.99, 1.02), estimate(0.9, 1.42)], PairVerdict::Unclear),
            ([estimate(0.99, 1.02), lone], PairVerdict::Unclear),
            ([estimate(0.99, 1.02), None], PairVerdict::Unclear),
        ] {
            assert_eq!(verdict(&slowdown), expected, "{slowdown:?}");
        }
    }

    /// Hidden and invented siblings are a line; agreement is none.
    #[test]
    fn differences_to_the_cores_are_a_line() {
        let lines = |machine: &str, pus: [[(f64, f64); 2]; 1]| {
            let [[near, far]] = pus;
            let figure = |other, (low, high): (f64, f64)| {
                let what = Quantity::SharedUnits { pu: PuNr(0), other: PuNr(other) };
                let source = String::new();
                Figure { unit: what.unit(), what, value: low, low, high, unix_s: 0, source }
            };
            let figures = vec![figure(1, near), figure(2, far)];
            let mut found = Calibration { figures, ..Calibration::default() };
            compare(&read::open(machine).unwrap(), &mut found);
            (found.disagreements, found.absent)
        };
        let siblings = [[(1.8, 2.0), (0.9, 1.1)]];
        assert_eq!(lines("synthetic:core:2 pu:2", siblings), (vec![], vec![]));
        let line = "PUs that share execution units by measurement: 0-1; PUs of one core: none";
        assert_eq!(lines("synthetic:core:4 pu:1", siblings).0, [line]);
        let (differing, absent) = lines("synthetic:core:2 pu:2", [[(0.9, 1.1), (0.9, 1.9)]]);
        let line =
            "PUs that share execution units by measurement: none; PUs of one core: 0-1 | 2-3";
        assert_eq!(differing, [line]);
        assert!(absent[0].starts_with("whether execution units are shared by PUs 0 and 2: "));
    }
}
