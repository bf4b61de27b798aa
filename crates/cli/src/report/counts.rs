//! Counts of a workload that runs in quanta: jobs that ran, their PUs, co-runners and rates.

#[cfg(feature = "schema")]
use crate::timeline::PhaseSummary;
use crate::timeline::{Mean, Timeline};
use colocate_engine::Round;
use colocate_engine::rates::{Estimated, ThreadRates};
use colocate_evidence::{JobIdx, TaskSpan};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};
use colocate_model::stack::{MOST_PARTS, StackParts};
use colocate_policy::PlaceReason;
use colocate_policy::schedule::{Allocated, LEVELS, Selected};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// Most spans kept for a picture. Chosen: 32 MiB, two PUs for a day at 200 ms.
const MOST_SPANS: usize = 1_000_000;

/// Counts of a workload up to now.
pub struct WorkloadCounts {
    /// The machine as it was at the launch.
    pub machine: Machine,
    /// Counts of each job.
    pub jobs: Vec<JobCounts>,
    /// Quanta so far.
    pub quanta: u64,
    /// End of the last quantum, on the host's clock.
    pub at: Nanos,
    /// State of the policy in the last quantum.
    pub state: Option<String>,
    /// Quanta with two jobs on a common core, by pair: the smaller job first, or a job twice.
    pub shared: BTreeMap<(usize, usize), u64>,
    /// Spans of tasks on PUs, if kept for a picture.
    spans: Option<Vec<TaskSpan>>,
}

/// Counts of a job, as shown and as written to the report.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Default, Serialize)]
pub struct JobCounts {
    /// Name as shown.
    #[serde(skip)]
    pub name: String,
    /// Quanta for which the job was chosen.
    pub quanta: u64,
    /// Quanta in which the job had to wait.
    pub waited: u64,
    /// CPU time used while it had to wait; `None` if waiting jobs are stopped.
    #[serde(rename = "filled_ns")]
    pub filled: Option<Nanos>,
    /// Mean rates over all its quanta.
    pub rates: MeanRates,
    /// Serial, parallel and sleeping phases.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PhaseSummary<'static>>"))]
    pub phases: Timeline,
    /// Reasons of its last choice; `None` if it never ran.
    pub last_choice: Option<SelectionReason>,
    /// State now.
    #[serde(skip)]
    pub state: JobState,
    /// CPU time; `None` if the host never reported any.
    #[serde(skip)]
    pub cpu_time: Option<Nanos>,
    /// PUs where its threads were last seen, in the order of the threads.
    #[serde(skip)]
    pub places: Vec<PuNr>,
    /// Progress, in quanta of running alone, where the policy reports it.
    #[serde(skip)]
    pub progress: Option<f64>,
    /// Mean rates in the last of its quanta.
    #[serde(skip)]
    pub now: MeanRates,
}

/// Why a job ran in a quantum.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Serialize)]
pub struct SelectionReason {
    /// Reason of its selection over other jobs.
    pub selected: Selected,
    /// Places of its threads.
    pub places: Vec<PlannedPlace>,
}

/// Planned place of a thread, with the reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Serialize)]
pub struct PlannedPlace {
    /// Its number among the threads of its job.
    pub thread: u32,
    /// The PU; `None` if the kernel chose.
    pub pu: Option<PuNr>,
    /// Reason of the allocation.
    pub allocated: Allocated,
}

/// State of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// Chosen for the last quantum.
    Running,
    /// Not chosen for the last quantum.
    #[default]
    Waiting,
    /// Ended.
    Ended,
}

/// Mean rates of a job's threads, weighted by running time.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeanRates {
    /// Instructions per cycle.
    pub ipc: Mean,
    /// Requests to the caches of each level from 1, in a microsecond of CPU time.
    #[serde(rename = "caches_per_us")]
    pub caches: [Mean; LEVELS],
    /// Requests to memory in a microsecond of CPU time.
    #[serde(rename = "memory_per_us")]
    pub memory: Mean,
    /// Where the cycles went.
    #[serde(flatten)]
    pub cycles: Cycles,
    /// Rates that the model estimated.
    #[serde(serialize_with = "names")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>", extend("items" = { "enum": ["ipc", "traffic", "cycles"] })))]
    pub estimated_of: Estimated,
}

