//! The calling thread's slot, and noting waits in it.
//!
//! # What is odd here
//! - A child of a fork has its parent's memory and its forking thread's values, also that which says where the slot
//!   is. So that value has the process's number in it, and a page that the kernel empties in children
//!   (`MADV_WIPEONFORK`) has the number that counts: an empty one means a new process, and everybody in it takes a slot
//!   of its own. That also holds for a fork that is a bare system call, of which the C library tells nobody.
//! - A child of vfork has its parent's memory for good. What it notes before it executes something is its parent's,
//!   which sleeps meanwhile.
//! - In another namespace of process IDs threads have other numbers than `colocate` knows them by; there nobody tells.

use crate::clib;
use crate::layout::{self, Slot, Table, VARIABLE};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The memory that is shared with `colocate`; null as long as nobody tells.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// The page with the number of the process that tells; 0 in a child that has not asked yet.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Where each thread keeps which slot it has.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Instead of a process's number: its threads do not tell.
const NOBODY: u32 = u32::MAX;
/// Instead of a slot's place: the thread has found none, and looks no more.
const NO_SLOT: u32 = u32::MAX;
/// A page, at least.
const PAGE: usize = 1;

/// Prepares for telling; without effect where that is not wanted or cannot be.
pub fn prepare() {
    if let Some((table, page)) = clib::keeping_errno(map) {
        // SAFETY: `map` has checked that it is a table, and the page was just mapped; both stay.
        tell(unsafe { &*table }, unsafe { &*page });
    }
}

/// Begins to tell in a table; `page` is one that children find empty.
fn tell(table: &'static Table, page: &'static AtomicU32) {
    let mut key = 0;
    // SAFETY: `key` is a valid place to write to; the function stays.
    if unsafe { clib::pthread_key_create(&raw mut key, at_end) } != 0 {
        return;
    }
    KEY.store(key, Ordering::Relaxed);
    page.store(process(), Ordering::Relaxed);
    PROCESS.store(ptr::from_ref(page).cast_mut(), Ordering::Relaxed);
    table.head.programs.fetch_add(1, Ordering::Relaxed);
    TABLE.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
}

/// Tells in a table of its own, which is returned.
#[cfg(test)]
pub fn tell_here() -> &'static Table {
    let layout = std::alloc::Layout::new::<Table>();
    // SAFETY: the layout has a size; zeroes are a table, which stays.
    let table = unsafe { std::alloc::alloc_zeroed(layout).cast::<Table>().as_ref() }.unwrap();
    tell(table, Box::leak(Box::default()));
    table
}

/// Whether somebody wants to be told.
pub fn is_wanted() -> bool {
    !TABLE.load(Ordering::Acquire).is_null()
}

/// Notes that the calling thread waits from now on. Returns whether it did not before; else somebody further out notes
/// the end, too.
pub fn begin() -> bool {
    mine().is_some_and(|slot| slot.begin(clib::time_ns(clib::CLOCK_MONOTONIC_COARSE)))
}

/// Notes that the calling thread waits no longer.
pub fn end() {
    if let Some(slot) = mine() {
        // Asking for the time costs more than looking.
        if slot.since_ns.load(Ordering::Relaxed) != 0 {
            slot.end(clib::time_ns(clib::CLOCK_MONOTONIC_COARSE));
        }
    }
}

/// Does something in which the calling thread may wait in a loop.
#[inline]
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let begun = begin();
    let done = wait();
    if begun {
        end();
    }
    done
}

