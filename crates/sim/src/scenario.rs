//! Scenarios: programs, the work of their threads, and the kernel's settings.

use crate::error::{ScenarioError, refuse};
use crate::kernel::KernelScheduler;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, NodeIdx, PuNr};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Class, Mix, Phase, Share};
use serde::{Deserialize, Serialize};

/// A workload and the rules of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name for display.
    pub name: String,
    /// Seed of all random choices; the same seed gives the same run.
    pub seed: u64,
    /// Phases of all threads; at most 65536.
    pub phases: Vec<PhaseSpec>,
    /// Jobs; their places are their `JobIdx`.
    pub jobs: Vec<JobSpec>,
    /// Treatment of a job that has done its work.
    pub method: Method,
    /// Time between two decisions of a periodic policy. Never 0.
    pub quantum: Nanos,
    /// Changes of phase less than this apart are taken together: a thread stays in its old phase
    /// until then, and has as much less to do in the new phase. 0 is exact, and slow where many
    /// threads change phases often.
    pub grain: Nanos,
    /// Time of the simulation's end, when remaining jobs are killed. Never 0.
    pub horizon: Nanos,
    /// Allowed PUs of the jobs; `None` for all online PUs.
    pub usable: Option<Vec<PuNr>>,
    /// Hotplug events. At least one PU is always online.
    pub events: Vec<PuEvent>,
    /// Settings of the simulated kernel.
    pub kernel: KernelScheduler,
}

/// Most phases of a scenario: their numbers have 16 bits in the keys of `crate::rates`.
const MOST_PHASES: usize = 1 << 16;

/// A place in `Scenario::phases`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhaseIdx(pub u32);

/// A phase as known to the model, with its mix as seen by policies.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseSpec {
    /// Demand of an instruction.
    pub phase: Phase,
    /// Instruction mix, as in a profile for a policy. [`PhaseSpec::of`] takes the mix from the
    /// phase's work, if known by kind.
    pub mix: Mix,
}

/// A program with its threads.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Name for display.
    pub name: String,
    /// Time of the launch.
    pub arrives: Nanos,
    /// Threads in the order of their creation and of `TaskId`. Never empty.
    pub threads: Vec<ThreadSpec>,
    /// Barrier of the threads; `None` for independent threads.
    pub barrier: Option<Barrier>,
    /// Memory of several threads, beside each thread's own.
    pub memory: Vec<MemorySpec>,
}

/// Evenly used memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySpec {
    /// Its size.
    pub bytes: Bytes,
    /// Placement at the first use.
    pub pages: Pages,
    /// Number of parts; each moves as a whole. Never 0.
    pub groups: u32,
    /// Uses by threads.
    pub users: Vec<MemoryUse>,
}

/// Use of a job's memory by a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// The thread, by its place in the job.
    pub thread: usize,
    /// Share of the thread's accesses; over all memory of a stretch at most 1.
    pub share: f64,
    /// Share of writes among the accesses.
    pub writes: f64,
    /// Stretch of the thread's course; `None` for all.
    pub during: Option<usize>,
    /// Move of the memory to the thread's node before use.
    pub fetch: Fetch,
}

/// Move of memory by a thread to its node before use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// None.
    #[default]
    No,
    /// A move, at the cost of the thread's time.
    Move,
    /// A move; the thread then stays on its node until its end. The thread goes to another node
    /// first if as many threads stay on its own as the node has PUs.
    MoveAndStay,
}

/// How the threads of a job wait for each other, as OpenMP's do. The threads' courses say when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// State of a waiting thread.
    pub wait: BarrierWait,
    /// Work of a single thread after all have arrived, before all continue; `None` for none.
    pub serial: Option<Serial>,
}

impl Barrier {
    /// Whether threads take turns in place of a barrier.
    #[must_use]
    pub const fn takes_turns(&self) -> bool {
        matches!(self.wait, BarrierWait::Turns(_) | BarrierWait::Served)
    }
}

/// State of a thread waiting at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierWait {
    /// Asleep: its PU is free.
    Sleep,
    /// Spinning: a polling loop with this phase's demands, without progress.
    Spin(PhaseIdx),
    /// Turns in place of a barrier: a thread wakes the job's next thread and sleeps until its own
    /// next turn. This many turns exist at a time, dealt to the threads in a row. Never 0.
    Turns(u32),
    /// Turns with a server: each thread but the first wakes the first after its part, and sleeps
    /// until the first has done a part for it. The first sleeps while no thread waits for it.
    Served,
}

/// Work of a single thread with all others waiting, on top of the threads' own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial {
    /// Phase of the work.
    pub phase: PhaseIdx,
    /// Instructions at each barrier. Never 0.
    pub instructions: u64,
}

/// A PU going offline or coming back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuEvent {
    /// Time of the event.
    pub at: Nanos,
    /// The PU.
    pub pu: PuNr,
    /// Whether the PU comes online.
    pub online: bool,
}

