//! Binary format of a trace.
//!
//! # Form
//! A header of [`HEADER`] bytes: `COLTRACE` and the version as 4 bytes. Blocks follow. A block has
//! the thread's number in the order of creation and the block's length, 4 bytes each, then the
//! records of this thread. All numbers are little-endian. A block is complete in itself: threads of
//! a program write in turn, and a reader holds one block at a time.
//!
//! A record begins with a byte:
//! - bit 0: whether the access writes;
//! - bits 1 to 3: logarithm (base 2) of the size of the access in bytes; 7 marks a synchronisation;
//! - bits 4 to 7: instructions of the thread since its last record, or 15 for more.
//!
//! If bits 4 to 7 are 15, a number follows: the instructions beyond 15. Then comes the difference
//! to the address of the last access in the block. In a synchronisation bit 0 is 0, bits 4 to 7 are
//! the kind, and count and object follow. Numbers have 7 bits a byte, lowest first (LEB128).
//! Differences have the sign in the lowest bit (zigzag).
//! # Properties
//! - **Reads what was written**: any records come back as they were. -> test `reads_what_was_written`
//! - **Any bytes**: are records, or an error. -> test `any_bytes_are_read_or_refused`
//! - **Compact**: accesses in order take two bytes each. -> test `neighbours_are_short`

use thiserror::Error;

/// Size of the header, in bytes.
pub const HEADER: usize = 12;
/// Size of a block's header, in bytes.
pub const BLOCK_HEADER: usize = 8;
/// Largest size of a block's records, in bytes. Chosen: a few thousand accesses, the size of an L1
/// cache.
pub const BLOCK: usize = 32 * 1024;
/// Most threads of a trace.
pub const MOST_THREADS: u32 = 1 << 16;
/// Version of the format.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"COLTRACE";
/// Size of the longest record, in bytes: its first byte and three numbers of up to 10 bytes.
const LONGEST: usize = 1 + 3 * 10;
/// Logarithm of a size, reserved for synchronisation.
const SYNC: u8 = 7;
/// Instructions from which the excess follows as a number.
const MANY: u32 = 15;

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the first byte.
    pub address: u64,
    /// Logarithm (base 2) of the size in bytes, 0 to 6.
    pub size_log2: u8,
    /// Whether the access writes.
    pub writes: bool,
    /// Instructions of the thread since its last record.
    pub instructions: u32,
}

/// Kind of synchronisation, as seen at the system calls futex, clone and exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncKind {
    /// The thread begins; the object is its TID.
    Begins,
    /// The thread ends; the object is its TID.
    Ends,
    /// The thread has created another; the object is the TID of the new thread.
    Creates,
    /// The thread begins to wait at a futex; the object is the address of the futex.
    Waits,
    /// The thread has waited at a futex; the object is the address of the futex. The count is the
    /// number of wake-ups at this futex since the program began.
    Continues,
    /// The thread wakes waiters of a futex; the object is the address of the futex.
    Wakes,
    /// The thread has joined another; the object is the TID of the ended thread.
    Joins,
}

impl SyncKind {
    /// All kinds, in the order of their encoding.
    pub const ALL: [Self; 7] = [
        Self::Begins,
        Self::Ends,
        Self::Creates,
        Self::Waits,
        Self::Continues,
        Self::Wakes,
        Self::Joins,
    ];
}

/// A synchronisation between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Kind of event.
    pub kind: SyncKind,
    /// Wake-ups before a [`SyncKind::Continues`]; 0 for other kinds.
    pub count: u64,
    /// TID or futex address, by kind.
    pub object: u64,
}

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceRecord {
    /// Read or write of memory.
    Access(Access),
    /// Synchronisation with other threads.
    Sync(Sync),
}

/// Malformed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The header is not that of a trace.
    #[error("expected a trace of memory accesses, found something else")]
    NoTrace,
    /// Unsupported version.
    #[error("expected a trace of version {VERSION}, found version {0}: record it again")]
    Version(u32),
    /// A block above [`BLOCK`] bytes.
    #[error("expected blocks of at most {BLOCK} bytes, found {0}")]
    Length(u32),
    /// A block without records. No tracer writes such a block, but an unwritten (sparse) part of a
    /// file reads as any number of them.
    #[error("expected blocks with records, found an empty one")]
    Empty,
    /// The trace ends within a block or a record.
    #[error("expected a whole trace, found one that ends early")]
    Truncated,
    /// Invalid first byte of a record, or a number out of range.
    #[error("expected a record, found byte {0:#04x}")]
    Record(u8),
    /// A thread number of [`MOST_THREADS`] or more.
    #[error("expected at most {MOST_THREADS} threads, found thread {0}")]
    Threads(u32),
}

/// Header of a trace.
#[must_use]
pub fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the header of a trace.
///
/// # Errors
/// If `bytes` are no header of this version.
pub fn check_header(bytes: [u8; HEADER]) -> Result<(), TraceError> {
    if bytes[..8] != MAGIC {
        return Err(TraceError::NoTrace);
    }
    match number_at(&bytes, 8) {
        VERSION => Ok(()),
        other => Err(TraceError::Version(other)),
    }
}

