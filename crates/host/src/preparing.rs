//! What has to be there before anything runs.

use crate::Setup;
use crate::pausing::IN_USE;
use crate::target::Targets;
use crate::task_table::TaskTable;
use colocate_act::affinity;
use colocate_act::attached::Attached;
use colocate_act::guardian::Guardian;
use colocate_act::journal::{self, TOKEN_VARIABLE, Writer};
use colocate_act::launch::{self, Command, Held, Input, LaunchError};
use colocate_act::original::{self, original};
use colocate_act::owner::Owner;
use colocate_act::pause::Pauser;
use colocate_act::rundir;
use colocate_act::signals::Signals;
use colocate_linux::affinity::of as affinity_of;
use colocate_linux::foreign;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys;
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::read::{Cpusets, Sysfs};
use colocate_machine::{Machine, PuNr, PuSet};
use colocate_observe::sources::counters::TaskCounters;
use colocate_observe::{LifecycleEvents, lifecycle};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// New threads per second and job that are followed one by one. Chosen: following a thread takes
/// some 50 µs, so this is a twentieth of a PU. A program that creates threads at full speed makes
/// 10,000 per second and more.
pub(crate) const MOST_A_SECOND: u32 = 1_000;

/// Processes watched per scan of `/proc`. Chosen: a scan takes some ten milliseconds, and signals
/// are answered between scans.
const WATCHED_AT_ONCE: usize = 512;

/// Checks for the counters that targets need.
///
/// # Errors
/// If a counter is missing.
pub(crate) fn can_count(setup: &Setup, targets: &Targets) -> Result<(), LaunchError> {
    let Some(target) = targets.instructions() else { return Ok(()) };
    if setup.sampling.counters.is_some() {
        return Ok(());
    }
    match TaskCounters::find(&setup.proc, false) {
        Ok(_) => Ok(()),
        Err(why) => Err(LaunchError::NoCounters { target, why: why.to_string() }),
    }
}

/// Pauser of the jobs, and the journal with the guardian that restores everything after colocate's
/// death.
pub(crate) struct Safeguards {
    /// `None` if no job is ever stopped.
    pub pauser: Option<Pauser>,
    pub journal: Writer,
    pub guardian: Option<Guardian>,
    /// Problems found on the way, in lines for the user.
    troubles: Vec<String>,
}

impl Safeguards {
    /// Begins a journal, whose head says how jobs are stopped, and its guardian.
    fn begin(
        setup: &Setup,
        owner: Owner,
        original: &PuSet,
        sets: &[PuSet],
        pauser: Option<Pauser>,
    ) -> Self {
        let dir = rundir::open(&setup.run_dirs, sys::effective_user());
        let how = pauser.as_ref().map(Pauser::how);
        let journal = Writer::begin(dir, owner, journal::boot(&setup.proc), original, how.as_ref());
        let processes = setup.attached.iter().flat_map(|it| &it.processes).map(|it| &**it);
        let attached = (!setup.attached.is_empty()).then(|| Attached::of(&setup.proc, processes));
        // The guardian is not to hold what reads their environments.
        foreign::end();
        let journal = journal.with_sets(sets.iter().cloned());
        let journal = journal.with_origin(journal::namespaces(&setup.proc), attached);
        let guardian = Guardian::start(&journal);
        let mut journal = journal.with_file();
        let mut troubles: Vec<String> = journal.trouble().map(no_journal).into_iter().collect();
        let guardian = guardian.map_err(|why| troubles.push(format!("no guardian ({why})"))).ok();
        Self { pauser, journal, guardian, troubles }
    }

    /// Makes the cgroups named in the journal; on failure the journal is given up. Without a
    /// guardian, which would remove the cgroups afterwards, makes none.
    fn with_cgroups(self) -> io::Result<Self> {
        let guarded = self.guardian.as_ref().ok_or_else(|| io::Error::other("no guardian"));
        match guarded.and_then(|_| self.pauser.as_ref().map_or(Ok(()), Pauser::make_cgroups)) {
            Err(why) => {
                self.give_up();
                Err(why)
            }
            Ok(()) => Ok(self),
        }
    }

    /// Leaves nothing behind, as nothing can begin.
    pub fn give_up(mut self) {
        // Without a guardian no cgroups were made.
        let is_undone = self.guardian.is_none()
            || self.pauser.is_none_or(|mut pauser| pauser.dissolve().is_ok());
        end(&mut self.journal, self.guardian, is_undone);
    }
}

/// Ends a journal and its guardian. Where files or time run out here, the guardian restores the
/// rest: it has hardly any open file and half a minute. Without a guardian, `colocate restore`
/// does.
pub(crate) fn end(journal: &mut Writer, guardian: Option<Guardian>, is_undone: bool) {
    if is_undone {
        journal.remove();
        guardian.into_iter().for_each(Guardian::dismiss);
    } else {
        guardian.into_iter().for_each(Guardian::undo);
    }
}

