//! `colocate plan`.

mod demand;

use crate::columns::threads;
use crate::exit::usage;
use crate::policies::{self, Policies};
use crate::{input, output};
use anyhow::Context;
use colocate_engine::known::{KnownJob, is_worth_a_place, tasks_to_plan};
use colocate_evidence::{JobIdx, Source, SourceSet, TaskId};
use colocate_figures::table::aligned;
use colocate_machine::cpulist::PuSet;
use colocate_machine::{Machine, Nanos, PuIdx, PuNr, printable, read};
use colocate_model::{Assumptions, Profile, Ranges};
use colocate_policy::plan::Slowdown;
use colocate_policy::table::{Prior, listed};
use colocate_policy::{
    Decision, DefaultPlacement, Knowledge, Place, Plan, PolicySpec, Task, forecast,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Plans where each thread of profiled programs should run
#[derive(clap::Args)]
pub struct Args {
    /// Profile of a program that runs, repeatable: a file that `colocate profile -o` wrote.
    /// FILE:threads=N models N threads by repeating those profiled, FILE:copies=N that many
    /// programs [range of N: 1-65536]
    #[arg(long = "profile", value_name = "FILE", required = true)]
    profiles: Vec<String>,

    /// Demand vectors of a program (docs/schemas/demand.json; TOML unless it is called .json),
    /// repeatable: one for all of its threads, or one for each thread profiled. JOB is its number in
    /// the plan, from 0; without it they are those of the only profile's program. What they leave
    /// unknown, the profile reports, or else it is assumed
    #[arg(long = "demand", value_name = "[JOB=]FILE")]
    demands: Vec<String>,

    /// Machine to plan for: live, a described one by name, synthetic:STRING, or a .toml, .json or
    /// .xml file
    #[arg(long, value_name = "SPEC", default_value = "live")]
    machine: String,

    /// PUs to use, by the kernel's numbers, e.g. 0-3,8 [default: all that may be used]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Policy, with its settings as NAME:SETTING=VALUE:...
    #[arg(long, value_name = "POLICY", default_value = "mix", value_parser = Policies::Planned, hide_possible_values = true,
        long_help = policies::by_purpose(Policies::Planned, ""))]
    policy: PolicySpec,

    /// Seed of the policy random, as random:seed=N [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Class that the policy instruction sorts by, as instruction:key=CLASS: branch, float, int,
    /// load or store [default: the one that varies most]
    #[arg(long, value_name = "CLASS")]
    key: Option<String>,

    /// Print the plan as JSON (docs/schemas/plan.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate plan`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = policy(args)?;
    let seen = read::load(&args.machine)?;
    let usable = usable(&seen, args.cpus.as_deref())?;
    let speeds = seen.performance.as_ref();
    let mut programs = programs(&args.profiles, args.machine == "live")?;
    demand::give(&args.demands, &mut programs, args.profiles.len(), speeds)?;
    let processor = speeds.and(seen.machine.processor.as_deref());
    // Rates counted on cores of one kind do not hold on another kind.
    let processor = processor.filter(|_| seen.machine.kinds.len() == 1);
    let workload = PlannedWorkload::of(&programs, processor);
    if policy.has_prior(Prior::Speeds) && speeds.is_none() {
        return Err(usage(format!(
            "expected a machine of which it is described how fast it is (docs/reference/machines.md) with \
             --policy {policy}, found {}; `colocate calibrate` measures this machine",
            args.machine
        )));
    }
    let shares_cores = seen.machine.smt_width() > 1;
    let has_nodes = seen.machine.nodes.len() > 1;
    let known = Knowledge { performance: speeds, shares_cores, has_nodes, ..Knowledge::default() };
    let mut made = policy.plan(&known, &seen.machine, &usable, &workload.tasks);
    let trust = foresee(&mut made, &seen, args.machine == "live", &workload.tasks);
    let text = if args.json {
        made.to_json()
    } else {
        let nothing = placed_while_running(&policy, &known);
        table(&made, &seen, &usable, &workload, (&trust, nothing.as_deref()))
    };
    output::write(args.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Note on a policy without places before the run: its decisions need evidence from the run.
fn placed_while_running(policy: &PolicySpec, known: &Knowledge<'_>) -> Option<String> {
    let shown = policy.policy(known).needs().without(SourceSet::of(&[Source::Mix]));
    let names: Vec<&str> =
        Source::ALL.into_iter().filter(|it| shown.has(*it)).map(Source::name).collect();
    let name = policy.name();
    let line = format!(
        "nothing: {name} decides by {}, known only while programs run; colocate run --policy {name}",
        listed(&names)
    );
    (!names.is_empty()).then_some(line)
}

/// Sets of assumptions, the default one included. Chosen: a few for each of two dozen assumptions.
const DRAWS: usize = 65;
/// Tasks up to which all sets are used; with more tasks, fewer sets keep the time of a plan far
/// below seconds. Chosen: 64 different tasks took 0.08 s on the development machine, for the whole
/// command.
const TASKS: usize = 256;

/// Predicts the slowdowns of the plan's tasks; returns a line on the quality of the prediction.
fn foresee(plan: &mut Plan, seen: &read::KnownMachine, live: bool, tasks: &[Task]) -> String {
    let Some(performance) = &seen.performance else {
        let remedy = if live { "; colocate calibrate measures it" } else { "" };
        return format!(
            "not predicted: the machine's description does not say how fast it is{remedy}"
        );
    };
    let draws = (DRAWS * TASKS / tasks.len().max(1)).clamp(5, DRAWS);
    let measured = seen.calibration.as_ref();
    let ranges = measured.map_or_else(Ranges::default, Ranges::measured);
    let assumed = Assumptions::sample_in(ranges, draws, 0);
    match forecast::slowdowns(&seen.machine, performance, plan, tasks, &assumed) {
        Ok(slowdowns) => {
            plan.slowdowns = Some(slowdowns);
            format!(
                "time beside the others over time alone, as if all ran all the time: predicted by the \
                 model, not measured; in brackets the range over {draws} sets of assumptions{}",
                if measured.is_some() { " and of what colocate calibrate measured" } else { "" }
            )
        }
        Err(why) => format!("not predicted: {why}"),
    }
}

/// The policy with the settings of `--seed` and `--key`.
fn policy(args: &Args) -> anyhow::Result<PolicySpec> {
    let mut policy = args.policy.clone();
    for (name, value) in [("seed", args.seed.map(|it| it.to_string())), ("key", args.key.clone())] {
        let Some(value) = value else { continue };
        policy.set(name, &value).map_err(|error| usage(format!("--{name}: {error}")))?;
    }
    Ok(policy)
}

/// PUs to plan for: the machine's usable PUs, restricted to `--cpus`.
fn usable(seen: &read::KnownMachine, cpus: Option<&str>) -> anyhow::Result<Vec<PuIdx>> {
    let machine = &seen.machine;
    let allowed = seen.usable.as_ref().map(|usable| usable.pus.clone());
    let allowed = allowed.unwrap_or_else(|| machine.all_pus().collect());
    let Some(list) = cpus else { return Ok(allowed) };
    let wanted = PuSet::parse_list(list).map_err(|error| usage(format!("--cpus: {error}")))?;
    if wanted.is_empty() {
        return Err(usage("--cpus: expected at least one PU, found none".to_owned()));
    }
    let there: PuSet = allowed.iter().map(|pu| machine.pus[pu.idx()].os).collect();
    let missing = wanted.difference(&there);
    if !missing.is_empty() {
        return Err(usage(format!(
            "--cpus: expected PUs of {} that may be used ({there}), found {missing}",
            machine.name
        )));
    }
    Ok(allowed.into_iter().filter(|pu| wanted.contains(machine.pus[pu.idx()].os)).collect())
}

/// A program of the workload, from an option.
#[derive(Clone)]
struct PlannedProgram {
    name: String,
    profile: Profile,
    /// Number of threads to model; `None` for the profiled number.
    threads: Option<u32>,
    /// Demand vectors from a file.
    given: Option<demand::Given>,
}

/// Most threads or copies that an option may request: eight times the 8,192 PUs of the largest
/// Linux kernel for x86-64 (`CONFIG_NR_CPUS`).
const MOST: u32 = 65_536;

/// Most threads of all programs together. Chosen: as many as one profile may have.
const MOST_IN_ALL: usize = Profile::MAX_THREADS;

/// Reads every profile once and repeats it for its copies.
fn programs(options: &[String], live: bool) -> anyhow::Result<Vec<PlannedProgram>> {
    let mut programs = Vec::new();
    let mut in_all = 0;
    for option in options {
        let (path, threads, copies) = parse(option)?;
        let profile = read_profile(path, live)
            .with_context(|| format!("cannot use profile {}", path.display()))?;
        // A profile without threads counts as one, which limits its copies.
        let each = profile.threads.len().max(threads.unwrap_or(0) as usize).max(1);
        in_all += each * copies as usize;
        if in_all > MOST_IN_ALL {
            return Err(usage(format!(
                "--profile {option}: expected at most {MOST_IN_ALL} threads in all, found {in_all}"
            )));
        }
        let file = Path::new(&profile.program.path).file_name();
        let name = file.unwrap_or_default().to_string_lossy().into_owned();
        let program = PlannedProgram { name, profile, threads, given: None };
        programs.extend(std::iter::repeat_n(program, copies as usize));
    }
    Ok(programs)
}

/// Parses `FILE[:threads=N][:copies=N]`.
fn parse(option: &str) -> anyhow::Result<(&Path, Option<u32>, u32)> {
    let mut path = option;
    let mut threads = None;
    let mut copies = 1;
    // From the end, since a path may hold colons.
    while let Some((before, setting)) = path.rsplit_once(':') {
        let Some((what @ ("threads" | "copies"), value)) = setting.split_once('=') else { break };
        let count = value.parse().ok().filter(|count| (1..=MOST).contains(count));
        let count = count.ok_or_else(|| {
            usage(format!("--profile {option}: expected {what}=1 to {MOST}, found {value:?}"))
        })?;
        match what {
            "threads" => threads = Some(count),
            _ => copies = count,
        }
        path = before;
    }
    Ok((Path::new(path), threads, copies))
}

/// Reads a profile; if `live`, of the program's present build.
fn read_profile(path: &Path, live: bool) -> anyhow::Result<Profile> {
    let text = input::text_or_reason(path, input::limit(Profile::MAX_BYTES))?;
    let profile = Profile::from_json(&text)?;
    let path = Path::new(&profile.program.path);
    // On another machine, the program of this name may be another build.
    if live && let Ok(found) = colocate_observe::identity::of_file(path) {
        profile.matches(&found)?;
    }
    Ok(profile)
}

/// Tasks to plan for, and notes on the tasks left out of each program.
struct PlannedWorkload {
    tasks: Vec<Task>,
    notes: Vec<String>,
}

impl PlannedWorkload {
    /// Tasks of `programs`. `processor` is given for a machine of known speed with cores of one
    /// kind; on others, counted rates are not used.
    fn of(programs: &[PlannedProgram], processor: Option<&str>) -> Self {
        let known = programs.iter().map(|program| KnownJob {
            name: program.name.clone(),
            profile: Some(program.profile.clone()),
            phases: demand::known(program),
        });
        let known: Vec<KnownJob> = known.collect();
        let mut by_job: BTreeMap<JobIdx, Vec<Task>> = BTreeMap::new();
        for task in tasks_to_plan(&known, &[], Nanos::ZERO) {
            by_job.entry(task.id.job).or_default().push(task);
        }
        let mut workload = Self { tasks: Vec::new(), notes: Vec::new() };
        for (job, program) in (0..).map(JobIdx).zip(programs) {
            workload.add(job, program, by_job.remove(&job).unwrap_or_default(), processor);
        }
        workload
    }

    fn add(
        &mut self,
        job: JobIdx,
        program: &PlannedProgram,
        mut tasks: Vec<Task>,
        processor: Option<&str>,
    ) {
        let together = tasks.len();
        tasks.retain(is_worth_a_place);
        let all = program.profile.threads.len();
        let mut note = format!("{} {}: {}", job.0, program.name, threads(tasks.len()));
        if all > together {
            let _ = write!(note, "; {} of {all} do not live when it is busiest", all - together);
        }
        if together > tasks.len() {
            let idle = threads(together - tasks.len());
            let _ = write!(note, "; default placement for {idle} busy for less than 1 %");
        }
        if let Some(given) = &program.given {
            let _ = write!(note, "; demand from {}", given.file.display());
        }
        if processor.is_some() {
            note += &demand::rates(tasks.iter().filter_map(|task| task.phase.as_ref()), processor);
        }
        if let Some(wanted) = program.threads {
            tasks = repeated(job, &tasks, (all, wanted));
            let _ = write!(note, "; modelled as {}", threads(tasks.len()));
        }
        self.notes.push(note);
        self.tasks.extend(tasks);
    }
}

/// `wanted` tasks by repeating `tasks`; empty without tasks. Added tasks are numbered after the
/// `profiled` threads, of which some may have default placement.
fn repeated(job: JobIdx, tasks: &[Task], (profiled, wanted): (usize, u32)) -> Vec<Task> {
    let after = u32::try_from(profiled).unwrap_or(u32::MAX);
    let repeated = (0..wanted).zip(tasks.iter().cycle()).map(|(index, task)| {
        let again = (index as usize).checked_sub(tasks.len());
        let again = again.map(|again| u32::try_from(again).expect("fewer than MOST"));
        let order = again.map_or(task.id.order, |again| after.saturating_add(again));
        Task { id: TaskId { job, order }, ..task.clone() }
    });
    repeated.collect()
}

/// The plan as text: core by core, with the mix of each task and the reason of its place.
fn table(
    plan: &Plan,
    seen: &read::KnownMachine,
    usable: &[PuIdx],
    workload: &PlannedWorkload,
    (trust, unplaced): (&str, Option<&str>),
) -> String {
    let machine = &seen.machine;
    let mut text = String::new();
    let mut cores: Vec<u32> = usable.iter().map(|&pu| machine.core_of(pu).0).collect();
    cores.dedup();
    let name = printable(&machine.name);
    let [used, all, cores] = [usable.len(), machine.pus.len(), cores.len()];
    let _ = writeln!(text, "machine  {name}: {used} of {all} PUs on {cores} cores");
    if let Some(quota) = seen.usable.as_ref().and_then(|usable| usable.quota) {
        let _ = writeln!(text, "quota    all threads together may use {quota}");
    }
    let _ = writeln!(text, "policy   {}", printable(&plan.policy));
    for note in &workload.notes {
        let _ = writeln!(text, "program  {}", printable(note));
    }
    let rows = rows(plan, machine, workload);
    text.push('\n');
    text.push_str(&aligned(&rows));
    text.push('\n');
    let taken: std::collections::BTreeSet<PuNr> =
        plan.decisions.iter().filter_map(|d| d.place.pu()).collect();
    if !taken.is_empty() {
        let idle = usable.len() - taken.len();
        let _ = writeln!(text, "idle       {idle} of {} usable PUs", usable.len());
    }
    let nothing = match unplaced {
        Some(why) if taken.is_empty() => why,
        _ if taken.is_empty() => "nothing: no task is placed",
        _ => "nothing: no mix is known",
    };
    let predicted = plan.predicted.as_deref().unwrap_or(nothing);
    let _ = writeln!(text, "predicted  {}", printable(predicted));
    let _ = writeln!(text, "slowdown   {}", printable(trust));
    let _ = writeln!(text, "default    {}", by_default(&plan.default_placement));
    text
}

/// Placement of threads created later.
fn by_default(placement: &DefaultPlacement) -> String {
    let DefaultPlacement::FillInOrder { pus } = placement else {
        return "threads created later: left to the kernel".to_owned();
    };
    let first: Vec<String> = pus.iter().take(8).map(|pu| pu.0.to_string()).collect();
    let more = if pus.len() > first.len() { ", …" } else { "" };
    format!(
        "threads created later: the PU with the fewest tasks, earliest in {}{more}",
        first.join(", ")
    )
}

/// One row a task, in the order of cores, with a heading.
fn rows(plan: &Plan, machine: &Machine, workload: &PlannedWorkload) -> Vec<Vec<String>> {
    let index: BTreeMap<PuNr, PuIdx> =
        machine.all_pus().map(|pu| (machine.pus[pu.idx()].os, pu)).collect();
    let place =
        |decision: &Decision| decision.place.named_pu().and_then(|os| index.get(&os).copied());
    let mut order: Vec<usize> = (0..plan.decisions.len()).collect();
    // Tasks without a PU come last.
    order.sort_by_key(|&at| place(&plan.decisions[at]).map_or((true, PuIdx(0)), |pu| (false, pu)));
    let heading =
        ["core", "PU", "task", "name", "busy", "most of", "slowdown", "why"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    let mut last = None;
    for at in order {
        let decision = &plan.decisions[at];
        let task = &workload.tasks[at];
        let core = place(decision).map(|pu| machine.core_of(pu).0);
        let elsewhere = if decision.place == Place::Waiting { "none" } else { "any" };
        // Only the first row of a core names the core.
        let same = core.is_some() && std::mem::replace(&mut last, core) == core;
        let first = if same { String::new() } else { elsewhere.to_owned() };
        rows.push(vec![
            core.filter(|_| !same).map_or(first, |core| core.to_string()),
            match decision.place {
                Place::Sharing(..) => decision.place.to_string(),
                place => place.pu().map_or(elsewhere.to_owned(), |pu| pu.0.to_string()),
            },
            decision.task.to_string(),
            decision.name.to_string(),
            task.busy.map_or("?".to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
            task.mix.dominant().map_or("?".to_owned(), |(class, share)| format!("{class} {share}")),
            plan.slowdowns.as_ref().map_or("?".to_owned(), |all| range(&all[at])),
            decision.why.to_string(),
        ]);
    }
    if plan.slowdowns.is_none() {
        // The column `slowdown`, unknown for all tasks.
        rows.iter_mut().for_each(|row| drop(row.remove(6)));
    }
    rows
}

fn range(slowdown: &Slowdown) -> String {
    let Slowdown { usual, least, most } = slowdown;
    format!("{usual:.2} ({least:.2} to {most:.2})")
}
