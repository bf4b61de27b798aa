//! Whole runs with names that would drive a terminal or forge a line: every byte that is written is looked at.

use colocate_testing::hostile::{HOSTILE, check, file_name, quoted};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs `colocate-study` in a folder, and checks what it prints.
fn run(folder: &Path, args: &[&OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colocate-study"));
    let output = command.args(args).stdin(Stdio::null()).current_dir(folder).output().unwrap();
    check(&format!("{args:?}: standard output"), &output.stdout);
    check(&format!("{args:?}: standard error"), &output.stderr);
    output
}

fn words<'a>(args: &[&'a str], more: &[&'a OsStr]) -> Vec<&'a OsStr> {
    args.iter().map(|&word| OsStr::new(word)).chain(more.iter().copied()).collect()
}

/// A file whose name has this ending.
fn file(folder: &Path, ending: &str, text: &str) -> PathBuf {
    let path = folder.join(format!("{HOSTILE}{ending}"));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn wrong_files_and_arguments_are_quoted_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 6] = [
        &["simulate"],
        &["simulate", "--check"],
        &["simulate", "--policy"],
        &["train", "cpi-model", "-o", "model.json", "--machine", "power8-10c"],
        &["bench", "smt", "--cpus"],
        &["study", "serpa", "--machine"],
    ];
    let texts = [quoted(), format!("{} = 1\n", quoted()), format!("version = {}\n", quoted())];
    for (number, text) in texts.iter().enumerate() {
        for ending in ["json", "toml"] {
            let path = file(folder.path(), &format!(".{number}.{ending}"), text);
            for command in commands {
                let output = run(folder.path(), &words(command, &[path.as_os_str()]));
                assert!(!output.status.success(), "{command:?} {text:?}");
            }
        }
    }
    for command in commands {
        for word in [OsString::from(HOSTILE), file_name(), format!("--{HOSTILE}").into()] {
            let output = run(folder.path(), &words(command, &[word.as_os_str()]));
            assert!(!output.status.success(), "{command:?}");
        }
    }
}

#[test]
fn simulate_keeps_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let scenario = "version = 1\nname = \"pair\"\nmachine = \"box.toml\"\npolicies = [\"os\", \"compact\"]\nseeds = 2\n\
        draws = 2\nnote = NAME\n[[phase]]\nname = \"adds\"\n\
        demand = { work = { value = { kinds = { float-add = 1.0 } }, source = NAME } }\n\
        [[job]]\nname = \"adder\"\n[[job.thread]]\ncopies = 2\nphase = \"adds\"\nalone-for = \"5 ms\"\n";
    let machine = include_str!("../../../../machines/xeon-x3320.toml");
    let name = machine.lines().find(|line| line.starts_with("name")).unwrap();
    let hostile = machine.replace(name, &format!("name = {}", quoted()));
    std::fs::write(folder.join("box.toml"), hostile).unwrap();
    let notes = [scenario.replace("note = NAME\n", ""), scenario.to_owned()];
    for (number, scenario) in notes.iter().enumerate() {
        let path = file(folder, &format!(".{number}.toml"), &scenario.replace("NAME", &quoted()));
        let kept = folder.join(format!("kept{number}"));
        let output =
            run(folder, &words(&["simulate", "-o"], &[kept.as_os_str(), path.as_os_str()]));
        if output.status.success() {
            for entry in std::fs::read_dir(&kept).unwrap() {
                let path = entry.unwrap().path();
                check(&format!("{path:?}"), &std::fs::read(&path).unwrap());
            }
        }
        run(folder, &words(&["simulate"], &[path.as_os_str()]));
        run(folder, &words(&["simulate", "--json"], &[path.as_os_str()]));
        let figures = kept.join(path.with_extension("json").file_name().unwrap());
        let Ok(figures_text) = std::fs::read(&figures) else { continue };
        // Figures of an earlier run, which somebody else has changed.
        let mut found: serde_json::Value = serde_json::from_slice(&figures_text).unwrap();
        for policy in found["policies"].as_array_mut().unwrap() {
            policy["policy"] = HOSTILE.into();
        }
        found["notes"] = serde_json::json!([HOSTILE]);
        found["settings"]["baseline"] = HOSTILE.into();
        found["settings"]["jobs"][0] = HOSTILE.into();
        found["settings"]["scenario"] = HOSTILE.into();
        std::fs::write(&figures, found.to_string()).unwrap();
        let resume = ["simulate", "--resume", "-o"];
        let done = run(folder, &words(&resume, &[kept.as_os_str(), path.as_os_str()]));
        assert!(done.status.success(), "{done:?}");
    }
}
