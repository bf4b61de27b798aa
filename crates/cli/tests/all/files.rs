//! Files that other users or programs may have prepared: whole runs.

use crate::run_support::Scratch;
use colocate_testing::{EndsInTime, skip};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time for what refuses a file. Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Address space of a run: the program's own text and libraries, and little more.
const SPACE_B: &str = "268435456";

/// Runs `command` below a limit of memory, and kills it after [`PATIENCE`].
fn bounded(command: &Command) -> Output {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--as={SPACE_B}")).arg("--").arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            let output = child.ended_with_output();
            panic!("{command:?} did not end: {output:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.ended_with_output()
}

/// The one line with which `command` ends.
fn refusal(command: &Command) -> String {
    let output = bounded(command);
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(125), "{command:?}: {output:?}");
    assert_eq!(line.lines().count(), 1, "{command:?}: {line}");
    line
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Every option that names a file to be read; `{}` is the file, without its ending.
const INPUTS: [&str; 12] = [
    "run --plan {} -- true",
    "profile --show {}",
    "plan --machine epyc-7301 --profile {}",
    "topo --xml {}",
    "topo --machine {}.xml",
    "topo --machine {}.toml",
    "topo --machine {}.json",
    "plan --machine {}.toml --profile x",
    "schedule --policy symbiotic:model={} -- true",
    "calibrate --import {}.json",
    "schedule {}",
    "compare --resume -o {}.folder",
];

/// `colocate` with an option, on what `put` makes at the path that it gets.
fn each_input(put: impl Fn(&Path), check: impl Fn(&str, &str)) {
    for input in INPUTS {
        let scratch = Scratch::new();
        let mut command = scratch.colocate();
        for word in input.split(' ') {
            if !word.contains("{}") {
                command.arg(word);
                continue;
            }
            let path = word
                .split_once("{}")
                .map(|(_, ending)| scratch.path(&format!("input{ending}")))
                .unwrap();
            if word.ends_with(".folder") {
                std::fs::create_dir(&path).unwrap();
                put(&path.join("state.json"));
            } else {
                put(&path);
            }
            command.arg(word.replace("{}", scratch.path("input").to_str().unwrap()));
        }
        check(input, &refusal(&command));
    }
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    each_input(fifo, |input, line| assert!(line.ends_with("found a FIFO\n"), "{input}: {line}"));
}

#[test]
fn a_device_is_refused_and_not_opened() {
    each_input(
        |path| symlink("/dev/zero", path).unwrap(),
        |input, line| assert!(line.ends_with("found a device\n"), "{input}: {line}"),
    );
}

/// Ten gigabytes that take no room on the disk.
#[test]
fn a_huge_file_is_refused_and_not_read() {
    each_input(
        |path| File::create(path).unwrap().set_len(10_000_000_000).unwrap(),
        |input, line| {
            assert!(line.contains("expected at most "), "{input}: {line}");
            assert!(line.ends_with(" bytes, found 10000000000\n"), "{input}: {line}");
        },
    );
}

#[test]
fn a_link_that_others_may_have_made_is_not_followed() {
    each_input(
        |path| {
            let shared = path.parent().unwrap().join("shared");
            std::fs::create_dir(&shared).unwrap();
            std::fs::write(path.with_file_name("secret"), "secret").unwrap();
            symlink("../secret", shared.join("link")).unwrap();
            std::fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
            symlink(shared.join("link"), path).unwrap();
        },
        |input, line| {
            assert!(line.contains("found the link link"), "{input}: {line}");
            assert!(!line.contains("secret"), "{input}: {line}");
        },
    );
}

/// What a shell writes for `<(command)`.
#[test]
fn an_inherited_pipe_is_read() {
    let scratch = Scratch::new();
    let ours = env!("CARGO_BIN_EXE_colocate");
    let script = "\"$0\" topo --machine epyc-7301 --json | \"$0\" topo --xml /dev/stdin";
    let mut shell = Command::new("sh");
    scratch.homes(&mut shell);
    let output = shell.args(["-c", script, ours]).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("/dev/stdin: expected hwloc XML"), "it was read: {line}");
}

/// 76 KB that took 3.1 GB: the parser counts references within entities, but not those in the document.
#[test]
fn entities_of_xml_take_no_memory() {
    let scratch = Scratch::new();
    let (first, second) = ("a".repeat(1_000), "&a;".repeat(64));
    let all = "&b;".repeat(25_000);
    let text = format!(
        "<!DOCTYPE topology [<!ENTITY a \"{first}\"><!ENTITY b \"{second}\">]>\n\
         <topology version=\"2.0\"><object type=\"Machine\"><info name=\"b\" value=\"{all}\"/></object></topology>"
    );
    assert!(text.len() < 110_000);
    let path = scratch.path("machine.xml");
    std::fs::write(&path, text).unwrap();
    let line = refusal(scratch.colocate().args(["topo", "--xml"]).arg(&path));
    assert!(line.contains("expected hwloc XML, found a syntax error"), "{line}");
}

#[test]
fn synthetic_machines_are_bounded_before_hwloc_makes_them() {
    let scratch = Scratch::new();
    let deep = "core:1 ".repeat(10_000) + "pu:1";
    for text in [
        "pu:4000000000",
        "pack:65536 core:65536 pu:65536",
        "pu:131000",
        "core:60000 pu:1",
        "pack:256 core:128 pu:1",
        "l3:8192 l2:1 l1:1 core:1 pu:1",
        "pack:2 core:2 pu:2(indexes=4294967295,1,2,3,4,5,6,7)",
        "[numa(indexes=4294967295)] pu:2",
        &deep,
    ] {
        let line = refusal(scratch.colocate().args(["topo", "--synthetic", text]));
        assert!(line.contains("expected a synthetic machine"), "{line}");
    }
}

