//! Where cycles went: which events show it on which processor, and what they say.
//!
//! # Problem
//! A scheduler that chooses which threads share a core needs to know what they spend their cycles on (CPI stacks).
//! Every maker counts that differently, rarely with one counter for each part, and where counters take turns
//! the parts do not add up.
//! # Approach
//! For each family of processors a table: parts, events, and how the ones follow from the others. Between two
//! readings of a thread the events are scaled to the time that they were due, turned into parts, and these made to
//! add up to the cycles of the same time. By how much they missed them is kept.
//! # Terms
//! - *Slots*: micro-operations that the front end could have handed on: so many a cycle of the thread.
//! - *Rest*: the part that no event counts, all cycles less the others.
//! - *Off*: the share of the cycles that the parts missed, or exceeded, before they were scaled.
//! # Algorithm
//! 1. Scale each event by the time due over the time counted, as all counts ([`super::scale`]).
//! 2. Parts as the table's [`Formula`] says, as shares of the cycles.
//! 3. A part below 0 is 0; what it was below, and what the sum was away from 1, is how much the stack is off.
//! 4. Off by more than [`LARGEST_GAP`]: unknown. Else all parts are scaled to add up to the cycles.
//! # Properties
//! - **Adds up**: parts are not below 0, and add up to the cycles. -> test `adds_up_or_is_unknown`
//! - **Unknown stays unknown**: an event that had no turn, or too short a one, or none that ever counted, gives no
//!   stack, and neither do counters of which nothing retires. -> tests `an_event_without_its_turn`,
//!   `counters_that_stay_at_0`
//! - **Turns do not matter**: if a program is alike all the time, a stack from scaled counts is that from all.
//!   -> test `turns_change_nothing`
//! # Sources
//! Codes as in [`super::table`]. Formulas: Intel's top-down level 1 (Yasin, "A Top-Down Method for Performance
//! Analysis and Counters Architecture", ISPASS 2014; `tma_*` of the kernel's
//! `tools/perf/pmu-events/arch/x86/*/*-metrics.json`); AMD's pipeline utilization, level 1
//! (`.../amdzen4/pipeline.json`, `.../amdzen5/pipeline.json`); Arm's top-down (`.../arch/arm64/sbsa.json` and
//! `.../arm/neoverse-n2-v2/metrics.json`) and its cycles without dispatch (Arm ARM, D13, STALL_FRONTEND,
//! STALL_BACKEND); POWER8's CPI breakdown (`.../arch/powerpc/power8/metrics.json`).
//! Intel's register is taken as it is: the kernel's `tma_frontend_bound` takes away from the front end what
//! `INT_MISC.UOP_DROPPING` counts, and gives it to bad speculation.
//! None of them could be tried on its processor here.

use super::cpu::Cpu;
use super::events::{Bundle, Code, Event, Group, Reading, Role, Source};
use super::scale::{ENOUGH, counted};
use super::sysfs::CorePmu;

pub use super::events::{Formula, MOST_EVENTS, StackTable};
use super::table;
use colocate_model::stack::{MOST_PARTS, Parts, Stack};
use thiserror::Error;

/// How much a stack may be off. Chosen: Intel's fractions have steps of 1 in 255 each, and counters that take
/// turns miss some of it; beyond a tenth they have not seen the same program.
pub const LARGEST_GAP: f64 = 0.1;

/// Intel's event that has to lead its group.
const SLOTS: Code = Code { name: "TOPDOWN:SLOTS", config: 0x400 };

/// Arm's tables, which go by what the kernel lists and not by the model, best first.
#[must_use]
pub fn arm() -> [&'static StackTable; 2] {
    [table::stack("arm-slots"), table::stack("arm-cycles")]
}

