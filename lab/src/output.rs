//! The guest's second serial line: the command's output, byte by byte, and then its status.

/// Separates the command's output from the status line of `/init`.
pub struct Output {
    /// Bytes that `/init` writes before the status.
    mark: Vec<u8>,
    /// Bytes received from a possible beginning of the mark on.
    held: Vec<u8>,
    status: Option<i32>,
}

impl Output {
    /// Parser for a guest whose `/init` writes `mark`, "end" and the status in a line.
    #[must_use]
    pub fn new(mark: &str) -> Self {
        // The newline is of `/init`: the last line of the command can lack one.
        Self { mark: format!("\n{mark} end ").into(), held: Vec::new(), status: None }
    }

    /// Appends `bytes`, and passes the certain part of the command's output to `to` at once.
    pub fn push(&mut self, bytes: &[u8], to: &mut impl FnMut(&[u8])) {
        if self.status.is_some() {
            return;
        }
        self.held.extend_from_slice(bytes);
        let sure = find(&self.held, &self.mark);
        let (theirs, rest) = self.held.split_at(sure);
        if !theirs.is_empty() {
            to(theirs);
        }
        self.held = rest.to_vec();
        self.status = self.read_status();
    }

    /// The command's status; `None` until the command has ended and all output was passed on.
    #[must_use]
    pub const fn status(&self) -> Option<i32> {
        self.status
    }

    fn read_status(&self) -> Option<i32> {
        let line = self.held.strip_prefix(self.mark.as_slice())?;
        let end = line.iter().position(|&byte| byte == b'\n')?;
        std::str::from_utf8(&line[..end]).ok()?.trim().parse().ok()
    }
}

/// Offset in `bytes` of `mark`, or of a prefix of `mark` at the end of `bytes`; else the length.
fn find(bytes: &[u8], mark: &[u8]) -> usize {
    (0..bytes.len())
        .filter(|&place| bytes[place] == mark[0])
        .find(|&place| {
            let rest = &bytes[place..];
            // The next piece may complete a prefix of the mark.
            rest.starts_with(mark) || mark.starts_with(rest)
        })
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(pieces: &[&[u8]]) -> (String, Option<i32>) {
        let (mut output, mut all) = (Output::new("lab-1"), Vec::new());
        for piece in pieces {
            output.push(piece, &mut |bytes| all.extend_from_slice(bytes));
        }
        (String::from_utf8(all).expect("text"), output.status())
    }

    #[test]
    fn output_without_a_line_end_comes_at_once() {
        assert_eq!(taken(&[b"50 %"]), ("50 %".into(), None));
        // The line's end may be the mark's.
        assert_eq!(taken(&[b"a\n"]), ("a".into(), None));
        assert_eq!(taken(&[b"a\n", b"b"]), ("a\nb".into(), None));
    }

    #[test]
    fn the_mark_ends_the_output() {
        assert_eq!(taken(&[b"a\nlab-1 end 7\nrest"]), ("a".into(), Some(7)));
        assert_eq!(taken(&[b"a\n\nlab-1 end 0\n"]), ("a\n".into(), Some(0)));
        assert_eq!(taken(&[b"\nlab-1 end "]), (String::new(), None));
        assert_eq!(taken(&[b"\nlab-2 end 3\n", b"!"]), ("\nlab-2 end 3\n!".into(), None));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[\nlab1 -end]{0,40}", cuts in prop::collection::vec(0usize..60, 0..8)) {
            let whole = format!("{text}\nlab-1 end 3\n");
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &whole.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(taken(&pieces), (text, Some(3)));
        }
    }
}
