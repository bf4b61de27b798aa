//! Judges the code around an instruction pointer at which a thread was sampled.

use super::loops::{AnalysedCode, CodeBytes, CodeVerdict, WorkReason, gives_way, relaxes};
use super::{Question, ThreadMode};
use crate::sample::budget::StepBudget;
use crate::sample::file::CodeFile;
use crate::sample::image::Image;
use crate::sample::live;
use colocate_isa::{Isa, system};
use colocate_linux::Pid;
use colocate_machine::Nanos;
use std::collections::HashMap;

/// Length limit of a function, in bytes; a longer range is taken for wrong bounds. Chosen:
/// functions with spin loops are short. In a longer range only the code around the instruction
/// pointer is analysed.
const LONGEST_FUNCTION_B: u64 = 1 << 16;

/// Limit of cached instructions over all functions: 80 MB if every instruction is a jump. Chosen:
/// more than the hot code of a program.
const KEPT: usize = 1 << 18;

/// Limit of open files. Chosen: more than a program's hot files; a build runs thousands.
const KEPT_OPEN: usize = 128;

/// Limit of cached function entries of open files, 64 MiB. Chosen: twenty times those of LLVM 22.
const KEPT_FUNCTIONS: usize = 1 << 22;

/// Upper bound of the saved budget, in steps: about two seconds of analysis. Chosen: some hundred
/// programs are read when watching begins.
const MOST_STEPS: u64 = 2_000_000_000;

/// Time per step of budget: analysis gets a tenth of a PU, so large programs cannot take more. Code
/// beyond the budget counts as unreadable.
const NS_A_STEP: u64 = 10;

/// Location of code to analyse.
#[derive(Clone, Debug)]
pub enum CodeSource {
    /// File, and byte offset in the file.
    File(CodeFile, u64),
    /// Bytes read from the memory of a process.
    Memory {
        /// Address of the first byte.
        start: u64,
        /// Bytes around `ip`.
        bytes: Vec<u8>,
        /// Sampled address.
        ip: u64,
    },
}

impl CodeSource {
    /// Memory of a process around an address; `None` if unreadable.
    #[must_use]
    pub fn in_memory(pid: Pid, ip: u64) -> Option<Self> {
        let (start, bytes) = live::around(pid, ip)?;
        Some(Self::Memory { start, bytes, ip })
    }
}

/// Judges code; caches open files and the control-flow graphs of functions.
#[derive(Debug)]
pub struct CodeJudge {
    images: HashMap<CodeFile, Image>,
    functions: HashMap<(CodeFile, u64), AnalysedCode>,
    budget: StepBudget,
    /// Time of the last refill of the budget.
    filled: Nanos,
}

impl Default for CodeJudge {
    fn default() -> Self {
        Self {
            images: HashMap::new(),
            functions: HashMap::new(),
            budget: StepBudget::of(MOST_STEPS),
            filled: Nanos::ZERO,
        }
    }
}

impl CodeJudge {
    /// Refills the budget with the steps for the time until `at`, on `CLOCK_MONOTONIC`.
    pub fn fill(&mut self, at: Nanos) {
        let steps = at.saturating_sub(self.filled).0 / NS_A_STEP;
        self.budget = StepBudget::of(self.budget.left().saturating_add(steps).min(MOST_STEPS));
        self.filled = at;
    }

    /// Verdict on the code at a sampled site. `None` if the code is unreadable or the budget is
    /// spent.
    ///
    /// Opens and reads files, some milliseconds for a new file. If the file cannot be opened
    /// (replaced, or in another mount namespace), the memory of the process is read.
    pub fn judge(&mut self, question: &Question) -> Option<CodeVerdict> {
        let memory = self.instead(question);
        let source = memory.as_ref().unwrap_or(&question.source);
        match question.site.seen {
            ThreadMode::Running => self.running(source),
            // A program enters the kernel by a call, so other time there is work.
            ThreadMode::Calling if self.gives_way(source) => Some(CodeVerdict::Yields),
            ThreadMode::Calling => Some(CodeVerdict::Works(WorkReason::Kernel)),
        }
    }

