//! Samples of a job's speed alone, by signature.
//!
//! # Problem
//! Programs have phases, and the speed alone in one phase says little about another: an estimate is
//! stale when the next phase begins.
//! # Approach
//! Quanta with cores of its own are kept as samples of a job. Beside other jobs, its speed alone is
//! taken from the samples that are most similar. A quantum may hold the end of one phase and the
//! beginning of another. Cycles and requests add up, so both lie between those of two samples, at
//! the same part of the way.
//! # Terms
//! - *Signature*: requests per instruction to the two counted levels of the hierarchy nearest to
//!   the core, up to a constant factor: t/µs over instructions per cycle. The first level depends
//!   on the program alone. The second also depends on siblings on the core, so its weight is
//!   [`SECOND`]. Requests to farther levels depend on all neighbours, and do not count.
//! - *Sample*: a signature, and the cycles per instruction alone.
//! - *Off*: distance of a signature from the nearest point, in parts of the largest requests of
//!   each level.
//! # Algorithm
//! Of all samples and all segments between two, the point nearest to the signature gives the
//! cycles. The distance is in parts of the range of the samples at each level: a level at which all
//! samples are alike does not distinguish phases. There are at most [`MOST`] samples. A new sample
//! replaces the nearest if that is as near as [`SAME`], or if there is no room.
//! # Properties
//! - **Exact** for samples, and for mixtures of two. -> test `mixtures_of_two_are_exact`
//! - **Bounded**: cycles are never below or above those of all samples.
//!   -> test `between_the_samples`
//! - **Neighbours do not count**: more requests to farther levels are the same signature.
//!   -> test `neighbours_do_not_count`
//! - **What differs counts**. -> test `what_differs_counts`
//! - **As the last one** where no requests are counted. -> test `nothing_counted`

use crate::evidence::{LEVELS, QueuedJob};

/// Most samples of a job. Chosen: four phases and mixtures of them.
const MOST: usize = 8;
/// Distance up to which two signatures are the same. Chosen: a few times the noise of counters.
const SAME: f64 = 0.03;

/// Levels in a signature.
const NEAREST: usize = 2;
/// Weight of the second level. Chosen, as [`DIFFERENCE`], by `study feliu-3` with drawn and
/// recorded programs.
const SECOND: f64 = 0.5;
/// Least difference between samples at a level, as a share of the largest requests.
const DIFFERENCE: f64 = 0.1;

/// Requests per instruction to the nearest levels, up to a factor; `None`: fewer are counted.
pub(super) type Signature = [Option<f64>; NEAREST];

/// Signature of a job in its last quantum, at `speed` instructions per cycle.
#[allow(clippy::cast_possible_truncation)] // levels are few
pub(super) fn signature(job: &QueuedJob, speed: f64) -> Signature {
    // From the core outwards; levels that are not counted are skipped.
    let caches = (1..=LEVELS as u8).map(|level| job.to_caches(level));
    let mut counted = caches.chain([job.to_memory()]).flatten();
    std::array::from_fn(|_| counted.next().map(|rate| rate / speed))
}

/// Signature of a quantum alone, and the cycles per instruction there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QuantumSample {
    signature: Signature,
    cycles: f64,
}

impl QuantumSample {
    /// Distance of a signature from the sample, in parts of `scale`.
    fn distance(&self, to: &Signature, scale: &[f64; NEAREST]) -> f64 {
        let difference = difference(&self.signature, to, scale);
        dot(&difference, &difference).sqrt()
    }
}

/// A sample, or a point between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Nearest {
    /// Cycles per instruction at the point.
    pub cycles: f64,
    /// Distance of the signature from the point.
    pub off: f64,
}

/// Samples of a job, at most [`MOST`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobSamples(pub Vec<QuantumSample>);

impl JobSamples {
    /// Adds a sample. True if its signature is new.
    pub fn put(&mut self, signature: Signature, cycles: f64) -> bool {
        let sample = QuantumSample { signature, cycles };
        let scale = self.scale(&signature);
        let is_full = self.0.len() == MOST;
        let away: Vec<f64> =
            self.0.iter().map(|known| known.distance(&signature, &scale)).collect();
        let nearest = (0..away.len()).min_by(|&a, &b| away[a].total_cmp(&away[b]));
        let is_new = nearest.is_none_or(|at| away[at] > SAME);
        match nearest {
            // Of one phase only the newest sample counts; a full list gives up the nearest.
            Some(at) if is_full || !is_new => self.0[at] = sample,
            _ => self.0.push(sample),
        }
        is_new
    }

