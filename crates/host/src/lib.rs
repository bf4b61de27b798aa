//! This machine as a [`Host`]: programs launched, their threads placed as they are created.
//!
//! An edge crate. It composes the backends of `colocate-observe` and the actuators of `colocate-act`.
//!
//! One thread does it all, and sleeps until there is an event: a creation, an end, a signal, or a time at which to poll.
//! So a new thread waits for one wake-up and a few system calls, and nothing has to be locked.
//!
//! ```no_run
//! # use colocate_engine::RunSettings;
//! use colocate_host::{LinuxHost, Setup};
//! # fn example(setup: &Setup, workload: &RunSettings<'_>) -> Result<(), Box<dyn std::error::Error>> {
//! // Programs of `setup` wait before their exec; `workload` has an entry for each.
//! let mut host = LinuxHost::prepare(colocate_machine::read::live()?, setup)?;
//! let mut policy = colocate_policy::PolicySpec::named("mix").plain();
//! let end = colocate_engine::run(&mut host, &mut *policy, workload, None, &mut |_| ())?;
//! assert_eq!(end.ended.len(), setup.commands.len());
//! // Masks of threads that still live are restored.
//! let notes = host.finish();
//! # Ok(()) }
//! ```

mod cpu_times;
mod crowding;
mod events;
mod filling;
mod latency;
mod lives;
mod notes;
mod paging;
mod parts;
mod pausing;
mod placed;
mod placement;
mod polling;
mod preparing;
mod quantum;
mod ready;
mod runtime;
mod sched_ext;
mod setup;
mod sources;
mod target;
mod task;
mod task_table;
mod throttling;
mod totals;
mod workload;
pub use latency::Latencies;
pub use ready::{Probe, Readiness};
pub use setup::{Attached, GRACE, Sampling, Setup};
pub use target::JobTarget;
pub use task::TaskRecord;
pub use totals::RunTotals;

use crate::target::Targets;
use crate::task_table::seen;
use colocate_act::actuators::Actuators;
use colocate_act::boost::{LOWEST_NICE, SHORT_SLICE};
use colocate_act::guardian::Guardian;
use colocate_act::journal::Journal;
use colocate_act::launch::{Held, LaunchError};
use colocate_act::pause;
use colocate_act::restore::{self, Root};
use colocate_act::signals::{self, SignalAction, Signals};
use colocate_engine::{Host, HostError, Request};
use colocate_evidence::{Grant, JobIdx, Observation, QuantumEnd};
use colocate_linux::clock::now;
use colocate_linux::poll::wait_readable;
use colocate_linux::sys;
use colocate_linux::{Pid, SysError, foreign};
use colocate_machine::read::{Cpusets, Sysfs};
use colocate_machine::{Machine, Nanos, PuNr};
use colocate_model::stack;
use colocate_observe::sample::CountedThreads;
use colocate_observe::sources::counters::DataLevels;
use colocate_policy::Plan;
use events::HostEvents;
use filling::Fillers;
use lives::Runs;
use notes::Notes;
use paging::Paging;
use parts::HostParts;
use pausing::Pausing;
use placement::{Placing, adopt, leave_to_kernel, note_filter};
use polling::{Polling, watch_sched_ext};
use preparing::{
    Safeguards, begin_safeguards, can_count, hold_all, jobs_of, late_creation, masks, reserve,
    usable, watch_all, with_token,
};
use quantum::{Quantum, WHOLE};
use runtime::Runtimes;
use sources::{Sources, followed};
use std::ffi::c_int;
use std::path::Path;
use std::time::Duration;
use throttling::Throttling;
use totals::records;
use workload::HostState;

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
    signals: Signals,
    guardian: Option<Guardian>,
    /// Process of colocate, whose children programs are, with the children that it had before.
    root: Root,
    runs: Runs,
    parts: HostParts,
    polling: Polling,
    events: HostEvents,
    throttling: Throttling,
    quantum: Quantum,
    /// What is done before this process stops itself.
    before_stop: Box<dyn FnMut()>,
}

