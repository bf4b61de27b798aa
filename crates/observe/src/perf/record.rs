//! Records in a ring buffer, in the layout of `perf_event_open(2)`.

use super::event::{REGISTERS, STAMP};
use colocate_linux::{Pid, Tid};
use colocate_machine::Nanos;
use perf_event_open_sys::bindings as c;

/// Task of a record, and time of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleId {
    /// Time on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
}

/// Record of a perf event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerfRecord<'a> {
    /// Thread creation.
    Fork {
        /// New thread.
        created: SampleId,
        /// Process of the creating thread.
        parent_pid: Pid,
        /// Creating thread.
        parent_tid: Tid,
    },
    /// Thread exit.
    Exit(SampleId),
    /// New name of a thread.
    Comm {
        /// Thread.
        of: SampleId,
        /// Name, at most 15 bytes.
        name: &'a [u8],
        /// Whether an exec set the name.
        exec: bool,
    },
    /// Executable mapping of a process, created by a thread.
    Map(SampleId, ExecutableMapping<'a>),
    /// Sample of the instruction pointer.
    Sample {
        /// Running thread.
        of: SampleId,
        /// Address of the instruction.
        ip: u64,
        /// Whether the thread was in user mode.
        user: bool,
        /// Remaining fields after the time: for [`caller`] and [`general_registers`], or for
        /// [`accessed`], as requested when the event was opened.
        rest: &'a [u8],
    },
    /// Event count at a thread's exit.
    Count(SampleId, u64),
    /// Number of records dropped from a full ring.
    Lost(u64),
    /// Record of another type, or malformed.
    Other,
}

/// Executable mapping of a part of a file, or of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutableMapping<'a> {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub length_b: u64,
    /// Offset of the mapping in the file, in bytes.
    pub offset_b: u64,
    /// Path of the file; for memory without one, a name in brackets or beginning with `//`.
    pub path: &'a [u8],
}

/// Parses the records in `bytes`, collected by [`Ring::take`](super::Ring::take) from an event
/// opened with an [`Attr`](super::Attr) of this crate.
///
/// A truncated or malformed record is [`PerfRecord::Other`]; an impossible length ends the list.
pub fn parse(bytes: &[u8]) -> impl Iterator<Item = PerfRecord<'_>> {
    split(bytes).map(|(_, record)| record)
}

/// As [`parse`], each record with its bytes, for a reader that defers some records.
pub fn split(bytes: &[u8]) -> impl Iterator<Item = (&[u8], PerfRecord<'_>)> {
    bodies(bytes).map(|(whole, kind, misc, body)| {
        (whole, record(kind, misc, body).unwrap_or(PerfRecord::Other))
    })
}

/// Splits `bytes` into records: all bytes, type, `misc` flags, and body after the header.
pub(super) fn bodies(bytes: &[u8]) -> impl Iterator<Item = (&[u8], u32, u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<HEAD_B>()?;
        let mut head = Fields(head);
        let kind = head.u32()?;
        let misc = head.u16()?;
        let length = usize::from(head.u16()?);
        // A length below the header's is impossible, and would never advance.
        let body = rest.get(HEAD_B..length)?;
        let (whole, after) = rest.split_at(length);
        rest = after;
        Some((whole, kind, misc, body))
    })
}

impl PerfRecord<'_> {
    /// Time of the record; `None` for losses and other records.
    #[must_use]
    pub fn at(&self) -> Option<Nanos> {
        self.of().map(|of| of.at)
    }

    /// Task and time of the record; `None` for losses and other records.
    #[must_use]
    pub fn of(&self) -> Option<&SampleId> {
        match self {
            Self::Fork { created: of, .. }
            | Self::Exit(of)
            | Self::Comm { of, .. }
            | Self::Map(of, _)
            | Self::Sample { of, .. }
            | Self::Count(of, _) => Some(of),
            Self::Lost(_) | Self::Other => None,
        }
    }
}

/// Size of `struct perf_event_header`.
const HEAD_B: usize = 8;

/// Size of the [`STAMP`] fields at the end of each record: process and thread, time, CPU.
const STAMP_B: usize = 24;

const _: () = assert!(STAMP == c::PERF_SAMPLE_TID | c::PERF_SAMPLE_TIME | c::PERF_SAMPLE_CPU);

