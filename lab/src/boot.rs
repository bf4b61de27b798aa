//! Boots a guest, passes on what its program prints, and always ends it.

use crate::console::Console;
use crate::guest::Guest;
use crate::output::Output;
use anyhow::{Context as _, anyhow, bail};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How much is read at once, and how many of these may be queued: a guest that floods is slowed down and does not fill our
/// memory.
const PIECE_BYTES: usize = 16 << 10;
const WAITING_PIECES: usize = 16;
/// How often a process without a pipe is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A guest that is ready to be booted.
pub struct Boot {
    /// The unpacked packages of QEMU.
    pub qemu: PathBuf,
    /// The kernel to boot.
    pub guest: Guest,
    /// The unpacked packages that hold that kernel.
    pub root: PathBuf,
    /// QEMU's options for the topology.
    pub options: Vec<String>,
    /// The guest's file system, in a file that need not have a name.
    pub initramfs: File,
    /// The device tree that takes the place of QEMU's own, likewise.
    pub tree: Option<File>,
    /// What begins the line by which `/init` reports.
    pub mark: String,
    /// When the guest is killed if it has not ended by itself.
    pub limit: Duration,
}

impl Boot {
    /// Boots, passes what the command prints to `to` as it comes, and returns the command's status.
    ///
    /// Everything that the guest and QEMU write goes to `console` too.
    ///
    /// # Errors
    /// If QEMU cannot be started, or the guest ends without a status or is killed at its limit.
    pub fn run(&self, console: &mut Console, mut to: impl FnMut(&[u8])) -> anyhow::Result<i32> {
        let deadline = Instant::now() + self.limit;
        let mut command = self.command()?;
        // The first serial line is the console, beside QEMU's own messages; the second one is for the command's output
        // alone. `-serial` opens its file anew, so this is no loop.
        command.args(["-serial", "file:/proc/self/fd/2", "-serial", "stdio"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut qemu = Killed::start(&mut command)?;
        let pieces = qemu.pieces()?;
        let mut output = Output::new(&self.mark);
        while let Some((from, piece)) = self.next(&pieces, deadline, console)? {
            console.push(&piece);
            match from {
                Source::Command => output.push(&piece, &mut to),
                Source::Console => {
                    if let Some(why) = console.hangs() {
                        bail!("the guest was killed: one of its CPUs {why}");
                    }
                }
            }
            // The command has ended and all of its output has been read: the rest does not matter.
            if let Some(status) = output.status() {
                return Ok(status);
            }
        }
        let status = qemu.wait(deadline)?;
        let status = status.map_or("closed its output".into(), |status| status.to_string());
        bail!(
            "the guest ended without a status (QEMU: {status}); its console ends with: {}",
            console.last_line()
        )
    }

    /// Boots with this process's terminal as the guest's console, until the guest ends.
    ///
    /// # Errors
    /// If QEMU cannot be started or says that it failed.
    pub fn converse(&self) -> anyhow::Result<()> {
        let mut command = self.command()?;
        command.args(["-serial", "mon:stdio"]);
        let status = Killed::start(&mut command)?.0.wait().context("QEMU cannot be waited for")?;
        if status.success() { Ok(()) } else { bail!("QEMU: {status}") }
    }

    /// What came next, or `None` when nothing more can come.
    fn next(
        &self,
        pieces: &Receiver<Piece>,
        deadline: Instant,
        console: &Console,
    ) -> anyhow::Result<Option<Piece>> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A flood always has a next piece, also after the deadline.
        let next =
            if left.is_zero() { Err(RecvTimeoutError::Timeout) } else { pieces.recv_timeout(left) };
        match next {
            Ok(piece) => Ok(Some(piece)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!(
                "the guest was killed: it had not ended after {} s; its console ends with: {}",
                self.limit.as_secs(),
                console.last_line()
            ),
        }
    }

    fn command(&self) -> anyhow::Result<Command> {
        let arch = if self.guest.is_arm64() { "aarch64" } else { "x86_64" };
        let mut command = tool(&self.qemu, &format!("qemu-system-{arch}"))?;
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.qemu.join(data));
        }
        command.args(["-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(&self.options).arg("-kernel").arg(self.root.join("vmlinuz"));
        command.arg("-initrd").arg(path_of(&self.initramfs));
        if let Some(tree) = &self.tree {
            command.arg("-dtb").arg(path_of(tree));
        }
        // panic=-1: the guest ends at once. loglevel=4: errors and worse.
        let append =
            format!("console={} loglevel=4 panic=-1 cgroup_no_v1=all", self.guest.console());
        command.arg("-append").arg(append);
        Ok(command)
    }
}

/// A path by which a child can open one of our open files for as long as we are there.
///
/// A file without a name need not be removed. A child that was started at the moment at which we were killed finds nothing,
/// and ends.
#[must_use]
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// A program of the set `qemu`, run with the libraries of that set, killed by the kernel if we end.
///
/// # Errors
/// If the set's path has a colon in it.
pub fn tool(qemu: &Path, name: &str) -> anyhow::Result<Command> {
    let host = std::env::consts::ARCH;
    let loader = match host {
        "aarch64" => "lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
        _ => "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    };
    let libraries =
        ["lib", "usr/lib"].map(|folder| qemu.join(folder).join(format!("{host}-linux-gnu")));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(qemu.join(loader));
    command.arg("--library-path").arg(std::env::join_paths(libraries)?);
    command.arg(qemu.join("usr/bin").join(name));
    Ok(command)
}

/// Starts a program.
///
/// # Errors
/// If it is not there or cannot be run.
pub fn started(command: &mut Command) -> anyhow::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("missing: {program}; run scripts/install test"),
        _ => anyhow!("cannot start {program}: {error}"),
    })
}

/// A process that does not outlive its owner.
pub struct Killed(Child);

/// Where a piece of output comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Console,
    Command,
}

type Piece = (Source, Vec<u8>);

impl Killed {
    /// Starts it.
    ///
    /// # Errors
    /// If the program is not there or cannot be run.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        started(command).map(Self)
    }

    /// Waits for its end, not beyond `deadline`: then it is `None`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&mut self, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            let ended = self.0.try_wait().context("cannot wait for a process")?;
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Everything that it writes, in the order in which it comes.
    fn pieces(&mut self) -> anyhow::Result<Receiver<Piece>> {
        let (send, pieces) = sync_channel(WAITING_PIECES);
        let output = self.0.stdout.take().context("QEMU without output")?;
        let errors = self.0.stderr.take().context("QEMU without error output")?;
        let console = send.clone();
        std::thread::spawn(move || pass_on(output, Source::Command, &send));
        std::thread::spawn(move || pass_on(errors, Source::Console, &console));
        Ok(pieces)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself; then both fail, as they should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pass_on(mut from: impl Read, source: Source, to: &SyncSender<Piece>) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(length) if to.send((source, piece[..length].to_vec())).is_ok() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}
