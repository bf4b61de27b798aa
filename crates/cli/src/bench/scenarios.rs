//! SMT-Bench's scenarios: a kernel alone, beside itself, and beside every other one.
//!
//! Every repetition measures each kernel alone on either PU and each ordered pair of kernels once,
//! in random order. A kernel's time beside another is taken relative to its time alone on the same
//! PU in the same repetition; both arrangements of a pair count. A repetition thus gives one matrix
//! and one geometric mean for each scenario, and intervals are over repetitions.

use super::beside::{Beside, Quality};
use colocate_study::stats::{Estimate, Random, geometric_estimate, geometric_mean};
use serde::{Serialize, Serializer};
use smt_bench::Workload;
use smt_bench::measure::Job;
use std::collections::BTreeMap;

/// What is asked.
pub struct Question<'a> {
    /// The two PUs.
    pub pus: [u32; 2],
    /// Whether the topology says that they share a core; `None` if it is unknown.
    pub share_core: Option<bool>,
    /// The kernels, each once.
    pub kernels: &'a [Workload],
    /// Repetitions, at least 1.
    pub repeat: usize,
    /// How long a measurement takes, for the report.
    pub seconds: f64,
    /// Decides the order.
    pub seed: u64,
}

/// A kernel alone on a PU.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// The kernel.
    #[serde(serialize_with = "name")]
    pub kernel: Workload,
    /// The PU.
    pub pu: u32,
    /// Nanoseconds an iteration takes; `None` if nothing could be measured.
    pub iteration_ns: Option<Estimate>,
}

/// A kernel's time beside another, relative to its time alone.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The kernel that is timed.
    #[serde(serialize_with = "name")]
    pub kernel: Workload,
    /// The kernel beside it.
    #[serde(serialize_with = "name")]
    pub beside: Workload,
    /// Time relative to alone; `None` if nothing could be measured.
    pub time: Option<Estimate>,
}

/// Geometric means over kernels. `None` where nothing could be measured or no case exists.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scenarios {
    /// A: alone. 1 by definition; the interval says how well times repeat.
    pub alone: Option<Estimate>,
    /// B: beside itself.
    pub same: Option<Estimate>,
    /// C: beside each other kernel.
    pub different: Option<Estimate>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of this format.
    pub version: u32,
    /// The two PUs.
    pub pus: [u32; 2],
    /// Whether the topology says that they share a core; `None` if it is unknown.
    pub share_core: Option<bool>,
    /// How long a measurement took.
    pub seconds: f64,
    /// Repetitions.
    pub repeat: usize,
    /// What decided the order.
    pub seed: u64,
    /// Geometric means.
    pub scenarios: Scenarios,
    /// Each kernel alone, on each PU.
    pub alone: Vec<Alone>,
    /// Each kernel beside each, in the order asked: rows are timed, columns are beside them.
    pub matrix: Vec<Cell>,
    /// How much could be used.
    pub quality: Quality,
}

fn name<S: Serializer>(workload: &Workload, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(workload)
}

impl Report {
    /// The cell of `kernel` beside `beside`.
    pub fn cell(&self, kernel: Workload, beside: Workload) -> Option<&Cell> {
        self.matrix.iter().find(|cell| cell.kernel == kernel && cell.beside == beside)
    }

    /// The kernels, in the order asked.
    pub fn kernels(&self) -> Vec<Workload> {
        self.alone.iter().step_by(2).map(|alone| alone.kernel).collect()
    }
}

/// How many measurements `measure` takes.
pub fn measurements(kernels: usize, repeat: usize) -> usize {
    repeat * kernels * (kernels + 2)
}

/// Measures all scenarios on `bench`; `tick` is called after every measurement.
///
/// # Errors
/// If a PU cannot be used.
pub fn measure(
    bench: &mut impl Beside,
    question: &Question,
    mut tick: impl FnMut(),
) -> anyhow::Result<Report> {
    let mut random = Random::new(question.seed);
    let mut quality = Quality::default();
    let mut repetitions = Vec::with_capacity(question.repeat);
    for _ in 0..question.repeat {
        let mut plan = conditions(question);
        random.shuffle(&mut plan);
        let mut found = Repetition::default();
        for jobs in plan {
            let sample = bench.beside(&jobs)?;
            quality.note(&sample);
            found.add(&jobs, sample.iteration_ns);
            tick();
        }
        repetitions.push(found);
    }
    Ok(reported(question, &repetitions, quality))
}

