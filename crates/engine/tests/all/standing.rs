//! The guard around a policy whose plans stand until something happens, with a server and a program that computes.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small counts

use crate::guard::machine;
use colocate_engine::guard::{Guarding, QUANTUM, StandingGuard, Verdict};
use colocate_evidence::{JobIdx, SharedPu, SourceReports, SourceSet, TaskId, WakeUps};
use colocate_machine::{Nanos, PuIdx, PuNr};
use colocate_policy::rng::SplitMix64;
use colocate_policy::schedule::{JobUsage, Quantum, QuantumOutcome, QueuedJob, Thread};
use colocate_policy::{Decision, DefaultPlacement, Evidence, Place, PlaceReason, Plan, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn first(job: u32) -> TaskId {
    TaskId { job: JobIdx(job), order: 0 }
}

/// Puts the first task of each job at `place`.
#[derive(Debug)]
struct Puts {
    place: Place,
    asked: Arc<AtomicUsize>,
    period: Option<Nanos>,
}

impl Policy for Puts {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn period(&self) -> Option<Nanos> {
        self.period
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(evidence.has_event || evidence.now.number > 0);
        let decision = |job| Decision {
            task: first(job),
            name: "job".into(),
            place: self.place,
            why: PlaceReason::NotSelected,
        };
        Plan { decisions: (0..2).map(decision).collect(), ..evidence.empty_plan() }
    }
}

/// Two jobs that never end, and what they did so far over what they would have done under the kernel. A server does 4,000
/// requests a second of wall-clock time under the kernel and uses half a PU, the other job uses one and a half; both more or less by a
/// tenth. Under the policy they do so many times as much.
struct Toy {
    under_policy: [f64; 2],
    /// Whether the other job is the server's client, which waits for each answer, and how often both have woken each other.
    is_client: Option<WakeUps>,
    /// PUs that tasks shared in the last quantum.
    shared: Option<Vec<SharedPu>>,
    /// Whether a CPU quota throttles them whenever the plan is in force.
    throttles: bool,
    is_throttled: bool,
    rng: SplitMix64,
    number: u64,
    at: Nanos,
    done: [f64; 2],
    last: Option<(Nanos, Vec<JobUsage>)>,
    /// How often it was decided.
    decided: u64,
    /// When they came.
    messages: Vec<(Nanos, String)>,
}

impl Toy {
    fn new(under_policy: [f64; 2]) -> Self {
        let (done, messages) = ([0.0; 2], Vec::new());
        let (rng, last, at) = (SplitMix64::new(5), None, Nanos::ZERO);
        Self {
            under_policy,
            is_client: None,
            shared: None,
            throttles: false,
            is_throttled: false,
            rng,
            number: 0,
            at,
            done,
            last,
            decided: 0,
            messages,
        }
    }

    /// The other job is the server's client.
    fn with_client(under_policy: [f64; 2]) -> Self {
        let is_client = Some(WakeUps {
            waker: Some(first(0)),
            wakee: first(1),
            count: 0,
            same_pu: None,
            waited: None,
            both_ran: None,
            turns_apart: None,
            turns_together: None,
        });
        Self { is_client, ..Self::new(under_policy) }
    }

    /// For as long as the plan is; how long that is, and whether it was the policy's.
    fn go(&mut self, guard: &mut StandingGuard, has_event: bool) -> (Nanos, bool) {
        let machine = machine();
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let queued = |job| {
            let id = first(job);
            let threads = vec![Thread { id, ran: None, pu: None, runnable: None, bound: false }];
            let (job, runnable) = (JobIdx(job), None);
            QueuedJob { job, threads, runnable, just_ran: true, had_own_cores: false }
        };
        let queue: Vec<QueuedJob> = (0..2).map(queued).collect();
        let now = Quantum { number: self.number, machine: &machine, pus: &pus, queue: &queue };
        let throttled = self.is_throttled;
        let last = self.last.as_ref();
        let last = last.map(|(took, did)| QuantumOutcome { took: *took, did, throttled });
        let at = self.at;
        let count = at.0 / (QUANTUM.0 / 200);
        let wake_ups = self.is_client.map(|both| WakeUps { count, ..both });
        let reports = SourceReports {
            wake_ups: wake_ups.map(|known| vec![known]),
            shared_pus: self.shared.take(),
            ..SourceReports::NONE
        };
        let reports = &reports;
        let evidence =
            Evidence { at, last, reports, has_event, may_wait: false, ..Evidence::of_queue(now) };
        let plan = guard.decide(&evidence);
        assert_eq!(plan.default_placement, DefaultPlacement::LeaveToKernel);
        assert!(plan.waiting().unwrap().is_empty(), "all run all the time");
        let has_it = plan.decisions.iter().any(|decision| decision.place.pu().is_some());
        let took = plan.lasts.unwrap();
        self.is_throttled = self.throttles && has_it;
        let mut did = |job: usize| {
            let mut part = |length: Nanos| {
                let noise = 0.9 + 0.2 * self.rng.unit();
                let speed = noise * if has_it { self.under_policy[job] } else { 1.0 };
                self.done[job] += speed * length.as_secs_f64();
                speed * length.as_secs_f64()
            };
            let quanta = (0..took.0 / QUANTUM.0).map(|_| part(QUANTUM)).sum::<f64>();
            quanta + part(Nanos(took.0 % QUANTUM.0))
        };
        let (server, other) = (did(0), did(1));
        let usage = |job, cpu: f64, switches: f64| JobUsage {
            job: JobIdx(job),
            cpu_time: Some(Nanos((cpu * 1e9) as u64)),
            instructions: None,
            switches: Some(switches as u64),
        };
        // The server uses as much CPU time for more or fewer requests.
        let half = 0.5 * took.as_secs_f64();
        let other = match self.is_client {
            Some(_) => usage(1, half, other * 4_000.0),
            None => usage(1, other * 1.5, 3.0),
        };
        let did = vec![usage(0, half, server * 4_000.0), other];
        self.last = Some((took, did));
        self.messages.extend(plan.messages.into_iter().map(|message| (self.at, message)));
        self.number += 1;
        self.at += took;
        self.decided += 1;
        (took, has_it)
    }

    /// A minute; how many seconds of it the policy had, and the least of what the jobs did over what they would have done.
    fn minute(&mut self, guard: &mut StandingGuard) -> (f64, f64) {
        let begun = self.at;
        let mut had = 0.0;
        while self.at < begun + Nanos::from_secs(60) {
            let (took, has_it) = self.go(guard, self.at == begun);
            had += if has_it { took.as_secs_f64() } else { 0.0 };
        }
        let least = self.done[0].min(self.done[1]);
        (had, least / self.at.as_secs_f64())
    }
}

fn guarded(place: Place) -> (StandingGuard, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let puts = Puts { place, asked: asked.clone(), period: None };
    (StandingGuard::new(Box::new(puts), "puts", Guarding::STANDING), asked)
}

/// A crowded PU ends the policy's quantum and the next one is the kernel's: the policy learns it all the same, and nothing else.
#[test]
fn a_crowded_pu_is_learned_in_the_kernels_quantum() {
    let [over, ran, waited] = [50, 25, 25].map(Nanos::from_millis);
    let crowded = SharedPu { pu: PuNr(1), over, ran, waited };
    for (shared, asked_more) in [(Some(vec![crowded]), 1), (None, 0)] {
        let ((mut guard, asked), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new([1.0; 2]));
        while !toy.go(&mut guard, false).1 {}
        let before = asked.load(Ordering::Relaxed);
        toy.shared = shared;
        let (_, has_it) = toy.go(&mut guard, true);
        assert_eq!((has_it, asked.load(Ordering::Relaxed)), (false, before + asked_more));
    }
}

/// Five times as much, or a third, is no matter of chance.
#[test]
fn much_is_seen_at_once() {
    let verdicts = [([5.0, 1.0], "pays"), ([0.3, 1.0], "costs more than it gains")];
    for (under_policy, verdict) in verdicts {
        let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new(under_policy));
        toy.minute(&mut guard);
        let (at, said) = &toy.messages[0];
        assert!(said.contains(verdict) && *at < Nanos::from_millis(500), "{:?}", toy.messages);
    }
}

