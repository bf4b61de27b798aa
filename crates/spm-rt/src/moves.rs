//! Moves pages of a range where this pays.

use crate::blocks::{BLOCK, BlockEntry, BlockSpan};
use crate::budget::MoveBudget;
use crate::nodes::NodeNr;
use crate::rule::{self, CallOutcome};
use crate::sites::SiteRecord;
use crate::start::Running;
use crate::{PAGE, sys};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes of a huge page on x86-64, and on aarch64 with small pages of 4 KiB.
const HUGE: u64 = 2 << 20;
/// Pages in a batch. Threads that touch a page while it moves wait; chosen: 4 ms at the assumed
/// cost.
const BATCH: usize = 2048;
/// Initial allowance of each PU for moving, in addition to its share of the time. Chosen.
const FIRST_NS: u64 = 100_000_000;

/// System calls and refused pages in a row after which a call without a moved page ends. Chosen:
/// some milliseconds.
const MOST_FRUITLESS: u64 = 4096;

/// Batch of pages to move, with the kernel's answers. Mapped memory, since a signal handler has
/// little stack.
#[repr(C)]
struct Batch {
    pages: [u64; BATCH],
    nodes: [i32; BATCH],
    status: [i32; BATCH],
    is_huge: [bool; BATCH],
    used: usize,
    /// Entries of a huge page.
    known: [Option<&'static BlockEntry>; PAGES],
}

/// Moves the parts of a range that pay to node `here`.
#[cold]
pub fn move_worthy(
    running: &Running,
    budget: &MoveBudget,
    range: (u64, u64),
    here: NodeNr,
    record: Option<&SiteRecord>,
) -> CallOutcome {
    moving(running, budget, record, |mover| {
        let pagemap = if running.has_huge { sys::Pagemap::open() } else { None };
        let mut at = range.0;
        while at < range.1 && !mover.is_over() {
            let first = at & !(HUGE - 1);
            let end = first + HUGE;
            let inside = (at, end.min(range.1));
            // Older kernels cannot report huge pages: `None` is treated as a huge page, but all
            // small pages are named.
            let has_huge = if running.has_huge {
                // The scan below is a system call.
                mover.fruitless += 1;
                pagemap.as_ref().and_then(|pagemap| pagemap.has_huge_page(first, end))
            } else {
                Some(false)
            };
            if has_huge.unwrap_or(true) {
                // At least half of a huge page must be in the range, else the page is mostly
                // another thread's.
                if 2 * (inside.1 - inside.0) >= HUGE && mover.is_huge_worth_it(first, here) {
                    mover.push((first, end), has_huge.is_some(), here);
                }
            } else {
                for span in BlockSpan::all(inside) {
                    let pages = (span.first.max(range.0), span.end.min(range.1));
                    let block = span.get();
                    if block.is_some() && mover.is_worth_it(block, pages, here) {
                        mover.push(pages, false, here);
                    }
                }
            }
            at = end;
        }
        mover.flush(here);
    })
}

/// Small pages in a huge page.
const PAGES: usize = (HUGE / PAGE) as usize;

/// Collects the entries of a huge page: of each block as a whole, or else of its pages.
fn huge_blocks(huge: u64, known: &mut [Option<&'static BlockEntry>; PAGES]) {
    known.fill(None);
    let mut free = known.iter_mut();
    for block in spans(huge, HUGE, BLOCK) {
        let whole = block.get();
        let pages = spans(block.first, BLOCK, PAGE).filter_map(BlockSpan::get);
        let pages = pages.take(if whole.is_some() { 0 } else { usize::MAX });
        for of in whole.into_iter().chain(pages) {
            free.next().into_iter().for_each(|place| *place = Some(of));
        }
    }
}

/// Spans of `size` bytes in `bytes` bytes from `first` on.
fn spans(first: u64, bytes: u64, size: u64) -> impl Iterator<Item = BlockSpan> {
    let number = bytes / size;
    (0..number).map(move |at| BlockSpan { first: first + at * size, end: first + (at + 1) * size })
}

/// Moves a whole range.
#[cold]
pub fn move_all(
    running: &Running,
    budget: &MoveBudget,
    range: (u64, u64),
    here: NodeNr,
    record: Option<&SiteRecord>,
) -> CallOutcome {
    moving(running, budget, record, |mover| {
        mover.push(range, false, here);
        mover.flush(here);
    })
}

/// Runs `what` within the moving budget of all PUs. Time without a moved page is charged to this
/// PU's budget.
fn moving(
    running: &Running,
    budget: &MoveBudget,
    record: Option<&SiteRecord>,
    what: impl FnOnce(&mut Mover),
) -> CallOutcome {
    let _errno = sys::KeepsErrno::new();
    let began = sys::now_ns();
    let left = most_ns(running, began).checked_sub(running.moved_ns.load(Relaxed));
    let Some(left) = left.filter(|_| !budget.is_spent(began)) else { return CallOutcome::Budget };
    // SAFETY: all zero is a valid `Batch`: numbers may be 0, `bool` false and references `None`.
    #[allow(unsafe_code)]
    let Some(mut batch) = (unsafe { sys::Zeroed::new() }) else { return CallOutcome::Refused };
    let until_ns = began.saturating_add(left);
    let batch = batch.get();
    let mut mover =
        Mover { running, batch, until_ns, is_late: false, fruitless: 0, moved: 0, refused: 0 };
    what(&mut mover);
    let is_over = mover.is_over();
    let Mover { moved, refused, .. } = mover;
    let now = sys::now_ns();
    let took = now - began;
    running.moved_ns.fetch_add(took, Relaxed);
    if moved == 0 {
        budget.take_time(took, now);
    }
    if let Some(record) = record {
        record.moved.fetch_add(moved, Relaxed);
        record.refused.fetch_add(refused, Relaxed);
        record.ns.fetch_add(took, Relaxed);
    }
    match (moved, refused) {
        (0, 0) if is_over => CallOutcome::Budget,
        (0, 0) => CallOutcome::Here,
        (0, _) => CallOutcome::Refused,
        _ => CallOutcome::Moved,
    }
}

/// Moving time allowed until now, in nanoseconds summed over all PUs.
fn most_ns(running: &Running, now_ns: u64) -> u64 {
    let passed = now_ns.saturating_sub(running.began_ns);
    // Divided first, as the product could overflow.
    let share = (passed / 100).saturating_mul(running.costs.moving_percent);
    running.nodes.pus().saturating_mul(share.saturating_add(FIRST_NS))
}

struct Mover<'a> {
    running: &'a Running,
    batch: &'a mut Batch,
    /// Time at which the moving budget is spent, in nanoseconds.
    until_ns: u64,
    is_late: bool,
    /// System calls and refused pages since the last moved page.
    fruitless: u64,
    moved: u64,
    refused: u64,
}

impl Mover<'_> {
    /// True if this call has to end.
    const fn is_over(&self) -> bool {
        self.is_late || self.fruitless > MOST_FRUITLESS
    }

