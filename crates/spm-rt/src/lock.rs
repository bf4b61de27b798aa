//! Binds threads to the node of their pages, with `SPM_LOCK=1`.
//!
//! A thread is bound to all allowed PUs of a node, once it has pages that are worth having there,
//! whether they move or not. No more threads are bound to a node than it has PUs, so bound threads
//! do not wait for each other. When a node is full, the next threads go to a node with room, before
//! their pages do. Without such a node a thread stays unbound. The binding ends with the thread.
//! The first thread of a program is never bound: new threads would inherit its mask.

use crate::nodes::{MOST, NodeNr, NodeTable};
use crate::sys;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of threads bound to each node.
static BOUND: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Key value of a thread that is never bound. A bound thread has node + 1, an undecided thread 0.
const NEVER: usize = usize::MAX;

/// Binds this thread, once, to its current node `here` or to another node with room. Returns the
/// thread's node afterwards.
///
/// Nothing happens while `is_filtered`, since a seccomp filter may forbid the system calls.
pub fn settle(
    nodes: &NodeTable,
    key: sys::ThreadKey,
    here: NodeNr,
    is_filtered: impl FnOnce() -> bool,
) -> NodeNr {
    if key.value() > 0 || is_filtered() {
        return here;
    }
    let _errno = sys::KeepsErrno::new();
    #[allow(clippy::cast_possible_truncation)] // below MOST
    let others = (0..MOST as NodeNr).filter(|node| *node != here);
    let mut all = core::iter::once(here).chain(others);
    let node = if sys::is_first_thread() { None } else { all.find(|node| bind(nodes, *node)) };
    // Above 0, the value of a thread that is not settled yet.
    key.set(node.map_or(NEVER, |node| usize::from(node) + 1));
    node.unwrap_or(here)
}

fn bind(nodes: &NodeTable, node: NodeNr) -> bool {
    let Some(bound) = BOUND.get(usize::from(node)) else { return false };
    let most = nodes.pus_of(node);
    // Counted before the binding, so that concurrent threads stay within the limit.
    let added =
        bound.fetch_update(Relaxed, Relaxed, |threads| (threads < most).then_some(threads + 1));
    if added.is_err() {
        return false;
    }
    let is_bound = sys::keep_pus(|pu| nodes.of(pu) == Some(node));
    if !is_bound {
        bound.fetch_sub(1, Relaxed);
    }
    is_bound
}

/// Destructor of the key: a bound thread has ended.
pub extern "C" fn ended(value: *mut core::ffi::c_void) {
    // `NEVER` is beyond all nodes.
    if let Some(bound) = (value as usize).checked_sub(1).and_then(|node| BOUND.get(node)) {
        bound.fetch_sub(1, Relaxed);
    }
}
