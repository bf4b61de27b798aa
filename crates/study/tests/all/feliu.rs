//! Where the studies' differences come from: schedulers with other settings on the mixes of the studies.
//!
//! `cargo test -p colocate-study --test all feliu -- --ignored --nocapture` prints the tables of docs/results/feliu.md that are not
//! of kept tables: the default assumptions, seed 0.

#![allow(clippy::print_stdout)] // the tables are for people

use crate::kept::Kept;
use crate::machine;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::schedule::Selected;
use colocate_sim::{Platform, alone_of};
use colocate_study::replication::definition::{Cells, Definition};
use colocate_study::replication::{Cell, Study, Work, mixes};

const PAGE: &str = include_str!("../../../../docs/results/feliu.md");
/// The tables that those of the four sections are of.
const KEPT: [&str; 4] = [
    include_str!("../../../../studies/feliu-1.csv"),
    include_str!("../../../../studies/feliu-2.csv"),
    include_str!("../../../../studies/feliu-3.csv"),
    include_str!("../../../../studies/feliu-4.csv"),
];

/// Means over the mixes.
#[derive(Debug, Default)]
struct Means {
    /// When the last program is done, in seconds.
    last: f64,
    /// End of the last quantum in which there was a program for every context, in seconds.
    full: f64,
    /// The last end over the first.
    unfairness: f64,
    /// Quanta that make estimates, as a share.
    estimates: f64,
    /// Jobs that have cores of their own in such a quantum.
    solo: f64,
}

/// A scheduler, by name and settings, on some mixes of a study's first table.
fn means(name: &str, places: &[usize], policy: &str) -> Means {
    let definition = Definition::built_in(name).unwrap();
    let (machine, performance) = machine(&definition.machine);
    let draws = [Assumptions::default()];
    let study = Study {
        definition: &definition,
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seed: 0,
    };
    let work = Work::new(study).unwrap();
    let table = &work.tables()[0];
    let Cells::Mixes(form) = &table.part.cells else { panic!("mixes") };
    let platform = Platform::new(&machine, &performance, draws[0]).unwrap();
    let mut found = Means::default();
    let (mut quanta, mut estimates, mut solo) = (0.0, 0.0, 0.0);
    for cell in places.iter().map(|&place| &table.cells[place]) {
        let Cell::Mix(mix) = cell else { panic!("a mix") };
        let scenario = mixes::scenario(&study, form.programs_per_pu, work.programs(), mix, 0);
        let alone = alone_of(&platform, &scenario).unwrap();
        let mut full = Nanos::ZERO;
        let outcome = mixes::under(
            &study,
            &platform,
            &scenario,
            (policy.parse().unwrap(), &alone),
            &mut |round| {
                let selected = round.plan.selected();
                let is_solo = |selected: &&&Selected| ***selected == Selected::Estimated;
                let count = selected.values().filter(is_solo).count();
                quanta += 1.0;
                estimates += f64::from(u8::from(count > 0));
                solo += count as f64;
                if selected.len() >= mix.pus.len() {
                    full = round.seen.at;
                }
            },
        )
        .unwrap();
        let mut ends: Vec<f64> =
            outcome.jobs.iter().map(|job| job.done.unwrap().as_secs_f64()).collect();
        ends.sort_by(f64::total_cmp);
        let last = ends[ends.len() - 1];
        found.last += last / places.len() as f64;
        found.full += full.as_secs_f64() / places.len() as f64;
        found.unfairness += last / ends[0] / places.len() as f64;
    }
    Means { estimates: estimates / quanta, solo: solo / f64::max(estimates, 1.0), ..found }
}

fn table(number: &str, places: &[usize], kinds: &[&str]) {
    for kind in kinds {
        let Means { last, full, unfairness, estimates, solo } = means(number, places, kind);
        println!(
            "{number} {kind}: last done at {last:.1} s, all contexts used until {full:.1} s, {unfairness:.2} times \
             the first; {:.0} % of the quanta estimate {solo:.1} jobs (simulated)",
            estimates * 100.0
        );
    }
}

