//! Machines and workloads as short texts, plans as pictures: for tests only.

use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{
    Bytes, Cache, CacheKind, Core, CoreIdx, CoreKind, KindIdx, Machine, Node, NodeIdx, NodeNr,
    Package, PackageIdx, Pu, PuIdx, PuNr,
};
use colocate_model::{Class, Mix, Share};
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Knowledge, Plan, PolicySpec, Task};
use expect_test::Expect;
use std::fmt::Write;

/// A machine such as `pack:2 node:2 l3:2 core:2 pu:2`; a level that is left out counts 1.
///
/// `+` begins a further part with packages of its own; `slow` makes its cores a slower kind.
/// `linux` numbers the first PU of every core before the second ones, as Linux does on x86.
pub fn machine(spec: &str) -> Machine {
    let mut m = Machine {
        name: spec.to_owned(),
        processor: None,
        pus: Vec::new(),
        cores: Vec::new(),
        packages: Vec::new(),
        nodes: Vec::new(),
        caches: Vec::new(),
        kinds: Vec::new(),
        distances: None,
        offline: Vec::new(),
    };
    let hybrid = spec.contains("slow");
    for name in if hybrid { &["slow", "fast"][..] } else { &["core"] } {
        m.kinds.push(CoreKind { name: (*name).to_owned(), capacity: None, max_frequency: None });
    }
    for part in spec.split('+') {
        let kind = KindIdx::new(usize::from(hybrid && !part.contains("slow")));
        add_part(&mut m, part, kind);
    }
    if spec.contains("linux") {
        number_siblings_last(&mut m);
    }
    m
}

fn add_part(m: &mut Machine, part: &str, kind: KindIdx) {
    let count = |level: &str| {
        let word = part.split_whitespace().find_map(|word| word.strip_prefix(level));
        word.map_or(1, |n| n.trim_start_matches(':').parse().unwrap())
    };
    for _ in 0..count("pack") {
        m.packages.push(Package { cores: Vec::new() });
        for _ in 0..count("node") {
            let node = NodeIdx::new(m.nodes.len());
            let os = NodeNr(node.0);
            m.nodes.push(Node { os, memory: Some(Bytes::mib(1024)), pus: Vec::new() });
            for _ in 0..count("l3") {
                let pus = Vec::new();
                m.caches.push(Cache { level: 3, kind: CacheKind::Unified, size: None, pus });
                for _ in 0..count("core") {
                    add_core(m, node, kind, count("pu"));
                }
            }
        }
    }
}

fn add_core(m: &mut Machine, node: NodeIdx, kind: KindIdx, width: usize) {
    let core = CoreIdx::new(m.cores.len());
    let pus: Vec<PuIdx> = (m.pus.len()..m.pus.len() + width).map(PuIdx::new).collect();
    m.pus.extend(pus.iter().map(|pu| Pu { os: PuNr(pu.0), core }));
    m.packages.last_mut().unwrap().cores.push(core);
    m.nodes.last_mut().unwrap().pus.extend(&pus);
    m.caches.last_mut().unwrap().pus.extend(&pus);
    let package = PackageIdx::new(m.packages.len() - 1);
    m.cores.push(Core { pus, package, node: Some(node), kind });
}

fn number_siblings_last(m: &mut Machine) {
    let mut next = 0;
    for sibling in 0..m.smt_width() {
        for core in &m.cores {
            if let Some(pu) = core.pus.get(sibling) {
                m.pus[pu.idx()].os = PuNr(next);
                next += 1;
            }
        }
    }
}

/// One task a letter; the letter is the job, so `AAB` is two tasks of job A and one of job B.
///
/// `mixes` gives each letter its shares in percent: `A f40 i20 @50, B l30` (b branch, f float, i
/// int, l load, s store, @ busy; a class not named has share 0, busy not named is 100). A letter
/// that `mixes` leaves out was never watched.
pub(crate) fn letters(names: &str, mixes: &str) -> Vec<Task> {
    let mut orders = [0; 26];
    let task = |letter: u8| {
        let job = u32::from(letter - b'A');
        let order = orders[job as usize];
        orders[job as usize] += 1;
        let (mix, busy) = mix_of(letter, mixes);
        Task {
            id: TaskId { job: JobIdx(job), order },
            name: char::from(letter).to_string(),
            mix,
            busy,
            ipc: None,
            instructions: None,
            phase: None,
        }
    };
    names.bytes().map(task).collect()
}

