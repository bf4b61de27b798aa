//! Known memory accesses of threads, on coherent caches, under a mapping that may change.
//!
//! # Approach
//! Each thread has a clock. The thread that is furthest behind runs until it is [`AHEAD`] before
//! the next, or waits for another thread. Threads on the same PU take turns of that length. At a
//! barrier, and after each [`Timing::every_ps`], the vectors of the PUs are taken and the mapping
//! decides. They are also taken when another thread gets a PU, as a kernel would.
//! # Properties
//! - **The published effect**: producers and consumers that share a cache take far less time,
//!   misses and invalidations; the pipeline finds them in both phases. -> test
//!   `producers_and_consumers`
//! - **Patterns are detected**. -> test `patterns_are_detected`
//! - **In order**: a thread that waits for a signal continues once that is given, and not before.
//!   -> test `signals_by_hand`
//! - **One at a time**: threads on one PU take as long as one after the other. -> test
//!   `traced::tests::threads_share_a_pu`

use super::Coherent;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::PuIdx;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::UsableMachine;
use std::collections::BTreeMap;

/// Largest lead of a thread over the next, in picoseconds. Chosen: as long as a few misses.
const AHEAD: u64 = 500_000;
/// Time lost by a move, in picoseconds, on top of misses. Assumed: a wake-up on another PU, of 10
/// µs.
const MOVE: u64 = 10_000_000;

/// Signals for waiting threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// A wake-up at a futex, by its address.
    Futex(u64),
    /// Creation of a thread, by its kernel thread ID.
    Created(u64),
    /// End of a thread, by its kernel thread ID.
    Ended(u64),
}

/// A read or write within a line, after some other instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The address.
    pub address: u64,
    /// Instructions since the last access or step, with this access.
    pub instructions: u32,
    /// Whether this is a write.
    pub writes: bool,
}

/// Next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Accesses, at least one.
    Accesses,
    /// Waits for all other threads.
    Barrier,
    /// Gives a signal.
    Gives(Signal),
    /// Waits until a signal was given this often.
    Awaits(Signal, u64),
    /// Ends.
    End,
}

/// A program whose threads' steps are known.
pub trait ReplayedProgram {
    /// Number of threads.
    fn threads(&self) -> usize;

    /// The next step of a thread; [`Step::End`] from its end on. Adds the accesses of
    /// [`Step::Accesses`] to a list.
    fn next(&mut self, thread: usize, accesses: &mut Vec<MemoryAccess>) -> Step;
}

/// Decides on the PU of each thread.
pub trait ThreadMapping {
    /// The PU of each thread at the start.
    fn first(&mut self) -> Vec<PuIdx>;

    /// The PUs of threads from now on; `None` if all stay. `new` is the communication since the
    /// last call, `live` the threads before their end.
    fn decide(&mut self, new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>>;

    /// The communication matrix behind decisions; `None` for a mapping without a matrix.
    fn known(&self) -> Option<&Matrix> {
        None
    }
}

/// Mapping that keeps each thread on its first PU.
#[derive(Clone, Debug)]
pub struct Fixed(pub Vec<PuIdx>);

impl ThreadMapping for Fixed {
    fn first(&mut self) -> Vec<PuIdx> {
        self.0.clone()
    }

    fn decide(&mut self, _new: &Matrix, _live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        None
    }
}

/// Mapping by communication. Threads without communication stay, or go to free PUs.
#[derive(Clone, Debug)]
pub struct CommunicationMapping<'a> {
    /// The PU of each thread at the start.
    pub first: Vec<PuIdx>,
    /// PUs that threads may be mapped to.
    pub places: UsableMachine<'a>,
    /// Communication until now, and the resulting seats.
    pub pipeline: Pipeline,
}

impl ThreadMapping for CommunicationMapping<'_> {
    fn first(&mut self) -> Vec<PuIdx> {
        self.first.clone()
    }

    fn decide(&mut self, new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        // The detector counts accesses: an amount of 1 is one event.
        if !self.pipeline.follow(new, 1.0, live, &self.places) {
            return None;
        }
        let mut seats = self.pipeline.seats().clone();
        let taken: Vec<PuIdx> = seats.values().copied().collect();
        let mut free = self.places.pus.iter().copied().filter(|pu| !taken.contains(pu));
        for other in live {
            if !seats.contains_key(other) {
                seats.extend(free.next().map(|pu| (*other, pu)));
            }
        }
        Some(seats)
    }

    fn known(&self) -> Option<&Matrix> {
        Some(self.pipeline.matrix())
    }
}

/// ID of a thread of the program, as policies name it.
#[must_use]
pub fn task(thread: usize) -> TaskId {
    TaskId { job: JobIdx(0), order: u32::try_from(thread).unwrap_or(u32::MAX) }
}

