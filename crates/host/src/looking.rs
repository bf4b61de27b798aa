//! Looking how things are: at the machine, at tasks, and whether stopped jobs have stopped.
//!
//! A quantum must cost little with hundreds of jobs, so those that waited in it are not looked at, and of the others
//! only those that ran are asked where. All that runs is looked at as a whole once a second or less often.

use crate::pausing::group;
use crate::placing::Waiting;
use crate::preparing::usable;
use crate::{LinuxHost, own_time};
use colocate_act::actuators::Actuators;
use colocate_act::boost::{LEAST_NICE, PROMPT, PriorityBoost};
use colocate_act::pause::Found;
use colocate_act::stat::Stat;
use colocate_act::sys;
use colocate_engine::{PlacementStatus, QuantumEnd};
use colocate_machine::measured::CoreSpeeds;
use colocate_machine::{Nanos, PuSet, read};
use colocate_observe::sources::counters::DataLevels;
use colocate_observe::sys::now;
use colocate_observe::{Pid, Tid};
use colocate_policy::{JobIdx, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Time between two looks at which PUs there are. Chosen: what changes that does so by the hand of an
/// administrator.
const GLANCE_EVERY: Nanos = Nanos::from_secs(1);
/// Least time between two looks at where tasks are. Chosen, for the same reason.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);
/// Looking takes at most one part in this many of a PU. Chosen, to stay far below 1 %.
const LOOK_SHARE: u64 = 500;
/// Tasks that are looked at in one go, at most. Chosen: some 8 ms (measured on a virtual machine of 2 PUs, 16 µs each).
const LOOK_AT_ONCE: usize = 500;
/// To look which of those have woken that sleep takes at most one part in this many of a PU, but for [`LONGEST_REST`]. Chosen:
/// a quarter of what watching may take.
const SEARCH_SHARE: u64 = 200;
/// For so long at most a thread that has woken is taken to sleep on. Chosen: as long as until the next look at everything.
const LONGEST_REST: Nanos = LOOK_EVERY;
/// So many looks in a row must find a job stopped by another process before that is reported. Chosen: one may be
/// a program that waits for its child to stop.
const LOOKS_ASLEEP: u8 = 2;

/// When it is looked at what, and what was found.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When PUs are looked at next.
    pub next_glance: Nanos,
    /// When tasks are looked at next.
    pub next_look: Nanos,
    /// When sleeping threads are searched next for those that have woken.
    next_search: Nanos,
    /// The task that was looked at last in the look that is under way.
    looked_at: Option<TaskId>,
    /// Jobs that were found stopped in it, and not by colocate.
    found_asleep: BTreeSet<JobIdx>,
    /// In how many looks in a row they were found so.
    asleep: BTreeMap<JobIdx, u8>,
    /// Measured kinds of cores, where they take the place of those that are reported.
    pub core_speeds: Option<CoreSpeeds>,
    /// Whether our own thread waits too long for a PU.
    boost: PriorityBoost,
}

impl Looks {
    pub fn new() -> Self {
        Self {
            next_glance: now() + GLANCE_EVERY,
            next_look: now() + LOOK_EVERY,
            next_search: Nanos::ZERO,
            looked_at: None,
            found_asleep: BTreeSet::new(),
            asleep: BTreeMap::new(),
            core_speeds: None,
            boost: PriorityBoost::default(),
        }
    }
}

impl LinuxHost {
    /// Looks at the machine, and at some living tasks, if it is time to: those that come after the ones that were looked at
    /// last. A look at all of very many would keep new ones waiting.
    ///
    /// The machine costs one system call, so that is never put off: on a PU that is gone, no task is
    /// where he should be. Reading it anew after a change is rare, and not counted either.
    pub(crate) fn look_if_due(&mut self) {
        self.look_at_own_waits();
        if now() >= self.looks.next_glance {
            self.look_at_machine();
            self.looks.next_glance = now() + GLANCE_EVERY;
        }
        let begun = now();
        if begun < self.looks.next_look {
            return;
        }
        let all_seen = self.look_at_next();
        if all_seen {
            self.look_for_lost_jobs();
            self.look_at_stopped();
            self.look_at_fillers();
        }
        let least = if all_seen { LOOK_EVERY } else { Nanos::ZERO };
        let took = now().saturating_sub(begun);
        self.looks.next_look = now() + least.max(Nanos(took.0.saturating_mul(LOOK_SHARE)));
    }

