//! From times of visits to the speed of each PU and each kind of core.

use colocate_figures::stats::median;
use colocate_machine::measured::{MeasuredKind, PuSpeed, Reported};
use colocate_machine::{Hertz, PuNr, PuSet};
use colocate_study::cores::{Speeds, speeds};
use smt_bench::speed::Visit;

/// Measured speeds.
pub struct Measured {
    /// PUs, in the order of the request.
    pub pus: Vec<PuSpeed>,
    /// Kinds of cores, slowest first.
    pub kinds: Vec<MeasuredKind>,
}

/// Speeds of `cores` from `visits` of `pus`, PU by PU and round by round. `None` if a PU was not
/// visited three times, or is in none of `cores`. The rate of a PU in a round is portions per
/// second of wall time.
pub fn of(
    cores: &[PuSet],
    pus: &[PuNr],
    visits: &[Vec<Visit>],
    reported: Vec<Reported>,
) -> Option<Measured> {
    let rates = visits
        .iter()
        .map(|visits| visits.iter().map(|visit| ratio(visit.portions, visit.wall_ns)).collect());
    let rates: Vec<Vec<f64>> = rates.collect();
    let Speeds { pus: speeds, kinds } = speeds(cores, pus, &rates)?;
    let running = running(visits)?;
    let pus = reported.into_iter().enumerate().map(|(index, reported)| -> Option<PuSpeed> {
        Some(PuSpeed {
            pu: pus[index],
            speed: speeds[index],
            speed_while_running: running[index],
            share_of_pu: share(&visits[index]),
            clock: clock(&visits[index])?,
            reported,
        })
    });
    Some(Measured { pus: pus.collect::<Option<_>>()?, kinds })
}

/// Portions per second of CPU time, relative to the fastest PU.
fn running(visits: &[Vec<Visit>]) -> Option<Vec<f64>> {
    let rates = visits.iter().map(|visits| {
        median(&visits.iter().map(|visit| ratio(visit.portions, visit.cpu_ns)).collect::<Vec<_>>())
    });
    let rates: Vec<f64> = rates.collect::<Option<_>>()?;
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    Some(rates.into_iter().map(|rate| rate / fastest).collect())
}

/// Share of the visits' time for which the thread had the PU.
fn share(visits: &[Visit]) -> f64 {
    let cpu = visits.iter().map(|visit| visit.cpu_ns).sum();
    let wall = visits.iter().map(|visit| visit.wall_ns).sum();
    // The two clocks are not read at the same moment, so the ratio may exceed 1.
    ratio(cpu, wall).min(1.0)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0 and short of 2⁶⁴
fn clock(visits: &[Visit]) -> Option<Hertz> {
    let rates = visits.iter().map(|visit| ratio(visit.additions, visit.additions_cpu_ns) * 1e9);
    median(&rates.collect::<Vec<_>>()).map(|rate| Hertz(rate.round() as u64))
}

fn ratio(over: u64, under: u64) -> f64 {
    over as f64 / under.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Nanos;
    use colocate_machine::measured::{CoreSpeeds, VERSION};
    use proptest::prelude::*;

    fn visit(portions: u64, wall_ns: u64, cpu_ns: u64) -> Visit {
        Visit { portions, wall_ns, cpu_ns, additions: 5 * portions, additions_cpu_ns: 2 * portions }
    }

    fn cores(count: usize) -> (Vec<PuSet>, Vec<PuNr>) {
        let pus: Vec<PuNr> = (0..count).map(PuNr::new).collect();
        (pus.iter().map(|&pu| std::iter::once(pu).collect()).collect(), pus)
    }

    fn made(visits: &[Vec<Visit>]) -> Measured {
        let (cores, pus) = cores(visits.len());
        of(&cores, &pus, visits, vec![Reported::default(); pus.len()]).unwrap()
    }

    /// PU 1 is held by others half of the time, and as fast as PU 0 while it runs.
    #[test]
    fn traced_by_hand() {
        let visits = |portions: [u64; 3], cpu_ns| {
            portions.map(|portions| visit(portions, 1_000_000, cpu_ns)).to_vec()
        };
        let found = made(&[visits([100, 50, 200], 1_000_000), visits([50, 25, 100], 500_000)]);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        let [a, b] = &found.pus[..] else { panic!("two PUs") };
        close(a.speed.value, 1.0);
        close(b.speed.value, 0.5);
        close(b.speed_while_running, 1.0);
        close(a.share_of_pu, 1.0);
        close(b.share_of_pu, 0.5);
        assert_eq!((a.clock, found.kinds.len()), (Hertz::mhz(2500), 2));
    }

    proptest! {
        /// Whatever was measured is a file that can be read back.
        #[test]
        fn what_is_measured_is_sound(
            rates in prop::collection::vec(prop::collection::vec((1..1_000_u64, 1..1_000_u64), 3), 1..9),
        ) {
            let visits: Vec<Vec<Visit>> = rates
                .iter()
                .map(|pu| pu.iter().map(|&(n, ns)| visit(n, ns, ns)).collect())
                .collect();
            let Measured { pus, kinds } = made(&visits);
            let (cores, _) = cores(visits.len());
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
