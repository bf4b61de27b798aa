//! Prices and pairs to start the search with: what can be had without a tree.

use super::{NEVER, NONE, Search};

/// Bids a vertex on average. Chosen: on 1,024 random mixes 20 leave as few vertices unmatched as 400,
/// 14 of 288, and 5 leave more.
pub(super) const BIDS: usize = 20;

impl Search<'_> {
    /// Half of the cheapest pair is a price that no pair forbids.
    pub(super) fn start_prices(&mut self) {
        for v in 0..self.n {
            let row = self.costs.row(v).iter().enumerate();
            let cheapest = row.filter(|&(u, _)| u != v).map(|(_, &cost)| cost).min();
            self.price[v] = cheapest.unwrap_or(0);
        }
    }

    /// Raises each unmatched vertex's price as far as its pairs allow, and matches it if the pair
    /// that became tight has an unmatched end.
    pub(super) fn match_tight_pairs(&mut self) {
        for v in 0..self.n {
            if self.mate[v] != NONE {
                continue;
            }
            let room = (0..self.n).filter(|&u| u != v).map(|u| self.slack(u, v)).min();
            self.price[v] += room.unwrap_or(0);
            let tight = |u: &usize| *u != v && self.mate[*u] == NONE && self.slack(*u, v) == 0;
            if let Some(u) = (0..self.n).find(tight) {
                self.mate[u] = v;
                self.mate[v] = u;
            }
        }
    }

    /// Lets unmatched vertices bid for partners, `bids` times in all.
    ///
    /// A bidder raises its price to what its second-best partner would allow, and lowers the best
    /// partner's price by as much as that is too high for it: their pair is tight, no other pair
    /// has less slack than before, and the partner's old mate bids next. (The reduction of
    /// augmenting rows by Jonker and Volgenant, Computing 38, 1987, on one set of vertices.)
    /// Only with few partners to choose from; a pass over all of them costs as much as a search.
    pub(super) fn bid(&mut self, mut bids: usize) {
        let Some(among) = self.among else { return };
        for start in 0..self.n {
            let mut bidder = start;
            while self.mate[bidder] == NONE && bids > 0 {
                bids -= 1;
                match self.bid_once(bidder, &among[bidder]) {
                    Some(next) => bidder = next,
                    None => break,
                }
            }
        }
    }

    /// One bid of an unmatched vertex; the vertex that it drives out, if any.
    fn bid_once(&mut self, bidder: usize, among: &[u32]) -> Option<usize> {
        let (mut best, mut second) = ((NEVER, NONE), (NEVER, NONE));
        for &v in among {
            let offer = (self.slack(bidder, v as usize), v as usize);
            if offer.0 < best.0 {
                (best, second) = (offer, best);
            } else if offer.0 < second.0 {
                second = offer;
            }
        }
        let is_free = |offer: (i64, usize)| offer.1 != NONE && self.mate[offer.1] == NONE;
        if best.0 == second.0 && is_free(second) {
            best = second;
        }
        let driven_out = self.mate[best.1];
        if driven_out == NONE {
            self.price[bidder] += best.0;
        } else if best.0 == second.0 || second.1 == NONE {
            // To drive out a mate over a tie gains nothing and could go on for ever.
            self.price[bidder] += best.0;
            return None;
        } else {
            self.price[bidder] += second.0;
            self.price[best.1] -= second.0 - best.0;
            self.mate[driven_out] = NONE;
        }
        self.mate[bidder] = best.1;
        self.mate[best.1] = bidder;
        (driven_out != NONE).then_some(driven_out)
    }
}
