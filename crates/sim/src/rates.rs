//! Rates of the running tasks: predictions of the model, kept for when the same tasks run again.

use crate::accesses::Accesses;
use crate::platform::{Demands, Platform};
use crate::task::{SimulatedTask, TaskNo};
use colocate_machine::PuIdx;
use colocate_model::{PlacedTask, Prediction, Solver};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::rc::Rc;

/// Running task and phase, a word for each PU; 0 for an idle PU.
type PredictionKey = Box<[u64]>;

/// Most predictions kept. Threads on shared PUs repeat few situations; a run without repetition
/// must not fill the memory: with 64 tasks of 250 bytes each the limit is 16 MB.
const KEPT: usize = 1024;

/// The model's predictions, present and past.
#[derive(Debug)]
pub(crate) struct PredictionCache<'a> {
    /// Keys are not input of users, so the hash need not be random.
    kept: HashMap<PredictionKey, Rc<Prediction>, FixedState>,
    search: Solver<'a>,
    /// Number of predictions made; uses of kept predictions do not count.
    pub predicted: u64,
    /// The present prediction.
    now: Rc<Prediction>,
    /// By task: bytes held in each cache over its PU at the last run, nearest first.
    pub occupancy: Vec<Vec<f64>>,
    /// Whether other tasks may run than are predicted.
    pub is_stale: bool,
    /// Whether the prediction differs from that of the step before.
    fresh: bool,
}

/// Running tasks with their PUs.
pub(crate) type Running = [(TaskNo, PuIdx)];

impl<'a> PredictionCache<'a> {
    pub fn new(platform: &'a Platform<'a>, tasks: usize) -> Self {
        Self {
            kept: HashMap::default(),
            search: Solver::new(&platform.model),
            predicted: 0,
            now: Rc::default(),
            occupancy: vec![Vec::new(); tasks],
            is_stale: true,
            fresh: true,
        }
    }

    /// The present prediction.
    pub fn now(&self) -> &Prediction {
        &self.now
    }

    /// The present prediction, for a test to break.
    #[cfg(test)]
    pub fn now_mut(&mut self) -> &mut Prediction {
        Rc::make_mut(&mut self.now)
    }

    /// The present prediction, if made since the last call.
    pub fn take_new(&mut self) -> Option<&Prediction> {
        std::mem::take(&mut self.fresh).then_some(&*self.now)
    }

    /// Predicts the running tasks, in their order.
    pub fn predict(
        &mut self,
        platform: &Platform<'_>,
        demands: &Demands,
        tasks: &[SimulatedTask],
        accesses: &Accesses,
        running: &Running,
    ) -> Rc<Prediction> {
        self.now = self.of(platform, demands, tasks, accesses, running);
        for (&(task, _), rate) in running.iter().zip(&self.now.tasks) {
            self.occupancy[task].clone_from(&rate.occupancy);
        }
        self.is_stale = false;
        self.fresh = true;
        Rc::clone(&self.now)
    }

    /// Prediction for the running tasks, in their order.
    fn of(
        &mut self,
        platform: &Platform<'_>,
        demands: &Demands,
        tasks: &[SimulatedTask],
        accesses: &Accesses,
        running: &Running,
    ) -> Rc<Prediction> {
        let key = key(platform.machine.pus.len(), tasks, accesses, running);
        if let Some(known) = self.kept.get(&key) {
            return Rc::clone(known);
        }
        let seats = running.iter().map(|&(no, pu)| PlacedTask {
            pu,
            demand: demands.of(tasks[no].course.phase(), platform.kind_of(pu)),
            pages: &accesses.of[no].pages,
            // Threads of a job share an address space.
            space: tasks[no].id.job.0,
        });
        let seats: Vec<_> = seats.collect();
        let prediction = Rc::new(self.search.predict_next(&seats));
        self.predicted += 1;
        // A run that repeats its situations never gets here, so no order of use is kept.
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(key, Rc::clone(&prediction));
        prediction
    }
}

/// Key of a set of running tasks: of each word 24 bits for the task, 16 for its phase, 24 for the
/// version of its pages.
fn key(
    pus: usize,
    tasks: &[SimulatedTask],
    accesses: &Accesses,
    running: &Running,
) -> PredictionKey {
    let mut key = vec![0; pus].into_boxed_slice();
    for &(no, pu) in running {
        let phase = tasks[no].course.phase() as u64;
        key[pu.idx()] = (no as u64 + 1) << 40 | phase << 24 | u64::from(accesses.of[no].version);
    }
    key
}
