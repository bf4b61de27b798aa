//! Programs that slow each other down by a known equation, and training with them on this machine.

use assert_cmd::Command;
use std::fmt::Write;
use std::path::Path;

/// `colocate-study` in a folder.
pub fn colocate(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.current_dir(dir);
    command
}

/// A workload of programs whose interference is known, of which these are the shares of page faults.
pub fn interfering(dir: &Path, shares: &[f64]) {
    let source =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/interference/interference.c");
    let built = std::process::Command::new("cc")
        .args(["-O2", "-o", "interference", source])
        .current_dir(dir)
        .status();
    assert!(built.unwrap().success());
    let mut text = "version = 1\n".to_owned();
    for share in shares {
        let _ = writeln!(
            text,
            "[[job]]\nname = \"share {share}\"\ncommand = [\"./interference\", \"slots\", \"{share}\"]"
        );
    }
    std::fs::write(dir.join("workload.toml"), text).unwrap();
}

/// Trains with the workload in `dir`, by so many intervals of 40 ms a run.
pub fn train_here(dir: &Path, intervals: u32) -> Command {
    let mut command = colocate(dir);
    command.args(["train", "cpi-model", "--here", "workload.toml", "--pretend"]);
    command.args([
        "--interval-ms",
        "40",
        "-o",
        "model.json",
        "--intervals",
        &intervals.to_string(),
    ]);
    command
}
