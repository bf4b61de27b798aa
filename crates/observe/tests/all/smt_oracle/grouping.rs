//! Loops on cores of two or four siblings: which policy finds the groups that the oracle would choose?

use super::placing;
use super::together::{Loop, Oracle, predicted};
use colocate_model::Class;
use std::collections::HashMap;

/// Groups of places in a workload, one a core.
type Groups = Vec<Vec<usize>>;

/// How groups are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// colocate's `symbiosis-model`.
    Symbiosis,
    /// The least sum of slowdowns that the model predicts, of all ways to make groups.
    Model,
    /// The same with a divided window.
    ModelDivided,
    /// colocate's `mix`, of which no rate is known.
    Mix,
    /// colocate's `mix`, with known rates.
    MixWithRates,
    /// colocate's `instruction`.
    Instruction,
    /// Most floating-point with least, as in Serpa et al.
    FloatHeadTail,
    /// Most accesses to memory per cycle with least, as in Feliu et al.
    MemoryHeadTail,
    /// Highest with lowest rate of instructions.
    IpcHeadTail,
    /// Every way as likely as every other: `random`, and also what a model without contention leads to,
    /// since it holds all for equal.
    Any,
}

impl Policy {
    pub const ALL: [Self; 10] = [
        Self::Symbiosis,
        Self::Model,
        Self::ModelDivided,
        Self::MixWithRates,
        Self::Mix,
        Self::Instruction,
        Self::IpcHeadTail,
        Self::MemoryHeadTail,
        Self::FloatHeadTail,
        Self::Any,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Symbiosis => "`symbiosis-model`",
            Self::Model => "best by the model",
            Self::ModelDivided => "best by the model, window divided",
            Self::MixWithRates => "`mix`, rates known",
            Self::Mix => "`mix`, rates unknown",
            Self::Instruction => "`instruction`",
            Self::FloatHeadTail => "most with least floating-point (Serpa-like)",
            Self::MemoryHeadTail => "most with least memory accesses (Feliu-like)",
            Self::IpcHeadTail => "highest with lowest IPC",
            Self::Any => "`random`, no contention",
        }
    }

    /// Whether it is another way than by the model's word.
    pub const fn is_rival(self) -> bool {
        !matches!(self, Self::Symbiosis | Self::Model | Self::ModelDivided)
    }

    /// Mean slowdown under this policy.
    fn cost(self, cpu: &str, found: &Workload<'_>) -> f64 {
        let Workload { loops, siblings, .. } = found;
        let best = |divided| {
            let of = |group: &[usize]| predicted(&found.members(group), divided);
            found.mean(&found.best(&found.table(of)))
        };
        let placed =
            |policy, rates| found.mean(&placing::groups(policy, cpu, loops, *siblings, rates));
        let dealt = |key: &dyn Fn(&Loop) -> f64| found.mean(&serpentine(loops, *siblings, key));
        let accesses =
            |one: &Loop| one.share(Class::Load as usize) + one.share(Class::Store as usize);
        match self {
            Self::Symbiosis => placed("symbiosis-model", false),
            Self::Model => best(false),
            Self::ModelDivided => best(true),
            Self::MixWithRates => placed("mix", true),
            Self::Mix => placed("mix", false),
            Self::Instruction => placed("instruction", false),
            Self::FloatHeadTail => dealt(&|one| one.share(Class::Float as usize)),
            Self::MemoryHeadTail => dealt(&|one| accesses(one) / one.figures.cycles),
            Self::IpcHeadTail => dealt(&|one| 1.0 / one.figures.cycles),
            Self::Any => {
                let costs = found.all.iter().map(|groups| found.mean(groups));
                costs.sum::<f64>() / found.all.len() as f64
            }
        }
    }
}

/// What a group costs, by its members as bits.
type Table = HashMap<u32, f64>;

/// Loops on cores, with what the oracle finds for every group that there can be.
pub struct Workload<'a> {
    loops: Vec<&'a Loop>,
    siblings: usize,
    all: Vec<Groups>,
    slowdowns: Table,
}

impl<'a> Workload<'a> {
    pub fn new(oracle: &Oracle, loops: Vec<&'a Loop>, siblings: usize) -> Self {
        let all = groupings(loops.len(), siblings);
        let mut new = Self { loops, siblings, all, slowdowns: Table::new() };
        let possible = new.possible();
        let members: Vec<Vec<&Loop>> = possible.iter().map(|group| new.members(group)).collect();
        let found = oracle.slowdowns(&members);
        new.slowdowns = possible.iter().map(|group| bits(group)).zip(found).collect();
        new
    }

    /// All groups that there can be on a core.
    fn possible(&self) -> Vec<Vec<usize>> {
        let with_first = |groups: &Groups| groups.clone();
        let mut all: Vec<Vec<usize>> = self.all.iter().flat_map(with_first).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn members(&self, group: &[usize]) -> Vec<&'a Loop> {
        group.iter().map(|&at| self.loops[at]).collect()
    }

    fn table(&self, cost: impl Fn(&[usize]) -> f64) -> Table {
        self.possible().iter().map(|group| (bits(group), cost(group))).collect()
    }

