//! Which evidence this host provides: one backend of [`colocate_observe::sources`] for each source.

use crate::page_groups::PageGroups;
use crate::{LinuxHost, Sampling};
use colocate_engine::Request;
use colocate_evidence::{
    Provider, Grant, JobEnd, JobIdx, Refusal, SeenTask, Sharing, Source, TaskId, WakeUps,
};
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_linux::sys;
use colocate_machine::{Nanos, PuSet};
use colocate_model::stack::Parts;
use colocate_observe::pmu::{Counters, Start};
use colocate_observe::sample::SampleOptions;
use colocate_observe::sharing::groups::Count;
use colocate_observe::sources::counters::TaskCounters;
use colocate_observe::sources::mix::Mixes;
use colocate_observe::sources::phases::Phases;
use colocate_observe::sources::run_states::RunStates;
use colocate_observe::sources::sharing::SharedMemory;
use colocate_observe::sources::spinning::Spinning;
use colocate_observe::sources::switches::Switches;
use colocate_observe::sources::wake_ups::WakeUpCounts;
use std::cmp::Reverse;

/// So long after wake-ups began to be counted, all threads have been reported that were created by then. Chosen: many times what
/// that takes as a rule.
const SEEN_AFTER: Nanos = Nanos::from_millis(100);

/// The backends.
#[derive(Debug)]
pub(crate) struct Sources {
    pub mixes: Mixes,
    pub run_states: RunStates,
    pub phases: Option<Phases>,
    counters: Option<TaskCounters>,
    spinning: Option<Spinning>,
    wake_ups: Option<WakeUpCounts>,
    sharing: Option<SharedMemory>,
    /// Whether use of the same memory was requested; else its samples are of pages alone.
    has_sharing: bool,
    /// Which pages tasks use.
    pub pages: Option<PageGroups>,
    /// Whether they are counted from the launch on.
    all_wake_ups: bool,
    /// Whether they are to be counted once the programs have settled.
    wake_ups_are_due: bool,
    /// A thread that was created before may have been created by one that was not watched yet.
    all_watched_from: Nanos,
    pub switches: Switches,
    /// How often it is sampled, and where.
    pub options: SampleOptions,
    spin_rate_hz: u32,
    access_rate_hz: u32,
    /// What counts in place of what the processor has.
    instead: Option<Counters>,
    /// Our own `nice` as we were started with it.
    nice: i32,
}

impl Sources {
    pub fn new(
        sampling: &Sampling,
        watch: &colocate_observe::lifecycle::Options,
        nice: i32,
    ) -> Self {
        Self {
            mixes: Mixes::default(),
            run_states: RunStates::default(),
            phases: None,
            counters: None,
            spinning: None,
            wake_ups: None,
            sharing: None,
            has_sharing: false,
            pages: None,
            all_wake_ups: sampling.all_wake_ups,
            wake_ups_are_due: false,
            all_watched_from: Nanos::ZERO,
            switches: Switches::default(),
            options: SampleOptions {
                rate_hz: sampling.mix_hz,
                watch: watch.clone(),
                most_steps: colocate_observe::sample::MOST_STEPS,
            },
            spin_rate_hz: sampling.spin_hz,
            access_rate_hz: sampling.access_hz,
            instead: sampling.counters.clone(),
            nice,
        }
    }

    /// The parts of the stacks that are counted.
    pub fn stack_parts(&self) -> Result<Parts, Refusal> {
        let nothing = || Refusal::of("nothing is counted");
        self.counters.as_ref().ok_or_else(nothing)?.stack_parts()
    }

    /// Whether accesses are sampled on each PU; if not, and nothing else needs these samples, they end.
    pub fn keeps_samples_of_all(&mut self) -> bool {
        let is_of_all = self.sharing.as_ref().is_some_and(SharedMemory::is_of_all);
        if !is_of_all && !self.has_sharing {
            self.sharing = None;
        }
        is_of_all
    }

    /// Time between two samples of what a thread accesses.
    pub fn access_period(&self) -> Nanos {
        self.sharing.as_ref().map_or(Nanos::ZERO, SharedMemory::period)
    }

    /// At which parts of memory tasks were sampled since this was last called.
    pub fn take_groups(&mut self) -> impl Iterator<Item = ((Pid, u64), TaskId, Count)> + use<> {
        self.sharing.as_mut().map(SharedMemory::take_groups).into_iter().flatten()
    }

    /// Whether anything is counted.
    pub const fn counts(&self) -> bool {
        self.counters.is_some()
    }

