//! Memory of jobs: uses by tasks, touches, and moves between nodes.
//!
//! A task uses regions that its job's threads share, as the scenario says, and memory of its own
//! for the rest of its accesses. The nodes of its accesses ([`Task::pages`]) follow from those of
//! the regions' groups.

use crate::region::{PAGE, Region, SPACE_BITS, Use};
use crate::scenario::{Fetch, Pages};
use crate::task::{Task, TaskNo};
use crate::world::World;
use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse};
use colocate_machine::{NodeIdx, PuIdx};
use std::ops::Range;

/// Samples a second of CPU time in reports of pages: the default of a real host.
const RATE_HZ: f64 = 250.0;

impl Task {
    /// Regions in use now, with their shares of its accesses.
    fn uses_now(&self) -> impl Iterator<Item = (&Use, f64)> {
        let at = self.course.stretch();
        let (own, shared) = self
            .uses
            .split_last()
            .map_or((None, &self.uses[..]), |(own, shared)| (Some(own), shared));
        let shared = shared.iter();
        let shared = shared.filter(move |one| one.during.is_none_or(|during| during == at));
        let taken: f64 = shared.clone().map(|one| one.share).sum();
        // Shares may sum to a little more than 1; see `check_memory`.
        let own = own.map(|own| (own, (1.0 - taken).max(0.0)));
        shared.map(|one| (one, one.share)).chain(own)
    }
}

