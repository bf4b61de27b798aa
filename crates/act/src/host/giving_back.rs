//! The end: every task that lives on gets its original mask back.
//!
//! # Problem
//! A newborn gets its creator's mask at the beginning of its birth, and can be seen, and is heard of, at its end.
//! In between its creator may have to wait for a PU, for a tenth of a second and more where many threads want
//! it; and who is given its mask back meanwhile hands down the one that it had.
//! # Approach
//! Rounds, until some in a row have found nothing and nobody can be in the middle of creating a thread any more
//! that was given its mask back: it has used as much CPU time since as a birth takes, or it sleeps.
//! # Terms
//! - *Creating*: what a task may be at that was given its mask back and has hardly run since.

use super::LinuxHost;
use crate::book::Task;
use crate::stat::Stat;
use colocate_machine::Nanos;
use colocate_observe::runstate::RunTime;
use colocate_observe::sys::now;
use colocate_policy::TaskId;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// How long masks are given back at the end at most. What was born of a placed thread meanwhile is heard of
/// in the next round, and where threads live for a millisecond that takes some. Chosen: where twelve programs want
/// each PU, one round took 1.6 s.
const GIVE_BACK: Nanos = Nanos::from_secs(5);
/// So many rounds in a row must find nothing, with [`PAUSE`] between them: what has just been born is heard of
/// a little later. Chosen: together 50 ms, some slices of the scheduler; with 20 ms, on two PUs with a load of
/// 11, one ending of seven missed threads.
const QUIET: usize = 10;
/// Time between two rounds that find nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// CPU time after which a birth is over. Chosen: twenty times what it takes (50 µs in a virtual machine).
const BIRTH: Nanos = Nanos::from_millis(1);

/// Who may be in the middle of creating a thread, with the CPU time that it had used when it was given its mask
/// back; `None` if the kernel does not say.
type Creating = HashMap<TaskId, Option<(Nanos, RunTime)>>;

impl LinuxHost {
    /// Gives every task that still lives its original mask, until no more of them are born with another.
    pub(super) fn give_masks_back(&mut self) {
        let (begun, mut quiet) = (now(), 0);
        let mut creating = Creating::new();
        while quiet < QUIET && now() < begun + GIVE_BACK {
            self.hear();
            if self.book.all_living().next().is_none() {
                // Without tasks that live on there is nothing to wait for.
                return;
            }
            if self.release_all(&mut creating) {
                quiet = 0;
                continue;
            }
            let waits = self.still_create(&mut creating);
            quiet = if waits { 0 } else { quiet + 1 };
            std::thread::sleep(PAUSE);
        }
    }

    /// Gives every living task its original mask back. True if one had another.
    fn release_all(&mut self, creating: &mut Creating) -> bool {
        let living: Vec<TaskId> = self.book.all_living().map(|(_, id)| id).collect();
        let mut released = false;
        for id in living {
            let Some(task) = self.book.task(id) else { continue };
            if self.placer.release(task) {
                let time = RunTime::open(&self.placer.proc, task.pid, task.tid).ok();
                creating.insert(id, time.and_then(|time| Some((time.read()?, time))));
                released = true;
            }
        }
        released
    }

    /// Forgets who cannot be creating a thread any more. True if somebody is left.
    fn still_create(&mut self, creating: &mut Creating) -> bool {
        let proc = &self.placer.proc;
        creating.retain(|id, time| {
            let task = self.book.task(*id).filter(|task| task.ended.is_none());
            task.is_some_and(|task| {
                let has_run = time.as_ref().is_none_or(|(then, time)| {
                    time.read().is_none_or(|now| now.saturating_sub(*then) >= BIRTH)
                });
                !has_run && waits_for_a_pu(proc, task)
            })
        });
        !creating.is_empty()
    }
}

fn waits_for_a_pu(proc: &Path, task: &Task) -> bool {
    Stat::read(proc, task.pid, task.tid).is_some_and(|stat| stat.state == 'R')
}