/// Times of instructions and decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time of an instruction other than an access, in picoseconds.
    pub instruction_ps: u64,
    /// Time between two decisions of the mapping, in picoseconds; `None` for decisions at barriers
    /// only.
    pub every_ps: Option<u64>,
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Time until the last thread ended, in picoseconds.
    pub time_ps: u64,
    /// Decisions that moved a thread.
    pub migrations: u64,
    /// Moves of threads, in all.
    pub moved: u64,
    /// Communication of each pair by the detector, over the whole time.
    pub detected: Matrix,
    /// The matrix at each decision; empty for a mapping without a matrix.
    pub over_time: Vec<Moment>,
    /// Threads that still waited at the end, as in a truncated recording.
    pub stuck: usize,
}

/// Communication matrix of a mapping at a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Time of the decision, in picoseconds.
    pub at_ps: u64,
    /// How unevenly pairs communicate ([`Matrix::heterogeneity`]).
    pub heterogeneity: f64,
    /// Difference from the decision before ([`Matrix::dynamicity`]).
    pub dynamicity: f64,
}

#[derive(Clone, Debug)]
struct ReplayedThread {
    pu: PuIdx,
    clock: u64,
    state: ThreadState,
    /// Accesses of the last step.
    accesses: Vec<MemoryAccess>,
    /// Number of these accesses that were replayed.
    done: usize,
}

impl ReplayedThread {
    const fn new(pu: PuIdx) -> Self {
        Self { pu, clock: 0, state: ThreadState::Runs, accesses: Vec::new(), done: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Runs,
    AtBarrier,
    Awaits(Signal, u64),
    Over,
}

/// State of a replay.
struct Replay<'a, P: ?Sized> {
    caches: &'a mut Coherent,
    program: &'a mut P,
    mapping: &'a mut dyn ThreadMapping,
    timing: Timing,
    threads: Vec<ReplayedThread>,
    /// By PU: the end of its busy time, and its last thread.
    pus: Vec<(u64, Option<usize>)>,
    /// By signal: how often given, and the last time.
    given: BTreeMap<Signal, (u64, u64)>,
    /// Communication since the last decision.
    new: Vec<(TaskId, TaskId, f64)>,
    next_decision: u64,
    /// The mapping's matrix at the last decision.
    known: Matrix,
    result: Replayed,
}

/// Runs a program to its end, on caches in any state.
pub fn replay<P: ReplayedProgram + ?Sized>(
    caches: &mut Coherent,
    program: &mut P,
    mapping: &mut dyn ThreadMapping,
    timing: Timing,
) -> Replayed {
    let pus = mapping.first().into_iter().take(program.threads());
    let mut replay = Replay {
        threads: pus.map(ReplayedThread::new).collect(),
        pus: vec![(0, None); caches.pus()],
        given: BTreeMap::new(),
        new: Vec::new(),
        next_decision: timing.every_ps.unwrap_or(u64::MAX),
        known: Matrix::default(),
        result: Replayed::default(),
        caches,
        program,
        mapping,
        timing,
    };
    while replay.go() {}
    replay.end()
}

impl<P: ReplayedProgram + ?Sized> Replay<'_, P> {
    /// Lets a thread run, or all threads at a barrier. False if no thread can.
    fn go(&mut self) -> bool {
        let mut first = (u64::MAX, 0);
        let mut second = u64::MAX;
        for (index, thread) in self.threads.iter().enumerate() {
            let clock = match thread.state {
                ThreadState::Runs => thread.clock.max(self.pus[thread.pu.idx()].0),
                _ => continue,
            };
            if clock < first.0 {
                second = first.0;
                first = (clock, index);
            } else {
                second = second.min(clock);
            }
        }
        if first.0 == u64::MAX {
            let waits = self.threads.iter().any(|thread| thread.state == ThreadState::AtBarrier);
            if waits {
                self.barrier();
            }
            return waits;
        }
        if first.0 >= self.next_decision {
            self.next_decision = first.0 + self.timing.every_ps.unwrap_or(u64::MAX);
            self.decide();
            return true;
        }
        self.advance(first.1, first.0, second.saturating_add(AHEAD).min(self.next_decision));
        true
    }

