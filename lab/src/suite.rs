//! The tests in guests: boots, and the cases of each boot.
//!
//! A case is code of `lab/guest` that runs in the guest and checks its evidence there. One boot
//! runs many cases, because booting takes most of the time.

mod boots;
pub mod build;

use crate::golden;
use crate::guest::Guest;
use crate::indented::Indented;
use crate::task::GuestCommand;
use anyhow::{Context as _, bail};
use boots::BOOTS;
use clap::ValueEnum;
use std::time::{Duration, Instant};

/// Size of a test run; each size includes the smaller sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum SuiteSize {
    /// Minutes, for every change
    Quick,
    /// Half an hour, for every night
    Full,
    /// Hours, to find what happens once in a thousand times
    Soak,
}

/// One boot of the tests.
struct Boot {
    name: &'static str,
    machine: &'static str,
    guest: Guest,
    /// True if a nanosecond of guest time is an instruction; see [`GuestCommand`].
    icount: bool,
    size: SuiteSize,
    /// Programs beside `colocate` and `lab-guest`.
    programs: &'static [&'static str],
    /// Names of cases, in groups.
    cases: &'static [&'static [&'static str]],
    /// Time after which the guest is killed; enough on a busy host.
    limit: Duration,
}

/// Prints every boot with its cases.
pub fn list() {
    for boot in BOOTS {
        let size = format!("{:?}", boot.size).to_lowercase();
        println!(
            "{} ({size}; {} on {:?}): {}",
            boot.name,
            boot.machine,
            boot.guest,
            boot.cases.concat().join(" ")
        );
    }
}

/// Runs every boot of `size` and smaller.
///
/// # Errors
/// If a boot or a case fails; each failure is also printed when it occurs.
pub fn test(size: SuiteSize) -> anyhow::Result<()> {
    let mut boots: Vec<_> = BOOTS.iter().filter(|boot| boot.size <= size).collect();
    if !build::all(&boots)? {
        // The other boots run all the same.
        let arm64 = boots.extract_if(.., |boot| boot.guest.is_arm64());
        let names: Vec<_> = arm64.map(|boot| boot.name).collect();
        println!("lab: skipped for that reason: {}", names.join(", "));
    }
    let outcomes = boots.iter().map(|boot| (boot.name, run(boot, &boot.cases.concat())));
    let failed: Vec<_> = outcomes.filter_map(|(name, it)| Some((name, it.err()?))).collect();
    let cases: usize = boots.iter().map(|boot| boot.cases.concat().len()).sum();
    if failed.is_empty() {
        println!("lab: {cases} cases in {} boots passed", boots.len());
        return Ok(());
    }
    // Failures again at the end: the first may have scrolled away.
    let lines: Vec<_> = failed.iter().map(|(name, why)| format!("\n  {name}: {why}")).collect();
    bail!("failed:{}", lines.concat())
}

/// Runs the named cases of one boot, or all cases if none is named. `CASE:SEED` gives a seed.
///
/// # Errors
/// If the boot or a case is unknown, or a case fails.
pub fn case(boot: &str, cases: &[String]) -> anyhow::Result<()> {
    let found = BOOTS.iter().find(|known| known.name == boot);
    let boot = found
        .with_context(|| format!("expected a boot that `cargo lab list` names, found {boot}"))?;
    let known = boot.cases.concat();
    let mut names = cases.iter().map(|case| case.split(':').next().unwrap_or(case));
    if !names.all(|name| known.contains(&name)) {
        bail!("expected cases of {}: {}; found {}", boot.name, known.join(" "), cases.join(" "));
    }
    let chosen = match cases {
        [] => known,
        _ => cases.iter().map(String::as_str).collect(),
    };
    if !build::all(&[boot])? {
        bail!("{} needs programs for aarch64", boot.name);
    }
    run(boot, &chosen).map_err(|why| anyhow::anyhow!("failed: {}: {why}", boot.name))
}

/// The machine's name, or the path of its XML file. The table of boots has paths relative to the
/// repository's root.
fn located(machine: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    if machine.ends_with(".xml") { format!("{root}/{machine}") } else { machine.into() }
}

/// Runs cases in one boot, and prints their output and the outcome.
///
/// # Errors
/// Lines of the failed cases, or the failure of the guest.
fn run(boot: &Boot, cases: &[&str]) -> Result<(), String> {
    let begin = Instant::now();
    println!("lab: {} ({} on {:?})", boot.name, boot.machine, boot.guest);
    let words = std::iter::once("lab-guest").chain(cases.iter().copied());
    let task = GuestCommand {
        machine: located(boot.machine),
        guest: boot.guest,
        icount: boot.icount,
        programs: std::iter::once("colocate")
            .chain(boot.programs.iter().copied())
            .map(String::from)
            .collect(),
        command: words.map(String::from).collect(),
        limit: boot.limit,
        name: boot.name.into(),
    };
    let mut shown = Indented::default();
    let mut printed = Vec::new();
    let done = task.run(
        |status| status != 0,
        |bytes| {
            shown.show(bytes);
            printed.extend_from_slice(bytes);
        },
    );
    shown.end();
    if golden::updating() {
        match golden::update(&printed) {
            Ok(names) => {
                names.iter().for_each(|name| println!("lab: wrote lab/guest/golden/{name}"))
            }
            Err(error) => println!("lab: golden files: {error:#}"),
        }
    }
    let reason = match done {
        Ok(0) => {
            println!("lab: {} passed in {} s", boot.name, begin.elapsed().as_secs());
            return Ok(());
        }
        Ok(_) => failures(&printed),
        Err(error) => {
            let ended = String::from_utf8_lossy(&printed).into_owned();
            // A case without a line of result was running when the guest failed.
            let open = cases.iter().find(|case| !ended.contains(&format!("{case}: ")));
            format!("{error:#}; in the case {}", open.copied().unwrap_or("none"))
        }
    };
    println!("lab: {} FAILED: {reason}", boot.name);
    println!("lab: again: cargo lab case {} {}", boot.name, cases.join(" "));
    Err(reason)
}

/// Output lines of failed cases, joined by semicolons.
fn failures(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let lines: Vec<_> = text.lines().filter(|line| line.contains(": FAILED: ")).collect();
    if lines.is_empty() { String::from("a case failed") } else { lines.join("; ") }
}