/// A thread: its creation, work and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSpec {
    /// Name for display.
    pub name: String,
    /// Time of its creation, after the launch of its job.
    pub born: Nanos,
    /// Stretches, again and again until its work is done. Never empty.
    pub course: Vec<PhaseSegment>,
    /// Amount of work.
    pub work: TotalWork,
    /// Placement of its own memory.
    pub pages: Pages,
    /// Size of its own memory; matters only with NUMA balancing.
    pub resident: Bytes,
}

/// A phase with its length and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSegment {
    /// The phase.
    pub phase: PhaseIdx,
    /// Instructions. Never 0.
    pub instructions: u64,
    /// Sleep at its end.
    pub sleep: Nanos,
    /// Whether the thread waits at its end for the job's other threads. Not together with `sleep`.
    pub barrier: bool,
}

/// Work of a thread in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalWork {
    /// Its course, once.
    Once,
    /// This many instructions. Never 0.
    Instructions(u64),
    /// The instructions of this time alone on the machine, on a core of the fastest kind with
    /// memory near: Feliu's method for jobs of equal length.
    AloneFor(Nanos),
}

/// Placement of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// On the node of the PU where its thread first runs: each thread touches its memory first.
    #[default]
    FirstTouch,
    /// On the node where the job's first thread first ran: the first thread set up all memory.
    FirstThread,
    /// Evenly on all nodes with memory.
    Interleaved,
    /// On a given node.
    On(NodeIdx),
}

/// Treatment of a job that has done its work.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The job leaves, and more room is left: the last jobs are alone for a while.
    #[default]
    Leave,
    /// The job begins anew at once, until every job has done its work once; only the first time
    /// counts. All jobs have the same load from start to end.
    Restart,
}

impl PhaseSpec {
    /// A phase with the mix of its work; unknown classes if the work is not known by kind.
    #[must_use]
    pub fn of(phase: Phase) -> Self {
        let mix = mix_of(&phase.work);
        Self { phase, mix }
    }
}

/// Shares of the instruction classes; unknown if work is not known by kind.
fn mix_of(work: &Known<PortWork>) -> Mix {
    let mut mix = Mix::default();
    let kinds = match work.get() {
        Some(PortWork::Kinds(kinds)) => kinds,
        Some(PortWork::Classes(mix)) => return *mix,
        _ => return mix,
    };
    for each in Class::ALL {
        let of_class = kinds.iter().filter(|(kind, _)| class_of(*kind) == each);
        // An instruction can have several micro-operations of a class, so the sum can exceed 1.
        mix.set(each, Share::new(of_class.fold(0.0, |sum, (_, n)| sum + n).min(1.0)));
    }
    mix
}

const fn class_of(kind: WorkKind) -> Class {
    match kind {
        WorkKind::Branch => Class::Branch,
        WorkKind::Int | WorkKind::IntMul | WorkKind::IntDiv => Class::Int,
        WorkKind::FloatAdd | WorkKind::FloatMul | WorkKind::FloatDiv => Class::Float,
        WorkKind::Load => Class::Load,
        WorkKind::Store => Class::Store,
    }
}

