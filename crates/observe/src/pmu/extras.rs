//! Components of a demand vector from counters: micro-operations, mispredicted branches and misses,
//! per instruction.
//!
//! Each event is counted together with the instructions, so a figure is exact for the time counted,
//! even with multiplexed groups. The source of a component gives the share of time counted. A
//! component without an event is unknown, and so is one whose counter seems dead.
//!
//! Stalled cycles are not among them: counters attribute them to the last cause the core waited
//! for, but the component `stall-cycles` is the rest without ports and caches.

use super::events::{Bundle, EventCode, EventGroup, EventKind, PmuEvent, Reading, Role};
use super::table::Family;

pub use super::events::Extra;
use colocate_machine::Bytes;
use colocate_model::phase::Known;
use colocate_model::{MissCurve, Phase, Profile, Share, ThreadProfile};

/// Events to count on a processor of `family` beside the mix. `None` is a processor outside the
/// table, counted with perf's generic event `branch-misses`.
#[must_use]
pub fn wanted(family: Option<&Family>, has: impl Fn(EventCode) -> bool) -> Vec<Bundle> {
    /// Number of perf's generic event (`enum perf_hw_id`, linux/perf_event.h).
    const BRANCH_MISSES: u64 = 5;
    let Some(family) = family else {
        return vec![bundle(Extra::BranchMisses, EventKind::Generic(BRANCH_MISSES))];
    };
    let listed = family.extras.iter().filter(|(_, code)| has(*code));
    listed.map(|&(extra, code)| bundle(extra, EventKind::Raw(code))).collect()
}

fn bundle(extra: Extra, source: EventKind) -> Bundle {
    vec![PmuEvent { role: Role::Extra(extra), base: Role::Instructions, source }]
}
/// A figure per instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerInstruction {
    /// The figure.
    pub figure: f64,
    /// Share of the thread's time for which it was counted; `None` for all of it.
    pub counted: Option<Share>,
}

/// Figures of a thread, in the order of [`Extra::ALL`]; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extras([Option<PerInstruction>; Extra::ALL.len()]);

/// Instructions after which a count of 0 means a dead counter. As for shares of classes.
const ENOUGH: u64 = 1_000_000;

impl Extras {
    /// Figure of a component; `None` if unknown.
    #[must_use]
    pub fn get(&self, extra: Extra) -> Option<PerInstruction> {
        self.0[extra.place()]
    }

    /// Adds a group's reading; `due_ns` is the time for which the group should have counted.
    pub fn add(&mut self, group: &EventGroup, reading: &Reading, due_ns: u64) {
        let part = Share::of(reading.running_ns, due_ns);
        let counted = part.filter(|_| reading.running_ns < due_ns);
        let whole = group.count_of(Role::Instructions, &reading.counts).unwrap_or(0);
        for extra in Extra::ALL {
            let Some(count) = group.count_of(Role::Extra(extra), &reading.counts) else { continue };
            // A count of 0 over many instructions is taken for a dead counter, not for a fact.
            let silent = count == 0 && whole >= ENOUGH;
            if whole > 0 && !silent {
                let figure = count as f64 / whole as f64;
                self.0[extra.place()] = Some(PerInstruction { figure, counted });
            }
        }
    }

    /// Figures of a thread that ran on several kinds of cores, weighted by instructions. Unknown if
    /// a kind does not know the figure. Misses are unknown, since the kinds' caches differ.
    #[must_use]
    pub fn over_kinds(parts: &[(u64, Self)]) -> Self {
        let whole: u64 = parts.iter().map(|(instructions, _)| instructions).sum();
        let mut all = Self::default();
        for extra in Extra::ALL.into_iter().filter(|extra| !matches!(extra, Extra::Misses(_))) {
            let known: Option<Vec<(f64, PerInstruction)>> =
                parts.iter().map(|(n, part)| Some((*n as f64, part.get(extra)?))).collect();
            let Some(known) = known.filter(|_| whole > 0) else { continue };
            let sum: f64 = known.iter().map(|(weight, one)| weight * one.figure).sum();
            let counted = known.iter().filter_map(|(_, one)| one.counted);
            let counted = counted.min_by(|a, b| a.get().total_cmp(&b.get()));
            all.0[extra.place()] = Some(PerInstruction { figure: sum / whole as f64, counted });
        }
        all
    }
}