impl LinuxHost {
    /// Prepares everything, up to programs that wait to begin. To be called before threads are
    /// created, as it forks.
    ///
    /// What is not vital and cannot be had is done without; [`LinuxHost::notes`] then says so.
    ///
    /// # Errors
    /// [`LaunchError`] if a process or a pipe cannot be had, or instructions that are a target cannot be counted.
    pub fn prepare(machine: Machine, setup: &Setup) -> Result<Self, LaunchError> {
        let mut notes = Vec::new();
        let root = Root::of_this(&setup.proc);
        // Programs whose creators end become children of this process, where they are found.
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
        let mut table = jobs_of(setup, &held);
        table.tasks.keeps_last = setup.may_pause;
        table.levels = DataLevels::of(&machine);
        // A new thread runs where its creator does until we have run. After all forks, so that no
        // program inherits it; without it we are only slower.
        let nice = sys::nice();
        let _ = sys::set_slice_and_nice(SHORT_SLICE, LOWEST_NICE)
            .or_else(|_| sys::set_slice_and_nice(SHORT_SLICE, nice));
        let attached = setup.attached.iter().flat_map(|it| &it.processes).map(|it| it.pid());
        let firsts: Vec<Pid> = held.iter().map(Held::pid).chain(attached).collect();
        let lifecycle = watch_all(&firsts, &setup.lifecycle);
        notes.extend(lifecycle.without_perf().map(late_creation));
        let work = HostState {
            usable: usable(&machine, &usable_now),
            machine,
            table,
            actuators: Actuators {
                journal,
                proc: setup.proc.clone(),
                usable: usable_now,
                original,
                cpusets,
            },
            notes: Notes::default(),
            runtimes: Runtimes::default(),
            is_attached: !setup.attached.is_empty(),
            launched: None,
            pending_end: None,
        };
        let mut pausing = Pausing::new(held, setup.attached.len(), pauser, fillers, reserve);
        pausing.hold_others(setup.ready.is_some());
        let parts = HostParts {
            pausing,
            placing: Placing::new(setup.settle),
            sources: Sources::new(&setup.sampling, &setup.lifecycle, &setup.proc, nice),
            paging: Paging::new(nice),
            work,
        };
        let mut host = Self {
            runs: Runs::new(commands, targets, setup, *signals.inherited()),
            signals,
            guardian,
            root,
            parts,
            polling: Polling::new(nice),
            events: HostEvents::new(lifecycle),
            throttling: Throttling::default(),
            quantum: Quantum::new(),
            before_stop: Box::new(|| ()),
        };
        host.begin(notes);
        Ok(host)
    }

    /// Begins to follow the programs, which wait, or ran already.
    fn begin(&mut self, notes: Vec<String>) {
        let Self { parts, events, .. } = self;
        parts.work.notes.extend(notes);
        note_filter(&mut parts.work.notes);
        watch_sched_ext(&mut parts.placing, &mut parts.work);
        // Some may have come since the list of them was read.
        let usable = parts.work.actuators.usable.clone();
        events.watch_new_pus(parts, &usable);
        parts.give_up_if_unreadable(events.without_proc());
        events.take(parts);
        if parts.work.is_attached {
            events.begin_counts();
            parts.work.begin_attached();
        }
        let jobs = parts.work.table.jobs.iter();
        self.throttling.watch(jobs.map(|job| job.pid.to_string()));
        self.throttling.read(now());
    }

    /// Keeps the kinds of cores of the machine at the start also when PUs go or come: they are measured.
    pub fn keep_kinds(&mut self) {
        let machine = self.parts.work.machine.clone();
        self.polling.keep_kinds(machine);
    }

    /// From now on, calls `act` before this process stops itself because of SIGTSTP, as by Ctrl-Z. Programs that got the
    /// signal from the terminal are stopped by then.
    pub fn before_stop(&mut self, act: impl FnMut() + 'static) {
        self.before_stop = Box::new(act);
    }

