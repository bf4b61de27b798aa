//! A table on the terminal of standard output, of which each takes the place of the one before.
//!
//! # Properties
//! - **Nothing of others is erased**: a table stays, and the next one is drawn below it, if others may have written since:
//!   after Ctrl-Z, while another process group has the terminal, and after a remark. It also stays if the terminal's size
//!   has changed, since its lines may be wrapped now. -> test `a_shell_writes_in_between`

use super::{Size, Stream, is_terminal, remark, size};
use anyhow::Context;
use colocate_machine::printable;
use console::{Term, truncate_str};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::SIGCONT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where tables are drawn.
pub struct Redraw {
    term: Term,
    /// Set by SIGCONT.
    resumed: Arc<AtomicBool>,
    /// How large the terminal was, and the lines of the table there, if the next one may take its place.
    last: Option<(Size, usize)>,
}

impl Redraw {
    /// On standard output; `None` if that is no terminal, or one that moves no cursor (`TERM=dumb`).
    pub fn of_stdout() -> anyhow::Result<Option<Self>> {
        if !is_terminal(Stream::Out) || console::is_dumb() {
            return Ok(None);
        }
        let resumed = Arc::default();
        signal_hook::flag::register(SIGCONT, Arc::clone(&resumed))
            .context("cannot catch signals")?;
        Ok(Some(Self { term: Term::buffered_stdout(), resumed, last: None }))
    }

    /// How large the terminal is, or usually is if it does not say.
    pub fn size(&self) -> Size {
        size(Stream::Out).unwrap_or(Size { lines: 24, columns: 80 })
    }

    /// Shows a table; its lines are cut where the terminal ends. One that is higher than the terminal scrolls.
    pub fn draw(&mut self, text: &str) -> anyhow::Result<()> {
        let size = self.size();
        let cut = |line| truncate_str(&printable(line), size.columns, "…").into_owned() + "\n";
        let cut: String = text.lines().map(cut).collect();
        let resumed = self.resumed.swap(false, Ordering::Relaxed);
        let in_background = tcgetpgrp(std::io::stdout()).is_ok_and(|group| group != getpgrp());
        let last = self.last.filter(|(before, _)| *before == size && !resumed && !in_background);
        let written = self.replace(last.map_or(0, |(_, lines)| lines), &cut);
        self.last = (!in_background).then(|| (size, cut.lines().count()));
        written.context("cannot write to standard output")
    }

    /// Writes `text` in place of so many lines above the cursor.
    fn replace(&self, lines: usize, text: &str) -> std::io::Result<()> {
        if lines > 0 {
            self.term.move_cursor_up(lines)?;
            self.term.clear_to_end_of_screen()?;
        }
        self.term.write_str(text)?;
        self.term.flush()
    }

    /// Says a line on standard error, after our name. The table there stays above it.
    pub fn remark(&mut self, line: &str) {
        self.last = None;
        remark(line);
    }
}
