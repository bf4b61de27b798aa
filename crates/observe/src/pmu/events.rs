//! Events, their counters in perf, and readings of event groups.

use colocate_model::Class;
use colocate_model::stack::StackParts;
use serde::{Deserialize, Deserializer};

/// A hardware event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCode {
    /// Name in libpfm4, after `pmu::`. Several names, separated by a space, if libpfm4 does not
    /// combine masks that the processor combines; their codes are ORed.
    pub name: &'static str,
    /// Code: perf's `config` of a raw event.
    pub config: u64,
}

impl<'de> Deserialize<'de> for EventCode {
    /// Leaks the name: the tables are read once and live as long as the program.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (name, config) = <(String, u64)>::deserialize(from)?;
        Ok(Self { name: name.leak(), config })
    }
}

/// Quantity counted by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions retired.
    Instructions,
    /// Instructions started, mispredicted paths included.
    Begun,
    /// Core cycles.
    Cycles,
    /// Work of a class; several events of a class add up.
    Class(Class),
    /// Component of a demand vector beside the classes.
    Extra(Extra),
    /// Event of a CPI stack, by its index in the stack's table.
    Stack(u8),
}

/// Kind of a perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Generic hardware event, by perf's number.
    Generic(u64),
    /// Raw event of the processor.
    Raw(EventCode),
    /// Software event, by perf's number; needs no hardware counter.
    Software(u64),
}

/// An event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuEvent {
    /// Counted quantity.
    pub role: Role,
    /// Whole that a class's count is a share of; `Role::Instructions` for roles without a whole.
    pub base: Role,
    /// Kind of the perf event.
    pub source: EventKind,
}

/// Events counted together; one counts instructions, as a rule the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventGroup {
    /// Events, in the order of opening and reading.
    pub events: Vec<PmuEvent>,
}

impl EventGroup {
    /// Sum of the counts with `role`; `None` without such an event.
    pub fn count_of(&self, role: Role, counts: &[u64]) -> Option<u64> {
        let mut matching =
            self.events.iter().zip(counts).filter(|(event, _)| event.role == role).peekable();
        matching.peek()?;
        Some(matching.map(|(_, count)| count).sum())
    }

    /// Classes counted by the group, each once, with its whole.
    pub fn classes(&self) -> impl Iterator<Item = (Class, Role)> + '_ {
        Class::ALL.into_iter().filter_map(|class| {
            let event = self.events.iter().find(|event| event.role == Role::Class(class))?;
            Some((class, event.base))
        })
    }

    /// Group of generic events with `roles`, for tests of arithmetic.
    #[cfg(test)]
    pub(crate) fn of_roles(roles: &[Role]) -> Self {
        Self {
            events: roles
                .iter()
                .map(|&role| PmuEvent {
                    role,
                    base: Role::Instructions,
                    source: EventKind::Generic(0),
                })
                .collect(),
        }
    }
}

/// Events for the same group: a class with all its parts and its base.
pub type Bundle = Vec<PmuEvent>;

/// Component of a demand vector beside the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Mispredicted branches.
    BranchMisses,
    /// Lines fetched by a data cache from the next level, by the cache's level from 1.
    Misses(u8),
    /// Front-end slots: micro-operations in the processor's own count of its width.
    Slots,
}

impl Extra {
    /// All components, the most important first.
    pub const ALL: [Self; 5] =
        [Self::BranchMisses, Self::Misses(1), Self::Misses(2), Self::Misses(3), Self::Slots];

    /// Name in the table of events.
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

/// Limit of the events of a CPI stack.
pub const MOST_EVENTS: usize = 6;

/// Conversion of a CPI stack's events to its parts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// The first event counts slots; each further event counts the slots of a part.
    Slots,
    /// Each event counts the slots of a part; the number is the slots per cycle.
    OfWidth(f64),
    /// As [`Formula::OfWidth`]; the last part is the rest.
    OfWidthAndRest(f64),
    /// Each event counts the cycles of a part; the last part is the rest.
    CyclesAndRest,
    /// Intel before Ice Lake: 4 slots per cycle, half for each sibling. Events: micro-operations
    /// not delivered, issued, retired; recovery cycles; time with the sibling halted, and time.
    FourIssued,
    /// Arm's slots. Events: slots lost by the front end, slots lost by the back end, operations
    /// retired, operations started. The kernel gives the slots per cycle.
    Sent,
}

/// Events and formula of a CPI stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackTable {
    /// Common name.
    pub name: String,
    /// Parts, in their order.
    #[serde(deserialize_with = "parts")]
    pub parts: StackParts,
    /// Events, at most [`MOST_EVENTS`], in the order of the formula.
    pub events: Vec<EventCode>,
    /// Sets of event indices; in each set at least one event counts in any million instructions.
    pub alive: Vec<Vec<usize>>,
    /// Conversion of events to parts.
    pub formula: Formula,
    /// Source of the codes.
    pub source: String,
}

/// Part names, leaked: the table is read once and lives as long as the program.
fn parts<'de, D: Deserializer<'de>>(from: D) -> Result<StackParts, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.into_iter().map(|name| &*name.leak()).collect::<Vec<_>>().leak())
}

/// Reading of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time for which the group was enabled, in ns of the thread's CPU time.
    pub enabled_ns: u64,
    /// Time for which the group counted, in ns; at most `enabled_ns`.
    pub running_ns: u64,
    /// Counts, in the order of the group's events.
    pub counts: Vec<u64>,
}
