//! Wake-ups by eBPF on this kernel, as often as the kernel says that threads have slept.

use crate::evidence::colocate;
use anyhow::{Context as _, ensure};
use serde_json::Value;

/// A thread that sleeps is woken once each time, by the other thread of its program where it waits for that.
pub(super) fn are_counted() -> anyhow::Result<()> {
    let words = ["run", "--policy", "os", "--wake-ups", "--json", "-o", "/tmp/report", "--"];
    let program = ["lab-guest", "--program", "pair", "1000"];
    let output = colocate(&[&words[..], &program].concat())?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string("/tmp/report")?)?;
    let wake_ups = report["wake_ups"]
        .as_array()
        .with_context(|| format!("expected wake-ups, found none: {}", report["evidence"]))?;
    let slept: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    let of = |wakee: u64| {
        wake_ups.iter().filter(move |pair| pair["wakee"]["order"] == wakee && pair["count"] != 0)
    };
    let counts = |pair: &Value| pair["count"].as_u64().unwrap_or(0);
    let woken: u64 = of(0).map(counts).sum();
    // Before its exec it has slept as well, and after it has asked for its count.
    ensure!(woken.abs_diff(slept) <= 5, "woken {woken} times, slept {slept}: {wake_ups:?}");
    for (waker, wakee) in [(0, 1), (1, 0)] {
        let by: u64 = of(wakee).filter(|pair| pair["waker"]["order"] == waker).map(counts).sum();
        ensure!(by >= 10, "{waker} woke {wakee} {by} times: {wake_ups:?}");
    }
    Ok(())
}
