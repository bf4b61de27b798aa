//! `oracle`: the best placement by the contention model. For comparison only.
//!
//! # Problem
//! The distance of a scheduler from the optimum shows only beside a scheduler with full knowledge.
//! # Approach
//! The oracle gets the demand of each job ([`Phase`]) and the performance of the machine, which are
//! unknown for a real program. It tries all placements with the simulator's model. It chooses
//! places, not jobs.
//! # Terms
//! - *STP*: sum over all threads of the rate in a placement over the rate alone on the same core.
//! - *Alike* placements: placements that differ only in the choice among empty, equal cores.
//! # Algorithm
//! 1. Selection as `symbiotic`: all, or in the order of the queue.
//! 2. Up to [`EXHAUSTIVE`] threads: one after the other onto every core with room; of empty, alike
//!    cores only the first. The result is the placement with the greatest STP, if better by
//!    [`GAIN`] than the present one. Cores are alike by the caches, nodes and packages around them
//!    and the threads there.
//! 3. Up to [`BOUNDED`] threads, or more than [`MOST`] placements of fewer: branch and bound, from
//!    the groups of step 4. [`Plan::state`] has the greatest possible distance from the optimum.
//! 4. More threads: groups by matching, as the policy `symbiosis-model`, with the model's
//!    prediction for one core. Optimal for two siblings within a core and up to 128 places, without
//!    caches or nodes beyond.
//!
//! The same threads on the same PUs are not searched for again, until [`KEPT`] others have been. A
//! job has one demand here, so the oracle is none for jobs whose demand changes with time.
//! # Properties
//! - **Best** of all placements by brute force. -> test `best_by_brute_force`
//! - **Never worse than staying**, by the model. -> test `never_worse_than_staying`
//! - **Falls back** where there are too many threads, and says so. -> test `falls_back`
//! - **Bounded**: what is kept does not grow for ever. -> test `keeps_no_more_than_it_may`
//! - **Says how far** it may be from the best where not all is tried. -> test `as_good_as_all`

mod branch;

use super::allocate::{grouped, seated};
use super::symbiotic::groups::{CoreGroups, staying};
use super::{Allocated, Quantum, Scheduler, SelectedJob, Thread, select};
use crate::evidence::Evidence;
use crate::judge::SlowdownPredictor;
use crate::matching;
use crate::places::UsableMachine;
use crate::plan::{Plan, Task};
use crate::row::{PolicyRow, Prior, Purpose};
use colocate_evidence::{SourceSet, TaskId};
use colocate_machine::{CoreIdx, Machine, Performance, PuIdx, PuNr};
use colocate_model::phase::Demand;
use colocate_model::system::{Model, PlacedTask, Solver};
use colocate_model::{Assumptions, Mix, Phase};
use std::collections::{BTreeMap, BTreeSet};

pub static ROW: PolicyRow = PolicyRow {
    name: "oracle",
    purpose: Purpose::Simulated,
    summary: "tries all placements with the contention model, for comparison",
    source: "a baseline of ours",
    prior: &[Prior::Speeds, Prior::Demands],
    make: |_, known| Box::new(Oracle::new(known.performance.cloned(), known.demands.to_vec())),
    ..PolicyRow::EACH_QUANTUM
};

/// Most threads for which all placements are tried. Chosen: eight threads on equal cores of two PUs
/// have 764 placements, each a tenth of a millisecond.
pub(crate) const EXHAUSTIVE: usize = 8;
/// Most placements tried. Chosen: some seconds.
pub const MOST: usize = 20_000;

/// Most threads for branch and bound. Chosen: with more it proves next to nothing in its time.
pub(crate) const BOUNDED: usize = 12;

/// Least gain for which a thread moves, as a share: ten times the error of the model's search. A
/// scheduler that estimates needs more; the oracle shows the possible.
pub const GAIN: f64 = 0.001;

