//! `instruction`: pairs tasks with most and least work of an instruction class.
//!
//! # Problem
//! Tasks on one core that need the same execution units wait for each other (Serpa et al.: two
//! copies of a kernel take 187.2 % of the time of one alone, two different kernels 102.7 %).
//! # Approach
//! Serpa et al., Algorithm 1: sort by how much each task does of one class of work, and give each
//! core one task from the head and one from the tail. The published loop places the middle task
//! twice when the count is odd, leaves cores idle when there are fewer than two tasks a core, and
//! has two siblings only. Dealing the sorted list in a serpentine, heaviest first, is the same loop
//! where that one is right and total elsewhere.
//! # Terms
//! - *Key*: the class that the list is sorted by; the paper does not say how it was chosen. Here:
//!   the class with the largest variance of load over the tasks, times its scarcity `1/u(c)`. A
//!   user may name another.
//! - *Load* of a task: busy share × share of the key class, 0 ..= 1; unknown busy counts as always
//!   busy, an unknown share as average.
//! - *Published load*: number of instructions of the key class. The paper's tasks are profiled for
//!   about the same time, so if the rates of all tasks with a mix are counted (`pmu`), it is share
//!   × instructions per cycle × busy share. Else, if the instructions of all are (`emulate`), it is
//!   share × instructions. Else it is the load above, which is what `sample` estimates: samples of
//!   that class per life time, so tasks are taken to execute equally fast.
//! - *Rank*: place in the list sorted by load, 0 for the least; equal loads by ID.
//! - *Pass*: one task to every usable core that has a PU left; `P` tasks are a *round*.
//! # Algorithm
//! 1. At most as many tasks as cores: each has a core of its own.
//! 2. Else sort by load. Deal from the heaviest: pass 1 over the cores, pass 2 back, pass 3 forth
//!    …; cores of a fast kind come first, then those with fewer usable PUs, then logical order.
//!    Full cores are passed over until a new round begins.
//! 3. More tasks than PUs: further rounds, so that tasks of a PU take turns.
//!
//! `O(n log n)`.
//! # Properties
//! - **Extremes meet**: with two tasks a core, rank `i` sits with rank `n−1−i`.
//!   -> test `extremes_meet`
//! - **Odd counts**: every task is placed once, the heaviest alone. -> test `odd_counts`
//! - **Own cores**: no core has two tasks while another has none. -> test `own_cores`
//! - **Serpentine**: with four siblings, core sums of evenly spaced loads are equal.
//!   -> test `serpentine`
//! - **Key**: the class that varies most, weighted by scarcity. -> test `key_varies_most`
//! - **By numbers**, if as published. -> test `published_goes_by_numbers`
//! - **Counts, else estimates**: without rates, as published goes by counts, without these by
//!   shares. -> test `published_without_rates`
//! - **Unknown in the middle** -> test `unknown_in_the_middle`
//! - **Turns**: more tasks than PUs share evenly. -> test `turns`

use super::{MIX, Placement, PuChoice, own_cores, planned, spread_default};
use crate::places::UsableMachine;
use crate::plan::{MAX_PARTNERS, PlaceReason, Task};
use crate::policy::by_rule;
use crate::predict::{mean, variance};
use crate::row::{PolicyRow, Purpose, Setting, SettingKind};
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;
use colocate_model::Class;
use colocate_model::overlap::scarcity;

pub static ROW: PolicyRow = PolicyRow {
    name: "instruction",
    purpose: Purpose::Published,
    summary: "pairs tasks that do most with least of one class",
    source: "Serpa et al., Algorithm 1",
    settings: &[
        Setting::new(
            "key",
            SettingKind::Word(&["branch", "float", "int", "load", "store"]),
            None,
            "class to sort by; by default the one that varies most",
        ),
        Setting::new(
            "published",
            SettingKind::Flag,
            None,
            "as published: by numbers of instructions instead of shares, where they are counted",
        ),
    ],
    make: |values, _| {
        // The row accepts only names of classes.
        let key = values.word("key").and_then(|class| class.parse().ok());
        let published = values.is_set("published");
        by_rule(MIX, move |it| {
            planned(it, |places, tasks| {
                let load = if published { published_load(tasks) } else { Task::load };
                place(places, tasks, key, load)
            })
        })
    },
    ..PolicyRow::ONCE
};

