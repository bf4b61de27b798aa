//! What a terminal shows while a workload runs: a table, drawn anew several times a second.

use super::course::{Course, Goal};
use super::figures::{mostly, rate, seconds};
use super::screen::{Frame, room};
use super::tally::{JobTally, State, Tally};
use crate::output::{self, Size, Stream};
use colocate_machine::Nanos;
use colocate_machine::printable;
use colocate_study::table::aligned;
use console::truncate_str;
use std::fmt::Write;

/// Least time between two drawings: four a second, as fast as one reads.
const EVERY: Nanos = Nanos::from_millis(250);
/// Lines beside those of jobs: the sum, the heading, how many are left out, and the scheduler's.
const OTHER_LINES: usize = 4;
/// Most columns that a name takes.
const NAME: usize = 25;

/// A table for standard error, if that is a terminal.
pub struct Live {
    draws: bool,
    next: Nanos,
    goals: Vec<Goal>,
}

/// A job with how far it is.
struct Shown<'a> {
    job: &'a JobTally,
    done: String,
}

impl Live {
    /// Of jobs with these goals. There is none if it is to be quiet.
    pub fn new(quiet: bool, goals: Vec<Goal>) -> Self {
        let draws = !quiet && output::is_terminal(Stream::Err) && !console::is_dumb();
        Self { draws, next: Nanos::ZERO, goals }
    }

    /// The table, unless there was one just before, or the terminal does not say how large it is.
    pub fn frame(&mut self, tally: &Tally, course: &Course) -> Option<Frame> {
        if !self.draws || tally.at < self.next {
            return None;
        }
        let size = output::size(Stream::Err)?;
        self.next = tally.at + EVERY;
        Some(Frame { text: table(tally, &self.goals, course, size), size })
    }

    /// What takes it away; `None` if there is none.
    pub fn end(&self) -> Option<Frame> {
        self.draws.then(Frame::default)
    }
}

/// The table as it is now. Where it has not room enough those that run come first, and lines are cut.
fn table(tally: &Tally, goals: &[Goal], course: &Course, size: Size) -> String {
    let of_state = |state| tally.jobs.iter().filter(move |job| job.state == state).count();
    let mut text = format!(
        "{} s, {} quanta: {} running, {} waiting, {} ended\n",
        seconds(Some(tally.at)),
        tally.quanta,
        of_state(State::Running),
        of_state(State::Waiting),
        of_state(State::Ended)
    );
    let most = room(size).saturating_sub(OTHER_LINES).max(1);
    let mut jobs: Vec<(usize, &JobTally)> = tally.jobs.iter().enumerate().collect();
    if jobs.len() > most {
        jobs.sort_by_key(|(_, job)| match job.state {
            State::Running => 0,
            State::Waiting => 1,
            State::Ended => 2,
        });
        jobs.truncate(most);
    }
    let done = |number: usize, job: &JobTally| {
        goals.get(number).map_or_else(String::new, |goal| goal.done(course, number, job.cpu_time))
    };
    let shown = jobs.into_iter().map(|(number, job)| Shown { job, done: done(number, job) });
    text.push_str(&aligned(&rows(&shown.collect::<Vec<_>>())));
    if tally.jobs.len() > most {
        let _ = writeln!(text, "and {} more", tally.jobs.len() - most);
    }
    if let Some(state) = &tally.state {
        let _ = writeln!(text, "{}", printable(state));
    }
    let lines: Vec<String> = text
        .trim_end()
        .lines()
        .map(|line| truncate_str(&printable(line), size.columns, "…").into())
        .collect();
    lines.join("\n")
}

/// Columns of which nothing is known are left out.
fn rows(jobs: &[Shown<'_>]) -> Vec<Vec<String>> {
    let any = |known: &dyn Fn(&JobTally) -> bool| jobs.iter().any(|shown| known(shown.job));
    let done = jobs.iter().any(|shown| !shown.done.is_empty());
    let ipc = any(&|job| job.now.ipc.get().is_some());
    let memory = any(&|job| job.now.memory.get().is_some());
    let cycles = any(&|job| job.now.cycles.most().is_some());
    let progress = any(&|job| job.progress.is_some());
    let phase = any(&|job| job.timeline.now().is_some());
    let pick = |cells: [String; 11]| -> Vec<String> {
        let wanted = [true, true, done, true, true, phase, ipc, memory, cycles, progress, true];
        cells.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(cell, _)| cell).collect()
    };
    let head = [
        "job",
        "state",
        "done",
        "quanta",
        "CPU, s",
        "phase",
        "IPC",
        "memory, t/µs",
        "cycles",
        "progress",
        "on PU",
    ];
    let mut rows = vec![pick(head.map(str::to_owned))];
    for Shown { job, done } in jobs {
        let places: Vec<String> = job.places.iter().take(4).map(|pu| pu.0.to_string()).collect();
        let more = if job.places.len() > 4 { " …" } else { "" };
        rows.push(pick([
            truncate_str(&printable(&job.name), NAME, "…").into_owned(),
            state(job.state).to_owned(),
            done.clone(),
            job.quanta.to_string(),
            seconds(job.cpu_time),
            phase_of(job),
            rate(job.now.ipc, job.now.estimated_of.ipc),
            rate(job.now.memory, job.now.estimated_of.traffic),
            mostly(job.now.cycles.most(), job.now.estimated_of.stack),
            job.progress.map_or_else(|| "?".to_owned(), |quanta| format!("{quanta:.1}")),
            if job.state == State::Running { places.join(" ") + more } else { String::new() },
        ]));
    }
    rows
}

