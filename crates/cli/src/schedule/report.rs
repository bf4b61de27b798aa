//! What came of a scheduled workload.

use colocate_engine::Snapshot;
use colocate_engine::schedule::Turn;
use colocate_machine::Nanos;
use colocate_policy::schedule::Choice;
use serde::Serialize;
use std::fmt::Write;

/// Counts while a workload runs.
pub struct Tally {
    names: Vec<String>,
    scheduler: String,
    quantum: Nanos,
    quanta: u64,
    ran: Vec<u64>,
}

/// What came of it.
#[derive(Serialize)]
pub struct Report {
    version: u32,
    scheduler: String,
    quantum_ns: u64,
    quanta: u64,
    /// From the launch to the end of the last job.
    turnaround_ns: u64,
    jobs: Vec<JobReport>,
}

#[derive(Serialize)]
struct JobReport {
    name: String,
    /// Exit status as a shell reports it; null if it did not end.
    status: Option<i32>,
    /// From the launch of the workload to its end; null if it did not end.
    ended_ns: Option<u64>,
    /// CPU time of its processes that were waited for; null if the kernel does not say.
    cpu_time_ns: Option<u64>,
    /// Quanta in which it ran.
    quanta: u64,
}

impl Tally {
    /// For jobs of these names.
    pub fn new(names: Vec<String>, scheduler: String, quantum: Nanos) -> Self {
        let ran = vec![0; names.len()];
        Self { names, scheduler, quantum, quanta: 0, ran }
    }

    /// Counts a quantum.
    pub fn note(&mut self, turn: &Turn<'_>) {
        self.quanta += 1;
        for Choice { job, .. } in turn.choices {
            if let Some(ran) = self.ran.get_mut(job.0 as usize) {
                *ran += 1;
            }
        }
    }

    /// What came of it, by the last look.
    pub fn report(self, last: &Snapshot) -> Report {
        let end = |job: usize| last.ended.iter().find(|end| end.job.0 as usize == job);
        let jobs = self.names.into_iter().zip(self.ran).enumerate();
        let jobs = jobs.map(|(job, (name, quanta))| JobReport {
            name,
            status: end(job).map(|end| end.status),
            ended_ns: end(job).map(|end| end.at.0),
            cpu_time_ns: end(job).and_then(|end| end.cpu_time).map(|time| time.0),
            quanta,
        });
        Report {
            version: 1,
            scheduler: self.scheduler,
            quantum_ns: self.quantum.0,
            quanta: self.quanta,
            turnaround_ns: last.ended.iter().map(|end| end.at.0).max().unwrap_or(0),
            jobs: jobs.collect(),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn seconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "?".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e9))
}

impl Report {
    /// As JSON text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("every field has a JSON form");
        text.push('\n');
        text
    }

    /// As a table.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, {} quanta of {} ms, turnaround {} s\n",
            self.scheduler,
            self.quanta,
            self.quantum_ns / 1_000_000,
            seconds(Some(self.turnaround_ns))
        );
        let width = self.jobs.iter().map(|job| job.name.chars().count()).max().unwrap_or(0).max(3);
        let _ = writeln!(
            text,
            "{:width$}  {:>6}  {:>9}  {:>9}  {:>6}",
            "job", "status", "ended, s", "CPU, s", "quanta"
        );
        for job in &self.jobs {
            let status = job.status.map_or_else(|| "?".to_owned(), |status| status.to_string());
            let _ = writeln!(
                text,
                "{:width$}  {:>6}  {:>9}  {:>9}  {:>6}",
                job.name,
                status,
                seconds(job.ended_ns),
                seconds(job.cpu_time_ns),
                job.quanta
            );
        }
        text
    }

    /// The first status in the jobs' order that is not 0.
    pub fn exit_status(&self) -> u8 {
        let status = self.jobs.iter().filter_map(|job| job.status).find(|status| *status != 0);
        u8::try_from(status.unwrap_or(0)).unwrap_or(crate::exit::OURS)
    }
}
