//! Sources of evidence about the tasks of jobs: one backend a file, each with a state of its own, behind [`Backend`].
//!
//! A follower of tasks passes tasks to a backend and takes reports from it: `colocate_host::LinuxHost` does so in every
//! quantum. A backend does not see the state of others and changes no task.

pub mod accesses;
pub mod counters;
pub mod mix;
mod page_groups;
mod phases;
pub mod run_states;
pub mod spinning;
pub mod switches;
pub mod times;
pub mod wake_ups;

use crate::doctor::finding::{Check, samples};
use crate::pmu::{Metered, Start};
use colocate_evidence::{JobIdx, Provider, Refusal, SeenTask, Source, SourceReports, TaskId};
use colocate_linux::{Pid, Tid};
use colocate_machine::{Machine, Nanos};
use run_states::Read;
use std::fmt;

/// Check of a source for `colocate doctor`.
pub(crate) const fn check(source: Source) -> Check {
    match source {
        Source::Mix | Source::Spinning => samples,
        Source::Counters => counters::check,
        Source::Stacks => counters::check_stacks,
        Source::RunStates => run_states::check,
        Source::Phases => phases::check,
        Source::WakeUps => wake_ups::check,
        Source::Sharing => accesses::check,
        Source::Switches => switches::check,
        Source::Pages => accesses::check_pages,
    }
}

/// Reference to a task, for backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// Task ID in the workload.
    pub id: TaskId,
    /// Process number.
    pub pid: Pid,
    /// Thread number.
    pub tid: Tid,
}

/// Task new to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The task.
    pub task: TaskRef,
    /// Creation time on the kernel's clock.
    pub created: Nanos,
    /// [`Start::AtExec`] for the first thread of a held program.
    pub start: Start,
}

/// Jobs and tasks followed at the start of a backend.
#[derive(Clone, Debug, Default)]
pub struct FollowedTasks {
    /// Each unfinished job, with its first process and the moment from which to watch it.
    pub jobs: Vec<(JobIdx, Pid, Start)>,
    /// The living tasks.
    pub tasks: Vec<NewTask>,
}

/// Started source of evidence: receives every watched task, and reports on all at a quantum's end.
///
/// Each method but [`Backend::provider`] does nothing by default.
pub trait Backend: fmt::Debug {
    /// Name of the mechanism, its cost, and the limits of its reports here.
    fn provider(&self) -> Provider;

    /// Watches a job's process with all its threads and descendants.
    ///
    /// # Errors
    /// The kernel's refusal to watch the process.
    fn watch(&mut self, _pid: Pid, _start: Start) -> Result<(), Refusal> {
        Ok(())
    }

    /// Watches process `pid` of a job instead of the ended process `before`.
    ///
    /// # Errors
    /// The kernel's refusal to watch the process: its tasks are unknown from now on.
    fn watch_instead(&mut self, _job: JobIdx, _before: Pid, _pid: Pid) -> Result<(), Refusal> {
        Ok(())
    }

    /// Adds a new task, or a task alive at the start of the backend.
    ///
    /// # Errors
    /// Lack of room for the task, which stays unknown.
    fn created(&mut self, _new: &NewTask) -> Result<(), Refusal> {
        Ok(())
    }

    /// Reads an ended task a last time into `usage`, and forgets the task.
    fn ended(&mut self, _task: TaskRef, _usage: &mut TaskUsage) {}

    /// Prepares for the reading of tasks at the end of a quantum.
    fn begin(&mut self) {}

    /// Reads the usage of one living task until `at`, on the kernel's clock.
    fn read(&mut self, _task: TaskRef, _at: Nanos, _usage: &mut TaskUsage) {}

    /// Latest time for the next [`Backend::drain`], on the kernel's clock.
    fn due(&self) -> Option<Nanos> {
        None
    }

