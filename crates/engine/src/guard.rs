//! The guard: a policy around a policy, which leaves the machine to the kernel where the inner policy does not pay.
//!
//! # Problem
//! A policy that is good for most workloads is bad for some, and it is not known beforehand for which. No program should be
//! worse off with it than without.
//! # Approach
//! The kernel is the default. The policy has to earn its quanta, under two rules:
//! - *Budget*: what its quanta have cost so far, compared with the kernel's, stays below a small part of the time
//!   that has passed. So it begins with single quanta; while they cost nothing more follow, and where they
//!   cost much the next one comes late. These are conservative bandits (Wu, Shariff, Lattimore and
//!   Szepesvári, ICML 2016), with measured instead of worst-case losses.
//! - *Verdict*: its quanta are compared with the nearest control quanta by a test that may be evaluated at any
//!   time ([`bet`]). If it is worse, the kernel gets everything for a while, each time for longer. If
//!   it is better, it gets all quanta but one in [`Guarding::control`].
//!
//! How many control quanta follow each other, and how many quanta lie between them, is drawn at random. What comes at regular
//! times, as NUMA balancing's scans or a program's timer, would otherwise meet the same side again and again (docs/results/guard.md).
//!
//! When the kernel gets a quantum after the policy's, threads begin where the kernel last had them. In simulations without
//! that, twice as many workloads lost more than 1 % (docs/results/guard.md).
//! # Terms
//! - *Control quantum*: everything runs and the kernel chooses, and the quantum before it was the kernel's, too. The first
//!   one after the policy's is not representative: threads are not where the kernel would have them. What is lost in it is
//!   charged to the policy.
//! - *Progress* of a quantum: instructions of each job over its own mean speed, added up, in seconds: so a
//!   job with many instructions a cycle counts no more than others. Where instructions are not counted, CPU
//!   time: then idle PUs are seen, and contention is not.
//! - *Round*: as many quanta as it takes until every job can have run once. Only whole rounds are compared.
//! - *Set*: the jobs that there are. Only quanta with the same set are compared; when it changes, a control quantum comes
//!   first.
//! - *Harm*: seconds by which the last job ends later, see [`ledger::Ledger::harm`]. It counts jobs that are left behind,
//!   too: total progress does not show that one job will be alone in the end.
//! # Algorithm
//! Stages: *trying*, *keeping*, *paused*. Each has the [`Verdict`] that it rests on, and a message says when that changes.
//! 1. Trying: a control quantum; then a round of the policy, or several where it seems to gain, and one control quantum or two,
//!    at random, and so again, as far as the budget goes: `harm + risk ≤ credit + allowed · time`, with `risk` the mean of what
//!    quanta lost lately. Other quanta are control quanta.
//! 2. After each comparison, `x = 2(p − c)/(p + c)` with the rates of progress `p` of the policy and `c` of the
//!    control quanta: two bets, that `x` is on average below and above 0. The one that wins ends the stage.
//! 3. Before a quantum of the kernel that follows one of the policy, threads are put where they last were under the kernel.
//! 4. Keeping: as trying, with fewer control quanta. A bet that is won for "worse" ends it.
//!    Where plans stand, quanta while trying are short ones, a fifth, as long as each comparison shows more than [`bet::MOST`] in the
//!    same direction.
//! 5. Paused: control quanta only. For 50 quanta, twice as many each time; also when the budget is so far
//!    overdrawn that it takes that long until the next try. Then trying again: programs change.
//! # Properties
//! - **Gives up**: a policy that is worse is given up, and loses little until then. -> test `gives_up_what_is_worse`
//! - **Keeps**: one that is better gets nearly all quanta. -> test `keeps_what_is_better`
//! - **Learns**: the policy gets the outcome of each of its quanta, and of no other one. -> test
//!   `the_scheduler_learns_from_each_of_its_quanta`
//! - **Same jobs**: no comparison across a change of the set. -> test `compares_the_same_jobs_only`
//! - **No job is left behind** -> test `sees_a_job_that_is_left_behind`
//! - **Out of step**: nothing that is regular meets one side only. -> test `nothing_regular_meets_one_side_only`
//! - **At once**: where much is to be gained or lost, that is known in half a second. -> test `much_is_seen_at_once`
//! - **One word**: state and messages name the same verdict. -> test `the_state_has_the_word_of_the_last_message`
//! - **Throttled quanta are none**: what a CPU quota takes is not the policy's loss. -> test `what_a_quota_takes_is_no_loss`
//! - **Restored**: the kernel continues with the places that it had chosen. -> test `puts_threads_back`
//! - **Blind is said**: without counts it says what it does not see. -> test `says_what_it_cannot_see`

