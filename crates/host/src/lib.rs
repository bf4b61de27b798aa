//! This machine as a [`Host`]: programs launched, their threads placed as they are created.
//!
//! An edge crate. It composes the backends of `colocate-observe` and the actuators of `colocate-act`.
//!
//! One thread does it all, and sleeps until there is an event: a creation, an end, a
//! signal, or a time at which to poll. So a new thread waits for one wake-up and a few system
//! calls, and nothing has to be locked.

mod cpu_times;
mod filling;
mod latency;
mod lives;
mod notes;
mod paging;
mod pausing;
mod placed;
mod placement;
mod polling;
mod preparing;
mod ready;
mod runtime;
mod sched_ext;
mod sources;
mod target;
mod task;
mod task_table;
mod throttling;

pub use latency::Latencies;
pub use ready::{Probe, Readiness};
pub use target::Target;
pub use task::TaskRecord;

use crate::target::Targets;
use crate::task_table::{Creation, TaskTable};
use colocate_act::actuators::Actuators;
use colocate_act::boost::{LOWEST_NICE, SHORT_SLICE};
use colocate_act::guardian::Guardian;
use colocate_act::journal::Journal;
use colocate_act::launch::{Command, Held, LaunchError};
use colocate_act::restore::{self, Root};
use colocate_act::signals::{self, SignalAction, Signals};
use colocate_engine::{Host, HostError, Meanwhile, Request};
use colocate_evidence::{Grant, JobIdx, Observation, QuantumEnd, TaskId};
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::poll::wait_readable;
use colocate_linux::sys;
use colocate_linux::{Pid, SysError, Tid, foreign};
use colocate_machine::read::{Cpusets, Sysfs};
use colocate_machine::{CpuQuota, Machine, Nanos, PuNr};
use colocate_model::stack::Parts;
use colocate_observe::pmu::Counters;
use colocate_observe::sample::Counted;
use colocate_observe::sources::counters::DataLevels;
use colocate_observe::{LifecycleEvents, TaskEvent, lifecycle, sample, sharing, spin};
use colocate_policy::Plan;
use filling::Fillers;
use lives::Runs;
use notes::Notes;
use paging::Pager;
use pausing::Pausing;
use placement::Placing;
use polling::Polling;
use preparing::{
    Safeguards, begin_safeguards, can_count, hold_all, jobs_of, late_creation, masks, reserve,
    usable, watch_all, with_token,
};
use ready::Probing;
use sources::Sources;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use task::Task;
use throttling::Throttling;

/// What a host is to run, and how.
#[derive(Debug)]
pub struct Setup {
    /// The programs.
    pub commands: Vec<Command>,
    /// Jobs that run already, each with all that its processes create, after those that are launched. They are
    /// only placed: no plan may have them wait, and a signal that ends the scheduling leaves them alone.
    pub attached: Vec<Attached>,
    /// How long after the launch the processes that ran already are left to the kernel again; `None` for as long as they live.
    pub detach_after: Option<Nanos>,
    /// Whether plans may leave jobs waiting. If so, CPU times are in nanoseconds.
    pub may_pause: bool,
    /// What waiting jobs do meanwhile.
    pub meanwhile: Meanwhile,
    /// Whether jobs are stopped by signals even where they could have cgroups.
    pub only_signals: bool,
    /// What each job has to do; those that are not named have to run to their end once.
    pub targets: Vec<Target>,
    /// Whether jobs that have reached their target run on, and anew, until all have reached theirs.
    pub repeat: bool,
    /// Readiness of the first job, until which the others are held; `None` if all begin together.
    pub ready: Option<Readiness>,
    /// Jobs after whose ends all others are ended; none: each job ends by itself.
    pub until: Vec<JobIdx>,
    /// How long a job that has reached its target may take to end after SIGTERM, before it is killed.
    pub grace: Nanos,
    /// How long the first thread of a process is left alone, so that its program counts the PUs
    /// that it may use and not the one that it is put on.
    pub settle: Nanos,
    /// How thread creation is detected.
    pub lifecycle: lifecycle::Options,
    /// How evidence is gathered that is requested.
    pub sampling: Sampling,
    /// Folders that may hold the journal, best first; see [`colocate_act::rundir::candidates`].
    pub run_dirs: Vec<PathBuf>,
    /// `/proc`.
    pub proc: PathBuf,
}

