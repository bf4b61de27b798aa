//! Parsing of cores and kinds of cores: disjoint sets of PUs, within bounded memory.
//!
//! # Problem
//! The memory of a set grows with its highest PU: 8 KiB for `"65535"`, a thousand times the text. A
//! hostile file must not claim that much per entry.
//!
//! # Approach
//! A PU is in one core and one kind. So two sets with a common PU are enough to reject the file,
//! and so are more sets than a machine has PUs. Parsing keeps sets up to the first violation and
//! skips the rest. [`CoreSpeeds::check`](super::CoreSpeeds::check) rejects the kept sets.
//!
//! # Properties
//! - **Bounded**: at most [`MOST`] cores and one are kept, 64 MiB, and as many kinds. -> test `no_more_sets_are_kept_than_a_machine_has`
//! - **Refused**: the sets kept of a file with skipped sets are refused. -> test `hostile_files_are_refused_in_a_line`

use super::MeasuredKind;
use crate::cpulist::PuSet;
use crate::ids::PuNr;
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Most cores and most kinds of cores of a file: the number of CPUs that Linux allows (`NR_CPUS`).
/// CPU numbers may be higher, as in every [`PuSet`].
pub(super) const MOST: usize = 8_192;

/// A part of a machine with PUs that no other such part has.
pub(super) trait HasPus {
    fn pus(&self) -> &PuSet;
}

impl HasPus for PuSet {
    fn pus(&self) -> &PuSet {
        self
    }
}

impl HasPus for MeasuredKind {
    fn pus(&self) -> &PuSet {
        &self.pus
    }
}

/// First PU contained in two of `parts`.
pub(super) fn twice(parts: &[impl HasPus]) -> Option<PuNr> {
    let mut seen = PuSet::new();
    parts.iter().find_map(|part| again(part, &mut seen))
}

/// First PU of `part` contained in `seen`. Adds the PUs before it to `seen`.
fn again(part: &impl HasPus, seen: &mut PuSet) -> Option<PuNr> {
    part.pus().iter().find(|pu| !seen.insert(*pu))
}

/// Parses parts up to the first violation, a shared PU or one part more than [`MOST`], and skips
/// the rest.
///
/// # Errors
/// The errors of `reader` for malformed text.
pub(super) fn read<'de, D, T>(reader: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + HasPus,
{
    reader.deserialize_seq(Parts(PhantomData))
}

/// Visitor of a sequence of parts.
struct Parts<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + HasPus> Visitor<'de> for Parts<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Vec<T>, A::Error> {
        let mut kept: Vec<T> = Vec::new();
        let mut seen = PuSet::new();
        while let Some(part) = parts.next_element::<T>()? {
            let shared = again(&part, &mut seen).is_some();
            kept.push(part);
            if shared || kept.len() > MOST {
                // A parser reports an error unless the sequence is read to its end.
                while parts.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::CoreSpeeds;
    use crate::measured::testing::measured;
    use serde_json::{Value, json};

    /// About as many bytes as a hostile file has here.
    const BYTES: usize = 1 << 20;

    /// A file with so many of `part` in `field` that it has about [`BYTES`].
    fn full_of(field: &str, part: &Value) -> String {
        with(field, vec![part.clone(); BYTES / (part.to_string().len() + 1)])
    }

    fn with(field: &str, parts: Vec<Value>) -> String {
        let mut file: Value = serde_json::from_str(&measured(&[&[0]], &[1.0]).to_json()).unwrap();
        file[field] = parts.into();
        file.to_string()
    }

    /// [`MOST`] cores and two, each of one PU.
    fn too_many_cores() -> String {
        with("cores", (0..MOST + 2).map(|pu| pu.to_string().into()).collect())
    }

    fn kind(pus: &str) -> Value {
        json!({ "speed": { "value": 1.0, "low": 1.0, "high": 1.0 }, "pus": pus })
    }

    /// As [`too_many_cores`].
    fn too_many_kinds() -> String {
        with("kinds", (0..MOST + 2).map(|pu| kind(&pu.to_string())).collect())
    }

    /// How many cores and kinds reading keeps.
    fn kept(text: &str) -> (usize, usize) {
        let read: CoreSpeeds = serde_json::from_str(text).unwrap();
        (read.cores.len(), read.kinds.len())
    }

    #[test]
    fn no_more_sets_are_kept_than_a_machine_has() {
        assert_eq!(kept(&full_of("cores", &"65535".into())), (2, 1));
        assert_eq!(kept(&full_of("cores", &"0-65535".into())), (2, 1));
        assert_eq!(kept(&full_of("cores", &"".into())), (MOST + 1, 1));
        assert_eq!(kept(&full_of("kinds", &kind("65535"))), (1, 2));
        assert_eq!(kept(&too_many_cores()), (MOST + 1, 1));
        assert_eq!(kept(&too_many_kinds()), (1, MOST + 1));
    }

    #[test]
    fn hostile_files_are_refused_in_a_line() {
        let refused = |text: &str, what: &str| {
            let error = CoreSpeeds::from_json(text).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("expected {what}; measure again with colocate-study bench cores")
            );
        };
        let in_two = "every PU in one core, found PU 65535 in two";
        refused(&full_of("cores", &"65535".into()), in_two);
        refused(&full_of("cores", &"".into()), "PUs in every core, found none in core 0");
        let once = "kinds that have every measured PU once, found PUs 65535";
        refused(&full_of("kinds", &kind("65535")), once);
        refused(&too_many_cores(), &format!("at most {MOST} cores, found more"));
        refused(&too_many_kinds(), &format!("at most {MOST} kinds of cores, found more"));
    }

    /// What is skipped has to be JSON all the same.
    #[test]
    fn a_file_that_breaks_off_is_malformed() {
        let text = full_of("cores", &"65535".into());
        let error = CoreSpeeds::from_json(&text[..BYTES / 2]).unwrap_err().to_string();
        assert!(error.starts_with("expected measured speeds of cores: EOF"), "{error}");
        let wrong = with("cores", vec!["x".into()]);
        let error = CoreSpeeds::from_json(&wrong).unwrap_err().to_string();
        assert!(error.contains("expected a CPU list") && error.contains("at line 1"), "{error}");
    }
}
