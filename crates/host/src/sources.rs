//! The sources of evidence on this host: the backends that were started, and the settings that they start with.

use crate::Sampling;
use crate::pausing::Pausing;
use crate::workload::HostState;
use colocate_engine::Request;
use colocate_evidence::{
    Grant, JobIdx, Provider, QuantumEnd, Refusal, SeenTask, Source, SourceReports, TaskId,
};
use colocate_linux::Pid;
use colocate_linux::clock::now;
use colocate_linux::sys;
use colocate_machine::{Machine, Nanos, PuSet};
use colocate_model::stack::StackParts;
use colocate_observe::pmu::{Counters, Start};
use colocate_observe::sample::clock::Contents;
use colocate_observe::sample::{Clocks, SampleOptions};
use colocate_observe::sources::accesses::Accesses;
use colocate_observe::sources::counters::TaskCounters;
use colocate_observe::sources::mix::Mixes;
use colocate_observe::sources::spinning::Spinning;
use colocate_observe::sources::switches::Switches;
use colocate_observe::sources::times::ThreadTimes;
use colocate_observe::sources::wake_ups::WakeUpCounts;
use colocate_observe::sources::{
    Backend, FollowedTasks, NewTask, QuantumTasks, TaskRef, TaskUsage, catch_up,
};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

/// The backends.
#[derive(Debug)]
pub(crate) struct Sources {
    pub mixes: Mixes,
    pub times: ThreadTimes,
    counters: Option<TaskCounters>,
    switches: Option<Switches>,
    spinning: Option<Spinning>,
    wake_ups: Option<WakeUpCounts>,
    /// Whether wake-ups are to be counted some time after the launch.
    wake_ups_are_due: bool,
    accesses: Option<Accesses>,
    settings: BackendSettings,
    messages: Vec<String>,
}

/// The settings that backends start with.
#[derive(Debug)]
struct BackendSettings {
    /// Where `/proc` is mounted.
    proc: PathBuf,
    /// How often mixes are sampled, and the clocks of all samples.
    samples: SampleOptions,
    spin_rate_hz: u32,
    access_rate_hz: u32,
    /// Counters that take the place of the processor's.
    instead: Option<Counters>,
    /// Whether wake-ups are counted from the launch on.
    all_wake_ups: bool,
    /// Our own `nice` as we were started with it.
    nice: i32,
}

impl BackendSettings {
    /// Announces what the requests sample, so that all share one clock.
    fn expect(&mut self, requests: &[Request<'_>]) {
        let samples = requests.iter().filter_map(|request| match request.source {
            Source::Mix => Some((self.samples.rate_hz, Contents::MIX)),
            Source::Spinning => Some((self.spin_rate_hz, Contents::SPINNING)),
            Source::Sharing => Some((self.access_rate_hz, Contents::ACCESSES)),
            _ => None,
        });
        let samples = samples.collect();
        self.samples.clocks.expect(samples);
    }

    /// The first call of a backend's thread: only the thread that places new tasks has to be prompt.
    fn begin(&self) -> impl FnOnce() + Send + 'static {
        let nice = self.nice;
        // A slice of zero is the kernel's default.
        move || drop(sys::set_slice_and_nice(Nanos::ZERO, nice))
    }
}

impl Sources {
    pub fn new(
        sampling: &Sampling,
        watch: &colocate_observe::lifecycle::LifecycleOptions,
        proc: &Path,
        nice: i32,
    ) -> Self {
        Self {
            mixes: Mixes::default(),
            times: ThreadTimes::new(proc),
            counters: None,
            switches: None,
            spinning: None,
            wake_ups: None,
            wake_ups_are_due: false,
            accesses: None,
            settings: BackendSettings {
                proc: proc.to_owned(),
                samples: SampleOptions {
                    rate_hz: sampling.mix_hz,
                    clocks: Clocks::new(watch.clone()),
                    most_steps: colocate_observe::sample::MOST_STEPS,
                },
                spin_rate_hz: sampling.spin_hz,
                access_rate_hz: sampling.access_hz,
                instead: sampling.counters.clone(),
                all_wake_ups: sampling.all_wake_ups,
                nice,
            },
            messages: Vec::new(),
        }
    }

