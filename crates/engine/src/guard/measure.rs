//! Measures of progress: of all jobs together, or of each job against itself.

use super::compare::Differences;
use super::partners::Partners;
use super::sample::{JobSpeeds, UsageSample};
use colocate_evidence::{JobIdx, WakeUps};
use colocate_machine::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Measure of progress, and of the harm that the policy's quanta have done by it.
pub trait Measure {
    /// Learns from any quantum.
    fn learn(&mut self, sample: &UsageSample);

    /// Charges a quantum to the policy: `kernel` is the kernel's progress of late. Gains beyond `bank` seconds are forgotten.
    /// Returns the part of the quantum that was lost; `None` if there is nothing to compare with.
    fn charge(&mut self, ran: &UsageSample, kernel: &UsageSample, bank: f64) -> Option<f64>;

    /// Seconds lost so far; below 0 they were gained. Lags up to `slack` seconds come with sharing PUs quantum by quantum.
    fn harm(&self, slack: f64) -> f64;

    /// Differences of a pair of samples.
    fn differences(&self, policy: &UsageSample, kernel: &UsageSample) -> Differences;

    /// Words for a job.
    fn names(&self, job: JobIdx) -> String {
        format!("job {}", job.0)
    }
}

/// All jobs together. They share PUs quantum by quantum, and one may gain what another loses.
#[derive(Clone, Debug, Default)]
pub struct AllJobs {
    speeds: JobSpeeds,
    /// Seconds that the kernel would have needed less for the same progress; below 0 it would have needed more.
    lost: f64,
    /// By job: seconds of CPU time that it would have had more under the kernel.
    behind: BTreeMap<JobIdx, f64>,
    /// The jobs, and the PUs that each one uses at a time.
    widths: BTreeMap<JobIdx, f64>,
}

impl AllJobs {
    /// Sets the jobs, and the PUs that each one uses at a time. Returns whether other jobs were set before.
    pub fn set_jobs(&mut self, widths: BTreeMap<JobIdx, f64>) -> bool {
        let is_new = !widths.keys().eq(self.widths.keys());
        self.behind.retain(|job, _| widths.contains_key(job));
        self.widths = widths;
        is_new
    }
}

impl Measure for AllJobs {
    fn learn(&mut self, sample: &UsageSample) {
        self.speeds.note(sample);
    }

    fn charge(&mut self, ran: &UsageSample, kernel: &UsageSample, bank: f64) -> Option<f64> {
        let rate = kernel.rate(&self.speeds);
        if rate <= 0.0 || ran.seconds <= 0.0 {
            return None;
        }
        let lost = ran.seconds - ran.total(&self.speeds) / rate;
        self.lost = (self.lost + lost).max(-bank);
        for (job, by_kernel) in kernel.cpu_times() {
            let expected = by_kernel / kernel.seconds * ran.seconds;
            *self.behind.entry(job).or_default() += expected - ran.cpu_time(job);
        }
        Some(lost / ran.seconds)
    }

    /// Seconds by which the last job would end later than under the kernel, if all had as much left to do as each other: the
    /// loss, and the tail of the job that is furthest behind the others, as it is alone in the end.
    fn harm(&self, slack: f64) -> f64 {
        let mut sum = 0.0;
        let mut width = 0.0;
        let mut most = f64::NEG_INFINITY;
        for (job, behind) in &self.behind {
            // A job that has ended since has no width.
            let Some(own) = self.widths.get(job) else { continue };
            sum += behind;
            width += own;
            most = most.max(behind / own);
        }
        let mean = if width > 0.0 { sum / width } else { 0.0 };
        self.lost + (most - mean - slack).max(0.0)
    }

    fn differences(&self, policy: &UsageSample, kernel: &UsageSample) -> Differences {
        Differences::of_rates(policy.rate(&self.speeds), kernel.rate(&self.speeds))
    }
}

/// Each job against itself, partners as one. All run all the time, and no job is to lose by another one's gain.
#[derive(Clone, Debug, Default)]
pub struct EachJob {
    /// By job: seconds that it has lost.
    behind: BTreeMap<JobIdx, f64>,
    jobs: BTreeSet<JobIdx>,
    partners: Partners,
}

impl EachJob {
    /// Sets the jobs. Returns whether other jobs were set before.
    pub fn set_jobs(&mut self, jobs: BTreeSet<JobIdx>) -> bool {
        self.behind.retain(|job, _| jobs.contains(job));
        let is_new = jobs != self.jobs;
        self.jobs = jobs;
        is_new
    }

    /// Takes in the wake-ups until `at`. Returns whether more jobs are measured as one from now on.
    pub fn note_wake_ups(&mut self, at: Nanos, wake_ups: &[WakeUps]) -> bool {
        let has_joined = self.partners.note(at, wake_ups, |job| self.jobs.contains(&job));
        self.behind.retain(|job, _| self.partners.first(*job) == *job);
        has_joined
    }

    /// Whether all jobs are measured as one.
    pub fn is_one(&self) -> bool {
        let mut jobs = self.jobs.iter().map(|job| self.counted_under(*job));
        let first = jobs.next();
        jobs.all(|job| Some(job) == first)
    }

