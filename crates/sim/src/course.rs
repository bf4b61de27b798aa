//! The course of a thread: its stretches, spinning, and serial parts.

use crate::scenario::{PhaseIdx, PhaseSegment, Serial};
use colocate_machine::Nanos;

/// Progress of a task on its course: the same stretches again and again, until the work is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskProgress {
    stretches: Vec<PhaseSegment>,
    /// Place of the present stretch.
    pub stretch: usize,
    /// Instructions until the stretch's end; below 0 if more were done.
    left: f64,
    /// Instructions until the work's end.
    todo: f64,
    /// Instructions of the work in all.
    pub work: f64,
    doing: Doing,
    /// Instructions of serial parts so far, on top of the work.
    pub extra: f64,
}

/// Activity of a task on a PU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    /// Its course.
    Own,
    /// Spinning, in this phase.
    Spin(PhaseIdx),
    /// The serial part of its job, with the instructions left.
    Serial(Serial, f64),
}

/// Event at the end of a stretch, serial part or work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentEnd {
    /// The next stretch.
    Phase,
    /// A sleep, then the next stretch.
    Sleep(Nanos),
    /// A wait for the job's other threads, then the next stretch.
    Barrier,
    /// The end of the serial part: the other threads may continue.
    SerialDone,
    /// The end of the work.
    Done,
}

/// Fewer instructions than this count as none left, as times are rounded to nanoseconds.
const NONE: f64 = 0.5;

impl TaskProgress {
    /// The start of a course with `work` instructions in all.
    pub fn new(stretches: Vec<PhaseSegment>, work: f64) -> Self {
        let doing = Doing::Own;
        let mut course =
            Self { stretches, stretch: 0, left: 0.0, todo: work, work, doing, extra: 0.0 };
        course.restart();
        course
    }

    /// Goes back to the start of the course, for another run.
    pub fn restart(&mut self) {
        // A single stretch without a pause is one long stretch, so that its rounds make no events.
        let endless = self.stretches.len() == 1 && !stops(&self.stretches[0]);
        let left = if endless { self.work } else { self.stretches[0].instructions as f64 };
        self.stretch = 0;
        self.left = left;
        self.todo = self.work;
        self.doing = Doing::Own;
    }

    /// Present phase, by place in `Scenario::phases`.
    pub fn phase(&self) -> usize {
        let phase = match self.doing {
            Doing::Own => self.stretches[self.stretch].phase,
            Doing::Spin(phase) => phase,
            Doing::Serial(serial, _) => serial.phase,
        };
        phase.0 as usize
    }

    /// Spins from now on, in this phase.
    pub fn spin(&mut self, phase: PhaseIdx) {
        self.doing = Doing::Spin(phase);
    }

    /// Begins a serial part, in place of the course.
    pub(crate) fn begin_serial(&mut self, serial: Serial) {
        self.doing = Doing::Serial(serial, serial.instructions as f64);
    }

    /// Goes back to the course.
    pub(crate) fn go_back(&mut self) {
        self.doing = Doing::Own;
    }

    pub fn spins(&self) -> bool {
        matches!(self.doing, Doing::Spin(_))
    }

    pub fn is_serial(&self) -> bool {
        matches!(self.doing, Doing::Serial(..))
    }

    /// Instructions until the next event, and whether its time must be exact.
    pub(crate) fn until_next(&self) -> (f64, bool) {
        match self.doing {
            Doing::Own => {}
            Doing::Spin(_) => return (f64::INFINITY, true),
            Doing::Serial(_, left) => return (left.max(0.0), true),
        }
        // The end of the work may come this little before the stretch's, by rounding.
        let exact = self.todo <= self.left + NONE || stops(&self.stretches[self.stretch]);
        (self.left.min(self.todo).max(0.0), exact)
    }

    /// Does instructions, at most to the end of the work. Returns the progress: 0 while spinning.
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

    /// Whether the next event is due.
    pub fn is_due(&self) -> bool {
        match self.doing {
            Doing::Own => self.left < NONE || self.todo < NONE,
            Doing::Spin(_) => false,
            Doing::Serial(_, left) => left < NONE,
        }
    }

    /// Handles the next event; call only if [`Self::is_due`].
    pub fn next(&mut self) -> SegmentEnd {
        if self.is_serial() {
            self.go_back();
            return SegmentEnd::SerialDone;
        }
        if self.todo < NONE {
            self.todo = 0.0;
            return SegmentEnd::Done;
        }
        // The pause is that of the stretch that ends.
        let PhaseSegment { sleep, barrier, .. } = self.stretches[self.stretch];
        self.stretch = (self.stretch + 1) % self.stretches.len();
        // Instructions done too much of the old stretch are missing from the new one.
        self.left += self.stretches[self.stretch].instructions as f64;
        if barrier {
            SegmentEnd::Barrier
        } else if sleep > Nanos::ZERO {
            SegmentEnd::Sleep(sleep)
        } else {
            SegmentEnd::Phase
        }
    }
}

/// Whether a stretch ends with a pause, at an exact time.
fn stops(stretch: &PhaseSegment) -> bool {
    stretch.barrier || stretch.sleep > Nanos::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PhaseIdx;

    fn stretch(phase: u32, instructions: u64, sleep_ms: u64) -> PhaseSegment {
        let sleep = Nanos::from_millis(sleep_ms);
        PhaseSegment { phase: PhaseIdx(phase), instructions, sleep, barrier: false }
    }

    /// 250 instructions on a course of 100 and 50: 100, 50, 100, and the first phase ends with the
    /// work.
    #[test]
    fn over_and_over_until_the_work_is_done() {
        let mut course = TaskProgress::new(vec![stretch(0, 100, 0), stretch(1, 50, 0)], 250.0);
        let mut seen = Vec::new();
        loop {
            let (until, exact) = course.until_next();
            seen.push((course.phase(), until, exact));
            course.go_on(until);
            assert!(course.is_due());
            if course.next() == SegmentEnd::Done {
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
        let mut course = TaskProgress::new(vec![stretch(0, 100, 0), stretch(1, 50, 7)], 1000.0);
        assert!((course.go_on(130.0) - 130.0).abs() < 1e-12);
        assert_eq!(course.next(), SegmentEnd::Phase);
        assert_eq!(course.until_next(), (20.0, true));
        course.go_on(20.0);
        assert_eq!(course.next(), SegmentEnd::Sleep(Nanos::from_millis(7)));
    }

    #[test]
    fn never_more_than_the_work() {
        let mut course = TaskProgress::new(vec![stretch(0, 100, 0)], 60.0);
        assert!((course.go_on(1e9) - 60.0).abs() < 1e-12);
        assert_eq!(course.next(), SegmentEnd::Done);
    }

    #[test]
    fn one_phase_again_and_again_is_one_phase() {
        let course = TaskProgress::new(vec![stretch(0, 100, 0)], 5_000.0);
        assert_eq!(course.until_next(), (5_000.0, true));
    }
}
