//! `auto`: alternating tasks share a PU, communicating tasks share a part of the machine, busy
//! tasks with the least overlap share a core, pages and their users are on the same node. All
//! remaining tasks are left to the kernel.
//!
//! # Problem
//! Two threads alternate if each wakes the other and then sleeps. On two PUs each wake-up has to
//! reach another PU, which may be in an idle state, and takes many times as long as on the same PU.
//! Threads that are busy all the time compete for the units of a core if there are more such
//! threads than cores, and the kernel pairs them without regard to this.
//! # Approach
//! Watch wake-ups between tasks. Two tasks share a PU if their wake-ups on two PUs cost more than
//! their simultaneous run time gains; groups of such tasks are kept apart, and no PU is overloaded.
//! Measurements of a pair on two PUs are kept while it is on one. Other tasks that lose by distant
//! wake-ups form a team, which the kernel may schedule on all PUs of a part of the machine with
//! enough cores. On the remaining cores, busy tasks of known mix that do not communicate are paired
//! as by `mix`, if cores have to be shared and random pairs would overlap more. No other task is
//! placed.
//! # Terms
//! *Gain*: seconds per second, see [`colocate_model::communication`]. *Group*: tasks that share a
//! PU. *Team*: tasks that share a part of the machine. *Clash*: see `mix`.
//! # Algorithm
//! Each [`PERIOD`]: update the statistics ([`WakeUpTraffic`]), join tasks with a gain ([`groups`]),
//! give each group a PU ([`seats`]) and each team a part of the machine ([`parts`]). Of the
//! remaining tasks, busy tasks ([`BUSY`]) share the cores without a group, if they are more than
//! these cores and at most as many as their PUs. They stay until another task becomes busy, or one
//! of them no longer is. On machines with several nodes, page groups and tasks are brought near
//! each other ([`pages`]).
//! # Properties
//! - **Follows what happens**: a pair that ceases to take turns is left to the kernel.
//!   -> test `a_pair_comes_and_goes`
//! - **Not where others are**: a group leaves a PU that others crowd, and comes back.
//!   -> test `a_group_leaves_a_crowded_pu`
//! - **One PU is the last resort**: a group has a core or cache where that is as good.
//!   -> test `a_slow_pair_has_a_core`
//! - **Tried for a gain**: a group is put on a PU once what it would have gained since it is known is
//!   several times what the [`trial`] may lose. -> test `tried_when_that_would_have_paid`
//! - **Unknown is the kernel's**: without wake-ups and mixes nothing is placed.
//!   -> test `nothing_is_placed_without_evidence`
//! - **Pairs where it counts**: busy tasks share cores as under `mix`, but not while each has a
//!   core, nor where all pairs are alike. -> test `busy_tasks_are_paired_where_cores_are_shared`
//! - **Does not separate**: busy tasks that communicate are left to the kernel.
//!   -> test `those_that_communicate_are_not_paired`
//! - **Near**: a team has a part of the machine while it communicates.
//!   -> test `a_team_has_a_part_of_the_machine`
//! - **Together**: a group and pairs have cores of their own. -> test `a_group_beside_pairs`

mod crowded;
mod pages;
mod pairs;
mod trial;

use crate::communication::groups::{PuGroup, as_good, communicating, groups, seats};
use crate::communication::teams::{Now, PartAtPu, parts, teams};
use crate::communication::traffic::{PairPlace, WakeUpTraffic};
use crate::communication::{ByTask, TaskSet};
use crate::evidence::Evidence;
use crate::places::UsableMachine;
use crate::plan::{MAX_PARTNERS, PlaceReason, Plan, Task};
use crate::policies::MIX;
use crate::policy::Policy;
use crate::row::{PolicyRow, Purpose};
use colocate_evidence::{Source, SourceSet, TaskId};
use colocate_machine::{Nanos, PuIdx, SharedPart};
use colocate_model::communication::WakeUpCosts;
use crowded::CrowdedPus;
use pages::Pages;
use pairs::BusyPairs;
use std::collections::{BTreeMap, BTreeSet};

