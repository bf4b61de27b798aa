//! Memory and files of other processes, read by a helper process with a deadline.
//!
//! # Problem
//! The memory of a process may lie in a file on a FUSE file system, and so may its executable; its arguments and its
//! environment are memory, too. A thread that reads there sleeps until the server of that file system answers, which is a
//! user's program and may never do so, and nothing ends such a sleep, not even SIGKILL. A process with such a thread cannot
//! be ended.
//! # Approach
//! A child process reads. It makes only system calls, so it may be forked while there are threads. A reading that takes
//! longer than [`DEADLINE`] has failed: the helper is killed, and left alone if that does not end it. The next reading has a new one.
//! The process whose memory it was is not read any more, and after [`MOST_STUCK`] such helpers no process is. Answers that are late
//! take a share of the time at most ([`SLOW_SHARE`]). So no caller waits for longer than some seconds.
//! # Properties
//! - **A reading ends**: also where the memory is never there. -> tests `a_helper_that_does_not_answer`,
//!   `memory_that_never_comes` of the command line
//! - **Nothing is held open by it**: a helper has closed all but its socket, and ends with the process that has forked it. -> test
//!   `a_helper_ends_with_its_socket`

#![allow(unsafe_code)] // fork, and system calls of the child

mod serve;

use crate::Pid;
use colocate_files::{LargeFile, open_seen_code};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serve::{memory_of, serve};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a read. Chosen: only a sleeping disk takes longer and still works.
const DEADLINE: Duration = Duration::from_millis(300);
/// Time limit of a read while the helper waits for a PU. Chosen: on a machine with a load of a
/// hundred the helper has had a PU by then.
const LONGEST: Duration = Duration::from_secs(2);
/// Maximum number of helpers without an answer before all reading ends. Chosen: each helper may
/// stay for ever, and the placing thread has waited for more than a second by then.
const MOST_STUCK: usize = 4;

/// Time after which a read counts as slow, and interval of the checks of the helper. Chosen: many
/// times a normal read.
const STEP: Duration = Duration::from_millis(20);
/// Inverse share of slow reads: at most this part of the time since the first read, beside
/// [`LONGEST`]. Chosen: the waiting thread still places threads and answers signals nearly all the
/// time.
const SLOW_SHARE: u32 = 20;

/// Bytes per read.
const AT_ONCE_B: usize = 1 << 16;
/// Bytes of a path, at most (limits.h).
const PATH_B: usize = 4096;

/// File systems served by a program (FUSE, linux/magic.h).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// Request to the helper.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    kind: RequestKind,
    pid: i32,
    /// An address, or a place in a file.
    from: u64,
    length: usize,
    /// Of a file; the last byte is 0.
    path: [u8; PATH_B],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
enum RequestKind {
    /// The memory of a process.
    Memory,
    /// A file, whose folder may be passed as a descriptor.
    File,
    /// A descriptor of the file, opened with `O_PATH`, and its kind of file system.
    Opened,
}

/// Reply of the helper: bytes, the type of a file system, or a negative error number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Reply {
    result: i64,
    bytes: [u8; AT_ONCE_B],
}

/// Child process for reading.
#[derive(Debug)]
struct Helper {
    pid: Pid,
    /// Pidfd by which exactly this process is killed.
    handle: OwnedFd,
    socket: OwnedFd,
}

/// Current helper, and the helpers without an answer.
#[derive(Debug, Default)]
struct ForeignReader {
    helper: Option<Helper>,
    stuck: usize,
    /// Processes whose memory was not readable in time.
    refused: BTreeSet<Pid>,
    /// Total time of slow reads, and the time of the first read.
    slow: Duration,
    first: Option<Instant>,
}

static READER: Mutex<ForeignReader> = Mutex::new(ForeignReader {
    helper: None,
    stuck: 0,
    refused: BTreeSet::new(),
    slow: Duration::ZERO,
    first: None,
});

fn reader() -> MutexGuard<'static, ForeignReader> {
    // Valid after a panic as well: a helper in use is taken out of the state.
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads up to `bytes.len()` bytes of the memory of `pid` from `address` on; returns the number of
/// bytes read.
///
/// Needs the permission of ptrace(2): the same user or `CAP_SYS_PTRACE`, and under Yama's
/// restricted mode a child of the caller. A child of this process is no child of the helper, so its
/// memory is read directly: only by a user without `CAP_SYS_PTRACE`, whose programs are all its
/// own.
///
/// # Errors
/// As process_vm_readv(2), and `TimedOut` if the memory is not readable in time.
pub fn memory(pid: Pid, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    // A reply has room for one read only.
    let length = bytes.len().min(AT_ONCE_B);
    let request = Request::new(RequestKind::Memory, pid, address, length);
    match reader().read(&request, None, bytes) {
        Err(why) if why.raw_os_error() == Some(libc::EPERM) => {
            let read = memory_of(pid.0, address, bytes);
            usize::try_from(read).map_err(|_| errno(read))
        }
        read => read,
    }
}

