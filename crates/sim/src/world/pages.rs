//! Moves of memory that a plan orders.
//!
//! Addresses are those of [`Accesses::page_groups`](crate::accesses::Accesses::page_groups). Copying takes the programs no time, as another
//! thread does it.

use crate::parts::Parts;
use crate::region::{MemoryRegion, groups_in};
use crate::world::memory::move_region;
use colocate_evidence::PagesMoved;
use colocate_machine::Bytes;
use colocate_policy::PageMove;
use std::ops::Range;

/// Carries out the orders of a plan. Returns the results, for the next report.
pub(crate) fn move_pages(parts: &mut Parts<'_>, orders: &[PageMove]) -> Vec<PagesMoved> {
    let moved = orders.iter().map(|order| {
        carry_out(parts, order).unwrap_or_else(|trouble| PagesMoved {
            job: order.job,
            to: order.to,
            moved: Bytes(0),
            left: Bytes(0),
            trouble: Some(trouble),
        })
    });
    moved.collect()
}

/// Moves memory of a job to a node, region by region, until the budget is spent.
///
/// # Errors
/// The reason why nothing can be moved, in a line.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
fn carry_out(parts: &mut Parts<'_>, order: &PageMove) -> Result<PagesMoved, String> {
    let machine = parts.platform.machine;
    let node = machine.nodes.iter().position(|node| node.os == order.to);
    let node = node.ok_or_else(|| format!("expected a node of the machine, found {}", order.to))?;
    let mut budget = order.budget.0 as f64;
    let mut left = 0.0;
    for (region, groups) in ordered(&parts.memory, order)? {
        let far = parts.memory[region].far_bytes(groups.clone(), node);
        let moves = far.min(budget);
        budget -= moves;
        left = left + far - moves;
        if moves > 0.0 {
            // Moved bytes are counted once, at the first user.
            let user = parts.memory[region].users[0];
            move_region(parts, region, groups, node, 1.0 - moves / far);
            parts.tasks[user].count_pages(moves);
        }
    }
    let moved = Bytes((order.budget.0 as f64 - budget).round() as u64);
    Ok(PagesMoved {
        job: order.job,
        to: order.to,
        moved,
        left: Bytes(left.round() as u64),
        trouble: None,
    })
}

/// Regions of an order, each with the groups to move: all of a job's memory unless the order
/// has ranges.
///
/// # Errors
/// A line, if none of the ordered ranges is memory of the job.
fn ordered(
    memory: &[MemoryRegion],
    order: &PageMove,
) -> Result<Vec<(usize, Range<usize>)>, String> {
    let job = order.job.0 as usize;
    if !order.ranges.is_empty() {
        let found = order.ranges.iter().filter_map(|range| groups_in(memory, *range));
        let found: Vec<_> = found.filter(|(region, _)| is_movable(&memory[*region], job)).collect();
        return if found.is_empty() {
            Err("expected memory that the job has, found none".to_owned())
        } else {
            Ok(found)
        };
    }
    let all = memory.iter().enumerate().filter(|(_, region)| is_movable(region, job));
    Ok(all.map(|(place, region)| (place, 0..region.groups.len())).collect())
}

/// Whether a region is touched memory of a job and has a user, to which moved bytes are counted.
fn is_movable(region: &MemoryRegion, job: usize) -> bool {
    region.job == job && region.is_touched && !region.users.is_empty()
}
