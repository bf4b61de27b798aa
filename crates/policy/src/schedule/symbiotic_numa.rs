//! `symbiotic-numa`: [`symbiotic`](super::symbiotic) with regard to the nodes of threads' memory.
//!
//! # Problem
//! The best neighbours may be on another node, and a thread that moves there leaves its memory
//! behind.
//! # Approach
//! Feliu's NUMA-aware variant is known by name and results only; this variant is ours. Threads stay
//! on the node of their memory and are matched there. They change nodes only if the gain exceeds
//! the cost of the distance.
//! # Terms
//! - *Home* of a thread: the node where it ran most quanta. No host reports the nodes of its pages;
//!   Linux puts a page on the node of the thread that first touches it.
//! - *Away*: slowdown of a thread by the distance, `λ · M · (distance / local distance − 1)`. `M`
//!   is the share of its cycles alone that wait for memory. Distances are relative latencies
//!   reported by the firmware, so `λ` is 1 by default. Without distances no node is far.
//! # Algorithm
//! 1. Threads go to their homes while there is room, the others to the node with most room.
//! 2. On each node as `symbiotic`: two siblings by matching, more by hierarchical matching.
//! 3. A thread moves to another core, or two threads exchange places, also between nodes, as long
//!    as the cost with *away* falls.
//! 4. Stay put, as `symbiotic`, by the same cost.
//! # Properties
//! - **One node**: it is `symbiotic`. -> test `one_node_is_symbiotic`
//! - **At home**: no thread leaves for less than it costs. -> test `no_thread_leaves_for_less`
//! - **Never worse** than staying, by its own prediction. -> test `never_worse_than_staying`

use super::Thread;
use super::symbiotic::groups::{CoreGroups, LiveThread, pus_of_cores};
use crate::by_id::ById;
use crate::matching::{self, EXACT_UP_TO, exchange::improved, in_groups_by};
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::{Machine, NodeIdx};
use std::collections::BTreeMap;

/// Default of `λ`, see the module: a longer way counts as the distances say.
pub(crate) const REMOTE_WEIGHT: f64 = 1.0;

/// Home nodes of threads.
#[derive(Clone, Debug)]
pub struct HomeNodes {
    /// `λ`.
    scale: f64,
    /// By thread: quanta on each node, by place in `Machine::nodes`.
    ran: ById<TaskId, Vec<u64>>,
}

impl HomeNodes {
    /// Home nodes of no threads. `scale` is `λ`, not below 0.
    pub fn new(scale: f64) -> Self {
        Self { scale, ran: ById::default() }
    }

