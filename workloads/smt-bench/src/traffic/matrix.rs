//! Matrix of bytes and its traversal.
//!
//! # Problem
//! Every access must be to a line no longer held by the next nearer level. The published traversal,
//! column 0, then column 1 and so on, returns to a line as soon as one line of each row was met:
//! with 196,608 rows after 12 MiB, which many last-level caches hold today.
//!
//! # Approach
//! Columns are traversed in another order: 0, 64, 128, …, 512, then 1, 65, …. So every line of the
//! matrix is met before any line is met again, and the number of rows is chosen for the size of the
//! cache.
//!
//! Rows are one line longer than the published 512 bytes: steps of a power of two use few of a
//! cache's sets and of a memory's banks. See [`ROW_BYTES`].
//!
//! # Properties
//! - **Whole**: every byte is met once before one is met again.  -> test `every_byte_once`
//! - **Far**: every line is met once before one is met again.  -> test `every_line_before_one_again`
//! - **Counted**: a walk of n lines meets n bytes.               -> test `walks_add_up`

use core::arch::asm;
use std::io;
use std::ptr;

/// Bytes of a row: the published 512 and a line. Measured on a Sapphire Rapids guest with other
/// load, 2026-11-21: a traversal of main memory in steps of 512 bytes requests at most 67 t/µs, of
/// 576 bytes 110, of 1088 bytes 113, and of 64 bytes, with prefetching, 212.
pub const ROW_BYTES: usize = 576;
/// Columns, of one byte each.
pub const COLUMNS: u64 = ROW_BYTES as u64;
/// Bytes of a cache line: 64 on every processor with these loops, except 128 on Apple's, where two
/// consecutive columns are in one line.
const LINE: u64 = 64;
/// Lines of a row.
const LINES: u64 = COLUMNS / LINE;

/// Column of the traversal's step `step`, from 0 to [`COLUMNS`] − 1.
const fn column(step: u64) -> u64 {
    step % LINES * LINE + step / LINES
}

/// A matrix of bytes, with the position of the traversal.
pub struct Matrix {
    start: *mut u8,
    rows: u64,
    row: u64,
    step: u64,
}

// SAFETY: the memory is the matrix's own, and nothing else points to it.
unsafe impl Send for Matrix {}

impl Matrix {
    /// Allocates a matrix of `rows` rows, at least one. The calling thread writes every page, so
    /// the pages are in memory near its PU. Uses huge pages if available, so that the traversal
    /// requests lines and no page table entries.
    ///
    /// # Errors
    /// `ENOMEM` of mmap(2).
    pub fn new(rows: u32) -> io::Result<Self> {
        let rows = rows.max(1);
        let size = rows as usize * ROW_BYTES;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps new memory at an address that the kernel chooses; nothing is replaced.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the memory is ours. A kernel without huge pages rejects the advice, without
        // effect.
        unsafe { libc::madvise(start, size, libc::MADV_HUGEPAGE) };
        // SAFETY: `size` bytes from `start` are ours.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, size) };
        Ok(Self { start: start.cast(), rows: rows.into(), row: 0, step: 0 })
    }

    /// Increments the next `lines` bytes of the traversal, followed by `nops` `nop`s each.
    pub fn walk(&mut self, lines: u64, nops: u64) {
        let mut left = lines;
        while left > 0 {
            let now = left.min(self.rows - self.row);
            let place = self.row * COLUMNS + column(self.step);
            #[allow(clippy::cast_possible_truncation)] // below the matrix's size, which is a usize
            let place = place as usize;
            // SAFETY: `row` + `now` is at most `rows` and the column below `COLUMNS`, so every byte met is
            // in the matrix.
            unsafe { meet(self.start.add(place), now, nops) };
            left -= now;
            self.row += now;
            if self.row == self.rows {
                self.row = 0;
                self.step = (self.step + 1) % COLUMNS;
            }
        }
    }
}

