//! Kernel features that the other cases rely on.

use crate::evidence::{eventually, text};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The newest kernel has sched_ext, and no scheduler is loaded.
pub fn has_sched_ext() -> anyhow::Result<()> {
    let state = text("/sys/kernel/sched_ext/state")?;
    ensure!(state == "disabled", "expected no scheduler of anybody's, found {state}");
    Ok(())
}

/// A control group; its processes are killed and the group is removed on drop.
struct ScopedControlGroup(PathBuf);

impl ScopedControlGroup {
    fn new(name: &str, controller: Option<&str>) -> anyhow::Result<Self> {
        if let Some(controller) = controller {
            let file = "/sys/fs/cgroup/cgroup.subtree_control";
            fs::write(file, format!("+{controller}"))
                .with_context(|| format!("no {controller}"))?;
        }
        let this = Self(PathBuf::from("/sys/fs/cgroup").join(name));
        fs::create_dir(&this.0).with_context(|| this.0.display().to_string())?;
        Ok(this)
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        fs::write(self.0.join(file), value).with_context(|| format!("cannot set {file}"))
    }

    fn says(&self, file: &str, line: &str) -> anyhow::Result<bool> {
        Ok(text(self.0.join(file))?.lines().any(|found| found == line))
    }

    /// Starts a program of busybox in the group.
    fn start(&self, command: &str) -> anyhow::Result<Child> {
        // The shell enters the group first, so the program is in the group from its start.
        let script = format!("echo $$ >{}/cgroup.procs && exec {command}", self.0.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().context("cannot start sh")
    }
}

impl Drop for ScopedControlGroup {
    fn drop(&mut self) {
        // A group that remains fails the next case of the same name, in `new`.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let _ =
            eventually("the group is empty", || Ok(text(self.0.join("cgroup.procs"))?.is_empty()));
        let _ = fs::remove_dir(&self.0);
    }
}

/// CPU time of a process, in clock ticks: fields 14 and 15 of `/proc/PID/stat` (proc(5)).
fn ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = text(format!("/proc/{pid}/stat"))?;
    // The first field after the name is field 3.
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

/// Waits until a process uses CPU time.
fn await_run(pid: u32) -> anyhow::Result<()> {
    let before = ticks(pid)?;
    eventually("the group runs", || Ok(ticks(pid)? > before))
}

/// A frozen group uses no CPU time, and a thawed group runs again.
pub fn freezes_groups() -> anyhow::Result<()> {
    let group = ScopedControlGroup::new("lab-frozen", None)?;
    let mut child = group.start("sh -c 'while :; do :; done'")?;
    await_run(child.id())?;
    group.set("cgroup.freeze", "1")?;
    eventually("the group is frozen", || group.says("cgroup.events", "frozen 1"))?;
    // The kernel reports `frozen 1` a moment before the process leaves its CPU. The child would use
    // a tick within ten ticks of this process.
    eventually("the group has stopped", || {
        let frozen = ticks(child.id())?;
        let own = ticks(std::process::id())?;
        eventually("we run", || Ok(ticks(std::process::id())? > own + 10))?;
        Ok(ticks(child.id())? == frozen)
    })?;
    group.set("cgroup.freeze", "0")?;
    await_run(child.id())?;
    drop(group);
    child.wait()?;
    Ok(())
}

/// Processes of a group with a cpuset are confined to the cpuset.
pub fn confines_groups() -> anyhow::Result<()> {
    let group = ScopedControlGroup::new("lab-confined", Some("cpuset"))?;
    let last = text("/sys/devices/system/cpu/online")?;
    let last = last.rsplit([',', '-']).next().unwrap_or("0").to_owned();
    group.set("cpuset.cpus", &last)?;
    let mut child = group.start("sleep 1000")?;
    let status = format!("/proc/{}/status", child.id());
    eventually("the child has moved", || {
        let text = text(&status)?;
        let mut words = text.lines().filter_map(|line| line.split_once(":\t"));
        Ok(words.any(|(key, value)| key == "Cpus_allowed_list" && value == last))
    })?;
    drop(group);
    child.wait()?;
    Ok(())
}

/// The kernel kills a process that exceeds the memory limit of its group.
pub fn limits_groups() -> anyhow::Result<()> {
    let group = ScopedControlGroup::new("lab-limited", Some("memory"))?;
    group.set("memory.max", "16M")?;
    let ended = group.start("dd if=/dev/zero of=/dev/null bs=64M count=1")?.wait()?;
    ensure!(!ended.success(), "expected the kernel to end what takes 64 MiB of 16, found {ended}");
    ensure!(
        group.says("memory.events", "oom_kill 1")?,
        "expected one kill, found {}",
        text(group.0.join("memory.events"))?
    );
    Ok(())
}
