//! `symbiotic`: groups threads on cores so that they slow each other down least, by CPI stacks
//! (Feliu, Eyerman, Sahuquillo and Petit, HPCA 2016 and TPDS 2017).
//!
//! # Problem
//! Some pairs of threads lose half of their speed on one core, and other pairs hardly any. Sixteen
//! threads have two million pairings.
//! # Approach
//! From the stacks of threads beside their siblings, compute the stacks alone ([`inverse`]). From
//! these, predict the slowdowns in every possible group ([`CoreCoefficients::slowdown`]). Take the
//! groups of least cost by matching. The coefficients are trained once for a machine
//! (`colocate-study train cpi-model`).
//! # Terms
//! - *Stack*: shares of a thread's cycles by cause; *alone*: without siblings.
//! - *Cost* of a thread with the slowdown `S ≥ 1`: `1 − 1/S`, its loss of STP (the default), or
//!   `S − 1`, its increase of ANTT. The papers maximise STP; the quantity of their matching was not
//!   found. A prediction below 1 counts as 1.
//! - *Gain*: share of the whole STP (or ANTT) by which new groups are better than the present
//!   groups.
//! - *Weight*: weight of a new stack beside the known stack of the thread.
//! # Algorithm
//! 1. For each group of the last quantum whose members all showed a stack: compute the stacks
//!    alone, and average each with the known stack. The stack of a thread without siblings is its
//!    stack alone.
//! 2. Selection: all jobs if there is room, else in the order of the queue (ours: the published
//!    experiments have as many programs as contexts). So no job starves, and no job runs more often
//!    for being a good neighbour.
//! 3. Groups of two siblings: minimum-weight perfect matching ([`matching::in_groups`]), which is
//!    optimal up to [`matching::EXACT_UP_TO`] threads. Groups of four: pairs, then pairs of pairs with the prediction for all four,
//!    which is not optimal. The coefficients are for the number of threads on the fullest core.
//!    Where cores have different numbers of usable PUs: exchange, from the present groups.
//! 4. *Stay put*: groups stay unless the gain is above a threshold. Where prices prove that no
//!    groups of two can gain as much, the search is skipped ([`Predicted::none_below`]). A group
//!    goes to the core where most of its members last ran.
//!
//! Where stacks alone are not found well from stacks beside siblings, threads have a core of their
//! own from time to time ([`solo`]). A thread of unknown stack has the mean of the known stacks.
//! With coefficients for other stacks than the host's, all groups are equally good and no thread
//! moves.
//! # Properties
//! - **Never worse than staying**, by its own prediction. -> test `never_worse_than_staying`
//! - **Optimal pairs** by brute force over all of them. -> test `optimal_pairs`
//! - **Order** of jobs changes nothing, if all have room and have run before.
//!   -> test `order_changes_nothing`
//! - **One each**: no PU gets two threads while there are enough. -> test `one_each`
//! - **Stays** where nothing is to be gained. -> test `stays`
//! - **Spared searches** change nothing: as without the proof. -> test `as_without_the_proof`
//! - **Learns** the stacks alone from those together. -> test `learns_what_they_are_alone`
//!
//! [`inverse`]: colocate_model::symbiosis::inverse

pub(super) mod groups;
mod pairs;
pub mod solo;
mod stacks;

use super::allocate::{choices, on_cores, threads_of};
use super::symbiotic_numa::{HomeNodes, REMOTE_WEIGHT, classes};
use super::{Allocated, Quantum, Scheduler, Selected, SelectedJob, Thread, select};
use crate::evidence::Evidence;
use crate::matching::{self, Predicted, exchange::improved};
use crate::places::UsableMachine;
use crate::plan::Plan;
use crate::row::{Knowledge, PolicyRow, PolicySpec, Prior, Purpose, Setting, SettingKind, Value};
use colocate_evidence::{Source, SourceSet};
use colocate_machine::PuIdx;
use colocate_model::CpiModel;
use colocate_model::symbiosis::CoreCoefficients;
use groups::{CoreGroups, live_threads, pus_of_cores, staying};
use pairs::PairSlowdowns;
use solo::{Ration, SoloThread};
use stacks::StackTable;

/// Quantity to minimise over the threads' slowdowns `S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// `Σ 1 − 1/S`: lost throughput.
    Stp,
    /// `Σ S − 1`: added turnaround time.
    Antt,
}

