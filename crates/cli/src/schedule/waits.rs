//! `--preload`: programs tell which of their threads wait for others in a loop.

use super::workload::Workload;
use anyhow::{Context, bail};
use colocate_act::told::{self, Told};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Has all programs of a workload load the library, and gives back what they will tell.
///
/// # Errors
/// If the library is nowhere, or in a folder of which the loader cannot be told, or memory is short.
pub fn prepare(workload: &mut Workload) -> anyhow::Result<Told> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = own.parent().map(PathBuf::from).unwrap_or_default();
    let Some(library) = told::library(&beside) else {
        bail!(
            "expected libcolocate_waits.so beside {}, or in ../lib/colocate from there, found none; build it with \
             `make preload`",
            own.display()
        );
    };
    if library.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        bail!(
            "expected a path without spaces and colons for the loader, found {}",
            library.display()
        );
    }
    let told = Told::new().context("cannot make memory to be told of waits")?;
    for job in &mut workload.jobs {
        let own = job.command.env.clone();
        let value = |name: &OsStr| {
            let own = own.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
            own.or_else(|| std::env::var_os(name))
        };
        let more = told.environment(&library, value);
        job.command.env.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
        job.command.env.extend(more);
    }
    Ok(told)
}

/// A line if nobody has told anything, or not all.
pub fn silence(told: &Told) -> Option<String> {
    match (told.programs(), told.without_slot()) {
        (0, _) => Some(
            "no program has loaded the library that tells of waits: static programs, those of another user and in \
             another namespace of process IDs do not"
                .into(),
        ),
        (_, 0) => None,
        (_, threads) => Some(format!("{threads} threads could not tell of waits: there is room for 8192")),
    }
}