pub mod bet;
pub mod ledger;
mod partners;
pub(crate) mod usage;
mod verdict;

pub use verdict::{Compared, Guarded, Trial, Verdict};

use bet::Bet;
use colocate_evidence::{JobIdx, Source, SourceSet, TaskId};
use colocate_machine::{Nanos, PuIdx, PuNr};
use colocate_policy::rng::SplitMix64;
use colocate_policy::schedule::{Quantum, QuantumOutcome, QueuedJob};
use colocate_policy::{DefaultPlacement, Evidence, Plan, Policy};
use ledger::{Ledger, Sample, Speeds};
use partners::Partners;
use std::collections::{BTreeMap, VecDeque};

/// How a policy is guarded. None of it is published: these are our choices, and what they come to is
/// measured by simulation (`docs/results/guard.md`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarding {
    /// The part of the time that may be lost.
    pub allowed: f64,
    /// What may be lost at once, in quanta.
    pub credit: f64,
    /// Quanta from one control to the next while the policy pays, in the mean, at least 3: at random, half to one and a
    /// half times as many. Another one goes before each.
    pub control: u32,
    /// The chance that a verdict is wrong, at most.
    pub error: f64,
    /// For how many quanta a policy is paused the first time.
    pub pause: u32,
    /// It is paused as well where it takes so many quanta until there is something to lose again.
    pub patience: u32,
}

impl Guarding {
    /// Where a plan stands until something happens, and quanta of [`QUANTUM`] are only for comparison. Chosen: in the first minute
    /// no job loses more than 0.5 %: what is lost at once is 0.15 s, as much as eight quanta in which a job loses a third.
    pub const STANDING: Self =
        Self { allowed: 0.0025, credit: 3.0, control: 128, error: 0.05, pause: 200, patience: 40 };
}

/// What progress is measured by, where it can be had.
pub const PROGRESS: SourceSet =
    SourceSet::of(&[Source::Counters, Source::RunStates, Source::Switches]);

/// Time between two decisions of a guard whose plans stand. Chosen: a server does some thousand requests in it, and to place
/// ten threads anew takes a thousandth of it.
pub const QUANTUM: Nanos = Nanos::from_millis(50);

/// The same while differences are so large that a fifth of it shows them. Chosen: ten threads are placed anew in a two-hundredth of it.
pub const SHORT_QUANTUM: Nanos = Nanos::from_millis(10);
/// Tasks up to which there are short quanta. Chosen: to place more takes too large a part of one.
const FEW_TASKS: usize = 32;

impl Default for Guarding {
    /// Chosen: a workload of some hundred quanta loses half of 1 % at most by the budget; the rest is for what the
    /// comparison does not see.
    fn default() -> Self {
        Self { allowed: 0.005, credit: 0.3, control: 32, error: 0.05, pause: 50, patience: 50 }
    }
}

/// Controls that make up what control quanta are like now. Chosen: programs change.
const WINDOW: usize = 4;
/// Seed of what is drawn at random. Any number would do.
const SEED: u64 = 1;
/// Quanta that the policy keeps while it pays and the set changes again and again.
const AFTER_CHANGE: u32 = 4;
/// Comparisons after which bets begin anew, so that old gains do not hide new losses. Chosen.
const MEMORY: u32 = 64;
/// Quanta of gains that may be spent again. Chosen: a round of two.
const BANK: f64 = 2.0;
/// What a first quantum is expected to lose, as a part of it. Chosen: few schedulers lose more.
const FIRST_RISK: f64 = 0.2;
/// The weight of the last quantum in what the next one is expected to lose.
const RISK_WEIGHT: f64 = 0.25;
/// Most quanta of a round that is compared.
const LONGEST_ROUND: u32 = 8;
/// Pauses are doubled so often at most.
const DOUBLINGS: u32 = 5;
/// Where each job is held against itself, losses up to this are none. Chosen: less is not noticed, and with time the smallest
/// ones would show.
const TOLERATED: f64 = 0.01;
/// What is left of the longest quantum after each that is shorter.
const FORGETS: f64 = 0.9;
/// A quantum that is shorter than this part of what it was to last is no comparison.
const CUT_SHORT: f64 = 0.5;