impl World<'_> {
    /// Places the memory of a task at its creation, on a PU.
    pub(crate) fn touch_pages(&mut self, no: TaskNo, pu: PuIdx) {
        if self.platform.machine().nodes.is_empty() {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
        // A first thread begins a new run of its job, whose memory is new.
        if no == self.jobs[job].tasks.start {
            let of_job = self.regions.iter_mut().filter(|region| region.job == job);
            of_job.for_each(|region| region.is_touched = false);
        }
        if let Some(own) = self.tasks[no].uses.last().map(|own| own.region) {
            let shares = self.first_place(own, no, pu);
            self.regions[own].put(&shares);
        }
        self.use_memory(no);
    }

    /// Share on each node of a region first touched by a task on a PU.
    fn first_place(&self, region: usize, no: TaskNo, pu: PuIdx) -> Vec<f64> {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let node = match self.regions[region].pages {
            Pages::FirstTouch => self.platform.node_of(pu),
            Pages::FirstThread => self.tasks[first].pu.and_then(|pu| self.platform.node_of(pu)),
            Pages::Interleaved => return self.everywhere(),
            Pages::On(node) => Some(node.idx()),
        };
        let mut shares = vec![0.0; self.platform.machine().nodes.len()];
        shares[node.unwrap_or(0)] = 1.0;
        shares
    }

    /// Even shares on all nodes with memory, nodes of unknown size included.
    pub fn everywhere(&self) -> Vec<f64> {
        let nodes = &self.platform.machine().nodes;
        let has: Vec<bool> = nodes.iter().map(|node| node.memory.is_none_or(|m| m.0 > 0)).collect();
        let share = 1.0 / has.iter().filter(|&&has| has).count().max(1) as f64;
        has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
    }

    /// Begins a task's stretch: touches its regions, and fetches regions as the scenario says.
    pub(crate) fn use_memory(&mut self, no: TaskNo) {
        let Some(pu) = self.tasks[no].pu else { return };
        let now: Vec<(usize, Fetch)> =
            self.tasks[no].uses_now().map(|(one, _)| (one.region, one.fetch)).collect();
        for (region, fetch) in now {
            if !self.regions[region].is_touched {
                let shares = self.first_place(region, no, pu);
                self.regions[region].put(&shares);
                self.regions[region].scanned_from = None;
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
        let Some(node) = self.tasks[no].pu.and_then(|pu| self.platform.node_of(pu)) else { return };
        let bytes = self.move_region(region, 0..self.regions[region].groups.len(), node, 0.0);
        self.charge_copies(no, bytes);
    }

    /// Lets a task stay on its node from now on, or on another node if its own has no room.
    fn stay(&mut self, no: TaskNo) {
        let Some(here) = self.tasks[no].pu.and_then(|pu| self.platform.node_of(pu)) else { return };
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
        let of = &mut self.regions[region];
        let count = of.groups.len() as f64;
        let far: f64 =
            of.groups[groups.clone()].iter().map(|group| (1.0 - group[node]).max(0.0)).sum();
        of.bring(groups, node, stays);
        let moved = of.bytes / count * far * (1.0 - stays);
        for user in of.users.clone() {
            self.refresh_pages(user);
        }
        moved
    }

    /// Updates the shares of a task's accesses by node.
    fn refresh_pages(&mut self, no: TaskNo) {
        let mut pages = vec![0.0; self.platform.machine().nodes.len()];
        for (one, share) in self.tasks[no].uses_now() {
            let region = &self.regions[one.region];
            pages.iter_mut().enumerate().for_each(|(node, sum)| *sum += share * region.on(node));
        }
        if self.tasks[no].pages != pages {
            // The version is part of the key under which predictions are kept (`crate::rates`).
            self.tasks[no].pages = pages;
            self.tasks[no].pages_version += 1;
            self.stale = true;
        }
    }

    /// Regions in use by a task now, regions without accesses left out.
    pub(crate) fn regions_of(&self, no: TaskNo) -> Vec<usize> {
        self.tasks[no]
            .uses_now()
            .filter(|(_, share)| *share > 0.0)
            .map(|(one, _)| one.region)
            .collect()
    }

    /// Memory in use by a task now, in bytes.
    pub fn resident(&self, no: TaskNo) -> f64 {
        self.regions_of(no).into_iter().map(|region| self.regions[region].bytes).sum()
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

    /// Page groups of touched memory, as in a host's reports.
    pub fn page_groups(&self) -> Vec<PageGroup> {
        let touched = self.regions.iter().enumerate();
        let touched = touched.filter(|(_, region)| region.is_touched && region.bytes > 0.0);
        touched.flat_map(|(place, region)| self.groups_of(place, region)).collect()
    }

    /// Page groups of the region at `place` among all. Uses are spread evenly over the groups.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // samples
    fn groups_of(&self, place: usize, region: &Region) -> Vec<PageGroup> {
        let count = region.groups.len() as f64;
        let mut uses = Vec::new();
        for no in &region.users {
            let task = &self.tasks[*no];
            let of_region = task.uses.iter().filter(|one| one.region == place);
            for (one, node) in
                of_region.flat_map(|one| (0..one.seconds.len()).map(move |node| (one, node)))
            {
                let seconds = one.seconds[node] / count;
                let samples = (seconds * RATE_HZ) as u64;
                if samples > 0 {
                    uses.push(PageUse {
                        task: task.id,
                        node: NodeIdx::new(node),
                        time: colocate_machine::Nanos((seconds * 1e9) as u64),
                        samples,
                        writes: (samples as f64 * one.writes) as u64,
                    });
                }
            }
        }
        let job = JobIdx(u32::try_from(region.job).unwrap_or(u32::MAX));
        let groups = region.ranges(place).zip(&region.groups).map(|(range, on)| PageGroup {
            job,
            range,
            on: on.clone(),
            uses: uses.clone(),
        });
        groups.collect()
    }

    /// The region of an address range, and its groups with a start in the range. `None` if none.
    pub(crate) fn groups_in(&self, range: AddressRange) -> Option<(usize, Range<usize>)> {
        // Regions begin at multiples of 2^40, the first at 1 of them; see `Region::ranges`.
        let place = usize::try_from(range.start >> SPACE_BITS).ok()?.checked_sub(1)?;
        let region = self.regions.get(place)?;
        let groups = region.ranges(place).enumerate();
        let mut inside =
            groups.filter(|(_, group)| range.start <= group.start && group.start < range.end);
        let (first, _) = inside.next()?;
        Some((place, first..first + 1 + inside.count()))
    }
}
