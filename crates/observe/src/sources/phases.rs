//! When a job begins or ceases to have more than one runnable thread, reported at once by [`colocate_ebpf`], and the times of
//! threads to the moment: what a policy for such phases needs to act before its quantum is over.
//!
//! The kernel's own sums of a running thread are up to a tick short, which is 4 ms on many kernels.

use super::run_states::SchedulerTimes;
use crate::doctor::finding::{Finding, Inputs};
use crate::doctor::{FailureCause, Probe, advice};
use colocate_ebpf::{EbpfError, EbpfProgram, Follow, SchedulingState, TaskTimes};
use colocate_evidence::{JobIdx, Provider, Refusal};
use colocate_linux::clock::now;
use colocate_linux::{Tid, privilege};
use colocate_machine::Nanos;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

/// Phases of the watched jobs.
#[derive(Debug)]
pub struct PhaseBackend {
    watch: EbpfProgram,
    /// Times as last read, and below the time of the reading.
    times: HashMap<Tid, TaskTimes>,
    read_at: Nanos,
    /// Threads in `times` that do not sleep, or have not slept all the time.
    awake: HashSet<Tid>,
    active: HashSet<Tid>,
}

impl PhaseBackend {
    /// Begins to watch.
    ///
    /// # Errors
    /// Why the kernel reports nothing, and the remedy.
    pub fn start() -> Result<Self, Refusal> {
        let follow = Follow { pairs: false, phases: true };
        let watch = privilege::watching(|| EbpfProgram::start(follow)).map_err(Refusal::of)?;
        Ok(Self {
            watch,
            times: HashMap::new(),
            read_at: Nanos::ZERO,
            awake: HashSet::new(),
            active: HashSet::new(),
        })
    }

    /// Name and cost.
    #[must_use]
    pub fn provider(&self) -> Provider {
        Provider {
            name: "eBPF: sched_waking and sched_switch",
            cost: "a fraction of a microsecond for each wake-up and each switch to another thread"
                .to_owned(),
            limits: Vec::new(),
        }
    }

    /// Watches a thread of a job and its descendants from now on.
    ///
    /// # Errors
    /// If there is no room for the thread.
    pub fn add(&self, tid: Tid, job: JobIdx) -> Result<(), EbpfError> {
        privilege::watching(|| self.watch.add(tid.0.cast_unsigned(), job.0))
    }

    /// Descriptor that becomes readable at the end of a phase of at least 20 ms.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watch.phase_ends()
    }

    /// Whether a phase has ended since the last call.
    #[must_use]
    pub fn take_ends(&self) -> bool {
        self.watch.take_phase_ends()
    }

    /// Reads the times of all threads that have run or waited.
    ///
    /// # Errors
    /// If the kernel does not give them, or there are more threads than room.
    pub fn read(&mut self) -> Result<(), EbpfError> {
        privilege::watching(|| self.read_now())
    }

    fn read_now(&mut self) -> Result<(), EbpfError> {
        let lost = self.watch.lost()?.tasks;
        if lost > 0 {
            return Err(EbpfError::Full(lost));
        }
        let changed = self.watch.changed()?;
        // A thread that runs on is not reported again.
        self.active.extend(&self.awake);
        for tid in changed {
            let read = self.watch.times(tid)?;
            let tid = Tid(tid.cast_signed());
            self.active.insert(tid);
            let Some(times) = read else {
                self.ended(tid);
                continue;
            };
            self.times.insert(tid, times);
            match times.state {
                SchedulingState::Sleeps => self.awake.remove(&tid),
                SchedulingState::Waits { .. } | SchedulingState::Runs { .. } => {
                    self.awake.insert(tid)
                }
            };
        }
        // No state read above begins later, so no time is negative.
        self.read_at = now();
        Ok(())
    }

    /// A thread has ended.
    pub fn ended(&mut self, tid: Tid) {
        self.times.remove(&tid);
        self.awake.remove(&tid);
    }

    /// Threads that had run or waited at the last [`PhaseBackend::read`], since the last call.
    pub fn take_active(&mut self) -> HashSet<Tid> {
        std::mem::take(&mut self.active)
    }

    /// Times of a thread at the last [`PhaseBackend::read`]; `None` if unknown.
    #[must_use]
    pub fn times(&self, tid: Tid) -> Option<SchedulerTimes> {
        let TaskTimes { ran_ns, waited_ns, state, .. } = *self.times.get(&tid)?;
        let mut cpu_time = Nanos(ran_ns);
        let mut waited = Nanos(waited_ns);
        match state {
            SchedulingState::Sleeps => {}
            SchedulingState::Waits { since } => waited += self.read_at.saturating_sub(Nanos(since)),
            SchedulingState::Runs { since } => {
                cpu_time += self.read_at.saturating_sub(Nanos(since))
            }
        }
        Some(SchedulerTimes { cpu_time, waited })
    }
}

/// Check of the eBPF program.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    inputs.tried(Probe::LoadEbpf, "an eBPF program at sched_waking and sched_switch", |errno| match errno.0 {
        libc::ENOEXEC => FailureCause::of("expected a build with clang, found one without"),
        libc::EPERM => advice::no_ebpf(inputs.place, inputs.own),
        _ => FailureCause::of(
            "expected Linux 5.15 or later with its types (/sys/kernel/btf/vmlinux), found a kernel that loads no such program",
        ),
    })
}
