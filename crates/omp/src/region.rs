//! A parallel region, and what was learnt of it.

use crate::learn::Learner;

/// A parallel region.
pub struct Region {
    /// The function that the compiler made of it.
    pub body: usize,
    /// `;file;function;line;column;;`, as LLVM's compilers say it; the loader's null if nothing is said.
    pub said: Option<String>,
    /// Whether the program says itself how many threads it wants, or relies on as many as it was told it gets.
    pub explicit: bool,
    /// What was learnt.
    pub learner: Learner,
}
