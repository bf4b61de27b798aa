//! The loop over a host that follows a script: each test is a picture of what it was asked to do.

use colocate_engine::{
    Host, HostError, IssuedPlan, KnownJob, Request, Round, RunSettings, Until, run,
};
use colocate_evidence::{
    Grant, JobEnd, JobIdx, Observation, PlacementStatus, QuantumEnd, SeenTask, Source,
    SourceReports, SourceSet, TaskId,
};
use colocate_machine::{Core, CoreIdx, KindIdx, Machine, Nanos, Package, PackageIdx, Pu};
use colocate_machine::{PuIdx, PuNr};
use colocate_model::{Backend, Mix, Profile, ProfiledProgram, Share, ThreadProfile};
use colocate_policy::policies::fixed::FixedPlan;
use colocate_policy::schedule::Quantum;
use colocate_policy::{
    Decision, DefaultPlacement, Evidence, Place, PlaceReason, Plan, Policy, Task,
};
use expect_test::{Expect, expect};
use std::fmt::Write;

fn machine(pus: u32) -> Machine {
    let cores = (0..pus).map(|n| Core {
        pus: vec![PuIdx(n)],
        package: PackageIdx(0),
        node: None,
        kind: KindIdx(0),
    });
    Machine {
        name: "scripted".into(),
        processor: None,
        pus: (0..pus).map(|n| Pu { os: PuNr(n), core: CoreIdx(n) }).collect(),
        cores: cores.collect(),
        packages: vec![Package { cores: (0..pus).map(CoreIdx).collect() }],
        nodes: vec![],
        caches: vec![],
        kinds: vec![],
        distances: None,
        offline: vec![],
    }
}

/// What happens in one quantum: its end in seconds, why, the tasks that are there, how many of the
/// first PUs are usable afterwards.
struct Step {
    at_s: u64,
    end: QuantumEnd,
    alive: &'static [(u32, u32)],
    ended_jobs: &'static [u32],
    usable: u32,
}

/// A host that plays back steps and writes down what it was asked.
struct Script {
    machine: Machine,
    usable: Vec<PuNr>,
    steps: std::vec::IntoIter<Step>,
    log: String,
}

impl Host for Script {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn usable(&self) -> &[PuNr] {
        &self.usable
    }

    fn request(&mut self, requests: &[Request<'_>]) -> Vec<Grant> {
        let text = |request: &Request<'_>| {
            let jobs: Vec<u32> = request.jobs.iter().map(|job| job.0).collect();
            format!("{} {jobs:?}", request.source.name())
        };
        let texts: Vec<String> = requests.iter().map(text).collect();
        let texts = if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") };
        writeln!(self.log, "request: {texts}").unwrap();
        Vec::new()
    }

    fn run_quantum(&mut self, plan: &Plan, quantum: Nanos) -> Result<Observation, HostError> {
        let step = self.steps.next().ok_or_else(|| HostError {
            what: "play on".into(),
            why: "the script is over".into(),
        })?;
        let time = if quantum.0 == u64::MAX { "ever".into() } else { quantum.to_string() };
        write!(self.log, "run for {time}:").unwrap();
        for decision in &plan.decisions {
            let pu = decision.place.pu().map_or("kernel".to_string(), |pu| pu.to_string());
            write!(self.log, " {}→{pu}", decision.task).unwrap();
        }
        let others = match &plan.default_placement {
            DefaultPlacement::LeaveToKernel => "kernel".to_string(),
            DefaultPlacement::FillInOrder { pus } => format!("{} PUs", pus.len()),
        };
        writeln!(self.log, " others→{others}").unwrap();
        self.usable.truncate(step.usable as usize);
        Ok(Observation {
            at: Nanos::from_secs(step.at_s),
            end: step.end,
            tasks: step.alive.iter().map(|&id| seen(id)).collect(),
            ended: step.ended_jobs.iter().map(|&job| ended(job)).collect(),
            moved: vec![],
            reports: SourceReports::NONE,
        })
    }
}

fn id((job, order): (u32, u32)) -> TaskId {
    TaskId { job: JobIdx(job), order }
}

fn seen(at: (u32, u32)) -> SeenTask {
    SeenTask {
        id: id(at),
        name: "t".into(),
        created: Nanos::ZERO,
        ended: None,
        cpu_time: Some(Nanos::from_secs(1)),
        waited: None,
        spun: None,
        switches: None,
        instructions: None,
        cycles: None,
        counts: None,
        mix: Some(Mix { int: Share::new(0.5), ..Mix::default() }.into()),
        target: Place::LeftToKernel,
        status: PlacementStatus::LeftToKernel,
        allowed: [PuNr(0)].into(),
        last_ran: Some(PuNr(0)),
    }
}

fn ended(job: u32) -> JobEnd {
    JobEnd { job: JobIdx(job), at: Nanos::ZERO, status: 0, cpu_time: None }
}

/// Deals the tasks to the PUs in turn.
#[derive(Clone, Copy, Debug)]
struct Dealer {
    knows_mixes: bool,
}

