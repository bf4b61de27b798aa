//! Nothing that was seen is lost: the output file is tried before the program runs, and if it
//! fails afterwards all the same, the profile goes somewhere else.

use crate::output;
use anyhow::Context;
use std::fs::OpenOptions;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Whether a profile can be written to `path`, tried before it is too late.
///
/// # Errors
/// If it cannot be, with the system's reason.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let found = path.metadata();
    if found.as_ref().is_ok_and(|found| found.file_type().is_fifo()) {
        // Its reader would take our closing it for the end of the profile.
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))?;
    if found.is_err() {
        // It shall not lie there empty if the program is killed. What goes is the new file, not a
        // link that leads to it.
        let _ = path.canonicalize().and_then(std::fs::remove_file);
    }
    Ok(())
}

/// Writes `text` to `path`; if that fails, to the folder for temporary files, else to standard
/// output.
///
/// # Errors
/// That it did not go to `path`, and where it is instead.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let Err(error) = output::write(Some(path), text) else { return Ok(()) };
    let name = format!("colocate-profile-{}.json", std::process::id());
    let instead = std::env::temp_dir().join(name);
    if output::write(Some(&instead), text).is_ok() {
        return Err(error.context(format!("the profile is in {} instead", instead.display())));
    }
    output::write(None, text)?;
    Err(error.context("the profile went to standard output instead"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn what_is_tried_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("nothing", at("link")).unwrap();
        std::fs::write(at("old"), "old").unwrap();
        for name in ["new", "link", "old"] {
            check(&at(name)).unwrap();
        }
        assert!(!at("new").exists() && !at("nothing").exists());
        assert_eq!(at("link").read_link().unwrap().to_str(), Some("nothing"));
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "old");
        check(folder.path()).unwrap_err();
    }

    /// To open a named pipe is to wait for its reader, and to close it is to say that all was said.
    #[test]
    fn a_pipe_is_not_opened_to_try_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (say, hear) = mpsc::channel();
        std::thread::spawn(move || say.send(check(&pipe).is_ok()));
        assert_eq!(hear.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
