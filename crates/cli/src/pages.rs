//! `colocate pages`: where a process's memory lies, and which threads ask for it.

use crate::exit::{Failure, NO_CAPABILITY};
use crate::output;
use colocate_act::pages::Addr;
use colocate_act::pages::live::{self, PagesError, Process};
use colocate_act::pages::maps::{Mapping, Placed, placed};
use colocate_act::pages::nodes::{Nodes, list};
use colocate_act::pages::tasks::{Asker, askers};
use colocate_files::kernel;
use colocate_machine::printable::{self, printable};
use colocate_machine::{Bytes, NodeNr};
use colocate_observe::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Says where the memory of a process lies, and which of its threads ask for it
///
/// For each mapping: how much is on which node, how much of it in huge pages, and the memory policy.
/// For each thread: the nodes whose PUs it may use, and the one that it last ran on.
#[derive(clap::Args)]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,

    /// Print JSON (docs/schemas/pages.json), with every mapping and thread
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Report {
    version: u32,
    pid: i32,
    name: String,
    /// The nodes that its cpuset allows.
    allowed_nodes: Vec<u32>,
    /// Whether the kernel moves pages by itself; `None` if it cannot.
    balancing: Option<bool>,
    nodes: Vec<OnNode>,
    mappings: Vec<Mapped>,
    tasks: Vec<Task>,
}

/// How much is on a node.
#[derive(Serialize)]
struct OnNode {
    node: u32,
    bytes: u64,
}

#[derive(Serialize)]
struct Mapped {
    start: String,
    end: String,
    what: String,
    policy: String,
    page_bytes: u64,
    huge_bytes: u64,
    nodes: Vec<OnNode>,
}

#[derive(Serialize)]
struct Task {
    tid: i32,
    name: String,
    last_pu: u32,
    last_node: Option<u32>,
    may_use_nodes: Vec<u32>,
}

/// Runs `colocate pages`.
///
/// # Errors
/// If there is no such process, it may not be looked at (125), or this kernel has no nodes (3).
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (process, nodes) = find(args.pid, false)?;
    let report = report(&process, &nodes).map_err(failure)?;
    output::write(None, &if args.json { json(&report) } else { text(&report) })?;
    Ok(ExitCode::SUCCESS)
}

/// The process and the machine's nodes, once it is known that pages can be asked for at all.
///
/// # Errors
/// Those of [`main`].
pub fn find(pid: i32, shared: bool) -> anyhow::Result<(Process, Nodes)> {
    let (proc, sys) = (Path::new("/proc"), Path::new("/sys"));
    live::available(proc).map_err(failure)?;
    let process = Process::find(proc, sys, Pid(pid), shared).map_err(failure)?;
    let nodes = Nodes::read(sys).ok_or_else(|| Failure {
        code: NO_CAPABILITY,
        message: "expected /sys/devices/system/node/online and has_memory, found neither: this \
                  kernel has no NUMA, or /sys is not mounted"
            .into(),
    })?;
    Ok((process, nodes))
}

/// An error with its exit code.
pub fn failure(error: PagesError) -> anyhow::Error {
    match error {
        PagesError::NoCall { .. } => {
            Failure { code: NO_CAPABILITY, message: error.to_string() }.into()
        }
        _ => error.into(),
    }
}

/// The name of a process; empty if it has ended.
pub fn name(pid: Pid) -> String {
    let comm = kernel::read(Path::new(&format!("/proc/{pid}/comm"))).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}

/// JSON text that ends in a newline.
pub fn json(report: &impl Serialize) -> String {
    printable::json(report)
}

fn report(process: &Process, nodes: &Nodes) -> Result<Report, PagesError> {
    let mappings = process.mappings()?;
    let placed = placed(&process.text("numa_maps")?);
    let mut total = BTreeMap::new();
    for (node, size) in placed.values().flat_map(|placed| &placed.on) {
        *total.entry(*node).or_insert(Bytes(0)) =
            Bytes(total.get(node).map_or(0, |b| b.0) + size.0);
    }
    let askers = askers(process.handle(), nodes);
    Ok(Report {
        version: VERSION,
        pid: process.pid().0,
        name: name(process.pid()),
        allowed_nodes: numbers(&process.allowed()?),
        balancing: live::balances(Path::new("/proc")),
        nodes: on_nodes(&total),
        mappings: mappings.iter().map(|mapping| mapped(mapping, &placed)).collect(),
        tasks: askers.iter().map(task).collect(),
    })
}

