//! Boots a guest, hands out what its program prints, and always ends it.

use crate::guest::Guest;
use anyhow::{Context as _, bail};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A guest that is ready to be booted.
pub struct Boot<'a> {
    /// The unpacked packages of QEMU.
    pub qemu: &'a Path,
    /// The kernel to boot.
    pub guest: Guest,
    /// The unpacked packages that hold that kernel.
    pub root: &'a Path,
    /// QEMU's options for the topology.
    pub options: Vec<String>,
    /// The guest's file system.
    pub initramfs: &'a Path,
    /// The word that begins the lines by which `/init` reports.
    pub mark: &'a str,
    /// When the guest is killed if it has not ended by itself.
    pub limit: Duration,
    /// Where everything goes that the guest writes on its serial line.
    pub console: &'a Path,
}

impl Boot<'_> {
    /// Boots, passes each line that the command prints to `line`, and returns the command's status.
    ///
    /// # Errors
    /// If QEMU cannot be started, or the guest ends without a status or is killed at its limit.
    pub fn run(&self, mut line: impl FnMut(&[u8])) -> anyhow::Result<i32> {
        let mut console = self.console_file()?;
        let mut command = self.command()?;
        // QEMU's own words belong beside the guest's last ones.
        command.stderr(console.try_clone()?);
        let mut qemu = Killed(command.spawn().context("cannot start QEMU")?);
        let output = qemu.0.stdout.take().context("QEMU without output")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for read in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if send.send(read).is_err() {
                    return;
                }
            }
        });
        let mut reading = Reading { mark: self.mark, begun: false, status: None, held: None };
        let mut last = Vec::new();
        let deadline = Instant::now() + self.limit;
        while let Some(read) = self.next(&lines, deadline, &last)? {
            console.write_all(&read)?;
            console.write_all(b"\n")?;
            reading.take(&read, &mut line);
            if !read.is_empty() {
                last = read;
            }
        }
        let status = qemu.0.wait().context("QEMU cannot be waited for")?;
        reading.status.with_context(|| {
            format!("the guest ended without a status (QEMU: {status}); its console is in {}; it ends with: {}",
                self.console.display(), String::from_utf8_lossy(&last).trim())
        })
    }

    /// The guest's next line, or `None` at its end.
    fn next(
        &self,
        lines: &Receiver<Vec<u8>>,
        deadline: Instant,
        last: &[u8],
    ) -> anyhow::Result<Option<Vec<u8>>> {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!(
                "the guest was killed: it had not ended after {} s; its console is in {}; it ends with: {}",
                self.limit.as_secs(),
                self.console.display(),
                String::from_utf8_lossy(last).trim()
            ),
        }
    }

    fn console_file(&self) -> anyhow::Result<File> {
        let mut options = File::options();
        options.create(true).append(true);
        options.open(self.console).with_context(|| self.console.display().to_string())
    }

    fn command(&self) -> anyhow::Result<Command> {
        let arch = if self.guest.is_arm64() { "aarch64" } else { "x86_64" };
        let host = std::env::consts::ARCH;
        let loader = match host {
            "aarch64" => "lib/aarch64-linux-gnu/ld-linux-aarch64.so.1",
            _ => "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        };
        let libraries = ["lib", "usr/lib"]
            .map(|folder| self.qemu.join(folder).join(format!("{host}-linux-gnu")));
        // setpriv: whatever becomes of us, QEMU does not stay behind.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(self.qemu.join(loader));
        command.arg("--library-path").arg(std::env::join_paths(libraries)?);
        command.arg(self.qemu.join(format!("usr/bin/qemu-system-{arch}")));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.qemu.join(data));
        }
        command.args(["-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot"]);
        command.args(["-serial", "stdio"]).args(&self.options);
        command.arg("-kernel").arg(self.root.join("vmlinuz")).arg("-initrd").arg(self.initramfs);
        // loglevel=4: errors and worse, so that a program's lines are not torn by the kernel's.
        let append =
            format!("console={} loglevel=4 panic=-1 cgroup_no_v1=all", self.guest.console());
        command.arg("-append").arg(append);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }
}

/// A process that does not outlive its owner.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself; then both fail, as they should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What has been understood of the guest's lines.
struct Reading<'a> {
    mark: &'a str,
    begun: bool,
    status: Option<i32>,
    /// The line before the mark at the end is `/init`'s own; so each line waits for the next one.
    held: Option<Vec<u8>>,
}

impl Reading<'_> {
    fn take(&mut self, read: &[u8], line: &mut impl FnMut(&[u8])) {
        let told = read.strip_prefix(self.mark.as_bytes());
        match told.map(|told| String::from_utf8_lossy(told).trim().to_owned()) {
            Some(told) if told == "begin" => self.begun = true,
            Some(told) => {
                self.status = told.strip_prefix("end ").and_then(|status| status.parse().ok());
                // What a program printed without a line's end has got one from /init.
                if let Some(held) = self.held.take().filter(|held| !held.is_empty()) {
                    line(&held);
                }
            }
            None if self.begun && self.status.is_none() => {
                if let Some(held) = self.held.replace(read.to_vec()) {
                    line(&held);
                }
            }
            None => {}
        }
    }
}
