//! `colocate schedule` on terminals and pipes: what programs print stays, and who does not read holds up nobody.

use crate::run_support::{Scratch, await_that};
use crate::schedule_support::{signal, wait_until, workload};
use crate::terminal_support::{
    Pty, Screen, all, assert_usual, has, modes, shell, terminal, visible,
};
use rustix::pipe::fcntl_getpipe_size;
use rustix::termios::{Action, tcflow};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

const LINES: u16 = 24;
const COLUMNS: u16 = 100;

fn schedule(scratch: &Scratch) -> Command {
    let mut command = scratch.colocate();
    command.args(["schedule", "--no-guard", "--waiting", "stop", "--policy", "round-robin", "-o"]);
    command.arg(scratch.path("report.json"));
    command
}

fn end_of(child: &mut Child) -> ExitStatus {
    await_that("colocate ends", || child.try_wait().unwrap())
}

const COUNT: &str = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";

#[test]
fn a_table_below_what_programs_print() {
    let scratch = Scratch::new();
    let pty = Pty::new(LINES, COLUMNS);
    let word = format!("{COUNT}; echo result: 42");
    let many = format!("{COUNT}; seq 100 140; {COUNT}");
    let jobs = [word.as_str(), many.as_str(), COUNT, COUNT].map(|script| (script, ""));
    let mut command = schedule(&scratch);
    command.arg(workload(&scratch, "", &jobs));
    let mut child = pty.start(&command);
    let written = pty.read_to_end();
    assert!(end_of(&mut child).success(), "{written}");
    for wanted in ["quanta: ", " waiting", "sh#4"] {
        assert!(written.contains(wanted), "{wanted:?} is missing: {written}");
    }
    let mut terminal = terminal(LINES.into(), COLUMNS.into());
    terminal.feed(&written);
    let seen = all(&terminal);
    let lines: Vec<String> = (100..=140).map(|n| n.to_string()).collect();
    for line in lines.iter().map(String::as_str).chain(["result: 42"]) {
        assert_eq!(seen.iter().filter(|seen| *seen == line).count(), 1, "{line}: {seen:#?}");
    }
    assert!(!seen.iter().any(|line| line.contains("quanta")), "the table is gone: {seen:#?}");
    assert_usual(&mut terminal);
}

/// `colocate schedule` of jobs that do not end by themselves.
fn endless(scratch: &Scratch) -> Command {
    let mut command = schedule(scratch);
    command.arg(workload(scratch, "", &[("while :; do :; done", ""); 4]));
    command
}

/// Whether a table is there.
fn is_drawn(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains(" quanta: "))
}

/// Waits until colocate has ended by a signal, and fails unless the terminal is as it was.
fn ends(mut screen: Screen, mut child: Child, before: &str, code: i32) {
    let status = await_that("colocate ends", || {
        screen.take();
        child.try_wait().unwrap()
    });
    screen.take();
    let lines = visible(&screen.terminal);
    assert!(status.code() == Some(code) && !is_drawn(&lines), "{status}: {lines:#?}");
    assert_eq!(modes(&screen), before);
    assert_usual(&mut screen.terminal);
}

/// Ctrl-C, and a signal, in terminals of several sizes.
#[test]
fn signals_leave_the_terminal_as_it_was() {
    for (lines, columns, signal) in [(24, 80, 2), (10, 40, 2), (24, 80, 15), (10, 40, 1)] {
        let (scratch, mut screen) = (Scratch::new(), Screen::new(lines, columns));
        let before = modes(&screen);
        let child = screen.pty.start(&endless(&scratch));
        screen.await_lines("a table is drawn", is_drawn);
        match signal {
            2 => screen.type_keys("\u{3}"),
            other => self::signal(&format!("-{other}"), child.id().cast_signed()),
        }
        ends(screen, child, &before, 128 + signal);
    }
}

#[test]
fn another_size() {
    let (scratch, mut screen) = (Scratch::new(), Screen::new(24, 80));
    let before = modes(&screen);
    let child = screen.pty.start(&endless(&scratch));
    screen.await_lines("a table is drawn", is_drawn);
    screen.resize(10, 40);
    screen.await_lines("a narrower table is drawn", |lines| {
        is_drawn(lines) && lines.iter().any(|line| line.ends_with('…'))
    });
    screen.resize(24, 80);
    screen.await_lines("a wider table is drawn", |lines| {
        is_drawn(lines) && lines.iter().all(|line| !line.ends_with('…'))
    });
    screen.type_keys("\u{3}");
    ends(screen, child, &before, 130);
}

