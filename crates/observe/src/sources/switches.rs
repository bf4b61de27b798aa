//! How often each thread has waited of its own accord, and how often it has read or written: the kernel's counts in
//! `/proc/PID/task/TID/status` and `io`.
//!
//! For a program that answers requests these follow their number (docs/results/guard.md): it waits for the next one, or reads it,
//! and writes an answer. One that is never idle does not wait, and one that uses sockets by recv(2) and send(2) has no count
//! of what it reads, so the larger of the two is taken.

use super::{Backend, TaskRef, TaskUsage};
use crate::doctor::finding::{Finding, Inputs};
use colocate_evidence::{Provider, TaskId};
use colocate_files::kernel;
use colocate_linux::limits::Descriptors;
use colocate_machine::Nanos;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of threads read per quantum. Chosen: some 2 ms (measured on a virtual machine of
/// 2 PUs, 8 µs each).
const MOST: usize = 256;
/// Longest text in bytes. A `status` file has some 1.5 kB, and more if masks name thousands of PUs.
const LONGEST: usize = 16 << 10;

/// The open files of living tasks.
#[derive(Debug)]
pub struct Switches {
    /// Where `/proc` is mounted.
    proc: PathBuf,
    of: HashMap<TaskId, OfTask>,
    /// Maximum number of open files.
    most_open: usize,
    /// Readings since a quantum began.
    reads: usize,
}

/// The files of a task.
#[derive(Debug)]
struct OfTask {
    status: File,
    /// Needs permission to trace the process.
    io: Option<File>,
}

impl Switches {
    /// Source without tasks, for the processes listed under `proc`.
    #[must_use]
    pub fn new(proc: &Path) -> Self {
        // Two for each task, and an eighth of the limit.
        let most_open = usize::try_from(Descriptors::now().hard / 16).unwrap_or(usize::MAX);
        Self { proc: proc.to_owned(), of: HashMap::new(), most_open, reads: 0 }
    }

    /// Switches of a living task since its creation; `None` if unknown, or if too many tasks run.
    fn of(&mut self, task: TaskRef) -> Option<u64> {
        if self.reads == MOST {
            return None;
        }
        self.reads += 1;
        if !self.of.contains_key(&task.id) && self.of.len() < self.most_open {
            self.of.insert(task.id, OfTask::open(task, &self.proc)?);
        }
        self.of.get(&task.id)?.read()
    }
}

impl Backend for Switches {
    fn provider(&self) -> Provider {
        Provider {
            name: "/proc: status and io",
            cost: "two system calls for each task that runs, in each quantum".to_owned(),
            limits: Vec::new(),
        }
    }

    fn begin(&mut self) {
        self.reads = 0;
    }

    fn read(&mut self, task: TaskRef, _at: Nanos, usage: &mut TaskUsage) {
        // A task that has not run has not waited anew, nor read.
        if !usage.sleeps {
            usage.switches = self.of(task);
        }
    }

    fn ended(&mut self, task: TaskRef, _usage: &mut TaskUsage) {
        self.of.remove(&task.id);
    }
}

impl OfTask {
    fn open(task: TaskRef, proc: &Path) -> Option<Self> {
        let open =
            |file| kernel::open(&proc.join(format!("{}/task/{}/{file}", task.pid, task.tid)));
        Some(Self { status: open("status").ok()?, io: open("io").ok() })
    }

    fn read(&self) -> Option<u64> {
        let mut buffer = [0; LONGEST];
        let waited = sum(text(&self.status, &mut buffer)?, &["voluntary_ctxt_switches"])?;
        let io = self.io.as_ref().and_then(|io| text(io, &mut buffer));
        let calls = io.and_then(|io| sum(io, &["syscr", "syscw"]));
        Some(waited.max(calls.unwrap_or(0)))
    }
}

fn text<'b>(file: &File, buffer: &'b mut [u8; LONGEST]) -> Option<&'b str> {
    let length = file.read_at(buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..length]).ok()
}

/// The numbers of lines `NAME: NUMBER`, added up.
fn sum(text: &str, names: &[&str]) -> Option<u64> {
    names.iter().map(|name| kernel::field(text, name)?.parse::<u64>().ok()).sum()
}

/// Check of the kernel's counts of a thread.
pub(super) fn check(inputs: &Inputs<'_>) -> Finding {
    if inputs.place.io {
        return Finding::yes("/proc/self/io is there");
    }
    let why = "expected a kernel with CONFIG_TASK_IO_ACCOUNTING, found no /proc/self/io";
    Finding::partly("/proc/self/io is missing: calls that read and write are unknown", why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_evidence::JobIdx;
    use colocate_linux::{Pid, Tid};

    /// A pretended thread, whose `io` may not be read at first.
    #[test]
    fn the_larger_one_counts() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("7/task/8");
        std::fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
        write(
            "status",
            "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t900\n",
        );
        let task =
            |order| TaskRef { id: TaskId { job: JobIdx(0), order }, pid: Pid(7), tid: Tid(8) };
        let mut switches = Switches::new(proc.path());
        assert_eq!(switches.of(task(0)), Some(40));
        switches.ended(task(0), &mut TaskUsage::default());
        write("io", "rchar: 9\nwchar: 9\nsyscr: 30\nsyscw: 31\nread_bytes: 0\n");
        assert_eq!(switches.of(task(0)), Some(61));
        for order in (2..).take(MOST - 2) {
            assert_eq!(switches.of(task(order)), Some(61));
        }
        assert_eq!(switches.of(task(0)), None, "more than are read in a quantum");
        switches.begin();
        write("status", "Name:\tx\n");
        assert_eq!(switches.of(task(0)), None);
    }
}
