//! One boot: a machine, a kernel, what it finds there, and what it runs.

use crate::boot::Boot;
use crate::cache::Cache;
use crate::console::Console;
use crate::guest::Guest;
use crate::initramfs::Initramfs;
use crate::{golden, shape, tree};
use anyhow::Context as _;
use colocate_machine::Machine;
use colocate_machine::exact::Exact;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a kernel is booted that panics on its way up, or later by an int3. It rewrites its own code while it boots,
/// and also when a feature is used for the first time, and QEMU's emulation gets that wrong once in some hundred times
/// (seen with 10.0.2: an int3 is executed that is not there any more). The emulator is ours and not under test, so a
/// kernel may fail twice.
const BOOTS: u32 = 3;

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
    /// Boots the guest, passes what the command prints to `to` as it comes, and returns the command's
    /// status.
    ///
    /// If `keep` holds for how it ended, or it did not end well, the guest's console stays in a file.
    /// A kernel that panics before its first process begins, or by an int3 of its own, or that hangs, is booted again, three times
    /// in all at most; then the command begins anew.
    ///
    /// # Errors
    /// If something is missing here, the machine cannot be booted, or the guest does not end well.
    pub fn run(
        &self,
        keep: impl Fn(i32) -> bool,
        mut to: impl FnMut(&[u8]),
    ) -> anyhow::Result<i32> {
        let prepared = self.prepare(false)?;
        let begin = format!("{} begin", prepared.mark);
        let (mut console, mut ended) = (Console::default(), Ok(0));
        for boot in 1..=BOOTS {
            console = Console::default();
            ended = prepared.run(&mut console, &mut to);
            let emulation = console.panicked_before(&begin)
                || console.ended_by_int3()
                || console.hangs().is_some();
            if ended.is_ok() || boot == BOOTS || !emulation {
                break;
            }
            eprintln!(
                "lab: the kernel was emulated wrong, and is booted again: {}",
                console.last_line()
            );
        }
        if console.is_empty() || !ended.as_ref().map_or(true, |&status| keep(status)) {
            return ended;
        }
        let name = format!("colocate-{}-{}.console", self.name, std::process::id());
        let path = std::env::temp_dir().join(name);
        console.keep(&path).with_context(|| path.display().to_string())?;
        eprintln!("lab: the guest's console is in {}", path.display());
        ended
    }

    /// Boots the guest with this process's terminal as its console and a shell there.
    ///
    /// # Errors
    /// If something is missing here, the machine cannot be booted, or QEMU fails.
    pub fn shell(&self) -> anyhow::Result<()> {
        self.prepare(true)?.converse()
    }

    fn prepare(&self, interactive: bool) -> anyhow::Result<Boot> {
        let machine = colocate_machine::read::open(&self.machine)?;
        let cannot = || format!("{}: QEMU cannot be this machine", self.machine);
        let mut options = shape::options(&machine, self.guest).with_context(cannot)?;
        let cache = Cache::find()?;
        let checked = cache.require(&BTreeSet::from(["qemu", self.guest.set()]))?;
        let (qemu, root) = (cache.root("qemu"), cache.root(self.guest.set()));
        let properties =
            if self.guest.is_arm64() { tree::properties(&machine) } else { Vec::new() };
        let tree = match properties.as_slice() {
            [] => None,
            some => Some(tree::tree(&qemu, cache.folder(), &options, some).with_context(cannot)?),
        };
        if self.icount {
            options.extend(["-icount", "shift=0"].map(String::from));
        }
        let mark = format!("lab-{:x}", std::process::id());
        let initramfs = self.archive(&root, &mark, machine, interactive)?;
        checked.wait()?;
        let (guest, limit) = (self.guest, self.limit);
        Ok(Boot { qemu, guest, root, options, initramfs, tree, mark, limit })
    }

    /// The guest's file system, in a file without a name.
    fn archive(
        &self,
        root: &Path,
        mark: &str,
        machine: Machine,
        interactive: bool,
    ) -> anyhow::Result<File> {
        let init = include_str!("init.sh").replace("@MARK@", mark);
        let init = init.replace("@OUTPUT@", self.guest.output());
        let mut initramfs = Initramfs::new(root, &init)?;
        initramfs.file("lab/command", 0o755, shell_line(&self.command).into());
        initramfs.file("lab/machine.json", 0o644, Exact::new(machine, None).to_json().into());
        for (name, content) in golden::all()? {
            initramfs.file(Path::new("lab/golden").join(name), 0o644, content);
        }
        if interactive {
            initramfs.file("lab/interactive", 0o644, Vec::new());
        }
        self.take_programs(&mut initramfs, root)?;
        let archive = tempfile::tempfile().context("no temporary file")?;
        initramfs.write(BufWriter::new(&archive))?;
        Ok(archive)
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
