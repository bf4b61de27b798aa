//! Lost time of a region's threads, by cause: the reasons why more threads do no more work.
//!
//! # Problem
//! A cause taken from a model may have no part in the measured times, and is then wrong.
//! # Approach
//! The threads' time, from the region's start to its end on every thread, is divided. The time that
//! one thread needs as well is work; the other parts are lost. The cause is the largest lost part.
//! # Terms
//! - *At critical sections*: waits for critical sections, and time inside beyond that of one
//!   thread.
//! - *At a shared resource*: time outside of critical sections beyond that of one thread. The
//!   resource is supposed to be the memory, and reported from a growth of a quarter. Busy PUs have
//!   the same effect.
//! - *Idle*: before a thread starts and after its work is done.
//! # Properties
//! - **Parts of a whole**: no part is below 0, and together they are at most all time.
//!   -> test `parts_of_a_whole`
//! - **No cause without its part**: the cause named takes at least [`SUBSTANTIAL`].
//!   -> test `parts_of_a_whole`

use super::sections::{Executed, GROWTH};
use serde::Serialize;

/// Share of all threads' time from which a lost part is named as the cause. Chosen: several times
/// the scatter of regions' times.
pub const SUBSTANTIAL: f64 = 0.1;

/// Reason why more threads do no more work.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossCause {
    /// Waits and longer execution at critical sections.
    CriticalSections,
    /// Longer execution outside of critical sections than with one thread.
    SharedResource,
    /// Idle threads: unbalanced work, or a slow start and end of the region.
    Idle,
}

/// Lost parts of all threads' time, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// Share lost at critical sections.
    pub sections: f64,
    /// Share lost at a shared resource; `None` if one thread never executed the region.
    pub resource: Option<f64>,
    /// Share idle.
    pub idle: f64,
}

impl Lost {
    /// Lost parts of executions by all threads, from an execution's duration `wall`, the time
    /// `waited` for critical sections summed over threads, and executions by one thread, if any.
    /// `None` if `wall` is not above 0.
    #[must_use]
    pub fn of(all: Executed, wall: f64, waited: f64, one: Option<Executed>) -> Option<Self> {
        // The clocks of threads are read one after the other, so their sum may exceed the whole.
        let working = all.outside + all.inside + waited;
        let time = (wall * f64::from(all.threads)).max(working);
        if wall <= 0.0 || time <= 0.0 {
            return None;
        }
        // Measured times scatter, so a difference may come out below 0.
        let inside = one.map_or(0.0, |one| (all.inside - one.inside).max(0.0));
        let resource = one.map(|one| {
            let longer = (all.outside - one.outside).max(0.0);
            if all.outside < GROWTH * one.outside { 0.0 } else { longer }
        });
        Some(Self {
            sections: (waited + inside) / time,
            resource: resource.map(|resource| resource / time),
            idle: (time - working) / time,
        })
    }

    /// Cause of the largest part, if that is at least [`SUBSTANTIAL`].
    #[must_use]
    pub fn cause(&self) -> Option<LossCause> {
        let parts = [
            (self.sections, LossCause::CriticalSections),
            (self.resource.unwrap_or(0.0), LossCause::SharedResource),
            (self.idle, LossCause::Idle),
        ];
        // Of equal parts `max_by` takes the last.
        let largest = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        largest.filter(|(share, _)| *share >= SUBSTANTIAL).map(|(_, cause)| cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn executed(threads: u32, outside: f64, inside: f64) -> Executed {
        Executed { threads, outside, inside }
    }

    /// 100 of wall time on four threads are 400. One thread needs 76 outside and 24 inside.
    #[test]
    fn parts_by_hand() {
        let one = Some(executed(1, 76.0, 24.0));
        let of = |outside, inside, waited| {
            let lost = Lost::of(executed(4, outside, inside), 100.0, waited, one).unwrap();
            (lost.sections, lost.resource.unwrap(), lost.idle, lost.cause())
        };
        assert_eq!(of(76.0, 24.0, 300.0), (0.75, 0.0, 0.0, Some(LossCause::CriticalSections)));
        assert_eq!(of(76.0, 224.0, 100.0), (0.75, 0.0, 0.0, Some(LossCause::CriticalSections)));
        assert_eq!(of(376.0, 24.0, 0.0), (0.0, 0.75, 0.0, Some(LossCause::SharedResource)));
        assert_eq!(of(76.0, 24.0, 0.0), (0.0, 0.0, 0.75, Some(LossCause::Idle)));
        let busy = Lost::of(executed(4, 94.0, 24.0), 30.0, 2.0, one).unwrap();
        assert_eq!((busy.resource, busy.cause()), (Some(0.0), None), "outside grows by less");
    }

    /// Without executions by one thread it is unknown how much of the time is work.
    #[test]
    fn waiting_needs_no_comparison() {
        let lost = Lost::of(executed(4, 76.0, 24.0), 100.0, 300.0, None).unwrap();
        assert_eq!((lost.resource, lost.cause()), (None, Some(LossCause::CriticalSections)));
        let long = Lost::of(executed(4, 376.0, 24.0), 100.0, 0.0, None).unwrap();
        assert_eq!((long.resource, long.cause()), (None, None));
        assert_eq!(Lost::of(executed(4, 1.0, 0.0), 0.0, 0.0, None), None);
    }

    proptest! {
        #[test]
        fn parts_of_a_whole(
            threads in 1..200_u32, times in proptest::array::uniform4(0.0..1e6_f64), wall in 0.0..1e6_f64, known: bool,
        ) {
            let [outside, inside, waited, alone] = times;
            let one = known.then_some(executed(1, alone + 1e-3, alone));
            let Some(lost) = Lost::of(executed(threads, outside, inside), wall, waited, one) else { return Ok(()) };
            let parts = [lost.sections, lost.resource.unwrap_or(0.0), lost.idle];
            prop_assert!(parts.iter().all(|part| *part >= 0.0) && parts.iter().sum::<f64>() <= 1.0 + 1e-9, "{lost:?}");
            let largest = parts.into_iter().fold(0.0, f64::max);
            prop_assert_eq!(lost.cause().is_some(), largest >= SUBSTANTIAL);
            let of_cause = match lost.cause() {
                Some(LossCause::CriticalSections) => lost.sections,
                Some(LossCause::SharedResource) => lost.resource.unwrap(),
                Some(LossCause::Idle) => lost.idle,
                None => largest,
            };
            prop_assert!((of_cause - largest).abs() < 1e-12);
        }
    }
}
