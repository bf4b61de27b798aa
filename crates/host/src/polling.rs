//! Polling: the machine, tasks, and whether stopped jobs have stopped.
//!
//! A quantum must cost little with hundreds of jobs, so those that waited in it are not read, and of the others
//! the place is read only if they ran. All that runs is read as a whole once a second or less often.

use crate::crowding::Crowding;
use crate::events::HostEvents;
use crate::parts::HostParts;
use crate::placement::{PlacementEvent, Placing, after_reset, follow_all};
use crate::preparing::{MOST_CPUSETS, attached_pus, usable};
use crate::quantum::own_time;
use crate::task::TrackedTask;
use crate::throttling::Throttling;
use crate::workload::HostState;
use colocate_act::actuators::Actuators;
use colocate_act::boost::{LOWEST_NICE, PriorityBoost, SHORT_SLICE};
use colocate_act::mask_owner::MaskOwner;
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
/// Polling takes at most one part in this many of a PU. Chosen: 1,000 threads that sleep, 1.4 ms, are polled each 3 s.
const POLL_SHARE: u64 = 2_000;
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
    next_machine_check: Nanos,
    /// When tasks are polled next.
    next_poll: Nanos,
    /// When sleeping threads are searched next for those that have woken.
    next_search: Nanos,
    /// The task that was read last in the poll that is under way.
    last_read: Option<TaskId>,
    /// Jobs that were found stopped in it, and not by colocate.
    found_stopped: BTreeSet<JobIdx>,
    /// In how many polls in a row they were found so.
    stopped_polls: BTreeMap<JobIdx, u8>,
    /// Machine at the start, if its kinds of cores are measured, not reported.
    measured: Option<Machine>,
    /// Tasks that share PUs under the plan.
    pub crowding: Crowding,
    /// Whether our own thread waits too long for a PU.
    boost: PriorityBoost,
    /// Our own `nice` as we were started with it.
    nice: i32,
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
            crowding: Crowding::default(),
            boost: PriorityBoost::default(),
            nice,
        }
    }

    /// Keeps the kinds of cores of `machine` also when PUs go or come.
    pub fn keep_kinds(&mut self, machine: Machine) {
        self.measured = Some(machine);
    }

    /// Time of the next poll.
    pub fn due(&self) -> Nanos {
        let due = self.next_machine_check.min(self.next_poll);
        self.crowding.due().map_or(due, |of_shared| due.min(of_shared))
    }

    /// Polls the machine, and some living tasks, if it is time to: those that come after the ones that were read
    /// last. To read all of very many would delay new ones.
    ///
    /// The machine costs one system call, so that is never put off: on a PU that is gone, no task is
    /// where the plan has it. Reading it anew after a change is rare, and not counted either.
    pub fn poll_if_due(
        &mut self,
        parts: &mut HostParts,
        events: &mut HostEvents,
        throttling: &mut Throttling,
    ) {
        self.check_own_waits(parts);
        parts.sources.drain_due();
        // A quantum in which other jobs wait keeps its length.
        if self.crowding.read_if_due(now()) && !parts.pausing.may_stop() {
            parts.work.pending_end = parts.work.pending_end.or(Some(QuantumEnd::Crowded));
        }
        if now() >= self.next_machine_check {
            self.check_machine(parts, events);
            watch_sched_ext(&mut parts.placing, &mut parts.work);
            throttling.find_quotas();
            parts.sources.drain();
            self.next_machine_check = now() + CHECK_MACHINE_EVERY;
        }
        if now() < self.next_poll {
            return;
        }
        // CPU time: waiting for a PU costs the programs nothing.
        let begun = own_time();
        let all_seen = self.poll_next_tasks(parts);
        if all_seen {
            find_lost_jobs(parts);
            self.note_stopped(parts);
            parts.pausing.check_stopped(&mut parts.work);
            parts.pausing.check_fillers(&mut parts.work);
        }
        let least = if all_seen { POLL_EVERY } else { Nanos::ZERO };
        let took = own_time().saturating_sub(begun);
        self.next_poll = now() + least.max(Nanos(took.0.saturating_mul(POLL_SHARE)));
    }

    /// Reads the next [`MOST_AT_ONCE`] tasks. True if there are no more: then it begins with the first again.
    fn poll_next_tasks(&mut self, parts: &mut HostParts) -> bool {
        read_times(parts);
        let (at, orphans) = (now(), parts.pausing.stopped_jobs());
        let next = parts.work.table.tasks.living_after(self.last_read, MOST_AT_ONCE);
        for id in next.iter().filter(|id| !orphans.contains(&id.job)) {
            self.read_task(parts, *id, at);
        }
        // Fewer than asked for: these were the last.
        self.last_read = next.last().copied().filter(|_| next.len() == MOST_AT_ONCE);
        if self.last_read.is_none() {
            self.end_of_poll();
        }
        self.last_read.is_none()
    }

    /// Takes the largest share of CPU time while an equal one is too little, and no more otherwise.
    fn check_own_waits(&mut self, parts: &mut HostParts) {
        if !self.boost.has_answered() {
            // This is the first thread.
            let us = Pid(std::process::id().cast_signed());
            self.boost.watch(&parts.work.actuators.proc, us, us.first_thread());
        }
        let (tasks, waiting, pus) =
            (&parts.work.table.tasks, parts.pausing.waiting(), parts.work.usable.len());
        let may_run = |task: &&TrackedTask| !waiting.contains(&task.id.job);
        let crowd = || (tasks.runnable().filter(may_run).count(), pus);
        if let Some(boosted) = self.boost.poll(now(), crowd) {
            // Where a larger share is not permitted, new threads wait longer.
            let _ =
                sys::set_slice_and_nice(SHORT_SLICE, if boosted { LOWEST_NICE } else { self.nice });
        }
    }

    /// Notices PUs that have come or gone, and processes that were moved to another cpuset.
    fn check_machine(&mut self, parts: &mut HostParts, events: &mut HostEvents) {
        let Some(usable_now) = usable_now(&parts.work) else { return };
        if usable_now == parts.work.actuators.usable {
            return;
        }
        match read::live() {
            Ok(machine) => {
                parts.work.table.levels = DataLevels::of(&machine);
                parts.work.machine = match &self.measured {
                    Some(before) => keep_kinds(&machine, before),
                    None => machine,
                };
            }
            Err(why) => parts.work.notes.push(format!("the machine has changed, but {why}")),
        }
        parts.work.usable = usable(&parts.work.machine, &usable_now);
        events.watch_new_pus(parts, &usable_now);
        // A cpuset that grows widens the masks of tasks that were not placed.
        let grown = usable_now.iter().chain(parts.work.actuators.original.iter()).collect();
        parts.work.notes.push(format!(
            "usable PUs changed from {} to {usable_now}; planned again",
            parts.work.actuators.usable
        ));
        parts.work.actuators.original = grown;
        parts.work.actuators.usable = usable_now;
        parts.work.pending_end = Some(QuantumEnd::MachineChanged);
    }

    /// Reads all tasks that may run.
    pub fn read_all_tasks(&mut self, parts: &mut HostParts) {
        read_times(parts);
        let at = now();
        parts.sources.times.states().begin(parts.work.table.processes.with_threads(), at);
        self.found_stopped.clear();
        let orphans = parts.pausing.stopped_jobs();
        for id in parts.work.table.tasks.living_after(None, usize::MAX) {
            if !orphans.contains(&id.job) {
                self.read_task(parts, id, at);
            }
        }
        self.last_read = None;
        self.end_of_poll();
        let several = parts.work.table.processes.with_threads();
        several.for_each(|(pid, _)| parts.sources.times.states().all_read(pid));
    }

    /// Reads what a task has done, and its state and mask unless it has slept since these were read. A job's first task may have
    /// been stopped, which takes no time.
    fn read_task(&mut self, parts: &mut HostParts, id: TaskId, at: Nanos) {
        read_usage(parts, id, at);
        let table = &parts.work.table;
        let has_slept = table.tasks.get(id).is_some_and(TrackedTask::has_slept);
        if !has_slept || table.begins_run(id) {
            self.read_state(parts, id, at);
        }
        parts.work.table.note_placed(id, at);
        parts.work.table.note_sleep(id);
    }

    fn read_state(&mut self, parts: &mut HostParts, id: TaskId, at: Nanos) {
        let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
        let stat = parts.work.actuators.read_back(&mut task.thread);
        let is_settled = !matches!(
            task.placement.status,
            PlacementStatus::PinnedByProgram | PlacementStatus::Trouble(_)
        );
        if let Some(stat) = stat {
            // Rounded down: what is known better is kept.
            task.usage.note_cpu_time(stat.cpu_time);
            task.read_at = task.usage.cpu_time;
        }
        if stat.is_some() && is_settled {
            check_mask(parts, id, at);
        } else if stat.is_some() {
            check_bound(parts, id);
        }
        let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
        parts.sources.times.states().could_run(id, stat.is_some_and(|stat| stat.could_run()), at);
        let chose = task.placement.status == PlacementStatus::PinnedByProgram;
        let aimed = task.placement.target != Place::LeftToKernel;
        if chose && aimed {
            parts.work.table.set_target(id, Place::LeftToKernel);
        }
        if stat.is_some_and(|stat| stat.is_stopped()) && parts.work.table.begins_run(id) {
            self.found_stopped.insert(id.job);
        }
    }

    /// Counts in how many polls of all tasks in a row a job was found stopped.
    fn end_of_poll(&mut self) {
        let found = std::mem::take(&mut self.found_stopped).into_iter();
        // Saturates above the limit, so a stopped job is reported once.
        let polling =
            |job| self.stopped_polls.get(&job).map_or(1, |polling| polling.saturating_add(1));
        self.stopped_polls = found.map(|job| (job, polling(job))).collect();
    }

    /// Reads those tasks that may have run, and where, and whether they still can, only if they have.
    ///
    /// Those that sleep are read only if the clocks of their processes say that one of them has run, or if they are alone in
    /// their processes, and seldom where they are many.
    pub fn read_runnable_tasks(&mut self, parts: &mut HostParts) {
        read_times(parts);
        let at = now();
        if !parts.sources.times.has_phases() {
            parts.sources.times.states().begin(parts.work.table.processes.with_threads(), at);
        }
        let orphans = parts.pausing.stopped_jobs();
        // A task that was never read is read once, also while its job waits: then its first quantum has a beginning.
        let mut awake = parts.work.table.tasks.to_read.clone();
        let active = parts.sources.times.take_active();
        awake.extend(active.iter().flatten().filter_map(|tid| parts.work.table.tasks.living(*tid)));
        for id in awake {
            let is_new = parts
                .work
                .table
                .tasks
                .get_mut(id)
                .is_some_and(|task| task.usage.cpu_time.is_none());
            if is_new || !orphans.contains(&id.job) {
                read_if_run(parts, id, at);
            }
        }
        if active.is_some() || at < self.next_search {
            return;
        }
        let begun = own_time();
        for id in parts.work.table.tasks.sleeping_alone.clone() {
            if !orphans.contains(&id.job) {
                read_if_run(parts, id, at);
            }
        }
        // The kernel says with one call how long all threads of a process have run.
        let several = parts.work.table.processes.with_threads().map(|(pid, _)| pid);
        let have_run: Vec<Pid> =
            several.filter(|pid| parts.sources.times.states().has_new_cpu_time(*pid)).collect();
        for pid in have_run {
            let mut sleeping = parts.work.table.processes.living_in(pid);
            sleeping.retain(|id| !parts.work.table.tasks.to_read.contains(id));
            if sleeping.first().is_none_or(|id| orphans.contains(&id.job)) {
                continue;
            }
            sleeping.into_iter().for_each(|id| read_if_run(parts, id, at));
            parts.sources.times.states().all_read(pid);
        }
        let took = own_time().saturating_sub(begun);
        self.next_search = at + Nanos(took.0.saturating_mul(SEARCH_SHARE)).min(LONGEST_DELAY);
    }

    /// Notes the jobs that another process has stopped.
    fn note_stopped(&self, parts: &mut HostParts) {
        for (job, polls) in &self.stopped_polls {
            if parts.pausing.may_stop() && *polls == STOPPED_POLLS {
                let what =
                    "has been stopped, not by colocate: it takes its turns and waits for SIGCONT";
                parts.work.note_on(*job, what);
            }
        }
    }
}

