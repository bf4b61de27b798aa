//! The folder for what must not outlive the machine's uptime.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folders that may hold a user's journals, best first: `$XDG_RUNTIME_DIR/colocate` if that is
/// set, `/run/colocate` for root, `/tmp/colocate-UID`.
#[must_use]
pub fn candidates(xdg_runtime_dir: Option<&OsStr>, user: u32) -> Vec<PathBuf> {
    let xdg = xdg_runtime_dir.filter(|dir| Path::new(dir).is_absolute());
    let xdg = xdg.map(|dir| Path::new(dir).join("colocate"));
    let root = (user == 0).then(|| PathBuf::from("/run/colocate"));
    let shared = PathBuf::from(format!("/tmp/colocate-{user}"));
    xdg.into_iter().chain(root).chain([shared]).collect()
}

/// The first of `candidates` that can be used, made if it is missing.
///
/// # Errors
/// One line about the last candidate, if none can be used.
pub fn open(candidates: &[PathBuf], user: u32) -> Result<PathBuf, String> {
    let mut why = "no folder is known for it".to_owned();
    for dir in candidates {
        // A missing folder is made, a missing parent is not ours to make.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
        match check(dir, user) {
            Ok(()) => return Ok(dir.clone()),
            Err(wrong) => why = wrong,
        }
    }
    Err(why)
}

/// Whether `dir` is a folder of this user that nobody else can write to. In `/tmp` anybody could
/// have made it, or a link of that name, before us.
///
/// # Errors
/// One line about what is wrong.
pub fn check(dir: &Path, user: u32) -> Result<(), String> {
    let found =
        std::fs::symlink_metadata(dir).map_err(|why| format!("{}: {why}", dir.display()))?;
    let wrong = |found: &str| Err(format!("{}: expected {EXPECTED}, found {found}", dir.display()));
    if found.is_symlink() {
        wrong("a symbolic link")
    } else if !found.is_dir() {
        wrong("a file")
    } else if found.uid() != user {
        wrong(&format!("one of user {}", found.uid()))
    } else if found.mode() & 0o022 != 0 {
        wrong(&format!("mode {:o}", found.mode() & 0o7777))
    } else {
        Ok(())
    }
}

const EXPECTED: &str = "a folder of this user that only this user can write to";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::effective_user;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn where_to_look() {
        let of = |xdg: Option<&str>, user| candidates(xdg.map(OsStr::new), user);
        let run = PathBuf::from("/run/user/7/colocate");
        assert_eq!(of(Some("/run/user/7"), 7), [run, PathBuf::from("/tmp/colocate-7")]);
        assert_eq!(of(None, 0), ["/run/colocate", "/tmp/colocate-0"].map(PathBuf::from));
        assert_eq!(of(Some("relative"), 7), [PathBuf::from("/tmp/colocate-7")]);
    }

    #[test]
    fn what_is_not_ours_alone_is_refused() {
        let user = effective_user();
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        assert_eq!(open(&[at("missing/a"), at("new")], user), Ok(at("new")));
        assert_eq!(open(&[at("new")], user), Ok(at("new")));

        symlink(at("new"), at("link")).unwrap();
        assert!(open(&[at("link")], user).unwrap_err().ends_with("found a symbolic link"));
        std::fs::write(at("file"), "").unwrap();
        assert!(open(&[at("file")], user).unwrap_err().ends_with("found a file"));
        std::fs::set_permissions(at("new"), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(open(&[at("new")], user).unwrap_err().ends_with("found mode 777"));
        let other = open(&[at("new")], user + 1).unwrap_err();
        assert!(other.ends_with(&format!("found one of user {user}")), "{other}");
    }
}
