//! `colocate pages move` and `colocate pages`: pages are on the reported nodes, huge pages stay
//! whole, and nothing else has changed. The evidence is the kernel's: move_pages(2) of the program
//! itself, numa_maps, smaps and vmstat.
//!
//! Times mean nothing in a guest, so the cases check only that the size of a batch follows the time
//! of the batch before.

mod memory;

use super::undo::Before;
use crate::evidence::{colocate, eventually, list, printed, text};
use crate::session::ColocateSession;
use anyhow::{Context as _, ensure};
use memory::{Filler, MemoryProgram, numa_maps, said};
use serde_json::Value;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;

const MIB: u64 = 1 << 20;
const PAGE_B: u64 = 4096;

/// Checks that `colocate` fails with a status and exactly one message.
fn refused(words: &[&str], status: i32, expected: &str) -> anyhow::Result<()> {
    let output = colocate(words)?;
    let said = said(&output);
    ensure!(
        output.status.code() == Some(status) && said == format!("colocate: {expected}"),
        "colocate {}: expected {status} and {expected:?}, found {} and {said:?}",
        words.join(" "),
        output.status
    );
    Ok(())
}

fn vmstat(name: &str) -> anyhow::Result<u64> {
    let all = text("/proc/vmstat")?;
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("vmstat without {name}"))?.parse()?)
}

/// Checks the report's counts of pages by outcome; outcomes not in `expected` must be 0.
fn ensure_counts(report: &Value, expected: &[(&str, u64)]) -> anyhow::Result<()> {
    for (name, pages) in report["pages"].as_object().context("no pages")? {
        let wanted = expected.iter().find(|(known, _)| known == name).map_or(0, |known| known.1);
        ensure!(pages == wanted, "expected {name} {wanted}, found {}", report["pages"]);
    }
    Ok(())
}

/// Disables the kernel's NUMA balancing, which would move pages too.
fn without_balancing() -> anyhow::Result<()> {
    Ok(std::fs::write("/proc/sys/kernel/numa_balancing", "0")?)
}

/// 64 MiB of small pages move from node 0 to node 1 and keep their contents. A second move finds
/// all pages there, and a dry run moves none.
pub fn move_small_ones() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:64"])?;
    memory.ensure_on(0, "0:16384")?;
    let report = memory.moved_to("1", &[])?;
    ensure_counts(&report, &[("moved", 16384)])?;
    memory.ensure_on(0, "1:16384")?;
    let line = memory.numa_maps(0)?;
    ensure!(line.contains(" N1=16384 ") && !line.contains(" N0="), "numa_maps: {line}");
    ensure_batches_follow(&report)?;
    ensure_counts(&memory.moved_to("1", &[])?, &[("already_there", 16384)])?;
    let dry = memory.moved_to("0", &["--dry-run"])?;
    ensure_counts(&dry, &[("moved", 16384)])?;
    memory.ensure_on(0, "1:16384")?;
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    Ok(())
}

/// Checks the sizes of batches.
///
/// A batch's field `next` limits the pages of the next batch, and is at most twice its own limit. A
/// batch over the time limit is followed by a smaller batch, unless it had the least size.
fn ensure_batches_follow(report: &Value) -> anyhow::Result<()> {
    let each = report["batches"]["each"].as_array().context("no batches")?;
    ensure!(each.len() > 2, "expected several batches, found {}", each.len());
    let limit = report["batches"]["limit_ns"].as_u64();
    ensure!(limit == Some(20_000_000), "limit {limit:?}");
    // Limit of the first batch, in pages.
    let mut allowed = 64;
    for pair in each.windows(2) {
        let pages = number(&pair[0]["pages"])?;
        let next = number(&pair[0]["next"])?;
        let slow = number(&pair[0]["took_ns"])? > 20_000_000;
        let follows = number(&pair[1]["pages"])? <= next;
        ensure!(follows && next <= 2 * allowed, "{} {}", pair[0], pair[1]);
        ensure!(!slow || next < pages || pages <= 32, "{}", pair[0]);
        allowed = next;
    }
    Ok(())
}

fn number(value: &Value) -> anyhow::Result<u64> {
    value.as_u64().context("no number")
}

