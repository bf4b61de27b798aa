//! Recovers sets of alternative ports from the pressure on single ports.
//!
//! # Problem
//! An instruction table gives the cycles of each port *on average*, with the work split evenly
//! among alternatives: 0.25 of four ports each. A contention model needs the sets: one cycle of any
//! of the four. The average alone is ambiguous: 0.5 of four ports each can be two micro-operations
//! for a pair each, in three ways, or two cycles of any port.
//!
//! # Approach
//! A simulation of the instruction alone, once, gives the port and cycles of each micro-operation,
//! hence their number and cycles. Searched is one set for each micro-operation; the set holds the
//! port taken, and all sets together give the table's averages.
//!
//! 1. A resource of several units is a set by itself.
//! 2. The other sets are searched for: all fitting sets, with as few unknown sets as possible. A
//!    set shown for certain by one instruction helps to read the next. An answer of known sets is
//!    preferred even if an answer with unknown sets would fit, too.
//! 3. If several answers are left, ports that some answer has in one set become one set.
//!
//! # Terms
//! - *average*: cycles of each port, from the table.
//! - *taken*: port and cycles of each micro-operation, from the simulation.
//! - *known*: sets that some instruction has shown for certain.
//!
//! # Properties
//! - **Conserves**: cycles of all sets sum to the table's. -> test `conserves`
//! - **Found again**: a sum of known sets is taken apart into them, or into larger ones.
//!   -> test `known_sets_are_found_again`
//! - **Never too strict**: what is in doubt may use every port in question, so no contention is
//!   claimed that may not exist. -> test `doubt_becomes_one_set`

use std::collections::BTreeSet;

/// Ports by number, sorted: alternatives for a micro-operation.
pub type Set = Vec<usize>;

/// Port usage of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Uses {
    /// Distinct sets of alternative ports, and the cycles for which one port of the set is taken.
    pub sets: Vec<(Set, f64)>,
    /// Whether the answer is unique; if not, some set is larger than the truth.
    pub certain: bool,
}

/// Ports of a processor, by number.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Resource of each port.
    pub resource: Vec<usize>,
}

impl Ports {
    /// All units of the resource of `port`.
    fn units(&self, port: usize) -> Set {
        let resource = self.resource.get(port);
        (0..self.resource.len()).filter(|other| self.resource.get(*other) == resource).collect()
    }
}

/// Absolute tolerance in cycles: averages are printed with about six digits.
const NEAR: f64 = 1e-4;
/// Limit of sets tried for one instruction, each in some nanoseconds.
const MOST_TRIES: usize = 1_000_000;
/// Limit of searched single-unit ports of one instruction: they have 2 to that power sets.
const MOST_PORTS: usize = 12;
/// Limit of different answers.
const MOST_ANSWERS: usize = 100;

/// Splits `average` into one set for each micro-operation in `taken`.
///
/// An instruction that takes no port in the simulation, for example a move eliminated by renaming,
/// uses no port whatever the table says.
pub fn apart(
    ports: &Ports,
    average: &[(usize, f64)],
    taken: &[(usize, f64)],
    known: &BTreeSet<Set>,
) -> Uses {
    if taken.is_empty() {
        return Uses { sets: Vec::new(), certain: true };
    }
    let (mut sets, rest) = whole_resources(ports, average);
    // Sets of whole resources are known already; only single-unit ports are searched.
    let taken = taken.iter().filter(|(port, _)| ports.units(*port).len() == 1);
    let taken: Vec<(usize, f64)> = taken.copied().collect();
    let (searched, certain) = MicroOpSearch::of(&rest, &taken, known);
    sets.extend(searched);
    sets.sort_by(|a, b| a.0.cmp(&b.0));
    Uses { sets, certain }
}

/// One set for all of `average`, without a simulation: it allows every possible split.
pub fn in_doubt(ports: &Ports, average: &[(usize, f64)]) -> Uses {
    let (mut sets, rest) = whole_resources(ports, average);
    let certain = rest.len() <= 1;
    sets.extend(one_set(&rest));
    Uses { sets, certain }
}

fn one_set(average: &[(usize, f64)]) -> Option<(Set, f64)> {
    let set: Set = average.iter().map(|(port, _)| *port).collect();
    (!set.is_empty()).then(|| (set, cycles_of(average)))
}

type Sets = Vec<(Set, f64)>;
type Average = Vec<(usize, f64)>;

