//! What `/proc` and `/sys` say about this place.

use super::{Errno, Fact, Tier};
use caps::Capability;
use colocate_files::cgroup::Memberships;
use colocate_files::kernel::{self, Mount};
use rustix::fs::{Access, AtFlags};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files read for the diagnosis. `None` for a missing or malformed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemFacts {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// `ID` and `ID_LIKE` of `/etc/os-release`, separated by spaces.
    pub distribution: Option<String>,
    /// The effective user.
    pub user: Option<u32>,
    /// Capabilities that are effective, or permitted for use when needed, a bit each.
    pub capabilities: u64,
    /// 0 no filter, 1 strict, 2 a filter.
    pub seccomp: Option<u32>,
    /// Kind of container, if traces of any were found.
    pub container: Option<&'static str>,
    /// Whether the processor reports a hypervisor.
    pub virtual_machine: bool,
    /// `kernel.perf_event_paranoid`; `None` also means a kernel without perf events.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_mlock_kb`.
    pub mlock_kb: Option<u64>,
    /// `kernel.nmi_watchdog`: whether the watchdog holds a counter.
    pub nmi_watchdog: Option<bool>,
    /// `kernel.yama.ptrace_scope`; `None` is a kernel without Yama.
    pub ptrace_scope: Option<u32>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: Option<u32>,
    /// `vm.unprivileged_userfaultfd`.
    pub unprivileged_userfault: Option<bool>,
    /// `kernel.sched_ext` state; `None` for a kernel without sched_ext.
    pub sched_ext: Option<String>,
    /// Limits on descriptors, soft and hard.
    pub descriptors: Option<(u64, u64)>,
    /// Number of online NUMA nodes.
    pub nodes: Option<usize>,
    /// PUs of the inherited affinity mask, as a list.
    pub cpus_allowed: Option<String>,
    /// Control groups with cpusets and the freezer.
    pub cgroups: Cgroups,
    /// Whether `/proc` hides other users' processes.
    pub hides_processes: bool,
    /// Whether `/proc/self/schedstat` exists.
    pub schedstat: bool,
    /// Whether `/proc/self/io` exists.
    pub io: bool,
}

/// Available control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Mount point of version 2, if any.
    pub v2: Option<String>,
    /// Whether version 2 offers the controller `cpuset`.
    pub v2_cpuset: bool,
    /// Whether version 2 is mounted read-only, as in containers.
    pub v2_read_only: bool,
    /// This process's own group in version 2.
    pub own: Option<OwnGroup>,
    /// Mount point of version 1's `cpuset`, if any.
    pub v1_cpuset: Option<String>,
    /// Mount point of version 1's `freezer`, if any.
    pub v1_freezer: Option<String>,
    /// Kernel's error when this user creates a version 2 group; `None` if permitted.
    pub v2_refuses: Option<Errno>,
    /// As `v2_refuses`, for version 1's `cpuset`.
    pub v1_cpuset_refuses: Option<Errno>,
    /// As `v2_refuses`, for version 1's `freezer`.
    pub v1_freezer_refuses: Option<Errno>,
}

/// Version 2 control group of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnGroup {
    /// Folder.
    pub folder: String,
    /// Whether the group belongs to the effective user, who may then create groups in it.
    pub ours: bool,
    /// Whether the group offers the controller `cpuset`.
    pub cpuset: bool,
}

