//! Set-up of the runtime at the first call.

#![allow(unsafe_code)] // a value that is written once

use crate::budget::MoveBudget;
use crate::costs::{MemoryCosts, PublishedRule};
use crate::nodes::{MOST, MOST_PUS, NodeTable};
use crate::{lock, sites, sys};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Configuration and state of the runtime.
pub struct Running {
    pub nodes: NodeTable,
    pub costs: MemoryCosts,
    /// Transparent huge pages are enabled.
    pub has_huge: bool,
    /// Key of each thread's bound node; `None` without `SPM_LOCK=1`.
    pub lock: Option<sys::ThreadKey>,
    /// Time of the set-up; `moved_ns` is the time spent on moving since then.
    pub began_ns: u64,
    pub moved_ns: AtomicU64,
    /// Budgets by PU.
    pub budgets: [MoveBudget; MOST_PUS],
}

/// Buffers for files and paths. Static, since the first call may be in a signal handler with little
/// stack.
struct Scratch {
    text: [u8; 4096],
    path: PathBuffer,
}

struct Once<T>(UnsafeCell<T>);

// SAFETY: it is written once, by the thread that has set `STATE` to `BEGINS`, before `STATE` says
// that it is there.
unsafe impl<T> Sync for Once<T> {}

static SCRATCH: Once<Scratch> =
    Once(UnsafeCell::new(Scratch { text: [0; 4096], path: PathBuffer([0; 512]) }));

static RUNNING: Once<Running> = Once(UnsafeCell::new(Running {
    nodes: NodeTable::none(),
    costs: MemoryCosts::ASSUMED,
    has_huge: false,
    lock: None,
    began_ns: 0,
    moved_ns: AtomicU64::new(0),
    budgets: [const { MoveBudget::unspent() }; MOST_PUS],
}));

/// 0 once the runtime is known to have nothing to do. Compiled programs read this variable before
/// each call, and skip the call if 0.
#[unsafe(no_mangle)]
pub static spm_is_on: AtomicU32 = AtomicU32::new(1);

const NEW: u8 = 0;
const BEGINS: u8 = 1;
const OFF: u8 = 2;
const ON: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(NEW);

/// Largest number of polls for another thread's set-up. Bounded, since this may be a signal handler
/// in the same thread. Chosen.
const MOST_WAITS: u32 = 1_000_000;

/// State of the runtime; `None` if there is nothing to do.
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
        let is_on = unsafe { set_up(&mut *RUNNING.0.get(), &mut *SCRATCH.0.get()) };
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
    // In a forked child the thread that began may not exist. If it does, it sets the state when
    // done.
    let _ = STATE.compare_exchange(BEGINS, OFF, Ordering::Relaxed, Ordering::Relaxed);
    None
}

/// True if the program has installed a seccomp filter since. The runtime is off from then on.
pub fn is_filtered() -> bool {
    let is_filtered = sys::is_filtered();
    if is_filtered {
        STATE.store(OFF, Ordering::Relaxed);
        spm_is_on.store(0, Ordering::Relaxed);
    }
    is_filtered
}

/// Exit handler, also for the unloading of a library with a runtime of its own: threads that end
/// later must not call the key's destructor.
extern "C" fn end() {
    STATE.store(OFF, Ordering::Relaxed);
    // SAFETY: it was written before this was registered.
    if let Some(key) = unsafe { &*RUNNING.0.get() }.lock {
        key.delete();
    }
}

fn is(name: &CStr, value: &[u8]) -> bool {
    sys::variable(name).is_some_and(|it| it.to_bytes() == value)
}

/// Set-up; true if there is anything to do.
fn set_up(running: &mut Running, Scratch { text, path }: &mut Scratch) -> bool {
    if is(c"SPM_STATS", b"1") {
        sites::begin();
    }
    if is(c"SPM", b"off") || sys::is_filtered() {
        return false;
    }
    for node in 0..MOST {
        #[allow(clippy::cast_possible_truncation)] // below MOST
        let node = node as u8;
        let digits = [b'0' + node / 10, b'0' + node % 10];
        let digits = if node < 10 { &digits[1..] } else { &digits };
        let path = path.of(&[b"/sys/devices/system/node/node", digits, b"/cpulist"]);
        running.nodes.add(node, sys::read(path, text));
    }
    if running.nodes.count() < 2 {
        return false;
    }
    running.has_huge = {
        let modes = sys::read(c"/sys/kernel/mm/transparent_hugepage/enabled", text);
        // The mode in use is in brackets.
        !modes.is_empty() && !modes.windows(7).any(|word| word == b"[never]")
    };
    running.costs = running.costs.with(kept(path, text));
    if is(c"SPM_RULE", b"published") {
        // The dissertation's; the article has a tenth of the caches.
        running.costs.published = Some(PublishedRule { caches: 0.2, reuse: 200.0 });
    }
    if is(c"SPM_LOCK", b"1") {
        running.lock = sys::ThreadKey::new(lock::ended);
        sys::at_exit(end);
    }
    running.began_ns = sys::now_ns();
    true
}

/// File kept by `colocate calibrate`, the user's before the system's, or the file `SPM_COSTS`.
fn kept<'a>(path: &mut PathBuffer, into: &'a mut [u8]) -> &'a [u8] {
    if let Some(file) = sys::variable(c"SPM_COSTS") {
        return sys::read(file, into);
    }
    let own = match (sys::variable(c"XDG_STATE_HOME"), sys::variable(c"HOME")) {
        (Some(state), _) => path.of(&[state.to_bytes(), b"/colocate/memory"]),
        (_, Some(home)) => path.of(&[home.to_bytes(), b"/.local/state/colocate/memory"]),
        _ => c"",
    };
    let is_there = !sys::read(own, into).is_empty();
    sys::read(if is_there { own } else { c"/var/lib/colocate/memory" }, into)
}

/// Buffer for a path, without allocation.
struct PathBuffer([u8; 512]);

impl PathBuffer {
    /// Concatenates `parts`; empty if too long.
    fn of(&mut self, parts: &[&[u8]]) -> &CStr {
        let mut used = 0;
        for part in parts {
            // One byte stays for the 0 at the end.
            let end = used + part.len();
            let Some(into) = self.0[..511].get_mut(used..end) else { return c"" };
            into.copy_from_slice(part);
            used = end;
        }
        self.0[used] = 0;
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_by_hand() {
        let mut path = PathBuffer([b'x'; 512]);
        assert_eq!(path.of(&[b"/state/", b"a", b"/memory"]), c"/state/a/memory");
        assert_eq!(path.of(&[b"/b"]), c"/b");
        assert_eq!(path.of(&[&[b'a'; 300], &[b'b'; 211]]).to_bytes().len(), 511);
        assert_eq!(path.of(&[&[b'a'; 300], &[b'b'; 212]]), c"");
    }
}
