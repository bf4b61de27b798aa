//! The file of counts that the plugin leaves for one process.
//!
//! ```text
//! colocate-counts 2 x86_64
//! process PID PARENT START_NS END_NS
//! thread TID START_NS END_NS INSTRUCTIONS BRANCH FLOAT INT LOAD STORE UNDECODED NAME
//! misses LINE_BYTES LEFT LEFT_WRITTEN LINES:MISSES …
//! branches GUESSED MISSED
//! unsupported ADDRESS BYTES
//! block NUMBER ADDRESS BYTES …
//! stretch TID NUMBER …
//! handlers N
//! end THREADS
//! ```
//! `thread` and `unsupported` lines come as often as there is something to say. Numbers are decimal
//! but for `ADDRESS`; it, `NAME` and `BYTES` are hexadecimal, and `-` means no bytes. Times are
//! of `CLOCK_MONOTONIC`. `misses` and `branches`, if asked for, follow their thread. Threads are in the order of their creation.

use colocate_isa::ClassCounts;
use colocate_machine::{Bytes, Nanos};
use colocate_model::MissCounts;
use std::fmt::Write;
use thiserror::Error;

/// The version of the format that is read here.
pub const VERSION: u32 = 2;

/// The longest name that the kernel gives a thread, in bytes.
const LONGEST_NAME: usize = 15;
/// The longest instruction of any architecture, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// What the threads of one process ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The architecture that was emulated, as QEMU names it.
    pub target: String,
    /// The process's number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// When it began, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// Its threads in the order of their creation.
    pub threads: Vec<ThreadTrace>,
    /// Instructions that it ran and that QEMU does not have.
    pub unsupported: Vec<UnsupportedInstruction>,
    /// Blocks of code that stretches have.
    pub blocks: Vec<Block>,
    /// Stretches of instructions, if they were asked for.
    pub stretches: Vec<Stretch>,
    /// How often a signal handler returned.
    pub handlers: u64,
}

/// Instructions that run one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address of the first.
    pub address: u64,
    /// The bytes of each.
    pub instructions: Vec<Vec<u8>>,
}

/// What a thread ran in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The thread's number.
    pub tid: u32,
    /// Places in [`Trace::blocks`].
    pub blocks: Vec<usize>,
}

/// What one thread ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTrace {
    /// Its number.
    pub tid: u32,
    /// When it was created, on `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// Its instructions, by class.
    pub counts: ClassCounts,
    /// How many of them could not be decoded.
    pub undecoded: u64,
    /// Its name when it ended, as bytes without meaning.
    pub name: Vec<u8>,
    /// How often caches of any size would have missed, if that was asked for.
    pub misses: Option<MissCounts>,
    /// How its branches were guessed, if that was asked for.
    pub branches: Option<Branches>,
}

/// How a simulated predictor guessed a thread's branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branches {
    /// Those that had to be guessed: that are taken or not, or lead to where a register says.
    pub guessed: u64,
    /// Those that were guessed wrongly.
    pub missed: u64,
}

/// An instruction that ran and that QEMU does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedInstruction {
    /// Its address in the process.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why a file is not one of counts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The file ends before its end mark, as that of a process that was killed does.
    #[error("expected an end mark, found the end of the file")]
    Truncated,
    /// It was written by another version of the plugin.
    #[error("expected counts of version {VERSION}, found version {found}; run `make tracer` again")]
    Version {
        /// The version in the file.
        found: u64,
    },
    /// A line is not what it must be.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What was expected there.
        expected: &'static str,
        /// What was found there, its beginning if it is long.
        found: String,
    },
}