impl Scenario {
    /// Checks the scenario against `machine`.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first violation.
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        if self.jobs.is_empty() {
            return refuse("scenario", "at least one job", "none");
        }
        if self.quantum == Nanos::ZERO || self.horizon == Nanos::ZERO {
            return refuse("scenario", "a quantum and a horizon above 0", "0");
        }
        if self.phases.len() > MOST_PHASES {
            let found = self.phases.len().to_string();
            return refuse("scenario", "at most 65536 phases", &found);
        }
        for &pu in self.usable.iter().flatten() {
            if machine.pu_by_os(pu).is_none() {
                return refuse("scenario", "usable PUs that are online", &pu.to_string());
            }
        }
        if self.usable.as_ref().is_some_and(Vec::is_empty) {
            return refuse("scenario", "a usable PU", "none");
        }
        for (j, job) in self.jobs.iter().enumerate() {
            if job.threads.is_empty() {
                return refuse(&format!("job {j}"), "at least one thread", "none");
            }
            for (t, thread) in job.threads.iter().enumerate() {
                self.check_thread(machine, thread, &format!("job {j}, thread {t}"))?;
            }
            self.check_barrier(job, &format!("job {j}"))?;
            for (m, memory) in job.memory.iter().enumerate() {
                check_memory(machine, job, memory, &format!("job {j}, memory {m}"))?;
            }
        }
        self.check_events(machine)?;
        self.kernel.check()
    }

    /// Whether jobs may use a PU, if online.
    pub(crate) fn may_use(&self, pu: PuNr) -> bool {
        self.usable.as_ref().is_none_or(|usable| usable.contains(&pu))
    }

    fn check_barrier(&self, job: &JobSpec, place: &str) -> Result<(), ScenarioError> {
        let stretches = job.threads.iter().flat_map(|thread| &thread.course);
        let at_barrier: Vec<_> = stretches.filter(|stretch| stretch.barrier).collect();
        let Some(barrier) = job.barrier else {
            return if at_barrier.is_empty() {
                Ok(())
            } else {
                refuse(place, "a barrier where threads wait at one", "none")
            };
        };
        if at_barrier.is_empty() {
            return refuse(place, "a thread that comes to the barrier", "none");
        }
        if at_barrier.iter().any(|stretch| stretch.sleep > Nanos::ZERO) {
            return refuse(place, "sleep or a barrier after a phase", "both");
        }
        let spins = match barrier.wait {
            BarrierWait::Spin(phase) => Some(phase),
            BarrierWait::Sleep | BarrierWait::Turns(_) | BarrierWait::Served => None,
        };
        if barrier.wait == BarrierWait::Turns(0) {
            return refuse(place, "at least one turn at a time", "0");
        }
        if barrier.takes_turns() && barrier.serial.is_some() {
            return refuse(place, "turns or a serial part", "both");
        }
        for phase in spins.into_iter().chain(barrier.serial.map(|serial| serial.phase)) {
            if phase.0 as usize >= self.phases.len() {
                return refuse(place, "a phase of the scenario", &format!("phase {}", phase.0));
            }
        }
        if barrier.serial.is_some_and(|serial| serial.instructions == 0) {
            return refuse(place, "at least one instruction of a serial part", "0");
        }
        Ok(())
    }

    /// Checks that online PUs go offline, offline PUs come back, and at least one PU stays online.
    fn check_events(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let pus = machine.pus.iter().map(|pu| pu.os);
        let mut online: Vec<PuNr> = pus.filter(|os| self.may_use(*os)).collect();
        let known = online.clone();
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.at);
        for event in &events {
            let place = format!("event of {} at {}", event.pu, event.at);
            if !known.contains(&event.pu) {
                return refuse(&place, "a PU that the jobs may use", "another one");
            }
            match (event.online, online.iter().position(|&pu| pu == event.pu)) {
                (false, Some(at)) => drop(online.remove(at)),
                (true, None) => online.push(event.pu),
                (false, None) => return refuse(&place, "a PU that is online", "one that is not"),
                (true, Some(_)) => {
                    return refuse(&place, "a PU that is offline", "one that is not");
                }
            }
            if online.is_empty() {
                return refuse(&place, "a PU that is left", "none");
            }
        }
        Ok(())
    }

    fn check_thread(
        &self,
        machine: &Machine,
        thread: &ThreadSpec,
        place: &str,
    ) -> Result<(), ScenarioError> {
        if thread.course.is_empty() {
            return refuse(place, "a course of at least one phase", "none");
        }
        for stretch in &thread.course {
            if stretch.phase.0 as usize >= self.phases.len() {
                let found = format!("phase {}", stretch.phase.0);
                return refuse(place, "a phase of the scenario", &found);
            }
            if stretch.instructions == 0 {
                return refuse(place, "at least one instruction a phase", "0");
            }
        }
        match (thread.work, thread.pages) {
            (TotalWork::Instructions(0) | TotalWork::AloneFor(Nanos::ZERO), _) => {
                refuse(place, "some work", "0")
            }
            // A machine that reports no node counts as one node.
            (_, Pages::On(node)) if node.idx() >= machine.nodes.len().max(1) => {
                refuse(place, "memory on a node of the machine", &node.to_string())
            }
            _ => Ok(()),
        }
    }
}

fn check_memory(
    machine: &Machine,
    job: &JobSpec,
    memory: &MemorySpec,
    place: &str,
) -> Result<(), ScenarioError> {
    if memory.groups == 0 {
        return refuse(place, "at least one part", "0");
    }
    if let Pages::On(node) = memory.pages
        && node.idx() >= machine.nodes.len().max(1)
    {
        return refuse(place, "memory on a node of the machine", &node.to_string());
    }
    for one in &memory.users {
        let Some(thread) = job.threads.get(one.thread) else {
            return refuse(place, "threads of the job", &format!("thread {}", one.thread));
        };
        if one.during.is_some_and(|during| during >= thread.course.len()) {
            return refuse(place, "stretches of the thread's course", "a later one");
        }
        let stretches = 0..thread.course.len();
        let mut sums = stretches.map(|at| {
            job.memory
                .iter()
                .flat_map(|all| &all.users)
                .filter(|of| of.thread == one.thread && of.during.is_none_or(|during| during == at))
                .map(|of| of.share)
                .sum::<f64>()
        });
        // Sums of decimal shares are not exact.
        if !is_share(one.share) || !is_share(one.writes) || sums.any(|sum| sum > 1.0 + 1e-9) {
            return refuse(place, "shares of 0 to 1 that sum to 1 at most", "others");
        }
    }
    Ok(())
}

fn is_share(share: f64) -> bool {
    (0.0..=1.0).contains(&share)
}
