//! Coefficients with where they come from: what `colocate-study train cpi-model` writes and `symbiotic` reads.

use super::{Coefficients, Conditioning, Mode, Quality, normalised};
use crate::system::CpiStack;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the format that this build reads and writes (`docs/schemas/cpi-model.json`).
pub const VERSION: u32 = 1;

/// The parts of a stack of [`crate::CpiStack`], in the order of its fields: those of a simulated host.
pub const SIMULATED_PARTS: [&str; 7] =
    ["core", "siblings", "stalls", "caches", "memory", "queues", "communication"];

/// The parts of a stack in the order of [`SIMULATED_PARTS`].
pub(crate) const fn simulated_parts(stack: &CpiStack) -> [f64; 7] {
    let CpiStack { core, siblings, stalls, caches, memory, queues, communication } = *stack;
    [core, siblings, stalls, caches, memory, queues, communication]
}

/// A component of the equation: one or more parts of a host's stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// The parts that are added up, by name.
    pub parts: Vec<String>,
    /// Whether it grows with the distance of the memory.
    pub memory: bool,
}

/// A mode's coefficients, and how well they hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainedMode {
    /// How many threads share the core; 2 or more.
    pub threads: u32,
    /// Samples that they were fitted to.
    pub samples: u32,
    /// One for each component.
    pub coefficients: Vec<Coefficients>,
    /// How well they predict samples that they were not fitted to, of which there are so many; `None` if nothing
    /// was held out.
    pub held_out: Option<HeldOut>,
    /// Whether stacks alone can be computed from stacks together.
    pub conditioning: Conditioning,
}

/// How well coefficients hold for programs that they were not fitted to, with any others beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HeldOut {
    /// The programs.
    pub programs: Vec<String>,
    /// Samples of one of them.
    pub samples: u32,
    /// One for each component.
    pub components: Vec<Quality>,
    /// The sum of all components.
    pub slowdown: Quality,
}

/// What becomes of CPI stacks on a shared core of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CpiModel {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Whether the training set was simulated, not measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// The machine.
    pub machine: String,
    /// Its processor, if known.
    pub processor: Option<String>,
    /// When it was trained, as YYYY-MM-DD.
    pub date: String,
    /// What it was trained with, in a line.
    pub data: String,
    /// The parts of the host's stacks, in its order.
    pub parts: Vec<String>,
    /// What they are added up to.
    pub components: Vec<Component>,
    /// One for each number of threads that was trained, rising.
    pub modes: Vec<TrainedMode>,
}

/// Why a text is not such a file.
#[derive(Debug, Error)]
pub enum CpiModelError {
    /// The text is not JSON of its shape.
    #[error("expected a CPI model (docs/schemas/cpi-model.json), found: {}", colocate_machine::printable(&.0.to_string()))]
    Malformed(#[from] serde_json::Error),
    /// It is of another format version.
    #[error("expected a CPI model of version {VERSION}, found version {found}; train again")]
    Version {
        /// The version in the text.
        found: u64,
    },
    /// A value contradicts the others.
    #[error("expected {expected}, found {found}")]
    Inconsistent {
        /// What must hold.
        expected: &'static str,
        /// What the text says.
        found: String,
    },
}

/// The model that [`CpiModel::built_in`] reads.
const BUILT_IN: &str = include_str!("../../../../data/simulated/cpi-model-power8-10c.json");

/// What a simulated host's parts are added up to.
///
/// Counters do not distinguish cycles lost to siblings from those that the thread itself needs, nor those that an
/// access waits from one that it takes; with them apart, stacks alone would have nothing of either, and the
/// equation could not say where they come from.
#[must_use]
pub fn simulated_components() -> Vec<Component> {
    let component = |name: &str, parts: &[&str], memory| Component {
        name: name.to_owned(),
        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        memory,
    };
    vec![
        component("core", &["core", "siblings"], false),
        component("stalls", &["stalls"], false),
        component("caches", &["caches"], false),
        component("memory", &["memory", "queues"], true),
        component("communication", &["communication"], false),
    ]
}

/// What counted parts are added up to: each is a component by itself.
///
/// Those in which a thread waits for memory are taken to grow with its distance, though other waits are in them, too: leaving a node then
/// seems to cost rather more than it does.
#[must_use]
pub fn counted_components(parts: &[&str]) -> Vec<Component> {
    let component = |part: &&str| Component {
        name: (*part).to_owned(),
        parts: vec![(*part).to_owned()],
        memory: ["backend", "stall"].contains(part),
    };
    parts.iter().map(component).collect()
}

/// A stack of these parts by component, not scaled; `None` if it has other parts.
#[must_use]
pub fn added_up(parts: &[String], components: &[Component], stack: &[f64]) -> Option<Vec<f64>> {
    if stack.len() != parts.len() {
        return None;
    }
    let of = |component: &Component| {
        let mine = parts.iter().zip(stack).filter(|(part, _)| component.parts.contains(part));
        mine.fold(0.0, |sum, (_, cycles)| sum + cycles)
    };
    Some(components.iter().map(of).collect())
}

impl CpiModel {
    /// That of the described POWER8 with ten cores, for simulations without one of their own:
    /// `colocate-study train cpi-model --machine power8-10c`.
    #[must_use]
    pub fn built_in() -> Self {
        Self::from_json(BUILT_IN).expect("what is built in can be read")
    }

