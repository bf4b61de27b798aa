//! A described machine and a small scenario, for tests of parts.

use crate::kernel::KernelScheduler;
use crate::platform::Platform;
use crate::scenario::{
    Barrier, BarrierWait, JobSpec, Method, Pages, PhaseIdx, PhaseSegment, PhaseSpec, Scenario,
    ThreadSpec, TotalWork,
};
use colocate_machine::{Bytes, Nanos, described};
use colocate_model::{Assumptions, Phase};

/// The described EPYC 7301: 64 PUs, two a core, four a last-level cache, eight a node.
pub(crate) fn platform() -> &'static Platform<'static> {
    let text = described::MACHINES[0].1;
    let machine = Box::leak(Box::new(described::from_toml(text).unwrap().machine));
    let performance = Box::leak(Box::new(described::performance(text).unwrap().unwrap()));
    Box::leak(Box::new(Platform::new(machine, performance, Assumptions::default()).unwrap()))
}

/// A job of three threads with this phase, which end at a barrier if `meets`.
pub(crate) fn scenario(phase: Phase, meets: bool) -> Scenario {
    let stretch = PhaseSegment {
        phase: PhaseIdx(0),
        instructions: 1_000_000_000,
        sleep: Nanos::ZERO,
        barrier: meets,
    };
    let thread = ThreadSpec {
        name: "t".into(),
        born: Nanos::ZERO,
        course: vec![stretch],
        work: TotalWork::Once,
        pages: Pages::FirstTouch,
        resident: Bytes::mib(1),
    };
    Scenario {
        name: "test".into(),
        seed: 0,
        phases: vec![PhaseSpec::of(phase)],
        jobs: vec![JobSpec {
            memory: Vec::new(),
            name: "j".into(),
            arrives: Nanos::ZERO,
            threads: vec![thread; 3],
            barrier: meets.then_some(Barrier { wait: BarrierWait::Sleep, serial: None }),
        }],
        method: Method::Leave,
        quantum: Nanos::from_secs(1),
        grain: Nanos::ZERO,
        horizon: Nanos::from_secs(100),
        usable: None,
        events: Vec::new(),
        kernel: KernelScheduler::default(),
    }
}
