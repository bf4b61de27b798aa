//! Exchanging partners between pairs.

use super::Costs;

/// Exchanges partners between two pairs as long as that makes them cheaper.
pub(super) fn exchange(costs: &Costs, mate: &mut [usize]) {
    let mut exchanging = Exchanging::new(costs, mate);
    while exchanging.pass() {}
}

/// Passes over all pairs of pairs. Two that are as they were in the pass before have nothing to exchange.
struct Exchanging<'a> {
    costs: &'a Costs,
    mate: &'a mut [usize],
    /// The lower place of each pair, in order.
    lower: Vec<usize>,
    /// What the pair of each lower place costs.
    own: Vec<i64>,
    /// By place, whether its pair changed in the pass before, or does in this one.
    before: Vec<bool>,
    now: Vec<bool>,
}

impl<'a> Exchanging<'a> {
    fn new(costs: &'a Costs, mate: &'a mut [usize]) -> Self {
        let n = mate.len();
        let lower = (0..n).filter(|&v| v < mate[v]).collect();
        let own = mate.iter().enumerate().map(|(v, &m)| costs.of(v, m)).collect();
        Self { costs, mate, lower, own, before: vec![true; n], now: vec![false; n] }
    }

    /// Whether anything helped.
    fn pass(&mut self) -> bool {
        let mut first = 0;
        while let Some(&a) = self.lower.get(first) {
            self.with_later(first, a);
            first += 1;
        }
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.fill(false);
        self.before.contains(&true)
    }

    /// Exchanges between the pair of `a`, the lower place that is `first`, and all later ones.
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
            let (across, over) = (row_a[c] + row_b[d], row_a[d] + row_b[c]);
            if now <= across && now <= over {
                continue;
            }
            self.exchange_two(a, c, across <= over);
            is_new = true;
            row_b = costs.row(self.mate[a]);
            next = self.lower.partition_point(|&lower| lower <= c);
        }
    }

    /// Puts the lower place `a` and `c`, another one, together, or `a` and the partner of `c`; and those that are left.
    fn exchange_two(&mut self, a: usize, c: usize, across: bool) {
        let (b, d) = (self.mate[a], self.mate[c]);
        let (with_a, with_b) = if across { (c, d) } else { (d, c) };
        for (one, other) in [(a, with_a), (b, with_b)] {
            (self.mate[one], self.mate[other]) = (other, one);
            (self.now[one], self.now[other]) = (true, true);
            self.own[one.min(other)] = self.costs.of(one, other);
        }
        let gone = self.lower.partition_point(|&lower| lower < c);
        self.lower.remove(gone);
        let new = b.min(with_b);
        let place = self.lower.partition_point(|&lower| lower < new);
        self.lower.insert(place, new);
    }
}
