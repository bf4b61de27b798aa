//! Exact form of a machine as a file: all indices, nothing derived, with a version.
//!
//! `colocate topo --json` writes it; `--machine FILE.json` and `FILE.toml` read it back.
//! `docs/schemas/machine.json` is its schema.

use crate::calibrated::Calibration;
use crate::flaw::Flaw;
use crate::machine::Machine;
use crate::performance::Performance;
use crate::usable::Usable;
use serde::{Deserialize, Serialize};

/// Version of the machine format that this build reads and writes.
pub const VERSION: u32 = 1;

/// A machine with everything known about it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exact {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// The machine.
    pub machine: Machine,
    /// Usable PUs and limits; `None` if not requested.
    pub usable: Option<Usable>,
    /// Speeds of the parts; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// Measurements of `colocate calibrate`; `None` without a calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

impl Exact {
    /// A machine in the current version, without speeds and calibration.
    #[must_use]
    pub const fn new(machine: Machine, usable: Option<Usable>) -> Self {
        Self { version: VERSION, machine, usable, performance: None, calibration: None }
    }

    /// Formats as JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::printable::json(self)
    }

    /// Formats as TOML.
    ///
    /// # Errors
    /// [`Flaw`] if a number is beyond TOML's 63 bits.
    pub fn to_toml(&self) -> Result<String, Flaw> {
        crate::printable::toml(self).map_err(malformed)
    }

    /// Parses JSON.
    ///
    /// # Errors
    /// [`Flaw`], with line and column where the text is malformed.
    pub fn from_json(text: &str) -> Result<Self, Flaw> {
        /// The field common to all versions.
        #[derive(Deserialize)]
        struct MachineHeader {
            version: u64,
        }
        let head: MachineHeader = serde_json::from_str(text).map_err(malformed)?;
        // Before the rest, since another version may have other fields.
        check_version(head.version)?;
        let exact: Self = serde_json::from_str(text).map_err(malformed)?;
        exact.checked()
    }

    /// Converts a TOML table.
    pub(crate) fn from_value(value: toml::Table) -> Result<Self, Flaw> {
        value.try_into::<Self>().map_err(malformed)?.checked()
    }

    /// Checks machine, speeds, calibration and usable PUs against each other.
    fn checked(self) -> Result<Self, Flaw> {
        self.machine.check()?;
        let speeds = self.performance.as_ref().map_or(Ok(()), |speeds| speeds.check(&self.machine));
        speeds.map_err(|impossible| Flaw(impossible.to_string()))?;
        if let Some((expected, found)) = self.calibration.as_ref().and_then(Calibration::flaw) {
            return Err(Flaw(format!("calibration: expected {expected}, found {found}")));
        }
        let limit = self.machine.pus.len();
        let sane = self.usable.as_ref().is_none_or(|usable| {
            usable.pus.is_sorted_by(|a, b| a < b)
                && usable.pus.last().is_none_or(|last| last.idx() < limit)
        });
        if sane {
            return Ok(self);
        }
        Err(Flaw(format!("usable: expected PUs below {limit} in logical order, each once")))
    }
}

/// Rejects other versions.
pub(crate) fn check_version(found: u64) -> Result<(), Flaw> {
    if found == u64::from(VERSION) {
        return Ok(());
    }
    Err(Flaw(format!(
        "expected a machine of version {VERSION}, found version {found}; write it again with this colocate"
    )))
}

