//! A kernel tracepoint, as tracefs describes it, and its samples.

use super::record::{Fields, bodies};
use colocate_files::kernel;
use colocate_linux::Tid;
use colocate_machine::PuNr;
use perf_event_open_sys::bindings as c;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bits of `common_flags`: in a hard interrupt, and in a softirq (`TRACE_FLAG_HARDIRQ` and
/// `TRACE_FLAG_SOFTIRQ` of the kernel's linux/trace_events.h). A softirq may be work of an
/// interrupt.
const IN_INTERRUPT: u8 = 0x08;
const IN_SOFTIRQ: u8 = 0x10;

/// Value of a thread's result register during a system call, set at its entry (-ENOSYS, in the
/// kernel's arch/x86/entry/entry_64.S).
const IN_SYSTEM_CALL: u64 = (-(libc::ENOSYS as i64)).cast_unsigned();

/// A tracepoint about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Number for `perf_event_open(2)`.
    pub id: u64,
    /// Offset of the flags in the tracepoint's data, in bytes.
    flags_at: usize,
    /// Offset of the thread's TID, in bytes.
    pid_at: usize,
}

/// Reason why a tracepoint cannot be used.
#[derive(Debug, Error)]
pub enum TracepointError {
    /// No tracefs mount has the tracepoint.
    #[error("tracefs is not mounted at /sys/kernel/tracing")]
    NotMounted,
    /// Unreadable file.
    #[error("cannot read {}: {}", .0.display(), .1)]
    Read(PathBuf, #[source] io::Error),
    /// Malformed file, and its expected content.
    #[error("{}: expected {}, found none", .0.display(), .1)]
    Malformed(PathBuf, &'static str),
}

impl TracepointError {
    /// The kernel's error number, or the nearest equivalent.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotMounted => libc::ENOENT,
            Self::Read(_, source) => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Malformed(..) => libc::EINVAL,
        }
    }
}

/// Record of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracepointRecord {
    /// Sample.
    Sample {
        /// PU of the event.
        on: PuNr,
        /// Running thread.
        current: Tid,
        /// Whether the event is work of an interrupt that came while the thread ran. Softirq work
        /// left by a system call, such as sending to this machine, counts as the thread's own work,
        /// where a register shows the system call.
        in_interrupt: bool,
        /// Thread that the tracepoint is about.
        about: Tid,
        /// Count of the event so far, this sample included.
        so_far: u64,
    },
    /// Records dropped from a full ring.
    Lost {
        /// Number of records.
        count: u64,
    },
}

impl Tracepoint {
    /// Finds the tracepoint `event`, e.g. `sched/sched_waking`, in a tracefs at one of `places`.
    ///
    /// # Errors
    /// [`TracepointError`]; by default tracefs is readable by root only.
    pub fn find(places: &[&Path], event: &str) -> Result<Self, TracepointError> {
        for place in places {
            match Self::read(&place.join("events").join(event)) {
                Err(TracepointError::Read(_, source))
                    if source.kind() == io::ErrorKind::NotFound => {}
                found => return found,
            }
        }
        Err(TracepointError::NotMounted)
    }

    fn read(folder: &Path) -> Result<Self, TracepointError> {
        let path = folder.join("id");
        let id = read_text(&path)?.trim().parse().ok();
        let id = id.ok_or(TracepointError::Malformed(path, "a number"))?;
        let path = folder.join("format");
        let format = read_text(&path)?;
        let flags = "unsigned char common_flags";
        let flags_at = offset(&format, flags, size_of::<u8>())
            .ok_or_else(|| TracepointError::Malformed(path.clone(), flags))?;
        let pid_at = offset(&format, "pid_t pid", size_of::<i32>())
            .ok_or(TracepointError::Malformed(path, "pid_t pid"))?;
        Ok(Self { id, flags_at, pid_at })
    }

    /// Records in `bytes`, from rings of events opened with
    /// [`Attr::tracepoint`](super::Attr::tracepoint). `counts_lost` says whether the kernel counts
    /// dropped records. Malformed records are left out.
    pub fn records(
        self,
        bytes: &[u8],
        counts_lost: bool,
    ) -> impl Iterator<Item = TracepointRecord> {
        let bodies = bodies(bytes);
        bodies.filter_map(move |(_, kind, _, body)| self.record(kind, Fields(body), counts_lost))
    }

    fn record(
        &self,
        kind: u32,
        mut fields: Fields<'_>,
        counts_lost: bool,
    ) -> Option<TracepointRecord> {
        match kind {
            c::PERF_RECORD_SAMPLE => {
                let stamp = fields.stamp()?;
                let on = PuNr(fields.u32()?);
                // Padding after the CPU.
                fields.skip(4)?;
                let so_far = fields.u64()?;
                // The number of lost records follows the count.
                if counts_lost {
                    fields.skip(8)?;
                }
                let size = fields.u32()?;
                let (data, rest) = fields.0.split_at_checked(usize::try_from(size).ok()?)?;
                let flags = *data.get(self.flags_at)?;
                let in_interrupt = flags & IN_INTERRUPT != 0
                    || flags & IN_SOFTIRQ != 0 && !is_in_system_call(Fields(rest));
                let about = Tid(Fields(data.get(self.pid_at..)?).i32()?);
                let current = stamp.tid;
                Some(TracepointRecord::Sample { on, current, in_interrupt, about, so_far })
            }
            c::PERF_RECORD_LOST => {
                // The event's ID.
                fields.skip(8)?;
                Some(TracepointRecord::Lost { count: fields.u64()? })
            }
            c::PERF_RECORD_LOST_SAMPLES => Some(TracepointRecord::Lost { count: fields.u64()? }),
            _ => None,
        }
    }
}

