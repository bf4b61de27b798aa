//! Whole runs of `colocate compare`. Every one says --not-alone, because tests run side by side.

use crate::run_support::copy_program;
use colocate_testing::EndsInTime;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

fn compare(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(["compare", "--not-alone", "--quiet", "-o", "out"]).args(args);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
}

/// Runs the comparison and expects it to end well; returns its JSON.
fn done(dir: &Path, args: &[&str]) -> serde_json::Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let output = compare(dir, &all).output().unwrap();
    assert_eq!(said(&output), (Some(0), String::new()));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = compare(dir, args).output().unwrap();
    assert!(output.stdout.is_empty());
    said(&output)
}

/// What was measured so far, after checking it against its schema.
fn state(dir: &Path) -> serde_json::Value {
    state_in(&dir.join("out"))
}

fn state_in(dir: &Path) -> serde_json::Value {
    let text = fs::read_to_string(dir.join("state.json")).unwrap();
    let found = serde_json::from_str(&text).unwrap();
    keeps_to_schema(include_str!("../../../../docs/schemas/state.json"), &found);
    found
}

fn keeps_to_schema(schema: &str, found: &serde_json::Value) {
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let wrong: Vec<String> = schema.iter_errors(found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?} in {found}");
}

fn count(value: &serde_json::Value, list: &str) -> usize {
    value[list].as_array().unwrap().len()
}

/// Waits until `path` has something in it. A minute is not a measurement, only the end of patience.
fn wait_for(path: &Path) -> String {
    for _ in 0..1_200 {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    panic!("{} never came", path.display());
}

fn kill(signal: &str, pid: &str) {
    let killed = Command::new("kill").args([signal, pid]).status().unwrap();
    assert!(killed.success(), "kill {signal} {pid}");
}

const BARE: [&str; 4] = ["--policies", "bare", "--baseline", "bare"];

fn bare<'a>(more: &[&'a str]) -> Vec<&'a str> {
    BARE.iter().chain(more).copied().collect()
}

