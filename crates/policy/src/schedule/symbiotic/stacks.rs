//! What is known of threads' stacks alone.

use crate::plan::TaskId;
use crate::schedule::{Queued, Thread};
use colocate_model::CpiModel;
use colocate_model::symbiosis::inverse;
use std::collections::BTreeMap;

/// Stacks alone by thread, and who ran with whom last.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    weight: f64,
    alone: BTreeMap<TaskId, Vec<f64>>,
    /// By core.
    together: Vec<Vec<TaskId>>,
}

impl Book {
    pub fn new(weight: f64) -> Self {
        Self { weight, ..Self::default() }
    }

    /// How many threads' stacks are known.
    pub fn known(&self) -> usize {
        self.alone.len()
    }

    /// Remembers who will run with whom.
    pub fn ran_together(&mut self, groups: Vec<Vec<TaskId>>) {
        self.together = groups;
    }

    /// Takes in what the last quantum has shown, and forgets threads that are gone.
    pub fn learn(&mut self, model: &CpiModel, queue: &[Queued]) {
        let threads = queue.iter().flat_map(|job| &job.threads);
        let there: BTreeMap<TaskId, &Thread> = threads.map(|thread| (thread.id, thread)).collect();
        self.alone.retain(|id, _| there.contains_key(id));
        let ran: BTreeMap<TaskId, Vec<f64>> = queue
            .iter()
            .filter(|job| job.just_ran)
            .flat_map(|job| &job.threads)
            .filter_map(|thread| {
                let shown = thread.ran.as_ref()?.stack.as_ref()?;
                Some((thread.id, model.stack(shown)?))
            })
            .collect();
        let together = std::mem::take(&mut self.together);
        let mode = model.mode(together.iter().map(Vec::len).max().unwrap_or(0));
        for group in together {
            // Of a thread that is gone nobody knows how it was, so nothing is known of its company.
            let shown: Option<Vec<&[f64]>> =
                group.iter().map(|id| ran.get(id).map(Vec::as_slice)).collect();
            let Some(shown) = shown else { continue };
            for (id, alone) in group.iter().zip(inverse::nearly_alone(&mode, &shown)) {
                self.note(*id, alone);
            }
        }
    }

    /// Averages a thread's stack alone with what was known.
    pub fn note(&mut self, id: TaskId, stack: Vec<f64>) {
        let weight = self.weight;
        match self.alone.get_mut(&id) {
            None => {
                self.alone.insert(id, stack);
            }
            Some(known) => {
                known.iter_mut().zip(stack).for_each(|(old, new)| *old += weight * (new - *old));
            }
        }
    }

    /// The mean of the stacks that are known; all components alike while none is.
    pub fn mean(&self, components: usize) -> Vec<f64> {
        let mut mean = vec![0.0; components];
        for stack in self.alone.values() {
            mean.iter_mut().zip(stack).for_each(|(sum, each)| *sum += each);
        }
        let all = mean.iter().fold(0.0, |sum, each| sum + each);
        for each in &mut mean {
            *each = if all > 0.0 { *each / all } else { 1.0 / super::select::float(components) };
        }
        mean
    }

    /// The stacks alone of these threads; the `mean` for others, nothing without one.
    pub fn stacks<'a>(&'a self, mean: Option<&'a [f64]>, threads: &[&Thread]) -> Vec<&'a [f64]> {
        let mean = mean.unwrap_or_default();
        threads
            .iter()
            .map(|thread| self.alone.get(&thread.id).map_or(mean, Vec::as_slice))
            .collect()
    }
}
