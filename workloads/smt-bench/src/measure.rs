//! Runs workloads beside each other, each pinned to a PU, and keeps their trails.

use crate::control::Control;
use crate::kernel::Workload;
use crate::overlap::{Stamp, Trail};
use crate::runner::Runner;
use crate::thread::{ThreadError, cpu_ns, pin, side_by_side, wall_ns};
use std::time::Duration;

/// A workload and the PU it runs on, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What runs.
    pub workload: Workload,
    /// Where.
    pub cpu: u32,
}

/// How long a chunk should take: short beside a time slice, so that an interruption costs little;
/// long beside reading two clocks, about 0.3 µs (measured on a Sapphire Rapids guest,
/// 2026-11-21).
pub const CHUNK: Duration = Duration::from_nanos(CHUNK_NS);
pub(crate) const CHUNK_NS: u64 = 100_000;

/// Runs `jobs` at the same time for `length`, and returns the trail of each, in their order.
///
/// All threads are pinned and warm before the first one starts. Two jobs on one PU alternate, and
/// then [`crate::overlap::paces`] finds no time in which both ran.
///
/// # Errors
/// A PU cannot be used, or a thread cannot be created. Nothing was measured then.
pub fn together(jobs: &[Job], length: Duration) -> Result<Vec<Trail>, ThreadError> {
    let prepare = |number: usize| {
        pin(jobs[number].cpu)?;
        let mut runner = Runner::new(jobs[number].workload);
        let chunk = chunk_of(&mut runner);
        Ok((runner, chunk))
    };
    let work = |_, (mut runner, chunk): (Runner, u64)| {
        let control = Control::new();
        run_chunks(chunk, length, |iterations| {
            runner.run(&control, iterations);
        })
    };
    side_by_side(jobs.len(), prepare, work, || ())
}

/// How long finding the size of a chunk may take before we make do with what we have: a sandbox
/// whose CPU clock has stopped must not block us for ever. Chosen.
const SIZING_NS: u64 = 200_000_000;

/// How many iterations take about [`CHUNK`] of CPU time, at least one.
fn chunk_of(runner: &mut Runner) -> u64 {
    let control = Control::new();
    sized(CHUNK_NS, |iterations| {
        runner.run(&control, iterations);
    })
}

/// How many iterations of `run` take about `target_ns` of CPU time, at least one.
pub(crate) fn sized(target_ns: u64, mut run: impl FnMut(u64)) -> u64 {
    let mut timed = |iterations| {
        let before = cpu_ns();
        run(iterations);
        (cpu_ns() - before).max(1)
    };
    // The least of three, because caches are cold at first and interrupts only add: one that hit a
    // single iteration would else leave chunks that are mostly clock reading.
    let mut least = |iterations| timed(iterations).min(timed(iterations)).min(timed(iterations));
    let begin = wall_ns();
    let mut iterations = 1;
    loop {
        let took = least(iterations);
        if took >= target_ns / 4 {
            return (iterations * target_ns / took).max(1);
        }
        if wall_ns() - begin > SIZING_NS {
            return iterations;
        }
        iterations *= 2;
    }
}

/// Runs chunks of `chunk` iterations of `run` for `length`, with a stamp after each.
pub(crate) fn run_chunks(chunk: u64, length: Duration, mut run: impl FnMut(u64)) -> Trail {
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let expected = usize::try_from(length_ns / CHUNK_NS).unwrap_or(0).min(1 << 20) + 16;
    let mut stamps = Vec::with_capacity(expected);
    let stamp = || Stamp { wall_ns: wall_ns(), cpu_ns: cpu_ns() };
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
        let jobs: Vec<Job> = Kernel::ALL
            .into_iter()
            .zip(cpus.iter().cycle())
            .take(3)
            .map(|(kernel, &cpu)| Job { workload: kernel.into(), cpu })
            .collect();
        let trails = together(&jobs, Duration::from_millis(2)).unwrap();
        assert_eq!(trails.len(), 3);
        for trail in trails {
            assert!(trail.chunk >= 1 && trail.stamps.len() >= 2);
            let forward = |pair: &[Stamp]| pair[0].wall_ns < pair[1].wall_ns;
            assert!(trail.stamps.windows(2).all(forward));
        }
    }

    /// Also the other jobs' threads end: the scope could not be left otherwise.
    #[test]
    fn a_pu_that_is_not_there_ends_the_whole_measurement() {
        let cpu = usable().unwrap()[0];
        let workload = Kernel::IntAdd.into();
        let jobs = [Job { workload, cpu }, Job { workload, cpu: 8_000 }];
        let message = together(&jobs, Duration::from_secs(3600)).unwrap_err().to_string();
        assert!(message.starts_with("cannot run on PU 8000: sched_setaffinity: "), "{message}");
    }

    #[test]
    fn no_jobs_leave_no_trails() {
        assert!(together(&[], Duration::from_millis(1)).unwrap().is_empty());
    }
}
