//! Estimates of rates that are not counted: predicted by the model from the threads' demand and
//! places.
//!
//! # Problem
//! Policies use the rates of the last quantum, and many machines have no counters.
//! # Approach
//! The place of each thread is known all the same. If the demand of the threads and the speed of
//! the machine are known too, the contention model predicts their speed there, beside each other.
//! # Terms
//! - *Estimated*: predicted by the model, and not counted.
//! - *Seat*: a thread on the PU where it was last seen in the quantum.
//! # Algorithm
//! 1. Each PU has the thread that used most time of the quantum there; equal times: the first.
//! 2. A thread without a demand vector has a seat with default demand: that of a typical program.
//!    It gets no estimate.
//! 3. The model predicts all seats together; its rates replace those that the host did not count.
//! # Properties
//! - **By the model**: an estimate is the model's prediction for the seats.
//!   -> test `as_the_model_predicts`
//! - **Neighbours count**: beside a stream, a stream is estimated slower. -> test `neighbours_count`
//! - **Nothing is made up**: without a demand vector or a known place there is no estimate, and what was
//!   counted stays. -> tests `nothing_is_made_up`, `what_was_counted_stays`
//! # What is left out
//! Nodes of memory pages: all count as near. Neighbours that were there earlier in the quantum.

use crate::rates::{Estimated, ThreadRates, by_level, data_levels};
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::performance::WorkKind;
use colocate_machine::{Machine, Nanos, Performance, PuIdx};
use colocate_model::phase::{Demand, Guesses, PhaseError, PortWork};
use colocate_model::stack::StackParts;
use colocate_model::symbiosis::file::SIMULATED_PARTS;
use colocate_model::{Model, Phase, PlacedTask, Solver, Stack, TaskRate};
use colocate_policy::schedule::{Rates, Traffic};
use std::collections::BTreeMap;
use thiserror::Error;

/// Estimator of uncounted rates.
pub trait Estimate {
    /// Rates of each of `all`, which ran in the same quantum, in their order; `None` without an
    /// estimate.
    fn rates(&mut self, all: &[ThreadRates]) -> Vec<Option<Rates>>;
}

/// Fills in estimates of rates that were not counted: instructions per cycle, traffic and stack
/// each separately.
pub fn fill(all: &mut [ThreadRates], estimate: &mut dyn Estimate) {
    // A prediction takes a search, so only where a count is missing.
    if !all.iter().any(|did| missing(&did.ran).any()) {
        return;
    }
    let rates = estimate.rates(all);
    for (did, rates) in all.iter_mut().zip(rates) {
        let Some(rates) = rates else { continue };
        let missing = missing(&did.ran);
        if missing.ipc {
            did.ran.ipc = rates.ipc;
        }
        if missing.traffic {
            did.ran.traffic = rates.traffic;
        }
        if missing.stack {
            did.ran.stack = rates.stack;
            did.ran.parts = rates.parts;
        }
        did.estimated = missing;
    }
}

/// Rates without a count.
fn missing(ran: &Rates) -> Estimated {
    Estimated {
        ipc: ran.ipc.is_none(),
        traffic: ran.traffic == Traffic::default(),
        stack: ran.stack.is_none(),
    }
}

/// Error: a job's demand vector does not fit this machine.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("demand vector {thread} of job {}: {error}", .job.0)]
pub struct DemandError {
    /// The job.
    pub job: JobIdx,
    /// Index of the vector among the job's vectors.
    pub thread: usize,
    /// Reason.
    pub error: PhaseError,
}

/// The contention model of a machine, with the demand of its jobs.
#[derive(Debug)]
pub struct ByModel<'a> {
    machine: &'a Machine,
    search: Solver<'a>,
    /// Demand by job, then by thread.
    jobs: Vec<Vec<Demanded>>,
    typical: Demanded,
}

/// Demand of a thread.
#[derive(Clone, Debug)]
struct Demanded {
    /// Demand by kind of core.
    by_kind: Vec<Demand>,
    /// Loads and stores an instruction; `None` if unknown.
    accesses: Option<f64>,
}

impl<'a> ByModel<'a> {
    /// `jobs` are demand vectors by job: one for all threads, or one for each; empty if unknown.
    /// `performance` is the machine's, as in `model`.
    ///
    /// # Errors
    /// [`DemandError`] for the first vector that does not fit this machine.
    pub fn new(
        model: &'a Model<'a>,
        performance: &Performance,
        jobs: &[Vec<Phase>],
    ) -> Result<Self, DemandError> {
        let guesses = &model.assumptions().guesses;
        let wanted = |(job, phases): (u32, &Vec<Phase>)| -> Result<Vec<Demanded>, DemandError> {
            phases
                .iter()
                .enumerate()
                .map(|(thread, phase)| {
                    Demanded::of(phase, performance, guesses).map_err(|error| DemandError {
                        job: JobIdx(job),
                        thread,
                        error,
                    })
                })
                .collect()
        };
        Ok(Self {
            machine: model.machine(),
            search: Solver::new(model),
            jobs: (0..).zip(jobs).map(wanted).collect::<Result<_, _>>()?,
            typical: Demanded::of(&Phase::default(), performance, guesses)
                .map_err(|error| DemandError { job: JobIdx(0), thread: 0, error })?,
        })
    }
}

