//! Cycles per instruction of programs that run alone: measured, and predicted from their machine code.
//!
//! `solo_cpi measure FILE REPEAT NAME COMMAND …` appends a line to FILE: it counts the program's
//! instructions once under QEMU and times it REPEAT times as it is.
//! `solo_cpi predict MEASURED MACHINE FOLDER FILE` writes tables in Markdown to FILE: what the model
//! expects of each program in MEASURED on the described machine MACHINE, with its demand vector
//! FOLDER/NAME.json. It measures nothing. `workloads/accuracy/solo-cpi` says which programs.
#![allow(clippy::print_stderr)] // says what is missing

use anyhow::{Context, bail, ensure};
use colocate_benches::{emulated, emulator, mean};
use colocate_machine::performance::CorePerformance;
use colocate_machine::{Bytes, CacheKind, PuIdx, described, exact};
use colocate_model::assumptions::Fairness;
use colocate_model::phase::{Known, Phase, PhaseFile, typical_misses};
use colocate_model::smt::{Active, rates};
use colocate_model::{Assumptions, Demand, Model, PlacedTask};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Readings of the clock rate before and after each run, of 5 ms each.
const READINGS: u32 = 4;
/// Sets of assumptions of an interval. Chosen: many times the number of varied components.
const ASSUMPTIONS: usize = 256;
/// Seed of the sets of assumptions.
const SEED: u64 = 1;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["measure", file, repeat, name, command @ ..] if !command.is_empty() => {
            let repeat = repeat.parse().context("expected a number of runs")?;
            measure(file, repeat, name, command)
        }
        ["predict", measured, machine, folder, file] => {
            let text = tables(&read(measured)?, &read(machine)?, Path::new(folder))?;
            std::fs::write(file, text).with_context(|| (*file).to_owned())
        }
        _ => bail!(
            "usage: solo_cpi measure FILE REPEAT NAME COMMAND … | predict MEASURED MACHINE FOLDER FILE"
        ),
    }
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

/// A program's measured figures: a line of the file.
struct Measured {
    name: String,
    /// In units of 10⁹.
    instructions: f64,
    gigahertz: f64,
    /// Per instruction.
    cycles: f64,
    /// Excess of the longest run over the best, in percent.
    spread_percent: f64,
}

impl Measured {
    fn line(&self) -> String {
        let Self { name, instructions, gigahertz, cycles, spread_percent } = self;
        format!("{name}\t{instructions:.3}\t{gigahertz:.3}\t{cycles:.4}\t{spread_percent:.1}\n")
    }

    fn of_line(line: &str) -> anyhow::Result<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, figures @ ..] = &fields[..] else { bail!("expected a name") };
        let figures: Vec<f64> =
            figures.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let [instructions, gigahertz, cycles, spread_percent] = figures[..] else {
            bail!("expected four figures, found {}", figures.len());
        };
        Ok(Self { name: (*name).to_owned(), instructions, gigahertz, cycles, spread_percent })
    }
}

fn measure(file: &str, repeat: u32, name: &str, command: &[&str]) -> anyhow::Result<()> {
    let threads = emulated(&emulator()?, command, false)?.profile?.threads;
    let instructions: u64 = threads.iter().filter_map(|thread| thread.instructions).sum();
    let instructions = instructions as f64;
    let pu = *smt_bench::thread::usable()?.last().context("expected a PU")?;
    let timed = timed(pu, repeat, command)?;
    let measured = Measured {
        name: name.to_owned(),
        instructions: instructions / 1e9,
        gigahertz: timed.hertz / 1e9,
        cycles: timed.least * timed.hertz / instructions,
        spread_percent: 100.0 * (timed.most / timed.least - 1.0),
    };
    let mut out = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
    Ok(out.write_all(measured.line().as_bytes())?)
}

/// Measurement of a native run.
struct Timed {
    /// Seconds of CPU time outside of the kernel.
    least: f64,
    most: f64,
    hertz: f64,
}

