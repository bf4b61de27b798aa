//! The report of `colocate advise-threads`, as text and as JSON (docs/schemas/threads.json).

use super::advice::{Advice, Cap, Most, ScalingLimit, Standing, ThreadCountRow};
use super::command::has_place;
use crate::columns::{self, TableColumn, rows};
use colocate_figures::stats::{Estimate, Interval};
use colocate_figures::table::aligned;
use colocate_machine::printable;
use colocate_model::threads::lost::{LossCause, SUBSTANTIAL};
use colocate_model::threads::sections::GROWTH;
use serde::Serialize;
use std::fmt::Write;

/// Version of the report's format.
const VERSION: u32 = 2;
/// Most regions in the text; the JSON has all.
const SHOWN: usize = 20;

/// Most threads allowed, and the limits that were read.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Allowed {
    /// Most threads allowed, and the lowest limit.
    pub most: Most,
    /// PUs in the inherited mask and cpuset.
    pub usable_pus: u32,
    /// CPU quota, in PUs; `None` without a quota.
    pub quota_pus: Option<f64>,
    /// `OMP_THREAD_LIMIT`; `None` if not set.
    pub thread_limit: Option<u32>,
}

/// Parallel region. Shares are of the time of its threads; `None` means unknown.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct RegionReport {
    /// File and line, or file and address.
    pub place: String,
    /// Whether the program sets the number of threads itself or, with `--apply`, has read it.
    pub explicit: bool,
    /// Most threads that the region may have.
    pub most: u32,
    /// Number of threads at the end.
    pub threads: u32,
    /// Result of learning while the program ran; `learning` for regions that were only watched.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["learning", "all", "fewer", "slower", "not-resolved", "stuck"])))]
    pub learnt: &'static str,
    /// Whether learning was within executions. Then `executions` counts windows, and means are of one
    /// step of a loop's variable or one critical section.
    pub windows: bool,
    /// Time of all executions until the number was settled; `None` if it was not.
    pub settled_ns: Option<u64>,
    /// Largest of the three lost shares; `None` if none is above 0.1.
    pub cause: Option<LossCause>,
    /// Number of threads by the model.
    pub model_threads: Option<u32>,
    /// Counted executions with all threads.
    pub executions: u32,
    /// Mean time of an execution with all threads.
    pub mean_ns: Option<f64>,
    /// Counted executions with one thread.
    pub executions_one: u32,
    /// Mean time of an execution with one thread.
    pub mean_one_ns: Option<f64>,
    /// Share of one thread's time in critical sections.
    pub inside_share: Option<f64>,
    /// Share of all threads' time lost in waits for critical sections and longer execution of them.
    pub sections_lost: Option<f64>,
    /// Share of all threads' time outside of critical sections beyond the time of one thread; 0 if it
    /// grows by less than a quarter.
    pub resource_lost: Option<f64>,
    /// Share of all threads' time before they begin and after they end.
    pub idle_lost: Option<f64>,
    /// Time outside of critical sections of all threads together, over the time of one thread.
    pub growth: Option<f64>,
    /// Time of all executions.
    pub total_ns: u64,
    /// Part of `total_ns` that learning cost.
    pub learning_ns: u64,
}

/// Largest loss of the threads' time in a run with all threads, and its share of that time.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// Largest loss.
    pub cause: RunCause,
    /// Its share of the threads' time.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub share: f64,
}

/// Reason why more threads do not make a run shorter.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunCause {
    /// Time outside all watched parallel regions.
    Serial,
    /// Loss within parallel regions.
    #[serde(untagged)]
    Region(LossCause),
}

