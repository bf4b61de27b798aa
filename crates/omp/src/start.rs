//! What is done when the program is loaded, before its own code.
//!
//! To look for the runtime's functions takes the loader's lock, which a thread may hold that waits for this one: as a
//! library is loaded, its constructor may begin a thread and wait for it. So what is in sight of the whole program is
//! found before. What comes later is looked for at the first call, and such a constructor may wait for ever.

#![allow(unsafe_code)] // a constructor

use crate::{env, gnu, llvm};

extern "C" fn begin() {
    if std::env::var_os(env::REPORT).is_some() {
        gnu::prepare();
        llvm::prepare();
        // What was not found is not to be reported to the program.
        // SAFETY: it takes nothing.
        unsafe { libc::dlerror() };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