/// Takes in whether a sched_ext scheduler is loaded, which changes all placements.
pub(crate) fn watch_sched_ext(placing: &mut Placing, work: &mut HostState) {
    if placing.watch_sched_ext(work) {
        follow_all(placing, work);
    }
}

/// Reads the usage of a living task until `at`, on the kernel's clock.
fn read_usage(parts: &mut HostParts, id: TaskId, at: Nanos) {
    if let Some(task) = parts.work.table.tasks.get_mut(id) {
        parts.sources.read(task.named(), at, &mut task.usage);
    }
}

/// Reads the times of all threads, where they are known better than by the kernel's own sums.
fn read_times(parts: &mut HostParts) {
    // Where that fails the kernel's sums remain, and a message says so.
    let _ = parts.sources.times.drain();
}

/// Takes in that the mask of a task, as just read, was changed by its program.
fn check_mask(parts: &mut HostParts, id: TaskId, at: Nanos) {
    let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
    match parts.work.actuators.mask_owner(&mut task.thread) {
        MaskOwner::Program => {
            parts.work.actuators.respect(&mut task.thread);
            task.placement.status = PlacementStatus::PinnedByProgram;
        }
        MaskOwner::Widened => on_mask_reset(parts, id, at),
        MaskOwner::Original | MaskOwner::Ours | MaskOwner::Hidden => {}
    }
}

