//! Mapping of tasks to PUs, with tasks that communicate much near each other.
//!
//! # Approach
//! Top-down: the tasks of a domain are dealt to its parts, which are filled one after the other. A
//! part begins with one task and takes in the task that communicates most with the part (as
//! EagerMap does, Cruz et al., PDP 2015, bottom-up). Then tasks of the part and of the rest are
//! exchanged as by Kernighan and Lin. Finally two tasks swap places, or one task goes to a free
//! place, as long as the cost falls. All of this runs from three starts, and the best result is
//! kept; beyond [`EXCHANGED`] tasks only the first start is dealt, without exchanges. No matching:
//! it requires parts of equal size. The benchmark `mapping` compares with EagerMap, TreeMatch and
//! Scotch.
//! # Terms
//! *Cost*: amount times distance, summed over all pairs. *Distance*: steps up and down the tree of
//! packages, nodes, last-level caches, cores and PUs.
//! # Properties
//! - **Nearly optimal**: in small cases hardly above the least cost of all placements.
//!   -> test `nearly_optimal`
//! - **Even**: no PU has two tasks more than another. -> test `even`
//! - **Patterns are found**: pairs share a core, a ring lies along the tree.
//!   -> test `known_patterns`

use super::matrix::Matrix;
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// Largest number of tasks for which exchanges are tried. Chosen: every pair is examined.
const EXCHANGED: usize = 128;

/// Path to a PU: package, node, last-level cache, core and PU.
pub(crate) type PuPath = [usize; 5];

/// Steps up and down the tree from one PU to another.
#[must_use]
pub(crate) fn distance(a: &PuPath, b: &PuPath) -> f64 {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    2.0 * (a.len() - shared) as f64
}

/// True if all pairs of tasks have the same distance in both placements, so that a change gains
/// nothing (equation 8 of Cruz et al., JPDC 2014). Equivalent: any two tasks share a domain of the
/// tree in both placements or in neither.
#[must_use]
pub fn are_symmetric(places: &UsableMachine<'_>, now: &[PuIdx], before: &[PuIdx]) -> bool {
    let both: Vec<(PuPath, PuPath)> = now
        .iter()
        .zip(before)
        .map(|(now, before)| (places.path(*now), places.path(*before)))
        .collect();
    // At each depth the domains of one placement map one to one to those of the other.
    (1..=PuPath::default().len()).all(|depth| {
        let mut there = BTreeMap::new();
        let mut back = BTreeMap::new();
        both.iter().all(|(now, before)| {
            let now = &now[..depth];
            let before = &before[..depth];
            *there.entry(now).or_insert(before) == before
                && *back.entry(before).or_insert(now) == now
        })
    })
}

/// Sparse rows of the communication matrix: (index of the partner, amount) for each task.
struct Rows(Vec<Vec<(usize, f64)>>);

impl Rows {
    fn of(matrix: &Matrix, tasks: &[TaskId]) -> Self {
        let place: BTreeMap<TaskId, usize> = tasks.iter().copied().zip(0..).collect();
        let mut rows = vec![Vec::new(); tasks.len()];
        for ((a, b), amount) in matrix.pairs() {
            if let (Some(&a), Some(&b)) = (place.get(&a), place.get(&b)) {
                rows[a].push((b, amount));
                rows[b].push((a, amount));
            }
        }
        Self(rows)
    }

    /// Amount of a task with all partners.
    fn amount(&self, task: usize) -> f64 {
        self.0[task].iter().map(|(_, amount)| amount).sum()
    }

    /// Cost of a placement; `seats` are indexes into `paths`.
    fn cost(&self, paths: &[PuPath], seats: &[usize]) -> f64 {
        let at: Vec<PuPath> = seats.iter().map(|pu| paths[*pu]).collect();
        // No task has this index, so every partner counts.
        let costs = (0..seats.len()).map(|task| self.cost_of(task, &at[task], &at, usize::MAX));
        // Each pair is in the rows of both its tasks.
        costs.sum::<f64>() / 2.0
    }

    /// Cost of a task at `at`, with its partners at `seats`, without the partner `without`.
    fn cost_of(&self, task: usize, at: &PuPath, seats: &[PuPath], without: usize) -> f64 {
        let others = self.0[task].iter().filter(|(other, _)| *other != without);
        others.map(|(other, amount)| amount * distance(at, &seats[*other])).sum()
    }
}

