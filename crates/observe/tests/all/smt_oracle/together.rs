//! Several loops on one core: what LLVM's scheduler makes of them, and what the model predicts.

use super::kernels::{Code, Kernel, Random, Registers, random};
use colocate_machine::performance::PortSet;
use colocate_model::phase::Demand;
use colocate_model::smt::{SharedResources, Siblings};
use colocate_model::{Fairness, MissCurve};
use colocate_observe::mca::{BlockDemand, Mca, TargetProcessor};

/// Instructions of a round of all loops, at most, and how far their progress may differ: rounds of loops
/// are whole.
const MOST_INSTRUCTIONS: usize = 512;
const EQUAL: f64 = 0.01;

/// A loop with what LLVM says of it alone.
pub struct Loop {
    pub kernel: Kernel,
    pub figures: BlockDemand,
    pub demand: Demand,
}

impl Loop {
    /// Cycles of one round of the loop, alone.
    pub fn cycles(&self) -> f64 {
        self.figures.cycles * self.length() as f64
    }

    pub fn length(&self) -> usize {
        self.figures.instructions.len()
    }

    /// Cycles per instruction that ports and front end alone ask for.
    pub fn ports_and_slots(&self) -> f64 {
        let free =
            Demand { dependent_cycles: 0.0, dependent_cycles_divided: 0.0, ..self.demand.clone() };
        1.0 / Siblings::new(core(self, false), &[&free]).alone[0]
    }

    /// Instructions of a class, by its place in `colocate_model::Class`, per instruction.
    pub fn share(&self, class: usize) -> f64 {
        f64::from(self.kernel.classes[class]) / self.length() as f64
    }
}

/// The processor, in LLVM's tables and as the model knows it, and how loops are written for it.
pub struct Oracle {
    mca: Mca,
    target: TargetProcessor,
    code: Code,
}

impl Oracle {
    pub fn new(cpu: &str, code: Code) -> Self {
        let mca = Mca::find().expect("scripts/install test installs llvm");
        Self { mca, target: TargetProcessor { triple: code.triple.into(), cpu: cpu.into() }, code }
    }

    pub fn cpu(&self) -> &str {
        &self.target.cpu
    }

    pub fn version(&self) -> u32 {
        self.mca.version()
    }

    /// The loops, each alone.
    pub fn loops(&self, kernels: Vec<Kernel>) -> Vec<Loop> {
        let texts: Vec<String> =
            kernels.iter().map(|kernel| kernel.text(&self.code.threads[0])).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let figures = self.mca.analyse(&self.target, &texts).expect("llvm-mca runs");
        let mut names = Vec::new();
        let one = |(kernel, figures): (Kernel, Result<BlockDemand, _>)| {
            let figures = figures.unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            let demand = demand(&figures, &mut names);
            Loop { kernel, figures, demand }
        };
        kernels.into_iter().zip(figures).map(one).collect()
    }

    pub fn random_loops(&self, count: usize, numbers: &mut Random) -> Vec<Loop> {
        let one = |at| random(&self.code, numbers, format!("random-{at}"));
        self.loops((0..count).map(one).collect())
    }

    /// How many times longer each group takes together than alone, when all make the same progress.
    pub fn slowdowns(&self, groups: &[Vec<&Loop>]) -> Vec<f64> {
        let woven: Vec<Woven> = groups.iter().map(|group| self.woven(group)).collect();
        let codes: Vec<Vec<String>> = woven.iter().map(|woven| woven.code.clone()).collect();
        let together = self.mca.cycles(&self.target, &codes).expect("llvm-mca runs");
        let together = together.into_iter().map(|cycles| cycles.expect("each loop was simulated"));
        together.zip(&woven).map(|(together, woven)| together / woven.alone).collect()
    }

    /// In which part of its cycles each group waits for a place in the reorder buffer, 0 to 1: as LLVM
    /// counts, cycles in which dispatch has something that the buffer has no room for.
    pub fn waits_for_reorder_buffer(&self, groups: &[Vec<&Loop>]) -> Vec<f64> {
        let codes: Vec<String> =
            groups.iter().map(|group| self.woven(group).code.join("\n")).collect();
        super::waiting::for_reorder_buffer(&self.mca, &self.target, &codes)
    }

