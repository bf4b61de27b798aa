//! Executable mappings of each process.

use super::file::{CodeFile, FileId};
use crate::perf::ExecutableMapping;
use colocate_linux::Pid;
use colocate_linux::proc::{CodeMap, Proc};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of [`Spaces`]. Never reused for another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdx(u32);

/// Location in a program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeLocation {
    /// File, and byte offset in the file.
    File(FileIdx, u64),
    /// Process, and address in memory: a JIT compiler's, the vdso's, or of a file that is gone.
    Memory(Pid, u64),
}

/// Executable mappings of each process.
#[derive(Debug, Default)]
pub struct Spaces {
    files: BTreeMap<FileIdx, CodeFile>,
    /// Files by path; those of one path replaced each other, or are in different mount namespaces.
    by_path: BTreeMap<PathBuf, Vec<FileIdx>>,
    /// Number of file indices given out.
    given: u32,
    /// Approximate memory of the files, in bytes.
    files_b: usize,
    /// Mappings; shared between a process and its forks until one of them maps code.
    spaces: BTreeMap<Pid, Arc<Space>>,
}

type Space = BTreeMap<u64, MapSegment>;

/// Limit of a process's mappings: Linux's default (`vm.max_map_count`). The kernel does not report
/// unmapping, so a program that maps code again and again would exceed any number.
const MOST_PIECES: usize = 65_530;

/// Memory limit of files, in bytes. Chosen: 100,000 files with paths of 100 bytes.
const MOST_FILES_B: usize = 32 << 20;

/// Limit of the files of one path; the oldest is dropped. Chosen: enough for builds that replace
/// programs, and few enough to compare at each mapping.
const MOST_OF_A_PATH: usize = 1 << 10;

/// Approximate memory of a file, in bytes: the path is stored twice, each with as much overhead.
fn cost_b(path: &Path) -> usize {
    2 * (path.as_os_str().len() + 100)
}

#[derive(Clone, Copy, Debug)]
struct MapSegment {
    end: u64,
    offset_b: u64,
    file: Option<FileIdx>,
    /// Whether this is the kernel's code in the program: `[vdso]`.
    vdso: bool,
}

