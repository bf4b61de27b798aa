//! What is said of control groups.

use super::{Case, user};
use crate::doctor::place::{Cgroups, OwnGroup};
use crate::doctor::{Errno, Status};
use expect_test::expect;

/// The plain user in a group of their own, or not.
fn inside(ours: bool, cpuset: bool) -> Case {
    let folder = "/sys/fs/cgroup/user.slice/a".to_owned();
    user().at(|place| place.cgroups.own = Some(OwnGroup { folder, ours, cpuset }))
}

#[test]
fn a_group_that_was_handed_over() {
    inside(true, true).check("cpuset", &expect![[r#"
        yes  cpuset          place whole groups of processes: version 2 at /sys/fs/cgroup, own group /sys/fs/cgroup/user.slice/a is ours
    "#]]);
    inside(true, false).check("cpuset", &expect![[r#"
        no  cpuset          place whole groups of processes: version 2 at /sys/fs/cgroup, own group /sys/fs/cgroup/user.slice/a is ours
            expected cpuset in /sys/fs/cgroup/user.slice/a/cgroup.controllers; run needs none
              now:      echo +cpuset | sudo tee /sys/fs/cgroup/user.slice/cgroup.subtree_control
    "#]]);
    // The freezer needs no controller.
    inside(true, false).check("freezer", &expect![[r#"
        yes  freezer         pause groups of processes: version 2 at /sys/fs/cgroup, own group /sys/fs/cgroup/user.slice/a is ours
    "#]]);
    inside(false, true).check(
        "freezer",
        &expect![[r#"
            no  freezer         pause groups of processes: version 2 at /sys/fs/cgroup, for root to change
                expected a control group of this user's own; run needs none
                  now:      sudo /usr/bin/colocate ARGUMENTS
        "#]],
    );
}

#[test]
fn groups_of_containers_are_read_only() {
    let container = user().at(|place| {
        place.user = Some(0);
        place.cgroups.v2_read_only = true;
    });
    container.check(
        "cpuset",
        &expect![[r#"
            no  cpuset          place whole groups of processes: version 2 at /sys/fs/cgroup, mounted read-only
                expected a mount that may be written to, as containers do not have; run needs none
        "#]],
    );
}

#[test]
fn groups_of_version_1_are_roots() {
    let old = |id| {
        user().at(|place| {
            place.user = Some(id);
            let v1_cpuset = Some("/sys/fs/cgroup/cpuset".to_owned());
            place.cgroups = Cgroups { v1_cpuset, ..Cgroups::default() };
        })
    };
    assert_eq!(old(0).examine().sections[0].capabilities[4].status, Status::Yes);
    let refusing = |errno| old(0).at(|place| place.cgroups.v1_cpuset_refuses = Some(Errno(errno)));
    refusing(libc::EROFS).check("cpuset", &expect![[r#"
        no  cpuset          place whole groups of processes: version 1 at /sys/fs/cgroup/cpuset, mounted read-only
            expected a mount that may be written to, as containers do not have; run needs none
    "#]]);
    refusing(libc::EACCES).check("cpuset", &expect![[r#"
        no  cpuset          place whole groups of processes: version 1 at /sys/fs/cgroup/cpuset, not to be changed (EACCES)
            expected groups that this user may change, found those of another user namespace; run needs none
    "#]]);
    old(1000).check("cpuset", &expect![[r#"
        no  cpuset          place whole groups of processes: version 1 at /sys/fs/cgroup/cpuset, for root to change
            expected a control group of this user's own; run needs none
              now:      sudo /usr/bin/colocate ARGUMENTS
    "#]]);
}
