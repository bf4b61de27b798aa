//! Constructor of the library, run before the program's own code.
//!
//! Looking up a function takes the loader's lock. Another thread may hold the lock and wait for
//! this thread: a constructor of a library may create a thread and wait for it. So functions in the
//! global scope are looked up at load. Functions loaded later are looked up at their first call,
//! where such a constructor may deadlock.

#![allow(unsafe_code)] // a constructor

use crate::{env, gnu, llvm};

extern "C" fn begin() {
    if std::env::var_os(env::REPORT).is_some() {
        gnu::prepare();
        llvm::prepare();
        // Clears the error of a failed lookup, which the program would else read from dlerror(3).
        // SAFETY: it takes nothing.
        unsafe { libc::dlerror() };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
