//! The study of Serpa et al.: the predictions that were frozen are still made, and told as they are.
#![allow(clippy::unwrap_used)] // a failed set-up stops the test

use colocate_machine::described;
use colocate_model::phase::PhaseFile;
use colocate_model::{Assumptions, Phase};
use colocate_study::serpa::pairs::Pairs;
use colocate_study::serpa::{Report, Study, bench, table, tail};
use expect_test::expect;

const FROZEN: &str = include_str!("../../../studies/serpa/frozen-2026-11-21.json");
const KERNELS: &str = include_str!("../../../studies/serpa/kernels.toml");
const APPLICATIONS: &str = include_str!("../../../studies/serpa/nas.toml");

fn with_study<T>(draws: usize, seeds: u32, make: impl FnOnce(Study<'_>) -> T) -> T {
    let exact = described::from_toml(described::MACHINES[0].1).unwrap();
    let (machine, performance) = (exact.machine, exact.performance.unwrap());
    let draws = Assumptions::sample(draws, 0);
    make(Study { machine: &machine, performance: &performance, draws: &draws, seeds, seed: 0 })
}

/// Whoever changes the model, the machine's figures or the kernels' sees here that predictions change: the
/// frozen ones stay as they were, and docs/serpa.md gets a further column.
#[test]
fn what_was_frozen_is_still_predicted() {
    let frozen: Report = serde_json::from_str(FROZEN).unwrap();
    let kernels = PhaseFile::from_toml(KERNELS).unwrap().phases;
    let found = with_study(65, 3, |study| bench::figures(&study, &kernels).unwrap());
    assert_eq!(found.kernels, frozen.bench.kernels);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "expected {b}, found {a}");
    for (found, frozen) in [
        (found.scenario_b, frozen.bench.scenario_b),
        (found.scenario_c, frozen.bench.scenario_c),
        (found.best_c, frozen.bench.best_c),
    ] {
        near(found.value, frozen.value);
        near(found.low, frozen.low);
        near(found.high, frozen.high);
    }
}

/// A few pairs with the usual assumptions: the oracle is never worse than a policy, and what is told of a
/// baseline against itself is 1.
#[test]
fn the_oracle_is_the_best_and_baselines_are_one() {
    let applications = PhaseFile::from_toml(APPLICATIONS).unwrap().phases;
    let found = with_study(1, 1, |study| {
        let pairs = Pairs::new(study, &applications[..3]);
        assert_eq!(pairs.count(), 3);
        let done: Vec<_> = (0..pairs.count()).map(|unit| pairs.unit(unit).unwrap()).collect();
        pairs.figures(&done)
    });
    assert_eq!((found.pairs, found.threads), (3, 32));
    let oracle = found.policies.last().unwrap();
    for policy in &found.policies {
        assert!(oracle.stp_over_os.value >= policy.stp_over_os.value - 1e-9, "{policy:?}");
        assert!(policy.unfairness.value >= 1.0, "{policy:?}");
    }
    assert!((found.policies[0].slower_over_os.value - 1.0).abs() < 1e-12);
    assert!((found.policies[1].slower_over_round_robin.value - 1.0).abs() < 1e-12);
}

/// Two copies that last equally long: nothing to gain. The shorter the second, the more.
#[test]
fn the_tail_grows_with_the_difference() {
    let found = with_study(1, 1, |study| tail::figures(&study, &Phase::default()).unwrap());
    assert!(found[0].gain.value.abs() < 0.01, "{found:?}");
    assert!(found.windows(2).all(|pair| pair[0].gain.value < pair[1].gain.value), "{found:?}");
}

#[test]
fn told_as_tables() {
    let mut frozen: Report = serde_json::from_str(FROZEN).unwrap();
    frozen.pairs.policies.truncate(2);
    frozen.tail.truncate(1);
    frozen.bench.kernels.truncate(1);
    expect![[r#"
        simulated 2x AMD EPYC 7301; in brackets the range over 65 sets of assumptions, 3 seeds each

        SMT-Bench, time on one core relative to alone, percent
          fp-add     beside itself         200.0 (200.0 to 200.0)
          B: beside itself, geometric mean  170.9 (168.2 to 179.7); published 187.2
          B: the worst kernel               200.0 (200.0 to 200.0); published 220, "up to 120 % more"
          C: beside another, all pairs      109.4 (105.8 to 116.7); published 102.7
          C: beside the best partner        101.7 (100.1 to 104.2); the same

        36 pairs of BT FT LU SP CG EP IS MG UA applications, 32 threads each, none ever alone: percent of the baseline
          policy            slower one's time/os      slower one's time/RR      STP/os                    STP/RR                    unfairness              
          os                 100.0 (100.0 to 100.0)    144.4 (106.7 to 174.8)    100.0 (100.0 to 100.0)     83.9 (73.6 to 96.8)      142.4 (106.7 to 168.6)
          round-robin         69.2 (57.2 to 93.7)      100.0 (100.0 to 100.0)    119.2 (103.3 to 135.8)    100.0 (100.0 to 100.0)    100.0 (100.0 to 100.0)
          published for instruction-aware mapping: 29.1 % less time of the slower one than under Linux,
          17.4 % less than round-robin; with applications of unequal length, see the tail
          `os`: each lasts half a second alone, too short for the simulated kernel to settle; see docs/serpa.md

        the metric's tail: two copies of one application, the second shorter; how much sooner the longer one
        ends with one thread of each a core than under round-robin, with nothing to match, percent
          length 100 %     0.0 (-5.8 to 0.0)
    "#]].assert_eq(&table::text(&frozen));
}
