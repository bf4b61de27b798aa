//! From times of visits to speeds and kinds of cores.

use colocate_machine::measured::{CONFIDENCE, MeasuredKind, PuSpeed, Reported, Speed, kinds_of};
use colocate_machine::{Hertz, PuNr, PuSet};
use colocate_study::stats::{geometric_interval, geometric_mean, median};
use smt_bench::speed::Visit;

/// What was measured of all PUs.
pub struct Measured {
    /// In the order in which PUs were given.
    pub pus: Vec<PuSpeed>,
    /// Slowest first.
    pub kinds: Vec<MeasuredKind>,
}

/// What `visits` of `pus`, PU by PU and round by round, say of `cores`. `None` if a PU was not visited three times, or
/// is in none of `cores`.
///
/// A round's rates are taken relative to their geometric mean, so what is slow or fast for a whole round is in none
/// of them; a core's rate is the geometric mean of those of its PUs. Values are geometric means over the rounds, with
/// Student's t on their logarithms for the ranges.
pub fn of(
    cores: &[PuSet],
    pus: &[PuNr],
    visits: &[Vec<Visit>],
    reported: Vec<Reported>,
) -> Option<Measured> {
    if pus.iter().any(|&pu| !cores.iter().any(|core| core.contains(pu))) {
        return None;
    }
    let rates = relative(visits)?;
    let of_core = |core: &PuSet| -> Vec<&[f64]> {
        let within = pus.iter().zip(&rates).filter(|(pu, _)| core.contains(**pu));
        within.map(|(_, rates)| rates.as_slice()).collect()
    };
    let visited: Vec<(&PuSet, Speed)> = cores
        .iter()
        .filter(|core| pus.iter().any(|&pu| core.contains(pu)))
        .map(|core| Some((core, speed(&together(&of_core(core))?)?)))
        .collect::<Option<_>>()?;
    let fastest = visited.iter().map(|(_, speed)| speed.value).fold(0.0, f64::max);
    let speeds: Vec<Speed> = visited.iter().map(|(_, speed)| speed.over(fastest)).collect();
    let measured: PuSet = pus.iter().copied().collect();
    let sets: Vec<PuSet> = visited.iter().map(|(core, _)| core.intersection(&measured)).collect();
    let running = running(visits)?;
    let one = |index: usize, reported| -> Option<PuSpeed> {
        Some(PuSpeed {
            pu: pus[index],
            speed: speed(&rates[index])?.over(fastest),
            speed_while_running: running[index],
            share_of_pu: share(&visits[index]),
            clock: clock(&visits[index])?,
            reported,
        })
    };
    let all = reported.into_iter().enumerate().map(|(index, reported)| one(index, reported));
    Some(Measured { pus: all.collect::<Option<_>>()?, kinds: kinds(&sets, &speeds)? })
}

/// Portions in a second on the wall, relative to the mean of the round: PU by PU, round by round.
fn relative(visits: &[Vec<Visit>]) -> Option<Vec<Vec<f64>>> {
    let rate = |visit: &Visit| ratio(visit.portions, visit.wall_ns);
    let mut rates: Vec<Vec<f64>> =
        visits.iter().map(|visits| visits.iter().map(rate).collect()).collect();
    let rounds = rates.iter().map(Vec::len).min()?;
    for round in 0..rounds {
        let mean = geometric_mean(&rates.iter().map(|rates| rates[round]).collect::<Vec<_>>())?;
        for rates in &mut rates {
            rates[round] /= mean;
        }
    }
    (rounds > 2).then_some(rates)
}

/// Round by round, the geometric mean of several PUs.
fn together(rates: &[&[f64]]) -> Option<Vec<f64>> {
    let rounds = rates.iter().map(|rates| rates.len()).min()?;
    (0..rounds)
        .map(|round| geometric_mean(&rates.iter().map(|rates| rates[round]).collect::<Vec<_>>()))
        .collect()
}

fn speed(rates: &[f64]) -> Option<Speed> {
    let range = geometric_interval(rates, CONFIDENCE)?;
    let value = geometric_mean(rates)?;
    // Of equal rates the ends of the range may be off by a last digit.
    Some(Speed { value, low: range.low.min(value), high: range.high.max(value) })
}

/// Portions in a second of CPU time, relative to the fastest PU.
fn running(visits: &[Vec<Visit>]) -> Option<Vec<f64>> {
    let rate = |visits: &Vec<Visit>| {
        median(&visits.iter().map(|visit| ratio(visit.portions, visit.cpu_ns)).collect::<Vec<_>>())
    };
    let rates: Vec<f64> = visits.iter().map(rate).collect::<Option<_>>()?;
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    Some(rates.into_iter().map(|rate| rate / fastest).collect())
}

