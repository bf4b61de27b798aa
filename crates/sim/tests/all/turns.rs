//! Threads that take turns, and policies that place them by that.

use crate::common::{INT, LOAD, job, ms, pinned, run, scenario, stretch, thread};
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{Nanos, PuNr};
use colocate_policy::policies::fixed::FixedPlan;
use colocate_policy::{Decision, Place, PlaceReason, Plan};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, Outcome, PhaseSegment, Scenario, ThreadSpec, TotalWork,
};

/// A thread with turns of so many microseconds each.
fn in_turns(us: u64, turns: u64) -> ThreadSpec {
    let part = PhaseSegment { barrier: true, ..stretch(INT, us * 1_000) };
    ThreadSpec { work: TotalWork::Instructions(us * 1_000 * turns), ..thread(&[part]) }
}

/// Threads with so many turns at a time.
fn team(threads: Vec<ThreadSpec>, at_a_time: u32) -> JobSpec {
    let barrier = Some(Barrier { wait: BarrierWait::Turns(at_a_time), serial: None });
    JobSpec { memory: Vec::new(), name: "team".into(), arrives: Nanos::ZERO, threads, barrier }
}

fn on(pus: &[u32], jobs: Vec<JobSpec>) -> Scenario {
    Scenario { usable: Some(pus.iter().copied().map(PuNr).collect()), ..scenario(jobs) }
}

/// Every thread of every job on the PU that is named for it, in their order.
fn placed(scenario: &Scenario, pus: &[u32]) -> FixedPlan {
    let FixedPlan(plan) = pinned(&[]);
    let tasks = (0..).zip(&scenario.jobs).flat_map(|(job, spec)| {
        (0..).zip(&spec.threads).map(move |(order, _)| TaskId { job: JobIdx(job), order })
    });
    let decision = |(task, pu): (TaskId, &u32)| Decision {
        task,
        name: "".into(),
        place: Place::Pu(PuNr(*pu)),
        why: PlaceReason::NotSelected,
    };
    FixedPlan(Plan { decisions: tasks.zip(pus).map(decision).collect(), ..plan })
}

/// 100 turns each of 10 µs: 199 wake-ups. On the same PU they take 4 µs, between siblings 8, under the same cache 20, and to another
/// package 50.
#[test]
fn a_pair_far_apart_and_together() {
    let jobs = scenario(vec![team(vec![in_turns(10, 100); 2], 1)]);
    for (pus, wake_up) in [([0, 0], 4), ([0, 1], 8), ([0, 2], 20), ([0, 4], 50)] {
        let outcome = run(&jobs, &placed(&jobs, &pus));
        let expected = 200 * 10 + 199 * wake_up;
        assert_eq!(outcome.lasted.0.div_ceil(1_000), expected, "{pus:?}");
    }
}

/// With two turns each both work all the time, on two PUs, and none is woken.
#[test]
fn turns_at_the_same_time() {
    let jobs = scenario(vec![team(vec![in_turns(10, 100); 2], 4)]);
    assert_eq!(run(&jobs, &placed(&jobs, &[0, 2])).lasted, ms(1));
}

/// The first of three ends after one turn, the second after two: 1 + 2 + 3 turns.
#[test]
fn threads_that_end_hand_on_their_turn() {
    let threads = vec![in_turns(100, 1), in_turns(100, 2), in_turns(100, 3)];
    let jobs = scenario(vec![team(threads, 1)]);
    let outcome = run(&jobs, &placed(&jobs, &[0, 0, 0]));
    let done = [0, 1, 2].map(|task: usize| outcome.tasks[task].instructions);
    assert_eq!(done.map(f64::round), [1e5, 2e5, 3e5]);
    // 1 2 3 2 3, and the last one alone.
    assert_eq!(outcome.lasted.0.div_ceil(1_000), 600 + 4 * 4);
}

/// A server with two clients on a PU, and each client's last part is answered unless the client ends with it: the server
/// does 6 parts for them and 2 more alone, and none of the three waits for a thread that has ended.
#[test]
fn a_server_answers_the_client_that_asked() {
    let served = |parts: [u64; 3]| {
        let threads = parts.map(|parts| in_turns(100, parts)).to_vec();
        let barrier = Some(Barrier { wait: BarrierWait::Served, serial: None });
        scenario(vec![JobSpec { barrier, ..team(threads, 1) }])
    };
    for parts in [[8, 3, 3], [2, 3, 3], [8, 1, 5], [1, 1, 1]] {
        let jobs = served(parts);
        let outcome = run(&jobs, &placed(&jobs, &[0, 0, 0]));
        let done = [0, 1, 2].map(|task: usize| outcome.tasks[task].instructions.round());
        assert_eq!(done, parts.map(|parts| 1e5 * parts as f64), "{parts:?}");
    }
    // Clients work at the same time: 300 µs for a part of each, which would be 540 µs one by one.
    let jobs = served([200, 100, 100]);
    let lasted = run(&jobs, &placed(&jobs, &[0, 2, 4])).lasted;
    assert!((ms(28)..ms(32)).contains(&lasted), "{lasted:?}");
}

