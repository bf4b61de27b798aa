//! Cycles of a block alone, and the cycles of its dependencies.

use super::{
    BlockDemand, Each, Instruction, McaError, McaRegion, TABLE, TargetProcessor, TargetRun,
};
use std::collections::BTreeMap;

/// Dispatch width of an unlimited front end: wider than any processor's.
const WIDE: u32 = 64;
/// Instructions of the shorter run: several times any reorder buffer, so the difference to the
/// longer run is of the steady state.
const LEAST_INSTRUCTIONS: usize = 2048;
/// Cycles that suffice for the shorter run: with few instructions, each waits for another.
const MOST_CYCLES: usize = 8_192;
/// Rounds of the shorter run. A few rounds of a long block still reach the steady state.
const ROUNDS: std::ops::RangeInclusive<usize> = 4..=512;
/// Ratio of the longer run to the shorter run.
const LONGER: usize = 3;
/// Rounds of the pilot run, which estimates the cycles of a round.
const PILOT: u32 = 2;
/// Leaves large parts out of the report that timing a loop does not need.
const TIMES_ONLY: [&str; 2] = ["--instruction-info=false", "--resource-pressure=false"];
/// No-operation: takes a place in the reorder buffer and no other resource.
const NOTHING: &str = "nop";
/// Relative tolerance: ignores one cycle in the longest run.
const NEAR: f64 = 1e-3;

/// Timing of a simulated loop.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Cycles per round.
    pub cycles: f64,
    /// Dispatch width in slots per cycle.
    pub width: u32,
}

/// Cycles per round of a block, under three configurations.
pub struct SoloTimings {
    as_it_is: Timed,
    wide: f64,
    divided: Option<f64>,
}

impl SoloTimings {
    /// All figures of the block of `instructions`.
    pub fn figures(self, instructions: Vec<Instruction>) -> BlockDemand {
        let count = instructions.len() as f64;
        let mut ports: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for (set, cycles) in instructions.iter().flat_map(|instruction| &instruction.ports) {
            *ports.entry(set.clone()).or_default() += cycles / count;
        }
        let slots: u32 = instructions.iter().map(|instruction| instruction.slots).sum();
        // A greedy front end can fill a scheduler with the wrong instructions. If the narrow front
        // end is faster, the difference is no dependency.
        let wide = self.wide.min(self.as_it_is.cycles);
        BlockDemand {
            slots: f64::from(slots) / count,
            ports: ports.into_iter().collect(),
            cycles: self.as_it_is.cycles / count,
            dependent_cycles: wide / count,
            dependent_cycles_divided: self.divided.map(|divided| {
                // No-operations retire, too, so at most half of the instructions retired in a cycle
                // are the block's. This limit is no dependency: it counts only if the block is
                // slower than alone.
                let slower = divided > self.as_it_is.cycles * (1.0 + NEAR);
                (if slower { divided } else { wide }) / count
            }),
            width: self.as_it_is.width,
            instructions,
        }
    }
}

