//! NUMA balancing: threads and their memory are moved towards each other.
//!
//! # Problem
//! A thread that was moved to another node has its memory far away.
//!
//! # Approach
//! What the kernel's NUMA balancing comes to (kernel/sched/fair.c, mm/memory.c, Linux 6.6): once a period it
//! unmaps some of a thread's memory and sees from which node it is touched next. Here, once a period, for
//! each thread with memory on other nodes than its own:
//! - If most of its memory is on one other node, it goes there, if a PU is idle there and load balancing
//!   would not take it away again, or if it can change places with a thread so that both together have more
//!   memory near.
//! - Else, if it was on the same node a period ago, the scanned part of what is far comes to its node: a page
//!   moves when it was touched from the same node twice.
//!
//! Scanning and copying take as long as [`Kernel`](crate::Kernel) says, by default nothing. Threads that are pinned stay; their memory
//! comes. Of memory that several threads share the scans of all of them count as one, so it moves where two scans in a row are from
//! the same node.

use crate::kernel::NumaBalancing;
use crate::task::{State, TaskNo};
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};

/// Less than this share of memory on other nodes is none.
const NEAR: f64 = 1e-3;

impl World<'_> {
    /// Share of a task's memory that is not on the node of `pu`.
    pub(crate) fn far_share(&self, task: TaskNo, pu: PuIdx) -> f64 {
        let node = self.platform.node_of(pu);
        let near = node.and_then(|node| self.tasks[task].pages.get(node));
        near.map_or(0.0, |near| (1.0 - near).max(0.0))
    }

    /// Sets when a task's memory is scanned next: at the next multiple of the period, if some is far.
    pub(crate) fn watch_pages(&mut self, task: TaskNo) {
        let Some(settings) = self.scenario.kernel.numa_balancing else { return };
        let far = self.tasks[task].pu.map_or(0.0, |pu| self.far_share(task, pu));
        self.tasks[task].next_scan = if far > NEAR {
            Nanos((self.now.0 / settings.period.0 + 1).saturating_mul(settings.period.0))
        } else {
            Nanos(u64::MAX)
        };
        self.scan_at = self.scan_at.min(self.tasks[task].next_scan);
    }

    /// Timers at the memory of every task for which that is due.
    pub(crate) fn scan_pages(&mut self) {
        let Some(settings) = self.scenario.kernel.numa_balancing else { return };
        if self.scan_at > self.now {
            return;
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].next_scan > self.now {
                continue;
            }
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

    /// Moves a task to the node with most of its memory; whether it was moved.
    fn go_to_memory(&mut self, task: TaskNo) -> bool {
        if !self.is_free(task) {
            return false;
        }
        let Some((here, home)) = self.better_node(task) else { return false };
        if let Some(pu) = self.idle_pu(home).filter(|_| self.stays_balanced(here, home)) {
            self.migrate(task, pu);
            return true;
        }
        let Some(other) = self.partner(task, here, home) else { return false };
        let (Some(from), Some(to)) = (self.tasks[task].pu, self.tasks[other].pu) else {
            return false;
        };
        self.migrate(task, to);
        self.migrate(other, from);
        true
    }

    /// Its node and the one with most of its memory, if that is another one.
    fn better_node(&self, task: TaskNo) -> Option<(usize, usize)> {
        let here = self.platform.node_of(self.tasks[task].pu?)?;
        let pages = &self.tasks[task].pages;
        let most =
            (0..pages.len()).max_by(|&a, &b| pages[a].total_cmp(&pages[b]).then(b.cmp(&a)))?;
        (pages[most] > pages[here]).then_some((here, most))
    }

    /// Whether a thread that goes from one node to another leaves no difference there that load balancing would
    /// undo (`task_numa_find_cpu` in kernel/sched/fair.c, 6.1).
    fn stays_balanced(&self, from: usize, to: usize) -> bool {
        let pus = |node| self.platform.machine().home_pus(colocate_machine::NodeIdx::new(node));
        let load = |node| pus(node).map(|pu| self.queues[pu.idx()].load()).sum::<usize>();
        let (left, come) = (load(from) - 1, load(to) + 1);
        let both = pus(to).next().and_then(|pu| {
            let over = self.domains.over[pu.idx()].iter().map(|&domain| &self.domains.all[domain]);
            let mut over = over.filter(|domain| pus(from).any(|pu| domain.pus.contains(&pu)));
            over.next()
        });
        come <= left || both.is_some_and(|both| both.lets((come - left) as u64, come - 1))
    }

    /// An idle PU of a node, one of an idle core first.
    fn idle_pu(&self, node: usize) -> Option<PuIdx> {
        let machine = self.platform.machine();
        let home = machine.home_pus(colocate_machine::NodeIdx::new(node));
        let idle = home.filter(|pu| self.usable[pu.idx()] && self.queues[pu.idx()].load() == 0);
        let siblings = |pu: &PuIdx| &machine.cores[machine.core_of(*pu).idx()].pus;
        idle.min_by_key(|pu| {
            siblings(pu).iter().map(|pu| self.queues[pu.idx()].load()).sum::<usize>()
        })
    }

    /// The task on `home` that gains most, or loses least, by changing places with `task`, if both together
    /// gain.
    fn partner(&self, task: TaskNo, here: usize, home: usize) -> Option<TaskNo> {
        let gain = |task: TaskNo, from: usize, to: usize| {
            self.tasks[task].pages[to] - self.tasks[task].pages[from]
        };
        let there = |other: &TaskNo| {
            let pu = self.tasks[*other].pu.filter(|_| self.is_free(*other));
            pu.and_then(|pu| self.platform.node_of(pu)) == Some(home)
        };
        let others = (0..self.tasks.len()).filter(there);
        let best = others
            .max_by(|&a, &b| gain(a, home, here).total_cmp(&gain(b, home, here)).then(b.cmp(&a)))?;
        (gain(task, here, home) + gain(best, home, here) > NEAR).then_some(best)
    }

    /// Brings the scanned part of what is far to the task's node: of regions that were last scanned from there, too.
    #[allow(clippy::cast_precision_loss)] // bytes
    fn fetch_pages(&mut self, no: TaskNo, NumaBalancing { scan, fault, .. }: NumaBalancing) {
        let Some(node) = self.tasks[no].pu.and_then(|pu| self.platform.node_of(pu)) else { return };
        let (scan, resident) = (scan.0 as f64, self.resident(no));
        let part = if resident > 0.0 { (scan / resident).min(1.0) } else { 1.0 };
        self.tasks[no].refill_s += (part * resident) / 4096.0 * fault.as_secs_f64();
        for region in self.regions_of(no) {
            let of = &mut self.regions[region];
            if of.scanned_from.replace(node) != Some(node) {
                continue;
            }
            let far = 1.0 - of.on(node);
            let stays = if far * (1.0 - part) < NEAR { 0.0 } else { 1.0 - part };
            let groups = 0..of.groups.len();
            let moved = self.move_region(region, groups, node, stays);
            self.charge_copies(no, moved);
        }
    }
}
