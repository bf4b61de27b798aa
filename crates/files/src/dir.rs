//! Folders, used by descriptor.

use crate::error::{Action, FileError, Reason};
use crate::read::{self, Accept};
use crate::size::MaxSize;
use crate::walk::{self, Object};
use crate::write::{self, Mode};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const EXPECTED: &str = "a folder of this user that only this user can write to";

/// A folder. It stays the one that was opened, whatever its path leads to later.
///
/// Names are single ones, without a slash; no call follows a link that has such a name.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens the folder at `path`.
    /// Refuses a path over a link that another user may have made.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let wrong = |why: Reason| why.of(Action::Use, path);
        let object = walk::walk(path).map_err(wrong)?.object;
        let object = object.ok_or_else(|| wrong(Errno::NOENT.into()))?;
        if object.kind() != FileType::Directory {
            return Err(wrong(Errno::NOTDIR.into()));
        }
        Ok(Self { fd: object.fd, path: path.to_owned() })
    }

    /// Opens the folder at `path`, which is made with those above it where they are missing, with the permission bits
    /// `mode` less the umask.
    pub fn open_or_make(path: &Path, mode: u32) -> Result<Self, FileError> {
        match Self::open(path) {
            Err(why) if why.is_missing() => {
                let wrong = |why: Errno| Reason::from(why).of(Action::Make, path);
                let name = path.file_name().ok_or_else(|| wrong(Errno::NOENT))?;
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                let above = Self::open_or_make(above.unwrap_or(Path::new(".")), mode)?;
                match rustix::fs::mkdirat(&above.fd, name, rustix::fs::Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(Errno::EXIST) => Self::open(path),
                    Err(why) => Err(wrong(why)),
                }
            }
            opened => opened,
        }
    }

    /// Opens the folder at `path` if it belongs to `user`, no other user can write to it, and none can put another
    /// one in its place: each folder above it belongs to `user` or root, and if others can write to it, it has the
    /// sticky bit, as `/tmp`.
    pub fn open_private(path: &Path, user: u32) -> Result<Self, FileError> {
        Self::private(path, user, false)
    }

    /// The same, and makes the folder with mode 0700 if it is missing. The folder above it must be there.
    pub fn open_or_make_private(path: &Path, user: u32) -> Result<Self, FileError> {
        Self::private(path, user, true)
    }

    fn private(path: &Path, user: u32, make: bool) -> Result<Self, FileError> {
        let wrong = |why: Reason| why.of(Action::Use, path);
        let name = path.file_name().ok_or_else(|| wrong(Errno::INVAL.into()))?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = walk::walk(above.unwrap_or(Path::new("."))).map_err(wrong)?;
        let above = above.object.ok_or_else(|| wrong(Errno::NOENT.into()))?;
        let is_safe = not_replaced_by_others(&above, user).map_err(wrong);
        // Nothing is made where it would not be used. If it cannot be made, what is there says more.
        if make && is_safe.is_ok() {
            let mode = rustix::fs::Mode::from_raw_mode(0o700);
            let _ = rustix::fs::mkdirat(&above.fd, name, mode);
        }
        let found = match Object::at(&above.fd, name) {
            Err(why) => return Err(is_safe.err().unwrap_or_else(|| wrong(why.into()))),
            Ok(found) => found,
        };
        let unfit = |found| Err(wrong(Reason::Unfit { expected: EXPECTED, found }));
        if found.kind() != FileType::Directory {
            unfit(walk::called(&found))
        } else if found.stat.st_uid != user {
            unfit(format!("one of user {}", found.stat.st_uid))
        } else if found.mode() & 0o022 != 0 {
            unfit(format!("mode {:o}", found.mode()))
        } else {
            is_safe.map(|()| Self { fd: found.fd, path: path.to_owned() })
        }
    }

    /// The path that it was opened by, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets its permission bits.
    pub fn set_mode(&self, mode: u32) -> Result<(), FileError> {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        let set = rustix::fs::chmodat(&self.fd, ".", mode, AtFlags::empty());
        set.map_err(|why| Reason::from(why).of(Action::Write, &self.path))
    }

    /// The magic number of the file system that it is on (statfs(2)), or `None` if the kernel does not say.
    #[must_use]
    pub fn file_system(&self) -> Option<u64> {
        walk::file_system(&self.fd)
    }

    /// The folder `name` in it; no link.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self, FileError> {
        let name = name.as_ref();
        let object = self.look(name, Action::Use)?;
        if object.kind() != FileType::Directory {
            return Err(self.wrong(Errno::NOTDIR.into(), name, Action::Use));
        }
        Ok(Self { fd: object.fd, path: self.path.join(name) })
    }

    /// Makes the folder `name` in it, with the permission bits `mode` less the umask.
    pub fn make_child(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<Self, FileError> {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        self.on(&name, Action::Make, |name| Ok(rustix::fs::mkdirat(&self.fd, name, mode)?))?;
        self.child(name)
    }

    /// Names in it, `most` at most, in no order.
    pub fn names(&self, most: usize) -> Result<Vec<OsString>, FileError> {
        let names = || -> Result<Vec<OsString>, Errno> {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            let listed = rustix::fs::openat(&self.fd, ".", flags, rustix::fs::Mode::empty())?;
            let entries = rustix::fs::Dir::new(listed)?;
            let names = entries.map(|entry| {
                entry.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
            });
            let own = |name: &Result<OsString, Errno>| {
                name.as_ref().is_ok_and(|name| name == "." || name == "..")
            };
            names.filter(|name| !own(name)).take(most).collect()
        };
        names().map_err(|why| Reason::from(why).of(Action::Read, &self.path))
    }

    /// Whether something has the name `name`, be it a link that leads nowhere.
    #[must_use]
    pub fn holds(&self, name: impl AsRef<OsStr>) -> bool {
        self.look(name.as_ref(), Action::Use).is_ok()
    }

    /// Whether `name` is a folder, not a link to one.
    #[must_use]
    pub fn holds_folder(&self, name: impl AsRef<OsStr>) -> bool {
        let object = self.look(name.as_ref(), Action::Use);
        object.is_ok_and(|object| object.kind() == FileType::Directory)
    }

    /// The content of the plain file `name`; no link.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: MaxSize) -> Result<Vec<u8>, FileError> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let object = self.look(name, Action::Read)?;
        let file = read::open_object(&object, (&self.fd, name), &path, Accept::File, limit)?;
        read::content(file, &path, limit)
    }

    /// The text in the plain file `name`.
    pub fn read_text(&self, name: impl AsRef<OsStr>, limit: MaxSize) -> Result<String, FileError> {
        let name = name.as_ref();
        read::text(self.read(name, limit)?, &self.path.join(name))
    }

    /// Makes the file `name`, which must not be there, for reading and writing.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: Mode) -> Result<File, FileError> {
        self.on(&name, Action::Write, |name| {
            Ok(write::new_file(&self.fd, name, mode.bits(), OFlags::empty())?)
        })
    }

    /// Writes a file of the name `name`: it appears whole or not at all, and has the mode `mode` also if another one
    /// was there before. A link of that name is replaced.
    pub fn write(
        &self,
        name: impl AsRef<OsStr>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<(), FileError> {
        self.on(&name, Action::Write, |name| {
            write::replace(&self.fd, name, None, bytes, mode.bits())
        })
    }

    /// Writes `bytes` in one call to the file `name`, which must be there: for the kernel's files, as of a cgroup.
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

    /// Removes the file `name`, or the link of that name.
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

    /// Gives the file `from` the name `to`, which another one may have.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<(), FileError> {
        let to = to.as_ref();
        self.on(&from, Action::Rename, |from| {
            single(to)?;
            Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
        })
    }

    fn look(&self, name: &OsStr, action: Action) -> Result<Object, FileError> {
        self.on(&name, action, |name| Ok(Object::at(&self.fd, name)?))
    }

    /// Does something with what has the name `name` in this folder.
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

