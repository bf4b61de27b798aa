//! Keeps threads on the node to which their pages are moved, with `SPM_LOCK=1`.
//!
//! A thread is bound to all PUs of the node that it may run on, and only once it has pages that are worth having there, whether they are
//! to move or not. No more threads are bound to a node than it has PUs, so none waits for another one that is bound: where too many
//! are, the next ones go to a node that has room, before their pages do. Where none has, a thread stays unbound. That ends with the thread. The first thread of a program is never bound: those that it creates would
//! inherit that.

use crate::nodes::{MOST, Node, Nodes};
use crate::sys;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Threads that are bound to each node.
static BOUND: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// A thread's value where it is not to be bound; of one that is bound it is its node with one added, and 0 before that is decided.
const NEVER: usize = usize::MAX;

/// Binds this thread, once, to the node where it runs or to another one that has room. The node where it is then.
///
/// Not if system calls are filtered by now, as `is_filtered` says.
pub fn settle(
    nodes: &Nodes,
    key: sys::Key,
    here: Node,
    is_filtered: impl FnOnce() -> bool,
) -> Node {
    if key.value() > 0 || is_filtered() {
        return here;
    }
    let _errno = sys::KeepsErrno::new();
    #[allow(clippy::cast_possible_truncation)] // below MOST
    let others = (0..MOST as Node).filter(|node| *node != here);
    let mut all = core::iter::once(here).chain(others);
    let node = if sys::is_first_thread() { None } else { all.find(|node| bind(nodes, *node)) };
    key.set(node.map_or(NEVER, |node| usize::from(node) + 1));
    node.unwrap_or(here)
}

fn bind(nodes: &Nodes, node: Node) -> bool {
    let Some(bound) = BOUND.get(usize::from(node)) else { return false };
    let has_room = |threads: u64| (threads < nodes.pus_of(node)).then_some(threads + 1);
    if bound.fetch_update(Relaxed, Relaxed, has_room).is_err() {
        return false;
    }
    let is_bound = sys::keep_pus(|pu| nodes.of(pu) == Some(node));
    if !is_bound {
        bound.fetch_sub(1, Relaxed);
    }
    is_bound
}

/// A bound thread has ended.
pub extern "C" fn ended(value: *mut core::ffi::c_void) {
    if let Some(bound) = (value as usize).checked_sub(1).and_then(|node| BOUND.get(node)) {
        bound.fetch_sub(1, Relaxed);
    }
}
