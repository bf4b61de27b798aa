//! One situation under every scheduler, and what the oracle makes of it.

use super::layout::levelled;
use super::points::{Point, Question, SerialBy, Waiting};
use super::program::{Pace, Sizes, fed, spinning};
use super::{FedorovaError, Study};
use colocate_machine::{Bytes, Nanos};
use colocate_policy::schedule::{Scheduler, SchedulerKind};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, Kernel, Method, Outcome, Pages, PhaseIdx, PhaseSpec, Platform,
    Scenario, ScheduleOptions, Serial, Stretch, ThreadSpec, Work, schedule_with,
};

/// The schedulers by name, the baseline first. Those that colocate does not have are left out.
pub const POLICIES: [&str; 3] = ["os", "all-fast-first", "parallelism-aware"];

/// The arithmetic that stands behind the schedulers.
pub const ORACLE: &str = "oracle";

/// What is kept of a run: its time in seconds, how often a second threads came to another core, how often to one
/// under another last-level cache, and how many cores were busy on average. `None` if it did not come to its end.
pub type Kept = [Option<f64>; 4];

/// Who is compared in a situation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contender {
    /// The scheduler.
    pub kind: SchedulerKind,
    /// Whether the program has as many threads as feedback-driven threading gives it, not one for each core.
    pub fed: bool,
}

impl Contender {
    /// Its name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let threads = if self.fed { ", fdt" } else { "" };
        format!("{}{threads}", self.kind.name())
    }
}

/// Who is compared where this is asked, the baseline first.
#[must_use]
pub fn contenders(question: Question) -> Vec<Contender> {
    let of = |fed| schedulers().into_iter().map(move |kind| Contender { kind, fed });
    let fewer = question == Question::Threads;
    of(false).chain(of(true).filter(|_| fewer)).collect()
}

/// The schedulers that colocate has.
#[must_use]
pub fn schedulers() -> Vec<SchedulerKind> {
    POLICIES.iter().filter_map(|name| name.parse().ok()).collect()
}

/// The names of those that it does not have.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let unknown = |name: &&str| name.parse::<SchedulerKind>().is_err();
    POLICIES.iter().copied().filter(unknown).collect()
}

/// A situation with one set of assumptions under each of the schedulers, seed by seed, and what the oracle takes:
/// `[policy][seed]`.
///
/// # Errors
/// The [`FedorovaError`] of a simulation.
///
/// # Panics
/// If there is no set of assumptions `draw`.
pub fn under_all(
    study: &Study<'_>,
    point: &Point,
    draw: usize,
) -> Result<Vec<Vec<Kept>>, FedorovaError> {
    let machine = point.layout.of(study.machine);
    let flat = point.levelled.then(|| levelled(study.performance));
    let performance = flat.as_ref().unwrap_or(study.performance);
    let assumptions = study.draws[draw];
    let platform = Platform::new(&machine, performance, assumptions)?;
    let sizes = Sizes::of(&point.shape, &machine, performance, assumptions)?;
    let few = sizes.among(fed(&point.shape, &machine, performance, assumptions)?);
    let seeds = || (0..study.seeds).map(|seed| study.seed.wrapping_add(seed.into()));
    let under_one = |Contender { kind, fed }| {
        let sizes = if fed { &few } else { &sizes };
        let one = |seed| -> Result<Kept, FedorovaError> {
            let scenario = scenario(study, point, sizes, seed);
            let mut scheduler = kind.scheduler(&[]);
            let outcome = under(&platform, point, &scenario, (&mut *scheduler, kind.name()))?;
            Ok(kept(&outcome))
        };
        seeds().map(one).collect::<Result<Vec<Kept>, FedorovaError>>()
    };
    let contenders = contenders(point.question).into_iter();
    let mut runs = contenders.map(under_one).collect::<Result<Vec<_>, FedorovaError>>()?;
    let pace = Pace::new(&machine, performance, assumptions, point.shape.kind)?;
    let seconds = sizes.oracle(&pace);
    runs.push(seeds().map(|_| [Some(seconds), Some(0.0), Some(0.0), None]).collect());
    Ok(runs)
}

/// A scenario under a scheduler.
///
/// # Errors
/// The [`FedorovaError`] of the simulation.
pub fn under(
    platform: &Platform<'_>,
    point: &Point,
    scenario: &Scenario,
    scheduler: (&mut dyn Scheduler, &str),
) -> Result<Outcome, FedorovaError> {
    let hides_spinning = point.waiting == Waiting::SpinUnknown;
    let options = ScheduleOptions { hides_spinning, ..ScheduleOptions::default() };
    Ok(schedule_with(platform, scenario, scheduler, &options, &mut |_| ())?)
}

/// The program as a scenario.
#[must_use]
pub fn scenario(study: &Study<'_>, point: &Point, sizes: &Sizes, seed: u64) -> Scenario {
    let spin = PhaseIdx(1);
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
    Scenario {
        name: format!("{:.0} % serial", point.shape.serial * 100.0),
        seed,
        phases: vec![PhaseSpec::of(point.shape.kind.phase()), PhaseSpec::of(spinning())],
        jobs: vec![JobSpec {
            name: "program".to_owned(),
            arrives: Nanos::ZERO,
            threads: (0..sizes.threads).map(thread).collect(),
            barrier: Some(Barrier { wait, serial }),
        }],
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
    let seconds = outcome.slowest().filter(|_| outcome.complete).map(Nanos::as_secs_f64);
    let a_second = |count: fn(&colocate_sim::Moves) -> u32| {
        let moves: f64 = outcome.tasks.iter().map(|task| f64::from(count(&task.moves))).sum();
        seconds.map(|seconds| moves / seconds)
    };
    let crossing = |moves: &colocate_sim::Moves| moves.same_node + moves.other_node;
    let ran: f64 = outcome.tasks.iter().map(|task| task.ran.as_secs_f64()).sum();
    let busy = seconds.map(|seconds| ran / seconds);
    [seconds, a_second(colocate_sim::Moves::total), a_second(crossing), busy]
}
