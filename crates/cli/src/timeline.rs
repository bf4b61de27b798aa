//! The phases of a job over time, serial, parallel or asleep, as values, JSON and text.
//!
//! A stretch consists of quanta, so a shorter phase is not seen. [`Hysteresis::next`] gives the
//! phase of a quantum, as for policies that use phases.

use crate::columns::seconds;
use colocate_figures::table::aligned;
use colocate_machine::Nanos;
use colocate_policy::schedule::phases::{Hysteresis, JobPhase};
use serde::{Serialize, Serializer};
use std::collections::VecDeque;

/// Most first stretches kept of a job. Chosen: with a change every quantum of 100 ms, half an hour.
const MOST: usize = 20_000;
/// Most first stretches kept of all jobs of a workload. Chosen: 48 MB, and 250 MB of JSON.
const MOST_OF_ALL: usize = 1_000_000;
/// Most last stretches kept beside the first. Chosen: a picture shows 20 quanta.
const LATE: usize = 64;
/// Most stretches of a job in text. Chosen: a line of some 120 characters.
const MOST_IN_TEXT: usize = 6;

/// A mean over time; `null` in JSON if unknown.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(into = "Option<f64>")]
pub struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    /// Adds a value, if known, that held for `seconds`.
    pub fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    /// The mean; `None` if no value is known.
    pub fn get(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

impl From<Mean> for Option<f64> {
    fn from(mean: Mean) -> Self {
        mean.get()
    }
}

/// Consecutive quanta of a job in one phase.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseInterval {
    /// Phase of the job.
    pub phase: JobPhase,
    /// Begin of its first quantum, since the launch.
    #[serde(rename = "from_ns")]
    pub from: Nanos,
    /// End of its last quantum.
    #[serde(rename = "to_ns")]
    pub to: Nanos,
    /// Time at which the phase was noticed: the end of its first quantum.
    #[serde(rename = "noticed_ns")]
    pub noticed: Nanos,
    /// Mean number of the job's runnable threads.
    pub runnable: Mean,
}

/// Phases of a job up to now.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Most first stretches kept; 0 to keep only the last ones.
    most: usize,
    /// The first stretches, with gaps where the job waited or its phase is unknown.
    pub stretches: Vec<PhaseInterval>,
    /// The last stretches after `stretches`.
    late: VecDeque<PhaseInterval>,
    /// Phase of the job's last quantum, and number of its runnable threads; `None` if unknown.
    pub now: Option<(JobPhase, f64)>,
    /// Time in each phase, in the order of [`ORDER`], over all stretches.
    pub spent: [Nanos; 3],
    /// Mean number of runnable threads, over all quanta in which the job ran.
    pub runnable: Mean,
}

/// The phases in the order of reports.
pub const ORDER: [JobPhase; 3] = [JobPhase::Serial, JobPhase::Parallel, JobPhase::Asleep];

impl Default for Timeline {
    fn default() -> Self {
        Self::keeping(MOST)
    }
}

/// Serialized form of a timeline.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct PhaseSummary<'a> {
    /// Time in serial phases.
    serial_ns: Nanos,
    /// Time in parallel phases.
    parallel_ns: Nanos,
    /// Time asleep.
    asleep_ns: Nanos,
    /// Mean number of runnable threads, over all quanta in which the job ran.
    runnable: f64,
    /// The first stretches, in order, with gaps where the job waited or its phase is unknown.
    stretches: &'a [PhaseInterval],
    /// Whether later stretches are missing, beyond the limit; the sums include them.
    cut: bool,
}

/// `null` if the number of runnable threads was never known.
impl Serialize for Timeline {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let [serial_ns, parallel_ns, asleep_ns] = self.spent;
        let summary = self.runnable.get().map(|runnable| PhaseSummary {
            serial_ns,
            parallel_ns,
            asleep_ns,
            runnable,
            stretches: &self.stretches,
            cut: self.is_cut(),
        });
        summary.serialize(to)
    }
}

