//! Results of a study, one entry a policy.
//!
//! # Terms
//! - A run's *time* is the time of its slowest job, launch to end (the metric of Serpa et al.).
//! - A policy's *ratio* is the geometric mean, over the blocks, of its time divided by the
//!   baseline's time in the same block. Its interval is Student's t on the logarithms of the
//!   ratios, with n − 1 degrees of freedom for n blocks, transformed back. With
//!   `d_b = ln(t_b / base_b)`, mean `m` and sample deviation `s`, the interval is
//!   `exp(m ± t(0.975, n − 1) · s / √n)`.
//! - A difference is *resolved* when the interval excludes 1. Only resolved differences are called
//!   faster or slower. The intervals are not corrected for the number of policies: of twenty
//!   policies without any effect, one is expected to look resolved.
//! # Properties
//! - **No claim without resolution**: a verdict other than `not-resolved` has an interval that
//!   leaves 1 out. -> test `no_claim_without_resolution`
//! - **Drift cancels**: a factor that hits a whole block changes no ratio. -> test `drift_cancels`
//! - **Whole blocks only**: a ratio pairs runs of the same block. -> test `whole_blocks_only`

use crate::state::{Better, FinishedRun, StudySettings, StudyState};
use crate::stats::{Estimate, Summary, geometric_estimate};
use serde::Serialize;
use std::collections::BTreeMap;

/// Version of the report format that this build writes.
pub const VERSION: u32 = 1;

/// Comparison of a policy with the baseline.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// The policy is the baseline.
    Baseline,
    /// The interval of its ratio lies below 1.
    Faster,
    /// The interval of its ratio lies above 1.
    Slower,
    /// The interval of a score's ratio excludes 1, in the direction that is better.
    Better,
    /// The interval of a score's ratio excludes 1, in the direction that is worse.
    Worse,
    /// The interval contains 1, or is unknown.
    NotResolved,
}

/// The times of one job under one policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobFigures {
    /// Command line, words joined by spaces.
    pub command: String,
    /// Times in seconds; `None` if no run has ended.
    pub seconds: Option<Summary>,
}

/// Values of one score under one policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreFigures {
    /// Name of the score.
    pub name: String,
    /// Values; `None` if no run has ended.
    pub values: Option<Summary>,
    /// Value relative to the baseline, as [`PolicyFigures::ratio`]. `None` also if a value is not
    /// above 0.
    pub ratio: Option<Estimate>,
    /// Comparison with the baseline.
    pub verdict: ComparisonVerdict,
}

/// Results of one policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// Name of the policy.
    pub policy: String,
    /// Times of the slowest job in seconds; `None` if no run has ended.
    pub slowest_seconds: Option<Summary>,
    /// Time relative to the baseline, paired by block. `None` for the baseline itself, and if no
    /// block contains runs of both policies.
    pub ratio: Option<Estimate>,
    /// Comparison with the baseline.
    pub verdict: ComparisonVerdict,
    /// One entry a job, in the workload's order.
    pub jobs: Vec<JobFigures>,
    /// One entry a score, in the settings' order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<ScoreFigures>,
}

/// Machine and software of a study.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StudyEnvironment {
    /// Version of colocate.
    pub colocate: String,
    /// The kernel's name and release, if known.
    pub kernel: Option<String>,
    /// Processor model, if known.
    pub processor: Option<String>,
    /// PUs that the programs could use; `None` if unknown.
    pub usable_pus: Option<u32>,
}

/// Results of a study (`docs/schemas/comparison.json`).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Machine and software.
    pub place: StudyEnvironment,
    /// Settings of the study.
    pub settings: StudySettings,
    /// True if every run of the settings has ended well.
    pub complete: bool,
    /// One entry a policy, in the settings' order.
    pub policies: Vec<PolicyFigures>,
    /// Runs whose programs all ended well, in the order made.
    pub runs: Vec<FinishedRun>,
    /// Runs with a failed program; not part of any figure.
    pub failures: Vec<FinishedRun>,
    /// Caveats for the reader, one sentence each.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Computes the results of `state`.
    #[must_use]
    pub fn of(state: &StudyState, place: StudyEnvironment) -> Self {
        let settings = &state.settings;
        let policies = settings.policies.iter().map(|policy| policy_figures(state, policy));
        Self {
            version: VERSION,
            place,
            settings: settings.clone(),
            complete: state.runs.len() == settings.total_runs(),
            policies: policies.collect(),
            runs: state.runs.clone(),
            failures: state.failures.clone(),
            notes: notes(state),
        }
    }
}

fn policy_figures(state: &StudyState, policy: &str) -> PolicyFigures {
    let runs: Vec<&FinishedRun> = state.runs.iter().filter(|run| run.policy == policy).collect();
    let ratio = ratio(state, policy, slowest_seconds);
    let of_direction = [ComparisonVerdict::Faster, ComparisonVerdict::Slower];
    let scores = state.settings.scores.iter().enumerate();
    PolicyFigures {
        policy: policy.to_owned(),
        slowest_seconds: summary(&runs, slowest_seconds),
        ratio,
        verdict: verdict(state, policy, ratio, of_direction),
        jobs: (0..state.settings.jobs.len()).map(|job| job_figures(state, &runs, job)).collect(),
        scores: scores.map(|(place, _)| score_figures(state, policy, &runs, place)).collect(),
    }
}

