//! Circular list of `load-dep`.

use crate::kernel::ListSize;
use std::ptr;

/// An element: a pointer on 128 bytes of its own, so that a fetched pair of lines serves one step.
#[repr(align(128))]
pub struct ListNode {
    next: *const ListNode,
}

/// A circular list in the order of addresses, as in the paper: the last node points to the first.
pub struct List {
    nodes: Box<[ListNode]>,
    at: *const ListNode,
}

// SAFETY: the pointers lead only into `nodes`, which moves along with them.
unsafe impl Send for List {}

impl List {
    /// Builds a list of `size` and writes every page.
    pub fn new(size: ListSize) -> Self {
        let count = size.kib() as usize * 1024 / size_of::<ListNode>();
        let mut nodes: Box<[ListNode]> =
            (0..count).map(|_| ListNode { next: ptr::null() }).collect();
        let addresses: Vec<*const ListNode> = nodes.iter().map(ptr::from_ref).collect();
        for (node, &next) in nodes.iter_mut().zip(addresses.iter().cycle().skip(1)) {
            node.next = next;
        }
        Self { at: nodes.as_ptr(), nodes }
    }

    /// Current node of the traversal.
    pub fn at(&self) -> *const ListNode {
        self.at
    }

    /// Sets the current node after a traversal.
    ///
    /// # Panics
    /// If `at` is not in this list.
    pub fn set_at(&mut self, at: *const ListNode) {
        assert!(self.nodes.as_ptr_range().contains(&at), "the traversal left its list");
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traversal_visits_every_node_once_and_closes() {
        let list = List::new(ListSize::from_kib(2).unwrap());
        assert_eq!(list.nodes.len(), 16);
        let mut at = list.at();
        for node in &list.nodes {
            assert_eq!(at, ptr::from_ref(node));
            assert!(at.addr().is_multiple_of(128));
            // SAFETY: every `next` points to a node of the list, which is alive.
            at = unsafe { (*at).next };
        }
        assert_eq!(at, list.at());
    }
}
