//! CPI stacks: the events on each family of processors, and the conversion of their counts.
//!
//! # Problem
//! A scheduler that chooses which threads share a core needs the threads' CPI stacks: the shares of
//! cycles by cause. Every maker counts these differently, rarely with one counter for each part,
//! and with multiplexed counters the parts do not add up.
//! # Approach
//! Each family of processors has a table: parts, events, and a formula from events to parts.
//! Between two readings of a thread the counts are scaled to the time due, converted to parts, and
//! the parts are scaled to the cycles of the same time. The error before the last step is kept.
//! # Terms
//! - *Slots*: micro-operations that the front end could have issued: a fixed number per cycle of
//!   the thread.
//! - *Rest*: the part without an event, all cycles less the other parts.
//! - *Off*: the share of the cycles by which the parts missed or exceeded the cycles before they
//!   were scaled.
//! # Algorithm
//! 1. Scale each event by the time due over the time counted, as all counts ([`super::scale`]).
//! 2. Compute the parts by the table's [`Formula`], as shares of the cycles.
//! 3. A part below 0 becomes 0. The stack is off by the negative parts, or by the sum's distance
//!    from 1, whichever is larger.
//! 4. Off by more than [`LARGEST_GAP`]: unknown. Else all parts are scaled to add up to the cycles.
//! # Properties
//! - **Adds up**: parts are not below 0, and add up to the cycles. -> test `adds_up_or_is_unknown`
//! - **Unknown stays unknown**: an event that had no turn, or too short a turn, or that never
//!   counted, gives no stack, and neither do counters without retired operations.
//!   -> tests `an_event_without_its_turn`, `counters_that_stay_at_0`
//! - **Turns do not matter**: for a steady program, a stack from scaled counts equals the stack
//!   from full counts. -> test `turns_change_nothing`
//! # Sources
//! Codes as in [`super::table`]. Formulas: Intel's top-down level 1 (Yasin, "A Top-Down Method for
//! Performance Analysis and Counters Architecture", ISPASS 2014; `tma_*` of the kernel's
//! `tools/perf/pmu-events/arch/x86/*/*-metrics.json`); AMD's pipeline utilization, level 1
//! (`.../amdzen4/pipeline.json`, `.../amdzen5/pipeline.json`); Arm's top-down
//! (`.../arch/arm64/sbsa.json` and `.../arm/neoverse-n2-v2/metrics.json`) and its cycles without
//! dispatch (Arm ARM, D13, STALL_FRONTEND, STALL_BACKEND); POWER8's CPI breakdown
//! (`.../arch/powerpc/power8/metrics.json`). Intel's register is taken as it is: the kernel's
//! `tma_frontend_bound` takes away from the front end what `INT_MISC.UOP_DROPPING` counts, and
//! gives it to bad speculation. None of them could be tried on its processor here.

use super::cpu::Cpu;
use super::events::{Bundle, EventCode, EventGroup, EventKind, PmuEvent, Reading, Role};
use super::scale::{ENOUGH, counted};
use super::sysfs::CorePmu;

pub use super::events::{Formula, MOST_EVENTS, StackTable};
use super::table;
use colocate_model::stack::{MOST_PARTS, Stack, StackParts};
use thiserror::Error;

/// Largest accepted gap. Chosen: Intel's fractions have steps of 1 in 255 each, and multiplexing
/// adds to the error; beyond a tenth the counters saw different code.
pub const LARGEST_GAP: f64 = 0.1;

/// Intel's event that leads its group.
const SLOTS: EventCode = EventCode { name: "TOPDOWN:SLOTS", config: 0x400 };

/// Arm's tables, best first, selected by the kernel's list of events, not by the model.
#[must_use]
pub fn arm() -> [&'static StackTable; 2] {
    [table::stack("arm-slots"), table::stack("arm-cycles")]
}

