//! One boot: a machine, a kernel, a file system and a command.

use crate::boot::Boot;
use crate::cache::CacheFolder;
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

/// Attempts to boot a kernel that panics before `/init`, panics by an int3, or hangs.
///
/// A kernel patches its own code at boot and at the first use of a feature. QEMU's emulation gets
/// this wrong about once in some hundred boots (seen with 10.0.2: a removed int3 is executed). The
/// emulator is not under test, so a kernel may fail twice.
const BOOTS: u32 = 3;

/// Guest to boot and command to run in the guest.
pub struct GuestCommand {
    /// The machine whose topology the guest gets, as in `colocate topo --machine`.
    pub machine: String,
    /// The kernel.
    pub guest: Guest,
    /// True if a nanosecond of guest time is one instruction (QEMU -icount shift=0). aarch64's
    /// counters count instructions only then, and are exact only with one PU.
    pub icount: bool,
    /// Programs to copy into the guest, by name or path.
    pub programs: Vec<String>,
    /// The command's words; run as root.
    pub command: Vec<String>,
    /// Time after which a guest that still runs is killed.
    pub limit: Duration,
    /// Part of the name of the file with the guest's console.
    pub name: String,
}

impl GuestCommand {
    /// Boots the guest, forwards the command's output to `to` as it arrives, and returns the
    /// command's status.
    ///
    /// The guest's console is kept in a file if `keep` is true for the status, or on an error. A
    /// kernel is booted again, and the command restarted, as [`BOOTS`] says.
    ///
    /// # Errors
    /// If a program or package is missing, QEMU cannot be the machine, or the guest fails.
    pub fn run(
        &self,
        keep: impl Fn(i32) -> bool,
        mut to: impl FnMut(&[u8]),
    ) -> anyhow::Result<i32> {
        let prepared = self.prepare(false)?;
        let begin = format!("{} begin", prepared.mark);
        let mut console = Console::default();
        let mut ended = Ok(0);
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
        // Without output there is nothing to keep.
        if console.is_empty() || !ended.as_ref().map_or(true, |&status| keep(status)) {
            return ended;
        }
        let name = format!("colocate-{}-{}.console", self.name, std::process::id());
        let path = std::env::temp_dir().join(name);
        console.keep(&path).with_context(|| path.display().to_string())?;
        eprintln!("lab: the guest's console is in {}", path.display());
        ended
    }

    /// Boots the guest with a shell, and this process's terminal as its console.
    ///
    /// # Errors
    /// If a program or package is missing, QEMU cannot be the machine, or QEMU fails.
    pub fn shell(&self) -> anyhow::Result<()> {
        self.prepare(true)?.converse()
    }

    fn prepare(&self, interactive: bool) -> anyhow::Result<Boot> {
        let machine = colocate_machine::read::open(&self.machine)?;
        let mut options =
            shape::options(&machine, self.guest).with_context(|| self.impossible())?;
        let cache = CacheFolder::find()?;
        let checked = cache.require(&BTreeSet::from(["qemu", self.guest.set()]))?;
        let qemu = cache.root("qemu");
        let root = cache.root(self.guest.set());
        let properties =
            if self.guest.is_arm64() { tree::properties(&machine) } else { Vec::new() };
        let tree = match properties.as_slice() {
            [] => None,
            some => Some(
                tree::tree(&qemu, cache.folder(), &options, some)
                    .with_context(|| self.impossible())?,
            ),
        };
        if self.icount {
            options.extend(["-icount", "shift=0"].map(String::from));
        }
        // A word that no program prints by chance.
        let mark = format!("lab-{:x}", std::process::id());
        let initramfs = self.archive(&root, &mark, machine, interactive)?;
        // The check of the hashes ran parallel to the above, and ends before the boot.
        checked.wait()?;
        let Self { guest, limit, .. } = *self;
        Ok(Boot { qemu, guest, root, options, initramfs, tree, mark, limit })
    }

    fn impossible(&self) -> String {
        format!("{}: QEMU cannot be this machine", self.machine)
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
            // A name that is not found may be an applet of busybox.
            let Some(path) = found else { continue };
            let name = path.file_name().context("a program without a name")?;
            let libraries = if arm64 { root } else { Path::new("/") };
            initramfs.program(&name.to_string_lossy(), &path, libraries)?;
        }
        Ok(())
    }
}

/// Path of the host's program `name`: beside this program, else the first in PATH.
fn here(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders = built().into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Path of the aarch64 program `name`: built by `lab/cross`, else from the guest's packages.
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

/// The folder of this program, cargo's output folder.
fn built() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_path_buf)
}

fn shell_line(words: &[String]) -> String {
    // Single-quoted words for sh.
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ") + "\n"
}
