//! The corpus of machines: what we read from each, and hwloc's own tools as peer.
//!
//! `UPDATE_EXPECT=1 cargo test -p colocate-machine --features read --test corpus` rewrites the
//! expected files; `corpus/README.md` says where the machines come from.
#![cfg(feature = "read")]
#![allow(clippy::unwrap_used)] // a failed set-up stops the test

use colocate_machine::exact::Exact;
use colocate_machine::{Machine, picture, read};
use colocate_testing::skip;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// hwloc 2 refuses a machine without NUMA nodes and files of version 3.
const ONLY_OURS: [&str; 2] = ["no-numa", "v3-cgroup"];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Names of the corpus's files that end in `ending`, without it, sorted.
fn stems(ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(corpus()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(ending).map(Into::into)).collect()
}

/// Reads a machine and compares its picture and its exact form with the files beside it.
fn check(name: &str) {
    let file = |ending: &str| corpus().join(format!("{name}.{ending}"));
    let seen = read::load(file("xml").to_str().unwrap()).unwrap();
    let text = picture(&seen.machine, seen.usable.as_ref());
    expect_test::expect_file![file("txt")].assert_eq(&text);
    let exact = Exact::new(seen.machine, seen.usable);
    let json = compact(&exact.to_json());
    expect_test::expect_file![file("json")].assert_eq(&json);
    assert_eq!(Exact::from_json(&json).as_ref(), Ok(&exact));
    assert_eq!(Exact::from_json(&exact.to_json()), Ok(exact));
}

/// The same JSON with a line for each field of the machine; lists fill lines of 120 characters.
fn compact(json: &str) -> String {
    const WIDTH: usize = 120;
    let exact: Map<String, Value> = serde_json::from_str(json).unwrap();
    let line = |value: &Value| match value {
        Value::Array(items) => {
            let mut lines = vec![String::new()];
            for item in items.iter().map(Value::to_string) {
                if lines.last().unwrap().len() + item.len() > WIDTH {
                    lines.push(String::new());
                }
                write!(lines.last_mut().unwrap(), "{item},").unwrap();
            }
            format!("[{}]", lines.join("\n").trim_end_matches(','))
        }
        other => other.to_string(),
    };
    let fields = |object: &Map<String, Value>| {
        let fields = object.iter().map(|(name, value)| format!("{name:?}: {}", line(value)));
        fields.collect::<Vec<_>>().join(",\n")
    };
    let parts = exact.iter().map(|(name, value)| match value {
        Value::Object(object) => format!("{name:?}: {{\n{}\n}}", fields(object)),
        other => format!("{name:?}: {}", line(other)),
    });
    format!("{{\n{}\n}}\n", parts.collect::<Vec<_>>().join(",\n"))
}

#[test]
fn corpus_reads_as_expected() {
    let names = stems(".xml");
    assert!(names.len() >= 27, "the corpus has shrunk to {names:?}");
    names.iter().for_each(|name| check(name));
}

/// hwloc has no such machine: it has each node beside all PUs.
#[test]
fn nodes_that_cross_packages_read_as_expected() {
    let machine = read::open(corpus().join("crossing-nodes.json").to_str().unwrap()).unwrap();
    expect_test::expect_file![corpus().join("crossing-nodes.txt")]
        .assert_eq(&picture(&machine, None));
}

/// 1,024 PUs, as hwloc expands them. `read`'s own test has hwloc save them as XML, too, and reads that.
#[test]
fn a_large_machine_reads_as_expected() {
    let text = std::fs::read_to_string(corpus().join("pu-1024.synthetic")).unwrap();
    let machine = Machine { name: "pu-1024".into(), ..read::synthetic(text.trim()).unwrap() };
    expect_test::expect_file![corpus().join("pu-1024.txt")].assert_eq(&picture(&machine, None));
    let numbers = (0..1024).map(|nr| nr.to_string()).collect::<Vec<_>>();
    assert_eq!(pus(&machine), numbers.join(","));
    compare_with_calc(text.trim(), "pu-1024", &machine);
    let exact = Exact::new(machine, None);
    assert_eq!(Exact::from_json(&exact.to_json()), Ok(exact));
}

