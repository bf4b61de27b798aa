//! For how long tasks were placed, and where: on which PUs by our doing, not as planned.

use colocate_act::journal::Mark;
use colocate_machine::Nanos;

/// Placement times of a task.
#[derive(Clone, Debug, Default)]
pub struct PlacedTimes {
    /// Current placement and its beginning, on the kernel's clock.
    now: Option<(Mark, Nanos)>,
    past: Vec<(Mark, Nanos)>,
}

impl PlacedTimes {
    /// Records the placement from `at` on; `None` if unplaced. Returns the change in the number of
    /// placed tasks: -1, 0 or 1.
    fn note(&mut self, at: Nanos, place: Option<Mark>) -> i32 {
        let before = self.now.map(|(mark, _)| mark);
        if before == place {
            return 0;
        }
        self.past = self.until(at);
        self.now = place.map(|mark| (mark, at));
        i32::from(place.is_some()) - i32::from(before.is_some())
    }

    /// Time at each place until `at`.
    pub fn until(&self, at: Nanos) -> Vec<(Mark, Nanos)> {
        let mut all = self.past.clone();
        if let Some((mark, since)) = self.now {
            let lasted = at.saturating_sub(since);
            match all.iter_mut().find(|(place, _)| *place == mark) {
                Some((_, time)) => *time += lasted,
                None => all.push((mark, lasted)),
            }
        }
        all
    }
}

/// Time for which at least one task was placed.
#[derive(Debug, Default)]
pub struct AnyPlaced {
    tasks: i32,
    since: Nanos,
    past: Nanos,
}

impl AnyPlaced {
    /// Notes where a task is placed from `at` on.
    pub fn note(&mut self, task: &mut PlacedTimes, at: Nanos, place: Option<Mark>) {
        let change = task.note(at, place);
        if change > 0 && self.tasks == 0 {
            self.since = at;
        }
        if change < 0 && self.tasks == 1 {
            self.past = self.until(at);
        }
        self.tasks += change;
    }

    /// Time until `at`.
    pub fn until(&self, at: Nanos) -> Nanos {
        let lasts = if self.tasks > 0 { at.saturating_sub(self.since) } else { Nanos::ZERO };
        self.past + lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::PuNr;

    /// One task is on PU 0 from 1 to 3 and from 6 to 9, and on PU 1 from 3 to 4; another one on PU 1 from 2 to 5.
    #[test]
    fn times_by_hand() {
        let (mut any, mut one, mut other) =
            (AnyPlaced::default(), PlacedTimes::default(), PlacedTimes::default());
        let (a, b) = (Some(Mark::On(PuNr(0))), Some(Mark::On(PuNr(1))));
        let steps = [(1, true, a), (2, false, b), (2, true, a), (3, true, b), (4, true, None)];
        let more = [(5, false, None), (6, true, a)];
        for (at, is_one, place) in steps.into_iter().chain(more) {
            any.note(if is_one { &mut one } else { &mut other }, Nanos(at), place);
        }
        let on = |pu, time| (Mark::On(PuNr(pu)), Nanos(time));
        assert_eq!(one.until(Nanos(9)), [on(0, 5), on(1, 1)]);
        assert_eq!(other.until(Nanos(9)), [on(1, 3)]);
        assert_eq!(any.until(Nanos(9)), Nanos(7), "from 1 to 5 and from 6 to 9");
    }
}
