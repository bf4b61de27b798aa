//! Phase of each job, asleep, serial or parallel, by its number of runnable threads.
//!
//! # Problem
//! A fast core is worth most to a thread that all others of its job wait for. Such phases have to
//! be detected from outside, and soon, since they are short. Each change detected by mistake costs
//! moves.
//! # Approach
//! The number of runnable threads shows the phase (Fedorova et al.; the threshold of one runnable
//! thread is theirs). Its mean is taken every quantum, without spinning threads. Two thresholds
//! instead of one keep the phase of a job between them. The number of quanta in a row that must
//! show a change is a setting.
//! # Terms
//! - *Runnable*: mean number of a job's threads in a quantum that had a PU or waited for a PU
//!   ([`QueuedJob::runnable`]).
//! - *Asleep*: hardly any thread is runnable. *Serial*: at most about one thread is runnable.
//!   *Parallel*: more threads are runnable.
//! - *Serial thread*: the thread with the greatest runnable share in a serial phase.
//! - *Length* of a phase: time of the quanta counted to the phase, with an error of a quantum at
//!   either end.
//! # Algorithm
//! Below [`ASLEEP`] a job is asleep, up to [`Hysteresis::serial`] in a serial phase, above in a
//! parallel phase. But a job that is asleep wakes at [`AWAKE`], and a serial phase ends at
//! [`Hysteresis::parallel`]. A quantum in which a phase changes shows a mixture that may lie
//! between the thresholds; the next quantum shows the change. So with `confirm` 1 a policy acts on
//! a change within two quanta; every further confirmation adds a quantum.
//!
//! The beginning of a serial phase is mostly detected sooner. If several threads and hardly any
//! others were *steady*, runnable for a whole quantum, and in the next quantum only one of them is
//! and the others are far from it, these have stopped. The phase is then serial, whatever the mean
//! is. With quanta of 20 ms and phases of 200 ms this gains 2 to 3 % of the best gain (simulated,
//! crates/sim/tests/all/one_fast_one_slow.rs).
//!
//! The serial thread stays the same until another thread has [`HANDED_OVER`] times its share.
//! # Properties
//! - **By hand** -> tests `fork_join_by_hand`, `mixtures_wait`, `sleep_by_hand`
//! - **No flapping**: the same input again and again changes the phase once at most.
//!   -> test `no_flapping`
//! - **One for one**: a phase changes no more often than its input crosses a threshold.
//!   -> test `one_change_for_one_change`
//! - **Soon**: a change that lasts is known within `confirm` + 1 quanta, the beginning of a serial
//!   phase where all were steady within `confirm`, unless they stop at the end of a quantum.
//!   -> tests `within_two_quanta`, `stops_are_seen_at_once`
//! - **Unknown is no phase** -> test `unknown_is_no_phase`

use super::{QueuedJob, Thread};
use crate::by_id::ById;
use crate::row::{PolicySpec, Setting, SettingKind, Value};
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::Nanos;
use serde::{Deserialize, Serialize};

/// Number of runnable threads below which a job is asleep. Chosen: the share of a quantum for which
/// a thread has to be runnable to count as active in the loop of quanta.
pub(crate) const ASLEEP: f64 = 0.05;

/// Number of runnable threads at which a job that is asleep wakes. Chosen: twice [`ASLEEP`].
pub(crate) const AWAKE: f64 = 0.1;

/// Least runnable share of a quantum of a steady thread. Chosen: a wait for a PU that lasts beyond
/// the quantum may be missing, and an artificially slowed PU makes threads wait for 1 ms of 10 ms.
pub(crate) const STEADY: f64 = 0.9;

/// Runnable share of a quantum below which a thread has stopped. Chosen: far enough from [`STEADY`]
/// that a missing wait is not taken for a stop.
pub(crate) const STOPPED: f64 = 0.75;

/// Ratio of runnable shares at which another thread becomes the serial thread. Chosen: two threads
/// that alternate evenly do not replace each other.
pub(crate) const HANDED_OVER: f64 = 2.0;

/// Phase of a job, by its number of runnable threads.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Hardly any thread is runnable.
    Asleep,
    /// At most about one thread is runnable.
    Serial,
    /// More threads are runnable.
    Parallel,
}

impl JobPhase {
    /// Name for display.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asleep => "asleep",
            Self::Serial => "serial",
            Self::Parallel => "parallel",
        }
    }
}

/// Thresholds for changes of phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hysteresis {
    /// Most runnable threads of a serial phase; at least 1.
    pub serial: f64,
    /// Runnable threads at which a serial phase ends; not below `serial`.
    pub parallel: f64,
    /// Quanta in a row that must show a change; at least 1.
    pub confirm: u32,
}

