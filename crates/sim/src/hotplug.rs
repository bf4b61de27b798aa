//! CPU hotplug: PUs that go offline and come back during a simulation.
//!
//! # Approach
//! As Linux (kernel/cpu.c and kernel/sched/core.c, 6.6, `select_fallback_rq`): a thread that runs
//! or waits on a PU that goes offline is put on the first online PU of its node, else on the first
//! of all. A thread that was pinned to it may run anywhere from then on. Domains are built anew,
//! and balancing spreads the load. A sleeper finds its PU gone when it wakes up.

use crate::domains::Domains;
use crate::platform::Platform;
use crate::scenario::{PuEvent, Scenario};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr};

/// Usable PUs, their domains, and the hotplug events to come.
#[derive(Debug)]
pub(crate) struct UsablePus<'a> {
    platform: &'a Platform<'a>,
    /// By PU: whether online and allowed by the scenario.
    pub usable: Vec<bool>,
    /// Domains of the usable PUs.
    pub domains: Domains,
    /// Hotplug events in the order of time.
    events: Vec<PuEvent>,
    /// Number of past hotplug events.
    done: usize,
}

impl<'a> UsablePus<'a> {
    /// The PUs of a scenario before its first event.
    pub fn new(platform: &'a Platform<'a>, scenario: &Scenario) -> Self {
        let machine = platform.machine;
        let usable: Vec<bool> = machine.pus.iter().map(|pu| scenario.may_use(pu.os)).collect();
        let mut events = scenario.events.clone();
        events.sort_by_key(|event| event.at);
        Self { platform, domains: Domains::new(machine, &usable), usable, events, done: 0 }
    }

    /// The machine.
    pub const fn machine(&self) -> &'a Machine {
        self.platform.machine
    }

    /// A PU by its kernel number; `None` if offline or excluded from the scenario.
    pub fn by_os(&self, pu: PuNr) -> Option<PuIdx> {
        self.machine().pu_by_os(pu).filter(|pu| self.has(*pu))
    }

    /// The kernel's number of a PU.
    pub fn os(&self, pu: PuIdx) -> PuNr {
        self.machine().pus[pu.idx()].os
    }

    /// Whether a PU is online and allowed by the scenario.
    pub fn has(&self, pu: PuIdx) -> bool {
        self.usable[pu.idx()]
    }

    /// Usable PUs, in logical order.
    pub fn iter(&self) -> impl Iterator<Item = PuIdx> + '_ {
        self.platform.machine.all_pus().filter(|pu| self.has(*pu))
    }

    /// Time of the next hotplug event; `None` after the last.
    pub fn next(&self) -> Option<Nanos> {
        self.events.get(self.done).map(|event| event.at)
    }

    /// Applies all hotplug events until `now`. Whether there was one.
    pub fn apply(&mut self, now: Nanos) -> bool {
        let before = self.done;
        while let Some(event) = self.events.get(self.done).filter(|event| event.at <= now) {
            if let Some(pu) = self.platform.machine.pu_by_os(event.pu) {
                self.usable[pu.idx()] = event.online;
            }
            self.done += 1;
        }
        if self.done == before {
            return false;
        }
        self.domains = Domains::new(self.platform.machine, &self.usable);
        true
    }

    /// `pu` if online; else the kernel's fallback PU for its threads.
    pub fn near(&self, pu: PuIdx) -> PuIdx {
        if self.has(pu) {
            return pu;
        }
        let node = self.platform.node_of(pu);
        // At least one PU is always online; see `Scenario::check`.
        self.iter()
            .min_by_key(|&other| (self.platform.node_of(other) != node, self.os(other)))
            .unwrap_or(pu)
    }
}