    /// Reads a model.
    ///
    /// # Errors
    /// [`CpiModelError::Version`] for another version, whatever else the text holds;
    /// [`CpiModelError::Malformed`] for another shape; [`CpiModelError::Inconsistent`] if parts, components and
    /// coefficients do not belong together, or a coefficient cannot be.
    pub fn from_json(text: &str) -> Result<Self, CpiModelError> {
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.version != u64::from(VERSION) {
            return Err(CpiModelError::Version { found: head.version });
        }
        let model: Self = serde_json::from_str(text)?;
        model.check()?;
        Ok(model)
    }

    /// The model as JSON text, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }

    fn check(&self) -> Result<(), CpiModelError> {
        let wrong = |expected, found: String| Err(CpiModelError::Inconsistent { expected, found });
        let mut used: Vec<&String> = self.components.iter().flat_map(|c| &c.parts).collect();
        let mut parts: Vec<&String> = self.parts.iter().collect();
        used.sort_unstable();
        parts.sort_unstable();
        if parts.is_empty() || parts.windows(2).any(|two| two[0] == two[1]) || used != parts {
            return wrong("components that use every part once", format!("{used:?} of {parts:?}"));
        }
        let threads: Vec<u32> = self.modes.iter().map(|mode| mode.threads).collect();
        if threads.first().is_none_or(|first| *first < 2) || !threads.is_sorted_by(|a, b| a < b) {
            return wrong("modes of 2 or more threads, rising", format!("{threads:?}"));
        }
        for mode in &self.modes {
            if mode.coefficients.len() != self.components.len() {
                let found = mode.coefficients.len().to_string();
                return wrong("coefficients for every component", found);
            }
            let can_be = |c: &&Coefficients| {
                [c.alpha, c.beta, c.gamma, c.delta].iter().all(|each| each.abs() <= MOST)
            };
            if let Some(found) = mode.coefficients.iter().find(|c| !can_be(c)) {
                return wrong("coefficients from -1000 to 1000", format!("{found:?}"));
            }
        }
        Ok(())
    }

    /// A stack of the host's parts as shares by component; `None` if it has other parts, or nothing in it.
    #[must_use]
    pub fn stack(&self, host: &[f64]) -> Option<Vec<f64>> {
        normalised(&added_up(&self.parts, &self.components, host)?)
    }

    /// The coefficients for so many threads on a core: of the least mode that has as many, else of the greatest.
    #[must_use]
    pub fn mode(&self, threads: usize) -> Mode {
        let mode = self.trained(threads);
        Mode { threads: mode.threads, coefficients: mode.coefficients.clone() }
    }

    /// Whether stacks alone follow well from stacks of so many threads on a core, see [`Self::mode`].
    #[must_use]
    pub fn is_well_conditioned(&self, threads: usize) -> bool {
        self.trained(threads).conditioning.is_good()
    }