/// Row in the table of policies.
pub static ROW: PolicyRow = PolicyRow {
    name: "auto",
    purpose: Purpose::Recommended,
    summary: "has communicating tasks share a PU, a cache or a node; pairs busy ones",
    source: "ours",
    make: |_, known| {
        Box::new(Auto {
            costs: known.wake_ups.unwrap_or_default(),
            shares_cores: known.shares_cores,
            has_nodes: known.has_nodes,
            ..Auto::default()
        })
    },
    ..PolicyRow::ONCE
};

/// Time between two decisions. Chosen: reacts within half a second.
const PERIOD: Nanos = Nanos::from_millis(200);
/// Time between decisions until rates are known, and what tasks that were put on one PU gain by it.
/// Chosen: enough for a rate.
const FIRST: Nanos = Nanos::from_millis(20);
/// Time after the first decision within which wake-ups begin to be counted, if they are at all.
/// Chosen: ten times what it takes.
const COUNTED_WITHIN: Nanos = Nanos::from_secs(1);
/// Time between decisions while a group will soon be worth a trial, or much begins to depend on the
/// kernel. Chosen: enough for another rate.
const SOON: Nanos = Nanos::from_millis(50);
/// Time for which much has depended on the kernel, over the time between decisions. What the kernel
/// has kept for long it mostly keeps. Chosen: [`PERIOD`] after 1.6 s.
const KEEPS: u64 = 8;
/// Least busy share of a paired task. Chosen: a task that sleeps for half of the time leaves its
/// core to another task.
const BUSY: f64 = 0.6;
/// Least busy share of a task that stays paired.
const STAYS_BUSY: f64 = 0.3;

#[derive(Debug, Default)]
struct Auto {
    costs: WakeUpCosts,
    /// Some cores have several PUs.
    shares_cores: bool,
    /// The machine has several memory nodes.
    has_nodes: bool,
    traffic: WakeUpTraffic,
    /// PUs of tasks in groups.
    seats: BTreeMap<TaskId, PuIdx>,
    /// Tasks of groups for which a part of the machine around their PU is as good.
    near: BTreeMap<TaskId, SharedPart>,
    /// Reasons of tasks in groups and teams.
    reasons: BTreeMap<TaskId, PlaceReason>,
    gain: f64,
    /// First and last decision.
    decided: Option<(Nanos, Nanos)>,
    /// The price of wake-ups of some tasks in groups is an expectation.
    expects: bool,
    /// Since when some tasks in no group would lose much if the kernel ceased to keep them on one PU.
    depends_on_kernel: Option<Nanos>,
    /// Some groups will be worth a trial soon.
    has_untried: bool,
    /// PUs that groups leave to others.
    crowded: CrowdedPus,
    /// Parts of tasks in teams.
    parts: BTreeMap<TaskId, PartAtPu>,
    pairs: BusyPairs,
    pages: Pages,
}

impl Policy for Auto {
    fn needs(&self) -> SourceSet {
        let turns = SourceSet::of(&[Source::WakeUps, Source::RunStates]);
        let with_mixes = if self.shares_cores { turns.and(MIX) } else { turns };
        if self.has_nodes { with_mixes.and(SourceSet::of(&[Source::Pages])) } else { with_mixes }
    }

