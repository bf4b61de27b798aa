//! The published set-ups: machines, mixes, schedulers, metrics.
//!
//! Where nothing else is said, the source is the slides of Feliu's thesis defence (Valencia, 2017), "Setup" of
//! each contribution. What they leave open is chosen, and says so.

use super::Spread2;
use super::metric::Metric;
use crate::replication::known;
use colocate_machine::Nanos;
use colocate_policy::PolicySpec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Number {
    /// MMaS, MHaS and IDaS on a machine without SMT.
    #[serde(rename = "feliu-1")]
    One,
    /// First-cache allocation and BaS on an SMT machine.
    #[serde(rename = "feliu-2")]
    Two,
    /// Fair and Perf&Fair on the same.
    #[serde(rename = "feliu-3")]
    Three,
    /// Symbiotic scheduling on POWER8.
    #[serde(rename = "feliu-4")]
    Four,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "feliu-1",
            Self::Two => "feliu-2",
            Self::Three => "feliu-3",
            Self::Four => "feliu-4",
        })
    }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Its name.
    pub name: &'static str,
    /// Schedulers by name; the first is the baseline. Those that colocate does not have are left out.
    pub policies: &'static [&'static str],
    /// How many mixes.
    pub mixes: usize,
    /// Cores that mixes have: one after the other, from the first.
    pub cores: &'static [usize],
    /// PUs of each core that are used.
    pub pus_per_core: usize,
    /// Programs for each PU: 2 where they are selected, 1 where they are only placed.
    pub programs_per_context: usize,
    /// What all contexts together ask of the memory, t/µs; `None` if nothing was published.
    pub traffic: Option<Spread2>,
    /// Of four programs so many are of the half that asks most of the first cache; mixes take turns. Empty: any.
    pub shapes: &'static [usize],
    /// What is told.
    pub metrics: &'static [Metric],
    /// The mix of which more is shown, by place.
    pub shown: usize,
    /// What is shown of it.
    pub show: Show,
}

/// What is shown of one mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// How unequal the requests of the last caches are.
    Apart,
    /// How often programs share a core.
    Together,
    /// How far the programs have come, and how many are left.
    Progress,
}

impl Setup {
    /// Cores of a mix.
    #[must_use]
    pub fn cores_of(&self, mix: usize) -> usize {
        self.cores[mix % self.cores.len()]
    }

    /// The schedulers that colocate has, with `seed` for those that draw.
    #[must_use]
    pub fn schedulers(&self, seed: u64) -> Vec<PolicySpec> {
        let with_seed = |mut policy: PolicySpec| {
            let _ = policy.set("seed", &seed.to_string()); // only those that draw have one
            policy
        };
        known(self.policies).into_iter().map(with_seed).collect()
    }
}

impl Number {
    /// The machine that it was made on, by its name here.
    #[must_use]
    pub const fn machine(self) -> &'static str {
        match self {
            Self::One => "xeon-x3320",
            Self::Two | Self::Three => "xeon-e5645",
            Self::Four => "power8-10c",
        }
    }

    /// Time between two decisions. The published labs of the same group have 200 ms; 100 ms for POWER8 is
    /// remembered from the paper, not checked.
    #[must_use]
    pub const fn quantum(self) -> Nanos {
        match self {
            Self::Four => Nanos::from_millis(100),
            _ => Nanos::from_millis(200),
        }
    }

    /// How long each program takes alone, unless said otherwise. The labs of the same group have 20 or 30 s, a
    /// tool of theirs 60 s; that of the papers was not found. Shorter for POWER8, where nobody is selected, so
    /// that the default run takes about a minute of CPU time.
    #[must_use]
    pub const fn alone(self) -> Nanos {
        match self {
            Self::Four => Nanos::from_secs(10),
            _ => Nanos::from_secs(30),
        }
    }

    /// Its experiments.
    #[must_use]
    pub fn setups(self) -> Vec<Setup> {
        match self {
            Self::One => vec![ONE],
            Self::Two => vec![TWO_ALLOCATION, TWO_SCHEDULER],
            Self::Three => vec![THREE],
            Self::Four => vec![FOUR_SMT2, FOUR_SMT4],
        }
    }
}

