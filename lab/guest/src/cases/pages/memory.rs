//! Programs whose memory the cases move.

use crate::evidence::{colocate, eventually, text};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// The program `memory`, killed on drop.
pub(super) struct MemoryProgram {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Addresses of the regions, as START-END.
    pub regions: Vec<String>,
}

impl MemoryProgram {
    /// Starts the program with regions on node 0.
    pub fn on_node_0(regions: &[&str]) -> anyhow::Result<Self> {
        Self::of_user(regions, 0)
    }

    pub fn of_user(regions: &[&str], user: u32) -> anyhow::Result<Self> {
        let cpus = text("/sys/devices/system/node/node0/cpulist")?;
        let mut command = Command::new("lab-guest");
        command.args(["--program", "memory", &cpus]).args(regions).uid(user).gid(user);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no pipe")?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut this = Self { child, input, output, regions: Vec::new() };
        for _ in regions {
            let region = this.line()?;
            this.regions.push(region);
        }
        Ok(this)
    }

    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "expected a line, found that the program has ended");
        Ok(line.trim_end().into())
    }

    pub fn request(&mut self, line: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{line}")?;
        self.line()
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Runs `colocate pages move` of the first region to `to`.
    pub fn move_to(&self, to: &str, options: &[&str]) -> anyhow::Result<Output> {
        let pid = self.pid();
        colocate(
            &[&["pages", "move", &pid, "--range", &self.regions[0], "--to", to, "--json"], options]
                .concat(),
        )
    }

    /// Report of a successful `colocate pages move` of the first region to `to`.
    pub fn moved_to(&self, to: &str, options: &[&str]) -> anyhow::Result<Value> {
        let output = self.move_to(to, options)?;
        ensure!(output.status.success(), "{}: {}", output.status, said(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Starts `colocate pages move` of the first region to node 1, and waits for the first pages.
    pub fn on_the_move(&self) -> anyhow::Result<Child> {
        let mut colocate = Command::new("colocate");
        colocate.args([
            "pages",
            "move",
            &self.pid(),
            "--range",
            &self.regions[0],
            "--to",
            "1",
            "--json",
        ]);
        let child = colocate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        eventually("the first pages to be moved", || Ok(self.numa_maps(0)?.contains(" N1=")))?;
        Ok(child)
    }

    /// Checks the pages of region `place` by node, as the program itself gets them from the kernel.
    pub fn ensure_on(&mut self, place: usize, expected: &str) -> anyhow::Result<()> {
        let found = self.request(&format!("where {place}"))?;
        ensure!(found == expected, "region {place}: expected {expected}, found {found}");
        Ok(())
    }

    /// Line of numa_maps of region `place`.
    pub fn numa_maps(&self, place: usize) -> anyhow::Result<String> {
        let region = &self.regions[place];
        let line = numa_maps(self.pid(), region)?;
        line.with_context(|| format!("numa_maps without {region}"))
    }

    /// Address and policy of every mapping, the first two words of numa_maps.
    pub fn policies(&self) -> anyhow::Result<Vec<String>> {
        let all = text(format!("/proc/{}/numa_maps", self.pid()))?;
        let words = all.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>());
        Ok(words.map(|words| words.join(" ")).collect())
    }

    /// Bytes in transparent huge pages, summed over mappings.
    pub fn huge(&self) -> anyhow::Result<u64> {
        let smaps = text(format!("/proc/{}/smaps", self.pid()))?;
        let lines = smaps.lines().filter_map(|line| line.strip_prefix("AnonHugePages:"));
        let sizes = lines.map(|line| line.trim().trim_end_matches(" kB").parse::<u64>());
        Ok(sizes.sum::<Result<u64, _>>()? << 10)
    }
}

impl Drop for MemoryProgram {
    fn drop(&mut self) {
        // Errors are ignored: the process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that leaves node 3 with free memory but without free pieces of 2 MiB; killed on drop.
pub(super) struct Filler(Child);

impl Filler {
    pub fn on_node_3() -> anyhow::Result<Self> {
        let cpus = text("/sys/devices/system/node/node3/cpulist")?;
        let mut command = Command::new("lab-guest");
        command.args(["--program", "shreds", "3", &cpus]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut this = Self(child);
        let mut line = String::new();
        BufReader::new(this.0.stdout.take().context("no pipe")?).read_line(&mut line)?;
        ensure!(line == "shredded\n", "expected the filler to be done, found {line:?}");
        Ok(this)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Line of numa_maps of a process's region, given as START-END.
pub(super) fn numa_maps(pid: impl Display, region: &str) -> anyhow::Result<Option<String>> {
    let start = region.split('-').next().unwrap_or_default();
    let all = text(format!("/proc/{pid}/numa_maps"))?;
    Ok(all.lines().find(|line| line.starts_with(start)).map(String::from))
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().into()
}