/// Refuses what is not the name of something in a folder.
fn single(name: &OsStr) -> Result<(), Errno> {
    let is_single = !name.is_empty() && name != "." && name != "..";
    if is_single && !name.as_bytes().contains(&b'/') { Ok(()) } else { Err(Errno::INVAL) }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether only `user` and root can put another folder in the place of one in `above`, or of one above that.
fn not_replaced_by_others(above: &Object, user: u32) -> Result<(), Reason> {
    let is_safe = |stat: &Stat| {
        let others = stat.st_mode & 0o022 != 0 && stat.st_mode & 0o1000 == 0;
        let owner = stat.st_uid;
        !others && (owner == user || walk::is_roots(owner))
    };
    let unsafe_at = |fd: BorrowedFd<'_>, stat: &Stat| {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = std::fs::read_link(link).unwrap_or_else(|_| "..".into());
        Reason::Unfit {
            expected: "a folder below folders that no other user can change",
            found: format!(
                "{} of user {}, mode {:o}",
                path.display(),
                stat.st_uid,
                stat.st_mode & 0o7777
            ),
        }
    };
    if !is_safe(&above.stat) {
        return Err(unsafe_at(above.fd.as_fd(), &above.stat));
    }
    let mut place = (above.stat.st_dev, above.stat.st_ino);
    let mut fd = rustix::fs::openat(&above.fd, ".", PARENT, rustix::fs::Mode::empty())?;
    loop {
        fd = rustix::fs::openat(&fd, "..", PARENT, rustix::fs::Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if !is_safe(&stat) {
            return Err(unsafe_at(fd.as_fd(), &stat));
        }
        let next = (stat.st_dev, stat.st_ino);
        if next == place {
            return Ok(());
        }
        place = next;
    }
}

const PARENT: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Removes the file at `path`, or the link that has that name; that there is none is no error.
pub fn remove_if_exists(path: &Path) -> Result<(), FileError> {
    let name =
        path.file_name().ok_or_else(|| Reason::from(Errno::ISDIR).of(Action::Remove, path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match Dir::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.remove(name)) {
        Err(why) if !why.is_missing() => Err(why),
        _ => Ok(()),
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

    /// A user that can write to the folder above can put another one in its place.
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

    /// A folder that was opened is used, not what has its path meanwhile.
    #[test]
    fn a_folder_is_used_by_descriptor() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let dir = Dir::open_or_make_private(&at("run"), user()).unwrap();
        std::fs::create_dir(at("victim")).unwrap();
        std::fs::write(at("victim/secret"), "secret").unwrap();
        std::fs::rename(at("run"), at("away")).unwrap();
        symlink("victim", at("run")).unwrap();
        dir.write("secret", b"ours", Mode::Private).unwrap();
        dir.create("new", Mode::Private).unwrap();
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
        dir.create("link", Mode::Private).unwrap_err();
        dir.child("up").unwrap_err();
        for name in ["", ".", "..", "../victim", "/etc/passwd"] {
            let name = OsStr::new(name);
            assert!(dir.read(name, KIB).is_err() && dir.remove(name).is_err());
            assert!(dir.write(name, b"", Mode::Private).is_err() && dir.child(name).is_err());
        }
        dir.write("link", b"ours", Mode::Private).unwrap();
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"secret");
        assert!(dir.holds_folder("up").eq(&false) && dir.holds("up"));
    }
}