/// Most placements kept. Chosen: more than a workload of few threads needs, and some hundred KiB.
/// Jobs with new or newly sleeping threads add placements every quantum.
pub const KEPT: usize = 1_000;

/// Most groups with a kept loss. Chosen: some MiB.
const MOST_LOSSES: usize = 50_000;

/// Threads and usable PUs. PUs by the kernel's number, which stays when other PUs go offline.
type ThreadsAndPus = (Vec<TaskId>, Vec<PuNr>);

/// Scheduler of `oracle`.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    performance: Option<Performance>,
    /// By job; all threads of a job have its demand.
    demands: Vec<Phase>,
    /// By threads and PUs: the groups found, by usable core.
    found: BTreeMap<ThreadsAndPus, CoreGroups>,
    /// Last input, the present groups then, and the result: most quanta repeat the quantum before.
    last: Option<(ThreadsAndPus, CoreGroups, CoreGroups)>,
    losses: Losses,
    searches: Searches,
}

/// By jobs of the threads, sorted: loss of a group on one core, for the matching.
type Losses = BTreeMap<Vec<u32>, f64>;

/// Number of searches by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Searches {
    /// All placements tried.
    all: u64,
    /// Branch and bound.
    bounded: u64,
    /// Greatest gap of branch and bound, as a share of STP.
    gap: f64,
    /// Matched only.
    matched: u64,
}

impl Oracle {
    /// An oracle with the demands of each job. Without `performance` no thread moves.
    pub fn new(performance: Option<Performance>, demands: Vec<Phase>) -> Self {
        Self { performance, demands, ..Self::default() }
    }

    /// Groups by usable core: the best, or the present ones if the best gains too little.
    fn groups(&mut self, places: &UsableMachine<'_>, threads: &[&Thread]) -> CoreGroups {
        let stay = staying(places, threads);
        let Some(performance) = &self.performance else { return stay };
        let pus = places.pus.iter().map(|pu| places.machine.pus[pu.idx()].os).collect();
        let key: ThreadsAndPus = (threads.iter().map(|thread| thread.id).collect(), pus);
        // Before the judge is built: most quanta repeat the one before.
        if let Some((asked, before, found)) = &self.last
            && (asked, before) == (&key, &stay)
        {
            return found.clone();
        }
        let Some(judge) = Whole::new(places, performance, &self.demands, threads) else {
            return stay;
        };
        let best = match self.found.get(&key) {
            Some(best) => best.clone(),
            None => {
                let best = self.searches.best(&judge, &stay, || {
                    matched(places, performance, &self.demands, threads, &mut self.losses)
                });
                if self.found.len() >= KEPT {
                    // All at once: no order of use is kept.
                    self.found.clear();
                }
                self.found.insert(key.clone(), best.clone());
                best
            }
        };
        let moves = judge.stp(&best) > judge.stp(&stay) * (1.0 + GAIN);
        let found = if moves { best } else { stay.clone() };
        self.last = Some((key, stay, found.clone()));
        found
    }

    /// Summary of the work so far.
    fn state(&self) -> String {
        if self.performance.is_none() {
            return "nothing is known of the machine's speed: no thread moves".to_owned();
        }
        let Searches { all, bounded, gap, matched } = self.searches;
        let gap = gap * 100.0;
        let bounded = match bounded {
            0 => String::new(),
            times => format!(" or bounded {times} times, at most {gap:.2} % below the best"),
        };
        format!(
            "all placements were tried {all} times{bounded}; for too many threads they were matched, {matched} times"
        )
    }
}

