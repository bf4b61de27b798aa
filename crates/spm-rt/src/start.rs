//! What is found out once, at the first call.

#![allow(unsafe_code)] // a value that is written once

use crate::costs::{Costs, Published};
use crate::nodes::{MOST, Nodes};
use crate::{lock, sites, sys};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What the runtime goes by.
pub struct Running {
    pub nodes: Nodes,
    pub costs: Costs,
    /// Whether the kernel may use huge pages.
    pub has_huge: bool,
    /// Which node threads are bound to, if they are to be bound.
    pub lock: Option<sys::Key>,
    /// When it began, and how long it has moved pages since.
    pub began_ns: u64,
    pub moved_ns: AtomicU64,
}

struct Once(UnsafeCell<Running>);

// SAFETY: it is written once, before `STATE` says that it is there.
unsafe impl Sync for Once {}

static RUNNING: Once = Once(UnsafeCell::new(Running {
    nodes: Nodes::none(),
    costs: Costs::ASSUMED,
    has_huge: false,
    lock: None,
    began_ns: 0,
    moved_ns: AtomicU64::new(0),
}));

/// Whether there is something to do, as far as is known. Programs read it before each call, and need not call if it is 0.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // a name of C
pub static spm_is_on: AtomicU32 = AtomicU32::new(1);

const NEW: u8 = 0;
const BEGINS: u8 = 1;
const OFF: u8 = 2;
const ON: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(NEW);

/// Another thread is waited for at most so often, as this may be a handler in the same thread. Chosen.
const MOST_WAITS: u32 = 1_000_000;

/// What the runtime goes by; none where there is nothing to do.
#[inline]
pub fn running() -> Option<&'static Running> {
    match STATE.load(Ordering::Acquire) {
        OFF => None,
        // SAFETY: nothing writes to it any more.
        ON => Some(unsafe { &*RUNNING.0.get() }),
        _ => begin(),
    }
}

#[cold]
fn begin() -> Option<&'static Running> {
    let _errno = sys::KeepsErrno::new();
    if STATE.compare_exchange(NEW, BEGINS, Ordering::Acquire, Ordering::Acquire).is_ok() {
        // SAFETY: only one thread comes here, once.
        let is_on = set_up(unsafe { &mut *RUNNING.0.get() });
        STATE.store(if is_on { ON } else { OFF }, Ordering::Release);
        spm_is_on.store(is_on.into(), Ordering::Relaxed);
    }
    for _ in 0..MOST_WAITS {
        match STATE.load(Ordering::Acquire) {
            OFF => return None,
            // SAFETY: nothing writes to it any more.
            ON => return Some(unsafe { &*RUNNING.0.get() }),
            _ => core::hint::spin_loop(),
        }
    }
    // Of a child of fork the thread that began may not be there. Where it is, it sets the state once it is done.
    let _ = STATE.compare_exchange(BEGINS, OFF, Ordering::Relaxed, Ordering::Relaxed);
    None
}

/// Whether the program has set a filter of system calls since. Then there is nothing to do from now on.
pub fn is_filtered() -> bool {
    let is_filtered = sys::is_filtered();
    if is_filtered {
        STATE.store(OFF, Ordering::Relaxed);
        spm_is_on.store(0, Ordering::Relaxed);
    }
    is_filtered
}

/// The program ends, or a library with a runtime of its own is unloaded: threads that end later must not call it.
extern "C" fn end() {
    STATE.store(OFF, Ordering::Relaxed);
    // SAFETY: it was written before this was registered.
    if let Some(key) = unsafe { &*RUNNING.0.get() }.lock {
        key.delete();
    }
}

/// Whether there is anything to do.
fn set_up(running: &mut Running) -> bool {
    let is =
        |name: &CStr, value: &[u8]| sys::variable(name).is_some_and(|it| it.to_bytes() == value);
    if is(c"SPM_STATS", b"1") {
        sites::begin();
    }
    if is(c"SPM", b"off") || sys::is_filtered() {
        return false;
    }
    let mut text = [0; 4096];
    for node in 0..MOST {
        let mut path = Path::new();
        let _ = write!(path, "/sys/devices/system/node/node{node}/cpulist");
        #[allow(clippy::cast_possible_truncation)] // below MOST
        running.nodes.add(node as u8, sys::read(path.get(), &mut text));
    }
    if running.nodes.count() < 2 {
        return false;
    }
    running.has_huge = {
        let modes = sys::read(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut text);
        !modes.is_empty() && !modes.windows(7).any(|word| word == b"[never]")
    };
    running.costs = running.costs.with(kept(&mut text));
    if is(c"SPM_RULE", b"published") {
        // The dissertation's; the article has a tenth of the caches.
        running.costs.published = Some(Published { caches: 0.2, reuse: 200.0 });
    }
    if is(c"SPM_LOCK", b"1") {
        running.lock = sys::Key::new(lock::ended);
        sys::at_exit(end);
    }
    running.began_ns = sys::now_ns();
    true
}

/// What `colocate calibrate` has kept, its user's first, or the file that `SPM_COSTS` names.
fn kept(into: &mut [u8]) -> &[u8] {
    let value = |name: &CStr| sys::variable(name).and_then(|value| value.to_str().ok());
    if let Some(file) = sys::variable(c"SPM_COSTS") {
        return sys::read(file, into);
    }
    let mut path = Path::new();
    let written = match (value(c"XDG_STATE_HOME"), value(c"HOME")) {
        (Some(state), _) => write!(path, "{state}/colocate/memory"),
        (_, Some(home)) => write!(path, "{home}/.local/state/colocate/memory"),
        _ => Err(core::fmt::Error),
    };
    let is_there = written.is_ok() && !sys::read(path.get(), into).is_empty();
    sys::read(if is_there { path.get() } else { c"/var/lib/colocate/memory" }, into)
}

/// A path that is built without allocating.
struct Path {
    bytes: [u8; 512],
    used: usize,
}

impl Path {
    const fn new() -> Self {
        Self { bytes: [0; 512], used: 0 }
    }

    fn get(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // One byte stays 0.
        let end = self.used + text.len();
        let into =
            self.bytes.get_mut(self.used..end).filter(|_| end < 512).ok_or(core::fmt::Error)?;
        into.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}
