//! PUs that go offline and come back while everything goes on.
//!
//! # Approach
//! As Linux does it (kernel/cpu.c and kernel/sched/core.c, 6.6, `select_fallback_rq`): a thread that runs or waits on
//! a PU that goes offline is put on the first PU of its node that is online, else on the first of all; one
//! that was pinned to it may run anywhere from then on. Domains are made anew, and balancing divides what
//! is there. A sleeper finds its PU gone when it wakes up.

use crate::domains::Domains;
use crate::task::TaskNo;
use crate::timers::Timers;
use crate::world::World;
use colocate_machine::{Nanos, PuIdx};

impl World<'_> {
    /// When a PU goes or comes next.
    pub(crate) fn next_hotplug(&self) -> Option<Nanos> {
        self.hotplug_events.get(self.hotplugs_done).map(|event| event.at)
    }

    /// Takes PUs away and brings them back as the scenario says.
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
        self.machine_changed = true;
        self.domains = Domains::new(self.platform.machine(), &self.usable);
        self.timers = Timers::new(&self.domains);
        self.stale = true;
        for task in 0..self.tasks.len() {
            self.leave_offline(task);
        }
    }

    fn leave_offline(&mut self, task: TaskNo) {
        let gone = |pu: PuIdx| !self.usable[pu.idx()];
        if self.tasks[task].pinned.is_some_and(gone) {
            self.tasks[task].pinned = None;
        }
        self.tasks[task].among = self.among(task);
        let from = self.tasks[task].pu.filter(|&pu| gone(pu));
        if let Some(from) = from.filter(|_| self.is_queued(task)) {
            self.migrate(task, self.allowed_near(task, self.online_near(from)));
        }
    }

    /// This PU if it is online; else the one where the kernel puts what was there.
    pub(crate) fn online_near(&self, pu: PuIdx) -> PuIdx {
        if self.usable[pu.idx()] {
            return pu;
        }
        let machine = self.platform.machine();
        let node = self.platform.node_of(pu);
        let online = machine.all_pus().filter(|pu| self.usable[pu.idx()]);
        let first =
            |other: &PuIdx| (self.platform.node_of(*other) != node, machine.pus[other.idx()].os);
        // One is always left; see `Scenario::check`.
        online.min_by_key(first).unwrap_or(pu)
    }
}
