//! Control groups of a process: `/proc/PID/cgroup`, and the mounts that show them.

use crate::kernel::Mount;

/// The control groups that a process is a member of, one in each hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memberships(Vec<Membership>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Membership {
    /// Controllers of the hierarchy; none of version 2.
    controllers: Vec<String>,
    /// The group's path in its hierarchy.
    path: String,
}

impl Memberships {
    /// Reads the lines `ID:CONTROLLERS:PATH` of `/proc/PID/cgroup` (cgroups(7)); other lines are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(membership).collect())
    }

    /// The mount that shows the group in the version 1 hierarchy of `controller` or, without one, in version 2, and the group's
    /// path below its mount point: with a leading slash, or empty for the mount point itself. `None` where no mount shows the
    /// group: it is another container's, or outside of the process's namespace.
    #[must_use]
    pub fn shown<'a>(
        &'a self,
        mounts: &'a [Mount],
        controller: Option<&str>,
    ) -> Option<(&'a Mount, &'a str)> {
        let group = self.0.iter().find(|group| is_of(&group.controllers, controller))?;
        // A later mount may hide an earlier one.
        let mounts = mounts.iter().rev().filter(|mount| is_hierarchy(mount, controller));
        mounts.filter_map(|mount| Some((mount, below(&group.path, &mount.root)?))).next()
    }

    /// The folder of the group; see [`Memberships::shown`].
    #[must_use]
    pub fn folder(&self, mounts: &[Mount], controller: Option<&str>) -> Option<String> {
        self.shown(mounts, controller).map(|(mount, inside)| format!("{}{inside}", mount.at))
    }
}

fn membership(line: &str) -> Option<Membership> {
    // At most three fields: a path may have colons.
    let mut fields = line.splitn(3, ':').skip(1);
    // Version 2 has an empty list, which splits into one empty name.
    let names = fields.next()?.split(',').filter(|name| !name.is_empty());
    let controllers = names.map(str::to_owned).collect();
    Some(Membership { controllers, path: fields.next()?.to_owned() })
}

/// Whether `names` are the controllers of the version 1 hierarchy of `controller` or, without one, of version 2.
fn is_of(names: &[String], controller: Option<&str>) -> bool {
    controller.map_or(names.is_empty(), |controller| names.iter().any(|name| name == controller))
}

fn is_hierarchy(mount: &Mount, controller: Option<&str>) -> bool {
    match &mount.kind[..] {
        "cgroup" => controller.is_some() && is_of(&mount.of_system, controller),
        "cgroup2" => controller.is_none(),
        _ => false,
    }
}

/// `path` as seen from `root`. `None` for a path outside of `root`, or with `..`: a group outside of the process's namespace.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    // The root `/` becomes an empty prefix: the rest keeps its leading slash.
    let inside = path.strip_prefix(root.trim_end_matches('/'))?;
    // `/ab` begins with `/a` but does not lie below.
    let is_inside = inside.is_empty() || inside.starts_with('/');
    let is_plain = !inside.split('/').any(|part| part == "..");
    (is_inside && is_plain).then(|| inside.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel;

    const MOUNTS: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                          33 31 0:31 /docker/a /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

    fn folder(membership: &str, controller: Option<&str>) -> Option<String> {
        let mounts: Vec<Mount> = kernel::mounts(MOUNTS).collect();
        Memberships::parse(membership).folder(&mounts, controller)
    }

    #[test]
    fn folders_in_both_versions() {
        let text = "4:cpuset,cpu:/docker/a/b\nnonsense\n0::/user.slice/x\n";
        assert_eq!(folder(text, None).unwrap(), "/sys/fs/cgroup/user.slice/x");
        assert_eq!(folder(text, Some("cpuset")).unwrap(), "/sys/fs/cgroup/cpuset/b");
        assert_eq!(
            folder("4:cpuset:/docker/a\n", Some("cpuset")).unwrap(),
            "/sys/fs/cgroup/cpuset"
        );
        assert_eq!(folder("0::/\n", None).unwrap(), "/sys/fs/cgroup");
    }

    /// A group of another container, with a name that begins alike, and one outside of the namespace.
    #[test]
    fn groups_that_no_mount_shows() {
        for text in ["4:cpuset:/docker/ab\n", "4:cpuset:/\n", "4:cpuset:/docker/a/../b\n", ""] {
            assert_eq!(folder(text, Some("cpuset")), None, "{text}");
        }
        assert_eq!(folder("0::/../x\n", None), None);
        assert_eq!(folder("0::/x\n", Some("freezer")), None);
    }
}
