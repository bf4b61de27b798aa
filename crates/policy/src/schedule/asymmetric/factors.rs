//! Speed-up factors of threads: speed on a fast core over speed on a slow core.
//!
//! # Problem
//! Some threads profit from a fast core, others wait for memory on either.
//! # Approach
//! Instructions per second on both kinds of cores are sampled, with a running average. If the job's
//! demand is known beforehand, the contention model predicts its speed alone on either kind.
//! # Terms
//! - *Rate*: instructions per cycle times the clock rate of the core's kind, relative to the
//!   fastest kind; if clock rates are unknown, times the core's speed. Cycles are counted only
//!   while the thread runs, so waiting for a PU changes nothing.
//! - *Factor*: rate on a fast core over rate on a slow core.
//! # Algorithm
//! A rate counts only if the thread was put on a PU for the quantum and was last seen there.
//! Samples on both kinds precede the model's prediction. A thread that was placed for [`BLIND`]
//! quanta without a rate is expected to show none.
//! # Properties
//! - **By hand** -> tests `sampled_by_hand`, `clocks_count_before_capacities`, `from_the_model`
//! - **No thread is tried for ever** that shows no rates.
//!   -> test `a_thread_without_rates_is_given_up`

use super::super::{QueuedJob, SelectedJob};
use super::cores::{Cores, clock};
use crate::by_id::ById;
use colocate_evidence::TaskId;
use colocate_machine::{Machine, Performance, PuIdx};
use colocate_model::system::{Model, PlacedTask};
use colocate_model::{Assumptions, Phase};

/// Weight of a new rate in the running average. Chosen: half, as for CPI stacks.
pub(crate) const WEIGHT: f64 = 0.5;

/// Quanta without a rate after which none is expected. Chosen: a thread's first rate may be lost.
pub(crate) const BLIND: u32 = 2;

/// Kind of core on which a thread's rate is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingRate {
    /// Rate on a fast core.
    Fast,
    /// Rate on a slow core.
    Slow,
}

/// Speed-up factors of all threads.
#[derive(Clone, Debug, Default)]
pub struct Factors {
    /// Input of the model: the machine's performance and the demands of each job.
    known: Option<(Performance, Vec<Phase>)>,
    /// Predicted factors by job; `None` before the first quantum.
    predicted: Option<Vec<Option<f64>>>,
    seen: ById<TaskId, Sampled>,
}

/// Rates of a thread, in instructions per cycle of the fastest kind of core.
#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    fast: Option<f64>,
    slow: Option<f64>,
    /// Placed quanta without a rate since the last rate.
    blind: u32,
    /// PU chosen for the last quantum; `None` if left to the kernel.
    placed: Option<PuIdx>,
}

