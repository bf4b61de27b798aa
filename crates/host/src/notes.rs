//! Lines for the user.

use colocate_evidence::JobIdx;
use std::collections::BTreeSet;

/// Lines that have come up, and what was said of which job, so that it is said once.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: Vec<String>,
    said: BTreeSet<(JobIdx, &'static str)>,
}

impl Notes {
    pub fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    pub fn extend(&mut self, lines: impl IntoIterator<Item = String>) {
        self.lines.extend(lines);
    }

    /// Whether this is said of a job for the first time.
    pub fn is_first(&mut self, job: JobIdx, what: &'static str) -> bool {
        self.said.insert((job, what))
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
