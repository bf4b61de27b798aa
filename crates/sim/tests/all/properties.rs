//! Properties of generated scenarios. Every simulation checks its own invariants; one that is broken makes
//! these tests fail.

use crate::common;

use colocate_engine::{Host, KnownJob, RunSettings, Until, first_plan};
use colocate_evidence::{QuantumEnd, SourceSet};
use colocate_machine::{Bytes, Nanos, NodeIdx, PuNr, SharedPart};
use colocate_model::Assumptions;
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Place, Plan, PolicySpec};
use colocate_sim::run::knowns;
use colocate_sim::{
    Barrier, BarrierWait, Fetch, Fork, JobSpec, KernelScheduler, MemorySpec, MemoryUse, Method,
    NumaBalancing, Outcome, Pages, PeriodicBalance, PhaseIdx, PhaseSegment, Platform, PuEvent,
    Scenario, Serial, SimHost, ThreadSpec, TotalWork, Wake, WakeAffine,
};
use common::{INT, MUL, STREAM, job, run, scenario, stretch};
use proptest::prelude::*;

/// One that sleeps works for long enough that all work is done before the horizon: a course repeats until it is.
fn any_stretch() -> impl Strategy<Value = PhaseSegment> {
    const LEAST_BESIDE_SLEEP: u64 = 1_000_000;
    let sleep = prop_oneof![3 => Just(0_u64), 1 => 1..20_u64];
    (prop::sample::select(vec![INT, MUL, STREAM]), 1..60_000_000_u64, sleep).prop_map(
        |(phase, instructions, sleep)| PhaseSegment {
            sleep: Nanos::from_millis(sleep),
            ..stretch(phase, instructions.max(if sleep > 0 { LEAST_BESIDE_SLEEP } else { 1 }))
        },
    )
}

fn any_thread() -> impl Strategy<Value = ThreadSpec> {
    let work = prop_oneof![
        Just(TotalWork::Once),
        (1..200_000_000_u64).prop_map(TotalWork::Instructions),
        (1..300_u64).prop_map(|ms| TotalWork::AloneFor(Nanos::from_millis(ms))),
    ];
    let pages = prop_oneof![
        Just(Pages::FirstTouch),
        Just(Pages::FirstThread),
        Just(Pages::Interleaved),
        Just(Pages::On(NodeIdx(1))),
    ];
    (prop::collection::vec(any_stretch(), 1..4), work, pages, 0..50_u64, 0..512_u64).prop_map(
        |(course, work, pages, born, mib)| ThreadSpec {
            name: "t".into(),
            born: Nanos::from_millis(born),
            course,
            work,
            pages,
            resident: Bytes::mib(mib),
        },
    )
}

fn any_barrier() -> impl Strategy<Value = Option<Barrier>> {
    let wait = prop_oneof![
        Just(BarrierWait::Sleep),
        prop::sample::select(vec![INT, MUL]).prop_map(|phase| BarrierWait::Spin(PhaseIdx(phase))),
    ];
    let serial = (prop::sample::select(vec![INT, STREAM]), 1..5_000_000_u64);
    let serial =
        serial.prop_map(|(phase, instructions)| Serial { phase: PhaseIdx(phase), instructions });
    let barrier = (wait, prop::option::of(serial));
    prop::option::of(barrier.prop_map(|(wait, serial)| Barrier { wait, serial }))
}

/// Every thread comes to the barrier after its first stretch, if there is one.
fn any_job() -> impl Strategy<Value = JobSpec> {
    let threads = prop::collection::vec(any_thread(), 1..4);
    (threads, 0..100_u64, any_barrier()).prop_map(|(mut threads, arrives, barrier)| {
        for thread in threads.iter_mut().filter(|_| barrier.is_some()) {
            (thread.course[0].barrier, thread.course[0].sleep) = (true, Nanos::ZERO);
            // Short stretches come to it often.
            thread.course[0].instructions = thread.course[0].instructions.max(1_000_000);
        }
        let (name, arrives) = ("j".into(), Nanos::from_millis(arrives));
        JobSpec { memory: Vec::new(), name, arrives, threads, barrier }
    })
}