/// Load of a task in a class; `None`: unknown.
pub(super) type Load = fn(&Task, Class) -> Option<f64>;

/// Published load: the best number of instructions that is known of every task with a mix.
fn published_load(tasks: &[&Task]) -> Load {
    let with_mix: Vec<_> = tasks.iter().filter(|task| !task.mix.is_unknown()).collect();
    if with_mix.iter().all(|task| task.rate().is_some()) {
        Task::per_cycle
    } else if with_mix.iter().all(|task| task.instructions.is_some()) {
        Task::count
    } else {
        Task::load
    }
}

fn place(places: &UsableMachine<'_>, tasks: &[&Task], key: Option<Class>, load: Load) -> Placement {
    let key = key.or_else(|| choose_key(tasks, load));
    if tasks.len() <= places.cores.len() {
        return own_cores(places, tasks);
    }
    let ranked = rank(tasks, key, load);
    let seats = deal(places, ranked.len());
    let mut choices = vec![PuChoice { pu: None, why: PlaceReason::Unknown }; tasks.len()];
    // The heaviest is dealt first.
    for (&task, &pu) in ranked.iter().rev().zip(&seats) {
        choices[task].pu = Some(pu);
    }
    explain(places, tasks, &ranked, key, &mut choices);
    Placement { choices, default_placement: spread_default(places) }
}

/// Class of the largest variance of load × scarcity, the first of several; `None`: no mix known.
pub(super) fn choose_key(tasks: &[&Task], load: Load) -> Option<Class> {
    let known = Class::ALL.into_iter().filter_map(|class| {
        let loads: Vec<f64> = tasks.iter().filter_map(|task| load(task, class)).collect();
        (!loads.is_empty()).then(|| (class, variance(&loads) * scarcity(class)))
    });
    // `max_by` would take the last among equals.
    known.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(class, _)| class)
}

/// Indexes into `tasks`, least load first.
pub(super) fn rank(tasks: &[&Task], key: Option<Class>, load: Load) -> Vec<usize> {
    let loads: Vec<Option<f64>> =
        tasks.iter().map(|task| key.and_then(|class| load(task, class))).collect();
    // Without any known load all tasks rank alike, in the order of their IDs.
    let average = mean(&loads.iter().copied().flatten().collect::<Vec<_>>());
    let loads: Vec<f64> = loads.into_iter().map(|load| load.unwrap_or(average)).collect();
    let mut ranked: Vec<usize> = (0..tasks.len()).collect();
    // Stable, so that tasks of equal load keep the order of their IDs.
    ranked.sort_by(|&a, &b| loads[a].total_cmp(&loads[b]));
    ranked
}

/// First `count` PUs in serpentine order.
pub(super) fn deal(places: &UsableMachine<'_>, count: usize) -> Vec<PuIdx> {
    let mut order: Vec<usize> = (0..places.cores.len()).collect();
    order.sort_by_key(|&at| {
        let core = &places.cores[at];
        // A later kind is faster.
        (std::cmp::Reverse(core.kind), core.pus.len(), at)
    });
    // The last pass may exceed `count` by nearly all PUs.
    let mut seats = Vec::with_capacity(count + places.pus.len());
    while seats.len() < count {
        for sibling in 0..places.width() {
            seats.extend(order.iter().filter_map(|&at| places.cores[at].pus.get(sibling)));
            // Each pass runs over the cores the other way: the serpentine.
            order.reverse();
        }
    }
    seats.truncate(count);
    seats
}

fn explain(
    places: &UsableMachine<'_>,
    tasks: &[&Task],
    ranked: &[usize],
    key: Option<Class>,
    choices: &mut [PuChoice],
) {
    let partners = partners(places, tasks, choices);
    for (rank, &task) in ranked.iter().enumerate() {
        // Without a known load the reason stays `Unknown`.
        let Some(key) = key.filter(|&class| tasks[task].load(class).is_some()) else { continue };
        choices[task].why = PlaceReason::HeadAndTail {
            key: key.name().to_owned(),
            rank: u32::try_from(rank).expect("fewer than 2^32 tasks"),
            partners: partners[task].clone(),
        };
    }
}

