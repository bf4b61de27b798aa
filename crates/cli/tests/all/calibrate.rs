//! A whole run of `colocate calibrate`, with the fewest rounds: what is printed and kept is checked, not what was measured.

use colocate_machine::calibrated::Quantity;
use colocate_machine::exact::Exact;
use colocate_machine::{CoreKind, KindIdx};
use colocate_testing::printed::{conforms, printed, refusal};
use colocate_testing::skip;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const SCHEMA: &str = include_str!("../../../../docs/schemas/machine.json");

fn colocate(state: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
    command.args(args).env("XDG_STATE_HOME", state);
    command
}

/// Measures once, since that takes seconds; then everything that uses it.
#[test]
fn measured_once_and_used() {
    let state = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| colocate(state.path(), args).output().unwrap();
    let text = printed(&run(&["calibrate", "--repeat", "3", "--force", "--json"]));
    conforms(&serde_json::from_str::<Value>(&text).unwrap(), SCHEMA);
    let exact = Exact::from_json(&text).unwrap();
    let found = exact.calibration.as_ref().unwrap();
    assert!(
        found.figures.iter().any(|figure| figure.what.to_string() == "round trip, same PU, idle")
    );
    let files: Vec<_> = std::fs::read_dir(state.path().join("colocate")).unwrap().collect();
    let file = files[0].as_ref().unwrap().path();
    assert_eq!((files.len(), std::fs::read_to_string(&file).unwrap()), (1, text.clone()));

    assert_eq!(printed(&run(&["calibrate", "--show", "--json"])), text);
    let shown = printed(&run(&["calibrate", "--show"]));
    assert!(shown.starts_with("machine  ") && shown.contains("95 % interval"), "{shown}");
    let topo = printed(&run(&["topo"]));
    assert!(topo.contains("\nmeasured 20") && topo.contains("round trip, same PU, idle"), "{topo}");
    // It is a machine as any other.
    let path = state.path().join("copy.json");
    std::fs::write(&path, &text).unwrap();
    assert!(
        printed(&run(&["topo", "--machine", path.to_str().unwrap()])).contains("\nmeasured 20")
    );
    // In a container without reported caches there are no speeds, and that is said.
    if exact.performance.is_none() {
        assert!(found.absent.iter().any(|line| line.starts_with("speeds that predictions need")));
        skip!(CacheSizes, "there are no speeds: {:?}", found.absent);
    }
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/profile.json");
    let plan = |machine: &str| {
        let done =
            run(&["plan", "--json", "--machine", machine, "--profile", profile.to_str().unwrap()]);
        serde_json::from_str::<Value>(&printed(&done)).unwrap()
    };
    assert!(plan(path.to_str().unwrap())["slowdowns"].is_array());

    only_some_parts(&run, &exact);
    kept_machines_are_imported(&run, &exact, &path);

    assert_eq!(printed(&run(&["calibrate", "--forget"])), format!("removed {}\n", file.display()));
    assert!(!file.exists());
    let again = printed(&run(&["calibrate", "--forget"]));
    assert_eq!(again, format!("there is no {}\n", file.display()));

    // What cannot be read is one line, and no reason not to run programs.
    std::fs::write(&file, "{").unwrap();
    let error = refusal(&run(&["topo"]), 125);
    assert!(error.contains(&*file.to_string_lossy()) && error.lines().count() == 1, "{error}");
    assert!(run(&["run", "-q", "--", "true"]).status.success());
}

/// Parts that are not measured again keep their figures; speeds are new.
fn only_some_parts(run: &dyn Fn(&[&str]) -> Output, before: &Exact) {
    let words = ["calibrate", "--only", "siblings", "--repeat", "3", "--force", "--json"];
    let after = Exact::from_json(&printed(&run(&words))).unwrap().calibration.unwrap();
    let before = before.calibration.as_ref().unwrap();
    for figure in &before.figures {
        let again = after.get(&figure.what);
        match figure.what {
            Quantity::Steal { .. } | Quantity::Away { .. } | Quantity::WakeUp { .. } => {
                assert_eq!(again, Some(figure));
            }
            Quantity::Speed { .. } => assert!(again.unwrap().unix_s >= figure.unix_s),
            _ => {}
        }
    }
    assert!(after.seconds < before.seconds, "{} of {}", after.seconds, before.seconds);
}