/// What a job that runs was in the last quantum, and how many of its threads were runnable.
fn phase_of(job: &JobTally) -> String {
    let now = job.timeline.now().filter(|_| job.state == State::Running);
    now.map_or_else(String::new, |(phase, runnable)| format!("{} {runnable:.1}", phase.name()))
}

fn state(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Waiting => "waiting",
        State::Ended => "ended",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::tests::tally;
    use super::*;
    use colocate_host::Target;
    use expect_test::expect;

    const USUAL: Size = Size { lines: 24, columns: 80 };

    fn drawn(tally: &Tally, goals: &[Goal], size: Size) -> String {
        let course =
            Course { runs: vec![0, 2, 0], instructions: Some(vec![1_000; 3]), ..Course::default() };
        table(tally, goals, &course, size)
    }

    #[test]
    fn the_table_of_a_moment() {
        let found = tally(&[
            (&[(0, 0, 100, Some(1.25)), (1, 1, 100, Some(0.5))], &[]),
            (&[(1, 2, 90, Some(0.4)), (2, 3, 100, None)], &[2]),
        ]);
        expect![[r#"
            0.20 s, 2 quanta: 1 running, 1 waiting, 1 ended
            job  state    quanta  CPU, s  phase         IPC    memory, t/µs  cycles         progress  on PU
            a    waiting  1       0.10                  1.25   12.50         frontend 62 %  0.5
            b    running  2       0.19    parallel 2.0  ~0.40  ~4.00         ~backend 80 %  1.5       2
            c    ended    1       0.10                  ?      ?             ?              2.5
            the scheduler's line
        "#]]
        .assert_eq(&(drawn(&found, &[], Size { lines: 24, columns: 100 }) + "\n"));
    }

    #[test]
    fn what_is_not_known_takes_no_room() {
        let mut found = tally(&[(&[(0, 0, 100, None)], &[])]);
        found.jobs[0].progress = None;
        let text = drawn(&found, &[], USUAL);
        assert!(!text.contains("IPC") && !text.contains("progress"), "{text}");
    }

    /// Instructions, runs, and CPU time beside what was said of the job alone.
    #[test]
    fn how_far_each_is() {
        let found = tally(&[(&[(0, 0, 100, None), (1, 1, 100, None), (2, 3, 100, None)], &[])]);
        let goal = |target, alone_s| Goal { target, alone_s };
        let goals = [
            goal(Target::Instructions(4_000), None),
            goal(Target::Completions(3), None),
            goal(Target::Completions(1), Some(0.4)),
        ];
        expect![[r#"
            0.10 s, 1 quanta: 3 running, 0 waiting, 0 ended
            job  state    done         quanta  CPU, s  progress  on PU
            a    running  25 %         1       0.10    0.5       0
            b    running  2 of 3 runs  1       0.10    1.5       1
            c    running  ~25 %        1       0.10    2.5       3
            the scheduler's line
        "#]]
        .assert_eq(&(drawn(&found, &goals, USUAL) + "\n"));
    }

    /// Of 40 jobs those that run are shown, on half of the screen, and no line is longer than the terminal.
    #[test]
    fn it_fits_on_a_screen() {
        let mut found = tally(&[]);
        let job = |n: usize| JobTally {
            name: format!("{n}\u{1b}[2J{}", "x".repeat(60)),
            state: if n == 39 { State::Running } else { State::Waiting },
            ..JobTally::default()
        };
        found.jobs = (0..40).map(job).collect();
        for (lines, columns) in [(24, 80), (60, 200), (12, 30), (3, 10)] {
            let text = drawn(&found, &[], Size { lines, columns });
            let shown = (lines / 2).saturating_sub(OTHER_LINES).clamp(1, 40);
            let more = usize::from(shown < 40);
            assert_eq!(text.lines().count(), shown + 2 + more, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
            if more == 1 {
                assert!(text.lines().nth(2).unwrap().starts_with("39"), "{text}");
            }
        }
    }
}