    /// True if moving a huge page pays.
    fn is_huge_worth_it(&mut self, first: u64, here: NodeNr) -> bool {
        huge_blocks(first, &mut self.batch.known);
        self.is_worth_it(None, (first, first + HUGE), here)
    }

    /// True if moving pages from their home to `here` pays; the kernel is asked for an unknown
    /// home. Entries are marked as moved before the move, so that only one of several concurrent
    /// threads moves the pages. `block` is the entry of the pages, or `None` for a huge page with
    /// its entries in the batch.
    fn is_worth_it(
        &mut self,
        block: Option<&'static BlockEntry>,
        pages: (u64, u64),
        here: NodeNr,
    ) -> bool {
        let of_huge = if block.is_some() { &[][..] } else { &self.batch.known[..] };
        let blocks = block.iter().chain(of_huge.iter().flatten()).copied();
        let moves = blocks.clone().map(BlockEntry::moves).max().unwrap_or(0);
        let count = (pages.1 - pages.0).div_ceil(PAGE);
        let costs = &self.running.costs;
        let extra = sum(blocks.clone(), here);
        if !rule::is_worth_moving(extra, 0, count, moves, costs) {
            return false;
        }
        let known = blocks.clone().find_map(BlockEntry::home);
        self.fruitless += u64::from(known.is_none());
        let Some(home) = known.or_else(|| home_of(pages, here)) else { return false };
        let at_home = sum(blocks.clone(), home);
        let is_worth_it =
            home != here && rule::is_worth_moving(extra, at_home, count, moves, costs);
        for block in blocks {
            if is_worth_it { block.moved_to(here) } else { block.set_home(home) }
        }
        is_worth_it
    }

    /// Adds pages to the batch; the first small page of a huge page moves the whole page.
    fn push(&mut self, (first, end): (u64, u64), is_huge: bool, here: NodeNr) {
        let step = if is_huge { HUGE } else { PAGE };
        // Pages cut by an end of the range hold other data as well.
        let mut at = first.next_multiple_of(PAGE);
        while at < end & !(PAGE - 1) {
            if self.batch.used == BATCH {
                self.flush(here);
            }
            if self.is_over() {
                return;
            }
            self.batch.pages[self.batch.used] = at;
            self.batch.is_huge[self.batch.used] = is_huge;
            self.batch.used += 1;
            at += step;
        }
    }

    /// Moves the pages of the batch.
    fn flush(&mut self, here: NodeNr) {
        let batch = &mut *self.batch;
        let used = core::mem::take(&mut batch.used);
        batch.nodes[..used].fill(here.into());
        let done = sys::move_pages(
            &batch.pages[..used],
            Some(&batch.nodes[..used]),
            &mut batch.status[..used],
        );
        let before = self.moved;
        for (status, is_huge) in batch.status[..used].iter().zip(&batch.is_huge[..used]) {
            // After a failed call the statuses are those of an earlier batch.
            let is_there = done && *status == i32::from(here);
            let pages = if *is_huge { HUGE / PAGE } else { 1 };
            *if is_there { &mut self.moved } else { &mut self.refused } += pages;
        }
        self.fruitless = if self.moved > before { 0 } else { self.fruitless + used as u64 };
        self.is_late = sys::now_ns() > self.until_ns;
    }
}

/// Extra cost of some entries for a node, in nanoseconds.
fn sum(blocks: impl Iterator<Item = &'static BlockEntry>, node: NodeNr) -> u64 {
    blocks.map(|block| block.extra_ns(node)).sum()
}

/// Home of a range by the kernel: the first node other than `here` among some pages, else `here`;
/// `None` without mapped pages.
fn home_of((first, end): (u64, u64), here: NodeNr) -> Option<NodeNr> {
    // Few pages suffice: the pages of a block were mostly first touched by the same thread.
    const MOST: usize = 4;
    let mut pages = [0; MOST];
    let mut status = [0; MOST];
    let count = ((end - first) / PAGE).min(MOST as u64);
    // A range below a page has a count of 0.
    let step = (end - first) / count.max(1) / PAGE * PAGE;
    let mut used = 0;
    while (used as u64) < count {
        pages[used] = (first & !(PAGE - 1)) + used as u64 * step;
        used += 1;
    }
    sys::move_pages(&pages[..used], None, &mut status[..used]);
    let mut nodes = status[..used].iter().filter_map(|status| NodeNr::try_from(*status).ok());
    let first = nodes.clone().next()?;
    Some(nodes.find(|node| *node != here).unwrap_or(first))
}
