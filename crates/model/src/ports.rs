//! Long-term use of ports by work that several ports can do.
//!
//! # Problem
//! Demands name sets of alternative ports, not ports. The use of each port is required.
//!
//! # Approach
//! Work is spread as evenly as its sets allow, as by a scheduler that takes the port with the
//! shortest queue, in the long run: the use of the fullest ports is minimal, then that of the next
//! fullest, and so on. The fullest ports are the union `S` of sets with the most work within `S`
//! per port. All of that work has to be done in `S` (the bound of [`crate::smt`]), and other work
//! that could be done there goes to ports with more room. Each port of `S` gets the mean of that
//! work; the rest is spread over the other ports likewise. The result is Fujishige's
//! lexicographically optimal base of a polymatroid (1980).
//!
//! # Terms
//! - *work*: cycles of any one port of a set, per cycle of the core.
//! - *use* of a port: the share of its cycles in which it works.
//!
//! # Properties
//! - **Conserves**: uses sum to the work. -> test `conserves`
//! - **No port is fuller than it must be**: the largest use is the largest bound of all unions.
//!   -> test `the_fullest_is_the_tightest_bound`
//! - **Order**: the order of the work changes nothing. -> test `order_changes_nothing`

use colocate_machine::performance::{ExecutionUnit, PortSet};

/// Use of each of `ports` ports when `work` is spread as evenly as its sets allow.
///
/// Work without a port is ignored, as are NaN and cycles of 0 or less.
#[must_use]
pub fn spread(ports: usize, work: &[(PortSet, f64)]) -> Vec<f64> {
    let mut uses = vec![0.0; ports];
    let mut left: Vec<(PortSet, f64)> = work.to_vec();
    left.retain(|(set, cycles)| !set.is_empty() && *cycles > 0.0);
    while let Some((union, each)) = tightest(&left) {
        for (port, used) in uses.iter_mut().enumerate() {
            if union.0 >> port & 1 == 1 {
                // The ports of the tightest union are equally full.
                *used = each;
            }
        }
        // Work outside the union avoids its ports: there is more room elsewhere.
        left.retain(|(set, _)| !set.is_subset(union));
        for (set, _) in &mut left {
            set.0 &= !union.0;
        }
    }
    uses
}

/// Union of sets with the most work within it per port, and that work per port.
fn tightest(work: &[(PortSet, f64)]) -> Option<(PortSet, f64)> {
    let mut best: Option<(PortSet, f64)> = None;
    let mut sets: Vec<PortSet> = work.iter().map(|(set, _)| *set).collect();
    sets.sort_unstable();
    sets.dedup();
    let mut unions = Vec::new();
    set_unions(&mut unions, &sets);
    for union in unions {
        let within = work.iter().filter(|(set, _)| set.is_subset(union));
        // No set is empty, so the number of ports is not 0.
        let each = within.map(|(_, cycles)| cycles).sum::<f64>() / f64::from(union.len());
        // Of equal unions any is right, since the others follow. Take the same in every order.
        if best.is_none_or(|(other, most)| (each, union) > (most, other)) {
            best = Some((union, each));
        }
    }
    best
}

/// Limit of the connected unions searched. No known core has more than hundreds (at most 255 for
/// eight ports). A larger table is cut, which ignores bounds on many ports at once.
pub(crate) const UNIONS: usize = 1024;

/// Sets `unions` to all connected unions of `sets`, which are sorted and distinct. A union of parts
/// without a common port is at most as dense as the densest part.
pub(crate) fn set_unions(unions: &mut Vec<PortSet>, sets: &[PortSet]) {
    unions.clear();
    unions.extend_from_slice(sets);
    let mut next = 0;
    // The list grows while it is read: unions of unions are tried as well.
    while next < unions.len() && unions.len() < UNIONS {
        for set in sets {
            let with = unions[next].union(*set);
            if unions[next].0 & set.0 != 0 && !unions.contains(&with) {
                unions.push(with);
            }
        }
        next += 1;
    }
}

