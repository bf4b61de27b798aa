//! A table in the last lines of a terminal to which other programs write, too; a scroll region
//! keeps it there.
//!
//! # Problem
//! Programs write to the same terminal, and their cursor position is unknown. Moving the cursor up
//! from it to draw a table anew would clear their lines.
//! # Approach
//! The table has the last lines of the screen. Scrolling is confined to the lines above (DECSTBM,
//! known to every terminal since the VT100), so that output of programs never gets there. If the
//! cursor is already that far down, the screen scrolls first.
//! # Properties
//! - **Nothing of others is lost**: each line that they print is on the screen or above it, whole.
//!   -> test `what_programs_print_stays`
//! - **Left as it was**: afterwards the whole screen scrolls, and the table is gone. -> test `it_is_taken_away`

use super::TerminalSize;
use std::fmt::Write;

/// Saves the cursor position (DECSC), and restores it (DECRC).
const KEEP: &str = "\u{1b}7";
const BACK: &str = "\u{1b}8";
/// Resets the scroll region to the whole screen. The cursor goes to the top left.
const WHOLE: &str = "\u{1b}[r";
/// Moves the cursor down in its column (IND); in the last line, the screen scrolls instead.
const DOWN: &str = "\u{1b}D";
/// Clears from the cursor to the end of the screen.
const CLEAR: &str = "\u{1b}[J";

/// Lines for a table on a terminal: half of them; none below 4, since a scroll region needs two.
pub fn room(size: TerminalSize) -> usize {
    if size.lines < 4 { 0 } else { size.lines / 2 }
}

/// A table to show.
#[derive(Debug, Default)]
pub struct Frame {
    /// Lines of the table, none longer than the terminal's, as many as fit. Empty to remove it.
    pub text: String,
    /// Size of the terminal for which the table was made.
    pub size: TerminalSize,
}

/// The lines kept at the end of the terminal.
#[derive(Debug, Default)]
pub struct ScrollRegion {
    /// Size of the terminal, and number of the table's lines; `None` without a table.
    kept: Option<(TerminalSize, usize)>,
}

impl ScrollRegion {
    /// Output that shows `frame` on a terminal of size `now`; `None` if drawing is not allowed.
    pub fn show(&mut self, frame: &Frame, now: Option<TerminalSize>) -> String {
        let rows: Vec<&str> = frame.text.lines().take(room(frame.size)).collect();
        if rows.is_empty() || now.is_none() {
            self.leave(now)
        } else if now == Some(frame.size) {
            self.draw(&rows, frame.size)
        } else {
            // The terminal was resized. The next frame will fit.
            String::new()
        }
    }

    fn draw(&mut self, rows: &[&str], size: TerminalSize) -> String {
        let kept = rows.len();
        // Makes room below the cursor, which stays where it is in the text. Programs may have
        // changed the region, so each frame sets it.
        let mut text = format!("{KEEP}{WHOLE}{BACK}{}\u{1b}[{kept}A{KEEP}", DOWN.repeat(kept));
        let before = match self.kept {
            Some((before, lines)) if before == size => lines,
            // After a change of size, the rest of the old table is below the cursor.
            Some(_) => {
                let _ = write!(text, "{DOWN}\r{CLEAR}");
                0
            }
            None => 0,
        };
        let top = size.lines - kept;
        // A higher table before has lines above the new one to clear, too.
        let first = size.lines - before.max(kept) + 1;
        // Clearing would use the colours that a program has left set.
        let _ = write!(text, "\u{1b}[1;{top}r\u{1b}[0m\u{1b}[{first};1H{CLEAR}");
        for (row, line) in (top + 1..).zip(rows) {
            let _ = write!(text, "\u{1b}[{row};1H{line}");
        }
        self.kept = Some((size, kept));
        text + BACK
    }

