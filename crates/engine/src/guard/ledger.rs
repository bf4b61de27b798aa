//! What quanta got done, in the same measure whoever ran, and what it cost that they were not the kernel's.

use colocate_evidence::JobIdx;
use colocate_policy::schedule::QuantumOutcome;
use std::collections::BTreeMap;

/// Switches a second of CPU time from which on these are a job's progress, where instructions are not counted. Chosen: programs
/// that compute have some hundred at most, servers some ten thousand (docs/results/guard.md).
const COMMUNICATES: f64 = 2_000.0;
/// A job that uses less of a PU than this is not compared with itself. Chosen: what it does is mostly chance.
const IDLE: f64 = 0.01;

/// What a job did in some quanta.
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
    /// One quantum, in which what a job did is counted under the one that `first` gives for it; `None` if it is not known of a
    /// job how long it ran.
    #[allow(clippy::cast_precision_loss)] // counts of one quantum are far below 2^53
    pub fn of(done: &QuantumOutcome<'_>, first: impl Fn(JobIdx) -> JobIdx) -> Option<Self> {
        let mut jobs: BTreeMap<JobIdx, Used> = BTreeMap::new();
        for did in done.did {
            let cpu = did.cpu_time?.as_secs_f64();
            let float = |count: Option<u64>| count.map(|count| count as f64);
            let (instructions, switches) = (float(did.instructions), float(did.switches));
            let used = Used { cpu, instructions, switches };
            jobs.entry(first(did.job)).or_insert(Used::NOTHING).add(&used);
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
        self.jobs.values().all(|used| used.cpu == 0.0 || used.instructions.is_some())
    }

    /// What all jobs got done in a second, in seconds at their own mean speeds.
    pub fn rate(&self, speeds: &Speeds) -> f64 {
        if self.seconds > 0.0 { self.total(speeds) / self.seconds } else { 0.0 }
    }

    /// What each job did in a second, in these quanta and in the kernel's, in the same unit: instructions where they are counted,
    /// else switches of one that communicates, else CPU time. Without jobs that are idle under the kernel.
    pub fn each<'a>(&'a self, os: &'a Self) -> impl Iterator<Item = (JobIdx, f64, f64)> + 'a {
        let is_busy = |used: &Used| used.cpu > IDLE * os.seconds;
        let busy = os.jobs.iter().filter(move |(_, used)| is_busy(used));
        busy.map(|(&job, theirs)| {
            let ours = self.jobs.get(&job).copied().unwrap_or(Used::NOTHING);
            let instructions = ours.instructions.zip(theirs.instructions);
            let switches = ours.switches.zip(theirs.switches);
            let switches = switches.filter(|(_, count)| *count > COMMUNICATES * theirs.cpu);
            let (did, by_kernel) = instructions.or(switches).unwrap_or((ours.cpu, theirs.cpu));
            (job, did / self.seconds, by_kernel / os.seconds)
        })
    }

    fn total(&self, speeds: &Speeds) -> f64 {
        self.jobs.keys().map(|&job| self.progress(job, speeds)).fold(0.0, |sum, each| sum + each)
    }

    /// What one job got done: instructions over its mean speed, or just its CPU time where they are not
    /// counted.
    fn progress(&self, job: JobIdx, speeds: &Speeds) -> f64 {
        let Some(used) = self.jobs.get(&job) else { return 0.0 };
        let counted = used.instructions.zip(speeds.of(job));
        counted.map_or(used.cpu, |(instructions, speed)| instructions / speed)
    }
}

/// How fast each job was on average in all quanta so far, whoever chose, in instructions per second of CPU
/// time.
#[derive(Clone, Debug, Default)]
pub struct Speeds(BTreeMap<JobIdx, (f64, f64)>);

impl Speeds {
    /// Takes in a quantum.
    pub fn note(&mut self, sample: &Sample) {
        for (&job, used) in &sample.jobs {
            if let Some(instructions) = used.instructions {
                let (sum, time) = self.0.entry(job).or_default();
                (*sum, *time) = (*sum + instructions, *time + used.cpu);
            }
        }
    }

    fn of(&self, job: JobIdx) -> Option<f64> {
        let &(instructions, time) = self.0.get(&job)?;
        (instructions > 0.0 && time > 0.0).then(|| instructions / time)
    }
}

