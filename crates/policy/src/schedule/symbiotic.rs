//! `symbiotic`: threads that share a core slow each other down least, as CPI stacks predict (Feliu,
//! Eyerman, Sahuquillo and Petit, HPCA 2016 and TPDS 2017).
//!
//! # Problem
//! Some threads lose half of their speed beside each other and hardly any beside others; with
//! sixteen threads there are two million ways to pair them.
//! # Approach
//! From the stacks that threads show beside their siblings, compute those that they would show
//! alone ([`inverse`]); from these, how slow every possible group would be ([`Mode::slowdown`]);
//! and take the groups that cost least by matching. The coefficients are trained once for a machine
//! (`colocate-study train cpi-model`).
//! # Terms
//! - *Stack*: shares of a thread's cycles by cause; *alone*: without siblings.
//! - *Cost* of a thread with the slowdown `S ≥ 1`: `1 − 1/S`, what it takes from STP (the default),
//!   or `S − 1`, what it adds to ANTT. The papers maximise STP; which of the two they match on was
//!   not found. A prediction below 1 counts as 1.
//! - *Gain*: by which share of the whole STP (or ANTT) new groups are better than those that are.
//! - *Weight*: how much a new stack counts beside what was known of the thread before.
//! # Algorithm
//! 1. For each group of the last quantum whose members all showed a stack: compute the stacks
//!    alone, and average each with what was known. A thread without siblings shows its stack alone
//!    as it is.
//! 2. Selection: all jobs if there is room, else in the order of the queue (ours: the published
//!    experiments have as many programs as contexts). So no job starves, and none runs more often
//!    for being a good neighbour.
//! 3. Groups: two siblings by minimum-weight perfect matching ([`matching::in_groups_by`]), which
//!    is optimal; four by matching pairs, then pairs of pairs with the prediction for all four,
//!    which is not. The coefficients are those of as many threads as the fullest core has. Where
//!    cores have different numbers of usable PUs: by exchange from the groups that are.
//! 4. *Stay put*: groups stay unless the gain is above a threshold; where prices prove that no
//!    groups of two can gain as much, none are searched for ([`Predicted::none_below`]). A group
//!    goes to the core where most of it last ran.
//!
//! Where stacks alone are not found well from those together, threads have a core of their own from
//! time to time ([`solo`]). A thread that nothing is known of has the mean of the known stacks.
//! With coefficients of other stacks than the host's all groups are equally good and no thread
//! moves.
//! # Properties
//! - **Never worse than staying**, by its own prediction. -> test `never_worse_than_staying`
//! - **Optimal pairs** by brute force over all of them. -> test `optimal_pairs`
//! - **Order** of jobs changes nothing, if all have room and have run before. -> test
//!   `order_changes_nothing`
//! - **One each**: no PU gets two threads while there are enough. -> test `one_each`
//! - **Stays** where nothing is to be gained. -> test `stays`
//! - **Spared searches** change nothing: as without the proof. -> test `as_without_the_proof`
//! - **Learns** the stacks alone from those together. -> test `learns_what_they_are_alone`
//!
//! [`inverse`]: colocate_model::symbiosis::inverse

pub(super) mod groups;
pub(super) mod live;
mod pairs;
pub mod solo;
mod stacks;

use super::allocate::{choices, on_cores, threads_of};
use super::symbiotic_numa::{HomeNodes, classes};
use super::{Allocated, Choice, Quantum, Scheduler, Selected, Thread, select};
use crate::evidence::Evidence;
use crate::matching::{self, Predicted};
use crate::places::Places;
use crate::plan::Plan;
use crate::row::{Kind, Knowledge, Preset, Prior, Purpose, Row, Setting, Values};
use colocate_evidence::{Source, SourceSet};
use colocate_machine::PuIdx;
use colocate_model::CpiModel;
use colocate_model::symbiosis::Mode;
use groups::{Groups, exchanged, is_even, staying};
use pairs::Pairs;
use serde::{Deserialize, Serialize};
use solo::{Alone, Ration};
use stacks::StackTable;

