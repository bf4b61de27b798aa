//! Imports among the files of a crate form no circle: what a file needs can be read before it.
//!
//! A file imports another one by `use crate::…`, `use super::…` or `use self::…`; what a file imports of its own
//! children is not counted, nor are imports of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module by its path within the crate.
type Module = Vec<String>;

/// The modules of a crate that are files, each with its text before its tests.
fn modules(folder: &Path, at: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let inner: Module = at.iter().cloned().chain([stem.clone()]).collect();
        if path.is_dir() {
            modules(&path, &inner, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && stem != "tests" {
            let text = fs::read_to_string(&path).unwrap();
            let tests = ["#[cfg(test)]\nmod tests", "#[cfg(test)]\npub(crate) mod tests"];
            let end = tests.iter().filter_map(|tests| text.find(tests)).min();
            let module =
                if ["mod", "lib", "main"].contains(&stem.as_str()) { at.to_vec() } else { inner };
            found.insert(module, text[..end.unwrap_or(text.len())].to_owned());
        }
    }
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(letter),
        }
    }
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| expanded(&format!("{before}{part}"))).collect()
}

/// What the statements `use` of a text import, without blanks.
fn imports(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: Vec<&str> = lines.collect();
    let code = code.join("\n");
    let statements = code.split(';').filter_map(|part| {
        let begin =
            part.rfind("use crate::").or(part.rfind("use super::")).or(part.rfind("use self::"))?;
        Some(part[begin + "use ".len()..].split_whitespace().collect::<String>())
    });
    statements.flat_map(|tree| expanded(&tree)).collect()
}

/// The module that `import` of module `here` is in: the longest path that is a file.
fn target(import: &str, here: &[String], all: &BTreeMap<Module, String>) -> Option<Module> {
    let mut path: Module = Vec::new();
    for (place, part) in import.split("::").enumerate() {
        match part {
            "crate" => path.clear(),
            "self" if place == 0 => path = here.to_vec(),
            "super" if place == 0 => path = here[..here.len().checked_sub(1)?].to_vec(),
            "super" => drop(path.pop()),
            _ => path.push(part.to_owned()),
        }
    }
    (0..=path.len()).rev().map(|length| path[..length].to_vec()).find(|path| all.contains_key(path))
}

/// The files that are left when those go, again and again, that import none that is left: circles and their importers.
fn circles(folder: &Path) -> Vec<String> {
    let mut all = BTreeMap::new();
    modules(folder, &[], &mut all);
    let mut left: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (here, text) in &all {
        let targets = imports(text).into_iter().filter_map(|import| target(&import, here, &all));
        let others = targets.filter(|module| module != here && !module.is_empty());
        left.insert(here.clone(), others.collect());
    }
    loop {
        let is_read = |module: &Module| !left.contains_key(module);
        let next = left.iter().find(|(_, needs)| needs.iter().all(is_read));
        let Some(module) = next.map(|(module, _)| module.clone()) else { break };
        left.remove(&module);
    }
    left.keys().map(|module| module.join("::")).collect()
}

#[test]
fn imports_form_no_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if folder.is_dir() {
            let found = circles(&folder);
            wrong.extend(
                (!found.is_empty()).then(|| format!("{}: {}", folder.display(), found.join(", "))),
            );
        }
    }
    assert!(wrong.is_empty(), "files that import each other, or such files:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let crate_of = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(crate_of.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c;");
    write("a.rs", "use crate::b::{B, self};\npub struct A;");
    write("b.rs", "use super::c;\nuse std::fmt;");
    write("c.rs", "// use crate::a::A;\n#[cfg(test)]\nmod tests { use crate::a::A; }");
    assert!(circles(crate_of.path()).is_empty());
    write("c.rs", "use crate::{\n    a::A,\n};");
    assert_eq!(circles(crate_of.path()), ["a", "b", "c"]);
}
