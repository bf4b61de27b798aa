//! Settings of a host.

use crate::ready::Readiness;
use crate::target::JobTarget;
use colocate_act::launch::Command;
use colocate_engine::Meanwhile;
use colocate_evidence::JobIdx;
use colocate_linux::handle::ProcessHandle;
use colocate_machine::Nanos;
use colocate_observe::pmu::Counters;
use colocate_observe::{lifecycle, sample, sharing, spin};
use std::path::PathBuf;
use std::sync::Arc;

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
    pub targets: Vec<JobTarget>,
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
    pub lifecycle: lifecycle::LifecycleOptions,
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
    /// Whether wake-ups are counted from the launch on, and not from a third of the settle time on: what counts them takes
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
