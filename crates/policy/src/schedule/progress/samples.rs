//! What a job does alone, by what it does.
//!
//! # Problem
//! Programs have phases, and how fast a job is alone in one says little of another: an estimate is stale when the next phase
//! begins.
//! # Approach
//! Quanta with cores of its own are kept as samples, each with what the job did there. Beside others it has the speed alone of
//! those samples that it resembles most. A quantum may hold the end of one phase and the beginning of another; cycles and
//! requests of both add up, so the cycles of an instruction are then between those of two samples as the requests are.
//! # Terms
//! - *Signature*: requests for each instruction to each level of the hierarchy, but for a factor that is the same for all quanta:
//!   t/µs over instructions per cycle. Loads and stores depend on the program alone; misses also on the neighbours, but less than
//!   speed does.
//! - *Sample*: a signature with cores of its own, one beside others, and the cycles of an instruction alone. Neighbours take room in
//!   caches, so beside them there are more misses.
//! - *Off*: distance of a signature from what is known, in parts of the largest requests of each level.
//! # Algorithm
//! Of all samples and all segments between two, by their signatures beside others, the nearest to the signature. Its cycles are
//! those at the nearest point of it. The sample that is nearest, if it is as near as [`NEAR`], then moves towards the signature by
//! [`LEARNED`] of the way; at first its signature beside others is that alone.
//! There are at most [`MOST`] samples; a new one takes the place of the nearest one if it is as near as [`SAME`], or if there is
//! no room.
//! # Properties
//! - **Exact** for samples, and for mixtures of two. -> test `mixtures_of_two_are_exact`
//! - **Bounded**: cycles are never below or above those of all samples. -> test `between_the_samples`
//! - **Neighbours are learned**. -> test `neighbours_are_learned`
//! - **As the last one** where no requests are counted. -> test `nothing_counted`

use crate::evidence::{LEVELS, QueuedJob};

/// Most samples of a job. Chosen: four phases and mixtures of them.
const MOST: usize = 8;
/// What is nearer is the same. Chosen: a few times the noise of counters.
const SAME: f64 = 0.03;
/// What is nearer beside others is taken for the same phase. Chosen, as the next one, by three mixes of `study feliu-3`.
const NEAR: f64 = 0.3;
/// Weight of a quantum beside others beside what a sample was like there.
const LEARNED: f64 = 0.3;

/// Requests for each instruction to the caches of each level and to memory; `None` where they are not counted.
pub(super) type Signature = [Option<f64>; LEVELS + 1];

/// The signature of what a job did last, at so many instructions a cycle.
#[allow(clippy::cast_possible_truncation)] // levels are few
pub(super) fn signature(job: &QueuedJob, speed: f64) -> Signature {
    std::array::from_fn(|place| {
        let rate = match place {
            LEVELS => job.to_memory(),
            _ => job.to_caches(place as u8 + 1),
        };
        rate.map(|rate| rate / speed)
    })
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    /// With cores of its own.
    alone: Signature,
    /// Beside others, as far as that was seen.
    beside: Signature,
    cycles: f64,
}

/// A point of the samples, or between two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Nearest {
    /// Cycles of an instruction there.
    pub cycles: f64,
    /// How far off it is.
    pub off: f64,
}

/// A job's samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// Takes in a quantum with cores of its own.
    pub fn put(&mut self, signature: Signature, cycles: f64) {
        let sample = Sample { alone: signature, beside: signature, cycles };
        let (scale, is_full) = (self.scale(&signature), self.0.len() == MOST);
        let distance = |it: &Sample| distance(&it.alone, &signature, &scale);
        let nearest = self.0.iter_mut().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        match nearest {
            Some(nearest) if distance(nearest) <= SAME => {
                *nearest = Sample { beside: nearest.beside, ..sample };
            }
            Some(nearest) if is_full => *nearest = sample,
            _ => self.0.push(sample),
        }
    }

    /// Takes in what a quantum beside others was like: the sample that it resembles is like that beside others.
    pub fn learn(&mut self, beside: &Signature) {
        let scale = self.scale(beside);
        let distance = |it: &Sample| distance(&it.beside, beside, &scale);
        let nearest = self.0.iter_mut().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let Some(nearest) = nearest.filter(|it| distance(it) < NEAR) else { return };
        for (known, seen) in nearest.beside.iter_mut().zip(beside) {
            if let (Some(known), Some(seen)) = (known, seen) {
                *known += LEARNED * (seen - *known);
            }
        }
    }

    /// What is nearest to a signature; `None` without samples.
    pub fn nearest(&self, to: &Signature) -> Option<Nearest> {
        let scale = self.scale(to);
        let alone = self
            .0
            .iter()
            .map(|it| Nearest { cycles: it.cycles, off: distance(&it.beside, to, &scale) });
        let pairs = self
            .0
            .iter()
            .enumerate()
            .flat_map(|(at, a)| self.0[at + 1..].iter().map(move |b| (a, b)));
        let between = pairs.map(|(a, b)| on_segment(a, b, to, &scale));
        alone.chain(between).min_by(|a, b| a.off.total_cmp(&b.off))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest requests of each level that are known.
    fn scale(&self, also: &Signature) -> [f64; LEVELS + 1] {
        let all = || self.0.iter().map(|sample| &sample.beside).chain([also]);
        std::array::from_fn(|level| all().filter_map(|it| it[level]).fold(0.0, f64::max))
    }
}

