//! What was changed, written down before it is changed, so that it can be undone after a crash.
//!
//! A text of lines. The head says who wrote it and which mask is the original one: every task that
//! colocate places was born below it and would have that mask if nobody had changed it. Then one
//! line of fixed length a task. If jobs may be stopped, the head also says how. The line of a task that has ended is used again, so the journal
//! stays as small as the workload, and each line is written by one call and carries a check sum, so
//! one that was only half written is passed over.
//!
//! ```text
//! colocate-journal 3
//! owner 4242 1234567
//! original 0-63
//! pauses cgroup /sys/fs/cgroup/colocate-4242-1234567
//!
//! 4243 4243 1234570 - - o 5bd1e995
//! 4243 4250 1234581 17 3 - 9ae16a3b
//! ```
//! Columns: process, thread, its start in clock ticks since boot, the PU that it is put on (`-` for
//! the original mask, `=` if the program chose its PUs itself), the PU that it was on before (a
//! crash can come between line and deed), the policy that it had before it was put under SCHED_IDLE (`o`
//! SCHED_OTHER, `b` SCHED_BATCH; `-` if it was not), check sum.
//!
//! It is kept twice: in memory for the guardian, and in a file for `colocate restore`. Neither the
//! one nor the other can stop a program: what cannot be written is done without.

use crate::idle::Fair;
use crate::pause::How;
use crate::stat::Stat;
use crate::sys;
use colocate_machine::{PuNr, PuSet};
use colocate_observe::{Pid, Tid};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// First line of a journal; the number is the format's version.
const HEAD: &str = "colocate-journal 3";
/// The versions before, which did not know of stopped jobs, and of jobs that fill idle PUs, and are still read.
const HEADS_BEFORE: [&str; 2] = ["colocate-journal 1", "colocate-journal 2"];
/// What the first line of every version begins with.
const KIND: &str = "colocate-journal ";

/// Bytes of a task's line with its line feed. The longest line has 7 + 7 + 20 + 5 + 5 + 1 +
/// 8 characters (Linux's largest thread number is 4194304) and 6 spaces.
const LINE_B: usize = 64;

/// The place of a task's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u64);

/// What was done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has, or was given, the original mask.
    Original,
    /// It was put on one PU.
    On(PuNr),
    /// The program chose its PUs itself, so there is nothing to undo.
    Programs,
}

impl Mark {
    /// The PU that it was put on.
    #[must_use]
    pub fn pu(self) -> Option<PuNr> {
        if let Self::On(pu) = self { Some(pu) } else { None }
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "-" => Self::Original,
            "=" => Self::Programs,
            pu => Self::On(PuNr(pu.parse().ok()?)),
        })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Original => f.write_str("-"),
            Self::Programs => f.write_str("="),
            Self::On(pu) => write!(f, "{}", pu.0),
        }
    }
}

/// One task that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// When it was created, in clock ticks since boot.
    pub start_ticks: u64,
    /// What is done to it.
    pub mark: Mark,
    /// What was done to it before; the mark of its creator for a newborn.
    pub was: Mark,
    /// The policy that it had before we put it under SCHED_IDLE; `None` if it is not there by our doing.
    pub lowered: Option<Fair>,
}

/// A process, so named that a later one with the same number is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: Pid,
    /// When it was created, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Owner {
    /// This process. `proc` is `/proc`; where that does not tell, its start is 0.
    #[must_use]
    pub fn ours(proc: &Path) -> Self {
        let pid = Pid(std::process::id().cast_signed());
        let stat = Stat::read(proc, pid, pid.first_thread());
        Self { pid, start_ticks: stat.map_or(0, |stat| stat.start_ticks) }
    }

    /// The name of its journal's file.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("run-{}-{}.journal", self.pid, self.start_ticks)
    }

    /// Whose journal the file is, by its name.
    #[must_use]
    pub fn of_file(path: &Path) -> Option<Self> {
        let (pid, start) = path.file_stem()?.to_str()?.strip_prefix("run-")?.split_once('-')?;
        Some(Self { pid: Pid(pid.parse().ok()?), start_ticks: start.parse().ok()? })
    }
}

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The colocate that wrote it.
    pub owner: Owner,
    /// The mask that every task would have without it.
    pub original: PuSet,
    /// How jobs are stopped; `None` if none ever is.
    pub pauses: Option<How>,
    /// Tasks that were changed, some of them long gone.
    pub entries: Vec<Entry>,
}

/// A text that is not a journal.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected {expected}, found {found:?}")]
pub struct JournalError {
    expected: &'static str,
    found: String,
}

impl JournalError {
    /// Whether it is a journal of another version, which another colocate may understand.
    #[must_use]
    pub fn is_other_version(&self) -> bool {
        let version = self.found.strip_prefix(KIND).filter(|_| self.expected == HEAD);
        version.is_some_and(|version| version.parse::<u32>().is_ok())
    }
}

