//! NUMA balancing: moves of threads and their memory towards each other.
//!
//! # Problem
//! A thread that was moved to another node has its memory far away.
//!
//! # Approach
//! The effect of the kernel's NUMA balancing (kernel/sched/fair.c, mm/memory.c, Linux 6.6): once a
//! period it unmaps some of a thread's memory and sees from which node it is touched next. Here,
//! once a period, for each thread with memory on other nodes than its own:
//! - If most of its memory is on one other node, the thread goes there, if a PU is idle there and
//!   load balancing would not move it away again. Else it changes places with a thread there, if
//!   both together then have more memory near.
//! - Else, if it was on the same node a period ago, the scanned part of its far memory comes to its
//!   node: a page moves when it was touched from the same node twice.
//!
//! Scanning and copying take the time that [`Kernel`](crate::Kernel) says, by default none. Threads
//! that are pinned stay; their memory comes. Scans of shared memory by several threads count as
//! one: it moves where two scans in a row are from the same node.

use crate::kernel::NumaBalancing;
use crate::memory::Memory;
use crate::region::PAGE;
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};

/// Shares of far memory below this count as none.
const NEAR: f64 = 1e-3;

impl World<'_> {
    /// Share of a task's memory off the node of `pu`.
    pub(crate) fn far_share(&self, task: TaskNo, pu: PuIdx) -> f64 {
        let node = self.platform.node_of(pu);
        let near = node.and_then(|node| self.tasks[task].pages.get(node));
        near.map_or(0.0, |near| (1.0 - near).max(0.0))
    }

    /// Sets the next scan of a task's memory: the next multiple of the period, if some memory is
    /// far.
    pub(crate) fn watch_pages(&mut self, task: TaskNo) {
        let Some(settings) = self.scenario.kernel.numa_balancing else { return };
        let far = self.queues.pu_of(task).map_or(0.0, |pu| self.far_share(task, pu));
        self.tasks[task].next_scan = if far > NEAR {
            Nanos((self.events.now().0 / settings.period.0 + 1).saturating_mul(settings.period.0))
        } else {
            Nanos(u64::MAX)
        };
        self.scan_at = self.scan_at.min(self.tasks[task].next_scan);
    }

    /// Runs NUMA balancing for every task whose scan is due.
    pub(crate) fn scan_pages(&mut self) {
        let Some(settings) = self.scenario.kernel.numa_balancing else { return };
        if self.scan_at > self.events.now() {
            return;
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].next_scan > self.events.now() {
                continue;
            }
            // A task that is not ready is scanned again from its next arrival on a queue.
            if self.tasks[task].state != State::Ready {
                self.tasks[task].next_scan = Nanos(u64::MAX);
                continue;
            }
            let moved = settings.move_threads && self.go_to_memory(task);
            if !moved {
                self.fetch_pages(task, settings);
            }
            self.watch_pages(task);
        }
        let next = self.tasks.iter().map(|task| task.next_scan).min();
        self.scan_at = next.unwrap_or(Nanos(u64::MAX));
    }

    /// Whether a task is on a queue and may be put on any PU.
    fn is_free(&self, task: TaskNo) -> bool {
        self.tasks[task].state == State::Ready && self.targets.is_unbound(task)
    }

    /// Moves a task to the node with most of its memory. Whether a move was possible.
    fn go_to_memory(&mut self, task: TaskNo) -> bool {
        if !self.is_free(task) {
            return false;
        }
        let Some((here, home)) = self.better_node(task) else { return false };
        if let Some(pu) = self.idle_pu(home).filter(|_| self.stays_balanced(here, home)) {
            self.migrate(task, pu);
            return true;
        }
        // A swap leaves the load of both nodes as it is.
        let Some(other) = self.partner(task, here, home) else { return false };
        let (Some(from), Some(to)) = (self.queues.pu_of(task), self.queues.pu_of(other)) else {
            return false;
        };
        self.migrate(task, to);
        self.migrate(other, from);
        true
    }

    /// A task's node, and the node with most of its memory; `None` if the same.
    fn better_node(&self, task: TaskNo) -> Option<(usize, usize)> {
        let here = self.platform.node_of(self.queues.pu_of(task)?)?;
        let pages = &self.tasks[task].pages;
        let most =
            (0..pages.len()).max_by(|&a, &b| pages[a].total_cmp(&pages[b]).then(b.cmp(&a)))?;
        (pages[most] > pages[here]).then_some((here, most))
    }

    /// Whether load balancing would leave a move between nodes alone (`task_numa_find_cpu` in
    /// kernel/sched/fair.c, 6.1).
    fn stays_balanced(&self, from: usize, to: usize) -> bool {
        let left = self.node_load(from) - 1;
        let come = self.node_load(to) + 1;
        let both = self.platform.home_pus(to).next().and_then(|pu| {
            let over = self.pus.domains().over[pu.idx()].iter();
            let mut over = over.map(|&domain| &self.pus.domains().all[domain]);
            over.find(|domain| self.platform.home_pus(from).any(|pu| domain.pus.contains(&pu)))
        });
        come <= left || both.is_some_and(|both| both.lets((come - left) as u64, come - 1))
    }

    /// Tasks on the queues of a node's PUs.
    fn node_load(&self, node: usize) -> usize {
        self.platform.home_pus(node).map(|pu| self.queues.load(pu)).sum()
    }

    /// An idle PU of a node, on the least loaded core; `None` if none is idle.
    fn idle_pu(&self, node: usize) -> Option<PuIdx> {
        let machine = self.platform.machine();
        let home = self.platform.home_pus(node);
        let idle = home.filter(|pu| self.pus.has(*pu) && self.queues.load(*pu) == 0);
        idle.min_by_key(|pu| {
            let core = &machine.cores[machine.core_of(*pu).idx()];
            core.pus.iter().map(|pu| self.queues.load(*pu)).sum::<usize>()
        })
    }

    /// The task on node `home` with the largest gain from changing places with `task`; `None`
    /// unless both together gain.
    fn partner(&self, task: TaskNo, here: usize, home: usize) -> Option<TaskNo> {
        let others = (0..self.tasks.len()).filter(|&other| {
            let pu = self.queues.pu_of(other).filter(|_| self.is_free(other));
            pu.and_then(|pu| self.platform.node_of(pu)) == Some(home)
        });
        let gains = others.map(|other| (other, self.gain(other, home, here)));
        let (best, gain) = gains.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)))?;
        (self.gain(task, here, home) + gain > NEAR).then_some(best)
    }

    /// Gain of near memory by a task's move between nodes, as a share of all its memory.
    fn gain(&self, task: TaskNo, from: usize, to: usize) -> f64 {
        self.tasks[task].pages[to] - self.tasks[task].pages[from]
    }

    /// Brings the scanned part of a task's far memory to its node, of regions whose last scan was
    /// from the same node.
    fn fetch_pages(&mut self, no: TaskNo, NumaBalancing { scan, fault, .. }: NumaBalancing) {
        let Some(node) = self.queues.pu_of(no).and_then(|pu| self.platform.node_of(pu)) else {
            return;
        };
        let scan = scan.0 as f64;
        let resident = self.memory.resident(&self.tasks[no]);
        let part = if resident > 0.0 { (scan / resident).min(1.0) } else { 1.0 };
        self.tasks[no].refill_s += (part * resident) / PAGE * fault.as_secs_f64();
        for region in Memory::used_by(&self.tasks[no]) {
            if !self.memory.scan(region, node) {
                continue;
            }
            let far = 1.0 - self.memory.of(region).on(node);
            // A remainder too small to count as far comes along; else scans would never end.
            let stays = if far * (1.0 - part) < NEAR { 0.0 } else { 1.0 - part };
            let groups = 0..self.memory.of(region).groups.len();
            let moved = self.move_region(region, groups, node, stays);
            self.charge_copies(no, moved);
        }
    }
}
