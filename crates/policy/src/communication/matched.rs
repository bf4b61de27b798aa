//! Mapping of tasks to PUs by perfect matchings, as published: Cruz et al., JPDC 2014, section 4.3.
//!
//! From the PUs up, the groups of each level are matched so that those of one domain communicate
//! most. The amount between two groups is the sum over the pairs across (equation 6). Where a
//! domain has a number of parts that is no power of two, the paper attaches single parts to the
//! best pairs by a bipartite matching; here matchings with empty parts choose both.

use super::mapping::{PuPath, mapping};
use super::matrix::Matrix;
use crate::matching::in_groups;
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;

/// PU of each task; as [`mapping`] where domains of a level differ in size, which the paper leaves
/// open.
#[must_use]
pub fn matched(matrix: &Matrix, tasks: &[TaskId], places: &UsableMachine<'_>) -> Vec<PuIdx> {
    let Some(levels) = levels(places) else {
        return mapping(matrix, tasks, places);
    };
    let most = 2.0 * matrix.pairs().map(|(_, amount)| amount).sum::<f64>();
    let all = (0..tasks.len()).map(|task| vec![vec![task]]).collect();
    let on_pus = joined(matrix, tasks, most, all, places.pus.len());
    // Tasks of a PU become one place.
    let mut domains: Vec<Domain> = on_pus.into_iter().map(|pu| vec![pu.concat()]).collect();
    for count in levels {
        domains = joined(matrix, tasks, most, domains, count);
    }
    let mut seats = vec![PuIdx(0); tasks.len()];
    for (pu, task) in in_tree_order(places).into_iter().zip(domains.concat()) {
        task.into_iter().for_each(|task| seats[task] = pu);
    }
    seats
}

/// Tasks of each PU of a domain.
type Domain = Vec<Vec<usize>>;

/// Joins domains to `count` larger ones. `most`: more than any domain communicates.
fn joined(
    matrix: &Matrix,
    tasks: &[TaskId],
    most: f64,
    domains: Vec<Domain>,
    count: usize,
) -> Vec<Domain> {
    let width = domains.len().div_ceil(count);
    let members: Vec<Vec<TaskId>> = domains
        .iter()
        .map(|domain| domain.iter().flatten().map(|task| tasks[*task]).collect())
        .collect();
    let groups = in_groups(domains.len(), count, width, |group| {
        let members: Vec<TaskId> = group.iter().flat_map(|part| &members[*part]).copied().collect();
        most - within(matrix, &members)
    });
    groups
        .into_iter()
        .map(|group| group.into_iter().flat_map(|part| domains[part].clone()).collect())
        .collect()
}

/// Amount between all pairs of `members`.
fn within(matrix: &Matrix, members: &[TaskId]) -> f64 {
    let pairs =
        members.iter().enumerate().flat_map(|(at, a)| members[..at].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| matrix.between(*a, *b)).sum()
}

/// Usable PUs, those of a domain adjacent.
fn in_tree_order(places: &UsableMachine<'_>) -> Vec<PuIdx> {
    let mut pus = places.pus.clone();
    pus.sort_by_key(|pu| places.path(*pu));
    pus
}

/// Numbers of cores, last-level caches, nodes, packages and machines; `None` if two domains of a
/// level have different numbers of PUs, or no PU is usable.
fn levels(places: &UsableMachine<'_>) -> Option<Vec<usize>> {
    let paths: Vec<PuPath> = in_tree_order(places).iter().map(|pu| places.path(*pu)).collect();
    let depths = (0..PuPath::default().len()).rev();
    let counts = depths.map(|depth| {
        let sizes: Vec<usize> =
            paths.chunk_by(|a, b| a[..depth] == b[..depth]).map(<[PuPath]>::len).collect();
        let is_even = sizes.windows(2).all(|two| two[0] == two[1]);
        (is_even && !sizes.is_empty()).then_some(sizes.len())
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use colocate_evidence::JobIdx;
    use proptest::prelude::*;

    fn task(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    fn placed(spec: &str, count: u32, amounts: &[(u32, u32, f64)]) -> Vec<PuIdx> {
        let machine = machine(spec);
        let places = UsableMachine::new(&machine, &machine.all_pus().collect::<Vec<_>>());
        let tasks: Vec<TaskId> = (0..count).map(task).collect();
        let matrix = Matrix::of(amounts.iter().map(|(a, b, n)| (task(*a), task(*b), *n)));
        matched(&matrix, &tasks, &places)
    }

    /// Figure 6: pairs first, then AB beside CD. Pairs of pairs have 1 + 1 across, others nothing.
    #[test]
    fn pairs_then_pairs_of_pairs() {
        let amounts = [
            (0, 5, 9.0),
            (1, 4, 9.0),
            (2, 7, 9.0),
            (3, 6, 9.0),
            (0, 2, 1.0),
            (5, 7, 1.0),
            (1, 3, 1.0),
            (4, 6, 1.0),
        ];
        let seats = placed("pack:2 l3:2 core:2", 8, &amounts);
        let share = |width: u32, a: usize, b: usize| seats[a].0 / width == seats[b].0 / width;
        assert!(share(2, 0, 5) && share(2, 1, 4) && share(2, 2, 7) && share(2, 3, 6), "{seats:?}");
        assert!(share(4, 0, 2) && share(4, 1, 3), "{seats:?}");
    }

    /// Figure 7: two caches of three cores, two pairs and two loose threads.
    #[test]
    fn loose_tasks_join_the_pairs_they_talk_to() {
        let amounts = [(0, 1, 9.0), (2, 3, 9.0), (4, 0, 3.0), (5, 2, 3.0), (4, 5, 1.0)];
        let seats = placed("l3:2 core:3", 6, &amounts);
        let cache = |task: usize| seats[task].0 / 3;
        assert_eq!([cache(1), cache(4)], [cache(0); 2], "{seats:?}");
        assert_eq!([cache(3), cache(5)], [cache(2); 2], "{seats:?}");
    }

    #[test]
    fn more_tasks_than_pus_share_them() {
        let seats = placed("core:2", 4, &[(0, 2, 1.0), (1, 3, 1.0)]);
        assert!(seats[0] == seats[2] && seats[1] == seats[3] && seats[0] != seats[1], "{seats:?}");
    }

    proptest! {
        /// On two caches of two cores the matching is a cheapest mapping: one of three pairings.
        #[test]
        fn is_optimal_on_two_caches(amounts in proptest::collection::vec(0.0_f64..9.0, 6)) {
            let pairs = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)];
            let all: Vec<_> = pairs.iter().zip(&amounts).map(|((a, b), n)| (*a, *b, *n)).collect();
            let seats = placed("l3:2 core:2", 4, &all);
            let near = |(a, b, _): &&(u32, u32, f64)| seats[*a as usize].0 / 2 == seats[*b as usize].0 / 2;
            let found: f64 = all.iter().filter(near).map(|(.., n)| n).sum();
            let most = amounts.chunks(2).map(|two| two[0] + two[1]).fold(0.0, f64::max);
            // Costs are whole steps.
            prop_assert!(found > most - 1e-6, "{found} {most}");
        }
    }
}
