//! Exact minimum-weight perfect matching on a complete graph.
//!
//! # Problem
//! Pair up an even number of vertices so that the costs of the pairs add up to the least possible.
//! # Approach
//! Edmonds' primal-dual method (Edmonds, "Maximum matching and a polyhedron with 0,1-vertices",
//! 1965), in the dense form of Gabow and Galil (Galil, "Efficient algorithms for finding maximum
//! matching in graphs", ACM Computing Surveys 18, 1986): one search from each vertex that is still
//! unmatched, `O(n²)` at worst. A search ends at the nearest unmatched vertex, so good prices to
//! start with make it short.
//! # Terms
//! - *Price* `y(v)` of a vertex, and `z(B) ≥ 0` of a *blossom*, an odd set of vertices that the
//!   search treats as one vertex. In half steps of the costs, so that every price is an integer:
//!   only a step between two even nodes of a tree is halved, and their prices differ by whole
//!   steps.
//! - *Slack* of a pair: `2·cost(u, v)` less the prices of `u` and `v` and of the blossoms that hold
//!   one of the two. Never negative; a pair of slack 0 is *tight*. Only tight pairs are matched.
//! - *Node*: an outermost blossom, or a vertex in no blossom. `Y(v)`: the price of `v` and of all
//!   blossoms around it, so that the slack between two nodes is `2·cost(u, v) − Y(u) − Y(v)`.
//! - *Base* of a node: its only vertex that is not matched within the node.
//! - *Even* node: reached from the root over an even number of tight pairs; *odd* node: over an odd
//!   number; *free* node: not reached.
//! # Algorithm
//! Grow a tree from an unmatched node. Raise the prices of even nodes and lower the prices of odd
//! nodes by the same amount until
//! 1. a free node has a tight pair with an even node: a matched free node becomes odd and its
//!    partner even; with an unmatched free node the path is augmented, and two more nodes are
//!    matched;
//! 2. two even nodes have a tight pair: the circle closes and becomes a blossom;
//! 3. the price of an odd blossom reaches 0: the blossom is opened.
//!
//! Least slacks are kept for each vertex that is not even, and for each pair of even nodes. As
//! prices change, these shift by the same amount for all candidates, so no comparison is made
//! twice. `O(n³)` time and `O(n²)` memory.
//! # Properties
//! - **Optimal**: as cheap as the cheapest of all matchings. -> test `optimal`
//! - **Proved**: the prices are a proof: no slack is negative and they add up to the cost.
//!   -> test `proved`

mod circle;
mod nodes;
mod start;

use super::PairCosts;
use nodes::Nodes;
use start::TO_SEARCH;
pub(super) use start::{TO_PROVE, prices};

/// Partners of the vertices in a cheapest perfect matching. `near`, any perfect matching, is where
/// the search starts: the closer to the cheapest, the shorter the search. A cheapest one is kept as
/// it is where prices prove it.
pub(super) fn cheapest(costs: &PairCosts, near: &[usize]) -> Vec<usize> {
    BlossomSearch::solved(costs, near).nodes.mate
}

/// Marker for "no vertex" and "no node".
const NONE: usize = usize::MAX;
/// Slack of a pair that does not exist.
const NEVER: i64 = i64::MAX / 4;

/// Label of a node in the present search, see the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Free,
    Even,
    Odd,
}

impl Label {
    /// Direction in which prices of vertices with this label change.
    const fn sign(self) -> i64 {
        match self {
            Self::Free => 0,
            Self::Even => 1,
            Self::Odd => -1,
        }
    }
}

/// Event at which the search stops changing prices.
#[derive(Clone, Copy, Debug)]
enum SearchEvent {
    /// A pair of this free vertex with an even vertex becomes tight.
    Reach(usize),
    /// A pair of the even node with this base and another even node becomes tight.
    Meet(usize),
    /// The price of this odd blossom reaches 0.
    Open(usize),
}

/// The pair of least slack between two even nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Bridge {
    /// Number of the search that found the pair; a bridge of an earlier search is void.
    search: u32,
    from: u32,
    to: u32,
}