/// Quanta in a row of which only the sum is seen, where plans stand and there is nothing to decide. Chosen: what comes of a plan that
/// has paid is looked at more than twice a second.
const TOGETHER: u32 = 8;

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Trying,
    Keeping,
    /// For so many more quanta.
    Paused(u32),
}

/// For how long a plan is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// A [`SHORT_QUANTUM`].
    Short,
    /// So many quanta.
    Quanta(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Kernel,
    Policy,
}

/// A policy that is guarded.
pub struct Guard {
    inner: Box<dyn Policy>,
    /// Its last plan, if plans stand until something happens.
    stands: Option<Standing>,
    /// What the policy last said of itself.
    state: Option<String>,
    name: String,
    settings: Guarding,
    stage: Stage,
    verdict: Verdict,
    /// Which of the two has the quantum that runs, and had the one before it; `None` before the first.
    now: Option<Owner>,
    before: Option<Owner>,
    /// The jobs, and how many PUs each uses at a time.
    set: BTreeMap<JobIdx, f64>,
    /// Which of them are judged together, where each is held against itself.
    partners: Partners,
    /// Where the kernel last had threads, by its own number, and where they begin its next quantum.
    kernel_places: BTreeMap<TaskId, PuNr>,
    initial: Vec<(TaskId, PuIdx)>,
    /// Quanta of a round.
    round: u32,
    /// The last controls with this set.
    window: VecDeque<Sample>,
    /// Whether another control comes before the next round.
    another: bool,
    rng: SplitMix64,
    speeds: Speeds,
    ledger: Ledger,
    risk: f64,
    block: Block,
    bets: Bets,
    /// All comparisons so far.
    compared: Compared,
    since_control: u32,
    /// After how many quanta the next control comes while the policy pays.
    next_control: u32,
    pauses: u32,
    /// Seconds so far, and how long a whole quantum is.
    elapsed: f64,
    quantum: f64,
    /// What the last plan was for.
    lasts: Lasts,
    /// Whether all comparisons since the policy was last tried, if any, showed more than can be chance, and the same.
    shows: bool,
    /// Whether threads are so few that quanta may be short ones.
    is_small: bool,
    quanta: u64,
    controls: u64,
    /// Quanta in which the programs were throttled.
    throttled: u64,
    blind: bool,
    messages: VecDeque<String>,
}

/// A plan that stands until something happens.
#[derive(Debug, Default)]
struct Standing {
    plan: Option<Plan>,
    /// Whether something has happened since it was made.
    has_event: bool,
    /// When it was made, on the host's clock.
    at: Nanos,
}

/// What is compared next.
#[derive(Debug, Default)]
struct Block {
    quanta: u32,
    policy: Sample,
    controls: Sample,
}

/// The comparison so far.
#[derive(Clone, Debug, Default)]
struct Bets {
    all: Comparison,
    /// By job, where each is held against itself.
    each: BTreeMap<JobIdx, Comparison>,
}

/// That of what one or all jobs do.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    worse: Bet,
    better: Bet,
    sum: f64,
    count: u32,
}

