//! The first line of every report: the gain over the kernel alone and the share of the time for
//! which programs were placed, or the reason why there is none.

use super::Report;
use colocate_engine::guard::{Outcome, Verdict};
use colocate_evidence::{Exemption, PlacementStatus, SourceSet, WakeUps};
use colocate_figures::stats::t_quantile;
use colocate_linux::Pid;
use colocate_machine::{Nanos, printable};
use colocate_policy::DefaultPlacement;
use serde::Serialize;
use std::collections::BTreeMap;

/// Wake-ups a second from which on tasks communicate. Chosen: the guard's threshold for partners,
/// about the rate at which two tasks share a PU under `auto`.
const COMMUNICATES: f64 = 300.0;
/// Used share of a busy machine's time. Chosen: a woken thread finds its PU in use 4 times of 5.
const BUSY: f64 = 0.8;
/// Share of wake-ups on the waker's PU from which on both share a PU. Chosen: as in `auto`.
const TOGETHER: f64 = 0.9;
/// Share of the time in which a waker and its wakee both run, from which on sharing a PU costs more
/// than it gains. Chosen.
const RUN_TOGETHER: f64 = 0.1;
/// Below this turnaround, a run is too short to compare or to see communication. Chosen: five times
/// as long as new threads are left unpinned.
const SHORT: Nanos = Nanos::from_secs(1);
/// Least comparisons that resolve a gain. Chosen: the first few may be bad by chance.
const LEAST_COMPARISONS: u32 = 5;
/// Confidence level of intervals.
const CONFIDENCE: f64 = 0.95;
/// Most processes named in a line.
const MOST_NAMED: usize = 3;

/// Source of comparisons with the kernel alone.
#[derive(Clone, Debug)]
pub enum Comparing {
    /// The result of the guard.
    Guard(Outcome),
    /// The guard is switched off.
    NoGuard,
    /// The policy runs without a guard.
    Unguarded,
}

/// The gain and the share of the time with placed programs, or the reason why there is none.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize)]
pub struct GainSummary {
    /// The summary in one line.
    pub line: String,
    /// Progress of the programs while placed over their progress under the kernel alone, less 1;
    /// `None` if not measured.
    gain: Option<f64>,
    /// Lower end of the 95 % confidence interval of `gain`.
    gain_low: Option<f64>,
    /// Upper end of the interval.
    gain_high: Option<f64>,
    /// Quanta of the plan compared with quanta of the kernel alone.
    comparisons: u32,
    /// The guard's verdict at the end; `None` without a guard.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["undecided", "pays", "no-difference", "costs-more", "slows-a-job", "over-budget", null])))]
    verdict: Option<&'static str>,
    /// Share of the time with at least one placed thread.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    placed_share: Option<f64>,
    /// Reason why nothing was placed or compared.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = [
        "places-none", "given-up", "pinned-by-program", "exempt", "refused", "no-evidence", "too-short", "wakers-outside",
        "pus-are-busy", "together-already", "run-together", "nothing-communicates", "nothing-to-gain", "no-guard",
        "unguarded", "throttled", "over-budget", null
    ])))]
    why_not: Option<&'static str>,
}

