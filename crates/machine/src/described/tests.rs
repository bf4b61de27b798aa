//! What is read, and what is refused.

use super::*;
use crate::machine::Machine;
use crate::performance::{ExecutionUnit, Inclusion, PortSet, Replacement, WorkKind};
use crate::units::{BytesPerSecond, Cycles, Hertz, Nanos};
use proptest::prelude::*;

fn machine(name: &str) -> Machine {
    let text = MACHINES.iter().find(|(found, _)| *found == name).expect(name).1;
    from_toml(text).expect(name).machine
}

/// Packages, nodes, cores, PUs, last-level caches.
fn counts(name: &str) -> [usize; 5] {
    let machine = machine(name);
    let top = machine.caches.iter().map(|cache| cache.level).max();
    let last = machine.caches.iter().filter(|cache| Some(cache.level) == top).count();
    [machine.packages.len(), machine.nodes.len(), machine.cores.len(), machine.pus.len(), last]
}

#[test]
fn the_seven_machines_are_what_the_papers_say() {
    assert_eq!(counts("epyc-7301"), [2, 8, 32, 64, 16]);
    assert_eq!(counts("xeon-x3320"), [1, 1, 4, 4, 2]);
    assert_eq!(counts("xeon-e5645"), [1, 1, 6, 12, 1]);
    assert_eq!(counts("power8-10c"), [1, 2, 10, 40, 10]);
    assert_eq!(counts("xeon-e5405"), [2, 1, 8, 8, 4]);
    assert_eq!(counts("opteron-6282se"), [4, 8, 64, 64, 8]);
    assert_eq!(counts("amp-4x12"), [4, 0, 16, 16, 4]);
}

/// All figures of `performance`, with what should carry their source.
fn figures(key: &str, value: &toml::Value, found: &mut Vec<String>) {
    let has_source = |table: &toml::Table| table.contains_key("source");
    match value {
        toml::Value::Table(table) if has_source(table) => {}
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| figures(&format!("{key}.{name}"), value, found));
        }
        toml::Value::Array(values) => values.iter().enumerate().for_each(|(index, value)| {
            figures(&format!("{key}[{index}]"), value, found);
        }),
        _ => found.push(key.into()),
    }
}

/// All but names, which are no figures.
#[test]
fn every_speed_says_where_it_comes_from() {
    for (name, text) in MACHINES {
        let table: toml::Table = toml::from_str(text).expect(name);
        let mut bare = Vec::new();
        figures("performance", &table["performance"], &mut bare);
        bare.retain(|key| !key.ends_with(".name") && !key.ends_with(".level"));
        assert!(bare.is_empty(), "{name}: {bare:?}");
    }
}

#[test]
fn all_machines_have_speeds_and_every_kind_of_work_a_unit() {
    for (name, text) in MACHINES {
        let exact = from_toml(text).expect(name);
        let speeds = exact.performance.expect(name);
        for core in &speeds.kinds {
            for work in WorkKind::ALL {
                assert!(core.units.iter().any(|unit| unit.kind == work), "{name}: {work}");
            }
        }
        let (nodes, hops) = (exact.machine.nodes.len().max(1), &speeds.hops);
        let pairs = |from: usize| (0..nodes).filter(move |&to| from != to);
        assert!((0..nodes).all(|from| pairs(from).all(|to| hops[from][to].0 > 0)), "{name}");
    }
}

#[test]
fn siblings_on_epyc_are_32_apart() {
    let machine = machine("epyc-7301");
    for core in &machine.cores {
        let os: Vec<u32> = core.pus.iter().map(|pu| machine.pus[pu.idx()].os.0).collect();
        assert_eq!(os, [os[0], os[0] + 32]);
    }
}

#[test]
fn every_figure_says_where_it_comes_from() {
    for (name, text) in MACHINES {
        let table: toml::Table = toml::from_str(text).expect(name);
        let sourced = sources(text).expect(name);
        let shape = table["shape"].as_table().expect(name);
        for key in shape.keys().map(|key| format!("shape.{key}")) {
            assert!(sourced.iter().any(|(found, _)| *found == key), "{name}: {key}");
        }
        let caches = table.get("cache").and_then(toml::Value::as_array).expect(name);
        for (index, cache) in caches.iter().enumerate() {
            for key in ["size", "cores"].iter().filter(|key| cache.get(**key).is_some()) {
                let key = format!("cache[{index}].{key}");
                assert!(sourced.iter().any(|(found, _)| *found == key), "{name}: {key}");
            }
        }
        assert!(sourced.iter().all(|(_, source)| source.len() > 5), "{name}");
    }
}

