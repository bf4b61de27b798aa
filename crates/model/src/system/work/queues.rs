//! Third step of a round: waits at controllers, links and caches.

use super::{SolverState, UNSEEN};
use crate::memory::{self, agreed_wait};
use crate::system::parts::SystemParts;

/// Queue, and the accesses of tasks that pass it.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessQueue {
    pub passing: Vec<QueueAccess>,
    /// Wait of an access, in seconds.
    pub wait: f64,
    /// Used share of the bandwidth at this wait.
    used: f64,
}

/// Accesses of a task that pass a queue: a share of its misses of one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueAccess {
    task: u32,
    /// Index in `levels`.
    level: u32,
    share: f64,
    /// Share of the queue's bandwidth used by a line a second.
    load: f64,
}

/// Rate of a task while waits are computed, in cycles per instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Going {
    /// Cycles other than waits.
    rest: f64,
    waits: f64,
    /// Instructions per cycle: 1 / (rest + waits).
    pub rate: f64,
}

impl Going {
    fn update(&mut self) {
        self.rate = 1.0 / (self.rest + self.waits);
    }
}

impl AccessQueue {
    pub fn forget(&mut self) {
        self.wait = 0.0;
        self.used = 0.0;
    }

    /// Lets task `t` pass with a share of its misses of one of `levels`; a line a second uses
    /// `load` of the bandwidth.
    pub fn pass(&mut self, t: usize, level: usize, share: f64, load: f64) {
        #[allow(clippy::cast_possible_truncation)] // a machine has fewer than 2^32 PUs and caches
        let task = t as u32;
        #[allow(clippy::cast_possible_truncation)] // as above
        let level = level as u32;
        match self.passing.last_mut() {
            // Another route over the same link.
            Some(last) if (last.task, last.level, last.load) == (task, level, load) => {
                last.share += share;
            }
            _ => self.passing.push(QueueAccess { task, level, share, load }),
        }
    }
}

/// Requests of a task by its misses of one level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LevelRequests {
    /// Cycles per instruction for each second of wait.
    cycles: f64,
    /// Lines moved in such a cycle.
    lines: f64,
    /// Wait of each miss, in seconds: the sum over its queues, weighted by the share that passes
    /// each.
    waited: f64,
}

impl AccessQueue {
    /// Finds the wait at which the queue and the rates of the waiting tasks agree.
    ///
    /// All cycles of a task other than waits stay constant, so its rate is `1 / (rest + waits)`.
    fn agree(&mut self, scale: f64, asked: &mut [LevelRequests], going: &mut [Going]) {
        let mut used = 0.0;
        let mut fall = 0.0;
        for access in &self.passing {
            let asked = asked[access.level as usize];
            let cycles = access.share * asked.cycles * going[access.task as usize].rate;
            let load = cycles * asked.lines * access.load;
            used += load;
            fall += load * cycles;
        }
        // The wait rises ever more steeply towards the full bandwidth, so the tolerance shrinks.
        if (used - self.used).abs() <= UNSEEN * (1.0 - self.used).powi(2) {
            return;
        }
        // `fall` is the derivative of the used share, negated: longer waits lower the rates.
        let wait = agreed_wait(scale, self.wait, used, fall);
        let longer = wait - self.wait;
        for access in &self.passing {
            let going = &mut going[access.task as usize];
            let asked = &mut asked[access.level as usize];
            asked.waited += access.share * longer;
            going.waits += access.share * longer * asked.cycles;
            going.update();
        }
        self.wait = wait;
        self.used = memory::used(scale, wait);
    }

    /// Used share of the bandwidth for tasks with these rates.
    fn used_by(&self, asked: &[LevelRequests], rate: impl Fn(u32) -> f64) -> f64 {
        self.passing.iter().fold(0.0, |used, access| {
            let asked = asked[access.level as usize];
            used + access.share * asked.cycles * rate(access.task) * asked.lines * access.load
        })
    }
}

impl SolverState {
    /// Makes waits and the rates of the waiting tasks agree, one queue after the other.
    pub fn wait(&mut self, parts: &SystemParts) {
        self.ask();
        let Self { tasks, queues, asked, going, .. } = self;
        for (queue, part) in queues.iter_mut().zip(&parts.queues) {
            queue.agree(part.scale, asked, going);
        }
        for (task, going) in tasks.iter_mut().zip(going) {
            task.cpi.queues = going.waits;
        }
    }

    /// Computes the requests of the tasks, and their rates with the waits of the last round.
    pub fn ask(&mut self) {
        let Self { tasks, levels, asked, going, .. } = self;
        going.clear();
        for task in &mut *tasks {
            task.cpi.queues = 0.0;
            let rest = task.busy.given + task.cpi.stalled();
            let mut waits = 0.0;
            let delay = task.clock / task.parallel;
            let last = task.last();
            for at in task.first..=task.others() {
                // Lines written back go to memory only.
                let written = if at == last { 1.0 + task.written_back } else { 1.0 };
                let asked = &mut asked[at];
                asked.cycles = levels[at].misses * delay;
                // `cycles` counts a cycle once for all outstanding misses, so each moves as many
                // lines.
                asked.lines = task.parallel * written;
                waits += asked.cycles * asked.waited;
            }
            going.push(Going { rest, waits, rate: 1.0 / (rest + waits) });
        }
    }

    /// Adds up the known waits of misses at the queues.
    pub(crate) fn add_waits(&mut self) {
        let Self { levels, queues, asked, .. } = self;
        asked.clear();
        asked.resize(levels.len(), LevelRequests::default());
        for queue in queues.iter().filter(|queue| queue.wait > 0.0) {
            for access in &queue.passing {
                asked[access.level as usize].waited += access.share * queue.wait;
            }
        }
    }

    /// Wait of an access at each queue, in seconds.
    pub(crate) fn all_waits(&self) -> Vec<f64> {
        self.queues.iter().map(|queue| queue.wait).collect()
    }

    /// Used shares of the bandwidth of controllers, links and caches.
    pub fn used(&self, parts: &SystemParts) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let used = self.queues.iter();
        let used =
            used.map(|queue| queue.used_by(&self.asked, |t| self.tasks[t as usize].ipc.found));
        let mut used: Vec<f64> = used.collect();
        let caches = parts.caches.iter().map(|cache| cache.queue.map_or(0.0, |q| used[q]));
        let caches = caches.collect();
        let links = used[parts.controllers..][..parts.links].to_vec();
        // The controllers are the first of the queues.
        used.truncate(parts.controllers);
        (used, links, caches)
    }
}