/// What the scheduler's quanta have cost so far, compared with leaving everything to the kernel.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Seconds that the kernel would have needed less for the same progress; below 0 it would have needed more.
    pub lost: f64,
    /// By job: seconds of CPU time that it would have had more under the kernel. Where each job is held against itself, seconds
    /// that it has lost.
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
        for (&job, used) in &os.jobs {
            let expected = used.cpu / os.seconds * ran.seconds;
            let cpu = ran.jobs.get(&job).map_or(0.0, |used| used.cpu);
            *self.behind.entry(job).or_default() += expected - cpu;
        }
        Some(lost / ran.seconds)
    }

    /// The same where all jobs run all the time, and none is to lose by what another gains: each is held against itself. Returns
    /// the part of the quantum that the one lost which lost most.
    pub fn note_each(&mut self, ran: &Sample, os: &Sample, bank: f64) -> Option<f64> {
        let mut most = None;
        for (job, did, by_kernel) in ran.each(os) {
            let lost = (1.0 - did / by_kernel).clamp(-1.0, 1.0);
            let behind = self.behind.entry(job).or_default();
            *behind = (*behind + lost * ran.seconds).max(-bank);
            most = Some(most.map_or(lost, |most: f64| most.max(lost)));
        }
        most
    }

    /// Seconds by which the job that has lost most is behind where it would be under the kernel; 0 if none is.
    pub fn worst(&self) -> f64 {
        self.behind.values().copied().fold(0.0, f64::max)
    }

    /// Forgets all jobs but these.
    pub fn keep(&mut self, is_kept: impl Fn(JobIdx) -> bool) {
        self.behind.retain(|job, _| is_kept(*job));
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
        Sample::of(
            &QuantumOutcome { throttled: false, took: Nanos::from_secs(took), did: &did },
            |job| job,
        )
        .unwrap()
    }

    /// One PU, two jobs, one ten times as fast as the other. The kernel gives each 2 of 4 s; the scheduler 3 s to
    /// job 0, which is as fast as under the kernel, and 1 s to job 1, which is half as fast. Speeds: 100 and 25/3. The kernel:
    /// (200/100 + 20·3/25)/4 = 1.1 a second. The scheduler: 300/100 + 5·3/25 = 3.6 in 4 s, for which the kernel needs 36/11 s:
    /// 8/11 s are lost.
    #[test]
    fn by_hand() {
        let os = sample(4, &[(0, 2, Some(200)), (1, 2, Some(20))]);
        let ran = sample(4, &[(0, 3, Some(300)), (1, 1, Some(5))]);
        let mut speeds = Speeds::default();
        speeds.note(&os);
        speeds.note(&ran);
        assert!((os.rate(&speeds) - 1.1).abs() < 1e-12);
        let mut ledger = Ledger::default();
        let part = ledger.note(&ran, &os, &speeds, 9.0).unwrap();
        assert!((ledger.lost - 8.0 / 11.0).abs() < 1e-12 && (part - 2.0 / 11.0).abs() < 1e-12);
        // Of 2 s each, job 1 is 1 s behind and job 0 ahead: their mean is 0.
        let widths = BTreeMap::from([(JobIdx(0), 1.0), (JobIdx(1), 1.0)]);
        assert!((ledger.harm(&widths, 0.5) - (8.0 / 11.0 + 0.5)).abs() < 1e-12);
        assert!((ledger.harm(&widths, 2.0) - 8.0 / 11.0).abs() < 1e-12);
    }

    /// A server, a program that computes and one that is idle, for a second each: by the kernel, and by a policy that takes a
    /// third of the server's requests from it for a tenth more of CPU time for the other.
    #[test]
    fn each_is_held_against_itself() {
        let sample = |requests, cpu| {
            let used = |job, cpu, switches| JobUsage {
                job: JobIdx(job),
                cpu_time: Some(Nanos::from_millis(cpu)),
                instructions: None,
                switches: Some(switches),
            };
            let did = [used(0, 500, requests), used(1, cpu, 60), used(2, 1, 1)];
            Sample::of(
                &QuantumOutcome { throttled: false, took: Nanos::from_secs(1), did: &did },
                |job| job,
            )
            .unwrap()
        };
        let (kernel, mut policy) = (sample(6000, 1000), sample(4000, 1100));
        let each: Vec<_> = policy.each(&kernel).collect();
        assert_eq!(each, [(JobIdx(0), 4000.0, 6000.0), (JobIdx(1), 1.1, 1.0)]);
        let mut ledger = Ledger::default();
        let lost = ledger.note_each(&policy, &kernel, 9.0).unwrap();
        assert!((lost - 1.0 / 3.0).abs() < 1e-12 && (ledger.worst() - 1.0 / 3.0).abs() < 1e-12);
        ledger.note_each(&sample(9000, 1000), &kernel, 9.0);
        assert!(ledger.worst() < 1e-12, "it has caught up");
        policy.jobs.clear();
        assert_eq!(ledger.note_each(&policy, &kernel, 9.0), Some(1.0), "they have done nothing");
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
        assert!(
            Sample::of(
                &QuantumOutcome { throttled: false, took: Nanos(1), did: &unknown },
                |job| job
            )
            .is_none()
        );
    }
}
