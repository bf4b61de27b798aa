//! Distances give the misses of LRU caches.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // helpers, small numbers

use crate::distances::{Distances, FAR, FRONT, MIDDLE, Misses};
use crate::recency::{CacheLine, Recency, mix};
use std::collections::{BTreeMap, HashMap};

/// Misses and written evicted lines of a simulated LRU cache of `lines` lines.
fn simulated(accesses: &[(u64, bool)], lines: usize) -> (u64, u64) {
    let mut last_use: HashMap<u64, (u64, bool)> = HashMap::new();
    let mut by_use = BTreeMap::new();
    let (mut misses, mut given_up) = (0, 0);
    for (now, &(line, written)) in (0..).zip(accesses) {
        let before = last_use.remove(&line);
        if let Some((then, _)) = before {
            by_use.remove(&then);
        } else {
            misses += 1;
        }
        last_use.insert(line, (now, written || before.is_some_and(|(_, written)| written)));
        by_use.insert(now, line);
        if last_use.len() > lines {
            let (_, out) = by_use.pop_first().unwrap();
            given_up += u64::from(last_use.remove(&out).unwrap().1);
        }
    }
    (misses, given_up)
}

fn of(accesses: &[(u64, bool)]) -> Misses {
    let mut distances = Distances::new();
    for &(line, written) in accesses {
        distances.access(CacheLine::new(line, written));
    }
    distances.counts().misses()
}

/// Random accesses to `lines` lines; lines of smaller numbers are more frequent.
fn accesses(count: u64, lines: f64, seed: u64) -> Vec<(u64, bool)> {
    let chance = |number: u64| (mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
    let one = |at: u64| {
        let line = lines * chance(seed + 2 * at).powi(3);
        (line as u64, chance(seed + 2 * at + 1) < 0.3)
    };
    (0..count).map(one).collect()
}

fn at(misses: &Misses, lines: usize) -> u64 {
    let below = |(size, _): &(u64, u64)| *size <= lines as u64;
    misses.by_lines[misses.by_lines.partition_point(below) - 1].1
}

#[test]
fn equals_a_simulated_cache() {
    let accesses = accesses(100_000, 30_000.0, 1);
    let found = of(&accesses);
    assert_eq!(found.by_lines[0], (0, 100_000));
    // Sizes at which a bucket of distances begins.
    for lines in [1, 2, 7, 15, 16, 18, 20, 64, 1024, 4096, 5120, 16_384] {
        assert_eq!(at(&found, lines), simulated(&accesses, lines).0, "{lines} lines");
    }
    let cache = FRONT + MIDDLE;
    assert_eq!(found.left_written, simulated(&accesses, cache).1);
    assert_eq!(found.left, simulated(&accesses, cache).0 - cache as u64);
}

#[test]
fn more_cache_never_means_more_misses() {
    for lines in [10.0, 1000.0, 1e5, 1e7] {
        let found = of(&accesses(100_000, lines, 7)).by_lines;
        assert!(found.is_sorted_by(|a, b| a.0 < b.0 && a.1 >= b.1), "{found:?}");
    }
}

/// Cyclic accesses to 100,000 lines, three times the sample, which all miss in a smaller cache; and
/// random accesses.
#[test]
fn sampled_distances_are_near() {
    let round = 3 * FAR as u64 + 1696;
    let rounds: Vec<_> = (0..4 * round).map(|at| (at % round, false)).collect();
    let found = of(&rounds);
    assert_eq!(at(&found, 65_536), 4 * round);
    let rest = at(&found, 131_072) as f64 / round as f64;
    assert!((rest - 1.0).abs() < 0.02, "{rest}");

    let random = accesses(800_000, 3e5, 3);
    let found = of(&random);
    for lines in [8192, 32_768, 131_072] {
        let (exact, near) = (simulated(&random, lines).0 as f64, at(&found, lines) as f64);
        assert!((near / exact - 1.0).abs() < 0.02, "{lines} lines: {near} for {exact}");
    }
}

#[test]
fn nothing_and_one_access() {
    assert_eq!(of(&[]).by_lines, [(0, 0)]);
    assert_eq!(of(&[(5, true)]).by_lines, [(0, 1)]);
    assert_eq!(of(&[(5, true), (5, false)]).by_lines, [(0, 2), (1, 1)]);
}

#[test]
fn lines_above_are_counted_through_every_move() {
    let mut recency = Recency::new(100);
    let mut expected: Vec<u64> = Vec::new();
    for step in 0..20_000 {
        let number = mix(step) % 120;
        let known = recency.find(number);
        let found = known.map(|known| (known, recency.lift(known)));
        let place = expected.iter().position(|other| *other == number);
        let above = place.map(|place| {
            expected.remove(place);
            expected.len() - place
        });
        assert_eq!(found.map(|(_, (_, above))| above), above);
        expected.push(number);
        let line = CacheLine::new(number, false);
        let known = found.map_or_else(|| recency.know(line), |(known, _)| known);
        recency.put(known, line);
        if expected.len() > 100 {
            let lowest = recency.lowest().unwrap();
            recency.lift(lowest);
            assert_eq!(recency.forget(lowest).number(), expected.remove(0));
        }
        assert_eq!(recency.len(), expected.len());
    }
}