impl Timeline {
    /// A timeline of the `most` first stretches and the last few.
    pub fn keeping(most: usize) -> Self {
        Self {
            most,
            stretches: Vec::new(),
            late: VecDeque::new(),
            now: None,
            spent: [Nanos::ZERO; 3],
            runnable: Mean::default(),
        }
    }

    /// A timeline in a workload of `jobs` jobs, which bound their memory together.
    pub fn one_of(jobs: usize) -> Self {
        Self::keeping(MOST.min(MOST_OF_ALL / jobs.max(1)))
    }

    /// Adds a quantum in which the job ran, with the number of its runnable threads, if known.
    pub fn ran(&mut self, from: Nanos, to: Nanos, runnable: Option<f64>) {
        let before = self.now.take().map(|(phase, _)| phase);
        let Some(runnable) = runnable else { return };
        let phase = Hysteresis::USUAL.next(before, runnable);
        let took = to.saturating_sub(from);
        let seconds = took.as_secs_f64();
        self.now = Some((phase, runnable));
        self.runnable.add(Some(runnable), seconds);
        if let Some(place) = ORDER.iter().position(|other| *other == phase) {
            self.spent[place] += took;
        }
        // A quantum that follows without a gap extends the last stretch.
        match self.late.back_mut().or(self.stretches.last_mut()) {
            Some(last) if last.phase == phase && last.to == from => {
                last.to = to;
                last.runnable.add(Some(runnable), seconds);
            }
            _ => {
                let mut mean = Mean::default();
                mean.add(Some(runnable), seconds);
                self.begin(PhaseInterval { phase, from, to, noticed: to, runnable: mean });
            }
        }
    }

    /// Keeps a further stretch; above the limit, in place of an earlier stretch.
    fn begin(&mut self, stretch: PhaseInterval) {
        if self.stretches.len() < self.most {
            self.stretches.push(stretch);
            return;
        }
        if self.late.len() >= LATE {
            self.late.pop_front();
        }
        self.late.push_back(stretch);
    }

    /// Whether stretches are missing because there were too many.
    pub fn is_cut(&self) -> bool {
        !self.late.is_empty()
    }

    /// Stretches backwards from the last. The last is still in progress if the job's phase is known
    /// now. There may be a gap between the last and the first stretches.
    pub fn backwards(&self) -> impl Iterator<Item = &PhaseInterval> {
        self.late.iter().rev().chain(self.stretches.iter().rev())
    }

    /// The first stretches as text, with their begin and end in seconds.
    fn text(&self) -> String {
        let first = self.stretches.iter().take(MOST_IN_TEXT).map(|stretch| {
            let [from, to] = [stretch.from, stretch.to].map(|time| seconds(Some(time)));
            format!("{} {from}–{to}", stretch.phase.name())
        });
        let more = self.stretches.len().saturating_sub(MOST_IN_TEXT);
        let rest = (more > 0).then(|| format!("{more} more"));
        let missing = self.is_cut().then(|| "later ones not kept".to_owned());
        first.chain(rest).chain(missing).collect::<Vec<String>>().join(", ")
    }
}