/// Times a program. Other load makes a run longer and the clock seem slower, so the shortest time
/// and the fastest reading count.
fn timed(pu: u32, repeat: u32, command: &[&str]) -> anyhow::Result<Timed> {
    smt_bench::thread::pin(pu)?;
    let clock = || smt_bench::clock::cycles_per_second(READINGS);
    let mut timed = Timed { least: f64::INFINITY, most: 0.0, hertz: clock() };
    for _ in 0..repeat {
        let mut running = Command::new(command[0]);
        running
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = running.spawn()?;
        let pid = colocate_linux::Pid(i32::try_from(child.id())?);
        let waited = colocate_linux::sys::wait(Some(pid), true)?.context("expected an end")?;
        ensure!(waited.status == 0, "ended with {}", waited.status);
        let seconds = waited.user_time.as_secs_f64();
        timed.least = timed.least.min(seconds);
        timed.most = timed.most.max(seconds);
        timed.hertz = timed.hertz.max(clock());
    }
    Ok(timed)
}

/// Prediction of the model, in cycles per instruction.
struct Predicted {
    /// Front end, ports and dependencies.
    units: f64,
    /// Name of the greatest of the three bounds.
    limit: &'static str,
    /// And mispredicted branches.
    branches: f64,
    /// And caches and memory.
    caches: f64,
    /// Prediction with the unknown stalls: all effects of the model.
    all: f64,
    /// Least and greatest prediction over the assumptions.
    range: (f64, f64),
}

/// First components of `phase`; components that are left out are zero, not unknown.
fn with(phase: &Phase, branches: bool, caches: bool) -> Phase {
    let none = Known::new(0.0, "left out");
    let mut part = phase.clone();
    part.stall_cycles = none.clone();
    part.shared_lines = none.clone();
    if !branches {
        part.branch_misses = none;
    }
    if !caches {
        part.misses = Known::new(typical_misses(0.0), "left out");
    }
    part
}

/// A machine for the prediction of one task.
struct Alone {
    exact: exact::Exact,
    assumptions: Vec<Assumptions>,
}

impl Alone {
    fn core(&self) -> anyhow::Result<&CorePerformance> {
        let performance = self.exact.performance.as_ref().context("expected speeds")?;
        performance.kinds.first().context("expected a kind of core")
    }

    /// Sizes of the data caches over its first PU, nearest first.
    fn caches(&self) -> Vec<Bytes> {
        let first = PuIdx::new(0);
        let caches = self.exact.machine.caches.iter();
        let data = caches.filter(|cache| cache.kind != CacheKind::Instruction);
        data.filter(|cache| cache.pus.contains(&first)).filter_map(|cache| cache.size).collect()
    }

    fn demand(&self, phase: &Phase, assumed: &Assumptions) -> anyhow::Result<Demand> {
        Ok(phase.on(self.core()?, &assumed.guesses)?.demand)
    }

    fn cycles(&self, phase: &Phase, assumed: &Assumptions) -> anyhow::Result<f64> {
        let performance = self.exact.performance.as_ref().context("expected speeds")?;
        let model = Model::new(&self.exact.machine, performance, *assumed)?;
        let demand = self.demand(phase, assumed)?;
        let seat = PlacedTask { pu: PuIdx::new(0), demand: &demand, pages: &[], space: 0 };
        Ok(model.alone(&seat).cpi.total())
    }

    fn predicted(&self, phase: &Phase) -> anyhow::Result<Predicted> {
        let default = &self.assumptions[0];
        let all: Vec<f64> = self
            .assumptions
            .iter()
            .map(|assumed| self.cycles(phase, assumed))
            .collect::<anyhow::Result<_>>()?;
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let units = with(phase, false, false);
        Ok(Predicted {
            units: self.cycles(&units, default)?,
            limit: self.limit(&units)?,
            branches: self.cycles(&with(phase, true, false), default)?,
            caches: self.cycles(&with(phase, true, true), default)?,
            all: all[0],
            range: (least, all.iter().copied().fold(0.0, f64::max)),
        })
    }

    /// Bound of a task without stalls.
    fn limit(&self, phase: &Phase) -> anyhow::Result<&'static str> {
        let demand = self.demand(phase, &self.assumptions[0])?;
        let width = self.core()?.width;
        let ports = Active { slots: 0.0, ports: &demand.ports, dependent_cycles: 0.0 };
        let ports = 1.0 / rates(width, Fairness::Progress, &[ports])[0];
        let limits = [
            ("slots", demand.slots / width),
            ("ports", ports),
            ("dependencies", demand.dependent_cycles),
        ];
        let most = limits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(most.map_or("", |(name, _)| name))
    }
}

