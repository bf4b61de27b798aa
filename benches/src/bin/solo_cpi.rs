//! Cycles per instruction of programs that run alone: predicted from their machine code, and measured.
//!
//! `solo_cpi CPU REPEAT FILE NAME COMMAND … [::: NAME COMMAND …]…` writes a table in Markdown to FILE.
//! CPU is what LLVM calls this machine's processor. `scripts/solo-cpi` says which programs.
//!
//! A program runs once under QEMU, for its instructions and stretches of its code, and REPEAT times as
//! it is, for its time outside of the kernel. Before and after each of these the clock rate is measured
//! on the same PU by a chain of additions. The least of the repeated times counts, since whatever else
//! the machine does only adds.
#![allow(clippy::print_stderr)] // says how far it is

use anyhow::{Context, bail, ensure};
use colocate_machine::performance::PortSet;
use colocate_model::assumptions::Fairness;
use colocate_model::smt::{Active, rates};
use colocate_observe::code::{Analysis, Stretch};
use colocate_observe::emulate;
use colocate_observe::mca::{Figures, Mca, Target};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Readings of the clock rate before and after each run, of 5 ms each.
const READINGS: u32 = 4;

/// What happened when a program ran as it is.
struct Timed {
    /// Cycles of its least time.
    cycles: f64,
    /// The most cycles of all runs, over the least.
    spread: f64,
    hertz: f64,
}

/// What its code predicts, in cycles per instruction.
struct Predicted {
    /// From the demand vector of the whole run.
    phase: f64,
    /// From those of single stretches, averaged.
    stretches: f64,
    /// By the simulation itself.
    simulated: f64,
    /// What the demand vector asks for of each kind: slots, ports, dependencies.
    slots: f64,
    ports: f64,
    dependencies: f64,
    covered: f64,
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [cpu, repeat, file, programs @ ..] = &words[..] else {
        bail!("usage: solo_cpi CPU REPEAT FILE NAME COMMAND … [::: NAME COMMAND …]…");
    };
    let repeat: u32 = repeat.parse().context("expected a number of runs")?;
    let places = emulate::Places::usual(|name| std::env::var_os(name));
    let emulator = emulate::available(&places)?;
    let target = Target { triple: std::env::consts::ARCH.to_owned(), cpu: cpu.clone() };
    let mca = Mca::find()?;
    let pu = *smt_bench::thread::usable()?.last().context("expected a PU")?;
    let mut table = format!("{HEAD}\n");
    for program in programs.split(|word| word == ":::") {
        let [name, command @ ..] = program else { bail!("expected a name before a command") };
        ensure!(!command.is_empty(), "expected a command after {name}");
        if !Path::new(&command[0]).exists() {
            eprintln!("solo_cpi: no {}, so no {name}", command[0]);
            continue;
        }
        eprintln!("solo_cpi: {name}");
        let row = row(&emulator, &mca, &target, pu, repeat, name, command);
        table += &row.with_context(|| name.clone())?;
        std::fs::write(file, &table).with_context(|| file.clone())?;
    }
    Ok(())
}

const HEAD: &str = "\
| program | 10⁹ instructions | GHz | measured | spread | predicted | error | by stretches | llvm-mca | slots | ports | dependencies | simulated part |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn row(
    emulator: &emulate::Emulator,
    mca: &Mca,
    target: &Target,
    pu: u32,
    repeat: u32,
    name: &str,
    command: &[String],
) -> anyhow::Result<String> {
    let (instructions, stretches) = counted(emulator, command)?;
    let timed = timed(pu, repeat, command)?;
    let predicted = predicted(mca, target, &stretches)?;
    let measured = timed.cycles / instructions;
    let error = 100.0 * (predicted.phase / measured - 1.0);
    let mut row = String::new();
    writeln!(
        row,
        "| {name} | {:.2} | {:.2} | {measured:.3} | {:.1} % | {:.3} | {error:+.0} % | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} % |",
        instructions / 1e9,
        timed.hertz / 1e9,
        100.0 * (timed.spread - 1.0),
        predicted.phase,
        predicted.stretches,
        predicted.simulated,
        predicted.slots,
        predicted.ports,
        predicted.dependencies,
        100.0 * predicted.covered,
    )?;
    Ok(row)
}

