//! One fast and one slow core, as a machine of two PUs one of which is kept slow: how near `parallelism-aware` comes to the best.

mod program;

use program::share;

/// In quanta of 10 ms at least nine tenths of the best gain, whatever is serial, and more than without turns on the fast core.
#[test]
fn most_of_the_best_gain() {
    for percent in [0, 25, 50, 75] {
        let (ours, ..) = share(percent, 10, 2, "parallelism-aware");
        let (without, ..) = share(percent, 10, 2, "parallelism-aware:spare=no");
        assert!(
            ours > 0.9 && ours > without + 0.05,
            "{percent} %: {ours}, without turns {without}"
        );
    }
}

/// A guard tries single quanta, each after the kernel's. What was runnable in the kernel's is not the scheduler's to know, so it
/// knows of no phase, moves no thread, and gains nothing.
#[test]
fn under_a_guard_no_phase_is_seen() {
    for percent in [0, 25, 50] {
        let (guarded, _, moves) = share(percent, 20, 2, "guarded:parallelism-aware");
        assert!(guarded.abs() < 0.01 && moves < 0.5, "{percent} %: {guarded}, {moves} moves");
    }
}
