//! Speed as ratios in one run: what the benchmarks share.

use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::{CoreIdx, Machine, described};
use colocate_model::{Class, Mix, Share, UnitDemand};
use colocate_observe::emulate::{self, EmulatedRun, Emulator, SearchPaths};
use colocate_policy::matching::{PairCosts, cheapest};
use colocate_policy::rng::SplitMix64;
use colocate_policy::{Plan, Task};
use rustworkx_core::max_weight_matching::max_weight_matching;
use rustworkx_core::petgraph::graph::UnGraph;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub mod spread;
pub mod wakes;

/// QEMU and the plugin that counts instructions.
///
/// # Errors
/// If QEMU or the plugin is missing.
pub fn emulator() -> anyhow::Result<Emulator> {
    Ok(emulate::available(&SearchPaths::from_env(|name| std::env::var_os(name)))?)
}

/// Profile of `command` under QEMU, with its misses if `misses` is given.
///
/// # Errors
/// If `command` cannot be run, or does not end with status 0.
pub fn emulated(
    emulator: &Emulator,
    command: &[&str],
    misses: bool,
) -> anyhow::Result<EmulatedRun> {
    let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let run = emulate::EmulatedCommand {
        path: Path::new(command[0]),
        argv: &argv,
        scratch: &std::env::temp_dir(),
        ignores_pipe: false,
        phases: None,
        trace: None,
        stretches: false,
        misses,
    };
    let ran = emulate::profile(emulator, run)?;
    anyhow::ensure!(ran.status.success(), "it failed under QEMU: {}", ran.status);
    Ok(ran)
}

/// The mean; 0 of nothing.
#[must_use]
pub fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Least processor time of `runs` calls, in milliseconds, and the result of the last call.
///
/// Processor time of this thread from the kernel's scheduler, to the nanosecond; wall time where
/// the kernel does not have it.
///
/// # Panics
/// If `runs` is 0.
pub fn cpu_ms<T>(runs: usize, mut call: impl FnMut() -> T) -> (f64, T) {
    let mut least = f64::INFINITY;
    let mut last = None;
    for _ in 0..runs {
        let cpu = cpu_now_ms();
        let begun = Instant::now();
        last = Some(call());
        // Before the scheduler is asked, which takes some microseconds.
        let wall = begun.elapsed().as_secs_f64() * 1e3;
        let spent = cpu_now_ms().zip(cpu).map(|(after, before)| after - before);
        // The scheduler counts in ticks while a thread runs on; short calls need the wall clock.
        least = least.min(spent.filter(|_| wall > 20.0).unwrap_or(wall));
    }
    (least, last.expect("at least one run"))
}

/// Current speed of this machine: steps a nanosecond of eight independent xorshift generators, the
/// best of twenty stretches of about a quarter of a millisecond.
///
/// For benchmarks with a time limit: in a virtual machine other guests take a part of the core,
/// which no counter of the guest shows. Two runs of a benchmark are comparable as far as their
/// yardsticks agree.
#[must_use]
pub fn yardstick() -> f64 {
    const STEPS: u64 = 50_000;
    let stretches = (0..20).map(|_| {
        let mut all = [1_u64, 2, 3, 4, 5, 6, 7, 8];
        let begin = Instant::now();
        for _ in 0..STEPS {
            for one in &mut all {
                *one ^= *one << 13;
                *one ^= *one >> 7;
                *one ^= *one << 17;
            }
            std::hint::black_box(&mut all);
        }
        (STEPS * all.len() as u64) as f64 / begin.elapsed().as_nanos() as f64
    });
    stretches.fold(0.0, f64::max)
}

fn cpu_now_ms() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e6)
}

/// `n` tasks: for "two programs" two kinds of threads that differ a little, else all different.
pub fn tasks(kind: &str, n: usize, rng: &mut SplitMix64) -> Vec<Task> {
    // Integer and floating-point programs as NPB's IS and BT: shares of branch, float, int, load, store.
    const PROGRAMS: [[f64; 5]; 2] =
        [[0.10, 0.02, 0.42, 0.28, 0.12], [0.04, 0.38, 0.12, 0.34, 0.14]];
    let mut task = |at: usize| {
        let mut mix = Mix::default();
        for class in Class::ALL {
            let share = match kind {
                "two programs" => PROGRAMS[at % 2][class as usize] + 0.05 * rng.unit(),
                _ => rng.unit(),
            };
            mix.set(class, Share::new(share));
        }
        let job = JobIdx(u32::from(at % 2 == 1));
        let order = u32::try_from(at / 2).expect("few tasks");
        Task {
            id: TaskId { job, order },
            name: at.to_string(),
            mix,
            busy: Some(1.0),
            ipc: None,
            instructions: None,
            phase: None,
        }
    };
    (0..n).map(&mut task).collect()
}

