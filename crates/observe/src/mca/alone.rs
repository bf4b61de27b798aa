//! How long a block takes alone, and what of that its dependencies ask for.

use super::{Figures, Instruction, Mca, McaError, Target};
use std::collections::BTreeMap;

/// Slots a cycle of a front end that is never the limit: more than any processor has.
const WIDE: u32 = 64;
/// Instructions of the shorter run: some times the size of any reorder buffer, so that the difference
/// to the longer one is of the steady state.
const LEAST_INSTRUCTIONS: usize = 2048;
/// Cycles of the shorter run are enough even if its instructions are fewer: each waits for another.
const MOST_CYCLES: usize = 8_192;
/// Rounds of the shorter run. Few rounds of a long block still have to reach the steady state.
const ROUNDS: std::ops::RangeInclusive<usize> = 4..=512;
/// How much longer the second run is.
const LONGER: usize = 3;
/// Rounds of a first run that says how many cycles a round takes, about.
const PILOT: u32 = 2;
/// Leaves out of the report what is large and not needed for a loop's time.
const TIMES_ONLY: [&str; 2] = ["--instruction-info=false", "--resource-pressure=false"];
/// What takes a place in the reorder buffer and nothing else.
const NOTHING: &str = "nop";
/// Relative: differences of one cycle in the longest runs do not count.
const NEAR: f64 = 1e-3;

/// A simulated loop.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Cycles that a round takes.
    pub cycles: f64,
    /// Slots a cycle.
    pub width: u32,
}

/// Cycles of a round of a block.
pub struct Alone {
    as_it_is: Timed,
    wide: f64,
    divided: Option<f64>,
}

impl Alone {
    /// All figures of the block of `instructions`.
    #[allow(clippy::cast_precision_loss)] // thousands
    pub fn figures(self, instructions: Vec<Instruction>) -> Figures {
        let count = instructions.len() as f64;
        let mut ports: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for (set, cycles) in instructions.iter().flat_map(|instruction| &instruction.ports) {
            *ports.entry(set.clone()).or_default() += cycles / count;
        }
        let slots: u32 = instructions.iter().map(|instruction| instruction.slots).sum();
        // A greedy front end can fill a scheduler with the wrong instructions; it is no limit of
        // dependencies if the narrow one does better.
        let wide = self.wide.min(self.as_it_is.cycles);
        Figures {
            slots: f64::from(slots) / count,
            ports: ports.into_iter().collect(),
            cycles: self.as_it_is.cycles / count,
            dependent_cycles: wide / count,
            dependent_cycles_divided: self.divided.map(|divided| {
                // No-operations retire, too, and with them in between no more than half of what retires
                // in a cycle is the block's. That is no dependency: it counts only if the block is
                // slower than alone.
                let slower = divided > self.as_it_is.cycles * (1.0 + NEAR);
                (if slower { divided } else { wide }) / count
            }),
            width: self.as_it_is.width,
            instructions,
        }
    }
}

impl Mca {
    /// Each of `codes` alone: as it is, with a wide front end, and with half of the reorder buffer.
    pub(super) fn alone(
        &self,
        target: &Target,
        codes: &[Vec<String>],
    ) -> Result<Vec<Result<Alone, McaError>>, McaError> {
        let as_it_is = self.rounds(target, &[], codes)?;
        let wide = self.rounds(target, &[&format!("--dispatch={WIDE}")], codes)?;
        let divided = self.divided(target, codes)?;
        let all = as_it_is.into_iter().zip(wide).zip(divided);
        Ok(all
            .map(|((as_it_is, wide), divided)| {
                Ok(Alone { as_it_is: as_it_is?, wide: wide?.cycles, divided })
            })
            .collect())
    }