/// Demand of a thread; `None` if unknown.
fn demanded(jobs: &[Vec<Demanded>], id: TaskId) -> Option<&Demanded> {
    let threads = jobs.get(id.job.0 as usize)?;
    let place = if threads.len() == 1 { 0 } else { id.order as usize };
    threads.get(place)
}

impl Demanded {
    fn of(phase: &Phase, speeds: &Performance, guesses: &Guesses) -> Result<Self, PhaseError> {
        Ok(Self {
            by_kind: speeds
                .kinds
                .iter()
                .map(|kind| Ok(phase.on(kind, guesses)?.demand))
                .collect::<Result<_, PhaseError>>()?,
            accesses: accesses(phase),
        })
    }
}

/// Loads and stores an instruction, if the work is known by kind or by class.
fn accesses(phase: &Phase) -> Option<f64> {
    match phase.work.get()? {
        PortWork::Kinds(kinds) => {
            let counts = kinds
                .iter()
                .filter(|(kind, _)| matches!(kind, WorkKind::Load | WorkKind::Store))
                .map(|(_, count)| count);
            Some(counts.fold(0.0, |sum, count| sum + count))
        }
        PortWork::Classes(mix) => Some(mix.load?.get() + mix.store?.get()),
        PortWork::Ports { .. } => None,
    }
}

impl Estimate for ByModel<'_> {
    fn rates(&mut self, all: &[ThreadRates]) -> Vec<Option<Rates>> {
        let Self { machine, search, jobs, typical } = self;
        let seated = seated(machine, all);
        let seats: Vec<PlacedTask<'_>> = seated
            .iter()
            .map(|&(pu, place): &(PuIdx, usize)| {
                let id = all[place].id;
                let kind = machine.cores[machine.core_of(pu).idx()].kind.idx();
                let demand = &demanded(jobs, id).unwrap_or(typical).by_kind[kind];
                // Without nodes of its pages, a thread's memory counts as near.
                PlacedTask { pu, demand, pages: &[], space: id.job.0 }
            })
            .collect();
        let predicted = search.predict_next(&seats);
        let mut rates = vec![None; all.len()];
        for (&(pu, place), rate) in seated.iter().zip(&predicted.tasks) {
            let known = demanded(jobs, all[place].id);
            rates[place] = known.map(|known| ran(rate, known, &data_levels(machine, pu)));
        }
        rates
    }
}

/// Each used PU with the index in `all` of the thread that used it most, in the order of PUs.
fn seated(machine: &Machine, all: &[ThreadRates]) -> Vec<(PuIdx, usize)> {
    let mut most: BTreeMap<PuIdx, usize> = BTreeMap::new();
    let time = |place: usize| all[place].time.unwrap_or(Nanos::ZERO);
    for (place, did) in all.iter().enumerate() {
        let Some(pu) = did.pu.and_then(|pu| machine.pu_by_os(pu)) else { continue };
        let seat = most.entry(pu).or_insert(place);
        if time(place) > time(*seat) {
            *seat = place;
        }
    }
    most.into_iter().collect()
}

