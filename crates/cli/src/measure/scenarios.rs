//! SMT-Bench's scenarios: a kernel alone, beside itself, and beside every other kernel.
//!
//! Every repetition measures each kernel alone on either PU and each ordered pair of kernels once,
//! in random order. A kernel's time beside another is relative to its time alone on the same PU in
//! the same repetition; both arrangements of a pair count. A repetition thus yields one matrix and
//! one geometric mean for each scenario, and intervals are over repetitions.

use super::beside::{KernelBench, KernelSample, Quality};
use super::harness::{by_cell, rounds};
use colocate_figures::rounds::{Series, estimate, over_cases};
use colocate_figures::stats::{Estimate, Interval, geometric_mean};
use colocate_model::rng::SplitMix64;
use serde::{Serialize, Serializer};
use smt_bench::KernelSpec;
use smt_bench::measure::PinnedKernel;

/// Settings of a measurement, common to all kernels.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct MeasurementSettings {
    /// Kernel numbers of the two PUs.
    pub pus: [u32; 2],
    /// Whether the PUs share a core; `None` if unknown.
    pub share_core: Option<bool>,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Number of rounds.
    pub repeat: u32,
    /// Seed of the order of cells.
    pub seed: u64,
}

/// A kernel alone on a PU.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct SoloKernel {
    /// The kernel.
    #[serde(serialize_with = "name")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("pattern" = "^[a-z-]+(:[0-9]+)?$")))]
    pub kernel: KernelSpec,
    /// Kernel number of the PU.
    pub pu: u32,
    /// Nanoseconds an iteration; `None` if no sample was valid.
    pub iteration_ns: Option<Estimate>,
}

/// A kernel's time beside another, relative to its time alone.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct MatrixCell {
    /// The timed kernel.
    #[serde(serialize_with = "name")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("pattern" = "^[a-z-]+(:[0-9]+)?$")))]
    pub kernel: KernelSpec,
    /// The kernel on the sibling PU.
    #[serde(serialize_with = "name")]
    #[cfg_attr(feature = "schema", schemars(with = "String", extend("pattern" = "^[a-z-]+(:[0-9]+)?$")))]
    pub beside: KernelSpec,
    /// Time relative to the time alone; `None` if no sample was valid.
    pub time: Option<Estimate>,
}

/// Geometric means over kernels. `None` without a valid sample or without a case.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scenarios {
    /// A: alone. 1 by definition; the interval shows how well times repeat.
    pub alone: Option<Estimate>,
    /// B: beside itself.
    pub same: Option<Estimate>,
    /// C: beside each different kernel.
    pub different: Option<Estimate>,
}

/// Kernels alone and beside each other on two PUs (docs/schemas/bench-smt.json).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct SmtBenchReport {
    /// Version of the format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = 1)))]
    pub version: u32,
    /// Settings of the measurement.
    #[serde(flatten)]
    pub settings: MeasurementSettings,
    /// Geometric means over kernels.
    pub scenarios: Scenarios,
    /// Each kernel alone on each PU.
    pub alone: Vec<SoloKernel>,
    /// Each kernel beside each kernel.
    pub matrix: Vec<MatrixCell>,
    /// Signs of disturbance.
    pub quality: Quality,
}

fn name<S: Serializer>(workload: &KernelSpec, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(workload)
}

impl SmtBenchReport {
    /// The cell of `kernel` beside `beside`.
    pub fn cell(&self, kernel: KernelSpec, beside: KernelSpec) -> Option<&MatrixCell> {
        self.matrix.iter().find(|cell| cell.kernel == kernel && cell.beside == beside)
    }

    /// The kernels, in the order requested.
    pub fn kernels(&self) -> Vec<KernelSpec> {
        // Two entries a kernel, one for each PU.
        self.alone.iter().step_by(2).map(|alone| alone.kernel).collect()
    }
}

