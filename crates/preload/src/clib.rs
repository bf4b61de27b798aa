//! The functions of the C library that are used, all of them in glibc and in musl, and their constants, which are the
//! same on x86-64 and aarch64 (asm-generic headers of Linux).

use core::ffi::{c_char, c_int, c_long, c_void};

/// A time, as clocks give it.
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds beyond them.
    pub nsec: i64,
}

/// What dladdr(3) says of an address.
#[repr(C)]
pub struct Found {
    /// The file that holds it.
    pub file: *const c_char,
    /// Where that begins in memory.
    pub base: *mut c_void,
    /// The symbol before it.
    pub name: *const c_char,
    /// Where that is.
    pub at: *mut c_void,
}

pub const CLOCK_MONOTONIC: c_int = 1;
pub const CLOCK_MONOTONIC_COARSE: c_int = 6;
pub const O_RDWR: c_int = 2;
pub const O_NOCTTY: c_int = 0o400;
pub const O_NONBLOCK: c_int = 0o4_000;
pub const O_CLOEXEC: c_int = 0o2_000_000;
pub const F_GET_SEALS: c_int = 1034;
pub const F_SEAL_SHRINK: c_int = 2;
pub const SEEK_END: c_int = 2;
pub const PROT_READ: c_int = 1;
pub const PROT_WRITE: c_int = 2;
pub const MAP_SHARED: c_int = 1;
pub const MAP_PRIVATE: c_int = 2;
pub const MAP_ANONYMOUS: c_int = 0x20;
pub const MADV_WIPEONFORK: c_int = 18;
pub const RTLD_LAZY: c_int = 1;
pub const RTLD_NOLOAD: c_int = 4;
pub const STANDARD_ERROR: c_int = 2;
pub const EBUSY: c_int = 16;
pub const ENOSYS: c_int = 38;
#[cfg(target_arch = "x86_64")]
pub const SYS_GETTID: c_long = 186;
#[cfg(not(target_arch = "x86_64"))]
pub const SYS_GETTID: c_long = 178;
/// What mmap(2) returns when it fails.
pub const MAP_FAILED: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);
/// The next object that has a symbol, after the one that asks.
pub const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

#[link(name = "c")]
#[link(name = "pthread")] // before glibc 2.34 it was a library of its own
#[link(name = "dl")] // the same
unsafe extern "C" {
    pub fn __errno_location() -> *mut c_int;
    pub fn abort() -> !;
    pub fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    pub fn close(fd: c_int) -> c_int;
    pub fn dladdr(at: *const c_void, found: *mut Found) -> c_int;
    pub fn dlclose(object: *mut c_void) -> c_int;
    pub fn dlerror() -> *mut c_char;
    pub fn dlopen(file: *const c_char, how: c_int) -> *mut c_void;
    pub fn dlsym(object: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn fcntl(fd: c_int, what: c_int, ...) -> c_int;
    pub fn getenv(name: *const c_char) -> *mut c_char;
    pub fn getpid() -> c_int;
    pub fn lseek(fd: c_int, offset: c_long, from: c_int) -> c_long;
    pub fn madvise(at: *mut c_void, length: usize, advice: c_int) -> c_int;
    pub fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
    pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub fn pthread_getspecific(key: u32) -> *mut c_void;
    pub fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
    pub fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
    pub fn readlink(path: *const c_char, to: *mut c_char, length: usize) -> isize;
    pub fn syscall(number: c_long, ...) -> c_long;
    pub fn write(fd: c_int, from: *const c_void, length: usize) -> isize;
}

/// Does something and leaves `errno` as it was.
pub fn keeping_errno<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: it takes nothing; what it returns is the calling thread's own, and stays as long as that.
    let errno = unsafe { __errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let done = act();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    done
}

/// Time of a clock, in nanoseconds; 0 if there is no such clock.
pub fn time_ns(clock: c_int) -> u64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: `time` is a valid place to write to; a clock that does not exist is an error and leaves it as it is.
    unsafe { clock_gettime(clock, &raw mut time) };
    time.sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.nsec.cast_unsigned())
}