    /// Point nearest to a signature, of samples and segments between two; `None` without samples.
    pub fn nearest(&self, to: &Signature) -> Option<Nearest> {
        let largest = self.scale(to);
        let differ = self.differ(&largest);
        let pairs = self
            .0
            .iter()
            .enumerate()
            .flat_map(|(at, a)| self.0[at + 1..].iter().map(move |b| (a, b)));
        let between = pairs.map(|(a, b)| on_segment(a, b, to, &differ));
        let points = self.0.iter().cloned().chain(between);
        let nearest =
            points.min_by(|a, b| a.distance(to, &differ).total_cmp(&b.distance(to, &differ)))?;
        // By the largest requests and not by the differences, so that doubt has the same scale
        // always.
        let off = nearest.distance(to, &largest);
        Some(Nearest { cycles: nearest.cycles, off })
    }

    /// Range of the samples at each level, at least [`DIFFERENCE`] of the largest requests.
    fn differ(&self, largest: &[f64; NEAREST]) -> [f64; NEAREST] {
        std::array::from_fn(|level| {
            let mut least = f64::INFINITY;
            let mut most = 0.0_f64;
            for rate in self.0.iter().filter_map(|sample| sample.signature[level]) {
                least = least.min(rate);
                most = most.max(rate);
            }
            (most - least).max(DIFFERENCE * largest[level])
        })
    }

    /// Largest known requests at each level, of the samples and `also`.
    fn scale(&self, also: &Signature) -> [f64; NEAREST] {
        std::array::from_fn(|level| {
            let signatures = self.0.iter().map(|sample| &sample.signature).chain([also]);
            signatures.filter_map(|signature| signature[level]).fold(0.0, f64::max)
        })
    }
}

/// Weighted difference of two signatures by level, in parts of `scale`; 0 where either is unknown.
fn difference(a: &Signature, b: &Signature, scale: &[f64; NEAREST]) -> [f64; NEAREST] {
    let weights = [1.0, SECOND];
    std::array::from_fn(|level| match (a[level], b[level]) {
        // A level without requests distinguishes nothing.
        (Some(a), Some(b)) if scale[level] > 0.0 => weights[level] * (a - b) / scale[level],
        _ => 0.0,
    })
}