    /// Takes in the threads' nodes in the last quantum. Forgets threads that have ended.
    pub(super) fn note(&mut self, machine: &Machine, there: &[LiveThread<'_>]) {
        let after = there.iter().map(|(thread, just_ran)| {
            let mut ran = self.ran.remove(&thread.id).unwrap_or_default();
            // A new thread has an empty list.
            ran.resize(machine.nodes.len(), 0);
            let last = thread.pu.filter(|_| *just_ran);
            let node = last.and_then(|pu| machine.cores[machine.core_of(pu).idx()].node);
            if let Some(quanta) = node.and_then(|node| ran.get_mut(node.idx())) {
                *quanta += 1;
            }
            (thread.id, ran)
        });
        self.ran = after.collect();
    }

    /// Home of a thread, the first of several nodes with the most quanta; `None`: it never ran.
    fn of(&self, id: TaskId) -> Option<NodeIdx> {
        let ran = self.ran.get(&id)?;
        let most = ran.iter().copied().max().filter(|most| *most > 0)?;
        ran.iter().position(|quanta| *quanta == most).map(NodeIdx::new)
    }

    /// By usable core: slowdown added by the distance from the thread's home. `memory` is the share
    /// of its cycles alone that wait for memory.
    pub(super) fn away(&self, places: &UsableMachine<'_>, id: TaskId, memory: f64) -> Vec<f64> {
        let machine = places.machine;
        let home = self.of(id);
        let cores = places.cores.iter().map(|core| machine.cores[core.core.idx()].node);
        // Unknown distances count as none.
        let farther = cores.map(|node| farther(machine, home, node).unwrap_or(0.0));
        farther.map(|farther| self.scale * memory * farther).collect()
    }

    /// Groups by usable core, steps 1 to 3. All cores have as many PUs; `cost`: of a group there.
    pub(super) fn groups(
        &self,
        places: &UsableMachine<'_>,
        threads: &[&Thread],
        cost: impl Fn(usize, &[usize]) -> f64,
    ) -> CoreGroups {
        let nodes = by_node(places);
        let members = self.at_home(places, threads, &nodes);
        let mut groups: CoreGroups = vec![Vec::new(); places.cores.len()];
        let width = places.width();
        // Nodes share the time of one decision.
        let is_exact = threads.len() <= EXACT_UP_TO;
        let matching = if is_exact { matching::cheapest } else { matching::by_exchange };
        let mut group = Vec::with_capacity(width);
        for (cores, members) in nodes.values().zip(members) {
            let made = in_groups_by(matching, members.len(), cores.len(), width, |of| {
                group.clear();
                group.extend(of.iter().map(|&at| members[at]));
                cost(cores[0], &group)
            });
            for (&core, group) in cores.iter().zip(made) {
                // Places within the node become places among all threads.
                groups[core] = group.into_iter().map(|at| members[at]).collect();
            }
        }
        if nodes.len() == 1 {
            return groups;
        }
        improved(groups, &pus_of_cores(places), &classes(places), cost)
    }

    /// Threads by node, in their order: at home while there is room, else where most is left.
    fn at_home(
        &self,
        places: &UsableMachine<'_>,
        threads: &[&Thread],
        nodes: &PlacesByNode,
    ) -> Vec<Vec<usize>> {
        let rooms = nodes.values().map(|cores| cores.iter().map(|&at| places.cores[at].pus.len()));
        let mut left: Vec<usize> = rooms.map(Iterator::sum).collect();
        let mut members = vec![Vec::new(); nodes.len()];
        let mut rest = Vec::new();
        for (at, thread) in threads.iter().enumerate() {
            let home = self.of(thread.id);
            let place = home.and_then(|home| nodes.keys().position(|node| *node == Some(home)));
            match place.filter(|&place| left[place] > 0) {
                Some(place) => {
                    left[place] -= 1;
                    members[place].push(at);
                }
                None => rest.push(at),
            }
        }
        for at in rest {
            // `rev`, because `max_by_key` returns the last of several: this is the first node.
            let most = (0..left.len()).rev().max_by_key(|&place| left[place]);
            if let Some(place) = most.filter(|&place| left[place] > 0) {
                left[place] -= 1;
                members[place].push(at);
            }
        }
        members
    }
}

/// Places among the usable cores, by node; `None` is an unknown node.
type PlacesByNode = BTreeMap<Option<NodeIdx>, Vec<usize>>;

/// The usable cores of each node.
fn by_node(places: &UsableMachine<'_>) -> PlacesByNode {
    let mut nodes = PlacesByNode::new();
    for (at, core) in places.cores.iter().enumerate() {
        let node = places.machine.cores[core.core.idx()].node;
        nodes.entry(node).or_default().push(at);
    }
    nodes
}

/// Class of each usable core: its node.
pub(super) fn classes(places: &UsableMachine<'_>) -> Vec<usize> {
    let nodes = places.cores.iter().map(|core| places.machine.cores[core.core.idx()].node);
    nodes.map(|node| node.map_or(usize::MAX, NodeIdx::idx)).collect()
}

/// Distance from `node` to the memory of `home` over the local one, less 1, at least 0, if known.
fn farther(machine: &Machine, home: Option<NodeIdx>, node: Option<NodeIdx>) -> Option<f64> {
    let rows = &machine.distances.as_ref()?.rows;
    let home = home?.idx();
    let local = f64::from(*rows.get(home)?.get(home)?);
    let here = f64::from(*rows.get(node?.idx())?.get(home)?);
    (local > 0.0).then(|| (here / local - 1.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::symbiotic::groups::live_threads;
    use super::super::symbiotic::tests::{knowing, model, on_core, stacks};
    use super::super::symbiotic::{Symbiotic, SymbioticSettings};
    use super::super::testing::{chosen, queue};
    use super::super::{Quantum, QueuedJob, Scheduler};
    use super::*;
    use crate::rng::SplitMix64;
    use crate::testing::machine;
    use colocate_machine::{Distances, PuIdx};
    use proptest::prelude::*;

    const EAGER: SymbioticSettings = SymbioticSettings { gain: 0.0, ..SymbioticSettings::USUAL };

    /// Two nodes, the other one `far` away where 10 is near.
    fn two_nodes(far: u32) -> Machine {
        let mut machine = machine("node:2 core:2 pu:2");
        machine.distances = Some(Distances { rows: vec![vec![10, far], vec![far, 10]] });
        machine
    }

    /// Eight jobs, in turn on PUs of both nodes: even ones on the first.
    fn settled(machine: &Machine) -> Vec<QueuedJob> {
        let mut queue = queue(&[0.0; 8]);
        for (at, job) in queue.iter_mut().enumerate() {
            let pu = at / 2 + 4 * (at % 2);
            job.threads[0].pu = Some(machine.all_pus().nth(pu).expect("eight PUs"));
            job.just_ran = true;
        }
        queue
    }

    fn all(machine: &Machine) -> Vec<PuIdx> {
        machine.all_pus().collect()
    }

    /// Threads that are not at home, when a longer way counts `scale`.
    fn gone(machine: &Machine, scale: f64, seed: u64) -> usize {
        let mut rng = SplitMix64::new(seed);
        let (model, stacks) = (model(&mut rng), stacks(&mut rng, 8));
        let (pus, queue) = (all(machine), settled(machine));
        let now = Quantum { number: 0, machine, pus: &pus, queue: &queue };
        let new = Symbiotic::new(model, EAGER).with_homes(HomeNodes::new(scale));
        let groups = on_core(machine, &knowing(new, &stacks).choose(&now));
        let away = |(core, group): (usize, &Vec<usize>)| {
            group.iter().filter(|&&job| job % 2 != core / 2).count()
        };
        groups.iter().enumerate().map(away).sum()
    }

    /// 0.3 of its cycles wait for memory, which is twice as far: 0.3 slower; at half weight 0.15.
    #[test]
    fn away_by_hand() {
        let machine = two_nodes(20);
        let (pus, queue) = (all(&machine), settled(&machine));
        let places = UsableMachine::new(&machine, &pus);
        let mut homes = HomeNodes::new(0.5);
        homes.note(&machine, &live_threads(&queue));
        let found = homes.away(&places, queue[1].threads[0].id, 0.3);
        for (found, wanted) in found.iter().zip([0.15, 0.15, 0.0, 0.0]) {
            assert!((found - wanted).abs() < 1e-12, "{found}");
        }
        let stranger = TaskId { order: 9, ..queue[1].threads[0].id };
        assert_eq!(homes.away(&places, stranger, 0.3), [0.0; 4]);
    }

    /// Where the way counts much no thread goes; where it counts nothing neighbours decide, and for
    /// some workload of twenty it is elsewhere.
    #[test]
    fn no_thread_leaves_for_less() {
        let machine = two_nodes(20);
        assert!((0..20).all(|seed| gone(&machine, 1e6, seed) == 0));
        assert!((0..20).any(|seed| gone(&machine, 0.0, seed) > 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn one_node_is_symbiotic(count in 1_usize..=12, seed: u64) {
            let machine = machine("core:4 pu:2");
            let mut rng = SplitMix64::new(seed);
            let (model, stacks) = (model(&mut rng), stacks(&mut rng, count));
            let (pus, queue) = (all(&machine), queue(&vec![0.0; count]));
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
            let plain = Symbiotic::new(model.clone(), EAGER);
            let numa = Symbiotic::new(model, EAGER).with_homes(HomeNodes::new(1.0));
            let plain = chosen(&knowing(plain, &stacks).choose(&now));
            prop_assert_eq!(chosen(&knowing(numa, &stacks).choose(&now)), plain);
        }

        /// With what is lost by being away.
        #[test]
        fn never_worse_than_staying(far in 10_u32..=40, seed: u64) {
            let machine = two_nodes(far);
            let mut rng = SplitMix64::new(seed);
            let (model, stacks) = (model(&mut rng), stacks(&mut rng, 8));
            let (pus, queue) = (all(&machine), settled(&machine));
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
            let new = Symbiotic::new(model.clone(), SymbioticSettings::USUAL).with_homes(HomeNodes::new(1.0));
            let groups = on_core(&machine, &knowing(new, &stacks).choose(&now));
            let stay: Vec<Vec<usize>> = (0..4).map(|c| vec![c % 2 * 4 + c / 2, c % 2 * 4 + c / 2 + 2]).collect();
            let cost = |groups: &[Vec<usize>]| -> f64 {
                let each = groups.iter().enumerate().flat_map(|(core, group)| {
                    let members: Vec<&[f64]> = group.iter().map(|&at| &stacks[at][..]).collect();
                    let slowdowns = model.mode(2).slowdowns(&members);
                    group.iter().zip(slowdowns).map(|(&at, slowdown)| {
                        let farther = if at % 2 == core / 2 { 0.0 } else { f64::from(far) / 10.0 - 1.0 };
                        1.0 - 1.0 / (slowdown.max(1.0) + stacks[at][1] * farther)
                    }).collect::<Vec<_>>()
                });
                each.sum()
            };
            prop_assert!(cost(&groups) <= cost(&stay) + 1e-9, "{groups:?}");
        }
    }
}
