//! Workload metrics: throughput, fairness, turnaround.
//!
//! `S(i)` is the slowdown of job `i`: its time among the others over its time alone. Definitions as
//! Feliu uses them (thesis and booklet): STP is the sum of `1/S(i)`, ANTT the mean of `S(i)`
//! (Eyerman and Eeckhout, IEEE Micro 2008), unfairness `max S / min S`, turnaround the time until
//! the last job has done its work.

use crate::outcome::Outcome;
use colocate_machine::Nanos;

/// System throughput: the sum of the jobs' progress, at most their number. 0 for no jobs.
#[must_use]
pub fn stp(slowdowns: &[f64]) -> f64 {
    slowdowns.iter().map(|slowdown| 1.0 / slowdown).fold(0.0, |sum, each| sum + each)
}

/// Mean slowdown; `None` for no jobs.
#[must_use]
pub fn antt(slowdowns: &[f64]) -> Option<f64> {
    (!slowdowns.is_empty()).then(|| slowdowns.iter().sum::<f64>() / slowdowns.len() as f64)
}

/// Largest slowdown over the smallest, 1 or more; 1 is fair. `None` for no jobs.
#[must_use]
pub fn unfairness(slowdowns: &[f64]) -> Option<f64> {
    let most = slowdowns.iter().copied().reduce(f64::max)?;
    Some(most / slowdowns.iter().copied().reduce(f64::min)?)
}

/// Harmonic mean of the speeds relative to alone, a balance of throughput and fairness. `None` for
/// no jobs.
#[must_use]
pub fn harmonic_speed(slowdowns: &[f64]) -> Option<f64> {
    antt(slowdowns).map(|antt| 1.0 / antt)
}

impl Outcome {
    /// Slowdowns of all jobs, in their order; `None` if any is unknown.
    #[must_use]
    pub fn slowdowns(&self) -> Option<Vec<f64>> {
        self.jobs.iter().map(crate::outcome::JobOutcome::slowdown).collect()
    }

    /// Time from the first launch until every job had done its work once; `None` if a job never
    /// did.
    #[must_use]
    pub fn turnaround(&self) -> Option<Nanos> {
        let first = self.jobs.iter().filter_map(|job| job.launched).min()?;
        let done: Option<Vec<Nanos>> = self.jobs.iter().map(|job| job.done).collect();
        Some(done?.into_iter().max()?.saturating_sub(first))
    }

    /// Time of the slowest job, the metric of Serpa et al.; `None` if a job never ended. With
    /// [`Method::Leave`](crate::scenario::Method::Leave) the last jobs run partly alone.
    #[must_use]
    pub fn slowest(&self) -> Option<Nanos> {
        let times: Option<Vec<Nanos>> = self.jobs.iter().map(|job| job.took()).collect();
        times?.into_iter().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S = 1, 2, 4: STP = 1 + 1/2 + 1/4, ANTT = 7/3, unfairness 4.
    #[test]
    fn by_hand() {
        let slowdowns = [1.0, 2.0, 4.0];
        assert!((stp(&slowdowns) - 1.75).abs() < 1e-12);
        assert!((antt(&slowdowns).unwrap() - 7.0 / 3.0).abs() < 1e-12);
        assert!((unfairness(&slowdowns).unwrap() - 4.0).abs() < 1e-12);
        assert!((harmonic_speed(&slowdowns).unwrap() - 3.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_has_no_mean() {
        assert!(stp(&[]) == 0.0 && stp(&[]).is_sign_positive());
        assert_eq!((antt(&[]), unfairness(&[]), harmonic_speed(&[])), (None, None, None));
    }
}