    fn period(&self) -> Option<Nanos> {
        let is_early = self.decided.is_none_or(|(first, last)| last < first + COUNTED_WITHIN);
        let period = if self.traffic.is_new() && is_early || self.expects {
            FIRST
        } else if self.has_untried {
            SOON
        } else if let (Some(since), Some((_, last))) = (self.depends_on_kernel, self.decided) {
            Nanos(last.saturating_sub(since).0 / KEEPS).clamp(SOON, PERIOD)
        } else {
            PERIOD
        };
        Some(period)
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let (first, _) = self.decided.unwrap_or((evidence.at, evidence.at));
        self.decided = Some((first, evidence.at));
        let places = UsableMachine::new(evidence.now.machine, evidence.now.pus);
        let is_news = evidence.reports.wake_ups.as_deref().is_some_and(|known| {
            let placed = self.seats.keys().map(|task| match self.near.contains_key(task) {
                true => (*task, PairPlace::Near),
                false => (*task, PairPlace::OnePu),
            });
            let placed: ByTask<PairPlace> = placed.collect();
            let place = |task| placed.get(&task).copied().unwrap_or(PairPlace::Kernels);
            self.traffic.note(evidence.at, known, evidence.now.queue, place, &self.costs)
        });
        let is_crowded = self.note_crowded(evidence);
        // A lost or crowded PU cannot wait for the next rates.
        if is_news || is_crowded || self.seats.values().any(|pu| !places.pus.contains(pu)) {
            self.choose(evidence, &places);
            let (seats, near) = (&self.seats, &self.near);
            let share = |(a, b)| {
                !near.contains_key(&a) && seats.get(&a).is_some_and(|pu| seats.get(&b) == Some(pu))
            };
            self.expects = self.traffic.expects(share);
            let depends = self.traffic.depends_on_kernel(&self.costs, share);
            self.depends_on_kernel = depends.then(|| self.depends_on_kernel.unwrap_or(evidence.at));
        }
        if self.shares_cores {
            self.pair(evidence, &places);
        }
        // The plan of a control quantum is not applied, so its orders would be lost.
        let pages = if evidence.is_control || !self.has_nodes {
            Vec::new()
        } else {
            self.pages.decide(evidence, &places, communicating(&self.traffic, &self.costs))
        };
        Plan { pages, ..self.plan(evidence) }
    }
}

impl Auto {
    /// True if a group has to leave its PU, which others crowd.
    fn note_crowded(&mut self, evidence: &Evidence<'_>) -> bool {
        let shared = evidence.reports.shared_pus.as_deref().unwrap_or_default();
        let with_groups: BTreeSet<PuIdx> = self.seats.values().copied().collect();
        let free = evidence.now.pus.iter().filter(|pu| !with_groups.contains(pu));
        let free: Vec<_> = free.map(|pu| evidence.number(*pu)).collect();
        let known = |pu| {
            let pu = evidence.now.machine.pu_by_os(pu)?;
            let on = self.seats.iter().filter(|seat| *seat.1 == pu).map(|seat| *seat.0);
            let on: Vec<TaskId> = on.collect();
            let is_measured = !self.traffic.expects(|(a, b)| on.contains(&a) && on.contains(&b));
            is_measured.then(|| (self.traffic.overlap(&on), self.traffic.gain(&on, &self.costs)))
        };
        self.crowded.note(evidence.at, shared, &free, known)
    }

