//! The study against the runtime's rules, what was reported, and itself.

use super::*;
use crate::files;
use crate::piccoli::kernels::Array;
use crate::printed::Printed;
use colocate_machine::described;
use colocate_machine::exact::Exact;
use colocate_spm_rt::{costs, rule};
use modes::{is_published, is_worth_moving, moved};

fn built_in() -> PiccoliDefinition {
    files::read("piccoli").unwrap()
}

/// The default costs of the built-in study on a machine.
fn default_costs(exact: &Exact) -> PageCosts {
    let assumed = built_in().costs;
    PageCosts::drawn(&assumed, &exact.machine, exact.performance.as_ref().unwrap(), 0, 0)
}

fn opteron() -> Exact {
    let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "opteron-6282se").unwrap();
    described::from_toml(text).unwrap()
}

/// The runtime itself decides as the study says that it does.
#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // sizes
fn the_rules_are_those_of_the_runtime() {
    let exact = opteron();
    let drawn = default_costs(&exact);
    let published = costs::PublishedRule { caches: 0.2, reuse: 200.0 };
    let costs = costs::MemoryCosts {
        page_move_ns: drawn.page_move_ns as u64,
        remote_line_ps: (drawn.remote_line_ns * 1e3) as u64,
        cache_bytes: drawn.share as u64,
        path_bytes: drawn.caches as u64,
        ..costs::MemoryCosts::ASSUMED
    };
    let mut both = [0; 2];
    for Benchmark { kernel, sizes, .. } in built_in().benchmarks {
        for array in sizes.into_iter().flat_map(|size| kernel.task(size).arrays()) {
            let (range, bytes) = ((array.bytes * array.range) as u64, array.accessed as u64);
            let extra = rule::extra_ns(range, bytes, &costs);
            let moves = rule::is_worth_moving(extra, 0, range / 4096, 0, &costs);
            assert_eq!(is_worth_moving(range as f64, bytes as f64, &drawn), moves, "{array:?}");
            both[usize::from(moves)] += 1;
            let moves = published.is_worth_it(array.bytes as u64, bytes, costs.path_bytes);
            assert_eq!(is_published(&array, 0.2, drawn.caches), moves, "{array:?}");
        }
    }
    assert!(both[0] > 10 && both[1] > 10, "{both:?}");
}

/// As the dissertation reports: nothing of Add moves, of the buckets only the largest, and no array that is used once.
#[test]
fn the_published_rule_moves_what_was_reported() {
    let exact = opteron();
    let costs = default_costs(&exact);
    let of = |kernel: BenchmarkKernel, size| moved(PageMode::Published, &kernel.task(size), &costs);
    let sizes = &built_in().benchmarks[5].sizes;
    let buckets = sizes.iter().map(|size| of(BenchmarkKernel::Bucket, *size).len());
    assert_eq!(buckets.collect::<Vec<usize>>(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(of(BenchmarkKernel::Product, 2400), ["A", "B"]);
    assert_eq!(of(BenchmarkKernel::Lu, 2400), ["A", "B"]);
    assert!(of(BenchmarkKernel::Add, 2400).is_empty() && of(BenchmarkKernel::Search, 8).is_empty());
    assert_eq!(of(BenchmarkKernel::Search, 64), ["text"]);
    let small = Array { name: "x", bytes: 1e6, accessed: 1e9, range: 1.0, used: true };
    assert!(!is_published(&small, 0.2, costs.caches) && is_published(&small, 0.0, costs.caches));
}

/// The largest of the ten sizes: what gains, what loses, and the same again.
#[test]
fn pages_gain_where_the_node_is_the_limit() {
    let exact = opteron();
    let draws = Assumptions::sample(1, 0);
    let performance = exact.performance.as_ref().unwrap();
    let mut definition = built_in();
    definition.keep_largest(1);
    let study = PiccoliStudy {
        definition: &definition,
        machine: &exact.machine,
        performance,
        draws: &draws,
        seed: 0,
    };
    study.check().unwrap();
    let done: Vec<CaseTimes> =
        (0..study.count()).map(|piece| study.piece(piece).unwrap()).collect();
    assert_eq!(study.piece(3).unwrap(), done[3]);
    let report = study.report(&done);
    let of = |benchmark: &str, mode: &str| {
        let row = &report.benchmarks.iter().find(|it| it.benchmark == benchmark).unwrap().sizes[0];
        row.speedups.iter().find(|it| it.mode == mode).unwrap().over_default.value
    };
    for benchmark in ["Product", "LU", "partitionStringSearch"] {
        assert!(of(benchmark, "SPM+lock") > 1.5, "{benchmark}");
        assert!(of(benchmark, "AutoNUMA") > 1.5, "{benchmark}");
    }
    assert!(of("Add", "eager") < 1.0);
    assert!((of("Add", "SPM+lock") - 1.0).abs() < 1e-9, "nothing moves");
    let shown = report.text();
    assert!(definition.benchmarks.iter().all(|each| shown.contains(each.kernel.name())), "{shown}");
    assert!(report.svg().unwrap().contains("BucketSort"));
}
