//! One program's accesses on the simulated caches of a machine, under several mappings.

use crate::matrices::MOST;
use colocate_machine::{Hertz, Machine, Nanos, Performance, PuIdx};
use colocate_model::rng::SplitMix64;
use colocate_policy::communication::filter::Uneven;
use colocate_policy::communication::mapping::mapping;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::Places;
use colocate_sim::coherent::replay::{
    Fixed, Followed, Mapping, Moment, Program, Replayed, Timing, replay, task,
};
use colocate_sim::coherent::{Coherent, Counts, DetectAt, Geometry, GeometryError, Protocol};
use serde::Serialize;

/// Version of the report.
pub const VERSION: u32 = 1;

/// Parts of a run over whose decisions means are taken. Chosen: points of a picture.
const POINTS: u64 = 80;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Random mappings, of which the mean is what others are compared with.
    pub random: u32,
    /// The first seed.
    pub seed: u64,
    /// Time between two decisions, as simulated.
    pub every: Nanos,
    /// How caches are kept coherent.
    pub protocol: Protocol,
    /// Where communication is detected.
    pub detect: DetectAt,
    /// When pairs communicate unevenly enough to be mapped.
    pub uneven: Uneven,
}

/// What came of one mapping, or of the mean of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Its name.
    pub mapping: &'static str,
    /// How many runs these are the mean of.
    pub runs: u32,
    /// Until the last thread ended, in seconds.
    pub seconds: f64,
    /// Misses by level, nearest first.
    pub misses: Vec<f64>,
    /// By level: copies that were lost since another PU wrote.
    pub invalidations: Vec<f64>,
    /// Lines from other caches, and from memory.
    pub transfers: f64,
    /// Lines from memory.
    pub from_memory: f64,
    /// How often threads were moved.
    pub migrations: f64,
}

/// Under all mappings.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The machine's name.
    pub machine: String,
    /// Threads of the program.
    pub threads: usize,
    /// Accesses of a run.
    pub accesses: u64,
    /// In the order of the table. The first one is what others are compared with.
    pub mappings: Vec<Figures>,
    /// What each thread communicated with each other one, by the detector, threads in the order of creation.
    pub matrix: Vec<Vec<f64>>,
    /// What `communication` goes by over time: means over the decisions of equally long parts of the run.
    pub over_time: Vec<Point>,
}

/// What `communication` goes by in a part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The middle of the part, in seconds.
    pub seconds: f64,
    /// How unevenly pairs communicate, see [`Matrix::heterogeneity`].
    pub heterogeneity: f64,
    /// How much that differs from the decision before, see [`Matrix::dynamicity`].
    pub dynamicity: f64,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CoherenceError {
    /// The machine has no caches that can be simulated.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The program could not be read to its end.
    #[error("{0}")]
    Program(String),
    /// Without a thread.
    #[error("expected threads, found none")]
    Empty,
    /// More threads than a report shows.
    #[error("expected a program of at most {MOST} threads, found {0}")]
    TooMany(usize),
    /// Threads wait for ever.
    #[error("expected a program that ends, found {0} threads that wait for others for ever")]
    Stuck(usize),
}

/// A program from its beginning to what is passed on; fails where it could not be read.
pub type Run<'a> = dyn FnMut(&mut dyn FnMut(&mut dyn Program)) -> Result<(), String> + 'a;

/// Runs a program under all mappings.
///
/// # Errors
/// See [`CoherenceError`].
pub fn report(
    machine: &Machine,
    performance: &Performance,
    settings: &Settings,
    run: &mut Run<'_>,
) -> Result<Report, CoherenceError> {
    let clock = performance.kinds.first().map_or(Hertz::mhz(1_000), |kind| kind.clock);
    let timing = Timing {
        instruction_ps: 1_000_000_000_000 / clock.0.max(1),
        every_ps: Some(settings.every.0.saturating_mul(1_000)),
    };
    let bench = Bench { geometry: Geometry::of(machine, performance)?, settings, timing };
    let pus: Vec<PuIdx> = machine.all_pus().collect();
    let places = Places::new(machine, &pus);
    let mut rng = SplitMix64::new(settings.seed);
    let mut random = Vec::new();
    let mut order = pus.clone();
    for _ in 0..settings.random.max(1) {
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last + 1));
        }
        random.push(bench.run(run, &mut |threads| Box::new(Fixed(dealt(&order, threads))))?);
    }
    let compact = bench.run(run, &mut |threads| Box::new(Fixed(dealt(&pus, threads))))?;
    let followed = bench.run(run, &mut |threads| {
        let (first, pipeline) = (dealt(&order, threads), Pipeline::new(settings.uneven));
        Box::new(Followed { first, places: places.clone(), pipeline })
    })?;
    let Done { threads, replayed, counts } = &compact;
    let matrix = &replayed.detected;
    let best = known(matrix, *threads, &places);
    let oracle = bench.run(run, &mut |_| Box::new(Fixed(best.clone())))?;
    let rows = [("compact", &compact), ("communication", &followed), ("oracle", &oracle)];
    let mut mappings = vec![mean(&random)];
    mappings.extend(rows.iter().map(|(name, done)| figures(name, done)));
    Ok(Report {
        version: VERSION,
        machine: machine.name.clone(),
        threads: *threads,
        accesses: counts.accesses,
        mappings,
        matrix: square(matrix, *threads),
        over_time: points(&followed.replayed),
    })
}

/// What each run has.
struct Bench<'a> {
    geometry: Geometry,
    settings: &'a Settings,
    timing: Timing,
}

