//! Runs workloads beside each other, each pinned to a PU, and keeps their trails.

use crate::control::Control;
use crate::kernel::Workload;
use crate::overlap::{Stamp, Trail};
use crate::runner::Runner;
use crate::thread::{PinError, cpu_ns, pin, wall_ns};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// A workload and the PU it runs on, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What runs.
    pub workload: Workload,
    /// Where.
    pub cpu: u32,
}

/// Why a measurement did not take place.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A thread is not where it should be.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A thread could not be made.
    #[error("cannot start a thread: {source}")]
    Spawn {
        /// What the kernel said.
        source: io::Error,
    },
}

/// How long a chunk should take: short beside a time slice, so that an interruption costs little;
/// long beside reading two clocks, about 0.3 µs (measured on a Sapphire Rapids guest,
/// 2026-11-21).
pub const CHUNK: Duration = Duration::from_nanos(CHUNK_NS);
const CHUNK_NS: u64 = 100_000;

/// Runs `jobs` at the same time for `length`, and says what each did, in their order.
///
/// All threads are pinned and warm before the first one starts. Two jobs on one PU take turns, and
/// then [`crate::overlap::paces`] finds no time in which both ran.
///
/// # Errors
/// [`MeasureError`]: a PU cannot be used, or a thread cannot be made. Nothing was measured then.
pub fn together(jobs: &[Job], length: Duration) -> Result<Vec<Trail>, MeasureError> {
    let (ready, prepared) = channel();
    std::thread::scope(|scope| {
        // A thread whose start is dropped ends at once, so every way out of here ends them all.
        let started: Vec<_> = jobs
            .iter()
            .map(|job| start(scope, *job, length, ready.clone()))
            .collect::<io::Result<_>>()
            .map_err(|source| MeasureError::Spawn { source })?;
        drop(ready);
        prepared.iter().take(jobs.len()).collect::<Result<Vec<()>, _>>()?;
        let mut trails = Vec::with_capacity(jobs.len());
        let (go, threads): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        for go in &go {
            // All have said that they wait.
            let _ = go.send(());
        }
        for thread in threads {
            trails.extend(thread.join().expect("a worker has nothing to panic about"));
        }
        Ok(trails)
    })
}

type Started<'scope> = (Sender<()>, ScopedJoinHandle<'scope, Option<Trail>>);

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    job: Job,
    length: Duration,
    ready: Sender<Result<(), PinError>>,
) -> io::Result<Started<'scope>> {
    let (go, wait) = channel();
    let name = format!("smt-bench {}", job.cpu);
    let thread =
        Builder::new().name(name).spawn_scoped(scope, move || work(job, length, &ready, &wait))?;
    Ok((go, thread))
}

/// One thread: prepares, says so, waits for the start, works. `None` if it was never started.
fn work(
    job: Job,
    length: Duration,
    ready: &Sender<Result<(), PinError>>,
    go: &Receiver<()>,
) -> Option<Trail> {
    if let Err(error) = pin(job.cpu) {
        // Nobody left to tell means that another thread failed before.
        let _ = ready.send(Err(error));
        return None;
    }
    let mut runner = Runner::new(job.workload);
    let chunk = chunk_of(&mut runner);
    let _ = ready.send(Ok(()));
    go.recv().ok()?;
    Some(run_chunks(&mut runner, chunk, length))
}

/// How long finding the size of a chunk may take before we make do with what we have: a sandbox
/// whose CPU clock stands still must not hold us for ever. Chosen.
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

fn run_chunks(runner: &mut Runner, chunk: u64, length: Duration) -> Trail {
    let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let expected = usize::try_from(length_ns / CHUNK_NS).unwrap_or(0).min(1 << 20) + 16;
    let mut stamps = Vec::with_capacity(expected);
    let stamp = || Stamp { wall_ns: wall_ns(), cpu_ns: cpu_ns() };
    let control = Control::new();
    let first = stamp();
    let end = first.wall_ns.saturating_add(length_ns);
    stamps.push(first);
    loop {
        runner.run(&control, chunk);
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
        let told = together(&jobs, Duration::from_secs(3600)).unwrap_err().to_string();
        assert!(told.starts_with("cannot run on PU 8000: sched_setaffinity: "), "{told}");
    }

    #[test]
    fn no_jobs_leave_no_trails() {
        assert!(together(&[], Duration::from_millis(1)).unwrap().is_empty());
    }
}