    /// Answers requests. What targets need is counted without a request, if `counts_targets`.
    pub fn provide(
        &mut self,
        requests: &[Request<'_>],
        counts_targets: bool,
        followed: &FollowedTasks,
        machine: &Machine,
    ) -> Vec<Grant> {
        let stacks = requests.iter().any(|request| request.source == Source::Stacks);
        if counts_targets {
            // They were found before anything was launched; should they be gone, the targets are not reached.
            let _ = self.count(stacks, followed);
        }
        self.settings.expect(requests);
        let grant = |request: &Request<'_>| Grant {
            source: request.source,
            answer: self.start(request, stacks, followed, machine),
        };
        requests.iter().map(grant).collect()
    }

    /// Starts what provides `source`, unless it is started. `stacks`: whether counters are to be those of CPI stacks.
    fn start(
        &mut self,
        request: &Request<'_>,
        stacks: bool,
        followed: &FollowedTasks,
        machine: &Machine,
    ) -> Result<Provider, Refusal> {
        match request.source {
            Source::Mix => self.sample_mixes(request.jobs, followed),
            Source::Counters => self.count(stacks, followed),
            Source::Stacks => {
                let provider = self.count(true, followed)?;
                self.stack_parts()?;
                Ok(Provider { limits: Vec::new(), ..provider })
            }
            Source::RunStates => Ok(self.times.start()),
            Source::Phases => self.times.watch_phases(followed),
            Source::Spinning => self.sample_spinning(followed),
            Source::WakeUps => self.count_wake_ups(followed),
            Source::Sharing => {
                let provider = self.sample_accesses(followed)?;
                self.accesses.iter_mut().for_each(Accesses::report_sharing);
                Ok(provider)
            }
            Source::Pages => self.sample_pages(followed, machine),
            Source::Switches => {
                let new = || Ok(Switches::new(&self.settings.proc));
                started(&mut self.switches, followed, new)
            }
        }
    }

    /// Every started backend. Times come first: others read only tasks that have run.
    fn backends(&mut self) -> impl Iterator<Item = &mut dyn Backend> {
        let all: [Option<&mut dyn Backend>; 7] = [
            Some(&mut self.times),
            self.counters.as_mut().map(|it| it as _),
            self.switches.as_mut().map(|it| it as _),
            self.spinning.as_mut().map(|it| it as _),
            self.wake_ups.as_mut().map(|it| it as _),
            self.accesses.as_mut().map(|it| it as _),
            Some(&mut self.mixes),
        ];
        all.into_iter().flatten()
    }

    fn sample_mixes(
        &mut self,
        jobs: &[JobIdx],
        followed: &FollowedTasks,
    ) -> Result<Provider, Refusal> {
        let chosen = followed.jobs.iter().filter(|(job, ..)| jobs.contains(job));
        let chosen: Vec<_> = chosen.map(|(job, pid, _)| (*job, *pid)).collect();
        let begin = self.settings.begin();
        self.mixes.start(&chosen, &self.settings.samples, begin).map_err(Refusal::of)
    }

    /// Counts every living task, and each that is created.
    fn count(&mut self, stacks: bool, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        let BackendSettings { instead, proc, .. } = &self.settings;
        started(&mut self.counters, followed, || match instead.clone() {
            Some(counters) => Ok(TaskCounters::new(counters)),
            None => TaskCounters::find(proc, stacks).map_err(Refusal::of),
        })
    }

    fn sample_spinning(&mut self, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        let BackendSettings { spin_rate_hz, samples, .. } = &self.settings;
        started(&mut self.spinning, followed, || {
            Spinning::new(*spin_rate_hz, &samples.clocks, self.settings.begin())
                .map_err(Refusal::of)
        })
    }

    /// Counts wake-ups, now or, for programs that are launched, before these have settled.
    fn count_wake_ups(&mut self, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        if let Some(counts) = &self.wake_ups {
            return Ok(counts.provider());
        }
        let is_launch = followed.jobs.iter().any(|(.., start)| *start == Start::AtExec);
        let later = is_launch && !self.settings.all_wake_ups;
        if let Some(provider) = WakeUpCounts::expected().filter(|_| later) {
            self.wake_ups_are_due = true;
            return Ok(provider);
        }
        self.begin_wake_ups(followed)
    }

