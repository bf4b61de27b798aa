//! The functions that were meant.
//!
//! What is loaded first is found first, so every call of a function that is taken comes here, also from libraries that
//! the program loads later and keeps to itself (`RTLD_LOCAL`), as Python's extensions are. Such a library may bring an
//! OpenMP of its own, and so may another one in the same process. So where no such function is in sight of the
//! whole program, it is looked for as the caller would have found it: among what the caller itself depends on. A caller
//! that has none there gets what has come into sight since.
//!
//! To look takes the loader's lock, which a thread may hold that waits for this one: as a library is loaded, its
//! constructor may begin a thread and wait for it. So what is in sight when the program is loaded is found then
//! (`prepare`). What comes later is looked for at the first call, and such a constructor may wait for ever.

use crate::clib::{self, Found};
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Callers that are remembered for each function that is not in sight of the whole program. Chosen: a power of two, some
/// cache lines; others are looked up each time.
const CALLERS: usize = 16;

/// A function that was meant, once it is found.
pub struct Real {
    name: &'static CStr,
    /// In sight of the whole program.
    next: AtomicPtr<c_void>,
    /// By callers: where they return to, and what they mean. Written once, the function before the caller.
    callers: [(AtomicUsize, AtomicPtr<c_void>); CALLERS],
}

impl Real {
    /// The function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        let callers = [const { (AtomicUsize::new(0), AtomicPtr::new(ptr::null_mut())) }; CALLERS];
        Self { name, next: AtomicPtr::new(ptr::null_mut()), callers }
    }

    /// Where it is, in sight of the whole program.
    #[inline]
    pub fn get(&self) -> Option<ptr::NonNull<c_void>> {
        let known = ptr::NonNull::new(self.next.load(Ordering::Acquire));
        if known.is_some() { known } else { self.look() }
    }

    #[cold]
    fn look(&self) -> Option<ptr::NonNull<c_void>> {
        let found = self.in_sight()?;
        self.next.store(found.as_ptr(), Ordering::Release);
        Some(found)
    }

    /// The same, looked for anew.
    fn in_sight(&self) -> Option<ptr::NonNull<c_void>> {
        // SAFETY: the name is a string that stays.
        let find = || unsafe { clib::dlsym(clib::RTLD_NEXT, self.name.as_ptr()) };
        ptr::NonNull::new(clib::keeping_errno(find))
    }

    /// Where it is for who called and goes on at `back`.
    #[inline]
    pub fn meant_at(&self, back: usize) -> Option<ptr::NonNull<c_void>> {
        let known = ptr::NonNull::new(self.next.load(Ordering::Acquire));
        if known.is_some() { known } else { self.known_at(back) }
    }

    #[cold]
    fn known_at(&self, back: usize) -> Option<ptr::NonNull<c_void>> {
        let entry = self.callers.get((back >> 2) % CALLERS)?;
        if entry.0.load(Ordering::Acquire) == back {
            return ptr::NonNull::new(entry.1.load(Ordering::Relaxed));
        }
        // Not in sight of the whole program at its first look, it stays that way for this caller.
        let found = if self.is_unused() { self.look() } else { None };
        if found.is_some() {
            return found;
        }
        // What has come into sight since is only for those who have none of their own; the others keep theirs.
        let own = clib::keeping_errno(|| of_caller(self.name, back));
        let found = own.or_else(|| self.in_sight())?;
        let empty = ptr::null_mut();
        let order = Ordering::AcqRel;
        if entry.1.compare_exchange(empty, found.as_ptr(), order, Ordering::Relaxed).is_ok() {
            entry.0.store(back, Ordering::Release);
        }
        Some(found)
    }

    /// Whether no caller is remembered.
    fn is_unused(&self) -> bool {
        self.callers.iter().all(|entry| entry.1.load(Ordering::Relaxed).is_null())
    }
}

/// A function as the object that holds `back` finds it among what it depends on.
fn of_caller(name: &CStr, back: usize) -> Option<ptr::NonNull<c_void>> {
    let nothing = ptr::null_mut();
    let mut found = Found { file: ptr::null(), base: nothing, name: ptr::null(), at: nothing };
    // SAFETY: `found` is a valid place to write to; an address in no object is an error.
    let known = unsafe { clib::dladdr(ptr::without_provenance(back), &raw mut found) } != 0;
    if !known || found.file.is_null() {
        return None;
    }
    // SAFETY: the name of an object that is loaded, and its caller is running in it.
    let object = unsafe { clib::dlopen(found.file, clib::RTLD_LAZY | clib::RTLD_NOLOAD) };
    let object = ptr::NonNull::new(object)?;
    // SAFETY: the object is open, and the name a string.
    let meant = unsafe { clib::dlsym(object.as_ptr(), name.as_ptr()) };
    // SAFETY: it was opened above; it stays, as its caller is running in it.
    unsafe { clib::dlclose(object.as_ptr()) };
    ptr::NonNull::new(meant)
}
