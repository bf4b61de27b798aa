//! Kinds of cores: measured by `colocate calibrate`, or of unknown speed.

use colocate_machine::{Core, CoreKind, Machine, PuNr, PuSet};
use colocate_policy::PolicySpec;
use colocate_policy::table::Cadence;
use std::collections::BTreeSet;

/// A note for the report on measured kinds.
pub fn note(machine: &Machine) -> String {
    let kinds = machine.kinds.iter().enumerate().map(|(place, kind)| {
        let cores = machine.cores.iter().filter(|core| core.kind.idx() == place);
        let pus: PuSet =
            cores.flat_map(|core| &core.pus).map(|pu| machine.pus[pu.idx()].os).collect();
        let known = kind.capacity.map(|capacity| format!(", capacity {capacity}"));
        format!("{}{}: PU {pus}", kind.name, known.unwrap_or_default())
    });
    let kinds: Vec<String> = kinds.collect();
    format!("kinds of cores as measured (colocate calibrate): {}", kinds.join("; "))
}

/// Note on missing speeds of the usable kinds of cores under a policy for fast cores; `None` where
/// the speeds are known, or where all usable cores are of one kind.
pub fn doubt(policy: &PolicySpec, machine: &Machine, usable: &[PuNr]) -> Option<String> {
    // Policies that decide each quantum and stop no job use the kinds of cores.
    let wants_fast = !policy.waits() && policy.row().cadence == Cadence::EachQuantum;
    let is_usable =
        |core: &&Core| core.pus.iter().any(|pu| usable.contains(&machine.pus[pu.idx()].os));
    let used = machine.cores.iter().filter(is_usable).map(|core| core.kind.idx());
    let used: BTreeSet<usize> = used.collect();
    let kinds: Vec<&CoreKind> = used.into_iter().map(|kind| &machine.kinds[kind]).collect();
    let capacities: BTreeSet<Option<u32>> = kinds.iter().map(|kind| kind.capacity).collect();
    let what = match (capacities.first()?, capacities.len()) {
        _ if !wants_fast || kinds.len() < 2 => return None,
        // Different capacities say which kind is faster.
        (Some(_), 2..) => return None,
        (Some(same), _) => format!("but capacity {same} is reported of all of them, so none is taken for faster"),
        (None, _) if kinds.iter().all(|kind| kind.max_frequency.is_some()) => {
            "and capacities are not reported of all of them, so they are distinguished by their highest clock rates alone".to_owned()
        }
        (None, _) => {
            "and neither capacities nor clock rates are reported of all of them, so how much faster the last one is is assumed".to_owned()
        }
    };
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    Some(format!(
        "cores are of different kinds ({}), {what}; colocate calibrate --only speeds measures them",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::read;

    /// A machine that was not measured: four cores of one kind.
    #[test]
    fn the_note_names_kinds_and_their_pus() {
        let mut machine = read::synthetic("pack:1 core:4 pu:1").unwrap();
        assert_eq!(note(&machine), "kinds of cores as measured (colocate calibrate): core: PU 0-3");
        machine.kinds = [("slow", 512), ("fast", 1024)]
            .map(|(name, capacity)| CoreKind {
                name: name.to_owned(),
                capacity: Some(capacity),
                max_frequency: None,
            })
            .to_vec();
        machine.cores[2].kind = colocate_machine::KindIdx(1);
        assert_eq!(
            note(&machine),
            "kinds of cores as measured (colocate calibrate): slow, capacity 512: PU 0-1,3; fast, capacity 1024: PU 2"
        );
    }

    /// The doubt about a saved machine.
    fn doubted(name: &str, policy: &str, usable: std::ops::Range<u32>) -> Option<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../machine/tests/corpus");
        let machine = read::open(&format!("{folder}/{name}.xml")).unwrap();
        doubt(&PolicySpec::named(policy), &machine, &usable.map(PuNr).collect::<Vec<_>>())
    }

    /// Two real hybrid processors of which it is not known how fast their kinds are, and two of which it is.
    #[test]
    fn unreported_speeds_are_doubted() {
        let all_fast = "all-fast-first";
        let end = "colocate calibrate --only speeds measures them";
        let told = |name, what: &str| {
            let told = doubted(name, all_fast, 0..20).unwrap();
            assert_eq!(
                told,
                format!("cores are of different kinds (efficiency, performance), {what}; {end}")
            );
        };
        told(
            "hybrid-flat",
            "but capacity 1024 is reported of all of them, so none is taken for faster",
        );
        told(
            "lakefield",
            "and capacities are not reported of all of them, so they are distinguished by their highest clock rates alone",
        );
        told(
            "raptor-lake",
            "and neither capacities nor clock rates are reported of all of them, so how much faster the last one is is assumed",
        );
        for told in ["gb10", "hybrid", "kvm-2pu"] {
            assert_eq!(doubted(told, all_fast, 0..20), None, "{told}");
        }
        // It is not asked for, or only small cores may be used.
        assert_eq!(doubted("hybrid-flat", "os", 0..20), None);
        assert_eq!(doubted("hybrid-flat", "bas", 0..20), None);
        assert_eq!(doubted("hybrid-flat", all_fast, 4..12), None);
    }
}