/// Takes in that a program has set the original mask again on a task that it had bound: LLVM's OpenMP binds its first thread to one
/// PU after the other as it begins.
fn check_bound(parts: &mut HostParts, id: TaskId) {
    let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
    if task.placement.status != PlacementStatus::PinnedByProgram
        || parts.work.actuators.mask_owner(&mut task.thread) != MaskOwner::Original
    {
        return;
    }
    task.placement.status = PlacementStatus::LeftToKernel;
    if parts.placing.reset_target(&mut parts.work, id) {
        parts.placing.place(&mut parts.work, id, PlacementEvent::Restored, now());
    }
}

/// Takes in that a task that was put somewhere has the original mask again.
fn on_mask_reset(parts: &mut HostParts, id: TaskId, at: Nanos) {
    let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
    if task.placement.status != PlacementStatus::Placed {
        return;
    }
    let place = parts.work.actuators.mask(task.thread.mark);
    if usable_now(&parts.work).is_some_and(|usable| place.intersection(&usable).is_empty()) {
        // The kernel has widened the mask, as the PU is gone: that is planned for when the machine is next polled.
        return;
    }
    let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
    let age = at.saturating_sub(task.created);
    let event = after_reset(age, task.placement.was_reset);
    task.placement.was_reset = true;
    parts.placing.place(&mut parts.work, id, event, at);
}

