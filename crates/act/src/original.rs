//! Which mask a task has that was not placed.
//!
//! # Problem
//! What sched_getaffinity(2) says of a task is less than what it was given: PUs that are offline are
//! missing, and so are those that its cpuset does not have now. Since Linux 6.2 the kernel keeps what
//! was requested, and grants it again when the cpuset grows. A task that was given the answer
//! would never run on a PU that comes later.
//! # Approach
//! Request everything, in a process made for that, and read what the kernel grants. If our own mask has
//! all of it, it was not narrowed, and everything is restored to a task. If not, it was
//! narrowed, as by `taskset`, and our own mask is restored to a task, offline PUs included.

use colocate_files::kernel;
use colocate_linux::sys::{self, Fork};
use colocate_linux::{SysError, Tid, affinity};
use colocate_machine::read::Sysfs;
use colocate_machine::{PuNr, PuSet};
use std::io::{self, Read, Write};
use std::path::Path;

/// Mask to restore in tasks that have inherited colocate's mask. Must be called before threads are
/// created, as it forks. `proc` is `/proc`.
///
/// # Errors
/// If our own mask cannot be read. If no process can be created, the result is our own mask.
pub fn original(proc: &Path, files: &Sysfs) -> Result<PuSet, SysError> {
    let own = affinity::of(Tid(0))?;
    let own = given(proc).filter(|given| own.is_subset(given)).unwrap_or(own);
    let everything = everything(files);
    if everything.is_subset(&own) {
        // Nothing is narrowed, and nothing has to be tried out.
        return Ok(everything);
    }
    Ok(chosen(own, granted(proc, &everything).as_ref(), everything))
}

/// All possible PUs of this kernel: the mask of unrestricted threads.
pub fn everything(files: &Sysfs) -> PuSet {
    files.possible().unwrap_or_else(all)
}

fn chosen(own: PuSet, granted: Option<&PuSet>, everything: PuSet) -> PuSet {
    // Without a result of the trial, our own mask is the safe answer.
    let is_narrowed = granted.is_none_or(|granted| !granted.is_subset(&own));
    if is_narrowed { own } else { everything }
}

/// The mask of this thread with its offline PUs, by proc(5).
fn given(proc: &Path) -> Option<PuSet> {
    let status = kernel::read(&proc.join("thread-self/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    PuSet::parse_list(kernel::field(&status, "Cpus_allowed_list")?).ok()
}

/// All PUs that a mask can name.
fn all() -> PuSet {
    (0..affinity::MOST_PUS).map(PuNr::new).collect()
}

/// Kernel's mask after setting `wanted`, tried in another process.
fn granted(proc: &Path, wanted: &PuSet) -> Option<PuSet> {
    let (mut reader, mut writer) = io::pipe().ok()?;
    let child = match sys::fork().ok()? {
        Fork::Parent(child) => child,
        Fork::Child => {
            drop(reader);
            // Nothing may unwind into the code of the process that this is a copy of.
            let _ = std::panic::catch_unwind(move || {
                let set = affinity::set(Tid(0), wanted).ok();
                let found = set.and_then(|()| given(proc));
                // An empty list stands for a failure: no granted mask is empty.
                let _ = writer.write_all(found.unwrap_or_default().to_string().as_bytes());
            });
            sys::exit_now(0)
        }
    };
    // Our own write end would keep the pipe from ending.
    drop(writer);
    let mut text = String::new();
    let read = reader.read_to_string(&mut text);
    // Fails if colocate was started with SIGCHLD ignored; the child is gone then as well.
    let _ = sys::wait(Some(child), true);
    read.ok()?;
    PuSet::parse_list(&text).ok().filter(|set| !set.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> PuSet {
        PuSet::parse_list(list).unwrap()
    }

    #[test]
    fn everything_is_restored_unless_our_mask_was_narrowed() {
        let chosen = |own, granted: &str| {
            let granted = Some(set(granted)).filter(|set| !set.is_empty());
            chosen(set(own), granted.as_ref(), set("0-15")).to_string()
        };
        assert_eq!(chosen("0-7", "0-7"), "0-15", "the cpuset alone leaves 0-7");
        assert_eq!(
            chosen("0-15", "0-4,6-15"),
            "0-15",
            "5 is offline, and not granted before Linux 6.2"
        );
        assert_eq!(chosen("0-3", "0-7"), "0-3", "taskset");
        assert_eq!(chosen("0-3", ""), "0-3", "unknown");
    }

    #[test]
    fn ours_has_what_we_may_use() {
        let original = original(Path::new("/proc"), &Sysfs::at(Path::new("/"))).unwrap();
        assert!(affinity::of(Tid(0)).unwrap().is_subset(&original), "{original}");
    }
}
