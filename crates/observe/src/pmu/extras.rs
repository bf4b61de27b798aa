//! What counters show of a demand vector beside the mix: micro-operations, mispredicted branches and
//! misses, for each instruction.
//!
//! An event is counted together with the instructions, so a figure is right for the time it was counted,
//! whatever else takes turns; the source of a component says for how much of the time that was. What no
//! event counts, or what looks like a counter that never counts, is unknown.
//!
//! Stalled cycles are not among them: counters attribute them to what the core waited for last, and the
//! component `stall-cycles` is what is left when ports and caches are taken away.

use super::events::{Bundle, Code, Event, Group, Reading, Role, Source};
use super::table::Family;

pub use super::events::{Extra, ExtraRow};
use colocate_machine::Bytes;
use colocate_model::phase::Known;
use colocate_model::{MissCurve, Phase, Profile, Share, ThreadProfile};

/// What to count on a processor of `family` beside the mix; `None` is one that the table does not know,
/// which gets perf's generic event `branch-misses`.
#[must_use]
pub fn wanted(family: Option<&Family>, has: impl Fn(Code) -> bool) -> Vec<Bundle> {
    /// perf's number of its generic event (`enum perf_hw_id`, linux/perf_event.h).
    const BRANCH_MISSES: u64 = 5;
    let event =
        |extra, source| vec![Event { role: Role::Extra(extra), base: Role::Instructions, source }];
    let Some(family) = family else {
        return vec![event(Extra::BranchMisses, Source::Generic(BRANCH_MISSES))];
    };
    let there = family.extras.iter().filter(|row| has(row.code));
    there.map(|row| event(row.extra, Source::Raw(row.code))).collect()
}

/// A figure for each instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerInstruction {
    /// The figure.
    pub figure: f64,
    /// For which part of the thread's time it was counted; `None` for all of it.
    pub counted: Option<Share>,
}

/// The figures of one thread, by place in [`Extra::ALL`]; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extras([Option<PerInstruction>; Extra::ALL.len()]);

/// Fewer instructions than this are too few to take a count of 0 for a counter that never counts. As for
/// shares of classes.
const ENOUGH: u64 = 1_000_000;

impl Extras {
    /// The figure, if it is known.
    #[must_use]
    pub fn get(&self, extra: Extra) -> Option<PerInstruction> {
        self.0[extra.place()]
    }

    /// Takes in what a group counted that was due for `due_ns`.
    pub fn add(&mut self, group: &Group, reading: &Reading, due_ns: u64) {
        let part = Share::of(reading.running_ns, due_ns);
        let counted = part.filter(|_| reading.running_ns < due_ns);
        let whole = group.count_of(Role::Instructions, &reading.counts).unwrap_or(0);
        for extra in Extra::ALL {
            let Some(count) = group.count_of(Role::Extra(extra), &reading.counts) else { continue };
            let silent = count == 0 && whole >= ENOUGH;
            if whole > 0 && !silent {
                #[allow(clippy::cast_precision_loss)] // a rate needs 15 digits at most
                let figure = count as f64 / whole as f64;
                self.0[extra.place()] = Some(PerInstruction { figure, counted });
            }
        }
    }

    /// The figures of a thread that ran on cores of several kinds: weighted by instructions, unknown if one
    /// of the kinds does not know them. Misses are unknown, since the kinds' caches differ.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // weights need 15 digits at most
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

/// The event of each of [`Extra::ALL`] on this machine; `None` where there is none.
pub type Events = [Option<String>; Extra::ALL.len()];

/// The events that `groups` count.
#[must_use]
pub fn events<'a>(groups: impl Iterator<Item = &'a Group>) -> Events {
    let mut events = Events::default();
    for event in groups.flat_map(|group| &group.events) {
        let Role::Extra(extra) = event.role else { continue };
        let name = match event.source {
            Source::Raw(code) => code.name,
            Source::Generic(_) | Source::Software(_) => "branch-misses",
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

/// What counters show of a thread's demand, on a machine whose data caches have the sizes `caches`, by
/// level: the last is the last that is counted, or misses are unknown.
#[must_use]
pub fn phase(
    thread: &ThreadProfile,
    profile: &Profile,
    extras: &Extras,
    events: &Events,
    caches: &[(u8, Bytes)],
) -> Phase {
    let mut phase = Phase::of_thread(thread, profile);
    let on = profile.processor.as_deref().map_or(String::new(), |name| format!(" on {name}"));
    let source = |extra: Extra| {
        let event = events[extra.place()].as_deref().unwrap_or("an event");
        let counted = extras.get(extra).and_then(|one| one.counted);
        let turns = counted.map_or(String::new(), |part| format!(", in turns, {part} of the time"));
        format!("counted: {event} over instructions{on}{turns}")
    };
    let figure = |extra: Extra| extras.get(extra).map(|one| one.figure);
    if let Some(slots) = figure(Extra::Slots) {
        phase.slots = Known::new(slots, source(Extra::Slots));
    }
    if let Some(misses) = figure(Extra::BranchMisses).filter(|misses| *misses <= 1.0) {
        phase.branch_misses = Known::new(misses, source(Extra::BranchMisses));
    }
    if let Some((curve, levels)) = curve(extras, caches) {
        let sources: Vec<String> =
            levels.into_iter().map(|level| source(Extra::Misses(level))).collect();
        // Of the last one it had what others left it.
        phase.misses = Known::new(curve, sources.join("; "));
    }
    phase
}

/// The misses at this machine's sizes, and the levels that are in it. Known if the nearest and the last
/// cache are: a curve is level behind its last point, which is wrong unless memory comes next.
fn curve(extras: &Extras, caches: &[(u8, Bytes)]) -> Option<(MissCurve, Vec<u8>)> {
    let (first, last) = (caches.first()?.0, caches.last()?.0);
    let mut points: Vec<(u8, Bytes, f64)> = Vec::new();
    for &(level, size) in caches {
        let Some(found) = extras.get(Extra::Misses(level)) else { continue };
        // Events of several levels do not count quite the same; more cache is never taken to miss more.
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
