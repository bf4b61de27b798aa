//! Programs with serial and parallel phases under every scheduler and the oracle.

use super::definition::{Layout, Phased, SerialBy, StudyTable, Waiting};
use super::layout::levelled;
use super::pace::{DemandKind, ProgramSpeed, Shape, Sizes, fed, float, recorded, spinning};
use super::report::CellFigures;
use super::{Kept, PolicyRuns, Study, StudyError};
use crate::metric::Metric;
use crate::parts;
use colocate_machine::{Bytes, Nanos};
use colocate_policy::Policy;
use colocate_sim::{
    Barrier, BarrierWait, JobSpec, Outcome, PhaseIdx, PhaseSegment, PhaseSpec, Platform, Scenario,
    Serial, SimulationOptions, ThreadSpec, TotalWork, simulate_with,
};

/// One situation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhasedSituation {
    /// Positions of the fast cores.
    pub layout: Layout,
    /// Parameters of the program.
    pub shape: Shape,
    /// Thread of the serial phases.
    pub serial_by: SerialBy,
    /// Behaviour of waiting threads.
    pub waiting: Waiting,
    /// True if fast cores are as slow as the others and only described as fast.
    pub levelled: bool,
    /// Number of such programs. All together have as many threads as there are cores. Never 0.
    pub programs: u32,
}

/// Every combination of the values of a form.
pub(super) fn points(
    study: &Study<'_>,
    form: &Phased,
) -> impl Iterator<Item = PhasedSituation> + use<> {
    // The number of serial phases is a multiple of the threads, so that each thread does as many.
    let threads = study.machine.cores.len().max(1) as u64;
    let length = study.definition.length;
    let kinds = if form.streaming {
        vec![DemandKind::Streaming]
    } else if form.recorded {
        (0..recorded().len()).map(DemandKind::Recorded).collect()
    } else {
        vec![DemandKind::Typical]
    };
    let mut rounds: Vec<Nanos> =
        // A round is a serial and a parallel phase.
        form.phases_ms.iter().map(|phase| Nanos::from_millis(2 * phase)).collect();
    if rounds.is_empty() {
        rounds.push(study.round());
    }
    let Phased { serial_by, levelled, .. } = *form;
    let mut points = Vec::new();
    for &layout in &form.layouts {
        for &serial in &form.serial {
            for &round in &rounds {
                let serial = f64::from(serial) / 100.0;
                // One parallel part more than serial ones.
                let parts = (length.0 / round.0.max(1) / threads).max(1) * threads + 1;
                for shape in kinds.iter().map(|&kind| Shape { kind, serial, length, parts }) {
                    for &waiting in &form.waiting {
                        points.extend(form.programs.iter().map(|&programs| PhasedSituation {
                            layout,
                            shape,
                            serial_by,
                            waiting,
                            levelled,
                            programs,
                        }));
                    }
                }
            }
        }
    }
    points.into_iter()
}

impl PhasedSituation {
    /// Report of the situation.
    pub(super) fn figures(&self) -> CellFigures {
        let Shape { serial, length, parts, .. } = self.shape;
        let parallel_s = (1.0 - serial) * length.as_secs_f64() / float(parts);
        let layout = match self.layout {
            Layout::Friendly => "friendly",
            Layout::Unfriendly => "unfriendly",
        };
        let by = match self.serial_by {
            SerialBy::InTurn => "in turn",
            SerialBy::First => "the first",
        };
        let waiting = match self.waiting {
            Waiting::Sleep => "sleep",
            Waiting::Spin => "spin, reported",
            Waiting::SpinUnknown => "spin, not reported",
        };
        let like = match self.shape.kind {
            DemandKind::Recorded(place) => &recorded()[place].name,
            DemandKind::Typical => "typical",
            DemandKind::Streaming => "streaming",
        };
        let labels = [
            ("serial", format!("{:.0} %", serial * 100.0)),
            ("layout", layout.to_owned()),
            // Half a round, in milliseconds.
            ("phases", format!("{:.0} ms", length.as_secs_f64() / float(parts) * 500.0)),
            ("by", by.to_owned()),
            ("waiting", waiting.to_owned()),
            ("programs", self.programs.to_string()),
            ("like", like.to_owned()),
        ];
        let values = [
            ("serial", serial),
            ("parallel_s", parallel_s),
            ("serial_s", serial * length.as_secs_f64() / float(parts - 1)),
        ];
        CellFigures::of(&labels, &values, Vec::new())
    }
}

