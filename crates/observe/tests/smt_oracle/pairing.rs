//! Eight loops on four cores, two each: which policy finds the pairs that the oracle would choose?

use crate::pairs::{Loop, predicted};
use colocate_model::overlap::{UnitDemand, mean_mix, scarcity};
use colocate_model::{Class, Mix, Share};

/// Loops of a workload.
pub const LOOPS: usize = 8;

/// Four pairs of places in a workload.
type Pairing = Vec<(usize, usize)>;

/// How pairs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The least sum of slowdowns that the model predicts.
    Model,
    /// The same with a divided window.
    ModelDivided,
    /// The least overlap of instruction mixes: what `mix` minimises.
    Mix,
    /// The same with mixes per cycle instead of per instruction: a slow loop asks for less.
    MixPerCycle,
    /// Most of the class that varies most with least of it: what `instruction` does.
    Instruction,
    /// Most floating-point with least, as in Serpa et al.
    FloatHeadTail,
    /// Most accesses to memory per cycle with least, as in Feliu et al.
    MemoryHeadTail,
    /// Highest with lowest rate of instructions.
    IpcHeadTail,
    /// Every pairing as likely as every other: also what a model without contention leads to, since it
    /// holds all for equal.
    Any,
}

impl Policy {
    pub const ALL: [Self; 9] = [
        Self::Model,
        Self::ModelDivided,
        Self::Mix,
        Self::MixPerCycle,
        Self::Instruction,
        Self::IpcHeadTail,
        Self::MemoryHeadTail,
        Self::FloatHeadTail,
        Self::Any,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::ModelDivided => "model, window divided",
            Self::Mix => "least overlap of mixes (`mix`)",
            Self::MixPerCycle => "the same, mixes per cycle",
            Self::Instruction => "most with least of one class (`instruction`)",
            Self::FloatHeadTail => "most with least floating-point (Serpa-like)",
            Self::MemoryHeadTail => "most with least memory accesses (Feliu-like)",
            Self::IpcHeadTail => "highest with lowest IPC",
            Self::Any => "no contention, any pairing",
        }
    }

    /// Mean slowdown under this policy, where `slowdowns` says what the oracle finds for each pair.
    fn cost(self, loops: &[&Loop], slowdowns: &[Vec<f64>]) -> f64 {
        let all = pairings();
        let by = |found: &dyn Fn(usize, usize) -> f64| -> f64 {
            let sum = |pairs: &Pairing| pairs.iter().map(|&(a, b)| found(a, b)).sum::<f64>();
            let best = all.iter().min_by(|x, y| sum(x).total_cmp(&sum(y))).expect("105 pairings");
            mean_slowdown(best, slowdowns)
        };
        let overlaps = demands(loops);
        match self {
            Self::Model => by(&|a, b| predicted(loops[a], loops[b], false)),
            Self::ModelDivided => by(&|a, b| predicted(loops[a], loops[b], true)),
            Self::Mix => by(&|a, b| overlaps[a].overlap(&overlaps[b])),
            Self::MixPerCycle => by(&|a, b| {
                overlaps[a].overlap(&overlaps[b])
                    / (loops[a].figures.cycles * loops[b].figures.cycles)
            }),
            Self::Instruction => {
                let key = key(loops);
                mean_slowdown(&head_tail(loops, |one| one.share(key)), slowdowns)
            }
            Self::FloatHeadTail => {
                mean_slowdown(&head_tail(loops, |one| one.share(Class::Float as usize)), slowdowns)
            }
            Self::MemoryHeadTail => {
                let accesses =
                    |one: &Loop| one.share(Class::Load as usize) + one.share(Class::Store as usize);
                let rate = |one: &Loop| accesses(one) / one.figures.cycles;
                mean_slowdown(&head_tail(loops, rate), slowdowns)
            }
            Self::IpcHeadTail => {
                mean_slowdown(&head_tail(loops, |one| 1.0 / one.figures.cycles), slowdowns)
            }
            Self::Any => {
                all.iter().map(|pairs| mean_slowdown(pairs, slowdowns)).sum::<f64>()
                    / all.len() as f64
            }
        }
    }
}

