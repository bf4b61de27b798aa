//! A sorted list of the known facts about jobs or threads.
//!
//! Schedulers look up every job and thread each quantum, and rarely add or remove single entries. A
//! list that is rebuilt each quantum and searched by halves needs one allocation; a tree needs one
//! for every few entries.

/// A map from keys to values, as a list sorted by key. No key occurs twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Sorted<K, V> {
    /// Value of a key; `None` if the key is absent.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// Mutable value of a key; `None` if the key is absent.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Sets the value of a key, and adds the key if absent.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// Keeps the entries for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// Keeps exactly these keys, which are in ascending order. Entries of other keys are removed; a
    /// new key gets the value of `new`.
    pub(crate) fn keep_only(&mut self, keys: impl Iterator<Item = K>, new: impl Fn() -> V) {
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        self.0.reserve(old.len());
        for key in keys {
            while old.next_if(|(other, _)| *other < key).is_some() {}
            // Both lists ascend, so one pass merges them.
            let known = old.next_if(|(other, _)| *other == key);
            self.0.push(known.unwrap_or_else(|| (key, new())));
        }
    }

    /// All values, in the order of the keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// All mutable values, in the order of the keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Sets the values of several distinct keys. Faster than single inserts if many keys are new.
    pub fn set(&mut self, values: impl Iterator<Item = (K, V)>) {
        let mut new = Vec::new();
        for (key, value) in values {
            match self.place(&key) {
                Ok(place) => self.0[place].1 = value,
                Err(_) => new.push((key, value)),
            }
        }
        // One sort for all new keys; each insert would move the entries behind it.
        if !new.is_empty() {
            self.0.append(&mut new);
            self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    /// Place of a key, or the place where the key belongs.
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }
}

/// Builds the map from distinct keys in any order.
impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> Self {
        let mut all: Vec<(K, V)> = values.into_iter().collect();
        // Queues are runs of sorted threads, which this sort makes use of.
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// As a tree does it.
        #[test]
        fn is_a_map(steps in prop::collection::vec((0_u8..4, 0_u8..12, 0_u32..9), 0..40)) {
            let (mut ours, mut tree) = (Sorted::default(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0 => {
                        ours.insert(key, value);
                        tree.insert(key, value);
                    }
                    1 => {
                        ours.retain(|other, _| *other != key);
                        tree.remove(&key);
                    }
                    2 if value > 5 => {
                        ours.keep_only([key, key + 20].into_iter(), || value);
                        let of = |key| (key, tree.get(&key).copied().unwrap_or(value));
                        tree = [of(key), of(key + 20)].into_iter().collect();
                    }
                    2 => {
                        let several = [(key, value), (key + 20, value)];
                        ours.set(several.into_iter());
                        tree.extend(several);
                    }
                    _ => if let Some(found) = ours.get_mut(&key) {
                        *found += 1;
                        *tree.get_mut(&key).expect("it is there") += 1;
                    },
                }
                prop_assert_eq!(ours.get(&key), tree.get(&key));
                prop_assert!(ours.values().eq(tree.values()));
                let again: Sorted<u8, u32> = tree.iter().rev().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(&again, &ours);
            }
        }
    }
}
