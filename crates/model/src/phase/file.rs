//! Files of demand vectors, TOML for users and JSON for programs.
//!
//! ```toml
//! version = 1
//!
//! [[phase]]
//! name = "int-mul"
//! slots = { value = 1.03, source = "disassembly: 32 multiplications and one fused compare and branch" }
//! work = { value = { kinds = { int-mul = 0.97, branch = 0.03 } }, source = "disassembly" }
//! dependent-cycles = "unknown"
//! misses = { value = [["32 KiB", 0.0]], source = "it reads no memory" }
//! ```
//!
//! An omitted component is unknown, too. docs/schemas/demand.json specifies the JSON form.

use super::Phase;
use colocate_machine::Flaw;
use serde::{Deserialize, Serialize};

/// Version of the format that this build reads and writes.
pub const VERSION: u32 = 1;

/// Demand vectors of one or more phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Execution of one program with these phases: indices of phases in the order of execution,
    /// each with its instructions. Empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<(u32, u64)>,
    /// Phases, in the order of the file.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

#[derive(Deserialize)]
struct PhaseFileHeader {
    version: u64,
}

impl PhaseFile {
    /// Limit of a text, in bytes. Chosen: room for thousands of phases.
    pub const MAX_BYTES: usize = 16 << 20;

    /// File of this version with `phases`, without a course.
    #[must_use]
    pub const fn new(phases: Vec<Phase>) -> Self {
        Self { version: VERSION, course: Vec::new(), phases }
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// [`Flaw`] for too long a text; for another version, whatever else the text holds; for a course
    /// of missing phases; and with the line, for an unknown or repeated key, a figure without a
    /// source, or a figure out of range.
    pub fn from_toml(text: &str) -> Result<Self, Flaw> {
        check_size(text)?;
        // The version first: a text of another version may have unknown keys.
        check_version(&toml::from_str(text).map_err(|error| malformed_toml(text, &error))?)?;
        check_course(toml::from_str(text).map_err(|error| malformed_toml(text, &error))?)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub fn from_json(text: &str) -> Result<Self, Flaw> {
        check_size(text)?;
        check_version(&serde_json::from_str(text).map_err(malformed_json)?)?;
        check_course(serde_json::from_str(text).map_err(malformed_json)?)
    }

    /// JSON, ending in a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        colocate_machine::printable::json(self)
    }

    /// TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        colocate_machine::printable::toml(self).expect("every field has a TOML form")
    }
}

fn malformed_toml(text: &str, error: &toml::de::Error) -> Flaw {
    // An error without a position is reported for line 1.
    let start = error.span().map_or(0, |span| span.start);
    let line = text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count() + 1;
    // Messages of the TOML parser can have several lines.
    Flaw(format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", ")))
}

fn malformed_json(error: serde_json::Error) -> Flaw {
    Flaw(format!("line {}: {error}", error.line()))
}

fn check_course(file: PhaseFile) -> Result<PhaseFile, Flaw> {
    let there = file.phases.len();
    let mut course = file.course.iter();
    match course.find(|(phase, instructions)| *phase as usize >= there || *instructions == 0) {
        None => Ok(file),
        Some((phase, instructions)) => Err(Flaw(format!(
            "course: expected places of {there} phases, from 0, and 1 instruction or more, found place {phase} with {instructions}"
        ))),
    }
}

fn check_size(text: &str) -> Result<(), Flaw> {
    let most = PhaseFile::MAX_BYTES;
    let found = text.len();
    if found <= most {
        return Ok(());
    }
    Err(Flaw(format!("expected demand vectors of at most {most} bytes, found {found}")))
}

fn check_version(head: &PhaseFileHeader) -> Result<(), Flaw> {
    let found = head.version;
    if found == u64::from(VERSION) {
        return Ok(());
    }
    Err(Flaw(format!("expected demand vectors of version {VERSION}, found version {found}")))
}

