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
    let groups = read::with_quota(&tree("v2-nested"), "self");
    let slice = "/sys/fs/cgroup/user.slice";
    assert_eq!(groups, [format!("{slice}/job.scope/step"), slice.to_owned()]);
    assert!(read::with_quota(&tree("v2-nested"), "4711").is_empty(), "there is no such process");
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
fn a_path_above_the_mount_falls_back_to_the_mount() {
    assert_eq!(line(&usable("namespace")), "mask 0-7 cpuset none quota 2.00 pus 0,1,2,3,4,5,6,7");
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
