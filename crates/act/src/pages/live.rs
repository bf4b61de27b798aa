//! A process of this machine, and moving its pages.

use super::maps::{ENTRY_B, MemoryMapping, present_runs};
use super::nodes::numbers;
use super::status::{MovedPageSample, PageCounts};
use super::work::{Batched, MovableMemory, OngoingMove, PageTarget, pieces};
use super::{Addr, AddressSpan};
use colocate_files::kernel;
use colocate_linux::clock::now;
use colocate_linux::handle::ProcessHandle;
use colocate_linux::move_pages::{self, NO_STATUS, PageLocation, Put, Stay, seen};
use colocate_linux::{Pid, SysError, Tid};
use colocate_machine::{Bytes, Nanos, NodeNr};
use serde::Serialize;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Memory scanned at a time. Chosen: it bounds our own memory, and its 65,536 pages are more than a
/// batch has.
const WINDOW_B: u64 = 256 << 20;

/// Wait before busy pages are tried again. Chosen: a transfer takes less.
const PAUSE: Duration = Duration::from_millis(10);

/// Failed operation on a process's pages.
#[derive(Debug, Error)]
pub enum PagesError {
    /// No process with this number.
    #[error("expected a running process, found none with the number {0}")]
    NoProcess(Pid),
    /// Process without memory of its own.
    #[error("expected a process with memory, found {0}, which has none: a kernel thread, or ended")]
    NoMemory(Pid),
    /// Access is denied.
    #[error(
        "process {0} may not be looked at: it is another user's, or protected; run colocate as that \
         user, as root, or with CAP_SYS_PTRACE"
    )]
    Denied(Pid),
    /// Pages mapped by several processes may not be moved.
    #[error(
        "pages that other processes have mapped, too, may be moved only with CAP_SYS_NICE (EPERM); \
         run colocate as root or without --shared"
    )]
    SharedDenied,
    /// The kernel lacks move_pages(2), or a filter hides it.
    #[error("move_pages: {source}: {}", because(*filtered))]
    NoCall {
        /// Error of the call.
        source: io::Error,
        /// Whether a seccomp filter is in force.
        filtered: bool,
    },
    /// No memory is mapped there.
    #[error("expected a range with memory of process {pid} in it, found nothing mapped in {span}")]
    NothingMapped {
        /// The process.
        pid: Pid,
        /// The range.
        span: AddressSpan,
    },
    /// The node has gone, or the process's cpuset no longer allows it.
    #[error("{0}: the node went offline, or the process's cpuset no longer allows it")]
    NodeTaken(SysError),
    /// Error undocumented in the manuals.
    #[error(transparent)]
    Other(#[from] SysError),
    /// A file of `/proc` could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
}

fn because(filtered: bool) -> &'static str {
    if filtered {
        "a seccomp filter is in force here; run colocate outside of the container, or allow move_pages"
    } else {
        "this kernel has no NUMA (CONFIG_NUMA and CONFIG_MIGRATION)"
    }
}

/// Whether pages can be asked for here at all; tried on a page of our own.
///
/// # Errors
/// [`PagesError::NoCall`] if not.
pub fn available(proc: &Path) -> Result<(), PagesError> {
    let own = [0_u8];
    // Only the address matters; without `black_box` the array might have none.
    let page = std::hint::black_box(&raw const own) as u64 / move_pages::page_bytes()
        * move_pages::page_bytes();
    match move_pages::query(Pid(0), &[Addr(page)]) {
        Err(SysError { source, .. }) => {
            let status = kernel::read_text(&proc.join("self/status")).unwrap_or_default();
            // Mode 2 is a filter (proc(5)).
            let filtered = kernel::field(&status, "Seccomp") == Some("2");
            Err(PagesError::NoCall { source, filtered })
        }
        Ok(_) => Ok(()),
    }
}

