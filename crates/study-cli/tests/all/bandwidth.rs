//! Whole runs of `colocate-study bench bandwidth` with tiny matrices and programs: what is printed is checked, and
//! that nothing runs on afterwards; not what was measured.

use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{EndsInTime, need};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn bench<S: AsRef<OsStr>>(args: &str, command: &[S]) -> Command {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    bench.args(["bench", "bandwidth"]).args(args.split_whitespace()).arg("--").args(command);
    bench
}

/// What a quick run is called with.
fn quick(cpus: &str) -> String {
    format!("--cpus {cpus} --rows 64 --rates 20,50 --copies 1 --repeat 2 --seed 3 -q")
}

fn code(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Two PUs as an argument.
fn two_pus() -> Result<(u32, u32), Missing> {
    match smt_bench::thread::usable().unwrap().as_slice() {
        &[a, b, ..] => Ok((a, b)),
        _ => Err(Requirement::TwoPus.missing("only one PU is usable")),
    }
}

fn list((a, b): (u32, u32)) -> String {
    format!("{a},{b}")
}

/// Whether a process lives; one that has ended and that nobody has asked for its status does not.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Waits until `found` says yes, a minute at most.
fn until(what: &str, mut found: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if found() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} has not happened");
}

#[test]
fn json_has_every_run_and_is_as_its_schema_says() {
    let pus = need!(two_pus());
    let found =
        succeeded(&bench(&format!("{} --json", quick(&list(pus))), &["true"]).output().unwrap());
    let found: Value = serde_json::from_str(&found).unwrap();
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/bench-bandwidth.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!((&found["program_pu"], &found["copy_pus"]), (&pus.0.into(), &vec![pus.1].into()));
    assert_eq!(found["runs"].as_array().unwrap().len(), 6);
    let alone = found["runs"].as_array().unwrap().iter().filter(|run| run["beside"].is_null());
    assert_eq!(alone.count(), 2);
    let rates: Vec<f64> = found["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["beside"]["rate"].as_f64().unwrap())
        .collect();
    assert_eq!(rates, [20.0, 50.0]);
}

#[test]
fn text_picture_and_file() {
    let pus = need!(two_pus());
    let dir = tempfile::tempdir().unwrap();
    let (text, svg) = (dir.path().join("curve.txt"), dir.path().join("curve.svg"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    command.args(["bench", "bandwidth"]).args(quick(&list(pus)).split_whitespace());
    command
        .args(["--level", "l2", "-o"])
        .arg(&text)
        .arg("--svg")
        .arg(&svg)
        .args(["--", "sleep", "0.05"]);
    assert_eq!(succeeded(&command.output().unwrap()), "");
    let text = std::fs::read_to_string(text).unwrap();
    let head = format!(
        "sleep on PU {} beside copies that request lines of the second cache, on PU {}; 36 KiB",
        pus.0, pus.1
    );
    assert!(text.starts_with(&head), "{text}");
    assert!(
        text.contains("2 repetitions, seed 3; before: ") && text.contains("\nloss: "),
        "{text}"
    );
    assert!(
        std::fs::read_to_string(svg).unwrap().contains("sleep beside traffic to the second cache")
    );
}

#[test]
fn a_file_that_cannot_be_written_costs_no_report() {
    let pus = need!(two_pus());
    for option in ["--svg", "-o"] {
        let options = format!("{} {option} /dev/full", quick(&list(pus)));
        let output = bench(&options, &["true"]).output().unwrap();
        let said = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(said.contains("\nloss: "), "{option}: {said}");
        let (code, told) = code(&output);
        assert!(code == 125 && told.contains("cannot write /dev/full"), "{code}: {told}");
    }
}

/// The program is not even looked for on PUs.
#[test]
fn a_missing_folder_is_reported_first() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--svg", "-o"] {
        let options = format!("-q --cpus 8000,8001 {option} {}/gone/x.svg", dir.path().display());
        let (code, told) = code(&bench(&options, &["true"]).output().unwrap());
        assert!(code == 125 && told.contains("gone/x.svg"), "{code}: {told}");
    }
}

#[test]
fn the_program_is_on_its_pu_alone_and_leaves_nothing() {
    let pus = need!(two_pus());
    let dir = tempfile::tempdir().unwrap();
    let (masks, left) = (dir.path().join("masks"), dir.path().join("left"));
    let script = format!(
        "sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status >>{}; sleep 600 & echo $! >>{}",
        masks.display(),
        left.display()
    );
    // The other way round: the program is on the PU that is named first.
    let cpus = list((pus.1, pus.0));
    succeeded(&bench(&quick(&cpus), &["sh", "-c", &script]).output().unwrap());
    let masks = std::fs::read_to_string(masks).unwrap();
    // One run that is not counted, and two blocks of three.
    assert_eq!(masks.lines().collect::<Vec<_>>(), vec![pus.1.to_string(); 7]);
    let left = std::fs::read_to_string(left).unwrap();
    assert_eq!(left.lines().count(), 7);
    until("the end of what was left", || !left.lines().any(lives));
}

/// Starts a bench of a program that would run for ten minutes, until its two processes are known.
fn long_run(pus: (u32, u32), dir: &Path) -> (std::process::Child, Vec<String>) {
    let file = dir.join("pids");
    let script = format!(
        "echo $$ >{0}.new; sleep 600 & echo $! >>{0}.new; mv {0}.new {0}; wait",
        file.display()
    );
    let mut bench = bench(&quick(&list(pus)), &["sh", "-c", &script]);
    let child = bench.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the program's start", || file.exists());
    let pids = std::fs::read_to_string(file).unwrap();
    (child, pids.lines().map(str::to_owned).collect())
}

#[test]
fn a_killed_bench_takes_the_program_with_it() {
    let pus = need!(two_pus());
    let dir = tempfile::tempdir().unwrap();
    let (mut child, pids) = long_run(pus, dir.path());
    assert_eq!(pids.len(), 2);
    child.kill().unwrap();
    child.ended();
    until("the program's end", || !pids.iter().any(|pid| lives(pid)));
}

#[test]
fn a_signal_stops_it() {
    let pus = need!(two_pus());
    for signal in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let (child, pids) = long_run(pus, dir.path());
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let (code, told) = code(&child.ended_with_output());
        assert_eq!((code, told.as_str()), (130, "colocate-study: stopped; nothing is kept\n"));
        until("the program's end", || !pids.iter().any(|pid| lives(pid)));
    }
}

