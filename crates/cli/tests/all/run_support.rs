//! What the tests of `run` and `restore` share: programs compiled on the spot, a scratch folder,
//! reports read back.

use crate::schedule_support::stat;
use colocate_testing::skip::{Missing, Requirement, installed, root, two_pus};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use colocate_testing::LIMIT as PATIENCE;

/// A scratch folder with the homes that colocate looks for.
pub struct Scratch {
    pub dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["runtime", "cache"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `colocate` with these homes.
    pub fn colocate(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_colocate"));
        self.homes(&mut command);
        command
    }

    pub fn homes(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.path("runtime"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.env("HOME", self.dir.path());
        for name in ["OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "OMP_PLACES"] {
            command.env_remove(name);
        }
    }

    /// `colocate run` with these options, its report going to the file `report`.
    pub fn run(&self, options: &[&str]) -> Command {
        let mut command = self.colocate();
        command
            .args(["run", "--no-guard", "--json", "-o"])
            .arg(self.path("report"))
            .args(options)
            .arg("--");
        command.stdin(Stdio::null());
        command
    }

    pub fn report(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path("report")).unwrap()).unwrap()
    }

    /// The program in tests/programs/NAME.c, compiled.
    pub fn program(&self, name: &str, flags: &[&str]) -> Result<PathBuf, Missing> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let program = self.path(name);
        let mut cc = Command::new("cc");
        cc.arg("-O1").arg("-o").arg(&program).arg(source.with_extension("c")).arg("-pthread");
        let output = cc.args(flags).output();
        let output =
            output.map_err(|why| Requirement::Compiler.missing(format_args!("cc: {why}")))?;
        let why = String::from_utf8_lossy(&output.stderr);
        let why = format!("cc {flags:?} cannot compile {name}.c: {why}");
        Requirement::Compiler.if_there(output.status.success(), why)?;
        Ok(program)
    }

    /// Waits until this many tasks were put on a PU: the only journal says so, as a thread is born
    /// with the mask of its creator; and their masks do, as the line stands before the deed is
    /// done.
    pub fn await_placed(&self, tasks: usize) {
        await_that("tasks are placed", || {
            let there = |(pid, tid, mark): &(i32, i32, String)| {
                mark.parse::<u32>().is_ok() && allowed(*pid, *tid).as_ref() == Some(mark)
            };
            (self.marks().iter().filter(|line| there(line)).count() == tasks).then_some(())
        });
        // A line is written before the mask, and the one that a thread has inherited may be the same.
        await_that("colocate has put them there and waits", || {
            let owner = self
                .journal()
                .lines()
                .find_map(|line| line.strip_prefix("owner ")?.split(' ').next()?.parse().ok());
            stat(owner?).filter(|(state, _)| *state == 'S')
        });
    }

    /// The only journal.
    fn journal(&self) -> String {
        let journal = self.journals().into_iter().next();
        journal.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// Process, thread and mark of every line in the only journal.
    pub fn marks(&self) -> Vec<(i32, i32, String)> {
        let text = self.journal();
        let line = |line: &str| {
            let mut fields = line.split(' ');
            let (pid, tid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            // Process 0 stands for what was done at all.
            (pid > 0).then_some(())?;
            Some((pid, tid, fields.nth(1)?.to_owned()))
        };
        text.lines().skip_while(|line| !line.is_empty()).filter_map(line).collect()
    }

    /// Living processes with these homes.
    fn alive(&self) -> Vec<i32> {
        let home = format!("XDG_RUNTIME_DIR={}\0", self.path("runtime").display());
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let has = |pid: &i32| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&variables).contains(&home)
        };
        pids.filter(has).collect()
    }

    /// The journals that are there.
    pub fn journals(&self) -> Vec<PathBuf> {
        let dir = self.path("runtime/colocate");
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// The tasks of a report with what they stand like.
pub fn stands(report: &Value) -> Vec<String> {
    let tasks = report["tasks"].as_array().unwrap();
    tasks.iter().map(|task| task["status"].as_str().unwrap().to_owned()).collect()
}

/// A test that failed ends no programs; those that work for ever, or create others, would be beside all tests after it.
impl Drop for Scratch {
    fn drop(&mut self) {
        while std::thread::panicking() && !self.alive().is_empty() {
            let pids = self.alive().into_iter().map(|pid| pid.to_string());
            let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
        }
    }
}

pub use colocate_testing::wait_for as await_that;

/// Whether a process that was colocate has left cgroups.
pub fn has_cgroups(pid: u32) -> bool {
    let name = format!("colocate-{pid}-");
    let entries = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(std::fs::read_dir);
    let mut entries = entries.into_iter().flatten().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
}

/// Held by tests that measure CPU time or waits, and by those that create as many threads or processes as they can: none of
/// them runs beside another one.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// PUs that a thread may use, as the kernel lists them; `None` if it has ended.
pub fn allowed(pid: i32, tid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    if text.contains("\nState:\tZ") {
        return None;
    }
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// The masks of all threads of a process.
pub fn masks(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid: i32| allowed(pid, tid)).collect()
}

/// This test's own mask: the original one of all that it starts.
pub fn original() -> String {
    let pid = std::process::id().cast_signed();
    allowed(pid, pid).unwrap()
}

/// Child processes of a process.
pub fn children(pid: u32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

/// Copies a program. Not in this process: children of other tests would have the copy open for writing for a moment, and
/// such a file cannot be executed (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("--").arg(from).arg(to).status().unwrap().success());
}

/// Writes a file that may be executed, not in this process either.
pub fn script(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(path).arg(text).status().unwrap().success());
}

