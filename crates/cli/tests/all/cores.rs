//! Whole runs of `colocate schedule` with measured speeds of cores.

use crate::run_support::{Scratch, text};
use colocate_machine::PuNr;
use colocate_machine::measured::{CoreSpeeds, cores_of};
use colocate_testing::printed::{printed, refusal};
use colocate_testing::skip;
use std::path::{Path, PathBuf};
use std::process::Output;

const HYBRID: &str = include_str!("../cores/hybrid.json");
const HELD: &str = include_str!("../cores/held.json");

/// Speeds of those PUs of this machine for which `measured` is true, all alike.
fn speeds_of(measured: impl Fn(PuNr) -> bool) -> String {
    let machine = colocate_machine::read::live().unwrap();
    let mut speeds = CoreSpeeds::from_json(HELD).unwrap();
    let (mut pu, mut kind) = (speeds.pus.remove(0), speeds.kinds.pop().unwrap());
    let pus: Vec<PuNr> = machine.pus.iter().map(|pu| pu.os).filter(|&pu| measured(pu)).collect();
    kind.pus = pus.iter().copied().collect();
    speeds.kinds = vec![kind];
    speeds.cores = cores_of(&machine);
    speeds.pus = pus
        .into_iter()
        .map(|number| {
            pu.pu = number;
            pu.clone()
        })
        .collect();
    speeds.processor = machine.processor;
    speeds.disagreements.clear();
    speeds.to_json()
}

fn schedule(scratch: &Scratch, file: &Path) -> Output {
    let mut command = scratch.colocate();
    command.args(["schedule", "-q", "--quantum", "20ms", "--policy", "os", "--core-speeds"]);
    command.arg(file).args(["--", "true"]).output().unwrap()
}

fn kept(scratch: &Scratch, text: &str) -> PathBuf {
    let path = scratch.path("cores.json");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn schedule_reads_speeds_of_this_machine() {
    let scratch = Scratch::new();
    let file = kept(&scratch, &speeds_of(|_| true));
    printed(&schedule(&scratch, &file));
    // The report says whose kinds these are.
    let mut command = scratch.colocate();
    command.args(["schedule", "--policy", "os", "--json", "--core-speeds"]).arg(&file);
    let output = command.args(["--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    let note = format!("kinds of cores as measured ({}): ", file.display());
    assert!(output.status.success() && said.contains(&note), "{said}");
}

#[test]
fn schedule_refuses_what_is_not_of_this_machine() {
    let scratch = Scratch::new();
    let file = kept(&scratch, HYBRID);
    let told = refusal(&schedule(&scratch, &file), 125);
    let start = format!("colocate: cannot use --core-speeds {}: expected speeds ", file.display());
    assert!(told.starts_with(&start), "{told}");
    assert!(told.ends_with("; measure here with colocate-study bench cores\n"), "{told}");
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn schedule_refuses_damaged_files_in_a_line() {
    let scratch = Scratch::new();
    let later = HELD.replacen("\"version\": 1", "\"version\": 2", 1);
    for (text, expected) in [
        ("", "expected measured speeds of cores: EOF"),
        ("[]", "expected measured speeds of cores: "),
        (later.as_str(), "expected measured speeds of version 1, found version 2; measure again"),
        ("\u{0}", "expected measured speeds of cores: "),
    ] {
        let told = refusal(&schedule(&scratch, &kept(&scratch, text)), 125);
        assert!(told.contains(expected) && told.lines().count() == 1, "{text:?}: {told}");
    }
    let told = refusal(&schedule(&scratch, Path::new("/dev/zero")), 125);
    assert!(told.contains("expected a plain file or a pipe, found a device"), "{told}");
    let told = refusal(&schedule(&scratch, &scratch.path("nowhere")), 125);
    assert!(told.contains("No such file"), "{told}");
}

/// A core that may be used and was not measured.
#[test]
fn schedule_refuses_half_a_measurement() {
    let machine = colocate_machine::read::live().unwrap();
    let usable = smt_bench::thread::usable().unwrap();
    let core = |pu: u32| machine.pu_by_os(PuNr(pu)).map(|pu| machine.core_of(pu));
    let Some(&other) = usable.iter().find(|&&pu| core(pu) != core(usable[0])) else {
        skip!(TwoCores, "one core only");
    };
    let scratch = Scratch::new();
    let file = kept(&scratch, &speeds_of(|pu| core(pu.0) == core(usable[0])));
    let told = refusal(&schedule(&scratch, &file), 125);
    assert!(
        told.contains("expected speeds of all cores that may be used, found none of PUs "),
        "{told}"
    );
    assert!(told.contains(&other.to_string()), "{told}");
}
