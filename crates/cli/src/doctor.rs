//! `colocate doctor`.

use crate::{date, exit, idle, output, run};
use colocate_act::rundir;
use colocate_machine::read;
use colocate_observe::doctor::real::LocalMachine;
use colocate_observe::doctor::{Needs, Own, SystemFacts, examine};
use colocate_observe::emulate::{SearchPaths, available};
use colocate_observe::pmu;
use colocate_policy::table::{self, Knowledge};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checks what works here, and prints remedies
///
/// Exits with 0 if tasks can be placed and programs can be watched in at least one way, with 3 if
/// not. Things are tried for real; nothing is changed.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON (docs/reference/doctor.md)
    #[arg(long)]
    json: bool,
    /// Print only what does not work, or only partly
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Write to FILE instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate doctor`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let place = SystemFacts::read(Path::new("/"));
    let diagnosis = examine(&place, &LocalMachine, &own(&place));
    let text = if args.json { diagnosis.to_json() } else { diagnosis.text(args.quiet) };
    output::write(args.output.as_deref(), &text)?;
    Ok(if diagnosis.works { ExitCode::SUCCESS } else { ExitCode::from(exit::NO_CAPABILITY) })
}

/// Paths and state of colocate's own files on this machine.
fn own(place: &SystemFacts) -> Own {
    let program = std::env::current_exe().map(|path| path.display().to_string());
    Own {
        program: program.unwrap_or_else(|_| "colocate".to_owned()),
        journal: journal(place),
        emulator: emulator(),
        stacks: pmu::stacks(),
        policies: policies(),
        measured: measured(),
    }
}

/// All policies, each with its required sources of evidence on this machine.
fn policies() -> Vec<Needs> {
    let machine = read::live().ok();
    let shares_cores = machine.as_ref().is_some_and(|machine| machine.smt_width() > 1);
    let has_nodes = machine.as_ref().is_some_and(|machine| machine.nodes.len() > 1);
    let known = Knowledge { shares_cores, has_nodes, ..Knowledge::default() };
    let needs = table::all().map(|spec| Needs {
        name: spec.name(),
        is_default: spec.name() == run::DEFAULT_POLICY,
        sources: spec.policy(&known).needs(),
    });
    needs.collect()
}

/// Number, date and file of the kept figures of this machine, unless of another kernel or without
/// what predictions need.
fn measured() -> Result<String, String> {
    let machine = read::reported().map_err(|why| why.to_string())?;
    let (path, kept) =
        read::kept::find(&machine).map_err(|why| why.to_string())?.ok_or("not measured")?;
    let measured = kept.calibration.ok_or_else(|| format!("no figures in {}", path.display()))?;
    let now = idle::kernel(Path::new("/proc"));
    if let Some(then) = measured.kernel.filter(|then| now.as_ref() != Some(then)) {
        let now = now.as_deref().unwrap_or("an unknown kernel");
        return Err(format!("measured under {then}, and this is {now}"));
    }
    let count = measured.figures.len();
    let date = date::minute(measured.started_unix_s);
    let found = format!("{count} figures of {date} in {}", path.display());
    match kept.performance {
        Some(_) => Ok(found),
        None => Err(format!("{found}, without speeds that predictions need")),
    }
}

/// Folder of the journal that restores masks after a crash.
fn journal(place: &SystemFacts) -> Result<String, String> {
    let user = place.user.ok_or("the user is not known: /proc/self/status cannot be read")?;
    let candidates = rundir::candidates(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), user);
    rundir::open(&candidates, user).map(|folder| folder.path().display().to_string())
}

/// Version and path of the QEMU, and path of the plugin, for `profile --backend emulate`.
fn emulator() -> Result<String, String> {
    let found = available(&SearchPaths::from_env(|name| std::env::var_os(name)));
    let found = found.map_err(|why| why.to_string())?;
    let qemu = found.qemu.display();
    let plugin = found.plugin.display();
    Ok(format!("QEMU {} at {qemu}, plugin at {plugin}", found.version))
}