/// Every kernel alone on either PU, and every ordered pair.
fn conditions(question: &Question) -> Vec<Vec<Job>> {
    let job = |workload: &Workload, pu: usize| Job { workload: *workload, cpu: question.pus[pu] };
    let mut plan = Vec::new();
    for first in question.kernels {
        plan.extend([vec![job(first, 0)], vec![job(first, 1)]]);
        plan.extend(question.kernels.iter().map(|second| vec![job(first, 0), job(second, 1)]));
    }
    plan
}

/// What one repetition found.
#[derive(Default)]
struct Repetition {
    /// Nanoseconds an iteration takes alone.
    alone: BTreeMap<(Workload, u32), f64>,
    /// Nanoseconds an iteration of the first takes on the PU, beside the second.
    beside: BTreeMap<(Workload, Workload, u32), f64>,
}

impl Repetition {
    fn add(&mut self, jobs: &[Job], times: Option<Vec<f64>>) {
        let times = times.unwrap_or_default();
        match (jobs, times.as_slice()) {
            ([job], [time]) => drop(self.alone.insert((job.workload, job.cpu), *time)),
            ([a, b], [of_a, of_b]) => {
                self.beside.insert((a.workload, b.workload, a.cpu), *of_a);
                self.beside.insert((b.workload, a.workload, b.cpu), *of_b);
            }
            _ => {}
        }
    }

    /// Time of `kernel` beside `other` relative to alone: the geometric mean of both PUs, or the
    /// one that could be measured.
    fn ratio(&self, kernel: Workload, other: Workload, pus: [u32; 2]) -> Option<f64> {
        let on = |pu: &u32| {
            Some(self.beside.get(&(kernel, other, *pu))? / self.alone.get(&(kernel, *pu))?)
        };
        geometric_mean(&pus.iter().filter_map(on).collect::<Vec<f64>>())
    }
}

fn reported(question: &Question, repetitions: &[Repetition], quality: Quality) -> Report {
    let kernels = question.kernels;
    let pairs = || kernels.iter().flat_map(|&k| kernels.iter().map(move |&beside| (k, beside)));
    let cell = |(kernel, beside): (Workload, Workload)| {
        let ratios = repetitions.iter().filter_map(|r| r.ratio(kernel, beside, question.pus));
        let time = geometric_estimate(&ratios.collect::<Vec<_>>());
        Cell { kernel, beside, time }
    };
    let on = |(kernel, pu): (Workload, u32)| {
        let times = repetitions.iter().filter_map(|r| r.alone.get(&(kernel, pu)).copied());
        Alone { kernel, pu, iteration_ns: geometric_estimate(&times.collect::<Vec<_>>()) }
    };
    let alone: Vec<Alone> =
        kernels.iter().flat_map(|&k| question.pus.map(|pu| (k, pu))).map(on).collect();
    let matrix: Vec<Cell> = pairs().map(cell).collect();
    let scenario = |same: bool| {
        let cases: Vec<_> = pairs().filter(|(k, beside)| (k == beside) == same).collect();
        let of_repetition = |r: &Repetition| -> Option<Vec<f64>> {
            cases.iter().map(|&(k, beside)| r.ratio(k, beside, question.pus)).collect()
        };
        let cells = matrix.iter().filter(|cell| (cell.kernel == cell.beside) == same);
        let known: Vec<f64> = cells.filter_map(|cell| Some(cell.time?.value)).collect();
        over_kernels(&known, repetitions.iter().map(of_repetition))
    };
    let scenarios = Scenarios {
        alone: alone_repeats(&alone, repetitions),
        same: scenario(true),
        different: scenario(false),
    };
    Report {
        version: 1,
        pus: question.pus,
        share_core: question.share_core,
        seconds: question.seconds,
        repeat: question.repeat,
        seed: question.seed,
        scenarios,
        alone,
        matrix,
        quality,
    }
}

