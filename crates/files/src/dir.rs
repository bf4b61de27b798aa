//! Folders, accessed through a descriptor.

use crate::error::{Action, FileError, Reason};
use crate::read::{self, Accept};
use crate::size::MaxSize;
use crate::walk::{self, Object};
use crate::write::{self, FileMode};
use rustix::fs::{AtFlags, FileType, FlockOperation, OFlags, Stat, flock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const EXPECTED: &str = "a folder of this user that only this user can write to";

/// A folder, held open by descriptor: replacing its path later has no effect.
///
/// Names are single path components, without a slash. Symbolic links with such a name are not
/// followed.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens the folder at `path`. A path over a link of another user is refused.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::at(path).map_err(|why| why.of(Action::Use, path))
    }

    fn at(path: &Path) -> Result<Self, Reason> {
        let object = walk::walk(path)?.object.ok_or(Errno::NOENT)?;
        if object.kind() != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { fd: object.fd, path: path.to_owned() })
    }

    /// Opens the folder at `path`. Missing folders, also above `path`, are created with the
    /// permission bits `mode` less the umask.
    pub fn open_or_make(path: &Path, mode: u32) -> Result<Self, FileError> {
        match Self::open(path) {
            Err(why) if why.is_missing() => {
                let Some(name) = path.file_name() else {
                    return Err(cannot_make(path, Errno::NOENT));
                };
                // The parent of a plain name is the empty path, which names no folder.
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                let above = Self::open_or_make(above.unwrap_or(Path::new(".")), mode)?;
                match rustix::fs::mkdirat(&above.fd, name, rustix::fs::Mode::from_raw_mode(mode)) {
                    // Another process may create the folder meanwhile.
                    Ok(()) | Err(Errno::EXIST) => Self::open(path),
                    Err(why) => Err(cannot_make(path, why)),
                }
            }
            opened => opened,
        }
    }

    /// Opens the folder at `path` if `user` owns it and no other user can write to or replace it.
    ///
    /// Each folder above must belong to `user` or root. If others can write to a folder above, it
    /// must have the sticky bit, as `/tmp` has.
    pub fn open_private(path: &Path, user: u32) -> Result<Self, FileError> {
        Self::private(path, user, false).map_err(|why| why.of(Action::Use, path))
    }

    /// Opens as [`Self::open_private`]; creates a missing folder with mode 0700. Its parent must
    /// exist.
    pub fn open_or_make_private(path: &Path, user: u32) -> Result<Self, FileError> {
        Self::private(path, user, true).map_err(|why| why.of(Action::Use, path))
    }

    fn private(path: &Path, user: u32, make: bool) -> Result<Self, Reason> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = walk::walk(above.unwrap_or(Path::new(".")))?.object.ok_or(Errno::NOENT)?;
        let above_is_safe = not_replaced_by_others(&above, user);
        // Create only below a safe folder. A failure to create is reported by the lookup that
        // follows.
        if make && above_is_safe.is_ok() {
            let mode = rustix::fs::Mode::from_raw_mode(0o700);
            let _ = rustix::fs::mkdirat(&above.fd, name, mode);
        }
        let found = match Object::at(&above.fd, name) {
            // An unsafe folder above is the better reason: it has prevented the creation.
            Err(why) => return Err(above_is_safe.err().unwrap_or_else(|| why.into())),
            Ok(found) => found,
        };
        let found = if found.kind() != FileType::Directory {
            walk::called(&found)
        } else if found.stat.st_uid != user {
            format!("one of user {}", found.stat.st_uid)
        } else if found.mode() & 0o022 != 0 {
            format!("mode {:o}", found.mode())
        } else {
            return above_is_safe.map(|()| Self { fd: found.fd, path: path.to_owned() });
        };
        Err(Reason::Unfit { expected: EXPECTED, found })
    }

    /// Path given at opening, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims the folder among processes that claim it, until the returned descriptor is closed (flock(2));
    /// `None` if another one has it. Without locks, as on NFS, every claim succeeds.
    pub fn claim(&self) -> Result<Option<OwnedFd>, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The folder's own descriptor is `O_PATH`, which cannot be locked.
        let opened = rustix::fs::openat(&self.fd, ".", flags, rustix::fs::Mode::empty());
        let fd = opened.map_err(|why| Reason::from(why).of(Action::Use, &self.path))?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            // NFS cannot lock what is open for reading only, and some file systems have no locks (flock(2)).
            _ => Ok(Some(fd)),
        }
    }

    /// Sets the permission bits of the folder.
    pub fn set_mode(&self, mode: u32) -> Result<(), FileError> {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        let set = rustix::fs::chmodat(&self.fd, ".", mode, AtFlags::empty());
        set.map_err(|why| Reason::from(why).of(Action::Write, &self.path))
    }

    /// Magic number of the folder's file system (statfs(2)), or `None` if the kernel reports none.
    #[must_use]
    pub fn file_system(&self) -> Option<u64> {
        walk::file_system(&self.fd)
    }

    /// Opens the folder `name` in this folder. A link is refused.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self, FileError> {
        let name = name.as_ref();
        let object = self.look(name, Action::Use)?;
        if object.kind() != FileType::Directory {
            return Err(self.wrong(Errno::NOTDIR.into(), name, Action::Use));
        }
        Ok(Self { fd: object.fd, path: self.path.join(name) })
    }

    /// Creates the folder `name` in this folder, with the permission bits `mode` less the umask.
    pub fn make_child(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<Self, FileError> {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        self.on(&name, Action::Make, |name| Ok(rustix::fs::mkdirat(&self.fd, name, mode)?))?;
        self.child(name)
    }

    /// Names in the folder, at most `most`, in no order, without `.` and `..`.
    pub fn names(&self, most: usize) -> Result<Vec<OsString>, FileError> {
        list(&self.fd, most).map_err(|why| Reason::from(why).of(Action::Read, &self.path))
    }

    /// Whether the folder has an entry `name` of any type, a dangling link included.
    #[must_use]
    pub fn holds(&self, name: impl AsRef<OsStr>) -> bool {
        self.look(name.as_ref(), Action::Use).is_ok()
    }

    /// Whether `name` is a folder. A link to a folder is not.
    #[must_use]
    pub fn holds_folder(&self, name: impl AsRef<OsStr>) -> bool {
        let object = self.look(name.as_ref(), Action::Use);
        object.is_ok_and(|object| object.kind() == FileType::Directory)
    }

    /// Content of the plain file `name`. A link is refused.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: MaxSize) -> Result<Vec<u8>, FileError> {
        let name = name.as_ref();
        let file = self.on(&name, Action::Read, |name| {
            read::open_object(&Object::at(&self.fd, name)?, (&self.fd, name), Accept::File, limit)
        })?;
        read::content(file, &self.path.join(name), limit)
    }

    /// Content of the plain file `name`, as UTF-8 text.
    pub fn read_text(&self, name: impl AsRef<OsStr>, limit: MaxSize) -> Result<String, FileError> {
        let name = name.as_ref();
        read::text(self.read(name, limit)?, &self.path.join(name))
    }

    /// Creates the file `name` for reading and writing. An existing `name` is an error.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: FileMode) -> Result<File, FileError> {
        self.on(&name, Action::Write, |name| {
            Ok(write::new_file(&self.fd, name, mode.bits(), OFlags::empty())?)
        })
    }

    /// Writes the file `name`: it appears whole or not at all.
    /// An older file or link is replaced, and its mode too: the new file has the mode `mode`.
    pub fn write(
        &self,
        name: impl AsRef<OsStr>,
        bytes: &[u8],
        mode: FileMode,
    ) -> Result<(), FileError> {
        self.on(&name, Action::Write, |name| {
            write::replace(&self.fd, name, None, bytes, mode.bits())
        })
    }

    /// Writes `bytes` in one call to the existing file `name`, as the files of a cgroup need.
    pub fn write_in_place(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<(), FileError> {
        self.on(&name, Action::Write, |name| {
            let object = Object::at(&self.fd, name)?;
            if object.kind() != FileType::RegularFile {
                let found = walk::called(&object);
                return Err(Reason::Unfit { expected: "a plain file", found });
            }
            Ok(object.open(OFlags::WRONLY, (&self.fd, name))?.write_all(bytes)?)
        })
    }

    /// Removes the file or link `name`.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<(), FileError> {
        self.unlink(&name, AtFlags::empty())
    }

    /// Removes the empty folder `name`.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> Result<(), FileError> {
        self.unlink(&name, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, name: &impl AsRef<OsStr>, flags: AtFlags) -> Result<(), FileError> {
        self.on(name, Action::Remove, |name| Ok(rustix::fs::unlinkat(&self.fd, name, flags)?))
    }

    /// Renames the file `from` to `to`, replacing an existing file.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<(), FileError> {
        let to = to.as_ref();
        self.on(&from, Action::Rename, |from| {
            // `on` has checked only `from`.
            single(to)?;
            Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
        })
    }

    /// Looks up `name` without opening the object; `action` is for the message of an error.
    fn look(&self, name: &OsStr, action: Action) -> Result<Object, FileError> {
        self.on(&name, action, |name| Ok(Object::at(&self.fd, name)?))
    }

    /// Calls `call` with `name` if that is a single component; an error gets `action` and the path.
    fn on<T>(
        &self,
        name: &impl AsRef<OsStr>,
        action: Action,
        call: impl FnOnce(&OsStr) -> Result<T, Reason>,
    ) -> Result<T, FileError> {
        let name = name.as_ref();
        let done = single(name).map_err(Reason::from).and_then(|()| call(name));
        done.map_err(|why| self.wrong(why, name, action))
    }

    fn wrong(&self, why: Reason, name: &OsStr, action: Action) -> FileError {
        why.of(action, &self.path.join(name))
    }
}

