//! Threads whose memory accesses are known, on the coherent caches of a machine, under a mapping that may change.
//!
//! # Approach
//! Each thread has a clock. The one that is furthest behind goes ahead until it is [`AHEAD`] before the next, or waits for
//! another one. Threads on the same PU take turns of that length. At a barrier, and after each [`Timing::every_ps`], the vectors of
//! the PUs are taken and the mapping decides; they are also taken when another thread gets a PU, as a kernel would.
//! # Properties
//! - **The published effect**: producers and consumers that share a cache take far less time, misses and invalidations; the
//!   pipeline finds them in both phases. -> test `producers_and_consumers`
//! - **Patterns are detected**. -> test `patterns_are_detected`
//! - **In order**: a thread that waits for a signal continues once that is given, and not before. ->
//!   test `traced::tests::signals_by_hand`
//! - **One at a time**: threads on one PU take as long as one after the other. -> test
//!   `traced::tests::threads_share_a_pu`

use super::protocol::Coherent;
use colocate_evidence::{JobIdx, TaskId};
use colocate_machine::PuIdx;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::Places;
use std::collections::BTreeMap;

/// By so much a thread goes ahead of the others at once, in picoseconds. Chosen: as long as a few misses.
const AHEAD: u64 = 500_000;
/// What a thread loses that is moved, beside what it finds in other caches, in picoseconds. Assumed: a wake-up on another PU, of
/// 10 µs.
const MOVE: u64 = 10_000_000;

/// What threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Wake-ups at a futex.
    Futex(u64),
    /// That a thread is created, by its number in the kernel.
    Created(u64),
    /// That it ends.
    Ended(u64),
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It reads or writes at an address, after so many other instructions.
    Access {
        /// The address.
        address: u64,
        /// Whether it writes.
        writes: bool,
        /// Instructions since its last step, with this one.
        instructions: u32,
    },
    /// It waits for all others.
    Barrier,
    /// It gives a signal.
    Gives(Signal),
    /// It waits until a signal has been given so often.
    Awaits(Signal, u64),
    /// It ends.
    End,
}

/// Threads whose steps are known.
pub trait Program {
    /// How many there are.
    fn threads(&self) -> usize;

    /// The next step of one of them, none after its end.
    fn next(&mut self, thread: usize) -> Step;
}

/// Decides where threads are to be.
pub trait Mapping {
    /// Where they begin.
    fn first(&mut self) -> Vec<PuIdx>;

    /// Where they go, by what was communicated since this was last called, of the threads that there are; `None`: all stay.
    fn decide(&mut self, new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>>;

    /// What it goes by, if it goes by what was communicated.
    fn known(&self) -> Option<&Matrix> {
        None
    }
}

/// Threads stay where they began.
#[derive(Clone, Debug)]
pub struct Fixed(pub Vec<PuIdx>);

impl Mapping for Fixed {
    fn first(&mut self) -> Vec<PuIdx> {
        self.0.clone()
    }

    fn decide(&mut self, _new: &Matrix, _live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        None
    }
}

/// Threads are mapped by their communication. Others stay, or go to PUs that are left.
#[derive(Clone, Debug)]
pub struct Followed<'a> {
    /// Where they begin.
    pub first: Vec<PuIdx>,
    /// The machine.
    pub places: Places<'a>,
    /// What is known of them.
    pub pipeline: Pipeline,
}

impl Mapping for Followed<'_> {
    fn first(&mut self) -> Vec<PuIdx> {
        self.first.clone()
    }

    fn decide(&mut self, new: &Matrix, live: &[TaskId]) -> Option<BTreeMap<TaskId, PuIdx>> {
        // Amounts are counts.
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

/// A thread of the program, as policies name it.
#[must_use]
pub fn task(thread: usize) -> TaskId {
    TaskId { job: JobIdx(0), order: u32::try_from(thread).unwrap_or(u32::MAX) }
}

/// How long what is no access takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// An instruction, in picoseconds.
    pub instruction_ps: u64,
    /// Time between two decisions of the mapping beside those at barriers, in picoseconds; `None` for none.
    pub every_ps: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Until the last thread ended, in picoseconds.
    pub time_ps: u64,
    /// How often threads were moved.
    pub migrations: u64,
    /// How many threads were moved, in all.
    pub moved: u64,
    /// What each pair communicated by the detector, over the whole time.
    pub detected: Matrix,
    /// At each decision of a mapping that goes by what was communicated.
    pub over_time: Vec<Moment>,
    /// Threads that waited for ever: of a program that was cut off.
    pub stuck: usize,
}

/// What a mapping goes by at a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// When, in picoseconds.
    pub at_ps: u64,
    /// How unevenly pairs communicate ([`Matrix::heterogeneity`]).
    pub heterogeneity: f64,
    /// How much that differs from the decision before ([`Matrix::dynamicity`]).
    pub dynamicity: f64,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    pu: PuIdx,
    clock: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    AtBarrier,
    Awaits(Signal, u64),
    Over,
}

/// Everything while it runs.
struct Replay<'a> {
    caches: &'a mut Coherent,
    program: &'a mut dyn Program,
    mapping: &'a mut dyn Mapping,
    timing: Timing,
    threads: Vec<Thread>,
    /// By PU: until when it has a thread, and which one had it last.
    pus: Vec<(u64, Option<usize>)>,
    /// How often each was given, and when the last time.
    given: BTreeMap<Signal, (u64, u64)>,
    /// What was communicated since the last decision.
    new: Vec<(TaskId, TaskId, f64)>,
    next_decision: u64,
    /// What the mapping went by at the last decision.
    known: Matrix,
    result: Replayed,
}