/// State of the primal-dual search, see the module documentation.
struct BlossomSearch<'a> {
    costs: &'a PairCosts,
    nodes: Nodes,
    /// Rise of even and fall of odd vertices' prices in the present search, in half steps.
    raised: i64,
    /// `Y(v)`, in half steps, minus `raised` for an even vertex, plus `raised` for an odd vertex.
    price: Vec<i64>,
    /// By vertex: the label of its node.
    vertex_label: Vec<Label>,
    /// By vertex that is not even: the even vertex of least slack.
    nearest: Vec<usize>,
    /// Slack of the pair with `nearest`, in half steps; of a free vertex plus `raised`. Price
    /// changes leave the slack between an odd and an even vertex as it is.
    nearest_slack: Vec<i64>,
    /// Vertices with a label or a nearest vertex in the present search.
    touched: Vec<usize>,
    is_touched: Vec<bool>,
    /// Bases of even nodes.
    evens: Vec<usize>,
    /// Between even nodes of bases `a` and `b`, at `a * n + b`: the pair of least slack, the vertex
    /// in the node of `a` first.
    bridge: Vec<Bridge>,
    /// Number of searches so far.
    searches: u32,
    /// By base of an even node: the base of the even node of least slack.
    closest: Vec<usize>,
    /// Slack of the bridge to `closest` plus twice `raised`, in half steps.
    closest_slack: Vec<i64>,
}

impl<'a> BlossomSearch<'a> {
    /// Searches to the end from the prices and the tight pairs of the matching `near`.
    fn solved(costs: &'a PairCosts, near: &[usize]) -> Self {
        let mut search = Self::new(costs, prices(costs, near, TO_SEARCH));
        search.match_tight_pairs(near);
        for root in 0..search.nodes.n {
            if search.nodes.mate[root] == NONE {
                search.settle();
                // Voids all bridges without clearing n² cells.
                search.searches += 1;
                search.make_even(search.nodes.outer[root]);
                while !search.step() {}
            }
        }
        search.settle();
        search
    }

    fn new(costs: &'a PairCosts, price: Vec<i64>) -> Self {
        let n = costs.vertices();
        Self {
            costs,
            nodes: Nodes::new(n),
            raised: 0,
            price,
            vertex_label: vec![Label::Free; n],
            nearest: vec![NONE; n],
            nearest_slack: vec![NEVER; n],
            touched: Vec::new(),
            is_touched: vec![false; n],
            evens: Vec::new(),
            bridge: vec![Bridge::default(); n * n],
            searches: 0,
            closest: vec![NONE; n],
            closest_slack: vec![NEVER; n],
        }
    }

    /// Slack of a pair of two different outermost nodes, in half steps.
    fn slack(&self, u: usize, v: usize) -> i64 {
        2 * self.costs.of(u, v) - self.price_now(u) - self.price_now(v)
    }

    /// `Y(v)`, in half steps.
    fn price_now(&self, v: usize) -> i64 {
        self.price[v] + self.vertex_label[v].sign() * self.raised
    }

    /// Ends a search: writes `raised` into the prices and frees all vertices.
    fn settle(&mut self) {
        for &node in &self.nodes.shells {
            let sign = self.label_of(node).sign();
            self.nodes.blossoms[node - self.nodes.n].price += sign * self.raised;
        }
        while let Some(v) = self.touched.pop() {
            self.price[v] = self.price_now(v);
            self.is_touched[v] = false;
            self.vertex_label[v] = Label::Free;
            self.nearest_slack[v] = NEVER;
        }
        self.raised = 0;
        self.evens.clear();
    }

    /// Changes prices until the next event and handles the event. True if two nodes were matched.
    fn step(&mut self) -> bool {
        let (by, event) = self.next_event();
        self.raised += by.max(0);
        match event {
            SearchEvent::Reach(v) => return self.reach(v),
            SearchEvent::Open(node) => self.open(node),
            SearchEvent::Meet(base) => {
                let bridge = self.bridge_of(base, self.closest[base]);
                let (u, v) = bridge.expect("even nodes that meet have a pair");
                self.close(u, v);
            }
        }
        false
    }

    /// The next event and the change of prices until then, in half steps.
    fn next_event(&self) -> (i64, SearchEvent) {
        let mut next = (NEVER, SearchEvent::Reach(NONE));
        for &v in &self.touched {
            let at = self.nearest_slack[v];
            if at < next.0 && self.vertex_label[v] == Label::Free {
                next = (at, SearchEvent::Reach(v));
            }
        }
        for &base in &self.evens {
            // The slack shrinks from both sides; slacks of two even vertices are whole steps, so
            // half is whole.
            let at = self.closest_slack[base] / 2;
            if at < next.0 {
                next = (at, SearchEvent::Meet(base));
            }
        }
        for &node in &self.nodes.shells {
            let price = self.nodes.blossoms[node - self.nodes.n].price;
            if price < next.0 && self.label_of(node) == Label::Odd {
                next = (price, SearchEvent::Open(node));
            }
        }
        (next.0 - self.raised, next.1)
    }

    /// Label of an outermost node, the same as the label of its vertices.
    fn label_of(&self, node: usize) -> Label {
        self.vertex_label[self.nodes.base[node]]
    }

