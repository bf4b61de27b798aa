//! One run: the program, alone or beside copies.

use super::program::{MeasuredProgram, WallAndCpuTime};
use anyhow::Context;
use colocate_cli::measure::harness::Measurement;
use colocate_machine::Nanos;
use colocate_study::traffic::{Condition, Copied};
use smt_bench::thread::wall_ns;
use smt_bench::traffic::{Generator, GeneratorTally};
use std::time::Duration;

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Times of the program.
    pub times: WallAndCpuTime,
    /// Requests of each copy meanwhile.
    pub copies: Vec<Copied>,
}

/// The program and its copies on this machine.
pub struct LocalMeasurement {
    /// The program.
    pub program: MeasuredProgram,
    /// Copies, one for each of their PUs.
    pub generators: Vec<Generator>,
    /// For each rate in t/µs: the `nop`s of a copy after each line.
    pub nops: Vec<(f64, u64)>,
}

/// Time for which copies request lines before the program begins. Chosen: by then the copies' lines
/// fill the caches; 105 MiB at 10 t/µs take 172 ms.
const BEFORE: Duration = Duration::from_millis(200);

impl Measurement for LocalMeasurement {
    /// Traffic beside the program; `None` for the program alone.
    type Cell = Option<Condition>;
    type Sample = Measured;
    const UNIT: &'static str = "runs";

    /// A run alone, which loads the program and its files into memory.
    fn warm_up(&self) -> Option<Option<Condition>> {
        Some(None)
    }

    fn measure(&mut self, beside: &Option<Condition>) -> anyhow::Result<Option<Measured>> {
        let Some(Condition { rate, copies }) = *beside else { return self.run(&[]) };
        let busy = &self.generators[..(copies as usize).min(self.generators.len())];
        // Both come from the same list, so equality is exact.
        let nops = self.nops.iter().find(|(known, _)| *known == rate).map_or(0, |(_, nops)| *nops);
        busy.iter().for_each(|generator| generator.resume(nops));
        std::thread::sleep(BEFORE);
        let measured = self.run(busy);
        busy.iter().for_each(Generator::rest);
        measured.with_context(|| format!("beside {copies} at {rate} t/µs"))
    }
}

impl LocalMeasurement {
    fn run(&self, busy: &[Generator]) -> anyhow::Result<Option<Measured>> {
        let before = look(busy);
        let times = self.program.run();
        let after = look(busy);
        Ok(times?.map(|times| Measured { times, copies: copied(&before, &after) }))
    }
}

/// Requests of a copy until a moment.
struct Look {
    at: Nanos,
    tally: GeneratorTally,
}

fn look(generators: &[Generator]) -> Vec<Look> {
    generators.iter().map(|each| Look { at: Nanos(wall_ns()), tally: each.tally() }).collect()
}

fn copied(before: &[Look], after: &[Look]) -> Vec<Copied> {
    let copied = before.iter().zip(after).map(|(before, after)| {
        let done = after.tally.since(before.tally);
        let wall = after.at.saturating_sub(before.at).as_secs_f64();
        let share = Nanos(done.cpu_ns).as_secs_f64() / wall;
        // A tally lags a little behind the clock, at both ends, so the share may exceed 1.
        Copied { reached: done.rate(), share_of_pu: (wall > 0.0).then_some(share.min(1.0)) }
    });
    copied.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3,000 lines in 60 µs of CPU time, of 80 µs.
    #[test]
    fn copies_by_hand() {
        let look =
            |at, lines, cpu_ns| Look { at: Nanos(at), tally: GeneratorTally { lines, cpu_ns } };
        let found = copied(&[look(1_000, 1_000, 5_000)], &[look(81_000, 4_000, 65_000)]);
        assert_eq!(found, [Copied { reached: Some(50.0), share_of_pu: Some(0.75) }]);
        let none = copied(&[look(5, 7, 7)], &[look(5, 7, 7)]);
        assert_eq!(none, [Copied { reached: None, share_of_pu: None }]);
    }
}