impl Objective {
    /// Cost of a thread with this slowdown; not below 0.
    pub fn cost(self, slowdown: f64) -> f64 {
        let slowdown = slowdown.max(1.0);
        match self {
            Self::Stp => 1.0 - 1.0 / slowdown,
            Self::Antt => slowdown - 1.0,
        }
    }

    /// Total STP of `threads` threads, or the sum of their slowdowns.
    fn whole(self, threads: usize, cost: f64) -> f64 {
        match self {
            Self::Stp => threads as f64 - cost,
            Self::Antt => threads as f64 + cost,
        }
    }
}

/// Weight of a new stack beside the known one. Chosen: half, so that a changed phase is known after
/// a few quanta, and one odd quantum is half forgotten by the next.
pub(crate) const WEIGHT: f64 = 0.5;

/// Least gain for which groups change, as a share. Chosen: 1 %, about the effect of 5 % noise in
/// the stacks on a slowdown.
pub const GAIN: f64 = 0.01;

/// Evidence needed from the host.
const STACKS: SourceSet = SourceSet::of(&[Source::Counters, Source::Stacks]);

pub static ROW: PolicyRow = PolicyRow {
    name: "symbiotic",
    purpose: Purpose::Recommended,
    summary: "groups threads that slow each other down least, by CPI stacks",
    source: "Feliu, Eyerman, Sahuquillo and Petit, HPCA 2016",
    settings: &[COST, WEIGHT_OF_NEW, LEAST_GAIN, MODEL],
    prior: &[Prior::CpiModel],
    make: |values, known| Box::new(Symbiotic::new(cpi_model(known), settings(values))),
    ..PolicyRow::EACH_QUANTUM
};

pub static NUMA: PolicyRow = PolicyRow {
    name: "symbiotic-numa",
    summary: "as symbiotic, and weighs where memory is",
    source: "ours, after Feliu et al., HPCA 2016",
    settings: &[
        COST,
        WEIGHT_OF_NEW,
        LEAST_GAIN,
        Setting::not_below_0("away", REMOTE_WEIGHT, "weight of a longer migration to memory"),
        MODEL,
    ],
    prior: &[Prior::CpiModel],
    make: |values, known| {
        let homes = HomeNodes::new(values.number("away"));
        Box::new(Symbiotic::new(cpi_model(known), settings(values)).with_homes(homes))
    },
    ..PolicyRow::EACH_QUANTUM
};

const COST: Setting = Setting::word(
    "cost",
    &["stp", "antt"],
    "what is to be small: lost throughput or the sum of slowdowns",
);
const WEIGHT_OF_NEW: Setting = Setting::new(
    "weight",
    SettingKind::Number("above 0 and up to 1", |weight| weight > 0.0 && weight <= 1.0),
    Some(Value::Number(WEIGHT)),
    "weight of a new stack beside what was known before",
);
const LEAST_GAIN: Setting =
    Setting::not_below_0("gain", GAIN, "least gain for which groups change");
const MODEL: Setting = Setting::new(
    "model",
    SettingKind::File,
    None,
    "coefficients that `colocate-study train cpi-model` wrote",
);

/// Settings from the values given by the user.
fn settings(values: &PolicySpec) -> SymbioticSettings {
    let aim = if values.word("cost") == Some("antt") { Objective::Antt } else { Objective::Stp };
    SymbioticSettings { aim, weight: values.number("weight"), gain: values.number("gain") }
}

/// Coefficients of this machine; the built-in ones, of another machine, if unknown.
fn cpi_model(known: &Knowledge<'_>) -> CpiModel {
    known.cpi.cloned().unwrap_or_else(CpiModel::built_in)
}

/// Settings of `symbiotic`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SymbioticSettings {
    /// Quantity to minimise.
    pub aim: Objective,
    /// Weight of a new stack, above 0 and at most 1.
    pub weight: f64,
    /// Least gain for which groups change, as a share; not below 0.
    pub gain: f64,
}

#[cfg(test)]
impl SymbioticSettings {
    /// Defaults.
    pub const USUAL: Self = Self { aim: Objective::Stp, weight: WEIGHT, gain: GAIN };
}

/// Scheduler of `symbiotic` and `symbiotic-numa`.
#[derive(Clone, Debug)]
pub struct Symbiotic {
    settings: SymbioticSettings,
    model: CpiModel,
    table: StackTable,
    ration: Ration,
    /// Home nodes; `None` for `symbiotic`.
    homes: Option<HomeNodes>,
    /// Quanta in which the groups changed.
    changed: u64,
    /// Quanta in which the groups stayed.
    stayed: u64,
}

