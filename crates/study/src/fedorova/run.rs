//! One situation under every scheduler, and what the oracle makes of it.

use super::Study;
use super::layout::levelled;
use super::points::{Point, Question, SerialBy, Waiting};
use super::program::{Pace, Sizes, fed, spinning};
use crate::replication::{Done, StudyError, known, seeds};
use crate::stats;
use colocate_machine::{Bytes, Nanos};
use colocate_policy::{Policy, PolicySpec};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, Kernel, Method, Options, Outcome, Pages, PhaseIdx, PhaseSpec,
    Platform, Scenario, Serial, Stretch, ThreadSpec, Work, simulate_with,
};

/// The schedulers by name, the baseline first. Those that colocate does not have are left out. The last is the nearest to the
/// published one: in parallel phases fast cores do not go round.
pub const POLICIES: [&str; 4] =
    ["os", "all-fast-first", "parallelism-aware", "parallelism-aware:spare=no"];

/// The arithmetic that stands behind the schedulers.
pub const ORACLE: &str = "oracle";

/// What is kept of a run: its time in seconds, the mean of its programs; how often a second threads came to another core,
/// how often to one under another last-level cache, how many cores were busy on average, and how many times as long the
/// slowest program took as the fastest. `None` if it did not come to its end.
pub type Kept = [Option<f64>; FIGURES];

/// How many figures are kept of a run.
pub const FIGURES: usize = 5;

/// Who is compared in a situation.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The scheduler.
    pub kind: PolicySpec,
    /// Whether the program has as many threads as feedback-driven threading gives it, not one for each core.
    pub fed: bool,
}

impl Contender {
    /// Its name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let threads = if self.fed { ", fdt" } else { "" };
        format!("{}{threads}", self.kind)
    }
}

/// Who is compared where this is asked, the baseline first.
#[must_use]
pub fn contenders(question: Question) -> Vec<Contender> {
    let of = |fed| known(&POLICIES).into_iter().map(move |kind| Contender { kind, fed });
    let fewer = question == Question::Threads;
    of(false).chain(of(true).filter(|_| fewer)).collect()
}

/// A situation with one set of assumptions under each of the schedulers, seed by seed, and what the oracle takes:
/// `[policy][seed]`.
pub(super) fn under_all(
    study: &Study<'_>,
    point: &Point,
    draw: usize,
) -> Result<Done<FIGURES>, StudyError> {
    let machine = point.layout.of(study.machine);
    let flat = point.levelled.then(|| levelled(study.performance));
    let performance = flat.as_ref().unwrap_or(study.performance);
    let assumptions = study.draws[draw];
    let platform = Platform::new(&machine, performance, assumptions)?;
    let sizes = Sizes::of(&point.shape, &machine, performance, assumptions)?;
    let few = sizes.among(fed(&point.shape, &machine, performance, assumptions)?);
    let seeds = || seeds(study.seed, study.seeds);
    let under_one = |Contender { kind, fed }| {
        let sizes = if fed { &few } else { &sizes };
        let one = |seed| -> Result<Kept, StudyError> {
            let scenario = scenario(study, point, sizes, seed);
            let mut scheduler = kind.plain();
            let outcome = under(&platform, point, &scenario, (&mut *scheduler, kind.name()))?;
            Ok(kept(&outcome))
        };
        seeds().map(one).collect()
    };
    let contenders = contenders(point.question).into_iter();
    let mut runs = contenders.map(under_one).collect::<Result<Done<FIGURES>, StudyError>>()?;
    let pace = Pace::new(&machine, performance, assumptions, point.shape.kind)?;
    let oracle = match point.programs {
        1 => [Some(sizes.oracle(&pace)), Some(0.0), Some(0.0), None, None],
        // It knows of one program alone.
        _ => [None; 5],
    };
    runs.push(seeds().map(|_| oracle).collect());
    Ok(runs)
}

/// A scenario under a scheduler.
///
/// # Errors
/// The [`StudyError`] of the simulation.
pub fn under(
    platform: &Platform<'_>,
    point: &Point,
    scenario: &Scenario,
    scheduler: (&mut dyn Policy, &str),
) -> Result<Outcome, StudyError> {
    let hides_spinning = point.waiting == Waiting::SpinUnknown;
    let options = Options { hides_spinning, ..Options::each_quantum() };
    Ok(simulate_with(platform, scenario, scheduler, &options, &mut |_| ())?)
}