    /// Lines for the user that have come up since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        self.parts.work.notes.extend(self.parts.sources.messages());
        self.parts.work.notes.take()
    }

    /// The parts of the stacks that are counted, after they were requested.
    ///
    /// # Errors
    /// Why none are, in a line.
    pub fn stack_parts(&self) -> Result<stack::StackParts, String> {
        self.parts.sources.stack_parts().map_err(|refusal| refusal.why)
    }

    /// How often each job has run to an end.
    pub fn runs(&self) -> Vec<u32> {
        self.runs.counts()
    }

    /// Instructions of each job in all its runs, as far as its tasks were counted; `None` if nothing is counted.
    pub fn instructions(&self) -> Option<Vec<u64>> {
        self.parts.sources.counts().then(|| self.parts.work.table.instructions())
    }

    /// Figures of the run so far.
    pub fn totals(&self) -> RunTotals {
        let HostParts { work, pausing, sources, .. } = &self.parts;
        RunTotals {
            quota: self.throttling.quota,
            creations: self.events.counts().clone(),
            creation_without_perf: self.events.without_perf(),
            records: records(work),
            placed: work.table.placed.until(now()),
            first_processes: work.table.jobs.iter().map(|job| job.pid).collect(),
            is_attached: work.is_attached,
            has_given_up: pausing.has_given_up(),
            most_living: work.table.tasks.most_living,
            forgotten: work.table.tasks.forgotten,
            runs: self.runs(),
            instructions: self.instructions(),
            known_cpu_times: work.known_cpu_times(),
            outside_wakers: sources.outside_wakers(),
        }
    }

    /// What was found out about each watched job; ends the watching.
    pub fn watched(&mut self) -> Vec<(JobIdx, CountedThreads)> {
        self.parts.sources.mixes.stop();
        self.parts.sources.mixes.take()
    }

    /// Ends every launched job, whatever its target: with SIGTERM, and after [`Setup::grace`] with SIGKILL. The quanta that
    /// follow see the ends; after the last one nothing of them is left.
    pub fn terminate_all(&mut self) {
        self.runs.terminate_all(&mut self.parts);
    }

    /// Restores the mask and policy of every task that still lives, and ends the journal. Returns lines for the user.
    pub fn finish(mut self) -> Vec<String> {
        // Nothing is placed, moved or stopped any more.
        self.parts.paging.stop();
        // No child of ours is to be taken for a program's process.
        foreign::end();
        self.parts.placing.set_plan(None);
        self.parts.pausing.continue_all(&mut self.parts.work);
        let is_restored = self.restore_all();
        self.runs.note_detached(&mut self.parts.work);
        let HostParts { mut work, mut pausing, .. } = self.parts;
        pausing.dissolve(&mut work.notes);
        let is_undone = is_restored && !pausing.cgroups_stay();
        preparing::end(&mut work.actuators.journal, self.guardian.take(), is_undone);
        work.notes.take()
    }

    /// Restores masks and policies of all threads, also of those that nothing is known of. False if some may be left.
    fn restore_all(&mut self) -> bool {
        let Self { parts, events, .. } = self;
        events.report_all();
        // A thread whose mask is inherited before it is restored creates the next one a moment later.
        let _ = sys::set_slice_and_nice(SHORT_SLICE, LOWEST_NICE);
        events.take(parts);
        let HostState { table, actuators, is_attached, .. } = &mut parts.work;
        table.tasks.living_mut().for_each(|task| actuators.note_bound(&mut task.thread));
        let root = Root {
            guardian: self.guardian.as_ref().map(Guardian::pid),
            has_records: events.has_records(),
            ..self.root.clone()
        };
        if !*is_attached && root.is_alone(&actuators.proc) {
            return true;
        }
        // What can be used may have grown since the journal was begun.
        let original = actuators.original.clone();
        let journal = Journal { original, ..actuators.journal.journal().clone() };
        let (notes, searched) = restore::undo_at_end(&journal, &actuators.proc, root);
        parts.work.notes.extend(notes);
        // What the kernel has recorded meanwhile is restored as it is taken in.
        for _ in 0..LAST_EVENTS {
            let before = events.counts().created;
            events.take(parts);
            if events.counts().created == before {
                break;
            }
        }
        searched
    }

    /// Ends the scheduling for good after a signal that ends programs, as a stopped program could
    /// not end. All jobs continue under the kernel's placement. A host that stops no job keeps to
    /// its plan.
    fn end_scheduling(&mut self, signal: c_int) {
        if !self.parts.pausing.may_stop() {
            return;
        }
        let HostParts { work, placing, pausing, paging, .. } = &mut self.parts;
        pausing.end(signal);
        paging.stop();
        pausing.continue_all(work);
        leave_to_kernel(placing, work);
        if pausing.may_fill() {
            // A thread that nothing is known of would end under SCHED_IDLE, which can take it long, and keep its cgroup and
            // the kernel busy: see how children are reaped.
            self.restore_all();
        }
        let HostParts { work, pausing, .. } = &mut self.parts;
        pausing.dissolve(&mut work.notes);
        work.notes.push(format!(
            "{} has ended the scheduling: a program that goes on is left to the kernel, and jobs that have not reached \
             their targets have status {}",
            signals::name(signal),
            signals::status(signal)
        ));
    }

    /// Lets the programs go that do not wait.
    fn launch(&mut self) {
        self.parts.work.launched = Some(now());
        self.parts.pausing.release_all(&mut self.parts.work);
        self.runs.begin_probing(&mut self.parts);
    }

    /// Handles the signals that wait.
    fn answer_signals(&mut self) {
        let mut reaps = self.runs.has_piled_up();
        while let Some(arrived) = self.signals.next() {
            let mut asked = SignalAction::from(arrived);
            // Programs that ran already are not ended with colocate, and get no signals from it.
            if self.parts.work.is_attached {
                if asked.ends {
                    self.runs.detach(&mut self.parts, &signals::name(arrived.signal));
                }
                asked.ends = false;
                asked.pass_on = false;
            }
            if asked.ends {
                self.end_scheduling(arrived.signal);
            }
            let HostParts { work, pausing, .. } = &mut self.parts;
            if asked.pass_on {
                pass_on(work, pausing, arrived.signal);
            }
            if asked.ends {
                continue_self_stopped(work);
                let status = signals::status(arrived.signal);
                self.runs.end_held_for_readiness(&mut self.parts, status);
            }
            if arrived.signal == libc::SIGCONT {
                self.parts.pausing.stop_again(&mut self.parts.work);
            }
            if asked.stop {
                (self.before_stop)();
                let me = Pid(std::process::id().cast_signed());
                let _ = sys::kill(me, libc::SIGSTOP);
            }
            reaps |= asked.reap;
        }
        if reaps {
            self.runs.reap(&mut self.parts, &mut self.events, &mut self.guardian);
        }
    }

    /// Why the quantum is over, if it is.
    fn end_of_quantum(&mut self, until: Nanos, is_short: bool) -> Option<QuantumEnd> {
        let Self { parts, events, .. } = self;
        if parts.work.table.jobs.have_ended() && self.runs.have_left() {
            events.take(parts);
            return Some(QuantumEnd::AllJobsEnded);
        }
        let HostParts { work, sources, .. } = parts;
        if sources.times.take_phase_ends() {
            self.quantum.end_phase();
            work.pending_end = work.pending_end.or(Some(QuantumEnd::Elapsed));
        }
        if let Some(pending) = work.pending_end.take() {
            return Some(pending);
        }
        if work.clock() < until {
            return None;
        }
        // A quantum is over when it is known what was seen in it, unless it is one of many.
        if is_short {
            sources.mixes.follow(now());
        }
        (is_short || sources.mixes.up_to_date()).then_some(QuantumEnd::Elapsed)
    }

    /// Sleeps until something happens or is due.
    fn sleep(&mut self, until: Nanos, is_short: bool) -> Result<(), SysError> {
        let Self { parts, events, runs, .. } = self;
        let at = now();
        let quantum = parts.work.launched.unwrap_or(at) + until;
        let awaits = !is_short && parts.sources.mixes.awaited().is_some();
        let quantum = (!awaits).then_some(quantum);
        let rests = events.rests_until(at);
        let ends = [runs.next_leave(), runs.next_detach(&parts.work), Some(self.polling.due())];
        let due = [quantum, parts.placing.next_check(), rests, parts.sources.due()];
        let due = due.into_iter().chain(ends).flatten().min();
        let mut timeout = due.map(|due| Duration::from(due.saturating_sub(at)));
        if runs.has_piled_up() {
            timeout = Some(Duration::ZERO);
        }
        if let Some(poll) = events.poll_timeout() {
            timeout = Some(timeout.map_or(poll, |timeout| timeout.min(poll)));
        }
        let mut fds = if rests.is_none() { events.fds() } else { Vec::new() };
        fds.push(self.signals.fd());
        fds.extend(parts.sources.mixes.awaited().filter(|_| awaits));
        fds.extend(parts.sources.times.phase_fd());
        fds.extend(runs.probing_fd());
        wait_readable(&fds, timeout)
    }

    fn observation(&mut self, mut end: QuantumEnd, is_short: bool) -> Observation {
        let Self { parts, runs, .. } = self;
        parts.sources.begin();
        if parts.pausing.may_stop() || is_short && end != QuantumEnd::AllJobsEnded {
            self.polling.read_runnable_tasks(parts);
        } else {
            self.polling.read_all_tasks(parts);
        }
        runs.note_reached(&parts.work);
        runs.end_finished_jobs(parts);
        let HostParts { work, pausing, sources, paging, .. } = parts;
        // The ends are in this observation, so the next quantum need not end for them.
        if work.pending_end == Some(QuantumEnd::JobEnded) {
            work.pending_end = None;
            let is_minor = matches!(end, QuantumEnd::Elapsed | QuantumEnd::Crowded);
            end = if is_minor { QuantumEnd::JobEnded } else { end };
        }
        if end == QuantumEnd::AllJobsEnded {
            sources.mixes.stop();
        }
        self.throttling.read(now());
        let mut tasks = seen(&work.table, work.launched.unwrap_or_default(), pausing.waiting());
        let threads = work.table.tasks.remembered().map(|task| (task.named(), task.created));
        let mut reports = sources.report(&work.machine, &threads.collect::<Vec<_>>(), &mut tasks);
        reports.shared_pus = Some(self.polling.crowding.take(now()));
        let (moved, ended) = (paging.moved(work), runs.ended().to_vec());
        Observation { at: work.clock(), end, tasks, ended, moved, reports }
    }
}