/// What policies are worth over a number of workloads.
#[derive(Default)]
pub struct Gains {
    /// Mean slowdown of any pairing, and of the best, summed over workloads.
    any: f64,
    best: f64,
    policies: [f64; Policy::ALL.len()],
    /// Workloads in which a policy does worse than any pairing does on average.
    worse: [usize; Policy::ALL.len()],
    workloads: usize,
}

impl Gains {
    /// Counts one more workload.
    pub fn add(&mut self, loops: &[&Loop], slowdowns: &[Vec<f64>]) {
        let any = Policy::Any.cost(loops, slowdowns);
        let all = pairings();
        let best = all.iter().map(|pairs| mean_slowdown(pairs, slowdowns));
        self.any += any;
        self.best += best.fold(f64::INFINITY, f64::min);
        for (at, policy) in Policy::ALL.into_iter().enumerate() {
            let cost = policy.cost(loops, slowdowns);
            self.policies[at] += cost;
            self.worse[at] += usize::from(cost > any * (1.0 + 1e-9));
        }
        self.workloads += 1;
    }

    pub fn workloads(&self) -> usize {
        self.workloads
    }

    /// By how much the best pairing is better than any, as a part of the mean slowdown.
    pub fn oracle(&self) -> f64 {
        1.0 - self.best / self.any
    }

    /// What part of the oracle's gain a policy has; below 0 if it is worse than any pairing.
    pub fn captured(&self, policy: Policy) -> f64 {
        (self.any - self.policies[place(policy)]) / (self.any - self.best)
    }

    /// In how many workloads it is worse than any pairing is on average.
    pub fn worse(&self, policy: Policy) -> usize {
        self.worse[place(policy)]
    }
}

fn place(policy: Policy) -> usize {
    Policy::ALL.iter().position(|other| *other == policy).expect("ALL has all")
}

fn mean_slowdown(pairs: &Pairing, slowdowns: &[Vec<f64>]) -> f64 {
    pairs.iter().map(|&(a, b)| slowdowns[a][b]).sum::<f64>() / pairs.len() as f64
}

/// All ways to make pairs of eight.
fn pairings() -> Vec<Pairing> {
    fn go(left: &[usize], chosen: &mut Pairing, all: &mut Vec<Pairing>) {
        let Some((first, rest)) = left.split_first() else {
            all.push(chosen.clone());
            return;
        };
        for (at, second) in rest.iter().enumerate() {
            chosen.push((*first, *second));
            go(&[&rest[..at], &rest[at + 1..]].concat(), chosen, all);
            chosen.pop();
        }
    }
    let mut all = Vec::new();
    go(&(0..LOOPS).collect::<Vec<_>>(), &mut Vec::new(), &mut all);
    all
}

/// The first with the last, the second with the last but one … of the loops by `key`.
fn head_tail(loops: &[&Loop], key: impl Fn(&Loop) -> f64) -> Pairing {
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by(|&a, &b| key(loops[a]).total_cmp(&key(loops[b])));
    (0..loops.len() / 2).map(|at| (order[at], order[loops.len() - 1 - at])).collect()
}

/// The class whose share varies most, weighted by how scarce its units are.
fn key(loops: &[&Loop]) -> usize {
    let weight = |class: Class| {
        let shares: Vec<f64> = loops.iter().map(|one| one.share(class as usize)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        scarcity(class) * shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>()
    };
    let key = Class::ALL.into_iter().max_by(|&a, &b| weight(a).total_cmp(&weight(b)));
    key.expect("five classes") as usize
}

fn demands(loops: &[&Loop]) -> Vec<UnitDemand> {
    let mix = |one: &&Loop| {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, Share::new(one.share(class as usize).min(1.0)));
        }
        mix
    };
    let mixes: Vec<Mix> = loops.iter().map(mix).collect();
    let mean = mean_mix(&mixes);
    mixes.iter().map(|mix| UnitDemand::of(mix, 1.0, &mean)).collect()
}

#[test]
fn there_are_105_pairings() {
    let all = pairings();
    assert_eq!(all.len(), 7 * 5 * 3);
    let each = |pairs: &Pairing| {
        let mut places: Vec<usize> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
        places.sort_unstable();
        places
    };
    assert!(all.iter().all(|pairs| each(pairs) == (0..LOOPS).collect::<Vec<_>>()));
}
