//! State of a study: its settings and finished runs, in the file that makes the study resumable.

use crate::order;
use colocate_machine::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the state format that this build reads and writes.
pub const VERSION: u32 = 1;

/// Most repetitions of a study. Chosen: with runs of one second they take almost three hours for
/// each policy, and the interval hardly narrows any more.
pub const MOST_REPETITIONS: u32 = 10_000;

/// The name of the policy that runs the programs without colocate.
pub const BARE: &str = "bare";

/// One program of the workload.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedJob {
    /// The command, program first. Never empty.
    pub command: Vec<String>,
    /// Identity of the executable's content, `build-id:HEX` or `sha256:HEX`.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^(build-id|sha256):[0-9a-f]+$")))]
    pub identity: String,
}

/// A server among the programs, as set by `colocate run --ready PROBE --ready-s S --until N`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Probe for the readiness of the first program.
    pub ready: Option<String>,
    /// Time limit of the probe; `None` for the default.
    pub within_ns: Option<Nanos>,
    /// Index of the program whose end ends the others; `None` if every program ends by itself.
    pub until: Option<u32>,
}

impl Server {
    /// True if no probe is set and every program ends by itself.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Direction in which a score improves.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A greater value is better.
    More,
    /// A smaller value is better.
    Less,
}

/// A number read after each run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Name of the score, with its unit.
    pub name: String,
    /// Source of the number: `output:KEY`, `report:POINTER`, `elapsed` or `cpu`.
    pub from: String,
    /// Direction in which the score improves.
    pub better: Better,
}

/// Period in which `colocate attach` places running programs, from the start of the last program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachPeriod {
    /// Begin of the period, in seconds.
    pub after_s: f64,
    /// Length of the period, in seconds.
    pub for_s: f64,
}

/// Settings of a study, fixed at its beginning.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudySettings {
    /// Name of the workload.
    pub name: String,
    /// Programs that run together.
    pub jobs: Vec<ComparedJob>,
    /// Readiness and end of the programs.
    #[serde(default, skip_serializing_if = "Server::is_default")]
    pub server: Server,
    /// Numbers read after each run, in the order of the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Score>,
    /// Period of `colocate attach`; `None` for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<AttachPeriod>,
    /// Time without programs before each run, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u32>,
    /// Commands of programs that run beside each run, not watched by colocate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Vec<String>>,
    /// Policies, in the order of the report, without duplicates.
    pub policies: Vec<String>,
    /// Baseline of the comparison; one of `policies`.
    pub baseline: String,
    /// Runs under each policy, 1 to [`MOST_REPETITIONS`].
    pub repetitions: u32,
    /// Seed of the order of the runs.
    pub seed: u64,
}

/// Result of one program in one run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTime {
    /// Time from launch to end.
    pub wall_ns: Nanos,
    /// Exit status as a shell reports it: the exit code, or 128 + the signal's number.
    pub status: i32,
}

/// Other load of the machine just before a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// Runnable tasks of other programs; `None` if the kernel does not report them.
    pub others_runnable: Option<u32>,
    /// Load average over one minute, in tasks. Includes earlier runs of this study.
    pub load_1min: Option<f64>,
}

/// One finished run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishedRun {
    /// Number of the block, from 0.
    pub block: u32,
    /// Policy of the run.
    pub policy: String,
    /// Beginning, in seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// Other load just before the run.
    pub before: Quiet,
    /// One entry a job, in the workload's order.
    pub jobs: Vec<JobTime>,
    /// Values of the settings' scores, in their order; empty if a program failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
}

/// Settings and finished runs of a study.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyState {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Settings of the study.
    pub settings: StudySettings,
    /// Runs whose programs all ended well, in the order prescribed by the seed.
    pub runs: Vec<FinishedRun>,
    /// Runs with a failed program. They do not count and are repeated when the study resumes.
    pub failures: Vec<FinishedRun>,
}

/// Reason to reject a text as the state of this study.
#[derive(Debug, Error)]
pub enum StateError {
    /// The text is not JSON of the state's shape.
    #[error("expected the state of a comparison, found: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Wrong version, another comparison, or contradicting fields: the requirement, and the value.
    #[error("expected {0}, found {1}")]
    Unfit(String, String),
}

/// The error for a value other than `expected`.
fn unfit(expected: &str, found: String) -> Result<(), StateError> {
    Err(StateError::Unfit(expected.to_owned(), found))
}

impl FinishedRun {
    /// Time of the job that ended last; zero without jobs.
    #[must_use]
    pub fn slowest(&self) -> Nanos {
        self.jobs.iter().map(|job| job.wall_ns).max().unwrap_or(Nanos::ZERO)
    }