/// Reads a file of counts.
///
/// # Errors
/// [`TraceError::Truncated`] if the end mark or the file's last newline is missing,
/// [`TraceError::Version`] for another version, and [`TraceError::Line`] for anything else.
pub fn parse(content: &[u8]) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(content);
    let target = lines.head()?;
    let (pid, parent, start, end) = lines.process()?;
    let mut trace = Trace {
        target,
        pid,
        parent,
        start,
        end,
        threads: Vec::new(),
        unsupported: Vec::new(),
        blocks: Vec::new(),
        stretches: Vec::new(),
        handlers: 0,
    };
    while let Some(thread) = lines.thread()? {
        trace.threads.push(thread);
    }
    while let Some(found) = lines.unsupported()? {
        trace.unsupported.push(found);
    }
    while let Some(found) = lines.block(trace.blocks.len())? {
        trace.blocks.push(found);
    }
    while let Some(found) = lines.stretch(trace.blocks.len())? {
        trace.stretches.push(found);
    }
    trace.handlers = lines.number_after("handlers")?;
    lines.end(trace.threads.len())?;
    Ok(trace)
}

/// A place in a file.
struct Lines<'a> {
    rest: &'a [u8],
    /// The number of the next line, from 1.
    next: usize,
}

impl<'a> Lines<'a> {
    fn new(content: &'a [u8]) -> Self {
        Self { rest: content, next: 1 }
    }

    /// The next line without its newline, and what follows it.
    fn peek(&self) -> Result<(&'a [u8], &'a [u8]), TraceError> {
        let end = self.rest.iter().position(|byte| *byte == b'\n').ok_or(TraceError::Truncated)?;
        Ok((&self.rest[..end], &self.rest[end + 1..]))
    }

    fn wrong(&self, expected: &'static str) -> TraceError {
        // A line without an end is one that was cut.
        let Ok((line, _)) = self.peek() else { return TraceError::Truncated };
        let found = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        TraceError::Line { line: self.next, expected, found }
    }

    /// The words of the next line if it is a `keyword` line with `N` words after it.
    fn words<const N: usize>(&self, keyword: &str) -> Result<Option<[&'a str; N]>, TraceError> {
        let (line, _) = self.peek()?;
        let mut words = std::str::from_utf8(line).unwrap_or("").split(' ');
        if words.next() != Some(keyword) {
            return Ok(None);
        }
        Ok(words.collect::<Vec<_>>().try_into().ok())
    }

    fn step(&mut self) -> Result<(), TraceError> {
        (_, self.rest) = self.peek()?;
        self.next += 1;
        Ok(())
    }

    fn head(&mut self) -> Result<String, TraceError> {
        const EXPECTED: &str = "colocate-counts VERSION TARGET";
        let [version, target] =
            self.words("colocate-counts")?.ok_or_else(|| self.wrong(EXPECTED))?;
        let found = decimal(version).ok_or_else(|| self.wrong(EXPECTED))?;
        if found != u64::from(VERSION) {
            return Err(TraceError::Version { found });
        }
        if !matches!(target, "x86_64" | "aarch64") {
            return Err(self.wrong("a target that is x86_64 or aarch64"));
        }
        self.step()?;
        Ok(target.to_owned())
    }

    fn process(&mut self) -> Result<(u32, u32, Nanos, Nanos), TraceError> {
        const EXPECTED: &str = "process PID PARENT START_NS END_NS, the end not before the start";
        let words: [&str; 4] = self.words("process")?.ok_or_else(|| self.wrong(EXPECTED))?;
        let [Some(pid), Some(parent), Some(start), Some(end)] = words.map(decimal) else {
            return Err(self.wrong(EXPECTED));
        };
        match (pid.try_into(), parent.try_into()) {
            (Ok(pid), Ok(parent)) if start <= end => {
                self.step()?;
                Ok((pid, parent, Nanos(start), Nanos(end)))
            }
            _ => Err(self.wrong(EXPECTED)),
        }
    }

    fn thread(&mut self) -> Result<Option<ThreadTrace>, TraceError> {
        const EXPECTED: &str = "thread TID START_NS END_NS, seven counts of which none exceeds \
                                the first, and NAME";
        if !self.rest.starts_with(b"thread ") {
            return Ok(None);
        }
        let words: [&str; 11] = self.words("thread")?.ok_or_else(|| self.wrong(EXPECTED))?;
        let mut thread = thread_of(&words).ok_or_else(|| self.wrong(EXPECTED))?;
        self.step()?;
        thread.misses = self.misses()?;
        thread.branches = self.branches(thread.counts.instructions)?;
        Ok(Some(thread))
    }

