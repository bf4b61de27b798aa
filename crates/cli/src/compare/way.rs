//! Ways to run a workload, by the names in a comparison's list of policies.

use colocate_figures::state::BARE;
use colocate_policy::PolicySpec;

/// Commands of colocate that launch programs.
const LAUNCHING: [&str; 3] = ["run", "schedule", "profile"];

/// Way to run a workload.
#[derive(Debug, PartialEq, Eq)]
pub enum RunMethod {
    /// Without colocate, each program behind these words (`env` with its arguments), if any.
    Prefix(Vec<String>),
    /// Through a command of colocate that launches the programs, with its options.
    Launch(Vec<String>),
    /// Without colocate at first; `colocate attach` with its options places the running programs.
    Attach(Vec<String>),
}

impl RunMethod {
    /// The way that `text` names: `bare`, `env …`, a command of colocate with options, or a policy
    /// of `colocate run`. A policy that draws gets `seed` unless it has a setting.
    pub fn of(text: &str, seed: u64) -> Self {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            Some(BARE) => Self::Prefix(Vec::new()),
            Some("env") => Self::Prefix(words),
            Some("attach") => Self::Attach(words),
            Some(first) if LAUNCHING.contains(&first) => Self::Launch(words),
            _ => {
                let policy = seeded(text, seed).unwrap_or_else(|| text.to_owned());
                Self::Launch(vec!["run".into(), "--policy".into(), policy])
            }
        }
    }

    /// Whether `text` names a policy of `colocate run`, and no other way.
    pub fn is_policy(text: &str) -> bool {
        let first = text.split_whitespace().next().unwrap_or_default();
        ![BARE, "env", "attach"].contains(&first) && !LAUNCHING.contains(&first)
    }
}

/// `policy` with `seed`; `None` if the policy lacks this setting, or any setting is given.
fn seeded(policy: &str, seed: u64) -> Option<String> {
    if policy.contains(':') {
        return None;
    }
    let mut spec: PolicySpec = policy.parse().ok()?;
    spec.set("seed", &seed.to_string()).ok()?;
    Some(spec.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ways() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(RunMethod::of("bare", 1), RunMethod::Prefix(Vec::new()));
        assert_eq!(RunMethod::of("env A=1 nice", 1), RunMethod::Prefix(words("env A=1 nice")));
        assert_eq!(RunMethod::of("os", 1), RunMethod::Launch(words("run --policy os")));
        assert_eq!(
            RunMethod::of("random", 7),
            RunMethod::Launch(words("run --policy random:seed=7"))
        );
        assert_eq!(
            RunMethod::of("schedule --policy os", 1),
            RunMethod::Launch(words("schedule --policy os"))
        );
        assert_eq!(
            RunMethod::of("attach --policy os", 1),
            RunMethod::Attach(words("attach --policy os"))
        );
        assert!(RunMethod::is_policy("scatter") && !RunMethod::is_policy("run --policy scatter"));
    }
}