fn record(kind: u32, misc: u16, body: &[u8]) -> Option<PerfRecord<'_>> {
    let mut fields = Fields(body);
    Some(match kind {
        c::PERF_RECORD_FORK | c::PERF_RECORD_EXIT => {
            // The kernel writes pid, ppid, tid, ptid: not pid, tid.
            let pid = Pid(fields.i32()?);
            let parent_pid = Pid(fields.i32()?);
            let tid = Tid(fields.i32()?);
            let parent_tid = Tid(fields.i32()?);
            let created = SampleId { at: Nanos(fields.u64()?), pid, tid };
            if kind == c::PERF_RECORD_EXIT {
                return Some(PerfRecord::Exit(created));
            }
            PerfRecord::Fork { created, parent_pid, parent_tid }
        }
        c::PERF_RECORD_COMM => {
            // Cut off first, as the name fills the rest of the record.
            let at = fields.trailing_stamp()?.at;
            let of = SampleId { at, pid: Pid(fields.i32()?), tid: Tid(fields.i32()?) };
            let exec = u32::from(misc) & c::PERF_RECORD_MISC_COMM_EXEC != 0;
            PerfRecord::Comm { of, name: fields.text(), exec }
        }
        c::PERF_RECORD_MMAP2 => {
            let at = fields.trailing_stamp()?.at;
            let by = SampleId { at, pid: Pid(fields.i32()?), tid: Tid(fields.i32()?) };
            let start = fields.u64()?;
            let length_b = fields.u64()?;
            let offset_b = fields.u64()?;
            // Device, inode, generation, protection and flags are not used here.
            fields.skip(32)?;
            let path = fields.text();
            PerfRecord::Map(by, ExecutableMapping { start, length_b, offset_b, path })
        }
        c::PERF_RECORD_SAMPLE => {
            let ip = fields.u64()?;
            let mode = u32::from(misc) & c::PERF_RECORD_MISC_CPUMODE_MASK;
            let of = fields.stamp()?;
            let user = mode == c::PERF_RECORD_MISC_USER;
            // A sample has the stamp in its body, and no trailing identification.
            PerfRecord::Sample { of, ip, user, rest: fields.0 }
        }
        c::PERF_RECORD_READ => {
            let at = fields.trailing_stamp()?.at;
            let of = SampleId { at, pid: Pid(fields.i32()?), tid: Tid(fields.i32()?) };
            PerfRecord::Count(of, fields.u64()?)
        }
        c::PERF_RECORD_LOST => {
            // The event's ID.
            fields.skip(8)?;
            PerfRecord::Lost(fields.u64()?)
        }
        c::PERF_RECORD_LOST_SAMPLES => PerfRecord::Lost(fields.u64()?),
        _ => PerfRecord::Other,
    })
}

/// User-mode registers in a sample's rest, in the order of their numbers; none of kernel threads.
fn registers(rest: &[u8]) -> impl Iterator<Item = u64> {
    let mut fields = Fields(rest);
    // CPU and padding, then the ABI: 0 (PERF_SAMPLE_REGS_ABI_NONE) without registers.
    let has_some = fields.skip(8).and_then(|()| fields.u64()).is_some_and(|abi| abi != 0);
    let mut fields = if has_some { fields } else { Fields(&[]) };
    std::iter::from_fn(move || fields.u64())
}

/// Number of general registers before the instruction pointer in the kernel's numbering of x86-64.
const BEFORE_IP: usize = 8;

/// User-mode instruction pointer, if requested: in the kernel, the end of the system call.
pub fn caller(rest: &[u8]) -> Option<u64> {
    // The number of registers shows which were requested.
    match registers(rest).count() {
        1 => registers(rest).next(),
        // All 16 general registers, with the instruction pointer among them.
        17 => registers(rest).nth(BEFORE_IP),
        _ => None,
    }
}

/// General registers of a sample by their hardware numbers, if requested and all known.
pub fn general_registers(rest: &[u8]) -> Option<[u64; REGISTERS.len()]> {
    let mut all: Vec<u64> = registers(rest).collect();
    if all.len() > REGISTERS.len() {
        all.remove(BEFORE_IP);
    }
    if all.len() < REGISTERS.len() {
        return None;
    }
    let mut held = [0; REGISTERS.len()];
    for (number, value) in REGISTERS.iter().zip(all) {
        held[usize::from(*number)] = value;
    }
    Some(held)
}

/// Memory access sampled by the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// Address.
    pub address: u64,
    /// Whether the access writes.
    pub writes: bool,
    /// Whether the line was modified in another core's cache (HITM).
    pub was_modified: bool,
}