/// The order of the published unfairness, on one mix of the third study: nothing of it is left to chance.
#[test]
fn fair_is_fairer_than_the_kernel_and_bas_is_not() {
    let of = |kind| means("feliu-3", &[4], kind).unfairness;
    let [fair, perf_fair, os, bas] = ["fair", "perf-fair", "os", "bas"].map(of);
    assert!(fair < os && perf_fair < os && os < bas, "{fair} {perf_fair} {os} {bas}");
}

#[test]
#[ignore = "a table for docs/results/feliu.md"]
fn table_of_the_first_study() {
    let all: Vec<usize> = (0..10).collect();
    let kinds = [
        "os",
        "round-robin",
        "random:seed=1",
        "random:seed=2",
        "mmas",
        "mhas",
        "idas",
        "bas",
        "fair",
    ];
    table("feliu-1", &all, &kinds);
}

#[test]
#[ignore = "a table for docs/results/feliu.md"]
fn table_of_the_third_study() {
    let kinds = [
        "os",
        "bas",
        "fair",
        "fair+guard",
        "fair:apart=2",
        "fair:apart=5",
        "fair:apart=10",
        "fair:valid=20",
        "fair-oracle",
        "perf-fair",
        "perf-fair+guard",
        "perf-fair:limit=1.5",
        "perf-fair:limit=inf",
    ];
    let all: Vec<usize> = (0..10).collect();
    // Or those that are named, with a comma between two.
    let asked = std::env::var("KINDS").unwrap_or_default();
    let asked: Vec<&str> = asked.split(',').filter(|kind| !kind.is_empty()).collect();
    table("feliu-3", &all, if asked.is_empty() { &kinds } else { &asked });
}

/// The section of the page on a study, its lines without bold type.
fn section(number: usize) -> String {
    let head = format!("{number}. ");
    PAGE.split("\n## ").find(|section| section.starts_with(&head)).unwrap().replace("**", "")
}

/// A ratio as the page has it: unfairness as a ratio, all else as percent better than `os`.
fn shown(metric: &str, ratio: [f64; 3]) -> String {
    if ["unfairness", "antt"].contains(&metric) {
        return text(ratio, |value| format!("{value:.2}"));
    }
    let less_is_better = metric == "turnaround";
    let [value, low, high] = ratio.map(|ratio| if less_is_better { 1.0 / ratio } else { ratio });
    let faster = [value, low.min(high), low.max(high)];
    text(faster, |value| format!("{:+.1}", (value - 1.0) * 100.0)).replace('-', "−")
}

fn text([value, low, high]: [f64; 3], form: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", form(value), form(low), form(high))
}

#[test]
fn the_page_has_the_figures_of_the_kept_tables() {
    let metrics: [&[&str]; 4] = [
        &["turnaround"],
        &["ipc"],
        &["turnaround", "unfairness", "stp"],
        &["stp", "turnaround", "antt"],
    ];
    for (number, (kept, metrics)) in (1..).zip(KEPT.into_iter().zip(metrics)) {
        let kept = Kept::of(kept);
        let section = section(number);
        let mut found = 0;
        for (part, policies) in &kept.parts {
            for (policy, metric) in policies
                .iter()
                .skip(1)
                .flat_map(|it| metrics.iter().map(move |metric| (it, *metric)))
            {
                let Some(ratio) = kept.get([part, "mean", metric, "os"], policy) else { continue };
                let (name, figure) = (format!("`{policy}`"), shown(metric, ratio));
                let row = |line: &str| line.contains(&name) && line.contains(&figure);
                assert!(section.lines().any(row), "{number}: {name}: {figure}");
                found += 1;
            }
        }
        assert!(found > 3, "{number}: {found}");
    }
}

/// The figures of a kept line of one mix: part, mix, what, policy.
fn of_mix(kept: &str, line: &str) -> Vec<f64> {
    let line = format!("{line},");
    let found = kept.lines().find_map(|each| each.strip_prefix(&line));
    found.unwrap().split_whitespace().map(|figure| figure.parse().unwrap()).collect()
}

