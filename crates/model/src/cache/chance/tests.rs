//! Caches that give up lines by chance: by hand, and beside a cache that is simulated line by line.

use super::*;
use crate::cache::{RANDOM, Sharer, reach};
use crate::rng::SplitMix64;
use colocate_machine::Bytes;
use proptest::prelude::*;

fn curve(points: &[(u64, f64)]) -> MissCurve {
    MissCurve::new(points.iter().map(|&(size, misses)| (Bytes(size), misses))).expect("a curve")
}

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs(),
        "expected {expected}, found {found}"
    );
}

/// Accesses to 1000 bytes at random, a linear curve: under any policy half of the bytes hit half of
/// the time. With `k` = 1/1000 and a life of 1000 bytes' worth of instructions, `M = 1 / (1 + 1)`
/// and `1000 · ½` bytes are held; `d(u / (1 + u/1000))/du = ¼` there.
#[test]
fn any_line_at_any_time() {
    let half = by_chance(&curve(&[(0, 1.0), (1000, 0.0)]), 0.0, 1000.0);
    near(half.misses, 0.5);
    near(half.bytes, 500.0);
    near(half.growth, 0.25);
}

/// A loop over 2 · ln 2 times the capacity: each line waits 2 · ln 2 lives of half as many misses,
/// so `1 − exp(−½ · 2 · ln 2) = ½` are evicted. With LRU all would be.
#[test]
fn round_and_round() {
    let (bytes, fits) = (2.0_f64.ln() * 2e6, 1e6);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0
    let all = bytes as u64;
    let curve = curve(&[(all - 1, 1.0), (all, 0.0)]);
    let it = Sharer { curve: &curve, speed: 1.0, elsewhere: 0.0, chance: RANDOM };
    let found = it.after(reach(fits, &[it], 0.0));
    assert!((found.misses - 0.5).abs() < 1e-5, "{found:?}");
    near(found.bytes, fits);
    let by_use = Sharer { chance: 0.0, ..it };
    near(by_use.after(reach(fits, &[by_use], 0.0)).misses, 1.0);
    // What is taken as both is between.
    let both = Sharer { chance: 0.5 * RANDOM, ..it };
    let misses = both.after(reach(fits, &[both], 0.0)).misses;
    assert!(misses > 0.5 && misses < 1.0, "{misses}");
    // Few new lines: nearly as many stay as fit, so 1 − 1 / (2 · ln 2) of all uses miss, and a few more, by
    // those that are tried instead.
    let few = Sharer { chance: 1.0, ..it };
    let misses = few.after(reach(fits, &[few], 0.0)).misses;
    let least = 1.0 - 0.5 / 2.0_f64.ln();
    assert!(misses > least && misses < least + 0.03, "{misses}");
}

/// Lines that are used once a life miss `(1 − 1/e) / (1 − 15/16 · 1/e)` of the time.
#[test]
fn few_new_lines() {
    let round = curve(&[(999_999, 1.0), (1_000_000, 0.0)]);
    // A window of a sixteenth makes a life of all of it.
    let found = by_admission(&round, 0.0, 1e6 / 16.0);
    let kept = (-1.0_f64).exp();
    let expected = (1.0 - kept) / (1.0 - 15.0 / 16.0 * kept);
    assert!((found.misses - expected).abs() < 1e-5, "{found:?}");
    near(found.bytes, 1e6 / 16.0 * found.misses);
}

/// Streams always miss, and hold lines in proportion to their rates: the first three times as many
/// as the second.
#[test]
fn streams_divide_by_speed() {
    let stream = curve(&[(1024, 0.1)]);
    let of = |speed| Sharer { curve: &stream, speed, elsewhere: 0.0, chance: RANDOM };
    let sharers = [of(3e9), of(1e9)];
    let time = reach(8e6, &sharers, 0.0);
    near(sharers[0].after(time).bytes, 6e6);
    near(sharers[1].after(time).misses, 0.1);
}

