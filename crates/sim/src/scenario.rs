//! What is to be simulated: programs, what their threads do, and how the kernel treats them.

use crate::error::{ScenarioError, error};
use crate::kernel::Kernel;
use colocate_machine::{Bytes, Machine, Nanos, NodeIdx, PuNr};
use colocate_model::phase::{Known, Work as PortWork};
use colocate_model::{Class, Mix, Phase, Share};
use serde::{Deserialize, Serialize};

/// A workload, and the rules of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// For display.
    pub name: String,
    /// Decides whatever a real machine would leave to chance; the same seed gives the same run.
    pub seed: u64,
    /// What the threads can be doing; at most 65536 phases.
    pub phases: Vec<PhaseSpec>,
    /// The jobs; their places are their `JobIdx`.
    pub jobs: Vec<JobSpec>,
    /// What becomes of a job that has done its work.
    pub method: Method,
    /// Time between two decisions of a policy that decides again and again. Never 0.
    pub quantum: Nanos,
    /// Changes of phase less than this apart are taken together: a thread goes on with its old phase
    /// until then, and has as much less to do of the new one. 0 is exact, and slow where many threads
    /// change phases often.
    pub grain: Nanos,
    /// When the simulation is given up, and jobs that have not ended are killed. Never 0.
    pub horizon: Nanos,
    /// PUs that the jobs may use, or `None` for all that are online.
    pub usable: Option<Vec<PuNr>>,
    /// PUs that go offline, and come back. At least one is always left.
    pub events: Vec<PuEvent>,
    /// The kernel that runs what no policy places.
    pub kernel: Kernel,
}

/// The most phases of a scenario: their numbers have 16 bits where rates are kept.
const MOST_PHASES: usize = 1 << 16;

/// A place in `Scenario::phases`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhaseIdx(pub u32);

/// A phase, as the model sees it and as policies do.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseSpec {
    /// What an instruction of it demands.
    pub phase: Phase,
    /// Its instruction mix as a profile would show it to a policy. [`PhaseSpec::of`] takes it from the
    /// phase's work, where that is known by kind.
    pub mix: Mix,
}

/// A program with its threads.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// For display.
    pub name: String,
    /// When it is launched.
    pub arrives: Nanos,
    /// Its threads in the order of their creation, which is their order in `TaskId`. Never empty.
    pub threads: Vec<ThreadSpec>,
    /// How its threads wait for each other; `None` if they do not.
    pub barrier: Option<Barrier>,
    /// Memory that its threads share, or use one after the other, beside what each has for itself.
    pub memory: Vec<MemorySpec>,
}

/// Memory whose parts are all used alike.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySpec {
    /// Its size.
    pub bytes: Bytes,
    /// Where it comes to be when a thread uses it first.
    pub pages: Pages,
    /// Into how many parts it is divided, each of which moves as one. Never 0.
    pub groups: u32,
    /// Which threads use it.
    pub users: Vec<MemoryUse>,
}

/// How a thread uses memory of its job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// The thread, by its place in the job.
    pub thread: usize,
    /// The share of its accesses that go there; those of all memory of a stretch sum to 1 at most.
    pub share: f64,
    /// The share of these that are writes.
    pub writes: f64,
    /// In which stretch of its course; `None` for all.
    pub during: Option<usize>,
    /// Whether it moves the memory to its node first.
    pub fetch: Fetch,
}

/// Whether a thread moves memory to its node before it uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// It does not.
    #[default]
    No,
    /// It does, and takes the time for that itself.
    Move,
    /// It does, and stays on that node until it ends; or first goes to another one, if as many stay there as it has PUs.
    MoveAndStay,
}

/// How the threads of a job wait for each other, as OpenMP's do. Where they do say their courses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// What a thread does that waits.
    pub wait: BarrierWait,
    /// What is done by one thread once all have come, before they go on; `None` for nothing.
    pub serial: Option<Serial>,
}

/// What a thread does that waits at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierWait {
    /// It sleeps and leaves its PU to others.
    Sleep,
    /// It polls in a loop, which takes what this phase takes and gets nothing done.
    Spin(PhaseIdx),
    /// It is no barrier: a thread wakes the next one of the job and sleeps until it is its turn again. There are so many
    /// turns at a time, dealt to the threads in a row. Never 0.
    Turns(u32),
}

/// Work of one thread for which the others wait. It comes on top of the threads' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial {
    /// The phase.
    pub phase: PhaseIdx,
    /// Instructions each time. Never 0.
    pub instructions: u64,
}

