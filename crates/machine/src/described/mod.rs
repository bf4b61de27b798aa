//! Descriptions of machines in TOML, figure by figure.
//!
//! The compact form describes the structure of a machine; indices are derived:
//!
//! ```toml
//! version = 1
//! name = "two small sockets"
//! processor = { value = "Example 2000", source = "vendor's data sheet" }
//!
//! [shape]
//! packages = { value = 2, source = "measured with lstopo" }
//! cores-per-package = 4
//! pus-per-core = 2
//! nodes = 2
//!
//! [numbering]
//! pus = { value = "siblings-last", source = "/proc/cpuinfo" }
//!
//! [memory]
//! per-node = "16 GiB"
//! distances = [[10, 21], [21, 10]]
//!
//! [[cache]]
//! level = 3
//! kind = "unified"
//! size = "8 MiB"
//! cores = 4
//!
//! [[kind]]
//! name = "core"
//! max-frequency = "2.3 GHz"
//! ```
//!
//! Every figure may stand alone or carry its source. The exact form ([`crate::exact`]) is accepted
//! too.

use crate::exact::{self, Exact};
use crate::flaw::Flaw;
use crate::performance::Performance;

mod figure;
mod performance;
mod place;
mod shape;

/// Machines that come with colocate: name and description.
pub const MACHINES: [(&str, &str); 7] = [
    ("epyc-7301", include_str!("../../../../machines/epyc-7301.toml")),
    ("xeon-x3320", include_str!("../../../../machines/xeon-x3320.toml")),
    ("xeon-e5645", include_str!("../../../../machines/xeon-e5645.toml")),
    ("power8-10c", include_str!("../../../../machines/power8-10c.toml")),
    ("xeon-e5405", include_str!("../../../../machines/xeon-e5405.toml")),
    ("opteron-6282se", include_str!("../../../../machines/opteron-6282se.toml")),
    ("amp-4x12", include_str!("../../../../machines/amp-4x12.toml")),
];

/// A contradiction in a description.
struct Misfit {
    /// Key of the figure at fault; `None` if the machine as a whole contradicts itself.
    key: Option<String>,
    /// Expected and found content.
    reason: String,
}

impl From<Flaw> for Misfit {
    fn from(flaw: Flaw) -> Self {
        Self { key: None, reason: flaw.0 }
    }
}

/// Reads a description, compact or exact.
///
/// # Errors
/// [`Flaw`] with the line of the error or of the figure, or of the table that lacks it, from 1.
pub fn from_toml(text: &str) -> Result<Exact, Flaw> {
    let table: toml::Table = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    // Before the rest, since another version may have other keys.
    let version = table.get("version").and_then(toml::Value::as_integer);
    let version = version
        .ok_or_else(|| Flaw(format!("expected version = {}, found none", exact::VERSION)))?;
    // A negative version is none of this format.
    exact::check_version(u64::try_from(version).unwrap_or(u64::MAX))?;
    // Only the exact form has a table of this name.
    if table.contains_key("machine") {
        return Exact::from_value(table);
    }
    let described = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    compact(described).map_err(|Misfit { key, reason }| {
        Flaw(match key {
            Some(key) => format!("line {}: {key}: {reason}", place::line_of(text, &key)),
            None => reason,
        })
    })
}

fn compact(mut described: shape::Description) -> Result<Exact, Misfit> {
    let speeds = described.performance.take();
    let machine = described.parts()?.assemble()?;
    let performance = speeds.map(|speeds| speeds.performance(&machine)).transpose()?;
    Ok(Exact { performance, ..Exact::new(machine, None) })
}

/// Reads the speeds of a described machine; `None` if the description has none.
///
/// # Errors
/// As [`from_toml`].
pub fn performance(text: &str) -> Result<Option<Performance>, Flaw> {
    from_toml(text).map(|exact| exact.performance)
}

fn syntax(text: &str, error: &toml::de::Error) -> Flaw {
    let line = error.span().map_or(1, |span| place::line_at(text, span.start));
    Flaw(format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", ")))
}

/// Sources of the figures of a compact description: key and source, in the file's order of keys.
///
/// # Errors
/// [`Flaw`] if the text is not TOML.
pub fn sources(text: &str) -> Result<Vec<(String, String)>, Flaw> {
    let table: toml::Table = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    let mut found = Vec::new();
    collect_sources("", &toml::Value::Table(table), &mut found);
    Ok(found)
}

/// Key of the entry `name` of the table `key`.
fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.into() } else { format!("{key}.{name}") }
}

fn collect_sources(key: &str, value: &toml::Value, found: &mut Vec<(String, String)>) {
    match value {
        toml::Value::Table(table) => match table.get("source").and_then(toml::Value::as_str) {
            Some(source) => found.push((key.into(), source.into())),
            None => table.iter().for_each(|(name, value)| {
                collect_sources(&below(key, name), value, found);
            }),
        },
        toml::Value::Array(values) => values.iter().enumerate().for_each(|(index, value)| {
            collect_sources(&format!("{key}[{index}]"), value, found);
        }),
        _ => {}
    }
}

/// The error for a wrong figure.
fn misfit(
    key: impl Into<String>,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> Misfit {
    Misfit { key: Some(key.into()), reason: format!("expected {expected}, found {found}") }
}

#[cfg(test)]
mod tests;