/// 16 huge pages move as 16 huge pages, and the kernel counts no split.
pub fn keep_huge_ones() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["huge:32"])?;
    ensure!(memory.huge()? == 32 * MIB, "expected 32 MiB in huge pages, found {}", memory.huge()?);
    let before = huge_moves()?;
    let report = memory.moved_to("2", &[])?;
    let after = huge_moves()?;
    ensure!(
        after == (before.0 + 16, before.1),
        "expected 16 more whole, found {before:?} {after:?}"
    );
    ensure_counts(&report, &[("moved", 8192)])?;
    ensure!(
        report["huge"]["moved_whole"] == 16 && report["huge"]["split"] == 0,
        "{}",
        report["huge"]
    );
    memory.ensure_on(0, "2:8192")?;
    ensure!(memory.huge()? == 32 * MIB, "found {} in huge pages", memory.huge()?);
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    Ok(())
}

/// Huge pages that the kernel has migrated whole, and huge pages split by migration, since boot.
fn huge_moves() -> anyhow::Result<(u64, u64)> {
    Ok((vmstat("thp_migration_success")?, vmstat("thp_migration_split")?))
}

/// Pages of hugetlbfs move whole, and `colocate pages` reports as many bytes as numa_maps.
pub fn move_those_of_hugetlbfs() -> anyhow::Result<()> {
    without_balancing()?;
    let pools = ["0", "1"].map(|node| {
        format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
    });
    for pool in &pools {
        std::fs::write(pool, "8")?;
        // The kernel reserves fewer pages, without an error, if memory is fragmented.
        ensure!(text(pool)? == "8", "expected 8 pages in {pool}, found {}", text(pool)?);
    }
    let mut memory = MemoryProgram::on_node_0(&["hugetlb:16"])?;
    memory.ensure_on(0, "0:4096")?;
    let report = memory.moved_to("1", &[])?;
    ensure_counts(&report, &[("moved", 4096)])?;
    memory.ensure_on(0, "1:4096")?;
    let line = memory.numa_maps(0)?;
    ensure!(line.ends_with(" N1=8 kernelpagesize_kB=2048"), "numa_maps: {line}");
    let found: Value = serde_json::from_str(&printed(&["pages", &memory.pid(), "--json"])?)?;
    let mappings = found["mappings"].as_array().context("no mappings")?;
    let expected = serde_json::json!([{ "node": 1, "bytes": 16 * MIB }]);
    ensure!(mappings.iter().any(|mapping| mapping["nodes"] == expected), "{found}");
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    drop(memory);
    Ok(pools.iter().try_for_each(|pool| std::fs::write(pool, "0"))?)
}

/// Interleaved pages are distributed evenly over nodes; huge pages stay whole.
pub fn interleave() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:8"])?;
    memory.moved_to("interleave", &[])?;
    memory.ensure_on(0, "0:512 1:512 2:512 3:512")?;
    drop(memory);
    let mut memory = MemoryProgram::on_node_0(&["huge:16"])?;
    memory.moved_to("interleave", &[])?;
    memory.ensure_on(0, "0:1024 1:1024 2:1024 3:1024")?;
    ensure!(memory.huge()? == 16 * MIB, "found {} in huge pages", memory.huge()?);
    Ok(())
}

/// Huge pages moved to a node with fragmented free memory are split, and the split is reported.
///
/// Up to three moves are tried: the kernel may find free huge pages after other programs end.
pub fn split_where_there_is_no_room() -> anyhow::Result<()> {
    without_balancing()?;
    let mut fillers = Vec::new();
    while fillers.len() < 3 {
        let memory = MemoryProgram::on_node_0(&["huge:32"])?;
        fillers.push(Filler::on_node_3()?);
        if is_split(memory)? {
            return Ok(());
        }
    }
    anyhow::bail!("expected huge pages to be split, found none in {} moves", fillers.len())
}

/// Moves huge pages to node 3 and checks the reported splits. True if there were any.
fn is_split(mut memory: MemoryProgram) -> anyhow::Result<bool> {
    let before = vmstat("thp_migration_split")?;
    let report = memory.moved_to("3", &[])?;
    let split = vmstat("thp_migration_split")? - before;
    ensure!(report["huge"]["split"] == split, "expected split {split}, found {}", report["huge"]);
    // A page that the kernel itself is migrating, to make room, is on no node for a moment.
    eventually("all pages on node 3", || Ok(memory.request("where 0")? == "3:8192"))?;
    let left = memory.huge()?;
    ensure!(report["huge"]["after_bytes"] == left, "expected {left}, found {}", report["huge"]);
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    Ok(split > 0)
}

