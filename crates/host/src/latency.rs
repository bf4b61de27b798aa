//! How long new thread threads waited for their PU.

use colocate_machine::Nanos;

/// Latencies from the kernel's creation timestamp to the return of the pinning call.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    times: Vec<Nanos>,
    /// Creations above the limit, without a stored latency.
    skipped: u64,
}

/// Maximum number of stored latencies: 8 MB.
const KEPT: usize = 1 << 20;

impl Latencies {
    /// Adds a latency; the first `KEPT` are stored.
    pub fn add(&mut self, time: Nanos) {
        if self.times.len() < KEPT {
            self.times.push(time);
        } else {
            self.skipped += 1;
        }
    }

    /// Number of added latencies.
    pub fn count(&self) -> u64 {
        self.times.len() as u64 + self.skipped
    }

    /// Least latency not exceeded by `percent` of all (nearest rank); `None` without any.
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