fn numbers(nodes: &[NodeNr]) -> Vec<u32> {
    nodes.iter().map(|node| node.0).collect()
}

fn on_nodes(on: &BTreeMap<NodeNr, Bytes>) -> Vec<OnNode> {
    on.iter().map(|(node, size)| OnNode { node: node.0, bytes: size.0 }).collect()
}

fn mapped(mapping: &Mapping, placed: &BTreeMap<Addr, Placed>) -> Mapped {
    let placed = placed.get(&mapping.span().start);
    Mapped {
        start: mapping.span().start.to_string(),
        end: mapping.span().end.to_string(),
        what: mapping.what.clone(),
        policy: placed.map(|placed| placed.policy.clone()).unwrap_or_default(),
        page_bytes: mapping.page.0,
        huge_bytes: mapping.huge.0,
        nodes: placed.map(|placed| on_nodes(&placed.on)).unwrap_or_default(),
    }
}

fn task(asker: &Asker) -> Task {
    Task {
        tid: asker.tid.0,
        name: asker.name.clone(),
        last_pu: asker.last_ran.0,
        last_node: asker.last_node.map(|node| node.0),
        may_use_nodes: numbers(&asker.may_use),
    }
}

fn text(report: &Report) -> String {
    let mut text = format!("process {} ({}), may use ", report.pid, printable(&report.name));
    let allowed: Vec<NodeNr> = report.allowed_nodes.iter().copied().map(NodeNr).collect();
    let balancing = match report.balancing {
        Some(true) => "; kernel.numa_balancing is on",
        Some(false) => "; kernel.numa_balancing is off",
        None => "",
    };
    let _ = writeln!(text, "{}{balancing}\n", nodes_named(&list(&allowed)));
    let in_memory: u64 = report.nodes.iter().map(|on| on.bytes).sum();
    let _ = writeln!(text, "{:<12}{:>12}  threads that last ran there", "node", "memory");
    let mut nodes: Vec<u32> = report.nodes.iter().map(|on| on.node).collect();
    nodes.extend(report.tasks.iter().filter_map(|task| task.last_node));
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        let size = report.nodes.iter().find(|on| on.node == node).map_or(0, |on| on.bytes);
        let threads = report.tasks.iter().filter(|task| task.last_node == Some(node)).count();
        let _ = writeln!(text, "{node:<12}{:>12}  {threads}", Bytes(size).to_string());
    }
    let _ = writeln!(
        text,
        "{:<12}{:>12}  {}\n",
        "all",
        Bytes(in_memory).to_string(),
        report.tasks.len()
    );
    may_use(report, &mut text);
    mappings(report, &mut text);
    text
}

/// `node 1`, `nodes 0-2`.
pub fn nodes_named(list: &str) -> String {
    if list.contains(['-', ',']) { format!("nodes {list}") } else { format!("node {list}") }
}

/// How many threads may use which nodes.
fn may_use(report: &Report, text: &mut String) {
    let mut groups: BTreeMap<&[u32], usize> = BTreeMap::new();
    for task in &report.tasks {
        *groups.entry(&task.may_use_nodes).or_default() += 1;
    }
    for (nodes, threads) in groups {
        let nodes: Vec<NodeNr> = nodes.iter().copied().map(NodeNr).collect();
        let plural = if threads == 1 { "thread" } else { "threads" };
        let _ = writeln!(text, "{threads} {plural} may run on {}", nodes_named(&list(&nodes)));
    }
}

/// The mappings that have memory, the largest first.
fn mappings(report: &Report, text: &mut String) {
    let size = |mapping: &Mapped| mapping.nodes.iter().map(|on| on.bytes).sum::<u64>();
    let mut shown: Vec<&Mapped> = report.mappings.iter().filter(|m| size(m) > 0).collect();
    shown.sort_by_key(|mapping| std::cmp::Reverse(size(mapping)));
    let _ = writeln!(
        text,
        "\n{:<29} {:>10} {:>10}  {:<14} nodes",
        "mapping", "memory", "huge", "policy"
    );
    for mapping in &shown {
        let on = mapping.nodes.iter().map(|on| format!("{}: {}", on.node, Bytes(on.bytes)));
        let _ = writeln!(
            text,
            "{:<29} {:>10} {:>10}  {:<14} {}  {}",
            format!("{}-{}", mapping.start, mapping.end),
            Bytes(size(mapping)).to_string(),
            if mapping.huge_bytes == 0 {
                "-".into()
            } else {
                Bytes(mapping.huge_bytes).to_string()
            },
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
