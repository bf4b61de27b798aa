//! The table on the terminal while a workload runs, drawn anew several times a second.

use super::progress::{Goal, HostReports};
use crate::columns::{TableColumn, few, rows, seconds, unknown};
use crate::output::{self, Frame, TerminalSize, room};
use crate::report::counts::{JobCounts, JobState, WorkloadCounts};
use crate::report::text::{ipc, memory, mostly};
use colocate_figures::table::aligned;
use colocate_machine::{Nanos, printable};
use console::truncate_str;
use std::fmt::Write;

/// Least time between two drawings. Chosen: four a second, as fast as one reads.
const EVERY: Nanos = Nanos::from_millis(250);
/// Lines beside the jobs' rows: sum, heading, number of jobs left out, the policy's state.
const OTHER_LINES: usize = 4;
/// Most columns for a name.
const NAME: usize = 25;

/// A table for standard error, if that is a terminal.
pub struct Live {
    draws: bool,
    next: Nanos,
    goals: Vec<Goal>,
}

/// A job and its progress towards its goal.
type ProgressRow<'a> = (&'a JobCounts, String);

impl Live {
    /// A table of jobs with these goals; never drawn if `quiet`.
    pub fn new(quiet: bool, goals: Vec<Goal>) -> Self {
        let draws = !quiet && output::error_terminal().is_some() && !console::is_dumb();
        Self { draws, next: Nanos::ZERO, goals }
    }

    /// The table, unless one was drawn less than [`EVERY`] ago or the terminal's size is unknown.
    pub fn frame(&mut self, counts: &WorkloadCounts, reports: &HostReports) -> Option<Frame> {
        if !self.draws || counts.at < self.next {
            return None;
        }
        let size = output::size(&output::error_terminal()?)?;
        self.next = counts.at + EVERY;
        Some(Frame { text: table(counts, &self.goals, reports, size), size })
    }

    /// An empty frame that removes the table; `None` if nothing is drawn.
    pub fn end(&self) -> Option<Frame> {
        self.draws.then(Frame::default)
    }
}

/// The table of this quantum: running jobs first if not all have room, and long lines cut.
fn table(
    counts: &WorkloadCounts,
    goals: &[Goal],
    reports: &HostReports,
    size: TerminalSize,
) -> String {
    let of_state = |state| counts.jobs.iter().filter(move |job| job.state == state).count();
    let mut text = format!(
        "{} s, {} quanta: {} running, {} waiting, {} ended\n",
        seconds(Some(counts.at)),
        counts.quanta,
        of_state(JobState::Running),
        of_state(JobState::Waiting),
        of_state(JobState::Ended)
    );
    // A low terminal still shows a job.
    let most = room(size).saturating_sub(OTHER_LINES).max(1);
    let widths = counts.widths();
    let jobs = counts.jobs.iter().enumerate().map(|(number, job)| {
        let used = (job.cpu_time, widths[number]);
        let done = goals.get(number).map(|goal| goal.done(reports, number, used));
        (job, done.unwrap_or_default())
    });
    let mut jobs: Vec<ProgressRow<'_>> = jobs.collect();
    if jobs.len() > most {
        jobs.sort_by_key(|(job, _)| job.state);
        jobs.truncate(most);
    }
    text.push_str(&aligned(&job_rows(&jobs)));
    if counts.jobs.len() > most {
        let _ = writeln!(text, "and {} more", counts.jobs.len() - most);
    }
    if let Some(state) = &counts.state {
        let _ = writeln!(text, "{}", printable(state));
    }
    let lines = text.trim_end().lines();
    let cut = lines.map(|line| truncate_str(&printable(line), size.columns, "…").into_owned());
    cut.collect::<Vec<_>>().join("\n")
}

