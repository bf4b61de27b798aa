//! `auto`: programs that take turns share a PU, and have their masks again afterwards.

use crate::run_support::{Scratch, await_that, children, exclusive, masks, original};
use crate::schedule_support::signal;
use colocate_testing::skip::{root, two_pus};
use colocate_testing::{EndsInTime, need, skip};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Of what two processes pass to and fro in two seconds, most stays on one PU. Where the machine is idle the kernel alone has them on
/// two, and where it is busy on one.
#[test]
fn a_pair_that_takes_turns_is_together() {
    let (_exclusive, scratch) = (exclusive(), Scratch::new());
    need!(root());
    need!(two_pus());
    let turns = need!(scratch.program("turns", &[]));
    let mut program = Command::new(turns).stdin(Stdio::null()).spawn().unwrap();
    let both = await_that("its two processes", || {
        Some(children(program.id())).filter(|children| children.len() == 2)
    });
    let (file, pid) = (scratch.path("report.json"), program.id().to_string());
    let mut colocate = scratch.colocate();
    colocate.args(["attach", "--no-guard", "--policy", "auto", "-q", "--json", "-o"]).arg(&file);
    let mut colocate = colocate.args(["-p", &pid]).stdin(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    signal("-TERM", colocate.id().cast_signed());
    colocate.ended();
    let are_free = both.iter().all(|pid| masks(*pid).iter().all(|mask| *mask == original()));
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(are_free && scratch.journals().is_empty());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let Some(pairs) = report["wake_ups"].as_array().filter(|pairs| !pairs[0]["same_pu"].is_null())
    else {
        skip!(Ebpf, "it is not known where wake-ups are: {}", report["evidence"]);
    };
    let of_both = || pairs.iter().filter(|pair| !pair["waker"].is_null());
    let sum = |what: &str| of_both().map(|pair| pair[what].as_u64().unwrap()).sum::<u64>();
    let (all, together) = (sum("count"), sum("same_pu"));
    assert!(all > 1_000 && 2 * together > all, "{together} of {all}: {}", report["plans"]);
}
