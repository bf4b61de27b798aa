//! `colocate attach`: places the threads of running programs, and restores their masks.

use crate::report::ProgramInfo;
use crate::{args, launch, policies, run};
use anyhow::{Context, anyhow, bail};
use colocate_act::affinity::FILTERED;
use colocate_act::restore;
use colocate_files::{Dir, MaxSize, kernel};
use colocate_host::{Attached, Setup};
use colocate_linux::proc::Proc;
use colocate_linux::{Pid, ProcessHandle, affinity};
use colocate_machine::Nanos;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Most ancestors of a process that are followed. Chosen: shells never nest this deep.
const MOST_CREATORS: usize = 1_000;

/// Deepest nesting of cgroups. Chosen: far above real hierarchies.
const DEEPEST: usize = 64;

/// Places programs that run already
///
/// Each process is followed with all that it has created and creates. Threads that have a mask of their own are left alone.
/// When all have ended, after the time of --for, or at Ctrl-C or SIGTERM, every thread has its mask again, and the programs
/// continue. Exit status: 0.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["pid", "cgroup"])), after_help = policies::WHICH_ONCE)]
pub struct Args {
    /// Processes, separated by commas; can be given several times
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,

    /// All processes in a cgroup and in those in it, as one job; can be given several times
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,

    /// Place them for so many seconds only; the programs run on [range: 0.01-31536000]
    #[arg(long = "for", value_name = "S", value_parser = |text: &str| args::seconds(text, 0.01..=31_536_000.0))]
    place_for: Option<Nanos>,

    #[command(flatten)]
    options: run::RunOptions,
}

/// Runs `colocate attach`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Fails before any thread is placed if the report could not be written.
    args.options.output.as_deref().map_or(Ok(()), colocate_files::has_place)?;
    let proc = Proc::default();
    for &pid in &args.pid {
        unfit(&proc, Pid(pid)).map_or(Ok(()), |found| Err(refused(&found)))?;
    }
    let mut given: Vec<Given> =
        args.pid.iter().map(|&pid| (name(&proc, Pid(pid)), vec![Pid(pid)])).collect();
    for path in &args.cgroup {
        // The last component; the whole path if it has none.
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        given.push((name, members(&proc, path)?));
    }
    let pids: BTreeSet<Pid> = given.iter().flat_map(|(_, pids)| pids).copied().collect();
    refuse_placed(&proc, &pids)?;
    let mut is_taken = descendants(&proc, &pids);
    let denied: Vec<Pid> =
        pids.difference(&is_taken).copied().filter(|pid| is_denied(&proc, *pid)).collect();
    // Left out, not refused: the other processes can be placed.
    is_taken.extend(&denied);
    let attached = jobs(given, is_taken);
    if attached.is_empty() {
        return Err(all_denied(&proc, &denied));
    }
    let programs = attached
        .iter()
        .map(|it: &Attached| ProgramInfo::of(it.name.clone(), &words(&proc, it.processes[0].pid())))
        .collect();
    let placed: Vec<Pid> =
        attached.iter().flat_map(|it| &it.processes).map(|it| it.pid()).collect();
    let mut first = vec![begins(args, &named(&proc, &placed))];
    if !denied.is_empty() {
        first.push(format!("left out, since {ANOTHER_USER}: {}", named(&proc, &denied)));
    }
    let setup = Setup {
        settle: Nanos::from_millis(run::SETTLE_MS),
        attached,
        detach_after: args.place_for,
        ..launch::setup(Vec::new())?
    };
    run::follow(&args.options, &setup, programs, first)
}

/// Refuses processes that another colocate places, themselves or a descendant, and colocates.
fn refuse_placed(proc: &Proc, pids: &BTreeSet<Pid>) -> anyhow::Result<()> {
    let another = restore::placed_by_another(pids, Path::new("/proc"));
    let Some((pid, colocate)) = another else { return Ok(()) };
    if pid == colocate {
        bail!("expected a program, found that process {pid} is a colocate at work");
    }
    bail!(
        "expected processes that no other colocate places, found that {} is placed by process {colocate}; end that first \
         (kill {colocate})",
        named(proc, &[pid])
    )
}

