//! `mix`: least overlap of whole instruction mixes on each core.
//!
//! # Problem
//! Two tasks compete for more than one class of instructions: sorting by one class pairs at random
//! where tasks do not differ in this class.
//! # Approach
//! Weight every pair of tasks by how often both need the same execution unit, and choose the pairs
//! whose weights add up to the least: minimum-weight perfect matching (Jiang et al., "Analysis and
//! approximation of optimal co-scheduling on chip multiprocessors", PACT 2008). For more than two
//! siblings the problem is NP-complete; pairs, then pairs of pairs are matched (their hierarchical
//! method). The overlap of two groups is that of the sums of their demands.
//! # Terms
//! - *Overlap* `w(a, b)`: unit clashes per pair of instructions, weighted by how busy both are
//!   (unknown: always busy); see [`colocate_model::overlap`]. A class that a task's mix does not
//!   have is the mean of the tasks that have it.
//! - *Rate*: a task's instructions per cycle, if counted. If the rates of *all* tasks are known, a
//!   demand is that of a cycle, `rate · d(t)`, and the overlap is in unit clashes per cycle; if one
//!   is not, no rate is used. A rate that was counted beside others is too low by what they took;
//!   nothing corrects that. docs/method/validation.md has what rates change.
//! - *Item*: a task; with more tasks than PUs, the tasks that share one PU, whose demand is `Σ d(t)
//!   / max(1, Σ b(t))`.
//! - *Room* of a core: its usable PUs, a count. *Dummy*: an item without demand.
//! # Algorithm
//! 1. At most as many tasks as cores: each has a core of its own.
//! 2. More tasks than PUs: set aside the `n mod P` idlest. Sort the others by the class that varies
//!    most, as `instruction` chooses it, and make items of tasks that follow each other: they are
//!    alike and never run at the same time. If no core has a second PU, or if a PU would get more
//!    work than another by more than the busiest task's share, deal by busyness instead: the `P`
//!    busiest start one item each, the next `P` join them, each round sorted by the class. Those
//!    set aside join last, one a core before two, on the PU with the least work.
//! 3. Add dummies up to a power of two a core. Match, join the pairs, and match again until there
//!    is a group a core. An item beside a dummy comes before two dummies together. With two
//!    siblings the result is optimal up to [`matching::EXACT_UP_TO`] places.
//! 4. More than two siblings: exchange items of different groups as long as the overlap falls. Do
//!    the same from the serpentine of `instruction`, and keep what overlaps less. Where cores of
//!    more than two usable PUs are beside smaller ones, the serpentine is the only start.
//! 5. Larger groups choose cores first, then busier ones; fast kinds before slow ones, then logical
//!    order. In a group, tasks take PUs in the order of IDs.
//!
//! `O(n³)` at worst, mostly about `O(n²)`.
//! # Properties
//! - **Optimal pairs**: with two siblings and up to [`matching::EXACT_UP_TO`] places no placement on
//!   the same cores overlaps less.
//!   -> test `optimal_pairs`
//! - **Own cores where they count**: with fewer tasks than PUs, which tasks are alone is chosen
//!   too. -> test `own_cores_where_they_count`
//! - **Groups of four**: never worse than `instruction` with the same tasks, where each has a PU
//!   and every mix is known; cores of different room too. -> test `groups_of_four`
//! - **Unknown is average**: a task without a mix is placed, and the reason says so.
//!   -> test `unknown_is_average`
//! - **Turns**: more tasks than PUs share evenly, alike with alike. -> test `turns`
//! - **All rates or none**: equal rates change no place; one unknown rate is as if none were known.
//!   -> test `all_rates_or_none`
//! - **A slow task demands little**: with rates, demand in a cycle decides.
//!   -> test `a_slow_task_demands_little`

use super::instruction::{self, choose_key, partners};
use super::{MIX, Placement, PuChoice, own_cores, planned, spread_default};
use crate::matching::{self, exchange};
use crate::places::UsableMachine;
use crate::plan::{PlaceReason, Task};
use crate::policy::by_rule;
use crate::predict::{demands, taking_turns, unit, within};
use crate::row::{PolicyRow, Purpose};
use colocate_machine::PuIdx;
use colocate_model::UnitDemand;
use std::cmp::Reverse;

pub static ROW: PolicyRow = PolicyRow {
    name: "mix",
    purpose: Purpose::Recommended,
    summary: "pairs tasks whose instruction mixes overlap least",
    source: "ours, after Serpa et al.",
    make: |_, _| by_rule(MIX, |evidence| planned(evidence, place)),
    ..PolicyRow::ONCE
};