/// Measured kinds of cores are used and reported; another machine's file is refused in a line.
fn kept_machines_are_imported(run: &dyn Fn(&[&str]) -> Output, exact: &Exact, path: &Path) {
    let mut exact = exact.clone();
    (exact.performance, exact.calibration) = (None, None);
    std::fs::write(path, exact.to_json()).unwrap();
    let import = ["calibrate", "--json", "--import", path.to_str().unwrap()];
    let error = refusal(&run(&import), 125);
    assert!(error.ends_with(", found a machine without any\n"), "{error}");

    // Kinds are measured, too.
    exact.machine.kinds =
        vec![CoreKind { name: "invented".into(), capacity: Some(1024), max_frequency: None }];
    exact.machine.cores.iter_mut().for_each(|core| core.kind = KindIdx(0));
    std::fs::write(path, exact.to_json()).unwrap();
    assert_eq!(printed(&run(&import)), exact.to_json());
    let done = run(&["schedule", "--policy", "os", "--json", "--", "true"]);
    let said = String::from_utf8(done.stderr).unwrap();
    let note = "kinds of cores as measured (colocate calibrate): invented, capacity 1024: PU ";
    assert!(done.status.success() && said.contains(note), "{said}");

    exact.machine.processor = Some("Other 9000".into());
    std::fs::write(path, exact.to_json()).unwrap();
    let error = refusal(&run(&import), 125);
    assert!(error.ends_with(", found Other 9000\n") && error.lines().count() == 1, "{error}");
}

/// Speeds of cores alone are not what predictions need, and `doctor` shows it.
#[test]
fn a_part_is_no_whole_calibration() {
    let state = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| colocate(state.path(), args).output().unwrap();
    printed(&run(&["calibrate", "--only", "speeds", "--repeat", "3", "--force"]));
    let found = String::from_utf8(run(&["doctor"]).stdout).unwrap();
    let line = found.lines().find(|line| line.contains(" calibration ")).unwrap();
    assert!(line.trim_start().starts_with("partly"), "{line}");
    assert!(line.ends_with("without speeds that predictions need"), "{line}");
}

#[test]
fn the_new_place_of_core_speeds_is_named() {
    let state = tempfile::tempdir().unwrap();
    let done = colocate(state.path(), &["schedule", "--core-speeds", "x", "--", "true"]).output();
    let line = "colocate: `--core-speeds` is `colocate calibrate --only speeds` now\n";
    assert_eq!(refusal(&done.unwrap(), 2), line);
}

#[test]
fn nothing_is_kept_before_it_is_measured() {
    let state = tempfile::tempdir().unwrap();
    let error = refusal(&colocate(state.path(), &["calibrate", "--show"]).output().unwrap(), 125);
    // Root's own may be there.
    if !Path::new("/var/lib/colocate").exists() {
        assert_eq!(
            error,
            "colocate: expected measurements of this machine, found none: colocate calibrate measures it\n"
        );
    }
}

/// Beside a busy loop.
#[test]
fn a_busy_machine_is_not_measured() {
    let state = tempfile::tempdir().unwrap();
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let done = colocate(state.path(), &["calibrate", "--repeat", "3"]).output();
    busy.kill().unwrap();
    busy.wait().unwrap();
    let error = refusal(&done.unwrap(), 125);
    assert!(
        error.starts_with("colocate: expected an idle machine, found other programs that keep ")
            && error.contains("--force")
            && error.lines().count() == 1,
        "{error}"
    );
    assert!(!state.path().join("colocate").exists());
}

#[test]
fn what_cannot_be_kept_is_not_measured() {
    let state = tempfile::NamedTempFile::new().unwrap();
    let begin = std::time::Instant::now();
    let error = refusal(&colocate(state.path(), &["calibrate", "--force"]).output().unwrap(), 125);
    assert!(
        error.contains(&*state.path().to_string_lossy()) && error.lines().count() == 1,
        "{error}"
    );
    assert!(begin.elapsed().as_secs() < 5, "nothing is measured first");
}
