//! Common parts of the measurements of `colocate-study bench` and `calibrate`: the PUs, the order
//! of cells and the end by a signal.
//!
//! # Properties
//! - **Complete**: every round measures each cell once.     -> test `every_round_measures_every_cell_once`
//! - **Repeatable**: the same seed, the same order.          -> test `every_round_measures_every_cell_once`
//! - **Warm**: samples of the warm-up are not kept. -> test `the_warm_up_is_not_kept`

use crate::exit;
use crate::output::{self, Bar};
use anyhow::Context;
use colocate_figures::order;
use colocate_machine::{Machine, PuNr, PuSet, read};
use colocate_model::rng::SplitMix64;
use smt_bench::thread;

/// Share of its PU below which a thread had to share. Chosen, with room for the kernel's own work.
pub const SHARED_WITH_OTHERS: f64 = 0.95;

/// A subject of measurements: this machine, or a simulated one in tests.
pub trait Measurement {
    /// A condition, e.g. a PU, or jobs on PUs.
    type Cell;
    /// Result of measuring a cell once.
    type Sample;
    /// Name of samples, in the plural.
    const UNIT: &'static str;

    /// Measures `cell` once; `None` if a signal ends the program.
    fn measure(&mut self, cell: &Self::Cell) -> anyhow::Result<Option<Self::Sample>>;

    /// Cell of the warm-up before the first round, whose sample is dropped; `None` without any.
    fn warm_up(&self) -> Option<Self::Cell> {
        None
    }
}

/// A sample with its cell and round.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken<S> {
    /// Round, from 0.
    pub round: u32,
    /// Index in the list of cells.
    pub cell: usize,
    /// The sample.
    pub sample: S,
}

/// Measures `cells` in `repeat` rounds, each in a random order: drift affects all cells alike. The
/// samples are in the order of measurement.
pub fn rounds<M: Measurement>(
    measurement: &mut M,
    cells: &[M::Cell],
    repeat: u32,
    random: &mut SplitMix64,
    quiet: bool,
) -> anyhow::Result<Vec<Taken<M::Sample>>> {
    let warm_up = measurement.warm_up();
    let total = cells.len() as u64 * u64::from(repeat) + u64::from(warm_up.is_some());
    let template = format!("{{bar:40}} {{pos}}/{{len}} {}, {{eta}} left", M::UNIT);
    let bar = Bar::new(total, &template, quiet);
    let mut once = |cell: &M::Cell| {
        let sample = measurement.measure(cell);
        let sample = sample
            .transpose()
            .unwrap_or_else(|| Err(exit::stopped("stopped; nothing is kept".to_owned())));
        // The bar goes before an error is shown.
        sample.inspect(|_| bar.advance(1)).inspect_err(|_| bar.clear())
    };
    if let Some(cell) = warm_up {
        once(&cell)?;
    }
    let mut taken = Vec::new();
    for round in 0..repeat {
        for cell in order::block(cells.len(), random) {
            let sample = once(&cells[cell])?;
            taken.push(Taken { round, cell, sample });
        }
    }
    bar.clear();
    Ok(taken)
}

/// The samples of each of `cells` cells, round by round.
pub fn by_cell<S>(taken: Vec<Taken<S>>, cells: usize) -> Vec<Vec<S>> {
    let mut samples: Vec<Vec<S>> = (0..cells).map(|_| Vec::new()).collect();
    taken.into_iter().for_each(|taken| samples[taken.cell].push(taken.sample));
    samples
}

/// PUs that this process may use, in ascending order.
pub fn usable() -> anyhow::Result<Vec<u32>> {
    thread::usable().context("cannot read which PUs may be used")
}

/// PUs of `--cpus`, in its order, or all `usable` PUs.
pub fn asked(named: Option<Vec<u32>>, usable: &[u32]) -> anyhow::Result<Vec<u32>> {
    let Some(named) = named else { return Ok(usable.to_vec()) };
    let lost: Vec<u32> = named.iter().copied().filter(|pu| !usable.contains(pu)).collect();
    if lost.is_empty() {
        return Ok(named);
    }
    Err(exit::usage(format!(
        "--cpus: {} cannot be used: expected PUs that are online and in the inherited affinity mask and cpuset, \
         which are {}",
        list(&lost),
        list(usable)
    )))
}

