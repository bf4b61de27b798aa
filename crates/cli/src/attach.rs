//! `colocate attach`: places the threads of programs that run already, and restores them.

use crate::exit::{self, Failure};
use crate::report::Program;
use crate::{launch, run};
use anyhow::Context;
use colocate_files::{Dir, MaxSize, kernel};
use colocate_host::{Attached, Setup};
use colocate_machine::Nanos;
use colocate_observe::Pid;
use colocate_observe::proc::Proc;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most creators of a process that are followed. Chosen: no shell calls that deep.
const MOST_CREATORS: usize = 1_000;

/// Most cgroups that are nested. Chosen: nothing nests that deep.
const DEEPEST: usize = 64;

/// Places programs that run already
///
/// Each process is followed with all that it has created and creates. Threads that have a mask of their own are left alone.
/// When all have ended, or at Ctrl-C or SIGTERM, every thread has its mask again, and the programs continue. For some time only:
/// timeout 60 colocate attach ... Exit status: 0.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["pid", "cgroup"])))]
pub struct Args {
    /// A process; can be given several times
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,

    /// All processes in a cgroup and in those in it, as one job; can be given several times
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,

    #[command(flatten)]
    options: run::Options,
}

/// Runs `colocate attach`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    args.options.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let proc = Proc::default();
    let mut given: Vec<Given> =
        args.pid.iter().map(|pid| Given::process(&proc, Pid(*pid))).collect();
    for path in &args.cgroup {
        given.push(Given { name: cgroup_name(path), pids: members(&proc, path)? });
    }
    let pids: BTreeSet<Pid> = given.iter().flat_map(|it| &it.pids).copied().collect();
    for &pid in &pids {
        check(&proc, pid)?;
    }
    let attached = jobs(given, &descendants(&proc, &pids));
    let programs = attached.iter().map(|it| Program::of(it.name.clone(), &words(it.pid))).collect();
    let setup = Setup {
        settle: Nanos::from_millis(run::SETTLE_MS),
        attached,
        ..launch::setup(Vec::new())?
    };
    run::follow(&args.options, &setup, programs)
}

/// What is to be one job.
struct Given {
    name: String,
    pids: Vec<Pid>,
}

impl Given {
    fn process(proc: &Proc, pid: Pid) -> Self {
        Self { name: name(proc, pid), pids: vec![pid] }
    }
}

/// The last part of its path, as it was given where that has none.
fn cgroup_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The jobs, without `descendants`, which belong to the jobs of their creators. A process that is given twice is of the first job.
fn jobs(given: Vec<Given>, descendants: &BTreeSet<Pid>) -> Vec<Attached> {
    let mut is_taken = descendants.clone();
    let mut jobs = Vec::new();
    for Given { name, mut pids } in given {
        pids.retain(|pid| is_taken.insert(*pid));
        let Some((&pid, further)) = pids.split_first() else { continue };
        jobs.push(Attached { name, pid, further: further.to_vec() });
    }
    jobs
}

/// Those of `pids` that descend from another one of them. The parent of each process is read once.
fn descendants(proc: &Proc, pids: &BTreeSet<Pid>) -> BTreeSet<Pid> {
    let mut parents: HashMap<Pid, Option<Pid>> = HashMap::new();
    let mut parent_of =
        |pid: Pid| *parents.entry(pid).or_insert_with(|| Some(proc.state_and_parent(pid).ok()?.1));
    let mut has_creator = |pid: Pid| {
        let mut creator = parent_of(pid);
        for _ in 0..MOST_CREATORS {
            match creator {
                Some(pid) if pids.contains(&pid) => return true,
                Some(pid) if pid.0 > 0 => creator = parent_of(pid),
                _ => return false,
            }
        }
        false
    };
    pids.iter().copied().filter(|pid| has_creator(*pid)).collect()
}

/// The processes in a cgroup and in those in it that have not ended meanwhile; of version 2 or 1.
fn members(proc: &Proc, path: &Path) -> anyhow::Result<Vec<Pid>> {
    let cgroup = Dir::open(path).map_err(|why| anyhow::anyhow!(why.line()))?;
    if !cgroup.holds("cgroup.procs") {
        anyhow::bail!("{}: expected a cgroup, found no cgroup.procs", path.display());
    }
    let mut pids = Vec::new();
    add_members(&cgroup, DEEPEST, &mut pids).with_context(|| path.display().to_string())?;
    pids.retain(|pid| has_ended(proc, *pid) == Some(false));
    if pids.is_empty() {
        anyhow::bail!("{}: expected processes in the cgroup, found none", path.display());
    }
    Ok(pids)
}

fn add_members(cgroup: &Dir, deepest: usize, pids: &mut Vec<Pid>) -> anyhow::Result<()> {
    let text = cgroup.read_text("cgroup.procs", MaxSize::bytes(kernel::LIMIT_B));
    let text = text.map_err(|why| anyhow::anyhow!(why.line()))?;
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
    for inner in cgroup.names(usize::MAX).unwrap_or_default() {
        // What is removed meanwhile was empty; and files are none.
        if let Some(inner) = cgroup.child(&inner).ok().filter(|_| deepest > 0) {
            let _ = add_members(&inner, deepest - 1, pids);
        }
    }
    Ok(())
}

/// Refuses what is no program, is not there, or is not to be placed by a process that it has created.
fn check(proc: &Proc, pid: Pid) -> anyhow::Result<()> {
    let refused = |found: &str| {
        let message = format!("expected a process that runs a program, found {found}");
        Err(Failure { code: exit::OURS, message }.into())
    };
    match has_ended(proc, pid) {
        None => return refused(&format!("none with the number {pid}")),
        Some(true) => return refused(&format!("that {pid} has ended")),
        Some(false) => {}
    }
    let us = Pid(std::process::id().cast_signed());
    if pid == us || creators(proc, us).contains(&pid) {
        return refused(&format!("that {pid} has created colocate itself"));
    }
    let has_memory = proc.executable(pid).is_some() || !words(pid).is_empty();
    if proc.name(pid, pid.first_thread()).is_some() && !has_memory {
        return refused(&format!("that {pid} is a thread of the kernel"));
    }
    Ok(())
}

/// Whether a process only waits to be reaped; `None` if there is none.
fn has_ended(proc: &Proc, pid: Pid) -> Option<bool> {
    Some(matches!(proc.state_and_parent(pid).ok()?.0, 'Z' | 'X'))
}

fn creators(proc: &Proc, pid: Pid) -> Vec<Pid> {
    let parent = |pid: &Pid| Some(proc.state_and_parent(*pid).ok()?.1).filter(|pid| pid.0 > 0);
    std::iter::successors(parent(&pid), parent).collect()
}

fn name(proc: &Proc, pid: Pid) -> String {
    proc.name(pid, pid.first_thread()).unwrap_or_default()
}

/// The command line of a process.
fn words(pid: Pid) -> Vec<OsString> {
    let line = Proc::default().of_memory(pid, "cmdline");
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}
