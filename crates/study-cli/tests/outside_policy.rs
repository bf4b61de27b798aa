//! A policy that is no part of colocate under `simulate`.
//!
//! Called with arguments this program is colocate-study with one policy more; without, it tests that.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "../../cli/tests/outside_policy/last_pu.rs"]
mod last_pu;

use std::process::{Command, ExitCode};

#[allow(clippy::print_stdout)] // as tests do
fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|command| command == "simulate") {
        return colocate_study_cli::main_with(&last_pu::ROWS);
    }
    simulations_compare_it();
    println!("test simulations_compare_it ... ok");
    ExitCode::SUCCESS
}

/// Once and each quantum: two jobs on one PU take as long together as one after the other.
fn simulations_compare_it() {
    let scenario =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/adds-beside-multiplications.toml");
    let policies = "os,last-pu,schedule:last-pu,last-pu:from-end=1";
    let args = ["simulate", scenario, "--policy", policies, "--seeds", "2", "--draws", "1"];
    let done = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let told = String::from_utf8_lossy(&done.stdout);
    for name in policies.split(',') {
        assert!(told.contains(name), "{name}: {told}");
    }
}