fn names<S: Serializer>(of: &Estimated, to: S) -> Result<S::Ok, S::Error> {
    let all = [("ipc", of.ipc), ("traffic", of.traffic), ("cycles", of.stack)];
    to.collect_seq(all.iter().filter(|(_, estimated)| *estimated).map(|(name, _)| name))
}

/// Parts of the cycle stack: means over time of each part's share.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(into = "CycleShares")]
pub struct Cycles {
    parts: StackParts,
    sums: [f64; MOST_PARTS],
    off: f64,
    estimated: bool,
}

/// Serialized form of a cycle stack.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct CycleShares {
    /// Share of the cycles by part (docs/reference/pmu.md); the shares sum to 1. `None` if unknown.
    cycles: Option<BTreeMap<&'static str, f64>>,
    /// Largest share by which the parts missed the cycles before scaling; 0 without scaling.
    cycles_off: Option<f64>,
}

impl From<Cycles> for CycleShares {
    fn from(of: Cycles) -> Self {
        Self { cycles: of.most().map(|_| of.shares().into_iter().collect()), cycles_off: of.off() }
    }
}

impl Cycles {
    fn add(&mut self, did: &ThreadRates, seconds: f64) {
        let Some(stack) = &did.ran.stack else { return };
        let estimated = did.estimated.stack;
        if self.parts != did.ran.parts {
            // A host has one kind of parts and the model another. Of threads of both kinds, counted
            // threads win.
            if !self.parts.is_empty() && (estimated || !self.estimated) {
                return;
            }
            *self = Self { parts: did.ran.parts, ..Self::default() };
        }
        self.estimated |= estimated;
        // Shares are weighted by time, so the sums are over seconds.
        self.sums.iter_mut().zip(stack).for_each(|(sum, share)| *sum += share * seconds);
        self.off = self.off.max(did.off);
    }

    /// Share of each part; empty if no cycles are known.
    pub fn shares(&self) -> Vec<(&'static str, f64)> {
        let all: f64 = self.sums.iter().sum();
        let known = self.parts.iter().filter(|_| all > 0.0);
        known.zip(self.sums).map(|(part, sum)| (*part, sum / all)).collect()
    }

    /// The largest part and its share; `None` if no cycles are known.
    pub fn most(&self) -> Option<(&'static str, f64)> {
        self.shares().into_iter().reduce(|most, one| if one.1 > most.1 { one } else { most })
    }

    /// Largest deviation of the parts' sum from all cycles, as a share; `None` if none are known.
    pub fn off(&self) -> Option<f64> {
        self.most().map(|_| self.off)
    }
}

impl MeanRates {
    fn add(&mut self, did: &ThreadRates) {
        // Without a time, nothing can be weighted, and no rate over time is known.
        let seconds = did.time.map_or(0.0, Nanos::as_secs_f64);
        self.ipc.add(did.ran.ipc, seconds);
        for (mean, requests) in self.caches.iter_mut().zip(did.ran.traffic.caches) {
            mean.add(requests, seconds);
        }
        self.memory.add(did.ran.traffic.memory, seconds);
        self.cycles.add(did, seconds);
        self.estimated_of = Estimated {
            ipc: self.estimated_of.ipc || did.estimated.ipc,
            traffic: self.estimated_of.traffic || did.estimated.traffic,
            stack: self.cycles.estimated,
        };
    }
}

impl WorkloadCounts {
    /// Counts of a workload before its first quantum. `fills`: waiting jobs fill idle PUs; `spans`:
    /// keep the spans for a picture, which costs memory.
    pub fn new(machine: Machine, names: &[String], fills: bool, spans: bool) -> Self {
        let jobs = names.iter().map(|name| JobCounts {
            name: name.clone(),
            filled: fills.then_some(Nanos::ZERO),
            phases: Timeline::one_of(names.len()),
            ..JobCounts::default()
        });
        Self {
            machine,
            jobs: jobs.collect(),
            quanta: 0,
            at: Nanos::ZERO,
            state: None,
            shared: BTreeMap::new(),
            spans: spans.then(Vec::new),
        }
    }

