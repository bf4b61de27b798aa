//! Rotation of fast cores among more threads than fast cores.
//!
//! # Problem
//! Several threads could use a fast core, and there are fewer fast cores.
//! # Approach
//! The thread with the least time on fast cores so far comes first. Of equal threads the one on a
//! fast core keeps its core, so that no thread moves without a reason.
//! # Terms
//! - *Competitor*: a thread that could use a fast core in this quantum. *Had*: its time on fast
//!   cores while a competitor.
//! # Algorithm
//! A thread that becomes a competitor begins with at least the least time of the present
//! competitors: time missed outside the competition is not made up for, and earlier time still
//! counts.
//! # Properties
//! - **Equal shares**: of the same competitors none gets ahead of another one by more than a
//!   quantum. -> test `shares_within_a_quantum`
//! - **No starvation**: with `f` seats and `n` competitors each has one after `n − f + 1` quanta at
//!   the latest. -> test `shares_within_a_quantum`
//! - **Late is not early**: a newcomer does not keep the others waiting.
//!   -> test `newcomers_do_not_make_up`

use crate::by_id::ById;
use colocate_machine::Nanos;
use std::hash::Hash;

/// Time on fast cores by thread.
#[derive(Clone, Debug)]
pub struct Rotation<K> {
    known: ById<K, RotationState>,
}

impl<K> Default for Rotation<K> {
    fn default() -> Self {
        Self { known: ById::default() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RotationState {
    /// Time with a seat while a competitor.
    had: Nanos,
    /// Whether the thread was a competitor in the last quantum.
    competes: bool,
    /// Whether the thread has a seat in this quantum.
    seated: bool,
}

impl<K: Copy + Eq + Hash> Rotation<K> {
    /// Sets the competitors of this quantum. Returns their places, in the order in which seats are
    /// given. Equals stay in their order.
    pub fn order(&mut self, competitors: &[K]) -> Vec<usize> {
        let mut found: Vec<RotationState> = competitors
            .iter()
            .map(|key| self.known.get(key).copied().unwrap_or_default())
            .collect();
        let before = found.iter().filter(|known| known.competes).map(|known| known.had);
        let least = before.min().unwrap_or(Nanos::ZERO);
        // Time missed outside the competition is not made up for.
        for new in found.iter_mut().filter(|known| !known.competes) {
            *new = RotationState { had: new.had.max(least), competes: true, ..*new };
        }
        self.known.values_mut().for_each(|known| known.competes = false);
        self.known.extend(competitors.iter().copied().zip(found.iter().copied()));
        let mut order: Vec<usize> = (0..competitors.len()).collect();
        // Of equal times the seated thread first, so that it stays.
        order.sort_by_key(|&at| (found[at].had, !found[at].seated));
        order
    }

    /// Gives seats for this quantum to these threads only.
    pub fn seat(&mut self, seated: impl IntoIterator<Item = K>) {
        self.known.values_mut().for_each(|known| known.seated = false);
        for key in seated {
            self.known.entry(key).or_default().seated = true;
        }
    }

    /// Takes in the length of the quantum.
    pub fn took(&mut self, time: Nanos) {
        for known in self.known.values_mut().filter(|known| known.seated) {
            known.had += time;
        }
    }

    /// Forgets threads that have ended.
    pub fn retain(&mut self, lives: impl Fn(&K) -> bool) {
        self.known.retain(|key, _| lives(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn had(turns: &Rotation<u32>, key: u32) -> Nanos {
        turns.known.get(&key).map_or(Nanos::ZERO, |known| known.had)
    }

    /// Gives seats to the first, for a quantum each.
    fn quantum(turns: &mut Rotation<u32>, competitors: &[u32], seats: usize) -> Vec<u32> {
        let order = turns.order(competitors);
        let seated: Vec<u32> = order.iter().take(seats).map(|&at| competitors[at]).collect();
        turns.seat(seated.clone());
        turns.took(Nanos(1));
        seated
    }

    /// One seat for three: between equals the one that sits stays. 0 has had 1 when 1 comes, and 2
    /// then; all have had 1, 2 stays.
    #[test]
    fn turns_by_hand() {
        let mut turns = Rotation::default();
        let first: Vec<u32> = (0..7).map(|_| quantum(&mut turns, &[0, 1, 2], 1)[0]).collect();
        assert_eq!(first, [0, 1, 2, 2, 0, 1, 1]);
    }

    /// After ten quanta of 0 alone, 1 comes, and takes turns at once; 0 does not wait for ten.
    #[test]
    fn newcomers_do_not_make_up() {
        let mut turns = Rotation::default();
        (0..10).for_each(|_| drop(quantum(&mut turns, &[0], 1)));
        let after: Vec<u32> = (0..4).map(|_| quantum(&mut turns, &[0, 1], 1)[0]).collect();
        assert_eq!(after, [0, 1, 1, 0]);
        turns.retain(|key| *key == 1);
        assert_eq!((had(&turns, 0), had(&turns, 1)), (Nanos(0), Nanos(12)));
    }

    proptest! {
        #[test]
        fn shares_within_a_quantum(competitors in 1_u32..12, seats in 1_usize..6, quanta in 1_u64..60) {
            let names: Vec<u32> = (0..competitors).collect();
            let mut turns = Rotation::default();
            for quantum_no in 1..=quanta {
                prop_assert_eq!(quantum(&mut turns, &names, seats).len(), seats.min(names.len()));
                let had: Vec<u64> = names.iter().map(|name| had(&turns, *name).0).collect();
                let (least, most) = (had.iter().min().expect("some"), had.iter().max().expect("some"));
                prop_assert!(most - least <= 1, "{:?}", had);
                if quantum_no > u64::from(competitors).saturating_sub(seats as u64) {
                    prop_assert!(*least > 0, "{:?}", had);
                }
            }
        }
    }
}
