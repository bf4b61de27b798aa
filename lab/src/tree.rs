//! The device tree of an aarch64 guest: QEMU's own, with the capacities and caches of the machine.
//!
//! QEMU's tree has neither. Linux takes `cpu_capacity` from `capacity-dmips-mhz`, and the sharing
//! of caches from `next-level-cache` (Documentation/devicetree/bindings/cpu/cpu-capacity.txt and
//! the Devicetree Specification, section 3.8).

use crate::boot::{Killed, path_of, tool};
use anyhow::{Context as _, bail};
use colocate_machine::{Cache, CacheKind, Machine, PuIdx};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// First phandle of the added caches. QEMU's own phandles begin at 0x8000.
const FIRST_HANDLE: usize = 0x100;
/// Time limit of a tool, enough on a busy machine; a tool takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// A property of a node of the tree; a missing node is created.
#[derive(Debug, PartialEq, Eq)]
pub struct Property {
    node: String,
    name: &'static str,
    /// `None`: the property is a flag.
    value: Option<u64>,
}

impl Property {
    fn new(node: &str, name: &'static str, value: Option<u64>) -> Self {
        Self { node: node.to_owned(), name, value }
    }
}

/// Properties that QEMU's tree lacks; empty if `machine` has no capacities and no caches.
///
/// The guest's processor always has an L2, so an L2 is added between a core and a described L3.
#[must_use]
pub fn properties(machine: &Machine) -> Vec<Property> {
    let mut properties = Vec::new();
    for pu in machine.all_pus() {
        let node = format!("/cpus/cpu@{}", pu.idx());
        let kind = &machine.kinds[machine.cores[machine.core_of(pu).idx()].kind.idx()];
        if let (Some(capacity), true) = (kind.capacity, machine.kinds.len() > 1) {
            properties.push(Property::new(&node, "capacity-dmips-mhz", Some(capacity.into())));
        }
        for (kind, name) in
            [(CacheKind::Data, "d-cache-size"), (CacheKind::Instruction, "i-cache-size")]
        {
            let size = over(machine, pu, 1, kind).and_then(|(_, cache)| cache.size);
            properties.extend(size.map(|size| Property::new(&node, name, Some(size.0))));
        }
        properties.extend(chain(machine, pu, &node));
    }
    properties
}

/// Properties of the L2 and L3 of `pu`. Each level refers to the next by `next-level-cache`.
fn chain(machine: &Machine, pu: PuIdx, node: &str) -> Vec<Property> {
    let core = machine.core_of(pu).idx();
    let second = over(machine, pu, 2, CacheKind::Unified);
    let third = over(machine, pu, 3, CacheKind::Unified);
    if second.is_none() && third.is_none() {
        return Vec::new();
    }
    // The phandle of an added L2 must differ from the phandles of described caches.
    let invented = machine.caches.len() + core;
    let mut levels = vec![(2, second.map_or(invented, |(place, _)| place), second)];
    levels.extend(third.map(|(place, cache)| (3, place, Some((place, cache)))));
    let mut properties = Vec::new();
    let mut below = node.to_owned();
    for (level, place, cache) in levels {
        let handle = FIRST_HANDLE + place;
        let name = format!("/cpus/l{level}-cache{place}");
        properties.push(Property::new(&below, "next-level-cache", Some(handle as u64)));
        properties.push(Property::new(&name, "phandle", Some(handle as u64)));
        properties.push(Property::new(&name, "cache-level", Some(level)));
        properties.push(Property::new(&name, "cache-unified", None));
        if let Some(size) = cache.and_then(|(_, cache)| cache.size) {
            properties.push(Property::new(&name, "cache-size", Some(size.0)));
        }
        below = name;
    }
    properties
}

/// The cache of a level and kind that serves `pu`, with its index in the machine.
fn over(machine: &Machine, pu: PuIdx, level: u8, kind: CacheKind) -> Option<(usize, &Cache)> {
    let all = machine.caches.iter().enumerate();
    all.into_iter()
        .find(|(_, cache)| cache.level == level && cache.kind == kind && cache.pus.contains(&pu))
}

/// QEMU's tree for `options` with added properties, in a file without a name.
///
/// # Errors
/// If QEMU cannot be the machine, or a tool of the set `qemu` fails.
pub fn tree(
    qemu: &Path,
    folder: &Path,
    options: &[String],
    properties: &[Property],
) -> anyhow::Result<File> {
    let own = dumped(qemu, folder, options)?;
    let mut tree = tempfile::tempfile().context("no temporary file")?;
    tree.write_all(&std::fs::read(&own).with_context(|| own.display().to_string())?)?;
    let mut done = std::collections::BTreeSet::new();
    for property in properties {
        // Each PU of a shared cache has listed the cache's properties.
        if done.insert((&property.node, property.name)) {
            put(qemu, &tree, property)?;
        }
    }
    Ok(tree)
}

