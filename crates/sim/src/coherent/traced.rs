//! A recorded program: the memory accesses and synchronization of a trace file.

use super::replay::{MemoryAccess, ReplayedProgram, Signal, Step};
use colocate_trace::form::{Access, Records, Sync, SyncKind, TraceRecord};
use colocate_trace::{ReadError, TraceFile};
use std::collections::BTreeMap;
use std::io::{Read, Seek};

/// Bytes of a line: an access across a line's end is replayed as two.
const LINE: u64 = 64;
/// Most accesses of a step. Chosen: they fit into an L1 cache.
const BATCH: usize = 512;

/// A recorded program. Only the present block of each thread is in memory.
#[derive(Debug)]
pub struct RecordedProgram<R> {
    file: TraceFile<R>,
    threads: Vec<ThreadReader>,
    /// By kernel thread ID: how often a thread has begun.
    begun: BTreeMap<u64, u64>,
    /// By kernel thread ID: how often a thread was joined.
    joined: BTreeMap<u64, u64>,
    error: Option<ReadError>,
}

#[derive(Debug, Default)]
struct ThreadReader {
    /// Number of the next block to read.
    block: usize,
    /// Present block.
    bytes: Vec<u8>,
    /// Decoded bytes of the present block.
    done: usize,
    /// Address of the last access in the present block; records have differences.
    address: u64,
    /// Synchronization after the accesses that were returned last.
    sync: Option<Sync>,
    ended: bool,
}

impl<R: Read + Seek> RecordedProgram<R> {
    /// The program of a trace file, at its start.
    #[must_use]
    pub fn new(file: TraceFile<R>) -> Self {
        let mut threads = Vec::new();
        threads.resize_with(file.threads(), ThreadReader::default);
        Self { file, threads, begun: BTreeMap::new(), joined: BTreeMap::new(), error: None }
    }

    /// The read error that ended a thread early; `None` if there was none.
    #[must_use]
    pub const fn error(&self) -> Option<&ReadError> {
        self.error.as_ref()
    }

    /// The trace file, to be read again.
    #[must_use]
    pub fn into_file(self) -> TraceFile<R> {
        self.file
    }

    /// Reads the accesses of a thread up to its next synchronization or the end of a block. Returns
    /// false after the last record.
    fn read(&mut self, index: usize, accesses: &mut Vec<MemoryAccess>) -> Result<bool, ReadError> {
        let thread = &mut self.threads[index];
        if thread.done == thread.bytes.len() {
            if !self.file.read(index, thread.block, &mut thread.bytes)? {
                return Ok(false);
            }
            thread.block += 1;
            thread.done = 0;
            // Differences begin anew with each block.
            thread.address = 0;
        }
        let mut records = Records::after(thread.address, &thread.bytes[thread.done..]);
        while accesses.len() < BATCH && thread.sync.is_none() {
            match records.next().transpose()? {
                Some(TraceRecord::Access(access)) => push(accesses, access),
                Some(TraceRecord::Sync(sync)) => thread.sync = Some(sync),
                None => break,
            }
        }
        thread.done = thread.bytes.len() - records.left();
        thread.address = records.address();
        Ok(true)
    }

    fn sync(&mut self, index: usize, sync: Sync) -> Option<Step> {
        let Sync { kind, count, object } = sync;
        match kind {
            // The first thread was created by none of the recorded threads.
            SyncKind::Begins if index == 0 => None,
            SyncKind::Begins => {
                Some(Step::Awaits(Signal::Created(object), count_up(&mut self.begun, object)))
            }
            SyncKind::Creates => Some(Step::Gives(Signal::Created(object))),
            SyncKind::Ends => Some(Step::Gives(Signal::Ended(object))),
            SyncKind::Joins => {
                Some(Step::Awaits(Signal::Ended(object), count_up(&mut self.joined, object)))
            }
            SyncKind::Wakes => Some(Step::Gives(Signal::Futex(object))),
            SyncKind::Continues => Some(Step::Awaits(Signal::Futex(object), count)),
            // `Continues`, which follows, has the wake-up.
            SyncKind::Waits => None,
        }
    }
}

/// Adds an access; an access across a line's end as two.
#[inline]
fn push(accesses: &mut Vec<MemoryAccess>, access: Access) {
    let Access { address, size_log2, writes, instructions } = access;
    accesses.push(MemoryAccess { address, instructions, writes });
    let last = address.wrapping_add((1 << size_log2) - 1);
    if last / LINE != address / LINE {
        // The instruction counts once.
        accesses.push(MemoryAccess { address: last, instructions: 0, writes });
    }
}

/// Increments and returns an object's count. Counts tell apart reuses of a kernel thread ID.
fn count_up(counts: &mut BTreeMap<u64, u64>, object: u64) -> u64 {
    let count = counts.entry(object).or_default();
    *count += 1;
    *count
}

