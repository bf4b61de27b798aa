//! The report of `run`, `attach` and `schedule` (docs/schemas/report.json): the gain over the
//! kernel alone; the planned and the actual place of every task, with the reason; the end of each
//! job; and, with quanta, how often, with which co-runners and how fast each job ran.

pub mod counts;
pub mod summary;
pub mod text;

use crate::timeline::PhaseInterval;
use colocate_engine::{Host, IssuedPlan};
use colocate_evidence::{
    Grant, Observation, SeenTask, Sharing, Source, SourceSet, TaskId, WakeUps,
};
use colocate_figures::gantt::{self, GanttInput, PhaseSpan};
use colocate_host::{LinuxHost, RunTotals, TaskRecord};
use colocate_linux::{Pid, Tid};
use colocate_machine::read::{self, Sysfs};
use colocate_machine::{CpuQuota, Machine, Nanos, PuNr, PuSet, SharedPart, printable};
use colocate_model::{Backend, Mix};
use colocate_policy::{PlaceReason, Plan};
use counts::{JobCounts, WorkloadCounts};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use summary::{Comparing, GainSummary, SummaryFacts};

/// Version of the report's format.
pub const VERSION: u32 = 4;

/// Planned and actual place of every task, end of each job and, with quanta, co-runners and speed of each job. Times
/// called `at`, `created` and `ended` count from the launch. Fields known to few commands are `None` or empty under the rest.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Serialize)]
pub struct Report {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// Version of colocate.
    colocate: &'static str,
    /// Gain over the kernel alone, or the reason why there is none; `None` until [`Report::summarize`].
    #[cfg_attr(feature = "schema", schemars(with = "GainSummary"))]
    summary: Option<GainSummary>,
    /// The machine.
    machine: MachineReport,
    /// Name of the policy, with its settings.
    policy: String,
    /// Time from the launch to the end of the last job.
    turnaround_ns: Nanos,
    /// Time between two decisions; `None` if a plan stays in force until an event calls for
    /// another.
    quantum_ns: Option<Nanos>,
    /// Number of quanta; `None` without quanta.
    quanta: Option<u64>,
    /// Watch time of unknown programs before their placement.
    pub watch_ns: Option<Nanos>,
    /// The policy's prediction for the last plan.
    predicted: Option<String>,
    /// The policy's state at the end.
    state: Option<String>,
    /// The jobs, in the order of the command line or the workload file.
    jobs: Vec<JobReport>,
    /// Pairs of jobs on a common core in at least one quantum.
    shared_core: Vec<SharedCore>,
    /// Tasks, in the order of job and creation.
    tasks: Vec<TaskReport>,
    /// Number of ended tasks that are not listed, beyond the limit of the list.
    forgotten_tasks: u64,
    /// Most tasks alive at once.
    most_tasks_at_once: usize,
    /// Threads created during the run.
    threads_created: Creation,
    /// Wake-ups between tasks; `None` if not counted.
    wake_ups: Option<Vec<WakeUps>>,
    /// Memory used by several tasks; `None` if not sampled.
    sharing: Option<Vec<Sharing>>,
    /// Requested sources of evidence, in the order of the requests.
    evidence: Vec<Evidence>,
    /// Plans in force; empty under `colocate schedule`, with a plan for each quantum.
    plans: Vec<PlanReport>,
    /// Caveats for the reader, one line each.
    pub notes: Vec<String>,
    /// Inputs of the summary beside the rest of the report.
    #[serde(skip)]
    host: RunTotals,
}

/// Machine of the run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Default, Serialize)]
struct MachineReport {
    /// Name of the machine.
    name: String,
    /// Processor model; `None` if unknown.
    processor: Option<String>,
    /// Number of PUs online.
    pus: usize,
    /// PUs that the tasks could use at the end.
    usable: PuSet,
    /// CPU time for all tasks together per period; `None` without a limit.
    quota: Option<CpuQuota>,
}