/// A process whose pages can be asked for and moved.
#[derive(Debug)]
pub struct MovableProcess {
    /// Handle for every action on the process.
    pub handle: Arc<ProcessHandle>,
    /// Bytes in a small page.
    pub page_b: u64,
    /// Size of transparent huge pages; `None` if the kernel makes none.
    block_b: Option<u64>,
    shared: bool,
}

impl MovableProcess {
    /// Process `pid` below `proc` and `sys`, which are `/proc` and `/sys` on a live machine. With
    /// `shared`, pages mapped by several processes are moved as well.
    ///
    /// # Errors
    /// [`PagesError::NoProcess`].
    pub fn find(proc: &Path, sys: &Path, pid: Pid, shared: bool) -> Result<Self, PagesError> {
        let handle = ProcessHandle::open(proc, pid).map_err(|_| PagesError::NoProcess(pid))?;
        Ok(Self::of(Arc::new(handle), sys, shared))
    }

    /// The process of `handle`; otherwise as [`MovableProcess::find`].
    pub fn of(handle: Arc<ProcessHandle>, sys: &Path, shared: bool) -> Self {
        let size = sys.join("kernel/mm/transparent_hugepage/hpage_pmd_size");
        let block_b = kernel::read_text(&size).ok().and_then(|text| text.trim().parse().ok());
        let page_b = move_pages::page_bytes();
        Self { handle, page_b, block_b, shared }
    }

    /// Number.
    pub fn pid(&self) -> Pid {
        self.handle.pid()
    }

    /// Whether the process has not ended.
    pub fn lives(&self) -> bool {
        self.handle.exists() && !self.has_no_memory()
    }

    /// Whether the process has ended and waits to be reaped, without memory. A process with an
    /// ended first thread alone still has memory.
    fn has_no_memory(&self) -> bool {
        // The first number of `statm` is the total size in pages (proc(5)).
        self.handle.read(&self.of_memory("statm"), 256).is_ok_and(|text| text.starts_with("0 "))
    }

    /// Path below `/proc/PID` of a file backed by the process's memory.
    fn of_memory(&self, name: &str) -> String {
        match self.thread() {
            first if first == self.pid().first_thread() => name.to_owned(),
            other => format!("task/{other}/{name}"),
        }
    }

    /// Thread with the process's memory: an ended first thread has none, whatever further threads
    /// have.
    fn thread(&self) -> Tid {
        self.handle.living_thread().unwrap_or(self.pid().first_thread())
    }

    /// Text of a file of the process in `/proc`. A name in the text need not be UTF-8.
    ///
    /// # Errors
    /// [`PagesError::Denied`], [`PagesError::NoProcess`], [`PagesError::Read`].
    pub fn text(&self, name: &str) -> Result<String, PagesError> {
        let path = self.of_memory(name);
        self.handle.read(&path, kernel::LIMIT_B).map_err(|error| self.unread(&path, error))
    }

    fn unread(&self, name: &str, source: io::Error) -> PagesError {
        match source.kind() {
            io::ErrorKind::PermissionDenied => PagesError::Denied(self.pid()),
            _ if !self.lives() => PagesError::NoProcess(self.pid()),
            _ => PagesError::Read { path: format!("/proc/{}/{name}", self.pid()).into(), source },
        }
    }

    /// Mappings of the process, lowest addresses first.
    ///
    /// # Errors
    /// [`PagesError::NoMemory`] without any, and the errors of [`MovableProcess::text`].
    pub fn mappings(&self) -> Result<Vec<MemoryMapping>, PagesError> {
        let found = MemoryMapping::parse_all(&self.text("smaps")?);
        if found.is_empty() { Err(PagesError::NoMemory(self.pid())) } else { Ok(found) }
    }

    /// Nodes allowed by the process's cpuset; empty if it has just ended.
    ///
    /// # Errors
    /// Errors of [`MovableProcess::text`].
    pub fn allowed(&self) -> Result<Vec<NodeNr>, PagesError> {
        let status = self.text("status")?;
        let list = kernel::field(&status, "Mems_allowed_list");
        Ok(list.and_then(numbers).unwrap_or_default())
    }

