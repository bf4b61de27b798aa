//! What `/proc/PID/task/TID/stat` says of one thread, and which processes there are.

use crate::{Pid, Tid};
use colocate_files::kernel;
use colocate_machine::{Nanos, PuNr};
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

/// Fields of `/proc/PID/task/TID/stat` for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter, as in `ps`.
    pub state: char,
    /// Parent of the thread's process.
    pub parent: Pid,
    /// Session of its process (setsid(2)).
    pub session: Pid,
    /// CPU time used, in clock ticks of 10 ms.
    pub cpu_time: Nanos,
    /// Number of threads in the process.
    pub threads: u32,
    /// Creation time in clock ticks since boot. Together with the thread's number it is unique:
    /// numbers are reused, times are not.
    pub start_ticks: u64,
    /// PU of the thread, or of its last execution.
    pub last_ran: PuNr,
}

const STAT_B: usize = 2048;
/// Nanoseconds in a clock tick: `USER_HZ` is 100 on every supported architecture.
const TICK_NS: u64 = 10_000_000;

impl Stat {
    /// Maximum size of a stat file in bytes: 51 numbers of at most 20 digits and a sign, a name of
    /// 64 bytes, and separators (proc(5), fs/proc/array.c).
    pub const LONGEST_B: u64 = STAT_B as u64;

    /// Reads thread `tid` of process `pid` below `proc`, which is `/proc` on a live machine. `None`
    /// if the thread has ended or the file cannot be read.
    pub fn read(proc: &Path, pid: Pid, tid: Tid) -> Option<Self> {
        Self::try_read(proc, pid, tid).ok()
    }

    /// Reads thread `tid` of process `pid`, as [`Self::read`].
    ///
    /// # Errors
    /// If the file cannot be read; [`Proc::has_ended`] tells the end of the thread from further
    /// causes.
    ///
    /// [`Proc::has_ended`]: crate::proc::Proc::has_ended
    pub fn try_read(proc: &Path, pid: Pid, tid: Tid) -> io::Result<Self> {
        let text = text(&proc.join(format!("{pid}/task/{tid}/stat")))?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses the text of a stat file (proc(5)).
    pub fn parse(text: &str) -> Option<Self> {
        let mut field = fields(text)?;
        let state = field(3)?.chars().next()?;
        let parent = Pid(field(4)?.parse().ok()?);
        let session = Pid(field(6)?.parse().ok()?);
        let mut number = |place| field(place)?.parse::<u64>().ok();
        Some(Self {
            state,
            parent,
            session,
            // User and system time.
            cpu_time: Nanos((number(14)? + number(15)?).saturating_mul(TICK_NS)),
            threads: u32::try_from(number(20)?).ok()?,
            start_ticks: number(22)?,
            last_ran: PuNr(u32::try_from(number(39)?).ok()?),
        })
    }

    /// Time since boot in clock ticks, rounded down as in the kernel.
    pub const fn ticks(since_boot: Nanos) -> u64 {
        since_boot.0 / TICK_NS
    }

    /// Whether a signal or a tracer has stopped the thread.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether the thread is runnable: on a PU or waiting for a PU.
    pub fn could_run(&self) -> bool {
        self.state == 'R'
    }

    /// Whether the thread sleeps in the kernel without being interruptible: for storage, or for a lock.
    pub fn is_uninterruptible(&self) -> bool {
        self.state == 'D'
    }

    /// Whether the thread has ended and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// CPU time of the reaped children of process `pid` and of their reaped children, in clock ticks of
/// 10 ms; `None` after the process's end.
pub fn children_time(proc: &Path, pid: Pid) -> Option<Nanos> {
    parse_children_time(&text(&proc.join(format!("{pid}/stat"))).ok()?)
}

fn parse_children_time(text: &str) -> Option<Nanos> {
    let mut field = fields(text)?;
    let mut ticks = |place| field(place)?.parse::<u64>().ok();
    Some(Nanos((ticks(16)? + ticks(17)?).saturating_mul(TICK_NS)))
}

/// State letter and parent in the text of a stat file, which may be cut off after them.
pub(super) fn state_and_parent(text: &str) -> Option<(char, Pid)> {
    let mut field = fields(text)?;
    Some((field(3)?.chars().next()?, Pid(field(4)?.parse().ok()?)))
}

/// State letter and kernel flags in the text of a stat file, which may be cut off after them.
pub(super) fn state_and_flags(text: &str) -> Option<(char, u32)> {
    let mut field = fields(text)?;
    Some((field(3)?.chars().next()?, field(9)?.parse().ok()?))
}

/// Accessor for the fields after the name, by their numbers in proc(5), from 3 on. Calls need
/// rising numbers.
fn fields<'a>(text: &'a str) -> Option<impl FnMut(usize) -> Option<&'a str>> {
    // The name is in parentheses and may itself hold some, so the last one counts.
    let mut fields = (3..).zip(text.rsplit_once(')')?.1.split_ascii_whitespace());
    Some(move |place| fields.find(|(at, _)| *at == place).map(|(_, field)| field))
}

/// Text of a file, read with one call. A thread's name can be any bytes, for instance a cut UTF-8
/// character.
fn text(path: &Path) -> io::Result<String> {
    let mut bytes = [0; STAT_B];
    let length = kernel::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// All processes below `proc`, each with the stat fields of its first thread.
///
/// # Errors
/// If the folder cannot be listed.
pub fn processes(proc: &Path) -> io::Result<HashMap<Pid, Stat>> {
    let names = kernel::names(proc)?;
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok()).map(Pid);
    let stats = pids.filter_map(|pid| {
        let text = text(&proc.join(format!("{pid}/stat"))).ok()?;
        Some((pid, Stat::parse(&text)?))
    });
    Ok(stats.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_mean_name() {
        let line = "77 (a) R (b)) S 12 77 77 0 -1 4194304 90 0 0 0 3 4 5 6 20 0 1 0 5555 8192 \
                    10 18446744073709551615 1 1 0 0 0 0 0 0 0 1 0 0 17 13 0 0 0 0 0";
        assert_eq!(parse_children_time(line), Some(Nanos::from_millis(110)));
        let stat = Stat {
            state: 'S',
            parent: Pid(12),
            session: Pid(77),
            cpu_time: Nanos::from_millis(70),
            threads: 1,
            start_ticks: 5555,
            last_ran: PuNr(13),
        };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("77 (a) S 12"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn a_name_that_is_not_text_hides_no_thread() {
        let named = std::thread::spawn(|| {
            crate::sys::set_name(c"\xc3");
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            Stat::read(Path::new("/proc"), Pid(std::process::id().cast_signed()), Tid(tid))
        });
        assert!(named.join().unwrap().is_some());
    }

    #[test]
    fn this_thread_is_found() {
        let pid = Pid(std::process::id().cast_signed());
        let stat = Stat::read(Path::new("/proc"), pid, pid.first_thread()).unwrap();
        assert!(!stat.is_dead() && stat.start_ticks > 0);
        assert_eq!(processes(Path::new("/proc")).unwrap()[&pid].parent, stat.parent);
    }
}
