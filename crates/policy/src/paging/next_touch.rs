//! `next-touch`: a page group moves to the node that uses it next, once.
//!
//! # Problem
//! Memory was initialized by a thread that does not use it later.
//! # Approach
//! Affinity-on-next-touch (Löf and Holmgren, ICS 2005; Goglin and Furmento): pages are marked, and
//! each moves to the node of the thread that touches it next. The published implementations protect
//! pages and handle the faults, inside the program or the kernel. From outside, the next touch is
//! the first sample.
//! # Terms
//! *Marked*: still to be moved. Initially all groups are marked.
//! # Algorithm
//! A marked group with samples moves to the node with most samples, and loses its mark. With
//! `again` the mark returns after this number of seconds.
//! # Properties
//! - **Once**: what comes later moves nothing. -> test `once`
//! - **Again**: groups are marked again. -> test `again`

use super::{PERIOD, PageGroupKey, PageGroupUse, Paging, Rule, most};
use crate::evidence::Evidence;
use crate::row::{PolicyRow, Setting};
use colocate_machine::{Machine, Nanos, NodeIdx};
use std::collections::BTreeMap;

pub static ROW: PolicyRow = PolicyRow {
    name: "next-touch",
    summary: "moves each page group once, to the node that uses it next",
    source: "Löf and Holmgren, ICS 2005, by samples",
    settings: &[Setting::count(
        "again",
        0,
        0,
        "seconds after which groups move once more; 0: never",
    )],
    make: |values, _| {
        let again = Some(values.count("again")).filter(|again| *again > 0);
        // Rules run once a period, so a mark cannot return sooner.
        let again = again.map(|again| Nanos::from_secs(again.into()).max(PERIOD));
        Paging::by(NextTouch { again, now: Nanos::ZERO, touched: BTreeMap::new() })
    },
    ..PolicyRow::ONCE
};

struct NextTouch {
    again: Option<Nanos>,
    now: Nanos,
    /// Time of the first use of each group since the group was marked.
    touched: BTreeMap<PageGroupKey, Nanos>,
}

impl Rule for NextTouch {
    fn begin(&mut self, _: &[PageGroupUse<'_>], evidence: &Evidence<'_>) {
        self.now = evidence.at;
    }

    fn target(&mut self, group: &PageGroupUse<'_>, _: &Machine) -> Option<(NodeIdx, String)> {
        let to = most(&group.by_node)?;
        let touched = self.touched.get(&group.key());
        if touched.is_some_and(|at| self.again.is_none_or(|again| self.now < *at + again)) {
            return None;
        }
        self.touched.insert(group.key(), self.now);
        Some((to, "used from there next".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::paging::testing::{Period, orders, used};

    fn periods() -> [Period; 5] {
        let later = used(&[(8, 3, 9, 9)]);
        [used(&[]), used(&[(7, 2, 1, 0)]), later.clone(), later.clone(), later]
    }

    #[test]
    fn once() {
        assert_eq!(
            orders("next-touch", &periods()),
            [vec![], vec![(0, 2)], vec![], vec![], vec![]]
        );
    }

    #[test]
    fn again() {
        let expected = [vec![], vec![(0, 2)], vec![], vec![(0, 3)], vec![]];
        assert_eq!(orders("next-touch:again=2", &periods()), expected);
    }
}
