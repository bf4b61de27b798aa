//! What is known of jobs or threads, as a sorted list.
//!
//! Schedulers look up every job and thread each quantum, and hardly ever add or take away single ones: a list that is made anew and
//! searched by halves does that with one allocation, where a tree has one for every few.

/// A map from keys to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Sorted<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|place| &self.0[place].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|place| &mut self.0[place].1)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// Keeps only some.
    pub fn retain(&mut self, keep: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// The values of keys that come in order, as many as there are; what has another key is forgotten, and a key that is
    /// new gets `new`.
    pub(crate) fn keep_only(&mut self, keys: impl Iterator<Item = K>, new: impl Fn() -> V) {
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        self.0.reserve(old.len());
        for key in keys {
            while old.next_if(|(other, _)| *other < key).is_some() {}
            let known = old.next_if(|(other, _)| *other == key);
            self.0.push(known.unwrap_or_else(|| (key, new())));
        }
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Sets the values of several keys, of which none comes twice. Faster than one after the other where many are new.
    pub fn set(&mut self, values: impl Iterator<Item = (K, V)>) {
        let mut new = Vec::new();
        for (key, value) in values {
            match self.place(&key) {
                Ok(place) => self.0[place].1 = value,
                Err(_) => new.push((key, value)),
            }
        }
        if !new.is_empty() {
            self.0.append(&mut new);
            self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(key))
    }
}

/// Of keys of which none comes twice.
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
