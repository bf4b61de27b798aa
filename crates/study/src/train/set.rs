//! Training sets: drawn, recorded, or from scenarios.

use crate::replication::drawn;
use colocate_machine::{Bytes, Nanos};
use colocate_model::phase::{Guessed, Guesses, Known, Work as PortWork, typical_misses};
use colocate_model::rng::SplitMix64;
use colocate_model::{Assumptions, Class, MissCurve, Mix, Phase, Share};
use colocate_sim::{JobSpec, Pages, PhaseIdx, PhaseSpec, Scenario, Stretch, ThreadSpec, Work};

/// A program of one thread, which does its course again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What it does; never empty.
    pub course: Vec<Stretch>,
}

/// Programs and what they can be doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingSet {
    /// The phases.
    pub phases: Vec<PhaseSpec>,
    /// The programs.
    pub programs: Vec<Program>,
}

/// Shortest and longest stretch of a drawn program, in instructions. Chosen: some intervals.
const STRETCH: (u64, u64) = (30_000_000, 300_000_000);

/// Least and greatest factor on [`typical_misses`] of a drawn phase; logarithms are drawn evenly. Chosen: wider
/// than what is plausible for an unknown program, since a training set needs programs that hardly ever
/// wait for memory beside those that always do.
const MISSES: (f64, f64) = (0.01, 3.0);

impl TrainingSet {
    /// So many programs of two phases each. Every figure of a phase is drawn from the range that is plausible
    /// for it ([`Guessed::plausible`]), so that all parts of it are covered by few programs; how much it misses,
    /// from `MISSES`.
    #[must_use]
    pub fn drawn(programs: usize, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        // The first set of assumptions is the default one.
        let drawn = Assumptions::sample(2 * programs + 1, seed);
        let mut misses = || MISSES.0 * (MISSES.1 / MISSES.0).powf(rng.unit());
        let phases = drawn.iter().skip(1).enumerate();
        let phases = phases.map(|(at, one)| PhaseSpec::of(phase(at, &one.guesses, misses())));
        let phases = phases.collect();
        let mut stretch = |phase: usize| {
            let (least, most) = STRETCH;
            let more = rng.next_u64() % (most - least);
            let phase = PhaseIdx(u32::try_from(phase).unwrap_or(u32::MAX));
            Stretch { phase, instructions: least + more, sleep: Nanos::ZERO, barrier: false }
        };
        let program = |at: usize| Program {
            name: format!("drawn {at}"),
            course: vec![stretch(2 * at), stretch(2 * at + 1)],
        };
        Self { phases, programs: (0..programs).map(program).collect() }
    }

    /// Programs of a study, such as recorded ones, each of which does its course again and again.
    #[must_use]
    pub fn of_programs(programs: &[drawn::Program]) -> Self {
        let mut set = Self::default();
        for program in programs {
            let first = set.phases.len();
            set.phases.extend(program.phases.iter().cloned().map(PhaseSpec::of));
            let place = |phase: u32| PhaseIdx(u32::try_from(first).unwrap_or(u32::MAX) + phase);
            let stretch = |&(phase, instructions): &(u32, u64)| Stretch {
                phase: place(phase),
                instructions,
                sleep: Nanos::ZERO,
                barrier: false,
            };
            let course = program.course.iter().map(stretch).collect();
            set.programs.push(Program { name: program.name.clone(), course });
        }
        set
    }

    /// Every thread of the scenarios that does something else than those before it, in whichever scenario and
    /// whatever its phases are called. Where they sleep or wait for each other they go on at once: a thread that
    /// sleeps shares nothing.
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

