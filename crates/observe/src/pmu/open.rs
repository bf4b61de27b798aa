//! Counter groups on one thread: opening, enabling, reading.
//!
//! One set per thread, opened at the thread's creation. The kernel could inherit one set from the
//! first thread, but then keeps one sum for all threads. Before Linux 6.13 an inherited group
//! cannot be read as a whole. A thread's own share of the sum comes only in a record at its exit,
//! and only with one event per CPU.

use super::events::Reading;
use crate::perf::{Attr, PerfEvent};
use colocate_linux::{SysError, Tid};

/// An event in perf's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// PMU number, or a type of perf's own.
    pub kind: u32,
    /// Event in the PMU's numbering.
    pub config: u64,
}

/// Start of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once.
    Now,
    /// At the thread's exec.
    AtExec,
}

/// Counter group of a thread, the leader first; closed on drop.
#[derive(Debug)]
pub struct OpenGroup(Vec<PerfEvent>);

impl OpenGroup {
    /// Opens `specs` on thread `tid`; `Tid(0)` is the calling thread. User mode only.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `ENODEV` or `EOPNOTSUPP` without such a counter; `EINVAL` if the
    /// events never fit together; `EACCES` or `EPERM` if the thread may not be watched; `ENOSYS`
    /// under some seccomp filters; `ESRCH` if the thread is gone; `EMFILE` without a free
    /// descriptor.
    pub fn open(specs: &[Spec], tid: Tid, start: Start) -> Result<Self, SysError> {
        let mut events: Vec<PerfEvent> = Vec::with_capacity(specs.len());
        for Spec { kind, config } in specs {
            let attr = Attr::counter(*kind, *config);
            // Group members are scheduled with the leader, so only the leader is disabled.
            let attr = match (events.is_empty(), start) {
                (true, Start::Now) => attr.disabled(),
                (true, Start::AtExec) => attr.disabled().at_exec(),
                (false, _) => attr,
            };
            events.push(PerfEvent::open_in(&attr, tid, None, events.first())?);
        }
        match events.first() {
            None => return Err(SysError::of("perf_event_open", libc::EINVAL)),
            // Enabled once the group is complete, so all events count the same time.
            Some(leader) if start == Start::Now => leader.enable_group()?,
            Some(_) => {}
        }
        Ok(Self(events))
    }

    /// Counts so far; works after the thread's exit, too.
    pub fn read(&self) -> Result<Reading, SysError> {
        // Layout of PERF_FORMAT_GROUP: number of events, time enabled, time running, counts.
        let mut words = vec![0; 3 + self.0.len()];
        self.0[0].read(&mut words)?;
        let counts = words.split_off(3);
        Ok(Reading { enabled_ns: words[1], running_ns: words[2], counts })
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // memory whose pages are counted
pub(super) mod tests {
    use super::*;
    use perf_event_open_sys::bindings as c;

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