/// Simulates a situation under each scheduler, with one set of assumptions; the oracle is last.
pub(super) fn under_all(
    study: &Study<'_>,
    part: &StudyTable,
    point: &PhasedSituation,
    draw: usize,
) -> Result<PolicyRuns, StudyError> {
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
    let mut runs = PolicyRuns::new();
    for sizes in &threads {
        for (_, contender) in part.known() {
            let mut own: Vec<Kept> = Vec::new();
            for seed in study.seeds() {
                let scenario = scenario(study, point, sizes, seed);
                let mut scheduler = contender.policy.plain();
                let name = contender.policy.name();
                let outcome = under(&platform, point, &scenario, (&mut *scheduler, name))?;
                own.push(part.kept(&outcome));
            }
            runs.push(own);
        }
    }
    let pace = ProgramSpeed::new(&machine, performance, assumptions, point.shape.kind)?;
    // The oracle is arithmetic, of one program alone.
    let oracle = part.metrics.iter().map(|metric| match metric {
        _ if point.programs > 1 => None,
        Metric::Time => Some(sizes.oracle(&pace)),
        Metric::Moves | Metric::Crossings => Some(0.0),
        _ => None,
    });
    let oracle: Kept = oracle.collect();
    runs.push(study.seeds().map(|_| oracle.clone()).collect());
    Ok(runs)
}

/// Simulates a scenario under a scheduler.
///
/// # Errors
/// [`StudyError`] of the simulation.
pub fn under(
    platform: &Platform<'_>,
    point: &PhasedSituation,
    scenario: &Scenario,
    scheduler: (&mut dyn Policy, &str),
) -> Result<Outcome, StudyError> {
    let hides_spinning = point.waiting == Waiting::SpinUnknown;
    let options = SimulationOptions { hides_spinning, ..SimulationOptions::each_quantum() };
    Ok(simulate_with(platform, scenario, scheduler, &options, &mut |_| ())?)
}

/// The programs as a scenario, each with its share of the cores as threads. Starts are spread over
/// the first round, so that the serial phases do not all begin together.
#[must_use]
pub fn scenario(study: &Study<'_>, point: &PhasedSituation, sizes: &Sizes, seed: u64) -> Scenario {
    let programs = point.programs as usize;
    let sizes = &Sizes { threads: (sizes.threads / programs).max(1), ..*sizes };
    let wait = match point.waiting {
        Waiting::Sleep => BarrierWait::Sleep,
        Waiting::Spin | Waiting::SpinUnknown => BarrierWait::Spin(SPINNING),
    };
    let by_first = point.serial_by == SerialBy::First && sizes.serial > 0;
    let serial = by_first.then_some(Serial { phase: WORK, instructions: sizes.serial });
    let jobs = (0..programs).map(|order| {
        let threads = (0..sizes.threads).map(|order| thread(point.serial_by, sizes, order));
        let arrives = Nanos(study.round().0 * order as u64 / programs as u64);
        let job = parts::job(&format!("program {order}"), threads.collect());
        JobSpec { arrives, barrier: Some(Barrier { wait, serial }), ..job }
    });
    let name = format!("{:.0} % serial", point.shape.serial * 100.0);
    let phases = [point.shape.kind.phase(), spinning()].map(PhaseSpec::of).to_vec();
    let horizon = Nanos(point.shape.length.0.saturating_mul(HORIZON));
    let times = [study.definition.quantum, horizon];
    Scenario { seed, ..parts::scenario(&name, phases, jobs.collect(), times) }
}

/// Phase of working threads.
const WORK: PhaseIdx = PhaseIdx(0);
/// Phase of spinning threads.
const SPINNING: PhaseIdx = PhaseIdx(1);

/// Limit of a run, in times of the program on slow cores. Chosen: all threads on one slow core
/// would take sixteen.
const HORIZON: u64 = 20;

fn thread(by: SerialBy, sizes: &Sizes, order: usize) -> ThreadSpec {
    let (course, instructions) = course(by, sizes, order);
    let work = TotalWork::Instructions(instructions);
    let thread = parts::thread(&format!("t{order}"), course, work);
    ThreadSpec { resident: Bytes::mib(32), ..thread }
}

/// Course of a thread, and its instructions in all. Where threads do the serial phases in turn, the
/// other threads reach the next barrier after one instruction, because a stretch without
/// instructions is not possible.
fn course(by: SerialBy, sizes: &Sizes, order: usize) -> (Vec<PhaseSegment>, u64) {
    let parallel = stretch(sizes.parallel);
    if by == SerialBy::First || sizes.serial == 0 {
        return (vec![parallel], sizes.parallel * sizes.parts);
    }
    // One serial phase by each thread, as this thread sees them.
    let serial: Vec<u64> =
        (0..sizes.threads).map(|thread| if thread == order { sizes.serial } else { 1 }).collect();
    let rounds = serial.iter().flat_map(|&instructions| [parallel, stretch(instructions)]);
    // Serial parts lie between parallel ones, so there is one fewer.
    let all = serial.iter().cycle().take(usize::try_from(sizes.parts - 1).unwrap_or(0));
    (rounds.collect(), sizes.parallel * sizes.parts + all.sum::<u64>())
}

/// Work that ends at a barrier.
fn stretch(instructions: u64) -> PhaseSegment {
    PhaseSegment { barrier: true, ..parts::segment(WORK, instructions) }
}