/// A machine of `packages` packages with `cores` cores each, two PUs a core and a node a package,
/// numbered as `pus` says; `more` describes its caches and kinds of cores.
///
/// # Errors
/// If the description is invalid.
pub fn machine(packages: usize, cores: usize, pus: &str, more: &str) -> anyhow::Result<Machine> {
    let text = format!(
        "version = 1\nname = \"{packages} x {cores} cores\"\n[shape]\npackages = {packages}\n\
         cores-per-package = {cores}\npus-per-core = 2\nnodes = {packages}\n[numbering]\n\
         pus = \"{pus}\"\n{more}"
    );
    Ok(described::from_toml(&text)?.machine)
}

/// One kind of core.
pub const ALIKE: &str = "[[kind]]\nname = \"core\"\n";

/// Cost of the cheapest perfect matching by rustworkx-core, which finds the heaviest: weights are a
/// constant less the costs.
///
/// # Panics
/// If rustworkx-core finds no matching, which would be an error of the library.
#[must_use]
pub fn rustworkx(costs: &PairCosts) -> i64 {
    let n = costs.vertices();
    let mut graph = UnGraph::<(), i64>::with_capacity(n, n * n / 2);
    let vertices: Vec<_> = (0..n).map(|_| graph.add_node(())).collect();
    for a in 0..n {
        for b in a + 1..n {
            graph.add_edge(vertices[a], vertices[b], costs.of(a, b));
        }
    }
    let most = (0..n).flat_map(|v| costs.row(v)).max().map_or(0, |most| most + 1);
    let weight = |edge: rustworkx_core::petgraph::graph::EdgeReference<'_, i64>| {
        Ok::<_, std::convert::Infallible>(i128::from(most - edge.weight()))
    };
    let Ok(pairs) = max_weight_matching(&graph, true, weight, false);
    assert_eq!(2 * pairs.len(), n, "not a perfect matching");
    pairs.into_iter().map(|(a, b)| costs.of(a, b)).sum()
}

/// Milliseconds and cost of LEMON's `MaxWeightedPerfectMatching`, or `None` if
/// `benches/lemon/match` is not built.
///
/// # Panics
/// If the program fails or prints something else than two numbers.
#[must_use]
pub fn lemon(costs: &PairCosts) -> Option<(f64, i64)> {
    of_program(&mut Command::new(here("lemon/match")), costs)
}

/// Milliseconds and cost of NetworkX's `max_weight_matching`, or `None` if `benches/networkx/venv` is
/// not there.
///
/// # Panics
/// If the program fails or prints something else than two numbers.
#[must_use]
pub fn networkx(costs: &PairCosts) -> Option<(f64, i64)> {
    let python = here("networkx/venv/bin/python");
    of_program(Command::new(python).arg(here("networkx/match.py")), costs)
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Output of a program that reads costs; `None` if the program is missing.
fn of_program(program: &mut Command, costs: &PairCosts) -> Option<(f64, i64)> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let n = costs.vertices();
    let mut text = format!("{n}\n");
    for a in 0..n {
        let row: Vec<String> = (a + 1..n).map(|b| costs.of(a, b).to_string()).collect();
        text.push_str(&row.join(" "));
        text.push('\n');
    }
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    let text = String::from_utf8(out.stdout).expect("it prints numbers");
    let mut numbers = text.split_whitespace();
    let ms = numbers.next().and_then(|ms| ms.parse().ok()).expect("milliseconds");
    let cost = numbers.next().and_then(|cost| cost.parse().ok()).expect("a cost");
    Some((ms, cost))
}

/// Overlap of `plan`, two tasks a core, above the optimum, as a share of the optimum.
///
/// # Panics
/// If the plan leaves a task unpinned.
#[must_use]
pub fn over_optimum(plan: &Plan, machine: &Machine, tasks: &[Task]) -> f64 {
    const STEPS: f64 = 1e9;
    let by_id: BTreeMap<TaskId, UnitDemand> = tasks
        .iter()
        .map(|task| (task.id, UnitDemand::of(&task.mix, task.weight(), &Mix::default())))
        .collect();
    let mut on_core: BTreeMap<CoreIdx, Vec<UnitDemand>> = BTreeMap::new();
    for decision in &plan.decisions {
        let pu =
            decision.place.pu().and_then(|os| machine.pu_by_os(os)).expect("every task is placed");
        on_core.entry(machine.core_of(pu)).or_default().push(by_id[&decision.task]);
    }
    let mine: f64 = on_core.values().map(|pair| pair[0].overlap(&pair[1])).sum();
    let demands: Vec<UnitDemand> = by_id.into_values().collect();
    let costs = PairCosts::of_overlaps(&demands, STEPS);
    let optimum = costs.total(&cheapest(&costs).expect("an even number"));
    mine / (optimum as f64 / STEPS) - 1.0
}