#[test]
fn a_comparison_is_whole_and_keeps_to_its_schema() {
    let dir = TempDir::new().unwrap();
    let args = ["--policies", "bare,os,scatter", "-n", "3", "--seed", "5", "--name", "two"];
    let found = done(dir.path(), &[&args[..], &["--", "true", ":::", "true"]].concat());
    keeps_to_schema(include_str!("../../../../docs/schemas/comparison.json"), &found);
    assert_eq!((count(&found, "runs"), found["complete"].as_bool()), (9, Some(true)));
    assert_eq!(found["settings"]["name"], "two");
    let policies = found["policies"].as_array().unwrap();
    assert_eq!(policies[1]["verdict"], "baseline");
    for figures in policies {
        assert_eq!(figures["slowest_seconds"]["count"], 3);
        assert_eq!(figures["jobs"].as_array().unwrap().len(), 2);
    }
    for block in found["runs"].as_array().unwrap().chunks(3) {
        let mut names: Vec<&str> =
            block.iter().map(|run| run["policy"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["bare", "os", "scatter"]);
    }
}

/// A server that never ends by itself, and a client that fails before it is ready; without colocate and with it, and resumed.
#[test]
fn a_server_and_its_client() {
    let dir = TempDir::new().unwrap();
    let server =
        "trap 'rm ready; exit 0' TERM; sleep 0.3; echo >ready; while :; do sleep 0.05; done";
    let programs = ["--", "sh", "-c", server, ":::", "test", "-e", "ready"];
    let args = ["--policies", "bare,os", "-n", "2", "--ready", "file:ready"];
    let first = done(dir.path(), &[&args[..], &programs].concat());
    assert_eq!(
        (count(&first, "runs"), &first["settings"]["server"]["ready"]),
        (4, &"file:ready".into())
    );
    let mut cut = state(dir.path());
    cut["runs"].as_array_mut().unwrap().truncate(1);
    fs::write(dir.path().join("out/state.json"), cut.to_string()).unwrap();
    assert_eq!(count(&done(dir.path(), &["--resume"]), "runs"), 4);
    fs::write(dir.path().join("ready"), "").unwrap();
    fs::remove_dir_all(dir.path().join("out")).unwrap();
    let (code, line) = refused(dir.path(), &[&args[..], &programs].concat());
    assert_eq!(code, Some(125));
    assert!(line.contains("expected no file:ready before sh is started, found one"), "{line}");
}

/// A server that never ends by itself, and a load generator that fails before it is ready.
const SERVER_AND_LOAD: &str = r#"
version = 1
repetitions = 2
ways = ["bare", "os", "env EXTRA=0", "attach --policy os"]
score = [
    { name = "requests", from = "output:requests:", better = "more" },
    { name = "whole, s", from = "elapsed", better = "less" },
]
prepare = '''
echo once >>prepared
cat >server.sh <<'SH'
trap 'rm ready; exit 0' TERM
echo >ready
while :; do sleep 0.05; done
SH
cat >load.sh <<'SH'
test -e ready || exit 1
sleep 0.5
echo "requests: $1${EXTRA-}"
SH
'''

[[workload]]
name = "fake, {clients} clients"
each = { clients = ["1", "8"] }
programs = ["exec sh server.sh", ["sh", "load.sh", "{clients}"]]
ready = "file:ready"
"#;

/// All comparisons of a measurement file `m.toml` in `dir`.
fn measured(dir: &Path, args: &[&str]) -> Vec<serde_json::Value> {
    let output = compare(dir, &[&["--json", "--file", "m.toml"], args].concat()).output().unwrap();
    assert_eq!(said(&output), (Some(0), String::new()));
    let found = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let found: Vec<serde_json::Value> = found.map(Result::unwrap).collect();
    for one in &found {
        keeps_to_schema(include_str!("../../../../docs/schemas/comparison.json"), one);
    }
    found
}

/// With `EXTRA=0` the load generator prints ten times as many requests.
#[test]
fn a_file_measures_servers_and_goes_on_later() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("m.toml"), SERVER_AND_LOAD).unwrap();
    let found = measured(dir.path(), &[]);
    assert_eq!(found.len(), 2);
    let [first, second] =
        ["fake,-1-clients", "fake,-8-clients"].map(|name| dir.path().join("out").join(name));
    for (one, requests) in found.iter().zip([1.0, 8.0]) {
        assert_eq!(count(one, "runs"), 8);
        let policies = one["policies"].as_array().unwrap();
        let medians = policies.iter().map(|it| it["scores"][0]["values"]["median"].as_f64());
        let medians: Vec<f64> = medians.map(Option::unwrap).collect();
        assert_eq!(medians, [1.0, 1.0, 10.0, 1.0].map(|factor| factor * requests));
        assert_eq!(policies[2]["scores"][0]["verdict"], "better");
        let whole = &one["policies"][0]["scores"][1]["values"]["min"];
        assert!(whole.as_f64().unwrap() >= 0.5, "{whole}");
    }
    let mut cut = state_in(&first);
    cut["runs"].as_array_mut().unwrap().truncate(3);
    fs::write(first.join("state.json"), cut.to_string()).unwrap();
    fs::remove_dir_all(&second).unwrap();
    let resumed = measured(dir.path(), &["--resume"]);
    assert_eq!(resumed.iter().map(|one| count(one, "runs")).collect::<Vec<_>>(), [8, 8]);
    assert_eq!(
        resumed[0]["runs"].as_array().unwrap()[..3],
        found[0]["runs"].as_array().unwrap()[..3]
    );
    assert_eq!(fs::read_to_string(dir.path().join("out/work/prepared")).unwrap(), "once\n");
    let (code, line) = refused(dir.path(), &["--file", "m.toml", "--only", "8 clients"]);
    assert_eq!(code, Some(125));
    assert!(line.contains("holds a comparison already"), "{line}");
}

