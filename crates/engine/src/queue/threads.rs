//! State of each thread of a job.

use colocate_evidence::TaskId;
use std::cell::Cell;

/// A map by thread. All threads are usually looked up in the order of their IDs every quantum: the
/// thread after the last look-up is found at once.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadMap<T> {
    /// Entries in the order of the IDs.
    all: Vec<(TaskId, T)>,
    /// Index after the last entry that was found.
    next: Cell<usize>,
}

impl<T: Default> ThreadMap<T> {
    /// The value of a thread, if any.
    pub fn get(&self, id: TaskId) -> Option<&T> {
        self.place(id).ok().map(|place| &self.all[place].1)
    }

    /// The value of a thread, created with the default if missing.
    pub fn of(&mut self, id: TaskId) -> &mut T {
        let place = self.place(id).unwrap_or_else(|place| {
            self.all.insert(place, (id, T::default()));
            self.next.set(place + 1);
            place
        });
        &mut self.all[place].1
    }

    /// Values of all threads.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, value)| value)
    }

    /// Keeps only entries for which `keeps` returns true; called in the order of the IDs.
    pub fn retain(&mut self, mut keeps: impl FnMut(TaskId) -> bool) {
        self.all.retain(|(id, _)| keeps(*id));
        // The removal has shifted the indexes.
        self.next.set(0);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Index of a thread, or the index at which to insert it.
    fn place(&self, id: TaskId) -> Result<usize, usize> {
        let next = self.next.get();
        let found = match self.all.get(next) {
            Some((there, _)) if *there == id => Ok(next),
            // A new thread has the highest ID of all.
            None if self.all.last().is_none_or(|(last, _)| *last < id) => Err(self.all.len()),
            _ => self.all.binary_search_by_key(&id, |(id, _)| *id),
        };
        if let Ok(place) = found {
            self.next.set(place + 1);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn id(order: u32) -> TaskId {
        TaskId { job: JobIdx(0), order }
    }

    /// One operation.
    #[derive(Clone, Debug)]
    enum Operation {
        Of(u32, u8),
        Get(u32),
        All,
        KeepEven,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0_u32..30, any::<u8>()).prop_map(|(order, value)| Operation::Of(order, value)),
            2 => (0_u32..30).prop_map(Operation::Get),
            1 => Just(Operation::All),
            1 => Just(Operation::KeepEven),
        ]
    }

    proptest! {
        /// In any order it says what a map says.
        #[test]
        fn as_a_map(operations in prop::collection::vec(operation(), 0..80)) {
            let (mut threads, mut map) = (ThreadMap::<u8>::default(), BTreeMap::new());
            for operation in operations {
                match operation {
                    Operation::Of(order, value) => {
                        *threads.of(id(order)) = value;
                        map.insert(id(order), value);
                    }
                    Operation::Get(order) => prop_assert_eq!(threads.get(id(order)), map.get(&id(order))),
                    Operation::All => {
                        for order in 0..30 {
                            prop_assert_eq!(threads.get(id(order)), map.get(&id(order)));
                        }
                    }
                    Operation::KeepEven => {
                        threads.retain(|id| id.order % 2 == 0);
                        map.retain(|id, _| id.order % 2 == 0);
                    }
                }
            }
            let left: Vec<(TaskId, u8)> = map.into_iter().collect();
            prop_assert_eq!(threads.all, left);
        }
    }
}
