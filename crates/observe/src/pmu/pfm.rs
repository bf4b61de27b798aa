//! Event codes from libpfm4.
//!
//! The library (`libpfm.so.4`, package `libpfm4`) is loaded on demand, so colocate runs without it,
//! with the codes of [`table`](super::table). Only the functions below are used. Their declarations
//! are those of perfmon/pfmlib.h and perfmon/pfmlib_perf_event.h, unchanged since libpfm 4.1.

#![allow(unsafe_code)] // dlopen, and calls into a C library

use super::table::EventCode;
use perf_event_open_sys::bindings::perf_event_attr;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};
use thiserror::Error;

/// Reason why libpfm4 gave no code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PfmError {
    /// Library that is not installed, or of another version.
    #[error("cannot load libpfm.so.4: {0}")]
    Missing(String),
    /// Failed initialization of the library.
    #[error("pfm_initialize: {0}")]
    Start(String),
    /// Event unknown to the library, or unknown on this processor.
    #[error("pfm_get_os_event_encoding of {0}: {1}")]
    Unknown(String, String),
}

/// `PFM_OS_PERF_EVENT` of `enum pfm_os_t`: fill in an attribute structure of perf.
const OS_PERF_EVENT: c_int = 1;
/// `PFM_PLM3`: count at user level.
const USER_LEVEL: c_int = 8;
/// `PFM_SUCCESS`.
const SUCCESS: c_int = 0;

/// `pfm_perf_encode_arg_t`.
#[repr(C)]
struct EncodeArg {
    attr: *mut perf_event_attr,
    full_name: *mut *mut c_char,
    size: usize,
    index: c_int,
    cpu: c_int,
    flags: c_int,
    padding: c_int,
}

type Initialize = unsafe extern "C" fn() -> c_int;
type Message = unsafe extern "C" fn(c_int) -> *const c_char;
type Encode = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut c_void) -> c_int;

/// libpfm4, loaded and initialized.
#[derive(Debug)]
pub struct Pfm {
    message: Message,
    encode: Encode,
}

