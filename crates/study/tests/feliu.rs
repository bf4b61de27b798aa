//! Where the studies' differences come from: schedulers with other settings on the mixes of the studies.
//!
//! `cargo test -p colocate-study --test feliu -- --ignored --nocapture` prints the tables of docs/feliu.md that are not
//! of frozen files: the usual assumptions, seed 0.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed
#![allow(clippy::print_stdout)] // the tables are for people

use colocate_machine::{Nanos, described};
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_policy::schedule::Selected;
use colocate_sim::{Platform, alone_of};
use colocate_study::feliu::figures::{Metric, MetricFigures};
use colocate_study::feliu::work::Work;
use colocate_study::feliu::{Number, Report, Study, run};

const PAGE: &str = include_str!("../../../docs/feliu.md");
/// The files that the tables of the four sections are of.
const FROZEN: [&str; 4] = [
    include_str!("../../../studies/feliu-1.json"),
    include_str!("../../../studies/feliu-2.json"),
    include_str!("../../../studies/feliu-3.json"),
    include_str!("../../../studies/feliu-4.json"),
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

/// A scheduler, as people write it, on some mixes of a study's first set-up.
fn means(number: Number, places: &[usize], kind: &str) -> Means {
    let text = described::MACHINES.iter().find(|(name, _)| *name == number.machine()).unwrap().1;
    let machine = described::from_toml(text).unwrap().machine;
    let performance = described::performance(text).unwrap().unwrap();
    let draws = [Assumptions::default()];
    let study = Study {
        number,
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seeds: 1,
        seed: 0,
        alone: number.alone(),
        quantum: number.quantum(),
        mixes: None,
        traffic: None,
    };
    let work = Work::new(study).unwrap();
    let (setup, mixes) = &work.parts()[0];
    let platform = Platform::new(&machine, &performance, draws[0]).unwrap();
    let mut found = Means::default();
    let (mut quanta, mut estimates, mut solo) = (0.0, 0.0, 0.0);
    for mix in places.iter().map(|&place| &mixes[place]) {
        let scenario = run::scenario(&study, setup, work.programs(), mix, 0);
        let alone = alone_of(&platform, &scenario).unwrap();
        let mut full = Nanos::ZERO;
        let outcome = run::under(
            &study,
            &platform,
            &scenario,
            (&PolicySpec::named(kind), &alone),
            &mut |turn| {
                let selected = turn.plan.selected();
                let is_solo = |selected: &&&Selected| ***selected == Selected::Estimated;
                let count = selected.values().filter(is_solo).count();
                quanta += 1.0;
                estimates += f64::from(u8::from(count > 0));
                solo += count as f64;
                if selected.len() >= mix.pus.len() {
                    full = turn.seen.at;
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

fn table(number: Number, places: &[usize], kinds: &[&str]) {
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
    let of = |kind| means(Number::Three, &[4], kind).unfairness;
    let [fair, perf_fair, os, bas] = ["fair", "perf-fair", "os", "bas"].map(of);
    assert!(fair < os && perf_fair < os && os < bas, "{fair} {perf_fair} {os} {bas}");
}

#[test]
#[ignore = "a table for docs/feliu.md"]
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
    table(Number::One, &all, &kinds);
}

#[test]
#[ignore = "a table for docs/feliu.md"]
fn table_of_the_third_study() {
    let kinds = [
        "os",
        "random",
        "bas",
        "fair",
        "fair:apart=1",
        "fair:apart=10",
        "fair:apart=100000",
        "perf-fair",
        "perf-fair:limit=1.5",
        "perf-fair:limit=inf",
    ];
    table(Number::Three, &[0, 4, 9], &kinds);
}

/// The section of the page on a study, its lines without bold type.
fn section(number: usize) -> String {
    let head = format!("{number}. ");
    PAGE.split("\n## ").find(|section| section.starts_with(&head)).unwrap().replace("**", "")
}

/// A figure as the page tells it: unfairness as a ratio, all else as percent better than `os`.
fn told(figures: &MetricFigures) -> String {
    let (metric, ratio) = (figures.metric, figures.ratio.unwrap());
    let faster = ratio.map(|ratio| if metric.less_is_better() { 1.0 / ratio } else { ratio });
    match metric {
        Metric::Unfairness => ratio.text(2),
        _ => faster.percent_more().signed_text(1).replace('-', "−"),
    }
}

#[test]
fn the_page_has_the_figures_of_the_frozen_files() {
    let metrics: [&[Metric]; 4] = [
        &[Metric::Turnaround],
        &[Metric::Ipc],
        &[Metric::Turnaround, Metric::Unfairness, Metric::Stp],
        &[Metric::Stp, Metric::Turnaround],
    ];
    for (number, (frozen, metrics)) in (1..).zip(FROZEN.into_iter().zip(metrics)) {
        let report: Report = serde_json::from_str(frozen).unwrap();
        let section = section(number);
        for setup in &report.setups {
            for policy in setup.policies.iter().skip(1) {
                let figures = policy.metrics.iter().filter(|each| metrics.contains(&each.metric));
                let name = format!("`{}`", policy.policy);
                for figure in figures.map(told) {
                    let row = |line: &str| line.contains(&name) && line.contains(&figure);
                    assert!(section.lines().any(row), "{number}: {name}: {figure}");
                }
            }
        }
    }
}

/// What the page says in sentences of the third study.
#[test]
fn the_page_has_the_progress_and_the_orders_that_were_frozen() {
    let report: Report = serde_json::from_str(FROZEN[2]).unwrap();
    let setup = &report.setups[0];
    let words = section(3).split_whitespace().collect::<Vec<_>>().join(" ");
    let least = |policy: &str| {
        let course = setup.shown.policies.iter().find(|each| each.policy == policy).unwrap();
        format!("{:.0} %", course.progress.last().unwrap()[0] * 100.0)
    };
    let [fair, perf_fair, os, bas] = ["fair", "perf-fair", "os", "bas"].map(least);
    let order = |better: &str, than: &str| {
        let mut of = setup.order.iter().filter(|each| each.metric == Metric::Unfairness);
        of.find(|each| (&*each.better, &*each.than) == (better, than)).unwrap().ratio.unwrap()
    };
    let fairer = order("fair", "perf-fair");
    for sentence in [
        format!(
            "When the first program of mix {} is done, the last one has done {fair} of its target under `fair`, \
                 {perf_fair} under `perf-fair`, {os} under `os` and {bas} under `bas`.",
            setup.shown.mix
        ),
        format!(
            "than `perf-fair` ({:.2} of its unfairness, {:.2} to {:.2})",
            fairer.value, fairer.low, fairer.high
        ),
        format!("and {:.2}), `perf-fair` fairer than `bas`", order("perf-fair", "os").value),
        format!("`perf-fair` fairer than `bas` ({:.2})", order("perf-fair", "bas").value),
    ] {
        assert!(words.contains(&sentence), "{sentence}");
    }
}
