//! The probes, really run.

#![allow(unsafe_code)] // system calls that have no safe form in the standard library

use super::probe::{Errno, Probe, Probes};
use crate::lifecycle::LifecycleOptions;
use crate::perf::{Attr, PerfEvent, Ring};
use crate::pmu::open::Spec;
use crate::pmu::pfm::Pfm;
use crate::pmu::{self, specs};
use crate::sources::wake_ups::sampled::{SampleError, WakingSamples};
use colocate_ebpf::{EbpfError, EbpfProgram, Follow};
use colocate_linux::affinity::{self, Mask};
use colocate_linux::{Pid, SysError, Tid, foreign, privilege};
use colocate_machine::PuNr;
use perf_event_open_sys::bindings as c;
use std::os::fd::AsRawFd;

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalMachine;

impl Probes for LocalMachine {
    fn run(&self, probe: Probe) -> Result<(), Errno> {
        match probe {
            Probe::Affinity => affinity(),
            Probe::CountTime => {
                count(c::PERF_TYPE_SOFTWARE, u64::from(c::PERF_COUNT_SW_TASK_CLOCK))
            }
            Probe::CountInstructions => {
                count(c::PERF_TYPE_HARDWARE, u64::from(c::PERF_COUNT_HW_INSTRUCTIONS))
            }
            Probe::CountTogether => count_together(),
            Probe::TaskEvents => ring(&Attr::task_events(1), 16),
            Probe::TaskEventsSmall => ring(&Attr::task_events(1), 1),
            Probe::Samples => ring(&Attr::clock_samples(1_000_000, 1), 1),
            Probe::LoadEbpf => load_ebpf(),
            Probe::SampleWakeUps => sample_wake_ups(),
            Probe::ReadMemory => read_memory(),
            Probe::UserFault => user_fault(),
            Probe::PagemapScan => pagemap_scan(),
            Probe::LibPfm => Pfm::get().map(drop).map_err(|_| Errno(libc::ENOENT)),
            Probe::AffinityOfOthers
            | Probe::MovePages
            | Probe::MovePagesOfOthers
            | Probe::BindMemory
            | Probe::SetPolicy
            | Probe::MigratePages
            | Probe::MemoryPolicy => system_call(probe),
        }
    }
}

/// Error of the last call.
fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn ok(returned: i64) -> Result<(), Errno> {
    if returned < 0 { Err(last()) } else { Ok(()) }
}

fn errno(error: &SysError) -> Errno {
    Errno(error.errno().unwrap_or(libc::EIO))
}

/// Idle child, accessible to inspection like an executed program. Killed on drop.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Result<Self, Errno> {
        let parent = i32::try_from(std::process::id()).unwrap_or(-1);
        // SAFETY: the child makes only system calls that may be made after a fork of a process
        // with threads, and never returns.
        match unsafe { libc::fork() } {
            0 => idle(parent),
            -1 => Err(last()),
            pid => Self(pid).stopped(),
        }
    }

    /// Waits until the child has stopped itself, or has ended.
    fn stopped(self) -> Result<Self, Errno> {
        let pid = self.0.unsigned_abs();
        // An end is only peeked at, so that the number stays the child's until it is dropped.
        let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        loop {
            // SAFETY: all zeros is a valid value of this plain structure.
            let mut what: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: `what` is a valid place to write to.
            let done = unsafe { libc::waitid(libc::P_PID, pid, &raw mut what, options) };
            match ok(done.into()) {
                Err(Errno(libc::EINTR)) => {}
                done => return done.map(|()| self),
            }
        }
    }
}