/// Measures all scenarios of `kernels`, each listed once, on `bench`.
pub fn measure(
    bench: &mut impl KernelBench,
    settings: MeasurementSettings,
    kernels: &[KernelSpec],
) -> anyhow::Result<SmtBenchReport> {
    let cells = cells(settings.pus, kernels);
    let random = &mut SplitMix64::new(settings.seed);
    let taken = rounds(bench, &cells, settings.repeat, random, false)?;
    let mut quality = Quality::default();
    taken.iter().for_each(|taken| quality.note(&taken.sample));
    let times = ScenarioSamples { samples: by_cell(taken, cells.len()), kernels: kernels.len() };
    Ok(reported(settings, kernels, &times, quality))
}

/// Cells of each kernel: alone on either PU, and on the first PU beside each kernel on the second.
fn cells(pus: [u32; 2], kernels: &[KernelSpec]) -> Vec<Vec<PinnedKernel>> {
    let job = |workload: &KernelSpec, pu: usize| PinnedKernel { workload: *workload, cpu: pus[pu] };
    let mut cells = Vec::new();
    for first in kernels {
        cells.extend([vec![job(first, 0)], vec![job(first, 1)]]);
        cells.extend(kernels.iter().map(|second| vec![job(first, 0), job(second, 1)]));
    }
    cells
}

/// Samples of [`cells`], by cell and round. Kernels and PUs are indexes into their lists.
struct ScenarioSamples {
    samples: Vec<Vec<KernelSample>>,
    kernels: usize,
}

impl ScenarioSamples {
    /// Time of an iteration of job `job` in a cell, by round.
    fn of(&self, kernel: usize, column: usize, job: usize) -> Series {
        // A kernel has two cells alone and one beside each kernel.
        let samples = &self.samples[kernel * (self.kernels + 2) + column];
        samples.iter().map(|sample| Some(sample.iteration_ns.as_ref()?[job])).collect()
    }

    /// Time of `kernel` beside `other` relative to its time alone, by round: the geometric mean
    /// over both PUs, or the value of the only PU with a valid sample.
    fn ratio(&self, kernel: usize, other: usize) -> Series {
        // In the other arrangement the kernel is the second job, on the second PU.
        let beside = [self.of(kernel, 2 + other, 0), self.of(other, 2 + kernel, 1)];
        let alone = [self.of(kernel, 0, 0), self.of(kernel, 1, 0)];
        let of_round = (0..alone[0].len()).map(|round| {
            let both = (0..2).filter_map(|pu: usize| Some(beside[pu][round]? / alone[pu][round]?));
            geometric_mean(&both.collect::<Vec<f64>>())
        });
        of_round.collect()
    }
}

fn reported(
    settings: MeasurementSettings,
    kernels: &[KernelSpec],
    times: &ScenarioSamples,
    quality: Quality,
) -> SmtBenchReport {
    let count = kernels.len();
    let mut alone = Vec::new();
    let mut matrix = Vec::new();
    let mut repeats = Vec::new();
    let mut same = Vec::new();
    let mut different = Vec::new();
    for kernel in 0..count {
        for (place, &pu) in settings.pus.iter().enumerate() {
            let series = times.of(kernel, place, 0);
            let iteration_ns = estimate(&series);
            let mean = iteration_ns.map(|found| found.value);
            repeats.push(series.iter().map(|time| Some((*time)? / mean?)).collect());
            alone.push(SoloKernel { kernel: kernels[kernel], pu, iteration_ns });
        }
        for other in 0..count {
            let series = times.ratio(kernel, other);
            let time = estimate(&series);
            matrix.push(MatrixCell { kernel: kernels[kernel], beside: kernels[other], time });
            if kernel == other { same.push(series) } else { different.push(series) }
        }
    }
    let scenarios = Scenarios {
        alone: over_cases(&repeats).map(relative),
        same: over_cases(&same),
        different: over_cases(&different),
    };
    SmtBenchReport { version: 1, settings, scenarios, alone, matrix, quality }
}