/// Processes that run already and are one job.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Its name, for messages.
    pub name: String,
    /// Its processes that none of it has created, one at least, and never later ones with the same numbers.
    pub processes: Vec<Arc<ProcessHandle>>,
}

/// How evidence is gathered.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Samples a second of CPU time for the mixes of tasks.
    pub mix_hz: u32,
    /// Samples a second of CPU time that show which tasks only wait in a loop.
    pub spin_hz: u32,
    /// Samples a second of CPU time that show which memory tasks use.
    pub access_hz: u32,
    /// Whether wake-ups are counted from the launch on, and not from when the programs have settled: what counts them takes
    /// longer to begin than many a program runs.
    pub all_wake_ups: bool,
    /// Counters that take the place of the processor's, for tests.
    pub counters: Option<Counters>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            mix_hz: sample::DEFAULT_RATE_HZ,
            spin_hz: spin::DEFAULT_RATE_HZ,
            access_hz: sharing::DEFAULT_RATE_HZ,
            all_wake_ups: true,
            counters: None,
        }
    }
}

/// How long a job that has reached its target may take to end after SIGTERM. Chosen: long enough to close
/// files, short enough not to disturb the others for long.
pub const GRACE: Nanos = Nanos::from_secs(1);

/// What was seen of thread creation.
#[derive(Clone, Debug, Default)]
pub struct CreationCounts {
    /// Tasks that were created.
    pub created: u64,
    /// Records of creations that the kernel lost; their tasks were found in `/proc`.
    pub lost: u64,
    /// How long those waited that were put on a PU when they were created.
    pub waited: Latencies,
}

/// This machine, with programs on it. Each part has its own state, in the file of its name.
pub struct LinuxHost {
    machine: Machine,
    usable: Vec<PuNr>,
    signals: Signals,
    guardian: Option<Guardian>,
    /// Process of colocate, whose children programs are, with the children that it had before.
    root: Root,
    runs: Runs,
    pausing: Pausing,
    fillers: Option<Fillers>,
    placing: Placing,
    polling: Polling,
    sources: Sources,
    /// Moves memory, once a plan has ordered that.
    pager: Option<Pager>,
    lifecycle: LifecycleEvents,
    tasks: TaskTable,
    actuators: Actuators,
    throttling: Throttling,
    quantum: Quantum,
    counts: CreationCounts,
    /// What is done before this process stops itself.
    before_stop: Box<dyn FnMut()>,
    notes: Notes,
}

/// The quantum that runs.
struct Quantum {
    /// When the programs were released, on the kernel's clock; `None` before.
    launched: Option<Nanos>,
    /// CPU time of this thread when the last quantum ended.
    deciding_since: Nanos,
    /// Why it is to end before its time.
    pending_end: Option<QuantumEnd>,
    /// Until then new threads do not wake us, on the kernel's clock.
    rests_until: Nanos,
    /// Whether a phase has ended, so that the next one shall soon show what follows.
    looks: bool,
}