/// Reason why nothing was placed or compared with the kernel alone: name in the JSON, and text.
type WhyNot = (&'static str, String);

fn why(name: &'static str, text: impl Into<String>) -> WhyNot {
    (name, text.into())
}

/// The run ended before anything was seen, placed or compared.
fn too_short(turnaround: Nanos) -> WhyNot {
    why("too-short", format!("the run was too short ({turnaround})"))
}

/// A CPU quota throttled the programs in all quanta.
fn throttled() -> WhyNot {
    why("throttled", "a CPU quota throttled the programs")
}

/// All PUs are busy, among others with wakers and their wakees.
fn pus_are_busy(pus: usize) -> WhyNot {
    let text = match pus {
        1 => "there is one PU only".to_owned(),
        2 => "both PUs are busy".to_owned(),
        _ => format!("all {pus} PUs are busy"),
    };
    why("pus-are-busy", text)
}

/// The wakers of the programs' threads are not watched: their processes, where known.
fn wakers_outside(pids: &[Pid], is_attached: bool) -> WhyNot {
    let named: Vec<String> = pids.iter().take(MOST_NAMED).map(|pid| format!("-p {pid}")).collect();
    let named = named.join(" ");
    let remedy = match (named.is_empty(), is_attached) {
        (true, _) => String::new(),
        (false, true) => format!(" (add {named})"),
        (false, false) => format!(" (start them in the same run, or attach to both with {named})"),
    };
    let text =
        "the wakers are outside: wake-ups come from interrupts or processes that are not watched";
    why("wakers-outside", text.to_owned() + &remedy)
}

fn nothing_to_gain() -> WhyNot {
    why("nothing-to-gain", "the policy found nothing to gain")
}

/// Facts of a report from which its summary is made.
pub struct SummaryFacts<'a> {
    pub report: &'a Report,
    pub comparing: &'a Comparing,
    /// Evidence that the policy needs.
    pub needs: SourceSet,
}

fn placed_text(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 1.0 {
        return "placed less than 1 % of the time".to_owned();
    }
    format!("placed {percent:.0} % of the time")
}