/// A program, as known before its launch.
pub struct ProgramInfo {
    pub name: String,
    pub command: Vec<String>,
    /// Build ID or hash.
    pub identity: Option<String>,
    pub profile: Option<Backend>,
}

impl ProgramInfo {
    /// A program of unknown identity and profile.
    pub fn of(name: String, argv: &[OsString]) -> Self {
        let command = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Self { name, command, identity: None, profile: None }
    }
}

/// A job. Fields from `quanta` on are present under `colocate schedule` only.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("dependentRequired" = {
    "quanta": ["waited", "filled_ns", "rates", "phases", "last_choice"]
})))]
#[derive(Serialize)]
struct JobReport {
    /// Name.
    name: String,
    /// Program and arguments.
    command: Vec<String>,
    /// First process of the job's last run.
    pid: Option<Pid>,
    /// Build ID or hash of the program; `None` if not read.
    identity: Option<String>,
    /// Source of its profile.
    profile: Option<Backend>,
    /// Exit status as a shell reports it; `None` if the job did not end.
    status: Option<i32>,
    /// Time since the launch; `None` if the job did not end.
    ended_ns: Option<Nanos>,
    /// CPU time in this run: of the reaped processes or of the threads as last read, whichever is
    /// more; `None` if unknown.
    cpu_ns: Option<Nanos>,
    /// Instructions of all its runs, as far as its threads were counted.
    instructions: Option<u64>,
    /// Number of runs that ended by themselves.
    runs: u32,
    /// Counts by quantum.
    #[serde(flatten)]
    counts: Option<JobCounts>,
}

/// A thread of a job.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct TaskReport {
    /// Its ID.
    task: TaskId,
    /// Its process; `None` if unknown.
    pid: Option<Pid>,
    /// Its thread; `None` if unknown.
    tid: Option<Tid>,
    /// Names of job and thread.
    name: String,
    /// Time of its creation.
    created_ns: Nanos,
    /// Time of its end; `None` if it did not end.
    ended_ns: Option<Nanos>,
    /// CPU time in this run.
    cpu_ns: Option<Nanos>,
    /// Instruction mix.
    mix: Mix,
    /// Share of the time with a placement; `None` if never followed.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    placed_share: Option<f64>,
    /// PUs where the task was placed, with the time on each.
    placed: Vec<PlacedOn>,
    /// PU of the plan or its default placement; `None` leaves the choice to the kernel.
    planned: Option<PuNr>,
    /// Cache or node shared with `planned`, if the task may run on several PUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "SharedPart"))]
    sharing: Option<SharedPart>,
    /// Reason in the plan (plan.json); `None` for default placement and without plans.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")
    )]
    why: Option<PlaceReason>,
    /// Status of its placement.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = [
        "placed", "left to the kernel", "waiting", "not placed yet", "not placed", "pinned by the program",
        "ended before it could be placed", "trouble"
    ])))]
    status: &'static str,
    /// Detail of the status, in one line.
    detail: Option<String>,
    /// PUs that it could run on, as last read back; `None` if it ended before.
    allowed: Option<PuSet>,
    /// PU of its last execution; `None` if it ended before it was seen.
    last_ran: Option<PuNr>,
}

/// Time in a placement.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct PlacedOn {
    /// The PUs.
    pus: PuSet,
    /// Time on them.
    time_ns: Nanos,
}

/// Threads created during the run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Default, Serialize)]
struct Creation {
    /// The kernel's events, or `/proc` where events are denied.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["perf", "proc"])))]
    seen_by: &'static str,
    /// Number of created threads.
    created: u64,
    /// Events of creation and end dropped by the kernel.
    lost: u64,
    /// Number of threads pinned at creation.
    pinned_at_creation: u64,
    /// Median time from the creation to the end of the call that pinned.
    waited_median_ns: Option<Nanos>,
    /// 99th percentile of that time.
    waited_p99_ns: Option<Nanos>,
}