/// The geometric mean of the kernels' values; its interval from the repetitions that have a value
/// for every kernel, if there are two.
fn over_kernels(
    known: &[f64],
    repetitions: impl Iterator<Item = Option<Vec<f64>>>,
) -> Option<Estimate> {
    let value = geometric_mean(known)?;
    let complete: Vec<f64> = repetitions.flatten().filter_map(|r| geometric_mean(&r)).collect();
    let interval = geometric_estimate(&complete).and_then(|estimate| estimate.interval);
    Some(Estimate { value, interval })
}

/// Scenario A: each repetition's times alone, relative to their mean over all repetitions.
fn alone_repeats(alone: &[Alone], repetitions: &[Repetition]) -> Option<Estimate> {
    let of_repetition = |r: &Repetition| -> Option<Vec<f64>> {
        let ratio = |a: &Alone| Some(r.alone.get(&(a.kernel, a.pu))? / a.iteration_ns?.value);
        alone.iter().map(ratio).collect()
    };
    let measured = alone.iter().any(|a| a.iteration_ns.is_some());
    let one = measured.then_some(1.0);
    over_kernels(one.as_slice(), repetitions.iter().map(of_repetition))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::pretend::Pretend;
    use smt_bench::Kernel;

    fn question(kernels: &[Workload]) -> Question<'_> {
        Question { pus: [0, 1], share_core: Some(true), kernels, repeat: 5, seconds: 0.1, seed: 1 }
    }

    fn paper() -> Vec<Workload> {
        Kernel::PAPER.map(Workload::from).to_vec()
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
        let report = measure(&mut machine, &question(&kernels), || {}).unwrap();
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
        let report = measure(&mut Pretend::quiet(vec![]), &question(&kernels), || {}).unwrap();
        for cell in &report.matrix {
            assert!((value(cell.time) - 1.0).abs() < 0.02, "{cell:?}");
        }
    }

    #[test]
    fn every_pair_is_measured_once_a_repetition() {
        let kernels = paper();
        let mut ticks = 0;
        let mut machine = Pretend::quiet(vec![]);
        let report = measure(&mut machine, &question(&kernels), || ticks += 1).unwrap();
        // 16 alone and 64 ordered pairs, five times.
        assert_eq!((ticks, measurements(8, 5), report.quality.measured), (400, 400, 400));
        assert_eq!(machine.jobs, 5 * (16 + 2 * 64));
        assert_eq!((report.alone.len(), report.matrix.len()), (16, 64));
        assert_eq!(report.kernels(), kernels);
    }

    #[test]
    fn lost_measurements_leave_gaps_not_zeros() {
        let kernels = paper();
        let mut machine = Pretend { lost_one_in: 1, ..Pretend::quiet(vec![]) };
        let report = measure(&mut machine, &question(&kernels), || {}).unwrap();
        assert!(report.matrix.iter().all(|cell| cell.time.is_none()));
        assert!(report.scenarios.alone.is_none() && report.scenarios.same.is_none());
        let mut machine = Pretend { lost_one_in: 3, ..Pretend::quiet(vec![vec![0, 1]]) };
        let report = measure(&mut machine, &question(&kernels), || {}).unwrap();
        // Most cells are known; no repetition is complete, so the means have no interval.
        assert!((value(report.scenarios.same) - 1.8).abs() < 0.1);
        assert_eq!(report.scenarios.same.unwrap().interval, None);
    }

    #[test]
    fn one_kernel_has_no_other() {
        let kernels = [Kernel::IntMul.into()];
        let report = measure(&mut Pretend::quiet(vec![]), &question(&kernels), || {}).unwrap();
        assert!(report.scenarios.different.is_none() && report.scenarios.same.is_some());
    }

    #[test]
    fn one_repetition_has_no_interval() {
        let kernels = paper();
        let once = Question { repeat: 1, ..question(&kernels) };
        let report = measure(&mut Pretend::quiet(vec![]), &once, || {}).unwrap();
        assert!(report.matrix.iter().all(|cell| cell.time.unwrap().interval.is_none()));
        assert_eq!(report.scenarios.same.unwrap().interval, None);
    }

    #[test]
    fn same_seed_same_report() {
        let kernels = paper();
        let told = || {
            let report = measure(&mut Pretend::quiet(vec![]), &question(&kernels), || {}).unwrap();
            serde_json::to_string(&report).unwrap()
        };
        assert_eq!(told(), told());
    }
}