/// Thread of a block, and the size of its records in bytes.
///
/// # Errors
/// If the thread number is too large, or the block is too long or empty.
pub fn block_header(bytes: [u8; BLOCK_HEADER]) -> Result<(u32, usize), TraceError> {
    let thread = number_at(&bytes, 0);
    let length = number_at(&bytes, 4);
    match usize::try_from(length) {
        _ if thread >= MOST_THREADS => Err(TraceError::Threads(thread)),
        Ok(0) => Err(TraceError::Empty),
        Ok(bytes) if bytes <= BLOCK => Ok((thread, bytes)),
        _ => Err(TraceError::Length(length)),
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// A block of one thread's records, to be written.
#[derive(Clone, Debug)]
pub struct RecordBlock {
    /// Header of the block, then its records. The length in the header is set by [`Self::take`].
    bytes: Vec<u8>,
    /// Address of the last access in the block; 0 before the first.
    address: u64,
}

impl RecordBlock {
    /// Empty block of the thread with this number.
    #[must_use]
    pub fn new(thread: u32) -> Self {
        let mut bytes = Vec::with_capacity(BLOCK_HEADER + BLOCK);
        bytes.extend(thread.to_le_bytes());
        bytes.extend([0; 4]);
        Self { bytes, address: 0 }
    }

    /// Whether there may be no room for another record.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes.len() + LONGEST > BLOCK_HEADER + BLOCK
    }

    /// Whether the block has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == BLOCK_HEADER
    }

    /// Adds a record. The block must not be full.
    #[inline]
    pub fn push(&mut self, record: TraceRecord) {
        debug_assert!(!self.is_full());
        match record {
            TraceRecord::Access(access) => self.push_access(access),
            TraceRecord::Sync(Sync { kind, count, object }) => {
                // Bit 0 stays 0: readers refuse a synchronisation with bit 0 set.
                self.bytes.push((kind as u8) << 4 | SYNC << 1);
                self.push_number(count);
                self.push_number(object);
            }
        }
    }

    /// Adds an access.
    #[inline]
    pub fn push_access(&mut self, access: Access) {
        let Access { address, size_log2, writes, instructions } = access;
        debug_assert!(size_log2 < SYNC);
        // At most 15, so the cast loses nothing.
        let few = instructions.min(MANY) as u8;
        // `&` keeps a size out of range from changing the other fields.
        self.bytes.push(few << 4 | (size_log2 & SYNC) << 1 | u8::from(writes));
        if instructions >= MANY {
            self.push_number(u64::from(instructions - MANY));
        }
        // Zigzag: small differences of either sign become small numbers.
        let difference = address.wrapping_sub(self.address).cast_signed();
        self.push_number((difference << 1 ^ difference >> 63).cast_unsigned());
        self.address = address;
    }

    #[inline]
    fn push_number(&mut self, mut number: u64) {
        #[allow(clippy::cast_possible_truncation)] // its lowest bits
        while number >= 0x80 {
            // Bit 7 marks that another byte follows.
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        #[allow(clippy::cast_possible_truncation)] // below 128
        self.bytes.push(number as u8);
    }

    /// Takes the bytes of the block with its header, and empties the block.
    pub fn take(&mut self) -> impl AsRef<[u8]> + use<> {
        let length = u32::try_from(self.bytes.len() - BLOCK_HEADER).unwrap_or(u32::MAX);
        self.bytes[4..BLOCK_HEADER].copy_from_slice(&length.to_le_bytes());
        // A copy, so that the allocation of the block is used again.
        let taken = self.bytes.clone();
        self.bytes.truncate(BLOCK_HEADER);
        // Blocks are complete in themselves: the next one begins at address 0.
        self.address = 0;
        taken
    }
}

/// The number at the beginning of some bytes, and its length in bytes: 9 for any longer number. No
/// branches, as lengths cannot be predicted.
#[inline]
const fn short_number(bytes: [u8; 8]) -> (u64, usize) {
    const MORE: u64 = 0x8080_8080_8080_8080;
    let bytes = u64::from_le_bytes(bytes);
    let ends = !bytes & MORE;
    // All bits before the end of the last byte.
    let number = bytes & !MORE & (ends ^ ends.wrapping_sub(1));
    // Groups of 7 bits become groups of 14, 28 and 56.
    let number = number & 0x007f_007f_007f_007f | (number & 0x7f00_7f00_7f00_7f00) >> 1;
    let number = number & 0x0000_3fff_0000_3fff | (number & 0x3fff_0000_3fff_0000) >> 2;
    let number = number & 0x0fff_ffff | (number & 0x0fff_ffff_0000_0000) >> 4;
    (number, ends.trailing_zeros() as usize / 8 + 1)
}

/// Iterator over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    address: u64,
}

