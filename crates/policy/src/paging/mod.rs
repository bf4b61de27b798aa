//! Policies that move pages, one file each, for comparison.
//!
//! Each [`PERIOD`] a rule reads the use of page groups since the last period, and returns moves.
//! The published rules use page faults or access counters per page. Here the samples of
//! [`Source::Pages`] replace both, which stock Linux does not report to another process. Thresholds
//! are therefore numbers of samples.
//!
//! # Terms
//! - *Home* of a group: the node with most of it.
//! - *Far*: on another node than the task that uses it.

mod autonuma;
mod carrefour;
mod dino;
mod dpp;
mod first_touch;
mod interleave;
mod kmaf;
mod next_touch;
#[cfg(test)]
pub(crate) mod testing;

use crate::evidence::Evidence;
use crate::plan::{PageMove, Place, PlaceReason, Plan};
use crate::policy::Policy;
use crate::row::PolicyRow;
use colocate_evidence::{JobIdx, PageGroup, PageUse, PagesMoved, Source, SourceSet, TaskId};
use colocate_machine::{Bytes, Machine, Nanos, NodeIdx, NodeNr};
use std::collections::BTreeMap;

/// Policies that move pages.
pub(crate) static ROWS: &[&PolicyRow] = &[
    &first_touch::ROW,
    &interleave::ROW,
    &autonuma::ROW,
    &next_touch::ROW,
    &dpp::ROW,
    &carrefour::ROW,
    &dino::ROW,
    &kmaf::ROW,
];

/// Time between two decisions, as in Carrefour.
pub(crate) const PERIOD: Nanos = Nanos::from_secs(1);

/// Page group with its use since the last decision.
struct PageGroupUse<'a> {
    pages: &'a PageGroup,
    new: Vec<PageUse>,
    /// Samples by node.
    by_node: Vec<u64>,
}

impl PageGroupUse<'_> {
    fn key(&self) -> PageGroupKey {
        key(self.pages)
    }

    /// Samples from all nodes.
    fn samples(&self) -> u64 {
        self.new.iter().map(|one| one.samples).sum()
    }

    /// True if the home is known and is another node.
    fn is_far(&self, node: NodeIdx) -> bool {
        self.pages.home().is_some_and(|home| home != node)
    }
}

/// Identity of a page group: job and start address.
pub(crate) type PageGroupKey = (JobIdx, u64);

/// Identity of a group.
pub(crate) fn key(group: &PageGroup) -> PageGroupKey {
    (group.job, group.range.start)
}

/// Rule for page moves.
trait Rule {
    /// Evidence sources besides page use.
    const ALSO: SourceSet = SourceSet::NONE;

    /// Takes in all groups of a period.
    fn begin(&mut self, _groups: &[PageGroupUse<'_>], _: &Evidence<'_>) {}

    /// Node to which a group moves, unless it is the home, and the reason; `None`: the group stays.
    fn target(&mut self, group: &PageGroupUse<'_>, machine: &Machine) -> Option<(NodeIdx, String)>;

    /// Places of tasks; all remaining tasks are left to the kernel.
    fn places(&self, _: &Evidence<'_>) -> Vec<(TaskId, Place, PlaceReason)> {
        Vec::new()
    }
}

/// Policy that applies a rule each period.
struct Paging<R> {
    rule: R,
    last: Option<Nanos>,
    before: BTreeMap<PageGroupKey, Vec<PageUse>>,
    orders: Orders,
}

impl<R: Rule + 'static> Paging<R> {
    fn by(rule: R) -> Box<dyn Policy> {
        Box::new(Self { rule, last: None, before: BTreeMap::new(), orders: Orders::default() })
    }

    fn orders(&mut self, evidence: &Evidence<'_>) -> Vec<PageMove> {
        let machine = evidence.now.machine;
        let all = evidence.reports.pages.as_deref().unwrap_or_default();
        let groups = all.iter().map(|pages| {
            let before = self.before.get(&key(pages));
            let new = since(&pages.uses, before.map_or(&[], Vec::as_slice));
            let mut by_node = vec![0; machine.nodes.len()];
            for one in &new {
                by_node.get_mut(one.node.idx()).into_iter().for_each(|sum| *sum += one.samples);
            }
            PageGroupUse { pages, new, by_node }
        });
        let groups: Vec<_> = groups.collect();
        // Replaced as a whole, so that groups of ended jobs are forgotten.
        self.before = all.iter().map(|group| (key(group), group.uses.clone())).collect();
        self.rule.begin(&groups, evidence);
        let moves = groups.iter().filter_map(|group| {
            let (to, why) = self.rule.target(group, machine).filter(|(to, _)| group.is_far(*to))?;
            Some((group.pages, machine.nodes[to.idx()].os, why))
        });
        self.orders.give(evidence.at, moves)
    }
}

impl<R: Rule + 'static> Policy for Paging<R> {
    fn needs(&self) -> SourceSet {
        SourceSet::of(&[Source::Pages]).and(R::ALSO)
    }