/// The programs as a scenario, each as many threads as its share of the cores. They begin one after another within the first
/// round, so that their serial parts do not all begin together.
#[must_use]
pub fn scenario(study: &Study<'_>, point: &Point, sizes: &Sizes, seed: u64) -> Scenario {
    let spin = PhaseIdx(1);
    let programs = point.programs as usize;
    let sizes = &Sizes { threads: (sizes.threads / programs).max(1), ..*sizes };
    let thread = |order: usize| {
        let (course, instructions) = course(point.serial_by, sizes, order);
        ThreadSpec {
            name: format!("t{order}"),
            born: Nanos::ZERO,
            course,
            work: Work::Instructions(instructions),
            pages: Pages::FirstTouch,
            resident: Bytes::mib(32),
        }
    };
    let wait = match point.waiting {
        Waiting::Sleep => BarrierWait::Sleep,
        Waiting::Spin | Waiting::SpinUnknown => BarrierWait::Spin(spin),
    };
    let of_first = point.serial_by == SerialBy::First && sizes.serial > 0;
    let serial = of_first.then_some(Serial { phase: WORK, instructions: sizes.serial });
    let job = |order: usize| JobSpec {
        name: format!("program {order}"),
        arrives: Nanos(study.round.0 * order as u64 / programs as u64),
        threads: (0..sizes.threads).map(thread).collect(),
        barrier: Some(Barrier { wait, serial }),
    };
    Scenario {
        name: format!("{:.0} % serial", point.shape.serial * 100.0),
        seed,
        phases: vec![PhaseSpec::of(point.shape.kind.phase()), PhaseSpec::of(spinning())],
        jobs: (0..programs).map(job).collect(),
        method: Method::Leave,
        quantum: study.quantum,
        grain: Nanos::ZERO,
        horizon: Nanos(point.shape.length.0.saturating_mul(HORIZON)),
        usable: None,
        events: Vec::new(),
        kernel: Kernel::default(),
    }
}

/// What threads do that work.
const WORK: PhaseIdx = PhaseIdx(0);

/// What a thread does, and how many instructions that is in all. Where all do serial parts in turn, who has not its turn comes
/// to the next barrier at once: after one instruction, since there is no stretch without any.
fn course(by: SerialBy, sizes: &Sizes, order: usize) -> (Vec<Stretch>, u64) {
    let stretch = |instructions: u64| Stretch {
        phase: WORK,
        instructions,
        sleep: Nanos::ZERO,
        barrier: true,
    };
    let parallel = stretch(sizes.parallel);
    if by == SerialBy::First || sizes.serial == 0 {
        return (vec![parallel], sizes.parallel * sizes.parts);
    }
    let between = |turn: usize| if turn == order { sizes.serial } else { 1 };
    let rounds = (0..sizes.threads).flat_map(|turn| [parallel, stretch(between(turn))]);
    let turns = (0..sizes.threads).cycle().take(usize::try_from(sizes.parts - 1).unwrap_or(0));
    (rounds.collect(), sizes.parallel * sizes.parts + turns.map(between).sum::<u64>())
}

/// Times of the program on slow cores after which a run is given up. Chosen: all threads on one slow core would take sixteen.
const HORIZON: u64 = 20;

fn kept(outcome: &Outcome) -> Kept {
    let all = outcome.complete.then(|| outcome.lasted.as_secs_f64());
    let a_second = |count: fn(&colocate_sim::Moves) -> u32| {
        let moves: f64 = outcome.tasks.iter().map(|task| f64::from(count(&task.moves))).sum();
        all.map(|seconds| moves / seconds)
    };
    let took = outcome.jobs.iter().map(|job| job.took().map(Nanos::as_secs_f64));
    let took: Option<Vec<f64>> = took.collect::<Option<_>>().filter(|_| outcome.complete);
    let uneven = took.as_deref().map(|took| {
        let (least, most) = stats::ends(took.iter().copied());
        most / least
    });
    let seconds = took.and_then(|took| stats::mean(&took));
    let crossing = |moves: &colocate_sim::Moves| moves.same_node + moves.other_node;
    let ran: f64 = outcome.tasks.iter().map(|task| task.ran.as_secs_f64()).sum();
    let busy = all.map(|seconds| ran / seconds);
    [seconds, a_second(colocate_sim::Moves::total), a_second(crossing), busy, uneven]
}