fn ran(rate: &TaskRate, demanded: &Demanded, levels: &[u8]) -> Rates {
    // The unit of traffic is transactions per microsecond.
    let per_microsecond = rate.instructions_per_second / 1e6;
    let requests = |place: usize| {
        // The nearest cache gets all accesses, each further level the misses before it.
        let each = match place.checked_sub(1) {
            None => demanded.accesses,
            Some(nearer) => rate.misses.get(nearer).copied(),
        };
        Some(each? * per_microsecond)
    };
    let stack = Stack::from(&rate.cpi).shares();
    let parts: StackParts = stack.as_ref().map_or(&[], |_| &SIMULATED_PARTS);
    Rates { ipc: Some(rate.ipc), traffic: by_level(levels, requests), stack, parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::{Bytes, PuNr, described};
    use colocate_model::phase::Known;
    use colocate_model::{Assumptions, MissCurve};

    /// Four cores, pairs of which share a cache, and one memory controller.
    fn quad() -> (Machine, Performance) {
        let (_, text) = described::MACHINES.iter().find(|(name, _)| *name == "xeon-x3320").unwrap();
        let machine = described::from_toml(text).unwrap().machine;
        (machine, described::performance(text).unwrap().unwrap())
    }

    /// A quarter loads, one instruction in 50 misses every cache.
    fn stream() -> Phase {
        let kinds = PortWork::Kinds(vec![(WorkKind::Int, 0.75), (WorkKind::Load, 0.25)]);
        let curve = MissCurve::new([(Bytes::kib(1), 0.02), (Bytes::mib(1024), 0.02)]).unwrap();
        Phase {
            work: Known::new(kinds, "the test"),
            misses: Known::new(curve, "the test"),
            ..Phase::default()
        }
    }

    fn did(job: u32, pu: u32, time: u64) -> ThreadRates {
        ThreadRates {
            id: TaskId { job: JobIdx(job), order: 0 },
            pu: Some(PuNr(pu)),
            time: Some(Nanos(time)),
            ran: Rates::default(),
            off: 0.0,
            estimated: Estimated::default(),
        }
    }

    /// Rates of `all` where jobs 0 to 3 are streams and nothing is known of others.
    fn rates(all: &[ThreadRates]) -> Vec<Option<Rates>> {
        let (machine, performance) = quad();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let jobs = vec![vec![stream()]; 4];
        ByModel::new(&model, &performance, &jobs).unwrap().rates(all)
    }

    #[test]
    fn as_the_model_predicts() {
        let (machine, performance) = quad();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let guesses = &model.assumptions().guesses;
        let demand = stream().on(&performance.kinds[0], guesses).unwrap().demand;
        let pu = machine.pu_by_os(PuNr(2)).unwrap();
        let said = model.alone(&PlacedTask { pu, demand: &demand, pages: &[], space: 0 });

        let found = rates(&[did(0, 2, 100)]).remove(0).unwrap();
        let close = |found: Option<f64>, wanted: f64| {
            let found = found.unwrap();
            assert!((found / wanted - 1.0).abs() < 1e-3, "{found} is not {wanted}");
        };
        let per_us = said.instructions_per_second / 1e6;
        close(found.ipc, said.ipc);
        close(found.traffic.caches[0], 0.25 * per_us);
        close(found.traffic.caches[1], 0.02 * per_us);
        close(found.traffic.memory, 0.02 * per_us);
        assert_eq!(found.traffic.caches[2..], [None, None], "it has two levels");
        let stack = found.stack.unwrap();
        assert!((stack.iter().sum::<f64>() - 1.0).abs() < 1e-9 && stack.len() == 7);
        close(Some(stack[4]), said.cpi.memory / said.cpi.total());
    }

    #[test]
    fn neighbours_count() {
        let memory = |all: &[ThreadRates]| rates(all)[0].as_ref().unwrap().traffic.memory.unwrap();
        let alone = memory(&[did(0, 0, 100)]);
        let beside = memory(&[did(0, 0, 100), did(1, 1, 100), did(2, 2, 100), did(3, 3, 100)]);
        assert!(beside < 0.9 * alone, "{beside} beside three, {alone} alone");
        // A thread of which nothing is known takes something, too.
        let stranger = memory(&[did(0, 0, 100), did(7, 1, 100)]);
        assert!(stranger < alone, "{stranger} beside a stranger, {alone} alone");
    }

    #[test]
    fn nothing_is_made_up() {
        let nowhere = ThreadRates { pu: None, ..did(1, 0, 100) };
        let found =
            rates(&[did(0, 0, 10), nowhere, did(2, 99, 100), did(9, 1, 100), did(3, 0, 90)]);
        let known: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(known, [false, false, false, false, true], "the last one had most of PU 0");
        assert!(rates(&[]).is_empty());
    }

    /// Says the same of all.
    struct Same(Rates);

    impl Estimate for Same {
        fn rates(&mut self, all: &[ThreadRates]) -> Vec<Option<Rates>> {
            vec![Some(self.0.clone()); all.len()]
        }
    }

    #[test]
    fn what_was_counted_stays() {
        let mut all = [did(0, 0, 100), did(1, 1, 100)];
        let traffic = Traffic { memory: Some(3.0), ..Traffic::default() };
        all[0].ran = Rates { ipc: Some(1.5), traffic, ..Rates::default() };
        let said = Traffic { memory: Some(7.0), ..Traffic::default() };
        let stack = Some(vec![1.0]);
        let mut same = Same(Rates { ipc: Some(0.5), traffic: said, stack, ..Rates::default() });
        fill(&mut all, &mut same);
        assert_eq!(all[0].ran, Rates { ipc: Some(1.5), traffic, ..same.0.clone() });
        assert_eq!(all[1].ran, same.0);
        let nothing = Estimated::default();
        assert_eq!(all[0].estimated, Estimated { stack: true, ..nothing });
        assert_eq!(all[1].estimated, Estimated { ipc: true, traffic: true, stack: true });
        let mut counted = [ThreadRates { estimated: nothing, ..all[0].clone() }];
        fill(&mut counted, &mut same);
        assert_eq!(counted[0].estimated, nothing, "everything was counted");
    }

    #[test]
    fn a_vector_that_cannot_be_is_refused() {
        let (machine, performance) = quad();
        let model = Model::new(&machine, &performance, Assumptions::default()).unwrap();
        let work = PortWork::Ports { llvm_cpu: "znver9".into(), groups: vec![], kinds: vec![] };
        let wrong = Phase { work: Known::new(work, "the test"), ..Phase::default() };
        let jobs = [vec![], vec![stream(), wrong]];
        let refused = ByModel::new(&model, &performance, &jobs).unwrap_err().to_string();
        assert!(
            refused.starts_with("demand vector 1 of job 1: expected work for the ports"),
            "{refused}"
        );
    }
}