impl LinuxHost {
    /// Prepares everything, up to programs that wait to begin. To be called before threads are
    /// created, as it forks.
    ///
    /// What is not vital and cannot be had is done without; [`LinuxHost::notes`] then says so.
    ///
    /// # Errors
    /// [`LaunchError`] if a process or a pipe cannot be had, or instructions that are a target cannot be
    /// counted.
    pub fn prepare(machine: Machine, setup: &Setup) -> Result<Self, LaunchError> {
        let mut notes = Vec::new();
        let root = Root::of_this(&setup.proc);
        sys::adopt_orphans();
        let jobs = setup.commands.len() + setup.attached.len();
        let targets = Targets::new(jobs, &setup.targets, setup.repeat);
        can_count(setup, &targets)?;
        let signals = Signals::take()?;
        let reserve = reserve();
        let cpusets = Cpusets::new(Sysfs::at(Path::new("/")));
        let (usable_now, original) = masks(setup, &cpusets)?;
        let sets = machine.shared_parts(&original);
        let safeguards = begin_safeguards(setup, &original, &sets, &mut notes);
        let may_fill = safeguards.pauser.is_some();
        let fillers =
            may_fill.then(|| Fillers::new(setup.meanwhile, &setup.proc, &mut notes)).flatten();
        let commands = with_token(&setup.commands, safeguards.journal.journal().token.as_deref());
        let held = match hold_all(&commands, &signals) {
            Ok(held) => held,
            Err(why) => {
                safeguards.give_up();
                return Err(why);
            }
        };
        let Safeguards { pauser, journal, guardian, .. } = safeguards;
        let mut runs = Runs::new(commands, targets, setup);
        let mut tasks = jobs_of(setup, &held, &mut runs.runtimes);
        (tasks.keeps_last, tasks.levels) = (setup.may_pause, DataLevels::of(&machine));
        // A new thread runs where its creator does until we have run. After all forks, so that no
        // program inherits it; without it we are only slower.
        let nice = sys::nice();
        let _ = sys::set_slice_and_nice(SHORT_SLICE, LOWEST_NICE)
            .or_else(|_| sys::set_slice_and_nice(SHORT_SLICE, nice));
        let attached = setup.attached.iter().flat_map(|it| &it.processes).map(|it| it.pid());
        let firsts: Vec<Pid> = held.iter().map(Held::pid).chain(attached).collect();
        let lifecycle = watch_all(&firsts, &setup.lifecycle);
        notes.extend(lifecycle.without_perf().map(late_creation));
        let usable = usable(&machine, &usable_now);
        let proc = setup.proc.clone();
        let mut host = Self {
            machine,
            usable,
            signals,
            guardian,
            root,
            runs,
            pausing: Pausing::new(held, setup.attached.len(), pauser, reserve),
            fillers,
            placing: Placing::new(setup.settle),
            polling: Polling::new(nice),
            sources: Sources::new(&setup.sampling, &setup.lifecycle, &setup.proc, nice),
            pager: None,
            lifecycle,
            tasks,
            actuators: Actuators { journal, proc, usable: usable_now, original, cpusets },
            throttling: Throttling::default(),
            quantum: Quantum {
                launched: None,
                deciding_since: own_time(),
                pending_end: None,
                rests_until: Nanos::ZERO,
                looks: false,
            },
            counts: CreationCounts::default(),
            before_stop: Box::new(|| ()),
            notes: Notes::default(),
        };
        host.notes.extend(notes);
        host.note_filter();
        host.watch_sched_ext();
        // Some may have come since the list of them was read.
        host.watch_new_pus(&host.actuators.usable.clone());
        host.give_up_if_unreadable();
        host.take_events();
        host.begin_attached();
        host.watch_quotas();
        Ok(host)
    }

    /// Watches the CPU quotas of the jobs.
    fn watch_quotas(&mut self) {
        let jobs = self.tasks.jobs().iter();
        self.throttling.watch(jobs.map(|job| job.pid.to_string()));
        self.throttling.read(now());
    }

    /// The least CPU quota that was found of the jobs' control groups.
    pub fn quota(&self) -> Option<CpuQuota> {
        self.throttling.quota
    }

    /// Keeps the kinds of cores of the machine at the start also when PUs go or come: they are measured.
    pub fn keep_kinds(&mut self) {
        self.polling.measured = Some(self.machine.clone());
    }

    /// From now on, calls `act` before this process stops itself because of SIGTSTP, as by Ctrl-Z. Programs that got the
    /// signal from the terminal are stopped by then.
    pub fn before_stop(&mut self, act: impl FnMut() + 'static) {
        self.before_stop = Box::new(act);
    }

