//! What the plan in force says of each task.

use colocate_machine::{PuIdx, PuNr, Shared};

/// What a plan says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This PU.
    Pu(PuIdx),
    /// The PUs that share this with a PU.
    Sharing(Shared, PuIdx),
    /// A PU that cannot be used.
    Unusable(PuNr),
    /// The kernel may choose, or its job waits.
    Kernel,
    /// Nothing; the plan's default placement applies.
    DefaultPlacement,
}

/// What the plan in force says.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub of: Vec<Target>,
    /// PUs to fill with tasks that the plan does not name; `None` leaves them to the kernel.
    pub fill: Option<Vec<PuIdx>>,
}

impl Targets {
    pub fn new(tasks: usize) -> Self {
        Self { of: vec![Target::DefaultPlacement; tasks], fill: None }
    }
}
