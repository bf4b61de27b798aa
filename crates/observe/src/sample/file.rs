//! Identity of a mapped file: a path names the file only until the file is replaced.

use colocate_files::LargeFile;
use colocate_linux::foreign;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A file of code, as the kernel distinguishes files of the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Major and minor device number, as in mappings; `stat` on btrfs and overlayfs has another.
    pub device: (u32, u32),
    /// Inode number on the device.
    pub inode: u64,
    /// Inode generation, distinguishing files that reuse the inode; `None` if unknown.
    pub generation: Option<u64>,
}

impl FileId {
    /// File mapped by `whole`, a `PERF_RECORD_MMAP2` with its header; `None` if truncated.
    #[must_use]
    pub fn of_record(whole: &[u8]) -> Option<Self> {
        // Offset 40: after the header, pid, tid, address, length and offset.
        let rest = whole.get(40..)?;
        let (major, rest) = rest.split_first_chunk()?;
        let (minor, rest) = rest.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let generation = rest.first_chunk()?;
        Some(Self {
            device: (u32::from_ne_bytes(*major), u32::from_ne_bytes(*minor)),
            inode: u64::from_ne_bytes(*inode),
            generation: Some(u64::from_ne_bytes(*generation)),
        })
    }

    /// Whether both may be one file. Wrong only for a reused inode with an unknown generation.
    #[must_use]
    pub fn is_like(self, other: Self) -> bool {
        let known = self.generation.zip(other.generation);
        (self.device, self.inode) == (other.device, other.inode)
            && known.is_none_or(|(one, another)| one == another)
    }
}

/// A mapped file of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Path where it was mapped, possibly in another mount namespace.
    pub path: PathBuf,
    /// Identity of the file; `None` if unknown.
    pub id: Option<FileId>,
}

impl CodeFile {
    /// Opens the file without blocking. `None` if unreadable, no regular file, or if the path now
    /// names another file, here or there. Other file types are not even opened: the path may lead
    /// to a device here, whose driver would act.
    ///
    /// Files are compared by inode, not by device: see [`FileId::device`].
    #[must_use]
    pub fn open(&self) -> Option<File> {
        let LargeFile { file, metadata } = foreign::code(&self.path).ok()?;
        // Files of /proc have length 0, and reading some of them has side effects.
        let is_it = self.id.is_none_or(|id| id.inode == metadata.ino()) && metadata.len() > 0;
        is_it.then_some(file)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::path::Path;

    fn id(device: (u32, u32), inode: u64, generation: Option<u64>) -> FileId {
        FileId { device, inode, generation }
    }

    /// A header, two numbers of 32 and three of 64 bits, then what is looked for.
    #[test]
    fn in_a_record_of_the_kernel() {
        let words = [0xfe_u32, 1].map(u32::to_ne_bytes).concat();
        let wide = [1234_u64, 77].map(u64::to_ne_bytes).concat();
        let whole = [&[0; 40][..], &words, &wide, &[9; 16]].concat();
        assert_eq!(FileId::of_record(&whole), Some(id((0xfe, 1), 1234, Some(77))));
        assert_eq!(FileId::of_record(&whole[..63]), None);
        assert_eq!(FileId::of_record(&[]), None);
    }

    #[test]
    fn a_reused_inode_is_another_file() {
        let known = |generation| id((8, 1), 5, generation);
        assert!(known(Some(1)).is_like(known(Some(1))) && known(None).is_like(known(Some(1))));
        assert!(!known(Some(1)).is_like(known(Some(2))));
        assert!(
            !known(None).is_like(id((8, 2), 5, None)) && !known(None).is_like(id((8, 1), 6, None))
        );
    }

    #[test]
    fn another_file_of_the_same_path_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.out");
        std::fs::write(&path, "old").unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let file = |inode| CodeFile { path: path.clone(), id: Some(id((0, 0), inode, None)) };
        assert!(file(inode).open().is_some() && file(inode + 1).open().is_none());
        assert!(CodeFile { path: path.clone(), id: None }.open().is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(file(inode).open().is_none());
    }

    /// A pipe without a writer lies in the place of code. It is refused at once, and never opened: a driver would
    /// notice that.
    #[test]
    fn what_is_no_plain_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.out");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let watch = Opened::watch(&path);
        let file = CodeFile { path: path.clone(), id: None };
        assert!(file.open().is_none());
        assert_eq!(watch.count(), 0, "it was opened");
        // The watch sees it if it is opened.
        drop(File::options().read(true).write(true).open(&path).unwrap());
        assert_eq!(watch.count(), 1);
        assert!(CodeFile { path: "/dev/zero".into(), id: None }.open().is_none());
        assert!(CodeFile { path: "/proc/self/status".into(), id: None }.open().is_none());
    }

    /// Counts how often a file is opened.
    pub struct Opened(File);

    impl Opened {
        #[allow(unsafe_code)] // inotify
        pub fn watch(path: &Path) -> Self {
            let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: takes no pointer; the descriptor that it returns is owned from here on.
            let queue = unsafe {
                let queue = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
                assert!(queue >= 0);
                File::from_raw_fd(queue)
            };
            // SAFETY: `path` ends with a zero byte and outlives the call.
            let added =
                unsafe { libc::inotify_add_watch(queue.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
            assert!(added >= 0);
            Self(queue)
        }

        /// How often since the last call.
        pub fn count(&self) -> usize {
            let mut events = [0; 4096];
            // Each event of a file that is watched by itself has no name.
            (&self.0).read(&mut events).map_or(0, |read| read / size_of::<libc::inotify_event>())
        }
    }
}