impl SummaryFacts<'_> {
    /// The summary.
    pub fn summary(&self) -> GainSummary {
        let share = self.placed_share();
        let outcome = match self.comparing {
            Comparing::Guard(outcome) => Some(outcome),
            Comparing::NoGuard | Comparing::Unguarded => None,
        };
        let none = GainSummary {
            comparisons: outcome.map_or(0, |outcome| outcome.compared.count),
            verdict: outcome.map(|outcome| outcome.verdict.name()),
            placed_share: share,
            ..GainSummary::default()
        };
        if self.placed() == Nanos::ZERO {
            let (name, why) = self.why_not_placed();
            let line = format!("not placed: {}", printable(&why));
            return GainSummary { line, why_not: Some(name), ..none };
        }
        let placed = placed_text(share.unwrap_or(0.0));
        let Some((gain, low, high)) = outcome.and_then(gain) else {
            let (name, why) = self.why_not_compared();
            let line = format!("not compared with the kernel alone ({why}), {placed}");
            return GainSummary { line, why_not: Some(name), ..none };
        };
        let from = percent(low);
        let to = percent(high);
        let is_resolved = none.comparisons >= LEAST_COMPARISONS && (low > 0.0 || high < 0.0);
        let unresolved = if is_resolved { "" } else { "not resolved: " };
        // A loss while a policy was tried is not the run's.
        let is_given_up = outcome.is_some_and(|outcome| {
            outcome.verdict != Verdict::Undecided && !outcome.verdict.keeps()
        });
        let given_up = if is_given_up { "; then left to the kernel" } else { "" };
        let line = format!(
            "{unresolved}{:+.1} % ({from} to {to}) over the kernel alone, {placed}{given_up}",
            100.0 * gain
        );
        GainSummary { line, gain: Some(gain), gain_low: Some(low), gain_high: Some(high), ..none }
    }

    fn placed(&self) -> Nanos {
        self.report.host.placed
    }

    fn placed_share(&self) -> Option<f64> {
        let all = self.report.turnaround_ns.as_secs_f64();
        (all > 0.0).then(|| (self.placed().as_secs_f64() / all).min(1.0))
    }

    fn why_not_compared(&self) -> WhyNot {
        match self.comparing {
            Comparing::NoGuard => why("no-guard", "--no-guard, so no quantum was the kernel's"),
            Comparing::Unguarded => why("unguarded", "the policy runs without a guard"),
            Comparing::Guard(outcome) if outcome.throttled > 0 => throttled(),
            Comparing::Guard(outcome) if outcome.verdict == Verdict::OverBudget => {
                let count = outcome.compared.count;
                let plural = if count == 1 { "" } else { "s" };
                let text = format!("the guard's budget was spent after {count} comparison{plural}");
                why("over-budget", text)
            }
            Comparing::Guard(_) => too_short(self.report.turnaround_ns),
        }
    }

    fn why_not_placed(&self) -> WhyNot {
        let report = self.report;
        if report.host.has_given_up {
            return why(
                "given-up",
                "every program was left to the kernel for good, as a note says",
            );
        }
        if let Some(why) = self.common_status() {
            return why;
        }
        let mut needed = report.evidence.iter().filter(|it| self.needs.has(it.source));
        if let Some((source, refused, remedy)) =
            needed.find_map(|it| Some((it.source, it.refused.as_ref()?, it.remedy)))
        {
            let remedy = remedy.unwrap_or_default();
            let what = source.reports();
            let text = format!("cannot report {what}, because {refused}; {remedy}");
            return why("no-evidence", text);
        }
        if matches!(self.comparing, Comparing::Guard(outcome) if outcome.throttled > 0) {
            return throttled();
        }
        let plans_a_place = self.plans_a_place();
        if !plans_a_place && self.needs == SourceSet::NONE {
            return why("places-none", "the policy leaves every thread to the kernel");
        }
        // A planned place that no thread ever had came too late.
        if report.turnaround_ns < SHORT || plans_a_place {
            return too_short(report.turnaround_ns);
        }
        self.why_nothing_communicates()
    }

    /// Whether any plan pins a task or new threads.
    fn plans_a_place(&self) -> bool {
        let mut plans = self.report.plans.iter().map(|planned| &planned.plan);
        let places_any = plans.any(|plan| {
            plan.decisions.iter().any(|it| it.place.named_pu().is_some())
                || plan.default_placement != DefaultPlacement::LeaveToKernel
        });
        places_any || self.report.tasks.iter().any(|task| task.planned.is_some())
    }

    /// Status of the tasks with most CPU time, if it explains why they were not placed.
    fn common_status(&self) -> Option<WhyNot> {
        let mut times: BTreeMap<(&str, Option<&str>), Nanos> = BTreeMap::new();
        for task in &self.report.tasks {
            let time = times.entry((task.status, task.detail.as_deref())).or_default();
            *time += task.cpu_ns.unwrap_or(Nanos::ZERO);
        }
        let ((status, detail), _) = times.into_iter().max_by_key(|(_, time)| *time)?;
        let detail = detail.unwrap_or_default().to_owned();
        // A report has only the text of a status.
        if status == PlacementStatus::PinnedByProgram.describe().0 {
            Some(why("pinned-by-program", "masks are set by the program or by its owner"))
        } else if status == PlacementStatus::Exempt(Exemption::Orphan).describe().0 {
            Some(why("exempt", detail))
        } else if status == PlacementStatus::Trouble(String::new()).describe().0 {
            Some(why("refused", detail))
        } else {
            None
        }
    }

    /// Reason why a policy based on wake-ups places nothing.
    fn why_nothing_communicates(&self) -> WhyNot {
        let report = self.report;
        let Some(wake_ups) = &report.wake_ups else { return nothing_to_gain() };
        let inside = WakeUpRates::of(wake_ups, true);
        let outside = WakeUpRates::of(wake_ups, false);
        let seconds = report.turnaround_ns.as_secs_f64();
        let pus = report.machine.usable.len();
        let used: f64 =
            report.tasks.iter().filter_map(|task| task.cpu_ns).map(Nanos::as_secs_f64).sum();
        if pus < 2 {
            pus_are_busy(pus)
        } else if inside.count.max(outside.count) < COMMUNICATES * seconds {
            let text = "nothing communicates: hardly a thread wakes another one";
            why("nothing-communicates", text)
        } else if outside.count > inside.count {
            wakers_outside(&report.host.outside_wakers, report.host.is_attached)
        } else if inside.same_pu >= TOGETHER * inside.count {
            let text = "the kernel has the threads that wake each other on one PU already";
            why("together-already", text)
        } else if used > BUSY * seconds * pus as f64 {
            pus_are_busy(pus)
        } else if inside.both_ran >= RUN_TOGETHER * seconds {
            why("run-together", "threads that wake each other run at the same time")
        } else {
            nothing_to_gain()
        }
    }
}