/// Advice on the number of threads. Times of whole runs are in seconds, of regions in nanoseconds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct ThreadsReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Most threads allowed.
    pub allowed: Allowed,
    /// Time limit of all runs; `None` with `--apply`.
    pub limit_s: Option<f64>,
    /// Time of all runs.
    pub took_s: f64,
    /// Whether all runs ended within the limit; `None` with `--apply`.
    pub complete: Option<bool>,
    /// Exit status of the run with `--apply`, otherwise `None`.
    pub status: Option<i32>,
    /// Result of whole runs; `None` with `--apply`.
    pub advice: Option<Advice>,
    /// Largest loss in a run with all threads; `None` with `--apply`, without a watched region, and
    /// without a substantial loss.
    pub reason: Option<Reason>,
    /// Parallel regions, the longest first.
    pub regions: Vec<RegionReport>,
    /// Caveats for the reader, one line each.
    pub notes: Vec<String>,
}

impl ThreadsReport {
    /// A report before any run.
    pub fn new(command: Vec<String>, allowed: Allowed) -> Self {
        Self {
            version: VERSION,
            command,
            allowed,
            limit_s: None,
            took_s: 0.0,
            complete: None,
            status: None,
            advice: None,
            reason: None,
            regions: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(&self.command.join(" ")));
        let most = threads(self.allowed.most.threads);
        let _ = writeln!(text, "at most {most}: {}", cap(&self.allowed));
        if let Some(advice) = &self.advice {
            self.runs(&mut text, advice);
        }
        for region in self.regions.iter().take(SHOWN) {
            text.push_str(&if self.advice.is_some() { watched(region) } else { learnt(region) });
        }
        if let Some(more @ 1..) = self.regions.len().checked_sub(SHOWN) {
            let _ = writeln!(text, "and {more} regions more, in the JSON report");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", printable(note));
        }
        text
    }

    fn why(&self, advice: &Advice) -> String {
        match advice.limit {
            ScalingLimit::Allowed => {
                format!("more are not allowed{}", fewer(advice, self.allowed.most.threads))
            }
            ScalingLimit::Grows => format!("more take longer; {}", self.reason_in_words()),
            ScalingLimit::Stays => format!("more take as long; {}", self.reason_in_words()),
            ScalingLimit::NotResolved => {
                "not resolved: noise is larger than the difference, so it stays at what is allowed"
                    .to_owned()
            }
        }
    }

    fn reason_in_words(&self) -> String {
        let Some(Reason { cause, share }) = self.reason else {
            let seen = if self.regions.is_empty() {
                "no parallel region was watched"
            } else {
                "nothing in its regions shows it"
            };
            return format!("why is unknown: {seen}");
        };
        let what = match cause {
            RunCause::Serial => "what is outside of its parallel regions takes",
            RunCause::Region(cause) => match cause {
                LossCause::CriticalSections => "critical sections of its regions take",
                LossCause::SharedResource => "a shared resource, as the memory is, takes",
                LossCause::Idle => "begin, end and waiting for the last in its regions take",
            },
        };
        format!("{what} {} of the threads' time", percent(share))
    }

