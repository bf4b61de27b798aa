//! Demand of a program's code on a core: `--demand`.

use crate::exit::no_capability;
use anyhow::bail;
use colocate_machine::read::{self, ReadError};
use colocate_model::phase::Phase;
use colocate_observe::code::{Analysis, Stretch, by_kind};
use colocate_observe::mca::{Mca, McaError, TargetProcessor};

/// Stretches of sampled code. Chosen: the least that `emulate` takes.
pub const FROM_SAMPLES: usize = 64;

/// Core whose demand is computed.
pub enum DemandCore {
    /// A processor with a table in LLVM.
    Table(Mca, TargetProcessor),
    /// Name of a described core without a table in LLVM: its own table is by kind of work.
    Kinds(String),
}

impl DemandCore {
    /// The core called `named`: that of a described machine, or a processor known to LLVM.
    pub fn find(named: &str) -> anyhow::Result<Self> {
        let cpus = match read::load(named).map(|seen| seen.performance) {
            Ok(None) => bail!("{named}: expected a machine that says how fast it is, found none"),
            Ok(Some(speeds)) => speeds.kinds.into_iter().map(|kind| kind.llvm_cpu).collect(),
            Err(ReadError::Unknown { .. }) => vec![Some(named.to_owned())],
            Err(error) => return Err(error.into()),
        };
        if cpus.windows(2).any(|pair| pair[0] != pair[1]) {
            bail!("{named}: expected cores that share a table of ports, found several tables");
        }
        match cpus.into_iter().next().flatten() {
            None => Ok(Self::Kinds(named.to_owned())),
            Some(cpu) => {
                let mca = Mca::find().map_err(|why| no_capability(why.to_string()))?;
                let target = TargetProcessor { triple: std::env::consts::ARCH.to_owned(), cpu };
                // An unknown processor name should fail before the program runs.
                mca.analyse(&target, &["nop"])?;
                Ok(Self::Table(mca, target))
            }
        }
    }

    /// Sets the demand of `stretches` in `phases`, one a thread or one for all; returns a note.
    pub fn fill(&self, phases: &mut [Phase], stretches: &[Stretch]) -> Result<String, McaError> {
        let per_thread = stretches.iter().any(|stretch| stretch.thread.is_some());
        let threads = |place: usize| u32::try_from(place).ok().filter(|_| per_thread);
        let (core, part) = match self {
            Self::Kinds(machine) => {
                for (place, phase) in phases.iter_mut().enumerate() {
                    put(phase, by_kind(stretches, threads(place)));
                }
                (format!("{machine}'s, by kind of work"), None)
            }
            Self::Table(mca, target) => {
                let analysis = Analysis::of(mca, target, stretches)?;
                for (place, phase) in phases.iter_mut().enumerate() {
                    put(phase, analysis.phase("", threads(place)));
                }
                (analysis.source(), analysis.covered())
            }
        };
        let part = part.map_or(String::new(), |part| {
            format!("; {:.1} % of them could be simulated", 100.0 * part)
        });
        let count = stretches.len();
        Ok(format!("demand of the cores of {core}: from {count} stretches of code{part}"))
    }
}

/// Copies the demand found in code to `phase`, if any.
fn put(phase: &mut Phase, found: Option<Phase>) {
    if let Some(found) = found {
        phase.slots = found.slots;
        phase.work = found.work;
        phase.dependent_cycles = found.dependent_cycles;
        phase.dependent_cycles_divided = found.dependent_cycles_divided;
    }
}
