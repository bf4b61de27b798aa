//! What `colocate advise-threads` reports, as text and as JSON (docs/schemas/threads.json).

use super::command::has_place;
use crate::columns::{Column, rows};
use colocate_machine::printable;
use colocate_study::stats::{Estimate, Interval};
use colocate_study::table::aligned;
use colocate_study::threads::{Advice, Cap, Limit, Most, Row, Standing};
use serde::Serialize;
use std::fmt::Write;

/// Version of the report's form.
const VERSION: u32 = 1;
/// Regions in the text; the JSON has all.
const SHOWN: usize = 20;
/// Growth of the time outside of critical sections that is worth a word.
const GROWTH: f64 = 1.25;

/// How many threads are allowed, and what says so.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Allowed {
    pub most: Most,
    pub usable_pus: u32,
    pub quota_pus: Option<f64>,
    pub thread_limit: Option<u32>,
}

/// One parallel region. Shares are of its threads' time; unknown is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    pub place: String,
    pub explicit: bool,
    pub most: u32,
    pub threads: u32,
    pub learnt: &'static str,
    pub limit: Option<&'static str>,
    pub model_threads: Option<u32>,
    pub executions: u32,
    pub mean_ns: Option<f64>,
    pub executions_one: u32,
    pub mean_one_ns: Option<f64>,
    pub inside_share: Option<f64>,
    pub waiting_share: Option<f64>,
    pub idle_share: Option<f64>,
    pub growth: Option<f64>,
    pub total_ns: u64,
    pub learning_ns: u64,
}

/// The report; the schema says what each field is.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    version: u32,
    pub command: Vec<String>,
    pub allowed: Allowed,
    pub limit_s: Option<f64>,
    pub took_s: f64,
    pub complete: Option<bool>,
    pub status: Option<i32>,
    pub advice: Option<Advice>,
    pub regions: Vec<Region>,
    pub notes: Vec<String>,
}

impl Report {
    /// Before anything was run.
    pub fn new(command: Vec<String>, allowed: Allowed) -> Self {
        let (regions, notes) = (Vec::new(), Vec::new());
        Self {
            version: VERSION,
            command,
            allowed,
            limit_s: None,
            took_s: 0.0,
            complete: None,
            status: None,
            advice: None,
            regions,
            notes,
        }
    }

    /// As shown.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(&self.command.join(" ")));
        let _ = writeln!(
            text,
            "at most {}: {}",
            threads(self.allowed.most.threads),
            cap(&self.allowed)
        );
        if let Some(advice) = &self.advice {
            self.runs(&mut text, advice);
        }
        for region in self.regions.iter().take(SHOWN) {
            text.push_str(&if self.advice.is_some() { watched(region) } else { learnt(region) });
        }
        if self.regions.len() > SHOWN {
            let _ = writeln!(
                text,
                "and {} regions more, in the JSON report",
                self.regions.len() - SHOWN
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", printable(note));
        }
        text
    }