#[test]
fn a_failed_program_is_reported_with_its_last_line() {
    let pus = need!(two_pus());
    let (code, told) = code(
        &bench(&quick(&list(pus)), &["sh", "-c", "echo no disk >&2; exit 3"]).output().unwrap(),
    );
    let expected = "colocate-study: `sh -c echo no disk >&2; exit 3` ended with status 3, so nothing was measured; it \
                    said: no disk\n";
    assert_eq!((code, told.as_str()), (125, expected));
}

#[test]
fn a_program_that_places_itself_is_refused() {
    let pus = need!(two_pus());
    let other = pus.1.to_string();
    let (code, told) = code(
        &bench(&quick(&list(pus)), &["taskset", "-c", &other, "sleep", "600"]).output().unwrap(),
    );
    let expected = format!(
        "colocate-study: expected taskset on PU {} alone, where it was started, found it on {}: it places itself, so \
         no copy can be kept from its PU\n",
        pus.0, pus.1
    );
    assert_eq!((code, told), (125, expected));
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let refused = |args: &str, command: &[&str]| code(&bench(args, command).output().unwrap());
    let (code, told) = refused("-q", &["no-such-program"]);
    assert_eq!(
        (code, told.as_str()),
        (127, "colocate-study: no-such-program: command not found\n")
    );
    let (code, told) = refused("-q --cpus 8000,8001", &["true"]);
    assert_eq!((code, told.lines().count()), (2, 1));
    assert!(
        told.starts_with(
            "colocate-study: --cpus: 8000-8001 cannot be used: expected PUs that are online"
        ),
        "{told}"
    );
    let (code, told) = refused("-q --copies 4000", &["true"]);
    assert_eq!((code, told.lines().count()), (3, 1));
    assert!(told.contains("one for each of 4000 copies, found only "), "{told}");
    for (wrong, expected) in [
        ("--rates 0", "expected t/µs from 0.1 to 10000, found 0"),
        ("--copies 0", "expected numbers of copies from 1 to 4096, as in 1-3, found \"0\""),
        ("--cpus 0,0", "PU 0 is named twice"),
        ("--memory x", "expected t/µs from 0 to 1000000, found x"),
        ("--rows 0", "0 is not in 1..=16777216"),
        ("--level l9", "[possible values: memory, l2]"),
    ] {
        let (code, told) = refused(wrong, &["true"]);
        assert!(code == 2 && told.contains(expected), "{wrong}: {told}");
    }
    let (code, _) = refused("", &[] as &[&str]);
    assert_eq!(code, 2);
}

/// A process that is confined to one PU inherits that from `taskset`.
#[test]
fn one_usable_pu_is_reported() {
    let cpu = smt_bench::thread::usable().unwrap()[0].to_string();
    let mut command = Command::new("taskset");
    command.args([
        "-c",
        &cpu,
        env!("CARGO_BIN_EXE_colocate-study"),
        "bench",
        "bandwidth",
        "-q",
        "--",
        "true",
    ]);
    let expected = format!(
        "colocate-study: bench bandwidth needs a PU for the program and one for each of 1 copy, found only {cpu}: \
         widen the affinity mask or cpuset, or reduce their number with --copies\n"
    );
    assert_eq!(code(&command.output().unwrap()), (3, expected));
}
