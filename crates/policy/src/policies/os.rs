//! `os`: leave every task to the kernel.
//!
//! # Problem
//! Every other policy must be compared with doing nothing.
//! # Approach
//! Pin nothing. The inherited affinity mask stays as it is.
//! # Terms
//! None.
//! # Algorithm
//! No task gets a PU; neither do tasks born later.
//! # Properties
//! - **Hands off**: no decision names a PU. -> test `hands_off`

use super::{Choice, Placement};
use crate::plan::{Newborn, Why};

pub(super) fn place(tasks: usize) -> Placement {
    Placement {
        choices: vec![Choice { pu: None, why: Why::LeftToKernel }; tasks],
        newborn: Newborn::LeaveToKernel,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{letters, machine};
    use crate::{Newborn, Place, PolicyKind, plan};

    #[test]
    fn hands_off() {
        let machine = machine("core:2 pu:2");
        let all: Vec<_> = machine.all_pus().collect();
        let made = plan(&PolicyKind::Os, &machine, &all, &letters("ABC", ""));
        assert_eq!(made.decisions.len(), 3);
        assert!(made.decisions.iter().all(|decision| decision.place == Place::LeftToKernel));
        assert_eq!(made.newborn, Newborn::LeaveToKernel);
        assert_eq!(made.predicted, None);
    }
}
