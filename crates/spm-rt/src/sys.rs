//! System calls. No function allocates, and all may be called from a signal handler. No function is
//! a cancellation point, unlike the C library's `open`, `read`, `write` and `close`: a thread
//! cancelled inside a call would keep the locks that the program holds around the call.

#![allow(unsafe_code)] // this is where they are

use core::ffi::CStr;
use core::ptr;

/// Current PU of this thread.
pub fn pu() -> Option<usize> {
    // SAFETY: it takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // The clock is never negative.
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

/// `CLOCK_MONOTONIC_COARSE` in nanoseconds: faster, and up to some milliseconds late.
pub fn coarse_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

/// [`coarse_ns`] in seconds.
pub fn second() -> u32 {
    u32::try_from(coarse_ns() / 1_000_000_000).unwrap_or(0)
}

/// True on the main thread.
pub fn is_first_thread() -> bool {
    // SAFETY: they take nothing.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Value of an environment variable; `None` in a program with elevated rights (`AT_SECURE`).
pub fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with 0, and so does what comes back. The runtime begins before a
    // program changes its environment, or at the first call.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Reads up to the length of `into` from a regular file; empty on any failure. Never waits for
/// another process, as for a FIFO or a lease.
pub fn read<'a>(path: &CStr, into: &'a mut [u8]) -> &'a [u8] {
    let Some(file) = Descriptor::open(path).filter(Descriptor::is_regular) else { return &[] };
    // SAFETY: the kernel writes at most so many bytes.
    let read = unsafe { libc::syscall(libc::SYS_read, file.0, into.as_mut_ptr(), into.len()) };
    // An error, -1, reads nothing.
    &into[..usize::try_from(read).unwrap_or(0)]
}

/// Open file, closed on drop.
struct Descriptor(libc::c_int);

