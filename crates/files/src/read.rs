//! Reads files of a limited size.

use crate::error::{Action, FileError, Reason};
use crate::size::MaxSize;
use crate::walk::{self, Object, ResolvedPath};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Types of file accepted for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// A plain file.
    File,
    /// A plain file, or an inherited pipe without a name, as of a shell's `<(command)` or standard
    /// input.
    ///
    /// A pipe is read until its writers close it. A FIFO is refused: any user can put one into a
    /// folder.
    FileOrPipe,
}

/// Opens a file of at most `limit` for reading. A pipe has no size: its reader must count bytes.
///
/// # Errors
/// - [`Reason::Os`] if the file cannot be opened.
/// - [`Reason::Unfit`] for another type of file, or a path over a link of another user.
/// - [`Reason::TooLarge`] above the limit.
pub fn open(path: &Path, accept: Accept, limit: MaxSize) -> Result<File, FileError> {
    find_and_open(path, accept, limit).map_err(|why| why.of(Action::Read, path))
}

fn find_and_open(path: &Path, accept: Accept, limit: MaxSize) -> Result<File, Reason> {
    let ResolvedPath { folder, name, object, .. } = walk::walk(path)?;
    open_object(&object.ok_or(Errno::NOENT)?, (&folder, &name), accept, limit)
}

/// Opens an object for reading. `again` is its folder and name, for systems without /proc.
pub(crate) fn open_object(
    object: &Object,
    again: (&OwnedFd, &OsStr),
    accept: Accept,
    limit: MaxSize,
) -> Result<File, Reason> {
    let is_pipe = accept == Accept::FileOrPipe && object.is_inherited_pipe();
    if object.kind() != FileType::RegularFile && !is_pipe {
        let expected = match accept {
            Accept::File => "a plain file",
            Accept::FileOrPipe => "a plain file or a pipe",
        };
        let found = walk::called(object);
        return Err(Reason::Unfit { expected, found });
    }
    // The size of a pipe is 0 or unspecified (fstat(2)).
    if !is_pipe && object.size() > limit.get() {
        return Err(Reason::TooLarge(limit, object.size().to_string()));
    }
    let file = object.open(OFlags::RDONLY, again)?;
    if is_pipe {
        // Reads of a pipe shall block until its writers deliver: clear `O_NONBLOCK`.
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    }
    Ok(file)
}

/// Content of a file.
///
/// # Errors
/// As [`open`], and [`Reason::TooLarge`] if reading yields more than `limit`, as from a pipe or a
/// file of /proc.
pub fn read(path: &Path, accept: Accept, limit: MaxSize) -> Result<Vec<u8>, FileError> {
    content(open(path, accept, limit)?, path, limit)
}

/// Content of a file, as UTF-8 text.
pub fn read_text(path: &Path, accept: Accept, limit: MaxSize) -> Result<String, FileError> {
    text(read(path, accept, limit)?, path)
}

pub(crate) fn content(file: File, path: &Path, limit: MaxSize) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    // One byte more than the limit shows that the file is too large: a pipe has no size, and a file
    // may grow.
    let mut file = file.take(limit.get().saturating_add(1));
    file.read_to_end(&mut bytes).map_err(|why| Reason::from(why).of(Action::Read, path))?;
    if bytes.len() as u64 > limit.get() {
        return Err(Reason::TooLarge(limit, "more".to_owned()).of(Action::Read, path));
    }
    Ok(bytes)
}

pub(crate) fn text(bytes: Vec<u8>, path: &Path) -> Result<String, FileError> {
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        // An error always has an invalid byte at this offset.
        let byte = error.as_bytes().get(offset).copied().unwrap_or(0);
        Reason::NotText(byte, offset).of(Action::Read, path)
    })
}

/// A large plain file to be read piece by piece, as an executable.
#[derive(Debug)]
pub struct LargeFile {
    /// The file, open for reading.
    pub file: File,
    /// Metadata of the same object, read before it was opened.
    pub metadata: Metadata,
}

