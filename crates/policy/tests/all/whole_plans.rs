//! Whole plans on described machines, drawn as `testing::picture` says, and what every plan must keep
//! to.

use crate::testing;

use colocate_evidence::{Source, TaskId};
use colocate_machine::{Machine, PuIdx, PuNr};
use colocate_policy::plan::MAX_PARTNERS;
use colocate_policy::rng::SplitMix64;
use colocate_policy::{DefaultPlacement, Place, PlaceReason, Plan, PolicySpec, Task, table};
use expect_test::expect;
use proptest::prelude::*;
use testing::{check, check_on, machine, plan, random_tasks};

/// Two EPYC 7301: 2 packages of 4 nodes, each with two last-level caches over two cores; kernel
/// numbers as Linux gives them (siblings are 32 apart).
const EPYC: &str = "pack:2 node:4 l3:2 core:2 pu:2 linux";

/// Two programs of 32 threads, mixes as NPB's BT and IS.
const BT_IS: &str = "A f38 i12 l34 s14 b4, B i42 l28 s12 b18";

fn two_programs(threads: usize) -> String {
    "A".repeat(threads) + &"B".repeat(threads)
}

#[test]
fn the_papers_machine_with_two_programs() {
    // Round-robin puts threads of one program on a core, as the paper's baseline does.
    check(
        "round-robin",
        EPYC,
        &two_programs(32),
        BT_IS,
        expect![[r#"
            8 × [A A][A A]
            8 × [B B][B B]
            mean overlap of a core 0.1340 unit clashes per pair of instructions; 0.1069 for the same places with partners drawn at random, 0.1340 for round-robin
        "#]],
    );
    check(
        "instruction",
        EPYC,
        &two_programs(32),
        BT_IS,
        expect![[r#"
            16 × [A B][A B]
            mean overlap of a core 0.0806 unit clashes per pair of instructions; 0.1069 for the same places with partners drawn at random, 0.1340 for round-robin
        "#]],
    );
    check(
        "mix",
        EPYC,
        &two_programs(32),
        BT_IS,
        expect![[r#"
            16 × [A B][A B]
            mean overlap of a core 0.0806 unit clashes per pair of instructions; 0.1069 for the same places with partners drawn at random, 0.1340 for round-robin
        "#]],
    );
}

#[test]
fn half_a_machine_of_threads() {
    // 16 + 16 threads on 32 cores: a core each, far apart.
    check(
        "scatter",
        EPYC,
        &two_programs(16),
        BT_IS,
        expect![[r#"
            16 × [A _][B _]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0670 for round-robin
        "#]],
    );
    check(
        "compact",
        EPYC,
        &two_programs(16),
        BT_IS,
        expect![[r#"
            4 × [A A][A A]
            4 × [B B][B B]
            8 × [_ _][_ _]
            mean overlap of a core 0.0670 unit clashes per pair of instructions; 0.0532 for the same places with partners drawn at random, 0.0670 for round-robin
        "#]],
    );
    check(
        "mix",
        EPYC,
        &two_programs(16),
        BT_IS,
        expect![[r#"
            16 × [A _][B _]
            mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0670 for round-robin
        "#]],
    );
}

#[test]
fn three_quarters_of_a_machine() {
    check(
        "mix",
        EPYC,
        &two_programs(24),
        BT_IS,
        expect![[r#"
            8 × [A B][A B]
            4 × [A _][A _]
            4 × [B _][B _]
            mean overlap of a core 0.0403 unit clashes per pair of instructions; 0.0534 for the same places with partners drawn at random, 0.1005 for round-robin
        "#]],
    );
    check(
        "random:seed=1",
        EPYC,
        &two_programs(24),
        BT_IS,
        expect![[r#"
            [_ _][A _]
            [A A][B _]
            [_ B][A _]
            [A B][B B]
            [_ A][A B]
            [A _][A _]
            [_ A][A _]
            [_ B][B B]
            [_ _][B _]
            [A A][A B]
            2 × [A B][A B]
            [A B][_ A]
            [B B][A B]
            [A B][A B]
            [B B][A B]
            mean overlap of a core 0.0541 unit clashes per pair of instructions; 0.0600 for the same places with partners drawn at random, 0.1005 for round-robin
        "#]],
    );
}

#[test]
fn four_siblings_a_core() {
    // POWER8 has eight siblings a core, four of them in use here.
    check(
        "mix",
        "core:10 pu:4",
        &two_programs(20),
        BT_IS,
        expect![[r#"
        [A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B]
        mean overlap of a core 0.5903 unit clashes per pair of instructions; 0.6395 for the same places with partners drawn at random, 0.8037 for round-robin
    "#]],
    );
    check(
        "instruction",
        "core:10 pu:4",
        &two_programs(20),
        BT_IS,
        expect![[r#"
        [A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B][A A B B]
        mean overlap of a core 0.5903 unit clashes per pair of instructions; 0.6395 for the same places with partners drawn at random, 0.8037 for round-robin
    "#]],
    );
}

#[test]
fn a_cpuset_of_part_of_the_machine() {
    let left: Vec<u32> = (0..64).filter(|pu| pu % 3 != 0).collect();
    check_on(
        "mix",
        EPYC,
        &left,
        &two_programs(20),
        BT_IS,
        expect![[r#"
        [x A][A x]
        [A B][x A]
        [A x][A B]
        [x A][A x]
        [A B][x A]
        [A x][A B]
        [x A][A x]
        [A B][x A]
        [A x][A B]
        [x B][B x]
        [A B][x B]
        [B x][A B]
        [x B][B x]
        [B _][x B]
        [B x][B _]
        [x B][B x]
        mean overlap of a core 0.0202 unit clashes per pair of instructions; 0.0266 for the same places with partners drawn at random, 0.0419 for round-robin
    "#]],
    );
    check_on(
        "compact",
        EPYC,
        &left,
        &two_programs(10),
        BT_IS,
        expect![[r#"
        [x A][B x]
        [A A][x A]
        [B x][B B]
        [x B][B x]
        [A A][x A]
        [A x][A A]
        [x B][_ x]
        [B B][x B]
        [_ x][_ _]
        [x _][_ x]
        [_ _][x _]
        [_ x][_ _]
        [x _][_ x]
        [_ _][x _]
        [_ x][_ _]
        [x _][_ x]
        mean overlap of a core 0.0216 unit clashes per pair of instructions; 0.0165 for the same places with partners drawn at random, 0.0203 for round-robin
    "#]],
    );
}

#[test]
fn more_threads_than_pus() {
    check(
        "mix",
        "core:4 pu:2",
        &two_programs(9),
        BT_IS,
        expect![[r#"
        [AAB AB][AAB BB][AA BB][AA BB]
        mean overlap of a core 0.0909 unit clashes per pair of instructions; 0.1065 for round-robin
    "#]],
    );
    check(
        "instruction",
        "core:4 pu:2",
        &two_programs(9),
        BT_IS,
        expect![[r#"
        [AAB AB][ABB AB][AB AB][AB AB]
        mean overlap of a core 0.1073 unit clashes per pair of instructions; 0.1065 for round-robin
    "#]],
    );
}

#[test]
fn fast_and_slow_cores() {
    let hybrid = "core:4 pu:2 + slow core:4 pu:1";
    check(
        "mix",
        hybrid,
        &two_programs(3),
        BT_IS,
        expect![[r#"
        [A _][A _][A _][B _]
        [B][B][_][_]
        mean overlap of a core 0.0000 unit clashes per pair of instructions; 0.0000 for the same places with partners drawn at random, 0.0436 for round-robin
    "#]],
    );
    check(
        "mix",
        hybrid,
        &two_programs(5),
        BT_IS,
        expect![[r#"
        [A B][A B][A _][A _]
        [A][B][B][B]
        mean overlap of a core 0.0202 unit clashes per pair of instructions; 0.0261 for the same places with partners drawn at random, 0.0628 for round-robin
    "#]],
    );
    check(
        "instruction",
        hybrid,
        &two_programs(5),
        BT_IS,
        expect![[r#"
        [A _][A _][A B][A B]
        [A][B][B][B]
        mean overlap of a core 0.0202 unit clashes per pair of instructions; 0.0261 for the same places with partners drawn at random, 0.0628 for round-robin
    "#]],
    );
}

#[test]
fn no_tasks_and_no_pus() {
    let machine = machine("core:2 pu:2");
    let all: Vec<PuIdx> = machine.all_pus().collect();
    for policy in table::once() {
        let empty = plan(&policy.to_string(), &machine, &all, &[]);
        assert_eq!((empty.decisions.len(), empty.predicted), (0, None), "{policy}");
        let tasks = random_tasks(&mut SplitMix64::new(1), 3);
        let nowhere = plan(&policy.to_string(), &machine, &[], &tasks);
        assert_eq!(nowhere.decisions.len(), 3);
        assert!(
            nowhere
                .decisions
                .iter()
                .all(|d| d.place == Place::LeftToKernel && d.why == PlaceReason::LeftToKernel)
        );
        assert_eq!(nowhere.default_placement, DefaultPlacement::LeaveToKernel);
    }
}

/// A machine, some of its PUs, and tasks of which some were never watched.
#[derive(Debug)]
struct Case {
    machine: Machine,
    usable: Vec<PuIdx>,
    tasks: Vec<Task>,
    policy: PolicySpec,
}

fn any_case() -> impl Strategy<Value = Case> {
    let specs = [
        "core:1",
        "core:4",
        "core:3 pu:2",
        "pack:2 l3:2 core:2 pu:2 linux",
        "core:3 pu:4",
        "core:2 pu:8",
        "core:2 pu:3",
        "core:2 pu:2 + slow core:3 pu:1",
        "core:1 pu:4 + slow core:4 pu:1 + core:2 pu:2",
    ];
    let policy = prop::sample::select(table::once().collect::<Vec<_>>());
    (prop::sample::select(specs.to_vec()), policy, 0_usize..40, any::<u64>()).prop_map(
        |(spec, policy, count, seed)| {
            let mut rng = SplitMix64::new(seed);
            let machine = machine(spec);
            let mut usable: Vec<PuIdx> = machine.all_pus().collect();
            rng.shuffle(&mut usable);
            usable.truncate(1 + rng.below(usable.len()));
            let mut tasks = random_tasks(&mut rng, count);
            for task in &mut tasks {
                match rng.below(8) {
                    0 => task.mix = colocate_model::Mix::default(),
                    1 => task.mix.float = None,
                    2 => task.busy = None,
                    _ => {}
                }
            }
            rng.shuffle(&mut tasks);
            Case { machine, usable, tasks, policy }
        },
    )
}

fn on_pus(made: &Plan, case: &Case) -> Vec<usize> {
    let mut on_pu = vec![0; case.machine.pus.len()];
    for os in made.decisions.iter().filter_map(|decision| decision.place.pu()) {
        on_pu[case.machine.pu_by_os(os).unwrap().idx()] += 1;
    }
    case.usable.iter().map(|pu| on_pu[pu.idx()]).collect()
}

/// The partners that a reason names, if it is of a kind that does.
fn named(why: &PlaceReason) -> Option<&[TaskId]> {
    match why {
        PlaceReason::TimeShared { then, .. } => named(then),
        PlaceReason::HeadAndTail { partners, .. } | PlaceReason::Matched { partners, .. } => {
            Some(partners)
        }
        _ => None,
    }
}

fn is_unknown(why: &PlaceReason) -> bool {
    match why {
        PlaceReason::TimeShared { then, .. } => is_unknown(then),
        why => *why == PlaceReason::Unknown,
    }
}

/// With thousands of tasks on a core, a list of all partners of each would fill the memory.
#[test]
fn reasons_stay_short() {
    let machine = machine("core:1 pu:2");
    let all: Vec<PuIdx> = machine.all_pus().collect();
    let tasks = random_tasks(&mut SplitMix64::new(1), 4_000);
    for policy in table::once().filter(|policy| policy.plain().needs().has(Source::Mix)) {
        let made = plan(&policy.to_string(), &machine, &all, &tasks);
        assert!(made.to_json().len() < 2_000 * tasks.len(), "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Every task once, in order, on a usable PU; no PU with two tasks more than another; several
    /// tasks on a PU know it; reasons name the tasks on sibling PUs.
    #[test]
    fn balanced(case in any_case()) {
        let made = plan(&case.policy.to_string(), &case.machine, &case.usable, &case.tasks);
        prop_assert_eq!(made.decisions.len(), case.tasks.len());
        prop_assert!(made.decisions.is_sorted_by(|a, b| a.task < b.task));
        if made.default_placement == DefaultPlacement::LeaveToKernel {
            return Ok(());
        }
        let counts = on_pus(&made, &case);
        prop_assert_eq!(counts.iter().sum::<usize>(), case.tasks.len());
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{:?}", counts);
        for decision in &made.decisions {
            let here = made.decisions.iter().filter(|other| other.place == decision.place).count();
            match &decision.why {
                PlaceReason::TimeShared { tasks, .. } => prop_assert_eq!(*tasks as usize, here),
                _ => prop_assert_eq!(here, 1),
            }
            let core = |pu: Option<PuNr>| {
                case.machine.core_of(case.machine.pu_by_os(pu.unwrap()).unwrap())
            };
            let beside = made.decisions.iter().filter(|other| {
                other.place != decision.place
                    && core(other.place.pu()) == core(decision.place.pu())
            });
            let beside: Vec<TaskId> = beside.map(|other| other.task).take(MAX_PARTNERS).collect();
            prop_assert!(named(&decision.why).is_none_or(|partners| partners == beside));
        }
    }

    /// No core waits empty while another has two tasks, under the policies that look at mixes.
    #[test]
    fn no_core_is_empty_beside_a_full_one(case in any_case()) {
        let policy = if case.policy.plain().needs().has(Source::Mix) { case.policy } else { PolicySpec::named("mix") };
        let made = plan(&policy.to_string(), &case.machine, &case.usable, &case.tasks);
        let mut on_core = vec![0; case.machine.cores.len()];
        for os in made.decisions.iter().filter_map(|decision| decision.place.pu()) {
            on_core[case.machine.core_of(case.machine.pu_by_os(os).unwrap()).idx()] += 1;
        }
        let cores: std::collections::BTreeSet<_> =
            case.usable.iter().map(|&pu| case.machine.core_of(pu).idx()).collect();
        let empty = cores.iter().filter(|&&core| on_core[core] == 0).count();
        let full = cores.iter().filter(|&&core| on_core[core] > 1).count();
        prop_assert!(empty == 0 || full == 0, "{on_core:?}");
    }

    /// A task that was not watched says so, wherever tasks share cores.
    #[test]
    fn unknown_mixes_say_so(case in any_case()) {
        let made = plan("mix", &case.machine, &case.usable, &case.tasks);
        for decision in made.decisions.iter().filter(|decision| decision.why != PlaceReason::OwnCore) {
            let task = case.tasks.iter().find(|task| task.id == decision.task).unwrap();
            prop_assert_eq!(is_unknown(&decision.why), task.mix.is_unknown());
        }
    }

    #[test]
    fn same_plan_whatever_the_order(case in any_case()) {
        let made = plan(&case.policy.to_string(), &case.machine, &case.usable, &case.tasks);
        let (mut usable, mut tasks) = (case.usable.clone(), case.tasks.clone());
        usable.reverse();
        usable.extend(case.usable.clone());
        tasks.sort_by_key(|task| task.id);
        prop_assert_eq!(&made, &plan(&case.policy.to_string(), &case.machine, &usable, &tasks));
        prop_assert_eq!(Plan::from_json(&made.to_json()).unwrap(), made);
    }
}
