//! Exchange of partners between pairs of a matching.

use super::Costs;

/// Exchanges partners between two pairs as long as an exchange lowers the cost.
pub(super) fn exchange(costs: &Costs, mate: &mut [usize]) {
    let mut exchanging = Exchanging::new(costs, mate);
    while exchanging.pass() {}
}

/// State of the exchange: passes over all pairs of pairs. Two pairs that did not change in the
/// pass before are skipped, because no exchange between them helps.
struct Exchanging<'a> {
    costs: &'a Costs,
    mate: &'a mut [usize],
    /// Lower vertex of each pair, ascending.
    lower: Vec<usize>,
    /// Cost of the pair of each vertex, in steps. Valid for the lower vertex of a pair.
    own: Vec<i64>,
    /// By vertex: whether its pair changed in the pass before.
    before: Vec<bool>,
    /// By vertex: whether its pair has changed in this pass.
    now: Vec<bool>,
}

impl<'a> Exchanging<'a> {
    fn new(costs: &'a Costs, mate: &'a mut [usize]) -> Self {
        let n = mate.len();
        let lower = (0..n).filter(|&v| v < mate[v]).collect();
        let own = mate.iter().enumerate().map(|(v, &m)| costs.of(v, m)).collect();
        Self { costs, mate, lower, own, before: vec![true; n], now: vec![false; n] }
    }

    /// One pass over all pairs of pairs. True if an exchange lowered the cost.
    fn pass(&mut self) -> bool {
        // `with_later` changes `lower`, so the loop cannot iterate over it.
        let mut first = 0;
        while let Some(&a) = self.lower.get(first) {
            self.with_later(first, a);
            first += 1;
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.fill(false);
        self.before.contains(&true)
    }

    /// Exchanges between the pair of `a`, which is `lower[first]`, and all later pairs.
    fn with_later(&mut self, first: usize, a: usize) {
        let costs = self.costs;
        let mut next = first + 1;
        let mut is_new = self.before[a] || self.now[a];
        let row_a = costs.row(a);
        let mut row_b = costs.row(self.mate[a]);
        while let Some(&c) = self.lower.get(next) {
            next += 1;
            if !(is_new || self.before[c] || self.now[c]) {
                continue;
            }
            let d = self.mate[c];
            let now = self.own[a] + self.own[c];
            let across = row_a[c] + row_b[d];
            let over = row_a[d] + row_b[c];
            if now <= across && now <= over {
                continue;
            }
            self.exchange_two(a, c, across <= over);
            is_new = true;
            row_b = costs.row(self.mate[a]);
            // `lower` has changed: continue after `c`.
            next = self.lower.partition_point(|&lower| lower <= c);
        }
    }

    /// Replaces the pairs of the lower vertices `a` and `c`. `a` is paired with `c` if `across`,
    /// else with the partner of `c`. The two remaining vertices become the second pair.
    fn exchange_two(&mut self, a: usize, c: usize, across: bool) {
        let b = self.mate[a];
        let d = self.mate[c];
        let (with_a, with_b) = if across { (c, d) } else { (d, c) };
        for (one, other) in [(a, with_a), (b, with_b)] {
            self.mate[one] = other;
            self.mate[other] = one;
            self.now[one] = true;
            self.now[other] = true;
            self.own[one.min(other)] = self.costs.of(one, other);
        }
        // `a` stays a lower vertex; `c` makes way for the lower vertex of the second pair.
        let gone = self.lower.partition_point(|&lower| lower < c);
        self.lower.remove(gone);
        let new = b.min(with_b);
        let place = self.lower.partition_point(|&lower| lower < new);
        self.lower.insert(place, new);
    }
}