fn summary(runs: &[&FinishedRun], value: impl Fn(&FinishedRun) -> f64) -> Option<Summary> {
    Summary::of(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
}

fn slowest_seconds(run: &FinishedRun) -> f64 {
    run.slowest().as_secs_f64()
}

fn score_figures(
    state: &StudyState,
    policy: &str,
    runs: &[&FinishedRun],
    place: usize,
) -> ScoreFigures {
    let score = &state.settings.scores[place];
    // `StudyState` checks that each run has a value of every score.
    let ratio = ratio(state, policy, |run| run.scores[place]);
    let of_direction = match score.better {
        Better::Less => [ComparisonVerdict::Better, ComparisonVerdict::Worse],
        Better::More => [ComparisonVerdict::Worse, ComparisonVerdict::Better],
    };
    ScoreFigures {
        name: score.name.clone(),
        values: summary(runs, |run| run.scores[place]),
        ratio,
        verdict: verdict(state, policy, ratio, of_direction),
    }
}

fn job_figures(state: &StudyState, runs: &[&FinishedRun], job: usize) -> JobFigures {
    JobFigures {
        command: state.settings.jobs[job].command.join(" "),
        seconds: summary(runs, |run| run.jobs[job].wall_ns.as_secs_f64()),
    }
}

fn by_block(
    state: &StudyState,
    policy: &str,
    value: impl Fn(&FinishedRun) -> f64,
) -> BTreeMap<u32, f64> {
    let runs = state.runs.iter().filter(|run| run.policy == policy);
    runs.map(|run| (run.block, value(run))).collect()
}

/// Ratio of the policy's `value` to the baseline's over blocks with both; `None` for the baseline.
fn ratio(
    state: &StudyState,
    policy: &str,
    value: impl Fn(&FinishedRun) -> f64,
) -> Option<Estimate> {
    if policy == state.settings.baseline {
        return None;
    }
    let base = by_block(state, &state.settings.baseline, &value);
    let values = by_block(state, policy, &value);
    let ratios = values.iter().filter_map(|(block, value)| Some(value / base.get(block)?));
    geometric_estimate(&ratios.collect::<Vec<_>>())
}

/// Verdict on a ratio: `lower` or `higher` where it is resolved.
fn verdict(
    state: &StudyState,
    policy: &str,
    ratio: Option<Estimate>,
    [lower, higher]: [ComparisonVerdict; 2],
) -> ComparisonVerdict {
    match ratio.and_then(|ratio| ratio.interval) {
        _ if policy == state.settings.baseline => ComparisonVerdict::Baseline,
        Some(interval) if interval.high < 1.0 => lower,
        Some(interval) if interval.low > 1.0 => higher,
        _ => ComparisonVerdict::NotResolved,
    }
}

fn notes(state: &StudyState) -> Vec<String> {
    let mut notes = Vec::new();
    let done = state.runs.len();
    let total = state.settings.total_runs();
    if done < total {
        notes.push(format!("only {done} of {total} runs are finished"));
    }
    let disturbed =
        state.runs.iter().filter(|run| run.before.others_runnable.is_some_and(|n| n > 0)).count();
    if disturbed > 0 {
        notes.push(format!(
            "{disturbed} of {done} runs began while other tasks were running: the machine was not \
             idle"
        ));
    }
    if state.runs.iter().any(|run| run.before.others_runnable.is_none()) {
        notes.push("the kernel did not say whether the machine was idle".to_owned());
    }
    if !state.failures.is_empty() {
        let count = state.failures.len();
        notes.push(format!("{count} runs in which a program failed are in no figure"));
    }
    if state.settings.repetitions < 2 {
        notes.push("one run a policy gives no interval: nothing can be resolved".to_owned());
    }
    notes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::state::Score;
    use crate::state::tests::{finished, settings};
    use proptest::prelude::*;

    pub(crate) fn place() -> StudyEnvironment {
        StudyEnvironment {
            colocate: "0.1.0".to_owned(),
            kernel: Some("Linux 6.1.0".to_owned()),
            processor: Some("test processor".to_owned()),
            usable_pus: Some(4),
        }
    }

    /// Two blocks: os 100 and 200 ms, mix 50 and 100 ms. Both ratios are ½ exactly, so the
    /// deviation is 0 and the interval is ½ .. ½. The mean of mix is 75 ms; its second job takes
    /// half of each, 25 and 50 ms.
    #[test]
    fn traced_by_hand() {
        let state = finished(settings(&["os", "mix"], 2), |policy, block| {
            100 * (u64::from(block) + 1) / if policy == "mix" { 2 } else { 1 }
        });
        let found = Comparison::of(&state, place());
        let mix = &found.policies[1];
        let (slowest, ratio) = (mix.slowest_seconds.unwrap(), mix.ratio.unwrap());
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        close(slowest.mean.value, 0.075);
        close(mix.jobs[1].seconds.unwrap().mean.value, 0.037_5);
        close(ratio.value, 0.5);
        close(ratio.interval.unwrap().high, 0.5);
        assert_eq!(mix.verdict, ComparisonVerdict::Faster);
        assert_eq!(
            (found.policies[0].verdict, found.policies[0].ratio),
            (ComparisonVerdict::Baseline, None)
        );
        assert!(found.complete && found.notes.is_empty(), "{:?}", found.notes);
    }

    #[test]
    fn one_run_a_policy_resolves_nothing() {
        let state = finished(settings(&["os", "mix"], 1), |policy, _| policy.len() as u64 * 1_000);
        let found = Comparison::of(&state, place());
        assert_eq!(found.policies[1].verdict, ComparisonVerdict::NotResolved);
        assert_eq!(found.policies[1].ratio.unwrap().interval, None);
        assert_eq!(found.notes, ["one run a policy gives no interval: nothing can be resolved"]);
    }

    /// The last block lacks one of its two runs: it gives a time, but no ratio.
    #[test]
    fn whole_blocks_only() {
        let mut state = finished(settings(&["os", "mix"], 3), |policy, block| match policy {
            "os" => 1_000,
            _ if block < 2 => 2_000,
            _ => 90_000,
        });
        let last = state.runs.iter().position(|run| run.block == 2 && run.policy == "os").unwrap();
        state.runs.remove(last);
        let found = Comparison::of(&state, place());
        let ratio = found.policies[1].ratio.unwrap();
        assert!((ratio.value - 2.0).abs() < 1e-12, "{ratio:?}");
        assert_eq!(found.policies[1].slowest_seconds.unwrap().count, 3);
        assert_eq!(found.notes, ["only 5 of 6 runs are finished"]);
    }

    #[test]
    fn a_busy_machine_and_failures_are_reported() {
        let mut state = finished(settings(&["os"], 2), |_, _| 10);
        state.runs[1].before.others_runnable = Some(2);
        state.failures.push(state.runs[0].clone());
        let notes = Comparison::of(&state, place()).notes;
        assert!(notes[0].starts_with("1 of 2 runs began while other tasks were running"));
        assert_eq!(notes[1], "1 runs in which a program failed are in no figure");
        state.runs[0].before.others_runnable = None;
        let notes = Comparison::of(&state, place()).notes;
        assert!(notes.iter().any(|note| note.contains("did not say")));
    }

    #[test]
    fn nothing_run_is_no_figure() {
        let found = Comparison::of(&StudyState::new(settings(&["os", "mix"], 2)), place());
        assert!(found.policies.iter().all(|p| p.slowest_seconds.is_none() && p.ratio.is_none()));
        assert!(!found.complete);
    }

    /// Two runs each, 100 under os and 50 under mix: half of it, which is worse where more is
    /// better.
    #[test]
    fn scores_have_a_direction() {
        let mut settings = settings(&["os", "mix"], 2);
        settings.scores = [("rate", Better::More), ("latency", Better::Less)]
            .map(|(name, better)| Score { name: name.into(), from: "cpu".into(), better })
            .to_vec();
        let state = finished(settings, |policy, _| if policy == "mix" { 50 } else { 100 });
        let found = Comparison::of(&state, place());
        let [rate, latency] = &found.policies[1].scores[..] else { panic!("{found:?}") };
        assert!((rate.ratio.unwrap().value - 0.5).abs() < 1e-12);
        assert_eq!(
            [rate.verdict, latency.verdict],
            [ComparisonVerdict::Worse, ComparisonVerdict::Better]
        );
        assert_eq!(found.policies[0].scores[0].verdict, ComparisonVerdict::Baseline);
        assert!((latency.values.unwrap().mean.value - 50.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn no_claim_without_resolution(
            times in prop::collection::vec(1..2_000_u64, 1..=40),
            blocks in 1..10_u32,
        ) {
            let pick = |policy: &str, block: u32| {
                times[(block as usize * 2 + policy.len()) % times.len()]
            };
            let state = finished(settings(&["os", "mix"], blocks), pick);
            let found = &Comparison::of(&state, place()).policies[1];
            let interval = found.ratio.unwrap().interval;
            let resolved = interval.is_some_and(|interval| !interval.contains(1.0));
            prop_assert_eq!(resolved, found.verdict != ComparisonVerdict::NotResolved);
        }

        #[test]
        fn drift_cancels(factors in prop::collection::vec(1..50_u64, 2..8)) {
            let blocks = u32::try_from(factors.len()).unwrap();
            let state = finished(settings(&["os", "mix"], blocks), |policy, block| {
                factors[block as usize] * if policy == "os" { 400 } else { 300 }
            });
            let ratio = Comparison::of(&state, place()).policies[1].ratio.unwrap();
            prop_assert!((ratio.value - 0.75).abs() < 1e-9);
            prop_assert!((ratio.interval.unwrap().low - 0.75).abs() < 1e-6);
        }
    }
}
