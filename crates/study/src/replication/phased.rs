//! Programs with serial and parallel phases under every scheduler, and what the oracle makes of them.

use super::definition::{Layout, Part, Phased, SerialBy, Waiting};
use super::layout::levelled;
use super::pace::{Kind, Pace, Shape, Sizes, fed, recorded, spinning};
use super::report::CellFigures;
use super::{Done, Kept, Study, StudyError};
use crate::metric::Metric;
use colocate_machine::{Bytes, Nanos};
use colocate_policy::{Policy, PolicySpec};
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, Kernel, Method, Options, Outcome, Pages, PhaseIdx, PhaseSpec,
    Platform, Scenario, Serial, Stretch, ThreadSpec, Work, simulate_with,
};

/// One situation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where the fast cores are.
    pub layout: Layout,
    /// What the program is like.
    pub shape: Shape,
    /// Which of its threads does the serial phases.
    pub serial_by: SerialBy,
    /// What its waiting threads do.
    pub waiting: Waiting,
    /// Whether fast cores are as slow as the others, and only said to be fast.
    pub levelled: bool,
    /// How many such programs there are, with as many threads together as there are cores. Never 0.
    pub programs: u32,
}

/// Every combination of the values of a form.
pub(super) fn points(study: &Study<'_>, form: &Phased) -> impl Iterator<Item = Point> + use<> {
    // So many serial phases that every thread does as many.
    let threads = study.machine.cores.len().max(1) as u64;
    let length = study.definition.length;
    let kinds = if form.streaming {
        vec![Kind::Streaming]
    } else if form.recorded {
        (0..recorded().len()).map(Kind::Recorded).collect()
    } else {
        vec![Kind::Typical]
    };
    let shape = |kind: Kind, serial: u32, round: Nanos| Shape {
        kind,
        serial: f64::from(serial) / 100.0,
        length,
        parts: (length.0 / round.0.max(1) / threads).max(1) * threads + 1,
    };
    let mut rounds: Vec<Nanos> =
        form.phases_ms.iter().map(|phase| Nanos::from_millis(2 * phase)).collect();
    if rounds.is_empty() {
        rounds.push(study.round());
    }
    let Phased { serial_by, levelled, .. } = *form;
    let mut points = Vec::new();
    for &layout in &form.layouts {
        for &serial in &form.serial {
            let shapes = rounds.iter().flat_map(|&round| {
                let shape = &shape;
                kinds.iter().map(move |&kind| shape(kind, serial, round))
            });
            for shape in shapes {
                for &waiting in &form.waiting {
                    let point = |&programs: &u32| Point {
                        layout,
                        shape,
                        serial_by,
                        waiting,
                        levelled,
                        programs,
                    };
                    points.extend(form.programs.iter().map(point));
                }
            }
        }
    }
    points.into_iter()
}

impl Point {
    /// What is reported of it.
    pub(super) fn figures(&self) -> CellFigures {
        let Shape { serial, length, parts, .. } = self.shape;
        #[allow(clippy::cast_precision_loss)] // a few thousand at most
        let count = |parts: u64| parts as f64;
        let parallel_s = (1.0 - serial) * length.as_secs_f64() / count(parts);
        let labels = [
            ("serial", format!("{:.0} %", serial * 100.0)),
            (
                "layout",
                match self.layout {
                    Layout::Friendly => "friendly".to_owned(),
                    Layout::Unfriendly => "unfriendly".to_owned(),
                },
            ),
            ("phases", format!("{:.0} ms", length.as_secs_f64() / count(parts) * 500.0)),
            (
                "by",
                match self.serial_by {
                    SerialBy::InTurn => "in turn".to_owned(),
                    SerialBy::First => "the first".to_owned(),
                },
            ),
            (
                "waiting",
                match self.waiting {
                    Waiting::Sleep => "sleep".to_owned(),
                    Waiting::Spin => "spin, reported".to_owned(),
                    Waiting::SpinUnknown => "spin, not reported".to_owned(),
                },
            ),
            ("programs", self.programs.to_string()),
            (
                "like",
                match self.shape.kind {
                    Kind::Recorded(place) => recorded()[place].name.clone(),
                    Kind::Typical => "typical".to_owned(),
                    Kind::Streaming => "streaming".to_owned(),
                },
            ),
        ];
        let values = [
            ("serial", serial),
            ("parallel_s", parallel_s),
            ("serial_s", serial * length.as_secs_f64() / count(parts - 1)),
        ];
        CellFigures::of(&labels, &values, Vec::new())
    }
}

