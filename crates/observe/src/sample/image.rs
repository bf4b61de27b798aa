//! Code in an ELF file: function bounds and bytes.
//!
//! Bounds come from the unwind tables (`.eh_frame`). Stripped programs keep these tables because
//! exceptions and backtraces need them. Symbols fill the gaps that assembly and Go leave.

use super::budget::StepBudget;
use super::elf::Tables;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Code of an open file, read in pieces.
#[derive(Debug)]
pub struct Image {
    file: File,
    /// Code tables of the file.
    pub tables: Tables,
    /// Stamp of the file when its tables were read.
    stamp: FileVersion,
}

/// Length and time of the last modification (seconds and nanoseconds): a write changes them.
type FileVersion = (u64, i64, i64);

impl Image {
    /// Lists the functions of `file`, a regular file. `None` if `file` is no ELF file, is for an
    /// unsupported instruction set, or exceeds `budget`.
    #[must_use]
    pub fn of(file: File, budget: &mut StepBudget) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let tables = Tables::read(&file, budget)?;
        Some(Self { file, tables, stamp: stamp(&metadata) })
    }

    /// Whether the file was not written to since its tables were read; some linkers write in place.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| stamp(&metadata) == self.stamp)
    }

    /// Whether the file still has a name. Without a name its disk space is freed on close.
    #[must_use]
    pub fn has_name(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }

    /// Bytes at `addresses` as far as their segment, at most 1 MiB.
    #[must_use]
    pub fn bytes(&self, addresses: Range<u64>) -> Vec<u8> {
        self.tables.bytes(&self.file, addresses, LONGEST_FUNCTION_B)
    }
}

fn stamp(metadata: &Metadata) -> FileVersion {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// Length limit of a function and of one read, in bytes; a longer range is taken for wrong bounds.
/// Chosen: the largest function of Debian 12's CPython and node is below 200 KiB.
pub(super) const LONGEST_FUNCTION_B: u64 = 1 << 20;

#[cfg(test)]
pub(crate) mod tests {
    use super::super::elf::MOST_STEPS;
    use super::super::file::CodeFile;
    use super::*;
    use colocate_isa::Isa;
    use std::path::Path;

    /// Where the code of [`program`] begins in its file, in bytes.
    pub const CODE_B: u64 = 0x1000;

    /// An ELF file of x86-64 with `code` and without functions.
    pub fn program(code: &[u8]) -> Vec<u8> {
        let length = (CODE_B + code.len() as u64).to_le_bytes();
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(16, 0);
        // Executable, x86-64, version 1; entry, program headers at 64, no sections.
        elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        elf.extend([0x10_0000_u64, 64, 0].map(u64::to_le_bytes).concat());
        // Flags, sizes of the header and of one program header.
        elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        // Loaded, readable and executable, from the beginning of the file.
        elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        elf.extend([0, 0x10_0000, 0x10_0000].map(u64::to_le_bytes).concat());
        elf.extend([length, length, 0x1000_u64.to_le_bytes()].concat());
        elf.resize(usize::try_from(CODE_B).unwrap(), 0x90);
        elf.extend(code);
        elf
    }

    pub fn opened(path: &Path) -> Option<Image> {
        Image::of(
            CodeFile { path: path.to_owned(), id: None }.open()?,
            &mut StepBudget::of(MOST_STEPS),
        )
    }

    /// How many files of a folder this process has open, with and without those that are deleted.
    pub fn open_in(folder: &Path) -> (usize, usize) {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let to = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let of: Vec<_> = to.filter(|to| to.starts_with(folder)).collect();
        let deleted = of.iter().filter(|to| to.to_string_lossy().ends_with(" (deleted)"));
        (of.len(), of.len() - deleted.count())
    }

    #[test]
    fn a_file_that_is_written_to_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, program(&[0x90, 0xc3])).unwrap();
        let image = opened(&path).unwrap();
        assert_eq!(image.tables.address(CODE_B + 1), Some(0x10_1001));
        assert!(image.is_unchanged() && image.has_name());
        std::fs::write(&path, program(&[0xc3])).unwrap();
        assert!(!image.is_unchanged() && image.has_name());
        std::fs::remove_file(&path).unwrap();
        assert!(!image.has_name());
    }

    /// The header says where in the file the segment lies: up to the last byte there can be, and then one more.
    #[test]
    fn a_segment_beyond_all_files_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut elf = program(&[0xc3]);
        elf[72..80].copy_from_slice(&(u64::MAX - CODE_B).to_le_bytes());
        std::fs::write(&path, elf).unwrap();
        let image = opened(&path).unwrap();
        assert_eq!(image.tables.address(u64::MAX - 1), Some(0x10_0000 + CODE_B - 1));
        assert_eq!(image.tables.address(0), None);
    }

    #[test]
    fn our_own_functions_are_found() {
        let image = opened(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Some(image.tables.isa), Isa::native());
        let functions = &image.tables.functions;
        assert!(functions.len() > 100);
        assert!(functions.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let function = functions[functions.len() / 2].clone();
        assert_eq!(image.tables.function(function.start), Some(function.clone()));
        assert_eq!(image.bytes(function.clone()).len() as u64, function.end - function.start);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "#!/bin/sh\n").unwrap();
        assert!(opened(&text).is_none());
        assert!(opened(Path::new("/dev/null")).is_none());
        assert!(opened(&folder.path().join("absent")).is_none());
    }
}
