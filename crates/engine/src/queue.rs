//! The loop of a scheduler: choose who runs and where, let them run for a quantum, see what they did.
//!
//! # Problem
//! More programs want to run than there are hardware threads, and which of them run together decides how
//! fast they are.
//! # Approach
//! The user-level scheduler of Feliu's work: jobs stand in a queue; each quantum a scheduler chooses some of
//! them and a PU for each of their threads, the others wait stopped; who ran goes to the tail. Jobs that end
//! before their target begin anew, which is the host's affair, as is stopping them.
//! # Terms
//! - *Active* thread: one that could run for at least [`ACTIVE`] of the last quantum in which its job ran, or was not
//!   there yet. Only these need a context; others are left to the kernel while their job runs.
//! - *Pause*: a quantum that took far longer than was asked for, and for most of which none of the chosen threads wanted a
//!   PU, as when a terminal stops the whole run. Where only the loop itself came late they went on wanting.
//! # Properties
//! - **Order**: who ran goes to the tail, in the order of the queue. -> test `who_ran_goes_to_the_tail`
//! - **Rates are of the last quantum**, and unknown where the host does not count. -> test
//!   `rates_of_the_last_quantum`
//! - **Work-conserving**: when a job ends, the next quantum begins at once. -> test `an_end_begins_a_quantum`
//! - **Put back**: threads are where the scheduler wants a quantum to begin, for no time, before it does. -> test
//!   `threads_are_put_somewhere_first`
//! - **The machine may shrink**: a turn that was begun on other PUs ends with those, and the next one knows the new ones.
//!   -> test `a_machine_that_shrinks_and_grows`
//! - **A pause teaches nothing**: schedulers hear of it as of a quantum of no length in which nobody ran, and these
//!   teach nothing either. -> tests `a_pause_teaches_nothing`, `no_time_teaches_nothing`, `who_comes_late_still_learns`

mod own_cores;
mod threads;

use crate::estimate::{self, Estimate};
use crate::guard;
use crate::host::{Host, HostError, QuantumEnd, SeenTask, Snapshot, Stand};
use crate::rates::{self, ThreadDid};
use crate::walk::Walk;
use colocate_machine::{Machine, Nanos, PuIdx};
use colocate_policy::plan::VERSION;
use colocate_policy::schedule::{Choice, Did, Done, Quantum, Queued, Ran, Scheduler, Thread};
use colocate_policy::{Decision, JobIdx, Newborn, Place, Plan, TaskId, Why};
use own_cores::own_cores;
use std::cell::LazyCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use threads::Threads;

/// The share of a quantum for which a thread must have a PU or wait for one to count as active; of what it could use,
/// where waits are not known. Chosen: threads that wait for others or for input want far less, threads that compute
/// nearly all.
pub const ACTIVE: f64 = 0.05;

/// A quantum that takes more than this many times what was asked for, and [`PAUSE`] more, may be a pause. Chosen: on a
/// machine that is busy otherwise a quantum may come to two or three.
const STRETCHED: u64 = 4;

/// See [`STRETCHED`]. Chosen: of the shortest quanta a busy machine makes many, and nobody stops a run for less.
const PAUSE: Nanos = Nanos::from_millis(500);

/// It is none if a chosen thread had a PU or waited for one for more than this share of it. Chosen: what is learned of it is
/// off by a third at most.
const WANTED: f64 = 0.75;

/// What is to be scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// How many jobs the host has, also those that it launches later.
    pub jobs: u32,
    /// Time between two decisions, above 0.
    pub quantum: Nanos,
    /// The scheduler's name with its settings, for the plans.
    pub scheduler: &'a str,
}

/// One turn of the loop, for who watches it.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// How many there were before.
    pub number: u64,
    /// What was chosen.
    pub choices: &'a [Choice],
    /// How the host was told.
    pub plan: &'a Plan,
    /// What came of it.
    pub seen: &'a Snapshot,
    /// What the threads of the chosen jobs did that ran, in the order of their IDs.
    pub did: &'a [ThreadDid],
    /// What the threads of each job did together, also of those that were not chosen and filled idle PUs.
    pub all: &'a [Did],
    /// How many threads of each chosen job were runnable, in the mean: had a PU or waited for one, and did not only wait
    /// for others in a loop. Without jobs of which the host cannot say.
    pub runnable: &'a BTreeMap<JobIdx, f64>,
    /// What the scheduler has to say of itself.
    pub state: Option<&'a str>,
    /// What people should hear of now.
    pub news: &'a [String],
}

