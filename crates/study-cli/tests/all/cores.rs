//! Whole runs of `colocate-study bench cores`, with visits of a few milliseconds: what is printed is checked, not what
//! was measured.

use colocate_machine::measured::CoreSpeeds;
use colocate_testing::printed::{conforms, printed, refusal};
use serde_json::Value;
use std::process::Command;

const SCHEMA: &str = include_str!("../../../../docs/schemas/core-speeds.json");
const HYBRID: &str = include_str!("../../../cli/tests/cores/hybrid.json");
const HELD: &str = include_str!("../../../cli/tests/cores/held.json");

fn bench(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.args(["bench", "cores", "--seconds", "0.002", "--repeat", "3"]);
    command.args(args.split_whitespace());
    command
}

fn usable() -> Vec<u32> {
    smt_bench::thread::usable().unwrap()
}

#[test]
fn json_is_as_its_schema_says_and_is_read_back() {
    let text = printed(&bench("--json --seed 5").output().unwrap());
    let found: Value = serde_json::from_str(&text).unwrap();
    conforms(&found, SCHEMA);
    let pus: Vec<u64> =
        found["pus"].as_array().unwrap().iter().map(|pu| pu["pu"].as_u64().unwrap()).collect();
    assert_eq!(pus, usable().iter().map(|&pu| u64::from(pu)).collect::<Vec<_>>());
    assert_eq!((&found["rounds"], &found["seed"]), (&3.into(), &5.into()));
    assert_eq!(found["visit_ns"], 2_000_000);
    let read = CoreSpeeds::from_json(&text).unwrap();
    assert_eq!(read.to_json(), text);
    // The machine that is here takes it.
    let machine = colocate_machine::read::live().unwrap();
    assert_eq!(read.of_machine(&machine).unwrap().check(), Ok(()));
}

#[test]
fn kept_files_are_as_the_schema_says() {
    for text in [HYBRID, HELD] {
        conforms(&serde_json::from_str(text).unwrap(), SCHEMA);
        assert_eq!(CoreSpeeds::from_json(text).unwrap().to_json(), text);
    }
}

#[test]
fn text_has_a_line_for_every_pu() {
    let cpu = usable()[0];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cores.txt");
    let done = bench(&format!("--cpus {cpu} -o")).arg(&file).output().unwrap();
    assert_eq!(printed(&done), "");
    let text = std::fs::read_to_string(file).unwrap();
    let head = "1 PU is measured (3 visits of 2.0 ms to each PU): nothing to compare\n";
    assert!(text.starts_with(head), "{text}");
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&cpu.to_string()));
    assert!(line.is_some_and(|line| line.contains("1.000") && line.contains("GHz")), "{text}");
}

/// Nobody's mask is changed: not that of the shell that starts it, and not that of what runs beside it.
#[test]
fn masks_are_as_they_were() {
    let before = usable();
    let cpus = before.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let script = format!(
        "m() {{ sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/$$/status; }}; a=$(m); \
         {} bench cores --seconds 0.001 --repeat 3 --cpus {cpus} >/dev/null || exit 9; test \"$a\" = \"$(m)\"",
        env!("CARGO_BIN_EXE_colocate-study")
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    assert_eq!(usable(), before);
}

#[test]
fn a_confined_process_measures_what_it_may_use() {
    let cpu = usable().last().unwrap().to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, env!("CARGO_BIN_EXE_colocate-study"), "bench", "cores", "--json"]);
    command.args(["--seconds", "0.001", "--repeat", "3"]);
    let read = CoreSpeeds::from_json(&printed(&command.output().unwrap())).unwrap();
    assert_eq!(read.measured().to_string(), cpu);
}

#[test]
fn mistakes_get_one_line() {
    let told = refusal(&bench("--cpus 4000").output().unwrap(), 2);
    assert!(
        told.starts_with("colocate-study: --cpus: 4000 cannot be used: expected PUs "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1);
    for (args, expected) in [
        ("--repeat 2", "2 is not in 3..=1000"),
        ("--seconds 0", "expected seconds from 0.001 to 10, found 0"),
        ("--cpus 0-", "0-"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
        command.args(["bench", "cores"]).args(args.split_whitespace());
        let told = refusal(&command.output().unwrap(), 2);
        assert!(told.contains(expected), "{args}: {told}");
    }
}
