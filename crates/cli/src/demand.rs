//! Files of demand vectors, TOML or JSON.

use crate::input;
use colocate_model::Phase;
use colocate_model::phase::PhaseFile;
use std::path::Path;

/// Demand vectors from a file; errors contain the path.
pub fn phases(path: &Path) -> Result<Vec<Phase>, String> {
    phases_or_reason(path).map_err(|reason| format!("{}: {reason:#}", path.display()))
}

/// As [`phases`], with errors to be shown after the path.
pub fn phases_or_reason(path: &Path) -> anyhow::Result<Vec<Phase>> {
    Ok(phase_file(path)?.phases)
}

/// Reads a file of demand vectors; errors do not contain the path.
pub fn phase_file(path: &Path) -> anyhow::Result<PhaseFile> {
    let text = input::text_or_reason(path, input::limit(PhaseFile::MAX_BYTES))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    Ok(if is_json { PhaseFile::from_json(&text)? } else { PhaseFile::from_toml(&text)? })
}
