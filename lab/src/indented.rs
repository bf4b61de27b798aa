//! What a guest's cases print, set in below the name of the boot.

use std::io::Write as _;

/// Shows output as it comes, each line set in by two blanks.
#[derive(Default)]
pub struct Indented {
    within_line: bool,
}

impl Indented {
    /// Shows what came.
    pub fn show(&mut self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let indent: &[u8] = if self.within_line { b"" } else { b"  " };
            self.within_line = !line.ends_with(b"\n");
            // A reader that has gone away is no reason to leave the guest half way.
            let _ = out.write_all(indent).and_then(|()| out.write_all(line));
        }
        let _ = out.flush();
    }

    /// Ends a line that has begun.
    pub fn end(self) {
        if self.within_line {
            println!();
        }
    }
}
