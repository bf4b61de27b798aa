//! The memory in which threads tell when they wait: one head and a slot for each thread.
//!
//! `colocate` makes it, and every program that it starts maps it. Programs may write anything there, so whoever
//! reads believes nothing that it has not checked.
//!
//! # The clock
//! Times are of the kernel's coarse monotonic clock (`CLOCK_MONOTONIC_COARSE`), in nanoseconds. It is read without a
//! system call and costs least, and goes on by one tick (1 to 10 ms) at a time. A wait that is shorter than a tick is
//! seldom seen, and then counts as a tick; so the sum is right on average.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The environment variable that has the file's path.
pub const VARIABLE: &core::ffi::CStr = c"COLOCATE_WAITS";
/// What the memory begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"colowait");
/// The form of this memory.
pub const VERSION: u32 = 1;
/// Threads that can tell at once; the others do not. Chosen: eight times the 1,000 threads that are to be watched.
pub const SLOTS: u32 = 8192;
/// Slots that a thread may have, from its first one on. Chosen: with every second slot taken at random, one thread in
/// 2^32 finds none.
pub const PROBES: u32 = 32;

/// What is said of all threads. Written before any program is started; anybody may spoil it later.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// [`SLOTS`].
    pub slots: AtomicU32,
    /// The inode number of the namespace of process IDs in which threads have their numbers.
    pub pid_namespace: AtomicU64,
    /// Programs that have mapped this.
    pub programs: AtomicU32,
    /// Threads that found no slot.
    pub without_slot: AtomicU32,
}

/// What one thread tells. A cache line of its own, so that threads do not take it from each other.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// The thread; 0 if the slot is free.
    pub tid: AtomicU32,
    /// Its process.
    pub pid: AtomicU32,
    /// When it took the slot, in nanoseconds of the precise monotonic clock.
    pub taken_ns: AtomicU64,
    /// For how long it has waited, without a wait that goes on.
    pub waited_ns: AtomicU64,
    /// Since when it waits; 0 while it does not.
    pub since_ns: AtomicU64,
}

/// All of it.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// What is said of all threads.
    pub head: Head,
    /// The threads.
    pub slots: [Slot; SLOTS as usize],
}

impl Head {
    /// Makes this, of zeroes, the head of a table for threads of this namespace.
    pub fn begin(&self, pid_namespace: u64) {
        self.version.store(VERSION, Ordering::Relaxed);
        self.slots.store(SLOTS, Ordering::Relaxed);
        self.pid_namespace.store(pid_namespace, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether this is the head of a table of this form, for threads of this namespace.
    #[must_use]
    pub fn fits(&self, pid_namespace: u64) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
            && self.version.load(Ordering::Relaxed) == VERSION
            && self.slots.load(Ordering::Relaxed) == SLOTS
            && self.pid_namespace.load(Ordering::Relaxed) == pid_namespace
    }
}

/// The number in what `/proc/PID/ns/pid` links to, such as `pid:[4026531836]`; `None` without any digit.
#[must_use]
pub fn namespace(text: &[u8]) -> Option<u64> {
    let digits = || text.iter().filter(|byte| byte.is_ascii_digit());
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(10).wrapping_add(u64::from(byte & 0xf));
    digits().next().map(|_| digits().fold(0, add))
}

impl Slot {
    /// Notes that its thread waits from `now_ns` on, unless it waits already. Returns whether it did not.
    pub fn begin(&self, now_ns: u64) -> bool {
        let begins = self.since_ns.load(Ordering::Relaxed) == 0;
        if begins {
            self.since_ns.store(now_ns.max(1), Ordering::Release);
        }
        begins
    }

    /// Notes that its thread waits no longer. Only its thread may say that.
    pub fn end(&self, now_ns: u64) {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        if since_ns == 0 {
            return;
        }
        let waited_ns = self.waited_ns.load(Ordering::Relaxed);
        // In this order nobody can read a wait in both places.
        self.since_ns.store(0, Ordering::Relaxed);
        let sum = waited_ns.wrapping_add(now_ns.saturating_sub(since_ns));
        self.waited_ns.store(sum, Ordering::Release);
    }

