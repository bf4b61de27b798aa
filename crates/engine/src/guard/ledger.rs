//! What quanta got done, in the same measure whoever ran, and what it cost that they were not the kernel's.

use colocate_policy::JobIdx;
use colocate_policy::schedule::QuantumOutcome;
use std::collections::BTreeMap;

/// How the progress of jobs is put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Jobs take turns: what all did together, in seconds of CPU time at their own mean speeds.
    #[default]
    Together,
    /// All jobs run all the time, and none is to lose by what another gains: each counts the same, by what it did over what it
    /// does in a second in the mean.
    Each,
}

/// Switches a second of CPU time from which on these are a job's progress, where instructions are not counted. Chosen: programs
/// that compute have some hundred at most, servers some ten thousand (docs/guard.md).
const COMMUNICATES: f64 = 2_000.0;
/// A job that uses less of a PU than this does not count where each counts the same. Chosen: what it does is mostly chance.
const IDLE: f64 = 0.01;

/// What a job did in some quanta.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    /// CPU time, in seconds.
    cpu: f64,
    /// Instructions, if they were counted all the time.
    instructions: Option<f64>,
    /// Voluntary switches, or calls that read and write, if they were known all the time.
    switches: Option<f64>,
}

impl Used {
    const NOTHING: Self = Self { cpu: 0.0, instructions: Some(0.0), switches: Some(0.0) };

    fn add(&mut self, other: &Self) {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        self.cpu += other.cpu;
        self.instructions = sum(self.instructions, other.instructions);
        self.switches = sum(self.switches, other.switches);
    }
}

/// What all jobs did in some quanta of the same kind.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// How long the quanta were together, in seconds.
    pub seconds: f64,
    jobs: BTreeMap<JobIdx, Used>,
}

impl Sample {
    /// One quantum; `None` if it is not known of a job how long it ran.
    #[allow(clippy::cast_precision_loss)] // counts of one quantum are far below 2^53
    pub fn of(done: &QuantumOutcome<'_>) -> Option<Self> {
        let used = |did: &colocate_policy::schedule::JobUsage| {
            let cpu = did.cpu_time?.as_secs_f64();
            let float = |count: Option<u64>| count.map(|count| count as f64);
            let (instructions, switches) = (float(did.instructions), float(did.switches));
            Some((did.job, Used { cpu, instructions, switches }))
        };
        let jobs = done.did.iter().map(used).collect::<Option<_>>()?;
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
        self.jobs.values().all(|used| used.cpu == 0.0 || used.instructions.is_some())
    }

    /// What all jobs got done in a second, in seconds at their own mean speeds.
    pub fn rate(&self, speeds: &Speeds) -> f64 {
        if self.seconds > 0.0 { self.total(speeds) / self.seconds } else { 0.0 }
    }

    /// What each job got done in a second, see [`Measure::Each`]; without those that are idle.
    pub fn rates<'a>(&'a self, speeds: &'a Speeds) -> impl Iterator<Item = (JobIdx, f64)> + 'a {
        let rate = |job: &JobIdx| (*job, self.progress(*job, speeds) / self.seconds);
        self.jobs.keys().filter(|job| !speeds.is_idle(**job)).map(rate)
    }

    fn total(&self, speeds: &Speeds) -> f64 {
        self.jobs.keys().map(|&job| self.progress(job, speeds)).fold(0.0, |sum, each| sum + each)
    }

    /// What one job got done, in seconds.
    fn progress(&self, job: JobIdx, speeds: &Speeds) -> f64 {
        let Some(used) = self.jobs.get(&job) else { return 0.0 };
        match speeds.measure {
            Measure::Together => speeds.at_its_speed(job, used),
            Measure::Each => speeds.at_its_rate(job, used),
        }
    }
}

/// What each job did in all quanta so far, whoever chose.
#[derive(Clone, Debug, Default)]
pub struct Speeds {
    measure: Measure,
    jobs: BTreeMap<JobIdx, Sum>,
}

/// What a job did in all quanta so far.
#[derive(Clone, Debug)]
struct Sum {
    used: Used,
    /// How long they were, in seconds.
    seconds: f64,
    /// Instructions, and the CPU time for which they were counted.
    counted: (f64, f64),
}

impl Speeds {
    /// None yet.
    pub fn new(measure: Measure) -> Self {
        Self { measure, ..Self::default() }
    }

    /// Takes in a quantum.
    pub fn note(&mut self, sample: &Sample) {
        for (&job, used) in &sample.jobs {
            let none = || Sum { used: Used::NOTHING, seconds: 0.0, counted: (0.0, 0.0) };
            let sum = self.jobs.entry(job).or_insert_with(none);
            sum.used.add(used);
            sum.seconds += sample.seconds;
            if let Some(instructions) = used.instructions {
                let (count, time) = sum.counted;
                sum.counted = (count + instructions, time + used.cpu);
            }
        }
    }