    fn period(&self) -> Option<Nanos> {
        Some(PERIOD)
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        // Decisions also come on events, more often than the rule's period.
        let is_due = self.last.is_none_or(|last| evidence.at >= last + PERIOD);
        let mut pages = Vec::new();
        let may_order = self.orders.note(evidence.at, evidence.moved);
        // The plan of a control quantum is not applied, so its orders would be lost.
        if is_due && may_order && !evidence.is_control {
            self.last = Some(evidence.at);
            pages = self.orders(evidence);
        }
        let places = self.rule.places(evidence).into_iter();
        Plan { pages, ..evidence.plan_of_some(places) }
    }
}

/// Increase of use since `before`; samples and times only grow.
pub(crate) fn since(now: &[PageUse], before: &[PageUse]) -> Vec<PageUse> {
    now.iter()
        .map(|one| {
            let old = before.iter().find(|old| old.task == one.task && old.node == one.node);
            // Unknown before: all of its use is new.
            let Some(old) = old else { return *one };
            PageUse {
                time: one.time.saturating_sub(old.time),
                samples: one.samples.saturating_sub(old.samples),
                writes: one.writes.saturating_sub(old.writes),
                ..*one
            }
        })
        .filter(|one| one.samples > 0)
        .collect()
}

/// Page-move orders: per plan, a single order for each job and node. No new orders until the last
/// orders are carried out, since the groups' nodes are only then known.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    open: usize,
    since: Nanos,
}

/// Time until an order counts as lost because its job has ended. Chosen.
const LOST: Nanos = Nanos::from_secs(30);

impl Orders {
    /// Counts completed orders. True if new orders may be given.
    pub fn note(&mut self, at: Nanos, moved: &[PagesMoved]) -> bool {
        // Reports of orders given up as lost may still come.
        self.open = self.open.saturating_sub(moved.len());
        self.open == 0 || at >= self.since + LOST
    }

    /// Merges moves (group, node, reason) into orders.
    pub fn give<'a>(
        &mut self,
        at: Nanos,
        groups: impl Iterator<Item = (&'a PageGroup, NodeNr, String)>,
    ) -> Vec<PageMove> {
        let mut orders: BTreeMap<(JobIdx, NodeNr), PageMove> = BTreeMap::new();
        for (group, to, why) in groups {
            let job = group.job;
            let new = PageMove { job, ranges: Vec::new(), to, budget: Bytes(0), why };
            // The reason of an order's first group stands for all of its groups.
            let order = orders.entry((job, to)).or_insert(new);
            order.ranges.push(group.range);
            order.budget.0 += group.bytes().0;
        }
        self.open = orders.len();
        self.since = at;
        orders.into_values().collect()
    }
}

/// Node with the largest count, the first among equals; `None` if all are 0.
fn most(counts: &[u64]) -> Option<NodeIdx> {
    let most = counts.iter().copied().max().filter(|most| *most > 0)?;
    counts.iter().position(|count| *count == most).map(NodeIdx::new)
}

/// Nodes with memory; unknown sizes count as memory.
pub(crate) fn with_memory(machine: &Machine) -> Vec<NodeIdx> {
    (0..machine.nodes.len()).map(NodeIdx::new).filter(|node| machine.has_memory(*node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new() {
        let task = |order| TaskId { job: JobIdx(0), order };
        let one = |order, samples| PageUse {
            task: task(order),
            node: NodeIdx::new(0),
            time: Nanos(samples),
            samples,
            writes: samples / 2,
        };
        let new = since(&[one(0, 7), one(1, 4), one(2, 3)], &[one(0, 5), one(1, 4)]);
        let short: Vec<_> =
            new.iter().map(|one| (one.task.order, one.samples, one.writes)).collect();
        assert_eq!(short, [(0, 2, 1), (2, 3, 1)]);
    }

    /// Three groups in two orders, and no more until both are carried out.
    #[test]
    fn orders_are_given_one_after_the_other() {
        let group = |start| PageGroup {
            job: JobIdx(0),
            range: colocate_evidence::AddressRange { start, end: start + 10 },
            on: Vec::new(),
            uses: Vec::new(),
        };
        let groups = [group(0), group(10), group(20)];
        let mut orders = Orders::default();
        let to = [1, 2, 1].map(NodeNr);
        let all = groups.iter().zip(to).map(|(group, to)| (group, to, String::new()));
        let given = orders.give(Nanos::ZERO, all);
        let short: Vec<_> =
            given.iter().map(|it| (it.to.0, it.ranges.len(), it.budget.0)).collect();
        assert_eq!(short, [(1, 2, 20), (2, 1, 10)]);
        let done: Vec<_> = given.iter().map(testing::carried_out).collect();
        assert!(!orders.note(Nanos::ZERO, &[]) && !orders.note(Nanos::ZERO, &done[..1]));
        assert!(orders.note(Nanos::ZERO, &done[1..]));
        orders.open = 1;
        assert!(orders.note(LOST, &[]));
    }
}