impl Factors {
    /// Factors without samples. `known` is the input of the model.
    pub fn new(known: Option<(Performance, Vec<Phase>)>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Takes in the rates of the last quantum. Forgets threads that have ended.
    pub fn note(&mut self, machine: &Machine, cores: &Cores, queue: &[QueuedJob]) {
        // Once: the prediction depends on the machine and the demands only.
        if self.predicted.is_none() {
            let found = self.known.as_ref().map(|(performance, demands)| {
                predicted(machine, cores, performance, demands).unwrap_or_default()
            });
            self.predicted = Some(found.unwrap_or_default());
        }
        let clocks = relative_clocks(machine, cores);
        let threads = queue.iter().flat_map(|job| &job.threads);
        let after = threads.map(|thread| {
            let mut sampled = self.seen.get(&thread.id).copied().unwrap_or_default();
            // A thread that moved in the quantum has a rate of both cores.
            let put = sampled.placed.take().filter(|pu| Some(*pu) == thread.pu);
            if let Some(core) = put.and(cores.of(thread)) {
                let ipc = thread.ran.as_ref().and_then(|ran| ran.ipc);
                sampled.take(cores.all[core].fast, ipc.map(|ipc| ipc * clocks[core]));
            }
            (thread.id, sampled)
        });
        self.seen = after.collect();
    }

    /// Takes in the PUs chosen for the next quantum.
    pub fn put(&mut self, queue: &[QueuedJob], choices: &[SelectedJob]) {
        let threads = queue.iter().flat_map(|job| &job.threads);
        let places = choices.iter().flat_map(|choice| &choice.places);
        for (thread, (pu, _)) in threads.zip(places) {
            self.seen.entry(thread.id).or_default().placed = *pu;
        }
    }

    /// Factor of a thread; `None` while unknown.
    pub fn of(&self, id: TaskId) -> Option<f64> {
        let sampled = self.seen.get(&id).and_then(|sampled| {
            // A rate of 0 would make the factor infinite.
            let slow = sampled.slow.filter(|slow| *slow > 0.0)?;
            Some(sampled.fast? / slow)
        });
        sampled.or_else(|| *self.predicted.as_ref()?.get(id.job.0 as usize)?)
    }

    /// Kind of core on which a thread has to run for its factor to be known. `None` if the factor
    /// is known or the thread shows no rates.
    pub fn missing(&self, id: TaskId) -> Option<MissingRate> {
        let sampled = self.seen.get(&id).copied().unwrap_or_default();
        match sampled {
            _ if self.of(id).is_some() || self.is_blind(id) => None,
            Sampled { fast: Some(_), .. } => Some(MissingRate::Slow),
            Sampled { .. } => Some(MissingRate::Fast),
        }
    }

    /// Whether a thread was placed for [`BLIND`] quanta without a rate.
    pub fn is_blind(&self, id: TaskId) -> bool {
        self.seen.get(&id).is_some_and(|sampled| sampled.blind >= BLIND)
    }
}

impl Sampled {
    /// Takes in the rate on a fast or slow core; `None` if not counted.
    fn take(&mut self, fast: bool, rate: Option<f64>) {
        let Some(rate) = rate else {
            self.blind = self.blind.saturating_add(1);
            return;
        };
        self.blind = 0;
        let kept = if fast { &mut self.fast } else { &mut self.slow };
        *kept = Some(kept.map_or(rate, |before| before + WEIGHT * (rate - before)));
    }
}

/// By core: clock rate over the fastest kind's, or the speed if any clock rate is unknown.
fn relative_clocks(machine: &Machine, cores: &Cores) -> Vec<f64> {
    let rates: Option<Vec<f64>> = machine.kinds.iter().map(clock).collect();
    let rates = rates.unwrap_or_default();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let cores = cores.all.iter().map(|core| {
        let kind = machine.cores[machine.core_of(core.pus[0]).idx()].kind;
        // Clock rates that are all 0 have no ratio.
        let rate = rates.get(kind.idx()).filter(|_| most > 0.0);
        rate.map_or(core.speed, |rate| rate / most)
    });
    cores.collect()
}

/// Predicted factor of each job: its rate alone on one of the fastest cores over its rate alone on
/// one of the slowest. `None` for a job of unknown demand, and for all jobs if the model lacks
/// input.
fn predicted(
    machine: &Machine,
    cores: &Cores,
    performance: &Performance,
    demands: &[Phase],
) -> Option<Vec<Option<f64>>> {
    let assumptions = Assumptions::default();
    let model = Model::new(machine, performance, assumptions).ok()?;
    let fast = cores.all.iter().max_by(|a, b| a.speed.total_cmp(&b.speed))?.pus[0];
    let slow = cores.all.iter().min_by(|a, b| a.speed.total_cmp(&b.speed))?.pus[0];
    let factors = demands.iter().map(|phase| {
        // The default is a phase of unknown demand.
        if *phase == Phase::default() {
            return None;
        }
        let mut rates = [0.0; 2];
        for (rate, pu) in rates.iter_mut().zip([fast, slow]) {
            let kind = machine.cores[machine.core_of(pu).idx()].kind;
            let on = phase.on(performance.kinds.get(kind.idx())?, &assumptions.guesses).ok()?;
            let seat = PlacedTask { pu, demand: &on.demand, pages: &[], space: 0 };
            *rate = model.alone(&seat).instructions_per_second;
        }
        // A rate of 0 gives no factor.
        rates.iter().all(|rate| *rate > 0.0).then(|| rates[0] / rates[1])
    });
    Some(factors.collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::{Allocated, Selected};
    use super::super::testing::{World, halves, parallel};
    use super::*;
    use colocate_evidence::JobIdx;
    use colocate_machine::performance::WorkKind;
    use colocate_machine::{Bytes, Hertz, described};
    use colocate_model::MissCurve;
    use colocate_model::phase::{Known, PortWork};

    const ID: TaskId = TaskId { job: JobIdx(0), order: 0 };

    /// A fast and a slow core.
    struct Two {
        world: World,
        factors: Factors,
    }

    impl Two {
        fn new() -> Self {
            let world = World::new(halves("core:2", &[0]), &[1]);
            Self { world, factors: Factors::default() }
        }

        /// After a quantum for which the thread was put on `put`, at so many instructions per
        /// cycle, and was last seen on `seen`.
        fn ran(&mut self, put: u32, seen: u32, ipc: Option<f64>) {
            let mut queue = self.world.queue(&[parallel(1)]);
            let places = vec![(Some(PuIdx(put)), Allocated::Next)];
            let choice = SelectedJob { job: JobIdx(0), selected: Selected::Room, places };
            self.factors.put(&queue, &[choice]);
            queue[0].threads[0].pu = Some(PuIdx(seen));
            queue[0].threads[0].ran.as_mut().expect("it ran").ipc = ipc;
            let cores = Cores::new(&self.world.machine, &self.world.pus);
            self.factors.note(&self.world.machine, &cores, &queue);
        }
    }

    /// 0.8 per cycle on the fast core, 1.0 on the slow one of half the clock: 1.6. Then 0.4 on the
    /// fast core, of which half counts: 0.6 over 0.5. A quantum that ended elsewhere says nothing.
    #[test]
    fn sampled_by_hand() {
        let mut two = Two::new();
        assert_eq!((two.factors.of(ID), two.factors.missing(ID)), (None, Some(MissingRate::Fast)));
        two.ran(0, 0, Some(0.8));
        assert_eq!((two.factors.of(ID), two.factors.missing(ID)), (None, Some(MissingRate::Slow)));
        two.ran(1, 0, Some(9.0));
        assert_eq!(two.factors.missing(ID), Some(MissingRate::Slow));
        two.ran(1, 1, Some(1.0));
        assert!((two.factors.of(ID).expect("both") - 1.6).abs() < 1e-12);
        two.ran(0, 0, Some(0.4));
        assert!((two.factors.of(ID).expect("both") - 1.2).abs() < 1e-12);
        assert_eq!(two.factors.missing(ID), None);
    }

    /// With a clock of 3 and of 1 GHz the same rates per cycle are 3 times faster, whatever the
    /// capacities say.
    #[test]
    fn clocks_count_before_capacities() {
        let mut two = Two::new();
        for (kind, mhz) in two.world.machine.kinds.iter_mut().zip([1000, 3000]) {
            kind.max_frequency = Some(Hertz::mhz(mhz));
        }
        two.ran(0, 0, Some(1.0));
        two.ran(1, 1, Some(1.0));
        assert!((two.factors.of(ID).expect("both") - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_thread_without_rates_is_given_up() {
        let mut two = Two::new();
        two.ran(0, 0, None);
        assert_eq!(two.factors.missing(ID), Some(MissingRate::Fast));
        two.ran(0, 0, None);
        assert_eq!((two.factors.is_blind(ID), two.factors.missing(ID)), (true, None));
        two.ran(0, 0, Some(1.0));
        assert_eq!(two.factors.missing(ID), Some(MissingRate::Slow));
    }

    /// 2.3 and 1.15 GHz: additions that wait for each other are twice as fast. A load from memory
    /// every ten instructions, one after the other, takes as long on both, which is nearly all of
    /// it. Of the third job nothing is known.
    #[test]
    fn from_the_model() {
        let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "amp-4x12").unwrap();
        let machine = described::from_toml(text).unwrap().machine;
        let performance = described::performance(text).unwrap().unwrap();
        let known = |value: f64| Known::new(value, "made up for a test");
        let computes = Phase {
            slots: known(1.0),
            work: Known::new(PortWork::Kinds(vec![(WorkKind::Int, 1.0)]), "made up for a test"),
            dependent_cycles: known(1.0),
            misses: Known::new(MissCurve::new([(Bytes(64), 0.0)]).unwrap(), "made up for a test"),
            branch_misses: known(0.0),
            ..Phase::default()
        };
        let waits = Phase {
            misses: Known::new(MissCurve::new([(Bytes(64), 0.1)]).unwrap(), "made up for a test"),
            parallel_misses: known(1.0),
            ..computes.clone()
        };
        let demands = vec![computes, waits, Phase::default()];
        let pus: Vec<PuIdx> = machine.all_pus().collect();
        let mut factors = Factors::new(Some((performance, demands)));
        factors.note(&machine, &Cores::new(&machine, &pus), &[]);
        let of = |job| factors.of(TaskId { job: JobIdx(job), order: 0 });
        assert!((of(0).unwrap() - 2.0).abs() < 1e-6, "{:?}", of(0));
        assert!(of(1).is_some_and(|factor| (1.0..1.2).contains(&factor)), "{:?}", of(1));
        assert_eq!(of(2), None);
    }
}
