//! From what tasks have communicated to where they should be: the stages of Cruz et al. (JPDC 2014, section 4) in their order.

use super::filter::{Filter, Uneven};
use super::mapping::{are_symmetric, mapping};
use super::matrix::Matrix;
use crate::places::Places;
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;
use std::collections::BTreeMap;

/// What is remembered from one call to the next.
///
/// Each call: old amounts age and new ones are added ([`Matrix::aged`]). Unless enough tasks have new partners, and pairs
/// communicate unevenly, nothing is done ([`Filter`]). Each task gets a PU ([`mapping`]). If all pairs are as far from each
/// other as before, the tasks stay ([`are_symmetric`]).
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    matrix: Matrix,
    filter: Filter,
    seats: BTreeMap<TaskId, PuIdx>,
}

impl Pipeline {
    /// Of which nothing came yet, with this measure of how unevenly pairs communicate.
    #[must_use]
    pub fn new(uneven: Uneven) -> Self {
        Self { filter: Filter::new(uneven), ..Self::default() }
    }

    /// Takes in what was communicated since the last call, of which one observation is `piece`; `live` are all tasks that are still
    /// there, in order. Whether tasks
    /// are to move.
    pub fn follow(
        &mut self,
        new: &Matrix,
        piece: f64,
        live: &[TaskId],
        places: &Places<'_>,
    ) -> bool {
        self.matrix = self.matrix.aged(self.filter.aging(), new);
        self.matrix.retain(|task| live.binary_search(&task).is_ok());
        let tasks = self.matrix.tasks();
        let is_there = |pu: &PuIdx| places.pus.binary_search(pu).is_ok();
        self.seats.retain(|task, pu| tasks.binary_search(task).is_ok() && is_there(pu));
        let passes = self.filter.passes(&self.matrix, tasks.len(), piece);
        let has_moved = passes && self.map(&tasks, places);
        self.filter.learn(passes, has_moved);
        has_moved
    }

    /// Takes in what was communicated since the last call, without aging. If it is time to, and the tasks are not on PUs that are
    /// there, they are mapped by all that is known.
    pub fn map_once(&mut self, is_time: bool, new: &Matrix, places: &Places<'_>) {
        self.matrix = self.matrix.aged(0.0, new);
        if self.seats.values().any(|pu| !places.pus.contains(pu)) {
            self.seats.clear();
        }
        if is_time && self.seats.is_empty() {
            self.map(&self.matrix.tasks(), places);
        }
    }

    /// Where tasks are that communicate.
    #[must_use]
    pub const fn seats(&self) -> &BTreeMap<TaskId, PuIdx> {
        &self.seats
    }

    /// What is known of their communication.
    #[must_use]
    pub const fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Maps tasks anew; false if all pairs are as far from each other as before.
    fn map(&mut self, tasks: &[TaskId], places: &Places<'_>) -> bool {
        let new = mapping(&self.matrix, tasks, places);
        let old: Option<Vec<PuIdx>> =
            tasks.iter().map(|task| self.seats.get(task).copied()).collect();
        if new.is_empty() || old.is_some_and(|old| are_symmetric(places, &new, &old)) {
            return false;
        }
        self.seats = tasks.iter().copied().zip(new).collect();
        true
    }
}
