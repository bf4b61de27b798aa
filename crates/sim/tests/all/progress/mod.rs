//! What `fair` takes for the jobs' progress, beside how far they have really come: on a simulated machine
//! the time that the same instructions take alone is known.
//!
//! `cargo test -p colocate-sim --test all progress -- --nocapture` prints the errors.

mod runs;

use crate::common::{self, INT, MUL, job, ms, scenario};
use colocate_policy::schedule::fair::Mixing;
use colocate_policy::schedule::progress::Estimating;
use colocate_sim::Scenario;
use runs::{errors, found, on_the_e5645_for};

/// Four jobs that ask nothing of memory or shared caches, on four cores: what they do beside each other is
/// what they do alone.
#[test]
fn undisturbed_is_exact() {
    let jobs = (0..4).map(|n| job("j", [INT, MUL][n % 2], 2_000)).collect();
    let scenario = Scenario { quantum: ms(50), ..scenario(jobs) };
    let ratios = found(common::SMALL, &scenario, Mixing::FAIR, Estimating::USUAL).ratios;
    let (mean, most) = errors(ratios.iter().copied());
    assert!(ratios.len() > 100 && mean < 0.01 && most < 0.01, "{} {mean} {most}", ratios.len());
}

/// Mean and 90th percentile of the errors of three seeds with ten seconds alone.
fn on_the_e5645(mixing: Mixing, phases: usize, settings: Estimating) -> (f64, f64) {
    on_the_e5645_for(mixing, phases, settings, (3, 10))
}

/// Jobs that always do the same. What is left is that a job that is estimated has others on other cores, which take
/// cache and bandwidth from it: its speed alone is taken for too low and its progress for too high. That is
/// a few percent for most and up to the share of its speed that a job bound by the memory loses.
#[test]
fn without_phases_only_disturbance_is_left() {
    for mixing in [Mixing::FAIR, Mixing::PERF_FAIR] {
        let (mean, most) = on_the_e5645(mixing, 1, Estimating::USUAL);
        assert!(mean < 0.04 && most < 0.12, "mean {mean}, 90th percentile {most}");
    }
}

/// Jobs of up to three phases of a tenth of a second to several seconds, whose speeds differ by a factor of two and more.
#[test]
fn phases_are_told_apart() {
    for mixing in [Mixing::FAIR, Mixing::PERF_FAIR] {
        let (mean, most) = on_the_e5645(mixing, 3, Estimating::USUAL);
        assert!(mean < 0.07 && most < 0.16, "mean {mean}, 90th percentile {most}");
    }
}