/// Ctrl-Z and `fg`: the shell has the whole screen in between.
#[test]
fn a_shell_in_between() {
    let (scratch, mut screen) = (Scratch::new(), Screen::new(24, 80));
    let before = modes(&screen);
    let script = "\"$@\"; seq 100 140; echo has stopped; read go; fg; exit $?";
    let child = screen.pty.start(&shell(script, &endless(&scratch)));
    screen.await_lines("a table is drawn", is_drawn);
    screen.type_keys("\u{1a}");
    screen.await_lines("Ctrl-Z stops it", |lines| has(lines, "has stopped"));
    let lines = visible(&screen.terminal);
    let shell: Vec<String> = (119..=140).map(|n| n.to_string()).collect();
    assert_eq!(lines, [&shell[..], &["has stopped".into(), String::new()]].concat());
    screen.type_keys("\n");
    screen.await_lines("it goes on", is_drawn);
    screen.type_keys("\u{3}");
    ends(screen, child, &before, 130);
}

/// Neither is anything drawn where a shell has the terminal, nor is anybody stopped by the terminal for writing
/// there.
#[test]
fn nothing_in_the_background() {
    let scratch = Scratch::new();
    let pty = Pty::new(LINES, COLUMNS);
    let file = workload(&scratch, "", &[("exit 7", ""), (COUNT, ""), (COUNT, ""), (COUNT, "")]);
    let mut shell = Command::new("sh");
    scratch.homes(&mut shell);
    let script = "stty tostop; set -m; \"$0\" schedule --no-guard --policy round-robin --stacks \
                  -o \"$1\" \"$2\" & wait $!";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_colocate")]);
    shell.arg(scratch.path("report.json")).arg(file);
    let mut child = pty.start(&shell);
    let status = end_of(&mut child);
    let written = pty.read_to_end();
    assert!(!written.contains('\u{1b}') && status.code() == Some(7), "{status}: {written}");
}

/// As by Ctrl-S.
#[test]
fn a_stopped_terminal_stops_no_program() {
    let scratch = Scratch::new();
    let pty = Pty::new(LINES, COLUMNS);
    tcflow(&pty.theirs, Action::OOff).unwrap();
    let files: Vec<_> = (0..6).map(|job| scratch.path(&format!("done-{job}"))).collect();
    let scripts: Vec<String> =
        files.iter().map(|file| format!("{COUNT}; : > {}", file.display())).collect();
    let jobs: Vec<(&str, &str)> = scripts.iter().map(|script| (script.as_str(), "")).collect();
    let mut command = schedule(&scratch);
    command.arg(workload(&scratch, "", &jobs));
    let mut child = pty.start(&command);
    wait_until("everybody is done", || files.iter().all(|file| file.exists()));
    assert!(end_of(&mut child).success());
}

/// A pipe that takes nothing more.
fn full() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'.'; size]).unwrap();
    (reader, writer)
}

/// One job stops itself, of which there is something to say as a rule. All others go on, and colocate hears what it is
/// asked, of which there is something to say always.
#[test]
fn a_full_pipe_stops_no_program() {
    let scratch = Scratch::new();
    let (mut reader, writer) = full();
    let files: Vec<_> = (0..3).map(|job| scratch.path(&format!("done-{job}"))).collect();
    let mut scripts: Vec<String> =
        files.iter().map(|file| format!("sleep 5; {COUNT}; : > {}", file.display())).collect();
    scripts.push("while :; do kill -STOP $$; done".to_owned());
    let jobs: Vec<(&str, &str)> = scripts.iter().map(|script| (script.as_str(), "")).collect();
    let mut command = schedule(&scratch);
    command.arg(workload(&scratch, "", &jobs)).stdout(Stdio::null()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    wait_until("all others are done", || files.iter().all(|file| file.exists()));
    signal("-TERM", child.id().cast_signed());
    end_of(&mut child);
    let mut written = String::new();
    reader.read_to_string(&mut written).unwrap();
    assert!(written.trim_matches('.').is_empty(), "{written}");
    let report = std::fs::read_to_string(scratch.path("report.json")).unwrap();
    assert!(report.contains("SIGTERM has ended the scheduling"), "{report}");
}
