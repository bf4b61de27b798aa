//! Pages and their tasks on machines with several nodes: pages move to tasks, or tasks to pages.
//!
//! # Problem
//! Memory initialized by one thread is on that thread's node, remote to all others. Either the
//! pages or the threads move.
//! # Approach
//! As in `colocate cc` (docs/reference/spm.md), by samples in place of the compiler's knowledge. The extra
//! cost of remote uses of a page group is summed and halved each second. The cheaper of two moves
//! is made: a task that uses the memory of one other node goes there if its pages are many and
//! there is room, else page groups come to the task. A group that several nodes use alike is near
//! to none of them. It moves only off a node that serves much more than the others: all of a job's
//! memory on one controller is slower than spread.
//! # Terms
//! *Far time* of a group on a node: CPU time of its uses × (1 − distance near / distance from the
//! user's node).
//! # Algorithm
//! Each [`PERIOD`]:
//! 1. A task with [`MOST`] of its time at groups of one other node that it uses alone is held
//!    there, if these are so large that moving them costs more than [`TASK_MOVE_S`], that node has
//!    more cores than busy tasks, and it does not serve others more than nodes do on average.
//! 2. A group goes to the node where its far time is least, if that saves more than moving costs ×
//!    2^moves, of those where more than half of its uses are from or that do not get crowded. The
//!    task that uses it most is held on that node, if there is room.
//! 3. Other groups of a node that serves more than [`CROWDED`] times the mean go to the node that
//!    serves least, until theirs serves the mean, if they are not farther from their users there
//!    than [`FARTHER`] times.
//!
//! Tasks that lose by distant wake-ups are not held: each would be on the node of its own memory.
//! # Properties
//! - **Local in the end**: groups of one user each are where it is. -> test `private_groups_come`
//! - **Held**: no node holds more tasks than it has PUs. -> test `private_groups_come`
//! - **Shared is spread**: groups that all nodes use leave a crowded one, and then stay.
//!   -> test `shared_groups_are_spread`
//! - **The few go to the many**: one task with much memory on another node goes there.
//!   -> test `a_task_goes_to_its_memory`
//! - **Does not separate**: tasks that wake each other are where the kernel has them.
//!   -> test `tasks_that_wake_each_other_are_not_held`
//! - **Not to and fro**: two nodes that use a group in turns move it fewer and fewer times.
//!   -> test `moves_get_dearer`

use crate::communication::TaskSet;
use crate::evidence::Evidence;
use crate::paging::{Orders, PageGroupKey, since, with_memory};
use crate::places::UsableMachine;
use crate::plan::PageMove;
use colocate_evidence::{PageGroup, PageUse, TaskId};
use colocate_machine::{Machine, Nanos, NodeIdx, NodeNr};
use std::collections::BTreeMap;

/// Time between two decisions.
pub(super) const PERIOD: Nanos = Nanos::from_secs(1);
/// Cost of moving a page of 4 KiB, in seconds. Assumed, as in `colocate cc`.
const PAGE_MOVE_S: f64 = 2e-6;
/// Cost of moving a task to another node, in seconds. Chosen: refill of some MiB of caches.
const TASK_MOVE_S: f64 = 5e-3;
/// Least part of a task's time at a single node's memory to move the task there. Chosen.
const MOST: f64 = 0.9;
/// Crowded node: serves more than this multiple of the mean. Chosen: as Carrefour, a third above.
const CROWDED: f64 = 1.35;
/// Runnable share of a task that occupies a core. Chosen.
const BUSY: f64 = 0.3;
/// Largest increase of far time by leaving a crowded node. Chosen: a crowded controller costs more.
const FARTHER: f64 = 1.5;
/// Use below this time, in seconds, is dropped: the task has ended or uses other memory.
const NONE_S: f64 = 1e-4;
/// Number of moves of a group that double the cost of its next move; later moves do not.
const MOST_DOUBLED: u32 = 16;

/// Use of page groups, and tasks held near their memory.
#[derive(Debug, Default)]
pub(super) struct Pages {
    last: Option<Nanos>,
    orders: Orders,
    groups: BTreeMap<PageGroupKey, PageHistory>,
    /// Node of each held task.
    pub held: BTreeMap<TaskId, NodeIdx>,
    /// Tasks that lose by distant wake-ups.
    communicating: TaskSet,
}