impl Drop for Matrix {
    #[allow(clippy::cast_possible_truncation)] // a usize when it was made
    fn drop(&mut self) {
        // SAFETY: the memory is ours, as `new` got it, and is not used after this.
        unsafe { libc::munmap(self.start.cast(), self.rows as usize * ROW_BYTES) };
    }
}

/// Instructions that differ between architectures. `next` increments a byte and goes to the next
/// row: `ROW_BYTES`, as an immediate.
#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
macro_rules! instruction {
    (next) => { "inc byte ptr [{at}] /* {byte} */\nadd {at}, 576" };
    (skip_none) => { "test {left}, {left}\njz 4f" };
}
#[rustfmt::skip]
#[cfg(target_arch = "aarch64")]
macro_rules! instruction {
    (next) => {
        "ldrb {byte:w}, [{at}]\nadd {byte:w}, {byte:w}, #1\nstrb {byte:w}, [{at}]\nadd {at}, {at}, #576"
    };
    (skip_none) => { "cbz {left}, 4f" };
}

/// Increments the byte at `at` and the bytes of the next `lines` − 1 rows, each followed by `nops`
/// times a `nop` and its count.
///
/// # Safety
/// All these bytes must be the caller's, and `lines` above 0.
#[inline(never)]
unsafe fn meet(at: *mut u8, lines: u64, nops: u64) {
    // SAFETY: writes the bytes that the caller promises, and the named registers and flags only.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            instruction!(next),
            "mov {left}, {nops}",
            instruction!(skip_none),
            "3:",
            "nop",
            back!("left", "3b"),
            "4:",
            back!("lines", "2b"),
            at = inout(reg) at => _,
            lines = inout(reg) lines => _,
            nops = in(reg) nops,
            left = out(reg) _,
            byte = out(reg) _,
            options(nostack)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bytes(matrix: &Matrix) -> Vec<u8> {
        let size = usize::try_from(matrix.rows).unwrap() * ROW_BYTES;
        // SAFETY: the matrix has so many bytes, all written.
        unsafe { std::slice::from_raw_parts(matrix.start, size) }.to_vec()
    }

    /// Three rows: the walk meets 0, 576 and 1152, then 64, 640 and 1216, then 128.
    #[test]
    fn the_first_bytes_by_hand() {
        let mut matrix = Matrix::new(3).unwrap();
        matrix.walk(7, 2);
        let found = bytes(&matrix);
        let met: Vec<usize> = (0..found.len()).filter(|&at| found[at] > 0).collect();
        assert_eq!(met, [0, 64, 128, 576, 640, 1152, 1216]);
        assert!(met.iter().all(|&at| found[at] == 1));
    }

    #[test]
    fn every_byte_once() {
        for nops in [0, 1, 3] {
            let mut matrix = Matrix::new(5).unwrap();
            matrix.walk(5 * COLUMNS, nops);
            assert!(bytes(&matrix).iter().all(|&byte| byte == 1), "{nops}");
            matrix.walk(5 * COLUMNS, nops);
            assert!(bytes(&matrix).iter().all(|&byte| byte == 2), "{nops}");
        }
    }

    #[test]
    fn every_line_before_one_again() {
        let columns: Vec<u64> = (0..COLUMNS).map(column).collect();
        assert_eq!(columns.iter().collect::<BTreeSet<_>>().len(), ROW_BYTES);
        for nine in columns.chunks(9) {
            let lines: BTreeSet<u64> = nine.iter().map(|column| column / LINE).collect();
            assert_eq!(lines.len(), 9, "{nine:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn walks_add_up(rows in 1..40_u32, walks in prop::collection::vec((0..300_u64, 0..4_u64), 0..12)) {
            let mut matrix = Matrix::new(rows).unwrap();
            walks.iter().for_each(|&(lines, nops)| matrix.walk(lines, nops));
            let all: u64 = walks.iter().map(|(lines, _)| lines).sum();
            let met: u64 = bytes(&matrix).into_iter().map(u64::from).sum();
            prop_assert_eq!(met, all);
            prop_assert_eq!(matrix.step * u64::from(rows) + matrix.row, all % (COLUMNS * u64::from(rows)));
        }
    }
}
