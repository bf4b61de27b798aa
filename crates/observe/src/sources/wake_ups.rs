//! Which thread wakes which, summed up in the kernel by [`colocate_ebpf`].

use super::TaskRef;
use crate::task::Tid;
use colocate_ebpf::{EbpfError, Follow, OTHERS, Watch};
use colocate_machine::Nanos;
use colocate_policy::source::{Backend, Refusal};
use colocate_policy::{TaskId, WakeUps};
use std::collections::{BTreeMap, HashMap};

/// What wakes on this machine, as far as it is watched.
#[derive(Debug)]
pub struct WakeUpCounts {
    watch: Watch,
    /// Tasks by thread. Those that have ended stay until the next reading.
    of: HashMap<Tid, TaskId>,
    ended: Vec<Tid>,
    /// By wakee and waker.
    counts: BTreeMap<(TaskId, Option<TaskId>), WakeUps>,
    /// Whether it was said that something found no room.
    has_said: bool,
}

impl WakeUpCounts {
    /// Begins to count.
    ///
    /// # Errors
    /// Why the kernel counts nothing, and the remedy.
    pub fn start() -> Result<Self, Refusal> {
        let watch = Watch::start(Follow { pairs: true, phases: false }).map_err(|why| Refusal {
            why: why.to_string(),
            remedy: "`colocate doctor` names the remedy",
        })?;
        let (of, counts) = (HashMap::new(), BTreeMap::new());
        Ok(Self { watch, of, ended: Vec::new(), counts, has_said: false })
    }

    /// What it is and costs.
    #[must_use]
    pub fn backend(&self) -> Backend {
        Backend {
            name: "eBPF: sched_waking and sched_switch",
            cost: "a fraction of a microsecond for each wake-up and each switch to another thread"
                .to_owned(),
            limits: Vec::new(),
        }
    }

    /// Watches a process that has one thread, and all that it creates from now on.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn add(&self, first: Tid) -> Result<(), EbpfError> {
        self.watch.add(first.0.cast_unsigned(), 0)
    }

    /// A task was created.
    pub fn created(&mut self, task: TaskRef) {
        self.of.insert(task.tid, task.id);
    }

    /// A task has ended. What it did before is still read.
    pub fn ended(&mut self, tid: Tid) {
        self.ended.push(tid);
    }

    /// Adds what was counted since this was last called. Where something found no room, a line about that, once.
    ///
    /// # Errors
    /// If the kernel does not say what was counted.
    pub fn read(&mut self) -> Result<Option<String>, EbpfError> {
        for pair in self.watch.take()? {
            let task = |tid: u32| self.of.get(&Tid(tid.cast_signed())).copied();
            // One that was never followed, as in a storm of threads.
            let Some(wakee) = task(pair.wakee) else { continue };
            let waker = (pair.waker != OTHERS).then(|| task(pair.waker)).flatten();
            let sum = self.counts.entry((wakee, waker)).or_insert(WakeUps {
                waker,
                wakee,
                count: 0,
                same_pu: 0,
                waited: Nanos::ZERO,
                both_ran: Nanos::ZERO,
            });
            sum.count += pair.count;
            sum.same_pu += pair.same_pu;
            sum.waited += Nanos(pair.waited_ns);
            sum.both_ran += Nanos(pair.both_ran_ns);
        }
        for tid in self.ended.drain(..) {
            self.of.remove(&tid);
        }
        let lost = self.watch.lost()?;
        if self.has_said || (lost.tasks, lost.wake_ups) == (0, 0) {
            return Ok(None);
        }
        self.has_said = true;
        Ok(Some(format!(
            "wake-ups of more threads than there is room for: of {} threads and {} wake-ups nothing is known so far",
            lost.tasks, lost.wake_ups
        )))
    }

    /// Forgets what is known of tasks other than these.
    pub fn keep(&mut self, mut is_kept: impl FnMut(TaskId) -> bool) {
        self.counts.retain(|(wakee, waker), _| is_kept(*wakee) && waker.is_none_or(&mut is_kept));
    }

    /// What was counted until [`WakeUpCounts::read`] was last called, in the order of wakees and wakers.
    #[must_use]
    pub fn counts(&self) -> Vec<WakeUps> {
        self.counts.values().copied().collect()
    }
}
