//! CPU hotplug: PUs that go offline and come back during a simulation.
//!
//! # Approach
//! As Linux (kernel/cpu.c and kernel/sched/core.c, 6.6, `select_fallback_rq`): a thread that runs
//! or waits on a PU that goes offline is put on the first online PU of its node, else on the first
//! of all. A thread that was pinned to it may run anywhere from then on. Domains are built anew,
//! and balancing spreads the load. A sleeper finds its PU gone when it wakes up.

use crate::domains::Domains;
use crate::task::TaskNo;
use crate::timers::Timers;
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};

impl World<'_> {
    /// Time of the next hotplug event; `None` after the last.
    pub(crate) fn next_hotplug(&self) -> Option<Nanos> {
        self.hotplug_events.get(self.hotplugs_done).map(|event| event.at)
    }

    /// Applies all hotplug events of the scenario until now.
    pub(crate) fn apply_hotplug(&mut self) {
        let before = self.hotplugs_done;
        while let Some(event) =
            self.hotplug_events.get(self.hotplugs_done).filter(|e| e.at <= self.now)
        {
            if let Some(pu) = self.platform.machine().pu_by_os(event.pu) {
                self.usable[pu.idx()] = event.online;
            }
            self.hotplugs_done += 1;
        }
        if self.hotplugs_done == before {
            return;
        }
        // All that follows from the set of usable PUs is built anew.
        self.machine_changed = true;
        self.domains = Domains::new(self.platform.machine(), &self.usable);
        self.timers = Timers::new(&self.domains);
        self.stale = true;
        for task in 0..self.tasks.len() {
            self.leave_offline(task);
        }
    }

    /// Frees a task from an offline PU: from its pinning, and from its queue.
    fn leave_offline(&mut self, task: TaskNo) {
        if self.tasks[task].pinned.is_some_and(|pu| !self.usable[pu.idx()]) {
            self.tasks[task].pinned = None;
        }
        // A set of PUs that share a cache or node loses those that are offline.
        self.tasks[task].among = self.among(task);
        let from = self.tasks[task].pu.filter(|pu| !self.usable[pu.idx()]);
        if let Some(from) = from.filter(|_| self.is_queued(task)) {
            self.migrate(task, self.allowed_near(task, self.online_near(from)));
        }
    }

    /// `pu` if online; else the kernel's fallback PU for its threads.
    pub(crate) fn online_near(&self, pu: PuIdx) -> PuIdx {
        if self.usable[pu.idx()] {
            return pu;
        }
        let machine = self.platform.machine();
        let node = self.platform.node_of(pu);
        let online = machine.all_pus().filter(|pu| self.usable[pu.idx()]);
        // At least one PU is always online; see `Scenario::check`.
        online
            .min_by_key(|&other| (self.platform.node_of(other) != node, self.os(other)))
            .unwrap_or(pu)
    }
}
