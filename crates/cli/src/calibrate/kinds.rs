//! Speeds and kinds of cores from rates of work, PU by PU and round by round.
//!
//! A round's rates are taken relative to their geometric mean, so what is slow or fast for a whole
//! round is in none of them; a core's rate is the geometric mean of those of its PUs. Values are
//! geometric means over the rounds, with Student's t on their logarithms for the ranges.

use super::figures::{CellSamples, visit_rates};
use colocate_figures::stats::{geometric_interval, geometric_mean};
use colocate_machine::calibrated::{
    CONFIDENCE, MeasuredKind, PuSpeed, Reported, Speed, disagreements, kinds_of, with_kinds,
};
use colocate_machine::{Machine, PuNr, PuSet};

/// Replaces the kinds of cores of `machine` by those that `visits` to `pus` show. Returns the
/// differences to what is `reported` of the PUs, one line each.
pub fn measured(
    machine: &mut Machine,
    pus: &[u32],
    visits: &[CellSamples],
    reported: Vec<Reported>,
) -> Vec<String> {
    let numbers: Vec<PuNr> = pus.iter().map(|&pu| PuNr(pu)).collect();
    let rates: Vec<Vec<f64>> = visits.iter().map(visit_rates).collect();
    let Some(found) = speeds(&machine.core_sets(), &numbers, &rates) else { return Vec::new() };
    if let Some(replaced) = with_kinds(machine, &found.kinds) {
        *machine = replaced;
    }
    let pus = numbers.into_iter().zip(found.pus).zip(reported);
    let pus = pus.map(|((pu, speed), reported)| PuSpeed { pu, speed, reported });
    disagreements(&pus.collect::<Vec<_>>(), &found.kinds)
}

/// Speeds of PUs and kinds of cores, relative to the fastest core.
#[derive(Clone, Debug, PartialEq)]
struct MeasuredSpeeds {
    /// PUs, in the order of the input.
    pus: Vec<Speed>,
    /// Kinds of cores, slowest first.
    kinds: Vec<MeasuredKind>,
}

/// Speeds of `cores` from `rates` of `pus`, PU by PU and round by round, in any unit and above 0.
/// `None` with fewer than three rounds, or with a PU in none of `cores`.
fn speeds(cores: &[PuSet], pus: &[PuNr], rates: &[Vec<f64>]) -> Option<MeasuredSpeeds> {
    if pus.iter().any(|&pu| !cores.iter().any(|core| core.contains(pu))) {
        return None;
    }
    let rates = relative(rates)?;
    let measured: PuSet = pus.iter().copied().collect();
    let sets: Vec<PuSet> = cores.iter().map(|core| core.intersection(&measured)).collect();
    let sets: Vec<PuSet> = sets.into_iter().filter(|core| !core.is_empty()).collect();
    let of_cores = sets.iter().map(|core| {
        let within = pus.iter().zip(&rates).filter(|(pu, _)| core.contains(**pu));
        speed(&means(&within.map(|(_, rates)| rates.as_slice()).collect::<Vec<_>>())?)
    });
    let of_cores = of_cores.collect::<Option<Vec<Speed>>>()?;
    let fastest = of_cores.iter().map(|speed| speed.value).fold(0.0, f64::max);
    let of_cores: Vec<Speed> = of_cores.into_iter().map(|speed| speed.over(fastest)).collect();
    let of_pus = rates.iter().map(|rates| Some(speed(rates)?.over(fastest)));
    Some(MeasuredSpeeds { pus: of_pus.collect::<Option<_>>()?, kinds: kinds(&sets, &of_cores)? })
}

