//! Whether each policy has the evidence that it decides by, for this user.

use super::Status;
use colocate_evidence::{Source, SourceSet};
use serde::Serialize;

/// Policy and the evidence needed by it on this machine.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Name.
    pub name: &'static str,
    /// Whether the policy is the default of `run` and `attach`.
    pub is_default: bool,
    /// The evidence.
    pub sources: SourceSet,
}

/// The verdict on a policy.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyDiagnosis {
    /// Name.
    pub name: &'static str,
    /// Whether the policy is the default of `run` and `attach`.
    pub is_default: bool,
    /// Whether the policy's evidence is available.
    pub status: Status,
    /// Missing evidence on this machine.
    pub missing: Vec<Source>,
}

/// Verdict on each policy; `status` is the availability of a source.
pub fn verdicts(needs: &[Needs], status: impl Fn(Source) -> Status) -> Vec<PolicyDiagnosis> {
    needs
        .iter()
        .map(|needs| {
            let missing = needs.sources.iter().filter(|it| status(*it) == Status::No).collect();
            // How long threads run is no reason to place them: policies know it beside something else.
            let deciding = needs.sources.iter().filter(|it| *it != Source::RunStates);
            let status = of_all(&deciding.map(&status).collect::<Vec<_>>());
            PolicyDiagnosis { name: needs.name, is_default: needs.is_default, status, missing }
        })
        .collect()
}

/// Common status of all; partly, if they differ.
fn of_all(found: &[Status]) -> Status {
    match found {
        [] => Status::Yes,
        [first, rest @ ..] if rest.iter().all(|other| other == first) => *first,
        _ => Status::Partly,
    }
}

/// Lines about policies; with `quiet`, only policies without all of their evidence.
pub fn lines(verdicts: &[PolicyDiagnosis], quiet: bool) -> Vec<String> {
    let line = |status: Status, label: &str| {
        let with = verdicts.iter().filter(|it| it.status == status);
        let names: Vec<String> = with.map(named).collect();
        (!names.is_empty()).then(|| format!("{label:>6}  {}", names.join(", ")))
    };
    let yes = line(Status::Yes, "yes").filter(|_| !quiet);
    [yes, line(Status::Partly, "partly"), line(Status::No, "no")].into_iter().flatten().collect()
}

fn named(verdict: &PolicyDiagnosis) -> String {
    let default = verdict.is_default.then(|| "the default".to_owned());
    let without = (!verdict.missing.is_empty()).then(|| format!("without {}", missing(verdict)));
    let notes: Vec<String> = default.into_iter().chain(without).collect();
    if notes.is_empty() {
        verdict.name.to_owned()
    } else {
        format!("{} ({})", verdict.name, notes.join(", "))
    }
}

fn missing(verdict: &PolicyDiagnosis) -> String {
    let names: Vec<&str> = verdict.missing.iter().map(|source| source.name()).collect();
    names.join(" and ")
}

/// Warning if the default policy has no evidence for this user: it leaves programs to the kernel.
pub fn warning(verdicts: &[PolicyDiagnosis]) -> Option<String> {
    let default = verdicts.iter().find(|it| it.is_default && it.status == Status::No)?;
    Some(format!(
        "but not by the default policy: {} has no evidence for this user without {}, and leaves programs to the kernel",
        default.name,
        missing(default)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(name: &'static str, sources: &[Source]) -> Needs {
        Needs { name, is_default: name == "auto", sources: SourceSet::of(sources) }
    }

    /// Wake-ups are missing, and mixes are there with a limit.
    #[test]
    fn verdicts_by_hand() {
        let all = [
            needs("auto", &[Source::WakeUps, Source::RunStates]),
            needs("both", &[Source::WakeUps, Source::Mix]),
            needs("mix", &[Source::Mix]),
            needs("os", &[]),
            needs("counters", &[Source::Counters, Source::RunStates]),
        ];
        let status = |source| match source {
            Source::WakeUps => Status::No,
            Source::Mix => Status::Partly,
            _ => Status::Yes,
        };
        let found = verdicts(&all, status);
        let lines = lines(&found, false);
        let expected = [
            "   yes  os, counters",
            "partly  both (without wake-ups), mix",
            "    no  auto (the default, without wake-ups)",
        ];
        assert_eq!(lines, expected);
        let warning_of = |found: &[PolicyDiagnosis]| warning(found).unwrap_or_default();
        assert!(warning_of(&found).contains("auto has no evidence for this user without wake-ups"));
        assert_eq!(warning(&verdicts(&all, |_| Status::Yes)), None);
    }
}
