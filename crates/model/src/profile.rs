//! What a program was seen doing, thread by thread: the file `colocate profile -o` writes.

use crate::mix::Mix;
use colocate_machine::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Version of the profile format that this build reads and writes.
pub const VERSION: u32 = 1;

/// How a program was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Hardware counters.
    Pmu,
    /// Instruction-pointer samples on the software clock, decoded from the binary.
    Sample,
    /// Exact counts under QEMU user mode.
    Emulate,
}

impl Backend {
    /// The backend's name in files and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pmu => "pmu",
            Self::Sample => "sample",
            Self::Emulate => "emulate",
        }
    }
}

/// Which program a profile is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The executable's path when it was watched.
    pub path: String,
    /// The command's arguments, without the program itself.
    pub args: Vec<String>,
    /// What identifies the executable's content: `build-id:HEX` where the linker left one, else
    /// `sha256:HEX` of the whole file.
    pub identity: String,
}

/// What a program was seen doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// How it was watched.
    pub backend: Backend,
    /// Which program it is of.
    pub program: Program,
    /// Processor model of the machine it was watched on, if known.
    pub processor: Option<String>,
    /// Seconds since 1970-01-01 UTC when watching began.
    pub started_unix_s: u64,
    /// How long it was watched.
    pub watched_ns: Nanos,
    /// Whether the program had ended when watching stopped.
    pub complete: bool,
    /// Its threads, in the order they were created; thread `i` has `order` `i`.
    pub threads: Vec<ThreadProfile>,
    /// What a reader should know: skipped threads, guessed values, one sentence each.
    pub notes: Vec<String>,
}

/// What one thread was seen doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadProfile {
    /// Place in the order of creation over the whole job, from 0 for the first thread of the
    /// command. Child processes' threads count on.
    pub order: u32,
    /// Which process of the job it belongs to, from 0 in the order of creation.
    pub process: u32,
    /// The thread's name when it ended or when watching stopped.
    pub name: String,
    /// When it was first seen, since watching began.
    pub start_ns: Nanos,
    /// When it ended, since watching began; `None` if it was alive when watching stopped.
    pub end_ns: Option<Nanos>,
    /// CPU time it used while it was watched; `None` if the backend cannot say.
    pub cpu_time_ns: Option<Nanos>,
    /// Instructions retired; exact under `emulate`, counted under `pmu`, else unknown.
    pub instructions: Option<u64>,
    /// Core cycles, where there are counters.
    pub cycles: Option<u64>,
    /// Samples that the mix rests on, for `sample`.
    pub samples: Option<u64>,
    /// Share of each class of work.
    pub mix: Mix,
}

fn at_most(most: usize, unit: &'static str, found: usize) -> Result<(), ProfileError> {
    if found > most { Err(ProfileError::TooLarge { most, unit, found }) } else { Ok(()) }
}

impl ThreadProfile {
    fn check(&self, place: usize) -> Result<(), ProfileError> {
        let wrong = |expected, found| Err(ProfileError::Inconsistent { expected, found });
        if self.order as usize != place {
            let found = format!("order {} at place {place}", self.order);
            return wrong("threads numbered 0, 1, 2, … in order", found);
        }
        match self.end_ns {
            Some(end) if end < self.start_ns => {
                let found = format!("thread {place} from {} to {end}", self.start_ns);
                wrong("threads that end after they start", found)
            }
            _ => Ok(()),
        }
    }

    /// Instructions per cycle, where both are known and cycles are not 0.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a rate needs 15 digits at most
    pub fn ipc(&self) -> Option<f64> {
        match (self.instructions, self.cycles) {
            (Some(instructions), Some(cycles)) if cycles > 0 => {
                Some(instructions as f64 / cycles as f64)
            }
            _ => None,
        }
    }
}

/// Why a text is not a profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The text is not JSON of the profile's shape.
    #[error("expected a profile (docs/schemas/profile.json), found: {}", colocate_machine::printable(&.0.to_string()))]
    Malformed(#[from] serde_json::Error),
    /// The profile is of another format version.
    #[error("expected a profile of version {VERSION}, found version {found}; profile again")]
    Version {
        /// The version in the text.
        found: u64,
    },
    /// The text or the list of threads is longer than any that is written.
    #[error("expected a profile of at most {most} {unit}, found {found}")]
    TooLarge {
        /// The most that is read.
        most: usize,
        /// What is counted.
        unit: &'static str,
        /// How many there are.
        found: usize,
    },
    /// The executable is no longer the one that was watched.
    #[error("profile is of {path} with {profiled}, found {found}; profile again")]
    Changed {
        /// The executable.
        path: String,
        /// Its identity when it was watched.
        profiled: String,
        /// Its identity now.
        found: String,
    },
    /// A field has a value that contradicts the others.
    #[error("expected {expected}, found {found}")]
    Inconsistent {
        /// What must hold.
        expected: &'static str,
        /// What the text says.
        found: String,
    },
}

impl Profile {
    /// The most threads of a profile. Chosen: ten times the 10,000 short threads of the busiest
    /// program that colocate is tested with; a plan for more would take minutes.
    pub const MAX_THREADS: usize = 100_000;

    /// The longest text that is read, in bytes: room for [`Self::MAX_THREADS`] threads of about 700
    /// bytes, the length of one with every number at its longest.
    pub const MAX_BYTES: usize = 72 << 20;

    /// Reads a profile from JSON text.
    ///
    /// # Errors
    /// [`ProfileError::TooLarge`] before anything is read of a text that is too long, or for too many
    /// threads; [`ProfileError::Version`] for another version, whatever else the text holds;
    /// [`ProfileError::Malformed`] for another shape, a field that is there twice, or a number out of
    /// range; [`ProfileError::Inconsistent`] if threads are not numbered 0, 1, 2, … in order, or one
    /// ends before it starts.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        at_most(Self::MAX_BYTES, "bytes", text.len())?;
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.version != u64::from(VERSION) {
            return Err(ProfileError::Version { found: head.version });
        }
        let profile: Self = serde_json::from_str(text)?;
        at_most(Self::MAX_THREADS, "threads", profile.threads.len())?;
        for (place, thread) in profile.threads.iter().enumerate() {
            thread.check(place)?;
        }
        Ok(profile)
    }

    /// Checks that the executable with the identity `found` is the one that was watched.
    ///
    /// # Errors
    /// [`ProfileError::Changed`] if it is not.
    pub fn matches(&self, found: &str) -> Result<(), ProfileError> {
        if self.program.identity == found {
            return Ok(());
        }
        Err(ProfileError::Changed {
            path: self.program.path.clone(),
            profiled: self.program.identity.clone(),
            found: found.to_owned(),
        })
    }

    /// The profile as JSON text, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }
}