/// A run.
#[derive(Default)]
struct Done {
    threads: usize,
    replayed: Replayed,
    counts: Counts,
}

impl Bench<'_> {
    /// One run under the mapping for so many threads.
    fn run<'m>(
        &self,
        run: &mut Run<'_>,
        mapping: &mut dyn FnMut(usize) -> Box<dyn Mapping + 'm>,
    ) -> Result<Done, CoherenceError> {
        let Settings { protocol, detect, .. } = *self.settings;
        let mut caches = Coherent::new(self.geometry.clone(), protocol, detect)?;
        let mut done = Done::default();
        run(&mut |program| {
            done.threads = program.threads();
            if done.threads <= MOST {
                let mut chosen = mapping(done.threads);
                done.replayed = replay(&mut caches, program, &mut *chosen, self.timing);
            }
        })
        .map_err(CoherenceError::Program)?;
        match (done.threads, done.replayed.stuck) {
            (0, _) => Err(CoherenceError::Empty),
            (threads, _) if threads > MOST => Err(CoherenceError::TooMany(threads)),
            (_, 0) => Ok(Done { counts: caches.counts().clone(), ..done }),
            (_, stuck) => Err(CoherenceError::Stuck(stuck)),
        }
    }
}

/// Threads in the order of creation to PUs in this order, again from the first one when all have one.
fn dealt(pus: &[PuIdx], threads: usize) -> Vec<PuIdx> {
    pus.iter().copied().cycle().take(threads).collect()
}

/// Where threads go by what they communicate over the whole run; others on PUs that are left.
fn known(matrix: &Matrix, threads: usize, places: &Places<'_>) -> Vec<PuIdx> {
    let tasks = matrix.tasks();
    let seats = mapping(matrix, &tasks, places);
    let mut free = places.pus.iter().copied().filter(|pu| !seats.contains(pu)).cycle();
    let seat = |thread| {
        let at = tasks.binary_search(&task(thread)).ok();
        let own = at.and_then(|at| seats.get(at).copied());
        own.or_else(|| free.next()).unwrap_or(PuIdx(0))
    };
    (0..threads).map(seat).collect()
}

#[allow(clippy::cast_precision_loss)] // counts of a run
fn figures(name: &'static str, done: &Done) -> Figures {
    let Done { replayed, counts, .. } = done;
    let of = |sums: &[u64]| sums.iter().map(|sum| *sum as f64).collect();
    Figures {
        mapping: name,
        runs: 1,
        seconds: replayed.time_ps as f64 / 1e12,
        misses: of(&counts.misses),
        invalidations: of(&counts.invalidations),
        transfers: counts.transfers.iter().sum::<u64>() as f64,
        from_memory: counts.from_memory as f64,
        migrations: replayed.migrations as f64,
    }
}

/// Means over the decisions of each of [`POINTS`] parts of a run; of a part without a decision none.
#[allow(clippy::cast_precision_loss)] // picoseconds, decisions
fn points(replayed: &Replayed) -> Vec<Point> {
    let part = (replayed.time_ps / POINTS).max(1);
    let mean = |number: u64| {
        let is_in = |moment: &&Moment| (moment.at_ps / part).min(POINTS - 1) == number;
        let found: Vec<&Moment> = replayed.over_time.iter().filter(is_in).collect();
        let of = |figure: fn(&Moment) -> f64| {
            found.iter().map(|moment| figure(moment)).sum::<f64>() / found.len() as f64
        };
        (!found.is_empty()).then(|| Point {
            seconds: (number as f64 + 0.5) * part as f64 * 1e-12,
            heterogeneity: of(|moment| moment.heterogeneity),
            dynamicity: of(|moment| moment.dynamicity),
        })
    };
    (0..POINTS).filter_map(mean).collect()
}

fn mean(runs: &[Done]) -> Figures {
    let mut sum = Figures { mapping: "random", ..Figures::default() };
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

/// Adds a part of each level's figure.
fn add(sums: &mut Vec<f64>, part: f64, each: &[f64]) {
    sums.resize(each.len(), 0.0);
    sums.iter_mut().zip(each).for_each(|(sum, figure)| *sum += part * figure);
}

fn square(matrix: &Matrix, threads: usize) -> Vec<Vec<f64>> {
    let row = |a| (0..threads).map(|b| matrix.between(task(a), task(b))).collect();
    (0..threads).map(row).collect()
}

/// The figures as a table.
#[must_use]
pub fn text(report: &Report) -> String {
    let Some(first) = report.mappings.first() else { return String::new() };
    let level = first.misses.len().min(2).saturating_sub(1);
    let at = |figures: &[f64]| figures.get(level).copied().unwrap_or(0.0);
    let misses = format!("L{} misses", level + 1);
    let heading =
        ["mapping", "time, ms", "", &misses, "", "invalidations", "", "transfers", "", "moved"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for of in &report.mappings {
        let part = |figure: f64, base: f64| match base {
            _ if of.mapping == first.mapping => String::new(),
            base if base > 0.0 => format!("{:+.1} %", 100.0 * (figure / base - 1.0)),
            _ => "?".to_owned(),
        };
        rows.push(vec![
            of.mapping.to_owned(),
            format!("{:.3}", 1e3 * of.seconds),
            part(of.seconds, first.seconds),
            format!("{:.0}", at(&of.misses)),
            part(at(&of.misses), at(&first.misses)),
            format!("{:.0}", at(&of.invalidations)),
            part(at(&of.invalidations), at(&first.invalidations)),
            format!("{:.0}", of.transfers),
            part(of.transfers, first.transfers),
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
