//! What may be said of the schedulers in each situation.
//!
//! Speed-ups, intervals and verdicts are those of [`crate::simulate::figures`]: a speed-up is the geometric mean over the
//! seeds of `os`'s time over the scheduler's.

use super::layout::Layout;
use super::points::{Point, Question, SerialBy, Waiting};
use super::run::FIGURES;
use crate::published;
use crate::replication::Grid;
use crate::simulate::figures::{RESOLUTION, Spread, Unresolved, Verdict};
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

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Which question it answers.
    pub question: Question,
    /// What it says.
    pub text: String,
    /// Where.
    pub source: String,
}

/// All that was published.
#[must_use]
pub fn published() -> Vec<Published> {
    let of = |row: &published::Row| -> Option<Published> {
        Some(Published {
            question: Question::ALL.into_iter().find(|each| each.name() == row.figure)?,
            text: row.text.to_owned(),
            source: row.source.to_owned(),
        })
    };
    published::rows("fedorova").filter_map(of).collect()
}

/// Places in [`super::run::Kept`].
const SECONDS: usize = 0;
const MOVES: usize = 1;
const CROSSINGS: usize = 2;
const BUSY: usize = 3;
const UNEVEN: usize = 4;

/// The figures of a situation, a cell of `grid`, under the policies `names`: the first is the baseline, the last the oracle.
#[must_use]
pub fn figures(
    grid: Grid<'_, FIGURES>,
    cell: usize,
    point: &Point,
    names: &[String],
) -> PointFigures {
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
        policies: (0..names.len()).map(|place| policy(grid, cell, place, names)).collect(),
    }
}

fn policy(grid: Grid<'_, FIGURES>, cell: usize, place: usize, names: &[String]) -> PolicyFigures {
    let own = grid.column(cell, place, SECONDS);
    let speedup = grid.column(cell, 0, SECONDS).ratio(&own).filter(|_| place > 0);
    let (verdict, unresolved) = match place {
        0 => (Verdict::Baseline, None),
        _ => own.judged(false, speedup),
    };
    let oracle = names.len() - 1;
    let spread = |figure| grid.column(cell, place, figure).spread();
    PolicyFigures {
        policy: names[place].clone(),
        seconds: own.spread(),
        speedup,
        verdict,
        unresolved,
        of_oracle: (1..oracle)
            .contains(&place)
            .then(|| of_oracle(grid, cell, [place, oracle]))
            .flatten(),
        moves: spread(MOVES),
        crossings: spread(CROSSINGS),
        busy: spread(BUSY),
        uneven: spread(UNEVEN),
    }
}

/// Of means over the seeds, so that seeds with which `os` is lucky count as much as they are.
fn of_oracle(grid: Grid<'_, FIGURES>, cell: usize, [policy, oracle]: [usize; 2]) -> Option<Spread> {
    let part = |draw: usize| {
        let mean = |policy: usize| {
            let each = grid.runs(cell, draw)[policy].iter().map(|run| run[SECONDS]);
            stats::mean(&each.collect::<Option<Vec<f64>>>()?)
        };
        let (os, own, best) = (mean(0)?, mean(policy)?, mean(oracle)?);
        (os / best - 1.0 >= RESOLUTION).then(|| (os - own) / (os - best))
    };
    Spread::over_draws((0..grid.draws).map(part))
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
        let found = figures(Grid { done: &done, draws: done.len() }, 0, &point(), &names());
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
        let found = figures(Grid { done: &done, draws: done.len() }, 0, &point(), &names());
        assert_eq!(
            (found.policies[1].verdict, found.policies[1].of_oracle),
            (Verdict::Worse, None)
        );
        assert_eq!(found.policies[2].unresolved, Some(Unresolved::BelowResolution));
        let done = vec![vec![run(Some(1.0)), run(None), run(Some(0.7))]; 2];
        let own =
            &figures(Grid { done: &done, draws: done.len() }, 0, &point(), &names()).policies[1];
        assert_eq!((own.seconds, own.speedup, own.of_oracle), (None, None, None));
        assert_eq!(own.unresolved, Some(Unresolved::NotFinished));
    }
}
