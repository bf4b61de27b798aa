//! Tests that need what a machine may lack, and say so where they leave.
//!
//! - A test that leaves by [`skip!`](crate::skip!) or [`need!`](crate::need!) prints `skipped: …` and appends one line to the file
//!   that `COLOCATE_SKIPPED` names: requirement, test and reason, separated by tabs. -> test `one_line_for_each_skip`
//! - `COLOCATE_REQUIRE` lists requirements whose lack fails the test instead; `all` stands for all but those that
//!   `COLOCATE_LACKS` lists. -> test `what_is_required_may_not_be_missing`
//! - An unknown name in either list fails every test that would be skipped. -> test `an_unknown_name_is_refused`

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;

macro_rules! requirements {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One thing of a machine without which some test cannot run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Requirement {
            $($(#[$doc])* $variant,)*
        }

        impl Requirement {
            /// All requirements.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in the environment's lists and in summaries.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

requirements! {
    // Hardware.
    /// Two PUs that the test may use.
    TwoPus = "two-pus",
    /// Two cores that the test may use.
    TwoCores = "two-cores",
    /// A core with two PUs.
    Smt = "smt",
    /// Hardware counters.
    Pmu = "pmu",
    /// A processor without hardware counters.
    NoPmu = "no-pmu",
    /// A NUMA node that the kernel shows, and pages that can be moved.
    Numa = "numa",
    /// Sizes of caches, as /sys shows them.
    CacheSizes = "cache-sizes",
    /// An x86-64 processor.
    X86_64 = "x86-64",
    /// A processor whose instructions are known: x86-64 or aarch64.
    KnownIsa = "known-isa",
    /// A PU that the test may take offline.
    OfflinePu = "offline-pu",
    /// A machine so idle that two ways of running a program can be told apart.
    Idle = "idle",

    // The kernel, and what it permits.
    /// perf events.
    Perf = "perf",
    /// perf events of users other than root.
    UserPerf = "user-perf",
    /// eBPF programs at tracepoints of the scheduler.
    Ebpf = "ebpf",
    /// Running a thread instruction by instruction.
    Ptrace = "ptrace",
    /// seccomp filters.
    Seccomp = "seccomp",
    /// Mounts and namespaces of the test's own.
    Namespaces = "namespaces",
    /// FUSE file systems.
    Fuse = "fuse",
    /// Leases on files.
    Leases = "leases",
    /// The number of the next process, which root may set.
    NsLastPid = "ns-last-pid",
    /// A limit of process numbers for each PID namespace, since Linux 6.14.
    NamespacePids = "namespace-pids",
    /// Control groups that the test makes.
    Cgroups = "cgroups",
    /// The cpuset controller of cgroup v1.
    Cpuset = "cpuset",
    /// Control groups with a CPU quota.
    CpuQuota = "cpu-quota",
    /// Leaving `SCHED_IDLE` again.
    SchedIdle = "sched-idle",
    /// Limits of nice values that can be raised.
    NiceLimit = "nice-limit",
    /// Real-time threads.
    RealTime = "real-time",
    /// One group of the scheduler for each session.
    Autogroup = "autogroup",

    // Users.
    /// The user root.
    Root = "root",
    /// A user without privileges who can execute what was built.
    OtherUser = "other-user",
    /// Executable files with capabilities or set-user-ID.
    FileCapabilities = "file-capabilities",
    /// Signals that whatever started the tests does not ignore.
    Signals = "signals",

    // Programs and libraries.
    /// A compiler for C and its options.
    Compiler = "compiler",
    /// A linker that writes build IDs.
    BuildIds = "build-ids",
    /// clang with its OpenMP.
    Clang = "clang",
    /// A compiler for Fortran.
    Fortran = "fortran",
    /// The LLVM pass of `compiler/spm/build`.
    CompilerPass = "compiler-pass",
    /// The QEMU and the plugin of `scripts/build-qemu`.
    Qemu = "qemu",
    /// valgrind.
    Valgrind = "valgrind",
    /// `llvm-mc` and `llvm-mca`.
    Llvm = "llvm",
    /// libpfm4.
    Libpfm = "libpfm",
    /// The programs of hwloc.
    HwlocPrograms = "hwloc-programs",
    /// An hwloc that loads plugins.
    HwlocPlugins = "hwloc-plugins",
    /// Go.
    Go = "go",
    /// Java.
    Java = "java",
    /// Programs that distributions install by default, or `scripts/install test`.
    Tools = "tools",
}

impl Requirement {
    /// The same as an error, with the reason.
    #[must_use]
    pub fn missing(self, why: impl Display) -> Missing {
        Missing { what: self, why: why.to_string() }
    }

    /// `Ok` if it is there.
    ///
    /// # Errors
    /// Otherwise, with the reason.
    pub fn if_there(self, is_there: bool, why: impl Display) -> Result<(), Missing> {
        if is_there { Ok(()) } else { Err(self.missing(why)) }
    }
}

/// A requirement that this machine does not meet, and the reason.
#[derive(Debug)]
pub struct Missing {
    /// The requirement.
    pub what: Requirement,
    /// The reason, for readers.
    pub why: String,
}

/// Two PUs that this process may use.
///
/// # Errors
/// If there is one only.
pub fn two_pus() -> Result<(), Missing> {
    let pus = std::thread::available_parallelism().map_or(1, usize::from);
    Requirement::TwoPus.if_there(pus > 1, "one PU only")
}

/// That the tests run as root.
///
/// # Errors
/// If they do not.
pub fn root() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t0"));
    Requirement::Root.if_there(is_root, "not root")
}

/// A program in `PATH`.
///
/// # Errors
/// If there is none of this name.
pub fn installed(program: &str) -> Result<(), Missing> {
    let what = match program {
        "go" => Requirement::Go,
        "java" | "javac" => Requirement::Java,
        _ => Requirement::Tools,
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    what.if_there(is_there, format_args!("{program} is not installed"))
}

/// Leaves the test for lack of a [`Requirement`]: `skip!(Perf, "{error}")`.
#[macro_export]
macro_rules! skip {
    ($what:ident, $($why:tt)+) => {
        return $crate::skip::record(
            &$crate::skip::Requirement::$what.missing(format_args!($($why)+)),
        )
    };
}

/// The value of a `Result<_, Missing>`; leaves the test where it is an error.
#[macro_export]
macro_rules! need {
    ($found:expr) => {
        match $found {
            Ok(found) => found,
            Err(missing) => return $crate::skip::record(&missing),
        }
    };
}

/// The value, for a part of a test; `None` with a record of the skip where it is an error.
#[track_caller]
pub fn part<T>(found: Result<T, Missing>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(missing) => {
            record(&missing);
            None
        }
    }
}

/// Prints and records that the test of this thread is skipped.
///
/// # Panics
/// If the environment requires what is missing, or if the file that it names cannot be written.
#[allow(clippy::print_stderr)] // for whoever runs the tests
#[track_caller]
pub fn record(missing: &Missing) {
    let Missing { what, why } = missing;
    let list = |name| env::var(name).unwrap_or_default();
    let is_required = is_required(*what, &list("COLOCATE_REQUIRE"), &list("COLOCATE_LACKS"));
    assert!(!is_required, "COLOCATE_REQUIRE: {} is missing: {why}", what.name());
    eprintln!("skipped: {why}");
    if let Some(path) = env::var_os("COLOCATE_SKIPPED") {
        append(&path, missing, Location::caller()).expect("COLOCATE_SKIPPED can be written");
    }
}

fn append(path: &OsStr, missing: &Missing, place: &Location<'_>) -> std::io::Result<()> {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = missing.why.split_whitespace().collect::<Vec<_>>().join(" ");
    // One write, so that lines of several test programs do not mix.
    let (name, file, line) = (missing.what.name(), place.file(), place.line());
    let text = format!("{name}\t{test} at {file}:{line}\t{why}\n");
    OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())
}

/// Whether a test fails for lack of `what`, by the two lists of the environment.
fn is_required(what: Requirement, required: &str, lacks: &str) -> bool {
    let [required, lacks] = [required, lacks].map(names);
    required.contains(&what.name()) || required.contains(&"all") && !lacks.contains(&what.name())
}

/// The names of a list.
fn names(list: &str) -> Vec<&str> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let is_known =
        |name: &str| name == "all" || Requirement::ALL.iter().any(|one| one.name() == name);
    let check = |name: &&str| {
        assert!(is_known(name), "COLOCATE_REQUIRE or COLOCATE_LACKS: unknown requirement {name:?}");
    };
    names.inspect(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_may_not_be_missing() {
        let smt = |required, lacks| is_required(Requirement::Smt, required, lacks);
        assert!(!smt("", ""));
        assert!(!smt("qemu,compiler", ""));
        assert!(smt("qemu, smt", ""));
        assert!(smt("all", ""));
        assert!(smt("all", "pmu"));
        assert!(!smt("all", "pmu,\nsmt"));
    }

    #[test]
    #[should_panic(expected = "unknown requirement \"qemo\"")]
    fn an_unknown_name_is_refused() {
        is_required(Requirement::Smt, "qemo", "");
    }

    #[test]
    fn one_line_for_each_skip() {
        let path = env::temp_dir().join(format!("colocate-skipped-{}", std::process::id()));
        let place = Location::caller();
        for why in ["one PU", "one\n\tPU"] {
            append(path.as_os_str(), &Requirement::TwoPus.missing(why), place).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let place = format!("{}:{}", place.file(), place.line());
        let line = format!("two-pus\tskip::tests::one_line_for_each_skip at {place}\tone PU\n");
        assert_eq!(text, line.repeat(2));
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<&str> = Requirement::ALL.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Requirement::ALL.len());
    }
}