/// The error for a parser's message, joined into one line.
fn malformed(error: impl ToString) -> Flaw {
    let detail = error.to_string();
    let mut lines = detail.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let line = lines.fold(first.to_owned(), |text, line| text + ", " + line);
    Flaw(format!("expected a machine: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described;

    #[test]
    fn described_machines_travel_unchanged() {
        for (name, text) in described::MACHINES {
            let described = described::from_toml(text).expect(name);
            let wanted = Some("0-3,8".parse().expect("list"));
            let usable = Usable::within(&described.machine, wanted, None, None);
            let exact = Exact { usable: Some(usable), ..described };
            assert_eq!(Exact::from_json(&exact.to_json()), Ok(exact.clone()), "{name}");
            let toml = exact.to_toml().expect(name);
            assert_eq!(described::from_toml(&toml), Ok(exact), "{name}");
        }
    }

    #[test]
    fn wrong_machines_get_one_line() {
        let machine = described::from_toml(described::MACHINES[1].1).expect("described").machine;
        let good = Exact::new(machine, None);
        let error = |change: fn(&mut Exact)| {
            let mut bad = good.clone();
            change(&mut bad);
            Exact::from_json(&bad.to_json()).expect_err("flawed").to_string()
        };
        assert_eq!(
            error(|exact| exact.version = 7),
            "expected a machine of version 1, found version 7; write it again with this colocate"
        );
        assert_eq!(
            error(|exact| exact.machine.pus.clear()),
            "expected at least one online CPU, found none"
        );
        assert_eq!(
            error(|exact| exact.machine.cores[1].package.0 = 9),
            "core L#1: expected package below 1, found 9"
        );
        assert_eq!(
            error(|exact| {
                exact.usable = Some(Usable { pus: vec![crate::PuIdx(4)], ..Usable::default() });
            }),
            "usable: expected PUs below 4 in logical order, each once"
        );
        let beyond = error(|exact| exact.machine.pus[0].os.0 = u32::MAX);
        assert_eq!(beyond, "expected CPU numbers up to 65535, found cpu4294967295");
        let beyond = error(|exact| exact.machine.offline.push(crate::PuNr(65_536)));
        assert_eq!(beyond, "expected CPU numbers up to 65535, found cpu65536");
        let unknown = good.to_json().replace("\"offline\"", "\"ofline\"");
        let found = Exact::from_json(&unknown).expect_err("unknown key").to_string();
        assert!(found.starts_with("expected a machine: unknown field `ofline`"), "{found}");
        assert!(Exact::from_json("{").is_err() && Exact::from_json("[]").is_err());
    }

    #[test]
    fn impossible_speeds_get_one_line() {
        let good = described::from_toml(described::MACHINES[0].1).expect("described");
        let error = |change: fn(&mut Performance)| {
            let mut bad = good.clone();
            change(bad.performance.as_mut().expect("described"));
            let written = bad.to_toml().expect("floats fit into TOML");
            described::from_toml(&written).expect_err("impossible").to_string()
        };
        assert_eq!(
            error(|speeds| speeds.caches[0].latency.0 = -4.0),
            "performance.caches[0].latency: expected above 0 cycles, found -4 cycles"
        );
        assert_eq!(
            error(|speeds| speeds.kinds[0].branch_miss.0 = f64::NAN),
            "performance.kinds[0].branch_miss: expected 0 to 10000 cycles, found NaN cycles"
        );
        assert_eq!(
            error(|speeds| speeds.memory[3].bandwidth.0 = f64::INFINITY),
            "performance.memory[3].bandwidth: expected above 0 GB/s and up to 1000000 GB/s, found inf GB/s"
        );
        assert_eq!(
            error(|speeds| speeds.memory.truncate(7)),
            "performance.memory: expected 8 controllers, found 7"
        );
        assert_eq!(
            error(|speeds| speeds.kinds.clear()),
            "performance.kinds: expected 1 kinds, found 0"
        );
        assert_eq!(
            error(|speeds| speeds.hops[2][2].0 = 7),
            "performance.hops: expected 0 ns from a node to itself, found 7 ns"
        );
        assert_eq!(
            error(|speeds| speeds.links[0].crossed_by.clear()),
            "performance.links[0].crossed_by: expected pairs of nodes whose accesses cross it, each once, found 0"
        );
        assert_eq!(
            error(|speeds| speeds.kinds[0].units[0].ports.0 = 1 << 13),
            "performance.kinds[0].units[0].ports: expected some of the 13 ports, found 0b10000000000000"
        );
    }
}
