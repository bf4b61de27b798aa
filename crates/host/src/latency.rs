//! How long new thread threads waited for their PU.

use colocate_machine::Nanos;

/// Waiting times, from the creation that the kernel stamped to the return of the call that pinned.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    times: Vec<Nanos>,
    /// Creations that were skipped because there were too many to keep.
    skipped: u64,
}

/// Waiting times that are kept: 8 MB of them.
const KEPT: usize = 1 << 20;

impl Latencies {
    /// Adds one; the first `KEPT` are kept.
    pub fn add(&mut self, time: Nanos) {
        if self.times.len() < KEPT {
            self.times.push(time);
        } else {
            self.skipped += 1;
        }
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.times.len() as u64 + self.skipped
    }

    /// The least time that `percent` of all did not exceed (nearest rank); `None` without any.
    pub fn percentile(&self, percent: usize) -> Option<Nanos> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50), None);
        (1..=200).rev().for_each(|n| latencies.add(Nanos(n)));
        assert_eq!(latencies.count(), 200);
        assert_eq!(latencies.percentile(50), Some(Nanos(100)));
        assert_eq!(latencies.percentile(99), Some(Nanos(198)));
        assert_eq!(latencies.percentile(0), Some(Nanos(1)));
    }
}