/// Cost of a placement: amount × distance, summed over pairs.
#[must_use]
pub fn cost(matrix: &Matrix, tasks: &[TaskId], places: &UsableMachine<'_>, seats: &[PuIdx]) -> f64 {
    let paths: Vec<PuPath> = seats.iter().map(|pu| places.path(*pu)).collect();
    let seats: Vec<usize> = (0..seats.len()).collect();
    Rows::of(matrix, tasks).cost(&paths, &seats)
}

/// PU of each task; empty if no PU is usable.
#[must_use]
pub fn mapping(matrix: &Matrix, tasks: &[TaskId], places: &UsableMachine<'_>) -> Vec<PuIdx> {
    let rows = Rows::of(matrix, tasks);
    let paths: Vec<PuPath> = places.pus.iter().map(|pu| places.path(*pu)).collect();
    if paths.is_empty() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..paths.len()).collect();
    // Tree order, so that the PUs of a domain are adjacent.
    order.sort_by_key(|pu| paths[*pu]);
    let all: Vec<usize> = (0..tasks.len()).collect();
    let mut starts = vec![vec![0; tasks.len()]];
    deal(&rows, &paths, all.clone(), (&order, 0), Start::Corner, &mut starts[0]);
    if tasks.len() <= EXCHANGED {
        // Exchanges end in local optima, so the best of several starts is kept.
        starts.push(vec![0; tasks.len()]);
        deal(&rows, &paths, all, (&order, 0), Start::Middle, &mut starts[1]);
        starts.push((0..tasks.len()).map(|task| order[task % order.len()]).collect());
        let far = Far::of(&paths);
        starts.iter_mut().for_each(|seats| exchange(&rows, &far, seats));
    }
    let costs = starts.into_iter().map(|seats| (rows.cost(&paths, &seats), seats));
    let best = costs.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, seats)| seats);
    best.into_iter().flatten().map(|pu| places.pus[pu]).collect()
}

/// First task of a part.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    /// Task with the most communication with unplaced tasks: the middle of a star.
    Middle,
    /// Task with the least communication with unplaced tasks: the end of a chain.
    Corner,
}

/// Deals tasks to the parts of a domain; `pus` are the domain's PUs in tree order.
fn deal(
    rows: &Rows,
    paths: &[PuPath],
    tasks: Vec<usize>,
    (pus, level): (&[usize], usize),
    start: Start,
    seats: &mut [usize],
) {
    if let [pu] = pus {
        tasks.iter().for_each(|task| seats[*task] = *pu);
        return;
    }
    let mut left = tasks;
    let mut rest = pus;
    for part in pus.chunk_by(|a, b| paths[*a][level] == paths[*b][level]) {
        // As many as the part has room for where each PU has one task; its share of them where
        // there are more.
        let share = (left.len() * part.len()).div_ceil(rest.len());
        let wanted = if left.len() <= rest.len() { part.len() } else { share };
        let mut taken = grown(rows, &mut left, wanted, start);
        if rows.0.len() <= EXCHANGED {
            refine_all(rows, &mut taken, &mut left);
        }
        deal(rows, paths, taken, (part, level + 1), start, seats);
        rest = &rest[part.len()..];
    }
}