/// A plan that was in force.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct PlanReport {
    /// Begin of the plan.
    at_ns: Nanos,
    /// Reason for a new plan.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["launch", "watched", "machine-changed", "job-ended", "crowded", "elapsed"])))]
    cause: &'static str,
    /// The plan (plan.json).
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    plan: Plan,
}

/// Pair of jobs on a common core.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct SharedCore {
    /// Places in `jobs`; twice the same for two threads of a job.
    jobs: [usize; 2],
    /// Number of quanta.
    quanta: u64,
}

/// A requested source of evidence: its backend and cost, or the reason of the refusal and the
/// remedy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct Evidence {
    /// The source.
    source: Source,
    /// Provider; `None` if refused.
    backend: Option<&'static str>,
    /// Cost of the provider.
    cost: Option<String>,
    /// Cause of the refusal; `None` if provided.
    refused: Option<String>,
    /// Remedy for a refusal.
    remedy: Option<&'static str>,
}

/// Figures of the host at the end beside its last observation.
pub struct HostTotals {
    machine: MachineReport,
    threads_created: Creation,
    host: RunTotals,
}

impl HostTotals {
    /// Reads the host's totals; to be called before the host ends.
    pub fn of(host: &LinuxHost) -> Self {
        let machine = host.machine();
        let totals = host.totals();
        let created = &totals.creations;
        let own = read::usable(machine, &Sysfs::at(Path::new("/"))).quota;
        // Attached programs need not share colocate's quota.
        let own_quota = own.filter(|_| !totals.is_attached);
        Self {
            machine: MachineReport {
                quota: totals.quota.or(own_quota),
                ..MachineReport::of(machine, host.usable())
            },
            threads_created: Creation {
                seen_by: if totals.creation_without_perf.is_some() { "proc" } else { "perf" },
                created: created.created,
                lost: created.lost,
                pinned_at_creation: created.waited.count(),
                waited_median_ns: created.waited.percentile(50),
                waited_p99_ns: created.waited.percentile(99),
            },
            host: totals,
        }
    }
}

impl MachineReport {
    fn of(machine: &Machine, usable: &[PuNr]) -> Self {
        Self {
            name: machine.name.clone(),
            processor: machine.processor.clone(),
            pus: machine.pus.len(),
            usable: usable.iter().copied().collect(),
            quota: None,
        }
    }
}

impl Report {
    /// A report of ended jobs under `policy`.
    pub fn new(
        policy: String,
        totals: HostTotals,
        programs: Vec<ProgramInfo>,
        grants: &[Grant],
        last: &Observation,
    ) -> Self {
        let host = &totals.host;
        let tasks = last.tasks.iter().map(|it| TaskReport::new(it, host.records.get(&it.id)));
        let tasks: Vec<TaskReport> = tasks.collect();
        let jobs = programs.into_iter().enumerate();
        let mut jobs: Vec<JobReport> =
            jobs.map(|(number, program)| JobReport::new(number, program, host, last)).collect();
        for (job, number) in jobs.iter_mut().zip(0..) {
            job.has_at_least(tasks.iter().filter(|task| task.task.job.0 == number));
        }
        Self {
            version: VERSION,
            colocate: env!("CARGO_PKG_VERSION"),
            machine: totals.machine,
            policy,
            turnaround_ns: last.ended.iter().map(|end| end.at).max().unwrap_or(Nanos::ZERO),
            jobs,
            tasks,
            forgotten_tasks: totals.host.forgotten,
            most_tasks_at_once: totals.host.most_living,
            threads_created: totals.threads_created,
            wake_ups: last.reports.wake_ups.clone(),
            sharing: last.reports.sharing.clone(),
            evidence: grants.iter().map(Evidence::of).collect(),
            host: totals.host,
            ..Self::default()
        }
    }

