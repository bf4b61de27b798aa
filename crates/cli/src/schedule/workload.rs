//! Workload files: which programs are scheduled.

use anyhow::{Context, anyhow, bail};
use colocate_machine::Nanos;
use colocate_policy::schedule::Alone;
use serde::Deserialize;
use std::path::Path;

/// Version of the format that this build reads.
const VERSION: u32 = 1;
/// Most jobs of a workload.
const MOST: usize = 500;

/// A workload as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    version: u32,
    /// Time between two decisions, in milliseconds.
    pub quantum_ms: Option<u64>,
    /// The programs.
    #[serde(rename = "job")]
    pub jobs: Vec<Job>,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Job {
    /// For people; the program's name if it is left out.
    pub name: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How many such jobs there are.
    #[serde(default = "one")]
    pub copies: u32,
    /// What is known of it from runs alone.
    pub alone: Option<Alone>,
}

const fn one() -> u32 {
    1
}

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// If the file cannot be read or is no workload, in one line.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> anyhow::Result<Self> {
        let path = path.display();
        let workload: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text[..before].matches('\n').count();
            let found = error.message();
            anyhow!("{path}:{line}: expected a workload (docs/schedule.md), found: {found}")
        })?;
        if let Err((expected, found)) = workload.check() {
            bail!("{path}: expected {expected}, found {found}");
        }
        Ok(workload)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let jobs: usize = self.jobs.iter().map(|job| job.copies as usize).sum();
        if self.version != VERSION {
            return Err(("version 1", format!("version {}", self.version)));
        }
        if !(1..=MOST).contains(&jobs) {
            return Err(("1 to 500 jobs", format!("{jobs}")));
        }
        if let Some(quantum) = self.quantum_ms.filter(|ms| !(10..=60_000).contains(ms)) {
            return Err(("quantum-ms from 10 to 60000", format!("{quantum}")));
        }
        if self.jobs.iter().any(|job| job.command.is_empty()) {
            return Err(("a command for every job", "an empty one".to_owned()));
        }
        Ok(())
    }

    /// Every job once for each of its copies.
    pub fn each(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().flat_map(|job| std::iter::repeat_n(job, job.copies as usize))
    }

    /// Time between two decisions; 200 ms if the file does not say.
    #[must_use]
    pub fn quantum(&self) -> Nanos {
        Nanos::from_millis(self.quantum_ms.unwrap_or(200))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Workload, String> {
        Workload::parse(text, Path::new("w.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn copies_are_jobs() {
        let text = "version = 1\n[[job]]\ncommand = [\"a\", \"b\"]\ncopies = 3\n[[job]]\ncommand = [\"c\"]\n";
        let workload = parse(text).unwrap();
        assert_eq!(workload.each().count(), 4);
        assert_eq!(workload.quantum(), Nanos::from_millis(200));
    }

    #[test]
    fn refused_with_a_line() {
        let refusal = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            refusal("version = 1\n[[job]]\ncommand = [\"a\"]\ncopys = 3\n").lines().next().unwrap(),
            "w.toml:4: expected a workload (docs/schedule.md), found: unknown field `copys`, expected one of `name`, `command`, `copies`, `alone`"
        );
        assert_eq!(
            refusal("version = 2\njob = []\n"),
            "w.toml: expected version 1, found version 2"
        );
        assert_eq!(refusal("version = 1\njob = []\n"), "w.toml: expected 1 to 500 jobs, found 0");
        assert_eq!(
            refusal("version = 1\nquantum-ms = 5\n[[job]]\ncommand = [\"a\"]\n"),
            "w.toml: expected quantum-ms from 10 to 60000, found 5"
        );
        assert_eq!(
            refusal("version = 1\n[[job]]\ncommand = []\n"),
            "w.toml: expected a command for every job, found an empty one"
        );
    }
}
