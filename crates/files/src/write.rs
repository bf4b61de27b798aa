//! Writes files: whole, appended to, or in place.

use crate::error::{Action, FileError, Reason};
use crate::walk::{self, Object, ResolvedPath};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for a FIFO's reader to open the FIFO, or to drain it. Chosen: a reader started at
/// the same time opens it sooner.
pub const FIFO_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to open a FIFO without a reader.
const FIFO_PAUSE: Duration = Duration::from_millis(20);

/// Attempts to find an unused name, or to open a file that another process removes and creates. One
/// is enough without an adversary.
const TRIES: usize = 16;

/// Users with read access to a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Users permitted by the umask (0666 less the umask).
    ByUmask,
    /// Only this user (0600): the file holds command lines, with passwords perhaps.
    Private,
}

impl FileMode {
    pub(crate) fn bits(self) -> rustix::fs::Mode {
        rustix::fs::Mode::from_raw_mode(if self == Self::Private { 0o600 } else { 0o666 })
    }
}

/// Writes `bytes` to the file at `path`.
///
/// The file appears whole or not at all: a new file is written beside it, synchronised and renamed.
/// If the old file belongs to this user or root, its mode is kept; `mode` is for a new file. An old
/// file that cannot be replaced, a mount point or in a folder without write permission, is
/// overwritten. Devices, pipes and the targets of `/proc/self/fd` are written in place. A FIFO is
/// too, within [`FIFO_LIMIT`].
///
/// # Errors
/// If the file cannot be written; the temporary file is removed. [`Reason::Unfit`] for a path over
/// a link of another user, or a file or FIFO that another user may have put there.
pub fn write(path: &Path, bytes: &[u8], mode: FileMode) -> Result<(), FileError> {
    write_at(path, bytes, mode).map_err(|why| why.of(Action::Write, path))
}

fn write_at(path: &Path, bytes: &[u8], mode: FileMode) -> Result<(), Reason> {
    let place = walk::walk(path)?;
    let Some(object) = &place.object else {
        return replace(&place.folder, &place.name, None, bytes, mode.bits());
    };
    match object.kind() {
        FileType::RegularFile if place.by_kernel => {
            // As a shell's `>>`: earlier output of the process that opened the file must stay.
            Ok(in_place(&place, object, OFlags::APPEND)?.write_all(bytes)?)
        }
        FileType::RegularFile => {
            // Not the set-user-ID and set-group-ID bits: they were given to the old content.
            let kept = walk::is_trusted(object.stat.st_uid).then(|| object.mode() & 0o777);
            match replace(&place.folder, &place.name, kept, bytes, mode.bits()) {
                // A rename needs write permission to the folder; writing in place needs none.
                Err(Reason::Os(why)) if is_held(&why) => {
                    Ok(in_place(&place, object, OFlags::TRUNC)?.write_all(bytes)?)
                }
                done => done,
            }
        }
        FileType::Fifo if !object.is_inherited_pipe() => fifo(&place, object, bytes),
        _ => Ok(in_place(&place, object, OFlags::empty())?.write_all(bytes)?),
    }
}

/// Opens an existing plain file, character device or pipe for writing. Writes block until accepted.
fn in_place(place: &ResolvedPath, object: &Object, how: OFlags) -> Result<File, Reason> {
    match object.kind() {
        FileType::RegularFile | FileType::CharacterDevice | FileType::Fifo => {}
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => {
            let found = walk::called(object);
            return Err(Reason::Unfit { expected: "a plain file, a terminal or a pipe", found });
        }
    }
    not_planted(place, object)?;
    let file = object.open(OFlags::WRONLY | how, (&place.folder, &place.name))?;
    // Clear `O_NONBLOCK`, which opening has set.
    rustix::fs::fcntl_setfl(&file, how & OFlags::APPEND)?;
    Ok(file)
}