    /// Adds the summary, from the rest of the report; `needs` is the policy's evidence.
    pub fn summarize(&mut self, comparing: &Comparing, needs: SourceSet) {
        self.summary = Some(SummaryFacts { report: self, comparing, needs }.summary());
    }

    /// Adds the plans in force and, from the plans, the reason of each task's place.
    pub fn add_plans(&mut self, plans: Vec<IssuedPlan>) {
        for task in &mut self.tasks {
            // The last plan that names a task is the plan that placed it.
            task.why = plans.iter().rev().find_map(|planned| {
                let decisions = &planned.plan.decisions;
                // Decisions are in the order of their tasks.
                let place = decisions.binary_search_by_key(&task.task, |of| of.task).ok()?;
                Some(decisions[place].why.clone())
            });
        }
        if let Some(last) = plans.last() {
            self.policy.clone_from(&last.plan.policy);
            self.predicted.clone_from(&last.plan.predicted);
        }
        let reported = plans.into_iter().map(|IssuedPlan { at, cause, plan }| PlanReport {
            at_ns: at,
            cause: cause.name(),
            plan,
        });
        self.plans = reported.collect();
    }

    /// Adds the counts of quanta of length `quantum`; takes the jobs' counts.
    pub fn add_counts(&mut self, quantum: Nanos, counts: &mut WorkloadCounts) {
        self.quantum_ns = Some(quantum);
        self.quanta = Some(counts.quanta);
        self.state.clone_from(&counts.state);
        for (job, counts) in self.jobs.iter_mut().zip(counts.jobs.drain(..)) {
            job.counts = Some(counts);
        }
        let shared = counts.shared.iter();
        self.shared_core =
            shared.map(|(&(a, b), &quanta)| SharedCore { jobs: [a, b], quanta }).collect();
    }

    /// First non-zero exit status, in the order of the jobs; 0 without any.
    pub fn exit_status(&self) -> u8 {
        let status = self.jobs.iter().filter_map(|job| job.status).find(|status| *status != 0);
        u8::try_from(status.unwrap_or(0)).unwrap_or(crate::exit::OURS)
    }

    /// SVG timeline of the jobs on the PUs, from counts by quantum.
    pub fn svg(&self, counts: &WorkloadCounts) -> Result<String, String> {
        let mut phases = Vec::new();
        let mut phases_cut = false;
        for (job, of) in self.jobs.iter().enumerate() {
            let Some(JobCounts { phases: timeline, .. }) = &of.counts else { continue };
            let span =
                |it: &PhaseInterval| PhaseSpan { job, phase: it.phase, from: it.from, to: it.to };
            phases.extend(timeline.stretches.iter().map(span));
            phases_cut |= timeline.is_cut();
        }
        let cut = match (counts.is_cut(), phases_cut) {
            (true, _) => "; only the beginning is kept",
            (false, true) => "; of phases only the beginning is kept",
            (false, false) => "",
        };
        let jobs = self.jobs.len();
        let policy = &self.policy;
        let first = format!("{jobs} jobs under {policy} on {}", printable(&self.machine.name));
        let quanta = counts.quanta;
        let quantum = self.quantum_ns.unwrap_or_default();
        let second = format!(
            "{quanta} quanta of {quantum}; where threads were last seen in each, as long as they ran{cut}"
        );
        let names: Vec<String> = self.jobs.iter().map(|job| job.name.clone()).collect();
        gantt::of_run(&GanttInput {
            heading: [&first, &second],
            machine: &counts.machine,
            jobs: &names,
            spans: counts.spans(),
            phases: &phases,
            lasted: counts.spans().iter().map(|span| span.to).max().unwrap_or(Nanos::ZERO),
            axis: "time since the launch",
        })
    }
}

