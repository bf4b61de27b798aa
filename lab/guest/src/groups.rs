//! Control groups (version 2) that cases make.

use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group; removed when dropped, if it is empty by then.
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes one with these settings, file by file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(name: &str, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        fs::write(format!("{ROOT}/cgroup.subtree_control"), "+cpuset +cpu")
            .context("cgroup.subtree_control")?;
        let folder = PathBuf::from(format!("{ROOT}/{name}"));
        fs::create_dir(&folder).with_context(|| name.to_owned())?;
        let group = Self { folder };
        settings.iter().try_for_each(|(file, value)| group.set(file, value))?;
        Ok(group)
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        fs::write(self.folder.join(file), value).with_context(|| format!("{file}: {value}"))
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The text of one of its files.
    ///
    /// # Errors
    /// If there is none.
    pub fn text(&self, file: &str) -> anyhow::Result<String> {
        crate::evidence::text(self.folder.join(file))
    }

    /// Words that start a program in it.
    #[must_use]
    pub fn wrapper(&self) -> [String; 4] {
        let enter = format!("echo 0 > {}/cgroup.procs; exec \"$@\"", self.folder.display());
        ["sh", "-c", &enter, "sh"].map(String::from)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What has just been killed is still in it for a moment.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// A PU that is offline until this is dropped.
pub struct Offline(u32);

impl Offline {
    /// Takes it offline.
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
        // That it is back is for the cases to see.
        let _ = write(self.0, "1");
    }
}

fn write(pu: u32, online: &str) -> anyhow::Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{pu}/online");
    fs::write(&path, online).context(path)
}