/// Prepared by other commands, or in use: in both cases the runs would not be those of the file.
#[test]
fn a_directory_has_one_preparation_and_one_comparison() {
    let dir = TempDir::new().unwrap();
    let file = |prepare: &str, name: &str| {
        let text = format!(
            "version = 1\nrepetitions = 1\nways = [\"bare\"]\nprepare = \"{prepare}\"\n\
             workload = [{{ name = \"{name}\", programs = [[\"true\"]] }}]\n"
        );
        fs::write(dir.path().join("m.toml"), text).unwrap();
    };
    file("echo one > data", "a");
    assert_eq!(measured(dir.path(), &[]).len(), 1);
    file("echo one > data", "b");
    let held = fs::File::open(dir.path().join("out")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let (code, line) = refused(dir.path(), &["--file", "m.toml"]);
    assert_eq!(code, Some(125));
    assert!(line.contains("another comparison is running in out"), "{line}");
    drop(held);
    assert_eq!(measured(dir.path(), &[]).len(), 1);
    file("echo two > data", "c");
    let (code, line) = refused(dir.path(), &["--file", "m.toml"]);
    assert_eq!(code, Some(125));
    assert!(line.contains("was prepared by other commands"), "{line}");
}

#[test]
fn a_file_reads_reports_of_run_and_schedule() {
    let dir = TempDir::new().unwrap();
    let file = r#"
version = 1
repetitions = 1
ways = ["run --policy os", "schedule --policy os"]
score = [
    { name = "version", from = "report:/version", better = "less" },
    { name = "CPU time, s", from = "cpu", better = "less" },
]
workload = [{ name = "true", programs = [["true"]] }, { name = "left out", programs = [["false"]] }]
"#;
    fs::write(dir.path().join("m.toml"), file).unwrap();
    let found = measured(dir.path(), &["--only", "true"]);
    assert_eq!(found.len(), 1);
    for figures in found[0]["policies"].as_array().unwrap() {
        assert_eq!(figures["scores"][0]["values"]["median"], 4.0);
        assert!(figures["scores"][1]["values"]["median"].as_f64().unwrap() > 0.0);
    }
    let shown = fs::read_to_string(dir.path().join("out/true/comparison.txt")).unwrap();
    assert!(shown.contains("\nCPU time, s\npolicy "), "{shown}");
}

/// A program beside each run of the second workload, which the programs wait for; it is gone afterwards, and what it started in another session.
#[test]
fn programs_beside_a_run_are_not_watched_and_end_with_it() {
    let dir = TempDir::new().unwrap();
    let file = r#"
version = 1
repetitions = 1
ways = ["bare", "os"]

[[workload]]
name = "beside {count}"
each = { count = ["0", "1"] }
programs = ["[ {count} = 0 ] || until [ -s begun ]; do :; done; rm -f begun"]
beside = ["[ {count} = 0 ] || { setsid sleep 1000 & echo $$ $! | tee -a pids >begun; wait; }"]
"#;
    fs::write(dir.path().join("m.toml"), file).unwrap();
    let found = measured(dir.path(), &[]);
    assert_eq!(found[1]["settings"]["beside"][0][2].as_str().unwrap().get(..5), Some("[ 1 ="));
    let pids = fs::read_to_string(dir.path().join("out/work/pids")).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 4, "{pids:?}");
    pids.iter().for_each(|pid| wait_for_end(pid));
    let report = fs::read_to_string(dir.path().join("out/beside-1/reports/0001-os.json"))
        .or_else(|_| fs::read_to_string(dir.path().join("out/beside-1/reports/0002-os.json")));
    assert!(!report.unwrap().contains("sleep"));
}

