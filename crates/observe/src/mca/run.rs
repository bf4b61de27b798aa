//! A run of `llvm-mca`: its process and its JSON.

use super::McaError;
use serde::Deserialize;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Output of `llvm-mca --json`, the fields used here. The same in LLVM 14 and 19.
#[derive(Debug, Deserialize)]
pub struct McaReport {
    /// Regions of the input that hold instructions.
    #[serde(rename = "CodeRegions")]
    pub regions: Vec<McaRegion>,
    /// Processor.
    #[serde(rename = "TargetInfo")]
    pub target: TargetInfo,
}

/// Processor of a report.
#[derive(Debug, Deserialize)]
pub struct TargetInfo {
    /// Names of ports and other resources, each unit by itself.
    #[serde(rename = "Resources")]
    pub resources: Vec<String>,
}

/// A region: a block of code.
#[derive(Debug, Deserialize)]
pub struct McaRegion {
    /// Name in the marks of the input.
    #[serde(rename = "Name")]
    pub name: String,
    /// Text of each instruction.
    #[serde(rename = "Instructions")]
    pub instructions: Vec<String>,
    #[serde(rename = "InstructionInfoView", default)]
    info: InfoView,
    #[serde(rename = "ResourcePressureView", default)]
    pressure: PressureView,
    #[serde(rename = "SummaryView", default)]
    /// All 0 without a simulation.
    pub summary: McaSummary,
}

#[derive(Debug, Default, Deserialize)]
struct InfoView {
    #[serde(rename = "InstructionList")]
    list: Vec<Info>,
}

#[derive(Debug, Deserialize)]
struct Info {
    #[serde(rename = "NumMicroOpcodes")]
    slots: u32,
}

#[derive(Debug, Default, Deserialize)]
struct PressureView {
    #[serde(rename = "ResourcePressureInfo")]
    list: Vec<Pressure>,
}

#[derive(Debug, Deserialize)]
struct Pressure {
    #[serde(rename = "InstructionIndex")]
    instruction: usize,
    #[serde(rename = "ResourceIndex")]
    resource: usize,
    #[serde(rename = "ResourceUsage")]
    cycles: f64,
}

/// Simulation of a region.
#[derive(Debug, Default, Deserialize)]
pub struct McaSummary {
    /// Simulated cycles from the first dispatch to the last retirement.
    #[serde(rename = "TotalCycles")]
    pub cycles: u64,
    /// Slots per cycle.
    #[serde(rename = "DispatchWidth")]
    pub width: u32,
}

impl McaRegion {
    /// Slots of each instruction.
    pub fn slots(&self) -> Vec<u32> {
        self.info.list.iter().map(|info| info.slots).collect()
    }

    /// Cycles of each resource taken by instruction `at`; unused resources are missing.
    pub fn pressure(&self, at: usize) -> Vec<(usize, f64)> {
        let entries = self.pressure.list.iter().filter(|entry| entry.instruction == at);
        entries.map(|entry| (entry.resource, entry.cycles)).filter(|(_, c)| *c > 0.0).collect()
    }
}

/// Runs `program` with `arguments` on the assembly text `input`; returns its output.
pub fn text(program: &Path, arguments: &[String], input: &str) -> Result<String, McaError> {
    let output = with_input(program, arguments, input)
        .map_err(|source| McaError::Start(program.to_owned(), source))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // LLVM only warns of an unknown processor, and goes on with a generic one.
    if let Some(line) = errors.lines().find(|line| line.contains("is not a recognized processor")) {
        return Err(McaError::UnknownCpu(line.split('\'').nth(1).unwrap_or(line).into()));
    }
    if !output.status.success() {
        let complaint =
            errors.lines().find(|line| line.contains("error: ")).or(errors.lines().next());
        let found = complaint.unwrap_or("no message").trim();
        return Err(McaError::Refused(program.to_owned(), found.to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As [`text`] with `--json`, parsed.
pub fn report(program: &Path, arguments: &[String], input: &str) -> Result<McaReport, McaError> {
    let arguments: Vec<String> = ["--json".to_owned()].iter().chain(arguments).cloned().collect();
    let printed = text(program, &arguments, input)?;
    serde_json::from_str(&printed).map_err(|source| McaError::Printed(program.to_owned(), source))
}

/// Runs `program`, writing `input` while reading. A pipe holds some tens of kilobytes, so writing
/// everything before reading can deadlock.
fn with_input(program: &Path, arguments: &[String], input: &str) -> io::Result<Output> {
    let piped = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    // All three are pipes, so output has to be read while input is written.
    let mut child = piped?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that exits early reports the reason itself, so the write error is dropped.
            stdin.map(|mut stdin| stdin.write_all(input.as_bytes()))
        });
        child.wait_with_output()
    })
}