/// Threads on some PUs, by how many turns each has.
struct Case {
    name: &'static str,
    pus: &'static [u32],
    jobs: fn(u64) -> Vec<JobSpec>,
}

impl Case {
    fn scenario(&self, turns: u64) -> Scenario {
        on(self.pus, (self.jobs)(turns))
    }

    /// How long the second half of the first job's work takes, by when a policy knows what there is to know.
    fn under(&self, policy: &str) -> f64 {
        let lasted = |turns| first(&run(&self.scenario(turns), policy));
        lasted(12_000) - lasted(6_000)
    }

    /// The least of all placements; of those with a PU for each thread if they are `alone`.
    fn best(&self, alone: bool) -> f64 {
        let threads: usize = self.scenario(1).jobs.iter().map(|job| job.threads.len()).sum();
        let threads = u32::try_from(threads).unwrap();
        let placements = (0..self.pus.len().pow(threads)).map(|number| {
            let digit = |at: u32| self.pus[number / self.pus.len().pow(at) % self.pus.len()];
            (0..threads).map(digit).collect::<Vec<u32>>()
        });
        let may = |pus: &Vec<u32>| !alone || (1..pus.len()).all(|at| !pus[..at].contains(&pus[at]));
        let lasts = |pus: Vec<u32>| {
            // There is nothing to learn, so a sixth is enough.
            let lasted = |turns| {
                let scenario = self.scenario(turns);
                first(&run(&scenario, &placed(&scenario, &pus)))
            };
            6.0 * (lasted(2_000) - lasted(1_000))
        };
        placements.filter(may).map(lasts).fold(f64::INFINITY, f64::min)
    }
}

/// How long the first job took.
fn first(outcome: &Outcome) -> f64 {
    outcome.jobs[0].took().unwrap().as_secs_f64()
}

fn pair(turns: u64) -> JobSpec {
    team(vec![in_turns(50, turns); 2], 1)
}

/// `auto` beside every placement that there is. PUs 0 and 2 are two cores under one cache.
#[test]
fn auto_is_near_the_best_placement() {
    let cases = [
        Case { name: "a pair", pus: &[0, 2], jobs: |turns| vec![pair(turns)] },
        Case { name: "two pairs", pus: &[0, 2], jobs: |turns| vec![pair(turns), pair(turns)] },
        Case {
            name: "three stages, one after the other",
            pus: &[0, 2],
            jobs: |turns| vec![team(vec![in_turns(50, turns); 3], 1)],
        },
        Case {
            name: "two stages at the same time",
            pus: &[0, 2],
            jobs: |turns| vec![team(vec![in_turns(50, turns); 2], 4)],
        },
        Case {
            name: "a pair beside a program that computes",
            pus: &[0, 2],
            jobs: |turns| vec![pair(turns), job("computes", INT, turns / 5)],
        },
    ];
    for case in cases {
        let (auto, best) = (case.under("auto"), case.best(false));
        assert!(auto <= 1.02 * best, "{}: {auto} s, {best} s at best", case.name);
    }
}

/// Two that add and two that load, on two cores with two PUs each.
#[test]
fn auto_pairs_busy_threads_as_well_as_any_placement() {
    let busy = |turns: u64| {
        let jobs = ["a", "b", "c", "d"].into_iter().zip([INT, LOAD, INT, LOAD]);
        jobs.map(|(name, phase)| job(name, phase, turns)).collect::<Vec<JobSpec>>()
    };
    let alone = Case { name: "four", pus: &[0, 1, 2, 3], jobs: busy };
    let (auto, best) = (alone.under("auto"), alone.best(false));
    assert!(auto <= 1.02 * best, "{auto} s, {best} s at best");
    assert!(alone.under("os") > 1.2 * best, "there is something to gain");
}

/// `communication` beside every placement with a PU for each thread: two pairs on two nodes. It leaves a pair alone, as there is none
/// that communicates more than others.
#[test]
fn communication_is_near_the_best_placement_with_a_pu_each() {
    let jobs = |turns| vec![pair(turns), pair(turns)];
    for pus in [&[0, 2, 4, 6], &[0, 1, 2, 3]] {
        let case = Case { name: "two pairs", pus, jobs };
        let (found, best) = (case.under("communication"), case.best(true));
        assert!(found <= 1.02 * best, "{pus:?}: {found} s, {best} s at best");
    }
}
