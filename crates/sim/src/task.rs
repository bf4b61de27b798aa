//! A simulated thread: what it has done, what it is to do, where its memory is.

use crate::outcome::Moves;
use crate::region::Use;
use crate::scenario::{PhaseIdx, Serial, Stretch};
use crate::woken::Woken;
use colocate_evidence::TaskId;
use colocate_machine::{Nanos, PuIdx};
use colocate_model::CpiStack;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place in the list of all tasks.
pub(crate) type TaskNo = usize;

/// `NICE_0_LOAD`, scaled down, and `WEIGHT_IDLEPRIO` (kernel/sched/sched.h, 6.18).
pub(crate) const NORMAL: i64 = 1024;
pub(crate) const FILLER: i64 = 3;

impl Task {
    /// Whether the plan lets it be on any PU.
    pub fn is_unbound(&self) -> bool {
        self.pinned.is_none() && self.among.is_none()
    }

    /// Its weight on a queue.
    pub const fn weight(&self) -> i64 {
        if self.fills { FILLER } else { NORMAL }
    }
}

/// Whether a task can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is not created yet, or its job has to be launched again first.
    NotCreated,
    /// It runs or waits for its PU.
    Ready,
    /// It sleeps.
    Asleep,
    /// It could run, but its job is stopped.
    Stopped,
    /// It has done the work of this run.
    Done,
    /// It ended for good.
    Ended,
}

/// How far a task is with what it does: over and over the same stretches, until the work is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Course {
    stretches: Vec<Stretch>,
    at: usize,
    /// Instructions until the stretch is over; below 0 if more were done than that.
    left: f64,
    /// Instructions until the work is done.
    todo: f64,
    work: f64,
    doing: Doing,
    /// Instructions of serial parts that it has done, beyond its work.
    extra: f64,
}

/// What a task that is on a PU does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    /// What its course says.
    Own,
    /// Nothing but wait for others.
    Spin(PhaseIdx),
    /// What one thread does for all, and how many instructions of it are left.
    Serial(Serial, f64),
}

/// What comes next on a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another phase, maybe the same again.
    Phase,
    /// Sleep, then another phase.
    Sleep(Nanos),
    /// Wait for the other threads of the job, then another phase.
    Barrier,
    /// The serial part is done, and the others may go on.
    SerialDone,
    /// Nothing: the work is done.
    Done,
}

/// Less than one instruction is none: what is left when a time was rounded to nanoseconds.
const NONE: f64 = 0.5;

impl Course {
    /// The start of it; `work` instructions in all.
    pub fn new(stretches: Vec<Stretch>, work: f64) -> Self {
        let (doing, extra) = (Doing::Own, 0.0);
        let mut course = Self { stretches, at: 0, left: 0.0, todo: work, work, doing, extra };
        course.restart();
        course
    }

    pub fn restart(&mut self) {
        // The same phase again and again is one long phase.
        let endless = self.stretches.len() == 1 && !stops(&self.stretches[0]);
        let left = if endless { self.work } else { instructions(&self.stretches[0]) };
        (self.at, self.left, self.todo) = (0, left, self.work);
        self.doing = Doing::Own;
    }

    /// The place of the stretch that it is in.
    pub const fn stretch(&self) -> usize {
        self.at
    }

    pub fn phase(&self) -> usize {
        let phase = match self.doing {
            Doing::Own => self.stretches[self.at].phase,
            Doing::Spin(phase) => phase,
            Doing::Serial(serial, _) => serial.phase,
        };
        phase.0 as usize
    }

    /// Does nothing from now on but wait.
    pub fn spin(&mut self, phase: PhaseIdx) {
        self.doing = Doing::Spin(phase);
    }

    /// Does a serial part first.
    #[allow(clippy::cast_precision_loss)] // as for stretches
    pub(crate) fn begin_serial(&mut self, serial: Serial) {
        self.doing = Doing::Serial(serial, serial.instructions as f64);
    }

