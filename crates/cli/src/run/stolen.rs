//! Comparison of stolen time with the figures of this machine's calibration.
//!
//! Reading it costs nothing while programs run: the kernel counts stolen time anyway.

use colocate_linux::proc::{Proc, steal};
use colocate_machine::calibrated::{Calibration, Quantity};
use colocate_machine::{Nanos, PuNr};
use std::collections::BTreeMap;
use std::time::Instant;

/// Smallest share of stolen time worth a line. Chosen: the kernel counts in ticks of 10 ms.
const SHOWS: f64 = 0.02;

/// Start of the run, stolen time of each PU until then, and the calibration to compare with.
pub struct Stolen<'a> {
    begun: Instant,
    before: BTreeMap<PuNr, Nanos>,
    calibration: Option<&'a Calibration>,
}

impl<'a> Stolen<'a> {
    /// Starts now.
    pub fn from_now(calibration: Option<&'a Calibration>) -> Self {
        let before = steal::times(&Proc::default()).into_iter().collect();
        Self { begun: Instant::now(), before, calibration }
    }

    /// A line if more was stolen than at the calibration, or than [`SHOWS`] without any.
    pub fn note(&self) -> Option<String> {
        let seconds = self.begun.elapsed().as_secs_f64();
        note(&self.before, &steal::times(&Proc::default()), seconds, self.calibration)
    }
}

fn note(
    before: &BTreeMap<PuNr, Nanos>,
    after: &[(PuNr, Nanos)],
    seconds: f64,
    calibration: Option<&Calibration>,
) -> Option<String> {
    let shares = after.iter().filter_map(|(pu, after)| {
        // Of a PU that has come online meanwhile, the beginning is unknown.
        let taken = after.saturating_sub(*before.get(pu)?).as_secs_f64();
        // A share within one tick is noise.
        let share = (taken - 0.01).max(0.0) / seconds;
        let figure = calibration.and_then(|found| found.get(&Quantity::Steal { pu: *pu }));
        let expected = figure.map_or(0.0, |figure| figure.high);
        let then = figure.map_or_else(String::new, |figure| {
            format!(", {:.1} % when this machine was calibrated", 100.0 * figure.value)
        });
        let pu = pu.0;
        (share > SHOWS.max(expected))
            .then(|| format!("{:.1} % of the time of PU {pu}{then}", 100.0 * share))
    });
    let shares: Vec<String> = shares.collect();
    (!shares.is_empty()).then(|| format!("the hypervisor took {}", shares.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::calibrated::{Figure, FigureUnit};

    #[test]
    fn more_than_when_calibrated() {
        let ms = Nanos::from_millis;
        let before = BTreeMap::from([(PuNr(0), ms(500)), (PuNr(1), ms(0))]);
        let after = [(PuNr(0), ms(1510)), (PuNr(1), ms(110)), (PuNr(2), ms(9_000))];
        let said = note(&before, &after, 10.0, None);
        assert_eq!(said.as_deref(), Some("the hypervisor took 10.0 % of the time of PU 0"));
        assert_eq!(note(&before, &after, 1_000.0, None), None);
        let figure = |high| Figure {
            what: Quantity::Steal { pu: PuNr(0) },
            unit: FigureUnit::Ratio,
            value: 0.03,
            low: 0.01,
            high,
            unix_s: 0,
            source: String::new(),
        };
        let mut calibration = Calibration {
            identity: String::new(),
            kernel: None,
            started_unix_s: 0,
            seconds: 60.0,
            figures: vec![figure(0.05)],
            assumed: Vec::new(),
            absent: Vec::new(),
            disagreements: Vec::new(),
        };
        let said = note(&before, &after, 10.0, Some(&calibration)).unwrap();
        assert!(
            said.ends_with("10.0 % of the time of PU 0, 3.0 % when this machine was calibrated")
        );
        calibration.figures = vec![figure(0.2)];
        assert_eq!(note(&before, &after, 10.0, Some(&calibration)), None);
    }
}
