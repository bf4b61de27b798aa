//! A pseudo-terminal with a program on it, and the screen that comes of what is written there.

use crate::run_support::PATIENCE;
use colocate_testing::{END_LIMIT, TimeLimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Both ends of a terminal. The one that hears nothing more from `ours` hangs up.
pub struct Pty {
    pub ours: File,
    /// The programs' end.
    pub theirs: OwnedFd,
}

impl Pty {
    /// A terminal with so many lines and columns.
    pub fn new(lines: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let pty = Self { ours: ours.into(), theirs };
        pty.resize(lines, columns);
        pty
    }

    /// Changes its size; the foreground process group gets SIGWINCH.
    pub fn resize(&self, lines: u16, columns: u16) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.ours, size).unwrap();
    }

    /// Starts a command as the leader of a session that has the terminal. Its process keeps its number: `env` and `setsid`
    /// execute the next program. It ignores no signal, though tests do in the background of a shell, or under nohup.
    pub fn start(&self, command: &Command) -> Child {
        let end = || Stdio::from(self.theirs.try_clone().unwrap());
        let mut leader = Command::new("env");
        leader.args(["--default-signal", "setsid", "--ctty"]).arg(command.get_program());
        leader.args(command.get_args()).env("TERM", "xterm").env_remove("NO_COLOR");
        take_environment(&mut leader, command);
        if let Some(folder) = command.get_current_dir() {
            leader.current_dir(folder);
        }
        leader.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    /// Everything that is written until no program has the terminal any more.
    pub fn read_to_end(self) -> String {
        let Self { mut ours, theirs } = self;
        drop(theirs);
        let (mut all, mut some) = (Vec::new(), [0; 4096]);
        let _limit = TimeLimit::start(END_LIMIT, "the end of all programs on the terminal");
        // The end is an error: EIO.
        while let Ok(read @ 1..) = ours.read(&mut some) {
            all.extend(&some[..read]);
        }
        String::from_utf8(all).unwrap()
    }
}

/// A terminal with its screen.
pub struct Screen {
    pub pty: Pty,
    pub terminal: avt::Terminal,
    /// The beginning of a character whose other bytes were not read yet.
    rest: Vec<u8>,
}

impl Screen {
    pub fn new(lines: u16, columns: u16) -> Self {
        let terminal = terminal(lines.into(), columns.into());
        Self { pty: Pty::new(lines, columns), terminal, rest: Vec::new() }
    }

    /// Changes the size of both.
    pub fn resize(&mut self, lines: u16, columns: u16) {
        self.pty.resize(lines, columns);
        self.take();
        self.terminal.resize(columns.into(), lines.into());
    }

    /// What somebody types.
    pub fn type_keys(&mut self, keys: &str) {
        self.pty.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the lines on the screen and above it are as wanted, and returns them.
    pub fn await_lines(&mut self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let begun = Instant::now();
        loop {
            self.take();
            let lines = all(&self.terminal);
            if wanted(&lines) {
                return lines;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}: {lines:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Draws what was written since the last time.
    pub fn take(&mut self) {
        let mut some = [0; 4096];
        while self.is_readable() {
            let Ok(read @ 1..) = self.pty.ours.read(&mut some) else { return };
            self.rest.extend(&some[..read]);
            let whole = match std::str::from_utf8(&self.rest) {
                Ok(text) => text.len(),
                Err(why) => why.valid_up_to(),
            };
            let text: Vec<u8> = self.rest.drain(..whole).collect();
            self.terminal.feed(std::str::from_utf8(&text).unwrap());
        }
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.pty.ours, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }
}

/// A shell with job control that runs `script`, in which `"$@"` is the command.
pub fn shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-mc", script, "sh"]).arg(command.get_program()).args(command.get_args());
    take_environment(&mut shell, command);
    shell
}

/// Gives a command the variables that were set for another one.
fn take_environment(to: &mut Command, from: &Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// Whether a line ends so: keys are echoed before.
pub fn has(lines: &[String], end: &str) -> bool {
    lines.iter().any(|line| line.ends_with(end))
}

/// An empty screen that keeps the lines that go over its top.
pub fn terminal(lines: usize, columns: usize) -> avt::Terminal {
    avt::Terminal::with_scrollback(columns, lines, None).unwrap()
}

/// The lines of a screen, without blanks at their ends.
pub fn visible(terminal: &avt::Terminal) -> Vec<String> {
    let line = |line: &avt::Line| line.text().trim_end().to_owned();
    terminal.screen().visible_lines().map(line).collect()
}

/// The same with all lines that have gone over its top, oldest first.
pub fn all(terminal: &avt::Terminal) -> Vec<String> {
    terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned()).collect()
}

/// What a terminal does with keys and text.
pub fn modes(screen: &Screen) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, special_codes, .. } =
        tcgetattr(&screen.pty.theirs).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
}

/// Fails unless a terminal is as programs expect it: the whole screen scrolls, it is not the alternate one, and the cursor
/// is visible.
pub fn assert_usual(terminal: &mut avt::Terminal) {
    assert!(terminal.cursor().visible, "the cursor is hidden");
    assert_eq!(terminal.active_screen_kind(), avt::ScreenKind::Primary);
    let lines = terminal.size().1;
    terminal.feed("\r\n".repeat(2 * lines).as_str());
    let seen = visible(terminal);
    assert!(seen.iter().all(String::is_empty), "not the whole screen scrolls: {seen:#?}");
}