/// A job as given on the command line: its name and its processes.
type Given = (String, Vec<Pid>);

/// The jobs, without the processes in `is_taken`: descendants (part of their ancestors' jobs) and
/// unplaceable processes. A process given twice is of the first job; a process that has ended
/// meanwhile is of no job.
fn jobs(given: Vec<Given>, mut is_taken: BTreeSet<Pid>) -> Vec<Attached> {
    let mut jobs = Vec::new();
    for (name, mut pids) in given {
        pids.retain(|pid| is_taken.insert(*pid));
        let opened = pids.iter().map(|pid| ProcessHandle::open(Path::new("/proc"), *pid));
        let processes: Vec<_> = opened.flatten().map(Arc::new).collect();
        if !processes.is_empty() {
            jobs.push(Attached { name, processes });
        }
    }
    jobs
}

/// Processes of `pids` that descend from another of them. Each parent is read once.
fn descendants(proc: &Proc, pids: &BTreeSet<Pid>) -> BTreeSet<Pid> {
    let mut parents: HashMap<Pid, Option<Pid>> = HashMap::new();
    let descending = pids.iter().copied().filter(|pid| {
        let creators = std::iter::successors(Some(*pid), |pid| {
            *parents.entry(*pid).or_insert_with(|| parent(proc, *pid))
        });
        creators.skip(1).take(MOST_CREATORS).any(|pid| pids.contains(&pid))
    });
    descending.collect()
}

/// Parent of a process. 0 is no process: the parent of init, or one outside of this PID namespace.
fn parent(proc: &Proc, pid: Pid) -> Option<Pid> {
    Some(proc.state_and_parent(pid).ok()?.1).filter(|pid| pid.0 > 0)
}

/// A line on the placement that begins, and its end.
fn begins(args: &Args, named: &str) -> String {
    let time = args.place_for.map_or(String::new(), |time| format!(", {time} are over"));
    format!(
        "attaching to {named}: policy {} places their threads until they end{time} or Ctrl-C or SIGTERM comes; then every \
         thread has its mask again",
        args.options.policy
    )
}

/// Most processes in a line. Chosen: the width of a terminal.
const NAMED: usize = 3;

/// Processes by name and PID, the first few of many.
fn named(proc: &Proc, pids: &[Pid]) -> String {
    let first = pids.iter().take(NAMED).map(|pid| format!("{} ({pid})", name(proc, *pid)));
    let mut named = first.collect::<Vec<_>>().join(", ");
    if pids.len() > NAMED {
        named += &format!(" and {} more", pids.len() - NAMED);
    }
    named
}

const ANOTHER_USER: &str = "another user's threads may not be placed (EPERM)";

fn all_denied(proc: &Proc, pids: &[Pid]) -> anyhow::Error {
    let named = named(proc, pids);
    if pids.is_empty() {
        anyhow!("expected processes that live, found that all have ended")
    } else if affinity::is_filtered() {
        anyhow!("no thread of {named} can be placed: {FILTERED}")
    } else {
        anyhow!(
            "expected processes of this user, found {named}: {ANOTHER_USER}; run colocate as that user or with CAP_SYS_NICE"
        )
    }
}

/// Whether the kernel allows this user to place neither the process nor any of its descendants.
fn is_denied(proc: &Proc, pid: Pid) -> bool {
    let thread = proc.living_thread(pid);
    thread.is_some_and(affinity::is_denied)
        && proc.children(pid).into_iter().all(|child| is_denied(proc, child))
}

/// Living programs in a cgroup of version 2 or 1 and in its children; no threads of the kernel.
fn members(proc: &Proc, path: &Path) -> anyhow::Result<Vec<Pid>> {
    let cgroup = Dir::open(path).map_err(|why| anyhow!(why.line()))?;
    if !cgroup.holds("cgroup.procs") {
        bail!("{}: expected a cgroup, found no cgroup.procs", path.display());
    }
    let mut pids = Vec::new();
    add_members(&cgroup, DEEPEST, &mut pids).with_context(|| path.display().to_string())?;
    let mut fit = Vec::new();
    for pid in pids {
        match unfit(proc, pid) {
            None => fit.push(pid),
            Some(found) if has_created_us(proc, pid) => return Err(refused(&found)),
            Some(_) => {}
        }
    }
    if fit.is_empty() {
        bail!("{}: expected processes in the cgroup, found none", path.display());
    }
    Ok(fit)
}