pub(super) fn place(places: &UsableMachine<'_>, tasks: &[&Task]) -> Placement {
    if tasks.len() <= places.cores.len() {
        return own_cores(places, tasks);
    }
    let items = Items::new(places, tasks);
    let (on_pu, mut choices) = items.seated(items.groups());
    items.explain(&on_pu, &mut choices);
    Placement { choices, default_placement: spread_default(places) }
}

/// Items of tasks, at most `pus`, and the tasks left over after the full rounds. With `siblings`,
/// similar tasks share an item if the work stays balanced.
fn items(tasks: &[&Task], pus: usize, siblings: bool) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    if tasks.len() <= pus {
        return (order.into_iter().map(|task| vec![task]).collect(), Vec::new());
    }
    // Stable: equal weights keep the order of IDs.
    order.sort_by(|&a, &b| tasks[b].weight().total_cmp(&tasks[a].weight()));
    // The idlest tasks beyond full rounds join at the end, where they disturb least.
    let rest = order.split_off(tasks.len() / pus * pus);
    let key = choose_key(tasks, Task::load);
    let loads: Vec<f64> =
        // Unknown loads are alike, and stay together.
        tasks.iter().map(|task| key.and_then(|class| task.load(class)).unwrap_or(0.0)).collect();
    let most = tasks[order[0]].weight();
    let mut alike = order.clone();
    alike.sort_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(a.cmp(b)));
    let items: Vec<Vec<usize>> = alike.chunks(order.len() / pus).map(<[usize]>::to_vec).collect();
    let (least, largest) = items
        .iter()
        .map(|item| work(item.iter().copied(), tasks))
        .fold((f64::INFINITY, 0.0_f64), |range, w| (range.0.min(w), range.1.max(w)));
    // Unbalanced by at most one task: then similar tasks may share an item.
    if siblings && largest - least <= most {
        return (items, rest);
    }
    let mut items = vec![Vec::new(); pus];
    // Full rounds only: the rest was split off above.
    for round in order.chunks_exact_mut(pus) {
        round.sort_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(a.cmp(b)));
        for (item, &mut task) in items.iter_mut().zip(round) {
            item.push(task);
        }
    }
    (items, rest)
}

/// Sum of the weights of some tasks.
fn work(some: impl Iterator<Item = usize>, tasks: &[&Task]) -> f64 {
    some.map(|task| tasks[task].weight()).sum()
}

/// Tasks in items, see the module.
pub(super) struct Items<'a> {
    pub places: &'a UsableMachine<'a>,
    pub tasks: &'a [&'a Task],
    /// Tasks of each item, at most as many items as PUs.
    pub items: Vec<Vec<usize>>,
    /// Tasks beyond the full rounds.
    rest: Vec<usize>,
    /// Demand of each task.
    demands: Vec<UnitDemand>,
    /// Demand of each item.
    asked: Vec<UnitDemand>,
}

