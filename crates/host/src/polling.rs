//! Polling: the machine, tasks, and whether stopped jobs have stopped.
//!
//! A quantum must cost little with hundreds of jobs, so those that waited in it are not read, and of the others
//! the place is read only if they ran. All that runs is read as a whole once a second or less often.

use crate::pausing::group;
use crate::placement::{Event, after_reset};
use crate::preparing::{MOST_CPUSETS, attached_pus, usable};
use crate::{LinuxHost, own_time};
use colocate_act::actuators::Actuators;
use colocate_act::boost::{LOWEST_NICE, PriorityBoost, SHORT_SLICE};
use colocate_act::mask_owner::MaskOwner;
use colocate_act::pause::StopState;
use colocate_evidence::{JobIdx, PlacementStatus, QuantumEnd, TaskId};
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys;
use colocate_linux::{Pid, Tid, affinity};
use colocate_machine::calibrated::keep_kinds;
use colocate_machine::{Machine, Nanos, PuSet, read};
use colocate_observe::sources::Backend as _;
use colocate_observe::sources::counters::DataLevels;
use colocate_policy::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time between two polls of which PUs there are. Chosen: what changes that is the action of an
/// administrator.
const CHECK_MACHINE_EVERY: Nanos = Nanos::from_secs(1);
/// Least time between two polls of where tasks are. Chosen, for the same reason.
const POLL_EVERY: Nanos = Nanos::from_secs(1);
/// Polling takes at most one part in this many of a PU. Chosen, to stay far below 1 %.
const POLL_SHARE: u64 = 500;
/// Tasks that are polled in one go, at most. Chosen: some 8 ms (measured on a virtual machine of 2 PUs, 16 µs each).
const MOST_AT_ONCE: usize = 500;
/// To find which sleeping threads have woken takes at most one part in this many of a PU, but for [`LONGEST_DELAY`]. Chosen:
/// a quarter of what watching may take.
const SEARCH_SHARE: u64 = 200;
/// For so long at most a thread that has woken is taken for sleeping. Chosen: as long as until all are polled again.
const LONGEST_DELAY: Nanos = POLL_EVERY;
/// So many polls in a row must find a job stopped by another process before that is reported. Chosen: one may be
/// a program that waits for its child to stop.
const STOPPED_POLLS: u8 = 2;

/// When what is polled, and what was found.
#[derive(Debug)]
pub(crate) struct Polling {
    /// When PUs are polled next.
    pub next_machine_check: Nanos,
    /// When tasks are polled next.
    pub next_poll: Nanos,
    /// When sleeping threads are searched next for those that have woken.
    next_search: Nanos,
    /// The task that was read last in the poll that is under way.
    last_read: Option<TaskId>,
    /// Jobs that were found stopped in it, and not by colocate.
    found_stopped: BTreeSet<JobIdx>,
    /// In how many polls in a row they were found so.
    stopped_polls: BTreeMap<JobIdx, u8>,
    /// Machine at the start, if its kinds of cores are measured, not reported.
    pub measured: Option<Machine>,
    /// Whether our own thread waits too long for a PU.
    boost: PriorityBoost,
    /// Our own `nice` as we were started with it.
    pub nice: i32,
}

impl Polling {
    pub fn new(nice: i32) -> Self {
        Self {
            next_machine_check: now() + CHECK_MACHINE_EVERY,
            next_poll: now() + POLL_EVERY,
            next_search: Nanos::ZERO,
            last_read: None,
            found_stopped: BTreeSet::new(),
            stopped_polls: BTreeMap::new(),
            measured: None,
            boost: PriorityBoost::default(),
            nice,
        }
    }
}

impl LinuxHost {
    /// Polls the machine, and some living tasks, if it is time to: those that come after the ones that were read
    /// last. To read all of very many would delay new ones.
    ///
    /// The machine costs one system call, so that is never put off: on a PU that is gone, no task is
    /// where he should be. Reading it anew after a change is rare, and not counted either.
    pub(crate) fn poll_if_due(&mut self) {
        self.check_own_waits();
        self.sources.drain_due();
        if now() >= self.polling.next_machine_check {
            self.check_machine();
            self.watch_sched_ext();
            self.throttling.find_quotas();
            self.sources.drain();
            self.polling.next_machine_check = now() + CHECK_MACHINE_EVERY;
        }
        if now() < self.polling.next_poll {
            return;
        }
        let begun = own_time();
        let all_seen = self.poll_next_tasks();
        if all_seen {
            self.find_lost_jobs();
            self.check_stopped();
            self.check_fillers();
        }
        let least = if all_seen { POLL_EVERY } else { Nanos::ZERO };
        let took = own_time().saturating_sub(begun);
        self.polling.next_poll = now() + least.max(Nanos(took.0.saturating_mul(POLL_SHARE)));
    }

