//! Consistency of a trace, and counts of its records.
//!
//! Checked in the order of the file, while the trace is read:
//! - a thread's first record is its beginning, its last its end, and there is one of each;
//! - every thread but the first has been created by another thread, by the end of the trace;
//! - a join follows the end of the joined thread;
//! - a thread continues after no more wake-ups than were recorded.

use crate::form::{Records, Sync, SyncKind, TraceError, TraceRecord};
use std::collections::BTreeMap;
use thiserror::Error;

/// Inconsistency of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Flaw {
    /// Malformed record in a block: thread and reason.
    #[error("thread {0}: {1}")]
    Bytes(usize, #[source] TraceError),
    /// A thread's first record is not its beginning, or its beginning is repeated.
    #[error("expected that thread {0} begins once and first, found something else")]
    Begins(usize),
    /// A thread has no end, as after a kill or a full disk.
    #[error(
        "expected that thread {0} ends, found no end: was the program killed, or the disk full?"
    )]
    NoEnd(usize),
    /// Records after the end of a thread.
    #[error("expected nothing after the end of thread {0}, found more")]
    AfterEnd(usize),
    /// No other thread has created this thread.
    #[error("expected that another thread creates thread {0}, found none")]
    NotCreated(usize),
    /// A thread has joined another before that other's end.
    #[error("expected that thread {0} waits for threads that have ended, found one that has not")]
    JoinsEarly(usize),
    /// A thread continues after more wake-ups than were recorded: thread, wake-ups it counted,
    /// wake-ups recorded.
    #[error("expected at most {2} wake-ups before thread {0} continues, found {1}")]
    NotWoken(usize, u64, u64),
    /// A trace without threads.
    #[error("expected threads, found none")]
    Empty,
}

/// Counts of one thread's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSummary {
    /// Thread ID in the kernel (TID).
    pub tid: u64,
    /// Read accesses.
    pub reads: u64,
    /// Write accesses.
    pub writes: u64,
    /// Instructions up to the last access.
    pub instructions: u64,
    /// Futex waits.
    pub waits: u64,
    begun: bool,
    ended: bool,
}

/// Checker of a trace, fed block by block.
#[derive(Clone, Debug, Default)]
pub struct Check {
    threads: Vec<ThreadSummary>,
    /// Times created, by TID.
    created: BTreeMap<u64, u64>,
    /// Times ended, by TID.
    ended: BTreeMap<u64, u64>,
    /// Times joined, by TID.
    joined: BTreeMap<u64, u64>,
    /// Wake-ups so far, by futex address.
    woken: BTreeMap<u64, u64>,
}

impl Check {
    /// Checks the next block of a thread, in the order of the file.
    ///
    /// # Errors
    /// If a record is malformed or contradicts earlier records.
    pub fn block(&mut self, thread: usize, bytes: &[u8]) -> Result<(), Flaw> {
        if self.threads.len() <= thread {
            // Blocks come in the order of writing: a later thread's may come first.
            self.threads.resize_with(thread + 1, ThreadSummary::default);
        }
        for record in Records::of(bytes) {
            let record = record.map_err(|why| Flaw::Bytes(thread, why))?;
            let begins = matches!(record, TraceRecord::Sync(Sync { kind: SyncKind::Begins, .. }));
            let of = &self.threads[thread];
            if of.ended {
                return Err(Flaw::AfterEnd(thread));
            }
            // The beginning comes first and once: a thread has begun before any other record.
            if of.begun == begins {
                return Err(Flaw::Begins(thread));
            }
            match record {
                TraceRecord::Access(access) => {
                    let of = &mut self.threads[thread];
                    *(if access.writes { &mut of.writes } else { &mut of.reads }) += 1;
                    of.instructions += u64::from(access.instructions);
                }
                TraceRecord::Sync(sync) => self.sync(thread, sync)?,
            }
        }
        Ok(())
    }

    fn sync(&mut self, thread: usize, sync: Sync) -> Result<(), Flaw> {
        let Sync { kind, count, object } = sync;
        let of = &mut self.threads[thread];
        match kind {
            SyncKind::Begins => {
                of.begun = true;
                of.tid = object;
            }
            SyncKind::Ends => {
                of.ended = true;
                increment(&mut self.ended, object);
            }
            SyncKind::Creates => increment(&mut self.created, object),
            SyncKind::Waits => of.waits += 1,
            SyncKind::Wakes => increment(&mut self.woken, object),
            SyncKind::Continues => {
                let woken = self.woken.get(&object).copied().unwrap_or(0);
                if count > woken {
                    return Err(Flaw::NotWoken(thread, count, woken));
                }
            }
            SyncKind::Joins => {
                increment(&mut self.joined, object);
                // The kernel reuses TIDs, so joins and ends of a TID are counted.
                if self.joined[&object] > self.ended.get(&object).copied().unwrap_or(0) {
                    return Err(Flaw::JoinsEarly(thread));
                }
            }
        }
        Ok(())
    }

