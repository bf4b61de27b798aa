//! The runs: alone and beside copies, in blocks of random order.
//!
//! # Properties
//! - **Complete**: each block holds one run alone and one under each condition. -> test `blocks_are_complete`
//! - **Warm**: the first run counts for nothing.                                -> test `the_first_run_is_not_kept`

use super::figures::{Condition, Copied, Run};
use super::program::{Program, Times};
use anyhow::Context;
use colocate_machine::Nanos;
use colocate_study::order;
use smt_bench::thread::wall_ns;
use smt_bench::traffic::{Generator, Tally};
use std::time::Duration;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What the program took.
    pub times: Times,
    /// What each copy did meanwhile.
    pub copies: Vec<Copied>,
}

/// A machine on which the program can run beside copies: this one, or a pretended one in tests.
pub trait Beside {
    /// Runs the program once; `None` if somebody asked to stop.
    ///
    /// # Errors
    /// If the program cannot be run.
    fn run(&mut self, beside: Option<Condition>) -> anyhow::Result<Option<Measured>>;
}

/// How many runs are made.
pub fn runs(conditions: usize, repeat: u32) -> u64 {
    1 + (conditions as u64 + 1) * u64::from(repeat)
}

/// Makes all runs, after one that is not counted: it brings the program and its files into memory. `done` is
/// called after each. `None` if somebody asked to stop.
///
/// # Errors
/// As [`Beside::run`].
pub fn measure(
    machine: &mut dyn Beside,
    conditions: &[Condition],
    repeat: u32,
    seed: u64,
    done: &mut dyn FnMut(),
) -> anyhow::Result<Option<Vec<Run>>> {
    if machine.run(None)?.is_none() {
        return Ok(None);
    }
    done();
    let mut all = Vec::new();
    for slot in order::blocks(conditions.len() + 1, repeat, seed) {
        // The one after the last is alone.
        let beside = conditions.get(slot.policy).copied();
        let found = machine.run(beside).with_context(|| said(beside))?;
        let Some(Measured { times, copies }) = found else { return Ok(None) };
        all.push(Run { block: slot.block, beside, wall_ns: times.wall, cpu_ns: times.cpu, copies });
        done();
    }
    Ok(Some(all))
}

fn said(beside: Option<Condition>) -> String {
    beside.map_or("alone".to_owned(), |Condition { rate, copies }| {
        format!("beside {copies} at {rate} t/µs")
    })
}

/// This machine.
pub struct Here {
    /// The program.
    pub program: Program,
    /// As many as there are PUs for them.
    pub generators: Vec<Generator>,
    /// How often a copy does nothing, for each rate.
    pub nops: Vec<(f64, u64)>,
}

/// How long copies ask for lines before the program begins. Chosen: caches have theirs then; 105 MiB at 10 t/µs
/// take 172 ms.
const BEFORE: Duration = Duration::from_millis(200);

impl Beside for Here {
    fn run(&mut self, beside: Option<Condition>) -> anyhow::Result<Option<Measured>> {
        let busy = beside.map_or(0, |beside| beside.copies as usize).min(self.generators.len());
        let nops = beside.and_then(|beside| {
            self.nops.iter().find(|(rate, _)| *rate == beside.rate).map(|(_, nops)| *nops)
        });
        let busy = &self.generators[..busy];
        for (generator, nops) in busy.iter().zip(nops.into_iter().cycle()) {
            generator.ask(nops);
        }
        if !busy.is_empty() {
            std::thread::sleep(BEFORE);
        }
        let before = look(busy);
        let found = self.program.run();
        let after = look(busy);
        busy.iter().for_each(Generator::rest);
        Ok(found?.map(|times| Measured { times, copies: copied(&before, &after) }))
    }
}

/// What a copy has done until a moment.
struct Look {
    at: Nanos,
    tally: Tally,
}

fn look(generators: &[Generator]) -> Vec<Look> {
    generators.iter().map(|each| Look { at: Nanos(wall_ns()), tally: each.tally() }).collect()
}

fn copied(before: &[Look], after: &[Look]) -> Vec<Copied> {
    let one = |(before, after): (&Look, &Look)| {
        let done = after.tally.since(before.tally);
        let wall = after.at.saturating_sub(before.at).as_secs_f64();
        let share = Nanos(done.cpu_ns).as_secs_f64() / wall;
        // What was counted last lies a little back, at both ends.
        Copied { reached: done.rate(), share_of_pu: (wall > 0.0).then_some(share.min(1.0)) }
    };
    before.iter().zip(after).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that takes 1 ms longer for each run, and stops before the run with number `stop`.
    struct Pretend {
        asked: Vec<Option<Condition>>,
        stop: usize,
    }

    impl Beside for Pretend {
        fn run(&mut self, beside: Option<Condition>) -> anyhow::Result<Option<Measured>> {
            if self.asked.len() == self.stop {
                return Ok(None);
            }
            self.asked.push(beside);
            let time = Nanos::from_millis(self.asked.len() as u64);
            let copied = Copied { reached: Some(5.0), share_of_pu: Some(1.0) };
            let copies = vec![copied; beside.map_or(0, |beside| beside.copies as usize)];
            Ok(Some(Measured { times: Times { wall: time, cpu: time }, copies }))
        }
    }

    const CONDITIONS: [Condition; 2] =
        [Condition { rate: 10.0, copies: 1 }, Condition { rate: 50.0, copies: 2 }];

    fn made(stop: usize, seed: u64) -> (Option<Vec<Run>>, Pretend, u64) {
        let mut machine = Pretend { asked: Vec::new(), stop };
        let mut count = 0;
        let found = measure(&mut machine, &CONDITIONS, 4, seed, &mut || count += 1).unwrap();
        (found, machine, count)
    }

    #[test]
    fn blocks_are_complete() {
        let (found, _, count) = made(100, 1);
        let found = found.unwrap();
        assert_eq!((count, found.len()), (runs(2, 4), 12));
        for block in found.chunks(3) {
            assert!(block.iter().all(|run| run.block == block[0].block));
            for wanted in [None, Some(CONDITIONS[0]), Some(CONDITIONS[1])] {
                assert_eq!(block.iter().filter(|run| run.beside == wanted).count(), 1);
            }
        }
        assert!(
            found.iter().all(|run| run.copies.len() == run.beside.map_or(0, |b| b.copies as usize))
        );
        let orders = |seed| made(100, seed).1.asked;
        assert!(orders(1) == orders(1) && orders(1) != orders(2));
    }

    #[test]
    fn the_first_run_is_not_kept() {
        let (found, machine, _) = made(100, 1);
        assert_eq!(machine.asked[0], None);
        assert!(found.unwrap().iter().all(|run| run.cpu_ns > Nanos::from_millis(1)));
    }

    #[test]
    fn who_is_asked_to_stop_has_nothing() {
        for stop in [0, 1, 12] {
            let (found, machine, _) = made(stop, 1);
            assert!(found.is_none() && machine.asked.len() == stop);
        }
    }

    /// 3,000 lines in 60 µs of CPU time, of 80 µs.
    #[test]
    fn copies_by_hand() {
        let look = |at, lines, cpu_ns| Look { at: Nanos(at), tally: Tally { lines, cpu_ns } };
        let found = copied(&[look(1_000, 1_000, 5_000)], &[look(81_000, 4_000, 65_000)]);
        assert_eq!(found, [Copied { reached: Some(50.0), share_of_pu: Some(0.75) }]);
        let none = copied(&[look(5, 7, 7)], &[look(5, 7, 7)]);
        assert_eq!(none, [Copied { reached: None, share_of_pu: None }]);
    }
}
