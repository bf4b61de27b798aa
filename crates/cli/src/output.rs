//! Where results go: a file or standard output.

use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// Writes `text` to `path`, or to standard output if there is none or it is `-`.
///
/// A file appears whole or not at all: the text goes to a temporary file beside it, which is then
/// renamed. A reader of standard output that has gone away is not an error.
///
/// # Errors
/// If the file cannot be written, with its path; nothing is left behind.
pub fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match path.filter(|path| *path != Path::new("-")) {
        None => match std::io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            done => done.context("cannot write to standard output"),
        },
        Some(path) => {
            replace(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
    }
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // Devices and pipes cannot be renamed over.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, text);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&beside);
    let written = std::fs::File::create(beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(beside);
    }
    written
}
