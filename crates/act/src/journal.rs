//! What was changed, written down before it is changed, so that it can be undone after a crash.
//!
//! A text of lines. The head says which process wrote it, in which boot of the machine, and which mask is the original
//! one: every task that colocate places was created below it and would have that mask if nothing had changed it. The
//! token is in the environment of all programs of the workload ([`TOKEN_VARIABLE`]). Numbers of processes and times of their start are
//! those of the namespaces that it names. Of programs that ran already it says how their orphans are known ([`Attached`]). Then one
//! line of fixed length a task. If jobs may be stopped, the head also says how. The line of a task that has ended is used again, so the journal
//! stays as small as the workload, and each line is written by one call and carries a check sum, so
//! one that was only half written is passed over.
//!
//! ```text
//! colocate-journal 7
//! owner 4242 1234567
//! boot 6b1c5b6e-2f0e-4a5c-9e0f-0d4f5f0a7c11
//! namespaces 4026531836 4026531834
//! token 4242-1234567-9f3a61c07be2d854
//! original 0-63
//! sets 0-31 32-63
//! pauses cgroup /sys/fs/cgroup/colocate-4242-1234567
//! attached 5bd1e995 1
//!
//! 4243 4243 1234570 - - o 5bd1e995
//! 4243 4250 1234581 17 3 - 9ae16a3b
//! 4243 4251 1234581 s1 - - 0c2b9f4e
//! ```
//! Columns: process, thread, its start in clock ticks since boot, the PU that it is put on (`-` for
//! the original mask, `s1` for the second of the head's sets of PUs, `=` if the program chose its PUs itself), the PU that it was
//! on before (a crash can come between line and deed), the policy that it had before it was put under SCHED_IDLE (`o`
//! SCHED_OTHER, `b` SCHED_BATCH; `-` if it was not), check sum. A line of process 0 says that this was done at all.
//!
//! It is kept twice: in memory for the guardian, and in a file for `colocate restore`. Neither the
//! one nor the other can stop a program: what cannot be written is done without.

use crate::attached::Attached;
use crate::check_sum::check_sum;
use crate::fair::Fair;
use crate::owner::Owner;
use crate::pause::how::How;
use colocate_files::{Dir, FileMode, MaxSize};
use colocate_linux::sys;
use colocate_linux::{Pid, Tid};
use colocate_machine::{PuNr, PuSet};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// First line of a journal; the number is the format's version.
const HEAD: &str = "colocate-journal 7";
/// Prefix of the first line in every version.
const KIND: &str = "colocate-journal ";

/// Environment variable with the journal's token, in every program of a workload. Identifies
/// processes whose ancestors have all ended.
pub const TOKEN_VARIABLE: &str = "COLOCATE_JOB";

/// Bytes of a task's line with its line feed. The longest line has 7 + 7 + 20 + 5 + 5 + 1 +
/// 8 characters (Linux's largest thread number is 4194304) and 6 spaces.
const LINE_B: usize = 64;

/// Largest journal: a line per thread of Linux's maximum, and a head with at most two paths.
pub const MAX_SIZE: MaxSize = MaxSize::bytes(4_194_304 * LINE_B as u64 + 65_536);

/// The most sets of PUs. Chosen: a machine with 1,024 cores of several PUs has some 1,100.
const MOST_SETS: usize = 2_048;
/// Number of lines of ended tasks that are kept. Chosen: more than a machine creates while colocate is
/// kept from placing a new task, whose mask may be that of a creator which has ended since.
const KEPT: usize = 128;

/// The place of a task's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// Change of a task's mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Original mask, unchanged or restored.
    Original,
    /// Placed on one PU.
    On(PuNr),
    /// Placed on a set of PUs, by its index in [`Journal::sets`].
    Among(u16),
    /// Mask set by the program itself, without anything to undo.
    Programs,
}

impl Mark {
    /// Whether the task was placed.
    pub fn is_put(self) -> bool {
        matches!(self, Self::On(_) | Self::Among(_))
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "-" => Self::Original,
            "=" => Self::Programs,
            set if set.starts_with('s') => Self::Among(set[1..].parse().ok()?),
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
            Self::Among(set) => write!(f, "s{set}"),
        }
    }
}