/// Rates relative to the mean of their round; `None` with fewer than three rounds.
fn relative(rates: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let means = means(&rates.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let relative = rates
        .iter()
        .map(|rates| rates.iter().zip(&means).map(|(rate, mean)| rate / mean).collect());
    (means.len() > 2).then(|| relative.collect())
}

/// Geometric mean of several PUs, round by round.
fn means(rates: &[&[f64]]) -> Option<Vec<f64>> {
    let rounds = rates.iter().map(|rates| rates.len()).min()?;
    (0..rounds)
        .map(|round| geometric_mean(&rates.iter().map(|rates| rates[round]).collect::<Vec<_>>()))
        .collect()
}

/// Mean speed over the rounds, with its range.
fn speed(rates: &[f64]) -> Option<Speed> {
    let range = geometric_interval(rates, CONFIDENCE)?;
    let value = geometric_mean(rates)?;
    // With equal rates the ends of the range may be off by a last digit.
    Some(Speed { value, low: range.low.min(value), high: range.high.max(value) })
}

/// The kinds of cores with these PUs and speeds, slowest first.
fn kinds(sets: &[PuSet], speeds: &[Speed]) -> Option<Vec<MeasuredKind>> {
    let of_core = kinds_of(speeds);
    let last = *of_core.iter().max()?;
    let kinds = (0..=last).map(|kind| {
        let within = speeds.iter().zip(&of_core).filter(|(_, of)| **of == kind);
        let values: Vec<f64> = within.clone().map(|(speed, _)| speed.value).collect();
        let speed = Speed {
            value: geometric_mean(&values)?,
            low: within.clone().map(|(speed, _)| speed.low).fold(f64::INFINITY, f64::min),
            high: within.map(|(speed, _)| speed.high).fold(0.0, f64::max),
        };
        let members = sets.iter().zip(&of_core).filter(|(_, of)| **of == kind);
        Some(MeasuredKind { speed, pus: members.flat_map(|(set, _)| set.iter()).collect() })
    });
    let mut kinds = kinds.collect::<Option<Vec<_>>>()?;
    let fastest = kinds.last()?.speed.value;
    // The mean of the fastest kind may be below 1, its fastest core.
    for kind in &mut kinds {
        kind.speed = kind.speed.over(fastest);
    }
    Some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_model::rng::SplitMix64;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sets(lists: &[&str]) -> Vec<PuSet> {
        lists.iter().map(|list| PuSet::parse_list(list).unwrap()).collect()
    }

    fn numbers(count: usize) -> Vec<PuNr> {
        (0..count).map(PuNr::new).collect()
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "expected {expected}, found {found}");
    }

    /// In the second round both PUs are half as fast, in the third one twice.
    #[test]
    fn traced_by_hand() {
        let rates = [vec![100.0, 50.0, 200.0], vec![50.0, 25.0, 100.0]];
        let found = speeds(&sets(&["0", "1"]), &numbers(2), &rates).unwrap();
        // The whole round was slow, not a PU, so nothing is uncertain.
        for (speed, expected) in found.pus.iter().zip([1.0, 0.5]) {
            close(speed.value, expected);
            close(speed.low, expected);
            close(speed.high, expected);
        }
        let kinds: Vec<String> = found.kinds.iter().map(|kind| kind.pus.to_string()).collect();
        assert_eq!(kinds, ["1", "0"]);
        close(found.kinds[0].speed.value, 0.5);
        close(found.kinds[1].speed.value, 1.0);
    }

    #[test]
    fn a_core_is_the_mean_of_its_pus() {
        let rates = [90.0, 40.0, 40.0, 10.0].map(|rate| vec![rate; 3]);
        let found = speeds(&sets(&["0,2", "1,3"]), &numbers(4), &rates).unwrap();
        // √(90 · 40) = 60 and √(40 · 10) = 20.
        let kinds: Vec<String> = found
            .kinds
            .iter()
            .map(|kind| format!("{} {:.3}", kind.pus, kind.speed.value))
            .collect();
        assert_eq!(kinds, ["1,3 0.333", "0,2 1.000"]);
        close(found.pus[0].value, 1.5);
    }

    #[test]
    fn cores_that_were_not_measured_are_of_no_kind() {
        let rates = [vec![9.0; 3], vec![9.0; 3]];
        let found = speeds(&sets(&["0-1", "2-3", "4-5"]), &[PuNr(1), PuNr(2)], &rates).unwrap();
        assert_eq!(found.kinds.len(), 1);
        assert_eq!(found.kinds[0].pus.to_string(), "1-2");
    }

    #[test]
    fn what_cannot_be_said_is_none() {
        let rates = [vec![9.0; 3], vec![9.0; 3]];
        assert_eq!(speeds(&sets(&["0", "1"]), &[PuNr(0), PuNr(3)], &rates), None);
        assert_eq!(speeds(&sets(&["0"]), &numbers(1), &[vec![9.0; 2]]), None);
    }

    /// Rates of cores with these speeds, each wrong by up to `noise`, and every round by up to a
    /// half.
    fn noisy(speeds: &[f64], noise: f64, rounds: usize, random: &mut SplitMix64) -> Vec<Vec<f64>> {
        let mut unit = || f64::from(u32::try_from(random.below(20_001)).unwrap()) / 10_000.0 - 1.0;
        let drift: Vec<f64> = (0..rounds).map(|_| 1.0 + 0.5 * unit()).collect();
        let mut rates = Vec::new();
        for speed in speeds {
            rates.push(drift.iter().map(|drift| speed * drift * (1.0 + noise * unit())).collect());
        }
        rates
    }

    fn cores(count: usize) -> Vec<PuSet> {
        numbers(count).into_iter().map(|pu| std::iter::once(pu).collect()).collect()
    }

    /// Of 400 quiet and busy machines with alike cores, how many come apart. The seed is fixed.
    #[test]
    fn alike_cores_come_out_as_one_kind() {
        let mut random = SplitMix64::new(6);
        let (counts, noises) = ([2, 3, 4, 8, 16, 64], [0.002, 0.02, 0.1, 0.5]);
        let mut apart = 0;
        let mut tried = BTreeSet::new();
        for machine in 0..400 {
            // Every count with every noise: 24 pairs.
            let (a, b) = (machine % counts.len(), machine / counts.len() % noises.len());
            tried.insert((a, b));
            let (count, noise) = (counts[a], noises[b]);
            let rates = noisy(&vec![1.0; count], noise, 15, &mut random);
            let found = speeds(&cores(count), &numbers(count), &rates).unwrap();
            apart += usize::from(found.kinds.len() > 1);
        }
        assert_eq!((apart, tried.len()), (0, 24), "of 400 machines, of 24 sorts");
    }

    proptest! {
        /// Two kinds that are well apart are found where the noise is small, and their ratio with
        /// them.
        #[test]
        fn kinds_are_found(
            slow in 0.2..0.85_f64,
            which in prop::collection::vec(any::<bool>(), 2..24),
            noise in 0.0..0.02_f64,
            seed: u64,
        ) {
            let wanted: Vec<f64> = which.iter().map(|&fast| if fast { 1.0 } else { slow }).collect();
            let rates = noisy(&wanted, noise, 15, &mut SplitMix64::new(seed));
            let found = speeds(&cores(wanted.len()), &numbers(wanted.len()), &rates).unwrap();
            let both = which.contains(&true) && which.contains(&false);
            prop_assert_eq!(found.kinds.len(), 1 + usize::from(both));
            if both {
                let kind = &found.kinds[0];
                prop_assert!((kind.speed.value / slow - 1.0).abs() < 0.02, "{:?}", kind.speed);
                for (index, fast) in which.iter().enumerate() {
                    prop_assert_eq!(kind.pus.contains(PuNr::new(index)), !fast);
                }
            }
        }
    }
}