    /// Memory of the process, if the file of the code cannot be opened.
    fn instead(&mut self, question: &Question) -> Option<CodeSource> {
        let CodeSource::File(file, _) = &question.source else { return None };
        let (pid, ip) = question.of;
        // 32-bit programs, which 64-bit decoding misreads, have all code below this address.
        let may_be_32 = ip <= u64::from(u32::MAX);
        (!self.open(file) && !may_be_32).then(|| CodeSource::in_memory(pid, ip))?
    }

    /// Opens a file, unless its cached image is unchanged on disk; false if it cannot be opened.
    fn open(&mut self, file: &CodeFile) -> bool {
        if self.images.get(file).is_some_and(Image::is_unchanged) {
            return true;
        }
        self.images.remove(file);
        let opened = file.open();
        if opened.is_some() {
            // An open descriptor keeps a deleted file's blocks allocated.
            self.images.retain(|_, image| image.has_name());
            if self.images.len() >= KEPT_OPEN {
                self.images.clear();
            }
        }
        // A graph of a file that is no longer open may be of an older version of the file.
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

    fn running(&mut self, source: &CodeSource) -> Option<CodeVerdict> {
        match source {
            CodeSource::File(file, offset_b) => self.in_file(file, *offset_b),
            CodeSource::Memory { start, bytes, ip } => {
                let code = CodeBytes { isa: Isa::native()?, start: *start, bytes };
                around(code, *ip, &|_| false, &mut self.budget)
            }
        }
    }

    /// Whether a thread in the kernel was in a call that yields its PU (`sched_yield`).
    fn gives_way(&self, source: &CodeSource) -> bool {
        let most = system::LONGEST_CALL_B;
        let before = match source {
            CodeSource::File(file, offset_b) => self.images.get(file).and_then(|image| {
                let ip = image.tables.address(*offset_b)?;
                Some((image.tables.isa, image.bytes(ip.saturating_sub(most as u64)..ip)))
            }),
            CodeSource::Memory { start, bytes, ip } => Isa::native().and_then(|isa| {
                let end = usize::try_from(ip.checked_sub(*start)?).ok()?;
                Some((isa, bytes.get(end.saturating_sub(most)..end)?.to_vec()))
            }),
        };
        before.is_some_and(|(isa, bytes)| system::gives_way(isa, &bytes))
    }

    fn in_file(&mut self, file: &CodeFile, offset_b: u64) -> Option<CodeVerdict> {
        let image = self.images.get(file)?;
        let ip = image.tables.address(offset_b)?;
        let relaxed = |target: u64| is_short(image, target, relaxes);
        let function = image.tables.function(ip);
        let Some(range) = function.filter(|range| range.end - range.start <= LONGEST_FUNCTION_B)
        else {
            let start = ip.saturating_sub(live::BEHIND_B as u64);
            let bytes = image.bytes(start..ip.saturating_add(live::AHEAD_B as u64));
            let code = CodeBytes { isa: image.tables.isa, start, bytes: &bytes };
            return around(code, ip, &relaxed, &mut self.budget);
        };
        // The sample is in the function of the hint itself, which a loop calls.
        if is_short(image, range.start, relaxes) {
            return Some(CodeVerdict::Hints);
        }
        if is_short(image, range.start, gives_way) {
            return Some(CodeVerdict::Yields);
        }
        let key = (file.clone(), range.start);
        let known = self.functions.get_mut(&key);
        if let Some(verdict) = known.and_then(|f| f.judge(ip, &relaxed, &mut self.budget)) {
            return Some(verdict);
        }
        // A new function, or a running block that no known edge reaches (e.g. by a jump table).
        let bytes = image.bytes(range.clone());
        let code = CodeBytes { isa: image.tables.isa, start: range.start, bytes: &bytes };
        // The sampled instruction is an entry of the graph, so its block is reachable.
        let mut drawn = AnalysedCode::of(code, ip, &mut self.budget)?;
        let verdict = drawn.judge(ip, &relaxed, &mut self.budget);
        self.functions.remove(&key);
        let kept: usize = self.functions.values().map(AnalysedCode::instructions).sum();
        if kept + drawn.instructions() > KEPT {
            // All at once: no order of use is kept.
            self.functions.clear();
        }
        self.functions.insert(key, drawn);
        Some(verdict.unwrap_or(CodeVerdict::Works(WorkReason::NoLoop)))
    }
}

/// Whether a function of at most 64 bytes starts at `address` and `holds` is true of its code.
fn is_short(image: &Image, address: u64, holds: impl Fn(CodeBytes<'_>) -> bool) -> bool {
    let function = image.tables.function(address);
    let function = function.filter(|range| range.start == address && range.end - range.start <= 64);
    let Some(range) = function else { return false };
    let bytes = image.bytes(range.clone());
    holds(CodeBytes { isa: image.tables.isa, start: range.start, bytes: &bytes })
}

/// Judges the code around `ip` whose instruction boundaries are unknown: only blocks that `ip`
/// reaches and that lead back to `ip` count.
fn around(
    code: CodeBytes<'_>,
    ip: u64,
    relaxed: &dyn Fn(u64) -> bool,
    budget: &mut StepBudget,
) -> Option<CodeVerdict> {
    let mut drawn = budget.within(live::MOST_STEPS, |part| AnalysedCode::around(code, ip, part))?;
    let verdict = drawn.judge(ip, relaxed, budget);
    Some(verdict.unwrap_or(CodeVerdict::Works(WorkReason::NoLoop)))
}

#[cfg(test)]
mod tests {
    use super::super::{CodeLocation, SampledSite};
    use super::*;
    use crate::sample::file::FileId;
    use crate::sample::image::tests::{CODE_B, open_in, program};
    use crate::sample::maps::{FileIdx, Spaces};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// `mov eax, [rdi]; test eax, eax; je` back.
    const ASKS: &[u8] = &[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa];
    /// `imul rax, rdi; test eax, eax; jne` back.
    const COMPUTES: &[u8] = &[0x48, 0x0f, 0xaf, 0xc7, 0x85, 0xc0, 0x75, 0xf8];
    const WAITS: Option<CodeVerdict> = Some(CodeVerdict::Asks);
    const WORKS: Option<CodeVerdict> = Some(CodeVerdict::Works(WorkReason::Computes));
    /// No process has this number.
    const NOBODY: (Pid, u64) = (Pid(i32::MAX), 1 << 40);

    fn any_file() -> FileIdx {
        let (mut spaces, pid) = (Spaces::default(), Pid(1));
        let map =
            crate::perf::ExecutableMapping { start: 0, length_b: 1, offset_b: 0, path: b"/a" };
        spaces.map(pid, &map, None);
        let CodeLocation::File(file, _) = spaces.origin(pid, 0) else { panic!() };
        file
    }

    /// A process was seen at the beginning of the code of a file, and there in its memory.
    fn question(file: CodeFile, of: (Pid, u64)) -> Question {
        let site = SampledSite {
            place: CodeLocation::File(any_file(), CODE_B),
            seen: ThreadMode::Running,
        };
        Question { site, source: CodeSource::File(file, CODE_B), of }
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
        let (path, mut judge) = (folder.path().join("a.out"), CodeJudge::default());
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
        let (path, mut judge) = (folder.path().join("a.out"), CodeJudge::default());
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
        let (path, mut judge) = (folder.path().join("a.out"), CodeJudge::default());
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
        let (path, mut judge) = (folder.path().join("sh"), CodeJudge::default());
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
        let mut judge = CodeJudge::default();
        let path = |place: usize| folder.path().join(place.to_string());
        (0..3).for_each(|place| write(&path(place), ASKS));
        assert_eq!(judge.judge(&question(file(&path(0)), NOBODY)), WAITS);
        judge.budget = StepBudget::of(10);
        assert_eq!(judge.judge(&question(file(&path(1)), NOBODY)), None);
        judge.fill(Nanos::from_millis(10));
        assert_eq!(judge.judge(&question(file(&path(2)), NOBODY)), WAITS);
        judge.fill(Nanos::from_secs(1_000));
        assert_eq!(judge.budget, StepBudget::of(MOST_STEPS));
    }

    /// 1,000 programs are built, run and deleted, or stay: few of them are open then.
    #[test]
    fn many_programs_need_few_descriptors() {
        for deletes in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut judge = CodeJudge::default();
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
