//! Which scheduler, with the files that it reads.

use crate::input;
use anyhow::{anyhow, bail};
use colocate_files::MaxSize;
use colocate_model::CpiModel;
use colocate_policy::schedule::{SchedulerError, SchedulerKind};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most bytes of a file of coefficients. Chosen: thousands of modes are less.
const LIMIT: MaxSize = MaxSize::mib(1);

/// A scheduler as the command line names it: its settings, and among them `model=FILE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The scheduler without its file.
    pub kind: SchedulerKind,
    /// Coefficients of the machine, for those that need them.
    pub model: Option<PathBuf>,
}

impl FromStr for Policy {
    type Err = SchedulerError;

    fn from_str(text: &str) -> Result<Self, SchedulerError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let model = settings.split(':').find_map(|one| one.strip_prefix("model="));
        let needs_it = name.parse().is_ok_and(SchedulerKind::needs_cpi_model);
        let Some(model) = model.filter(|path| needs_it && !path.is_empty()) else {
            return text.parse().map(|kind| Self { kind, model: None });
        };
        let others = settings.split(':').filter(|one| !one.starts_with("model="));
        let plain: Vec<&str> = std::iter::once(name).chain(others).collect();
        let kind = plain.join(":").parse()?;
        Ok(Self { kind, model: Some(PathBuf::from(model)) })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.model.as_ref().map_or(Ok(()), |model| write!(f, ":model={}", model.display()))
    }
}

impl Policy {
    /// The coefficients that it needs; `None` if it needs none.
    ///
    /// # Errors
    /// If it needs them and no file is named, or the file cannot be read or is none.
    pub fn cpi_model(&self) -> anyhow::Result<Option<CpiModel>> {
        match &self.model {
            Some(path) => cpi_model(path).map(Some),
            None if self.kind.needs_cpi_model() => bail!(
                "expected {0}:model=FILE with a file of `colocate train cpi-model`, found {0}",
                self.kind.name()
            ),
            None => Ok(None),
        }
    }
}

/// The coefficients in a file.
///
/// # Errors
/// If it cannot be read, is too large or is none.
pub fn cpi_model(path: &Path) -> anyhow::Result<CpiModel> {
    let text = input::text(path, LIMIT)?;
    CpiModel::from_json(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_among_the_settings() {
        let policy: Policy = "symbiotic:cost=antt:model=a/b.json:gain=0.02".parse().unwrap();
        assert_eq!(policy.model.as_deref(), Some(Path::new("a/b.json")));
        assert_eq!(policy.kind.to_string(), "symbiotic:cost=antt:gain=0.02");
        assert_eq!(policy.to_string(), "symbiotic:cost=antt:gain=0.02:model=a/b.json");
        let plain: Policy = "random:seed=4".parse().unwrap();
        assert_eq!(plain, Policy { kind: SchedulerKind::Random { seed: 4 }, model: None });
        assert_eq!(plain.cpi_model().unwrap(), None);
    }

    #[test]
    fn refused_with_a_line() {
        let refusal = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
        assert_eq!(refusal("bas:model=x"), "expected bas with no setting, found \"model=x\"");
        assert!(refusal("symbiotic:model=").starts_with("expected symbiotic with "));
        let missing = "symbiotic".parse::<Policy>().unwrap().cpi_model().unwrap_err().to_string();
        assert_eq!(
            missing,
            "expected symbiotic:model=FILE with a file of `colocate train cpi-model`, found symbiotic"
        );
        let gone = "symbiotic:model=/none".parse::<Policy>().unwrap().cpi_model().unwrap_err();
        assert_eq!(gone.to_string(), "cannot read /none");
        let endless = cpi_model(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(
            endless.to_string(),
            "cannot read /dev/zero: expected a plain file or a pipe, found a device"
        );
    }
}