impl Spaces {
    /// Copies the mappings of `parent` to `child`.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        if let Some(space) = self.spaces.get(&parent).cloned() {
            self.spaces.insert(child, space);
        }
    }

    /// Drops all mappings of process `pid`, after an exec or its exit.
    pub fn clear(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
        if self.files_b >= MOST_FILES_B {
            self.forget_unmapped();
        }
    }

    /// Records a mapping of process `pid`, by a record of the kernel.
    pub fn map(&mut self, pid: Pid, map: &ExecutableMapping<'_>, id: Option<FileId>) {
        let path = String::from_utf8_lossy(map.path);
        let end = map.start.saturating_add(map.length_b);
        let file = self.file_of(&path, id);
        if map.start >= end {
            return;
        }
        let space = Arc::make_mut(self.spaces.entry(pid).or_default());
        make_room(space, map.start, end);
        let vdso = path == "[vdso]";
        // Memory without a file is the default, so it is not stored.
        if file.is_none() && !vdso {
            return;
        }
        // All at once: code without a known mapping is read from memory.
        if space.len() >= MOST_PIECES {
            space.clear();
        }
        space.insert(map.start, MapSegment { end, offset_b: map.offset_b, file, vdso });
    }

    /// Records all mappings of process `pid` listed in `/proc`. Opens none of the files.
    pub fn find(&mut self, pid: Pid, proc: &Proc) {
        for map in proc.code_maps(pid) {
            self.found(pid, &map);
        }
    }

    /// Records a mapping of process `pid` listed in `/proc`.
    pub fn found(&mut self, pid: Pid, map: &CodeMap) {
        let CodeMap { start, offset_b, device, inode, .. } = *map;
        let (length_b, path) = (map.end.saturating_sub(start), map.path.as_bytes());
        let mapping = ExecutableMapping { start, length_b, offset_b, path };
        self.map(pid, &mapping, Some(FileId { device, inode, generation: None }));
    }

    /// Forgets files that no process has mapped.
    pub fn forget_unmapped(&mut self) {
        let pieces = self.spaces.values().flat_map(|space| space.values());
        let mapped: BTreeSet<FileIdx> = pieces.filter_map(|piece| piece.file).collect();
        self.files.retain(|file, _| mapped.contains(file));
        self.by_path.retain(|_, files| {
            files.retain(|file| mapped.contains(file));
            !files.is_empty()
        });
        self.files_b = self.files.values().map(|file| cost_b(&file.path)).sum();
    }

    /// Source of the code at `ip`; [`CodeLocation::Memory`] without a known mapping.
    #[must_use]
    pub fn origin(&self, pid: Pid, ip: u64) -> CodeLocation {
        match self.piece_at(pid, ip) {
            Some((start, MapSegment { offset_b, file: Some(file), .. })) => {
                CodeLocation::File(*file, (ip - start).saturating_add(*offset_b))
            }
            _ => CodeLocation::Memory(pid, ip),
        }
    }

    /// Start and description of the mapping around `ip`.
    fn piece_at(&self, pid: Pid, ip: u64) -> Option<(u64, &MapSegment)> {
        let (start, piece) = self.spaces.get(&pid)?.range(..=ip).next_back()?;
        (ip < piece.end).then_some((*start, piece))
    }

    /// Whether the instruction at `ip` of process `pid` is in the `[vdso]`.
    #[must_use]
    pub fn in_vdso(&self, pid: Pid, ip: u64) -> bool {
        self.piece_at(pid, ip).is_some_and(|(_, piece)| piece.vdso)
    }

    /// Path and identity of a file; `None` if it was forgotten.
    #[must_use]
    pub fn file(&self, file: FileIdx) -> Option<&CodeFile> {
        self.files.get(&file)
    }

    /// Identities of the files of this path.
    #[cfg(test)]
    pub(crate) fn ids_of(&self, path: &Path) -> impl Iterator<Item = FileId> {
        let files = self.by_path.get(path).into_iter().flatten();
        files.filter_map(|file| self.files.get(file)?.id)
    }

    /// Index of the file at `path`. `None` for memory without a file, and beyond the memory limit:
    /// then code is read from memory.
    fn file_of(&mut self, path: &str, id: Option<FileId>) -> Option<FileIdx> {
        if is_memory(path) {
            return None;
        }
        let path = Path::new(path);
        // The newest file of a path is the likeliest.
        for known in self.by_path.get(path).into_iter().flatten().rev() {
            let file = self.files.get_mut(known)?;
            let is_it = match (file.id, id) {
                (Some(one), Some(another)) => one.is_like(another),
                (one, another) => one == another,
            };
            if is_it {
                if let (Some(known), Some(id)) = (&mut file.id, id) {
                    // Lists in /proc have no generation, records of the kernel do.
                    known.generation = known.generation.or(id.generation);
                }
                return Some(*known);
            }
        }
        if self.files_b >= MOST_FILES_B {
            return None;
        }
        let new = FileIdx(self.given);
        self.given = self.given.checked_add(1)?;
        self.files_b += cost_b(path);
        self.files.insert(new, CodeFile { path: path.into(), id });
        let of_path = self.by_path.entry(path.into()).or_default();
        of_path.push(new);
        if of_path.len() > MOST_OF_A_PATH {
            self.files.remove(&of_path.remove(0));
            self.files_b -= cost_b(path);
        }
        Some(new)
    }
}

/// Whether `path` names memory without a file.
fn is_memory(path: &str) -> bool {
    // Anonymous memory is "//anon" in the kernel's records and empty in /proc. "/dev/zero",
    // "/memfd:" and "/SYSV" are memory with a file-like name. A deleted file cannot be opened by
    // name.
    let memory = ["//", "/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"];
    !path.starts_with('/')
        || path.ends_with(" (deleted)")
        || memory.iter().any(|prefix| path.starts_with(prefix))
}

