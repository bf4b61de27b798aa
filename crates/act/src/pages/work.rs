//! Which pages are moved where, in which batches, and what becomes of each.
//!
//! # Problem
//! move_pages(2) takes a list of addresses and a node for each, answers per page, and may give up in
//! the middle without saying which pages it had reached. Large lists hold the program up.
//!
//! # Approach
//! Small lists for one node at a time; each page is asked for before and after, and only what is read
//! back counts.
//!
//! # Terms
//! - *Piece*: neighbouring pages that are in memory, treated alike.
//! - *Grain*: what goes to one node as a whole when pages are interleaved, in bytes: a page, or a
//!   block where a mapping has huge pages.
//! - *Block*: memory that a huge page may fill: as long as one, and aligned so.
//!
//! # Algorithm
//! 1. In a mapping with huge pages, one address of every block is moved, which moves a huge page
//!    whole. Pages of the block that are then still elsewhere were small ones, and are treated as such.
//! 2. Small pages are moved by one address each. A call that gives up is repeated for the pages of
//!    which it said nothing, as long as each call gets further.
//! 3. Pages that were busy are tried again when the others are done, [`ROUNDS`] times in all.
//! 4. Once a node has no memory left, no more pages are sent there.
//!
//! # Properties, each with a test of its name
//! - **Every page has one fate**: the counts add up to the pages that were given, whatever the kernel
//!   does. -> test `every_page_has_one_fate`
//! - **Moved means there**: a page counts as moved only if it was read back on its node.
//!   -> test `moved_means_there`
//! - **Nothing else moves**: only pages that were given, and huge pages that they are part of.
//!   -> test `nothing_else_moves`
//! - **Within the budget**: no more moves than was allowed, of huge pages less than one more. -> test
//!   `within_the_budget`
//! - **Huge pages stay whole** while their node has room. -> test `huge_pages_stay_whole`
//! - **Ends** -> every test

use super::Addr;
use super::pace::BatchSize;
use super::status::{MovedPageSample, PageCounts};
use colocate_linux::SysError;
use colocate_linux::move_pages::{NO_STATUS, PageLocation, Put, Stay, seen};
use colocate_machine::{Nanos, NodeNr};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// Maximum number of attempts to move a busy page. Chosen: a transfer is over after the first
/// round; a pin is not over after any number of rounds.
pub const ROUNDS: u32 = 3;

/// Maximum number of small pages per query. Chosen: such a query takes about a millisecond.
const MOST_AHEAD: usize = 4096;

/// Target of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageTarget {
    /// All on one node.
    Node(NodeNr),
    /// Interleaved over these nodes by address. Never empty.
    Interleave(Vec<NodeNr>),
}

impl PageTarget {
    /// The node for the page at `page`.
    pub fn of(&self, page: Addr, grain_b: u64) -> NodeNr {
        match self {
            Self::Node(node) => *node,
            Self::Interleave(nodes) => {
                let place = page.0 / grain_b % nodes.len().max(1) as u64;
                nodes[usize::try_from(place).unwrap_or(0)]
            }
        }
    }
}

/// Neighbouring pages in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// The first page.
    pub start: Addr,
    /// Number.
    pub pages: u64,
    /// The grain, in bytes.
    pub grain_b: u64,
    /// Whether the piece consists of whole blocks, each moved by one address.
    pub whole: bool,
}

/// The pieces of `pages` pages from `start`, all in memory, of a mapping whose huge pages have
/// `block_b` bytes; `None` if it has none.
pub fn pieces(start: Addr, pages: u64, page_b: u64, block_b: Option<u64>) -> Vec<PageRange> {
    let Some(block_b) = block_b else {
        return vec![PageRange { start, pages, grain_b: page_b, whole: false }];
    };
    let end = start.0 + pages * page_b;
    // A run shorter than a block may contain no boundary of one.
    let first = start.0.next_multiple_of(block_b).min(end);
    let last = (end / block_b * block_b).max(first);
    let parts = [(start.0, first, false), (first, last, true), (last, end, false)];
    let pieces = parts.into_iter().map(|(from, to, whole)| PageRange {
        start: Addr(from),
        pages: (to - from) / page_b,
        grain_b: block_b,
        whole,
    });
    pieces.filter(|piece| piece.pages > 0).collect()
}

/// Memory whose pages can be queried and moved: of a process, or simulated.
pub trait MovableMemory {
    /// The kernel's answer for each page; see [`colocate_linux::move_pages::query`].
    ///
    /// # Errors
    /// If the process has ended or access is denied.
    fn query(&mut self, pages: &[Addr]) -> Result<Vec<i32>, SysError>;
    /// Moves pages; see [`colocate_linux::move_pages::put`].
    fn put(&mut self, pages: &[Addr], node: NodeNr) -> Put;
    /// The time.
    fn now(&self) -> Nanos;
    /// Waits a moment for the release of busy pages.
    fn pause(&mut self);
}