/// Removes `wanted` tasks that communicate much with each other from `left`.
fn grown(rows: &Rows, left: &mut Vec<usize>, wanted: usize, start: Start) -> Vec<usize> {
    if wanted >= left.len() {
        return std::mem::take(left);
    }
    let mut is_left = vec![false; rows.0.len()];
    left.iter().for_each(|task| is_left[*task] = true);
    let all = rows.0.iter().map(|row| {
        let others = row.iter().filter(|(other, _)| is_left[*other]);
        others.map(|(_, amount)| amount).sum::<f64>()
    });
    let all: Vec<f64> = all.collect();
    // What a task communicates with those taken; from a corner less half of all, so that the part
    // keeps few from the others.
    let factor = if start == Start::Corner { -0.5 } else { 0.0 };
    let mut amounts: Vec<f64> = all.iter().map(|amount| factor * amount).collect();
    // The heap pops its maximum; a corner wants the task with the least amount.
    let sign = if start == Start::Corner { -1.0 } else { 1.0 };
    let mut first: BinaryHeap<QueuedTask> =
        left.iter().map(|task| QueuedTask { amount: sign * all[*task], task: *task }).collect();
    // Amounts grow, so the largest entry of a task is the current one, and comes first.
    let mut with_taken = BinaryHeap::new();
    let mut taken = Vec::with_capacity(wanted);
    while taken.len() < wanted {
        let Some(QueuedTask { task, .. }) = with_taken.pop().or_else(|| first.pop()) else { break };
        if !std::mem::take(&mut is_left[task]) {
            // An older entry of a task that is taken by now.
            continue;
        }
        for (other, amount) in rows.0[task].iter().filter(|(other, _)| is_left[*other]) {
            amounts[*other] += amount;
            with_taken.push(QueuedTask { amount: amounts[*other], task: *other });
        }
        taken.push(task);
    }
    left.retain(|task| is_left[*task]);
    taken
}

/// Refines two parts until nothing is gained, in at most as many passes as tasks.
fn refine_all(rows: &Rows, taken: &mut [usize], left: &mut [usize]) {
    for _ in 0..rows.0.len() {
        if !refine(rows, taken, left) {
            break;
        }
    }
}

/// One pass of Kernighan and Lin (1970) over two parts. Exchanges pairs of tasks in turn, each task
/// at most once and also at a loss, then undoes all exchanges after the minimum cut. True if the
/// cut fell.
fn refine(rows: &Rows, taken: &mut [usize], left: &mut [usize]) -> bool {
    // By how much less would be communicated between the parts if a task were in the other one.
    let mut side = vec![0.0; rows.0.len()];
    taken.iter().for_each(|task| side[*task] = 1.0);
    left.iter().for_each(|task| side[*task] = -1.0);
    let gains = rows.0.iter().zip(&side).map(|(row, side_of)| {
        row.iter().map(|(other, amount)| -side_of * side[*other] * amount).sum::<f64>()
    });
    let mut gains: Vec<f64> = gains.collect();
    // By how much less once the other one of a pair is there.
    let mut less = vec![0.0; rows.0.len()];
    let least = ROUNDING * taken.iter().map(|task| rows.amount(*task)).sum::<f64>();
    let mut sum = 0.0;
    let mut best = (0.0, 0);
    let pairs = taken.len().min(left.len());
    for done in 0..pairs {
        let Some(a) = largest_gain(taken, done, &gains, &less) else { break };
        taken.swap(done, a);
        let a = taken[done];
        // The gains of both count the amount between them, which stays cut if both are exchanged.
        rows.0[a].iter().for_each(|(other, amount)| less[*other] = 2.0 * amount);
        let Some(b) = largest_gain(left, done, &gains, &less) else { break };
        left.swap(done, b);
        let b = left[done];
        sum += gains[a] + gains[b] - less[b];
        // Reset only what was set, instead of the whole array.
        rows.0[a].iter().for_each(|(other, _)| less[*other] = 0.0);
        for task in [a, b] {
            for (other, amount) in &rows.0[task] {
                // The amount changes between cut and not cut, and so counts twice.
                gains[*other] += 2.0 * side[task] * side[*other] * amount;
            }
        }
        if sum > best.0 + least {
            best = (sum, done + 1);
        }
    }
    // Exchanged tasks are at the front of both slices, in the order of exchange.
    (0..best.1).for_each(|at| std::mem::swap(&mut taken[at], &mut left[at]));
    best.1 > 0
}

/// Index in `tasks`, from `done` on, of the task with the largest gain; the first among equals.
fn largest_gain(tasks: &[usize], done: usize, gains: &[f64], less: &[f64]) -> Option<usize> {
    (done..tasks.len()).max_by(|&a, &b| {
        let [of_a, of_b] = [tasks[a], tasks[b]].map(|task| gains[task] - less[task]);
        of_a.total_cmp(&of_b).then(b.cmp(&a))
    })
}

/// Task in a priority queue, by amount; the lowest index wins among equals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QueuedTask {
    amount: f64,
    task: usize,
}

impl Eq for QueuedTask {}

impl Ord for QueuedTask {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount.total_cmp(&other.amount).then(other.task.cmp(&self.task))
    }
}