fn add_members(cgroup: &Dir, deepest: usize, pids: &mut Vec<Pid>) -> anyhow::Result<()> {
    let text = cgroup.read_text("cgroup.procs", MaxSize::bytes(kernel::LIMIT_B));
    let text = text.map_err(|why| anyhow!(why.line()))?;
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
    for inner in cgroup.names(usize::MAX).unwrap_or_default() {
        // A cgroup that was removed meanwhile was empty; a file is no cgroup.
        if let Some(inner) = cgroup.child(&inner).ok().filter(|_| deepest > 0) {
            let _ = add_members(&inner, deepest - 1, pids);
        }
    }
    Ok(())
}

/// Reason why a process cannot be placed.
fn unfit(proc: &Proc, pid: Pid) -> Option<String> {
    if proc.living_thread(pid).is_none() {
        Some(absent(proc, pid))
    } else if has_created_us(proc, pid) {
        Some(format!("that {pid} has created colocate itself"))
    } else {
        let is_of_kernel = proc.is_of_kernel(pid) == Some(true);
        is_of_kernel.then(|| format!("that {pid} is a thread of the kernel"))
    }
}

fn refused(found: &str) -> anyhow::Error {
    anyhow!("expected a process that runs a program, found {found}")
}

/// State of a process without a living thread, for a message.
pub fn absent(proc: &Proc, pid: Pid) -> String {
    match proc.state_and_parent(pid) {
        Ok(_) => format!("that {pid} has ended"),
        Err(_) => format!("none with the number {pid}"),
    }
}

/// Whether the process is colocate itself or an ancestor: colocate would place itself, too.
fn has_created_us(proc: &Proc, pid: Pid) -> bool {
    let us = Pid(std::process::id().cast_signed());
    std::iter::successors(Some(us), |pid| parent(proc, *pid)).any(|creator| creator == pid)
}

fn name(proc: &Proc, pid: Pid) -> String {
    // A process that has ended meanwhile has no name.
    proc.name(pid, pid.first_thread()).unwrap_or_default()
}

/// Command line of a process, without the empty words that setproctitle(3) leaves.
fn words(proc: &Proc, pid: Pid) -> Vec<OsString> {
    proc.command_line(pid).into_iter().filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of a saved `/proc`, by its state and its flags.
    fn process(root: &Path, pid: i32, state: char, flags: u32) {
        let task = root.join(format!("{pid}/task/{pid}"));
        std::fs::create_dir_all(&task).unwrap();
        let stat = format!("{pid} (a) {state} 1 1 1 0 -1 {flags} 0 0");
        std::fs::write(root.join(format!("{pid}/stat")), &stat).unwrap();
        std::fs::write(task.join("stat"), stat).unwrap();
    }

    /// One process that ends meanwhile, or is the kernel's, does not refuse the cgroup.
    #[test]
    fn the_programs_of_a_cgroup() {
        let (root, cgroup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        process(root.path(), 7, 'S', 0x0040_0000);
        process(root.path(), 8, 'Z', 0x0040_0004);
        process(root.path(), 9, 'S', 0x0020_8040);
        let proc = Proc::at(root.path());
        let members = |numbers: &str| {
            std::fs::write(cgroup.path().join("cgroup.procs"), numbers).unwrap();
            members(&proc, cgroup.path()).map_err(|why| why.to_string())
        };
        assert_eq!(members("7\n8\n9\n10\n").unwrap(), [Pid(7)]);
        assert!(members("8\n9\n10\n").unwrap_err().ends_with("found none"));
        let us = std::process::id().cast_signed();
        process(root.path(), us, 'S', 0);
        assert!(members(&format!("7\n{us}\n")).unwrap_err().contains("colocate itself"));
    }
}