/// A full node gets as many pages as fit; other pages stay, and `colocate pages move` fails.
pub fn fill_a_node() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:140"])?;
    let _filler = Filler::on_node_3()?;
    let output = memory.move_to("3", &[])?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let moved = number(&report["pages"]["moved"])?;
    let left = number(&report["pages"]["no_memory"])?;
    ensure!(moved > 0 && left > 0 && moved + left == 140 * MIB / PAGE_B, "{}", report["pages"]);
    ensure!(output.status.code() == Some(125), "{}: {}", output.status, said(&output));
    let expected = "colocate: expected room on node 3, found too little: ";
    ensure!(said(&output).starts_with(expected), "{}", said(&output));
    // The other pages need not be on node 0: the system may have left too little room there.
    let found = memory.request("where 0")?;
    let mut there = 0;
    let mut elsewhere = 0;
    for (node, pages) in found.split(' ').filter_map(|word| word.split_once(':')) {
        let pages = pages.parse::<u64>()?;
        if node == "3" { there += pages } else { elsewhere += pages }
    }
    ensure!((there, elsewhere) == (moved, left), "expected {moved} on node 3, found {found}");
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    Ok(())
}

/// Pages shared with a child stay; with `--shared`, root moves them.
pub fn leave_shared_ones() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["shared:4"])?;
    ensure_counts(&memory.moved_to("1", &[])?, &[("shared", 1024)])?;
    memory.ensure_on(0, "0:1024")?;
    ensure_counts(&memory.moved_to("1", &["--shared"])?, &[("moved", 1024)])?;
    memory.ensure_on(0, "1:1024")
}

/// A user's forbidden moves are refused with one line; root may move all pages.
pub fn obey_their_owner() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:1"])?;
    let pid = memory.pid();
    let range = &memory.regions[0];
    let mut command = Command::new("colocate");
    command.args(["pages", "move", &pid, "--range", range, "--to", "1"]).uid(1000).gid(1000);
    let output = command.output()?;
    let expected = format!(
        "colocate: process {pid} may not be looked at: it is another user's, or protected; run \
         colocate as that user, as root, or with CAP_SYS_PTRACE"
    );
    ensure!(output.status.code() == Some(125) && said(&output) == expected, "{}", said(&output));
    memory.ensure_on(0, "0:256")?;
    let mut theirs = MemoryProgram::of_user(&["shared:1"], 1000)?;
    let pid = theirs.pid();
    let range = &theirs.regions[0];
    let mut command = Command::new("colocate");
    command
        .args(["pages", "move", &pid, "--range", range, "--to", "1", "--shared"])
        .uid(1000)
        .gid(1000);
    let output = command.output()?;
    ensure!(said(&output).contains("only with CAP_SYS_NICE (EPERM)"), "{}", said(&output));
    ensure_counts(&theirs.moved_to("1", &["--shared"])?, &[("moved", 256)])?;
    theirs.ensure_on(0, "1:256")
}

/// Impossible moves are refused with their reasons: nodes, processes, cpusets and seccomp filters.
pub fn refuse_what_cannot_be() -> anyhow::Result<()> {
    let memory = MemoryProgram::on_node_0(&["small:1"])?;
    let pid = memory.pid();
    refused(
        &["pages", "move", &pid, "--all", "--to", "9"],
        125,
        "expected a node that is online, 0-3, found 9",
    )?;
    // Process 2 is kthreadd, which has no memory.
    refused(
        &["pages", "2"],
        125,
        "expected a process with memory, found 2, which has none: a kernel thread, or ended",
    )?;
    refused(
        &["pages", "999999"],
        125,
        "expected a running process, found none with the number 999999",
    )?;
    std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
    let group = "/sys/fs/cgroup/pages";
    std::fs::create_dir_all(group)?;
    std::fs::write(format!("{group}/cpuset.mems"), "0-1")?;
    std::fs::write(format!("{group}/cgroup.procs"), &pid)?;
    refused(
        &["pages", "move", &pid, "--all", "--to", "2"],
        125,
        "expected a node that the process's cpuset allows, 0-1, found node 2; see \
         Mems_allowed_list in /proc/PID/status",
    )?;
    for errno in ["ENOSYS", "EPERM"] {
        let words = ["--program", "filtered", errno, "colocate", "pages", &pid];
        let output = Command::new("lab-guest").args(words).output()?;
        let said = said(&output);
        let named = said.contains("a seccomp filter is in force here");
        ensure!(output.status.code() == Some(3) && named, "{errno}: {}: {said}", output.status);
    }
    drop(memory);
    eventually("the end of the group", || Ok(std::fs::remove_dir(group).is_ok()))
}

