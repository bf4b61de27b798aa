//! Targets of tasks under the plan in force.

use colocate_machine::{PuIdx, PuNr, Shared};

/// Target of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A PU.
    Pu(PuIdx),
    /// All PUs sharing a resource with a PU.
    Sharing(Shared, PuIdx),
    /// A PU offline or excluded from the scenario.
    Unusable(PuNr),
    /// Any PU: left to the kernel, or its job waits.
    Kernel,
    /// None in the plan; the plan's default placement applies.
    DefaultPlacement,
}

/// Targets of all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// By task.
    pub of: Vec<Target>,
    /// PUs for tasks outside of the plan; `None` for the kernel's choice.
    pub fill: Option<Vec<PuIdx>>,
}

impl Targets {
    pub fn new(tasks: usize) -> Self {
        Self { of: vec![Target::DefaultPlacement; tasks], fill: None }
    }
}
