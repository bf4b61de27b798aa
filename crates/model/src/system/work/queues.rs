//! The third step of a round: waits at controllers, links and caches.

use super::{UNSEEN, Work};
use crate::memory::{self, agreed_wait};
use crate::system::parts::Parts;

/// What can be waited for, and which tasks pass it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub passing: Vec<Access>,
    /// Seconds that an access waits.
    pub wait: f64,
    /// The share of it that is in use when accesses wait so long.
    used: f64,
}

/// Accesses of a task that pass a queue: a share of its misses of one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub task: u32,
    /// Of `levels`.
    pub level: u32,
    pub share: f64,
    /// Share of the queue that is used by a line a second.
    pub load: f64,
}

/// How a task goes on while waits are found out, in cycles per instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Going {
    /// What it does beside waiting.
    rest: f64,
    waits: f64,
    /// 1 / (rest + waits).
    pub rate: f64,
}

impl Going {
    fn update(&mut self) {
        self.rate = 1.0 / (self.rest + self.waits);
    }
}

impl Queue {
    pub fn forget(&mut self) {
        (self.wait, self.used) = (0.0, 0.0);
    }
}

/// What a task requests with its misses of one level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Cycles per instruction for each second that they wait.
    cycles: f64,
    /// Lines that are moved in such a cycle.
    lines: f64,
    /// Seconds that each miss waits: of all queues that it passes, each by the share that passes it.
    waited: f64,
}

impl Queue {
    /// Lets the wait and the rates of the waiting tasks agree.
    ///
    /// What a task does beside waiting stays the same here, so its rate is `1 / (rest + waits)`.
    fn agree(&mut self, scale: f64, asked: &mut [Asked], going: &mut [Going]) {
        let (mut used, mut fall) = (0.0, 0.0);
        for access in &self.passing {
            let asked = asked[access.level as usize];
            let cycles = access.share * asked.cycles * going[access.task as usize].rate;
            let load = cycles * asked.lines * access.load;
            used += load;
            fall += load * cycles;
        }
        // The wait rises ever more steeply towards the whole bandwidth.
        if (used - self.used).abs() <= UNSEEN * (1.0 - self.used).powi(2) {
            return;
        }
        let wait = agreed_wait(scale, self.wait, used, fall);
        let longer = wait - self.wait;
        for access in &self.passing {
            let (going, asked) =
                (&mut going[access.task as usize], &mut asked[access.level as usize]);
            asked.waited += access.share * longer;
            going.waits += access.share * longer * asked.cycles;
            going.update();
        }
        (self.wait, self.used) = (wait, memory::used(scale, wait));
    }

    /// The share of it that is in use by tasks of these rates.
    fn used_by(&self, asked: &[Asked], rate: impl Fn(u32) -> f64) -> f64 {
        let load = |access: &Access| {
            let asked = asked[access.level as usize];
            access.share * asked.cycles * rate(access.task) * asked.lines * access.load
        };
        self.passing.iter().map(load).fold(0.0, |a, b| a + b)
    }
}

impl Work {
    /// Lets waits and the rates of the waiting tasks agree, one queue after the other.
    pub fn wait(&mut self, parts: &Parts) {
        self.ask();
        let Self { tasks, queues, asked, going, .. } = self;
        for (queue, part) in queues.iter_mut().zip(&parts.queues) {
            queue.agree(part.scale, asked, going);
        }
        for (task, going) in tasks.iter_mut().zip(going) {
            task.cpi.queues = going.waits;
        }
    }

    /// Computes what the tasks request, and how they go on with the waits of the last round.
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
                let written = if at == last { 1.0 + task.written_back } else { 1.0 };
                let asked = &mut asked[at];
                asked.cycles = levels[at].misses * delay;
                asked.lines = task.parallel * written;
                waits += asked.cycles * asked.waited;
            }
            going.push(Going { rest, waits, rate: 1.0 / (rest + waits) });
        }
    }

    /// How long misses wait at the queues, as far as that is known.
    pub(crate) fn add_waits(&mut self) {
        let Self { levels, queues, asked, .. } = self;
        asked.clear();
        asked.resize(levels.len(), Asked::default());
        for queue in queues.iter().filter(|queue| queue.wait > 0.0) {
            for access in &queue.passing {
                asked[access.level as usize].waited += access.share * queue.wait;
            }
        }
    }

    /// Seconds that an access waits, by queue.
    pub(crate) fn all_waits(&self) -> Vec<f64> {
        self.queues.iter().map(|queue| queue.wait).collect()
    }

    /// Used shares of controllers, links and caches.
    pub fn used(&self, parts: &Parts) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let rate = |t: u32| self.tasks[t as usize].ipc.found;
        let mut used: Vec<f64> =
            self.queues.iter().map(|queue| queue.used_by(&self.asked, rate)).collect();
        let caches = parts.caches.iter().map(|cache| cache.queue.map_or(0.0, |q| used[q]));
        let caches = caches.collect();
        let links = used[parts.controllers..][..parts.links].to_vec();
        used.truncate(parts.controllers);
        (used, links, caches)
    }
}