/// A table, ready to be used on one kind of cores.
#[derive(Clone, Copy, Debug)]
pub struct StackPlan {
    /// Which.
    pub table: &'static StackTable,
    /// Slots of a cycle, where the kernel says them; else 0.
    pub width: f64,
}

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum NoStack {
    /// An event never had its turn, or for too little of the time, or nothing ran.
    #[error("expected every event to be counted, found one that never had its turn")]
    NotCounted,
    /// Events stayed at 0 that cannot: none counted anything, or nothing retired in a million cycles.
    #[error("expected stalls and what retires to be counted, found events that stay at 0")]
    Silent,
    /// The parts do not belong together.
    #[error(
        "expected parts that add up to the cycles within {LARGEST_GAP}, found them {0:.2} away"
    )]
    Apart(f64),
}

/// The table for the cores of `pmu`.
///
/// # Errors
/// Why there is none, in a line.
pub fn plan(pmu: &CorePmu) -> Result<StackPlan, String> {
    let width = pmu.slots.map_or(0.0, f64::from);
    if let Some(table) = pmu.family.and_then(|family| family.stack) {
        return Ok(StackPlan { table, width });
    }
    if !matches!(pmu.cpu, Cpu::Arm { .. }) {
        let name = pmu.family.map_or_else(|| pmu.cpu.to_string(), |family| family.name.to_owned());
        return Err(format!("no events are known that show where cycles go on {name}"));
    }
    let listed = |table: &StackTable| {
        table.events.iter().all(|code| pmu.listed.contains(&code.name.to_lowercase()))
    };
    let usable =
        |table: &&StackTable| listed(table) && (table.formula != Formula::Sent || width > 0.0);
    let table = arm().into_iter().find(usable);
    table.map(|table| StackPlan { table, width }).ok_or_else(|| {
        "expected STALL_FRONTEND and STALL_BACKEND among the events that the kernel lists"
            .to_owned()
    })
}

/// The events, in bundles that may be counted at different times.
#[must_use]
pub fn wanted(plan: &StackPlan) -> Vec<Bundle> {
    let event = |(place, code): (u8, &Code)| Event {
        role: Role::Stack(place),
        base: Role::Instructions,
        source: Source::Raw(*code),
    };
    let events = (0..).zip(&plan.table.events).map(event);
    match plan.table.formula {
        Formula::Slots => vec![events.collect()],
        _ => events.map(|event| vec![event]).collect(),
    }
}

/// Whether a bundle's first event has to lead its group: the kernel refuses Intel's parts elsewhere.
#[must_use]
pub fn leads(bundle: &[Event]) -> bool {
    bundle.first().is_some_and(|event| event.source == Source::Raw(SLOTS))
}

/// The stack of what was counted between two readings by `groups`, whose differences are `readings`.
///
/// `alone` says that the PMU is the machine's only one, see [`super::scale::totals`].
///
/// # Errors
/// [`NoStack`] if it is not known.
pub fn of_readings(
    plan: &StackPlan,
    groups: &[Group],
    readings: &[Reading],
    alone: bool,
) -> Result<Stack, NoStack> {
    let count = |role: Role| counted(role, groups, readings, alone);
    let mut counts = [0.0; MOST_EVENTS];
    for (place, (to, _)) in (0..).zip(counts.iter_mut().zip(&plan.table.events)) {
        *to = float(count(Role::Stack(place)).ok_or(NoStack::NotCounted)?);
    }
    let cycles = float(count(Role::Cycles).ok_or(NoStack::NotCounted)?);
    of_counts(plan, counts, cycles)
}

#[allow(clippy::cast_precision_loss)] // counts between two readings are far below 2^53
fn float(count: u64) -> f64 {
    count as f64
}

/// The stack of `counts`, scaled and in the order of the table's events, in so many `cycles`.
///
/// # Errors
/// [`NoStack`] if it is not known.
pub fn of_counts(
    plan: &StackPlan,
    counts: [f64; MOST_EVENTS],
    cycles: f64,
) -> Result<Stack, NoStack> {
    let events = &counts[..plan.table.events.len()];
    if cycles <= 0.0 {
        return Err(NoStack::NotCounted);
    }
    let retired = retired(plan.table.formula).map_or(1.0, |place| events[place]);
    let nothing_retires = retired == 0.0 && cycles >= float(ENOUGH);
    if nothing_retires || events.iter().all(|count| *count == 0.0) {
        return Err(NoStack::Silent);
    }
    let shares = shares(plan, events, cycles)?;
    whole(plan.table.parts, &shares[..plan.table.parts.len()], cycles)
}