/// Notes that no thread of this process waits.
pub fn nobody_waits() {
    let (Some(table), Some(page)) = (table(), page()) else { return };
    let process = page.load(Ordering::Relaxed);
    for slot in table.slots.iter().filter(|slot| slot.pid.load(Ordering::Relaxed) == process) {
        slot.since_ns.store(0, Ordering::SeqCst);
    }
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or a table that stays.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

fn page() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that stays.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// What a thread keeps: the number of its process, and behind that the place of its slot.
fn kept() -> (u32, u32) {
    // SAFETY: the key exists where there is a table, which callers have asked for.
    let value = unsafe { clib::pthread_getspecific(KEY.load(Ordering::Relaxed)) }.addr() as u64;
    unpack(value)
}

#[allow(clippy::cast_possible_truncation)] // halves of a word
const fn unpack(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

/// The calling thread's slot; at its first wait it takes one.
fn mine() -> Option<&'static Slot> {
    let table = table()?;
    let process = page()?.load(Ordering::Relaxed);
    let (of, place) = kept();
    if of == process && process != 0 {
        return table.slots.get(place as usize);
    }
    take(table)
}

#[cold]
fn take(table: &'static Table) -> Option<&'static Slot> {
    let page = page()?;
    if page.load(Ordering::Relaxed) == 0 {
        // A child, of its own number. Two threads that come here find the same.
        let here = clib::keeping_errno(namespace).is_some_and(|here| table.head.fits(here));
        page.store(if here { process() } else { NOBODY }, Ordering::Relaxed);
    }
    let process = page.load(Ordering::Relaxed);
    if process == NOBODY {
        return None;
    }
    // SAFETY: it takes nothing and cannot fail.
    let tid = u32::try_from(unsafe { clib::syscall(clib::SYS_GETTID) }).ok()?;
    let now_ns = clib::time_ns(clib::CLOCK_MONOTONIC);
    let place = table.take(tid, process, now_ns).unwrap_or(NO_SLOT);
    let value = (u64::from(process) << 32) | u64::from(place);
    let value = ptr::without_provenance(usize::try_from(value).ok()?);
    // SAFETY: the key exists; the value is no pointer, and nobody takes it for one.
    unsafe { clib::pthread_setspecific(KEY.load(Ordering::Relaxed), value) };
    table.slots.get(place as usize)
}

/// Gives back the slot of a thread that ends.
extern "C" fn at_end(value: *mut c_void) {
    let (of, place) = unpack(value.addr() as u64);
    let (Some(table), Some(page)) = (table(), page()) else { return };
    if of != page.load(Ordering::Relaxed) {
        return; // a child's, of its parent's thread
    }
    if let Some(slot) = table.slots.get(place as usize) {
        slot.since_ns.store(0, Ordering::Relaxed);
        slot.tid.store(0, Ordering::Release);
    }
}

fn process() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { clib::getpid() }.cast_unsigned()
}

/// Maps the file that the environment names, if it is a table for here, and a page that children find empty.
fn map() -> Option<(*mut Table, *mut AtomicU32)> {
    // SAFETY: the name is a string; at the start of a program nobody changes the environment.
    let path = unsafe { clib::getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return None;
    }
    // By now the path may be of something else: of a terminal, or of what lets those wait who open it.
    let flags = clib::O_RDWR | clib::O_CLOEXEC | clib::O_NOCTTY | clib::O_NONBLOCK;
    // SAFETY: a string of the environment.
    let fd = unsafe { clib::open(path, flags) };
    if fd < 0 {
        return None;
    }
    let table = map_table(fd);
    // SAFETY: it was opened above, and nobody else has it.
    unsafe { clib::close(fd) };
    Some((table?, map_page()?))
}

fn map_table(fd: c_int) -> Option<*mut Table> {
    let length = size_of::<Table>();
    // Whoever can shorten a file that is mapped can end the program.
    // SAFETY: it takes no pointer; what is no memfd has no seals, which is an error.
    let seals = unsafe { clib::fcntl(fd, clib::F_GET_SEALS) };
    // SAFETY: it takes no pointer.
    let found = unsafe { clib::lseek(fd, 0, clib::SEEK_END) };
    let long_enough = usize::try_from(found).is_ok_and(|found| found >= length);
    if seals < 0 || seals & clib::F_SEAL_SHRINK == 0 || !long_enough {
        return None;
    }
    let protection = clib::PROT_READ | clib::PROT_WRITE;
    // SAFETY: a new mapping, where the kernel has room for it.
    let at = unsafe { clib::mmap(ptr::null_mut(), length, protection, clib::MAP_SHARED, fd, 0) };
    let table = at.cast::<Table>();
    // SAFETY: it is as long as a table, and any bytes are one.
    let fits = at != clib::MAP_FAILED && unsafe { &*table }.head.fits(namespace()?);
    fits.then_some(table)
}

fn map_page() -> Option<*mut AtomicU32> {
    let protection = clib::PROT_READ | clib::PROT_WRITE;
    let flags = clib::MAP_PRIVATE | clib::MAP_ANONYMOUS;
    // SAFETY: a new mapping, where the kernel has room for it.
    let at = unsafe { clib::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
    // Before Linux 4.14 this is an error.
    // SAFETY: of the mapping that was just made.
    let empties = || unsafe { clib::madvise(at, PAGE, clib::MADV_WIPEONFORK) } == 0;
    (at != clib::MAP_FAILED && empties()).then_some(at.cast())
}

/// The inode number of this process's namespace of process IDs.
fn namespace() -> Option<u64> {
    let mut text = [0_u8; 32];
    let path = c"/proc/self/ns/pid";
    // SAFETY: the path is a string, and the place as long as is said.
    let length = unsafe { clib::readlink(path.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    layout::namespace(text.get(..usize::try_from(length).ok()?)?)
}
