//! Jobs that had cores of their own in a quantum.

use super::QueuePlacement;
use colocate_evidence::JobIdx;
use colocate_machine::{CoreIdx, Machine, PuIdx};
use std::collections::BTreeMap;

/// Whether each chosen job shares no core with a thread of another job. A thread left to the kernel
/// may be on any core, so with such a thread no job has cores of its own.
pub(super) fn own_cores(placed: &QueuePlacement, machine: &Machine) -> BTreeMap<JobIdx, bool> {
    // First job on each core; `None` if another job is there, too.
    let mut owner: BTreeMap<CoreIdx, Option<JobIdx>> = BTreeMap::new();
    let mut anywhere = false;
    for (job, pus) in placed {
        anywhere |= pus.contains(&None);
        for pu in pus.iter().flatten() {
            let first = owner.entry(machine.core_of(*pu)).or_insert(Some(*job));
            *first = first.filter(|first| first == job);
        }
    }
    let has_own = |pus: &[Option<PuIdx>]| {
        pus.iter().flatten().all(|pu: &PuIdx| owner[&machine.core_of(*pu)].is_some()) && !anywhere
    };
    placed.iter().map(|(job, pus)| (*job, has_own(pus))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;
    use std::collections::BTreeSet;

    /// As [`own_cores`] says, job by job against every other one.
    fn has_own_cores(job: JobIdx, placed: &QueuePlacement, machine: &Machine) -> bool {
        let cores = |pus: &[Option<PuIdx>]| -> Option<BTreeSet<CoreIdx>> {
            pus.iter().map(|pu| pu.map(|pu| machine.core_of(pu))).collect()
        };
        let Some(mine) = cores(&placed[&job]) else { return false };
        let mut others = placed.iter().filter(|(other, _)| **other != job);
        others.all(|(_, other)| cores(other).is_some_and(|cores| cores.is_disjoint(&mine)))
    }

    /// Three jobs with up to two threads each, on four PUs or left to the kernel.
    #[test]
    fn own_cores_by_comparing_all() {
        let machine = machine();
        let place = |n: u32| Some(PuIdx(n)).filter(|pu| pu.0 < 4);
        let mut shapes = vec![vec![]];
        for a in 0..5 {
            shapes.push(vec![place(a)]);
            shapes.extend((0..5).map(|b| vec![place(a), place(b)]));
        }
        let mut own = 0;
        for (a, b) in shapes.iter().flat_map(|a| shapes.iter().map(move |b| (a, b))) {
            for c in &shapes[..12] {
                let placed: QueuePlacement =
                    [(3, a), (0, b), (1, c)].map(|(job, pus)| (JobIdx(job), pus.clone())).into();
                let found = own_cores(&placed, &machine);
                for job in placed.keys() {
                    let wanted = has_own_cores(*job, &placed, &machine);
                    assert_eq!(found[job], wanted, "{placed:?}");
                    own += usize::from(wanted);
                }
            }
        }
        assert!(own > 100, "{own}");
    }
}
