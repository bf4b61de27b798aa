//! Memory of jobs: which task uses what, and what comes of moving it.
//!
//! A task uses regions that its job's threads share, as the scenario says, and for the remaining part of its accesses
//! memory of its own. Where its accesses go ([`Task::pages`]) follows from where the groups of these regions are.

use crate::region::{PAGE, Region, SPACE_BITS, Use};
use crate::scenario::{Fetch, Pages};
use crate::task::{Task, TaskNo};
use crate::world::World;
use colocate_evidence::{AddressRange, JobIdx, PageGroup, PageUse};
use colocate_machine::{NodeIdx, PuIdx};
use std::ops::Range;

/// Samples a second of CPU time that are reported, as a real host takes them by default.
const RATE_HZ: f64 = 250.0;

impl Task {
    /// The regions that it uses now, and their shares of its accesses.
    fn uses_now(&self) -> impl Iterator<Item = (&Use, f64)> {
        let at = self.course.stretch();
        let is_now = move |one: &&Use| one.during.is_none_or(|during| during == at);
        let (own, shared) = self
            .uses
            .split_last()
            .map_or((None, &self.uses[..]), |(own, shared)| (Some(own), shared));
        let taken: f64 = shared.iter().filter(is_now).map(|one| one.share).sum();
        let own = own.map(|own| (own, (1.0 - taken).max(0.0)));
        shared.iter().filter(is_now).map(|one| (one, one.share)).chain(own)
    }
}

impl World<'_> {
    /// Where a task's memory comes to be at its creation.
    pub(crate) fn touch_pages(&mut self, no: TaskNo, pu: PuIdx) {
        if self.platform.machine().nodes.is_empty() {
            return;
        }
        let job = self.tasks[no].id.job.0 as usize;
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

    /// Where a region comes to be that a task on a PU uses first.
    fn first_place(&self, region: usize, no: TaskNo, pu: PuIdx) -> Vec<f64> {
        let first = self.jobs[self.tasks[no].id.job.0 as usize].tasks.start;
        let node_of = |pu: Option<PuIdx>| pu.and_then(|pu| self.platform.node_of(pu)).unwrap_or(0);
        let all_on = |node: usize| {
            let mut shares = vec![0.0; self.platform.machine().nodes.len()];
            shares[node] = 1.0;
            shares
        };
        match self.regions[region].pages {
            Pages::FirstTouch => all_on(node_of(Some(pu))),
            Pages::FirstThread => all_on(node_of(self.tasks[first].pu)),
            Pages::Interleaved => self.everywhere(),
            Pages::On(node) => all_on(node.idx()),
        }
    }

    /// Evenly on all nodes that have memory, as far as is known.
    #[allow(clippy::cast_precision_loss)] // few nodes
    pub fn everywhere(&self) -> Vec<f64> {
        let nodes = &self.platform.machine().nodes;
        let has: Vec<bool> = nodes.iter().map(|node| node.memory.is_none_or(|m| m.0 > 0)).collect();
        let share = 1.0 / has.iter().filter(|&&has| has).count().max(1) as f64;
        has.into_iter().map(|has| if has { share } else { 0.0 }).collect()
    }

    /// A task begins a stretch: what it uses from now on is touched, and fetched if it does that.
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

    /// A task moves a region to its node, which takes it time.
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

    /// Lets a task stay on its node from now on, or on another one where fewer stay than it has PUs.
    fn stay(&mut self, no: TaskNo) {
        let Some(here) = self.tasks[no].pu.and_then(|pu| self.platform.node_of(pu)) else { return };
        if self.tasks[no].stays_on.is_some() {
            return;
        }
        let machine = self.platform.machine();
        let has_room = |node: &usize| {
            let stay = self
                .tasks
                .iter()
                .filter(|task| task.stays_on == Some(*node) && task.ended.is_none());
            stay.count() < machine.home_pus(NodeIdx::new(*node)).count()
        };
        let all =
            std::iter::once(here).chain((0..machine.nodes.len()).filter(|node| *node != here));
        self.tasks[no].stays_on = all.into_iter().find(has_room);
        self.set_target(no);
    }

    /// Time that a task takes to copy pages, or has them copied for it.
    pub(crate) fn charge_copies(&mut self, no: TaskNo, bytes: f64) {
        self.tasks[no].refill_s += bytes / PAGE * self.scenario.kernel.page_copy.as_secs_f64();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bytes
        let bytes = bytes as u64;
        self.tasks[no].total.moves.page_bytes += bytes;
    }

    /// Brings groups of a region to a node, of what is elsewhere all but what `stays`; how many bytes that were.
    #[allow(clippy::cast_precision_loss)] // few groups
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

    /// Works out anew where a task's accesses go.
    fn refresh_pages(&mut self, no: TaskNo) {
        let mut pages = vec![0.0; self.platform.machine().nodes.len()];
        for (one, share) in self.tasks[no].uses_now() {
            let region = &self.regions[one.region];
            pages.iter_mut().enumerate().for_each(|(node, sum)| *sum += share * region.on(node));
        }
        if self.tasks[no].pages != pages {
            self.tasks[no].pages = pages;
            self.tasks[no].pages_version += 1;
            self.stale = true;
        }
    }

    /// The regions that a task uses now.
    pub(crate) fn regions_of(&self, no: TaskNo) -> Vec<usize> {
        self.tasks[no]
            .uses_now()
            .filter(|(_, share)| *share > 0.0)
            .map(|(one, _)| one.region)
            .collect()
    }

    /// How much memory a task uses now, in bytes.
    pub fn resident(&self, no: TaskNo) -> f64 {
        self.regions_of(no).into_iter().map(|region| self.regions[region].bytes).sum()
    }

    /// Counts so many seconds of CPU time of a task at the memory that it uses.
    pub(crate) fn count_use(&mut self, no: TaskNo, pu: PuIdx, seconds: f64) {
        let Some(node) = self.platform.node_of(pu) else { return };
        let shares: Vec<(usize, f64)> =
            self.tasks[no].uses_now().map(|(one, share)| (one.region, share)).collect();
        for one in &mut self.tasks[no].uses {
            let now = shares.iter().find(|(region, _)| *region == one.region);
            one.seconds[node] += now.map_or(0.0, |(_, share)| share * seconds);
        }
    }

    /// What a host reports of page groups.
    pub fn page_groups(&self) -> Vec<PageGroup> {
        let touched = self.regions.iter().enumerate();
        let touched = touched.filter(|(_, region)| region.is_touched && region.bytes > 0.0);
        touched.flat_map(|(place, region)| self.groups_of(place, region)).collect()
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // samples
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
        let group = |(range, on): (AddressRange, &Vec<f64>)| PageGroup {
            job,
            range,
            on: on.clone(),
            uses: uses.clone(),
        };
        region.ranges(place).zip(&region.groups).map(group).collect()
    }

    /// The region that begins before an address, and the groups of it that begin in a range.
    pub(crate) fn groups_in(&self, range: AddressRange) -> Option<(usize, Range<usize>)> {
        let place = usize::try_from(range.start >> SPACE_BITS).ok()?.checked_sub(1)?;
        let region = self.regions.get(place)?;
        let is_in = |of: &AddressRange| range.start <= of.start && of.start < range.end;
        let first = region.ranges(place).position(|of| is_in(&of))?;
        let count = region.ranges(place).filter(is_in).count();
        Some((place, first..first + count))
    }
}