/// Sets of resources with several units, and the remaining average.
fn whole_resources(ports: &Ports, average: &[(usize, f64)]) -> (Sets, Average) {
    let mut sets = Sets::new();
    let mut rest = Average::new();
    for &(port, cycles) in average {
        let units = ports.units(port);
        match sets.iter_mut().find(|(set, _)| *set == units) {
            _ if units.len() <= 1 => rest.push((port, cycles)),
            Some((_, all)) => *all += cycles,
            None => sets.push((units, cycles)),
        }
    }
    (sets, rest)
}

/// Set of an instruction's ports: bit `i` is the `i`-th port of its average.
type Local = u32;

/// Backtracking search, one micro-operation after the other.
struct MicroOpSearch {
    known: Vec<Local>,
    all: Vec<Local>,
    found: Vec<Vec<(Local, f64)>>,
    tries: usize,
}

impl MicroOpSearch {
    /// Sets of `average`, and whether they are certain.
    fn of(average: &[(usize, f64)], taken: &[(usize, f64)], known: &BTreeSet<Set>) -> (Sets, bool) {
        let all_cycles = cycles_of(average);
        // Other cycles than the table's: the simulated micro-operations are not the table's.
        let differ = (all_cycles - cycles_of(taken)).abs() > NEAR * all_cycles;
        if differ || average.len() > MOST_PORTS {
            return (one_set(average).into_iter().collect(), average.len() <= 1);
        }
        // A single port needs no evidence from other instructions.
        let singles = (0..average.len()).map(|at| 1 << at);
        let known = known.iter().filter_map(|set| local(average, set));
        let known: BTreeSet<Local> = known.chain(singles).collect();
        let all = (1..1 << average.len()).filter(|set| !known.contains(set)).collect();
        let mut search =
            Self { known: known.into_iter().collect(), all, found: Vec::new(), tries: 0 };
        let taken = taken.iter().map(|(port, cycles)| Some((place(average, *port)?, *cycles)));
        let taken: Option<Vec<(usize, f64)>> = taken.collect();
        let left: Vec<f64> = average.iter().map(|(_, cycles)| *cycles).collect();
        let complete = taken.is_some_and(|taken| search.run(&left, &taken));
        match &search.found[..] {
            [only] if complete => {
                (only.iter().map(|(set, cycles)| (global(average, *set), *cycles)).collect(), true)
            }
            [] => (one_set(average).into_iter().collect(), false),
            _ if !complete => (one_set(average).into_iter().collect(), false),
            answers => {
                let joined = joined(answers, average.len()).into_iter();
                (joined.map(|set| (global(average, set), sum_of(&left, set))).collect(), false)
            }
        }
    }

    /// Finds all answers with the fewest unknown sets; returns whether the search was complete.
    fn run(&mut self, average: &[f64], taken: &[(usize, f64)]) -> bool {
        for unknown in 0..=taken.len() {
            self.go(&mut average.to_vec(), taken, &mut Vec::new(), unknown);
            // Answers with more unknown sets are less likely, so they are not searched.
            if self.full() || !self.found.is_empty() {
                break;
            }
        }
        !self.full()
    }

    fn full(&self) -> bool {
        self.tries >= MOST_TRIES || self.found.len() >= MOST_ANSWERS
    }

    fn go(
        &mut self,
        left: &mut [f64],
        taken: &[(usize, f64)],
        chosen: &mut Vec<(Local, f64)>,
        unknown: usize,
    ) {
        let Some(((port, cycles), rest)) = taken.split_first() else {
            self.end(left, chosen);
            return;
        };
        let most = if unknown > 0 { self.all.len() } else { 0 };
        for at in 0..self.known.len() + most {
            self.tries += 1;
            if self.full() {
                return;
            }
            let is_known = at < self.known.len();
            let set = if is_known { self.known[at] } else { self.all[at - self.known.len()] };
            let share = cycles / f64::from(set.count_ones());
            // LLVM adds up the cycles that an instruction takes of one set, so no set comes twice.
            let again = chosen.iter().any(|(other, _)| *other == set);
            if set >> port & 1 == 0 || again || !fits(left, set, share) {
                continue;
            }
            take(left, set, share);
            chosen.push((set, *cycles));
            self.go(left, rest, chosen, unknown - usize::from(!is_known));
            chosen.pop();
            take(left, set, -share);
        }
    }