/// Table for a kind of cores.
#[derive(Clone, Copy, Debug)]
pub struct StackPlan {
    /// Table.
    pub table: &'static StackTable,
    /// Slots per cycle; 0 if not reported by the kernel.
    pub width: f64,
}

/// Reason why a stack is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum NoStack {
    /// An event without a turn, or with too little time, or no cycles.
    #[error("expected every event to be counted, found one that never had its turn")]
    NotCounted,
    /// Events that stay at 0: no event counted, or nothing retired in a million cycles.
    #[error("expected stalls and what retires to be counted, found events that stay at 0")]
    Silent,
    /// Parts and cycles differ; the gap.
    #[error(
        "expected parts that add up to the cycles within {LARGEST_GAP}, found them {0:.2} away"
    )]
    Apart(f64),
}

/// Table for the cores of `pmu`.
///
/// # Errors
/// Reason for having none, in a line.
pub fn plan(pmu: &CorePmu) -> Result<StackPlan, String> {
    let width = pmu.slots.map_or(0.0, f64::from);
    if let Some(table) = pmu.family.and_then(|family| family.stack) {
        return Ok(StackPlan { table, width });
    }
    if !matches!(pmu.cpu, Cpu::Arm { .. }) {
        let name = pmu.family.map_or_else(|| pmu.cpu.to_string(), |family| family.name.to_owned());
        return Err(format!("no events are known that show where cycles go on {name}"));
    }
    let table = arm().into_iter().find(|table| {
        // The kernel lists the names in lower case.
        table.events.iter().all(|code| pmu.listed.contains(&code.name.to_lowercase()))
            && (table.formula != Formula::Sent || width > 0.0)
    });
    table.map(|table| StackPlan { table, width }).ok_or_else(|| {
        "expected STALL_FRONTEND and STALL_BACKEND among the events that the kernel lists"
            .to_owned()
    })
}

/// Events of a stack, in bundles to be counted together.
#[must_use]
pub fn wanted(plan: &StackPlan) -> Vec<Bundle> {
    let events = (0..).zip(&plan.table.events).map(|(place, code)| PmuEvent {
        role: Role::Stack(place),
        base: Role::Instructions,
        source: EventKind::Raw(*code),
    });
    match plan.table.formula {
        Formula::Slots => vec![events.collect()],
        _ => events.map(|event| vec![event]).collect(),
    }
}

/// Whether a bundle's first event leads its group: the kernel refuses Intel's parts elsewhere.
#[must_use]
pub fn leads(bundle: &[PmuEvent]) -> bool {
    bundle.first().is_some_and(|event| event.source == EventKind::Raw(SLOTS))
}

/// CPI stack of the counts between two readings by `groups`; `readings` are their differences.
///
/// `alone` says that the PMU is the machine's only one, see [`super::scale::totals`].
///
/// # Errors
/// [`NoStack`] if the stack is unknown.
pub fn of_readings(
    plan: &StackPlan,
    groups: &[EventGroup],
    readings: &[Reading],
    alone: bool,
) -> Result<Stack, NoStack> {
    let mut counts = [0.0; MOST_EVENTS];
    for (place, (to, _)) in (0..).zip(counts.iter_mut().zip(&plan.table.events)) {
        let count = counted(Role::Stack(place), groups, readings, alone);
        *to = count.ok_or(NoStack::NotCounted)? as f64;
    }
    let cycles = counted(Role::Cycles, groups, readings, alone).ok_or(NoStack::NotCounted)?;
    of_counts(plan, counts, cycles as f64)
}

/// CPI stack of scaled `counts`, in the order of the table's events, over `cycles`.
///
/// # Errors
/// [`NoStack`] if the stack is unknown.
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
    let nothing_retires = retired == 0.0 && cycles >= ENOUGH as f64;
    if nothing_retires || events.iter().all(|count| *count == 0.0) {
        return Err(NoStack::Silent);
    }
    let shares = shares(plan, events, cycles)?;
    whole(plan.table.parts, &shares[..plan.table.parts.len()], cycles)
}

