//! Profile of a program, by thread: the file that `colocate profile -o` writes.

use crate::mix::Mix;
use colocate_machine::{Flaw, Nanos};
use serde::{Deserialize, Serialize};

/// Version of the profile format that this build reads and writes.
pub const VERSION: u32 = 1;

/// Method of profiling.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Name of the backend in files and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pmu => "pmu",
            Self::Sample => "sample",
            Self::Emulate => "emulate",
        }
    }
}

/// Profiled program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfiledProgram {
    /// Path of the executable at the time of profiling.
    pub path: String,
    /// Arguments of the command, without the program itself.
    pub args: Vec<String>,
    /// Identity of the executable's content: `build-id:HEX` if the linker set one, otherwise
    /// `sha256:HEX` of the whole file.
    pub identity: String,
}

/// Profile of a program.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Method of profiling.
    pub backend: Backend,
    /// Profiled program.
    pub program: ProfiledProgram,
    /// Processor model of the machine, if known.
    pub processor: Option<String>,
    /// Start of profiling, in seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// Duration of profiling.
    pub watched_ns: Nanos,
    /// Whether the program had ended when profiling stopped.
    pub complete: bool,
    /// Threads in the order of creation; thread `i` has `order` `i`.
    pub threads: Vec<ThreadProfile>,
    /// Notes for the reader, one sentence each: skipped threads, guessed values.
    pub notes: Vec<String>,
}

/// Profile of one thread.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadProfile {
    /// Index in the order of creation over the whole job, from 0 for the first thread of the
    /// command. Threads of child processes continue the count.
    pub order: u32,
    /// Index of the thread's process in the job, from 0 in the order of creation.
    pub process: u32,
    /// Name of the thread at its end, or when profiling stopped.
    pub name: String,
    /// First observation of the thread, since the start of profiling.
    pub start_ns: Nanos,
    /// End of the thread, since the start of profiling; `None` if alive when profiling stopped.
    pub end_ns: Option<Nanos>,
    /// CPU time used while profiled; `None` if unknown to the backend.
    pub cpu_time_ns: Option<Nanos>,
    /// Instructions retired: exact under `emulate`, counted under `pmu`, otherwise unknown.
    pub instructions: Option<u64>,
    /// Core cycles; `None` without hardware counters.
    pub cycles: Option<u64>,
    /// Number of samples behind the mix, for `sample`.
    pub samples: Option<u64>,
    /// Share of each class of work.
    pub mix: Mix,
}

fn at_most(most: usize, unit: &str, found: usize) -> Result<(), Flaw> {
    if found <= most {
        return Ok(());
    }
    inconsistent(&format!("a profile of at most {most} {unit}"), found.to_string())
}

impl ThreadProfile {
    fn check(&self, place: usize) -> Result<(), Flaw> {
        if self.order as usize != place {
            let found = format!("order {} at place {place}", self.order);
            return inconsistent("threads numbered 0, 1, 2, … in order", found);
        }
        match self.end_ns {
            Some(end) if end < self.start_ns => {
                let found = format!("thread {place} from {} to {end}", self.start_ns);
                inconsistent("threads that end after they start", found)
            }
            _ => Ok(()),
        }
    }

    /// Instructions per cycle, if both are known and cycles are not 0.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        match (self.instructions, self.cycles) {
            (Some(instructions), Some(cycles)) if cycles > 0 => {
                Some(instructions as f64 / cycles as f64)
            }
            _ => None,
        }
    }
}

fn inconsistent(expected: &str, found: String) -> Result<(), Flaw> {
    Err(Flaw(format!("expected {expected}, found {found}")))
}

fn malformed(error: serde_json::Error) -> Flaw {
    let found = error.to_string();
    let found = colocate_machine::printable(&found);
    Flaw(format!("expected a profile (docs/schemas/profile.json), found: {found}"))
}

impl Profile {
    /// Most threads of a profile. Chosen: ten times the 10,000 short threads of the busiest program
    /// in the tests; a plan for more would take minutes.
    pub const MAX_THREADS: usize = 100_000;

    /// Limit of a text, in bytes: room for [`Self::MAX_THREADS`] threads of about 700 bytes, the
    /// length with every number at its longest.
    pub const MAX_BYTES: usize = 72 << 20;

    /// Reads a profile from JSON text.
    ///
    /// # Errors
    /// [`Flaw`] for too long a text, before it is parsed, or too many threads; for another version,
    /// whatever else the text holds; for another schema, a repeated field, or a number out of range;
    /// if threads are not numbered 0, 1, 2, … in order, or one ends before it starts.
    pub fn from_json(text: &str) -> Result<Self, Flaw> {
        // Before parsing, which needs a multiple of the text's size in memory.
        at_most(Self::MAX_BYTES, "bytes", text.len())?;
        // The version first: a text of another version may have other fields.
        #[derive(Deserialize)]
        struct ProfileHeader {
            version: u64,
        }
        let head: ProfileHeader = serde_json::from_str(text).map_err(malformed)?;
        if head.version != u64::from(VERSION) {
            return Err(Flaw(format!(
                "expected a profile of version {VERSION}, found version {}; profile again",
                head.version
            )));
        }
        let profile: Self = serde_json::from_str(text).map_err(malformed)?;
        at_most(Self::MAX_THREADS, "threads", profile.threads.len())?;
        for (place, thread) in profile.threads.iter().enumerate() {
            thread.check(place)?;
        }
        Ok(profile)
    }

    /// Checks that the executable with the identity `found` is the profiled executable.
    ///
    /// # Errors
    /// [`Flaw`] if it is not.
    pub fn matches(&self, found: &str) -> Result<(), Flaw> {
        if self.program.identity == found {
            return Ok(());
        }
        let ProfiledProgram { path, identity, .. } = &self.program;
        Err(Flaw(format!("profile is of {path} with {identity}, found {found}; profile again")))
    }

    /// The profile as JSON text, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }
}