/// Path of QEMU's own tree for `options`, in the cache.
///
/// QEMU writes a new file and renames it, so QEMU cannot write into a file without a name.
fn dumped(qemu: &Path, folder: &Path, options: &[String]) -> anyhow::Result<PathBuf> {
    let mut hash = Sha256::new();
    // The tree depends on QEMU's version and on the options.
    hash.update(std::fs::read(folder.join("qemu.packages")).unwrap_or_default());
    hash.update(options.join("\n"));
    let name = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
    let folder = folder.join("trees");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(name + ".dtb");
    if !path.exists() {
        let mut command = tool(qemu, "qemu-system-aarch64")?;
        // The tree describes the serial lines, so their number must be that of the guest.
        command.args(["-nodefaults", "-display", "none", "-serial", "null", "-serial", "null"]);
        command.args(options).arg("-machine").arg(format!("dumpdtb={}", path.display()));
        run(command).context("QEMU writes no device tree")?;
    }
    Ok(path)
}

fn put(qemu: &Path, tree: &File, property: &Property) -> anyhow::Result<()> {
    let mut command = tool(qemu, "fdtput")?;
    // -p creates missing nodes, -t i writes 32-bit integers.
    command.args(["-p", "-t", "i"]).arg(path_of(tree)).args([&property.node, property.name]);
    command.args(property.value.map(|value| value.to_string()));
    run(command).with_context(|| format!("cannot set {} of {}", property.name, property.node))
}

fn run(mut command: std::process::Command) -> anyhow::Result<()> {
    let mut said = tempfile::tempfile().context("no temporary file")?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
    let ended = Killed::start(&mut command)?.wait(Instant::now() + LIMIT)?;
    if ended.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let mut text = String::new();
    std::io::Seek::rewind(&mut said)?;
    std::io::Read::read_to_string(&mut said, &mut text)?;
    bail!("{}", text.lines().last().unwrap_or("it did not end within a minute"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// First lines of the tree for the first two PUs of `machine` and for `caches`.
    fn beginning(machine: &Machine, caches: [&str; 2], lines: usize) -> String {
        let of_first_domain = |property: &Property| {
            let ours = ["/cpus/cpu@0", "/cpus/cpu@1", caches[0], caches[1]];
            ours.contains(&property.node.as_str())
        };
        let mut text: Vec<_> = properties(machine)
            .into_iter()
            .filter(of_first_domain)
            .map(|Property { node, name, value }| match value {
                Some(value) => format!("{node} {name} {value}\n"),
                None => format!("{node} {name}\n"),
            })
            .collect();
        // The cores that share a cache all name its properties.
        text.dedup();
        text.truncate(lines);
        text.concat()
    }

    #[test]
    fn capacities_and_caches_of_the_asymmetric_machine() {
        let machine = colocate_machine::read::open("amp-4x12").expect("described");
        expect![[r#"
            /cpus/cpu@0 capacity-dmips-mhz 1024
            /cpus/cpu@0 d-cache-size 65536
            /cpus/cpu@0 i-cache-size 65536
            /cpus/cpu@0 next-level-cache 288
            /cpus/l2-cache32 phandle 288
            /cpus/l2-cache32 cache-level 2
            /cpus/l2-cache32 cache-unified
            /cpus/l2-cache32 cache-size 524288
            /cpus/l2-cache32 next-level-cache 304
            /cpus/l3-cache48 phandle 304
            /cpus/l3-cache48 cache-level 3
            /cpus/l3-cache48 cache-unified
            /cpus/l3-cache48 cache-size 2097152
            /cpus/cpu@1 capacity-dmips-mhz 512
            /cpus/cpu@1 d-cache-size 65536
            /cpus/cpu@1 i-cache-size 65536
        "#]]
        .assert_eq(&beginning(&machine, ["/cpus/l2-cache32", "/cpus/l3-cache48"], 16));
    }

    /// Linux searches a third level only beyond a second one.
    #[test]
    fn a_second_level_that_is_not_described_is_added() {
        let mut machine = colocate_machine::read::open("amp-4x12").expect("described");
        machine.caches.retain(|cache| cache.level == 3);
        machine.caches.iter_mut().for_each(|cache| cache.size = None);
        expect![[r#"
            /cpus/cpu@0 capacity-dmips-mhz 1024
            /cpus/cpu@0 next-level-cache 260
            /cpus/l2-cache4 phandle 260
            /cpus/l2-cache4 cache-level 2
            /cpus/l2-cache4 cache-unified
            /cpus/l2-cache4 next-level-cache 256
            /cpus/l3-cache0 phandle 256
            /cpus/l3-cache0 cache-level 3
            /cpus/l3-cache0 cache-unified
            /cpus/cpu@1 capacity-dmips-mhz 512
            /cpus/cpu@1 next-level-cache 261
            /cpus/l3-cache0 phandle 256
            /cpus/l3-cache0 cache-level 3
            /cpus/l3-cache0 cache-unified
        "#]]
        .assert_eq(&beginning(&machine, ["/cpus/l2-cache4", "/cpus/l3-cache0"], 14));
    }
}
