//! `colocate run`: launches programs and places their threads.
//!
//! Standard output belongs to the programs: colocate writes to standard error or to the file of
//! `--output`.

mod cache;
pub mod jobs;
pub mod server;
mod stolen;

use crate::launch::{self, Notes, Requests};
use crate::policies::{self, Policies};
use crate::report::summary::Comparing;
use crate::report::{ProgramInfo, Report};
use crate::{args, exit, input, output};
use anyhow::Context;
use cache::ProfileCache;
use colocate_act::launch::Command;
use colocate_engine::guard::{self, Guarded};
use colocate_engine::{
    HostError, IssuedPlan, KnownJob, PlanCause, Round, RunSettings, Until, first_plan,
};
use colocate_evidence::{Grant, JobIdx, Observation, Source, SourceSet, TaskId};
use colocate_host::{LinuxHost, Sampling, Setup};
use colocate_machine::exact::Exact;
use colocate_machine::read::{self, Sysfs};
use colocate_machine::{Machine, Nanos, PuNr, PuSet, printable};
use colocate_model::Profile;
use colocate_model::communication::WakeUpCosts;
use colocate_policy::policies::fixed::FixedPlan;
use colocate_policy::table::{Knowledge, Prior};
use colocate_policy::{DefaultPlacement, Place, Plan, Policy, PolicySpec};
use jobs::JobCommand;
use server::Server;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use stolen::Stolen;

/// Policy without `--policy`.
pub const DEFAULT_POLICY: &str = "auto";

/// Default time without a pin of a first thread. Chosen: runtimes count PUs when they start: OpenJDK 17 first
/// 3 ms after its exec (virtual machine, idle).
pub const SETTLE_MS: u64 = 150;

/// Runs programs, with each thread placed while that pays
///
/// Every thread is put on its PU when it is created. A program that was seen before is placed by what
/// it did then; a new one is left to the kernel while it is watched, and placed after that.
/// Where a program does less that way than under the kernel alone, the kernel has it again.
/// Exit status: the program's; of several programs, the first one that is not 0.
#[derive(clap::Args)]
#[command(after_help = policies::WHICH_ONCE)]
pub struct Args {
    #[command(flatten)]
    options: RunOptions,

    /// Plan to follow instead of a policy, as `colocate plan --json` writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "seed"])]
    plan: Option<PathBuf>,