impl JobReport {
    fn new(number: usize, program: ProgramInfo, host: &RunTotals, last: &Observation) -> Self {
        let end = last.ended.iter().find(|end| end.job.0 as usize == number);
        let ProgramInfo { name, command, identity, profile } = program;
        Self {
            name,
            command,
            pid: host.first_processes.get(number).copied(),
            identity,
            profile,
            status: end.map(|end| end.status),
            ended_ns: end.map(|end| end.at),
            cpu_ns: end.and_then(|end| end.cpu_time).max(host.known_cpu_times.get(number).copied()),
            instructions: host.instructions.as_ref().and_then(|all| all.get(number).copied()),
            runs: host.runs.get(number).copied().unwrap_or(0),
            counts: None,
        }
    }

    /// Raises the CPU time to the sum over its tasks, which may have been sampled later.
    fn has_at_least<'a>(&mut self, tasks: impl Iterator<Item = &'a TaskReport>) {
        let sum = tasks.filter_map(|task| task.cpu_ns).reduce(|sum, time| sum + time);
        self.cpu_ns = self.cpu_ns.max(sum);
    }
}

impl TaskReport {
    fn new(task: &SeenTask, record: Option<&TaskRecord>) -> Self {
        let (status, detail) = task.status.describe();
        let before = record.map_or(Nanos::ZERO, |record| record.cpu_before);
        let placed = record.into_iter().flat_map(|record| &record.placed);
        let placed: Vec<_> =
            placed.map(|(pus, time)| PlacedOn { pus: pus.clone(), time_ns: *time }).collect();
        let placed_for = placed.iter().fold(0.0, |sum, on| sum + on.time_ns.as_secs_f64());
        let followed = record.map_or(0.0, |record| record.followed.as_secs_f64());
        Self {
            task: task.id,
            pid: record.map(|record| record.pid),
            tid: record.map(|record| record.tid),
            name: task.name.to_string(),
            created_ns: task.created,
            ended_ns: task.ended,
            cpu_ns: task.cpu_time.map(|time| time.saturating_sub(before)),
            mix: task.known_mix(),
            placed_share: (followed > 0.0).then(|| (placed_for / followed).min(1.0)),
            placed,
            planned: task.target.named_pu(),
            sharing: task.target.shared(),
            why: None,
            status,
            detail: detail.map(str::to_owned),
            allowed: (!task.allowed.is_empty()).then(|| task.allowed.iter().copied().collect()),
            last_ran: task.last_ran,
        }
    }
}