    /// The next line if it says what a thread's accesses miss.
    fn misses(&mut self) -> Result<Option<MissCounts>, TraceError> {
        const EXPECTED: &str = "misses LINE_BYTES LEFT LEFT_WRITTEN and LINES:MISSES, from 0 lines, of \
                                which lines rise and misses do not";
        let Some(words) = self.list("misses") else { return Ok(None) };
        let found = || {
            let [line, left, left_written, pairs @ ..] = &words[..] else { return None };
            let pair = |word: &&str| {
                let (lines, misses) = word.split_once(':')?;
                Some((decimal(lines)?, decimal(misses)?))
            };
            let pairs = pairs.iter().map(pair).collect::<Option<Vec<_>>>()?;
            MissCounts::new(Bytes(decimal(line)?), pairs, decimal(left)?, decimal(left_written)?)
        };
        let found = found().ok_or_else(|| self.wrong(EXPECTED))?;
        self.step()?;
        Ok(Some(found))
    }

    /// The next line if it says how a thread's branches were guessed, of which there are `most`.
    fn branches(&mut self, most: u64) -> Result<Option<Branches>, TraceError> {
        const EXPECTED: &str = "branches GUESSED MISSED, neither more than what comes before it";
        let Some(words) = self.list("branches") else { return Ok(None) };
        let [guessed, missed] = &words[..] else { return Err(self.wrong(EXPECTED)) };
        match (decimal(guessed), decimal(missed)) {
            (Some(guessed), Some(missed)) if missed <= guessed && guessed <= most => {
                self.step()?;
                Ok(Some(Branches { guessed, missed }))
            }
            _ => Err(self.wrong(EXPECTED)),
        }
    }

    fn unsupported(&mut self) -> Result<Option<UnsupportedInstruction>, TraceError> {
        const EXPECTED: &str = "unsupported ADDRESS BYTES, 1 to 15 of them";
        if !self.rest.starts_with(b"unsupported ") {
            return Ok(None);
        }
        let [address, bytes] = self.words("unsupported")?.ok_or_else(|| self.wrong(EXPECTED))?;
        let found = (hexadecimal(address), unhex(bytes));
        let (Some(address), Some(bytes)) = found else { return Err(self.wrong(EXPECTED)) };
        if bytes.is_empty() || bytes.len() > LONGEST_INSTRUCTION {
            return Err(self.wrong(EXPECTED));
        }
        self.step()?;
        Ok(Some(UnsupportedInstruction { address, bytes }))
    }

    /// The next line if it is the block of number `number`.
    fn block(&mut self, number: usize) -> Result<Option<Block>, TraceError> {
        const EXPECTED: &str =
            "block NUMBER ADDRESS and the bytes of each instruction, 1 to 15 of them";
        let Some(words) = self.list("block") else { return Ok(None) };
        let found = || {
            let [place, address, bytes @ ..] = &words[..] else { return None };
            let whole = |bytes: &Vec<u8>| (1..=LONGEST_INSTRUCTION).contains(&bytes.len());
            let bytes = bytes.iter().map(|word| unhex(word).filter(whole));
            let instructions = bytes.collect::<Option<Vec<_>>>()?;
            let right = decimal(place) == u64::try_from(number).ok() && !instructions.is_empty();
            right.then_some(Block { address: hexadecimal(address)?, instructions })
        };
        let found = found().ok_or_else(|| self.wrong(EXPECTED))?;
        self.step()?;
        Ok(Some(found))
    }