impl Comparison {
    /// Takes in a [`difference`], if there is one. Losses up to `tolerated` are none.
    fn take(&mut self, x: Option<f64>, tolerated: f64) {
        let Some(x) = x else { return };
        self.worse.take(-x - tolerated);
        self.better.take(x);
        self.sum += x;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// By how much more the policy did than the kernel, as a part of their mean; `None` if neither did anything.
fn difference(policy: f64, kernel: f64) -> Option<f64> {
    (policy + kernel > 0.0).then(|| 2.0 * (policy - kernel) / (policy + kernel))
}

impl Guard {
    /// Guards `inner`, which messages call `name`.
    pub fn new(inner: Box<dyn Policy>, name: &str, settings: Guarding) -> Self {
        Self {
            inner,
            stands: None,
            state: None,
            name: name.to_owned(),
            settings,
            stage: Stage::Trying,
            verdict: Verdict::Undecided,
            now: None,
            before: None,
            set: BTreeMap::new(),
            partners: Partners::default(),
            kernel_places: BTreeMap::new(),
            initial: Vec::new(),
            round: 1,
            window: VecDeque::new(),
            another: false,
            rng: SplitMix64::new(SEED),
            speeds: Speeds::default(),
            ledger: Ledger::default(),
            risk: FIRST_RISK,
            block: Block::default(),
            bets: Bets::default(),
            compared: Compared::default(),
            since_control: 0,
            next_control: settings.control,
            pauses: 0,
            elapsed: 0.0,
            quantum: 0.0,
            lasts: Lasts::Quanta(1),
            shows: true,
            is_small: false,
            quanta: 0,
            controls: 0,
            throttled: 0,
            blind: false,
            messages: VecDeque::new(),
        }
    }

    /// The same of a policy whose plans stand until something happens, and under which all jobs run.
    pub fn standing(inner: Box<dyn Policy>, name: &str, settings: Guarding) -> Self {
        let mut guard = Self::new(inner, name, settings);
        guard.stands = Some(Standing::default());
        guard.quantum = QUANTUM.as_secs_f64();
        guard
    }

    /// Quanta so far, and how many of them were the kernel's.
    pub const fn quanta(&self) -> (u64, u64) {
        (self.quanta, self.controls)
    }

    /// Verdict and comparisons so far.
    pub fn trial(&self) -> Trial {
        Trial { verdict: self.verdict.clone(), compared: self.compared, throttled: self.throttled }
    }

    /// What is measured with other jobs is no measure for these.
    fn note_jobs(&mut self, now: &Quantum<'_>) {
        let contexts = now.pus.len();
        let width = |job: &QueuedJob| u32::try_from(job.width(contexts)).unwrap_or(u32::MAX);
        let set: BTreeMap<JobIdx, f64> =
            now.queue.iter().map(|job| (job.job, f64::from(width(job)))).collect();
        if !set.keys().eq(self.set.keys()) {
            self.window.clear();
            self.block = Block::default();
        }
        let all: u32 = now.queue.iter().map(width).fold(0, u32::saturating_add);
        let contexts = u32::try_from(contexts).unwrap_or(u32::MAX).max(1);
        let turns = if self.stands.is_some() { 1 } else { all.div_ceil(contexts) };
        self.round = turns.clamp(1, LONGEST_ROUND);
        self.ledger.keep(|job| set.contains_key(&job));
        self.set = set;
        let threads = now.queue.iter().map(|job| job.threads.len());
        self.is_small = threads.sum::<usize>() <= FEW_TASKS;
    }

    /// What was measured of one job alone is no measure for it and its partners.
    fn note_partners(&mut self, evidence: &Evidence<'_>) {
        let Some(wake_ups) = evidence.reports.wake_ups.as_deref().filter(|_| self.stands.is_some())
        else {
            return;
        };
        let is_there = |job| self.set.contains_key(&job);
        if self.partners.note(evidence.at, wake_ups, is_there) {
            self.window.clear();
            self.block = Block::default();
            self.bets = Bets::default();
            self.compared = Compared::default();
            self.shows = true;
            self.ledger.keep(|job| self.partners.first(job) == job);
        }
    }

    /// Remembers where the kernel has threads, and puts them there when it gets a quantum again.
    fn note_kernel_places(&mut self, now: &Quantum<'_>, owner: Owner) {
        let threads = || now.queue.iter().flat_map(|job| &job.threads);
        self.initial.clear();
        match (self.now, owner) {
            (Some(Owner::Kernel), _) => {
                let number = |pu: PuIdx| now.machine.pus[pu.idx()].os;
                self.kernel_places =
                    threads().filter_map(|it| Some((it.id, number(it.pu?)))).collect();
            }
            (Some(Owner::Policy), Owner::Kernel) => {
                let place = |id| Some((id, now.machine.pu_by_os(*self.kernel_places.get(&id)?)?));
                let places = threads().filter_map(|thread| place(thread.id));
                self.initial = places.filter(|(_, pu)| now.pus.contains(pu)).collect();
            }
            _ => {}
        }
    }

    fn owner(&self) -> Owner {
        let control = match self.stage {
            Stage::Paused(_) => true,
            Stage::Keeping if self.window.is_empty() => self.since_control >= AFTER_CHANGE,
            Stage::Keeping => self.since_control + 1 >= self.next_control || self.overdrawn() > 0.0,
            Stage::Trying => {
                let round_is_over = self.block.quanta >= self.quanta_compared();
                let is_kernels = self.window.is_empty() || round_is_over || self.another;
                is_kernels || self.overdrawn() > 0.0
            }
        };
        if control { Owner::Kernel } else { Owner::Policy }
    }

    /// Quanta of the policy to the next control while it is tried: as many rounds as the bet on "better" has multiplied its stake. A
    /// policy without a gain gets `n` rounds in a row with a chance of `1/n` at most (Ville). Where plans stand, one round.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn quanta_compared(&self) -> u32 {
        let wealth = if self.stands.is_some() { 1.0 } else { self.bets.all.better.wealth() };
        let most = self.settings.control / self.round;
        self.round * (wealth.round() as u32).clamp(1, most.max(1))
    }

    /// Seconds by which another quantum would go beyond what may be lost; below 0 there is something left.
    fn overdrawn(&self) -> f64 {
        let Guarding { credit, allowed, .. } = self.settings;
        let next = if self.is_short() { SHORT_QUANTUM.as_secs_f64() } else { self.quantum };
        let risk = self.risk.max(0.0) * next;
        self.harm() + risk - credit * self.quantum - allowed * self.elapsed
    }

    /// In how many quanta of the kernel there is something left again.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn quanta_overdrawn(&self) -> u32 {
        let each = self.settings.allowed * self.quantum;
        (self.overdrawn() / each.max(f64::MIN_POSITIVE)).max(0.0) as u32
    }