    /// Labels an outermost node. `vertices` are all its vertices.
    fn set_label(&mut self, node: usize, label: Label, vertices: &[usize]) {
        // The change of prices so far belongs to the old label: what is stored shifts by it.
        let shift = (self.label_of(node).sign() - label.sign()) * self.raised;
        if node >= self.nodes.n {
            self.nodes.blossoms[node - self.nodes.n].price += shift;
        }
        for &v in vertices {
            self.price[v] += shift;
            match (self.vertex_label[v], label) {
                (Label::Free, Label::Odd) => self.nearest_slack[v] -= self.raised,
                (Label::Odd, Label::Free) => self.nearest_slack[v] += self.raised,
                _ => {}
            }
            self.vertex_label[v] = label;
            self.touch(v);
        }
    }

    /// Lists a vertex for [`Self::settle`].
    fn touch(&mut self, v: usize) {
        if !std::mem::replace(&mut self.is_touched[v], true) {
            self.touched.push(v);
        }
    }

    /// Labels a node even that was free or odd, and considers the pairs of its vertices.
    fn make_even(&mut self, node: usize) {
        let vertices = self.nodes.vertices_of(node);
        let base = self.nodes.base[node];
        self.set_label(node, Label::Even, &vertices);
        self.closest[base] = NONE;
        self.closest_slack[base] = NEVER;
        self.evens.push(base);
        for u in vertices {
            self.look_from(u, base);
        }
    }

    /// Considers all pairs of the vertex `u`, which became even, in the node of base `base`. `u` may
    /// become the nearest of a vertex that is not even, or give a better bridge to its node.
    fn look_from(&mut self, u: usize, base: usize) {
        let costs = self.costs;
        let own = self.price_now(u);
        for (v, cost) in costs.row(u).iter().enumerate() {
            let label = self.vertex_label[v];
            let slack = 2 * cost - own - (self.price[v] + label.sign() * self.raised);
            if label == Label::Even {
                let other = self.nodes.base[self.nodes.outer[v]];
                if other != base && slack < self.bridge_slack(base, other) {
                    self.set_bridge(base, other, Some((u, v)));
                }
                continue;
            }
            let kept = if label == Label::Free { slack + self.raised } else { slack };
            if kept < self.nearest_slack[v] {
                self.nearest_slack[v] = kept;
                self.nearest[v] = u;
                self.touch(v);
            }
        }
    }

    /// The pair of least slack between the even nodes of bases `a` and `b`, as far as considered.
    fn bridge_of(&self, a: usize, b: usize) -> Option<(usize, usize)> {
        let Bridge { search, from, to } = self.bridge[a * self.nodes.n + b];
        (search == self.searches).then_some((from as usize, to as usize))
    }

    /// Slack of the bridge, in half steps; [`NEVER`] without a bridge.
    fn bridge_slack(&self, a: usize, b: usize) -> i64 {
        self.bridge_of(a, b).map_or(NEVER, |(u, v)| self.slack(u, v))
    }

    /// Sets the pair of least slack between two even nodes; `None` if no pair is known.
    #[allow(clippy::cast_possible_truncation)] // a table of 2^64 costs does not exist
    fn set_bridge(&mut self, a: usize, b: usize, pair: Option<(usize, usize)>) {
        let Some((u, v)) = pair else {
            // Searches are numbered from 1, so 0 voids the bridge.
            self.bridge[a * self.nodes.n + b].search = 0;
            self.bridge[b * self.nodes.n + a].search = 0;
            return;
        };
        // Numbers fit: `bridge` itself has `n * n` entries.
        let search = self.searches;
        let from = u as u32;
        let to = v as u32;
        self.bridge[a * self.nodes.n + b] = Bridge { search, from, to };
        self.bridge[b * self.nodes.n + a] = Bridge { search, from: to, to: from };
        // Both nodes are even, so each change of prices lowers the slack twice.
        let slack = self.slack(u, v) + 2 * self.raised;
        for (from, to) in [(a, b), (b, a)] {
            if slack < self.closest_slack[from] {
                self.closest_slack[from] = slack;
                self.closest[from] = to;
            }
        }
    }

