//! What a terminal shows while a workload runs: a table that is drawn anew in its place.

use super::report::{mostly, rate, seconds};
use super::tally::{JobTally, State, Tally};
use crate::plan::aligned;
use colocate_machine::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write;

/// Least time between two drawings: four a second, as fast as one reads.
const EVERY: Nanos = Nanos::from_millis(250);
/// Most jobs that are shown; those that run come first then. Chosen: a terminal has 24 lines.
const MOST: usize = 20;
/// Most characters of a name.
const NAME: usize = 24;

/// A table on standard error, if that is a terminal.
pub struct Live {
    bar: ProgressBar,
    next: Nanos,
}

impl Live {
    /// Draws nothing if it is to be quiet.
    pub fn new(quiet: bool) -> Self {
        if quiet {
            return Self { bar: ProgressBar::hidden(), next: Nanos::ZERO };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, next: Nanos::ZERO }
    }

    /// Draws it anew, unless it was drawn just before.
    pub fn show(&mut self, tally: &Tally) {
        if !self.bar.is_hidden() && tally.at >= self.next {
            self.next = tally.at + EVERY;
            self.bar.set_message(table(tally));
        }
    }

    /// Takes it away while `speak` writes to standard error.
    pub fn aside(&self, speak: impl FnOnce()) {
        self.bar.suspend(speak);
    }

    /// Takes it away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The table as it is now.
fn table(tally: &Tally) -> String {
    let of_state = |state| tally.jobs.iter().filter(move |job| job.state == state).count();
    let mut text = format!(
        "{} s, {} quanta: {} running, {} waiting, {} ended\n",
        seconds(Some(tally.at)),
        tally.quanta,
        of_state(State::Running),
        of_state(State::Waiting),
        of_state(State::Ended)
    );
    let mut shown: Vec<&JobTally> = tally.jobs.iter().collect();
    if shown.len() > MOST {
        shown.sort_by_key(|job| match job.state {
            State::Running => 0,
            State::Waiting => 1,
            State::Ended => 2,
        });
        shown.truncate(MOST);
    }
    text.push_str(&aligned(&rows(&shown)));
    if tally.jobs.len() > MOST {
        let _ = writeln!(text, "and {} more", tally.jobs.len() - MOST);
    }
    if let Some(state) = &tally.state {
        let _ = writeln!(text, "{state}");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Columns of which nothing is known are left out.
fn rows(jobs: &[&JobTally]) -> Vec<Vec<String>> {
    let any = |known: &dyn Fn(&JobTally) -> bool| jobs.iter().any(|job| known(job));
    let ipc = any(&|job| job.now.ipc.get().is_some());
    let memory = any(&|job| job.now.memory.get().is_some());
    let cycles = any(&|job| job.now.cycles.most().is_some());
    let progress = any(&|job| job.progress.is_some());
    let pick = |cells: [String; 9]| -> Vec<String> {
        let wanted = [true, true, true, true, ipc, memory, cycles, progress, true];
        cells.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(cell, _)| cell).collect()
    };
    let head =
        ["job", "state", "quanta", "CPU, s", "IPC", "memory, t/µs", "cycles", "progress", "on PU"];
    let mut rows = vec![pick(head.map(str::to_owned))];
    for job in jobs {
        let places: Vec<String> = job.places.iter().take(4).map(|pu| pu.0.to_string()).collect();
        let more = if job.places.len() > 4 { " …" } else { "" };
        rows.push(pick([
            shortened(&job.name),
            state(job.state).to_owned(),
            job.quanta.to_string(),
            seconds(job.cpu_time),
            rate(job.now.ipc, job.now.estimated),
            rate(job.now.memory, job.now.estimated),
            mostly(job.now.cycles.most(), job.now.estimated),
            job.progress.map_or_else(|| "?".to_owned(), |quanta| format!("{quanta:.1}")),
            if job.state == State::Running { places.join(" ") + more } else { String::new() },
        ]));
    }
    rows
}

fn state(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Waiting => "waiting",
        State::Ended => "ended",
    }
}

fn shortened(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match name.char_indices().nth(NAME) {
        Some((end, _)) => name[..end].to_owned() + "…",
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::tests::tally;
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_table_of_a_moment() {
        let found = tally(&[
            (&[(0, 0, 100, Some(1.25)), (1, 1, 100, Some(0.5))], &[]),
            (&[(1, 2, 90, Some(0.4)), (2, 3, 100, None)], &[2]),
        ]);
        expect![[r#"
            0.20 s, 2 quanta: 1 running, 1 waiting, 1 ended
            job  state    quanta  CPU, s  IPC    memory, t/µs  cycles         progress  on PU
            a    waiting  1       0.10    1.25   12.50         frontend 62 %  0.5
            b    running  2       0.19    ~0.40  ~4.00         ~backend 80 %  1.5       2
            c    ended    1       0.10    ?      ?             ?              2.5
            the scheduler's line
        "#]]
        .assert_eq(&(table(&found) + "\n"));
    }

    #[test]
    fn what_is_not_known_takes_no_room() {
        let mut found = tally(&[(&[(0, 0, 100, None)], &[])]);
        found.jobs[0].progress = None;
        let text = table(&found);
        assert!(!text.contains("IPC") && !text.contains("progress"), "{text}");
    }

    /// Of 40 jobs those that run are shown, and no line is longer than a terminal.
    #[test]
    fn it_fits_on_a_screen() {
        let mut found = tally(&[]);
        let job = |n: usize| JobTally {
            name: format!("{n}\u{1b}[2J{}", "x".repeat(60)),
            state: if n == 39 { State::Running } else { State::Waiting },
            ..JobTally::default()
        };
        found.jobs = (0..40).map(job).collect();
        let text = table(&found);
        assert_eq!(text.lines().count(), MOST + 3);
        assert!(text.lines().nth(2).unwrap().starts_with("39"), "{text}");
        assert!(text.ends_with("and 20 more") && !text.contains('\u{1b}'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }
}
