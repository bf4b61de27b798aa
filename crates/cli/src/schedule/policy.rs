//! The files that policies read.

use crate::input;
use anyhow::{anyhow, bail};
use colocate_files::MaxSize;
use colocate_model::CpiModel;
use colocate_policy::PolicySpec;
use colocate_policy::table::Prior;
use std::path::Path;

/// Largest file of coefficients. Chosen.
const LIMIT: MaxSize = MaxSize::mib(1);

/// CPI coefficients from the policy's file, if the policy needs them.
pub fn cpi_model_of(policy: &PolicySpec) -> anyhow::Result<Option<CpiModel>> {
    match policy.file() {
        Some(path) => cpi_model(path).map(Some),
        None if policy.has_prior(Prior::CpiModel) => bail!(
            "expected {0}:model=FILE with a file of `colocate-study train cpi-model`, found {0}",
            policy.name()
        ),
        None => Ok(None),
    }
}

/// CPI coefficients from a file.
pub fn cpi_model(path: &Path) -> anyhow::Result<CpiModel> {
    let text = input::text(path, LIMIT)?;
    CpiModel::from_json(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_with_a_line() {
        let none = cpi_model_of(&PolicySpec::named("random:seed=4"));
        assert_eq!(none.unwrap(), None);
        let missing = cpi_model_of(&PolicySpec::named("symbiotic")).unwrap_err().to_string();
        assert_eq!(
            missing,
            "expected symbiotic:model=FILE with a file of `colocate-study train cpi-model`, found symbiotic"
        );
        let gone = cpi_model_of(&PolicySpec::named("symbiotic:model=/none")).unwrap_err();
        assert_eq!(gone.to_string(), "cannot read /none");
        let endless = cpi_model(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(
            endless.to_string(),
            "cannot read /dev/zero: expected a plain file or a pipe, found a device"
        );
    }
}
