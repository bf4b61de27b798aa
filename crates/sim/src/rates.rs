//! How fast the tasks that run now go on: predictions of the model, kept for when the same tasks run again.

use crate::platform::{Demands, Platform};
use crate::task::{Task, TaskNo};
use colocate_machine::PuIdx;
use colocate_model::{Prediction, Search, Seat};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Which task runs where, doing what: one number a PU, 0 for an idle one.
type Key = Box<[u64]>;

/// Predictions that are kept. Threads that share PUs come back to the same few situations; a run that
/// never does must not fill the memory: with 64 tasks of 250 bytes each these are 16 MB.
const KEPT: usize = 1024;

/// Predictions, and those that were made before.
#[derive(Debug)]
pub(crate) struct Rates<'a> {
    kept: HashMap<Key, Rc<Prediction>, BuildHasherDefault<Mixer>>,
    search: Search<'a>,
    /// How many predictions were made.
    pub predicted: u64,
}

/// Which task runs where.
pub(crate) type Running = [(TaskNo, PuIdx)];

impl<'a> Rates<'a> {
    pub fn new(platform: &'a Platform<'a>) -> Self {
        Self { kept: HashMap::default(), search: Search::new(platform.model()), predicted: 0 }
    }

    /// What to expect while just these tasks run, in their order.
    pub fn of(
        &mut self,
        platform: &Platform<'_>,
        demands: &Demands,
        tasks: &[Task],
        running: &Running,
    ) -> Rc<Prediction> {
        let key = key(platform.machine().pus.len(), tasks, running);
        if let Some(known) = self.kept.get(&key) {
            return Rc::clone(known);
        }
        let seat = |&(no, pu): &(TaskNo, PuIdx)| Seat {
            pu,
            demand: demands.of(tasks[no].course.phase(), platform.kind_of(pu)),
            pages: &tasks[no].pages,
            space: tasks[no].id.job.0,
        };
        let seats: Vec<_> = running.iter().map(seat).collect();
        let prediction = Rc::new(self.search.predict_next(&seats));
        self.predicted += 1;
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(key, Rc::clone(&prediction));
        prediction
    }
}

/// 24 bits for the task, 16 for its phase, 24 for the state of its pages.
fn key(pus: usize, tasks: &[Task], running: &Running) -> Key {
    let mut key = vec![0; pus].into_boxed_slice();
    for &(no, pu) in running {
        let task = &tasks[no];
        let phase = task.course.phase() as u64;
        key[pu.idx()] = (no as u64 + 1) << 40 | phase << 24 | u64::from(task.pages_version);
    }
    key
}

/// Hashes whole words; keys are ours, so they cannot be made to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The golden ratio's odd fraction, as SplitMix64 has it.
        let mixed = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}
