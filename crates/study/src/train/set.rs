//! Training sets: drawn, recorded, or from scenarios.

use crate::parts::{self, known_phase, segment};
use crate::replication::drawn;
use colocate_model::phase::{Guessed, Guesses, Known, PortWork, typical_misses};
use colocate_model::rng::SplitMix64;
use colocate_model::{Assumptions, Class, Mix, Phase, Share};
use colocate_sim::{JobSpec, PhaseIdx, PhaseSegment, PhaseSpec, Scenario, ThreadSpec, TotalWork};

/// A program of one thread, which repeats its course.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingProgram {
    /// Name.
    pub name: String,
    /// Stretches; never empty.
    pub course: Vec<PhaseSegment>,
}

/// Programs with their phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingSet {
    /// The phases.
    pub phases: Vec<PhaseSpec>,
    /// The programs.
    pub programs: Vec<TrainingProgram>,
}

/// Length of a stretch of a drawn program, in instructions: least and most. Chosen: some intervals.
const STRETCH: (u64, u64) = (30_000_000, 300_000_000);

/// Factor on [`typical_misses`] of a drawn phase, least and most; its logarithm is drawn evenly.
/// Chosen: wider than plausible for an unknown program, since a training set needs programs that
/// hardly ever wait for memory beside programs that always do.
const MISSES: (f64, f64) = (0.01, 3.0);

impl TrainingSet {
    /// Draws programs of two phases each. Every figure of a phase is drawn from its plausible range
    /// ([`Guessed::plausible`]), so that few programs cover all of it; misses are drawn from
    /// `MISSES`.
    #[must_use]
    pub fn drawn(programs: usize, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        // The first set of assumptions is the default one, not a drawn one.
        let drawn = Assumptions::sample(2 * programs + 1, seed);
        let phases = drawn.iter().skip(1).enumerate().map(|(at, one)| {
            let misses = MISSES.0 * (MISSES.1 / MISSES.0).powf(rng.unit());
            PhaseSpec::of(phase(at, &one.guesses, misses))
        });
        // All phases are drawn before the first stretch; another order would give other programs.
        let phases = phases.collect();
        let programs = (0..programs).map(|at| TrainingProgram {
            name: format!("drawn {at}"),
            course: vec![drawn_stretch(&mut rng, 2 * at), drawn_stretch(&mut rng, 2 * at + 1)],
        });
        Self { phases, programs: programs.collect() }
    }

    /// A set of a study's programs, such as recorded ones, each of which repeats its course.
    #[must_use]
    pub fn of_programs(programs: &[drawn::SyntheticProgram]) -> Self {
        let mut set = Self::default();
        for program in programs {
            let first = set.phases.len();
            set.phases.extend(program.phases.iter().cloned().map(PhaseSpec::of));
            let course = program.course(index(first).0);
            set.programs.push(TrainingProgram { name: program.name.clone(), course });
        }
        set
    }

    /// All threads of the scenarios whose course no thread before has; names of scenarios and
    /// phases do not count. Sleeps and barriers are left out: a thread that sleeps shares nothing.
    #[must_use]
    pub fn of<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>) -> Self {
        let mut set = Self::default();
        for scenario in scenarios {
            let phases: Vec<PhaseIdx> = scenario.phases.iter().map(|one| set.phase(one)).collect();
            for job in &scenario.jobs {
                for thread in &job.threads {
                    set.add(job, thread, &phases);
                }
            }
        }
        set
    }

    /// Place of a phase in the set, which is added if it is new.
    fn phase(&mut self, spec: &PhaseSpec) -> PhaseIdx {
        let nameless = Phase { name: String::new(), ..spec.phase.clone() };
        let spec = PhaseSpec { phase: nameless, mix: spec.mix };
        let known = self.phases.iter().position(|known| *known == spec);
        let place = known.unwrap_or(self.phases.len());
        if known.is_none() {
            self.phases.push(spec);
        }
        index(place)
    }

    /// Adds the course of a thread as a program, if it is new; `phases` are the places of its
    /// scenario's phases in the set.
    fn add(&mut self, job: &JobSpec, thread: &ThreadSpec, phases: &[PhaseIdx]) {
        let course = thread.course.iter();
        let course: Vec<PhaseSegment> = course
            .map(|stretch| segment(phases[stretch.phase.0 as usize], stretch.instructions))
            .collect();
        if self.programs.iter().all(|known| known.course != course) {
            self.programs.push(TrainingProgram { name: job.name.clone(), course });
        }
    }

    /// A job that repeats a program's course until it is stopped.
    pub(super) fn job(&self, program: usize) -> JobSpec {
        let TrainingProgram { name, course } = &self.programs[program];
        job(name, course)
    }

    /// A job of [`idle`], whose phase comes after those of the set.
    pub(super) fn idle_job(&self) -> JobSpec {
        job("idle", &[segment(index(self.phases.len()), 1 << 40)])
    }
}

fn index(place: usize) -> PhaseIdx {
    PhaseIdx(u32::try_from(place).unwrap_or(u32::MAX))
}

fn drawn_stretch(rng: &mut SplitMix64, phase: usize) -> PhaseSegment {
    let (least, most) = STRETCH;
    segment(index(phase), least + rng.next_u64() % (most - least))
}

/// A job of one thread without an end.
fn job(name: &str, course: &[PhaseSegment]) -> JobSpec {
    let work = TotalWork::Instructions(u64::MAX / 2);
    parts::job(name, vec![parts::thread(name, course.to_vec(), work)])
}

/// A phase that does next to nothing: an instruction in a million cycles.
pub(super) fn idle() -> PhaseSpec {
    let stall_cycles = Known::new(1e6, "idle");
    PhaseSpec::of(Phase { stall_cycles, ..known_phase("idle", "idle") })
}

fn drawn_figure(guesses: &Guesses, guessed: Guessed) -> Known<f64> {
    Known::new(guesses.get(guessed), "drawn")
}

/// A phase with drawn figures, but for a core's handling of a class of instructions.
fn phase(at: usize, guesses: &Guesses, misses: f64) -> Phase {
    let dependent = guesses.get(Guessed::DependentCycles);
    let mut mix = Mix::default();
    // Drawn one by one, shares may be more than all.
    let all: f64 = Class::ALL.map(|class| guesses.get(Guessed::share(class))).iter().sum();
    for class in Class::ALL {
        mix.set(class, Share::new(guesses.get(Guessed::share(class)) / all.max(1.0)));
    }
    Phase {
        name: format!("drawn {at}"),
        slots: drawn_figure(guesses, Guessed::Slots),
        work: Known::new(PortWork::Classes(mix), "drawn"),
        dependent_cycles: drawn_figure(guesses, Guessed::DependentCycles),
        dependent_cycles_divided: Known::new(
            dependent * guesses.get(Guessed::DividedFactor),
            "drawn",
        ),
        stall_cycles: drawn_figure(guesses, Guessed::StallCycles),
        branch_misses: drawn_figure(guesses, Guessed::BranchMisses),
        misses: Known::new(typical_misses(misses), "drawn"),
        parallel_misses: drawn_figure(guesses, Guessed::ParallelMisses),
        written_back: drawn_figure(guesses, Guessed::WrittenBack),
        // Programs of a training set share nothing.
        shared_lines: Known::new(0.0, "one thread"),
        ..Phase::default()
    }
}
