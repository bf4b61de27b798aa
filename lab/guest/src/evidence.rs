//! Readers of kernel files, independent of colocate's code, and runs of `colocate`.

use anyhow::Context as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Trimmed text of a file.
///
/// # Errors
/// If the file cannot be read.
pub fn text(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.trim().into())
}

/// Numbers of a list in the kernel's format, e.g. `0-2,5`.
///
/// # Errors
/// If `text` is no such list.
pub fn list(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(number_in(first, text)?..=number_in(last, text)?);
    }
    Ok(numbers)
}

/// PUs that are online, by the kernel's numbers.
///
/// # Errors
/// If `/sys` cannot be read.
pub fn online() -> anyhow::Result<Vec<u32>> {
    list(&text("/sys/devices/system/cpu/online")?)
}

fn number_in(word: &str, list: &str) -> anyhow::Result<u32> {
    word.parse().with_context(|| format!("expected a list such as 0-2,5, found {list}"))
}

/// Time limit of a condition, enough in a working guest on a busy host.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls `is_so` every ms until it is true; `what` names the condition in the error.
///
/// # Errors
/// If the condition is still false after [`LIMIT`] of guest time, or a poll fails.
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

/// Runs `colocate` with arguments to its end.
///
/// # Errors
/// If `colocate` cannot be started.
pub fn colocate(words: &[&str]) -> anyhow::Result<Output> {
    Command::new("colocate").args(words).output().context("cannot start colocate")
}

/// Runs `colocate-study` with arguments to its end.
///
/// # Errors
/// If `colocate-study` cannot be started.
pub fn study(words: &[&str]) -> anyhow::Result<Output> {
    Command::new("colocate-study").args(words).output().context("cannot start colocate-study")
}

/// Standard output of `colocate` with arguments.
///
/// # Errors
/// If `colocate` fails.
pub fn printed(words: &[&str]) -> anyhow::Result<String> {
    let output = colocate(words)?;
    let out = String::from_utf8(output.stdout)?;
    let err = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "colocate {}: {}: {err}",
        words.join(" "),
        output.status
    );
    Ok(out)
}
