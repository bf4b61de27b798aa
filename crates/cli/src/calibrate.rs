//! `colocate calibrate`: measures this machine once and keeps the figures for all other commands.
//!
//! The time to pass a cache line between each two PUs shows which PUs share caches
//! (`machine::calibrated::sharing`), the time of a fixed piece of work on each PU which kinds of
//! cores there are (`kinds`). All other figures are measured in rounds, each in a random order, by
//! the harness of `bench`. Lines are passed before and after, since a hypervisor may move PUs.
//! Shared execution units (`units`) and interference between siblings come last.
//! `docs/reference/calibrate.md` explains each figure.

mod cells;
mod figures;
mod kinds;
mod memory;
mod parts;
mod text;
mod units;

use crate::measure::beside::{KernelBench, LocalBench};
use crate::measure::harness::{self, by_cell, rounds};
use crate::measure::scenarios::{self, MeasurementSettings};
use crate::{exit, idle, input, output};
use anyhow::{Context, anyhow, bail};
use cells::{Cell, Lengths, ThisMachine};
use colocate_files::{Dir, FileMode, kernel};
use colocate_machine::calibrated::{
    Assumed, Calibration, CorrectedMachine, Figure, Latency, PuDistance, Quantity, identity,
    performance, sharing,
};
use colocate_machine::exact::Exact;
use colocate_machine::read::{self, KnownMachine, Sysfs, kept};
use colocate_machine::{Bytes, Machine, Performance, PuNr, PuSet, printable};
use colocate_model::rng::SplitMix64;
use parts::CalibrationPart;
use smt_bench::{Kernel, KernelSpec};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use text::text;

/// Measures this machine once, for plans and policies
///
/// What passing a cache line, a wake-up and a round trip cost between PUs, target idle and busy; latencies and sizes
/// of caches and memory; what cores do in a cycle; how fast each PU is and how much of it there is; which PUs share a
/// core. Only threads of its own are placed; nothing else changes. It takes less than two minutes on an idle machine;
/// on another one nothing is kept without --force. What cannot be measured here is absent.
#[derive(clap::Args)]
pub struct Args {
    /// Print what is kept of this machine instead of measuring
    #[arg(long)]
    show: bool,

    /// Remove what is kept of this machine instead of measuring
    #[arg(long, conflicts_with_all = ["show", "json", "output"])]
    forget: bool,

    /// Measure these parts only, and keep what is kept of the others; speeds are always measured
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',', conflicts_with_all = ["show", "forget"])]
    only: Vec<CalibrationPart>,

    /// Keep a machine file for this machine instead of measuring, such as --json of an equal machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["show", "forget", "force", "only"])]
    import: Option<PathBuf>,

    /// Measure and keep also beside other programs, and what is known to a factor of two only
    #[arg(long, conflicts_with_all = ["show", "forget"])]
    force: bool,

    /// Rounds of measurements [range: 3-100]
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=100), conflicts_with_all = ["show", "forget"])]
    repeat: u32,

    /// Print JSON that --machine reads back (docs/schemas/machine.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Seed of the order of measurements.
const SEED: u64 = 1;
/// Most pairs of PUs between which a line is passed: all of 128 PUs, of more a random subset.
const MOST_PAIRS: usize = 8_192;

/// Runs `colocate calibrate`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Fails before the measurement if the output could not be written.
    args.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let machine = read::reported()?;
    if args.forget {
        return forget(&machine);
    }
    let (path, exact) = if args.show {
        kept::find(&machine)?.context(
            "expected measurements of this machine, found none: colocate calibrate measures it",
        )?
    } else {
        let imported = args.import.as_deref().map(|path| imported(path, &machine)).transpose()?;
        if imported.is_none() && !args.force {
            refuse_busy()?;
        }
        let folder = folder();
        // Fails before the measurement if the figures could not be kept.
        let dir = Dir::open_or_make(&folder, 0o755)
            .context("cannot keep measurements; XDG_STATE_HOME can name another folder for them")?;
        let exact = match imported {
            Some(exact) => exact,
            None => known_well(args, &machine)?,
        };
        let name = kept::file_name(&machine);
        dir.write(&name, exact.to_json().as_bytes(), FileMode::ByUmask)?;
        let figures = exact.calibration.iter().flat_map(|found| &found.figures).cloned();
        if let Some(costs) = memory::costs(&exact.machine, &figures.collect::<Vec<_>>()) {
            dir.write(memory::FILE, costs.as_bytes(), FileMode::ByUmask)?;
        }
        (folder.join(name), exact)
    };
    let text = match (args.json, &exact.calibration) {
        (false, Some(found)) => {
            let name = printable(&exact.machine.name);
            format!(
                "machine  {name}, kept in {}\n{}",
                printable(&path.display().to_string()),
                text(found, true)
            )
        }
        // Imported figures may lack a calibration, of which the table is made.
        _ => exact.to_json(),
    };
    output::keep(args.output.as_deref(), &text, FileMode::ByUmask)?;
    Ok(ExitCode::SUCCESS)
}