/// The kernel's quanta last 5 ms, two of them each 6.4 s: with 50 ms the policy would have 59.1 s.
#[test]
fn what_gains_much_has_nearly_all_the_time() {
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::with_client([5.0; 2]));
    toy.minute(&mut guard);
    let (had, _) = toy.minute(&mut guard);
    assert!(had > 59.6, "{had} {:?}", toy.messages);
}

/// What one job gains is nothing to the other one.
#[test]
fn gives_up_what_harms_one_job() {
    for under_policy in [[0.66, 1.1], [0.4, 1.0], [1.0, 0.45], [1.5, 0.8]] {
        let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new(under_policy));
        let (_, least) = toy.minute(&mut guard);
        assert!(least > 0.99, "{under_policy:?}: {least}, {:?}", toy.messages);
        let (at, first) = &toy.messages[0];
        let says = ["slows", "costs", "has cost"].iter().any(|verdict| first.contains(verdict));
        assert!(says && *at <= Nanos::from_secs(2), "{under_policy:?}: {:?}", toy.messages);
    }
}

#[test]
fn keeps_what_helps_and_what_does_no_harm() {
    for (under_policy, verdict) in [([1.5, 1.0], "pays"), ([1.0, 1.0], "no difference")] {
        let mut all = 0.0;
        for seed in 0..100 {
            let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new(under_policy));
            toy.rng = SplitMix64::new(seed);
            let (had, least) = toy.minute(&mut guard);
            all += had;
            assert!(least > 0.98, "{under_policy:?}: {least}, {:?}", toy.messages);
            assert!(toy.messages[0].1.contains(verdict), "{:?}", toy.messages);
        }
        assert!(all > 3_000.0, "{under_policy:?}: {all} of 6,000 s");
    }
}