/// Sums of wake-ups.
#[derive(Default)]
struct WakeUpRates {
    count: f64,
    /// Wake-ups that end on the waker's PU, as far as known.
    same_pu: f64,
    /// Seconds in which waker and wakee both ran.
    both_ran: f64,
}

impl WakeUpRates {
    /// Sums wake-ups by other tasks (`is_inside`), or by interrupts and threads of no job.
    fn of(wake_ups: &[WakeUps], is_inside: bool) -> Self {
        let mut sums = Self::default();
        for it in wake_ups {
            if it.waker.is_some() != is_inside || it.waker == Some(it.wakee) {
                continue;
            }
            sums.count += it.count as f64;
            sums.same_pu += it.same_pu.unwrap_or(0) as f64;
            sums.both_ran += it.both_ran.map_or(0.0, Nanos::as_secs_f64);
        }
        sums
    }
}

/// The gain and the ends of its interval; `None` with too few comparisons.
fn gain(outcome: &Outcome) -> Option<(f64, f64, f64)> {
    let freedom = f64::from(outcome.compared.count.checked_sub(1)?);
    // Two-sided: half of the rest lies above the interval.
    let t = t_quantile(f64::midpoint(CONFIDENCE, 1.0), freedom)?;
    let (low, high) = outcome.compared.ratios_within(t)?;
    Some((outcome.compared.ratio()? - 1.0, low - 1.0, high - 1.0))
}

