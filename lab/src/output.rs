//! The guest's second serial line: what the command prints, byte by byte, and then its status.

/// Separates the command's output from the line by which `/init` ends it.
pub struct Output {
    /// What `/init` writes before the status.
    mark: Vec<u8>,
    /// Bytes that may be the beginning of the mark, or the mark and what follows it.
    held: Vec<u8>,
    status: Option<i32>,
}

impl Output {
    /// For a guest whose `/init` writes `mark` and the status after a line's end.
    #[must_use]
    pub fn new(mark: &str) -> Self {
        Self { mark: format!("\n{mark} end ").into(), held: Vec::new(), status: None }
    }

    /// Takes what came, and hands what is certainly the command's to `to` at once.
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

    /// The command's status, once it has ended and all of its output was handed out.
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

/// Where `mark`, or a beginning of it at the very end, begins in `bytes`; else their length.
fn find(bytes: &[u8], mark: &[u8]) -> usize {
    (0..bytes.len())
        .filter(|&place| bytes[place] == mark[0])
        .find(|&place| {
            let rest = &bytes[place..];
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