/// What is to be small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// `Σ 1 − 1/S`: throughput.
    #[default]
    Stp,
    /// `Σ S − 1`: how long each takes.
    Antt,
}

impl Objective {
    /// What a thread with this slowdown costs; not below 0.
    pub fn cost(self, slowdown: f64) -> f64 {
        let slowdown = slowdown.max(1.0);
        match self {
            Self::Stp => 1.0 - 1.0 / slowdown,
            Self::Antt => slowdown - 1.0,
        }
    }

    /// The whole STP of so many threads, or the whole of their slowdowns.
    fn whole(self, threads: usize, cost: f64) -> f64 {
        match self {
            Self::Stp => select::float(threads) - cost,
            Self::Antt => select::float(threads) + cost,
        }
    }
}

/// How much a new stack counts beside what was known before. Chosen: half, so that a phase that has
/// changed is known after a few quanta and a single odd quantum is half forgotten by the next.
pub(crate) const WEIGHT: f64 = 0.5;

/// Groups stay as they are unless new ones are better by this share. Chosen: 1 %, about what the
/// stacks' noise of 5 % makes of a slowdown.
pub const GAIN: f64 = 0.01;

/// What it needs from the host.
const STACKS: SourceSet = SourceSet::of(&[Source::Counters, Source::Stacks]);

/// Its row in the table of policies.
pub static ROW: Row = Row {
    name: "symbiotic",
    purpose: Purpose::Recommended,
    summary: "groups threads that slow each other down least, by CPI stacks",
    source: "Feliu, Eyerman, Sahuquillo and Petit, HPCA 2016",
    settings: &[COST, WEIGHT_OF_NEW, LEAST_GAIN, MODEL],
    prior: &[Prior::CpiModel],
    make: |values, known| Box::new(Symbiotic::new(cpi_model(known), settings(values))),
    ..Row::EACH_QUANTUM
};

/// Its row in the table of policies.
pub static NUMA: Row = Row {
    name: "symbiotic-numa",
    summary: "as symbiotic, and weighs where memory is",
    source: "ours, after Feliu et al., HPCA 2016",
    settings: &[
        COST,
        WEIGHT_OF_NEW,
        LEAST_GAIN,
        Setting {
            name: "away",
            kind: Kind::Number("not below 0", |away| away.is_finite() && away >= 0.0),
            default: Preset::Number(super::symbiotic_numa::REMOTE_WEIGHT),
            meaning: "weight of a longer migration to memory",
        },
        MODEL,
    ],
    prior: &[Prior::CpiModel],
    make: |values, known| {
        let homes = HomeNodes::new(values.number("away"));
        Box::new(Symbiotic::with_homes(cpi_model(known), settings(values), homes))
    },
    ..Row::EACH_QUANTUM
};

const COST: Setting = Setting {
    name: "cost",
    kind: Kind::Word(&["stp", "antt"]),
    default: Preset::Word("stp"),
    meaning: "what is to be small: lost throughput or the sum of slowdowns",
};
const WEIGHT_OF_NEW: Setting = Setting {
    name: "weight",
    kind: Kind::Number("above 0 and up to 1", |weight| weight > 0.0 && weight <= 1.0),
    default: Preset::Number(WEIGHT),
    meaning: "weight of a new stack beside what was known before",
};
const LEAST_GAIN: Setting = Setting {
    name: "gain",
    kind: Kind::Number("not below 0", |gain| gain.is_finite() && gain >= 0.0),
    default: Preset::Number(GAIN),
    meaning: "least gain for which groups change",
};
const MODEL: Setting = Setting {
    name: "model",
    kind: Kind::File,
    default: Preset::Unset,
    meaning: "coefficients that `colocate-study train cpi-model` wrote",
};

fn settings(values: &Values<'_>) -> Settings {
    let aim = if values.word("cost") == Some("antt") { Objective::Antt } else { Objective::Stp };
    Settings { aim, weight: values.number("weight"), gain: values.number("gain") }
}