/// What hwloc-calc says about a file or a synthetic machine, or `None` if the tool is not installed.
fn calc(machine: &str, args: &[&str]) -> Option<String> {
    let mut tool = Command::new("hwloc-calc");
    match tool.args(["--disallowed", "-i", machine]).args(args).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "hwloc-calc {args:?} on {machine}");
            Some(String::from_utf8(output.stdout).unwrap().trim().into())
        }
    }
}

/// Our machine in hwloc-calc's words: numbers of PUs in logical order.
fn pus(machine: &Machine) -> String {
    let numbers = machine.pus.iter().map(|pu| pu.os.0.to_string());
    numbers.collect::<Vec<_>>().join(",")
}

#[test]
fn hwloc_tools_see_the_same_machine() {
    for name in stems(".xml").into_iter().filter(|name| !ONLY_OURS.contains(&name.as_str())) {
        let file = corpus().join(format!("{name}.xml"));
        let file = file.to_str().unwrap();
        compare_with_calc(file, &name, &read::open(file).unwrap());
    }
}

/// Compares `machine` with what hwloc-calc says of `source`.
fn compare_with_calc(source: &str, name: &str, machine: &Machine) {
    let Some(all) = calc(source, &["-I", "pu", "--po", "all"]) else {
        skip!(HwlocPrograms, "hwloc-calc is not installed (package hwloc)");
    };
    assert_eq!(all, pus(machine), "{name}: PUs");
    let count = |what: &str| calc(source, &["-N", what, "all"]).unwrap().parse::<usize>().unwrap();
    assert_eq!(count("core"), machine.cores.len(), "{name}: cores");
    assert_eq!(count("package"), machine.packages.len(), "{name}: packages");
    // hwloc-calc counts nodes near the PUs; one without PUs is near none.
    let near = machine.nodes.iter().filter(|node| !node.pus.is_empty()).count();
    assert!(count("numa") >= near && count("numa") <= machine.nodes.len(), "{name}: nodes");
    siblings(source, machine, name);
}

/// Compares the siblings of a sample of cores: all 512 of one machine would take half a minute.
fn siblings(source: &str, machine: &Machine, name: &str) {
    let step = machine.cores.len().div_ceil(16);
    for (index, core) in machine.cores.iter().enumerate().step_by(step) {
        let ours = core.pus.iter().map(|pu| machine.pus[pu.idx()].os.0.to_string());
        let location = format!("core:{index}");
        let theirs = calc(source, &["-I", "pu", "--po", &location]).unwrap();
        assert_eq!(theirs, ours.collect::<Vec<_>>().join(","), "{name}: {location}");
    }
}

#[test]
fn synthetic_strings_read_as_hwloc_means_them() {
    let machine = read::synthetic("pack:2 numa:2(memory=8GB) l3:1(size=16MB) core:4 pu:2").unwrap();
    let counts =
        [machine.packages.len(), machine.nodes.len(), machine.cores.len(), machine.pus.len()];
    assert_eq!(counts, [2, 4, 16, 32]);
    assert_eq!(machine.caches.len(), 4);
    assert_eq!(machine.smt_width(), 2);
    let error = |text| read::synthetic(text).unwrap_err().to_string();
    assert_eq!(
        error("nonsense"),
        "expected a synthetic machine like \"pack:2 core:8 pu:2\", found \"nonsense\""
    );
    assert_eq!(
        error("pack:4 core:9999999"),
        "expected a synthetic machine of at most 131072 parts, found more in \"pack:4 core:9999999\""
    );
}

#[test]
fn the_live_machine_makes_sense() {
    let seen = read::load("live").unwrap();
    assert_eq!(seen.machine.check(), Ok(()));
    let usable = seen.usable.expect("the live machine can be used");
    let available = std::thread::available_parallelism().unwrap().get();
    assert!(!usable.pus.is_empty() && usable.pus.len() >= available);
}
