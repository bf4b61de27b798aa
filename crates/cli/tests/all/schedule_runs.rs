//! Whole runs of `colocate schedule` whose jobs begin anew: what one run leaves behind is no burden on the next.

use crate::run_support::Scratch;
use crate::schedule_support::{WAYS, out, said, start, workload};
use colocate_testing::{END_LIMIT, EndsInTime, TimeLimit};
use std::time::Duration;

/// Open descriptors of a process; 0 if it is gone.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Each run leaves a process behind, which is killed when the next one begins. Its events are a descriptor a PU: kept,
/// they would be at least 40 a PU more in the last runs than in the first hundred. The test may be kept from looking
/// meanwhile.
#[test]
fn what_runs_leave_behind_costs_no_descriptors() {
    for way in WAYS {
        let scratch = Scratch::new();
        let target = "target = { completions = 200 }";
        let file = workload(&scratch, "", &[("sleep 5 & echo ran", target)]);
        let mut child = start(&scratch, way, &file);
        let (mut early, mut late) = (0, 0);
        let _limit = TimeLimit::start(END_LIMIT, "200 completions");
        while child.try_wait().unwrap().is_none() {
            let open = descriptors(child.id());
            match out(&scratch).lines().count() {
                ..100 => early = early.max(open),
                140.. => late = late.max(open),
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.ended().success(), "{}", said(&scratch));
        assert_eq!(out(&scratch).lines().count(), 200);
        let pus = std::thread::available_parallelism().unwrap().get();
        assert!(late < early.max(64) + 20 * pus, "{early} and then {late} descriptors");
    }
}