impl Evidence {
    fn of(grant: &Grant) -> Self {
        let granted = grant.answer.as_ref().ok();
        let refused = grant.answer.as_ref().err();
        Self {
            source: grant.source,
            backend: granted.map(|backend| backend.name),
            cost: granted.map(|backend| backend.cost.clone()),
            refused: refused.map(|refusal| refusal.why.clone()),
            remedy: refused.map(|refusal| refusal.remedy),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::counts::tests::counts;
    use super::*;
    use crate::timeline::Timeline;
    use colocate_engine::rates::Estimated;
    use colocate_evidence::{JobEnd, JobIdx, QuantumEnd};
    use expect_test::expect;

    /// A report of a job with a thread on PU 1 and of two more jobs.
    pub(super) fn report(counts: &mut WorkloadCounts) -> Report {
        let end = |job: u32, status| JobEnd {
            job: JobIdx(job),
            at: Nanos::from_millis(150 + 100 * u64::from(job)),
            status,
            cpu_time: Some(Nanos::from_millis(90)),
        };
        let last = Observation {
            at: Nanos::from_millis(400),
            end: QuantumEnd::AllJobsEnded,
            tasks: Vec::new(),
            ended: vec![end(1, 0), end(0, 3)],
            moved: vec![],
            reports: colocate_evidence::SourceReports::NONE,
        };
        let usable: Vec<PuNr> = (0..4).map(PuNr).collect();
        let totals = HostTotals {
            machine: MachineReport::of(&counts.machine, &usable),
            threads_created: Creation { seen_by: "perf", created: 3, ..Creation::default() },
            host: RunTotals {
                most_living: 3,
                runs: vec![1, 12, 0],
                first_processes: [71, 72].map(Pid).to_vec(),
                // A child of the second one's was not waited for.
                known_cpu_times: vec![Nanos::from_millis(80), Nanos::from_millis(120)],
                ..RunTotals::default()
            },
        };
        let program = |name: &str| ProgramInfo::of(name.into(), &[name.into()]);
        let programs = ["a", "b", "c"].map(program).into();
        let mut report = Report::new("fair".into(), totals, programs, &[], &last);
        report.add_counts(Nanos::from_millis(100), counts);
        report.summarize(&Comparing::NoGuard, SourceSet::of(&[Source::Counters]));
        report
    }

    pub(super) fn of_two_quanta() -> WorkloadCounts {
        counts(&[
            (&[(0, 0, 100, Some(1.25)), (1, 1, 100, Some(0.5))], &[]),
            (&[(0, 2, 90, None), (1, 3, 100, Some(0.5))], &[]),
        ])
    }

    /// A kernel-scheduled task that has used `cpu_time`.
    pub(super) fn task(task: TaskId, cpu_time: Nanos) -> TaskReport {
        TaskReport {
            task,
            pid: Some(Pid(71)),
            tid: Some(Tid(72)),
            name: "a/a".into(),
            created_ns: Nanos::ZERO,
            ended_ns: None,
            cpu_ns: Some(cpu_time),
            mix: Mix::default(),
            placed_share: Some(0.0),
            placed: Vec::new(),
            planned: None,
            sharing: None,
            why: None,
            status: colocate_evidence::PlacementStatus::LeftToKernel.describe().0,
            detail: None,
            allowed: None,
            last_ran: None,
        }
    }

    #[test]
    fn the_text() {
        expect![[r#"
            colocate: not placed: the run was too short (250.0 ms)
            policy fair, 2 quanta of 100.0 ms, turnaround 0.25 s, at most 3 threads alive at once on 4 usable PUs (0-3)
            at the end: the scheduler's line
            threads created: 3 (seen by perf), 0 pinned at creation
            job  PID  name  status  runs  ended, s  CPU, s  quanta  waited  filling, s  IPC    memory, t/µs  cycles
            0    71   a     3       1     0.15      0.09    2       0       0.00        1.25   12.50         frontend 62 %
            1    72   b     0       12    0.25      0.12    2       0       0.00        ~0.50  ~5.00         ~backend 75 %
            2    ?    c     ?       0     ?         ?       0       2       0.01        ?      ?             ?
            ~: estimated by the contention model, not counted

            phases, and the mean number of runnable threads
            job  serial, s  parallel, s  asleep, s  runnable  from when to when, s
            a    0.00       0.10         0.00       6.2       parallel 0.00–0.10
            b    0.00       0.20         0.00       2.5       parallel 0.00–0.20

            quanta in which threads of two jobs shared a core
               a  b  c
            a  0  2  0
            b  2  0  0
            c  0  0  0

            why each job ran when it last did
            job  selected                              thread  PU  allocated
            a    has come least far, 0.5 quanta alone  0       2   balances caches down to level 2
            b    has come least far, 1.5 quanta alone  0       3   balances caches down to level 2
            c    never
        "#]]
        .assert_eq(&report(&mut of_two_quanta()).text(true));
    }

    /// The third job used 5 ms of each of two quanta in which it had to wait.
    #[test]
    fn time_that_filled_idle_pus() {
        let text = report(&mut of_two_quanta()).text(false);
        let rows: Vec<&str> = text.lines().skip(4).take(4).collect();
        let column = rows[0].find("filling, s").unwrap();
        let cells = rows[1..].iter().map(|row| &row[column..column + 4]);
        assert_eq!(cells.collect::<Vec<_>>(), ["0.00", "0.00", "0.01"]);
    }

    /// The first job's IPC and traffic were counted, only its stack was not.
    #[test]
    fn only_what_is_estimated_is_marked() {
        let mut found = of_two_quanta();
        let rates = &mut found.jobs[0].rates;
        rates.estimated_of = Estimated { stack: true, ..Estimated::default() };
        let report = report(&mut found);
        let row =
            report.text(false).lines().find(|line| line.starts_with("0 ")).unwrap().to_owned();
        assert!(row.ends_with(" 1.25   12.50         ~frontend 62 %"), "{row}");
        let json: serde_json::Value = serde_json::from_str(&printable::json(&report)).unwrap();
        let of = |job: usize| json["jobs"][job]["rates"]["estimated_of"].to_string();
        assert_eq!(of(0), r#"["cycles"]"#);
        assert_eq!(of(1), r#"["ipc","traffic","cycles"]"#);
        assert_eq!(of(2), "[]");
    }

    /// A note may name a program, which names itself as it likes.
    #[test]
    fn a_file_keeps_the_notes() {
        let mut report = report(&mut of_two_quanta());
        assert_eq!(report.text_with_notes(true), report.text(true));
        report.notes = vec!["cannot stop job 0".into(), "a\x1bc has ended".into()];
        let expected = report.text(false) + "\nnotes\ncannot stop job 0\na\\x1bc has ended\n";
        assert_eq!(report.text_with_notes(false), expected);
    }

    /// The kernel reports 90 ms of the first job's first process; its two threads were sampled for 70 ms each.
    #[test]
    fn no_thread_has_more_than_its_job() {
        let mut job = report(&mut of_two_quanta()).jobs.remove(0);
        assert_eq!(job.cpu_ns, Some(Nanos::from_millis(90)));
        let id = |order| TaskId { job: JobIdx(0), order };
        let tasks = [0, 1].map(|order| task(id(order), Nanos::from_millis(70)));
        job.has_at_least(tasks[..1].iter());
        assert_eq!(job.cpu_ns, Some(Nanos::from_millis(90)));
        job.has_at_least(tasks.iter());
        assert_eq!(job.cpu_ns, Some(Nanos::from_millis(140)));
    }

    #[test]
    fn the_first_status_that_is_not_0() {
        assert_eq!(report(&mut of_two_quanta()).exit_status(), 3);
    }

    #[test]
    fn the_picture() {
        let mut found = of_two_quanta();
        let drawn = report(&mut found).svg(&found).unwrap();
        assert!(drawn.contains("3 jobs under fair on") && !drawn.contains("simulated"), "{drawn}");
        assert!(drawn.contains("phases: thick"), "{drawn}");
        // The ground, four stretches on PUs, a parallel phase each of two jobs, three jobs.
        assert_eq!(drawn.matches("<rect").count(), 10);
        assert!(!drawn.contains("only the beginning"), "{drawn}");
    }

    /// Two phases of a job that keeps one.
    #[test]
    fn a_picture_without_later_phases_says_so() {
        let mut found = of_two_quanta();
        let mut timeline = Timeline::one_of(1_000_000);
        timeline.ran(Nanos::ZERO, Nanos::from_millis(100), Some(1.0));
        timeline.ran(Nanos::from_millis(100), Nanos::from_millis(200), Some(4.0));
        found.jobs[1].phases = timeline;
        let report = report(&mut found);
        let drawn = report.svg(&found).unwrap();
        assert!(drawn.contains("ran; of phases only the beginning is kept"), "{drawn}");
        let text = report.text(false);
        assert!(text.contains("serial 0.00–0.10, later ones not kept\n"), "{text}");
    }

    #[test]
    fn without_rates_there_are_no_columns_for_them() {
        let mut found = counts(&[(&[(0, 0, 100, None)], &[])]);
        let text = report(&mut found).text(false);
        assert!(!text.contains("IPC") && !text.contains("shared a core"), "{text}");
    }
}
