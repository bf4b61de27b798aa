//! Mixes of programs, drawn so that what they ask of the memory covers the published range.
//!
//! # Terms
//! - *Traffic of a mix*: what all contexts ask for together when each runs as alone: contexts × the mean
//!   traffic of its programs, which take equally long alone. Xu's `IABW`, and what the slides' "average TR_MM of the
//!   workloads" is read as here.
//! - *Load share*: loads and stores of an instruction; what the first cache is asked for follows from it.
//! # Algorithm
//! Programs are drawn with replacement. Where a range of traffic was published it is cut into as many equal
//! parts as there are mixes, and each mix is drawn until its traffic lies in its part. For the published mixes
//! called *balanced*, half of the programs are those that ask most of the first cache; for the others
//! three quarters or one quarter.

use super::program::Program;
use super::{Setup, Spread2};
use crate::replication::StudyError;
use crate::stats::Random;
use colocate_machine::{Machine, PuNr};

/// How often a mix is drawn anew until its traffic lies in its part of the range. Parts are hit about once in
/// twenty draws in the middle, in some thousand at the ends.
const TRIES: u32 = 1_000_000;

/// Programs that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Its name, as `M3`.
    pub name: String,
    /// Places of its programs in what was drawn.
    pub programs: Vec<usize>,
    /// PUs that it has.
    pub pus: Vec<PuNr>,
    /// What all contexts ask of the memory together, t/µs.
    pub traffic: f64,
}

/// The mixes of a set-up.
///
/// # Errors
/// [`StudyError::NoMix`] if none lies in a part of the range.
pub fn draw(
    setup: &Setup,
    machine: &Machine,
    programs: &[Program],
    first_cache: &[f64],
    seed: u64,
) -> Result<Vec<Mix>, StudyError> {
    let mut random = Random::new(seed);
    let order = by_first_cache(first_cache);
    let mut mixes = Vec::new();
    for number in 0..setup.mixes {
        let pus = pus(machine, setup.cores_of(number), setup.pus_per_core);
        let count = pus.len() * setup.programs_per_context;
        let part = setup.traffic.map(|range| part(range, number, setup.mixes));
        let shape = setup.shapes.get(number % setup.shapes.len().max(1));
        let mut drawn = (0..TRIES).map(|_| choose(&mut random, &order, count, shape));
        let traffic = |chosen: &[usize]| traffic(chosen, programs, pus.len());
        let fits = |chosen: &Vec<usize>| {
            part.is_none_or(|[low, high]| (low..high).contains(&traffic(chosen)))
        };
        let chosen = drawn.find(fits);
        let chosen = chosen.ok_or(StudyError::NoMix { wanted: part.unwrap_or_default() })?;
        let traffic = traffic(&chosen);
        let name = format!("M{}", number + 1);
        mixes.push(Mix { name, programs: chosen, pus, traffic });
    }
    Ok(mixes)
}

/// The `number`th of `count` equal parts of a range.
#[allow(clippy::cast_precision_loss)] // a few mixes
fn part([low, high]: Spread2, number: usize, count: usize) -> Spread2 {
    let at = |place: usize| low + (high - low) * place as f64 / count as f64;
    [at(number), at(number + 1)]
}

/// Contexts × the mean traffic of the programs.
#[allow(clippy::cast_precision_loss)] // a few programs
fn traffic(chosen: &[usize], programs: &[Program], contexts: usize) -> f64 {
    let sum = chosen.iter().map(|&place| programs[place].traffic).fold(0.0, |sum, each| sum + each);
    sum / chosen.len() as f64 * contexts as f64
}

/// Places of the programs, who asks most of the first cache first.
fn by_first_cache(first_cache: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..first_cache.len()).collect();
    order.sort_by(|&a, &b| first_cache[b].total_cmp(&first_cache[a]));
    order
}

/// `count` programs of all, or so many parts of four of them of the half that asks most.
fn choose(random: &mut Random, order: &[usize], count: usize, shape: Option<&usize>) -> Vec<usize> {
    let Some(&quarters) = shape else {
        return (0..count).map(|_| order[random.below(order.len())]).collect();
    };
    let (most, least) = order.split_at(order.len() / 2);
    let of_most = count * quarters / 4;
    let from = |place: usize| if place < of_most { most } else { least };
    (0..count).map(|place| from(place)[random.below(from(place).len())]).collect()
}

/// The first PUs of the first cores, so many of each, in logical order.
fn pus(machine: &Machine, cores: usize, each: usize) -> Vec<PuNr> {
    let cores = machine.cores.iter().take(cores);
    let of_core = |core: &colocate_machine::Core| -> Vec<PuNr> {
        core.pus.iter().take(each).map(|pu| machine.pus[pu.idx()].os).collect()
    };
    cores.flat_map(of_core).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Number, program};
    use super::*;
    use crate::testing::machine;

    /// Ten mixes from 20 to 40: the third from 24 to 26.
    #[test]
    fn each_mix_lies_in_its_part() {
        let (machine, performance) = machine("xeon-x3320");
        let programs = program::draw(&machine, &performance, 29, 0).unwrap();
        let setup = &Number::One.setups()[0];
        let mixes = draw(setup, &machine, &programs, &[1.0; 29], 0).unwrap();
        assert_eq!(mixes.len(), 10);
        assert!((24.0..26.0).contains(&mixes[2].traffic), "{}", mixes[2].traffic);
        for mix in &mixes {
            assert_eq!((mix.programs.len(), mix.pus.len()), (8, 4));
            assert!((20.0..40.0).contains(&mix.traffic));
        }
    }

    /// Of twelve programs on all six cores, nine, six or three ask more than most of the first cache.
    #[test]
    fn shapes_are_of_the_first_cache() {
        let (machine, _) = machine("xeon-e5645");
        let rates: Vec<f64> = (0..20_i32).map(f64::from).collect();
        let order = by_first_cache(&rates);
        assert_eq!(order[0], 19);
        for quarters in 0..=4 {
            let chosen = choose(&mut Random::new(3), &order, 12, Some(&quarters));
            let most = chosen.iter().filter(|&&place| place >= 10).count();
            assert_eq!(most, 3 * quarters);
        }
        assert_eq!(pus(&machine, 2, 2), [PuNr(0), PuNr(6), PuNr(1), PuNr(7)]);
    }
}