    fn trained(&self, threads: usize) -> &TrainedMode {
        let enough = self.modes.iter().find(|mode| mode.threads as usize >= threads);
        enough.or(self.modes.last()).expect("a model has a mode")
    }
}

/// No component can be a thousand times the cycles alone. Chosen.
const MOST: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use super::super::tests::random_mode;
    use super::*;
    use crate::rng::SplitMix64;
    use crate::symbiosis::inverse::conditioning;

    fn model() -> CpiModel {
        let mode = |threads| {
            let mode = random_mode(&mut SplitMix64::new(u64::from(threads)), threads, 0.25, 0.8);
            TrainedMode {
                threads,
                samples: 20,
                conditioning: conditioning(&mode, &[], 1),
                coefficients: mode.coefficients,
                held_out: None,
            }
        };
        CpiModel {
            version: VERSION,
            simulated: true,
            colocate: "0".to_owned(),
            machine: "m".to_owned(),
            processor: None,
            date: "2000-01-01".to_owned(),
            data: "drawn".to_owned(),
            parts: SIMULATED_PARTS.map(str::to_owned).to_vec(),
            components: simulated_components(),
            modes: vec![mode(2), mode(4)],
        }
    }

    /// Found by fuzzing.
    #[test]
    fn what_is_refused_is_quoted_on_one_line() {
        let error = CpiModel::from_json("{\"version\": 1, \"a\\nb\": 0}").unwrap_err();
        assert!(error.to_string().contains("unknown field `a\\x0ab`"), "{error}");
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(CpiModel::from_json(&model().to_json()).unwrap(), model());
    }

    #[test]
    fn the_built_in_one_can_be_read_and_inverted() {
        let found = CpiModel::built_in();
        assert!(found.simulated && found.modes.iter().all(|mode| mode.conditioning.unique));
        assert_eq!(found.components, simulated_components());
        assert_eq!(found.parts, SIMULATED_PARTS);
    }

    #[test]
    fn the_page_describes_it() {
        let schema = include_str!("../../../../docs/schemas/cpi-model.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let mut model = model();
        let one = Quality { r2: None, mean_error: 0.1, worst_error: 0.2 };
        model.modes[0].held_out = Some(HeldOut {
            programs: vec!["p".to_owned()],
            samples: 1,
            components: vec![one; 5],
            slowdown: Quality { r2: Some(0.9), ..one },
        });
        let value = serde_json::from_str(&model.to_json()).unwrap();
        let checked = jsonschema::validate(&schema, &value);
        assert!(checked.is_ok(), "{checked:?}");
    }

    #[test]
    fn refused_with_a_line() {
        let refusal = |change: &dyn Fn(&mut CpiModel)| {
            let mut model = model();
            change(&mut model);
            CpiModel::from_json(&model.to_json()).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(&|m| m.version = 2),
            "expected a CPI model of version 1, found version 2; train again"
        );
        assert_eq!(
            refusal(&|m| m.modes.reverse()),
            "expected modes of 2 or more threads, rising, found [4, 2]"
        );
        assert_eq!(
            refusal(&|m| m.modes[0].coefficients.truncate(4)),
            "expected coefficients for every component, found 4"
        );
        let lines = [
            refusal(&|m| m.parts.truncate(6)),
            refusal(&|m| m.modes.clear()),
            refusal(&|m| m.modes[1].coefficients[0].beta = 1e9),
        ];
        assert!(
            lines.iter().all(|line| line.starts_with("expected ") && line.lines().count() == 1)
        );
        assert!(CpiModel::from_json("{}").is_err());
    }

    #[test]
    fn stacks_are_added_up_and_scaled() {
        let stack = model().stack(&[2.0, 1.0, 0.0, 1.0, 3.0, 1.0, 0.0]).unwrap();
        assert_eq!(stack, [0.375, 0.0, 0.125, 0.5, 0.0]);
        assert_eq!(model().stack(&[1.0; 5]), None);
    }

    #[test]
    fn the_least_mode_that_is_enough() {
        let threads = [1, 2, 3, 4, 8].map(|threads| model().mode(threads).threads);
        assert_eq!(threads, [2, 2, 4, 4, 4]);
    }
}