    /// Runs of present pages in `span`, as (first page, number of pages).
    fn present(&self, span: AddressSpan) -> Result<Vec<(Addr, u64)>, PagesError> {
        let wrong = |error| self.unread("pagemap", error);
        let file = self.handle.file(&self.of_memory("pagemap")).map_err(wrong)?;
        let mut entries = Vec::new();
        let pages = usize::try_from(span.bytes() / self.page_b * ENTRY_B).unwrap_or(usize::MAX);
        entries.resize(pages, 0);
        let mut filled = 0;
        while filled < entries.len() {
            // The file has an entry per page, from address 0 on.
            let at = span.start.0 / self.page_b * ENTRY_B + filled as u64;
            match file.read_at(&mut entries[filled..], at).map_err(wrong)? {
                // Behind the last address that a process can have, or the process has ended.
                0 => break,
                read => filled += read,
            }
        }
        Ok(present_runs(&entries[..filled])
            .into_iter()
            .map(|(first, pages)| (Addr(span.start.0 + first * self.page_b), pages))
            .collect())
    }

    /// Size of the blocks of a mapping that are to be kept whole.
    fn block_b(&self, mapping: &MemoryMapping) -> Option<u64> {
        if mapping.hugetlb {
            // A page size that the kernel did not list counts as a small page.
            Some(mapping.page.0.max(self.page_b))
        } else {
            // Without a huge page now, there is none to keep whole.
            self.block_b.filter(|_| mapping.huge.0 > 0)
        }
    }
}

impl MovableMemory for MovableProcess {
    fn query(&mut self, pages: &[Addr]) -> Result<Vec<i32>, SysError> {
        self.handle.with(self.thread(), |tid| move_pages::query(Pid(tid.0), pages))
    }

    fn put(&mut self, pages: &[Addr], node: NodeNr) -> Put {
        let mut status = Vec::new();
        let done = self.handle.with(self.thread(), |tid| {
            let put = move_pages::put(Pid(tid.0), pages, node, self.shared);
            status = put.status;
            put.done
        });
        // Without a call the kernel has written no status, but callers expect one per page.
        status.resize(pages.len(), NO_STATUS);
        Put { status, done }
    }

    fn now(&self) -> Nanos {
        now()
    }

    fn pause(&mut self) {
        std::thread::sleep(PAUSE);
    }
}

/// Reason for the end of a move.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveEnd {
    /// Every page was dealt with.
    Done,
    /// Stopped.
    Stopped,
    /// The process ended in the middle.
    ProcessEnded,
}

/// Result of moving pages.
#[derive(Debug)]
pub struct Moved {
    /// Reason of the end.
    pub end: MoveEnd,
    /// Results of the pages.
    pub counts: PageCounts,
    /// First address not reached; `None` if all were.
    pub reached: Option<Addr>,
    /// The batches, in order.
    pub batches: Vec<Batched>,
    /// Sample of the moved pages.
    pub sample: MovedPageSample,
    /// Memory in huge pages before the move, over the touched mappings.
    pub huge_before: Bytes,
    /// Memory in huge pages after the move; `None` if the process has ended.
    pub huge_after: Option<Bytes>,
}

/// Order to move memory.
#[derive(Clone, Debug)]
pub struct MoveRequest {
    /// Address ranges.
    pub spans: Vec<AddressSpan>,
    /// Target.
    pub target: PageTarget,
    /// Whether to only query, and to count intended moves as moved.
    pub dry: bool,
    /// Maximum amount of attempted moves, exceeded by less than a huge page; `None` without a
    /// limit.
    pub budget: Option<Bytes>,
}

