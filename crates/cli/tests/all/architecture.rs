//! What ARCHITECTURE.md says must stay true, read from the sources and from cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that are values in, values out.
const PURE: [&str; 10] =
    ["isa", "trace", "machine", "evidence", "model", "policy", "engine", "figures", "sim", "study"];

/// What a pure crate may not use, with the reason that a reader of a failure needs.
const OUTSIDE: [(&str, &str); 10] = [
    ("std::fs", "the file system"),
    ("std::env", "the environment"),
    ("std::process", "processes"),
    ("std::net", "the network"),
    ("std::thread", "threads"),
    ("std::os", "the operating system"),
    ("Instant", "the clock"),
    ("SystemTime", "the clock"),
    ("libc", "the C library"),
    ("println!", "standard output"),
];

/// What writes to a stream, which only the module that escapes may do.
const WRITES: [&str; 12] = [
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "stdout()",
    "stderr()",
    "io::stdout",
    "io::stderr",
    "Term",
    "ProgressBar",
    "ProgressDrawTarget",
];

/// Where `unsafe` may stand. The tests of `cli` set up what a program may inherit, and so do the lab's
/// programs; the tool that makes a PU slow has its system calls in one file, and so has the child in which hwloc runs.
const UNSAFE: [&str; 11] = [
    "crates/linux/",
    "crates/observe/",
    "crates/act/",
    "crates/machine/src/read/child.rs",
    "crates/omp/",
    "crates/spm-rt/",
    "workloads/smt-bench/",
    "tracer/",
    "crates/cli/tests/",
    "lab/guest/src/programs/",
    "lab/asymmetric/src/sys.rs",
];

/// Calls that open, make, rename or remove files by path.
const BY_PATH: [&str; 11] = [
    "fs::read",
    "fs::write",
    "fs::rename",
    "fs::copy",
    "fs::create_dir",
    "fs::remove_",
    "File::open",
    "File::create",
    "File::options",
    "OpenOptions",
    "DirBuilder",
];

/// Where they may stand, and why.
const READERS: [(&str, &str); 6] = [
    ("crates/files/", "is the reader and the writer"),
    (
        "crates/linux/src/handle.rs",
        "opens the folder of a process in /proc once, and all below it by descriptor",
    ),
    ("crates/omp/", "runs inside of programs, with their rights"),
    (
        "crates/observe/src/doctor/",
        "reads files of /proc and /sys below a root, to say why others cannot be read",
    ),
    ("crates/observe/src/sample/", "reads code under a budget of its own"),
    ("crates/observe/src/emulate/", "starts QEMU in a folder of its own"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below `dir` whose name ends in `ending`, without build outputs.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return found };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // `.git` is a file in a work tree that was added.
        let built = ["target", ".git", ".cache", "out", "corpus", "artifacts", "venv"];
        if built.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The crates' source files, with the path from the root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let all = ["crates", "workloads", "tracer", "benches", "lab", "fuzz"].map(|dir| root.join(dir));
    let rust = all.iter().flat_map(|dir| files(dir, ".rs"));
    rust.map(|path| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    })
    .collect()
}

/// The lines of code before the tests, with their numbers: comments are left out.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = ["mod tests {", "pub(crate) mod tests {"];
    // Single items for tests, which may stand anywhere, end nothing.
    let next = text.lines().map(str::trim).skip(1).chain([""]);
    let lines = text.lines().map(str::trim).zip(next).enumerate();
    lines
        .take_while(move |(_, (line, next))| *line != "#[cfg(test)]" || !tests.contains(next))
        .filter_map(|(index, (line, _))| {
            let line = line.split("//").next().unwrap_or_default();
            (!line.is_empty()).then_some((index + 1, line))
        })
}

