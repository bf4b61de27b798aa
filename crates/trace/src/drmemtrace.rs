//! Traces of DynamoRIO's drmemtrace.
//!
//! One uncompressed file a thread (`gunzip`, `unzip -p`). Records have 12 bytes: type and size of 2
//! bytes each, and an address of 8 bytes, little-endian (DynamoRIO,
//! `clients/drcachesim/common/trace_entry.h`, 2026-08-07). Converted are reads, writes and the
//! number of instructions between them. These traces hold no waits of threads: in the result all
//! threads begin together.

use crate::form::{Access, MOST_THREADS, RecordBlock, Sync, SyncKind, TraceRecord};
use std::io::{self, Read, Write};

/// Size of a record, in bytes.
const RECORD: usize = 12;
/// Size of the largest access in one record of our format, in bytes. A larger access is divided.
const LONGEST: u64 = 64;

const READ: u16 = 0;
const WRITE: u16 = 1;
/// Types of instruction records, without repetitions of a `rep` instruction.
const INSTRUCTIONS: [u16; 11] = [10, 11, 12, 13, 14, 15, 16, 30, 31, 48, 49];
const BUNDLE: u16 = 17;
const THREAD: u16 = 22;
const HEADER: u16 = 25;

/// A trace that cannot be converted, as an error in a line.
fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// Reader of one thread's records.
struct Records<R>(R);

impl<R: Read> Records<R> {
    /// Type, size and address of the next record; `None` at the end of the file.
    fn next(&mut self) -> io::Result<Option<(u16, u16, u64)>> {
        let mut bytes = [0; RECORD];
        let mut done = 0;
        while done < RECORD {
            match self.0.read(&mut bytes[done..]) {
                // The end of a file is valid between records only.
                Ok(0) if done == 0 => return Ok(None),
                Ok(0) => {
                    let expected = format!("expected whole records of {RECORD} bytes");
                    return Err(invalid(format!("{expected}, found {done} bytes at the end")));
                }
                Ok(more) => done += more,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        let [a, b, c, d, address @ ..] = bytes;
        let kind = u16::from_le_bytes([a, b]);
        let size = u16::from_le_bytes([c, d]);
        Ok(Some((kind, size, u64::from_le_bytes(address))))
    }

    /// Reads up to the thread's TID, a record before the first instruction.
    fn thread(&mut self) -> io::Result<u64> {
        let first = self.next()?;
        if first.is_none_or(|(kind, ..)| kind != HEADER) {
            let expected = "expected a trace of drmemtrace, uncompressed, found something else";
            return Err(invalid(expected));
        }
        while let Some((kind, _, address)) = self.next()? {
            match kind {
                THREAD => return Ok(address),
                // The thread record precedes all accesses and instructions.
                READ | WRITE => break,
                _ if INSTRUCTIONS.contains(&kind) => break,
                _ => {}
            }
        }
        Err(invalid("expected a trace that begins with its thread's number, found none"))
    }
}

/// Converts the files of a program's threads to one trace, without its header. The first thread
/// counts as the creator of the others.
///
/// # Errors
/// If a file cannot be read or is no such trace, there are too many, or the result cannot be written.
pub fn convert<R: Read>(
    files: impl IntoIterator<Item = R>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut threads = files.into_iter().map(Records).collect::<Vec<_>>();
    let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
    if count > MOST_THREADS {
        let found = threads.len();
        return Err(invalid(format!("expected at most {MOST_THREADS} threads, found {found}")));
    }
    // All numbers first, since the first thread creates the others.
    let tids = threads.iter_mut().map(Records::thread).collect::<io::Result<Vec<u64>>>()?;
    for (number, (records, tid)) in (0..).zip(threads.iter_mut().zip(&tids)) {
        let mut writer = Writer { block: RecordBlock::new(number), out: &mut *out };
        writer.sync(SyncKind::Begins, *tid)?;
        if number == 0 {
            // The traces do not name creators, and each thread but the first needs one.
            tids[1..].iter().try_for_each(|other| writer.sync(SyncKind::Creates, *other))?;
        }
        let mut instructions = 0_u32;
        while let Some((kind, size, address)) = records.next()? {
            match kind {
                READ | WRITE => {
                    // Instructions are counted since the last access.
                    let instructions = std::mem::take(&mut instructions);
                    writer.access(address, size, kind == WRITE, instructions)?;
                }
                // A bundle is one record of several instructions: `size` is their number.
                BUNDLE => instructions = instructions.saturating_add(u32::from(size)),
                _ if INSTRUCTIONS.contains(&kind) => instructions = instructions.saturating_add(1),
                _ => {}
            }
        }
        writer.sync(SyncKind::Ends, *tid)?;
        writer.write()?;
    }
    Ok(())
}

struct Writer<'a, W> {
    block: RecordBlock,
    out: &'a mut W,
}

impl<W: Write> Writer<'_, W> {
    fn push(&mut self, record: TraceRecord) -> io::Result<()> {
        if self.block.is_full() {
            self.write()?;
        }
        self.block.push(record);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(self.block.take().as_ref())
    }