    /// Lets a thread run until a time, a wait or its end.
    fn advance(&mut self, index: usize, from: u64, until: u64) {
        let pu = self.threads[index].pu;
        if self.pus[pu.idx()].1 != Some(index) {
            self.take_vector(pu);
            self.pus[pu.idx()].1 = Some(index);
        }
        let mut clock = from;
        let mut state = ThreadState::Runs;
        while clock < until && state == ThreadState::Runs {
            let thread = &mut self.threads[index];
            if thread.done < thread.accesses.len() {
                let left = &thread.accesses[thread.done..];
                let instruction_ps = self.timing.instruction_ps;
                let done = self.caches.run(pu, left, &mut clock, until, instruction_ps);
                thread.done += done;
                continue;
            }
            thread.accesses.clear();
            thread.done = 0;
            match self.program.next(index, &mut thread.accesses) {
                Step::Accesses => {}
                Step::Barrier => state = ThreadState::AtBarrier,
                Step::Gives(signal) => {
                    if self.give(signal, clock) {
                        // A thread that continues now is behind this one, and runs first.
                        break;
                    }
                }
                Step::Awaits(signal, count) => {
                    let (given, at) = self.given.get(&signal).copied().unwrap_or_default();
                    match given.cmp(&count) {
                        std::cmp::Ordering::Less => state = ThreadState::Awaits(signal, count),
                        // The thread continues at the last signal; of earlier ones no time is kept.
                        std::cmp::Ordering::Equal => clock = clock.max(at),
                        std::cmp::Ordering::Greater => {}
                    }
                }
                Step::End => state = ThreadState::Over,
            }
        }
        self.threads[index].clock = clock;
        self.threads[index].state = state;
        self.pus[pu.idx()].0 = clock;
    }

    /// Gives a signal: waiting threads continue. Whether any did.
    fn give(&mut self, signal: Signal, clock: u64) -> bool {
        let mut has_waited = false;
        let (given, at) = self.given.entry(signal).or_default();
        *given += 1;
        *at = clock.max(*at);
        for thread in &mut self.threads {
            if thread.state == ThreadState::Awaits(signal, *given) {
                thread.state = ThreadState::Runs;
                thread.clock = thread.clock.max(*at);
                has_waited = true;
            }
        }
        has_waited
    }

    /// Opens the barrier: all remaining threads have arrived.
    fn barrier(&mut self) {
        let arrived = self.threads.iter().filter(|thread| thread.state == ThreadState::AtBarrier);
        let last = arrived.map(|thread| thread.clock).max().unwrap_or(0);
        for thread in &mut self.threads {
            if thread.state == ThreadState::AtBarrier {
                thread.clock = last;
                thread.state = ThreadState::Runs;
            }
        }
        self.decide();
    }

    /// Has the mapping decide, and moves threads.
    fn decide(&mut self) {
        let new = self.take_matrix();
        let threads = self.threads.iter().enumerate();
        let live = threads.filter(|(_, thread)| thread.state != ThreadState::Over);
        let live: Vec<TaskId> = live.map(|(index, _)| task(index)).collect();
        let places = self.mapping.decide(&new, &live);
        self.note(live.len());
        let Some(places) = places else { return };
        let before = self.result.moved;
        for (index, thread) in self.threads.iter_mut().enumerate() {
            let Some(&pu) = places.get(&task(index)).filter(|pu| **pu != thread.pu) else {
                continue;
            };
            if thread.state == ThreadState::Runs {
                // The thread keeps its clock, and its turn on the old PU is over.
                thread.clock += MOVE;
            }
            thread.pu = pu;
            self.result.moved += 1;
        }
        self.result.migrations += u64::from(self.result.moved > before);
    }

    /// Adds the mapping's matrix to the result, over this many threads.
    fn note(&mut self, threads: usize) {
        let Some(known) = self.mapping.known() else { return };
        let clocks = self.threads.iter().map(|thread| thread.clock);
        self.result.over_time.push(Moment {
            at_ps: clocks.max().unwrap_or(0),
            heterogeneity: known.heterogeneity(threads),
            dynamicity: known.dynamicity(&self.known),
        });
        self.known = known.clone();
    }

    /// Communication of each pair since the last call.
    fn take_matrix(&mut self) -> Matrix {
        (0..self.pus.len()).for_each(|pu| self.take_vector(PuIdx(u32::try_from(pu).unwrap_or(0))));
        let new = Matrix::of(self.new.drain(..));
        self.result.detected = self.result.detected.aged(0.0, &new);
        new
    }

    /// Takes the vector of a PU, for its last thread. Writers are the last threads of their PUs.
    fn take_vector(&mut self, pu: PuIdx) {
        let vector = self.caches.take_vector(pu);
        let Some(reader) = self.pus[pu.idx()].1 else { return };
        for (writer, amount) in self.pus.iter().zip(vector) {
            if let (Some(writer), true) = (writer.1, amount > 0) {
                self.new.push((task(reader), task(writer), f64::from(amount)));
            }
        }
    }

    fn end(mut self) -> Replayed {
        self.take_matrix();
        let waiting = self.threads.iter().filter(|thread| thread.state != ThreadState::Over);
        self.result.stuck = waiting.count();
        self.result.time_ps = self.threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
        self.result
    }
}
