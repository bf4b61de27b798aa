//! How often CPU quotas throttle the jobs: `nr_throttled` of the control groups that have one.
//!
//! A job that has used up its quota stands still until the next period, wherever its threads are placed. What it does in such a
//! period says nothing of a placement. The kernel counts a throttled period when it ends, which may be some quanta later, and a
//! quantum may lie in it as a whole: so all are taken for throttled until none was for [`RECENT`].

use colocate_files::kernel;
use colocate_machine::read::{self, Sysfs};
use colocate_machine::{CpuQuota, Nanos};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longest period accepted by the kernel (`max_cfs_quota_period`, Linux 6.18).
const RECENT: Nanos = Nanos::from_secs(1);

/// Maximum number of processes checked for quotas. Chosen: the check takes some 0.1 ms per process
/// and second.
const MOST_PROCESSES: usize = 8;

/// Statistics of control groups that have a CPU quota.
#[derive(Debug, Default)]
pub(crate) struct Throttling {
    /// First processes of jobs, by their names in `/proc`: a program may move itself to another
    /// control group.
    processes: Vec<String>,
    /// Smallest quota found.
    pub quota: Option<CpuQuota>,
    files: BTreeSet<PathBuf>,
    /// Throttled periods so far, as last read; `None` before the first reading.
    count: Option<u64>,
    /// Time of the last growth of the count, on the kernel's clock.
    last: Option<Nanos>,
}

impl Throttling {
    /// Watches the control groups of these processes, at most [`MOST_PROCESSES`].
    pub fn watch(&mut self, processes: impl IntoIterator<Item = String>) {
        self.processes = processes.into_iter().take(MOST_PROCESSES).collect();
        self.find_quotas();
    }

    /// Searches for quotas again, as they may have been set or lifted.
    pub fn find_quotas(&mut self) {
        let files = Sysfs::at(Path::new("/"));
        let found = self.processes.iter().flat_map(|process| read::quotas(&files, process));
        let found: Vec<(String, CpuQuota)> = found.collect();
        self.files = found.iter().map(|(dir, _)| Path::new(dir).join("cpu.stat")).collect();
        // A quota that was lifted meanwhile is reported as well.
        let quotas = found.iter().map(|(_, quota)| *quota).chain(self.quota);
        self.quota = quotas.min_by(|a, b| a.compare(*b));
    }

    /// Reads at `at` the number of throttled periods. A removed control group counts 0.
    pub fn read(&mut self, at: Nanos) {
        let counts = self.files.iter().filter_map(|file| kernel::read_text(file).ok());
        self.note(counts.filter_map(|text| throttled(&text)).sum(), at);
    }

    fn note(&mut self, count: u64, at: Nanos) {
        let before = self.count.replace(count);
        // The sum shrinks with a removed control group, and no period was throttled by that.
        if before.is_some_and(|before| count > before) {
            self.last = Some(at);
        }
    }

    /// Whether a period was throttled lately.
    pub fn is_recent(&self, at: Nanos) -> bool {
        self.last.is_some_and(|last| at < last + RECENT)
    }
}

/// Throttled periods, in the text of `cpu.stat`.
fn throttled(text: &str) -> Option<u64> {
    let counts = text.lines().filter_map(|line| line.split_once(' '));
    counts.filter(|(name, _)| *name == "nr_throttled").find_map(|(_, count)| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_counts_for_a_second() {
        let mut throttling = Throttling::default();
        let at = Nanos::from_millis;
        throttling.note(7, at(0));
        assert!(!throttling.is_recent(at(1)), "those were before");
        throttling.note(8, at(100));
        throttling.note(8, at(500));
        assert!(throttling.is_recent(at(1_000)) && !throttling.is_recent(at(1_100)));
    }

    #[test]
    fn throttled_periods_of_both_versions() {
        assert_eq!(throttled("nr_periods 44\nnr_throttled 12\nthrottled_time 6003\n"), Some(12));
        let v2 = "usage_usec 9\nnr_periods 1\nnr_throttled 3\nthrottled_usec 4\n";
        assert_eq!((throttled(v2), throttled("usage_usec 9\n")), (Some(3), None));
    }
}
