//! Solo profiles of jobs, from the model: time, memory traffic, sensitivity to others' traffic.
//!
//! # Problem
//! Some schedulers need, before the first decision, how long each job takes alone, its memory
//! traffic alone, and how much speed it loses to others' traffic. A real machine has to run each
//! job for that.
//! # Approach
//! Each phase of a job's threads is evaluated alone, on a core of the fastest kind for it, with its
//! memory on the home node. It is evaluated again beside copies of a *companion* on all other cores
//! of the node, as Feliu's slides show benchmarks beside copies of a micro-benchmark. Phases are
//! weighted by their time alone.
//! # Terms
//! - *Companion*: reads and writes a line of memory every so many instructions, and does additions
//!   otherwise, as the tunable micro-benchmark. It is the densest of which all copies together use
//!   at most [`HALF`] of a memory controller: where memory is full all tasks lose alike, and where
//!   it is hardly used none loses.
//! - *Loss*: `(1 − rate beside / rate alone) / t`, with `t` the traffic of all companions, in t/µs.
//! # Properties
//! - **As the simulation**: a job simulated alone takes that long and has that much traffic. ->
//!   test `alone_is_as_simulated`. It takes longer where threads with different courses meet at
//!   barriers, or get in each other's way.
//! - **A thread that waits for memory loses more** -> test `streams_lose_more`

use crate::SimError;
use crate::platform::{Demands, Platform, demands_by_kind};
use crate::scenario::{JobSpec, Scenario, ThreadSpec, TotalWork};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, PuIdx};
use colocate_model::phase::{Demand, Known, PortWork};
use colocate_model::{Assumptions, MissCurve, Mix, Phase, PlacedTask, TaskRate};
use colocate_policy::SoloProfile;
use colocate_policy::table::{CoursePart, SoloProgress};

/// Largest share of a memory controller's bandwidth for all companions together. Chosen.
const HALF: f64 = 0.5;

/// Instructions for each line of the densest companion. Chosen: denser than a node needs with a
/// companion on every core.
const DENSEST: f64 = 10.0;

/// Doublings of [`DENSEST`] until the companion has next to no traffic.
const DOUBLINGS: u32 = 12;