/// Index of the event that counts retired operations, which is never 0 for long. `None` for Intel's
/// register: its shares are multiples of 1/255, and a program that always waits for memory retires
/// less than one.
fn retired(formula: Formula) -> Option<usize> {
    match formula {
        Formula::OfWidth(_) | Formula::OfWidthAndRest(_) => Some(0),
        Formula::FourIssued | Formula::Sent => Some(2),
        Formula::Slots | Formula::CyclesAndRest => None,
    }
}

/// Share of each part by the events, possibly below 0; the sum need not be 1.
fn shares(plan: &StackPlan, events: &[f64], cycles: f64) -> Result<[f64; MOST_PARTS], NoStack> {
    let mut shares = [0.0; MOST_PARTS];
    match (plan.table.formula, events) {
        (Formula::Slots, [slots, parts @ ..]) if *slots > 0.0 => {
            fractions(&mut shares, parts, *slots);
        }
        (Formula::OfWidth(width), parts) => {
            fractions(&mut shares, parts, width * cycles);
        }
        (Formula::OfWidthAndRest(width), parts) => {
            shares[parts.len()] = fractions(&mut shares, parts, width * cycles);
        }
        (Formula::CyclesAndRest, parts) => {
            shares[parts.len()] = fractions(&mut shares, parts, cycles);
        }
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
            // Neoverse N2, with 5 slots, counts one slot per cycle too many for the front end
            // (erratum handled in the kernel's metrics).
            let much = if plan.width == 5.0 { cycles } else { 0.0 };
            let all = plan.width * cycles;
            let frontend = (frontend - much) / all;
            let backend = backend / all;
            let sent = 1.0 - frontend - backend;
            let good = retired / begun;
            shares[..4].copy_from_slice(&[sent * good, sent * (1.0 - good), frontend, backend]);
        }
        _ => return Err(NoStack::NotCounted),
    }
    Ok(shares)
}

/// Sets each share to its count over `all`; returns the rest.
fn fractions(shares: &mut [f64; MOST_PARTS], counts: &[f64], all: f64) -> f64 {
    shares.iter_mut().zip(counts).for_each(|(share, count)| *share = count / all);
    1.0 - counts.iter().fold(0.0, |sum, count| sum + count) / all
}
/// Intel's four parts of a thread whose sibling was halted for the share `alone` of the time. A
/// thread has all slots of the core then, and half of them otherwise; recovery takes the thread's
/// own slots.
fn four(lost: f64, issued: f64, retired: f64, recovery: f64, alone: f64, cycles: f64) -> [f64; 4] {
    // Scaled counts of two events can exceed each other.
    let own = (1.0 + alone.min(1.0)) / 2.0;
    let slots = 4.0 * cycles * own;
    let retiring = retired / slots;
    let frontend = lost / slots;
    let bad = (issued - retired + 4.0 * recovery * own) / slots;
    [retiring, bad, frontend, 1.0 - retiring - bad - frontend]
}

/// Stack of parts that add up to `cycles`, from `shares` that nearly add up to 1.
fn whole(parts: StackParts, shares: &[f64], cycles: f64) -> Result<Stack, NoStack> {
    let above = shares.iter().fold(0.0, |sum, share| sum + share.max(0.0));
    let below = shares.iter().fold(0.0, |sum, share| sum + share.min(0.0));
    let off = (above + below - 1.0).abs().max(-below);
    // A NaN is neither above nor below a limit.
    if off.is_nan() || off > LARGEST_GAP || above <= 0.0 {
        return Err(NoStack::Apart(off));
    }
    let each: Vec<f64> = shares.iter().map(|share| share.max(0.0) / above * cycles).collect();
    Stack::new(parts, &each, off).ok_or(NoStack::Apart(off))
}

#[cfg(test)]
mod tests;
