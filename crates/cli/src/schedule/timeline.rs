//! The course of a job: when it was serial, when parallel, and when it slept.
//!
//! A stretch is made of quanta, so it begins and ends with one: a phase that is shorter is not seen. What a
//! quantum's phase is says [`Hysteresis::next`], which the schedulers that look at phases ask as well.

use super::mean::Mean;
use colocate_machine::Nanos;
use colocate_policy::schedule::phases::{Hysteresis, JobPhase};
use std::collections::VecDeque;

/// Most stretches of a job that are kept from its beginning on. Chosen: with a change every quantum of 100 ms, half an
/// hour.
const MOST: usize = 20_000;
/// Most of those that all jobs of a workload keep together. Chosen: 48 MB, and 250 MB of JSON.
const MOST_OF_ALL: usize = 1_000_000;
/// How many are kept of those after them, the last ones. Chosen: a picture shows 20 quanta.
const LATE: usize = 64;

/// A time for which a job was in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Which.
    pub phase: JobPhase,
    /// When its first quantum began, since the launch.
    pub from: Nanos,
    /// When its last quantum ended.
    pub to: Nanos,
    /// When it was noticed: at the end of its first quantum.
    pub noticed: Nanos,
    /// How many of the job's threads were runnable.
    pub runnable: Mean,
}

/// The phases of a job so far.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Most that are kept from the beginning on; 0 if only the last ones are wanted.
    most: usize,
    /// These.
    stretches: Vec<Stretch>,
    /// The last ones of those after them.
    late: VecDeque<Stretch>,
    /// The phase in the quantum in which it last ran, and how many threads were runnable then.
    now: Option<(JobPhase, f64)>,
    /// Time in each phase, in the order of [`ORDER`].
    spent: [Nanos; 3],
    runnable: Mean,
}

/// The phases in the order in which they are told.
pub const ORDER: [JobPhase; 3] = [JobPhase::Serial, JobPhase::Parallel, JobPhase::Asleep];

impl Default for Timeline {
    fn default() -> Self {
        Self::keeping(MOST)
    }
}

impl Timeline {
    /// One that keeps so many stretches from the beginning on.
    const fn keeping(most: usize) -> Self {
        Self {
            most,
            stretches: Vec::new(),
            late: VecDeque::new(),
            now: None,
            spent: [Nanos::ZERO; 3],
            runnable: Mean::NONE,
        }
    }

    /// One of a workload of so many jobs, which bound their memory together.
    pub fn one_of(jobs: usize) -> Self {
        Self::keeping(MOST.min(MOST_OF_ALL / jobs.max(1)))
    }

    /// One that keeps only the last stretches, for those that do not report the whole course.
    pub fn brief() -> Self {
        Self::keeping(0)
    }

    /// Takes in a quantum in which the job ran, and how many of its threads were runnable, if known.
    pub fn ran(&mut self, from: Nanos, to: Nanos, runnable: Option<f64>) {
        let Some(runnable) = runnable else {
            self.now = None;
            return;
        };
        let phase = Hysteresis::USUAL.next(self.now.map(|(phase, _)| phase), runnable);
        let took = to.saturating_sub(from);
        let seconds = took.as_secs_f64();
        self.now = Some((phase, runnable));
        self.runnable.add(Some(runnable), seconds);
        if let Some(place) = ORDER.iter().position(|other| *other == phase) {
            self.spent[place] += took;
        }
        match self.late.back_mut().or(self.stretches.last_mut()) {
            Some(last) if last.phase == phase && last.to == from => {
                last.to = to;
                last.runnable.add(Some(runnable), seconds);
            }
            _ => {
                let mut mean = Mean::default();
                mean.add(Some(runnable), seconds);
                self.begin(Stretch { phase, from, to, noticed: to, runnable: mean });
            }
        }
    }

    /// Keeps a further stretch, where there are too many in the place of an earlier one.
    fn begin(&mut self, stretch: Stretch) {
        if self.stretches.len() < self.most {
            self.stretches.push(stretch);
            return;
        }
        if self.late.len() >= LATE {
            self.late.pop_front();
        }
        self.late.push_back(stretch);
    }

    /// Its phase in the quantum in which it last ran, and how many threads were runnable then; `None` if
    /// unknown.
    pub const fn now(&self) -> Option<(JobPhase, f64)> {
        self.now
    }

    /// The first stretches, the very first one first, with a gap where it waited or it is unknown; none of one that is
    /// [`Timeline::brief`].
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Whether later stretches are missing there, because there were too many.
    pub fn is_cut(&self) -> bool {
        !self.late.is_empty()
    }

    /// The last stretches, the very last one first, which goes on if the job's phase is known now. There may be a gap
    /// between the last ones and the first ones.
    pub fn backwards(&self) -> impl Iterator<Item = &Stretch> {
        self.late.iter().rev().chain(self.stretches.iter().rev())
    }

