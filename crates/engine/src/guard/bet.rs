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
//! wealth grow fastest.

/// Numbers are cut off here. Chosen: comparisons of quanta are within a quarter of 0 but for a few, and the
/// narrower the range the higher the stakes may be.
pub const MOST: f64 = 0.25;

/// Of what could lose everything, the part that is staked at most. Chosen: one number never costs more than three
/// quarters of the wealth.
const BOLDEST: f64 = 0.75;

/// Basis of the first stakes: the size of one number whose square speaks for neither side. Chosen: quanta that are compared
/// differ by some percent.
const DOUBT: f64 = 0.05;

/// A bet against "not above 0 on average".
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bet {
    /// Logarithm of the wealth.
    wealth: f64,
    sum: f64,
    squares: f64,
}

impl Bet {
    /// Stakes on `x`, then learns from it. Numbers are cut off at [`MOST`].
    pub fn take(&mut self, x: f64) {
        let x = x.clamp(-MOST, MOST);
        // The least divisor and the bound keep `1 + stake * x` above zero.
        let stake = (self.sum / (self.squares + DOUBT * DOUBT)).clamp(0.0, BOLDEST / MOST);
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
        let mut bet = Bet::default();
        bet.take(0.1);
        assert!(bet.wealth.abs() < 1e-12);
        bet.take(0.1);
        bet.take(0.1);
        assert!((bet.wealth.exp() - 1.69).abs() < 1e-12);
        assert!(bet.won(0.6) && !bet.won(0.5));
    }

    /// In how many of 2,000 rows of 200 numbers around `mean` the bet is won at any time.
    fn wins(mean: f64, spread: f64) -> usize {
        let mut rng = SplitMix64::new(7);
        let mut row = || {
            let mut bet = Bet::default();
            (0..200).any(|_| {
                bet.take(mean + spread * (2.0 * rng.unit() - 1.0));
                bet.won(0.05)
            })
        };
        (0..2000).filter(|_| row()).count()
    }

    #[test]
    fn the_chance_of_error_holds_while_looking() {
        for spread in [0.001, 0.02, 0.1, 0.25] {
            assert!(wins(0.0, spread) <= 100, "{spread}: {}", wins(0.0, spread));
            assert_eq!(wins(-0.02, 0.02), 0);
        }
    }

    #[test]
    fn finds_what_is_there() {
        assert!(wins(0.05, 0.1) > 1950, "{}", wins(0.05, 0.1));
        assert!(wins(0.02, 0.05) > 1900, "{}", wins(0.02, 0.05));
    }
}
