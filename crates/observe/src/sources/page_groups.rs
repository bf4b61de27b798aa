//! Page groups: which tasks use them, by samples of accesses, and where they are, by move_pages(2).
//!
//! Groups are parts of 2 MiB, by address. Processes of one job that have other memory at the same address count as one, as in orders to move
//! memory.

use super::QuantumTasks;
use crate::sharing::groups::{Count, GROUP_B};
use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse, TaskId};
use colocate_linux::Pid;
use colocate_linux::move_pages::{Addr, PageLocation, page_bytes, query, seen};
use colocate_machine::{Machine, Nanos, NodeIdx, PuNr};
use std::collections::BTreeMap;

/// Pages of a group whose places are queried. Chosen: threads touch memory in long stretches.
const QUERIED: u64 = 8;

/// Time between two queries of nodes. Chosen: the interval of policies that move pages.
const QUERY_EVERY: Nanos = Nanos::from_secs(1);

/// Maximum number of known groups, the most recently used. Chosen: 32 GiB.
const MOST: usize = 1 << 14;

/// All groups with a known use.
#[derive(Debug, Default)]
pub(crate) struct PageGroups {
    groups: BTreeMap<(JobIdx, u64), PageGroupState>,
    queried: Option<Nanos>,
}

#[derive(Debug)]
struct PageGroupState {
    /// Process of the last use.
    pid: Pid,
    last: Nanos,
    on: Vec<f64>,
    uses: BTreeMap<(TaskId, NodeIdx), Count>,
}

impl PageGroups {
    /// Adds samples, each of a group (its process and first address) by a task. Reports the groups
    /// used by remembered tasks, with their present nodes. `period` is the time between two samples
    /// of a thread.
    pub fn report(
        &mut self,
        quantum: &QuantumTasks<'_>,
        sampled: impl Iterator<Item = ((Pid, u64), TaskId, Count)>,
        period: Nanos,
    ) -> Vec<PageGroup> {
        let memory = quantum.machine.memory_nodes();
        for ((pid, start), task, count) in sampled {
            let pu = quantum.find(task).and_then(|task| task.last_ran);
            if let Some(node) = pu.and_then(|pu| node_of(pu, quantum.machine, &memory)) {
                self.add((task.job, start), pid, quantum.at, (task, node), count);
            }
        }
        self.keep(|task| quantum.find(task).is_some());
        self.query(quantum.at, quantum.machine);
        self.all(period)
    }

    fn add(
        &mut self,
        key: (JobIdx, u64),
        pid: Pid,
        at: Nanos,
        by: (TaskId, NodeIdx),
        count: Count,
    ) {
        let group = self.groups.entry(key).or_insert_with(|| PageGroupState {
            pid,
            last: at,
            on: Vec::new(),
            uses: BTreeMap::new(),
        });
        group.pid = pid;
        group.last = at;
        let sum = group.uses.entry(by).or_default();
        sum.samples += count.samples;
        sum.writes += count.writes;
    }

    /// Forgets tasks outside the quantum, unused groups, and beyond the limit the oldest.
    fn keep(&mut self, mut is_kept: impl FnMut(TaskId) -> bool) {
        for group in self.groups.values_mut() {
            group.uses.retain(|(task, _), _| is_kept(*task));
        }
        self.groups.retain(|_, group| !group.uses.is_empty());
        if self.groups.len() > MOST {
            let mut last: Vec<Nanos> = self.groups.values().map(|group| group.last).collect();
            last.sort_unstable();
            let oldest = last[last.len() - MOST];
            self.groups.retain(|_, group| group.last >= oldest);
        }
    }

    /// Queries the groups' nodes if due.
    fn query(&mut self, at: Nanos, machine: &Machine) {
        if self.queried.is_some_and(|last| at < last + QUERY_EVERY) {
            return;
        }
        self.queried = Some(at);
        let step = (GROUP_B / QUERIED).next_multiple_of(page_bytes());
        let mut by_process: BTreeMap<Pid, Vec<(JobIdx, u64)>> = BTreeMap::new();
        for (key, group) in &self.groups {
            by_process.entry(group.pid).or_default().push(*key);
        }
        for (pid, keys) in by_process {
            let addresses: Vec<Addr> = keys
                .iter()
                .flat_map(|(_, start)| (0..QUERIED).map(move |n| Addr(*start + n * step)))
                .collect();
            // A process that has ended, or whose pages may not be queried.
            let Ok(answers) = query(pid, &addresses) else { continue };
            for (key, answers) in keys.iter().zip(answers.chunks(addresses.len() / keys.len())) {
                if let Some(group) = self.groups.get_mut(key) {
                    group.on = shares(answers, machine);
                }
            }
        }
    }

