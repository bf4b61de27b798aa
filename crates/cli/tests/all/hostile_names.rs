//! Whole runs with names that would drive a terminal or forge a line: every byte that colocate writes is looked at.

use crate::run_support::{Scratch, await_that, copy_program, script};
use crate::terminal_support::Pty;
use colocate_testing::hostile::{HOSTILE, check, file_name, quoted};
use colocate_testing::{EndsInTime, skip};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A folder with programs and files that have hostile names.
struct Place(Scratch);

impl Place {
    fn new() -> Self {
        Self(Scratch::new())
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.0.path(&format!("{HOSTILE}{ending}"))
    }

    /// A program of a hostile name that sleeps.
    fn sleeper(&self) -> PathBuf {
        let path = self.0.dir.path().join(file_name());
        if !path.exists() {
            let found = ["/bin/sleep", "/usr/bin/sleep"].map(Path::new);
            let sleep = found.into_iter().find(|path| path.exists()).unwrap();
            copy_program(sleep, &path);
        }
        path
    }

    /// A program whose name is UTF-8, which `compare` and files need, that sleeps for so many seconds.
    fn script(&self, seconds: &str) -> PathBuf {
        let path = self.path("");
        script(&path, &format!("#!/bin/sh\nexec sleep {seconds}\n"));
        path
    }

    fn file(&self, ending: &str, text: &str) -> PathBuf {
        let path = self.path(ending);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs colocate and checks what it prints.
    fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = self.0.colocate();
        command.args(args).stdin(Stdio::null()).current_dir(self.0.dir.path());
        let output = command.output().unwrap();
        let what: Vec<_> = args.iter().map(AsRef::as_ref).collect();
        check(&format!("{what:?}: standard output"), &output.stdout);
        check(&format!("{what:?}: standard error"), &output.stderr);
        output
    }