    /// Begins to count wake-ups if that is due: a third of a settle time after the launch, so that
    /// rates are known before programs have settled, and short programs cost nothing. A quantum without
    /// other jobs that wait ends, so that rates count from now.
    pub fn begin_wake_ups_if_due(
        &mut self,
        work: &mut HostState,
        pausing: &Pausing,
        settle: Nanos,
    ) {
        if !self.wake_ups_are_due || work.clock() < Nanos(settle.0 / 3) {
            return;
        }
        let answer = self.begin_wake_ups(&followed(work, pausing));
        if answer.is_ok() && !pausing.may_stop() {
            work.pending_end = work.pending_end.or(Some(QuantumEnd::Elapsed));
        }
        work.notes.extend(Grant { source: Source::WakeUps, answer }.lines());
    }

    fn begin_wake_ups(&mut self, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        self.wake_ups_are_due = false;
        let cpus = &self.settings.samples.clocks.watch.cpus;
        started(&mut self.wake_ups, followed, || WakeUpCounts::start(cpus))
    }

    fn sample_accesses(&mut self, followed: &FollowedTasks) -> Result<Provider, Refusal> {
        let BackendSettings { access_rate_hz, samples, .. } = &self.settings;
        started(&mut self.accesses, followed, || Accesses::start(*access_rate_hz, &samples.clocks))
    }

    /// Samples which pages tasks use. Where that is refused and nothing else needs the samples, these end.
    fn sample_pages(
        &mut self,
        followed: &FollowedTasks,
        machine: &Machine,
    ) -> Result<Provider, Refusal> {
        if machine.nodes.len() < 2 {
            return Err(Refusal {
                why: "expected several NUMA nodes, found one".to_owned(),
                remedy: "there is nothing to move on this machine",
            });
        }
        let provider = self.sample_accesses(followed)?;
        let reported = self.accesses.as_mut().map_or(Ok(()), Accesses::report_pages);
        if reported.is_err() {
            self.accesses.take_if(|accesses| !accesses.has_sharing());
        }
        reported.map(|()| provider)
    }

    /// The parts of the stacks that are counted.
    pub fn stack_parts(&self) -> Result<StackParts, Refusal> {
        let none = || Refusal::of("nothing is counted");
        self.counters.as_ref().ok_or_else(none)?.stack_parts()
    }

    /// Whether anything is counted.
    pub const fn counts(&self) -> bool {
        self.counters.is_some()
    }

    /// Takes in a new task.
    pub fn created(&mut self, new: &NewTask) {
        for backend in self.backends() {
            // Where there is no room for it nothing is known of it, as of those that it creates.
            let _ = backend.created(new);
        }
    }

    /// Reads an ended task a last time, and forgets it.
    pub fn ended(&mut self, task: TaskRef, usage: &mut TaskUsage) {
        self.backends().for_each(|backend| backend.ended(task, usage));
    }

    /// Watches the first process of a job that begins anew.
    pub fn watch_instead(&mut self, job: JobIdx, before: Pid, pid: Pid) {
        for backend in self.backends() {
            // Where it is denied now, its tasks are unknown.
            let _ = backend.watch_instead(job, before, pid);
        }
    }

    /// Watches PUs that have come since sampling began. A line about evidence that is missing there.
    pub fn watch_pus(&mut self, usable: &PuSet) -> PuSet {
        let known = &mut self.settings.samples.clocks.watch.cpus;
        let new: PuSet = usable.iter().filter(|pu| !known.contains(pu)).collect();
        known.extend(new.iter());
        if self.spinning.is_some() && !new.is_empty() {
            self.messages.push(format!(
                "threads on PU {new}, not online at the start, are not sampled: a thread that waits in a loop there counts as \
                 it did before"
            ));
        }
        new
    }

    /// Reads the usage of a living task until `at`, on the kernel's clock.
    pub fn read(&mut self, task: TaskRef, at: Nanos, usage: &mut TaskUsage) {
        self.backends().for_each(|backend| backend.read(task, at, usage));
    }

