//! Reading measured speeds back: strictly, since schedulers follow them.

use super::{CoreSpeeds, PuSpeed, Speed, VERSION};
use crate::cpulist::PuSet;
use serde::Deserialize;
use thiserror::Error;

/// Why a text is not a set of measured speeds.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CoreSpeedsError {
    /// The text is malformed.
    #[error("expected measured speeds of cores: {detail}")]
    Malformed {
        /// What the parser says, with the place.
        detail: String,
    },
    /// The text is of another version.
    #[error(
        "expected measured speeds of version {VERSION}, found version {found}; measure again with this colocate"
    )]
    Version {
        /// The version in the text.
        found: u64,
    },
    /// No measurement says this.
    #[error("expected {expected}, found {found}; measure again with colocate bench cores")]
    Impossible {
        /// What should hold.
        expected: &'static str,
        /// What does not.
        found: String,
    },
}

impl CoreSpeeds {
    /// As JSON, one line after another.
    ///
    /// # Panics
    /// Never: it has only text keys, and finite numbers as [`CoreSpeeds::from_json`] wants them.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("speeds are plain data");
        text.push('\n');
        text
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// [`CoreSpeedsError`], one line, with line and column where the text is malformed.
    pub fn from_json(text: &str) -> Result<Self, CoreSpeedsError> {
        /// The one field that every version has.
        #[derive(Deserialize)]
        struct Head {
            version: u64,
        }
        let wrong = |error: serde_json::Error| CoreSpeedsError::Malformed {
            detail: error.to_string().replace(char::is_control, " "),
        };
        let head: Head = serde_json::from_str(text).map_err(wrong)?;
        if head.version != u64::from(VERSION) {
            return Err(CoreSpeedsError::Version { found: head.version });
        }
        let found: Self = serde_json::from_str(text).map_err(wrong)?;
        found.check()?;
        Ok(found)
    }

    /// Checks what a measurement always says: every PU once, in ascending order and in one core; speeds above 0
    /// within their ranges; shares up to 1; kinds slowest first, which have every measured PU once and divide no
    /// core.
    ///
    /// # Errors
    /// [`CoreSpeedsError::Impossible`] for the first thing that is wrong.
    pub fn check(&self) -> Result<(), CoreSpeedsError> {
        let impossible = |expected, found| Err(CoreSpeedsError::Impossible { expected, found });
        if let Some(found) = twice(&self.cores) {
            return impossible("every PU in one core", format!("PU {found} in two"));
        }
        let all: PuSet = self.cores.iter().flat_map(PuSet::iter).collect();
        if !self.pus.is_sorted_by(|a, b| a.pu < b.pu) || self.pus.is_empty() {
            return impossible("measured PUs in ascending order", self.listed());
        }
        if !self.measured().is_subset(&all) {
            return impossible("measured PUs that are in cores", self.listed());
        }
        if let Some(wrong) = self.pus.iter().find(|pu| !sane(pu)) {
            let found = format!("{:?} of PU {}", wrong.speed.value, wrong.pu.0);
            return impossible("a speed above 0 in its range and shares from 0 to 1", found);
        }
        self.check_kinds()
    }

    fn check_kinds(&self) -> Result<(), CoreSpeedsError> {
        let impossible = |expected, found| Err(CoreSpeedsError::Impossible { expected, found });
        let values: Vec<f64> = self.kinds.iter().map(|kind| kind.speed.value).collect();
        let ranges = self.kinds.iter().all(|kind| sane_speed(kind.speed));
        // The fastest is 1 up to the last digits.
        let fastest = values.last().is_some_and(|last| (last - 1.0).abs() < 1e-9);
        if !ranges || !fastest || !values.is_sorted_by(|a, b| a < b) {
            return impossible("kinds of cores, slowest first, up to 1", format!("{values:?}"));
        }
        let sets: Vec<PuSet> = self.kinds.iter().map(|kind| kind.pus.clone()).collect();
        let united: PuSet = sets.iter().flat_map(PuSet::iter).collect();
        if twice(&sets).is_some() || united != self.measured() {
            let expected = "kinds that have every measured PU once";
            return impossible(expected, format!("PUs {united}"));
        }
        let divided = |core: &&PuSet| {
            sets.iter().filter(|kind| !kind.intersection(core).is_empty()).count() > 1
        };
        match self.cores.iter().find(divided) {
            Some(core) => impossible("cores of one kind", format!("two on PUs {core}")),
            None => Ok(()),
        }
    }

    fn listed(&self) -> String {
        let numbers: Vec<String> = self.pus.iter().map(|speed| speed.pu.0.to_string()).collect();
        if numbers.is_empty() { "none".into() } else { numbers.join(",") }
    }
}

/// The first PU that is in two of `sets`.
fn twice(sets: &[PuSet]) -> Option<u32> {
    let mut seen = PuSet::new();
    sets.iter().flat_map(PuSet::iter).find(|pu| !seen.insert(*pu)).map(|pu| pu.0)
}

fn sane(pu: &PuSpeed) -> bool {
    let share = |value: f64| (0.0..=1.0).contains(&value);
    sane_speed(pu.speed) && share(pu.speed_while_running) && share(pu.share_of_pu)
}

fn sane_speed(Speed { value, low, high }: Speed) -> bool {
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
        let again = "; measure again with colocate bench cores";
        let cases: [(Change, String); 8] = [
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
                |v| v["pus"][0]["pu"] = 4.into(),
                format!("expected measured PUs in ascending order, found 4,1,4{again}"),
            ),
            (
                |v| v["cores"][1] = "7".into(),
                format!("expected measured PUs that are in cores, found 0,1,4{again}"),
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
        let told = CoreSpeeds::from_json("{").unwrap_err().to_string();
        assert!(told.starts_with("expected measured speeds of cores: EOF"), "{told}");
    }

    proptest! {
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
