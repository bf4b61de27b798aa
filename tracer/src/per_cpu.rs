//! Records of the thread on each virtual CPU.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// CPUs that have records; those beyond have none.
const CPUS: usize = 8192;

/// Records of the thread on each virtual CPU, if they were enabled. Only that thread uses them, and one that has
/// stopped it.
pub struct PerCpu<T> {
    enabled: AtomicBool,
    of: [AtomicPtr<T>; CPUS],
}

impl<T> PerCpu<T> {
    /// None, and none are kept.
    pub const fn new() -> Self {
        Self { enabled: AtomicBool::new(false), of: [const { AtomicPtr::new(null_mut()) }; CPUS] }
    }

    /// Records are kept. To be called before anything is translated.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Whether records are kept.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The records of the thread that runs on `cpu`.
    ///
    /// # Safety
    /// To be called by that thread, which keeps no other reference to them.
    #[allow(clippy::mut_from_ref)] // each belongs to one thread
    pub unsafe fn own(&self, cpu: c_uint) -> Option<&mut T> {
        // SAFETY: null, or made by `begin`; the caller says that it has no other user.
        unsafe { self.of.get(cpu as usize)?.load(Ordering::Relaxed).as_mut() }
    }

    /// A thread begins on `cpu`.
    pub fn begin(&self, cpu: c_uint, new: impl FnOnce() -> T) {
        if let (true, Some(of)) = (self.is_enabled(), self.of.get(cpu as usize)) {
            of.store(Box::into_raw(Box::new(new())), Ordering::Relaxed);
        }
    }

    /// Takes the records of the thread on `cpu`, which has ended or has been stopped for ever.
    pub fn end(&self, cpu: c_uint) -> Option<Box<T>> {
        let of = self.of.get(cpu as usize)?.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: it was made by `begin`, and is no longer where the thread would find it.
        (!of.is_null()).then(|| unsafe { Box::from_raw(of) })
    }

    /// This is a new process: the records are those of its parent's threads, which are not here. Nothing is freed, since
    /// they may have been changing it when the process was made.
    pub fn forget(&self) {
        self.of.iter().for_each(|of| of.store(null_mut(), Ordering::Relaxed));
    }
}
