//! Parts of scenarios that are made here and not read from a file.

use colocate_machine::{Bytes, Nanos, PuIdx};
use colocate_model::phase::{Demand, Known, PortWork};
use colocate_model::{MissCurve, Phase, PlacedTask};
use colocate_sim::{
    JobSpec, KernelScheduler, Method, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Scenario,
    ThreadSpec, TotalWork,
};

/// Work without sleep or barrier.
pub(crate) const fn segment(phase: PhaseIdx, instructions: u64) -> PhaseSegment {
    PhaseSegment { phase, instructions, sleep: Nanos::ZERO, barrier: false }
}

/// A thread from the job's start on.
pub(crate) fn thread(name: &str, course: Vec<PhaseSegment>, work: TotalWork) -> ThreadSpec {
    let name = name.to_owned();
    let pages = Pages::FirstTouch;
    ThreadSpec { name, born: Nanos::ZERO, course, work, pages, resident: Bytes(0) }
}

/// A job from the start on, without common memory or barrier.
pub(crate) fn job(name: &str, threads: Vec<ThreadSpec>) -> JobSpec {
    let name = name.to_owned();
    JobSpec { memory: Vec::new(), name, arrives: Nanos::ZERO, threads, barrier: None }
}

/// A scenario with decisions each `quantum` on all PUs, until `horizon`; jobs that are done leave.
pub(crate) fn scenario(
    name: &str,
    phases: Vec<PhaseSpec>,
    jobs: Vec<JobSpec>,
    [quantum, horizon]: [Nanos; 2],
) -> Scenario {
    Scenario {
        name: name.to_owned(),
        seed: 0,
        phases,
        jobs,
        method: Method::Leave,
        quantum,
        grain: Nanos::ZERO,
        horizon,
        usable: None,
        events: Vec::new(),
        kernel: KernelScheduler::default(),
    }
}

/// A task on a PU without memory on other nodes, in an address space by number.
pub(crate) fn seat(pu: PuIdx, demand: &Demand, space: u32) -> PlacedTask<'_> {
    PlacedTask { pu, demand, pages: &[], space }
}

/// A phase with all figures known from `source`, and without work or costs.
pub(crate) fn known_phase(name: &str, source: &str) -> Phase {
    let known = |value| Known::new(value, source);
    let misses = MissCurve::new([(Bytes(64), 0.0)]).unwrap_or_default();
    Phase {
        name: name.to_owned(),
        slots: known(1.0),
        work: Known::new(PortWork::Kinds(Vec::new()), source),
        dependent_cycles: known(0.0),
        dependent_cycles_divided: known(0.0),
        stall_cycles: known(0.0),
        branch_misses: known(0.0),
        misses: Known::new(misses, source),
        parallel_misses: known(1.0),
        written_back: known(0.0),
        shared_lines: known(0.0),
        ..Phase::default()
    }
}