impl TargetRun<'_> {
    /// Times each of `codes` unchanged, with a wide front end, and with half a reorder buffer.
    pub(super) fn alone(&self, codes: &[Vec<String>]) -> Each<SoloTimings> {
        let as_it_is = self.rounds(&[], codes)?;
        let wide = self.rounds(&[&format!("--dispatch={WIDE}")], codes)?;
        let all = as_it_is.into_iter().zip(wide).zip(self.divided(codes)?);
        let timings = all.map(|((as_it_is, wide), divided)| {
            Ok(SoloTimings { as_it_is: as_it_is?, wide: wide?.cycles, divided })
        });
        Ok(timings.collect())
    }

    fn divided(&self, codes: &[Vec<String>]) -> Result<Vec<Option<f64>>, McaError> {
        let nothing = self.regions(&[TABLE], &[NOTHING.to_owned()])?.regions;
        let divides = matches!(&nothing[..],
            [Ok(region)] if region.slots() == [1] && region.pressure(0).is_empty());
        if !divides {
            return Ok(vec![None; codes.len()]);
        }
        let tables = self.regions(&[TABLE], &texts(self.target, codes))?.regions;
        let slots = tables.iter().map(|table| table.as_ref().map_or(Vec::new(), McaRegion::slots));
        let spread: Vec<Vec<String>> =
            codes.iter().zip(slots).map(|(code, slots)| spread(code, &slots)).collect();
        let timed = self.rounds(&[&format!("--dispatch={WIDE}")], &spread)?;
        Ok(timed.into_iter().map(|timed| timed.ok().map(|timed| timed.cycles)).collect())
    }

    /// Steady state of each of `codes` as a loop. Codes of similar length share runs.
    pub(super) fn rounds(&self, arguments: &[&str], codes: &[Vec<String>]) -> Each<Timed> {
        let arguments: &[&str] = &[arguments, &TIMES_ONLY].concat();
        let pilot = self.iterate(arguments, &texts(self.target, codes), PILOT as usize)?;
        let mut by_rounds: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, (code, pilot)) in codes.iter().zip(&pilot).enumerate() {
            let cycles = pilot.as_ref().map_or(0, |region| region.summary.cycles);
            by_rounds.entry(enough(code.len(), cycles)).or_default().push(at);
        }
        let mut all: Vec<_> = codes.iter().map(|_| Err(McaError::Empty)).collect();
        for (rounds, places) in by_rounds {
            let codes: Vec<Vec<String>> = places.iter().map(|&at| codes[at].clone()).collect();
            let texts = texts(self.target, &codes);
            let short = self.iterate(arguments, &texts, rounds)?;
            let long = self.iterate(arguments, &texts, LONGER * rounds)?;
            for ((at, short), long) in places.into_iter().zip(short).zip(long) {
                all[at] = short.and_then(|short| Ok(steady(&short, &long?, rounds)));
            }
        }
        Ok(all)
    }

    /// Simulates `rounds` rounds of each of `texts`.
    fn iterate(&self, arguments: &[&str], texts: &[String], rounds: usize) -> Each<McaRegion> {
        let iterations = format!("--iterations={rounds}");
        Ok(self.regions(&[arguments, &[iterations.as_str()]].concat(), texts)?.regions)
    }
}

/// Steady state of a loop by runs of `rounds` and [`LONGER`] times `rounds` rounds: the difference
/// has neither the filling nor the draining of the pipeline.
fn steady(short: &McaRegion, long: &McaRegion, rounds: usize) -> Timed {
    let cycles = long.summary.cycles as f64 - short.summary.cycles as f64;
    Timed { cycles: cycles / ((LONGER - 1) * rounds) as f64, width: short.summary.width }
}

/// `code` with as many no-operations after each instruction as the instruction has slots.
fn spread(code: &[String], slots: &[u32]) -> Vec<String> {
    let mut spread = Vec::new();
    for (text, slots) in code.iter().zip(slots) {
        spread.push(text.clone());
        spread.extend(std::iter::repeat_n(NOTHING.to_owned(), *slots as usize));
    }
    spread
}

fn texts(target: &TargetProcessor, codes: &[Vec<String>]) -> Vec<String> {
    codes.iter().map(|code| target.marked(&code.join("\n"))).collect()
}

/// Rounds of the shorter run of a code of `instructions` whose pilot run took `cycles`.
fn enough(instructions: usize, cycles: u64) -> usize {
    let a_round = usize::try_from(cycles / u64::from(PILOT)).unwrap_or(MOST_CYCLES);
    let by_cycles = MOST_CYCLES / a_round.max(1);
    let rounds = (LEAST_INSTRUCTIONS / instructions.max(1)).min(by_cycles);
    // Few different numbers of rounds, so that codes share runs.
    rounds.next_power_of_two().clamp(*ROUNDS.start(), *ROUNDS.end())
}
