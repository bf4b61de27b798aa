//! Memory that a plan orders to be moved.
//!
//! Addresses are those that [`World::page_groups`] reports. Copying takes the programs no time, as another thread does it.

use crate::region::Region;
use crate::world::World;
use colocate_evidence::PagesMoved;
use colocate_machine::Bytes;
use colocate_policy::PageMove;
use std::ops::Range;

impl World<'_> {
    /// Carries out the orders of a plan.
    pub fn move_pages(&mut self, orders: &[PageMove]) {
        for order in orders {
            let moved = self.carry_out(order).unwrap_or_else(|trouble| PagesMoved {
                job: order.job,
                to: order.to,
                moved: Bytes(0),
                left: Bytes(0),
                trouble: Some(trouble),
            });
            self.moved.push(moved);
        }
    }

    /// Moves memory of the job, region by region, until the budget is spent.
    ///
    /// # Errors
    /// Why nothing can be moved, in a line.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
    fn carry_out(&mut self, order: &PageMove) -> Result<PagesMoved, String> {
        let machine = self.platform.machine();
        let node = machine.nodes.iter().position(|node| node.os == order.to);
        let node =
            node.ok_or_else(|| format!("expected a node of the machine, found {}", order.to))?;
        let (mut budget, mut left) = (order.budget.0 as f64, 0.0);
        for (region, groups) in self.ordered(order)? {
            let of = &self.regions[region];
            let elsewhere: f64 =
                of.groups[groups.clone()].iter().map(|group| (1.0 - group[node]).max(0.0)).sum();
            let far = of.bytes / of.groups.len() as f64 * elsewhere;
            let moves = far.min(budget);
            (budget, left) = (budget - moves, left + far - moves);
            if moves > 0.0 {
                let user = of.users[0];
                self.move_region(region, groups, node, 1.0 - moves / far);
                self.tasks[user].total.moves.page_bytes += moves as u64;
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

    /// The regions of an order, and which groups of them.
    fn ordered(&self, order: &PageMove) -> Result<Vec<(usize, Range<usize>)>, String> {
        let job = order.job.0 as usize;
        let is_its =
            |region: &Region| region.job == job && region.is_touched && !region.users.is_empty();
        if !order.ranges.is_empty() {
            let found = order.ranges.iter().filter_map(|range| self.groups_in(*range));
            let found: Vec<_> =
                found.filter(|(region, _)| is_its(&self.regions[*region])).collect();
            let why = || "expected memory that the job has, found none".to_owned();
            return if found.is_empty() { Err(why()) } else { Ok(found) };
        }
        let all = self.regions.iter().enumerate().filter(|(_, region)| is_its(region));
        Ok(all.map(|(place, region)| (place, 0..region.groups.len())).collect())
    }
}