impl SystemFacts {
    /// Reads the trees at `root`, usually `/`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let word = |path: &str| text(path).map(|text| text.trim().to_owned());
        let kernel_setting = |name: &str| word(&format!("proc/sys/kernel/{name}"));
        let status = text("proc/self/status").unwrap_or_default();
        let of_status = |name: &str| kernel::field(&status, name);
        let set =
            |name| of_status(name).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let kept = Capability::CAP_PERFMON.bitmask() | Capability::CAP_BPF.bitmask();
        let mounts = text("proc/self/mountinfo").unwrap_or_default();
        // The second number is the effective user (proc(5)).
        let user = of_status("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
        let own_group = text("proc/self/cgroup").unwrap_or_default();
        Self {
            kernel: kernel_setting("osrelease"),
            distribution: text("etc/os-release").as_deref().and_then(distribution),
            user,
            // What it may take for watching counts: it is in force only while an event is opened.
            capabilities: set("CapEff") | (set("CapPrm") & kept),
            seccomp: of_status("Seccomp").and_then(|mode| mode.parse().ok()),
            container: container(root).filter(|_| !is_first_system(root)),
            virtual_machine: text("proc/cpuinfo").is_some_and(|text| has_flag(&text, "hypervisor")),
            paranoid: kernel_setting("perf_event_paranoid").and_then(|v| v.parse().ok()),
            mlock_kb: kernel_setting("perf_event_mlock_kb").and_then(|v| v.parse().ok()),
            nmi_watchdog: kernel_setting("nmi_watchdog").map(|v| v != "0"),
            ptrace_scope: kernel_setting("yama/ptrace_scope").and_then(|v| v.parse().ok()),
            numa_balancing: kernel_setting("numa_balancing").and_then(|v| v.parse().ok()),
            unprivileged_userfault: word("proc/sys/vm/unprivileged_userfaultfd").map(|v| v != "0"),
            sched_ext: word("sys/kernel/sched_ext/state"),
            descriptors: text("proc/self/limits").as_deref().and_then(descriptors),
            nodes: fs::read_dir(root.join("sys/devices/system/node")).ok().map(count_nodes),
            cpus_allowed: of_status("Cpus_allowed_list").map(str::to_owned),
            cgroups: cgroups(root, &mounts, &own_group, user),
            hides_processes: hides_processes(&mounts),
            schedstat: text("proc/self/schedstat").is_some(),
            io: text("proc/self/io").is_some(),
        }
    }

    /// Whether this process has `capability`, or may take it for watching.
    pub(crate) fn capable(&self, capability: Capability) -> bool {
        self.capabilities & capability.bitmask() != 0
    }

    /// Whether perf treats this process as privileged: `CAP_PERFMON` or `CAP_SYS_ADMIN`.
    #[must_use]
    pub fn may_watch_all(&self) -> bool {
        self.capable(Capability::CAP_PERFMON) || self.capable(Capability::CAP_SYS_ADMIN)
    }

    /// Privileges of this process.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match (self.user, self.capable(Capability::CAP_SYS_NICE), self.may_watch_all()) {
            (Some(0), true, true) => Tier::Root,
            (_, true, _) => Tier::SysNice,
            (_, false, true) => Tier::Perfmon,
            (_, false, false) => Tier::OwnProcess,
        }
    }

    /// Whether a seccomp filter is in force.
    #[must_use]
    pub fn filtered(&self) -> bool {
        self.seccomp == Some(2)
    }

    /// `command` with `sudo`, unless this user is root.
    #[must_use]
    pub fn as_root(&self, command: &str) -> String {
        if self.user == Some(0) { command.to_owned() } else { format!("sudo {command}") }
    }

    /// The facts, as text.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let tier = self.tier().name();
        let user = or_unknown(self.user.as_ref());
        let seccomp = match self.seccomp {
            Some(0) => "no filter",
            Some(1) => "strict mode",
            Some(2) => "a filter is in force",
            _ => "unknown",
        };
        let below = if self.virtual_machine { "a virtual machine" } else { "no hypervisor seen" };
        let container = match self.container {
            Some(kind) => format!("{kind}, by the traces it leaves"),
            None => "none seen".to_owned(),
        };
        vec![
            Fact { name: "kernel", value: or_unknown(self.kernel.as_ref()) },
            Fact { name: "user", value: format!("{user}, tier {tier}") },
            Fact { name: "cpus allowed", value: or_unknown(self.cpus_allowed.as_ref()) },
            Fact { name: "numa nodes", value: or_unknown(self.nodes.as_ref()) },
            Fact { name: "machine", value: below.to_owned() },
            Fact { name: "container", value: container },
            Fact { name: "seccomp", value: seccomp.to_owned() },
        ]
    }
}