/// Sends a signal to the first processes of the jobs that run.
fn pass_on(work: &HostState, pausing: &Pausing, signal: c_int) {
    for job in work.running_jobs() {
        // A program that has not begun handles no signal yet, and any would end it.
        if pausing.held(job).is_none() {
            // A child of ours that is not reaped yet: its number is its own.
            let _ = work.table.jobs.get(job).map(|known| sys::kill(known.pid, signal));
        }
    }
}

/// Continues processes that have stopped themselves, so that a signal can end them, like
/// timeout(1).
fn continue_self_stopped(work: &mut HostState) {
    for job in work.running_jobs() {
        let mut stopped = work.table.processes.handles_of(job);
        stopped.retain(|process| process.stat().is_some_and(|stat| stat.state == 'T'));
        let continued = pause::signal(&stopped, libc::SIGCONT);
        work.report_failure(job, "continue_self_stopped", continued);
    }
}

/// How often the kernel's records are taken in after all has been restored, at most. Chosen: what was created meanwhile with a mask of ours
/// has created hardly anything itself by then.
const LAST_EVENTS: usize = 5;

impl Host for LinuxHost {
    fn machine(&self) -> &Machine {
        &self.parts.work.machine
    }

    fn usable(&self) -> &[PuNr] {
        &self.parts.work.usable
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        let HostParts { work, pausing, sources, .. } = &mut self.parts;
        // The samples of mixes end before tasks are listed.
        sources.mixes.stop();
        let followed = followed(work, pausing);
        let counts_targets = self.runs.counts_instructions();
        sources.provide(requests, counts_targets, &followed, &work.machine)
    }