    fn runs(&self, text: &mut String, advice: &Advice) {
        let columns: [Column<'_, Row>; 5] = [
            ("threads", true, &|row| row.threads.to_string()),
            ("runs", true, &|row| row.runs.to_string()),
            ("seconds (95 %)", true, &seconds),
            ("over the best (99 %)", true, &|row| row.over_best.map_or("-".to_owned(), range)),
            ("", true, &|row| standing(row.standing).to_owned()),
        ];
        let _ = write!(text, "\n{}", aligned(&rows(&columns, &advice.rows)));
        let _ = writeln!(
            text,
            "\n{}: {}",
            threads(advice.threads),
            why(advice, self.allowed.most.threads)
        );
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
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

fn cap(allowed: &Allowed) -> String {
    match allowed.most.by {
        Cap::Mask => format!("{} PUs in the inherited mask and cpuset", allowed.usable_pus),
        Cap::Quota => format!("the CPU quota is {:.2} PUs", allowed.quota_pus.unwrap_or_default()),
        Cap::ThreadLimit => "OMP_THREAD_LIMIT".to_owned(),
        Cap::Asked => "--max".to_owned(),
    }
}

fn seconds(row: &Row) -> String {
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

fn why(advice: &Advice, most: u32) -> String {
    match advice.limit {
        Limit::Allowed => format!("more are not allowed{}", fewer(advice, most)),
        Limit::Grows => "more take longer: what every thread adds, as critical sections do, outweighs what it takes over".to_owned(),
        Limit::Stays => "more take as long: a serial part, or something that is used up, as the memory's bandwidth".to_owned(),
        Limit::NotResolved => "not resolved: noise is larger than the difference, so it stays at what is allowed".to_owned(),
    }
}

/// What is known of fewer threads.
fn fewer(advice: &Advice, most: u32) -> String {
    let which = |open: bool| {
        let rows = advice.rows.iter().filter(|row| row.threads < most);
        let rows = rows.filter(|row| (row.standing == Standing::NotResolved) == open);
        rows.map(|row| row.threads.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (worse, open) = (which(false), which(true));
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
    format!("{:.0} %", 100.0 * share)
}

/// What a region's threads do, as far as it was seen.
fn parts(region: &Region) -> String {
    let mut parts = Vec::new();
    if let Some(share) = region.inside_share {
        parts.push(format!("critical sections take {} of one thread's time", percent(share)));
    }
    let several = region.most > 1;
    if let Some(share) = region.waiting_share.filter(|share| several && *share >= 0.005) {
        parts.push(format!("{} threads wait {} of theirs for them", region.most, percent(share)));
    }
    if let Some(growth) = region.growth.filter(|growth| several && *growth >= GROWTH) {
        parts.push(format!(
            "outside they need {growth:.1} times what one does (supposed: memory, caches, or PUs that others use)"
        ));
    }
    if let Some(share) = region.idle_share.filter(|share| several && *share >= 0.05) {
        parts.push(format!(
            "{} of their time is begin, end and waiting for the last",
            percent(share)
        ));
    }
    if parts.is_empty() { "nothing was seen of its threads".to_owned() } else { parts.join("; ") }
}

/// A line for a region that was watched with one thread and with all.
fn watched(region: &Region) -> String {
    let model =
        region.model_threads.map_or(String::new(), |model| format!("; model: {}", threads(model)));
    let says = if region.explicit { "; the program says how many threads" } else { "" };
    format!("region {}: {}{model}{says}\n", printable(&region.place), parts(region))
}

/// A line for a region whose number was learnt.
fn learnt(region: &Region) -> String {
    let limit = match region.limit {
        Some("critical-sections") => "critical sections",
        Some("shared-resource") => "a shared resource",
        _ => "its threads",
    };
    let what = match region.learnt {
        _ if region.explicit => "the program says how many threads".to_owned(),
        "all" => "all are worth while".to_owned(),
        "fewer" => format!("fewer do as much, because of {limit}"),
        "slower" => format!("fewer were predicted, because of {limit}, and took longer"),
        "not-resolved" => format!("fewer were predicted, because of {limit}: not resolved"),
        _ => format!(
            "nothing changed, {} executions are too few to learn within the cost",
            region.executions
        ),
    };
    format!(
        "region {}: {} of {}: {what}; {}\n",
        printable(&region.place),
        region.threads,
        threads(region.most),
        parts(region)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_study::threads::{Tried, advise};

    fn report(tried: &[(u32, &[f64])], most: u32) -> Report {
        let allowed = Allowed {
            most: Most::of(most, None, None, None),
            usable_pus: most,
            quota_pus: None,
            thread_limit: None,
        };
        let mut report = Report::new(vec!["a".to_owned()], allowed);
        let tried = tried.iter().map(|&(threads, seconds)| Tried {
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
        let region = Region {
            place: "a.c:7 (main)".to_owned(),
            explicit: false,
            most: 8,
            threads: 2,
            learnt: "fewer",
            limit: Some("critical-sections"),
            model_threads: Some(2),
            executions: 40,
            mean_ns: Some(1e6),
            executions_one: 2,
            mean_one_ns: Some(1e6),
            inside_share: Some(0.24),
            waiting_share: Some(0.5),
            idle_share: Some(0.01),
            growth: Some(1.0),
            total_ns: 1,
            learning_ns: 0,
        };
        assert_eq!(
            learnt(&region),
            "region a.c:7 (main): 2 of 8 threads: fewer do as much, because of critical sections; critical sections take 24 % of \
             one thread's time; 8 threads wait 50 % of theirs for them\n"
        );
    }
}