/// Runs a program to its end.
pub fn replay(
    caches: &mut Coherent,
    program: &mut dyn Program,
    mapping: &mut dyn Mapping,
    timing: Timing,
) -> Replayed {
    let start = |pu| Thread { pu, clock: 0, state: State::Runs };
    let threads: Vec<Thread> =
        mapping.first().into_iter().take(program.threads()).map(start).collect();
    let pus = vec![(0, None); caches.pus()];
    let next_decision = timing.every_ps.unwrap_or(u64::MAX);
    let (given, new, result) = (BTreeMap::new(), Vec::new(), Replayed::default());
    let mut replay = Replay {
        caches,
        program,
        mapping,
        timing,
        threads,
        pus,
        given,
        new,
        next_decision,
        known: Matrix::default(),
        result,
    };
    while replay.go() {}
    replay.end()
}

impl Replay<'_> {
    /// Lets one thread go ahead, or all that wait at a barrier. False if there is nothing left to do.
    fn go(&mut self) -> bool {
        let (mut first, mut second) = ((u64::MAX, 0), u64::MAX);
        for (index, thread) in self.threads.iter().enumerate() {
            let clock = match thread.state {
                State::Runs => thread.clock.max(self.pus[thread.pu.idx()].0),
                _ => continue,
            };
            if clock < first.0 {
                (second, first) = (first.0, (clock, index));
            } else {
                second = second.min(clock);
            }
        }
        if first.0 == u64::MAX {
            let waits = self.threads.iter().any(|thread| thread.state == State::AtBarrier);
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

    /// Lets a thread run from one time to another, or until it waits or ends.
    fn advance(&mut self, index: usize, from: u64, until: u64) {
        let pu = self.threads[index].pu;
        if self.pus[pu.idx()].1 != Some(index) {
            self.take_vector(pu);
            self.pus[pu.idx()].1 = Some(index);
        }
        let mut clock = from;
        let mut state = State::Runs;
        while clock < until && state == State::Runs {
            match self.program.next(index) {
                Step::Access { address, writes, instructions } => {
                    clock += u64::from(instructions) * self.timing.instruction_ps;
                    clock += self.caches.access(pu, address, writes);
                }
                Step::Barrier => state = State::AtBarrier,
                Step::Gives(signal) => {
                    if self.give(signal, clock) {
                        // The others are not that far.
                        break;
                    }
                }
                Step::Awaits(signal, count) => {
                    let (given, at) = self.given.get(&signal).copied().unwrap_or_default();
                    match given.cmp(&count) {
                        std::cmp::Ordering::Less => state = State::Awaits(signal, count),
                        std::cmp::Ordering::Equal => clock = clock.max(at),
                        std::cmp::Ordering::Greater => {}
                    }
                }
                Step::End => state = State::Over,
            }
        }
        (self.threads[index].clock, self.threads[index].state) = (clock, state);
        self.pus[pu.idx()].0 = clock;
    }

    /// A signal is given: threads that have waited for it continue. Whether there is one.
    fn give(&mut self, signal: Signal, clock: u64) -> bool {
        let mut has_waited = false;
        let (given, at) = self.given.entry(signal).or_default();
        (*given, *at) = (*given + 1, clock.max(*at));
        for thread in &mut self.threads {
            if thread.state == State::Awaits(signal, *given) {
                (thread.state, thread.clock) = (State::Runs, thread.clock.max(*at));
                has_waited = true;
            }
        }
        has_waited
    }

    /// All have arrived that have not ended.
    fn barrier(&mut self) {
        let waits = |thread: &Thread| thread.state == State::AtBarrier;
        let last = self.threads.iter().filter(|thread| waits(thread)).map(|it| it.clock).max();
        for thread in self.threads.iter_mut().filter(|thread| waits(thread)) {
            (thread.clock, thread.state) = (last.unwrap_or(0), State::Runs);
        }
        self.decide();
    }

    /// Has the mapping decide.
    fn decide(&mut self) {
        let new = self.take_matrix();
        let is_live = |(_, thread): &(usize, &Thread)| thread.state != State::Over;
        let live: Vec<TaskId> =
            self.threads.iter().enumerate().filter(is_live).map(|(index, _)| task(index)).collect();
        let places = self.mapping.decide(&new, &live);
        self.note(live.len());
        let Some(places) = places else { return };
        let before = self.result.moved;
        for (index, thread) in self.threads.iter_mut().enumerate() {
            let Some(&pu) = places.get(&task(index)).filter(|pu| **pu != thread.pu) else {
                continue;
            };
            if thread.state == State::Runs {
                // It takes its clock along, and its turn on its PU is over.
                thread.clock += MOVE;
            }
            thread.pu = pu;
            self.result.moved += 1;
        }
        self.result.migrations += u64::from(self.result.moved > before);
    }

    /// Notes what the mapping goes by, of so many threads.
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

    /// What each pair communicated since this was last called.
    fn take_matrix(&mut self) -> Matrix {
        (0..self.pus.len()).for_each(|pu| self.take_vector(PuIdx(u32::try_from(pu).unwrap_or(0))));
        let new = Matrix::of(self.new.drain(..));
        self.result.detected = self.result.detected.aged(0.0, &new);
        new
    }

    /// Takes the vector of a PU, for the thread that had it last, by the threads that last had the others.
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
        let waits = |thread: &&Thread| thread.state != State::Over;
        self.result.stuck = self.threads.iter().filter(waits).count();
        self.result.time_ps = self.threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
        self.result
    }
}