/// Tasks on sibling PUs of each task, the first [`MAX_PARTNERS`] by ID.
pub(super) fn partners(
    places: &UsableMachine<'_>,
    tasks: &[&Task],
    choices: &[PuChoice],
) -> Vec<Vec<TaskId>> {
    let machine = places.machine;
    let mut on_pu: Vec<Vec<TaskId>> = vec![Vec::new(); machine.pus.len()];
    for (task, choice) in tasks.iter().zip(choices) {
        if let Some(first) = choice.pu.map(|pu| &mut on_pu[pu.idx()])
            // Keeps the lists short with thousands of tasks on a PU.
            && first.len() < MAX_PARTNERS
        {
            first.push(task.id);
        }
    }
    let partners = choices.iter().map(|choice| {
        let Some(pu) = choice.pu else { return Vec::new() };
        let siblings = machine.cores[machine.core_of(pu).idx()].pus.iter();
        let others = siblings.filter(|&&other| other != pu);
        let mut others: Vec<_> = others.flat_map(|other| on_pu[other.idx()].clone()).collect();
        others.sort_unstable();
        others.truncate(MAX_PARTNERS);
        others
    });
    partners.collect()
}

#[cfg(test)]
mod tests {
    use super::{choose_key, published_load, rank};
    use crate::plan::{PlaceReason, Task};
    use crate::testing::{check, letters, machine, picture};
    use crate::{Knowledge, PolicySpec};
    use colocate_model::Class;
    use expect_test::expect;

