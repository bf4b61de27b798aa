//! Who had cores of their own in a quantum.

use colocate_machine::{CoreIdx, Machine, PuIdx};
use colocate_policy::JobIdx;
use colocate_policy::schedule::Choice;
use std::collections::BTreeMap;

/// By chosen job, whether no other one has a thread on a core of it. A job of which a thread is left to the kernel
/// may be anywhere, so nobody has then.
pub(super) fn own_cores(choices: &[Choice], machine: &Machine) -> BTreeMap<JobIdx, bool> {
    // Per core, the first job there; `None` if there is another one, too.
    let mut owner: BTreeMap<CoreIdx, Option<JobIdx>> = BTreeMap::new();
    let mut anywhere = false;
    for choice in choices {
        anywhere |= choice.places.iter().any(|(pu, _)| pu.is_none());
        for pu in choice.places.iter().filter_map(|(pu, _)| *pu) {
            let first = owner.entry(machine.core_of(pu)).or_insert(Some(choice.job));
            *first = first.filter(|job| *job == choice.job);
        }
    }
    let is_own = |pu: PuIdx| owner[&machine.core_of(pu)].is_some();
    let has_own =
        |choice: &Choice| choice.places.iter().filter_map(|(pu, _)| *pu).all(is_own) && !anywhere;
    choices.iter().map(|choice| (choice.job, has_own(choice))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;
    use colocate_policy::schedule::{Allocated, Selected};
    use std::collections::BTreeSet;

    /// As [`own_cores`] says, job by job against every other one.
    fn has_own_cores(choice: &Choice, choices: &[Choice], machine: &Machine) -> bool {
        let cores = |choice: &Choice| -> Option<BTreeSet<CoreIdx>> {
            choice.places.iter().map(|(pu, _)| pu.map(|pu| machine.core_of(pu))).collect()
        };
        let Some(mine) = cores(choice) else { return false };
        let mut others = choices.iter().filter(|other| other.job != choice.job);
        others.all(|other| cores(other).is_some_and(|cores| cores.is_disjoint(&mine)))
    }

    /// Three jobs with up to two threads each, on four PUs or left to the kernel.
    #[test]
    fn own_cores_by_comparing_all() {
        let machine = machine();
        let place = |n: u32| (Some(PuIdx(n)).filter(|pu| pu.0 < 4), Allocated::Next);
        let mut shapes = vec![vec![]];
        for a in 0..5 {
            shapes.push(vec![place(a)]);
            shapes.extend((0..5).map(|b| vec![place(a), place(b)]));
        }
        let selected = Selected::Room;
        let choice = |job: u32, places: &Vec<_>| Choice {
            job: JobIdx(job),
            selected: selected.clone(),
            places: places.clone(),
        };
        let mut own = 0;
        for (a, b) in shapes.iter().flat_map(|a| shapes.iter().map(move |b| (a, b))) {
            for c in &shapes[..12] {
                let choices = [choice(3, a), choice(0, b), choice(1, c)];
                let found = own_cores(&choices, &machine);
                for choice in &choices {
                    let wanted = has_own_cores(choice, &choices, &machine);
                    assert_eq!(found[&choice.job], wanted, "{choices:?}");
                    own += usize::from(wanted);
                }
            }
        }
        assert!(own > 100, "{own}");
    }
}
