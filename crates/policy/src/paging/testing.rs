//! Page groups whose use is known, under a policy: for tests only.

use crate::evidence::{Evidence, Quantum};
use crate::plan::PageMove;
use crate::table::PolicySpec;
use crate::testing::machine;
use colocate_evidence::{
    AddressRange, JobIdx, PageGroup, PageUse, PagesMoved, SourceReports, TaskId,
};
use colocate_machine::{Bytes, Nanos, NodeIdx};

/// Use of a group: (task, its node, samples, writes).
pub type TestUse = (u32, usize, u64, u64);

/// Events of a period: for each group its home, and its use.
pub type Period = Vec<(usize, Vec<TestUse>)>;

/// A period in which the only group, of node 0, is used.
pub fn used(uses: &[TestUse]) -> Period {
    vec![(0, uses.to_vec())]
}

/// Groups of 2 MiB.
pub const SIZE: u64 = 2 << 20;

/// Under a policy on four nodes: the orders of each period, as (group, node). Groups that moved are
/// where they were ordered to be.
pub fn orders(policy: &str, periods: &[Period]) -> Vec<Vec<(usize, u32)>> {
    let machine = machine("node:4 core:4");
    let pus: Vec<_> = machine.all_pus().collect();
    let mut made = PolicySpec::named(policy).plain();
    let mut groups: Vec<PageGroup> = Vec::new();
    let (mut all, mut moved) = (Vec::new(), Vec::new());
    for (period, at) in periods.iter().zip(1_u64..) {
        for (place, (home, uses)) in period.iter().enumerate() {
            if groups.len() == place {
                groups.push(group(place as u64, *home));
            }
            for one in uses.clone() {
                add(&mut groups[place], one);
            }
        }
        let now = Quantum { number: at, machine: &machine, pus: &pus, queue: &[] };
        let at = Nanos::from_secs(at);
        let evidence = Evidence {
            at,
            reports: &SourceReports { pages: Some(groups.clone()), ..SourceReports::NONE },
            moved: &moved,
            ..Evidence::of_queue(now)
        };
        let plan = made.decide(&evidence);
        moved = plan.pages.iter().map(carried_out).collect();
        let mut places: Vec<(usize, u32)> = plan.pages.iter().flat_map(places_of).collect();
        places.sort_unstable();
        for (place, to) in &places {
            let group = &mut groups[*place];
            group.on = vec![0.0; 4];
            group.on[*to as usize] = 1.0;
        }
        all.push(places);
    }
    all
}

/// Places of groups of an order, and its node.
#[allow(clippy::cast_possible_truncation)] // few
pub fn places_of(order: &PageMove) -> impl Iterator<Item = (usize, u32)> + use<'_> {
    order.ranges.iter().map(|range| ((range.start / SIZE) as usize, order.to.0))
}

/// Report that an order was carried out.
pub fn carried_out(order: &PageMove) -> PagesMoved {
    let PageMove { job, to, budget, .. } = *order;
    PagesMoved { job, to, moved: budget, left: Bytes(0), trouble: None }
}

fn group(place: u64, home: usize) -> PageGroup {
    let range = AddressRange { start: place * SIZE, end: (place + 1) * SIZE };
    let mut on = vec![0.0; 4];
    on[home] = 1.0;
    PageGroup { job: JobIdx(0), range, on, uses: Vec::new() }
}

fn add(group: &mut PageGroup, (task, node, samples, writes): TestUse) {
    let task = TaskId { job: JobIdx(0), order: task };
    let node = NodeIdx::new(node);
    let time = Nanos::from_millis(4 * samples);
    let same = |one: &&mut PageUse| one.task == task && one.node == node;
    match group.uses.iter_mut().find(same) {
        Some(one) => {
            one.time += time;
            one.samples += samples;
            one.writes += writes;
        }
        None => group.uses.push(PageUse { task, node, time, samples, writes }),
    }
}
