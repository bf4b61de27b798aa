//! The study of Serpa et al.: the predictions that were frozen are still made, and told as they are.
#![allow(clippy::unwrap_used)] // a failed set-up stops the test

use colocate_machine::Nanos;
use colocate_machine::described;
use colocate_machine::printable::json;
use colocate_model::Assumptions;
use colocate_model::phase::PhaseFile;
use colocate_study::replication::Replication;
use colocate_study::serpa::length::{Figures, Step};
use colocate_study::serpa::pairs::Pairs;
use colocate_study::serpa::work::Work;
use colocate_study::serpa::{Report, Study, bench, length, table};
use expect_test::expect;

/// The kept predictions; `scripts/studies` makes them again.
const FROZEN: &str = include_str!("../../../studies/serpa.json");
const KERNELS: &str = include_str!("../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../studies/serpa/nas.toml");

fn with_study<T>(draws: usize, seeds: u32, make: impl FnOnce(Study<'_>) -> T) -> T {
    let exact = described::from_toml(described::MACHINES[0].1).unwrap();
    let (machine, performance) = (exact.machine, exact.performance.unwrap());
    let draws = Assumptions::sample(draws, 0);
    make(Study {
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seeds,
        seed: 0,
        alone: Nanos::from_millis(50),
    })
}

/// A change of the model, the machine's figures or the kernels' shows here if it changes predictions: the kept ones stay as
/// they are, and docs/serpa.md gets a further column.
#[test]
fn what_was_frozen_is_still_predicted() {
    let kernels = PhaseFile::from_toml(KERNELS).unwrap().phases;
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "expected {b}, found {a}");
    let frozen: serde_json::Value = serde_json::from_str(FROZEN).unwrap();
    let draws = usize::try_from(frozen["draws"].as_u64().unwrap()).unwrap();
    let frozen: bench::Figures = serde_json::from_value(frozen["bench"].clone()).unwrap();
    let found = with_study(draws, 1, |study| bench::figures(&study, &kernels).unwrap());
    assert_eq!(found.kernels, frozen.kernels);
    for (found, frozen) in [
        (found.scenario_b, frozen.scenario_b),
        (found.scenario_c, frozen.scenario_c),
        (found.best_c, frozen.best_c),
    ] {
        near(found.value, frozen.value);
        near(found.low, frozen.low);
        near(found.high, frozen.high);
    }
}

/// Of a report's figures, ratios of the metric at `metric` under the policy at `policy`.
fn value(
    figures: &[colocate_study::serpa::pairs::PolicyFigures],
    policy: usize,
    metric: usize,
) -> f64 {
    figures[policy].over_os[metric].value.unwrap().value
}

/// Three applications of which the same is known of two: two pairs are simulated, and three told. The oracle is
/// never worse than a policy; of a baseline beside itself nothing is said.
#[test]
fn the_oracle_is_the_best_and_pairs_alike_are_simulated_once() {
    let applications = PhaseFile::from_toml(APPLICATIONS).unwrap().phases;
    let some = [0, 1, 4].map(|place| applications[place].clone());
    let kernels = PhaseFile::from_toml(KERNELS).unwrap().phases;
    let report = with_study(1, 1, |study| {
        assert_eq!(Pairs::new(&some).cells(), 2);
        let work = Work::new(study, &kernels, &some).unwrap();
        assert_eq!(work.count(), 2 + 4);
        assert_eq!(
            (work.shape(0), work.shape(5), work.shape(6)),
            (Some([6, 1]), Some([3, 1]), None)
        );
        let done: Vec<_> = (0..work.count()).map(|piece| work.piece(piece).unwrap()).collect();
        work.report(&done, "").unwrap()
    });
    let pairs = &report.pairs;
    assert_eq!((pairs.pairs.len(), pairs.threads), (3, 32));
    assert_eq!(pairs.pairs[2].pair, ["FT", "CG"]);
    assert_eq!(pairs.pairs[1].over_os, pairs.pairs[2].over_os);
    let oracle = pairs.policies.len() - 1;
    for policy in 0..oracle {
        assert!(value(&pairs.policies, oracle, 1) >= value(&pairs.policies, policy, 1) - 1e-9);
        assert!(value(&pairs.policies, policy, 2) >= 1.0);
    }
    assert_eq!(pairs.policies[0].over_os[0].ratio, None);
    assert_eq!(pairs.policies[1].over_round_robin[0].ratio, None);
    // Two copies that last equally long: nothing to gain. The shorter the second, the more.
    let gain = |place: usize| {
        let of = &report.tail[place].policies;
        1.0 - value(of, 2, 0) / value(of, 1, 0)
    };
    assert!(gain(0).abs() < 0.01, "{report:?}");
    assert!((1..4).all(|place| gain(place) > gain(place - 1)), "{report:?}");
    assert_eq!(serde_json::from_str::<Report>(&json(&report)).unwrap(), report);
}

