//! Every scheduler in a small study, held against the signs that it had: a change of one shows here.
//!
//! A few mixes of each of Feliu's studies, short programs, default assumptions, one seed. `+` and `-`: better and worse than the first
//! scheduler by [`LEAST`] or more, `=` otherwise.

use crate::machine;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_study::replication::definition::{Cells, Definition};
use colocate_study::replication::{Study, Work};
use expect_test::{Expect, expect};

/// Least difference that counts. Chosen: what another seed changes is mostly less.
const LEAST: f64 = 0.005;

/// A line a metric of each part, with `mixes` mixes of programs that take `seconds` alone.
fn signs(name: &str, mixes: usize, seconds: u64) -> String {
    let mut definition = Definition::built_in(name).unwrap();
    definition.length = Nanos::from_secs(seconds);
    definition.seeds = 1;
    for part in &mut definition.parts {
        if let Cells::Mixes(form) = &mut part.cells {
            form.count = mixes;
        }
        part.detail = None;
    }
    let (machine, performance) = machine(&definition.machine);
    let study = Study {
        definition: &definition,
        machine: &machine,
        performance: &performance,
        draws: &[Assumptions::default()],
        seed: 0,
    };
    let work = Work::new(study).unwrap();
    let done: Vec<_> = (0..work.count()).map(|piece| work.piece(piece).unwrap()).collect();
    let report = work.report(&done, "").unwrap();
    let mut text = String::new();
    for part in &report.parts {
        let mean = part.rows.iter().find(|row| row.cell.is_none()).unwrap();
        let [base, others @ ..] = &mean.policies[..] else { panic!("{name} has no policy") };
        for (at, metric) in base.metrics.iter().enumerate() {
            let of_base = metric.value.unwrap().value;
            let less = metric.metric.less_is_better();
            let sign = |policy: &colocate_study::replication::report::PolicyFigures| {
                let gain = policy.metrics[at].value.unwrap().value / of_base - 1.0;
                let gain = if less { -gain } else { gain };
                let sign = if gain.abs() < LEAST {
                    '='
                } else if gain > 0.0 {
                    '+'
                } else {
                    '-'
                };
                format!("{sign}{}", policy.policy)
            };
            let signs: Vec<String> = others.iter().map(sign).collect();
            text += &format!("{} {}: {}\n", part.name, metric.metric.name(), signs.join(" "));
        }
    }
    text
}

fn check(name: &str, (mixes, seconds): (usize, u64), expected: &Expect) {
    expected.assert_eq(&signs(name, mixes, seconds));
}

#[test]
fn bandwidth_aware_selection() {
    check(
        "feliu-1",
        (3, 5),
        &expect![[r#"
        selection turnaround: +round-robin =mmas -mmas:published =mhas -mhas:published =idas -idas:published
        selection average IPC: =round-robin =mmas =mmas:published =mhas =mhas:published =idas =idas:published
        selection unfairness: +round-robin -mmas -mmas:published -mhas -mhas:published -idas -idas:published
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