/// A PU goes offline or comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuEvent {
    /// When.
    pub at: Nanos,
    /// Which.
    pub pu: PuNr,
    /// Whether it is online from then on.
    pub online: bool,
}

/// What one thread does.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSpec {
    /// For display.
    pub name: String,
    /// When it is created, after the launch of its job.
    pub born: Nanos,
    /// What it does, one after another, and then again from the start until its work is done. Never
    /// empty.
    pub course: Vec<Stretch>,
    /// How much that is in all.
    pub work: Work,
    /// On which nodes its memory is.
    pub pages: Pages,
    /// How much memory it has: what has to move when it is to be near again. Matters only with NUMA
    /// balancing.
    pub resident: Bytes,
}

/// A phase and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The phase.
    pub phase: PhaseIdx,
    /// Instructions until it is over. Never 0.
    pub instructions: u64,
    /// How long the thread sleeps then, before it goes on.
    pub sleep: Nanos,
    /// Whether it waits then for the other threads of its job. Not together with `sleep`.
    pub barrier: bool,
}

/// How much a thread does before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its course, once.
    Once,
    /// So many instructions. Never 0.
    Instructions(u64),
    /// As many as it does in so long when it is alone on the machine, on a core of the fastest kind
    /// with its memory near: Feliu's method, which makes jobs equally long.
    AloneFor(Nanos),
}

/// Where the memory of a thread is when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// On the node of the PU where it runs first: each thread touches its own memory first.
    #[default]
    FirstTouch,
    /// On the node where the first thread of its job ran first: one thread set up all memory.
    FirstThread,
    /// Evenly on all nodes that have memory.
    Interleaved,
    /// On one node.
    On(NodeIdx),
}

/// What becomes of a job that has done its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// It leaves, and the others have more room: the last ones are alone for a while.
    #[default]
    Leave,
    /// It begins anew at once, until every job has done its work once; that first time is what counts.
    /// So all are under the same load from their start to their end.
    Restart,
}

impl PhaseSpec {
    /// A phase with the mix that its work says; classes are unknown if the work is not known by kind.
    #[must_use]
    pub fn of(phase: Phase) -> Self {
        let mix = mix_of(&phase.work);
        Self { phase, mix }
    }
}

/// Shares of the classes, where work is known by kind.
fn mix_of(work: &Known<PortWork>) -> Mix {
    use colocate_machine::performance::WorkKind;
    let mut mix = Mix::default();
    let kinds = match work.get() {
        Some(PortWork::Kinds(kinds)) => kinds,
        Some(PortWork::Classes(mix)) => return *mix,
        _ => return mix,
    };
    let class = |kind: WorkKind| match kind {
        WorkKind::Branch => Class::Branch,
        WorkKind::Int | WorkKind::IntMul | WorkKind::IntDiv => Class::Int,
        WorkKind::FloatAdd | WorkKind::FloatMul | WorkKind::FloatDiv => Class::Float,
        WorkKind::Load => Class::Load,
        WorkKind::Store => Class::Store,
    };
    for each in Class::ALL {
        let of_class = kinds.iter().filter(|(kind, _)| class(*kind) == each);
        // Micro-operations of one instruction can be more than one.
        mix.set(each, Share::new(of_class.fold(0.0, |sum, (_, n)| sum + n).min(1.0)));
    }
    mix
}