impl Policy for Dealer {
    fn needs(&self) -> SourceSet {
        if self.knows_mixes { SourceSet::of(&[Source::Mix]) } else { SourceSet::NONE }
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let (empty, tasks) = (evidence.empty_plan(), evidence.tasks());
        let pus = empty.pus.clone();
        let decisions = tasks.iter().zip(pus.iter().cycle()).map(|(task, &pu)| Decision {
            task: task.id,
            name: task.name.as_str().into(),
            place: Place::Pu(pu),
            why: PlaceReason::OwnCore,
        });
        Plan {
            decisions: decisions.collect(),
            default_placement: DefaultPlacement::FillInOrder { pus: pus.clone() },
            ..empty
        }
    }
}

fn known(threads: u32) -> KnownJob {
    let thread = |order| ThreadProfile {
        order,
        process: 0,
        name: "t".into(),
        start_ns: Nanos::ZERO,
        end_ns: None,
        cpu_time_ns: None,
        instructions: None,
        cycles: None,
        samples: None,
        mix: Mix::default(),
    };
    let profile = Profile {
        version: colocate_model::profile::VERSION,
        backend: Backend::Sample,
        program: ProfiledProgram { path: "p".into(), args: vec![], identity: "sha256:0".into() },
        processor: None,
        started_unix_s: 0,
        watched_ns: Nanos::from_secs(1),
        complete: true,
        threads: (0..threads).map(thread).collect(),
        notes: vec![],
    };
    KnownJob { name: "known".into(), profile: Some(profile), phases: Vec::new() }
}

fn new() -> KnownJob {
    KnownJob { name: "new".into(), profile: None, phases: Vec::new() }
}

fn play(
    mut policy: impl Policy,
    jobs: &[KnownJob],
    steps: Vec<Step>,
) -> (String, Option<Vec<IssuedPlan>>) {
    let mut host = Script {
        machine: machine(4),
        usable: (0..4).map(PuNr).collect(),
        steps: steps.into_iter(),
        log: String::new(),
    };
    let (until, watch) = (Until::Events, Nanos::from_secs(2));
    let workload = RunSettings {
        jobs,
        policy: "dealer",
        until,
        watch,
        also: SourceSet::NONE,
        without: SourceSet::NONE,
    };
    let mut plans: Vec<IssuedPlan> = Vec::new();
    let mut look = |round: &Round<'_>| plans.extend(IssuedPlan::of(round));
    let last = run(&mut host, &mut policy, &workload, None, &mut look);
    let causes: Vec<String> =
        plans.iter().map(|planned| format!("{} at {}", planned.cause.name(), planned.at)).collect();
    let outcome = last.ok().map(|_| plans);
    writeln!(host.log, "plans: {}", causes.join(", ")).unwrap();
    (host.log, outcome)
}

fn check(policy: impl Policy, jobs: &[KnownJob], steps: Vec<Step>, expected: &Expect) {
    expected.assert_eq(&play(policy, jobs, steps).0);
}

fn step(at_s: u64, end: QuantumEnd, alive: &'static [(u32, u32)]) -> Step {
    Step { at_s, end, alive, ended_jobs: &[], usable: 4 }
}

const MIXES: Dealer = Dealer { knows_mixes: true };
const STATIC: Dealer = Dealer { knows_mixes: false };

