//! The book in `docs/`: links lead somewhere, every page is listed, and the guide stays short.

use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The root of the sources.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Markdown files below a folder, without build outputs and hidden folders.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let built = ["target", "out", "artifacts", "venv"];
            if !name.starts_with('.') && !built.contains(&name.as_str()) && !path.is_symlink() {
                pages(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The lines of a page that are not in code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The anchors of a page; the second of two equal headings has `-1` behind.
fn anchors(text: &str) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let name = anchor(line.trim_start_matches('#'));
        let earlier = times.entry(name.clone()).or_default();
        found.push(if *earlier == 0 { name } else { format!("{name}-{earlier}") });
        *earlier += 1;
    }
    found
}

/// The targets of a page's links, without those in inline code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        let targets = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(targets.map(str::to_owned));
    }
    found
}

/// A path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    whole
}

/// Reasons why a link of a page leads nowhere.
fn broken(root: &Path, page: &Path, link: &str) -> Option<String> {
    let (path, name) = link.split_once('#').unwrap_or((link, ""));
    let target =
        if path.is_empty() { page.to_owned() } else { resolved(&page.parent()?.join(path)) };
    let book = root.join("docs");
    if !target.exists() {
        return Some("no such file".to_owned());
    }
    if page.starts_with(&book) && !target.starts_with(&book) {
        return Some("outside of the book".to_owned());
    }
    let has_anchor = || anchors(&fs::read_to_string(&target).unwrap()).iter().any(|it| it == name);
    (!name.is_empty() && !has_anchor()).then(|| "no such heading".to_owned())
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    let mut all = Vec::new();
    pages(&root, &mut all);
    assert!(all.len() > 40, "{all:?}");
    let mut wrong = Vec::new();
    for page in &all {
        for link in links(&fs::read_to_string(page).unwrap()) {
            if link.contains("://") {
                continue;
            }
            if let Some(why) = broken(&root, page, &link) {
                wrong.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_summary_lists_every_page_once() {
    let book = root().join("docs");
    let mut found = Vec::new();
    pages(&book, &mut found);
    found.retain(|page| !page.ends_with("SUMMARY.md"));
    found.sort();
    let summary = fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<PathBuf> = links(&summary).iter().map(|link| book.join(link)).collect();
    listed.sort();
    assert_eq!(listed, found);
}

#[test]
fn the_guide_is_short() {
    let mut guide = Vec::new();
    pages(&root().join("docs/guide"), &mut guide);
    assert!(guide.len() <= 12, "{guide:?}");
    for page in guide {
        let lines = fs::read_to_string(&page).unwrap().lines().count();
        assert!(lines <= 80, "{}: {lines} lines", page.display());
    }
}