    /// Where a phase is in the set, which has it from now on.
    fn phase(&mut self, spec: &PhaseSpec) -> PhaseIdx {
        let nameless = Phase { name: String::new(), ..spec.phase.clone() };
        let spec = PhaseSpec { phase: nameless, mix: spec.mix };
        let known = self.phases.iter().position(|known| *known == spec);
        let place = known.unwrap_or(self.phases.len());
        if known.is_none() {
            self.phases.push(spec);
        }
        PhaseIdx(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// Adds what a thread does, if no program does it yet; `phases` are the places of its scenario's in the set.
    fn add(&mut self, job: &JobSpec, thread: &ThreadSpec, phases: &[PhaseIdx]) {
        let on = |stretch: &Stretch| Stretch {
            phase: phases[stretch.phase.0 as usize],
            sleep: Nanos::ZERO,
            barrier: false,
            ..*stretch
        };
        let course: Vec<Stretch> = thread.course.iter().map(on).collect();
        if self.programs.iter().all(|known| known.course != course) {
            self.programs.push(Program { name: job.name.clone(), course });
        }
    }

    /// A job that does a program's course until it is stopped.
    pub(super) fn job(&self, program: usize) -> JobSpec {
        let Program { name, course } = &self.programs[program];
        job(name, course)
    }

    /// A job of [`idle`], the phase after those of the set.
    pub(super) fn idle_job(&self) -> JobSpec {
        let phase = PhaseIdx(u32::try_from(self.phases.len()).unwrap_or(u32::MAX));
        let sleep = Nanos::ZERO;
        job("idle", &[Stretch { phase, instructions: 1 << 40, sleep, barrier: false }])
    }
}

fn job(name: &str, course: &[Stretch]) -> JobSpec {
    let thread = ThreadSpec {
        name: name.to_owned(),
        born: Nanos::ZERO,
        course: course.to_vec(),
        work: Work::Instructions(u64::MAX / 2),
        pages: Pages::FirstTouch,
        resident: Bytes(0),
    };
    JobSpec {
        memory: Vec::new(),
        name: name.to_owned(),
        arrives: Nanos::ZERO,
        threads: vec![thread],
        barrier: None,
    }
}

/// A thread that does next to nothing: an instruction in a million cycles.
pub(super) fn idle() -> PhaseSpec {
    let known = |value: f64| Known::new(value, "idle");
    PhaseSpec::of(Phase {
        name: "idle".to_owned(),
        slots: known(1.0),
        work: Known::new(PortWork::Kinds(Vec::new()), "idle"),
        dependent_cycles: known(0.0),
        dependent_cycles_divided: known(0.0),
        stall_cycles: known(1e6),
        branch_misses: known(0.0),
        misses: Known::new(MissCurve::new([(Bytes(64), 0.0)]).unwrap_or_default(), "idle"),
        parallel_misses: known(1.0),
        written_back: known(0.0),
        shared_lines: known(0.0),
        ..Phase::default()
    })
}

/// A phase of which everything is drawn, but for what a core makes of a class of instructions.
fn phase(at: usize, guesses: &Guesses, misses: f64) -> Phase {
    let known = |guessed: Guessed| Known::new(guesses.get(guessed), "drawn");
    let dependent = guesses.get(Guessed::DependentCycles);
    let mut mix = Mix::default();
    // Drawn one by one, shares may be more than all.
    let all: f64 = Class::ALL.map(|class| guesses.get(Guessed::share(class))).iter().sum();
    for class in Class::ALL {
        mix.set(class, Share::new(guesses.get(Guessed::share(class)) / all.max(1.0)));
    }
    Phase {
        name: format!("drawn {at}"),
        slots: known(Guessed::Slots),
        work: Known::new(PortWork::Classes(mix), "drawn"),
        dependent_cycles: known(Guessed::DependentCycles),
        dependent_cycles_divided: Known::new(
            dependent * guesses.get(Guessed::DividedFactor),
            "drawn",
        ),
        stall_cycles: known(Guessed::StallCycles),
        branch_misses: known(Guessed::BranchMisses),
        misses: Known::new(typical_misses(misses), "drawn"),
        parallel_misses: known(Guessed::ParallelMisses),
        written_back: known(Guessed::WrittenBack),
        // Programs of a training set share nothing.
        shared_lines: Known::new(0.0, "one thread"),
        ..Phase::default()
    }
}
