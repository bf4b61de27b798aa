//! Vertices and blossoms with the matched pairs, and walks up the tree.

use super::NONE;

/// A blossom: an odd circle of nodes, each joined to the next by a tight pair.
#[derive(Clone, Debug, Default)]
pub(super) struct Blossom {
    /// Nodes of the circle; the node with the base is first.
    pub circle: Vec<usize>,
    /// `joints[i]`: the tight pair between node `i` and the next node, in this order.
    pub joints: Vec<(usize, usize)>,
    /// `z`, in half steps.
    pub price: i64,
}

/// Nodes and the pairs matched within and between them.
pub(super) struct Nodes {
    /// Number of vertices.
    pub n: usize,
    pub mate: Vec<usize>,
    /// By vertex: its outermost node.
    pub outer: Vec<usize>,
    /// By node (vertices first, then blossoms): the innermost blossom around the node.
    pub parent: Vec<usize>,
    pub base: Vec<usize>,
    /// Blossom `i` is node `n + i`.
    pub blossoms: Vec<Blossom>,
    /// Nodes of freed entries of `blossoms`.
    pub unused: Vec<usize>,
    /// Outermost blossoms.
    pub shells: Vec<usize>,
    /// By odd node: the tight pair over which the node was reached, even vertex first.
    pub entry: Vec<(usize, usize)>,
    /// By node: number of the last walk through the node.
    pub seen: Vec<u32>,
    /// Number of walks so far.
    pub walk: u32,
}

impl Nodes {
    /// `n` unmatched vertices.
    pub fn new(n: usize) -> Self {
        Self {
            n,
            mate: vec![NONE; n],
            outer: (0..n).collect(),
            parent: vec![NONE; n],
            base: (0..n).collect(),
            blossoms: Vec::new(),
            unused: Vec::new(),
            shells: Vec::new(),
            entry: vec![(NONE, NONE); n],
            seen: vec![0; n],
            walk: 0,
        }
    }

    /// All vertices of a node.
    pub fn vertices_of(&self, node: usize) -> Vec<usize> {
        if node < self.n {
            return vec![node];
        }
        let mut found = Vec::new();
        let mut left = vec![node];
        while let Some(node) = left.pop() {
            match node.checked_sub(self.n) {
                None => found.push(node),
                Some(blossom) => left.extend(&self.blossoms[blossom].circle),
            }
        }
        found
    }

    /// Adds an even blossom of even parts; `raised` is that of the search. Returns its node.
    pub fn add(&mut self, circle: Vec<usize>, joints: Vec<(usize, usize)>, raised: i64) -> usize {
        let base = self.base[circle[0]];
        // All nodes of the circle are even; their prices stay what they are from now on.
        for &part in circle.iter().filter(|&&part| part >= self.n) {
            self.blossoms[part - self.n].price += raised;
        }
        // The price is 0 now, and rises with `raised` from here on.
        let blossom = Blossom { circle, joints, price: -raised };
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

    /// Dissolves an outermost blossom; its parts become free nodes.
    pub fn take(&mut self, node: usize) -> Blossom {
        self.shells.retain(|&shell| shell != node);
        self.unused.push(node);
        let taken = std::mem::take(&mut self.blossoms[node - self.n]);
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
    pub fn rebase(&mut self, node: usize, vertex: usize) {
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

    /// The odd node above an even node and the even node above both; `None` at a root.
    fn above(&self, even: usize) -> Option<(usize, usize)> {
        let partner = self.mate[self.base[even]];
        (partner != NONE).then(|| {
            let odd = self.outer[partner];
            (odd, self.outer[self.entry[odd].0])
        })
    }

    /// The lowest even node above both. Walks up from both ends alternately until one walk reaches
    /// a node of the other, so the walk is not longer than the circle.
    pub fn common_ancestor(&mut self, a: usize, b: usize) -> usize {
        // Voids the marks of earlier walks.
        self.walk += 1;
        let mut ends = [Some(a), Some(b)];
        for turn in (0..2).cycle() {
            let Some(node) = ends[turn] else { continue };
            if std::mem::replace(&mut self.seen[node], self.walk) == self.walk {
                return node;
            }
            ends[turn] = self.above(node).map(|(_, even)| even);
        }
        unreachable!("both walks come by the root")
    }

    /// The nodes from `even` up to but without `ancestor`, and the joints up to `ancestor`.
    pub fn climb(&self, even: usize, ancestor: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
        let mut nodes = Vec::new();
        let mut joints = Vec::new();
        let mut at = even;
        while at != ancestor {
            let (odd, next) = self.above(at).expect("the ancestor is above");
            let base = self.base[at];
            nodes.extend([at, odd]);
            let (upper, lower) = self.entry[odd];
            joints.extend([(base, self.mate[base]), (lower, upper)]);
            at = next;
        }
        (nodes, joints)
    }

    /// Augments along the path from the even node of `u` to its root, and matches `u` with `v`.
    pub fn turn_over(&mut self, mut u: usize, mut v: usize) {
        loop {
            let node = self.outer[u];
            let before = self.mate[self.base[node]];
            self.rebase(node, u);
            self.mate[u] = v;
            if before == NONE {
                return;
            }
            let odd = self.outer[before];
            let (upper, lower) = self.entry[odd];
            // The odd node is matched anew at the vertex where the tree entered it.
            self.rebase(odd, lower);
            self.mate[lower] = upper;
            u = upper;
            v = lower;
        }
    }
}
