//! Whole lives of jobs on this machine: counted, launched anew, ended when they have done their work.
//!
//! Time on CPUs stands for instructions, so that machines without counters run this, too.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on has failed
#![allow(clippy::print_stdout)] // it has no harness that would speak for it

use colocate_act::launch::Command;
use colocate_engine::{Host, HostError, KnownJob, Meanwhile, Round, RunSettings, Until};
use colocate_evidence::{JobIdx, Observation, Source, SourceSet};
use colocate_host::{JobTarget, LinuxHost, Sampling, Setup};
use colocate_linux::Tid;
use colocate_machine::{Bytes, Nanos, NodeNr, read};
use colocate_model::symbiosis::Component;
use colocate_model::{Class, CpiModel};
use colocate_observe::lifecycle;
use colocate_observe::pmu::Extra;
use colocate_observe::pmu::Role;
use colocate_observe::pmu::stack::{self, StackPlan};
use colocate_observe::pmu::{Counters, Start};
use colocate_observe::sources::counters::TaskCounters;
use colocate_policy::{Evidence, Knowledge, PageMove, Plan, Policy, PolicySpec};
use colocate_testing::{skip, wait_for};
use std::path::PathBuf;

/// The kernel's numbers of its own events (`enum perf_sw_ids`, linux/perf_event.h).
const TASK_CLOCK: u64 = 1;
const PAGE_FAULTS: u64 = 2;

const QUANTUM: Nanos = Nanos::from_millis(20);

/// Nanoseconds on CPUs as instructions, page faults as loads, stores and misses of the first cache.
fn clock() -> Counters {
    Counters::of_software(&[
        (Role::Instructions, TASK_CLOCK),
        (Role::Class(Class::Load), PAGE_FAULTS),
        (Role::Class(Class::Store), PAGE_FAULTS),
        (Role::Extra(Extra::Misses(1)), PAGE_FAULTS),
    ])
}

fn setup(scripts: &[&str], targets: &[JobTarget]) -> Setup {
    let command = |script: &&str| {
        let argv = ["sh", "-c", script].map(Into::into).to_vec();
        Command::find(argv, std::env::var_os("PATH").as_deref()).unwrap()
    };
    Setup {
        commands: scripts.iter().map(command).collect(),
        attached: Vec::new(),
        may_pause: true,
        detach_after: None,
        meanwhile: Meanwhile::Stop,
        only_signals: false,
        targets: targets.to_vec(),
        repeat: false,
        ready: None,
        until: Vec::new(),
        grace: Nanos::from_millis(50),
        settle: Nanos::ZERO,
        lifecycle: lifecycle::LifecycleOptions::here().unwrap(),
        sampling: counting(clock()),
        run_dirs: Vec::new(),
        proc: PathBuf::from("/proc"),
    }
}

fn counting(counters: Counters) -> Sampling {
    Sampling { counters: Some(counters), ..Sampling::default() }
}

