//! `dino`: memory-intensive threads are spread over the nodes, and their pages follow.
//!
//! # Problem
//! Spreading threads with many misses over the memory controllers slows them down if their pages
//! stay behind.
//! # Approach
//! DINO (Blagodurov et al., USENIX ATC 2011): spread the intensive threads, and when an access to a
//! far page is sampled, move that page and K/2 on either side of it. Threads move only when the
//! spread has got uneven.
//! # Terms
//! *Intensive*: a thread with memory traffic above the mean of all threads. Chosen: the paper has
//! three classes by misses per instruction, with limits for a specific machine.
//! # Algorithm
//! Each second:
//! 1. If nodes differ by more than one intensive thread, or a thread is new: all threads in the
//!    order of their traffic, most first, are dealt to the nodes in turn, back and forth.
//! 2. A group with samples from a thread that belongs to another node moves there, with its
//!    neighbours of the same job within K/2 pages. No group moves in two periods in a row.
//! # Properties
//! - **Spread**: no node has two intensive threads more than another.
//!   -> test `intensive_threads_are_spread`
//! - **Along**: the group and its neighbours go to the thread's node. -> test `pages_come_along`

use super::{PageGroupKey, PageGroupUse, Paging, Rule, with_memory};
use crate::evidence::{Evidence, Thread};
use crate::plan::{Place, PlaceReason};
use crate::row::{PolicyRow, Setting};
use crate::schedule::allocate::rates;
use colocate_evidence::{Source, SourceSet, TaskId};
use colocate_machine::{Machine, NodeIdx, PuIdx, SharedPart};
use std::collections::BTreeMap;

pub static ROW: PolicyRow = PolicyRow {
    name: "dino",
    summary: "spreads threads with much memory traffic over nodes, with their pages",
    source: "Blagodurov et al., USENIX ATC 2011, by samples",
    settings: &[Setting::count("k", 1, 4096, "pages of 4 KiB that move with one that is used")],
    make: |values, _| {
        // K pages of 4 KiB, half of them on either side.
        let reach = u64::from(values.count("k")) * 4096 / 2;
        Paging::by(Dino { reach, homes: BTreeMap::new(), moves: BTreeMap::new() })
    },
    ..PolicyRow::ONCE
};

struct Dino {
    /// Bytes on either side of a used page that move along.
    reach: u64,
    /// Node of each thread.
    homes: BTreeMap<TaskId, NodeIdx>,
    /// Groups that move in this period, and their destinations.
    moves: BTreeMap<PageGroupKey, NodeIdx>,
}

impl Rule for Dino {
    const ALSO: SourceSet = SourceSet::of(&[Source::Counters]);

    fn begin(&mut self, groups: &[PageGroupUse<'_>], evidence: &Evidence<'_>) {
        self.spread(evidence);
        let before = std::mem::take(&mut self.moves);
        for group in groups {
            let user = group.new.iter().max_by_key(|one| one.samples);
            let Some(node) = user.and_then(|user| self.homes.get(&user.task)) else { continue };
            let range = group.pages.range;
            for other in groups {
                let of = other.pages.range;
                let is_near = other.pages.job == group.pages.job
                    // Ends are moved up rather than starts down, which could fall below address 0.
                    && of.end.saturating_add(self.reach) > range.start
                    && of.start < range.end.saturating_add(self.reach);
                // A group's own samples take precedence over its neighbours'.
                if is_near && (other.new.is_empty() || other.key() == group.key()) {
                    self.moves.insert(other.key(), *node);
                }
            }
        }
        for group in groups {
            let key = group.key();
            let to = self.moves.get(&key);
            if to.is_some_and(|node| before.contains_key(&key) || !group.is_far(*node)) {
                self.moves.remove(&key);
            }
        }
    }

    fn target(&mut self, group: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        let to = self.moves.get(&group.key())?;
        Some((*to, "a thread of that node uses it, or its neighbour".to_owned()))
    }

    fn places(&self, evidence: &Evidence<'_>) -> Vec<(TaskId, Place, PlaceReason)> {
        let why = PlaceReason::NextInOrder { order: "memory traffic, over nodes".to_owned() };
        let places = self.homes.iter().filter_map(|(task, node)| {
            let pu = first_pu(*node, evidence)?;
            Some((*task, evidence.sharing(SharedPart::Node, pu), why.clone()))
        });
        places.collect()
    }
}

/// First usable PU of a node.
fn first_pu(node: NodeIdx, evidence: &Evidence<'_>) -> Option<PuIdx> {
    let machine = evidence.now.machine;
    let mut pus = evidence.now.pus.iter().copied();
    pus.find(|pu| machine.cores[machine.core_of(*pu).idx()].node == Some(node))
}

impl Dino {
    /// Deals threads to nodes if a thread is new or nodes are uneven.
    fn spread(&mut self, evidence: &Evidence<'_>) {
        let mut nodes = with_memory(evidence.now.machine);
        // A thread cannot be placed on a node without PUs, so its pages do not go there either.
        nodes.retain(|node| first_pu(*node, evidence).is_some());
        let threads: Vec<&Thread> =
            evidence.now.queue.iter().flat_map(|job| &job.threads).collect();
        if nodes.len() < 2 || threads.iter().all(|thread| thread.traffic().memory.is_none()) {
            return;
        }
        let rates = rates(&threads, &|thread| thread.traffic().memory);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let mut threads: Vec<(&Thread, f64)> = threads.into_iter().zip(rates).collect();
        let mut intensive = vec![0_u64; evidence.now.machine.nodes.len()];
        let mut is_new = false;
        for (thread, rate) in &threads {
            match self.homes.get(&thread.id) {
                Some(node) => intensive[node.idx()] += u64::from(*rate > mean),
                None => is_new = true,
            }
        }
        let counts = nodes.iter().map(|node| intensive[node.idx()]);
        // There are at least two nodes, so no default is used.
        let differ = counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0);
        // A difference of one remains where the number of threads is odd.
        if !is_new && differ <= 1 {
            return;
        }
        threads.sort_by(|(a, of_a), (b, of_b)| of_b.total_cmp(of_a).then(a.id.cmp(&b.id)));
        // A serpentine: dealing always forth would give the first node most traffic.
        let back_and_forth = nodes.iter().chain(nodes.iter().rev()).cycle();
        self.homes =
            threads.iter().map(|(thread, _)| thread.id).zip(back_and_forth.copied()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::evidence::{Quantum, QueuedJob, Rates, Traffic};
    use crate::paging::testing::{SIZE, places_of};
    use crate::table::PolicySpec;
    use crate::testing::machine;
    use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse, SourceReports};
    use colocate_machine::{Machine, Nanos, Node, NodeNr, PuNr};

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// The plan for threads with such rates of memory traffic, and groups on node 0 with samples from a thread.
    fn plan(rates: &[f64], users: &[Option<u32>]) -> Plan {
        plan_on(&machine("node:2 core:4"), rates, users)
    }