impl Journal {
    /// Reads a journal. Lines of tasks that make no sense are passed over: a crash can leave one.
    ///
    /// # Errors
    /// [`JournalError`] if the head is not that of a journal.
    pub fn parse(text: &str) -> Result<Self, JournalError> {
        let mut lines = text.lines();
        let mut head = |expected| {
            let found = lines.next().unwrap_or_default();
            let wrong = JournalError { expected, found: found.chars().take(60).collect() };
            (found, wrong)
        };
        let (first, wrong) = head(HEAD);
        if first != HEAD && !HEADS_BEFORE.contains(&first) {
            return Err(wrong);
        }
        let (line, wrong) = head("owner PID START");
        let owner = owner(line).ok_or(wrong)?;
        let (line, wrong) = head("original CPU-LIST");
        let list = line.strip_prefix("original ").and_then(|list| PuSet::parse_list(list).ok());
        let original = list.filter(|set| !set.is_empty()).ok_or(wrong)?;
        let pauses = lines.next().and_then(|line| line.strip_prefix("pauses "));
        let pauses = pauses.and_then(How::parse);
        Ok(Self { owner, original, pauses, entries: lines.filter_map(entry).collect() })
    }
}

fn owner(line: &str) -> Option<Owner> {
    let (pid, start) = line.strip_prefix("owner ")?.split_once(' ')?;
    Some(Owner { pid: Pid(pid.parse().ok()?), start_ticks: start.parse().ok()? })
}

fn entry(line: &str) -> Option<Entry> {
    let (body, sum) = line.trim_end().rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16) != Ok(check_sum(body)) {
        return None;
    }
    let mut fields = body.split(' ');
    let mut next = || fields.next();
    Some(Entry {
        pid: Pid(next()?.parse().ok()?),
        tid: Tid(next()?.parse().ok()?),
        start_ticks: next()?.parse().ok()?,
        mark: Mark::parse(next()?)?,
        was: Mark::parse(next()?)?,
        // Before version 3 nothing stood here.
        lowered: next().and_then(Fair::parse),
    })
}

fn line(entry: &Entry) -> String {
    let Entry { pid, tid, start_ticks, mark, was, lowered } = entry;
    let lowered = lowered.map_or('-', Fair::letter);
    let body = format!("{pid} {tid} {start_ticks} {mark} {was} {lowered}");
    let sum = check_sum(&body);
    format!("{:width$}\n", format!("{body} {sum:08x}"), width = LINE_B - 1)
}

/// FNV-1a (Fowler, Noll, Vo): enough to tell a torn line from a whole one.
fn check_sum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Writes a journal.
#[derive(Debug)]
pub struct Writer {
    memory: Option<File>,
    file: Option<(PathBuf, File)>,
    head_b: u64,
    slots: u64,
    free: Vec<Slot>,
    trouble: Option<String>,
}

impl Writer {
    /// Begins a journal in memory and, if there is one, in a new file in the folder `dir`.
    ///
    /// Never fails: [`Writer::trouble`] says what could not be had.
    #[must_use]
    pub fn begin(
        dir: Result<&Path, String>,
        owner: Owner,
        original: &PuSet,
        pauses: Option<&How>,
    ) -> Self {
        let Owner { pid, start_ticks } = owner;
        let pauses = pauses.map_or_else(String::new, |how| format!("pauses {how}\n"));
        let head = format!("{HEAD}\nowner {pid} {start_ticks}\noriginal {original}\n{pauses}\n");
        let mut trouble = None;
        let begun = dir.and_then(|dir| {
            let path = dir.join(owner.file_name());
            let file = new_file(&path, &head);
            file.map(|file| (path, file)).map_err(|why| why.to_string())
        });
        let file = begun.map_err(|why| trouble = Some(why)).ok();
        let memory = sys::memfd(c"colocate-journal").map(File::from).ok();
        let memory = memory.filter(|memory| memory.write_all_at(head.as_bytes(), 0).is_ok());
        if memory.is_none() {
            trouble = Some("no file in memory can be had".into());
        }
        Self { memory, file, head_b: head.len() as u64, slots: 0, free: Vec::new(), trouble }
    }