    /// Largest substantial loss of time; `None` without watched regions or a run with all threads.
    pub fn found_reason(&self) -> Option<Reason> {
        let mut rows = self.advice.as_ref()?.rows.iter();
        let all = rows.find(|row| row.threads == self.allowed.most.threads)?;
        let run_ns = 1e9 * all.seconds?.value;
        // a century of ns is below 2^62, and shares need no more than 53 bits
        let sum = |of: fn(&RegionReport) -> Option<f64>| -> f64 {
            let regions = self.regions.iter();
            regions.map(|region| of(region).unwrap_or(0.0) * region.total_ns as f64).sum()
        };
        let inside = sum(|_| Some(1.0));
        if inside <= 0.0 {
            return None;
        }
        // A watched run may take longer than an unwatched one.
        let run_ns = run_ns.max(inside);
        let causes = [
            (sum(|region| region.sections_lost), RunCause::Region(LossCause::CriticalSections)),
            (sum(|region| region.resource_lost), RunCause::Region(LossCause::SharedResource)),
            (sum(|region| region.idle_lost), RunCause::Region(LossCause::Idle)),
            (run_ns - inside, RunCause::Serial),
        ];
        let (lost, cause) = causes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Reason { cause, share: lost / run_ns }).filter(|reason| reason.share >= SUBSTANTIAL)
    }

    fn runs(&self, text: &mut String, advice: &Advice) {
        let columns: [TableColumn<'_, ThreadCountRow>; 5] = [
            ("threads", true, &|row| row.threads.to_string()),
            ("runs", true, &|row| row.runs.to_string()),
            ("seconds (95 %)", true, &seconds),
            ("over the best (99 %)", true, &|row| row.over_best.map_or("-".to_owned(), range)),
            ("", true, &|row| standing(row.standing).to_owned()),
        ];
        let _ = write!(text, "\n{}", aligned(&rows(&columns, &advice.rows)));
        let _ = writeln!(text, "\n{}: {}", threads(advice.threads), self.why(advice));
        if let Some(fit) = advice.fit {
            let _ = writeln!(
                text,
                "fitted: {:.3} s serial + {:.3} s / threads + {:.4} s · threads, off by {:.1} %; least at {}; {:.0} % of one \
                 thread's time is serial",
                fit.serial_s,
                fit.parallel_s,
                fit.each_s,
                100.0 * fit.error,
                fit.best(self.allowed.most.threads),
                100.0 * fit.serial_share()
            );
        }
        if self.complete == Some(false) {
            let _ =
                writeln!(text, "the time was over before all was decided: --limit-s allows more");
        }
        if is_flat(advice) && !has_place(&self.command) {
            let _ = writeln!(
                text,
                "every number takes the same: CMD may not heed OMP_NUM_THREADS; write {{threads}} where it takes a number"
            );
        }
    }
}

fn threads(count: u32) -> String {
    columns::threads(count as usize)
}

fn cap(allowed: &Allowed) -> String {
    match allowed.most.by {
        Cap::Mask => format!("{} PUs in the inherited mask and cpuset", allowed.usable_pus),
        Cap::Quota => format!("the CPU quota is {:.2} PUs", allowed.quota_pus.unwrap_or_default()),
        Cap::ThreadLimit => "OMP_THREAD_LIMIT".to_owned(),
        Cap::Asked => "--max".to_owned(),
    }
}

fn seconds(row: &ThreadCountRow) -> String {
    match (row.seconds, row.cut_s) {
        (_, Some(cut)) => format!("over {cut:.3}, ended"),
        (Some(Estimate { value, interval: Some(interval) }), None) => {
            format!("{value:.3} ({})", range(interval))
        }
        (Some(Estimate { value, .. }), None) => format!("{value:.3}"),
        (None, None) => "-".to_owned(),
    }
}

fn range(interval: Interval) -> String {
    format!("{:.3} to {:.3}", interval.low, interval.high)
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Best => "best",
        Standing::AsGood => "as good",
        Standing::Worse => "worse",
        Standing::Cut => "far slower",
        Standing::NotResolved => "not resolved",
    }
}

/// Numbers below `most`: unresolved if `is_open`, else resolved.
fn numbers(advice: &Advice, most: u32, is_open: bool) -> String {
    let rows = advice.rows.iter().filter(|row| row.threads < most);
    let rows = rows.filter(|row| (row.standing == Standing::NotResolved) == is_open);
    rows.map(|row| row.threads.to_string()).collect::<Vec<_>>().join(", ")
}

/// Results of fewer threads, as text.
fn fewer(advice: &Advice, most: u32) -> String {
    let worse = numbers(advice, most, false);
    let open = numbers(advice, most, true);
    let mut text = String::new();
    if !worse.is_empty() {
        let _ = write!(text, "; slower: {worse}");
    }
    if !open.is_empty() {
        let _ = write!(text, "; noise is larger than the difference, not resolved: {open}");
    }
    text
}

