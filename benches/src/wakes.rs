//! Where threads that wake each other are put, as `workloads/scheduler/wakes.c` counts it on a real
//! kernel, and the same of the simulated one.

use crate::spread::adding;
use anyhow::{Context, bail, ensure};
use colocate_machine::{Bytes, Machine, Nanos, Performance};
use colocate_model::Assumptions;
use colocate_policy::Plan;
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, KernelScheduler, Method, Pages, PhaseIdx, PhaseSegment,
    Platform, Scenario, SimHost, ThreadSpec, TotalWork, Wake, WakeAffine, WakeChoices,
};

/// How threads wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pairs by pipes.
    Pipe,
    /// Pairs by futexes.
    Futex,
    /// A ring by pipes, with one message.
    Ring,
    /// All at a barrier.
    Barrier,
}

/// A scenario of `wakes.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Name of the scenario in a log.
    pub words: String,
    /// How threads wake each other.
    pub kind: Kind,
    /// Number of pairs, or of threads.
    pub threads: usize,
    /// Number of threads that compute beside.
    pub loops: usize,
    /// CPU time of a thread between two wake-ups.
    pub work: Nanos,
    /// How long; the first third is not counted.
    pub time: Nanos,
}

/// Shares of the wake-ups after which a thread was put on its waker's PU, on its previous PU that
/// was not its waker's, and on another; last of all those under the waker's last-level cache.
pub type Shares = [f64; 4];

/// Log of one machine: head, kernel, and the shares of each round by scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Logs {
    /// Lines of the head without their `#`.
    pub head: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// By scenario, a round each.
    pub logs: Vec<(Doing, Vec<Shares>)>,
}

impl Logs {
    /// Adds a round of a scenario.
    fn add(&mut self, doing: Doing, shares: Shares) {
        match self.logs.iter_mut().find(|(known, _)| *known == doing) {
            Some((_, rounds)) => rounds.push(shares),
            None => self.logs.push((doing, vec![shares])),
        }
    }
}

impl Doing {
    /// Reads `KIND:THREADS:LOOPS:US:MS`.
    ///
    /// # Errors
    /// If `words` is not of this form.
    pub fn parse(words: &str) -> anyhow::Result<Self> {
        let wrong = || format!("expected KIND:THREADS:LOOPS:US:MS, found {words}");
        let mut parts = words.split(':');
        let kind = match parts.next() {
            Some("pipe") => Kind::Pipe,
            Some("futex") => Kind::Futex,
            Some("ring") => Kind::Ring,
            Some("barrier") => Kind::Barrier,
            _ => bail!(wrong()),
        };
        let numbers: Vec<usize> =
            parts.map(str::parse).collect::<Result<_, _>>().with_context(wrong)?;
        let [threads, loops, us, ms] = numbers[..] else { bail!(wrong()) };
        ensure!(threads > 0 && us > 0, wrong());
        let work = Nanos(1_000 * us as u64);
        let time = Nanos::from_millis(ms as u64);
        Ok(Self { words: words.to_owned(), kind, threads, loops, work, time })
    }
}

/// Reads the output of `wakes.c` after a head of lines that begin with `#`. A scenario that comes
/// again is another round.
///
/// # Errors
/// If a line is not of `wakes.c`, or a scenario without wake-ups.
pub fn parse(text: &str) -> anyhow::Result<Logs> {
    let mut logs = Logs { head: Vec::new(), kernel: String::new(), logs: Vec::new() };
    let mut doing = None;
    for line in text.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        match columns[..] {
            [line] if line.starts_with('#') => logs.head.push(line[1..].trim().to_owned()),
            ["kernel", release, _] => logs.kernel = release.to_owned(),
            ["scenario", words] => doing = Some(Doing::parse(words)?),
            ["chosen", waker, previous, other, near] => {
                let doing = doing.take().context("expected a scenario first")?;
                let [waker, previous] = [waker.parse()?, previous.parse()?];
                let [other, near] = [other.parse()?, near.parse()?];
                let shares = shares(WakeChoices { waker, previous, other, near });
                let shares = shares.with_context(|| format!("{}: no wake-ups", doing.words))?;
                logs.add(doing, shares);
            }
            _ => bail!("expected a line of wakes.c, found {line:?}"),
        }
    }
    Ok(logs)
}

/// The shares; `None` without wake-ups.
fn shares(choices: WakeChoices) -> Option<Shares> {
    let numbers = [choices.waker, choices.previous, choices.other, choices.near];
    let all = choices.waker + choices.previous + choices.other;
    (all > 0).then(|| numbers.map(|number| number as f64 / all as f64))
}