    /// Index and exit status of the first job with a status other than 0.
    #[must_use]
    pub fn failed_job(&self) -> Option<(usize, i32)> {
        let statuses = self.jobs.iter().map(|job| job.status).enumerate();
        statuses.into_iter().find(|&(_, status)| status != 0)
    }
}

impl StudySettings {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// [`StateError::Unfit`] with the first inconsistent field.
    pub fn check(&self) -> Result<(), StateError> {
        let has_empty =
            self.jobs.iter().map(|job| &job.command).chain(&self.beside).any(Vec::is_empty);
        if self.jobs.is_empty() || has_empty {
            return unfit("at least one command", format!("{:?}", self.name));
        }
        let twice =
            (1..self.policies.len()).find(|&i| self.policies[..i].contains(&self.policies[i]));
        if let Some(twice) = twice {
            return unfit("every policy once", format!("{} twice", self.policies[twice]));
        }
        if !self.policies.contains(&self.baseline) {
            let found = format!("{} and not {}", self.policies.join(","), self.baseline);
            return unfit("the baseline among the policies", found);
        }
        if !(1..=MOST_REPETITIONS).contains(&self.repetitions) {
            return unfit("1 to 10000 repetitions", self.repetitions.to_string());
        }
        if let Some(AttachPeriod { after_s, for_s }) = self.attach
            && [after_s, for_s].iter().any(|s| !(0.0..=86_400.0).contains(s))
        {
            let found = format!("{for_s:?} s after {after_s} s");
            return unfit("an attach period of 0 to 86400 s", found);
        }
        Ok(())
    }

    /// Command lines of all jobs, in quotes.
    fn commands(&self) -> String {
        let all = self.jobs.iter().map(|job| job.command.join(" "));
        format!("`{}`", all.collect::<Vec<_>>().join(" ::: "))
    }

    /// Scores, period of `colocate attach`, and pause.
    fn measured(&self) -> (&[Score], Option<AttachPeriod>, Option<u32>) {
        (&self.scores, self.attach, self.pause_ms)
    }

    /// Checks that `now` is the same comparison; its name may differ.
    ///
    /// # Errors
    /// [`StateError::Unfit`] with the first difference.
    pub fn check_same(&self, now: &Self) -> Result<(), StateError> {
        if !self.jobs.iter().map(|job| &job.command).eq(now.jobs.iter().map(|job| &job.command)) {
            return differs("workload", self.commands(), now.commands());
        }
        let changed = self.jobs.iter().zip(&now.jobs).find(|(a, b)| a.identity != b.identity);
        if let Some((begun, changed)) = changed {
            let [begun, changed] =
                [begun, changed].map(|job| format!("{} as {}", job.command[0], job.identity));
            return differs("executable", begun, changed);
        }
        let are_same = (&self.policies, &self.baseline) == (&now.policies, &now.baseline);
        let drawn = (self.repetitions, self.seed) == (now.repetitions, now.seed);
        let rest: [(_, _, Text<'_>); 5] = [
            ("server", self.server == now.server, &|s| format!("{:?}", s.server)),
            ("scores and times", self.measured() == now.measured(), &|s| {
                format!("{:?}", s.measured())
            }),
            ("programs beside", self.beside == now.beside, &|s| format!("{:?}", s.beside)),
            ("policies", are_same, &|s| format!("{} against {}", s.policies.join(","), s.baseline)),
            ("repetitions", drawn, &|s| format!("{} with seed {}", s.repetitions, s.seed)),
        ];
        if let Some((field, _, text)) = rest.into_iter().find(|(_, is_same, _)| !is_same) {
            return differs(field, text(self), text(now));
        }
        Ok(())
    }

    /// The order of the runs.
    #[must_use]
    pub fn order(&self) -> Vec<order::Slot> {
        order::blocks(self.policies.len(), self.repetitions, self.seed)
    }

    /// Number of runs of the whole study.
    #[must_use]
    pub fn total_runs(&self) -> usize {
        self.policies.len().saturating_mul(self.repetitions as usize)
    }
}

/// Text of a field of settings.
type Text<'a> = &'a dyn Fn(&StudySettings) -> String;

/// The error for a field other than in the comparison begun here.
fn differs(field: &str, begun: String, found: String) -> Result<(), StateError> {
    unfit(&format!("the {field} of the comparison begun here, {begun}"), found)
}

impl StudyState {
    /// A study without any finished run.
    #[must_use]
    pub const fn new(settings: StudySettings) -> Self {
        Self { version: VERSION, settings, runs: Vec::new(), failures: Vec::new() }
    }

