//! Output of a guest's console, kept to diagnose failures.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::Path;

/// Bytes kept of the beginning of the output, and as many of the end. A whole boot with
/// `loglevel=7` writes 60 KiB, so only the output of a guest that floods is cut.
const KEPT_BYTES: usize = 1 << 20;
/// Bytes at the end in which a panic is searched: a panic's registers and stack take less.
const END_BYTES: usize = 32 << 10;
/// The kernel's message when it panics.
const PANIC: &str = "Kernel panic";
/// The kernel's message, 21 s after the last timer interrupt, about a CPU without further
/// interrupts. QEMU's emulation rarely loses a timer (seen once, with 10.0.2), and the guest hangs.
const LOST_TIMER: &str = "Possible timer handling issue on cpu";
/// The kernel's message, about every 20 s, about a CPU that does not schedule, with the duration.
/// On a busy host a guest has such pauses and continues. Once a guest hung while CPUs went offline.
const STUCK: (&str, &str) = ("soft lockup - CPU#", " stuck for ");
/// Seconds of a soft lockup after which a guest is killed. Chosen: a guest with 16 CPUs passed its
/// cases beside 14 busy threads on the host's 2 CPUs.
const STUCK_S: u32 = 100;
/// Characters of a line that a message shows.
const LINE_CHARS: usize = 300;

/// The beginning and the end of the output, in memory: no file remains if this process is killed.
#[derive(Default)]
pub struct Console {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
}

impl Console {
    /// Appends output.
    pub fn push(&mut self, bytes: &[u8]) {
        // The beginning fills first; later output goes through the ring of the end.
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..over);
        self.left_out += over;
    }

    /// True before any output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// True if the kernel panicked before `line` was printed.
    ///
    /// Only the kept beginning of the output is searched, so `line` must be an early line.
    #[must_use]
    pub fn panicked_before(&self, line: &str) -> bool {
        let came = String::from_utf8_lossy(&self.head);
        !came.contains(line) && self.last_line().contains(PANIC)
    }

    /// True if the first oops of the kernel is an int3 in its own code, followed by a panic.
    ///
    /// Kernel code contains an int3 only while the kernel patches a static key, and the int3
    /// handler expects the trap then.
    #[must_use]
    pub fn ended_by_int3(&self) -> bool {
        // The kernel numbers its oopses, from [#1] on.
        self.has("int3: 0000 [#1]") && self.last_line().contains(PANIC)
    }

    /// Reason why a CPU of the guest hangs for good, as a verb phrase. `None`: no such message.
    #[must_use]
    pub fn hangs(&self) -> Option<&'static str> {
        let text = self.text();
        if text.contains(LOST_TIMER) {
            Some("lost its timer")
        } else if text.lines().filter_map(lockup_s).any(|seconds| seconds >= STUCK_S) {
            Some("is stuck")
        } else {
            None
        }
    }

    fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    fn text(&self) -> String {
        let mut all = self.head.clone();
        all.extend(&self.tail);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// The most informative line of the end: the kernel's panic, else the last line that is not
    /// blank. The line is shortened and has no control characters.
    #[must_use]
    pub fn last_line(&self) -> String {
        let end: Vec<u8> = if self.tail.is_empty() {
            self.head[self.head.len().saturating_sub(END_BYTES)..].to_vec()
        } else {
            self.tail.range(self.tail.len().saturating_sub(END_BYTES)..).copied().collect()
        };
        let text = String::from_utf8_lossy(&end);
        let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        // The last panic, since the lines are reversed.
        let panic = lines.clone().find(|line| line.contains(PANIC));
        let line = panic.or_else(|| lines.next()).unwrap_or("nothing");
        line.chars().filter(|c| !c.is_control()).take(LINE_CHARS).collect()
    }

    /// Writes the kept output into a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        file.write_all(&self.head)?;
        if self.left_out > 0 {
            write!(file, "\n[lab: {} bytes left out]\n", self.left_out)?;
        }
        let (one, two) = self.tail.as_slices();
        file.write_all(one)?;
        file.write_all(two)
    }
}

