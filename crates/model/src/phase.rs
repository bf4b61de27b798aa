//! Phases: a task's demand vector while its behaviour is uniform, per instruction.
//!
//! Every component names its source, and a missing component is unknown, never 0. [`Demand`] is a
//! phase in figures for one kind of core: [`Phase::on`] computes it, puts guesses ([`Guesses`]) in
//! place of unknown figures, and lists them.

pub mod file;
mod guess;
mod known;
mod on;

pub use file::PhaseFile;
pub use guess::{Guessed, Guesses, Plausible, typical_misses};
pub use known::{Known, MeasuredCycles};
pub use on::OnCore;

use crate::curve::MissCurve;
use crate::mix::Mix;
use crate::phase::known::{AMOUNT, AT_LEAST_ONE, CYCLES, PART};
use crate::profile::{Profile, ThreadProfile};
use colocate_machine::performance::{PortSet, WorkKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Work for the ports of a core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum PortWork {
    /// By kind: number of each kind per instruction, on average. The core's table names the ports
    /// for each kind.
    Kinds(#[serde(with = "file::kinds")] Vec<(WorkKind, f64)>),
    /// By class, if only an instruction mix is known. A class comprises several kinds; their parts
    /// are guessed.
    Classes(Mix),
    /// For one processor: groups of alternative ports, each with the cycles per instruction for
    /// which one port of the group is occupied.
    Ports {
        /// LLVM's name of the processor that the work was determined for.
        llvm_cpu: String,
        /// Names of alternative ports, and cycles per instruction.
        groups: Vec<(Vec<String>, f64)>,
        /// Number per instruction of kinds whose unit LLVM's table may lack, as the dividers of
        /// some processors. The core's unit for a kind counts if no group names its ports.
        #[serde(default, skip_serializing_if = "Vec::is_empty", with = "file::kinds")]
        kinds: Vec<(WorkKind, f64)>,
    },
}

/// Demand vector: the mean needs of each instruction of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phase {
    /// Name for the reader.
    #[serde(default)]
    pub name: String,
    /// Front-end slots: micro-operations.
    #[serde(default, deserialize_with = "known::amount")]
    pub slots: Known<f64>,
    /// Work for the ports.
    #[serde(default)]
    pub work: Known<PortWork>,
    /// Least cycles by dependencies between instructions, with the whole window.
    #[serde(default, deserialize_with = "known::amount")]
    pub dependent_cycles: Known<f64>,
    /// Least cycles by dependencies, with the part of the window left by an active sibling.
    #[serde(default, deserialize_with = "known::amount")]
    pub dependent_cycles_divided: Known<f64>,
    /// Stall cycles not caused by ports or shared caches: address translation, store forwarding,
    /// the instruction cache.
    #[serde(default, deserialize_with = "known::amount")]
    pub stall_cycles: Known<f64>,
    /// Mispredicted branches.
    #[serde(default, deserialize_with = "known::part")]
    pub branch_misses: Known<f64>,
    /// Misses of a private cache, by the cache's size.
    #[serde(default)]
    pub misses: Known<MissCurve>,
    /// Misses outstanding at the same time, with the whole window; at least 1.
    #[serde(default, deserialize_with = "known::at_least_one")]
    pub parallel_misses: Known<f64>,
    /// Lines written back for each line fetched from memory; 0 to 1.
    #[serde(default, deserialize_with = "known::part")]
    pub written_back: Known<f64>,
    /// Lines modified by another task of the job: read from its cache, not from memory.
    #[serde(default, deserialize_with = "known::amount")]
    pub shared_lines: Known<f64>,
    /// Cycles measured on a processor, the sum of all components there.
    #[serde(default)]
    pub cycles: Known<MeasuredCycles>,
}

/// Error of converting a phase to figures for a core: a figure out of range, or work for the ports of
/// another processor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PhaseError(String);

impl Phase {
    /// Phase with no more than an instruction mix: its work is known by class.
    #[must_use]
    pub fn of_mix(name: impl Into<String>, mix: Mix, source: impl Into<String>) -> Self {
        let work = if mix.is_unknown() {
            Known::default()
        } else {
            Known::new(PortWork::Classes(mix), source)
        };
        Self { name: name.into(), work, ..Self::default() }
    }

    /// Phase of a profiled thread: its mix, and its cycles if counted on a processor with a known
    /// name.
    #[must_use]
    pub fn of_thread(thread: &ThreadProfile, profile: &Profile) -> Self {
        let by = profile.backend.name();
        let mixed = format!("instruction mix, profiled by {by}");
        let mut phase = Self::of_mix(thread.name.clone(), thread.mix, mixed);
        // Cycles without the name of their processor are of no use elsewhere.
        // Without instructions the cycles per instruction are infinite, which no file may hold.
        if let (Some(ipc), Some(processor)) = (thread.ipc(), &profile.processor)
            && CYCLES.contains(1.0 / ipc)
        {
            let measured = MeasuredCycles { processor: processor.clone(), cycles: 1.0 / ipc };
            let source = format!("cycles over instructions, profiled by {by}");
            phase.cycles = Known::new(measured, source);
        }
        phase
    }

    /// Cycles per instruction on `processor`, if measured there.
    #[must_use]
    pub fn cycles_on(&self, processor: Option<&str>) -> Option<f64> {
        let measured = self.cycles.get()?;
        (Some(measured.processor.as_str()) == processor).then_some(measured.cycles)
    }

    /// Phase with the components of `other` where `self` has none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            name: if self.name.is_empty() { other.name } else { self.name },
            slots: self.slots.or(other.slots),
            work: self.work.or(other.work),
            dependent_cycles: self.dependent_cycles.or(other.dependent_cycles),
            dependent_cycles_divided: self
                .dependent_cycles_divided
                .or(other.dependent_cycles_divided),
            stall_cycles: self.stall_cycles.or(other.stall_cycles),
            branch_misses: self.branch_misses.or(other.branch_misses),
            misses: self.misses.or(other.misses),
            parallel_misses: self.parallel_misses.or(other.parallel_misses),
            written_back: self.written_back.or(other.written_back),
            shared_lines: self.shared_lines.or(other.shared_lines),
            cycles: self.cycles.or(other.cycles),
        }
    }

    /// Checks the range of every figure.
    ///
    /// # Errors
    /// [`PhaseError`] for the first figure out of range.
    pub fn check(&self) -> Result<(), PhaseError> {
        let plain = [
            ("slots", &self.slots, AMOUNT),
            ("dependent-cycles", &self.dependent_cycles, AMOUNT),
            ("dependent-cycles-divided", &self.dependent_cycles_divided, AMOUNT),
            ("stall-cycles", &self.stall_cycles, AMOUNT),
            ("branch-misses", &self.branch_misses, PART),
            ("parallel-misses", &self.parallel_misses, AT_LEAST_ONE),
            ("written-back", &self.written_back, PART),
            ("shared-lines", &self.shared_lines, AMOUNT),
        ];
        let plain = plain.into_iter().filter_map(|(component, known, can_be)| {
            known.get().map(|&found| (component, found, can_be))
        });
        let of_work = self.work.get().map_or(Vec::new(), PortWork::amounts);
        let of_work = of_work.into_iter().map(|found| ("work", found, AMOUNT));
        let cycles = self.cycles.get().map(|found| ("cycles", found.cycles, CYCLES));
        for (component, found, can_be) in plain.chain(of_work).chain(cycles) {
            if !can_be.contains(found) {
                let expected = can_be.text;
                return Err(PhaseError(format!(
                    "expected {component} to be {expected}, found {found}"
                )));
            }
        }
        Ok(())
    }
}