/// Measurements that are known well enough to keep them; any with `--force`.
fn known_well(args: &Args, machine: &Machine) -> anyhow::Result<Exact> {
    let exact = measured(args, machine)?;
    if let Some(wide) = widest_speed(&exact).filter(|_| !args.force) {
        bail!(
            "expected speeds that are known to a factor of {WIDE}, found {wide}: nothing is kept; measure again while \
             little else runs, or keep it with --force"
        );
    }
    Ok(exact)
}

/// The machine of the file at `path`, checked to have the processor and the PUs of `here`.
fn imported(path: &Path, here: &Machine) -> anyhow::Result<Exact> {
    let KnownMachine { machine, performance, calibration, .. } =
        read::load(&path.to_string_lossy())?;
    let path = path.display();
    let wrong = |what: &str, here: &str, found: &str| {
        anyhow!("{path}: expected {what} of this machine, {here}, found {found}")
    };
    // An unknown processor is not compared.
    if let (Some(here), Some(found)) = (&here.processor, &machine.processor)
        && here != found
    {
        return Err(wrong("the processor", here, found));
    }
    let [ours, found] =
        [here, &machine].map(|machine| -> PuSet { machine.pus.iter().map(|pu| pu.os).collect() });
    if ours != found {
        return Err(wrong("the PUs", &ours.to_string(), &found.to_string()));
    }
    // Kinds of cores that the kernel does not report were measured as well.
    if performance.is_none() && calibration.is_none() && machine.kinds == here.kinds {
        bail!(
            "{path}: expected measurements, as `colocate calibrate` keeps them, found a machine without any"
        );
    }
    Ok(Exact { performance, calibration, ..Exact::new(machine, None) })
}

/// Folder of kept measurements.
fn folder() -> PathBuf {
    kept::folder(rustix::process::geteuid().is_root(), |name| std::env::var_os(name))
}

