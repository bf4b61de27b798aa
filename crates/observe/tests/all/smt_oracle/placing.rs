//! What colocate's own policies make of loops: the groups of the plan that they really make, for a machine
//! of the oracle's cores.

use super::together::Loop;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::performance::{
    CachePerformance, CorePerformance, Inclusion, MemoryPerformance, Performance, Replacement,
};
use colocate_machine::{
    Bytes, BytesPerSecond, Cache, CacheKind, Core, CoreIdx, CoreKind, Cycles, Hertz, KindIdx,
    Machine, Nanos, Package, PackageIdx, Pu, PuIdx, PuNr,
};
use colocate_model::phase::{Known, PortWork};
use colocate_model::{Class, MissCurve, Mix, Phase, Share};
use colocate_policy::{Knowledge, PolicySpec, Task};

/// Groups of loops, by place, one a core, that `policy` makes for cores of `siblings` PUs each; with
/// `rates` the tasks' instructions per cycle are known.
pub fn groups(
    policy: &str,
    cpu: &str,
    loops: &[&Loop],
    siblings: usize,
    rates: bool,
) -> Vec<Vec<usize>> {
    let machine = machine(loops.len() / siblings, siblings);
    let performance = performance(cpu, loops);
    let tasks: Vec<Task> =
        loops.iter().enumerate().map(|(at, one)| task(cpu, at, one, rates)).collect();
    let usable: Vec<PuIdx> = machine.all_pus().collect();
    let known = Knowledge { performance: Some(&performance), ..Knowledge::default() };
    let made = PolicySpec::named(policy).plan(&known, &machine, &usable, &tasks);
    let mut groups = vec![Vec::new(); machine.cores.len()];
    for (at, decision) in made.decisions.iter().enumerate() {
        let pu = machine
            .pu_by_os(decision.place.pu().expect("no policy of these leaves it to the kernel"));
        groups[machine.core_of(pu.expect("it is usable")).idx()].push(at);
    }
    groups
}

fn task(cpu: &str, at: usize, one: &Loop, rates: bool) -> Task {
    let mut mix = Mix::default();
    for class in Class::ALL {
        mix.set(class, Share::new(one.share(class as usize).min(1.0)));
    }
    let figures = &one.figures;
    Task {
        id: TaskId { job: JobIdx(u32::try_from(at).expect("few loops")), order: 0 },
        name: one.kernel.name.clone(),
        mix,
        busy: Some(1.0),
        ipc: rates.then_some(1.0 / figures.cycles),
        instructions: None,
        phase: Some(Phase {
            name: one.kernel.name.clone(),
            slots: known(figures.slots),
            work: known(PortWork::Ports {
                llvm_cpu: cpu.to_owned(),
                groups: figures.ports.clone(),
                kinds: Vec::new(),
            }),
            dependent_cycles: known(figures.dependent_cycles),
            dependent_cycles_divided: known(figures.dependent_cycles),
            stall_cycles: known(0.0),
            branch_misses: known(0.0),
            misses: known(MissCurve::default()),
            parallel_misses: known(1.0),
            written_back: known(0.0),
            shared_lines: known(0.0),
            ..Phase::default()
        }),
    }
}

fn known<T>(value: T) -> Known<T> {
    Known::new(value, "llvm-mca")
}

/// Cores as the oracle has them: all ports that the loops use, and nothing divided. What is beyond them
/// plays no part, since no loop misses a cache.
fn performance(cpu: &str, loops: &[&Loop]) -> Performance {
    let names = loops.iter().flat_map(|one| one.figures.ports.iter().flat_map(|(set, _)| set));
    let mut ports: Vec<String> = names.cloned().collect();
    ports.sort_unstable();
    ports.dedup();
    Performance {
        kinds: vec![CorePerformance {
            clock: Hertz::mhz(2000),
            llvm_cpu: Some(cpu.to_owned()),
            width: f64::from(loops[0].figures.width),
            ports,
            units: Vec::new(),
            branch_miss: Cycles(0.0),
            divided: false,
            thread_sets: 1,
        }],
        caches: vec![CachePerformance {
            level: 1,
            latency: Cycles(4.0),
            inclusion: Inclusion::Neither,
            replacement: Replacement::default(),
            bandwidth: None,
        }],
        memory: vec![MemoryPerformance {
            latency: Nanos(100),
            bandwidth: BytesPerSecond(1e10),
            line: Bytes(64),
        }],
        hops: vec![vec![Nanos::ZERO]],
        links: Vec::new(),
    }
}

fn machine(cores: usize, siblings: usize) -> Machine {
    let pus = |core: usize| (core * siblings..(core + 1) * siblings).map(PuIdx::new).collect();
    let pu = |at: usize| Pu { os: PuNr(PuIdx::new(at).0), core: CoreIdx::new(at / siblings) };
    let core = |at| Core { pus: pus(at), package: PackageIdx(0), node: None, kind: KindIdx(0) };
    let cache =
        |at| Cache { level: 1, kind: CacheKind::Data, size: Some(Bytes::kib(32)), pus: pus(at) };
    Machine {
        name: format!("{cores} cores of the oracle"),
        processor: None,
        pus: (0..cores * siblings).map(pu).collect(),
        cores: (0..cores).map(core).collect(),
        packages: vec![Package { cores: (0..cores).map(CoreIdx::new).collect() }],
        nodes: Vec::new(),
        caches: (0..cores).map(cache).collect(),
        kinds: vec![CoreKind { name: "core".to_owned(), capacity: None, max_frequency: None }],
        distances: None,
        offline: Vec::new(),
    }
}