#[test]
fn a_wrong_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let good =
        "version = 1\nways = [\"bare\"]\nworkload = [{ name = \"a\", programs = [[\"true\"]] }]\n";
    let score = "score = [{ name = \"a\", from = \"wall\", better = \"less\" }]\n";
    let wrong = [
        (good.replace("= 1", "= 9"), "expected version 1"),
        (good.replace("bare", "no-policy"), "no-policy"),
        (good.replace("ways", "wys"), "unknown field `wys`"),
        (format!("{score}{good}"), "expected a score from output:KEY"),
        (format!("prepare = \"exit 7\"\n{good}"), "the preparation ended with status 7"),
        (good.replace("true", "false"), "go on with `colocate compare --file "),
    ];
    for (text, expected) in wrong {
        fs::write(dir.path().join("m.toml"), &text).unwrap();
        let (_, line) = refused(dir.path(), &["--file", "m.toml"]);
        assert!(line.contains(expected), "{line}");
    }
    let (_, line) = refused(dir.path(), &["--file", "m.toml", "--only", "b"]);
    assert!(line.contains("--only: expected a part of one of: a, found b"), "{line}");
}

#[test]
fn the_table_the_picture_and_the_logs_are_kept() {
    let dir = TempDir::new().unwrap();
    let args = bare(&["-n", "2", "--", "sh", "-c", "echo out; echo err >&2", ":::", "true"]);
    let output = compare(dir.path(), &args).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("workload sh+true: 2 programs together"), "{shown}");
    let out = dir.path().join("out");
    assert!(shown.starts_with(&fs::read_to_string(out.join("comparison.txt")).unwrap()));
    assert!(fs::read_to_string(out.join("comparison.svg")).unwrap().starts_with("<svg"));
    for log in ["0001-bare.log", "0002-bare.log"] {
        let log = fs::read_to_string(out.join("logs").join(log)).unwrap();
        assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    }
}

#[test]
fn what_has_run_is_not_run_again() {
    let dir = TempDir::new().unwrap();
    let args = bare(&["-n", "3", "--", "sh", "-c", "echo run >> count"]);
    let first = done(dir.path(), &args);
    let mut cut = state(dir.path());
    cut["runs"].as_array_mut().unwrap().truncate(1);
    fs::write(dir.path().join("out/state.json"), cut.to_string()).unwrap();
    let second = done(dir.path(), &["--resume"]);
    assert_eq!(first["runs"][0], second["runs"][0]);
    assert_eq!(count(&second, "runs"), 3);
    assert_eq!(fs::read_to_string(dir.path().join("count")).unwrap().lines().count(), 5);
}

