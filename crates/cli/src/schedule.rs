//! `colocate schedule`: runs more programs than hardware threads, chosen quantum by quantum.

mod cores;
mod live;
pub mod policy;
mod progress;
mod speeds;
mod stacks;
pub mod workload;

use crate::launch::{self, Notes, PATIENCE, Requests, chosen};
use crate::output::{self, OutputThread};
use crate::outputs::{self, Form};
use crate::policies::{self, Policies};
use crate::report::counts::WorkloadCounts;
use crate::report::summary::Comparing;
use crate::report::{ProgramInfo, Report};
use crate::run::jobs;
use anyhow::bail;
use colocate_engine::estimate::{ByModel, Estimate};
use colocate_engine::guard::Guarded;
use colocate_engine::{Host, HostError, KnownJob, Meanwhile, Round, RunSettings, Until};
use colocate_evidence::{Grant, Observation, Source, SourceSet};
use colocate_files::FileMode;
use colocate_host::{LinuxHost, Sampling, Setup};
use colocate_linux::sys;
use colocate_machine::{Machine, Nanos, Performance, printable, read};
use colocate_model::{Assumptions, CpiModel, Model};
use colocate_observe::sources::counters::TaskCounters;
use colocate_observe::spin;
use colocate_policy::table::Prior;
use colocate_policy::{Knowledge, Policy, PolicySpec, SoloProfile};
use live::Live;
use progress::{Goal, HostReports, ReportingHost};
use stacks::Stacks;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workload::Workload;

/// Runs more programs than PUs, chosen each quantum
///
/// Every quantum the scheduler chooses programs and a PU for each of their threads; the others fill
/// idle PUs or are stopped. A terminal shows meanwhile which jobs run. When colocate ends, however it does, nothing
/// stays stopped or placed. Exit status: 0 if every program's is 0, else the first one in the workload's
/// order that is not.
#[derive(clap::Args)]
#[command(after_help = policies::WHICH_EACH_QUANTUM)]
pub struct Args {
    /// Workload file (docs/reference/schedule.md)
    #[arg(value_name = "WORKLOAD.toml", required_unless_present = "command")]
    workload: Option<PathBuf>,

    /// Policy, with its settings as NAME:SETTING=VALUE:... [default: bas where traffic to memory is counted, else round-robin]
    #[arg(long, value_name = "P", value_parser = Policies::EachQuantum, hide_possible_values = true,
        long_help = policies::by_purpose(Policies::EachQuantum, " [default: bas where traffic to memory is counted, else round-robin]"))]
    policy: Option<PolicySpec>,

    /// Time between two decisions, such as 200ms, or in seconds; else as the file says, else 200 ms, or 100 ms with a
    /// scheduler that stops no job [range: 10ms-60s]
    #[arg(long, value_name = "TIME", value_parser = workload::quantum)]
    quantum: Option<Nanos>,

    /// How fast this machine is: a described machine of the same build, by name or a .toml or .json
    /// file. Then rates that are not counted are estimated, of jobs whose demand vectors are known
    /// [default: what colocate calibrate measured, if anything]
    #[arg(long, value_name = "SPEC")]
    machine_speeds: Option<String>,

    /// What programs do that have to wait: fill idle PUs, with the least priority (SCHED_IDLE), or stop
    #[arg(long, value_name = "stop|fill", default_value_t)]
    waiting: Meanwhile,

    /// Count where the programs' cycles go (CPI stacks), before all else, and report it (docs/reference/pmu.md);
    /// symbiotic and symbiotic-numa request them by themselves
    #[arg(long)]
    stacks: bool,

    /// Samples of each running thread that show whether it only waits for others in a loop, a second of its CPU time; 0
    /// takes none [range: 0-10000; default: 250 with a scheduler that goes by phases, else 0] (docs/reference/spinning.md)
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    spin_rate: Option<u32>,

    #[command(flatten)]
    requests: Requests,

    /// Keep to the scheduler even where it makes the programs slower than the kernel would; always so with one that stops
    /// no job (docs/reference/guard.md)
    #[arg(long)]
    no_guard: bool,

    /// Report why each program ran when it last did
    #[arg(long)]
    explain: bool,

    /// Report as JSON (docs/schemas/report.json), on standard error without -o
    #[arg(long)]
    json: bool,

    /// No table meanwhile, no report and no notes on standard error
    #[arg(short, long)]
    quiet: bool,

    /// File for the report, instead of standard error, repeatable: .txt, .json, or .svg, a picture of
    /// which job ran where
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Stop programs by signals even where they can have cgroups, for tests of that
    #[arg(long, hide = true)]
    only_signals: bool,

    /// The programs instead of a workload file, with `:::` between one and the next
    #[arg(last = true, value_name = "CMD", conflicts_with = "workload")]
    command: Vec<OsString>,
}

