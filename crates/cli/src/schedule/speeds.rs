//! Speeds of this machine, where known: they allow estimates of rates that are not counted.

use super::workload::Workload;
use anyhow::{Context, anyhow};
use colocate_machine::{Machine, Performance, read};

/// Speeds from the description `spec`, checked against `machine`.
pub fn of(spec: &str, machine: &Machine) -> anyhow::Result<Performance> {
    let cannot = || format!("cannot use --machine-speeds {spec}");
    let none = "expected how fast the machine is ([performance]), found nothing";
    let speeds = read::load(spec).with_context(cannot)?.performance;
    let speeds = speeds.ok_or_else(|| anyhow!(none)).with_context(cannot)?;
    speeds.check(machine).context("they are not of this machine").with_context(cannot)?;
    Ok(speeds)
}

/// Speeds measured by `colocate calibrate`, if any job has a demand vector to use them with. A kept
/// file that is unreadable or of another machine counts as none.
pub fn measured(machine: &Machine, workload: &Workload) -> Option<Performance> {
    workload.jobs.iter().any(|job| !job.phases.is_empty()).then_some(())?;
    let speeds = read::load("live").ok()?.performance?;
    speeds.check(machine).is_ok().then_some(speeds)
}

/// A note if there are demand vectors without speeds, or speeds without demand vectors.
pub fn note(speeds: Option<&Performance>, workload: &Workload) -> Option<String> {
    let demands = workload.jobs.iter().any(|job| !job.phases.is_empty());
    match (speeds, demands) {
        (None, true) => Some(
            "demand vectors are not used: measure how fast this machine is with colocate calibrate, or say it with \
             --machine-speeds"
                .to_owned(),
        ),
        (Some(_), false) => Some(
            "--machine-speeds is not used: no job has a demand vector (demand = \"FILE\")"
                .to_owned(),
        ),
        _ => None,
    }
}