/// How a thread uses memory: share, writes, in its first stretch only, fetch.
type Used = (f64, f64, bool, Fetch);

/// The same with memory that its threads share.
fn any_sharing_job() -> impl Strategy<Value = JobSpec> {
    let pages =
        prop_oneof![Just(Pages::FirstTouch), Just(Pages::FirstThread), Just(Pages::Interleaved)];
    let fetch =
        prop_oneof![2 => Just(Fetch::No), 1 => Just(Fetch::Move), 1 => Just(Fetch::MoveAndStay)];
    let used = (0.1..0.4_f64, 0.0..1.0_f64, any::<bool>(), fetch);
    let memory = (1..256_u64, pages, 1..5_u32, prop::collection::vec(used, 1..4));
    (any_job(), prop::collection::vec(memory, 0..3)).prop_map(|(mut job, memory)| {
        let count = job.threads.len();
        let spec = |(mib, pages, groups, users): (u64, Pages, u32, Vec<Used>)| {
            let users = users.into_iter().take(count).enumerate();
            let user = |(thread, (share, writes, once, fetch)): (usize, Used)| MemoryUse {
                thread,
                share,
                writes,
                during: once.then_some(0),
                fetch,
            };
            MemorySpec { bytes: Bytes::mib(mib), pages, groups, users: users.map(user).collect() }
        };
        job.memory = memory.into_iter().map(spec).collect();
        job
    })
}

/// PUs but the first of those that may be used go offline for a while.
fn any_events(usable: &[PuNr], times: &[(u64, u64)]) -> Vec<PuEvent> {
    let event = |pu: PuNr, at: u64, online| PuEvent { at: Nanos::from_millis(at), pu, online };
    let gone = usable.iter().skip(1).zip(times);
    gone.flat_map(|(&pu, &(at, length))| [event(pu, at, false), event(pu, at + length, true)])
        .collect()
}

fn any_affine() -> impl Strategy<Value = WakeAffine> {
    (any::<[bool; 3]>(), 10..40_u32).prop_map(|([sync, load, wide], reclaim_distance)| WakeAffine {
        sync,
        load,
        wide,
        reclaim_distance,
    })
}

fn any_kernel() -> impl Strategy<Value = KernelScheduler> {
    let fork = prop_oneof![
        Just(Fork::WithParent),
        (10..40_u32).prop_map(|reclaim_distance| Fork::Idlest { reclaim_distance }),
    ];
    let wake = prop_oneof![
        Just(Wake::Previous),
        (any::<bool>(), any::<bool>(), prop::option::of(any_affine())).prop_map(
            |(idle_cores, recent, affine)| Wake::IdleSibling { idle_cores, recent, affine }
        ),
    ];
    let balance = prop::option::of((1..5_u64, 0..6_u32, 1..20_u32).prop_map(
        |(ms, patience, busy_factor)| PeriodicBalance {
            interval_per_pu: Nanos::from_millis(ms),
            patience,
            busy_factor,
            percent: 117,
        },
    ));
    let numa = prop::option::of((10..50_u64, 1..64_u64, any::<bool>(), 0..50_u64).prop_map(
        |(ms, mib, move_threads, fault)| NumaBalancing {
            period: Nanos::from_millis(ms),
            scan: Bytes::mib(mib),
            move_threads,
            fault: Nanos(fault),
        },
    ));
    (1..20_u64, 1..4_u32, fork, wake, any::<bool>(), balance, numa, 0..50_u64).prop_map(
        |(slice, stagger, fork, wake, idle_balance, periodic_balance, numa_balancing, copy)| {
            KernelScheduler {
                page_copy: Nanos(copy),
                stagger,
                slice: Nanos::from_millis(slice),
                fork,
                wake,
                idle_balance,
                periodic_balance,
                numa_balancing,
                ..KernelScheduler::default()
            }
        },
    )
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    let usable = prop::option::of(prop::sample::subsequence((0..8_u32).collect::<Vec<_>>(), 1..8));
    let jobs = prop::collection::vec(any_sharing_job(), 1..5);
    let times = prop::collection::vec((0..300_u64, 1..300_u64), 0..8);
    (jobs, any_kernel(), any::<bool>(), any::<u64>(), usable, 0..3_u64, times).prop_map(
        |(jobs, kernel, restart, seed, usable, grain, times)| {
            let usable: Option<Vec<PuNr>> = usable.map(|pus| pus.into_iter().map(PuNr).collect());
            let all: Vec<PuNr> = (0..8).map(PuNr).collect();
            Scenario {
                kernel,
                seed,
                method: if restart { Method::Restart } else { Method::Leave },
                events: any_events(usable.as_ref().unwrap_or(&all), &times),
                usable,
                grain: Nanos::from_millis(grain),
                horizon: Nanos::from_secs(60),
                ..scenario(jobs)
            }
        },
    )
}

