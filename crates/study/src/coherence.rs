//! A program's memory accesses on the simulated caches of a machine, under several mappings.

use crate::matrices::MOST;
use colocate_machine::{Hertz, Machine, Nanos, Performance, PuIdx};
use colocate_model::rng::SplitMix64;
use colocate_policy::communication::filter::Rules;
use colocate_policy::communication::mapping::mapping;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::UsableMachine;
use colocate_sim::coherent::replay::{
    CommunicationMapping, Fixed, Replayed, ReplayedProgram, ThreadMapping, Timing, replay, task,
};
use colocate_sim::coherent::{CoherenceCounts, Coherent, DetectAt, Geometry, Protocol};
use serde::Serialize;

/// Version of the report.
pub const VERSION: u32 = 1;

/// Parts of a run, each with the means over its decisions. Chosen: points of a picture.
const POINTS: u64 = 80;

/// Settings of a comparison of mappings.
#[derive(Clone, Copy, Debug)]
pub struct CoherenceSettings {
    /// Number of random mappings; their mean is the baseline.
    pub random: u32,
    /// Seed of the random mappings.
    pub seed: u64,
    /// Simulated time between two decisions.
    pub every: Nanos,
    /// Coherence protocol.
    pub protocol: Protocol,
    /// Cache where communication is detected.
    pub detect: DetectAt,
    /// Rules of `communication`.
    pub rules: Rules,
}

/// Figures of a mapping, or means of several.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MappingFigures {
    /// Name of the mapping.
    pub mapping: &'static str,
    /// Number of runs; the figures are their means.
    pub runs: u32,
    /// Time until the last thread ended, in seconds.
    pub seconds: f64,
    /// Misses by level, nearest first.
    pub misses: Vec<f64>,
    /// Copies lost to writes by other PUs, by level.
    pub invalidations: Vec<f64>,
    /// Lines from other caches.
    pub transfers: f64,
    /// Lines from memory.
    pub from_memory: f64,
    /// Decisions that moved a thread.
    pub migrations: f64,
}

/// A program on simulated caches, under several mappings.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct CoherenceReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// The machine's name.
    pub machine: String,
    /// Threads of the program.
    pub threads: usize,
    /// Accesses of a run.
    pub accesses: u64,
    /// Mappings in the order of the table; the first is the baseline.
    pub mappings: Vec<MappingFigures>,
    /// Communication between threads by the detector, row by row, threads in the order of creation.
    pub matrix: Vec<Vec<f64>>,
    /// The matrix of `communication` over time: means over the decisions of equally long parts of
    /// the run.
    pub over_time: Vec<MatrixPoint>,
}

/// Matrix of `communication` in a part of the run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MatrixPoint {
    /// Middle of the part, in seconds.
    pub seconds: f64,
    /// How unevenly pairs communicate, see [`Matrix::heterogeneity`].
    pub heterogeneity: f64,
    /// Difference from the decision before, see [`Matrix::dynamicity`].
    pub dynamicity: f64,
}

/// Passes a program, from its beginning, to a function; fails if the program cannot be read.
pub type ProgramPass<'a> =
    dyn FnMut(&mut dyn FnMut(&mut dyn ReplayedProgram)) -> Result<(), String> + 'a;

