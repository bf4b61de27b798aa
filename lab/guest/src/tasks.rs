//! What the kernel says of tasks: where they may run, where they run, and what else may have been done
//! to them.

use crate::evidence::text;
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Everything about a task that can be bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bonds {
    /// PUs that it may run on, as the kernel lists them.
    pub cpus: String,
    /// Nodes that its memory may come from, as the kernel lists them.
    pub mems: String,
    /// Its control group.
    pub group: String,
    /// Its nice value.
    pub nice: i32,
    /// Its scheduling policy.
    pub policy: u32,
    /// Whether a signal has stopped it.
    pub stopped: bool,
}

/// A living task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The name of its process's first thread.
    pub program: String,
    /// What binds it.
    pub bonds: Bonds,
    /// The PU where it runs or has last run.
    pub last_ran: u32,
}

impl Task {
    /// One thread; `None` if it has ended.
    #[must_use]
    pub fn read(pid: i32, tid: i32) -> Option<Self> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let status = lossy(format!("{folder}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().to_owned())
        };
        let stat = lossy(format!("{folder}/stat"))?;
        // The name is in parentheses and may hold some; proc(5) counts the fields after it from 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        if matches!(state, 'Z' | 'X') {
            return None;
        }
        let bonds = Bonds {
            cpus: field("Cpus_allowed_list")?,
            mems: field("Mems_allowed_list")?,
            group: lossy(format!("{folder}/cgroup"))?.trim().to_owned(),
            nice: fields.get(19 - 3)?.parse().ok()?,
            policy: fields.get(41 - 3)?.parse().ok()?,
            stopped: matches!(state, 'T' | 't'),
        };
        let program = lossy(format!("/proc/{pid}/comm"))?.trim().to_owned();
        let last_ran = fields.get(39 - 3)?.parse().ok()?;
        Some(Self { pid, tid, program, bonds, last_ran })
    }

    /// The only PU that it may run on, if there is but one.
    #[must_use]
    pub fn only_pu(&self) -> Option<u32> {
        self.bonds.cpus.parse().ok()
    }

    /// Whether it may run on one PU only, and runs there. A `sleep` moves when it wakes, which it never
    /// does.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.only_pu().is_some_and(|pu| self.last_ran == pu || self.program == "sleep")
    }

    /// Whether it is one of colocate's own: itself, its guardian, or a program that it still holds.
    #[must_use]
    pub fn is_colocate(&self) -> bool {
        self.program.starts_with("colocate")
    }
}

/// The first thread of this process: what binds a task that was never changed.
///
/// # Errors
/// If it cannot be read.
pub fn untouched() -> anyhow::Result<Bonds> {
    let pid = std::process::id().cast_signed();
    Ok(Task::read(pid, pid).context("/proc has no entry of ours")?.bonds)
}

/// Every task with `LAB_MARK=mark` in its environment, which is handed down to whatever a program
/// starts.
#[must_use]
pub fn marked(mark: &str) -> Vec<Task> {
    let wanted = format!("LAB_MARK={mark}");
    let is_marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let pids = numbers("/proc").into_iter().filter(is_marked);
    pids.flat_map(|pid| {
        let threads = numbers(&format!("/proc/{pid}/task"));
        threads.into_iter().filter_map(move |tid| Task::read(pid, tid))
    })
    .collect()
}

/// The policies that a process's memory has by its own mappings; `default` is none.
///
/// # Errors
/// If the kernel does not say. A process that has ended has none.
pub fn memory_policies(pid: i32) -> anyhow::Result<BTreeSet<String>> {
    let path = format!("/proc/{pid}/numa_maps");
    let maps = match fs::read_to_string(&path) {
        Ok(maps) => maps,
        Err(_) if !Path::new(&format!("/proc/{pid}/exe")).exists() => return Ok(BTreeSet::new()),
        Err(why) => return Err(why).context(path),
    };
    Ok(maps.lines().filter_map(|line| line.split(' ').nth(1)).map(String::from).collect())
}

/// Every control group with whether it is frozen and which PUs and nodes it was given.
///
/// # Errors
/// If one cannot be read.
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
        // The root can neither be frozen nor be given less than all.
        let file = |name: &str| text(format!("{folder}/{name}")).unwrap_or_default();
        let [frozen, cpus, mems] = ["cgroup.freeze", "cpuset.cpus", "cpuset.mems"].map(file);
        groups.push([folder, frozen, cpus, mems]);
    }
    groups.sort();
    Ok(groups)
}

/// A thread's name can be any bytes.
fn lossy(path: String) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

fn numbers(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