/// Moves pages of `process` as ordered, until `stop` returns true.
///
/// # Errors
/// [`PagesError::NothingMapped`] if a span has no mapping in it, and errors of reading the process.
/// Its end during the move is no error.
pub fn move_spans(
    process: &mut MovableProcess,
    order: &MoveRequest,
    stop: &mut impl FnMut() -> bool,
) -> Result<Moved, PagesError> {
    let chosen = chosen(process, &order.spans)?;
    let most = order.budget.map_or(u64::MAX, |budget| budget.0 / process.page_b);
    let mut work = OngoingMove::new(process.page_b, order.target.clone(), order.dry, most);
    let mut end = MoveEnd::Done;
    let mut reached = None;
    for (mapping, window) in chosen
        .iter()
        .flat_map(|(mapping, span)| windows(*span).map(move |window| (mapping, window)))
    {
        if end == MoveEnd::Done {
            end = one_window(process, mapping, window, &mut work, stop)?;
            reached = (end != MoveEnd::Done).then(|| work.reached.unwrap_or(window.start));
        } else if !mapping.fixed && mapping.resident.0 > 0 {
            // Of a process that has ended, nothing is known.
            let left = process.present(window).unwrap_or_default();
            work.counts.not_reached += left.iter().map(|(_, pages)| pages).sum::<u64>();
        }
    }
    let huge = |mappings: &[MemoryMapping]| {
        let touched = mappings.iter().filter(|mapping| {
            chosen.iter().any(|(_, span)| mapping.span().intersection(*span).is_some())
        });
        Bytes(touched.map(|mapping| mapping.huge.0).sum())
    };
    // A mapping that two ranges touch is listed twice.
    let mut before: Vec<MemoryMapping> =
        chosen.iter().map(|(mapping, _)| mapping.clone()).collect();
    before.dedup();
    Ok(Moved {
        end,
        counts: work.counts,
        reached,
        batches: work.batches,
        sample: work.sample,
        huge_before: huge(&before),
        huge_after: process.mappings().ok().map(|after| huge(&after)),
    })
}

/// Parts of mappings in `spans`, each mapping once.
fn chosen(
    process: &MovableProcess,
    spans: &[AddressSpan],
) -> Result<Vec<(MemoryMapping, AddressSpan)>, PagesError> {
    let mappings = process.mappings()?;
    let mut wanted: Vec<AddressSpan> =
        spans.iter().map(|span| span.whole_pages(process.page_b)).collect();
    wanted.sort_unstable();
    // Ranges that overlap must not be counted twice.
    wanted = wanted.into_iter().fold(Vec::new(), |mut joined: Vec<AddressSpan>, span| {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
        joined
    });
    let parts = |span: &AddressSpan| {
        let inside = mappings.iter().map(|mapping| (mapping, mapping.span().intersection(*span)));
        let inside = inside.filter_map(|(mapping, part)| Some((mapping.clone(), part?)));
        inside.collect::<Vec<_>>()
    };
    if let Some(empty) = spans.iter().find(|span| parts(span).is_empty()) {
        return Err(PagesError::NothingMapped { pid: process.pid(), span: *empty });
    }
    Ok(wanted.iter().flat_map(parts).collect())
}

/// Parts of `span` that end at multiples of the window's size, so that no huge page is cut.
fn windows(span: AddressSpan) -> impl Iterator<Item = AddressSpan> {
    let mut start = span.start.0;
    std::iter::from_fn(move || {
        // Saturates at the top of the address space.
        let next = (start / WINDOW_B + 1).saturating_mul(WINDOW_B).min(span.end.0);
        let window = AddressSpan { start: Addr(start), end: Addr(next) };
        start = next;
        (window.start < window.end).then_some(window)
    })
}