fn any_policy() -> impl Strategy<Value = PolicySpec> {
    prop::sample::select(colocate_policy::table::once().collect::<Vec<_>>())
}

/// Seconds that tasks ran, and those that PUs were in use.
fn busy(outcome: &Outcome) -> (f64, f64) {
    let ran: f64 = outcome.tasks.iter().map(|task| task.ran.as_secs_f64()).sum();
    let first = outcome.jobs.iter().filter_map(|job| job.launched).min().unwrap();
    let span = (outcome.lasted - first).as_secs_f64();
    (ran, outcome.used.pus.iter().sum::<f64>() * span)
}

/// The plan with which a run would begin.
fn plan_of(host: &SimHost<'_>, policy: &PolicySpec, jobs: &[KnownJob]) -> Plan {
    let (until, watch) = (Until::Events, Nanos::ZERO);
    let workload = RunSettings {
        jobs,
        policy: policy.name(),
        until,
        watch,
        also: SourceSet::NONE,
        without: SourceSet::NONE,
    };
    first_plan(host.machine(), host.usable(), &mut *policy.plain(), &workload)
}

/// To the end with one plan, asked again every quantum, and made anew when PUs have gone or come.
fn drive(scenario: &Scenario, policy: &PolicySpec, quantum: Nanos) -> Outcome {
    let (machine, performance) = common::machine(common::SMALL);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let mut host = SimHost::new(&platform, scenario).unwrap();
    let known = knowns(&platform, scenario, true).unwrap();
    let mut plan = plan_of(&host, policy, &known);
    while !host.is_over() {
        if host.go_on(&plan, quantum).unwrap() == QuantumEnd::MachineChanged {
            plan = plan_of(&host, policy, &known);
        }
    }
    host.outcome()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the kernel's settings and the policy: no rule is broken, all work is done, sums agree.
    #[test]
    fn no_rule_is_broken(scenario in any_scenario(), policy in any_policy()) {
        let outcome = run(&scenario, policy.to_string().as_str());
        prop_assert!(outcome.complete);
        let (ran, used) = busy(&outcome);
        prop_assert!((ran - used).abs() <= 1e-9 * (1.0 + ran), "{} {}", ran, used);
        for task in &outcome.tasks {
            prop_assert!(task.progress().is_none_or(|progress| progress < 1.0 + 1e-6));
        }
        for job in &outcome.jobs {
            prop_assert!(job.runs >= 1);
        }
    }

    #[test]
    fn the_same_scenario_gives_the_same_outcome(scenario in any_scenario(), policy in any_policy()) {
        prop_assert_eq!(run(&scenario, policy.to_string().as_str()), run(&scenario, policy.to_string().as_str()));
    }

    /// Jobs are stopped and go on, every quantum at random: no rule is broken, and all work is done. Quanta are longer than
    /// slices: in shorter ones the same thread of a job may always be first, and spin for ever for another one.
    #[test]
    fn stopping_loses_nothing(scenario in any_scenario(), policy in any_policy(), ms in 1..40_u64) {
        let (machine, performance) = common::machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let mut host = SimHost::new(&platform, &scenario).unwrap();
        let known = knowns(&platform, &scenario, true).unwrap();
        let quantum = scenario.kernel.slice + Nanos::from_millis(ms);
        let mut made = plan_of(&host, &policy, &known);
        let mut rng = SplitMix64::new(scenario.seed);
        while !host.is_over() {
            let runs: Vec<bool> = scenario.jobs.iter().map(|_| rng.below(3) > 0).collect();
            let mut plan = made.clone();
            for decision in &mut plan.decisions {
                if !runs[decision.task.job.0 as usize] {
                    decision.place = Place::Waiting;
                }
            }
            if host.go_on(&plan, quantum).unwrap() == QuantumEnd::MachineChanged {
                made = plan_of(&host, &policy, &known);
            }
        }
        prop_assert!(host.outcome().complete);
    }

    /// Tasks are put on PUs that share something, every quantum at random: none runs elsewhere, no other rule is broken, and all
    /// work is done.
    #[test]
    fn tasks_stay_in_their_part(scenario in any_scenario(), policy in any_policy(), ms in 1..40_u64) {
        let (machine, performance) = common::machine(common::SMALL);
        let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
        let mut host = SimHost::new(&platform, &scenario).unwrap();
        let known = knowns(&platform, &scenario, true).unwrap();
        let mut made = plan_of(&host, &policy, &known);
        let mut rng = SplitMix64::new(scenario.seed);
        while !host.is_over() {
            let mut plan = made.clone();
            for decision in &mut plan.decisions {
                let pu = PuNr(u32::try_from(rng.below(8)).unwrap());
                decision.place = match rng.below(6) {
                    0 => Place::LeftToKernel,
                    1 => Place::Pu(pu),
                    part => Place::Sharing(SharedPart::ALL[part - 2], pu),
                };
            }
            if host.go_on(&plan, Nanos::from_millis(ms)).unwrap() == QuantumEnd::MachineChanged {
                made = plan_of(&host, &policy, &known);
            }
        }
        prop_assert!(host.outcome().complete);
    }

    /// How often a policy that changes nothing is asked changes nothing.
    #[test]
    fn quanta_do_not_matter(scenario in any_scenario(), policy in any_policy(), ms in 1..90_u64) {
        let at_once = drive(&scenario, &policy, Nanos::from_secs(100));
        let often = drive(&scenario, &policy, Nanos::from_millis(ms));
        for (a, b) in at_once.jobs.iter().zip(&often.jobs) {
            let (a, b) = (a.took().unwrap().as_secs_f64(), b.took().unwrap().as_secs_f64());
            prop_assert!((a - b).abs() <= 1e-6 + 1e-5 * a, "{} {}", a, b);
        }
    }

    /// No run is faster than all of its threads alone, one after another on no more PUs than there are.
    #[test]
    fn work_takes_its_time(scenario in any_scenario()) {
        let outcome = run(&scenario, "os");
        let alone: f64 = outcome.tasks.iter().map(|task| task.alone.as_secs_f64()).sum();
        let pus = scenario.usable.as_ref().map_or(8, Vec::len);
        let least = alone / pus as f64;
        prop_assert!(outcome.lasted.as_secs_f64() >= least * (1.0 - 1e-6));
    }

    /// Equal jobs take equally long that fill nodes and cores evenly.
    #[test]
    fn equals_are_treated_equally(
        millions in 1..200_u64,
        phase in 0..3_u32,
        jobs in prop::sample::select(vec![1, 2, 4, 8_usize]),
    ) {
        let jobs = (0..jobs).map(|_| job("j", phase, millions)).collect();
        let outcome = run(&scenario(jobs), "scatter");
        let slowdowns = outcome.slowdowns().unwrap();
        prop_assert!(slowdowns.iter().all(|s| (s - slowdowns[0]).abs() < 1e-6), "{:?}", slowdowns);
    }

    /// With turns taken on one PU, equal jobs of any length end within two slices of what is fair.
    #[test]
    fn turns_are_fair(millions in 10..100_u64, jobs in 2..6_usize) {
        let on_one = Scenario {
            usable: Some(vec![PuNr(0)]),
            ..scenario((0..jobs).map(|_| job("j", INT, millions)).collect())
        };
        let outcome = run(&on_one, "round-robin");
        let all = (jobs as u64 * millions) as f64 / 1e3;
        for job in &outcome.jobs {
            let took = job.took().unwrap().as_secs_f64();
            let slices = 0.003 * jobs as f64;
            prop_assert!(took <= all + 1e-6 && took >= all - slices - 1e-6, "{} of {}", took, all);
        }
    }
}
