//! The last phases of a row, one character a time slot.

use crate::timeline::Timeline;
use colocate_machine::Nanos;
use colocate_policy::schedule::phases::JobPhase;

/// Characters of a picture.
pub const WIDTH: usize = 20;

/// Phases of the `last` before `at`: `-` serial, `=` parallel, `.` asleep, a space if unknown.
pub fn picture(timeline: &Timeline, at: Nanos, last: Nanos) -> String {
    let slot = last.0 / WIDTH as u64;
    let of_slot = |back: u64| {
        // The middle of the slot represents it.
        let middle = at.0.checked_sub(back * slot - slot / 2)?;
        let within = timeline.backwards().find(|it| it.from.0 <= middle)?;
        (middle < within.to.0).then_some(within.phase)
    };
    let marks = (1..=WIDTH as u64).rev().map(|back| match of_slot(back) {
        Some(JobPhase::Serial) => '-',
        Some(JobPhase::Parallel) => '=',
        Some(JobPhase::Asleep) => '.',
        None => ' ',
    });
    marks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 1,000 ms on 500 ms each serial, parallel, unknown, asleep; seen at 3,000 ms, 150 and 100 ms a character.
    #[test]
    fn by_hand() {
        let mut timeline = Timeline::default();
        for (number, runnable) in [Some(1.0), Some(3.0), None, Some(0.0)].into_iter().enumerate() {
            let from = Nanos::from_millis(1_000 + 500 * number as u64);
            timeline.ran(from, from + Nanos::from_millis(500), runnable);
        }
        let at = |ms, last| picture(&timeline, Nanos::from_millis(ms), Nanos::from_millis(last));
        assert_eq!(at(3_000, 2_000), "-----=====     .....");
        assert_eq!(at(3_000, 3_000), "       ---===    ...");
        assert_eq!(at(1_000, 2_000), " ".repeat(WIDTH));
        assert_eq!(picture(&Timeline::default(), Nanos::ZERO, Nanos(1)), " ".repeat(WIDTH));
    }

    /// A change every 100 ms, for an hour.
    #[test]
    fn of_a_long_course() {
        for mut timeline in [Timeline::default(), Timeline::keeping(0)] {
            for look in 0..36_000 {
                let from = Nanos::from_millis(100 * look);
                let runnable = if look % 2 == 0 { 1.0 } else { 3.0 };
                timeline.ran(from, from + Nanos::from_millis(100), Some(runnable));
            }
            let (at, last) = (Nanos::from_secs(3_600), Nanos::from_secs(2));
            assert_eq!(picture(&timeline, at, last), "-=".repeat(WIDTH / 2));
        }
    }
}