fn one_window(
    process: &mut MovableProcess,
    mapping: &MemoryMapping,
    window: AddressSpan,
    work: &mut OngoingMove,
    stop: &mut impl FnMut() -> bool,
) -> Result<MoveEnd, PagesError> {
    if stop() {
        return Ok(MoveEnd::Stopped);
    }
    if !process.lives() {
        return Ok(MoveEnd::ProcessEnded);
    }
    let pages = window.bytes() / process.page_b;
    if mapping.fixed {
        work.counts.stay(Stay::Unmovable, pages);
        return Ok(MoveEnd::Done);
    }
    if mapping.resident.0 == 0 {
        work.counts.stay(Stay::NotPresent, pages);
        return Ok(MoveEnd::Done);
    }
    let runs = match process.present(window) {
        Ok(runs) => runs,
        Err(PagesError::NoProcess(_)) => return Ok(MoveEnd::ProcessEnded),
        // The file belongs to its user, so CAP_SYS_PTRACE alone does not open it; asking for each
        // page comes to the same.
        Err(PagesError::Denied(_)) => vec![(window.start, pages)],
        Err(error) => return Err(error),
    };
    let present: u64 = runs.iter().map(|(_, pages)| pages).sum();
    work.counts.stay(Stay::NotPresent, pages - present);
    let block_b = process.block_b(mapping);
    let cut =
        runs.iter().flat_map(|(start, pages)| pieces(*start, *pages, process.page_b, block_b));
    let all: Vec<_> = cut.collect();
    match work.carry_out(&all, process, stop) {
        Ok(done) => Ok(if done { MoveEnd::Done } else { MoveEnd::Stopped }),
        Err(_) if !process.lives() => Ok(MoveEnd::ProcessEnded),
        Err(error) => Err(match error.errno() {
            // Without `shared`, EPERM concerns the process; with it, pages of further processes.
            Some(libc::EPERM) if process.shared => PagesError::SharedDenied,
            Some(libc::EPERM) => PagesError::Denied(process.pid()),
            Some(libc::EACCES | libc::ENODEV) => PagesError::NodeTaken(error),
            _ => error.into(),
        }),
    }
}

/// Locations of moved pages a while later.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// Duration of the watching.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Number of queried pages.
    pub looked_at: u64,
    /// Number of these pages on another node again.
    pub drifted: u64,
}

impl Drift {
    /// Inverse of the part of the pages on other nodes that ends the watching early: one in 16.
    /// Chosen: more than chance, and a kernel that moves one page in 16 continues.
    const CLEAR: u64 = 16;

    /// Whether further watching is unnecessary, as pages clearly do not stay.
    pub const fn is_clear(&self) -> bool {
        self.drifted > 0 && self.drifted >= self.looked_at / Self::CLEAR
    }
}

/// Time between two queries of moved pages. Chosen.
const QUERY_EVERY: Duration = Duration::from_millis(250);

/// Watches moved pages for `time`, or until they clearly do not stay, `stop` returns true, or the
/// process ends.
pub fn watch(
    memory: &mut impl MovableMemory,
    sample: &MovedPageSample,
    time: Nanos,
    stop: &mut impl FnMut() -> bool,
) -> Drift {
    let (pages, nodes): (Vec<Addr>, Vec<NodeNr>) = sample.pages().iter().copied().unzip();
    let begun = memory.now();
    let mut drift = Drift::default();
    while !pages.is_empty() {
        // An error means that the process has ended.
        let Ok(status) = memory.query(&pages) else { break };
        drift.watched = memory.now().saturating_sub(begun);
        let on = status.iter().zip(&nodes).filter_map(|(status, wanted)| match seen(*status)? {
            PageLocation::On(node) => Some(node != *wanted),
            PageLocation::Not(_) => None,
        });
        let away: Vec<bool> = on.collect();
        drift.looked_at = away.len() as u64;
        drift.drifted = away.iter().filter(|away| **away).count() as u64;
        if drift.is_clear() || drift.watched >= time || stop() {
            break;
        }
        let left = Duration::from(time.saturating_sub(drift.watched));
        // A remainder near zero would query without a pause.
        std::thread::sleep(QUERY_EVERY.min(left.max(Duration::from_millis(1))));
    }
    drift
}