    /// While jobs take their quanta one after the other, those that are next are behind by nearly a quantum.
    fn harm(&self) -> f64 {
        if self.stands.is_some() {
            return self.ledger.worst();
        }
        let slack = self.quantum * (1.0 - 1.0 / f64::from(self.round));
        self.ledger.harm(&self.set, slack)
    }

    /// Seconds lost so far; 0 where more was gained than lost.
    fn lost(&self) -> f64 {
        self.harm().max(0.0)
    }

    fn note_kernel_quantum(&mut self, sample: Sample, passed: u32) {
        self.controls += u64::from(passed);
        self.shorten_pause(passed);
        if self.before != Some(Owner::Kernel) {
            // What it takes the kernel to put things right is the policy's fault.
            self.charge(&sample);
            return;
        }
        self.since_control = 0;
        self.next_control = self.draw_next_control();
        if self.is_cut_short(&sample) {
            return;
        }
        self.another = false;
        if self.block.quanta > 0 {
            self.block.controls.add(&sample);
            if self.block.quanta >= self.round {
                self.another = self.rng.below(2) == 1;
                self.compare();
            }
        }
        self.window.push_back(sample);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    /// So many quanta of a pause have passed. After the last one the policy is tried again.
    fn shorten_pause(&mut self, passed: u32) {
        let Stage::Paused(left) = self.stage else { return };
        let left = left.saturating_sub(passed);
        if left > 0 {
            self.stage = Stage::Paused(left);
        } else {
            (self.stage, self.verdict) = (Stage::Trying, Verdict::Undecided);
        }
    }

    fn note_policy_quantum(&mut self, sample: &Sample, passed: u32) {
        self.since_control = self.since_control.saturating_add(passed);
        if self.window.is_empty() {
            return;
        }
        if let Some(lost) = self.charge(sample) {
            self.risk += RISK_WEIGHT * (lost.clamp(-1.0, 1.0) - self.risk);
        }
        if !self.is_cut_short(sample) {
            self.block.policy.add(sample);
            self.block.quanta += 1;
        }
        self.check_budget();
    }

    /// Puts into the ledger what came of a quantum, and returns the part of it that was lost; `None` if there is
    /// nothing to compare with.
    fn charge(&mut self, sample: &Sample) -> Option<f64> {
        let mut os = Sample::default();
        self.window.iter().for_each(|control| os.add(control));
        if self.stands.is_some() {
            return self.ledger.note_each(sample, &os, BANK * self.quantum);
        }
        self.ledger.note(sample, &os, &self.speeds, BANK * self.quantum)
    }

    /// Half to one and a half times the default number of quanta.
    fn draw_next_control(&mut self) -> u32 {
        let default = self.settings.control;
        let more = self.rng.below(usize::try_from(default).unwrap_or(usize::MAX));
        default.div_ceil(2) + u32::try_from(more).unwrap_or(0)
    }

    /// A comparison is complete.
    fn compare(&mut self) {
        let Block { policy, controls, .. } = std::mem::take(&mut self.block);
        let mut harmed = None;
        if self.stands.is_some() {
            harmed = self.compare_each(&policy, &controls);
        } else {
            let (p, c) = (policy.rate(&self.speeds), controls.rate(&self.speeds));
            self.take(difference(p, c));
        }
        let all = self.bets.all;
        if let Some((job, compared)) = harmed {
            self.conclude(Verdict::Slows(self.partners.named(job)), &compared);
        } else if all.worse.won(self.settings.error) {
            self.conclude(Verdict::CostsMore, &all);
        } else if all.better.won(self.settings.error) {
            self.conclude(Verdict::Pays, &all);
        } else if all.count >= MEMORY && (self.stands.is_some() || self.stage == Stage::Keeping) {
            self.conclude(Verdict::NoDifference, &all);
        } else if all.count >= MEMORY {
            self.bets = Bets::default();
        }
    }

    /// Comparisons have led to a verdict: says so if it is another one, and acts on it.
    fn conclude(&mut self, verdict: Verdict, compared: &Comparison) {
        if verdict != self.verdict {
            self.report(&verdict, compared);
        }
        if verdict.keeps() {
            (self.stage, self.verdict) = (Stage::Keeping, verdict);
            self.bets = Bets::default();
        } else {
            self.pause(0, verdict);
        }
    }

    /// Takes in by how much more the policy did than the kernel, if it is known.
    fn take(&mut self, difference: Option<f64>) {
        self.bets.all.take(difference, 0.0);
        difference.into_iter().for_each(|x| self.compared.take(x));
    }

    /// Compares what each job did, and the mean of them. A job that does less, if there is one.
    #[allow(clippy::cast_precision_loss)] // jobs are few
    fn compare_each(&mut self, policy: &Sample, controls: &Sample) -> Option<(JobIdx, Comparison)> {
        let all: Vec<(JobIdx, f64)> = policy
            .each(controls)
            .filter_map(|(job, did, by_kernel)| Some((job, difference(did, by_kernel)?)))
            .collect();
        for (job, x) in &all {
            self.bets.each.entry(*job).or_default().take(Some(*x), TOLERATED);
        }
        let sum = all.iter().fold(0.0, |sum, (_, x)| sum + x);
        let mean = (!all.is_empty()).then(|| sum / all.len() as f64);
        self.take(mean);
        self.shows &= mean.is_some_and(|it| it.abs() > bet::MOST && it * self.bets.all.sum > 0.0);
        let error = self.settings.error / self.bets.each.len().max(1) as f64;
        let harmed = self.bets.each.iter().find(|(_, compared)| compared.worse.won(error));
        harmed.map(|(job, compared)| (*job, *compared))
    }

    /// Where it takes long until there is something to spend again, that is a pause.
    fn check_budget(&mut self) {
        let quanta = self.quanta_overdrawn();
        if quanta >= self.settings.patience {
            let verdict = Verdict::OverBudget;
            self.messages.push_back(format!(
                "guard: {} {verdict}: {:.2} of {:.1} s so far; kernel-scheduled for some time",
                self.name,
                self.lost(),
                self.elapsed
            ));
            self.pause(quanta, verdict);
        }
    }

    fn pause(&mut self, least: u32, verdict: Verdict) {
        self.verdict = verdict;
        let quanta = self.settings.pause.saturating_mul(1 << self.pauses.min(DOUBLINGS));
        self.pauses += 1;
        self.stage = Stage::Paused(quanta.max(least));
        self.bets = Bets::default();
        self.block = Block::default();
        self.shows = true;
    }

    /// Whether the next quantum is a short one.
    fn is_short(&self) -> bool {
        self.stands.is_some() && self.stage == Stage::Trying && self.shows && self.is_small
    }

    /// Whether a quantum ended before its time, as something had happened, or its plan was for a part of one.
    fn is_cut_short(&self, sample: &Sample) -> bool {
        let asked = match self.lasts {
            Lasts::Short => SHORT_QUANTUM.as_secs_f64(),
            Lasts::Quanta(_) => self.quantum,
        };
        sample.seconds < CUT_SHORT * asked
    }

    fn report(&mut self, verdict: &Verdict, compared: &Comparison) {
        let Guarding { error, .. } = self.settings;
        self.messages.push_back(format!(
            "guard: {} {verdict}: {:+.1} % progress against the kernel alone, {} comparisons, chance of error at \
             most {:.0} %",
            self.name,
            100.0 * compared.mean(),
            compared.count,
            100.0 * error
        ));
    }

    /// Says once what it cannot see.
    fn check_counts(&mut self, sample: Option<&Sample>) {
        let missing = match sample {
            None => "CPU time is not known: the guard cannot compare, and the kernel chooses",
            Some(sample) if sample.is_counted() => return,
            Some(_) if self.stands.is_some() => return,
            Some(_) => {
                "instructions are not counted: the guard sees PUs that are left idle, but not contention"
            }
        };
        if !std::mem::replace(&mut self.blind, true) {
            self.messages.push_back(format!("guard: {missing}"));
        }
    }
}

impl Guard {
    /// Takes in what came of the last quantum.
    fn note(&mut self, done: &QuantumOutcome<'_>) {
        let Some(owner) = self.now else { return };
        self.quanta += 1;
        let sample = Sample::of(done, |job| self.partners.first(job));
        self.check_counts(sample.as_ref());
        let Some(sample) = sample.filter(|sample| sample.seconds > 0.0) else {
            self.controls += u64::from(owner == Owner::Kernel);
            return;
        };
        self.elapsed += sample.seconds;
        let passed = self.passed(sample.seconds);
        self.quanta += u64::from(passed) - 1;
        if done.throttled {
            self.note_throttled(owner, passed);
            return;
        }
        self.speeds.note(&sample);
        match owner {
            Owner::Kernel => self.note_kernel_quantum(sample, passed),
            Owner::Policy => self.note_policy_quantum(&sample, passed),
        }
    }

