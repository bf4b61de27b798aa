//! The guests have what the other cases build on.

use crate::evidence::{eventually, text};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The newest kernel can be given a scheduler.
pub fn has_sched_ext() -> anyhow::Result<()> {
    let state = text("/sys/kernel/sched_ext/state")?;
    ensure!(state == "disabled", "expected no scheduler of anybody's, found {state}");
    Ok(())
}

/// A control group that goes with its value.
struct Group(PathBuf);

impl Group {
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
        let script = format!("echo $$ >{}/cgroup.procs && exec {command}", self.0.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().context("cannot start sh")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is left is seen only by the next case that uses the name.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let empty = || Ok(text(self.0.join("cgroup.procs"))?.is_empty());
        let _ = eventually("the group is empty", empty);
        let _ = fs::remove_dir(&self.0);
    }
}

/// The clock ticks that a process has used: fields 14 and 15 of its `stat`.
fn ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = text(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

/// A frozen group uses no processor, and a thawed one does again.
pub fn freezes_groups() -> anyhow::Result<()> {
    let group = Group::new("lab-frozen", None)?;
    let mut child = group.start("sh -c 'while :; do :; done'")?;
    let runs = || {
        let before = ticks(child.id())?;
        eventually("the group runs", || Ok(ticks(child.id())? > before))
    };
    runs()?;
    group.set("cgroup.freeze", "1")?;
    eventually("the group is frozen", || group.says("cgroup.events", "frozen 1"))?;
    // The kernel says so a moment before the process is off its CPU. Ten ticks of our own are time
    // enough for it to use one.
    eventually("the group has stopped", || {
        let (frozen, own) = (ticks(child.id())?, ticks(std::process::id())?);
        eventually("we run", || Ok(ticks(std::process::id())? > own + 10))?;
        Ok(ticks(child.id())? == frozen)
    })?;
    group.set("cgroup.freeze", "0")?;
    runs()?;
    drop(group);
    child.wait()?;
    Ok(())
}

/// A group with a cpuset holds its processes there.
pub fn confines_groups() -> anyhow::Result<()> {
    let group = Group::new("lab-confined", Some("cpuset"))?;
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

/// A group with a memory limit loses the process that goes beyond it.
pub fn limits_groups() -> anyhow::Result<()> {
    let group = Group::new("lab-limited", Some("memory"))?;
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
