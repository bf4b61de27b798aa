//! A simulated thread: its state, its times and its counts.

use crate::course::TaskProgress;
use crate::outcome::Moves;
use colocate_evidence::TaskId;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_model::{CpiStack, TaskRate};
use std::collections::BTreeMap;

/// Place in the list of all tasks.
pub(crate) type TaskNo = usize;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Not created yet, or not yet in this run of its job.
    NotCreated,
    /// Running or waiting for its PU.
    Ready,
    /// Asleep for a time, at a barrier, or until its turn.
    Asleep,
    /// Runnable, but its job is stopped.
    Stopped,
    /// Over with the work of this run.
    Done,
    /// Ended for good.
    Ended,
}

/// A task with its state.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTask {
    /// Job and order of creation.
    pub id: TaskId,
    /// Job and thread name.
    pub name: String,
    pub state: TaskState,
    pub course: TaskProgress,
    /// Seconds without progress to come: refill of cold caches, wake-up, copies of pages.
    refill_s: f64,
    /// Start of its present sleep, wait or stop, or end of its work.
    since: Nanos,
    /// Time of its first creation.
    pub created: Option<Nanos>,
    /// Time of its end for good.
    pub ended: Option<Nanos>,
    pub total: TaskTotals,
    pub counted: HardwareCounts,
}

/// Rates of a running task, constant within a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Instructions per second here.
    pub speed: f64,
    /// Instructions per second alone on a core of the fastest kind.
    pub alone: f64,
    /// Bytes per second to and from memory.
    pub memory: f64,
    /// Cycles per second of its core.
    pub clock: f64,
    /// Share of its memory on other nodes.
    pub far: f64,
}

/// Hardware counts of a task, spinning included.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HardwareCounts {
    pub instructions: f64,
    /// Loads and stores; `None` if unknown in a phase's mix.
    pub accesses: Option<f64>,
    /// Misses of each cache over its PU, nearest first.
    pub misses: Vec<f64>,
    /// CPI stack, in cycles.
    pub stack: CpiStack,
    /// Instructions by phase while its job's mix was collected.
    pub by_phase: BTreeMap<usize, f64>,
}

/// Sums of a task over its life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TaskTotals {
    /// Time on a PU.
    pub ran: Nanos,
    /// Part of `ran` spent spinning.
    pub spun: Nanos,
    /// Time ready without a PU.
    pub waited: Nanos,
    /// Part of `waited` before spinning.
    pub waited_to_spin: Nanos,
    /// Time runnable while its job was stopped.
    pub stopped: Nanos,
    /// Time asleep, or over with its work.
    pub slept: Nanos,
    /// Instructions, spinning left out.
    pub instructions: f64,
    pub cycles: f64,
    /// Seconds of the same instructions alone on a core of the fastest kind.
    pub alone_s: f64,
    pub memory_bytes: f64,
    /// Instructions, each times the share of its memory on other nodes.
    pub far_instructions: f64,
    pub moves: Moves,
}

impl SimulatedTask {
    /// A task that is not created yet.
    pub fn new(id: TaskId, name: String, course: TaskProgress) -> Self {
        Self {
            id,
            name,
            state: TaskState::NotCreated,
            course,
            refill_s: 0.0,
            since: Nanos::ZERO,
            created: None,
            ended: None,
            total: TaskTotals::default(),
            counted: HardwareCounts {
                instructions: 0.0,
                accesses: Some(0.0),
                misses: Vec::new(),
                stack: CpiStack::default(),
                by_phase: BTreeMap::new(),
            },
        }
    }

    /// Its job, by place.
    pub const fn job(&self) -> usize {
        self.id.job.0 as usize
    }

    /// Whether work of this run is left.
    pub const fn has_work(&self) -> bool {
        !matches!(self.state, TaskState::Done | TaskState::Ended)
    }

    /// Whether the task was created and has not ended for good.
    pub fn is_alive(&self) -> bool {
        self.created.is_some() && self.state != TaskState::Ended
    }

    /// Goes to another state, and counts the time in the last: sleep, stop, or time over with its
    /// work. A wait for a PU is counted by [`Self::end_wait`].
    pub fn enter(&mut self, state: TaskState, now: Nanos) {
        let past = now - self.since;
        match self.state {
            TaskState::Ready | TaskState::Ended => {}
            TaskState::Stopped => self.total.stopped += past,
            // Never created in any run, so it has no times.
            TaskState::NotCreated if self.created.is_none() => {}
            TaskState::Asleep | TaskState::NotCreated | TaskState::Done => self.total.slept += past,
        }
        match (self.state, state) {
            (_, TaskState::Ended) => self.ended = self.created.and(Some(now)),
            (TaskState::NotCreated, _) => self.created = self.created.or(Some(now)),
            _ => {}
        }
        self.state = state;
        self.since = now;
    }

