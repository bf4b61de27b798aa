//! Parsing of measured speeds: strict, since schedulers rely on them.

use super::sets::{MOST, twice};
use super::{CoreSpeeds, PuSpeed, Speed, VERSION};
use crate::cpulist::PuSet;
use crate::ids::PuNr;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Reason to reject a text as measured speeds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CoreSpeedsError {
    /// The text is malformed.
    #[error("expected measured speeds of cores: {detail}")]
    Malformed {
        /// Message of the parser, with the place.
        detail: String,
    },
    /// Another version of the format.
    #[error(
        "expected measured speeds of version {VERSION}, found version {found}; measure again with this colocate"
    )]
    Version {
        /// The version in the text.
        found: u64,
    },
    /// Figures that no measurement has.
    #[error("expected {expected}, found {found}; measure again with colocate-study bench cores")]
    Impossible {
        /// Condition violated.
        expected: &'static str,
        /// Value found.
        found: String,
    },
}

impl CoreSpeeds {
    /// Formats as JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::printable::json(self)
    }

    /// Parses JSON.
    ///
    /// # Errors
    /// [`CoreSpeedsError`], a message of one line, with line and column of malformed text.
    pub fn from_json(text: &str) -> Result<Self, CoreSpeedsError> {
        /// The field common to all versions.
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.version != u64::from(VERSION) {
            return Err(CoreSpeedsError::Version { found: head.version });
        }
        let found: Self = serde_json::from_str(text).map_err(malformed)?;
        found.check()?;
        Ok(found)
    }

    /// Checks the properties of every measurement: cores with PUs, at most as many as Linux allows;
    /// every PU once, in ascending order and in one core; speeds above 0 within their ranges;
    /// shares up to 1; kinds slowest first, which contain every measured PU once and divide no
    /// core.
    ///
    /// # Errors
    /// [`CoreSpeedsError::Impossible`] for the first violation.
    pub fn check(&self) -> Result<(), CoreSpeedsError> {
        self.check_cores()?;
        self.check_pus()?;
        self.check_kinds()
    }

    fn check_cores(&self) -> Result<(), CoreSpeedsError> {
        if let Some(found) = twice(&self.cores) {
            return impossible("every PU in one core", format!("PU {} in two", found.0));
        }
        if let Some(place) = self.cores.iter().position(PuSet::is_empty) {
            return impossible("PUs in every core", format!("none in core {place}"));
        }
        if self.cores.len() > MOST {
            return impossible("at most 8192 cores", "more".to_owned());
        }
        Ok(())
    }

    fn check_pus(&self) -> Result<(), CoreSpeedsError> {
        if !self.pus.is_sorted_by(|a, b| a.pu < b.pu) || self.pus.is_empty() {
            return impossible("measured PUs in ascending order", self.listed());
        }
        // Not as a set: these numbers have no bound yet, and a set takes memory for the highest
        // number.
        let all: PuSet = self.cores.iter().flat_map(PuSet::iter).collect();
        if !self.pus.iter().all(|speed| all.contains(speed.pu)) {
            return impossible("measured PUs that are in cores", self.listed());
        }
        match self.pus.iter().find(|pu| !is_sane(pu)) {
            Some(wrong) => impossible(
                "a speed above 0 in its range and shares from 0 to 1",
                format!("{:?} of PU {}", wrong.speed.value, wrong.pu.0),
            ),
            None => Ok(()),
        }
    }

    /// Requires checked PUs. Duplicate PUs come first: if `sets::read` skipped some kinds, the
    /// kinds kept have a duplicate.
    fn check_kinds(&self) -> Result<(), CoreSpeedsError> {
        let united: PuSet = self.kinds.iter().flat_map(|kind| kind.pus.iter()).collect();
        if twice(&self.kinds).is_some() {
            return impossible(ONCE, format!("PUs {united}"));
        }
        if self.kinds.len() > MOST {
            return impossible("at most 8192 kinds of cores", "more".to_owned());
        }
        if united != self.measured() || self.kinds.iter().any(|kind| kind.pus.is_empty()) {
            return impossible(ONCE, format!("PUs {united}"));
        }
        let values: Vec<f64> = self.kinds.iter().map(|kind| kind.speed.value).collect();
        let ranges = self.kinds.iter().all(|kind| is_sane_speed(kind.speed));
        // The fastest speed is 1 up to rounding.
        let fastest = values.last().is_some_and(|last| (last - 1.0).abs() < 1e-9);
        if !ranges || !fastest || !values.is_sorted_by(|a, b| a < b) {
            return impossible("kinds of cores, slowest first, up to 1", format!("{values:?}"));
        }
        match self.divided() {
            Some(core) => impossible("cores of one kind", format!("two on PUs {core}")),
            None => Ok(()),
        }
    }

    /// First core with PUs of several kinds.
    fn divided(&self) -> Option<&PuSet> {
        let kinds = self.kinds.iter().enumerate();
        let kind_of: BTreeMap<PuNr, usize> =
            kinds.flat_map(|(place, kind)| kind.pus.iter().map(move |pu| (pu, place))).collect();
        self.cores.iter().find(|core| {
            let kinds = core.iter().filter_map(|pu| kind_of.get(&pu).copied());
            kinds.collect::<BTreeSet<usize>>().len() > 1
        })
    }

    /// Numbers of the measured PUs, in the order of the file.
    fn listed(&self) -> String {
        let numbers: Vec<String> = self.pus.iter().map(|speed| speed.pu.0.to_string()).collect();
        if numbers.is_empty() { "none".into() } else { numbers.join(",") }
    }
}

