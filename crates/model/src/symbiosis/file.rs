//! Files of CPI models: coefficients with their origin, written by `colocate-study train cpi-model`
//! and read by `symbiotic`.

use super::{Coefficients, Conditioning, CoreCoefficients, Quality, normalised};
use crate::system::CpiStack;
use colocate_machine::Flaw;
use serde::{Deserialize, Serialize};

/// Version of the format that this build reads and writes (`docs/schemas/cpi-model.json`).
pub const VERSION: u32 = 1;

/// Parts of a simulated host's stacks, in the order of the fields of [`crate::CpiStack`].
pub const SIMULATED_PARTS: [&str; 7] =
    ["core", "siblings", "stalls", "caches", "memory", "queues", "communication"];

/// Cycles of a stack's parts, in the order of [`SIMULATED_PARTS`].
pub(crate) const fn simulated_parts(stack: &CpiStack) -> [f64; 7] {
    let CpiStack { core, siblings, stalls, caches, memory, queues, communication } = *stack;
    [core, siblings, stalls, caches, memory, queues, communication]
}

/// Component of the equation: one or more parts of a host's stacks.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Name of the component.
    pub name: String,
    /// Names of the parts summed.
    pub parts: Vec<String>,
    /// Whether the component grows with the distance of the memory.
    pub memory: bool,
}

/// Coefficients of a mode, with the quality of their predictions.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainedMode {
    /// Threads on the core; 2 or more.
    pub threads: u32,
    /// Samples of the fit.
    pub samples: u32,
    /// Coefficients by component.
    pub coefficients: Vec<Coefficients>,
    /// Quality for samples outside the fit; `None` if no samples were held out.
    pub held_out: Option<HeldOut>,
    /// Uniqueness of stacks alone, given stacks on the shared core.
    pub conditioning: Conditioning,
}

/// Quality of coefficients for programs outside the fit, beside any others.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HeldOut {
    /// Programs held out.
    pub programs: Vec<String>,
    /// Samples of these programs.
    pub samples: u32,
    /// Quality by component.
    pub components: Vec<Quality>,
    /// Quality for the slowdown, the sum of all components.
    pub slowdown: Quality,
}

/// Model of CPI stacks on a shared core of one machine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CpiModel {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Whether the training set was simulated, not measured.
    pub simulated: bool,
    /// Version of colocate.
    pub colocate: String,
    /// Name of the machine.
    pub machine: String,
    /// Processor of the machine, if known.
    pub processor: Option<String>,
    /// Date of the training, as YYYY-MM-DD.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")))]
    pub date: String,
    /// Description of the training set, in a line.
    pub data: String,
    /// Parts of the host's stacks, in the host's order.
    pub parts: Vec<String>,
    /// Components, each a sum of parts.
    pub components: Vec<Component>,
    /// Coefficients for each number of threads trained, ascending.
    pub modes: Vec<TrainedMode>,
}

/// Text of [`CpiModel::built_in`].
const BUILT_IN: &str = include_str!("../../../../data/simulated/cpi-model-power8-10c.json");

/// Components of a simulated host, each a sum of its parts.
///
/// Counters distinguish neither cycles lost to siblings from those that the thread itself needs,
/// nor waits of an access from its duration. Were they separate components, stacks alone would have
/// 0 in both, and the equation could not derive them.
#[must_use]
pub fn simulated_components() -> Vec<Component> {
    vec![
        simulated("core", &["core", "siblings"], false),
        simulated("stalls", &["stalls"], false),
        simulated("caches", &["caches"], false),
        simulated("memory", &["memory", "queues"], true),
        simulated("communication", &["communication"], false),
    ]
}

fn simulated(name: &str, parts: &[&str], memory: bool) -> Component {
    let parts = parts.iter().map(|part| (*part).to_owned());
    Component { name: name.to_owned(), parts: parts.collect(), memory }
}
/// Components of counted parts: each part is a component by itself.
///
/// Parts with waits for memory count as growing with its distance, though they comprise other
/// waits. The cost of leaving a node is thus overestimated.
#[must_use]
pub fn counted_components(parts: &[&str]) -> Vec<Component> {
    let components = parts.iter().map(|part| Component {
        name: (*part).to_owned(),
        parts: vec![(*part).to_owned()],
        memory: ["backend", "stall"].contains(part),
    });
    components.collect()
}