    /// PUs that each job uses alone: the mean number of runnable threads, at least 1; 1 if unknown.
    pub fn widths(&self) -> Vec<f64> {
        // `clamp` needs an upper end of at least 1.
        let pus = self.machine.pus.len().max(1) as f64;
        let runnable = self.jobs.iter().map(|job| job.phases.runnable.get().unwrap_or(1.0));
        runnable.map(|count| count.clamp(1.0, pus)).collect()
    }

    /// Spans of tasks on PUs; empty if they were not kept.
    pub fn spans(&self) -> &[TaskSpan] {
        self.spans.as_deref().unwrap_or_default()
    }

    /// Whether later spans were dropped for [`MOST_SPANS`].
    pub fn is_cut(&self) -> bool {
        self.spans().len() >= MOST_SPANS
    }

    /// Counts a quantum.
    pub fn count(&mut self, round: &Round<'_>) {
        self.quanta += 1;
        self.choose(round);
        for did in round.did {
            if let Some(job) = self.jobs.get_mut(did.id.job.0 as usize) {
                job.ran(did);
            }
        }
        self.follow(round);
        self.share(round.did);
        self.draw(round.did, round.seen.at);
        self.at = round.seen.at;
        self.state.clone_from(&round.plan.state);
    }

    /// Updates the state of each job: chosen, waiting or ended.
    fn choose(&mut self, round: &Round<'_>) {
        let selected = round.plan.selected();
        let ended = round.seen.over();
        let used: BTreeMap<JobIdx, Nanos> =
            round.all.iter().filter_map(|did| Some((did.job, did.cpu_time?))).collect();
        for (number, job) in (0..).map(JobIdx).zip(&mut self.jobs) {
            let ran = round.ran.contains(&number);
            match job.state {
                _ if ran => job.chosen(selected.get(&number).copied()),
                JobState::Ended => {}
                JobState::Running | JobState::Waiting => job.waited(used.get(&number).copied()),
            }
            job.state = match ran {
                _ if ended.contains(&number) => JobState::Ended,
                true => JobState::Running,
                false => JobState::Waiting,
            };
        }
        // The plan names PUs as the kernel does, so the numbers hold when CPUs go offline or come
        // online.
        for decision in &round.plan.decisions {
            let job = self.jobs.get_mut(decision.task.job.0 as usize);
            let choice = job.and_then(|job| job.last_choice.as_mut());
            if let (Some(choice), PlaceReason::Chosen { allocated, .. }) = (choice, &decision.why) {
                choice.places.push(PlannedPlace {
                    thread: decision.task.order,
                    pu: decision.place.pu(),
                    allocated: allocated.clone(),
                });
            }
        }
    }

    /// Updates the phases of the jobs that ran.
    fn follow(&mut self, round: &Round<'_>) {
        for number in round.ran {
            if let Some(job) = self.jobs.get_mut(number.0 as usize) {
                let runnable = round.runnable.get(number).copied();
                job.phases.ran(self.at, round.seen.at, runnable);
            }
        }
    }

    /// Counts pairs of jobs that shared a core.
    fn share(&mut self, did: &[ThreadRates]) {
        // Jobs, not threads: one job may have a thousand threads on a PU.
        let mut by_pu: BTreeMap<PuIdx, BTreeSet<usize>> = BTreeMap::new();
        for did in did {
            if let Some(pu) = did.pu.and_then(|pu| self.machine.pu_by_os(pu)) {
                by_pu.entry(pu).or_default().insert(did.id.job.0 as usize);
            }
        }
        let mut by_core: BTreeMap<_, Vec<&BTreeSet<usize>>> = BTreeMap::new();
        for (pu, jobs) in &by_pu {
            by_core.entry(self.machine.core_of(*pu)).or_default().push(jobs);
        }
        let mut pairs = BTreeSet::new();
        for on_core in by_core.values() {
            for (place, jobs) in on_core.iter().enumerate() {
                // Jobs that alternate on one PU do not share the core at the same time.
                for beside in on_core[place + 1..].iter().copied().flatten() {
                    pairs.extend(jobs.iter().map(|job| (*job.min(beside), *job.max(beside))));
                }
            }
        }
        for pair in pairs {
            *self.shared.entry(pair).or_insert(0) += 1;
        }
    }