impl<R: Read + Seek> ReplayedProgram for RecordedProgram<R> {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn next(&mut self, index: usize, accesses: &mut Vec<MemoryAccess>) -> Step {
        while !self.threads[index].ended {
            let sync = self.threads[index].sync.take();
            if let Some(step) = sync.and_then(|sync| self.sync(index, sync)) {
                return step;
            }
            let read = self.read(index, accesses);
            self.threads[index].ended = !matches!(read, Ok(true));
            if let Err(why) = read {
                self.error.get_or_insert(why);
            }
            if !accesses.is_empty() {
                return Step::Accesses;
            }
        }
        Step::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherent::replay::{Fixed, Replayed, Timing, replay};
    use crate::coherent::{CoherenceCounts, Coherent, DetectAt, Geometry, Protocol};
    use colocate_machine::{PuIdx, described};
    use colocate_trace::form::{RecordBlock, header};
    use std::io::Cursor;

    const CREATED: u64 = 101;
    const FUTEX: u64 = 0x40;

    fn sync(kind: SyncKind, count: u64, object: u64) -> TraceRecord {
        TraceRecord::Sync(Sync { kind, count, object })
    }

    /// Accesses to so many lines from this one on.
    fn lines(first: u64, count: u64) -> impl Iterator<Item = TraceRecord> {
        (first..first + count).map(|line| {
            let address = line * LINE;
            TraceRecord::Access(Access { address, size_log2: 3, writes: false, instructions: 4 })
        })
    }

    /// A thread that creates another one, and both with these records.
    fn both(
        first: impl IntoIterator<Item = TraceRecord>,
        second: impl IntoIterator<Item = TraceRecord>,
    ) -> [Vec<TraceRecord>; 2] {
        let creates = [sync(SyncKind::Begins, 0, 100), sync(SyncKind::Creates, 0, CREATED)];
        let begins = [sync(SyncKind::Begins, 0, CREATED)];
        let ends = |tid| sync(SyncKind::Ends, 0, tid);
        [
            creates.into_iter().chain(first).chain([ends(100)]).collect(),
            begins.into_iter().chain(second).chain([ends(CREATED)]).collect(),
        ]
    }

    /// Both threads on these PUs of the paper's machine. An instruction takes a nanosecond.
    fn replayed(threads: &[Vec<TraceRecord>], pus: [u32; 2]) -> (Replayed, CoherenceCounts) {
        let mut bytes = header().to_vec();
        for (thread, records) in (0..).zip(threads) {
            let mut block = RecordBlock::new(thread);
            for record in records {
                block.push(*record);
                if block.is_full() {
                    bytes.extend(block.take().as_ref());
                }
            }
            bytes.extend(block.take().as_ref());
        }
        let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "xeon-e5405").unwrap();
        let exact = described::from_toml(text).unwrap();
        let geometry = Geometry::of(&exact.machine, exact.performance.as_ref().unwrap()).unwrap();
        let mut caches = Coherent::new(geometry, Protocol::Mesi, DetectAt::PrivateCache).unwrap();
        let mut program = RecordedProgram::new(TraceFile::of(Cursor::new(bytes)).unwrap());
        let timing = Timing { instruction_ps: 1_000, every_ps: None };
        let mut mapping = Fixed(pus.map(PuIdx).to_vec());
        let replayed = replay(&mut caches, &mut program, &mut mapping, timing);
        assert!(program.error().is_none());
        (replayed, caches.counts().clone())
    }

    /// How long so many lines take that are in no cache.
    fn cold(lines_: u64) -> u64 {
        replayed(&both(lines(0, lines_), []), [0, 2]).0.time_ps
    }

    #[test]
    fn threads_run_beside_each_other() {
        let (found, counts) = replayed(&both(lines(0, 9_000), lines(10_000, 9_000)), [0, 2]);
        assert_eq!((found.time_ps, found.stuck), (cold(9_000), 0));
        assert_eq!((counts.accesses, counts.from_memory), (18_000, 18_000));
    }

    #[test]
    fn threads_share_a_pu() {
        let (found, _) = replayed(&both(lines(0, 9_000), lines(10_000, 9_000)), [0, 0]);
        assert_eq!(found.time_ps, 2 * cold(9_000));
    }

    /// One thread begins when it is created; the other continues when the first has woken it, or
    /// has ended.
    #[test]
    fn signals_by_hand() {
        let waits = [sync(SyncKind::Waits, 0, FUTEX), sync(SyncKind::Continues, 1, FUTEX)];
        let first = waits.into_iter().chain(lines(0, 300)).collect::<Vec<_>>();
        let wakes = || lines(20_000, 500).chain([sync(SyncKind::Wakes, 0, FUTEX)]);
        let (found, _) = replayed(&both(first.clone(), wakes()), [0, 2]);
        assert_eq!((found.time_ps, found.stuck), (cold(800), 0));
        let joins = [sync(SyncKind::Joins, 0, CREATED)].into_iter().chain(lines(0, 300));
        let (found, _) = replayed(&both(joins, lines(20_000, 500)), [0, 2]);
        assert_eq!(found.time_ps, cold(800));
        let (found, _) = replayed(&both(first, lines(20_000, 500)), [0, 2]);
        assert_eq!(found.stuck, 1, "nothing wakes it");
    }

    #[test]
    fn an_access_across_lines_is_two() {
        let across = Access { address: LINE - 4, size_log2: 3, writes: true, instructions: 1 };
        let (_, counts) = replayed(&both([TraceRecord::Access(across)], []), [0, 2]);
        assert_eq!((counts.accesses, counts.from_memory), (2, 2));
    }
}
