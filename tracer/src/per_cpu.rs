//! Records of the thread on each virtual CPU. QEMU's user mode has a virtual CPU per thread.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Number of CPUs with records. Threads on further CPUs have none.
const CPUS: usize = 8192;

/// Records of the thread on each virtual CPU, if enabled.
///
/// Records are used only by their thread, and by a thread that has stopped their thread.
pub struct PerCpu<T> {
    enabled: AtomicBool,
    of: [AtomicPtr<T>; CPUS],
}

impl<T> PerCpu<T> {
    /// Disabled, without records.
    pub const fn new() -> Self {
        Self { enabled: AtomicBool::new(false), of: [const { AtomicPtr::new(null_mut()) }; CPUS] }
    }

    /// Enables records. Must be called before any translation.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// True if records are kept.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Records of the thread on `cpu`; `None` if there are none.
    ///
    /// # Safety
    /// The caller must be the thread on `cpu`, without another reference to its records.
    #[allow(clippy::mut_from_ref)] // records belong to one thread
    pub unsafe fn own(&self, cpu: c_uint) -> Option<&mut T> {
        // SAFETY: null, or allocated by `begin`; the caller promises that there is no other user.
        unsafe { self.of.get(cpu as usize)?.load(Ordering::Relaxed).as_mut() }
    }

    /// Creates the records of a new thread on `cpu`, if enabled.
    pub fn begin(&self, cpu: c_uint, new: impl FnOnce() -> T) {
        if let (true, Some(of)) = (self.is_enabled(), self.of.get(cpu as usize)) {
            of.store(Box::into_raw(Box::new(new())), Ordering::Relaxed);
        }
    }

    /// Takes the records of the thread on `cpu`, which has ended or is stopped for ever.
    pub fn end(&self, cpu: c_uint) -> Option<Box<T>> {
        let of = self.of.get(cpu as usize)?.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: allocated by `begin`, and no longer reachable by the thread.
        (!of.is_null()).then(|| unsafe { Box::from_raw(of) })
    }

    /// Drops all references to records in a forked process, which lacks the records' threads.
    ///
    /// The records are leaked: a thread of the parent may have been changing them at the fork.
    pub fn forget(&self) {
        self.of.iter().for_each(|of| of.store(null_mut(), Ordering::Relaxed));
    }
}