/// Runs a program under all mappings.
///
/// # Errors
/// A line: if the caches cannot be simulated, or the program cannot be read, has no threads or more
/// than [`MOST`], or has threads that wait for ever.
pub fn report(
    machine: &Machine,
    performance: &Performance,
    settings: &CoherenceSettings,
    run: &mut ProgramPass<'_>,
) -> Result<CoherenceReport, String> {
    let clock = performance.kinds.first().map_or(Hertz::mhz(1_000), |kind| kind.clock);
    let timing = Timing {
        // One instruction a cycle, in picoseconds.
        instruction_ps: 1_000_000_000_000 / clock.0.max(1),
        every_ps: Some(settings.every.0.saturating_mul(1_000)),
    };
    let geometry = Geometry::of(machine, performance).map_err(|why| why.to_string())?;
    let bench = CoherenceSetup { geometry, settings, timing };
    let pus: Vec<PuIdx> = machine.all_pus().collect();
    let places = UsableMachine::new(machine, &pus);
    let mut rng = SplitMix64::new(settings.seed);
    let mut random = Vec::new();
    let mut order = pus.clone();
    // At least one, since the mean of these is the baseline.
    for _ in 0..settings.random.max(1) {
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last + 1));
        }
        random.push(bench.run(run, &mut |threads| Box::new(Fixed(dealt(&order, threads))))?);
    }
    let compact = bench.run(run, &mut |threads| Box::new(Fixed(dealt(&pus, threads))))?;
    let followed = bench.run(run, &mut |threads| {
        // It begins where the last of the random mappings did.
        let first = dealt(&order, threads);
        let pipeline = Pipeline::new(settings.rules);
        Box::new(CommunicationMapping { first, places: places.clone(), pipeline })
    })?;
    let CoherenceRun { threads, replayed, counts } = &compact;
    let matrix = &replayed.detected;
    let best = known(matrix, *threads, &places);
    let oracle = bench.run(run, &mut |_| Box::new(Fixed(best.clone())))?;
    let rows = [("compact", &compact), ("communication", &followed), ("oracle", &oracle)];
    let mut mappings = vec![mean(&random)];
    mappings.extend(rows.iter().map(|(name, done)| figures(name, done)));
    Ok(CoherenceReport {
        version: VERSION,
        machine: machine.name.clone(),
        threads: *threads,
        accesses: counts.accesses,
        mappings,
        matrix: square(matrix, *threads),
        over_time: points(&followed.replayed),
    })
}

/// Setup of all runs.
struct CoherenceSetup<'a> {
    geometry: Geometry,
    settings: &'a CoherenceSettings,
    timing: Timing,
}

/// Result of a run.
#[derive(Default)]
struct CoherenceRun {
    threads: usize,
    replayed: Replayed,
    counts: CoherenceCounts,
}

impl CoherenceSetup<'_> {
    /// Runs the program once, under a mapping made for its number of threads.
    fn run<'m>(
        &self,
        run: &mut ProgramPass<'_>,
        mapping: &mut dyn FnMut(usize) -> Box<dyn ThreadMapping + 'm>,
    ) -> Result<CoherenceRun, String> {
        let CoherenceSettings { protocol, detect, .. } = *self.settings;
        let caches = Coherent::new(self.geometry.clone(), protocol, detect);
        let mut caches = caches.map_err(|why| why.to_string())?;
        let mut done = CoherenceRun::default();
        run(&mut |program| {
            done.threads = program.threads();
            if done.threads <= MOST {
                let mut chosen = mapping(done.threads);
                done.replayed = replay(&mut caches, program, &mut *chosen, self.timing);
            }
        })?;
        match (done.threads, done.replayed.stuck) {
            (0, _) => Err("expected threads, found none".to_owned()),
            (threads, _) if threads > MOST => {
                Err(format!("expected a program of at most {MOST} threads, found {threads}"))
            }
            (_, 0) => Ok(CoherenceRun { counts: caches.counts().clone(), ..done }),
            (_, stuck) => Err(format!(
                "expected a program that ends, found {stuck} threads that wait for others for ever"
            )),
        }
    }
}

/// Deals PUs to threads in the order of creation, again from the first when all have a thread.
fn dealt(pus: &[PuIdx], threads: usize) -> Vec<PuIdx> {
    pus.iter().copied().cycle().take(threads).collect()
}

/// Mapping by the communication of a whole run; threads without any get the PUs that are left.
fn known(matrix: &Matrix, threads: usize, places: &UsableMachine<'_>) -> Vec<PuIdx> {
    let tasks = matrix.tasks();
    let seats = mapping(matrix, &tasks, places);
    let mut free = places.pus.iter().copied().filter(|pu| !seats.contains(pu)).cycle();
    let seats = (0..threads).map(|thread| {
        // Tasks of a matrix are in ascending order.
        let at = tasks.binary_search(&task(thread)).ok();
        let own = at.and_then(|at| seats.get(at).copied());
        // None is free if threads that communicate have all PUs.
        own.or_else(|| free.next()).unwrap_or(PuIdx(0))
    });
    seats.collect()
}

fn figures(name: &'static str, done: &CoherenceRun) -> MappingFigures {
    let CoherenceRun { replayed, counts, .. } = done;
    MappingFigures {
        mapping: name,
        runs: 1,
        seconds: replayed.time_ps as f64 / 1e12,
        misses: counts.misses.iter().map(|sum| *sum as f64).collect(),
        invalidations: counts.invalidations.iter().map(|sum| *sum as f64).collect(),
        transfers: counts.transfers.iter().sum::<u64>() as f64,
        from_memory: counts.from_memory as f64,
        migrations: replayed.migrations as f64,
    }
}