    /// The same, of a run that must end with this code.
    fn ends<S: AsRef<OsStr>>(&self, code: i32, args: &[S]) -> Output {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        output
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words<'a>(args: &[&'a str], more: &[&'a OsStr]) -> Vec<&'a OsStr> {
    args.iter().map(|&word| OsStr::new(word)).chain(more.iter().copied()).collect()
}

/// A process that ends with the test.
struct Sleeping(Child);

impl Sleeping {
    /// Of a hostile program, with hostile arguments in front of what it takes.
    fn new(place: &Place) -> Self {
        let mut command = Command::new(place.sleeper());
        let child = command.arg0(file_name()).arg("600").stdin(Stdio::null()).spawn().unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        await_that("the program runs", || {
            let comm = fs::read(&comm).ok()?;
            comm.starts_with(b"e\x1b[2J\nFORGED").then_some(())
        });
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pages_and_move_show_names_and_paths() {
    let place = Place::new();
    let sleeping = Sleeping::new(&place);
    let pid = sleeping.pid();
    let pages = place.run(&["pages", &pid]);
    if pages.status.code() == Some(3) {
        skip!(Numa, "{}", text(&pages.stderr));
    }
    let shown = text(&place.ends(0, &["pages", &pid]).stdout);
    assert!(shown.starts_with(&format!("process {pid} (e\\x1b[2J\\x0aFORGED")), "{shown}");
    // The kernel writes the end of a line in a path as \012 itself.
    assert!(shown.contains("\\x9b") && shown.contains("\\u{202e}"), "{shown}");
    let json = place.ends(0, &["pages", "--json", &pid]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json["name"].as_str().unwrap().starts_with("e\x1b[2J\nFORGED"));
    let shown =
        text(&place.ends(0, &["pages", "move", "--all", "--to", "0", "--dry-run", &pid]).stdout);
    assert!(shown.contains("e\\x1b[2J\\x0aFORGED"), "{shown}");
    place.ends(0, &["pages", "move", "--all", "--to", "0", "--dry-run", "--json", &pid]);
}

#[test]
fn top_shows_command_lines() {
    let place = Place::new();
    let sleeping = Sleeping::new(&place);
    let args = ["top", "--interval", "50ms", "-n", "2", "--pid", &sleeping.pid()];
    let shown = text(&place.ends(0, &args).stdout);
    assert!(shown.contains("FORGED"), "{shown}");
    place.ends(0, &[&args[..], &["--json"]].concat());
    place.run(&["top", "-n", "1", "--user", HOSTILE]);
}

/// On a terminal our own sequences are there, and no others.
#[test]
fn top_on_a_terminal() {
    let place = Place::new();
    let sleeping = Sleeping::new(&place);
    let shown = on_a_terminal(place.0.colocate().args([
        "top",
        "--interval",
        "50ms",
        "-n",
        "3",
        "--pid",
        &sleeping.pid(),
    ]));
    assert!(shown.contains("\x1b[0J"), "nothing was drawn: {shown:?}");
    let other = without_ours(&shown);
    check("top on a terminal", other.as_bytes());
    assert!(other.contains("FORGED"), "{other}");
}

#[test]
fn schedule_on_a_terminal() {
    let place = Place::new();
    let program = place.script("0.6");
    let path =
        serde_json::to_string(program.to_str().unwrap()).unwrap().replace('\u{7f}', "\\u007f");
    let text = format!("version = 1\nquantum = \"20 ms\"\n[[job]]\ncommand = [{path}]\n");
    let workload = place.file(".toml", &text);
    let mut command = place.0.colocate();
    command
        .args(["schedule", "--no-guard", "--waiting", "stop", "--policy", "round-robin"])
        .arg(&workload);
    let shown = on_a_terminal(&command);
    assert!(shown.contains("\x1b[r"), "nothing was drawn: {shown:?}");
    let other = without_ours(&shown);
    check("schedule on a terminal", other.as_bytes());
    assert!(other.contains("FORGED"), "{other}");
}

/// Text without the control sequences that we write ourselves, and carriage returns of the terminal.
fn without_ours(shown: &str) -> String {
    let mut rest = shown.replace("\r\n", "\n");
    let mut plain = String::new();
    while let Some(at) = rest.find('\x1b') {
        plain.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let length = match after.strip_prefix('[') {
            None if after.starts_with(['7', '8', 'D']) => 1,
            // Each that is ours ends so. A hostile name's would clear the whole screen.
            Some(ours) => {
                let end = ours.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap();
                let sequence = &ours[..=end];
                assert!(sequence.ends_with(['A', 'F', 'H', 'J', 'm', 'r']) && sequence != "2J");
                end + 2
            }
            None => panic!("{after:?}"),
        };
        rest = after[length..].to_owned();
    }
    (plain + &rest).replace('\r', "")
}

/// What a command writes to a terminal of its own.
fn on_a_terminal(command: &Command) -> String {
    let pty = Pty::new(24, 200);
    let mut child = pty.start(command);
    let written = pty.read_to_end();
    child.ended();
    written
}

#[test]
fn run_reports_programs_and_their_threads() {
    let place = Place::new();
    let program = place.sleeper();
    let program = program.as_os_str();
    let zero = OsStr::new("0.3");
    let run = ["run", "--no-guard", "--settle-ms", "0", "--policy", "scatter"];
    let shown = text(
        &place.ends(0, &words(&run, &["--explain".as_ref(), "--".as_ref(), program, zero])).stderr,
    );
    let is_row = |start: &str| {
        shown.lines().any(|line| line.starts_with(start) && line.contains("e\\x1b[2J\\x0aFORGED"))
    };
    assert!(is_row("0  "), "{shown}");
    // The thread's name, in its row.
    assert!(is_row("0.0 "), "{shown}");
    place.ends(0, &words(&run, &["--json".as_ref(), "--".as_ref(), program, zero]));
    for ending in ["txt", "json"] {
        let out = place.path(&format!(".out.{ending}"));
        let json = if ending == "json" { "--json" } else { "--explain" };
        place.ends(
            0,
            &words(
                &run,
                &["-o".as_ref(), out.as_os_str(), json.as_ref(), "--".as_ref(), program, zero],
            ),
        );
        check("run -o", &fs::read(&out).unwrap());
    }
    let out = place.path(".out.json");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    assert!(json["jobs"][0]["name"].as_str().unwrap().starts_with(HOSTILE));
    place.ends(0, &words(&["run", "--dry-run", "--"], &[program, zero]));
    place.ends(127, &words(&["run", "--"], &[place.path(".none").as_os_str()]));
    place.ends(127, &words(&["run", "--"], &[file_name().as_os_str(), "--".as_ref()]));
}

#[test]
fn profile_shows_programs_and_their_threads() {
    let place = Place::new();
    let program = place.sleeper();
    let out = place.path(".profile.json");
    let to = ["profile", "--table", "-o"];
    let output = place
        .run(&words(&to, &[out.as_os_str(), "--".as_ref(), program.as_os_str(), "0.2".as_ref()]));
    if output.status.code() == Some(0) {
        check("profile -o", &fs::read(&out).unwrap());
        let shown = text(&place.ends(0, &words(&["profile", "--show"], &[out.as_os_str()])).stdout);
        assert!(shown.contains("FORGED"), "{shown}");
    }
    let sleeping = Sleeping::new(&place);
    place.run(&["profile", "--for", "0.1", "--pid", &sleeping.pid()]);
    place.run(&words(&["profile", "--show"], &[place.file(".bad.json", HOSTILE).as_os_str()]));
    place.ends(125, &words(&["profile", "--show"], &[place.path(".none").as_os_str()]));
}

/// A profile whose every text is hostile.
fn profile(place: &Place) -> PathBuf {
    let thread = serde_json::json!({
        "order": 0, "process": 0, "name": HOSTILE, "start_ns": 0, "end_ns": 9_000_000_000_u64,
        "cpu_time_ns": 9_000_000_000_u64,
        "mix": { "branch": 0.1, "float": 0.1, "int": 0.4, "load": 0.3, "store": 0.1 },
    });
    let profile = serde_json::json!({
        "version": 1, "backend": "sample",
        "program": { "path": format!("/nowhere/{HOSTILE}"), "args": [HOSTILE], "identity": "build-id:00" },
        "started_unix_s": 0, "watched_ns": 10_000_001_000_u64, "complete": true,
        "threads": [thread], "notes": [HOSTILE],
    });
    place.file(".program.json", &profile.to_string())
}

#[test]
fn what_files_say_is_shown_escaped() {
    let place = Place::new();
    let profile = profile(&place);
    let profile = profile.as_os_str();
    let machine = include_str!("../../../../machines/amp-4x12.toml");
    let name = machine.lines().find(|line| line.starts_with("name")).unwrap();
    let machine =
        place.file(".machine.toml", &machine.replace(name, &format!("name = {}", quoted())));
    let machine = machine.as_os_str();
    let shown = text(&place.ends(0, &words(&["profile", "--show"], &[profile])).stdout);
    assert!(shown.contains("FORGED"), "{shown}");
    for json in [&[][..], &["--json".as_ref()]] {
        let on = ["--machine".as_ref(), machine, "--profile".as_ref(), profile];
        place.ends(0, &[&words(&["plan"], &on)[..], json].concat());
        place.ends(0, &[&words(&["topo", "--machine"], &[machine])[..], json].concat());
    }
    // A plan, with what may be said of it, for a run.
    let plan = place.path(".plan.json");
    place.ends(
        0,
        &words(&["plan", "--json", "-o"], &[plan.as_os_str(), "--profile".as_ref(), profile]),
    );
    check("plan -o", &fs::read(&plan).unwrap());
    let mut hostile: serde_json::Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    hostile["policy"] = HOSTILE.into();
    hostile["predicted"] = HOSTILE.into();
    hostile["decisions"][0]["name"] = HOSTILE.into();
    fs::write(&plan, hostile.to_string()).unwrap();
    for more in ["--explain", "--json", "--dry-run"] {
        place.run(&words(
            &["run", more, "--plan"],
            &[plan.as_os_str(), "--".as_ref(), "true".as_ref()],
        ));
    }
}

/// What hwloc has written of a machine, with strings that hold all that XML allows.
#[test]
fn machines_of_hwloc_are_shown_escaped() {
    let place = Place::new();
    let xml = include_str!("../../../machine/tests/corpus/qemu-epyc.xml");
    let hostile: String = HOSTILE
        .chars()
        .filter(|&c| !c.is_ascii_control() || c == '\n' || c == '\u{7f}')
        .map(|c| format!("&#{};", u32::from(c)))
        .collect();
    let name = xml.find("name=\"CPUModel\" value=\"").unwrap() + "name=\"CPUModel\" value=\"".len();
    let end = name + xml[name..].find('"').unwrap();
    let path = place.file(".hwloc.xml", &format!("{}{hostile}{}", &xml[..name], &xml[end..]));
    let machine = path.as_os_str();
    let shown = text(&place.ends(0, &words(&["topo", "--machine"], &[machine])).stdout);
    assert!(shown.contains("FORGED"), "{shown}");
    let json = place.ends(0, &words(&["topo", "--json", "--machine"], &[machine]));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json.to_string().contains("FORGED"));
    let profile = profile(&place);
    let on = [machine, "--profile".as_ref(), profile.as_os_str()];
    place.ends(0, &words(&["plan", "--machine"], &on));
}

/// A control group of a hostile name, in which colocate runs. The kernel allows no end of a line in it.
#[test]
fn control_groups_are_shown_escaped() {
    let place = Place::new();
    let roots = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"].map(Path::new);
    let Some(root) = roots.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        skip!(Cgroups, "no hierarchy of control groups");
    };
    let group = root.join(HOSTILE.replace('\n', ""));
    if let Err(why) = fs::create_dir(&group) {
        skip!(Cgroups, "cannot make {group:?}: {why}");
    }
    for words in [
        "doctor",
        "run --json -- true",
        "run -- true",
        "schedule --no-guard --policy round-robin -- sh -c 'sleep 0.1'",
        "schedule --no-guard --policy round-robin --explain -- sh -c 'sleep 0.1' ::: sh -c 'sleep 0.1'",
    ] {
        let program = place.0.colocate().get_program().to_owned();
        let mut shell = Command::new("sh");
        place.0.homes(&mut shell);
        let script = format!("echo $$ > \"$0/cgroup.procs\" && exec \"$1\" {words}");
        shell.args(["-c", &script]).arg(&group).arg(&program).stdin(Stdio::null());
        let output = shell.output().unwrap();
        check(&format!("{words}: standard output"), &output.stdout);
        check(&format!("{words}: standard error"), &output.stderr);
    }
    await_that("the group is empty", || fs::remove_dir(&group).ok());
}

/// Whatever is wrong with a file, the message that quotes it is one line.
#[test]
fn refusals_quote_escaped() {
    let place = Place::new();
    let json = serde_json::to_string(HOSTILE).unwrap();
    let wrong = [
        HOSTILE.to_owned(),
        json.clone(),
        format!("{{{json}: 1, \"version\": 1}}"),
        format!("{{\"version\": {json}}}"),
        format!("version = {}\n", quoted()),
        format!("version = 1\n{} = 1\n", quoted()),
        format!("version = 1\nname = {0}\nmachine = {0}\n", quoted()),
        format!("version = 1\n[[job]]\ncommand = [{0}]\nname = {0}\n", quoted()),
        format!("<topology><object type={json}/></topology>"),
    ];
    let commands: [&[&str]; 8] = [
        &["topo", "--machine"],
        &["plan", "--machine"],
        &["plan", "--profile"],
        &["plan", "--machine", "amp-4x12", "--demand"],
        &["profile", "--show"],
        &["run", "--plan"],
        &["schedule"],
        &["schedule", "--policy", "symbiotic", "--cpi-model"],
    ];
    for (number, content) in wrong.iter().enumerate() {
        for ending in ["json", "toml", "xml"] {
            let path = place.file(&format!(".{number}.{ending}"), content);
            for command in commands {
                let output = place.run(&words(command, &[path.as_os_str()]));
                assert!(!output.status.success(), "{command:?} {content:?}");
            }
        }
    }
}

/// Arguments are quoted by what reads them.
#[test]
fn wrong_arguments_are_quoted_escaped() {
    let place = Place::new();
    let commands: [&[&str]; 15] = [
        &[],
        &["run"],
        &["run", "--policy"],
        &["run", "--seed"],
        &["run", "--watch-s"],
        &["top", "--interval"],
        &["top", "--pid"],
        &["pages"],
        &["pages", "move", "--all", "1", "--to"],
        &["pages", "move", "1", "--to", "0", "--range"],
        &["plan", "--policy"],
        &["plan", "--cpus"],
        &["schedule", "--policy"],
        &["topo"],
        &["doctor"],
    ];
    for command in commands {
        for word in [OsString::from(HOSTILE), file_name(), format!("--{HOSTILE}").into()] {
            let output = place.run(&words(command, &[word.as_os_str()]));
            assert!(!output.status.success(), "{command:?}");
        }
    }
    // The name that it is called by is its caller's as well.
    for args in [&["--help"][..], &["run", "--wrong"], &["-V"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
        let output = command.arg0(file_name()).args(args).output().unwrap();
        check("standard output", &output.stdout);
        check("standard error", &output.stderr);
    }
}

#[test]
fn schedule_reports_its_jobs() {
    let place = Place::new();
    place.sleeper();
    let workload = format!(
        "version = 1\nquantum = \"20 ms\"\n[[job]]\ncommand = [\"sh\", \"-c\", \"sleep 0.2\", {0}]\n\
         [[job]]\ncommand = [\"sh\", \"-c\", {1}]\n",
        quoted(),
        serde_json::to_string(&format!(": '{HOSTILE}'; sleep 0.1"))
            .unwrap()
            .replace('\u{7f}', "\\u007f"),
    );
    let workload = place.file(".workload.toml", &workload);
    let outs = ["txt", "json", "svg"].map(|ending| place.path(&format!(".out.{ending}")));
    let schedule =
        ["schedule", "--no-guard", "--waiting", "stop", "--policy", "round-robin", "--explain"];
    let mut args = words(&schedule, &[workload.as_os_str()]);
    for out in &outs {
        args.extend(["-o".as_ref(), out.as_os_str()]);
    }
    place.ends(0, &args);
    for out in &outs {
        check(&format!("{out:?}"), &fs::read(out).unwrap());
    }
    place.ends(0, &words(&schedule, &[workload.as_os_str()]));
}

#[test]
fn compare_keeps_files() {
    let place = Place::new();
    let program = place.script("0.01");
    let args = [
        "compare",
        "--not-alone",
        "--policies",
        "bare",
        "--baseline",
        "bare",
        "-n",
        "2",
        "--name",
        HOSTILE,
        "-o",
        "out",
        "--",
    ];
    place.ends(0, &words(&args, &[program.as_os_str()]));
    for entry in fs::read_dir(place.0.path("out")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            check(&format!("{path:?}"), &fs::read(&path).unwrap());
        }
    }
    place.run(&["compare", "--resume", "-o", "out"]);
    place.run(&words(&["compare", "--resume", "-o"], &[place.path(".none").as_os_str()]));
}

#[test]
fn restore_and_doctor_show_folders() {
    let place = Place::new();
    let folder = place.path(".run");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(folder.join("colocate")).unwrap();
    fs::set_permissions(folder.join("colocate"), fs::Permissions::from_mode(0o700)).unwrap();
    let journal = folder.join("colocate").join(OsString::from_vec(
        [b"999999999-1-".as_slice(), file_name().as_bytes(), b".journal"].concat(),
    ));
    fs::write(journal, HOSTILE).unwrap();
    for args in [&["restore", "--dry-run"][..], &["restore", "--json", "--dry-run"], &["doctor"]] {
        let mut command = place.0.colocate();
        let output = command.args(args).env("XDG_RUNTIME_DIR", &folder).output().unwrap();
        check(&format!("{args:?}: standard output"), &output.stdout);
        check(&format!("{args:?}: standard error"), &output.stderr);
    }
    place.run(&words(&["doctor", "-o"], &[place.path(".none/x").as_os_str()]));
    let out = place.path(".doctor");
    place.run(&words(&["doctor", "-o"], &[out.as_os_str()]));
    check("doctor -o", &fs::read(out).unwrap());
}

#[test]
fn advice_names_commands() {
    let place = Place::new();
    let program = place.script("0.01");
    let advise = ["advise-threads", "--limit-s", "3", "--max", "2", "--"];
    place.run(&words(&advise, &[program.as_os_str(), HOSTILE.as_ref()]));
    place.run(&words(&advise, &[program.as_os_str()]));
}