    /// Keeps the spans of a quantum. The order of several threads on a PU is unknown: their spans
    /// follow each other, each as long as the thread ran.
    fn draw(&mut self, did: &[ThreadRates], until: Nanos) {
        let Some(spans) = &mut self.spans else { return };
        let mut taken: BTreeMap<PuIdx, Nanos> = BTreeMap::new();
        for did in did {
            let Some(pu) = did.pu.and_then(|pu| self.machine.pu_by_os(pu)) else { continue };
            let from = *taken.get(&pu).unwrap_or(&self.at);
            // Clocks of threads may add up to more than the quantum.
            let to = did.time.map_or(until, |time| (from + time).min(until));
            taken.insert(pu, to);
            if spans.len() < MOST_SPANS && to > from {
                spans.push(TaskSpan { task: did.id, pu, from, to });
            }
        }
    }
}

impl JobCounts {
    fn chosen(&mut self, selected: Option<&Selected>) {
        self.quanta += 1;
        if let Some(Selected::LeastProgress { progress }) = selected {
            self.progress = Some(*progress);
        }
        let selected = selected.cloned();
        self.last_choice =
            selected.map(|selected| SelectionReason { selected, places: Vec::new() });
        self.places.clear();
        self.now = MeanRates::default();
    }

    /// Counts a quantum in which the job had to wait; `used` is the CPU time used all the same.
    fn waited(&mut self, used: Option<Nanos>) {
        self.waited += 1;
        if let Some(used) = used.filter(|used| *used > Nanos::ZERO) {
            self.filled = self.filled.map(|filled| filled + used);
            self.cpu_time = Some(self.cpu_time.unwrap_or(Nanos::ZERO) + used);
        }
    }