    /// Reads the next [`MOST_AT_ONCE`] tasks. True if there are no more: then it begins with the first again.
    fn poll_next_tasks(&mut self) -> bool {
        self.read_times();
        let (at, orphans) = (now(), self.stopped_jobs());
        let next = self.tasks.living_after(self.polling.last_read, MOST_AT_ONCE);
        for id in next.iter().filter(|id| !orphans.contains(&id.job)) {
            self.read_task(*id, at);
        }
        self.polling.last_read = next.last().copied().filter(|_| next.len() == MOST_AT_ONCE);
        if self.polling.last_read.is_none() {
            self.end_of_poll();
        }
        self.polling.last_read.is_none()
    }

    /// Takes the largest share of CPU time while an equal one is too little, and no more otherwise.
    fn check_own_waits(&mut self) {
        if !self.polling.boost.has_answered() {
            // This is the first thread.
            let us = Pid(std::process::id().cast_signed());
            self.polling.boost.watch(&self.actuators.proc, us, us.first_thread());
        }
        let (table, waiting, pus) = (&self.tasks, &self.pausing.waiting, self.usable.len());
        let may_run = |id: &TaskId| !waiting.contains(&id.job);
        let crowd = || (table.runnable().filter(may_run).count(), pus);
        if let Some(boosted) = self.polling.boost.poll(now(), crowd) {
            // Where a larger share is not permitted, new threads wait longer.
            let _ = sys::set_slice_and_nice(
                SHORT_SLICE,
                if boosted { LOWEST_NICE } else { self.polling.nice },
            );
        }
    }

    /// PUs that threads of jobs may use now: those of our own mask, or, of programs that run already, those of their cpusets.
    fn usable_now(&self) -> Option<PuSet> {
        let own = || affinity::of(Tid(0)).ok();
        if !self.runs.is_attached {
            return own();
        }
        let jobs = (0..).map(JobIdx).take(self.tasks.jobs().len().min(MOST_CPUSETS));
        let processes = jobs.filter_map(|job| self.tasks.process_of(job));
        attached_pus(&self.actuators.cpusets, processes).or_else(own)
    }

    /// Notices PUs that have come or gone, and processes that were moved to another cpuset.
    fn check_machine(&mut self) {
        let Some(usable_now) = self.usable_now() else { return };
        if usable_now == self.actuators.usable {
            return;
        }
        match read::live() {
            Ok(machine) => {
                self.tasks.levels = DataLevels::of(&machine);
                self.machine = match &self.polling.measured {
                    Some(before) => keep_kinds(&machine, before),
                    None => machine,
                };
            }
            Err(why) => self.notes.push(format!("the machine has changed, but {why}")),
        }
        self.usable = usable(&self.machine, &usable_now);
        self.watch_new_pus(&usable_now);
        // A cpuset that grows widens the masks of tasks that were not placed.
        let grown = usable_now.iter().chain(self.actuators.original.iter()).collect();
        self.notes.push(format!(
            "usable PUs changed from {} to {usable_now}; planned again",
            self.actuators.usable
        ));
        self.actuators.original = grown;
        self.actuators.usable = usable_now;
        self.quantum.pending_end = Some(QuantumEnd::MachineChanged);
    }

    /// Takes in on which PUs tasks may run now: what the kernel does not report there is scanned for.
    pub(crate) fn watch_new_pus(&mut self, usable: &PuSet) {
        let unheard = !self.lifecycle.set_allowed_cpus(usable.iter()).is_empty();
        let new = self.sources.watch_pus(usable);
        if unheard && !new.is_empty() {
            self.notes.push(format!(
                "thread creation on PU {new}, not online at the start, is detected by scanning /proc: threads that live for \
                 less than some milliseconds are not placed"
            ));
        }
    }

    /// Finds first threads of jobs that live although their end was reported: when a program
    /// changes its user, the kernel takes our events from it (perf_event_open(2)).
    fn find_lost_jobs(&mut self) {
        for id in self.tasks.maybe_lost() {
            let Some(task) = self.tasks.task(id) else { continue };
            // The kernel reports an end before it is over: a task that has just ended may still be seen to run.
            if task.ended.is_none_or(|ended| now() < ended + POLL_EVERY) {
                continue;
            }
            let (pid, tid) = (task.thread.pid, task.thread.tid);
            let job = self.tasks.jobs().get(id.job.0 as usize);
            let process = match job.and_then(|job| job.attached.clone()) {
                Some(process) => Some(process),
                // A child of ours: until that is reaped, its number is its own.
                None => ProcessHandle::open(&self.actuators.proc, pid).map(Arc::new).ok(),
            };
            let stat = process.as_ref().and_then(|process| process.stat_of(tid));
            if stat.is_some_and(|stat| !stat.is_dead()) {
                self.tasks.revive(id);
                self.tasks.hold(id, process);
                self.place(id, Event::Restored, now());
            }
        }
    }