impl Searches {
    /// Groups by steps 2 to 4. `matched` makes the groups of step 4.
    fn best(
        &mut self,
        judge: &Whole<'_>,
        stay: &CoreGroups,
        matched: impl FnOnce() -> Option<CoreGroups>,
    ) -> CoreGroups {
        let threads = judge.demands.len();
        // Few threads with too many placements go on below.
        if let Some(best) = (threads <= EXHAUSTIVE).then(|| judge.best()).flatten() {
            self.all += 1;
            return best;
        }
        // Without a matching, as on unequal cores, the present groups are the start.
        let start = matched().unwrap_or_else(|| stay.clone());
        if threads > BOUNDED {
            self.matched += 1;
            return start;
        }
        // Branch and bound only improves on its start, so start from the better one.
        let start = if judge.stp(stay) > judge.stp(&start) { stay.clone() } else { start };
        let (groups, gap) = branch::best(judge, start, branch::NODES);
        self.bounded += 1;
        self.gap = self.gap.max(gap);
        groups
    }
}

impl Scheduler for Oracle {
    const NEEDS: SourceSet = SourceSet::NONE;

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        let places = UsableMachine::new(now.machine, now.pus);
        // A group stays on the core for which it was found, since cores differ by their surroundings.
        let place = |it: &[&Thread]| {
            let orders = places.cores.iter().map(|core| &core.pus[..]);
            grouped(it, self.groups(&places, it).iter().zip(orders))
        };
        seated(now, select::all_or_first(now), place, |_| Allocated::Next)
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.state = Some(self.state());
    }
}

/// Groups by matching, as `symbiosis-model`; `None` without input or if cores differ in PUs.
fn matched(
    places: &UsableMachine<'_>,
    performance: &Performance,
    demands: &[Phase],
    threads: &[&Thread],
    losses: &mut Losses,
) -> Option<CoreGroups> {
    let tasks = threads.iter().map(|Thread { id, .. }| {
        let phase = demands.get(id.job.0 as usize).cloned();
        let (name, mix) = (String::new(), Mix::default());
        Task { id: *id, name, mix, busy: None, ipc: None, instructions: None, phase }
    });
    let tasks: Vec<Task> = tasks.collect();
    let tasks: Vec<&Task> = tasks.iter().collect();
    // Matching takes one core for all, so all must have as many PUs.
    let mut judge =
        places.is_even().then(|| SlowdownPredictor::new(places, performance, &tasks)).flatten()?;
    let cores = places.cores.len();
    Some(matching::in_groups(threads.len(), cores, places.width(), |group| {
        // Threads of one job are alike, so the jobs identify the loss.
        let mut jobs: Vec<u32> = group.iter().map(|&at| threads[at].id.job.0).collect();
        jobs.sort_unstable();
        if let Some(&loss) = losses.get(&jobs) {
            return loss;
        }
        if losses.len() >= MOST_LOSSES {
            // All at once, as for `found`.
            losses.clear();
        }
        let loss = judge.loss(group);
        losses.insert(jobs, loss);
        loss
    }))
}

/// Judge of whole placements.
struct Whole<'a> {
    places: &'a UsableMachine<'a>,
    model: Model<'a>,
    /// By thread and kind of core: demand.
    demands: Vec<Vec<Demand>>,
    /// By thread and kind of core: instructions per second alone.
    alone: Vec<Vec<f64>>,
    /// By thread: address space, its job.
    spaces: Vec<u32>,
}

impl<'a> Whole<'a> {
    /// A judge of these threads; `None` if the machine or a demand cannot be modelled.
    fn new(
        places: &'a UsableMachine<'a>,
        performance: &'a Performance,
        phases: &[Phase],
        threads: &[&Thread],
    ) -> Option<Self> {
        let machine = places.machine;
        let assumptions = Assumptions::default();
        let model = Model::new(machine, performance, assumptions).ok()?;
        let demands = threads.iter().map(|thread| -> Option<Vec<Demand>> {
            let phase = phases.get(thread.id.job.0 as usize)?;
            let kinds = performance.kinds.iter();
            kinds.map(|kind| Some(phase.on(kind, &assumptions.guesses).ok()?.demand)).collect()
        });
        let demands: Vec<Vec<Demand>> = demands.collect::<Option<_>>()?;
        let first_of_kind: Vec<Option<PuIdx>> = (0..performance.kinds.len())
            .map(|kind| machine.cores.iter().find(|core| core.kind.idx() == kind))
            .map(|core| core.map(|core| core.pus[0]))
            .collect();
        let alone = demands.iter().map(|of_kind| {
            let rates = first_of_kind.iter().zip(of_kind).map(|(pu, demand)| {
                // No thread runs on a kind without cores, so any rate will do.
                let Some(pu) = *pu else { return 1.0 };
                let seat = PlacedTask { pu, demand, pages: &[], space: 0 };
                model.alone(&seat).instructions_per_second
            });
            rates.collect()
        });
        let alone = alone.collect();
        let spaces = threads.iter().map(|thread| thread.id.job.0).collect();
        Some(Self { places, model, demands, alone, spaces })
    }

