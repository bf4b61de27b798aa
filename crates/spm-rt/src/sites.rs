//! Where calls are in the program, and what became of them, for `SPM_STATS=1`.

#![allow(unsafe_code)] // names of the program's own

use crate::rule::{WHYS, Why};
use crate::sys;
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The form of [`Site`] that is known here.
pub const VERSION: u32 = 1;

/// A call in the program, as the compiler describes it.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    pub(crate) version: u32,
    /// The loop's line, 0 if the program was built without debug information.
    line: u32,
    function: *const c_char,
    file: *const c_char,
    record: AtomicPtr<Record>,
}

// SAFETY: its names are constants of the program.
unsafe impl Sync for Site {}

/// What became of the calls of a site.
#[derive(Debug)]
pub struct Record {
    site: AtomicPtr<Site>,
    whys: [AtomicU64; WHYS],
    /// Small pages that were moved, and that the kernel did not move.
    pub moved: AtomicU64,
    pub refused: AtomicU64,
    /// What moving took.
    pub ns: AtomicU64,
}

/// Sites that are recorded, at most; of others nothing is said.
const MOST: usize = 1024;
static RECORDS: [Record; MOST] = [const {
    Record {
        site: AtomicPtr::new(ptr::null_mut()),
        whys: [const { AtomicU64::new(0) }; WHYS],
        moved: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        ns: AtomicU64::new(0),
    }
}; MOST];
static USED: AtomicUsize = AtomicUsize::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// From now on calls are recorded, and reported when the program ends.
pub fn begin() {
    IS_ON.store(true, Relaxed);
    sys::at_exit(report);
}

/// That of a site, if calls are recorded.
pub fn record(site: &Site) -> Option<&'static Record> {
    if !IS_ON.load(Relaxed) {
        return None;
    }
    let known = site.record.load(Relaxed);
    // SAFETY: it is null or one of `RECORDS`; a program that writes there has lost its own site.
    if let Some(known) = unsafe { known.as_ref() } {
        return Some(known);
    }
    let record = RECORDS.get(USED.fetch_add(1, Relaxed))?;
    record.site.store(ptr::from_ref(site).cast_mut(), Relaxed);
    site.record.store(ptr::from_ref(record).cast_mut(), Relaxed);
    Some(record)
}

impl Record {
    /// Counts a call.
    pub fn note(&self, why: Why) {
        self.whys[why as usize].fetch_add(1, Relaxed);
    }
}

/// A line, which is cut off at its end.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let most = self.bytes.len() - 1 - self.used;
        let text = &text.as_bytes()[..text.len().min(most)];
        self.bytes[self.used..][..text.len()].copy_from_slice(text);
        self.used += text.len();
        Ok(())
    }
}

/// In the order of [`Why`].
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
        // SAFETY: it is null, or a site that lives as long as the program; its names are constants of the program.
        let (site, function, file) = unsafe {
            let Some(site) = record.site.load(Relaxed).as_ref() else { continue };
            (site, CStr::from_ptr(site.function), CStr::from_ptr(site.file))
        };
        let get = |count: &AtomicU64| count.load(Relaxed);
        let calls: u64 = record.whys.iter().map(get).sum();
        let mut line = Line { bytes: [0; 512], used: 0 };
        let (file, function) = (file.to_str().unwrap_or("?"), function.to_str().unwrap_or("?"));
        let _ = write!(line, "spm: {file}:{} {function}: {calls} calls", site.line);
        for (word, count) in WORDS.iter().zip(&record.whys).filter(|(_, count)| get(count) > 0) {
            let _ = write!(line, ", {} {word}", get(count));
        }
        let (moved, refused, ns) = (get(&record.moved), get(&record.refused), get(&record.ns));
        if moved + refused > 0 {
            let us = ns / 1000;
            let _ = write!(line, "; {moved} pages moved in {us} us, {refused} not");
        }
        line.bytes[line.used] = b'\n';
        sys::say(&line.bytes[..=line.used]);
    }
}
