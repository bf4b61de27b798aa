//! A small machine in round figures, and scenarios on it.

#![allow(dead_code)] // every test uses some of it

use colocate_evidence::{JobIdx, TaskId, TaskSpan};
use colocate_machine::described;
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, Machine, Nanos, Performance, PuNr};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Assumptions, MissCurve, Phase};
use colocate_policy::policies::fixed::FixedPlan;
use colocate_policy::{
    Decision, DefaultPlacement, Knowledge, Place, PlaceReason, Plan, Policy, PolicySpec,
};
use colocate_sim::{
    JobSpec, KernelScheduler, Method, Outcome, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Platform,
    Scenario, SimulationOptions, ThreadSpec, TotalWork, simulate_with,
};

/// Two sockets of two cores with two PUs each; a node and an L3 a socket. 1 GHz; 4 slots; port `i` does
/// one addition a cycle, port `m` one multiplication. PUs 0 to 3 are on node 0, siblings next to each other.
pub const SMALL: &str = r#"
version = 1
name = "two small sockets"
[shape]
packages = 2
cores-per-package = 2
pus-per-core = 2
nodes = 2
[numbering]
pus = "in-order"
[memory]
per-node = "16 GiB"
distances = [[10, 20], [20, 10]]
[[cache]]
level = 1
kind = "data"
size = "32 KiB"
cores = 1
[[cache]]
level = 3
kind = "unified"
size = "1 MiB"
cores = 2
[[kind]]
name = "core"
[[performance.kind]]
clock = "1 GHz"
slots-per-cycle = 4
branch-miss = "20 cycles"
divided = false
ports = ["i", "m", "a"]
units = [
    { work = "int", ports = ["i"] },
    { work = "int-mul", ports = ["m"] },
    { work = "load", ports = ["a"] },
]
[[performance.cache]]
level = 1
latency = "4 cycles"
[[performance.cache]]
level = 3
latency = "40 cycles"
inclusion = "neither"
[[performance.memory]]
latency = "100 ns"
bandwidth = "64 GB/s"
line = "64 B"
[performance.hops-by-distance]
value = { 20 = "100 ns" }
source = "made up for a test"
"#;

pub fn machine(text: &str) -> (Machine, Performance) {
    let machine = described::from_toml(text).unwrap().machine;
    (machine, described::performance(text).unwrap().unwrap())
}

fn known<T>(value: T) -> Known<T> {
    Known::new(value, "made up for a test")
}

/// One operation of `kind` an instruction and nothing else: one instruction a cycle alone; beside a sibling
/// that does the same half of one, beside another kind one.
pub fn phase(kind: WorkKind) -> PhaseSpec {
    PhaseSpec::of(Phase {
        name: kind.name().into(),
        slots: known(1.0),
        work: known(PortWork::Kinds(vec![(kind, 1.0)])),
        dependent_cycles: known(0.0),
        dependent_cycles_divided: known(0.0),
        stall_cycles: known(0.0),
        branch_misses: known(0.0),
        misses: known(MissCurve::new([(Bytes(64), 0.0)]).unwrap()),
        parallel_misses: known(1.0),
        written_back: known(0.0),
        shared_lines: known(0.0),
        ..Phase::default()
    })
}

/// A load from memory every 10 instructions, however large the cache.
pub fn streaming() -> PhaseSpec {
    let mut spec = phase(WorkKind::Load);
    spec.phase.name = "streaming".into();
    spec.phase.misses = known(MissCurve::new([(Bytes(64), 0.1)]).unwrap());
    spec
}

pub const INT: u32 = 0;
pub const MUL: u32 = 1;
pub const STREAM: u32 = 2;
pub const LOAD: u32 = 3;

pub fn stretch(phase: u32, instructions: u64) -> PhaseSegment {
    PhaseSegment { phase: PhaseIdx(phase), instructions, sleep: Nanos::ZERO, barrier: false }
}

pub fn thread(course: &[PhaseSegment]) -> ThreadSpec {
    ThreadSpec {
        name: "t".into(),
        born: Nanos::ZERO,
        course: course.to_vec(),
        work: TotalWork::Once,
        pages: Pages::FirstTouch,
        resident: Bytes::mib(64),
    }
}

