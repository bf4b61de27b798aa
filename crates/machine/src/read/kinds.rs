//! Kinds of cores from hwloc's facts, for the live machine and for XML.

use crate::cpulist::PuSet;
use crate::parts::KindPart;
use crate::units::Hertz;

/// Facts that hwloc reports on one kind of core.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindFacts {
    pub pus: PuSet,
    /// Rank of the kind; higher is faster. `None` if hwloc has none.
    pub efficiency: Option<u32>,
    /// Name and value: `CoreType`, `FrequencyMaxMHz`, `FrequencyBaseMHz`, `LinuxCapacity`, …
    pub infos: Vec<(String, String)>,
}

impl KindFacts {
    fn info(&self, key: &str) -> Option<&str> {
        self.infos.iter().find(|(name, _)| name == key).map(|(_, value)| value.trim())
    }

    fn figure(&self, key: &str) -> Option<u32> {
        self.info(key)?.parse().ok().filter(|&value| value > 0)
    }

    fn name(&self) -> Option<String> {
        match self.info("CoreType")? {
            "IntelAtom" => Some("efficiency".into()),
            "IntelCore" => Some("performance".into()),
            other => Some(other.into()),
        }
    }

    fn part(self) -> KindPart {
        let frequency = self.figure("FrequencyMaxMHz").map(|mhz| Hertz::mhz(mhz.into()));
        KindPart {
            name: self.name(),
            capacity: self.figure("LinuxCapacity"),
            max_frequency: frequency,
            pus: self.pus,
        }
    }

    /// Sort key, slower kinds first: core type (Intel's small cores below the large ones), then
    /// highest and base clock rate. hwloc ranks by the same key if the system has no ranks.
    fn guess(&self) -> (bool, Option<u32>, Option<u32>) {
        let large = self.info("CoreType") == Some("IntelCore");
        (large, self.figure("FrequencyMaxMHz"), self.figure("FrequencyBaseMHz"))
    }
}

/// Sorts kinds, slowest first: by hwloc's rank if all have one, else by the kernel's capacity if
/// all have one. Ties, and kinds without either, are sorted by type and clock rate, then kept as
/// listed. Linux 6.17 gives all cores of an Intel Core 5 120U the same capacity.
pub(crate) fn ranked(mut kinds: Vec<KindFacts>) -> Vec<KindPart> {
    if kinds.iter().all(|kind| kind.efficiency.is_some()) {
        kinds.sort_by_key(|kind| (kind.efficiency, kind.guess()));
    } else if kinds.iter().all(|kind| kind.figure("LinuxCapacity").is_some()) {
        kinds.sort_by_key(|kind| (kind.figure("LinuxCapacity"), kind.guess()));
    } else {
        kinds.sort_by_key(KindFacts::guess);
    }
    kinds.into_iter().map(KindFacts::part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(efficiency: Option<u32>, infos: &[(&str, &str)]) -> KindFacts {
        let infos = infos.iter().map(|&(key, value)| (key.into(), value.into())).collect();
        KindFacts { pus: PuSet::new(), efficiency, infos }
    }

    fn names(kinds: Vec<KindFacts>) -> Vec<Option<String>> {
        ranked(kinds).into_iter().map(|kind| kind.name).collect()
    }

    #[test]
    fn rank_comes_from_hwloc_then_capacity_then_type_and_clock() {
        let big = [("CoreType", "big"), ("LinuxCapacity", "1024"), ("FrequencyMaxMHz", "2000")];
        let small = [("CoreType", "small"), ("LinuxCapacity", "446"), ("FrequencyMaxMHz", "2400")];
        let order = |first: &str, second: &str| vec![Some(first.into()), Some(second.into())];
        assert_eq!(names(vec![kind(Some(0), &big), kind(Some(1), &small)]), order("big", "small"));
        assert_eq!(names(vec![kind(None, &big), kind(Some(1), &small)]), order("small", "big"));
        assert_eq!(
            names(vec![kind(None, &small[..1]), kind(None, &small[2..]), kind(None, &big[..1])])
                .len(),
            3
        );
        let core = [("CoreType", "IntelCore"), ("FrequencyMaxMHz", "3000")];
        let atom = [("CoreType", "IntelAtom"), ("FrequencyMaxMHz", "3600")];
        assert_eq!(
            names(vec![kind(None, &core), kind(None, &atom)]),
            order("efficiency", "performance")
        );
    }

    #[test]
    fn equal_ranks_say_nothing() {
        let core = [("CoreType", "IntelCore"), ("LinuxCapacity", "1024")];
        let atom = [("CoreType", "IntelAtom"), ("LinuxCapacity", "1024")];
        for rank in [None, Some(0)] {
            assert_eq!(
                names(vec![kind(rank, &core), kind(rank, &atom)]),
                [Some("efficiency".into()), Some("performance".into())]
            );
        }
    }

    #[test]
    fn unknown_figures_stay_unknown() {
        let kinds = ranked(vec![kind(None, &[("FrequencyMaxMHz", "0"), ("LinuxCapacity", "x")])]);
        assert_eq!((kinds[0].capacity, kinds[0].max_frequency), (None, None));
    }
}
