//! What `run` reports: where every task was meant to be, where it really was, and why.

use super::jobs::Job;
use crate::evidence::Evidence;
use colocate_engine::{Host, Observation, PlacementStatus, Planned, SeenTask};
use colocate_host::LinuxHost;
use colocate_machine::printable::{self, printable};
use colocate_machine::read::{self, Sysfs};
use colocate_machine::{CpuQuota, Nanos, PuNr, PuSet};
use colocate_model::{Backend, Mix};
use colocate_policy::{Grant, Place, Plan, TaskId, Why};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Version of the report's form.
const VERSION: u32 = 2;

/// Tasks that the text shows one by one; the JSON has all that are remembered.
const SHOWN: usize = 100;

/// What a run was done with.
pub struct Occasion {
    machine: String,
    processor: Option<String>,
    usable: Vec<PuNr>,
    quota: Option<CpuQuota>,
    watch: Option<Nanos>,
    evidence: Vec<Evidence>,
    creation: Creation,
    most_living: usize,
    forgotten: u64,
    notes: Vec<String>,
}

impl Occasion {
    /// Asks the host, at the end.
    pub fn of(
        host: &LinuxHost,
        watch: Option<Nanos>,
        grants: &[Grant],
        notes: Vec<String>,
    ) -> Self {
        let counts = host.creations();
        Self {
            machine: host.machine().name.clone(),
            processor: host.machine().processor.clone(),
            usable: host.usable().to_vec(),
            quota: read::usable(host.machine(), &Sysfs::at(Path::new("/"))).quota,
            watch,
            evidence: Evidence::of(grants),
            creation: Creation {
                seen_by: if host.creation_without_perf().is_some() { "proc" } else { "perf" },
                created: counts.created,
                lost: counts.lost,
                pinned_at_creation: counts.waited.count(),
                waited_median_ns: counts.waited.percentile(50),
                waited_p99_ns: counts.waited.percentile(99),
            },
            most_living: host.most_living(),
            forgotten: host.forgotten(),
            notes,
        }
    }
}

/// The report of a run (docs/schemas/report.json).
#[derive(Serialize)]
pub struct Report {
    version: u32,
    colocate: &'static str,
    machine: Machine,
    policy: String,
    predicted: Option<String>,
    watch_ns: Option<Nanos>,
    jobs: Vec<ReportedJob>,
    tasks: Vec<ReportedTask>,
    forgotten_tasks: u64,
    most_tasks_at_once: usize,
    evidence: Vec<Evidence>,
    threads_created: Creation,
    plans: Vec<ReportedPlan>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Machine {
    name: String,
    processor: Option<String>,
    usable: PuSet,
    quota: Option<CpuQuota>,
}

#[derive(Serialize)]
struct ReportedJob {
    name: String,
    command: Vec<String>,
    identity: Option<String>,
    /// Where its profile comes from: the backend, or nothing.
    profile: Option<Backend>,
    wall_ns: Nanos,
    cpu_ns: Option<Nanos>,
    status: i32,
}

#[derive(Serialize)]
struct ReportedTask {
    task: TaskId,
    name: String,
    created_ns: Nanos,
    ended_ns: Option<Nanos>,
    cpu_ns: Option<Nanos>,
    mix: Mix,
    planned: Option<PuNr>,
    why: Option<Why>,
    status: &'static str,
    detail: Option<String>,
    allowed: Option<PuSet>,
    last_ran: Option<PuNr>,
}

#[derive(Clone, Serialize)]
struct Creation {
    seen_by: &'static str,
    created: u64,
    lost: u64,
    pinned_at_creation: u64,
    waited_median_ns: Option<Nanos>,
    waited_p99_ns: Option<Nanos>,
}

#[derive(Serialize)]
struct ReportedPlan {
    at_ns: Nanos,
    cause: &'static str,
    plan: Plan,
}

impl Report {
    /// The report of a run that has ended.
    pub fn new(occasion: &Occasion, jobs: &[Job], plans: &[Planned], seen: &Observation) -> Self {
        let last = &plans[plans.len() - 1].plan;
        let reported = plans.iter().map(|planned| ReportedPlan {
            at_ns: planned.at,
            cause: planned.cause.name(),
            plan: planned.plan.clone(),
        });
        Self {
            version: VERSION,
            colocate: env!("CARGO_PKG_VERSION"),
            machine: Machine {
                name: occasion.machine.clone(),
                processor: occasion.processor.clone(),
                usable: occasion.usable.iter().copied().collect(),
                quota: occasion.quota,
            },
            policy: last.policy.clone(),
            predicted: last.predicted.clone(),
            watch_ns: occasion.watch,
            jobs: jobs.iter().enumerate().map(|(n, job)| ReportedJob::new(n, job, seen)).collect(),
            tasks: seen.tasks.iter().map(|task| ReportedTask::new(task, plans)).collect(),
            forgotten_tasks: occasion.forgotten,
            most_tasks_at_once: occasion.most_living,
            evidence: occasion.evidence.clone(),
            threads_created: occasion.creation.clone(),
            plans: reported.collect(),
            notes: occasion.notes.clone(),
        }
    }