#[derive(Debug, Default)]
struct PageHistory {
    before: Vec<PageUse>,
    /// CPU time in seconds at the group, by task and the task's node, halved each period.
    time: BTreeMap<(TaskId, NodeIdx), f64>,
    moves: u32,
}

impl Pages {
    /// Page moves for now; updates [`Self::held`]. `communicating` are tasks that lose by distant
    /// wake-ups.
    pub fn decide(
        &mut self,
        evidence: &Evidence<'_>,
        places: &UsableMachine<'_>,
        communicating: TaskSet,
    ) -> Vec<PageMove> {
        let Some(seen) =
            evidence.reports.pages.as_deref().filter(|_| places.machine.nodes.len() > 1)
        else {
            return Vec::new();
        };
        self.held.retain(|task, _| !communicating.contains(task));
        self.communicating = communicating;
        let may_order = self.orders.note(evidence.at, evidence.moved);
        let is_early = self.last.is_some_and(|last| evidence.at < last + PERIOD);
        if is_early || !may_order {
            return Vec::new();
        }
        self.last = Some(evidence.at);
        self.note(seen);
        // Ended tasks would keep room on their node.
        self.held.retain(|task, _| {
            let mut threads = evidence.now.queue.iter().flat_map(|job| &job.threads);
            threads.any(|thread| thread.id == *task)
        });
        self.send_tasks(seen, evidence, places);
        let moves = self.send_groups(seen, places);
        self.orders.give(evidence.at, moves.into_iter())
    }

    /// Adds the use since the last period.
    fn note(&mut self, seen: &[PageGroup]) {
        // Groups that are no longer reported stay in `before` and are dropped with it.
        let mut before = std::mem::take(&mut self.groups);
        for group in seen {
            let key = (group.job, group.range.start);
            let mut known = before.remove(&key).unwrap_or_default();
            // Once per decision, so less often than each second while orders are outstanding.
            known.time.values_mut().for_each(|time| *time /= 2.0);
            known.time.retain(|_, time| *time > NONE_S);
            for one in since(&group.uses, &known.before) {
                *known.time.entry((one.task, one.node)).or_default() += one.time.as_secs_f64();
            }
            known.before.clone_from(&group.uses);
            self.groups.insert(key, known);
        }
    }

    /// Holds tasks on the node of their memory, if cheaper than moving the memory.
    fn send_tasks(
        &mut self,
        seen: &[PageGroup],
        evidence: &Evidence<'_>,
        places: &UsableMachine<'_>,
    ) {
        // `seen` and `self.groups` are both in the order of jobs and addresses, so their items
        // match.
        let mut tasks: BTreeMap<TaskId, Near> = BTreeMap::new();
        for (group, known) in seen.iter().zip(self.groups.values()) {
            let Some(home) = group.home() else { continue };
            let of_all: f64 = known.time.values().sum();
            for (&(task, node), time) in &known.time {
                let near = tasks.entry(task).or_default();
                near.all += time;
                // Shared memory does not bind a task to its node.
                if *time < MOST * of_all {
                    continue;
                }
                *near.at.entry(home).or_default() += time;
                if node != home {
                    *near.bytes.entry(home).or_default() += group.bytes().0;
                }
            }
        }
        let served = self.served(seen, places.machine.nodes.len());
        let nodes = with_memory(places.machine).len();
        for (task, near) in tasks {
            let Some((node, bytes)) = near.elsewhere() else { continue };
            let is_dear = move_s(bytes) > TASK_MOVE_S && near.is_served_apart(node, &served, nodes);
            if is_dear
                && self.may_hold(task)
                && self.busy_on(node, evidence) < cores_of(node, places.machine)
            {
                self.held.insert(task, node);
            }
        }
    }

    /// Number of busy tasks on a node or held there.
    fn busy_on(&self, node: NodeIdx, evidence: &Evidence<'_>) -> usize {
        let machine = evidence.now.machine;
        let threads = evidence.now.queue.iter().flat_map(|job| &job.threads);
        // A thread of unknown state counts as busy: an overfilled node costs more than an idle
        // core.
        let busy = threads.filter(|it| it.runnable.is_none_or(|runnable| runnable > BUSY));
        busy.filter(|thread| {
            let held = self.held.get(&thread.id).copied();
            // A held task counts where it will run, not where it last ran.
            held.or_else(|| machine.cores[machine.core_of(thread.pu?).idx()].node) == Some(node)
        })
        .count()
    }