/// Starts the journal and the guardian, then the pauser: whenever colocate is killed, the guardian
/// knows the path of its cgroups. Reports every restriction.
pub(crate) fn begin_safeguards(
    setup: &Setup,
    original: &PuSet,
    sets: &[PuSet],
    notes: &mut Vec<String>,
) -> Safeguards {
    let owner = Owner::ours(&setup.proc);
    let jobs = setup.commands.len();
    let begin = |pauser| Safeguards::begin(setup, owner, original, sets, pauser);
    let mut safeguards = if setup.may_pause && !setup.only_signals {
        let by_cgroups = Pauser::by_cgroups(jobs, &setup.proc, owner);
        by_cgroups.and_then(|pauser| begin(Some(pauser)).with_cgroups()).unwrap_or_else(|why| {
            notes.push(no_cgroups(&why));
            begin(Some(Pauser::by_signals(jobs)))
        })
    } else {
        begin(setup.may_pause.then(|| Pauser::by_signals(jobs)))
    };
    notes.append(&mut safeguards.troubles);
    safeguards
}

/// Copies of the commands with the journal's token, if any, in the environment.
pub(crate) fn with_token(commands: &[Command], token: Option<&str>) -> Vec<Command> {
    let variable = token.map(|token| (TOKEN_VARIABLE.into(), token.into()));
    commands
        .iter()
        .map(|command| {
            let env = command.env.iter().cloned().chain(variable.clone()).collect();
            Command { env, ..command.clone() }
        })
        .collect()
}

/// Standard input goes to the first program, as with GNU parallel: two readers would each get
/// parts.
pub(crate) fn hold_all(commands: &[Command], signals: &Signals) -> Result<Vec<Held>, LaunchError> {
    let inputs = std::iter::once(Input::Inherited).chain(std::iter::repeat(Input::Nothing));
    let held = commands.iter().zip(inputs);
    held.map(|(command, input)| launch::hold(command, input, signals.inherited())).collect()
}

/// Watches all these processes; fewer if a signal that ends the run arrives.
pub(crate) fn watch_all(pids: &[Pid], options: &lifecycle::LifecycleOptions) -> LifecycleEvents {
    let options =
        lifecycle::LifecycleOptions { most_a_second: Some(MOST_A_SECOND), ..options.clone() };
    let (first, others) = pids.split_first().map_or((Pid(0), pids), |(first, all)| (*first, all));
    let mut lifecycle = LifecycleEvents::watch(first, &options);
    for pids in others.chunks(WATCHED_AT_ONCE) {
        if Signals::is_end_pending() {
            break;
        }
        lifecycle.add_all(pids);
    }
    lifecycle
}

/// Reserved file descriptors for restoring state, as many as available.
pub(crate) fn reserve() -> Vec<File> {
    (0..IN_USE).filter_map(|_| colocate_files::kernel::open("/dev/null".as_ref()).ok()).collect()
}

/// PUs that the jobs' threads may use now, and their mask without colocate.
///
/// # Errors
/// If colocate's own mask cannot be read.
pub(crate) fn masks(setup: &Setup, cpusets: &Cpusets) -> Result<(PuSet, PuSet), SysError> {
    let files = Sysfs::at(Path::new("/"));
    if setup.attached.is_empty() {
        return Ok((affinity_of(Tid(0))?, original(&setup.proc, &files)?));
    }
    // Our own mask says nothing of programs that run already.
    let processes = setup.attached.iter().flat_map(|it| &it.processes);
    let usable = attached_pus(cpusets, processes).map_or_else(|| affinity_of(Tid(0)), Ok)?;
    Ok((usable, original::everything(&files)))
}

/// Task table with the launched jobs, whose programs are held, and the attached jobs.
pub(crate) fn jobs_of(setup: &Setup, held: &[Held]) -> TaskTable {
    let mut table = TaskTable::default();
    for (command, held) in setup.commands.iter().zip(held) {
        table.add_job(command.name(), held.pid());
    }
    for attached in &setup.attached {
        for (place, process) in attached.processes.iter().enumerate() {
            match place {
                0 => table.add_job(attached.name.clone(), process.pid()),
                _ => table.add_process(process.pid()),
            }
            table.hold_given(process);
        }
    }
    table
}

/// Maximum number of processes whose cpusets are read. Chosen: programs placed together have few.
pub(crate) const MOST_CPUSETS: usize = 64;

/// PUs in the cpusets of attached processes; `None` if no cpuset can be read.
pub(crate) fn attached_pus<'a>(
    cpusets: &Cpusets,
    processes: impl Iterator<Item = &'a Arc<ProcessHandle>>,
) -> Option<PuSet> {
    let pus: PuSet = processes
        .take(MOST_CPUSETS)
        .filter_map(|process| {
            // To list the threads of a process with 20,000 takes 20 ms.
            affinity::cpuset_of(cpusets, process, process.living_thread()?)
        })
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect();
    Some(pus).filter(|pus| !pus.is_empty())
}

/// PUs of the machine in `mask`, in logical order.
pub(crate) fn usable(machine: &Machine, mask: &PuSet) -> Vec<PuNr> {
    machine.pus.iter().map(|pu| pu.os).filter(|&pu| mask.contains(pu)).collect()
}

/// Message about missing cgroups and its consequence.
fn no_cgroups(why: &io::Error) -> String {
    format!(
        "jobs are stopped by signals, because no cgroups can be had ({why}): a process that stops itself is continued \
         with its job"
    )
}

/// Message about a missing journal and its consequence.
fn no_journal(why: String) -> String {
    format!(
        "cannot keep a journal ({why}): if colocate and its guardian are both killed, `colocate restore` will not know \
         what to undo"
    )
}

/// Message about missing thread-creation events and its consequence.
pub(crate) fn late_creation(why: &SysError) -> String {
    format!(
        "thread creation is detected by scanning /proc, because {why}: threads that live for less than some milliseconds are \
         not placed; `colocate doctor` names the remedy"
    )
}
