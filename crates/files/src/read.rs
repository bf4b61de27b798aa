//! The one reader.

use crate::error::{Action, FileError, Reason};
use crate::size::MaxSize;
use crate::walk::{self, Object, Place};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// A plain file.
    File,
    /// A plain file, or a pipe without a name that was inherited, as a shell's `<(command)` or standard input: it is
    /// read until its writers have closed it. A FIFO, which anybody can put into a folder, is not.
    FileOrPipe,
}

/// Opens a file for reading, of at most `limit`. A pipe has no size: its reader must count.
///
/// # Errors
/// [`Reason::Os`] if it cannot be opened, [`Reason::Unfit`] if it is of another type or a link leads to it that
/// another user may have made, [`Reason::TooLarge`].
pub fn open(path: &Path, accept: Accept, limit: MaxSize) -> Result<File, FileError> {
    let place = walk::walk(path).map_err(|why| why.of(Action::Read, path))?;
    let Place { folder, name, object, .. } = place;
    let object = object.ok_or_else(|| Reason::from(Errno::NOENT).of(Action::Read, path))?;
    open_object(&object, (&folder, &name), path, accept, limit)
}

/// Opens what was found in `again` under the path `path`.
pub(crate) fn open_object(
    object: &Object,
    again: (&OwnedFd, &OsStr),
    path: &Path,
    accept: Accept,
    limit: MaxSize,
) -> Result<File, FileError> {
    let is_pipe = accept == Accept::FileOrPipe && object.is_inherited_pipe();
    if object.kind() != FileType::RegularFile && !is_pipe {
        let expected = match accept {
            Accept::File => "a plain file",
            Accept::FileOrPipe => "a plain file or a pipe",
        };
        let found = walk::called(object);
        return Err(Reason::Unfit { expected, found }.of(Action::Read, path));
    }
    if !is_pipe && object.size() > limit.get() {
        let reason = Reason::TooLarge(limit, object.size().to_string());
        return Err(reason.of(Action::Read, path));
    }
    let wrong = |why: Errno| Reason::from(why).of(Action::Read, path);
    let file = object.open(OFlags::RDONLY, again).map_err(wrong)?;
    if is_pipe {
        // Its writers may take their time; a process that inherits a pipe waits for them.
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(wrong)?;
    }
    Ok(file)
}

/// The content of a file.
///
/// # Errors
/// As [`open`], also if more than `limit` comes out of it, as of a pipe or a file of /proc.
pub fn read(path: &Path, accept: Accept, limit: MaxSize) -> Result<Vec<u8>, FileError> {
    content(open(path, accept, limit)?, path, limit)
}

/// The text in a file.
pub fn read_text(path: &Path, accept: Accept, limit: MaxSize) -> Result<String, FileError> {
    text(read(path, accept, limit)?, path)
}

pub(crate) fn content(file: File, path: &Path, limit: MaxSize) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    // A pipe has no size, and a file may grow while it is read.
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
        let byte = error.as_bytes().get(offset).copied().unwrap_or(0);
        Reason::NotText(byte, offset).of(Action::Read, path)
    })
}

/// A large plain file that is read piece by piece, as a program's executable.
#[derive(Debug)]
pub struct Code {
    /// Opened for reading.
    pub file: File,
    /// Of the object that was opened, taken before it was opened.
    pub metadata: Metadata,
}

/// Opens a plain file of any size without opening anything else: a device node, whatever path leads to it, is only
/// looked at. Links are followed by the kernel, since paths of programs lead through `/proc/PID`: compare what was
/// opened with the device and inode that the kernel names.
///
/// `path` as a process sees it can lead to another object here; see mount_namespaces(7).
///
/// # Errors
/// If it is missing or not a plain file, or cannot be opened; also without /proc.
pub fn open_code(path: &Path) -> io::Result<Code> {
    let look = OFlags::PATH | OFlags::CLOEXEC;
    open_seen_code(&File::from(rustix::fs::openat(CWD, path, look, Mode::empty())?))
}

/// The same of a file that was opened with `O_PATH`.
///
/// # Errors
/// As [`open_code`].
pub fn open_seen_code(seen: &File) -> io::Result<Code> {
    use std::os::fd::AsRawFd;
    let metadata = seen.metadata()?;
    if !metadata.is_file() {
        let what = format!("expected a plain file, found {:?}", metadata.file_type());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let link = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let flags = OFlags::RDONLY | crate::ALWAYS;
    let file = File::from(rustix::fs::openat(CWD, link, flags, Mode::empty())?);
    Ok(Code { file, metadata })
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