    /// STP: sum of all threads' rates over their rates alone.
    fn stp(&self, groups: &[Vec<usize>]) -> f64 {
        self.ratios(groups).into_iter().fold(0.0, |sum, (_, ratio)| sum + ratio)
    }

    /// By thread with a place: its rate over its rate alone.
    fn ratios(&self, groups: &[Vec<usize>]) -> Vec<(usize, f64)> {
        let mut seated = Vec::new();
        for (core, group) in self.places.cores.iter().zip(groups) {
            seated.extend(group.iter().zip(&core.pus).map(|(&at, &pu)| (at, pu, core.kind.idx())));
        }
        let seats = seated.iter().map(|&(at, pu, kind)| {
            let demand = &self.demands[at][kind];
            PlacedTask { pu, demand, pages: &[], space: self.spaces[at] }
        });
        let seats: Vec<PlacedTask<'_>> = seats.collect();
        let found = Solver::new(&self.model).predict(&seats);
        let each = seated.iter().zip(&found.tasks);
        each.map(|(&(at, _, kind), task)| (at, task.instructions_per_second / self.alone[at][kind]))
            .collect()
    }

    /// The best of all placements; `None` for more than [`MOST`] placements.
    fn best(&self) -> Option<Vec<Vec<usize>>> {
        let mut all = Vec::new();
        let mut groups = vec![Vec::new(); self.places.cores.len()];
        // Counted before any is judged: judging is the slow part.
        self.each(0, &mut groups, &mut all).then_some(())?;
        let mut best: Option<(f64, Vec<Vec<usize>>)> = None;
        for groups in all {
            let stp = self.stp(&groups);
            // Of equal placements the first stays.
            if best.as_ref().is_none_or(|(most, _)| stp > *most) {
                best = Some((stp, groups));
            }
        }
        best.map(|(_, groups)| groups)
    }

    /// Adds every placement of the threads from `at` on. False after more than [`MOST`].
    fn each(
        &self,
        at: usize,
        groups: &mut Vec<Vec<usize>>,
        all: &mut Vec<Vec<Vec<usize>>>,
    ) -> bool {
        if at == self.demands.len() {
            all.push(groups.clone());
            return all.len() <= MOST;
        }
        for core in self.free(groups) {
            groups[core].push(at);
            let few = self.each(at + 1, groups, all);
            groups[core].pop();
            if !few {
                return false;
            }
        }
        true
    }

    /// Cores with room. Alike empty cores give alike placements, so only the first is among them.
    fn free(&self, groups: &[Vec<usize>]) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let cores =
            (0..groups.len()).filter(|&at| groups[at].len() < self.places.cores[at].pus.len());
        let is_new =
            |&at: &usize| !groups[at].is_empty() || seen.insert(self.surroundings(at, groups));
        cores.filter(is_new).collect()
    }

    /// Characteristics of an empty core: its kind and room, and for every cache, node and package
    /// around it the size, the rooms of its usable cores and the threads there. Equal cores are
    /// alike.
    fn surroundings(&self, core: usize, groups: &[Vec<usize>]) -> Vec<(usize, Vec<usize>)> {
        let machine = self.places.machine;
        let cores = &self.places.cores;
        let mine = &cores[core];
        let mut around = vec![(mine.kind.idx(), vec![mine.pus.len()])];
        for domain in domains(machine, mine.core) {
            let inside: Vec<usize> =
                (0..cores.len()).filter(|&at| domain.contains(&cores[at].core)).collect();
            let there: Vec<usize> = inside.iter().flat_map(|&at| groups[at].clone()).collect();
            let rooms = inside.iter().map(|&at| cores[at].pus.len()).collect();
            around.extend([(domain.len(), rooms), (there.len(), there)]);
        }
        around
    }
}