    /// As JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        printable::json(self)
    }

    /// As text; with the reason of every choice if `explain`.
    pub fn text(&self, explain: bool) -> String {
        let mut text = String::new();
        self.head(&mut text);
        self.jobs_text(&mut text);
        self.tasks_text(&mut text, explain);
        if explain {
            self.plans_text(&mut text);
        }
        text
    }

    fn head(&self, text: &mut String) {
        let usable = self.machine.usable.len();
        let living = self.most_tasks_at_once;
        let _ = writeln!(
            text,
            "colocate: policy {}, at most {living} threads alive at once on {usable} usable PUs ({})",
            printable(&self.policy),
            self.machine.usable
        );
        if let Some(quota) = self.machine.quota {
            let _ = writeln!(text, "CPU quota: all threads together may use {quota}");
        }
        if let Some(predicted) = &self.predicted {
            let _ = writeln!(text, "predicted: {}", printable(predicted));
        }
        let Creation {
            seen_by, created, pinned_at_creation, waited_median_ns, waited_p99_ns, ..
        } = &self.threads_created;
        let _ = write!(
            text,
            "threads created: {created} (seen by {seen_by}), {pinned_at_creation} pinned at creation"
        );
        if let (Some(median), Some(p99)) = (waited_median_ns, waited_p99_ns) {
            let _ = write!(text, ", after {median} (median), {p99} (99th percentile)");
        }
        text.push('\n');
    }

    fn jobs_text(&self, text: &mut String) {
        for (number, job) in self.jobs.iter().enumerate() {
            let cpu = job.cpu_ns.map_or("unknown".to_owned(), |time| time.to_string());
            let profile = job.profile.map_or("none", Backend::name);
            let _ = writeln!(
                text,
                "job {number}: {} took {}, CPU time {cpu}, status {}, profile {profile}",
                printable(&job.name),
                job.wall_ns,
                job.status
            );
        }
    }

    fn tasks_text(&self, text: &mut String, explain: bool) {
        let names = self.tasks.iter().take(SHOWN).map(|task| printable(&task.name));
        let name_width = names.map(|name| name.chars().count()).max();
        let width = name_width.unwrap_or(0).max(4);
        let _ = writeln!(text, "  task   {:width$}  planned  allowed  last on  status", "name");
        for task in self.tasks.iter().take(SHOWN) {
            let _ = writeln!(text, "  {}", task.row(width, explain));
        }
        let more = self.tasks.len().saturating_sub(SHOWN) as u64 + self.forgotten_tasks;
        if more > 0 {
            let _ = writeln!(text, "  … and {more} more");
        }
    }

    fn plans_text(&self, text: &mut String) {
        for evidence in &self.evidence {
            let _ = writeln!(text, "{}", printable(&evidence.line()));
        }
        for planned in &self.plans {
            let tasks = planned.plan.decisions.len();
            let _ = writeln!(
                text,
                "planned at {}, cause {}: {tasks} tasks",
                planned.at_ns, planned.cause
            );
        }
    }
}

