//! A lock that survives fork.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// A mutex that a forked child can use even if another thread held the mutex at the fork.
///
/// Fork handlers lock the mutex before the fork and unlock it after, in different functions. The
/// standard library's mutex does not allow this.
pub struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, and the mutex lets one guard live at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, T> {
        self.take();
        Guard(self)
    }

    /// Takes the lock without a guard. [`Lock::release`] must follow, in this thread or in its copy
    /// in a forked child.
    pub fn take(&self) {
        // SAFETY: the mutex is initialised, never moved and never destroyed.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    /// Releases a lock taken by [`Lock::take`].
    pub fn release(&self) {
        // SAFETY: as above; the caller holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

/// Access to a locked value.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held as long as the guard lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held as long as the guard lives, and the guard is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}