impl PortWork {
    /// All figures of the work; shares are in range by their type.
    fn amounts(&self) -> Vec<f64> {
        match self {
            Self::Kinds(kinds) => kinds.iter().map(|(_, count)| *count).collect(),
            Self::Ports { groups, kinds, .. } => {
                let cycles = groups.iter().map(|(_, cycles)| *cycles);
                cycles.chain(kinds.iter().map(|(_, count)| *count)).collect()
            }
            Self::Classes(_) => Vec::new(),
        }
    }
}

/// Phase in figures for one kind of core; all figures are means per instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles for which one port of a set is occupied. The sets ascend, are distinct, and none is
    /// empty.
    pub ports: Vec<(PortSet, f64)>,
    /// Least cycles by dependencies, with the whole window.
    pub dependent_cycles: f64,
    /// Least cycles by dependencies, with a divided window; not below [`Self::dependent_cycles`].
    pub dependent_cycles_divided: f64,
    /// Stall cycles independent of other tasks: `stall_cycles` and mispredicted branches.
    pub stall_cycles: f64,
    /// Misses by the size of a cache.
    pub misses: MissCurve,
    /// Misses outstanding at a time; at least 1.
    pub parallel_misses: f64,
    /// Lines written back for each line fetched; 0 to 1.
    pub written_back: f64,
    /// Lines read from another task's cache.
    pub shared_lines: f64,
}

impl Demand {
    /// Least cycles by dependencies with one of `parts` equal parts of the window.
    ///
    /// The whole and the half are known. For smaller parts each halving costs the same factor: the
    /// number of ready instructions grows as a power of the window.
    pub(crate) fn least_cycles(&self, parts: usize) -> f64 {
        let whole = self.dependent_cycles;
        let half = self.dependent_cycles_divided;
        match parts {
            0 | 1 => whole,
            // The ratio to a whole of 0 is undefined.
            _ if parts == 2 || whole <= 0.0 => half,
            _ => whole * (half / whole).powf((parts as f64).log2()),
        }
    }
}