/// Opens a plain file of any size, and no other type: a device node is only examined.
/// The kernel follows links, since paths of programs lead through `/proc/PID`. The caller compares
/// the device and inode of the result with those named by the kernel.
/// A path from another process's view can lead to another object here; see mount_namespaces(7).
///
/// # Errors
/// If the file is missing, not a plain file, or cannot be opened, as without /proc.
pub fn open_code(path: &Path) -> io::Result<LargeFile> {
    let look = OFlags::PATH | OFlags::CLOEXEC;
    open_seen_code(&File::from(rustix::fs::openat(CWD, path, look, Mode::empty())?))
}

/// Opens a plain file for reading, from its `O_PATH` descriptor.
///
/// # Errors
/// As [`open_code`].
pub fn open_seen_code(seen: &File) -> io::Result<LargeFile> {
    use std::os::fd::AsRawFd;
    let metadata = seen.metadata()?;
    if !metadata.is_file() {
        let what = format!("expected a plain file, found {:?}", metadata.file_type());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // Reopen the same object: its path may lead elsewhere by now.
    let link = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | crate::ALWAYS;
    let file = File::from(rustix::fs::openat(CWD, link, flags, Mode::empty())?);
    Ok(LargeFile { file, metadata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const KIB: MaxSize = MaxSize::kib(1);

    fn refusal(path: &Path) -> String {
        read(path, Accept::FileOrPipe, KIB).unwrap_err().line()
    }

    #[test]
    fn only_what_has_the_right_type_and_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("small"), vec![b'a'; 1024]).unwrap();
        assert_eq!(read(&at("small"), Accept::File, KIB).unwrap().len(), 1024);
        File::create(at("large")).unwrap().set_len(10 << 30).unwrap();
        assert!(refusal(&at("large")).ends_with("expected at most 1024 bytes, found 10737418240"));
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        assert!(refusal(&at("fifo")).ends_with("expected a plain file or a pipe, found a FIFO"));
        assert!(refusal(Path::new("/dev/zero")).ends_with("found a device"));
        assert!(refusal(folder.path()).ends_with("found a folder"));
        assert!(read(&at("none"), Accept::File, KIB).unwrap_err().is_missing());
        assert!(read(&at("small/"), Accept::File, KIB).is_err());
        std::fs::write(at("bytes"), b"ab\xff").unwrap();
        let wrong = read_text(&at("bytes"), Accept::File, KIB).unwrap_err().line();
        assert!(wrong.ends_with("expected UTF-8 text, found byte 0xff at offset 2"), "{wrong}");
    }

    #[test]
    fn an_inherited_pipe_is_read_to_its_end() {
        use std::io::Write as _;
        let (reads, mut writes) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reads.as_raw_fd());
        let writer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            writes.write_all(&[b'a'; 1000]).unwrap();
        });
        let path = Path::new(&path);
        assert_eq!(read(path, Accept::FileOrPipe, KIB).unwrap().len(), 1000);
        writer.join().unwrap();
        let wrong = read(path, Accept::File, KIB).unwrap_err().line();
        assert!(wrong.ends_with("expected a plain file, found a pipe"), "{wrong}");
    }

    #[test]
    fn links_are_followed_where_only_we_can_make_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::write(at("file"), "text").unwrap();
        symlink("../file", at("folder/link")).unwrap();
        symlink("folder", at("around")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let found = |name: &str| read(&at(name), Accept::File, KIB);
        assert_eq!(found("folder/link").unwrap(), b"text");
        assert_eq!(found("around/link").unwrap(), b"text");
        assert_eq!(found("loop").unwrap_err().raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        for mode in [0o757, 0o1777] {
            std::fs::set_permissions(at("folder"), PermissionsExt::from_mode(mode)).unwrap();
            for name in ["folder/link", "around/link"] {
                let why = found(name).unwrap_err().line();
                assert!(why.contains("found the link link"), "{mode:o}: {why}");
            }
            assert_eq!(found("around/../file").unwrap(), b"text");
        }
        // With a private group, as many systems give each user, all folders are like this.
        std::fs::set_permissions(at("folder"), PermissionsExt::from_mode(0o775)).unwrap();
        assert_eq!(found("folder/link").unwrap(), b"text");
    }

    #[test]
    fn code_is_checked_before_it_is_opened() {
        let code = open_code(Path::new("/proc/self/exe")).unwrap();
        assert!(code.metadata.len() > 1000);
        assert!(open_code(Path::new("/dev/zero")).is_err());
        assert!(open_code(Path::new("/")).is_err());
    }
}