/// Reads what a task has done, and where it is if it has run.
fn read_if_run(parts: &mut HostParts, id: TaskId, at: Nanos) {
    let before = parts.work.table.tasks.get_mut(id).and_then(|task| task.usage.cpu_time);
    read_usage(parts, id, at);
    let Some(task) = parts.work.table.tasks.get_mut(id) else { return };
    let now = task.usage.cpu_time;
    // A task of unknown CPU time may have run.
    if now > before || now.is_none() || task.thread.last_ran.is_none() {
        let stat = Actuators::read_last_pu(&mut task.thread);
        stat.iter().for_each(|stat| task.usage.note_cpu_time(stat.cpu_time));
        parts.sources.times.states().could_run(id, stat.is_some_and(|stat| stat.could_run()), at);
    }
    parts.work.table.note_sleep(id);
}

/// Finds first threads of jobs that live although their end was reported: when a program
/// changes its user, the kernel takes our events from it (perf_event_open(2)).
fn find_lost_jobs(parts: &mut HostParts) {
    for id in parts.work.table.maybe_lost() {
        let Some(task) = parts.work.table.tasks.get_mut(id) else { continue };
        // The kernel reports an end before it is over: a task that has just ended may still be seen to run.
        if task.ended.is_none_or(|ended| now() < ended + POLL_EVERY) {
            continue;
        }
        let (pid, tid) = (task.thread.pid, task.thread.tid);
        let job = parts.work.table.jobs.get(id.job);
        let process = match job.and_then(|job| job.attached.clone()) {
            Some(process) => Some(process),
            // A child of ours: until that is reaped, its number is its own.
            None => ProcessHandle::open(&parts.work.actuators.proc, pid).map(Arc::new).ok(),
        };
        let stat = process.as_ref().and_then(|process| process.stat_of(tid));
        if stat.is_some_and(|stat| !stat.is_dead()) {
            parts.work.table.revive(id);
            parts.work.table.hold(id, process);
            parts.placing.place(&mut parts.work, id, PlacementEvent::Restored, now());
        }
    }
}

/// PUs that threads of jobs may use now: those of our own mask, or, of programs that run already, those of their cpusets.
fn usable_now(work: &HostState) -> Option<PuSet> {
    let own = || affinity::of(Tid(0)).ok();
    if !work.is_attached {
        return own();
    }
    let jobs = (0..).map(JobIdx).zip(work.table.jobs.iter()).take(MOST_CPUSETS);
    let processes = jobs.filter_map(|(job, known)| work.table.processes.any_of(job, known.pid));
    attached_pus(&work.actuators.cpusets, processes).or_else(own)
}