/// PUs in the kernel's list format.
pub fn list(pus: &[u32]) -> String {
    pus.iter().map(|&pu| PuNr(pu)).collect::<PuSet>().to_string()
}

/// Numbers of the PUs of a set, in ascending order.
pub fn numbers(pus: &PuSet) -> Vec<u32> {
    pus.iter().map(|pu| pu.0).collect()
}

/// This machine as reported; `None`, with a remark unless `quiet`, if its topology cannot be read.
pub fn machine(quiet: bool) -> Option<Machine> {
    let machine = read::reported();
    if let (Err(why), false) = (&machine, quiet) {
        output::remark(&format!("the topology is unknown: {why}"));
    }
    machine.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Failure;

    /// Notes what is measured, asks to stop at the sample with number `stop`, and fails at cell 9.
    struct Noting {
        noted: Vec<u32>,
        stop: usize,
        warm_up: Option<u32>,
    }

    impl Measurement for Noting {
        type Cell = u32;
        type Sample = usize;
        const UNIT: &'static str = "samples";

        fn measure(&mut self, cell: &u32) -> anyhow::Result<Option<usize>> {
            anyhow::ensure!(*cell != 9, "no PU 9");
            self.noted.push(*cell);
            Ok((self.noted.len() <= self.stop).then_some(self.noted.len()))
        }

        fn warm_up(&self) -> Option<u32> {
            self.warm_up
        }
    }

    fn measured(
        cells: &[u32],
        stop: usize,
        warm_up: Option<u32>,
        seed: u64,
    ) -> (anyhow::Result<Vec<Taken<usize>>>, Vec<u32>) {
        let mut noting = Noting { noted: Vec::new(), stop, warm_up };
        let taken = rounds(&mut noting, cells, 4, &mut SplitMix64::new(seed), true);
        (taken, noting.noted)
    }

    #[test]
    fn every_round_measures_every_cell_once() {
        let (taken, noted) = measured(&[0, 2, 5], 100, None, 7);
        let taken = taken.unwrap();
        assert!(taken.iter().enumerate().all(|(at, taken)| taken.sample == at + 1));
        assert!(
            taken
                .iter()
                .enumerate()
                .all(|(at, taken)| taken.round == u32::try_from(at / 3).unwrap())
        );
        for round in noted.chunks(3) {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [0, 2, 5]);
        }
        for (cell, samples) in by_cell(taken, 3).into_iter().enumerate() {
            let of_cell: Vec<u32> = samples.iter().map(|sample| noted[sample - 1]).collect();
            assert_eq!(of_cell, [[0, 2, 5][cell]; 4]);
        }
        let order = |seed| measured(&[0, 2, 5], 100, None, seed).1;
        assert!(order(1) == order(1) && order(1) != order(2));
        assert_eq!(measured(&[9], 100, None, 1).0.unwrap_err().to_string(), "no PU 9");
    }

    #[test]
    fn the_warm_up_is_not_kept() {
        let (taken, noted) = measured(&[1, 2], 100, Some(3), 1);
        assert!(noted[0] == 3 && noted.len() == 9);
        assert_eq!(taken.unwrap().iter().map(|taken| taken.sample).min(), Some(2));
    }

    #[test]
    fn a_signal_ends_all_rounds() {
        for stop in [0, 1, 8] {
            let (taken, noted) = measured(&[1, 2], stop, Some(1), 1);
            assert_eq!(noted.len(), stop + 1);
            let error = taken.unwrap_err();
            assert_eq!(error.downcast_ref::<Failure>().unwrap().code, 130);
        }
    }

    #[test]
    fn usable_pus_are_the_default() {
        assert_eq!(asked(None, &[0, 3]).unwrap(), [0, 3]);
        assert_eq!(asked(Some(vec![3, 0]), &[0, 1, 3]).unwrap(), [3, 0]);
    }

    #[test]
    fn unusable_pus_are_named() {
        assert_eq!(
            asked(Some(vec![0, 5, 6]), &[0, 1, 2, 3]).unwrap_err().to_string(),
            "--cpus: 5-6 cannot be used: expected PUs that are online and in the inherited affinity mask and cpuset, \
             which are 0-3"
        );
    }
}