impl Descriptor {
    fn open(path: &CStr) -> Option<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends with 0.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        libc::c_int::try_from(file).ok().filter(|file| *file >= 0).map(Self)
    }

    fn is_regular(&self) -> bool {
        let mut of = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel writes a whole one if it says 0, and it is read only then.
        unsafe {
            libc::syscall(libc::SYS_fstat, self.0, of.as_mut_ptr()) == 0
                && of.assume_init().st_mode & libc::S_IFMT == libc::S_IFREG
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Writes `text` to standard error; errors are ignored.
pub fn say(text: &[u8]) {
    // SAFETY: so many bytes are there.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, text.as_ptr(), text.len()) };
}

/// True if a seccomp filter may forbid system calls of this process.
pub fn is_filtered() -> bool {
    // SAFETY: it takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 }
}

/// Registers a function for the exit of the program, or the unloading of the library with this
/// runtime.
pub fn at_exit(what: extern "C" fn()) {
    // SAFETY: it is a function.
    unsafe { libc::atexit(what) };
}

/// Restores `errno` on drop.
pub struct KeepsErrno(i32);

impl KeepsErrno {
    /// Saves the current `errno`.
    #[allow(clippy::new_without_default)] // it is of a moment
    pub fn new() -> Self {
        // SAFETY: it points to this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepsErrno {
    fn drop(&mut self) {
        // SAFETY: it points to this thread's own.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Zeroed memory mapping, unmapped on drop.
pub struct Zeroed<T>(ptr::NonNull<T>);

impl<T> Zeroed<T> {
    /// # Safety
    /// All zero must be a valid `T`.
    pub unsafe fn new() -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: anywhere, of no file.
        let at = unsafe { libc::mmap(ptr::null_mut(), size_of::<T>(), access, kind, -1, 0) };
        (at != libc::MAP_FAILED).then_some(())?;
        ptr::NonNull::new(at.cast()).map(Self)
    }

    /// The value.
    pub fn get(&mut self) -> &mut T {
        // SAFETY: it is mapped, all zero was a value, and it is borrowed as this is.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

/// `MPOL_MF_MOVE` of linux/mempolicy.h: only pages of this process alone.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Moves pages of this process to nodes, or without `nodes` only queries their nodes. True on
/// success.
///
/// `status` receives the node of each page, or a negative error.
pub fn move_pages(pages: &[u64], nodes: Option<&[i32]>, status: &mut [i32]) -> bool {
    let count = pages.len().min(status.len()).min(nodes.map_or(usize::MAX, <[i32]>::len));
    let nodes = nodes.map_or(ptr::null(), <[i32]>::as_ptr);
    // SAFETY: all of them have so many; the kernel only looks at addresses as such.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count,
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    done >= 0
}

/// `/proc/self/pagemap`.
pub struct Pagemap(Descriptor);

impl Pagemap {
    /// Opens the file; closed on drop.
    pub fn open() -> Option<Self> {
        Descriptor::open(c"/proc/self/pagemap").map(Self)
    }

    /// True if a range contains a huge page; `None` before Linux 6.7.
    pub fn has_huge_page(&self, first: u64, end: u64) -> Option<bool> {
        has_huge_page(self.0.0, first, end)
    }
}

fn has_huge_page(pagemap: libc::c_int, first: u64, end: u64) -> Option<bool> {
    #[repr(C)]
    struct PageRegion {
        first: u64,
        end: u64,
        categories: u64,
    }
    // struct pm_scan_arg of linux/fs.h
    #[repr(C)]
    struct Scan {
        size: u64,
        flags: u64,
        first: u64,
        end: u64,
        walked: u64,
        regions: u64,
        most_regions: u64,
        most_pages: u64,
        inverted: u64,
        all_of: u64,
        any_of: u64,
        returned: u64,
    }
    const PAGE_IS_HUGE: u64 = 1 << 6;
    /// `_IOWR('f', 16, struct pm_scan_arg)`
    const PAGEMAP_SCAN: libc::c_ulong = 3 << 30 | 96 << 16 | (b'f' as libc::c_ulong) << 8 | 16;
    let mut region = PageRegion { first: 0, end: 0, categories: 0 };
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        first,
        end,
        walked: 0,
        regions: &raw mut region as u64,
        // One region answers the question.
        most_regions: 1,
        most_pages: 0,
        inverted: 0,
        all_of: PAGE_IS_HUGE,
        any_of: 0,
        returned: PAGE_IS_HUGE,
    };
    // SAFETY: both are what the kernel expects.
    let found = unsafe { libc::syscall(libc::SYS_ioctl, pagemap, PAGEMAP_SCAN, &raw mut scan) };
    usize::try_from(found).ok().map(|found| found > 0)
}

/// Thread-specific value (pthread_key_create(3)).
#[derive(Clone, Copy)]
pub struct ThreadKey(libc::pthread_key_t);

impl ThreadKey {
    /// Key with a destructor, called with the value of an exiting thread unless 0.
    pub fn new(ended: extern "C" fn(*mut libc::c_void)) -> Option<Self> {
        let mut key = 0;
        // SAFETY: the key is ours, and the function takes any value.
        let done = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        (done == 0).then_some(Self(key))
    }

    /// Deletes the key: exiting threads no longer call the destructor.
    pub fn delete(self) {
        // SAFETY: a key that is not there any more has the value 0 and cannot be set.
        unsafe { libc::pthread_key_delete(self.0) };
    }

    /// Value of this thread, initially 0.
    pub fn value(self) -> usize {
        // SAFETY: the key is there as long as the program.
        unsafe { libc::pthread_getspecific(self.0) as usize }
    }

    /// Sets the value of this thread.
    pub fn set(self, value: usize) {
        // SAFETY: the key is there as long as the program; the value is no pointer to anything.
        unsafe { libc::pthread_setspecific(self.0, value as *const libc::c_void) };
    }
}

/// Restricts this thread's affinity mask to PUs for which `holds`. True if the mask became smaller
/// but not empty; else nothing changes.
pub fn keep_pus(holds: impl Fn(usize) -> bool) -> bool {
    /// Mask of 4,096 PUs.
    const WORDS: usize = 64;
    let mut mask = [0_u64; WORDS];
    // SAFETY: the kernel writes at most so many bytes.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    let before = mask;
    for (at, word) in mask.iter_mut().enumerate() {
        for bit in (0..64).filter(|bit| !holds(at * 64 + bit)) {
            *word &= !(1 << bit);
        }
    }
    if got < 0 || mask == before || mask == [0; WORDS] {
        return false;
    }
    // SAFETY: so many bytes are there.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A FIFO without a writer, a folder and a device in the place of a file: nothing, and at once.
    #[test]
    fn only_regular_files_are_read() {
        let folder = std::env::temp_dir().join(format!("spm-rt-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
        let fifo = path("fifo");
        // SAFETY: the path ends with 0.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        std::fs::write(folder.join("file"), "cache_bytes 1").unwrap();
        let (done, read_all) = mpsc::channel();
        let files = [fifo, path("file"), path(""), path("none"), c"/dev/zero".to_owned()];
        std::thread::spawn(move || {
            for file in files {
                done.send(read(&file, &mut [0; 64]).to_vec()).unwrap();
            }
        });
        for expected in ["", "cache_bytes 1", "", "", ""] {
            let text =
                read_all.recv_timeout(Duration::from_secs(20)).expect("nothing is waited for");
            assert_eq!(text, expected.as_bytes());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