/// The place of the event that counts what retires and cannot be 0 for long. Intel's register has shares of 255,
/// and of a program that waits for memory all the time less than one retires.
fn retired(formula: Formula) -> Option<usize> {
    match formula {
        Formula::OfWidth(_) | Formula::OfWidthAndRest(_) => Some(0),
        Formula::FourIssued | Formula::Sent => Some(2),
        Formula::Slots | Formula::CyclesAndRest => None,
    }
}

/// The share of each part according to the events; they may be below 0, and need not add up.
fn shares(plan: &StackPlan, events: &[f64], cycles: f64) -> Result<[f64; MOST_PARTS], NoStack> {
    let mut shares = [0.0; MOST_PARTS];
    let each = |shares: &mut [f64; MOST_PARTS], events: &[f64], all: f64| {
        shares.iter_mut().zip(events).for_each(|(share, count)| *share = count / all);
        1.0 - events.iter().fold(0.0, |sum, count| sum + count) / all
    };
    match (plan.table.formula, events) {
        (Formula::Slots, [slots, parts @ ..]) if *slots > 0.0 => {
            each(&mut shares, parts, *slots);
        }
        (Formula::OfWidth(width), parts) => {
            each(&mut shares, parts, width * cycles);
        }
        (Formula::OfWidthAndRest(width), parts) => {
            shares[parts.len()] = each(&mut shares, parts, width * cycles);
        }
        (Formula::CyclesAndRest, parts) => shares[parts.len()] = each(&mut shares, parts, cycles),
        (Formula::FourIssued, &[lost, issued, retired, recovery, alone, time]) if time > 0.0 => {
            shares[..4].copy_from_slice(&four(
                lost,
                issued,
                retired,
                recovery,
                alone / time,
                cycles,
            ));
        }
        (Formula::Sent, &[frontend, backend, retired, begun]) if begun > 0.0 => {
            // Neoverse N2, with 5 slots, counts one a cycle too many for the front end (erratum; so the kernel).
            let much = if plan.width == 5.0 { cycles } else { 0.0 };
            let all = plan.width * cycles;
            let (frontend, backend) = ((frontend - much) / all, backend / all);
            let (sent, good) = (1.0 - frontend - backend, retired / begun);
            shares[..4].copy_from_slice(&[sent * good, sent * (1.0 - good), frontend, backend]);
        }
        _ => return Err(NoStack::NotCounted),
    }
    Ok(shares)
}

/// Intel's, of a thread whose sibling was halted for the share `alone` of the time. Of the core's slots a thread
/// has all then, and half of them otherwise; recovery takes those it has.
fn four(lost: f64, issued: f64, retired: f64, recovery: f64, alone: f64, cycles: f64) -> [f64; 4] {
    let own = (1.0 + alone.min(1.0)) / 2.0;
    let slots = 4.0 * cycles * own;
    let (retiring, frontend) = (retired / slots, lost / slots);
    let bad = (issued - retired + 4.0 * recovery * own) / slots;
    [retiring, bad, frontend, 1.0 - retiring - bad - frontend]
}

/// Parts that add up to `cycles`, from `shares` that nearly add up to 1.
fn whole(parts: Parts, shares: &[f64], cycles: f64) -> Result<Stack, NoStack> {
    let sum = |keep: fn(&f64) -> bool| {
        shares.iter().filter(|share| keep(share)).fold(0.0, |sum, share| sum + share)
    };
    let (above, below) = (sum(|share| *share > 0.0), sum(|share| *share < 0.0));
    let off = (above + below - 1.0).abs().max(-below);
    if off.is_nan() || off > LARGEST_GAP || above <= 0.0 {
        return Err(NoStack::Apart(off));
    }
    let each: Vec<f64> = shares.iter().map(|share| share.max(0.0) / above * cycles).collect();
    Stack::new(parts, &each, off).ok_or(NoStack::Apart(off))
}

#[cfg(test)]
mod tests;