/// Changed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Process number.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Creation time in clock ticks since boot.
    pub start_ticks: u64,
    /// Present change.
    pub mark: Mark,
    /// Earlier change; for a new thread the mark of its creator.
    pub was: Mark,
    /// Policy before the change to SCHED_IDLE; `None` if colocate did not change it.
    pub lowered: Option<Fair>,
}

impl JournalEntry {
    /// Of no task: no process has the number 0.
    pub(crate) const EMPTY: Self = Self {
        pid: Pid(0),
        tid: Tid(0),
        start_ticks: 0,
        mark: Mark::Programs,
        was: Mark::Programs,
        lowered: None,
    };
}

/// Content of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Colocate process that wrote the journal.
    pub owner: Owner,
    /// Boot in which the journal was written; `None` if unknown.
    pub boot: Option<String>,
    /// Token in the environment of the workload's programs; `None` if no random number was
    /// available.
    pub token: Option<String>,
    /// Mask of every task without colocate.
    pub original: PuSet,
    /// Sets of several PUs for placements.
    pub sets: Vec<PuSet>,
    /// Mechanism for stopping jobs; `None` if no job is ever stopped.
    pub pauses: Option<How>,
    /// Process and time namespaces of the writer; `None` if unknown.
    pub namespaces: Option<String>,
    /// Attached processes; `None` if all were launched.
    pub attached: Option<Attached>,
    /// Changed tasks, including tasks ended long ago.
    pub entries: Vec<JournalEntry>,
}

/// Text that is not a journal.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected {expected}, found {found:?}")]
pub struct JournalError {
    expected: &'static str,
    found: String,
}

impl JournalError {
    fn at(expected: &'static str, found: Option<&str>) -> Self {
        // The first line of a foreign file can be of any length.
        let found = found.unwrap_or_default().chars().take(60).collect();
        Self { expected, found }
    }

    /// Whether the text is a journal of another version, for another colocate.
    pub fn is_other_version(&self) -> bool {
        let version = self.found.strip_prefix(KIND).filter(|_| self.expected == HEAD);
        version.is_some_and(|version| version.parse::<u32>().is_ok())
    }
}

impl Journal {
    /// Whether an ended thread of a process was given this mask, without a later choice of PUs by
    /// the program. A thread that executes a program becomes the first thread and keeps its mask,
    /// and all remaining threads end.
    pub fn was_of_gone(&self, pid: Pid, mask: &PuSet, lives: impl Fn(Tid) -> bool) -> bool {
        let of_process =
            self.entries.iter().filter(|it| it.pid == pid && it.mark != Mark::Programs);
        of_process
            .filter(|entry| {
                let put = [entry.mark, entry.was].into_iter().filter(|mark| mark.is_put());
                put.filter_map(|mark| self.mask(mark)).any(|given| given == *mask)
            })
            .any(|entry| !lives(entry.tid))
    }

    /// PUs of a mark; `None` if the program chose its own.
    pub fn mask(&self, mark: Mark) -> Option<PuSet> {
        match mark {
            Mark::Original => Some(self.original.clone()),
            Mark::On(pu) => Some([pu].into_iter().collect()),
            Mark::Among(set) => self.sets.get(usize::from(set)).cloned(),
            Mark::Programs => None,
        }
    }

    /// Parses a journal. Malformed lines of tasks are skipped: a crash can leave one.
    ///
    /// # Errors
    /// [`JournalError`] if the head is not a journal's.
    pub fn parse(text: &str) -> Result<Self, JournalError> {
        let mut lines = text.lines();
        let first = lines.next();
        if first != Some(HEAD) {
            return Err(JournalError::at(HEAD, first));
        }
        let head: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let owner = head_value(&head, "owner").and_then(|text| owner(&text));
        let owner =
            owner.ok_or_else(|| JournalError::at("owner PID START", head.first().copied()))?;
        let list = head_value(&head, "original").and_then(|list| PuSet::parse_list(&list).ok());
        let original = list.filter(|set| !set.is_empty());
        let original = original.ok_or_else(|| {
            JournalError::at(
                "original CPU-LIST",
                head.iter().find(|line| line.starts_with("orig")).copied(),
            )
        })?;
        let sets = head_value(&head, "sets").unwrap_or_default();
        let sets: Result<Vec<PuSet>, _> = sets.split_whitespace().map(PuSet::parse_list).collect();
        let sets = sets.map_err(|_| {
            JournalError::at(
                "sets CPU-LIST …",
                head.iter().find(|line| line.starts_with("sets")).copied(),
            )
        })?;
        let pauses = head_value(&head, "pauses").and_then(|how| How::parse(&how));
        let boot = head_value(&head, "boot");
        let token = head_value(&head, "token");
        let namespaces = head_value(&head, "namespaces");
        let attached = head_value(&head, "attached").and_then(|text| Attached::parse(&text));
        Ok(Self {
            owner,
            boot,
            token,
            original,
            sets,
            pauses,
            namespaces,
            attached,
            entries: lines.filter_map(entry).collect(),
        })
    }

