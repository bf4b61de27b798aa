//! Patterns that the predictor learns, and patterns that it cannot learn.

use crate::predictor::Predictor;

/// Mispredictions in the second half of `branches`, pairs of address and direction.
fn missed(branches: impl Iterator<Item = (u64, bool)>) -> f64 {
    let all: Vec<_> = branches.collect();
    let mut predictor = Predictor::new();
    let mut wrong = 0;
    for (place, (address, taken)) in all.iter().enumerate() {
        let right = predictor.decided(*address, *taken);
        wrong += usize::from(!right && place >= all.len() / 2);
    }
    wrong as f64 / (all.len() - all.len() / 2) as f64
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn what_repeats_is_learnt() {
    assert_eq!(missed((0..4_000).map(|_| (0x40, true))), 0.0);
    // A loop of 20 rounds, and a pattern of 24 that depends on two dozen branches before.
    assert!(missed((0..40_000).map(|i| (0x40, i % 20 != 19))) < 0.001);
    let pattern = 0b1011_0001_1101_0010_1110_0101_u32;
    assert!(missed((0..100_000).map(|i| (0x80, pattern >> (i % 24) & 1 == 1))) < 0.01);
}

/// The first branch is random; the second has the same direction.
#[test]
fn what_another_branch_decides_is_learnt() {
    let mut state = 7;
    let pairs = (0..50_000).flat_map(|_| {
        let taken = random(&mut state) & 1 == 1;
        [(0x40, taken), (0x90, taken)]
    });
    let found = missed(pairs);
    assert!((0.23..0.30).contains(&found), "{found}");
}

#[test]
fn chance_cannot_be_guessed() {
    let mut state = 7;
    let found = missed((0..100_000).map(|_| (0x40, random(&mut state) & 1 == 1)));
    assert!((0.45..0.55).contains(&found), "{found}");
    let found = missed((0..100_000).map(|_| (0x40, random(&mut state).is_multiple_of(10))));
    assert!((0.09..0.15).contains(&found), "{found}");
}

#[test]
fn targets_are_learnt_from_the_way_to_them() {
    let mut predictor = Predictor::new();
    let wrong = |targets: &mut dyn FnMut(usize) -> u64, predictor: &mut Predictor| {
        let wrong = |place: &usize| !predictor.led(0x40, targets(*place));
        (0..20_000).filter(wrong).filter(|place| *place >= 10_000).count()
    };
    assert_eq!(wrong(&mut |_| 0x1000, &mut predictor), 0);
    assert!(wrong(&mut |place| 0x1000 + 64 * (place as u64 % 5), &mut predictor) < 20);
    let mut state = 7;
    let found = wrong(&mut |_| 0x1000 + 64 * (random(&mut state) % 4), &mut predictor);
    assert!((7_000..8_000).contains(&found), "{found}");
}
