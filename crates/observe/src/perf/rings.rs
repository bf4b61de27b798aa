//! One ring per CPU, shared by the events of any number of tasks.
//!
//! The kernel does not let inherited events of one task share a ring across CPUs, so there is one
//! ring per CPU. Each ring belongs to a carrier event that outlives every watched task, so a poll
//! never reports one task's hang-up. A carrier is an event on every task of the CPU or, without the
//! permission, on this process, and is never enabled; or it reports every task.

use super::{Attr, PerfEvent, Ring};
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::PuNr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Upper bound of the records at a task's exit: exit record and record of a loss before it, 56 and
/// 24 bytes, each with at most 56 bytes of identification (perf_event_open(2)).
const ROOM_FOR_AN_END_B: usize = 256;

/// Instead of a TID: every thread that runs on the event's CPU (perf_event_open(2)).
pub const EVERY: Tid = Tid(-1);

/// Rings of some CPUs, and the events that write to them.
#[derive(Debug)]
pub struct Rings {
    carriers: Vec<(PuNr, Ring)>,
    /// Whether the carriers report every task.
    pub every: bool,
    /// Events, with the threads for which they were opened.
    events: Vec<(Tid, PerfEvent)>,
    /// Whether the kernel counts dropped records (Linux 6.0).
    counts_lost: bool,
    /// Records lost by closed events, and losses already reported.
    lost: (u64, u64),
}

impl Rings {
    /// Maps a ring of up to `pages` pages on each of `cpus` for events like `attr`.
    ///
    /// Rings are smaller if the user may not lock enough memory. Offline CPUs are left out.
    ///
    /// # Errors
    /// As [`PerfEvent::open`] and [`Ring::map`]; `ENODEV` if no CPU of `cpus` is online.
    pub fn map(attr: &Attr, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        let carrier = attr.disabled();
        // The first event on a task, after a second without any, waits for all PUs (15 ms on a
        // virtual machine with 2). An event on every task avoids the wait.
        Self::map_for(&carrier, EVERY, cpus, pages).or_else(|_| {
            let ours = Pid(std::process::id().cast_signed()).first_thread();
            Self::map_for(&carrier, ours, cpus, pages)
        })
    }

    /// As [`Rings::map`], and reports `attr` for every task until [`Rings::end_every`]. If `attr`
    /// is disabled, reports begin at [`Rings::switch`].
    ///
    /// # Errors
    /// As [`Rings::map`]; needs `CAP_PERFMON`, or a `perf_event_paranoid` of at most 0.
    pub fn map_every(attr: &Attr, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        Ok(Self { every: true, ..Self::map_for(attr, EVERY, cpus, pages)? })
    }

    fn map_for(attr: &Attr, of: Tid, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        let mut rings = Self {
            carriers: Vec::new(),
            every: false,
            events: Vec::new(),
            counts_lost: true,
            lost: (0, 0),
        };
        let mut offline = None;
        for cpu in cpus {
            let mut mapped = map_one(&rings.like(attr), of, *cpu, pages);
            // Linux before 6.0 refuses PERF_FORMAT_LOST.
            if mapped.as_ref().is_err_and(|why| why.errno() == Some(libc::EINVAL)) {
                rings.counts_lost = false;
                mapped = map_one(attr, of, *cpu, pages);
            }
            match mapped {
                Ok(ring) => rings.carriers.push((*cpu, ring)),
                Err(error) if error.errno() == Some(libc::ENODEV) => offline = Some(error),
                Err(error) => return Err(error),
            }
        }
        match offline {
            Some(error) if rings.carriers.is_empty() => Err(error),
            _ => Ok(rings),
        }
    }

    /// Stops reports of every task; attached events go on. Records already written stay.
    pub fn end_every(&mut self) -> Result<(), SysError> {
        self.every = false;
        self.switch(false)
    }

    /// Enables or disables the reports of every task.
    pub fn switch(&self, on: bool) -> Result<(), SysError> {
        self.carriers.iter().try_for_each(|(_, ring)| ring.event().switch(on))
    }

    fn like(&self, attr: &Attr) -> Attr {
        if self.counts_lost { attr.counting_lost() } else { *attr }
    }

