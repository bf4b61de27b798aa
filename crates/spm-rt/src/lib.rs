//! Runtime of programs compiled by `colocate cc`: moves pages to the node that is about to use
//! them.
//!
//! Before a loop the compiled program calls [`spm_access`] with the range of memory and the number
//! of bytes that the loop accesses. The runtime sums the extra cost of these accesses from another
//! node ([`blocks`]), and moves pages once the sum exceeds the cost of a move ([`rule`]). On
//! machines with one node a call is a load and a branch.
//!
//! The code runs inside other programs. It allocates nothing, takes no lock, preserves `errno`, is
//! no cancellation point, and uses little stack and time ([`budget`]). It reads none of the
//! program's memory. Arguments may be wrong, since the program may have changed its variables, or
//! freed the memory. Only the kernel dereferences addresses, and only pages of this process alone
//! are moved.

#![cfg_attr(feature = "freestanding", no_std)]

pub mod blocks;
pub mod budget;
pub mod costs;
pub mod nodes;
pub mod rule;

mod lock;
mod moves;
mod sites;
mod start;
pub mod sys;

use blocks::{BLOCK, Worth};
use budget::MoveBudget;
use nodes::NodeNr;
use rule::CallOutcome;
pub use sites::CallSite;

/// Smallest page size of all supported machines, in bytes.
pub(crate) const PAGE: u64 = 4096;

/// Announces a loop that is about to access `bytes` bytes (repeated accesses count repeatedly)
/// between `base + begin` and `base + end`.
///
/// The program's own state does not change. All values are allowed.
///
/// # Safety
/// `site` is null, or points to a [`CallSite`] that lives as long as the program or its library.
#[unsafe(no_mangle)]
#[allow(unsafe_code)] // called by C
pub unsafe extern "C" fn spm_access(
    base: *const u8,
    begin: i64,
    end: i64,
    bytes: i64,
    site: *const CallSite,
) {
    let Some(running) = start::running() else { return };
    // A site of another version has another layout.
    // SAFETY: as promised.
    let site = unsafe { site.as_ref() }.filter(|site| site.version == sites::VERSION);
    let record = site.and_then(sites::record);
    let why = access(running, Announced { base: base as u64, begin, end, bytes }, record);
    if let Some(record) = record {
        record.note(why);
    }
}

#[cfg(feature = "freestanding")]
#[panic_handler]
#[allow(unsafe_code)] // the end
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: it takes nothing.
    unsafe { libc::abort() }
}

/// Arguments of a call.
#[derive(Clone, Copy, Debug)]
struct Announced {
    base: u64,
    begin: i64,
    end: i64,
    bytes: i64,
}

/// Adds the extra cost of a call, and moves pages where this pays.
fn access(
    running: &start::Running,
    announced: Announced,
    record: Option<&sites::SiteRecord>,
) -> CallOutcome {
    let Some(range) = range_of(announced) else { return CallOutcome::Empty };
    let size = range.1 - range.0;
    if size < PAGE {
        return CallOutcome::Small;
    }
    // A negative number of bytes announces no access.
    let bytes = u64::try_from(announced.bytes).unwrap_or(0);
    let Some((pu, here)) = running.nodes.here() else { return CallOutcome::NoNode };
    let Some(budget) = running.budgets.get(pu) else { return CallOutcome::NoNode };
    let costs = &running.costs;
    if let Some(published) = costs.published {
        return if published.is_worth_it(size, bytes, costs.path_bytes) {
            moves::move_all(running, budget, range, here, record)
        } else {
            CallOutcome::NotYet
        };
    }
    let (range, extra, spans) = affordable(budget, range, rule::extra_ns(size, bytes, costs));
    let began_ns = (spans > budget::FREE).then(sys::now_ns);
    let (node, worth) = add(running, range, extra, here);
    if let Some(began_ns) = began_ns {
        let now_ns = sys::now_ns();
        budget.settle(spans, now_ns.saturating_sub(began_ns), now_ns);
    }
    match worth {
        // A seccomp filter may end the process at the first system call.
        Worth::Moving if start::is_filtered() => CallOutcome::Refused,
        Worth::Moving => moves::move_worthy(running, budget, range, node, record),
        Worth::Having | Worth::Little => CallOutcome::NotYet,
    }
}

