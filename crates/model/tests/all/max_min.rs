//! Rates of siblings beside a linear programme that assigns every operation to a port.
//!
//! The model bounds rates by unions of ports and does not assign work to ports. Here each port is a
//! constraint, and variables divide each task's work for a set among the ports of the set. Max–min
//! fairness follows its definition: raise the least rate as far as possible, hold the tasks at
//! their limit, repeat with the rest. Solver: microlp, an independent one.

use colocate_machine::performance::PortSet;
use colocate_model::Fairness;
use colocate_model::smt::{Active, rates};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use proptest::prelude::*;

const PORTS: usize = 5;

#[derive(Clone, Debug)]
struct Task {
    slots: f64,
    ports: Vec<(PortSet, f64)>,
    dependent_cycles: f64,
}

/// Lower bound on a task's rate.
#[derive(Clone, Copy)]
enum Least {
    /// A constant.
    Fixed(f64),
    /// A multiple of the level that is maximised.
    Rising(f64),
}

/// The programme, with a rate for each task and a level.
fn programme(width: f64, tasks: &[Task], least: &[Least], wanted: Option<usize>) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let weight = |variable: Option<usize>| if variable == wanted { 1.0 } else { 0.0 };
    let level = problem.add_var(weight(None), (0.0, f64::INFINITY));
    let rate = |t: usize| problem.add_var(weight(Some(t)), (0.0, 2.0 * width));
    let rates: Vec<Variable> = (0..tasks.len()).map(rate).collect();
    let mut on_port: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); PORTS];
    for (task, &rate) in tasks.iter().zip(&rates) {
        for (set, cycles) in &task.ports {
            let mut done = vec![(rate, -cycles)];
            for (_, load) in on_port.iter_mut().enumerate().filter(|(p, _)| set.0 >> p & 1 == 1) {
                let part = problem.add_var(0.0, (0.0, 1.0));
                done.push((part, 1.0));
                load.push((part, 1.0));
            }
            problem.add_constraint(done, ComparisonOp::Eq, 0.0);
        }
        problem.add_constraint([(rate, task.dependent_cycles)], ComparisonOp::Le, 1.0);
    }
    for load in on_port {
        problem.add_constraint(load, ComparisonOp::Le, 1.0);
    }
    let slots: Vec<_> = tasks.iter().zip(&rates).map(|(task, &rate)| (rate, task.slots)).collect();
    problem.add_constraint(slots, ComparisonOp::Le, width);
    for (least, &rate) in least.iter().zip(&rates) {
        match *least {
            Least::Fixed(figure) => problem.add_constraint([(rate, 1.0)], ComparisonOp::Ge, figure),
            Least::Rising(step) => {
                problem.add_constraint([(rate, 1.0), (level, -step)], ComparisonOp::Ge, 0.0)
            }
        };
    }
    problem.solve().unwrap().into_solution().unwrap().objective()
}

/// Max–min rates by definition.
fn by_definition(width: f64, fairness: Fairness, tasks: &[Task]) -> Vec<f64> {
    /// Above the solver's tolerance, below that of the comparison.
    const NEAR: f64 = 1e-6;
    let step = |task: &Task| match fairness {
        Fairness::Progress => {
            programme(width, std::slice::from_ref(task), &[Least::Fixed(0.0)], Some(0))
        }
        Fairness::Slots => 1.0 / task.slots,
    };
    let steps: Vec<f64> = tasks.iter().map(step).collect();
    let mut least: Vec<Least> = steps.iter().map(|&step| Least::Rising(step)).collect();
    while least.iter().any(|least| matches!(least, Least::Rising(_))) {
        let level = programme(width, tasks, &least, None) * (1.0 - NEAR / 10.0);
        let reached = |t: usize| match least[t] {
            Least::Fixed(figure) => figure,
            Least::Rising(step) => level * step,
        };
        let floor: Vec<Least> = (0..tasks.len()).map(|t| Least::Fixed(reached(t))).collect();
        for (t, least) in least.iter_mut().enumerate() {
            let Least::Rising(step) = *least else { continue };
            if programme(width, tasks, &floor, Some(t)) <= level * step * (1.0 + NEAR) {
                *least = Least::Fixed(level * step);
            }
        }
    }
    least.iter().map(|least| if let Least::Fixed(rate) = least { *rate } else { 0.0 }).collect()
}

fn any_task() -> impl Strategy<Value = Task> {
    let sets = prop::collection::btree_map(1_u32..1 << PORTS, 0.05..2.0, 0..5);
    (0.5..2.0, sets, 0.05..3.0).prop_map(|(slots, sets, dependent_cycles)| Task {
        slots,
        ports: sets.into_iter().map(|(set, cycles)| (PortSet(set), cycles)).collect(),
        dependent_cycles,
    })
}

proptest! {
    #[test]
    fn max_min_by_definition(
        width in 1.0..6.0,
        fairness in prop_oneof![Just(Fairness::Progress), Just(Fairness::Slots)],
        tasks in prop::collection::vec(any_task(), 1..=4),
    ) {
        let active = tasks.iter().map(|task| Active {
            slots: task.slots,
            ports: &task.ports,
            dependent_cycles: task.dependent_cycles,
        });
        let active: Vec<_> = active.collect();
        let expected = by_definition(width, fairness, &tasks);
        for (found, expected) in rates(width, fairness, &active).iter().zip(&expected) {
            prop_assert!((found / expected - 1.0).abs() < 1e-4, "found {found}, expected {expected}");
        }
    }
}
