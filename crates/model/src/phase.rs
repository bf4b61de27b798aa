//! What a task demands while it does one thing: its demand vector, an instruction's worth of it.
//!
//! Every component says where it comes from, and a missing one is unknown, never 0. What a core
//! makes of it is [`Demand`]: [`Phase::on`] puts in figures for one kind of core, and guesses where there
//! are none ([`Guesses`]), of which it gives account.

pub mod file;
mod guess;
mod known;
mod on;

pub use file::{PhaseFile, PhaseFileError};
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
pub enum Work {
    /// By kind: how many of each an instruction has on average. The core's table says which ports do
    /// them.
    Kinds(#[serde(with = "file::kinds")] Vec<(WorkKind, f64)>),
    /// By class, where an instruction mix is all that is known: a class holds several kinds, and how many
    /// of which is guessed.
    Classes(Mix),
    /// For one processor: names of ports, of which one is taken for so many cycles an instruction.
    Ports {
        /// What LLVM calls the processor that it was found out for.
        llvm_cpu: String,
        /// Names of alternative ports, and cycles an instruction.
        groups: Vec<(Vec<String>, f64)>,
        /// Work by kind whose unit LLVM's table may lack, as it does some processors' dividers: how many
        /// of each an instruction has. A core's unit for it counts where no group names its ports.
        #[serde(default, skip_serializing_if = "Vec::is_empty", with = "file::kinds")]
        kinds: Vec<(WorkKind, f64)>,
    },
}

/// A demand vector: what each instruction of a phase needs on average.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phase {
    /// For the reader.
    #[serde(default)]
    pub name: String,
    /// Front-end slots: micro-operations.
    #[serde(default, deserialize_with = "known::amount")]
    pub slots: Known<f64>,
    /// Work for the ports.
    #[serde(default)]
    pub work: Known<Work>,
    /// Cycles that dependencies between instructions take at least, with the whole window.
    #[serde(default, deserialize_with = "known::amount")]
    pub dependent_cycles: Known<f64>,
    /// The same with the part of the window that is left when a sibling is active.
    #[serde(default, deserialize_with = "known::amount")]
    pub dependent_cycles_divided: Known<f64>,
    /// Cycles of stalls that neither ports nor shared caches explain: address translation, forwarding
    /// of stores, the instruction cache.
    #[serde(default, deserialize_with = "known::amount")]
    pub stall_cycles: Known<f64>,
    /// Branches that are mispredicted.
    #[serde(default, deserialize_with = "known::part")]
    pub branch_misses: Known<f64>,
    /// Misses of a cache that it has for itself, by the cache's size.
    #[serde(default)]
    pub misses: Known<MissCurve>,
    /// Misses that are under way at the same time, with the whole window; at least 1.
    #[serde(default, deserialize_with = "known::at_least_one")]
    pub parallel_misses: Known<f64>,
    /// Lines written back, for each that is fetched from memory; 0 to 1.
    #[serde(default, deserialize_with = "known::part")]
    pub written_back: Known<f64>,
    /// Lines that another task of the job has changed since: read from its cache, not from memory.
    #[serde(default, deserialize_with = "known::amount")]
    pub shared_lines: Known<f64>,
    /// Cycles that it took on a processor, in all: what the other components there add up to.
    #[serde(default)]
    pub cycles: Known<MeasuredCycles>,
}

/// Why a phase has no figures on a core.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PhaseError {
    /// A figure that cannot be.
    #[error("expected {component} to be {expected}, found {found}")]
    Impossible {
        /// Of which component.
        component: &'static str,
        /// What it can be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// The work is for the ports of a processor that the core is not.
    #[error(
        "expected work for the ports of {}, found that of {found}; find out the demand for this machine",
        .expected.as_deref().unwrap_or("a processor without a table of LLVM's")
    )]
    OtherProcessor {
        /// What LLVM calls the core.
        expected: Option<String>,
        /// What the work is for.
        found: String,
    },
    /// The work names a port that the core does not have.
    #[error("expected one of the ports {}, found {found}", .expected.join(", "))]
    NoPort {
        /// Those it has.
        expected: Vec<String>,
        /// The name.
        found: String,
    },
}

