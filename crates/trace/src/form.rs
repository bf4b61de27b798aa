//! How records are written.
//!
//! # Form
//! A header, [`HEADER`] bytes: `COLTRACE`, and the version as 4 bytes. Then blocks: the thread's number in the order of creation
//! and the length of the block, 4 bytes each, and so many bytes of records of this thread. All numbers are little-endian. A block is
//! complete in itself, so that a program's threads write one after the other, and a reader holds one block at a time.
//!
//! A record begins with a byte. Its lowest bit says whether the access writes, the next three are the logarithm of its size, and the
//! highest four how many instructions the thread ran since its last record; where these are 15, so many more follow as a number.
//! Then comes the difference to the address of the last access of the block. A size of 7 is a synchronisation: the lowest bit is 0, the
//! highest four its kind, and its count and its object follow. Numbers are of 7 bits a byte, lowest first,
//! differences with their sign in the lowest bit (as LEB128 and zigzag).
//! # Properties
//! - **Reads what was written**: any records come back as they were. -> test `reads_what_was_written`
//! - **Any bytes**: are records, or an error. -> test `any_bytes_are_read_or_refused`
//! - **Compact**: accesses in order take two bytes each. -> test `neighbours_are_short`

use thiserror::Error;

/// Bytes of the header.
pub const HEADER: usize = 12;
/// Bytes before a block's records.
pub const BLOCK_HEADER: usize = 8;
/// Bytes of a block's records, at most. Chosen: a few thousand accesses, as much as a nearest cache.
pub const BLOCK: usize = 32 * 1024;
/// Threads of a trace, at most.
pub const MOST_THREADS: u32 = 1 << 16;
/// The version of the format.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"COLTRACE";
/// The longest record: its byte and three numbers.
const LONGEST: usize = 1 + 3 * 10;
/// The logarithm of the size that marks a synchronisation.
const SYNC: u8 = 7;
/// From so many instructions on those beyond follow as a number.
const MANY: u32 = 15;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its first byte's address.
    pub address: u64,
    /// The logarithm of its size in bytes, 0 to 6.
    pub size_log2: u8,
    /// Whether it writes.
    pub writes: bool,
    /// Instructions of the thread since its last record.
    pub instructions: u32,
}

/// How threads wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncKind {
    /// The thread begins; the object is its number in the kernel.
    Begins,
    /// It ends; the object is its number in the kernel.
    Ends,
    /// It has created another one; the object is that one's number in the kernel.
    Creates,
    /// It begins to wait at a futex; the object is its address.
    Waits,
    /// It has waited there; the count is how often others had woken there before, since the program began.
    Continues,
    /// It wakes others that wait there.
    Wakes,
    /// It has waited for another one to end; the object is that one's number in the kernel.
    Joins,
}

impl SyncKind {
    /// All of them, by their numbers.
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

/// A synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// What happens.
    pub kind: SyncKind,
    /// Of [`SyncKind::Continues`], see there; else 0.
    pub count: u64,
    /// What it is about.
    pub object: u64,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// It read or wrote.
    Access(Access),
    /// It waited for others, or they for it.
    Sync(Sync),
}

/// Why bytes are no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The header is another one.
    #[error("expected a trace of memory accesses, found something else")]
    NoTrace,
    /// Of another version.
    #[error("expected a trace of version {VERSION}, found version {0}: record it again")]
    Version(u32),
    /// A block that is longer than any.
    #[error("expected blocks of at most {BLOCK} bytes, found {0}")]
    Length(u32),
    /// A block without a record, which no tracer writes: a file of which nothing is written anywhere would have any number of them.
    #[error("expected blocks with records, found an empty one")]
    Empty,
    /// It ends within a block or a record.
    #[error("expected a whole trace, found one that ends early")]
    Truncated,
    /// A record that there is not.
    #[error("expected a record, found byte {0:#04x}")]
    Record(u8),
    /// More threads than fit.
    #[error("expected at most {MOST_THREADS} threads, found thread {0}")]
    Threads(u32),
}

/// The header.
#[must_use]
pub fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks a header.
///
/// # Errors
/// If it is none of this version.
pub fn check_header(bytes: [u8; HEADER]) -> Result<(), TraceError> {
    if bytes[..8] != MAGIC {
        return Err(TraceError::NoTrace);
    }
    match number_at(&bytes, 8) {
        VERSION => Ok(()),
        other => Err(TraceError::Version(other)),
    }
}