fn read_text(path: &Path) -> Result<String, TracepointError> {
    kernel::read_text(path).map_err(|source| TracepointError::Read(path.to_owned(), source))
}
/// Whether the thread of a sample is in a system call, by its sampled registers: ABI, then result
/// register. Kernel threads have no registers.
fn is_in_system_call(mut registers: Fields<'_>) -> bool {
    registers.u64().is_some_and(|abi| abi != 0) && registers.u64() == Some(IN_SYSTEM_CALL)
}

/// Offset of a field of `size` bytes in a tracepoint's data, by its `format` file.
fn offset(format: &str, field: &str, size: usize) -> Option<usize> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        (parts.next()? == field).then_some(())?;
        let at = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let found: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        // A field of another size would be misread.
        (found == size).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 writes it.
    const FORMAT: &str = "name: sched_waking
ID: 375
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;

print fmt: \"comm=%s pid=%d prio=%d target_cpu=%03d\", REC->comm, REC->pid, REC->prio, REC->target_cpu
";

    const WAKING: Tracepoint = Tracepoint { id: 375, flags_at: 2, pid_at: 24 };

    #[test]
    fn fields_by_name_and_size() {
        assert_eq!(offset(FORMAT, "unsigned char common_flags", 1), Some(2));
        assert_eq!(offset(FORMAT, "pid_t pid", 4), Some(24));
        assert_eq!(offset(FORMAT, "pid_t pid", 8), None, "of another size");
        for text in ["", "field:", "field:pid_t pid;", "field:pid_t pid;\toffset:x;\tsize:4;"] {
            assert_eq!(offset(text, "pid_t pid", 4), None, "{text}");
        }
    }

    #[test]
    fn tracefs_at_one_of_two_places() {
        let root = tempfile::tempdir().unwrap();
        let [empty, there] = ["empty", "there"].map(|name| root.path().join(name));
        let folder = there.join("events/sched/sched_waking");
        std::fs::create_dir_all(&folder).unwrap();
        let find = || Tracepoint::find(&[&empty, &there], "sched/sched_waking");
        assert!(matches!(find(), Err(TracepointError::NotMounted)));
        std::fs::write(folder.join("id"), "375\n").unwrap();
        std::fs::write(folder.join("format"), FORMAT).unwrap();
        assert_eq!(find().unwrap(), WAKING);
        std::fs::write(folder.join("format"), FORMAT.replace("pid_t pid", "pid_t tid")).unwrap();
        let why = find().unwrap_err();
        assert!(why.to_string().ends_with("/format: expected pid_t pid, found none"), "{why}");
        assert_eq!(why.errno(), libc::EINVAL);
    }

    /// A sample as a kernel of a little-endian machine has written it: thread 11 of process 10 wakes thread 12.
    #[cfg(target_endian = "little")]
    #[rustfmt::skip]
    const SAMPLE: [u8; 96] = [
        9, 0, 0, 0,  1, 0,  96, 0, // PERF_RECORD_SAMPLE, in the kernel, 96 bytes
        10, 0, 0, 0,  11, 0, 0, 0, // process, thread
        77, 0, 0, 0, 0, 0, 0, 0, // time
        1, 0, 0, 0, 0, 0, 0, 0, // CPU
        0x20, 3, 0, 0, 0, 0, 0, 0, // events so far
        36, 0, 0, 0, // bytes of data
        0x77, 1,  1,  0,  10, 0, 0, 0, // type, flags (interrupts are off), preemption count, process
        b'c', b'a', b't', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // name
        12, 0, 0, 0,  120, 0, 0, 0,  1, 0, 0, 0, // thread, priority, target CPU
        2, 0, 0, 0, 0, 0, 0, 0, // PERF_SAMPLE_REGS_ABI_64
        1, 0, 0, 0, 0, 0, 0, 0, // AX
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn samples_and_losses() {
        let sample = |in_interrupt| TracepointRecord::Sample {
            on: PuNr(1),
            current: Tid(11),
            in_interrupt,
            about: Tid(12),
            so_far: 0x320,
        };
        let mut all = SAMPLE.to_vec();
        for (flags, is_in_system_call) in [(0x09, true), (0x10, false), (0x10, true), (0x40, false)]
        {
            let mut next = SAMPLE;
            next[46] = flags;
            if is_in_system_call {
                next[88..].copy_from_slice(&IN_SYSTEM_CALL.to_le_bytes());
            }
            all.extend(next);
        }
        // PERF_RECORD_LOST: 3 records of event 7.
        all.extend([2, 0, 0, 0, 0, 0, 24, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let found: Vec<TracepointRecord> = WAKING.records(&all, false).collect();
        let samples = [false, true, true, false, false].map(sample);
        assert_eq!(found, [&samples[..], &[TracepointRecord::Lost { count: 3 }]].concat());
        let mut counts_lost = SAMPLE.to_vec();
        counts_lost.splice(40..40, [0; 8]);
        counts_lost[6] += 8;
        assert_eq!(WAKING.records(&counts_lost, true).collect::<Vec<_>>(), [sample(false)]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn data_that_is_cut_short_is_left_out() {
        let mut record = SAMPLE;
        record[40] = 27;
        assert_eq!(WAKING.records(&record, false).count(), 0, "it ends within the thread's number");
        record[40] = 255;
        assert_eq!(WAKING.records(&record, false).count(), 0, "it is longer than its record");
        let far = Tracepoint { pid_at: usize::MAX, ..WAKING };
        assert_eq!(far.records(&SAMPLE, false).count(), 0);
    }
}