/// Pages of one grain that are queried together.
#[derive(Clone, Debug)]
struct Batch {
    pages: Vec<Addr>,
    grain_b: u64,
    whole: bool,
}

/// Completed batch.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Batched {
    /// Pages.
    pub pages: u64,
    /// Total time of query, move and read-back.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// Resulting limit of units in the next batch of its kind.
    pub next: usize,
    /// Whether its units were blocks.
    #[serde(rename = "huge")]
    pub whole: bool,
}

/// Moving under way.
#[derive(Debug)]
pub struct OngoingMove {
    page_b: u64,
    target: PageTarget,
    /// Whether to only query, and to count intended moves as moved.
    dry: bool,
    /// Limit of pages passed to the kernel for moving, exceeded by less than a huge page, and below
    /// the number passed so far. Each attempt counts.
    most: u64,
    called: u64,
    /// Remaining pieces of this round, lowest addresses first.
    queue: VecDeque<PageRange>,
    /// Busy pages for the next round, with their grain.
    later: Vec<(Addr, u64)>,
    round: u32,
    small: BatchSize,
    blocks: BatchSize,
    /// Number of small pages per query while nothing needs to move.
    ahead: usize,
    /// Pages seen on other nodes, to be queried again.
    elsewhere: HashSet<Addr>,
    /// Lowest page not handled; `None` if all were.
    pub reached: Option<Addr>,
    /// Nodes without free memory for pages of this grain.
    full: BTreeSet<(NodeNr, u64)>,
    /// Results of the pages so far.
    pub counts: PageCounts,
    /// Sample of the moved pages.
    pub sample: MovedPageSample,
    /// The batches, in order.
    pub batches: Vec<Batched>,
}

impl OngoingMove {
    /// Work without pages yet, on a machine with pages of `page_b` bytes. If `dry`, pages are only
    /// queried, and intended moves count as moved. The kernel moves at most `most` pages.
    pub fn new(page_b: u64, target: PageTarget, dry: bool, most: u64) -> Self {
        Self {
            page_b,
            target,
            dry,
            most,
            called: 0,
            queue: VecDeque::new(),
            later: Vec::new(),
            round: 0,
            small: BatchSize::pages(),
            blocks: BatchSize::blocks(),
            ahead: 0,
            elsewhere: HashSet::new(),
            reached: None,
            full: BTreeSet::new(),
            counts: PageCounts::default(),
            sample: MovedPageSample::default(),
            batches: Vec::new(),
        }
    }

    /// Moves these pieces until all is done (`true`), or until `stop` returns true between two
    /// batches; the rest counts as not reached.
    ///
    /// # Errors
    /// If the process has ended or access is denied; the rest counts as not reached.
    pub fn carry_out(
        &mut self,
        pieces: &[PageRange],
        memory: &mut impl MovableMemory,
        stop: &mut impl FnMut() -> bool,
    ) -> Result<bool, SysError> {
        self.queue = pieces.iter().copied().collect();
        self.round = 0;
        self.elsewhere.clear();
        loop {
            while !self.queue.is_empty() {
                let is_over = stop() || self.called >= self.most;
                let done = if is_over { Ok(false) } else { self.batch(memory).map(|()| true) };
                if !matches!(done, Ok(true)) {
                    self.abandon();
                    return done;
                }
            }
            self.round += 1;
            if self.later.is_empty() || self.round == ROUNDS {
                self.counts.busy += self.later.len() as u64;
                self.later.clear();
                return Ok(true);
            }
            memory.pause();
            self.queue = coalesce(std::mem::take(&mut self.later), self.page_b).into();
        }
    }

    fn abandon(&mut self) {
        let queued = self.queue.iter().map(|piece| piece.start);
        self.reached = queued.chain(self.later.iter().map(|(page, _)| *page)).min();
        let left = self.queue.iter().map(|piece| piece.pages).sum::<u64>();
        self.counts.not_reached += left + self.later.len() as u64;
        self.queue.clear();
        self.later.clear();
    }

