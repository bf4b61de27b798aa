//! The helper's side: a child that answers requests with system calls only.

use super::{Direction, Reply, Request, RequestKind, message};
use std::ffi::c_void;
use std::os::fd::RawFd;

/// Main loop of the child: answers requests until the peer of its socket is closed. Only system
/// calls are allowed: locks held by any thread at the fork are never released here.
pub(super) fn serve(socket: RawFd, mut request: Box<Request>, mut reply: Box<Reply>) -> ! {
    close_all_but(socket);
    // A terminal's Ctrl-C reaches the whole process group; only the end of the socket ends the
    // helper.
    crate::signal::block_all();
    let mut file = ReadFile { fd: -1, at: 0 };
    // SAFETY: the name is a valid string; the kernel copies at most 16 bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"colocate-reader".as_ptr()) };
    loop {
        // SAFETY: the structure is plain; what came from the process that has forked this one is a valid one, or it is too short.
        let room = unsafe {
            std::slice::from_raw_parts_mut((&raw mut *request).cast(), size_of::<Request>())
        };
        let (got, dir) = message(socket, room, None, Direction::Receive);
        if got != size_of::<Request>().cast_signed() {
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) }
        }
        let (result, fd) = done(&request, dir, &mut file, &mut reply.bytes);
        reply.result = result;
        // Of an opened file the result is the kind of its file system, and nothing has been read.
        let length = if request.kind == RequestKind::Opened {
            0
        } else {
            usize::try_from(result).unwrap_or(0)
        };
        // SAFETY: the structure is plain, and the slice ends with what was read, at its end at the latest.
        let bytes = unsafe {
            let length = (size_of::<i64>() + length).min(size_of::<Reply>());
            std::slice::from_raw_parts_mut((&raw mut *reply).cast(), length)
        };
        message(socket, bytes, fd, Direction::Send);
        for fd in [dir, fd].into_iter().flatten() {
            // SAFETY: takes a number; it is this process's own.
            unsafe { libc::close(fd) };
        }
    }
}

fn close_all_but(fd: RawFd) {
    let fd = fd.cast_unsigned();
    // SAFETY: takes numbers; nothing else is used by this process.
    unsafe {
        // Below descriptor 0 there is none, and `fd - 1` would be the largest number.
        if fd > 0 {
            libc::syscall(libc::SYS_close_range, 0_u32, fd - 1, 0_u32);
        }
        libc::syscall(libc::SYS_close_range, fd + 1, u32::MAX, 0_u32);
    }
}

/// Handles a request. Returns the descriptor to be sent, if any.
fn done(
    request: &Request,
    dir: Option<RawFd>,
    file: &mut ReadFile,
    bytes: &mut [u8],
) -> (i64, Option<RawFd>) {
    let length = request.length.min(bytes.len());
    match request.kind {
        RequestKind::Memory => (memory_of(request.pid, request.from, &mut bytes[..length]), None),
        RequestKind::File => (file.part(request, dir, &mut bytes[..length]), None),
        RequestKind::Opened => opened(request),
    }
}

pub(super) fn memory_of(pid: i32, address: u64, bytes: &mut [u8]) -> i64 {
    let Ok(address) = usize::try_from(address) else { return -i64::from(libc::EFAULT) };
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let theirs =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, and checks the addresses of
    // the other process itself.
    result(unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) })
}

/// File read piece by piece: the kernel generates some files anew on each open.
struct ReadFile {
    /// -1 if none is open.
    fd: RawFd,
    at: u64,
}

impl ReadFile {
    /// Next piece of the file; the first piece for a new request.
    fn part(&mut self, request: &Request, dir: Option<RawFd>, bytes: &mut [u8]) -> i64 {
        // 0: another file, or the same anew. Another place than expected: this helper is new.
        if request.from == 0 || request.from != self.at {
            self.at = 0;
            // The path may lead to a FIFO or a terminal: neither may block or become the
            // controlling terminal.
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
            let dir = dir.unwrap_or(libc::AT_FDCWD);
            // SAFETY: the path ends with a zero byte; the descriptor is this process's own, or none.
            unsafe {
                // Without an open file this is -1: an error without an effect.
                libc::close(self.fd);
                self.fd = libc::openat(dir, request.path.as_ptr().cast(), flags);
            }
        }
        if self.fd < 0 {
            return result(-1);
        }
        // An earlier helper has read the beginning; the kernel may show other text since then.
        if request.from != self.at {
            return -i64::from(libc::ESPIPE);
        }
        let mut done = 0;
        // Files of /proc give a page or so per call.
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            // SAFETY: at most `rest.len()` bytes are written to `rest`.
            let read =
                unsafe { libc::read(self.fd, rest.as_mut_ptr().cast::<c_void>(), rest.len()) };
            let Ok(read) = usize::try_from(read) else { return result(-1) };
            if read == 0 {
                break;
            }
            done += read;
            self.at += read as u64;
        }
        i64::try_from(done).unwrap_or(i64::MAX)
    }
}

fn opened(request: &Request) -> (i64, Option<RawFd>) {
    // SAFETY: the path ends with a zero byte; all-zero is a valid `statfs` to be written over.
    unsafe {
        let path = request.path.as_ptr().cast();
        let file = libc::openat(libc::AT_FDCWD, path, libc::O_PATH | libc::O_CLOEXEC);
        if file < 0 {
            return (result(-1), None);
        }
        let mut found: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file, &raw mut found) < 0 {
            // Before the close, which may change errno.
            let failed = result(-1);
            libc::close(file);
            return (failed, None);
        }
        // The numbers have 32 bits.
        (found.f_type & 0xffff_ffff, Some(file))
    }
}

/// Result of a system call, or its error as a negative number.
fn result(returned: isize) -> i64 {
    if returned < 0 {
        // SAFETY: it is this thread's own.
        return -i64::from(unsafe { *libc::__errno_location() });
    }
    i64::try_from(returned).unwrap_or(i64::MAX)
}
