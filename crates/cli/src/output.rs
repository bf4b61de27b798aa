//! Where results go, a file or standard output, and where remarks do.

use anyhow::Context;
use std::fs::{File, Metadata};
use std::io::Write;
use std::path::Path;

/// Writes `text` to `path`, or to standard output if there is none or it is `-`.
///
/// A file appears whole or not at all: the text goes to a temporary file beside it, which is then
/// renamed; `kill -9` in between leaves that one. A file that is there and cannot be replaced, since it is a mount point
/// or its folder is not ours to write to, is written over. A reader of standard output that has gone away is
/// not an error.
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

/// The same for what has taken long to find out: if a file cannot be written, standard output gets it.
///
/// # Errors
/// As [`write()`].
pub fn keep(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let written = write(path, text);
    if written.is_err() && path.is_some() {
        let _ = write(None, text);
    }
    written
}

/// The same where standard output is a program's: standard error gets what is written into no file.
///
/// # Errors
/// If the file cannot be written.
pub fn keep_aside(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let written = path.map_or(Ok(()), |path| write(Some(path), text));
    if written.is_err() || path.is_none() {
        aside(text);
    }
    written
}

/// Whether there is a folder for a file at `path`, to be asked before anything is begun; other reasons why it may not
/// be possible to write it show when it is written.
///
/// # Errors
/// If there is none, or the path is itself a folder.
pub fn has_a_place(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let found = if path.is_dir() {
        Err(std::io::ErrorKind::IsADirectory.into())
    } else {
        // With the dot, what is no folder is an error.
        folder.unwrap_or(Path::new(".")).join(".").metadata()
    };
    found.map(drop).with_context(|| format!("cannot write {}", path.display()))
}

/// Says a line on standard error, after our name.
pub fn remark(line: &str) {
    aside(&remarked(line));
}

/// A line as it is said.
pub fn remarked(line: &str) -> String {
    format!("colocate: {line}\n")
}

/// Writes to standard error. Programs run on and results are kept although nobody listens there: a reader that has
/// gone away, a full disk.
pub fn aside(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let old = path.metadata();
    // Devices and pipes cannot be renamed over, and a link that leads nowhere yet leads to nothing
    // that could be lost.
    if !old.as_ref().map_or_else(|_| !path.is_symlink(), Metadata::is_file) {
        return std::fs::write(path, text);
    }
    // What is replaced is the file that a link leads to, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let old = old.ok();
    match rename_over(&path, old.as_ref(), text) {
        Err(error) if old.is_some() && is_held(&error) => std::fs::write(path, text),
        done => done,
    }
}

/// Writes `text` to a temporary file beside `path`, and gives it that name.
fn rename_over(path: &Path, old: Option<&Metadata>, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&beside);
    let written = File::create(beside)
        .and_then(|mut file| {
            // Who could not read the old one shall not read this one.
            old.map_or(Ok(()), |old| file.set_permissions(old.permissions()))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(beside);
    }
    written
}

/// Whether an error says that a name cannot be changed; the file behind it may yet be written to.
fn is_held(error: &std::io::Error) -> bool {
    let held = [libc::EBUSY, libc::EACCES, libc::EPERM, libc::EROFS];
    error.raw_os_error().is_some_and(|code| held.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::{has_a_place, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn a_link_stays_a_link_and_a_secret_secret() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "old").unwrap();
        std::fs::set_permissions(at("old"), PermissionsExt::from_mode(0o600)).unwrap();
        symlink("old", at("link")).unwrap();
        symlink("new", at("early")).unwrap();
        for (name, file) in [("link", "old"), ("early", "new")] {
            write(Some(&at(name)), "text").unwrap();
            assert_eq!(at(name).read_link().unwrap().to_str(), Some(file));
            assert_eq!(std::fs::read_to_string(at(file)).unwrap(), "text");
        }
        assert_eq!(at("old").metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
    #[test]
    fn files_need_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        symlink("gone/file", at("link")).unwrap();
        for name in ["new", "file", "link"] {
            has_a_place(&at(name)).unwrap();
        }
        for name in ["-", "/dev/null", "new"] {
            has_a_place(Path::new(name)).unwrap();
        }
        for name in ["gone/file", "file/file", "."] {
            let why = has_a_place(&at(name)).unwrap_err().to_string();
            assert!(why.starts_with("cannot write "), "{name}: {why}");
        }
    }
}