/// The name that a temporary file once had.
#[test]
fn nothing_is_written_through_a_link_that_was_planted() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("victim"), "precious").unwrap();
    let script = "for name in out.json.$$.tmp .out.json.$$.tmp .colocate-$$.tmp; do ln -s victim $name; done; \
                  exec \"$0\" topo --machine epyc-7301 --json -o out.json";
    let mut shell = Command::new("sh");
    scratch.homes(&mut shell);
    shell.args(["-c", script, env!("CARGO_BIN_EXE_colocate")]).current_dir(scratch.dir.path());
    assert!(shell.status().unwrap().success());
    assert_eq!(std::fs::read_to_string(scratch.path("victim")).unwrap(), "precious");
    assert!(scratch.path("out.json").metadata().unwrap().len() > 1000);
}

#[test]
fn an_output_that_others_may_have_planted_is_refused() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("victim"), "precious").unwrap();
    std::fs::create_dir(scratch.path("shared")).unwrap();
    symlink("../victim", scratch.path("shared/out.json")).unwrap();
    std::fs::set_permissions(scratch.path("shared"), Permissions::from_mode(0o1777)).unwrap();
    let mut topo = scratch.colocate();
    topo.args(["topo", "--machine", "epyc-7301", "--json", "-o"])
        .arg(scratch.path("shared/out.json"));
    let line = refusal(&topo);
    assert!(line.contains("found the link out.json"), "{line}");
    assert_eq!(std::fs::read_to_string(scratch.path("victim")).unwrap(), "precious");
}

#[test]
fn a_fifo_without_a_reader_is_not_written_to_for_ever() {
    let scratch = Scratch::new();
    fifo(&scratch.path("out"));
    let mut topo = scratch.colocate();
    topo.args(["topo", "--machine", "epyc-7301", "-o"]).arg(scratch.path("out"));
    let line = refusal(&topo);
    assert!(line.contains("expected a FIFO that a program reads"), "{line}");
}

#[test]
fn what_holds_arguments_is_for_its_user_alone() {
    let scratch = Scratch::new();
    let out = scratch.path("report.json");
    let mut run = scratch.colocate();
    run.args(["run", "--json", "-q", "-o"]).arg(&out).args(["--", "sleep", "0.01"]);
    assert!(run.status().unwrap().success());
    assert_eq!(out.metadata().unwrap().mode() & 0o777, 0o600);
    let machine = scratch.path("machine.json");
    let mut topo = scratch.colocate();
    topo.args(["topo", "--machine", "epyc-7301", "--json", "-o"]).arg(&machine);
    assert!(topo.status().unwrap().success());
    assert_ne!(machine.metadata().unwrap().mode() & 0o777, 0o600, "the umask decides");
}

/// Whoever can write to the folder above can put another one in the place of the journal's.
#[test]
fn no_journal_is_kept_where_others_can_move_it() {
    let scratch = Scratch::new();
    let runtime = scratch.path("runtime");
    for mode in [0o777, 0o1777] {
        std::fs::set_permissions(&runtime, Permissions::from_mode(mode)).unwrap();
        let output = scratch.run(&["-q"]).args(["sleep", "0.01"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(runtime.join("colocate").exists(), mode == 0o1777, "{mode:o}");
    }
}

/// `su` without `-`, `sudo -E`: root has the XDG_RUNTIME_DIR of a user, who has put root's own folder there.
#[test]
fn root_undoes_nothing_in_a_folder_that_a_user_can_change() {
    let scratch = Scratch::new();
    let runtime = scratch.path("runtime");
    let folder = runtime.join("colocate");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let victim = scratch.path("victim");
    std::fs::write(&victim, "precious").unwrap();
    let cgroup = scratch.path("colocate-1-1");
    std::fs::create_dir_all(cgroup.join("job-0")).unwrap();
    symlink(&victim, cgroup.join("job-0/cgroup.freeze")).unwrap();
    let journal = folder.join("run-1-1.journal");
    let text = format!(
        "colocate-journal 7\nowner 999999 1\noriginal 0\npauses cgroup {}\n\n",
        cgroup.display()
    );
    std::fs::write(&journal, text).unwrap();
    let restore = || scratch.colocate().args(["restore", "--json"]).output().unwrap();
    // The folder is ours, the cgroup is none.
    let said = String::from_utf8(restore().stdout).unwrap();
    assert!(said.contains("expected a cgroup of version 2"), "{said}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    if chown(&runtime, Some(65_534), None).is_err() {
        skip!(Root, "only root can give a folder to another user");
    }
    // Others may run colocate as well.
    let said = String::from_utf8(restore().stdout).unwrap();
    assert!(!said.contains(folder.to_str().unwrap()), "{said}");
    assert!(journal.exists());
}

/// A program knows the folder that its reports go to, and can put anything there.
#[test]
fn what_a_program_puts_beside_its_reports_is_not_read() {
    let scratch = Scratch::new();
    // One run is not asked for a report.
    let script = "[ -n \"$COLOCATE_OMP_REPORT\" ] && cd \"$COLOCATE_OMP_REPORT\" && mkfifo 1 && ln -s /dev/zero 2 && mkdir 3 && truncate -s 10G 4; sleep 0.05";
    let mut advise = scratch.colocate();
    advise.args(["advise-threads", "--max", "2", "--json", "--", "sh", "-c", script]);
    let begin = Instant::now();
    let mut child = advise.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.ended();
            panic!("it reads what is no report");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = std::fs::read_dir(scratch.path("runtime/colocate")).unwrap().count();
    assert_eq!(left, 0, "the folder is removed with all that is in it");
}