/// Instructions of all threads, and stretches of the code.
fn counted(
    emulator: &emulate::Emulator,
    command: &[String],
) -> anyhow::Result<(f64, Vec<Stretch>)> {
    let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
    let scratch = std::env::temp_dir();
    let asked = emulate::Command {
        path: Path::new(&command[0]),
        argv: &argv,
        scratch: &scratch,
        ignores_pipe: false,
        stretches: true,
        misses: false,
    };
    let ran = emulate::profile(emulator, asked)?;
    ensure!(ran.status.success(), "{}", ran.status);
    let threads = ran.profile?.threads;
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    let instructions = threads.iter().filter_map(|thread| thread.instructions).sum::<u64>() as f64;
    ensure!(!ran.stretches.is_empty(), "no stretches; run make tracer");
    Ok((instructions, ran.stretches))
}

fn timed(pu: u32, repeat: u32, command: &[String]) -> anyhow::Result<Timed> {
    smt_bench::thread::pin(pu)?;
    let clock = || smt_bench::clock::cycles_per_second(READINGS);
    let (mut least, mut most, mut hertz) = (f64::INFINITY, 0.0_f64, 0.0);
    for _ in 0..repeat {
        let before = clock();
        let mut running = Command::new(&command[0]);
        running
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = running.spawn()?;
        let pid = colocate_observe::Pid(i32::try_from(child.id())?);
        let waited = colocate_act::sys::wait(Some(pid), true)?.context("expected an end")?;
        ensure!(waited.status == 0, "ended with {}", waited.status);
        let rate = f64::midpoint(before, clock());
        let cycles = waited.user_time.as_secs_f64() * rate;
        if cycles < least {
            (least, hertz) = (cycles, rate);
        }
        most = most.max(cycles);
    }
    Ok(Timed { cycles: least, spread: most / least, hertz })
}

fn predicted(mca: &Mca, target: &Target, stretches: &[Stretch]) -> anyhow::Result<Predicted> {
    let analysis = Analysis::of(mca, target, stretches)?;
    if let Some(complaint) = analysis.complaint() {
        eprintln!("solo_cpi: {complaint}");
    }
    let first = analysis.simulated().next().context("nothing could be simulated")?;
    let width = f64::from(first.figures.width);
    let mut mean = Asked::default();
    let (mut by_stretches, mut simulated, mut weights) = (0.0, 0.0, 0.0);
    for one in analysis.simulated() {
        let asked = Asked::of(one.figures, one.lines);
        by_stretches += one.instructions * asked.cycles(width);
        simulated += one.instructions * one.lines * one.figures.cycles;
        weights += one.instructions;
        mean.add(&asked, one.instructions);
    }
    mean.scale(1.0 / weights);
    Ok(Predicted {
        phase: mean.cycles(width),
        stretches: by_stretches / weights,
        simulated: simulated / weights,
        slots: mean.slots / width,
        ports: Asked { slots: 0.0, dependent: 0.0, ports: mean.ports.clone() }
            .cycles(f64::INFINITY),
        dependencies: mean.dependent,
        covered: analysis.covered().unwrap_or(0.0),
    })
}

/// What code asks for, an instruction on average.
#[derive(Clone, Default)]
struct Asked {
    slots: f64,
    dependent: f64,
    ports: Vec<(Vec<String>, f64)>,
}

impl Asked {
    /// The figures, of which there are `lines` for each instruction.
    fn of(figures: &Figures, lines: f64) -> Self {
        let mut asked = Self::default();
        let ports = figures.ports.clone();
        let whole = Self { slots: figures.slots, dependent: figures.dependent_cycles, ports };
        asked.add(&whole, lines);
        asked
    }

    fn add(&mut self, other: &Self, weight: f64) {
        self.slots += weight * other.slots;
        self.dependent += weight * other.dependent;
        for (names, cycles) in &other.ports {
            match self.ports.iter_mut().find(|(known, _)| known == names) {
                Some((_, sum)) => *sum += weight * cycles,
                None => self.ports.push((names.clone(), weight * cycles)),
            }
        }
    }

    fn scale(&mut self, factor: f64) {
        self.slots *= factor;
        self.dependent *= factor;
        self.ports.iter_mut().for_each(|(_, cycles)| *cycles *= factor);
    }

    /// Cycles per instruction alone on a core of `width`, by the model.
    fn cycles(&self, width: f64) -> f64 {
        let mut names: Vec<&String> = self.ports.iter().flat_map(|(names, _)| names).collect();
        names.sort();
        names.dedup();
        let bit = |name: &String| names.binary_search(&name).map_or(0, |place| 1 << place);
        let set = |names: &[String]| PortSet(names.iter().map(bit).fold(0, |set, bit| set | bit));
        let ports: Vec<(PortSet, f64)> =
            self.ports.iter().map(|(names, cycles)| (set(names), *cycles)).collect();
        let task = Active { slots: self.slots, ports: &ports, dependent_cycles: self.dependent };
        1.0 / rates(width, Fairness::Progress, &[task])[0]
    }
}