impl Hysteresis {
    /// Defaults. Chosen: a helper that is runnable for a quarter of the time leaves a phase serial.
    /// Two threads of which one waits for less than half of the time are parallel. One quantum
    /// confirms a change, so that a policy acts on it within two.
    pub const USUAL: Self = Self { serial: 1.25, parallel: 1.5, confirm: 1 };

    /// Phase with this number of runnable threads, after phase `before`; `None` for a new job.
    #[must_use]
    pub fn next(&self, before: Option<JobPhase>, runnable: f64) -> JobPhase {
        let plain = match runnable {
            few if few < ASLEEP => JobPhase::Asleep,
            one if one <= self.serial => JobPhase::Serial,
            _ => JobPhase::Parallel,
        };
        match before {
            // Between the thresholds the phase before goes on.
            Some(JobPhase::Asleep) if runnable < AWAKE => JobPhase::Asleep,
            Some(JobPhase::Serial) if plain > JobPhase::Serial && runnable < self.parallel => {
                JobPhase::Serial
            }
            _ => plain,
        }
    }
}

/// Setting for [`Hysteresis::serial`].
pub(crate) const SERIAL: Setting = Setting::new(
    "serial",
    SettingKind::Number("from 1", at_least_one),
    Some(Value::Number(Hysteresis::USUAL.serial)),
    "runnable threads up to which a phase is serial",
);
/// Setting for [`Hysteresis::parallel`].
pub const PARALLEL: Setting = Setting::new(
    "parallel",
    SettingKind::NumberNotBelow("serial", "from 1", at_least_one),
    Some(Value::Number(Hysteresis::USUAL.parallel)),
    "runnable threads from which a serial phase is over",
);
/// Setting for [`Hysteresis::confirm`].
pub(crate) const CONFIRM: Setting = Setting::count(
    "confirm",
    1,
    Hysteresis::USUAL.confirm as u64,
    "quanta for which a new phase must last before it counts",
);

/// Range of the thresholds.
const fn at_least_one(number: f64) -> bool {
    number.is_finite() && number >= 1.0
}

/// Thresholds from the values given by the user.
pub(crate) fn hysteresis(values: &PolicySpec) -> Hysteresis {
    Hysteresis {
        serial: values.number("serial"),
        parallel: values.number("parallel"),
        confirm: values.count("confirm"),
    }
}

/// Phases of a job so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseHistory {
    /// Present phase.
    pub phase: JobPhase,
    /// Time in the present phase, over the quanta counted to the phase.
    pub lasted: Nanos,
    /// Serial thread; `None` unless the phase is serial.
    pub thread: Option<TaskId>,
    /// Number of changes of phase.
    pub changes: u64,
    /// By kind of phase except sleep: number of finished phases, and their total time.
    past: [(u32, Nanos); 3],
    /// A change that is not confirmed yet, and the number of quanta in a row that showed it.
    pending: Option<(JobPhase, u32)>,
    /// Number of steady threads in the last quantum; `None` if others were runnable much.
    steady: Option<u32>,
}

impl PhaseHistory {
    /// Expected length of the present phase: the mean of earlier phases of its kind, or the time so
    /// far if longer. Of sleep, and of the first phase of a kind, only the time so far is known.
    #[must_use]
    pub fn expected(&self) -> Nanos {
        self.mean().max(self.lasted)
    }

    /// Expected remaining time of the present phase: the distance from the time so far to the mean
    /// of earlier phases of its kind. A phase longer than the mean is expected to last on as long
    /// as it is over the mean; so a first phase lasts on as long as it has lasted.
    #[must_use]
    pub fn left(&self) -> Nanos {
        Nanos(self.mean().0.abs_diff(self.lasted.0))
    }

    /// Mean length of earlier phases of the present kind; 0 without any.
    fn mean(&self) -> Nanos {
        let (count, time) = self.past[self.phase as usize];
        // 0 before the first phase of the kind has ended.
        time.0.checked_div(u64::from(count)).map_or(Nanos::ZERO, Nanos)
    }

    /// Ends the present phase and begins another.
    fn change(&mut self, phase: JobPhase) {
        // Sleep is not predicted by earlier sleep.
        if self.phase != JobPhase::Asleep {
            let (count, time) = &mut self.past[self.phase as usize];
            *count = count.saturating_add(1);
            *time += self.lasted;
        }
        self.phase = phase;
        self.lasted = Nanos::ZERO;
        self.changes += 1;
        self.pending = None;
    }
}

