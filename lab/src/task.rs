//! One boot: a machine, a kernel, what it finds there, and what it runs.

use crate::boot::Boot;
use crate::cache::Cache;
use crate::guest::Guest;
use crate::initramfs::Initramfs;
use crate::shape;
use anyhow::Context as _;
use colocate_machine::exact::Exact;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to boot and what to run there.
pub struct Task {
    /// The machine whose topology the guest gets: what `colocate topo --machine` takes.
    pub machine: String,
    /// The kernel.
    pub guest: Guest,
    /// Whether a nanosecond of the guest's time is one instruction. Only then do aarch64's counters
    /// count instructions, and only with one PU are they exact.
    pub icount: bool,
    /// Programs to take along, by name or path.
    pub programs: Vec<String>,
    /// The command's words; run as root.
    pub command: Vec<String>,
    /// When the guest is killed if it has not ended by itself.
    pub limit: Duration,
    /// What the file with the guest's console is called after.
    pub name: String,
}

impl Task {
    /// Boots the guest, passes each line that the command prints to `line`, and returns the command's
    /// status.
    ///
    /// The console's file stays only if the guest failed.
    ///
    /// # Errors
    /// If something is missing here, the machine cannot be booted, or the guest does not end well.
    pub fn run(&self, line: impl FnMut(&[u8])) -> anyhow::Result<i32> {
        let machine = colocate_machine::read::open(&self.machine)?;
        let mut options = shape::options(&machine, self.guest)
            .with_context(|| format!("{}: QEMU cannot be this machine", self.machine))?;
        if self.icount {
            options.extend(["-icount", "shift=0"].map(String::from));
        }
        let cache = Cache::find()?;
        cache.require(&BTreeSet::from(["qemu", self.guest.set()]))?;
        let root = cache.root(self.guest.set());
        let mark = format!("lab-{:x}", std::process::id());
        let init = include_str!("init.sh").replace("@MARK@", &mark);
        let mut initramfs = Initramfs::new(&root, &init)?;
        initramfs.file("lab/command", 0o755, shell_line(&self.command).into());
        initramfs.file("lab/machine.json", 0o644, Exact::new(machine, None).to_json().into());
        self.take_programs(&mut initramfs, &root)?;
        let folder = tempfile::tempdir()?;
        let archive = folder.path().join("initramfs");
        initramfs.write(BufWriter::new(File::create(&archive)?))?;
        let console = std::env::temp_dir().join(format!("colocate-{}-{mark}.console", self.name));
        let status = Boot {
            qemu: &cache.root("qemu"),
            guest: self.guest,
            root: &root,
            options,
            initramfs: &archive,
            mark: &mark,
            limit: self.limit,
            console: &console,
        }
        .run(line)?;
        if status == 0 {
            std::fs::remove_file(&console).with_context(|| console.display().to_string())?;
        }
        Ok(status)
    }

    fn take_programs(&self, initramfs: &mut Initramfs, root: &Path) -> anyhow::Result<()> {
        for name in self.programs.iter().chain(self.command.first()) {
            let arm64 = self.guest.is_arm64();
            let found = if arm64 { for_arm64(name, root) } else { here(name) };
            // What is not found may be one of busybox's.
            let Some(path) = found else { continue };
            let name = path.file_name().context("a program without a name")?;
            let libraries = if arm64 { root } else { Path::new("/") };
            initramfs.program(&name.to_string_lossy(), &path, libraries)?;
        }
        Ok(())
    }
}

/// The program that `name` means on this machine: what was built beside us, else the first in PATH.
fn here(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders = built().into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The aarch64 program that `name` means: what `lab/cross` built, else one of the guest's packages.
fn for_arm64(name: &str, root: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let built = built()?;
    let profile = built.file_name()?;
    let cross = built.parent()?.join("aarch64-unknown-linux-gnu").join(profile);
    let packages = ["usr/bin", "bin", "usr/sbin", "sbin"].map(|folder| root.join(folder));
    let folders = std::iter::once(cross).chain(packages);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The folder that cargo built us in.
fn built() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_path_buf)
}

fn shell_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ") + "\n"
}