/// A situation with one set of assumptions under each of the schedulers, and what the oracle takes.
pub(super) fn under_all(
    study: &Study<'_>,
    part: &Part,
    point: &Point,
    draw: usize,
) -> Result<Done, StudyError> {
    let machine = point.layout.of(study.machine);
    let flat = point.levelled.then(|| levelled(study.performance));
    let performance = flat.as_ref().unwrap_or(study.performance);
    let assumptions = study.draws[draw];
    let platform = Platform::new(&machine, performance, assumptions)?;
    let sizes = Sizes::of(&point.shape, &machine, performance, assumptions)?;
    let mut threads = vec![sizes];
    if part.has_fewer_threads() {
        threads.push(sizes.among(fed(&point.shape, &machine, performance, assumptions)?));
    }
    let under_one = |(sizes, policy): (&Sizes, PolicySpec)| {
        let one = |seed| -> Result<Kept, StudyError> {
            let scenario = scenario(study, point, sizes, seed);
            let mut scheduler = policy.plain();
            Ok(part.kept(&under(&platform, point, &scenario, (&mut *scheduler, policy.name()))?))
        };
        study.seeds().map(one).collect()
    };
    let contenders = threads.iter().flat_map(|it| part.known().map(move |(_, of)| (it, of.policy)));
    let mut runs = contenders.map(under_one).collect::<Result<Done, StudyError>>()?;
    let pace = Pace::new(&machine, performance, assumptions, point.shape.kind)?;
    // The oracle is arithmetic, of one program alone.
    let oracle = |metric: &Metric| match metric {
        _ if point.programs > 1 => None,
        Metric::Time => Some(sizes.oracle(&pace)),
        Metric::Moves | Metric::Crossings => Some(0.0),
        _ => None,
    };
    let oracle: Kept = part.metrics.iter().map(oracle).collect();
    runs.push(study.seeds().map(|_| oracle.clone()).collect());
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

/// The programs as a scenario, each with as many threads as its share of the cores. They begin one after another within the
/// first round, so that their serial phases do not all begin together.
#[must_use]
pub fn scenario(study: &Study<'_>, point: &Point, sizes: &Sizes, seed: u64) -> Scenario {
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
        Waiting::Spin | Waiting::SpinUnknown => BarrierWait::Spin(SPINNING),
    };
    let by_first = point.serial_by == SerialBy::First && sizes.serial > 0;
    let serial = by_first.then_some(Serial { phase: WORK, instructions: sizes.serial });
    let job = |order: usize| JobSpec {
        memory: Vec::new(),
        name: format!("program {order}"),
        arrives: Nanos(study.round().0 * order as u64 / programs as u64),
        threads: (0..sizes.threads).map(thread).collect(),
        barrier: Some(Barrier { wait, serial }),
    };
    Scenario {
        name: format!("{:.0} % serial", point.shape.serial * 100.0),
        seed,
        phases: vec![PhaseSpec::of(point.shape.kind.phase()), PhaseSpec::of(spinning())],
        jobs: (0..programs).map(job).collect(),
        method: Method::Leave,
        quantum: study.definition.quantum,
        grain: Nanos::ZERO,
        horizon: Nanos(point.shape.length.0.saturating_mul(HORIZON)),
        usable: None,
        events: Vec::new(),
        kernel: Kernel::default(),
    }
}

/// What threads do that work, and what those that spin.
const WORK: PhaseIdx = PhaseIdx(0);
const SPINNING: PhaseIdx = PhaseIdx(1);

/// Times of the program on slow cores after which a run is given up. Chosen: all threads on one slow core would take sixteen.
const HORIZON: u64 = 20;

/// What a thread does, and how many instructions that is in all. Where threads do serial phases in turn, the others come to
/// the next barrier at once: after one instruction, since there is no stretch without any.
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
    let between = |thread: usize| if thread == order { sizes.serial } else { 1 };
    let rounds = (0..sizes.threads).flat_map(|thread| [parallel, stretch(between(thread))]);
    let serial = (0..sizes.threads).cycle().take(usize::try_from(sizes.parts - 1).unwrap_or(0));
    (rounds.collect(), sizes.parallel * sizes.parts + serial.map(between).sum::<u64>())
}
