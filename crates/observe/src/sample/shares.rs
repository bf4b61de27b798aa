//! Sums of instruction-class shares.

use colocate_isa::{Class as IsaClass, ClassCounts};
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
        for (class, sum) in CLASSES.into_iter().zip(self.of) {
            // Rounding can carry a sum of shares past its weight.
            mix.set(class, Share::new((sum / self.weight).min(1.0)));
        }
        mix
    }
}

/// Classes of the model, in the order of the decoder's counts.
const CLASSES: [Class; 5] = {
    let mut classes = Class::ALL;
    let mut place = 0;
    while place < IsaClass::ALL.len() {
        classes[place] = match IsaClass::ALL[place] {
            IsaClass::Branch => Class::Branch,
            IsaClass::Float => Class::Float,
            IsaClass::Int => Class::Int,
            IsaClass::Load => Class::Load,
            IsaClass::Store => Class::Store,
        };
        place += 1;
    }
    classes
};