    /// Prepares for the reading of tasks at the end of a quantum.
    pub fn begin(&mut self) {
        self.backends().for_each(Backend::begin);
    }

    /// The time at which records are to be taken in, if a backend names one.
    pub fn due(&mut self) -> Option<Nanos> {
        self.backends().filter_map(|backend| backend.due()).min()
    }

    /// Takes in the kernel's records. A backend that has failed is dropped, with a message.
    pub fn drain(&mut self) {
        let Self { wake_ups, accesses, messages, .. } = self;
        drain(wake_ups, messages);
        drain(accesses, messages);
    }

    /// Takes in the records of backends that are due now.
    pub fn drain_due(&mut self) {
        if self.due().is_some_and(|due| now() >= due) {
            self.drain();
        }
    }

    /// Adds the reports of all backends on `tasks`, see [`QuantumTasks`].
    pub fn report(
        &mut self,
        machine: &Machine,
        threads: &[(TaskRef, Nanos)],
        tasks: &mut [SeenTask],
    ) -> SourceReports {
        self.drain();
        let mut reports = SourceReports::NONE;
        let mut quantum =
            QuantumTasks { at: now(), machine, threads, tasks, reports: &mut reports };
        self.backends().for_each(|backend| backend.report(&mut quantum));
        reports
    }

    /// Takes the lines for the user that have come up.
    pub fn messages(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.messages);
        self.backends().for_each(|backend| lines.extend(backend.messages()));
        lines
    }

    /// Programs that are not watched and have woken watched threads, the most frequent first. Threads of the kernel are left
    /// out.
    pub fn outside_wakers(&self) -> Vec<Pid> {
        let us = Pid(std::process::id().cast_signed());
        let mut found = self.wake_ups.as_ref().map(WakeUpCounts::outside).unwrap_or_default();
        found.retain(|(pid, _)| {
            // Threads of the kernel have no executable.
            let program = self.settings.proc.join(format!("{pid}/exe"));
            *pid != us && colocate_files::kernel::link(&program).is_ok()
        });
        // Equal counts by number, so that the order does not depend on a map's.
        found.sort_by_key(|(pid, count)| (Reverse(*count), *pid));
        found.into_iter().map(|(pid, _)| pid).collect()
    }
}

/// Provider of a slot, whose backend is started unless it runs.
fn started<B: Backend>(
    slot: &mut Option<B>,
    followed: &FollowedTasks,
    start: impl FnOnce() -> Result<B, Refusal>,
) -> Result<Provider, Refusal> {
    let backend = match slot.take() {
        Some(backend) => backend,
        None => {
            let mut backend = start()?;
            catch_up(&mut backend, followed)?;
            backend
        }
    };
    Ok(slot.insert(backend).provider())
}

/// Takes in the records of a backend, and drops it if it has failed.
fn drain<B: Backend>(slot: &mut Option<B>, messages: &mut Vec<String>) {
    let failed = slot.as_mut().and_then(|backend| backend.drain().err());
    if let Some(line) = failed {
        messages.push(line);
        *slot = None;
    }
}

/// The jobs and tasks that are followed now.
pub(crate) fn followed(work: &mut HostState, pausing: &Pausing) -> FollowedTasks {
    let jobs = work.table.jobs.processes();
    let jobs = jobs.map(|(job, pid)| (job, pid, watched_from(pausing, job, pid))).collect();
    let living: Vec<_> = work.table.tasks.all_living().map(|task| task.id).collect();
    let tasks = living.into_iter().filter_map(|id| new_task(work, pausing, id)).collect();
    FollowedTasks { jobs, tasks }
}

/// A program that is not released yet is watched from its exec.
fn watched_from(pausing: &Pausing, job: JobIdx, pid: Pid) -> Start {
    if pausing.held(job) == Some(pid) { Start::AtExec } else { Start::Now }
}

/// A task as backends take it in.
pub(crate) fn new_task(work: &mut HostState, pausing: &Pausing, id: TaskId) -> Option<NewTask> {
    let task = work.table.tasks.get_mut(id)?;
    let (named, created) = (task.named(), task.created);
    let start = watched_from(pausing, id.job, named.pid);
    Some(NewTask { task: named, created, start })
}