/// An exclusive cache behind a cache of 1 MB: random accesses to 2 MB miss the first half of the
/// time. The second keeps a share of these equal to its share of the other megabyte.
#[test]
fn exclusive_keeps_some_of_the_rest() {
    let any = curve(&[(0, 1.0), (2_000_000, 0.0)]);
    let behind = Sharer { curve: &any, speed: 1.0, elsewhere: 1e6, chance: RANDOM };
    let found = behind.after(reach(5e5, &[behind], 0.0));
    near(found.bytes, 5e5);
    near(found.misses, 0.25);
    near(by_chance(&any, 1e6, 0.0).misses, 0.5);
}

/// How a simulated task uses its lines.
#[derive(Clone, Copy, Debug)]
enum Use {
    Round(usize),
    Any(usize),
    /// From the first line up to one that is drawn.
    Sweeps(usize),
    Once,
}

impl Use {
    /// Of lines of a byte and one access an instruction.
    fn curve(self) -> MissCurve {
        match self {
            Self::Round(lines) => curve(&[(lines as u64 - 1, 1.0), (lines as u64, 0.0)]),
            Self::Any(lines) => curve(&[(0, 1.0), (lines as u64, 0.0)]),
            Self::Sweeps(lines) => {
                let point =
                    |part: u64| (part * lines as u64 / 64, 1.0 - (part as f64 / 64.0).powi(2));
                curve(&(0..=64).map(point).collect::<Vec<_>>())
            }
            Self::Once => curve(&[(1, 1.0)]),
        }
    }
}

/// A simulated task.
struct Task {
    uses: Use,
    /// The next line, and where a sweep ends.
    at: usize,
    end: usize,
}

impl Task {
    fn next(&mut self, rng: &mut SplitMix64) -> usize {
        let at = self.at;
        match self.uses {
            Use::Round(lines) => self.at = (at + 1) % lines,
            Use::Any(lines) => self.at = rng.below(lines),
            Use::Once => self.at += 1,
            Use::Sweeps(lines) if at >= self.end => (self.at, self.end) = (0, rng.below(lines)),
            Use::Sweeps(_) => self.at += 1,
        }
        at
    }
}

/// Shares of accesses that miss a cache of `size` lines, any of which is given up for a new one; task by task,
/// each with so many accesses in a turn.
///
/// A line that is missed is kept once in `kept` times.
fn simulated(size: usize, tasks: &[(Use, usize)], kept: usize) -> Vec<f64> {
    const TURNS: usize = 300_000;
    let mut rng = SplitMix64::new(1);
    let mut running: Vec<Task> =
        tasks.iter().map(|&(uses, _)| Task { uses, at: 0, end: 0 }).collect();
    let mut cache = vec![(0, usize::MAX); size];
    let mut there = vec![Vec::new(); tasks.len()];
    let mut missed = vec![0_u32; tasks.len()];
    for turn in 0..TURNS {
        for (t, task) in running.iter_mut().enumerate() {
            for _ in 0..tasks[t].1 {
                let line = task.next(&mut rng);
                if there[t].len() <= line {
                    there[t].resize(2 * line + 1, false);
                }
                if there[t][line] {
                    continue;
                }
                missed[t] += u32::from(turn >= TURNS / 3);
                if rng.below(kept) == 0 {
                    let (whose, old) = std::mem::replace(&mut cache[rng.below(size)], (t, line));
                    if old != usize::MAX {
                        there[whose][old] = false;
                    }
                    there[t][line] = true;
                }
            }
        }
    }
    let accesses = |turns: usize| (TURNS - TURNS / 3) as f64 * turns as f64;
    missed
        .iter()
        .zip(tasks)
        .map(|(&missed, &(_, turns))| f64::from(missed) / accesses(turns))
        .collect()
}