    /// The job under which the progress of a job is counted.
    pub fn counted_under(&self, job: JobIdx) -> JobIdx {
        self.partners.first(job)
    }
}

impl Measure for EachJob {
    // Each job is compared with itself, so no mean speed is needed.
    fn learn(&mut self, _: &UsageSample) {}

    /// Returns the loss of the job that lost most.
    fn charge(&mut self, ran: &UsageSample, kernel: &UsageSample, bank: f64) -> Option<f64> {
        let mut most = None;
        for (job, did, by_kernel) in ran.each(kernel) {
            let lost = (1.0 - did / by_kernel).clamp(-1.0, 1.0);
            let behind = self.behind.entry(job).or_default();
            *behind = (*behind + lost * ran.seconds).max(-bank);
            most = Some(most.map_or(lost, |most: f64| most.max(lost)));
        }
        most
    }

    /// Seconds by which the job that has lost most is behind its progress under the kernel; 0 if none is.
    fn harm(&self, _: f64) -> f64 {
        self.behind.values().copied().fold(0.0, f64::max)
    }

    fn differences(&self, policy: &UsageSample, kernel: &UsageSample) -> Differences {
        Differences::of_each(policy, kernel)
    }

    fn names(&self, job: JobIdx) -> String {
        self.partners.named(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::sample::tests::{sample, server};

    fn of_two_jobs() -> AllJobs {
        let mut jobs = AllJobs::default();
        assert!(jobs.set_jobs(BTreeMap::from([(JobIdx(0), 1.0), (JobIdx(1), 1.0)])));
        jobs
    }

    /// One PU, two jobs, one ten times as fast as the other. The kernel gives each 2 of 4 s; the scheduler 3 s to
    /// job 0, which is as fast as under the kernel, and 1 s to job 1, which is half as fast. Speeds: 100 and 25/3. The kernel:
    /// (200/100 + 20·3/25)/4 = 1.1 a second. The scheduler: 300/100 + 5·3/25 = 3.6 in 4 s, for which the kernel needs 36/11 s:
    /// 8/11 s are lost.
    #[test]
    fn by_hand() {
        let kernel = sample(4, &[(0, 2, Some(200)), (1, 2, Some(20))]);
        let ran = sample(4, &[(0, 3, Some(300)), (1, 1, Some(5))]);
        let mut jobs = of_two_jobs();
        jobs.learn(&kernel);
        jobs.learn(&ran);
        assert!((kernel.rate(&jobs.speeds) - 1.1).abs() < 1e-12);
        let part = jobs.charge(&ran, &kernel, 9.0).unwrap();
        assert!((jobs.lost - 8.0 / 11.0).abs() < 1e-12 && (part - 2.0 / 11.0).abs() < 1e-12);
        // Of 2 s each, job 1 is 1 s behind and job 0 ahead: their mean is 0.
        assert!((jobs.harm(0.5) - (8.0 / 11.0 + 0.5)).abs() < 1e-12);
        assert!((jobs.harm(2.0) - 8.0 / 11.0).abs() < 1e-12);
    }

    #[test]
    fn each_is_held_against_itself() {
        let kernel = server(6000, 1000);
        let policy = server(4000, 1100);
        let mut jobs = EachJob::default();
        let lost = jobs.charge(&policy, &kernel, 9.0).unwrap();
        assert!((lost - 1.0 / 3.0).abs() < 1e-12 && (jobs.harm(0.0) - 1.0 / 3.0).abs() < 1e-12);
        jobs.charge(&server(9000, 1000), &kernel, 9.0);
        assert!(jobs.harm(0.0) < 1e-12, "it has caught up");
        let nothing = sample(1, &[]);
        assert_eq!(jobs.charge(&nothing, &kernel, 9.0), Some(1.0), "they have done nothing");
    }

    /// Each job is a second ahead of where the kernel would have it: none is left behind.
    #[test]
    fn a_job_ahead_is_not_behind() {
        let kernel = sample(2, &[(0, 1, None), (1, 1, None)]);
        let ran = sample(2, &[(0, 2, None), (1, 2, None)]);
        let mut jobs = of_two_jobs();
        jobs.charge(&ran, &kernel, 9.0);
        assert!((jobs.harm(0.0) + 2.0).abs() < 1e-12);
        assert!(of_two_jobs().harm(0.0).abs() < 1e-12);
    }

    #[test]
    fn gains_are_forgotten_beyond_the_bank() {
        let kernel = sample(1, &[(0, 1, None)]);
        let ran = sample(1, &[(0, 2, None)]);
        let mut jobs = AllJobs::default();
        for _ in 0..10 {
            jobs.charge(&ran, &kernel, 2.5);
        }
        assert!((jobs.lost + 2.5).abs() < 1e-12);
    }

    #[test]
    fn other_jobs_are_noticed() {
        let mut jobs = of_two_jobs();
        assert!(!jobs.set_jobs(BTreeMap::from([(JobIdx(0), 2.0), (JobIdx(1), 1.0)])));
        let mut each = EachJob::default();
        assert!(each.set_jobs(BTreeSet::from([JobIdx(0)])));
        assert!(!each.set_jobs(BTreeSet::from([JobIdx(0)])));
    }
}