    /// Goes back to what its course says.
    pub(crate) fn go_back(&mut self) {
        self.doing = Doing::Own;
    }

    pub fn spins(&self) -> bool {
        matches!(self.doing, Doing::Spin(_))
    }

    pub fn is_serial(&self) -> bool {
        matches!(self.doing, Doing::Serial(..))
    }

    /// Instructions of serial parts that it has done, beyond its work.
    pub fn extra(&self) -> f64 {
        self.extra
    }

    /// Instructions until something comes next, and whether it has to come exactly then.
    pub(crate) fn until_next(&self) -> (f64, bool) {
        match self.doing {
            Doing::Own => {}
            Doing::Spin(_) => return (f64::INFINITY, true),
            Doing::Serial(_, left) => return (left.max(0.0), true),
        }
        // The last stretch ends with the work, but for rounding.
        let exact = self.todo <= self.left + NONE || stops(&self.stretches[self.at]);
        (self.left.min(self.todo).max(0.0), exact)
    }

    /// Does so many instructions; never more than the work has. Returns how many count as work: none of
    /// those with which it only waits.
    pub fn go_on(&mut self, instructions: f64) -> f64 {
        match &mut self.doing {
            Doing::Own => {}
            Doing::Spin(_) => return 0.0,
            Doing::Serial(_, left) => {
                let done = instructions.min(*left);
                *left -= done;
                self.extra += done;
                return done;
            }
        }
        let done = instructions.min(self.todo);
        self.left -= done;
        self.todo -= done;
        done
    }

    pub fn is_due(&self) -> bool {
        match self.doing {
            Doing::Own => self.left < NONE || self.todo < NONE,
            Doing::Spin(_) => false,
            Doing::Serial(_, left) => left < NONE,
        }
    }

    /// Goes on to what comes next. Call it when [`Self::is_due`].
    pub fn next(&mut self) -> Next {
        if self.is_serial() {
            self.go_back();
            return Next::SerialDone;
        }
        if self.todo < NONE {
            self.todo = 0.0;
            return Next::Done;
        }
        let Stretch { sleep, barrier, .. } = self.stretches[self.at];
        self.at = (self.at + 1) % self.stretches.len();
        // What was done too much of the old phase is missing from the new one.
        self.left += instructions(&self.stretches[self.at]);
        match barrier {
            true => Next::Barrier,
            false if sleep > Nanos::ZERO => Next::Sleep(sleep),
            false => Next::Phase,
        }
    }

    pub fn work(&self) -> f64 {
        self.work
    }
}

/// Whether something happens at its end that has to happen exactly then.
fn stops(stretch: &Stretch) -> bool {
    stretch.barrier || stretch.sleep > Nanos::ZERO
}

#[allow(clippy::cast_precision_loss)] // stretches of 2^53 instructions take weeks
fn instructions(stretch: &Stretch) -> f64 {
    stretch.instructions as f64
}

/// A task with all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub id: TaskId,
    pub name: String,
    pub state: State,
    /// Where it runs, waits or ran last; `None` before its creation.
    pub pu: Option<PuIdx>,
    /// Its target PU by the plan.
    pub pinned: Option<PuIdx>,
    /// The PUs of which it may be on any by the plan, in logical order; `None`: one, or all.
    pub among: Option<Arc<[PuIdx]>>,
    /// Whether its job has to wait and fills idle PUs.
    pub fills: bool,
    pub course: Course,
    /// Virtual time of EEVDF: on a queue its own, off a queue its lag behind the queue's mean.
    pub virtual_time: i64,
    /// Seconds for which it makes no progress yet, since caches are cold.
    pub refill_s: f64,
    /// Bytes that it held of each cache over its PU when it last ran, nearest first.
    pub occupancy: Vec<f64>,
    /// How often these had been filled when it was stopped; `None` if it was not since it last ran.
    pub stopped_at: Option<Vec<f64>>,
    /// How often it has come to a barrier in this run of its job.
    pub arrived: u64,
    /// Whether it waits there, or for its turn.
    pub at_barrier: bool,
    /// How often it has its turn; only where threads take turns.
    pub turns: u32,
    /// That it was woken and has had no PU since.
    pub woken: Option<Woken>,
    /// What memory it uses, its own last; none on a machine without nodes.
    pub uses: Vec<Use>,
    /// The node that it stays on by its own will.
    pub stays_on: Option<usize>,
    /// Share of its accesses that go to each node; empty on a machine without nodes.
    pub pages: Vec<f64>,
    /// Grows whenever `pages` change.
    pub pages_version: u32,
    /// When NUMA balancing scans it next.
    pub next_scan: Nanos,
    /// When it began to sleep or wait, or was stopped.
    pub since: Nanos,
    pub created: Option<Nanos>,
    pub ended: Option<Nanos>,
    pub total: Totals,
    pub counted: Counted,
    /// Instructions that it did while it was watched, by phase.
    pub watched: BTreeMap<usize, f64>,
}

