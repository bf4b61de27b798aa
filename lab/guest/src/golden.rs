//! Texts that are expected to the letter.

use anyhow::{Context as _, ensure};
use std::fs;
use std::path::Path;

const FOLDER: &str = "/lab/golden";

/// `text` is that of the golden file `name`; if not, it is printed so that `LAB_UPDATE=1 cargo lab case`
/// can write it.
///
/// # Errors
/// If it is another; the first line that differs.
pub fn check(name: &str, text: &str) -> anyhow::Result<()> {
    let expected = fs::read_to_string(Path::new(FOLDER).join(name)).unwrap_or_default();
    if expected == text {
        return Ok(());
    }
    text.lines().for_each(|line| println!("golden {name}| {line}"));
    let lines = expected.lines().map(Some).chain(std::iter::repeat(None));
    let differs =
        text.lines().map(Some).chain([None]).zip(lines).find(|(found, line)| found != line);
    let (found, line) = differs.context("texts that differ in their last line end")?;
    anyhow::bail!(
        "lab/guest/golden/{name}: expected {line:?}, found {found:?}; LAB_UPDATE=1 writes it anew"
    )
}

/// The golden files in a folder are these and no others.
///
/// # Errors
/// If there is one that nothing checks.
pub fn are_all(folder: &str, names: &[&str]) -> anyhow::Result<()> {
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
