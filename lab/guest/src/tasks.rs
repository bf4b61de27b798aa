//! State of tasks from `/proc`: affinity, last PU, and other attributes that colocate may change.

use crate::evidence::text;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Attributes of a task that colocate may change and must restore.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bonds {
    /// Allowed PUs, as a list of the kernel.
    pub cpus: String,
    /// Nodes allowed for memory, as a list of the kernel.
    pub mems: String,
    /// Control group, as in `/proc/PID/cgroup`.
    pub group: String,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// Scheduling policy, a `SCHED_` constant.
    pub policy: u32,
    /// True for a task stopped by a signal or a tracer.
    pub stopped: bool,
}

/// A living task.
#[derive(Clone, Debug)]
pub struct LiveTask {
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Name of the process's main thread.
    pub program: String,
    /// Attributes that colocate may change.
    pub bonds: Bonds,
    /// PU of the current or last run.
    pub last_ran: u32,
}

impl LiveTask {
    /// Reads one thread; `None` if the thread has ended.
    #[must_use]
    pub fn read(pid: i32, tid: i32) -> Option<Self> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let status = lossy(format!("{folder}/status"))?;
        let stat = lossy(format!("{folder}/stat"))?;
        // The name is in parentheses and may contain some; proc(5) numbers the next field 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        if matches!(state, 'Z' | 'X') {
            return None;
        }
        let bonds = Bonds {
            cpus: status_field(&status, "Cpus_allowed_list:")?,
            mems: status_field(&status, "Mems_allowed_list:")?,
            group: lossy(format!("{folder}/cgroup"))?.trim().to_owned(),
            // Fields 19, 39 and 41: nice, processor and policy.
            nice: fields.get(19 - 3)?.parse().ok()?,
            policy: fields.get(41 - 3)?.parse().ok()?,
            stopped: matches!(state, 'T' | 't'),
        };
        let program = lossy(format!("/proc/{pid}/comm"))?.trim().to_owned();
        let last_ran = fields.get(39 - 3)?.parse().ok()?;
        Some(Self { pid, tid, program, bonds, last_ran })
    }

    /// The allowed PU of a task with one allowed PU, else `None`.
    #[must_use]
    pub fn only_pu(&self) -> Option<u32> {
        self.bonds.cpus.parse().ok()
    }

    /// True for a task with one allowed PU that runs there.
    ///
    /// A sleeping task migrates only at its next wake-up, and a `sleep` never wakes, so its last PU
    /// does not matter.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.only_pu().is_some_and(|pu| self.last_ran == pu || self.program == "sleep")
    }

    /// True for a task of colocate: colocate, its guardian, or a program held before its exec.
    #[must_use]
    pub fn is_colocate(&self) -> bool {
        self.program.starts_with("colocate")
    }
}

/// Attributes of a task that colocate has never changed: this process's main thread.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn untouched() -> anyhow::Result<Bonds> {
    let pid = std::process::id().cast_signed();
    Ok(LiveTask::read(pid, pid).context("/proc has no entry of ours")?.bonds)
}

/// Every task with `LAB_MARK=mark` in its environment, which children inherit.
#[must_use]
pub fn marked(mark: &str) -> Vec<LiveTask> {
    let variable = format!("LAB_MARK={mark}");
    let pids = numbers("/proc").into_iter().filter(|pid| has_variable(*pid, &variable));
    pids.flat_map(|pid| {
        let threads = numbers(&format!("/proc/{pid}/task"));
        threads.into_iter().filter_map(move |tid| LiveTask::read(pid, tid))
    })
    .collect()
}

/// True if the process has `variable`, as `NAME=VALUE`, in its environment.
fn has_variable(pid: i32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|found| found == variable.as_bytes())
}

/// Memory policies of a process's mappings; `default` is the absence of a policy.
///
/// # Errors
/// If `numa_maps` of a living process cannot be read. An ended process has no policies.
pub fn memory_policies(pid: i32) -> anyhow::Result<BTreeSet<String>> {
    let path = format!("/proc/{pid}/numa_maps");
    let maps = match fs::read_to_string(&path) {
        Ok(maps) => maps,
        // The link of an ended process, or of a zombie, leads nowhere.
        Err(_) if !Path::new(&format!("/proc/{pid}/exe")).exists() => return Ok(BTreeSet::new()),
        Err(why) => return Err(why).context(path),
    };
    Ok(maps.lines().filter_map(|line| line.split(' ').nth(1)).map(String::from).collect())
}

/// Every control group: folder, `cgroup.freeze`, `cpuset.cpus` and `cpuset.mems`.
///
/// # Errors
/// If a folder cannot be read.
pub fn groups() -> anyhow::Result<Vec<[String; 4]>> {
    let mut groups = Vec::new();
    let mut folders = vec![String::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.clone())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path().display().to_string());
            }
        }
        // The root group lacks these files.
        let [frozen, cpus, mems] = ["cgroup.freeze", "cpuset.cpus", "cpuset.mems"]
            .map(|name| text(format!("{folder}/{name}")).unwrap_or_default());
        groups.push([folder, frozen, cpus, mems]);
    }
    groups.sort();
    Ok(groups)
}

/// Text of a file. A thread's name can have bytes that are not UTF-8.
fn lossy(path: String) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// Value of a field of `/proc/PID/status`; `name` includes the colon.
fn status_field(status: &str, name: &str) -> Option<String> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}

/// Entries of a folder with numeric names: processes of `/proc`, or threads.
fn numbers(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