#[test]
fn a_directory_belongs_to_one_comparison() {
    let dir = TempDir::new().unwrap();
    let command = ["-n", "2", "--", "true"];
    done(dir.path(), &bare(&command));
    assert_eq!(
        refused(dir.path(), &bare(&command)),
        (
            Some(125),
            "colocate: out holds a comparison already: go on with --resume, or name another \
             directory with -o"
                .to_owned()
        )
    );
    assert_eq!(
        refused(dir.path(), &bare(&["--resume", "-n", "2", "--", "false"])),
        (
            Some(125),
            "colocate: cannot go on with out/state.json: expected the workload of the comparison \
             begun here, `true`, found `false`"
                .to_owned()
        )
    );
    let (code, line) = refused(dir.path(), &["--resume", "-n", "9"]);
    assert_eq!(code, Some(125));
    assert!(line.ends_with("begun here, 2 with seed 1, found 9 with seed 1"), "{line}");
    fs::write(dir.path().join("out/state.json"), "{\"version\": 1,").unwrap();
    let (code, line) = refused(dir.path(), &["--resume"]);
    assert_eq!(code, Some(125));
    assert!(line.starts_with("colocate: cannot go on with out/state.json: expected the state"));
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn a_changed_program_is_refused() {
    let dir = TempDir::new().unwrap();
    let program = dir.path().join("program");
    copy_program(Path::new(env!("CARGO_BIN_EXE_colocate")), &program);
    done(dir.path(), &bare(&["-n", "1", "--", "./program", "--version"]));
    // Another file of the same name: the first one could still be executing.
    fs::remove_file(&program).unwrap();
    copy_program(Path::new("/bin/true"), &program);
    let (code, line) = refused(dir.path(), &["--resume"]);
    assert_eq!(code, Some(125));
    let expected = "expected the executable of the comparison begun here, ./program as ";
    assert!(line.contains(expected), "{line}");
}

#[test]
fn a_failing_program_stops_the_comparison_and_is_recorded() {
    let dir = TempDir::new().unwrap();
    let command = ["sh", "-c", "echo ran >> count; test -e good || exit 7"];
    let args = bare(&[&["-n", "2", "--", "true", ":::"][..], &command].concat());
    let (code, line) = refused(dir.path(), &args);
    assert_eq!(code, Some(125));
    assert_eq!(
        line,
        "colocate: `sh -c echo ran >> count; test -e good || exit 7` ended with status 7 in run 1 \
         of 2 (policy bare): the comparison has stopped; its output is in out/logs/0001-bare.log; \
         go on with `colocate compare --resume -o out`"
    );
    assert_eq!((count(&state(dir.path()), "failures"), count(&state(dir.path()), "runs")), (1, 0));
    fs::write(dir.path().join("good"), "").unwrap();
    let found = done(dir.path(), &["--resume"]);
    assert_eq!((count(&found, "failures"), count(&found, "runs")), (1, 2));
    let told = "1 runs in which a program failed are in no figure";
    assert!(found["notes"].as_array().unwrap().iter().any(|note| note == told), "{found}");
}

/// The second run hangs until it is killed; the third one that is begun does not.
const SECOND_HANGS: &str =
    "echo run >> count; [ $(wc -l < count) = 2 ] || exit 0; echo $$ > pid; exec sleep 3600";

#[test]
fn a_signal_ends_the_programs_and_the_comparison_goes_on_later() {
    let dir = TempDir::new().unwrap();
    let args = bare(&["-n", "3", "--", "sh", "-c", SECOND_HANGS]);
    let child = compare(dir.path(), &args).stderr(Stdio::piped()).spawn().unwrap();
    let program = wait_for(&dir.path().join("pid"));
    kill("-TERM", &child.id().to_string());
    let ended = child.ended_with_output();
    let line = "colocate: stopped after 1 of 3 runs; go on with `colocate compare --resume -o out`";
    assert_eq!(said(&ended), (Some(130), line.to_owned()));
    assert!(!Path::new("/proc").join(program).exists(), "the program still runs");
    assert_eq!(count(&done(dir.path(), &["--resume"]), "runs"), 3);
}

/// Waits until a process has ended; somebody else may be slow to ask how it did.
fn wait_for_end(pid: &str) {
    let stat = Path::new("/proc").join(pid).join("stat");
    for _ in 0..1_200 {
        match fs::read_to_string(&stat) {
            Ok(line) if !line.contains(") Z ") => std::thread::sleep(Duration::from_millis(50)),
            _ => return,
        }
    }
    panic!("{pid} still runs");
}

#[test]
fn kill_nine_ends_the_programs_and_loses_no_finished_run() {
    for policy in ["bare", "os"] {
        let dir = TempDir::new().unwrap();
        let args = ["--policies", policy, "--baseline", policy, "-n", "3", "--"];
        let args = [&args[..], &["sh", "-c", SECOND_HANGS]].concat();
        let mut child = compare(dir.path(), &args).spawn().unwrap();
        let program = wait_for(&dir.path().join("pid"));
        child.kill().unwrap();
        child.ended();
        wait_for_end(&program);
        assert_eq!(count(&state(dir.path()), "runs"), 1, "{policy}");
        assert_eq!(count(&done(dir.path(), &["--resume"]), "runs"), 3, "{policy}");
    }
}

/// A program may ignore the first signal, and what it started may too.
#[test]
fn a_second_signal_kills() {
    for policy in ["bare", "os"] {
        let dir = TempDir::new().unwrap();
        let args = ["--policies", policy, "--baseline", policy, "-n", "1", "--"];
        let program =
            ["sh", "-c", "trap '' TERM; echo $$ > parent; sh -c 'echo $$ > pid; sleep 3600'"];
        let mut child = compare(dir.path(), &[&args[..], &program].concat()).spawn().unwrap();
        let pids = ["parent", "pid"].map(|file| wait_for(&dir.path().join(file)));
        let mut patience = 600;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            patience -= 1;
            assert!(patience > 0, "{policy}: it does not end");
            kill("-TERM", &child.id().to_string());
            std::thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(status.code(), Some(130), "{policy}");
        pids.iter().for_each(|pid| wait_for_end(pid));
    }
}

/// As after `nohup`: the terminal goes, the comparison stays. A hangup that is not ignored would end
/// it in the first run.
#[test]
fn an_ignored_hangup_stays_ignored() {
    let dir = TempDir::new().unwrap();
    let line = format!(
        "trap '' HUP; exec {} compare --not-alone --quiet -o out --policies bare --baseline bare \
         -n 2 -- sh -c 'kill -HUP $PPID'",
        env!("CARGO_BIN_EXE_colocate")
    );
    let ended = Command::new("sh").args(["-c", &line]).current_dir(dir.path()).output().unwrap();
    assert_eq!(said(&ended), (Some(0), String::new()));
}

/// The report of an earlier attempt must not stand for a run whose `colocate run` left none.
#[test]
fn an_old_report_is_not_taken_for_a_new_one() {
    let dir = TempDir::new().unwrap();
    done(
        dir.path(),
        &["--policies", "os", "-n", "1", "--", "sh", "-c", "test ! -e bad || kill -9 $PPID"],
    );
    let mut cut = state(dir.path());
    cut["runs"].as_array_mut().unwrap().clear();
    fs::write(dir.path().join("out/state.json"), cut.to_string()).unwrap();
    fs::write(dir.path().join("bad"), "").unwrap();
    let (code, line) = refused(dir.path(), &["--resume"]);
    assert_eq!(code, Some(125), "{line}");
    assert!(line.contains("colocate run ended with status 137"), "{line}");
    assert_eq!(count(&state(dir.path()), "runs"), 0);
}

#[test]
fn two_comparisons_do_not_overlap() {
    let dir = TempDir::new().unwrap();
    let address = SocketAddr::from_abstract_name("colocate-compare").unwrap();
    // Held by somebody already is as good as held by us.
    let _held = UnixListener::bind_addr(&address);
    let output = Command::new(env!("CARGO_BIN_EXE_colocate"))
        .args(["compare", "-o", "out", "--", "true"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let (code, line) = said(&output);
    assert_eq!(code, Some(125));
    assert!(line.starts_with("colocate: another `colocate compare` is running"), "{line}");
    assert!(!dir.path().join("out").exists());
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let dir = TempDir::new().unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--", "no-such-program-here"], 127, "command not found"),
        (&["--", "true", ":::"], 125, "expected a program on both sides of `:::`, found none"),
        (&["--policies", "best", "--", "true"], 2, "found policy \"best\""),
        (&["--policies", "mix,mix", "--", "true"], 2, "expected every policy once"),
        (
            &["--policies", "mix", "--baseline", "os", "--", "true"],
            2,
            "expected the baseline among",
        ),
        (&["--policies", "profile", "--", "true", ":::", "true"], 2, "profile has one program"),
        (&["--resume"], 125, "expected a comparison to resume in out, found none"),
    ];
    for (args, code, part) in cases {
        let (found, line) = refused(dir.path(), args);
        assert_eq!(found, Some(code), "{line}");
        assert!(line.contains(part) && line.lines().count() == 1, "{line}");
        assert!(!dir.path().join("out").exists(), "{args:?} left something behind");
    }
    for args in [&["-n", "0", "--", "true"][..], &["-n", "10001", "--", "true"], &[]] {
        assert_eq!(refused(dir.path(), args).0, Some(2), "{args:?}");
    }
}