/// Serialises work by kind as a table, `{ int = 0.5, load = 0.25 }`; in memory a list, in the order
/// of kinds.
pub(super) mod kinds {
    use crate::phase::known::AMOUNT;
    use colocate_machine::performance::WorkKind;
    use serde::de::{Error, MapAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub(in crate::phase) fn serialize<S: Serializer>(
        kinds: &[(WorkKind, f64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(kinds.iter().copied())
    }

    pub(in crate::phase) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(WorkKind, f64)>, D::Error> {
        deserializer.deserialize_map(TableVisitor)
    }

    struct TableVisitor;

    impl<'de> Visitor<'de> for TableVisitor {
        type Value = Vec<(WorkKind, f64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("kinds of work like { int = 0.5, load = 0.25 }")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kinds: Self::Value = Vec::new();
            while let Some((kind, count)) = map.next_entry::<WorkKind, f64>()? {
                if !AMOUNT.contains(count) {
                    let expected = AMOUNT.text;
                    let message = format!("{kind}: expected {expected}, found {count}");
                    return Err(A::Error::custom(message));
                }
                // A map type would keep the last of two entries silently.
                if kinds.iter().any(|(known, _)| *known == kind) {
                    return Err(A::Error::custom(format!("expected {kind} once, found it twice")));
                }
                kinds.push((kind, count));
            }
            // In the order of kinds, so that equal tables are equal lists.
            kinds.sort_by_key(|(kind, _)| *kind);
            Ok(kinds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::{Mix, Share};
    use crate::phase::{Known, MeasuredCycles, PortWork, typical_misses};
    use colocate_machine::performance::WorkKind;

    fn known<T>(value: T) -> Known<T> {
        Known::new(value, "made up for a test")
    }

    fn phases() -> PhaseFile {
        let kinds = vec![(WorkKind::Branch, 0.03), (WorkKind::IntMul, 0.97)];
        let mix = Mix { int: Share::new(0.4), ..Mix::default() };
        let groups = vec![(vec!["Zn1FPU0".to_owned(), "Zn1FPU1".to_owned()], 0.5)];
        let kinds_too = vec![(WorkKind::IntDiv, 0.01)];
        let ports = PortWork::Ports { llvm_cpu: "znver1".into(), groups, kinds: kinds_too };
        let all = Phase {
            name: "all".into(),
            slots: known(1.1),
            work: known(PortWork::Kinds(kinds)),
            dependent_cycles: known(0.5),
            dependent_cycles_divided: known(1.0 / 3.0),
            stall_cycles: known(0.1),
            branch_misses: known(0.01),
            misses: known(typical_misses(1.0)),
            parallel_misses: known(3.0),
            written_back: known(0.5),
            shared_lines: known(0.0),
            cycles: known(MeasuredCycles { processor: "made up".into(), cycles: 0.9 }),
        };
        let named = Phase { work: known(ports), ..Phase::default() };
        PhaseFile::new(vec![all, named, Phase::of_mix("m", mix, "made up"), Phase::default()])
    }

    #[test]
    fn written_and_read() {
        let file = phases();
        assert_eq!(PhaseFile::from_json(&file.to_json()), Ok(file.clone()));
        assert_eq!(PhaseFile::from_toml(&file.to_toml()), Ok(file));
    }

    #[test]
    fn a_course_is_of_the_phases_that_are_there() {
        let file = |course| PhaseFile { course, ..phases() };
        let good = file(vec![(3, 10), (0, 1), (3, 7)]);
        assert_eq!(PhaseFile::from_json(&good.to_json()), Ok(good.clone()));
        assert_eq!(PhaseFile::from_toml(&good.to_toml()), Ok(good));
        for (phase, instructions) in [(4, 1), (0, 0)] {
            let error = PhaseFile::from_json(&file(vec![(phase, instructions)]).to_json());
            let expected = "course: expected places of 4 phases, from 0, and 1 instruction or more";
            let expected = format!("{expected}, found place {phase} with {instructions}");
            assert_eq!(error, Err(Flaw(expected)));
        }
    }

    #[test]
    fn in_usual_notation() {
        let text = r#"
            version = 1
            [[phase]]
            name = "int-mul"
            slots = { value = 1.03, source = "disassembly" }
            work = { value = { kinds = { int-mul = 0.97, branch = 0.03 } }, source = "disassembly" }
            dependent-cycles = "unknown"
            misses = { value = [["32 KiB", 0.0]], source = "it reads no memory" }
        "#;
        let [phase] = &PhaseFile::from_toml(text).unwrap().phases[..] else { panic!("one") };
        assert_eq!(phase.slots, Known::new(1.03, "disassembly"));
        let kinds = vec![(WorkKind::Branch, 0.03), (WorkKind::IntMul, 0.97)];
        assert_eq!(phase.work.get(), Some(&PortWork::Kinds(kinds)));
        assert_eq!(phase.dependent_cycles, Known::Unknown);
        assert_eq!(phase.parallel_misses, Known::Unknown);
        assert_eq!(phase.misses.source(), Some("it reads no memory"));
    }

    /// Every message says the line, what was expected and what was found.
    #[test]
    fn what_is_refused() {
        let error = |line: &str| {
            let text = format!("version = 1\n[[phase]]\nname = \"a\"\n{line}\n");
            let error = PhaseFile::from_toml(&text).unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
            error.strip_prefix("line 4: ").unwrap_or(&error).to_owned()
        };
        let form = "a figure like { value = …, source = \"…\" }, or \"unknown\"";
        assert_eq!(
            error("slots = 1.0"),
            format!("invalid type: floating point `1.0`, expected {form}")
        );
        assert_eq!(
            error("slots = \"unknwon\""),
            format!("invalid value: string \"unknwon\", expected {form}")
        );
        assert_eq!(error("slots = { value = 1.0 }"), "missing field `source`");
        assert_eq!(
            error("slots = { value = 1.0, source = \" \" }"),
            "expected the source of a figure, found none"
        );
        let figure = |component: &str, value: &str| {
            error(&format!("{component} = {{ value = {value}, source = \"s\" }}"))
        };
        assert_eq!(figure("slots", "-1.0"), "expected a number from 0 to 1e6, found -1");
        assert_eq!(figure("stall-cycles", "nan"), "expected a number from 0 to 1e6, found NaN");
        assert_eq!(figure("branch-misses", "2.0"), "expected a number from 0 to 1, found 2");
        assert_eq!(figure("parallel-misses", "0.5"), "expected a number from 1 to 1e6, found 0.5");
        assert_eq!(
            figure("misses", "[[\"32 KB\", 0.1]]"),
            "expected a size like \"32 KiB\" or \"16 GiB\", found \"32 KB\""
        );
        assert_eq!(
            figure("work", "{ kinds = { int = -1.0 } }"),
            "int: expected a number from 0 to 1e6, found -1"
        );
        assert!(figure("work", "{ kinds = { ints = 1.0 } }").contains("unknown variant `ints`"));
        assert_eq!(
            figure("cycles", "{ processor = \"p\", cycles = 0.0 }"),
            "cycles: expected a number from 0.01 to 1e6, found 0"
        );
        assert!(figure("slosts", "1.0").contains("unknown field `slosts`"));
        assert_eq!(
            PhaseFile::from_toml("version = 2\nphases = 7").unwrap_err().to_string(),
            "expected demand vectors of version 1, found version 2"
        );
        let twice = r#"{"version": 1, "phase": [{"work": {"value": {"kinds":
            {"int": 0.5, "int": 0.25}}, "source": "s"}}]}"#;
        let error = PhaseFile::from_json(twice).unwrap_err().to_string();
        assert!(error.starts_with("line 2: expected int once, found it twice"), "{error}");
        let long = " ".repeat(PhaseFile::MAX_BYTES + 1);
        let error = PhaseFile::from_toml(&long).unwrap_err().to_string();
        assert_eq!(error, "expected demand vectors of at most 16777216 bytes, found 16777217");
    }
}