/// Runs the jobs of `host` to their ends, each quantum those that `scheduler` chooses. `look` is shown every
/// turn.
///
/// # Errors
/// [`HostError`] as soon as the host has one; it is the host's affair that nothing stays stopped.
pub fn schedule(
    host: &mut impl Host,
    scheduler: &mut dyn Scheduler,
    workload: &Workload<'_>,
    look: &mut dyn FnMut(&Turn<'_>),
) -> Result<Snapshot, HostError> {
    schedule_estimating(host, scheduler, workload, None, look)
}

/// The same, where `estimate` says what threads did that the host does not count.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_estimating(
    host: &mut impl Host,
    scheduler: &mut dyn Scheduler,
    workload: &Workload<'_>,
    mut estimate: Option<&mut dyn Estimate>,
    look: &mut dyn FnMut(&Turn<'_>),
) -> Result<Snapshot, HostError> {
    let mut queue = Queue::default();
    // As it was when the turn began: what was chosen is by its PUs, whatever becomes of them meanwhile.
    let mut machine = host.machine().clone();
    // Nobody runs yet; this only shows which jobs are there.
    let nobody =
        plan_of(&machine, &[], workload, &Chosen::default(), &Snapshot::before_the_launch());
    let mut seen = host.run_quantum(&nobody, Nanos::ZERO)?;
    for number in 0.. {
        if seen.end == QuantumEnd::AllJobsEnded {
            break;
        }
        if *host.machine() != machine {
            queue.renumber(&machine, host.machine());
            machine = host.machine().clone();
        }
        queue.meet(&seen);
        let pus: Vec<PuIdx> = host.usable().iter().filter_map(|&pu| machine.pu_by_os(pu)).collect();
        let queued = queue.queued(&seen);
        let can_choose = !queued.is_empty() && !pus.is_empty();
        let now = Quantum { number, machine: &machine, pus: &pus, queue: &queued };
        let (choices, begin) =
            if can_choose { choose(scheduler, &now) } else { Default::default() };
        let chosen = Chosen::new(&choices, &queued);
        let mut quantum = workload.quantum;
        if !begin.is_empty() {
            let plan = plan_of(&machine, &pus, workload, &chosen.at(&begin), &seen);
            let moment = host.run_quantum(&plan, Nanos::ZERO)?;
            match moment.end {
                QuantumEnd::AllJobsEnded => {
                    seen = moment;
                    break;
                }
                // It was chosen for other PUs, so it is over before it begins.
                QuantumEnd::MachineChanged => quantum = Nanos::ZERO,
                QuantumEnd::Elapsed | QuantumEnd::JobEnded => {}
            }
        }
        let plan = plan_of(&machine, &pus, workload, &chosen, &seen);
        let after = host.run_quantum(&plan, quantum)?;
        let passed = Passed {
            choices: &choices,
            machine: &machine,
            pus: pus.len(),
            asked: workload.quantum,
            before: &seen,
            after: &after,
        };
        let mut did = queue.note(&passed);
        if let Some(estimate) = estimate.as_deref_mut() {
            estimate::fill(&mut did, estimate);
        }
        queue.remember(&did);
        let all = guard::seen::did(&seen, &after);
        if can_choose {
            scheduler.saw(&passed.done(&all));
        }
        let news: Vec<String> = std::iter::from_fn(|| scheduler.news()).collect();
        let state = scheduler.state();
        look(&Turn {
            number,
            choices: &choices,
            plan: &plan,
            seen: &after,
            did: &did,
            all: &all,
            runnable: &queue.runnable(),
            state: state.as_deref(),
            news: &news,
        });
        seen = after;
    }
    Ok(seen)
}

/// Who is to run, and where those are put first for whom that matters.
fn choose(scheduler: &mut dyn Scheduler, now: &Quantum<'_>) -> (Vec<Choice>, Vec<(TaskId, PuIdx)>) {
    let choices = scheduler.choose(now);
    (choices, scheduler.begin())
}

/// A quantum that is over.
struct Passed<'a> {
    choices: &'a [Choice],
    machine: &'a Machine,
    /// How many PUs could be used.
    pus: usize,
    /// How long it should have been.
    asked: Nanos,
    before: &'a Snapshot,
    after: &'a Snapshot,
}