/// The thread of a block and how many bytes its records have.
///
/// # Errors
/// If it is too long, or empty.
pub fn block_header(bytes: [u8; BLOCK_HEADER]) -> Result<(u32, usize), TraceError> {
    let (thread, length) = (number_at(&bytes, 0), number_at(&bytes, 4));
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

/// Records of one thread that are being written.
#[derive(Clone, Debug)]
pub struct Block {
    /// With room for the block's header.
    bytes: Vec<u8>,
    address: u64,
}

impl Block {
    /// Without a record.
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

    /// Whether it has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == BLOCK_HEADER
    }

    /// Adds a record, for which there has to be room.
    #[inline]
    pub fn push(&mut self, record: Record) {
        debug_assert!(!self.is_full());
        match record {
            Record::Access(access) => self.push_access(access),
            Record::Sync(Sync { kind, count, object }) => {
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
        #[allow(clippy::cast_possible_truncation)] // at most 15
        let few = instructions.min(MANY) as u8;
        self.bytes.push(few << 4 | (size_log2 & SYNC) << 1 | u8::from(writes));
        if instructions >= MANY {
            self.push_number(u64::from(instructions - MANY));
        }
        let difference = address.wrapping_sub(self.address).cast_signed();
        self.push_number((difference << 1 ^ difference >> 63).cast_unsigned());
        self.address = address;
    }

    #[inline]
    fn push_number(&mut self, mut number: u64) {
        #[allow(clippy::cast_possible_truncation)] // its lowest bits
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        #[allow(clippy::cast_possible_truncation)] // below 128
        self.bytes.push(number as u8);
    }

    /// All of it with its header; it has no record afterwards.
    pub fn take(&mut self) -> impl AsRef<[u8]> + use<> {
        let length = u32::try_from(self.bytes.len() - BLOCK_HEADER).unwrap_or(u32::MAX);
        self.bytes[4..BLOCK_HEADER].copy_from_slice(&length.to_le_bytes());
        let taken = self.bytes.clone();
        self.bytes.truncate(BLOCK_HEADER);
        self.address = 0;
        taken
    }
}

/// The records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    address: u64,
}

impl<'a> Records<'a> {
    /// Those of these bytes, without the block's header.
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, address: 0 }
    }

    /// Those of these bytes, of a block of which records were read up to one of this address.
    #[must_use]
    pub const fn after(address: u64, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, address }
    }

    /// Bytes of the records that are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// The address of the last access.
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

    #[inline]
    fn number(&mut self) -> Result<u64, TraceError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(TraceError::Record(byte));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(TraceError::Truncated)
    }

    #[inline]
    fn record(&mut self) -> Result<Record, TraceError> {
        let first = self.byte()?;
        let (high, size_log2, writes) = (first >> 4, first >> 1 & 7, first & 1 != 0);
        if size_log2 == SYNC {
            let kind = SyncKind::ALL.get(usize::from(high)).filter(|_| !writes);
            let kind = *kind.ok_or(TraceError::Record(first))?;
            return Ok(Record::Sync(Sync { kind, count: self.number()?, object: self.number()? }));
        }
        let mut instructions = u32::from(high);
        if instructions == MANY {
            let more = u32::try_from(self.number()?).ok().and_then(|more| more.checked_add(MANY));
            instructions = more.ok_or(TraceError::Record(first))?;
        }
        let difference = self.number()?;
        let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
        self.address = self.address.wrapping_add(difference);
        Ok(Record::Access(Access { address: self.address, size_log2, writes, instructions }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, TraceError>;

    /// The next record; none after an error.
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

    fn record() -> impl Strategy<Value = Record> {
        let instructions = prop_oneof![0..20_u32, any::<u32>()];
        let address = prop_oneof![0..4096_u64, any::<u64>()];
        let access = (address, 0..7_u8, any::<bool>(), instructions).prop_map(
            |(address, size_log2, writes, instructions)| {
                Record::Access(Access { address, size_log2, writes, instructions })
            },
        );
        let kind = prop::sample::select(SyncKind::ALL.to_vec());
        let sync = (kind, any::<u64>(), any::<u64>())
            .prop_map(|(kind, count, object)| Record::Sync(Sync { kind, count, object }));
        prop_oneof![4 => access, 1 => sync]
    }

    proptest! {
        #[test]
        fn reads_what_was_written(
            thread in 0..MOST_THREADS,
            records in prop::collection::vec(record(), 1..200),
        ) {
            let mut block = Block::new(thread);
            for _ in 0..2 {
                records.iter().for_each(|record| block.push(*record));
                prop_assert!(!block.is_empty());
                let bytes = block.take();
                let (head, rest) = bytes.as_ref().split_first_chunk().unwrap();
                prop_assert_eq!(block_header(*head), Ok((thread, rest.len())));
                let read: Result<Vec<Record>, TraceError> = Records::of(rest).collect();
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
        let mut block = Block::new(0);
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
        let mut block = Block::new(3);
        let largest =
            Record::Sync(Sync { kind: SyncKind::Wakes, count: u64::MAX, object: u64::MAX });
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