    /// The next line if it is a stretch of some of `blocks` blocks.
    fn stretch(&mut self, blocks: usize) -> Result<Option<Stretch>, TraceError> {
        const EXPECTED: &str = "stretch TID and numbers of blocks";
        let Some(words) = self.list("stretch") else { return Ok(None) };
        let found = || {
            let [tid, places @ ..] = &words[..] else { return None };
            let place =
                |word: &&str| usize::try_from(decimal(word)?).ok().filter(|at| *at < blocks);
            let places = places.iter().map(place).collect::<Option<Vec<_>>>()?;
            Some(Stretch { tid: decimal(tid)?.try_into().ok()?, blocks: places })
        };
        let found = found().ok_or_else(|| self.wrong(EXPECTED))?;
        self.step()?;
        Ok(Some(found))
    }

    /// The words after `keyword` if the next line begins with it.
    fn list(&self, keyword: &str) -> Option<Vec<&'a str>> {
        let (line, _) = self.peek().ok()?;
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        (words.next() == Some(keyword)).then(|| words.collect())
    }

    fn number_after(&mut self, keyword: &'static str) -> Result<u64, TraceError> {
        const EXPECTED: &str = "a thread, unsupported or handlers line";
        let [word] = self.words(keyword)?.ok_or_else(|| self.wrong(EXPECTED))?;
        let number = decimal(word).ok_or_else(|| self.wrong(EXPECTED))?;
        self.step()?;
        Ok(number)
    }

    fn end(&mut self, threads: usize) -> Result<(), TraceError> {
        const EXPECTED: &str = "end and the number of threads, as the last line";
        let [word] = self.words("end")?.ok_or_else(|| self.wrong(EXPECTED))?;
        if decimal(word) != u64::try_from(threads).ok() || !self.peek()?.1.is_empty() {
            return Err(self.wrong(EXPECTED));
        }
        self.step()
    }
}

fn thread_of(words: &[&str; 11]) -> Option<ThreadTrace> {
    let [tid, start, end, instructions, of @ .., undecoded, name] = words;
    let (start, end) = (decimal(start)?, decimal(end)?);
    let instructions = decimal(instructions)?;
    let mut counts = ClassCounts { instructions, of: [0; 5] };
    for (count, word) in counts.of.iter_mut().zip(of) {
        *count = decimal(word)?;
    }
    let undecoded = decimal(undecoded)?;
    let name = unhex(name)?;
    let plausible = start <= end
        && counts.of.iter().chain([&undecoded]).all(|count| *count <= instructions)
        && name.len() <= LONGEST_NAME;
    let tid = decimal(tid)?.try_into().ok()?;
    let (start, end) = (Nanos(start), Nanos(end));
    plausible.then_some(ThreadTrace {
        tid,
        start,
        end,
        counts,
        undecoded,
        name,
        misses: None,
        branches: None,
    })
}

