//! What was measured, as it is kept: a line of JSON for the circumstances, then one for each thread alone and
//! each pair.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A thread's work: its kind of access, and over how many MiB.
pub type Kind = (String, f64);

/// Circumstances of the measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    pub version: u32,
    pub command: String,
    pub processor: String,
    /// UTC, in the kernel's form.
    pub date: String,
    pub clock_hz: f64,
    /// Of the first level's data cache, the second and the third, as /sys says.
    pub caches_kib: [u32; 3],
    /// Load of the machine before and after.
    pub load: [String; 2],
    /// Least share of its CPU of any thread, over the kept times.
    pub least_share: f64,
}

/// Nanoseconds a line, round by round.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Times(pub Vec<f64>);

impl Times {
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub fn range(&self) -> (f64, f64) {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.0.iter().copied().fold(0.0, f64::max))
    }
}

/// A line of the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Circumstances(Circumstances),
    Alone { alone: Kind, ns: Times },
    Beside { beside: [Kind; 2], ns: [Times; 2] },
}

/// The whole file.
#[derive(Clone, Debug)]
pub struct Raw {
    pub circumstances: Circumstances,
    pub alone: Vec<(Kind, Times)>,
    pub beside: Vec<([Kind; 2], [Times; 2])>,
}

impl Raw {
    pub fn text(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        let mut line = |line: Line| -> anyhow::Result<()> {
            writeln!(text, "{}", serde_json::to_string(&line)?)?;
            Ok(())
        };
        line(Line::Circumstances(self.circumstances.clone()))?;
        for (kind, times) in &self.alone {
            line(Line::Alone { alone: kind.clone(), ns: times.clone() })?;
        }
        for (kinds, times) in &self.beside {
            line(Line::Beside { beside: kinds.clone(), ns: times.clone() })?;
        }
        Ok(text)
    }

    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut circumstances = None;
        let mut alone = Vec::new();
        let mut beside = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
            match line {
                Line::Circumstances(found) if circumstances.is_none() => {
                    ensure!(found.version == 1, "expected version 1, found {}", found.version);
                    circumstances = Some(found);
                }
                Line::Circumstances(_) => bail!("line {number}: circumstances once more"),
                Line::Alone { alone: kind, ns } => alone.push((kind, ns)),
                Line::Beside { beside: kinds, ns } => beside.push((kinds, ns)),
            }
        }
        let circumstances = circumstances.context("it says nothing of its circumstances")?;
        Ok(Self { circumstances, alone, beside })
    }

    /// Of a thread alone.
    pub fn alone(&self, kind: &str, mib: f64) -> anyhow::Result<f64> {
        let mut all = self.alone.iter();
        let found = all.find(|((name, size), _)| name == kind && (size - mib).abs() < 1e-9);
        Ok(found.with_context(|| format!("no {kind} of {mib} MiB alone"))?.1.median())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = include_str!("../../../../data/measured/contention-2026-11-21.jsonl");

    #[test]
    fn what_is_kept_is_read_and_written_the_same() {
        let raw = Raw::read(KEPT).unwrap();
        assert_eq!(raw.text().unwrap(), KEPT);
        assert_eq!((raw.beside.len(), raw.beside[0].1[0].0.len()), (19, 5));
        assert!((raw.alone("stream", 512.0).unwrap() - 4.2953).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_measurement() {
        let error = |text: &str| format!("{:#}", Raw::read(text).unwrap_err());
        assert!(error("").contains("circumstances"));
        assert!(error("{}").starts_with("line 1: "));
        let (first, _) = KEPT.split_once('\n').unwrap();
        assert!(error(&format!("{first}\n{first}")).contains("line 2: circumstances once more"));
        assert!(error(&first.replace("\"version\":1", "\"version\":2")).contains("found 2"));
    }
}