/// Expected and simulated misses of tasks that share a cache of 250 lines. The model gets only their
/// curves.
fn both_ways(tasks: &[(Use, usize)], chance: f64) -> Vec<(f64, f64)> {
    const SIZE: usize = 250;
    let curves: Vec<MissCurve> = tasks.iter().map(|(uses, _)| uses.curve()).collect();
    let sharer = |(curve, &(_, turns)): (_, &(Use, usize))| Sharer {
        curve,
        speed: turns as f64,
        elsewhere: 0.0,
        chance,
    };
    let sharers: Vec<Sharer<'_>> = curves.iter().zip(tasks).map(sharer).collect();
    let time = reach(SIZE as f64, &sharers, 0.0);
    let expected = sharers.iter().map(|sharer| sharer.after(time).misses);
    let kept = if chance > RANDOM { 16 } else { 1 };
    expected.zip(simulated(SIZE, tasks, kept)).collect()
}

/// Within two misses in 100 accesses; nothing is fitted.
#[test]
fn as_caches_that_are_simulated() {
    use Use::{Any, Once, Round};
    let cases: [&[(Use, usize)]; 9] = [
        &[(Round(275), 1)],
        &[(Round(375), 1)],
        &[(Round(1000), 1)],
        &[(Any(375), 1)],
        &[(Any(375), 1), (Once, 1)],
        &[(Round(150), 1), (Once, 1)],
        &[(Round(150), 3), (Once, 1)],
        &[(Round(225), 1), (Round(225), 1)],
        &[(Any(225), 2), (Round(125), 1)],
    ];
    for tasks in cases {
        for (expected, missed) in both_ways(tasks, RANDOM) {
            assert!((expected - missed).abs() < 0.02, "{tasks:?}: {expected} for {missed}");
        }
    }
}

/// Few new lines are kept: a loop keeps as many lines as possible, and a stream next to none.
#[test]
fn few_new_lines_as_simulated() {
    use Use::{Once, Round};
    let cases: [&[(Use, usize)]; 4] = [
        &[(Round(275), 1)],
        &[(Round(500), 1)],
        &[(Round(225), 1), (Once, 1)],
        &[(Round(175), 1), (Round(225), 2)],
    ];
    for tasks in cases {
        for (expected, missed) in both_ways(tasks, 1.0) {
            assert!((expected - missed).abs() < 0.03, "{tasks:?}: {expected} for {missed}");
        }
    }
}

/// A curve shows the amount of other data used since, and the mean time for it. Lines near the end
/// of sweeps of random length wait far longer and others less, which the curve does not show. The
/// predicted misses are too many by some 12 in 100.
#[test]
fn waits_that_differ_from_the_average() {
    let (expected, missed) = both_ways(&[(Use::Sweeps(500), 1)], RANDOM)[0];
    assert!((0.05..0.2).contains(&(expected - missed)), "{expected} for {missed}");
}

proptest! {
    /// Longer lives: more held and less missed; and the growth is that of the bytes.
    #[test]
    fn longer_lives_hold_more(
        falls in prop::collection::vec((1_u64..100_000, 0.0_f64..1.0), 1..6),
        nearer in 0.0_f64..1e5, life in 1.0_f64..1e7, longer in 1.001_f64..100.0,
    ) {
        let (mut size, mut misses) = (0, 0.1);
        let mut points = vec![(size, misses)];
        for (step, kept) in falls {
            size += step;
            misses *= if kept < 0.2 { 0.0 } else { kept };
            points.push((size, misses));
        }
        let curve = curve(&points);
        for of in [by_chance, by_admission] {
            let (short, long) = (of(&curve, nearer, life), of(&curve, nearer, life * longer));
            prop_assert!(long.bytes >= short.bytes * (1.0 - 1e-9), "{short:?} {long:?}");
            prop_assert!(long.misses <= short.misses * (1.0 + 1e-9), "{short:?} {long:?}");
            prop_assert!(short.misses <= curve.at(nearer) * (1.0 + 1e-9));
            let step = life * 1e-4;
            let rise = (of(&curve, nearer, life + step).bytes - short.bytes) / step;
            let slack = 1e-3 * (rise + 0.1 * short.misses);
            prop_assert!((rise - short.growth).abs() <= slack, "{rise} {short:?}");
        }
        let most = (curve.touched() - nearer).max(0.0) * (1.0 + 1e-9) + 1e-9;
        prop_assert!(by_chance(&curve, nearer, life * longer).bytes <= most);
    }
}
