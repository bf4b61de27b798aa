//! Random histories of programs, cpusets and PUs under colocate: at the end every mask is as
//! without colocate.
//!
//! A program acts at random (`programs/history`) under `run` or `attach`. Meanwhile its processes
//! move between cpusets, cpusets change, and PUs go offline and online. colocate ends by a signal,
//! or is killed, with its guardian or alone. Then all processes move back, and each thread's mask
//! is compared with the last mask that the thread itself has set.
//!
//! The kernel hides a mask that a program has set if its cpuset has none of the PUs, and before 6.2
//! forgets the mask. So after moves a thread with a mask may have all PUs instead. The kernel also
//! drops PUs that are offline when a mask is set. So after an offline PU a thread may have all
//! other PUs instead of all.
//!
//! Histories begin and end in a cpuset with all PUs and not in the root group. A thread created
//! while its process moves to the root group keeps the mask of its former cpuset: `cpuset_fork` in
//! kernel/cgroup/cpuset.c returns early. Measured without colocate on Linux 6.18: 5 of 138,884
//! threads, none of 140,942 with another cpuset.

use crate::evidence::{colocate, eventually, text};
use crate::groups::{ControlGroup, Offline};
use crate::programs::history::mask_set_without;
use crate::random::Random;
use crate::session::{picture, send};
use crate::tasks::{LiveTask, marked};
use anyhow::{Context as _, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Most calls of `colocate restore`, which reports an incomplete restore: on a busy host a guest
/// has little CPU time.
const RESTORES: u32 = 10;
/// PU that goes offline and comes back.
const GOES: u32 = 5;
const ROOT: &str = "/sys/fs/cgroup";
/// Cpusets of the group that processes move to.
const CPUSETS: [&str; 4] = ["0-3", "4-7", "2-13", "8-15"];

/// Programs and colocate of a history; all are killed on drop.
struct History {
    mark: String,
    folder: PathBuf,
    colocate: Child,
}

impl History {
    fn start(random: &mut Random, round: u32) -> anyhow::Result<Self> {
        let mark = format!("history-{}-{round}", std::process::id());
        let folder = PathBuf::from("/tmp").join(&mark);
        std::fs::create_dir(&folder)?;
        let seed = random.next().to_string();
        let program = ["lab-guest", "--program", "history", &seed];
        let policy = random.pick(&["scatter", "round-robin", "compact"]);
        let report = folder.join("report").to_string_lossy().into_owned();
        let options = ["--no-guard", "--json", "-o", &report, "--policy", policy];
        let colocate = if random.below(2) == 0 {
            let settle = random.pick(&["0", "20"]);
            let mut command = Command::new("colocate");
            command
                .arg("run")
                .args(options)
                .args(["--settle-ms", settle, "--"])
                .args(program)
                .arg(&folder);
            quiet(&mut command, &mark, &folder)?
        } else {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(&folder);
            let pid = quiet(&mut command, &mark, &folder)?.id().to_string();
            // colocate attaches while the program creates tasks.
            std::thread::sleep(Duration::from_millis(random.below(200)));
            let mut command = Command::new("colocate");
            command.arg("attach").args(options).args(["-p", &pid]);
            quiet(&mut command, &mark, &folder)?
        };
        Ok(Self { mark, folder, colocate })
    }

    /// Messages of colocate so far, and the lines about a thread in its report.
    fn said_of(&self, tid: i32) -> String {
        let said = std::fs::read_to_string(self.folder.join("said")).unwrap_or_default();
        let report = std::fs::read_to_string(self.folder.join("report")).unwrap_or_default();
        let lines: Vec<&str> = report.lines().collect();
        let its = format!("\"tid\": {tid},");
        let at = lines.iter().position(|line| line.trim() == its);
        let near = at.map(|at| lines[at.saturating_sub(8)..(at + 25).min(lines.len())].join(" "));
        format!("{said}; reports {}", near.unwrap_or_else(|| format!("{} lines", lines.len())))
    }

    /// The mask that a thread has reported for the check, see `programs/history`. `None`: none yet.
    fn reported(&self, task: &LiveTask) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.join(task.tid.to_string())).ok()?;
        // The file is empty until the thread has written it.
        Some(text).filter(|text| !text.is_empty())
    }

    fn all(&self) -> Vec<LiveTask> {
        marked(&self.mark)
    }

    fn tasks(&self) -> Vec<LiveTask> {
        self.all().into_iter().filter(|task| !task.is_colocate()).collect()
    }

    /// Moves all processes of the programs to a cgroup, including processes created meanwhile.
    fn move_to(&self, folder: &Path) {
        let group =
            format!("0::{}", folder.to_string_lossy().strip_prefix(ROOT).unwrap_or_default());
        for _ in 0..20 {
            let mut pids: Vec<i32> = self.tasks().iter().map(|task| task.pid).collect();
            pids.dedup();
            pids.retain(|pid| {
                text(format!("/proc/{pid}/cgroup")).is_ok_and(|found| found != group)
            });
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                // Fails for a process that has ended.
                let _ = std::fs::write(folder.join("cgroup.procs"), pid.to_string());
            }
        }
    }

    /// Ends colocate in one of four ways, and waits until all is restored. Returns the way.
    fn end(&mut self, random: &mut Random) -> anyhow::Result<&'static str> {
        let how = random.pick(&["TERM", "INT", "KILL", "KILL both"]);
        if how == "KILL both"
            && let Some(guardian) =
                self.all().into_iter().find(|task| task.program == "colocate-guard")
        {
            send("-KILL", &[guardian.pid.to_string()]);
        }
        let signal = if how.starts_with("KILL") { "-KILL" } else { &format!("-{how}") };
        send(signal, &[self.colocate.id().to_string()]);
        self.colocate.wait()?;
        eventually("the end of colocate's processes", || {
            std::thread::sleep(Duration::from_millis(20));
            Ok(!self.all().iter().any(LiveTask::is_colocate))
        })?;
        for _ in 0..RESTORES {
            let restored = colocate(&["restore"])?;
            if restored.status.success() {
                return Ok(how);
            }
            let said = String::from_utf8_lossy(&restored.stdout);
            ensure!(said.contains("call it again"), "restore after {how}: {said}");
        }
        bail!("restore after {how}: incomplete {RESTORES} times")
    }

    /// Checks that every thread has the mask that the thread has set, or a mask of `all`, the masks
    /// that stand for all PUs. Returns the number of threads.
    fn check(&self, all: &[&str], was_moved: bool) -> anyhow::Result<usize> {
        std::fs::write(self.folder.join("check"), "")?;
        let mut tasks = Vec::new();
        eventually("all threads to say what they have set", || {
            std::thread::sleep(Duration::from_millis(20));
            tasks = self.tasks();
            Ok(tasks.iter().all(|task| self.reported(task).is_some()))
        })?;
        for task in &tasks {
            let bound = self.reported(task).unwrap_or_default();
            let has_all = all.contains(&&*task.bonds.cpus);
            let is_right = match &bound[..] {
                "-" => has_all,
                bound => task.bonds.cpus == bound || was_moved && has_all,
            };
            ensure!(
                is_right,
                "thread {} has set {bound}: {}; colocate says {}",
                task.tid,
                picture(&tasks),
                self.said_of(task.tid)
            );
        }
        Ok(tasks.len())
    }
}

