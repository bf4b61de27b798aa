//! What is known of threads' stacks alone.

use super::live::{self, LiveThread};
use crate::schedule::progress::slept;
use crate::schedule::sorted::Sorted;
use crate::schedule::{Thread, select};
use colocate_evidence::TaskId;
use colocate_model::CpiModel;
use colocate_model::symbiosis::{Mode, inverse, normalised};

/// Stacks alone by thread, and which ran together last.
#[derive(Clone, Debug, Default)]
pub(super) struct StackTable {
    weight: f64,
    /// The parts of the host's stacks.
    parts: Vec<String>,
    /// The component that each of them belongs to.
    component_of: Vec<usize>,
    components: usize,
    known: Sorted<TaskId, Known>,
    /// By core.
    together: Vec<Vec<TaskId>>,
    /// How many quanta were learned from.
    quanta: u64,
}

/// What is known of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Known {
    /// Its stack alone.
    alone: Option<Vec<f64>>,
    /// The last quantum in which it was alone on its core.
    sampled: Option<u64>,
    /// Its last stack beside others showed nothing.
    is_doubtful: bool,
}

impl StackTable {
    pub fn new(model: &CpiModel, weight: f64) -> Self {
        let component = |part| model.components.iter().position(|c| c.parts.contains(part));
        let component_of: Option<Vec<usize>> = model.parts.iter().map(component).collect();
        let (parts, components) = (model.parts.clone(), model.components.len());
        let component_of = component_of.unwrap_or_default();
        Self { weight, parts, component_of, components, ..Self::default() }
    }

    /// How many threads' stacks are known.
    pub fn known(&self) -> usize {
        self.known.values().filter(|known| known.alone.is_some()).count()
    }

    /// Quanta since the thread was alone on its core; `None` if it never was.
    pub(crate) fn sample_age(&self, id: TaskId) -> Option<u64> {
        self.known.get(&id)?.sampled.map(|when| self.quanta - when)
    }

    /// Whether its last stack beside others showed nothing.
    pub(crate) fn is_doubtful(&self, id: TaskId) -> bool {
        self.known.get(&id).is_some_and(|known| known.is_doubtful)
    }

    /// Whether the thread shows stacks of the parts that the coefficients are for.
    pub fn shows(&self, thread: &Thread) -> bool {
        self.shown(thread).is_some()
    }

    /// The thread's last stack as shares by component; `None` if it showed none, or one of other
    /// parts, or was not runnable in the last quantum in which its job ran: then its stack is of an
    /// older one, beside others.
    fn shown(&self, thread: &Thread) -> Option<Vec<f64>> {
        if slept(thread) {
            return None;
        }
        let ran = thread.ran.as_ref()?;
        let host = ran.stack.as_ref()?;
        if self.parts != ran.parts || self.component_of.len() != host.len() {
            return None;
        }
        let mut stack = vec![0.0; self.components];
        host.iter().zip(&self.component_of).for_each(|(part, &at)| stack[at] += part);
        normalised(&stack)
    }

    /// Remembers which threads will run together.
    pub(crate) fn ran_together(&mut self, groups: Vec<Vec<TaskId>>) {
        self.together = groups;
    }

    /// Takes in what the last quantum has shown, and forgets threads that are gone. `mode` are the
    /// coefficients for as many threads as shared the fullest core then; `None` if they do not give
    /// stacks alone.
    pub fn learn(&mut self, mode: Option<&Mode>, there: &[LiveThread<'_>]) {
        self.known.keep_only(there.iter().map(|there| there.thread.id), Known::default);
        self.quanta += 1;
        let together = std::mem::take(&mut self.together);
        for group in &together {
            // Of a thread that is gone it is unknown how it was, so nothing is known of its
            // neighbours.
            let ran = |id: &TaskId| live::find(there, *id).filter(|there| there.just_ran);
            let shown: Option<Vec<Vec<f64>>> =
                group.iter().map(|id| self.shown(ran(id)?.thread)).collect();
            if let Some(shown) = shown {
                self.note_group(mode, group, &shown);
            }
        }
    }

    /// Takes in what a core's threads have shown.
    fn note_group(&mut self, mode: Option<&Mode>, group: &[TaskId], shown: &[Vec<f64>]) {
        let quanta = self.quanta;
        if let &[id] = group {
            let known = self.note(id, &shown[0]);
            known.sampled = Some(quanta);
            known.is_doubtful = false;
            return;
        }
        let Some(mode) = mode else { return };
        let refs: Vec<&[f64]> = shown.iter().map(Vec::as_slice).collect();
        match inverse::converged(mode, &refs) {
            Some(stacks) => {
                for (id, stack) in group.iter().zip(&stacks) {
                    self.note(*id, stack).is_doubtful = false;
                }
            }
            None => group.iter().for_each(|id| self.entry(*id).is_doubtful = true),
        }
    }

    /// How many threads shared the fullest core in the last quantum.
    pub fn fullest(&self) -> usize {
        self.together.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn entry(&mut self, id: TaskId) -> &mut Known {
        if self.known.get(&id).is_none() {
            self.known.insert(id, Known::default());
        }
        self.known.get_mut(&id).expect("it is there now")
    }

    /// Averages a thread's stack alone with what was known.
    pub fn note(&mut self, id: TaskId, stack: &[f64]) -> &mut Known {
        let weight = self.weight;
        let known = self.entry(id);
        match &mut known.alone {
            None => known.alone = Some(stack.to_vec()),
            Some(old) => {
                old.iter_mut().zip(stack).for_each(|(old, new)| *old += weight * (new - *old));
            }
        }
        known
    }

    /// The mean of the stacks that are known; all components alike while none is.
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.components];
        for stack in self.known.values().filter_map(|known| known.alone.as_ref()) {
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
        let alone = |id| self.known.get(id)?.alone.as_deref();
        threads.iter().map(|thread| alone(&thread.id).unwrap_or(mean)).collect()
    }
}