/// A node without memory is refused.
pub fn refuse_a_node_without_memory() -> anyhow::Result<()> {
    let with = list(&text("/sys/devices/system/node/has_memory")?)?;
    let online = list(&text("/sys/devices/system/node/online")?)?;
    let without = online.iter().find(|node| !with.contains(node));
    let without = without.context("expected a node without memory, found none")?.to_string();
    let memory = MemoryProgram::on_node_0(&["small:1"])?;
    let output = memory.move_to(&without, &[])?;
    let expected = format!("found node {without}, which has none");
    ensure!(output.status.code() == Some(125), "{}", output.status);
    ensure!(said(&output).ends_with(&expected), "{}", said(&output));
    Ok(())
}

/// A move of all memory keeps every mapping's memory policy, including a policy for another node.
pub fn leave_policies_alone() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["bound:4", "small:4"])?;
    let before = memory.policies()?;
    ensure!(memory.numa_maps(0)?.contains(" bind:0 "), "{}", memory.numa_maps(0)?);
    printed(&["pages", "move", &memory.pid(), "--all", "--to", "1"])?;
    memory.ensure_on(0, "1:1024")?;
    memory.ensure_on(1, "1:1024")?;
    ensure!(memory.policies()? == before, "expected {before:?}, found {:?}", memory.policies()?);
    Ok(())
}

/// `colocate pages` agrees with numa_maps for every mapping, and reports the threads' nodes.
pub fn are_where_it_says() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:8", "huge:8", "bound:2"])?;
    memory.moved_to("3", &[])?;
    memory.request("read 2")?;
    let report: Value = serde_json::from_str(&printed(&["pages", &memory.pid(), "--json"])?)?;
    let mappings = report["mappings"].as_array().context("no mappings")?;
    for (place, (node, bytes, huge, policy)) in
        [(3, 8 * MIB, 0, "default"), (0, 8 * MIB, 8 * MIB, "default"), (0, 2 * MIB, 0, "bind:0")]
            .into_iter()
            .enumerate()
    {
        let start = memory.regions[place].split('-').next().unwrap_or_default();
        let found = mappings.iter().find(|mapping| mapping["start"] == start);
        // The kernel joins adjacent mappings with equal attributes, and lists the first start only.
        let found = found.with_context(|| format!("no mapping at {start}: {report}"))?;
        let expected = serde_json::json!([{ "node": node, "bytes": bytes }]);
        ensure!(found["nodes"] == expected && found["policy"] == policy, "{found}");
        ensure!(found["huge_bytes"] == huge, "{found}");
        let line = memory.numa_maps(place)?;
        ensure!(line.contains(&format!(" N{node}={} ", bytes / PAGE_B)), "{line}");
    }
    let tasks = report["tasks"].as_array().context("no tasks")?;
    let reader = tasks.iter().find(|task| task["name"] == "reader").context("no reader")?;
    // PU 2 is the first of node 1.
    ensure!(reader["may_use_nodes"] == serde_json::json!([1]), "{reader}");
    Ok(())
}

/// The kernel moves pages back to the thread that reads them, and `--watch` reports the drift.
pub fn that_drift_are_noticed() -> anyhow::Result<()> {
    let mut memory = MemoryProgram::on_node_0(&["small:16"])?;
    std::fs::write("/proc/sys/kernel/numa_balancing", "1")?;
    memory.request("read 0")?;
    let before = vmstat("numa_pages_migrated")?;
    let report = memory.moved_to("1", &["--watch", "60"])?;
    let migrated = vmstat("numa_pages_migrated")? - before;
    let drift = &report["drift"];
    let found = drift["drifted"].as_u64().context("no drift")?;
    ensure!(found > 0 && migrated > 0, "kernel moved {migrated} pages back, found {drift}");
    ensure!(found <= drift["looked_at"].as_u64().unwrap_or(0), "{drift}");
    without_balancing()
}

/// A move ends with one message when its process is killed.
pub fn of_a_process_that_ends() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:40"])?;
    let child = memory.on_the_move()?;
    memory.child.kill()?;
    let output = child.wait_with_output()?;
    let said = said(&output);
    // A fast machine may have moved all pages before the kill.
    if output.status.success() {
        println!("of_a_process_that_ends: all was moved before the process was killed");
        return Ok(());
    }
    ensure!(output.status.code() == Some(125), "{}: {said}", output.status);
    ensure!(said.starts_with("colocate: the process ended in the middle: "), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["end"] == "process-ended" && report["reached"].is_string(), "{report}");
    Ok(())
}

