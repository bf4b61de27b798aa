//! Facts on cores from sysfs beyond hwloc: capacities, clock rates, offline PUs.

use crate::calibrated::Reported;
use crate::cpulist::PuSet;
use crate::ids::PuNr;
use crate::parts::{KindPart, MachineParts};
use crate::units::{Bytes, Hertz};
use colocate_files::kernel;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Hybrid PMUs of Intel's processors, one for each kind of core, slowest first, with the names of
/// the kinds here. Each PMU lists its PUs in /sys/devices (Linux: arch/x86/events/intel/core.c).
const HYBRID_PMUS: [(&str, &str); 3] =
    [("cpu_lowpower", "low-power"), ("cpu_atom", "efficiency"), ("cpu_core", "performance")];

/// A mounted sysfs and procfs, or a saved copy of both.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// Files under `root`: `/` for this machine, or a directory with saved copies of `proc` and
    /// `sys`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// Text of a file with an absolute path; `None` if unreadable, as no file exists on every
    /// kernel. Invalid UTF-8 is replaced, so that a mount with such a name does not hide the
    /// others.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let bytes = kernel::read(&self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Value in a file; `None` if the file is missing or does not parse.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    /// PUs that the kernel can ever have, including hot-pluggable ones; `None` if not reported.
    #[must_use]
    pub fn possible(&self) -> Option<PuSet> {
        let possible: Option<PuSet> = self.value("/sys/devices/system/cpu/possible");
        possible.filter(|set| !set.is_empty())
    }

    /// PUs that are present but offline.
    #[must_use]
    pub fn offline(&self) -> PuSet {
        let present: PuSet = self.value("/sys/devices/system/cpu/present").unwrap_or_default();
        let offline: PuSet = self.value("/sys/devices/system/cpu/offline").unwrap_or_default();
        // `offline` also lists empty sockets; `present` does not.
        offline.intersection(&present)
    }

    /// Figure above 0 in a file of a PU.
    fn figure<T: FromStr + PartialOrd + From<u8>>(&self, pu: PuNr, file: &str) -> Option<T> {
        let path = format!("/sys/devices/system/cpu/{pu}/{file}");
        self.value(&path).filter(|figure| *figure > T::from(0))
    }

    /// Compute capacity of a PU; the fastest PU of the machine has 1024. `None` if unknown.
    #[must_use]
    pub fn capacity(&self, pu: PuNr) -> Option<u32> {
        self.figure(pu, "cpu_capacity")
    }

    /// Highest clock rate of a PU; `None` if unknown.
    #[must_use]
    pub fn max_frequency(&self, pu: PuNr) -> Option<Hertz> {
        let khz: u64 = self.figure(pu, "cpufreq/cpuinfo_max_freq")?;
        // The kernel's unit is kHz.
        khz.checked_mul(1_000).map(Hertz)
    }

    /// Bytes transferred per cache miss: the line size of the first PU's first cache. `None` if
    /// unknown.
    #[must_use]
    pub fn line(&self) -> Option<Bytes> {
        let bytes: u64 =
            self.value("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size")?;
        Some(Bytes(bytes)).filter(|line| line.0.is_power_of_two())
    }

    /// Highest performance of a PU by the firmware (ACPI CPPC), in a scale of its own; `None` if
    /// unknown. Cores of one kind may differ, as the firmware favours some.
    #[must_use]
    pub fn cppc_highest(&self, pu: PuNr) -> Option<u32> {
        self.figure(pu, "acpi_cppc/highest_perf")
    }

    /// Hybrid PMUs of this machine: PMU, name of the kind of core, and PUs; slowest kind first.
    /// Empty on homogeneous processors, and in most virtual machines.
    pub(crate) fn hybrid_pmus(&self) -> Vec<(&'static str, &'static str, PuSet)> {
        let found = HYBRID_PMUS.iter().filter_map(|&(pmu, kind)| {
            Some((pmu, kind, self.value::<PuSet>(&format!("/sys/devices/{pmu}/cpus"))?))
        });
        found.filter(|(_, _, pus)| !pus.is_empty()).collect()
    }

    /// Speeds of `pus` as reported by firmware and kernel, in the order of `pus`.
    #[must_use]
    pub fn reported(&self, pus: &[PuNr]) -> Vec<Reported> {
        let hybrid = self.hybrid_pmus();
        let reported = pus.iter().map(|&pu| {
            let list = hybrid.iter().find(|(_, _, pus)| pus.contains(pu));
            Reported {
                cpu_capacity: self.capacity(pu),
                cppc_highest: self.cppc_highest(pu),
                max_frequency: self.max_frequency(pu),
                hybrid_pmu: list.map(|(pmu, _, _)| (*pmu).to_owned()),
            }
        });
        reported.collect()
    }

    /// Adds the facts that hwloc did not report.
    pub(crate) fn complete(&self, parts: &mut MachineParts) {
        parts.offline.extend(self.offline().iter());
        self.correct_nodes(&mut parts.nodes);
        if parts.kinds.is_empty() {
            parts.kinds = self.kinds(&parts.pus);
        }
        divide(&mut parts.kinds, &self.hybrid_pmus());
        for kind in &mut parts.kinds {
            if kind.capacity.is_none() {
                kind.capacity = kind.pus.iter().filter_map(|pu| self.capacity(pu)).max();
            }
            if kind.max_frequency.is_none() {
                // The firmware favours some cores of a kind: the fastest stands for the kind.
                kind.max_frequency = kind.pus.iter().filter_map(|pu| self.max_frequency(pu)).max();
            }
        }
    }

    /// One kind for each capacity, slowest first; PUs without a capacity form a kind.
    fn kinds(&self, pus: &[PuNr]) -> Vec<KindPart> {
        let mut kinds: BTreeMap<Option<u32>, PuSet> = BTreeMap::new();
        for &pu in pus {
            kinds.entry(self.capacity(pu)).or_default().insert(pu);
        }
        let kinds = kinds.into_iter();
        kinds.map(|(capacity, pus)| KindPart { pus, capacity, ..KindPart::default() }).collect()
    }
}