/// `ID=debian` and `ID_LIKE="rhel fedora"`, with or without quotes.
fn distribution(os_release: &str) -> Option<String> {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches(['"', '\'']))
    };
    let names: Vec<&str> = [field("ID"), field("ID_LIKE")].into_iter().flatten().collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Kind of container, by its traces.
fn container(root: &Path) -> Option<&'static str> {
    if root.join(".dockerenv").exists() {
        Some("Docker")
    } else if root.join("run/.containerenv").exists() {
        Some("Podman")
    } else if holds(root, "proc/1/environ", "container=lxc")
        || holds(root, "proc/self/cgroup", "/lxc")
    {
        Some("LXC")
    } else if holds(root, "proc/self/cgroup", "/kubepods") {
        Some("Kubernetes")
    } else if holds(root, "proc/1/environ", "container=") {
        Some("a container")
    } else {
        None
    }
}

pub(super) fn or_unknown(value: Option<&impl ToString>) -> String {
    value.map_or("unknown".to_owned(), ToString::to_string)
}

/// Whether the file at `path` contains `name`.
fn holds(root: &Path, path: &str, name: &str) -> bool {
    fs::read(root.join(path))
        .is_ok_and(|bytes| bytes.windows(name.len()).any(|window| window == name.as_bytes()))
}

/// Whether this process has the kernel's initial namespaces, as no container does. A container
/// image booted as a virtual machine (Firecracker, Kata) still has its traces.
fn is_first_system(root: &Path) -> bool {
    FIRST_NAMESPACES.into_iter().all(|(name, number)| {
        let link = fs::read_link(root.join("proc/self/ns").join(name));
        link.is_ok_and(|link| link.as_os_str() == format!("{name}:[{number}]").as_str())
    })
}

/// Numbers of the kernel's first namespaces: `PROC_UTS_INIT_INO`, `PROC_IPC_INIT_INO` and
/// `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const FIRST_NAMESPACES: [(&str, u32); 3] =
    [("uts", 0xEFFF_FFFE), ("ipc", 0xEFFF_FFFF), ("pid", 0xEFFF_FFFC)];

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|found| found == flag))
}

/// `Max open files  SOFT  HARD  files` in `/proc/self/limits`.
fn descriptors(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut fields = line.split_whitespace();
    let mut number = || match fields.next()? {
        "unlimited" => Some(u64::MAX),
        digits => digits.parse().ok(),
    };
    Some((number()?, number()?))
}

fn count_nodes(entries: fs::ReadDir) -> usize {
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("node")?.parse::<u32>().ok()).count()
}

fn cgroups(root: &Path, mounts: &str, own: &str, user: Option<u32>) -> Cgroups {
    let mut found = Cgroups::default();
    let mounts: Vec<Mount> = kernel::mounts(mounts).collect();
    for Mount { at, kind, options, of_system, .. } in mounts.clone() {
        let has = |name: &str| of_system.iter().any(|option| option == name);
        match &kind[..] {
            "cgroup2" => {
                found.v2 = Some(at);
                found.v2_read_only = options.iter().any(|option| option == "ro");
            }
            "cgroup" if has("cpuset") => found.v1_cpuset = Some(at),
            "cgroup" if has("freezer") => found.v1_freezer = Some(at),
            _ => {}
        }
    }
    let refuses = |point: &Option<String>| refuses_groups(&below(root, point.as_deref()?));
    found.v2_refuses = refuses(&found.v2);
    found.v1_cpuset_refuses = refuses(&found.v1_cpuset);
    found.v1_freezer_refuses = refuses(&found.v1_freezer);
    if let Some(point) = &found.v2 {
        found.v2_cpuset = offers_cpuset(root, point);
        found.own = Memberships::parse(own).folder(&mounts, None).map(|folder| {
            let belongs = |name: &str| {
                let path = below(root, &folder).join(name);
                fs::metadata(path).is_ok_and(|found| Some(found.uid()) == user)
            };
            let ours = belongs("") && belongs("cgroup.procs");
            OwnGroup { cpuset: offers_cpuset(root, &folder), ours, folder }
        });
    }
    found
}