/// Event name of each component of [`Extra::ALL`] on this machine; `None` without an event.
pub type ExtraEvents = [Option<String>; Extra::ALL.len()];

/// Events that `groups` count.
#[must_use]
pub fn events<'a>(groups: impl Iterator<Item = &'a EventGroup>) -> ExtraEvents {
    let mut events = ExtraEvents::default();
    for event in groups.flat_map(|group| &group.events) {
        let Role::Extra(extra) = event.role else { continue };
        let name = match event.source {
            EventKind::Raw(code) => code.name,
            EventKind::Generic(_) | EventKind::Software(_) => "branch-misses",
        };
        let known = &mut events[extra.place()];
        match known {
            Some(names) if names.split(", ").any(|one| one == name) => {}
            Some(names) => *names += &format!(", {name}"),
            None => *known = Some(name.to_owned()),
        }
    }
    events
}

/// Counted demand of a thread. `caches` are the sizes of the machine's data caches by level. Misses
/// are unknown unless the last level is counted.
#[must_use]
pub fn phase(
    thread: &ThreadProfile,
    profile: &Profile,
    extras: &Extras,
    events: &ExtraEvents,
    caches: &[(u8, Bytes)],
) -> Phase {
    let mut phase = Phase::of_thread(thread, profile);
    let on = profile.processor.as_deref().map_or(String::new(), |name| format!(" on {name}"));
    if let Some(slots) = extras.get(Extra::Slots) {
        let source = source_of(Extra::Slots, extras, events, &on);
        phase.slots = Known::new(slots.figure, source);
    }
    let misses = extras.get(Extra::BranchMisses).filter(|misses| misses.figure <= 1.0);
    if let Some(misses) = misses {
        let source = source_of(Extra::BranchMisses, extras, events, &on);
        phase.branch_misses = Known::new(misses.figure, source);
    }
    if let Some((curve, levels)) = curve(extras, caches) {
        let levels = levels.into_iter();
        let sources = levels.map(|level| source_of(Extra::Misses(level), extras, events, &on));
        let sources: Vec<String> = sources.collect();
        // The thread had only the share of the last cache that other threads left.
        phase.misses = Known::new(curve, sources.join("; "));
    }
    phase
}

/// Source of a component's figure: event, processor, and the share of time counted.
fn source_of(extra: Extra, extras: &Extras, events: &ExtraEvents, on: &str) -> String {
    let event = events[extra.place()].as_deref().unwrap_or("an event");
    let counted = extras.get(extra).and_then(|one| one.counted);
    let turns = counted.map_or(String::new(), |part| format!(", in turns, {part} of the time"));
    format!("counted: {event} over instructions{on}{turns}")
}
/// Miss curve at this machine's cache sizes, with the levels in it. `None` unless both the nearest
/// and the last cache are known: a curve is flat after its last point, which is wrong unless memory
/// comes next.
fn curve(extras: &Extras, caches: &[(u8, Bytes)]) -> Option<(MissCurve, Vec<u8>)> {
    let first = caches.first()?.0;
    let last = caches.last()?.0;
    let mut points: Vec<(u8, Bytes, f64)> = Vec::new();
    for &(level, size) in caches {
        let Some(found) = extras.get(Extra::Misses(level)) else { continue };
        // Levels' events count slightly different things; larger caches never miss more.
        let figure = points.last().map_or(found.figure, |(_, _, before)| found.figure.min(*before));
        points.push((level, size, figure));
    }
    let levels: Vec<u8> = points.iter().map(|(level, ..)| *level).collect();
    if levels.first() != Some(&first) || levels.last() != Some(&last) {
        return None;
    }
    let curve = MissCurve::new(points.into_iter().map(|(_, size, misses)| (size, misses)));
    curve.ok().map(|curve| (curve, levels))
}

#[cfg(test)]
mod tests;
