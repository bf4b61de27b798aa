//! Output of results, to a file or standard output, and of remarks.
//!
//! All text leaves the program through this module. Unprintable characters are escaped: names of
//! other users' programs, paths and file contents must not act on the terminal. A name within a
//! line is escaped where the line is formatted ([`colocate_machine::printable()`]), since only
//! there a line break is known to belong to the name.
//!
//! # Properties
//! - **Nothing unprintable leaves**: neither on a stream nor in a file. -> test `nothing_unprintable_leaves`

mod progress;
mod redraw;
mod scroll_region;
mod thread;

use anyhow::Context;
use colocate_files::FileMode;
use colocate_machine::{printable, printable_lines};
use console::Term;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

pub use progress::Bar;
pub use redraw::Redraw;
pub use scroll_region::{Frame, room};
pub use thread::OutputThread;

/// Size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub lines: usize,
    /// Characters in a line.
    pub columns: usize,
}

/// Terminal on standard error; `None` if that is no terminal.
pub fn error_terminal() -> Option<Term> {
    Some(Term::stderr()).filter(Term::is_term)
}

/// Size of a terminal; `None` if unknown.
pub fn size(term: &Term) -> Option<TerminalSize> {
    term.size_checked()
        .map(|(lines, columns)| TerminalSize { lines: lines.into(), columns: columns.into() })
}

/// Writes `text` to `path`, or to standard output without a path or with `-`.
///
/// A file appears whole or not at all ([`colocate_files::write()`]); `kill -9` in between leaves a
/// file `.colocate-….tmp` beside it. A closed reader of standard output is no error.
pub fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    write_as(path, text, FileMode::ByUmask)
}

/// As [`write()`], for text with command lines, maybe passwords: a new file is this user's alone.
pub fn write_private(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    write_as(path, text, FileMode::Private)
}

/// As [`write()`], with `mode` for a new file.
pub fn write_as(path: Option<&Path>, text: &str, mode: FileMode) -> anyhow::Result<()> {
    match path.filter(|path| *path != Path::new("-")) {
        None => print(text).map(drop),
        Some(path) => Ok(colocate_files::write(path, printable_lines(text).as_bytes(), mode)?),
    }
}

/// Writes to standard output. Returns false if the reader has gone away.
pub fn print(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(printable_lines(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true).context("cannot write to standard output"),
    }
}

/// As [`write_as`], for results of long work: if a file fails, the text goes to standard output.
pub fn keep(path: Option<&Path>, text: &str, mode: FileMode) -> anyhow::Result<()> {
    let written = write_as(path, text, mode);
    if written.is_err() && path.is_some() {
        // The error of the file is the one to report.
        let _ = write(None, text);
    }
    written
}

/// As [`keep`], for a command whose standard output belongs to a program: without a file, or if
/// writing fails, the text goes to standard error. It contains command lines ([`write_private`]).
pub fn keep_aside(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let written = path.map_or(Ok(()), |path| write_private(Some(path), text));
    if written.is_err() || path.is_none() {
        aside(text);
    }
    written
}

/// Name of the program, if not `colocate`.
static NAME: OnceLock<&str> = OnceLock::new();

/// Sets the name that begins remarks; only the first call has an effect.
pub fn set_name(name: &'static str) {
    let _ = NAME.set(name);
}

/// Writes one line to standard error, after the program's name.
pub fn remark(line: &str) {
    aside(&remarked(line));
}

/// A remark as written, with the program's name.
pub fn remarked(line: &str) -> String {
    format!("{}: {}\n", NAME.get().unwrap_or(&"colocate"), printable(line))
}

/// Writes to standard error and ignores errors, such as a full disk: programs run on.
pub fn aside(text: &str) {
    let _ = std::io::stderr().lock().write_all(printable_lines(text).as_bytes());
}

/// A private descriptor of standard error, inherited by no program. A thread with the lock of
/// `io::stderr` would block all threads.
pub struct OwnStderr(File);

impl OwnStderr {
    /// Duplicates standard error.
    pub fn open() -> std::io::Result<Self> {
        std::io::stderr().as_fd().try_clone_to_owned().map(|fd| Self(fd.into()))
    }

    /// Size of the terminal, if this process may draw on it. `None` while another process group is
    /// in the foreground, e.g. a shell with colocate in the background (tcgetpgrp(3)).
    pub fn drawable(&self) -> Option<TerminalSize> {
        let is_ours = tcgetpgrp(&self.0).is_ok_and(|foreground| foreground == getpgrp());
        is_ours.then(|| size(&Term::stderr())).flatten()
    }

    /// Writes text in a single piece. Control sequences are allowed; names are escaped already.
    pub fn draw(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{remarked, write};

    #[test]
    fn nothing_unprintable_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(Some(&path), "a\x1b[2J\u{9b}\u{202e}\tb\r\n").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "a\\x1b[2J\\x9b\\u{202e}\tb\\x0d\n");
        assert_eq!(remarked("a\ncolocate: b\x1b"), "colocate: a\\x0acolocate: b\\x1b\n");
    }
}