    /// Time that a process's first thread is left alone, so that the program counts the PUs that it
    /// may use and not the one it is put on, in ms [range: 0-60000]
    #[arg(long, value_name = "MS", default_value_t = SETTLE_MS,
        value_parser = |text: &str| args::millis(text, 0..=60_000))]
    settle_ms: u64,

    /// Run programs that were not seen before once more, first, to learn what they do; that run's
    /// standard output is dropped
    #[arg(long, conflicts_with_all = ["ready", "until"])]
    profile_first: bool,

    #[command(flatten)]
    server: Server,

    /// Print the plan and start nothing
    #[arg(long)]
    dry_run: bool,

    /// The programs, with `:::` between one and the next
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What `run` and `attach` share.
#[derive(clap::Args)]
pub struct RunOptions {
    /// Policy, with its settings as NAME:SETTING=VALUE:...
    #[arg(long, value_name = "P", default_value = DEFAULT_POLICY, value_parser = Policies::Once, hide_possible_values = true,
        long_help = policies::by_purpose(Policies::Once, ""))]
    pub policy: PolicySpec,

    /// Seed of a policy that draws, as random:seed=N [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Time to watch programs that were not seen before, in s [range: 0.1-60]
    #[arg(long, value_name = "S", default_value = "2", value_parser = |text: &str| args::seconds(text, 0.1..=60.0))]
    pub watch_s: Nanos,

    #[command(flatten)]
    requests: Requests,

    /// Keep to the policy even where programs do less under it than under the kernel alone (docs/reference/guard.md)
    #[arg(long)]
    pub no_guard: bool,

    /// Report the reason of every choice
    #[arg(long)]
    pub explain: bool,

    /// Report as JSON (docs/schemas/report.json), on standard error without -o
    #[arg(long)]
    pub json: bool,

    /// No report and no notes on standard error
    #[arg(short, long)]
    pub quiet: bool,

    /// File for the report, instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl RunOptions {
    /// The policy with its name, for this machine; none that needs figures of a machine's speed.
    fn policy(&self, here: &Exact) -> anyhow::Result<(Box<dyn Policy>, String)> {
        if self.policy.has_prior(Prior::Speeds) {
            anyhow::bail!(
                "expected a policy that needs no figures of how fast this machine is, found {}: make a plan \
                 with colocate plan --machine FILE, and run it with --plan",
                self.policy
            );
        }
        let mut policy = self.policy.clone();
        if let Some(seed) = self.seed {
            let set = policy.set("seed", &seed.to_string());
            set.map_err(|error| exit::usage(format!("--seed: {error}")))?;
        }
        let wake_ups = here.calibration.as_ref().map(WakeUpCosts::measured);
        let shares_cores = here.machine.smt_width() > 1;
        let has_nodes = here.machine.nodes.len() > 1;
        let known = Knowledge { wake_ups, shares_cores, has_nodes, ..Knowledge::default() };
        Ok((policy.policy(&known), policy.to_string()))
    }

    /// The policy under a guard, unless `--no-guard` is given.
    fn guarded(&self, policy: Box<dyn Policy>, name: &str) -> Guarded {
        if self.no_guard {
            return Guarded::Without(policy);
        }
        // Without its settings. The name is empty if the plan comes from a file.
        let name = name.split(':').next().filter(|name| !name.is_empty());
        Guarded::standing(policy, name.unwrap_or("the plan"))
    }

    fn workload<'a>(
        &self,
        jobs: &'a [KnownJob],
        policy: &dyn Policy,
        name: &'a str,
    ) -> RunSettings<'a> {
        let (until, progress) = match (self.no_guard, policy.period()) {
            (true, None) => (Until::Events, SourceSet::NONE),
            (true, Some(period)) => (Until::TimeOrEvents(period), SourceSet::NONE),
            // A guard compares quanta, whatever the policy's period.
            (false, _) => (Until::TimeOrEvents(guard::QUANTUM), guard::PROGRESS),
        };
        RunSettings {
            jobs,
            policy: name,
            until,
            watch: self.watch_s,
            also: self.requests.sources().and(progress),
            without: SourceSet::NONE,
        }
    }
}

/// Runs `colocate run`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let mut notes = Notes::new(args.options.quiet, None);
    // Fails before any program runs if the report could not be written.
    args.options.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let commands = jobs::commands(&args.command)?;
    args.server.check_words(commands.len())?;
    if !args.dry_run {
        args.server.check_start(&commands[0].name())?;
    }
    let (here, caveats) = read::measured()?;
    notes.say(caveats.iter().map(ToString::to_string));
    let (mut policy, name) = policy(args, &here, &commands, &mut notes)?;
    let machine = here.machine;
    let cache = ProfileCache::open(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    let mut jobs: Vec<JobCommand> = commands.into_iter().map(JobCommand::new).collect();
    // Identifying a program reads its whole file: only for policies that use profiles.
    if policy.needs().has(Source::Mix) {
        for job in &mut jobs {
            job.identify();
            job.profile = cache.find(job).unwrap_or_else(|why| {
                notes.say([why]);
                None
            });
            if job.profile.is_none() && args.profile_first && !args.dry_run {
                let profile = profile_first(job, &mut notes)?;
                notes.say(cache.put(&profile).err());
                job.profile = Some(profile);
            }
        }
    }
    if args.dry_run {
        return dry_run(args, &machine, (&mut *policy, &name), &jobs);
    }
    let mut policy = args.options.guarded(policy, &name);
    let stolen = Stolen::from_now(here.calibration.as_ref());
    run(args, machine, &stolen, (&mut policy, &name), jobs, &cache, &mut notes)
}

