//! The order of quanta alone.

use super::*;

/// One whole quantum; its owner and its use.
fn pass(trial: &mut Trial) -> (Owner, QuantumUse) {
    let owner = trial.next_owner(1, false);
    trial.begin(owner);
    (owner, trial.note(1, true))
}

fn uses(trial: &mut Trial, quanta: usize) -> Vec<QuantumUse> {
    (0..quanta).map(|_| pass(trial).1).collect()
}

/// Lengths of runs of equal owners.
fn runs(trial: &mut Trial, quanta: usize) -> Vec<(Owner, usize)> {
    let owners: Vec<Owner> = (0..quanta).map(|_| pass(trial).0).collect();
    owners.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}

fn trial(round: u32) -> Trial {
    let mut trial = Trial::new(&Guarding::default());
    trial.set_round(round);
    trial
}

/// The first quanta are a settling one and a baseline; then rounds of three and controls, each with a settling one before it.
#[test]
fn rounds_and_controls_alternate() {
    let mut trial = trial(3);
    let expected = [
        QuantumUse::Settling,
        QuantumUse::Baseline,
        QuantumUse::Trial,
        QuantumUse::Trial,
        QuantumUse::Trial,
    ];
    assert_eq!(uses(&mut trial, 5), expected);
    assert_eq!(uses(&mut trial, 2), [QuantumUse::Settling, QuantumUse::LastControl]);
    let mut lengths = [0, 0];
    for (owner, length) in runs(&mut trial, 401).into_iter().skip(1).rev().skip(1) {
        match owner {
            Owner::Policy => assert_eq!(length, 3),
            Owner::Kernel => lengths[length - 2] += 1,
        }
    }
    assert!(lengths.iter().all(|&count| count > 20), "one or two controls: {lengths:?}");
}

/// A policy that has earned four rounds gets them, as far as the budget goes.
#[test]
fn several_rounds_in_a_row() {
    let mut trial = trial(2);
    uses(&mut trial, 2);
    for _ in 0..8 {
        assert_eq!(trial.next_owner(4, true), Owner::Kernel);
        assert_eq!(trial.next_owner(4, false), Owner::Policy);
        trial.begin(Owner::Policy);
        trial.note(1, true);
    }
    assert_eq!(trial.next_owner(4, false), Owner::Kernel);
}

#[test]
fn a_change_needs_a_new_baseline() {
    let mut trial = trial(2);
    assert_eq!(uses(&mut trial, 3)[2], QuantumUse::Trial);
    trial.forget();
    assert_eq!(
        uses(&mut trial, 3),
        [QuantumUse::Settling, QuantumUse::Baseline, QuantumUse::Trial]
    );
    trial.begin(Owner::Policy);
    trial.note_throttled(3);
    assert_eq!((trial.next_owner(1, false), trial.throttled()), (Owner::Kernel, 3));
}

#[test]
fn quanta_that_end_early_are_not_compared() {
    let mut trial = trial(1);
    trial.begin(Owner::Kernel);
    trial.begin(Owner::Kernel);
    assert_eq!(trial.note(1, false), QuantumUse::Unused);
    assert_eq!(trial.note(1, true), QuantumUse::Baseline);
    trial.begin(Owner::Policy);
    assert_eq!(trial.note(1, false), QuantumUse::ShortTrial);
    assert_eq!(trial.next_owner(1, false), Owner::Policy, "the round is not complete");
}

#[test]
fn controls_are_rare_while_the_policy_is_kept() {
    let mut trial = trial(1);
    uses(&mut trial, 4);
    trial.keep(Verdict::Pays);
    assert_eq!(trial.verdict(), Verdict::Pays);
    let gaps: Vec<usize> = runs(&mut trial, 4000)[1..]
        .iter()
        .filter_map(|&(owner, length)| (owner == Owner::Policy).then_some(length))
        .collect();
    let gaps = &gaps[..gaps.len() - 1];
    assert!(gaps.iter().all(|gap| (15..48).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|&gap| gap < 20) && gaps.iter().any(|&gap| gap > 40), "{gaps:?}");
}

/// 50 quanta, 100, …, 1,600, and no more; or longer if the budget needs it.
#[test]
fn pauses_double() {
    let mut trial = trial(1);
    for expected in [50, 100, 200, 400, 800, 1600, 1600] {
        trial.pause(Verdict::CostsMore, 0);
        assert_eq!(trial.pause_left(), Some(expected));
        for _ in 0..expected {
            assert_eq!(trial.verdict(), Verdict::CostsMore);
            assert_eq!(pass(&mut trial).0, Owner::Kernel);
        }
        assert!(trial.is_trying() && trial.verdict() == Verdict::Undecided);
    }
    trial.pause(Verdict::OverBudget, 9999);
    assert_eq!(trial.pause_left(), Some(9999));
}

#[test]
fn quanta_ahead_of_the_next_decision() {
    let mut trial = trial(1);
    trial.pause(Verdict::CostsMore, 0);
    trial.begin(Owner::Kernel);
    assert_eq!(trial.quanta_ahead(7), 1, "the first after another owner");
    trial.begin(Owner::Kernel);
    assert_eq!(trial.quanta_ahead(7), 50);
    trial.note(50, true);
    trial.begin(Owner::Kernel);
    assert_eq!(trial.quanta_ahead(7), 7, "the budget is overdrawn");
    trial.keep(Verdict::Pays);
    trial.begin(Owner::Policy);
    trial.begin(Owner::Policy);
    assert_eq!(trial.quanta_ahead(0), trial.next_control - 1);
    trial.forget();
    assert_eq!(trial.quanta_ahead(0), 1, "without a baseline");
}