    fn sync(&mut self, kind: SyncKind, object: u64) -> io::Result<()> {
        self.push(TraceRecord::Sync(Sync { kind, count: 0, object }))
    }

    fn access(
        &mut self,
        address: u64,
        size: u16,
        writes: bool,
        mut instructions: u32,
    ) -> io::Result<()> {
        // An access of size 0 has an unknown size: count one byte.
        let mut left = u64::from(size).max(1);
        let mut address = address;
        while left > 0 {
            let part = left.min(LONGEST);
            // Our format has sizes that are powers of two: others are rounded up.
            let size_log2 = u8::try_from(part.next_power_of_two().trailing_zeros()).unwrap_or(0);
            self.push(TraceRecord::Access(Access { address, size_log2, writes, instructions }))?;
            // A file may hold any address, so the sum wraps.
            address = address.wrapping_add(part);
            left -= part;
            // The instructions precede the whole access: its first part has them.
            instructions = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::header;
    use crate::{Check, Flaw, ThreadSummary, TraceFile};
    use std::io::Cursor;

    fn file(records: &[(u16, u16, u64)]) -> Vec<u8> {
        let record = |(kind, size, address): &(u16, u16, u64)| {
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend(size.to_le_bytes());
            bytes.extend(address.to_le_bytes());
            bytes
        };
        records.iter().flat_map(record).collect()
    }

    fn converted(files: &[Vec<u8>]) -> io::Result<Vec<ThreadSummary>> {
        let mut bytes = header().to_vec();
        convert(files.iter().map(Cursor::new), &mut bytes)?;
        let mut trace = TraceFile::of(Cursor::new(bytes)).unwrap();
        let (mut check, mut block_bytes) = (Check::default(), Vec::new());
        let all = trace.in_order().try_for_each(|(thread, block)| -> Result<(), Flaw> {
            trace.read(thread, block, &mut block_bytes).unwrap();
            check.block(thread, &block_bytes)
        });
        all.unwrap();
        Ok(check.end().unwrap())
    }

    #[test]
    fn reads_writes_and_instructions() {
        let first = [(25, 0, 6), (28, 12, 6), (22, 0, 70), (24, 0, 70), (10, 4, 1), (0, 8, 64)];
        let more = [(47, 4, 9), (11, 2, 5), (17, 3, 5), (29, 2, 5), (1, 512, 64), (26, 0, 0)];
        let second = [(25, 0, 6), (22, 0, 71), (1, 1, 9), (23, 0, 71), (26, 0, 0)];
        let summary = converted(&[file(&[&first[..], &more].concat()), file(&second)]).unwrap();
        let [first, second] = &summary[..] else { panic!("{summary:?}") };
        assert_eq!((first.tid, first.reads, first.writes, first.instructions), (70, 1, 8, 5));
        assert_eq!((second.tid, second.reads, second.writes), (71, 0, 1));
    }

    #[test]
    fn other_files_are_refused() {
        let said = |bytes: &[u8]| converted(&[bytes.to_vec()]).unwrap_err().to_string();
        let other = "expected a trace of drmemtrace, uncompressed, found something else";
        assert_eq!(said(b"\x1f\x8b\x08 and what gzip makes of it"), other);
        assert_eq!(said(b""), other);
        let no_thread = "expected a trace that begins with its thread's number, found none";
        assert_eq!(said(&file(&[(25, 0, 6), (0, 8, 8)])), no_thread);
        let mut short = file(&[(25, 0, 6), (22, 0, 7), (0, 8, 8)]);
        short.pop();
        let cut = "expected whole records of 12 bytes, found 11 bytes at the end";
        assert_eq!(said(&short), cut);
    }
}
