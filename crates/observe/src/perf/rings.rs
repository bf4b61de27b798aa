//! One ring a CPU, shared by the events of any number of tasks.
//!
//! The kernel does not let inherited events of one task share a ring across CPUs, so there is one
//! ring a CPU. The rings belong to events that outlive every watched task, so a poll never reports a hang-up that is only one
//! task's: events on every task of the CPU or, where that is not permitted, on our own process, that are never switched on; or such
//! that report of every task.

use super::{Attr, Event, Ring};
use colocate_linux::SysError;
use colocate_linux::{Pid, Tid};
use colocate_machine::PuNr;
use std::os::fd::{AsFd, BorrowedFd};

/// More than the kernel needs for the end of a task and the record of a loss before it: 56 and 24
/// bytes, each with at most 56 of identification (perf_event_open(2)).
const ROOM_FOR_AN_END_B: usize = 256;

/// In place of a thread: every one that runs on the event's CPU (perf_event_open(2)).
const EVERY: Tid = Tid(-1);

/// Rings on some CPUs and the events that write to them.
#[derive(Debug)]
pub struct Rings {
    carriers: Vec<(PuNr, Ring)>,
    /// Whether the carriers report of every task.
    every: bool,
    /// With the threads that they were opened for.
    events: Vec<(Tid, Event)>,
    /// Whether the kernel counts the records that found no room (Linux 6.0).
    counts_lost: bool,
    /// How many closed events have lost, and how many losses were reported.
    lost: (u64, u64),
}

impl Rings {
    /// Maps a ring of up to `pages` pages on each of `cpus` for events like `attr`.
    ///
    /// Smaller rings are taken where the user may not lock that much memory. CPUs that are offline
    /// are left out.
    ///
    /// # Errors
    /// As [`Event::open`] and [`Ring::map`]; `ENODEV` if no CPU of `cpus` is online.
    pub fn map(attr: &Attr, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        let carrier = attr.disabled();
        // The first event on a task, after a second in which there was none, waits for all PUs (15 ms on a virtual machine with 2).
        Self::map_for(&carrier, EVERY, cpus, pages).or_else(|_| {
            let ours = Pid(std::process::id().cast_signed()).first_thread();
            Self::map_for(&carrier, ours, cpus, pages)
        })
    }

    /// The same, and they get what `attr` reports of every task there is, until [`Rings::end_every`]: from now on, or from
    /// [`Rings::switch`] on if it begins disabled.
    ///
    /// # Errors
    /// As [`Rings::map`]; needs `CAP_PERFMON`, or a `perf_event_paranoid` of at most 0.
    pub fn map_every(attr: &Attr, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        Ok(Self { every: true, ..Self::map_for(attr, EVERY, cpus, pages)? })
    }

    /// The same, and what each of `others` reports as well.
    ///
    /// # Errors
    /// As [`Rings::map_every`].
    pub fn map_every_of(
        (first, others): (&Attr, &[Attr]),
        cpus: &[PuNr],
        pages: usize,
    ) -> Result<Self, SysError> {
        let mut rings = Self::map_every(first, cpus, pages)?;
        others.iter().try_for_each(|attr| rings.attach(attr, EVERY))?;
        Ok(rings)
    }

