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
//! Scanning and copying take the time that [`KernelScheduler`](crate::KernelScheduler) says, by
//! default none. Threads that are pinned stay; their memory comes. Scans of shared memory by
//! several threads count as one: it moves where two scans in a row are from the same node.

use crate::accesses::Accesses;
use crate::kernel::NumaBalancing;
use crate::loads::Loads;
use crate::parts::Parts;
use crate::region::PAGE;
use crate::task::{TaskNo, TaskState};
use crate::world::memory::{charge_copies, move_region};
use crate::world::moves::{NEAR, migrate, watch_pages};
use colocate_machine::{NodeIdx, PuIdx};

/// Runs NUMA balancing for every task whose scan is due.
pub(crate) fn scan_pages(parts: &mut Parts<'_>) {
    let Some(settings) = parts.scenario.kernel.numa_balancing else { return };
    if parts.scans.next > parts.events.now {
        return;
    }
    for task in 0..parts.tasks.len() {
        if !parts.scans.is_due(task, parts.events.now) {
            continue;
        }
        // A task that is not ready is scanned again from its next arrival on a queue.
        if parts.tasks[task].state != TaskState::Ready {
            parts.scans.clear(task);
            continue;
        }
        let moved = settings.move_threads && go_to_memory(parts, task);
        if !moved {
            fetch_pages(parts, task, settings);
        }
        watch_pages(parts, task);
    }
    parts.scans.update();
}

/// Whether a task is on a queue and may be put on any PU.
fn is_free(parts: &Parts<'_>, task: TaskNo) -> bool {
    parts.tasks[task].state == TaskState::Ready && parts.targets.is_unbound(task)
}

/// Moves a task to the node with most of its memory. Whether a move was possible.
fn go_to_memory(parts: &mut Parts<'_>, task: TaskNo) -> bool {
    if !is_free(parts, task) {
        return false;
    }
    let Some((here, home)) = better_node(parts, task) else { return false };
    if let Some(pu) =
        idle_pu(parts.loads(), home).filter(|_| stays_balanced(parts.loads(), here, home))
    {
        migrate(parts, task, pu);
        return true;
    }
    // A swap leaves the load of both nodes as it is.
    let Some(other) = partner(parts, task, here, home) else { return false };
    let (Some(from), Some(to)) = (parts.queues.pu_of(task), parts.queues.pu_of(other)) else {
        return false;
    };
    migrate(parts, task, to);
    migrate(parts, other, from);
    true
}

/// A task's node, and the node with most of its memory; `None` if the same.
fn better_node(parts: &Parts<'_>, task: TaskNo) -> Option<(usize, usize)> {
    let here = parts.node_of(task)?;
    let pages = &parts.accesses.of[task].pages;
    let most = (0..pages.len()).max_by(|&a, &b| pages[a].total_cmp(&pages[b]).then(b.cmp(&a)))?;
    (pages[most] > pages[here]).then_some((here, most))
}

/// Whether load balancing would leave a move between nodes alone (`task_numa_find_cpu` in
/// kernel/sched/fair.c, 6.1).
fn stays_balanced(loads: Loads<'_>, from: usize, to: usize) -> bool {
    let left = node_load(loads, from) - 1;
    let come = node_load(loads, to) + 1;
    let domains = &loads.pus.domains;
    let both = home_pus(loads, to).next().and_then(|pu| {
        let mut over = domains.over[pu.idx()].iter().map(|&domain| &domains.all[domain]);
        over.find(|domain| home_pus(loads, from).any(|pu| domain.pus.contains(&pu)))
    });
    come <= left || both.is_some_and(|both| both.lets((come - left) as u64, come - 1))
}

/// Tasks on the queues of a node's PUs.
fn node_load(loads: Loads<'_>, node: usize) -> usize {
    home_pus(loads, node).map(|pu| loads.queues.load(pu)).sum()
}

/// PUs at home in a node.
fn home_pus(loads: Loads<'_>, node: usize) -> impl Iterator<Item = PuIdx> {
    loads.pus.machine().home_pus(NodeIdx::new(node))
}

/// An idle PU of a node, on the least loaded core; `None` if none is idle.
fn idle_pu(loads: Loads<'_>, node: usize) -> Option<PuIdx> {
    let machine = loads.pus.machine();
    let idle = home_pus(loads, node).filter(|pu| loads.pus.has(*pu) && loads.is_empty(*pu));
    idle.min_by_key(|pu| {
        let core = &machine.cores[machine.core_of(*pu).idx()];
        core.pus.iter().map(|pu| loads.queues.load(*pu)).sum::<usize>()
    })
}

/// The task on node `home` with the largest gain from changing places with `task`; `None`
/// unless both together gain.
fn partner(parts: &Parts<'_>, task: TaskNo, here: usize, home: usize) -> Option<TaskNo> {
    let others = (0..parts.tasks.len())
        .filter(|&other| is_free(parts, other) && parts.node_of(other) == Some(home));
    let gains = others.map(|other| (other, gain(&parts.accesses, other, home, here)));
    let (best, most) = gains.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)))?;
    (gain(&parts.accesses, task, here, home) + most > NEAR).then_some(best)
}

/// Gain of near memory by a task's move between nodes, as a share of all its memory.
fn gain(accesses: &Accesses, task: TaskNo, from: usize, to: usize) -> f64 {
    accesses.of[task].pages[to] - accesses.of[task].pages[from]
}

/// Brings the scanned part of a task's far memory to its node, of regions whose last scan was
/// from the same node.
fn fetch_pages(
    parts: &mut Parts<'_>,
    no: TaskNo,
    NumaBalancing { scan, fault, .. }: NumaBalancing,
) {
    let Some(node) = parts.node_of(no) else { return };
    let scan = scan.0 as f64;
    let regions = parts.accesses.regions(no, parts.stretch(no));
    let resident: f64 = regions.iter().map(|&region| parts.memory[region].bytes).sum();
    let part = if resident > 0.0 { (scan / resident).min(1.0) } else { 1.0 };
    parts.tasks[no].delay((part * resident) / PAGE * fault.as_secs_f64());
    for region in regions {
        if !parts.memory[region].scan(node) {
            continue;
        }
        let far = 1.0 - parts.memory[region].on(node);
        // A remainder too small to count as far comes along; else scans would never end.
        let stays = if far * (1.0 - part) < NEAR { 0.0 } else { 1.0 - part };
        let groups = 0..parts.memory[region].groups.len();
        let moved = move_region(parts, region, groups, node, stays);
        charge_copies(parts, no, moved);
    }
}