/// The phases of all jobs, quantum by quantum.
#[derive(Clone, Debug)]
pub struct JobPhases {
    settings: Hysteresis,
    jobs: ById<JobIdx, PhaseHistory>,
}

impl JobPhases {
    /// Phases of no jobs.
    #[must_use]
    pub fn new(settings: Hysteresis) -> Self {
        Self { settings, jobs: ById::default() }
    }

    /// Takes in the jobs' last quantum, of length `took`. Jobs that are not in the queue are
    /// forgotten; the phase of a job that did not run stays.
    pub fn update(&mut self, queue: &[QueuedJob], took: Nanos) {
        let after = queue.iter().filter_map(|job| {
            let before = self.jobs.get(&job.job).copied();
            let seen = match (job.runnable, job.just_ran) {
                (Some(runnable), true) => Some(self.after(before, job, runnable, took)),
                // The job ran uncounted, so its earlier phase says nothing any more.
                (None, true) => None,
                (_, false) => before,
            };
            Some((job.job, seen?))
        });
        self.jobs = after.collect();
    }

    /// Phases of a job; `None` before its first quantum or with [`QueuedJob::runnable`] unknown.
    #[must_use]
    pub fn of(&self, job: JobIdx) -> Option<&PhaseHistory> {
        self.jobs.get(&job)
    }

    /// Whether a job is known to sleep.
    #[must_use]
    pub fn sleeps(&self, job: JobIdx) -> bool {
        self.of(job).is_some_and(|seen| seen.phase == JobPhase::Asleep)
    }

    /// Phases of a job after a quantum with this number of runnable threads.
    fn after(
        &self,
        before: Option<PhaseHistory>,
        job: &QueuedJob,
        runnable: f64,
        took: Nanos,
    ) -> PhaseHistory {
        let steady = with_share(&job.threads, STEADY);
        // All steady threads but one have stopped: serial, although the mean may not show it yet.
        let all_but_one = steady == 1 && with_share(&job.threads, STOPPED) == 1;
        // `None` is less than `Some(2)`: an unknown past shows no stop.
        let stopped = all_but_one && before.and_then(|seen| seen.steady) >= Some(2);
        let phase = match self.settings.next(before.map(|seen| seen.phase), runnable) {
            JobPhase::Parallel if stopped => JobPhase::Serial,
            phase => phase,
        };
        let mut seen = before.unwrap_or(PhaseHistory {
            phase,
            lasted: Nanos::ZERO,
            thread: None,
            changes: 0,
            past: [(0, Nanos::ZERO); 3],
            pending: None,
            steady: None,
        });
        let times = match seen.pending {
            Some((pending, times)) if pending == phase => times + 1,
            _ => 1,
        };
        if phase == seen.phase {
            seen.pending = None;
        } else if times >= self.settings.confirm {
            seen.change(phase);
        } else {
            seen.pending = Some((phase, times));
        }
        // After the change: the quantum that confirms a phase counts to it.
        seen.lasted += took;
        let others = runnable - f64::from(steady);
        // With others runnable, a stop of steady threads does not leave one thread.
        seen.steady = Some(steady).filter(|_| others <= self.settings.serial - 1.0);
        seen.thread = match seen.phase {
            JobPhase::Serial => serial_thread(&job.threads, seen.thread),
            JobPhase::Asleep | JobPhase::Parallel => None,
        };
        seen
    }
}