    /// The groups that cost least.
    fn best(&self, by: &Table) -> Groups {
        let cost = |groups: &Groups| groups.iter().map(|group| by[&bits(group)]).sum::<f64>();
        let best = self.all.iter().min_by(|x, y| cost(x).total_cmp(&cost(y)));
        best.expect("there is a way to make groups").clone()
    }

    /// The mean slowdown that the oracle finds.
    fn mean(&self, groups: &Groups) -> f64 {
        let slowdowns = groups.iter().map(|group| self.slowdowns[&bits(group)]);
        slowdowns.sum::<f64>() / groups.len() as f64
    }
}

/// What policies are worth over a number of workloads.
#[derive(Default)]
pub struct Gains {
    /// Mean slowdown of any groups, and of the best, summed over workloads.
    any: f64,
    best: f64,
    policies: [f64; Policy::ALL.len()],
    /// Workloads in which a policy does worse than any groups do on average.
    worse: [usize; Policy::ALL.len()],
    /// Workloads in which `symbiosis-model` does worse than a policy.
    beaten: [usize; Policy::ALL.len()],
    workloads: usize,
}

impl Gains {
    /// Counts one more workload.
    pub fn add(&mut self, cpu: &str, found: &Workload<'_>) {
        let costs = Policy::ALL.map(|policy| policy.cost(cpu, found));
        let (any, symbiosis) = (costs[place(Policy::Any)], costs[place(Policy::Symbiosis)]);
        self.any += any;
        self.best += found.mean(&found.best(&found.slowdowns));
        for (at, cost) in costs.into_iter().enumerate() {
            self.policies[at] += cost;
            self.worse[at] += usize::from(cost > any * (1.0 + 1e-9));
            self.beaten[at] += usize::from(symbiosis > cost * (1.0 + 1e-9));
        }
        self.workloads += 1;
    }

    pub fn workloads(&self) -> usize {
        self.workloads
    }

    /// By how much the best groups are better than any, as a part of the mean slowdown.
    pub fn oracle(&self) -> f64 {
        1.0 - self.best / self.any
    }

    /// What part of the oracle's gain a policy has; below 0 if it is worse than any groups.
    pub fn captured(&self, policy: Policy) -> f64 {
        (self.any - self.policies[place(policy)]) / (self.any - self.best)
    }

    /// In how many workloads it is worse than any groups are on average.
    pub fn worse(&self, policy: Policy) -> usize {
        self.worse[place(policy)]
    }

    /// In how many workloads `symbiosis-model` is worse than it.
    pub fn beaten(&self, policy: Policy) -> usize {
        self.beaten[place(policy)]
    }
}

fn place(policy: Policy) -> usize {
    Policy::ALL.iter().position(|other| *other == policy).expect("ALL has all")
}

fn bits(group: &[usize]) -> u32 {
    group.iter().fold(0, |bits, at| bits | 1 << at)
}

/// All ways to make groups of `size` of `count` places.
fn groupings(count: usize, size: usize) -> Vec<Groups> {
    /// Adds to the last of `chosen`, which is not full, each of `left` in turn.
    fn go(left: &[usize], size: usize, chosen: &mut Groups, all: &mut Vec<Groups>) {
        if left.is_empty() {
            all.push(chosen.clone());
            return;
        }
        let full = chosen.last().is_none_or(|group| group.len() == size);
        if full {
            // The first that is left begins the next group, so that no way is made twice.
            chosen.push(vec![left[0]]);
            go(&left[1..], size, chosen, all);
            chosen.pop();
            return;
        }
        let group = chosen.len() - 1;
        let last = chosen[group].last().copied().unwrap_or_default();
        for (at, &next) in left.iter().enumerate().filter(|&(_, &next)| next > last) {
            chosen[group].push(next);
            go(&[&left[..at], &left[at + 1..]].concat(), size, chosen, all);
            chosen[group].pop();
        }
    }
    let mut all = Vec::new();
    go(&(0..count).collect::<Vec<_>>(), size, &mut Vec::new(), &mut all);
    all
}

/// Loops in the order of `key`, dealt to cores forth and back: of pairs, the first with the last, the
/// second with the last but one …
fn serpentine(loops: &[&Loop], siblings: usize, key: impl Fn(&Loop) -> f64) -> Groups {
    let cores = loops.len() / siblings;
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by(|&a, &b| key(loops[a]).total_cmp(&key(loops[b])));
    let mut groups = vec![Vec::new(); cores];
    for (at, one) in order.into_iter().enumerate() {
        let (round, core) = (at / cores, at % cores);
        groups[if round % 2 == 0 { core } else { cores - 1 - core }].push(one);
    }
    groups
}

#[test]
fn all_ways_to_make_groups() {
    let each = |groups: &Groups| {
        let mut places = groups.concat();
        places.sort_unstable();
        places
    };
    // 8! / (2!^4 4!), 8! / (4!^2 2!), 12! / (4!^3 3!)
    for (count, size, ways) in [(8, 2, 105), (8, 4, 35), (12, 4, 5775)] {
        let all = groupings(count, size);
        assert_eq!(all.len(), ways);
        assert!(all.iter().all(|groups| groups.iter().all(|group| group.len() == size)));
        assert!(all.iter().all(|groups| each(groups) == (0..count).collect::<Vec<_>>()));
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), ways);
    }
}
