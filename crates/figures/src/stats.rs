//! Means, medians and 95 % confidence intervals.
//!
//! Every function returns `None` when the values do not support a result: no value, a value that is
//! not finite, or one value where a spread is needed.
//!
//! ```
//! use colocate_figures::stats::{Summary, ratio_interval};
//! // Run times in seconds, of five runs each.
//! let before = [10.1, 9.9, 10.0, 10.2, 9.8];
//! let after = [8.1, 7.9, 8.0, 8.2, 7.8];
//! let summary = Summary::of(&after).expect("five finite values");
//! let interval = summary.mean.interval.expect("more than one value");
//! assert!(interval.contains(8.0) && !interval.contains(8.5));
//! // The time falls by a fifth; an interval below 1 means that chance hardly explains the fall.
//! let ratio = ratio_interval(&after, &before, 0.95).expect("two spreads");
//! assert!(ratio.contains(0.8) && ratio.high < 1.0);
//! ```

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A 95 % confidence interval: contains the true value in 95 of 100 studies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// True if `value` lies in the interval, ends included.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn around(centre: f64, reach: f64) -> Self {
        Self { low: centre - reach, high: centre + reach }
    }

    fn exp(self) -> Self {
        Self { low: self.low.exp(), high: self.high.exp() }
    }
}

/// A value with its uncertainty.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// 95 % confidence interval; `None` for a single measurement.
    pub interval: Option<Interval>,
}

/// Statistics of a set of measurements.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Number of measurements.
    pub count: usize,
    /// Arithmetic mean with its Student-t interval.
    pub mean: Estimate,
    /// Median; the mean of the two middle values for an even count.
    pub median: f64,
    /// Sample standard deviation, or `None` for one measurement.
    pub deviation: Option<f64>,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Summarises `values`; `None` without values or if a value is not finite.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = mean_estimate(values)?;
        Some(Self {
            count: values.len(),
            mean,
            median: median(values)?,
            deviation: deviation(values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Arithmetic mean; `None` without values or if a value is not finite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|value| value.is_finite());
    usable.then(|| values.iter().sum::<f64>() / count(values))
}

/// Median, of an even count the mean of the middle two; `None` without values or if not finite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    // For its checks of the values only.
    mean(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    Some(if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[half - 1], sorted[half])
    } else {
        sorted[half]
    })
}

/// Least and greatest of non-negative values; infinity and 0 without values.
pub fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::INFINITY, 0.0), |(least, most), each| (least.min(each), most.max(each)))
}

/// Removes outliers: measurements disturbed by other load (Hampel's identifier on logarithms). An
/// outlier is further from the median, as a ratio, than [`OUTLIER`] times the median distance. More
/// than half of the values remain; all remain if a value is not finite or not above 0.
#[must_use]
pub fn without_outliers(values: &[f64]) -> Vec<f64> {
    near_median(values).unwrap_or_else(|| values.to_vec())
}

/// The values that are no outliers; `None` if a value is not finite and above 0.
fn near_median(values: &[f64]) -> Option<Vec<f64>> {
    let logs = logarithms(values)?;
    let middle = median(&logs)?;
    let distances: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let most = OUTLIER * median(&distances)?.max(LEAST_DISTANCE);
    let near = values.iter().zip(distances).filter(|(_, distance)| *distance <= most);
    Some(near.map(|(value, _)| *value).collect())
}
/// Three standard deviations of a normal distribution; its median distance is 0.6745 of one.
const OUTLIER: f64 = 3.0 / 0.6745;
/// Least median distance, on the logarithm: nearer values count as equal. Chosen.
const LEAST_DISTANCE: f64 = 0.01;

/// Geometric mean; `None` without values or if a value is not finite and above 0.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    mean(&logarithms(values)?).map(f64::exp)
}

/// Sample standard deviation (divisor n − 1); `None` for fewer than two values or if not finite.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count(values) - 1.0)).sqrt())
}

/// Arithmetic mean with its 95 % Student-t interval.
#[must_use]
pub fn mean_estimate(values: &[f64]) -> Option<Estimate> {
    Some(Estimate { value: mean(values)?, interval: mean_interval(values, 0.95) })
}