/// Content of a file backed by the memory of a process, in `/proc/PID` or in the folder `dir`; at
/// most `most` bytes.
///
/// # Errors
/// As open(2) and read(2), and `TimedOut` if the memory is not readable in time.
pub fn file(
    pid: Pid,
    dir: Option<BorrowedFd<'_>>,
    path: &Path,
    most: usize,
) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let begun = Instant::now();
    let mut reader = reader();
    while all.len() < most {
        // The deadline of each piece alone would let a large file take for ever.
        if begun.elapsed() > LONGEST {
            return Err(ErrorKind::TimedOut.into());
        }
        let length = (most - all.len()).min(AT_ONCE_B);
        let request = Request::new(RequestKind::File, pid, all.len() as u64, length).at(path)?;
        let begin = all.len();
        all.resize(begin + length, 0);
        let read = reader.read(&request, dir, &mut all[begin..])?;
        all.truncate(begin + read);
        if read == 0 {
            break;
        }
    }
    Ok(all)
}

/// Opens a regular file of code like [`colocate_files::open_code`], except on file systems served
/// by a program: reading from them may take for ever.
///
/// # Errors
/// As [`colocate_files::open_code`], `TimedOut` if the file is not found in time, and `Unsupported`
/// on such a file system.
pub fn code(path: &Path) -> io::Result<LargeFile> {
    let request = Request::new(RequestKind::Opened, Pid(0), 0, 0).at(path)?;
    let (seen, kind) = reader().open(&request)?;
    if kind == FUSE_SUPER_MAGIC {
        let what = "expected code on a file system of the kernel's, found FUSE";
        return Err(io::Error::new(ErrorKind::Unsupported, what));
    }
    // By descriptor: the path may lead to another file by now.
    open_seen_code(&File::from(seen))
}

/// Drops the helper in a forked process with closed descriptors: the helper belongs to the parent.
pub fn forget() {
    // Not dropped: its descriptors are closed here, and their numbers may be in use again.
    std::mem::forget(reader().helper.take());
}

/// Ends the helper, if any, and waits a moment for its end. The next read starts a new helper.
pub fn end() {
    if let Some(helper) = reader().helper.take() {
        helper.end();
    }
}

impl Request {
    const fn new(kind: RequestKind, pid: Pid, from: u64, length: usize) -> Self {
        Self { kind, pid: pid.0, from, length, path: [0; PATH_B] }
    }

