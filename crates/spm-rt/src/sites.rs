//! Call sites in the program, and the outcomes of their calls, for `SPM_STATS=1`.

#![allow(unsafe_code)] // names of the program's own

use crate::rule::{CallOutcome, WHYS};
use crate::sys;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

/// Supported version of [`CallSite`].
pub const VERSION: u32 = 1;

/// Call site, as the compiler emits it.
#[repr(C)]
#[derive(Debug)]
pub struct CallSite {
    pub(crate) version: u32,
    /// Line of the loop; 0 without debug information.
    line: u32,
    function: *const c_char,
    file: *const c_char,
    record: AtomicPtr<SiteRecord>,
}

// SAFETY: its names are constants of the program.
unsafe impl Sync for CallSite {}

impl CallSite {
    /// Writes file, line and function.
    fn name(&self, into: &mut LineBuffer) {
        // SAFETY: they are constants of the program, or of a library that is loaded while it calls.
        let file = unsafe { CStr::from_ptr(self.file) }.to_str().unwrap_or("?");
        // SAFETY: as for the file.
        let function = unsafe { CStr::from_ptr(self.function) }.to_str().unwrap_or("?");
        // Longer text is cut off, which is no error.
        let _ = write!(into, "spm: {file}:{} {function}: ", self.line);
    }
}

/// Outcomes of the calls of a site.
#[derive(Debug)]
pub struct SiteRecord {
    /// Copy of the site's file and function: the site may be in a library that is unloaded before
    /// the report.
    name: UnsafeCell<LineBuffer>,
    is_named: AtomicBool,
    whys: [AtomicU64; WHYS],
    /// Small pages moved; `refused` are pages that the kernel did not move.
    pub moved: AtomicU64,
    pub refused: AtomicU64,
    /// Time spent on moving, in nanoseconds.
    pub ns: AtomicU64,
}

// SAFETY: a name is written once, by the thread that has taken the record, before `is_named`.
unsafe impl Sync for SiteRecord {}

/// Largest number of recorded sites; further sites are not reported.
const MOST: usize = 1024;
static RECORDS: [SiteRecord; MOST] = [const {
    SiteRecord {
        name: UnsafeCell::new(LineBuffer { bytes: [0; LINE], used: 0 }),
        is_named: AtomicBool::new(false),
        whys: [const { AtomicU64::new(0) }; WHYS],
        moved: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        ns: AtomicU64::new(0),
    }
}; MOST];
static USED: AtomicUsize = AtomicUsize::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Starts recording calls; the report is written at exit.
pub fn begin() {
    IS_ON.store(true, Relaxed);
    sys::at_exit(report);
}

/// Record of a site; `None` if calls are not recorded.
pub fn record(site: &CallSite) -> Option<&'static SiteRecord> {
    if !IS_ON.load(Relaxed) {
        return None;
    }
    let known = site.record.load(Relaxed);
    // SAFETY: it is null or one of `RECORDS`; a program that writes there has lost its own site.
    if let Some(known) = unsafe { known.as_ref() } {
        return Some(known);
    }
    // Two threads may each take a record for one site: both are reported.
    let record = RECORDS.get(USED.fetch_add(1, Relaxed))?;
    // SAFETY: no other thread has this record, and none reads its name yet.
    site.name(unsafe { &mut *record.name.get() });
    record.is_named.store(true, Release);
    site.record.store(ptr::from_ref(record).cast_mut(), Relaxed);
    Some(record)
}

impl SiteRecord {
    /// Counts a call.
    pub fn note(&self, why: CallOutcome) {
        self.whys[why as usize].fetch_add(1, Relaxed);
    }
}

/// Largest length of a line of the report, in bytes.
const LINE: usize = 512;

/// Line of fixed capacity; longer text is cut off.
#[derive(Clone, Debug)]
struct LineBuffer {
    bytes: [u8; LINE],
    used: usize,
}

impl Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // One byte stays for the newline.
        let most = self.bytes.len() - 1 - self.used;
        let text = &text.as_bytes()[..text.len().min(most)];
        self.bytes[self.used..][..text.len()].copy_from_slice(text);
        self.used += text.len();
        Ok(())
    }
}

/// Words of the report, in the order of [`CallOutcome`].
const WORDS: [&str; WHYS] = [
    "moved",
    "empty",
    "below a page",
    "on no known node",
    "not worth it yet",
    "already here",
    "over the budget",
    "refused",
];

extern "C" fn report() {
    for record in &RECORDS {
        if !record.is_named.load(Acquire) {
            continue;
        }
        // SAFETY: it is not written any more.
        let mut line = unsafe { &*record.name.get() }.clone();
        let counts = record.whys.each_ref().map(|count| count.load(Relaxed));
        let calls: u64 = counts.iter().sum();
        let _ = write!(line, "{calls} calls");
        for (word, count) in WORDS.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let _ = write!(line, ", {count} {word}");
        }
        let moved = record.moved.load(Relaxed);
        let refused = record.refused.load(Relaxed);
        if moved + refused > 0 {
            let us = record.ns.load(Relaxed) / 1000;
            let _ = write!(line, "; {moved} pages moved in {us} us, {refused} not");
        }
        line.bytes[line.used] = b'\n';
        sys::say(&line.bytes[..=line.used]);
    }
}