/// Unmaps `start .. end`, truncating mappings that reach into it.
fn make_room(space: &mut Space, start: u64, end: u64) {
    let reaching: Vec<(u64, MapSegment)> = space
        .range(..end)
        // Mappings do not overlap, so none before the first that ends too early can reach in.
        .rev()
        .take_while(|(_, piece)| piece.end > start)
        .map(|(at, piece)| (*at, *piece))
        .collect();
    for (at, piece) in reaching {
        space.remove(&at);
        if at < start {
            space.insert(at, MapSegment { end: start, ..piece });
        }
        if piece.end > end {
            let offset_b = piece.offset_b.saturating_add(end - at);
            space.insert(end, MapSegment { offset_b, ..piece });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(spaces: &mut Spaces, pid: i32, start: u64, length_b: u64, path: &str) {
        let map = ExecutableMapping { start, length_b, offset_b: 0x1000, path: path.as_bytes() };
        spaces.map(Pid(pid), &map, None);
    }

    /// The file behind `path` in a process that has mapped nothing but the one with this inode and generation.
    fn file(spaces: &mut Spaces, pid: i32, inode: u64, generation: Option<u64>) -> FileIdx {
        let map =
            ExecutableMapping { start: 0x1000, length_b: 0x1000, offset_b: 0, path: b"/a.out" };
        spaces.map(Pid(pid), &map, Some(FileId { device: (8, 1), inode, generation }));
        match spaces.origin(Pid(pid), 0x1000) {
            CodeLocation::File(file, 0) => file,
            other => panic!("{other:?}"),
        }
    }

    fn origin(spaces: &Spaces, pid: i32, ip: u64) -> Option<(String, u64)> {
        match spaces.origin(Pid(pid), ip) {
            CodeLocation::File(file, at) => {
                Some((spaces.file(file)?.path.display().to_string(), at))
            }
            CodeLocation::Memory(..) => None,
        }
    }

    #[test]
    fn a_new_mapping_cuts_the_old_one() {
        let mut spaces = Spaces::default();
        map(&mut spaces, 1, 0x1_0000, 0x4000, "/a");
        map(&mut spaces, 1, 0x1_1000, 0x1000, "//anon");
        assert_eq!(origin(&spaces, 1, 0x1_0fff), Some(("/a".into(), 0x1fff)));
        assert_eq!(origin(&spaces, 1, 0x1_1800), None);
        assert_eq!(origin(&spaces, 1, 0x1_2000), Some(("/a".into(), 0x3000)));
        assert_eq!(origin(&spaces, 1, 0x1_4000), None);
        assert_eq!(origin(&spaces, 1, 0xffff), None);
    }

    /// The kernel writes none, and pieces that it cut would overlap.
    #[test]
    fn a_mapping_without_an_address_is_none() {
        let mut spaces = Spaces::default();
        map(&mut spaces, 1, 0x1_0000, 0x4000, "/a");
        map(&mut spaces, 1, 0x1_1000, 0, "/b");
        let id = (8, 1);
        let path = "/c".to_owned();
        let turned =
            CodeMap { start: 0x1_3000, end: 0x1_1000, offset_b: 0, device: id, inode: 7, path };
        spaces.found(Pid(1), &turned);
        assert_eq!(spaces.spaces[&Pid(1)].len(), 1);
        for ip in [0x1_1000, 0x1_2000, 0x1_3000] {
            assert_eq!(origin(&spaces, 1, ip), Some(("/a".into(), ip - 0x1_0000 + 0x1000)));
        }
    }

    #[test]
    fn a_fork_keeps_what_its_parent_had() {
        let mut spaces = Spaces::default();
        map(&mut spaces, 1, 0x1000, 0x1000, "/a");
        spaces.fork(Pid(1), Pid(2));
        map(&mut spaces, 2, 0x1000, 0x1000, "/b");
        assert_eq!(origin(&spaces, 1, 0x1000), Some(("/a".into(), 0x1000)));
        assert_eq!(origin(&spaces, 2, 0x1000), Some(("/b".into(), 0x1000)));
        spaces.clear(Pid(2));
        assert_eq!(origin(&spaces, 2, 0x1000), None);
    }

    #[test]
    fn memory_with_the_name_of_a_file() {
        let mut spaces = Spaces::default();
        for path in ["[vdso]", "", "/tmp/x (deleted)", "/memfd:jit (deleted)", "/dev/zero"] {
            map(&mut spaces, 1, 0x1000, 0x1000, path);
            assert_eq!(origin(&spaces, 1, 0x1000), None, "{path}");
            assert_eq!(spaces.in_vdso(Pid(1), 0x1fff), path == "[vdso]");
            assert!(!spaces.in_vdso(Pid(1), 0x2000) && !spaces.in_vdso(Pid(2), 0x1000));
        }
    }

    /// `/a.out` runs twice, is built again, and then once more with the inode that the first one had.
    #[test]
    fn a_file_that_is_replaced_is_another_one() {
        let mut spaces = Spaces::default();
        let first = file(&mut spaces, 1, 50, Some(7));
        assert_eq!(file(&mut spaces, 2, 50, Some(7)), first);
        let second = file(&mut spaces, 3, 51, Some(8));
        let third = file(&mut spaces, 4, 50, Some(9));
        assert!(first != second && second != third && third != first);
        assert_eq!(file(&mut spaces, 5, 51, Some(8)), second);
        assert_eq!(spaces.origin(Pid(1), 0x1000), CodeLocation::File(first, 0));
    }

    /// `/proc` shows no generation. It is learnt from the next process that maps the file.
    #[test]
    fn a_file_that_was_found_is_known_when_it_is_mapped() {
        let mut spaces = Spaces::default();
        let found = file(&mut spaces, 1, 50, None);
        assert_eq!(file(&mut spaces, 2, 50, Some(7)), found);
        assert_ne!(file(&mut spaces, 3, 50, Some(8)), found);
    }

    /// 500 programs, one after the other, of which the last one runs.
    #[test]
    fn files_that_are_not_mapped_are_forgotten() {
        let mut spaces = Spaces::default();
        for inode in 0..500 {
            file(&mut spaces, 1, inode, Some(1));
        }
        let last = file(&mut spaces, 1, 499, Some(1));
        assert_eq!((spaces.files.len(), spaces.by_path.len()), (500, 1));
        spaces.forget_unmapped();
        assert_eq!((spaces.files.len(), spaces.by_path[Path::new("/a.out")].len()), (1, 1));
        assert_eq!(file(&mut spaces, 2, 499, Some(1)), last);
        spaces.clear(Pid(1));
        spaces.clear(Pid(2));
        spaces.forget_unmapped();
        assert!(spaces.files.is_empty() && spaces.by_path.is_empty());
        assert!(spaces.file(last).is_none());
        assert_ne!(file(&mut spaces, 1, 499, Some(1)), last);
    }

    /// A program maps code at ever new addresses, and unmaps it, which is not reported.
    #[test]
    fn a_program_that_maps_again_and_again_takes_little_memory() {
        let mut spaces = Spaces::default();
        for place in 0..2 * MOST_PIECES as u64 {
            map(&mut spaces, 1, place * 0x1000, 0x1000, "/a");
            map(&mut spaces, 2, place * 0x1000, 0x1000, "//anon");
            assert!(origin(&spaces, 1, place * 0x1000).is_some());
        }
        assert!(spaces.spaces[&Pid(1)].len() <= MOST_PIECES);
        assert_eq!(spaces.spaces[&Pid(2)].len(), 0);
    }

    /// A program maps files of long names, and replaces one again and again. Others are known again when it has ended.
    #[test]
    fn a_program_that_maps_many_files_takes_little_memory() {
        let mut spaces = Spaces::default();
        let (path, mut at) = ("/x".repeat(2_000), 0);
        while spaces.files_b < MOST_FILES_B {
            at += 0x1000;
            map(&mut spaces, 1, at, 0x1000, &format!("{path}/{at}"));
        }
        assert!(spaces.files.len() < 10_000);
        map(&mut spaces, 2, 0x1000, 0x1000, "/a");
        assert_eq!(origin(&spaces, 2, 0x1000), None);
        spaces.clear(Pid(1));
        map(&mut spaces, 2, 0x1000, 0x1000, "/a");
        assert_eq!(origin(&spaces, 2, 0x1000), Some(("/a".into(), 0x1000)));
        for inode in 0..2 * MOST_OF_A_PATH as u64 {
            file(&mut spaces, 3, inode, Some(inode));
        }
        assert_eq!(spaces.by_path[Path::new("/a.out")].len(), MOST_OF_A_PATH);
        assert_eq!(spaces.files.len(), MOST_OF_A_PATH + 1);
        spaces.clear(Pid(3));
        spaces.forget_unmapped();
        assert_eq!(spaces.files_b, cost_b(Path::new("/a")));
    }

    /// This process's own code, by `/proc`.
    #[test]
    fn code_that_is_found_has_its_inode() {
        use std::os::unix::fs::MetadataExt;
        let (mut spaces, pid) = (Spaces::default(), Pid(std::process::id().cast_signed()));
        spaces.find(pid, &Proc::default());
        let own = std::env::current_exe().unwrap();
        let inode = std::fs::metadata(&own).unwrap().ino();
        let file = spaces.files.values().find(|file| file.path == own).unwrap();
        assert_eq!(file.id.unwrap().inode, inode);
    }
}
