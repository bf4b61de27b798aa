//! What the time of all threads of a region goes to, beside the work that one thread would do: why more threads do no more.
//!
//! # Problem
//! A cause that is taken from a model may not be in the measured times at all, and a cause that is not in them is wrong.
//! # Approach
//! The threads' time, from the region's begin to its end on every thread, is split. What one thread needs as well is work; the
//! other parts are lost. The cause is the largest lost part.
//! # Terms
//! - *At critical sections*: time that threads wait for them, and what they are in them for longer than one thread is.
//! - *At a shared resource*: time outside of critical sections beyond that of one thread. It is supposed to be the memory, and said of
//!   a growth of a quarter or more only. Busy PUs have the same effect.
//! - *Idle*: before a thread begins and after it is done.
//! # Properties
//! - **Parts of a whole**: no part is below 0, and together they are at most all time. -> test `parts_of_a_whole`
//! - **No cause without its part**: what is named takes at least [`SUBSTANTIAL`]. -> test `parts_of_a_whole`

use super::sections::{Executed, GROWTH};
use serde::Serialize;

/// Share of all threads' time from which a lost part is named as the cause. Chosen: several times what times of
/// regions scatter.
pub const SUBSTANTIAL: f64 = 0.1;

/// Why more threads do no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Threads lose their time at critical sections.
    CriticalSections,
    /// They need longer outside of critical sections than one thread does.
    SharedResource,
    /// They have nothing to do: the work is not shared out evenly, or begin and end take long.
    Idle,
}

/// Lost parts of all threads' time, as shares of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// At critical sections.
    pub sections: f64,
    /// At a shared resource; `None` where the region was never executed by one thread.
    pub resource: Option<f64>,
    /// Idle.
    pub idle: f64,
}

impl Lost {
    /// Of executions by all threads, each of which takes `wall` and waits `waited` for critical sections, all threads together, and
    /// by one thread where there were any. `None` if `wall` is not above 0.
    #[must_use]
    pub fn of(all: Executed, wall: f64, waited: f64, one: Option<Executed>) -> Option<Self> {
        // Times that were read one after the other may add up to a little more.
        let working = all.outside + all.inside + waited;
        let time = (wall * f64::from(all.threads)).max(working);
        if wall <= 0.0 || time <= 0.0 {
            return None;
        }
        let longer = |all: f64, one: f64| (all - one).max(0.0);
        let inside = one.map_or(0.0, |one| longer(all.inside, one.inside));
        let resource = one.map(|one| {
            if all.outside < GROWTH * one.outside { 0.0 } else { longer(all.outside, one.outside) }
        });
        Some(Self {
            sections: (waited + inside) / time,
            resource: resource.map(|resource| resource / time),
            idle: (time - working) / time,
        })
    }

    /// The largest part, if it is [`SUBSTANTIAL`].
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let parts = [
            (self.sections, Cause::CriticalSections),
            (self.resource.unwrap_or(0.0), Cause::SharedResource),
            (self.idle, Cause::Idle),
        ];
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
        assert_eq!(of(76.0, 24.0, 300.0), (0.75, 0.0, 0.0, Some(Cause::CriticalSections)));
        assert_eq!(of(76.0, 224.0, 100.0), (0.75, 0.0, 0.0, Some(Cause::CriticalSections)));
        assert_eq!(of(376.0, 24.0, 0.0), (0.0, 0.75, 0.0, Some(Cause::SharedResource)));
        assert_eq!(of(76.0, 24.0, 0.0), (0.0, 0.0, 0.75, Some(Cause::Idle)));
        let busy = Lost::of(executed(4, 94.0, 24.0), 30.0, 2.0, one).unwrap();
        assert_eq!((busy.resource, busy.cause()), (Some(0.0), None), "outside grows by less");
    }

    /// Without executions by one thread it is unknown how much of the time is work.
    #[test]
    fn waiting_needs_no_comparison() {
        let lost = Lost::of(executed(4, 76.0, 24.0), 100.0, 300.0, None).unwrap();
        assert_eq!((lost.resource, lost.cause()), (None, Some(Cause::CriticalSections)));
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
                Some(Cause::CriticalSections) => lost.sections,
                Some(Cause::SharedResource) => lost.resource.unwrap(),
                Some(Cause::Idle) => lost.idle,
                None => largest,
            };
            prop_assert!((of_cause - largest).abs() < 1e-12);
        }
    }
}