/// Refuses a name that is empty, `.`, `..` or has a slash.
fn single(name: &OsStr) -> Result<(), Errno> {
    let is_single = !name.is_empty() && name != "." && name != "..";
    if is_single && !name.as_bytes().contains(&b'/') { Ok(()) } else { Err(Errno::INVAL) }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Checks that only `user` and root can replace a folder in `above`, or a folder further up.
fn not_replaced_by_others(above: &Object, user: u32) -> Result<(), Reason> {
    if !is_changed_only_by(&above.stat, user) {
        return Err(changed_by_others(above.fd.as_fd(), &above.stat));
    }
    let mut place = (above.stat.st_dev, above.stat.st_ino);
    let mut fd = rustix::fs::openat(&above.fd, ".", PARENT, rustix::fs::Mode::empty())?;
    loop {
        fd = rustix::fs::openat(&fd, "..", PARENT, rustix::fs::Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if !is_changed_only_by(&stat, user) {
            return Err(changed_by_others(fd.as_fd(), &stat));
        }
        let next = (stat.st_dev, stat.st_ino);
        // The parent of `/` is `/`: the top is reached.
        if next == place {
            return Ok(());
        }
        place = next;
    }
}

/// Flags to open a parent folder: `..` needs no `NOFOLLOW`, since a folder's parent is never a
/// link.
const PARENT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Removes the file or link at `path`. A missing file is no error.
pub fn remove_if_exists(path: &Path) -> Result<(), FileError> {
    let name =
        path.file_name().ok_or_else(|| Reason::from(Errno::ISDIR).of(Action::Remove, path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match Dir::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.remove(name)) {
        Err(why) if !why.is_missing() => Err(why),
        _ => Ok(()),
    }
}

fn cannot_make(path: &Path, why: Errno) -> FileError {
    Reason::from(why).of(Action::Make, path)
}

/// Lists at most `most` names of a folder.
fn list(folder: &OwnedFd, most: usize) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    // `folder` is an `O_PATH` descriptor, which cannot be read.
    let listed = rustix::fs::openat(folder, ".", flags, rustix::fs::Mode::empty())?;
    let names = rustix::fs::Dir::new(listed)?
        .map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()));
    names
        .filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."))
        .take(most)
        .collect()
}