    fn at(mut self, path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        // The last byte stays 0: the helper takes the path as a C string.
        let place = self.path[..PATH_B - 1]
            .get_mut(..bytes.len())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
        place.copy_from_slice(bytes);
        Ok(self)
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the structure is plain, and lives as long as the slice; its padding is of zeros or unread.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

impl ForeignReader {
    fn read(
        &mut self,
        request: &Request,
        dir: Option<BorrowedFd<'_>>,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let (reply, _) = self.ask(request, dir)?;
        let read = usize::try_from(reply.result).map_err(|_| errno(reply.result))?;
        let bytes = reply.bytes.get(..read.min(into.len())).unwrap_or_default();
        into[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn open(&mut self, request: &Request) -> io::Result<(OwnedFd, i64)> {
        let (reply, fd) = self.ask(request, None)?;
        let none =
            || if reply.result < 0 { errno(reply.result) } else { ErrorKind::NotFound.into() };
        Ok((fd.ok_or_else(none)?, reply.result))
    }

    /// Sends a request to the helper and waits for its reply. Replaces a helper that has died since
    /// the last request.
    fn ask(
        &mut self,
        request: &Request,
        dir: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Box<Reply>, Option<OwnedFd>)> {
        let pid = Pid(request.pid);
        let begun = Instant::now();
        let since = *self.first.get_or_insert(begun);
        // Beside the share, one `LONGEST`: at the beginning the share of the time is next to
        // nothing.
        let is_slow = self.slow > LONGEST + (begun - since) / SLOW_SHARE;
        if is_slow || self.stuck >= MOST_STUCK || self.refused.contains(&pid) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.try_ask(request, dir)
    }

    fn try_ask(
        &mut self,
        request: &Request,
        dir: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Box<Reply>, Option<OwnedFd>)> {
        let pid = Pid(request.pid);
        // Twice: the helper at hand may have died since its last reply, and a new helper has not.
        for _ in 0..2 {
            let helper = match self.helper.take() {
                Some(helper) => helper,
                None => Helper::start()?,
            };
            let answered = helper.ask(request, dir, &mut self.slow);
            match &answered {
                Err(why) if why.kind() == ErrorKind::TimedOut => {
                    helper.give_up();
                    self.stuck += 1;
                    // 0: a request for a path, not for a process.
                    if pid.0 > 0 {
                        self.refused.insert(pid);
                    }
                    return answered;
                }
                Err(why) if why.kind() == ErrorKind::BrokenPipe => helper.end(),
                _ => {
                    self.helper = Some(helper);
                    return answered;
                }
            }
        }
        Err(ErrorKind::BrokenPipe.into())
    }
}

fn errno(result: i64) -> io::Error {
    // Error numbers are below 4096, so they fit.
    io::Error::from_raw_os_error(c_int::try_from(-result).unwrap_or(libc::EIO))
}

impl Helper {
    fn start() -> io::Result<Self> {
        let mut ends = [0; 2];
        // Packets, so that the length of a message tells whether it is whole.
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: there is room for the two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened both for us alone.
        let [ours, its] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // Allocated before the fork: a thread may hold the lock of the allocator at the fork.
        let room = Box::new(Request::new(RequestKind::File, Pid(0), 0, 0));
        let reply = Box::new(Reply::NONE);
        // Without a signal at its end it is no child that is waited for with others.
        const NO_SIGNAL: libc::c_long = 0;
        // SAFETY: as fork(2); the child makes only system calls, with memory that is there already, and never returns.
        match unsafe { libc::syscall(libc::SYS_clone, NO_SIGNAL, 0, 0, 0, 0) } {
            0 => serve(its.as_raw_fd(), room, reply),
            number => {
                let failed = io::Error::last_os_error();
                let pid = i32::try_from(number).ok().filter(|pid| *pid > 0).ok_or(failed)?;
                let handle = rustix::process::Pid::from_raw(pid)
                    .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
                let handle = pidfd_open(handle, PidfdFlags::empty())?;
                Ok(Self { pid: Pid(pid), handle, socket: ours })
            }
        }
    }

    fn ask(
        &self,
        request: &Request,
        dir: Option<BorrowedFd<'_>>,
        slow: &mut Duration,
    ) -> io::Result<(Box<Reply>, Option<OwnedFd>)> {
        let socket = self.socket.as_raw_fd();
        let mut bytes = request.as_bytes().to_vec();
        if message(socket, &mut bytes, dir.map(|dir| dir.as_raw_fd()), Direction::Send).0 < 0 {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.wait_for_reply(slow)?;
        let mut reply = Box::new(Reply::NONE);
        // SAFETY: the structure is plain, any bytes are valid for it, and it lives as long as the slice.
        let room =
            unsafe { std::slice::from_raw_parts_mut((&raw mut *reply).cast(), size_of::<Reply>()) };
        let (got, fd) = message(socket, room, None, Direction::Receive);
        // SAFETY: the kernel has just opened it for us alone.
        let fd = fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // 0: the helper has ended, and with it its end of the socket.
        if got <= 0 { Err(ErrorKind::BrokenPipe.into()) } else { Ok((reply, fd)) }
    }

    /// Waits for a reply. Adds to `slow` the waiting time during which the helper had a PU or
    /// needed none.
    fn wait_for_reply(&self, slow: &mut Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut slept = Duration::ZERO;
        while !is_ready(&self.socket, STEP) {
            if !self.wants_pu() {
                slept += STEP;
                *slow += STEP;
            }
            if slept >= DEADLINE || begun.elapsed() >= LONGEST {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Whether the helper waits for a PU, so the delay has no cause in the file or memory.
    fn wants_pu(&self) -> bool {
        let state = crate::proc::Proc::default().state_and_parent(self.pid);
        state.is_ok_and(|(state, _)| state == 'R')
    }

    /// Kills the helper without waiting for its end: nothing ends an uninterruptible sleep.
    fn give_up(self) {
        // An error: the helper has ended already.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        self.reap();
    }

    fn end(self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        // This helper was not stuck, so its end comes soon.
        is_ready(&self.handle, DEADLINE);
        self.reap();
    }

    /// Reaps the helper, if ended.
    fn reap(&self) {
        // Without `__WALL` the kernel passes over children cloned without a signal (waitpid(2)).
        // SAFETY: asks for no status; the number is that of a child of ours that is not reaped yet.
        unsafe { libc::waitpid(self.pid.0, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    }
}

impl Reply {
    const NONE: Self = Self { result: 0, bytes: [0; AT_ONCE_B] };
}

fn is_ready(fd: &OwnedFd, within: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

/// Sends or receives a packet with at most one descriptor, by system calls only. Returns the number
/// of bytes, or -1, and the received descriptor.
fn message(
    socket: RawFd,
    bytes: &mut [u8],
    fd: Option<RawFd>,
    way: Direction,
) -> (isize, Option<RawFd>) {
    #[allow(clippy::cast_possible_truncation)] // four bytes
    const FD_B: libc::c_uint = size_of::<RawFd>() as libc::c_uint;
    // Aligned as the kernel's headers of such messages are.
    let mut control = [0_usize; 8];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid `msghdr`.
    let mut packet: libc::msghdr = unsafe { std::mem::zeroed() };
    packet.msg_iov = &raw mut part;
    packet.msg_iovlen = 1;
    if fd.is_some() || way == Direction::Receive {
        packet.msg_control = control.as_mut_ptr().cast();
        // SAFETY: takes and returns numbers.
        packet.msg_controllen = unsafe { libc::CMSG_SPACE(FD_B) } as usize;
    }
    // SAFETY: `packet` names memory that lives until the end of this function; the headers are within `control`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const packet);
        if let (Some(fd), false) = (fd, head.is_null()) {
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(FD_B) as usize;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        }
        // A helper that has ended must not end this process by SIGPIPE. A launched program must not
        // inherit a received descriptor.
        let done = match way {
            Direction::Send => libc::sendmsg(socket, &raw const packet, libc::MSG_NOSIGNAL),
            Direction::Receive => libc::recvmsg(socket, &raw mut packet, libc::MSG_CMSG_CLOEXEC),
        };
        let head = libc::CMSG_FIRSTHDR(&raw const packet);
        // At the limit of open files the kernel leaves out the descriptor (unix(7)).
        let has_fd = way == Direction::Receive
            && done > 0
            && !head.is_null()
            && (*head).cmsg_type == libc::SCM_RIGHTS;
        (done, has_fd.then(|| libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::wait_until;
    use std::os::fd::AsFd;

    fn own() -> Pid {
        Pid(std::process::id().cast_signed())
    }

    #[test]
    fn memory_files_and_code() {
        let mut bytes = [0; 3];
        let text = *b"abc";
        assert_eq!(memory(own(), text.as_ptr().addr() as u64, &mut bytes).unwrap(), 3);
        assert_eq!(bytes, text);
        assert_eq!(memory(own(), 0, &mut bytes).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        let maps = file(own(), None, Path::new("/proc/self/cmdline"), 1 << 20).unwrap();
        assert_eq!(
            maps,
            std::fs::read("/proc/self/cmdline").unwrap(),
            "it is a copy of this process"
        );
        let folder = tempfile::tempdir().unwrap();
        let long: Vec<u8> = (0..200_000_u32).map(|place| place.to_le_bytes()[0]).collect();
        std::fs::write(folder.path().join("long"), &long).unwrap();
        let dir = File::open(folder.path()).unwrap();
        let named = |name: &str, most| file(own(), Some(dir.as_fd()), Path::new(name), most);
        assert!(named("long", 1 << 20).unwrap() == long);
        assert!(named("long", 100_000).unwrap() == long[..100_000]);
        assert_eq!(named("none", 1).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(code(&folder.path().join("long")).is_ok());
        assert!(code(folder.path()).is_err() && code(Path::new("/dev/zero")).is_err());
    }

    /// A reader of its own: one that is stopped does not answer, and counts as stuck. Then nothing of that process is read, and after
    /// some of them nothing at all.
    #[test]
    fn a_helper_that_does_not_answer() {
        let mut reader = ForeignReader::default();
        let mut bytes = [0; 3];
        for number in 0..MOST_STUCK {
            let helper = Helper::start().unwrap();
            pidfd_send_signal(&helper.handle, Signal::STOP).unwrap();
            reader.helper = Some(helper);
            let request =
                Request::new(RequestKind::Memory, Pid(i32::try_from(number).unwrap() + 1), 0, 3);
            for _ in 0..2 {
                let failed = reader.read(&request, None, &mut bytes).unwrap_err();
                assert_eq!(failed.kind(), ErrorKind::TimedOut);
            }
            assert_eq!(reader.stuck, number + 1);
        }
        let address = b"abc".as_ptr().addr() as u64;
        let request = Request::new(RequestKind::Memory, own(), address, 3);
        let failed = reader.read(&request, None, &mut bytes).unwrap_err();
        assert_eq!((failed.kind(), reader.stuck), (ErrorKind::TimedOut, MOST_STUCK));
    }

    #[test]
    fn a_helper_ends_with_its_socket() {
        let Helper { handle, socket, pid } = Helper::start().unwrap();
        drop(socket);
        wait_until("its end", || is_ready(&handle, Duration::ZERO));
        Helper { pid, socket: handle.try_clone().unwrap(), handle }.reap();
    }
}
