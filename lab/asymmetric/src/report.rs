//! Report of the measured ratio: a line of text, and JSON.

use crate::speed::Measured;
use anyhow::Context as _;
use colocate_figures::stats::Estimate;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Measured slowdown of a PU; serialised as the JSON of `--output`.
#[derive(Debug, Serialize)]
pub struct SlowdownReport {
    version: u32,
    /// The slow PU, by the kernel's number.
    cpu: u32,
    /// The PU for comparison, by the kernel's number.
    pub fast: u32,
    /// The requested ratio; `None` if a share was requested.
    asked: Option<f64>,
    period_us: f64,
    /// Taken time per period.
    taken_us: f64,
    /// Speed of the fast PU over that of the slow PU, before the program began.
    ratio: Measured,
    /// The ratio after the program's end; `None` if not measured (yet).
    pub after: Option<Measured>,
}

impl SlowdownReport {
    /// Report of the measurement before the program.
    pub fn new(
        cpu: u32,
        fast: u32,
        asked: Option<f64>,
        period: Duration,
        share: f64,
        ratio: Measured,
    ) -> Self {
        let period_us = period.as_secs_f64() * 1e6;
        let taken_us = (10.0 * period_us * share).round() / 10.0;
        Self { version: 1, cpu, fast, asked, period_us, taken_us, ratio, after: None }
    }

    /// The ratio `found` and the taken share, as a line of text.
    pub fn line(&self, found: Estimate) -> String {
        let when = if self.after.is_some() { "still " } else { "" };
        let Self { cpu, fast, period_us, taken_us, .. } = self;
        let ratio = interval(found);
        format!(
            "PU {cpu} is {when}{ratio} times slower than PU {fast}: {taken_us:.0} of every {period_us} µs are taken"
        )
    }

    /// Writes the report to a file as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A ratio with its 95 % interval.
pub fn interval(found: Estimate) -> String {
    match found.interval {
        Some(range) => format!("{:.3} ({:.3} to {:.3})", found.value, range.low, range.high),
        None => format!("{:.3}", found.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_figures::stats::geometric_estimate;

    fn report() -> SlowdownReport {
        let mean = geometric_estimate(&[1.99, 2.01, 2.0]).unwrap();
        let found = Measured { mean, median: 2.0 };
        SlowdownReport::new(1, 0, Some(2.0), Duration::from_millis(2), 0.4823, found)
    }

    #[test]
    fn a_line_says_what_was_reached_and_how() {
        let mut report = report();
        // Mean of the logarithms 0.68814, 0.69813 and 0.69315, t(2) = 4.303 times 0.00499 / sqrt 3
        // around it.
        let expected =
            "PU 1 is 2.000 (1.975 to 2.025) times slower than PU 0: 965 of every 2000 µs are taken";
        assert_eq!(report.line(report.ratio.mean), expected);
        let again = Estimate { value: 1.5, interval: None };
        report.after = Some(Measured { mean: again, median: 1.5 });
        let expected = "PU 1 is still 1.500 times slower than PU 0: 965 of every 2000 µs are taken";
        assert_eq!(report.line(again), expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = report().write(Path::new("/proc/none/file")).unwrap_err();
        let line = format!("{error:#}");
        assert!(line.starts_with("cannot write /proc/none/file: "), "{line}");
    }
}
