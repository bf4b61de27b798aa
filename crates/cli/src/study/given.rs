//! What every study is given: a machine that says how fast it is, and a name for all that its figures depend on.

use anyhow::Context;
use colocate_machine::{Machine, Performance, read};
use sha2::{Digest, Sha256};

/// The machine that `spec` names, and how fast it is.
///
/// # Errors
/// If it cannot be read, or nobody has described how fast it is.
pub(super) fn machine(spec: &str) -> anyhow::Result<(Machine, Performance)> {
    let seen = read::load(spec)?;
    let performance = seen.performance.with_context(|| {
        format!(
            "expected a machine of which it is described how fast it is (docs/machines.md), found {spec}"
        )
    })?;
    Ok((seen.machine, performance))
}

/// A digest of all that the figures depend on, but for the program.
pub(super) fn digest(all: &str) -> String {
    Sha256::digest(all.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
