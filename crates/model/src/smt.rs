//! A core and the tasks on its PUs: how many instructions a cycle each gets.
//!
//! # Problem
//! Tasks on sibling PUs take the front end's slots and the ports from each other.
//!
//! # Approach
//! While it is not stalled, a task asks for slots and for cycles of ports, instruction by instruction.
//! What all tasks together can get is bounded by linear constraints; within them, shares rise together
//! until one of them hits a bound (max–min fairness).
//!
//! # Terms
//! - `y(t)`: rate of task `t` while it is active, instructions per cycle.
//! - `f(t)`, `D(t, m)`: slots, and cycles of one port of the set `m`, per instruction.
//! - `W`: slots per cycle of the core.
//!
//! # Constraints
//! - `Σ y(t) f(t) ≤ W`
//! - for every union `S` of port sets: `Σ y(t) Σ over m within S of D(t, m) ≤ |S|`: work that only ports
//!   of `S` can do fits into the cycles of `S`. These are all there is (Hall's theorem for fractional
//!   assignment).
//! - `y(t) ≤ 1 / d(t)` with the least cycles by dependencies `d(t)`.

use crate::assumptions::Fairness;
use colocate_machine::performance::PortSet;

/// What a task asks of the core while it is active, per instruction.
#[derive(Clone, Copy, Debug)]
pub struct Active<'a> {
    /// Front-end slots.
    pub slots: f64,
    /// Cycles of one of the ports of each set.
    pub ports: &'a [(PortSet, f64)],
    /// Least cycles by dependencies, for the window that it has.
    pub dependent_cycles: f64,
}

/// A linear bound: `Σ weight(t) · y(t) ≤ room`.
struct Bound {
    weights: Vec<f64>,
    room: f64,
}

/// Rates of tasks that are active at the same time, in instructions per cycle, in their order.
///
/// A task that asks for nothing at all has no rate that could be computed; it gets `width`.
#[must_use]
pub fn rates(width: f64, fairness: Fairness, tasks: &[Active<'_>]) -> Vec<f64> {
    let bounds = bounds(width, tasks);
    let alone = |t: usize| {
        let names_it = bounds.iter().filter(|bound| bound.weights[t] > 0.0);
        let by = names_it.map(|bound| bound.room / bound.weights[t]);
        by.fold(f64::INFINITY, f64::min).min(width)
    };
    let alone: Vec<f64> = (0..tasks.len()).map(alone).collect();
    let step = |t: usize| match fairness {
        Fairness::Progress => alone[t],
        Fairness::Slots => 1.0 / tasks[t].slots.max(f64::MIN_POSITIVE),
    };
    let steps: Vec<f64> = (0..tasks.len()).map(step).collect();
    fill(&bounds, &alone, &steps)
}

/// Raises all rates together, each by its step, and stops those that a bound holds.
fn fill(bounds: &[Bound], most: &[f64], steps: &[f64]) -> Vec<f64> {
    let mut rates = vec![0.0; steps.len()];
    let mut held = vec![false; steps.len()];
    while held.contains(&false) {
        let used = |bound: &Bound| dot(&bound.weights, &rates);
        let rising = |bound: &Bound| -> f64 {
            (0..steps.len()).filter(|&t| !held[t]).map(|t| bound.weights[t] * steps[t]).sum()
        };
        let by_bound = bounds.iter().filter(|bound| rising(bound) > 0.0);
        let by_bound = by_bound.map(|bound| (bound.room - used(bound)).max(0.0) / rising(bound));
        let by_most = (0..steps.len()).filter(|&t| !held[t]);
        let by_most = by_most.map(|t| (most[t] - rates[t]).max(0.0) / steps[t]);
        let length = by_bound.chain(by_most).fold(f64::INFINITY, f64::min);
        for t in (0..steps.len()).filter(|&t| !held[t]) {
            rates[t] += length * steps[t];
        }
        let before = held.clone();
        hold(bounds, most, &rates, &mut held);
        // A step that nothing ends can only come of numbers that are none.
        if held == before {
            break;
        }
    }
    rates
}

/// Holds every task that a full bound names, or that has all that it can use.
fn hold(bounds: &[Bound], most: &[f64], rates: &[f64], held: &mut [bool]) {
    /// Relative; sums of a dozen products are exact to about 1e-15.
    const NEAR: f64 = 1e-12;
    for (t, held) in held.iter_mut().enumerate() {
        *held |= rates[t] >= most[t] * (1.0 - NEAR);
    }
    for bound in bounds {
        if dot(&bound.weights, rates) >= bound.room * (1.0 - NEAR) {
            for (t, held) in held.iter_mut().enumerate() {
                *held |= bound.weights[t] > 0.0;
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn bounds(width: f64, tasks: &[Active<'_>]) -> Vec<Bound> {
    let mut bounds =
        vec![Bound { weights: tasks.iter().map(|task| task.slots).collect(), room: width }];
    for set in unions(tasks) {
        let within = |task: &Active<'_>| -> f64 {
            task.ports.iter().filter(|(ports, _)| ports.is_subset(set)).map(|(_, d)| d).sum()
        };
        let weights = tasks.iter().map(within).collect();
        bounds.push(Bound { weights, room: set.len().into() });
    }
    for (t, task) in tasks.iter().enumerate() {
        let mut weights = vec![0.0; tasks.len()];
        weights[t] = task.dependent_cycles;
        bounds.push(Bound { weights, room: 1.0 });
    }
    bounds
}

/// Every union of port sets that a task uses.
fn unions(tasks: &[Active<'_>]) -> Vec<PortSet> {
    let mut unions = vec![PortSet::default()];
    for (set, _) in tasks.iter().flat_map(|task| task.ports) {
        let with: Vec<PortSet> = unions.iter().map(|union| union.union(*set)).collect();
        unions.extend(with);
        unions.sort_unstable();
        unions.dedup();
    }
    unions.retain(|union| !union.is_empty());
    unions
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALU: PortSet = PortSet(0b0011);
    const MUL: PortSet = PortSet(0b0001);

    fn rates_of(tasks: &[Active<'_>]) -> Vec<f64> {
        rates(4.0, Fairness::Progress, tasks)
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
        let [a, m] = rates_of(&[add, mul])[..] else { panic!("two") };
        assert!((a - 4.0 / 3.0).abs() < 1e-12 && (m - 2.0 / 3.0).abs() < 1e-12, "{a} {m}");
    }

    /// A chain of multiplications, latency 3, leaves two thirds of its port to others: both run as if
    /// alone.
    #[test]
    fn a_chain_does_not_contend() {
        let chain = Active { slots: 1.0, ports: &[(MUL, 1.0)], dependent_cycles: 3.0 };
        let found = rates_of(&[chain, chain]);
        assert!(found.iter().all(|rate| (rate - 1.0 / 3.0).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn no_task_and_one_that_asks_for_nothing() {
        assert!(rates_of(&[]).is_empty());
        let nothing = Active { slots: 0.0, ports: &[], dependent_cycles: 0.0 };
        assert_eq!(rates_of(&[nothing]), [4.0]);
    }
}
