//! A parallel region, and what was learnt of it.

use crate::learn::Learner;

/// A parallel region.
pub struct Region {
    /// The function that the compiler made of it.
    pub body: usize,
    /// `;file;function;line;column;;`, as LLVM's compilers say it; the loader's null if nothing is said.
    pub said: Option<String>,
    /// Whether the program sets its number of threads, or relies on the number that it was answered.
    pub explicit: bool,
    /// What was learnt.
    pub learner: Learner,
}
