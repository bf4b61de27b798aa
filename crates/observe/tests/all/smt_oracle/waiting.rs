//! What a simulated processor waits for: `llvm-mca`'s statistics of dispatch, which only its text has.

use colocate_observe::mca::{Mca, TargetProcessor};
use colocate_testing::within;
use std::io::Write;
use std::process::{Command, Stdio};

/// Rounds of each code, enough for some thousand instructions.
const ROUNDS: usize = 16;

/// In which part of the cycles of each code dispatch waits for a place in the reorder buffer, 0 to 1.
pub fn for_reorder_buffer(mca: &Mca, target: &TargetProcessor, codes: &[String]) -> Vec<f64> {
    let region = |code: &String| format!("# LLVM-MCA-BEGIN\n{code}\n# LLVM-MCA-END\n");
    let input: String = codes.iter().map(region).collect();
    let found: Vec<f64> = printed(mca, target, input).lines().filter_map(waiting).collect();
    assert_eq!(found.len(), codes.len(), "one line a region");
    found
}

/// `RCU     - Retire tokens unavailable:        6645  (86.3%)`, or a 0 without a share.
fn waiting(line: &str) -> Option<f64> {
    let counted = line.strip_prefix("RCU ")?.split_once("unavailable:")?.1;
    let share = counted
        .split_once('(')
        .map_or(Some(0.0), |(_, share)| share.trim_end().strip_suffix("%)")?.parse().ok());
    Some(share.unwrap_or_else(|| panic!("expected a share in %, found {line}")) / 100.0)
}

fn printed(mca: &Mca, target: &TargetProcessor, input: String) -> String {
    let mut child = Command::new(mca.program())
        .args([format!("-mtriple={}", target.triple), format!("-mcpu={}", target.cpu)])
        .args(["--dispatch-stats", "--instruction-info=false", "--resource-pressure=false"])
        .args(["--summary-view=false".to_owned(), format!("--iterations={ROUNDS}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("llvm-mca runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let written = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = within("the end of llvm-mca", || child.wait_with_output()).expect("llvm-mca ends");
    written.join().expect("no panic").expect("llvm-mca reads all");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn shares_are_read() {
    let line = "RCU     - Retire tokens unavailable:                 ";
    assert_eq!(waiting(&format!("{line}6645  (86.3%)")), Some(0.863));
    assert_eq!(waiting(&format!("{line}0")), Some(0.0));
    assert_eq!(waiting("LQ      - Load queue full:                           0"), None);
}