    /// Whether a job uses too little of a PU to be compared.
    fn is_idle(&self, job: JobIdx) -> bool {
        self.jobs.get(&job).is_none_or(|sum| sum.used.cpu < IDLE * sum.seconds)
    }

    /// CPU time at its mean speed in instructions, or just its CPU time where these are not counted.
    fn at_its_speed(&self, job: JobIdx, used: &Used) -> f64 {
        let speed = |sum: &Sum| {
            let (instructions, time) = sum.counted;
            (instructions > 0.0 && time > 0.0).then(|| instructions / time)
        };
        let counted = used.instructions.zip(self.jobs.get(&job).and_then(speed));
        counted.map_or(used.cpu, |(instructions, speed)| instructions / speed)
    }

    /// Time in which it does as much in the mean: by instructions, else by switches if it communicates, else by CPU time.
    fn at_its_rate(&self, job: JobIdx, used: &Used) -> f64 {
        let known = self.jobs.get(&job).filter(|_| !self.is_idle(job));
        let Some(Sum { used: sum, seconds, .. }) = known else { return 0.0 };
        let switches = || sum.switches.filter(|count| *count > COMMUNICATES * sum.cpu);
        let (did, all) = if let (Some(did), Some(all)) = (used.instructions, sum.instructions) {
            (did, all)
        } else if let (Some(did), Some(all)) = (used.switches, switches()) {
            (did, all)
        } else {
            (used.cpu, sum.cpu)
        };
        if all > 0.0 { did / all * seconds } else { 0.0 }
    }
}

/// What the scheduler's quanta have cost so far, compared with leaving everything to the kernel.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Seconds that the kernel would have needed less for the same progress; below 0 it would have needed more.
    pub lost: f64,
    /// By job: seconds of its own running that it would be further under the kernel.
    behind: BTreeMap<JobIdx, f64>,
}

impl Ledger {
    /// Takes in a quantum of the scheduler, `os` being what the kernel's are like now. Gains beyond `bank`
    /// seconds are forgotten. Returns the part of the quantum that was lost.
    pub fn note(&mut self, ran: &Sample, os: &Sample, speeds: &Speeds, bank: f64) -> Option<f64> {
        let rate = os.rate(speeds);
        if rate <= 0.0 || ran.seconds <= 0.0 {
            return None;
        }
        let lost = ran.seconds - ran.total(speeds) / rate;
        self.lost = (self.lost + lost).max(-bank);
        for &job in os.jobs.keys() {
            let expected = os.progress(job, speeds) / os.seconds * ran.seconds;
            let behind = self.behind.entry(job).or_default();
            *behind += expected - ran.progress(job, speeds);
            if speeds.measure == Measure::Each {
                *behind = behind.max(-bank);
            }
        }
        Some(lost / ran.seconds)
    }

    /// Forgets jobs that are over.
    pub fn keep(&mut self, jobs: &BTreeMap<JobIdx, f64>) {
        self.behind.retain(|job, _| jobs.contains_key(job));
    }

    /// Seconds by which the job that has lost most is behind where it would be under the kernel; 0 if none is.
    pub fn worst(&self) -> f64 {
        self.behind.values().copied().fold(0.0, f64::max)
    }