/// Solo profile of each job of `scenario`, by job. Loads and stores missing from a phase's mix
/// count as 0.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine.
pub fn alone_of(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<SoloProfile>, SimError> {
    scenario.check(platform.machine)?;
    let demands = Demands::new(platform, scenario)?;
    let phases = phases_alone(platform, scenario, &demands)?;
    Ok(scenario.jobs.iter().map(|job| of_job(&phases, &demands, job)).collect())
}

/// Course of each job alone: instructions and seconds of each part of its first thread, sleep left
/// out.
///
/// # Errors
/// As [`alone_of`].
pub fn courses_of(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<SoloProgress>, SimError> {
    scenario.check(platform.machine)?;
    let phases = phases_alone(platform, scenario, &Demands::new(platform, scenario)?)?;
    Ok(scenario.jobs.iter().map(|job| course_of(&phases, job)).collect())
}

fn course_of(phases: &[SoloRates], job: &JobSpec) -> SoloProgress {
    let stretches = job.threads.first().into_iter().flat_map(|first| &first.course);
    let parts = stretches.map(|stretch| CoursePart {
        instructions: stretch.instructions,
        seconds: stretch.instructions as f64 / phases[stretch.phase.0 as usize].instructions,
    });
    SoloProgress(parts.collect())
}

/// Rates of each phase alone, on its fastest kind of core.
fn phases_alone(
    platform: &Platform<'_>,
    scenario: &Scenario,
    demands: &Demands,
) -> Result<Vec<SoloRates>, SimError> {
    let kinds = 0..platform.machine.kinds.len();
    let benches: Vec<Option<PhaseBench>> =
        kinds.map(|kind| PhaseBench::new(platform, kind)).collect::<Result<_, _>>()?;
    let rates = scenario.phases.iter().enumerate().map(|(phase, spec)| {
        let on_kinds = benches.iter().flatten().map(|bench| {
            let demand = demands.of(phase, platform.kind_of(bench.pu));
            bench.rates(platform, demand, &spec.mix)
        });
        on_kinds.reduce(SoloRates::faster).unwrap_or_default()
    });
    Ok(rates.collect())
}

/// Rates of a phase alone: instructions a second, requests a microsecond, loss for each t/µs.
#[derive(Clone, Copy, Debug, Default)]
struct SoloRates {
    instructions: f64,
    memory: f64,
    first_cache: f64,
    loss: f64,
}

impl SoloRates {
    fn faster(self, other: Self) -> Self {
        if other.instructions > self.instructions { other } else { self }
    }
}

/// Test bench for phases: a core of a kind, with companions on the rest of its node.
struct PhaseBench {
    pu: PuIdx,
    /// First PU of every other core of the node.
    others: Vec<PuIdx>,
    /// Demand of the companion, by kind of core. Empty without another core, or if even the
    /// sparsest companion asks too much of the memory.
    companions: Vec<Demand>,
    /// Traffic of all companions together, t/µs.
    traffic: f64,
}

impl PhaseBench {
    /// Bench on the first core of a kind; `None` for a kind without cores.
    fn new(platform: &Platform<'_>, kind: usize) -> Result<Option<Self>, SimError> {
        let Some(pu) = platform.first_of_kind(kind) else {
            return Ok(None);
        };
        let others = others(platform, pu);
        let (companions, traffic) = companions(platform, &others)?.unwrap_or_default();
        Ok(Some(Self { pu, others, companions, traffic }))
    }

    fn rates(&self, platform: &Platform<'_>, demand: &Demand, mix: &Mix) -> SoloRates {
        let seat = PlacedTask { pu: self.pu, demand, pages: &[], space: 0 };
        let rate = platform.model.alone(&seat);
        let requests = mix.load.zip(mix.store).map_or(0.0, |(l, s)| l.get() + s.get());
        SoloRates {
            instructions: rate.instructions_per_second,
            memory: to_memory(&rate),
            first_cache: requests * rate.instructions_per_second / 1e6,
            loss: self.loss(platform, seat, rate.instructions_per_second),
        }
    }

    /// Loss of a task for each t/µs of the companions, as a share of its speed `alone`.
    fn loss(&self, platform: &Platform<'_>, seat: PlacedTask<'_>, alone: f64) -> f64 {
        if self.companions.is_empty() {
            return 0.0;
        }
        let mut seats = companions_on(platform, &self.others, &self.companions);
        seats.push(seat);
        let beside = platform.model.predict(&seats);
        let beside = beside.tasks[self.others.len()].instructions_per_second;
        // The model's search stops within a tolerance, so a rate beside can exceed the rate alone.
        ((1.0 - beside / alone) / self.traffic).max(0.0)
    }
}

/// Lines from memory, a microsecond.
fn to_memory(rate: &TaskRate) -> f64 {
    // Misses of the outermost cache go to memory.
    rate.misses.last().copied().unwrap_or(0.0) * rate.instructions_per_second / 1e6
}

/// First PU of every other core of the node.
fn others(platform: &Platform<'_>, pu: PuIdx) -> Vec<PuIdx> {
    let machine = platform.machine;
    let mine = machine.core_of(pu).idx();
    let node = machine.cores[mine].node;
    let others = machine.cores.iter().enumerate();
    let others = others.filter(|(at, core)| *at != mine && core.node == node);
    others.map(|(_, core)| core.pus[0]).collect()
}

/// Demand, by kind of core, of the densest companion whose copies on `pus` use at most [`HALF`] of
/// any controller, and the traffic of all copies, t/µs. `None` if even the sparsest companion uses
/// more, or has no traffic.
fn companions(
    platform: &Platform<'_>,
    pus: &[PuIdx],
) -> Result<Option<(Vec<Demand>, f64)>, SimError> {
    let guesses = Assumptions::default().guesses;
    for doubling in 0..DOUBLINGS {
        let phase = companion(DENSEST * f64::from(1_u32 << doubling));
        let demands = demands_by_kind(platform.performance, &phase, &guesses)?;
        let found = platform.model.predict(&companions_on(platform, pus, &demands));
        let traffic = found.tasks.iter().map(to_memory).fold(0.0, |sum, each| sum + each);
        if found.controllers.iter().all(|used| *used <= HALF) {
            return Ok((traffic > 0.0).then_some((demands, traffic)));
        }
    }
    Ok(None)
}

fn companions_on<'a>(
    platform: &Platform<'_>,
    pus: &[PuIdx],
    demands: &'a [Demand],
) -> Vec<PlacedTask<'a>> {
    // Space 0 is that of the measured task, with which companions share no memory.
    let seats = pus.iter().zip(1..).map(|(&pu, space)| PlacedTask {
        pu,
        demand: &demands[platform.kind_of(pu)],
        pages: &[],
        space,
    });
    seats.collect()
}