/// A table of the phases of jobs, by name: empty unless any job was ever parallel, or `always`.
pub fn table<'a>(jobs: impl Iterator<Item = (&'a str, &'a Timeline)>, always: bool) -> String {
    let known: Vec<_> =
        jobs.filter_map(|(name, phases)| Some((name, phases, phases.runnable.get()?))).collect();
    // `spent` is in the order of `ORDER`: 1 is parallel.
    let parallel = known.iter().any(|(_, phases, _)| phases.spent[1] > Nanos::ZERO);
    if known.is_empty() || !(parallel || always) {
        return String::new();
    }
    let head = ["job", "serial, s", "parallel, s", "asleep, s", "runnable", "from when to when, s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(known.into_iter().map(|(name, phases, runnable)| {
        let [serial, parallel, asleep] = phases.spent.map(|time| seconds(Some(time)));
        vec![name.to_owned(), serial, parallel, asleep, format!("{runnable:.1}"), phases.text()]
    }));
    format!("\nphases, and the mean number of runnable threads\n{}", aligned(&rows))
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
        assert_eq!(timeline.now, Some((JobPhase::Asleep, 0.0)));
        timeline.ran(ms(800), ms(850), Some(0.0));
        let told: Vec<_> = timeline
            .stretches
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
            timeline.stretches.iter().filter_map(|it| it.runnable.get()).collect();
        for (mean, by_hand) in means.iter().zip([1.1, 3.0, 2.0, 0.0, 0.0]) {
            assert!((mean - by_hand).abs() < 1e-9, "{means:?}");
        }
        assert_eq!(timeline.spent, [ms(200), ms(300), ms(150)]);
        // 1 + 1.2 + 4 + 2 + 2 threads for 100 ms each, of 650 ms.
        assert!((timeline.runnable.get().unwrap() - 1.02 / 0.65).abs() < 1e-9);
    }

    /// Sums go on when no further stretch is kept.
    #[test]
    fn a_course_without_end_is_cut() {
        let mut timeline = Timeline::default();
        for quantum in 0..MOST as u64 + 10 {
            let runnable = if quantum % 2 == 0 { 1.0 } else { 4.0 };
            timeline.ran(Nanos(10 * quantum), Nanos(10 * quantum + 10), Some(runnable));
        }
        assert!(timeline.is_cut() && timeline.stretches.len() == MOST);
        let half = Nanos(5 * (MOST as u64 + 10));
        assert_eq!(timeline.spent, [half, half, Nanos::ZERO]);
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
            assert!(timeline.is_cut() && timeline.stretches.len() == kept, "{jobs} jobs");
        }
    }

    /// Changes every quantum of 10 ns, more than are kept: the last ones are known all the same. The very last one goes
    /// on for a second quantum.
    #[test]
    fn the_last_stretches_of_a_long_course() {
        for (mut timeline, kept) in
            [(Timeline::default(), MOST + LATE), (Timeline::keeping(0), LATE)]
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
    fn unknown_phases_are_not_reported() {
        let mut timeline = Timeline::default();
        timeline.ran(Nanos(0), Nanos(10), None);
        assert_eq!(
            (timeline.now, timeline.runnable.get(), timeline.stretches.len()),
            (None, None, 0)
        );
    }

    /// Two of a million jobs: one stretch of each is kept, of three of the first and of one of the second.
    #[test]
    fn missing_stretches_are_reported() {
        let course = |runnable: &[f64]| {
            let mut timeline = Timeline::one_of(1_000_000);
            for (second, runnable) in (0..).zip(runnable) {
                let [from, to] = [second, second + 1].map(Nanos::from_secs);
                timeline.ran(from, to, Some(*runnable));
            }
            timeline
        };
        let [cut, whole] = [course(&[1.0, 4.0, 1.0]), course(&[4.0])];
        assert_eq!(cut.text(), "serial 0.00–1.00, later ones not kept");
        assert_eq!(whole.text(), "parallel 0.00–1.00");
        assert_eq!([cut.is_cut(), whole.is_cut()], [true, false]);
    }

    /// Serial for 1 s, parallel for 1 s. The name clears a terminal, breaks the line, and clears it again in one byte.
    #[test]
    fn names_do_not_drive_a_terminal() {
        let mut timeline = Timeline::default();
        timeline.ran(Nanos::ZERO, Nanos::from_secs(1), Some(1.0));
        timeline.ran(Nanos::from_secs(1), Nanos::from_secs(2), Some(4.0));
        let text = table([("a\x1bcb\nc\u{9b}2J 7", &timeline)].into_iter(), false);
        assert!(text.contains("\na\\x1bcb\\x0ac\\x9b2J 7 "), "{text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
