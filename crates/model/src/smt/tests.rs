//! Tests of rates on one core: by hand, and what holds of all of them.

use super::*;
use crate::phase::typical_misses;
use crate::ports::UNIONS;
use proptest::prelude::*;

const ALU: PortSet = PortSet(0b0011);
const MUL: PortSet = PortSet(0b0001);
const LOAD: PortSet = PortSet(0b0100);

fn rates_of(tasks: &[Active<'_>]) -> Vec<f64> {
    rates(4.0, Fairness::Progress, tasks)
}

fn near(found: &[f64], expected: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
    let same = found.len() == expected.len() && found.iter().zip(expected).all(close);
    assert!(same, "found {found:?}, expected {expected:?}");
}

/// Alone 2 adds a cycle on two ports; two of them get one each.
#[test]
fn equal_tasks_share_equally() {
    let add = Active { slots: 1.0, ports: &[(ALU, 1.0)], dependent_cycles: 0.0 };
    assert_eq!(rates_of(&[add]), [2.0]);
    assert_eq!(rates_of(&[add, add]), [1.0, 1.0]);
}

/// Alone: adds 2 a cycle, multiplications 1. Together at a fraction x of that: 2x + 1x ≤ 2 cycles of
/// both ports, and 1x ≤ 1 of the first; so x = 2/3.
#[test]
fn a_shared_port_bounds_both() {
    let add = Active { slots: 1.0, ports: &[(ALU, 1.0)], dependent_cycles: 0.0 };
    let mul = Active { slots: 1.0, ports: &[(MUL, 1.0)], dependent_cycles: 0.0 };
    near(&rates_of(&[add, mul]), &[4.0 / 3.0, 2.0 / 3.0]);
    // With equal slots in place of equal progress: 1 each, which fills both ports.
    near(&rates(4.0, Fairness::Slots, &[add, mul]), &[1.0, 1.0]);
}

/// A chain of multiplications, latency 3, leaves two thirds of its port to others: both run as if
/// alone.
#[test]
fn a_chain_does_not_contend() {
    let chain = Active { slots: 1.0, ports: &[(MUL, 1.0)], dependent_cycles: 3.0 };
    near(&rates_of(&[chain, chain]), &[1.0 / 3.0, 1.0 / 3.0]);
}

/// Three tasks. Loads fill their port: each of two tasks gets half of its 1 a cycle. The third task
/// has additions only and reaches 2 a cycle; slots would allow 4 − 2 · 0.5 = 3. The bound on loads
/// holds two tasks and not the third.
#[test]
fn a_task_that_does_not_use_a_full_port_goes_on() {
    let load = Active { slots: 1.0, ports: &[(LOAD, 1.0)], dependent_cycles: 0.0 };
    let add = Active { slots: 1.0, ports: &[(ALU, 1.0)], dependent_cycles: 0.0 };
    near(&rates_of(&[load, load, add]), &[0.5, 0.5, 2.0]);
    // A front end of 2.5 slots leaves 1.5 of them.
    near(&rates(2.5, Fairness::Progress, &[load, load, add]), &[0.5, 0.5, 1.5]);
}

/// A fused pair needs half a slot an instruction: 8 a cycle. A task without demands has the same.
#[test]
fn no_task_and_one_that_demands_nothing() {
    assert!(rates_of(&[]).is_empty());
    let nothing = Active { slots: 0.0, ports: &[], dependent_cycles: 0.0 };
    assert_eq!(rates_of(&[nothing]), [8.0]);
    let pair = Active { slots: 0.5, ..nothing };
    assert_eq!(rates_of(&[pair, pair]), [4.0, 4.0]);
    for fairness in [Fairness::Progress, Fairness::Slots] {
        near(&rates(4.0, fairness, &[pair, nothing]), &[8.0, 8.0]);
    }
}

/// p01 and p23 have no port in common, p12 joins them: of the seven unions only {01, 23} is left out.
#[test]
fn only_connected_unions() {
    let mut bounds = Bounds::default();
    let sets = [PortSet(0b0011), PortSet(0b1100)];
    bounds.set_unions(sets.into_iter());
    assert_eq!(bounds.unions, sets);
    bounds.set_unions(sets.into_iter().chain([PortSet(0b0110), sets[0], PortSet(0)]));
    let mut found: Vec<u32> = bounds.unions.iter().map(|set| set.0).collect();
    found.sort_unstable();
    assert_eq!(found, [0b0011, 0b0110, 0b0111, 0b1100, 0b1110, 0b1111]);
    // A star of 20 pairs has a million unions; the search ends.
    bounds.set_unions((1..=20).map(|leaf| PortSet(1 | 1 << leaf)));
    assert!(bounds.unions.len() < UNIONS + 20);
}

fn demand(slots: f64, ports: &[(PortSet, f64)], dependent: f64, divided: f64) -> Demand {
    Demand {
        slots,
        ports: ports.to_vec(),
        dependent_cycles: dependent,
        dependent_cycles_divided: divided,
        stall_cycles: 0.0,
        misses: typical_misses(0.0),
        parallel_misses: 1.0,
        written_back: 0.0,
        shared_lines: 0.0,
    }
}

const CORE: SharedResources = SharedResources {
    width: 4.0,
    divided: true,
    sets: 1.0,
    whole: PortSet(0),
    fairness: Fairness::Progress,
};

fn with_stalls(core: SharedResources, overlap: f64, tasks: &[(Demand, f64)]) -> Vec<f64> {
    let demands: Vec<&Demand> = tasks.iter().map(|(demand, _)| demand).collect();
    let stalls: Vec<f64> = tasks.iter().map(|(_, stall)| *stall).collect();
    Siblings::new(core, &demands).with_stalls(overlap, &stalls)
}

/// Two sets of threads on a core of 4 slots. Alone each task can use all of it. Beside a task that
/// hardly runs it has at most half of the slots and one of two ports, but still all of the only
/// port for loads. Work on both kinds at once: one of the two and the whole third are 2 of 3 ports.
#[test]
fn thread_sets_have_a_part_each() {
    let split = SharedResources { sets: 2.0, whole: LOAD, ..CORE };
    let slots = demand(1.0, &[], 0.0, 0.0);
    let two = demand(0.5, &[(ALU, 1.0)], 0.0, 0.0);
    let one = demand(0.5, &[(LOAD, 1.0)], 0.0, 0.0);
    let three = demand(0.5, &[(ALU.union(LOAD), 1.0)], 0.0, 0.0);
    let idle = (demand(0.5, &[], 0.0, 0.0), 1e9);
    for (task, alone, beside) in
        [(slots, 4.0, 2.0), (two, 2.0, 1.0), (one, 1.0, 1.0), (three, 3.0, 2.0)]
    {
        near(&with_stalls(split, 0.0, &[(task.clone(), 0.0)]), &[alone]);
        let found = with_stalls(split, 0.0, &[(task.clone(), 0.0), idle.clone()]);
        assert!((found[0] - beside).abs() < 1e-8, "{found:?}");
        let whole = with_stalls(CORE, 0.0, &[(task, 0.0), idle.clone()]);
        assert!((whole[0] - alone).abs() < 1e-8, "{whole:?}");
    }
}

/// Work for a port of its own, and for two others: a little work that either of all three can do
/// joins the bounds on both and changes nothing else.
#[test]
fn little_work_changes_little() {
    let apart = [(PortSet(0b00_1000), 1.9), (PortSet(0b11_0000), 1.9)];
    let joined = [apart[0], apart[1], (PortSet(0b11_1000), 1e-6)];
    for whole in [PortSet(0), PortSet(0b00_1000), PortSet(0b01_0000)] {
        let split = SharedResources { sets: 2.0, whole, ..CORE };
        let beside = (demand(0.3, &[], 0.0, 0.0), 0.0);
        let rate = |ports: &[_]| {
            with_stalls(split, 0.0, &[(demand(0.3, ports, 0.0, 0.0), 0.0), beside.clone()])[0]
        };
        assert!((rate(&apart) / rate(&joined) - 1.0).abs() < 1e-5, "{whole:?}");
    }
}

/// Two tasks that each fill a port of one: active alone y = 1, together 1/2. Stalled for s = 1 cycle per
/// instruction. Both have the same x, and are stalled with chance x: e = x · 1 + (1 − x) · 1/2, and
/// x = 1 / (1/e + 1) = e / (1 + e), so x (3/2 + x/2) = (1 + x) / 2, x² + 2x − 1 = 0, x = √2 − 1.
/// If stalls are filled as well as can be: alone 1/2 each, which the port can do.
#[test]
fn stalls_by_chance_and_filled() {
    let mul = (demand(1.0, &[(MUL, 1.0)], 0.0, 0.0), 1.0);
    let both = [mul.clone(), mul.clone()];
    let by_chance = std::f64::consts::SQRT_2 - 1.0;
    near(&with_stalls(CORE, 0.0, &both), &[by_chance; 2]);
    near(&with_stalls(CORE, 1.0, &both), &[0.5; 2]);
    near(&with_stalls(CORE, 0.5, &both), &[(by_chance + 0.5) / 2.0; 2]);
    near(&with_stalls(CORE, 0.5, &[mul]), &[0.5]);
}

/// Three such tasks: y = 1, 1/2, 1/3 with none, one, two others active, each stalled with chance x. So
/// e = x² + 2 x (1 − x) / 2 + (1 − x)² / 3 = x + (1 − x)² / 3, and x (1 + e) = e makes it 3 x² = (1 − x)³.
#[test]
fn three_stall_by_chance() {
    let found = with_stalls(CORE, 0.0, &vec![(demand(1.0, &[(MUL, 1.0)], 0.0, 0.0), 1.0); 3]);
    let x = found[0];
    near(&found, &[x; 3]);
    near(&[3.0 * x * x], &[(1.0 - x).powi(3)]);
}

/// One fills the port and never stalls, the other is stalled for 3 cycles: x2 = 1/(1/e2 + 3), and e2 = 1/2
/// always, so x2 = 1/5 and it is stalled 3/5 of the time; e1 = 3/5 · 1 + 2/5 · 1/2 = 4/5. Sum: all of the
/// port.
#[test]
fn one_stalls_the_other_does_not() {
    let mul = demand(1.0, &[(MUL, 1.0)], 0.0, 0.0);
    near(&with_stalls(CORE, 0.0, &[(mul.clone(), 0.0), (mul, 3.0)]), &[0.8, 0.2]);
}

/// Chains of 1 cycle, 1.5 with half of the window, so 2.25 with a quarter and 1.5³ with an eighth. Nothing
/// is contended. On a core that divides nothing it stays 1.
#[test]
fn windows_divided_by_one_two_four_eight() {
    let chain = (demand(0.25, &[], 1.0, 1.5), 0.0);
    for (threads, cycles) in [(1, 1.0), (2, 1.5), (4, 2.25), (8, 3.375)] {
        let tasks = vec![chain.clone(); threads];
        near(&with_stalls(CORE, 0.0, &tasks), &vec![1.0 / cycles; threads]);
        let whole = SharedResources { divided: false, ..CORE };
        near(&with_stalls(whole, 0.0, &tasks), &vec![1.0; threads]);
    }
    // A sibling that is stalled all the time keeps its part of the window.
    let stalled = (demand(1.0, &[], 1.0, 1.0), 1e9);
    let found = with_stalls(CORE, 0.0, &[chain, stalled]);
    assert!((found[0] - 1.0 / 1.5).abs() < 1e-8, "{found:?}");
}

/// More tasks than any core has PUs: the table of sets would not fit into memory.
#[test]
fn forty_tasks() {
    let mul = (demand(1.0, &[(MUL, 1.0)], 0.0, 0.0), 1.0);
    near(&with_stalls(CORE, 0.0, &vec![mul; 40]), &[1.0 / 40.0; 40]);
}

/// The largest figures that a demand vector may have, all at once: rates are small, not 0, and numbers.
#[test]
fn extremes() {
    let most = demand(1e6, &[(MUL, 1e6), (ALU, 1e6)], 1e6, 1e6);
    let nothing = demand(0.0, &[], 0.0, 0.0);
    for overlap in [0.0, 0.5, 1.0] {
        for fairness in [Fairness::Progress, Fairness::Slots] {
            let core = SharedResources { fairness, ..CORE };
            let tasks = [(most.clone(), 1e9), (nothing.clone(), 0.0), (most.clone(), 0.0)];
            let found = with_stalls(core, overlap, &tasks);
            assert!(found.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{found:?}");
        }
    }
}

/// Memory is kept: what was set before leaves no trace.
#[test]
fn set_anew() {
    let mul = demand(1.0, &[(MUL, 1.0)], 0.0, 0.0);
    let add = demand(1.0, &[(ALU, 1.0)], 0.5, 0.7);
    let mut kept = Siblings::new(CORE, &[&mul, &add, &mul]);
    let _ = kept.with_stalls(0.3, &[1.0, 2.0, 3.0]);
    for demands in [vec![&add, &mul], vec![&mul], vec![&add, &add, &mul, &mul]] {
        kept.set(CORE, &demands);
        let mut fresh = Siblings::new(CORE, &demands);
        let stalls = [0.5, 0.0, 2.0, 1.0];
        assert_eq!(kept.with_stalls(0.3, &stalls), fresh.with_stalls(0.3, &stalls));
        assert_eq!(kept.alone.len(), demands.len());
    }
    kept.set(CORE, &[]);
    assert!(kept.alone.is_empty() && kept.with_stalls(0.0, &[]).is_empty());
}

/// Work of very different amounts, partly 0, for overlapping, nested and disjoint sets.
fn any_demand() -> impl Strategy<Value = Demand> {
    let amount = prop_oneof![1 => Just(0.0), 4 => 0.01..2.0, 1 => 1e-9..1e-6];
    let sets = Just([0b00_0011, 0b00_0001, 0b00_0110, 0b00_1000, 0b11_1000, 0b11_0000]);
    let ports = (sets, prop::array::uniform6(amount));
    (ports, 0.3..2.0, 0.0..3.0, 1.0..2.0).prop_map(|((sets, cycles), slots, least, divided)| {
        let ports = sets.into_iter().zip(cycles).filter(|(_, cycles)| *cycles > 0.0);
        let ports: Vec<_> = ports.map(|(set, cycles)| (PortSet(set), cycles)).collect();
        demand(slots, &ports, least, least * divided)
    })
}

fn any_tasks(most: usize) -> impl Strategy<Value = Vec<(Demand, f64)>> {
    let stall = prop_oneof![1 => Just(0.0), 3 => 0.0..5.0, 1 => 10.0..1e4];
    prop::collection::vec((any_demand(), stall), 1..=most)
}

fn any_core() -> impl Strategy<Value = SharedResources> {
    let fairness = prop_oneof![Just(Fairness::Progress), Just(Fairness::Slots)];
    let sets = prop_oneof![Just(1.0), Just(2.0)];
    let whole = (0_u32..64).prop_map(PortSet);
    (1.0..8.0, any::<bool>(), sets, whole, fairness).prop_map(
        |(width, divided, sets, whole, fairness)| SharedResources {
            width,
            divided,
            sets,
            whole,
            fairness,
        },
    )
}

/// Rate of a task alone by its own bounds, from all 64 sets of ports, without any of the code above.
fn solo(core: SharedResources, demand: &Demand, stall: f64) -> f64 {
    let within = |set: u32| -> f64 {
        demand.ports.iter().filter(|(ports, _)| ports.0 & !set == 0).map(|(_, c)| c).sum()
    };
    let by_ports = (1_u32..64).map(|set| f64::from(set.count_ones()) / within(set));
    let by_ports = by_ports
        .fold(f64::INFINITY, |least, rate| if rate > 0.0 { least.min(rate) } else { least });
    let active = by_ports.min(core.width / demand.slots).min(2.0 * core.width);
    1.0 / (1.0 / active.min(1.0 / demand.dependent_cycles) + stall)
}

proptest! {
    #[test]
    fn no_resource_above_capacity(core in any_core(), overlap in 0.0..=1.0, tasks in any_tasks(4)) {
        let found = with_stalls(core, overlap, &tasks);
        let used = |asked: &dyn Fn(&Demand) -> f64| -> f64 {
            tasks.iter().zip(&found).map(|((demand, _), rate)| asked(demand) * rate).sum()
        };
        prop_assert!(used(&|demand| demand.slots) <= core.width * (1.0 + 1e-9));
        for set in 1_u32..64 {
            let within = |demand: &Demand| {
                demand.ports.iter().filter(|(ports, _)| ports.0 & !set == 0).map(|(_, c)| c).sum()
            };
            prop_assert!(used(&within) <= f64::from(set.count_ones()) * (1.0 + 1e-9), "{set:b}");
        }
        for ((demand, stall), rate) in tasks.iter().zip(&found) {
            prop_assert!(rate.is_finite() && *rate > 0.0);
            prop_assert!(*rate <= solo(core, demand, *stall) * (1.0 + 1e-9));
        }
    }

    #[test]
    fn alone_equals_solo(core in any_core(), overlap in 0.0..=1.0, task in any_tasks(1)) {
        let found = with_stalls(core, overlap, &task);
        let expected = solo(core, &task[0].0, task[0].1);
        prop_assert!((found[0] / expected - 1.0).abs() < 1e-9, "{found:?} {expected}");
    }

    #[test]
    fn permutation_of_siblings(
        core in any_core(),
        overlap in 0.0..=1.0,
        (tasks, order) in any_tasks(5).prop_flat_map(|tasks| {
            let order: Vec<usize> = (0..tasks.len()).collect();
            (Just(tasks), Just(order).prop_shuffle())
        }),
    ) {
        let found = with_stalls(core, overlap, &tasks);
        let shuffled: Vec<_> = order.iter().map(|&t| tasks[t].clone()).collect();
        for (&t, rate) in order.iter().zip(with_stalls(core, overlap, &shuffled)) {
            prop_assert!((rate / found[t] - 1.0).abs() < 1e-7, "{rate} {found:?}");
        }
    }

    /// The window is whole, so that a further task takes nothing but slots and ports.
    #[test]
    fn a_further_task_helps_none_at_its_resource(tasks in any_tasks(5), width in 1.0..8.0) {
        let core = SharedResources { width, divided: false, ..CORE };
        let tasks: Vec<_> = tasks.into_iter().map(|(demand, _)| (demand, 0.0)).collect();
        let least = |tasks: &[(Demand, f64)], of: usize| {
            let progress = |(rate, task): (f64, &(Demand, f64))| rate / solo(core, &task.0, 0.0);
            with_stalls(core, 1.0, tasks).into_iter().zip(tasks).take(of).map(progress).fold(1.0, f64::min)
        };
        let others = tasks.len() - 1;
        prop_assert!(least(&tasks, others) <= least(&tasks[..others], others) * (1.0 + 1e-9));
    }

    /// All tasks need the same ports only: a further task helps none, stalled or not. (The window
    /// is whole: a divided window slows a task down, which helps tasks at the same port.)
    #[test]
    fn a_further_task_at_one_resource(
        cycles in prop::collection::vec((0.1..3.0, 0.0..3.0, 0.0..5.0), 2..5),
        overlap in 0.0..=1.0,
    ) {
        let core = SharedResources { width: 1e3, divided: false, ..CORE };
        let task = |(cycles, least, stall): (f64, f64, f64)| {
            (demand(1.0, &[(ALU, cycles)], least, least * 1.1), stall)
        };
        let tasks: Vec<_> = cycles.into_iter().map(task).collect();
        let with = with_stalls(core, overlap, &tasks);
        let without = with_stalls(core, overlap, &tasks[..tasks.len() - 1]);
        for (with, without) in with.iter().zip(&without) {
            prop_assert!(*with <= without * (1.0 + 1e-9), "{with} {without}");
        }
    }

    /// A relative increase of 10⁻⁵: for two tasks of all components, 0 included; for more tasks of
    /// components above 0.
    #[test]
    fn continuity(core in any_core(), overlap in 0.0..=1.0, tasks in any_tasks(4), which in 0_usize..8) {
        const MORE: f64 = 1e-5;
        let core = SharedResources { fairness: Fairness::Progress, ..core };
        let floor = |demand: &mut Demand| {
            for (_, cycles) in &mut demand.ports {
                *cycles = cycles.max(0.05);
            }
        };
        let mut tasks = tasks;
        tasks.iter_mut().for_each(|(demand, _)| floor(demand));
        let mut other = tasks.clone();
        let at = which % tasks.len();
        let (demand, stall) = &mut other[at];
        demand.slots += MORE;
        demand.dependent_cycles += MORE;
        demand.dependent_cycles_divided += MORE;
        *stall += MORE;
        demand.ports.iter_mut().for_each(|(_, cycles)| *cycles += MORE);
        let missing = [0b00_0011, 0b00_0001, 0b00_0110, 0b00_1000, 0b11_1000, 0b11_0000];
        let missing = missing.map(PortSet).into_iter().filter(|_| tasks.len() <= 2);
        for set in missing {
            if !demand.ports.iter().any(|(ports, _)| *ports == set) {
                demand.ports.push((set, MORE));
            }
        }
        let before = with_stalls(core, overlap, &tasks);
        for (after, before) in with_stalls(core, overlap, &other).iter().zip(&before) {
            prop_assert!((after / before - 1.0).abs() < 1e3 * MORE, "{after} {before}");
        }
    }
}