fn percent(part: f64) -> String {
    format!("{:.1}", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of_two_quanta, report};
    use super::*;
    use colocate_engine::guard::{Compared, Verdict};
    use colocate_evidence::{JobIdx, Source, TaskId};

    const WAKE_UPS: SourceSet = SourceSet::of(&[Source::WakeUps]);

    /// Of a run of 0.25 s with threads placed for half of it.
    fn placed() -> Report {
        let mut report = report(&mut of_two_quanta());
        report.host.placed = Nanos::from_millis(125);
        report
    }

    fn line(mut report: Report, comparing: &Comparing, needs: SourceSet) -> String {
        report.summarize(comparing, needs);
        report.text(false).lines().next().unwrap().to_owned()
    }

    fn outcome(differences: &[f64], throttled: u64) -> Comparing {
        let mut compared = Compared::default();
        differences.iter().for_each(|x| compared.take(*x));
        Comparing::Guard(Outcome { verdict: Verdict::Pays, compared, throttled })
    }

    /// Differences around 0.1 of the mean: 2.1/1.9 is 10.5 % more. The standard error of five is 0.0071, and t 2.776: from 0.0804 to
    /// 0.1196.
    #[test]
    fn a_gain_has_its_interval_and_its_time() {
        let of = |differences: &[f64]| line(placed(), &outcome(differences, 0), WAKE_UPS);
        let resolved =
            "colocate: +10.5 % (8.4 to 12.7) over the kernel alone, placed 50 % of the time";
        assert_eq!(of(&[0.08, 0.09, 0.10, 0.11, 0.12]), resolved);
        let loss =
            "colocate: -9.5 % (-11.3 to -7.7) over the kernel alone, placed 50 % of the time";
        assert_eq!(of(&[-0.08, -0.09, -0.10, -0.11, -0.12]), loss);
        let text = of(&[-0.1, 0.1, 0.0, -0.1, 0.1]);
        assert!(text.starts_with("colocate: not resolved: +0.0 % (-1"), "{text}");
        let text = of(&[0.09, 0.10, 0.11]);
        assert!(text.starts_with("colocate: not resolved: +10.5 % (7.8 to 13.3)"), "{text}");
        let text = line(placed(), &gave_up(&[-0.08, -0.09, -0.10, -0.11, -0.12]), WAKE_UPS);
        assert_eq!(text, format!("{loss}; then left to the kernel"));
        assert_eq!(placed_text(0.004), "placed less than 1 % of the time");
    }

    /// Comparisons of a guard that gave the policy up over its budget.
    fn gave_up(differences: &[f64]) -> Comparing {
        let Comparing::Guard(tried) = outcome(differences, 0) else { unreachable!() };
        Comparing::Guard(Outcome { verdict: Verdict::OverBudget, ..tried })
    }

    #[test]
    fn what_was_not_compared_says_why() {
        let said = |comparing: &Comparing| line(placed(), comparing, WAKE_UPS);
        for (comparing, why) in [
            (Comparing::NoGuard, "--no-guard, so no quantum was the kernel's"),
            (Comparing::Unguarded, "the policy runs without a guard"),
            (outcome(&[0.1], 0), "the run was too short (250.0 ms)"),
            (outcome(&[], 7), "a CPU quota throttled the programs"),
            (gave_up(&[]), "the guard's budget was spent after 0 comparisons"),
            (gave_up(&[-0.5]), "the guard's budget was spent after 1 comparison"),
        ] {
            let expected = format!(
                "colocate: not compared with the kernel alone ({why}), placed 50 % of the time"
            );
            assert_eq!(said(&comparing), expected);
        }
    }

    /// Of a run of 10 s under a guard in which nothing was placed, with so many wake-ups by others and by each other, and
    /// so many seconds of CPU time.
    fn unplaced(outside: u64, inside: u64, busy_s: u64) -> Report {
        let mut report = report(&mut of_two_quanta());
        report.turnaround_ns = Nanos::from_secs(10);
        let task = |order| TaskId { job: JobIdx(0), order };
        let of = |waker, count| WakeUps {
            waker,
            wakee: task(0),
            count,
            same_pu: None,
            waited: None,
            both_ran: None,
            turns_apart: None,
            turns_together: None,
        };
        report.wake_ups = Some(vec![of(None, outside), of(Some(task(1)), inside)]);
        report.tasks = vec![super::super::tests::task(task(0), Nanos::from_secs(busy_s))];
        report.machine.usable = "0-1".parse().unwrap();
        report
    }

    #[test]
    fn what_was_not_placed_says_why() {
        let said = |report| line(report, &outcome(&[], 0), WAKE_UPS);
        let outside = "colocate: not placed: the wakers are outside: wake-ups come from interrupts or processes that are not \
                       watched";
        assert_eq!(said(unplaced(137_000, 20, 15)), outside);
        assert_eq!(said(unplaced(20, 50_000, 19)), "colocate: not placed: both PUs are busy");
        let of_inside = |same_pu, both_ran_s| {
            let mut report = unplaced(20, 50_000, 12);
            let inside = report.wake_ups.as_mut().unwrap().last_mut().unwrap();
            inside.same_pu = Some(same_pu);
            inside.both_ran = Some(Nanos::from_secs(both_ran_s));
            said(report)
        };
        let together = "colocate: not placed: threads that wake each other run at the same time";
        assert_eq!(of_inside(10_000, 5), together);
        let already = "colocate: not placed: the kernel has the threads that wake each other on one PU already";
        assert_eq!(of_inside(49_500, 0), already);
        assert_eq!(of_inside(10_000, 0), "colocate: not placed: the policy found nothing to gain");
        let none = "colocate: not placed: nothing communicates: hardly a thread wakes another one";
        assert_eq!(said(unplaced(20, 20, 19)), none);
        let mut bound = unplaced(137_000, 20, 15);
        bound.tasks[0].status = PlacementStatus::PinnedByProgram.describe().0;
        let by_program = "colocate: not placed: masks are set by the program or by its owner";
        assert_eq!(said(bound), by_program);
        let os = line(unplaced(0, 0, 0), &outcome(&[], 0), SourceSet::NONE);
        assert_eq!(os, "colocate: not placed: the policy leaves every thread to the kernel");
    }

    #[test]
    fn outside_wakers_are_named() {
        let (_, why) = wakers_outside(&[4711, 12].map(Pid), true);
        assert!(why.ends_with("not watched (add -p 4711 -p 12)"), "{why}");
        let (_, why) = wakers_outside(&[Pid(4711)], false);
        let remedy = "not watched (start them in the same run, or attach to both with -p 4711)";
        assert!(why.ends_with(remedy), "{why}");
    }
}