/// Whether `word` stands in `line` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let out = Command::new(cargo).args(args).arg("--offline").current_dir(root()).output().unwrap();
    assert!(out.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn pure_crates_depend_on_no_libc() {
    let mut wrong = Vec::new();
    for name in PURE {
        let package = format!("colocate-{name}");
        let tree = cargo(&["tree", "-p", &package, "-e", "normal", "--prefix", "none"]);
        assert!(tree.starts_with(&package), "cargo tree said: {tree}");
        let outside = [
            "libc",
            "rustix",
            "nix",
            "hwlocality",
            "colocate-linux",
            "colocate-observe",
            "colocate-act",
            "colocate-host",
        ];
        for line in tree.lines() {
            let dependency = line.split(' ').next().unwrap_or_default();
            if outside.contains(&dependency) {
                wrong.push(format!("{package} depends on {line}"));
            }
        }
    }
    assert_none(&wrong);
}

/// `colocate` is what people install: the simulator, the studies and traces are of `colocate-study`.
#[test]
fn the_tool_links_nothing_of_the_laboratory() {
    let tree = cargo(&["tree", "-p", "colocate", "-e", "normal", "--prefix", "none"]);
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let laboratory = ["colocate-sim", "colocate-study", "colocate-study-cli", "colocate-trace"];
    let linked: Vec<&str> = names.filter(|name| laboratory.contains(name)).collect();
    assert_eq!(linked, [""; 0]);
    let study = cargo(&["tree", "-p", "colocate-study-cli", "-e", "normal", "--prefix", "none"]);
    assert!(study.lines().any(|line| line.starts_with("colocate-sim ")), "{study}");
}

/// Evidence is below those who watch and those who decide; these know nothing of each other, and neither does who acts.
#[test]
fn dependencies_go_down_the_flow() {
    let above: [(&str, &[&str]); 6] = [
        ("linux", &["evidence", "observe", "model", "policy", "act", "engine", "host"]),
        // Observations hold the mixes and stacks of `model`, which are values.
        ("evidence", &["linux", "observe", "policy", "act", "engine", "host"]),
        ("observe", &["policy", "act", "engine", "host"]),
        ("policy", &["observe", "act", "engine", "host"]),
        ("act", &["observe", "model", "policy", "engine", "host"]),
        ("engine", &["observe", "act", "host"]),
    ];
    let mut wrong = Vec::new();
    for (name, above) in above {
        let package = format!("colocate-{name}");
        let tree = cargo(&["tree", "-p", &package, "-e", "normal", "--prefix", "none"]);
        let linked: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        let above = above.iter().map(|above| format!("colocate-{above}"));
        let found = above.filter(|above| linked.contains(&above.as_str()));
        wrong.extend(found.map(|above| format!("{package} depends on {above}")));
    }
    assert_none(&wrong);
}

#[test]
fn pure_crates_do_not_touch_the_outside() {
    let pure = |path: &str| {
        let edge = path.starts_with("crates/machine/src/read");
        !edge && PURE.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")))
    };
    let mut wrong = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| pure(path)) {
        for (number, line) in code(text) {
            for (word, what) in OUTSIDE.iter().filter(|(word, _)| has_word(line, word)) {
                wrong.push(format!("{path}:{number}: {word} is {what}: {line}"));
            }
        }
    }
    assert_none(&wrong);
}

