//! Blossoms: formed from a circle of nodes, opened, and matched within.

use super::{Blossom, Label, NEVER, NONE, Search};

impl Search<'_> {
    /// Makes a blossom of the circle closed by the pair of the even vertices `u` and `v`: from the
    /// lowest node above both down to `u`, over to `v` and up again.
    pub(super) fn close(&mut self, u: usize, v: usize) {
        let ancestor = self.common_ancestor(self.outer[u], self.outer[v]);
        let mut circle = vec![ancestor];
        let mut joints = Vec::new();
        // Reversed below: `climb` walks up, and the circle begins at the top.
        let (nodes, up) = self.climb(self.outer[u], ancestor);
        circle.extend(nodes.into_iter().rev());
        joints.extend(up.into_iter().rev().map(|(lower, upper)| (upper, lower)));
        joints.push((u, v));
        let (nodes, up) = self.climb(self.outer[v], ancestor);
        circle.extend(nodes);
        joints.extend(up);
        let odds: Vec<usize> =
            circle.iter().copied().filter(|&node| self.label_of(node) == Label::Odd).collect();
        let evens: Vec<usize> = circle
            .iter()
            .filter(|&&node| self.label_of(node) == Label::Even)
            .map(|&node| self.base[node])
            .collect();
        // Vertices of odd nodes become even, so their pairs are new candidates.
        let mut fresh = Vec::new();
        for odd in odds {
            let vertices = self.vertices_of(odd);
            self.set_label(odd, Label::Even, &vertices);
            fresh.extend(vertices);
        }
        let node = self.add_blossom(circle, joints);
        // Before `look_around`, which compares with the bridges of the new node.
        self.join_bridges(self.base[node], &evens);
        for v in fresh {
            self.look_around(v);
        }
    }

    /// Adds an even blossom, the parts of which are even. Returns its node.
    fn add_blossom(&mut self, circle: Vec<usize>, joints: Vec<(usize, usize)>) -> usize {
        let base = self.base[circle[0]];
        // All nodes of the circle are even; their prices stay what they are from now on.
        for &part in circle.iter().filter(|&&part| part >= self.n) {
            self.blossoms[part - self.n].price += self.raised;
        }
        // The price is 0 now, and rises with `raised` from here on.
        let blossom = Blossom { circle, joints, price: -self.raised };
        let node = if let Some(node) = self.unused.pop() {
            self.blossoms[node - self.n] = blossom;
            node
        } else {
            self.blossoms.push(blossom);
            self.parent.push(NONE);
            self.base.push(NONE);
            self.entry.push((NONE, NONE));
            self.seen.push(0);
            self.n + self.blossoms.len() - 1
        };
        self.base[node] = base;
        self.parent[node] = NONE;
        for at in 0..self.blossoms[node - self.n].circle.len() {
            let part = self.blossoms[node - self.n].circle[at];
            self.parent[part] = node;
        }
        for v in self.vertices_of(node) {
            self.outer[v] = node;
        }
        self.shells.retain(|&shell| self.parent[shell] == NONE);
        self.shells.push(node);
        node
    }

    /// Merges the bridges of the even nodes of bases `parts` into those of the blossom of base
    /// `base`.
    fn join_bridges(&mut self, base: usize, parts: &[usize]) {
        // `seen` marks the parts; marks of earlier walks differ.
        self.walk += 1;
        for &part in parts {
            self.seen[part] = self.walk;
        }
        self.evens.retain(|&even| self.seen[even] != self.walk);
        self.closest[base] = NONE;
        self.closest_slack[base] = NEVER;
        for at in 0..self.evens.len() {
            let other = self.evens[at];
            let slacks = parts.iter().map(|&part| (self.bridge_slack(part, other), part));
            let (slack, best) = slacks.min().expect("a circle has even nodes");
            let pair = self.bridge_of(best, other).filter(|_| slack < NEVER);
            // The part no longer exists as a node of its own.
            if self.closest[other] != NONE && self.seen[self.closest[other]] == self.walk {
                self.closest[other] = base;
            }
            self.set_bridge(base, other, pair);
        }
        self.evens.push(base);
    }

    /// Opens an odd blossom of price 0. The parts between its entry and its base stay in the tree;
    /// the rest become free.
    pub(super) fn open(&mut self, node: usize) {
        let Blossom { circle, joints, .. } = self.take_blossom(node);
        let (upper, lower) = self.entry[node];
        let reached = circle.iter().position(|&part| part == self.outer[lower]).expect("a part");
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
                let vertices = self.vertices_of(circle[at]);
                self.set_label(circle[at], Label::Odd, &vertices);
                self.entry[circle[at]] = entry;
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

    /// Dissolves an outermost blossom; its parts become free nodes.
    fn take_blossom(&mut self, node: usize) -> Blossom {
        self.shells.retain(|&shell| shell != node);
        self.unused.push(node);
        let vertices = self.vertices_of(node);
        self.set_label(node, Label::Free, &vertices);
        let empty = Blossom { circle: Vec::new(), joints: Vec::new(), price: 0 };
        let taken = std::mem::replace(&mut self.blossoms[node - self.n], empty);
        for &part in &taken.circle {
            self.parent[part] = NONE;
            if part >= self.n {
                self.shells.push(part);
            }
            for v in self.vertices_of(part) {
                self.outer[v] = part;
            }
        }
        taken
    }

    /// Makes `vertex` the base of `node`, and matches the other vertices of `node` with each other.
    pub(super) fn rebase(&mut self, node: usize, vertex: usize) {
        self.base[node] = vertex;
        let Some(blossom) = node.checked_sub(self.n) else { return };
        let mut part = vertex;
        while self.parent[part] != node {
            part = self.parent[part];
        }
        let circle = &mut self.blossoms[blossom];
        let at = circle.circle.iter().position(|&other| other == part).expect("a part");
        // The part with the base comes first.
        circle.circle.rotate_left(at);
        circle.joints.rotate_left(at);
        self.rebase(part, vertex);
        // Joints at odd places are matched; the first part, with the base, is left.
        for at in (1..self.blossoms[blossom].circle.len()).step_by(2) {
            let Blossom { circle, joints, .. } = &self.blossoms[blossom];
            let (u, v) = joints[at];
            let left = circle[at];
            let right = circle[at + 1];
            self.rebase(left, u);
            self.rebase(right, v);
            self.mate[u] = v;
            self.mate[v] = u;
        }
    }
}
