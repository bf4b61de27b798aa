//! Whole runs of `colocate schedule` that sample which threads only wait in a loop.

use crate::run_support::{Scratch, exclusive, text, workload};
use colocate_observe::sample::Clocks;
use colocate_observe::spin::{DEFAULT_RATE_HZ, SpinSampler};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{need, skip};
use serde_json::Value;
use std::process::Stdio;

/// Mean number of runnable threads of a program of which one thread works and one waits in a loop.
fn runnable(scratch: &Scratch, options: &[&str], kind: &str) -> Result<f64, Missing> {
    let program = workload(scratch, "spin/waits.c")?;
    let report = scratch.path("report.json");
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--quantum", "50ms"]).args(options);
    command.arg("-o").arg(&report).arg("--").arg(program).args([kind, "1500"]);
    let out = command.stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{kind}: {}", text(&out.stderr));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let runnable = report["jobs"][0]["phases"]["runnable"].as_f64();
    runnable.ok_or_else(|| Requirement::Ebpf.missing("phases are not known"))
}

/// One thread is runnable, and two without samples, however busy the machine is: waits for a PU count as well.
#[test]
fn spinning_threads_are_not_runnable() {
    let _exclusive = exclusive();
    if let Err(why) = SpinSampler::new(DEFAULT_RATE_HZ, &Clocks::here().unwrap()) {
        skip!(Perf, "{why}");
    }
    for kind in ["flag", "spinlock", "bare"] {
        let scratch = Scratch::new();
        let looked = ["--policy", "parallelism-aware"];
        let seen = need!(runnable(&scratch, &looked, kind));
        assert!(seen < 1.4, "{kind}: {seen}");
    }
    let scratch = Scratch::new();
    let options = ["--policy", "os", "--spin-rate", "0"];
    let unseen = need!(runnable(&scratch, &options, "flag"));
    assert!(unseen > 1.6, "{unseen}");
}
