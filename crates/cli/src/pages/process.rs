//! A process whose pages are shown or moved, and the machine's nodes.

use crate::exit::no_capability;
use colocate_act::pages::live::{self, MovableProcess, PagesError};
use colocate_act::pages::nodes::MachineNodes;
use colocate_linux::Pid;
use colocate_linux::proc::Proc;
use std::path::Path;

/// The process and the machine's nodes. Fails first if the kernel cannot report pages at all.
pub fn find(pid: i32, shared: bool) -> anyhow::Result<(MovableProcess, MachineNodes)> {
    let proc = Path::new("/proc");
    let sys = Path::new("/sys");
    live::available(proc).map_err(failure)?;
    let process = MovableProcess::find(proc, sys, Pid(pid), shared).map_err(failure)?;
    let nodes = MachineNodes::read(sys).ok_or_else(|| {
        no_capability(
            "expected /sys/devices/system/node/online and has_memory, found neither: this kernel has no \
             NUMA, or /sys is not mounted"
                .to_owned(),
        )
    })?;
    Ok((process, nodes))
}

/// The error for the command line, with its exit code.
pub fn failure(error: PagesError) -> anyhow::Error {
    match error {
        PagesError::NoCall { .. } => no_capability(error.to_string()),
        _ => error.into(),
    }
}

/// Name of a process; empty if it has ended.
pub fn name(pid: Pid) -> String {
    Proc::default().name(pid, pid.first_thread()).unwrap_or_default()
}

/// `node 1`, `nodes 0-2`.
pub fn nodes_named(list: &str) -> String {
    if list.contains(['-', ',']) { format!("nodes {list}") } else { format!("node {list}") }
}
