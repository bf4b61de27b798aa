//! Which threads of a program count the PUs that they may use.
//!
//! A program that is asked to use the whole machine counts PUs by its own affinity mask, and a
//! thread that was put on one PU counts one. Most runtimes count once, on the program's first
//! thread, soon after its exec (libgomp, TBB, 7-Zip, `nproc`, Rust's and C++'s
//! standard libraries), so the first thread of every process is left alone until it has *settled*.
//! Two runtimes count elsewhere.

use colocate_linux::foreign;
use colocate_observe::bounded::BoundedFile;
use object::read::Object;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// Runtime of a program, by its way of counting PUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// Counted on the first thread at start.
    #[default]
    Plain,
    /// Go: counted at start on the first thread, and since Go 1.25 every second on the second
    /// thread, the monitor (`sysmon` in runtime/proc.go). If the monitor counts one PU, the whole
    /// program is throttled to one.
    Go,
    /// Java virtual machine: counted on any thread that runs the Java code of the query, at any
    /// time (`os::active_processor_count` in os_linux.cpp). Mostly the second thread, created by
    /// the launcher to start the machine and to run `main`.
    Jvm,
}

/// Detects runtimes from executables, with a cache of the files already read.
#[derive(Debug, Default)]
pub struct Runtimes {
    known: HashMap<FileKey, Runtime>,
}

/// Device, inode and modification time: identify an unchanged file.
type FileKey = (u64, u64, Option<SystemTime>);

impl Runtimes {
    /// PU counting of the program in the file `executable`; [`Runtime::Plain`] if unreadable.
    pub fn of(&mut self, executable: &Path) -> Runtime {
        let Ok(code) = foreign::code(executable) else { return Runtime::Plain };
        *self.known.entry(key(&code.metadata)).or_insert_with(|| inspect(code.file))
    }
}

fn key(found: &Metadata) -> FileKey {
    (found.dev(), found.ino(), found.modified().ok())
}

fn inspect(file: File) -> Runtime {
    let Ok(file) = BoundedFile::of(file) else { return Runtime::Plain };
    let Ok(file) = object::File::parse(&file) else { return Runtime::Plain };
    // Go's linker writes this section also into stripped programs.
    if file.section_by_name(".go.buildinfo").is_some() {
        Runtime::Go
    } else if needs_java(&file) {
        Runtime::Jvm
    } else {
        Runtime::Plain
    }
}

/// Whether the program is linked with the Java launcher's library or the machine itself.
fn needs_java<'a>(file: &object::File<'a, &'a BoundedFile>) -> bool {
    // This section has the names of the needed libraries.
    let strings = file
        .section_by_name(".dynstr")
        .and_then(|section| object::ObjectSection::data(&section).ok());
    let has = |name: &[u8]| strings.is_some_and(|bytes| contains(bytes, name));
    has(b"libjli.so") || has(b"libjvm.so")
}

fn contains(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::need;
    use colocate_testing::skip::Requirement;

    #[test]
    fn a_plain_program_and_what_is_none() {
        let mut runtimes = Runtimes::default();
        assert_eq!(runtimes.of(Path::new("/proc/self/exe")), Runtime::Plain);
        assert_eq!(runtimes.of(Path::new("/proc/self/status")), Runtime::Plain);
        assert_eq!(runtimes.of(Path::new("/nonexistent")), Runtime::Plain);
    }

    #[test]
    fn java_is_known_where_it_is_installed() {
        let java = Path::new("/usr/bin/java");
        need!(Requirement::Java.if_there(java.exists(), "no /usr/bin/java"));
        assert_eq!(Runtimes::default().of(java), Runtime::Jvm);
    }
}
