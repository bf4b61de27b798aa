//! Text that the kernel makes: the files of /proc and /sys.
//!
//! Their paths lead through links of the kernel's own, and no user can put anything there. What is read is bounded all
//! the same: programs choose how many lines `/proc/PID/maps` and the like have.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Most bytes of one file. Chosen: `cgroup.procs` of all the processes that Linux can have (4,194,304) takes half.
pub const LIMIT_B: u64 = 64 << 20;

/// The content of a file, of at most [`LIMIT_B`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LIMIT_B + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT_B {
        let what = format!("expected at most {LIMIT_B} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The text in a file.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| {
        let what = format!("expected text, found {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// The names in a folder, in no order.
pub fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Opens a file for reading, as one that is read again and again.
pub fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::File::open(path)
}

/// Where a link leads.
pub fn link(path: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}
