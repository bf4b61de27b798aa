//! Nothing that was seen is lost: the output file is tried before the program runs, and if it
//! fails afterwards all the same, the profile goes somewhere else.

use crate::output;
use anyhow::Context;
use std::fs::OpenOptions;
use std::path::Path;

/// Whether a profile can be written to `path`, tried before it is too late.
///
/// # Errors
/// If it cannot be, with the system's reason.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let existed = path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        // It shall not lie there empty if the program is killed.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Writes `text` to `path`; if that fails, to the folder for temporary files, else to standard
/// output.
///
/// # Errors
/// That it did not go to `path`, and where it is instead.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let Err(error) = output::write(Some(path), text) else { return Ok(()) };
    let name = format!("colocate-profile-{}.json", std::process::id());
    let instead = std::env::temp_dir().join(name);
    if output::write(Some(&instead), text).is_ok() {
        return Err(error.context(format!("the profile is in {} instead", instead.display())));
    }
    output::write(None, text)?;
    Err(error.context("the profile went to standard output instead"))
}