    /// Masks given to any thread.
    pub fn given(&self) -> Vec<PuSet> {
        let marks: BTreeSet<Mark> =
            self.entries.iter().flat_map(|entry| [entry.mark, entry.was]).collect();
        let put = marks.into_iter().filter(|mark| mark.is_put());
        put.filter_map(|mark| self.mask(mark)).filter(|mask| *mask != self.original).collect()
    }

    /// Whether the journal is from process or time namespaces other than `ours`: its numbers and
    /// times have another meaning here.
    pub fn is_of_other_namespaces(&self, ours: Option<&str>) -> bool {
        // An unknown namespace proves no difference.
        self.namespaces.as_deref().zip(ours).is_some_and(|(its, ours)| its != ours)
    }

    /// Whether the journal is from an earlier boot than `boot`, so that none of its tasks lives.
    pub fn is_of_another_boot(&self, boot: Option<&str>) -> bool {
        // An unknown boot proves no difference.
        self.boot.as_deref().zip(boot).is_some_and(|(then, now)| then != now)
    }
}

/// The kernel's name of this boot (`/proc/sys/kernel/random/boot_id`, random(4)). `proc` is
/// `/proc`.
pub fn boot(proc: &Path) -> Option<String> {
    let text = colocate_files::kernel::read_text(&proc.join("sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Process and time namespaces of this process, by their inode numbers (namespaces(7)); 0 for a
/// namespace unknown to the kernel. `proc` is `/proc`.
pub fn namespaces(proc: &Path) -> Option<String> {
    let both = [namespace(proc, "pid"), namespace(proc, "time")];
    (both != ["0", "0"]).then(|| both.join(" "))
}

/// Inode number of the namespace `name` of this process; "0" if the kernel does not have it.
fn namespace(proc: &Path, name: &str) -> String {
    let link = colocate_files::kernel::link(&proc.join("self/ns").join(name)).ok();
    let link = link.map(|link| link.to_string_lossy().into_owned());
    // The link reads like `pid:[4026531836]`.
    let number = link.as_deref().and_then(|link| link.split(['[', ']']).nth(1));
    number.unwrap_or("0").to_owned()
}

fn owner(text: &str) -> Option<Owner> {
    let (pid, start) = text.split_once(' ')?;
    Some(Owner { pid: Pid(pid.parse().ok()?), start_ticks: start.parse().ok()? })
}

fn entry(line: &str) -> Option<JournalEntry> {
    // Lines are padded with spaces to their fixed length.
    let (body, sum) = line.trim_end().rsplit_once(' ')?;
    if u32::from_str_radix(sum, 16) != Ok(check_sum(body)) {
        return None;
    }
    let mut fields = body.split(' ');
    let mut next = || fields.next();
    Some(JournalEntry {
        pid: Pid(next()?.parse().ok()?),
        tid: Tid(next()?.parse().ok()?),
        start_ticks: next()?.parse().ok()?,
        mark: Mark::parse(next()?)?,
        was: Mark::parse(next()?)?,
        lowered: next().and_then(Fair::parse),
    })
}

fn head(journal: &Journal) -> String {
    let Journal { owner, boot, token, original, sets, pauses, namespaces, attached, .. } = journal;
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let sets = Some(sets.join(" ")).filter(|sets| !sets.is_empty());
    let mut text = format!("{HEAD}\nowner {} {}\n", owner.pid, owner.start_ticks);
    text += &head_line("boot", boot.as_ref().map(|boot| boot as _));
    text += &head_line("namespaces", namespaces.as_ref().map(|both| both as _));
    text += &head_line("token", token.as_ref().map(|token| token as _));
    text += &head_line("original", Some(original));
    text += &head_line("sets", sets.as_ref().map(|sets| sets as _));
    text += &head_line("pauses", pauses.as_ref().map(|how| how as _));
    text += &head_line("attached", attached.as_ref().map(|attached| attached as _));
    text + "\n"
}

/// Value of the line of `head` that begins with `key` and a space.
fn head_value(head: &[&str], key: &str) -> Option<String> {
    head.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned))
}

fn head_line(key: &str, value: Option<&dyn fmt::Display>) -> String {
    value.map_or_else(String::new, |value| format!("{key} {value}\n"))
}

fn line(entry: &JournalEntry) -> String {
    let JournalEntry { pid, tid, start_ticks, mark, was, lowered } = entry;
    let lowered = lowered.map_or("-", Fair::letter);
    let body = format!("{pid} {tid} {start_ticks} {mark} {was} {lowered}");
    let sum = check_sum(&body);
    // The line feed is the last byte of the fixed length.
    format!("{:width$}\n", format!("{body} {sum:08x}"), width = LINE_B - 1)
}

/// File of a journal, by the descriptor of its folder: the file is removed from the folder of its
/// creation.
#[derive(Debug)]
pub struct JournalFile {
    /// The folder.
    pub dir: Dir,
    /// Name in the folder.
    pub name: String,
}

impl JournalFile {
    /// Removes the file. `colocate restore` handles a file that cannot be removed.
    pub fn remove(&self) {
        let _ = self.dir.remove(&self.name);
    }

    /// Path for messages.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }
}

/// Writes a journal.
#[derive(Debug)]
pub struct Writer {
    /// Head, and the written entries by slot.
    journal: Journal,
    memory: Option<File>,
    place: Option<JournalFile>,
    file: Option<File>,
    head: String,
    /// Lines of ended tasks, oldest first.
    free: VecDeque<Slot>,
    trouble: Option<String>,
}

impl Writer {
    /// Begins a journal in memory; its file is to be made in the folder `dir`.
    ///
    /// Never fails: [`Writer::trouble`] says what could not be had.
    pub fn begin(
        dir: Result<Dir, String>,
        owner: Owner,
        boot: Option<String>,
        original: &PuSet,
        pauses: Option<&How>,
    ) -> Self {
        let Owner { pid, start_ticks } = owner;
        let token = sys::random().map(|random| format!("{pid}-{start_ticks}-{random:016x}"));
        let journal = Journal {
            owner,
            boot,
            token,
            original: original.clone(),
            sets: Vec::new(),
            pauses: pauses.cloned(),
            namespaces: None,
            attached: None,
            entries: Vec::new(),
        };
        let head = head(&journal);
        let mut trouble = None;
        let place = dir.map(|dir| JournalFile { dir, name: owner.file_name() });
        let place = place.map_err(|why| trouble = Some(why)).ok();
        let memory = sys::memfd(c"colocate-journal").map(File::from).ok();
        // Half a head would make the whole journal unreadable.
        let memory = memory.filter(|memory| memory.write_all_at(head.as_bytes(), 0).is_ok());
        if memory.is_none() {
            trouble = Some("no file in memory can be had".into());
        }
        Self { journal, memory, place, file: None, head, free: VecDeque::new(), trouble }
    }

    /// Allows placements on the first [`MOST_SETS`] of these sets of PUs. Must be called before any
    /// write.
    pub fn with_sets(mut self, sets: impl IntoIterator<Item = PuSet>) -> Self {
        self.journal.sets = sets.into_iter().take(MOST_SETS).collect();
        self.with_head()
    }

    /// Sets the namespaces of the journal's numbers, and the attached processes. Must be called
    /// before any write.
    pub fn with_origin(mut self, namespaces: Option<String>, attached: Option<Attached>) -> Self {
        self.journal.namespaces = namespaces;
        self.journal.attached = attached;
        self.with_head()
    }

    fn with_head(mut self) -> Self {
        self.head = head(&self.journal);
        let head = self.head.as_bytes();
        self.memory = self.memory.filter(|memory| memory.write_all_at(head, 0).is_ok());
        self
    }

    /// Creates the file. Must be called once, when a guardian has its place, and before any write:
    /// whenever colocate is killed, the guardian removes the file.
    pub fn with_file(mut self) -> Self {
        match self.place.as_ref().map(|place| new_file(place, &self.head)) {
            Some(Err(why)) => (self.place, self.trouble) = (None, Some(why)),
            Some(Ok(file)) => self.file = Some(file),
            None => {}
        }
        self
    }

    /// Content of the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Errors since the last call, in one line; the journal continues without the failed part.
    pub fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// The journal in memory, for the guardian.
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(AsFd::as_fd)
    }

    /// Place of the journal's file, existing or planned.
    pub fn place(&self) -> Option<&JournalFile> {
        self.place.as_ref()
    }

    /// A place for a new task's line.
    pub fn slot(&mut self) -> Slot {
        let oldest = if self.free.len() > KEPT { self.free.pop_front() } else { None };
        oldest.unwrap_or_else(|| {
            // Reserved at once: the next call must not return the same slot.
            self.journal.entries.push(JournalEntry::EMPTY);
            Slot(self.journal.entries.len() - 1)
        })
    }

    /// Last written line of a task.
    pub fn entry(&self, slot: Slot) -> JournalEntry {
        self.journal.entries.get(slot.0).copied().unwrap_or(JournalEntry::EMPTY)
    }

    /// Frees the line of an ended task.
    pub fn free(&mut self, slot: Slot) {
        self.free.push_back(slot);
    }

    /// Writes a pending change of a task. A change of a new kind also gets a permanent line of its
    /// own: an unseen thread may have inherited it from a creator that was restored since.
    pub fn write(&mut self, slot: Slot, entry: &JournalEntry) {
        let JournalEntry { mark, lowered, .. } = *entry;
        let first = JournalEntry { mark, lowered, was: Mark::Original, ..JournalEntry::EMPTY };
        let is_done = mark.is_put() || lowered.is_some();
        if is_done && !self.journal.entries.contains(&first) {
            self.journal.entries.push(first);
            self.write_line(Slot(self.journal.entries.len() - 1), &first);
        }
        self.write_line(slot, entry);
    }

    fn write_line(&mut self, slot: Slot, entry: &JournalEntry) {
        if let Some(place) = self.journal.entries.get_mut(slot.0) {
            *place = *entry;
        }
        let line = line(entry);
        let at = (self.head.len() + slot.0 * LINE_B) as u64;
        let lost = |file: &File| file.write_all_at(line.as_bytes(), at).err();
        if self.memory.as_ref().and_then(lost).is_some() {
            self.memory = None;
        }
        if let Some(why) = self.file.as_ref().and_then(lost) {
            // Half a journal would be trusted like a whole one.
            let place = self.place.as_ref().map(JournalFile::path).unwrap_or_default();
            self.remove();
            self.trouble = Some(format!("{}: {why}", place.display()));
        }
    }

    /// Ends the journal: everything has been undone.
    pub fn remove(&mut self) {
        if let (Some(place), Some(_)) = (self.place.take(), self.file.take()) {
            place.remove();
        }
    }
}