fn mix_of(letter: u8, mixes: &str) -> (Mix, Option<f64>) {
    let entries = mixes.split(',').map(str::trim);
    let Some(entry) = entries.into_iter().find(|e| e.bytes().next() == Some(letter)) else {
        return (Mix::default(), None);
    };
    let percent = |tag: &str| -> Option<f64> {
        let word = entry[1..].split_whitespace().find_map(|word| word.strip_prefix(tag));
        word.map(|n| n.parse::<f64>().unwrap() / 100.0)
    };
    let mut mix = Mix::default();
    for class in Class::ALL {
        mix.set(class, Share::new(percent(&class.name()[..1]).unwrap_or(0.0)));
    }
    (mix, Some(percent("@").unwrap_or(1.0)))
}

/// `count` tasks of jobs of their own, all mixes known, each busy for some of the time.
pub fn random_tasks(rng: &mut SplitMix64, count: usize) -> Vec<Task> {
    let mut task = |job: usize| {
        let mut mix = Mix::default();
        for class in Class::ALL {
            mix.set(class, Share::new(rng.unit()));
        }
        let job = JobIdx(u32::try_from(job).unwrap());
        Task {
            id: TaskId { job, order: 0 },
            name: job.0.to_string(),
            mix,
            busy: Some(rng.unit()),
            ipc: None,
            instructions: None,
            phase: None,
        }
    };
    (0..count).map(&mut task).collect()
}

/// The plan drawn: one line a cache, one bracket a core, one place a PU, `_` idle, `x` forbidden;
/// tasks that take turns on a PU are together. `3 ×` is before a line that is there three times.
/// Below it what the policy predicts.
pub fn picture(plan: &Plan, machine: &Machine) -> String {
    let mut on_pu = vec![String::new(); machine.pus.len()];
    for decision in &plan.decisions {
        match decision.place.pu() {
            Some(os) => on_pu[machine.pu_by_os(os).unwrap().idx()].push_str(&decision.name),
            None => return "left to the kernel\n".to_owned(),
        }
    }
    let usable = |pu: PuIdx| plan.pus.contains(&machine.pus[pu.idx()].os);
    let place = |pu: PuIdx| match on_pu[pu.idx()].as_str() {
        "" if usable(pu) => "_".to_owned(),
        "" => "x".to_owned(),
        tasks => tasks.to_owned(),
    };
    let bracket = |core: &Core| {
        let pus: Vec<_> = core.pus.iter().map(|&pu| place(pu)).collect();
        format!("[{}]", pus.join(" "))
    };
    let cache = |core: &Core| machine.last_level_cache(core.pus[0]);
    let lines = machine.cores.chunk_by(|a, b| cache(a) == cache(b));
    let lines: Vec<String> = lines.map(|cores| cores.iter().map(bracket).collect()).collect();
    let mut text = String::new();
    for same in lines.chunk_by(|a, b| a == b) {
        match same.len() {
            1 => writeln!(text, "{}", same[0]),
            times => writeln!(text, "{times} × {}", same[0]),
        }
        .unwrap();
    }
    if let Some(predicted) = &plan.predicted {
        writeln!(text, "{predicted}").unwrap();
    }
    text
}

/// Plans on the whole machine and compares the picture.
pub fn check(policy: &str, spec: &str, names: &str, mixes: &str, expected: Expect) {
    let machine = machine(spec);
    let all: Vec<_> = machine.all_pus().collect();
    let made = plan(policy, &machine, &all, &letters(names, mixes));
    expected.assert_eq(&picture(&made, &machine));
}

/// Plans on some PUs, by place, and compares the picture; forbidden PUs are drawn `x`.
pub fn check_on(policy: &str, spec: &str, pus: &[u32], names: &str, mixes: &str, expected: Expect) {
    let machine = machine(spec);
    let usable: Vec<_> = pus.iter().map(|&pu| PuIdx(pu)).collect();
    let made = plan(policy, &machine, &usable, &letters(names, mixes));
    expected.assert_eq(&picture(&made, &machine));
}

/// Plans on the whole machine and compares the reasons, one task a line.
pub(crate) fn check_why(policy: &str, spec: &str, names: &str, mixes: &str, expected: Expect) {
    let machine = machine(spec);
    let all: Vec<_> = machine.all_pus().collect();
    let made = plan(policy, &machine, &all, &letters(names, mixes));
    let line = |d: &colocate_policy::Decision| format!("{} {}\n", d.name, d.why);
    expected.assert_eq(&made.decisions.iter().map(line).collect::<String>());
}

/// The plan of the policy `name`, of which nothing is known beforehand.
pub fn plan(name: &str, machine: &Machine, usable: &[PuIdx], tasks: &[Task]) -> Plan {
    PolicySpec::named(name).plan(&Knowledge::default(), machine, usable, tasks)
}