    fn choose(&mut self, evidence: &Evidence<'_>, places: &UsableMachine<'_>) {
        let mut free = places.pus.clone();
        free.retain(|pu| !self.crowded.has(evidence.number(*pu), evidence.at));
        let free = UsableMachine::new(places.machine, &free);
        let mut groups = groups(&self.traffic, &self.costs);
        groups.retain(|_| !free.pus.is_empty());
        let grouped: TaskSet = groups.iter().flat_map(|group| &group.tasks).copied().collect();
        let teams =
            teams(&self.traffic, &self.costs, places, &self.parts, |task| !grouped.contains(&task));
        self.keep_worthwhile(&mut groups, &grouped, places.pus.len());
        let groups_and_teams =
            groups.iter().map(|group| &group.tasks).chain(teams.iter().map(|team| &team.tasks));
        let members: TaskSet = groups_and_teams.flatten().copied().collect();
        let mut load: BTreeMap<PuIdx, f64> = BTreeMap::new();
        // Bound tasks count apart: a group cannot displace them.
        let mut bound = load.clone();
        let mut ran: BTreeMap<TaskId, PuIdx> = BTreeMap::new();
        for thread in evidence.now.queue.iter().flat_map(|job| &job.threads) {
            let Some(pu) = thread.pu else { continue };
            if members.contains(&thread.id) {
                // Only the choice of a team's part reads the last PUs.
                if !teams.is_empty() {
                    ran.insert(thread.id, pu);
                }
            } else {
                let of = if thread.bound { &mut bound } else { &mut load };
                *of.entry(pu).or_default() += self.traffic.busy(thread.id);
            }
        }
        let seats = seats(&groups, &self.traffic, &self.costs, &free, &self.seats, &load, &bound);
        self.seats.clear();
        self.near.clear();
        self.reasons.clear();
        self.gain = groups.iter().fold(0.0, |sum, group| sum + group.gain);
        for (group, pu) in groups.iter().zip(seats) {
            let part = as_good(group, pu, &self.costs, places);
            for task in &group.tasks {
                self.near.extend(part.map(|part| (*task, part)));
                let partners = group.tasks.iter().filter(|other| *other != task);
                let partners = partners.take(MAX_PARTNERS).copied().collect();
                self.seats.insert(*task, pu);
                self.reasons.insert(*task, PlaceReason::TakesTurns { partners, gain: group.gain });
                *load.entry(pu).or_default() += self.traffic.busy(*task);
            }
        }
        // Teams see all load: groups, bound tasks and the rest.
        bound.iter().for_each(|(pu, busy)| *load.entry(*pu).or_default() += busy);
        let now = Now { parts: &self.parts, seats: &self.seats, ran: &ran, load: &load };
        let found = parts(&teams, &self.traffic, places, now);
        self.parts.clear();
        for (team, part) in teams.iter().zip(found) {
            let Some(part) = part else { continue };
            for (task, &partner) in team.tasks.iter().zip(&team.partners) {
                self.parts.insert(*task, part);
                self.reasons.insert(*task, PlaceReason::Near { partner });
            }
        }
    }

    /// Leaves out groups that are not worth a trial yet. `grouped` are the tasks of all of them.
    fn keep_worthwhile(&mut self, groups: &mut Vec<PuGroup>, grouped: &TaskSet, pus: usize) {
        let talk = communicating(&self.traffic, &self.costs);
        let others = talk.iter().filter(|task| !grouped.contains(task));
        let others = others.map(|task| self.traffic.busy(*task)).sum();
        let idle = trial::idle(groups, others, pus);
        let mut soonest = f64::INFINITY;
        groups.retain(|group| {
            let until = trial::until_worth(group, idle);
            let has_pu = group.tasks.iter().any(|task| self.seats.contains_key(task));
            if until > 0.0 && !has_pu {
                soonest = soonest.min(until);
            }
            until <= 0.0 || has_pu
        });
        self.has_untried = soonest < PERIOD.as_secs_f64();
    }

    /// Pairs busy ungrouped tasks on the cores without a group.
    fn pair(&mut self, evidence: &Evidence<'_>, places: &UsableMachine<'_>) {
        let machine = places.machine;
        let taken: BTreeSet<_> = self.seats.values().map(|pu| machine.core_of(*pu)).collect();
        let mut free = places.pus.clone();
        free.retain(|pu| {
            let is_crowded = self.crowded.has(evidence.number(*pu), evidence.at);
            !is_crowded && !taken.contains(&machine.core_of(*pu))
        });
        let tasks = evidence.tasks();
        let mut busy: Vec<&Task> = tasks.iter().filter(|task| self.is_paired(task)).collect();
        if !busy.is_empty() {
            let talk = communicating(&self.traffic, &self.costs);
            busy.retain(|task| !talk.contains(&task.id));
        }
        // Only on a change: a new matching by slightly other mixes would move tasks for nothing.
        if busy.iter().map(|task| task.id).ne(self.pairs.tasks.iter().copied())
            || free != self.pairs.pus
        {
            self.pairs =
                BusyPairs::of(&UsableMachine::new(machine, &free), &busy, &self.pairs.seats);
        }
    }

    fn is_paired(&self, task: &Task) -> bool {
        let was = self.pairs.tasks.binary_search(&task.id).is_ok();
        // Before the first rates, the profile's busy share is the best estimate.
        let busy = self.traffic.known_busy(task.id).unwrap_or_else(|| task.weight());
        let is_busy = busy >= if was { STAYS_BUSY } else { BUSY };
        is_busy && !task.mix.is_unknown() && !self.seats.contains_key(&task.id)
    }

