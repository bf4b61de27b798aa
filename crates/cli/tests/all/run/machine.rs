//! PUs that come and go.

use super::run;
use crate::run_support::{
    Cpuset, Scratch, await_that, child_called, masks, original, stands, text,
};
use colocate_testing::skip::{Missing, Requirement};
use colocate_testing::{EndsInTime, need};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The cpuset shrinks to one PU while the program runs: planned again, and nothing is placed.
#[test]
fn a_cpuset_that_shrinks() {
    let cpuset = need!(Cpuset::new());
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    let mut command = cpuset.command();
    scratch.homes(&mut command);
    command.arg(env!("CARGO_BIN_EXE_colocate")).args(["run", "--no-guard", "--policy", "scatter"]);
    command.args(["--settle-ms", "0", "--json", "-o"]).arg(scratch.path("report")).arg("--");
    command.arg(threads).args(["0", "3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    let first = original().split([',', '-']).next().unwrap().to_owned();
    cpuset.set_to(&first);
    // The journal says when none is put anywhere any more: there is one PU.
    await_that("planned again", || {
        scratch.marks().iter().all(|(_, _, mark)| mark == "-").then_some(())
    });
    await_that("all on the PU that is left", || {
        masks(pid).iter().all(|mask| *mask == first).then_some(())
    });
    drop(child.stdin.take());
    assert!(child.ended().success());
    let report = scratch.report();
    let causes: Vec<&Value> =
        report["plans"].as_array().unwrap().iter().map(|plan| &plan["cause"]).collect();
    assert_eq!(causes, ["launch", "machine-changed"]);
    assert_eq!(report["machine"]["usable"], first);
}

/// Takes a PU offline. That disturbs the whole machine, so it is asked for by name, and one test
/// does it at a time. When this is dropped the PU is online, whatever became of the test.
struct Switch {
    file: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Switch {
    fn asked_for() -> Result<Self, Missing> {
        static TURN: Mutex<()> = Mutex::new(());
        const REMEDY: &str = "set COLOCATE_TEST_OFFLINE to a file like .../cpu1/online to run it";
        let file = std::env::var_os("COLOCATE_TEST_OFFLINE");
        let file = file.ok_or_else(|| Requirement::OfflinePu.missing(REMEDY))?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { file: file.into(), _turn: turn })
    }

    fn set(&self, online: bool) {
        std::fs::write(&self.file, if online { "1" } else { "0" }).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// A PU is offline when colocate starts. Programs inherit the mask that knows of it, so that they
/// use it when it comes back.
#[test]
fn a_pu_that_is_offline_at_the_start() {
    let switch = need!(Switch::asked_for());
    let scratch = Scratch::new();
    let grep = ["grep", "Cpus_allowed:", "/proc/self/status"];
    switch.set(false);
    let bare = Command::new(grep[0]).args(&grep[1..]).output().unwrap();
    let ours = run(&scratch, &["--policy", "os"], &grep);
    drop(switch);
    assert_eq!(text(&ours.stdout), text(&bare.stdout));
}

/// A PU goes offline and comes back.
#[test]
fn a_pu_that_goes_offline() {
    let switch = need!(Switch::asked_for());
    let scratch = Scratch::new();
    let pu = switch.file.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let pu = pu.strip_prefix("cpu").unwrap();
    let used = || scratch.marks().iter().any(|(_, _, mark)| mark == pu);
    // One program a PU, busy until the file is gone, as idle ones are not planned for.
    let go_on = scratch.path("go-on");
    std::fs::write(&go_on, "").unwrap();
    let program =
        ["sh".into(), "-c".into(), format!("while [ -e {} ]; do :; done", go_on.display())];
    let pus = std::thread::available_parallelism().unwrap().get();
    let words = vec![program.to_vec(); pus].join(&":::".to_owned());
    let mut command = scratch.run(&["--policy", "round-robin", "--settle-ms", "0"]);
    let mut child = command.args(words).spawn().unwrap();
    scratch.await_placed(pus);
    assert!(used());
    switch.set(false);
    await_that("the lost PU is left", || (!used()).then_some(()));
    // On one PU nothing is placed.
    if pus > 2 {
        scratch.await_placed(pus);
    }
    switch.set(true);
    await_that("the PU that is back is used", || used().then_some(()));
    scratch.await_placed(pus);
    std::fs::remove_file(&go_on).unwrap();
    assert!(child.ended().success());
    let report = scratch.report();
    let causes: Vec<&Value> =
        report["plans"].as_array().unwrap().iter().map(|plan| &plan["cause"]).collect();
    assert_eq!(causes, ["launch", "machine-changed", "machine-changed"]);
    assert!(stands(&report).iter().all(|stand| stand == "placed"), "{report}");
}