    fn divided(
        &self,
        target: &Target,
        codes: &[Vec<String>],
    ) -> Result<Vec<Option<f64>>, McaError> {
        let texts = texts(target, codes);
        let nothing = self.regions(target, &[super::TABLE], &[NOTHING.to_owned()])?.regions;
        let divides = matches!(&nothing[..],
            [Ok(region)] if region.slots() == [1] && region.pressure(0).is_empty());
        if !divides {
            return Ok(vec![None; codes.len()]);
        }
        let tables = self.regions(target, &[super::TABLE], &texts)?.regions;
        let spread = |(code, table): (&Vec<String>, &Result<_, _>)| {
            let slots = table.as_ref().map_or(Vec::new(), super::Region::slots);
            let with = |(text, slots): (&String, u32)| {
                let nothings = std::iter::repeat_n(NOTHING.to_owned(), slots as usize);
                std::iter::once(text.clone()).chain(nothings).collect::<Vec<_>>()
            };
            code.iter().zip(slots).flat_map(with).collect()
        };
        let spread: Vec<Vec<String>> = codes.iter().zip(&tables).map(spread).collect();
        let timed = self.rounds(target, &[&format!("--dispatch={WIDE}")], &spread)?;
        Ok(timed.into_iter().map(|timed| timed.ok().map(|timed| timed.cycles)).collect())
    }

    /// The steady state of each of `codes` as a loop. Codes of similar length share runs.
    pub(super) fn rounds(
        &self,
        target: &Target,
        arguments: &[&str],
        codes: &[Vec<String>],
    ) -> Result<Vec<Result<Timed, McaError>>, McaError> {
        let arguments: &[&str] = &[arguments, &TIMES_ONLY].concat();
        let pilot = self.regions(
            target,
            &[arguments, &[&format!("--iterations={PILOT}")]].concat(),
            &texts(target, codes),
        )?;
        let mut by_rounds: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, (code, pilot)) in codes.iter().zip(&pilot.regions).enumerate() {
            let cycles = pilot.as_ref().ok().and_then(|region| region.cycles()).unwrap_or_default();
            by_rounds.entry(enough(code.len(), cycles)).or_default().push(at);
        }
        let mut all: Vec<_> = codes.iter().map(|_| Err(McaError::Empty)).collect();
        for (rounds, places) in by_rounds {
            let codes: Vec<Vec<String>> = places.iter().map(|&at| codes[at].clone()).collect();
            for (at, timed) in places.iter().zip(self.timed(target, arguments, &codes, rounds)?) {
                all[*at] = timed;
            }
        }
        Ok(all)
    }

    #[allow(clippy::cast_precision_loss)] // cycles of a run are far below 2^53
    fn timed(
        &self,
        target: &Target,
        arguments: &[&str],
        codes: &[Vec<String>],
        rounds: usize,
    ) -> Result<Vec<Result<Timed, McaError>>, McaError> {
        let texts = texts(target, codes);
        let run = |rounds: usize| {
            let iterations = format!("--iterations={rounds}");
            self.regions(target, &[arguments, &[iterations.as_str()]].concat(), &texts)
        };
        let (short, long) = (run(rounds)?.regions, run(LONGER * rounds)?.regions);
        let steady = |(short, long): (Result<super::Region, McaError>, _)| {
            let (short, long) = (short?, long?);
            let cycles = |region: &super::Region| region.cycles().unwrap_or_default() as f64;
            Ok(Timed {
                cycles: (cycles(&long) - cycles(&short)) / ((LONGER - 1) * rounds) as f64,
                width: short.width().unwrap_or_default(),
            })
        };
        Ok(short.into_iter().zip(long).map(steady).collect())
    }
}

fn texts(target: &Target, codes: &[Vec<String>]) -> Vec<String> {
    codes.iter().map(|code| target.marked(&code.join("\n"))).collect()
}

/// Rounds of the shorter run of a code of `instructions` that took `cycles` for the pilot's.
fn enough(instructions: usize, cycles: u64) -> usize {
    let a_round = usize::try_from(cycles / u64::from(PILOT)).unwrap_or(MOST_CYCLES);
    let by_cycles = MOST_CYCLES / a_round.max(1);
    let rounds = (LEAST_INSTRUCTIONS / instructions.max(1)).min(by_cycles);
    rounds.next_power_of_two().clamp(*ROUNDS.start(), *ROUNDS.end())
}