    /// What went wrong since the last call, in one line; the journal goes on with what is left.
    pub fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// The journal in memory, for the guardian.
    #[must_use]
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(AsFd::as_fd)
    }

    /// The journal's file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// A place for a new task's line.
    pub fn slot(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            Slot(self.slots - 1)
        })
    }

    /// Gives back the place of a task that has ended.
    pub fn free(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Writes what is about to be done to a task.
    pub fn write(&mut self, slot: Slot, entry: &Entry) {
        let line = line(entry);
        let at = self.head_b + slot.0 * LINE_B as u64;
        let lost = |file: &File| file.write_all_at(line.as_bytes(), at).err();
        if self.memory.as_ref().and_then(lost).is_some() {
            self.memory = None;
        }
        if let Some((path, why)) = self.file.as_ref().and_then(|(p, f)| Some((p.clone(), lost(f)?)))
        {
            // Half a journal would be trusted like a whole one.
            let _ = std::fs::remove_file(&path);
            self.trouble = Some(format!("{}: {why}", path.display()));
            self.file = None;
        }
    }

    /// Ends the journal: everything has been undone.
    pub fn remove(&mut self) {
        if let Some((path, _)) = self.file.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn new_file(path: &Path, head: &str) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all_at(head.as_bytes(), 0);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written.map(|()| file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { pid: Pid(7), start_ticks: 99 };

    fn original() -> PuSet {
        PuSet::parse_list("0-3").unwrap()
    }

    fn some(tid: i32, pu: Option<u32>) -> Entry {
        let mark = pu.map_or(Mark::Original, |pu| Mark::On(PuNr(pu)));
        let was = if pu.is_some() { Mark::On(PuNr(8191)) } else { Mark::Programs };
        let lowered = Some(Fair::Batch).filter(|_| pu.is_none());
        Entry { pid: Pid(10), tid: Tid(tid), start_ticks: u64::MAX, mark, was, lowered }
    }

    fn read(writer: &Writer) -> Journal {
        Journal::parse(&std::fs::read_to_string(writer.path().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::begin(Ok(dir.path()), OWNER, &original(), None);
        let entries = [some(10, None), some(4_194_304, Some(8191))];
        for entry in &entries {
            let slot = writer.slot();
            writer.write(slot, entry);
        }
        let entries = entries.to_vec();
        let journal = Journal { owner: OWNER, original: original(), pauses: None, entries };
        assert_eq!(read(&writer), journal);
        assert_eq!(Owner::of_file(writer.path().unwrap()), Some(OWNER));
        assert_eq!(writer.trouble(), None);
        writer.remove();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Ten thousand tasks, one after the other, leave one line.
    #[test]
    fn lines_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::begin(Ok(dir.path()), OWNER, &original(), None);
        for tid in 0..10_000 {
            let slot = writer.slot();
            writer.write(slot, &some(tid, Some(1)));
            writer.free(slot);
        }
        assert_eq!(read(&writer).entries, [some(9_999, Some(1))]);
    }

    #[test]
    fn the_head_says_how_jobs_are_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let how = How::Freezer("/sys/fs/cgroup/colocate-7-99".into());
        let mut writer = Writer::begin(Ok(dir.path()), OWNER, &original(), Some(&how));
        let slot = writer.slot();
        writer.write(slot, &some(10, Some(1)));
        let journal = read(&writer);
        assert_eq!((journal.pauses, journal.entries), (Some(how), vec![some(10, Some(1))]));
    }

    #[test]
    fn versions_before_are_read() {
        let body = "10 10 18446744073709551615 1 8191";
        for head in HEADS_BEFORE {
            let line = format!("{body} {:08x}", check_sum(body));
            let text = format!("{head}\nowner 7 99\noriginal 0-3\n\n{line}\n");
            let journal = Journal::parse(&text).unwrap();
            assert_eq!((journal.pauses, journal.entries), (None, vec![some(10, Some(1))]));
        }
    }

    #[test]
    fn a_torn_line_is_passed_over() {
        let whole = line(&some(10, Some(1)));
        let head = format!("{HEAD}\nowner 7 99\noriginal 0-3\n\n");
        for length in 0..whole.trim_end().len() {
            let journal = Journal::parse(&format!("{head}{}", &whole[..length])).unwrap();
            assert_eq!(journal.entries, [], "{length}");
        }
        assert_eq!(Journal::parse(&(head + &whole)).unwrap().entries, [some(10, Some(1))]);
    }

    #[test]
    fn another_file_is_no_journal() {
        let refusal = |text: &str| Journal::parse(text).unwrap_err().to_string();
        assert_eq!(refusal(""), "expected colocate-journal 3, found \"\"");
        assert_eq!(
            refusal("colocate-journal 4\n"),
            "expected colocate-journal 3, found \"colocate-journal 4\""
        );
        let other = |text: &str| Journal::parse(text).unwrap_err().is_other_version();
        assert!(other("colocate-journal 12\nwhatever") && !other("colocate-journal "));
        let text = format!("{HEAD}\nowner colocate-journal 4");
        assert!(!other(&text) && !other(&format!("{HEAD} ")) && !other(""));
        let text = format!("{HEAD}\nowner 7 99\noriginal \n\n");
        assert_eq!(refusal(&text), "expected original CPU-LIST, found \"original \"");
    }

    #[test]
    fn a_full_disk_leaves_the_copy_in_memory() {
        let mut writer = Writer::begin(Err(String::new()), OWNER, &original(), None);
        writer.file = Some((PathBuf::from("/nonexistent/j"), File::create("/dev/full").unwrap()));
        let slot = writer.slot();
        writer.write(slot, &some(10, Some(1)));
        let trouble = writer.trouble().unwrap();
        assert!(trouble.contains("No space left"), "{trouble}");
        assert!(writer.path().is_none() && writer.memory().is_some());
    }

    #[test]
    fn without_a_folder_there_is_still_memory() {
        let mut writer = Writer::begin(Err("no folder".into()), OWNER, &original(), None);
        assert_eq!(writer.trouble().as_deref(), Some("no folder"));
        assert!(writer.memory().is_some());
    }
}
