//! Feliu's studies again, simulated: bandwidth-aware, progress-aware and symbiotic scheduling.
//!
//! Nothing here was measured, and nothing is fitted to what was published. Programs are drawn ([`program`]), and
//! mixes of them are drawn so that what they ask of the memory covers the published range ([`mix`]).

pub mod figures;
mod metric;
pub mod mix;
pub mod program;
pub mod run;
pub mod setup;
pub mod shown;
pub mod table;
pub mod work;

use colocate_machine::{Machine, Nanos, Performance};
use colocate_model::Assumptions;
use serde::{Deserialize, Serialize};

pub use setup::{Number, Setup};

/// Version of the report that this build writes.
pub const VERSION: u32 = 1;

/// Least and most of a range.
pub type Spread2 = [f64; 2];

/// What a study is made with.
#[derive(Clone, Copy, Debug)]
pub struct Study<'a> {
    /// Which.
    pub number: Number,
    /// The machine.
    pub machine: &'a Machine,
    /// How fast it is.
    pub performance: &'a Performance,
    /// The sets of assumptions, the usual one first; never empty.
    pub draws: &'a [Assumptions],
    /// How many seeds for each; at least 1. A seed decides in which order the programs of a mix begin, and
    /// what the kernel leaves to chance.
    pub seeds: u32,
    /// The first seed; also that of the programs and mixes.
    pub seed: u64,
    /// How long each program takes alone: its target. Never 0.
    pub alone: Nanos,
    /// Time between two decisions. Never 0.
    pub quantum: Nanos,
    /// Mixes instead of as many as the set-up has; at least 1.
    pub mixes: Option<usize>,
    /// Traffic of the mixes instead of the published range, also where none was published.
    pub traffic: Option<Spread2>,
}

impl Study<'_> {
    /// The set-ups of the study, with what was asked for in place of what was published.
    #[must_use]
    pub fn setups(&self) -> Vec<Setup> {
        let changed = |setup: Setup| Setup {
            mixes: self.mixes.unwrap_or(setup.mixes),
            traffic: self.traffic.or(setup.traffic),
            ..setup
        };
        self.number.setups().into_iter().map(changed).collect()
    }
}

/// What came of a study, simulated (`docs/schemas/study-feliu.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Always true: nothing here was measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// Which study, `feliu-1` to `feliu-4`.
    pub study: Number,
    /// The machine that is simulated.
    pub machine: String,
    /// How many sets of assumptions.
    pub draws: u32,
    /// How many seeds for each.
    pub seeds: u32,
    /// The first seed.
    pub seed: u64,
    /// How long each program takes alone, in seconds.
    pub alone_s: f64,
    /// Time between two decisions, in seconds.
    pub quantum_s: f64,
    /// A digest of the machine, the programs and all that was asked for.
    pub inputs: String,
    /// Least difference that counts as resolved.
    pub resolution: f64,
    /// The programs.
    pub programs: Vec<ProgramFigures>,
    /// The set-ups of the study.
    pub setups: Vec<figures::Figures>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// What a drawn program does alone, under the usual assumptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramFigures {
    /// Its name.
    pub name: String,
    /// Phases.
    pub phases: u32,
    /// Requests to memory, t/µs.
    pub memory: f64,
    /// Requests to the first cache, t/µs.
    pub first_cache: f64,
    /// Share of its speed that it loses for each t/µs of others.
    pub loss: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the second study no range was published: what is asked for counts there, too.
    #[test]
    fn what_is_asked_for_is_in_every_set_up() {
        let (machine, performance) = crate::testing::machine("xeon-e5645");
        let draws = [Assumptions::default()];
        let study = |traffic, mixes| Study {
            number: Number::Two,
            machine: &machine,
            performance: &performance,
            draws: &draws,
            seeds: 1,
            seed: 0,
            alone: Nanos::from_secs(1),
            quantum: Nanos::from_millis(100),
            mixes,
            traffic,
        };
        let asked = study(Some([40.0, 60.0]), Some(3)).setups();
        assert!(asked.iter().all(|setup| setup.traffic == Some([40.0, 60.0]) && setup.mixes == 3));
        assert_eq!(study(None, None).setups(), Number::Two.setups());
        let work = work::Work::new(study(Some([40.0, 60.0]), None)).unwrap();
        let mixes = work.parts().iter().flat_map(|(_, mixes)| mixes);
        assert!(mixes.clone().count() > 0);
        assert!(mixes.clone().all(|mix| (40.0..60.0).contains(&mix.traffic)));
    }
}