    /// Looks at the next [`LOOK_AT_ONCE`] tasks. True if there are no more: then it begins with the first again.
    fn look_at_next(&mut self) -> bool {
        let (at, rests) = (now(), self.who_rests());
        let next = self.tasks.living_after(self.looks.looked_at, LOOK_AT_ONCE);
        for id in next.iter().filter(|id| !rests.contains(&id.job)) {
            self.look_at_task(*id, at);
        }
        self.looks.looked_at = next.last().copied().filter(|_| next.len() == LOOK_AT_ONCE);
        if self.looks.looked_at.is_none() {
            self.end_of_look();
        }
        self.looks.looked_at.is_none()
    }

    /// Asks for the largest share of CPU time while an equal one is too little, and for no more otherwise.
    fn look_at_own_waits(&mut self) {
        if !self.looks.boost.has_told() {
            // This is the first thread.
            let us = Pid(std::process::id().cast_signed());
            self.looks.boost.watch(&self.actuators.proc, us, us.first_thread());
        }
        let (table, waiting, pus) = (&self.tasks, &self.pausing.waiting, self.usable.len());
        let wants = |id: &TaskId| !waiting.contains(&id.job);
        let crowd = || (table.running().filter(wants).count(), pus);
        if let Some(hasty) = self.looks.boost.look(now(), crowd) {
            // Where a larger share is not permitted, new threads wait longer.
            let _ = sys::be_prompt(PROMPT, if hasty { LEAST_NICE } else { self.nice });
        }
    }

