//! Output of a guest's cases, indented below the name of the boot.

use std::io::Write as _;

/// Prints output as it arrives, each line indented by two blanks.
#[derive(Default)]
pub struct Indented {
    within_line: bool,
}

impl Indented {
    /// Prints the next piece of output.
    pub fn show(&mut self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let indent: &[u8] = if self.within_line { b"" } else { b"  " };
            self.within_line = !line.ends_with(b"\n");
            // A closed standard output must not end the guest halfway.
            let _ = out.write_all(indent).and_then(|()| out.write_all(line));
        }
        let _ = out.flush();
    }

    /// Ends an unfinished line.
    pub fn end(self) {
        if self.within_line {
            println!();
        }
    }
}