/// Memory access in the rest of a sample of [`Attr::memory`](super::Attr::memory). `None` for other
/// instructions, and without an address.
pub fn accessed(rest: &[u8]) -> Option<Accessed> {
    let mut fields = Fields(rest);
    // Address, CPU, source (`union perf_mem_data_src` of linux/perf_event.h).
    let address = fields.u64().filter(|address| *address != 0)?;
    fields.skip(8)?;
    let source = fields.u64()?;
    let reads = has_bit(source, c::PERF_MEM_OP_LOAD, c::PERF_MEM_OP_SHIFT);
    let writes = has_bit(source, c::PERF_MEM_OP_STORE, c::PERF_MEM_OP_SHIFT);
    let was_modified = has_bit(source, c::PERF_MEM_SNOOP_HITM, c::PERF_MEM_SNOOP_SHIFT);
    (reads || writes).then_some(Accessed { address, writes, was_modified })
}

fn has_bit(source: u64, bit: u32, shift: u32) -> bool {
    source >> shift & u64::from(bit) != 0
}
/// Reads fields in native byte order from the front of a slice.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub fn stamp(&mut self) -> Option<SampleId> {
        let pid = Pid(self.i32()?);
        let tid = Tid(self.i32()?);
        Some(SampleId { at: Nanos(self.u64()?), pid, tid })
    }

    /// Cuts the stamp off the end of the record.
    fn trailing_stamp(&mut self) -> Option<SampleId> {
        let (front, stamp) = self.0.split_at_checked(self.0.len().checked_sub(STAMP_B)?)?;
        self.0 = front;
        Fields(stamp).stamp()
    }

    /// Text up to the first zero byte.
    fn text(&self) -> &'a [u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of `kind` with `words` of 32 bits as its body, as the kernel writes it.
    fn bytes(kind: u32, misc: u32, words: &[u32]) -> Vec<u8> {
        let length = u32::try_from(HEAD_B + 4 * words.len()).unwrap();
        let mut out: Vec<u8> = kind.to_ne_bytes().into();
        out.extend(u16::try_from(misc).unwrap().to_ne_bytes());
        out.extend(u16::try_from(length).unwrap().to_ne_bytes());
        out.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        out
    }

    /// 64-bit value below 2^32 as two words.
    fn wide(value: u32) -> [u32; 2] {
        let bytes = u64::from(value).to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        [half(0), half(4)]
    }

    /// Stamp of process 10, thread 11, at `at`, on CPU 0.
    fn stamp(at: u32) -> Vec<u32> {
        [&[10, 11][..], &wide(at), &[0, 0]].concat()
    }

    fn of(at: u64) -> SampleId {
        SampleId { at: Nanos(at), pid: Pid(10), tid: Tid(11) }
    }

    fn only(bytes: &[u8]) -> PerfRecord<'_> {
        let mut records = parse(bytes);
        let first = records.next().unwrap();
        assert_eq!(records.next(), None);
        first
    }

    #[test]
    fn creation_and_end() {
        let body = [&[10, 1, 11, 2][..], &wide(77), &stamp(99)].concat();
        let created = PerfRecord::Fork { created: of(77), parent_pid: Pid(1), parent_tid: Tid(2) };
        assert_eq!(only(&bytes(c::PERF_RECORD_FORK, 0, &body)), created);
        assert_eq!(only(&bytes(c::PERF_RECORD_EXIT, 0, &body)), PerfRecord::Exit(of(77)));
    }

    #[test]
    fn new_name() {
        let name = u32::from_ne_bytes(*b"abc\0");
        let body = [&[10, 11, name, 0][..], &stamp(5)].concat();
        let exec = bytes(c::PERF_RECORD_COMM, c::PERF_RECORD_MISC_COMM_EXEC, &body);
        assert_eq!(only(&exec), PerfRecord::Comm { of: of(5), name: b"abc", exec: true });
        let named = bytes(c::PERF_RECORD_COMM, 0, &body);
        assert_eq!(only(&named), PerfRecord::Comm { of: of(5), name: b"abc", exec: false });
    }

    #[test]
    fn mapping() {
        let path = [u32::from_ne_bytes(*b"/a/b"), 0];
        let middle = [wide(0x1000), wide(0x2000), wide(0x3000)].concat();
        let body = [&[10, 11][..], &middle, &[0; 8], &path, &stamp(5)].concat();
        let map =
            ExecutableMapping { start: 0x1000, length_b: 0x2000, offset_b: 0x3000, path: b"/a/b" };
        let record = bytes(c::PERF_RECORD_MMAP2, 0, &body);
        assert_eq!(only(&record), PerfRecord::Map(of(5), map));
    }

    #[test]
    fn samples_of_program_and_kernel() {
        let body = [&wide(0x4000)[..], &stamp(5)].concat();
        for (misc, user) in [(c::PERF_RECORD_MISC_USER, true), (c::PERF_RECORD_MISC_KERNEL, false)]
        {
            // PERF_SAMPLE_REGS_ABI_64 and two registers, or PERF_SAMPLE_REGS_ABI_NONE.
            let with = [&body[..], &wide(2), &wide(0x5000), &wide(7)].concat();
            let without = [&body[..], &wide(0)].concat();
            for (body, held) in [(&body, &[][..]), (&with, &[0x5000, 7]), (&without, &[])] {
                let record = bytes(c::PERF_RECORD_SAMPLE, misc, body);
                let PerfRecord::Sample { of: found, ip: 0x4000, user: in_program, rest } =
                    only(&record)
                else {
                    panic!("{:?}", only(&record))
                };
                assert_eq!((found, in_program), (of(5), user));
                assert_eq!(registers(rest).collect::<Vec<u64>>(), held);
            }
        }
    }

    /// Samples of subscribers that need the user-mode instruction pointer, the general registers, or both, as the kernel
    /// numbers these: AX, BX, CX, DX, SI, DI, BP, SP, IP, R8 and so on.
    #[test]
    fn registers_by_request() {
        let rest = |held: &[u64]| -> Vec<u8> {
            let words = [&[0, u64::from(!held.is_empty())], held].concat();
            words.into_iter().flat_map(u64::to_ne_bytes).collect()
        };
        let first = [0, 3, 1, 2, 6, 7, 5, 4];
        let second: Vec<u64> = (8..16).collect();
        let general = std::array::from_fn(|number| number as u64);
        let both = rest(&[&first[..], &[99], &second].concat());
        assert_eq!((caller(&both), general_registers(&both)), (Some(99), Some(general)));
        let without_ip = rest(&[&first[..], &second].concat());
        assert_eq!((caller(&without_ip), general_registers(&without_ip)), (None, Some(general)));
        let ip = rest(&[99]);
        assert_eq!((caller(&ip), general_registers(&ip)), (Some(99), None));
        let none = rest(&[]);
        assert_eq!((caller(&none), general_registers(&none)), (None, None));
    }

    /// A load whose line another core had written, a store, and an instruction that does not access memory.
    #[test]
    fn samples_of_accesses() {
        let access = |address: u32, source: u32| {
            let stamp = stamp(5);
            // The time is followed by the address, and then comes the CPU.
            let (head, cpu) = stamp.split_at(4);
            let body = [&wide(0x4000)[..], head, &wide(address), cpu, &wide(source)].concat();
            let record = bytes(c::PERF_RECORD_SAMPLE, c::PERF_RECORD_MISC_USER, &body);
            let PerfRecord::Sample { of: found, rest, .. } = only(&record) else {
                panic!("{body:?}")
            };
            assert_eq!(found, of(5));
            accessed(rest)
        };
        let found = |writes, was_modified| Some(Accessed { address: 0x7000, writes, was_modified });
        assert_eq!(access(0x7000, 0x02 | 0x10 << 19), found(false, true));
        assert_eq!(access(0x7000, 0x04 | 0x02 << 19), found(true, false));
        assert_eq!(access(0x7000, 0x01), None);
        assert_eq!(access(0, 0x02), None);
        assert_eq!(accessed(&[0; 16]), None);
    }

    #[test]
    fn final_count_and_losses() {
        let body = [&[10, 11][..], &wide(1234), &stamp(5)].concat();
        let record = bytes(c::PERF_RECORD_READ, 0, &body);
        assert_eq!(only(&record), PerfRecord::Count(of(5), 1234));
        let body = [&wide(7)[..], &wide(3), &stamp(5)].concat();
        assert_eq!(only(&bytes(c::PERF_RECORD_LOST, 0, &body)), PerfRecord::Lost(3));
        let body = [&wide(4)[..], &stamp(5)].concat();
        assert_eq!(only(&bytes(c::PERF_RECORD_LOST_SAMPLES, 0, &body)), PerfRecord::Lost(4));
    }

    #[test]
    fn unknown_and_short_records_are_passed_over() {
        let mut all = bytes(999, 0, &[1, 2]);
        all.extend(bytes(c::PERF_RECORD_EXIT, 0, &[10]));
        all.extend(bytes(c::PERF_RECORD_LOST_SAMPLES, 0, &wide(4)));
        let found: Vec<PerfRecord<'_>> = parse(&all).collect();
        assert_eq!(found, [PerfRecord::Other, PerfRecord::Other, PerfRecord::Lost(4)]);
    }

    #[test]
    fn a_length_that_leads_nowhere_ends_the_list() {
        let mut record = bytes(c::PERF_RECORD_EXIT, 0, &stamp(5));
        for length in [0_u16, 7, 60_000] {
            record[6..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(parse(&record).count(), 0);
        }
        assert_eq!(parse(&record[..5]).count(), 0);
    }
}
