//! Moves memory of jobs as plans order it, on a thread of its own: a batch of pages takes up to 20 ms, and new threads
//! are placed meanwhile.
//!
//! `colocate pages move` has the same pages moved by [`colocate_act::pages`]. Nothing of it is journalled: a page is on one node or on
//! another, memory policies stay as they are, and whatever ends this thread, `kill -9` too, ends it between two pages.

use crate::workload::HostState;
use colocate_act::pages::live::{self, MovableProcess, MoveRequest, PagesError};
use colocate_act::pages::work::PageTarget;
use colocate_act::pages::{Addr, AddressSpan};
use colocate_evidence::{AddressRange, PagesMoved};
use colocate_linux::handle::ProcessHandle;
use colocate_linux::sys;
use colocate_machine::{Bytes, Nanos};
use colocate_policy::PageMove;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Page order with the processes to which it applies.
struct Ordered {
    order: PageMove,
    processes: Vec<Arc<ProcessHandle>>,
}

/// Thread that moves memory. On drop it ends between two batches.
#[derive(Debug)]
struct Pager {
    /// Sender of orders; `None` while the thread ends.
    orders: Option<Sender<Ordered>>,
    results: Receiver<PagesMoved>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pager {
    /// Starts the thread with the nice value `nice`.
    fn start(nice: i32) -> io::Result<Self> {
        let (orders, ordered) = channel::<Ordered>();
        let (sender, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("colocate-pages".into()).spawn(move || {
                // Only the thread that places new threads has to be prompt.
                let _ = sys::set_slice_and_nice(Nanos::ZERO, nice);
                for one in ordered {
                    let moved = carry_out(&one, &is_over);
                    if is_over.load(Ordering::Relaxed) || sender.send(moved).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { orders: Some(orders), results, stop, thread: Some(thread) })
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Without a sender the thread's loop ends after the order under way.
        self.orders = None;
        // A panic of that thread moves nothing any more, as its end does.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Moving of memory: the thread is started by the first order.
#[derive(Debug)]
pub(crate) struct Paging {
    pager: Option<Pager>,
    /// Nice value of the thread.
    nice: i32,
}

impl Paging {
    /// Without a thread yet, which will have the nice value `nice`.
    pub const fn new(nice: i32) -> Self {
        Self { pager: None, nice }
    }

    /// Queues a plan's page orders, behind the unfinished orders.
    pub fn order(&mut self, work: &mut HostState, orders: &[PageMove]) {
        if orders.is_empty() {
            return;
        }
        if self.pager.is_none() {
            match Pager::start(self.nice) {
                Ok(pager) => self.pager = Some(pager),
                Err(why) => return work.notes.push(format!("no memory is moved: {why}")),
            }
        }
        for order in orders {
            let processes = work.table.processes.handles_of(order.job);
            let ordered = Ordered { order: order.clone(), processes };
            let orders = self.pager.as_ref().and_then(|pager| pager.orders.as_ref());
            // Sending fails only once the thread has ended.
            let _ = orders.map(|orders| orders.send(ordered));
        }
    }

    /// Results of page orders since the last call.
    pub fn moved(&mut self, work: &mut HostState) -> Vec<PagesMoved> {
        let moved: Vec<PagesMoved> =
            self.pager.iter().flat_map(|pager| pager.results.try_iter()).collect();
        for PagesMoved { job, to, trouble, .. } in &moved {
            if let Some(why) = trouble.as_ref().filter(|_| work.notes.is_first(*job, "move")) {
                work.note_on(*job, &format!("has memory that is not moved to {to}: {why}"));
            }
        }
        moved
    }

    /// Ends the moving of memory, also in the middle of an order.
    pub fn stop(&mut self) {
        self.pager = None;
    }
}

/// Moves memory of one process after another until the budget is spent.
fn carry_out(ordered: &Ordered, is_over: &AtomicBool) -> PagesMoved {
    let Ordered { order, processes } = ordered;
    let mut sum =
        PagesMoved { job: order.job, to: order.to, moved: Bytes(0), left: Bytes(0), trouble: None };
    for handle in processes {
        let mut process = MovableProcess::of(Arc::clone(handle), Path::new("/sys"), false);
        let spans: Vec<AddressSpan> = order
            .ranges
            .iter()
            .map(|range: &AddressRange| AddressSpan {
                start: Addr(range.start),
                end: Addr(range.end),
            })
            .collect();
        // An order without ranges is for all memory.
        let wanted = MoveRequest {
            spans: if spans.is_empty() { vec![AddressSpan::ALL] } else { spans },
            target: PageTarget::Node(order.to),
            dry: false,
            budget: Some(Bytes(order.budget.0.saturating_sub(sum.moved.0))),
        };
        match live::move_spans(&mut process, &wanted, &mut || is_over.load(Ordering::Relaxed)) {
            Ok(found) => {
                let counts = found.counts;
                let left = counts.busy + counts.no_memory + counts.not_reached;
                sum.moved.0 += counts.moved * process.page_b;
                sum.left.0 += left * process.page_b;
            }
            // It has ended, or its program has nothing there.
            Err(PagesError::NoProcess(_) | PagesError::NothingMapped { .. }) => {}
            Err(why) => sum.trouble = Some(why.to_string()),
        }
    }
    sum
}
