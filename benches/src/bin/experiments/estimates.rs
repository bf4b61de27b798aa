//! What the settings of estimated progress cost and bring, for docs/results/benchmarks.md: six seeds, 30 seconds alone.

#[path = "../../../../crates/sim/tests/all/progress/runs.rs"]
mod runs;

use colocate_policy::schedule::fair::Mixing;
use colocate_policy::schedule::progress::Estimating;
use runs::on_the_e5645_for;

fn show(mixing: Mixing, phases: usize, settings: Estimating) {
    on_the_e5645_for(mixing, phases, settings, (6, 30));
}

/// Settings of estimates, for docs/results/benchmarks.md.
pub fn table_of_estimates() {
    for phases in [1, 3] {
        for apart in [2, 3, 5, 10, 20] {
            show(Mixing::FAIR, phases, Estimating { apart, ..Estimating::USUAL });
        }
        show(Mixing::FAIR, phases, Estimating { valid: 20, ..Estimating::USUAL });
        show(Mixing::FAIR, phases, Estimating { doubt: 0.0, ..Estimating::USUAL });
    }
}

/// Limits of `perf-fair`, for docs/results/benchmarks.md.
pub fn table_of_limits() {
    for phases in [1, 3] {
        for limit in [1.1, 1.2, 1.5, f64::INFINITY] {
            show(Mixing { limit, ..Mixing::PERF_FAIR }, phases, Estimating::USUAL);
        }
    }
}