/// Coefficients of this machine, or else of another one.
fn cpi_model(known: &Knowledge<'_>) -> CpiModel {
    known.cpi.cloned().unwrap_or_else(CpiModel::built_in)
}

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is to be small.
    pub aim: Objective,
    /// How much a new stack counts, above 0 and at most 1.
    pub weight: f64,
    /// Least gain for which groups change, not below 0.
    pub gain: f64,
}

#[cfg(test)]
impl Settings {
    /// Those where none are given.
    pub const USUAL: Self = Self { aim: Objective::Stp, weight: WEIGHT, gain: GAIN };
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Symbiotic {
    settings: Settings,
    model: CpiModel,
    table: StackTable,
    ration: Ration,
    /// Only `symbiotic-numa` has them.
    homes: Option<HomeNodes>,
    changed: u64,
    stayed: u64,
}

impl Symbiotic {
    /// With the coefficients of a machine.
    pub fn new(model: CpiModel, settings: Settings) -> Self {
        let table = StackTable::new(&model, settings.weight);
        let ration = Ration::default();
        Self { settings, model, table, ration, homes: None, changed: 0, stayed: 0 }
    }

    /// As [`Self::new`], with an eye on where memory is: `symbiotic-numa`.
    pub(crate) fn with_homes(model: CpiModel, settings: Settings, homes: HomeNodes) -> Self {
        Self { homes: Some(homes), ..Self::new(model, settings) }
    }

    /// Groups of threads by usable core, and whether they are others than those that stay.
    fn groups(
        &self,
        places: &Places<'_>,
        threads: &[&Thread],
        judge: &Judge<'_>,
    ) -> (Groups, bool) {
        let cost = |core: usize, group: &[usize]| judge.cost(core, group);
        let stay = staying(places, threads);
        if threads.len() <= places.cores.len() && self.homes.is_none() {
            return (stay, false);
        }
        let total = |groups: &[Vec<usize>]| {
            let each = groups.iter().enumerate().map(|(core, group)| cost(core, group));
            each.fold(0.0, |sum, each| sum + each)
        };
        let before = total(&stay);
        let worth = self.settings.gain * self.settings.aim.whole(threads.len(), before);
        let cores = places.cores.len();
        let with_mates = |all| Some((all, judge.mates(&stay)?));
        let mut predicted = judge.predicted(places).and_then(with_mates);
        if let Some((all, mate)) = &mut predicted
            && all.none_below(mate, before - worth)
        {
            return (stay, false);
        }
        // Only neighbours count, and no thread is alone.
        let is_plain = threads.len() == 2 * cores && (self.homes.is_none() || is_near(places));
        let best = match (&self.homes, predicted) {
            _ if !is_even(places) => exchanged(places, stay.clone(), &classes(places), cost),
            (_, Some((all, mate))) if is_plain && judge.away.is_empty() => all.pairs(mate),
            (Some(homes), _) => homes.groups(places, threads, cost),
            _ => {
                let mut of_one_core = |group: &[usize]| judge.cost(0, group);
                matching::in_groups_by(threads.len(), cores, places.width(), &mut of_one_core)
            }
        };
        if before - total(&best) > worth { (best, true) } else { (stay, false) }
    }

    /// Where each thread goes.
    fn seats(&self, places: &Places<'_>, threads: &[&Thread], groups: &Groups) -> Vec<PuIdx> {
        match &self.homes {
            Some(homes) => homes.seats(places, threads, groups),
            None => on_cores(places, threads, groups),
        }
    }
}

/// What groups cost.
struct Judge<'a> {
    aim: Objective,
    mode: Mode,
    /// One a thread.
    stacks: Vec<&'a [f64]>,
    /// All pairs; `None` where they are not needed.
    pairs: Option<Pairs>,
    /// What a thread loses by being far from its memory, by thread and usable core; empty if not
    /// needed.
    away: Vec<Vec<f64>>,
}

