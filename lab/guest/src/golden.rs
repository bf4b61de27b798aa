//! Golden files: texts expected to the letter.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::Path;

const FOLDER: &str = "/lab/golden";

/// Checks that `text` equals the golden file `name`.
///
/// A different text is printed in the form that `LAB_UPDATE=1 cargo lab case` writes to the file.
///
/// # Errors
/// If the texts differ, with the first differing line.
pub fn check(name: &str, text: &str) -> anyhow::Result<()> {
    let expected = fs::read_to_string(Path::new(FOLDER).join(name)).unwrap_or_default();
    if expected == text {
        return Ok(());
    }
    text.lines().for_each(|line| println!("golden {name}| {line}"));
    let lines = expected.lines().map(Some).chain(std::iter::repeat(None));
    let differs =
        // The final None makes a missing or surplus line a difference.
        text.lines().map(Some).chain([None]).zip(lines).find(|(found, line)| found != line);
    let (found, line) = differs.context("texts that differ in their last line end")?;
    anyhow::bail!(
        "lab/guest/golden/{name}: expected {line:?}, found {found:?}; LAB_UPDATE=1 writes it anew"
    )
}

/// Checks that a folder has no golden files other than `names`.
///
/// # Errors
/// If there is a golden file that no case checks.
pub fn are_all(folder: &str, names: &[&str]) -> anyhow::Result<()> {
    // A kernel may have no golden files.
    let Ok(entries) = fs::read_dir(Path::new(FOLDER).join(folder)) else { return Ok(()) };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(
            names.contains(&name.as_str()),
            "lab/guest/golden/{folder}/{name}: nothing expects it"
        );
    }
    Ok(())
}