/// Sums a stack's parts by component, without scaling; `None` if the stack has another number of
/// parts.
#[must_use]
pub fn added_up(parts: &[String], components: &[Component], stack: &[f64]) -> Option<Vec<f64>> {
    if stack.len() != parts.len() {
        return None;
    }
    let sums = components.iter().map(|component| {
        let mine = parts.iter().zip(stack).filter(|(part, _)| component.parts.contains(part));
        mine.fold(0.0, |sum, (_, cycles)| sum + cycles)
    });
    Some(sums.collect())
}

impl CpiModel {
    /// Model of the described POWER8 with ten cores, for simulations without a model of their own:
    /// `colocate-study train cpi-model --machine power8-10c`.
    #[must_use]
    pub fn built_in() -> Self {
        Self::from_json(BUILT_IN).expect("what is built in can be read")
    }

    /// Reads a model.
    ///
    /// # Errors
    /// [`Flaw`] for another version, whatever else the text holds; for another schema; if parts,
    /// components and coefficients do not match, or a coefficient is out of range.
    pub fn from_json(text: &str) -> Result<Self, Flaw> {
        #[derive(Deserialize)]
        struct CpiModelHeader {
            version: u64,
        }
        // The version first: a text of another version may have other fields.
        let head: CpiModelHeader = serde_json::from_str(text).map_err(malformed)?;
        if head.version != u64::from(VERSION) {
            return Err(Flaw(format!(
                "expected a CPI model of version {VERSION}, found version {}; train again",
                head.version
            )));
        }
        let model: Self = serde_json::from_str(text).map_err(malformed)?;
        model.check()?;
        Ok(model)
    }

    /// The model as JSON text, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }

    fn check(&self) -> Result<(), Flaw> {
        let mut used: Vec<&String> = self.components.iter().flat_map(|c| &c.parts).collect();
        let mut parts: Vec<&String> = self.parts.iter().collect();
        // The sorted lists are equal if every part is used exactly once.
        used.sort_unstable();
        parts.sort_unstable();
        if parts.is_empty() || parts.windows(2).any(|two| two[0] == two[1]) || used != parts {
            return inconsistent(
                "components that use every part once",
                format!("{used:?} of {parts:?}"),
            );
        }
        let threads: Vec<u32> = self.modes.iter().map(|mode| mode.threads).collect();
        if threads.first().is_none_or(|first| *first < 2) || !threads.is_sorted_by(|a, b| a < b) {
            return inconsistent("modes of 2 or more threads, rising", format!("{threads:?}"));
        }
        for mode in &self.modes {
            if mode.coefficients.len() != self.components.len() {
                let found = mode.coefficients.len().to_string();
                return inconsistent("coefficients for every component", found);
            }
            if let Some(found) = mode.coefficients.iter().find(|c| !is_in_range(c)) {
                return inconsistent("coefficients from -1000 to 1000", format!("{found:?}"));
            }
        }
        Ok(())
    }

    /// Shares by component of a stack of the host's parts; `None` for another number of parts or an
    /// empty stack.
    #[must_use]
    pub fn stack(&self, host: &[f64]) -> Option<Vec<f64>> {
        normalised(&added_up(&self.parts, &self.components, host)?)
    }

    /// Coefficients for `threads` threads on a core: those of the smallest mode with as many, or
    /// else of the largest mode.
    #[must_use]
    pub fn mode(&self, threads: usize) -> CoreCoefficients {
        let mode = self.trained(threads);
        CoreCoefficients { threads: mode.threads, coefficients: mode.coefficients.clone() }
    }

    /// Whether stacks alone follow well from stacks of `threads` threads on a core, see
    /// [`Self::mode`].
    #[must_use]
    pub fn is_well_conditioned(&self, threads: usize) -> bool {
        self.trained(threads).conditioning.is_good()
    }

    fn trained(&self, threads: usize) -> &TrainedMode {
        let enough = self.modes.iter().find(|mode| mode.threads as usize >= threads);
        enough.or(self.modes.last()).expect("a model has a mode")
    }
}

/// Bound on coefficients: no component exceeds a thousand times the cycles alone. Chosen.
const MOST: f64 = 1000.0;

fn is_in_range(c: &Coefficients) -> bool {
    [c.alpha, c.beta, c.gamma, c.delta].iter().all(|each| each.abs() <= MOST)
}

fn inconsistent(expected: &str, found: String) -> Result<(), Flaw> {
    Err(Flaw(format!("expected {expected}, found {found}")))
}

fn malformed(error: serde_json::Error) -> Flaw {
    let found = error.to_string();
    let found = colocate_machine::printable(&found);
    Flaw(format!("expected a CPI model (docs/schemas/cpi-model.json), found: {found}"))
}

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