/// Refuses a file that another user may have put there to read our output. The rule is that of the
/// kernel's `fs.protected_regular` and `fs.protected_fifos`, which some systems do not set.
fn not_planted(place: &ResolvedPath, object: &Object) -> Result<(), Reason> {
    let is_file = matches!(object.kind(), FileType::RegularFile | FileType::Fifo);
    if !is_file || place.by_kernel || walk::is_trusted(object.stat.st_uid) {
        return Ok(());
    }
    let around = rustix::fs::fstat(&place.folder)?;
    // The owner of a folder can replace each file in the folder: its own file adds no risk.
    if around.st_mode & 0o022 != 0 && around.st_uid != object.stat.st_uid {
        return Err(Reason::Unfit {
            expected: "no file of another user in a folder that others can write to",
            found: format!("one of user {}", object.stat.st_uid),
        });
    }
    Ok(())
}

/// Writes to a FIFO. A reader has [`FIFO_LIMIT`] to open it, and again for each write.
fn fifo(place: &ResolvedPath, object: &Object, bytes: &[u8]) -> Result<(), Reason> {
    not_planted(place, object)?;
    let begin = Instant::now();
    let mut file = loop {
        match object.open(OFlags::WRONLY, (&place.folder, &place.name)) {
            // ENXIO: no process has the FIFO open for reading (fifo(7)).
            Err(Errno::NXIO) if begin.elapsed() < FIFO_LIMIT => std::thread::sleep(FIFO_PAUSE),
            Err(Errno::NXIO) => return Err(no_reader()),
            opened => break opened?,
        }
    };
    let mut left = bytes;
    while !left.is_empty() {
        match file.write(left) {
            Ok(written) => left = &left[written..],
            // A signal came before a byte was written: again.
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {
                if !is_taken(file.as_fd())? {
                    return Err(no_reader());
                }
            }
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

fn no_reader() -> Reason {
    Reason::Unfit {
        expected: "a FIFO that a program reads",
        found: format!("none that has read for {} s", FIFO_LIMIT.as_secs()),
    }
}
/// Waits until `file` accepts bytes; false after [`FIFO_LIMIT`].
fn is_taken(file: std::os::fd::BorrowedFd<'_>) -> Result<bool, Errno> {
    let limit = Timespec::try_from(FIFO_LIMIT).map_err(|_| Errno::INVAL)?;
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::OUT)], Some(&limit)) {
        // A signal: the caller writes again, and comes back here if the FIFO is still full.
        Err(Errno::INTR) => Ok(true),
        ready => ready.map(|ready| ready > 0),
    }
}

/// Writes a new file in `folder` and renames it to `name`. `kept` has the permission bits of the
/// file replaced; `None` creates a file with `mode` less the umask.
pub(crate) fn replace(
    folder: &OwnedFd,
    name: &OsStr,
    kept: Option<u32>,
    bytes: &[u8],
    mode: rustix::fs::Mode,
) -> Result<(), Reason> {
    if name == ".." {
        return Err(Errno::ISDIR.into());
    }
    // Until its mode is set, the new file must not be readable by users that could not read the
    // old.
    let first = if kept.is_some() { FileMode::Private.bits() } else { mode };
    let (beside, file) = temporary(folder, first)?;
    let written = fill(&file, kept, bytes)
        .and_then(|()| Ok(rustix::fs::renameat(folder, &beside, folder, name)?));
    if written.is_err() {
        // The error of the writing is the one to report.
        let _ = rustix::fs::unlinkat(folder, &beside, AtFlags::empty());
    }
    written
}

fn fill(mut file: &File, kept: Option<u32>, bytes: &[u8]) -> Result<(), Reason> {
    if let Some(kept) = kept {
        rustix::fs::fchmod(file, rustix::fs::Mode::from_raw_mode(kept))?;
    }
    file.write_all(bytes)?;
    // Before the rename: after a crash the name must not lead to an empty file.
    Ok(file.sync_all()?)
}
/// Creates a file with an unpredictable name in `folder`.
fn temporary(folder: &OwnedFd, mode: rustix::fs::Mode) -> Result<(String, File), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // `O_EXCL` fails on any existing name, a link included.
    let mut tries = 0;
    loop {
        let name = format!(".colocate-{}.tmp", unforeseen()?);
        tries += 1;
        match rustix::fs::openat(folder, &name, flags, mode) {
            Err(Errno::EXIST) if tries < TRIES => {}
            made => return made.map(|fd| (name, File::from(fd))),
        }
    }
}