    /// What the programs did while a CPU quota throttled them says nothing of the one that has the quantum.
    fn note_throttled(&mut self, owner: Owner, passed: u32) {
        self.throttled += u64::from(passed);
        // The quota may have been used up before that was seen.
        self.window.clear();
        self.block = Block::default();
        match owner {
            Owner::Kernel => {
                self.controls += u64::from(passed);
                self.shorten_pause(passed);
            }
            Owner::Policy => self.since_control = self.since_control.saturating_add(passed),
        }
    }

    /// How many quanta have passed in so many seconds; learns how long one is, where plans do not stand.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn passed(&mut self, seconds: f64) -> u32 {
        if self.stands.is_none() {
            // One that took far too long must not be the measure for ever.
            self.quantum = seconds.max(FORGETS * self.quantum);
        }
        match self.lasts {
            // Something may have ended them early.
            Lasts::Quanta(most) => ((seconds / self.quantum).round() as u32).clamp(1, most),
            Lasts::Short => 1,
        }
    }

    /// For how many quanta a plan that leaves everything to the kernel stands: there is nothing to compare.
    fn quanta_left_alone(&self) -> u32 {
        let period = self.inner.period().map_or(u64::MAX, |period| period.0 / QUANTUM.0);
        u32::try_from(period).unwrap_or(u32::MAX).clamp(1, TOGETHER)
    }

