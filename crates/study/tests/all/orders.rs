//! Every scheduler in a small study, held against the signs that it had: a change of one shows here.
//!
//! A few mixes, pairs or phases of each study, short programs, default assumptions, one seed. `+` and `-`: better and worse than
//! the first policy by [`LEAST`] or more, `=` otherwise.

use crate::machine;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_model::phase::PhaseFile;
use colocate_study::replication::definition::{Cells, PolicyStudyDefinition};
use colocate_study::replication::report::{MetricFigures, PolicyMetrics};
use colocate_study::replication::{Study, StudyCells};
use expect_test::{Expect, expect};

const RECORDED: &str = include_str!("../../../../studies/serpa/recorded.json");
/// Least difference that counts. Chosen: what another seed changes is mostly less.
const LEAST: f64 = 0.005;

/// A line a metric of each part's means, or of each cell where there are none.
fn signs(definition: &PolicyStudyDefinition) -> String {
    let (machine, performance) = machine(&definition.machine);
    let draws = &[Assumptions::default()];
    let study = Study { definition, machine: &machine, performance: &performance, draws, seed: 0 };
    let work = StudyCells::new(study).unwrap();
    let done: Vec<_> = (0..work.count()).map(|piece| work.piece(piece).unwrap()).collect();
    let report = work.report(&done, "").unwrap();
    let mut text = String::new();
    for part in &report.parts {
        let has_means = part.rows.iter().any(|row| row.cell.is_none());
        for row in part.rows.iter().filter(|row| row.cell.is_none() == has_means) {
            let cell = row
                .cell
                .map_or(String::new(), |cell| format!(" {}", part.cells[cell as usize].name));
            text += &lines(&format!("{}{cell}", part.name), &row.policies);
        }
    }
    text
}

fn lines(name: &str, policies: &[PolicyMetrics]) -> String {
    let [base, others @ ..] = policies else { panic!("{name} has no policy") };
    let line = |(at, metric): (usize, &MetricFigures)| {
        let of_base = metric.value.unwrap().value;
        let sign = |policy: &PolicyMetrics| {
            let gain = policy.metrics[at].value.unwrap().value / of_base - 1.0;
            let gain = if metric.metric.less_is_better() { -gain } else { gain };
            let sign = match gain {
                gain if gain.abs() < LEAST => '=',
                gain if gain > 0.0 => '+',
                _ => '-',
            };
            format!("{sign}{}", policy.policy)
        };
        let signs: Vec<String> = others.iter().map(sign).collect();
        format!("{name} {}: {}\n", metric.metric.name(), signs.join(" "))
    };
    base.metrics.iter().enumerate().map(line).collect()
}

fn small(name: &str, seconds: u64) -> PolicyStudyDefinition {
    let mut definition = PolicyStudyDefinition::built_in(name).unwrap();
    (definition.length, definition.seeds) = (Nanos::from_secs(seconds), 1);
    definition
}

/// A study of mixes: so many of them, of programs that take `seconds` alone.
fn check(name: &str, (mixes, seconds): (usize, u64), expected: &Expect) {
    let mut definition = small(name, seconds);
    for part in &mut definition.parts {
        if let Cells::Mixes(form) = &mut part.cells {
            form.count = mixes;
        }
        part.detail = None;
    }
    expected.assert_eq(&signs(&definition));
}

/// Pairs of four recorded programs that differ most in what they do.
#[test]
fn instruction_aware_pairs() {
    let mut definition = small("serpa", 8);
    definition.parts.truncate(1);
    definition.applications = PhaseFile::from_json(RECORDED).unwrap().phases;
    definition.applications.retain(|program| ["FT", "CG", "EP", "IS"].contains(&&*program.name));
    expect![[r#"
        pairs slower one's time: +round-robin +instruction +instruction:published +mix +symbiosis-model +oracle
        pairs STP: +round-robin +instruction +instruction:published +mix +symbiosis-model +oracle
        pairs unfairness: +round-robin +instruction +instruction:published +mix +symbiosis-model +oracle
    "#]].assert_eq(&signs(&definition));
}

/// The time of programs with little and much serial work.
#[test]
fn serial_phases() {
    let mut definition = small("fedorova", 1);
    definition.parts.truncate(1);
    let part = &mut definition.parts[0];
    part.metrics.truncate(1);
    let Cells::Phased(forms) = &mut part.cells else { panic!("phases") };
    forms.truncate(1);
    forms[0].serial = vec![0, 20, 50, 90];
    expect![[r#"
        shares 0 % time: =all-fast-first +parallelism-aware =parallelism-aware:spare=no =oracle
        shares 20 % time: +all-fast-first +parallelism-aware +parallelism-aware:spare=no +oracle
        shares 50 % time: +all-fast-first +parallelism-aware +parallelism-aware:spare=no +oracle
        shares 90 % time: +all-fast-first +parallelism-aware +parallelism-aware:spare=no +oracle
    "#]]
    .assert_eq(&signs(&definition));
}

#[test]
fn bandwidth_aware_selection() {
    check(
        "feliu-1",
        (3, 5),
        &expect![[r#"
        selection turnaround: +round-robin =mmas -mmas:published =mhas -mhas:published =idas -idas:published +fair-oracle
        selection average IPC: =round-robin =mmas =mmas:published =mhas =mhas:published =idas =idas:published =fair-oracle
        selection unfairness: +round-robin -mmas -mmas:published -mhas -mhas:published -idas -idas:published +fair-oracle
    "#]],
    );
}

#[test]
fn first_caches_and_bas() {
    check(
        "feliu-2",
        (2, 5),
        &expect![[r#"
        allocation average IPC: =random =l1-static =l1-dynamic +oracle
        allocation harmonic mean of IPC speedups: =random =l1-static =l1-dynamic =oracle
        selection average IPC: =random =l1-dynamic +bas +bas:oatr=delivered
        selection harmonic mean of IPC speedups: =random =l1-dynamic +bas +bas:oatr=delivered
        selection turnaround: -random -l1-dynamic -bas -bas:oatr=delivered
    "#]],
    );
}

#[test]
fn progress() {
    check(
        "feliu-3",
        (1, 10),
        &expect![[r#"
        selection turnaround: -random -bas +fair +perf-fair +fair-oracle
        selection unfairness: -random -bas +fair +perf-fair +fair-oracle
        selection STP: +random +bas -fair -perf-fair -fair-oracle
    "#]],
    );
}

#[test]
fn symbiosis() {
    check(
        "feliu-4",
        (1, 2),
        &expect![[r#"
        SMT2 STP: -random -l1-dynamic =symbiotic =symbiotic-numa +oracle
        SMT2 ANTT: -random -l1-dynamic =symbiotic +symbiotic-numa +oracle
        SMT2 turnaround: -random +l1-dynamic +symbiotic +symbiotic-numa +oracle
        SMT4 STP: -random -l1-dynamic -symbiotic =symbiotic-numa -oracle
        SMT4 ANTT: -random -l1-dynamic -symbiotic =symbiotic-numa -oracle
        SMT4 turnaround: -random +l1-dynamic +symbiotic +symbiotic-numa +oracle
    "#]],
    );
}
