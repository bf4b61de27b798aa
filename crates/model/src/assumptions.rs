//! What the model assumes without measurement: parameters, and the ensemble of them that every
//! comparison is run over.
//!
//! A result that depends on one of them is none. [`Assumptions::grid`] tries all ends of the model's own
//! parameters; [`Assumptions::sample`] draws from all of them and from the guesses that replace what is
//! not known of programs.

use crate::phase::{Guessed, Guesses, Plausible};
use crate::rng::SplitMix64;
use colocate_machine::calibrated::{Calibration, Figure, What};
use serde::{Deserialize, Serialize};

/// What siblings get an equal part of while they compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// Progress: each gets the same fraction of the rate that it has alone.
    Progress,
    /// Front-end slots.
    Slots,
}

/// One choice of all of them; by default the middle of each range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Assumptions {
    /// What siblings share equally.
    pub fairness: Fairness,
    /// Front-end slots a cycle more (or fewer) than described.
    pub width: f64,
    /// How well siblings use a task's stalls, 0 to 1. 0: by chance, a task is stalled whatever the others
    /// do. 1: as well as can be, work falls wherever there is room. Out-of-order cores are in between.
    pub overlap: f64,
    /// Factor on every bandwidth.
    pub bandwidth: f64,
    /// Factor on every latency beyond the first cache.
    pub latency: f64,
    /// Factor on every wait at a cache, controller or link.
    pub wait: f64,
    /// Which lines a cache gives up whose replacement is adaptive or unknown: 0 as LRU, ½ any, 1 mostly new
    /// ones.
    pub replacement: f64,
    /// What replaces unknown components of a demand vector.
    pub guesses: Guesses,
}

/// Equal progress came closest to two simulators that were written by others, and chance was 4 to 5 %
/// pessimistic beside one of them (the feasibility study; docs/method/validation.md has what is checked now).
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

/// Sources contradict each other by a slot: LLVM's tables say 4 where manuals say 5.
const WIDTH: Plausible = Plausible { least: -1.0, usual: 0.0, most: 1.0 };
const OVERLAP: Plausible = Plausible { least: 0.0, usual: 0.5, most: 1.0 };
/// Chosen: figures for memory are often remembered, and differ with the modules that are plugged in.
const FACTOR: Plausible = Plausible { least: 0.8, usual: 1.0, most: 1.2 };
/// The curve was fitted on controllers of DDR4 ([`crate::memory`]). Chosen: half and twice of it for others, for buses, links and
/// caches.
const WAIT: Plausible = Plausible { least: 0.5, usual: 1.0, most: 2.0 };
/// From what protects nothing from data that passes to what protects as well as it can; see
/// [`crate::cache::chance`].
const REPLACEMENT: Plausible = Plausible { least: 0.0, usual: 0.5, most: 1.0 };

/// The ranges of what is assumed of a machine's figures. Those of a machine that was measured are narrower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Of [`Assumptions::width`].
    pub width: Plausible,
    /// Of [`Assumptions::bandwidth`].
    pub bandwidth: Plausible,
    /// Of [`Assumptions::latency`].
    pub latency: Plausible,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { width: WIDTH, bandwidth: FACTOR, latency: FACTOR }
    }
}

impl Ranges {
    /// The ranges that the intervals of measured figures leave. What was not measured keeps its default range.
    #[must_use]
    pub fn measured(by: &Calibration) -> Self {
        let widest = |of: fn(&What) -> bool, or: Plausible| {
            let found = by.figures.iter().filter(|figure| of(&figure.what));
            let reach = found.map(Figure::reach).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            reach.map_or(or, |(least, most)| Plausible { least, usual: 1.0, most })
        };
        let slots = by.figures.iter().find(|figure| matches!(figure.what, What::Slots { .. }));
        let slots = slots.map(|it| Plausible {
            least: it.low - it.value,
            usual: 0.0,
            most: it.high - it.value,
        });
        let is_latency =
            |what: &What| matches!(what, What::CacheLatency { .. } | What::MemoryLatency { .. });
        let is_capacity = |what: &What| matches!(what, What::MemoryCapacity { .. });
        let is_bandwidth = |what: &What| matches!(what, What::MemoryBandwidth { .. });
        Self {
            width: slots.unwrap_or(WIDTH),
            bandwidth: widest(is_capacity, widest(is_bandwidth, FACTOR)),
            latency: widest(is_latency, FACTOR),
        }
    }
}

impl Assumptions {
    /// The default ones first, then every combination of the least, the default and the most of the model's
    /// own parameters but waits and the replacement: 162 in all, in the same order always. Guesses are the default ones.
    #[must_use]
    pub fn grid() -> Vec<Self> {
        let ends = |range: Plausible| [range.usual, range.least, range.most];
        let mut all = Vec::new();
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

    /// The default ones first, then others drawn from all ranges, guesses included: `count` in all, the same
    /// for the same seed.
    ///
    /// Each range is cut into as many parts as there are draws, and every part is drawn from once (a Latin
    /// hypercube: McKay, Beckman and Conover, Technometrics 1979), so that few draws cover every range.
    #[must_use]
    pub fn sample(count: usize, seed: u64) -> Vec<Self> {
        Self::sample_in(Ranges::default(), count, seed)
    }

    /// As [`Assumptions::sample`], with these ranges of the machine's figures.
    #[must_use]
    pub fn sample_in(ranges: Ranges, count: usize, seed: u64) -> Vec<Self> {
        let mut rng = SplitMix64::new(seed);
        let draws = count.saturating_sub(1);
        let mut all = vec![Self::default(); count];
        let mut each = |set: &mut dyn FnMut(&mut Self, f64)| {
            let places = places(draws, &mut rng);
            all.iter_mut().skip(1).zip(places).for_each(|(one, place)| set(one, place));
        };
        each(&mut |one, place| {
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
        // Last, so that all others are drawn as they were before there were these.
        each(&mut |one, place| one.replacement = REPLACEMENT.at(place));
        each(&mut |one, place| one.wait = WAIT.at(place));
        all
    }
}

/// One place in each of `count` equal parts of 0 to 1, in random order.
fn places(count: usize, rng: &mut SplitMix64) -> Vec<f64> {
    #[allow(clippy::cast_precision_loss)] // fewer than 2^53 draws
    let mut places: Vec<f64> =
        (0..count).map(|part| (part as f64 + rng.unit()) / count as f64).collect();
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
        let figure = |what: What, (low, value, high): (f64, f64, f64)| Figure {
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
            figure(What::CacheLatency { level: 1 }, (1.9, 2.0, 2.02)),
            figure(What::MemoryLatency { from: None, to: None }, (99.0, 100.0, 110.0)),
            figure(What::Slots { kind: "core".into() }, (5.5, 6.0, 6.25)),
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
