//! Two loops on one core: what LLVM's scheduler makes of them, and what the model predicts.

use crate::kernels::{Kernel, Side};
use colocate_machine::performance::PortSet;
use colocate_model::phase::Demand;
use colocate_model::smt::{Shared, Siblings};
use colocate_model::{Fairness, MissCurve};
use colocate_observe::mca::{Figures, Mca, Syntax, Target};

/// Instructions of a round of both loops, at most, and how far their progress may differ: rounds of
/// loops are whole.
const MOST_INSTRUCTIONS: usize = 512;
const EQUAL: f64 = 0.01;

/// A loop with what LLVM says of it alone.
pub struct Loop {
    pub kernel: Kernel,
    pub figures: Figures,
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
        1.0 / Siblings::new(core(self, false), &[&free]).alone(0)
    }

    /// Instructions of a class, by its place in `colocate_model::Class`, per instruction.
    pub fn share(&self, class: usize) -> f64 {
        f64::from(self.kernel.classes[class]) / self.length() as f64
    }
}

/// The processor, in LLVM's tables and as the model knows it.
pub struct Oracle {
    mca: Mca,
    target: Target,
}

impl Oracle {
    pub fn new(cpu: &str) -> Self {
        let mca = Mca::find().expect("scripts/install test installs llvm");
        Self { mca, target: Target { triple: "x86_64".into(), cpu: cpu.into() } }
    }

    pub fn version(&self) -> u32 {
        self.mca.version()
    }

    /// The loops, each alone.
    pub fn loops(&self, kernels: Vec<Kernel>) -> Vec<Loop> {
        let texts: Vec<String> = kernels.iter().map(|kernel| kernel.text(Side::A)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let figures = self.mca.analyse(&self.target, Syntax::Usual, &texts).expect("llvm-mca runs");
        let mut names = Vec::new();
        let one = |(kernel, figures): (Kernel, Result<Figures, _>)| {
            let figures = figures.unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            let demand = demand(&figures, &mut names);
            Loop { kernel, figures, demand }
        };
        kernels.into_iter().zip(figures).map(one).collect()
    }

    /// How many times longer each pair takes together than alone, when both make the same progress.
    pub fn slowdowns(&self, pairs: &[(&Loop, &Loop)]) -> Vec<f64> {
        let rounds: Vec<(usize, usize)> = pairs.iter().map(|(a, b)| equal_progress(a, b)).collect();
        let code = |((a, b), rounds): (&(&Loop, &Loop), &(usize, usize))| {
            interleaved(&a.kernel, &b.kernel, *rounds)
        };
        let codes: Vec<Vec<String>> = pairs.iter().zip(&rounds).map(code).collect();
        let together = self.mca.cycles(&self.target, &codes).expect("llvm-mca runs");
        let alone = pairs.iter().zip(&rounds).map(|((a, b), (of_a, of_b))| {
            (*of_a as f64 * a.cycles() + *of_b as f64 * b.cycles()) / 2.0
        });
        let together = together.into_iter().map(|cycles| cycles.expect("each loop was simulated"));
        together.zip(alone).map(|(together, alone)| together / alone).collect()
    }
}

/// What the model predicts for the pair: the same figure, the larger one if they differ, since the two are
/// held to the same progress.
pub fn predicted(a: &Loop, b: &Loop, divided: bool) -> f64 {
    let core = core(a, divided);
    let mut siblings = Siblings::new(core, &[&a.demand, &b.demand]);
    let rates = siblings.with_stalls(0.0, &[0.0, 0.0]);
    (0..2).map(|t| siblings.alone(t) / rates[t]).fold(0.0, f64::max)
}

/// The core that a loop was simulated on.
fn core(of: &Loop, divided: bool) -> Shared {
    let width = f64::from(of.figures.width);
    Shared { width, divided, fairness: Fairness::Progress }
}

fn demand(figures: &Figures, names: &mut Vec<String>) -> Demand {
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
fn equal_progress(a: &Loop, b: &Loop) -> (usize, usize) {
    if a.cycles() < b.cycles() {
        let (of_b, of_a) = equal_progress(b, a);
        return (of_a, of_b);
    }
    let candidate = |of_a: usize| {
        let time = of_a as f64 * a.cycles();
        let of_b = (time / b.cycles()).round();
        let off = (of_b * b.cycles() / time).ln().abs();
        (off, (of_a, of_b as usize))
    };
    let short = |of: &(usize, usize)| of.0 * a.length() + of.1 * b.length() <= MOST_INSTRUCTIONS;
    let mut best = candidate(1);
    for next in (2..=MOST_INSTRUCTIONS).map(candidate).take_while(|(_, of)| short(of)) {
        if best.0 < EQUAL {
            break;
        }
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// Both codes as one, each spread evenly.
fn interleaved(a: &Kernel, b: &Kernel, (of_a, of_b): (usize, usize)) -> Vec<String> {
    let spread = |kernel: &Kernel, side: Side, rounds: usize| -> Vec<(f64, Vec<String>)> {
        let entries = kernel.on(side);
        let all: usize = rounds * entries.iter().map(Vec::len).sum::<usize>();
        let mut before = 0;
        let mut placed = Vec::new();
        for entry in std::iter::repeat_n(&entries, rounds).flatten() {
            placed.push(((before as f64 + 0.5) / all as f64, entry.clone()));
            before += entry.len();
        }
        placed
    };
    let mut both = spread(a, Side::A, of_a);
    both.extend(spread(b, Side::B, of_b));
    both.sort_by(|x, y| x.0.total_cmp(&y.0));
    both.into_iter().flat_map(|(_, entry)| entry).collect()
}
