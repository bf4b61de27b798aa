//! Demand of a block of machine code on a core, by `llvm-mca`: LLVM's instruction tables and its
//! simulation of a processor's scheduler.
//!
//! # Problem
//! A contention model needs, for each instruction on average: front-end slots, cycles of each set
//! of alternative ports, and cycles of dependencies, with the whole window and with half of it.
//!
//! # Approach
//! - Slots are in the instruction table.
//! - Sets of ports: [`groups`].
//! - *Dependent cycles*: the block is simulated as an endless loop, with a front end that is never
//!   the limit. Ports cannot be taken out of the simulation. Where ports are the limit, the figure
//!   is the ports' limit, which the model has anyway. Loops run for N and 3 N rounds, and the
//!   difference counts, so filling and draining of the pipeline do not.
//! - *Divided window*: the same with as many no-operations as micro-operations between the
//!   instructions. No-operations take half of the reorder buffer and no other resource. Schedulers,
//!   load and store queues and register files stay whole, since `llvm-mca` neither takes nor prints
//!   their sizes.
//!
//! # Limits
//! Not modelled: caches (every load is a hit), store forwarding, limits of fetch and decoding,
//! taken branches, divisions whose length depends on the values. For some processors LLVM uses
//! another's table: `core2`, `penryn`, `nehalem` and `westmere` have Sandy Bridge's ports. The
//! quality of a table is LLVM's. Tables change between versions of LLVM, so the version belongs to
//! every figure.
//!
//! # Properties
//! - A block's simulation never takes fewer cycles than its slots and sets of ports ask for.
//!   -> test `sets_never_need_more_than_the_simulation_takes` in `tests/all/smt_oracle`
//!
//! Needs the program `llvm-mca`, LLVM 14 or newer (Debian: `llvm-19` or `llvm`).

mod alone;
mod groups;
mod run;

use run::McaRegion;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reason for the lack of figures; paths are those of the program.
#[derive(Debug, Error)]
pub enum McaError {
    /// No supported `llvm-mca` under these names.
    #[error(
        "no llvm-mca of version {OLDEST} or newer found; looked for {0} (Debian: apt-get install llvm)"
    )]
    Missing(String),
    /// Failed start of the program.
    #[error("cannot run {}: {}", .0.display(), .1)]
    Start(PathBuf, #[source] io::Error),
    /// Program without a version of LLVM, or with an old one.
    #[error("{}: expected LLVM {OLDEST} or newer, found {}", .0.display(), .1)]
    Version(PathBuf, String),
    /// Processor unknown to LLVM for the architecture.
    #[error("llvm-mca: expected the name of a processor (llvm-mca -mcpu=help), found {0}")]
    UnknownCpu(String),
    /// Code that could not be read or simulated, with the first error message.
    #[error("{}: {}", .0.display(), .1)]
    Refused(PathBuf, String),
    /// Output in an unknown form.
    #[error("{}: expected the JSON of LLVM {OLDEST} or newer: {}", .0.display(), .1)]
    Printed(PathBuf, #[source] serde_json::Error),
    /// Text without an instruction.
    #[error("expected assembly text, found no instruction in it")]
    Empty,
}

/// Oldest version whose JSON has all fields read here.
pub const OLDEST: u32 = 14;
/// Newest version searched for by name; newer ones are found as `llvm-mca`.
const NEWEST: u32 = 22;

/// Processor to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetProcessor {
    /// LLVM's name of the architecture: `x86_64`, `aarch64`, `powerpc64le`.
    pub triple: String,
    /// LLVM's name of the processor (`-mcpu`).
    pub cpu: String,
}

/// An instruction of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Text as LLVM prints it, in the default syntax.
    pub text: String,
    /// Front-end slots.
    pub slots: u32,
    /// Distinct sets of alternative ports by name, and cycles taken of one port of the set.
    pub ports: Vec<(Vec<String>, f64)>,
    /// Whether the sets are certain; if not, one set is larger than the truth.
    pub certain: bool,
}

