//! What is usable, read from saved trees of `proc` and `sys` in `tests/trees`.
#![cfg(feature = "read")]
#![allow(clippy::unwrap_used)] // a failed set-up stops the test

use colocate_machine::read::{self, Sysfs};
use colocate_machine::{Hertz, Machine, PuNr, Usable, described};
use std::path::Path;

fn tree(name: &str) -> Sysfs {
    Sysfs::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name))
}

/// Eight PUs in order: the 2x Xeon E5405.
fn eight() -> Machine {
    let (_, text) =
        described::MACHINES.into_iter().find(|(name, _)| *name == "xeon-e5405").unwrap();
    described::from_toml(text).unwrap().machine
}

fn usable(name: &str) -> Usable {
    read::usable(&eight(), &tree(name))
}

/// Mask, cpuset, quota and PUs in one line.
fn line(usable: &Usable) -> String {
    let set = |set: &Option<colocate_machine::PuSet>| {
        set.as_ref().map_or("none".into(), ToString::to_string)
    };
    let quota = usable.quota.map_or("none".into(), |quota| format!("{:.2}", quota.pus()));
    let pus: Vec<String> = usable.pus.iter().map(|pu| pu.0.to_string()).collect();
    format!(
        "mask {} cpuset {} quota {quota} pus {}",
        set(&usable.affinity),
        set(&usable.cpuset),
        pus.join(",")
    )
}

#[test]
fn v2_takes_the_nearest_cpuset_and_the_least_quota() {
    // Own group: 2 PUs of quota, no cpuset. Parent: cpuset 2-4, no quota. Grandparent: 1.5 PUs.
    assert_eq!(line(&usable("v2-nested")), "mask 0-7 cpuset 2-4 quota 1.50 pus 2,3,4");
}

/// The parent's limit is "max".
#[test]
fn groups_with_a_quota_are_listed() {
    let groups: Vec<String> =
        read::quotas(&tree("v2-nested"), "self").into_iter().map(|(dir, _)| dir).collect();
    let slice = "/sys/fs/cgroup/user.slice";
    assert_eq!(groups, [format!("{slice}/job.scope/step"), slice.to_owned()]);
    assert!(read::quotas(&tree("v2-nested"), "4711").is_empty(), "there is no such process");
}

#[test]
fn v1_reads_each_controller_in_its_hierarchy() {
    // The mask 1,3,6-7 and the effective cpuset 0-6 leave 1,3,6; the parent's quota is 3 PUs.
    assert_eq!(line(&usable("v1-hybrid")), "mask 1,3,6-7 cpuset 0-6 quota 3.00 pus 1,3,6");
}

#[test]
fn a_container_sees_its_own_group_as_the_root() {
    assert_eq!(line(&usable("container")), "mask 0-7 cpuset 1-2,4 quota 0.50 pus 1,2,4");
}

#[test]
fn a_group_below_a_mount_of_the_host_has_its_limits() {
    assert_eq!(line(&usable("namespace")), "mask 0-7 cpuset none quota 2.00 pus 0,1,2,3,4,5,6,7");
}

/// Files of a tree of its own: what is mounted, to which group the process belongs, and limits.
fn made(mountinfo: &str, cgroup: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
    let dir = tempfile::tempdir().unwrap();
    let own = [("proc/self/mountinfo", mountinfo), ("proc/self/cgroup", cgroup)];
    for (path, text) in own.iter().chain(files) {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let files = Sysfs::at(dir.path());
    (dir, files)
}

/// A process that was moved out of its namespace, one whose folder's name begins like another one's, and one of a container that sees
/// only its own group: the limits of what is mounted are not theirs.
#[test]
fn a_group_outside_of_the_mount_has_unknown_limits() {
    let limits = [
        ("cg/cpuset.cpus.effective", "0-1"),
        ("cg/cpu.max", "150000 100000"),
        ("cg/cpuset.cpus", "0-1"),
    ];
    let v2 = |root: &str| format!("40 39 0:26 {root} /cg ro - cgroup2 cgroup ro\n");
    let v1 = "40 39 0:26 /docker/ab /cg ro - cgroup cgroup ro,cpuset,cpu\n".to_owned();
    let cases = [
        (v2("/"), "0::/../N2"),
        (v2("/docker/ab"), "0::/docker/abc"),
        (v2("/docker/ab"), "0::/user.slice"),
        (v1, "3:cpuset,cpu:/docker/abc"),
    ];
    for (mountinfo, cgroup) in cases {
        let (_dir, files) = made(&mountinfo, cgroup, &limits);
        let all = "mask none cpuset none quota none pus 0,1,2,3,4,5,6,7";
        assert_eq!(line(&read::usable(&eight(), &files)), all, "{cgroup} in {mountinfo}");
    }
}

/// The first mount is another group's; the second one has the process's group.
#[test]
fn the_mount_that_has_the_group_is_taken() {
    let mountinfo =
        "40 39 0:26 /a /cg/a rw - cgroup2 cgroup rw\n41 39 0:26 /b /cg/b rw - cgroup2 cgroup rw\n";
    let files = [("cg/a/cpuset.cpus.effective", "0-1"), ("cg/b/cpuset.cpus.effective", "4-5")];
    for (cgroup, pus) in [("0::/a/inner", "0,1"), ("0::/b", "4,5")] {
        let (_dir, files) = made(mountinfo, cgroup, &files);
        let found = line(&read::usable(&eight(), &files));
        assert!(found.ends_with(&format!("pus {pus}")), "{cgroup}: {found}");
    }
}

/// The cpuset of another process, by what the kernel says of its groups.
#[test]
fn cpusets_of_others() {
    let mountinfo = "40 39 0:26 / /cg rw - cgroup2 cgroup rw\n";
    let files = [("cg/cpuset.cpus.effective", "0-7"), ("cg/B/cpuset.cpus.effective", "2-3")];
    let (_dir, files) = made(mountinfo, "0::/", &files);
    let cpusets = read::Cpusets::new(files);
    let of = |text: &str| cpusets.of(text).map(|set| set.to_string());
    assert_eq!(of("0::/B/inner\n").as_deref(), Some("2-3"));
    assert_eq!(of("0::/A\n").as_deref(), Some("0-7"));
    assert_eq!(of("0::/../A\n"), None);
}

/// mountinfo writes blanks as `\040`, and other mounts may have names in other encodings.
#[test]
fn odd_names_of_mounts_are_read() {
    assert_eq!(line(&usable("blanks")), "mask 0-7 cpuset 3-4 quota 0.75 pus 3,4");
}

#[test]
fn unknown_is_none() {
    let all = "mask none cpuset none quota none pus 0,1,2,3,4,5,6,7";
    for name in ["bare", "garbage", "no such tree"] {
        assert_eq!(line(&usable(name)), all, "{name}");
    }
}

#[test]
fn capacities_clocks_and_offline_come_from_sysfs() {
    let cores = tree("cores");
    let capacities = [0, 2, 9].map(|pu| cores.capacity(PuNr(pu)));
    assert_eq!(capacities, [Some(446), Some(1024), None]);
    assert_eq!(cores.max_frequency(PuNr(3)), Some(Hertz::mhz(2400)));
    assert_eq!(cores.offline().to_string(), "4");
    assert_eq!(tree("bare").offline().to_string(), "");
}
