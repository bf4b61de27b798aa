//! Scores: numbers read after a run.

use super::session::RunFiles;
use crate::children::End;
use crate::exit::usage;
use crate::input;
use anyhow::{Context, anyhow};
use colocate_figures::state::JobTime;
use colocate_files::Accept;
use colocate_machine::Nanos;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Result of a run, before scores.
pub struct RunResult {
    /// One entry a program.
    pub jobs: Vec<JobTime>,
    elapsed: Duration,
    cpu: Nanos,
}

impl RunResult {
    /// The result of a run since `begun` whose own children had these `ends`.
    pub fn new(jobs: Vec<JobTime>, begun: Instant, ends: &[End]) -> Self {
        let last = ends.iter().map(|end| end.at).max().unwrap_or(begun);
        let cpu = ends.iter().map(|end| end.waited.cpu_time.0).sum();
        Self { jobs, elapsed: last.duration_since(begun), cpu: Nanos(cpu) }
    }
}

/// Source of a score.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    /// The number after this key at the beginning of a line of the output; the last such line.
    Output(String),
    /// A number in colocate's report, by JSON pointer (RFC 6901).
    Report(String),
    /// Seconds from the start of the run's first process to the end of its last one.
    Elapsed,
    /// CPU seconds of all processes of the run, colocate among them.
    Cpu,
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("output", key)) if !key.is_empty() => Ok(Self::Output(key.to_owned())),
            Some(("report", pointer)) if pointer.starts_with('/') => {
                Ok(Self::Report(pointer.to_owned()))
            }
            None if text == "elapsed" => Ok(Self::Elapsed),
            None if text == "cpu" => Ok(Self::Cpu),
            _ => Err(usage(format!(
                "expected a score from output:KEY, report:/POINTER, elapsed or cpu, found {text}"
            ))),
        }
    }
}

impl Source {
    /// Reads the score of a run with this result and these files.
    ///
    /// # Errors
    /// The file cannot be read, or has no such number.
    pub fn read(&self, result: &RunResult, files: &RunFiles) -> anyhow::Result<f64> {
        match self {
            Self::Output(key) => {
                // Programs may write any bytes.
                let bytes = colocate_files::read(&files.log, Accept::File, input::REPORT)?;
                number_after(&String::from_utf8_lossy(&bytes), key).with_context(|| {
                    let log = files.log.display();
                    format!("expected a line of {log} with a number after `{key}`, found none")
                })
            }
            Self::Report(pointer) => {
                let text = input::text(&files.report, input::REPORT)?;
                let report: serde_json::Value = serde_json::from_str(&text)?;
                let number = report.pointer(pointer).and_then(serde_json::Value::as_f64);
                number.ok_or_else(|| {
                    anyhow!("expected a number at {pointer} of {}", files.report.display())
                })
            }
            Self::Elapsed => Ok(result.elapsed.as_secs_f64()),
            Self::Cpu => Ok(result.cpu.as_secs_f64()),
        }
    }
}

fn number_after(output: &str, key: &str) -> Option<f64> {
    // After a carriage return, a progress display begins its line anew.
    let lines = output.split(['\n', '\r']).map(str::trim_start);
    let after = lines.filter_map(|line| line.strip_prefix(key)).next_back()?.trim_start();
    // A unit may follow the number.
    let end = after.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
    let number: f64 = after[..end.unwrap_or(after.len())].parse().ok()?;
    // Too large a number is parsed as infinity.
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_the_key_counts() {
        let output = "tps = 7\rtps = 12.5 (without)\n  get:calls=23,usec=1\nnone\n";
        assert_eq!(number_after(output, "tps ="), Some(12.5));
        assert_eq!(number_after(output, "get:calls="), Some(23.0));
        assert_eq!(number_after(output, "none"), None);
        assert_eq!(number_after(output, "absent"), None);
    }

    #[test]
    fn sources_have_four_forms() {
        assert_eq!("output:a: b".parse::<Source>().unwrap(), Source::Output("a: b".into()));
        assert_eq!("report:/a/0".parse::<Source>().unwrap(), Source::Report("/a/0".into()));
        assert_eq!("cpu".parse::<Source>().unwrap(), Source::Cpu);
        for wrong in ["output:", "report:a", "wall", ""] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
