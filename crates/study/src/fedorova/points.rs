//! The situations of the study, each of which is simulated under every scheduler.

use super::Study;
use super::layout::Layout;
use super::program::{Kind, Shape};
use colocate_machine::Nanos;
use serde::{Deserialize, Serialize};

/// Serial shares of the first question, percent.
const SHARES: [u32; 10] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90];

/// Those where the first thread does all serial parts: the published 40 to 60 %.
const SHARES_OF_FIRST: [u32; 3] = [40, 50, 60];

/// How long phases are on slow cores in the second question, in milliseconds: from two samples on, for what is shorter than a
/// sample nobody who samples can see, to the longest that has every thread's turn in a program of two seconds. Chosen.
const PHASES_MS: [u64; 5] = [2, 5, 10, 20, 60];

/// Serial share of the second question, percent: serial and parallel phases are equally long, so that one figure says how long phases
/// are. Chosen.
const HALF: u32 = 50;

/// Serial shares of the questions from the third on, percent: one without, and one from the middle of the published 40 to 60 %.
const WAITING: [u32; 2] = [0, 50];

/// How many programs are there at once in the last question, which share the cores, a thread on each. The most there are have
/// two threads each. Chosen.
const PROGRAMS: [u32; 3] = [2, 4, 8];

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// What is gained, by serial share.
    Shares,
    /// What moves cost, by layout and length of phases, where there is nothing to gain.
    Migrations,
    /// What is gained where threads spin that wait.
    Waiting,
    /// What fewer threads change where memory is the limit.
    Threads,
    /// What is gained where several programs share the fast cores.
    Programs,
}

impl Question {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Shares, Self::Migrations, Self::Waiting, Self::Threads, Self::Programs];

    /// Its name among what was published.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shares => "shares",
            Self::Migrations => "migrations",
            Self::Waiting => "waiting",
            Self::Threads => "threads",
            Self::Programs => "programs",
        }
    }
}

/// What threads do that wait for others, and whether that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// They sleep.
    Sleep,
    /// They spin, and the scheduler is told which do.
    Spin,
    /// They spin, and to the scheduler they look like threads that work.
    SpinUnknown,
}

impl Waiting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sleep, Self::Spin, Self::SpinUnknown];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin, known",
            Self::SpinUnknown => "spin, not known",
        }
    }
}

/// Who does the serial parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialBy {
    /// Another thread each time, as where whoever comes last goes on.
    InTurn,
    /// Always the program's first thread, as OpenMP's between two parallel regions.
    First,
}

impl SerialBy {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InTurn => "in turn",
            Self::First => "the first",
        }
    }
}

/// One situation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What it is for.
    pub question: Question,
    /// Where the fast cores are.
    pub layout: Layout,
    /// What the program is like.
    pub shape: Shape,
    /// Which of its threads does the serial parts.
    pub serial_by: SerialBy,
    /// What its threads do that wait.
    pub waiting: Waiting,
    /// Whether fast cores are as slow as the others, and only said to be fast.
    pub levelled: bool,
    /// How many such programs there are, with as many threads together as there are cores. Never 0.
    pub programs: u32,
}

impl Point {
    /// How long a parallel part takes on slow cores.
    #[must_use]
    pub fn parallel_s(&self) -> f64 {
        let Shape { serial, length, parts, .. } = self.shape;
        (1.0 - serial) * length.as_secs_f64() / count(parts)
    }

    /// How long a serial part takes on a slow core.
    #[must_use]
    pub fn serial_s(&self) -> f64 {
        let Shape { serial, length, parts, .. } = self.shape;
        serial * length.as_secs_f64() / count(parts - 1)
    }
}

/// All situations of a study, question by question.
#[must_use]
pub fn all(study: &Study<'_>) -> Vec<Point> {
    // So many serial parts that every thread has as many turns.
    let threads = study.machine.cores.len().max(1) as u64;
    let shape = |serial: u32, round: Nanos| Shape {
        kind: Kind::Typical,
        serial: f64::from(serial) / 100.0,
        length: study.length,
        parts: (study.length.0 / round.0.max(1) / threads).max(1) * threads + 1,
    };
    let usual = |question, serial: u32, waiting| Point {
        question,
        layout: Layout::Friendly,
        shape: shape(serial, study.round),
        serial_by: SerialBy::InTurn,
        waiting,
        levelled: false,
        programs: 1,
    };
    let shares = SHARES.map(|serial| usual(Question::Shares, serial, Waiting::Sleep));
    let of_first = SHARES_OF_FIRST.map(|serial| Point {
        serial_by: SerialBy::First,
        ..usual(Question::Shares, serial, Waiting::Sleep)
    });
    let migrations = Layout::ALL.into_iter().flat_map(|layout| {
        PHASES_MS.map(|phase| Point {
            layout,
            shape: shape(HALF, Nanos::from_millis(2 * phase)),
            levelled: true,
            ..usual(Question::Migrations, HALF, Waiting::Sleep)
        })
    });
    let waiting = WAITING
        .into_iter()
        .flat_map(|serial| Waiting::ALL.map(|waiting| usual(Question::Waiting, serial, waiting)));
    let threads = WAITING.map(|serial| {
        let usual = usual(Question::Threads, serial, Waiting::Sleep);
        Point { shape: Shape { kind: Kind::Streaming, ..usual.shape }, ..usual }
    });
    let programs = WAITING.into_iter().flat_map(|serial| {
        let one = usual(Question::Programs, serial, Waiting::Sleep);
        PROGRAMS.map(|programs| Point { programs, ..one })
    });
    let all = shares.into_iter().chain(of_first).chain(migrations);
    all.chain(waiting).chain(threads).chain(programs).collect()
}

#[allow(clippy::cast_precision_loss)] // a few thousand at most
fn count(parts: u64) -> f64 {
    parts as f64
}