fn new_file(place: &JournalFile, head: &str) -> Result<File, String> {
    let file = place.dir.create(&place.name, FileMode::Private).map_err(|why| why.line())?;
    match file.write_all_at(head.as_bytes(), 0) {
        Ok(()) => Ok(file),
        Err(why) => {
            // A file without a whole head would be reported as spoilt.
            place.remove();
            Err(format!("{}: {why}", place.path().display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { pid: Pid(7), start_ticks: 99 };

    fn original() -> PuSet {
        PuSet::parse_list("0-3").unwrap()
    }

    fn some(tid: i32, pu: Option<u32>) -> JournalEntry {
        let mark = pu.map_or(Mark::Original, |pu| Mark::On(PuNr(pu)));
        let was = if pu.is_some() { Mark::On(PuNr(8191)) } else { Mark::Programs };
        let lowered = Some(Fair::Batch).filter(|_| pu.is_none());
        JournalEntry { pid: Pid(10), tid: Tid(tid), start_ticks: u64::MAX, mark, was, lowered }
    }

    fn read(writer: &Writer) -> Journal {
        let path = writer.place().unwrap().path();
        Journal::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn begin(dir: &tempfile::TempDir, pauses: Option<&How>) -> Writer {
        let dir = Dir::open(dir.path()).map_err(|why| why.line());
        Writer::begin(dir, OWNER, None, &original(), pauses).with_file()
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = begin(&dir, None);
        let entries = [some(10, None), some(4_194_304, Some(8191))];
        let done = |entry: &JournalEntry| JournalEntry {
            mark: entry.mark,
            lowered: entry.lowered,
            was: Mark::Original,
            ..JournalEntry::EMPTY
        };
        for entry in &entries {
            let slot = writer.slot();
            writer.write(slot, entry);
        }
        let journal = read(&writer);
        let [lowered, placed] = entries;
        let all = [lowered, done(&lowered), placed, done(&placed)];
        assert_eq!((&journal, &journal.entries[..]), (writer.journal(), &all[..]));
        assert_eq!((journal.owner, journal.original), (OWNER, original()));
        assert!(journal.token.unwrap().starts_with("7-99-"));
        assert_eq!(Owner::of_file(&writer.place().unwrap().path()), Some(OWNER));
        assert_eq!(writer.trouble(), None);
        writer.remove();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Where another folder was put in the place of the journal's, nothing in it is lost.
    #[test]
    fn it_is_removed_from_the_folder_that_it_was_made_in() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        std::fs::create_dir(at("run")).unwrap();
        let dir = Dir::open(&at("run")).map_err(|why| why.line());
        let mut writer = Writer::begin(dir, OWNER, None, &original(), None).with_file();
        std::fs::rename(at("run"), at("away")).unwrap();
        std::fs::create_dir(at("victim")).unwrap();
        std::fs::write(at("victim").join(OWNER.file_name()), "precious").unwrap();
        std::os::unix::fs::symlink("victim", at("run")).unwrap();
        let slot = writer.slot();
        writer.write(slot, &some(10, Some(1)));
        writer.remove();
        let kept = std::fs::read_to_string(at("victim").join(OWNER.file_name()));
        assert_eq!(kept.unwrap(), "precious");
        assert_eq!(std::fs::read_dir(at("away")).unwrap().count(), 0);
    }

    /// Ten thousand tasks, one after the other, leave the lines of the last ones, and one that says what
    /// was done.
    #[test]
    fn lines_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = begin(&dir, None);
        for tid in 0..10_000 {
            let slot = writer.slot();
            writer.write(slot, &some(tid, Some(1)));
            writer.free(slot);
        }
        let entries = read(&writer).entries;
        assert_eq!(entries.len(), KEPT + 2);
        let last = 10_000 - i32::try_from(KEPT).unwrap() - 1;
        assert!((last..10_000).all(|tid| entries.contains(&some(tid, Some(1)))));
    }

    #[test]
    fn the_head_says_how_jobs_are_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let how = How::Freezer("/sys/fs/cgroup/colocate-7-99".into());
        let mut writer = begin(&dir, Some(&how));
        let slot = writer.slot();
        writer.write(slot, &some(10, Some(1)));
        let journal = read(&writer);
        assert_eq!((journal.pauses, journal.entries[0]), (Some(how), some(10, Some(1))));
    }

    #[test]
    fn sets_of_pus_are_in_the_head() {
        let dir = tempfile::tempdir().unwrap();
        let sets = ["0-1", "2-3"].map(|set| PuSet::parse_list(set).unwrap());
        let place = Dir::open(dir.path()).map_err(|why| why.line());
        let writer = Writer::begin(place, OWNER, None, &original(), None);
        let mut writer = writer.with_sets(sets.clone()).with_file();
        let put = JournalEntry { mark: Mark::Among(1), was: Mark::Among(0), ..some(10, None) };
        let slot = writer.slot();
        writer.write(slot, &put);
        let journal = read(&writer);
        assert_eq!((&journal, journal.entries[0]), (writer.journal(), put));
        let masks = [Mark::Among(1), Mark::Among(2), Mark::Original, Mark::Programs];
        let masks = masks.map(|mark| journal.mask(mark));
        assert_eq!(masks, [Some(sets[1].clone()), None, Some(original()), None]);
        let mut memory = String::new();
        let file = writer.memory.as_mut().unwrap();
        std::io::Seek::rewind(file).unwrap();
        std::io::Read::read_to_string(file, &mut memory).unwrap();
        assert_eq!(Journal::parse(&memory).unwrap(), journal);
    }

    /// Thread 11 was put on PU 1 and lives; 12, on PU 2, and 13, which its program has bound, are gone; 14 is of another process.
    #[test]
    fn places_of_threads_that_are_gone() {
        let entry = |pid, tid, mark| JournalEntry {
            pid: Pid(pid),
            tid: Tid(tid),
            mark,
            was: Mark::Original,
            ..JournalEntry::EMPTY
        };
        let on = |pu| Mark::On(PuNr(pu));
        let entries = vec![
            entry(10, 11, on(1)),
            entry(10, 12, on(2)),
            entry(10, 13, Mark::Programs),
            entry(20, 14, on(3)),
        ];
        let text = format!("{HEAD}\nowner 7 99\noriginal 0-3\n\n");
        let journal = Journal { entries, ..Journal::parse(&text).unwrap() };
        let was_given = |pu: u32| {
            journal.was_of_gone(Pid(10), &[PuNr(pu)].into_iter().collect(), |tid| tid == Tid(11))
        };
        assert_eq!([0, 1, 2, 3].map(was_given), [false, false, true, false]);
    }

    #[test]
    fn of_other_namespaces() {
        let text =
            format!("{HEAD}\nowner 7 99\nnamespaces 12 34\noriginal 0-3\nattached 7f 2a 1,9\n\n");
        let journal = Journal::parse(&text).unwrap();
        let other = |ours| journal.is_of_other_namespaces(ours);
        assert!(other(Some("12 35")) && !other(Some("12 34")) && !other(None));
        let ours = namespaces(Path::new("/proc"));
        assert!(ours.is_some_and(|both| both.split(' ').all(|it| it.parse::<u64>().is_ok())));
        assert_eq!(journal.attached, Attached::parse("7f 2a 1,9"));
        assert_eq!(head(&journal), text);
    }

    #[test]
    fn of_an_earlier_boot() {
        let of = |boot: &str| {
            let text = format!("{HEAD}\nowner 7 99\n{boot}original 0-3\n\n");
            Journal::parse(&text).unwrap().is_of_another_boot(Some("now"))
        };
        assert!(of("boot then\n") && !of("boot now\n") && !of(""));
        assert!(boot(Path::new("/proc")).is_some_and(|boot| boot.len() == 36));
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
        assert_eq!(refusal(""), "expected colocate-journal 7, found \"\"");
        assert_eq!(
            refusal("colocate-journal 8\n"),
            "expected colocate-journal 7, found \"colocate-journal 8\""
        );
        let other = |text: &str| Journal::parse(text).unwrap_err().is_other_version();
        assert!(other("colocate-journal 12\nwhatever") && !other("colocate-journal "));
        let text = format!("{HEAD}\nowner colocate-journal 8");
        assert!(!other(&text) && !other(&format!("{HEAD} ")) && !other(""));
        let text = format!("{HEAD}\nowner 7 99\noriginal \n\n");
        assert_eq!(refusal(&text), "expected original CPU-LIST, found \"original \"");
    }

    #[test]
    fn a_full_disk_leaves_the_copy_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = begin(&dir, None);
        writer.file = Some(File::create("/dev/full").unwrap());
        let slot = writer.slot();
        writer.write(slot, &some(10, Some(1)));
        let trouble = writer.trouble().unwrap();
        assert!(trouble.contains("No space left"), "{trouble}");
        assert!(writer.place().is_none() && writer.memory().is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_folder_there_is_still_memory() {
        let mut writer = Writer::begin(Err("no folder".into()), OWNER, None, &original(), None);
        assert_eq!(writer.trouble().as_deref(), Some("no folder"));
        assert!(writer.memory().is_some());
    }
}
