//! Recent users of each page of memory.
//!
//! The last few threads of each page, for a limited number of pages. A page whose hash slot another
//! page takes is forgotten.

use crate::perf::{Accessed, SampleId};
use colocate_linux::Tid;
use colocate_machine::Nanos;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Size of a page as a power of 2, as on x86-64.
const PAGE_BITS: u32 = 12;

/// Number of page slots as a power of 2. Chosen: they cover 128 MiB of memory and take 4 MiB.
const PLACES_BITS: u32 = 15;

/// Remembered users of a page. Chosen: the time of a sample is divided among them, so a page used
/// by all threads counts for each as well.
const USERS: usize = 4;

/// Age limit of a use. Chosen: long enough that each thread of a pair sharing some hundred pages is
/// sampled on them, and shorter than program phases.
const WINDOW: Nanos = Nanos::from_secs(1);

/// Pages with their users, and shared-memory time of thread pairs.
#[derive(Debug)]
pub struct SharingTable {
    places: Vec<PageEntry>,
    sums: BTreeMap<(Tid, Tid), SharedTime>,
}

/// Time of using memory that another thread had used, and the samples behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTime {
    /// CPU time.
    pub time: Nanos,
    /// Samples.
    pub samples: u64,
}

impl AddAssign for SharedTime {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.samples += other.samples;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PageEntry {
    /// Process and page number; process 0 if the slot is free.
    key: (i32, u64),
    /// Last write; `None` if never written.
    written: Option<Nanos>,
    /// Last users, most recent first.
    users: [Option<(Tid, Nanos)>; USERS],
}

impl Default for SharingTable {
    fn default() -> Self {
        Self { places: vec![PageEntry::default(); 1 << PLACES_BITS], sums: BTreeMap::new() }
    }
}

impl SharingTable {
    /// Records an access by a thread; the sample stands for `period`.
    pub fn accessed(&mut self, by: &SampleId, access: Accessed, period: Nanos) {
        let key = (by.pid.0, access.address >> PAGE_BITS);
        let page = &mut self.places[place(key)];
        if page.key != key {
            *page = PageEntry { key, ..PageEntry::default() };
        }
        if access.writes || access.was_modified {
            page.written = Some(by.at);
        }
        let others = page.users.iter().flatten();
        let others = others.filter(|(tid, at)| *tid != by.tid && is_recent(*at, by.at));
        let others: Vec<Tid> = others.map(|(tid, _)| *tid).collect();
        if page.written.is_some_and(|at| is_recent(at, by.at)) {
            for with in &others {
                let time = Nanos(period.0 / others.len() as u64);
                *self.sums.entry((by.tid, *with)).or_default() += SharedTime { time, samples: 1 };
            }
        }
        let same = page.users.iter().position(|user| user.is_some_and(|(tid, _)| tid == by.tid));
        // Moves the thread to the front, or drops the user longest ago.
        page.users[..=same.unwrap_or(USERS - 1)].rotate_right(1);
        page.users[0] = Some((by.tid, by.at));
    }

    /// Sums since the last call.
    pub fn take(&mut self) -> BTreeMap<(Tid, Tid), SharedTime> {
        std::mem::take(&mut self.sums)
    }
}

fn is_recent(at: Nanos, now: Nanos) -> bool {
    now.saturating_sub(at) < WINDOW
}
/// Slot of a page, by Fibonacci hashing (Knuth, volume 3, section 6.4).
fn place((pid, page): (i32, u64)) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    // The process number goes mostly to the upper bits, which page numbers leave free.
    let mixed = (page ^ u64::from(pid.unsigned_abs()).rotate_right(16)).wrapping_mul(GOLDEN);
    usize::try_from(mixed >> (u64::BITS - PLACES_BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_linux::Pid;

    /// Accesses in the order of time: thread, page, whether it writes, at ms. What each pair has in periods of 12 ns.
    fn sums(accesses: &[(i32, u64, bool, u64)]) -> Vec<(i32, i32, u64)> {
        let mut table = SharingTable::default();
        for &(tid, page, writes, ms) in accesses {
            let by = SampleId { at: Nanos::from_millis(ms), pid: Pid(1), tid: Tid(tid) };
            let access = Accessed { address: page << PAGE_BITS, writes, was_modified: false };
            table.accessed(&by, access, Nanos(12));
        }
        table.take().into_iter().map(|((a, b), of)| (a.0, b.0, of.time.0)).collect()
    }

    #[test]
    fn what_is_written_is_shared() {
        assert_eq!(sums(&[(1, 7, true, 0), (2, 7, false, 1)]), [(2, 1, 12)]);
        assert_eq!(
            sums(&[(1, 7, false, 0), (2, 7, true, 1), (1, 7, false, 2)]),
            [(1, 2, 12), (2, 1, 12)]
        );
    }

    #[test]
    fn what_is_only_read_is_not() {
        assert_eq!(sums(&[(1, 7, false, 0), (2, 7, false, 1), (1, 7, false, 2)]), []);
    }

    #[test]
    fn other_pages_and_other_times_are_not() {
        assert_eq!(sums(&[(1, 7, true, 0), (2, 8, true, 1), (1, 7, true, 2)]), []);
        assert_eq!(sums(&[(1, 7, true, 0), (2, 7, false, 1_000)]), []);
        // Written long ago, by the same thread.
        assert_eq!(sums(&[(1, 7, true, 0), (1, 7, false, 900), (2, 7, false, 1_500)]), []);
    }

    /// Thread 3 has used it with both; the fifth of five has pushed the first out.
    #[test]
    fn time_is_shared_among_users() {
        assert_eq!(
            sums(&[(1, 7, true, 0), (2, 7, false, 1), (3, 7, false, 2)]),
            [(2, 1, 12), (3, 1, 6), (3, 2, 6)]
        );
        let all: Vec<_> = (1..=6).map(|tid| (tid, 7, true, 1)).collect();
        let last: Vec<_> = sums(&all).into_iter().filter(|(tid, ..)| *tid == 6).collect();
        assert_eq!(last, [(6, 2, 3), (6, 3, 3), (6, 4, 3), (6, 5, 3)]);
    }
}
