//! What the model says of each job alone: what schedulers need beforehand.
//!
//! # Problem
//! Some schedulers need to know how long each job takes alone, its memory traffic then, and how much
//! it suffers from others' traffic. On a real machine that takes runs.
//! # Approach
//! Each phase of a job's threads, alone on a core of the kind that is fastest for it, its memory near; then
//! beside copies of a *companion* on all other cores of the node, as Feliu's slides show benchmarks beside
//! copies of a micro-benchmark. Phases count by the time that they take alone.
//! # Terms
//! - *Companion*: reads and writes a line of memory every so many instructions, and does additions otherwise,
//!   as the tunable micro-benchmark. It is as dense as may be for all copies together to use no more than
//!   [`HALF`] of a memory controller: where the memory is full all lose alike, and where
//!   it is hardly used none loses.
//! - *Loss*: `(1 − rate beside / rate alone) / t`, with `t` the traffic of all companions, in t/µs.
//! # Properties
//! - **As the simulation**: a job simulated alone takes that long and has that much traffic. -> test
//!   `alone_is_as_simulated`. It takes longer where threads meet at barriers with courses that are not alike, or
//!   get in each other's way.
//! - **A thread that waits for memory loses more** -> test `streams_lose_more`

use crate::SimError;
use crate::platform::{Demands, Platform, float};
use crate::scenario::{JobSpec, PhaseSpec, Scenario, Stretch, ThreadSpec, Work};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Bytes, PuIdx};
use colocate_model::phase::{Demand, Known, Work as PortWork};
use colocate_model::{Assumptions, MissCurve, Mix, Phase, Seat, TaskRate};
use colocate_policy::SoloProfile;
use colocate_policy::table::{Course, CoursePart};

/// Most of a memory controller that all companions use together. Chosen.
const HALF: f64 = 0.5;

/// Instructions for each line of the densest companion. Chosen: denser than any that has to be, where all
/// other cores of a node have one.
const DENSEST: f64 = 10.0;

/// Doublings of that until the companion has next to no traffic.
const DOUBLINGS: u32 = 12;

/// What each job of `scenario` takes, demands and loses, by job. Loads and stores that a phase's mix does
/// not say count as none.
///
/// # Errors
/// [`SimError`] if the scenario does not make sense on the machine.
pub fn alone_of(
    platform: &Platform<'_>,
    scenario: &Scenario,
) -> Result<Vec<SoloProfile>, SimError> {
    scenario.check(platform.machine())?;
    let demands = Demands::new(platform, scenario)?;
    let phases = phases_alone(platform, scenario, &demands)?;
    Ok(scenario.jobs.iter().map(|job| of_job(&phases, &demands, job)).collect())
}

/// What each job of `scenario` does alone, part after part, by job: of its first thread, without the time that it sleeps.
///
/// # Errors
/// As [`alone_of`].
pub fn courses_of(platform: &Platform<'_>, scenario: &Scenario) -> Result<Vec<Course>, SimError> {
    scenario.check(platform.machine())?;
    let phases = phases_alone(platform, scenario, &Demands::new(platform, scenario)?)?;
    let part = |stretch: &Stretch| CoursePart {
        instructions: stretch.instructions,
        seconds: float(stretch.instructions) / phases[stretch.phase.0 as usize].instructions,
    };
    let course = |job: &JobSpec| {
        let first = job.threads.first();
        Course(first.map_or_else(Vec::new, |first| first.course.iter().map(part).collect()))
    };
    Ok(scenario.jobs.iter().map(course).collect())
}

/// The rates of each phase alone, on the kind of core that is fastest for it.
fn phases_alone(
    platform: &Platform<'_>,
    scenario: &Scenario,
    demands: &Demands,
) -> Result<Vec<Rates>, SimError> {
    let kinds = 0..platform.machine().kinds.len();
    let benches: Vec<Option<Bench>> =
        kinds.map(|kind| Bench::new(platform, kind)).collect::<Result<_, _>>()?;
    let rates = |(phase, spec): (usize, &PhaseSpec)| {
        let on = |bench: &Bench| {
            let demand = demands.of(phase, platform.kind_of(bench.pu));
            bench.rates(platform, demand, &spec.mix)
        };
        benches.iter().flatten().map(on).reduce(Rates::faster).unwrap_or_default()
    };
    Ok(scenario.phases.iter().enumerate().map(rates).collect())
}

/// One phase alone: its rates, a second and a microsecond.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    instructions: f64,
    memory: f64,
    first_cache: f64,
    loss: f64,
}

impl Rates {
    fn faster(self, other: Self) -> Self {
        if other.instructions > self.instructions { other } else { self }
    }
}

/// Where phases are evaluated: a core of one kind, and companions on the others of its node.
struct Bench {
    pu: PuIdx,
    others: Vec<PuIdx>,
    /// By kind of core; none if there is no other core, or the memory is too slow even for the thinnest.
    companions: Vec<Demand>,
    /// What all of them ask for, t/µs.
    traffic: f64,
}

impl Bench {
    /// On the first core of a kind; `None` if there is none.
    fn new(platform: &Platform<'_>, kind: usize) -> Result<Option<Self>, SimError> {
        let machine = platform.machine();
        let Some(pu) = machine.all_pus().find(|&pu| platform.kind_of(pu) == kind) else {
            return Ok(None);
        };
        let others = others(platform, pu);
        let (companions, traffic) = companions(platform, &others)?.unwrap_or_default();
        Ok(Some(Self { pu, others, companions, traffic }))
    }

