//! Whether CPI stacks are counted, and the note for a scheduler without any.

use colocate_model::CpiModel;
use colocate_model::stack::StackParts;
use colocate_model::symbiosis::file::SIMULATED_PARTS;
use colocate_policy::PolicySpec;

/// The user's and the policy's need of CPI stacks.
#[derive(Clone, Copy, Debug)]
pub struct Stacks<'a> {
    /// Whether the user requests stacks (`--stacks`).
    pub requested: bool,
    /// The scheduler.
    pub policy: &'a PolicySpec,
    /// The scheduler's coefficients, if it needs stacks.
    pub model: Option<&'a CpiModel>,
    /// Whether the contention model estimates rates that are not counted.
    pub estimated: bool,
}

impl Stacks<'_> {
    /// Whether to count stacks. Coefficients trained with simulated stacks need the contention
    /// model's stacks, which are requested only where no stacks are counted.
    pub fn count(&self) -> bool {
        match self.model {
            Some(model) => !is_simulated(model),
            None => self.requested,
        }
    }

    /// A note if needed stacks are not reported. `counted` holds the parts reported by counters, or
    /// the reason of their absence.
    pub fn trouble(&self, counted: Result<StackParts, String>) -> Option<String> {
        let Some(model) = self.model else {
            let why = counted.err().filter(|_| self.requested)?;
            return Some(format!("where cycles go is not counted: {why}"));
        };
        let name = self.policy.name();
        let why = match counted {
            _ if is_simulated(model) && self.estimated => {
                let note = format!(
                    "--stacks counts nothing: the model of {name} was trained with simulated \
                     stacks, so they are estimated"
                );
                return self.requested.then_some(note);
            }
            _ if is_simulated(model) => "its model was trained with simulated stacks, which are \
                                         estimated with --machine-speeds and demand vectors, and \
                                         never counted"
                .to_owned(),
            Ok(parts) if model.parts == parts => return None,
            Ok(parts) => format!(
                "its model was trained with {}, and counters report {}",
                model.parts.join(", "),
                parts.join(", ")
            ),
            Err(why) => why,
        };
        Some(format!("{name} gets no CPI stacks, so groups stay as they are: {why}"))
    }
}

fn is_simulated(model: &CpiModel) -> bool {
    model.parts == SIMULATED_PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a scheduler with coefficients of `parts`, if it is one that needs them.
    fn check(parts: Option<&[&str]>, estimated: bool, counted: Result<StackParts, &str>) -> String {
        check_if(true, parts, estimated, counted)
    }

    /// The same, whether the user `requested` stacks or not.
    fn check_if(
        requested: bool,
        parts: Option<&[&str]>,
        estimated: bool,
        counted: Result<StackParts, &str>,
    ) -> String {
        let policy = PolicySpec::named(if parts.is_some() { "symbiotic" } else { "bas" });
        let model = parts.map(|parts| CpiModel {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            ..CpiModel::built_in()
        });
        let stacks = Stacks { requested, policy: &policy, model: model.as_ref(), estimated };
        stacks.trouble(counted.map_err(str::to_owned)).unwrap_or_default()
    }

    const ARM: StackParts = &["frontend", "backend", "dispatching"];

    #[test]
    fn missing_stacks_have_a_reason() {
        assert_eq!(check(Some(ARM), false, Ok(ARM)), "");
        assert_eq!(
            check(Some(ARM), true, Err("cpu: dead")),
            "symbiotic gets no CPI stacks, so groups stay as they are: cpu: dead"
        );
        assert_eq!(
            check(Some(ARM), false, Ok(&["a", "b", "c"])),
            "symbiotic gets no CPI stacks, so groups stay as they are: its model was trained with \
             frontend, backend, dispatching, and counters report a, b, c"
        );
        let simulated = check(Some(&SIMULATED_PARTS), false, Err("nothing is counted"));
        assert!(simulated.ends_with("with --machine-speeds and demand vectors, and never counted"));
        let estimated = |requested| {
            check_if(requested, Some(&SIMULATED_PARTS), true, Err("nothing is counted"))
        };
        assert_eq!(estimated(false), "");
        assert_eq!(
            estimated(true),
            "--stacks counts nothing: the model of symbiotic was trained with simulated stacks, \
             so they are estimated"
        );
        assert_eq!(check(None, false, Err("dead")), "where cycles go is not counted: dead");
        assert_eq!(check(None, false, Ok(ARM)), "");
    }

    #[test]
    fn counted_for_policies_that_can_use_them() {
        let policy = PolicySpec::named("symbiotic");
        let counts = |requested, model: Option<&CpiModel>| {
            Stacks { requested, policy: &policy, model, estimated: true }.count()
        };
        let simulated = CpiModel::built_in();
        let counted = CpiModel { parts: vec!["frontend".into()], ..CpiModel::built_in() };
        assert!(counts(false, Some(&counted)) && counts(true, None));
        assert!(!counts(false, None) && !counts(true, Some(&simulated)));
    }
}