    #[test]
    fn extremes_meet() {
        // Float shares 10, 20, 30, 40 %: A with D, B with C.
        check(
            "instruction",
            "core:2 pu:2",
            "ABCD",
            "A f10, B f20, C f30, D f40",
            expect![[r#"
            [D A][C B]
            mean overlap of a core 0.0250 unit clashes per pair of instructions; 0.0292 for the same places with partners drawn at random, 0.0350 for round-robin
        "#]],
        );
    }

    #[test]
    fn odd_counts() {
        check(
            "instruction",
            "core:2 pu:2",
            "ABC",
            "A f10, B f20, C f30",
            expect![[r#"
            [C _][B A]
            mean overlap of a core 0.0050 unit clashes per pair of instructions; 0.0092 for the same places with partners drawn at random, 0.0050 for round-robin
        "#]],
        );
    }

    #[test]
    fn own_cores() {
        // The published loop would use three cores; here the two heaviest have their own.
        check(
            "instruction",
            "core:4 pu:2",
            "ABCDEF",
            "A f60, B f50, C f40, D f30, E f20, F f10",
            expect![[r#"
                [A _][B _][C F][D E]
                mean overlap of a core 0.0125 unit clashes per pair of instructions; 0.0292 for the same places with partners drawn at random, 0.0550 for round-robin
            "#]],
        );
        check(
            "instruction",
            "core:4 pu:2",
            "ABC",
            "A f60, B f50, C f40",
            expect![[r#"
            [A _][B _][C _][_ _]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0375 for round-robin
        "#]],
        );
    }

    #[test]
    fn serpentine() {
        // Loads 8 … 1: 8+5+4+1 and 7+6+3+2 are both 18.
        check(
            "instruction",
            "core:2 pu:4",
            "ABCDEFGH",
            "A f80, B f70, C f60, D f50, E f40, F f30, G f20, H f10",
            expect![[r#"
                [A D E H][B C F G]
                mean overlap of a core 0.5550 unit clashes per pair of instructions; 0.5850 for the same places with partners drawn at random, 0.7150 for round-robin
            "#]],
        );
    }

    #[test]
    fn key_varies_most() {
        // Int varies by 40 points over four units, float by 30 over two: 0.04 · 1/4 < 0.0225 · 1/2.
        let tasks = letters("AB", "A i60 f10, B i20 f40");
        assert_eq!(choose_key(&tasks.iter().collect::<Vec<_>>(), Task::load), Some(Class::Float));
        let tasks = letters("AB", "A i90 f10, B i10 f40");
        assert_eq!(choose_key(&tasks.iter().collect::<Vec<_>>(), Task::load), Some(Class::Int));
        assert_eq!(choose_key(&letters("AB", "").iter().collect::<Vec<_>>(), Task::load), None);
    }

    /// A executes 0.2 · 4 floating-point instructions a cycle, B 0.8, C 0.1, D 0.4: A, B, D, C by numbers, and by shares B, D,
    /// A, C.
    #[test]
    fn published_goes_by_numbers() {
        let mut tasks = letters("ABCD", "A f20, B f80, C f10, D f40");
        for (task, ipc) in tasks.iter_mut().zip([4.1, 1.0, 1.0, 1.0]) {
            task.ipc = Some(ipc);
        }
        let tasks: Vec<&Task> = tasks.iter().collect();
        assert_eq!(rank(&tasks, Some(Class::Float), published_load(&tasks)), [2, 3, 1, 0]);
        assert_eq!(rank(&tasks, Some(Class::Float), Task::load), [2, 0, 3, 1]);
    }

    /// Counts as of `emulate`: A executes 0.2 · 500 = 100 floating-point instructions, B 0.8 · 100
    /// = 80, C 0.1 · 600 = 60, D 0.4 · 100 = 40: D, C, B, A. E, of no known mix, is average (70). As of
    /// `sample`, without counts, shares decide: C, A, D, B, and E (37.5 %) before D.
    #[test]
    fn published_without_rates() {
        let mut tasks = letters("ABCDE", "A f20, B f80, C f10, D f40");
        let ranked = |tasks: &[Task]| {
            let tasks: Vec<&Task> = tasks.iter().collect();
            rank(&tasks, Some(Class::Float), published_load(&tasks))
        };
        assert_eq!(ranked(&tasks), [2, 0, 4, 3, 1]);
        for (task, instructions) in tasks.iter_mut().zip([500, 100, 600, 100]) {
            task.instructions = Some(instructions);
        }
        assert_eq!(ranked(&tasks), [3, 2, 4, 1, 0]);
        tasks[1].instructions = None;
        assert_eq!(ranked(&tasks), [2, 0, 4, 3, 1], "one count is missing");
    }

    /// Counts as of `emulate` pair A with D and B with C, and every reason has a rank.
    #[test]
    fn published_pairs_by_counts() {
        let mut tasks = letters("ABCD", "A f20, B f80, C f10, D f40");
        for (task, instructions) in tasks.iter_mut().zip([500, 100, 600, 100]) {
            task.instructions = Some(instructions);
        }
        let machine = machine("core:2 pu:2");
        let usable: Vec<_> = machine.all_pus().collect();
        let policy: PolicySpec = "instruction:published".parse().unwrap();
        let plan = policy.plan(&Knowledge::default(), &machine, &usable, &tasks);
        assert!(picture(&plan, &machine).starts_with("[A D][B C]\n"));
        let ranks = plan.decisions.iter().map(|decision| match &decision.why {
            PlaceReason::HeadAndTail { rank, .. } => *rank,
            other => panic!("{other}"),
        });
        assert_eq!(ranks.collect::<Vec<_>>(), [3, 2, 1, 0]);
    }

    #[test]
    fn unknown_in_the_middle() {
        check(
            "instruction",
            "core:2 pu:2",
            "ABC",
            "A f10, C f50",
            expect![[r#"
            [C _][B A]
            mean overlap of a core 0.0075 unit clashes per pair of instructions; 0.0192 for the same places with partners drawn at random, 0.0075 for round-robin; 1 of 3 mixes are not known and taken as average
        "#]],
        );
    }

    #[test]
    fn turns() {
        check(
            "instruction",
            "core:2 pu:2",
            "ABCDEF",
            "A f60, B f50, C f40, D f30, E f20, F f10",
            expect![[r#"
                [AE D][BF C]
                mean overlap of a core 0.0600 unit clashes per pair of instructions; 0.0600 for round-robin
            "#]],
        );
    }
}
