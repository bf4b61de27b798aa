//! Samples: progress of jobs in some quanta, in the same units under the policy and under the kernel.

use colocate_evidence::JobIdx;
use colocate_policy::schedule::{JobUsage, QuantumOutcome};
use std::collections::BTreeMap;

/// Switches a second of CPU time from which on these are a job's progress, where instructions are not counted. Chosen: programs
/// that compute have some hundred at most, servers some ten thousand (docs/reference/guard.md).
const COMMUNICATES: f64 = 2_000.0;
/// A job that uses less of a PU than this is not compared with itself. Chosen: its progress is mostly chance.
const IDLE: f64 = 0.01;

/// Usage of one job in some quanta.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    /// CPU time, in seconds.
    cpu: f64,
    /// Instructions, if they were counted all the time.
    instructions: Option<f64>,
    /// Voluntary switches, or calls that read and write, if they were known all the time.
    switches: Option<f64>,
}

impl Used {
    // Known to be nothing, so that a sum with an unknown count is unknown.
    const NOTHING: Self = Self { cpu: 0.0, instructions: Some(0.0), switches: Some(0.0) };

    /// Usage in one quantum; `None` if the CPU time is unknown.
    fn of(usage: &JobUsage) -> Option<Self> {
        Some(Self {
            cpu: usage.cpu_time?.as_secs_f64(),
            instructions: usage.instructions.map(float),
            switches: usage.switches.map(float),
        })
    }

    fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.instructions = sum(self.instructions, other.instructions);
        self.switches = sum(self.switches, other.switches);
    }
}

const fn float(count: u64) -> f64 {
    count as f64
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

/// Usage of all jobs in some quanta of the same kind.
#[derive(Clone, Debug, Default)]
pub struct UsageSample {
    /// Length of all the quanta together, in seconds.
    pub seconds: f64,
    jobs: BTreeMap<JobIdx, Used>,
}

impl UsageSample {
    /// One quantum. The usage of each job is counted under the job that `first` gives for it. `None` if the CPU time of a job is
    /// unknown.
    pub fn of(done: &QuantumOutcome<'_>, first: impl Fn(JobIdx) -> JobIdx) -> Option<Self> {
        let mut jobs: BTreeMap<JobIdx, Used> = BTreeMap::new();
        for did in done.did {
            jobs.entry(first(did.job)).or_insert(Used::NOTHING).add(&Used::of(did)?);
        }
        Some(Self { seconds: done.took.as_secs_f64(), jobs })
    }

    /// Adds other quanta.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        for (&job, used) in &other.jobs {
            self.jobs.entry(job).or_insert(Used::NOTHING).add(used);
        }
    }

    /// Whether instructions of every job that ran were counted.
    pub fn is_counted(&self) -> bool {
        // A job that did not run has nothing to count.
        self.jobs.values().all(|used| used.cpu == 0.0 || used.instructions.is_some())
    }

    /// Jobs with their CPU times, in seconds.
    pub fn cpu_times(&self) -> impl Iterator<Item = (JobIdx, f64)> + '_ {
        self.jobs.iter().map(|(&job, used)| (job, used.cpu))
    }

    /// CPU time of a job, in seconds.
    pub fn cpu_time(&self, job: JobIdx) -> f64 {
        self.jobs.get(&job).map_or(0.0, |used| used.cpu)
    }

    /// Progress of all jobs, in seconds at their own mean speeds.
    pub fn total(&self, speeds: &JobSpeeds) -> f64 {
        self.jobs
            .iter()
            .map(|(&job, used)| speeds.progress(job, used))
            .fold(0.0, |sum, each| sum + each)
    }

    /// Progress of all jobs in a second.
    pub fn rate(&self, speeds: &JobSpeeds) -> f64 {
        if self.seconds > 0.0 { self.total(speeds) / self.seconds } else { 0.0 }
    }

    /// Progress of each job in a second, in these quanta and in the kernel's, in the same unit: instructions where they are
    /// counted, else switches of a job that communicates, else CPU time. Without jobs that are idle under the kernel.
    pub fn each<'a>(&'a self, kernel: &'a Self) -> impl Iterator<Item = (JobIdx, f64, f64)> + 'a {
        let busy = kernel.jobs.iter().filter(|(_, used)| used.cpu > IDLE * kernel.seconds);
        busy.map(|(&job, theirs)| {
            // A job that only waits under the policy makes no progress there.
            let ours = self.jobs.get(&job).unwrap_or(&Used::NOTHING);
            let (did, by_kernel) = in_one_unit(ours, theirs);
            (job, did / self.seconds, by_kernel / kernel.seconds)
        })
    }
}