/// Simulates the same threads under the simulated kernel.
///
/// # Errors
/// If the machine cannot be simulated, or no thread is woken.
pub fn simulate(
    doing: &Doing,
    (machine, performance): (&Machine, &Performance),
    kernel: KernelScheduler,
    seed: u64,
) -> anyhow::Result<Shares> {
    let platform = Platform::new(machine, performance, Assumptions::default())?;
    let kernel = if doing.kind == Kind::Futex { without_sync(kernel) } else { kernel };
    let scenario = scenario(doing, performance.kinds[0].clock.0, kernel, seed);
    let mut host = SimHost::new(&platform, &scenario)?;
    let plan = Plan { version: colocate_policy::plan::VERSION, ..Plan::default() };
    let first = Nanos(doing.time.0 / 3);
    host.go_on(&plan, first)?;
    let before = host.wake_choices();
    host.go_on(&plan, doing.time - first)?;
    let after = host.wake_choices();
    shares(WakeChoices {
        waker: after.waker - before.waker,
        previous: after.previous - before.previous,
        other: after.other - before.other,
        near: after.near - before.near,
    })
    .context("expected wake-ups")
}

/// The kernel for threads whose wake-ups are not synchronous.
fn without_sync(kernel: KernelScheduler) -> KernelScheduler {
    let wake = match kernel.wake {
        Wake::IdleSibling { idle_cores, recent, affine: Some(affine) } => {
            let affine = Some(WakeAffine { sync: false, ..affine });
            Wake::IdleSibling { idle_cores, recent, affine }
        }
        wake => wake,
    };
    KernelScheduler { wake, ..kernel }
}

fn scenario(doing: &Doing, clock: u64, kernel: KernelScheduler, seed: u64) -> Scenario {
    let endless = u64::MAX >> 12;
    let turns = Some(Barrier { wait: BarrierWait::Turns(1), serial: None });
    let meets = Some(Barrier { wait: BarrierWait::Sleep, serial: None });
    let work = clock / 1_000_000 * (doing.work.0 / 1_000);
    let (jobs, threads, barrier) = match doing.kind {
        Kind::Pipe | Kind::Futex => (doing.threads, 2, turns),
        Kind::Ring => (1, doing.threads, turns),
        Kind::Barrier => (1, doing.threads, meets),
    };
    let mut all: Vec<JobSpec> = Vec::new();
    all.extend((0..doing.loops).map(|_| job("loop", 1, endless, None)));
    all.extend((0..jobs).map(|_| job("woken", threads, work, barrier)));
    Scenario {
        name: doing.words.clone(),
        seed,
        phases: vec![adding()],
        jobs: all,
        method: Method::Leave,
        quantum: doing.time,
        grain: Nanos::ZERO,
        horizon: doing.time,
        usable: None,
        events: Vec::new(),
        kernel,
    }
}

/// Threads that do so many instructions again and again, and meet or take turns after each.
fn job(name: &str, threads: usize, instructions: u64, barrier: Option<Barrier>) -> JobSpec {
    let part = PhaseSegment {
        phase: PhaseIdx(0),
        instructions,
        sleep: Nanos::ZERO,
        barrier: barrier.is_some(),
    };
    let thread = ThreadSpec {
        name: name.to_owned(),
        born: Nanos::ZERO,
        course: vec![part],
        work: TotalWork::Instructions(u64::MAX >> 12),
        pages: Pages::FirstTouch,
        resident: Bytes::mib(1),
    };
    JobSpec {
        memory: Vec::new(),
        name: name.to_owned(),
        arrives: Nanos::ZERO,
        threads: vec![thread; threads],
        barrier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "# machine: two\nkernel\t6.18\t2\n\
        scenario\tpipe:1:0:50:900\nchosen\t1\t2\t1\t4\n\
        scenario\tbarrier:4:2:50:900\nchosen\t0\t8\t0\t8\n\
        scenario\tpipe:1:0:50:900\nchosen\t4\t0\t0\t4\n";

    #[test]
    fn rounds_of_a_scenario_are_together() {
        let logs = parse(LOG).unwrap();
        assert_eq!((logs.head, logs.kernel.as_str()), (vec!["machine: two".to_owned()], "6.18"));
        let [(pipe, rounds), (barrier, _)] = &logs.logs[..] else { panic!("{:?}", logs.logs) };
        assert_eq!(rounds, &[[0.25, 0.5, 0.25, 1.0], [1.0, 0.0, 0.0, 1.0]]);
        assert_eq!(
            (pipe.kind, pipe.loops, barrier.kind, barrier.loops),
            (Kind::Pipe, 0, Kind::Barrier, 2)
        );
    }

    #[test]
    fn a_log_of_something_else_is_refused() {
        for text in
            ["scenario\tpipe:1:0", "scenario\tnap:1:0:50:900", "chosen\t1\t2\t1\t4", "other"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let none = LOG.replace("1\t2\t1\t4", "0\t0\t0\t0");
        assert!(parse(&none).unwrap_err().to_string().contains("no wake-ups"));
    }
}