    /// Reads a state from JSON text.
    ///
    /// # Errors
    /// [`StateError::Unfit`] for another version, for inconsistent settings, and for runs in
    /// another order than the settings prescribe; [`StateError::Malformed`] for another shape. The
    /// version is checked before the shape.
    pub fn from_json(text: &str) -> Result<Self, StateError> {
        // Only the version: another version may have other fields.
        #[derive(Deserialize)]
        struct StateHeader {
            version: u64,
        }
        let head: StateHeader = serde_json::from_str(text)?;
        if head.version != u64::from(VERSION) {
            let found = format!("version {}; begin again", head.version);
            return Err(StateError::Unfit(format!("a state of version {VERSION}"), found));
        }
        let state: Self = serde_json::from_str(text)?;
        state.settings.check()?;
        state.check_runs()?;
        Ok(state)
    }

    /// The state as JSON text, ending in a newline.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }

    /// Mean time in ns of the finished runs, under `policy` if given; `None` without any.
    fn mean_time(&self, policy: Option<&str>) -> Option<u64> {
        let runs = self.runs.iter().filter(|run| policy.is_none_or(|p| run.policy == p));
        let (sum, count) =
            runs.fold((0, 0), |(sum, count), run| (run.slowest().0.saturating_add(sum), count + 1));
        (count > 0).then(|| sum / count)
    }

    /// Predicted time of the remaining runs: the mean of the finished runs under the same policy,
    /// or under any policy if there are none. `None` before the end of the first run.
    #[must_use]
    pub fn time_left(&self) -> Option<Nanos> {
        // For policies without a finished run.
        let any = self.mean_time(None)?;
        let policies = self.settings.policies.iter();
        let by_policy: Vec<u64> =
            policies.map(|policy| self.mean_time(Some(policy)).unwrap_or(any)).collect();
        let left = self.settings.order().into_iter().skip(self.runs.len());
        Some(Nanos(left.fold(0, |sum, slot| by_policy[slot.policy].saturating_add(sum))))
    }