/// The policy with its name; the name is empty for a plan from a file, whose name the plan holds.
fn policy(
    args: &Args,
    here: &Exact,
    commands: &[Command],
    notes: &mut Notes,
) -> anyhow::Result<(Box<dyn Policy>, String)> {
    let Some(path) = &args.plan else { return args.options.policy(here) };
    let text = input::text(path, input::PLAN)?;
    let plan = Plan::from_json(&text).with_context(|| path.display().to_string())?;
    plan.check_against(&here.machine).with_context(|| path.display().to_string())?;
    if !plan.pages.is_empty() {
        anyhow::bail!(
            "{}: expected a plan of places only, found one that moves memory: programs have none when it comes into \
             force; use colocate pages move later",
            path.display()
        );
    }
    let lines = [other_programs(&plan, commands), unplanned(&plan, commands)];
    notes.say(lines.into_iter().flatten().map(|line| format!("{}: {line}", path.display())));
    Ok((Box::new(FixedPlan(plan)), String::new()))
}

/// A warning if a plan was made for programs other than `commands`.
fn other_programs(plan: &Plan, commands: &[Command]) -> Option<String> {
    let planned = plan.decisions.iter().map(|it| {
        // A decision's name is JOB or JOB/THREAD.
        (it.task.job, it.name.split('/').next().unwrap_or_default())
    });
    let planned: BTreeMap<JobIdx, &str> = planned.collect();
    let has_commands = planned.iter().all(|(job, name)| {
        commands.get(job.0 as usize).is_some_and(|command| is_called(command, name))
    });
    if has_commands {
        return None;
    }
    let planned: Vec<&str> = planned.into_values().collect();
    let found: Vec<String> = commands.iter().map(Command::name).collect();
    Some(format!(
        "expected a plan for {}, found one for {}: its places may not fit; colocate plan makes one",
        printable(&found.join(" ::: ")),
        printable(&planned.join(" ::: "))
    ))
}

/// A line on the programs that a plan leaves to the kernel, since it has no place for them.
fn unplanned(plan: &Plan, commands: &[Command]) -> Option<String> {
    let is_planned = |job: u32| plan.decisions.iter().any(|it| it.task.job == JobIdx(job));
    let without = (0..).zip(commands).filter(|(job, _)| !is_planned(*job));
    let names: Vec<String> = without.map(|(_, command)| command.name()).collect();
    let is_left = plan.default_placement == DefaultPlacement::LeaveToKernel && !names.is_empty();
    is_left.then(|| format!("no place for {}: left to the kernel", printable(&names.join(", "))))
}

/// Whether the command or its file has this name: a link to the file may have another name.
fn is_called(command: &Command, name: &str) -> bool {
    let file = command.path.canonicalize().ok();
    let file = file.as_deref().and_then(Path::file_name).map(|it| it.to_string_lossy());
    command.name() == name || file.is_some_and(|file| file == name)
}

fn known(jobs: &[JobCommand]) -> Vec<KnownJob> {
    let known = jobs.iter().map(|job| KnownJob {
        profile: job.profile.clone(),
        ..launch::unseen(&job.command.name())
    });
    known.collect()
}

/// Profiles a job by itself with this executable's `colocate profile`. The job's exit status is
/// ignored: a program that fails here also fails in its real run.
fn profile_first(job: &JobCommand, notes: &mut Notes) -> anyhow::Result<Profile> {
    const NAME: &str = "profile.json";
    let name = job.command.name();
    notes.say([format!("running {name} once to profile it; its standard output is dropped")]);
    // Not in a folder that other users can write to: they could replace the profile.
    let (_folder, dir) = launch::own_folder("profile-")?;
    let ourselves = std::env::current_exe().context("cannot find our own executable")?;
    let mut command = std::process::Command::new(ourselves);
    command.arg("profile").arg("-o").arg(dir.path().join(NAME)).arg("--").args(&job.command.argv);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let status = command.status().context("cannot start colocate profile")?;
    let text = dir.read_text(NAME, input::limit(Profile::MAX_BYTES));
    let text = text.with_context(|| format!("colocate profile left no profile ({status})"))?;
    Ok(Profile::from_json(&text)?)
}

