//! `colocate-study train group`, which `colocate-study train cpi-model --here` runs for each group: some jobs of a workload on the siblings of a
//! core.

use anyhow::{Context, anyhow, bail, ensure};
use colocate_cli::launch;
use colocate_cli::output;
use colocate_cli::run::jobs;
use colocate_cli::schedule::workload::{ScheduledJob, Workload};
use colocate_engine::{Host, HostError, Request};
use colocate_evidence::{JobIdx, QuantumEnd, Source};
use colocate_files::FileMode;
use colocate_host::{LinuxHost, Sampling, Setup};
use colocate_machine::{Machine, Nanos, PuIdx, PuNr, read};
use colocate_model::symbiosis::file::counted_components;
use colocate_observe::pmu::Counters;
use colocate_policy::Plan;
use colocate_study::train::{TrackSettings, Watched};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs jobs of a workload side by side, and writes what each did
#[derive(clap::Args)]
pub struct Args {
    /// Workload file
    workload: PathBuf,

    /// Place of a job in it, from 0, repeatable
    #[arg(long)]
    job: Vec<usize>,

    /// PU of each job
    #[arg(long)]
    pu: Vec<u32>,

    /// Nanoseconds between two samples
    #[arg(long)]
    step_ns: u64,

    /// How many samples are taken
    #[arg(long)]
    samples: u32,

    /// Count without a processor's counters
    #[arg(long)]
    pretend: bool,

    /// File for what they did
    #[arg(short, long)]
    output: PathBuf,
}

/// Time of one wait for the ends of the programs.
const ENDING: Nanos = Nanos::from_millis(100);

/// Runs `colocate-study train group`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let workload = Workload::read(&args.workload)?;
    let jobs = args.job.iter().map(|&place| workload.jobs.get(place));
    let jobs: Vec<&ScheduledJob> =
        jobs.collect::<Option<_>>().context("expected jobs of the workload")?;
    let machine = read::live()?;
    let siblings = siblings(&machine, &args.pu)?;
    let counters = args.pretend.then(Counters::pretended);
    let setup = Setup {
        sampling: Sampling { counters, ..Sampling::default() },
        ..launch::setup(jobs.iter().map(|job| job.command.clone()).collect())?
    };
    let mut host = LinuxHost::prepare(machine, &setup).map_err(|why| jobs::failure(&why))?;
    let watched = watch(args, &mut host, &siblings);
    // Also after an error: no program may run on.
    host.terminate_all();
    let ended = until_ended(&mut host);
    host.finish();
    let watched = watched?;
    ended?;
    if let Some(failed) = watched.ended.iter().find(|end| end.status != 0) {
        let name = jobs.get(failed.job.0 as usize).map_or("", |job| &job.name);
        bail!("expected programs that end with status 0, found {} of {name}", failed.status);
    }
    output::keep(Some(&args.output), &serde_json::to_string(&watched.tracks)?, FileMode::Private)?;
    Ok(ExitCode::SUCCESS)
}

fn siblings(machine: &Machine, pus: &[u32]) -> anyhow::Result<Vec<PuIdx>> {
    let siblings = pus.iter().map(|wanted| {
        let found = machine.pu_by_os(PuNr(*wanted));
        found.with_context(|| format!("expected PU {wanted}, found none"))
    });
    siblings.collect()
}

fn watch(args: &Args, host: &mut LinuxHost, siblings: &[PuIdx]) -> anyhow::Result<Watched> {
    let jobs: Vec<JobIdx> = (0..).take(siblings.len()).map(JobIdx).collect();
    let sources = [Source::Counters, Source::Stacks];
    // A refusal shows below, where the stacks are missing.
    host.request(&sources.map(|source| Request { source, jobs: &jobs }));
    let parts = host.stack_parts();
    let parts = parts.map_err(|why| anyhow!("expected CPI stacks, found none: {why}"))?;
    for pu in &args.pu {
        let is_usable = host.usable().iter().any(|usable| usable.0 == *pu);
        ensure!(is_usable, "expected PU {pu} to be usable, found that it is not");
    }
    let components = counted_components(parts);
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    let watch = TrackSettings {
        siblings,
        parts: &parts,
        components: &components,
        step: Nanos(args.step_ns),
        samples: args.samples,
    };
    Ok(watch.tracks(host, siblings.len())?)
}

/// Waits until all processes of the programs have ended.
fn until_ended(host: &mut LinuxHost) -> Result<(), HostError> {
    while host.run_quantum(&Plan::default(), ENDING)?.end != QuantumEnd::AllJobsEnded {}
    Ok(())
}