    /// Notices PUs that have come or gone, by what the kernel leaves of our own mask.
    fn look_at_machine(&mut self) {
        let Ok(usable_now) = sys::getaffinity(Tid(0)) else { return };
        if usable_now == self.actuators.usable {
            return;
        }
        match read::live() {
            Ok(machine) => {
                self.tasks.levels = DataLevels::of(&machine);
                self.machine = match &self.looks.core_speeds {
                    Some(speeds) => speeds.still_of(&machine),
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
        self.news = Some(QuantumEnd::MachineChanged);
    }

    /// Takes in on which PUs tasks may run now: what the kernel does not tell of there is looked for.
    pub(crate) fn watch_new_pus(&mut self, usable: &PuSet) {
        let unheard = !self.lifecycle.set_allowed_cpus(usable.iter()).is_empty();
        let known = &mut self.sources.options.watch.cpus;
        let new: PuSet = usable.iter().filter(|pu| !known.contains(pu)).collect();
        if new.is_empty() {
            return;
        }
        // What is watched from now on is sampled there, too.
        known.extend(new.iter());
        if unheard {
            self.notes.push(format!(
                "thread creation on PU {new}, not online at the start, is detected by scanning /proc: threads that live for \
                 less than some milliseconds are not placed"
            ));
        }
        self.notes.extend(self.sources.not_sampled(&new));
    }

    /// Finds first threads of jobs that live although their end was reported: when a program
    /// changes its user, the kernel takes our events from it (perf_event_open(2)).
    fn look_for_lost_jobs(&mut self) {
        for id in self.tasks.doubtful() {
            let Some(task) = self.tasks.task(id) else { continue };
            // The kernel reports an end before it is over: a task that has just ended may still be seen to run.
            if task.ended.is_none_or(|ended| now() < ended + LOOK_EVERY) {
                continue;
            }
            // Its first process is a child of ours: until that is reaped, its number is its own.
            let stat = Stat::read(&self.actuators.proc, task.thread.pid, task.thread.tid);
            if stat.is_some_and(|stat| !stat.is_dead()) {
                let pid = task.thread.pid;
                self.tasks.revive(id);
                self.hold_process(id, pid);
                self.start(id, Waiting::No);
            }
        }
    }

    /// Takes in that a process was reaped: none of its threads lives that was created before, whether or not the kernel's
    /// notes or `/proc` have told.
    pub(crate) fn all_have_ended(&mut self, pid: Pid, before: Nanos) {
        self.hear();
        let living = self.tasks.living_in(pid).into_iter();
        let created_before =
            |id| self.tasks.task(id).filter(|task| task.created <= before).map(|it| it.thread.tid);
        let tids: Vec<Tid> = living.filter_map(created_before).collect();
        self.lifecycle.reaped(tids.iter().copied());
        tids.into_iter().for_each(|tid| self.ended(before, tid));
    }

    /// Looks at all tasks that may run.
    pub(crate) fn look_at_tasks(&mut self) {
        let at = now();
        self.sources.run_states.begin(self.tasks.with_threads(), at);
        self.looks.found_asleep.clear();
        let rests = self.who_rests();
        for id in self.tasks.living_after(None, usize::MAX) {
            if !rests.contains(&id.job) {
                self.look_at_task(id, at);
            }
        }
        self.looks.looked_at = None;
        self.end_of_look();
        self.tasks.with_threads().for_each(|(pid, _)| self.sources.run_states.all_read(pid));
    }

    fn look_at_task(&mut self, id: TaskId, at: Nanos) {
        self.ask_what_it_did(id, at);
        let Some(task) = self.tasks.task(id) else { return };
        let stat = self.actuators.read_back(&mut task.thread);
        let is_settled = !matches!(
            task.placement.status,
            PlacementStatus::PinnedByProgram | PlacementStatus::Trouble(_)
        );
        if let Some(stat) = stat {
            // Rounded down: what is known better is kept.
            task.usage.note_cpu_time(stat.cpu_time);
            if is_settled && !self.actuators.is_ours(&task.thread) {
                self.actuators.respect(&mut task.thread);
                task.placement.status = PlacementStatus::PinnedByProgram;
            }
        }
        self.sources.run_states.could_run(id, stat.is_some_and(|stat| stat.could_run()), at);
        let chose = task.placement.status == PlacementStatus::PinnedByProgram;
        let aimed = task.placement.target_pu.is_some();
        self.tasks.slept(id);
        if chose && aimed {
            self.tasks.set_target(id, None);
        }
        if stat.is_some_and(|stat| stat.is_stopped()) && self.tasks.begins_run(id) {
            self.looks.found_asleep.insert(id.job);
        }
    }

    /// Counts in how many looks at all tasks in a row a job was found stopped.
    fn end_of_look(&mut self) {
        let found = std::mem::take(&mut self.looks.found_asleep).into_iter();
        let looks = |job| self.looks.asleep.get(&job).map_or(1, |looks| looks.saturating_add(1));
        self.looks.asleep = found.map(|job| (job, looks(job))).collect();
    }

    /// Looks at those tasks that may have run, and where, and whether they still can, only if they have.
    ///
    /// Those that sleep are looked at only if the clocks of their processes say that one of them has run, and seldom
    /// where they are many.
    pub(crate) fn look_at_who_ran(&mut self) {
        let at = now();
        self.sources.run_states.begin(self.tasks.with_threads(), at);
        let rests = self.who_rests();
        // A task that was never read is read once, also while its job waits: then its first quantum has a beginning.
        let awake: Vec<TaskId> = self.tasks.awake().collect();
        for id in awake {
            let is_new = self.tasks.task(id).is_some_and(|task| task.usage.cpu_time.is_none());
            if is_new || !rests.contains(&id.job) {
                self.ask(id, at);
            }
        }
        if at < self.looks.next_search {
            return;
        }
        // The kernel tells with one call how long all threads of a process have run.
        let several = self.tasks.with_threads().map(|(pid, _)| pid);
        let stirred: Vec<Pid> =
            several.filter(|pid| self.sources.run_states.has_new_cpu_time(*pid)).collect();
        let begun = own_time();
        for pid in stirred {
            let asleep = self.tasks.asleep_of(pid);
            if asleep.first().is_none_or(|id| rests.contains(&id.job)) {
                continue;
            }
            asleep.into_iter().for_each(|id| self.ask(id, at));
            self.sources.run_states.all_read(pid);
        }
        let took = own_time().saturating_sub(begun);
        self.looks.next_search = at + Nanos(took.0.saturating_mul(SEARCH_SHARE)).min(LONGEST_REST);
    }

    /// Asks what a task has done, and where it is if it has run.
    fn ask(&mut self, id: TaskId, at: Nanos) {
        let time = |host: &mut Self| host.tasks.task(id).and_then(|task| task.usage.cpu_time);
        let before = time(self);
        self.ask_what_it_did(id, at);
        let Some(task) = self.tasks.task(id) else { return };
        let now = task.usage.cpu_time;
        if now > before || now.is_none() || task.thread.last_ran.is_none() {
            let stat = Actuators::read_last_pu(&mut task.thread);
            stat.iter().for_each(|stat| task.usage.note_cpu_time(stat.cpu_time));
            self.sources.run_states.could_run(id, stat.is_some_and(|stat| stat.could_run()), at);
        }
        self.tasks.slept(id);
    }

    /// Looks whether what was stopped has stopped, and what was not has.
    fn look_at_stopped(&mut self) {
        for (job, looks) in self.looks.asleep.clone() {
            if self.pausing.pauser.is_some() && looks == LOOKS_ASLEEP {
                self.say(
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
            if pauser.look(group(job), of_job) == Found::Stubborn {
                self.say(job, "goes on although it is to wait, and was stopped again and again");
            }
        }
    }

    /// A line on a job.
    pub(crate) fn say(&mut self, job: JobIdx, what: &str) {
        let name = self.tasks.jobs().get(job.0 as usize).map_or("", |job| job.name.as_str());
        self.notes.push(format!("job {} ({name}) {what}", job.0));
    }
}