    fn map_for(attr: &Attr, of: Tid, cpus: &[PuNr], pages: usize) -> Result<Self, SysError> {
        let (carriers, events) = (Vec::new(), Vec::new());
        let mut rings = Self { carriers, every: false, events, counts_lost: true, lost: (0, 0) };
        let mut offline = None;
        for cpu in cpus {
            let mut mapped = map_one(&rings.like(attr), of, *cpu, pages);
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

    /// Whether they get what happens to every task.
    pub fn of_every_task(&self) -> bool {
        self.every
    }

    /// From now on they get what the events report that are attached. What was written stays.
    ///
    /// # Errors
    /// As [`Rings::switch`].
    pub fn end_every(&mut self) -> Result<(), SysError> {
        self.every = false;
        self.switch(false)
    }

    /// Switches on or off what they get of every task.
    ///
    /// # Errors
    /// The kernel's.
    pub fn switch(&self, on: bool) -> Result<(), SysError> {
        self.carriers.iter().try_for_each(|(_, ring)| ring.event().switch(on))
    }

    fn like(&self, attr: &Attr) -> Attr {
        if self.counts_lost { attr.counting_lost() } else { *attr }
    }

    /// Opens `attr` on thread `tid`, one event a CPU, all writing to these rings.
    pub fn attach(&mut self, attr: &Attr, tid: Tid) -> Result<(), SysError> {
        let (before, attr) = (self.events.len(), self.like(attr));
        for (cpu, ring) in &self.carriers {
            let opened = Event::open(&attr, tid, Some(*cpu))
                .and_then(|event| event.output_to(ring.event()).map(|()| event));
            match opened {
                Ok(event) => self.events.push((tid, event)),
                // The CPU has gone offline since the rings were mapped; the others go on.
                Err(error) if error.errno() == Some(libc::ENODEV) => {}
                Err(error) => {
                    self.events.truncate(before);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Closes all events; what they have written stays in the rings.
    pub fn detach_all(&mut self) {
        self.detach_if(|_| true);
    }

    /// Closes the events that were opened for thread `tid`, and what others have inherited of them.
    pub fn detach(&mut self, tid: Tid) {
        self.detach_if(|of| of == tid);
    }

    fn detach_if(&mut self, closes: impl Fn(Tid) -> bool) {
        let (counts, lost) = (self.counts_lost, &mut self.lost.0);
        self.events.retain(|(tid, event)| {
            let closes = closes(*tid);
            if closes && counts {
                *lost += event.lost().unwrap_or(0);
            }
            !closes
        });
    }

    /// The threads that events were opened for, one for each event.
    pub fn tids(&self) -> impl ExactSizeIterator<Item = Tid> {
        self.events.iter().map(|(tid, _)| *tid)
    }

    /// How many records have found no room since this was last called, of which records in the rings have reported
    /// `recorded`. Where the kernel does not count them, those alone: of what a ring loses at the very end none reports.
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

    /// Moves all waiting records to the end of `into`, ring after ring. Says whether one of them
    /// was so full that the end of a task may have been dropped. The kernel records a loss itself
    /// only once it has something else to write there.
    pub fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let mut full = false;
        for (_, ring) in &mut self.carriers {
            full |= ring.take(into) + ROOM_FOR_AN_END_B > ring.size_b();
        }
        full
    }

    /// How often the event of each ring has happened on its CPU.
    pub fn counts(&self) -> impl Iterator<Item = (PuNr, u64)> {
        let count = |ring: &Ring| ring.event().count(self.counts_lost).ok();
        self.carriers.iter().filter_map(move |(cpu, ring)| Some((*cpu, count(ring)?)))
    }

    /// Whether events count what found no room: since Linux 6.0.
    pub fn counts_lost(&self) -> bool {
        self.counts_lost
    }

    /// Whether there is a ring on `cpu`: what happens on any other goes unseen.
    pub fn has(&self, cpu: PuNr) -> bool {
        self.carriers.iter().any(|(with_ring, _)| *with_ring == cpu)
    }

    /// Descriptors that become readable when records wait.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.carriers.iter().map(|(_, ring)| ring.as_fd())
    }
}

/// A ring of `pages` pages, or half as many until the kernel allows it.
fn map_one(attr: &Attr, tid: Tid, cpu: PuNr, pages: usize) -> Result<Ring, SysError> {
    match Ring::map(Event::open(attr, tid, Some(cpu))?, pages) {
        Err(error) if error.errno() == Some(libc::EPERM) && pages > 1 => {
            map_one(attr, tid, cpu, pages / 2)
        }
        done => done,
    }
}
