//! `colocate top` on a terminal: tables take each other's place, and nothing of others is erased.

use crate::run_support::{Scratch, await_that};
use crate::terminal_support::{Screen, all, assert_usual, has, modes, shell};
use std::process::{Child, Command};

/// `colocate top` of this process, with so much time between tables.
fn top(scratch: &Scratch, interval: &str) -> Command {
    let mut command = scratch.colocate();
    command.args(["top", "-d", interval, "-p", &std::process::id().to_string()]);
    command
}

/// How many tables are on these lines.
fn tables(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.contains("time, s")).count()
}

/// Waits for tables that are later than the one that is there.
fn await_newer(screen: &mut Screen) {
    let time = |lines: &[String]| -> Option<f64> {
        let last = lines.iter().rposition(|line| line.contains("time, s"))?;
        lines.get(last + 1)?.split_whitespace().next()?.parse().ok()
    };
    let lines = screen.await_lines("a table is drawn", |lines| time(lines).is_some());
    let before = time(&lines);
    screen.await_lines("a later table is drawn", |lines| time(lines) > before);
}

/// Waits for the end, and fails unless the terminal is as it was, with so many tables on it and above it.
fn ends(mut screen: Screen, mut child: Child, before: &str, expected: usize) {
    let status = await_that("it ends", || {
        screen.take();
        child.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    screen.take();
    let lines = all(&screen.terminal);
    assert_eq!(tables(&lines), expected, "{lines:#?}");
    assert_eq!(modes(&screen), before);
    assert_usual(&mut screen.terminal);
}

#[test]
fn ctrl_c_leaves_the_last_table() {
    for (lines, columns) in [(24, 80), (10, 40)] {
        let mut screen = Screen::new(lines, columns);
        let before = modes(&screen);
        screen.terminal.feed("$ colocate top\r\n");
        let child = screen.pty.start(&top(&Scratch::new(), "50ms"));
        await_newer(&mut screen);
        let seen = all(&screen.terminal);
        assert_eq!((tables(&seen), seen[0].as_str()), (1, "$ colocate top"), "{seen:#?}");
        screen.type_keys("\u{3}");
        ends(screen, child, &before, 1);
    }
}

#[test]
fn a_signal_leaves_the_last_table() {
    let mut screen = Screen::new(24, 80);
    let before = modes(&screen);
    let child = screen.pty.start(&top(&Scratch::new(), "50ms"));
    await_newer(&mut screen);
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    ends(screen, child, &before, 1);
}

/// The first table's lines are wrapped then: it stays, and tables below it take each other's place.
#[test]
fn a_smaller_window() {
    let mut screen = Screen::new(24, 80);
    let before = modes(&screen);
    screen.terminal.feed("$ colocate top\r\n");
    let child = screen.pty.start(&top(&Scratch::new(), "500ms"));
    // None is drawn just when the size changes.
    await_newer(&mut screen);
    let first = screen.terminal.screen().text();
    screen.resize(10, 40);
    screen.await_lines("a table of the new size is drawn", |lines| tables(lines) == 2);
    await_newer(&mut screen);
    let seen = all(&screen.terminal);
    assert_eq!(tables(&seen), 2, "{seen:#?}");
    // Wrapped lines are one again here.
    let text = screen.terminal.screen().text();
    assert_eq!(text[..3], first[..3], "{seen:#?}");
    screen.type_keys("\u{3}");
    ends(screen, child, &before, 2);
}

/// Ctrl-Z and `fg`: what the shell has written meanwhile stays.
#[test]
fn a_shell_writes_in_between() {
    let mut screen = Screen::new(24, 80);
    let before = modes(&screen);
    let script = "\"$@\"; echo has stopped; read go; fg; echo has ended";
    let child = screen.pty.start(&shell(script, &top(&Scratch::new(), "50ms")));
    await_newer(&mut screen);
    screen.type_keys("\u{1a}");
    screen.await_lines("Ctrl-Z stops it", |lines| has(lines, "has stopped"));
    screen.type_keys("typed\n");
    screen.await_lines("it goes on", |lines| tables(lines) == 2);
    await_newer(&mut screen);
    screen.type_keys("\u{3}");
    let seen = screen.await_lines("it ends", |lines| has(lines, "has ended"));
    assert!(has(&seen, "has stopped") && has(&seen, "typed"), "{seen:#?}");
    ends(screen, child, &before, 2);
}

/// In the background, tables are below each other.
#[test]
fn a_shell_has_the_terminal() {
    let mut screen = Screen::new(24, 80);
    let script = "\"$@\" -n 4 & wait $!; echo has ended";
    let child = screen.pty.start(&shell(script, &top(&Scratch::new(), "50ms")));
    let before = modes(&screen);
    screen.await_lines("it ends", |lines| has(lines, "has ended"));
    ends(screen, child, &before, 4);
}