    fn plan(&self, evidence: &Evidence<'_>) -> Plan {
        let seats = self.seats.iter().map(|(task, pu)| match self.near.get(task) {
            Some(part) => (*task, evidence.sharing(*part, *pu)),
            None => (*task, evidence.on(*pu)),
        });
        let parts = self.parts.iter();
        let parts = parts.map(|(task, (shared, pu))| (*task, evidence.sharing(*shared, *pu)));
        let reasoned =
            seats.chain(parts).map(|(task, place)| (task, place, self.reasons[&task].clone()));
        let pairs = self.pairs.seats.iter();
        let pairs = pairs.map(|(task, pu, why)| (*task, evidence.on(*pu), why.clone()));
        // A group, team or pair takes precedence over the node of the memory.
        let held = self.pages.held.iter().filter(|(task, _)| !self.is_placed(task));
        let held = held.filter_map(|(task, node)| {
            // A part is named by one of its usable PUs.
            let pu =
                evidence.now.machine.home_pus(*node).find(|pu| evidence.now.pus.contains(pu))?;
            Some((*task, evidence.sharing(SharedPart::Node, pu), PlaceReason::NearPages))
        });
        let turns = (!self.seats.is_empty())
            .then(|| format!("expected to gain {:.2} s a second", self.gain));
        let crowded = self.crowded.at(evidence.at);
        let crowded = crowded.map(|pu| format!("{pu} is left to others"));
        let both = turns.into_iter().chain(self.pairs.predicted.clone()).chain(crowded);
        let both: Vec<String> = both.collect();
        let predicted = (!both.is_empty()).then(|| both.join("; "));
        Plan { predicted, ..evidence.plan_of_some(reasoned.chain(pairs).chain(held)) }
    }

    /// True if the task is in a group, a team or a pair.
    fn is_placed(&self, task: &TaskId) -> bool {
        self.seats.contains_key(task)
            || self.parts.contains_key(task)
            || self.pairs.seats.iter().any(|(paired, ..)| paired == task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Quantum, QueuedJob, Thread};
    use crate::testing::{letters, machine};
    use crate::{Decision, Place};
    use colocate_evidence::{JobIdx, SharedPu, SourceReports, Turns, WakeUps};
    use colocate_machine::PuNr;

    fn task(job: u32) -> TaskId {
        TaskId { job: JobIdx(job), order: 0 }
    }

    fn auto(shares_cores: bool) -> Auto {
        Auto { shares_cores, ..Auto::default() }
    }

    /// Observation until `ms` of the jobs 0, 1, … with one thread each: busy shares, and the number
    /// of wake-ups between jobs 0 and 1 on two PUs, 30 µs each.
    struct Seen<'a> {
        machine: &'a str,
        ms: u64,
        busy: &'a [f64],
        wake_ups: Option<u64>,
        mixes: &'a str,
    }

    /// Task 0 wakes task 1 on another PU, 30 µs later each time.
    fn woken(count: u64, turns_apart: Option<Turns>) -> WakeUps {
        WakeUps {
            waker: Some(task(0)),
            wakee: task(1),
            count,
            same_pu: Some(0),
            waited: Some(Nanos(count * 30_000)),
            both_ran: Some(Nanos::ZERO),
            turns_apart,
            turns_together: None,
        }
    }

    impl Seen<'_> {
        /// Which jobs are placed, and where.
        fn decided(&self, auto: &mut Auto) -> Vec<(u32, u32)> {
            let place = |it: &Decision| Some((it.task.job.0, it.place.pu()?.0));
            self.plan(auto).decisions.iter().filter_map(place).collect()
        }

        fn plan(&self, auto: &mut Auto) -> Plan {
            self.plan_beside(auto, None, None)
        }

