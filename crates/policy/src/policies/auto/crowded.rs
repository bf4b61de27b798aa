//! PUs that other programs crowd.
//!
//! A task that is bound to a PU waits there while others run, although the kernel could have it run
//! elsewhere. So a group leaves such a PU for another one, if that has no group and is not crowded;
//! if there is none, it is left to the kernel where it waits longer than it gains by sharing a PU.
//! It leaves for a while, and each time for longer.

use colocate_evidence::SharedPu;
use colocate_machine::{Nanos, PuNr};
use std::collections::BTreeMap;

/// Least share of the time in which a group waits for others that crowd its PU. Chosen: a program
/// that computes takes half of a PU.
const CROWDED: f64 = 0.2;
/// Least time of which something has to be known. Chosen: others' slices last some milliseconds.
const LEAST: Nanos = Nanos::from_millis(20);
/// Time for which groups leave a PU at first. Chosen: some decisions.
const FIRST_AWAY: Nanos = Nanos::from_millis(200);
/// Longest such time. Chosen: to try again costs less than a hundredth of it.
const LONGEST_AWAY: Nanos = Nanos::from_secs(5);

/// Crowded PUs.
#[derive(Debug, Default)]
pub(super) struct CrowdedPus {
    // Kernel numbers stay valid when the machine changes; indexes do not.
    of: BTreeMap<PuNr, Away>,
}

/// Time for which groups leave a PU.
#[derive(Clone, Copy, Debug)]
struct Away {
    until: Nanos,
    lasts: Nanos,
}

impl CrowdedPus {
    /// Takes in the times of groups. `known` is the share of the time in which tasks on a PU wait
    /// for each other, and that which they gain by sharing the PU; `None`: not measured yet. `free`
    /// are the usable PUs without a group. True if a group has to leave its PU.
    pub fn note(
        &mut self,
        at: Nanos,
        shared: &[SharedPu],
        free: &[PuNr],
        known: impl Fn(PuNr) -> Option<(f64, f64)>,
    ) -> bool {
        self.of.retain(|_, away| at < away.until + away.lasts + away.lasts);
        let mut is_left = false;
        for times in by_pu(shared).into_values() {
            let pu = times.pu;
            let displaced = times.displaced();
            if times.over < LEAST || displaced < CROWDED || self.has(pu, at) {
                continue;
            }
            let Some((overlap, gain)) = known(pu) else { continue };
            let loses = if free.iter().all(|pu| self.has(*pu, at)) { gain } else { 0.0 };
            if displaced < overlap + loses.max(CROWDED) {
                continue;
            }
            let before = self.of.get(&pu).map(|away| away.lasts);
            let lasts = before.map_or(FIRST_AWAY, |lasts| (lasts + lasts).min(LONGEST_AWAY));
            self.of.insert(pu, Away { until: at + lasts, lasts });
            is_left = true;
        }
        is_left
    }

    /// Whether groups leave a PU at present.
    pub fn has(&self, pu: PuNr, at: Nanos) -> bool {
        self.of.get(&pu).is_some_and(|away| at < away.until)
    }

    /// PUs that groups leave at present.
    pub fn at(&self, at: Nanos) -> impl Iterator<Item = PuNr> {
        self.of.keys().copied().filter(move |pu| self.has(*pu, at))
    }
}

/// Times of each PU: the last readings that are long enough together.
fn by_pu(shared: &[SharedPu]) -> BTreeMap<PuNr, SharedPu> {
    let mut last: BTreeMap<PuNr, SharedPu> = BTreeMap::new();
    for times in shared.iter().rev() {
        let add = |later: &mut SharedPu| {
            if later.over < LEAST {
                later.over += times.over;
                later.ran += times.ran;
                later.waited += times.waited;
            }
        };
        last.entry(times.pu).and_modify(add).or_insert(*times);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PU 1 is others' for half of the time, and groups come back after 0.2 s, then after 0.4 s; later it is forgotten. On PU 0 the
    /// tasks wait for each other, and gain more than they wait for others.
    #[test]
    fn groups_leave_for_longer_each_time() {
        let times = |pu, ran, waited| SharedPu {
            pu: PuNr(pu),
            over: Nanos::from_millis(100),
            ran: Nanos::from_millis(ran),
            waited: Nanos::from_millis(waited),
        };
        let mut crowded = CrowdedPus::default();
        let mut left = |ms, shared: &[SharedPu]| {
            let at = Nanos::from_millis(ms);
            let known = |pu| Some(if pu == PuNr(0) { (0.2, 0.3) } else { (0.0, 0.3) });
            let is_left = crowded.note(at, shared, &[], known);
            (is_left, crowded.at(at).collect::<Vec<_>>())
        };
        let (none, one) = ((false, vec![]), (true, vec![PuNr(1)]));
        assert_eq!(left(100, &[times(0, 55, 300), times(1, 75, 300)]), none);
        assert_eq!(left(200, &[times(1, 50, 60)]), one);
        assert_eq!(left(399, &[]), (false, vec![PuNr(1)]));
        assert_eq!(left(400, &[times(1, 50, 10)]), none);
        // The last 20 ms count: of two readings one was others', and both together were not.
        let others = SharedPu { over: Nanos::from_millis(20), ..times(1, 0, 20) };
        let short = SharedPu { over: Nanos::from_millis(10), ..times(1, 0, 10) };
        assert_eq!(left(400, &[others, times(1, 100, 20)]), none);
        assert_eq!(left(400, &[times(1, 100, 20), short]), none);
        assert_eq!(left(500, &[times(1, 100, 20), others]), one, "until 900");
        assert_eq!(left(900, &[]), none);
        assert_eq!(left(1_700, &[times(1, 50, 60)]), one, "until 1,900");
        assert_eq!(left(1_900, &[]), none);
    }

    /// The tasks gain 0.8 by sharing a PU, and others have theirs for half of the time: another PU
    /// without a group is as good, until it is crowded too.
    #[test]
    fn another_pu_is_as_good() {
        let mut crowded = CrowdedPus::default();
        let mut left = |ms, pu, free| {
            let [over, ran, waited] = [50, 25, 25].map(Nanos::from_millis);
            let times = SharedPu { pu: PuNr(pu), over, ran, waited };
            crowded.note(Nanos::from_millis(ms), &[times], &[PuNr(free)], |_| Some((0.0, 0.8)))
        };
        assert!(left(100, 0, 1) && !left(150, 1, 0));
        assert!(left(300, 1, 0), "PU 0 is tried again");
    }
}