    /// Takes in that a process was reaped: none of its threads lives that was created before, whether or not the kernel's
    /// events or `/proc` have shown it. To be called when the events until then have been taken in.
    pub(crate) fn all_have_ended(&mut self, pid: Pid, before: Nanos) {
        let living = self.tasks.living_in(pid).into_iter();
        let created_before =
            |id| self.tasks.task(id).filter(|task| task.created <= before).map(|it| it.thread.tid);
        let tids: Vec<Tid> = living.filter_map(created_before).collect();
        self.lifecycle.reaped(tids.iter().copied());
        tids.into_iter().for_each(|tid| self.ended(before, tid));
    }

    /// Reads all tasks that may run.
    pub(crate) fn read_all_tasks(&mut self) {
        self.read_times();
        let at = now();
        self.sources.times.states().begin(self.tasks.with_threads(), at);
        self.polling.found_stopped.clear();
        let orphans = self.stopped_jobs();
        for id in self.tasks.living_after(None, usize::MAX) {
            if !orphans.contains(&id.job) {
                self.read_task(id, at);
            }
        }
        self.polling.last_read = None;
        self.end_of_poll();
        self.tasks.with_threads().for_each(|(pid, _)| self.sources.times.states().all_read(pid));
    }

    /// Reads the times of all threads, where they are known better than by the kernel's own sums.
    fn read_times(&mut self) {
        // Where that fails the kernel's sums remain, and a message says so.
        let _ = self.sources.times.drain();
    }

    /// Reads the usage of a living task until `at`, on the kernel's clock.
    fn read_usage(&mut self, id: TaskId, at: Nanos) {
        if let Some(task) = self.tasks.task(id) {
            self.sources.read(task.named(), at, &mut task.usage);
        }
    }

    fn read_task(&mut self, id: TaskId, at: Nanos) {
        self.read_usage(id, at);
        let Some(task) = self.tasks.task(id) else { return };
        let stat = self.actuators.read_back(&mut task.thread);
        let is_settled = !matches!(
            task.placement.status,
            PlacementStatus::PinnedByProgram | PlacementStatus::Trouble(_)
        );
        if let Some(stat) = stat {
            // Rounded down: what is known better is kept.
            task.usage.note_cpu_time(stat.cpu_time);
        }
        if stat.is_some() && is_settled {
            self.check_mask(id, at);
        } else if stat.is_some() {
            self.check_bound(id);
        }
        let Some(task) = self.tasks.task(id) else { return };
        self.sources.times.states().could_run(id, stat.is_some_and(|stat| stat.could_run()), at);
        let chose = task.placement.status == PlacementStatus::PinnedByProgram;
        let aimed = task.placement.target != Place::LeftToKernel;
        self.tasks.note_placed(id, at);
        self.tasks.note_sleep(id);
        if chose && aimed {
            self.tasks.set_target(id, Place::LeftToKernel);
        }
        if stat.is_some_and(|stat| stat.is_stopped()) && self.tasks.begins_run(id) {
            self.polling.found_stopped.insert(id.job);
        }
    }

    /// Takes in that the mask of a task, as just read, was changed by its program.
    fn check_mask(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.task(id) else { return };
        match self.actuators.mask_owner(&mut task.thread) {
            MaskOwner::Program => {
                self.actuators.respect(&mut task.thread);
                task.placement.status = PlacementStatus::PinnedByProgram;
            }
            MaskOwner::Widened => self.on_mask_reset(id, at),
            MaskOwner::Original | MaskOwner::Ours | MaskOwner::Hidden => {}
        }
    }

    /// Takes in that a program has set the original mask again on a task that it had bound: LLVM's OpenMP binds its first thread to one
    /// PU after the other as it begins.
    fn check_bound(&mut self, id: TaskId) {
        let Some(task) = self.tasks.task(id) else { return };
        if task.placement.status != PlacementStatus::PinnedByProgram
            || self.actuators.mask_owner(&mut task.thread) != MaskOwner::Original
        {
            return;
        }
        task.placement.status = PlacementStatus::LeftToKernel;
        if self.reset_target(id) {
            self.place(id, Event::Restored, now());
        }
    }

    /// Takes in that a task that was put somewhere has the original mask again.
    fn on_mask_reset(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.task(id) else { return };
        if task.placement.status != PlacementStatus::Placed {
            return;
        }
        let place = self.actuators.mask(task.thread.mark);
        if self.usable_now().is_some_and(|usable| place.intersection(&usable).is_empty()) {
            // The kernel has widened the mask, as the PU is gone: that is planned for when the machine is next polled.
            return;
        }
        let Some(task) = self.tasks.task(id) else { return };
        let age = at.saturating_sub(task.created);
        let event = after_reset(age, task.placement.was_reset);
        task.placement.was_reset = true;
        self.place(id, event, at);
    }