#[test]
fn a_known_job_is_planned_once() {
    let steps = vec![step(9, QuantumEnd::AllJobsEnded, &[])];
    check(
        MIXES,
        &[known(2)],
        steps,
        &expect![[r#"
            request: nothing
            run for ever: 0.0→cpu0 0.1→cpu1 others→4 PUs
            plans: launch at 0 ns
        "#]],
    );
}

#[test]
fn a_static_policy_watches_no_job() {
    let steps = vec![step(9, QuantumEnd::AllJobsEnded, &[])];
    check(
        STATIC,
        &[new(), known(2)],
        steps,
        &expect![[r#"
            request: nothing
            run for ever: 0.0→cpu0 1.0→cpu1 1.1→cpu2 others→4 PUs
            plans: launch at 0 ns
        "#]],
    );
}

/// The job's three tasks are placed after 2 s; at 4 s there is no news; at 6 s a task was created.
#[test]
fn an_unknown_job_is_watched_first() {
    const TEAM: &[(u32, u32)] = &[(0, 0), (0, 1), (0, 2)];
    const MORE: &[(u32, u32)] = &[(0, 0), (0, 1), (0, 2), (0, 3)];
    let steps = vec![
        step(2, QuantumEnd::Elapsed, TEAM),
        step(4, QuantumEnd::Elapsed, TEAM),
        step(6, QuantumEnd::Elapsed, MORE),
        step(7, QuantumEnd::AllJobsEnded, &[]),
    ];
    check(
        MIXES,
        &[new()],
        steps,
        &expect![[r#"
            request: mix [0]
            run for 2.00 s: others→kernel
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 0.2→cpu2 others→4 PUs
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 0.2→cpu2 others→4 PUs
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 0.2→cpu2 0.3→cpu3 others→4 PUs
            plans: launch at 0 ns, watched at 2.00 s, watched at 6.00 s
        "#]],
    );
}

/// Job 0 is known and placed at once, job 1 joins it after 2 s.
#[test]
fn a_known_job_does_not_wait_for_an_unknown_one() {
    const BOTH: &[(u32, u32)] = &[(0, 0), (0, 1), (1, 0)];
    let steps = vec![step(2, QuantumEnd::Elapsed, BOTH), step(3, QuantumEnd::AllJobsEnded, &[])];
    check(
        MIXES,
        &[known(2), new()],
        steps,
        &expect![[r#"
            request: mix [1]
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 others→kernel
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 1.0→cpu2 others→4 PUs
            plans: launch at 0 ns, watched at 2.00 s
        "#]],
    );
}

/// A PU vanishes 1 s into the first watch: the known job moves, the unknown one still waits for its
/// remaining second.
#[test]
fn a_lost_pu_is_left() {
    const BOTH: &[(u32, u32)] = &[(0, 0), (0, 1), (1, 0)];
    let steps = vec![
        Step { usable: 1, ..step(1, QuantumEnd::MachineChanged, BOTH) },
        Step { usable: 1, ..step(2, QuantumEnd::Elapsed, BOTH) },
        step(3, QuantumEnd::AllJobsEnded, &[]),
    ];
    check(
        MIXES,
        &[known(2), new()],
        steps,
        &expect![[r#"
            request: mix [1]
            run for 2.00 s: 0.0→cpu0 0.1→cpu1 others→kernel
            run for 1.00 s: 0.0→cpu0 0.1→cpu0 others→kernel
            run for 2.00 s: 0.0→cpu0 0.1→cpu0 1.0→cpu0 others→1 PUs
            plans: launch at 0 ns, machine-changed at 1.00 s, watched at 2.00 s
        "#]],
    );
}

/// When job 0 ends, what is left is planned again, and its threads that never came are forgotten.
#[test]
fn room_left_by_a_job_is_used() {
    let steps = |ended| {
        vec![
            Step { ended_jobs: ended, ..step(5, QuantumEnd::JobEnded, &[(1, 0)]) },
            step(9, QuantumEnd::AllJobsEnded, &[]),
        ]
    };
    check(
        MIXES,
        &[known(3), known(1)],
        steps(&[0]),
        &expect![[r#"
            request: nothing
            run for ever: 0.0→cpu0 0.1→cpu1 0.2→cpu2 1.0→cpu3 others→4 PUs
            run for ever: 1.0→cpu0 others→4 PUs
            plans: launch at 0 ns, job-ended at 5.00 s
        "#]],
    );
    check(
        STATIC,
        &[known(3), known(1)],
        steps(&[0]),
        &expect![[r#"
            request: nothing
            run for ever: 0.0→cpu0 0.1→cpu1 0.2→cpu2 1.0→cpu3 others→4 PUs
            run for ever: 0.0→cpu0 0.1→cpu1 0.2→cpu2 1.0→cpu3 others→4 PUs
            plans: launch at 0 ns
        "#]],
    );
}

#[test]
fn watching_ends() {
    const ONE: &[(u32, u32)] = &[(0, 0)];
    let mut steps: Vec<Step> = (1..=10).map(|n| step(2 * n, QuantumEnd::Elapsed, ONE)).collect();
    steps.push(step(99, QuantumEnd::AllJobsEnded, &[]));
    let (log, outcome) = play(MIXES, &[new()], steps);
    assert_eq!(log.lines().nth(11), Some("request: nothing"), "{log}");
    assert!(log.contains("run for ever"), "{log}");
    assert_eq!(outcome.map(|plans| plans.len()), Some(2));
}

#[test]
fn a_host_that_fails_ends_the_loop() {
    assert!(play(MIXES, &[known(1)], vec![]).1.is_none());
}

/// The plan's cpu3 is gone: its task is left to the kernel, the other keeps its place.
#[test]
fn a_fixed_plan_never_leaves_the_usable_pus() {
    let task = |at| Task {
        id: id(at),
        name: "t".into(),
        mix: Mix::default(),
        busy: None,
        ipc: None,
        instructions: None,
        phase: None,
    };
    let (machine, pus) = (machine(4), [PuIdx(3), PuIdx(1)]);
    let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &[] };
    let expected = || [(0, 0), (0, 1)].map(task).to_vec();
    let evidence = Evidence { expected: &expected, ..Evidence::of_queue(now) };
    let made = Dealer { knows_mixes: false }.decide(&evidence);
    let steps = vec![
        Step { usable: 3, ..step(1, QuantumEnd::MachineChanged, &[]) },
        step(9, QuantumEnd::AllJobsEnded, &[]),
    ];
    check(
        FixedPlan(made),
        &[new()],
        steps,
        &expect![[r#"
            request: nothing
            run for ever: 0.0→cpu3 0.1→cpu1 others→2 PUs
            run for ever: 0.0→kernel 0.1→cpu1 others→1 PUs
            plans: launch at 0 ns, machine-changed at 1.00 s
        "#]],
    );
}