/// Means over the decisions of each of [`POINTS`] parts of a run; parts without decisions are left
/// out.
fn points(replayed: &Replayed) -> Vec<MatrixPoint> {
    let part = (replayed.time_ps / POINTS).max(1);
    let points = (0..POINTS).filter_map(|number| {
        let moments = replayed.over_time.iter();
        // The division rounds down, so the end would lie one part too far.
        let found = moments.filter(|moment| (moment.at_ps / part).min(POINTS - 1) == number);
        let count = found.clone().count() as f64;
        (count > 0.0).then(|| MatrixPoint {
            seconds: (number as f64 + 0.5) * part as f64 * 1e-12,
            heterogeneity: found.clone().map(|moment| moment.heterogeneity).sum::<f64>() / count,
            dynamicity: found.map(|moment| moment.dynamicity).sum::<f64>() / count,
        })
    });
    points.collect()
}

/// Mean figures of the random mappings.
fn mean(runs: &[CoherenceRun]) -> MappingFigures {
    let mut sum = MappingFigures { mapping: "random", ..MappingFigures::default() };
    let part = 1.0 / f64::from(u32::try_from(runs.len()).unwrap_or(u32::MAX));
    for done in runs {
        let each = figures("random", done);
        sum.runs += 1;
        sum.seconds += part * each.seconds;
        add(&mut sum.misses, part, &each.misses);
        add(&mut sum.invalidations, part, &each.invalidations);
        sum.transfers += part * each.transfers;
        sum.from_memory += part * each.from_memory;
        sum.migrations += part * each.migrations;
    }
    sum
}

/// Adds a part of each level's figure to the sums.
fn add(sums: &mut Vec<f64>, part: f64, each: &[f64]) {
    // The first run decides on the number of levels.
    sums.resize(each.len(), 0.0);
    sums.iter_mut().zip(each).for_each(|(sum, figure)| *sum += part * figure);
}

fn square(matrix: &Matrix, threads: usize) -> Vec<Vec<f64>> {
    let rows =
        (0..threads).map(|a| (0..threads).map(|b| matrix.between(task(a), task(b))).collect());
    rows.collect()
}

/// The figure of a level; 0 if it has none.
pub(crate) fn at(figures: &[f64], level: usize) -> f64 {
    figures.get(level).copied().unwrap_or(0.0)
}

/// Difference of a figure to the baseline's, in percent; nothing for the baseline itself.
pub(crate) fn difference(figure: f64, base: Option<f64>) -> String {
    match base {
        None => String::new(),
        Some(base) if base > 0.0 => format!("{:+.1} %", 100.0 * (figure / base - 1.0)),
        Some(_) => "?".to_owned(),
    }
}

/// The figures as a table.
#[must_use]
pub fn text(report: &CoherenceReport) -> String {
    let Some(first) = report.mappings.first() else { return String::new() };
    let level = first.misses.len().min(2).saturating_sub(1);
    // The second level, if there is one.
    let misses = format!("L{} misses", level + 1);
    let heading =
        ["mapping", "time, ms", "", &misses, "", "invalidations", "", "transfers", "", "moved"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for of in &report.mappings {
        let misses = at(&of.misses, level);
        let invalidations = at(&of.invalidations, level);
        let is_baseline = of.mapping == first.mapping;
        let base = (!is_baseline).then_some(first);
        rows.push(vec![
            of.mapping.to_owned(),
            format!("{:.3}", 1e3 * of.seconds),
            difference(of.seconds, base.map(|base| base.seconds)),
            format!("{misses:.0}"),
            difference(misses, base.map(|base| at(&base.misses, level))),
            format!("{invalidations:.0}"),
            difference(invalidations, base.map(|base| at(&base.invalidations, level))),
            format!("{:.0}", of.transfers),
            difference(of.transfers, base.map(|base| base.transfers)),
            format!("{:.0}", of.migrations),
        ]);
    }
    let head = format!(
        "simulated on {}, not measured: {} threads, {} accesses; parts against the mean of {} random mappings\n",
        colocate_machine::printable(&report.machine),
        report.threads,
        report.accesses,
        first.runs
    );
    head + &colocate_figures::table::aligned(&rows)
}
