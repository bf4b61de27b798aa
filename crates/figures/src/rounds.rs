//! Values of several cases, one value a round; some may be missing.

use crate::stats::{Estimate, geometric_estimate, geometric_mean};

/// Value of each round; `None` for a round without a measurement.
pub type Series = Vec<Option<f64>>;

/// Geometric mean of the known values, with its 95 % interval. `None` without one above 0.
#[must_use]
pub fn estimate(series: &[Option<f64>]) -> Option<Estimate> {
    geometric_estimate(&series.iter().copied().flatten().collect::<Vec<_>>())
}

/// Geometric mean over the rounds with a value for every case, with its 95 % interval. With fewer
/// than two such rounds, the mean of the cases' known values, without an interval. All cases have
/// the same number of rounds.
#[must_use]
pub fn over_cases(cases: &[Series]) -> Option<Estimate> {
    let known: Vec<f64> = cases.iter().filter_map(|case| Some(estimate(case)?.value)).collect();
    let value = geometric_mean(&known)?;
    let rounds = cases.iter().map(Vec::len).min()?;
    // Missing where a case has no value.
    let complete = (0..rounds).filter_map(|round| {
        geometric_mean(&cases.iter().map(|case| case[round]).collect::<Option<Vec<f64>>>()?)
    });
    let complete: Vec<f64> = complete.collect();
    let of_complete = geometric_estimate(&complete).filter(|found| found.interval.is_some());
    Some(of_complete.unwrap_or(Estimate { value, interval: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// √(2 · 8) = 4 and 9: their mean is 6. Only the first round has both.
    #[test]
    fn traced_by_hand() {
        let cases = [vec![Some(2.0), Some(8.0)], vec![Some(9.0), None]];
        assert!((estimate(&cases[0]).unwrap().value - 4.0).abs() < 1e-12);
        let found = over_cases(&cases).unwrap();
        assert!((found.value - 6.0).abs() < 1e-12 && found.interval.is_none(), "{found:?}");
    }

    /// The rounds' means are 2 and 8, as those of one case are.
    #[test]
    fn complete_rounds_have_an_interval() {
        let one = vec![Some(2.0), Some(8.0)];
        let found = over_cases(&[one.clone(), one.clone()]).unwrap();
        assert_eq!(found.interval, estimate(&one).unwrap().interval);
    }

    /// A value of a round that has none for another case is not in the interval, so it is not in the mean.
    #[test]
    fn the_mean_is_in_its_interval() {
        let cases = [vec![Some(1.0), Some(4.0), Some(100.0)], vec![Some(1.0), Some(4.0), None]];
        let found = over_cases(&cases).unwrap();
        assert!((found.value - 2.0).abs() < 1e-12, "{found:?}");
        assert!(found.interval.unwrap().contains(found.value), "{found:?}");
    }

    #[test]
    fn what_was_not_measured_is_unknown() {
        assert_eq!(
            (estimate(&[None]), over_cases(&[]), over_cases(&[vec![None]])),
            (None, None, None)
        );
    }
}