/// Dot product.
fn dot(a: &[f64; NEAREST], b: &[f64; NEAREST]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Point nearest to a signature on the segment between two samples.
fn on_segment(
    a: &QuantumSample,
    b: &QuantumSample,
    to: &Signature,
    scale: &[f64; NEAREST],
) -> QuantumSample {
    let along = difference(&b.signature, &a.signature, scale);
    let there = difference(to, &a.signature, scale);
    let length = dot(&along, &along);
    // Between two equal signatures any point is the nearest.
    let part = if length > 0.0 { (dot(&along, &there) / length).clamp(0.0, 1.0) } else { 0.0 };
    let signature =
        std::array::from_fn(|level| Some(between(a.signature[level]?, b.signature[level]?, part)));
    QuantumSample { signature, cycles: between(a.cycles, b.cycles, part) }
}

/// Point between `a` and `b` at `part` of the way.
fn between(a: f64, b: f64, part: f64) -> f64 {
    a + part * (b - a)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use proptest::prelude::*;

    fn of(requests: &[f64; 2]) -> Signature {
        requests.map(Some)
    }

    #[test]
    fn nothing_counted() {
        let mut samples = JobSamples::default();
        assert_eq!(samples.nearest(&[None; 2]), None);
        samples.put([None; 2], 2.0);
        samples.put([None; 2], 3.0);
        assert_eq!(samples.nearest(&of(&[1.0, 2.0])), Some(Nearest { cycles: 3.0, off: 0.0 }));
    }

    /// 3 is a fourth of the way from 2 to 6, where the cycles are 1 and 3.
    #[test]
    fn by_hand() {
        let mut samples = JobSamples::default();
        samples.put(of(&[2.0, 0.0]), 1.0);
        samples.put(of(&[6.0, 0.0]), 3.0);
        assert_eq!(samples.nearest(&of(&[3.0, 0.0])), Some(Nearest { cycles: 1.5, off: 0.0 }));
        assert_eq!(samples.nearest(&of(&[8.0, 0.0])), Some(Nearest { cycles: 3.0, off: 0.25 }));
        samples.put(of(&[6.1, 0.0]), 4.0);
        assert_eq!(samples.0.len(), 2, "6.1 is the same as 6");
        assert_eq!(samples.nearest(&of(&[6.1, 0.0])), Some(Nearest { cycles: 4.0, off: 0.0 }));
    }

    /// Neighbours take room in the caches that are shared, so more is requested of the memory. That
    /// is the same phase.
    #[test]
    fn neighbours_do_not_count() {
        let mut job = testing::queue(&[3.0]).remove(0);
        let mut requests = |caches: [Option<f64>; LEVELS], memory: f64| {
            let traffic = &mut job.threads[0].ran.as_mut().unwrap().traffic;
            (traffic.caches, traffic.memory) = (caches, Some(memory));
            signature(&job, 2.0)
        };
        let alone = requests([Some(8.0), Some(4.0), Some(2.0), None], 1.0);
        assert_eq!(alone, [Some(4.0), Some(2.0)]);
        assert_eq!(requests([Some(8.0), Some(4.0), Some(3.0), None], 2.0), alone);
        assert_eq!(requests([None; LEVELS], 2.0), [Some(1.0), None], "only the memory is counted");
    }

    /// One phase does 8 requests to the first level and 4 to the second, another 6 and 0. A sibling
    /// that takes half of the first cache makes that 6 and 1. By the first level it is the second
    /// phase, or nearly.
    #[test]
    fn what_differs_counts() {
        let mut samples = JobSamples::default();
        samples.put(of(&[8.0, 4.0]), 2.0);
        samples.put(of(&[6.0, 0.0]), 1.0);
        let found = samples.nearest(&of(&[6.0, 1.0])).unwrap();
        // (1, 1/2) along, (0, 1/8) there: 1/16 over 5/4.
        assert!((found.cycles - 1.05).abs() < 1e-12, "{found:?}");
        // 0.1 of 8 off at the first level, 0.8 of 4 at the second, of half the weight.
        assert!((found.off - (0.1 / 8.0_f64).hypot(0.1)).abs() < 1e-12, "{found:?}");
    }

    fn phases() -> impl Strategy<Value = Vec<([f64; 2], f64)>> {
        prop::collection::vec(([0.1_f64..1.0, 0.0_f64..0.1], 0.3_f64..5.0), 1..12)
    }

    proptest! {
        #[test]
        fn mixtures_of_two_are_exact(
            a in ([0.1_f64..0.4, 0.0_f64..0.02], 0.3_f64..5.0),
            b in ([0.6_f64..1.0, 0.03_f64..0.1], 0.3_f64..5.0),
            part in 0.0_f64..=1.0,
        ) {
            let mut samples = JobSamples::default();
            samples.put(of(&a.0), a.1);
            samples.put(of(&b.0), b.1);
            let mixed = |a: f64, b: f64| a * part + b * (1.0 - part);
            let found = samples.nearest(&of(&[mixed(a.0[0], b.0[0]), mixed(a.0[1], b.0[1])])).unwrap();
            prop_assert!((found.cycles - mixed(a.1, b.1)).abs() < 1e-9 && found.off < 1e-9);
        }

        #[test]
        fn between_the_samples(all in phases(), to in [0.0_f64..2.0, 0.0_f64..0.2]) {
            let mut samples = JobSamples::default();
            for (requests, cycles) in &all {
                samples.put(of(requests), *cycles);
            }
            prop_assert!(samples.0.len() <= MOST);
            let found = samples.nearest(&of(&to)).unwrap();
            let cycles = || all.iter().map(|(_, cycles)| *cycles);
            prop_assert!(found.cycles <= cycles().fold(0.0, f64::max) + 1e-12);
            prop_assert!(found.cycles >= cycles().fold(f64::INFINITY, f64::min) - 1e-12);
        }
    }
}