impl Passed<'_> {
    fn took(&self) -> Nanos {
        self.after.at.saturating_sub(self.before.at)
    }

    /// Whether it says something of the jobs: it took some time, and was no pause.
    fn teaches(&self) -> bool {
        let most = self.asked.0.saturating_mul(STRETCHED).saturating_add(PAUSE.0);
        let took = self.took();
        took > Nanos::ZERO && (took.0 <= most || self.was_wanted())
    }

    /// Whether a chosen thread had a PU or waited for one for most of it.
    fn was_wanted(&self) -> bool {
        let wanted = |(task, earlier): (&SeenTask, Option<&SeenTask>)| {
            let used = grown(task, earlier, |it| it.cpu_time).unwrap_or(Nanos::ZERO);
            used + grown(task, earlier, |it| it.waited).unwrap_or(Nanos::ZERO)
        };
        let most = self.chosen().map(wanted).max().unwrap_or(Nanos::ZERO);
        float(most) > WANTED * float(self.took())
    }

    /// The threads of the chosen jobs, after it and before.
    fn chosen(&self) -> impl Iterator<Item = (&SeenTask, Option<&SeenTask>)> {
        let chosen: BTreeSet<JobIdx> = self.choices.iter().map(|choice| choice.job).collect();
        let mut before = Walk::through(&self.before.tasks);
        let tasks = self.after.tasks.iter().filter(move |task| chosen.contains(&task.id.job));
        tasks.map(move |task| (task, before.find(task.id)))
    }

    /// What the scheduler hears of it.
    fn done<'d>(&self, did: &'d [Did]) -> Done<'d> {
        match self.teaches() {
            true => Done { took: self.took(), did },
            false => Done { took: Nanos::ZERO, did: &[] },
        }
    }

    /// What a thread that computes could use of it, in nanoseconds: less than all where more threads of the chosen jobs
    /// computed than there are PUs, as all do under the kernel. Who used hardly anything beside who used most did not.
    #[allow(clippy::cast_precision_loss)] // threads are few
    fn fair_part(&self) -> f64 {
        let used = |(task, earlier)| Some(float(grown(task, earlier, |it| it.cpu_time)?));
        let used: Vec<f64> = self.chosen().filter_map(used).collect();
        let most = used.iter().copied().fold(0.0, f64::max);
        let computed = used.iter().filter(|used| **used > ACTIVE * most).count();
        let share = self.pus as f64 / computed.max(1) as f64;
        float(self.took()) * share.min(1.0)
    }
}

/// By how much something of a thread has grown between two looks; `None` if it is not known.
fn grown(
    now: &SeenTask,
    before: Option<&SeenTask>,
    of: impl Fn(&SeenTask) -> Option<Nanos>,
) -> Option<Nanos> {
    Some(of(now)?.saturating_sub(before.and_then(of).unwrap_or(Nanos::ZERO)))
}

#[allow(clippy::cast_precision_loss)] // times of a quantum are far below 2^53 ns
fn float(time: Nanos) -> f64 {
    time.0 as f64
}

/// What the loop remembers of the jobs.
#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<JobIdx>,
    known: BTreeMap<JobIdx, Job>,
}

#[derive(Debug, Default)]
struct Job {
    just_ran: bool,
    had_own_cores: bool,
    runnable: Option<f64>,
    threads: Threads<Known>,
}

/// A thread that has run.
#[derive(Debug)]
struct Known {
    ran: Ran,
    active: bool,
    pu: Option<PuIdx>,
    runnable: Option<f64>,
}

impl Default for Known {
    fn default() -> Self {
        Self { ran: Ran::default(), active: true, pu: None, runnable: None }
    }
}

impl Job {
    /// Those of its living threads that want to run, or one of them if none does: a job whose threads all sleep must get
    /// its turn, too. `None` if none lives.
    fn queued(&self, tasks: &[SeenTask]) -> Option<Vec<Thread>> {
        let (mut active, mut idle) = (Vec::new(), None);
        for task in tasks.iter().filter(|task| task.alive()) {
            let known = self.threads.get(task.id);
            let thread = || Thread {
                id: task.id,
                ran: known.map(|known| known.ran.clone()),
                pu: known.and_then(|known| known.pu),
                runnable: known.and_then(|known| known.runnable),
                bound: task.stand == Stand::PinnedByProgram,
            };
            if known.is_none_or(|known| known.active) {
                active.push(thread());
            } else if idle.is_none() {
                idle = Some(thread());
            }
        }
        if active.is_empty() { idle.map(|idle| vec![idle]) } else { Some(active) }
    }
}