    /// Counts in how many polls of all tasks in a row a job was found stopped.
    fn end_of_poll(&mut self) {
        let found = std::mem::take(&mut self.polling.found_stopped).into_iter();
        let polling = |job| {
            self.polling.stopped_polls.get(&job).map_or(1, |polling| polling.saturating_add(1))
        };
        self.polling.stopped_polls = found.map(|job| (job, polling(job))).collect();
    }

    /// Reads those tasks that may have run, and where, and whether they still can, only if they have.
    ///
    /// Those that sleep are read only if the clocks of their processes say that one of them has run, or if they are alone in
    /// their processes, and seldom where they are many.
    pub(crate) fn read_runnable_tasks(&mut self) {
        self.read_times();
        let at = now();
        if !self.sources.times.has_phases() {
            self.sources.times.states().begin(self.tasks.with_threads(), at);
        }
        let orphans = self.stopped_jobs();
        // A task that was never read is read once, also while its job waits: then its first quantum has a beginning.
        let mut awake: BTreeSet<TaskId> = self.tasks.to_read().collect();
        let active = self.sources.times.take_active();
        awake.extend(active.iter().flatten().filter_map(|tid| self.tasks.living(*tid)));
        for id in awake {
            let is_new = self.tasks.task(id).is_some_and(|task| task.usage.cpu_time.is_none());
            if is_new || !orphans.contains(&id.job) {
                self.read_if_run(id, at);
            }
        }
        if active.is_some() || at < self.polling.next_search {
            return;
        }
        let begun = own_time();
        for id in self.tasks.sleeping_alone() {
            if !orphans.contains(&id.job) {
                self.read_if_run(id, at);
            }
        }
        // The kernel says with one call how long all threads of a process have run.
        let several = self.tasks.with_threads().map(|(pid, _)| pid);
        let have_run: Vec<Pid> =
            several.filter(|pid| self.sources.times.states().has_new_cpu_time(*pid)).collect();
        for pid in have_run {
            let stopped_polls = self.tasks.sleeping_of(pid);
            if stopped_polls.first().is_none_or(|id| orphans.contains(&id.job)) {
                continue;
            }
            stopped_polls.into_iter().for_each(|id| self.read_if_run(id, at));
            self.sources.times.states().all_read(pid);
        }
        let took = own_time().saturating_sub(begun);
        self.polling.next_search =
            at + Nanos(took.0.saturating_mul(SEARCH_SHARE)).min(LONGEST_DELAY);
    }

    /// Reads what a task has done, and where it is if it has run.
    fn read_if_run(&mut self, id: TaskId, at: Nanos) {
        let time = |host: &mut Self| host.tasks.task(id).and_then(|task| task.usage.cpu_time);
        let before = time(self);
        self.read_usage(id, at);
        let Some(task) = self.tasks.task(id) else { return };
        let now = task.usage.cpu_time;
        if now > before || now.is_none() || task.thread.last_ran.is_none() {
            let stat = Actuators::read_last_pu(&mut task.thread);
            stat.iter().for_each(|stat| task.usage.note_cpu_time(stat.cpu_time));
            self.sources.times.states().could_run(
                id,
                stat.is_some_and(|stat| stat.could_run()),
                at,
            );
        }
        self.tasks.note_sleep(id);
    }

    /// Reads whether what was stopped has stopped, and what was not has.
    fn check_stopped(&mut self) {
        for (job, polling) in self.polling.stopped_polls.clone() {
            if self.pausing.pauser.is_some() && polling == STOPPED_POLLS {
                self.note_on(
                    job,
                    "has been stopped, not by colocate: it takes its turns and waits for SIGCONT",
                );
            }
        }
        let Some(pauser) = &self.pausing.pauser else { return };
        let mut processes = BTreeMap::new();
        if pauser.needs_processes() {
            processes = self.tasks.handles_by_job();
        }
        for job in self.pausing.waiting.clone() {
            let of_job = processes.get(&job).map_or(&[][..], Vec::as_slice);
            let Some(pauser) = &mut self.pausing.pauser else { return };
            if pauser.poll(group(job), of_job) == StopState::FailedToStop {
                self.note_on(
                    job,
                    "goes on although it is to wait, and was stopped again and again",
                );
            }
        }
    }

    /// A line on a job.
    pub(crate) fn note_on(&mut self, job: JobIdx, what: &str) {
        let name = self.tasks.jobs().get(job.0 as usize).map_or("", |job| job.name.as_str());
        self.notes.push(format!("job {} ({name}) {what}", job.0));
    }
}
