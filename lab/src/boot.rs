//! Boot of a guest: starts QEMU, forwards the command's output, and always ends QEMU.

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

/// Largest read from a pipe of QEMU, in bytes.
const PIECE_BYTES: usize = 16 << 10;
/// Capacity of the queue of pieces. A full queue blocks a guest that floods and bounds memory use.
const WAITING_PIECES: usize = 16;
/// Time between two polls of a process without a pipe.
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
    /// The device tree, in a file that need not have a name. `None`: QEMU's own tree.
    pub tree: Option<File>,
    /// First word of the lines in which `/init` reports the beginning and the status.
    pub mark: String,
    /// Time after which a guest that still runs is killed.
    pub limit: Duration,
}

impl Boot {
    /// Boots, forwards the command's output to `to`, and returns the command's status.
    ///
    /// `console` gets all output of the guest and of QEMU.
    ///
    /// # Errors
    /// If QEMU cannot be started, or the guest ends without a status or is killed at its limit.
    pub fn run(&self, console: &mut Console, mut to: impl FnMut(&[u8])) -> anyhow::Result<i32> {
        let deadline = Instant::now() + self.limit;
        let mut command = self.command()?;
        // The first serial line is the console, mixed with QEMU's own messages. The second carries
        // the command's output alone. `-serial` opens its file anew, so this is no loop.
        command.args(["-serial", "file:/proc/self/fd/2", "-serial", "stdio"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut qemu = Killed::start(&mut command)?;
        let pieces = qemu.pieces()?;
        let mut output = Output::new(&self.mark);
        while let Some((from, piece)) = self.next(&pieces, deadline, console)? {
            console.push(&piece);
            match from {
                OutputStream::Command => output.push(&piece, &mut to),
                OutputStream::Console => {
                    if let Some(why) = console.hangs() {
                        bail!("the guest was killed: one of its CPUs {why}");
                    }
                }
            }
            // The command has ended and all of its output has been read; the rest is not needed.
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
    /// If QEMU cannot be started or reports a failure.
    pub fn converse(&self) -> anyhow::Result<()> {
        let mut command = self.command()?;
        // `mon:` adds the monitor, so that Ctrl-A X ends QEMU.
        command.args(["-serial", "mon:stdio"]);
        let status = Killed::start(&mut command)?.0.wait().context("QEMU cannot be waited for")?;
        if status.success() { Ok(()) } else { bail!("QEMU: {status}") }
    }

    /// The next piece of output, or `None` after QEMU has closed both pipes.
    ///
    /// # Errors
    /// If `deadline` has passed.
    fn next(
        &self,
        pieces: &Receiver<OutputChunk>,
        deadline: Instant,
        console: &Console,
    ) -> anyhow::Result<Option<OutputChunk>> {
        let left = deadline.saturating_duration_since(Instant::now());
        // A guest that floods always has a next piece, even after the deadline.
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
        // Debian packages the BIOS apart from QEMU.
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.qemu.join(data));
        }
        command.args(["-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(&self.options).arg("-kernel").arg(self.root.join("vmlinuz"));
        command.arg("-initrd").arg(path_of(&self.initramfs));
        if let Some(tree) = &self.tree {
            command.arg("-dtb").arg(path_of(tree));
        }
        // panic=-1: a panic reboots at once, which -no-reboot turns into QEMU's end.
        // loglevel=4: errors and worse.
        let append =
            format!("console={} loglevel=4 panic=-1 cgroup_no_v1=all", self.guest.console());
        command.arg("-append").arg(append);
        Ok(command)
    }
}

/// Path by which a child process can open an open file of this process, while this process lives.
///
/// A file without a name need not be removed. If this process is killed while a child starts, the
/// child's open fails and the child ends.
#[must_use]
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Command for a program of the set `qemu`, with the libraries of the set.
///
/// The kernel kills the program when this process ends (setpriv --pdeathsig).
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
    // The set's own loader, since a loader and its libc must have the same version.
    command.args(["--pdeathsig", "KILL"]).arg(qemu.join(loader));
    command.arg("--library-path").arg(std::env::join_paths(libraries)?);
    command.arg(qemu.join("usr/bin").join(name));
    Ok(command)
}

/// Starts a program.
///
/// # Errors
/// If the program is not installed or cannot be run.
pub fn started(command: &mut Command) -> anyhow::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("missing: {program}; run scripts/install test"),
        _ => anyhow!("cannot start {program}: {error}"),
    })
}

/// A process that is killed when its owner is dropped.
pub struct Killed(Child);

/// Source of a piece of output: QEMU's standard error or its standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputStream {
    Console,
    Command,
}

type OutputChunk = (OutputStream, Vec<u8>);

impl Killed {
    /// Starts a process.
    ///
    /// # Errors
    /// If the program is not installed or cannot be run.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        started(command).map(Self)
    }

    /// Waits for the process to end. `None`: the process still runs at `deadline`.
    ///
    /// # Errors
    /// That of waitpid(2).
    pub fn wait(&mut self, deadline: Instant) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            let ended = self.0.try_wait().context("cannot wait for a process")?;
            if ended.is_some() || Instant::now() >= deadline {
                return Ok(ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The process's output, in order of arrival.
    fn pieces(&mut self) -> anyhow::Result<Receiver<OutputChunk>> {
        let (send, pieces) = sync_channel(WAITING_PIECES);
        let output = self.0.stdout.take().context("QEMU without output")?;
        let errors = self.0.stderr.take().context("QEMU without error output")?;
        let console = send.clone();
        // One thread per pipe: a full pipe must not delay the other.
        std::thread::spawn(move || pass_on(output, OutputStream::Command, &send));
        std::thread::spawn(move || pass_on(errors, OutputStream::Console, &console));
        Ok(pieces)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Errors are ignored: the process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pass_on(mut from: impl Read, source: OutputStream, to: &SyncSender<OutputChunk>) {
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