impl Scenario {
    /// Checks that it makes sense on `machine`.
    ///
    /// # Errors
    /// [`ScenarioError`] with the first thing that does not.
    pub fn check(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let whole = |expected, found: &str| error("scenario".to_owned(), expected, found);
        if self.jobs.is_empty() {
            return Err(whole("at least one job", "none"));
        }
        if self.quantum == Nanos::ZERO || self.horizon == Nanos::ZERO {
            return Err(whole("a quantum and a horizon above 0", "0"));
        }
        if self.phases.len() > MOST_PHASES {
            return Err(whole("at most 65536 phases", &self.phases.len().to_string()));
        }
        for &pu in self.usable.iter().flatten() {
            if machine.pu_by_os(pu).is_none() {
                return Err(whole("usable PUs that are online", &pu.to_string()));
            }
        }
        if self.usable.as_ref().is_some_and(Vec::is_empty) {
            return Err(whole("a usable PU", "none"));
        }
        for (j, job) in self.jobs.iter().enumerate() {
            if job.threads.is_empty() {
                return Err(error(format!("job {j}"), "at least one thread", "none"));
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

    fn check_barrier(&self, job: &JobSpec, place: &str) -> Result<(), ScenarioError> {
        let wrong = |expected, found: &str| Err(error(place.to_owned(), expected, found));
        let stretches = || job.threads.iter().flat_map(|thread| &thread.course);
        let Some(barrier) = job.barrier else {
            let used = stretches().any(|stretch| stretch.barrier);
            return if used {
                wrong("a barrier where threads wait at one", "none")
            } else {
                Ok(())
            };
        };
        if !stretches().any(|stretch| stretch.barrier) {
            return wrong("a thread that comes to the barrier", "none");
        }
        if stretches().any(|stretch| stretch.barrier && stretch.sleep > Nanos::ZERO) {
            return wrong("sleep or a barrier after a phase", "both");
        }
        let spins = match barrier.wait {
            BarrierWait::Spin(phase) => Some(phase),
            BarrierWait::Sleep | BarrierWait::Turns(_) => None,
        };
        if let BarrierWait::Turns(turns) = barrier.wait {
            if turns == 0 {
                return wrong("at least one turn at a time", "0");
            }
            if barrier.serial.is_some() {
                return wrong("turns or a serial part", "both");
            }
        }
        for phase in spins.into_iter().chain(barrier.serial.map(|serial| serial.phase)) {
            if phase.0 as usize >= self.phases.len() {
                return wrong("a phase of the scenario", &format!("phase {}", phase.0));
            }
        }
        if barrier.serial.is_some_and(|serial| serial.instructions == 0) {
            return wrong("at least one instruction of a serial part", "0");
        }
        Ok(())
    }

    /// PUs go that are there and come that are gone, and one is always left.
    fn check_events(&self, machine: &Machine) -> Result<(), ScenarioError> {
        let wrong = |event: &PuEvent, expected, found: &str| {
            Err(error(format!("event of {} at {}", event.pu, event.at), expected, found))
        };
        let may = |os: &PuNr| self.usable.as_ref().is_none_or(|usable| usable.contains(os));
        let mut online: Vec<PuNr> = machine.pus.iter().map(|pu| pu.os).filter(may).collect();
        let known = online.clone();
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.at);
        for event in &events {
            if !known.contains(&event.pu) {
                return wrong(event, "a PU that the jobs may use", "another one");
            }
            match (event.online, online.iter().position(|&pu| pu == event.pu)) {
                (false, Some(place)) => drop(online.remove(place)),
                (true, None) => online.push(event.pu),
                (false, None) => return wrong(event, "a PU that is online", "one that is not"),
                (true, Some(_)) => return wrong(event, "a PU that is offline", "one that is not"),
            }
            if online.is_empty() {
                return wrong(event, "a PU that is left", "none");
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
        let wrong = |expected, found: &str| Err(error(place.to_owned(), expected, found));
        if thread.course.is_empty() {
            return wrong("a course of at least one phase", "none");
        }
        for stretch in &thread.course {
            if stretch.phase.0 as usize >= self.phases.len() {
                return wrong("a phase of the scenario", &format!("phase {}", stretch.phase.0));
            }
            if stretch.instructions == 0 {
                return wrong("at least one instruction a phase", "0");
            }
        }
        match (thread.work, thread.pages) {
            (Work::Instructions(0) | Work::AloneFor(Nanos::ZERO), _) => wrong("some work", "0"),
            (_, Pages::On(node)) if node.idx() >= machine.nodes.len().max(1) => {
                wrong("memory on a node of the machine", &node.to_string())
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
    let wrong = |expected, found: &str| Err(error(place.to_owned(), expected, found));
    if memory.groups == 0 {
        return wrong("at least one part", "0");
    }
    if let Pages::On(node) = memory.pages
        && node.idx() >= machine.nodes.len().max(1)
    {
        return wrong("memory on a node of the machine", &node.to_string());
    }
    for one in &memory.users {
        let Some(thread) = job.threads.get(one.thread) else {
            return wrong("threads of the job", &format!("thread {}", one.thread));
        };
        if one.during.is_some_and(|during| during >= thread.course.len()) {
            return wrong("stretches of the thread's course", "a later one");
        }
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let stretches = 0..thread.course.len();
        let mut sums = stretches.map(|at| {
            job.memory
                .iter()
                .flat_map(|all| &all.users)
                .filter(|of| of.thread == one.thread && of.during.is_none_or(|during| during == at))
                .map(|of| of.share)
                .sum::<f64>()
        });
        if !is_share(one.share) || !is_share(one.writes) || sums.any(|sum| sum > 1.0 + 1e-9) {
            return wrong("shares of 0 to 1 that sum to 1 at most", "others");
        }
    }
    Ok(())
}