/// The length that the study is made with is one that the rule gives under the usual assumptions: from half of
/// it to it, nothing changes that could be told, and half of it is longer than a start.
#[test]
fn the_usual_length_is_one_that_the_rule_gives() {
    let applications = PhaseFile::from_toml(APPLICATIONS).unwrap().phases;
    let some = [0, 4, 7].map(|place| applications[place].clone());
    let step: Step = with_study(1, 1, |mut study| {
        let pairs = Pairs::new(&some);
        let mut figures = |alone: Nanos| {
            study.alone = alone;
            let pieces = 0..length::count(&study, &pairs);
            let done: Vec<_> = pieces.map(|n| length::piece(&study, &pairs, n).unwrap()).collect();
            Figures::of(&study, &pairs, &done)
        };
        let half = figures(Nanos(colocate_study::serpa::ALONE.0 / 2));
        figures(colocate_study::serpa::ALONE).after(Some(&half))
    });
    let start = with_study(1, 1, |study| length::start_of(&study));
    assert!(length::settled(&step, start), "{step:?}");
}

#[test]
fn told_as_tables() {
    let mut frozen: Report = serde_json::from_str(FROZEN).unwrap();
    frozen.pairs.policies.truncate(3);
    frozen.tail.truncate(1);
    frozen.bench.kernels.truncate(1);
    expect![[r#"
        simulated 2x AMD EPYC 7301; in brackets the range over 65 sets of assumptions and what chance does (3 seeds);
        ~: not resolved, less than 5 % or of another sign under other assumptions

        SMT-Bench, time on one core relative to alone, percent
          fp-add     beside itself         200.0 (200.0 to 200.0)
          B: beside itself, geometric mean  170.9 (168.2 to 179.7); published 187.2
          B: the worst kernel               200.0 (200.0 to 200.0); published 220, "up to 120 % more"
          C: beside another, all pairs      109.4 (105.8 to 116.7); published 102.7
          C: beside the best partner        101.7 (100.1 to 104.2); the same

        36 pairs of BT FT LU SP CG EP IS MG UA applications, 32 threads and 32 s alone each, none ever alone: percent of
          os                 slower one's time               STP                             unfairness
            round-robin        98.7 (98.4 to 99.6) ~          100.7 (100.2 to 100.9) ~         98.8 (98.5 to 99.7) ~
            instruction        98.7 (98.4 to 105.1) ~         100.7 (94.9 to 100.9) ~          98.8 (98.5 to 99.7) ~
          round-robin        slower one's time               STP                             unfairness
            os                101.4 (100.4 to 101.7) ~         99.3 (99.1 to 99.8) ~          101.2 (100.3 to 101.5) ~
            instruction       100.0 (100.0 to 105.8) ~        100.0 (94.5 to 100.0) ~         100.0 (99.8 to 100.0) ~
          instruction beside os, the pair that gains most: BT+CG   98.7 (98.4 to 105.1)
          instruction beside round-robin, the pair that gains most: BT+FT  100.0 (100.0 to 105.8)
          published, time of the slower one under instruction-aware mapping: 70.9 of Linux's (EP+SP 48.8),
          82.6 of round-robin's (IS+UA 56.0); there with applications of unequal length, see the tail

        the metric's tail: two copies of one application, the second shorter; time of the longer one with one
        thread of each a core, where there is nothing to match, percent of that under
                            round-robin                     os
          length 100 %       100.0 (100.0 to 105.8) ~         98.7 (98.3 to 105.1) ~
    "#]].assert_eq(&table::text(&frozen));
}
