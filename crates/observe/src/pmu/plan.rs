//! Partition of events into groups.
//!
//! Events of one group are on the processor at the same time or not at all. Every group begins with
//! the instructions, except a group that Intel's slots need to lead. So the shares of the classes
//! in a group are exact for the time it ran, whatever the other groups do. There are as few groups
//! as the counters allow: one if all events fit.

use super::events::Extra;
use super::stack;
use super::table::{Family, INST_SPEC};

pub use super::events::{Bundle, EventCode, EventGroup, EventKind, PmuEvent, Role};
use colocate_model::Class;

/// Numbers of perf's generic hardware events (`enum perf_hw_id`, linux/perf_event.h).
const CYCLES: u64 = 0;
const INSTRUCTIONS: u64 = 1;
const BRANCHES: u64 = 4;

const fn generic(role: Role, number: u64) -> PmuEvent {
    PmuEvent { role, base: Role::Instructions, source: EventKind::Generic(number) }
}

/// Leader of every group.
const LEADER: PmuEvent = generic(Role::Instructions, INSTRUCTIONS);

/// Events to count on a processor of `family`, the most important first. `None` is a processor
/// outside the table, counted with perf's generic branches.
///
/// A class with an event for which `has` is false is left out: it is unknown, not 0.
pub fn wanted(family: Option<&Family>, has: impl Fn(EventCode) -> bool) -> Vec<Bundle> {
    let cycles = vec![generic(Role::Cycles, CYCLES)];
    let Some(family) = family else {
        return vec![cycles, vec![generic(Role::Class(Class::Branch), BRANCHES)]];
    };
    let listed = family.rows.iter().filter(|row| {
        let base = row.begun.then_some(INST_SPEC);
        row.codes.iter().copied().chain(base).all(&has)
    });
    let rows = listed.map(|row| {
        let base = if row.begun { Role::Begun } else { Role::Instructions };
        let whole = PmuEvent { role: Role::Begun, base, source: EventKind::Raw(INST_SPEC) };
        let parts = row.codes.iter().map(|&code| PmuEvent {
            role: Role::Class(row.class),
            base,
            source: EventKind::Raw(code),
        });
        row.begun.then_some(whole).into_iter().chain(parts).collect()
    });
    std::iter::once(cycles).chain(rows).collect()
}

/// Groups of events, and the events left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// Groups.
    pub groups: Vec<EventGroup>,
    /// Roles refused by the processor even alone beside the instructions.
    pub refused: Vec<Role>,
}

/// Puts the wanted bundles into as few groups as `fits` allows, in the given order.
///
/// `fits` says whether the processor counts these events together. It is called at most once for
/// each bundle and group. A bundle that fits nowhere, not even alone, is refused.
pub fn grouping(wanted: &[Bundle], mut fits: impl FnMut(&[PmuEvent]) -> bool) -> Grouping {
    let mut plan = Grouping::default();
    for bundle in wanted {
        let leads = stack::leads(bundle);
        // A bundle with a leader of its own needs a group of its own.
        let taken = plan.groups.iter_mut().filter(|_| !leads).any(|group| {
            let grown = grown(&group.events, bundle);
            let taken = fits(&grown);
            if taken {
                group.events = grown;
            }
            taken
        });
        if taken {
            continue;
        }
        let fresh = if leads { grown(bundle, &[LEADER]) } else { grown(&[LEADER], bundle) };
        if fits(&fresh) {
            plan.groups.push(EventGroup { events: fresh });
        } else {
            plan.refused.extend(bundle.last().map(|event| event.role));
        }
    }
    plan
}

/// `events` with the missing events of `bundle`.
fn grown(events: &[PmuEvent], bundle: &[PmuEvent]) -> Vec<PmuEvent> {
    let mut grown = events.to_vec();
    for event in bundle {
        let there = grown.iter().any(|e| e.source == event.source && e.role == event.role);
        if !there {
            grown.push(*event);
        }
    }
    grown
}

/// Cache levels whose misses are counted.
pub const LEVELS: usize = 3;

/// Roles counted from reading to reading, in this order.
pub(super) const ROLES: [Role; 4 + LEVELS] = [
    Role::Instructions,
    Role::Cycles,
    Role::Class(Class::Load),
    Role::Class(Class::Store),
    Role::Extra(Extra::Misses(1)),
    Role::Extra(Extra::Misses(2)),
    Role::Extra(Extra::Misses(3)),
];

/// Selects the cache and memory events of all countable events, misses first: they matter most if
/// not all events fit. Loads without stores do not give the requests to the first cache, so they
/// are left out.
pub(super) fn traffic(classes: Vec<Bundle>, extras: Vec<Bundle>) -> Vec<Bundle> {
    let both = [Class::Load, Class::Store]
        .into_iter()
        .all(|class| classes.iter().any(|bundle| role_of(bundle) == Some(Role::Class(class))));
    let classes = classes.into_iter().filter(|bundle| is_traffic(bundle, both));
    let (cycles, classes): (Vec<Bundle>, Vec<Bundle>) =
        classes.partition(|bundle| role_of(bundle) == Some(Role::Cycles));
    let extras = extras.into_iter().filter(|bundle| is_traffic(bundle, both));
    cycles.into_iter().chain(extras).chain(classes).collect()
}

