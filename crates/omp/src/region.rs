//! A parallel region, and what was learnt of it.

use crate::learn::{Execution, Learner};

/// A parallel region.
pub struct Region {
    /// The function that the compiler made of it.
    pub body: usize,
    /// `;file;function;line;column;;`, as LLVM's compilers say it; the loader's null if nothing is said.
    pub said: Option<String>,
    /// Whether the program sets its number of threads, or relies on the number that it was answered.
    pub explicit: bool,
    /// Whether it has more than one loop. Then windows of the first one say nothing of the others.
    pub several: bool,
    /// A window that the end of an execution has cut; the next one continues it.
    pub open: Execution,
    /// What was learnt.
    pub learner: Learner,
}

impl Region {
    /// How many threads its team has.
    pub fn team(&self) -> u32 {
        match self.learner.has_windows() {
            false => self.learner.threads(),
            true if self.several => self.learner.most(),
            // All, as long as it learns.
            true => self.learner.settled(),
        }
    }

    /// How many of all its threads may run in the first loop; `None` if all may.
    pub fn admitted(&self) -> Option<u32> {
        let fewer = self.learner.has_windows() && self.learner.threads() < self.learner.most();
        fewer.then(|| self.learner.threads())
    }

    /// Takes in a window. Where executions were compared as wholes, windows are from now on if this one is `long` already; ns.
    pub fn learn(&mut self, window: &Execution, long: Option<u64>) {
        if self.learner.has_windows() {
            self.learner.executed(window);
        } else if let Some(time) = long {
            self.learner.by_windows();
            self.learner.passed(time);
        }
    }
}
