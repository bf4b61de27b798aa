//! Known stacks of threads alone.

use super::groups::LiveThread;
use crate::schedule::Thread;
use crate::schedule::progress::slept;
use colocate_evidence::TaskId;
use colocate_model::CpiModel;
use colocate_model::symbiosis::{CoreCoefficients, inverse, normalised};

/// Stacks alone by thread, and the groups that ran together last.
#[derive(Clone, Debug, Default)]
pub(super) struct StackTable {
    /// Weight of a new stack, above 0 and at most 1.
    weight: f64,
    /// Names of the parts of the host's stacks.
    parts: Vec<String>,
    /// Component of each part.
    component_of: Vec<usize>,
    /// Number of components.
    components: usize,
    /// In the order of ids, so that sums over all threads are the same in every run.
    known: Vec<(TaskId, ThreadStacks)>,
    /// Groups of the last quantum, by core.
    pub together: Vec<Vec<TaskId>>,
    /// Number of quanta learned from.
    quanta: u64,
}

/// Stacks of one thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ThreadStacks {
    /// Stack alone; `None` if unknown.
    alone: Option<Vec<f64>>,
    /// Number of the last quantum alone on a core.
    sampled: Option<u64>,
    /// Whether the inverse of the last stack beside others did not converge.
    is_doubtful: bool,
}

impl StackTable {
    /// A table without known stacks. Without a component for each part no stack is ever known.
    pub fn new(model: &CpiModel, weight: f64) -> Self {
        let components = model.components.len();
        let parts = model.parts.clone();
        let component_of: Option<Vec<usize>> = parts
            .iter()
            .map(|part| model.components.iter().position(|c| c.parts.contains(part)))
            .collect();
        // Empty if a part has no component: then no stack counts as shown.
        let component_of = component_of.unwrap_or_default();
        Self { weight, parts, component_of, components, ..Self::default() }
    }

    /// Number of threads with a known stack alone.
    pub fn known(&self) -> usize {
        self.known.iter().filter(|(_, known)| known.alone.is_some()).count()
    }

    /// Quanta since the thread was alone on its core; `None` if it never was alone.
    pub(crate) fn sample_age(&self, id: TaskId) -> Option<u64> {
        self.of(id)?.sampled.map(|when| self.quanta - when)
    }

    /// Whether the inverse of the thread's last stack beside others did not converge.
    pub(crate) fn is_doubtful(&self, id: TaskId) -> bool {
        self.of(id).is_some_and(|known| known.is_doubtful)
    }

    /// Stacks of a thread; `None` if there is no such thread.
    fn of(&self, id: TaskId) -> Option<&ThreadStacks> {
        let at = self.known.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.known[at].1)
    }

    /// Stacks of a thread, unknown ones if it is new.
    fn of_mut(&mut self, id: TaskId) -> &mut ThreadStacks {
        let at = self.known.binary_search_by_key(&id, |(id, _)| *id).unwrap_or_else(|at| {
            self.known.insert(at, (id, ThreadStacks::default()));
            at
        });
        &mut self.known[at].1
    }

    /// Whether the last stack of the thread has the parts of the coefficients.
    pub fn shows(&self, thread: &Thread) -> bool {
        self.shown(thread).is_some()
    }

    /// Last stack of a thread, as shares by component. `None` without a stack or with other parts.
    /// `None` also if the thread slept through its job's last quantum: the stack is then older,
    /// beside others.
    fn shown(&self, thread: &Thread) -> Option<Vec<f64>> {
        if slept(thread) {
            return None;
        }
        let ran = thread.ran.as_ref()?;
        let host = ran.stack.as_ref()?;
        // Coefficients of another host may be for other parts.
        if self.parts != ran.parts || self.component_of.len() != host.len() {
            return None;
        }
        let mut stack = vec![0.0; self.components];
        host.iter().zip(&self.component_of).for_each(|(part, &at)| stack[at] += part);
        normalised(&stack)
    }

    /// Takes in the stacks of the last quantum. Forgets threads that have ended. `mode` has the
    /// coefficients for as many threads as shared the fullest core; `None` if they do not give
    /// stacks alone.
    pub fn learn(&mut self, mode: Option<&CoreCoefficients>, there: &[LiveThread<'_>]) {
        self.keep(there);
        self.quanta += 1;
        let together = std::mem::take(&mut self.together);
        for group in &together {
            // The stack of a thread that has ended is unknown, and with it the stacks of its
            // neighbours.
            let shown: Option<Vec<Vec<f64>>> = group
                .iter()
                .map(|id| {
                    let at = there.binary_search_by_key(id, |(thread, _)| thread.id).ok()?;
                    let (thread, just_ran) = there[at];
                    self.shown(thread).filter(|_| just_ran)
                })
                .collect();
            if let Some(shown) = shown {
                self.note_group(mode, group, &shown);
            }
        }
    }

    /// Keeps the stacks of these threads, in the order of their ids. New threads get unknown ones.
    fn keep(&mut self, there: &[LiveThread<'_>]) {
        let mut old = std::mem::take(&mut self.known).into_iter().peekable();
        let kept = there.iter().map(|(thread, _)| {
            while old.next_if(|(id, _)| *id < thread.id).is_some() {}
            let known = old.next_if(|(id, _)| *id == thread.id);
            known.unwrap_or_else(|| (thread.id, ThreadStacks::default()))
        });
        self.known = kept.collect();
    }

    /// Takes in the stacks of a core's threads in the last quantum.
    fn note_group(
        &mut self,
        mode: Option<&CoreCoefficients>,
        group: &[TaskId],
        shown: &[Vec<f64>],
    ) {
        let quanta = self.quanta;
        // A thread without siblings shows its stack alone.
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
            None => {
                for id in group {
                    self.of_mut(*id).is_doubtful = true;
                }
            }
        }
    }

    /// Number of threads on the fullest core in the last quantum.
    pub fn fullest(&self) -> usize {
        self.together.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Averages a thread's stack alone with the known stack.
    pub fn note(&mut self, id: TaskId, stack: &[f64]) -> &mut ThreadStacks {
        let weight = self.weight;
        let known = self.of_mut(id);
        match &mut known.alone {
            None => known.alone = Some(stack.to_vec()),
            Some(old) => {
                old.iter_mut().zip(stack).for_each(|(old, new)| *old += weight * (new - *old));
            }
        }
        known
    }

    /// Mean of the known stacks; equal components if none is known.
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.components];
        for stack in self.known.iter().filter_map(|(_, known)| known.alone.as_ref()) {
            mean.iter_mut().zip(stack).for_each(|(sum, each)| *sum += each);
        }
        let all = mean.iter().fold(0.0, |sum, each| sum + each);
        for each in &mut mean {
            // Normalised: the shares of a stack add up to 1.
            *each = if all > 0.0 { *each / all } else { 1.0 / self.components as f64 };
        }
        mean
    }

    /// Stacks alone of these threads; `mean` for a thread of unknown stack.
    pub fn stacks<'a>(&'a self, mean: &'a [f64], threads: &[&Thread]) -> Vec<&'a [f64]> {
        let known = threads.iter().map(|thread| self.of(thread.id));
        known.map(|known| known.and_then(|known| known.alone.as_deref()).unwrap_or(mean)).collect()
    }
}