/// Lock around calls: libpfm4 keeps its tables in globals without a lock.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Pfm {
    /// Library, loaded at the first call and kept.
    pub fn get() -> Result<&'static Self, PfmError> {
        static LOADED: OnceLock<Result<Pfm, PfmError>> = OnceLock::new();
        LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, PfmError> {
        // SAFETY: the name ends in a zero byte. Loading runs the library's constructors; libpfm4
        // has none.
        let library = unsafe { libc::dlopen(c"libpfm.so.4".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(PfmError::Missing(loader_message()));
        }
        let initialize = symbol(library, c"pfm_initialize")?;
        let message = symbol(library, c"pfm_strerror")?;
        let encode = symbol(library, c"pfm_get_os_event_encoding")?;
        // SAFETY: these are the functions of these names in libpfm 4, whose C declarations are
        // `pfm_err_t (void)`, `const char *(int)` and
        // `pfm_err_t (const char *, int, pfm_os_t, void *)`; enumerations are `int` in C.
        let (initialize, pfm) = unsafe {
            let initialize = std::mem::transmute::<*mut c_void, Initialize>(initialize);
            let message = std::mem::transmute::<*mut c_void, Message>(message);
            let encode = std::mem::transmute::<*mut c_void, Encode>(encode);
            (initialize, Self { message, encode })
        };
        // SAFETY: called once, before any other function of the library.
        match unsafe { initialize() } {
            SUCCESS => Ok(pfm),
            code => Err(PfmError::Start(pfm.reason(code))),
        }
    }

    /// perf's `config` of the raw event `code`, on the PMU that libpfm4 calls `pmu`.
    pub fn code(&self, pmu: &str, code: EventCode) -> Result<u64, PfmError> {
        let mut names = code.name.split(' ');
        names.try_fold(0, |joined, name| Ok(joined | self.config(&format!("{pmu}::{name}"))?))
    }

    /// perf's `config` of the raw event `event`, written `pmu::NAME:MASK…`.
    pub fn config(&self, event: &str) -> Result<u64, PfmError> {
        let unknown = |reason| PfmError::Unknown(event.to_owned(), reason);
        let name = CString::new(event).map_err(|error| unknown(error.to_string()))?;
        let mut attr = perf_event_attr::default();
        let mut arg = EncodeArg {
            attr: &raw mut attr,
            full_name: std::ptr::null_mut(),
            size: size_of::<EncodeArg>(),
            index: 0,
            cpu: 0,
            flags: 0,
            padding: 0,
        };
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `name` ends in a zero byte; `arg` has its size filled in and points to an
        // attribute structure at least as large as the library's; both live through the call.
        let code = unsafe {
            (self.encode)(name.as_ptr(), USER_LEVEL, OS_PERF_EVENT, (&raw mut arg).cast())
        };
        if code == SUCCESS { Ok(attr.config) } else { Err(unknown(self.reason(code))) }
    }

    fn reason(&self, code: c_int) -> String {
        // SAFETY: takes any number and returns a constant text.
        let text = unsafe { (self.message)(code) };
        // SAFETY: `text` ends in a zero byte and is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, PfmError> {
    // SAFETY: `library` was returned by dlopen and is never closed.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(PfmError::Missing(loader_message())) } else { Ok(address) }
}

fn loader_message() -> String {
    // SAFETY: returns a text of this thread's last failure, or nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, ends in a zero byte, valid until the next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::table;
    use colocate_testing::skip;
    use std::process::Command;

    /// libpfm4 reads this once, when it starts; it then also encodes for other processors.
    const INACTIVE_TOO: &str = "LIBPFM_ENCODE_INACTIVE";

    /// Runs the ignored test `name` of this file in a process with `variable` set.
    fn again_with(name: &str, variable: &str, value: &str) {
        let me = std::env::current_exe().unwrap();
        let test = format!("pmu::pfm::tests::{name}");
        let done = Command::new(me)
            .args(["--exact", &test, "--ignored", "--nocapture"])
            .env(variable, value)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn codes_of_the_table_are_libpfms() {
        if let Err(PfmError::Missing(why)) = Pfm::get() {
            skip!(Libpfm, "libpfm4 is not installed: {why}");
        }
        again_with("compare_all_codes", INACTIVE_TOO, "1");
    }

    /// How many families libpfm4 is built for on this architecture, at least: it has the PMUs of
    /// one architecture only.
    const AT_LEAST: usize = if cfg!(target_arch = "x86_64") { 11 } else { 0 };

    #[test]
    #[ignore = "run by codes_of_the_table_are_libpfms, in a process of its own"]
    fn compare_all_codes() {
        let pfm = Pfm::get().unwrap();
        let mut families = 0;
        for family in table::all().iter().filter(|family| !family.pfm.is_empty()) {
            let codes = family.rows.iter().flat_map(|row| &row.codes).copied();
            let codes = codes.chain(family.extras.iter().map(|row| row.1));
            // Names in small letters are the kernel's.
            let is_pfms = |code: &EventCode| code.name.chars().all(|c| !c.is_lowercase());
            let stack = family.stack.map_or(&[][..], |table| &table.events).iter().copied();
            let codes = codes.chain(stack.filter(is_pfms));
            let mut known = 0;
            for code in codes {
                match pfm.code(&family.pfm, code) {
                    Ok(config) => {
                        assert_eq!(config, code.config, "{}::{}", family.pfm, code.name);
                        known += 1;
                    }
                    Err(error) => {
                        // Another architecture's, then: all of the family or nothing.
                        let ours = cfg!(target_arch = "x86_64") && !family.name.starts_with("Arm");
                        assert!(known == 0 && !ours, "{error}");
                    }
                }
            }
            families += usize::from(known > 0);
        }
        assert!(families >= AT_LEAST, "libpfm4 knows {families} families");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_forced_processor_answers_without_its_name() {
        if let Err(why) = Pfm::get() {
            skip!(Libpfm, "libpfm4 is not installed: {why}");
        }
        again_with("encode_as_sapphire_rapids", "LIBPFM_FORCE_PMU", "spr");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    #[ignore = "run by a_forced_processor_answers_without_its_name, in a process of its own"]
    fn encode_as_sapphire_rapids() {
        let pfm = Pfm::get().unwrap();
        // Intel's list: MEM_INST_RETIRED.ALL_LOADS is event D0H, umask 81H.
        assert_eq!(pfm.config("MEM_INST_RETIRED:ALL_LOADS"), Ok(0x81d0));
        assert!(matches!(pfm.config("LS_DISPATCH"), Err(PfmError::Unknown(..))));
    }

    #[test]
    fn an_unknown_event_is_named_in_the_error() {
        let Ok(pfm) = Pfm::get() else {
            skip!(Libpfm, "libpfm4 is not installed");
        };
        let error = pfm.config("no_such_pmu::NO_SUCH_EVENT").unwrap_err();
        assert_eq!(
            error.to_string(),
            "pfm_get_os_event_encoding of no_such_pmu::NO_SUCH_EVENT: event not found"
        );
        assert!(matches!(pfm.config("a\0b"), Err(PfmError::Unknown(..))));
    }
}
