//! Inherited limits of a process: affinity mask, and cpuset and CPU quota of its control groups.
//!
//! No function returns an error: a file that is missing or unreadable leaves the limit unknown,
//! `None`, like an absent limit.

use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::read::sysfs::Sysfs;
use crate::usable::{CpuQuota, Usable};
use colocate_files::kernel::{self, Mount};

/// Limits of the calling process on `machine`, from the `proc` and `sys` under `files`.
#[must_use]
pub fn usable(machine: &Machine, files: &Sysfs) -> Usable {
    let mounts = mounts(files);
    let member = membership(files, "self");
    let groups = Groups::of(files, &mounts, &member);
    Usable::within(machine, affinity(files), groups.cpuset(), groups.quota())
}

/// Control groups with a CPU quota, from the process's group up to the root: folder and quota.
/// `process` is a folder of `/proc`: a number, or `self`.
#[must_use]
pub fn quotas(files: &Sysfs, process: &str) -> Vec<(String, CpuQuota)> {
    let mounts = mounts(files);
    let member = membership(files, process);
    let groups = Groups::of(files, &mounts, &member);
    groups.quotas().collect()
}

/// Affinity mask of this process.
fn affinity(files: &Sysfs) -> Option<PuSet> {
    let status = files.text("/proc/self/status")?;
    PuSet::parse_list(kernel::field(&status, "Cpus_allowed_list")?).ok()
}

/// Control groups of a process.
struct Groups<'a> {
    files: &'a Sysfs,
    mounts: &'a [Mount],
    /// Controllers and path of each line `ID:CONTROLLERS:PATH` of the process's `cgroup` file.
    /// Version 2 has no controllers.
    member: Vec<(Vec<String>, String)>,
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
        Groups::of(&self.files, &self.mounts, membership).cpuset()
    }
}

/// Control groups of a process: text of its `cgroup` file. `process` is a folder of `/proc`.
fn membership(files: &Sysfs, process: &str) -> String {
    files.text(&format!("/proc/{process}/cgroup")).unwrap_or_default()
}

fn mounts(files: &Sysfs) -> Vec<Mount> {
    kernel::mounts(&files.text("/proc/self/mountinfo").unwrap_or_default()).collect()
}

impl<'a> Groups<'a> {
    fn of(files: &'a Sysfs, mounts: &'a [Mount], membership: &str) -> Self {
        let member = membership.lines().filter_map(group_line).collect();
        Self { files, mounts, member }
    }

    /// Effective cpuset. Version 1 comes first: a controller is in one hierarchy only, and if both
    /// are mounted, version 2 may be empty.
    fn cpuset(&self) -> Option<PuSet> {
        let v1 = self.ancestors(Some("cpuset")).into_iter().find_map(|dir| {
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
        let path = self.member.iter().find(|(names, _)| is_of(names, controller));
        let Some((_, path)) = path else { return Vec::new() };
        // A later mount may hide an earlier one, so the last mount comes first.
        let shown = self.mounts.iter().rev().filter(|mount| is_hierarchy(mount, controller));
        let Some((mount, inside)) =
            shown.filter_map(|mount| Some((mount, below(path, &mount.root)?))).next()
        else {
            return Vec::new();
        };
        let mut dirs = vec![format!("{}{inside}", mount.at)];
        let ends: Vec<usize> = inside.match_indices('/').map(|(at, _)| at).collect();
        dirs.extend(ends.iter().rev().map(|&end| format!("{}{}", mount.at, &inside[..end])));
        dirs.dedup();
        dirs
    }
}

/// True if `names` are the controllers of the version 1 hierarchy of `controller`, or for `None` of
/// version 2.
fn is_of(names: &[String], controller: Option<&str>) -> bool {
    controller.map_or(names.is_empty(), |controller| names.iter().any(|name| name == controller))
}

/// True if `mount` is the version 1 hierarchy of `controller`, or for `None` version 2.
fn is_hierarchy(mount: &Mount, controller: Option<&str>) -> bool {
    match &mount.kind[..] {
        "cgroup" => controller.is_some() && is_of(&mount.of_system, controller),
        "cgroup2" => controller.is_none(),
        _ => false,
    }
}

/// Path relative to `root`, with a leading slash; empty for the root itself. `None` for a path
/// outside the mount: another container's group, or `/..` of a namespace that the process has left.
/// The limits of the mounted root are not those of such a group.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let inside = path.strip_prefix(root.trim_end_matches('/'))?;
    let is_inside = inside.is_empty() || inside.starts_with('/');
    let is_plain = !inside.split('/').any(|part| part == "..");
    (is_inside && is_plain).then(|| inside.trim_end_matches('/'))
}

/// Parses `ID:CONTROLLERS:PATH` as controllers and path.
fn group_line(line: &str) -> Option<(Vec<String>, String)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let names = fields.next()?.split(',').filter(|name| !name.is_empty());
    Some((names.map(Into::into).collect(), fields.next()?.into()))
}
