//! What may be said of the schedulers in each situation.
//!
//! Speed-ups, intervals and verdicts are those of [`crate::simulate::figures`]: a speed-up is the geometric mean over the
//! seeds of `os`'s time over the scheduler's.

use super::layout::Layout;
use super::points::{Point, Question, SerialBy, Waiting};
use super::run::Kept;
use crate::simulate::figures::{Column, RESOLUTION, Spread, Unresolved, Verdict};
use crate::stats;
use serde::{Deserialize, Serialize};

/// One scheduler in one situation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFigures {
    /// Its name; `oracle` is arithmetic.
    pub policy: String,
    /// Time of the program, in seconds, the mean if there are several; `None` if a run did not end, and for the oracle of several.
    pub seconds: Option<Spread>,
    /// `os`'s time over it; `None` for `os`, and if a run did not end.
    pub speedup: Option<Spread>,
    /// What may be said.
    pub verdict: Verdict,
    /// Why nothing may be said.
    pub unresolved: Option<Unresolved>,
    /// The part of the time that the oracle saves beside `os` that it saves, too; `None` for both of them, where the oracle
    /// saves less than can be resolved, and if a run did not end.
    pub of_oracle: Option<Spread>,
    /// How often a second a thread came to another core.
    pub moves: Option<Spread>,
    /// How often to one under another last-level cache.
    pub crossings: Option<Spread>,
    /// How many cores were busy on average, spinning included; `None` for the oracle, and if a run did not end.
    pub busy: Option<Spread>,
    /// How many times as long the slowest program took as the fastest, 1 if there is one; `None` as before.
    pub uneven: Option<Spread>,
}

/// One situation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointFigures {
    /// What it is for.
    pub question: Question,
    /// Where the fast cores are.
    pub layout: Layout,
    /// Serial share of the time on slow cores.
    pub serial: f64,
    /// How long a parallel part takes on slow cores, in seconds.
    pub parallel_s: f64,
    /// How long a serial part takes there, in seconds; 0 if there is none.
    pub serial_s: f64,
    /// Which thread does the serial parts.
    pub serial_by: SerialBy,
    /// What threads do that wait.
    pub waiting: Waiting,
    /// Whether fast cores are as slow as the others, and only said to be fast.
    pub levelled: bool,
    /// How many such programs there are at once.
    pub programs: u32,
    /// The schedulers, `os` first, and the oracle.
    pub policies: Vec<PolicyFigures>,
}

/// What came of a situation: `[draw][policy][seed]`, the oracle last.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a>(pub &'a [Vec<Vec<Kept>>]);

/// Places in [`Kept`].
const SECONDS: usize = 0;
const MOVES: usize = 1;
const CROSSINGS: usize = 2;
const BUSY: usize = 3;
const UNEVEN: usize = 4;