    /// For how long its thread has waited until `now_ns`, also now. Short by a wait that ends just now.
    #[must_use]
    pub fn waited(&self, now_ns: u64) -> u64 {
        let waited_ns = self.waited_ns.load(Ordering::Acquire);
        match self.since_ns.load(Ordering::Acquire) {
            0 => waited_ns,
            since_ns => waited_ns.saturating_add(now_ns.saturating_sub(since_ns)),
        }
    }
}

impl Table {
    /// The slots that a thread may have, best first.
    pub fn places(&self, tid: u32) -> impl Iterator<Item = &Slot> {
        (0..PROBES).filter_map(move |step| self.slots.get(place(tid, step)))
    }

    /// The slot that a thread has taken.
    #[must_use]
    pub fn slot_of(&self, tid: u32) -> Option<&Slot> {
        self.places(tid).find(|slot| slot.tid.load(Ordering::Acquire) == tid)
    }

    /// Takes a slot for a thread, or gives it back the one that it had before it became another program. Returns
    /// which.
    pub fn take(&self, tid: u32, pid: u32, now_ns: u64) -> Option<u32> {
        let free = |slot: &Slot| {
            let order = Ordering::AcqRel;
            slot.tid.compare_exchange(0, tid, order, Ordering::Relaxed).is_ok()
        };
        let found = |slot: &Slot| slot.tid.load(Ordering::Acquire) == tid;
        let all = || (0..PROBES).map(|step| place(tid, step));
        let at = |place: &usize| self.slots.get(*place);
        let before = all().find(|place| at(place).is_some_and(found));
        let place = before.or_else(|| all().find(|place| at(place).is_some_and(free)));
        let Some(slot) = place.as_ref().and_then(at) else {
            self.head.without_slot.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        slot.since_ns.store(0, Ordering::Relaxed);
        slot.waited_ns.store(0, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Relaxed);
        slot.taken_ns.store(now_ns, Ordering::Release);
        place.and_then(|place| u32::try_from(place).ok())
    }
}

/// Numbers of threads come one after the other, so neighbours rarely want the same slot.
fn place(tid: u32, step: u32) -> usize {
    (tid.wrapping_add(step) % SLOTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of};
    use std::sync::atomic::AtomicBool;

    /// Programs and `colocate` may be of different builds: this is the form, and [`VERSION`] changes with it.
    #[test]
    fn the_form() {
        assert_eq!((size_of::<Head>(), size_of::<Slot>(), align_of::<Table>()), (64, 64, 64));
        assert_eq!(size_of::<Table>(), 64 + 64 * SLOTS as usize);
        let head = [offset_of!(Head, magic), offset_of!(Head, version), offset_of!(Head, slots)];
        assert_eq!((head, offset_of!(Head, pid_namespace)), ([0, 8, 12], 16));
        let slot = [offset_of!(Slot, tid), offset_of!(Slot, pid), offset_of!(Slot, taken_ns)];
        assert_eq!(slot, [0, 4, 8]);
        assert_eq!((offset_of!(Slot, waited_ns), offset_of!(Slot, since_ns)), (16, 24));
    }

    #[test]
    fn heads_of_other_forms_do_not_fit() {
        let head = || Head {
            magic: AtomicU64::new(0),
            version: AtomicU32::new(0),
            slots: AtomicU32::new(0),
            pid_namespace: AtomicU64::new(0),
            programs: AtomicU32::new(0),
            without_slot: AtomicU32::new(0),
        };
        assert!(!head().fits(0), "zeroes");
        let good = head();
        good.begin(7);
        assert!(good.fits(7) && !good.fits(8));
        good.version.store(VERSION + 1, Ordering::Relaxed);
        assert!(!good.fits(7));
    }

    #[test]
    fn namespaces() {
        assert_eq!(namespace(b"pid:[4026531836]"), Some(4_026_531_836));
        assert_eq!((namespace(b""), namespace(b"pid:[]")), (None, None));
    }

    /// A thread that waits all the time, in waits of 1,000 ns, is never read to have waited for longer than that.
    #[test]
    fn a_wait_is_never_read_twice() {
        const WAITS: u64 = 200_000;
        let (slot, over) = (Slot::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for wait in 0..WAITS {
                    slot.begin(wait * 1_000);
                    slot.end(wait * 1_000 + 1_000);
                }
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let read = slot.waited(WAITS * 1_000);
                assert!(read <= WAITS * 1_000, "{read}");
            }
        });
        // Time 0 is 1: no wait begins before there is a clock.
        assert_eq!(slot.waited(0), WAITS * 1_000 - 1);
    }
}
