//! Gaps in the execution of a PU, seen by a thread that reads the clock in a loop.

use crate::speed::on;
use crate::thread::{ThreadError, cpu_ns, wall_ns};
use std::time::Duration;

/// Least length of a gap, in nanoseconds. Chosen: timer and device interrupts of the kernel take
/// less.
pub const LEAST_NS: u64 = 25_000;

/// Gaps of a PU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Watched time, in nanoseconds.
    pub watched_ns: u64,
    /// Gaps counted by the kernel as CPU time of the thread: the PU itself was away, or in
    /// interrupts. In nanoseconds, in order of time.
    pub away_ns: Vec<u64>,
    /// Time in all other gaps, in nanoseconds: another thread ran, or the hypervisor reported the
    /// time as stolen.
    pub waited_ns: u64,
}

/// Watches PU `cpu` for `length` by a thread that never sleeps.
///
/// # Errors
/// [`ThreadError`] if the PU cannot be used or no thread can be created.
pub fn watch(cpu: u32, length: Duration) -> Result<Gaps, ThreadError> {
    on(cpu, || {
        let begin = wall_ns();
        // Half of the range, so that the sum does not overflow.
        let end = begin + u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 2);
        let mut last = begin;
        let mut gaps = Gaps::default();
        // CPU time and the time of its reading: read often, so that the two clocks do not drift
        // apart.
        let mut cpu = cpu_ns();
        let mut read = begin;
        while last < end {
            let now = wall_ns();
            let gap = now - last;
            if gap >= LEAST_NS {
                // CPU time since the reading, less the part before the gap.
                let counted = (cpu_ns() - cpu).saturating_sub(last - read);
                // The kernel takes time that it does not see pass for CPU time of the thread.
                if counted >= gap / 2 { gaps.away_ns.push(gap) } else { gaps.waited_ns += gap }
            }
            last = now;
            if gap >= LEAST_NS || now - read >= 1_000_000 {
                cpu = cpu_ns();
                read = wall_ns();
                last = read;
            }
        }
        gaps.watched_ns = last - begin;
        gaps
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_no_longer_than_the_time() {
        let cpu = crate::thread::usable().unwrap()[0];
        let found = watch(cpu, Duration::from_millis(5)).unwrap();
        assert!(found.watched_ns >= 5_000_000);
        let gone = found.away_ns.iter().sum::<u64>() + found.waited_ns;
        assert!(gone <= found.watched_ns, "{found:?}");
        assert!(found.away_ns.iter().all(|&gap| gap >= LEAST_NS), "{found:?}");
    }
}
