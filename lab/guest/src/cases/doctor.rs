//! `colocate doctor` reports the true causes of an environment, and its remedies work.
//!
//! Messages are golden files, one folder per kernel. The kernel's exact release is masked.

use crate::{evidence, golden};
use anyhow::{Context as _, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command};

/// A user without privileges.
const USER: u32 = 1000;
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const PROGRAM: &str = "/usr/bin/colocate";

/// The user that runs doctor.
#[derive(Clone, Copy)]
struct Caller {
    name: &'static str,
    user: u32,
    /// Capabilities in setpriv's notation, each with a plus sign.
    capabilities: &'static str,
}

const ROOT: Caller = Caller { name: "root", user: 0, capabilities: "" };
const NONE: Caller = Caller { name: "user", user: USER, capabilities: "" };
const PERFMON: Caller = Caller { name: "perfmon", user: USER, capabilities: "+perfmon" };
const SYS_NICE: Caller = Caller { name: "sys-nice", user: USER, capabilities: "+sys_nice" };

impl Caller {
    /// A command of this user, with fixed environment variables.
    fn command(self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let user = self.user.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        if !self.capabilities.is_empty() {
            // Ambient capabilities survive the exec of a program without file capabilities.
            command.args(["--inh-caps", self.capabilities, "--ambient-caps", self.capabilities]);
        }
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", "/tmp");
        command
    }

    /// Output of `colocate doctor` for this user.
    fn doctor(self) -> anyhow::Result<String> {
        output_of(&mut self.command(&["colocate", "doctor"]))
    }
}

/// Output of a command that ends in `colocate doctor`.
fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Status 3 reports that nothing works, which is an answer too.
    let answered = matches!(output.status.code(), Some(0 | 3)) && text.starts_with("colocate ");
    ensure!(answered, "{command:?}: {}: {text}{said}", output.status);
    Ok(text)
}

/// The text with `KERNEL` for the kernel's exact release.
fn masked(text: &str) -> anyhow::Result<String> {
    let release = evidence::text("/proc/sys/kernel/osrelease")?;
    Ok(text.replace(&release, "KERNEL"))
}

/// The kernel's first two numbers.
fn kernel() -> anyhow::Result<String> {
    let release = evidence::text("/proc/sys/kernel/osrelease")?;
    Ok(release.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// Checks (name, text) pairs with golden files of this kernel, and reports all failures at once.
fn check(texts: &[(String, String)]) -> anyhow::Result<()> {
    let kernel = kernel()?;
    let mut failed = Vec::new();
    for (name, text) in texts {
        let name = format!("doctor/{kernel}/{name}.txt");
        failed.extend(golden::check(&name, &masked(text)?).err().map(|error| format!("{error:#}")));
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// True for the first line of a capability: a status in 8 columns, the name and a blank.
fn begins(line: &str, name: &str) -> bool {
    line.get(8..).and_then(|rest| rest.strip_prefix(name)).is_some_and(|r| r.starts_with(' '))
}

/// Lines of a capability, with its causes and commands.
fn capability<'a>(text: &'a str, name: &str) -> anyhow::Result<Vec<&'a str>> {
    let mut lines = text.lines().skip_while(|line| !begins(line, name));
    let first = lines.next().with_context(|| format!("expected {name}, found {text}"))?;
    // Causes and commands are indented below the name.
    let more = lines.take_while(|line| line.starts_with("        "));
    Ok(std::iter::once(first).chain(more).collect())
}

/// Status of a capability: yes, partly or no.
fn status<'a>(text: &'a str, name: &str) -> anyhow::Result<&'a str> {
    let line = capability(text, name)?[0];
    line.split_whitespace().next().with_context(|| format!("expected a status, found {line}"))
}

/// Lines of several capabilities.
fn lines_of(text: &str, names: &[&str]) -> anyhow::Result<String> {
    let mut all = String::new();
    for name in names {
        capability(text, name)?.iter().for_each(|line| all.extend([line, "\n"]));
    }
    Ok(all)
}

/// Golden files of each kernel.
const GOLDEN: [&str; 6] =
    ["filter.txt", "paranoid.txt", "perfmon.txt", "root.txt", "sys-nice.txt", "user.txt"];

/// Full output for root, for users with one Linux capability, and for a user without any.
pub fn reports_the_tier() -> anyhow::Result<()> {
    golden::are_all(&format!("doctor/{}", kernel()?), &GOLDEN)?;
    let texts =
        [ROOT, NONE, PERFMON, SYS_NICE].map(|caller| Ok((caller.name.into(), caller.doctor()?)));
    check(&texts.into_iter().collect::<anyhow::Result<Vec<_>>>()?)
}

