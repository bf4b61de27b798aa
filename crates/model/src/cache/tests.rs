//! Tests of occupancy: by hand, and what holds of every division of a cache.

use super::*;
use colocate_machine::Bytes;
use proptest::prelude::*;

fn curve(points: &[(u64, f64)]) -> MissCurve {
    MissCurve::new(points.iter().map(|&(size, misses)| (Bytes(size), misses))).expect("a curve")
}

fn near(found: f64, expected: f64) {
    let same = found == expected || (found - expected).abs() <= 1e-9 * expected.abs();
    assert!(same, "expected {expected}, found {found}");
}

/// A tenth of a miss an instruction whatever the size: 64 B · 0.1 = 6.4 bytes an instruction.
#[test]
fn data_that_streams() {
    let stream = curve(&[(1024, 0.1)]);
    near(footprint(&stream, 64.0 * 1e6).bytes, 6.4e6);
    near(window_of(&stream, 6.4e6), 64.0 * 1e6);
    assert_eq!(stream.touched(), f64::INFINITY);
    near(cold_misses(&stream, 1e6, 64.0), 0.0);
}

/// From 1 miss an instruction at 0 to none at 1000 bytes, a straight line: `k` = 1/1000 and
/// `c = 1000 · (1 − exp(−w / 1000))`; half of it after 1000 · ln 2, all of it never.
#[test]
fn data_that_stays() {
    let stays = curve(&[(0, 1.0), (1000, 0.0)]);
    let half = 1000.0 * 2.0_f64.ln();
    near(footprint(&stays, half).bytes, 500.0);
    near(footprint(&stays, half).misses, 0.5);
    near(window_of(&stays, 500.0), half);
    assert_eq!(window_of(&stays, 1000.0), f64::INFINITY);
    near(footprint(&stays, f64::INFINITY).bytes, 1000.0);
    near(stays.touched(), 1000.0);
    // All of it comes back once, line by line.
    near(cold_misses(&stays, 1000.0, 50.0), 20.0);
    // With half of it: 500 bytes are 10 lines, and at half a miss an instruction a window of 1000 · ln 2 bytes has
    // 346.6 bytes' worth of usual misses.
    near(cold_misses(&stays, 500.0, 50.0), (500.0 - 500.0 * 2.0_f64.ln()) / 50.0);
}

/// The first of two streams is three times as fast, so three quarters of the cache are its own.
#[test]
fn streams_divide_by_speed() {
    let stream = curve(&[(1024, 0.1)]);
    let of = |speed| Sharer { curve: &stream, speed, elsewhere: 0.0, chance: 0.0 };
    let held = occupancy(8e6, &[of(3e9), of(1e9)]);
    near(held[0], 6e6);
    near(held[1], 2e6);
}

/// A loop over 6 MB that misses once in 10 instructions until all fits, and a stream of as many misses:
/// both touch 0.1 of a byte's worth an instruction until 8 MB are full: 4 MB each; the loop misses all.
#[test]
fn a_stream_drowns_a_loop() {
    let stream = curve(&[(1024, 0.1)]);
    let cliff = curve(&[(5_999_000, 0.1), (6_000_000, 0.0)]);
    let of = |curve, speed| Sharer { curve, speed, elsewhere: 0.0, chance: 0.0 };
    let held = occupancy(8e6, &[of(&cliff, 1e9), of(&stream, 1e9)]);
    near(held[0], 4e6);
    near(cliff.at(held[0]), 0.1);
    // Four times as fast the loop has its 6 MB before the stream has more than 2.
    let held = occupancy(8e6, &[of(&cliff, 4e9), of(&stream, 1e9)]);
    assert!(held[0] > 5.99e6, "{held:?}");
    near(held[0] + held[1], 8e6);
}

/// All that is ever touched fits: every task has it, and the rest stays empty.
#[test]
fn what_fits_is_not_divided() {
    let small = curve(&[(0, 0.5), (1000, 0.0)]);
    let of = |speed| Sharer { curve: &small, speed, elsewhere: 0.0, chance: 0.0 };
    assert_eq!(occupancy(2000.0, &[of(1.0), of(1e9)]), [1000.0, 1000.0]);
    // A task that makes no progress holds nothing, and leaves its place to others.
    assert_eq!(occupancy(1500.0, &[of(0.0), of(1e9)]), [0.0, 1000.0]);
    assert!(occupancy(1500.0, &[]).is_empty());
}