    /// What a thread of a backend does first: only the one that places new tasks has to be prompt.
    fn begin(&self) -> impl FnOnce() + Send + 'static {
        let nice = self.nice;
        move || drop(sys::set_slice_and_nice(Nanos::ZERO, nice))
    }

    /// What it means that PUs have come since sampling began, where it matters.
    pub fn not_sampled(&self, new: &PuSet) -> Option<String> {
        self.spinning.as_ref()?;
        Some(format!(
            "threads on PU {new}, not online at the start, are not sampled: a thread that waits in a loop there counts as \
             it did before"
        ))
    }
}

impl LinuxHost {
    /// Answers requests. What targets need is counted without a request.
    pub(crate) fn provide(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        self.sources.mixes.stop();
        let is_requested = |source| requests.iter().any(|request| request.source == source);
        if self.sources.counters.is_none() && self.runs.targets.instructions().is_some() {
            // They were found before anything was launched; should they be gone, the targets are not reached.
            let _ = self.count(is_requested(Source::Stacks));
        }
        let mut grants = Vec::new();
        for request in requests {
            let answer = match request.source {
                Source::Mix => self.sample_mixes(request.jobs),
                Source::Counters => self.count(is_requested(Source::Stacks)),
                Source::Stacks => self.count(true).and_then(|backend| {
                    self.sources.stack_parts()?;
                    Ok(Provider { limits: Vec::new(), ..backend })
                }),
                Source::RunStates => Ok(self.sources.run_states.start()),
                Source::Phases => self.watch_phases(),
                Source::Spinning => self.sample_spinning(),
                Source::WakeUps => self.count_wake_ups(),
                Source::Sharing => {
                    self.sources.has_sharing = true;
                    self.sample_accesses()
                }
                Source::Pages => self.sample_pages(),
                Source::Switches => Ok(self.sources.switches.start()),
            };
            grants.push(Grant { source: request.source, answer });
        }
        grants
    }

    fn sample_mixes(&mut self, jobs: &[JobIdx]) -> Result<Provider, Refusal> {
        let job = |(place, pid): (usize, Pid)| Some((JobIdx(u32::try_from(place).ok()?), pid));
        let given = self.tasks.given().filter_map(job);
        let jobs: Vec<_> = given.filter(|(job, _)| jobs.contains(job)).collect();
        let begin = self.sources.begin();
        self.sources.mixes.start(&jobs, &self.sources.options, begin).map_err(Refusal::of)
    }

    /// A program that is not released yet is sampled from its exec.
    fn sampled_from(&self, job: usize) -> Start {
        let is_held = self.pausing.held.get(job).is_some_and(Option::is_some);
        if is_held { Start::AtExec } else { Start::Now }
    }

    /// Counts every living task, and each that is created.
    fn count(&mut self, stacks: bool) -> Result<Provider, Refusal> {
        if self.sources.counters.is_none() {
            let found = match self.sources.instead.clone() {
                Some(counters) => TaskCounters::new(counters),
                None => TaskCounters::find(&self.actuators.proc, stacks).map_err(Refusal::of)?,
            };
            self.sources.counters = Some(found);
            let living: Vec<TaskId> = self.tasks.all_living().map(|(_, id)| id).collect();
            living.into_iter().for_each(|id| self.count_new(id));
        }
        let nothing = || Refusal::of("nothing is counted");
        self.sources.counters.as_ref().map(TaskCounters::backend).ok_or_else(nothing)
    }

    fn sample_spinning(&mut self) -> Result<Provider, Refusal> {
        let rate_hz = self.sources.spin_rate_hz;
        if self.sources.spinning.is_none() {
            let begin = self.sources.begin();
            let watch = &self.sources.options.watch;
            let mut spinning = Spinning::new(rate_hz, watch, begin).map_err(Refusal::of)?;
            for (place, pid) in self.tasks.given() {
                spinning.also(pid, self.sampled_from(place)).map_err(Refusal::of)?;
            }
            self.sources.spinning = Some(spinning);
        }
        let nothing = || Refusal::of("nothing is sampled");
        self.sources.spinning.as_ref().map(Spinning::backend).ok_or_else(nothing)
    }

    pub(crate) fn sample_accesses(&mut self) -> Result<Provider, Refusal> {
        if self.sources.sharing.is_none() {
            let watch = &self.sources.options.watch;
            let mut sharing = SharedMemory::start(self.sources.access_rate_hz, watch)?;
            for (place, pid) in self.tasks.given() {
                sharing.also(pid, self.sampled_from(place)).map_err(Refusal::of)?;
            }
            let living: Vec<TaskId> = self.tasks.all_living().map(|(_, id)| id).collect();
            for id in living {
                let task = self.tasks.task(id).map(|task| task.named());
                task.into_iter().for_each(|task| sharing.created(task));
            }
            self.sources.sharing = Some(sharing);
        }
        let nothing = || Refusal::of("nothing is sampled");
        self.sources.sharing.as_ref().map(SharedMemory::backend).ok_or_else(nothing)
    }

