//! The phases of jobs as they are told: in JSON, as text and in the picture.

use super::figures::seconds;
use super::tally::Tally;
use super::timeline::{self, ORDER, Timeline};
use colocate_machine::Nanos;
use colocate_policy::schedule::phases::JobPhase;
use colocate_study::simulate::gantt::{Busy, PhaseSpan};
use colocate_study::table::aligned;
use serde::Serialize;

/// Most stretches of a job that are told as text. Chosen: a line of some 120 characters.
const MOST_TOLD: usize = 6;

/// The phases of a job.
#[derive(Serialize)]
pub struct PhasesReport {
    /// For how long it was in each.
    serial_ns: Nanos,
    parallel_ns: Nanos,
    asleep_ns: Nanos,
    /// Mean number of its threads that were runnable while it ran.
    runnable: f64,
    stretches: Vec<StretchReport>,
    /// Whether later ones are missing.
    cut: bool,
}

#[derive(Clone, Serialize)]
struct StretchReport {
    phase: &'static str,
    from_ns: Nanos,
    to_ns: Nanos,
    /// When it was noticed.
    noticed_ns: Nanos,
    /// Mean number of runnable threads in it.
    runnable: Option<f64>,
}

impl PhasesReport {
    /// Of a job; `None` if it is unknown how many of its threads were runnable.
    pub fn of(timeline: &Timeline) -> Option<Self> {
        let stretch = |stretch: &timeline::Stretch| StretchReport {
            phase: stretch.phase.name(),
            from_ns: stretch.from,
            to_ns: stretch.to,
            noticed_ns: stretch.noticed,
            runnable: stretch.runnable.get(),
        };
        let [serial_ns, parallel_ns, asleep_ns] = ORDER.map(|phase| timeline.spent(phase));
        Some(Self {
            serial_ns,
            parallel_ns,
            asleep_ns,
            runnable: timeline.runnable()?,
            stretches: timeline.stretches().iter().map(stretch).collect(),
            cut: timeline.is_cut(),
        })
    }

    /// Whether its later stretches are missing.
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// The first stretches, with the seconds at which they began and ended.
    fn course(&self) -> String {
        let told = self.stretches.iter().take(MOST_TOLD).map(|stretch| {
            let [from, to] = [stretch.from_ns, stretch.to_ns].map(|time| seconds(Some(time)));
            format!("{} {from}–{to}", stretch.phase)
        });
        let more = self.stretches.len().saturating_sub(MOST_TOLD);
        let rest = (more > 0).then(|| format!("{more} more"));
        let missing = self.cut.then(|| "later ones not kept".to_owned());
        told.chain(rest).chain(missing).collect::<Vec<String>>().join(", ")
    }
}

/// A table of the jobs' phases, by name: if one of them was ever parallel, or `always`. A process names itself as it
/// likes: what would drive a terminal or break a line becomes a space.
pub fn text<'a, I>(jobs: impl Fn() -> I, always: bool) -> String
where
    I: Iterator<Item = (String, Option<&'a PhasesReport>)>,
{
    let known = || jobs().filter_map(|(name, phases)| Some((name, phases?)));
    let parallel = known().any(|(_, phases)| phases.parallel_ns > Nanos::ZERO);
    if known().next().is_none() || !(parallel || always) {
        return String::new();
    }
    let head = ["job", "serial, s", "parallel, s", "asleep, s", "runnable", "from when to when, s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(known().map(|(name, phases)| {
        let spent = [phases.serial_ns, phases.parallel_ns, phases.asleep_ns];
        let spent = spent.map(|time| seconds(Some(time)));
        let runnable = format!("{:.1}", phases.runnable);
        [name].into_iter().chain(spent).chain([runnable, phases.course()]).collect()
    }));
    format!("\nphases, and the mean number of runnable threads\n{}", aligned(&rows))
}

/// What of the phases is drawn: all but sleep.
pub fn drawn(tally: &Tally) -> Vec<PhaseSpan> {
    let of_job = |(job, timeline): (usize, &Timeline)| -> Vec<PhaseSpan> {
        let busy = |phase| match phase {
            JobPhase::Serial => Some(Busy::Serial),
            JobPhase::Parallel => Some(Busy::Parallel),
            JobPhase::Asleep => None,
        };
        let span = |stretch: &timeline::Stretch| {
            let busy = busy(stretch.phase)?;
            Some(PhaseSpan { job, busy, from: stretch.from, to: stretch.to })
        };
        timeline.stretches().iter().filter_map(span).collect()
    };
    tally.jobs.iter().map(|job| &job.timeline).enumerate().flat_map(of_job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two of a million jobs: one stretch of each is kept, of three of the first and of one of the second.
    #[test]
    fn what_was_not_kept_is_told() {
        let course = |runnable: &[f64]| {
            let mut timeline = Timeline::one_of(1_000_000);
            for (second, runnable) in (0..).zip(runnable) {
                let [from, to] = [second, second + 1].map(Nanos::from_secs);
                timeline.ran(from, to, Some(*runnable));
            }
            PhasesReport::of(&timeline).unwrap()
        };
        let [cut, whole] = [course(&[1.0, 4.0, 1.0]), course(&[4.0])];
        assert_eq!(cut.course(), "serial 0.00–1.00, later ones not kept");
        assert_eq!(whole.course(), "parallel 0.00–1.00");
        assert_eq!([cut.is_cut(), whole.is_cut()], [true, false]);
    }

    /// Serial for 1 s, parallel for 1 s. The name clears a terminal, breaks the line, and clears it again in one byte.
    #[test]
    fn names_do_not_drive_a_terminal() {
        let mut timeline = Timeline::default();
        timeline.ran(Nanos::ZERO, Nanos::from_secs(1), Some(1.0));
        timeline.ran(Nanos::from_secs(1), Nanos::from_secs(2), Some(4.0));
        let phases = PhasesReport::of(&timeline);
        let text =
            text(|| [("a\x1bcb\nc\u{9b}2J 7".to_owned(), phases.as_ref())].into_iter(), false);
        assert!(text.contains("\na\\x1bcb\\x0ac\\x9b2J 7 "), "{text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