/// Requirement for kinds and their PUs.
const ONCE: &str = "kinds that have every measured PU once";

/// The error for malformed JSON, in one line.
fn malformed(error: serde_json::Error) -> CoreSpeedsError {
    // The parser's message quotes the text, which may contain control characters.
    CoreSpeedsError::Malformed { detail: error.to_string().replace(char::is_control, " ") }
}

const fn impossible(expected: &'static str, found: String) -> Result<(), CoreSpeedsError> {
    Err(CoreSpeedsError::Impossible { expected, found })
}

fn is_sane(pu: &PuSpeed) -> bool {
    let shares = [pu.speed_while_running, pu.share_of_pu];
    is_sane_speed(pu.speed) && shares.iter().all(|share| (0.0..=1.0).contains(share))
}

fn is_sane_speed(Speed { value, low, high }: Speed) -> bool {
    0.0 < low && low <= value && value <= high && high.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::testing::measured;
    use proptest::prelude::*;
    use serde_json::Value;

    fn two() -> CoreSpeeds {
        measured(&[&[0, 4], &[1]], &[1.0, 0.5])
    }

    type Change = fn(&mut Value);

    fn refused(change: Change) -> String {
        let mut value: Value = serde_json::from_str(&two().to_json()).unwrap();
        change(&mut value);
        CoreSpeeds::from_json(&value.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let found = two();
        assert_eq!(CoreSpeeds::from_json(&found.to_json()), Ok(found));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_line() {
        let again = "; measure again with colocate-study bench cores";
        let cases: [(Change, String); 11] = [
            (
                |v| v["version"] = 2.into(),
                "expected measured speeds of version 1, found version 2; measure again with this colocate"
                    .to_owned(),
            ),
            (
                |v| v["cores"][1] = "0-1".into(),
                format!("expected every PU in one core, found PU 0 in two{again}"),
            ),
            (
                |v| v["cores"][1] = "".into(),
                format!("expected PUs in every core, found none in core 1{again}"),
            ),
            (
                |v| v["pus"][0]["pu"] = 4.into(),
                format!("expected measured PUs in ascending order, found 4,1,4{again}"),
            ),
            (
                |v| v["cores"][1] = "7".into(),
                format!("expected measured PUs that are in cores, found 0,1,4{again}"),
            ),
            (
                |v| v["pus"][2]["pu"] = u32::MAX.into(),
                format!("expected measured PUs that are in cores, found 0,1,4294967295{again}"),
            ),
            (
                |v| v["pus"][1]["speed"]["value"] = 0.0.into(),
                format!(
                    "expected a speed above 0 in its range and shares from 0 to 1, found 0.0 of PU 1{again}"
                ),
            ),
            (
                |v| v["kinds"][0]["speed"] = v["kinds"][1]["speed"].clone(),
                format!("expected kinds of cores, slowest first, up to 1, found [1.0, 1.0]{again}"),
            ),
            (
                |v| v["kinds"][0]["pus"] = "".into(),
                format!("expected kinds that have every measured PU once, found PUs 0,4{again}"),
            ),
            (
                |v| v["kinds"][0]["pus"] = "0-1".into(),
                format!("expected kinds that have every measured PU once, found PUs 0-1,4{again}"),
            ),
            (
                |v| {
                    v["kinds"][0]["pus"] = "1,4".into();
                    v["kinds"][1]["pus"] = "0".into();
                },
                format!("expected cores of one kind, found two on PUs 0,4{again}"),
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(refused(change), expected);
        }
        assert!(refused(|v| v["more"] = 1.into()).contains("unknown field `more`"));
        assert!(refused(|v| drop(v.as_object_mut().unwrap().remove("kinds"))).contains("kinds"));
        let error = CoreSpeeds::from_json("{").unwrap_err().to_string();
        assert!(error.starts_with("expected measured speeds of cores: EOF"), "{error}");
    }

    proptest! {
        /// Which core is divided follows from what kinds its PUs are of.
        #[test]
        fn divided_cores_are_found(of in prop::collection::vec(prop::option::of(0..3_usize), 12)) {
            let mut found = measured(&[&[0, 1], &[2, 3, 4], &[5], &[6, 9], &[7, 8, 10, 11]], &[0.1, 0.4, 1.0, 1.0, 1.0]);
            prop_assert_eq!(found.kinds.len(), 3);
            for (place, kind) in found.kinds.iter_mut().enumerate() {
                kind.pus = (0..12).filter(|&pu| of[pu] == Some(place)).map(PuNr::new).collect();
            }
            let kinds = found.kinds.clone();
            let divided = |core: &&PuSet| {
                kinds.iter().filter(|kind| !kind.pus.intersection(core).is_empty()).count() > 1
            };
            prop_assert_eq!(found.divided(), found.cores.iter().find(divided));
        }

        /// Whatever happens to a character, the text is read as something that makes sense, or refused in a line.
        #[test]
        fn damaged_texts_are_read_or_refused(at in 0..2_000_usize, with in "[0-9a-z{}\",:.-]{0,3}") {
            let text = two().to_json();
            let at = at % text.len();
            let damaged = format!("{}{with}{}", &text[..at], &text[at + 1..]);
            match CoreSpeeds::from_json(&damaged) {
                Ok(found) => prop_assert_eq!(found.check(), Ok(())),
                Err(error) => prop_assert!(!error.to_string().contains('\n')),
            }
        }
    }
}