/// Number of threads that were runnable for at least this share of the quantum.
fn with_share(threads: &[Thread], share: f64) -> u32 {
    // `None` is less than any share, so unknown threads do not count.
    let count = threads.iter().filter(|thread| thread.runnable >= Some(share)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Thread with the greatest runnable share, the first of several. The thread `before` stays unless
/// the other's share is [`HANDED_OVER`] times its own.
fn serial_thread(threads: &[Thread], before: Option<TaskId>) -> Option<TaskId> {
    // `rev`, because `max_by` returns the last of several.
    let most = threads.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let kept = threads.iter().find(|thread| Some(thread.id) == before);
    let kept = kept.filter(|thread| share(thread) * HANDED_OVER > share(most));
    Some(kept.unwrap_or(most).id)
}

/// Runnable share of a thread; 0 if unknown.
fn share(thread: &Thread) -> f64 {
    thread.runnable.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUANTUM: Nanos = Nanos::from_millis(10);

    /// A job whose threads were runnable for these shares of the quantum.
    fn job(shares: &[f64]) -> QueuedJob {
        let thread = |(order, share): (u32, &f64)| Thread {
            id: TaskId { job: JobIdx(0), order },
            ran: None,
            pu: None,
            runnable: Some(*share),
            bound: false,
        };
        QueuedJob {
            job: JobIdx(0),
            threads: (0..).zip(shares).map(thread).collect(),
            runnable: Some(shares.iter().fold(0.0, |sum, share| sum + share)),
            just_ran: true,
            had_own_cores: false,
        }
    }

    fn of(shares: &[f64], phases: &mut JobPhases) -> PhaseHistory {
        phases.update(&[job(shares)], QUANTUM);
        *phases.of(JobIdx(0)).expect("it ran")
    }

    /// The phases of a job with so many runnable threads, quantum by quantum: `z`, `s` and `p`.
    fn course(settings: Hysteresis, runnable: &[f64]) -> String {
        let mut phases = JobPhases::new(settings);
        let letter = |&runnable: &f64| match of(&[runnable], &mut phases).phase {
            JobPhase::Asleep => 'z',
            JobPhase::Serial => 's',
            JobPhase::Parallel => 'p',
        };
        runnable.iter().map(letter).collect()
    }

    /// Eight threads for two quanta, one for three, eight again, each change in the midst of a
    /// quantum: 8 · 1/4 + 1 · 3/4 = 2.75 is parallel still, 1 · 1/4 + 8 · 3/4 = 6.25 parallel at
    /// once.
    #[test]
    fn fork_join_by_hand() {
        let seen = [8.0, 8.0, 2.75, 1.0, 1.0, 6.25, 8.0];
        assert_eq!(course(Hysteresis::USUAL, &seen), "pppsspp");
        let slow = Hysteresis { confirm: 2, ..Hysteresis::USUAL };
        assert_eq!(course(slow, &seen), "ppppssp");
    }

    /// 1.3 and 1.4 are between the thresholds: whatever was goes on, and at first that is left
    /// alone.
    #[test]
    fn mixtures_wait() {
        let seen = [1.3, 1.4, 1.0, 1.3, 1.4, 1.5, 1.4, 1.3, 1.25];
        assert_eq!(course(Hysteresis::USUAL, &seen), "ppsssppps");
    }

    /// Dozing at 0.06 wakes no job and lets none fall asleep; from sleep into the midst of things.
    #[test]
    fn sleep_by_hand() {
        let seen = [0.06, 0.04, 0.06, 0.1, 0.06, 0.0, 4.0, 0.0];
        assert_eq!(course(Hysteresis::USUAL, &seen), "szzsszpz");
    }

    /// Two steady threads, of which one stops after 0.6 of a quantum: 1.6 are runnable in the mean,
    /// and the phase is serial. Three of which two are still steady, one that is only a little
    /// short of it, or two that were not steady before, say nothing; a job that goes on is parallel
    /// again.
    #[test]
    fn stops_are_seen_at_once() {
        let course = |seen: &[&[f64]]| -> Vec<(JobPhase, Option<u32>)> {
            let mut phases = JobPhases::new(Hysteresis::USUAL);
            let look = |shares: &&[f64]| {
                let seen = of(shares, &mut phases);
                (seen.phase, seen.thread.map(|id| id.order))
            };
            seen.iter().map(look).collect()
        };
        let (serial, parallel) = ((JobPhase::Serial, Some(1)), (JobPhase::Parallel, None));
        assert_eq!(course(&[&[1.0, 1.0], &[0.6, 1.0], &[0.0, 1.0]]), [parallel, serial, serial]);
        assert_eq!(course(&[&[1.0, 1.0], &[0.6, 1.0], &[0.9, 1.0]]), [parallel, serial, parallel]);
        assert_eq!(course(&[&[1.0, 1.0, 1.0], &[0.6, 1.0, 1.0]]), [parallel; 2]);
        assert_eq!(course(&[&[1.0, 1.0], &[0.8, 1.0]]), [parallel; 2]);
        assert_eq!(course(&[&[0.8, 1.0], &[0.6, 1.0]]), [parallel; 2]);
        let crowd = [&[1.0, 1.0, 0.5, 0.5][..], &[0.6, 1.0, 0.5, 0.5]];
        assert_eq!(course(&crowd), [parallel; 2]);
    }

    /// A alone, then A hands over to B in the midst of a quantum: 0.4 and 0.6 are not enough, 0.3
    /// and 0.7 are. In a parallel phase no thread is the one.
    #[test]
    fn work_is_handed_over() {
        let mut phases = JobPhases::new(Hysteresis::USUAL);
        let mut order = |shares: &[f64]| of(shares, &mut phases).thread.map(|id| id.order);
        assert_eq!(order(&[1.0, 0.0]), Some(0));
        assert_eq!(order(&[0.4, 0.6]), Some(0));
        assert_eq!(order(&[0.3, 0.7]), Some(1));
        assert_eq!(order(&[0.5, 0.5]), Some(1));
        assert_eq!(order(&[1.0, 1.0]), None);
        assert_eq!(order(&[0.5, 0.5]), Some(0), "the first of several");
    }

    /// Parallel phases of 10 ms; serial ones of 20 and 40 ms, and one of 10 ms so far: 30 are
    /// expected, 20 more. One that lasts longer than those before it is expected to last as long as
    /// it has, and as much longer as it already has.
    #[test]
    fn lengths_by_hand() {
        let mut phases = JobPhases::new(Hysteresis::USUAL);
        let (mut expected, mut left) = (Vec::new(), Vec::new());
        for runnable in [4.0, 1.0, 1.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0, 1.0, 1.0, 1.0, 1.0] {
            let seen = of(&[runnable], &mut phases);
            expected.push(seen.expected().0 / 1_000_000);
            left.push(seen.left().0 / 1_000_000);
        }
        assert_eq!(expected, [10, 10, 20, 10, 20, 20, 30, 40, 10, 30, 30, 30, 40]);
        assert_eq!(left, [10, 10, 20, 0, 10, 0, 10, 20, 0, 20, 10, 0, 10]);
        let seen = phases.of(JobIdx(0)).expect("it ran");
        assert_eq!(seen.past[JobPhase::Parallel as usize], (3, Nanos::from_millis(30)));
        assert_eq!(
            (seen.changes, seen.past[JobPhase::Serial as usize]),
            (5, (2, Nanos::from_millis(60)))
        );
    }

    #[test]
    fn unknown_is_no_phase() {
        let mut phases = JobPhases::new(Hysteresis::USUAL);
        of(&[1.0], &mut phases);
        let waits = QueuedJob { just_ran: false, runnable: None, ..job(&[1.0]) };
        phases.update(std::slice::from_ref(&waits), QUANTUM);
        assert_eq!(phases.of(JobIdx(0)).map(|seen| seen.phase), Some(JobPhase::Serial));
        phases.update(&[QueuedJob { just_ran: true, ..waits }], QUANTUM);
        assert_eq!(phases.of(JobIdx(0)), None);
        phases.update(&[], QUANTUM);
        assert_eq!(phases.of(JobIdx(0)), None);
    }

    fn any_hysteresis() -> impl Strategy<Value = Hysteresis> {
        let bounds = (1.0_f64..2.0, 0.0_f64..1.0, 1_u32..4);
        bounds.prop_map(|(serial, more, confirm)| Hysteresis {
            serial,
            parallel: serial + more,
            confirm,
        })
    }

    /// Numbers near the thresholds, mostly.
    fn runnable() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), 0.0_f64..0.2, 0.9_f64..3.0, 3.0_f64..64.0]
    }

    fn changes(phases: &str) -> usize {
        phases.as_bytes().windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    proptest! {
        /// Whatever was before.
        #[test]
        fn no_flapping(settings in any_hysteresis(), before in prop::collection::vec(runnable(), 1..8), now in runnable()) {
            let mut seen = before.clone();
            seen.extend([now; 12]);
            let phases = course(settings, &seen);
            prop_assert!(changes(&phases[before.len() - 1..]) <= 1, "{phases}");
        }

        /// With one look a change: no more changes than of what is seen.
        #[test]
        fn one_change_for_one_change(settings in any_hysteresis(), seen in prop::collection::vec(prop::sample::select(vec![0.0_f64, 1.0, 1.3, 8.0]), 1..40)) {
            let inputs = seen.windows(2).filter(|pair| (pair[0] - pair[1]).abs() > 1e-9).count();
            let phases = course(settings, &seen);
            prop_assert!(changes(&phases) <= inputs, "{phases}");
        }

        /// From one clear phase to another by way of any mixture.
        #[test]
        fn within_two_quanta(confirm in 1_u32..4, from in 0_usize..3, to in 0_usize..3, part in 0.0_f64..1.0) {
            let (clear, letters) = ([0.0, 1.0, 6.0], ['z', 's', 'p']);
            let settings = Hysteresis { confirm, ..Hysteresis::USUAL };
            let mut seen = vec![clear[from]; 5];
            seen.push(clear[from] * (1.0 - part) + clear[to] * part);
            seen.extend([clear[to]; 5]);
            let phases = course(settings, &seen);
            let known = 5 + confirm as usize;
            prop_assert!(phases[known..].chars().all(|letter| letter == letters[to]), "{phases}");
        }
    }
}
