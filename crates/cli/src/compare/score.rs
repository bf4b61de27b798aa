//! Scores: numbers read after a run.

use super::names::RunFiles;
use crate::children::ChildEnd;
use crate::exit::usage;
use crate::input;
use anyhow::anyhow;
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
    pub fn new(jobs: Vec<JobTime>, begun: Instant, ends: &[ChildEnd]) -> Self {
        let last = ends.iter().map(|end| end.at).max().unwrap_or(begun);
        let cpu = ends.iter().map(|end| end.waited.cpu_time.0).sum();
        Self { jobs, elapsed: last.duration_since(begun), cpu: Nanos(cpu) }
    }
}

/// Source of a score.
#[derive(Debug, PartialEq, Eq)]
pub enum ScoreSource {
    /// The number after this key at the beginning of a line of the output; the last such line.
    Output(String),
    /// A number in colocate's report, by JSON pointer (RFC 6901).
    Report(String),
    /// Seconds from the start of the run's first process to the end of its last one.
    Elapsed,
    /// CPU seconds of all processes of the run, colocate among them.
    Cpu,
}

impl FromStr for ScoreSource {
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

impl ScoreSource {
    /// Reads the score of a run with this result and these files.
    pub fn read(&self, result: &RunResult, files: &RunFiles) -> anyhow::Result<f64> {
        match self {
            Self::Output(key) => {
                // Programs may write any bytes.
                let bytes = colocate_files::read(&files.log, Accept::File, input::REPORT)?;
                number_after(&String::from_utf8_lossy(&bytes), key).map_err(|found| {
                    let log = files.log.display();
                    anyhow!("expected a line of {log} with a number after `{key}`, found {found}")
                })
            }
            Self::Report(pointer) => {
                let text = input::text(&files.report, input::REPORT)?;
                let report: serde_json::Value = serde_json::from_str(&text)?;
                let number = report.pointer(pointer).and_then(serde_json::Value::as_f64);
                number.ok_or_else(|| {
                    let report = files.report.display();
                    anyhow!("expected a number at {pointer} of {report}, found none")
                })
            }
            Self::Elapsed => Ok(result.elapsed.as_secs_f64()),
            Self::Cpu => Ok(result.cpu.as_secs_f64()),
        }
    }
}

/// The number after `key` in the last line of `output` that begins with it; otherwise, the text found.
fn number_after(output: &str, key: &str) -> Result<f64, String> {
    // After a carriage return, a progress display begins its line anew.
    let lines = output.split(['\n', '\r']).map(str::trim_start);
    let after = lines.filter_map(|line| line.strip_prefix(key)).next_back().ok_or("none")?;
    let after = after.trim_start();
    let end = after.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
    let (number, rest) = after.split_at(end.unwrap_or(after.len()));
    let number: Option<f64> = number.parse().ok();
    // Too large a number is parsed as infinity.
    let number = number.filter(|number| number.is_finite() && !goes_on(rest));
    number.ok_or_else(|| after.chars().take(40).collect())
}

/// Whether a number is only the beginning of one, or has a multiple of a unit that may differ in the next run.
fn goes_on(rest: &str) -> bool {
    let mut rest = rest.chars();
    match rest.next() {
        Some(',' | '_' | '\'' | ':' | ' ') => rest.next().is_some_and(|c| c.is_ascii_digit()),
        Some(unit) => "kKMGTx".contains(unit),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_the_key_counts() {
        let output = "tps = 7\rtps = 12.5 (without)\n  get:calls=23,usec=1\nnone\n";
        assert_eq!(number_after(output, "tps ="), Ok(12.5));
        assert_eq!(number_after(output, "get:calls="), Ok(23.0));
        assert_eq!(number_after(output, "none"), Err(String::new()));
        assert_eq!(number_after(output, "absent"), Err("none".into()));
    }

    #[test]
    fn a_number_is_whole() {
        for right in ["12.5", "12.5 ms", "12.5ms", "12.5%", "12.5/s", "12.5, then"] {
            assert_eq!(number_after(right, ""), Ok(12.5), "{right}");
        }
        for wrong in ["12,345.6", "1 234", "1_000", "1'000", "0x1F", "12:34", "1k", "1.5M", "1e999"]
        {
            assert_eq!(number_after(wrong, ""), Err(wrong.into()));
        }
    }

    #[test]
    fn sources_have_four_forms() {
        assert_eq!(
            "output:a: b".parse::<ScoreSource>().unwrap(),
            ScoreSource::Output("a: b".into())
        );
        assert_eq!(
            "report:/a/0".parse::<ScoreSource>().unwrap(),
            ScoreSource::Report("/a/0".into())
        );
        assert_eq!("cpu".parse::<ScoreSource>().unwrap(), ScoreSource::Cpu);
        for wrong in ["output:", "report:a", "wall", ""] {
            assert!(wrong.parse::<ScoreSource>().is_err(), "{wrong}");
        }
    }
}
