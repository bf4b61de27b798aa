//! Means over time.

/// A mean over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    /// Of nothing.
    pub const NONE: Self = Self { sum: 0.0, seconds: 0.0 };

    /// Adds a value, if it is known, that held for so long.
    pub fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    /// The mean; `None` if nothing is known.
    pub fn get(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}