    /// Seconds by which the last job would end later than under the kernel, if all had as much left to do as
    /// each other: what is lost, and the tail of the job that is furthest behind the others, which is alone
    /// in the end. `widths` are PUs that a job uses at a time; lags up to `slack` seconds come with sharing PUs quantum by quantum.
    pub fn harm(&self, widths: &BTreeMap<JobIdx, f64>, slack: f64) -> f64 {
        let lag = |(job, behind): (&JobIdx, &f64)| Some((*behind, *widths.get(job)?));
        let known = || self.behind.iter().filter_map(lag);
        let (sum, width) = known().fold((0.0, 0.0), |sum, (b, w)| (sum.0 + b, sum.1 + w));
        let most = known().map(|(behind, width)| behind / width).fold(f64::NEG_INFINITY, f64::max);
        let mean = if width > 0.0 { sum / width } else { 0.0 };
        self.lost + (most - mean - slack).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Nanos;
    use colocate_policy::schedule::JobUsage;

    fn sample(took: u64, did: &[(u32, u64, Option<u64>)]) -> Sample {
        let did: Vec<JobUsage> = did
            .iter()
            .map(|&(job, cpu, instructions)| JobUsage {
                job: JobIdx(job),
                cpu_time: Some(Nanos::from_secs(cpu)),
                instructions,
                switches: None,
            })
            .collect();
        Sample::of(&QuantumOutcome { took: Nanos::from_secs(took), did: &did }).unwrap()
    }

    /// One PU, two jobs, one ten times as fast as the other. The kernel gives each 2 of 4 s; the scheduler 2 s to
    /// job 0 alone, which then does what it did under the kernel in the same CPU time, and 2 s to job 1, which
    /// does half. Speeds: 100 and 30/4 = 7.5. The kernel: (200/100 + 20/7.5)/4 = 7/6 a second. The scheduler:
    /// 200/100 + 10/7.5 = 10/3 in 4 s, for which the kernel needs 20/7 s: 8/7 s are lost.
    #[test]
    fn by_hand() {
        let os = sample(4, &[(0, 2, Some(200)), (1, 2, Some(20))]);
        let ran = sample(4, &[(0, 2, Some(200)), (1, 2, Some(10))]);
        let mut speeds = Speeds::default();
        speeds.note(&os);
        speeds.note(&ran);
        assert!((os.rate(&speeds) - 7.0 / 6.0).abs() < 1e-12);
        let mut ledger = Ledger::default();
        let part = ledger.note(&ran, &os, &speeds, 9.0).unwrap();
        assert!((ledger.lost - 8.0 / 7.0).abs() < 1e-12 && (part - 2.0 / 7.0).abs() < 1e-12);
        // Job 1 is 20/7.5 − 10/7.5 = 4/3 s behind, job 0 none, their mean 2/3.
        let widths = BTreeMap::from([(JobIdx(0), 1.0), (JobIdx(1), 1.0)]);
        assert!((ledger.harm(&widths, 0.5) - (8.0 / 7.0 + 2.0 / 3.0 - 0.5)).abs() < 1e-12);
        assert!((ledger.harm(&widths, 2.0) - 8.0 / 7.0).abs() < 1e-12);
    }

    /// A server, a program that computes and one that is idle, for a second each: by the kernel, and by a policy that takes a
    /// third of the server's requests from it for a tenth more of CPU time for the other. Means: 5,000 requests and 1.05 s of CPU
    /// time. Kernel 6/5 + 1/1.05, policy 4/5 + 1.1/1.05.
    #[test]
    fn each_counts_the_same() {
        let sample = |requests, cpu| {
            let used = |job, cpu, switches| JobUsage {
                job: JobIdx(job),
                cpu_time: Some(Nanos::from_millis(cpu)),
                instructions: None,
                switches: Some(switches),
            };
            let did = [used(0, 500, requests), used(1, cpu, 60), used(2, 1, 1)];
            Sample::of(&QuantumOutcome { took: Nanos::from_secs(1), did: &did }).unwrap()
        };
        let (kernel, policy) = (sample(6000, 1000), sample(4000, 1100));
        let mut speeds = Speeds::new(Measure::Each);
        speeds.note(&kernel);
        speeds.note(&policy);
        let by_kernel = 1.2 + 1.0 / 1.05;
        assert!((kernel.rate(&speeds) - by_kernel).abs() < 1e-12);
        let mut ledger = Ledger::default();
        let lost = ledger.note(&policy, &kernel, &speeds, 9.0).unwrap();
        assert!((lost - (1.0 - (0.8 + 1.1 / 1.05) / by_kernel)).abs() < 1e-12);
        assert!((ledger.worst() - 0.4).abs() < 1e-12, "the server is behind by 2,000 requests");
    }

    /// Each job is a second ahead of where the kernel would have it: none is left behind.
    #[test]
    fn a_job_ahead_is_not_behind() {
        let os = sample(2, &[(0, 1, None), (1, 1, None)]);
        let ran = sample(2, &[(0, 2, None), (1, 2, None)]);
        let mut ledger = Ledger::default();
        ledger.note(&ran, &os, &Speeds::default(), 9.0);
        let widths = BTreeMap::from([(JobIdx(0), 1.0), (JobIdx(1), 1.0)]);
        assert!((ledger.harm(&widths, 0.0) + 2.0).abs() < 1e-12);
        assert!(Ledger::default().harm(&widths, 0.0).abs() < 1e-12);
    }

    #[test]
    fn gains_are_forgotten_beyond_the_bank() {
        let os = sample(1, &[(0, 1, None)]);
        let ran = sample(1, &[(0, 2, None)]);
        let mut ledger = Ledger::default();
        for _ in 0..10 {
            ledger.note(&ran, &os, &Speeds::default(), 2.5);
        }
        assert!((ledger.lost + 2.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_counted_is_time() {
        let mut both = sample(1, &[(0, 1, Some(5)), (1, 1, None)]);
        assert!(!both.is_counted() && sample(1, &[(0, 1, Some(5))]).is_counted());
        both.add(&sample(1, &[(0, 1, None)]));
        let mut speeds = Speeds::default();
        speeds.note(&sample(1, &[(0, 1, Some(5))]));
        assert!((both.rate(&speeds) - 1.5).abs() < 1e-12);
        let unknown =
            [JobUsage { job: JobIdx(0), cpu_time: None, instructions: Some(1), switches: None }];
        assert!(Sample::of(&QuantumOutcome { took: Nanos(1), did: &unknown }).is_none());
    }
}