impl Judge<'_> {
    /// A thread's slowdown on a core, with what is lost by being away.
    fn slowdown(&self, core: usize, at: usize, beside: f64) -> f64 {
        beside.max(1.0) + self.away.get(at).map_or(0.0, |of_core| of_core[core])
    }

    fn slowdowns(&self, core: usize, group: &[usize]) -> Vec<f64> {
        let stacks = || group.iter().map(|&at| self.stacks[at]).collect::<Vec<_>>();
        let beside = match (&self.pairs, group) {
            (_, [] | [_]) => vec![1.0; group.len()],
            (Some(pairs), &[a, b]) => vec![pairs.slowdown(a, b), pairs.slowdown(b, a)],
            _ => self.mode.slowdowns(&stacks()),
        };
        group.iter().zip(beside).map(|(&at, beside)| self.slowdown(core, at, beside)).collect()
    }

    fn cost(&self, core: usize, group: &[usize]) -> f64 {
        let one = |at: usize, beside: f64| self.aim.cost(self.slowdown(core, at, beside));
        match (&self.pairs, group) {
            // There are as many pairs as threads squared, so these take no memory.
            (Some(pairs), &[a, b]) if self.away.is_empty() => pairs.cost(a, b),
            (Some(pairs), &[a, b]) => one(a, pairs.slowdown(a, b)) + one(b, pairs.slowdown(b, a)),
            (_, [] | [_]) => group.iter().fold(0.0, |sum, &at| sum + one(at, 1.0)),
            _ => {
                let slowdowns = self.slowdowns(core, group);
                slowdowns.into_iter().fold(0.0, |sum, each| sum + self.aim.cost(each))
            }
        }
    }

    /// What all pairs cost, of as many places as two for each core. Only where no core has more;
    /// being away is left out, which costs nothing less than nothing.
    fn predicted(&self, places: &Places<'_>) -> Option<Predicted> {
        let pairs = self.pairs.as_ref().filter(|_| places.width() <= 2)?;
        let threads = self.stacks.len();
        let cost = |a: usize, b: usize| if b < threads { pairs.cost(a, b) } else { 0.0 };
        Some(Predicted::new(2 * places.cores.len(), pairs.most(), cost))
    }

    /// Which threads are together in these groups, empty places with each other or with a thread
    /// that is alone; `None` if more than two are together, or there are more threads than two for
    /// each group.
    fn mates(&self, groups: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut mate: Vec<usize> = (0..2 * groups.len()).collect();
        if self.stacks.len() > mate.len() {
            return None;
        }
        let mut empty = self.stacks.len()..mate.len();
        for group in groups {
            let missing = 2_usize.checked_sub(group.len())?;
            let mut members = group.iter().copied().chain(empty.by_ref().take(missing));
            let (a, b) = (members.next()?, members.next()?);
            (mate[a], mate[b]) = (b, a);
        }
        Some(mate)
    }
}

/// Whether all cores are on one node.
fn is_near(places: &Places<'_>) -> bool {
    classes(places).windows(2).all(|two| two[0] == two[1])
}

impl Symbiotic {
    /// Groups by usable core and what each of `threads` is expected to lose; whether the groups are
    /// new.
    fn foretold(&self, places: &Places<'_>, threads: &[&Thread]) -> (Groups, Vec<f64>, bool) {
        let mean = self.table.mean();
        let stacks = self.table.stacks(&mean, threads);
        let cores = places.cores.len();
        let fullest = threads.len().div_ceil(cores.max(1));
        let mode = self.model.mode(fullest);
        let asked = threads.len() > cores || self.homes.is_some();
        let aim = self.settings.aim;
        let pairs = asked.then(|| Pairs::new(&mode, aim, &stacks));
        let away = self.away(places, threads, &stacks);
        let judge = Judge { aim, mode, stacks, pairs, away };
        let (groups, changed) = self.groups(places, threads, &judge);
        let mut slowdowns = vec![1.0; threads.len()];
        for (core, group) in groups.iter().enumerate() {
            let each = group.iter().zip(judge.slowdowns(core, group));
            each.for_each(|(&at, slowdown)| slowdowns[at] = slowdown);
        }
        (groups, slowdowns, changed)
    }