    fn watch_phases(&mut self) -> Result<Provider, Refusal> {
        if self.sources.phases.is_none() {
            let phases = Phases::start()?;
            let living: Vec<TaskId> = self.tasks.all_living().map(|(_, id)| id).collect();
            for id in living {
                let Some(task) = self.tasks.task(id) else { continue };
                phases.add(task.thread.tid, id.job).map_err(Refusal::of)?;
            }
            self.sources.phases = Some(phases);
        }
        let nothing = || Refusal::of("nothing is watched");
        self.sources.phases.as_ref().map(Phases::backend).ok_or_else(nothing)
    }

    /// Reads the times of all threads, where they are known better than by the kernel's own sums.
    pub(crate) fn read_times(&mut self) {
        let read = self.sources.phases.as_mut().map(Phases::read);
        if let Some(Err(why)) = read {
            self.notes.push(format!("phases are seen when quanta are over from now on: {why}"));
            self.sources.phases = None;
        }
    }

    /// Counts wake-ups, now or once the programs have settled.
    fn count_wake_ups(&mut self) -> Result<Provider, Refusal> {
        let may_wait = !self.sources.all_wake_ups && !self.runs.is_attached;
        let later = may_wait && self.sources.wake_ups.is_none();
        match WakeUpCounts::expected().filter(|_| later) {
            Some(backend) => {
                self.sources.wake_ups_are_due = true;
                Ok(backend)
            }
            None => self.begin_wake_ups(),
        }
    }

    /// Begins to count them if they are due and the programs have settled since the launch.
    pub(crate) fn begin_wake_ups_if_due(&mut self) {
        if !self.sources.wake_ups_are_due || self.clock() < self.placing.settle() {
            return;
        }
        let answer = self.begin_wake_ups();
        self.sources.wake_ups_are_due = false;
        self.sources.all_watched_from = now() + SEEN_AFTER;
        self.notes.extend(Grant { source: Source::WakeUps, answer }.lines());
    }

    fn begin_wake_ups(&mut self) -> Result<Provider, Refusal> {
        if self.sources.wake_ups.is_none() {
            let mut counts = WakeUpCounts::start(&self.sources.options.watch.cpus)?;
            let living: Vec<TaskId> = self.tasks.all_living().map(|(_, id)| id).collect();
            for id in living {
                let Some(task) = self.tasks.task(id) else { continue };
                counts.add(task.thread.tid).map_err(Refusal::of)?;
                counts.created(task.named());
            }
            self.sources.wake_ups = Some(counts);
        }
        let nothing = || Refusal::of("nothing is counted");
        self.sources.wake_ups.as_ref().map(WakeUpCounts::backend).ok_or_else(nothing)
    }

    /// When wake-ups are to be read, if they are before the next quantum is over.
    pub(crate) fn wake_ups_due(&self) -> Option<Nanos> {
        self.sources.wake_ups.as_ref().and_then(WakeUpCounts::due)
    }

    /// Reads the wake-ups until now: the room for samples that are not read yet is limited.
    pub(crate) fn read_wake_ups(&mut self) {
        let Some(counts) = &mut self.sources.wake_ups else { return };
        match counts.read() {
            Ok(said) => self.notes.extend(said),
            Err(why) => {
                self.notes.push(format!("wake-ups are not counted any more: {why}"));
                self.sources.wake_ups = None;
            }
        }
    }

