//! Groups of counters on one thread: opening, switching on, reading.
//!
//! One set a thread, opened when the thread is created. The kernel could hand down (`inherit`) one
//! set from the first thread to all others, but then it keeps one sum for all of them: a group can
//! be read whole only where nothing is inherited before Linux 6.13, and a thread's own share of the
//! sum comes only as a note at its end, and only where there is one event for each CPU.

#![allow(unsafe_code)] // perf_event_open, its ioctl, read

use super::events::Reading;
use crate::privilege;
use crate::sys::SysError;
use crate::task::Tid;
use perf_event_open_sys as sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use sys::bindings as c;

/// An event as perf takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of the PMU, or one of perf's own kinds.
    pub kind: u32,
    /// What to count, in the kind's numbering.
    pub config: u64,
}

/// When a group begins to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once.
    Now,
    /// When the thread executes a program.
    AtExec,
}

/// A group of counters on one thread. They go when this is dropped.
#[derive(Debug)]
pub struct OpenGroup {
    leader: OwnedFd,
    // Only held: a group is read through its leader.
    _others: Vec<OwnedFd>,
    events: usize,
}

impl OpenGroup {
    /// Opens `specs` on thread `tid`; `Tid(0)` is the calling thread. User level only.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `ENODEV` or `EOPNOTSUPP` without such a counter, `EINVAL` if they
    /// never fit together, `EACCES` or `EPERM` if the thread may not be watched, `ENOSYS` under
    /// some seccomp filters, `ESRCH` if it is gone, `EMFILE` without a free descriptor.
    pub fn open(specs: &[Spec], tid: Tid, start: Start) -> Result<Self, SysError> {
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(specs.len());
        for spec in specs {
            let leader = opened.first().map_or(-1, AsRawFd::as_raw_fd);
            opened.push(open(*spec, tid, leader, start)?);
        }
        let events = opened.len();
        let mut opened = opened.into_iter();
        let leader = opened.next().ok_or_else(|| SysError {
            call: "perf_event_open",
            source: std::io::Error::from_raw_os_error(libc::EINVAL),
        })?;
        let group = Self { leader, _others: opened.collect(), events };
        if start == Start::Now {
            group.enable()?;
        }
        Ok(group)
    }

    fn enable(&self) -> Result<(), SysError> {
        // SAFETY: this ioctl takes a flag, no pointer.
        let done = unsafe { sys::ioctls::ENABLE(self.leader.as_raw_fd(), c::PERF_IOC_FLAG_GROUP) };
        if done < 0 { Err(SysError::last("ioctl(PERF_EVENT_IOC_ENABLE)")) } else { Ok(()) }
    }

    /// The counts so far; also after the thread has ended.
    ///
    /// # Errors
    /// The kernel's; a short answer is reported as `EIO`.
    pub fn read(&self) -> Result<Reading, SysError> {
        let mut words = vec![0_u64; HEAD_WORDS + self.events];
        let wanted = size_of_val(words.as_slice());
        // SAFETY: `words` has room for `wanted` bytes.
        let got = unsafe { libc::read(self.leader.as_raw_fd(), words.as_mut_ptr().cast(), wanted) };
        if got < 0 {
            return Err(SysError::last("read of a perf group"));
        }
        let whole = usize::try_from(got).is_ok_and(|got| got == wanted);
        match *words {
            [_, enabled_ns, running_ns, ref counts @ ..] if whole => {
                Ok(Reading { enabled_ns, running_ns, counts: counts.to_vec() })
            }
            _ => Err(SysError {
                call: "read of a perf group",
                source: std::io::Error::from_raw_os_error(libc::EIO),
            }),
        }
    }
}

/// A group's answer begins with the number of events, the time enabled and the time running.
const HEAD_WORDS: usize = 3;