/// Capabilities at every level of `kernel.perf_event_paranoid`, including distributions' 3 and 4.
pub fn reports_the_paranoid_level() -> anyhow::Result<()> {
    let before = evidence::text(PARANOID)?;
    let mut text = String::new();
    for caller in [NONE, PERFMON] {
        for level in -1..=4 {
            fs::write(PARANOID, level.to_string())?;
            text += &format!("{} at level {level}\n", caller.name);
            text += &lines_of(&caller.doctor()?, &["thread-creation", "mix", "counters"])?;
        }
    }
    fs::write(PARANOID, before)?;
    check(&[("paranoid".into(), text)])
}

/// A seccomp filter of NUMA system calls is reported as the cause; without a filter the calls work.
pub fn reports_the_filter() -> anyhow::Result<()> {
    let mut text = String::new();
    for errno in ["EPERM", "ENOSYS"] {
        let words = ["lab-guest", "--program", "filtered", errno, "colocate", "doctor"];
        for caller in [ROOT, NONE] {
            text += &format!("{}, {errno}\n", caller.name);
            let filtered = output_of(&mut caller.command(&words))?;
            text += &lines_of(&filtered, &["numa-calls", "other-memory"])?;
        }
    }
    ensure!(status(&ROOT.doctor()?, "numa-calls")? == "yes", "without a filter: not yes");
    check(&[("filter".into(), text)])
}

/// A busy program of root, killed on drop.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // The program does not end by itself, so neither call fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Exit code and messages of a caller's `colocate profile` of a running process.
fn sample(caller: Caller, pid: &str) -> anyhow::Result<(Option<i32>, String)> {
    let words = ["colocate", "profile", "--backend", "sample", "--for", "0.5", "--pid", pid];
    let output = caller.command(&words).output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Mask of a process, as a list of the kernel.
fn mask(pid: &str) -> anyhow::Result<String> {
    let status = evidence::text(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    Ok(line.unwrap_or_default().to_owned())
}

/// Users of the higher tiers can do to a program of root exactly the reported additional actions.
pub fn reports_what_tiers_add() -> anyhow::Result<()> {
    let before = evidence::text(PARANOID)?;
    fs::write(PARANOID, "2")?;
    let busy = Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
    let pid = busy.0.id().to_string();
    let unread = "/exe may not be read (CAP_SYS_PTRACE lifts that)";
    let reads = Caller { name: "both", user: USER, capabilities: "+perfmon,+sys_ptrace" };
    for (caller, status, says, not) in [
        (NONE, 3, "Permission denied", unread),
        (PERFMON, 0, unread, "Permission denied"),
        (reads, 0, "/bin/sh -c", unread),
    ] {
        let (found, said) = sample(caller, &pid)?;
        let right = found == Some(status) && said.contains(says) && !said.contains(not);
        ensure!(right, "{}: expected {status} and {says:?}, found {found:?}: {said}", caller.name);
    }
    let all = mask(&pid)?;
    for (caller, expected) in [(NONE, all.as_str()), (SYS_NICE, "1")] {
        // taskset takes a hexadecimal mask: 2 is PU 1.
        caller.command(&["taskset", "-p", "2", &pid]).output()?;
        let found = mask(&pid)?;
        ensure!(found == expected, "{}: expected PUs {expected}, found {found}", caller.name);
    }
    fs::write(PARANOID, before)?;
    Ok(())
}

/// Settings changed by [`ILLS`] and by remedies.
const SETTINGS: [&str; 5] = [
    PARANOID,
    "/proc/sys/kernel/perf_event_mlock_kb",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/vm/unprivileged_userfaultfd",
];
/// File of the remedies that persist settings for the next boot.
const KEPT: &str = "/etc/sysctl.d/90-colocate.conf";
/// The user's folder, for commands with the placeholder FOLDER.
const FOLDER: &str = "/tmp/folder";

/// A defect of the environment.
struct Ill {
    caller: Caller,
    /// Capability that doctor then reports as "no" or "partly".
    capability: &'static str,
    /// Status of the capability after a remedy.
    then: &'static str,
    /// Shell command of root that causes the defect.
    make: &'static str,
    /// Words before the shell in which doctor and remedies run.
    within: &'static [&'static str],
}

const fn ill(caller: Caller, capability: &'static str, make: &'static str) -> Ill {
    Ill { caller, capability, then: "yes", make, within: &[] }
}

const ILLS: [Ill; 17] = [
    ill(NONE, "thread-creation", "sysctl -w kernel.perf_event_paranoid=3"),
    ill(NONE, "mix", "sysctl -w kernel.perf_event_paranoid=4"),
    ill(PERFMON, "mix", "sysctl -w kernel.perf_event_paranoid=3"),
    ill(NONE, "other-tasks", "true"),
    ill(NONE, "other-memory", "true"),
    ill(NONE, "pages-stay", "sysctl -w kernel.numa_balancing=1"),
    ill(ROOT, "pages-stay", "sysctl -w kernel.numa_balancing=1"),
    ill(NONE, "user-faults", "sysctl -w vm.unprivileged_userfaultfd=0"),
    ill(NONE, "live-code", "sysctl -w kernel.yama.ptrace_scope=1"),
    // After the remedy only the caller's own children can be traced.
    Ill { then: "partly", ..ill(NONE, "live-code", "sysctl -w kernel.yama.ptrace_scope=2") },
    ill(NONE, "processes", "mount -o remount,hidepid=2 /proc"),
    ill(NONE, "cpuset", "true"),
    ill(NONE, "freezer", "true"),
    // A delegated group without the cpuset controller.
    Ill {
        within: &[
            "sh",
            "-c",
            "echo $$ | sudo tee /sys/fs/cgroup/handed/cgroup.procs >/dev/null; exec \"$@\"",
            "sh",
        ],
        ..ill(
            NONE,
            "cpuset",
            "cd /sys/fs/cgroup; mkdir -p handed; chown -R user handed; echo -cpuset > cgroup.subtree_control",
        )
    },
    ill(NONE, "journal", "rm -rf /tmp/colocate-1000; mkdir /tmp/colocate-1000"),
    Ill { within: &["prlimit", "--nofile=1000:1000"], ..ill(NONE, "files", "true") },
    Ill {
        within: &["prlimit", "--memlock=0:0"],
        ..ill(
            NONE,
            "thread-creation",
            "sysctl -w kernel.perf_event_paranoid=2 kernel.perf_event_mlock_kb=4",
        )
    },
];

/// Parts of remedies that cannot be run in a guest, with the reason.
const NOT_HERE: [(&str, &str); 5] = [
    ("make tracer", "there is no source and no compiler"),
    ("qemu-system-ARCH ", "it is the host's to run"),
    ("virsh edit ", "it is the host's to run"),
    (
        "systemctl edit ",
        "there is no systemd; what it says of a start outside of the filter is tried",
    ),
    ("/etc/security/limits.d/", "there is no login through PAM"),
];

/// A remedy that doctor prints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fix {
    command: String,
    /// True for a command whose effect persists over the next boot.
    for_good: bool,
}