/// A number in decimal digits and nothing else.
fn decimal(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

/// A number in hexadecimal digits and nothing else.
fn hexadecimal(word: &str) -> Option<u64> {
    let digits = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { u64::from_str_radix(word, 16).ok() } else { None }
}

/// The bytes that `word` spells in pairs of hexadecimal digits; none for `-`.
fn unhex(word: &str) -> Option<Vec<u8>> {
    if word == "-" {
        return Some(Vec::new());
    }
    if word.is_empty() || !word.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    word.as_bytes().chunks_exact(2).map(pair).collect()
}

/// `bytes` in pairs of hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const GOOD: &str = "colocate-counts 2 x86_64
process 40 39 1000 9000
thread 40 1000 9000 700 100 50 300 200 60 1 6d61696e
misses 64 9 4 0:260 1:40 16:7
branches 90 12
thread 41 2000 3000 7 1 0 3 2 1 0 -
unsupported 555555557170 62f1f54858d0
block 0 5555 90 31c0
block 1 5558 c3
stretch 41 0 1 0
handlers 2
end 2
";

    fn check(text: &str, expected: &Expect) {
        let error = parse(text.as_bytes()).expect_err("it is wrong");
        expected.assert_eq(&error.to_string());
    }

    #[test]
    fn what_the_plugin_writes() {
        let trace = parse(GOOD.as_bytes()).expect("it is right");
        assert_eq!((trace.pid, trace.parent, trace.handlers), (40, 39, 2));
        assert_eq!((trace.start, trace.end), (Nanos(1000), Nanos(9000)));
        let main = &trace.threads[0];
        assert_eq!(main.counts, ClassCounts { instructions: 700, of: [100, 50, 300, 200, 60] });
        assert_eq!((main.undecoded, &main.name[..]), (1, &b"main"[..]));
        let misses = MissCounts::new(Bytes(64), vec![(0, 260), (1, 40), (16, 7)], 9, 4);
        assert_eq!(main.branches, Some(Branches { guessed: 90, missed: 12 }));
        assert!(main.misses == misses && trace.threads[1].misses.is_none(), "{trace:?}");
        assert!(trace.threads[1].name.is_empty());
        assert_eq!((trace.blocks[0].address, trace.blocks.len()), (0x5555, 2));
        assert_eq!(trace.blocks[0].instructions, [vec![0x90], vec![0x31, 0xc0]]);
        assert_eq!(trace.stretches, [Stretch { tid: 41, blocks: vec![0, 1, 0] }]);
        assert_eq!(trace.unsupported[0].bytes, [0x62, 0xf1, 0xf5, 0x48, 0x58, 0xd0]);
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_refused() {
        for len in 0..GOOD.len() {
            let error = parse(&GOOD.as_bytes()[..len]).expect_err("it was cut");
            assert_eq!(error, TraceError::Truncated, "after {len} bytes");
        }
    }

    #[test]
    fn one_changed_byte_is_refused_or_another_value() {
        let good = parse(GOOD.as_bytes()).expect("it is right");
        for place in 0..GOOD.len() {
            let mut changed = GOOD.as_bytes().to_vec();
            changed[place] ^= 1;
            assert_ne!(parse(&changed).ok().as_ref(), Some(&good), "at {place}");
        }
    }

    #[test]
    fn each_kind_of_error() {
        check(
            &GOOD.replace("counts 2", "counts 1"),
            &expect!["expected counts of version 2, found version 1; run `make tracer` again"],
        );
        check(
            &GOOD.replace("x86_64", "mips"),
            &expect![[
                r#"line 1: expected a target that is x86_64 or aarch64, found "colocate-counts 2 mips""#
            ]],
        );
        check(
            &GOOD.replace("1000 9000\nt", "9001 9000\nt"),
            &expect![[
                r#"line 2: expected process PID PARENT START_NS END_NS, the end not before the start, found "process 40 39 9001 9000""#
            ]],
        );
        check(
            &GOOD.replace("9000 700", "9000 250"),
            &expect![[
                r#"line 3: expected thread TID START_NS END_NS, seven counts of which none exceeds the first, and NAME, found "thread 40 1000 9000 250 100 50 300 200 60 1 6d61696e""#
            ]],
        );
        for (good, wrong) in
            [("block 1", "block 2"), ("c3", "c3c"), ("block 1 5558 c3", "block 1 5")]
        {
            let error = parse(GOOD.replace(good, wrong).as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 9: expected block NUMBER"), "{error}");
        }
        let error = parse(GOOD.replace("0 1 0", "0 2 0").as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 10: expected stretch TID"), "{error}");
        for wrong in ["64 9 10 0:260", "64 9 0:260 1:40", "64 9 4 0:260 1:300", "64 9 4 1:260"] {
            let text = GOOD.replace("64 9 4 0:260 1:40 16:7", wrong);
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 4: expected misses LINE_BYTES"), "{error}");
        }
        check(
            &GOOD.replace("handlers 2", "handlers -2"),
            &expect![[
                r#"line 11: expected a thread, unsupported or handlers line, found "handlers -2""#
            ]],
        );
        check(
            &GOOD.replace("end 2", "end 3"),
            &expect![[
                r#"line 12: expected end and the number of threads, as the last line, found "end 3""#
            ]],
        );
        check(
            &format!("{GOOD}more\n"),
            &expect![[
                r#"line 12: expected end and the number of threads, as the last line, found "end 2""#
            ]],
        );
    }
}