/// The name of a process's first thread.
pub fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The child of `colocate` that is called `wanted`.
pub fn child_called(colocate: &Child, wanted: &str) -> i32 {
    await_that(wanted, || children(colocate.id()).into_iter().find(|&pid| name(pid) == wanted))
}

/// A program of workloads/, compiled with threads.
pub fn workload(scratch: &Scratch, source: &str) -> Result<PathBuf, Missing> {
    let program = scratch.dir.path().join(Path::new(source).file_stem().unwrap());
    let source = format!("{}/../../workloads/{source}", env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    let compiled = cc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(&source).status();
    let is_compiled = compiled.is_ok_and(|status| status.success());
    Requirement::Compiler.if_there(is_compiled, format_args!("cc does not compile {source}"))?;
    Ok(program)
}

/// What a program wrote.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// colocate as the user 65534 with these homes, and a program that becomes root.
pub fn as_nobody(scratch: &Scratch) -> Result<(Command, PathBuf), Missing> {
    use std::os::unix::fs::{PermissionsExt, chown};
    root()?;
    installed("setpriv")?;
    two_pus()?;
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let (program, binary) = (scratch.path("becomes_root"), scratch.path("colocate"));
    if !binary.exists() {
        scratch.program("becomes_root", &[])?;
        mode(&program, 0o4755);
        // With the sticky bit: a folder above the journal that others can change is refused.
        mode(scratch.dir.path(), 0o1777);
        chown(scratch.path("runtime"), Some(65534), Some(65534)).unwrap();
        copy_program(Path::new(env!("CARGO_BIN_EXE_colocate")), &binary);
        mode(&binary, 0o755);
    }
    let nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        scratch.homes(&mut command);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    };
    let is_honoured = nobody(&program).arg("true").status().unwrap().success();
    let why = format!("no set-user-ID programs in {}", scratch.dir.path().display());
    Requirement::FileCapabilities.if_there(is_honoured, why)?;
    Ok((nobody(&binary), program))
}

/// A cpuset with all PUs of the machine, removed when dropped.
pub struct Cpuset(PathBuf);

impl Cpuset {
    pub fn new() -> Result<Self, Missing> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = Path::new("/sys/fs/cgroup/cpuset");
        self::root()?;
        two_pus()?;
        let is_there = root.join("cpuset.cpus").exists();
        Requirement::Cpuset.if_there(is_there, "no cpuset controller of cgroup v1")?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let group = root.join(format!("colocate-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        for name in ["cpuset.cpus", "cpuset.mems"] {
            std::fs::write(group.join(name), std::fs::read(root.join(name)).unwrap()).unwrap();
        }
        Ok(Self(group))
    }

    /// A command that runs another one, whose words are to be added, in the cpuset.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/tasks\" && exec \"$@\""]).arg(&self.0);
        command
    }

    /// Moves a process into it, as an orchestrator does.
    pub fn take(&self, pid: i32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Moves a process back.
    pub fn give_back(&self, pid: i32) {
        let root = self.0.parent().unwrap();
        std::fs::write(root.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    pub fn set_to(&self, pus: &str) {
        std::fs::write(self.0.join("cpuset.cpus"), pus).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // It is empty only when the last process is gone altogether, which a failed test leaves open.
        let _ = std::fs::remove_dir(&self.0);
    }
}
