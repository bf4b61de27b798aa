//! Times of the simulated kernel's NUMA balancing scans.

use crate::task::TaskNo;
use colocate_machine::Nanos;

/// Times of the next scans of tasks' memory.
#[derive(Clone, Debug)]
pub(crate) struct Scans {
    /// Time between two scans of a task; `None` without NUMA balancing.
    period: Option<Nanos>,
    /// By task.
    of: Vec<Nanos>,
    /// Time of the next scan of any task, or earlier.
    pub next: Nanos,
}

impl Scans {
    /// No scans yet.
    pub fn new(period: Option<Nanos>, tasks: usize) -> Self {
        Self { period, of: vec![Nanos(u64::MAX); tasks], next: Nanos(u64::MAX) }
    }

    /// Sets the next scan of a task: the next multiple of the period, if some of its memory is far.
    pub fn set(&mut self, task: TaskNo, is_far: bool, now: Nanos) {
        let Some(period) = self.period else { return };
        let next = Nanos((now.0 / period.0 + 1).saturating_mul(period.0));
        self.of[task] = if is_far { next } else { Nanos(u64::MAX) };
        self.next = self.next.min(self.of[task]);
    }

    /// Ends the scans of a task.
    pub fn clear(&mut self, task: TaskNo) {
        self.of[task] = Nanos(u64::MAX);
    }

    /// Whether the scan of a task is due.
    pub fn is_due(&self, task: TaskNo, now: Nanos) -> bool {
        self.of[task] <= now
    }

    /// Finds the next scan of any task, once all that were due are done.
    pub fn update(&mut self) {
        self.next = self.of.iter().copied().min().unwrap_or(Nanos(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_memory_is_scanned_once_a_period() {
        let mut scans = Scans::new(Some(Nanos(10)), 2);
        scans.set(0, false, Nanos(3));
        scans.set(1, true, Nanos(13));
        assert_eq!(scans.next, Nanos(20));
        assert!(scans.is_due(1, Nanos(20)) && !scans.is_due(0, Nanos(20)));
        scans.clear(1);
        scans.update();
        assert_eq!(scans.next, Nanos(u64::MAX));
    }
}