    /// Records an answer. Micro-operations of equal length are interchangeable, so answers are
    /// sorted and compared.
    fn end(&mut self, left: &[f64], chosen: &[(Local, f64)]) {
        if left.iter().any(|cycles| cycles.abs() > NEAR) {
            return;
        }
        let mut answer = chosen.to_vec();
        answer.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        if !self.found.contains(&answer) {
            self.found.push(answer);
        }
    }
}

/// Finest partition of the ports such that no set of any answer spans two parts.
fn joined(answers: &[Vec<(Local, f64)>], ports: usize) -> Vec<Local> {
    let mut parts: Vec<Local> = (0..ports).map(|at| 1 << at).collect();
    for (set, _) in answers.iter().flatten() {
        let (touched, mut kept): (Vec<Local>, Vec<Local>) =
            parts.iter().partition(|part| *part & set != 0);
        kept.push(touched.iter().fold(0, |all, part| all | part));
        parts = kept;
    }
    parts
}

fn fits(left: &[f64], set: Local, share: f64) -> bool {
    left.iter().enumerate().all(|(at, cycles)| set >> at & 1 == 0 || *cycles > share - NEAR)
}

fn take(left: &mut [f64], set: Local, share: f64) {
    for (_, cycles) in left.iter_mut().enumerate().filter(|(at, _)| set >> at & 1 == 1) {
        *cycles -= share;
    }
}

fn sum_of(cycles: &[f64], set: Local) -> f64 {
    sum(cycles.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, cycles)| *cycles))
}

fn cycles_of(average: &[(usize, f64)]) -> f64 {
    sum(average.iter().map(|(_, cycles)| *cycles))
}

/// Index of `port` in `average`.
fn place(average: &[(usize, f64)], port: usize) -> Option<usize> {
    average.iter().position(|(other, _)| *other == port)
}

/// `set` as bits; `None` if `average` lacks one of the ports.
fn local(average: &[(usize, f64)], set: &Set) -> Option<Local> {
    set.iter().try_fold(0, |bits, port| Some(bits | 1 << place(average, *port)?))
}

