//! A pretended machine: which PUs share execution units, how noisy it is, and how busy.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use super::beside::KernelSample;
use super::harness::Measurement;
use colocate_model::rng::SplitMix64;
use smt_bench::Kernel;
use smt_bench::measure::PinnedKernel;

/// A machine that does not exist.
pub struct Pretend {
    /// PUs that share all execution units.
    pub cores: Vec<Vec<u32>>,
    /// PUs of different cores that share the floating-point units, as in AMD's Bulldozer modules.
    pub modules: Vec<Vec<u32>>,
    /// How much a loaded unit slows each of two that share it: 2 if it is saturated.
    pub saturated: f64,
    /// Every figure is wrong by a factor from 1 / (1 + noise) to 1 + noise.
    pub noise: f64,
    /// How much slower the clock is when all of 64 PUs work.
    pub turbo: f64,
    /// One measurement in so many has no undisturbed time; 0 for none.
    pub lost_one_in: usize,
    /// Where chance comes from.
    pub random: SplitMix64,
    /// Jobs that ran, over all measurements.
    pub jobs: usize,
}

impl Pretend {
    /// A quiet machine with these cores.
    pub fn quiet(cores: Vec<Vec<u32>>) -> Self {
        Self {
            cores,
            modules: Vec::new(),
            saturated: 1.95,
            noise: 0.01,
            turbo: 1.0,
            lost_one_in: 0,
            random: SplitMix64::new(42),
            jobs: 0,
        }
    }

    fn factor(&mut self) -> f64 {
        let unit = f64::from(u32::try_from(self.random.below(20_001)).unwrap()) / 10_000.0 - 1.0;
        (1.0 + self.noise).powf(unit)
    }

    fn slowdown(&self, job: PinnedKernel, other: PinnedKernel) -> f64 {
        let both_in = |sets: &[Vec<u32>]| {
            sets.iter().any(|set| set.contains(&job.cpu) && set.contains(&other.cpu))
        };
        let float = matches!(job.workload.kernel, Kernel::FpAdd | Kernel::FpMul | Kernel::FpDiv);
        let shares = both_in(&self.cores) || float && both_in(&self.modules);
        match (shares, job.workload == other.workload) {
            (true, true) if job.workload.kernel != Kernel::LoadDep => self.saturated,
            (true, _) => 1.03,
            (false, _) => 1.0,
        }
    }
}

impl Measurement for Pretend {
    type Cell = Vec<PinnedKernel>;
    type Sample = KernelSample;
    const UNIT: &'static str = "measurements";

    fn measure(&mut self, jobs: &Vec<PinnedKernel>) -> anyhow::Result<Option<KernelSample>> {
        self.jobs += jobs.len();
        if self.lost_one_in > 0 && self.random.below(self.lost_one_in) == 0 {
            return Ok(Some(KernelSample { iteration_ns: None, share_of_pu: 0.4 }));
        }
        let crowd = f64::from(u32::try_from(jobs.len()).unwrap()) / 64.0;
        let clock = self.turbo.powf(crowd);
        let times = jobs.iter().map(|&job| {
            let others = jobs.iter().filter(|other| other.cpu != job.cpu);
            let shared: f64 = others.map(|&other| self.slowdown(job, other)).product();
            10.0 * shared * clock
        });
        let exact: Vec<f64> = times.collect();
        let noisy = exact.into_iter().map(|time| time * self.factor()).collect();
        Ok(Some(KernelSample { iteration_ns: Some(noisy), share_of_pu: 1.0 }))
    }
}