/// Progress of one job under the policy and under the kernel, in one unit.
fn in_one_unit(policy: &Used, kernel: &Used) -> (f64, f64) {
    let instructions = policy.instructions.zip(kernel.instructions);
    let switches = policy.switches.zip(kernel.switches);
    // The kernel's quanta alone decide, so that the unit does not depend on the policy.
    let switches = switches.filter(|(_, count)| *count > COMMUNICATES * kernel.cpu);
    instructions.or(switches).unwrap_or((policy.cpu, kernel.cpu))
}

/// Instructions of a job while they were counted, and the CPU time of these quanta in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct CountedInstructions {
    instructions: f64,
    cpu: f64,
}

/// Mean speed of each job in all quanta so far, the policy's and the kernel's, in instructions per second of CPU time.
#[derive(Clone, Debug, Default)]
pub struct JobSpeeds(BTreeMap<JobIdx, CountedInstructions>);

impl JobSpeeds {
    /// Takes in a quantum.
    pub fn note(&mut self, sample: &UsageSample) {
        for (&job, used) in &sample.jobs {
            let Some(instructions) = used.instructions else { continue };
            let counted = self.0.entry(job).or_default();
            counted.instructions += instructions;
            counted.cpu += used.cpu;
        }
    }

    fn of(&self, job: JobIdx) -> Option<f64> {
        let &CountedInstructions { instructions, cpu } = self.0.get(&job)?;
        (instructions > 0.0 && cpu > 0.0).then(|| instructions / cpu)
    }

    /// Progress of one job: instructions over its mean speed, or CPU time where they are not counted.
    fn progress(&self, job: JobIdx, used: &Used) -> f64 {
        let counted = used.instructions.zip(self.of(job));
        counted.map_or(used.cpu, |(instructions, speed)| instructions / speed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use colocate_machine::Nanos;

    fn of(took: u64, did: &[JobUsage]) -> Option<UsageSample> {
        let took = Nanos::from_secs(took);
        UsageSample::of(&QuantumOutcome { throttled: false, took, did }, |job| job)
    }

    /// Jobs with CPU times in seconds and instructions.
    pub(crate) fn sample(took: u64, did: &[(u32, u64, Option<u64>)]) -> UsageSample {
        let did: Vec<JobUsage> = did
            .iter()
            .map(|&(job, cpu, instructions)| JobUsage {
                job: JobIdx(job),
                cpu_time: Some(Nanos::from_secs(cpu)),
                instructions,
                switches: None,
            })
            .collect();
        of(took, &did).unwrap()
    }

    /// A server, a program that computes and one that is idle, for a second each.
    pub(crate) fn server(requests: u64, cpu: u64) -> UsageSample {
        let used = |job, cpu, switches| JobUsage {
            job: JobIdx(job),
            cpu_time: Some(Nanos::from_millis(cpu)),
            instructions: None,
            switches: Some(switches),
        };
        of(1, &[used(0, 500, requests), used(1, cpu, 60), used(2, 1, 1)]).unwrap()
    }

    /// The kernel, and a policy that takes a third of the server's requests from it for a tenth more of CPU time for the other
    /// program.
    #[test]
    fn each_in_one_unit() {
        let policy = server(4000, 1100);
        let kernel = server(6000, 1000);
        let each: Vec<_> = policy.each(&kernel).collect();
        assert_eq!(each, [(JobIdx(0), 4000.0, 6000.0), (JobIdx(1), 1.1, 1.0)]);
    }

    #[test]
    fn what_is_not_counted_is_time() {
        let mut both = sample(1, &[(0, 1, Some(5)), (1, 1, None)]);
        assert!(!both.is_counted() && sample(1, &[(0, 1, Some(5))]).is_counted());
        both.add(&sample(1, &[(0, 1, None)]));
        let mut speeds = JobSpeeds::default();
        speeds.note(&sample(1, &[(0, 1, Some(5))]));
        assert!((both.rate(&speeds) - 1.5).abs() < 1e-12);
        let unknown =
            [JobUsage { job: JobIdx(0), cpu_time: None, instructions: Some(1), switches: None }];
        assert!(of(1, &unknown).is_none());
    }
}