/// Text that leaves colocate is escaped in one place; the libraries print nothing, which clippy checks.
#[test]
fn only_one_module_writes_to_streams() {
    let is_it = |path: &str| path.starts_with("crates/cli/src/output");
    let inside = |path: &str| {
        ["crates/cli/src/", "crates/study-cli/src/"].iter().any(|it| path.starts_with(it))
    };
    let mut wrong = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| inside(path) && !is_it(path)) {
        for (number, line) in code(text) {
            for word in WRITES.iter().filter(|word| has_word(line, word)) {
                wrong.push(format!(
                    "{path}:{number}: {word} is for crates/cli/src/output.rs: {line}"
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn unsafe_is_only_where_it_may_be() {
    // Spelt so that this line is none of those it looks for.
    let word = ["un", "safe"].concat();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if UNSAFE.iter().any(|dir| path.starts_with(dir)) {
            continue;
        }
        for (number, line) in code(&text).filter(|(_, line)| has_word(line, &word)) {
            wrong.push(format!("{path}:{number}: {line}"));
        }
    }
    assert_none(&wrong);
}

/// A path that is checked and then used can lead to something else by then; a file can be a FIFO, a device or too large.
#[test]
fn files_go_through_one_reader_and_one_writer() {
    let product = |path: &str| {
        let is_test = path.ends_with("/tests.rs")
            || path.contains("/tests/")
            || path.ends_with("/testing.rs")
            || path.starts_with("crates/testing/");
        path.starts_with("crates/") && path.contains("/src/") && !is_test
    };
    let mut wrong = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| product(path)) {
        if READERS.iter().any(|(dir, _)| path.starts_with(dir)) {
            continue;
        }
        for (number, line) in code(text) {
            if BY_PATH.iter().any(|call| line.contains(call)) {
                wrong.push(format!("{path}:{number}: expected colocate_files, found {line}"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn only_the_tracer_is_gpl_and_nothing_depends_on_it() {
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let expected = match name {
            "colocate-tracer" => "GPL-2.0-or-later",
            _ => "MIT OR Apache-2.0",
        };
        if package["license"].as_str() != Some(expected) {
            wrong.push(format!("{name}: expected {expected}, found {}", package["license"]));
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["name"] == "colocate-tracer" {
                wrong.push(format!("{name} depends on colocate-tracer"));
            }
        }
    }
    assert_none(&wrong);
}

/// Most methods of a type whose methods are in several files.
const MOST_METHODS: usize = 20;

/// Name that `text` begins with.
fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// Module of a source file, with the text before its tests: `a/b` for `a/b.rs` and `a/b/mod.rs`.
fn module((path, text): &(String, String)) -> Option<(&str, &str)> {
    let is_product = path.contains("/src/") && !path.ends_with("/tests.rs");
    let path = path.strip_suffix(".rs").filter(|_| is_product)?;
    let ends = ["/mod", "/lib", "/main"];
    let path = ends.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
    Some((path, text.split("#[cfg(test)]\nmod tests {").next()?))
}

/// Number of folders that two paths have in common.
fn common(a: &str, b: &str) -> usize {
    a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count()
}

/// A large type has parts, each with its state.
#[test]
fn no_large_type_is_spread_over_files() {
    let sources = sources();
    let mut types: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (path, text) in sources.iter().filter_map(module) {
        for line in text.lines().filter(|line| line.starts_with(['p', 's', 'e'])) {
            let words = ["struct ", "enum "].iter().find_map(|word| line.split_once(word));
            types.extend(words.map(|(_, rest)| (first_name(rest), path)));
        }
    }
    let mut methods: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for (path, text) in sources.iter().filter_map(module) {
        for block in text.split("\nimpl").skip(1) {
            let Some((head, body)) = block.split_once('{') else { continue };
            let generic = head.starts_with('<');
            let name =
                if generic { head.split_once("> ").map_or("", |it| it.1) } else { &head[1..] };
            let name = first_name(name);
            // Of types of one name, the nearest in the crate.
            let of_name = types.iter().filter(|(it, at)| *it == name && common(at, path) > 1);
            let Some((_, at)) = of_name.max_by_key(|(_, at)| common(at, path)) else { continue };
            let body = body.split("\n}").next().unwrap_or_default().lines();
            let is_method = |line: &&str| {
                line.strip_prefix("    ").is_some_and(|it| {
                    it.starts_with(['f', 'p', 'c', 'u', 'a']) && has_word(it, "fn")
                })
            };
            let count = body.filter(is_method).count();
            if !head.contains(" for ") {
                *methods.entry((at, name)).or_default().entry(path).or_default() += count;
            }
        }
    }
    assert!(methods.len() > 100, "found few types: {methods:?}");
    let mut wrong = Vec::new();
    for ((at, name), files) in &methods {
        let count: usize = files.values().sum();
        if files.len() > 1 && count > MOST_METHODS {
            wrong.push(format!("{at}: {name} has {count} methods: {files:?}"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_source_file_says_what_it_is() {
    let dumb = sources().into_iter().filter(|(_, text)| !text.starts_with("//! "));
    assert_none(
        &dumb.map(|(path, _)| format!("{path}: expected `//! ` first")).collect::<Vec<_>>(),
    );
}

/// `-> test `name`` in a file's head names a test of the same crate.
#[test]
fn every_property_has_its_test() {
    let sources = sources();
    let of_crate = |path: &str| {
        let end = ["/src/", "/tests/", "/benches/"].iter().filter_map(|part| path.find(part)).min();
        path[..end.unwrap_or(path.len())].to_owned()
    };
    let mut wrong = Vec::new();
    let mut properties = 0;
    for (path, text) in &sources {
        for line in text.lines().filter(|line| line.starts_with("//!")) {
            let Some((_, promise)) = line.split_once("-> test `") else { continue };
            let name = promise.split('`').next().unwrap_or_default();
            let test = format!("fn {name}(");
            properties += 1;
            let mut same = sources.iter().filter(|(other, _)| of_crate(other) == of_crate(path));
            if !same.any(|(_, text)| text.contains(&test)) {
                wrong.push(format!("{path}: no test `{name}`: {line}"));
            }
        }
    }
    assert!(properties > 0, "no file promises anything");
    assert_none(&wrong);
}

#[test]
fn every_policy_has_the_five_heads() {
    let mut wrong = Vec::new();
    let mut policies = 0;
    for (path, text) in sources() {
        if !path.starts_with("crates/policy/src/") || !text.contains("//! # Problem") {
            continue;
        }
        policies += 1;
        for head in ["Problem", "Approach", "Terms", "Algorithm", "Properties"] {
            if !text.lines().any(|line| line == format!("//! # {head}")) {
                wrong.push(format!("{path}: expected the head `# {head}`"));
            }
        }
    }
    assert!(policies >= 7, "expected the seven policies, found {policies} files with a head");
    assert_none(&wrong);
}

#[test]
fn the_changelog_has_a_place_for_what_comes() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(text.lines().any(|line| line == "## Unreleased"));
}

#[test]
fn the_oldest_rust_is_said_alike() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let script = fs::read_to_string(root().join("scripts/with-rust")).unwrap();
    let minor = script.lines().find_map(|line| line.strip_prefix("RUST_MINOR=")).unwrap();
    assert!(manifest.contains(&format!("rust-version = \"1.{minor}\"")));
}

#[test]
fn every_schema_is_one() {
    let schemas = files(&root().join("docs/schemas"), ".json");
    assert!(!schemas.is_empty(), "no schema in docs/schemas");
    for path in schemas {
        let text = fs::read_to_string(&path).unwrap();
        let schema: serde_json::Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        jsonschema::meta::validate(&schema)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A path of the machine that something was written on has no place in the tree.
#[test]
fn no_path_of_a_private_machine() {
    let private = ["/wo", "/ho", "/ro"].into_iter().zip(["rk/", "me/", "ot/"]);
    let private: Vec<String> = private.map(|(a, b)| format!("{a}{b}")).collect();
    let root = root();
    let mut wrong = Vec::new();
    for path in files(&root, "") {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        for (number, line) in text.lines().enumerate() {
            // A user who does not exist, for examples.
            let line = line.replace(concat!("/ho", "me/u/"), "");
            let starts = |(at, _): (usize, &str)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_.-}".contains(c))
            };
            if private.iter().any(|path| line.match_indices(path.as_str()).any(starts)) {
                wrong.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert_none(&wrong);
}
