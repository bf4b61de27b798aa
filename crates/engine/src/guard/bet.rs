//! A test that may be evaluated after every number: bets against a claim, whose winnings disprove it.
//!
//! # Approach
//! The claim is that the numbers, each known to be from −[`MOST`] to `MOST`, are on average not above 0 whatever came before.
//! A gambler that doubts it begins with a wealth of 1 and stakes a part `λ` of it on each number `x`, chosen by
//! those before: the wealth becomes `(1 + λ·x)` times what it was. If the claim holds, wealth does not grow
//! on average, and reaches `1/ε` at any time with a chance of at most `ε` (Ville, 1939). So it may be evaluated
//! at any time and stopped at will. Nothing is assumed of how the numbers are distributed (Waudby-Smith and
//! Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024).
//!
//! The stake is the mean over the mean square of the numbers so far, near what makes the logarithm of the
//! wealth grow fastest. How bold the stakes are changes how soon a claim is disproved, not the chance of error.

/// Numbers are cut off here. Chosen: comparisons of quanta are within a quarter of 0 but for a few, and the
/// narrower the range the higher the stakes may be.
pub const MOST: f64 = 0.25;

/// Basis of the first stakes: the size of one number whose square speaks for neither side. Chosen: quanta that are compared
/// differ by some percent.
const DOUBT: f64 = 0.05;

/// How much is staked, as parts of the stake that could lose everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stakes {
    /// The first stake.
    first: f64,
    /// The greatest stake, below 1.
    most: f64,
}

impl Stakes {
    /// Nothing is expected of the first number. Chosen: one number never costs more than three quarters of the wealth.
    pub const CAREFUL: Self = Self { first: 0.0, most: 0.75 };
    /// For numbers that are expected beyond [`MOST`]: five of these disprove a claim with a chance of error of 5 %, where
    /// careful stakes take seven. Chosen.
    pub const BOLD: Self = Self { first: 0.9, most: 0.9 };
}

/// A bet against "not above 0 on average".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bet {
    /// Greatest stake on a number of size 1.
    most: f64,
    /// Logarithm of the wealth.
    wealth: f64,
    sum: f64,
    squares: f64,
}

impl Bet {
    /// A bet on no number yet.
    pub fn new(stakes: Stakes) -> Self {
        // As if numbers had been seen whose sum gives the first stake.
        let sum = stakes.first / MOST * DOUBT * DOUBT;
        Self { most: stakes.most / MOST, wealth: 0.0, sum, squares: 0.0 }
    }

    /// Stakes on `x`, then learns from it. Numbers are cut off at [`MOST`].
    pub fn take(&mut self, x: f64) {
        let x = x.clamp(-MOST, MOST);
        // The least divisor and the bound keep `1 + stake * x` above zero.
        let stake = (self.sum / (self.squares + DOUBT * DOUBT)).clamp(0.0, self.most);
        // `ln_1p` keeps the precision of small gains.
        self.wealth += (stake * x).ln_1p();
        // Afterwards: a stake must not depend on the number that it is on.
        self.sum += x;
        self.squares += x * x;
    }

    /// The gambler's wealth, over that at first.
    pub fn wealth(&self) -> f64 {
        self.wealth.exp()
    }

    /// Whether the claim is disproved with a chance of error of at most `error`.
    pub fn won(&self, error: f64) -> bool {
        // A wealth of `1 / error`, in logarithms.
        self.wealth >= -error.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_policy::rng::SplitMix64;

    /// Stakes 0, then 0.1 / (0.01 + 0.0025) cut to 3: wealth 1.3 and from then on 1.3 times as much.
    #[test]
    fn by_hand() {
        let mut bet = Bet::new(Stakes::CAREFUL);
        bet.take(0.1);
        assert!(bet.wealth.abs() < 1e-12);
        bet.take(0.1);
        bet.take(0.1);
        assert!((bet.wealth.exp() - 1.69).abs() < 1e-12);
        assert!(bet.won(0.6) && !bet.won(0.5));
    }

    /// Bold stakes need five of the greatest numbers, careful ones seven.
    #[test]
    fn great_numbers_by_hand() {
        for (stakes, needed) in [(Stakes::BOLD, 5), (Stakes::CAREFUL, 7)] {
            let mut bet = Bet::new(stakes);
            let mut count = 0;
            while !bet.won(0.05) {
                bet.take(1.0);
                count += 1;
            }
            assert_eq!(count, needed, "{stakes:?}");
        }
    }

    /// In how many of 2,000 rows of 200 numbers around `mean` the bet is won at any time.
    fn wins(stakes: Stakes, mean: f64, spread: f64) -> usize {
        let mut rng = SplitMix64::new(7);
        let mut row = || {
            let mut bet = Bet::new(stakes);
            (0..200).any(|_| {
                bet.take(mean + spread * (2.0 * rng.unit() - 1.0));
                bet.won(0.05)
            })
        };
        (0..2000).filter(|_| row()).count()
    }

    #[test]
    fn the_chance_of_error_holds_while_looking() {
        for stakes in [Stakes::CAREFUL, Stakes::BOLD] {
            for spread in [0.001, 0.02, 0.1, 0.25] {
                let wins = wins(stakes, 0.0, spread);
                assert!(wins <= 100, "{stakes:?} {spread}: {wins}");
            }
            assert_eq!(wins(stakes, -0.02, 0.02), 0);
        }
    }

    #[test]
    fn finds_what_is_there() {
        for stakes in [Stakes::CAREFUL, Stakes::BOLD] {
            for (mean, spread, least) in [(0.05, 0.1, 1950), (0.02, 0.05, 1900)] {
                let wins = wins(stakes, mean, spread);
                assert!(wins > least, "{stakes:?} {mean}: {wins}");
            }
        }
    }
}
