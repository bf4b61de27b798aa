//! From communication to placement: the stages of Cruz et al. (JPDC 2014, section 4) in their
//! order.

use super::filter::{Filter, Rules};
use super::mapping::{are_symmetric, mapping};
use super::matched::matched;
use super::matrix::Matrix;
use crate::places::UsableMachine;
use colocate_evidence::TaskId;
use colocate_machine::PuIdx;
use std::collections::BTreeMap;

/// State of the pipeline between calls.
///
/// Each call ages old amounts and adds new amounts ([`Matrix::aged`]). Nothing changes unless
/// enough tasks have new partners and pairs communicate unevenly ([`Filter`]). Else each task gets
/// a PU ([`mapping`], or [`matched`] as published). If all pairs keep their distance, the tasks stay ([`are_symmetric`]).
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    matrix: Matrix,
    filter: Filter,
    seats: BTreeMap<TaskId, PuIdx>,
}

impl Pipeline {
    /// Pipeline in its initial state.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { filter: Filter::new(rules), ..Self::default() }
    }

    /// Adds the amounts since the last call and maps tasks if the filter passes. `piece` is the
    /// amount of a single observation; `live` are all living tasks, in order. True if tasks move.
    pub fn follow(
        &mut self,
        new: &Matrix,
        piece: f64,
        live: &[TaskId],
        places: &UsableMachine<'_>,
    ) -> bool {
        self.matrix = self.matrix.aged(self.filter.aging(), new);
        // Amounts of ended tasks would keep PUs occupied.
        self.matrix.retain(|task| live.binary_search(&task).is_ok());
        let tasks = self.matrix.tasks();
        self.seats.retain(|task, pu| {
            tasks.binary_search(task).is_ok() && places.pus.binary_search(pu).is_ok()
        });
        let passes = self.filter.passes(&self.matrix, tasks.len(), places.pus.len(), piece);
        let has_moved = passes && self.map(&tasks, places);
        self.filter.learn(passes, has_moved);
        has_moved
    }

    /// Adds the amounts since the last call, without aging. Once `is_time`, maps tasks by all
    /// amounts; maps again only after a PU is lost.
    pub fn map_once(&mut self, is_time: bool, new: &Matrix, places: &UsableMachine<'_>) {
        self.matrix = self.matrix.aged(0.0, new);
        if self.seats.values().any(|pu| !places.pus.contains(pu)) {
            self.seats.clear();
        }
        // Empty seats: not mapped yet, or a PU was lost just now.
        if is_time && self.seats.is_empty() {
            self.map(&self.matrix.tasks(), places);
        }
    }

    /// PUs of communicating tasks.
    #[must_use]
    pub const fn seats(&self) -> &BTreeMap<TaskId, PuIdx> {
        &self.seats
    }

    /// Aged communication matrix.
    #[must_use]
    pub const fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Maps tasks; false if all pairs keep their distance.
    fn map(&mut self, tasks: &[TaskId], places: &UsableMachine<'_>) -> bool {
        let map = if self.filter.rules() == Rules::Published { matched } else { mapping };
        let new = map(&self.matrix, tasks, places);
        let old: Option<Vec<PuIdx>> =
            tasks.iter().map(|task| self.seats.get(task).copied()).collect();
        // A task without a seat makes `old` `None`: then the mapping is new in any case.
        if new.is_empty() || old.is_some_and(|old| are_symmetric(places, &new, &old)) {
            return false;
        }
        self.seats = tasks.iter().copied().zip(new).collect();
        true
    }
}
