//! The report as text, and its figures.

use super::counts::{JobCounts, MeanRates};
use super::{Creation, JobReport, Report, SharedCore, TaskReport};
use crate::columns::{TableColumn, rows, seconds, unknown};
use crate::timeline::{self, Mean};
use colocate_evidence::{TaskId, WakeUps};
use colocate_figures::table::{aligned, matrix};
use colocate_machine::{Nanos, PuNr, printable};
use colocate_model::Backend;
use colocate_policy::communication::matrix::Matrix;
use std::cmp::Reverse;
use std::fmt::Write;

/// Most jobs whose sharing of cores is shown as a matrix. Chosen: a line of 100 characters.
const MOST_TOGETHER: usize = 12;
/// Most pairs of threads shown; the JSON has all.
const MOST_PAIRS: usize = 20;
/// Most tasks shown; the JSON has all that are remembered.
const MOST_TASKS: usize = 100;

/// Instructions per cycle, marked where estimated.
pub fn ipc(rates: &MeanRates) -> String {
    rate(rates.ipc, rates.estimated_of.ipc)
}

/// Requests to memory in a microsecond, marked where estimated.
pub fn memory(rates: &MeanRates) -> String {
    rate(rates.memory, rates.estimated_of.traffic)
}

fn rate(mean: Mean, estimated: bool) -> String {
    mean.get().map_or_else(unknown, |rate| format!("{}{rate:.2}", mark(estimated)))
}

/// Largest part of the cycles, marked where estimated.
pub fn mostly(rates: &MeanRates) -> String {
    let most = rates.cycles.most();
    most.map_or_else(unknown, |(part, share)| {
        format!("{}{part} {:.0} %", mark(rates.estimated_of.stack), 100.0 * share)
    })
}

fn mark(estimated: bool) -> &'static str {
    if estimated { "~" } else { "" }
}

fn number(id: Option<impl ToString>) -> String {
    id.map_or_else(unknown, |id| id.to_string())
}

