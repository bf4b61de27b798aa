//! Memory of jobs: uses by tasks, touches, and moves between nodes.
//!
//! A task uses regions that its job's threads share, as the scenario says, and memory of its own
//! for the rest of its accesses. The nodes of its accesses
//! ([`Task::pages`](crate::task::Task::pages)) follow from those of the regions' groups.

use crate::region::PAGE;
use crate::scenario::{Fetch, Pages};
use crate::task::TaskNo;
use crate::world::World;
use colocate_machine::PuIdx;
use std::ops::Range;

impl World<'_> {
    /// Places the memory of a task at its creation, on a PU.
    pub(crate) fn touch_pages(&mut self, no: TaskNo, pu: PuIdx) {
        if self.platform.machine().nodes.is_empty() {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        // A first thread begins a new run of its job, whose memory is new.
        if no == self.jobs[job].tasks.start {
            self.memory.begin_run(job);
        }
        if let Some(own) = self.tasks[no].uses.last().map(|own| own.region) {
            let shares = self.first_place(own, no, pu);
            self.memory.put(own, &shares);
        }
        self.use_memory(no);
    }

    /// Share on each node of a region first touched by a task on a PU.
    fn first_place(&self, region: usize, no: TaskNo, pu: PuIdx) -> Vec<f64> {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let node = match self.memory.of(region).pages {
            Pages::FirstTouch => self.platform.node_of(pu),
            Pages::FirstThread => self.queues.pu_of(first).and_then(|pu| self.platform.node_of(pu)),
            Pages::Interleaved => return self.everywhere(),
            Pages::On(node) => Some(node.idx()),
        };
        let mut shares = vec![0.0; self.platform.machine().nodes.len()];
        // A PU without a known node counts as one of the first node.
        shares[node.unwrap_or(0)] = 1.0;
        shares
    }

    /// Even shares on all nodes with memory, nodes of unknown size included.
    #[allow(clippy::cast_precision_loss)] // few nodes
    pub fn everywhere(&self) -> Vec<f64> {
        let nodes = &self.platform.machine().nodes;
        let has: Vec<bool> = nodes.iter().map(|node| node.memory.is_none_or(|m| m.0 > 0)).collect();
        let share = 1.0 / has.iter().filter(|&&has| has).count().max(1) as f64;
        has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
    }

    /// Begins a task's stretch: touches its regions, and fetches regions as the scenario says.
    pub(crate) fn use_memory(&mut self, no: TaskNo) {
        let Some(pu) = self.queues.pu_of(no) else { return };
        let now: Vec<(usize, Fetch)> =
            self.tasks[no].uses_now().map(|(one, _)| (one.region, one.fetch)).collect();
        for (region, fetch) in now {
            if !self.memory.of(region).is_touched {
                let shares = self.first_place(region, no, pu);
                self.memory.put(region, &shares);
                self.memory.forget_scans(region);
            }
            self.fetch(no, region, fetch);
        }
        self.refresh_pages(no);
        self.watch_pages(no);
    }

    /// Moves a region to a task's node, at the cost of the task's time.
    fn fetch(&mut self, no: TaskNo, region: usize, fetch: Fetch) {
        if fetch == Fetch::No {
            return;
        }
        if fetch == Fetch::MoveAndStay {
            self.stay(no);
        }
        let Some(node) = self.queues.pu_of(no).and_then(|pu| self.platform.node_of(pu)) else {
            return;
        };
        let bytes = self.move_region(region, 0..self.memory.of(region).groups.len(), node, 0.0);
        self.charge_copies(no, bytes);
    }

    /// Lets a task stay on its node from now on, or on another node if its own has no room.
    fn stay(&mut self, no: TaskNo) {
        let Some(here) = self.queues.pu_of(no).and_then(|pu| self.platform.node_of(pu)) else {
            return;
        };
        if self.tasks[no].stays_on.is_some() {
            return;
        }
        let nodes = 0..self.platform.machine().nodes.len();
        let mut nodes = std::iter::once(here).chain(nodes.filter(|node| *node != here));
        let node = nodes.find(|node| self.has_room(*node));
        self.tasks[no].stays_on = node;
        self.set_target(no);
    }

    /// Whether fewer living tasks stay on a node than its PUs.
    fn has_room(&self, node: usize) -> bool {
        let tasks = self.tasks.iter();
        let stay = tasks.filter(|task| task.stays_on == Some(node) && task.ended.is_none());
        stay.count() < self.platform.home_pus(node).count()
    }

    /// Charges a task the time to copy pages, and counts their bytes.
    pub(crate) fn charge_copies(&mut self, no: TaskNo, bytes: f64) {
        self.tasks[no].refill_s += bytes / PAGE * self.scenario.kernel.page_copy.as_secs_f64();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bytes
        let bytes = bytes as u64;
        self.tasks[no].total.moves.page_bytes += bytes;
    }

    /// Brings groups of a region to a node, but for the part `stays` of memory elsewhere. Returns
    /// the moved bytes.
    pub(crate) fn move_region(
        &mut self,
        region: usize,
        groups: Range<usize>,
        node: usize,
        stays: f64,
    ) -> f64 {
        let moved = self.memory.bring(region, groups, node, stays);
        for user in self.memory.of(region).users.clone() {
            self.refresh_pages(user);
        }
        moved
    }

    /// Updates the shares of a task's accesses by node.
    fn refresh_pages(&mut self, no: TaskNo) {
        let nodes = self.platform.machine().nodes.len();
        let pages = self.memory.shares(&self.tasks[no], nodes);
        if self.tasks[no].pages != pages {
            // The version is part of the key under which predictions are kept (`crate::rates`).
            self.tasks[no].pages = pages;
            self.tasks[no].pages_version += 1;
            self.rates.note_change();
        }
    }

    /// Adds seconds of a task's CPU time on a PU to its uses of memory.
    pub(crate) fn count_use(&mut self, no: TaskNo, pu: PuIdx, seconds: f64) {
        let Some(node) = self.platform.node_of(pu) else { return };
        let shares: Vec<(usize, f64)> =
            self.tasks[no].uses_now().map(|(one, share)| (one.region, share)).collect();
        for one in &mut self.tasks[no].uses {
            let now = shares.iter().find(|(region, _)| *region == one.region);
            one.seconds[node] += now.map_or(0.0, |(_, share)| share * seconds);
        }
    }
}
