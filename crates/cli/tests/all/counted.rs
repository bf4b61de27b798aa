//! `colocate profile --phase` with hardware counters: what they tell, or one line where there are none.

use colocate_model::phase::PhaseFile;
use colocate_testing::skip;
use std::process::Command;
use tempfile::TempDir;

/// Where counters work, the file has cycles and their processor (or neither, where that has no name), and
/// every known component says its source; elsewhere nothing has run and one line says what to use instead.
#[test]
fn counted_or_refused() {
    let dir = TempDir::new().unwrap();
    let (file, ran) = (dir.path().join("demand.json"), dir.path().join("ran"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["profile", "--quiet", "--backend", "pmu", "--phase"]).arg(&file);
    let output = command.args(["--", "touch"]).arg(&ran).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(3) {
        assert!(said.starts_with("colocate: the backend pmu does not work: "), "{said}");
        assert!(said.ends_with("; --backend emulate needs no privilege\n"), "{said}");
        assert_eq!((said.lines().count(), ran.exists(), file.exists()), (1, false, false));
        skip!(Pmu, "{said}");
    }
    assert!(output.status.success() && ran.exists(), "{said}");
    let phases = PhaseFile::from_json(&std::fs::read_to_string(&file).unwrap()).unwrap().phases;
    let [phase] = &phases[..] else { panic!("one thread: {phases:?}") };
    let sources = [
        phase.slots.source(),
        phase.branch_misses.source(),
        phase.misses.source(),
        phase.cycles.source(),
    ];
    for source in sources.into_iter().flatten() {
        assert!(source.starts_with("counted: ") || source.starts_with("cycles over"), "{source}");
    }
    assert_eq!((phase.stall_cycles.get(), phase.dependent_cycles.get()), (None, None));
}
