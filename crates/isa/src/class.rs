//! The five classes of work, and counts of them.

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, BitOr};

/// Class of work, as Serpa et al. and PAPI distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Transfer of control: jump, call or return, conditional or not.
    Branch,
    /// Floating-point arithmetic, scalar or vector, conversions and comparisons included.
    Float,
    /// Integer arithmetic and logic, scalar or vector, address computation by `lea` included.
    /// Plain moves between registers do no arithmetic and are not counted.
    Int,
    /// Read of memory.
    Load,
    /// Write of memory.
    Store,
}

impl Class {
    /// All classes, in the order of files and tables.
    pub const ALL: [Self; 5] = [Self::Branch, Self::Float, Self::Int, Self::Load, Self::Store];

    /// Name of the class in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Float => "float",
            Self::Int => "int",
            Self::Load => "load",
            Self::Store => "store",
        }
    }
}

/// Classes of one instruction.
///
/// An instruction can have several classes: on x86 `add [mem], reg` loads, computes and stores. It
/// can also have none, as `nop`. The shares of the classes therefore need not add up to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassSet(u8);

impl ClassSet {
    /// No class.
    pub const NONE: Self = Self(0);

    /// Whether `class` is in the set.
    #[must_use]
    pub const fn has(self, class: Class) -> bool {
        self.0 & (1 << class as u8) != 0
    }

    /// Set with `class` added.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class as u8)
    }
}

impl From<Class> for ClassSet {
    fn from(class: Class) -> Self {
        Self::NONE.with(class)
    }
}

impl BitOr for ClassSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Number of instructions executed, in total and by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassCounts {
    /// All instructions, including those without a class.
    pub instructions: u64,
    /// Instructions of each class, indexed by `Class as usize`.
    pub of: [u64; 5],
}

impl ClassCounts {
    /// Counts one instruction with the classes in `set`.
    pub fn count(&mut self, set: ClassSet) {
        self.instructions += 1;
        for class in Class::ALL {
            self.of[class as usize] += u64::from(set.has(class));
        }
    }

    /// Counts multiplied by `times`; saturates.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        Self {
            instructions: self.instructions.saturating_mul(times),
            of: self.of.map(|n| n.saturating_mul(times)),
        }
    }
}

impl AddAssign for ClassCounts {
    fn add_assign(&mut self, other: Self) {
        self.instructions = self.instructions.saturating_add(other.instructions);
        for (mine, theirs) in self.of.iter_mut().zip(other.of) {
            *mine = mine.saturating_add(theirs);
        }
    }
}