/// Demand of a block. "Per instruction" is the mean over the block's instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockDemand {
    /// Instructions, in order.
    pub instructions: Vec<Instruction>,
    /// Slots per instruction.
    pub slots: f64,
    /// Distinct sets of alternative ports by name, and cycles per instruction.
    pub ports: Vec<(Vec<String>, f64)>,
    /// Cycles per instruction alone on a core.
    pub cycles: f64,
    /// Upper bound of the cycles per instruction of dependencies: with an unlimited front end.
    pub dependent_cycles: f64,
    /// The same with half of the reorder buffer. `None` if the no-operation of the processor cannot
    /// divide the buffer, since it takes a port or no slot.
    pub dependent_cycles_divided: Option<f64>,
    /// Slots per cycle, by LLVM.
    pub width: u32,
}

/// An installed `llvm-mca`.
#[derive(Clone, Debug)]
pub struct Mca {
    program: PathBuf,
    version: u32,
}

impl Mca {
    /// Newest installed version: `llvm-mca-N` of `PATH`, or `llvm-mca`.
    ///
    /// # Errors
    /// [`McaError::Missing`] without a supported version.
    pub fn find() -> Result<Self, McaError> {
        let numbered = (OLDEST..=NEWEST).rev().map(|version| format!("llvm-mca-{version}"));
        let names: Vec<String> = numbered.chain(["llvm-mca".to_owned()]).collect();
        let found = names.iter().filter_map(|name| Self::at(Path::new(name)).ok());
        // The plain name can be of any version.
        let newest = found.max_by_key(|mca| mca.version);
        newest.ok_or_else(|| McaError::Missing(names.join(", ")))
    }

    /// Uses the given program.
    ///
    /// # Errors
    /// [`McaError::Start`] if the program cannot be run, [`McaError::Version`] if it is too old.
    pub fn at(program: &Path) -> Result<Self, McaError> {
        let printed = run::text(program, &["--version".to_owned()], "")?;
        let version = printed.split("LLVM version ").nth(1).and_then(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok())
        });
        match version {
            Some(version) if version >= OLDEST => Ok(Self { program: program.to_owned(), version }),
            _ => {
                let found = printed.lines().next().unwrap_or("nothing").trim();
                Err(McaError::Version(program.to_owned(), found.to_owned()))
            }
        }
    }

    /// Name or path.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Major version of LLVM.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Demand of each of `blocks` as an endless loop, in AT&T syntax on x86. Blocks share runs of
    /// the program, so many blocks at once are much faster than single blocks.
    ///
    /// # Errors
    /// [`McaError::UnknownCpu`], [`McaError::Start`] or [`McaError::Printed`] for all blocks;
    /// [`McaError::Refused`] or [`McaError::Empty`] for a block.
    pub fn analyse(&self, target: &TargetProcessor, blocks: &[&str]) -> Each<BlockDemand> {
        let run = TargetRun { program: &self.program, target };
        let texts: Vec<String> = blocks.iter().map(|text| target.marked(text)).collect();
        // The table prints each instruction in LLVM's syntax, without directives and comments.
        let table = run.regions(&[TABLE], &texts)?;
        let read = table.regions.iter().flatten().collect::<Vec<_>>();
        let uses = run.uses(&read)?;
        let codes: Vec<Vec<String>> =
            read.iter().map(|region| region.instructions.clone()).collect();
        let mut alone = run.alone(&codes)?.into_iter();
        let figures = table.regions.into_iter().map(|region| {
            let region = region?;
            let alone = alone.next().unwrap_or(Err(McaError::Empty))?;
            let instructions = instructions(&region, &uses, &table.resources);
            Ok(alone.figures(instructions))
        });
        Ok(figures.collect())
    }

    /// Cycles per round of each of `codes`, instructions in default syntax, as an endless loop.
    ///
    /// # Errors
    /// As [`analyse`](Self::analyse).
    pub fn cycles(&self, target: &TargetProcessor, codes: &[Vec<String>]) -> Each<f64> {
        let timed = TargetRun { program: &self.program, target }.rounds(&[], codes)?;
        Ok(timed.into_iter().map(|timed| timed.map(|timed| timed.cycles)).collect())
    }
}

/// Result for each of several texts, or the error of all.
pub type Each<T> = Result<Vec<Result<T, McaError>>, McaError>;