/// An exclusive cache of 8 MB behind private ones of 1 MB: two equal streams hold 4 MB of it each, which
/// are the 4 MB behind the first.
#[test]
fn exclusive_holds_what_is_not_nearer() {
    let stream = curve(&[(1024, 0.1)]);
    let of = |speed| Sharer { curve: &stream, speed, elsewhere: 1e6, chance: 0.0 };
    let held = occupancy(8e6, &[of(1e9), of(1e9)]);
    near(held[0], 4e6);
    // 5 MB of footprint in the same window is 1 MB nearer and 4 MB here.
    near(reach(8e6, &[of(1e9), of(1e9)], 0.0), 5e6 / 0.1 / 1e9);
    // One whose data is all nearer holds nothing here.
    let small = curve(&[(0, 0.5), (1_000_000, 0.0)]);
    let alone = Sharer { curve: &small, speed: 1e9, elsewhere: 1e6, chance: 0.0 };
    assert_eq!(alone.alone(8e6), 0.0);
}

/// Curves with a few points, level parts, cliffs and an end or none.
fn any_curve() -> impl Strategy<Value = MissCurve> {
    let falls = prop::collection::vec((1_u64..4_000_000, 0.0_f64..1.0), 1..6);
    (1e-4_f64..0.2, falls, prop::bool::ANY).prop_map(|(first, falls, ends)| {
        let (mut size, mut misses) = (0, first);
        let mut points = vec![(Bytes(size), misses)];
        for (step, kept) in falls {
            size += step;
            misses *= if kept < 0.2 { 1.0 } else { kept };
            points.push((Bytes(size), misses));
        }
        if ends {
            points.push((Bytes(size + 1), 0.0));
        }
        MissCurve::new(points).expect("a curve")
    })
}

proptest! {
    #[test]
    fn footprint_and_window_are_inverse(curve in any_curve(), share in 0.01_f64..0.99) {
        let bytes = share * curve.touched().min(1e8);
        let there = footprint(&curve, window_of(&curve, bytes));
        prop_assert!((there.bytes / bytes - 1.0).abs() < 1e-6, "{} {}", there.bytes, bytes);
        let slack = 1e-6 * curve.at(0.0);
        prop_assert!((there.misses - curve.at(bytes)).abs() < slack.max(1e-3 * curve.at(bytes)));
    }

    #[test]
    fn never_above_capacity_and_full_or_all_held(
        tasks in prop::collection::vec((any_curve(), 1e6_f64..1e12, 0.0_f64..1e6), 1..6),
        capacity in 1e4_f64..3e7,
        near in 0.0_f64..1.0,
    ) {
        let sharers: Vec<_> = tasks.iter().map(|(curve, speed, elsewhere)|
            Sharer { curve, speed: *speed, elsewhere: *elsewhere, chance: 0.0 }).collect();
        let time = reach(capacity, &sharers, near);
        let held: f64 = sharers.iter().map(|sharer| sharer.after(time).bytes).sum();
        let all: f64 = sharers.iter().map(|sharer| sharer.alone(f64::INFINITY)).sum();
        prop_assert!((held / all.min(capacity) - 1.0).abs() < 1e-6 || all == 0.0, "{held} {all} {capacity}");
    }

    #[test]
    fn order_changes_nothing(
        tasks in prop::collection::vec((any_curve(), 1e6_f64..1e12), 2..6),
        capacity in 1e4_f64..3e7,
    ) {
        let of = |(curve, speed): &'_ (MissCurve, f64)| (curve.clone(), *speed);
        let forth: Vec<_> = tasks.iter().map(of).collect();
        let held = |tasks: &[(MissCurve, f64)]| {
            let sharers: Vec<_> = tasks.iter().map(|(curve, speed)|
                Sharer { curve, speed: *speed, elsewhere: 0.0, chance: 0.0 }).collect();
            occupancy(capacity, &sharers)
        };
        let mut back = forth.clone();
        back.reverse();
        let mut there = held(&back);
        there.reverse();
        for (a, b) in held(&forth).iter().zip(&there) {
            prop_assert!((a - b).abs() <= 1e-6 * capacity, "{a} {b}");
        }
    }

    #[test]
    fn a_faster_task_holds_no_less(
        curve in any_curve(), other in any_curve(), speed in 1e6_f64..1e12,
        others in 1e6_f64..1e12, more in 1.0_f64..10.0, capacity in 1e4_f64..3e7,
    ) {
        let held = |speed| {
            let it = Sharer { curve: &curve, speed, elsewhere: 0.0, chance: 0.0 };
            occupancy(capacity, &[it, Sharer { curve: &other, speed: others, elsewhere: 0.0, chance: 0.0 }])
        };
        prop_assert!(held(speed * more)[0] >= held(speed)[0] - 1e-6 * capacity);
        prop_assert!(held(speed * more)[1] <= held(speed)[1] + 1e-6 * capacity);
    }

    #[test]
    fn cold_misses_are_at_most_the_lines(curve in any_curve(), bytes in 1.0_f64..3e7) {
        let cold = cold_misses(&curve, bytes, 64.0);
        prop_assert!((0.0..=bytes / 64.0 * (1.0 + 1e-9)).contains(&cold), "{cold} {bytes}");
    }
}