/// A program with its measurements and predictions.
struct Row {
    measured: Measured,
    phase: Phase,
    predicted: Predicted,
}

fn tables(measured: &str, machine: &str, folder: &Path) -> anyhow::Result<String> {
    let exact = described::from_toml(machine)?;
    let alone = Alone { exact, assumptions: Assumptions::sample(ASSUMPTIONS, SEED) };
    let lines = measured.lines().filter(|line| !line.starts_with('#'));
    let mut rows = Vec::new();
    for line in lines.skip(1) {
        let measured = Measured::of_line(line).with_context(|| line.to_owned())?;
        let path = folder.join(format!("{}.json", measured.name));
        if !path.exists() {
            eprintln!("solo_cpi: no {}, so no {}", path.display(), measured.name);
            continue;
        }
        let row = row(&alone, measured, &path).with_context(|| path.display().to_string())?;
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "expected measured programs, found none");
    Ok(format!("{}\n{}", cycles_table(&rows), counts_table(&rows, &alone.caches())))
}

fn row(alone: &Alone, measured: Measured, path: &Path) -> anyhow::Result<Row> {
    let file = PhaseFile::from_json(&std::fs::read_to_string(path)?)?;
    let [phase] = &file.phases[..] else {
        bail!("expected the demand vector of one thread, found {}", file.phases.len());
    };
    Ok(Row { measured, phase: phase.clone(), predicted: alone.predicted(phase)? })
}

fn cycles_table(rows: &[Row]) -> String {
    let mut text = "\
| program | GHz | measured | spread | units, limit | error | + branches | error | + caches | error | all | least to most | error |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"
    .to_owned();
    let mut errors = [const { Vec::new() }; 4];
    let mut within = 0;
    for Row { measured, predicted, .. } in rows {
        let Measured { name, gigahertz, cycles, spread_percent, .. } = measured;
        let Predicted { units, limit, branches, caches, all, range: (least, most) } = predicted;
        let error = [units, branches, caches, all].map(|found| 100.0 * (found / cycles - 1.0));
        errors.iter_mut().zip(error).for_each(|(all, error)| all.push(error.abs()));
        within += usize::from((*least..=*most).contains(cycles));
        let _ = writeln!(
            text,
            "| {name} | {gigahertz:.2} | {cycles:.3} | {spread_percent:.1} % | {units:.3} {limit} | {:+.0} % \
             | {branches:.3} | {:+.0} % | {caches:.3} | {:+.0} % | {all:.3} | {least:.3} to {most:.3} | {:+.0} % |",
            error[0], error[1], error[2], error[3]
        );
    }
    let [units, branches, caches, whole] = errors.each_ref().map(|all| mean(all));
    let _ = writeln!(
        text,
        "| **mean absolute error** | | | | | {units:.0} % | | {branches:.0} % | | {caches:.0} % | | {within} of {} within | {whole:.0} % |",
        rows.len()
    );
    text
}

/// Counts per instruction.
fn counts_table(rows: &[Row], caches: &[Bytes]) -> String {
    let mut text = "| program | 10⁹ instructions | wrong guesses in 1,000 |".to_owned();
    for size in caches {
        let _ = write!(text, " misses of {size} |");
    }
    let _ = writeln!(text, "\n|---|---|---|{}", "---|".repeat(caches.len()));
    for Row { measured, phase, .. } in rows {
        let guesses = per_thousand(phase.branch_misses.get().copied());
        let _ = write!(text, "| {} | {:.2} | {guesses} |", measured.name, measured.instructions);
        for size in caches {
            let misses = phase.misses.get().map(|curve| curve.at(size.0 as f64));
            let _ = write!(text, " {} |", per_thousand(misses));
        }
        text.push('\n');
    }
    text
}

fn per_thousand(share: Option<f64>) -> String {
    share.map_or_else(|| "?".to_owned(), |share| format!("{:.2}", 1000.0 * share))
}