impl Phase {
    /// What is known of a thread of which there is an instruction mix and no more: its work, by class.
    #[must_use]
    pub fn of_mix(name: impl Into<String>, mix: Mix, source: impl Into<String>) -> Self {
        let work = if mix.is_unknown() {
            Known::default()
        } else {
            Known::new(Work::Classes(mix), source)
        };
        Self { name: name.into(), work, ..Self::default() }
    }

    /// What is known of a thread of `profile`: its mix, and its cycles where they were counted on a
    /// processor that has a name.
    #[must_use]
    pub fn of_thread(thread: &ThreadProfile, profile: &Profile) -> Self {
        let by = profile.backend.name();
        let mixed = format!("instruction mix, profiled by {by}");
        let mut phase = Self::of_mix(thread.name.clone(), thread.mix, mixed);
        if let (Some(ipc), Some(processor)) = (thread.ipc(), &profile.processor)
            && CYCLES.contains(1.0 / ipc)
        {
            let measured = MeasuredCycles { processor: processor.clone(), cycles: 1.0 / ipc };
            let source = format!("cycles over instructions, profiled by {by}");
            phase.cycles = Known::new(measured, source);
        }
        phase
    }

    /// What it took on `processor`, if that was measured there.
    #[must_use]
    pub fn cycles_on(&self, processor: Option<&str>) -> Option<f64> {
        let measured = self.cycles.get()?;
        (Some(measured.processor.as_str()) == processor).then_some(measured.cycles)
    }

    /// The same, with what is known in `other` in place of what is unknown.
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

    /// Whether every figure is one that can be.
    ///
    /// # Errors
    /// [`PhaseError::Impossible`] for the first that cannot.
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
        let of_work = self.work.get().map_or(Vec::new(), Work::amounts);
        let of_work = of_work.into_iter().map(|found| ("work", found, AMOUNT));
        let cycles = self.cycles.get().map(|found| ("cycles", found.cycles, CYCLES));
        for (component, found, can_be) in plain.chain(of_work).chain(cycles) {
            if !can_be.contains(found) {
                return Err(PhaseError::Impossible { component, expected: can_be.text, found });
            }
        }
        Ok(())
    }
}

impl Work {
    /// All figures of it; shares are right by their type.
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

/// A phase in figures, for one kind of core; everything for one instruction on average.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles for which one of the ports is taken; sets rise, are all different, and none is empty.
    pub ports: Vec<(PortSet, f64)>,
    /// Least cycles by dependencies, whole window.
    pub dependent_cycles: f64,
    /// The same, divided window; not less.
    pub dependent_cycles_divided: f64,
    /// Stalled cycles that no other task has a part in: `stall_cycles` and mispredicted branches.
    pub stall_cycles: f64,
    /// Misses by a cache's size.
    pub misses: MissCurve,
    /// Misses under way at a time; at least 1.
    pub parallel_misses: f64,
    /// Lines written back for each that is fetched; 0 to 1.
    pub written_back: f64,
    /// Lines read from another task's cache.
    pub shared_lines: f64,
}

impl Demand {
    /// Least cycles by dependencies with one of `parts` equal parts of the window.
    ///
    /// Known are the whole and the half; for smaller parts each halving costs the same factor, which is
    /// how instructions that are ready at a time grow with the window: as a power of it.
    pub(crate) fn least_cycles(&self, parts: usize) -> f64 {
        let (whole, half) = (self.dependent_cycles, self.dependent_cycles_divided);
        match parts {
            0 | 1 => whole,
            _ if parts == 2 || whole <= 0.0 => half,
            #[allow(clippy::cast_precision_loss)] // a core has few PUs
            _ => whole * (half / whole).powf((parts as f64).log2()),
        }
    }
}