    fn may_hold(&self, task: TaskId) -> bool {
        !self.held.contains_key(&task) && !self.communicating.contains(&task)
    }

    fn has_room(&self, node: NodeIdx, machine: &Machine) -> bool {
        let held = self.held.values().filter(|held| **held == node).count();
        held < machine.home_pus(node).count()
    }

    fn send_groups<'a>(
        &mut self,
        seen: &'a [PageGroup],
        places: &UsableMachine<'_>,
    ) -> Vec<(&'a PageGroup, NodeNr, String)> {
        let machine = places.machine;
        let mut served = self.served(seen, machine.nodes.len());
        let memory = with_memory(machine);
        let mean = mean(&served, memory.len());
        let crowded: Vec<bool> = served.iter().map(|served| *served > CROWDED * mean).collect();
        let mut moves = Vec::new();
        for group in seen {
            let Some(home) = group.home() else { continue };
            let key = (group.job, group.range.start);
            let Some(known) = self.groups.get(&key) else { continue };
            let time = self.by_node(known, machine.nodes.len());
            let far: Vec<f64> = (0..machine.nodes.len())
                .map(|node| far_s(&time, NodeIdx::new(node), machine))
                .collect();
            let far_now = far[home.idx()];
            let all: f64 = time.iter().sum();
            let cost = move_s(group.bytes().0) * f64::from(1 << known.moves.min(MOST_DOUBLED));
            let most = time.iter().position(|time| 2.0 * time > all);
            let nodes = memory.iter().copied().filter(|node| *node != home);
            let uncrowded = nodes.clone().filter(|node| {
                most == Some(node.idx()) || served[node.idx()] + all <= CROWDED * mean
            });
            let nearest = least(uncrowded, &far).filter(|to| far_now - far[to.idx()] > cost);
            // Not below the mean, or the node would be the next to receive groups.
            let may_leave =
                crowded[home.idx()] && served[home.idx()] - all >= mean && all > 2.0 * cost;
            let (to, why) = if let Some(to) = nearest {
                (to, "its users are there".to_owned())
            } else if may_leave
                && let Some(to) =
                    least(nodes.filter(|node| far[node.idx()] <= FARTHER * far_now), &served)
            {
                (to, "its node serves more than the others".to_owned())
            } else {
                continue;
            };
            // Later groups see the machine as it will be after this move.
            served[home.idx()] -= all;
            served[to.idx()] += all;
            self.hold_user(key, to, machine);
            if let Some(known) = self.groups.get_mut(&key) {
                known.moves += 1;
            }
            moves.push((group, machine.nodes[to.idx()].os, why));
        }
        moves
    }

    /// CPU time at each node's memory, in seconds.
    fn served(&self, seen: &[PageGroup], nodes: usize) -> Vec<f64> {
        let mut served = vec![0.0; nodes];
        for (group, known) in seen.iter().zip(self.groups.values()) {
            let all: f64 = known.time.values().sum();
            served.iter_mut().zip(&group.on).for_each(|(sum, on)| *sum += all * on);
        }
        served
    }

    /// CPU time at a group by the users' node, in seconds; a held task counts at its held node.
    fn by_node(&self, known: &PageHistory, nodes: usize) -> Vec<f64> {
        let mut sums = vec![0.0; nodes];
        for ((task, node), time) in &known.time {
            let node = self.held.get(task).unwrap_or(node);
            sums[node.idx()] += time;
        }
        sums
    }

    /// Holds the group's main user on its node, if the group moves there and there is room.
    fn hold_user(&mut self, key: PageGroupKey, to: NodeIdx, machine: &Machine) {
        let known = self.groups.get(&key);
        let most = known.and_then(|known| {
            let time = known.time.iter();
            time.max_by(|a, b| a.1.total_cmp(b.1)).map(|((task, node), _)| (*task, *node))
        });
        let Some((task, node)) = most else { return };
        if node == to && self.may_hold(task) && self.has_room(to, machine) {
            self.held.insert(task, to);
        }
    }
}

/// Memory time of a task.
#[derive(Debug, Default)]
struct Near {
    all: f64,
    /// Time at privately used memory, by the memory's node.
    at: BTreeMap<NodeIdx, f64>,
    bytes: BTreeMap<NodeIdx, u64>,
}

impl Near {
    /// Remote node with nearly all of the time, and the bytes used there.
    fn elsewhere(&self) -> Option<(NodeIdx, u64)> {
        let (node, _) = self.at.iter().find(|(_, time)| **time >= MOST * self.all)?;
        self.bytes.get(node).map(|bytes| (*node, *bytes))
    }

