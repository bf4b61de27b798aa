//! Memory that a plan orders to be moved.
//!
//! A simulated thread has shares of its memory on nodes and no addresses. As with NUMA balancing, copying takes no time.

use crate::world::World;
use colocate_machine::Bytes;
use colocate_policy::{PageMove, PagesMoved};

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

    /// Moves memory of each of the job's living threads in turn, until the budget is spent.
    ///
    /// # Errors
    /// Why nothing can be moved, in a line.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^53
    fn carry_out(&mut self, order: &PageMove) -> Result<PagesMoved, String> {
        let machine = self.platform.machine();
        let node = machine.nodes.iter().position(|node| node.os == order.to);
        let node =
            node.ok_or_else(|| format!("expected a node of the machine, found {}", order.to))?;
        if order.range.is_some() {
            return Err(
                "expected all memory of a job, as simulated ones have no addresses, found a range"
                    .to_owned(),
            );
        }
        let (mut budget, mut left) = (order.budget.0 as f64, 0.0);
        for task in 0..self.tasks.len() {
            if self.tasks[task].id.job != order.job || self.tasks[task].created.is_none() {
                continue;
            }
            let resident = self.resident(task);
            let far = (1.0 - self.tasks[task].pages[node]).max(0.0) * resident;
            let moves = far.min(budget);
            (budget, left) = (budget - moves, left + far - moves);
            if moves > 0.0 {
                self.bring(task, node, 1.0 - moves / far);
                self.tasks[task].total.moves.page_bytes += moves as u64;
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

    /// Brings memory of a task to `node`; of what is on other nodes this part `stays`.
    pub(crate) fn bring(&mut self, task: usize, node: usize, stays: f64) {
        let task = &mut self.tasks[task];
        task.pages.iter_mut().for_each(|share| *share *= stays);
        task.pages[node] += 1.0 - task.pages.iter().sum::<f64>();
        task.pages_version += 1;
        self.stale = true;
    }

    /// How much memory a task has, in bytes.
    #[allow(clippy::cast_precision_loss)] // below 2^53
    pub fn resident(&self, task: usize) -> f64 {
        let job = self.tasks[task].id.job.0 as usize;
        let thread = task - self.jobs[job].tasks.start;
        self.scenario.jobs[job].threads[thread].resident.0 as f64
    }
}