        /// The tasks on one PU ran for half of the last 50 ms and waited for the rest, if a PU is named. `apart` are the turns on two
        /// PUs.
        fn plan_beside(
            &self,
            auto: &mut Auto,
            crowded: Option<PuNr>,
            apart: Option<Turns>,
        ) -> Plan {
            self.plan_of(auto, self.wake_ups.map(|count| woken(count, apart)), crowded)
        }

        fn plan_of(&self, auto: &mut Auto, woken: Option<WakeUps>, crowded: Option<PuNr>) -> Plan {
            let machine = machine(self.machine);
            let pus: Vec<PuIdx> = machine.all_pus().collect();
            let job = |(job, busy): (u32, &f64)| QueuedJob {
                job: JobIdx(job),
                threads: vec![Thread {
                    id: task(job),
                    ran: None,
                    pu: Some(pus[job as usize % pus.len()]),
                    runnable: Some(*busy),
                    bound: false,
                }],
                runnable: None,
                just_ran: true,
                had_own_cores: false,
            };
            let queue: Vec<QueuedJob> = (0..).zip(self.busy).map(job).collect();
            let letters = letters(&"ABCDEFGH"[..self.busy.len()], self.mixes);
            let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
            let evidence = Evidence {
                at: Nanos::from_millis(self.ms),
                reports: &SourceReports {
                    wake_ups: woken.map(|it| vec![it]),
                    shared_pus: crowded.map(|pu| {
                        let [over, ran, waited] = [50, 25, 25].map(Nanos::from_millis);
                        vec![SharedPu { pu, over, ran, waited }]
                    }),
                    ..SourceReports::NONE
                },
                expected: &|| letters.clone(),
                ..Evidence::of_queue(now)
            };
            auto.decide(&evidence)
        }
    }

    /// 1,000 wake-ups a second lose 26 ms a second at 30 µs, and 4 ms less on one PU than on the two of a core: these are as good. So
    /// little is tried after some minutes.
    #[test]
    fn a_slow_pair_has_a_core() {
        let mut auto = auto(false);
        let mut places = |ms, count| {
            let (machine, wake_ups) = ("l3:2 core:2 pu:2", Some(count));
            let seen = Seen { machine, ms, busy: &[0.5; 2], wake_ups, mixes: "" };
            let apart = Some(Turns { count, total: Nanos(count * 30_000) });
            let plan = seen.plan_beside(&mut auto, None, apart);
            let places = plan.decisions.iter().map(|it| it.place).collect::<Vec<_>>();
            (places, auto.period())
        };
        let core = Place::Sharing(SharedPart::Core, PuNr(0));
        assert_eq!(places(0, 0), (vec![Place::LeftToKernel; 2], Some(FIRST)));
        let at = 250_000;
        assert_eq!(places(at, at), (vec![core; 2], Some(PERIOD)), "no turns on one PU to come");
        assert_eq!(places(at + 100, at + 100), (vec![core; 2], Some(PERIOD)));
        assert_eq!(places(at + 3_000, at + 100), (vec![Place::LeftToKernel; 2], Some(PERIOD)));
    }

    #[test]
    fn a_pair_comes_and_goes() {
        let mut auto = auto(false);
        let mut decided = |ms, count| {
            let wake_ups = Some(count);
            Seen { machine: "core:2", ms, busy: &[0.5; 2], wake_ups, mixes: "" }.decided(&mut auto)
        };
        assert_eq!(decided(0, 0), []);
        assert_eq!(decided(100, 4_000), [(0, 0), (1, 0)]);
        assert_eq!(decided(110, 4_000), [(0, 0), (1, 0)]);
        assert_eq!(decided(3_000, 4_000), []);
    }

    /// Neither group is worth a trial yet; one is on a PU already.
    #[test]
    fn a_group_on_a_pu_needs_no_trial() {
        let of = |tasks| PuGroup { tasks, gain: 0.5, busy: 1.0, ..PuGroup::default() };
        let placed = of(vec![task(0), task(1)]);
        let mut groups = vec![placed.clone(), of(vec![task(2), task(3)])];
        let mut auto = auto(false);
        auto.seats.insert(task(0), PuIdx(0));
        auto.keep_worthwhile(&mut groups, &TaskSet::default(), 4);
        assert_eq!(groups, [placed]);
        assert!(auto.has_untried, "the other one will be soon");
    }

    /// Another program computes on PU 0, then also on PU 1: the pair goes to PU 1, then to the kernel, and comes back.
    #[test]
    fn a_group_leaves_a_crowded_pu() {
        let mut auto = auto(false);
        let mut decided = |ms, crowded: Option<u32>| {
            let (busy, wake_ups) = (&[0.5; 2], Some(ms * 10));
            let seen = Seen { machine: "core:2", ms, busy, wake_ups, mixes: "" };
            let plan = seen.plan_beside(&mut auto, crowded.map(PuNr), None);
            let places = plan.decisions.iter().filter_map(|it| Some(it.place.pu()?.0));
            (places.collect::<Vec<u32>>(), plan.predicted.unwrap_or_default())
        };
        assert_eq!(decided(0, None).0, [0; 0]);
        assert_eq!(decided(1_000, None).0, [0; 2]);
        assert_eq!(decided(1_010, Some(0)).0, [1; 2]);
        let left = "cpu0 is left to others; cpu1 is left to others";
        assert_eq!(decided(1_020, Some(1)), (vec![], left.to_owned()));
        assert_eq!(decided(1_190, None).0, [0; 0]);
        assert_eq!(decided(1_230, None).0, [0; 2]);
    }

    /// All three PUs are crowded, then the third one is gone.
    #[test]
    fn a_crowded_pu_may_go() {
        let mut auto = auto(false);
        let mut decided = |machine, ms, crowded: Option<u32>| {
            let (busy, wake_ups) = (&[0.5; 2], Some(ms * 10));
            let seen = Seen { machine, ms, busy, wake_ups, mixes: "" };
            let plan = seen.plan_beside(&mut auto, crowded.map(PuNr), None);
            plan.decisions.iter().filter_map(|it| Some(it.place.pu()?.0)).collect::<Vec<u32>>()
        };
        decided("core:3", 0, None);
        decided("core:3", 1_000, None);
        assert_eq!(decided("core:3", 1_010, Some(0)), [1; 2]);
        assert_eq!(decided("core:3", 1_020, Some(1)), [2; 2]);
        assert_eq!(decided("core:3", 1_030, Some(2)), [0; 0]);
        assert_eq!(decided("core:2", 1_080, None), [0; 0]);
        assert_eq!(decided("core:2", 1_230, None), [0; 2]);
    }

    /// Wake-ups are counted from the third time on, which are no rate until the fourth; it is asked sooner until then.
    #[test]
    fn what_was_not_counted_is_no_rate_of_0() {
        let mut auto = auto(false);
        let mut decided = |ms, wake_ups, period| {
            let seen = Seen { machine: "core:2", ms, busy: &[0.5; 2], wake_ups, mixes: "" };
            let placed = !seen.decided(&mut auto).is_empty();
            assert_eq!(auto.period(), Some(period));
            placed
        };
        assert!(!decided(0, None, FIRST) && !decided(200, None, FIRST));
        assert!(!decided(250, Some(70), FIRST) && decided(300, Some(4_070), PERIOD));
    }

    /// The kernel keeps a pair with 100,000 wake-ups a second on one PU.
    #[test]
    fn what_the_kernel_keeps_is_looked_at_less_often() {
        let mut auto = auto(false);
        let mut period = |ms: u64| {
            let seen = Seen { machine: "core:2", ms, busy: &[0.5; 2], wake_ups: None, mixes: "" };
            let same_pu = Some(ms * 100);
            let waited = Some(Nanos(ms * 100 * 3_000));
            let kept = WakeUps { same_pu, waited, ..woken(ms * 100, None) };
            seen.plan_of(&mut auto, Some(kept), None);
            auto.period()
        };
        assert_eq!(period(0), Some(FIRST));
        assert_eq!(
            [100, 200, 900].map(&mut period),
            [Some(SOON), Some(SOON), Some(Nanos::from_millis(100))]
        );
        assert_eq!(period(2_000), Some(PERIOD));
    }

    #[test]
    fn nothing_is_placed_without_evidence() {
        for shares_cores in [false, true] {
            let mut auto = auto(shares_cores);
            for ms in [0, 100, 200] {
                let (machine, busy) = ("core:2 pu:2", &[1.0; 4]);
                let seen = Seen { machine, ms, busy, wake_ups: None, mixes: "" };
                assert_eq!(seen.decided(&mut auto), []);
            }
        }
    }

    /// Two tasks multiply and two branch. Three of four are busy, then two, then again three.
    #[test]
    fn busy_tasks_are_paired_where_cores_are_shared() {
        let mut auto = auto(true);
        let mut decided = |ms, busy: &[f64], mixes| {
            let machine = "core:2 pu:2";
            Seen { machine, ms, busy, wake_ups: Some(0), mixes }.decided(&mut auto)
        };
        let unlike = "A f80, B f80, C b80, D b80";
        assert_eq!(decided(0, &[1.0; 4], unlike), [(0, 0), (1, 2), (2, 3), (3, 1)]);
        let (paired, alone) = (vec![(0, 0), (1, 2), (2, 3), (3, 1)], vec![]);
        assert_eq!(decided(1_000, &[1.0, 0.5, 1.0, 1.0], unlike), paired);
        assert_eq!(decided(3_000, &[1.0, 0.1, 0.1, 1.0], unlike), alone, "each has a core");
        assert_eq!(decided(5_000, &[1.0; 4], "A f80, B f80, C f80, D f80"), alone, "all are alike");
        assert_eq!(decided(9_000, &[1.0; 8], unlike), alone, "the others are not known");
    }

    /// 0 and 1 wake each other often, and work at the same time.
    #[test]
    fn those_that_communicate_are_not_paired() {
        let mut auto = auto(true);
        let mut decided = |ms, wake_ups| {
            let (machine, mixes) = ("core:2 pu:2", "A f80, B f80, C b80, D b80");
            let busy = &[1.0; 4];
            Seen { machine, ms, busy, wake_ups: Some(wake_ups), mixes }.decided(&mut auto)
        };
        assert_eq!(decided(0, 0).len(), 4);
        assert_eq!(decided(1_000, 1_000), []);
    }

    /// 0 and 1 wake each other often and work at the same time, on two caches of two cores.
    #[test]
    fn a_team_has_a_part_of_the_machine() {
        let mut auto = auto(false);
        let mut decided = |ms, count| {
            let (machine, busy) = ("l3:2 core:3", &[0.8, 0.8]);
            let seen = Seen { machine, ms, busy, wake_ups: Some(count), mixes: "" };
            let plan = seen.plan(&mut auto);
            let places = plan.decisions.iter().map(|it| it.place);
            places.filter(|place| *place != Place::LeftToKernel).collect::<Vec<_>>()
        };
        let cache = Place::Sharing(SharedPart::Cache, PuNr(0));
        assert_eq!(decided(0, 0), []);
        assert_eq!(decided(100, 2_000), [cache; 2]);
        assert_eq!(decided(110, 2_000), [cache; 2]);
        assert_eq!(decided(5_000, 2_000), []);
    }

    /// 0 and 1 take turns on one core; of the others two share a core, and not the two that multiply.
    #[test]
    fn a_group_beside_pairs() {
        let mut auto = auto(true);
        let mut decided = |ms, wake_ups| {
            let (machine, busy) = ("core:3 pu:2", &[0.5, 0.5, 1.0, 1.0, 1.0]);
            let mixes = "A f80, B f80, C f80, D f80, E b80";
            Seen { machine, ms, busy, wake_ups: Some(wake_ups), mixes }.decided(&mut auto)
        };
        decided(0, 0);
        let places = decided(1_000, 10_000);
        let core = |job: u32| places.iter().find(|place| place.0 == job).unwrap().1 / 2;
        assert_eq!(core(0), core(1));
        assert!((2..5).all(|job| core(job) != core(0)), "{places:?}");
        assert_ne!(core(2), core(3), "{places:?}");
    }
}