    fn batch(&mut self, memory: &mut impl MovableMemory) -> Result<(), SysError> {
        let batch = self.next();
        let pages = batch.pages.len() as u64;
        let begun = memory.now();
        let done = self.try_batch(&batch, memory);
        if done.is_err() {
            // Its pages count as not reached: they go to the front of the queue again.
            let pages = batch.pages.iter().map(|page| (*page, batch.grain_b)).collect();
            // In reverse, so that the lowest address is at the front.
            coalesce(pages, self.page_b).into_iter().rev().for_each(|p| self.queue.push_front(p));
        }
        let took = memory.now().saturating_sub(begun);
        let pace = if batch.whole { &mut self.blocks } else { &mut self.small };
        // A failed batch moved nothing, which is no reason to grow.
        let moved = *done.as_ref().unwrap_or(&0);
        pace.took(moved, took);
        // Queries alone are cheap, so they grow until something has to move.
        self.ahead = if moved > 0 { 0 } else { (batch.pages.len() * 2).min(MOST_AHEAD) };
        self.batches.push(Batched { pages, took, next: pace.limit(), whole: batch.whole });
        done.map(drop)
    }

    /// Runs a batch and returns the number of addresses passed to the kernel for moving.
    fn try_batch(
        &mut self,
        batch: &Batch,
        memory: &mut impl MovableMemory,
    ) -> Result<usize, SysError> {
        let before = memory.query(&batch.pages)?;
        if self.dry {
            self.count_dry(batch, &before);
            return Ok(0);
        }
        let mut puts = BTreeMap::new();
        let unit = if batch.whole { batch.grain_b / self.page_b } else { 1 };
        for (node, chosen) in self.chosen(batch, &before) {
            self.called += chosen.len() as u64 * unit;
            let put = memory.put(&chosen, node);
            match put.done {
                Err(error) if ends_it(&error) => return Err(error),
                _ => drop(puts.insert(node, (chosen, put))),
            }
        }
        // Nothing was to be moved: what was read before is what is.
        let after = if puts.is_empty() { before.clone() } else { memory.query(&batch.pages)? };
        self.settle(batch, &before, &puts, &after);
        Ok(puts.values().map(|(chosen, _)| chosen.len()).sum())
    }

    fn count_dry(&mut self, batch: &Batch, status: &[i32]) {
        for (&page, &status) in batch.pages.iter().zip(status) {
            match seen(status) {
                Some(PageLocation::On(node)) if node == self.target.of(page, batch.grain_b) => {
                    self.counts.already_there += 1;
                }
                Some(PageLocation::On(_)) => self.counts.moved += 1,
                Some(PageLocation::Not(why)) => self.counts.stay(why, 1),
                None => self.counts.stay(Stay::Unmovable, 1),
            }
        }
    }

    /// Next pages of one kind, as many as the pace allows.
    fn next(&mut self) -> Batch {
        let PageRange { grain_b, whole, .. } = self.queue[0];
        let (units, unit) = if whole {
            (self.blocks.limit(), grain_b / self.page_b)
        } else {
            (self.small.limit().max(self.ahead), 1)
        };
        let mut room = units as u64 * unit;
        // What is queried ahead may all be moved.
        let budget = self.most.saturating_sub(self.called);
        if budget < room {
            // A huge page moves whole, which may exceed the budget by less than one.
            room = budget.next_multiple_of(unit);
        }
        let mut pages = Vec::new();
        while let Some(piece) = self.queue.front_mut() {
            if room == 0 || (piece.grain_b, piece.whole) != (grain_b, whole) {
                break;
            }
            let taken = piece.pages.min(room);
            pages.extend((0..taken).map(|page| Addr(piece.start.0 + page * self.page_b)));
            room -= taken;
            piece.start.0 += taken * self.page_b;
            piece.pages -= taken;
            if piece.pages == 0 {
                self.queue.pop_front();
            }
        }
        Batch { pages, grain_b, whole }
    }

    /// Addresses to be moved, by target node.
    fn chosen(&self, batch: &Batch, before: &[i32]) -> BTreeMap<NodeNr, Vec<Addr>> {
        let mut chosen: BTreeMap<NodeNr, Vec<Addr>> = BTreeMap::new();
        let mut last_block = None;
        let mut count = 0;
        for (&page, &status) in batch.pages.iter().zip(before) {
            let node = self.target.of(page, batch.grain_b);
            let elsewhere = matches!(seen(status), Some(PageLocation::On(on)) if on != node);
            let block = batch.whole.then_some(page.0 / batch.grain_b);
            // One address moves the whole block.
            let same_block = block.is_some() && block == last_block;
            // Of those that were queried ahead, only as many as the pace allows.
            let room = batch.whole || count < self.small.limit();
            if elsewhere && room && !same_block && !self.full.contains(&(node, batch.grain_b)) {
                chosen.entry(node).or_default().push(page);
                last_block = block;
                count += 1;
            }
        }
        chosen
    }

