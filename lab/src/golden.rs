//! Golden files: texts that cases expect to the letter, in `lab/guest/golden`.
//!
//! A guest has the files under `/lab/golden`. A case that finds another text prints each of its
//! lines after `golden NAME| `; with `LAB_UPDATE=1` these lines become the file.

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest/golden");

/// Paths below the folder, and contents, of all golden files.
///
/// # Errors
/// If a file cannot be read.
pub fn all() -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(FOLDER)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let content = std::fs::read(&path).with_context(|| path.display().to_string())?;
            found.push((path.strip_prefix(FOLDER)?.to_path_buf(), content));
        }
    }
    Ok(found)
}

/// True if golden files are to be replaced by the guest's output (`LAB_UPDATE=1`).
#[must_use]
pub fn updating() -> bool {
    std::env::var_os("LAB_UPDATE").is_some_and(|value| value == "1")
}

/// Writes the golden files whose lines are in `printed`, and returns their names.
///
/// # Errors
/// If a file cannot be written.
pub fn update(printed: &[u8]) -> anyhow::Result<Vec<String>> {
    let files = files(&String::from_utf8_lossy(printed));
    for (name, text) in &files {
        let path = Path::new(FOLDER).join(name);
        std::fs::create_dir_all(path.parent().context("a golden file without a folder")?)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(files.into_keys().collect())
}

/// Texts of golden files in the output `printed`, by file name.
fn files(printed: &str) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("golden ")) {
        let Some((name, line)) = line.split_once("| ") else { continue };
        let text = files.entry(name.to_owned()).or_default();
        text.push_str(line);
        text.push('\n');
    }
    files
}

#[cfg(test)]
mod tests {
    use super::files;

    #[test]
    fn what_a_case_prints_becomes_the_file() {
        let printed = "case: ok\ngolden a/b.txt| one\ngolden c.txt| \ngolden a/b.txt|   two | 2\n";
        let found = files(printed);
        let text = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(found.len(), 2);
        assert_eq!(text("a/b.txt"), Some("one\n  two | 2\n"));
        assert_eq!(text("c.txt"), Some("\n"));
    }
}
