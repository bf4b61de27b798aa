//! Training on this machine, alone on it: a program of its own, as tests of one program run side by side.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "all/interfering.rs"]
mod interfering;

use colocate_cli::schedule::policy::cpi_model;
use colocate_model::CpiModel;
use colocate_testing::skip;
use interfering::{interfering, train_here};

/// Coefficients of `workloads/interference` beside others, of its part that is no page fault.
const KNOWN: [f64; 4] = [0.02, 1.05, 0.1, 0.5];

/// Measurements that may be disturbed: other virtual machines share the PUs.
const TRIES: u32 = 3;

/// Real programs on real PUs, of which counters of the kernel's say where their cycles go: found are the coefficients by which they
/// slow each other down, and what they make of programs that were held out. Neither runs on.
#[test]
fn interference_that_is_known_is_found_here() {
    let dir = tempfile::tempdir().unwrap();
    interfering(dir.path(), &[0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
    let mut printed = Vec::new();
    for _ in 0..TRIES {
        let done = train_here(dir.path(), 10).assert();
        let output = done.get_output();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        if said.contains("expected a core with two PUs") {
            skip!(Smt, "{said}");
        }
        assert!(output.status.success(), "{said}");
        assert!(said.starts_with("colocate-study: 44 runs of 0."), "{said}");
        let text = std::fs::read_to_string(dir.path().join("model.json")).unwrap();
        assert_eq!(cpi_model(&dir.path().join("model.json")).unwrap().to_json(), text);
        let table = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(table.starts_with("measured: ") && table.contains(" on PUs "), "{table}");
        printed.push(table);
        if is_as_known(&CpiModel::from_json(&text).unwrap()) {
            return;
        }
    }
    panic!("{}", printed.concat());
}

/// Whether a model has the known coefficients, and predicts programs that were held out.
fn is_as_known(model: &CpiModel) -> bool {
    assert!(!model.simulated && model.parts == ["faults", "others"]);
    let mode = &model.modes[0];
    assert!(mode.threads == 2 && mode.samples > 150, "{mode:?}");
    let of = |at: usize| {
        let found = &mode.coefficients[at];
        [found.alpha, found.beta, found.gamma, found.delta]
    };
    let known = [0.0, 1.0, 0.0, 0.0].into_iter().chain(KNOWN);
    let mut pairs = of(0).into_iter().chain(of(1)).zip(known);
    let held_out = mode.held_out.as_ref().unwrap();
    assert_eq!(held_out.programs, ["share 0.5", "share 0.9"]);
    pairs.all(|(found, known)| (found - known).abs() < 0.05)
        && held_out.slowdown.r2.unwrap() > 0.8
        && mode.conditioning.is_good()
}
