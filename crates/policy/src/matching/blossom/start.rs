//! Initial prices and pairs of the search, found without a tree.

use super::{NEVER, NONE, Search};

/// Bids per vertex on average. Chosen: on 1,024 random mixes 20 bids leave as few vertices
/// unmatched as 400 bids, 14 of 288; 5 bids leave more.
pub(super) const BIDS: usize = 20;

impl Search<'_> {
    /// Sets each price to half the cost of the vertex's cheapest pair, which is feasible.
    pub(super) fn start_prices(&mut self) {
        for v in 0..self.n {
            let row = self.costs.row(v).iter().enumerate();
            let cheapest = row.filter(|&(u, _)| u != v).map(|(_, &cost)| cost).min();
            self.price[v] = cheapest.unwrap_or(0);
        }
    }

    /// Raises the price of each unmatched vertex as far as its pairs allow. Matches the vertex if a
    /// tight pair has an unmatched other end.
    pub(super) fn match_tight_pairs(&mut self) {
        for v in 0..self.n {
            if self.mate[v] != NONE {
                continue;
            }
            let room = (0..self.n).filter(|&u| u != v).map(|u| self.slack(u, v)).min();
            self.price[v] += room.unwrap_or(0);
            let partner =
                (0..self.n).find(|&u| u != v && self.mate[u] == NONE && self.slack(u, v) == 0);
            if let Some(u) = partner {
                self.mate[u] = v;
                self.mate[v] = u;
            }
        }
    }

    /// Lets unmatched vertices bid for partners, `bids` times in all.
    ///
    /// A bidder raises its price to the limit set by its second-best partner, and lowers the price
    /// of the best partner until their pair is tight. No slack becomes negative. The partner's old
    /// mate bids next. (Augmenting row reduction of Jonker and Volgenant, Computing 38, 1987, on
    /// one set of vertices.) Only with a short list of partners: a pass over all vertices costs as
    /// much as a search.
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

    /// One bid of an unmatched vertex. Returns the vertex that lost its partner, if any.
    fn bid_once(&mut self, bidder: usize, among: &[u32]) -> Option<usize> {
        let none = (NEVER, NONE);
        let mut best = none;
        let mut second = none;
        for &v in among {
            let offer = (self.slack(bidder, v as usize), v as usize);
            if offer.0 < best.0 {
                second = best;
                best = offer;
            } else if offer.0 < second.0 {
                second = offer;
            }
        }
        // Of two equally good partners the unmatched one: no vertex loses its partner.
        let second_is_free = second.1 != NONE && self.mate[second.1] == NONE;
        if best.0 == second.0 && second_is_free {
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
