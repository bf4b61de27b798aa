//! Ring buffer to which the kernel writes the records of an event.

#![allow(unsafe_code)] // mmap, and reading memory that the kernel writes

use super::PerfEvent;
use colocate_linux::SysError;
use perf_event_open_sys::bindings::perf_event_mmap_page as ControlPage;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event with its mapped ring buffer.
#[derive(Debug)]
pub struct Ring {
    event: Arc<PerfEvent>,
    control: NonNull<ControlPage>,
    page_b: usize,
    data_b: usize,
}

// SAFETY: a ring owns its mapping; nothing about it belongs to the thread that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `pages` data pages for `event`; `pages` is a power of two.
    ///
    /// # Errors
    /// `EPERM` if the pages exceed the memory that an unprivileged user may lock
    /// (`/proc/sys/kernel/perf_event_mlock_kb` and `RLIMIT_MEMLOCK`), `ENOMEM`, and `EINVAL` if
    /// `pages` is not a power of two.
    pub fn map(event: PerfEvent, pages: usize) -> Result<Self, SysError> {
        let page_b = page_size();
        let data_b = pages.saturating_mul(page_b);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                data_b.saturating_add(page_b),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<ControlPage>()) {
            Some(control) if address != libc::MAP_FAILED => {
                Ok(Self { event: Arc::new(event), control, page_b, data_b })
            }
            _ => Err(SysError::last("mmap of a perf ring")),
        }
    }

    /// Event of the ring.
    pub fn event(&self) -> &PerfEvent {
        &self.event
    }

    /// Event of the ring, for a poll(2) without the ring.
    pub fn polled(&self) -> Arc<PerfEvent> {
        Arc::clone(&self.event)
    }

    /// Capacity of the ring, in bytes of records.
    pub fn size_b(&self) -> usize {
        self.data_b
    }

    /// Appends all waiting records to `into`, freeing their room; returns the number of bytes.
    pub fn take(&mut self, into: &mut Vec<u8>) -> usize {
        let before = into.len();
        // Acquire: makes the kernel's writes before its move of the head visible. Only this process
        // writes the tail.
        let head =
            self.cursor(std::mem::offset_of!(ControlPage, data_head)).load(Ordering::Acquire);
        let tail = self.cursor(std::mem::offset_of!(ControlPage, data_tail));
        let [first, second] = waiting(self.data_b, tail.load(Ordering::Relaxed), head);
        for (start, length) in [first, second] {
            // SAFETY: `waiting` stays within the ring, and the kernel does not write to the part
            // between tail and head until the tail has moved.
            into.extend_from_slice(unsafe {
                let data = self.control.as_ptr().cast::<u8>().add(self.page_b + start);
                std::slice::from_raw_parts(data, length)
            });
        }
        // Release: the reads above are done before the kernel may write there again.
        tail.store(head, Ordering::Release);
        into.len() - before
    }

    /// 64-bit cursor at `offset` bytes in the control page.
    fn cursor(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives, the fields are 8 bytes
        // aligned to 8, and both sides only access them whole.
        unsafe { AtomicU64::from_ptr(self.control.as_ptr().byte_add(offset).cast()) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and no reference to it is left.
        unsafe { libc::munmap(self.control.as_ptr().cast(), self.page_b + self.data_b) };
    }
}

/// Positions in a ring of `size` bytes of the bytes between `tail` and `head`: at most two pieces
/// (start, length), since they may wrap around the end. At most `size` bytes.
fn waiting(size: usize, tail: u64, head: u64) -> [(usize, usize); 2] {
    // The cursors only grow, and may wrap.
    let length = usize::try_from(head.wrapping_sub(tail)).map_or(size, |length| length.min(size));
    let start = usize::try_from(tail % size as u64).expect("less than `size`");
    let first = length.min(size - start);
    [(start, first), (0, length - first)]
}

/// Size of a memory page in bytes.
pub fn page_size() -> usize {
    // SAFETY: takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // 4096 is the smallest page of any machine that Linux runs on.
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::waiting;

    #[test]
    fn nothing_waits() {
        assert_eq!(waiting(16, 40, 40), [(8, 0), (0, 0)]);
    }

    #[test]
    fn records_in_one_piece() {
        assert_eq!(waiting(16, 16, 28), [(0, 12), (0, 0)]);
    }

    #[test]
    fn records_around_the_end() {
        assert_eq!(waiting(16, 28, 36), [(12, 4), (0, 4)]);
    }

    #[test]
    fn a_full_ring() {
        assert_eq!(waiting(16, 4, 20), [(4, 12), (0, 4)]);
    }

    #[test]
    fn cursors_past_the_largest_number() {
        assert_eq!(waiting(16, u64::MAX - 7, 8), [(8, 8), (0, 8)]);
    }
}