fn is_flat(advice: &Advice) -> bool {
    advice.rows.len() > 1
        && advice.rows.iter().all(|row| matches!(row.standing, Standing::Best | Standing::AsGood))
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if percent > 0.0 && percent < 0.01 => "less than 0.01 %".to_owned(),
        percent if percent > 0.0 && percent < 0.95 => format!("{percent:.2} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Time of a region's threads by part, as far as seen.
fn parts(region: &RegionReport) -> String {
    let mut parts = Vec::new();
    let lost = region.sections_lost.unwrap_or(0.0);
    // One thread may skip critical sections that several threads enter.
    if let Some(share) = region.inside_share.filter(|share| *share > 0.0 || lost == 0.0) {
        parts.push(format!("critical sections take {} of one thread's time", percent(share)));
    }
    let several = region.most > 1;
    if let Some(share) = region.sections_lost.filter(|share| several && *share >= 0.005) {
        let lost = percent(share);
        parts.push(format!("{} threads lose {lost} of theirs at critical sections", region.most));
    }
    if let Some(growth) = region.growth.filter(|growth| several && *growth >= GROWTH) {
        parts.push(format!(
            "outside they need {growth:.2} times what one does (supposed: memory, caches, or PUs that others use)"
        ));
    }
    if let Some(share) = region.idle_lost.filter(|share| several && *share >= 0.05) {
        let idle = percent(share);
        parts.push(format!("{idle} of their time is begin, end and waiting for the last"));
    }
    if parts.is_empty() { "nothing was seen of its threads".to_owned() } else { parts.join("; ") }
}

/// Reason why fewer threads do as much, from the times shown by [`parts`].
fn because(region: &RegionReport) -> &'static str {
    match region.cause {
        Some(LossCause::CriticalSections) => ", because of critical sections",
        Some(LossCause::SharedResource) => ", because of a shared resource",
        Some(LossCause::Idle) => ", because threads are idle",
        None => ", its times do not show why",
    }
}

/// Line of a region watched with one thread and with all.
fn watched(region: &RegionReport) -> String {
    let model =
        region.model_threads.map_or(String::new(), |model| format!("; model: {}", threads(model)));
    let says = if region.explicit { "; the program says how many threads" } else { "" };
    format!("region {}: {}{model}{says}\n", printable(&region.place), parts(region))
}

/// Line of a region that learned its number of threads.
fn learnt(region: &RegionReport) -> String {
    let what = match region.learnt {
        _ if region.explicit => "the program says how many threads".to_owned(),
        "all" => "all are worth while".to_owned(),
        "fewer" => format!("fewer do as much{}", because(region)),
        "slower" => "fewer were predicted to do as much, and took longer".to_owned(),
        "not-resolved" => "fewer were predicted to do as much: not resolved".to_owned(),
        "stuck" => "fewer do nothing, its threads wait for each other".to_owned(),
        _ => format!(
            "nothing changed, {} {} are too few to learn within the cost",
            region.executions,
            if region.windows { "windows" } else { "executions" }
        ),
    };
    let settled = region.settled_ns.filter(|_| region.windows && !region.explicit);
    let when = settled.map_or(String::new(), |time| {
        format!(", set within an execution after {:.3} s", time as f64 / 1e9)
    });
    format!(
        "region {}: {} of {}{when}: {what}; {}\n",
        printable(&region.place),
        region.threads,
        threads(region.most),
        parts(region)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::advice::{ThreadCountRuns, advise};
    use crate::threads::places::RegionLocations;
    use crate::threads::regions;
    use colocate_omp::learn::{ExecutionSums, Learnt};
    use colocate_omp::report::Reported;
    use proptest::prelude::*;

    fn report(tried: &[(u32, &[f64])], most: u32) -> ThreadsReport {
        let allowed = Allowed {
            most: Most::of(most, None, None, None),
            usable_pus: most,
            quota_pus: None,
            thread_limit: None,
        };
        let mut report = ThreadsReport::new(vec!["a".to_owned()], allowed);
        let tried = tried.iter().map(|&(threads, seconds)| ThreadCountRuns {
            threads,
            seconds: seconds.to_vec(),
            cut_s: None,
        });
        report.advice = advise(&tried.collect::<Vec<_>>(), most);
        report
    }

    #[test]
    fn the_limit_is_said() {
        let text = report(&[(1, &[2.0, 2.01, 1.99]), (2, &[1.0, 1.01, 0.99])], 2).text();
        assert!(text.contains("2 threads: more are not allowed; slower: 1\n"), "{text}");
        let text = report(&[(1, &[1.0, 1.01, 0.99]), (2, &[2.0, 2.01, 1.99])], 2).text();
        assert!(text.contains("1 thread: more take longer"), "{text}");
        let text = report(&[(1, &[1.0, 1.0, 1.0]), (2, &[1.0, 1.0, 1.0])], 2).text();
        assert!(
            text.contains("1 thread: more take as long") && text.contains("{threads}"),
            "{text}"
        );
        let text = report(&[(1, &[1.0, 3.0, 1.0]), (2, &[1.0, 2.0, 1.0])], 2).text();
        assert!(text.contains("the difference, not resolved: 1\n"), "{text}");
    }

    #[test]
    fn a_region_in_a_line() {
        let region = RegionReport {
            place: "a.c:7 (main)".to_owned(),
            explicit: false,
            most: 8,
            threads: 2,
            learnt: "fewer",
            windows: true,
            settled_ns: Some(52_000_000),
            cause: Some(LossCause::CriticalSections),
            model_threads: Some(2),
            executions: 40,
            mean_ns: Some(1e6),
            executions_one: 2,
            mean_one_ns: Some(1e6),
            inside_share: Some(0.24),
            sections_lost: Some(0.5),
            resource_lost: Some(0.0),
            idle_lost: Some(0.01),
            growth: Some(1.0),
            total_ns: 1,
            learning_ns: 0,
        };
        assert_eq!(
            learnt(&region),
            "region a.c:7 (main): 2 of 8 threads, set within an execution after 0.052 s: fewer do as much, because of critical \
             sections; critical sections take 24 % of one thread's time; 8 threads lose 50 % of theirs at critical sections\n"
        );
    }

    /// Executions as a runtime could report them: nothing waits where there are no critical sections, and no thread works longer
    /// than the region lasts.
    fn sums(threads: u32) -> impl Strategy<Value = ExecutionSums> {
        let sections = prop_oneof![Just((0, 0)), (1_u64..1_000_000, 0_u64..1_000_000)];
        (0_u32..50, 1_u64..1_000_000, sections, 0_u64..1_000_000).prop_map(
            move |(count, outside, (inside, waited), idle)| {
                let count_ns = u64::from(count);
                let busy = outside + inside + waited;
                let wall = (busy + idle).div_ceil(u64::from(threads));
                let steps = count_ns;
                let [wall, busy, inside, waited] =
                    [wall, busy, inside, waited].map(|time| time * count_ns);
                ExecutionSums { count, steps, wall, busy, inside, waited }
            },
        )
    }

    fn reported() -> impl Strategy<Value = Reported> {
        let learnt = [
            Learnt::Learning,
            Learnt::All,
            Learnt::Fewer,
            Learnt::Slower,
            Learnt::NotResolved,
            Learnt::Stuck,
        ];
        (2_u32..64, 0_u64..20, proptest::sample::select(learnt.to_vec()), any::<bool>())
            .prop_flat_map(|(most, address, learnt, windows)| {
                (sums(most), sums(1)).prop_map(move |(all, one)| Reported {
                    object: None,
                    address,
                    said: None,
                    explicit: false,
                    most,
                    threads: if learnt == Learnt::Fewer { 1 } else { most },
                    learnt,
                    windows,
                    settled_at: (learnt != Learnt::Learning).then_some(all.wall),
                    cost: (all.wall, 0),
                    all,
                    one,
                })
            })
    }

    /// The number before `after` in the part of `line` that has it.
    fn figure(line: &str, after: &str) -> Option<f64> {
        let before = line.split_once(after)?.0;
        before.rsplit(' ').next()?.parse().ok()
    }

    /// A line that names a cause has a figure of it that is large enough.
    fn contradiction(line: &str) -> Option<&'static str> {
        let at_least = |after, least| figure(line, after).is_some_and(|figure| figure >= least);
        let none = line.contains("sections take 0 %");
        match () {
            () if line.contains("because of critical sections")
                && (none || !at_least(" % of theirs at critical", 10.0)) =>
            {
                Some("critical sections")
            }
            () if line.contains("because of a shared resource")
                && !at_least(" times what one does", GROWTH) =>
            {
                Some("a shared resource")
            }
            () if line.contains("because threads are idle")
                && !at_least(" % of their time is begin", 10.0) =>
            {
                Some("idle threads")
            }
            () => None,
        }
    }

    /// More take longer, and there are no critical sections.
    #[test]
    fn no_critical_sections_where_there_are_none() {
        let mut report = report(&[(1, &[1.0, 1.01, 0.99]), (2, &[2.0, 2.01, 1.99])], 2);
        let all = ExecutionSums {
            count: 10,
            steps: 10,
            wall: 2_000_000_000,
            busy: 3_900_000_000,
            inside: 0,
            waited: 0,
        };
        let one = ExecutionSums { wall: 1_000_000_000, busy: 990_000_000, ..all };
        let reported = |sums: ExecutionSums, most| Reported {
            object: None,
            address: 1,
            said: None,
            explicit: false,
            most,
            threads: most,
            learnt: Learnt::Learning,
            windows: false,
            settled_at: None,
            cost: (sums.wall, 0),
            all: sums,
            one: ExecutionSums::default(),
        };
        report.regions =
            regions::of_runs(&[reported(all, 2)], &[reported(one, 1)], &RegionLocations::default());
        report.reason = report.found_reason();
        let text = report.text();
        assert!(
            text.contains("more take longer; a shared resource, as the memory is, takes 73 % of"),
            "{text}"
        );
        assert!(
            text.contains(
                "critical sections take 0 % of one thread's time; outside they need 3.94 times"
            ),
            "{text}"
        );
        report.regions.clear();
        report.reason = report.found_reason();
        assert!(
            report
                .text()
                .contains("more take longer; why is unknown: no parallel region was watched")
        );
    }

    proptest! {
        /// Of both kinds of reports, whatever is in them.
        #[test]
        fn no_cause_that_figures_contradict(all in proptest::collection::vec(reported(), 0..5), runs in proptest::array::uniform2(0.5..2.0_f64), apply: bool) {
            let seconds = runs.map(|seconds| vec![seconds, 1.01 * seconds, 0.99 * seconds]);
            let mut report = report(&[(1, &seconds[0]), (2, &seconds[1])], 2);
            if apply {
                report.advice = None;
                report.regions = regions::of_one(&all, &RegionLocations::default());
            } else {
                let one: Vec<Reported> = all.iter().map(|all| Reported { all: all.one, ..all.clone() }).collect();
                report.regions = regions::of_runs(&all, &one, &RegionLocations::default());
                report.reason = report.found_reason();
            }
            let text = report.text();
            for line in text.lines() {
                prop_assert_eq!(contradiction(line), None, "{}", line);
            }
            let lost = |of: fn(&RegionReport) -> Option<f64>| report.regions.iter().any(|region| of(region).is_some_and(|share| share >= SUBSTANTIAL));
            if text.contains("; critical sections of its regions take") {
                prop_assert!(lost(|region| region.sections_lost), "{}", text);
            }
            if text.contains("; a shared resource") {
                prop_assert!(lost(|region| region.resource_lost), "{}", text);
            }
            if text.contains("; begin, end and waiting") {
                prop_assert!(lost(|region| region.idle_lost), "{}", text);
            }
        }
    }
}