    fn rates(&self, platform: &Platform<'_>, demand: &Demand, mix: &Mix) -> Rates {
        let seat = Seat { pu: self.pu, demand, pages: &[], space: 0 };
        let rate = platform.model().alone(&seat);
        let requests = mix.load.zip(mix.store).map_or(0.0, |(l, s)| l.get() + s.get());
        Rates {
            instructions: rate.instructions_per_second,
            memory: to_memory(&rate),
            first_cache: requests * rate.instructions_per_second / 1e6,
            loss: self.loss(platform, seat, rate.instructions_per_second),
        }
    }

    /// The share of its speed `alone` that a task loses for each t/µs of the companions.
    fn loss(&self, platform: &Platform<'_>, seat: Seat<'_>, alone: f64) -> f64 {
        if self.companions.is_empty() {
            return 0.0;
        }
        let mut seats = companions_on(platform, &self.others, &self.companions);
        seats.push(seat);
        let beside = platform.model().predict(&seats);
        let beside = beside.tasks[self.others.len()].instructions_per_second;
        ((1.0 - beside / alone) / self.traffic).max(0.0)
    }
}

/// Lines from memory in a microsecond.
fn to_memory(rate: &TaskRate) -> f64 {
    rate.misses.last().copied().unwrap_or(0.0) * rate.instructions_per_second / 1e6
}

/// The first PU of every other core of the node.
fn others(platform: &Platform<'_>, pu: PuIdx) -> Vec<PuIdx> {
    let machine = platform.machine();
    let mine = machine.core_of(pu).idx();
    let node = machine.cores[mine].node;
    let others = machine.cores.iter().enumerate();
    let others = others.filter(|(at, core)| *at != mine && core.node == node);
    others.map(|(_, core)| core.pus[0]).collect()
}

/// The densest companion, by kind of core, of which copies on these PUs use no more than [`HALF`] of any
/// controller, and the traffic of all of them, t/µs; `None` if even the thinnest has more, or none.
fn companions(
    platform: &Platform<'_>,
    pus: &[PuIdx],
) -> Result<Option<(Vec<Demand>, f64)>, SimError> {
    for doubling in 0..DOUBLINGS {
        let phase = companion(DENSEST * f64::from(1_u32 << doubling));
        let on = |core| Ok(phase.on(core, &Assumptions::default().guesses)?.demand);
        let wrong = |error| SimError::Phase { phase: phase.name.clone(), error };
        let kinds = platform.performance().kinds.iter().map(on);
        let demands: Vec<Demand> = kinds.collect::<Result<_, _>>().map_err(wrong)?;
        let found = platform.model().predict(&companions_on(platform, pus, &demands));
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
) -> Vec<Seat<'a>> {
    let seat = |(&pu, space): (&PuIdx, u32)| Seat {
        pu,
        demand: &demands[platform.kind_of(pu)],
        pages: &[],
        space,
    };
    pus.iter().zip(1..).map(seat).collect()
}

/// Reads and writes a line of memory every so many instructions.
fn companion(instructions: f64) -> Phase {
    let known = |value: f64| Known::new(value, "the companion");
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

fn of_job(phases: &[Rates], demands: &Demands, job: &JobSpec) -> SoloProfile {
    let mut sum = SoloProfile::default();
    let (mut first_cache, mut lost, mut busy, mut meetings) = (0.0, 0.0, 0.0, 0.0_f64);
    for thread in &job.threads {
        let (one, barriers) = of_thread(phases, demands, thread);
        sum.seconds = sum.seconds.max(one.seconds);
        sum.memory += one.memory;
        first_cache += one.first_cache.unwrap_or(0.0);
        lost += one.loss * one.seconds;
        busy += one.seconds;
        meetings = meetings.max(barriers);
    }
    if let Some(serial) = job.barrier.and_then(|barrier| barrier.serial) {
        let rates = phases[serial.phase.0 as usize];
        let seconds = meetings * float(serial.instructions) / rates.instructions;
        let all = sum.seconds + seconds;
        let mean = |parallel: f64, serial: f64| (parallel * sum.seconds + serial * seconds) / all;
        sum.memory = mean(sum.memory, rates.memory);
        first_cache = mean(first_cache, rates.first_cache);
        sum.seconds = all;
        lost += rates.loss * seconds;
        busy += seconds;
    }
    let loss = if busy > 0.0 { lost / busy } else { 0.0 };
    SoloProfile { loss, first_cache: Some(first_cache), ..sum }
}

/// Of one thread, and to how many barriers it comes; rates are means over the time that it is busy.
fn of_thread(phases: &[Rates], demands: &Demands, thread: &ThreadSpec) -> (SoloProfile, f64) {
    let (mut mean, mut first_cache, mut busy) = (SoloProfile::default(), 0.0, 0.0);
    for stretch in &thread.course {
        let rates = phases[stretch.phase.0 as usize];
        let seconds = float(stretch.instructions) / rates.instructions;
        mean.memory += rates.memory * seconds;
        first_cache += rates.first_cache * seconds;
        mean.loss += rates.loss * seconds;
        busy += seconds;
    }
    let life = demands.life(thread);
    let seconds = match thread.work {
        // Its instructions are rounded, and the time is not; but it does not sleep when they are done.
        Work::AloneFor(time) if life.asleep <= 0.0 => time.as_secs_f64(),
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
