//! Which limits a process inherited: affinity mask, cpuset and CPU quota of its control groups.
//!
//! None of it is an error: a file that is missing or cannot be read leaves the limit unknown, which
//! is `None`, as an absent limit is.

use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::read::sysfs::Sysfs;
use crate::usable::{CpuQuota, Usable};
use colocate_files::kernel::{self, Mount};

/// What the calling process may use of `machine`, from the `proc` and `sys` under `files`.
#[must_use]
pub fn usable(machine: &Machine, files: &Sysfs) -> Usable {
    let groups = Groups::of(files, "self");
    Usable::within(machine, affinity(files), groups.cpuset(), groups.quota())
}

/// The control groups of a process, up to the root, that have a CPU quota, as folders from the root. The process is a
/// folder of `/proc`: a number, or `self`.
#[must_use]
pub fn with_quota(files: &Sysfs, process: &str) -> Vec<String> {
    let groups = Groups::of(files, process);
    groups.quotas().map(|(dir, _)| dir).collect()
}

/// The affinity mask of this process.
fn affinity(files: &Sysfs) -> Option<PuSet> {
    let status = files.text("/proc/self/status")?;
    PuSet::parse_list(kernel::field(&status, "Cpus_allowed_list")?).ok()
}

/// The control groups of a process.
struct Groups<'a> {
    files: &'a Sysfs,
    mounts: Vec<Mount>,
    /// Lines `ID:CONTROLLERS:PATH` of its `cgroup` file.
    member: Vec<(Vec<String>, String)>,
}

impl<'a> Groups<'a> {
    fn of(files: &'a Sysfs, process: &str) -> Self {
        let mounts = files.text("/proc/self/mountinfo").unwrap_or_default();
        let member = files.text(&format!("/proc/{process}/cgroup")).unwrap_or_default();
        Self {
            files,
            mounts: kernel::mounts(&mounts).collect(),
            member: member.lines().filter_map(membership).collect(),
        }
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
    /// version 1 hierarchy of `controller` or, without one, in version 2.
    fn ancestors(&self, controller: Option<&str>) -> Vec<String> {
        let of = |names: &[String]| match controller {
            Some(controller) => names.iter().any(|name| name == controller),
            None => names.is_empty(),
        };
        let path = self.member.iter().find(|(names, _)| of(names)).map(|(_, path)| path);
        let mount = self.mounts.iter().find(|mount| match &mount.kind[..] {
            "cgroup" => controller.is_some() && of(&mount.of_system),
            "cgroup2" => controller.is_none(),
            _ => false,
        });
        let (Some(path), Some(mount)) = (path, mount) else { return Vec::new() };
        let inside = below(path, &mount.root);
        let mut dirs = vec![format!("{}{inside}", mount.at)];
        let ends: Vec<usize> = inside.match_indices('/').map(|(at, _)| at).collect();
        dirs.extend(ends.iter().rev().map(|&end| format!("{}{}", mount.at, &inside[..end])));
        dirs.dedup();
        dirs
    }
}

/// `path` as seen from `root`, with a leading slash, or empty for the root itself. A path outside
/// what is mounted (a container that sees the host's names, or `/..` from a namespace) cannot be
/// walked; the mounted root replaces it.
fn below<'a>(path: &'a str, root: &str) -> &'a str {
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
    let sane = inside.starts_with('/') && !inside.split('/').any(|part| part == "..");
    if sane { inside.trim_end_matches('/') } else { "" }
}

/// `ID:CONTROLLERS:PATH`.
fn membership(line: &str) -> Option<(Vec<String>, String)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let names = fields.next()?.split(',').filter(|name| !name.is_empty());
    Some((names.map(Into::into).collect(), fields.next()?.into()))
}
