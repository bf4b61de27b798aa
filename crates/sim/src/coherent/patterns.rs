//! Programs with known communication: the truth that the detector's matrices are compared with.

use super::replay::{MemoryAccess, ReplayedProgram, Step, task};
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
    /// Whether the accesses of this half were made.
    is_at_barrier: bool,
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

/// Numbers of the pairs of threads whose lines a thread reads or writes in an iteration.
fn pairs(
    pattern: Pattern,
    threads: usize,
    iteration: u32,
    thread: usize,
    reads: bool,
) -> Vec<usize> {
    if !reads {
        let to = readers(pattern, threads, iteration, thread);
        return to.into_iter().map(|to| thread * threads + to).collect();
    }
    let reads_from = |from: &usize| readers(pattern, threads, iteration, *from).contains(&thread);
    (0..threads).filter(reads_from).map(|from| from * threads + thread).collect()
}

impl ReplayedProgram for Synthetic {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn next(&mut self, index: usize, accesses: &mut Vec<MemoryAccess>) -> Step {
        let PatternThread { iteration, reads, is_at_barrier } = self.threads[index];
        if iteration == self.iterations {
            return Step::End;
        }
        let thread = &mut self.threads[index];
        thread.is_at_barrier = !is_at_barrier;
        if is_at_barrier {
            thread.iteration += u32::from(reads);
            thread.reads = !reads;
            return Step::Barrier;
        }
        let access = |address| MemoryAccess { address, writes: !reads, instructions: 0 };
        let count = self.threads.len();
        for pair in pairs(self.pattern, count, iteration, index, reads) {
            // One line more than are written: else the lines of all pairs fall into the same sets.
            let first = pair as u64 * (LINES + 1);
            accesses.extend((first..first + LINES).map(|line| access(line * LINE)));
        }
        // Private lines begin far above the lines of all pairs.
        let first = (index as u64 + 1) << 40;
        accesses.extend((1..=OWN).map(|line| access(first + line * LINE)));
        Step::Accesses
    }
}
