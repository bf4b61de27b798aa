//! What sysfs says about cores beyond hwloc: capacities, clock rates, offline PUs.

use crate::cpulist::PuSet;
use crate::ids::PuNr;
use crate::parts::{KindPart, Parts};
use crate::units::Hertz;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A mounted sysfs and procfs, or a saved copy of both.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// The files under `root`; `/` is this machine, another directory a saved copy with `proc` and
    /// `sys` inside.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The text of a file given by its absolute path, or `None` if it cannot be read: no single
    /// file is there on every kernel. One mount whose name is not UTF-8 does not hide the others.
    #[must_use]
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The value in a file, or `None` if the file or the value is not there.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    /// PUs that this kernel can ever have, those that could be plugged in included; `None` if it does
    /// not say.
    #[must_use]
    pub fn possible(&self) -> Option<PuSet> {
        let possible: Option<PuSet> = self.value("/sys/devices/system/cpu/possible");
        possible.filter(|set| !set.is_empty())
    }

    /// PUs that are plugged in but switched off.
    #[must_use]
    pub fn offline(&self) -> PuSet {
        let list = |file: &str| self.value::<PuSet>(&format!("/sys/devices/system/cpu/{file}"));
        // `offline` also lists sockets that are empty; `present` leaves them out.
        let present = list("present").unwrap_or_default();
        list("offline").unwrap_or_default().intersection(&present)
    }

    /// Compute capacity of a PU, 1024 for the fastest of the machine.
    #[must_use]
    pub fn capacity(&self, pu: PuNr) -> Option<u32> {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpu_capacity", pu.0);
        self.value(&path).filter(|&capacity| capacity > 0)
    }

    /// Highest clock rate of a PU.
    #[must_use]
    pub fn max_frequency(&self, pu: PuNr) -> Option<Hertz> {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/cpuinfo_max_freq", pu.0);
        let khz: u64 = self.value(&path)?;
        khz.checked_mul(1_000).filter(|&hertz| hertz > 0).map(Hertz)
    }

    /// Fills in what hwloc did not say.
    pub(crate) fn complete(&self, parts: &mut Parts) {
        parts.offline.extend(self.offline().iter());
        if parts.kinds.is_empty() {
            parts.kinds = self.kinds(&parts.pus);
        }
        for kind in &mut parts.kinds {
            let pus = || kind.pus.iter();
            let capacity = kind.capacity.or_else(|| pus().filter_map(|pu| self.capacity(pu)).max());
            let frequency =
                kind.max_frequency.or_else(|| pus().filter_map(|pu| self.max_frequency(pu)).max());
            (kind.capacity, kind.max_frequency) = (capacity, frequency);
        }
    }

    /// One kind for each capacity, slowest first; PUs without one make up a kind of their own.
    fn kinds(&self, pus: &[PuNr]) -> Vec<KindPart> {
        let mut kinds: BTreeMap<Option<u32>, PuSet> = BTreeMap::new();
        for &pu in pus {
            kinds.entry(self.capacity(pu)).or_default().insert(pu);
        }
        let kind = |(capacity, pus)| KindPart { pus, capacity, ..KindPart::default() };
        kinds.into_iter().map(kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_from_capacities_where_hwloc_has_none() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/cores");
        let mut parts = Parts { pus: (0..4).map(PuNr).collect(), ..Parts::default() };
        Sysfs::at(&root).complete(&mut parts);
        let machine = parts.assemble().unwrap();
        let kinds: Vec<_> = machine
            .kinds
            .iter()
            .map(|kind| (&*kind.name, kind.capacity, kind.max_frequency))
            .collect();
        assert_eq!(
            kinds,
            [
                ("efficiency", Some(446), Some(Hertz::mhz(1800))),
                ("performance", Some(1024), Some(Hertz::mhz(2400))),
            ]
        );
        assert_eq!(machine.offline, [PuNr(4)]);
    }
}