/// Groups of ports with the same or overlapping work, by the core's table. Each port is in one
/// group; groups are in the order of their first ports.
#[must_use]
pub fn groups(ports: usize, units: &[ExecutionUnit]) -> Vec<PortSet> {
    // A `PortSet` has 32 bits.
    let mut groups: Vec<PortSet> = (0..ports.min(32)).map(|port| PortSet(1 << port)).collect();
    for unit in units {
        let joined = groups.iter().filter(|group| group.0 & unit.ports.0 != 0);
        let joined = joined.fold(PortSet::default(), |all, group| all.union(*group));
        // One group replaces all groups that the unit connects.
        groups.retain(|group| group.0 & unit.ports.0 == 0);
        if !joined.is_empty() {
            groups.push(joined);
        }
    }
    groups.sort_by_key(|group| group.0.trailing_zeros());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::Cycles;
    use colocate_machine::performance::WorkKind;
    use proptest::prelude::*;

    fn close(found: &[f64], expected: &[f64]) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        let all = found.len() == expected.len() && found.iter().zip(expected).all(near);
        assert!(all, "{found:?} is not {expected:?}");
    }

    /// Port 0 must do 0.6; 0.9 that 0, 1 or 2 can do goes to 1 and 2, 0.45 each, since {0, 1, 2} has 1.5
    /// for three, 0.5 each, which is less than the 0.6 of port 0 alone. Port 3 has nothing to do.
    #[test]
    fn by_hand() {
        let work = [(PortSet(0b0001), 0.6), (PortSet(0b0111), 0.9)];
        close(&spread(4, &work), &[0.6, 0.45, 0.45, 0.0]);
        // With 0.3 on port 0 there is room there: 1.2 over three.
        let work = [(PortSet(0b0001), 0.3), (PortSet(0b0111), 0.9)];
        close(&spread(4, &work), &[0.4, 0.4, 0.4, 0.0]);
        close(&spread(2, &[(PortSet(0), 0.5), (PortSet(1), f64::NAN)]), &[0.0, 0.0]);
    }

    /// Branches on 0 and 3, integers on 0 to 3, one multiplier, two floating-point pairs that no unit joins.
    #[test]
    fn groups_by_hand() {
        let unit =
            |kind, ports| ExecutionUnit { kind, ports: PortSet(ports), occupancy: Cycles(1.0) };
        let units = [
            unit(WorkKind::Branch, 0b0_0000_1001),
            unit(WorkKind::Int, 0b0_0000_1111),
            unit(WorkKind::IntMul, 0b0_0001_0000),
            unit(WorkKind::FloatAdd, 0b0_0110_0000),
            unit(WorkKind::FloatMul, 0b1_1000_0000),
        ];
        let found: Vec<u32> = groups(10, &units).iter().map(|group| group.0).collect();
        assert_eq!(found, [0b1111, 0b1_0000, 0b110_0000, 0b1_1000_0000, 0b10_0000_0000]);
    }

    fn any_work() -> impl Strategy<Value = Vec<(PortSet, f64)>> {
        prop::collection::vec((1_u32..256, 0.01..2.0_f64), 1..8)
            .prop_map(|all| all.into_iter().map(|(set, work)| (PortSet(set), work)).collect())
    }

    proptest! {
        #[test]
        fn conserves(work in any_work()) {
            let all: f64 = work.iter().map(|(_, cycles)| cycles).sum();
            let uses = spread(8, &work);
            prop_assert!((uses.iter().sum::<f64>() - all).abs() < 1e-9);
        }

        /// Over all unions of sets, connected or not.
        #[test]
        fn the_fullest_is_the_tightest_bound(work in any_work()) {
            let bound = (1_usize..1 << work.len()).map(|chosen| {
                let of = (0..work.len()).filter(|at| chosen >> at & 1 == 1);
                let union = of.fold(PortSet::default(), |all, at| all.union(work[at].0));
                let within = work.iter().filter(|(set, _)| set.is_subset(union));
                within.map(|(_, cycles)| cycles).sum::<f64>() / f64::from(union.len())
            });
            let bound = bound.fold(0.0, f64::max);
            let fullest = spread(8, &work).into_iter().fold(0.0, f64::max);
            prop_assert!((fullest - bound).abs() < 1e-9, "{fullest} is not {bound}");
        }

        #[test]
        fn order_changes_nothing(work in any_work(), at in 0_usize..8) {
            let mut other = work.clone();
            other.rotate_left(at % work.len());
            let (uses, others) = (spread(8, &work), spread(8, &other));
            prop_assert!(uses.iter().zip(&others).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