    fn is_throttled(&self) -> bool {
        self.throttling.is_recent(now())
    }

    fn run_quantum(&mut self, plan: &Plan, asked: Nanos) -> Result<Observation, HostError> {
        let HostParts { work, placing, pausing, .. } = &mut self.parts;
        let places = plan.places_any() || pausing.may_stop();
        let quantum = self.quantum.begin(asked, work.table.tasks.remembered().len(), places);
        pausing.stop_waiting_jobs(work, plan)?;
        adopt(placing, work, pausing, plan);
        if work.launched.is_none() {
            self.launch();
        }
        let HostParts { work, pausing, paging, .. } = &mut self.parts;
        pausing.continue_chosen(work);
        if !pausing.is_over() {
            paging.order(work, &plan.pages);
        }
        self.polling.crowding.begin(work, plan, now());
        let until = work.clock() + quantum;
        let is_short = !pausing.may_stop() && asked < WHOLE;
        loop {
            let Self { parts, events, .. } = self;
            events.take(parts);
            parts.placing.place_settled(&mut parts.work);
            let HostParts { work, placing, pausing, sources, .. } = parts;
            sources.begin_wake_ups_if_due(work, pausing, placing.settle());
            self.answer_signals();
            let Self { parts, events, runs, .. } = self;
            runs.kill_overdue(parts, events);
            runs.end_attached(parts);
            runs.detach_if_due(parts);
            runs.release_if_ready(parts);
            self.polling.poll_if_due(parts, events, &mut self.throttling);
            if let Some(end) = self.end_of_quantum(until, is_short) {
                self.quantum.end(quantum);
                return Ok(self.observation(end, is_short));
            }
            let places_new = self.parts.pausing.may_stop() || self.parts.placing.places_new_tasks();
            self.events.set_prompt(places_new);
            self.sleep(until, is_short).map_err(|why| HostError {
                what: "wait for thread creation".into(),
                why: why.to_string(),
            })?;
        }
    }
}
