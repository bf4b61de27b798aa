//! Which file it is that code was mapped from: a name alone says it only until the file is replaced.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of code as the kernel tells it apart from others of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Major and minor number of its device, as mappings have it; on btrfs and overlayfs `stat` has another one.
    pub device: (u32, u32),
    /// Its inode on that device.
    pub inode: u64,
    /// Which of the files it is that have had this inode, one after the other; `None` if it was not told.
    pub generation: Option<u64>,
}

impl FileId {
    /// Of the file that the record `whole` says was mapped, a `PERF_RECORD_MMAP2` with its header; `None` if it is cut
    /// short.
    #[must_use]
    pub fn of_record(whole: &[u8]) -> Option<Self> {
        // After the header: process and thread, address, length and offset.
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

    /// Of all files in the text of `/proc/PID/maps`, by the first address of each piece.
    #[must_use]
    pub fn in_maps(text: &str) -> HashMap<u64, Self> {
        text.lines().filter_map(of_line).collect()
    }

    /// Whether both may be the same file: they are, unless its inode was reused and one was told without its
    /// generation.
    #[must_use]
    pub fn is_like(self, other: Self) -> bool {
        let known = self.generation.zip(other.generation);
        (self.device, self.inode) == (other.device, other.inode)
            && known.is_none_or(|(one, another)| one == another)
    }
}

fn of_line(line: &str) -> Option<(u64, FileId)> {
    let mut fields = line.splitn(6, ' ');
    let start = fields.next()?.split_once('-')?.0;
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let device = (number(major)?, number(minor)?);
    let id = FileId { device, inode: fields.next()?.parse().ok()?, generation: None };
    Some((u64::from_str_radix(start, 16).ok()?, id))
}

/// A file that code was mapped from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Its path where it was mapped, which may be in another mount namespace.
    pub path: PathBuf,
    /// Which file of that path; `None` if it was not told.
    pub id: Option<FileId>,
}

impl CodeFile {
    /// Opens it, and never waits. `None` if it cannot be, is no plain file, or if another file has this path now, or here.
    ///
    /// Files are held to be the same by their inodes, and not by devices: see [`FileId::device`].
    #[must_use]
    pub fn open(&self) -> Option<File> {
        let (file, metadata) = open_plain(&self.path)?;
        self.id.is_none_or(|id| id.inode == metadata.ino()).then_some(file)
    }

    /// Its path, to be shown.
    #[must_use]
    pub fn display(&self) -> std::path::Display<'_> {
        Path::new(&self.path).display()
    }
}

/// Opens a plain file for reading, with what is known of it; `None` if it is something else. A pipe that a program has
/// put in the place of its code would hold us until somebody writes to it.
pub(super) fn open_plain(path: &Path) -> Option<(File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::super::image::Image;
    use super::*;

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
    fn in_a_list_of_mappings() {
        let text = "7f00-8f00 r-xp 00001000 fe:01 1234      /usr/lib/a b.so\n\
                    nonsense\n\
                    9000-a000 rwxp 00000000 00:00 0 \n";
        let found = FileId::in_maps(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&0x7f00], id((0xfe, 1), 1234, None));
        assert_eq!(found[&0x9000], id((0, 0), 0, None));
    }

    #[test]
    fn a_reused_inode_is_another_file() {
        let told = |generation| id((8, 1), 5, generation);
        assert!(told(Some(1)).is_like(told(Some(1))) && told(None).is_like(told(Some(1))));
        assert!(!told(Some(1)).is_like(told(Some(2))));
        assert!(
            !told(None).is_like(id((8, 2), 5, None)) && !told(None).is_like(id((8, 1), 6, None))
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

    /// Nobody writes to the pipe, so who waits for that waits for ever.
    #[test]
    fn a_pipe_in_the_place_of_code_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.out");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (send, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let opened = Image::open(&path).is_some();
            send.send(opened || CodeFile { path, id: None }.open().is_some()).unwrap();
        });
        let found = done.recv_timeout(std::time::Duration::from_secs(10));
        assert_eq!(found, Ok(false), "expected a refusal at once");
    }
}