/// Main function of the child: it stops itself at once, and lives no longer than `parent`.
fn idle(parent: libc::pid_t) -> ! {
    // SAFETY: takes a signal number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // With file capabilities (setcap) this process is closed to others of its user, and so is its
    // copy. A program that it executes is not, and has none of them.
    privilege::let_go();
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    // Whenever it is continued, the child stops itself again.
    loop {
        // SAFETY: takes nothing.
        if unsafe { libc::getppid() } != parent {
            // SAFETY: takes a number; runs nothing of ours.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: takes a signal number.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, which has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: a null pointer says that the status is not wanted.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

fn affinity() -> Result<(), Errno> {
    let child = Child::new()?;
    let tid = Tid(child.0);
    let mask = affinity::of(tid).map_err(|error| errno(&error))?;
    affinity::set(tid, &mask).map_err(|error| errno(&error))?;
    let is_same = affinity::of(tid).map_err(|error| errno(&error))? == mask;
    if is_same { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

/// Runs a probe that is a single system call.
fn system_call(probe: Probe) -> Result<(), Errno> {
    let here = 1_u8;
    let page: *const u8 = std::hint::black_box(&raw const here);
    let (mask, mut number): (Mask, i32) = ([0; 128], 0);
    let [page, mask, number] = [
        (&raw const page).expose_provenance(),
        mask.as_ptr().expose_provenance(),
        (&raw mut number).expose_provenance(),
    ];
    /// Larger than any number of policies or nodes.
    const NONSENSE: usize = i32::MAX as usize;
    // The call, its arguments, and whether the kernel refuses them (`EINVAL`) once a filter has let the call through and the
    // permission is checked.
    let (call, arguments, is_nonsense): (libc::c_long, [usize; 5], bool) = match probe {
        Probe::AffinityOfOthers => {
            (libc::SYS_sched_setaffinity, [1, size_of::<Mask>(), mask, 0, 0], true)
        }
        // Without nodes the call only asks.
        Probe::MovePages => (libc::SYS_move_pages, [0, 1, page, 0, number], false),
        Probe::MovePagesOfOthers => (libc::SYS_move_pages, [another_process(), 0, 0, 0, 0], false),
        Probe::SetPolicy => (libc::SYS_set_mempolicy, [NONSENSE, 0, 0, 0, 0], true),
        Probe::MigratePages => (libc::SYS_migrate_pages, [0, NONSENSE, mask, mask, 0], true),
        Probe::MemoryPolicy => (libc::SYS_get_mempolicy, [number, 0, 0, 0, 0], false),
        // Of no page.
        _ => (libc::SYS_mbind, [0; 5], false),
    };
    let [first, second, third, fourth, fifth] = arguments;
    // SAFETY: the addresses are those of variables that live through the call and are as large as it reads and writes.
    let done = ok(unsafe { libc::syscall(call, first, second, third, fourth, fifth, 0_usize) });
    done.or_else(|errno| if is_nonsense && errno.0 == libc::EINVAL { Ok(()) } else { Err(errno) })
}

fn count(kind: u32, config: u64) -> Result<(), Errno> {
    specs::counts(&[Spec { kind, config }]).map_err(|error| errno(&error))
}

fn count_together() -> Result<(), Errno> {
    let found = pmu::available().map_err(|error| errno(error.cause()))?;
    let turns = found.pmus.iter().any(|pmu| pmu.groups.len() > 1);
    if turns { Err(Errno(libc::EBUSY)) } else { Ok(()) }
}

fn ring(attr: &Attr, pages: usize) -> Result<(), Errno> {
    let child = Child::new()?;
    let cpu = LifecycleOptions::here().ok().and_then(|options| options.cpus.first().copied());
    let attr = attr.inherited();
    let event = PerfEvent::open(&attr, Tid(child.0), Some(cpu.unwrap_or(PuNr(0))));
    event.and_then(|event| Ring::map(event, pages)).map(drop).map_err(|error| errno(&error))
}

fn load_ebpf() -> Result<(), Errno> {
    let follow = Follow { pairs: true, phases: true };
    privilege::watching(|| EbpfProgram::start(follow)).map(drop).map_err(|why| match why {
        EbpfError::NotBuilt => Errno(libc::ENOEXEC),
        EbpfError::Denied => Errno(libc::EPERM),
        EbpfError::Refused(_) | EbpfError::Full(_) => Errno(libc::EINVAL),
    })
}

fn sample_wake_ups() -> Result<(), Errno> {
    let cpus = LifecycleOptions::here().map_err(|error| errno(&error))?.cpus;
    WakingSamples::start(&cpus).map(drop).map_err(|why| match why {
        SampleError::Tracepoint(why) => Errno(why.errno()),
        SampleError::Perf(why) => errno(&why),
        SampleError::Numbers => Errno(libc::ENXIO),
    })
}

fn read_memory() -> Result<(), Errno> {
    static KNOWN: [u8; 8] = *b"colocate";
    let child = Child::new()?;
    let mut copy = [0_u8; 8];
    // The child is a copy of this process, so the address is valid there.
    foreign::memory(Pid(child.0), KNOWN.as_ptr().addr() as u64, &mut copy)
        .map_err(|why| Errno(why.raw_os_error().unwrap_or(libc::EIO)))?;
    if copy == KNOWN { Ok(()) } else { Err(Errno(libc::EIO)) }
}

fn user_fault() -> Result<(), Errno> {
    // SAFETY: takes flags only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    ok(fd)?;
    // SAFETY: the kernel has just given us this descriptor; it has no other owner.
    unsafe { libc::close(i32::try_from(fd).unwrap_or(-1)) };
    Ok(())
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

fn pagemap_scan() -> Result<(), Errno> {
    /// `_IOWR('f', 16, struct pm_scan_arg)`.
    const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<ScanArg>() as u64) << 16 | 0x66 << 8 | 16;
    let child = Child::new()?;
    let file = std::fs::File::open(format!("/proc/{}/pagemap", child.0))
        .map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
    // An empty range from 0 to 0.
    let mut arg = ScanArg { size: size_of::<ScanArg>() as u64, ..ScanArg::default() };
    // SAFETY: `arg` has its size filled in and lives through the call.
    ok(unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) }.into())
}

/// Number of a process with memory: if possible another user's, else a process other than this and
/// process 1, whose capabilities or security label may be unlike all processes'. 1 without such a
/// process.
fn another_process() -> usize {
    let us = (std::process::id(), rustix::process::getuid().as_raw());
    let mut of_this_user = None;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = number.filter(|pid| *pid != 1 && *pid != us.0) else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let has_memory = status.lines().any(|line| line.starts_with("VmSize:"));
        let uid =
            status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
        let Some(uid) = uid.and_then(|uid| uid.parse::<u32>().ok()).filter(|_| has_memory) else {
            continue;
        };
        if uid != us.1 {
            return pid as usize;
        }
        of_this_user = Some(pid as usize);
    }
    of_this_user.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Probe; 20] = [
        Probe::Affinity,
        Probe::AffinityOfOthers,
        Probe::CountTime,
        Probe::CountInstructions,
        Probe::CountTogether,
        Probe::TaskEvents,
        Probe::TaskEventsSmall,
        Probe::Samples,
        Probe::LoadEbpf,
        Probe::SampleWakeUps,
        Probe::ReadMemory,
        Probe::MovePages,
        Probe::MovePagesOfOthers,
        Probe::BindMemory,
        Probe::SetPolicy,
        Probe::MigratePages,
        Probe::MemoryPolicy,
        Probe::UserFault,
        Probe::PagemapScan,
        Probe::LibPfm,
    ];

    #[test]
    fn probes_answer_with_a_number_that_the_kernel_gives() {
        for probe in ALL {
            if let Err(errno) = LocalMachine.run(probe) {
                assert!(errno.symbol().is_some(), "{probe:?}: {errno}");
            }
        }
        assert_eq!(LocalMachine.run(Probe::Affinity), Ok(()));
    }

    #[test]
    fn probes_change_nothing() {
        let masks = || [0, 1].map(|tid| affinity::of(Tid(tid)).ok());
        let before = masks();
        for probe in ALL {
            let _ = LocalMachine.run(probe);
        }
        assert_eq!(masks(), before);
    }
}
