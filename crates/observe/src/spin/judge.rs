//! Finds the code around a place where a thread was seen, and has it judged.

use super::loops::{Code, Drawn, Verdict, Work, gives_way, relaxes};
use super::{Question, Seen};
use crate::sample::budget::Budget;
use crate::sample::file::CodeFile;
use crate::sample::image::Image;
use crate::sample::live;
use colocate_isa::{Isa, system};
use colocate_linux::Pid;
use colocate_machine::Nanos;
use std::collections::HashMap;
use std::ops::Range;

/// A longer function is taken to have wrong bounds. Chosen: functions with loops of waiting are short; of a longer one
/// the code around the place is analysed.
const LONGEST_FUNCTION_B: u64 = 1 << 16;

/// Instructions of functions whose loops are kept, together: 80 MB of them where every one is a jump. Chosen: more than
/// a program spends its time in.
const KEPT: usize = 1 << 18;

/// Files that stay open. Chosen: more than a program spends its time in; builds run thousands, one after the other.
const KEPT_OPEN: usize = 128;

/// Functions of files that stay open, 64 MiB of them. Chosen: twenty times those of LLVM 22.
const KEPT_FUNCTIONS: usize = 1 << 22;

/// Steps that judging may take at once, about two seconds of what it is given over a longer time. Chosen: some hundred
/// programs are read when watching begins.
const MOST_STEPS: u64 = 2_000_000_000;

/// Time for which judging is given a step: a tenth of a PU, so that programs that ask for more by their code do not get
/// it. What is over it counts as unreadable.
const NS_A_STEP: u64 = 10;

/// Where code is to be found.
#[derive(Clone, Debug)]
pub enum Source {
    /// In a file, so many bytes from its start.
    File(CodeFile, u64),
    /// Here: what was in memory around the address, and the address of its first byte.
    Memory {
        /// Address of the first byte.
        start: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// The address that was seen.
        ip: u64,
    },
}

impl Source {
    /// What is in the memory of a process around an address; `None` if it cannot be read.
    #[must_use]
    pub fn in_memory(pid: Pid, ip: u64) -> Option<Self> {
        let (start, bytes) = live::around(pid, ip)?;
        Some(Self::Memory { start, bytes, ip })
    }
}

/// Judges code; keeps some files that it has opened and functions that it has taken apart.
#[derive(Debug)]
pub struct Judge {
    images: HashMap<CodeFile, Image>,
    functions: HashMap<(CodeFile, u64), Drawn>,
    budget: Budget,
    /// When the budget was last filled up.
    filled: Nanos,
}

impl Default for Judge {
    fn default() -> Self {
        let (images, functions) = (HashMap::new(), HashMap::new());
        Self { images, functions, budget: Budget::of(MOST_STEPS), filled: Nanos::ZERO }
    }
}

impl Judge {
    /// Gives it the steps for the time until `at`, on `CLOCK_MONOTONIC`.
    pub fn fill(&mut self, at: Nanos) {
        let steps = at.saturating_sub(self.filled).0 / NS_A_STEP;
        self.budget = Budget::of(self.budget.left().saturating_add(steps).min(MOST_STEPS));
        self.filled = at;
    }

    /// What a thread does that was seen there. `None` if there is no code to be read, or no step left for it.
    ///
    /// Opens and reads files, some milliseconds for one that it has not seen. Where the file is not to be had, since
    /// it was replaced or is of another mount namespace, reads what the process has in its memory.
    pub fn judge(&mut self, question: &Question) -> Option<Verdict> {
        let memory = self.instead(question);
        let source = memory.as_ref().unwrap_or(&question.source);
        match question.site.seen {
            Seen::Running => self.running(source),
            // Whatever else the kernel does there, its program has called for it.
            Seen::Calling if self.gives_way(source) => Some(Verdict::Yields),
            Seen::Calling => Some(Verdict::Works(Work::Kernel)),
        }
    }