/// Prints the plan that a launch would begin with.
fn dry_run(
    args: &Args,
    machine: &Machine,
    (policy, name): (&mut dyn Policy, &str),
    jobs: &[JobCommand],
) -> anyhow::Result<ExitCode> {
    let usable = read::usable(machine, &Sysfs::at(Path::new("/")));
    let usable: Vec<PuNr> = usable.pus.iter().map(|pu| machine.pus[pu.idx()].os).collect();
    let known = known(jobs);
    let workload = args.options.workload(&known, policy, name);
    let plan = first_plan(machine, &usable, policy, &workload);
    let watched = policy.needs().has(Source::Mix).then_some(args.options.watch_s);
    let text = if args.options.json { plan.to_json() } else { dry(&plan, jobs, watched) };
    output::write(args.options.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    args: &Args,
    machine: Machine,
    stolen: &Stolen<'_>,
    (policy, name): (&mut Guarded, &str),
    mut jobs: Vec<JobCommand>,
    cache: &ProfileCache,
    notes: &mut Notes,
) -> anyhow::Result<ExitCode> {
    let settle = Nanos::from_millis(args.settle_ms);
    let commands = jobs.iter().map(|job| job.command.clone()).collect();
    let sampling = Sampling { all_wake_ups: args.options.requests.wake_ups, ..Sampling::default() };
    let setup = args.server.applied(Setup { settle, sampling, ..launch::setup(commands)? });
    let processor = machine.processor.clone();
    let mut host = LinuxHost::prepare(machine, &setup).map_err(|why| jobs::failure(&why))?;
    let known = known(&jobs);
    let workload = args.options.workload(&known, policy, name);
    let decided = Decided::of(&mut host, policy, &workload, notes);
    notes.say(stolen.note());
    for (job, counted) in host.watched() {
        let kept = cache.keep(&mut jobs[job.0 as usize], counted, processor.clone());
        notes.say(kept.err());
    }
    let programs = jobs.iter().map(|job| ProgramInfo {
        identity: job.program.as_ref().ok().map(|program| program.identity.clone()),
        profile: job.profile.as_ref().map(|profile| profile.backend),
        ..ProgramInfo::of(job.command.name(), &job.command.argv)
    });
    let programs = programs.collect();
    decided.report(&args.options, host, name, programs, notes)
}

/// Writes the notes `first`, places running programs until their end or a signal, and reports.
pub fn follow(
    options: &RunOptions,
    setup: &Setup,
    programs: Vec<ProgramInfo>,
    first: Vec<String>,
) -> anyhow::Result<ExitCode> {
    let mut notes = Notes::new(options.quiet, None);
    notes.say(first);
    let (here, caveats) = read::measured()?;
    notes.say(caveats.iter().map(ToString::to_string));
    let stolen = Stolen::from_now(here.calibration.as_ref());
    let (policy, name) = options.policy(&here)?;
    let mut policy = options.guarded(policy, &name);
    let known: Vec<KnownJob> = programs.iter().map(|it| launch::unseen(&it.name)).collect();
    let mut host = LinuxHost::prepare(here.machine, setup).map_err(|why| jobs::failure(&why))?;
    let workload = options.workload(&known, &policy, &name);
    let decided = Decided::of(&mut host, &mut policy, &workload, &mut notes);
    notes.say(stolen.note());
    decided.report(options, host, &name, programs, &mut notes)
}

/// The plans of a run and its outcome.
struct Decided {
    plans: Vec<IssuedPlan>,
    grants: Vec<Grant>,
    watch: Option<Nanos>,
    comparing: Comparing,
    needs: SourceSet,
    done: Result<Observation, HostError>,
}

impl Decided {
    fn of(
        host: &mut LinuxHost,
        policy: &mut Guarded,
        workload: &RunSettings<'_>,
        notes: &mut Notes,
    ) -> Self {
        notes.say(host.notes());
        let mut plans = Vec::new();
        let mut grants = Vec::new();
        let mut state = None;
        let mut keep = |round: &Round<'_>| {
            if round.number == 0 {
                grants = round.grants.to_vec();
            }
            if is_new(round, &plans) {
                plans.extend(IssuedPlan::of(round));
            }
            state.clone_from(&round.plan.state);
            notes.say(round.plan.messages.iter().cloned());
        };
        let done = colocate_engine::run(host, policy, workload, None, &mut keep);
        // Grants that only the guard requested are left out: the guard reports its own evidence.
        let only_guards = guard::PROGRESS.without(policy.needs());
        let needed = grants.iter().filter(|grant| !only_guards.has(grant.source));
        notes.say(needed.flat_map(Grant::lines));
        notes.say(host.notes());
        notes.say(state);
        let watch = policy.needs().has(Source::Mix).then_some(workload.watch);
        let comparing = policy.outcome().map_or(Comparing::NoGuard, Comparing::Guard);
        Self { plans, grants, watch, comparing, needs: policy.needs(), done }
    }

    /// Ends the host and writes the report.
    fn report(
        self,
        options: &RunOptions,
        host: LinuxHost,
        name: &str,
        programs: Vec<ProgramInfo>,
        notes: &mut Notes,
    ) -> anyhow::Result<ExitCode> {
        let (totals, last) = launch::end(host, self.done, notes)?;
        let mut report = Report::new(name.to_owned(), totals, programs, &self.grants, &last);
        report.watch_ns = self.watch;
        report.add_plans(self.plans);
        report.summarize(&self.comparing, self.needs);
        report.notes.clone_from(&notes.all);
        let written = write_report(options, &report);
        launch::exit(&report, written, notes)
    }
}