impl<'a> Items<'a> {
    pub fn new(places: &'a UsableMachine<'a>, tasks: &'a [&'a Task]) -> Self {
        let (items, rest) = items(tasks, places.pus.len(), places.width() > 1);
        let mut all =
            Self { places, tasks, items, rest, demands: demands(tasks), asked: Vec::new() };
        all.asked = all.items.iter().map(|item| all.demand_of(item)).collect();
        all
    }

    fn demand_of(&self, item: &[usize]) -> UnitDemand {
        taking_turns(item.iter().map(|&task| (self.demands[task], self.tasks[task].weight())))
    }

    /// Overlap within a group of items.
    fn overlap(&self, group: &[usize]) -> f64 {
        within(group.iter().map(|&at| self.asked[at]))
    }

    /// Groups of items, one per core in no particular order; each group fits a core of its own.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let cores = &self.places.cores;
        // Matching forms pairs; on cores without siblings one of each pair is a dummy.
        let width = self.places.width().max(2);
        let match_all =
            || matching::in_groups(self.items.len(), cores.len(), width, |it| self.overlap(it));
        if width == 2 {
            return match_all();
        }
        let groups = self.exchanged(self.dealt());
        // Matching makes groups of one size, which smaller cores cannot hold.
        if cores.iter().any(|core| core.pus.len() < width) {
            return groups;
        }
        let matched = self.exchanged(match_all());
        let [dealt, paired] =
            [&groups, &matched].map(|all| all.iter().map(|group| self.overlap(group)).sum::<f64>());
        if dealt < paired { groups } else { matched }
    }

    /// Groups of the same sizes after exchanges that lower the overlap within groups.
    fn exchanged(&self, groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        exchange::improved(groups, &sizes, &vec![0; sizes.len()], |_, group| self.overlap(group))
    }

    /// Items by core in the serpentine of `instruction`; an item ranks as its first task.
    pub fn dealt(&self) -> Vec<Vec<usize>> {
        let machine = self.places.machine;
        let ranked = instruction::rank(self.tasks, choose_key(self.tasks, Task::load), Task::load);
        let mut rank = vec![0; self.tasks.len()];
        ranked.into_iter().enumerate().for_each(|(at, task)| rank[task] = at);
        let mut heaviest_first: Vec<usize> = (0..self.items.len()).collect();
        heaviest_first.sort_by_key(|&item| Reverse(rank[self.items[item][0]]));
        let seats = instruction::deal(self.places, self.items.len());
        let mut groups = vec![Vec::new(); machine.cores.len()];
        for (item, pu) in heaviest_first.into_iter().zip(seats) {
            groups[machine.core_of(pu).idx()].push(item);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// Gives each group a core and each leftover task a PU. Returns the tasks of each PU, and the
    /// choice of each task with [`PlaceReason::Unknown`] as its reason.
    pub fn seated(&self, groups: Vec<Vec<usize>>) -> (Vec<Vec<usize>>, Vec<PuChoice>) {
        let mut on_pu = self.seat(groups);
        self.join_rest(&mut on_pu);
        let mut choices = vec![PuChoice { pu: None, why: PlaceReason::Unknown }; self.tasks.len()];
        for (pu, sitting) in on_pu.iter().enumerate() {
            sitting.iter().for_each(|&task| choices[task].pu = Some(PuIdx::new(pu)));
        }
        (on_pu, choices)
    }

    /// Gives each group a core with enough room. Returns the tasks of each PU.
    fn seat(&self, mut groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        let places = self.places;
        groups.retain(|group| !group.is_empty());
        for group in &mut groups {
            group.sort_by_key(|&item| &self.items[item]);
        }
        groups.sort_by(|a, b| {
            let busier = self.busy(b).total_cmp(&self.busy(a));
            let order = b.len().cmp(&a.len()).then(busier);
            order.then_with(|| self.items[a[0]].cmp(&self.items[b[0]]))
        });
        let mut free: Vec<usize> = (0..places.cores.len()).collect();
        free.sort_by_key(|&at| (Reverse(places.cores[at].kind), at));
        let mut on_pu = vec![Vec::new(); places.machine.pus.len()];
        for group in groups {
            // Group sizes fall, so a core with room for this group has room for all later groups,
            // and a core is always left.
            let mut rooms = free.iter().map(|&at| places.cores[at].pus.len());
            let chosen = rooms.position(|room| room >= group.len());
            let core = free.remove(chosen.expect("as many large cores as large groups"));
            for (&pu, item) in places.cores[core].pus.iter().zip(group) {
                on_pu[pu.idx()].extend(&self.items[item]);
            }
        }
        on_pu
    }

    /// Work of a group; 0 on alike cores, where a busy group gains nothing by choosing first.
    fn busy(&self, group: &[usize]) -> f64 {
        let some = group.iter().filter(|_| self.places.is_hybrid());
        work(some.flat_map(|&item| &self.items[item]).copied(), self.tasks)
    }

    /// Adds the tasks of an incomplete last round, one per core before two, least loaded PUs first.
    fn join_rest(&self, on_pu: &mut [Vec<usize>]) {
        let of_pus: Vec<f64> =
            on_pu.iter().map(|on| work(on.iter().copied(), self.tasks)).collect();
        let mut cores: Vec<Vec<PuIdx>> =
            self.places.cores.iter().map(|core| core.pus.clone()).collect();
        for pus in &mut cores {
            pus.sort_by(|a, b| of_pus[a.idx()].total_cmp(&of_pus[b.idx()]));
        }
        let of_core = |pus: &[PuIdx]| pus.iter().map(|pu| of_pus[pu.idx()]).sum::<f64>();
        cores.sort_by(|a, b| of_core(a).total_cmp(&of_core(b)));
        let turns =
            (0..self.places.width()).flat_map(|n| cores.iter().filter_map(move |pus| pus.get(n)));
        for (task, pu) in self.rest.iter().zip(turns) {
            on_pu[pu.idx()].push(*task);
        }
    }

    fn explain(&self, on_pu: &[Vec<usize>], choices: &mut [PuChoice]) {
        let machine = self.places.machine;
        let partners = partners(self.places, self.tasks, choices);
        let per = unit(self.tasks);
        let asked: Vec<UnitDemand> = on_pu.iter().map(|item| self.demand_of(item)).collect();
        for (task, choice) in choices.iter_mut().enumerate() {
            let Some(pu) = choice.pu.filter(|_| !self.tasks[task].mix.is_unknown()) else {
                continue;
            };
            let core = &machine.cores[machine.core_of(pu).idx()];
            // Tasks on the same PU do not run at the same time and do not overlap.
            let others = core.pus.iter().filter(|&&other| other != pu);
            let beside = others.fold(UnitDemand::NONE, |sum, other| sum + asked[other.idx()]);
            let overlap = self.demands[task].overlap(&beside);
            choice.why = PlaceReason::Matched { overlap, per, partners: partners[task].clone() };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Task;
    use crate::places::UsableMachine;
    use crate::predict::{demands, total_overlap};
    use crate::rng::SplitMix64;
    use crate::testing::{check, check_why, machine, plan, random_tasks};
    use colocate_machine::{Machine, PuIdx};
    use colocate_model::UnitDemand;
    use expect_test::expect;
    use proptest::prelude::*;

    /// The least overlap of all ways to put `left` on cores with the rooms `rooms`.
    fn by_brute_force(
        demands: &[UnitDemand],
        rooms: &mut [usize],
        on: &mut Vec<Vec<UnitDemand>>,
    ) -> f64 {
        let Some((first, rest)) = demands.split_first() else { return 0.0 };
        let mut least = f64::INFINITY;
        for core in 0..rooms.len() {
            if on[core].len() < rooms[core] {
                let here: f64 = on[core].iter().map(|other| other.overlap(first)).sum();
                on[core].push(*first);
                least = least.min(here + by_brute_force(rest, rooms, on));
                on[core].pop();
            }
        }
        least
    }

    fn overlap_of(policy: &str, machine: &Machine, usable: &[PuIdx], tasks: &[Task]) -> f64 {
        let made = plan(policy, machine, usable, tasks);
        let seat = |os| machine.pu_by_os(os).unwrap();
        let seats: Vec<PuIdx> =
            made.decisions.iter().map(|d| seat(d.place.pu().unwrap())).collect();
        let tasks: Vec<&Task> = tasks.iter().collect();
        total_overlap(&UsableMachine::new(machine, usable), &tasks, &demands(&tasks), &seats)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Up to ten tasks on two to five cores, some with one usable PU.
        #[test]
        fn optimal_pairs(count in 0_usize..=10, cores in 2_usize..=5, forbid in 0_usize..=3, seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let machine = machine(&format!("core:{cores} pu:2"));
            let mut usable: Vec<_> = machine.all_pus().collect();
            for _ in 0..forbid.min(cores - 1) {
                usable.remove(rng.below(usable.len()));
            }
            let places = UsableMachine::new(&machine, &usable);
            let tasks = random_tasks(&mut rng, count.min(usable.len()));
            let demands = demands(&tasks.iter().collect::<Vec<_>>());
            let mut rooms: Vec<usize> = places.cores.iter().map(|core| core.pus.len()).collect();
            let mut on = vec![Vec::new(); rooms.len()];
            let least = by_brute_force(&demands, &mut rooms, &mut on);
            let found = overlap_of("mix", &machine, &usable, &tasks);
            // Costs are rounded to steps of about 1e-9.
            prop_assert!((found - least).abs() < 1e-7, "found {found}, least {least}");
        }

        #[test]
        fn groups_of_four(count in 1_usize..=24, forbid in 0_usize..=12, seed: u64) {
            check_against_instruction(count, forbid, seed);
        }
    }

    /// Random tasks on six cores of four siblings, less some PUs.
    fn check_against_instruction(count: usize, forbid: usize, seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let machine = machine("core:6 pu:4");
        let mut usable: Vec<_> = machine.all_pus().collect();
        for _ in 0..forbid {
            usable.remove(rng.below(usable.len()));
        }
        let tasks = random_tasks(&mut rng, count.min(usable.len()));
        let mix = overlap_of("mix", &machine, &usable, &tasks);
        let one_key = "instruction";
        let one_key = overlap_of(one_key, &machine, &usable, &tasks);
        assert!(mix <= one_key + 1e-9, "mix {mix}, instruction {one_key}, {count} {forbid} {seed}");
    }

    /// Where matching alone is worse, and where a serpentine of unsorted items is.
    #[test]
    fn groups_of_four_need_the_serpentine() {
        check_against_instruction(13, 0, 6_031_872_438_215_050_902);
        check_against_instruction(13, 11, 8_841_183_414_396_563_900);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn all_rates_or_none(count in 3_usize..=12, ipc in 0.1..8.0_f64, which: usize, seed: u64) {
            let machine = machine("core:3 pu:4");
            let all: Vec<_> = machine.all_pus().collect();
            let mut rng = SplitMix64::new(seed);
            let mut tasks = random_tasks(&mut rng, count);
            let places = |tasks: &[Task]| -> Vec<_> {
                let made = plan("mix", &machine, &all, tasks);
                made.decisions.iter().map(|decision| decision.place.pu()).collect()
            };
            let without = places(&tasks);
            // A power of two, so that rounding is the same.
            tasks.iter_mut().for_each(|task| task.ipc = Some(ipc.log2().round().exp2()));
            prop_assert_eq!(&places(&tasks), &without);
            tasks.iter_mut().for_each(|task| task.ipc = Some(0.01 + 8.0 * rng.unit()));
            for unknown in [None, Some(0.0), Some(f64::NAN), Some(f64::INFINITY)] {
                tasks[which % count].ipc = unknown;
                prop_assert_eq!(&places(&tasks), &without);
            }
        }

        /// With rates as without, no pairs overlap less: brute force in clashes per cycle.
        #[test]
        fn optimal_pairs_per_cycle(pairs in 2_usize..=4, seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let machine = machine(&format!("core:{pairs} pu:2"));
            let usable: Vec<_> = machine.all_pus().collect();
            let mut tasks = random_tasks(&mut rng, 2 * pairs);
            tasks.iter_mut().for_each(|task| task.ipc = Some(0.01 + 4.0 * rng.unit()));
            let demands = demands(&tasks.iter().collect::<Vec<_>>());
            let mut on = vec![Vec::new(); pairs];
            let least = by_brute_force(&demands, &mut vec![2; pairs], &mut on);
            let found = overlap_of("mix", &machine, &usable, &tasks);
            prop_assert!((found - least).abs() < 1e-6, "found {found}, least {least}");
        }
    }

    /// Float 80, 70, 60 and 50 %, two units. By instruction, most goes with least: .8·.5 + .7·.6 =
    /// 0.82 clashes in two pairs, halved. At 4, 0.1, 0.1 and 4 instructions per cycle the first and the
    /// last must not meet: 3.2 beside .06 and .07 beside 2.0, 0.166 in all, per cycle.
    #[test]
    fn a_slow_task_demands_little() {
        let rates = |rates: [Option<f64>; 4]| {
            let mut tasks = crate::testing::letters("ABCD", "A f80, B f70, C f60, D f50");
            tasks.iter_mut().zip(rates).for_each(|(task, rate)| task.ipc = rate);
            let machine = machine("core:2 pu:2");
            let all: Vec<_> = machine.all_pus().collect();
            let made = plan("mix", &machine, &all, &tasks);
            let why: String = made.decisions.iter().map(|d| format!("{}\n", d.why)).collect();
            crate::testing::picture(&made, &machine) + &why
        };
        let known = [4.0, 0.1, 0.1, 4.0].map(Some);
        expect![[r#"
            [A C][B D]
            mean overlap of a core 0.0830 unit clashes per cycle; 0.5900 for the same places with partners drawn at random, 0.0860 for round-robin
            least overlap per cycle, 0.0960 beside 2.0
            least overlap per cycle, 0.0700 beside 3.0
            least overlap per cycle, 0.0960 beside 0.0
            least overlap per cycle, 0.0700 beside 1.0
        "#]].assert_eq(&rates(known));
        expect![[r#"
            [A D][B C]
            mean overlap of a core 0.2050 unit clashes per pair of instructions; 0.2092 for the same places with partners drawn at random, 0.2150 for round-robin
            least overlap, 0.2000 beside 3.0
            least overlap, 0.2100 beside 2.0
            least overlap, 0.2100 beside 1.0
            least overlap, 0.2000 beside 0.0
        "#]].assert_eq(&rates([known[0], known[1], known[2], None]));
    }

    #[test]
    fn own_cores_where_they_count() {
        // One pair must share: the two that do least, 0.6 · 0.5 / 2 units.
        check(
            "mix",
            "core:3 pu:2",
            "ABCD",
            "A f90, B f80, C f60, D f50",
            expect![[r#"
            [C D][A _][B _]
            mean overlap of a core 0.0500 unit clashes per pair of instructions; 0.0803 for the same places with partners drawn at random, 0.1700 for round-robin
        "#]],
        );
    }

    #[test]
    fn pairs_what_differs() {
        check(
            "mix",
            "core:4 pu:2",
            "AAAABBBB",
            "A f80 i10, B i60 l30",
            expect![[r#"
            [A B][A B][A B][A B]
            mean overlap of a core 0.0150 unit clashes per pair of instructions; 0.1066 for the same places with partners drawn at random, 0.2288 for round-robin
        "#]],
        );
        check_why(
            "mix",
            "core:2 pu:2",
            "AABB",
            "A f80 i10, B i60 l30",
            expect![[r#"
                A least overlap, 0.0150 beside 1.1
                A least overlap, 0.0150 beside 1.0
                B least overlap, 0.0150 beside 0.1
                B least overlap, 0.0150 beside 0.0
            "#]],
        );
    }

    #[test]
    fn four_siblings() {
        check(
            "mix",
            "core:2 pu:4",
            "AABBCCDD",
            "A f80, B i80, C l80, D s80",
            expect![[r#"
            [A B C D][A B C D]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.3086 for the same places with partners drawn at random, 0.7200 for round-robin
        "#]],
        );
    }

    #[test]
    fn unknown_is_average() {
        check(
            "mix",
            "core:2 pu:2",
            "ABC",
            "A f80, C i80",
            expect![[r#"
            [A C][B _]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0400 for the same places with partners drawn at random, 0.0800 for round-robin; 1 of 3 mixes are not known and taken as average
        "#]],
        );
        check_why(
            "mix",
            "core:2 pu:2",
            "ABC",
            "A f80, C i80",
            expect![[r#"
            A least overlap, 0.0000 beside 2.0
            B mix not known, taken as average
            C least overlap, 0.0000 beside 0.0
        "#]],
        );
    }

    #[test]
    fn turns() {
        check(
            "mix",
            "core:2 pu:2",
            "AAAABBBBC",
            "A f80, B i80, C l50 @10",
            expect![[r#"
                [AAC BB][AA BB]
                mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.1171 for round-robin
            "#]],
        );
        check(
            "mix",
            "core:2",
            "AAAABBBB",
            "A f80, B i80",
            expect![[r#"
            [AABB][AABB]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for round-robin
        "#]],
        );
        check_why(
            "mix",
            "core:1 pu:2",
            "AABB",
            "A f80, B i80",
            expect![[r#"
                A takes turns with 1 on its PU, least overlap, 0.0000 beside 1.0, 1.1
                A takes turns with 1 on its PU, least overlap, 0.0000 beside 1.0, 1.1
                B takes turns with 1 on its PU, least overlap, 0.0000 beside 0.0, 0.1
                B takes turns with 1 on its PU, least overlap, 0.0000 beside 0.0, 0.1
            "#]],
        );
    }

    #[test]
    fn single_usable_siblings() {
        let usable = &[0, 2, 3, 5];
        crate::testing::check_on(
            "mix",
            "core:3 pu:2",
            usable,
            "ABCD",
            "A f90, B f80, C i60, D i50",
            expect![[r#"
                [B x][A C][x D]
                mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0242 for the same places with partners drawn at random, 0.0000 for round-robin
            "#]],
        );
    }

    #[test]
    fn fast_kinds_first() {
        check(
            "mix",
            "core:2 pu:2 + slow core:2 pu:1",
            "ABC",
            "A f90 @20, B f80, C i60",
            expect![[r#"
                [B _][C _]
                [A][_]
                mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0180 for round-robin
            "#]],
        );
        check(
            "mix",
            "core:2 pu:2 + slow core:2 pu:1",
            "ABCDE",
            "A f90 @20, B f80, C i60, D i50 @10, E l50",
            expect![[r#"
                [A C][B _]
                [E][D]
                mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0020 for the same places with partners drawn at random, 0.0199 for round-robin
            "#]],
        );
    }
}
