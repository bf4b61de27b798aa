//! Latency of loads by a pointer chase: every load has the address of the next one, and lines follow in random order.

use crate::control::Control;
use crate::list::Node;
use crate::loops;
use crate::measure::{CHUNK_NS, run_chunks, sized};
use crate::overlap::paces;
use crate::speed::on;
use crate::thread::ThreadError;
use std::ptr;
use std::time::Duration;

/// Steps of an iteration of the loop.
const STEPS: u64 = 32;
/// Bytes of a line on every processor that these loops run on, except Apple's with 128.
const LINE: usize = 64;

/// A line with the address of the next one. A [`Node`] for the loop, which reads the address only.
#[repr(align(64))]
struct Line {
    next: *const Self,
}

/// Lines in one circle, in random order. Nothing is written after it was made.
pub struct Chase {
    lines: Vec<Line>,
}

// SAFETY: the pointers lead only into `lines`, which moves along with them.
unsafe impl Send for Chase {}
// SAFETY: nothing changes after `new`.
unsafe impl Sync for Chase {}

impl Chase {
    /// A circle of `bytes` bytes, at least two lines; on huge pages where the kernel gives them, so that the chase
    /// waits for lines and not for translations of addresses. Its pages are near the PU that makes it.
    #[must_use]
    pub fn new(bytes: usize, seed: u64) -> Self {
        let count = (bytes / LINE).max(2);
        let mut lines: Vec<Line> = Vec::with_capacity(count);
        huge_pages(lines.as_ptr().addr(), count * LINE);
        lines.extend((0..count).map(|_| Line { next: ptr::null() }));
        // Four bytes each: a circle has less than 256 GiB.
        let mut order: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
        let mut state = seed | 1;
        for last in (1..count).rev() {
            // xorshift (Marsaglia, Journal of Statistical Software 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            #[allow(clippy::cast_possible_truncation)] // below `count`
            order.swap(last, (state % (last as u64 + 1)) as usize);
        }
        for (at, &from) in order.iter().enumerate() {
            let next = &raw const lines[order[(at + 1) % count] as usize];
            lines[from as usize].next = next;
        }
        Self { lines }
    }
}

/// Asks for huge pages for the pages that lie within `bytes` from `start`. A kernel without them refuses.
fn huge_pages(start: usize, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let (first, end) = (start.next_multiple_of(HUGE), (start + bytes) / HUGE * HUGE);
    if first < end {
        let at = ptr::without_provenance_mut(first);
        // SAFETY: advice about memory that is ours changes no content.
        unsafe { libc::madvise(at, end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Where a chase begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// After it has gone once around, so that caches hold what they can.
    Warm,
    /// At this line of memory, or that many lines on: in random order, so that what was met before is rarely met again.
    At(usize),
}

impl Chase {
    /// A circle near the PU `home`.
    ///
    /// # Errors
    /// [`ThreadError`] if the PU cannot be used or a thread cannot be made.
    pub fn near(home: u32, bytes: usize) -> Result<Self, ThreadError> {
        on(home, || Self::new(bytes, 0x9e37_79b9_7f4a_7c15))
    }

    /// Nanoseconds of a load on PU `cpu`: the median of undisturbed stretches in `length`. `None` if other load left no
    /// undisturbed stretch.
    ///
    /// # Errors
    /// As [`Chase::near`].
    #[allow(clippy::cast_precision_loss)] // few steps
    pub fn latency(
        &self,
        cpu: u32,
        begin: Begin,
        length: Duration,
    ) -> Result<Option<f64>, ThreadError> {
        let start = match begin {
            Begin::Warm => 0,
            Begin::At(line) => line % self.lines.len(),
        };
        let trail = on(cpu, || {
            let (control, mut at) = (Control::new(), &raw const self.lines[start]);
            let mut run = |iterations: u64| {
                let limit = control.done() + iterations;
                at = loops::load_dep(&control, limit, at.cast::<Node>()).cast();
            };
            if begin == Begin::Warm {
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