    /// Lines for the user that have come up since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        self.notes.extend(self.sources.messages());
        self.notes.take()
    }

    /// Programs that are not watched and have woken watched threads, the most frequent first. Threads of the kernel are left
    /// out.
    pub fn outside_wakers(&self) -> Vec<Pid> {
        self.sources.outside_wakers()
    }

    /// The parts of the stacks that are counted, after they were requested.
    ///
    /// # Errors
    /// Why none are, in a line.
    pub fn stack_parts(&self) -> Result<Parts, String> {
        self.sources.stack_parts().map_err(|refusal| refusal.why)
    }

    /// What was seen of thread creation.
    pub fn creations(&self) -> &CreationCounts {
        &self.counts
    }

    /// Why thread creation is detected by scanning `/proc`; `None` if the kernel reports it.
    pub fn creation_without_perf(&self) -> Option<String> {
        self.lifecycle.without_perf().map(ToString::to_string)
    }

    /// Process, thread, places and CPU time of each task that is remembered.
    pub fn task_records(&self) -> BTreeMap<TaskId, TaskRecord> {
        let record = |task: &Task| {
            let at = now();
            let places = task.placement.times.until(at).into_iter();
            TaskRecord {
                pid: task.thread.pid,
                tid: task.thread.tid,
                placed: places.map(|(mark, time)| (self.actuators.mask(mark), time)).collect(),
                followed: task.ended.unwrap_or(at).saturating_sub(task.created),
                cpu_before: task.usage.cpu_before,
            }
        };
        self.tasks.remembered().map(|task| (task.id, record(task))).collect()
    }

    /// For how long any task was placed.
    pub fn placed_time(&self) -> Nanos {
        self.tasks.placed.until(now())
    }

    /// The first process of each job.
    pub fn first_processes(&self) -> Vec<Pid> {
        self.tasks.jobs().iter().map(|job| job.pid).collect()
    }

    /// Whether the jobs ran already.
    pub fn is_attached(&self) -> bool {
        self.runs.is_attached
    }

    /// Whether every program was left to the kernel for good.
    pub fn has_given_up(&self) -> bool {
        self.pausing.given_up
    }

    /// Most tasks that lived at once.
    pub fn most_living(&self) -> usize {
        self.tasks.most_living
    }

    /// Ended tasks that are in no observation, because there were too many.
    pub fn forgotten(&self) -> u64 {
        self.tasks.forgotten
    }

    /// How often each job has run to an end.
    pub fn runs(&self) -> Vec<u32> {
        self.runs.targets.runs()
    }

    /// Instructions of each job in all its runs, as far as its tasks were counted; `None` if nothing is counted.
    pub fn instructions(&self) -> Option<Vec<u64>> {
        self.sources.counts().then(|| self.tasks.instructions())
    }

    /// What was found out about each watched job; ends the watching.
    pub fn watched(&mut self) -> Vec<(JobIdx, Counted)> {
        self.sources.mixes.stop();
        self.sources.mixes.take()
    }

    /// Restores the mask and policy of every task that still lives, and ends the journal. Returns lines for the user.
    pub fn finish(mut self) -> Vec<String> {
        // Nothing is placed, moved or stopped any more.
        self.stop_pages();
        // No child of ours is to be taken for a program's process.
        foreign::end();
        self.placing.set_plan(None);
        self.continue_all();
        let is_restored = self.restore_all();
        self.note_detached();
        self.dissolve();
        let is_undone = is_restored && !self.pausing.cgroups_stay;
        preparing::end(&mut self.actuators.journal, self.guardian.take(), is_undone);
        self.notes.take()
    }

    /// Restores masks and policies of all threads, also of those that nothing is known of. False if some may be left.
    fn restore_all(&mut self) -> bool {
        self.lifecycle.report_all();
        // A thread whose mask is inherited before it is restored creates the next one a moment later.
        let _ = sys::set_slice_and_nice(SHORT_SLICE, LOWEST_NICE);
        self.take_events();
        self.tasks.living_mut().for_each(|task| self.actuators.note_bound(&mut task.thread));
        let root = Root {
            guardian: self.guardian.as_ref().map(Guardian::pid),
            has_records: self.lifecycle.without_perf().is_none() && self.counts.lost == 0,
            ..self.root.clone()
        };
        if !self.runs.is_attached && root.is_alone(&self.actuators.proc) {
            return true;
        }
        // What can be used may have grown since the journal was begun.
        let original = self.actuators.original.clone();
        let journal = Journal { original, ..self.actuators.journal.journal().clone() };
        let (notes, searched) = restore::undo_at_end(&journal, &self.actuators.proc, root);
        self.notes.extend(notes);
        // What the kernel has recorded meanwhile is restored as it is taken in.
        for _ in 0..LAST_EVENTS {
            let before = self.counts.created;
            self.take_events();
            if self.counts.created == before {
                break;
            }
        }
        searched
    }

    fn clock(&self) -> Nanos {
        self.quantum.launched.map_or(Nanos::ZERO, |launch| now().saturating_sub(launch))
    }

    /// Lets the programs go that do not wait.
    fn launch(&mut self) {
        self.quantum.launched = Some(now());
        let jobs = 0..self.pausing.held.len();
        jobs.for_each(|job| self.release_held(job));
        self.begin_probing();
    }

    /// Takes in what has happened to tasks, and places the new threads.
    fn take_events(&mut self) {
        let mut events = Vec::new();
        self.lifecycle.drain(&mut events);
        if !events.is_empty() && !self.places_new_tasks() {
            self.quantum.rests_until = now() + RESTS;
        }
        self.tasks.begin_events();
        let is_news = !events.is_empty();
        for event in events {
            match event {
                TaskEvent::Created { at, pid, tid, parent_pid, parent_tid, found } => {
                    let lost = found;
                    self.on_creation(Creation { at, pid, tid, parent_pid, parent_tid, lost });
                }
                TaskEvent::Ended { at, tid, .. } => self.ended(at, tid),
                TaskEvent::Named { at, pid, tid, name, exec } => {
                    self.on_rename(at, pid, tid, &name, exec);
                }
                TaskEvent::Lost { count } => self.counts.lost += count,
                TaskEvent::Storm { pid, .. } => self.on_storm(pid),
            }
        }
        if is_news {
            self.give_up_if_used_up();
        }
        if let Some(why) = self.actuators.journal.trouble() {
            self.notes.push(format!("the journal is given up ({why}); the guardian goes on"));
        }
    }

    /// Takes in the end of a thread. Where a process stays stopped that was known by it, it is noted by another thread
    /// before the line is used again.
    fn ended(&mut self, at: Nanos, tid: Tid) {
        let Some(id) = self.tasks.living(tid) else { return };
        let Some(task) = self.tasks.task(id) else { return };
        self.sources.ended(task.named(), &mut task.usage);
        let thread = &task.thread;
        let (pid, is_first, gone) = (thread.pid, thread.is_first(), thread.hands_down());
        let Some(slot) = self.tasks.ended(tid, at) else { return };
        let first = self.tasks.living(pid.first_thread()).filter(|_| !is_first);
        if let Some(first) = first.and_then(|first| self.tasks.task(first)) {
            self.actuators.may_live_on_as(&mut first.thread, &gone);
        }
        if self.is_stopped(id.job) {
            self.note_all(&[pid]);
        }
        self.actuators.journal.free(slot);
    }

    /// Handles the signals that wait.
    fn answer_signals(&mut self) {
        let mut reaps = self.runs.has_piled_up;
        while let Some(arrived) = self.signals.next() {
            let mut asked = SignalAction::from(arrived);
            if self.runs.is_attached {
                if asked.ends {
                    self.detach(&signals::name(arrived.signal));
                }
                (asked.ends, asked.pass_on) = (false, false);
            }
            if asked.ends {
                self.end_scheduling(arrived.signal);
            }
            if asked.pass_on {
                let jobs = self.tasks.jobs().iter().zip(&self.pausing.held);
                // A program that has not begun handles no signal yet, and any would end it.
                let running = jobs.filter(|(job, held)| job.end.is_none() && held.is_none());
                for (job, _) in running {
                    // A child of ours that is not reaped yet: its number is its own.
                    let _ = sys::kill(job.pid, arrived.signal);
                }
            }
            if asked.ends {
                self.continue_self_stopped();
                self.end_held_for_readiness(signals::status(arrived.signal));
            }
            if arrived.signal == libc::SIGCONT {
                self.stop_again();
            }
            if asked.stop {
                (self.before_stop)();
                let me = Pid(std::process::id().cast_signed());
                let _ = sys::kill(me, libc::SIGSTOP);
            }
            reaps |= asked.reap;
        }
        if reaps {
            self.reap();
        }
    }

    /// Why the quantum is over, if it is.
    fn end_of_quantum(&mut self, until: Nanos, is_short: bool) -> Option<QuantumEnd> {
        if self.tasks.all_ended() && self.runs.leaving.is_empty() {
            self.take_events();
            return Some(QuantumEnd::AllJobsEnded);
        }
        if self.sources.times.take_phase_ends() {
            self.quantum.looks = true;
            self.quantum.pending_end = self.quantum.pending_end.or(Some(QuantumEnd::Elapsed));
        }
        let pending = self.quantum.pending_end.take();
        // A quantum is over when it is known what was seen in it, unless it is one of many.
        let is_known = |host: &mut Self| {
            if is_short {
                host.sources.mixes.follow(now());
            }
            is_short || host.sources.mixes.up_to_date()
        };
        let over = |host: &mut Self| host.clock() >= until && is_known(host);
        pending.or_else(|| over(self).then_some(QuantumEnd::Elapsed))
    }

    /// A quantum, or a longer one: with very many threads the CPU time that passes between two quanta, to read each thread
    /// and to decide, is at most a share of a PU, unless that took more than [`LONGEST_QUANTUM`].
    fn affordable(&self, quantum: Nanos) -> Nanos {
        if self.tasks.kept_tasks() < MANY {
            return quantum;
        }
        let decided = own_time().saturating_sub(self.quantum.deciding_since);
        quantum.max(Nanos(decided.0.saturating_mul(TIMES_DECIDING)).min(LONGEST_QUANTUM))
    }

    /// Sleeps until something happens or is due.
    fn sleep(&mut self, until: Nanos, is_short: bool) -> Result<(), SysError> {
        let at = now();
        let quantum = self.quantum.launched.unwrap_or(at) + until;
        let settled = self.placing.next_check();
        let awaits = !is_short && self.sources.mixes.awaited().is_some();
        let quantum = (!awaits).then_some(quantum);
        let polling = self.polling.next_machine_check.min(self.polling.next_poll);
        let rests = Some(self.quantum.rests_until).filter(|until| at < *until);
        let ends = [self.next_leave(), self.next_detach()];
        let due = [quantum, Some(polling), settled, rests, self.sources.due()];
        let due = due.into_iter().chain(ends).flatten().min();
        let mut timeout = due.map(|due| Duration::from(due.saturating_sub(at)));
        if self.runs.has_piled_up {
            timeout = Some(Duration::ZERO);
        }
        if let Some(poll) = self.lifecycle.poll_timeout() {
            timeout = Some(timeout.map_or(poll, |timeout| timeout.min(poll)));
        }
        let mut fds = if rests.is_none() { self.lifecycle.fds() } else { Vec::new() };
        fds.push(self.signals.fd());
        fds.extend(self.sources.mixes.awaited().filter(|_| awaits));
        fds.extend(self.sources.times.phase_fd());
        fds.extend(self.runs.probing.as_ref().map(Probing::fd));
        wait_readable(&fds, timeout)
    }

    fn observation(&mut self, mut end: QuantumEnd, is_short: bool) -> Observation {
        self.sources.begin();
        let is_last = end == QuantumEnd::AllJobsEnded;
        if self.pausing.pauser.is_some() || is_short && !is_last {
            self.read_runnable_tasks();
        } else {
            self.read_all_tasks();
        }
        self.note_reached();
        self.end_finished_jobs();
        if self.quantum.pending_end == Some(QuantumEnd::JobEnded) {
            self.quantum.pending_end = None;
            end = if end == QuantumEnd::Elapsed { QuantumEnd::JobEnded } else { end };
        }
        if end == QuantumEnd::AllJobsEnded {
            self.sources.mixes.stop();
        }
        self.throttling.read(now());
        let launch = self.quantum.launched.unwrap_or(Nanos::ZERO);
        let mut tasks = self.tasks.seen(launch, &self.pausing.waiting);
        let reports = self.sources.report(&self.machine, &self.tasks.threads(), &mut tasks);
        let moved = self.pages_moved();
        Observation { at: self.clock(), end, tasks, ended: self.runs.ended.clone(), moved, reports }
    }
}