    /// The loops of a group as one, each spread evenly.
    fn woven(&self, group: &[&Loop]) -> Woven {
        let rounds = equal_progress(group);
        let all = group.iter().zip(&rounds);
        let alone = all.clone().map(|(one, &rounds)| rounds as f64 * one.cycles()).sum::<f64>();
        let threads = all.zip(&self.code.threads);
        let placed =
            threads.map(|((one, &rounds), registers)| spread(&one.kernel, registers, rounds));
        let mut placed: Vec<(f64, Vec<String>)> = placed.flatten().collect();
        placed.sort_by(|x, y| x.0.total_cmp(&y.0));
        Woven {
            code: placed.into_iter().flat_map(|(_, entry)| entry).collect(),
            alone: alone / group.len() as f64,
        }
    }
}

/// A group as one code.
struct Woven {
    code: Vec<String>,
    /// Cycles that its rounds take alone, on average over the loops.
    alone: f64,
}

/// What the model predicts for the group: the same figure for all, the largest if they differ, since they
/// are held to the same progress.
pub fn predicted(group: &[&Loop], divided: bool) -> f64 {
    let demands: Vec<&Demand> = group.iter().map(|one| &one.demand).collect();
    let mut siblings = Siblings::new(core(group[0], divided), &demands);
    let rates = siblings.with_stalls(0.0, &vec![0.0; group.len()]);
    (0..group.len()).map(|t| siblings.alone[t] / rates[t]).fold(0.0, f64::max)
}

/// The core that a loop was simulated on.
fn core(of: &Loop, divided: bool) -> SharedResources {
    let width = f64::from(of.figures.width);
    SharedResources { width, divided, sets: 1.0, whole: PortSet(0), fairness: Fairness::Progress }
}

fn demand(figures: &BlockDemand, names: &mut Vec<String>) -> Demand {
    let mut bit = |name: &String| {
        let at = names.iter().position(|other| other == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        });
        1_u32 << at
    };
    let ports = figures.ports.iter();
    let ports =
        ports.map(|(set, c)| (PortSet(set.iter().fold(0, |all, name| all | bit(name))), *c));
    let mut ports: Vec<(PortSet, f64)> = ports.collect();
    ports.sort_by_key(|(set, _)| *set);
    let divided = figures.dependent_cycles_divided;
    Demand {
        slots: figures.slots,
        ports,
        dependent_cycles: figures.dependent_cycles,
        dependent_cycles_divided: divided.unwrap_or(figures.dependent_cycles),
        stall_cycles: 0.0,
        misses: MissCurve::default(),
        parallel_misses: 1.0,
        written_back: 0.0,
        shared_lines: 0.0,
    }
}

/// Rounds of each loop that take the same time alone, as nearly as short codes allow.
fn equal_progress(group: &[&Loop]) -> Vec<usize> {
    let longest = group.iter().map(|one| one.cycles()).fold(0.0, f64::max);
    let candidate = |of_longest: usize| {
        let time = of_longest as f64 * longest;
        let rounds = |one: &&Loop| (time / one.cycles()).round();
        let off = group.iter().map(|one| (rounds(one) * one.cycles() / time).ln());
        let (least, most) = off.fold((0.0_f64, 0.0_f64), |(l, m), off| (l.min(off), m.max(off)));
        (most - least, group.iter().map(|one| rounds(one) as usize).collect::<Vec<_>>())
    };
    let length = |rounds: &[usize]| -> usize {
        group.iter().zip(rounds).map(|(one, rounds)| one.length() * rounds).sum()
    };
    let short = |(_, rounds): &(f64, Vec<usize>)| length(rounds) <= MOST_INSTRUCTIONS;
    let mut best = candidate(1);
    for next in (2..=MOST_INSTRUCTIONS).map(candidate).take_while(short) {
        if best.0 < EQUAL {
            break;
        }
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// So many rounds of a loop, each entry with its place between 0 and 1.
fn spread(kernel: &Kernel, registers: &Registers, rounds: usize) -> Vec<(f64, Vec<String>)> {
    let entries = kernel.with(registers);
    let all: usize = rounds * entries.iter().map(Vec::len).sum::<usize>();
    let mut before = 0;
    let mut placed = Vec::new();
    for entry in std::iter::repeat_n(&entries, rounds).flatten() {
        placed.push(((before as f64 + 0.5) / all as f64, entry.clone()));
        before += entry.len();
    }
    placed
}