/// The difference of two signatures by level, in parts of the scale; 0 where one of them is unknown.
fn difference(a: &Signature, b: &Signature, scale: &[f64; LEVELS + 1]) -> [f64; LEVELS + 1] {
    std::array::from_fn(|level| match (a[level], b[level]) {
        (Some(a), Some(b)) if scale[level] > 0.0 => (a - b) / scale[level],
        _ => 0.0,
    })
}

fn distance(a: &Signature, b: &Signature, scale: &[f64; LEVELS + 1]) -> f64 {
    let difference = difference(a, b, scale);
    dot(&difference, &difference).sqrt()
}

fn dot(a: &[f64; LEVELS + 1], b: &[f64; LEVELS + 1]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The point between two samples that is nearest to a signature.
fn on_segment(a: &Sample, b: &Sample, to: &Signature, scale: &[f64; LEVELS + 1]) -> Nearest {
    let along = difference(&b.beside, &a.beside, scale);
    let there = difference(to, &a.beside, scale);
    let length = dot(&along, &along);
    let part = if length > 0.0 { (dot(&along, &there) / length).clamp(0.0, 1.0) } else { 0.0 };
    let off: [f64; LEVELS + 1] = std::array::from_fn(|level| there[level] - part * along[level]);
    Nearest { cycles: a.cycles + part * (b.cycles - a.cycles), off: dot(&off, &off).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(requests: &[f64; 2]) -> Signature {
        [Some(requests[0]), None, None, None, Some(requests[1])]
    }

    #[test]
    fn nothing_counted() {
        let mut samples = Samples::default();
        assert_eq!(samples.nearest(&[None; 5]), None);
        samples.put([None; 5], 2.0);
        samples.put([None; 5], 3.0);
        assert_eq!(samples.nearest(&of(&[1.0, 2.0])), Some(Nearest { cycles: 3.0, off: 0.0 }));
    }

    /// 3 is a fourth of the way from 2 to 6, where the cycles are 1 and 3.
    #[test]
    fn by_hand() {
        let mut samples = Samples::default();
        samples.put(of(&[2.0, 0.0]), 1.0);
        samples.put(of(&[6.0, 0.0]), 3.0);
        assert_eq!(samples.nearest(&of(&[3.0, 0.0])), Some(Nearest { cycles: 1.5, off: 0.0 }));
        assert_eq!(samples.nearest(&of(&[8.0, 0.0])), Some(Nearest { cycles: 3.0, off: 0.25 }));
        samples.put(of(&[6.1, 0.0]), 4.0);
        assert_eq!(samples.0.len(), 2, "6.1 is the same as 6");
        assert_eq!(samples.nearest(&of(&[6.0, 0.0])), Some(Nearest { cycles: 4.0, off: 0.0 }));
    }

    /// Two phases with 2 and 4 requests alone, and half as many again beside others: so the second is taken for the first at
    /// first, until both are known by what they are there.
    #[test]
    fn neighbours_are_learned() {
        let mut samples = Samples::default();
        samples.put(of(&[2.0, 0.0]), 1.0);
        samples.put(of(&[4.0, 0.0]), 3.0);
        let cycles = |samples: &Samples, requests: f64| {
            samples.nearest(&of(&[requests, 0.0])).unwrap().cycles
        };
        assert!((cycles(&samples, 3.0) - 2.0).abs() < 1e-12);
        for _ in 0..20 {
            samples.learn(&of(&[6.0, 0.0]));
            samples.learn(&of(&[3.0, 0.0]));
        }
        assert!((cycles(&samples, 3.0) - 1.0).abs() < 0.1);
        assert!((cycles(&samples, 6.0) - 3.0).abs() < 0.1);
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
            let mut samples = Samples::default();
            samples.put(of(&a.0), a.1);
            samples.put(of(&b.0), b.1);
            let mixed = |a: f64, b: f64| a * part + b * (1.0 - part);
            let found = samples.nearest(&of(&[mixed(a.0[0], b.0[0]), mixed(a.0[1], b.0[1])])).unwrap();
            prop_assert!((found.cycles - mixed(a.1, b.1)).abs() < 1e-9 && found.off < 1e-9);
        }

        #[test]
        fn between_the_samples(all in phases(), to in [0.0_f64..2.0, 0.0_f64..0.2]) {
            let mut samples = Samples::default();
            all.iter().for_each(|(requests, cycles)| samples.put(of(requests), *cycles));
            prop_assert!(samples.0.len() <= MOST);
            let found = samples.nearest(&of(&to)).unwrap();
            let cycles = || all.iter().map(|(_, cycles)| *cycles);
            prop_assert!(found.cycles <= cycles().fold(0.0, f64::max) + 1e-12);
            prop_assert!(found.cycles >= cycles().fold(f64::INFINITY, f64::min) - 1e-12);
        }
    }
}