/// Phase of a companion with this many instructions for each line of memory.
fn companion(instructions: f64) -> Phase {
    let line = 1.0 / instructions;
    let work =
        vec![(WorkKind::Load, line), (WorkKind::Store, line), (WorkKind::Int, 1.0 - 2.0 * line)];
    Phase {
        name: "companion".to_owned(),
        slots: known(1.0),
        work: Known::new(PortWork::Kinds(work), "the companion"),
        dependent_cycles: known(0.0),
        dependent_cycles_divided: known(0.0),
        stall_cycles: known(0.0),
        branch_misses: known(0.0),
        misses: MissCurve::new([(Bytes(64), line)])
            .map_or(Known::Unknown, |curve| Known::new(curve, "every line is new")),
        // As many as `Guessed::ParallelMisses` can be: its lines do not depend on each other.
        parallel_misses: known(6.0),
        written_back: known(1.0),
        shared_lines: known(0.0),
        ..Phase::default()
    }
}

fn known(value: f64) -> Known<f64> {
    Known::new(value, "the companion")
}

fn of_job(phases: &[SoloRates], demands: &Demands, job: &JobSpec) -> SoloProfile {
    let mut sum = SoloProfile::default();
    let mut first_cache = 0.0;
    let mut lost = 0.0;
    let mut busy = 0.0;
    let mut meetings = 0.0_f64;
    for thread in &job.threads {
        let (one, barriers) = of_thread(phases, demands, thread);
        // Threads run side by side: their times overlap, their traffic adds up.
        sum.seconds = sum.seconds.max(one.seconds);
        sum.memory += one.memory;
        first_cache += one.first_cache.unwrap_or(0.0);
        lost += one.loss * one.seconds;
        busy += one.seconds;
        // All threads meet at each barrier, so arrivals do not add up.
        meetings = meetings.max(barriers);
    }
    if let Some(serial) = job.barrier.and_then(|barrier| barrier.serial) {
        let rates = phases[serial.phase.0 as usize];
        let seconds = meetings * (serial.instructions as f64) / rates.instructions;
        let all = sum.seconds + seconds;
        sum.memory = (sum.memory * sum.seconds + rates.memory * seconds) / all;
        first_cache = (first_cache * sum.seconds + rates.first_cache * seconds) / all;
        sum.seconds = all;
        lost += rates.loss * seconds;
        busy += seconds;
    }
    let loss = if busy > 0.0 { lost / busy } else { 0.0 };
    SoloProfile { loss, first_cache: Some(first_cache), ..sum }
}

/// Solo profile of a thread, and its arrivals at barriers. Rates are means over its busy time.
fn of_thread(phases: &[SoloRates], demands: &Demands, thread: &ThreadSpec) -> (SoloProfile, f64) {
    let mut mean = SoloProfile::default();
    let mut first_cache = 0.0;
    let mut busy = 0.0;
    for stretch in &thread.course {
        let rates = phases[stretch.phase.0 as usize];
        let seconds = stretch.instructions as f64 / rates.instructions;
        mean.memory += rates.memory * seconds;
        first_cache += rates.first_cache * seconds;
        mean.loss += rates.loss * seconds;
        busy += seconds;
    }
    let life = demands.life(thread);
    let seconds = match thread.work {
        // Its instructions are rounded, the requested time is not; a last sleep is left out,
        // though.
        TotalWork::AloneFor(time) if life.asleep <= 0.0 => time.as_secs_f64(),
        _ => life.busy + life.asleep,
    };
    let alone = SoloProfile {
        seconds: thread.born.as_secs_f64() + seconds,
        memory: mean.memory / busy,
        first_cache: Some(first_cache / busy),
        loss: mean.loss / busy,
    };
    (alone, life.barriers)
}
