//! Replaces a machine's kinds of cores by measured kinds.

use super::MeasuredKind;
use crate::ids::{KindIdx, PuNr};
use crate::machine::{Core, CoreKind, Machine};
use crate::parts::rank_name;
use crate::units::Hertz;
use std::collections::{BTreeSet, HashMap};

/// Returns `machine` with kinds of cores as measured in place of the reported kinds; `None` if a
/// core was not measured, or all cores are measured and reported alike.
///
/// Kinds are slowest first; the fastest has capacity 1024. Kinds of the same cores as reported keep
/// their names, others are named by their rank. A kind keeps the reported highest clock rate if
/// the rate is the same for all of its cores.
#[must_use]
pub fn with_kinds(machine: &Machine, measured: &[MeasuredKind]) -> Option<Machine> {
    let kind_of = |core: &Core| {
        let mut pus = core.pus.iter().map(|pu| machine.pus[pu.idx()].os);
        pus.find_map(|pu| measured.iter().position(|kind| kind.pus.contains(pu)))
    };
    let places: Vec<usize> = machine.cores.iter().map(kind_of).collect::<Option<_>>()?;
    if measured.len() == 1 && machine.kinds.len() == 1 {
        return None;
    }
    let reported = machine.cores.iter().map(|core| core.kind.idx());
    let pairs: BTreeSet<(usize, usize)> = places.iter().copied().zip(reported).collect();
    let same_cores = pairs.len() == measured.len() && pairs.len() == machine.kinds.len();
    let kinds = measured.iter().enumerate().map(|(kind, found)| {
        let of_kind = pairs.iter().filter(|(place, _)| *place == kind);
        let mut reported = of_kind.map(|(_, reported)| &machine.kinds[*reported]);
        let first = reported.next()?;
        let frequency: Option<Hertz> = first.max_frequency;
        let name = if same_cores {
            first.name.clone()
        } else {
            rank_name(kind, measured.len(), ["slow", "fast"])
        };
        let max_frequency =
            frequency.filter(|_| reported.all(|other| other.max_frequency == frequency));
        Some(CoreKind { name, capacity: Some(found.speed.capacity()), max_frequency })
    });
    let kinds: Vec<CoreKind> = kinds.collect::<Option<_>>()?;
    Some(assigned(machine, kinds, &places))
}

/// `machine` with `kinds`; `places` has the index of each core's kind.
fn assigned(machine: &Machine, kinds: Vec<CoreKind>, places: &[usize]) -> Machine {
    let mut made = Machine { kinds, ..machine.clone() };
    for (core, &place) in made.cores.iter_mut().zip(places) {
        core.kind = KindIdx::new(place);
    }
    made
}

/// Returns `machine`, read after PUs went online or offline, with the kinds of cores of `before`.
///
/// Remaining cores keep their kinds, and kinds without cores are removed. A core that `before` does
/// not have counts as the slowest kind, so that no thread is placed there for its speed.
#[must_use]
pub fn keep_kinds(machine: &Machine, before: &Machine) -> Machine {
    let pus = before.pus.iter().map(|pu| (pu.os, before.cores[pu.core.idx()].kind.idx()));
    let known: HashMap<PuNr, usize> = pus.collect();
    let kind_of = |core: &Core| {
        core.pus.iter().find_map(|pu| known.get(&machine.pus[pu.idx()].os).copied()).unwrap_or(0)
    };
    let kinds: Vec<usize> = machine.cores.iter().map(kind_of).collect();
    let used: BTreeSet<usize> = kinds.iter().copied().collect();
    let places: Vec<usize> =
        kinds.iter().map(|kind| used.iter().take_while(|used| *used < kind).count()).collect();
    let kinds = used.iter().map(|&kind| before.kinds[kind].clone()).collect();
    assigned(machine, kinds, &places)
}

#[cfg(test)]
mod tests {
    use super::super::kinds::testing::kinds_with;
    use super::*;
    use crate::described;

    fn amp() -> Machine {
        let text = described::MACHINES.iter().find(|(name, _)| *name == "amp-4x12").unwrap().1;
        described::from_toml(text).unwrap().machine
    }

    /// The described machine, each core of which is as fast as said of its only PU.
    fn measured(machine: &Machine, speed: impl Fn(u32) -> f64) -> Option<Machine> {
        let speeds: Vec<f64> = (0..16).map(speed).collect();
        with_kinds(machine, &kinds_with(&speeds).0)
    }