/// The jobs of a host, of which nothing is known, under a policy.
fn schedule(
    host: &mut LinuxHost,
    policy: &mut dyn Policy,
    jobs: usize,
    look: &mut dyn FnMut(&Round<'_>),
) -> Result<Observation, HostError> {
    let jobs = vec![KnownJob { name: "job".into(), profile: None, phases: Vec::new() }; jobs];
    let (until, watch) = (Until::Time(QUANTUM), Nanos::ZERO);
    let workload = RunSettings {
        jobs: &jobs,
        policy: "test",
        until,
        watch,
        also: SourceSet::of(&[Source::Counters, Source::RunStates]),
        without: SourceSet::NONE,
    };
    colocate_engine::run(host, policy, &workload, None, look)
}

/// The same in turn.
fn in_turn(host: &mut LinuxHost, jobs: usize) -> Observation {
    let mut policy = PolicySpec::named("round-robin").plain();
    schedule(host, &mut *policy, jobs, &mut |_| ()).unwrap()
}

/// Runs a workload to its end; the last look, and how often each job ran to an end.
fn run(setup: &Setup) -> (Observation, Vec<u32>) {
    let mut host = LinuxHost::prepare(read::live().unwrap(), setup).unwrap();
    let last = in_turn(&mut host, setup.commands.len());
    let runs = host.runs();
    let notes = host.finish();
    if let Some(note) = notes.iter().find(|note| note.contains("still there")) {
        let pid = note.rsplit(' ').next().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        panic!("{note}: {status:?}");
    }
    (last, runs)
}

/// No process of a workload lives. The kernel reports the end of one that was adopted a moment before it can be reaped.
fn nothing_is_left() {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while let Ok(reaped) = colocate_linux::sys::wait(None, false) {
        assert!(std::time::Instant::now() < until, "a process of the workload still lives");
        if reaped.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

const WORK: &str = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done";
const FOR_EVER: &str = "while :; do :; done";

/// Five jobs that need several runs for 100 ms, and one that needs none of them to end.
fn instructions_add_up(only_signals: bool) {
    let target = JobTarget::Instructions(100_000_000);
    let scripts = [WORK, WORK, FOR_EVER, WORK, WORK, WORK];
    let setup = Setup { only_signals, ..setup(&scripts, &[target; 6]) };
    let (last, runs) = run(&setup);
    assert_eq!(last.ended.len(), 6);
    for end in &last.ended {
        assert_eq!(end.status, 0, "{end:?}");
        // Both clocks are the kernel's, but one continues while a virtual machine's host runs others: a fifth was seen.
        assert!(end.cpu_time.unwrap() >= Nanos::from_millis(40), "{end:?}");
    }
    assert_eq!(runs[2], 0, "{runs:?}");
    assert!(runs.iter().enumerate().all(|(job, runs)| job == 2 || *runs >= 2), "{runs:?}");
    let counted = |task: &&colocate_evidence::SeenTask| task.instructions.is_some_and(|n| n > 0);
    assert!(last.tasks.iter().filter(counted).count() >= 6);
    nothing_is_left();
}

/// A shell that ignores SIGTERM, and whose child does, too.
fn jobs_that_ignore_sigterm_are_killed(only_signals: bool) {
    let ignores = "trap '' TERM; while :; do :; done & while :; do :; done";
    let target = JobTarget::Instructions(40_000_000);
    let setup = Setup { only_signals, ..setup(&[ignores, FOR_EVER], &[target; 2]) };
    let (last, _) = run(&setup);
    assert!(last.ended.iter().all(|end| end.status == 0), "{:?}", last.ended);
    assert_eq!(last.ended.len(), 2);
    nothing_is_left();
}

/// With the load kept, the first job runs on after it is done, and its time is that of its target.
fn the_load_stays() {
    let short = JobTarget::Instructions(20_000_000);
    let long = JobTarget::Instructions(200_000_000);
    let setup = Setup { repeat: true, ..setup(&[WORK, FOR_EVER], &[short, long]) };
    let (last, _) = run(&setup);
    let at: Vec<Nanos> = last.ended.iter().map(|end| end.at).collect();
    assert_eq!(last.ended.len(), 2);
    assert!(last.ended[0].job.0 == 0 && at[0] < at[1], "{:?}", last.ended);
    // It did more than it had to.
    let done = |task: &&colocate_evidence::SeenTask| task.id.job.0 == 0;
    let done: u64 = last.tasks.iter().filter(done).filter_map(|task| task.instructions).sum();
    assert!(done >= 25_000_000, "{done}");
    nothing_is_left();
}

fn without_counters_it_is_refused() {
    if TaskCounters::find("/proc".as_ref(), false).is_ok() {
        skip!(NoPmu, "the processor counts");
    }
    let sampling = Sampling::default();
    let setup = Setup { sampling, ..setup(&[WORK], &[JobTarget::Instructions(7)]) };
    let error = LinuxHost::prepare(read::live().unwrap(), &setup).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with("a target of 7 instructions: expected counters"), "{text}");
    nothing_is_left();
}

/// Where the processor counts nothing a note says so, and everything is unknown.
fn what_the_processor_counts() {
    let setup = Setup { sampling: Sampling::default(), ..setup(&[WORK], &[]) };
    let mut host = LinuxHost::prepare(read::live().unwrap(), &setup).unwrap();
    let mut grants = Vec::new();
    let mut policy = PolicySpec::named("round-robin").plain();
    let mut look = |turn: &Round<'_>| grants = turn.grants.to_vec();
    let last = schedule(&mut host, &mut *policy, 1, &mut look).unwrap();
    host.finish();
    let answer =
        |source| grants.iter().find(|grant| grant.source == source).unwrap().answer.clone();
    let none = answer(Source::Counters).is_err_and(|refusal| refusal.why.contains("expected"));
    assert!(last.tasks.iter().all(|task| task.instructions.is_none() == none), "{grants:?}");
    assert!(answer(Source::RunStates).is_ok(), "{grants:?}");
    nothing_is_left();
}

/// Coefficients for stacks of these parts, each a component by itself.
fn model_of(parts: &[&str]) -> CpiModel {
    let component = |part: &&str| Component {
        name: (*part).to_owned(),
        parts: vec![(*part).to_owned()],
        memory: false,
    };
    let mut model = CpiModel {
        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        components: parts.iter().map(component).collect(),
        ..CpiModel::built_in()
    };
    model.modes.iter_mut().for_each(|mode| mode.coefficients.truncate(parts.len()));
    model
}

/// A policy learns where the cycles of each quantum went: those of page faults, and the rest; a program that
/// fills memory has both in nearly every quantum, from the first one on. `symbiotic` learns from it. Both programs run
/// until they have used the CPU time of six quanta, so that no machine is too fast for it.
fn where_cycles_went() {
    let mut counters = Counters::of_software(&[
        (Role::Instructions, TASK_CLOCK),
        (Role::Cycles, TASK_CLOCK),
        (Role::Stack(0), PAGE_FAULTS),
        (Role::Stack(1), PAGE_FAULTS),
    ]);
    let table = stack::arm().into_iter().find(|table| table.parts.len() == 3).unwrap();
    counters.pmus[0].stack = Some(StackPlan { table, width: 0.0 });
    let grows = "exec awk 'BEGIN { for (i = 0; i < 4000000; i++) a[i] = i }'";
    let targets = [JobTarget::Instructions(6 * QUANTUM.0); 2];
    let setup = Setup { sampling: counting(counters), ..setup(&[grows, grows], &targets) };
    let mut host = LinuxHost::prepare(read::live().unwrap(), &setup).unwrap();
    let model = model_of(table.parts);
    let known = Knowledge { cpi: Some(&model), ..Knowledge::default() };
    let mut policy = PolicySpec::named("symbiotic").policy(&known);
    let has_stack =
        |task: &colocate_evidence::SeenTask| task.stack().is_some_and(|stack| stack.total() > 0.0);
    let (mut reported, mut learnt) = (0, false);
    let last = schedule(&mut host, &mut *policy, 2, &mut |turn| {
        let state = turn.plan.state.as_deref();
        learnt |= state.is_some_and(|state| state.starts_with("2 threads' stacks known"));
        let counted = |id| turn.seen.tasks.iter().any(|task| task.id == id && has_stack(task));
        for did in turn.did {
            let is_told = did.ran.stack.is_some();
            assert!(
                turn.number > 0 || is_told || !counted(did.id),
                "of the first quantum: {did:?}"
            );
            let Some(shares) = &did.ran.stack else {
                assert!(did.ran.parts.is_empty(), "{did:?}");
                continue;
            };
            reported += 1;
            assert_eq!(did.ran.parts, table.parts);
            assert!(did.ran.ipc.is_some() && did.off < 0.1, "{did:?}");
            let sum: f64 = shares.iter().sum();
            assert!((sum - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share >= 0.0));
            // Events of a running thread are not read at the same moment.
            let alike = (shares[0] - shares[1]).abs() < 0.01;
            assert!(alike && shares[2] > 0.9, "{did:?}");
        }
    });
    assert!(reported > 0 && learnt, "{reported}");
    assert_eq!(host.stack_parts(), Ok(table.parts));
    // What is known of the cycles is never more than all of them.
    for task in last.unwrap().tasks {
        let known = task.stack().map_or(0.0, |stack| stack.total());
        assert!(known <= task.cycles.unwrap_or(0) as f64 + 1.0, "{task:?}");
    }
    host.finish();
    nothing_is_left();
}

/// Jobs in turn, and once orders to move the first one's memory.
struct Orders {
    turns: Box<dyn Policy>,
    pages: Vec<PageMove>,
}

impl Policy for Orders {
    fn needs(&self) -> SourceSet {
        self.turns.needs()
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let pages =
            if evidence.now.number == 3 { std::mem::take(&mut self.pages) } else { Vec::new() };
        Plan { pages, ..self.turns.decide(evidence) }
    }
}

/// Memory goes where it is, which is done, and to a node that is not there, which is reported. `lab` has machines with two.
fn memory_is_moved_as_ordered() {
    let machine = read::live().unwrap();
    let Some(node) = machine.nodes.first().map(|node| node.os) else {
        skip!(Numa, "no NUMA node is shown");
    };
    let order = |to| PageMove {
        job: JobIdx(0),
        ranges: Vec::new(),
        to,
        budget: Bytes::mib(1024),
        why: "a test".to_owned(),
    };
    let fills = "exec awk 'BEGIN { for (i = 0; i < 2000000; i++) a[i] = i }'";
    let mut host = LinuxHost::prepare(machine, &setup(&[fills], &[])).unwrap();
    let turns = PolicySpec::named("round-robin").plain();
    let mut policy = Orders { turns, pages: vec![order(node), order(NodeNr(4095))] };
    let mut reported = Vec::new();
    let look = &mut |turn: &Round<'_>| reported.extend(turn.seen.moved.iter().cloned());
    schedule(&mut host, &mut policy, 1, look).unwrap();
    let notes = host.finish();
    nothing_is_left();
    if reported.first().is_some_and(|first| first.trouble.is_some()) {
        skip!(Numa, "{reported:?}");
    }
    assert_eq!(reported.len(), 2, "{reported:?} {notes:?}");
    assert_eq!(
        (reported[0].to, reported[0].moved, &reported[0].trouble),
        (node, Bytes(0), &None),
        "{reported:?}"
    );
    assert!(reported[1].trouble.is_some() && reported[1].moved == Bytes(0), "{reported:?}");
}

/// The last PU is not in the list of those that are online: a program that runs there alone is seen all the same.
fn tasks_created_on_a_pu_that_came_later_are_found() {
    let mut setup = setup(&[], &[]);
    let (Some(last), true) = (setup.lifecycle.cpus.pop(), !setup.lifecycle.cpus.is_empty()) else {
        skip!(TwoPus, "one PU");
    };
    let script = format!("exec taskset -c {} sh -c 'sleep 2 & sleep 2 & exec sleep 2.5'", last.0);
    setup.commands = self::setup(&[&script], &[]).commands;
    let mut host = LinuxHost::prepare(read::live().unwrap(), &setup).unwrap();
    if host.totals().creation_without_perf.is_some() || !host.usable().contains(&last) {
        skip!(Perf, "thread creations are not reported, or not on PU {last}");
    }
    let notes = host.notes();
    assert!(notes.iter().any(|note| note.contains(&format!("on PU {},", last.0))), "{notes:?}");
    let seen = in_turn(&mut host, 1);
    assert_eq!(seen.tasks.len(), 3, "{:?}", seen.tasks);
    host.finish();
    nothing_is_left();
}

/// The variable that names the only test to run, in this process.
const ONE: &str = "COLOCATE_LIVES_TEST";

fn main() {
    let tests: [(&str, &dyn Fn()); 10] = [
        ("instructions_add_up", &|| instructions_add_up(false)),
        ("instructions_add_up by signals", &|| instructions_add_up(true)),
        ("jobs_that_ignore_sigterm_are_killed", &|| jobs_that_ignore_sigterm_are_killed(false)),
        ("jobs_that_ignore_sigterm_are_killed by signals", &|| {
            jobs_that_ignore_sigterm_are_killed(true)
        }),
        ("the_load_stays", &the_load_stays),
        (
            "tasks_created_on_a_pu_that_came_later_are_found",
            &tasks_created_on_a_pu_that_came_later_are_found,
        ),
        ("without_counters_it_is_refused", &without_counters_it_is_refused),
        ("what_the_processor_counts", &what_the_processor_counts),
        ("where_cycles_went", &where_cycles_went),
        ("memory_is_moved_as_ordered", &memory_is_moved_as_ordered),
    ];
    if let Err(why) = clock().open(Tid(0), Start::Now) {
        skip!(Perf, "the kernel allows no counting: {why}");
    }
    if let Some(wanted) = std::env::var_os(ONE) {
        return tests.into_iter().filter(|(name, _)| wanted == *name).for_each(|(_, test)| test());
    }
    let own = std::env::current_exe().unwrap();
    for (name, _) in tests {
        // A process each: so a limit needs no thread in it.
        let mut test = std::process::Command::new(&own).env(ONE, name).spawn().unwrap();
        let status = wait_for(&format!("the end of {name}"), || test.try_wait().unwrap());
        assert!(status.success(), "{name}: {status}");
        println!("test {name} ... ok");
    }
}
