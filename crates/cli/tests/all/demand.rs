//! `colocate profile --demand`: what a loop asks of a core whose tables are known.
#![cfg(target_arch = "x86_64")]

use colocate_machine::performance::WorkKind;
use colocate_model::Phase;
use colocate_model::phase::{PhaseFile, PortWork};
use colocate_testing::need;
use colocate_testing::skip::{Missing, Requirement};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The program of `emulate/chain.s`, built in `folder`.
fn build(folder: &TempDir) -> std::path::PathBuf {
    let program = folder.path().join("chain");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulate/chain.s");
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-o"]).arg(&program).arg(source);
    assert!(cc.status().unwrap().success());
    program
}

fn profile(folder: &TempDir, options: &[&str], file: &str) -> (Output, Option<PhaseFile>) {
    let file = folder.path().join(file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["profile", "--phase"]).arg(&file).args(options).arg("--").arg(build(folder));
    let output = command.output().unwrap();
    let text = std::fs::read_to_string(&file).ok();
    let read = text.map(|text| match file.extension().unwrap().to_str() {
        Some("toml") => PhaseFile::from_toml(&text).unwrap(),
        _ => PhaseFile::from_json(&text).unwrap(),
    });
    (output, read)
}

/// The only phase of the file.
fn phase(options: &[&str], file: &str) -> Result<Phase, Missing> {
    let folder = TempDir::new().unwrap();
    let (output, read) = profile(&folder, options, file);
    if output.status.code() == Some(3) {
        let said = String::from_utf8_lossy(&output.stderr);
        let what = if said.contains("no llvm-mca") {
            Requirement::Llvm
        } else if options.contains(&"emulate") {
            Requirement::Qemu
        } else {
            Requirement::Perf
        };
        return Err(what.missing(said));
    }
    assert!(output.status.success(), "{output:?}");
    let [phase] = &read.unwrap().phases[..] else { panic!("one phase") };
    Ok(phase.clone())
}

fn near(found: Option<&f64>, expected: f64) {
    assert!(
        found.is_some_and(|found| (found / expected - 1.0).abs() < 0.01),
        "{found:?} {expected}"
    );
}

/// Four multiplications of latency 3 in six instructions, all on one port, one slot each.
fn check_chain(phase: &Phase) {
    assert_eq!(phase.name, "chain");
    near(phase.dependent_cycles.get(), 12.0 / 6.0);
    near(phase.slots.get(), 1.0);
    let Some(PortWork::Ports { llvm_cpu, groups, .. }) = phase.work.get() else {
        panic!("{phase:?}")
    };
    assert_eq!(llvm_cpu, "skylake");
    let multiplier = groups.iter().find(|(ports, _)| ports == &["SKLPort1"]);
    near(multiplier.map(|(_, cycles)| cycles), 4.0 / 6.0);
    near(Some(&groups.iter().map(|(_, cycles)| cycles).sum()), 1.0);
}

#[test]
fn counted_under_qemu() {
    let options = ["--backend", "emulate", "--demand", "skylake"];
    let phase = need!(phase(&options, "chain.toml"));
    check_chain(&phase);
    assert!(phase.misses.get().is_some());
}

#[test]
fn sampled() {
    let options = ["--backend", "sample", "--rate", "2000", "--demand", "skylake"];
    let phase = need!(phase(&options, "chain.json"));
    check_chain(&phase);
    assert!(phase.misses.get().is_none());
}

/// A machine that LLVM has no table of says which ports do which kind of work.
#[test]
fn work_by_kind_for_other_machines() {
    let options = ["--backend", "sample", "--rate", "2000", "--demand", "power8-10c"];
    let phase = need!(phase(&options, "chain.json"));
    let Some(PortWork::Kinds(kinds)) = phase.work.get() else { panic!("{phase:?}") };
    for (kind, count) in [(WorkKind::IntMul, 4.0), (WorkKind::Int, 1.0), (WorkKind::Branch, 1.0)] {
        near(kinds.iter().find(|(of, _)| *of == kind).map(|(_, count)| count), count / 6.0);
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert_eq!(phase.slots.get(), None);
}

#[test]
fn what_cannot_be_is_refused_before_the_program_runs() {
    let folder = TempDir::new().unwrap();
    let refused = |options: &[&str], code: i32, said: &str| {
        let (output, read) = profile(&folder, options, "refused.json");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        // Without LLVM that is what is said.
        assert!(output.status.code() == Some(3) || output.status.code() == Some(code), "{error}");
        assert!(error.contains(said) || error.contains("no llvm-mca"), "{error}");
        assert_eq!(read, None);
    };
    refused(&["--demand", "pentium17", "--backend", "sample"], 125, "the name of a processor");
    refused(
        &["--demand", "synthetic:pack:1 core:2 pu:1", "--backend", "sample"],
        125,
        "says how fast it is",
    );
    refused(&["--demand", "epyc-7301", "--backend", "pmu"], 3, "do not see machine code");
    refused(&["--backend", "sample"], 3, "sees accesses to memory");
}