    fn plan_on(machine: &Machine, rates: &[f64], users: &[Option<u32>]) -> Plan {
        let pus: Vec<_> = machine.all_pus().collect();
        let thread = |(rate, order): (&f64, u32)| {
            let traffic = Traffic { memory: Some(*rate), ..Traffic::default() };
            let ran = Some(Rates { traffic, ..Rates::default() });
            Thread { id: task(order), ran, pu: None, runnable: None, bound: false }
        };
        let threads = rates.iter().zip(0..).map(thread).collect();
        let queue = [QueuedJob {
            job: JobIdx(0),
            threads,
            runnable: None,
            just_ran: true,
            had_own_cores: false,
        }];
        let group = |(user, place): (&Option<u32>, u64)| {
            let (node, time) = (NodeIdx::new(0), Nanos::from_millis(4));
            let one = |order| PageUse { task: task(order), node, time, samples: 1, writes: 0 };
            let range = AddressRange { start: place * SIZE, end: (place + 1) * SIZE };
            PageGroup {
                job: JobIdx(0),
                range,
                on: vec![1.0, 0.0],
                uses: user.map(one).into_iter().collect(),
            }
        };
        let groups: Vec<_> = users.iter().zip(0..).map(group).collect();
        let now = Quantum { number: 0, machine, pus: &pus, queue: &queue };
        let evidence = Evidence {
            may_wait: false,
            reports: &SourceReports { pages: Some(groups.clone()), ..SourceReports::NONE },
            ..Evidence::of_queue(now)
        };
        PolicySpec::named("dino:k=2048").plain().decide(&evidence)
    }

    /// Its memory is no thread's own.
    #[test]
    fn a_node_without_pus_gets_nothing() {
        let mut with_third = machine("node:2 core:4");
        let memory = Some(colocate_machine::Bytes::mib(1));
        with_third.nodes.push(Node { os: NodeNr(2), memory, pus: Vec::new() });
        let (rates, users) = ([9.0, 8.0, 7.0, 0.0, 1.0], [Some(0), Some(1), Some(2), Some(4)]);
        let made = plan_on(&with_third, &rates, &users);
        let expected = plan(&rates, &users);
        assert_eq!((made.decisions, made.pages), (expected.decisions, expected.pages));
    }

    #[test]
    fn intensive_threads_are_spread() {
        let made = plan(&[9.0, 8.0, 0.0, 1.0], &[]);
        let places: Vec<_> = made.decisions.iter().map(|one| one.place).collect();
        let node = |pu| Place::Sharing(SharedPart::Node, PuNr(pu));
        // In the order 0, 1, 3, 2: to nodes 0, 1, 1, 0.
        assert_eq!(places, [node(0), node(4), node(0), node(4)]);
    }

    /// Thread 1 belongs to node 1: its group moves there, and those within 4 MiB that have no samples of their own.
    #[test]
    fn pages_come_along() {
        let made = plan(&[9.0, 8.0], &[None, None, None, Some(1), None, Some(0), None]);
        let moved: Vec<_> = made.pages.iter().flat_map(places_of).collect();
        assert_eq!(moved, [(1, 1), (2, 1), (3, 1)]);
    }
}
