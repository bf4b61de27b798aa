//! Parameters assumed without measurement, and the ensemble of parameter sets for each comparison.
//!
//! A result that depends on a single choice of parameters is no result. [`Assumptions::grid`] tries
//! all ends of the model's own parameters. [`Assumptions::sample`] draws from all of them and from
//! the guesses that replace unknown figures of programs.

use crate::phase::{Guessed, Guesses, Plausible};
use crate::rng::SplitMix64;
use colocate_machine::calibrated::{Calibration, Figure, Quantity};
use serde::{Deserialize, Serialize};

/// Quantity that siblings share equally while they compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// Progress: each sibling gets the same fraction of its solo rate.
    Progress,
    /// Front-end slots.
    Slots,
}

/// One set of assumptions; by default the middle of each range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Assumptions {
    /// Quantity that siblings share equally.
    pub fairness: Fairness,
    /// Front-end slots per cycle added to the described width; may be negative.
    pub width: f64,
    /// Use of a task's stalls by its siblings, 0 to 1. 0: at random, tasks stall independently of
    /// each other. 1: ideal, work falls wherever there is room. Out-of-order cores are in between.
    pub overlap: f64,
    /// Factor on each bandwidth.
    pub bandwidth: f64,
    /// Factor on each latency beyond the first cache.
    pub latency: f64,
    /// Factor on each wait at a cache, controller or link.
    pub wait: f64,
    /// Replacement of caches with an adaptive or unknown policy: 0 as LRU, ½ random, 1 mostly
    /// evicting new lines.
    pub replacement: f64,
    /// Figures for unknown components of a demand vector.
    pub guesses: Guesses,
}

/// Equal progress agreed best with two independent simulators; `overlap` 0 was 4 to 5 % pessimistic
/// against one of the two (the feasibility study; docs/method/validation.md has the current checks).
impl Default for Assumptions {
    fn default() -> Self {
        Self {
            fairness: Fairness::Progress,
            width: WIDTH.usual,
            overlap: OVERLAP.usual,
            bandwidth: FACTOR.usual,
            latency: FACTOR.usual,
            wait: WAIT.usual,
            replacement: REPLACEMENT.usual,
            guesses: Guesses::default(),
        }
    }
}

/// Slots per cycle: sources differ by one slot. LLVM's tables give 4 where manuals give 5.
const WIDTH: Plausible = Plausible { least: -1.0, usual: 0.0, most: 1.0 };
/// Use of stalls, as [`Assumptions::overlap`].
const OVERLAP: Plausible = Plausible { least: 0.0, usual: 0.5, most: 1.0 };
/// Factor on figures of memory. Chosen: the figures are often remembered, and vary with the memory
/// modules.
const FACTOR: Plausible = Plausible { least: 0.8, usual: 1.0, most: 1.2 };
/// Factor on waits. The curve was fitted to DDR4 controllers ([`crate::memory`]). Chosen: half and
/// twice for other controllers, buses, links and caches.
const WAIT: Plausible = Plausible { least: 0.5, usual: 1.0, most: 2.0 };
/// From no protection against streaming data to the best possible protection; see
/// [`crate::cache::chance`].
const REPLACEMENT: Plausible = Plausible { least: 0.0, usual: 0.5, most: 1.0 };

/// Ranges for the figures of a machine. Measured machines have narrower ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Range of [`Assumptions::width`], in slots per cycle.
    pub width: Plausible,
    /// Range of [`Assumptions::bandwidth`].
    pub bandwidth: Plausible,
    /// Range of [`Assumptions::latency`].
    pub latency: Plausible,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { width: WIDTH, bandwidth: FACTOR, latency: FACTOR }
    }
}

impl Ranges {
    /// Ranges from the intervals of measured figures; unmeasured figures keep the default range.
    #[must_use]
    pub fn measured(by: &Calibration) -> Self {
        let slots = by.figures.iter().find(|figure| matches!(figure.what, Quantity::Slots { .. }));
        // [`Assumptions::width`] is added to the described width, so its range is a difference.
        let width = slots.map(|it| Plausible {
            least: it.low - it.value,
            usual: 0.0,
            most: it.high - it.value,
        });
        // The bandwidth at saturation if measured, or else the bandwidth that some PUs reached.
        let bandwidth = widest(by, |what| matches!(what, Quantity::MemoryBandwidth { .. }), FACTOR);
        Self {
            width: width.unwrap_or(WIDTH),
            bandwidth: widest(
                by,
                |what| matches!(what, Quantity::MemoryCapacity { .. }),
                bandwidth,
            ),
            latency: widest(by, is_latency, FACTOR),
        }
    }
}