impl Symbiotic {
    /// A scheduler with the coefficients of a machine.
    pub fn new(model: CpiModel, settings: SymbioticSettings) -> Self {
        let table = StackTable::new(&model, settings.weight);
        let ration = Ration::default();
        Self { settings, model, table, ration, homes: None, changed: 0, stayed: 0 }
    }

    /// The scheduler with home nodes: `symbiotic-numa`.
    pub(crate) fn with_homes(self, homes: HomeNodes) -> Self {
        Self { homes: Some(homes), ..self }
    }

    /// Groups of threads by usable core, and whether they differ from the present groups.
    fn groups(
        &self,
        places: &UsableMachine<'_>,
        threads: &[&Thread],
        judge: &GroupJudge<'_>,
    ) -> (CoreGroups, bool) {
        let stay = staying(places, threads);
        // A core for each thread: without home nodes no group can be better.
        if threads.len() <= places.cores.len() && self.homes.is_none() {
            return (stay, false);
        }
        let before = judge.total(&stay);
        let worth = self.settings.gain * self.settings.aim.whole(threads.len(), before);
        let cores = places.cores.len();
        let mut predicted =
            judge.predicted(places).and_then(|all| Some((all, judge.mates(&stay)?)));
        if let Some((all, mate)) = &mut predicted
            && all.none_below(mate, before - worth)
        {
            return (stay, false);
        }
        // Each thread has one neighbour, and nodes do not matter.
        let is_plain = threads.len() == 2 * cores
            && (self.homes.is_none() || classes(places).windows(2).all(|two| two[0] == two[1]));
        let cost = |core: usize, group: &[usize]| judge.cost(core, group);
        let best = match (&self.homes, predicted) {
            _ if !places.is_even() => {
                improved(stay.clone(), &pus_of_cores(places), &classes(places), cost)
            }
            (_, Some((all, mate))) if is_plain && judge.away.is_empty() => all.pairs(&mate),
            (Some(homes), _) => homes.groups(places, threads, cost),
            // Cores are alike, so any core stands for all.
            _ => matching::in_groups(threads.len(), cores, places.width(), |it| cost(0, it)),
        };
        if before - judge.total(&best) > worth { (best, true) } else { (stay, false) }
    }
}

/// Judge of groups by their predicted costs.
struct GroupJudge<'a> {
    aim: Objective,
    mode: CoreCoefficients,
    /// By thread: its stack alone.
    stacks: Vec<&'a [f64]>,
    /// Slowdowns and costs of all pairs; `None` where not needed.
    pairs: Option<PairSlowdowns>,
    /// By thread and usable core: slowdown by the distance from its memory; empty if not needed.
    away: Vec<Vec<f64>>,
}