/// 10 mixes of 8 programs on 4 cores; the control `round-robin` is ours: it stops and pins as the others do,
/// and looks at nothing.
const ONE: Setup = Setup {
    name: "process selection, 8 programs on 4 cores",
    policies: &["os", "round-robin", "mmas", "mhas", "idas"],
    mixes: 10,
    cores: &[4],
    pus_per_core: 1,
    programs_per_context: 2,
    traffic: Some([20.0, 40.0]),
    shapes: &[],
    metrics: &[Metric::Turnaround, Metric::Ipc, Metric::Unfairness],
    shown: 0,
    show: Show::Apart,
};

/// As many programs as PUs, on 2 to 6 cores; how many mixes of each was not found: one of each shape, chosen.
const TWO_ALLOCATION: Setup = Setup {
    name: "process allocation, 2 programs a core, 2 to 6 cores",
    policies: &["os", "random", "l1-static", "l1-dynamic"],
    mixes: 15,
    cores: &[2, 3, 4, 5, 6],
    pus_per_core: 2,
    programs_per_context: 1,
    traffic: None,
    shapes: &[2, 1, 3],
    metrics: &[Metric::Ipc, Metric::HarmonicIpc],
    shown: 4,
    show: Show::Together,
};

/// Twice as many programs as PUs, random; how many mixes was not found: 5, chosen.
const TWO_SCHEDULER: Setup = Setup {
    name: "process selection, 24 programs on 12 PUs",
    policies: &["os", "random", "l1-dynamic", "bas"],
    mixes: 5,
    cores: &[6],
    pus_per_core: 2,
    programs_per_context: 2,
    traffic: None,
    shapes: &[],
    metrics: &[Metric::Ipc, Metric::HarmonicIpc, Metric::Turnaround],
    shown: 0,
    show: Show::Progress,
};

/// 24 programs on 12 PUs; a mix 9 is named, so there are at least so many: 10, chosen. `bas` is called Perf there.
const THREE: Setup = Setup {
    name: "process selection, 24 programs on 12 PUs",
    policies: &["os", "random", "bas", "fair", "perf-fair"],
    mixes: 10,
    cores: &[6],
    pus_per_core: 2,
    programs_per_context: 2,
    traffic: Some([50.0, 130.0]),
    shapes: &[],
    metrics: &[Metric::Turnaround, Metric::Unfairness, Metric::Stp],
    // The slides show the progress in mix M7.
    shown: 6,
    show: Show::Progress,
};

/// 2 programs a core on 6 to 10 cores: 10 mixes, chosen. The slides have 100 and a chart of this set-up with 15 for
/// each number of cores, 75; so the 100 are perhaps of both set-ups together.
const FOUR_SMT2: Setup = Setup {
    name: "SMT2, 2 programs a core, 6 to 10 cores",
    policies: &["os", "random", "l1-dynamic", "symbiotic", "symbiotic-numa"],
    mixes: 10,
    cores: &[6, 7, 8, 9, 10],
    pus_per_core: 2,
    programs_per_context: 1,
    traffic: None,
    shapes: &[],
    metrics: &[Metric::Stp, Metric::Antt, Metric::Turnaround],
    shown: 0,
    show: Show::Together,
};

/// The same with 4 programs a core.
const FOUR_SMT4: Setup = Setup {
    name: "SMT4, 4 programs a core, 6 to 10 cores",
    pus_per_core: 4,
    mixes: 5,
    ..FOUR_SMT2
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::missing;

    #[test]
    fn baselines_are_known_and_names_read_back() {
        for number in [Number::One, Number::Two, Number::Three, Number::Four] {
            let written = serde_json::to_string(&number).unwrap();
            assert_eq!(written, format!("\"{number}\""));
            for setup in number.setups() {
                let known = setup.schedulers(7);
                assert_eq!(known[0].name(), "os");
                assert_eq!(known.len() + missing(setup.policies).len(), setup.policies.len());
                assert!(setup.shown < setup.mixes);
                let random = PolicySpec::named("random:seed=7");
                assert_eq!(known.contains(&random), setup.policies.contains(&"random"));
            }
        }
    }
}
