//! Where results go, a file or standard output, and where remarks do.
//!
//! All text that leaves the program goes through here. What is not printable is escaped: names of other users' programs,
//! paths and what files say must not act on the terminal. A name that is a part of a line is escaped where it is put
//! into it ([`colocate_machine::printable()`]), since only there an end of a line is known to be the name's.
//!
//! # Properties
//! - **Nothing unprintable leaves**: neither on a stream nor in a file. -> test `nothing_unprintable_leaves`

mod progress;
mod redraw;
mod scroll_region;
mod thread;

use anyhow::Context;
use colocate_files::Mode;
use colocate_machine::{printable, printable_lines};
use console::Term;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

pub use progress::Bar;
pub use redraw::Redraw;
pub use scroll_region::{Frame, room};
pub use thread::OutputThread;

/// A standard stream for what we say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Whether a stream is a terminal.
pub fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Out => std::io::stdout().is_terminal(),
        Stream::Err => std::io::stderr().is_terminal(),
    }
}

/// How large a terminal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub lines: usize,
    /// Characters in a line.
    pub columns: usize,
}

/// How large the terminal on a stream is; `None` if it does not say.
pub fn size(stream: Stream) -> Option<Size> {
    let term = if stream == Stream::Out { Term::stdout() } else { Term::stderr() };
    term.size_checked()
        .map(|(lines, columns)| Size { lines: lines.into(), columns: columns.into() })
}

/// Writes `text` to `path`, or to standard output if there is none or it is `-`.
///
/// A file appears whole or not at all ([`colocate_files::write()`]); `kill -9` in between leaves a file
/// `.colocate-….tmp` beside it. A reader of standard output that has gone away is not an error.
pub fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    write_as(path, text, Mode::ByUmask)
}

/// The same for what holds command lines, in which there may be passwords: only this user may read a new file.
pub fn write_private(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    write_as(path, text, Mode::Private)
}

/// The same for those that `mode` allows to read a new file.
pub fn write_as(path: Option<&Path>, text: &str, mode: Mode) -> anyhow::Result<()> {
    match path.filter(|path| *path != Path::new("-")) {
        None => print(text).map(drop),
        Some(path) => Ok(colocate_files::write(path, printable_lines(text).as_bytes(), mode)?),
    }
}

/// Writes to standard output. False if its reader has gone away.
pub fn print(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(printable_lines(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true).context("cannot write to standard output"),
    }
}

/// The same for what has taken long to find out: if a file cannot be written, standard output gets it.
pub fn keep(path: Option<&Path>, text: &str, mode: Mode) -> anyhow::Result<()> {
    let written = write_as(path, text, mode);
    if written.is_err() && path.is_some() {
        let _ = write(None, text);
    }
    written
}

/// The same where standard output is a program's: standard error gets what is written into no file. It holds command
/// lines ([`write_private`]).
pub fn keep_aside(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let written = path.map_or(Ok(()), |path| write_private(Some(path), text));
    if written.is_err() || path.is_none() {
        aside(text);
    }
    written
}

/// The program's name, where it is not `colocate`.
static NAME: OnceLock<&str> = OnceLock::new();

/// Sets the name that begins remarks; the first one stays.
pub fn set_name(name: &'static str) {
    let _ = NAME.set(name);
}

/// Says a line on standard error, after our name. It stays one line.
pub fn remark(line: &str) {
    aside(&remarked(line));
}

/// A line as it is said.
pub fn remarked(line: &str) -> String {
    format!("{}: {}\n", NAME.get().unwrap_or(&"colocate"), printable(line))
}

/// Writes to standard error. Programs run on and results are kept although it is not read: a reader that has
/// gone away, a full disk.
pub fn aside(text: &str) {
    let _ = std::io::stderr().lock().write_all(printable_lines(text).as_bytes());
}

/// A descriptor of standard error of its own, which no program inherits: a thread that holds the lock of `io::stderr`
/// keeps all others from it.
pub struct OwnStderr(File);

impl OwnStderr {
    /// Makes one.
    pub fn open() -> std::io::Result<Self> {
        std::io::stderr().as_fd().try_clone_to_owned().map(|fd| Self(fd.into()))
    }

    /// How large the terminal is, if this process may draw on it: `None` while another process group has it, as a shell
    /// that runs colocate in the background (tcgetpgrp(3)).
    pub fn drawable(&self) -> Option<Size> {
        let is_ours = tcgetpgrp(&self.0).is_ok_and(|foreground| foreground == getpgrp());
        is_ours.then(|| size(Stream::Err)).flatten()
    }

    /// Writes in one piece what may hold our own control sequences; names are escaped already.
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