/// How often the kernel's records are taken in after all has been restored, at most. Chosen: what was created meanwhile with a mask of ours
/// has created hardly anything itself by then.
const LAST_EVENTS: usize = 5;

/// While new threads are left to the kernel they are taken in together, once in this time. Chosen: a shell that ran 500 programs one
/// after the other took 15 % longer with it, and 25 % when each woke us (virtual machine with 2 PUs).
const RESTS: Nanos = Nanos::from_millis(10);

/// Shorter quanta are many, also where they are stretched: after one only those tasks are read that ran, and samples are not waited
/// for. Chosen: as often as all are polled.
const WHOLE: Nanos = Nanos::from_secs(1);

/// When a phase has ended the next quantum is no longer. Chosen: many times what it costs, and half of what a user wants a new phase to be
/// acted on within.
const LOOK: Nanos = Nanos::from_millis(2);

/// CPU time of the thread that calls this.
fn own_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let of = |part: i64| u64::try_from(part).unwrap_or(0);
    Nanos(of(time.tv_sec) * 1_000_000_000 + of(time.tv_nsec))
}

/// Threads from which on quanta may be stretched. Chosen: so many cost half a percent of a PU in the shortest quanta of a front end,
/// 50 ms.
const MANY: usize = 250;
/// A quantum lasts at least so many times as long as deciding took: that is 1 % of a PU. Chosen: half of what 20,000 threads may
/// cost in all.
const TIMES_DECIDING: u64 = 100;
/// No quantum is stretched to more. Chosen: the ends of jobs and changes of the machine end it, and what threads do is rarely new
/// sooner where there are tens of thousands.
const LONGEST_QUANTUM: Nanos = Nanos::from_secs(10);

