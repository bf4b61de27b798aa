//! A table on the terminal of standard output; each table replaces the previous one.
//!
//! # Properties
//! - **Foreign output stays**: the next table is drawn below the previous one if other programs may
//!   have written since: after Ctrl-Z, while another process group is in the foreground, and after a
//!   remark. The same holds after a change of the terminal's size, since lines may be wrapped.
//!   -> test `a_shell_writes_in_between`

use super::{TerminalSize, remark, size};
use anyhow::Context;
use colocate_linux::signal;
use colocate_machine::printable;
use console::{Term, truncate_str};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::sync::atomic::{AtomicBool, Ordering};

/// A terminal for tables.
pub struct Redraw {
    term: Term,
    /// Set by SIGCONT.
    resumed: &'static AtomicBool,
    /// Size of the terminal and lines of the last table, if the next table may replace it.
    last: Option<(TerminalSize, usize)>,
}

impl Redraw {
    /// The terminal of standard output; `None` for files and pipes, and for a terminal that moves
    /// no cursor (`TERM=dumb`).
    pub fn of_stdout() -> anyhow::Result<Option<Self>> {
        let term = Term::buffered_stdout();
        if !term.is_term() || console::is_dumb() {
            return Ok(None);
        }
        let resumed = signal::continued_flag().context("cannot catch signals")?;
        Ok(Some(Self { term, resumed, last: None }))
    }

    /// Size of the terminal; 80 by 24 if unknown.
    pub fn size(&self) -> TerminalSize {
        size(&self.term).unwrap_or(TerminalSize { lines: 24, columns: 80 })
    }

    /// Draws a table, lines cut to the terminal's width. One higher than the terminal scrolls.
    pub fn draw(&mut self, text: &str) -> anyhow::Result<()> {
        let size = self.size();
        let lines = text.lines();
        let cut = lines.map(|line| truncate_str(&printable(line), size.columns, "…").into_owned());
        let cut: String = cut.map(|line| line + "\n").collect();
        let resumed = self.resumed.swap(false, Ordering::Relaxed);
        let in_background = tcgetpgrp(std::io::stdout()).is_ok_and(|group| group != getpgrp());
        // Otherwise lines of other programs, or wrapped ones, would be overwritten.
        let last = self.last.filter(|(before, _)| *before == size && !resumed && !in_background);
        let written = self.replace(last.map_or(0, |(_, lines)| lines), &cut);
        // In the background, other programs may write below the table.
        self.last = (!in_background).then(|| (size, cut.lines().count()));
        written.context("cannot write to standard output")
    }

    /// Writes `text` over the `lines` lines above the cursor.
    fn replace(&self, lines: usize, text: &str) -> std::io::Result<()> {
        if lines > 0 {
            self.term.move_cursor_up(lines)?;
            self.term.clear_to_end_of_screen()?;
        }
        self.term.write_str(text)?;
        self.term.flush()
    }

    /// Writes a line to standard error, after the program's name. The last table stays above it.
    pub fn remark(&mut self, line: &str) {
        self.last = None;
        remark(line);
    }
}
