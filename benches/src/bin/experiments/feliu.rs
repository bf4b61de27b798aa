//! Where the differences of Feliu's studies come from: schedulers with other settings on their mixes, for docs/results/feliu.md.

#[path = "../../../../crates/study/tests/all/feliu/means.rs"]
mod means;

use means::means;

/// Schedulers, if none is named.
const DEFAULT: &[&str] = &[
    "os",
    "bas",
    "fair",
    "fair+guard",
    "fair:apart=2",
    "fair:apart=5",
    "fair:apart=10",
    "fair:valid=20",
    "fair-oracle",
    "perf-fair",
    "perf-fair+guard",
    "perf-fair:limit=1.5",
    "perf-fair:limit=inf",
];

/// A line a scheduler for the ten mixes of a study, such as `feliu-1` and `feliu-3`.
pub fn table(study: &str, kinds: &[&str]) {
    let all: Vec<usize> = (0..10).collect();
    for kind in if kinds.is_empty() { DEFAULT } else { kinds } {
        println!("{study} {kind}: {}", means(study, &all, kind));
    }
}
