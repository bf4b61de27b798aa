//! Control groups (version 2) and offline PUs for cases.

use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group; removed on drop if it is empty.
pub struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Creates a group with settings, as (file, value).
    ///
    /// # Errors
    /// If the kernel refuses the group or a value.
    pub fn new(name: &str, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        // A child group has the files of enabled controllers only.
        fs::write(format!("{ROOT}/cgroup.subtree_control"), "+cpuset +cpu")
            .context("cgroup.subtree_control")?;
        let folder = PathBuf::from(format!("{ROOT}/{name}"));
        fs::create_dir(&folder).with_context(|| name.to_owned())?;
        let group = Self { folder };
        settings.iter().try_for_each(|(file, value)| group.set(file, value))?;
        Ok(group)
    }

    /// Writes a file of the group.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        fs::write(self.folder.join(file), value).with_context(|| format!("{file}: {value}"))
    }

    /// The group's folder in `/sys/fs/cgroup`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Text of a file of the group.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn text(&self, file: &str) -> anyhow::Result<String> {
        crate::evidence::text(self.folder.join(file))
    }

    /// Words before a command that start the command in the group.
    #[must_use]
    pub fn wrapper(&self) -> [String; 4] {
        // 0 stands for the shell itself, which then executes the command.
        let enter = format!("echo 0 > {}/cgroup.procs; exec \"$@\"", self.folder.display());
        ["sh", "-c", &enter, "sh"].map(String::from)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A killed process stays in its group for a moment, and rmdir fails with EBUSY.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// A PU, offline until this is dropped.
pub struct Offline(u32);

impl Offline {
    /// Takes a PU offline.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take(pu: u32) -> anyhow::Result<Self> {
        write(pu, "0")?;
        Ok(Self(pu))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // Cases check the PU's return themselves.
        let _ = write(self.0, "1");
    }
}

fn write(pu: u32, online: &str) -> anyhow::Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{pu}/online");
    fs::write(&path, online).context(path)
}