/// One row a job; columns without any known figure are left out.
fn job_rows(jobs: &[ProgressRow<'_>]) -> Vec<Vec<String>> {
    let any = |known: &dyn Fn(&JobCounts) -> bool| jobs.iter().any(|(job, _)| known(job));
    let columns: [TableColumn<'_, ProgressRow<'_>>; 11] = [
        ("job", true, &|(job, _)| truncate_str(&printable(&job.name), NAME, "…").into_owned()),
        ("state", true, &|(job, _)| state(job.state).to_owned()),
        ("done", jobs.iter().any(|(_, done)| !done.is_empty()), &|(_, done)| done.clone()),
        ("quanta", true, &|(job, _)| job.quanta.to_string()),
        ("CPU, s", true, &|(job, _)| seconds(job.cpu_time)),
        ("phase", any(&|job| job.phases.now.is_some()), &|(job, _)| phase(job)),
        ("IPC", any(&|job| job.now.ipc.get().is_some()), &|(job, _)| ipc(&job.now)),
        ("memory, t/µs", any(&|job| job.now.memory.get().is_some()), &|(job, _)| memory(&job.now)),
        ("cycles", any(&|job| job.now.cycles.most().is_some()), &|(job, _)| mostly(&job.now)),
        ("progress", any(&|job| job.progress.is_some()), &|(job, _)| {
            job.progress.map_or_else(unknown, |quanta| format!("{quanta:.1}"))
        }),
        ("on PU", true, &|(job, _)| {
            if job.state == JobState::Running { few(&job.places) } else { String::new() }
        }),
    ];
    rows(&columns, jobs)
}

/// Phase of a running job in the last quantum, and the mean number of its runnable threads.
fn phase(job: &JobCounts) -> String {
    let now = job.phases.now.filter(|_| job.state == JobState::Running);
    now.map_or_else(String::new, |(phase, runnable)| format!("{} {runnable:.1}", phase.name()))
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Waiting => "waiting",
        JobState::Ended => "ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::counts::tests::counts;
    use colocate_host::JobTarget;
    use expect_test::expect;

    const DEFAULT: TerminalSize = TerminalSize { lines: 24, columns: 80 };

    fn drawn(counts: &WorkloadCounts, goals: &[Goal], size: TerminalSize) -> String {
        let instructions = Some(vec![1_000; 3]);
        let reports = HostReports { runs: vec![0, 2, 0], instructions, ..HostReports::default() };
        table(counts, goals, &reports, size)
    }

    #[test]
    fn the_table_of_a_moment() {
        let found = counts(&[
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
        .assert_eq(&(drawn(&found, &[], TerminalSize { lines: 24, columns: 100 }) + "\n"));
    }

    #[test]
    fn what_is_not_known_takes_no_room() {
        let mut found = counts(&[(&[(0, 0, 100, None)], &[])]);
        found.jobs[0].progress = None;
        let text = drawn(&found, &[], DEFAULT);
        assert!(!text.contains("IPC") && !text.contains("progress"), "{text}");
    }

    /// Instructions, runs, and CPU time beside what was said of the job alone.
    #[test]
    fn how_far_each_is() {
        let found = counts(&[(&[(0, 0, 100, None), (1, 1, 100, None), (2, 3, 100, None)], &[])]);
        let goal = |target, alone_s| Goal { target, alone_s };
        let goals = [
            goal(JobTarget::Instructions(4_000), None),
            goal(JobTarget::Completions(3), None),
            goal(JobTarget::Completions(1), Some(0.4)),
        ];
        expect![[r#"
            0.10 s, 1 quanta: 3 running, 0 waiting, 0 ended
            job  state    done         quanta  CPU, s  progress  on PU
            a    running  25 %         1       0.10    0.5       0
            b    running  2 of 3 runs  1       0.10    1.5       1
            c    running  ~25 %        1       0.10    2.5       3
            the scheduler's line
        "#]]
        .assert_eq(&(drawn(&found, &goals, DEFAULT) + "\n"));
    }

    /// Of 40 jobs those that run are shown, on half of the screen, and no line is longer than the terminal.
    #[test]
    fn it_fits_on_a_screen() {
        let mut found = counts(&[]);
        let job = |n: usize| JobCounts {
            name: format!("{n}\u{1b}[2J{}", "x".repeat(60)),
            state: if n == 39 { JobState::Running } else { JobState::Waiting },
            ..JobCounts::default()
        };
        found.jobs = (0..40).map(job).collect();
        for (lines, columns) in [(24, 80), (60, 200), (12, 30), (3, 10)] {
            let text = drawn(&found, &[], TerminalSize { lines, columns });
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
