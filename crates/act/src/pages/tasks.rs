//! Which threads use a process's pages, and the nodes that they run on.

use super::nodes::MachineNodes;
use crate::affinity;
use colocate_linux::Tid;
use colocate_linux::handle::ProcessHandle;
use colocate_machine::{NodeNr, PuNr};
use serde::Serialize;

/// A thread, as far as memory is concerned.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asker {
    /// Number.
    pub tid: Tid,
    /// Name of the thread; empty if it has just ended.
    pub name: String,
    /// PU of its last execution.
    #[serde(rename = "last_pu")]
    pub last_ran: PuNr,
    /// Node of the last PU; `None` if the PU is offline.
    pub last_node: Option<NodeNr>,
    /// Nodes of the PUs in its mask.
    #[serde(rename = "may_use_nodes")]
    pub may_use: Vec<NodeNr>,
}

/// Maximum size of a thread's name with its line feed: 15 bytes and the null at the end
/// (`TASK_COMM_LEN`), and more for kernel threads (fs/proc/array.c).
const MOST_NAME_B: u64 = 80;

/// Threads of a process, lowest number first. Threads that end meanwhile are left out.
pub fn askers(process: &ProcessHandle, nodes: &MachineNodes) -> Vec<Asker> {
    let mut tids = process.threads();
    tids.sort_unstable();
    tids.into_iter()
        .filter_map(|tid| {
            let stat = process.stat_of(tid).filter(|stat| !stat.is_dead())?;
            let name = process.read(&format!("task/{tid}/comm"), MOST_NAME_B).unwrap_or_default();
            Some(Asker {
                tid,
                name: name.trim_end().to_owned(),
                last_ran: stat.last_ran,
                last_node: nodes.of(stat.last_ran),
                may_use: nodes.of_set(&affinity::allowed(process, tid).ok()?),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_linux::Pid;
    use colocate_testing::skip;
    use std::path::Path;

    #[test]
    fn this_test_uses_its_pages() {
        let Some(nodes) = MachineNodes::read(Path::new("/sys")) else {
            skip!(Numa, "this kernel has no nodes");
        };
        let pid = Pid(std::process::id().cast_signed());
        let process = ProcessHandle::open(Path::new("/proc"), pid).unwrap();
        let found = askers(&process, &nodes);
        let first = found.iter().find(|asker| asker.tid == pid.first_thread()).unwrap();
        assert!(!first.name.is_empty() && !first.may_use.is_empty());
        assert!(first.last_node.is_some());
    }
}