/// Kernel's counts of moved huge pages since boot, over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeMoves {
    /// Moved whole.
    pub whole: u64,
    /// Not moved.
    pub failed: u64,
    /// Split for moving their pages.
    pub split: u64,
}

impl HugeMoves {
    /// Reads `proc/vmstat`; `None` for a kernel without these counts (before 5.9, or built without
    /// huge pages).
    pub fn read(proc: &Path) -> Option<Self> {
        let text = kernel::read_text(&proc.join("vmstat")).ok()?;
        Some(Self {
            whole: counter(&text, "thp_migration_success")?,
            failed: counter(&text, "thp_migration_fail")?,
            split: counter(&text, "thp_migration_split")?,
        })
    }

    /// Counts since `before`.
    pub const fn since(self, before: Self) -> Self {
        Self {
            whole: self.whole.saturating_sub(before.whole),
            failed: self.failed.saturating_sub(before.failed),
            split: self.split.saturating_sub(before.split),
        }
    }
}

/// Counter `name` in the text of `/proc/vmstat`.
fn counter(text: &str, name: &str) -> Option<u64> {
    // The space ends the name: longer names begin alike.
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

/// Whether the kernel moves pages by itself (`kernel.numa_balancing`); `None` if it cannot.
pub fn balances(proc: &Path) -> Option<bool> {
    let text = kernel::read_text(&proc.join("sys/kernel/numa_balancing")).ok()?;
    // Each mode moves pages: 1 between nodes, 2 between tiers of memory.
    Some(text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::super::testing::Pretended;
    use super::*;

    #[test]
    fn windows_end_at_their_multiples() {
        let span = AddressSpan { start: Addr(WINDOW_B - 4096), end: Addr(2 * WINDOW_B + 4096) };
        let found: Vec<u64> = windows(span).map(AddressSpan::bytes).collect();
        assert_eq!(found, [4096, WINDOW_B, 4096]);
        assert_eq!(windows(AddressSpan { start: Addr(4096), end: Addr(4096) }).count(), 0);
    }

    #[test]
    fn the_present_pages_of_this_test() {
        let pid = Pid(std::process::id().cast_signed());
        let process =
            MovableProcess::find(Path::new("/proc"), Path::new("/sys"), pid, false).unwrap();
        assert!(process.lives());
        let mappings = process.mappings().unwrap();
        let stack = mappings.iter().find(|mapping| mapping.what == "[stack]").unwrap();
        let runs = process.present(stack.span()).unwrap();
        let present: u64 = runs.iter().map(|(_, pages)| pages).sum();
        assert!(present > 0 && present <= stack.span().bytes() / process.page_b);
    }

    #[test]
    fn pages_that_go_away_again_are_noticed() {
        let mut memory = Pretended::drawn("1111011111");
        let mut sample = MovedPageSample::default();
        (0..10).for_each(|page| sample.offer(Addr(page * 4096), NodeNr(1)));
        let drift = watch(&mut memory, &sample, Nanos::from_secs(60), &mut || false);
        assert_eq!((drift.looked_at, drift.drifted), (10, 1));
        let mut memory = Pretended::drawn("1111-11111");
        let drift = watch(&mut memory, &sample, Nanos::ZERO, &mut || false);
        assert_eq!((drift.looked_at, drift.drifted), (9, 0));
    }

    #[test]
    fn what_vmstat_counts() {
        let root = tempfile::tempdir().unwrap();
        let text = "thp_migration_success 7\nthp_migration_fail 2\nthp_migration_split 1\n";
        std::fs::write(root.path().join("vmstat"), text).unwrap();
        let found = HugeMoves::read(root.path()).unwrap();
        assert_eq!(found, HugeMoves { whole: 7, failed: 2, split: 1 });
        assert_eq!(found.since(HugeMoves { whole: 3, failed: 2, split: 0 }).whole, 4);
        std::fs::write(root.path().join("vmstat"), "nr_free_pages 1\n").unwrap();
        assert_eq!(HugeMoves::read(root.path()), None);
    }
}