/// On one PU a server is preempted by the client that it answers, and does not wait any more. Both are judged together once it is
/// known that they wake each other, and one by one if it is not.
#[test]
fn a_server_and_its_client_are_judged_together() {
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::with_client([0.2, 3.0]));
    let (had, _) = toy.minute(&mut guard);
    assert!(had > 40.0 && toy.messages[0].1.contains("pays"), "{had} {:?}", toy.messages);
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::with_client([0.2, 1.2]));
    toy.minute(&mut guard);
    assert!(toy.messages[0].1.contains("slows jobs 0 and 1 down"), "{:?}", toy.messages);
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::with_client([0.2, 3.0]));
    toy.is_client = None;
    assert!(toy.minute(&mut guard).0 < 5.0, "{:?}", toy.messages);
}

/// While there is nothing to compare several quanta are one.
#[test]
fn what_is_decided_is_not_decided_again_and_again() {
    for under_policy in [[0.66, 1.1], [1.5, 1.0]] {
        let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new(under_policy));
        toy.minute(&mut guard);
        let (decided, at) = (toy.decided, toy.at);
        toy.minute(&mut guard);
        let quanta = (toy.at.0 - at.0) / QUANTUM.0;
        let often = (toy.decided - decided) * 4 < quanta;
        assert!(often, "{} in {quanta}", toy.decided - decided);
    }
}

/// A plan that has paid for a minute harms from then on.
#[test]
fn harm_after_a_gain_is_seen() {
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new([1.3, 1.0]));
    toy.minute(&mut guard);
    (toy.under_policy, toy.done) = ([0.6, 1.0], [0.0; 2]);
    let begun = toy.at.as_secs_f64();
    toy.minute(&mut guard);
    let least = toy.done[0] / (toy.at.as_secs_f64() - begun);
    assert!(least > 0.98, "{least} {:?}", toy.messages);
}