    /// Ends the trace: its threads in the order of creation.
    ///
    /// # Errors
    /// If a thread has no end or no creator, or there is no thread.
    pub fn end(mut self) -> Result<Vec<ThreadSummary>, Flaw> {
        if self.threads.is_empty() {
            return Err(Flaw::Empty);
        }
        for (index, thread) in self.threads.iter().enumerate() {
            if !thread.ended {
                return Err(Flaw::NoEnd(index));
            }
            let created = self.created.entry(thread.tid).or_default();
            // The first thread is the program's own: no thread of the trace creates it.
            if index > 0 {
                *created = created.checked_sub(1).ok_or(Flaw::NotCreated(index))?;
            }
        }
        Ok(self.threads)
    }
}

fn increment(counts: &mut BTreeMap<u64, u64>, key: u64) {
    *counts.entry(key).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Access, BLOCK_HEADER, RecordBlock};

    /// Each of a thread.
    type Records = Vec<(u32, TraceRecord)>;

    const MAIN: u64 = 100;
    const OTHER: u64 = 101;

    fn sync(kind: SyncKind, object: u64) -> TraceRecord {
        TraceRecord::Sync(Sync { kind, count: 0, object })
    }

    fn continues(object: u64, count: u64) -> TraceRecord {
        TraceRecord::Sync(Sync { kind: SyncKind::Continues, count, object })
    }

    fn access(writes: bool) -> TraceRecord {
        TraceRecord::Access(Access { address: 8, size_log2: 3, writes, instructions: 5 })
    }

    /// Checks blocks of one record each.
    fn checked(records: &[(u32, TraceRecord)]) -> Result<Vec<ThreadSummary>, Flaw> {
        let mut check = Check::default();
        for (thread, record) in records {
            let mut block = RecordBlock::new(*thread);
            block.push(*record);
            check.block(*thread as usize, &block.take().as_ref()[BLOCK_HEADER..])?;
        }
        check.end()
    }

    /// A thread creates another thread, which wakes the first and ends.
    fn good() -> Records {
        vec![
            (0, sync(SyncKind::Begins, MAIN)),
            (0, access(true)),
            (1, sync(SyncKind::Begins, OTHER)),
            (0, sync(SyncKind::Creates, OTHER)),
            (0, sync(SyncKind::Waits, 7)),
            (1, access(false)),
            (1, sync(SyncKind::Wakes, 7)),
            (0, continues(7, 1)),
            (1, sync(SyncKind::Ends, OTHER)),
            (0, sync(SyncKind::Joins, OTHER)),
            (0, sync(SyncKind::Ends, MAIN)),
        ]
    }

    #[test]
    fn what_a_good_one_has() {
        let summary = checked(&good()).unwrap();
        let [first, second] = &summary[..] else { panic!("{summary:?}") };
        assert_eq!((first.tid, first.reads, first.writes, first.waits), (MAIN, 0, 1, 1));
        assert_eq!(
            (second.tid, second.reads, second.writes, second.instructions),
            (OTHER, 1, 0, 5)
        );
    }

    #[test]
    fn each_flaw_is_found() {
        let flaw = |change: fn(&mut Records)| {
            let mut records = good();
            change(&mut records);
            checked(&records).unwrap_err()
        };
        assert_eq!(flaw(Vec::clear), Flaw::Empty);
        assert_eq!(flaw(|it| it.truncate(10)), Flaw::NoEnd(0));
        assert_eq!(flaw(|it| *it = it.split_off(1)), Flaw::Begins(0));
        assert_eq!(flaw(|it| it.insert(2, (0, sync(SyncKind::Begins, MAIN)))), Flaw::Begins(0));
        assert_eq!(flaw(|it| it.push((1, access(false)))), Flaw::AfterEnd(1));
        assert_eq!(flaw(|it| it[3] = (0, access(false))), Flaw::NotCreated(1));
        assert_eq!(flaw(|it| it.swap(8, 9)), Flaw::JoinsEarly(0));
        assert_eq!(flaw(|it| it.swap(6, 7)), Flaw::NotWoken(0, 1, 0));
        let mut check = Check::default();
        assert_eq!(check.block(0, &[0xff]), Err(Flaw::Bytes(0, TraceError::Record(0xff))));
    }
}
