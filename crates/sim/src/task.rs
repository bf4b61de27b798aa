//! A simulated thread: what it has done, what it is to do, where its memory is.

use crate::outcome::Moves;
use crate::scenario::Stretch;
use colocate_machine::{Nanos, PuIdx};
use colocate_policy::TaskId;

/// Whether a task can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is not born yet, or its job has to be launched again first.
    Unborn,
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
}

/// What comes next on a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another phase, maybe the same again.
    Phase,
    /// Sleep, then another phase.
    Sleep(Nanos),
    /// Nothing: the work is done.
    Done,
}

/// Less than one instruction is none: what is left when a time was rounded to nanoseconds.
const NONE: f64 = 0.5;

impl Course {
    /// The start of it; `work` instructions in all.
    pub fn new(stretches: Vec<Stretch>, work: f64) -> Self {
        let mut course = Self { stretches, at: 0, left: 0.0, todo: work, work };
        course.restart();
        course
    }

    pub fn restart(&mut self) {
        // The same phase again and again is one long phase.
        let endless = self.stretches.len() == 1 && self.stretches[0].sleep == Nanos::ZERO;
        let left = if endless { self.work } else { instructions(&self.stretches[0]) };
        (self.at, self.left, self.todo) = (0, left, self.work);
    }

    pub fn phase(&self) -> usize {
        self.stretches[self.at].phase.0 as usize
    }

    /// Instructions until something comes next, and whether it has to come exactly then.
    pub fn until_next(&self) -> (f64, bool) {
        // The last stretch ends with the work, but for rounding.
        let exact = self.todo <= self.left + NONE || self.stretches[self.at].sleep > Nanos::ZERO;
        (self.left.min(self.todo).max(0.0), exact)
    }

    /// Does so many instructions; never more than the work asks for. Returns how many.
    pub fn go_on(&mut self, instructions: f64) -> f64 {
        let done = instructions.min(self.todo);
        self.left -= done;
        self.todo -= done;
        done
    }

    pub fn is_due(&self) -> bool {
        self.left < NONE || self.todo < NONE
    }

    /// Goes on to what comes next. Call it when [`Self::is_due`].
    pub fn next(&mut self) -> Next {
        if self.todo < NONE {
            self.todo = 0.0;
            return Next::Done;
        }
        let sleep = self.stretches[self.at].sleep;
        self.at = (self.at + 1) % self.stretches.len();
        // What was done too much of the old phase is missing from the new one.
        self.left += instructions(&self.stretches[self.at]);
        if sleep > Nanos::ZERO { Next::Sleep(sleep) } else { Next::Phase }
    }

    pub fn work(&self) -> f64 {
        self.work
    }
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
    /// Where it runs, waits or ran last; `None` before its birth.
    pub pu: Option<PuIdx>,
    /// The PU that a plan wants it on.
    pub pinned: Option<PuIdx>,
    pub course: Course,
    /// Virtual time of EEVDF: on a queue its own, off a queue its lag behind the queue's mean.
    pub virtual_time: i64,
    /// Seconds for which it makes no progress yet, since caches are cold.
    pub debt: f64,
    /// Bytes that it held of each cache over its PU when it last ran, nearest first.
    pub occupancy: Vec<f64>,
    /// Share of its memory on each node; empty on a machine without nodes.
    pub pages: Vec<f64>,
    /// Grows whenever `pages` change.
    pub pages_version: u32,
    /// When NUMA balancing looks at it next.
    pub next_scan: Nanos,
    /// The node that it was on when NUMA balancing last looked.
    pub scanned_from: Option<usize>,
    /// When it began to sleep or wait, or was stopped.
    pub since: Nanos,
    pub born: Option<Nanos>,
    pub ended: Option<Nanos>,
    pub total: Totals,
}

/// What a task has had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub ran: Nanos,
    pub waited: Nanos,
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
        Stretch { phase: PhaseIdx(phase), instructions, sleep: Nanos::from_millis(sleep_ms) }
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
