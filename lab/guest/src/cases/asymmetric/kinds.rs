//! Fast and slow cores of the guest: from the kernel's capacities, else from a file of the case.

use super::{PA, Programs};
use crate::cases::undo::Before;
use crate::evidence::{colocate, list, online, printed, study, text};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CPUS: &str = "/sys/devices/system/cpu";
/// File of invented core speeds.
const MADE_UP: &str = "/tmp/made-up-speeds.json";

/// Cores of two kinds.
#[derive(Clone)]
pub struct Kinds {
    /// PUs of each core, by the kernel's numbers; fast cores first.
    cores: Vec<Vec<u32>>,
    /// Number of fast cores.
    pub fast: usize,
    /// Options of `colocate schedule` that state the kinds; empty if the kernel reports them.
    pub options: Vec<String>,
}

impl Kinds {
    /// Kinds of this guest. If the kernel reports equal capacities, a file makes the second core of
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
                options: Vec::new(),
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
        std::fs::write(MADE_UP, made_up(&fast, &slow).to_string())?;
        let options = ["--core-speeds", MADE_UP].map(String::from).to_vec();
        Ok(Self { fast: fast.len(), cores: [fast, slow].concat(), options })
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

fn joined<'a>(pus: impl IntoIterator<Item = &'a u32>) -> String {
    pus.into_iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// A speed with an interval of 1 %.
fn speed(value: f64) -> Value {
    json!({ "value": value, "low": value * 0.99, "high": value * 1.01 })
}

/// A PU's entry in [`made_up`], with the PU's relative speed.
fn pu_entry(pu: u32, value: f64) -> Value {
    let reported = json!({
        "kind": null, "cpu_capacity": null, "cppc_highest": null, "max_frequency": null, "hybrid_pmu": null,
    });
    json!({
        "pu": pu, "speed": speed(value), "speed_while_running": value, "share_of_pu": 1.0,
        "clock": 1_000_000_000, "reported": reported,
    })
}

/// A file of `colocate-study bench cores` in which slow cores have half the speed of fast cores
/// (docs/schemas/core-speeds.json).
fn made_up(fast: &[Vec<u32>], slow: &[Vec<u32>]) -> Value {
    let mut pus: BTreeMap<u32, f64> = BTreeMap::new();
    pus.extend(fast.iter().flatten().map(|pu| (*pu, 1.0)));
    pus.extend(slow.iter().flatten().map(|pu| (*pu, 0.5)));
    let mut cores: Vec<&Vec<u32>> = fast.iter().chain(slow).collect();
    cores.sort();
    json!({
        "version": 1, "processor": null, "kernel": null, "started_unix_s": 0, "rounds": 3, "visit_ns": 1,
        "seed": 0, "others_runnable": null,
        "cores": cores.into_iter().map(joined).collect::<Vec<_>>(),
        "pus": pus.into_iter().map(|(pu, speed)| pu_entry(pu, speed)).collect::<Vec<_>>(),
        "kinds": [
            { "speed": speed(0.5), "pus": joined(slow.iter().flatten()) },
            { "speed": speed(1.0), "pus": joined(fast.iter().flatten()) },
        ],
        "disagreements": [],
    })
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
    let kinds = Kinds { options: Vec::new(), ..Kinds::here()? };
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

/// Lists of PUs in a JSON array: of each element, or of the field `key` of each element.
fn lists(value: &Value, key: Option<&str>) -> anyhow::Result<Vec<Vec<u32>>> {
    let all = value.as_array().context("no list")?.iter();
    all.map(|one| list(key.map_or(one, |key| &one[key]).as_str().unwrap_or_default())).collect()
}

/// `colocate-study bench cores` agrees with the kernel about PUs, cores and capacities, and
/// `colocate schedule` accepts the file. Speeds of emulated cores mean nothing.
pub fn are_measured() -> anyhow::Result<()> {
    let before = Before::now()?;
    let file = "/tmp/measured.json";
    // Short measurements: the speeds mean nothing.
    let words = ["bench", "cores", "--json", "--seconds", "0.002", "--repeat", "3", "-o", file];
    let done = study(&words)?;
    ensure!(done.status.success(), "bench cores: {}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_str(&text(file)?)?;
    let reported: BTreeMap<u32, Option<u32>> = found["pus"]
        .as_array()
        .context("no PUs")?
        .iter()
        .filter_map(|pu| Some((number(&pu["pu"])?, number(&pu["reported"]["cpu_capacity"]))))
        .collect();
    let kernels = capacities()?;
    ensure!(reported == kernels, "expected {kernels:?}, found {reported:?}");
    ensure!(
        lists(&found["cores"], None)? == cores()?,
        "expected {:?}, found {}",
        cores()?,
        found["cores"]
    );
    let mut in_kinds: Vec<u32> = lists(&found["kinds"], Some("pus"))?.concat();
    in_kinds.sort_unstable();
    ensure!(
        in_kinds.iter().eq(kernels.keys()),
        "expected every PU in one kind, found {}",
        found["kinds"]
    );
    let done = colocate(&["schedule", "--policy", PA, "--core-speeds", file, "--", "true"])?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success() && said.contains("kinds of cores as measured"),
        "schedule: {said}"
    );
    before.left_nothing()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| value.try_into().ok())
}