/// Random part of a name: 128 bits from the kernel, in hexadecimal.
fn unforeseen() -> Result<String, Errno> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Whether an error means that the name cannot be replaced, though its file may be writable.
fn is_held(error: &std::io::Error) -> bool {
    // Mount points; folders without permission, or with the sticky bit; read-only file systems.
    let held = [Errno::BUSY, Errno::ACCESS, Errno::PERM, Errno::ROFS];
    error.raw_os_error().is_some_and(|code| held.iter().any(|held| held.raw_os_error() == code))
}

/// Opens the file at `path` for writing from its start, as for the output of a program. A missing
/// file is created.
pub fn create(path: &Path, mode: FileMode) -> Result<File, FileError> {
    opened(path, mode, OFlags::TRUNC, false).map_err(|why| why.of(Action::Write, path))
}

/// Opens the file at `path` for appending and reading. A missing file is created.
pub fn append(path: &Path, mode: FileMode) -> Result<File, FileError> {
    opened(path, mode, OFlags::APPEND, true).map_err(|why| why.of(Action::Write, path))
}

fn opened(path: &Path, mode: FileMode, how: OFlags, only_plain: bool) -> Result<File, Reason> {
    let mut tries = 0;
    loop {
        let place = walk::walk(path)?;
        tries += 1;
        if let Some(object) = &place.object {
            let is_fifo = object.kind() == FileType::Fifo && !object.is_inherited_pipe();
            if is_fifo || only_plain && object.kind() != FileType::RegularFile {
                let found = walk::called(object);
                return Err(Reason::Unfit { expected: "a plain file", found });
            }
            return in_place(&place, object, how);
        }
        // `TRUNC` has no effect on a new file; `APPEND` governs all later writes.
        match new_file(&place.folder, &place.name, mode.bits(), how & OFlags::APPEND) {
            // Another process created the file meanwhile: resolve the path again.
            Err(Errno::EXIST) if tries < TRIES => {}
            made => return Ok(made?),
        }
    }
}

/// Creates a file for reading and writing. An existing name is an error (`EEXIST`).
pub(crate) fn new_file(
    folder: &OwnedFd,
    name: &OsStr,
    mode: rustix::fs::Mode,
    how: OFlags,
) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags | how, mode).map(File::from)
}

/// Tests whether a file can be written to `path`; no file stays changed. A FIFO is not opened:
/// closing it would look like the end of the output to its reader.
pub fn try_write(path: &Path) -> Result<(), FileError> {
    check_writable(path).map_err(|why| why.of(Action::Write, path))
}

fn check_writable(path: &Path) -> Result<(), Reason> {
    let place = walk::walk(path)?;
    match &place.object {
        Some(object) if object.kind() == FileType::Fifo => not_planted(&place, object),
        // `APPEND`, unlike `TRUNC`, leaves the content when opened.
        Some(object) => in_place(&place, object, OFlags::APPEND).map(drop),
        None => {
            let ResolvedPath { folder, name, .. } = &place;
            new_file(folder, name, FileMode::Private.bits(), OFlags::empty())?;
            Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
        }
    }
}

