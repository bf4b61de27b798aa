//! Pages of processes, queried and moved with move_pages(2).

#![allow(unsafe_code)] // system calls

use crate::{Pid, SysError};
use colocate_machine::NodeNr;
use std::fmt;

/// Also moves pages mapped by several processes (linux/mempolicy.h).
const MOVE_ALL: i32 = 1 << 2;
/// Moves only pages mapped by this process alone (linux/mempolicy.h).
const MOVE: i32 = 1 << 1;

/// An address in a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)] // arrays of it are handed to the kernel
pub struct Addr(pub u64);

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Status before the kernel writes any; neither a node nor an error number.
pub const NO_STATUS: i32 = i32::MIN;

/// Reason why a page is not on its intended node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Not in memory: never touched, or in swap.
    NotPresent,
    /// In use by a transfer, a pin or a lock.
    Busy,
    /// Mapped by several processes; moving the page needs `CAP_SYS_NICE`.
    Shared,
    /// No free memory on the node.
    NoMemory,
    /// Unmovable: memory of a device, the zero page.
    Unmovable,
}

/// Location of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageLocation {
    /// On this node.
    On(NodeNr),
    /// On no known node, for the reason given.
    Not(Stay),
}

/// Reads an answer of move_pages(2); `None` if the kernel gave none.
pub fn seen(status: i32) -> Option<PageLocation> {
    if let Ok(node) = u32::try_from(status) {
        return Some(PageLocation::On(NodeNr(node)));
    }
    if status == NO_STATUS {
        return None;
    }
    // Without overflow: `NO_STATUS` is the only number whose negative does not fit.
    Some(PageLocation::Not(match -status {
        libc::ENOENT => Stay::NotPresent,
        libc::EBUSY | libc::EAGAIN => Stay::Busy,
        libc::EACCES => Stay::Shared,
        libc::ENOMEM => Stay::NoMemory,
        _ => Stay::Unmovable,
    }))
}

/// Bytes in a page of this machine.
pub fn page_bytes() -> u64 {
    // SAFETY: takes a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Linux always reports a size; 4096 is that of x86-64.
    u64::try_from(size).unwrap_or(4096)
}

/// Queries the nodes of `pages` of process `pid`: one kernel status per page, to be decoded by
/// [`seen`].
///
/// # Errors
/// `ESRCH` if the process has ended, `EINVAL` if it has no memory any more or is a kernel thread,
/// `EPERM` if access is denied, `ENOSYS` on a kernel without NUMA.
pub fn query(pid: Pid, pages: &[Addr]) -> Result<Vec<i32>, SysError> {
    let mut status = vec![NO_STATUS; pages.len()];
    // SAFETY: `pages` is read and `status` is written, both for `pages.len()` elements; without nodes
    // nothing is moved, and the addresses are the other process's, which the kernel checks.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid.0,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    };
    if done < 0 { Err(SysError::last("move_pages")) } else { Ok(status) }
}

/// Answer of the kernel to a move of pages.
pub struct Put {
    /// One status per page; [`NO_STATUS`] for pages without an answer.
    pub status: Vec<i32>,
    /// Number of pages not moved, or the error of the call. In both cases some pages may have
    /// moved.
    pub done: Result<u64, SysError>,
}

/// Moves `pages` of process `pid` to `node`. Pages mapped by several processes move only if
/// `shared`, which needs `CAP_SYS_NICE`.
pub fn put(pid: Pid, pages: &[Addr], node: NodeNr, shared: bool) -> Put {
    let nodes = vec![node.0.cast_signed(); pages.len()];
    let mut status = vec![NO_STATUS; pages.len()];
    // SAFETY: `pages` and `nodes` are read and `status` is written, all for `pages.len()` elements; the
    // addresses are the other process's, which the kernel checks.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid.0,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            if shared { MOVE_ALL } else { MOVE },
        )
    };
    // Taken before anything else can change errno.
    let error = SysError::last("move_pages");
    Put { status, done: u64::try_from(done).map_err(|_| error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::skip;

    #[test]
    fn answers_of_the_manual() {
        assert_eq!(seen(3), Some(PageLocation::On(NodeNr(3))));
        assert_eq!(seen(NO_STATUS), None);
        for (errno, why) in [
            (libc::ENOENT, Stay::NotPresent),
            (libc::EBUSY, Stay::Busy),
            (libc::EACCES, Stay::Shared),
            (libc::ENOMEM, Stay::NoMemory),
            (libc::EFAULT, Stay::Unmovable),
            (libc::EIO, Stay::Unmovable),
        ] {
            assert_eq!(seen(-errno), Some(PageLocation::Not(why)), "{errno}");
        }
    }

    /// A page of this test is on a node, and one at an address that nothing can have is on none.
    #[test]
    fn our_own_pages_are_somewhere() {
        let here = [7_u8];
        let at = std::hint::black_box(&raw const here) as u64 / page_bytes() * page_bytes();
        let pid = Pid(std::process::id().cast_signed());
        let status = match query(pid, &[Addr(at), Addr(0)]) {
            Ok(status) => status,
            Err(error) => skip!(Numa, "{error}"),
        };
        assert!(matches!(seen(status[0]), Some(PageLocation::On(_))), "{status:?}");
        assert_eq!(seen(status[1]), Some(PageLocation::Not(Stay::Unmovable)));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        child.wait().unwrap();
        let errno = query(pid, &[Addr(0x1000)]).unwrap_err().errno();
        assert!(matches!(errno, Some(libc::ESRCH | libc::ENOSYS | libc::EPERM)), "{errno:?}");
    }
}
