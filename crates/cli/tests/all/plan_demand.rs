//! `colocate plan` with more than mixes: demand vectors from files, rates from profiles.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const EPYC: &str = "AMD EPYC 7301 16-Core Processor";

/// A program of `threads` busy threads that count instructions and cycles, if `cycles` are given.
fn profile(dir: &TempDir, name: &str, threads: u64, counted: Option<(&str, u64)>) -> String {
    let thread = |order: u64| {
        json!({
            "order": order, "process": 0, "name": format!("t{order}"), "start_ns": 0,
            "end_ns": null, "cpu_time_ns": 9_000_000_000_u64,
            "instructions": counted.map(|_| 1_000_000_000), "cycles": counted.map(|(_, n)| n),
            "mix": { "branch": 0.1, "float": 0.1, "int": 0.4, "load": 0.25, "store": 0.1 },
        })
    };
    let profile = json!({
        "version": 1, "backend": "pmu", "processor": counted.map(|(processor, _)| processor),
        "program": { "path": format!("/nowhere/{name}"), "args": [], "identity": "build-id:00" },
        "started_unix_s": 0, "watched_ns": 10_000_000_000_u64, "complete": false,
        "threads": (0..threads).map(thread).collect::<Vec<_>>(), "notes": [],
    });
    write(dir, &format!("{name}.json"), &profile.to_string())
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Nothing but additions: every figure is known.
const ADDS: &str = r#"
version = 1
[[phase]]
name = "adds"
slots = { value = 1.0, source = "made up" }
work = { value = { kinds = { int = 1.0 } }, source = "made up" }
dependent-cycles = { value = 0.2, source = "made up" }
dependent-cycles-divided = { value = 0.2, source = "made up" }
stall-cycles = { value = 0.0, source = "made up" }
branch-misses = { value = 0.0, source = "made up" }
misses = { value = [["32 KiB", 0.0]], source = "made up" }
parallel-misses = { value = 1.0, source = "made up" }
written-back = { value = 0.0, source = "made up" }
shared-lines = { value = 0.0, source = "made up" }
"#;

fn plan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["plan", "--machine", "epyc-7301", "--cpus", "0,32"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The table, and the usual, least and most slowdown of each task.
fn planned(args: &[&str]) -> (String, Vec<[f64; 3]>) {
    let table = plan(args);
    assert!(table.status.success(), "{}", text(&table.stderr));
    let found: Value = serde_json::from_slice(&plan(&[args, &["--json"]].concat()).stdout).unwrap();
    let of =
        |slowdown: &Value| ["usual", "least", "most"].map(|name| slowdown[name].as_f64().unwrap());
    let slowdowns = found["slowdowns"].as_array().unwrap().iter().map(of).collect();
    (text(&table.stdout), slowdowns)
}

/// Four ports add, and each of the two tasks asks for a quarter cycle of one alone: together for half.
/// Nothing else is guessed, so the range is that of the machine: the front end has 4 to 6 slots, of which
/// they ask for 2 at their rate of 4, so alone 4 a cycle and beside each other 2 to 3.
#[test]
fn a_known_demand_leaves_only_the_machine_open() {
    let dir = TempDir::new().unwrap();
    let program = profile(&dir, "adds", 2, None);
    let (_, mixes) = planned(&["--profile", &program]);
    let demand = write(&dir, "adds.toml", ADDS);
    let (table, known) = planned(&["--profile", &program, "--demand", &demand]);
    assert!(
        table.contains(&format!("program  0 adds: 2 threads; demand from {demand}\n")),
        "{table}"
    );
    for (mix, known) in mixes.iter().zip(&known) {
        assert!(known[2] - known[1] < 0.5 * (mix[2] - mix[1]), "{mix:?} {known:?}");
        // Four of four ports: half of the rate each.
        assert!((known[0] - 2.0).abs() < 0.01, "{known:?}");
    }
    let named = format!("0={demand}");
    assert_eq!(planned(&["--profile", &program, "--demand", &named]).1, known);
}

/// One demand vector for each thread: the second leaves everything open but its mix, which its profile
/// tells, so it is as if only the first was given.
#[test]
fn one_for_each_thread() {
    let dir = TempDir::new().unwrap();
    let program = profile(&dir, "both", 2, None);
    let both = write(&dir, "both.toml", &format!("{ADDS}\n[[phase]]\nname = \"unknown\"\n"));
    let (_, slowdowns) = planned(&["--profile", &program, "--demand", &both]);
    assert_ne!(slowdowns[0], slowdowns[1]);
    let json = r#"{"version": 1, "phase": [{}, {}, {}]}"#;
    let three = write(&dir, "three.json", json);
    let refused = plan(&["--profile", &program, "--demand", &three]);
    assert_eq!(refused.status.code(), Some(125));
    assert_eq!(
        text(&refused.stderr),
        format!(
            "colocate: cannot use demand {three}: expected 1 demand vector, or one for each of the 2 \
             threads of both, found 3\n"
        )
    );
}

/// Rates that were counted on this machine's processor make the range narrower, others do not.
#[test]
fn rates_narrow_the_range() {
    let dir = TempDir::new().unwrap();
    let of = |name: &str, counted| {
        let program = profile(&dir, name, 2, counted);
        planned(&["--profile", &program])
    };
    let width = |slowdowns: &[[f64; 3]]| slowdowns[0][2] - slowdowns[0][1];
    let (_, none) = of("none", None);
    let (table, here) = of("here", Some((EPYC, 800_000_000)));
    assert!(table.contains("program  0 here: 2 threads; rates of 2 known\n"), "{table}");
    assert!(width(&here) < width(&none), "{here:?} {none:?}");
    let (table, elsewhere) = of("elsewhere", Some(("Another\u{7} One", 800_000_000)));
    let note = "; rates counted on another processor, Another\\x07 One, not used\n";
    assert!(table.contains(note), "{table}");
    assert_eq!(elsewhere, none);
}

#[test]
fn wrong_files_are_one_line() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (profile(&dir, "one", 1, None), profile(&dir, "two", 1, None));
    let adds = write(&dir, "adds.toml", ADDS);
    let refused = |demands: &[&str], code: i32, expected: &str| {
        let mut args = vec!["--profile", &one, "--profile", &two];
        demands.iter().for_each(|demand| args.extend(["--demand", *demand]));
        let found = plan(&args);
        assert_eq!(text(&found.stderr), format!("colocate: {expected}\n"));
        assert_eq!((found.status.code(), found.stdout.len()), (Some(code), 0));
    };
    let line = write(&dir, "line.toml", "version = 1\n[[phase]]\nslots = 1.0\n");
    refused(
        &[&format!("0={line}")],
        125,
        &format!(
            "cannot use demand {line}: line 3: invalid type: floating point `1.0`, expected a figure like \
             {{ value = …, source = \"…\" }}, or \"unknown\""
        ),
    );
    let ports = "version = 1\n[[phase]]\nname = \"p\"\nwork = { value = { ports = { llvm-cpu = \
                 \"skylake\", groups = [] } }, source = \"made up\" }\n";
    let ports = write(&dir, "ports.toml", ports);
    refused(
        &[&format!("1={ports}")],
        125,
        &format!(
            "cannot use demand {ports}: demand vector 1, \"p\": expected work for the ports of znver1, \
             found that of skylake; find out the demand for this machine"
        ),
    );
    refused(
        &["0=/nowhere/d.toml"],
        125,
        "cannot use demand /nowhere/d.toml: No such file or directory (os error 2)",
    );
    refused(
        &[&adds],
        2,
        &format!("--demand {adds}: expected JOB=FILE with several profiles, found no job"),
    );
    let far = format!("2={adds}");
    refused(&[&far], 2, &format!("--demand {far}: expected a job from 0 to 1, found 2"));
    let (zero, again) = (format!("0={adds}"), format!("00={adds}"));
    refused(
        &[&zero, &again],
        2,
        &format!("--demand {again}: expected one file of job 0, found two"),
    );
    assert!(Path::new(&adds).exists());
}

/// Each of two tasks that share a core takes 4 of its 5 slots alone, by dependencies, and half of 4 to 6 beside the other. Where slots
/// were measured to within a hundredth instead of assumed to within one, the range of slowdowns is narrower.
#[test]
fn measured_figures_narrow_the_range() {
    let dir = TempDir::new().unwrap();
    let program = profile(&dir, "adds", 2, None);
    let demand = write(
        &dir,
        "chains.toml",
        &ADDS.replace("int = 1.0", "int = 0.4").replace("value = 0.2", "value = 0.25"),
    );
    let ours = || Command::new(env!("CARGO_BIN_EXE_colocate"));
    let machine = ours().args(["topo", "--json", "--machine", "epyc-7301"]).output().unwrap();
    let mut machine: Value = serde_json::from_slice(&machine.stdout).unwrap();
    let width = |machine: &Value, name: &str| {
        let path = write(&dir, name, &machine.to_string());
        let args = ["plan", "--json", "--cpus", "0,32", "--machine", &path];
        let args = [&args[..], &["--profile", &program, "--demand", &demand]].concat();
        let found: Value =
            serde_json::from_slice(&ours().args(args).output().unwrap().stdout).unwrap();
        let of = |end: &str| found["slowdowns"][0][end].as_f64().unwrap();
        of("most") - of("least")
    };
    let assumed = width(&machine, "described.json");
    let slots = &machine["performance"]["kinds"][0]["width"].as_f64().unwrap();
    machine["calibration"] = json!({
        "identity": "0000000000000000", "kernel": null, "started_unix_s": 1, "seconds": 1.0,
        "figures": [{
            "what": { "figure": "slots", "kind": "core" }, "unit": "per-cycle", "value": slots,
            "low": slots - 0.01, "high": slots + 0.01, "unix_s": 1, "source": "made up",
        }],
        "assumed": [], "absent": [], "disagreements": [],
    });
    let measured = width(&machine, "measured.json");
    assert!(measured < assumed / 10.0, "{measured} of {assumed}");
}