/// Adds the extra cost of a range, and binds the thread under `SPM_LOCK`. Returns the thread's node
/// afterwards, and the value of the pages there.
fn add(
    running: &start::Running,
    range: (u64, u64),
    extra_ns: u64,
    here: NodeNr,
) -> (NodeNr, Worth) {
    let worth_here = blocks::add(range, extra_ns, here, sys::second(), &running.costs);
    let Some(key) = running.lock.filter(|_| worth_here >= Worth::Having) else {
        return (here, worth_here);
    };
    let node = lock::settle(&running.nodes, key, here, start::is_filtered);
    if node == here {
        return (here, worth_here);
    }
    blocks::take(range, extra_ns, here);
    (node, blocks::add(range, extra_ns, node, sys::second(), &running.costs))
}

/// Part of a range within the budget, its share of the extra cost, and its number of spans.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share
fn affordable(budget: &MoveBudget, range: (u64, u64), extra_ns: u64) -> ((u64, u64), u64, u64) {
    let size = range.1 - range.0;
    // A range that begins within a block touches one block more.
    let spans = size / BLOCK + 1;
    if spans <= budget::FREE {
        return (range, extra_ns, spans);
    }
    let taken = budget.take_spans(spans, sys::coarse_ns());
    if taken >= spans {
        return (range, extra_ns, spans);
    }
    let part = taken * BLOCK;
    let extra_ns = (extra_ns as f64 * (part as f64 / size as f64)) as u64;
    ((range.0, range.0 + part), extra_ns, taken)
}

/// Address range of a call; `None` if empty or no valid range.
fn range_of(announced: Announced) -> Option<(u64, u64)> {
    let first = announced.base.checked_add_signed(announced.begin)?;
    let last = announced.base.checked_add_signed(announced.end)?;
    // No user address has more than 57 bits (x86-64 with five levels of page tables).
    (first < last && last < 1 << 57).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use costs::MemoryCosts;
    use nodes::{MOST_PUS, NodeTable};
    use std::sync::mpsc;
    use std::time::Duration;

    fn running(has_huge: bool) -> start::Running {
        let mut nodes = NodeTable::none();
        nodes.add(0, b"0-4095");
        start::Running {
            nodes,
            costs: MemoryCosts::ASSUMED,
            has_huge,
            lock: None,
            began_ns: sys::now_ns(),
            moved_ns: 0.into(),
            budgets: [const { MoveBudget::unspent() }; MOST_PUS],
        }
    }

    /// Searches that announce any size and end at once: of memory that is not there, worth moving or not. A call that looks at all
    /// of 2^44 bytes takes a minute.
    #[test]
    fn time_does_not_follow_what_is_announced() {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            for has_huge in [false, true] {
                let running = running(has_huge);
                let ends = [1_i64 << 32, 1 << 44, 1 << 56].into_iter();
                for (end, bytes) in ends.flat_map(|end| [(end, 64), (end, end), (end, i64::MAX)]) {
                    let announced = Announced { base: 1 << 46, begin: 0, end, bytes };
                    for _ in 0..100 {
                        access(&running, announced, None);
                    }
                }
            }
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("calls end soon");
    }

    /// A range that fits is looked at as a whole, and its first part has its share of the costs.
    #[test]
    fn parts_have_their_share() {
        let budget = MoveBudget::unspent();
        let now = sys::coarse_ns();
        budget.take_time(1 << 40, now);
        let range = (5, 5 + 320 * BLOCK);
        let part = 5 + budget::FREE * BLOCK;
        assert_eq!(affordable(&budget, range, 1_000), ((5, part), 100, budget::FREE));
        let small = (5, 5 + 30 * BLOCK);
        assert_eq!(affordable(&budget, small, 1_000), (small, 1_000, 31));
        assert_eq!(affordable(&MoveBudget::unspent(), range, 1_000), (range, 1_000, 321));
    }
}