/// The remedy in a line, without its comment. `None` for other lines.
fn fix(line: &str) -> Option<Fix> {
    let labels = ["now:", "for good:", "or:"];
    let label = labels.into_iter().find(|label| line.trim_start().starts_with(label))?;
    let command = line.split_once(label)?.1.split("  # ").next()?.trim().into();
    Some(Fix { command, for_good: label == "for good:" })
}

fn is_not_here(command: &str) -> bool {
    NOT_HERE.iter().any(|(part, _)| command.contains(part))
}

/// The environment for remedies, with a record of the tried remedies.
struct RemedyEnvironment {
    /// Original values of [`SETTINGS`].
    before: Vec<(&'static str, String)>,
    /// Remedies that doctor has printed.
    printed: BTreeSet<String>,
    /// Remedies that were run and worked.
    ran: BTreeSet<String>,
}

impl RemedyEnvironment {
    fn new() -> anyhow::Result<Self> {
        // A replacement for sudo, which the guest lacks.
        let as_root = "/usr/bin/as-root";
        fs::copy("/usr/bin/lab-guest", as_root)?;
        fs::set_permissions(as_root, fs::Permissions::from_mode(0o4755))?;
        fs::write("/usr/bin/sudo", format!("#!/bin/sh\nexec {as_root} --program sudo \"$@\"\n"))?;
        fs::set_permissions("/usr/bin/sudo", fs::Permissions::from_mode(0o755))?;
        // Every Debian has these folders.
        ["/etc/sysctl.d", "/etc/security/limits.d"].into_iter().try_for_each(fs::create_dir_all)?;
        let before = SETTINGS.map(|path| Ok((path, evidence::text(path)?)));
        let before = before.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(Self { before, printed: BTreeSet::new(), ran: BTreeSet::new() })
    }

