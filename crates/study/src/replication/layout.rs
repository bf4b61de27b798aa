//! Positions of fast and slow cores under the last-level caches, and other changes of the described
//! machine.

use super::StudyError;
use super::definition::Layout;
use colocate_machine::{KindIdx, Machine, Performance};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Layout {
    /// The machine with its cores in this layout.
    #[must_use]
    pub fn of(self, machine: &Machine) -> Machine {
        match self {
            Self::Friendly => machine.clone(),
            Self::Unfriendly => {
                let mut kinds: Vec<KindIdx> = machine.cores.iter().map(|core| core.kind).collect();
                // Kinds are in the order of speed, the slowest first.
                kinds.sort_by_key(|kind| Reverse(kind.idx()));
                with_kinds(machine, kinds, "fast cores under caches of their own")
            }
        }
    }
}

/// The same machine with slow cores only: the reference of serial shares.
#[must_use]
pub fn all_slow(machine: &Machine) -> Machine {
    with_kinds(machine, vec![KindIdx::new(0); machine.cores.len()], "slow cores only")
}

/// The same speeds with fast cores as slow as the slow cores. Their capacities still name them
/// fast, so a move to them gains nothing and its loss is the cost of the move.
#[must_use]
pub fn levelled(performance: &Performance) -> Performance {
    let mut levelled = performance.clone();
    if let Some(slowest) = performance.kinds.first() {
        levelled.kinds.fill(slowest.clone());
    }
    levelled
}

/// Checks that the machine suits the study: migration-friendly, with two kinds of cores or more.
///
/// # Errors
/// [`StudyError::Unsuitable`] if not.
pub fn check(machine: &Machine) -> Result<(), StudyError> {
    let last: Option<BTreeSet<_>> =
        machine.all_pus().map(|pu| machine.last_level_cache(pu)).collect();
    let last = last.unwrap_or_default();
    let friendly = last.iter().all(|cache| {
        let pus = machine.caches[cache.idx()].pus.iter();
        let kinds = pus.map(|&pu| machine.cores[machine.core_of(pu).idx()].kind.idx());
        kinds.collect::<BTreeSet<usize>>().len() == machine.kinds.len()
    });
    if machine.kinds.len() > 1 && last.len() > 1 && friendly {
        return Ok(());
    }
    let expected =
        "a machine with fast and slow cores under each of several last-level caches".to_owned();
    Err(StudyError::Unsuitable(expected, machine.name.clone()))
}

fn with_kinds(machine: &Machine, kinds: Vec<KindIdx>, what: &str) -> Machine {
    let mut changed = machine.clone();
    changed.name = format!("{}, {what}", machine.name);
    for (core, kind) in changed.cores.iter_mut().zip(kinds) {
        core.kind = kind;
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    /// Last-level caches by the fast cores under them.
    fn fast_under_caches(machine: &Machine) -> Vec<usize> {
        let last: BTreeSet<_> =
            machine.all_pus().filter_map(|pu| machine.last_level_cache(pu)).collect();
        let fast = |pu| machine.cores[machine.core_of(pu).idx()].kind.idx() == 1;
        last.iter()
            .map(|cache| machine.caches[cache.idx()].pus.iter().filter(|&&pu| fast(pu)).count())
            .collect()
    }

    #[test]
    fn figure_5() {
        let (machine, performance) = machine("amp-4x12");
        assert!(check(&machine).is_ok());
        assert_eq!(fast_under_caches(&Layout::Friendly.of(&machine)), [1, 1, 1, 1]);
        let unfriendly = Layout::Unfriendly.of(&machine);
        assert_eq!(fast_under_caches(&unfriendly), [4, 0, 0, 0]);
        assert!(check(&unfriendly).is_err());
        assert_eq!(fast_under_caches(&all_slow(&machine)), [0; 4]);
        let level = levelled(&performance);
        assert_eq!(level.kinds[1], performance.kinds[0]);
        for changed in [unfriendly, all_slow(&machine)] {
            performance.check(&changed).unwrap();
            level.check(&changed).unwrap();
        }
    }

    #[test]
    fn machines_of_one_kind_are_refused() {
        let said = check(&machine("xeon-x3320").0).unwrap_err().to_string();
        assert!(said.ends_with("found Intel Xeon X3320"), "{said}");
    }
}