    fn kinds(machine: &Machine) -> Vec<(&str, Option<u32>)> {
        machine.kinds.iter().map(|kind| (&*kind.name, kind.capacity)).collect()
    }

    /// The described machine has its fast cores on PUs 0, 4, 8 and 12.
    #[test]
    fn measured_kinds_replace_the_reported_ones() {
        let machine = amp();
        let fast = [3, 7];
        let made = measured(&machine, |pu| if fast.contains(&pu) { 1.0 } else { 0.25 }).unwrap();
        assert_eq!(made.check(), Ok(()));
        assert_eq!(kinds(&made), [("slow", Some(256)), ("fast", Some(1024))]);
        for core in &made.cores {
            let pu = made.pus[core.pus[0].idx()].os.0;
            assert_eq!(core.kind.idx(), usize::from(fast.contains(&pu)), "{pu}");
        }
        // Only kinds have changed.
        let back = Machine { kinds: machine.kinds.clone(), cores: machine.cores.clone(), ..made };
        assert_eq!(back, machine);
    }

    #[test]
    fn kinds_of_the_reported_cores_keep_their_names() {
        let machine = amp();
        let fast: Vec<u32> = machine
            .cores
            .iter()
            .filter(|core| core.kind.idx() == 1)
            .map(|core| machine.pus[core.pus[0].idx()].os.0)
            .collect();
        let made = measured(&machine, |pu| if fast.contains(&pu) { 1.0 } else { 0.25 }).unwrap();
        let names = machine.kinds.iter().map(|kind| &*kind.name);
        let expected: Vec<_> = names.zip([Some(256), Some(1024)]).collect();
        assert_eq!(kinds(&made), expected);
    }

    #[test]
    fn a_core_that_was_not_measured_leaves_the_reported_kinds() {
        let machine = amp();
        assert_eq!(with_kinds(&machine, &kinds_with(&[1.0, 0.5]).0), None);
        assert_eq!(kinds(&measured(&machine, |_| 1.0).unwrap()), [("core", Some(1024))]);
        let alike = measured(&machine, |_| 1.0).unwrap();
        assert_eq!(measured(&alike, |_| 1.0), None);
    }

    /// The measured machine without some of its PUs, and with one that was not there before.
    #[test]
    fn kinds_stay_where_pus_go_and_come() {
        let machine = amp();
        let mut found = measured(&machine, |pu| if pu == 4 { 1.0 } else { 0.5 }).unwrap();
        found.pus.iter_mut().find(|pu| pu.os == PuNr(5)).unwrap().os = PuNr(99);
        let without = |gone: &[u32]| {
            let mut left = machine.clone();
            left.cores.retain(|core| !gone.contains(&left.pus[core.pus[0].idx()].os.0));
            let made = keep_kinds(&left, &found);
            let kind = |core: &Core| made.kinds[core.kind.idx()].name.clone();
            let kinds: Vec<String> = made.cores.iter().map(kind).collect();
            let capacities: Vec<_> = made.kinds.iter().map(|kind| kind.capacity).collect();
            (kinds, capacities)
        };
        let (kinds, capacities) = without(&[0, 1]);
        assert_eq!(kinds[..5], ["slow", "slow", "fast", "slow", "slow"]);
        assert_eq!(capacities, [Some(512), Some(1024)]);
        let (kinds, capacities) = without(&[4]);
        assert!(kinds.len() == 15 && kinds.iter().all(|kind| kind == "slow"), "{kinds:?}");
        assert_eq!(capacities, [Some(512)]);
    }

    #[test]
    fn a_clock_rate_stays_where_all_cores_of_a_kind_have_it() {
        let machine = amp();
        let reported: Vec<_> = machine.kinds.iter().map(|kind| kind.max_frequency).collect();
        assert!(reported[0].is_some() && reported[0] != reported[1], "{reported:?}");
        // Of the fast four one is measured fast, the other three with the slow ones.
        let made = measured(&machine, |pu| if pu == 4 { 1.0 } else { 0.5 }).unwrap();
        let frequencies: Vec<_> = made.kinds.iter().map(|kind| kind.max_frequency).collect();
        assert_eq!(frequencies, [None, reported[1]]);
    }
}
