//! Feliu's studies: the order of schedulers, and the page's figures against the kept tables.

mod means;

use crate::kept::Kept;
use means::means;

const PAGE: &str = include_str!("../../../../../docs/results/feliu.md");
/// The tables that those of the four sections are of.
const KEPT: [&str; 4] = [
    include_str!("../../../../../studies/feliu-1.csv"),
    include_str!("../../../../../studies/feliu-2.csv"),
    include_str!("../../../../../studies/feliu-3.csv"),
    include_str!("../../../../../studies/feliu-4.csv"),
];

/// The order of the published unfairness, on one mix of the third study: nothing of it is left to chance.
#[test]
fn fair_is_fairer_than_the_kernel_and_bas_is_not() {
    let found = ["fair", "perf-fair", "os", "bas"].map(|kind| means("feliu-3", &[4], kind));
    let [fair, perf_fair, os, bas] = found.each_ref().map(|means| means.unfairness);
    let lines = found.map(|means| means.to_string()).join("\n");
    assert!(fair < os && perf_fair < os && os < bas, "{lines}");
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
