//! What a PMU really counts, found out by counting the calling thread.

use super::counters::{Want, counts, specs};
use super::extras;
use super::meter;
use super::open::{OpenGroup, Spec, Start};
use super::plan::{Bundle, Group, Grouping, Role, Source, grouping, wanted};
use super::scale::ENOUGH;
use super::stack::{self, StackPlan};
use super::sysfs::CorePmu;
use crate::task::Tid;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What a PMU counts, and whether that tells where cycles go.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The groups, and what was refused.
    pub grouping: Grouping,
    /// How the groups tell where cycles go.
    pub stack: Option<StackPlan>,
    /// Why they do not, if that was wanted.
    pub no_stack: Option<String>,
}

/// Groups what `pmu` counts by trying it on the calling thread.
pub(super) fn try_out(pmu: &CorePmu, alone: bool, want: Want) -> Tried {
    let mut wanted = wanted(pmu.family, |code| pmu.has(code));
    let extras = extras::wanted(pmu.family, |code| pmu.has(code));
    match want {
        Want::Mix => {}
        Want::Demand => wanted.extend(extras),
        Want::Traffic | Want::Stacks => wanted = meter::traffic(wanted, extras),
    }
    let group =
        |wanted: &[Bundle]| grouping(wanted, |events| counts(&specs(events, pmu, alone)).is_ok());
    let mut no_stack = None;
    if want == Want::Stacks {
        let tried = stack::plan(pmu).and_then(|plan| {
            let grouping = group(&with_stack(&plan, wanted.clone()));
            let opened = |group: &Group| specs(&group.events, pmu, alone);
            tells(&plan, &grouping, opened).map(|()| (plan, grouping))
        });
        match tried {
            Ok((plan, grouping)) => return Tried { grouping, stack: Some(plan), no_stack },
            Err(why) => no_stack = Some(format!("{}: {why}", pmu.name)),
        }
    }
    Tried { grouping: group(&wanted), stack: None, no_stack }
}

/// The events of a stack before all others but the cycles, and before these, too, if one has to lead its group.
fn with_stack(plan: &StackPlan, others: Vec<Bundle>) -> Vec<Bundle> {
    let stack = stack::wanted(plan);
    let leads = stack.first().is_some_and(|first| stack::leads(first));
    let first = usize::from(!leads).min(others.len());
    let mut all = others;
    all.splice(first..first, stack);
    all
}

/// Whether the events of a stack are all there, and count.
fn tells(
    plan: &StackPlan,
    grouping: &Grouping,
    specs: impl Fn(&Group) -> Vec<Spec>,
) -> Result<(), String> {
    let refused = grouping.refused.iter().find_map(|role| match role {
        Role::Stack(place) => plan.table.events.get(usize::from(*place)),
        _ => None,
    });
    if let Some(code) = refused {
        return Err(format!("expected to count {} for {}, refused", code.name, plan.table.name));
    }
    let groups = grouping.groups.iter().map(|group| (group, specs(group)));
    match groups.into_iter().any(|(group, specs)| is_alive(group, &specs)) {
        true => Ok(()),
        false => {
            let names: Vec<&str> = plan.table.events.iter().map(|code| code.name).collect();
            Err(format!("{} stay at 0", names.join(" and ")))
        }
    }
}

/// How long is waited for an event to count. Chosen: a million instructions take a thousandth of a second, and a
/// turn 20 times that.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whether one of a group's events of a stack counts anything in a million instructions. No program runs those
/// without waiting once; a counter that an emulator or a hypervisor leaves dead looks like that.
fn is_alive(group: &Group, specs: &[Spec]) -> bool {
    let is_part = |role: Role| matches!(role, Role::Stack(_));
    let parts = group.events.iter().filter(|event| is_part(event.role) && !is_slots(event.source));
    if parts.clone().next().is_none() {
        return false;
    }
    let Ok(open) = OpenGroup::open(specs, Tid(0), Start::Now) else { return false };
    let begun = Instant::now();
    loop {
        work();
        let Ok(reading) = open.read() else { return false };
        let counted = parts.clone().any(|event| {
            group.count_of(event.role, &reading.counts).is_some_and(|count| count > 0)
        });
        let enough = group.count_of(Role::Instructions, &reading.counts) >= Some(ENOUGH);
        if counted || enough || begun.elapsed() >= PATIENCE {
            return counted;
        }
    }
}

fn is_slots(source: Source) -> bool {
    matches!(source, Source::Raw(code) if code == stack::SLOTS)
}

/// Some tens of thousands of instructions.
fn work() {
    let mut state = black_box(1_u64);
    for step in 0..10_000 {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005) ^ step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::Counters;
    use crate::pmu::cpu::Cpu;
    use crate::pmu::stack::{ARM_CYCLES, INTEL_METRICS, POWER8};
    use crate::pmu::table;
    use perf_event_open_sys::bindings as c;

    fn plan(table: &'static stack::StackTable) -> StackPlan {
        StackPlan { table, width: 0.0 }
    }

    /// What comes first where not everything fits.
    #[test]
    fn the_order_of_what_matters() {
        let family = table::family(Cpu::Intel { family: 6, model: 85 }, "cpu");
        let all = meter::traffic(wanted(family, |_| true), extras::wanted(family, |_| true));
        let roles = |plan: &StackPlan| -> Vec<Role> {
            let all = with_stack(plan, all.clone());
            all.iter().take(3).map(|bundle| bundle.last().unwrap().role).collect()
        };
        let part = Role::Stack;
        assert_eq!(roles(&plan(&ARM_CYCLES)), [Role::Cycles, part(0), part(1)]);
        assert_eq!(roles(&plan(&INTEL_METRICS))[..2], [part(4), Role::Cycles]);
        assert_eq!(with_stack(&plan(&POWER8), Vec::new()).len(), 5);
    }

    /// The kernel's own events stand for a processor's: one of emulated faults stays at 0 everywhere but on Alpha
    /// and a few more; time passes.
    #[test]
    fn dead_counters_are_found_out() {
        let tried = |number: u32| {
            let events = [
                (Role::Instructions, u64::from(c::PERF_COUNT_SW_TASK_CLOCK)),
                (Role::Stack(1), u64::from(number)),
            ];
            let counters = Counters::of_software(&events);
            let [planned] = &counters.pmus[..] else { panic!("one PMU") };
            let grouping = Grouping { groups: planned.groups.clone(), refused: Vec::new() };
            tells(&plan(&ARM_CYCLES), &grouping, |_| planned.specs[0].clone())
        };
        if Counters::of_software(&[(Role::Cycles, 1)]).open(Tid(0), Start::Now).is_err() {
            println!("skipped: no events can be opened here");
            return;
        }
        let dead = "STALL_FRONTEND and STALL_BACKEND stay at 0";
        assert_eq!(tried(c::PERF_COUNT_SW_EMULATION_FAULTS), Err(dead.to_owned()));
        assert_eq!(tried(c::PERF_COUNT_SW_TASK_CLOCK), Ok(()));
    }

    #[test]
    fn a_refused_event_is_named() {
        let refused = vec![Role::Stack(3)];
        let why = tells(&plan(&POWER8), &Grouping { refused, ..Grouping::default() }, |_| vec![]);
        assert_eq!(
            why.unwrap_err(),
            "expected to count PM_CMPLU_STALL_THRD for POWER8 CPI breakdown, top level, refused"
        );
    }
}
