//! Who asks for a process's pages: its threads, and the nodes that they run on.

use super::nodes::Nodes;
use crate::pin;
use crate::stat::{self, Stat};
use colocate_machine::{NodeNr, PuNr};
use colocate_observe::{Pid, Tid};
use std::path::Path;

/// A thread, as far as memory is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its number.
    pub tid: Tid,
    /// Its name; empty if it has just ended.
    pub name: String,
    /// The PU that it last ran on.
    pub last_ran: PuNr,
    /// That PU's node; `None` if the PU is offline.
    pub last_node: Option<NodeNr>,
    /// The nodes of the PUs that it may use.
    pub may_use: Vec<NodeNr>,
}

/// The threads of process `pid` below `proc`, which is `/proc` on a live machine, lowest number
/// first. Those that end meanwhile are left out.
#[must_use]
pub fn askers(proc: &Path, pid: Pid, nodes: &Nodes) -> Vec<Asker> {
    let mut tids = stat::threads(proc, pid);
    tids.sort_unstable();
    let asker = |tid: Tid| {
        let stat = Stat::read(proc, pid, tid).filter(|stat| !stat.is_dead())?;
        let comm = std::fs::read(proc.join(format!("{pid}/task/{tid}/comm"))).unwrap_or_default();
        Some(Asker {
            tid,
            name: String::from_utf8_lossy(&comm).trim_end().to_owned(),
            last_ran: stat.last_ran,
            last_node: nodes.of(stat.last_ran),
            may_use: nodes.of_set(&pin::allowed(tid).ok()?),
        })
    };
    tids.into_iter().filter_map(asker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_asks_for_its_pages() {
        let Some(nodes) = Nodes::read(Path::new("/sys")) else {
            println!("skipped: this kernel has no nodes");
            return;
        };
        let pid = Pid(std::process::id().cast_signed());
        let found = askers(Path::new("/proc"), pid, &nodes);
        let first = found.iter().find(|asker| asker.tid == pid.first_thread()).unwrap();
        assert!(!first.name.is_empty() && !first.may_use.is_empty());
        assert!(first.last_node.is_some());
    }
}