/// The page's tables of single mixes are those that are kept.
#[test]
fn the_page_has_the_courses_that_are_kept() {
    let whole = |figures: &[f64]| -> String {
        figures.iter().map(|figure| format!("{figure:.0}")).collect::<Vec<_>>().join(" ")
    };
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
    for policy in ["os", "random", "l1-dynamic", "bas", "bas:oatr=delivered"] {
        let [least, most, slots] = ["first caches; least", "first caches; most", "slots"]
            .map(|what| of_mix(KEPT[1], &format!("selection,M1,{what},{policy}")));
        let between: Vec<f64> = most.iter().zip(least).map(|(most, least)| most - least).collect();
        let least = slots.iter().copied().fold(f64::INFINITY, f64::min);
        let most = slots.iter().copied().fold(0.0, f64::max);
        let row = format!(
            "| `{policy}` | {} | {:.0} | {:.0} | {least:.0} | {most:.0} |",
            whole(&between),
            mean(&between),
            mean(&slots)
        );
        assert!(section(2).contains(&row), "{row}");
    }
    for policy in ["os", "random", "bas", "fair", "perf-fair", "fair-oracle"] {
        let left = of_mix(KEPT[2], &format!("selection,M7,left,{policy}"));
        let row = format!("| `{policy}` | {} |", whole(&left[..11]));
        assert!(section(3).contains(&row), "{row}");
    }
    for policy in ["os", "random", "l1-dynamic", "symbiotic", "symbiotic-numa", "oracle"] {
        let cells = ["SMT2", "SMT4"].map(|part| {
            let line = |line: &&str| line.starts_with(&format!("{part},M1,core-sharing "));
            let own = format!(",{policy},");
            let shares = KEPT[3].lines().filter(line).filter_map(|line| line.split_once(&own));
            let shares = shares.flat_map(|(_, shares)| shares.split_whitespace());
            let shares: Vec<f64> = shares.map(|share| share.parse().unwrap()).collect();
            let count = |keep: fn(&f64) -> bool| shares.iter().copied().filter(keep).count();
            let most = shares.iter().copied().fold(0.0, f64::max);
            let (often, never) = (count(|share| *share >= 0.5), count(|share| *share < 0.01));
            format!("{often}, {never} | {:.0} % |", 100.0 * most)
        });
        let row = |line: &str| {
            line.starts_with(&format!("| `{policy}` |")) && line.ends_with(&cells.join(" "))
        };
        assert!(section(4).lines().any(row), "{policy}: {cells:?}");
    }
}

/// The page's sentences on the third study.
#[test]
fn the_page_has_the_progress_and_the_orders_that_are_kept() {
    let kept = Kept::of(KEPT[2]);
    let words = section(3).split_whitespace().collect::<Vec<_>>().join(" ");
    let least = |policy: &str| {
        let line = format!("selection,M7,progress; least,{policy},");
        let progress = KEPT[2].lines().find_map(|each| each.strip_prefix(&line)).unwrap();
        let last: f64 = progress.rsplit(' ').next().unwrap().parse().unwrap();
        format!("{:.0} %", last * 100.0)
    };
    let [fair, perf_fair, os, bas] = ["fair", "perf-fair", "os", "bas"].map(least);
    let order = |better: &str, than: &str| {
        let line = format!("selection,order,unfairness,{than},{better},");
        let order = KEPT[2].lines().find_map(|each| each.strip_prefix(&line)).unwrap();
        Kept::numbers(order).unwrap()
    };
    assert!(kept.get(["selection", "mean", "unfairness", "os"], "fair").is_some());
    let fairer = order("fair", "perf-fair");
    for sentence in [
        format!(
            "When the first program of mix M7 is done, the last one has done {fair} of its target under `fair`, \
                 {perf_fair} under `perf-fair`, {os} under `os` and {bas} under `bas`."
        ),
        format!(
            "than `perf-fair` ({:.2} of its unfairness, {:.2} to {:.2})",
            fairer[0], fairer[1], fairer[2]
        ),
        format!("and {:.2}), `perf-fair` fairer than `bas`", order("perf-fair", "os")[0]),
        format!("`perf-fair` fairer than `bas` ({:.2})", order("perf-fair", "bas")[0]),
    ] {
        assert!(words.contains(&sentence), "{sentence}");
    }
}
