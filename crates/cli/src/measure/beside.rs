//! Speed of workloads beside each other, each on its own PU: the measurement of scenarios and of
//! the search for siblings.

use super::harness::{Measurement, SHARED_WITH_OTHERS};
use anyhow::Context;
use smt_bench::measure::{CHUNK, PinnedKernel, together};
use smt_bench::overlap::{ThreadSpeed, paces};
use std::time::Duration;

/// Result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSample {
    /// Nanoseconds an iteration of each job while all jobs ran, in the order of the jobs. `None` if
    /// other load left too little common time.
    pub iteration_ns: Option<Vec<f64>>,
    /// Smallest share of its PU that any job's thread had, in 0 ..= 1.
    pub share_of_pu: f64,
}

/// A machine for workloads beside each other.
pub trait KernelBench: Measurement<Cell = Vec<PinnedKernel>, Sample = KernelSample> {}

impl<M: Measurement<Cell = Vec<PinnedKernel>, Sample = KernelSample>> KernelBench for M {}

/// This machine as a bench.
pub struct LocalBench {
    length: Duration,
    patience: &'static [u32],
}

impl LocalBench {
    /// Measures for `length`; where disturbed, again for `length` times each factor of `patience`.
    pub fn new(length: Duration, patience: &'static [u32]) -> Self {
        Self { length, patience }
    }
}

/// Undisturbed chunks of a valid measurement: enough for a median that a few outliers do not move.
/// Chosen. A short measurement needs only half of its length.
const ENOUGH_CHUNKS: u32 = 20;

impl Measurement for LocalBench {
    type Cell = Vec<PinnedKernel>;
    type Sample = KernelSample;
    const UNIT: &'static str = "measurements";

    fn measure(&mut self, jobs: &Vec<PinnedKernel>) -> anyhow::Result<Option<KernelSample>> {
        let enough = (CHUNK * ENOUGH_CHUNKS).min(self.length / 2);
        let mut sample = KernelSample { iteration_ns: None, share_of_pu: 1.0 };
        for factor in std::iter::once(1).chain(self.patience.iter().copied()) {
            let trails = together(jobs, self.length * factor).context("cannot measure")?;
            // Over all tries: the load also shows in those that are too short.
            let shares = trails.iter().filter_map(|trail| trail.share_of_pu());
            sample.share_of_pu = shares.fold(sample.share_of_pu, f64::min);
            sample.iteration_ns = long_enough(&paces(&trails), enough);
            if sample.iteration_ns.is_some() {
                break;
            }
        }
        Ok(Some(sample))
    }
}

fn long_enough(paces: &[Option<ThreadSpeed>], least: Duration) -> Option<Vec<f64>> {
    let times = paces.iter().map(|pace| {
        let ThreadSpeed { together_ns, iteration_ns, .. } = pace.as_ref()?;
        (u128::from(*together_ns) >= least.as_nanos()).then_some(*iteration_ns)
    });
    times.collect()
}

/// Usable share of the measurements.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Quality {
    /// Measurements taken.
    pub measured: u32,
    /// Measurements without enough undisturbed time.
    pub discarded: u32,
    /// Smallest share of its PU that a thread had in any measurement, in 0 ..= 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub least_share_of_pu: f64,
}

impl Default for Quality {
    fn default() -> Self {
        Self { measured: 0, discarded: 0, least_share_of_pu: 1.0 }
    }
}

impl Quality {
    /// Counts `sample`.
    pub fn note(&mut self, sample: &KernelSample) {
        self.measured += 1;
        self.discarded += u32::from(sample.iteration_ns.is_none());
        self.least_share_of_pu = self.least_share_of_pu.min(sample.share_of_pu);
    }

    /// A line of text if a measurement was discarded or a thread had to share its PU; else empty.
    pub fn remark(&self) -> String {
        let share = self.least_share_of_pu * 100.0;
        match self.discarded {
            0 if self.least_share_of_pu >= SHARED_WITH_OTHERS => String::new(),
            0 => format!(
                "other load took part of the PUs (down to {share:.0} % were left); only undisturbed \
                 times were compared\n"
            ),
            discarded => format!(
                "{discarded} of {} measurements discarded: other load took the PUs (down to \
                 {share:.0} % were left)\n",
                self.measured
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smt_bench::Kernel;
    use smt_bench::thread::usable;

    #[test]
    fn this_machine_answers_for_every_job() {
        let cpu = usable().unwrap()[0];
        let jobs = vec![PinnedKernel { workload: Kernel::IntMul.into(), cpu }];
        let mut here = LocalBench::new(Duration::from_millis(2), &[4, 16]);
        let sample = here.measure(&jobs).unwrap().unwrap();
        assert!((0.0..=1.0).contains(&sample.share_of_pu));
        // On a machine without a free PU there is no answer, and that is one.
        if let Some(times) = sample.iteration_ns {
            assert!(times.len() == 1 && times[0] > 0.0, "{times:?}");
        }
    }

    #[test]
    fn one_job_with_too_little_time_spoils_the_sample() {
        let pace = |together_ns| Some(ThreadSpeed { iteration_ns: 3.0, together_ns });
        let least = Duration::from_nanos(100);
        assert_eq!(long_enough(&[pace(100), pace(200)], least), Some(vec![3.0, 3.0]));
        assert_eq!(long_enough(&[pace(100), pace(99)], least), None);
        assert_eq!(long_enough(&[pace(100), None], least), None);
    }

    #[test]
    fn remarks_say_what_was_lost() {
        let mut quality = Quality::default();
        let good = KernelSample { iteration_ns: Some(vec![1.0]), share_of_pu: 0.99 };
        quality.note(&good);
        assert_eq!(quality.remark(), "");
        quality.note(&KernelSample { share_of_pu: 0.5, ..good });
        assert!(quality.remark().contains("down to 50 % were left"));
        quality.note(&KernelSample { iteration_ns: None, share_of_pu: 0.4 });
        assert!(quality.remark().starts_with("1 of 3 measurements discarded: "));
    }
}