    fn ran(&mut self, did: &ThreadRates) {
        let sum = did.time.map(|time| self.cpu_time.unwrap_or(Nanos::ZERO) + time);
        self.cpu_time = sum.or(self.cpu_time);
        self.places.extend(did.pu.filter(|pu| !self.places.contains(pu)));
        self.rates.add(did);
        self.now.add(did);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use colocate_evidence::{JobEnd, Observation, QuantumEnd, TaskId};
    use colocate_machine::read;
    use colocate_policy::schedule::{JobUsage, Rates, Traffic};
    use colocate_policy::{Decision, Place, Plan};

    const PARTS: &[&str] = &["frontend", "backend"];
    const NONE: Estimated = Estimated { ipc: false, traffic: false, stack: false };
    const ALL: Estimated = Estimated { ipc: true, traffic: true, stack: true };
    const BALANCED: Allocated = Allocated::Balanced { level: 2 };

    /// Job, PU and milliseconds of a thread that ran, with so many instructions per cycle.
    pub type Ran1 = (u32, u32, u64, Option<f64>);

    fn did(&(job, pu, ms, ipc): &Ran1) -> ThreadRates {
        let traffic = Traffic { memory: ipc.map(|ipc| ipc * 10.0), ..Traffic::default() };
        ThreadRates {
            id: TaskId { job: JobIdx(job), order: 0 },
            pu: Some(PuNr(pu)),
            time: Some(Nanos::from_millis(ms)),
            ran: Rates {
                ipc,
                traffic,
                stack: ipc.map(|ipc| vec![ipc / 2.0, 1.0 - ipc / 2.0]),
                parts: if ipc.is_some() { PARTS } else { &[] },
            },
            off: 0.02,
            estimated: if job == 1 { ALL } else { NONE },
        }
    }

    /// How many threads of each job were runnable: as many as instructions were done in five cycles, for something
    /// that differs, where that is known.
    fn runnable(ran: &[Ran1]) -> BTreeMap<JobIdx, f64> {
        let known = ran.iter().filter_map(|(job, _, _, ipc)| Some((JobIdx(*job), 5.0 * (*ipc)?)));
        known.collect()
    }

    /// Three jobs on two cores of two PUs. In each quantum of 100 ms `ran` is chosen and runs; jobs `over` have
    /// ended at its end.
    pub fn counts(quanta: &[(&[Ran1], &[u32])]) -> WorkloadCounts {
        let machine = read::open("synthetic:core:2 pu:2").unwrap();
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut counts = WorkloadCounts::new(machine.clone(), &names, true, true);
        for (number, (ran, over)) in (0..).zip(quanta) {
            let at = Nanos::from_millis(100 * (number + 1));
            let end = |job: &u32| JobEnd { job: JobIdx(*job), at, status: 0, cpu_time: None };
            let seen = Observation {
                at,
                end: QuantumEnd::Elapsed,
                tasks: Vec::new(),
                ended: over.iter().map(end).collect(),
                moved: vec![],
                reports: colocate_evidence::SourceReports::NONE,
            };
            let decision = |ran: &Ran1| Decision {
                task: TaskId { job: JobIdx(ran.0), order: 0 },
                name: "".into(),
                place: Place::Pu(PuNr(ran.1)),
                why: PlaceReason::Chosen {
                    selected: Selected::LeastProgress { progress: f64::from(ran.0) + 0.5 },
                    allocated: BALANCED,
                },
            };
            let plan = Plan {
                decisions: ran.iter().map(decision).collect(),
                state: Some("the scheduler's line".into()),
                ..Plan::default()
            };
            let did: Vec<ThreadRates> = ran.iter().map(did).collect();
            // The third job uses 5 ms of each quantum, chosen or not.
            let cpu_time = Some(Nanos::from_millis(5));
            let filler = JobUsage { job: JobIdx(2), cpu_time, instructions: None, switches: None };
            let jobs = ran.iter().map(|ran| JobIdx(ran.0)).collect();
            counts.count(&Round {
                grants: &[],
                number,
                cause: None,
                began: Nanos::ZERO,
                ran: &jobs,
                plan: &plan,
                seen: &seen,
                did: &did,
                all: &[filler],
                runnable: &runnable(ran),
            });
        }
        counts
    }

    /// `a` and `b` share a core twice, `a` and `c` are on different ones, `b` and `c` on one PU.
    #[test]
    fn jobs_that_shared_a_core() {
        let found = counts(&[
            (&[(0, 0, 100, None), (1, 1, 100, None), (2, 2, 100, None)], &[]),
            (&[(0, 3, 100, None), (1, 2, 100, None)], &[]),
            (&[(1, 2, 50, None), (2, 2, 50, None)], &[]),
        ]);
        let shared: Vec<_> = found.shared.into_iter().collect();
        assert_eq!(shared, [((0, 1), 2)]);
    }

    /// Two jobs with a thread each on both PUs of a core, then two that take turns on a PU beside a third.
    #[test]
    fn threads_of_a_job_count_once() {
        let found = counts(&[
            (&[(0, 0, 50, None), (0, 1, 50, None), (1, 0, 50, None), (1, 1, 50, None)], &[]),
            (&[(0, 2, 50, None), (1, 2, 50, None), (2, 3, 50, None), (2, 3, 50, None)], &[]),
        ]);
        let shared: Vec<_> = found.shared.into_iter().collect();
        assert_eq!(shared, [((0, 0), 1), ((0, 1), 1), ((0, 2), 1), ((1, 1), 1), ((1, 2), 1)]);
    }

    /// A thousand threads of a job on a core, in each of a thousand quanta: as pairs of threads they would be 250 million.
    #[test]
    fn many_threads_of_a_job_cost_little() {
        let mut found = counts(&[]);
        let of = |thread: u32| did(&(0, thread % 2, 1, None));
        let threads: Vec<ThreadRates> = (0..1_000).map(of).collect();
        for _ in 0..1_000 {
            found.share(&threads);
        }
        assert_eq!(found.shared.into_iter().collect::<Vec<_>>(), [((0, 0), 1_000)]);
    }

    /// 0.1 s of one runnable thread and 0.1 s of three; of the second job nothing is known, and of the third, that more
    /// run than there are PUs.
    #[test]
    fn as_wide_as_threads_were_runnable() {
        let found = counts(&[
            (&[(0, 0, 100, Some(0.2)), (1, 1, 100, None), (2, 2, 100, Some(1.6))], &[]),
            (&[(0, 0, 100, Some(0.6)), (1, 1, 100, None)], &[]),
        ]);
        let widths = found.widths();
        assert!((widths[0] - 2.0).abs() < 1e-9, "{widths:?}");
        assert_eq!(widths[1..], [1.0, 4.0]);
    }

    /// IPC and traffic are counted, the stack is the model's word.
    #[test]
    fn each_rate_has_its_origin() {
        let mut rates = MeanRates::default();
        let counted = did(&(0, 0, 100, Some(1.0)));
        rates.add(&ThreadRates { estimated: Estimated { stack: true, ..NONE }, ..counted.clone() });
        assert_eq!(rates.estimated_of, Estimated { stack: true, ..NONE });
        rates.add(&counted);
        assert_eq!(rates.estimated_of, Estimated { stack: true, ..NONE }, "some of it still is");
    }

    /// Threads of one job, some counted and some estimated, by other parts: those that were counted stay, whichever
    /// come first.
    #[test]
    fn counted_parts_stay() {
        let counted = did(&(0, 0, 100, Some(1.25)));
        let said = ThreadRates {
            ran: Rates {
                stack: Some(vec![0.2, 0.3, 0.5]),
                parts: &["x", "y", "z"],
                ..Rates::default()
            },
            estimated: Estimated { stack: true, ..NONE },
            ..counted.clone()
        };
        for order in [[&counted, &said, &counted], [&said, &counted, &said]] {
            let mut rates = MeanRates::default();
            order.into_iter().for_each(|did| rates.add(did));
            let (part, share) = rates.cycles.most().unwrap();
            assert!(part == "frontend" && (share - 0.625).abs() < 1e-12);
            assert_eq!(rates.estimated_of, NONE);
        }
        let mut rates = MeanRates::default();
        rates.add(&said);
        let (part, share) = rates.cycles.most().unwrap();
        assert!(part == "z" && (share - 0.5).abs() < 1e-12 && rates.estimated_of.stack);
    }

    #[test]
    fn turns_on_a_pu_are_drawn_one_after_the_other() {
        let found = counts(&[
            (&[(0, 0, 100, None)], &[]),
            (&[(1, 2, 30, None), (2, 2, 60, None), (0, 2, 60, None)], &[]),
        ]);
        let ms = |time: Nanos| time.0 / 1_000_000;
        let drawn: Vec<_> =
            found.spans().iter().map(|s| (s.task.job.0, s.pu.0, ms(s.from), ms(s.to))).collect();
        // No PU runs for longer than the quantum.
        assert_eq!(drawn, [(0, 0, 0, 100), (1, 2, 100, 130), (2, 2, 130, 190), (0, 2, 190, 200)]);
    }

    #[test]
    fn means_are_weighted_by_time() {
        let found = counts(&[
            (&[(0, 0, 100, Some(1.0)), (1, 1, 10, None)], &[]),
            (&[(0, 2, 50, Some(0.4))], &[1]),
            (&[(2, 2, 50, None)], &[1]),
        ]);
        let [a, b, c] = &found.jobs[..] else { panic!("three jobs") };
        assert!((a.rates.ipc.get().unwrap() - 0.8).abs() < 1e-12);
        assert!((a.now.memory.get().unwrap() - 4.0).abs() < 1e-12);
        assert_eq!((a.quanta, a.waited, a.state), (2, 1, JobState::Waiting));
        assert_eq!((b.quanta, b.waited, b.state), (1, 1, JobState::Ended));
        assert_eq!((c.quanta, c.waited, c.state), (1, 2, JobState::Running));
        assert_eq!([a.filled, c.filled], [0, 10].map(|ms| Some(Nanos::from_millis(ms))));
        assert_eq!(
            (b.rates.ipc.get(), b.rates.estimated_of.ipc, a.rates.estimated_of),
            (None, true, NONE)
        );
        assert_eq!(a.cpu_time, Some(Nanos::from_millis(150)));
        let (part, share) = a.rates.cycles.most().unwrap();
        assert!(part == "backend" && (share - 0.6).abs() < 1e-12);
        assert_eq!((a.rates.cycles.off(), b.rates.cycles.off()), (Some(0.02), None));
        assert!(b.rates.cycles.shares().is_empty());
        assert_eq!((a.progress, &a.places[..]), (Some(0.5), &[PuNr(2)][..]));
        assert_eq!((found.quanta, found.at), (3, Nanos::from_millis(300)));
    }
}
