//! Threads whose memory accesses are known, on the coherent caches of a machine, under a mapping that may change at barriers.
//!
//! # Approach
//! Each thread has a clock. The one that is furthest behind goes ahead until it is [`AHEAD`] before the next. At a
//! barrier all wait for the last one; then the vectors of the PUs are taken, as a kernel does at a context switch, and the
//! mapping is asked.
//! # Properties
//! - **The published effect**: producers and consumers that share a cache take far less time, misses and invalidations; the
//!   pipeline finds them in both phases. -> test `producers_and_consumers`
//! - **Patterns are detected**. -> test `patterns_are_detected`

use super::protocol::Coherent;
use colocate_machine::PuIdx;
use colocate_policy::communication::matrix::Matrix;
use colocate_policy::communication::pipeline::Pipeline;
use colocate_policy::places::Places;
use colocate_policy::{JobIdx, TaskId};

/// By so much a thread goes ahead of the others at once, in picoseconds. Chosen: as long as a few misses.
const AHEAD: u64 = 500_000;
/// What a thread loses that is moved, beside what it finds in other caches, in picoseconds. Assumed: a wake-up on another PU, of
/// 10 µs.
const MOVE: u64 = 10_000_000;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It reads or writes at an address.
    Access {
        /// The address.
        address: u64,
        /// Whether it writes.
        writes: bool,
    },
    /// It waits for all others.
    Barrier,
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

/// Decides at barriers where threads are to be.
pub trait Mapping {
    /// Where they begin.
    fn first(&mut self) -> Vec<PuIdx>;

    /// Where they go, by what was communicated since the last barrier; `None`: they stay.
    fn at_barrier(&mut self, new: &Matrix) -> Option<Vec<PuIdx>>;
}

/// Threads stay where they began.
#[derive(Clone, Debug)]
pub struct Fixed(pub Vec<PuIdx>);

impl Mapping for Fixed {
    fn first(&mut self) -> Vec<PuIdx> {
        self.0.clone()
    }

    fn at_barrier(&mut self, _new: &Matrix) -> Option<Vec<PuIdx>> {
        None
    }
}

/// Threads are mapped by their communication.
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

    fn at_barrier(&mut self, new: &Matrix) -> Option<Vec<PuIdx>> {
        let live: Vec<TaskId> = (0..self.first.len()).map(task).collect();
        if !self.pipeline.follow(new, &live, &self.places) {
            return None;
        }
        let seats = self.pipeline.seats();
        let taken = |pu: &PuIdx| seats.values().any(|seat| seat == pu);
        let mut free = self.places.pus.iter().copied().filter(|pu| !taken(pu));
        // One that does not communicate gets what the others leave.
        let seat = |task| seats.get(&task).copied().or_else(|| free.next());
        live.into_iter().map(seat).collect()
    }
}

/// A thread of the program, as policies name it.
#[must_use]
pub fn task(thread: usize) -> TaskId {
    TaskId { job: JobIdx(0), order: u32::try_from(thread).unwrap_or(u32::MAX) }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Until the last thread ended, in picoseconds.
    pub time_ps: u64,
    /// Barriers at which threads were moved, and how many threads were in all.
    pub migrations: u64,
    /// How many threads were moved, in all.
    pub moved: u64,
    /// What each pair communicated by the detector, over the whole time.
    pub detected: Matrix,
}

/// One thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    pu: PuIdx,
    clock: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Waits,
    Over,
}

/// Runs a program to its end. Each PU has one thread at most.
pub fn replay(
    caches: &mut Coherent,
    program: &mut dyn Program,
    mapping: &mut dyn Mapping,
) -> Replayed {
    let start = |pu| Thread { pu, clock: 0, state: State::Runs };
    let mut threads: Vec<Thread> =
        mapping.first().into_iter().take(program.threads()).map(start).collect();
    let mut result = Replayed::default();
    loop {
        let running = |thread: &&Thread| thread.state == State::Runs;
        let mut clocks: Vec<(u64, usize)> = threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| running(thread))
            .map(|(index, thread)| (thread.clock, index))
            .collect();
        clocks.sort_unstable();
        if let Some((_, first)) = clocks.first() {
            let next = clocks.get(1).map_or(u64::MAX, |(clock, _)| *clock);
            advance(caches, program, *first, &mut threads[*first], next.saturating_add(AHEAD));
        } else if threads.iter().any(|thread| thread.state == State::Waits) {
            barrier(caches, &mut threads, mapping, &mut result);
        } else {
            let new = take_matrix(caches, &threads);
            result.detected = result.detected.aged(0.0, &new);
            result.time_ps = threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
            return result;
        }
    }
}

/// Lets a thread run until a time, or until it waits or ends.
fn advance(
    caches: &mut Coherent,
    program: &mut dyn Program,
    index: usize,
    thread: &mut Thread,
    until: u64,
) {
    while thread.clock < until {
        match program.next(index) {
            Step::Access { address, writes } => {
                thread.clock += caches.access(thread.pu, address, writes);
            }
            Step::Barrier => thread.state = State::Waits,
            Step::End => thread.state = State::Over,
        }
        if thread.state != State::Runs {
            return;
        }
    }
}

/// All have arrived that have not ended.
fn barrier(
    caches: &mut Coherent,
    threads: &mut [Thread],
    mapping: &mut dyn Mapping,
    result: &mut Replayed,
) {
    let new = take_matrix(caches, threads);
    result.detected = result.detected.aged(0.0, &new);
    let waiting = |thread: &&mut Thread| thread.state == State::Waits;
    let last =
        threads.iter().filter(|thread| thread.state == State::Waits).map(|it| it.clock).max();
    for thread in threads.iter_mut().filter(waiting) {
        (thread.clock, thread.state) = (last.unwrap_or(0), State::Runs);
    }
    let Some(places) = mapping.at_barrier(&new) else { return };
    let before = result.moved;
    for (thread, pu) in threads.iter_mut().zip(places) {
        if thread.pu != pu {
            thread.pu = pu;
            thread.clock += MOVE;
            result.moved += 1;
        }
    }
    result.migrations += u64::from(result.moved > before);
}

/// The vectors of all PUs, by the threads that are on them.
fn take_matrix(caches: &mut Coherent, threads: &[Thread]) -> Matrix {
    let mut amounts = Vec::new();
    for (index, thread) in threads.iter().enumerate() {
        let vector = caches.take_vector(thread.pu);
        for (other, there) in threads.iter().enumerate() {
            amounts.push((task(index), task(other), f64::from(vector[there.pu.idx()])));
        }
    }
    Matrix::of(amounts)
}
