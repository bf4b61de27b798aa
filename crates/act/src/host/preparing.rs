//! What has to be there before anything runs.

use super::{Count, Setup};
use crate::journal::{Owner, Writer};
use crate::launch::{self, Command, Held, Input, LaunchError};
use crate::pause::Pauser;
use crate::rundir;
use crate::signals::Signals;
use crate::stat::Stat;
use crate::sys;
use crate::target::Targets;
use colocate_machine::{Machine, PuNr, PuSet};
use colocate_observe::pmu::{Counters, PmuError, Want};
use colocate_observe::{Births, Pid, SysError, births};
use std::path::Path;

/// The counters that are asked for and there; a note says so if none are.
///
/// # Errors
/// If there are none, and a target needs them.
pub(super) fn counters(
    setup: &Setup,
    targets: &Targets,
    notes: &mut Vec<String>,
) -> Result<Option<Counters>, LaunchError> {
    let found = |setup: &Setup, want| {
        let found = Counters::find(&setup.proc, Path::new("/sys"), want);
        found.map_err(|why: PmuError| why.to_string())
    };
    let found = match &setup.count {
        Count::Not => Err("nothing is to be counted".to_owned()),
        Count::With(counters) => Ok(counters.clone()),
        Count::Hardware => found(setup, Want::Traffic),
        Count::Stacks => found(setup, Want::Stacks),
    };
    match (found, targets.instructions()) {
        (Ok(counters), _) => {
            notes.extend(counters.notes.iter().cloned());
            Ok(Some(counters))
        }
        (Err(why), Some(target)) => Err(LaunchError::NoCounters { target, why }),
        (Err(_), None) if matches!(setup.count, Count::Not) => Ok(None),
        (Err(why), None) => {
            notes.push(format!(
                "neither instructions nor requests to caches and memory are counted: {why}; \
                 `colocate doctor` says what lifts it"
            ));
            Ok(None)
        }
    }
}

/// What stops jobs; says if that is not the best way.
pub(super) fn pauser(setup: &Setup, notes: &mut Vec<String>) -> Pauser {
    if setup.only_signals {
        return Pauser::by_signals(setup.commands.len());
    }
    let (pauser, why) = Pauser::new(setup.commands.len(), &setup.proc);
    if let Some(why) = why {
        notes.push(format!(
            "jobs are stopped by signals, because no cgroups can be had ({why}): a process that \
             stops itself is let go on with its job"
        ));
    }
    pauser
}

pub(super) fn begin_journal(setup: &Setup, original: &PuSet, pauser: Option<&Pauser>) -> Writer {
    let user = sys::effective_user();
    let pid = Pid(std::process::id().cast_signed());
    let start_ticks = Stat::read(&setup.proc, pid, pid.first_thread()).map(|s| s.start_ticks);
    let owner = Owner { pid, start_ticks: start_ticks.unwrap_or(0) };
    let dir = rundir::open(&setup.run_dirs, user);
    let how = pauser.map(Pauser::how);
    Writer::begin(dir.as_deref().map_err(Clone::clone), owner, original, how.as_ref())
}

/// Standard input goes to the first program, as with GNU parallel: two readers would each get parts.
pub(super) fn hold_all(commands: &[Command], signals: &Signals) -> Result<Vec<Held>, LaunchError> {
    let inputs = std::iter::once(Input::Inherited).chain(std::iter::repeat(Input::Nothing));
    let held = commands.iter().zip(inputs);
    held.map(|(command, input)| launch::hold(command, input, signals.inherited())).collect()
}

pub(super) fn watch_all(held: &[Held], options: &births::Options) -> Births {
    let mut pids = held.iter().map(Held::pid);
    let first = pids.next().unwrap_or(Pid(0));
    let mut births = Births::watch(first, options);
    pids.for_each(|pid| births.also(pid));
    births
}

/// The machine's PUs that are in `mask`, in logical order.
pub(super) fn usable(machine: &Machine, mask: &PuSet) -> Vec<PuNr> {
    machine.pus.iter().map(|pu| pu.os).filter(|&pu| mask.contains(pu)).collect()
}

/// What it means that there is no journal.
#[allow(clippy::needless_pass_by_value)] // it is mapped over what was taken
pub(super) fn no_journal(why: String) -> String {
    format!(
        "cannot keep a journal ({why}): if colocate and its guardian are both killed, `colocate restore` will not know \
         what to undo"
    )
}

/// What it means that births are not told by the kernel.
pub(super) fn late_births(why: &SysError) -> String {
    format!(
        "births of threads are looked for in /proc, because {why}: threads that live for less than some milliseconds are \
         not placed; `colocate doctor` says what lifts it"
    )
}