impl PartialOrd for QueuedTask {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Distance matrix of the places.
struct Far {
    places: usize,
    all: Vec<f64>,
}

impl Far {
    fn of(paths: &[PuPath]) -> Self {
        let all = paths.iter().flat_map(|a| paths.iter().map(move |b| distance(a, b)));
        Self { places: paths.len(), all: all.collect() }
    }

    fn from(&self, place: usize) -> &[f64] {
        &self.all[place * self.places..][..self.places]
    }
}

/// Cost of each task at each place, with all other tasks fixed.
struct PlacementCosts<'a> {
    rows: &'a Rows,
    far: &'a Far,
    all: Vec<f64>,
}

impl<'a> PlacementCosts<'a> {
    fn of(rows: &'a Rows, far: &'a Far, seats: &[usize]) -> Self {
        let mut costs = Self { rows, far, all: vec![0.0; seats.len() * far.places] };
        for (task, seat) in seats.iter().enumerate() {
            costs.add(task, *seat, 1.0);
        }
        costs
    }

    /// Adds `times` the cost that `task` at `place` causes to its partners.
    fn add(&mut self, task: usize, place: usize, times: f64) {
        let far = self.far.from(place);
        for (other, amount) in &self.rows.0[task] {
            let costs = &mut self.all[other * far.len()..][..far.len()];
            let amount = times * amount;
            costs.iter_mut().zip(far).for_each(|(cost, far)| *cost += amount * far);
        }
    }

    fn at(&self, task: usize, place: usize) -> f64 {
        self.all[task * self.far.places + place]
    }

    fn go(&mut self, task: usize, place: usize, seats: &mut [usize]) {
        self.add(task, seats[task], -1.0);
        self.add(task, place, 1.0);
        seats[task] = place;
    }
}

/// Swaps two tasks, or moves a task to a free place, as long as the cost falls.
fn exchange(rows: &Rows, far: &Far, seats: &mut [usize]) {
    let mut costs = PlacementCosts::of(rows, far, seats);
    let mut on = vec![0_u32; far.places];
    seats.iter().for_each(|place| on[*place] += 1);
    let mut with = vec![0.0; seats.len()];
    let rounding: Vec<f64> = (0..seats.len()).map(|task| ROUNDING * rows.amount(task)).collect();
    for _ in 0..seats.len() {
        let mut has_changed = false;
        // A task without partners costs nothing anywhere.
        for a in (0..seats.len()).filter(|a| !rows.0[*a].is_empty()) {
            let own = costs.at(a, seats[a]);
            let free = (0..far.places).filter(|place| on[*place] == 0);
            // Of equal gains the first place is taken; `max_by` alone would take the last.
            let gains = free.map(|place| (own - costs.at(a, place), place));
            if let Some((gain, place)) =
                gains.max_by(|x, y| x.0.total_cmp(&y.0).then(y.1.cmp(&x.1)))
                && gain > LEAST * own + rounding[a]
            {
                on[seats[a]] -= 1;
                on[place] = 1;
                costs.go(a, place, seats);
                has_changed = true;
                // Exchanges of this task are tried in the next round.
                continue;
            }
            rows.0[a].iter().for_each(|(other, amount)| with[*other] = *amount);
            // Each pair once: an exchange is the same from both sides.
            for b in 0..a {
                let there = seats[a];
                let here = seats[b];
                // What the two communicate stays as far.
                let before = costs.at(a, there) + costs.at(b, here);
                let after =
                    costs.at(a, here) + costs.at(b, there) + 2.0 * with[b] * far.from(here)[there];
                if before - after > LEAST * before + rounding[a] + rounding[b] {
                    costs.go(a, here, seats);
                    costs.go(b, there, seats);
                    has_changed = true;
                }
            }
            rows.0[a].iter().for_each(|(other, _)| with[*other] = 0.0);
        }
        if !has_changed {
            return;
        }
    }
}

/// Least gain that counts, as a share of the cost. Chosen.
const LEAST: f64 = 1e-9;