impl Grid<'_> {
    /// The figures of a situation under the policies `names`, the first of which is the baseline and the last the oracle.
    #[must_use]
    pub fn figures(self, point: &Point, names: &[String]) -> PointFigures {
        PointFigures {
            question: point.question,
            layout: point.layout,
            serial: point.shape.serial,
            parallel_s: point.parallel_s(),
            serial_s: point.serial_s(),
            serial_by: point.serial_by,
            waiting: point.waiting,
            levelled: point.levelled,
            programs: point.programs,
            policies: (0..names.len()).map(|place| self.policy(place, names)).collect(),
        }
    }

    fn column(self, policy: usize, figure: usize) -> Column {
        let runs = self.0.iter().flat_map(|runs| &runs[policy]);
        let seeds = self.0.first().map_or(1, |runs| runs[policy].len());
        Column { figures: runs.map(|run| run[figure]).collect(), seeds }
    }

    fn policy(self, place: usize, names: &[String]) -> PolicyFigures {
        let own = self.column(place, SECONDS);
        let speedup = self.column(0, SECONDS).ratio(&own).filter(|_| place > 0);
        let (verdict, unresolved) = match place {
            0 => (Verdict::Baseline, None),
            _ => own.judged(false, speedup),
        };
        let oracle = names.len() - 1;
        PolicyFigures {
            policy: names[place].clone(),
            seconds: own.spread(),
            speedup,
            verdict,
            unresolved,
            of_oracle: (place > 0 && place < oracle)
                .then(|| self.of_oracle(place, oracle))
                .flatten(),
            moves: self.column(place, MOVES).spread(),
            crossings: self.column(place, CROSSINGS).spread(),
            busy: self.column(place, BUSY).spread(),
            uneven: self.column(place, UNEVEN).spread(),
        }
    }

    /// Of means over the seeds, so that seeds with which `os` is lucky count as much as they are.
    fn of_oracle(self, policy: usize, oracle: usize) -> Option<Spread> {
        let part = |runs: &Vec<Vec<Kept>>| {
            let mean = |policy: usize| {
                let each = runs[policy].iter().map(|run| run[SECONDS]);
                stats::mean(&each.collect::<Option<Vec<f64>>>()?)
            };
            let (os, own, best) = (mean(0)?, mean(policy)?, mean(oracle)?);
            (os / best - 1.0 >= RESOLUTION).then(|| (os - own) / (os - best))
        };
        Column { figures: self.0.iter().map(part).collect(), seeds: 1 }.spread()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fedorova::program::{Kind, Shape};
    use colocate_machine::Nanos;

    fn point() -> Point {
        Point {
            question: Question::Shares,
            layout: Layout::Friendly,
            shape: Shape {
                kind: Kind::Typical,
                serial: 0.5,
                length: Nanos::from_secs(1),
                parts: 5,
            },
            serial_by: SerialBy::InTurn,
            waiting: Waiting::Sleep,
            levelled: false,
            programs: 1,
        }
    }

    fn names() -> Vec<String> {
        ["os", "parallelism-aware", "oracle"].map(str::to_owned).to_vec()
    }

    /// Two sets of assumptions, two seeds. `os` takes 1.0 s, the scheduler 0.8, the oracle 0.75: 25 % faster, four fifths of the
    /// quarter of a second.
    #[test]
    fn a_part_of_the_oracles_gain() {
        let run = |seconds: f64, moves: f64| {
            vec![[Some(seconds), Some(moves), Some(0.0), Some(9.0), Some(1.0)]; 2]
        };
        let done = vec![vec![run(1.0, 0.0), run(0.8, 20.0), run(0.75, 0.0)]; 2];
        let found = Grid(&done).figures(&point(), &names());
        let [os, own, oracle] = &found.policies[..] else { panic!("three") };
        assert_eq!((os.verdict, os.speedup, os.of_oracle), (Verdict::Baseline, None, None));
        assert_eq!(own.verdict, Verdict::Better);
        assert!((own.speedup.unwrap().value - 1.25).abs() < 1e-12);
        assert!((own.of_oracle.unwrap().value - 0.8).abs() < 1e-12);
        assert!((own.moves.unwrap().value - 20.0).abs() < 1e-12);
        assert!((oracle.speedup.unwrap().value - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(oracle.of_oracle, None);
        assert!((own.busy.unwrap().value - 9.0).abs() < 1e-12);
        assert!((found.parallel_s - 0.1).abs() < 1e-12 && (found.serial_s - 0.125).abs() < 1e-12);
    }

    /// Where the oracle saves 3 %, nobody's part of it is told; a slower program is worse; a run without an end has no figure.
    #[test]
    fn what_cannot_be_said() {
        let run = |seconds: Option<f64>| vec![[seconds, Some(0.0), Some(0.0), None, None]; 2];
        let done = vec![vec![run(Some(1.0)), run(Some(1.25)), run(Some(0.97))]; 2];
        let found = Grid(&done).figures(&point(), &names());
        assert_eq!(
            (found.policies[1].verdict, found.policies[1].of_oracle),
            (Verdict::Worse, None)
        );
        assert_eq!(found.policies[2].unresolved, Some(Unresolved::BelowResolution));
        let done = vec![vec![run(Some(1.0)), run(None), run(Some(0.7))]; 2];
        let own = &Grid(&done).figures(&point(), &names()).policies[1];
        assert_eq!((own.seconds, own.speedup, own.of_oracle), (None, None, None));
        assert_eq!(own.unresolved, Some(Unresolved::NotFinished));
    }
}