impl GroupJudge<'_> {
    /// Slowdown of a thread on a core: `beside` neighbours, at least 1, plus the distance's part.
    fn slowdown(&self, core: usize, at: usize, beside: f64) -> f64 {
        beside.max(1.0) + self.away.get(at).map_or(0.0, |of_core| of_core[core])
    }

    /// Slowdowns of a group's threads on a core.
    fn slowdowns(&self, core: usize, group: &[usize]) -> Vec<f64> {
        let beside = match (&self.pairs, group) {
            (_, [] | [_]) => vec![1.0; group.len()],
            (Some(pairs), &[a, b]) => vec![pairs.slowdown(a, b), pairs.slowdown(b, a)],
            _ => {
                let stacks: Vec<&[f64]> = group.iter().map(|&at| self.stacks[at]).collect();
                self.mode.slowdowns(&stacks)
            }
        };
        group.iter().zip(beside).map(|(&at, beside)| self.slowdown(core, at, beside)).collect()
    }

    /// Cost of a thread with the slowdown `beside` its neighbours.
    fn cost_of_one(&self, core: usize, at: usize, beside: f64) -> f64 {
        self.aim.cost(self.slowdown(core, at, beside))
    }

    /// Cost of a group on a core; not below 0.
    fn cost(&self, core: usize, group: &[usize]) -> f64 {
        match (&self.pairs, group) {
            // The fast path, without allocation: matching asks for as many pairs as threads
            // squared.
            (Some(pairs), &[a, b]) if self.away.is_empty() => pairs.cost(a, b),
            (Some(pairs), &[a, b]) => {
                self.cost_of_one(core, a, pairs.slowdown(a, b))
                    + self.cost_of_one(core, b, pairs.slowdown(b, a))
            }
            (_, [] | [_]) => {
                group.iter().fold(0.0, |sum, &at| sum + self.cost_of_one(core, at, 1.0))
            }
            _ => {
                let slowdowns = self.slowdowns(core, group);
                slowdowns.into_iter().fold(0.0, |sum, each| sum + self.aim.cost(each))
            }
        }
    }

    /// Total cost of the groups, by usable core.
    fn total(&self, groups: &[Vec<usize>]) -> f64 {
        let each = groups.iter().enumerate().map(|(core, group)| self.cost(core, group));
        each.fold(0.0, |sum, each| sum + each)
    }

    /// Costs of all pairs, two places for each core; `None` if a core has more PUs. Distances from
    /// memory are left out, so the costs are lower bounds.
    fn predicted(&self, places: &UsableMachine<'_>) -> Option<Predicted> {
        let pairs = self.pairs.as_ref().filter(|_| places.width() <= 2)?;
        let threads = self.stacks.len();
        let cost = Predicted::new(2 * places.cores.len(), pairs.most, |a, b| {
            // The places behind the threads are empty.
            if b < threads { pairs.cost(a, b) } else { 0.0 }
        });
        Some(cost)
    }

    /// The partner of each place in these groups; empty places are partners of lone threads or of
    /// each other. `None` if a group has more than two threads, or there are more threads than two
    /// for each group.
    fn mates(&self, groups: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut mate: Vec<usize> = (0..2 * groups.len()).collect();
        if self.stacks.len() > mate.len() {
            return None;
        }
        let mut empty = self.stacks.len()..mate.len();
        for group in groups {
            let missing = 2_usize.checked_sub(group.len())?;
            let mut members = group.iter().copied().chain(empty.by_ref().take(missing));
            let a = members.next()?;
            let b = members.next()?;
            mate[a] = b;
            mate[b] = a;
        }
        Some(mate)
    }
}

/// The core of a thread that runs alone on it.
fn own_core<'a>(alone: &'a [SoloThread], thread: &Thread) -> Option<&'a SoloThread> {
    alone.iter().find(|alone| alone.thread == thread.id)
}

impl Symbiotic {
    /// Groups by usable core, predicted slowdown of each thread, and whether the groups are new.
    fn predict(
        &self,
        places: &UsableMachine<'_>,
        threads: &[&Thread],
    ) -> (CoreGroups, Vec<f64>, bool) {
        let mean = self.table.mean();
        let stacks = self.table.stacks(&mean, threads);
        let cores = places.cores.len();
        // The coefficients depend on the number of threads on a core.
        let fullest = threads.len().div_ceil(cores.max(1));
        let mode = self.model.mode(fullest);
        let asked = threads.len() > cores || self.homes.is_some();
        let aim = self.settings.aim;
        let pairs = asked.then(|| PairSlowdowns::new(&mode, aim, &stacks));
        let away = self.away(places, threads, &stacks);
        let judge = GroupJudge { aim, mode, stacks, pairs, away };
        let (groups, changed) = self.groups(places, threads, &judge);
        let mut slowdowns = vec![1.0; threads.len()];
        for (core, group) in groups.iter().enumerate() {
            let each = group.iter().zip(judge.slowdowns(core, group));
            each.for_each(|(&at, slowdown)| slowdowns[at] = slowdown);
        }
        (groups, slowdowns, changed)
    }

    /// [`GroupJudge::away`]; empty without home nodes or distances.
    fn away(
        &self,
        places: &UsableMachine<'_>,
        threads: &[&Thread],
        stacks: &[&[f64]],
    ) -> Vec<Vec<f64>> {
        let machine = places.machine;
        let has_distances = machine.distances.is_some() && machine.nodes.len() > 1;
        let Some(homes) = self.homes.as_ref().filter(|_| has_distances) else { return Vec::new() };
        let threads = threads.iter().zip(stacks);
        let away = threads.map(|(thread, stack)| {
            let memory = self.model.components.iter().zip(*stack).filter(|(part, _)| part.memory);
            homes.away(places, thread.id, memory.fold(0.0, |sum, (_, share)| sum + share))
        });
        away.collect()
    }