    /// Restores the original environment.
    fn reset(&self) -> anyhow::Result<()> {
        for (path, value) in &self.before {
            fs::write(path, value).with_context(|| format!("{path}: {value}"))?;
        }
        let _ = fs::remove_file(KEPT);
        shell("mount -o remount,hidepid=0 /proc")?;
        // chown(2) clears file capabilities, also if the owner stays the same.
        shell(&format!(
            "chown 0:0 {PROGRAM}; chmod 755 {PROGRAM}; rm -rf /tmp/colocate-* {FOLDER}"
        ))?;
        shell(&format!("mkdir -m 700 {FOLDER}; chown {USER} {FOLDER}"))
    }

    /// Output of doctor after commands in the same shell.
    fn request(&mut self, ill: &Ill, commands: &str) -> anyhow::Result<String> {
        let script = format!("{{ {commands}\n}} >&2; exec colocate doctor");
        let words: Vec<_> = ill.within.iter().copied().chain(["sh", "-c", &script]).collect();
        let text = output_of(&mut ill.caller.command(&words))?;
        self.printed.extend(text.lines().filter_map(fix).map(|fix| fix.command));
        Ok(text)
    }

    /// Causes a defect, runs a remedy, and checks the capability's status.
    fn lift(&mut self, ill: &Ill, fix: &Fix) -> anyhow::Result<()> {
        let command = fix.command.replace("FOLDER", FOLDER).replace("ARGUMENTS", "doctor");
        let command = command.replace("GROUP", &USER.to_string());
        self.reset()?;
        shell(ill.make)?;
        let after = if fix.command.contains("ARGUMENTS") {
            // The remedy starts colocate itself, here `colocate doctor`.
            output_of(&mut ill.caller.command(&["sh", "-c", &command]))?
        } else {
            // Stands for the next boot, which reads the file.
            let boot = format!("{command}\n[ ! -f {KEPT} ] || sudo sysctl -p {KEPT}");
            self.request(ill, if fix.for_good { &boot } else { &command })?
        };
        let found = status(&after, ill.capability)?;
        let lines = lines_of(&after, &[ill.capability])?;
        ensure!(found == ill.then, "{}: {command}: found {lines}", ill.caller.name);
        self.ran.insert(fix.command.clone());
        Ok(())
    }
}

/// Runs a shell command as root.
fn shell(line: &str) -> anyhow::Result<()> {
    let output = Command::new("sh").args(["-c", line]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {}: {said}", output.status);
    Ok(())
}

/// doctor reports each defect of [`ILLS`], and each printed remedy works.
pub fn remedies_work() -> anyhow::Result<()> {
    let mut place = RemedyEnvironment::new()?;
    for ill in &ILLS {
        place.reset()?;
        shell(ill.make)?;
        let text = place.request(ill, ":")?;
        let found = status(&text, ill.capability)?;
        ensure!(found != "yes" && found != ill.then, "{}: {} is {found}", ill.make, ill.capability);
        let lines = capability(&text, ill.capability)?;
        let printed: Vec<Fix> = lines.into_iter().filter_map(fix).collect();
        ensure!(!printed.is_empty(), "{}: no command for {}", ill.make, ill.capability);
        for fix in printed.iter().filter(|fix| !is_not_here(&fix.command)) {
            place.lift(ill, fix)?;
        }
    }
    tiers(&mut place)?;
    place.reset()?;
    // A printed remedy that no defect has tried would go untested.
    let untried = place.printed.difference(&place.ran).filter(|command| !is_not_here(command));
    let untried: Vec<_> = untried.collect();
    println!("{} commands lift what they are printed for", place.ran.len());
    ensure!(untried.is_empty(), "printed and not tried: {untried:?}");
    Ok(())
}

/// Each remedy for a higher tier leads to its tier.
fn tiers(place: &mut RemedyEnvironment) -> anyhow::Result<()> {
    let nothing = ill(NONE, "affinity", "true");
    place.reset()?;
    let text = place.request(&nothing, ":")?;
    let above = text.lines().skip_while(|line| !line.starts_with("beyond the tier "));
    let printed: Vec<Fix> = above.filter_map(fix).collect();
    let names = ["perfmon", "root"];
    ensure!(printed.len() == names.len(), "expected {names:?}, found {printed:?}");
    for (fix, name) in printed.iter().zip(names) {
        place.lift(&nothing, fix)?;
        let again = match name {
            "root" => output_of(&mut NONE.command(&["sudo", PROGRAM, "doctor"]))?,
            _ => NONE.doctor()?,
        };
        let tier = again.lines().find(|line| line.contains("tier ")).unwrap_or_default();
        if !tier.ends_with(&format!("tier {name}")) {
            bail!("{}: expected tier {name}, found {tier}", fix.command);
        }
    }
    Ok(())
}