fn role_of(bundle: &Bundle) -> Option<Role> {
    // The whole precedes the parts in a bundle, so the last event has the bundle's role.
    bundle.last().map(|event| event.role)
}

/// Whether a bundle is of [`ROLES`]; of a class only if there are `both` loads and stores.
fn is_traffic(bundle: &Bundle, both: bool) -> bool {
    match role_of(bundle) {
        Some(Role::Class(_)) if !both => false,
        role => role.is_some_and(|role| ROLES.contains(&role)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::cpu::Cpu;
    use crate::pmu::table;

    fn family(cpu: Cpu) -> &'static Family {
        table::family(cpu, "cpu").unwrap()
    }

    const SKX: Cpu = Cpu::Intel { family: 6, model: 85 };
    const N1: Cpu = Cpu::Arm { implementer: 0x41, part: 0xd0c };

    /// Intel: instructions and cycles have counters of their own, `n` serve the rest.
    fn intel(n: usize) -> impl FnMut(&[PmuEvent]) -> bool {
        move |events| events.iter().filter(|e| matches!(e.source, EventKind::Raw(_))).count() <= n
    }

    /// Roles of each group as one line.
    fn picture(plan: &Grouping) -> Vec<String> {
        let name = |event: &PmuEvent| match event.role {
            Role::Instructions => "i".to_owned(),
            Role::Begun => "spec".to_owned(),
            Role::Cycles => "c".to_owned(),
            Role::Class(class) => class.name().to_owned(),
            Role::Extra(extra) => format!("{extra:?}"),
            Role::Stack(place) => format!("stack {place}"),
        };
        let line = |group: &EventGroup| group.events.iter().map(name).collect::<Vec<_>>().join(" ");
        plan.groups.iter().map(line).collect()
    }

    #[test]
    fn one_group_where_all_fit() {
        let plan = grouping(&wanted(Some(family(SKX)), |_| true), intel(4));
        assert_eq!(picture(&plan), ["i c branch float load store"]);
        assert_eq!(plan.refused, []);
    }

    #[test]
    fn a_counter_lost_to_the_watchdog_makes_a_second_group() {
        let plan = grouping(&wanted(Some(family(SKX)), |_| true), intel(3));
        assert_eq!(picture(&plan), ["i c branch float load", "i store"]);
    }

    #[test]
    fn a_class_stays_with_its_base_and_all_its_parts() {
        // Arm: cycles have their own counter, all else shares 4.
        let fits =
            |events: &[PmuEvent]| events.iter().filter(|e| e.role != Role::Cycles).count() <= 4;
        let plan = grouping(&wanted(Some(family(N1)), |_| true), fits);
        assert_eq!(
            picture(&plan),
            ["i c branch spec int", "i spec float float", "i spec load store"]
        );
    }

    #[test]
    fn what_fits_nowhere_is_refused_by_name() {
        let fits = |events: &[PmuEvent]| events.iter().all(|e| e.role != Role::Class(Class::Float));
        let plan = grouping(&wanted(Some(family(SKX)), |_| true), fits);
        assert_eq!(plan.refused, [Role::Class(Class::Float)]);
        assert_eq!(picture(&plan), ["i c branch load store"]);
        let none = grouping(&wanted(Some(family(SKX)), |_| true), |_| false);
        assert!(none.groups.is_empty());
        assert_eq!(none.refused.len(), 5);
    }

    #[test]
    fn a_missing_base_makes_its_classes_unknown() {
        // QEMU's Neoverse N1 has no INST_SPEC and no BR_RETIRED.
        let has = |code: EventCode| !["INST_SPEC", "BR_RETIRED"].contains(&code.name);
        let plan = grouping(&wanted(Some(family(N1)), has), |_| true);
        assert_eq!(picture(&plan), ["i c"]);
    }

    #[test]
    fn an_unknown_processor_gets_the_generic_events() {
        let plan = grouping(&wanted(None, |_| true), |_| true);
        assert_eq!(picture(&plan), ["i c branch"]);
        let generic = |e: &PmuEvent| matches!(e.source, EventKind::Generic(_));
        assert!(plan.groups[0].events.iter().all(generic));
    }

    #[test]
    fn every_wanted_role_is_planned_or_refused() {
        for family in table::all() {
            let wanted = wanted(Some(family), |_| true);
            for counters in 0..8 {
                let plan = grouping(&wanted, intel(counters));
                let planned =
                    |role| plan.groups.iter().any(|g| g.events.iter().any(|e| e.role == role));
                for bundle in &wanted {
                    let role = bundle.last().unwrap().role;
                    let refused = plan.refused.contains(&role);
                    assert!(planned(role) != refused, "{} {role:?}", family.name);
                }
            }
        }
    }
}