/// Most plans of a report made for elapsed time alone. Chosen: more than a reader goes through.
const MOST_PLANS: usize = 1_000;

/// Whether a round's plan belongs in the report: its places differ from those of the last two
/// plans, as a guard alternates between two.
fn is_new(round: &Round<'_>, plans: &[IssuedPlan]) -> bool {
    let is_event = !matches!(round.cause, Some(PlanCause::Elapsed | PlanCause::Crowded));
    let mut last = plans.iter().rev().take(2);
    is_event
        || plans.len() < MOST_PLANS && last.all(|last| places(&last.plan) != places(round.plan))
}

/// Place of each task of a plan.
fn places(plan: &Plan) -> Vec<(TaskId, Place)> {
    plan.decisions.iter().map(|it| (it.task, it.place)).collect()
}

fn write_report(options: &RunOptions, report: &Report) -> anyhow::Result<()> {
    let text = if options.json {
        printable::json(report)
    } else if options.output.is_some() {
        report.text_with_notes(options.explain)
    } else {
        report.text(options.explain)
    };
    if options.quiet && options.output.is_none() {
        return Ok(());
    }
    output::keep_aside(options.output.as_deref(), &text)
}

/// The plan of a dry run, as text.
fn dry(plan: &Plan, jobs: &[JobCommand], watch: Option<Nanos>) -> String {
    let pus: PuSet = plan.pus.iter().copied().collect();
    let mut text = format!("policy {}, PUs {pus}\n", printable(&plan.policy));
    for (number, job) in jobs.iter().enumerate() {
        let known = match (&job.profile, watch) {
            (Some(profile), _) => format!("profile {}", profile.backend.name()),
            (None, Some(watch)) => {
                format!("not seen before: left to the kernel and watched for {watch}, then placed")
            }
            (None, None) if plan.default_placement == DefaultPlacement::LeaveToKernel => {
                "left to the kernel at first".to_owned()
            }
            (None, None) => "placed as its threads are created".to_owned(),
        };
        let _ = writeln!(text, "job {number}: {}, {known}", printable(&job.command.name()));
    }
    for decision in &plan.decisions {
        let place = decision.place;
        let task = decision.task.to_string();
        let name = printable(&decision.name);
        let why = decision.why.to_string();
        let _ = writeln!(text, "  {task:<5}  {name}  {place}  {}", printable(&why));
    }
    if let Some(predicted) = &plan.predicted {
        let _ = writeln!(text, "predicted: {}", printable(predicted));
    }
    text
}
