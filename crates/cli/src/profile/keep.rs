//! Keeping a profile safe: the output file is tried before the program runs; if writing fails
//! afterwards all the same, the profile goes to another place.

use crate::output;
use std::path::Path;

/// Checks that a profile can be written to `path`, before the program runs.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    Ok(colocate_files::try_write(path)?)
}

/// Writes `text` to `path`; if that fails, to the folder for temporary files, else to standard
/// output.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let Err(error) = output::write_private(Some(path), text) else { return Ok(()) };
    let name = format!("colocate-profile-{}.json", std::process::id());
    let instead = std::env::temp_dir().join(name);
    if output::write_private(Some(&instead), text).is_ok() {
        return Err(error.context(format!("the profile is in {} instead", instead.display())));
    }
    output::write(None, text)?;
    Err(error.context("the profile went to standard output instead"))
}
