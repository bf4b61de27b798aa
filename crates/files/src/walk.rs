//! Resolves paths component by component, through descriptors.

use crate::ALWAYS;
use crate::error::Reason;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Most links followed in one path: the kernel's own limit (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Flags to look up a name without opening the object or following a link.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Result of resolving a path.
pub(crate) struct ResolvedPath {
    /// Folder of the last component, after all links.
    pub folder: OwnedFd,
    /// Last component.
    pub name: OsString,
    /// Object with this name; `None` if there is none.
    pub object: Option<Object>,
    /// Whether the last component is a link of /proc, as `/proc/self/fd/1`: `name` is then not the
    /// object's own.
    pub by_kernel: bool,
}

/// A file of any type, examined but not opened (`O_PATH`).
pub(crate) struct Object {
    pub fd: OwnedFd,
    pub stat: Stat,
}

impl Object {
    /// Looks up `name` in `folder`. A link is not followed.
    pub fn at(folder: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        let fd = rustix::fs::openat(folder, name, LOOK, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self { fd, stat })
    }

    /// Looks up as [`Self::at`], and mounts an automounted folder (autofs), which `O_PATH` alone
    /// does not.
    fn at_any(folder: &OwnedFd, name: &OsStr) -> Result<Self, Errno> {
        match rustix::fs::openat(folder, name, LOOK | OFlags::DIRECTORY, Mode::empty()) {
            // `DIRECTORY` causes the mount, but fails for all but folders.
            Err(Errno::NOTDIR | Errno::LOOP) => Self::at(folder, name),
            fd => {
                let fd = fd?;
                let stat = rustix::fs::fstat(&fd)?;
                Ok(Self { fd, stat })
            }
        }
    }

    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub fn size(&self) -> u64 {
        // The kernel reports no negative size.
        self.stat.st_size.cast_unsigned()
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// Opens the same object. `again` is its folder and name, for systems without /proc.
    pub fn open(&self, flags: OFlags, again: (&OwnedFd, &OsStr)) -> Result<File, Errno> {
        let flags = flags | ALWAYS;
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let fd = match rustix::fs::openat(CWD, link, flags, Mode::empty()) {
            // No /proc: open by name, and check that the name still leads to the same object.
            Err(Errno::NOENT) => {
                let (folder, name) = again;
                let fd = rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
                let found = rustix::fs::fstat(&fd)?;
                if (found.st_dev, found.st_ino) != (self.stat.st_dev, self.stat.st_ino) {
                    return Err(Errno::STALE);
                }
                fd
            }
            opened => opened?,
        };
        Ok(File::from(fd))
    }

    /// Whether the object is a pipe without a name: such a pipe can only be inherited.
    pub fn is_inherited_pipe(&self) -> bool {
        /// `PIPEFS_MAGIC` of the kernel's include/uapi/linux/magic.h.
        const PIPEFS_MAGIC: u64 = 0x5049_5045;
        self.kind() == FileType::Fifo && file_system(&self.fd) == Some(PIPEFS_MAGIC)
    }
}

/// Name of the object's type in messages.
pub(crate) fn called(object: &Object) -> String {
    match object.kind() {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo if object.is_inherited_pipe() => "a pipe",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
    .to_owned()
}

/// Magic number of a descriptor's file system; `None` if the kernel reports none.
pub(crate) fn file_system(fd: impl AsFd) -> Option<u64> {
    rustix::fs::fstatfs(fd).ok().and_then(|found| u64::try_from(found.f_type).ok())
}

/// Resolves `path`. The last component may be missing.
pub(crate) fn walk(path: &Path) -> Result<ResolvedPath, Reason> {
    // An empty path names nothing (path_resolution(7)), not the current folder.
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut folder = start(path)?;
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let mut object = match Object::at_any(&folder, &name) {
            Err(Errno::NOENT) if rest.is_empty() => {
                return Ok(ResolvedPath { folder, name, object: None, by_kernel: false });
            }
            found => found?,
        };
        let mut by_kernel = false;
        if object.kind() == FileType::Symlink {
            may_follow(&folder, &object, &name)?;
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            // The target of a link in /proc, as "pipe:[7]", need not be a path: the kernel follows it.
            if file_system(&folder) != u64::try_from(PROC_SUPER_MAGIC).ok() {
                let target = rustix::fs::readlinkat(&object.fd, "", Vec::new())?.into_bytes();
                let target = PathBuf::from(OsString::from_vec(target));
                if target.is_absolute() {
                    folder = start(&target)?;
                }
                // A relative target begins in the folder of the link, which is still `folder`.
                rest.extend(names(&target));
                continue;
            }
            // Without `NOFOLLOW`: only the kernel can follow this link.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&folder, &name, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&fd)?;
            object = Object { fd, stat };
            by_kernel = true;
        }
        if rest.is_empty() {
            return Ok(ResolvedPath { folder, name, object: Some(object), by_kernel });
        }
        // If this is no folder, the next lookup fails with `ENOTDIR`.
        folder = object.fd;
    }
    // The path has only `/` and `.`.
    let object = Some(Object::at(&folder, OsStr::new("."))?);
    Ok(ResolvedPath { folder, name: ".".into(), object, by_kernel: false })
}

/// Opens the folder that a path is relative to: `/` or the current folder.
fn start(path: &Path) -> Result<OwnedFd, Errno> {
    let start = if path.is_absolute() { "/" } else { "." };
    rustix::fs::openat(CWD, start, LOOK | OFlags::DIRECTORY, Mode::empty())
}

/// Components of a path in reverse order, so that `pop` yields the next.
fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = path.components().filter_map(component_name).collect();
    if path.as_os_str().as_bytes().ends_with(b"/") && !names.is_empty() {
        // A trailing slash requires a folder.
        names.push(".".into());
    }
    names.reverse();
    names
}

fn component_name(part: Component<'_>) -> Option<OsString> {
    match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    }
}
/// Refuses a link that another user can have made; see the rule in the head of the crate.
fn may_follow(folder: &OwnedFd, link: &Object, name: &OsStr) -> Result<(), Reason> {
    let around = rustix::fs::fstat(folder)?;
    // 0o002: writable by the world; 0o020: writable by the group.
    let others = around.st_mode & 0o002 != 0
        || around.st_mode & 0o020 != 0 && !is_trusted(link.stat.st_uid)
        || !is_trusted(around.st_uid);
    if others {
        return Err(Reason::Unfit {
            expected: "a path without symbolic links in folders that others can write to; name the file itself",
            found: format!("the link {}", Path::new(name).display()),
        });
    }
    Ok(())
}

/// Whether `user` is this user or root.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || is_roots(user)
}

/// Whether `user` is root, or the owner of `/`: a user namespace without a mapping of root shows
/// root as that user.
pub(crate) fn is_roots(user: u32) -> bool {
    user == 0
        || rustix::fs::statat(CWD, "/", AtFlags::empty()).is_ok_and(|root| root.st_uid == user)
}
