//! What is known of threads' stacks alone.

use crate::plan::TaskId;
use crate::schedule::{Queued, Thread, select};
use colocate_model::CpiModel;
use colocate_model::symbiosis::{Mode, inverse, normalised};
use std::collections::{BTreeMap, BTreeSet};

/// Stacks alone by thread, and who ran with whom last.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    weight: f64,
    /// The component that each part of the host's stacks belongs to.
    component_of: Vec<usize>,
    components: usize,
    alone: BTreeMap<TaskId, Vec<f64>>,
    /// By core.
    together: Vec<Vec<TaskId>>,
    /// How many quanta were learned from, and which was the last in which each thread was alone on its core.
    quanta: u64,
    sampled: BTreeMap<TaskId, u64>,
    /// Threads of which the last stack beside others told nothing.
    doubtful: BTreeSet<TaskId>,
}

impl Book {
    pub fn new(model: Option<&CpiModel>, weight: f64) -> Self {
        let of = |model: &CpiModel| {
            let component = |part| model.components.iter().position(|c| c.parts.contains(part));
            model.parts.iter().map(component).collect::<Option<Vec<usize>>>()
        };
        let component_of = model.and_then(of).unwrap_or_default();
        let components = model.map_or(0, |model| model.components.len());
        Self { weight, component_of, components, ..Self::default() }
    }

    /// How many threads' stacks are known.
    pub fn known(&self) -> usize {
        self.alone.len()
    }

    /// Quanta since the thread was alone on its core; `None` if it never was.
    pub fn sample_age(&self, id: TaskId) -> Option<u64> {
        self.sampled.get(&id).map(|when| self.quanta - when)
    }

    /// Whether its last stack beside others told nothing.
    pub fn is_doubtful(&self, id: TaskId) -> bool {
        self.doubtful.contains(&id)
    }

    /// Whether the thread shows stacks of the parts that the coefficients are for.
    pub fn shows(&self, thread: &Thread) -> bool {
        self.shown(thread).is_some()
    }

    /// The thread's last stack as shares by component; `None` if it showed none, or one of other parts.
    fn shown(&self, thread: &Thread) -> Option<Vec<f64>> {
        let host = thread.ran.as_ref()?.stack.as_ref()?;
        let mut stack = vec![0.0; self.components];
        if host.len() != self.component_of.len() {
            return None;
        }
        host.iter().zip(&self.component_of).for_each(|(part, &at)| stack[at] += part);
        normalised(&stack)
    }

    /// Remembers who will run with whom.
    pub fn ran_together(&mut self, groups: Vec<Vec<TaskId>>) {
        self.together = groups;
    }

    /// Takes in what the last quantum has shown, and forgets threads that are gone. `mode` are the coefficients
    /// for as many threads as shared the fullest core then; `None` if they do not tell stacks alone.
    pub fn learn(&mut self, mode: Option<&Mode>, queue: &[Queued]) {
        let all = queue.iter().flat_map(|job| job.threads.iter().map(|t| (t.id, t, job.just_ran)));
        let mut there: Vec<(TaskId, &Thread, bool)> = all.collect();
        there.sort_unstable_by_key(|(id, ..)| *id);
        let find = |id: &TaskId| there.binary_search_by_key(id, |(id, ..)| *id).ok();
        self.alone.retain(|id, _| find(id).is_some());
        self.sampled.retain(|id, _| find(id).is_some());
        self.doubtful.retain(|id| find(id).is_some());
        self.quanta += 1;
        for group in std::mem::take(&mut self.together) {
            // Of a thread that is gone nobody knows how it was, so nothing is known of its company.
            let ran = |id: &TaskId| Some(there[find(id)?]).filter(|(.., ran)| *ran);
            let shown: Option<Vec<Vec<f64>>> =
                group.iter().map(|id| self.shown(ran(id)?.1)).collect();
            if let Some(shown) = shown {
                self.note_group(mode, &group, shown);
            }
        }
    }

    /// Takes in what a core's threads have shown.
    fn note_group(&mut self, mode: Option<&Mode>, group: &[TaskId], shown: Vec<Vec<f64>>) {
        if let &[id] = group {
            self.sampled.insert(id, self.quanta);
            self.doubtful.remove(&id);
            shown.into_iter().for_each(|stack| self.note(id, stack));
            return;
        }
        let Some(mode) = mode else { return };
        let refs: Vec<&[f64]> = shown.iter().map(Vec::as_slice).collect();
        let told = inverse::told(mode, &refs);
        for (at, id) in group.iter().enumerate() {
            match &told {
                Some(stacks) => {
                    self.doubtful.remove(id);
                    self.note(*id, stacks[at].clone());
                }
                None => {
                    self.doubtful.insert(*id);
                }
            }
        }
    }

    /// How many threads shared the fullest core in the last quantum.
    pub fn fullest(&self) -> usize {
        self.together.iter().map(Vec::len).max().unwrap_or(0)
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
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.components];
        for stack in self.alone.values() {
            mean.iter_mut().zip(stack).for_each(|(sum, each)| *sum += each);
        }
        let all = mean.iter().fold(0.0, |sum, each| sum + each);
        for each in &mut mean {
            *each = if all > 0.0 { *each / all } else { 1.0 / select::float(self.components) };
        }
        mean
    }

    /// The stacks alone of these threads; the `mean` for those of which none is known.
    pub fn stacks<'a>(&'a self, mean: &'a [f64], threads: &[&Thread]) -> Vec<&'a [f64]> {
        threads
            .iter()
            .map(|thread| self.alone.get(&thread.id).map_or(mean, Vec::as_slice))
            .collect()
    }
}
