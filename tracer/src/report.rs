//! The file that one process leaves.
//!
//! ```text
//! colocate-counts 2 x86_64
//! process PID PARENT START_NS END_NS
//! thread TID START_NS END_NS INSTRUCTIONS BRANCH FLOAT INT LOAD STORE UNDECODED NAME
//! misses LINE_BYTES LEFT LEFT_WRITTEN LINES:MISSES …
//! branches GUESSED MISSED
//! …
//! unsupported ADDRESS BYTES
//! …
//! block NUMBER ADDRESS BYTES …
//! …
//! stretch TID NUMBER …
//! …
//! handlers N
//! end THREADS
//! ```
//! Numbers are decimal, but for `ADDRESS`; it, `NAME` and `BYTES` are hexadecimal, `-` if empty.
//! `branches` follows its thread, too, if asked for. `misses` follows its thread if misses were asked for: lines that a cache of 4,112 lines gave up, how
//! many of them had been written to, and pairs of a cache's lines and the accesses that miss it.
//! Times are of `CLOCK_MONOTONIC`. Threads stand in the order of their creation. A file without
//! its last line is of a process that was killed. A block has the bytes of each of its instructions,
//! which follow each other; a stretch names the blocks that a thread ran in a row, in their order.

use crate::accesses::LINE_BYTES;
use crate::distances::Misses;
use crate::slots::KINDS;
use std::fmt::Write;

/// Version of the format.
pub const VERSION: u32 = 2;

/// A thread that has ended.
pub struct Thread {
    /// Its place in the order of creation.
    pub order: u64,
    /// Its number.
    pub tid: i32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What it ran, by kind.
    pub total: [u64; KINDS],
    /// Its name when it ended.
    pub name: Vec<u8>,
    /// How often caches of any size would have missed, if that was asked for.
    pub misses: Option<Misses>,
    /// Branches that had to be guessed, and those guessed wrongly, if that was asked for.
    pub branches: Option<[u64; 2]>,
}

/// An instruction that QEMU lacks.
pub struct Unsupported {
    /// Where it lies.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether it was run.
    pub ran: bool,
}

/// All that is said about a process.
pub struct Process<'a> {
    /// The architecture it is of, as QEMU names it.
    pub target: &'static str,
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its threads, in any order.
    pub threads: &'a mut [Thread],
    /// Instructions that QEMU lacks.
    pub unsupported: &'a [Unsupported],
    /// The lines of blocks and stretches.
    pub stretches: String,
    /// How often a signal handler returned.
    pub handlers: u64,
}

impl Process<'_> {
    /// The file's text.
    pub fn text(&mut self) -> String {
        let mut text = format!("colocate-counts {VERSION} {}\n", self.target);
        let (pid, parent) = (self.pid, self.parent);
        line(&mut text, format_args!("process {pid} {parent} {} {}", self.start_ns, self.end_ns));
        self.threads.sort_by_key(|thread| thread.order);
        for thread in &*self.threads {
            let Thread { tid, start_ns, end_ns, total, name, .. } = thread;
            let counts = total.map(|count| count.to_string()).join(" ");
            let name = hex(name);
            line(&mut text, format_args!("thread {tid} {start_ns} {end_ns} {counts} {name}"));
            if let Some(misses) = &thread.misses {
                misses_line(&mut text, misses);
            }
            if let Some([guessed, missed]) = thread.branches {
                line(&mut text, format_args!("branches {guessed} {missed}"));
            }
        }
        for found in self.unsupported.iter().filter(|found| found.ran) {
            let bytes = hex(&found.bytes);
            line(&mut text, format_args!("unsupported {:x} {bytes}", found.address));
        }
        text.push_str(&self.stretches);
        line(&mut text, format_args!("handlers {}", self.handlers));
        line(&mut text, format_args!("end {}", self.threads.len()));
        text
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(words);
    text.push('\n');
}

fn misses_line(text: &mut String, misses: &Misses) {
    let Misses { by_lines, left, left_written } = misses;
    let pairs = by_lines.iter().map(|(lines, missed)| format!(" {lines}:{missed}"));
    let pairs: String = pairs.collect();
    line(text, format_args!("misses {LINE_BYTES} {left} {left_written}{pairs}"));
}

/// `bytes` in hexadecimal, `-` if there are none.
fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes that `text` says in hexadecimal.
pub fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}
