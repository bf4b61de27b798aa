//! Load latency by a pointer chase: each load returns the address of the next, with lines in random
//! order.

use crate::control::Control;
use crate::list::ListNode;
use crate::loops;
use crate::measure::{CHUNK_NS, run_chunks, sized};
use crate::overlap::paces;
use crate::speed::on;
use crate::thread::ThreadError;
use std::ptr;
use std::time::Duration;

/// Loads in an iteration of the loop.
const STEPS: u64 = 32;
/// Bytes of a cache line: 64 on every processor with these loops, except 128 on Apple's.
const LINE: usize = 64;
/// Longest circle that is run through before a measurement. A longer one has just been written in its own order, so that the
/// line written first is where a run through would end: a circle of 960 MiB would take 3.6 s.
const RUN_THROUGH: usize = 32 << 20;

/// A cache line with the address of the next. Has the layout of a [`ListNode`] for the loop, which
/// reads only the address.
#[repr(align(64))]
struct ChaseLine {
    next: *const Self,
}

/// A circle of lines in random order. Not written after its construction.
pub struct Chase {
    lines: Vec<ChaseLine>,
    /// The line written first, the longest ago.
    oldest: usize,
}

// SAFETY: the pointers lead only into `lines`, which moves along with them.
unsafe impl Send for Chase {}
// SAFETY: immutable after `new`.
unsafe impl Sync for Chase {}

impl Chase {
    /// Builds a circle of `bytes` bytes, at least two lines. Uses huge pages if available, so that
    /// the latency does not include TLB misses. Pages are allocated near the PU of the calling
    /// thread.
    #[must_use]
    pub fn new(bytes: usize, seed: u64) -> Self {
        let count = (bytes / LINE).max(2);
        let mut lines: Vec<ChaseLine> = Vec::with_capacity(count);
        huge_pages(lines.as_ptr().addr(), count * LINE);
        lines.extend((0..count).map(|_| ChaseLine { next: ptr::null() }));
        // Four bytes per index: a circle has less than 256 GiB.
        let mut order: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
        // xorshift would stay at 0.
        let mut state = seed | 1;
        for last in (1..count).rev() {
            #[allow(clippy::cast_possible_truncation)] // below `count`
            order.swap(last, (xorshift(&mut state) % (last as u64 + 1)) as usize);
        }
        for (at, &from) in order.iter().enumerate() {
            let next = &raw const lines[order[(at + 1) % count] as usize];
            lines[from as usize].next = next;
        }
        Self { lines, oldest: order[0] as usize }
    }
}

/// The next number (xorshift; Marsaglia, Journal of Statistical Software 2003).
pub(crate) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Requests huge pages for the pages within `bytes` from `start`. A kernel without huge pages
/// ignores the request.
fn huge_pages(start: usize, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let first = start.next_multiple_of(HUGE);
    let end = (start + bytes) / HUGE * HUGE;
    if first < end {
        let at = ptr::without_provenance_mut(first);
        // SAFETY: advice on our own memory, without effect on its content.
        unsafe { libc::madvise(at, end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Start of a chase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Where the caches hold the lines before it as after one full circle.
    Warm,
    /// At the line with this index, modulo the number of lines: far from earlier chases, in random
    /// order, so that their lines are rarely met again.
    At(usize),
}

impl Chase {
    /// Builds a circle in memory near the PU `home`.
    ///
    /// # Errors
    /// [`ThreadError`] if the PU cannot be used or no thread can be created.
    pub fn near(home: u32, bytes: usize) -> Result<Self, ThreadError> {
        on(home, || Self::new(bytes, 0x9e37_79b9_7f4a_7c15))
    }

    /// Nanoseconds per load on PU `cpu`: the median of the undisturbed chunks of `length`. `None`
    /// if other load disturbed every chunk.
    ///
    /// # Errors
    /// As [`Chase::near`].
    pub fn latency(
        &self,
        cpu: u32,
        begin: Begin,
        length: Duration,
    ) -> Result<Option<f64>, ThreadError> {
        let start = match begin {
            Begin::Warm => self.oldest,
            Begin::At(line) => line % self.lines.len(),
        };
        let trail = on(cpu, || {
            let control = Control::new();
            let mut at = &raw const self.lines[start];
            let mut run = |iterations: u64| {
                let limit = control.done() + iterations;
                at = loops::load_dep(&control, limit, at.cast::<ListNode>()).cast();
            };
            if begin == Begin::Warm && self.lines.len() * LINE <= RUN_THROUGH {
                run((self.lines.len() as u64 / STEPS).max(1));
            }
            let chunk = sized(CHUNK_NS, &mut run);
            run_chunks(chunk, length, run)
        })?;
        Ok(paces(&[trail])[0].map(|pace| pace.iteration_ns / STEPS as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_meets_every_line_once_and_closes() {
        for bytes in [0, 4096, 1 << 22] {
            let chase = Chase::new(bytes, 7);
            let (mut at, mut met) = (chase.lines.as_ptr(), 0);
            loop {
                // SAFETY: every `next` points to a line of the chase, which is alive.
                at = unsafe { (*at).next };
                met += 1;
                if at == chase.lines.as_ptr() {
                    break;
                }
            }
            assert_eq!(met, (bytes / LINE).max(2));
        }
    }

    #[test]
    fn a_latency_that_a_cache_can_have() {
        let cpu = crate::thread::usable().unwrap()[0];
        let chase = Chase::near(cpu, 8192).unwrap();
        for begin in [Begin::Warm, Begin::At(77), Begin::At(1 << 20)] {
            match chase.latency(cpu, begin, Duration::from_millis(3)).unwrap() {
                Some(found) => assert!((0.2..100.0).contains(&found), "{found}"),
                None => println!("other load left no undisturbed stretch"),
            }
        }
    }
}