    /// The code in memory, where the file that it is from cannot be had.
    fn instead(&mut self, question: &Question) -> Option<Source> {
        let Source::File(file, _) = &question.source else { return None };
        let (pid, ip) = question.of;
        // All code of programs of 32 bits is below; it would be taken for that of 64.
        let may_be_32 = ip <= u64::from(u32::MAX);
        (!self.open(file) && !may_be_32).then(|| Source::in_memory(pid, ip))?
    }

    /// Opens a file, unless it is open and has not been written to. False if it cannot be had.
    fn open(&mut self, file: &CodeFile) -> bool {
        if self.images.get(file).is_some_and(Image::is_unchanged) {
            return true;
        }
        self.images.remove(file);
        let opened = file.open();
        if opened.is_some() {
            // As long as they are open, deleted files take space.
            self.images.retain(|_, image| image.has_name());
            if self.images.len() >= KEPT_OPEN {
                self.images.clear();
            }
        }
        self.functions.retain(|(of, _), _| self.images.contains_key(of));
        let is_there = opened.is_some();
        if let Some(image) = opened.and_then(|file| Image::of(file, &mut self.budget)) {
            let functions: usize =
                self.images.values().map(|image| image.tables.functions.len()).sum();
            if functions + image.tables.functions.len() > KEPT_FUNCTIONS {
                self.images.clear();
            }
            self.images.insert(file.clone(), image);
        }
        is_there
    }

    fn running(&mut self, source: &Source) -> Option<Verdict> {
        match source {
            Source::File(file, offset_b) => self.in_file(file, *offset_b),
            Source::Memory { start, bytes, ip } => {
                let code = Code { isa: Isa::native()?, start: *start, bytes };
                around(code, *ip, &|_| false, &mut self.budget)
            }
        }
    }

    /// Whether a thread that is in the kernel, and goes on there, gives its PU to others.
    fn gives_way(&self, source: &Source) -> bool {
        let most = system::LONGEST_CALL_B;
        let before = match source {
            Source::File(file, offset_b) => self.images.get(file).and_then(|image| {
                let ip = image.tables.address(*offset_b)?;
                Some((image.tables.isa, image.bytes(ip.saturating_sub(most as u64)..ip)))
            }),
            Source::Memory { start, bytes, ip } => Isa::native().and_then(|isa| {
                let end = usize::try_from(ip.checked_sub(*start)?).ok()?;
                Some((isa, bytes.get(end.saturating_sub(most)..end)?.to_vec()))
            }),
        };
        before.is_some_and(|(isa, bytes)| system::gives_way(isa, &bytes))
    }

    fn in_file(&mut self, file: &CodeFile, offset_b: u64) -> Option<Verdict> {
        let image = self.images.get(file)?;
        let ip = image.tables.address(offset_b)?;
        let relaxed = |target: u64| is_relaxed(image, target);
        let function = image.tables.function(ip);
        let Some(range) = function.filter(|range| range.end - range.start <= LONGEST_FUNCTION_B)
        else {
            let start = ip.saturating_sub(live::BEHIND_B as u64);
            let bytes = image.bytes(start..ip.saturating_add(live::AHEAD_B as u64));
            let code = Code { isa: image.tables.isa, start, bytes: &bytes };
            return around(code, ip, &relaxed, &mut self.budget);
        };
        if is_relaxed(image, range.start) {
            return Some(Verdict::Hints);
        }
        if is_short(image, range.start, gives_way) {
            return Some(Verdict::Yields);
        }
        let key = (file.clone(), range.start);
        if let Some(verdict) =
            self.functions.get_mut(&key).and_then(|f| f.judge(ip, &relaxed, &mut self.budget))
        {
            return Some(verdict);
        }
        // Not seen yet, or a part that nothing known leads to, but that runs.
        let bytes = image.bytes(range.clone());
        let code = Code { isa: image.tables.isa, start: range.start, bytes: &bytes };
        let mut drawn = Drawn::of(code, ip, &mut self.budget)?;
        let verdict = drawn.judge(ip, &relaxed, &mut self.budget);
        self.functions.remove(&key);
        let kept: usize = self.functions.values().map(Drawn::instructions).sum();
        if kept + drawn.instructions() > KEPT {
            self.functions.clear();
        }
        self.functions.insert(key, drawn);
        Some(verdict.unwrap_or(Verdict::Works(Work::NoLoop)))
    }
}