/// Checks early that `path` has a folder for a file. No file is opened or created.
///
/// # Errors
/// If the folder is missing, `path` is itself a folder, or it leads over a link of another user.
pub fn has_place(path: &Path) -> Result<(), FileError> {
    let place = walk::walk(path).and_then(|place| match place.object {
        Some(object) if object.kind() == FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Ok(()),
    });
    place.map_err(|why| why.of(Action::Write, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_appear_whole_with_their_modes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "old").unwrap();
        std::fs::set_permissions(at("old"), PermissionsExt::from_mode(0o604)).unwrap();
        let before = at("old").metadata().unwrap().ino();
        symlink("old", at("link")).unwrap();
        symlink("new", at("early")).unwrap();
        for (name, file) in [("link", "old"), ("early", "new"), ("secret", "secret")] {
            write(&at(name), b"text", FileMode::Private).unwrap();
            assert_eq!(std::fs::read(at(file)).unwrap(), b"text");
        }
        assert!(at("link").is_symlink() && at("early").is_symlink());
        assert_eq!((mode_of(&at("old")), mode_of(&at("new"))), (0o604, 0o600));
        assert_ne!(at("old").metadata().unwrap().ino(), before, "replaced, not written over");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
        let wrong = write(folder.path(), b"", FileMode::Private).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(Errno::ISDIR.raw_os_error()));
        assert!(write(&at("secret/"), b"", FileMode::Private).is_err());
        assert!(write(&at("none/file"), b"", FileMode::Private).unwrap_err().is_missing());
    }

    #[test]
    fn what_others_may_have_planted_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "mine").unwrap();
        std::fs::create_dir(at("shared")).unwrap();
        symlink("../victim", at("shared/out")).unwrap();
        std::fs::set_permissions(at("shared"), PermissionsExt::from_mode(0o1777)).unwrap();
        for result in [
            write(&at("shared/out"), b"text", FileMode::ByUmask),
            create(&at("shared/out"), FileMode::ByUmask).map(drop),
            append(&at("shared/out"), FileMode::ByUmask).map(drop),
            try_write(&at("shared/out")),
            has_place(&at("shared/out")),
        ] {
            let why = result.unwrap_err().line();
            assert!(why.contains("found the link out"), "{why}");
        }
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"mine");
    }

    #[test]
    fn what_has_no_name_of_its_own_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("log"), "before ").unwrap();
        let log = File::options().append(true).open(at("log")).unwrap();
        let path = format!("/proc/self/fd/{}", log.as_raw_fd());
        write(Path::new(&path), b"text", FileMode::Private).unwrap();
        assert_eq!(std::fs::read(at("log")).unwrap(), b"before text");
        let (mut reads, writes) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writes.as_raw_fd());
        write(Path::new(&path), b"text", FileMode::Private).unwrap();
        drop(writes);
        let mut text = String::new();
        reads.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        write(Path::new("/dev/null"), b"text", FileMode::Private).unwrap();
        let full = write(Path::new("/dev/full"), b"text", FileMode::Private).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    }

    #[test]
    fn a_fifo_is_written_to_if_a_program_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        try_write(&path).unwrap();
        let begin = Instant::now();
        let why = write(&path, b"text", FileMode::Private).unwrap_err().line();
        assert!(
            why.ends_with("expected a FIFO that a program reads, found none that has read for 5 s")
        );
        assert!(begin.elapsed() < 2 * FIFO_LIMIT);
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read(path).unwrap()
        });
        let long = vec![b'a'; 1 << 20];
        write(&path, &long, FileMode::Private).unwrap();
        assert!(reader.join().unwrap() == long);
        assert!(
            create(&path, FileMode::Private).is_err() && append(&path, FileMode::Private).is_err()
        );
    }

    #[test]
    fn what_is_tried_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "old").unwrap();
        symlink("nothing", at("link")).unwrap();
        for name in ["new", "old", "link"] {
            try_write(&at(name)).unwrap();
            has_place(&at(name)).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(std::fs::read(at("old")).unwrap(), b"old");
        assert!(try_write(folder.path()).is_err() && has_place(folder.path()).is_err());
    }

    #[test]
    fn streams_append_or_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for text in ["a", "b"] {
            append(&path, FileMode::Private).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!((std::fs::read(&path).unwrap(), mode_of(&path)), (b"ab".to_vec(), 0o600));
        create(&path, FileMode::ByUmask).unwrap().write_all(b"c").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"c");
        crate::remove_if_exists(&path).unwrap();
        crate::remove_if_exists(&path).unwrap();
    }
}
