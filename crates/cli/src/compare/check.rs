//! Checks of a comparison before anything runs.

use super::names::file_name;
use super::score::ScoreSource;
use super::way::RunMethod;
use crate::exit::usage;
use crate::policies::Policies;
use colocate_policy::table::Prior;
use std::collections::BTreeSet;

/// Checks that each workload has a directory of its own, which is none of the measurement's.
pub fn names<'a>(names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let ours = ["", ".", "..", "work", "prepared", "prepare.log"];
    let mut taken: BTreeSet<String> = ours.map(str::to_owned).into();
    for name in names {
        if !taken.insert(file_name(name)) {
            return Err(usage(format!(
                "expected a name of its own for each workload, as a folder, other than work and prepared, found {name:?}"
            )));
        }
    }
    Ok(())
}

/// Checks that `jobs` programs can be run in each of `ways`, and that there will be reports for `scores`.
pub fn ways(ways: &[String], jobs: usize, scores: &[ScoreSource]) -> anyhow::Result<()> {
    let needs_report = scores.iter().any(|score| matches!(score, ScoreSource::Report(_)));
    for way in ways {
        policy(way)?;
        match RunMethod::of(way, 0) {
            RunMethod::Prefix(_) if needs_report => {
                return Err(usage(format!(
                    "a score from a report needs a run through colocate, found the way {way}"
                )));
            }
            RunMethod::Launch(words) if words[0] == "profile" && jobs > 1 => {
                return Err(usage(format!("profile has one program, found {jobs}")));
            }
            RunMethod::Prefix(_) => {}
            RunMethod::Launch(words) => crate::check_command(&words, &["--", "true"])?,
            RunMethod::Attach(words) => crate::check_command(&words, &["-p", "1"])?,
        }
    }
    Ok(())
}

/// Checks that a policy is known to `colocate run` or is another way to run programs.
fn policy(policy: &str) -> anyhow::Result<()> {
    if !RunMethod::is_policy(policy) {
        return Ok(());
    }
    match Policies::Once.read(policy) {
        Ok(spec) if spec.has_prior(Prior::Speeds) => Err(usage(format!(
            "expected a policy that needs no figures of how fast this machine is, found {policy}"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(usage(format!("{error} (`bare` is without colocate)"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_workloads_are_their_own() {
        assert!(names(["a", "b c", "b-d"].into_iter()).is_ok());
        for wrong in [vec!["a b", "a-b"], vec![".."], vec![""], vec!["work"]] {
            assert!(names(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ways_are_checked_with_their_options() {
        let check = |way: &str, jobs| ways(&[way.to_owned()], jobs, &[]);
        for right in ["bare", "env A=1", "os", "run --no-guard", "attach --policy os", "profile"] {
            assert!(check(right, 1).is_ok(), "{right}");
        }
        for wrong in ["run --nope", "schedule --policy mix", "attach -p x", "mxi"] {
            assert!(check(wrong, 1).is_err(), "{wrong}");
        }
        assert!(check("profile", 2).is_err());
        let report = ScoreSource::Report("/a".into());
        assert!(ways(&["bare".into()], 1, &[report]).is_err());
    }
}
