//! What the kernel itself says, read without any of colocate's code.

use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A file's text without the white space around it.
///
/// # Errors
/// If it cannot be read.
pub fn text(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.trim().into())
}

/// The numbers of a kernel's list, e.g. `0-2,5`.
///
/// # Errors
/// If it is none.
pub fn list(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let wrong = || format!("expected a list such as 0-2,5, found {text}");
        let range =
            first.parse::<u32>().with_context(wrong)?..=last.parse::<u32>().with_context(wrong)?;
        numbers.extend(range);
    }
    Ok(numbers)
}

/// Longer than anything takes in a guest that works, also on a busy host.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
///
/// # Errors
/// If it is not within a minute of the guest's time, or looking fails.
pub fn eventually(
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !is_so()? {
        anyhow::ensure!(begin.elapsed() < LIMIT, "waited {} s for {what}", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Runs `colocate` with these words to its end.
///
/// # Errors
/// If it cannot be started.
pub fn colocate(words: &[&str]) -> anyhow::Result<Output> {
    Command::new("colocate").args(words).output().context("cannot start colocate")
}

/// Runs `colocate-study` with these words to its end.
///
/// # Errors
/// If it cannot be started.
pub fn study(words: &[&str]) -> anyhow::Result<Output> {
    Command::new("colocate-study").args(words).output().context("cannot start colocate-study")
}

/// What `colocate` prints on standard output with these words.
///
/// # Errors
/// If it fails.
pub fn printed(words: &[&str]) -> anyhow::Result<String> {
    let output = colocate(words)?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(
        output.status.success(),
        "colocate {}: {}: {err}",
        words.join(" "),
        output.status
    );
    Ok(out)
}