/// Removes the kept measurements of `machine`.
fn forget(machine: &Machine) -> anyhow::Result<ExitCode> {
    let folder = folder();
    let name = kept::file_name(machine);
    let path = folder.join(&name);
    let costs = folder.join(memory::FILE);
    let had_some = path.exists();
    colocate_files::remove_if_exists(&path)?;
    colocate_files::remove_if_exists(&costs)?;
    let done = if had_some { "removed" } else { "there is no" };
    output::write(None, &format!("{done} {}\n", printable(&path.display().to_string())))?;
    if let Ok(Some((other, _))) = kept::find(machine) {
        output::remark(&format!("{} remains, of another user: it is used", other.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Most CPU time of other programs beside a measurement, in PUs. Chosen: daemons of an idle machine
/// take a few hundredths.
const BUSY: f64 = 0.1;

/// Refuses to measure while other programs are busy.
fn refuse_busy() -> anyhow::Result<()> {
    let busy = idle::busy_pus(Path::new("/proc"), Duration::from_secs(1));
    if let Some(busy) = busy.filter(|busy| *busy > BUSY) {
        bail!(
            "expected an idle machine, found other programs that keep {busy:.2} PUs busy: all commands would use figures \
             that they disturbed; wait for their end, or measure with --force"
        );
    }
    Ok(())
}

/// Widest ratio of an interval's ends at which speeds are kept. Chosen: with the default of seven
/// rounds, a ratio of 1.4 between rounds.
const WIDE: f64 = 2.0;

/// The speed with the widest interval, if its ends are more than [`WIDE`] times apart.
fn widest_speed(exact: &Exact) -> Option<String> {
    let figures = exact.calibration.iter().flat_map(|found| &found.figures);
    let speeds = figures.filter(|it| matches!(it.what, Quantity::Speed { .. }));
    // The ratios of high to low, multiplied out.
    let widest = speeds.max_by(|a, b| (a.high * b.low).total_cmp(&(b.high * a.low)))?;
    let Figure { what, unit, value, low, high, .. } = widest;
    (*high > WIDE * *low).then(|| {
        format!("{what} {} ({} to {})", unit.text(*value), unit.text(*low), unit.text(*high))
    })
}

/// Measures the chosen figures of this machine. The figures of other parts are those that are kept.
fn measured(args: &Args, reported: &Machine) -> anyhow::Result<Exact> {
    let begin = Instant::now();
    let started = input::unix_seconds();
    let is_chosen =
        |part| args.only.is_empty() || part == CalibrationPart::Speeds || args.only.contains(&part);
    // Only a measurement of some parts takes figures from an earlier one.
    let kept = if args.only.is_empty() { None } else { kept::find(reported)? };
    let kept = kept.and_then(|(_, exact)| exact.calibration).map_or(Vec::new(), |it| it.figures);
    let others = idle::look(Path::new("/proc")).others_runnable.filter(|&others| others > 0);
    if let Some(others) = others {
        let what = "other tasks run: on an idle machine figures are known better";
        output::remark(&format!("{others} {what}"));
    }
    let usable = harness::usable()?;
    let usable: Vec<u32> =
        usable.into_iter().filter(|&pu| reported.pu_by_os(PuNr(pu)).is_some()).collect();
    if usable.is_empty() {
        return Err(exit::no_capability(
            "expected a usable PU that the topology has, found none: colocate topo".into(),
        ));
    }
    let random = &mut SplitMix64::new(SEED);
    let mut here = ThisMachine { lengths: Lengths::of(usable.len()), portion: None };
    let unusable: PuSet =
        reported.pus.iter().map(|pu| pu.os).filter(|pu| !usable.contains(&pu.0)).collect();
    let said =
        Sysfs::at(Path::new("/")).reported(&usable.iter().map(|&pu| PuNr(pu)).collect::<Vec<_>>());
    let before = lines(&mut here, &usable, random)?;
    let mut cells: Vec<Cell> = usable.iter().map(|&pu| Cell::Visit(pu)).collect();
    let mut taken = by_cell(rounds(&mut here, &cells, args.repeat, random, false)?, cells.len());
    // The cells need the caches and kinds of cores found so far, not the reported ones.
    let mut machine = sharing(reported, &before).machine;
    kinds::measured(&mut machine, &usable, &taken, said.clone());
    let mut plan = cells::plan(&machine, &usable, available(), random);
    plan.cells.retain(|cell| is_chosen(cell.part()));
    let rest = rounds(&mut here, &plan.cells, args.repeat, random, false)?;
    let visits = cells.len();
    taken.extend(by_cell(rest, plan.cells.len()));
    cells.extend(plan.cells);
    // Lines again after some time, in which a hypervisor may have moved PUs.
    let latencies = merged(before, &lines(&mut here, &usable, random)?);
    let CorrectedMachine { mut machine, disagreements } = sharing(reported, &latencies);
    let mut calibration = Calibration {
        identity: identity(reported),
        kernel: idle::kernel(Path::new("/proc")),
        started_unix_s: started,
        seconds: 0.0,
        figures: figures::figures(&machine, &cells, &taken, started),
        assumed: Vec::new(),
        absent: plan.absent,
        disagreements,
    };
    // Again, since `sharing` began with the reported kinds.
    let differing = kinds::measured(&mut machine, &usable, &taken[..visits], said);
    calibration.disagreements.extend(differing);
    let kept = kept.into_iter().filter(|it| !is_chosen(CalibrationPart::of(&it.what)));
    calibration.figures.extend(kept);
    if !unusable.is_empty() {
        let text = format!("PUs {unusable}: outside of the affinity mask or cpuset");
        calibration.absent.push(text);
    }
    if is_chosen(CalibrationPart::Siblings) {
        shared_units(&mut calibration, [reported, &machine], &usable, random)?;
    }
    if is_chosen(CalibrationPart::Matrix) {
        // 80 measurements a round: some three seconds.
        matrix(&mut LocalBench::new(BESIDE, &[4]), &mut calibration, &machine, &usable)?;
    }
    figures::lines(&mut calibration, &machine, &latencies, started);
    units::compare(&machine, &mut calibration);
    calibration.disagreements.extend(figures::shrink_last_cache(&mut machine, &calibration));
    let speeds = speeds(&machine, &mut calibration);
    calibration.seconds = (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let calibration = Some(calibration);
    Ok(Exact { performance: speeds, calibration, ..Exact::new(machine, None) })
}

/// Measures which `usable` PUs share execution units; `machines` say which are on one core.
fn shared_units(
    to: &mut Calibration,
    machines: [&Machine; 2],
    usable: &[u32],
    random: &mut SplitMix64,
) -> anyhow::Result<()> {
    let alike = machines.map(|machine| cells::pairs(machine, usable, PuDistance::Siblings));
    let pairs = units::pairs(usable, alike.concat(), random);
    let mut here = LocalBench::new(BESIDE, &[4, 16]);
    let found = units::figures(&mut here, &pairs, to.started_unix_s, random)?;
    if found.len() < pairs.len() {
        let lost = pairs.len() - found.len();
        to.absent.push(format!("execution units of {lost} pairs of PUs: other load left no time"));
    }
    to.figures.extend(found);
    Ok(())
}

/// Speeds for predictions. Adds what is assumed for them, or a line on what is missing.
fn speeds(machine: &Machine, calibration: &mut Calibration) -> Option<Performance> {
    let known_line = Sysfs::at(Path::new("/")).line();
    match performance(machine, calibration, known_line.unwrap_or(Bytes(64))) {
        Ok((speeds, assumed)) => {
            calibration.assumed = assumed;
            if known_line.is_none() {
                let key = "memory.line".into();
                let source = "64 bytes, which the kernel does not report; not varied".into();
                calibration.assumed.push(Assumed { key, source });
            }
            Some(speeds)
        }
        Err(missing) => {
            calibration.absent.push(format!("speeds that predictions need: {missing}"));
            None
        }
    }
}

/// Time of a measurement of kernels beside each other.
const BESIDE: Duration = Duration::from_millis(10);

/// Memory available without swapping, as estimated by the kernel; `None` if it reports no estimate.
fn available() -> Option<Bytes> {
    let text = kernel::read_text(Path::new("/proc/meminfo")).ok()?;
    // `kB` means 1024 bytes here (proc_meminfo(5)).
    let kib: u64 = kernel::field(&text, "MemAvailable")?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Time to pass a cache line between each two of `pus`, or between a random subset of all pairs.
fn lines(
    here: &mut ThisMachine,
    pus: &[u32],
    random: &mut SplitMix64,
) -> anyhow::Result<Vec<Latency>> {
    let pairs =
        pus.iter().enumerate().flat_map(|(at, &a)| pus[at + 1..].iter().map(move |&b| [a, b]));
    let mut cells: Vec<Cell> = pairs.map(Cell::Line).collect();
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    if cells.len() > MOST_PAIRS {
        random.shuffle(&mut cells);
        cells.truncate(MOST_PAIRS);
    }
    // More rounds for few pairs.
    let repeat = if cells.len() <= 128 { 9 } else { 3 };
    here.lengths.of_pairs(cells.len() * repeat as usize);
    let taken = by_cell(rounds(here, &cells, repeat, random, false)?, cells.len());
    let latencies = cells.iter().zip(&taken).filter_map(|(cell, samples)| {
        let Cell::Line([a, b]) = *cell else { return None };
        let all = samples.iter().filter_map(|sample| sample[0]);
        let ns = all.clone().reduce(f64::min)?;
        let most_ns = all.reduce(f64::max)?;
        Some(Latency { pus: (PuNr(a), PuNr(b)), ns, most_ns })
    });
    Ok(latencies.collect())
}

/// The least and the most of `before` and `after`.
fn merged(mut before: Vec<Latency>, after: &[Latency]) -> Vec<Latency> {
    for latency in &mut before {
        if let Some(again) = after.iter().find(|again| again.pus == latency.pus) {
            latency.ns = latency.ns.min(again.ns);
            latency.most_ns = latency.most_ns.max(again.most_ns);
        }
    }
    before
}

/// Measures the kernels of SMT-Bench beside each other on the first two siblings.
fn matrix(
    bench: &mut impl KernelBench,
    calibration: &mut Calibration,
    machine: &Machine,
    usable: &[u32],
) -> anyhow::Result<()> {
    let Some(pus) = cells::pairs(machine, usable, PuDistance::Siblings).first().copied() else {
        calibration.absent.push("interference of siblings: no two usable PUs share a core".into());
        return Ok(());
    };
    let share_core = Some(true);
    let settings = MeasurementSettings { pus, share_core, seconds: 0.01, repeat: 3, seed: SEED };
    let report = scenarios::measure(bench, settings, &Kernel::PAPER.map(KernelSpec::from))?;
    calibration.figures.extend(figures::beside(&report, pus, calibration.started_unix_s));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::Pretend;
    use colocate_machine::calibrated::FigureUnit;

    /// Speed 0.619 (0.068 to 5.67) was kept for all; one that is known to some percent is.
    #[test]
    fn wide_speeds_are_named() {
        let speed = |pu, value, low, high| Figure {
            what: Quantity::Speed { pu: PuNr(pu) },
            unit: FigureUnit::Ratio,
            value,
            low,
            high,
            unix_s: 0,
            source: String::new(),
        };
        let of = |figures| {
            let machine = read::open("synthetic:core:2 pu:1").unwrap();
            let calibration = Calibration { figures, ..Calibration::default() };
            widest_speed(&Exact { calibration: Some(calibration), ..Exact::new(machine, None) })
        };
        assert_eq!(of(vec![speed(0, 1.0, 0.98, 1.02), speed(1, 0.97, 0.7, 1.3)]), None);
        let wide = of(vec![speed(0, 0.619, 0.068, 5.67), speed(1, 1.0, 0.6, 1.4)]).unwrap();
        assert_eq!(wide, "speed, PU 0 0.619 (0.068 to 5.67)");
        assert_eq!(of(vec![]), None);
    }

    #[test]
    fn siblings_are_measured_where_there_are_some() {
        let mut found = Calibration {
            identity: String::new(),
            kernel: None,
            started_unix_s: 5,
            seconds: 0.0,
            figures: vec![],
            assumed: vec![],
            absent: vec![],
            disagreements: vec![],
        };
        let bench = &mut Pretend::quiet(vec![vec![0, 1], vec![2, 3]]);
        let machine = read::open("synthetic:core:2 pu:2").unwrap();
        matrix(bench, &mut found, &machine, &[0, 2, 3]).unwrap();
        assert_eq!((found.figures.len(), found.absent.len()), (64, 0));
        let of = |kernel: &str, beside: &str| {
            let what = Quantity::Beside { kernel: kernel.into(), beside: beside.into() };
            found.get(&what).unwrap().clone()
        };
        let same = of("fp-add", "fp-add");
        assert!((same.value - 1.95).abs() < 0.05 && same.low <= same.value, "{same:?}");
        assert!(same.source.starts_with("SMT-Bench on PUs 2 and 3"), "{same:?}");
        assert!(of("fp-add", "branch").value < 1.1);

        matrix(bench, &mut found, &machine, &[0, 2]).unwrap();
        assert_eq!(found.absent, ["interference of siblings: no two usable PUs share a core"]);
    }

    #[test]
    fn lines_before_and_after_are_merged() {
        let line = |b, ns, most_ns| Latency { pus: (PuNr(0), PuNr(b)), ns, most_ns };
        let merged =
            merged(vec![line(1, 40.0, 44.0), line(2, 50.0, 51.0)], &[line(1, 37.0, 150.0)]);
        assert_eq!(merged, [line(1, 37.0, 150.0), line(2, 50.0, 51.0)]);
    }
}
