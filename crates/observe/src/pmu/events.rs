//! Events: what they count, how perf opens them, and readings of groups of them.

use colocate_model::Class;
use colocate_model::stack::Parts;
use serde::{Deserialize, Deserializer};

/// One hardware event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its name in libpfm4, after `pmu::`. Several, separated by a space, where libpfm4 does not
    /// combine the masks that the processor does: their codes are joined bit by bit.
    pub name: &'static str,
    /// Its code: what perf takes as `config` of a raw event.
    pub config: u64,
}

impl<'de> Deserialize<'de> for Code {
    /// The tables are read once, so names may live as long as the program.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (name, config) = <(String, u64)>::deserialize(from)?;
        Ok(Self { name: name.leak(), config })
    }
}

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions retired.
    Instructions,
    /// Instructions begun.
    Begun,
    /// Core cycles.
    Cycles,
    /// Work of one class; a class may have several events, which add up.
    Class(Class),
    /// What a demand vector says beside the classes.
    Extra(Extra),
    /// One of the events that show where cycles went, by its place in their table.
    Stack(u8),
}

/// How perf opens an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of perf's generic hardware events, by its number.
    Generic(u64),
    /// A code of the processor's own.
    Raw(Code),
    /// One of the kernel's own events, by its number; these need no counters.
    Software(u64),
}

/// An event to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it counts.
    pub role: Role,
    /// What a class's count is a share of; `Role::Instructions` for the others.
    pub base: Role,
    /// How perf opens it.
    pub source: Source,
}

/// Events that are counted together; one is the instructions, and as a rule the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The events, in the order they are opened and read.
    pub events: Vec<Event>,
}

impl Group {
    /// The sum of the counts with `role`, or `None` if the group does not count it.
    pub fn count_of(&self, role: Role, counts: &[u64]) -> Option<u64> {
        let mut matching =
            self.events.iter().zip(counts).filter(|(event, _)| event.role == role).peekable();
        matching.peek()?;
        Some(matching.map(|(_, count)| count).sum())
    }

    /// The classes that the group counts, each once, with what they are a share of.
    pub fn classes(&self) -> impl Iterator<Item = (Class, Role)> + '_ {
        Class::ALL.into_iter().filter_map(|class| {
            let event = self.events.iter().find(|event| event.role == Role::Class(class))?;
            Some((class, event.base))
        })
    }

    /// A group of generic events with `roles`, for tests of arithmetic.
    #[cfg(test)]
    pub(crate) fn of_roles(roles: &[Role]) -> Self {
        Self {
            events: roles
                .iter()
                .map(|&role| Event { role, base: Role::Instructions, source: Source::Generic(0) })
                .collect(),
        }
    }
}

/// Events that must be in one group with each other: a class with all its parts and its base.
pub type Bundle = Vec<Event>;

/// What a demand vector says beside the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Branches that are mispredicted.
    BranchMisses,
    /// Lines that a data cache fetches from farther away, by its level from 1.
    Misses(u8),
    /// Front-end slots: micro-operations as the processor counts its width.
    Slots,
}

impl Extra {
    /// All of them, the most important first.
    pub const ALL: [Self; 5] =
        [Self::BranchMisses, Self::Misses(1), Self::Misses(2), Self::Misses(3), Self::Slots];

    /// Its name in the table of events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BranchMisses => "branch-misses",
            Self::Misses(1) => "misses-1",
            Self::Misses(2) => "misses-2",
            Self::Misses(_) => "misses-3",
            Self::Slots => "slots",
        }
    }

    pub(super) fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

/// How one of them is counted on a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraRow {
    /// What.
    pub extra: Extra,
    /// The event.
    pub code: Code,
}

/// Most events of a table.
pub const MOST_EVENTS: usize = 6;

/// How the parts follow from the events.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// The first event counts slots; each further one counts those of a part.
    Slots,
    /// Each event counts the slots of a part, of which a cycle has so many.
    OfWidth(f64),
    /// Each event counts the slots of a part, of which a cycle has so many; the last part is the rest.
    OfWidthAndRest(f64),
    /// Each event counts the cycles of a part; the last part is the rest.
    CyclesAndRest,
    /// Intel's before Ice Lake, of whose 4 slots a cycle siblings have half each. Micro-operations not
    /// delivered, issued, retired; cycles of recovery; time with the sibling halted, and time.
    FourIssued,
    /// Arm's slots: none sent by the front end's fault, by the back end's; operations retired, and begun.
    /// What a cycle has of them the kernel says.
    Sent,
}

/// Which events show where cycles went.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackTable {
    /// Its common name.
    pub name: String,
    /// The parts, in their order.
    #[serde(deserialize_with = "parts")]
    pub parts: Parts,
    /// The events, at most [`MOST_EVENTS`], in the order that the formula needs.
    pub events: Vec<Code>,
    /// Sets of events, by their places, of each of which at least one counts in any million instructions.
    pub alive: Vec<Vec<usize>>,
    /// How the parts follow from them.
    pub formula: Formula,
    /// Where the codes are from.
    pub source: String,
}

/// Names that live as long as the program: the table is read once.
fn parts<'de, D: Deserializer<'de>>(from: D) -> Result<Parts, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.into_iter().map(|name| &*name.leak()).collect::<Vec<_>>().leak())
}

/// One reading of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// How long the group was enabled, in ns of the thread's time on a CPU.
    pub enabled_ns: u64,
    /// How long it counted, in ns. At most `enabled_ns`.
    pub running_ns: u64,
    /// The counts, in the order of the group's events.
    pub counts: Vec<u64>,
}