    /// Output that resets the scroll region and removes the table. Its lines are cleared only if
    /// the terminal still has its size; `now` is `None` if clearing is not allowed.
    pub fn leave(&mut self, now: Option<TerminalSize>) -> String {
        let Some((size, kept)) = self.kept.take() else { return String::new() };
        let cleared = match now {
            Some(now) if now == size => {
                format!("\u{1b}[0m\u{1b}[{};1H{CLEAR}", size.lines - kept + 1)
            }
            _ => String::new(),
        };
        format!("{KEEP}{WHOLE}{cleared}{BACK}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use avt::Terminal;
    use proptest::prelude::*;

    const SIZE: TerminalSize = TerminalSize { lines: 8, columns: 20 };

    /// A terminal of this size that keeps the lines that go over its top.
    fn terminal() -> Terminal {
        Terminal::with_scrollback(SIZE.columns, SIZE.lines, None).unwrap()
    }

    /// The lines of its screen, without blanks at their ends.
    fn seen(terminal: &Terminal) -> Vec<String> {
        let lines = terminal.screen().visible_lines();
        lines.map(|line| line.text().trim_end().to_owned()).collect()
    }

    /// Whether the whole screen scrolls: a region keeps what is below it.
    fn scrolls_whole(mut terminal: Terminal) -> bool {
        terminal.feed("\r\n".repeat(2 * SIZE.lines).as_str());
        seen(&terminal).concat().is_empty()
    }

    fn frame(rows: usize) -> Frame {
        let text: String = (0..rows).map(|row| format!("table {row}\n")).collect();
        Frame { text, size: SIZE }
    }

    /// Three lines are kept at the bottom, and five scroll.
    #[test]
    fn a_table_at_the_bottom() {
        let (mut screen, mut terminal) = (ScrollRegion::default(), terminal());
        terminal.feed("$ colocate\r\nbegun");
        terminal.feed(screen.show(&frame(3), Some(SIZE)));
        let expected = ["$ colocate", "begun", "", "", "", "table 0", "table 1", "table 2"];
        assert_eq!(seen(&terminal), expected);
        terminal.feed(" at last\r\n1\r\n2\r\n3\r\n4");
        let expected = ["begun at last", "1", "2", "3", "4", "table 0", "table 1", "table 2"];
        assert_eq!(seen(&terminal), expected);
        assert_eq!(terminal.screen().text()[0], "$ colocate", "it is above the screen");
        // It grows by a line: everything else moves up, the cursor too.
        terminal.feed(screen.show(&frame(4), Some(SIZE)));
        terminal.feed("!");
        let expected = ["1", "2", "3", "4!", "table 0", "table 1", "table 2", "table 3"];
        assert_eq!(seen(&terminal), expected);
    }

    #[test]
    fn it_is_taken_away() {
        let (mut screen, mut terminal) = (ScrollRegion::default(), terminal());
        terminal.feed(screen.show(&frame(3), Some(SIZE)));
        terminal.feed("done\r\n");
        terminal.feed(screen.leave(Some(SIZE)));
        assert_eq!(seen(&terminal).concat(), "done");
        assert_eq!(screen.leave(Some(SIZE)), "", "there is nothing to take away any more");
        // Behind a shell's back nothing is cleared.
        terminal.feed(screen.show(&frame(3), Some(SIZE)));
        terminal.feed(screen.show(&frame(3), None));
        assert_eq!(seen(&terminal).concat(), "donetable 0table 1table 2");
        assert_eq!(screen.show(&frame(3), None), "");
        assert!(scrolls_whole(terminal));
    }

    #[test]
    fn it_leaves_room() {
        let rows = |lines| {
            let size = TerminalSize { lines, columns: 20 };
            let frame = Frame { size, ..frame(9) };
            ScrollRegion::default().show(&frame, Some(size)).matches("table").count()
        };
        assert_eq!([1, 3, 4, 8, 30].map(rows), [0, 0, 2, 4, 9]);
    }

    /// What was drawn before is gone, wherever the terminal has put it.
    #[test]
    fn another_size() {
        let (mut screen, mut terminal) = (ScrollRegion::default(), terminal());
        terminal.feed("one\r\n");
        terminal.feed(screen.show(&frame(3), Some(SIZE)));
        terminal.resize(SIZE.columns, 12);
        let now = TerminalSize { lines: 12, ..SIZE };
        assert_eq!(screen.show(&frame(3), Some(now)), "", "it was made for another size");
        terminal.feed("two\r\n");
        terminal.feed(screen.show(&Frame { size: now, ..frame(2) }, Some(now)));
        assert_eq!(seen(&terminal).concat(), "onetwotable 0table 1");
    }

    proptest! {
        /// Programs print lines, some in pieces; tables of any height are drawn in between, or taken away.
        #[test]
        fn what_programs_print_stays(begin in 0_usize..12, deeds in prop::collection::vec(0_usize..9, 0..60)) {
            let (mut screen, mut terminal) = (ScrollRegion::default(), terminal());
            let mut printed: Vec<String> = Vec::new();
            let mut print = |terminal: &mut Terminal, between: &str| {
                let line = format!("line {}", printed.len());
                terminal.feed(format!("{}{between}{}\r\n", &line[..3], &line[3..]));
                printed.push(line);
            };
            (0..begin).for_each(|_| print(&mut terminal, ""));
            for deed in deeds {
                let drawn = match deed {
                    0 => screen.leave(Some(SIZE)),
                    rows if rows < 5 => screen.show(&frame(rows), Some(SIZE)),
                    _ => String::new(),
                };
                if deed % 2 == 0 {
                    print(&mut terminal, &drawn);
                } else {
                    terminal.feed(drawn);
                    print(&mut terminal, "");
                }
            }
            terminal.feed(screen.leave(Some(SIZE)));
            let mut seen = terminal.screen().text();
            seen.retain(|line| !line.is_empty());
            prop_assert_eq!(seen, printed);
        }
    }
}