    fn all(&self, period: Nanos) -> Vec<PageGroup> {
        self.groups
            .iter()
            .map(|(&(job, start), group)| PageGroup {
                job,
                range: AddressRange { start, end: start + GROUP_B },
                on: group.on.clone(),
                uses: group.uses.iter().map(|(by, count)| page_use(*by, *count, period)).collect(),
            })
            .collect()
    }
}

/// Node with the memory nearest to a PU, where the kernel puts pages; maybe not the PU's own.
fn node_of(pu: PuNr, machine: &Machine, memory: &[Option<NodeIdx>]) -> Option<NodeIdx> {
    let core = machine.core_of(machine.pu_by_os(pu)?);
    memory[machine.cores[core.idx()].node?.idx()]
}

fn page_use((task, node): (TaskId, NodeIdx), count: Count, period: Nanos) -> PageUse {
    let time = Nanos(period.0.saturating_mul(count.samples));
    PageUse { task, node, time, samples: count.samples, writes: count.writes }
}

/// Fraction of the pages on each node; all 0 if none is present.
fn shares(answers: &[i32], machine: &Machine) -> Vec<f64> {
    let mut on = vec![0.0; machine.nodes.len()];
    for answer in answers {
        let Some(PageLocation::On(node)) = seen(*answer) else { continue };
        if let Some(at) = machine.nodes.iter().position(|of| of.os == node) {
            on[at] += 1.0;
        }
    }
    let all: f64 = on.iter().sum();
    if all > 0.0 {
        on.iter_mut().for_each(|share| *share /= all);
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    #[test]
    fn uses_add_up_until_all_tasks_have_ended() {
        let mut groups = PageGroups::default();
        let node = NodeIdx::new(1);
        let one = Count { samples: 3, writes: 1 };
        for at in [1, 2] {
            groups.add((JobIdx(0), 0), Pid(9), Nanos(at), (task(0), node), one);
            groups.add((JobIdx(0), GROUP_B), Pid(9), Nanos(at), (task(1), node), one);
        }
        let all = groups.all(Nanos(4));
        let expected = PageUse { task: task(0), node, time: Nanos(24), samples: 6, writes: 2 };
        assert_eq!((all.len(), all[0].uses.as_slice()), (2, &[expected][..]));
        groups.keep(|one| one == task(1));
        assert_eq!(groups.all(Nanos(4)).len(), 1);
    }

    #[test]
    fn a_pu_without_memory_of_its_own_uses_the_nearest() {
        let mut machine = colocate_machine::read::open("epyc-7301").unwrap();
        let own = machine.cores[0].node.unwrap();
        let pu = machine.pus[0].os;
        let of = |machine: &Machine| node_of(pu, machine, &machine.memory_nodes());
        assert_eq!(of(&machine), Some(own));
        machine.nodes[own.idx()].memory = Some(colocate_machine::Bytes(0));
        let rows = machine.distances.as_ref().unwrap().rows.clone();
        let other = of(&machine).unwrap();
        let nearest = rows[own.idx()].iter().copied().filter(|distance| *distance > 10).min();
        assert_eq!((other != own, Some(rows[own.idx()][other.idx()])), (true, nearest));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut groups = PageGroups::default();
        for n in 0..=MOST as u64 {
            groups.add(
                (JobIdx(0), n * GROUP_B),
                Pid(9),
                Nanos(n),
                (task(0), NodeIdx::new(0)),
                Count::default(),
            );
        }
        groups.keep(|_| true);
        assert_eq!(groups.groups.len(), MOST);
        assert!(!groups.groups.contains_key(&(JobIdx(0), 0)));
    }
}
