//! Fast and slow cores of the guest: from the kernel's capacities, else from measurements that were
//! never made.

use super::{PA, Programs};
use crate::cases::undo::Before;
use crate::evidence::{list, online, printed, text};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

const CPUS: &str = "/sys/devices/system/cpu";
/// Folder and file of an invented measurement.
const MADE_UP: &str = "/tmp/made-up";
const MACHINE: &str = "/tmp/made-up.json";

/// Cores of two kinds.
#[derive(Clone)]
pub struct Kinds {
    /// PUs of each core, by the kernel's numbers; fast cores first.
    cores: Vec<Vec<u32>>,
    /// Number of fast cores.
    pub fast: usize,
    /// Wrapper of `colocate` with the invented measurement; empty if the kernel reports the kinds.
    pub wrapper: Vec<String>,
}

impl Kinds {
    /// Kinds of this guest. If the kernel reports equal capacities, a measurement makes the second core of
    /// every package fast: the first core has CPU 0, which cannot go offline on x86.
    pub fn here() -> anyhow::Result<Self> {
        let capacities = capacities()?;
        let most = capacities.values().flatten().max().copied();
        if capacities.values().any(|capacity| *capacity != most) {
            let (fast, slow): (Vec<_>, Vec<_>) =
                cores()?.into_iter().partition(|core| core.iter().all(|pu| capacities[pu] == most));
            return Ok(Self {
                fast: fast.len(),
                cores: [fast, slow].concat(),
                wrapper: Vec::new(),
            });
        }
        let mut packages: BTreeMap<String, usize> = BTreeMap::new();
        let mut fast = Vec::new();
        let mut slow = Vec::new();
        for core in cores()? {
            let package = text(format!("{CPUS}/cpu{}/topology/package_cpus_list", core[0]))?;
            let place = packages.entry(package).or_default();
            if *place == 1 {
                fast.push(core)
            } else {
                slow.push(core)
            }
            *place += 1;
        }
        let wrapper = ["env".to_owned(), format!("XDG_STATE_HOME={MADE_UP}")].to_vec();
        let machine = made_up(serde_json::from_str(&printed(&["topo", "--json"])?)?, &fast)?;
        std::fs::write(MACHINE, machine.to_string())?;
        let done = by(&wrapper, &["calibrate", "--import", MACHINE])?;
        ensure!(done.status.success(), "import: {}", String::from_utf8_lossy(&done.stderr));
        Ok(Self { fast: fast.len(), cores: [fast, slow].concat(), wrapper })
    }

    /// Index of a PU's core.
    pub fn core_of(&self, pu: u32) -> Option<usize> {
        self.cores.iter().position(|core| core.contains(&pu))
    }

