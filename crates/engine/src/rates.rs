//! Rates of the last quantum: differences of a host's counters.
//!
//! A counter that was unknown in the last observation has no difference: its value covers an
//! unknown time. Only if the thread did not exist then, or had not run, is the whole value new.

use colocate_evidence::{SeenTask, TaskId};
use colocate_machine::{CacheKind, Machine, Nanos, PuIdx, PuNr};
use colocate_model::Stack;
use colocate_policy::schedule::{Rates, Traffic};

/// Estimated rates of a thread or of several threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimated {
    /// Instructions per cycle.
    pub ipc: bool,
    /// Requests to caches and memory.
    pub traffic: bool,
    /// Stack of cycles.
    pub stack: bool,
}

impl Estimated {
    /// Whether any rate is estimated.
    pub const fn any(self) -> bool {
        self.ipc || self.traffic || self.stack
    }
}

/// Activity of a thread of a chosen job in a quantum.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadRates {
    /// The thread.
    pub id: TaskId,
    /// PU of its last run; `None` if the thread ended before it was read.
    pub pu: Option<PuNr>,
    /// CPU time used; `None` if the host does not report it.
    pub time: Option<Nanos>,
    /// Rates over that time.
    pub ran: Rates,
    /// Largest deviation up to now of the sum of its parts from all cycles, as a share, before the
    /// parts were scaled to add up.
    pub off: f64,
    /// Rates predicted by the model instead of counted.
    pub estimated: Estimated,
}

/// Activity of a thread between two observations; `None` if it did not run.
pub(crate) fn of_thread(
    machine: &Machine,
    task: &SeenTask,
    before: Option<&SeenTask>,
) -> Option<ThreadRates> {
    let earlier = before.and_then(|before| before.cpu_time).unwrap_or(Nanos::ZERO);
    let time = task.cpu_time.map(|now| now.saturating_sub(earlier));
    if time == Some(Nanos::ZERO) {
        return None;
    }
    let had_run = ran_by(before);
    let since = |of: &dyn Fn(&SeenTask) -> Option<u64>| {
        let then = before.and_then(of).or((!had_run).then_some(0));
        Some(float(of(task)?.saturating_sub(then?)))
    };
    let cycles = since(&|task| task.cycles).filter(|cycles| *cycles > 0.0);
    let instructions = since(&|task| task.instructions);
    let requests = |place: usize| {
        // The nearest cache gets all accesses, each further level the misses before it.
        let counted = match place.checked_sub(1) {
            None => since(&|task| task.counts.as_ref()?.accesses),
            Some(nearer) => {
                since(&|task| task.counts.as_ref()?.misses.as_ref()?.get(nearer).copied())
            }
        };
        Some(counted? / (float(time?.0) / 1000.0)) // transactions per microsecond
    };
    let levels = task.last_ran.and_then(|pu| machine.pu_by_os(pu));
    let levels = levels.map_or(Vec::new(), |pu| data_levels(machine, pu));
    let stack = stack(task, before);
    let shares = stack.and_then(|stack| stack.shares());
    let known = stack.filter(|_| shares.is_some());
    let ran = Rates {
        ipc: instructions.zip(cycles).map(|(instructions, cycles)| instructions / cycles),
        traffic: by_level(&levels, requests),
        stack: shares,
        parts: known.map_or(&[], |stack| stack.parts()),
    };
    Some(ThreadRates {
        id: task.id,
        pu: task.last_ran,
        time,
        ran,
        off: known.map_or(0.0, |stack| stack.off()),
        estimated: Estimated::default(),
    })
}

/// Share of `took`, the time between two observations, in which a thread had a PU or waited for it,
/// without spin time.
pub(crate) fn runnable(task: &SeenTask, before: Option<&SeenTask>, took: Nanos) -> Option<f64> {
    let since = |of: &dyn Fn(&SeenTask) -> Option<Nanos>| {
        Some(of(task)?.saturating_sub(before.and_then(of).unwrap_or(Nanos::ZERO)))
    };
    let wanted = since(&|task| task.cpu_time)? + since(&|task| task.waited)?;
    let spun = since(&|task| task.spun).unwrap_or(Nanos::ZERO);
    let share = float(wanted.saturating_sub(spun).0) / float(took.0);
    // A quantum of no length has no shares.
    share.is_finite().then(|| share.min(1.0))
}

/// Requests to each level of caches and to memory. `levels` are the levels over a PU, nearest
/// first; `requests` returns the requests to the cache at an index of `levels`, and to memory at
/// the index after the last.
pub(crate) fn by_level(levels: &[u8], requests: impl Fn(usize) -> Option<f64>) -> Traffic {
    let mut traffic = Traffic::default();
    for (place, level) in levels.iter().enumerate() {
        // Levels count from 1.
        if let Some(cache) = traffic.caches.get_mut(usize::from(*level).saturating_sub(1)) {
            *cache = requests(place);
        }
    }
    if !levels.is_empty() {
        traffic.memory = requests(levels.len());
    }
    traffic
}

/// Levels of the data caches over a PU, nearest first.
pub(crate) fn data_levels(machine: &Machine, pu: PuIdx) -> Vec<u8> {
    let over = machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction);
    over.filter(|cache| cache.pus.contains(&pu)).map(|cache| cache.level).collect()
}

/// Stack of the cycles between two observations.
fn stack(task: &SeenTask, before: Option<&SeenTask>) -> Option<Stack> {
    let now = task.stack()?;
    match before.and_then(SeenTask::stack) {
        Some(before) => now.since(&before),
        None => (!ran_by(before)).then_some(now),
    }
}

/// Whether a thread was in an observation and had run by then, as far as known.
fn ran_by(observed: Option<&SeenTask>) -> bool {
    observed.is_some_and(|task| task.cpu_time != Some(Nanos::ZERO))
}

fn float(count: u64) -> f64 {
    count as f64
}