impl ReportedJob {
    fn new(number: usize, job: &Job, seen: &Observation) -> Self {
        let end = seen.ended.iter().find(|end| end.job.0 as usize == number);
        Self {
            name: job.command.name(),
            command: job
                .command
                .argv
                .iter()
                .map(|arg| arg.to_string_lossy().into_owned())
                .collect(),
            identity: job.program.as_ref().ok().map(|program| program.identity.clone()),
            profile: job.profile.as_ref().map(|profile| profile.backend),
            wall_ns: end.map_or(seen.at, |end| end.at),
            cpu_ns: end.and_then(|end| end.cpu_time),
            status: end.map_or(0, |end| end.status),
        }
    }
}

impl ReportedTask {
    fn new(task: &SeenTask, plans: &[Planned]) -> Self {
        // The last plan that speaks of the task is the one that it was placed by.
        let decision = plans.iter().rev().find_map(|planned| {
            let decisions = &planned.plan.decisions;
            decisions.binary_search_by_key(&task.id, |d| d.task).ok().map(|place| &decisions[place])
        });
        let (status, detail) = status(&task.status);
        Self {
            task: task.id,
            name: task.name.to_string(),
            created_ns: task.created,
            ended_ns: task.ended,
            cpu_ns: task.cpu_time,
            mix: task.known_mix(),
            planned: task.target_pu,
            why: decision.map(|decision| decision.why.clone()),
            status,
            detail,
            allowed: (!task.allowed.is_empty()).then(|| task.allowed.iter().copied().collect()),
            last_ran: task.last_ran,
        }
    }

    fn row(&self, width: usize, explain: bool) -> String {
        let pu = |pu: Option<PuNr>, none: &str| pu.map_or(none.to_owned(), |pu| pu.to_string());
        let allowed = self.allowed.as_ref().map_or("unseen".to_owned(), ToString::to_string);
        let mut row = format!(
            "{:<5}  {:width$}  {:7}  {allowed:7}  {:7}  {}",
            self.task.to_string(),
            printable(&self.name),
            pu(self.planned, "kernel"),
            pu(self.last_ran, "unseen"),
            self.status,
        );
        if let Some(detail) = &self.detail {
            let _ = write!(row, ": {}", printable(detail));
        }
        if explain {
            let why =
                self.why.as_ref().map_or("by default placement".to_owned(), ToString::to_string);
            let _ = write!(row, "; {}", printable(&why));
        }
        row
    }
}

fn status(status: &PlacementStatus) -> (&'static str, Option<String>) {
    match status {
        PlacementStatus::Placed => ("placed", None),
        PlacementStatus::LeftToKernel => ("left to the kernel", None),
        PlacementStatus::Waiting => ("waiting", None),
        PlacementStatus::Settling => ("not placed yet", None),
        PlacementStatus::Exempt(why) => ("not placed", Some((*why).to_owned())),
        PlacementStatus::PinnedByProgram => ("pinned by the program", None),
        PlacementStatus::Missed => ("ended before it could be placed", None),
        PlacementStatus::Trouble(why) => ("trouble", Some(why.clone())),
    }
}

/// The plan of a dry run, as text.
pub fn dry(plan: &Plan, jobs: &[Job], watch: Option<Nanos>) -> String {
    let mut text = format!(
        "policy {}, PUs {}\n",
        printable(&plan.policy),
        plan.pus.iter().copied().collect::<PuSet>()
    );
    for (number, job) in jobs.iter().enumerate() {
        let known = match (&job.profile, watch) {
            (Some(profile), _) => format!("profile {}", profile.backend.name()),
            (None, Some(watch)) => {
                format!("not seen before: left to the kernel and watched for {watch}, then placed")
            }
            (None, None) => "placed as its threads are created".to_owned(),
        };
        let _ = writeln!(text, "job {number}: {}, {known}", printable(&job.command.name()));
    }
    for decision in &plan.decisions {
        let place = match decision.place {
            Place::Pu(pu) => pu.to_string(),
            Place::LeftToKernel => "kernel".to_owned(),
            Place::Waiting => "waits".to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:<5}  {}  {place}  {}",
            decision.task.to_string(),
            printable(&decision.name),
            printable(&decision.why.to_string())
        );
    }
    if let Some(predicted) = &plan.predicted {
        let _ = writeln!(text, "predicted: {}", printable(predicted));
    }
    text
}
