//! Blossoms: formed from a circle of nodes, and opened.

use super::nodes::Blossom;
use super::{BlossomSearch, Label, NEVER, NONE};

impl BlossomSearch<'_> {
    /// Makes a blossom of the circle closed by the pair of the even vertices `u` and `v`: from the
    /// lowest node above both down to `u`, over to `v` and up again.
    pub(super) fn close(&mut self, u: usize, v: usize) {
        let ancestor = self.nodes.common_ancestor(self.nodes.outer[u], self.nodes.outer[v]);
        let mut circle = vec![ancestor];
        let mut joints = Vec::new();
        // Reversed below: `climb` walks up, and the circle begins at the top.
        let (nodes, up) = self.nodes.climb(self.nodes.outer[u], ancestor);
        circle.extend(nodes.into_iter().rev());
        joints.extend(up.into_iter().rev().map(|(lower, upper)| (upper, lower)));
        joints.push((u, v));
        let (nodes, up) = self.nodes.climb(self.nodes.outer[v], ancestor);
        circle.extend(nodes);
        joints.extend(up);
        let odds: Vec<usize> =
            circle.iter().copied().filter(|&node| self.label_of(node) == Label::Odd).collect();
        let evens: Vec<usize> = circle
            .iter()
            .filter(|&&node| self.label_of(node) == Label::Even)
            .map(|&node| self.nodes.base[node])
            .collect();
        // Vertices of odd nodes become even, so their pairs are new candidates.
        let mut fresh = Vec::new();
        for odd in odds {
            let vertices = self.nodes.vertices_of(odd);
            self.set_label(odd, Label::Even, &vertices);
            fresh.extend(vertices);
        }
        let node = self.nodes.add(circle, joints, self.raised);
        // Before `look_from`, which compares with the bridges of the new node.
        let base = self.nodes.base[node];
        self.join_bridges(base, &evens);
        for u in fresh {
            self.look_from(u, base);
        }
    }

    /// Merges the bridges of the even nodes of bases `parts` into those of their blossom's base.
    fn join_bridges(&mut self, base: usize, parts: &[usize]) {
        // `seen` marks the parts; marks of earlier walks differ.
        self.nodes.walk += 1;
        for &part in parts {
            self.nodes.seen[part] = self.nodes.walk;
        }
        self.evens.retain(|&even| self.nodes.seen[even] != self.nodes.walk);
        self.closest[base] = NONE;
        self.closest_slack[base] = NEVER;
        for at in 0..self.evens.len() {
            let other = self.evens[at];
            let slacks = parts.iter().map(|&part| (self.bridge_slack(part, other), part));
            let (slack, best) = slacks.min().expect("a circle has even nodes");
            let pair = self.bridge_of(best, other).filter(|_| slack < NEVER);
            // The part no longer exists as a node of its own.
            if self.closest[other] != NONE
                && self.nodes.seen[self.closest[other]] == self.nodes.walk
            {
                self.closest[other] = base;
            }
            self.set_bridge(base, other, pair);
        }
        self.evens.push(base);
    }

    /// Opens an odd blossom of price 0. The parts between its entry and its base stay in the tree;
    /// the rest become free.
    pub(super) fn open(&mut self, node: usize) {
        let vertices = self.nodes.vertices_of(node);
        self.set_label(node, Label::Free, &vertices);
        let Blossom { circle, joints, .. } = self.nodes.take(node);
        let (upper, lower) = self.nodes.entry[node];
        let reached =
            circle.iter().position(|&part| part == self.nodes.outer[lower]).expect("a part");
        let len = circle.len();
        // From the entry to the base in the direction that takes an even number of joints: forth
        // from an odd place, back from an even one. Joints at odd places are matched.
        let steps = if reached % 2 == 1 { len - reached } else { reached };
        let mut entry = (upper, lower);
        let mut turned_even = Vec::new();
        for step in 0..=steps {
            let forth = reached % 2 == 1;
            let at = if forth { (reached + step) % len } else { reached - step };
            if step % 2 == 0 {
                let vertices = self.nodes.vertices_of(circle[at]);
                self.set_label(circle[at], Label::Odd, &vertices);
                self.nodes.entry[circle[at]] = entry;
            } else {
                turned_even.push(circle[at]);
                entry = if forth { joints[at] } else { (joints[at - 1].1, joints[at - 1].0) };
            }
        }
        // Only now: `make_even` considers pairs, which needs the labels of all parts.
        for even in turned_even {
            self.make_even(even);
        }
    }
}