/// Duration of the soft lockup that a complete line reports, in seconds.
fn lockup_s(line: &str) -> Option<u32> {
    let (_, seconds) = line.split_once(STUCK.0)?.1.split_once(STUCK.1)?;
    seconds.split_once('s')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_two_ends() {
        let mut console = Console::default();
        console.push(b"begin\n");
        for _ in 0..100 {
            console.push(&[b'x'; KEPT_BYTES / 10]);
        }
        console.push(b"\n\x1b[1mthe end\r\n\n");
        assert_eq!(console.last_line(), "[1mthe end");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("console");
        console.keep(&path).expect("written");
        let kept = std::fs::read(&path).expect("readable");
        assert!(kept.starts_with(b"begin\nxx") && kept.ends_with(b"the end\r\n\n"));
        // 100 pieces of a tenth are 10 times what is kept; two are kept.
        assert!(kept.len() > 2 * KEPT_BYTES && kept.len() < 2 * KEPT_BYTES + 100, "{}", kept.len());
    }

    #[test]
    fn a_panic_is_shown_and_not_what_follows_it() {
        let mut console = Console::default();
        console.push(b"[ 4.1] Kernel panic - not syncing: sysrq\r\n[ 4.2] Kernel Offset: 0x1\r\n");
        assert_eq!(console.last_line(), "[ 4.1] Kernel panic - not syncing: sysrq");
    }

    #[test]
    fn a_panic_before_the_first_process_differs_from_one_after_it() {
        let mut console = Console::default();
        assert!(!console.panicked_before("lab-1 begin"), "nothing came");
        console.push(b"[ 4.1] Kernel panic - not syncing: Fatal exception in interrupt\r\n");
        assert!(console.panicked_before("lab-1 begin"));
        let mut console = Console::default();
        console.push(b"lab-1 begin\r\n[ 9.1] Kernel panic - not syncing: sysrq\r\n");
        assert!(!console.panicked_before("lab-1 begin"));
    }

    #[test]
    fn a_lost_timer_is_seen() {
        let mut console = Console::default();
        console.push(b"[ 421.6] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\r\n");
        assert_eq!(console.hangs(), None);
        console.push(b"[ 421.7] rcu: \tPossible timer handling issue on cpu=5 timer-softirq=0\r\n");
        assert_eq!(console.hangs(), Some("lost its timer"));
    }

    #[test]
    fn a_cpu_that_is_stuck_differs_from_one_that_waits() {
        let mut console = Console::default();
        console.push(b"[  48.9] watchdog: BUG: soft lockup - CPU#6 stuck for 26s! [sh:49]\r\n");
        assert_eq!(console.hangs(), None);
        console.push(b"[ 828.7] watchdog: BUG: soft lockup - CPU#6 stuck for 2");
        assert_eq!(console.hangs(), None, "the line has not ended");
        console.push(b"11s! [ksoftirqd/6:49]\r\n");
        assert_eq!(console.hangs(), Some("is stuck"));
    }

    #[test]
    fn an_int3_differs_from_other_ends() {
        let ends = |first: &str| {
            let mut console = Console::default();
            console.push(b"lab-1 begin\r\n");
            console.push(first.as_bytes());
            console.push(b"[ 9.2] Kernel panic - not syncing: Fatal exception in interrupt\r\n");
            console.ended_by_int3()
        };
        assert!(ends("[ 9.1] Oops: int3: 0000 [#1] PREEMPT SMP PTI\r\n"), "Linux 6.12");
        assert!(ends("[ 9.1] int3: 0000 [#1] PREEMPT SMP PTI\r\n"), "Linux 6.1");
        assert!(!ends("[ 9.0] Oops: 0002 [#1] SMP\r\n[ 9.1] Oops: int3: 0000 [#2] SMP\r\n"));
        assert!(!ends(""));
    }

    #[test]
    fn a_silent_guest_says_nothing() {
        assert_eq!(Console::default().last_line(), "nothing");
    }
}