impl<'a> Records<'a> {
    /// Records in `bytes`, the content of a block without its header.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, address: 0 }
    }

    /// Remaining records of a block in `bytes`, after records up to an access at `address`.
    #[must_use]
    pub const fn after(address: u64, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, address }
    }

    /// Size of the remaining records, in bytes.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Address of the last access.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, TraceError> {
        let (first, rest) = self.rest.split_first().ok_or(TraceError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Reads a number of 7 bits a byte.
    #[inline]
    fn number(&mut self) -> Result<u64, TraceError> {
        if let Some(bytes) = self.rest.first_chunk() {
            let (number, length) = short_number(*bytes);
            if length <= bytes.len() {
                self.rest = &self.rest[length..];
                return Ok(number);
            }
        }
        self.any_number()
    }

    /// Reads a number byte by byte.
    #[cold]
    fn any_number(&mut self) -> Result<u64, TraceError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit of 64 only.
            if bits << shift >> shift != bits {
                return Err(TraceError::Record(byte));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        // Ten bytes, each of which says that another follows.
        Err(TraceError::Truncated)
    }

    #[inline]
    fn record(&mut self) -> Result<TraceRecord, TraceError> {
        let first = self.byte()?;
        let high = first >> 4;
        let size_log2 = first >> 1 & 7;
        let writes = first & 1 != 0;
        if size_log2 == SYNC {
            // A synchronisation has bit 0 at 0.
            let kind = SyncKind::ALL.get(usize::from(high)).filter(|_| !writes);
            let kind = *kind.ok_or(TraceError::Record(first))?;
            return Ok(TraceRecord::Sync(Sync {
                kind,
                count: self.number()?,
                object: self.number()?,
            }));
        }
        let mut instructions = u32::from(high);
        if instructions == MANY {
            let more = u32::try_from(self.number()?).ok().and_then(|more| more.checked_add(MANY));
            instructions = more.ok_or(TraceError::Record(first))?;
        }
        let difference = self.number()?;
        // Zigzag back: bit 0 is the sign.
        let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
        self.address = self.address.wrapping_add(difference);
        Ok(TraceRecord::Access(Access { address: self.address, size_log2, writes, instructions }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<TraceRecord, TraceError>;

    /// Next record. An error ends the iteration.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = TraceRecord> {
        let instructions = prop_oneof![0..20_u32, any::<u32>()];
        let address = prop_oneof![0..4096_u64, any::<u64>()];
        let access = (address, 0..7_u8, any::<bool>(), instructions).prop_map(
            |(address, size_log2, writes, instructions)| {
                TraceRecord::Access(Access { address, size_log2, writes, instructions })
            },
        );
        let kind = prop::sample::select(SyncKind::ALL.to_vec());
        let sync = (kind, any::<u64>(), any::<u64>())
            .prop_map(|(kind, count, object)| TraceRecord::Sync(Sync { kind, count, object }));
        prop_oneof![4 => access, 1 => sync]
    }

    proptest! {
        #[test]
        fn reads_what_was_written(
            thread in 0..MOST_THREADS,
            records in prop::collection::vec(record(), 1..200),
        ) {
            let mut block = RecordBlock::new(thread);
            for _ in 0..2 {
                records.iter().for_each(|record| block.push(*record));
                prop_assert!(!block.is_empty());
                let bytes = block.take();
                let (head, rest) = bytes.as_ref().split_first_chunk().unwrap();
                prop_assert_eq!(block_header(*head), Ok((thread, rest.len())));
                let read: Result<Vec<TraceRecord>, TraceError> = Records::of(rest).collect();
                prop_assert_eq!(read.unwrap(), records.clone());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let records = Records::of(&bytes);
            prop_assert!(records.count() <= bytes.len());
            let _ = bytes.first_chunk().map(|head| block_header(*head));
        }
    }

    #[test]
    fn neighbours_are_short() {
        let mut block = RecordBlock::new(0);
        let access = |address| Access { address, size_log2: 3, writes: false, instructions: 4 };
        (0..100).for_each(|n| block.push_access(access(0x7fff_0000_0000 + 8 * n)));
        assert_eq!(block.take().as_ref().len(), BLOCK_HEADER + 7 + 2 * 99 + 1);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(check_header(header()), Ok(()));
        let said = |bytes| check_header(bytes).unwrap_err().to_string();
        assert_eq!(
            said(*b"\x7fELF\x02\x01\x01\0\0\0\0\0"),
            "expected a trace of memory accesses, found something else"
        );
        let mut later = header();
        later[8] = 9;
        assert_eq!(said(later), "expected a trace of version 1, found version 9: record it again");
        let long = [0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(block_header(long), Err(TraceError::Length(1 << 24)));
    }

    #[test]
    fn a_block_that_is_full_has_room() {
        let mut block = RecordBlock::new(3);
        let largest =
            TraceRecord::Sync(Sync { kind: SyncKind::Wakes, count: u64::MAX, object: u64::MAX });
        while !block.is_full() {
            block.push(largest);
        }
        let bytes = block.take();
        assert!(block_header(*bytes.as_ref().first_chunk().unwrap()).is_ok());
        let (_, rest) = bytes.as_ref().split_at(BLOCK_HEADER);
        assert!(Records::of(rest).all(|record| record == Ok(largest)));
        assert_eq!(Records::of(&rest[..rest.len() - 1]).last(), Some(Err(TraceError::Truncated)));
    }
}