    /// Threads that run alone to show their stacks alone. Jobs without room leave `chosen`.
    fn alone(
        &mut self,
        now: &Quantum<'_>,
        places: &UsableMachine<'_>,
        chosen: &mut Vec<(usize, Selected)>,
    ) -> Vec<SoloThread> {
        let threads: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
        // Threads beyond the PUs take turns and add no neighbour.
        let fullest = threads.min(places.pus.len()).div_ceil(places.cores.len().max(1));
        let is_good = self.model.is_well_conditioned(fullest);
        self.ration.choose(now, &self.table, places, is_good, chosen)
    }

    /// Summary of the work so far.
    fn state(&self) -> String {
        let solo = match self.ration.given {
            0 => String::new(),
            given => format!(
                "; stacks beside others do not show all that they would be alone, so threads had a core of \
                 their own {given} times"
            ),
        };
        format!(
            "{} threads' stacks known, groups changed {} times and stayed {} times{solo}",
            self.table.known(),
            self.changed,
            self.stayed
        )
    }
}

impl Scheduler for Symbiotic {
    const NEEDS: SourceSet = STACKS;

    fn learn(&mut self, now: &Quantum<'_>) {
        let there = live_threads(now.queue);
        let fullest = self.table.fullest();
        // Coefficients that do not invert well would teach wrong stacks.
        let is_good = self.model.is_well_conditioned(fullest);
        let mode = is_good.then(|| self.model.mode(fullest));
        self.table.learn(mode.as_ref(), &there);
        if let Some(homes) = &mut self.homes {
            homes.note(now.machine, &there);
        }
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<SelectedJob> {
        self.learn(now);
        let contexts = now.pus.len();
        let mut chosen = select::all_or_first(now);
        let all_places = UsableMachine::new(now.machine, now.pus);
        let alone = self.alone(now, &all_places, &mut chosen);
        for (at, selected) in &mut chosen {
            let mut threads = now.queue[*at].threads.iter();
            if threads.any(|thread| own_core(&alone, thread).is_some()) {
                *selected = Selected::Estimated;
            }
        }
        let in_queue = threads_of(now.queue, &chosen, contexts);
        // In the order of their ids, so that nothing depends on the order of the queue.
        let mut order: Vec<usize> =
            (0..in_queue.len()).filter(|&at| own_core(&alone, in_queue[at]).is_none()).collect();
        order.sort_by_key(|&at| in_queue[at].id);
        let threads: Vec<&Thread> = order.iter().map(|&at| in_queue[at]).collect();
        // Without the cores of threads that run alone.
        let left = solo::others(&all_places, &alone);
        let places = UsableMachine::new(now.machine, &left);
        let (groups, slowdowns, changed) = self.predict(&places, &threads);
        if changed {
            self.changed += 1
        } else {
            self.stayed += 1
        }
        let pus = in_queue.iter().map(|thread| own_core(&alone, thread).map(|alone| alone.pu));
        // Every other thread gets its PU from `seats` below.
        let mut pus: Vec<PuIdx> = pus.map(|pu| pu.unwrap_or(PuIdx(0))).collect();
        // Groups of threads with homes take cores of their own nodes only.
        let nodes = if self.homes.is_some() { classes(&places) } else { vec![0; groups.len()] };
        let seats = on_cores(&places, &threads, &groups, &nodes);
        order.iter().zip(seats).for_each(|(&at, pu)| pus[at] = pu);
        let all: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
        // Threads that share a PU one after the other show stacks beside no particular neighbours.
        let neighbours = if all > contexts {
            Vec::new()
        } else {
            let groups = groups.iter();
            let groups = groups.map(|group| group.iter().map(|&at| threads[at].id).collect());
            groups.chain(alone.iter().map(|alone| vec![alone.thread])).collect()
        };
        self.table.together = neighbours;
        choices(now, chosen, &pus, |thread| {
            // `threads` are in the order of their ids.
            let at = threads.binary_search_by_key(&thread.id, |thread| thread.id);
            match at {
                _ if own_core(&alone, thread).is_some() => Allocated::OwnCores,
                Ok(at) => Allocated::Symbiosis { slowdown: slowdowns[at] },
                Err(_) => Allocated::Next,
            }
        })
    }

    fn describe(&mut self, plan: &mut Plan, _: &Evidence<'_>) {
        plan.state = Some(self.state());
    }
}

#[cfg(test)]
pub(in crate::schedule) mod tests;
