//! A program that has capabilities or set-user-ID from its file, called by a user who has none: what that user may not
//! touch, colocate does not touch either. Needs root, to give a copy of the program these; says so where that is missing.

use crate::run_support::{Scratch, child_called, copy_program, masks, original, script};
use colocate_testing::skip::{Missing, Requirement, part, two_pus};
use colocate_testing::{EndsInTime, need, skip, within};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The user `nobody`.
const NOBODY: u32 = 65_534;
/// `CAP_PERFMON` as the kernel writes sets of capabilities.
const PERFMON: &str = "0000004000000000";
/// Capabilities beyond those that `doctor` advises, with the one that opens every file.
const MANY: &str = "cap_perfmon,cap_sys_nice,cap_sys_ptrace,cap_dac_override+ep";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder that everybody may enter, with a copy of colocate that has power from its file.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Result<Self, Missing> {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = Self { folder };
        chown(copy.folder.path(), Some(0), Some(0))
            .map_err(|why| Requirement::Root.missing(why))?;
        copy_program(Path::new(env!("CARGO_BIN_EXE_colocate")), &copy.program());
        fs::set_permissions(copy.program(), fs::Permissions::from_mode(0o755)).unwrap();
        for home in ["runtime", "cache"] {
            fs::create_dir(copy.path(home)).unwrap();
            fs::set_permissions(copy.path(home), fs::Permissions::from_mode(0o700)).unwrap();
            chown(copy.path(home), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Ok(copy)
    }

    /// With these capabilities.
    fn with(capabilities: &str) -> Result<Self, Missing> {
        let copy = Self::new()?;
        let done = Command::new("setcap").arg(capabilities).arg(copy.program()).output();
        let is_given = done.as_ref().is_ok_and(|done| done.status.success());
        let why = format!("setcap gives no capabilities here: {done:?}");
        Requirement::FileCapabilities.if_there(is_given, why)?;
        Ok(copy)
    }

    /// With root as the user that it is executed as.
    fn set_user_id() -> Result<Self, Missing> {
        let copy = Self::new()?;
        fs::set_permissions(copy.program(), fs::Permissions::from_mode(0o6755)).unwrap();
        Ok(copy)
    }

    fn both() -> impl Iterator<Item = Self> {
        [Self::with(MANY), Self::set_user_id()].into_iter().filter_map(|copy| part(copy))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self) -> PathBuf {
        self.path("colocate")
    }

    /// The copy, called by nobody, with homes of its own.
    fn by_nobody(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(self.program());
        command.env("XDG_RUNTIME_DIR", self.path("runtime")).env("HOME", self.folder.path());
        command.env("XDG_CACHE_HOME", self.path("cache")).current_dir(self.folder.path());
        command.stdin(Stdio::null());
        command
    }

    fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.by_nobody().args(args).output().unwrap()
    }

    /// A file that only its owner, nobody, may read.
    fn hand_over(&self, from: &Path, to: &Path) {
        fs::copy(from, to).unwrap();
        chown(to, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Nothing could be placed: it does not wait for the end of what it can only watch.
#[test]
fn another_users_process_is_refused_at_once() {
    let copy = need!(Copy::new());
    let root = Roots::new();
    let output = copy.run(&["attach", "-p", &root.pid()]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    let found = format!("found sleep ({}): another user's threads may not be placed", root.pid());
    assert!(text(&output.stderr).contains(&found), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
}

/// A process of root that ends with the test.
struct Roots(Child);

impl Roots {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A journal of root's, whose colocate and guardian were killed, is handed to a user: as good as one that the user forges.
#[test]
fn a_forged_journal_changes_no_thread_of_others() {
    let copies: Vec<Copy> = Copy::both().collect();
    let scratch = Scratch::new();
    let threads = need!(scratch.program("threads", &[]));
    need!(two_pus());
    if copies.is_empty() {
        return;
    }
    let mut command = scratch.run(&["--policy", "scatter", "--settle-ms", "0"]);
    command.arg(threads).args(["0", "3"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child_called(&child, "threads");
    scratch.await_placed(4);
    let input = child.stdin.take();
    let guardian = child_called(&child, "colocate-guard").to_string();
    assert!(Command::new("kill").args(["-9", &guardian]).status().unwrap().success());
    child.kill().unwrap();
    child.ended();
    let placed = masks(pid);
    assert!(placed.iter().all(|mask| *mask != original()), "{placed:?}");

    let journal = scratch.journals().remove(0);
    for copy in copies {
        let folder = copy.path("runtime/colocate");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        copy.hand_over(&journal, &folder.join(journal.file_name().unwrap()));
        let output = copy.run(&["restore"]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(masks(pid), placed, "{said}");
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert_eq!(said.matches("belongs to another user").count(), 4, "{said}");
    }
    assert!(scratch.colocate().arg("restore").status().unwrap().success());
    drop(input);
}

#[test]
fn memory_of_others_is_neither_shown_nor_moved() {
    let roots = Roots::new();
    let pid = roots.pid();
    for copy in Copy::both() {
        for args in [
            &["pages", &pid][..],
            &["pages", "--json", &pid],
            &["pages", "move", "--all", "--to", "0", &pid],
            &["pages", "move", "--all", "--shared", "--to", "0", &pid],
        ] {
            let output = copy.run(args);
            assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
            assert_eq!(text(&output.stdout), "", "{args:?}");
        }
    }
}

/// Files that the user may not read or write.
#[test]
fn files_of_others_are_neither_read_nor_written() {
    for copy in Copy::both() {
        let secret = copy.path("secret.toml");
        fs::write(&secret, "the secret\n").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let path = secret.to_str().unwrap();
        for args in [&["topo", "--machine", path][..], &["schedule", path]] {
            let output = copy.run(args);
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(!output.status.success() && said.contains("Permission denied"), "{said}");
            assert!(!said.contains("the secret"), "{args:?}: {said}");
        }
        for name in ["secret.toml", "new"] {
            let output = copy.run(&["topo", "-o", copy.path(name).to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(125), "{output:?}");
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "the secret\n");
        assert!(!copy.path("new").exists());
    }
}

/// Sets of capabilities of a process: inheritable, permitted, effective, ambient.
fn sets(pid: u32) -> [String; 4] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    ["CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"]
        .map(|name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned())
}

/// All that is left is the right to watch, in colocate and in its guardian, and nothing in what they start.
#[test]
fn only_the_right_to_watch_is_kept() {
    let none = "0000000000000000";
    let copies = [(Copy::with(MANY), PERFMON), (Copy::set_user_id(), none)];
    for (copy, kept) in copies {
        let Some(copy) = part(copy) else { continue };
        let mut command = copy.by_nobody();
        command.args([
            "run",
            "--quiet",
            "--",
            "sh",
            "-c",
            "grep -E '^(Cap(Inh|Prm|Eff|Amb)|Uid|Gid)' /proc/self/status; read x || true",
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut found = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        for _ in 0..6 {
            within("a line of the program", || std::io::BufRead::read_line(&mut out, &mut found))
                .unwrap();
        }
        let guardian = child_called(&child, "colocate-guard");
        for pid in [child.id(), u32::try_from(guardian).unwrap()] {
            // In force only while an event is opened.
            assert_eq!(sets(pid), [none, kept, none, none], "process {pid}");
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            assert!(status.contains("Uid:\t65534\t65534\t65534\t65534\n"), "{status}");
            assert!(status.contains("Gid:\t65534\t65534\t65534\t65534\n"), "{status}");
        }
        drop(child.stdin.take());
        assert!(child.ended().success());
        let sets: Vec<&str> = found.lines().filter(|line| line.starts_with("Cap")).collect();
        assert_eq!(sets.len(), 4, "{found}");
        assert!(sets.iter().all(|line| line.ends_with(none)), "{found}");
        assert!(found.contains("Uid:\t65534\t65534\t65534\t65534"), "{found}");
    }
}

/// With both capabilities of the file colocate counts wake-ups by its eBPF program, and `doctor` says so.
#[test]
fn wake_ups_are_counted_by_capabilities_of_the_file() {
    let copy = need!(Copy::with("cap_bpf,cap_perfmon+ep"));
    let doctor = |copy: &Copy| {
        let output = copy.run(&["doctor", "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let policies = found["policies"].as_array().unwrap();
        policies.iter().find(|it| it["is_default"] == true).unwrap().clone()
    };
    let root = Command::new(env!("CARGO_BIN_EXE_colocate")).args(["doctor", "--json"]).output();
    if !text(&root.unwrap().stdout).contains("sched_waking and sched_switch: works") {
        skip!(Ebpf, "no eBPF");
    }
    assert_eq!(doctor(&copy)["status"], "yes");
    let output = copy.run(&["run", "--no-guard", "--json", "--", "sh", "-c", "seq 9 | cat >&2"]);
    let said = text(&output.stderr);
    assert!(said.contains("eBPF: sched_waking and sched_switch"), "{said}");
    assert!(!said.contains("cannot report which threads wake which"), "{said}");
    let plain = need!(Copy::new());
    let verdict = doctor(&plain);
    assert_eq!((&verdict["name"], &verdict["status"]), (&"auto".into(), &"no".into()));
}

/// A library that hwloc would load from a folder of the caller's would have colocate's capabilities.
#[test]
fn no_variable_loads_code_into_colocate() {
    for copy in Copy::both() {
        let folder = copy.path("plugins");
        fs::create_dir(&folder).unwrap();
        let (source, mark) = (copy.path("plugin.c"), copy.path("cache/loaded"));
        let code = format!(
            "#include <fcntl.h>\n__attribute__((constructor)) void begin(void) {{ open(\"{}\", O_CREAT, 0600); }}\n\
             int hwloc_plugin_component;\n",
            mark.display()
        );
        fs::write(&source, code).unwrap();
        let plugin = folder.join("hwloc_own.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&plugin).arg(&source);
        if !cc.status().is_ok_and(|status| status.success()) {
            skip!(Compiler, "no C compiler");
        }
        // Root, who has no power from the file, may load what it wants.
        let ours = Command::new(env!("CARGO_BIN_EXE_colocate"))
            .arg("topo")
            .env("HWLOC_PLUGINS_PATH", &folder)
            .output()
            .unwrap();
        assert!(ours.status.success());
        if !mark.exists() {
            skip!(HwlocPlugins, "this hwloc has no plugins");
        }
        fs::remove_file(&mark).unwrap();
        for preload in [None, Some(&plugin)] {
            let mut command = copy.by_nobody();
            command.arg("topo").env("HWLOC_PLUGINS_PATH", &folder);
            if let Some(preload) = preload {
                // `setpriv` itself would load it, as the plain user.
                command = through_env(&copy, &folder, preload);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(!mark.exists(), "the caller's code ran in colocate");
        }
    }
}

/// The copy, with the library in LD_PRELOAD for it alone.
fn through_env(copy: &Copy, plugins: &Path, preload: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
    command.arg(format!("LD_PRELOAD={}", preload.display()));
    command.arg(format!("HWLOC_PLUGINS_PATH={}", plugins.display()));
    command.arg(copy.program()).arg("topo").stdin(Stdio::null());
    command
}

/// Programs that colocate looks up in PATH for itself are the caller's, and have what the caller has.
#[test]
fn helpers_from_path_have_no_capabilities() {
    for copy in Copy::both() {
        let bin = copy.path("bin");
        fs::create_dir(&bin).unwrap();
        let (plain, found) = (copy.path("plain"), copy.path("cache/found"));
        let text = format!(
            "#!/bin/sh\ngrep -E '^(Cap(Inh|Prm|Eff|Amb)|Uid)' /proc/self/status >> {}\necho 65534\n",
            found.display()
        );
        script(&plain, &text);
        for name in ["id", "llvm-mca", "addr2line", "setsid"] {
            copy_program(&plain, &bin.join(name));
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let setpriv = Command::new("sh").args(["-c", "command -v setpriv"]).output().unwrap();
        assert!(setpriv.status.success());
        let mut command = copy.by_nobody();
        let output = command.args(["top", "-n", "1", "--interval", "10ms", "--user", "someone"]);
        let output = output.env("PATH", path).output().unwrap();
        let found = fs::read_to_string(&found).unwrap_or_default();
        assert!(found.lines().count() >= 5, "{found} {output:?}");
        for line in found.lines() {
            let plain = line.starts_with("Uid:\t65534\t65534\t65534\t65534")
                || line.ends_with("\t0000000000000000");
            assert!(plain, "{found}");
        }
    }
}

/// What the capability is for still works.
#[test]
fn doctor_finds_the_right_to_watch() {
    let copy = need!(Copy::with("cap_perfmon+ep"));
    let output = copy.run(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["tier"], "perfmon", "{found}");
    let plain = need!(Copy::set_user_id());
    let output = plain.run(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["tier"], "own-process", "{found}");
}

/// Root's program is counted with the capability and refused without; its code is read in neither case.
#[test]
fn programs_of_others_are_counted_and_not_read() {
    let with = need!(Copy::with("cap_perfmon+ep"));
    let without = need!(Copy::new());
    let doctor = text(&with.run(&["doctor"]).stdout);
    if !doctor.contains("   yes  sample ") {
        skip!(UserPerf, "nobody can sample here");
    }
    let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let busy = Roots(busy);
    let pid = busy.pid();
    let args = ["profile", "--backend", "sample", "--for", "0.3", "--pid", &pid];
    let output = without.run(&args);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = with.run(&args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("/exe may not be read"), "{said}");
}