impl Host for LinuxHost {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn usable(&self) -> &[PuNr] {
        &self.usable
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.provide(requests)
    }

    fn is_throttled(&self) -> bool {
        self.throttling.is_recent(now())
    }

    fn run_quantum(&mut self, plan: &Plan, asked: Nanos) -> Result<Observation, HostError> {
        let mut quantum = self.affordable(asked);
        if quantum > Nanos::ZERO && std::mem::take(&mut self.quantum.looks) {
            quantum = quantum.min(LOOK);
        }
        self.stop_waiting_jobs(plan)?;
        self.adopt(plan);
        if self.quantum.launched.is_none() {
            self.launch();
        }
        self.continue_chosen();
        self.order_pages(&plan.pages);
        let until = self.clock() + quantum;
        let is_short = self.pausing.pauser.is_none() && asked < WHOLE;
        loop {
            self.take_events();
            self.place_settled();
            self.begin_wake_ups_if_due();
            self.answer_signals();
            self.kill_overdue();
            self.end_attached();
            self.detach_if_due();
            self.release_if_ready();
            self.poll_if_due();
            if let Some(end) = self.end_of_quantum(until, is_short) {
                // What is read and decided after a quantum of no length is part of what precedes the next one.
                if quantum > Nanos::ZERO {
                    self.quantum.deciding_since = own_time();
                }
                return Ok(self.observation(end, is_short));
            }
            self.lifecycle.set_prompt(self.places_new_tasks());
            self.sleep(until, is_short).map_err(|why| HostError {
                what: "wait for thread creation".into(),
                why: why.to_string(),
            })?;
        }
    }
}