    /// Checks that the finished runs are those of the settings, in order, and ended well.
    fn check_runs(&self) -> Result<(), StateError> {
        let order = self.settings.order();
        if self.runs.len() > order.len() {
            let found = format!("{} of {}", self.runs.len(), order.len());
            return unfit("no more runs than the settings have", found);
        }
        for (run, slot) in self.runs.iter().zip(&order) {
            let due = (slot.block, &self.settings.policies[slot.policy]);
            if (run.block, &run.policy) != due {
                let found = format!("{} in block {}", run.policy, run.block);
                return unfit("runs in the order of the seed", found);
            }
            if let Some((job, status)) = run.failed_job() {
                return unfit("status 0 of every job", format!("{status} of job {job}"));
            }
            if run.scores.len() != self.settings.scores.len() {
                return unfit("a value of every score", format!("{} values", run.scores.len()));
            }
            // Ratios divide by times.
            if run.jobs.iter().any(|job| job.wall_ns == Nanos::ZERO) {
                return unfit("a time above 0", format!("0 in block {}", run.block));
            }
        }
        let mut all = self.runs.iter().chain(&self.failures);
        match all.find(|run| run.jobs.len() != self.settings.jobs.len()) {
            Some(run) => unfit("a time for every job", format!("{} times", run.jobs.len())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use expect_test::expect;

    pub(crate) fn settings(policies: &[&str], repetitions: u32) -> StudySettings {
        let job = |name: &str| ComparedJob {
            command: vec![name.to_owned(), "--fast".to_owned()],
            identity: format!("build-id:{name}"),
        };
        StudySettings {
            name: "pair".to_owned(),
            jobs: vec![job("a"), job("b")],
            server: Server::default(),
            scores: Vec::new(),
            attach: None,
            pause_ms: None,
            beside: Vec::new(),
            policies: policies.iter().map(|&policy| policy.to_owned()).collect(),
            baseline: policies[0].to_owned(),
            repetitions,
            seed: 3,
        }
    }

    /// A study whose runs take what `millis(policy, block)` says: the first job that long, the
    /// second half of it.
    pub(crate) fn finished(
        settings: StudySettings,
        millis: impl Fn(&str, u32) -> u64,
    ) -> StudyState {
        let mut state = StudyState::new(settings);
        for slot in state.settings.order() {
            let policy = state.settings.policies[slot.policy].clone();
            let wall = millis(&policy, slot.block);
            let job = |ms| JobTime { wall_ns: Nanos::from_millis(ms), status: 0 };
            state.runs.push(FinishedRun {
                block: slot.block,
                policy,
                started_unix_s: 1_700_000_000,
                before: Quiet { others_runnable: Some(0), load_1min: Some(0.25) },
                jobs: vec![job(wall), job(wall / 2)],
                scores: state.settings.scores.iter().map(|_| wall as f64).collect(),
            });
        }
        state
    }

    fn refusal(text: &str) -> String {
        StudyState::from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let state = finished(settings(&["os", "mix"], 3), |_, block| 100 + u64::from(block));
        assert_eq!(StudyState::from_json(&state.to_json()).unwrap(), state);
        let mut begun = state;
        begun.runs.truncate(2);
        assert_eq!(StudyState::from_json(&begun.to_json()).unwrap(), begun);
    }

    /// Six runs of `os` at 100 ms and `mix` at 300 ms; of the four left, two are of either.
    #[test]
    fn time_left_counts_each_policy() {
        let mut state = finished(settings(&["os", "mix"], 3), |policy, _| match policy {
            "os" => 100,
            _ => 300,
        });
        state.runs.truncate(2);
        assert_eq!(state.time_left(), Some(Nanos::from_millis(800)));
        state.runs.clear();
        assert_eq!(state.time_left(), None);
    }

    #[test]
    fn another_version_is_refused() {
        let text = r#"{"version": 9, "anything": 1}"#;
        expect!["expected a state of version 1, found version 9; begin again"]
            .assert_eq(&refusal(text));
    }

    #[test]
    fn a_torn_file_is_refused() {
        let text = finished(settings(&["os"], 2), |_, _| 5).to_json();
        for end in (0..text.len() - 2).filter(|&end| text.is_char_boundary(end)) {
            assert!(StudyState::from_json(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = finished(settings(&["os"], 1), |_, _| 5).to_json();
        let text = text.replacen("\"seed\"", "\"sped\": 1, \"seed\"", 1);
        assert!(refusal(&text).contains("unknown field `sped`"));
    }

    #[test]
    fn runs_that_the_settings_have_not_are_refused() {
        let good = finished(settings(&["os", "mix"], 2), |_, _| 5);
        let spoilt = |spoil: fn(&mut StudyState)| {
            let mut state = good.clone();
            spoil(&mut state);
            refusal(&state.to_json())
        };
        expect!["expected runs in the order of the seed, found os in block 1"].assert_eq(&spoilt(
            |state| {
                state.runs[0] =
                    FinishedRun { block: 1, policy: "os".into(), ..state.runs[0].clone() }
            },
        ));
        expect!["expected no more runs than the settings have, found 5 of 4"]
            .assert_eq(&spoilt(|state| state.runs.push(state.runs[0].clone())));
        expect!["expected status 0 of every job, found 7 of job 1"]
            .assert_eq(&spoilt(|state| state.runs[2].jobs[1].status = 7));
        expect!["expected a time for every job, found 0 times"]
            .assert_eq(&spoilt(|state| state.runs[2].jobs.clear()));
        expect!["expected a value of every score, found 1 values"]
            .assert_eq(&spoilt(|state| state.runs[0].scores.push(1.0)));
        expect!["expected a time above 0, found 0 in block 0"]
            .assert_eq(&spoilt(|state| state.runs[0].jobs[0].wall_ns = Nanos::ZERO));
        expect!["expected every policy once, found os twice"]
            .assert_eq(&spoilt(|state| state.settings.policies[1] = "os".into()));
        expect!["expected the baseline among the policies, found os,mix and not bare"]
            .assert_eq(&spoilt(|state| state.settings.baseline = "bare".into()));
        expect!["expected 1 to 10000 repetitions, found 4000000000"]
            .assert_eq(&spoilt(|state| state.settings.repetitions = 4_000_000_000));
    }

    #[test]
    fn another_comparison_is_refused() {
        let begun = settings(&["os", "mix"], 5);
        let refused = |change: fn(&mut StudySettings)| {
            let mut now = begun.clone();
            change(&mut now);
            begun.check_same(&now).unwrap_err().to_string()
        };
        expect!["expected the workload of the comparison begun here, `a --fast ::: b --fast`, found `a --fast`"]
            .assert_eq(&refused(|now| drop(now.jobs.pop())));
        expect!["expected the executable of the comparison begun here, b as build-id:b, found b as build-id:c"]
            .assert_eq(&refused(|now| now.jobs[1].identity = "build-id:c".into()));
        expect!["expected the policies of the comparison begun here, os,mix against os, found os,mix against mix"]
            .assert_eq(&refused(|now| now.baseline = "mix".into()));
        expect!["expected the repetitions of the comparison begun here, 5 with seed 3, found 6 with seed 3"]
            .assert_eq(&refused(|now| now.repetitions = 6));
        assert!(begun.check_same(&StudySettings { name: "other".into(), ..begun.clone() }).is_ok());
    }
}