/// A job of one thread that does so many million instructions of a phase: as many milliseconds alone.
pub fn job(name: &str, phase: u32, millions: u64) -> JobSpec {
    let threads = vec![thread(&[stretch(phase, millions * 1_000_000)])];
    JobSpec { memory: Vec::new(), name: name.into(), arrives: Nanos::ZERO, threads, barrier: None }
}

/// Every job's first thread in a place.
pub fn placed(places: &[Place]) -> Plan {
    let decision = |(job, &place): (u32, &Place)| Decision {
        task: TaskId { job: JobIdx(job), order: 0 },
        name: "".into(),
        place,
        why: PlaceReason::LeftToKernel,
    };
    Plan {
        version: colocate_policy::plan::VERSION,
        machine: String::new(),
        pus: Vec::new(),
        policy: String::new(),
        decisions: (0..).zip(places).map(decision).collect(),
        default_placement: DefaultPlacement::LeaveToKernel,
        ..Plan::default()
    }
}

/// Every job's first thread on a PU, or left to the kernel.
pub fn pinned(pus: &[Option<u32>]) -> FixedPlan {
    let places: Vec<Place> = pus.iter().map(|pu| pu.map(PuNr).into()).collect();
    FixedPlan(placed(&places))
}

pub fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Turns that begin together end together, so that schedules can be traced by hand.
pub fn together() -> KernelScheduler {
    KernelScheduler { stagger: 1, ..KernelScheduler::default() }
}

pub fn scenario(jobs: Vec<JobSpec>) -> Scenario {
    Scenario {
        name: "test".into(),
        seed: 0,
        phases: vec![
            phase(WorkKind::Int),
            phase(WorkKind::IntMul),
            streaming(),
            phase(WorkKind::Load),
        ],
        jobs,
        method: Method::Leave,
        quantum: Nanos::from_millis(200),
        grain: Nanos::ZERO,
        horizon: Nanos::from_secs(1000),
        usable: None,
        events: Vec::new(),
        kernel: together(),
    }
}

/// What can be run: the name of a policy, or a policy.
pub trait Made {
    fn made(&self) -> (Box<dyn Policy>, String);
}

impl Made for str {
    fn made(&self) -> (Box<dyn Policy>, String) {
        let known = Knowledge { shares_cores: true, has_nodes: true, ..Knowledge::default() };
        (PolicySpec::named(self).policy(&known), self.to_owned())
    }
}

impl<P: Policy + Clone + 'static> Made for P {
    fn made(&self) -> (Box<dyn Policy>, String) {
        (Box::new(self.clone()), String::new())
    }
}

pub fn run_on(text: &str, scenario: &Scenario, policy: &(impl Made + ?Sized)) -> Outcome {
    let (machine, performance) = machine(text);
    let platform = Platform::new(&machine, &performance, Assumptions::default()).unwrap();
    let options = SimulationOptions { spans: 100_000, ..SimulationOptions::default() };
    let (mut policy, name) = policy.made();
    simulate_with(&platform, scenario, (&mut *policy, &name), &options, &mut |_| ()).unwrap()
}

pub fn run(scenario: &Scenario, policy: &(impl Made + ?Sized)) -> Outcome {
    run_on(SMALL, scenario, policy)
}

/// One line a PU, one letter a job, one column a `step`; `_` is idle. Looks at the middle of each step.
pub fn picture(outcome: &Outcome, pus: u32, step: Nanos) -> String {
    let columns = outcome.lasted.0.div_ceil(step.0);
    let mut text = String::new();
    for pu in 0..pus {
        text.push_str(&format!("{pu} "));
        for column in 0..columns {
            let at = Nanos(column * step.0 + step.0 / 2);
            let here = |span: &&TaskSpan| span.pu.0 == pu && span.from <= at && at < span.to;
            let letter =
                |span: &TaskSpan| char::from(b'A' + u8::try_from(span.task.job.0).unwrap());
            text.push(outcome.spans.iter().find(here).map_or('_', letter));
        }
        text.push('\n');
    }
    text
}