fn is_latency(what: &Quantity) -> bool {
    matches!(what, Quantity::CacheLatency { .. } | Quantity::MemoryLatency { .. })
}

/// Range that covers the intervals of the figures selected by `of`; `or` if none is selected.
fn widest(by: &Calibration, of: fn(&Quantity) -> bool, or: Plausible) -> Plausible {
    let found = by.figures.iter().filter(|figure| of(&figure.what));
    let reach = found.map(Figure::reach).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    // Factors on the measured figure, so the default is 1.
    reach.map_or(or, |(least, most)| Plausible { least, usual: 1.0, most })
}

fn ends(range: Plausible) -> [f64; 3] {
    [range.usual, range.least, range.most]
}

impl Assumptions {
    /// All combinations of the default, the least and the most of the model's own parameters,
    /// without waits and replacement. 162 sets, the default first, always in the same order, with
    /// default guesses.
    #[must_use]
    pub fn grid() -> Vec<Self> {
        let mut all = Vec::new();
        // The default comes first in each list, so the first set has all defaults.
        for fairness in [Fairness::Progress, Fairness::Slots] {
            for width in ends(WIDTH) {
                for overlap in ends(OVERLAP) {
                    for bandwidth in ends(FACTOR) {
                        for latency in ends(FACTOR) {
                            all.push(Self {
                                fairness,
                                width,
                                overlap,
                                bandwidth,
                                latency,
                                ..Self::default()
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// `count` sets drawn from all ranges, guesses included; the first has the defaults. The same
    /// seed gives the same sets.
    ///
    /// Each range is cut into as many parts as there are draws, and each part is drawn from once (a
    /// Latin hypercube: McKay, Beckman and Conover, Technometrics 1979). Few draws thus cover each
    /// range.
    #[must_use]
    pub fn sample(count: usize, seed: u64) -> Vec<Self> {
        Self::sample_in(Ranges::default(), count, seed)
    }

    /// As [`Assumptions::sample`], with `ranges` for the machine's figures.
    #[must_use]
    pub fn sample_in(ranges: Ranges, count: usize, seed: u64) -> Vec<Self> {
        let mut rng = SplitMix64::new(seed);
        // No set is asked for with `count` 0, and there is no first set to keep.
        let draws = count.saturating_sub(1);
        // The first set keeps the defaults.
        let mut all = vec![Self::default(); count];
        let mut each = |set: &mut dyn FnMut(&mut Self, f64)| {
            let places = places(draws, &mut rng);
            all.iter_mut().skip(1).zip(places).for_each(|(one, place)| set(one, place));
        };
        each(&mut |one, place| {
            // Two values, so each has half of the range.
            one.fairness = if place < 0.5 { Fairness::Progress } else { Fairness::Slots };
        });
        each(&mut |one, place| one.width = ranges.width.at(place));
        each(&mut |one, place| one.overlap = OVERLAP.at(place));
        each(&mut |one, place| one.bandwidth = ranges.bandwidth.at(place));
        each(&mut |one, place| one.latency = ranges.latency.at(place));
        for guessed in Guessed::ALL {
            let range = guessed.plausible();
            each(&mut |one, place| one.guesses = one.guesses.with(guessed, range.at(place)));
        }
        // Last: a further parameter before others would change their random numbers.
        each(&mut |one, place| one.replacement = REPLACEMENT.at(place));
        each(&mut |one, place| one.wait = WAIT.at(place));
        all
    }
}

/// One random position in each of `count` equal parts of 0 to 1, in random order.
fn places(count: usize, rng: &mut SplitMix64) -> Vec<f64> {
    let mut places: Vec<f64> =
        (0..count).map(|part| (part as f64 + rng.unit()) / count as f64).collect();
    // In a random order of its own for each parameter: parameters are not correlated.
    rng.shuffle(&mut places);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_once_and_the_usual_first() {
        let grid = Assumptions::grid();
        assert_eq!((grid.len(), grid[0]), (2 * 3 * 3 * 3 * 3, Assumptions::default()));
        for (place, one) in grid.iter().enumerate() {
            assert!(!grid[..place].contains(one), "{one:?}");
        }
    }

    /// Every tenth of a range is drawn from once by eleven members, the first of which is the default.
    #[test]
    fn a_sample_covers_every_range() {
        let sample = Assumptions::sample(11, 7);
        assert_eq!((sample.len(), sample[0]), (11, Assumptions::default()));
        let tenths = |figure: &dyn Fn(&Assumptions) -> f64, range: Plausible| {
            let mut tenths = vec![0; 10];
            for one in &sample[1..] {
                // Both halves of every range tested here are equally long.
                let place = (figure(one) - range.least) / (range.most - range.least);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 10
                let tenth = (place * 10.0) as usize;
                tenths[tenth] += 1;
            }
            assert_eq!(tenths, [1; 10]);
        };
        tenths(&|one| one.width, WIDTH);
        tenths(&|one| one.overlap, OVERLAP);
        tenths(&|one| one.latency, FACTOR);
        tenths(&|one| one.replacement, REPLACEMENT);
        tenths(&|one| one.guesses.get(Guessed::WrittenBack), Guessed::WrittenBack.plausible());
        assert_eq!(sample.iter().filter(|one| one.fairness == Fairness::Slots).count(), 5);
    }

    /// The widest interval of each kind counts.
    #[test]
    fn measured_figures_narrow_ranges() {
        let figure = |what: Quantity, (low, value, high): (f64, f64, f64)| Figure {
            unit: what.unit(),
            what,
            value,
            low,
            high,
            unix_s: 1,
            source: String::new(),
        };
        let mut by = Calibration {
            identity: String::new(),
            kernel: None,
            started_unix_s: 1,
            seconds: 1.0,
            figures: Vec::new(),
            assumed: Vec::new(),
            absent: Vec::new(),
            disagreements: Vec::new(),
        };
        assert_eq!(Ranges::measured(&by), Ranges::default());
        by.figures = vec![
            figure(Quantity::CacheLatency { level: 1 }, (1.9, 2.0, 2.02)),
            figure(Quantity::MemoryLatency { from: None, to: None }, (99.0, 100.0, 110.0)),
            figure(Quantity::Slots { kind: "core".into() }, (5.5, 6.0, 6.25)),
        ];
        let found = Ranges::measured(&by);
        assert_eq!(found.latency, Plausible { least: 0.95, usual: 1.0, most: 1.1 });
        assert_eq!(found.width, Plausible { least: -0.5, usual: 0.0, most: 0.25 });
        assert_eq!(found.bandwidth, FACTOR);
    }

    #[test]
    fn a_sample_keeps_to_narrower_ranges() {
        let latency = Plausible { least: 0.98, usual: 1.0, most: 1.03 };
        let ranges = Ranges { latency, ..Ranges::default() };
        let sample = Assumptions::sample_in(ranges, 21, 3);
        assert!(sample.iter().all(|one| (0.98..=1.03).contains(&one.latency)));
        let wide = Assumptions::sample(21, 3);
        assert!(wide.iter().zip(&sample).all(|(a, b)| a.bandwidth.total_cmp(&b.bandwidth).is_eq()));
    }

    #[test]
    fn the_same_for_the_same_seed() {
        assert_eq!(Assumptions::sample(9, 3), Assumptions::sample(9, 3));
        assert_ne!(Assumptions::sample(9, 3), Assumptions::sample(9, 4));
        assert!(Assumptions::sample(0, 3).is_empty());
        assert_eq!(Assumptions::sample(1, 3), [Assumptions::default()]);
    }

    #[test]
    fn written_and_read() {
        for one in Assumptions::sample(5, 1) {
            let text = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<Assumptions>(&text).unwrap(), one);
        }
        assert_eq!(serde_json::from_str::<Assumptions>("{}").unwrap(), Assumptions::default());
        assert!(serde_json::from_str::<Assumptions>(r#"{"widht": 1.0}"#).is_err());
    }
}