/// Runs of the program for one processor.
struct TargetRun<'a> {
    program: &'a Path,
    target: &'a TargetProcessor,
}

impl TargetRun<'_> {
    /// Port usage of each different instruction of `regions`, by its text.
    fn uses(&self, regions: &[&McaRegion]) -> Result<BTreeMap<String, groups::Uses>, McaError> {
        let target = self.target;
        let probes = probes(target).iter().map(|text| target.marked(text));
        let probes = self.regions(&[TABLE], &probes.collect::<Vec<_>>())?.regions;
        let mut averages: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for region in regions.iter().copied().chain(probes.iter().flatten()) {
            for (at, text) in region.instructions.iter().enumerate() {
                averages.insert(text, region.pressure(at));
            }
        }
        let texts = averages.keys().map(|text| target.marked(text));
        let once = self.regions(&["--iterations=1"], &texts.collect::<Vec<_>>())?;
        let ports = ports(&once.resources);
        let taken = once.regions.iter().map(|region| Some(region.as_ref().ok()?.pressure(0)));
        let taken: Vec<Option<Vec<(usize, f64)>>> = taken.collect();
        let mut known = BTreeSet::new();
        // Certain sets make more splits certain, until nothing changes.
        loop {
            let apart = averages.values().zip(&taken).map(|(average, taken)| match taken {
                Some(taken) => groups::apart(&ports, average, taken, &known),
                None => groups::in_doubt(&ports, average),
            });
            let apart: Vec<groups::Uses> = apart.collect();
            let before = known.len();
            let certain = apart.iter().filter(|uses| uses.certain);
            known.extend(certain.flat_map(|uses| uses.sets.iter().map(|(set, _)| set.clone())));
            if known.len() == before {
                return Ok(averages.keys().map(|text| (*text).to_owned()).zip(apart).collect());
            }
        }
    }

    /// Runs the program on `texts`, each a region. If a text is refused, the rest runs in halves.
    fn regions(&self, arguments: &[&str], texts: &[String]) -> Result<Regions, McaError> {
        if texts.is_empty() {
            return Ok(Regions::default());
        }
        let halves = || {
            let (first, second) = texts.split_at(texts.len() / 2);
            Ok(self.regions(arguments, first)?.and(self.regions(arguments, second)?))
        };
        let size: usize = texts.iter().map(String::len).sum();
        if size > MOST_INPUT && texts.len() > 1 {
            return halves();
        }
        let TargetProcessor { triple, cpu } = self.target;
        let mut all = vec![format!("-mtriple={triple}"), format!("-mcpu={cpu}")];
        // The text of a report is the key of an instruction, so its syntax is fixed.
        all.push("--output-asm-variant=0".to_owned());
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        // LLVM 19 misses names in marks that begin with `//`, the usual comment of Arm's assemblers.
        let mark = |(at, text)| format!("# LLVM-MCA-BEGIN r{at}\n{text}\n# LLVM-MCA-END r{at}\n");
        let input: String = texts.iter().enumerate().map(mark).collect();
        match run::report(self.program, &all, &input) {
            Ok(report) => Ok(Regions::of(report, texts.len())),
            // The message names no region; halving finds the refused text.
            Err(McaError::Refused(..)) if texts.len() > 1 => halves(),
            Err(refused @ McaError::Refused(..)) => {
                let none = texts[0].lines().all(|line| line.trim().is_empty());
                let error = if none { McaError::Empty } else { refused };
                Ok(Regions { regions: vec![Err(error)], resources: Vec::new() })
            }
            Err(error) => Err(error),
        }
    }
}

/// Limit of one run's text, in bytes. The report, held in memory, is some twenty times as long.
const MOST_INPUT: usize = 256 << 10;

const TABLE: &str = "--instruction-tables";

/// Regions in the order of the texts, and the names of the processor's ports.
#[derive(Default)]
struct Regions {
    regions: Vec<Result<McaRegion, McaError>>,
    resources: Vec<String>,
}