    /// Begins a wait for its PU.
    pub const fn begin_wait(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Counts a wait for its PU that ends now.
    pub fn end_wait(&mut self, now: Nanos) {
        let waited = self.wait(now);
        self.total.waited += waited;
        if self.course.spins() {
            self.total.waited_to_spin += waited;
        }
    }

    /// Length of its present wait for its PU.
    pub fn wait(&self, now: Nanos) -> Nanos {
        now - self.since
    }

    /// Adds seconds without progress.
    pub fn delay(&mut self, seconds: f64) {
        self.refill_s += seconds;
    }

    /// Counts a move between PUs with seconds of cold caches. Moves before the refill ends do not
    /// add up: a cache is at most all cold.
    pub fn go(&mut self, machine: &Machine, from: PuIdx, to: PuIdx, cold_s: f64) {
        if from != to {
            self.total.moves.count(machine, from, to);
        }
        self.refill_s = self.refill_s.max(cold_s);
    }

    /// Counts moved bytes of its pages.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bytes
    pub fn count_pages(&mut self, bytes: f64) {
        self.total.moves.page_bytes += bytes as u64;
    }

    /// Seconds until the next event of its course at this speed, and whether its time must be
    /// exact.
    pub fn until_next(&self, speed: f64) -> (f64, bool) {
        let (left, exact) = self.course.until_next();
        (self.refill_s + left / speed, exact)
    }

    /// Runs for a time. Returns its instructions, spinning included, and the seconds of refills.
    pub fn run(&mut self, pace: &Pace, time: Nanos) -> (f64, f64) {
        let seconds = time.as_secs_f64();
        // While it refills cold caches a task makes no progress.
        let warm = (seconds - self.refill_s).max(0.0);
        self.refill_s = (self.refill_s - seconds).max(0.0);
        let done = self.course.go_on(pace.speed * warm);
        let spins = self.course.spins();
        if spins {
            self.total.spun += time;
        }
        self.total.ran += time;
        self.total.instructions += done;
        self.total.cycles += pace.clock * seconds;
        self.total.alone_s += done / pace.alone;
        self.total.memory_bytes += pace.memory * warm;
        self.total.far_instructions += pace.far * done;
        (if spins { pace.speed * warm } else { done }, seconds - warm)
    }

    /// Counts instructions of a phase at these rates, and cycles of refills. `accesses` are for
    /// each instruction.
    pub fn count(&mut self, did: f64, refill_cycles: f64, accesses: Option<f64>, rate: &TaskRate) {
        let counted = &mut self.counted;
        counted.instructions += did;
        counted.accesses = counted.accesses.zip(accesses).map(|(sum, each)| sum + did * each);
        counted.misses.resize(counted.misses.len().max(rate.misses.len()), 0.0);
        for (sum, each) in counted.misses.iter_mut().zip(&rate.misses) {
            *sum += did * each;
        }
        add(&mut counted.stack, &rate.cpi, did);
        // The sources of refilled lines are not kept; most come from memory.
        counted.stack.memory += refill_cycles;
    }

    /// Counts instructions by phase, for the mix of its job.
    pub fn count_phase(&mut self, phase: usize, did: f64) {
        *self.counted.by_phase.entry(phase).or_default() += did;
    }
}

/// Adds a CPI stack, times a number of instructions.
fn add(sum: &mut CpiStack, each: &CpiStack, times: f64) {
    sum.core += each.core * times;
    sum.siblings += each.siblings * times;
    sum.stalls += each.stalls * times;
    sum.caches += each.caches * times;
    sum.memory += each.memory * times;
    sum.queues += each.queues * times;
    sum.communication += each.communication * times;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{PhaseIdx, PhaseSegment};
    use colocate_evidence::JobIdx;

    #[test]
    fn all_time_is_counted() {
        let sleep = Nanos::ZERO;
        let stretch = PhaseSegment { phase: PhaseIdx(0), instructions: 10, sleep, barrier: false };
        let id = TaskId { job: JobIdx(0), order: 0 };
        let mut task = SimulatedTask::new(id, "t".into(), TaskProgress::new(vec![stretch], 10.0));
        task.enter(TaskState::Ready, Nanos(5));
        task.end_wait(Nanos(6));
        task.delay(1e-9);
        let pace = Pace { speed: 1e9, alone: 1e9, memory: 0.0, clock: 2e9, far: 0.5 };
        let (did, cold_s) = task.run(&pace, Nanos(3));
        assert!((did - 2.0).abs() < 1e-9 && (cold_s - 1e-9).abs() < 1e-15);
        task.enter(TaskState::Asleep, Nanos(9));
        task.enter(TaskState::Stopped, Nanos(13));
        task.enter(TaskState::Ended, Nanos(18));
        let TaskTotals { ran, waited, slept, stopped, .. } = task.total;
        assert_eq!([waited, ran, slept, stopped], [Nanos(1), Nanos(3), Nanos(4), Nanos(5)]);
        assert_eq!((task.created, task.ended), (Some(Nanos(5)), Some(Nanos(18))));
        assert!(!task.is_alive() && !task.has_work());
    }
}