/// What counters would have counted of it, waiting included.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub instructions: f64,
    /// Loads and stores; `None` if a phase does not say how many there are.
    pub accesses: Option<f64>,
    /// Misses of each cache over its PU, nearest first.
    pub misses: Vec<f64>,
    /// In cycles.
    pub stack: CpiStack,
}

/// What a task has had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub ran: Nanos,
    /// Of that, what it spun.
    pub spun: Nanos,
    /// For a PU.
    pub waited: Nanos,
    /// Of that, what it would have spun.
    pub waited_to_spin: Nanos,
    /// For its job to go on.
    pub stopped: Nanos,
    pub slept: Nanos,
    pub instructions: f64,
    pub cycles: f64,
    pub alone_s: f64,
    pub memory_bytes: f64,
    pub far_instructions: f64,
    pub moves: Moves,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PhaseIdx;

    fn stretch(phase: u32, instructions: u64, sleep_ms: u64) -> Stretch {
        let sleep = Nanos::from_millis(sleep_ms);
        Stretch { phase: PhaseIdx(phase), instructions, sleep, barrier: false }
    }

    /// 250 instructions on a course of 100 and 50: 100, 50, 100, and the first phase ends with the work.
    #[test]
    fn over_and_over_until_the_work_is_done() {
        let mut course = Course::new(vec![stretch(0, 100, 0), stretch(1, 50, 0)], 250.0);
        let mut seen = Vec::new();
        loop {
            let (until, exact) = course.until_next();
            seen.push((course.phase(), until, exact));
            course.go_on(until);
            assert!(course.is_due());
            if course.next() == Next::Done {
                break;
            }
        }
        assert_eq!(seen, [(0, 100.0, false), (1, 50.0, false), (0, 100.0, true)]);
        course.restart();
        assert_eq!((course.phase(), course.until_next()), (0, (100.0, false)));
    }

    /// 130 in one go of a phase of 100: 30 fewer of the next.
    #[test]
    fn what_was_too_much_is_missing_later() {
        let mut course = Course::new(vec![stretch(0, 100, 0), stretch(1, 50, 7)], 1000.0);
        assert!((course.go_on(130.0) - 130.0).abs() < 1e-12);
        assert_eq!(course.next(), Next::Phase);
        assert_eq!(course.until_next(), (20.0, true));
        course.go_on(20.0);
        assert_eq!(course.next(), Next::Sleep(Nanos::from_millis(7)));
    }

    #[test]
    fn never_more_than_the_work() {
        let mut course = Course::new(vec![stretch(0, 100, 0)], 60.0);
        assert!((course.go_on(1e9) - 60.0).abs() < 1e-12);
        assert_eq!(course.next(), Next::Done);
    }

    #[test]
    fn one_phase_again_and_again_is_one_phase() {
        let course = Course::new(vec![stretch(0, 100, 0)], 5_000.0);
        assert_eq!(course.until_next(), (5_000.0, true));
    }
}