/// Runs `colocate schedule`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let outputs = outputs::of(&args.output, args.json, FileMode::Private)?;
    let facts = LaunchFacts::of(args)?;
    let LaunchFacts { workload, policy: spec, machine, speeds, .. } = &facts;
    let model = speeds.as_ref().map(|speeds| Model::new(machine, speeds, Assumptions::default()));
    let model = model.transpose()?;
    let phases: Vec<_> = workload.jobs.iter().map(|job| job.phases.clone()).collect();
    let estimator = model.as_ref().zip(speeds.as_ref());
    let estimator = estimator.map(|(model, speeds)| ByModel::new(model, speeds, &phases));
    let mut estimator = estimator.transpose()?;
    let nice = sys::nice();
    let mut host = LinuxHost::prepare(machine.clone(), &setup(args, workload)?)
        .map_err(|why| jobs::failure(&why))?;
    let thread = (!args.quiet).then(|| OutputThread::start(nice));
    // Removes the table before Ctrl-Z stops colocate, so the shell gets a clean terminal.
    thread.iter().for_each(|thread| host.before_stop(thread.hide()));
    let mut notes = Notes::new(args.quiet, thread);
    notes.say(facts.caveats.iter().map(ToString::to_string));
    notes.say(facts.default_reason.clone());
    notes.say(speeds::note(speeds.as_ref(), workload));
    if facts.has_measured_kinds {
        notes.say(Some(cores::note(machine)));
        host.keep_kinds();
    }
    notes.say(cores::doubt(spec, machine, host.usable()));
    notes.say(host.notes());

    let names: Vec<String> = workload.jobs.iter().map(|job| job.name.clone()).collect();
    let fills = args.waiting == Meanwhile::Fill;
    let picture = outputs.iter().any(|output| output.form == Form::Picture);
    let mut counts = WorkloadCounts::new(machine.clone(), &names, fills, picture);
    let estimate = estimator.as_mut().map(|estimator| estimator as &mut dyn Estimate);
    let mut observer = Observer {
        counts: &mut counts,
        reports: &RefCell::default(),
        grants: Vec::new(),
        reported: spec.plain().needs().and(asked(args)),
        live: Live::new(args.quiet, workload.jobs.iter().map(Goal::of).collect()),
        stacks: facts.stacks(args),
        notes: &mut notes,
    };
    let mut policy = facts.policy(args);
    let done = quanta(args, &facts, &mut host, (&mut policy, estimate), &mut observer);
    let grants = observer.grants;
    notes.say(host.notes());
    let (totals, last) = launch::end(host, done, &mut notes)?;
    let programs = workload.jobs.iter();
    let programs =
        programs.map(|job| ProgramInfo::of(job.name.clone(), &job.command.argv)).collect();
    let mut report = Report::new(spec.to_string(), totals, programs, &grants, &last);
    report.add_counts(quantum(args, &facts), &mut counts);
    let comparing = match policy.outcome() {
        Some(outcome) => Comparing::Guard(outcome),
        None if args.no_guard => Comparing::NoGuard,
        None => Comparing::Unguarded,
    };
    report.summarize(&comparing, policy.needs());
    report.notes.clone_from(&notes.all);
    let written = write(args, &outputs, &report, &counts, &mut notes);
    launch::exit(&report, written, &mut notes)
}

/// Evidence requested beside the policy's needs, for the report and the user; and evidence not
/// requested against the policy's needs: estimated stacks, spin samples at rate 0.
fn evidence(args: &Args, stacks: Stacks<'_>) -> (SourceSet, SourceSet) {
    let counts = stacks.count();
    let always = [(Source::Counters, true), (Source::RunStates, true), (Source::Stacks, counts)];
    let never = [(Source::Stacks, !counts), (Source::Spinning, args.spin_rate == Some(0))];
    (chosen(&always).and(asked(args)), chosen(&never))
}

