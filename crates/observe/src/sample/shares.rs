//! Sums of instruction-class shares.

use colocate_isa::ClassCounts;
use colocate_model::{Class, Mix, Share};

/// Weighted sums of shares, and their total weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    of: [f64; 5],
    weight: f64,
}

impl Shares {
    /// Class shares of `counts`, with weight 1; `None` without instructions.
    pub fn of(counts: &ClassCounts) -> Option<Self> {
        let whole = counts.instructions as f64;
        (counts.instructions > 0)
            .then(|| Self { of: counts.of.map(|n| n as f64 / whole), weight: 1.0 })
    }

    /// Adds `other` `times` over.
    pub fn add(&mut self, other: &Self, times: u64) {
        self.add_scaled(other, times as f64);
    }

    /// Adds `other`, weighted by `factor`.
    pub fn add_scaled(&mut self, other: &Self, factor: f64) {
        for (mine, theirs) in self.of.iter_mut().zip(other.of) {
            *mine += theirs * factor;
        }
        self.weight += other.weight * factor;
    }

    /// Mean mix; all unknown if the weight is 0.
    pub fn mix(&self) -> Mix {
        let mut mix = Mix::default();
        // The decoder's counts have the order of the model's classes, as in `Mix::from_counts`.
        for (class, sum) in Class::ALL.into_iter().zip(self.of) {
            // Rounding can carry a sum of shares past its weight.
            mix.set(class, Share::new((sum / self.weight).min(1.0)));
        }
        mix
    }
}