/// SIGINT ends a move between two batches: pages are on the reported nodes, with their contents.
pub fn of_a_move_that_is_stopped() -> anyhow::Result<()> {
    without_balancing()?;
    let mut memory = MemoryProgram::on_node_0(&["small:40"])?;
    let child = memory.on_the_move()?;
    crate::session::send("-INT", &[child.id().to_string()]);
    let output = child.wait_with_output()?;
    let said = said(&output);
    ensure!(output.status.signal().is_none(), "it was killed: {}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let moved = report["pages"]["moved"].as_u64().context("no count")?;
    let total = 40 * MIB / PAGE_B;
    ensure!(memory.request("check")? == "sound", "the memory has changed");
    if output.status.success() {
        println!("of_a_move_that_is_stopped: all was moved before the signal");
        return memory.ensure_on(0, &format!("1:{total}"));
    }
    ensure!(output.status.code() == Some(130), "{}: {said}", output.status);
    ensure!(said.starts_with("colocate: stopped by signal 2: "), "{said}");
    ensure!(moved + report["pages"]["not_reached"].as_u64().unwrap_or(0) == total, "{report}");
    memory.ensure_on(0, &format!("0:{} 1:{moved}", total - moved))
}

/// A policy outside of colocate moves its job's memory to node 1, in four page moves.
pub fn of_a_job_go_where_a_policy_orders() -> anyhow::Result<()> {
    let mut moved = Ordered::by("to-node:node=1:mib=4", "small:16")?;
    eventually("all pages on node 1", || Ok(moved.session.request("where 0")? == "1:4096"))?;
    ensure!(moved.session.request("check")? == "sound", "the memory has changed");
    let [task] = &moved.session.tasks()[..] else { anyhow::bail!("expected one task") };
    ensure!(task.only_pu() == Some(0), "expected it on PU 0, found {task:?}");
    let report = moved.session.end()?;
    ensure!(report["jobs"][0]["status"] == 0, "found {report:#}");
    moved.before.left_nothing()
}

/// colocate is killed during a page move of a policy: the program lives on, each page is on one
/// node, and all is restored.
pub fn of_a_job_stay_sound_when_colocate_is_killed() -> anyhow::Result<()> {
    let mut moved = Ordered::by("to-node:node=1:mib=48", "small:64")?;
    eventually("the first pages on node 1", || Ok(moved.numa_maps()?.contains(" N1=")))?;
    moved.session.colocate.kill()?;
    let status = moved.session.colocate.wait()?;
    ensure!(status.signal() == Some(9), "expected colocate killed, found {status}");
    moved.session.await_end()?;
    let pages = moved.session.request("where 0")?;
    let counts: Option<Vec<u64>> = pages
        .split(' ')
        .map(|word| word.strip_prefix("0:").or(word.strip_prefix("1:"))?.parse().ok())
        .collect();
    let counts = counts.with_context(|| format!("expected nodes 0 and 1, found {pages}"))?;
    ensure!(counts.iter().sum::<u64>() == 16384, "expected 16384 pages, found {pages}");
    ensure!(counts.len() == 2, "expected some pages on each node, found {pages}");
    ensure!(moved.session.request("check")? == "sound", "the memory has changed");
    moved.before.is_back(&moved.session)
}

/// The program `memory` with a region on node 0, under a policy that moves pages.
struct Ordered {
    before: Before,
    session: ColocateSession,
    region: String,
}

impl Ordered {
    fn by(policy: &str, region: &str) -> anyhow::Result<Self> {
        without_balancing()?;
        let before = Before::now()?;
        let options = ["--no-guard", "-q", "--quantum", "20ms", "--policy", policy];
        let program = ["lab-guest", "--program", "memory", "any", region];
        let mut session = ColocateSession::mover(&options, &program)?;
        let region = session.line()?;
        Ok(Self { before, session, region })
    }

    /// Line of numa_maps of the region; empty if there is none.
    fn numa_maps(&self) -> anyhow::Result<String> {
        let tasks = self.session.tasks();
        let task = tasks.first().context("no task")?;
        Ok(numa_maps(task.pid, &self.region)?.unwrap_or_default())
    }
}