/// Sources that the user requests.
fn asked(args: &Args) -> SourceSet {
    let spinning = (Source::Spinning, args.spin_rate.is_some_and(|rate| rate > 0));
    chosen(&[spinning]).and(args.requests.sources())
}

/// Policy without `--policy`, with the reason in a line unless it is the default everywhere.
fn default_policy(counts_traffic: bool) -> (PolicySpec, Option<String>) {
    if counts_traffic {
        return (PolicySpec::named("bas"), None);
    }
    let reason = "policy round-robin, as traffic to memory is not counted here: bas, the default where it is, decides by \
                  that (colocate doctor, row counters)";
    (PolicySpec::named("round-robin"), Some(reason.to_owned()))
}

/// Facts known before the launch.
struct LaunchFacts {
    workload: Workload,
    policy: PolicySpec,
    /// Reason of the default policy, unless it is the default everywhere.
    default_reason: Option<String>,
    alone: Vec<SoloProfile>,
    cpi: Option<CpiModel>,
    machine: Machine,
    caveats: Vec<read::Caveat>,
    /// Whether kinds of cores are measured, not as reported.
    has_measured_kinds: bool,
    speeds: Option<Performance>,
}

impl LaunchFacts {
    fn of(args: &Args) -> anyhow::Result<Self> {
        let workload = match &args.workload {
            Some(path) => Workload::read(path)?,
            None => Workload::of_words(&args.command)?,
        };
        let (here, caveats) = read::measured()?;
        let machine = here.machine;
        let speeds = match &args.machine_speeds {
            Some(spec) => Some(speeds::of(spec, &machine)?),
            None => speeds::measured(&machine, &workload),
        };
        let (policy, default_reason) = match &args.policy {
            Some(named) => (named.clone(), None),
            None => default_policy(
                speeds.is_some() || TaskCounters::find(Path::new("/proc"), false).is_ok(),
            ),
        };
        let alone = alone(&policy, &workload)?;
        let cpi = policy::cpi_model_of(&policy)?;
        let has_measured_kinds = read::reported()?.kinds != machine.kinds;
        if policy.has_prior(Prior::Speeds) && speeds.is_none() {
            bail!(
                "expected --machine-speeds SPEC with --policy {policy}, or measured speeds (colocate calibrate), found none"
            );
        }
        Ok(Self {
            workload,
            policy,
            default_reason,
            alone,
            cpi,
            machine,
            caveats,
            has_measured_kinds,
            speeds,
        })
    }

    fn stacks<'a>(&'a self, args: &'a Args) -> Stacks<'a> {
        Stacks {
            requested: args.stacks,
            policy: &self.policy,
            model: self.cpi.as_ref(),
            estimated: self.speeds.is_some(),
        }
    }

    fn policy(&self, args: &Args) -> Guarded {
        let known = Knowledge {
            alone: &self.alone,
            cpi: self.cpi.as_ref(),
            demands: &self.workload.demands(),
            performance: self.speeds.as_ref(),
            ..Knowledge::default()
        };
        let policy = self.policy.policy(&known);
        // With a policy that stops no job, the kernel's quanta meet other phases than the policy's
        // quanta (docs/reference/guard.md).
        if args.no_guard || !self.policy.waits() {
            Guarded::Without(policy)
        } else {
            Guarded::each_quantum(policy, self.policy.name())
        }
    }
}

/// Observer of each quantum: counts, notes and the table on the terminal.
struct Observer<'a> {
    counts: &'a mut WorkloadCounts,
    reports: &'a RefCell<HostReports>,
    grants: Vec<Grant>,
    /// Sources whose absence is reported.
    reported: SourceSet,
    live: Live,
    stacks: Stacks<'a>,
    notes: &'a mut Notes,
}

impl Observer<'_> {
    fn observe(&mut self, round: &Round<'_>) {
        self.counts.count(round);
        let mut reports = self.reports.borrow_mut();
        if round.number == 0 {
            // The policy's use of stacks has its own note.
            self.grants = round.grants.to_vec();
            let reported = self.reported.without(SourceSet::of(&[Source::Stacks]));
            let others = round.grants.iter().filter(|grant| reported.has(grant.source));
            self.notes.say(others.flat_map(Grant::lines));
            let parts = reports.stack_parts.take();
            self.notes.say(parts.and_then(|parts| self.stacks.trouble(parts)));
        }
        self.notes.say(reports.notes.drain(..).chain(round.plan.messages.iter().cloned()));
        self.notes.show(self.live.frame(self.counts, &reports));
    }
}

