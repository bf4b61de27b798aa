//! Which limits a process inherited: affinity mask, cpuset and CPU quota of its control groups.
//!
//! None of it is an error: a file that is missing or cannot be read leaves the limit unknown, which
//! is `None`, as an absent limit is.

use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::read::sysfs::Sysfs;
use crate::usable::{CpuQuota, Usable};
use colocate_files::cgroup::Memberships;
use colocate_files::kernel::{self, Mount};

/// What the calling process may use of `machine`, from the `proc` and `sys` under `files`.
#[must_use]
pub fn usable(machine: &Machine, files: &Sysfs) -> Usable {
    let (mounts, member) = (mounts(files), membership(files, "self"));
    let groups = Groups::of(files, &mounts, &member);
    Usable::within(machine, affinity(files), groups.cpuset(), groups.quota())
}

/// The control groups of a process, up to the root, that have a CPU quota, as folders from the root. The process is a
/// folder of `/proc`: a number, or `self`.
#[must_use]
pub fn quotas(files: &Sysfs, process: &str) -> Vec<(String, CpuQuota)> {
    let (mounts, member) = (mounts(files), membership(files, process));
    let groups = Groups::of(files, &mounts, &member);
    groups.quotas().collect()
}

/// The affinity mask of this process.
fn affinity(files: &Sysfs) -> Option<PuSet> {
    let status = files.text("/proc/self/status")?;
    PuSet::parse_list(kernel::field(&status, "Cpus_allowed_list")?).ok()
}

/// Control groups of a process.
struct Groups<'a> {
    files: &'a Sysfs,
    mounts: &'a [Mount],
    member: Memberships,
}

/// Reads the cpusets of processes.
#[derive(Clone, Debug)]
pub struct Cpusets {
    files: Sysfs,
    mounts: Vec<Mount>,
}

impl Cpusets {
    /// By the control groups that are mounted now, from the `proc` and `sys` under `files`.
    #[must_use]
    pub fn new(files: Sysfs) -> Self {
        let mounts = mounts(&files);
        Self { files, mounts }
    }

    /// PUs of the cpuset of a process, by the text of its `/proc/PID/cgroup`, as far as they are online; `None` where no mount shows
    /// its control group.
    #[must_use]
    pub fn of(&self, membership: &str) -> Option<PuSet> {
        Groups::of(&self.files, &self.mounts, membership).cpuset()
    }
}

/// Text of the list of control groups of a process, which is a folder of `/proc`.
fn membership(files: &Sysfs, process: &str) -> String {
    files.text(&format!("/proc/{process}/cgroup")).unwrap_or_default()
}

fn mounts(files: &Sysfs) -> Vec<Mount> {
    kernel::mounts(&files.text("/proc/self/mountinfo").unwrap_or_default()).collect()
}

impl<'a> Groups<'a> {
    fn of(files: &'a Sysfs, mounts: &'a [Mount], membership: &str) -> Self {
        Self { files, mounts, member: Memberships::parse(membership) }
    }

    /// The effective cpuset. Version 1 first: a controller is in one hierarchy only, and where both
    /// are mounted the version 2 one may be empty.
    fn cpuset(&self) -> Option<PuSet> {
        let list = |dir: &str, file: &str| -> Option<PuSet> {
            self.files.value(&format!("{dir}/{file}")).filter(|set: &PuSet| !set.is_empty())
        };
        let v1 = self.ancestors(Some("cpuset")).into_iter().find_map(|dir| {
            list(&dir, "cpuset.effective_cpus").or_else(|| list(&dir, "cpuset.cpus"))
        });
        // A group that does not have the controller lives in its nearest ancestor's set.
        let v2 = || {
            let dirs = self.ancestors(None);
            dirs.into_iter().find_map(|dir| list(&dir, "cpuset.cpus.effective"))
        };
        v1.or_else(v2)
    }

    /// The least quota from the process's group up to the root: each ancestor's limit holds too.
    fn quota(&self) -> Option<CpuQuota> {
        self.quotas().map(|(_, quota)| quota).min_by(|a, b| a.compare(*b))
    }

    /// The quotas from the process's group up to the root, with the folders that have them.
    fn quotas(&self) -> impl Iterator<Item = (String, CpuQuota)> {
        let v1 = self.ancestors(Some("cpu")).into_iter().filter_map(|dir| {
            let time = self.files.value(&format!("{dir}/cpu.cfs_quota_us"))?;
            let period = self.files.value(&format!("{dir}/cpu.cfs_period_us"))?;
            Some((dir, CpuQuota::from_micros(time, period)?))
        });
        let v2 = self.ancestors(None).into_iter().filter_map(|dir| {
            let text = self.files.text(&format!("{dir}/cpu.max"))?;
            // "max 100000" has no number first, and no limit.
            let (time, period) = text.trim().split_once(' ')?;
            let quota = CpuQuota::from_micros(time.parse().ok()?, period.trim().parse().ok()?)?;
            Some((dir, quota))
        });
        v1.chain(v2)
    }

    /// Directories of the process's group and its ancestors that can be seen, nearest first, in the
    /// version 1 hierarchy of `controller` or, without one, in version 2. None where no mount shows the group.
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
