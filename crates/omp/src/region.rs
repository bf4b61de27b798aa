//! A parallel region with its learner.

use crate::learn::{Execution, Learner};

/// A parallel region.
pub struct ParallelRegion {
    /// Address of the outlined function.
    pub body: usize,
    /// `;file;function;line;column;;` from LLVM's compilers; `None` without a source location.
    pub said: Option<String>,
    /// The program sets the number of threads, or relies on the number that it has read.
    pub explicit: bool,
    /// The region has several loops. Windows of its first loop then do not describe the whole
    /// region.
    pub several: bool,
    /// Window cut by the end of an execution; continued by the next execution.
    pub open: Execution,
    /// State of learning.
    pub learner: Learner,
}

impl ParallelRegion {
    /// Size of the region's team.
    pub fn team(&self) -> u32 {
        if !self.learner.windows {
            self.learner.threads()
        } else if self.several {
            self.learner.most
        } else {
            // All threads while it learns: the gate holds those that should not run.
            self.learner.settled()
        }
    }

    /// Number of threads that may run in the first loop; `None`: all.
    pub fn admitted(&self) -> Option<u32> {
        let fewer = self.learner.windows && self.learner.threads() < self.learner.most;
        fewer.then(|| self.learner.threads())
    }

    /// Adds a window. `long`: length in ns of an execution long enough for windows; a learner that
    /// compares whole executions then changes to windows.
    pub fn learn(&mut self, window: &Execution, long: Option<u64>) {
        if self.learner.windows {
            self.learner.executed(window);
        } else if let Some(time) = long {
            self.learner.by_windows();
            self.learner.passed(time);
        }
    }
}