    /// For how many quanta there is nothing to decide.
    fn quanta_together(&self, owner: Owner) -> u32 {
        let left = match (self.stage, owner) {
            _ if self.stands.is_none() || self.before != Some(owner) => 1,
            (Stage::Paused(left), Owner::Kernel) => left,
            (Stage::Keeping, Owner::Policy) if !self.window.is_empty() => {
                self.next_control.saturating_sub(self.since_control + 1)
            }
            (_, Owner::Kernel) if self.block.quanta == 0 => self.quanta_overdrawn(),
            _ => 1,
        };
        left.clamp(1, TOGETHER)
    }

    /// For how long the next plan is.
    fn lasts(&self, owner: Owner, is_left_alone: bool) -> Lasts {
        let quanta =
            if is_left_alone { self.quanta_left_alone() } else { self.quanta_together(owner) };
        if quanta == 1 && self.is_short() { Lasts::Short } else { Lasts::Quanta(quanta) }
    }

    /// The plan of a quantum that is the kernel's. After one of the policy's, that learns what came of it.
    fn kernel_plan(&mut self, evidence: &Evidence<'_>) -> Plan {
        if self.stands.is_some() {
            let initial = evidence.initial(&self.initial);
            return Plan { initial, ..evidence.empty_plan() };
        }
        let mut messages = Vec::new();
        if self.before == Some(Owner::Policy) {
            let learns = self.inner.decide(&Evidence { is_control: true, ..*evidence });
            self.state = learns.state.or(self.state.take());
            messages = learns.messages;
        }
        let initial = evidence.initial(&self.initial);
        Plan { initial, messages, ..evidence.leave_to_kernel() }
    }