/// The share of all visits' time in which the thread had the PU.
fn share(visits: &[Visit]) -> f64 {
    let sum = |of: fn(&Visit) -> u64| visits.iter().map(of).sum();
    // The clocks are read one after the other.
    ratio(sum(|visit| visit.cpu_ns), sum(|visit| visit.wall_ns)).min(1.0)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0 and short of 2⁶⁴
fn clock(visits: &[Visit]) -> Option<Hertz> {
    let rate = |visit: &Visit| ratio(visit.additions, visit.additions_cpu_ns) * 1e9;
    median(&visits.iter().map(rate).collect::<Vec<_>>()).map(|rate| Hertz(rate.round() as u64))
}

#[allow(clippy::cast_precision_loss)] // counts and times short of 2⁵³
fn ratio(over: u64, under: u64) -> f64 {
    over as f64 / under.max(1) as f64
}

/// The kinds of cores with these PUs and speeds, slowest first.
fn kinds(sets: &[PuSet], speeds: &[Speed]) -> Option<Vec<MeasuredKind>> {
    let of_core = kinds_of(speeds);
    let last = *of_core.iter().max()?;
    let kind = |kind: usize| -> Option<MeasuredKind> {
        let within = || speeds.iter().zip(&of_core).filter(move |(_, of)| **of == kind);
        let values: Vec<f64> = within().map(|(speed, _)| speed.value).collect();
        let speed = Speed {
            value: geometric_mean(&values)?,
            low: within().map(|(speed, _)| speed.low).fold(f64::INFINITY, f64::min),
            high: within().map(|(speed, _)| speed.high).fold(0.0, f64::max),
        };
        let members = sets.iter().zip(&of_core).filter(|(_, of)| **of == kind);
        Some(MeasuredKind { speed, pus: members.flat_map(|(set, _)| set.iter()).collect() })
    };
    let mut kinds = (0..=last).map(kind).collect::<Option<Vec<_>>>()?;
    let fastest = kinds.last()?.speed.value;
    for kind in &mut kinds {
        kind.speed = kind.speed.over(fastest);
    }
    Some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Nanos;
    use colocate_machine::measured::{CoreSpeeds, VERSION};
    use colocate_study::stats::Random;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn visit(portions: u64, wall_ns: u64, cpu_ns: u64) -> Visit {
        Visit { portions, wall_ns, cpu_ns, additions: 5 * portions, additions_cpu_ns: 2 * portions }
    }

    fn sets(lists: &[&str]) -> Vec<PuSet> {
        lists.iter().map(|list| PuSet::parse_list(list).unwrap()).collect()
    }

    fn numbers(count: usize) -> Vec<PuNr> {
        (0..count).map(PuNr::new).collect()
    }

    fn made(cores: &[PuSet], pus: &[PuNr], visits: &[Vec<Visit>]) -> Measured {
        of(cores, pus, visits, vec![Reported::default(); pus.len()]).unwrap()
    }

    /// PU 1 is held by others half of the time, and as fast as PU 0 while it runs. In the second round both are
    /// half as fast, in the third one twice: 100 and 50, 50 and 25, 200 and 100 portions.
    #[test]
    fn traced_by_hand() {
        let visits = |portions: [u64; 3], cpu_ns| {
            portions.map(|portions| visit(portions, 1_000_000, cpu_ns)).to_vec()
        };
        let found = made(
            &sets(&["0", "1"]),
            &numbers(2),
            &[visits([100, 50, 200], 1_000_000), visits([50, 25, 100], 500_000)],
        );
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        let [a, b] = &found.pus[..] else { panic!("two PUs") };
        // The whole round was slow, not a PU, so nothing is uncertain.
        close(a.speed.value, 1.0);
        close(a.speed.high, 1.0);
        close(b.speed.value, 0.5);
        close(b.speed.low, 0.5);
        close(b.speed_while_running, 1.0);
        close(a.share_of_pu, 1.0);
        close(b.share_of_pu, 0.5);
        assert_eq!(a.clock, Hertz::mhz(2500));
        let kinds: Vec<String> = found.kinds.iter().map(|kind| kind.pus.to_string()).collect();
        assert_eq!(kinds, ["1", "0"]);
        close(found.kinds[0].speed.value, 0.5);
        close(found.kinds[1].speed.value, 1.0);
    }

    #[test]
    fn a_core_is_the_mean_of_its_pus() {
        let visits = |portions| vec![visit(portions, 1_000_000, 1_000_000); 3];
        let found = made(
            &sets(&["0,2", "1,3"]),
            &numbers(4),
            &[visits(90), visits(40), visits(40), visits(10)],
        );
        // √(90 · 40) = 60 and √(40 · 10) = 20.
        let kinds: Vec<String> = found
            .kinds
            .iter()
            .map(|kind| format!("{} {:.3}", kind.pus, kind.speed.value))
            .collect();
        assert_eq!(kinds, ["1,3 0.333", "0,2 1.000"]);
        assert!((found.pus[0].speed.value - 1.5).abs() < 1e-9);
    }

    #[test]
    fn cores_that_were_not_visited_are_of_no_kind() {
        let visits = vec![visit(9, 1_000, 1_000); 3];
        let found =
            made(&sets(&["0-1", "2-3", "4-5"]), &[PuNr(1), PuNr(2)], &[visits.clone(), visits]);
        assert_eq!(found.kinds.len(), 1);
        assert_eq!(found.kinds[0].pus.to_string(), "1-2");
    }

    #[test]
    fn a_pu_in_no_core_says_nothing() {
        let visits = vec![visit(9, 1_000, 1_000); 3];
        let reported = vec![Reported::default(); 2];
        let pus = [PuNr(0), PuNr(3)];
        assert!(of(&sets(&["0", "1"]), &pus, &[visits.clone(), visits], reported).is_none());
    }

    #[test]
    fn too_few_visits_say_nothing() {
        let visits = vec![visit(9, 1_000, 1_000); 2];
        assert!(of(&sets(&["0"]), &numbers(1), &[visits], vec![Reported::default()]).is_none());
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a second or so, in nanoseconds
    fn whole(ns: f64) -> u64 {
        ns as u64
    }

    /// Visits to cores of these speeds, each wrong by up to `noise`, and every round by up to a half.
    fn noisy(speeds: &[f64], noise: f64, rounds: usize, random: &mut Random) -> Vec<Vec<Visit>> {
        let mut unit = || f64::from(u32::try_from(random.below(20_001)).unwrap()) / 10_000.0 - 1.0;
        let drift: Vec<f64> = (0..rounds).map(|_| 1.0 + 0.5 * unit()).collect();
        let mut visits = Vec::new();
        for speed in speeds {
            let times = drift.iter().map(|drift| 1e9 / (speed * drift * (1.0 + noise * unit())));
            visits.push(times.map(|ns| visit(1_000, whole(ns), whole(ns))).collect());
        }
        visits
    }

    fn cores(count: usize) -> Vec<PuSet> {
        numbers(count).into_iter().map(|pu| std::iter::once(pu).collect()).collect()
    }

    /// Of 400 quiet and busy machines with alike cores, how many come apart. The seed is fixed.
    #[test]
    fn alike_cores_come_out_as_one_kind() {
        let mut random = Random::new(6);
        let (counts, noises) = ([2, 3, 4, 8, 16, 64], [0.002, 0.02, 0.1, 0.5]);
        let mut apart = 0;
        let mut tried = BTreeSet::new();
        for machine in 0..400 {
            // Every count with every noise: 24 pairs.
            let (a, b) = (machine % counts.len(), machine / counts.len() % noises.len());
            tried.insert((a, b));
            let (count, noise) = (counts[a], noises[b]);
            let visits = noisy(&vec![1.0; count], noise, 15, &mut random);
            let found = made(&cores(count), &numbers(count), &visits);
            apart += usize::from(found.kinds.len() > 1);
        }
        assert_eq!((apart, tried.len()), (0, 24), "of 400 machines, of 24 sorts");
    }

    proptest! {
        /// Two kinds that are well apart are found where the noise is small, and their ratio with them.
        #[test]
        fn kinds_are_found(
            slow in 0.2..0.85_f64,
            which in prop::collection::vec(any::<bool>(), 2..24),
            noise in 0.0..0.02_f64,
            seed: u64,
        ) {
            let speeds: Vec<f64> = which.iter().map(|&fast| if fast { 1.0 } else { slow }).collect();
            let visits = noisy(&speeds, noise, 15, &mut Random::new(seed));
            let found = made(&cores(speeds.len()), &numbers(speeds.len()), &visits);
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

        /// Whatever was measured is a file that can be read back.
        #[test]
        fn what_is_measured_is_sound(
            rates in prop::collection::vec(prop::collection::vec((1..1_000_u64, 1..1_000_u64), 3), 1..9),
        ) {
            let visits: Vec<Vec<Visit>> = rates
                .iter()
                .map(|pu| pu.iter().map(|&(n, ns)| visit(n, ns, ns)).collect())
                .collect();
            let (cores, pus) = (cores(visits.len()), numbers(visits.len()));
            let Measured { pus, kinds } = made(&cores, &pus, &visits);
            let speeds = CoreSpeeds {
                version: VERSION,
                processor: None,
                kernel: None,
                started_unix_s: 0,
                rounds: 3,
                visit_ns: Nanos(1),
                seed: 1,
                others_runnable: None,
                cores,
                pus,
                kinds,
                disagreements: Vec::new(),
            };
            prop_assert_eq!(CoreSpeeds::from_json(&speeds.to_json()), Ok(speeds));
        }
    }
}