fn open(spec: Spec, tid: Tid, leader: i32, start: Start) -> Result<OwnedFd, SysError> {
    let mut attr = c::perf_event_attr {
        type_: spec.kind,
        size: u32::try_from(size_of::<c::perf_event_attr>()).expect("a few hundred bytes"),
        config: spec.config,
        read_format: u64::from(
            c::PERF_FORMAT_GROUP
                | c::PERF_FORMAT_TOTAL_TIME_ENABLED
                | c::PERF_FORMAT_TOTAL_TIME_RUNNING,
        ),
        ..Default::default()
    };
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    if leader < 0 {
        // The others follow it.
        attr.set_disabled(1);
        attr.set_enable_on_exec(u64::from(start == Start::AtExec));
    }
    let flags = libc::c_ulong::from(c::PERF_FLAG_FD_CLOEXEC);
    privilege::watching(|| {
        // SAFETY: `attr` is a whole attribute structure with its size filled in, and lives through the
        // call.
        let fd = unsafe { sys::perf_event_open(&raw mut attr, tid.0, -1, leader, flags) };
        if fd < 0 {
            return Err(SysError::last("perf_event_open"));
        }
        // SAFETY: the kernel has just given us this descriptor; it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const PAGE_FAULTS: Spec =
        Spec { kind: c::PERF_TYPE_SOFTWARE, config: c::PERF_COUNT_SW_PAGE_FAULTS as u64 };
    const TASK_CLOCK: Spec =
        Spec { kind: c::PERF_TYPE_SOFTWARE, config: c::PERF_COUNT_SW_TASK_CLOCK as u64 };

    /// Touches `size_b` bytes of new pages.
    pub fn touch(size_b: usize) {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // Not from the allocator, which may hand out pages that another thread has touched already.
        // SAFETY: a new mapping at no given place.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size_b, access, kind, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the mapping has that many writable bytes, and is used nowhere else.
        unsafe { memory.write_bytes(1, size_b) };
        // SAFETY: the mapping is ours and used no more.
        assert_eq!(unsafe { libc::munmap(memory, size_b) }, 0);
    }

    #[test]
    fn a_group_counts_what_its_thread_does() {
        let group = OpenGroup::open(&[TASK_CLOCK, PAGE_FAULTS], Tid(0), Start::Now).unwrap();
        let before = group.read().unwrap();
        touch(3_000 * 4096);
        let after = group.read().unwrap();
        // 3,000 pages of 4 KiB, unless the machine's pages are larger.
        let page_b = crate::perf::ring::page_size();
        let faults = after.counts[1] - before.counts[1];
        let huge = faults < 3_000 * 4096 / page_b as u64 / 2;
        assert!(faults >= 1, "{faults} faults");
        if huge {
            println!("large pages: {faults} faults for 3,000 pages");
        }
        assert!(after.counts[0] > before.counts[0]);
        // Software events always fit.
        assert_eq!(after.running_ns, after.enabled_ns);
    }

    #[test]
    fn another_thread_is_not_counted() {
        let group = OpenGroup::open(&[TASK_CLOCK, PAGE_FAULTS], Tid(0), Start::Now).unwrap();
        let before = group.read().unwrap().counts[1];
        std::thread::spawn(|| touch(5_000 * 4096)).join().unwrap();
        let after = group.read().unwrap().counts[1];
        assert!(after - before < 1_000, "{}", after - before);
    }

    #[test]
    fn refusals_carry_the_kernels_number() {
        let gone = OpenGroup::open(&[TASK_CLOCK], Tid(i32::MAX), Start::Now).unwrap_err();
        assert_eq!(gone.errno(), Some(libc::ESRCH));
        let nonsense = Spec { kind: c::PERF_TYPE_SOFTWARE, config: 9_999 };
        let unknown = OpenGroup::open(&[nonsense], Tid(0), Start::Now).unwrap_err();
        assert_eq!(unknown.errno(), Some(libc::ENOENT));
        let empty = OpenGroup::open(&[], Tid(0), Start::Now).unwrap_err();
        assert_eq!(empty.errno(), Some(libc::EINVAL));
    }
}
