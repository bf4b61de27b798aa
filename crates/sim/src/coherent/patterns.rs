//! Programs of which it is known who communicates with whom: what the detector's matrices are compared with.

use super::replay::{Program, Step, task};
use colocate_policy::communication::matrix::Matrix;

/// Who writes what others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Pairs. In even phases neighbours are, in odd ones threads that are half of all apart (Cruz et al., figure 2). A phase has
    /// so many iterations.
    ProducerConsumer {
        /// Iterations of a phase.
        phase: u32,
    },
    /// Each with the ones before and behind it, both ways.
    Stencil,
    /// Each for the next one, the last for the first.
    Ring,
    /// Each for all others.
    AllToAll,
    /// All for thread 0.
    Reduction,
    /// Thread 0 for all, and they for it.
    MasterWorker,
    /// None for any other one.
    None,
}

/// Lines that a thread writes for another one in an iteration. Chosen: those of seven others fit into an L1 of 32 KiB. The detector
/// sees only what is still in the private cache of the reader when it is written again.
const LINES: u64 = 32;
/// Lines of its own that a thread reads and writes in an iteration. Chosen: as many.
const OWN: u64 = 32;
const LINE: u64 = 64;

/// A program with a pattern.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pattern: Pattern,
    iterations: u32,
    threads: Vec<Thread>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    iteration: u32,
    /// Writes, and then reads.
    reads: bool,
    /// Accesses of this half so far.
    done: u64,
    /// With whom, in this half; itself last.
    others: Vec<usize>,
    has_begun: bool,
}

impl Synthetic {
    /// So many threads for so many iterations. In each every thread writes all that is for others, waits at a barrier, reads all
    /// that is for it, and waits again.
    #[must_use]
    pub fn new(pattern: Pattern, threads: usize, iterations: u32) -> Self {
        Self { pattern, iterations, threads: vec![Thread::default(); threads] }
    }

    /// How many lines each pair of threads has passed to each other.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // lines of a run
    pub fn truth(&self) -> Matrix {
        let threads = self.threads.len();
        let each = (0..self.iterations).flat_map(|iteration| {
            let of = move |from| {
                let to = readers(self.pattern, threads, iteration, from);
                to.into_iter().map(move |to| (task(from), task(to), LINES as f64))
            };
            (0..threads).flat_map(of)
        });
        Matrix::of(each)
    }
}

/// For whom a thread writes.
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

impl Program for Synthetic {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn next(&mut self, index: usize) -> Step {
        let count = self.threads.len();
        let (pattern, iterations) = (self.pattern, self.iterations);
        let thread = &mut self.threads[index];
        if thread.iteration == iterations {
            return Step::End;
        }
        if !thread.has_begun {
            let is_for = |from| readers(pattern, count, thread.iteration, from);
            thread.others = match thread.reads {
                true => (0..count).filter(|from| is_for(*from).contains(&index)).collect(),
                false => is_for(index),
            };
            thread.has_begun = true;
        }
        let (other, line) = (thread.done / LINES, thread.done % LINES);
        let own = LINES * thread.others.len() as u64;
        thread.done += 1;
        if let Some(other) = usize::try_from(other).ok().and_then(|at| thread.others.get(at)) {
            let (from, to) = if thread.reads { (*other, index) } else { (index, *other) };
            // Not all in the same sets.
            let first = (from * count + to) as u64 * (LINES + 1);
            return Step::Access {
                address: (first + line) * LINE,
                writes: !thread.reads,
                instructions: 0,
            };
        }
        if thread.done <= own + OWN {
            let address = ((index as u64 + 1) << 40) + (thread.done - own) * LINE;
            return Step::Access { address, writes: !thread.reads, instructions: 0 };
        }
        (thread.done, thread.has_begun) = (0, false);
        thread.iteration += u32::from(thread.reads);
        thread.reads = !thread.reads;
        Step::Barrier
    }
}