impl Queue {
    /// Jobs that are there for the first time go to the tail, jobs that are over leave.
    fn meet(&mut self, seen: &Snapshot) {
        let over = seen.over();
        self.order.retain(|job| !over.contains(job));
        for task in seen.tasks.iter().filter(|task| task.alive() && !over.contains(&task.id.job)) {
            if let Entry::Vacant(new) = self.known.entry(task.id.job) {
                new.insert(Job::default());
                self.order.push_back(task.id.job);
            }
        }
    }

    /// PUs have come or gone: threads are where they were, by the numbers of the machine as it is now.
    fn renumber(&mut self, before: &Machine, now: &Machine) {
        for job in self.known.values_mut() {
            for known in job.threads.values_mut() {
                known.pu = known.pu.and_then(|pu| now.pu_by_os(before.pus[pu.idx()].os));
            }
        }
    }

    /// The queue as a scheduler sees it, head first.
    fn queued(&self, seen: &Snapshot) -> Vec<Queued> {
        let by_job = seen.tasks.chunk_by(|one, next| one.id.job == next.id.job);
        let by_job: BTreeMap<JobIdx, &[SeenTask]> =
            by_job.map(|tasks| (tasks[0].id.job, tasks)).collect();
        let queued = |job: &JobIdx| {
            let known = &self.known[job];
            Some(Queued {
                job: *job,
                threads: known.queued(by_job.get(job)?)?,
                runnable: known.runnable,
                just_ran: known.just_ran,
                had_own_cores: known.had_own_cores,
            })
        };
        self.order.iter().filter_map(queued).collect()
    }

    /// Takes in what a quantum has shown, but for the rates, which it returns. If it teaches nothing only where threads are.
    fn note(&mut self, passed: &Passed<'_>) -> Vec<ThreadDid> {
        let Passed { machine, after, .. } = *passed;
        let mut did = Vec::new();
        let (took, teaches) = (passed.took(), passed.teaches());
        let fair = LazyCell::new(|| passed.fair_part());
        let own = own_cores(passed.choices, machine);
        for (id, job) in &mut self.known {
            let chosen = own.get(id).filter(|_| teaches);
            job.just_ran = chosen.is_some();
            job.had_own_cores = chosen.copied().unwrap_or(job.had_own_cores);
            job.runnable = if job.just_ran { Some(0.0) } else { job.runnable };
        }
        let mut before = Walk::through(&passed.before.tasks);
        for tasks in after.tasks.chunk_by(|one, next| one.id.job == next.id.job) {
            let id = tasks[0].id.job;
            let job = self.known.get_mut(&id).filter(|_| own.contains_key(&id));
            let Some(job) = job else { continue };
            for task in tasks {
                let earlier = before.find(task.id);
                let known = job.threads.of(task.id);
                known.pu = task.last_ran.and_then(|pu| machine.pu_by_os(pu)).or(known.pu);
                did.extend(rates::did(machine, task, earlier));
                if !teaches {
                    continue;
                }
                known.active = is_active(task, earlier, took, || *fair);
                known.runnable = rates::runnable(task, earlier, took);
                // Of who was born and has ended between two looks nobody can say, and it did little.
                if task.alive() || known.runnable.is_some() {
                    job.runnable = job.runnable.zip(known.runnable).map(|(sum, more)| sum + more);
                }
            }
        }
        self.forget_ended(after);
        let (ran, waited): (Vec<JobIdx>, Vec<JobIdx>) =
            self.order.iter().partition(|job| own.contains_key(job));
        self.order = waited.into_iter().chain(ran).collect();
        did
    }

    /// How many threads were runnable of each job that ran last, where that is known.
    fn runnable(&self) -> BTreeMap<JobIdx, f64> {
        let ran = self.known.iter().filter(|(_, job)| job.just_ran);
        ran.filter_map(|(id, job)| Some((*id, job.runnable?))).collect()
    }

    /// Forgets threads that have ended: a job may create them by the million.
    fn forget_ended(&mut self, seen: &Snapshot) {
        let mut seen = Walk::through(&seen.tasks);
        for job in self.known.values_mut() {
            job.threads.retain(|id| seen.find(id).is_some_and(SeenTask::alive));
        }
    }