    /// Programs that are not watched and have woken watched threads, the one that has done so most first. A thread of the kernel
    /// is none.
    pub fn outside_wakers(&self) -> Vec<Pid> {
        let found = self.sources.wake_ups.as_ref().map(WakeUpCounts::outside).unwrap_or_default();
        let us = Pid(std::process::id().cast_signed());
        let file = |pid: Pid| self.actuators.proc.join(format!("{pid}/exe"));
        let is_program = |pid: Pid| colocate_files::kernel::link(&file(pid)).is_ok();
        let mut found: Vec<_> =
            found.into_iter().filter(|(pid, _)| *pid != us && is_program(*pid)).collect();
        found.sort_by_key(|(pid, count)| (Reverse(*count), *pid));
        found.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Wake-ups until now, of the tasks that are not forgotten; `None` if they are unknown, or not counted yet.
    pub(crate) fn wake_ups(&mut self) -> Option<Vec<WakeUps>> {
        self.read_wake_ups();
        let counts = self.sources.wake_ups.as_mut()?;
        let table = &mut self.tasks;
        counts.keep(|id| table.task(id).is_some());
        Some(counts.counts())
    }

    /// Reads what tasks have accessed until now: the room for samples that are not read yet is limited.
    pub(crate) fn read_sharing(&mut self) {
        self.sources.sharing.iter_mut().for_each(SharedMemory::read);
    }

    /// Use of the same memory until now, of the tasks that are not forgotten; `None` if it is unknown.
    pub(crate) fn sharing(&mut self) -> Option<Vec<Sharing>> {
        self.read_sharing();
        let has_sharing = self.sources.has_sharing;
        let sharing = self.sources.sharing.as_mut().filter(|_| has_sharing)?;
        let table = &mut self.tasks;
        sharing.keep(|id| table.task(id).is_some());
        Some(sharing.sums())
    }

    /// Begins to count a new task.
    pub(crate) fn count_new(&mut self, id: TaskId) {
        if let (Some(sharing), Some(task)) = (&mut self.sources.sharing, self.tasks.task(id)) {
            sharing.created(task.named());
        }
        if let (Some(wake_ups), Some(task)) = (&mut self.sources.wake_ups, self.tasks.task(id)) {
            wake_ups.created(task.named());
            if task.created < self.sources.all_watched_from {
                // Where there is no room for it nothing is known of it, as of those that it creates.
                let _ = wake_ups.add(task.thread.tid);
            }
        }
        let Some(counters) = &mut self.sources.counters else { return };
        let Some(task) = self.tasks.task(id) else { return };
        let held = self.pausing.held.get(id.job.0 as usize).and_then(Option::as_ref);
        let waits = held.is_some_and(|held| held.pid() == task.thread.pid);
        counters.created(task.named(), waits);
        self.notes.extend(counters.trouble());
    }

    /// Reads at `at`, on the kernel's clock, what a living task has done.
    pub(crate) fn read_usage(&mut self, id: TaskId, at: Nanos) {
        let Some(task) = self.tasks.task(id) else { return };
        let named = task.named();
        let exact = self.sources.phases.as_ref().and_then(|phases| phases.times(named.tid));
        let read = self.sources.run_states.read(named, exact, &self.actuators.proc, at);
        // One that has not run has not waited anew, nor read.
        if read.is_none_or(|read| !read.sleeps) {
            task.usage.switches = self.sources.switches.read(task.named(), &self.actuators.proc);
        }
        read.into_iter().for_each(|read| task.usage.note_times(read));
        if let Some(counters) = &mut self.sources.counters {
            task.usage.note_counted(counters.read(id));
        }
    }

    /// Reads a last time what a task has done, and forgets it.
    pub(crate) fn count_ended(&mut self, id: TaskId) {
        self.sources.run_states.ended(id);
        self.sources.switches.ended(id);
        if let Some(tid) = self.tasks.task(id).map(|task| task.thread.tid) {
            self.sources.wake_ups.iter_mut().for_each(|wake_ups| wake_ups.ended(tid));
            self.sources.sharing.iter_mut().for_each(|sharing| sharing.ended(tid));
            self.sources.phases.iter_mut().for_each(|phases| phases.ended(tid));
        }
        let Some(counters) = &mut self.sources.counters else { return };
        let counted = counters.ended(id);
        if let Some(task) = self.tasks.task(id) {
            task.usage.note_counted(counted);
        }
    }

    /// Samples a job that begins anew as well.
    pub(crate) fn sample_anew(&mut self, job: JobIdx, before: Pid, pid: Pid) {
        // Where it is denied now, it is unknown how its threads wait.
        let _ = self.sources.spinning.as_mut().map(|spinning| spinning.instead(before, pid));
        let _ = self.sources.sharing.as_mut().map(|sharing| sharing.instead(before, pid));
        let _ = self.sources.wake_ups.as_ref().map(|counts| counts.add(pid.first_thread()));
        let _ = self.sources.phases.as_ref().map(|phases| phases.add(pid.first_thread(), job));
    }

    /// Adds for how long tasks have waited in loops, after their times were read.
    pub(crate) fn add_spinning(&mut self, tasks: &mut [SeenTask]) {
        let Some(spinning) = &mut self.sources.spinning else { return };
        let awake: Vec<TaskId> = self.tasks.runnable().collect();
        let table = &mut self.tasks;
        spinning.poll(awake.into_iter().filter_map(|id| {
            let task = table.task(id)?;
            let waited = task.usage.waited.unwrap_or(Nanos::ZERO);
            Some((task.thread.tid, task.id, (task.usage.cpu_time?, waited)))
        }));
        for task in tasks.iter_mut() {
            task.spun = spinning.spun(task.id);
        }
        spinning.keep(tasks.iter().map(|task| task.id));
    }

    /// Notes which jobs have reached their targets, by what was last read.
    pub(crate) fn note_reached(&mut self) {
        if self.runs.targets.instructions().is_none() {
            return;
        }
        let at = self.clock();
        for (job, instructions) in (0..).map(JobIdx).zip(self.tasks.instructions()) {
            let cpu_time = || self.tasks.cpu_time(job);
            let end = || JobEnd { job, at, status: 0, cpu_time: cpu_time() };
            self.runs.targets.counted(job, instructions, end);
        }
    }
}
