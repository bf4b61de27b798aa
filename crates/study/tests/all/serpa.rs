//! The study of Serpa et al.: the predictions that are kept are still made.

use crate::kept::Kept;
use crate::machine;
use colocate_machine::Nanos;
use colocate_machine::printable::json;
use colocate_model::Assumptions;
use colocate_study::replication::definition::PolicyStudyDefinition;
use colocate_study::replication::length::{self, LengthFigures};
use colocate_study::replication::report::StudyReport;
use colocate_study::replication::{Study, StudyCells, siblings};

/// The kept predictions; `scripts/studies` makes them again.
const KEPT: &str = include_str!("../../../../studies/serpa.csv");

fn with_study<T>(definition: &PolicyStudyDefinition, make: impl FnOnce(Study<'_>) -> T) -> T {
    let (machine, performance) = machine(&definition.machine);
    let draws = Assumptions::sample(definition.draws as usize, 0);
    make(Study { definition, machine: &machine, performance: &performance, draws: &draws, seed: 0 })
}

/// A change of the model, the machine's figures or the kernels' shows here if it changes predictions: the kept ones stay as
/// they are, and docs/results/serpa.md gets a further column.
#[test]
fn what_is_kept_is_still_predicted() {
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "expected {b}, found {a}");
    let mut definition = PolicyStudyDefinition::built_in("serpa").unwrap();
    let draws = KEPT.lines().find_map(|line| line.strip_prefix("draws,")).unwrap();
    definition.draws = draws.parse().unwrap();
    let facts =
        with_study(&definition, |study| siblings::facts(&study, &definition.kernels).unwrap());
    assert_eq!(facts.len(), definition.kernels.len() + 4);
    for fact in facts {
        let line = format!("fact,{},", fact.name.replace(',', ";"));
        let kept = KEPT.lines().find_map(|each| each.strip_prefix(&line)).unwrap();
        let [value, low, high] = Kept::numbers(kept).unwrap();
        near(fact.value.value, value);
        near(fact.value.low, low);
        near(fact.value.high, high);
    }
}

/// Three applications of which the same is known of two: two pairs are simulated, and three reported. The oracle is
/// never worse than a policy; of a baseline beside itself nothing is said.
#[test]
fn the_oracle_is_the_best_and_pairs_alike_are_simulated_once() {
    let mut definition = PolicyStudyDefinition::built_in("serpa").unwrap();
    definition.applications =
        [0, 1, 4].map(|place| definition.applications[place].clone()).to_vec();
    (definition.draws, definition.seeds) = (1, 1);
    definition.length = Nanos::from_millis(50);
    let report = with_study(&definition, |study| {
        let work = StudyCells::new(study).unwrap();
        assert_eq!(work.count(), 2 + 4);
        assert_eq!(
            (work.shape(0), work.shape(5), work.shape(6)),
            (Some([7, 1, 3]), Some([3, 1, 1]), None)
        );
        let done: Vec<_> = (0..work.count()).map(|piece| work.piece(piece).unwrap()).collect();
        work.report(&done, "").unwrap()
    });
    let [pairs, tail] = &report.parts[..] else { panic!("two parts") };
    assert_eq!((pairs.cells.len(), &*pairs.cells[2].name), (3, "FT+CG"));
    let policies = &pairs.rows[0].policies;
    let by_pair = &policies[2].metrics[0].beside[0].by_cell;
    assert_eq!(by_pair[1], by_pair[2]);
    let value =
        |policy: usize, metric: usize| policies[policy].metrics[metric].value.unwrap().value;
    let oracle = policies.len() - 1;
    for policy in 0..oracle {
        assert!(value(oracle, 1) >= value(policy, 1) - 1e-9);
        assert!(value(policy, 2) >= 1.0);
    }
    for (policy, other) in [(0, "round-robin"), (1, "os")] {
        let beside = &policies[policy].metrics[0].beside;
        assert_eq!(beside.iter().map(|it| &*it.baseline).collect::<Vec<_>>(), [other]);
    }
    // Two copies that last equally long: nothing to gain. The shorter the second, the more.
    let gain = |row: usize| {
        let value = |at: usize| tail.rows[row].policies[at].metrics[0].value.unwrap().value;
        1.0 - value(2) / value(1)
    };
    assert!(gain(0).abs() < 0.01, "{report:?}");
    assert!((1..4).all(|place| gain(place) > gain(place - 1)), "{report:?}");
    assert_eq!(serde_json::from_str::<StudyReport>(&json(&report)).unwrap(), report);
}

/// The study's length is one that the rule gives under the default assumptions: from half of it to it, nothing changes by as
/// much as can be resolved, and half of it is longer than a start.
#[test]
fn the_default_length_is_one_that_the_rule_gives() {
    let mut definition = PolicyStudyDefinition::built_in("serpa").unwrap();
    definition.applications =
        [0, 4, 7].map(|place| definition.applications[place].clone()).to_vec();
    (definition.draws, definition.seeds) = (1, 1);
    let figures = |length: Nanos| {
        let definition = &mut length::of_os(&definition);
        definition.length = length;
        with_study(definition, |study| {
            let work = StudyCells::new(study).unwrap();
            let done: Vec<_> = (0..work.count()).map(|n| work.piece(n).unwrap()).collect();
            LengthFigures::of(&work, &done)
        })
    };
    let (half, whole) = (figures(Nanos(definition.length.0 / 2)), figures(definition.length));
    let start = length::start_of(&machine(&definition.machine).0);
    assert!(length::settled(Some(&half), &whole, start), "{whole:?}");
}

/// The page's table of instruction mixes is that of the recorded programs.
#[test]
fn the_page_has_the_mixes() {
    const PAGE: &str = include_str!("../../../../docs/results/serpa.md");
    const RECORDED: &str = include_str!("../../../../studies/serpa/recorded.json");
    let recorded: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
    for program in recorded["phase"].as_array().unwrap() {
        let kinds = program["work"]["value"]["kinds"].as_object().unwrap();
        let percent = |class: &str| {
            let own = kinds.iter().filter(|(kind, _)| kind.split('-').next() == Some(class));
            own.fold(0.0, |sum, (_, share)| sum + 100.0 * share.as_f64().unwrap())
        };
        let shares = ["float", "int", "load", "store", "branch"].map(percent);
        let cells = shares.iter().map(|share| format!("{share:.1} | "));
        let row =
            format!("\n| {} | {}", program["name"].as_str().unwrap(), cells.collect::<String>());
        assert!(PAGE.contains(&row), "{row}");
    }
}