impl Regions {
    /// Reads a report. A text without an instruction has no region in the report.
    fn of(report: run::McaReport, texts: usize) -> Self {
        let mut regions: Vec<_> = (0..texts).map(|_| Err(McaError::Empty)).collect();
        for region in report.regions {
            let at: Option<usize> = region.name.strip_prefix('r').and_then(|at| at.parse().ok());
            if let Some(place) = at.and_then(|at| regions.get_mut(at)) {
                *place = Ok(region);
            }
        }
        Self { regions, resources: report.target.resources.iter().map(|name| tidy(name)).collect() }
    }

    fn and(mut self, mut other: Self) -> Self {
        self.regions.append(&mut other.regions);
        if self.resources.is_empty() {
            self.resources = other.resources;
        }
        self
    }
}

impl TargetProcessor {
    /// `text` after the assembler's directives.
    fn marked(&self, text: &str) -> String {
        let syntax = if self.is("x86_64") { ".att_syntax\n" } else { "" };
        format!("{syntax}{text}")
    }

    fn is(&self, architecture: &str) -> bool {
        self.triple.starts_with(architecture)
    }
}

/// Instructions, known to any processor of the architecture, that show most sets of ports alone.
fn probes(target: &TargetProcessor) -> &'static [&'static str] {
    const X86: &[&str] = &[
        "addq %rax, %rcx",
        "leaq 8(%rax), %rcx",
        "imulq %rax, %rcx",
        "shlq $3, %rcx",
        "bswapq %rax",
        "jne 1f\n1:",
        "jmp 1f\n1:",
        "movq (%rax), %rcx",
        "movq %rcx, (%rax)",
        "movsd (%rax), %xmm0",
        "movsd %xmm0, (%rax)",
        "addsd %xmm0, %xmm1",
        "mulsd %xmm0, %xmm1",
        "divsd %xmm0, %xmm1",
        "sqrtsd %xmm0, %xmm1",
        "cvtsi2sdq %rax, %xmm0",
        "cvttsd2si %xmm0, %rax",
        "ucomisd %xmm0, %xmm1",
        "movq %rax, %xmm0",
        "movq %xmm0, %rax",
        "paddd %xmm0, %xmm1",
        "pmuludq %xmm0, %xmm1",
        "pand %xmm0, %xmm1",
        "andps %xmm0, %xmm1",
        "pshufd $1, %xmm0, %xmm1",
        "shufps $1, %xmm0, %xmm1",
        "pslld $1, %xmm1",
        "pmovmskb %xmm0, %eax",
    ];
    if target.is("x86_64") { X86 } else { &[] }
}

/// Makes a port's name printable. LLVM names unit 0 of a resource of several units by a full stop
/// and the character of number 0.
fn tidy(name: &str) -> String {
    match name.chars().last() {
        Some(unit) if unit.is_control() => {
            format!("{}{}", &name[..name.len() - unit.len_utf8()], u32::from(unit))
        }
        _ => name.to_owned(),
    }
}

/// Groups ports into resources, by their names.
fn ports(resources: &[String]) -> groups::Ports {
    let mut names: Vec<&str> = Vec::new();
    let numbers = resources.iter().map(|name| {
        let name = name.split('.').next().unwrap_or_default();
        names.iter().position(|other| *other == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    });
    groups::Ports { resource: numbers.collect() }
}

/// Instructions of `region`, with names of ports.
fn instructions(
    region: &McaRegion,
    uses: &BTreeMap<String, groups::Uses>,
    resources: &[String],
) -> Vec<Instruction> {
    let listed = region.instructions.iter().zip(region.slots());
    let instructions = listed.map(|(text, slots)| {
        let uses = uses.get(text);
        let sets = uses.map_or(&[][..], |uses| &uses.sets).iter();
        let ports = sets.map(|(set, cycles)| (named(set, resources), *cycles)).collect();
        let certain = uses.is_some_and(|uses| uses.certain);
        Instruction { text: text.clone(), slots, ports, certain }
    });
    instructions.collect()
}

/// Names of the ports of `set`; a port without a name has its number.
fn named(set: &[usize], resources: &[String]) -> Vec<String> {
    let names =
        set.iter().map(|port| resources.get(*port).cloned().unwrap_or_else(|| port.to_string()));
    names.collect()
}