    /// True for a PU of a fast core.
    pub fn is_fast(&self, pu: u32) -> bool {
        self.core_of(pu).is_some_and(|core| core < self.fast)
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// All PUs of a PU's core.
    pub fn siblings(&self, pu: u32) -> Option<Vec<u32>> {
        Some(self.cores[self.core_of(pu)?].clone())
    }
}

/// The kernel's capacity of every online PU; `None` if the kernel reports none.
fn capacities() -> anyhow::Result<BTreeMap<u32, Option<u32>>> {
    let mut capacities = BTreeMap::new();
    for pu in online()? {
        let file = format!("{CPUS}/cpu{pu}/cpu_capacity");
        let known = std::path::Path::new(&file).exists();
        capacities.insert(pu, if known { Some(text(file)?.parse()?) } else { None });
    }
    Ok(capacities)
}

/// PUs of every online core, sorted by the first PU.
fn cores() -> anyhow::Result<Vec<Vec<u32>>> {
    // A set, since each core is found once per PU.
    let mut cores = BTreeSet::new();
    for pu in online()? {
        cores.insert(list(&text(format!("{CPUS}/cpu{pu}/topology/thread_siblings_list"))?)?);
    }
    Ok(cores.into_iter().collect())
}

/// Runs `colocate` with arguments under `wrapper`.
fn by(wrapper: &[String], words: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(&wrapper[0]);
    command.args(&wrapper[1..]).arg("colocate").args(words);
    command.output().context("cannot start colocate")
}

/// `machine` in its exact form, with slow cores of half the speed of the `fast` ones.
fn made_up(mut machine: Value, fast: &[Vec<u32>]) -> anyhow::Result<Value> {
    let kind =
        |name, capacity| json!({ "name": name, "capacity": capacity, "max_frequency": null });
    let part = &mut machine["machine"];
    part["kinds"] = json!([kind("slow", 512), kind("fast", 1024)]);
    let pus = part["pus"].clone();
    for core in part["cores"].as_array_mut().context("no cores")? {
        let first = core["pus"][0].as_u64().and_then(|at| usize::try_from(at).ok());
        let os = number(&pus[first.context("no PU")?]["os"]).context("no number")?;
        core["kind"] = json!(u32::from(fast.iter().any(|core| core.contains(&os))));
    }
    Ok(machine)
}

/// Capacity and PUs of a line of `colocate topo`, such as
/// `  slow  capacity  512, 12 cores: PUs 1-3,5-7`. `None` for other lines.
fn kind_in(line: &str) -> Option<anyhow::Result<(u32, Vec<u32>)>> {
    let (_, reported) = line.split_once("  capacity ")?;
    let capacity = reported.split(',').next()?.trim().parse().ok()?;
    let pus = reported.split_once(": PUs ")?.1;
    Some(list(pus.trim()).map(|pus| (capacity, pus)))
}

/// `colocate topo` shows two kinds of cores with the kernel's PUs and capacities, which follow from
/// the device tree.
pub fn are_the_device_trees() -> anyhow::Result<()> {
    let capacities = capacities()?;
    let mut dmips: BTreeMap<u32, u32> = BTreeMap::new();
    for pu in capacities.keys() {
        let file = format!("{CPUS}/cpu{pu}/of_node/capacity-dmips-mhz");
        let bytes = std::fs::read(&file).with_context(|| file.clone())?;
        let bytes: [u8; 4] =
            bytes.try_into().ok().with_context(|| format!("{file}: expected 4 bytes"))?;
        dmips.insert(*pu, u32::from_be_bytes(bytes));
    }
    let most = dmips.values().max().context("no PU")?;
    let mut kinds: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pu, own) in &dmips {
        // QEMU reports no clock rates, so the kernel assumes equal rates.
        let capacity = own * 1024 / most;
        ensure!(
            capacities[pu] == Some(capacity),
            "cpu{pu}: expected {capacity}, found {:?}",
            capacities[pu]
        );
        kinds.entry(capacity).or_default().push(*pu);
    }
    ensure!(kinds.len() == 2, "expected a machine with two kinds of cores, found {kinds:?}");
    let picture = printed(&["topo"])?;
    let (_, reported) = picture.split_once("kinds of cores").context("no kinds of cores")?;
    let reported: anyhow::Result<BTreeMap<u32, Vec<u32>>> =
        reported.lines().filter_map(kind_in).collect();
    let reported = reported?;
    ensure!(reported == kinds, "expected {kinds:?}, found {reported:?}: {picture}");
    Ok(())
}

/// If the kernel reports no kinds, serial phases are seen, but no thread is pinned; a note says so.
pub fn are_not_reported() -> anyhow::Result<()> {
    let capacities = capacities()?;
    let alike = capacities.values().collect::<BTreeSet<_>>().len() == 1;
    ensure!(alike, "expected a kernel that reports no kinds, found {capacities:?}");
    let before = Before::now()?;
    let kinds = Kinds { wrapper: Vec::new(), ..Kinds::here()? };
    let mut programs = Programs::both(kinds, PA)?;
    programs.let_work("3")?;
    programs.let_it_look()?;
    programs.await_free()?;
    programs.let_it_look()?;
    programs.await_free()?;
    let report = programs.end_jobs()?;
    let notes = report["notes"].as_array().context("a report without notes")?;
    let alike = "all cores that may be used are equally fast: everything is left to the kernel";
    ensure!(
        notes.iter().filter(|note| *note == alike).count() == 1,
        "expected that once, found {notes:#?}"
    );
    programs.session.await_end()?;
    before.is_back(&programs.session)
}

/// `colocate calibrate --only speeds` measures every PU and leaves cores and PUs as the kernel has
/// them, and `colocate schedule` accepts what is kept. Speeds of emulated cores mean nothing.
pub fn are_measured() -> anyhow::Result<()> {
    let before = Before::now()?;
    let wrapper = ["env".to_owned(), "XDG_STATE_HOME=/tmp/measured".to_owned()];
    let words = ["calibrate", "--only", "speeds", "--repeat", "3", "--force", "--json"];
    let done = by(&wrapper, &words)?;
    ensure!(done.status.success(), "calibrate: {}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout)?;
    let figures = found["calibration"]["figures"].as_array().context("no figures")?;
    let speeds = figures.iter().filter(|figure| figure["what"]["figure"] == "speed");
    let measured: BTreeSet<u32> =
        speeds.filter_map(|figure| number(&figure["what"]["pu"])).collect();
    let kernels: BTreeSet<u32> = online()?.into_iter().collect();
    ensure!(measured == kernels, "expected {kernels:?}, found {measured:?}");
    let done = by(&wrapper, &["schedule", "--policy", PA, "--", "true"])?;
    ensure!(done.status.success(), "schedule: {}", String::from_utf8_lossy(&done.stderr));
    before.left_nothing()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| value.try_into().ok())
}