    /// Takes in the kernel's records: the room for unread ones is limited.
    ///
    /// # Errors
    /// A line for the user: the backend has failed and is to be dropped.
    fn drain(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Adds reports at the end of a quantum, after each task's reading; forgets all further tasks.
    fn report(&mut self, _quantum: &mut QuantumTasks<'_>) {}

    /// Takes the new lines for the user.
    fn messages(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Provider of samples for each second of CPU time.
fn of_samples(name: &'static str, rate_hz: u32) -> Provider {
    let cost = format!("{rate_hz} samples for each second of CPU time");
    Provider { name, cost, limits: Vec::new() }
}

/// Remembered tasks at the end of a quantum, by their IDs, with room for reports on them.
#[derive(Debug)]
pub struct QuantumTasks<'a> {
    /// The end of the quantum, on the kernel's clock.
    pub at: Nanos,
    /// The machine.
    pub machine: &'a Machine,
    /// Processes and threads of `tasks` in their order, with creation times of the kernel's clock.
    pub threads: &'a [(TaskRef, Nanos)],
    /// The tasks, with their usage.
    pub tasks: &'a mut [SeenTask],
    /// Reports on relations of tasks and on pages.
    pub reports: &'a mut SourceReports,
}

/// Passes `backend` the jobs and tasks already followed.
///
/// # Errors
/// The first refusal: the backend is of no use.
pub fn catch_up(backend: &mut dyn Backend, followed: &FollowedTasks) -> Result<(), Refusal> {
    for (_, pid, start) in &followed.jobs {
        backend.watch(*pid, *start)?;
    }
    followed.tasks.iter().try_for_each(|new| backend.created(new))
}

impl QuantumTasks<'_> {
    /// Task with this ID, if remembered.
    #[must_use]
    pub fn find(&self, id: TaskId) -> Option<&SeenTask> {
        let at = self.tasks.binary_search_by_key(&id, |task| task.id).ok()?;
        self.tasks.get(at)
    }
}

/// Usage of a task since its creation, as last read.
#[derive(Clone, Debug, Default)]
pub struct TaskUsage {
    /// CPU time.
    pub cpu_time: Option<Nanos>,
    /// CPU time before the task was attached.
    pub cpu_before: Nanos,
    /// Run-queue wait: time runnable without a PU.
    pub waited: Option<Nanos>,
    /// Larger of two counts: voluntary waits, and calls that read or write.
    pub switches: Option<u64>,
    /// Counts of the processor; `None` where nothing is counted.
    pub counted: Option<Box<Metered>>,
    /// Whether the task neither ran nor waited for a PU between the last two readings.
    pub sleeps: bool,
}

impl TaskUsage {
    /// Takes in its times.
    pub fn note_times(&mut self, read: Read) {
        self.note_cpu_time(read.times.cpu_time);
        // `None` is below every time, and a time never shrinks.
        self.waited = self.waited.max(Some(read.times.waited));
        self.sleeps = read.sleeps;
    }

    /// CPU time since the task is followed.
    #[must_use]
    pub fn own_cpu_time(&self) -> Option<Nanos> {
        Some(self.cpu_time?.saturating_sub(self.cpu_before))
    }

    /// Updates the CPU time by another clock, which may be coarser.
    pub fn note_cpu_time(&mut self, time: Nanos) {
        self.cpu_time = self.cpu_time.max(Some(time));
    }

    /// Updates the counts. After their end only the instructions stay known.
    pub fn note_counted(&mut self, counted: Option<Metered>) {
        let Some(counted) = counted else {
            if let Some(counted) = &mut self.counted {
                **counted = Metered { instructions: counted.instructions, ..Metered::default() };
            }
            return;
        };
        self.note_cpu_time(counted.on_cpu);
        **self.counted.get_or_insert_default() = counted;
    }

    /// Counted instructions of the task.
    #[must_use]
    pub fn instructions(&self) -> Option<u64> {
        self.counted.as_ref()?.instructions
    }
}