/// The estimate as a share of its own value, which thus becomes 1.
fn relative(found: Estimate) -> Estimate {
    let Estimate { value, interval } = found;
    let interval = interval.map(|it| Interval { low: it.low / value, high: it.high / value });
    Estimate { value: 1.0, interval }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Pretend;
    use smt_bench::Kernel;

    const SETTINGS: MeasurementSettings = MeasurementSettings {
        pus: [0, 1],
        share_core: Some(true),
        repeat: 5,
        seconds: 0.1,
        seed: 1,
    };

    fn measured(mut machine: Pretend, kernels: &[KernelSpec]) -> SmtBenchReport {
        measure(&mut machine, SETTINGS, kernels).unwrap()
    }

    fn paper() -> Vec<KernelSpec> {
        Kernel::PAPER.map(KernelSpec::from).to_vec()
    }

    fn value(estimate: Option<Estimate>) -> f64 {
        estimate.unwrap().value
    }

    /// The pretended core makes a kernel 1.95 times slower beside itself, except load-dep (1.03),
    /// and 1.03 times beside others: B is (1.95⁷ · 1.03)^(1/8) = 1.8005, C is 1.03.
    #[test]
    fn scenarios_of_two_siblings_traced_by_hand() {
        let kernels = paper();
        let mut machine = Pretend::quiet(vec![vec![0, 1]]);
        let report = measure(&mut machine, SETTINGS, &kernels).unwrap();
        assert!((value(report.scenarios.alone) - 1.0).abs() < 1e-12);
        assert!((value(report.scenarios.same) - 1.800_5).abs() < 0.01);
        assert!((value(report.scenarios.different) - 1.03).abs() < 0.01);
        let interval = report.scenarios.same.unwrap().interval.unwrap();
        assert!(
            interval.low < interval.high && interval.high - interval.low < 0.02,
            "{interval:?}"
        );
        let worst = report.cell(Kernel::FpDiv.into(), Kernel::FpDiv.into()).unwrap();
        assert!((value(worst.time) - 1.95).abs() < 0.02);
    }

    #[test]
    fn without_smt_nothing_slows() {
        let kernels = paper();
        let report = measured(Pretend::quiet(vec![]), &kernels);
        for cell in &report.matrix {
            assert!((value(cell.time) - 1.0).abs() < 0.02, "{cell:?}");
        }
    }

    #[test]
    fn every_pair_is_measured_once_a_repetition() {
        let kernels = paper();
        let mut machine = Pretend::quiet(vec![]);
        let report = measure(&mut machine, SETTINGS, &kernels).unwrap();
        // 16 alone and 64 ordered pairs, five times.
        assert_eq!(report.quality.measured, 400);
        assert_eq!(machine.jobs, 5 * (16 + 2 * 64));
        assert_eq!((report.alone.len(), report.matrix.len()), (16, 64));
        assert_eq!(report.kernels(), kernels);
    }

    #[test]
    fn lost_measurements_leave_gaps_not_zeros() {
        let kernels = paper();
        let mut machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
        let report = measure(&mut machine, SETTINGS, &kernels).unwrap();
        assert!(report.matrix.iter().all(|cell| cell.time.is_none()));
        assert!(report.scenarios.alone.is_none() && report.scenarios.same.is_none());
        let mut machine = Pretend { lost_one_in: 3, ..Pretend::quiet(vec![vec![0, 1]]) };
        let report = measure(&mut machine, SETTINGS, &kernels).unwrap();
        // Most cells are known; no repetition is complete, so the means have no interval.
        assert!((value(report.scenarios.same) - 1.8).abs() < 0.1);
        assert_eq!(report.scenarios.same.unwrap().interval, None);
    }

    #[test]
    fn one_kernel_has_no_other() {
        let kernels = [Kernel::IntMul.into()];
        let report = measured(Pretend::quiet(vec![]), &kernels);
        assert!(report.scenarios.different.is_none() && report.scenarios.same.is_some());
    }

    #[test]
    fn one_repetition_has_no_interval() {
        let kernels = paper();
        let once = MeasurementSettings { repeat: 1, ..SETTINGS };
        let report = measure(&mut Pretend::quiet(vec![]), once, &kernels).unwrap();
        assert!(report.matrix.iter().all(|cell| cell.time.unwrap().interval.is_none()));
        assert_eq!(report.scenarios.same.unwrap().interval, None);
    }

    #[test]
    fn same_seed_same_report() {
        let kernels = paper();
        let told = || {
            let report = measured(Pretend::quiet(vec![]), &kernels);
            serde_json::to_string(&report).unwrap()
        };
        assert_eq!(told(), told());
    }
}
