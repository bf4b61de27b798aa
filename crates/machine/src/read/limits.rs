//! Inherited limits of a process: affinity mask, and cpuset and CPU quota of its control groups.
//!
//! No function returns an error: a file that is missing or unreadable leaves the limit unknown,
//! `None`, like an absent limit.

use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::read::sysfs::Sysfs;
use crate::usable::{CpuQuota, Usable};
use colocate_files::cgroup::Memberships;
use colocate_files::kernel::{self, Mount};

/// Limits of the calling process on `machine`, from the `proc` and `sys` under `files`.
#[must_use]
pub fn usable(machine: &Machine, files: &Sysfs) -> Usable {
    let mounts = mounts(files);
    let member = membership(files, "self");
    let groups = ProcessControlGroups::of(files, &mounts, &member);
    Usable::within(machine, affinity(files), groups.cpuset(), groups.quota())
}

/// Control groups with a CPU quota, from the process's group up to the root: folder and quota.
/// `process` is a folder of `/proc`: a number, or `self`.
#[must_use]
pub fn quotas(files: &Sysfs, process: &str) -> Vec<(String, CpuQuota)> {
    let mounts = mounts(files);
    let member = membership(files, process);
    let groups = ProcessControlGroups::of(files, &mounts, &member);
    groups.quotas().collect()
}

/// Affinity mask of this process.
fn affinity(files: &Sysfs) -> Option<PuSet> {
    let status = files.text("/proc/self/status")?;
    PuSet::parse_list(kernel::field(&status, "Cpus_allowed_list")?).ok()
}

/// Control groups of a process.
struct ProcessControlGroups<'a> {
    files: &'a Sysfs,
    mounts: &'a [Mount],
    member: Memberships,
}

/// Reader of the cpusets of processes.
#[derive(Clone, Debug)]
pub struct Cpusets {
    files: Sysfs,
    mounts: Vec<Mount>,
}

impl Cpusets {
    /// A reader for the control groups mounted now, from the `proc` and `sys` under `files`.
    #[must_use]
    pub fn new(files: Sysfs) -> Self {
        let mounts = mounts(&files);
        Self { files, mounts }
    }

    /// Online PUs of the cpuset of a process, from the text of its `/proc/PID/cgroup`; `None` if no
    /// mount shows its control group.
    #[must_use]
    pub fn of(&self, membership: &str) -> Option<PuSet> {
        ProcessControlGroups::of(&self.files, &self.mounts, membership).cpuset()
    }
}

/// Control groups of a process: text of its `cgroup` file. `process` is a folder of `/proc`.
fn membership(files: &Sysfs, process: &str) -> String {
    files.text(&format!("/proc/{process}/cgroup")).unwrap_or_default()
}

fn mounts(files: &Sysfs) -> Vec<Mount> {
    kernel::mounts(&files.text("/proc/self/mountinfo").unwrap_or_default()).collect()
}

impl<'a> ProcessControlGroups<'a> {
    fn of(files: &'a Sysfs, mounts: &'a [Mount], membership: &str) -> Self {
        Self { files, mounts, member: Memberships::parse(membership) }
    }

    /// Effective cpuset. Version 1 comes first: a controller is in one hierarchy only, and if both
    /// are mounted, version 2 may be empty.
    fn cpuset(&self) -> Option<PuSet> {
        let v1 = self.ancestors(Some("cpuset")).into_iter().find_map(|dir| {
            // Old kernels have no file of the effective set.
            self.pus(&dir, "cpuset.effective_cpus").or_else(|| self.pus(&dir, "cpuset.cpus"))
        });
        // A group without the controller has the set of its nearest ancestor with the controller.
        v1.or_else(|| {
            let dirs = self.ancestors(None);
            dirs.into_iter().find_map(|dir| self.pus(&dir, "cpuset.cpus.effective"))
        })
    }

    /// A set of PUs in a file of a control group; `None` if absent or empty.
    fn pus(&self, dir: &str, file: &str) -> Option<PuSet> {
        self.files.value(&format!("{dir}/{file}")).filter(|set: &PuSet| !set.is_empty())
    }

    /// Least quota from the process's group up to the root, as the limit of each ancestor holds
    /// too.
    fn quota(&self) -> Option<CpuQuota> {
        self.quotas().map(|(_, quota)| quota).min_by(|a, b| a.compare(*b))
    }

    /// Quotas from the process's group up to the root, with their folders.
    fn quotas(&self) -> impl Iterator<Item = (String, CpuQuota)> {
        let v1 = self.ancestors(Some("cpu")).into_iter().filter_map(|dir| {
            let time = self.files.value(&format!("{dir}/cpu.cfs_quota_us"))?;
            let period = self.files.value(&format!("{dir}/cpu.cfs_period_us"))?;
            Some((dir, CpuQuota::from_micros(time, period)?))
        });
        let v2 = self.ancestors(None).into_iter().filter_map(|dir| {
            let text = self.files.text(&format!("{dir}/cpu.max"))?;
            // "max 100000", no limit, does not parse as a number.
            let (time, period) = text.trim().split_once(' ')?;
            let quota = CpuQuota::from_micros(time.parse().ok()?, period.trim().parse().ok()?)?;
            Some((dir, quota))
        });
        v1.chain(v2)
    }

    /// Visible directories of the process's group and its ancestors, nearest first: in the version
    /// 1 hierarchy of `controller`, or for `None` in version 2. Empty if no mount shows the group.
    fn ancestors(&self, controller: Option<&str>) -> Vec<String> {
        let Some((mount, inside)) = self.member.shown(self.mounts, controller) else {
            return Vec::new();
        };
        let mut dirs = vec![format!("{}{inside}", mount.at)];
        let ends: Vec<usize> = inside.match_indices('/').map(|(at, _)| at).collect();
        dirs.extend(ends.iter().rev().map(|&end| format!("{}{}", mount.at, &inside[..end])));
        dirs.dedup();
        dirs
    }
}