/// Divides kinds with cores of several hybrid PMUs, and names kinds without a name.
///
/// hwloc detects Intel's core types by an instruction on each PU. The instruction is not used here,
/// as hwloc would have to migrate our threads. Clock rates and capacities, which hwloc uses
/// otherwise, are equal on some hybrid machines.
fn divide(kinds: &mut Vec<KindPart>, hybrid: &[(&str, &str, PuSet)]) {
    // A single list distinguishes no kinds.
    if hybrid.len() < 2 {
        return;
    }
    let pieces = std::mem::take(kinds).into_iter().flat_map(|kind| {
        let named = kind.name.is_some();
        let mut rest = kind.clone();
        let mut pieces: Vec<(usize, KindPart)> = Vec::new();
        for (rank, (_, name, pus)) in hybrid.iter().enumerate() {
            let within = kind.pus.intersection(pus);
            if !named && !within.is_empty() {
                rest.pus = rest.pus.difference(&within);
                let name = Some((*name).to_owned());
                pieces.push((rank, KindPart { pus: within, name, ..kind.clone() }));
            }
        }
        if !rest.pus.is_empty() {
            // PUs listed by no PMU.
            pieces.push((0, rest));
        }
        pieces
    });
    let mut pieces: Vec<(usize, KindPart)> = pieces.collect();
    // hwloc's order of kinds with capacities is better founded than the order of the PMUs.
    let distinguished = pieces.iter().all(|(_, kind)| kind.capacity.is_some());
    if distinguished {
        pieces.sort_by_key(|(rank, kind)| (kind.capacity, *rank));
    } else {
        pieces.sort_by_key(|(rank, _)| *rank);
    }
    *kinds = pieces.into_iter().map(|(_, kind)| kind).collect();
    let names: Vec<Option<String>> = kinds.iter().map(|kind| kind.name.clone()).collect();
    for (kind, name) in kinds.iter_mut().zip(&names) {
        // Two kinds of the same name get names by rank instead.
        if names.iter().filter(|other| *other == name).count() > 1 {
            kind.name = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_from_capacities_where_hwloc_has_none() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/cores");
        let mut parts = MachineParts { pus: (0..4).map(PuNr).collect(), ..MachineParts::default() };
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

    fn hybrid_tree() -> Sysfs {
        Sysfs::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/hybrid"))
    }

    fn pus(list: &str) -> PuSet {
        PuSet::parse_list(list).unwrap()
    }

    fn kinds_of(parts: Vec<KindPart>) -> Vec<(String, String)> {
        let mut parts = MachineParts {
            pus: (0..12).map(PuNr).collect(),
            kinds: parts,
            ..MachineParts::default()
        };
        hybrid_tree().complete(&mut parts);
        let machine = parts.assemble().unwrap();
        let of = |kind: usize| {
            let cores = machine.cores.iter().filter(move |core| core.kind.idx() == kind);
            cores.map(|core| machine.pus[core.pus[0].idx()].os).collect::<PuSet>().to_string()
        };
        machine.kinds.iter().enumerate().map(|(kind, part)| (part.name.clone(), of(kind))).collect()
    }

    fn named(kinds: &[(&str, &str)]) -> Vec<(String, String)> {
        kinds.iter().map(|&(name, pus)| (name.to_owned(), pus.to_owned())).collect()
    }

    /// Lists, clock rates and capacities are those of an Intel Core 5 120U under Linux 6.17, figures of CPPC are made up.
    /// Capacities are alike on this machine, so without the lists it would have one kind of core.
    #[test]
    fn lists_of_hybrid_counters_divide_kinds_that_look_alike() {
        let expected = named(&[("efficiency", "4-11"), ("performance", "0-3")]);
        assert_eq!(kinds_of(Vec::new()), expected);
        let one = KindPart { pus: pus("0-11"), ..KindPart::default() };
        assert_eq!(kinds_of(vec![one]), expected);
    }

    #[test]
    fn what_hwloc_distinguished_stays_apart() {
        let part = |list: &str, name: Option<&str>| KindPart {
            pus: pus(list),
            name: name.map(Into::into),
            ..KindPart::default()
        };
        // Named by type: nothing to add.
        let kinds = vec![part("4-11", Some("small")), part("0-3", Some("large"))];
        assert_eq!(kinds_of(kinds), named(&[("small", "4-11"), ("large", "0-3")]));
        // Two clock rates among the large ones.
        let kinds = vec![part("4-11", None), part("2-3", None), part("0-1", None)];
        let expected =
            named(&[("efficiency", "4-11"), ("medium-1", "2-3"), ("performance", "0-1")]);
        assert_eq!(kinds_of(kinds), expected);
    }

    #[test]
    fn machines_that_are_not_hybrid_have_no_lists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/cores");
        assert_eq!(Sysfs::at(&root).hybrid_pmus(), []);
    }

    #[test]
    fn everything_that_is_reported_of_a_pu() {
        let reported = hybrid_tree().reported(&[PuNr(0), PuNr(11), PuNr(40)]);
        let fast = Reported {
            cpu_capacity: Some(1024),
            cppc_highest: Some(65),
            max_frequency: Some(Hertz::mhz(5000)),
            hybrid_pmu: Some("cpu_core".into()),
        };
        let slow = Reported {
            cppc_highest: Some(42),
            max_frequency: Some(Hertz::mhz(3800)),
            hybrid_pmu: Some("cpu_atom".into()),
            ..fast.clone()
        };
        assert_eq!(reported, [fast, slow, Reported::default()]);
    }
}