    fn policy_plan(&mut self, evidence: &Evidence<'_>) -> Plan {
        let plan = if self.before == Some(Owner::Kernel) {
            // A control is not what the policy chose last, and nothing for it to draw conclusions from.
            let plain = |job: &QueuedJob| QueuedJob {
                just_ran: false,
                had_own_cores: false,
                ..job.clone()
            };
            let queue: Vec<QueuedJob> = evidence.now.queue.iter().map(plain).collect();
            let now = Quantum { queue: &queue, ..evidence.now };
            self.inner.decide(&Evidence { now, last: None, ..*evidence })
        } else {
            self.inner.decide(evidence)
        };
        self.state.clone_from(&plan.state);
        plan
    }

    /// The policy's plan for its quantum, where plans stand: the last one, unless something has happened since, or tasks have
    /// come that it does not name.
    fn standing_plan(&mut self, evidence: &Evidence<'_>, owner: Owner) -> Option<Plan> {
        let stands = self.stands.as_mut()?;
        let is_due = |period| evidence.at >= stands.at + period;
        stands.has_event |= evidence.has_event || self.inner.period().is_some_and(is_due);
        if owner == Owner::Kernel {
            return None;
        }
        let names = |plan: &Plan| {
            self.now == Some(Owner::Policy)
                || evidence.tasks().iter().all(|task| plan.place_of(task.id).is_some())
        };
        if let Some(plan) = stands.plan.as_ref().filter(|plan| !stands.has_event && names(plan)) {
            return Some(plan.clone());
        }
        let plan = self.inner.decide(evidence);
        self.state.clone_from(&plan.state);
        let stays = Plan { pages: Vec::new(), messages: Vec::new(), ..plan.clone() };
        *stands = Standing { plan: Some(stays), has_event: false, at: evidence.at };
        Some(plan)
    }

    /// What it does, in one line, behind what the policy says.
    pub fn state(&self) -> String {
        let pause = match self.stage {
            Stage::Paused(left) => format!(", paused for {left} quanta"),
            Stage::Trying | Stage::Keeping => String::new(),
        };
        let guard = format!(
            "guard: {} {}{pause}, {} of {} quanta the kernel's, lost {:.2} s",
            self.name,
            self.verdict,
            self.controls,
            self.quanta,
            self.lost()
        );
        self.state.as_ref().map_or(guard.clone(), |inner| format!("{inner}; {guard}"))
    }
}

/// Whether a plan puts a task on one PU or several, or one that is created later.
fn places(plan: &Plan) -> bool {
    plan.default_placement != DefaultPlacement::LeaveToKernel
        || plan.decisions.iter().any(|decision| decision.place.named_pu().is_some())
}

impl Policy for Guard {
    /// What the inner policy needs.
    fn needs(&self) -> SourceSet {
        self.inner.needs()
    }

    /// As the inner policy.
    fn period(&self) -> Option<Nanos> {
        self.inner.period()
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        if let Some(last) = &evidence.last {
            self.note(last);
        }
        self.note_jobs(&evidence.now);
        self.note_partners(evidence);
        let mut owner = self.owner();
        let stands = self.standing_plan(evidence, owner);
        let is_left_alone = stands.as_ref().is_some_and(|plan| !places(plan));
        if is_left_alone {
            owner = Owner::Kernel;
        }
        self.note_kernel_places(&evidence.now, owner);
        self.before = self.now.replace(owner);
        let mut plan = match (owner, stands) {
            (_, Some(plan)) => plan,
            (Owner::Kernel, None) => self.kernel_plan(evidence),
            (Owner::Policy, None) => self.policy_plan(evidence),
        };
        plan.messages.splice(0..0, self.messages.drain(..));
        self.lasts = self.lasts(owner, is_left_alone);
        let lasts = match self.lasts {
            _ if self.stands.is_none() => plan.lasts,
            Lasts::Short => Some(SHORT_QUANTUM),
            Lasts::Quanta(quanta) => Some(Nanos(QUANTUM.0 * u64::from(quanta))),
        };
        let has_tried = self.stands.is_none() || self.quanta > self.controls;
        let state = has_tried.then(|| self.state()).or(plan.state);
        Plan { state, lasts, ..plan }
    }
}