/// The policy is asked when something has happened, however often its plan is in force.
#[test]
fn a_plan_stands_until_something_happens() {
    let ((mut guard, asked), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new([1.5, 1.0]));
    toy.minute(&mut guard);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    toy.minute(&mut guard);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "the second minute begins with an event");
}

/// A policy that follows what happens is asked as often as it wants to be, though several quanta are one.
#[test]
fn a_policy_with_a_period_is_asked_again() {
    let (asked, period) = (Arc::<AtomicUsize>::default(), Some(Nanos::from_secs(1)));
    let puts = Puts { place: Place::Pu(PuNr(1)), asked: asked.clone(), period };
    let mut guard = StandingGuard::new(Box::new(puts), "puts", Guarding::STANDING);
    Toy::new([1.5, 1.0]).minute(&mut guard);
    let asked = asked.load(Ordering::Relaxed);
    assert!((30..=60).contains(&asked), "{asked} times in a minute");
}

/// A plan that moves nothing stands for ten seconds, or as long as the policy's period says.
#[test]
fn what_moves_nothing_is_left_alone() {
    for (period, quanta) in [(None, 200), (Some(Nanos::from_millis(200)), 4)] {
        let puts = Puts { place: Place::LeftToKernel, asked: Arc::default(), period };
        let mut guard = StandingGuard::new(Box::new(puts), "puts", Guarding::STANDING);
        let mut toy = Toy::new([1.0, 1.0]);
        toy.minute(&mut guard);
        let often = toy.at.0 / QUANTUM.0 / quanta;
        // The first quanta are the kernel's, before there is a plan.
        let is_often = (often..often + 4).contains(&toy.decided);
        assert!(is_often, "{period:?}: {} times until {}", toy.decided, toy.at);
    }
}

/// A plan that puts no task on a PU is the kernel's quantum, and nothing is compared.
#[test]
fn what_moves_nothing_is_not_tried() {
    let ((mut guard, _), mut toy) = (guarded(Place::LeftToKernel), Toy::new([0.1, 0.1]));
    assert_eq!(toy.minute(&mut guard).0, 0.0);
    assert_eq!(guard.quanta().0, guard.quanta().1, "all are the kernel's");
    assert!(toy.messages.is_empty(), "{:?}", toy.messages);
}

/// Whatever verdict the guard has said last is what its state says, in the same words, until the policy is tried again.
#[test]
fn the_state_has_the_word_of_the_last_message() {
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new([1.0, 1.0]));
    for (under_policy, awaited) in [
        ([1.0, 1.0], "makes no difference that shows"),
        ([1.5, 1.0], "pays"),
        ([1.5, 0.5], "slows job 1 down"),
    ] {
        toy.under_policy = under_policy;
        let (from, begun) = (toy.messages.len(), toy.at);
        let is_said = |toy: &Toy| toy.messages[from..].iter().any(|it| it.1.contains(awaited));
        while !is_said(&toy) {
            toy.go(&mut guard, false);
            assert!(toy.at < begun + Nanos::from_secs(600), "{awaited}: {:?}", toy.messages);
            let (verdict, state) = (guard.outcome().verdict, guard.state());
            assert!(state.starts_with(&format!("guard: puts {verdict}, ")), "{verdict}: {state}");
            let said = toy.messages.last().map_or("", |(_, message)| message);
            let is_tried = verdict == Verdict::Undecided;
            assert!(is_tried || said.contains(&format!("puts {verdict}: ")), "{verdict}: {said}");
        }
    }
}

/// All do a fifth whenever the plan is in force, but a quota throttles them just then.
#[test]
fn what_a_quota_takes_is_no_loss() {
    let ((mut guard, _), mut toy) = (guarded(Place::Pu(PuNr(1))), Toy::new([0.2, 0.2]));
    toy.throttles = true;
    toy.minute(&mut guard);
    assert!(toy.messages.is_empty(), "{:?}", toy.messages);
    assert!(guard.state().ends_with(", lost 0.00 s"), "{}", guard.state());
    let outcome = guard.outcome();
    assert!(outcome.throttled > 0 && outcome.compared.count == 0, "{outcome:?}");
}