    /// What each thread loses on each usable core by being far from its memory; empty where that is
    /// nothing.
    fn away(&self, places: &Places<'_>, threads: &[&Thread], stacks: &[&[f64]]) -> Vec<Vec<f64>> {
        let machine = places.machine;
        let has_distances = machine.distances.is_some() && machine.nodes.len() > 1;
        let Some(homes) = self.homes.as_ref().filter(|_| has_distances) else { return Vec::new() };
        let of = |(thread, stack): (&&Thread, &&[f64])| {
            let memory = self.model.components.iter().zip(*stack).filter(|(part, _)| part.memory);
            homes.away(places, thread.id, memory.fold(0.0, |sum, (_, share)| sum + share))
        };
        threads.iter().zip(stacks).map(of).collect()
    }

    /// Threads that have a core of their own to show their stacks alone.
    fn alone(
        &mut self,
        now: &Quantum<'_>,
        places: &Places<'_>,
        chosen: &mut Vec<(usize, Selected)>,
    ) -> Vec<Alone> {
        let threads: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
        let fullest = threads.min(places.pus.len()).div_ceil(places.cores.len().max(1));
        let is_good = self.model.is_well_conditioned(fullest);
        self.ration.choose(now, &self.table, places, is_good, chosen)
    }

    /// Its state, in one line.
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
        let there = live::all(now.queue);
        let (model, fullest) = (&self.model, self.table.fullest());
        let mode = model.is_well_conditioned(fullest).then(|| model.mode(fullest));
        self.table.learn(mode.as_ref(), &there);
        if let Some(homes) = &mut self.homes {
            homes.note(now.machine, &there);
        }
    }

    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        self.learn(now);
        let contexts = now.pus.len();
        let mut chosen = select::all_or_first(now);
        let all_places = Places::new(now.machine, now.pus);
        let alone = self.alone(now, &all_places, &mut chosen);
        let is_alone = |thread: &Thread| alone.iter().find(|alone| alone.thread == thread.id);
        for (at, selected) in &mut chosen {
            if now.queue[*at].threads.iter().any(|thread| is_alone(thread).is_some()) {
                *selected = Selected::Estimated;
            }
        }
        let in_queue = threads_of(now.queue, &chosen, contexts);
        // In their own order, so that nothing depends on that of the queue.
        let mut order: Vec<usize> =
            (0..in_queue.len()).filter(|&at| is_alone(in_queue[at]).is_none()).collect();
        order.sort_by_key(|&at| in_queue[at].id);
        let threads: Vec<&Thread> = order.iter().map(|&at| in_queue[at]).collect();
        let left = solo::others(&all_places, &alone);
        let places = Places::new(now.machine, &left);
        let (groups, slowdowns, changed) = self.foretold(&places, &threads);
        if changed {
            self.changed += 1
        } else {
            self.stayed += 1
        }
        let seat = |thread: &&Thread| is_alone(thread).map_or(PuIdx(0), |alone| alone.pu);
        let mut pus: Vec<PuIdx> = in_queue.iter().map(seat).collect();
        let seats = self.seats(&places, &threads, &groups);
        order.iter().zip(seats).for_each(|(&at, pu)| pus[at] = pu);
        let all: usize = chosen.iter().map(|(at, _)| now.queue[*at].threads.len()).sum();
        let ids = |group: &Vec<usize>| group.iter().map(|&at| threads[at].id).collect();
        let singles = alone.iter().map(|alone| vec![alone.thread]);
        // Threads that take turns on a PU show stacks beside no particular neighbours.
        let neighbours = if all > contexts {
            Vec::new()
        } else {
            groups.iter().map(ids).chain(singles).collect()
        };
        self.table.ran_together(neighbours);
        choices(now, chosen, &pus, |thread| {
            let at = threads.binary_search_by_key(&thread.id, |thread| thread.id);
            match at {
                _ if is_alone(thread).is_some() => Allocated::OwnCores,
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