    /// True if the node, without this task, serves no more than [`CROWDED`] times the mean.
    fn is_served_apart(&self, node: NodeIdx, served: &[f64], nodes: usize) -> bool {
        let own = self.at.get(&node).copied().unwrap_or(0.0);
        let mut others = served.to_vec();
        others[node.idx()] -= own;
        others[node.idx()] <= CROWDED * mean(&others, nodes)
    }
}

/// Mean over `nodes` nodes with memory; nodes without memory serve nothing.
fn mean(served: &[f64], nodes: usize) -> f64 {
    served.iter().sum::<f64>() / nodes.max(1) as f64
}

fn cores_of(node: NodeIdx, machine: &Machine) -> usize {
    machine.cores.iter().filter(|core| core.node == Some(node)).count()
}

fn move_s(bytes: u64) -> f64 {
    bytes as f64 / 4096.0 * PAGE_MOVE_S
}

/// Far time, in seconds, of uses from each node (`time`) for memory on `node`.
fn far_s(time: &[f64], node: NodeIdx, machine: &Machine) -> f64 {
    let times = time.iter().enumerate();
    times
        .map(|(from, time)| {
            time * (1.0 - distance(from, from, machine) / distance(from, node.idx(), machine))
        })
        .sum()
}

/// Distance between two nodes as in ACPI's SLIT; without a table 10 for the same node, else 20.
fn distance(from: usize, to: usize, machine: &Machine) -> f64 {
    let known = machine.distances.as_ref().map(|distances| distances.rows[from][to]);
    // A distance of 0 in a firmware's table would divide by 0.
    f64::from(known.unwrap_or(if from == to { 10 } else { 20 }).max(1))
}

