//! Runs workloads in parallel, each pinned to a PU, and records their trails.

use crate::kernel::KernelSpec;
use crate::overlap::{ClockPair, Trail};
use crate::runner::Runner;
use crate::thread::{ThreadError, cpu_ns, pin, side_by_side, wall_ns};
use std::time::Duration;

/// A workload and its PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedKernel {
    /// Workload to run.
    pub workload: KernelSpec,
    /// Kernel number of the PU.
    pub cpu: u32,
}

/// Target duration of a chunk. Short compared to a time slice, so that an interruption costs
/// little. Long compared to reading two clocks, about 0.3 µs (measured on a Sapphire Rapids guest,
/// 2026-11-21).
pub const CHUNK: Duration = Duration::from_nanos(CHUNK_NS);
/// [`CHUNK`] in nanoseconds.
pub(crate) const CHUNK_NS: u64 = 100_000;

/// Runs `jobs` in parallel for `length`, and returns their trails in the order of `jobs`.
///
/// All threads are pinned and warm before the first starts. Two jobs on one PU alternate, so
/// [`crate::overlap::paces`] finds no time in which both ran.
///
/// # Errors
/// [`ThreadError`] if a PU cannot be used or no thread can be created. No trail is recorded then.
pub fn together(jobs: &[PinnedKernel], length: Duration) -> Result<Vec<Trail>, ThreadError> {
    side_by_side(
        jobs.len(),
        |number| {
            pin(jobs[number].cpu)?;
            let mut runner = Runner::new(jobs[number].workload);
            let chunk = sized(CHUNK_NS, runner.repeated());
            Ok((runner, chunk))
        },
        |_, (mut runner, chunk): (Runner, u64)| run_chunks(chunk, length, runner.repeated()),
        || (),
    )
}

/// Time limit for sizing a chunk, in nanoseconds: a sandbox with a stopped CPU clock must not block
/// for ever. Chosen.
const SIZING_NS: u64 = 200_000_000;

/// CPU time of `iterations` of `run`, in nanoseconds. At least 1.
pub(crate) fn timed(run: &mut impl FnMut(u64), iterations: u64) -> u64 {
    let before = cpu_ns();
    run(iterations);
    // A short run may take no time on the clock, and rates divide by the time.
    (cpu_ns() - before).max(1)
}

/// Number of iterations of `run` in about `target_ns` of CPU time, at least one.
pub(crate) fn sized(target_ns: u64, mut run: impl FnMut(u64)) -> u64 {
    let begin = wall_ns();
    let mut iterations = 1;
    loop {
        // The least of three, because caches are cold at first and interruptions only add time: an
        // interrupted single iteration would result in tiny chunks that mostly read clocks.
        // Of three times there is a least: the default is not used.
        let took = (0..3).map(|_| timed(&mut run, iterations)).min().unwrap_or(1);
        if took >= target_ns / 4 {
            return (iterations * target_ns / took).max(1);
        }
        if wall_ns() - begin > SIZING_NS {
            return iterations;
        }
        iterations *= 2;
    }
}

/// Reads both clocks.
pub(crate) fn stamp() -> ClockPair {
    ClockPair { wall_ns: wall_ns(), cpu_ns: cpu_ns() }
}

/// Runs chunks of `chunk` iterations of `run` for `length`, with a stamp after each.
pub(crate) fn run_chunks(chunk: u64, length: Duration, mut run: impl FnMut(u64)) -> Trail {
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    // At most 16 MiB of stamps; a longer run grows the list.
    let expected = usize::try_from(length_ns / CHUNK_NS).unwrap_or(0).min(1 << 20) + 16;
    // Allocated before the first stamp, so that no chunk includes an allocation.
    let mut stamps = Vec::with_capacity(expected);
    let first = stamp();
    let end = first.wall_ns.saturating_add(length_ns);
    stamps.push(first);
    loop {
        run(chunk);
        let now = stamp();
        stamps.push(now);
        if now.wall_ns >= end {
            return Trail { chunk, stamps };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::thread::usable;

    #[test]
    fn every_job_leaves_a_trail_that_goes_forward() {
        let cpus = usable().unwrap();
        let jobs: Vec<PinnedKernel> = Kernel::ALL
            .into_iter()
            .zip(cpus.iter().cycle())
            .take(3)
            .map(|(kernel, &cpu)| PinnedKernel { workload: kernel.into(), cpu })
            .collect();
        let trails = together(&jobs, Duration::from_millis(2)).unwrap();
        assert_eq!(trails.len(), 3);
        for trail in trails {
            assert!(trail.chunk >= 1 && trail.stamps.len() >= 2);
            let forward = |pair: &[ClockPair]| pair[0].wall_ns < pair[1].wall_ns;
            assert!(trail.stamps.windows(2).all(forward));
        }
    }

    /// Also the other jobs' threads end: the scope could not be left otherwise.
    #[test]
    fn a_pu_that_is_not_there_ends_the_whole_measurement() {
        let cpu = usable().unwrap()[0];
        let workload = Kernel::IntAdd.into();
        let jobs = [PinnedKernel { workload, cpu }, PinnedKernel { workload, cpu: 8_000 }];
        let message = together(&jobs, Duration::from_secs(3600)).unwrap_err().to_string();
        assert!(message.starts_with("cannot run on PU 8000: sched_setaffinity: "), "{message}");
    }

    #[test]
    fn no_jobs_leave_no_trails() {
        assert!(together(&[], Duration::from_millis(1)).unwrap().is_empty());
    }
}
