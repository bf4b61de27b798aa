//! Built-in studies of all kinds.

use crate::replication::definition;
use crate::{contention, files, patterns, piccoli};

/// Definition of a study, by the kind of its cells.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// Programs under policies.
    Policies(Box<definition::PolicyStudyDefinition>),
    /// Patterns of communication under mappings.
    Communication(patterns::PatternDefinition),
    /// Programs beside memory traffic.
    Contention(contention::ContentionDefinition),
    /// Benchmarks under modes of page placement.
    Pages(piccoli::PiccoliDefinition),
}

impl Definition {
    /// Reads a built-in study.
    ///
    /// # Errors
    /// As of [`crate::files::read`].
    pub fn built_in(name: &str) -> Result<Self, String> {
        Ok(match name {
            "communication" => Self::Communication(files::read(name)?),
            "contention" => Self::Contention(files::read(name)?),
            "piccoli" => Self::Pages(files::read(name)?),
            name => Self::Policies(Box::new(definition::PolicyStudyDefinition::built_in(name)?)),
        })
    }

    /// Default machine.
    #[must_use]
    pub fn machine(&self) -> &str {
        match self {
            Self::Policies(study) => &study.machine,
            Self::Communication(study) => &study.machine,
            Self::Contention(study) => &study.machine,
            Self::Pages(study) => &study.machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::STUDIES;

    #[test]
    fn every_built_in_study_is_read() {
        for (name, ..) in STUDIES {
            let own = match Definition::built_in(name).unwrap() {
                Definition::Policies(study) => study.name,
                Definition::Communication(study) => study.name,
                Definition::Contention(study) => study.name,
                Definition::Pages(study) => study.name,
            };
            assert_eq!(own, name);
        }
        assert!(Definition::built_in("best").is_err());
    }
}
