//! `colocate pages PID`: the nodes of a process's memory, and the threads that use it.

use super::process::{failure, find, name, nodes_named};
use crate::output;
use colocate_act::pages::live::{self, MovableProcess, PagesError};
use colocate_act::pages::maps::{MemoryMapping, placed};
use colocate_act::pages::nodes::{MachineNodes, list};
use colocate_act::pages::tasks::{Asker, askers};
use colocate_linux::Pid;
use colocate_machine::printable::{self, printable};
use colocate_machine::{Bytes, NodeNr};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Version of the JSON format.
const VERSION: u32 = 1;

/// Nodes of a process's memory, and the threads that use it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct PagesReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// The process.
    pid: Pid,
    /// Name of its program.
    name: String,
    /// Nodes allowed by its cpuset (`Mems_allowed_list`).
    allowed_nodes: Vec<NodeNr>,
    /// Whether automatic NUMA balancing is on; `None` if the kernel has none.
    balancing: Option<bool>,
    /// Memory of all mappings together, by node.
    #[serde(serialize_with = "each_node")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<OnNode>"))]
    nodes: BTreeMap<NodeNr, Bytes>,
    /// The mappings, lowest address first.
    mappings: Vec<Mapped>,
    /// The threads, lowest number first.
    tasks: Vec<Asker>,
}

/// A mapping of the process.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct Mapped {
    /// First address.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]+$")))]
    start: String,
    /// First address after the mapping.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]+$")))]
    end: String,
    /// Mapped file, or the kernel's name such as `[heap]`; empty without a name.
    what: String,
    /// Memory policy as in `numa_maps`; empty if not listed there.
    policy: String,
    /// Size of a page; above that of a small page only in hugetlbfs.
    page_bytes: Bytes,
    /// Memory in transparent huge pages.
    huge_bytes: Bytes,
    /// Memory by node.
    #[serde(serialize_with = "each_node")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<OnNode>"))]
    nodes: BTreeMap<NodeNr, Bytes>,
}

/// Memory on a node.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct OnNode {
    /// The node.
    node: NodeNr,
    /// Memory on it.
    bytes: Bytes,
}

fn each_node<S: Serializer>(on: &BTreeMap<NodeNr, Bytes>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(on.iter().map(|(&node, &bytes)| OnNode { node, bytes }))
}

/// Prints the nodes of a process's memory.
pub fn main(pid: i32, json: bool) -> anyhow::Result<ExitCode> {
    let (process, nodes) = find(pid, false)?;
    let report = report(&process, &nodes).map_err(failure)?;
    output::write(None, &if json { printable::json(&report) } else { text(&report) })?;
    Ok(ExitCode::SUCCESS)
}

fn report(process: &MovableProcess, nodes: &MachineNodes) -> Result<PagesReport, PagesError> {
    let mut placed = placed(&process.text("numa_maps")?);
    let mut total: BTreeMap<NodeNr, Bytes> = BTreeMap::new();
    for (node, size) in placed.values().flat_map(|placed| &placed.on) {
        total.entry(*node).or_insert(Bytes(0)).0 += size.0;
    }
    let mut mapped = |mapping: &MemoryMapping| {
        let span = mapping.span();
        // numa_maps has only the start of a mapping (numa(7)).
        let placed = placed.remove(&span.start);
        let (policy, nodes) = placed.map(|placed| (placed.policy, placed.on)).unwrap_or_default();
        Mapped {
            start: span.start.to_string(),
            end: span.end.to_string(),
            what: mapping.what.clone(),
            policy,
            page_bytes: mapping.page,
            huge_bytes: mapping.huge,
            nodes,
        }
    };
    Ok(PagesReport {
        version: VERSION,
        pid: process.pid(),
        name: name(process.pid()),
        allowed_nodes: process.allowed()?,
        balancing: live::balances(Path::new("/proc")),
        nodes: total,
        mappings: process.mappings()?.iter().map(&mut mapped).collect(),
        tasks: askers(&process.handle, nodes),
    })
}

fn text(report: &PagesReport) -> String {
    let mut text = format!("process {} ({}), may use ", report.pid, printable(&report.name));
    let balancing = match report.balancing {
        Some(true) => "; kernel.numa_balancing is on",
        Some(false) => "; kernel.numa_balancing is off",
        None => "",
    };
    let _ = writeln!(text, "{}{balancing}\n", nodes_named(&list(&report.allowed_nodes)));
    let in_memory = sum(&report.nodes);
    let _ = writeln!(text, "{:<12}{:>12}  threads that last ran there", "node", "memory");
    let used = report.tasks.iter().filter_map(|task| task.last_node);
    for node in report.nodes.keys().copied().chain(used).collect::<BTreeSet<NodeNr>>() {
        // Threads may have run on a node without memory of this process.
        let size = report.nodes.get(&node).copied().unwrap_or(Bytes(0));
        let threads = report.tasks.iter().filter(|task| task.last_node == Some(node)).count();
        let _ = writeln!(text, "{:<12}{:>12}  {threads}", node.0, size.to_string());
    }
    let _ = writeln!(text, "{:<12}{:>12}  {}\n", "all", in_memory.to_string(), report.tasks.len());
    may_use(report, &mut text);
    mappings(report, &mut text);
    text
}

fn sum(on: &BTreeMap<NodeNr, Bytes>) -> Bytes {
    Bytes(on.values().map(|size| size.0).sum())
}

/// Number of threads by their allowed nodes.
fn may_use(report: &PagesReport, text: &mut String) {
    let mut groups: BTreeMap<&[NodeNr], usize> = BTreeMap::new();
    for task in &report.tasks {
        *groups.entry(&task.may_use).or_default() += 1;
    }
    for (nodes, threads) in groups {
        let plural = if threads == 1 { "thread" } else { "threads" };
        let _ = writeln!(text, "{threads} {plural} may run on {}", nodes_named(&list(nodes)));
    }
}

/// Mappings with memory, the largest first.
fn mappings(report: &PagesReport, text: &mut String) {
    let size = |mapping: &Mapped| sum(&mapping.nodes).0;
    let mut shown: Vec<&Mapped> = report.mappings.iter().filter(|m| size(m) > 0).collect();
    shown.sort_by_key(|mapping| std::cmp::Reverse(size(mapping)));
    let head = "\nmapping                           memory       huge  policy         nodes";
    let _ = writeln!(text, "{head}");
    for mapping in &shown {
        let on = mapping.nodes.iter().map(|(node, size)| format!("{}: {size}", node.0));
        let _ = writeln!(
            text,
            "{:<29} {:>10} {:>10}  {:<14} {}  {}",
            format!("{}-{}", mapping.start, mapping.end),
            Bytes(size(mapping)).to_string(),
            if mapping.huge_bytes.0 == 0 { "-".into() } else { mapping.huge_bytes.to_string() },
            printable(&mapping.policy),
            on.collect::<Vec<_>>().join(", "),
            printable(&mapping.what),
        );
    }
    let empty = report.mappings.len() - shown.len();
    if empty > 0 {
        let _ = writeln!(text, "{empty} mappings without memory of their own");
    }
}