/// The cores under each cache of a core, nearest first, then those of its node and its package.
fn domains(machine: &Machine, core: CoreIdx) -> Vec<BTreeSet<CoreIdx>> {
    let first = machine.cores[core.idx()].pus[0];
    let caches = machine.caches.iter().filter(|cache| cache.pus.contains(&first));
    let mut domains: Vec<BTreeSet<CoreIdx>> =
        caches.map(|cache| cache.pus.iter().map(|&pu| machine.core_of(pu)).collect()).collect();
    let mine = &machine.cores[core.idx()];
    let all = machine.cores.iter().enumerate().map(|(at, core)| (CoreIdx::new(at), core));
    let of_node = all.clone().filter(|(_, core)| core.node == mine.node);
    domains.push(of_node.map(|(at, _)| at).collect());
    let of_package = all.filter(|(_, core)| core.package == mine.package);
    domains.push(of_package.map(|(at, _)| at).collect());
    domains
}

#[cfg(test)]
mod tests {
    use super::super::testing::queue;
    use super::*;
    use crate::rng::SplitMix64;
    use colocate_machine::described;
    use colocate_machine::performance::WorkKind;
    use colocate_model::phase::{Known, PortWork};

    fn known(name: &str) -> (Machine, Performance) {
        let (_, text) = described::MACHINES.into_iter().find(|(known, _)| *known == name).unwrap();
        let exact = described::from_toml(text).unwrap();
        (exact.machine, exact.performance.unwrap())
    }

    fn demands(seed: u64, count: usize) -> Vec<Phase> {
        let mut rng = SplitMix64::new(seed);
        let kinds = [WorkKind::Int, WorkKind::IntMul, WorkKind::FloatAdd, WorkKind::Load];
        let mut phase = |_| {
            let kind = kinds[rng.below(kinds.len())];
            let other = kinds[rng.below(kinds.len())];
            let part = rng.unit();
            let work = if kind == other {
                vec![(kind, 1.0)]
            } else {
                vec![(kind, part), (other, 1.0 - part)]
            };
            Phase { work: Known::new(PortWork::Kinds(work), "drawn"), ..Phase::default() }
        };
        (0..count).map(&mut phase).collect()
    }

    fn cores(machine: &Machine, count: usize) -> Vec<PuIdx> {
        machine.cores[..count].iter().flat_map(|core| core.pus.clone()).collect()
    }

    /// Every function from threads to cores with room.
    fn brute(judge: &Whole<'_>, at: usize, groups: &mut Vec<Vec<usize>>) -> f64 {
        if at == judge.demands.len() {
            return judge.stp(groups);
        }
        let mut best = 0.0_f64;
        for core in 0..groups.len() {
            if groups[core].len() < judge.places.cores[core].pus.len() {
                groups[core].push(at);
                best = best.max(brute(judge, at + 1, groups));
                groups[core].pop();
            }
        }
        best
    }

