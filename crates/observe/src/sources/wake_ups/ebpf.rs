//! Wake-ups summed up in the kernel by [`colocate_ebpf`].
//!
//! Where they are so many that counting takes more than 0.5 % of the PUs' time, they are counted in windows ([`Windows`]). The rates
//! of the last window then stand for the time since.

use super::windows::{Count, Windows};
use super::{WakeUpPair, WokenRuns};
use colocate_ebpf::{EbpfError, EbpfProgram, Follow, OTHERS, PairCounts};
use colocate_evidence::{Provider, Turns};
use colocate_linux::clock::now;
use colocate_linux::privilege;
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;

/// Name and cost.
pub(super) fn provider() -> Provider {
    Provider {
        name: "eBPF: sched_waking and sched_switch",
        cost: "0.4 µs for each wake-up that is counted, in all up to 0.5 % of the PUs' time"
            .to_owned(),
        limits: Vec::new(),
    }
}

/// eBPF program and its counts.
#[derive(Debug)]
pub(super) struct EbpfWakeUps {
    watch: EbpfProgram,
    windows: Windows,
    /// Counts of the last window, or of the time before the first window.
    last: Vec<WakeUpPair>,
    /// Length of the window that stands for a longer time; `None` for a complete count.
    length: Option<Nanos>,
    taken_at: Nanos,
}

impl EbpfWakeUps {
    /// Starts counting on `pus` PUs.
    pub fn start(pus: usize) -> Result<Self, EbpfError> {
        let follow = Follow { pairs: true, phases: false };
        let watch = privilege::watching(|| EbpfProgram::start(follow))?;
        let at = now();
        let windows = Windows::new(pus, at);
        Ok(Self { watch, windows, last: Vec::new(), length: None, taken_at: at })
    }

    /// Watches a thread and its descendants from now on.
    pub fn add(&self, tid: Tid) -> Result<(), EbpfError> {
        privilege::watching(|| self.watch.add(tid.0.cast_unsigned(), 0))
    }

    /// End of the open window, if any.
    pub fn window_ends(&self) -> Option<Nanos> {
        self.windows.ends()
    }

    /// Takes in how often the watched threads have switched so far.
    pub fn note_switches(&mut self, at: Nanos, sum: u64) {
        self.windows.note_switches(at, sum);
    }

    /// Wake-ups since the last call, extrapolated from the counted part of the time.
    pub fn take(&mut self) -> Result<Vec<WakeUpPair>, EbpfError> {
        privilege::watching(|| self.take_now())
    }

    fn take_now(&mut self) -> Result<Vec<WakeUpPair>, EbpfError> {
        let at = now();
        let passed = at.saturating_sub(std::mem::replace(&mut self.taken_at, at));
        let mut count = 0;
        if self.windows.is_taken(at) {
            self.last = self.watch.take()?.into_iter().map(pair).collect();
            self.length = self.windows.length();
            count = self.last.iter().map(|pair| pair.count).sum();
        }
        match self.windows.next(count, at) {
            Some(Count::From(from)) => self.watch.follow(from.0, u64::MAX)?,
            Some(Count::Between(from, until)) => self.watch.follow(from.0, until.0)?,
            Some(Count::None) => {
                self.watch.detach();
                // The complete count stands for the time until the first window.
                self.length = self.length.or(Some(passed));
            }
            None => {}
        }
        let Some(length) = self.length else { return Ok(std::mem::take(&mut self.last)) };
        let scaled = self.last.iter().map(|pair| pair.scaled(passed, length)).collect();
        self.last.iter_mut().filter_map(|pair| pair.ran.as_mut()).for_each(|ran| {
            // Turns are counted as seen, so once.
            (ran.apart, ran.together) = (Turns::default(), Turns::default());
        });
        Ok(scaled)
    }

    /// Unwatched processes that have woken watched threads, with the number of wake-ups.
    pub fn outside(&self) -> Vec<(Pid, u64)> {
        let found = self.watch.outside().unwrap_or_default().into_iter();
        found.map(|(pid, count)| (Pid(pid.cast_signed()), count)).collect()
    }

    /// Message about counts lost for want of room, if any.
    pub fn lost(&self) -> Result<Option<String>, EbpfError> {
        let lost = privilege::watching(|| self.watch.lost())?;
        Ok(((lost.tasks, lost.wake_ups) != (0, 0)).then(|| {
            format!(
                "wake-ups of more threads than there is room for: of {} threads and {} wake-ups nothing is known so far",
                lost.tasks, lost.wake_ups
            )
        }))
    }
}

fn pair(of: PairCounts) -> WakeUpPair {
    WakeUpPair {
        waker: (of.waker != OTHERS).then(|| Tid(of.waker.cast_signed())),
        wakee: Tid(of.wakee.cast_signed()),
        count: of.count,
        ran: Some(WokenRuns {
            same_pu: of.same_pu,
            waited: Nanos(of.waited_ns),
            both_ran: Nanos(of.both_ran_ns),
            apart: turns(of.apart),
            together: turns(of.together),
        }),
    }
}

fn turns(of: colocate_ebpf::Turns) -> Turns {
    Turns { count: of.count, total: Nanos(of.ns) }
}

impl WakeUpPair {
    /// Extrapolation to `passed` of a count over `length`; turns are as counted.
    fn scaled(&self, passed: Nanos, length: Nanos) -> Self {
        let scaled = |sum| scale(sum, passed, length);
        let ran = self.ran.map(|ran| WokenRuns {
            same_pu: scaled(ran.same_pu),
            waited: Nanos(scaled(ran.waited.0)),
            both_ran: Nanos(scaled(ran.both_ran.0)),
            ..ran
        });
        Self { count: scaled(self.count), ran, ..*self }
    }
}

/// `sum * passed / length`, rounded to the nearest; `length` 0 counts as 1.
fn scale(sum: u64, passed: Nanos, length: Nanos) -> u64 {
    let length = u128::from(length.0.max(1));
    let product = u128::from(sum) * u128::from(passed.0);
    u64::try_from((product + length / 2) / length).unwrap_or(u64::MAX)
}
