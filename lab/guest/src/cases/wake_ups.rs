//! Wake-ups counted by eBPF match the kernel's count of sleeps.

use crate::evidence::colocate;
use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Wake-ups of thread `wakee`, by thread `waker` or by all threads. Numbers are orders of creation.
fn woken(wake_ups: &[Value], wakee: u64, waker: Option<u64>) -> u64 {
    let pairs = wake_ups.iter().filter(|pair| pair["wakee"]["order"] == wakee);
    pairs
        .filter(|pair| waker.is_none_or(|waker| pair["waker"]["order"] == waker))
        .filter_map(|pair| pair["count"].as_u64())
        .sum()
}

/// A sleeping thread is woken once per sleep, and by its partner when it waits for the partner.
pub(super) fn are_counted() -> anyhow::Result<()> {
    let words = ["run", "--policy", "os", "--wake-ups", "--json", "-o", "/tmp/report", "--"];
    let program = ["lab-guest", "--program", "pair", "1000"];
    let output = colocate(&[&words[..], &program].concat())?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string("/tmp/report")?)?;
    let wake_ups = report["wake_ups"]
        .as_array()
        .with_context(|| format!("expected wake-ups, found none: {}", report["evidence"]))?;
    let slept: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    let all = woken(wake_ups, 0, None);
    // The thread also sleeps before its exec, and after it has read its count.
    ensure!(all.abs_diff(slept) <= 5, "woken {all} times, slept {slept}: {wake_ups:?}");
    for (waker, wakee) in [(0, 1), (1, 0)] {
        let by = woken(wake_ups, wakee, Some(waker));
        ensure!(by >= 10, "{waker} woke {wakee} {by} times: {wake_ups:?}");
    }
    Ok(())
}
