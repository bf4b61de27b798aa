//! The folder for what must not outlive the machine's uptime.

use colocate_files::Dir;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Possible folders for a user's journals, best first: `$XDG_RUNTIME_DIR/colocate` if set,
/// `/run/colocate` for root, `/tmp/colocate-UID`.
pub fn candidates(xdg_runtime_dir: Option<&OsStr>, user: u32) -> Vec<PathBuf> {
    // The XDG specification declares relative paths invalid.
    let xdg = xdg_runtime_dir.filter(|dir| Path::new(dir).is_absolute());
    let xdg = xdg.map(|dir| Path::new(dir).join("colocate"));
    let root = (user == 0).then(|| PathBuf::from("/run/colocate"));
    let shared = PathBuf::from(format!("/tmp/colocate-{user}"));
    xdg.into_iter().chain(root).chain([shared]).collect()
}

/// Opens the first usable folder of `candidates`, creating it if missing: a folder of this user
/// that no other user can write to or replace ([`Dir::open_private`]). In `/tmp` any user could
/// have created the folder, or a link of the same name, before.
///
/// # Errors
/// One line about the last candidate, if none is usable.
pub fn open(candidates: &[PathBuf], user: u32) -> Result<Dir, String> {
    let mut why = "no folder is known for it".to_owned();
    for dir in candidates {
        match Dir::open_or_make_private(dir, user) {
            Ok(dir) => return Ok(dir),
            Err(wrong) => why = wrong.line(),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_linux::sys::effective_user;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn which_folders() {
        let of = |xdg: Option<&str>, user| candidates(xdg.map(OsStr::new), user);
        let run = PathBuf::from("/run/user/7/colocate");
        assert_eq!(of(Some("/run/user/7"), 7), [run, PathBuf::from("/tmp/colocate-7")]);
        assert_eq!(of(None, 0), ["/run/colocate", "/tmp/colocate-0"].map(PathBuf::from));
        assert_eq!(of(Some("relative"), 7), [PathBuf::from("/tmp/colocate-7")]);
    }

    #[test]
    fn the_first_that_can_be_used_is() {
        let user = effective_user();
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        for _ in 0..2 {
            assert_eq!(open(&[at("missing/a"), at("new")], user).unwrap().path(), at("new"));
        }
        symlink(at("new"), at("link")).unwrap();
        assert!(open(&[at("link")], user).unwrap_err().ends_with("found a symbolic link"));
        assert_eq!(open(&[at("link"), at("new")], user).unwrap().path(), at("new"));
        std::fs::set_permissions(at("new"), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(open(&[at("new")], user).unwrap_err().ends_with("found mode 777"));
    }
}