/// Student-t interval of the arithmetic mean; `None` for fewer than two values.
fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let spread = deviation(values)?;
    // Two-sided: half of the rest lies beyond each end.
    let t = t_quantile(f64::midpoint(confidence, 1.0), count(values) - 1.0)?;
    Some(Interval::around(mean(values)?, t * spread / count(values).sqrt()))
}

/// Geometric mean with its 95 % interval: Student-t on the logarithms, transformed back.
///
/// The interval is not symmetric and never reaches below 0. `None` as [`geometric_mean`].
#[must_use]
pub fn geometric_estimate(values: &[f64]) -> Option<Estimate> {
    let logs = mean_estimate(&logarithms(values)?)?;
    Some(Estimate { value: logs.value.exp(), interval: logs.interval.map(Interval::exp) })
}

/// Interval of the geometric mean as in [`geometric_estimate`], with another `confidence` than 0.95.
///
/// `None` for fewer than two values, a value that is not finite and above 0, or a `confidence`
/// outside 0 to 1.
#[must_use]
pub fn geometric_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    mean_interval(&logarithms(values)?, confidence).map(Interval::exp)
}

/// Interval of the ratio of two geometric means, `values` over `base`, with this `confidence`, such
/// as 0.95. Welch's t on the logarithms: the two sets may differ in size and spread. For unpaired
/// measurements.
///
/// `None` if a set has fewer than two values or a value that is not finite and above 0, or for a
/// `confidence` outside 0 to 1.
#[must_use]
pub fn ratio_interval(values: &[f64], base: &[f64], confidence: f64) -> Option<Interval> {
    let over = logarithms(values)?;
    let under = logarithms(base)?;
    let reach = welch_reach(&over, &under, confidence)?;
    Some(Interval::around(mean(&over)? - mean(&under)?, reach).exp())
}

/// Squared standard error of the mean of `values`.
fn squared_error(values: &[f64]) -> Option<f64> {
    deviation(values).map(|d| d * d / count(values))
}

/// Half the width of Welch's interval for the difference of two means.
fn welch_reach(a: &[f64], b: &[f64], confidence: f64) -> Option<f64> {
    let of_a = squared_error(a)?;
    let of_b = squared_error(b)?;
    let variance = of_a + of_b;
    // Without any spread, the degrees of freedom would be 0 / 0.
    if variance == 0.0 {
        return Some(0.0);
    }
    // Degrees of freedom of Welch and Satterthwaite; rarely a whole number.
    let freedom =
        variance.powi(2) / (of_a.powi(2) / (count(a) - 1.0) + of_b.powi(2) / (count(b) - 1.0));
    Some(t_quantile(f64::midpoint(confidence, 1.0), freedom)? * variance.sqrt())
}

/// Quantile of Student's t distribution: a t variable is below the result with probability `p`.
///
/// `freedom` is the number of degrees of freedom, not necessarily whole. Above a million the
/// quantile changes in the sixth digit only, so larger numbers count as a million. `None` unless 0
/// < `p` < 1 and `freedom` is above 0.
#[must_use]
pub fn t_quantile(p: f64, freedom: f64) -> Option<f64> {
    if !(p > 0.0 && p < 1.0 && freedom > 0.0) {
        return None;
    }
    // The distribution is symmetric around 0.
    if p < 0.5 {
        return t_quantile(1.0 - p, freedom).map(|t| -t);
    }
    // Not `inverse_cdf`: of statrs 0.18 it is wrong in the fifth digit for a million degrees.
    let student = StudentsT::new(0.0, 1.0, freedom.min(1e6)).ok()?;
    // Doubled until beyond the quantile; the loop below bisects.
    let mut high = 1.0;
    while student.cdf(high) < p && high < f64::MAX / 2.0 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Bisection to the last bit: a double has 53 of them, and speed does not matter here.
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if student.cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(f64::midpoint(low, high))
}

/// Natural logarithms; `None` if a value is not finite and above 0.
fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|&v| (v > 0.0 && v.is_finite()).then(|| v.ln())).collect()
}

fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_policy::rng::SplitMix64;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "expected {expected}, found {found}");
    }

    /// Upper tails from the tables printed in textbooks (three decimals).
    #[test]
    fn t_quantiles_are_those_of_the_tables() {
        let table = [
            (1.0, [6.314, 12.706, 63.657]),
            (2.0, [2.920, 4.303, 9.925]),
            (3.0, [2.353, 3.182, 5.841]),
            (4.0, [2.132, 2.776, 4.604]),
            (5.0, [2.015, 2.571, 4.032]),
            (7.0, [1.895, 2.365, 3.499]),
            (10.0, [1.812, 2.228, 3.169]),
            (15.0, [1.753, 2.131, 2.947]),
            (20.0, [1.725, 2.086, 2.845]),
            (29.0, [1.699, 2.045, 2.756]),
            (30.0, [1.697, 2.042, 2.750]),
            (60.0, [1.671, 2.000, 2.660]),
            (120.0, [1.658, 1.980, 2.617]),
            (1e9, [1.645, 1.960, 2.576]),
        ];
        for (freedom, quantiles) in table {
            for (p, expected) in [0.95, 0.975, 0.995].into_iter().zip(quantiles) {
                close(t_quantile(p, freedom).unwrap(), expected, 6e-4);
            }
        }
    }

    /// Welch's degrees of freedom are not whole, and sibling tests ask for 99.9 %. Worked out by
    /// Simpson's rule on the density, in the angle whose tangent is t / √freedom.
    #[test]
    fn t_quantiles_agree_with_integrated_densities() {
        for (p, freedom, expected) in [
            (0.975, 2.7, 3.392_148_383),
            (0.975, 17.3, 2.107_032_004),
            (0.975, 99.5, 1.984_093_611),
            (0.999_5, 4.0, 8.610_301_581),
            (0.999_5, 11.0, 4.436_979_338),
        ] {
            close(t_quantile(p, freedom).unwrap(), expected, 1e-8);
        }
    }

    #[test]
    fn t_quantile_refuses_what_has_no_answer() {
        let bad =
            [(0.0, 5.0), (1.0, 5.0), (0.9, 0.0), (0.9, -1.0), (0.9, f64::NAN), (f64::NAN, 5.0)];
        for (p, freedom) in bad {
            assert_eq!(t_quantile(p, freedom), None, "p {p}, freedom {freedom}");
        }
    }

    /// 2, 4, 4, 4, 5, 5, 7, 9: sum 40, squares around 5 are 9+1+1+1+0+0+4+16 = 32, so the mean is
    /// 5 and the deviation sqrt(32/7) = 2.13809; 2.36462 · 2.13809 / sqrt(8) = 1.78749.
    #[test]
    fn summary_traced_by_hand() {
        let found = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        close(found.mean.value, 5.0, 1e-12);
        close(found.median, 4.5, 1e-12);
        close(found.deviation.unwrap(), 2.138_09, 1e-5);
        close(found.mean.interval.unwrap().high, 6.787_49, 1e-5);
        close(found.mean.interval.unwrap().low, 3.212_51, 1e-5);
        assert_eq!((found.count, found.min, found.max), (8, 2.0, 9.0));
    }

    #[test]
    fn one_value_has_no_interval() {
        let found = Summary::of(&[3.0]).unwrap();
        assert_eq!((found.mean, found.median), (Estimate { value: 3.0, interval: None }, 3.0));
        assert_eq!(found.deviation, None);
    }

    #[test]
    fn no_value_and_no_number_have_no_answer() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(mean(&[f64::INFINITY]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, -1.0]), None);
        assert_eq!(ratio_interval(&[1.0], &[], 0.95), None);
    }

    /// The logarithms to base 2 of 1, 2, 4, 8 are 0..3: mean 1.5, deviation sqrt(5/3) = 1.290994,
    /// reach 3.182446 · 1.290994 / 2 = 2.054261; so 2^1.5 and 2^(1.5 ± 2.054261).
    #[test]
    fn geometric_mean_traced_by_hand() {
        let found = geometric_estimate(&[8.0, 1.0, 4.0, 2.0]).unwrap();
        close(found.value, 2.0_f64.powf(1.5), 1e-12);
        close(found.interval.unwrap().low, 2.0_f64.powf(1.5 - 2.054_261), 1e-5);
        close(found.interval.unwrap().high, 2.0_f64.powf(1.5 + 2.054_261), 1e-4);
    }

    /// As above, with t = 5.840909 for 99 %: reach 5.840909 · 1.290994 / 2 = 3.770290.
    #[test]
    fn geometric_intervals_of_another_confidence() {
        let values = [8.0, 1.0, 4.0, 2.0];
        let found = geometric_interval(&values, 0.99).unwrap();
        close(found.low, 2.0_f64.powf(1.5 - 3.770_290), 1e-5);
        close(found.high, 2.0_f64.powf(1.5 + 3.770_290), 1e-4);
        let same = geometric_interval(&values, 0.95).unwrap();
        assert_eq!(Some(same), geometric_estimate(&values).unwrap().interval);
        assert_eq!(geometric_interval(&values, 1.0), None);
        assert_eq!(geometric_interval(&values[..1], 0.99), None);
    }

    /// Logarithms 0, 1 and 1, 2: difference −1, variances ½ each over 2, so the standard error is
    /// sqrt(½) and Welch gives (½)² / (1/16 + 1/16) = 2 degrees: reach 4.302653 · 0.707107.
    #[test]
    fn ratio_traced_by_hand() {
        let e = std::f64::consts::E;
        let found = ratio_interval(&[1.0, e], &[e, e * e], 0.95).unwrap();
        close(found.low.ln(), -1.0 - 3.042_435, 1e-5);
        close(found.high.ln(), -1.0 + 3.042_435, 1e-5);
    }

    #[test]
    fn ratio_of_exact_sets_is_exact() {
        let found = ratio_interval(&[2.0, 2.0], &[1.0, 1.0], 0.95).unwrap();
        close(found.low, 2.0, 1e-12);
        assert_eq!(ratio_interval(&[2.0], &[1.0, 1.0], 0.95), None);
    }

    /// The share of intervals that hold the truth, over 2,000 sets of eight normal values (sums of
    /// twelve uniforms) from a fixed seed.
    #[test]
    fn intervals_hold_the_truth_95_times_in_100() {
        let mut random = SplitMix64::new(7);
        let mut uniform =
            || f64::from(u32::try_from(random.next_u64() >> 32).unwrap()) / 4_294_967_296.0;
        let mut hits = 0;
        for _ in 0..2_000 {
            let set: Vec<f64> = (0..8).map(|_| (0..12).map(|_| uniform()).sum()).collect();
            hits += u32::from(mean_estimate(&set).unwrap().interval.unwrap().contains(6.0));
        }
        assert!((1_870..=1_930).contains(&hits), "{hits} of 2000");
    }

    proptest! {
        #[test]
        fn quantiles_rise_with_p_and_fall_with_freedom(p in 0.51..0.999_f64, freedom in 0.5..1e4_f64) {
            let at = |p, freedom| t_quantile(p, freedom).unwrap();
            prop_assert!(at(p, freedom) < at(p + 0.000_5, freedom));
            prop_assert!(at(p, freedom) > at(p, freedom * 1.5));
            prop_assert_eq!(at(1.0 - p, freedom), -at(1.0 - (1.0 - p), freedom));
        }

        #[test]
        fn means_keep_their_order(values in prop::collection::vec(0.01..1e6_f64, 1..40)) {
            let (low, high) = (geometric_mean(&values).unwrap(), mean(&values).unwrap());
            prop_assert!(low <= high * (1.0 + 1e-12));
            let summary = Summary::of(&values).unwrap();
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
        }
    }

    #[test]
    fn outliers_are_left_out() {
        assert_eq!(without_outliers(&[13.0, 12.9, 40.0, 13.1, 13.0]), [13.0, 12.9, 13.1, 13.0]);
        assert_eq!(without_outliers(&[13.0, 13.1, 12.0, 14.0]).len(), 4);
        // Two alike halves have no outlier.
        assert_eq!(without_outliers(&[2.0, 2.0, 8.0, 8.0]).len(), 4);
        assert_eq!(without_outliers(&[5.0, 5.0, 5.01]).len(), 3);
        assert_eq!(without_outliers(&[0.0, 1.0, 1.0]), [0.0, 1.0, 1.0]);
        assert!(without_outliers(&[]).is_empty());
    }
}