/// Kernel's error when this user creates a folder in `folder`, found by an access check that leaves
/// nothing behind; `None` if permitted.
fn refuses_groups(folder: &Path) -> Option<Errno> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    // The effective user counts, as for mkdir(2).
    let answer = rustix::fs::accessat(rustix::fs::CWD, folder, access, AtFlags::EACCESS);
    answer.err().map(|why| Errno(why.raw_os_error()))
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn offers_cpuset(root: &Path, group: &str) -> bool {
    let controllers = fs::read_to_string(below(root, group).join("cgroup.controllers"));
    controllers.unwrap_or_default().split_whitespace().any(|name| name == "cpuset")
}

/// `hidepid` 1 and 2, also by their names, hide other users' processes.
fn hides_processes(mounts: &str) -> bool {
    // One mount can lie over another; the last one is seen.
    let proc = kernel::mounts(mounts).rfind(|mount| mount.at == "/proc");
    let options = proc.into_iter().flat_map(|mount| mount.of_system);
    let mut modes = options.filter_map(|it| it.strip_prefix("hidepid=").map(str::to_owned));
    modes.next().is_some_and(|mode| !matches!(&mode[..], "0" | "off"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::sysfs::tests::tree as root;

    #[test]
    fn an_empty_root_is_all_unknown() {
        let place = SystemFacts::read(root(&[]).path());
        assert_eq!(place, SystemFacts::default());
        assert_eq!(place.tier(), Tier::OwnProcess);
    }

    #[test]
    fn a_container_on_a_new_kernel() {
        let root = root(&[
            (".dockerenv", ""),
            ("etc/os-release", "NAME=\"Rocky\"\nID=rocky\nID_LIKE=\"rhel fedora\"\n"),
            (
                "proc/self/status",
                "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nCapEff:\t0000004000800000\n\
                 Seccomp:\t2\nCpus_allowed_list:\t0-3,8\n",
            ),
            ("proc/self/limits", "Limit Soft Hard Units\nMax open files   1024   524288   files\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
                 23 22 0:21 / /proc rw shared:11 - proc proc rw\n\
                 24 23 0:22 / /proc rw shared:12 - proc proc rw,hidepid=invisible\n",
            ),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n"),
            ("proc/self/cgroup", "1:cpu:/x\n0::/user.slice/a\n"),
            ("sys/fs/cgroup/user.slice/a/cgroup.controllers", "cpu\n"),
            ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
            ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
            ("sys/devices/system/node/node0/x", ""),
            ("sys/devices/system/node/node12/x", ""),
            ("sys/devices/system/node/possible", ""),
        ]);
        let place = SystemFacts::read(root.path());
        assert_eq!((place.user, place.seccomp), (Some(1001), Some(2)));
        assert_eq!(place.distribution.as_deref(), Some("rocky rhel fedora"));
        assert_eq!(place.container, Some("Docker"));
        assert_eq!(place.tier(), Tier::SysNice);
        assert!(place.may_watch_all() && place.capable(Capability::CAP_SYS_NICE));
        assert_eq!(place.descriptors, Some((1024, 524_288)));
        assert_eq!(place.paranoid, Some(-1));
        assert!(place.virtual_machine && place.hides_processes);
        assert_eq!(place.nodes, Some(2));
        let cgroups = Cgroups {
            v2: Some("/sys/fs/cgroup".to_owned()),
            v2_cpuset: true,
            own: Some(OwnGroup {
                folder: "/sys/fs/cgroup/user.slice/a".to_owned(),
                ..OwnGroup::default()
            }),
            ..Cgroups::default()
        };
        assert_eq!(place.cgroups, cgroups);
    }

    /// An image of Docker that Firecracker has booted, and the same where it is a container.
    #[test]
    fn a_booted_image_is_no_container() {
        for (pid, container) in [(0xEFFF_FFFC_u32, None), (4_026_532_281, Some("Docker"))] {
            let root = root(&[(".dockerenv", ""), ("proc/self/cgroup", "0::/\n")]);
            let folder = root.path().join("proc/self/ns");
            fs::create_dir(&folder).unwrap();
            let numbers = [("uts", 0xEFFF_FFFE), ("ipc", 0xEFFF_FFFF), ("pid", pid)];
            for (name, number) in numbers {
                let to = format!("{name}:[{number}]");
                std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
            }
            assert_eq!(SystemFacts::read(root.path()).container, container);
        }
    }

    #[test]
    fn version_1_control_groups_beside_an_empty_version_2() {
        let root = root(&[(
            "proc/self/mountinfo",
            "33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             37 31 0:35 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             24 23 0:22 / /proc rw - proc proc rw\n",
        )]);
        let place = SystemFacts::read(root.path());
        assert_eq!(place.cgroups.v1_cpuset.as_deref(), Some("/sys/fs/cgroup/cpuset"));
        assert_eq!(place.cgroups.v1_freezer.as_deref(), Some("/sys/fs/cgroup/freezer"));
        assert!(!place.cgroups.v2_cpuset && !place.hides_processes);
        assert_eq!(place.cgroups.own, None);
    }

    #[test]
    fn a_group_of_ones_own() {
        let own = |user: u32| {
            let root = root(&[
                ("proc/self/status", &format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")),
                ("proc/self/mountinfo", "41 31 0:38 / /groups ro,nosuid - cgroup2 cgroup2 rw\n"),
                ("proc/self/cgroup", "0::/\n"),
                ("groups/cgroup.controllers", "cpuset\n"),
                ("groups/cgroup.procs", ""),
            ]);
            SystemFacts::read(root.path()).cgroups
        };
        // The files of this test belong to the user that runs it.
        let us = fs::metadata("/proc/self").unwrap().uid();
        let folder = "/groups".to_owned();
        assert_eq!(
            own(us).own,
            Some(OwnGroup { folder: folder.clone(), ours: true, cpuset: true })
        );
        assert_eq!(own(us + 1).own, Some(OwnGroup { folder, ours: false, cpuset: true }));
        assert!(own(us).v2_read_only);
    }

    #[test]
    fn tiers_by_capabilities() {
        let tier = |user, capabilities| {
            SystemFacts { user: Some(user), capabilities, ..SystemFacts::default() }.tier()
        };
        assert_eq!(tier(1000, 0), Tier::OwnProcess);
        assert_eq!(tier(1000, Capability::CAP_PERFMON.bitmask()), Tier::Perfmon);
        assert_eq!(tier(1000, Capability::CAP_SYS_ADMIN.bitmask()), Tier::Perfmon);
        assert_eq!(tier(1000, Capability::CAP_SYS_NICE.bitmask()), Tier::SysNice);
        assert_eq!(tier(0, u64::MAX), Tier::Root);
        // Root in a container without capabilities.
        assert_eq!(tier(0, 0), Tier::OwnProcess);
    }

    #[test]
    fn broken_files_are_unknown() {
        let root = root(&[
            ("proc/self/status", "Uid:\nCapEff:\tzz\nSeccomp:\t-\n"),
            ("proc/self/mountinfo", "a b c\n - \n1 2 3 4 - \n"),
            ("proc/self/limits", "Max open files many\n"),
            ("proc/sys/kernel/perf_event_paranoid", "high\n"),
        ]);
        assert_eq!(SystemFacts::read(root.path()), SystemFacts::default());
    }
}