/// Whether the function at an address of a file does little more than hint.
fn is_relaxed(image: &Image, address: u64) -> bool {
    is_short(image, address, relaxes)
}

/// Whether a short function begins at an address of a file, of which something holds.
fn is_short(image: &Image, address: u64, holds: impl Fn(Code<'_>) -> bool) -> bool {
    let whole = |range: &Range<u64>| range.start == address && range.end - range.start <= 64;
    let Some(range) = image.tables.function(address).filter(whole) else { return false };
    let bytes = image.bytes(range.clone());
    holds(Code { isa: image.tables.isa, start: range.start, bytes: &bytes })
}

/// Judges by what of this code can be reached from the place and leads back to it.
fn around(
    code: Code<'_>,
    ip: u64,
    relaxed: &dyn Fn(u64) -> bool,
    budget: &mut Budget,
) -> Option<Verdict> {
    let mut drawn = budget.within(live::MOST_STEPS, |part| Drawn::around(code, ip, part))?;
    let verdict = drawn.judge(ip, relaxed, budget);
    Some(verdict.unwrap_or(Verdict::Works(Work::NoLoop)))
}

#[cfg(test)]
mod tests {
    use super::super::{Place, Site};
    use super::*;
    use crate::sample::file::FileId;
    use crate::sample::image::tests::{CODE_B, open_in, program};
    use crate::sample::maps::{FileIdx, Origin, Spaces};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// `mov eax, [rdi]; test eax, eax; je` back.
    const ASKS: &[u8] = &[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa];
    /// `imul rax, rdi; test eax, eax; jne` back.
    const COMPUTES: &[u8] = &[0x48, 0x0f, 0xaf, 0xc7, 0x85, 0xc0, 0x75, 0xf8];
    const WAITS: Option<Verdict> = Some(Verdict::Asks);
    const WORKS: Option<Verdict> = Some(Verdict::Works(Work::Computes));
    /// No process has this number.
    const NOBODY: (Pid, u64) = (Pid(i32::MAX), 1 << 40);

    fn any_file() -> FileIdx {
        let (mut spaces, pid) = (Spaces::default(), Pid(1));
        let map = crate::perf::Mapping { start: 0, length_b: 1, offset_b: 0, path: b"/a" };
        spaces.map(pid, &map, None);
        let Origin::File(file, _) = spaces.origin(pid, 0) else { panic!() };
        file
    }

    /// A process was seen at the beginning of the code of a file, and there in its memory.
    fn question(file: CodeFile, of: (Pid, u64)) -> Question {
        let site = Site { place: Place::File(any_file(), CODE_B), seen: Seen::Running };
        Question { site, source: Source::File(file, CODE_B), of }
    }

    /// The file that lies there now.
    fn file(path: &Path) -> CodeFile {
        let inode = std::fs::metadata(path).unwrap().ino();
        let id = FileId { device: (8, 1), inode, generation: Some(1) };
        CodeFile { path: path.to_owned(), id: Some(id) }
    }

    fn write(path: &Path, code: &[u8]) {
        std::fs::write(path, program(code)).unwrap();
    }

    /// As linkers do: in a file of its own, which takes the place of the old one.
    fn replace(path: &Path, code: &[u8]) {
        let new = path.with_extension("new");
        write(&new, code);
        std::fs::rename(new, path).unwrap();
    }

    /// `a.out` waits. It is built again, and computes. A process of the old one is never judged by the new one.
    #[test]
    fn a_program_that_is_built_again_is_judged_by_its_new_code() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut judge) = (folder.path().join("a.out"), Judge::default());
        write(&path, ASKS);
        let old = question(file(&path), NOBODY);
        assert_eq!(judge.judge(&old), WAITS);
        replace(&path, COMPUTES);
        let new = question(file(&path), NOBODY);
        assert_eq!(judge.judge(&old), WAITS, "it is open yet");
        assert_eq!(judge.judge(&new), WORKS);
        assert_eq!(judge.judge(&old), None, "its code is gone");
        assert_eq!(judge.judge(&new), WORKS);
    }

    /// Some linkers write into the file that is there.
    #[test]
    fn a_file_that_is_written_to_is_judged_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut judge) = (folder.path().join("a.out"), Judge::default());
        write(&path, ASKS);
        let asked = question(file(&path), NOBODY);
        assert_eq!(judge.judge(&asked), WAITS);
        write(&path, COMPUTES);
        assert_eq!(file(&path), file(&path));
        assert_eq!(judge.judge(&asked), WORKS);
    }

    #[test]
    fn a_file_that_could_not_be_opened_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut judge) = (folder.path().join("a.out"), Judge::default());
        let asked = question(CodeFile { path: path.clone(), id: None }, NOBODY);
        assert_eq!(judge.judge(&asked), None);
        write(&path, ASKS);
        assert_eq!(judge.judge(&asked), WAITS);
    }

    /// The path leads to another file here than in the namespace of the process. Its memory shows the code, if it can be read.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn where_another_file_lies_memory_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut judge) = (folder.path().join("sh"), Judge::default());
        write(&path, ASKS);
        let id = FileId { device: (8, 1), inode: 1, generation: None };
        let other = CodeFile { path, id: Some(id) };
        let code = [&[0x90; live::BEHIND_B][..], COMPUTES, &[0xc3; live::AHEAD_B]].concat();
        let ip = code[live::BEHIND_B..].as_ptr().addr() as u64;
        let us = Pid(std::process::id().cast_signed());
        assert_eq!(judge.judge(&question(other.clone(), (us, ip))), WORKS);
        assert_eq!(judge.judge(&question(other.clone(), NOBODY)), None);
        let low = (us, 0x40_0000);
        assert_eq!(judge.judge(&question(other, low)), None, "it may have 32 bits");
    }

    /// Judging takes no more of a PU than it is given, whatever is asked; later questions are answered again.
    #[test]
    fn what_is_over_budget_is_not_judged() {
        let folder = tempfile::tempdir().unwrap();
        let mut judge = Judge::default();
        let path = |place: usize| folder.path().join(place.to_string());
        (0..3).for_each(|place| write(&path(place), ASKS));
        assert_eq!(judge.judge(&question(file(&path(0)), NOBODY)), WAITS);
        judge.budget = Budget::of(10);
        assert_eq!(judge.judge(&question(file(&path(1)), NOBODY)), None);
        judge.fill(Nanos::from_millis(10));
        assert_eq!(judge.judge(&question(file(&path(2)), NOBODY)), WAITS);
        judge.fill(Nanos::from_secs(1_000));
        assert_eq!(judge.budget, Budget::of(MOST_STEPS));
    }

    /// 1,000 programs are built, run and deleted, or stay: few of them are open then.
    #[test]
    fn many_programs_need_few_descriptors() {
        for deletes in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut judge = Judge::default();
            for place in 0..1_000 {
                let path = folder.path().join(place.to_string());
                write(&path, ASKS);
                assert_eq!(judge.judge(&question(file(&path), NOBODY)), WAITS);
                if deletes {
                    std::fs::remove_file(&path).unwrap();
                }
                let (open, with_name) = open_in(folder.path());
                assert!(open <= if deletes { 1 } else { KEPT_OPEN }, "{open}");
                assert!(open - with_name <= 1);
            }
        }
    }
}
