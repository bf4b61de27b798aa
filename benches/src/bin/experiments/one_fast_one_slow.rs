//! The share of the best gain that schedulers have on one fast and one slow core, for docs/results/asymmetric.md and docs/reference/guard.md.

#[path = "../../../../crates/sim/tests/all/one_fast_one_slow/program.rs"]
mod program;

use program::share;

/// Schedulers, if none is named.
const DEFAULT: &[&str] = &[
    "parallelism-aware",
    "parallelism-aware:cost=0",
    "parallelism-aware:spare=no",
    "all-fast-first",
    "guarded:parallelism-aware",
    "guarded:all-fast-first",
];

/// A row a scheduler for each share of serial time and each quantum.
pub fn table(kinds: &[&str]) {
    println!(
        "| scheduler | serial | quantum, ms | of the best gain, % | gains, % | the best, % | moves |"
    );
    println!("|---|---|---|---|---|---|---|");
    for kind in if kinds.is_empty() { DEFAULT } else { kinds } {
        for percent in [0, 10, 25, 50, 75] {
            for quantum in [10, 20, 50] {
                let (share, [ours, best], moves) = share(percent, quantum, 8, kind);
                let share = share * 100.0;
                println!(
                    "| `{kind}` | {percent} % | {quantum} | {share:.1} | {ours:.1} | {best:.1} | {moves:.0} |"
                );
            }
        }
    }
}