/// Starts a command of the history `mark`, with its messages in a file of `folder`.
fn quiet(command: &mut Command, mark: &str, folder: &Path) -> anyhow::Result<Child> {
    command.env("LAB_MARK", mark).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(folder.join("said"))?);
    command.spawn().context("cannot start it")
}

impl Drop for History {
    fn drop(&mut self) {
        // Repeated, since a scan misses tasks that are created during the scan.
        for _ in 0..100 {
            let pids: Vec<String> = self.all().iter().map(|task| task.pid.to_string()).collect();
            if pids.is_empty() {
                break;
            }
            send("-KILL", &pids);
            let _ = self.colocate.try_wait();
        }
        let _ = self.colocate.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Masks that stand for all PUs.
struct All {
    /// List of all possible PUs.
    possible: String,
    /// Mask of a thread that set all PUs while [`GOES`] was offline.
    set_without: String,
}

/// Runs a history from and to the group `home`. Returns the number of checked threads.
fn history(
    random: &mut Random,
    round: u32,
    [home, group]: [&ControlGroup; 2],
    all: &All,
) -> anyhow::Result<usize> {
    let mut history = History::start(random, round)?;
    let mut was_moved = false;
    let mut was_offline = false;
    let mut offline = None;
    std::thread::sleep(Duration::from_millis(random.below(1_000)));
    for _ in 0..random.below(4) {
        match random.below(5) {
            0 | 1 => {
                was_moved = true;
                history.move_to(group.folder());
            }
            2 => history.move_to(home.folder()),
            3 => group.set("cpuset.cpus", random.pick(&CPUSETS))?,
            _ if offline.is_none() => {
                was_offline = true;
                offline = Some(Offline::take(GOES)?);
            }
            _ => offline = None,
        }
        std::thread::sleep(Duration::from_millis(random.below(1_500)));
    }
    let how = history.end(random)?;
    history.move_to(home.folder());
    // The PU's return changes the effective cpuset, with the effects of a move.
    was_moved |= offline.take().is_some();
    let mut masks = vec![&*all.possible];
    if was_offline {
        masks.push(&all.set_without);
    }
    history.check(&masks, was_moved).with_context(|| {
        format!("ended by {how}, moved: {was_moved}, PU {GOES} was offline: {was_offline}")
    })
}

fn histories(rounds: u32, seed: u64) -> anyhow::Result<()> {
    let mut random = Random::new(seed);
    let possible = text("/sys/devices/system/cpu/possible")?;
    let home = ControlGroup::new("home", &[("cpuset.cpus", &possible)])?;
    // 0 is this process; its children start in the group.
    std::fs::write(home.folder().join("cgroup.procs"), "0")?;
    let all = All { possible, set_without: mask_set_without(GOES)? };
    let group = ControlGroup::new("history", &[("cpuset.cpus", CPUSETS[0])])?;
    let mut threads = 0;
    for round in 0..rounds {
        threads += history(&mut random, round, [&home, &group], &all)
            .with_context(|| format!("round {round}"))?;
    }
    // The groups are removed on drop, and must be empty by then.
    std::fs::write(Path::new(ROOT).join("cgroup.procs"), "0")?;
    ensure!(
        threads > rounds as usize,
        "expected some threads to live, found {threads} in {rounds} histories"
    );
    Ok(())
}

pub fn four(seed: u64) -> anyhow::Result<()> {
    histories(4, seed)
}

pub fn five_hundred(seed: u64) -> anyhow::Result<()> {
    histories(500, seed)
}
