//! Programs with known communication: the truth that the detector's matrices are compared with.

use super::replay::{ReplayedProgram, Step, task};
use colocate_policy::communication::matrix::Matrix;

/// Readers of the lines written by each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Pairs: neighbours in even phases, threads half of all apart in odd phases (Cruz et al.,
    /// figure 2).
    ProducerConsumer {
        /// Iterations of a phase; 0 counts as 1.
        phase: u32,
    },
    /// The thread before and the thread after, both ways.
    Stencil,
    /// The next thread; for the last thread the first.
    Ring,
    /// All other threads.
    AllToAll,
    /// Thread 0 reads from all.
    Reduction,
    /// All read from thread 0, and thread 0 from all.
    MasterWorker,
    /// No thread reads from another.
    None,
}

/// Lines written for each reader in an iteration. Chosen: lines of seven readers fit into an L1 of
/// 32 KiB. The detector sees only lines still in the reader's private cache at the next write.
const LINES: u64 = 32;
/// Private lines read and written by a thread in an iteration. Chosen: as many.
const OWN: u64 = 32;
const LINE: u64 = 64;

/// A program with a pattern.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pattern: Pattern,
    iterations: u32,
    threads: Vec<PatternThread>,
}

#[derive(Clone, Debug, Default)]
struct PatternThread {
    iteration: u32,
    /// Whether this is the reading half of an iteration; the writing half is first.
    reads: bool,
    /// Accesses in this half.
    done: u64,
    /// Threads that communicate with this thread in this half.
    others: Vec<usize>,
    has_begun: bool,
}

impl Synthetic {
    /// A program of this many threads and iterations. In each iteration every thread writes all
    /// lines for its readers, waits at a barrier, reads all lines for it, and waits again.
    #[must_use]
    pub fn new(pattern: Pattern, threads: usize, iterations: u32) -> Self {
        Self { pattern, iterations, threads: vec![PatternThread::default(); threads] }
    }

    /// Lines passed between each pair of threads.
    #[must_use]
    pub fn truth(&self) -> Matrix {
        let threads = self.threads.len();
        let pairs = (0..self.iterations).flat_map(|iteration| {
            (0..threads).flat_map(move |from| {
                let to = readers(self.pattern, threads, iteration, from);
                to.into_iter().map(move |to| (task(from), task(to), LINES as f64))
            })
        });
        Matrix::of(pairs)
    }
}

/// Readers of thread `from` in an iteration.
fn readers(pattern: Pattern, threads: usize, iteration: u32, from: usize) -> Vec<usize> {
    match pattern {
        Pattern::ProducerConsumer { phase } => {
            let half = threads / 2;
            let is_even = (iteration / phase.max(1)).is_multiple_of(2);
            match is_even {
                true if from.is_multiple_of(2) && from + 1 < threads => vec![from + 1],
                false if from < half => vec![from + half],
                _ => Vec::new(),
            }
        }
        Pattern::Stencil => {
            let neighbours = [from.checked_sub(1), Some(from + 1).filter(|to| *to < threads)];
            neighbours.into_iter().flatten().collect()
        }
        Pattern::Ring => vec![(from + 1) % threads],
        Pattern::AllToAll => (0..threads).filter(|to| *to != from).collect(),
        Pattern::Reduction => (from != 0).then_some(0).into_iter().collect(),
        Pattern::MasterWorker if from == 0 => (1..threads).collect(),
        Pattern::MasterWorker => vec![0],
        Pattern::None => Vec::new(),
    }
}

impl ReplayedProgram for Synthetic {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn next(&mut self, index: usize) -> Step {
        let count = self.threads.len();
        let pattern = self.pattern;
        let thread = &mut self.threads[index];
        if thread.iteration == self.iterations {
            return Step::End;
        }
        if !thread.has_begun {
            let iteration = thread.iteration;
            thread.others = if thread.reads {
                (0..count)
                    .filter(|&from| readers(pattern, count, iteration, from).contains(&index))
                    .collect()
            } else {
                readers(pattern, count, iteration, index)
            };
            thread.has_begun = true;
        }
        let line = thread.done % LINES;
        let own = LINES * thread.others.len() as u64;
        let other = usize::try_from(thread.done / LINES).ok();
        thread.done += 1;
        if let Some(other) = other.and_then(|at| thread.others.get(at)) {
            let (from, to) = if thread.reads { (*other, index) } else { (index, *other) };
            // One line more than are written: else the lines of all pairs fall into the same sets.
            let first = (from * count + to) as u64 * (LINES + 1);
            return Step::Access {
                address: (first + line) * LINE,
                writes: !thread.reads,
                instructions: 0,
            };
        }
        // Private lines begin far above the lines of all pairs.
        if thread.done <= own + OWN {
            let address = ((index as u64 + 1) << 40) + (thread.done - own) * LINE;
            return Step::Access { address, writes: !thread.reads, instructions: 0 };
        }
        thread.done = 0;
        thread.has_begun = false;
        thread.iteration += u32::from(thread.reads);
        thread.reads = !thread.reads;
        Step::Barrier
    }
}
