//! Memory of jobs: uses by tasks, touches, and moves between nodes.
//!
//! The nodes of a task's accesses ([`crate::accesses`]) follow from those of the regions' groups.

use crate::parts::Parts;
use crate::region::PAGE;
use crate::scenario::{Fetch, Pages};
use crate::task::TaskNo;
use crate::world::moves::{set_target, watch_pages};
use colocate_machine::{Machine, PuIdx};
use std::ops::Range;

/// Places the memory of a task at its creation, on a PU.
pub(crate) fn touch_pages(parts: &mut Parts<'_>, no: TaskNo, pu: PuIdx) {
    if parts.platform.machine.nodes.is_empty() {
        return;
    }
    let job = parts.tasks[no].job();
    // A first thread begins a new run of its job, whose memory is new.
    if no == parts.jobs[job].first() {
        let of_job = parts.memory.iter_mut().filter(|region| region.job == job);
        of_job.for_each(|region| region.is_touched = false);
    }
    if let Some(own) = parts.accesses.own_region(no) {
        let shares = first_place(parts, own, no, pu);
        parts.memory[own].put(&shares);
    }
    use_memory(parts, no);
}

/// Share on each node of a region first touched by a task on a PU.
fn first_place(parts: &Parts<'_>, region: usize, no: TaskNo, pu: PuIdx) -> Vec<f64> {
    let first = parts.job_of(no).first();
    let node = match parts.memory[region].pages {
        Pages::FirstTouch => parts.platform.node_of(pu),
        Pages::FirstThread => parts.node_of(first),
        Pages::Interleaved => return everywhere(parts.machine()),
        Pages::On(node) => Some(node.idx()),
    };
    let mut shares = vec![0.0; parts.platform.machine.nodes.len()];
    // A PU without a known node counts as one of the first node.
    shares[node.unwrap_or(0)] = 1.0;
    shares
}

/// Even shares on all nodes with memory, nodes of unknown size included.
#[allow(clippy::cast_precision_loss)] // few nodes
fn everywhere(machine: &Machine) -> Vec<f64> {
    let nodes = machine.nodes.iter();
    let has: Vec<bool> = nodes.map(|node| node.memory.is_none_or(|m| m.0 > 0)).collect();
    let share = 1.0 / has.iter().filter(|&&has| has).count().max(1) as f64;
    has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
}

/// Begins a task's stretch: touches its regions, and fetches regions as the scenario says.
pub(crate) fn use_memory(parts: &mut Parts<'_>, no: TaskNo) {
    let Some(pu) = parts.queues.pu_of(no) else { return };
    for (region, how) in parts.accesses.fetches(no, parts.stretch(no)) {
        if !parts.memory[region].is_touched {
            let shares = first_place(parts, region, no, pu);
            parts.memory[region].put(&shares);
            // The next scan is its first.
            parts.memory[region].scanned_from = None;
        }
        fetch(parts, no, region, how);
    }
    refresh_pages(parts, no);
    watch_pages(parts, no);
}

/// Moves a region to a task's node, at the cost of the task's time.
fn fetch(parts: &mut Parts<'_>, no: TaskNo, region: usize, how: Fetch) {
    if how == Fetch::No {
        return;
    }
    if how == Fetch::MoveAndStay {
        stay(parts, no);
    }
    let Some(node) = parts.node_of(no) else { return };
    let bytes = move_region(parts, region, 0..parts.memory[region].groups.len(), node, 0.0);
    charge_copies(parts, no, bytes);
}

/// Lets a task stay on its node from now on, or on another node if its own has no room.
fn stay(parts: &mut Parts<'_>, no: TaskNo) {
    let Some(here) = parts.node_of(no) else { return };
    if parts.accesses.of[no].stays_on.is_some() {
        return;
    }
    let nodes = 0..parts.platform.machine.nodes.len();
    let mut nodes = std::iter::once(here).chain(nodes.filter(|node| *node != here));
    let node = nodes.find(|node| has_room(parts, *node));
    parts.accesses.of[no].stays_on = node;
    set_target(parts, no);
}

/// Whether fewer living tasks stay on a node than its PUs.
fn has_room(parts: &Parts<'_>, node: usize) -> bool {
    let stay = (0..parts.tasks.len()).filter(|&task| {
        parts.accesses.of[task].stays_on == Some(node) && parts.tasks[task].ended.is_none()
    });
    stay.count() < parts.platform.home_pus(node).count()
}

/// Charges a task the time to copy pages, and counts their bytes.
pub(crate) fn charge_copies(parts: &mut Parts<'_>, no: TaskNo, bytes: f64) {
    parts.tasks[no].delay(bytes / PAGE * parts.scenario.kernel.page_copy.as_secs_f64());
    parts.tasks[no].count_pages(bytes);
}

/// Brings groups of a region to a node, but for the part `stays` of memory elsewhere. Returns
/// the moved bytes.
pub(crate) fn move_region(
    parts: &mut Parts<'_>,
    region: usize,
    groups: Range<usize>,
    node: usize,
    stays: f64,
) -> f64 {
    let moved = parts.memory[region].bring(groups, node, stays);
    for user in parts.memory[region].users.clone() {
        refresh_pages(parts, user);
    }
    moved
}

/// Updates the shares of a task's accesses by node.
fn refresh_pages(parts: &mut Parts<'_>, no: TaskNo) {
    let stretch = parts.stretch(no);
    if parts.accesses.update(no, stretch, &parts.memory) {
        parts.rates.is_stale = true;
    }
}