    /// Keeps the rates for the scheduler.
    fn remember(&mut self, did: &[ThreadDid]) {
        for did in did {
            if let Some(job) = self.known.get_mut(&did.id.job) {
                job.threads.of(did.id).ran.clone_from(&did.ran);
            }
        }
    }
}

/// Whether a thread wanted to run for enough of a quantum that took so long. Where nobody knows its waits: whether it
/// used enough of what it could, `fair` nanoseconds.
fn is_active(
    task: &SeenTask,
    before: Option<&SeenTask>,
    took: Nanos,
    fair: impl FnOnce() -> f64,
) -> bool {
    let Some(used) = grown(task, before, |it| it.cpu_time) else { return true };
    match grown(task, before, |it| it.waited) {
        Some(waited) => float(used + waited) >= ACTIVE * float(took),
        None => float(used) >= ACTIVE * fair(),
    }
}

/// What was chosen, by job and by thread.
#[derive(Clone, Default)]
struct Chosen {
    jobs: BTreeSet<JobIdx>,
    places: BTreeMap<TaskId, (Option<PuIdx>, Why)>,
}

impl Chosen {
    fn new(choices: &[Choice], queued: &[Queued]) -> Self {
        let mut chosen = Self::default();
        let threads_of: BTreeMap<JobIdx, &[Thread]> =
            queued.iter().map(|queued| (queued.job, &queued.threads[..])).collect();
        for choice in choices {
            chosen.jobs.insert(choice.job);
            let threads = threads_of.get(&choice.job).copied().unwrap_or_default();
            for (thread, (pu, allocated)) in threads.iter().zip(&choice.places) {
                let selected = choice.selected.clone();
                let why = Why::Chosen { selected, allocated: allocated.clone() };
                chosen.places.insert(thread.id, (*pu, why));
            }
        }
        chosen
    }

    /// The same, but for threads that are put elsewhere first.
    fn at(&self, begin: &[(TaskId, PuIdx)]) -> Self {
        let mut chosen = self.clone();
        for (task, pu) in begin {
            if let Some((place, _)) = chosen.places.get_mut(task) {
                *place = Some(*pu);
            }
        }
        chosen
    }
}

/// The plan that tells a host what was chosen: threads of chosen jobs get their PUs, their other threads and what jobs
/// that are over have left behind the kernel's choice, and all other jobs wait, also those that nobody has seen yet.
fn plan_of(
    machine: &Machine,
    pus: &[PuIdx],
    workload: &Workload<'_>,
    chosen: &Chosen,
    seen: &Snapshot,
) -> Plan {
    let over = seen.over();
    let waiting = |task: TaskId, name: Arc<str>| Decision {
        task,
        name,
        place: Place::Waiting,
        why: Why::NotSelected,
    };
    let decide = |task: &SeenTask| match chosen.places.get(&task.id) {
        Some((pu, why)) => Decision {
            task: task.id,
            name: task.name.clone(),
            place: Place::from(pu.map(|pu| machine.pus[pu.idx()].os)),
            why: why.clone(),
        },
        None if chosen.jobs.contains(&task.id.job) || over.contains(&task.id.job) => Decision {
            task: task.id,
            name: task.name.clone(),
            place: Place::LeftToKernel,
            why: Why::LeftToKernel,
        },
        None => waiting(task.id, task.name.clone()),
    };
    let mut decisions: Vec<Decision> =
        seen.tasks.iter().filter(|task| task.alive()).map(decide).collect();
    let by_job = seen.tasks.chunk_by(|one, next| one.id.job == next.id.job);
    let known: BTreeSet<JobIdx> = by_job.map(|tasks| tasks[0].id.job).collect();
    let unseen = (0..workload.jobs).map(JobIdx).filter(|job| !known.contains(job));
    decisions.extend(unseen.map(|job| waiting(TaskId { job, order: 0 }, "".into())));
    decisions.sort_by_key(|decision| decision.task);
    Plan {
        version: VERSION,
        machine: machine.name.clone(),
        pus: pus.iter().map(|pu| machine.pus[pu.idx()].os).collect(),
        policy: workload.scheduler.to_owned(),
        decisions,
        newborn: Newborn::LeaveToKernel,
        predicted: None,
        slowdowns: None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
