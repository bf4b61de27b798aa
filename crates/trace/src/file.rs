//! Random access to a trace in a file, by thread and block.

use crate::form::{BLOCK_HEADER, HEADER, TraceError, block_header, check_header};
use std::io::{self, Read, Seek, SeekFrom};
use thiserror::Error;

/// Error of reading a trace.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Malformed or truncated trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Failed read of the file.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
}

/// Position of a block's records in the file.
#[derive(Clone, Copy, Debug)]
struct BlockPosition {
    /// Offset of the first record, in bytes.
    at: u64,
    /// Size of all records, in bytes.
    bytes: usize,
}

/// A trace with an index of its blocks. Memory: 16 bytes a block of the file, and one block for
/// each thread read.
#[derive(Debug)]
pub struct TraceFile<R> {
    file: R,
    /// Blocks by thread, in the order of creation.
    blocks: Vec<Vec<BlockPosition>>,
    /// Thread of each block, in the order of the file.
    order: Vec<u32>,
}

impl<R: Read + Seek> TraceFile<R> {
    /// Reads the headers of all blocks.
    ///
    /// # Errors
    /// If `file` is no trace, or ends within a block.
    pub fn of(mut file: R) -> Result<Self, ReadError> {
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut header = [0; HEADER];
        fill(&mut file, &mut header)?;
        check_header(header)?;
        let mut blocks: Vec<Vec<BlockPosition>> = Vec::new();
        let mut order = Vec::new();
        let mut at = HEADER as u64;
        while at < end {
            let mut header = [0; BLOCK_HEADER];
            fill(&mut file, &mut header)?;
            let (thread, bytes) = block_header(header)?;
            at += BLOCK_HEADER as u64;
            // Seeking beyond the end of a file succeeds, so a truncated block would go unnoticed.
            if end - at < bytes as u64 {
                return Err(TraceError::Truncated.into());
            }
            let index = thread as usize;
            if blocks.len() <= index {
                // Blocks come in the order of writing: a later thread's may come first.
                blocks.resize_with(index + 1, Vec::new);
            }
            blocks[index].push(BlockPosition { at, bytes });
            order.push(thread);
            at += bytes as u64;
            file.seek(SeekFrom::Start(at))?;
        }
        Ok(Self { file, blocks, order })
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.blocks.len()
    }

    /// Thread of each block, in the order of the file, and the block's index within the thread.
    pub fn in_order(&self) -> impl Iterator<Item = (usize, usize)> + use<R> {
        let mut next = vec![0; self.blocks.len()];
        let order = self.order.clone();
        order.into_iter().map(move |thread| {
            let place = &mut next[thread as usize];
            *place += 1;
            (thread as usize, *place - 1)
        })
    }

    /// Reads the records of a thread's block into `bytes`; false if the thread has no such block.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        &mut self,
        thread: usize,
        block: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        let Some(place) = self.blocks.get(thread).and_then(|blocks| blocks.get(block)).copied()
        else {
            return Ok(false);
        };
        bytes.resize(place.bytes, 0);
        self.file.seek(SeekFrom::Start(place.at))?;
        fill(&mut self.file, bytes)?;
        Ok(true)
    }
}

/// Fills `bytes`; a file that ends earlier is a truncated trace.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> Result<(), ReadError> {
    file.read_exact(bytes).map_err(|why| match why.kind() {
        io::ErrorKind::UnexpectedEof => TraceError::Truncated.into(),
        _ => why.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Access, RecordBlock, Records, TraceRecord, header};
    use std::io::Cursor;

    /// Blocks of these threads with this many accesses each, in this order.
    fn trace(blocks: &[(u32, u64)]) -> Vec<u8> {
        let mut bytes = header().to_vec();
        for (thread, accesses) in blocks {
            let mut block = RecordBlock::new(*thread);
            for address in 0..*accesses {
                block.push_access(Access { address, size_log2: 0, writes: false, instructions: 1 });
            }
            bytes.extend(block.take().as_ref());
        }
        bytes
    }

    #[test]
    fn threads_are_read_at_their_own_pace() {
        let mut file = TraceFile::of(Cursor::new(trace(&[(0, 3), (2, 1), (0, 5)]))).unwrap();
        assert_eq!(file.threads(), 3);
        assert_eq!(file.in_order().collect::<Vec<_>>(), [(0, 0), (2, 0), (0, 1)]);
        let mut bytes = Vec::new();
        let mut accesses = |thread, block| {
            let found = file.read(thread, block, &mut bytes).unwrap();
            found.then(|| {
                Records::of(&bytes).map(Result::unwrap).collect::<Vec<TraceRecord>>().len()
            })
        };
        assert_eq!([accesses(0, 1), accesses(2, 0), accesses(0, 0)], [Some(5), Some(1), Some(3)]);
        assert_eq!([accesses(0, 2), accesses(1, 0), accesses(3, 0)], [None; 3]);
    }

    /// A header and then zeros, as written by `truncate`: blocks without records, of 8 bytes each,
    /// that need no space on disk.
    #[test]
    fn empty_blocks_are_refused() {
        let mut bytes = header().to_vec();
        bytes.resize(1 << 20, 0);
        let refused = TraceFile::of(Cursor::new(bytes)).unwrap_err();
        assert_eq!(refused.to_string(), "expected blocks with records, found an empty one");
        let later = TraceFile::of(Cursor::new(trace(&[(0, 3), (1, 0), (0, 2)])));
        assert!(matches!(later, Err(ReadError::Trace(TraceError::Empty))));
    }

    #[test]
    fn what_ends_early_is_refused() {
        let whole = trace(&[(0, 3), (1, 2)]);
        let first = trace(&[(0, 3)]).len();
        for length in 0..=whole.len() {
            let is_whole = [HEADER, first, whole.len()].contains(&length);
            let opened = TraceFile::of(Cursor::new(whole[..length].to_vec()));
            assert_eq!(opened.is_ok(), is_whole, "{length}");
            if let Err(why) = opened {
                assert_eq!(why.to_string(), "expected a whole trace, found one that ends early");
            }
        }
    }
}