    /// Determines the result of each page.
    fn settle(
        &mut self,
        batch: &Batch,
        before: &[i32],
        puts: &BTreeMap<NodeNr, (Vec<Addr>, Put)>,
        after: &[i32],
    ) {
        let answers = Answers::of(puts, &batch.pages, after);
        // A block that finds no room may still find some in pieces.
        let full = answers.full.iter().filter(|_| !batch.whole);
        self.full.extend(full.map(|node| (*node, batch.grain_b)));
        let mut again = Vec::new();
        for ((&page, &before), &after) in batch.pages.iter().zip(before).zip(after) {
            let node = self.target.of(page, batch.grain_b);
            let before = seen(before);
            let after = seen(after);
            // A page seen elsewhere before has been moved by an earlier call.
            if before == Some(PageLocation::On(node)) && !self.elsewhere.contains(&page) {
                self.counts.already_there += 1;
            } else if after == Some(PageLocation::On(node)) {
                self.counts.moved += 1;
                self.sample.offer(page, node);
            } else if let (Some(PageLocation::On(_)), Some(PageLocation::Not(Stay::NotPresent))) =
                (before, after)
            {
                // While something moves a page, the kernel says that there is none.
                self.later.push((page, batch.grain_b));
            } else if let Some(PageLocation::Not(why)) = after {
                self.counts.stay(why, 1);
            } else if self.full.contains(&(node, batch.grain_b)) {
                self.counts.no_memory += 1;
            } else if batch.whole || !answers.tried.contains(&page) {
                again.push((page, batch.grain_b));
            } else {
                match answers.status.get(&page) {
                    Some(Stay::Busy) => self.later.push((page, batch.grain_b)),
                    Some(why) => self.counts.stay(*why, 1),
                    // The call got further, so the next one may reach this page.
                    None if answers.further.contains(&node) => again.push((page, batch.grain_b)),
                    // The call gave up without progress: a pause comes first.
                    None => self.later.push((page, batch.grain_b)),
                }
            }
        }
        self.elsewhere.extend(again.iter().chain(&self.later).map(|(page, _)| *page));
        for piece in coalesce(again, self.page_b).into_iter().rev() {
            self.queue.push_front(piece);
        }
    }
}

/// Whether an error of a call applies to all further pages as well (move_pages(2)).
fn ends_it(error: &SysError) -> bool {
    const ENDS: [i32; 6] =
        [libc::ESRCH, libc::EPERM, libc::EINVAL, libc::EACCES, libc::ENODEV, libc::ENOSYS];
    error.errno().is_some_and(|errno| ENDS.contains(&errno))
}

/// Answers of the kernel to a batch.
struct Answers {
    /// Pages passed to the kernel for moving.
    tried: HashSet<Addr>,
    /// Reasons of unmoved pages, as far as reported.
    status: HashMap<Addr, Stay>,
    /// Nodes with progress: a page was moved, or a status was reported.
    further: BTreeSet<NodeNr>,
    /// Nodes without free memory.
    full: BTreeSet<NodeNr>,
}

impl Answers {
    fn of(puts: &BTreeMap<NodeNr, (Vec<Addr>, Put)>, pages: &[Addr], after: &[i32]) -> Self {
        let mut answers = Self {
            tried: puts.values().flat_map(|(chosen, _)| chosen).copied().collect(),
            status: HashMap::new(),
            further: BTreeSet::new(),
            full: BTreeSet::new(),
        };
        let place: HashMap<Addr, i32> = pages.iter().copied().zip(after.iter().copied()).collect();
        for (&node, (chosen, put)) in puts {
            let there = |page: &Addr| place.get(page).and_then(|status| seen(*status));
            let moved = chosen.iter().any(|page| there(page) == Some(PageLocation::On(node)));
            if moved || put.status.iter().any(|status| *status != NO_STATUS) {
                answers.further.insert(node);
            }
            if put.done.as_ref().is_err_and(|error| error.errno() == Some(libc::ENOMEM)) {
                answers.full.insert(node);
            }
            for (&page, &status) in chosen.iter().zip(&put.status) {
                match seen(status) {
                    Some(PageLocation::Not(why)) => drop(answers.status.insert(page, why)),
                    // It says that it moved it, and it is not there: something else moves it.
                    Some(PageLocation::On(_)) => drop(answers.status.insert(page, Stay::Busy)),
                    None => {}
                }
            }
        }
        answers
    }
}

/// Merges neighbours of one grain into pieces of small pages.
fn coalesce(mut pages: Vec<(Addr, u64)>, page_b: u64) -> Vec<PageRange> {
    pages.sort_unstable();
    let mut pieces: Vec<PageRange> = Vec::new();
    for (page, grain_b) in pages {
        match pieces.last_mut() {
            Some(last)
                if last.grain_b == grain_b && last.start.0 + last.pages * page_b == page.0 =>
            {
                last.pages += 1;
            }
            _ => pieces.push(PageRange { start: page, pages: 1, grain_b, whole: false }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests;