    /// Opens `attr` on thread `tid`, one event a CPU, all writing to these rings.
    pub fn attach(&mut self, attr: &Attr, tid: Tid) -> Result<(), SysError> {
        let before = self.events.len();
        let attr = self.like(attr);
        for (cpu, ring) in &self.carriers {
            let opened = PerfEvent::open(&attr, tid, Some(*cpu))
                .and_then(|event| event.output_to(ring.event()).map(|()| event));
            match opened {
                Ok(event) => self.events.push((tid, event)),
                // The CPU has gone offline since the rings were mapped; the other CPUs go on.
                Err(error) if error.errno() == Some(libc::ENODEV) => {}
                Err(error) => {
                    // All events of a thread or none.
                    self.events.truncate(before);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Closes the events opened for thread `tid`, with their inherited copies.
    pub fn detach(&mut self, tid: Tid) {
        self.detach_if(|of| of == tid);
    }

    /// Closes the events of these threads; their records stay in the rings.
    pub fn detach_if(&mut self, closes: impl Fn(Tid) -> bool) {
        let counts = self.counts_lost;
        let lost = &mut self.lost.0;
        self.events.retain(|(tid, event)| {
            let closes = closes(*tid);
            // The kernel's count of lost records ends with the event.
            if closes && counts {
                *lost += event.lost().unwrap_or(0);
            }
            !closes
        });
    }

    /// Thread of each open event.
    pub fn tids(&self) -> impl ExactSizeIterator<Item = Tid> {
        self.events.iter().map(|(tid, _)| *tid)
    }

    /// Records dropped since the last call. `recorded` is the number of losses reported in the
    /// rings; it is returned if the kernel does not count drops. A loss at the very end of a ring
    /// is reported by no record.
    pub fn newly_lost(&mut self, recorded: u64) -> u64 {
        if !self.counts_lost {
            return recorded;
        }
        let events = self.events.iter().map(|(_, event)| event);
        let events = events.chain(self.carriers.iter().map(|(_, ring)| ring.event()));
        let open = events.filter_map(|event| event.lost().ok()).sum::<u64>();
        let all = self.lost.0 + open;
        all.saturating_sub(std::mem::replace(&mut self.lost.1, all))
    }

    /// Appends all waiting records to `into`, ring after ring. Returns whether a ring was so full
    /// that a task's exit record may have been dropped. The kernel records a loss only with its
    /// next record.
    pub fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let mut full = false;
        for (_, ring) in &mut self.carriers {
            full |= ring.take(into) + ROOM_FOR_AN_END_B > ring.size_b();
        }
        full
    }

    /// Count of each carrier event on its CPU.
    pub fn counts(&self) -> impl Iterator<Item = (PuNr, u64)> {
        self.carriers
            .iter()
            .filter_map(|(cpu, ring)| Some((*cpu, ring.event().count(self.counts_lost).ok()?)))
    }

    /// Whether the kernel counts dropped records (Linux 6.0).
    pub fn counts_lost(&self) -> bool {
        self.counts_lost
    }

    /// Whether `cpu` has a ring; events on other CPUs are not seen.
    pub fn has(&self, cpu: PuNr) -> bool {
        self.carriers.iter().any(|(with_ring, _)| *with_ring == cpu)
    }

    /// Events whose descriptors become readable when records wait.
    pub fn polled(&self) -> Vec<Arc<PerfEvent>> {
        self.carriers.iter().map(|(_, ring)| ring.polled()).collect()
    }

    /// Descriptors that become readable when records wait.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.carriers.iter().map(|(_, ring)| ring.as_fd())
    }
}

/// Maps a ring of `pages` pages, halved until the kernel allows it.
fn map_one(attr: &Attr, tid: Tid, cpu: PuNr, pages: usize) -> Result<Ring, SysError> {
    match Ring::map(PerfEvent::open(attr, tid, Some(cpu))?, pages) {
        Err(error) if error.errno() == Some(libc::EPERM) && pages > 1 => {
            map_one(attr, tid, cpu, pages / 2)
        }
        done => done,
    }
}