/// Runs the workload to its end, with its table on the terminal.
fn quanta(
    args: &Args,
    facts: &LaunchFacts,
    host: &mut LinuxHost,
    (policy, estimate): (&mut dyn Policy, Option<&mut dyn Estimate>),
    observer: &mut Observer<'_>,
) -> Result<Observation, HostError> {
    let workload = &facts.workload;
    let name = facts.policy.to_string();
    let jobs: Vec<KnownJob> = workload.jobs.iter().map(|job| launch::unseen(&job.name)).collect();
    let until = Until::Time(quantum(args, facts));
    let (also, without) = evidence(args, observer.stacks);
    let work = RunSettings { jobs: &jobs, policy: &name, until, watch: Nanos::ZERO, also, without };
    let mut host = ReportingHost { host, reports: observer.reports };
    let observe = &mut |round: &Round<'_>| observer.observe(round);
    let done = colocate_engine::run(&mut host, policy, &work, estimate, observe);
    observer.notes.show(observer.live.end());
    done
}

fn quantum(args: &Args, facts: &LaunchFacts) -> Nanos {
    args.quantum.unwrap_or_else(|| facts.workload.quantum(&facts.policy))
}

/// Writes the report to every file. Returns the error of the first file that fails; if no file has
/// the figures, standard error gets them.
fn write(
    args: &Args,
    outputs: &[outputs::Output<'_>],
    report: &Report,
    counts: &WorkloadCounts,
    notes: &mut Notes,
) -> anyhow::Result<()> {
    let content = |form| -> anyhow::Result<String> {
        Ok(match form {
            Form::Text if outputs.is_empty() => report.text(args.explain),
            Form::Text => report.text_with_notes(args.explain),
            Form::Json => printable::json(report),
            Form::Picture => report.svg(counts).map_err(anyhow::Error::msg)?,
        })
    };
    let written: Vec<anyhow::Result<()>> =
        outputs.iter().map(|output| output.write(content)).collect();
    if let Some(form) = aside(args, outputs, &written) {
        // All notes come before the report, however long a reader takes.
        notes.flush(None);
        output::aside(&content(form)?);
    }
    notes.flush(Some(PATIENCE));
    written.into_iter().collect()
}

/// Format of the report on standard error, if needed there.
fn aside(
    args: &Args,
    outputs: &[outputs::Output<'_>],
    written: &[anyhow::Result<()>],
) -> Option<Form> {
    let default = if args.json { Form::Json } else { Form::Text };
    if outputs.is_empty() {
        return (!args.quiet).then_some(default);
    }
    let mut kept = outputs.iter().zip(written).filter(|(output, _)| output.form != Form::Picture);
    let lost = written.iter().any(Result::is_err) && !kept.any(|(_, written)| written.is_ok());
    let form = outputs.iter().map(|output| output.form).find(|form| *form != Form::Picture);
    lost.then(|| form.unwrap_or(default))
}

/// Solo profile of each job, if the policy needs them.
fn alone(policy: &PolicySpec, workload: &Workload) -> anyhow::Result<Vec<SoloProfile>> {
    if !policy.has_prior(Prior::Solo) {
        return Ok(Vec::new());
    }
    let known: Option<Vec<SoloProfile>> = workload.jobs.iter().map(|job| job.alone).collect();
    match known {
        Some(known) => Ok(known),
        None => bail!(
            "expected for {policy} what every job does alone (in the workload file, alone = {{ seconds, memory, \
             first-cache, loss }}), found a job without it"
        ),
    }
}

fn setup(args: &Args, workload: &Workload) -> anyhow::Result<Setup> {
    let spin_hz = args.spin_rate.unwrap_or(spin::DEFAULT_RATE_HZ);
    Ok(Setup {
        may_pause: true,
        meanwhile: args.waiting,
        only_signals: args.only_signals,
        targets: workload.jobs.iter().map(|job| job.target).collect(),
        repeat: workload.repeat,
        sampling: Sampling { spin_hz, ..Sampling::default() },
        ..launch::setup(workload.jobs.iter().map(|job| job.command.clone()).collect())?
    })
}