/// Every die has a link to each of the 3 others of its socket and one to its counterpart: 8 × 4 links. An
/// access to another die of the other socket crosses two of them.
#[test]
fn epyc_has_speeds() {
    let speeds = performance(MACHINES[0].1).expect("read").expect("described");
    let core = &speeds.kinds[0];
    assert_eq!((core.width, core.divided, core.llvm_cpu.as_deref()), (5.0, true, Some("znver1")));
    let store: Vec<u32> = core
        .units
        .iter()
        .filter(|unit| unit.kind == WorkKind::Store)
        .map(|unit| unit.ports.len())
        .collect();
    assert_eq!(store, [2, 1]);
    assert_eq!(speeds.caches.iter().map(|cache| cache.level).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((speeds.memory.len(), speeds.links.len()), (8, 32));
    let hop = |from: usize, to: usize| speeds.hops[from][to].0;
    assert_eq!([hop(5, 5), hop(5, 6), hop(5, 1), hop(5, 2)], [0, 50, 130, 130]);
    for (from, to, links) in [(5, 5, 0), (5, 6, 1), (5, 1, 1), (5, 2, 2)] {
        let crossed = speeds.links.iter().filter(|link| link.crossed_by.contains(&(from, to)));
        assert_eq!(crossed.count(), links, "{from} to {to}");
    }
}

#[test]
fn amp_has_slow_cores_first() {
    let machine = machine("amp-4x12");
    let kinds: Vec<_> = machine.kinds.iter().map(|kind| (&*kind.name, kind.capacity)).collect();
    assert_eq!(kinds, [("slow", Some(512)), ("fast", Some(1024))]);
    let fast = machine.cores.iter().enumerate().filter(|(_, core)| core.kind.0 == 1);
    assert_eq!(fast.map(|(index, _)| index).collect::<Vec<_>>(), [0, 4, 8, 12]);
}

/// Where the description says its fast kind first, the machine and its speeds are the same.
#[test]
fn kinds_are_sorted_by_their_capacities() {
    let text = MACHINES.iter().find(|(name, _)| *name == "amp-4x12").expect("there").1;
    let (before, kinds) = text.split_once("[[kind]]\n").expect("a kind");
    let (slow, rest) = kinds.split_once("[[kind]]\n").expect("two kinds");
    let (fast, after) = rest.split_once("\n\n").expect("its end");
    let exchanged = format!("{before}[[kind]]\n{fast}\n\n[[kind]]\n{slow}\n\n{after}");
    assert_eq!(from_toml(&exchanged), from_toml(text));
}

const SMALL: &str = "version = 1\nname = \"small\"\n[shape]\npackages = 2\ncores-per-package = 2\npus-per-core = 2\nnodes = 2\n";

fn error(text: &str) -> String {
    let error = from_toml(text).expect_err(text).to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn bare_figures_and_defaults() {
    let small = from_toml(SMALL).expect("small").machine;
    let os: Vec<u32> = small.pus.iter().map(|pu| pu.os.0).collect();
    assert_eq!(os, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((small.distances, small.nodes[0].memory, small.kinds.len()), (None, None, 1));
}

#[test]
fn wrong_descriptions_get_one_line() {
    let with = |more: &str| error(&format!("{SMALL}{more}"));
    assert_eq!(error("name = 1"), "expected version = 1, found none");
    assert_eq!(
        error("version = 2"),
        "expected a machine of version 1, found version 2; write it again with this colocate"
    );
    assert!(error("= 1").starts_with("line 1: "));
    assert_eq!(
        with("[momery]"),
        "line 8: unknown field `momery`, expected one of `version`, `name`, `processor`, `shape`, `numbering`, `memory`, `cache`, `kind`, `performance`"
    );
    assert_eq!(
        with("[memory]\nper-mode = 1"),
        "line 9: unknown field `per-mode`, expected `per-node` or `distances`"
    );
    assert_eq!(
        with("[memory]\nper-node = \"16 GB\""),
        "line 9: expected a size like \"32 KiB\" or \"16 GiB\", found \"16 GB\""
    );
    assert_eq!(
        with("[memory]\nper-node = { value = \"16 GiB\", sourse = \"x\" }"),
        "line 9: unknown field `sourse`, expected `value` or `source`"
    );
    assert_eq!(
        with("[memory]\ndistances = [[10, 20]]"),
        "line 9: memory.distances: expected 2 rows of 2, found one of 1"
    );
    assert_eq!(
        with("[numbering]\npus = \"0-6\""),
        "line 9: numbering.pus: expected 8 PUs, found 7"
    );
    assert_eq!(
        with("[numbering]\noffline = \"7-8\""),
        "line 9: numbering.offline: expected PUs beside those of the shape, found 7"
    );
    assert_eq!(with("[numbering]\npus = \"0-6,6\""), "expected every CPU once, found cpu6 twice");
    assert_eq!(
        with("[[cache]]\nlevel = 2\nkind = \"unified\"\ncores = 3"),
        "line 11: cache[0].cores: expected a divisor of 4 cores, found 3"
    );
    assert_eq!(
        with("[[cache]]\nlevel = 2\nkind = \"unified\"\ncores = 0"),
        "line 11: cache[0].cores: expected a divisor of 4 cores, found 0"
    );
    assert_eq!(
        with("[[kind]]\nname = \"a\"\n[[kind]]\nname = \"b\"\ncores = \"1-2\""),
        "line 12: kind[1].cores: expected cores of no earlier kind, found 1-2"
    );
    assert_eq!(
        with("[[kind]]\nname = \"a\"\ncores = \"4\""),
        "line 10: kind[0].cores: expected cores below 4, found 4"
    );
    assert_eq!(
        error(&SMALL.replace("nodes = 2", "nodes = 3")),
        "line 7: shape.nodes: expected a divisor of 4 cores, found 3"
    );
    assert_eq!(
        error(&SMALL.replace("packages = 2", "packages = 0")),
        "line 4: shape.packages: expected at least 1, found 0"
    );
    assert_eq!(
        error(&SMALL.replace("packages = 2", "packages = 4000000000")),
        "line 3: shape: expected at most 65536 PUs, found 16000000000"
    );
}

const SPEEDS: &str = r#"
[memory]
distances = [[10, 21], [21, 10]]
[[cache]]
level = 1
kind = "data"
size = "32 KiB"
cores = 1
[[cache]]
level = 2
kind = "unified"
size = "1 MiB"
cores = 2
[performance.hops-by-distance]
value = { 21 = "50 ns" }
source = "x"
[[performance.kind]]
clock = "2 GHz"
slots-per-cycle = 4
branch-miss = "15 cycles"
divided = true
ports = ["p0", "p1"]
units = [
    { work = "int", ports = ["p0", "p1"] },
    { work = "int-div", ports = ["p1"], occupancy = "20 cycles" },
]
[[performance.cache]]
level = 1
latency = "4 cycles"
[[performance.cache]]
level = 2
latency = "14 cycles"
inclusion = "inclusive"
bandwidth = "100 GB/s"
[[performance.memory]]
latency = "80 ns"
bandwidth = "10 GB/s"
line = "64 B"
[[performance.links]]
bandwidth = "5 GB/s"
routes = ["there: 0>1", "back: 1>0"]
"#;

#[test]
fn speeds_without_sources() {
    let speeds = performance(&format!("{SMALL}{SPEEDS}")).expect("read").expect("described");
    let core = &speeds.kinds[0];
    assert_eq!((core.clock, core.branch_miss), (Hertz::mhz(2000), Cycles(15.0)));
    let unit = |kind, ports, cycles| ExecutionUnit { kind, ports, occupancy: Cycles(cycles) };
    assert_eq!(
        core.units,
        [unit(WorkKind::Int, PortSet(0b11), 1.0), unit(WorkKind::IntDiv, PortSet(0b10), 20.0)]
    );
    assert_eq!(speeds.caches[0].inclusion, Inclusion::Neither);
    assert_eq!(speeds.caches[1].bandwidth, Some(BytesPerSecond(100e9)));
    assert_eq!((speeds.memory.len(), &speeds.memory[0]), (2, &speeds.memory[1]));
    let far = Nanos(50);
    assert_eq!(speeds.hops, [[Nanos::ZERO, far], [far, Nanos::ZERO]]);
    assert_eq!(speeds.links[1].crossed_by, [(1, 0)]);
    assert_eq!(performance(SMALL), Ok(None));
}

/// A cache without a stated replacement has LRU, as it always had.
#[test]
fn replacement_of_lines() {
    let of = |said: &str| {
        let said = format!("inclusion = \"inclusive\"\n{said}");
        let text = format!("{SMALL}{SPEEDS}").replace("inclusion = \"inclusive\"", &said);
        performance(&text).expect("read").expect("described").caches[1].replacement
    };
    assert_eq!(of(""), Replacement::Lru);
    assert_eq!(of("replacement = \"random\""), Replacement::Random);
    assert_eq!(of("replacement = { value = \"adaptive\", source = \"x\" }"), Replacement::Adaptive);
}

/// Every refusal: what is changed in [`SPEEDS`] to what, and the line that is printed.
const IMPOSSIBLE: [(&str, &str, &str); 27] = [
    (
        "inclusion = \"inclusive\"",
        "inclusion = \"inclusive\"\nreplacement = \"fifo\"",
        "line 41: unknown variant `fifo`, expected one of `lru`, `random`, `adaptive`, `unknown`",
    ),
    // Wrong units.
    ("clock = \"2 GHz\"", "clock = 2", "line 25: invalid type: integer `2`, expected a string"),
    ("\"80 ns\"", "\"80 cycles\"", "line 43: expected a time like \"90 ns\", found \"80 cycles\""),
    (
        "\"10 GB/s\"",
        "\"10 GiB/s\"",
        "line 44: expected a bandwidth like \"21.3 GB/s\", found \"10 GiB/s\"",
    ),
    (
        "\"14 cycles\"",
        "\"-14 cycles\"",
        "line 39: expected cycles like \"17 cycles\", found \"-14 cycles\"",
    ),
    // Unknown keys and names.
    (
        "divided =",
        "devided =",
        "line 28: unknown field `devided`, expected one of `name`, `clock`, `llvm-cpu`, `slots-per-cycle`, `branch-miss`, `divided`, `thread-sets`, `ports`, `units`",
    ),
    (
        "work = \"int\"",
        "work = \"integer\"",
        "line 31: unknown variant `integer`, expected one of `branch`, `int`, `int-mul`, `int-div`, `float-add`, `float-mul`, `float-div`, `load`, `store`",
    ),
    (
        "[\"p1\"]",
        "[\"p2\"]",
        "line 32: performance.kind[0].units[1].ports: expected names out of p0, p1, found p2",
    ),
    (
        "units = [",
        "name = \"fast\"\nunits = [",
        "line 30: performance.kind[0].name: expected each kind of core once: core, found fast",
    ),
    // Impossible figures.
    (
        "units = [",
        "thread-sets = 0\nunits = [",
        "line 30: performance.kind[0].thread-sets: expected 1 to 8, found 0",
    ),
    (
        "\"10 GB/s\"",
        "\"0 GB/s\"",
        "line 44: performance.memory[0].bandwidth: expected above 0 GB/s and up to 1000000 GB/s, found 0.00 GB/s",
    ),
    (
        "\"5 GB/s\"",
        "\"0 GB/s\"",
        "line 47: performance.links[0].bandwidth: expected above 0 GB/s and up to 1000000 GB/s, found 0.00 GB/s",
    ),
    (
        "\"80 ns\"",
        "\"0 ns\"",
        "line 43: performance.memory[0].latency: expected 1 ns to 1.0 ms, found 0 ns",
    ),
    (
        "\"14 cycles\"",
        "\"3 cycles\"",
        "line 39: performance.cache[1].latency: expected 4 to 10000 cycles, found 3 cycles",
    ),
    (
        "\"20 cycles\"",
        "\"0 cycles\"",
        "line 32: performance.kind[0].units[1].occupancy: expected above 0 cycles, found 0 cycles",
    ),
    (
        "\"2 GHz\"",
        "\"0 GHz\"",
        "line 25: performance.kind[0].clock: expected a clock rate above 0 and up to 100 GHz, found 0.00 GHz",
    ),
    (
        "slots-per-cycle = 4",
        "slots-per-cycle = nan",
        "line 26: performance.kind[0].slots-per-cycle: expected above 0 and up to 64, found NaN",
    ),
    (
        "[\"p0\", \"p1\"]\nunits",
        "[\"p0\", \"p0\", \"p1\"]\nunits",
        "line 29: performance.kind[0].ports: expected every name once, found p0",
    ),
    (
        "\"15 cycles\"",
        "\"15000 cycles\"",
        "line 27: performance.kind[0].branch-miss: expected 0 to 10000 cycles, found 15000 cycles",
    ),
    (
        "\"64 B\"",
        "\"60 B\"",
        "line 45: performance.memory[0].line: expected a power of two up to 4096 B, found 60 B",
    ),
    // Speeds of another machine.
    (
        "level = 2\nlatency",
        "level = 3\nlatency",
        "line 34: performance.cache: expected levels [1, 2], those of the machine's data caches, found [1, 3]",
    ),
    (
        "size = \"1 MiB\"\n",
        "",
        "line 36: performance.cache[1]: expected a cache whose size is known, found one without size",
    ),
    (
        "inclusion = \"inclusive\"\n",
        "",
        "line 37: performance.cache[1].inclusion: expected inclusive, exclusive or neither, found none",
    ),
    (
        "{ 21 =",
        "{ 22 =",
        "line 21: performance.hops-by-distance: expected a time for the distance 21, found none",
    ),
    (
        "back: 1>0",
        "back: 1>2",
        "line 48: performance.links[0].routes[1]: expected two different nodes below 2, found 1>2",
    ),
    (
        "back: 1>0",
        "there: 1>0",
        "line 48: performance.links[0].routes[1]: expected a name that no earlier link has, found \"there\"",
    ),
    (
        "back: 1>0",
        "back 1>0",
        "line 48: performance.links[0].routes[1]: expected a link like \"0 to 1: 0>1 0>4-7\", found \"back 1>0\"",
    ),
];

#[test]
fn impossible_speeds_get_one_line() {
    for (from, to, expected) in IMPOSSIBLE {
        assert!(SPEEDS.contains(from), "{from}");
        assert_eq!(error(&format!("{SMALL}{}", SPEEDS.replacen(from, to, 1))), expected, "{to}");
    }
}

/// A few bytes of text that need more memory than any machine has.
#[test]
fn lists_that_are_too_long_are_refused_before_they_are_made() {
    let routes = |routes: &str| {
        let speeds = SPEEDS.replacen("\"there: 0>1\"", routes, 1);
        error(&format!("{SMALL}{speeds}"))
    };
    assert_eq!(
        routes("\"a: 0-65535>0-65535\""),
        "line 48: performance.links[0].routes[0]: expected two different nodes below 2, found 0-65535>0-65535"
    );
    let pus = "0-65535,".repeat(4_000);
    assert_eq!(
        error(&format!("{SMALL}[numbering]\npus = \"{pus}0\"")),
        "line 9: numbering.pus: expected 8 PUs, found 65536"
    );
}

/// The page that says how to describe a machine has one that can be read.
#[test]
fn the_example_in_the_docs_is_read() {
    let page = include_str!("../../../../docs/reference/machines.md");
    let examples = page.split("```toml\n").skip(1).filter_map(|part| part.split("```").next());
    let whole: Vec<&str> = examples.filter(|text| text.starts_with("version")).collect();
    assert_eq!(whole.len(), 1);
    let exact = from_toml(whole[0]).expect("the example");
    assert!(exact.performance.is_some());
}

proptest! {
    /// Whatever happens to a line, the text is read or refused, and what is read is sound.
    #[test]
    fn damaged_descriptions_are_read_or_refused(
        which in 0..MACHINES.len(),
        at in 0..200_usize,
        with in 0..200_usize,
        how in 0..4,
        text in "[0-9a-z\"{}\\[\\]=,. -]{0,12}",
    ) {
        let mut lines: Vec<&str> = MACHINES[which].1.lines().collect();
        let (at, with) = (at % lines.len(), with % lines.len());
        let key = lines[at].split('=').next().unwrap_or_default();
        let changed = format!("{key}= {text}");
        match how {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[with]),
            2 => lines.swap(at, with),
            _ => lines[at] = &changed,
        }
        match from_toml(&lines.join("\n")) {
            Ok(exact) => {
                prop_assert_eq!(exact.machine.check(), Ok(()));
                if let Some(speeds) = &exact.performance {
                    prop_assert_eq!(speeds.check(&exact.machine), Ok(()));
                    prop_assert!(!crate::speeds(&exact.machine, speeds).is_empty());
                }
                prop_assert_eq!(&Exact::from_json(&exact.to_json()), &Ok(exact.clone()));
                let toml = exact.to_toml().expect("what was read from TOML fits into it");
                prop_assert_eq!(from_toml(&toml), Ok(exact));
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
        }
    }
}