    #[test]
    fn best_by_brute_force() {
        // An EPYC 7301 has two cores under a cache, so of three one has a cache for itself.
        for (name, count, threads) in
            [("epyc-7301", 4, 5), ("epyc-7301", 3, 5), ("xeon-x3320", 4, 3)]
        {
            let (machine, performance) = known(name);
            let pus = cores(&machine, count);
            let places = UsableMachine::new(&machine, &pus);
            let queue = queue(&vec![1.0; threads]);
            let all: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
            let demands = demands(3, threads);
            let judge = Whole::new(&places, &performance, &demands, &all).unwrap();
            let best = judge.best().unwrap();
            let (found, most) = (judge.stp(&best), brute(&judge, 0, &mut vec![Vec::new(); count]));
            assert!((found - most).abs() < 1e-6 * most, "{name}: {found} where {most} is possible");
        }
    }

    /// Branch and bound beside the best of all placements, to the end and stopped after some steps.
    #[test]
    fn as_good_as_all() {
        let mut open = 0;
        for (seed, threads) in [(1, 5), (2, 6), (3, 6), (4, 4)] {
            let (machine, performance) = known("epyc-7301");
            let pus = cores(&machine, 3);
            let places = UsableMachine::new(&machine, &pus);
            let queue = queue(&vec![1.0; threads]);
            let all: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
            let demands = demands(seed, threads);
            let judge = Whole::new(&places, &performance, &demands, &all).unwrap();
            let most = judge.stp(&judge.best().unwrap());
            for nodes in [usize::MAX, 20, 0] {
                let (found, gap) = branch::best(&judge, staying(&places, &all), nodes);
                let stp = judge.stp(&found);
                assert!(stp * (1.0 + gap) >= most * (1.0 - 1e-6), "{stp}, {most} is possible");
                if nodes == usize::MAX {
                    assert!((gap - branch::TOLERANCE).abs() < 1e-12, "all was looked at");
                }
                open += usize::from(gap > branch::TOLERANCE);
            }
        }
        assert!(open > 0, "it never stopped before the end");
    }

    #[test]
    fn never_worse_than_staying() {
        let (machine, performance) = known("epyc-7301");
        let pus = cores(&machine, 2);
        for seed in 0..10 {
            let mut queue = queue(&[1.0; 4]);
            for (job, pu) in queue.iter_mut().zip(&pus) {
                job.threads[0].pu = Some(*pu);
            }
            let demands = demands(seed, 4);
            let mut oracle = Oracle::new(Some(performance.clone()), demands.clone());
            let places = UsableMachine::new(&machine, &pus);
            let all: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
            let groups = oracle.groups(&places, &all);
            let judge = Whole::new(&places, &performance, &demands, &all).unwrap();
            let stay = staying(&places, &all);
            assert!(judge.stp(&groups) >= judge.stp(&stay), "seed {seed}");
        }
    }

    /// With as much kept as may be, what is found next is kept alone.
    #[test]
    fn keeps_no_more_than_it_may() {
        let (machine, performance) = known("epyc-7301");
        let pus = cores(&machine, 1);
        let places = UsableMachine::new(&machine, &pus);
        let queue = queue(&[1.0]);
        let threads: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
        let mut oracle = Oracle::new(Some(performance), demands(1, 1));
        for order in 1..=u32::try_from(KEPT).unwrap() {
            let id = TaskId { order, ..threads[0].id };
            oracle.found.insert((vec![id], places.nrs(&pus)), vec![vec![0]]);
        }
        oracle.groups(&places, &threads);
        assert_eq!(oracle.found.len(), 1);
        oracle.groups(&places, &threads);
        assert_eq!((oracle.found.len(), oracle.searches.all), (1, 1));
    }

    #[test]
    fn falls_back() {
        let (machine, performance) = known("epyc-7301");
        let pus = cores(&machine, 7);
        let queue = queue(&[1.0; 14]);
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let mut oracle = Oracle::new(Some(performance), demands(1, 14));
        assert_eq!(oracle.choose(&now).len(), 14);
        assert_eq!(
            oracle.state(),
            "all placements were tried 0 times; for too many threads they were matched, 1 times"
        );
        let mut blind = Oracle::new(None, Vec::new());
        assert_eq!(blind.choose(&now).len(), 14);
        assert!(blind.state().contains("no thread moves"));
    }
}
