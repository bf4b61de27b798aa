//! Which file's code lies where in each process.

use crate::perf::Mapping;
use crate::proc::CodeMap;
use crate::task::Pid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place in [`Spaces`]' list of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdx(u32);

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// From a file, so many bytes from its start.
    File(FileIdx, u64),
    /// From memory without a file: a JIT compiler's, the vdso, or a file that is gone.
    Memory,
}

/// The code mapped in each process.
#[derive(Debug, Default)]
pub struct Spaces {
    files: Vec<PathBuf>,
    by_path: BTreeMap<PathBuf, FileIdx>,
    /// Shared between a process and those it has forked until one of them maps something.
    spaces: BTreeMap<Pid, Arc<Space>>,
}

type Space = BTreeMap<u64, Piece>;

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    offset_b: u64,
    file: Option<FileIdx>,
    /// Whether it is code of the kernel's that runs in the program: `[vdso]`.
    vdso: bool,
}

impl Spaces {
    /// Process `child` begins as a copy of `parent`.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        if let Some(space) = self.spaces.get(&parent).cloned() {
            self.spaces.insert(child, space);
        }
    }

    /// Process `pid` executes another program or has ended: nothing is mapped any more.
    pub fn clear(&mut self, pid: Pid) {
        self.spaces.remove(&pid);
    }

    /// Process `pid` has mapped code.
    pub fn map(&mut self, pid: Pid, map: &Mapping<'_>) {
        let path = String::from_utf8_lossy(map.path);
        let end = map.start.saturating_add(map.length_b);
        self.insert(pid, map.start, end, map.offset_b, &path);
    }

    /// Process `pid` was found with code mapped.
    pub fn found(&mut self, pid: Pid, map: &CodeMap) {
        self.insert(pid, map.start, map.end, map.offset_b, &map.path);
    }

    /// Where the instruction at `ip` of process `pid` comes from; memory if nothing is known there.
    #[must_use]
    pub fn origin(&self, pid: Pid, ip: u64) -> Origin {
        let below = |space: &Arc<Space>| space.range(..=ip).next_back().map(|(at, p)| (*at, *p));
        match self.spaces.get(&pid).and_then(below) {
            Some((start, Piece { end, offset_b, file: Some(file), .. })) if ip < end => {
                Origin::File(file, (ip - start).saturating_add(offset_b))
            }
            _ => Origin::Memory,
        }
    }

    /// Whether the instruction at `ip` of process `pid` is the kernel's that runs in the program: `[vdso]`.
    #[must_use]
    pub fn in_vdso(&self, pid: Pid, ip: u64) -> bool {
        let below = self.spaces.get(&pid).and_then(|space| space.range(..=ip).next_back());
        below.is_some_and(|(_, piece)| piece.vdso && ip < piece.end)
    }

    /// The path of a file.
    #[must_use]
    pub fn path(&self, file: FileIdx) -> &Path {
        &self.files[file.0 as usize]
    }

    fn insert(&mut self, pid: Pid, start: u64, end: u64, offset_b: u64, path: &str) {
        let (file, vdso) = (self.file(path), path == "[vdso]");
        let space = Arc::make_mut(self.spaces.entry(pid).or_default());
        make_room(space, start, end);
        space.insert(start, Piece { end, offset_b, file, vdso });
    }

    /// The file of that path, or `None` if it is the name of memory without a file.
    fn file(&mut self, path: &str) -> Option<FileIdx> {
        // Anonymous memory is "//anon" in the kernel's notes and empty in /proc; "/dev/zero",
        // "/memfd:" and "/SYSV" are memory that only looks like a file; a deleted file cannot be
        // opened by its name.
        let memory = ["//", "/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"];
        let no_file = !path.starts_with('/')
            || path.ends_with(" (deleted)")
            || memory.iter().any(|prefix| path.starts_with(prefix));
        if no_file {
            return None;
        }
        if let Some(known) = self.by_path.get(Path::new(path)) {
            return Some(*known);
        }
        let new = FileIdx(u32::try_from(self.files.len()).ok()?);
        self.files.push(path.into());
        self.by_path.insert(path.into(), new);
        Some(new)
    }
}

/// Unmaps `start .. end`, cutting pieces that reach into it.
fn make_room(space: &mut Space, start: u64, end: u64) {
    let reaching: Vec<(u64, Piece)> = space
        .range(..end)
        .rev()
        .take_while(|(_, piece)| piece.end > start)
        .map(|(at, piece)| (*at, *piece))
        .collect();
    for (at, piece) in reaching {
        space.remove(&at);
        if at < start {
            space.insert(at, Piece { end: start, ..piece });
        }
        if piece.end > end {
            let offset_b = piece.offset_b.saturating_add(end - at);
            space.insert(end, Piece { offset_b, ..piece });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(spaces: &mut Spaces, pid: i32, start: u64, length_b: u64, path: &str) {
        let map = Mapping { start, length_b, offset_b: 0x1000, path: path.as_bytes() };
        spaces.map(Pid(pid), &map);
    }

    fn origin(spaces: &Spaces, pid: i32, ip: u64) -> Option<(String, u64)> {
        match spaces.origin(Pid(pid), ip) {
            Origin::File(file, at) => Some((spaces.path(file).display().to_string(), at)),
            Origin::Memory => None,
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
    fn memory_that_looks_like_a_file() {
        let mut spaces = Spaces::default();
        for path in ["[vdso]", "", "/tmp/x (deleted)", "/memfd:jit (deleted)", "/dev/zero"] {
            map(&mut spaces, 1, 0x1000, 0x1000, path);
            assert_eq!(origin(&spaces, 1, 0x1000), None, "{path}");
            assert_eq!(spaces.in_vdso(Pid(1), 0x1fff), path == "[vdso]");
            assert!(!spaces.in_vdso(Pid(1), 0x2000) && !spaces.in_vdso(Pid(2), 0x1000));
        }
    }
}