fn share(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// PUs where a task was placed for longest; of several, with their share of the placed time.
fn on(task: &TaskReport) -> String {
    let all = task.placed.iter().fold(0.0, |sum, on| sum + on.time_ns.as_secs_f64());
    match task.placed.iter().max_by_key(|on| on.time_ns) {
        None => "-".to_owned(),
        Some(most) if task.placed.len() == 1 => most.pus.to_string(),
        Some(most) => format!("{} ({})", most.pus, share(most.time_ns.as_secs_f64() / all)),
    }
}

/// Time in which both ran at wake-ups opposite to `pair`: zero without any, `None` if unknown.
fn both_ran_back(wake_ups: &[WakeUps], pair: &WakeUps) -> Option<Nanos> {
    let back =
        wake_ups.iter().find(|it| it.waker == Some(pair.wakee) && Some(it.wakee) == pair.waker);
    back.map_or(Some(Nanos::ZERO), |it| it.both_ran)
}

/// Share of wake-ups on the waker's PU. Without wake-ups sums are 0.
fn same_pu(pair: &WakeUps) -> String {
    number(pair.same_pu.map(|same| format!("{} %", 100 * same / pair.count.max(1))))
}

/// Mean time until the woken thread had a PU.
fn waited(pair: &WakeUps) -> String {
    number(pair.waited.map(|waited| Nanos(waited.0 / pair.count.max(1))))
}

fn pu_or(pu: Option<PuNr>, none: &str) -> String {
    pu.map_or(none.to_owned(), |pu| pu.to_string())
}

/// Placement status of a task with its detail; with `explain` also the reason, unless equal.
fn status(task: &TaskReport, explain: bool) -> String {
    let why = task.why.as_ref().map_or("by default placement".into(), ToString::to_string);
    let detail = task.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
    let says_why = explain && why != task.status;
    let why = if says_why { format!("; {why}") } else { String::new() };
    format!("{}{detail}{why}", task.status)
}

/// The first [`MOST_PAIRS`] pairs as a table, and the number of the others.
fn most_pairs<P>(columns: &[TableColumn<'_, P>], pairs: &[P], text: &mut String) {
    text.push_str(&aligned(&rows(columns, &pairs[..pairs.len().min(MOST_PAIRS)])));
    if let Some(more @ 1..) = pairs.len().checked_sub(MOST_PAIRS) {
        let _ = writeln!(text, "… and {more} more pairs");
    }
}

/// A job with its number and its counts.
type JobRow<'a> = (usize, &'a JobReport, &'a JobCounts);

impl Report {
    /// The report as tables, followed by its notes: a file does not get them while the run lasts.
    pub fn text_with_notes(&self, explain: bool) -> String {
        let mut text = self.text(explain);
        if !self.notes.is_empty() {
            text.push_str("\nnotes\n");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{}", printable(note));
        }
        text
    }

    /// The report as tables; with `explain` also evidence, plans and reasons of every choice.
    pub fn text(&self, explain: bool) -> String {
        let mut text = self.head();
        text.push_str(&aligned(&self.job_rows()));
        let counted =
            || self.jobs.iter().filter_map(|job| Some((&*job.name, job.counts.as_ref()?)));
        if counted().any(|(_, job)| job.rates.estimated_of.any()) {
            text.push_str("~: estimated by the contention model, not counted\n");
        }
        if !self.plans.is_empty() {
            text.push_str(&aligned(&self.task_rows(explain)));
            // Forgotten tasks are in no row, either.
            let more = self.tasks.len().saturating_sub(MOST_TASKS) as u64 + self.forgotten_tasks;
            if more > 0 {
                let _ = writeln!(text, "… and {more} more");
            }
        }
        let phases = counted().map(|(name, job)| (name, &job.phases));
        text.push_str(&timeline::table(phases, explain));
        self.shared_cores(&mut text);
        self.wake_ups(&mut text);
        self.sharing(&mut text);
        if explain {
            self.explanation(&mut text);
        }
        text
    }

    fn head(&self) -> String {
        let mut text = String::new();
        if let Some(summary) = &self.summary {
            let _ = writeln!(text, "colocate: {}", summary.line);
        }
        let _ = write!(text, "policy {}", printable(&self.policy));
        // Writing to a string cannot fail.
        if let (Some(quanta), Some(quantum)) = (self.quanta, self.quantum_ns) {
            let _ = write!(text, ", {quanta} quanta of {quantum}");
        }
        let living = self.most_tasks_at_once;
        let usable = &self.machine.usable;
        let _ = writeln!(
            text,
            ", turnaround {} s, at most {living} threads alive at once on {} usable PUs ({usable})",
            seconds(Some(self.turnaround_ns)),
            usable.len()
        );
        if let Some(quota) = self.machine.quota {
            let _ = writeln!(text, "CPU quota: all threads together may use {quota}");
        }
        let lines = [("predicted", &self.predicted), ("at the end", &self.state)];
        for (what, line) in lines.iter().filter_map(|(what, line)| Some((what, line.as_ref()?))) {
            let _ = writeln!(text, "{what}: {}", printable(line));
        }
        let Creation { seen_by, created, pinned_at_creation, .. } = &self.threads_created;
        let _ = write!(
            text,
            "threads created: {created} (seen by {seen_by}), {pinned_at_creation} pinned at creation"
        );
        let Creation { waited_median_ns, waited_p99_ns, .. } = &self.threads_created;
        if let (Some(median), Some(p99)) = (waited_median_ns, waited_p99_ns) {
            let _ = write!(text, ", after {median} (median), {p99} (99th percentile)");
        }
        text + "\n"
    }

    /// A row for each job, with a heading; columns of figures only with a known figure.
    fn job_rows(&self) -> Vec<Vec<String>> {
        let known = |is: &dyn Fn(&JobCounts) -> bool| {
            self.jobs.iter().filter_map(|job| job.counts.as_ref()).any(is)
        };
        let none = JobCounts::default();
        let quanta = self.quanta.is_some();
        let jobs = self.jobs.iter().enumerate();
        let jobs: Vec<JobRow<'_>> =
            jobs.map(|(n, job)| (n, job, job.counts.as_ref().unwrap_or(&none))).collect();
        let again = self.jobs.iter().any(|job| job.runs > 1);
        let memory_known = known(&|of| of.rates.memory.get().is_some());
        let cycles_known = known(&|of| of.rates.cycles.most().is_some());
        let columns: [TableColumn<'_, JobRow<'_>>; 14] = [
            ("job", true, &|(number, ..)| number.to_string()),
            ("PID", true, &|(_, job, _)| number(job.pid)),
            ("name", true, &|(_, job, _)| job.name.clone()),
            ("status", true, &|(_, job, _)| job.status.map_or_else(unknown, |of| of.to_string())),
            ("runs", again, &|(_, job, _)| job.runs.to_string()),
            ("ended, s", true, &|(_, job, _)| seconds(job.ended_ns)),
            ("CPU, s", true, &|(_, job, _)| seconds(job.cpu_ns)),
            ("quanta", quanta, &|(.., of)| of.quanta.to_string()),
            ("waited", quanta, &|(.., of)| of.waited.to_string()),
            ("filling, s", known(&|of| of.filled.is_some()), &|(.., of)| seconds(of.filled)),
            ("IPC", known(&|of| of.rates.ipc.get().is_some()), &|(.., of)| ipc(&of.rates)),
            ("memory, t/µs", memory_known, &|(.., of)| memory(&of.rates)),
            ("cycles", cycles_known, &|(.., of)| mostly(&of.rates)),
            // `schedule`, which has quanta, reads no profiles.
            ("profile", !quanta, &|(_, job, _)| {
                job.profile.map_or("none", Backend::name).to_owned()
            }),
        ];
        rows(&columns, &jobs)
    }

    /// One row a task, with a heading.
    fn task_rows(&self, explain: bool) -> Vec<Vec<String>> {
        let columns: [TableColumn<'_, TaskReport>; 11] = [
            ("task", true, &|task| task.task.to_string()),
            ("PID", true, &|task| number(task.pid)),
            ("TID", true, &|task| number(task.tid)),
            ("name", true, &|task| task.name.clone()),
            ("CPU, s", true, &|task| seconds(task.cpu_ns)),
            ("placed", true, &|task| task.placed_share.map_or_else(unknown, share)),
            ("on", true, &on),
            ("planned", explain, &|task| pu_or(task.planned, "kernel")),
            ("allowed", explain, &|task| {
                task.allowed.as_ref().map_or("unseen".into(), ToString::to_string)
            }),
            ("last on", explain, &|task| pu_or(task.last_ran, "unseen")),
            ("status", true, &|task| status(task, explain)),
        ];
        rows(&columns, &self.tasks[..self.tasks.len().min(MOST_TASKS)])
    }

    /// Number of quanta in which threads of two jobs shared a core, as a matrix.
    fn shared_cores(&self, text: &mut String) {
        if self.shared_core.is_empty() {
            return;
        }
        text.push_str("\nquanta in which threads of two jobs shared a core\n");
        let jobs = self.jobs.len();
        if jobs > MOST_TOGETHER {
            let _ = writeln!(text, "{jobs} jobs: in the JSON");
            return;
        }
        let mut shared = vec![vec![0; jobs]; jobs];
        for SharedCore { jobs: [a, b], quanta } in &self.shared_core {
            shared[*a][*b] = *quanta;
            shared[*b][*a] = *quanta;
        }
        let names: Vec<String> = self.jobs.iter().map(|job| job.name.clone()).collect();
        text.push_str(&matrix(&names, |a, b| shared[a][b].to_string()));
    }

    /// Pairs of waker and wakee, most wake-ups first.
    fn wake_ups(&self, text: &mut String) {
        let Some(wake_ups) = self.wake_ups.as_deref() else { return };
        let mut pairs: Vec<&WakeUps> = wake_ups.iter().filter(|pair| pair.count > 0).collect();
        pairs.sort_by_key(|pair| Reverse(pair.count));
        if pairs.is_empty() {
            return;
        }
        // Either direction has only a part of the time.
        let both_ran = |pair: &WakeUps| Some(pair.both_ran? + both_ran_back(wake_ups, pair)?);
        let columns: [TableColumn<'_, &WakeUps>; 6] = [
            ("thread", true, &|pair| {
                pair.waker.map_or("others".to_owned(), |waker| self.task_name(waker))
            }),
            ("wakes", true, &|pair| self.task_name(pair.wakee)),
            ("times", true, &|pair| pair.count.to_string()),
            ("on its PU", true, &|pair| same_pu(pair)),
            ("PU after", true, &|pair| waited(pair)),
            ("both ran, s", true, &|pair| seconds(both_ran(pair))),
        ];
        text.push_str("\nwhich threads wake which\n");
        most_pairs(&columns, &pairs, text);
    }

    fn task_name(&self, id: TaskId) -> String {
        let task = self.tasks.iter().find(|task| task.task == id);
        task.map_or_else(|| id.to_string(), |task| format!("{id} {}", task.name))
    }

    /// Pairs of threads that use the same memory, by the CPU time of both, most first.
    fn sharing(&self, text: &mut String) {
        let Some(sharing) = self.sharing.as_deref() else { return };
        let shared = sharing.iter().map(|one| (one.task, one.with, one.time.as_secs_f64()));
        let mut pairs: Vec<_> = Matrix::of(shared).pairs().collect();
        pairs.sort_by(|a, b| b.1.total_cmp(&a.1));
        let columns: [TableColumn<'_, _>; 3] = [
            ("thread", true, &|(two, _): &((TaskId, TaskId), f64)| self.task_name(two.0)),
            ("and", true, &|(two, _)| self.task_name(two.1)),
            ("CPU time, s", true, &|(_, time)| format!("{time:.3}")),
        ];
        text.push_str("\nwhich threads use the same memory\n");
        most_pairs(&columns, &pairs, text);
    }

    fn explanation(&self, text: &mut String) {
        for evidence in &self.evidence {
            let source = evidence.source.name();
            let found = match (evidence.backend, &evidence.cost, &evidence.refused) {
                (Some(backend), Some(cost), _) => format!("{backend} ({cost})"),
                (_, _, Some(why)) => format!("none, because {why}"),
                _ => "none".to_owned(),
            };
            let _ = writeln!(text, "evidence {source}: {}", printable(&found));
        }
        for planned in &self.plans {
            let at = planned.at_ns;
            let cause = planned.cause;
            let tasks = planned.plan.decisions.len();
            let _ = writeln!(text, "planned at {at}, cause {cause}: {tasks} tasks");
        }
        if self.quanta.is_some() {
            text.push_str("\nwhy each job ran when it last did\n");
            text.push_str(&aligned(&self.reasons()));
        }
    }

    /// One row a thread of each job's last choice, with a heading.
    fn reasons(&self) -> Vec<Vec<String>> {
        let mut rows =
            vec![["job", "selected", "thread", "PU", "allocated"].map(str::to_owned).to_vec()];
        for job in &self.jobs {
            let Some(choice) = job.counts.as_ref().and_then(|job| job.last_choice.as_ref()) else {
                rows.push([&job.name, "never", "", "", ""].map(str::to_owned).to_vec());
                continue;
            };
            for (row, place) in choice.places.iter().enumerate() {
                let of_job = |cell: String| if row == 0 { cell } else { String::new() };
                rows.push(vec![
                    of_job(job.name.clone()),
                    of_job(choice.selected.to_string()),
                    place.thread.to_string(),
                    place.pu.map_or("kernel".to_owned(), |pu| pu.0.to_string()),
                    place.allocated.to_string(),
                ]);
            }
        }
        rows
    }
}