/// Rounding error of sums and differences, relative to the summed amounts: some thousand additions
/// with 2^-53 each, of amounts times distances up to ten. A smaller gain may be no gain, and the
/// same exchange would repeat for ever.
const ROUNDING: f64 = 1e-11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use colocate_evidence::JobIdx;
    use colocate_model::rng::SplitMix64;
    use proptest::prelude::*;

    fn tasks(count: u32) -> Vec<TaskId> {
        (0..count).map(|order| TaskId { job: JobIdx(0), order }).collect()
    }

    fn matrix(pairs: impl IntoIterator<Item = (u32, u32, f64)>) -> Matrix {
        let task = |order| TaskId { job: JobIdx(0), order };
        Matrix::of(pairs.into_iter().map(|(a, b, amount)| (task(a), task(b), amount)))
    }

    fn mapped(spec: &str, count: u32, matrix: &Matrix) -> (f64, Vec<u32>) {
        let machine = machine(spec);
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(&machine, &pus);
        let seats = mapping(matrix, &tasks(count), &places);
        (cost(matrix, &tasks(count), &places, &seats), seats.iter().map(|pu| pu.0).collect())
    }

    /// Distances on two packages of two cores of two PUs: 2 on a core, 4 on a package, 10 elsewhere.
    #[test]
    fn known_patterns() {
        let spec = "pack:2 core:2 pu:2";
        let pairs = matrix([(0, 4, 1.0), (1, 5, 1.0), (2, 6, 1.0), (3, 7, 1.0)]);
        assert_eq!(mapped(spec, 8, &pairs).0, 4.0 * 2.0);
        let ring = matrix((0..8).map(|a| (a, (a + 1) % 8, 1.0)));
        assert_eq!(mapped(spec, 8, &ring).0, 4.0 * 2.0 + 2.0 * 4.0 + 2.0 * 10.0);
        // The master's core, its package, and four elsewhere.
        let star = matrix((1..8).map(|a| (0, a, 1.0)));
        assert_eq!(mapped(spec, 8, &star).0, 2.0 + 2.0 * 4.0 + 4.0 * 10.0);
        let quads = matrix((0..2).flat_map(|of| {
            (0..4).flat_map(move |a| (0..a).map(move |b| (2 * a + of, 2 * b + of, 1.0)))
        }));
        assert_eq!(mapped(spec, 8, &quads).0, 2.0 * (2.0 * 2.0 + 4.0 * 4.0));
        // Few tasks are close together, and more than PUs share them.
        assert_eq!(mapped(spec, 2, &matrix([(0, 1, 1.0)])).0, 2.0);
        let many = matrix((0..8).map(|a| (a, a + 8, 1.0)));
        assert_eq!(mapped(spec, 16, &many).0, 0.0);
    }

    /// Amounts with fractions, from 1e8 on: differences of sums are never exact.
    #[test]
    fn large_amounts_end() {
        for (case, scale) in (0_usize..40).zip([1e8, 1e9, 1e12, 1e15].into_iter().cycle()) {
            let count = [16, 24, 48, 64][case / 4 % 4];
            let drawn = random(case as u64, count, 0.9);
            let amounts = drawn.pairs().map(|((a, b), amount)| (a.order, b.order, scale * amount));
            let matrix = matrix(amounts.collect::<Vec<_>>());
            let spec = ["pack:2 core:8 pu:2", "core:4 pu:2", "pack:4 core:12"][case % 3];
            let (done, ended) = std::sync::mpsc::channel();
            std::thread::spawn(move || done.send(mapped(spec, count, &matrix).0));
            let cost = ended.recv_timeout(std::time::Duration::from_secs(60));
            assert!(
                cost.is_ok_and(f64::is_finite),
                "{count} tasks on {spec}, amounts up to {scale}"
            );
        }
    }

    /// The same matrix in another unit has the same mapping: no limit is one of amounts.
    #[test]
    fn unit_of_amounts_does_not_matter() {
        for seed in 0..12 {
            let drawn = random(seed, 16, 0.7);
            // A power of two, so that all sums are rounded alike.
            let scaled = |by: f64| {
                let amounts = drawn.pairs().map(|((a, b), amount)| (a.order, b.order, by * amount));
                mapped("pack:2 core:4 pu:2", 16, &matrix(amounts.collect::<Vec<_>>())).1
            };
            assert_eq!(scaled(1.0), scaled(0.5_f64.powi(40)), "{seed}");
        }
    }

    #[test]
    fn symmetric_placements_do_not_differ() {
        let machine = machine("core:2 pu:2");
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(&machine, &pus);
        let of = |seats: [u32; 2]| seats.map(|pu| PuIdx::new(pu as usize));
        assert!(are_symmetric(&places, &of([0, 1]), &of([2, 3])));
        assert!(!are_symmetric(&places, &of([0, 1]), &of([0, 2])));
    }

    fn random(seed: u64, count: u32, density: f64) -> Matrix {
        let mut rng = SplitMix64::new(seed);
        let mut draw = || rng.unit();
        let pairs: Vec<(u32, u32)> = (0..count).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let drawn = pairs.into_iter().filter_map(|(a, b)| {
            let (is_there, amount) = (draw() < density, draw());
            is_there.then_some((a, b, amount))
        });
        matrix(drawn.collect::<Vec<_>>())
    }

    /// Least cost of all ways to put tasks on PUs, one each.
    fn least(spec: &str, count: u32, matrix: &Matrix) -> f64 {
        let machine = machine(spec);
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let places = UsableMachine::new(&machine, &pus);
        let tasks = tasks(count);
        let mut best = f64::INFINITY;
        let mut seats: Vec<PuIdx> = Vec::new();
        fn all(
            seats: &mut Vec<PuIdx>,
            pus: &[PuIdx],
            count: usize,
            visit: &mut dyn FnMut(&[PuIdx]),
        ) {
            if seats.len() == count {
                return visit(seats);
            }
            for pu in pus {
                if !seats.contains(pu) {
                    seats.push(*pu);
                    all(seats, pus, count, visit);
                    seats.pop();
                }
            }
        }
        all(&mut seats, &pus, tasks.len(), &mut |seats| {
            best = best.min(cost(matrix, &tasks, &places, seats));
        });
        best
    }

    #[test]
    fn nearly_optimal() {
        let (mut sum, mut most) = (0.0, 0.0_f64);
        let cases = 120;
        for seed in 0..cases {
            let spec = ["pack:2 core:3", "pack:2 core:2 pu:2 + core:2", "l3:3 core:2"][seed % 3];
            let count = 4 + u32::try_from(seed % 3).unwrap();
            let matrix = random(seed as u64, count, 0.6);
            let (found, best) = (mapped(spec, count, &matrix).0, least(spec, count, &matrix));
            let above = if best > 0.0 { found / best - 1.0 } else { found };
            (sum, most) = (sum + above, most.max(above));
        }
        eprintln!("mean {:.4} above the least, at most {most:.4}", sum / cases as f64);
        assert!(
            sum / (cases as f64) < 0.01 && most < 0.15,
            "mean {}, most {most}",
            sum / cases as f64
        );
    }

    proptest! {
        /// Against the distances of all pairs.
        #[test]
        fn symmetric_is_as_far(seats in prop::collection::vec((0..8_usize, 0..8_usize), 0..6)) {
            let machine = machine("pack:2 core:2 pu:2");
            let pus: Vec<PuIdx> = machine.all_pus().collect();
            let places = UsableMachine::new(&machine, &pus);
            let (now, before): (Vec<PuIdx>, Vec<PuIdx>) =
                seats.iter().map(|(now, before)| (pus[*now], pus[*before])).unzip();
            let far = |seats: &[PuIdx], a: usize, b: usize| {
                distance(&places.path(seats[a]), &places.path(seats[b]))
            };
            let mut pairs = (0..now.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            let is_as_far = pairs.all(|(a, b)| far(&now, a, b) == far(&before, a, b));
            prop_assert_eq!(are_symmetric(&places, &now, &before), is_as_far);
        }

        #[test]
        fn even(seed in any::<u64>(), count in 1..40_u32, density in 0.0..1.0_f64) {
            let spec = ["pack:2 core:2 pu:2", "core:3", "pack:2 node:2 core:2 + core:3 pu:2"][count as usize % 3];
            let (_, seats) = mapped(spec, count, &random(seed, count, density));
            let mut on = vec![0_u32; machine(spec).pus.len()];
            seats.iter().for_each(|pu| on[*pu as usize] += 1);
            prop_assert_eq!(seats.len(), count as usize);
            prop_assert!(on.iter().max().unwrap() - on.iter().min().unwrap() <= 1, "{:?}", on);
        }
    }
}