/// Whether only `user` and root can replace entries of a folder with this `stat`.
fn is_changed_only_by(stat: &Stat, user: u32) -> bool {
    // The sticky bit (0o1000) lets only the owner of an entry rename or remove the entry.
    let by_others = stat.st_mode & 0o022 != 0 && stat.st_mode & 0o1000 == 0;
    !by_others && (stat.st_uid == user || walk::is_roots(stat.st_uid))
}

fn changed_by_others(fd: BorrowedFd<'_>, stat: &Stat) -> Reason {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // Without /proc the path is not known, only that the folder lies above.
    let path = std::fs::read_link(link).unwrap_or_else(|_| "..".into());
    let mode = stat.st_mode & 0o7777;
    Reason::Unfit {
        expected: "a folder below folders that no other user can change",
        found: format!("{} of user {}, mode {mode:o}", path.display(), stat.st_uid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const KIB: MaxSize = MaxSize::kib(1);

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn what_is_not_ours_alone_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let refusal =
            |name: &str| Dir::open_or_make_private(&at(name), user()).map(drop).unwrap_err().line();
        Dir::open_or_make_private(&at("new"), user()).unwrap();
        assert_eq!(at("new").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        symlink("new", at("link")).unwrap();
        assert!(refusal("link").ends_with("found a symbolic link"), "{}", refusal("link"));
        std::fs::write(at("file"), "").unwrap();
        assert!(refusal("file").ends_with("found a file"));
        chmod(&at("new"), 0o777);
        assert!(refusal("new").ends_with("found mode 777"));
        chmod(&at("new"), 0o700);
        let other = Dir::open_private(&at("new"), user() + 1).map(drop).unwrap_err().line();
        assert!(other.ends_with(&format!("found one of user {}", user())), "{other}");
    }

    /// A user that can write to the parent folder can replace the folder.
    #[test]
    fn a_folder_above_that_others_can_change_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        let open = || Dir::open_or_make_private(&at("a/b/c"), user()).map(drop);
        for (name, mode) in [("a", 0o777), ("a", 0o770), ("a/b", 0o707)] {
            chmod(&at(name), mode);
            let why = open().unwrap_err().line();
            let found = format!("{} of user {}, mode {mode:o}", at(name).display(), user());
            assert!(why.ends_with(&found), "{why}");
            assert!(!at("a/b/c").exists(), "nothing is made there");
            chmod(&at(name), 0o755);
        }
        chmod(&at("a"), 0o1777);
        open().unwrap();
    }

    /// An open folder stays in use after its path leads elsewhere.
    #[test]
    fn a_folder_is_used_by_descriptor() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let dir = Dir::open_or_make_private(&at("run"), user()).unwrap();
        std::fs::create_dir(at("victim")).unwrap();
        std::fs::write(at("victim/secret"), "secret").unwrap();
        std::fs::rename(at("run"), at("away")).unwrap();
        symlink("victim", at("run")).unwrap();
        dir.write("secret", b"ours", FileMode::Private).unwrap();
        dir.create("new", FileMode::Private).unwrap();
        assert_eq!(dir.read_text("secret", KIB).unwrap(), "ours");
        dir.rename("new", "renamed").unwrap();
        dir.remove("secret").unwrap();
        assert_eq!(dir.names(9).unwrap(), ["renamed"]);
        assert_eq!(std::fs::read(at("victim/secret")).unwrap(), b"secret");
        assert_eq!(std::fs::read_dir(at("victim")).unwrap().count(), 1);
    }

    #[test]
    fn links_in_a_folder_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        std::fs::write(at("victim"), "secret").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        let dir = Dir::open(&at("dir")).unwrap();
        symlink("../victim", at("dir/link")).unwrap();
        symlink("..", at("dir/up")).unwrap();
        let why = dir.read("link", KIB).unwrap_err().line();
        assert!(why.ends_with("expected a plain file, found a symbolic link"), "{why}");
        dir.write_in_place("link", b"x").unwrap_err();
        dir.create("link", FileMode::Private).unwrap_err();
        dir.child("up").unwrap_err();
        for name in ["", ".", "..", "../victim", "/etc/passwd"] {
            let name = OsStr::new(name);
            assert!(dir.read(name, KIB).is_err() && dir.remove(name).is_err());
            assert!(dir.write(name, b"", FileMode::Private).is_err() && dir.child(name).is_err());
        }
        dir.write("link", b"ours", FileMode::Private).unwrap();
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"secret");
        assert!(dir.holds_folder("up").eq(&false) && dir.holds("up"));
    }
}