    /// For how long it was in a phase, all stretches together, also those that are not kept.
    pub fn spent(&self, phase: JobPhase) -> Nanos {
        let place = ORDER.iter().position(|other| *other == phase);
        place.map_or(Nanos::ZERO, |place| self.spent[place])
    }

    /// How many threads were runnable, over all quanta in which it ran; `None` if unknown.
    pub fn runnable(&self) -> Option<f64> {
        self.runnable.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quanta of 100 ms with so many runnable threads; a quantum in which that is unknown, one in which it waits.
    #[test]
    fn stretches_by_hand() {
        let mut timeline = Timeline::default();
        let ms = Nanos::from_millis;
        let seen = [Some(1.0), Some(1.2), Some(4.0), Some(2.0), None, Some(2.0), Some(0.0)];
        for (from, runnable) in (0..).step_by(100).zip(seen) {
            timeline.ran(ms(from), ms(from + 100), runnable);
        }
        assert_eq!(timeline.now(), Some((JobPhase::Asleep, 0.0)));
        timeline.ran(ms(800), ms(850), Some(0.0));
        let told: Vec<_> = timeline
            .stretches()
            .iter()
            .map(|it| (it.phase.name(), it.from.0 / 1_000_000, it.to.0 / 1_000_000, it.noticed))
            .collect();
        let expected = [
            ("serial", 0, 200, ms(100)),
            ("parallel", 200, 400, ms(300)),
            ("parallel", 500, 600, ms(600)),
            ("asleep", 600, 700, ms(700)),
            ("asleep", 800, 850, ms(850)),
        ];
        assert_eq!(told, expected);
        let means: Vec<f64> =
            timeline.stretches().iter().filter_map(|it| it.runnable.get()).collect();
        for (mean, by_hand) in means.iter().zip([1.1, 3.0, 2.0, 0.0, 0.0]) {
            assert!((mean - by_hand).abs() < 1e-9, "{means:?}");
        }
        assert_eq!(ORDER.map(|phase| timeline.spent(phase)), [ms(200), ms(300), ms(150)]);
        // 1 + 1.2 + 4 + 2 + 2 threads for 100 ms each, of 650 ms.
        assert!((timeline.runnable().unwrap() - 1.02 / 0.65).abs() < 1e-9);
    }

    /// Sums go on when no further stretch is kept.
    #[test]
    fn a_course_without_end_is_cut() {
        let mut timeline = Timeline::default();
        for quantum in 0..MOST as u64 + 10 {
            let runnable = if quantum % 2 == 0 { 1.0 } else { 4.0 };
            timeline.ran(Nanos(10 * quantum), Nanos(10 * quantum + 10), Some(runnable));
        }
        assert!(timeline.is_cut() && timeline.stretches().len() == MOST);
        let half = Nanos(5 * (MOST as u64 + 10));
        assert_eq!(ORDER.map(|phase| timeline.spent(phase)), [half, half, Nanos::ZERO]);
    }

    /// Two thousand stretches of each of 500 jobs: no more than a million of all, the last ones beside them.
    #[test]
    fn many_jobs_keep_fewer_each() {
        for (jobs, kept) in [(1, MOST), (50, MOST), (500, 2_000), (2_000_000, 0)] {
            let mut timeline = Timeline::one_of(jobs);
            for quantum in 0..MOST as u64 + 10 {
                let runnable = if quantum % 2 == 0 { 1.0 } else { 4.0 };
                timeline.ran(Nanos(10 * quantum), Nanos(10 * quantum + 10), Some(runnable));
            }
            assert!(timeline.is_cut() && timeline.stretches().len() == kept, "{jobs} jobs");
        }
    }

    /// Changes every quantum of 10 ns, more than are kept: the last ones are known all the same. The very last one goes
    /// on for a second quantum.
    #[test]
    fn the_last_stretches_of_a_long_course() {
        for (mut timeline, kept) in [(Timeline::default(), MOST + LATE), (Timeline::brief(), LATE)]
        {
            let quanta = MOST as u64 + 100;
            for quantum in 0..quanta {
                let runnable = if quantum % 2 == 0 { 1.0 } else { 4.0 };
                timeline.ran(Nanos(10 * quantum), Nanos(10 * quantum + 10), Some(runnable));
            }
            timeline.ran(Nanos(10 * quanta), Nanos(10 * quanta + 10), Some(4.0));
            let last: Vec<_> =
                timeline.backwards().map(|it| (it.phase, it.from.0, it.to.0)).take(2).collect();
            let expected =
                [(JobPhase::Parallel, 200_990, 201_010), (JobPhase::Serial, 200_980, 200_990)];
            assert_eq!(last, expected);
            assert_eq!(timeline.backwards().count(), kept);
        }
    }

    #[test]
    fn of_nothing_nothing_is_told() {
        let mut timeline = Timeline::default();
        timeline.ran(Nanos(0), Nanos(10), None);
        assert_eq!(
            (timeline.now(), timeline.runnable(), timeline.stretches().len()),
            (None, None, 0)
        );
    }
}
