//! Linked into programs that `colocate cc` has compiled: moves pages to the node whose threads are about to use them.
//!
//! Before a loop the compiler's call says which range of memory it accesses and how many bytes in all ([`spm_access`]). The runtime
//! adds up what these accesses cost more if the pages are on another node ([`blocks`]), and moves pages once that exceeds what
//! moving them costs ([`rule`]). On machines with one node a call is a load and a branch.
//!
//! It runs in programs of others. It allocates nothing, takes no lock, keeps `errno`, and reads none of the program's memory; what
//! it is given may be wrong, since the program may have changed its variables, or freed the memory. Only the kernel looks at
//! addresses, and only pages of the process alone are moved.

#![cfg_attr(feature = "freestanding", no_std)]

pub mod blocks;
pub mod costs;
pub mod nodes;
pub mod rule;

mod lock;
mod moves;
mod sites;
mod start;
pub mod sys;

use blocks::Worth;
use rule::Why;
pub use sites::Site;

/// Pages are no smaller on any machine that this runs on.
pub(crate) const PAGE: u64 = 4096;

/// A loop is about to access `bytes` bytes, some of them often, of `base + begin` up to `base + end`.
///
/// The program's own state does not change. Any values may be given.
///
/// # Safety
/// `site` is null, or points to a [`Site`] that lives as long as the program or its library.
#[unsafe(no_mangle)]
#[allow(unsafe_code)] // called by C
pub unsafe extern "C" fn spm_access(
    base: *const u8,
    begin: i64,
    end: i64,
    bytes: i64,
    site: *const Site,
) {
    let Some(running) = start::running() else { return };
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

/// What a call says.
#[derive(Clone, Copy, Debug)]
struct Announced {
    base: u64,
    begin: i64,
    end: i64,
    bytes: i64,
}

/// Adds it up, and moves what is worth it.
fn access(running: &start::Running, announced: Announced, record: Option<&sites::Record>) -> Why {
    let Some(range) = range_of(announced) else { return Why::Empty };
    let size = range.1 - range.0;
    if size < PAGE {
        return Why::Small;
    }
    let bytes = u64::try_from(announced.bytes).unwrap_or(0);
    let Some(here) = running.nodes.here() else { return Why::NoNode };
    let costs = &running.costs;
    if let Some(published) = costs.published {
        let caches = costs.path_bytes;
        return match published.is_worth_it(size, bytes, caches) {
            true => moves::move_all(running, range, here, record),
            false => Why::NotYet,
        };
    }
    let extra = rule::extra_ns(size, bytes, costs);
    let worth = |node| blocks::add(range, extra, node, sys::second(), costs);
    let (mut node, mut worth_there) = (here, worth(here));
    if let (Some(key), true) = (running.lock, worth_there >= Worth::Having) {
        node = lock::settle(&running.nodes, key, here, start::is_filtered);
    }
    if node != here {
        blocks::take(range, extra, here);
        worth_there = worth(node);
    }
    match worth_there {
        Worth::Moving if start::is_filtered() => Why::Refused,
        Worth::Moving => moves::move_worthy(running, range, node, record),
        Worth::Having | Worth::Little => Why::NotYet,
    }
}

/// The addresses, if they are any.
fn range_of(announced: Announced) -> Option<(u64, u64)> {
    let first = announced.base.checked_add_signed(announced.begin)?;
    let last = announced.base.checked_add_signed(announced.end)?;
    (first < last && last < 1 << 57).then_some((first, last))
}