/// `set` as port numbers.
fn global(average: &[(usize, f64)], set: Local) -> Set {
    let inside = average.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
    inside.map(|(_, (port, _))| *port).collect()
}
/// Sum of `cycles`, 0 if empty (an empty `sum()` of floats is -0).
fn sum(cycles: impl Iterator<Item = f64>) -> f64 {
    cycles.fold(0.0, |sum, cycles| sum + cycles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ports 0 to 7 of one unit each, and 8, 9, which are two units of one resource.
    fn ports() -> Ports {
        Ports { resource: vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 8] }
    }

    /// What the table says of an instruction that takes `sets`.
    fn average(sets: &[(&[usize], f64)]) -> Vec<(usize, f64)> {
        let of = |port: usize| {
            let with = sets.iter().filter(|(set, _)| set.contains(&port));
            with.map(|(set, cycles)| cycles / set.len() as f64).fold(0.0, |sum, share| sum + share)
        };
        (0..10).map(|port| (port, of(port))).filter(|(_, cycles)| *cycles > 0.0).collect()
    }

    fn uses(sets: &[(&[usize], f64)], taken: &[(usize, f64)], known: &[&[usize]]) -> Uses {
        let known = known.iter().map(|set| set.to_vec()).collect();
        apart(&ports(), &average(sets), taken, &known)
    }

    fn certain(sets: &[(&[usize], f64)]) -> Uses {
        let sets = sets.iter().map(|(set, cycles)| (set.to_vec(), *cycles)).collect();
        Uses { sets, certain: true }
    }

    #[test]
    fn one_micro_operation() {
        let add: &[(&[usize], f64)] = &[(&[0, 1, 2, 3], 1.0)];
        assert_eq!(uses(add, &[(2, 1.0)], &[]), certain(add));
        let divide: &[(&[usize], f64)] = &[(&[4], 1.0), (&[5], 41.0)];
        assert_eq!(uses(divide, &[(4, 1.0), (5, 41.0)], &[]), certain(divide));
        assert_eq!(uses(add, &[], &[]), certain(&[]));
    }

    /// 0 has 1 + 1/2: one cycle of itself and one of the pair. The micro-operations that were seen
    /// exclude that it is 3/2 of something.
    #[test]
    fn a_set_within_another() {
        let nested: &[(&[usize], f64)] = &[(&[0], 1.0), (&[0, 1], 1.0)];
        assert_eq!(uses(nested, &[(0, 1.0), (1, 1.0)], &[]), certain(nested));
    }

    /// Half of four ports each, by two micro-operations on 0 and 3: {0,1} {2,3} and {0,2} {1,3} explain
    /// it. The sets of loads and of additions decide.
    #[test]
    fn doubt_becomes_one_set() {
        let load_add: &[(&[usize], f64)] = &[(&[0, 1], 1.0), (&[2, 3], 1.0)];
        let taken = [(0, 1.0), (3, 1.0)];
        let doubt = uses(load_add, &taken, &[]);
        assert_eq!(doubt, Uses { sets: vec![(vec![0, 1, 2, 3], 2.0)], certain: false });
        assert_eq!(uses(load_add, &taken, &[&[0, 1]]), certain(load_add));
    }

    /// The certain part stays apart from the doubtful one.
    #[test]
    fn doubt_keeps_to_its_ports() {
        let three: &[(&[usize], f64)] = &[(&[0, 1], 1.0), (&[2, 3], 1.0), (&[5], 1.0)];
        let found = uses(three, &[(0, 1.0), (3, 1.0), (5, 1.0)], &[]);
        let sets = vec![(vec![0, 1, 2, 3], 2.0), (vec![5], 1.0)];
        assert_eq!(found, Uses { sets, certain: false });
    }

    #[test]
    fn a_resource_of_two_units_is_a_set() {
        let load: &[(&[usize], f64)] = &[(&[0, 1], 1.0), (&[8, 9], 2.0)];
        assert_eq!(uses(load, &[(1, 1.0), (8, 2.0)], &[]), certain(load));
    }

    /// A table and a simulation that contradict each other prove nothing.
    #[test]
    fn other_cycles_than_the_table() {
        let add: &[(&[usize], f64)] = &[(&[0, 1], 1.0)];
        let found = uses(add, &[(0, 2.0)], &[]);
        assert_eq!(found, Uses { sets: vec![(vec![0, 1], 1.0)], certain: false });
    }
    /// Different sets of ports 0 to 7 with whole cycles, and for each a port that it took. No two take the
    /// same port: in a simulation of one instruction, later micro-operations find it taken.
    fn any_instruction() -> impl Strategy<Value = Vec<(Set, f64, usize)>> {
        let set = prop::collection::btree_set(0_usize..8, 1..=4);
        let one = (set, 1_u8..4, any::<prop::sample::Index>());
        prop::collection::vec(one, 1..4).prop_map(|all| {
            let mut kept: Vec<(Set, f64, usize)> = Vec::new();
            for (set, cycles, port) in all {
                let set: Set = set.into_iter().collect();
                let port = set[port.index(set.len())];
                if kept.iter().all(|(other, _, taken)| *other != set && *taken != port) {
                    kept.push((set, f64::from(cycles), port));
                }
            }
            kept
        })
    }

    fn shown(instruction: &[(Set, f64, usize)], known: &BTreeSet<Set>) -> Uses {
        let sets: Vec<(&[usize], f64)> =
            instruction.iter().map(|(set, cycles, _)| (&set[..], *cycles)).collect();
        let taken: Vec<(usize, f64)> =
            instruction.iter().map(|(_, cycles, port)| (*port, *cycles)).collect();
        apart(&ports(), &average(&sets), &taken, known)
    }

    proptest! {
        #[test]
        fn conserves(instruction in any_instruction()) {
            let found = shown(&instruction, &BTreeSet::new());
            let asked = sum(instruction.iter().map(|(_, cycles, _)| *cycles));
            prop_assert!((sum(found.sets.iter().map(|(_, cycles)| *cycles)) - asked).abs() < 1e-9);
            let ports: BTreeSet<usize> = found.sets.iter().flat_map(|(set, _)| set.clone()).collect();
            let used: BTreeSet<usize> = instruction.iter().flat_map(|(set, ..)| set.clone()).collect();
            prop_assert_eq!(ports, used);
        }

        /// Whatever is found: work within any ports is no more than the truth has there.
        #[test]
        fn known_sets_are_found_again(instruction in any_instruction()) {
            let known = instruction.iter().map(|(set, ..)| set.clone()).collect();
            let found = shown(&instruction, &known);
            for ports in 0_u32..256 {
                let inside = |set: &Set| set.iter().all(|port| ports >> port & 1 == 1);
                let claimed = sum(found.sets.iter().filter(|(s, _)| inside(s)).map(|(_, c)| *c));
                let truth = sum(instruction.iter().filter(|(s, ..)| inside(s)).map(|(_, c, _)| *c));
                prop_assert!(claimed < truth + 1e-9, "{:?}", found);
            }
        }
    }
}