/// Node with the least value, the first among equals; `values` are by node.
fn least(nodes: impl Iterator<Item = NodeIdx>, values: &[f64]) -> Option<NodeIdx> {
    nodes.min_by(|a, b| values[a.idx()].total_cmp(&values[b.idx()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Quantum, QueuedJob, Thread};
    use crate::paging::testing::{SIZE, carried_out, places_of};
    use crate::testing::machine;
    use colocate_evidence::{AddressRange, JobIdx, PagesMoved, SourceReports};
    use colocate_machine::PuIdx;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// Page groups on four nodes with two PUs each, and what becomes of them.
    struct Bench {
        machine: Machine,
        pages: Pages,
        groups: Vec<PageGroup>,
        at: Nanos,
        moved: Vec<PagesMoved>,
        communicating: TaskSet,
    }

    impl Bench {
        fn new(groups: u64) -> Self {
            let group = |place: u64| PageGroup {
                job: JobIdx(0),
                range: AddressRange { start: place * SIZE, end: (place + 1) * SIZE },
                on: vec![1.0, 0.0, 0.0, 0.0],
                uses: Vec::new(),
            };
            let groups = (0..groups).map(group).collect();
            Self {
                machine: machine("node:4 core:2"),
                pages: Pages::default(),
                groups,
                at: Nanos::ZERO,
                moved: Vec::new(),
                communicating: TaskSet::default(),
            }
        }

        /// A task uses a group from a node for so many ms.
        fn uses(&mut self, group: usize, order: u32, node: usize, ms: u64) {
            let node = NodeIdx::new(node);
            let uses = &mut self.groups[group].uses;
            let time = Nanos::from_millis(ms);
            match uses.iter_mut().find(|one| one.task == task(order) && one.node == node) {
                Some(one) => {
                    one.time += time;
                    one.samples += ms / 4;
                }
                None => {
                    uses.push(PageUse { task: task(order), node, time, samples: ms / 4, writes: 0 })
                }
            }
        }

        /// A second later: which groups move where. They are there then.
        fn moves(&mut self) -> Vec<(usize, u32)> {
            self.at += PERIOD;
            let pus: Vec<PuIdx> = self.machine.all_pus().collect();
            let thread = |order| Thread {
                id: task(order),
                ran: None,
                pu: None,
                runnable: None,
                bound: false,
            };
            let queue = [QueuedJob {
                job: JobIdx(0),
                threads: (0..16).map(thread).collect(),
                runnable: None,
                just_ran: true,
                had_own_cores: false,
            }];
            let now = Quantum { number: 0, machine: &self.machine, pus: &pus, queue: &queue };
            let groups = self.groups.clone();
            let moved = std::mem::take(&mut self.moved);
            let evidence = Evidence {
                at: self.at,
                reports: &SourceReports { pages: Some(groups.clone()), ..SourceReports::NONE },
                moved: &moved,
                ..Evidence::of_queue(now)
            };
            let places = UsableMachine::new(&self.machine, &pus);
            let orders = self.pages.decide(&evidence, &places, self.communicating.clone());
            self.moved = orders.iter().map(carried_out).collect();
            let mut moved: Vec<(usize, u32)> = orders.iter().flat_map(places_of).collect();
            moved.sort_unstable();
            for (place, to) in &moved {
                let on = &mut self.groups[*place].on;
                on.fill(0.0);
                on[*to as usize] = 1.0;
            }
            moved
        }
    }

    /// Eight tasks on four nodes, with a group each, all of which are on node 0.
    #[test]
    fn private_groups_come() {
        let mut bench = Bench::new(8);
        for order in 0..8_u32 {
            bench.uses(order as usize, order, order as usize / 2, 100);
        }
        let expected: Vec<_> = (2..8_u32).map(|group| (group as usize, group / 2)).collect();
        assert_eq!(bench.moves(), expected);
        let held: Vec<_> =
            bench.pages.held.iter().map(|(task, node)| (task.order, node.idx())).collect();
        assert_eq!(held, [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)]);
        for order in 0..8_u32 {
            bench.uses(order as usize, order, order as usize / 2, 100);
        }
        assert_eq!(bench.moves(), []);
    }

    /// A task is held at its memory, as in `a_task_goes_to_its_memory`, until it communicates: then the memory comes.
    #[test]
    fn tasks_that_wake_each_other_are_not_held() {
        let mut bench = Bench::new(8);
        for (communicating, moved, held) in [(false, 0, 1), (true, 8, 0)] {
            bench.communicating = communicating.then(|| task(5)).into_iter().collect();
            (0..8).for_each(|group| bench.uses(group, 5, 1, 100));
            assert_eq!((bench.moves().len(), bench.pages.held.len()), (moved, held));
        }
    }

    #[test]
    fn shared_groups_are_spread() {
        let mut bench = Bench::new(16);
        let mut all = Vec::new();
        for _ in 0..6 {
            for (group, order) in
                (0..16).flat_map(|group| (0..4_u32).map(move |order| (group, order)))
            {
                bench.uses(group, order, order as usize, 40);
            }
            all.push(bench.moves().len());
        }
        // A few more than the mean may stay on a node.
        let on = |node: usize| bench.groups.iter().filter(|group| group.on[node] > 0.5).count();
        assert!(
            (0..4).all(|node| (3..=5).contains(&on(node))),
            "{:?}",
            [on(0), on(1), on(2), on(3)]
        );
        assert_eq!(all[1..], [0; 5], "{all:?}");
    }

    /// Two of the nodes have memory, and serve the same.
    #[test]
    fn nodes_without_memory_make_none_crowded() {
        let mut bench = Bench::new(4);
        for node in &mut bench.machine.nodes[2..] {
            node.memory = Some(colocate_machine::Bytes(0));
        }
        for (group, order) in (0..4).flat_map(|group| [(group, 0), (group, 1)]) {
            bench.groups[group].on =
                [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]][group % 2].to_vec();
            bench.uses(group, order, order as usize, 40);
        }
        assert_eq!(bench.moves(), []);
    }

    /// A task on node 1 uses 16 MiB on node 0: 4,096 pages take 8 ms.
    #[test]
    fn a_task_goes_to_its_memory() {
        let mut bench = Bench::new(8);
        (0..8).for_each(|group| bench.uses(group, 5, 1, 100));
        assert_eq!(bench.moves(), []);
        assert_eq!(bench.pages.held, BTreeMap::from([(task(5), NodeIdx::new(0))]));
    }

    #[test]
    fn moves_get_dearer() {
        let mut bench = Bench::new(1);
        let moved = (0..60_u32).filter(|second| {
            let turn = second / 5 % 2;
            bench.uses(0, turn, 1 + turn as usize, 100);
            !bench.moves().is_empty()
        });
        // 51 ms of 100 are saved by a move of 1, 2, 4, 8, 16 and 32 ms.
        assert!((2..=7).contains(&moved.count()));
    }
}
