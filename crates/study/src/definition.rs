//! Built-in studies of all kinds, and what their reports have in common.

use crate::replication::{self, definition, report};
use crate::{contention, patterns, piccoli};
use serde::Serialize;

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
            "communication" => Self::Communication(patterns::PatternDefinition::built_in()?),
            "contention" => Self::Contention(contention::ContentionDefinition::built_in()?),
            "piccoli" => Self::Pages(piccoli::PiccoliDefinition::built_in()?),
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

/// A report with its printed forms; its JSON is that of [`Serialize`].
pub trait Printed: Serialize {
    /// The report as tables.
    fn text(&self) -> String;

    /// The report as a picture.
    ///
    /// # Errors
    /// If the study has no picture, or the drawing library fails; the line gives the reason.
    fn svg(&self) -> Result<String, String>;
}

impl Printed for report::StudyReport {
    fn text(&self) -> String {
        replication::table::text(self)
    }

    fn svg(&self) -> Result<String, String> {
        replication::picture::svg(self)
    }
}

impl Printed for patterns::PatternReport {
    fn text(&self) -> String {
        patterns::text(self)
    }

    fn svg(&self) -> Result<String, String> {
        patterns::svg(self)
    }
}

impl Printed for contention::ContentionReport {
    fn text(&self) -> String {
        contention::table::text(self)
    }

    fn svg(&self) -> Result<String, String> {
        contention::table::svg(self)
    }
}

impl Printed for piccoli::PiccoliReport {
    fn text(&self) -> String {
        piccoli::table::text(self)
    }

    fn svg(&self) -> Result<String, String> {
        piccoli::table::svg(self)
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