    /// Extends the tree to the free node of `v`. A matched node becomes odd and its partner even.
    /// An unmatched node is matched, which ends the search; then the result is true.
    fn reach(&mut self, v: usize) -> bool {
        let node = self.nodes.outer[v];
        let partner = self.nodes.mate[self.nodes.base[node]];
        if partner == NONE {
            self.nodes.turn_over(self.nearest[v], v);
            // The node may be a blossom, whose other vertices are matched within.
            self.nodes.rebase(node, v);
            self.nodes.mate[v] = self.nearest[v];
            return true;
        }
        let vertices = self.nodes.vertices_of(node);
        self.set_label(node, Label::Odd, &vertices);
        // The way up for `climb` and `turn_over`.
        self.nodes.entry[node] = (self.nearest[v], v);
        self.make_even(self.nodes.outer[partner]);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    /// Cost of a cheapest perfect matching, by every set of vertices: `O(2^n · n)`.
    fn by_brute_force(costs: &PairCosts) -> i64 {
        let n = costs.vertices();
        let mut cheapest = vec![i64::MAX; 1 << n];
        cheapest[0] = 0;
        // Every set is reached by pairing the first vertex outside a smaller one.
        for set in 0..cheapest.len() {
            let first = (!set).trailing_zeros() as usize;
            if cheapest[set] == i64::MAX || first >= n {
                continue;
            }
            for other in (first + 1..n).filter(|other| set & 1 << other == 0) {
                let with = set | 1 << first | 1 << other;
                cheapest[with] = cheapest[with].min(cheapest[set] + costs.of(first, other));
            }
        }
        cheapest[cheapest.len() - 1]
    }

    /// The blossoms around a vertex.
    fn around<'a>(search: &'a BlossomSearch<'_>, v: usize) -> impl Iterator<Item = usize> + 'a {
        let parent = |node: usize| Some(search.nodes.parent[node]).filter(|&parent| parent != NONE);
        std::iter::successors(parent(v), move |&node| parent(node))
    }

    /// Prices of the blossoms around both vertices.
    fn around_both(search: &BlossomSearch<'_>, u: usize, v: usize) -> i64 {
        let common = around(search, u).filter(|&node| around(search, v).any(|it| it == node));
        common.map(|node| search.nodes.blossoms[node - search.nodes.n].price).sum()
    }

    /// Checks the proof that the prices give, and returns the matching's cost. The search starts
    /// from pairs of neighbours.
    fn check_proof(costs: &PairCosts) -> i64 {
        let near: Vec<usize> = (0..costs.vertices()).map(|v| v ^ 1).collect();
        let search = BlossomSearch::solved(costs, &near);
        let mut bound: i64 = search.nodes.blossoms.iter().map(|blossom| blossom.price).sum();
        for u in 0..search.nodes.n {
            assert_eq!(search.nodes.mate[search.nodes.mate[u]], u);
            bound += search.price[u] - around_both(&search, u, u);
            for v in 0..u {
                let slack = search.slack(u, v) + 2 * around_both(&search, u, v);
                assert!(slack >= 0, "slack of {u} and {v} is {slack}");
                assert!(search.nodes.mate[u] != v || slack == 0, "{u} is with {v}, slack {slack}");
            }
        }
        assert!(search.nodes.blossoms.iter().all(|blossom| blossom.price >= 0));
        let cost = costs.total(&search.nodes.mate);
        assert_eq!(bound, 2 * cost);
        cost
    }

    fn random_costs(n: usize, below: usize, seed: u64) -> PairCosts {
        let mut rng = SplitMix64::new(seed);
        PairCosts::new(n, |_, _| i64::try_from(rng.below(below)).unwrap())
    }

    /// Two triangles, 0 1 2 and 3 4 5, of cheap pairs: one dear pair must join them.
    #[test]
    fn two_triangles() {
        let costs = PairCosts::new(6, |a, b| match (a / 3 == b / 3, a, b) {
            (true, ..) => 1,
            (false, 2, 3) => 50,
            _ => 100,
        });
        assert_eq!(cheapest(&costs, &[3, 4, 5, 0, 1, 2]), [1, 0, 3, 2, 5, 4]);
    }

    /// Few different costs, so that ties and nested blossoms are frequent, and many.
    #[test]
    fn optimal() {
        for half in 0..=5 {
            for seed in 0..600 {
                let below = [2, 5, 40, 1_000_000][usize::try_from(seed % 4).unwrap()];
                let costs = random_costs(2 * half, below, seed);
                assert_eq!(check_proof(&costs), by_brute_force(&costs), "{half} pairs, {seed}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn proved(half in 0_usize..=40, below in prop_oneof![2_usize..9, 10_usize..100_000], seed: u64) {
            check_proof(&random_costs(2 * half, below, seed));
        }

        /// Prices to start from are feasible, so that their sum is a bound.
        #[test]
        fn feasible(half in 0_usize..=20, below in 1_usize..1 << 40, seed: u64) {
            let costs = random_costs(2 * half, below, seed);
            let near: Vec<usize> = (0..2 * half).map(|v| v ^ 1).collect();
            let prices = prices(&costs, &near, TO_PROVE);
            for (v, u) in (0..2 * half).flat_map(|v| (0..v).map(move |u| (v, u))) {
                prop_assert!(prices[v] + prices[u] <= 2 * costs.of(v, u));
            }
        }
    }
}
