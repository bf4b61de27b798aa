//! Policies on the command line: values, completions and help from their table.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use colocate_policy::table::{
    self, Cadence, PolicyRow, Prior, Purpose, Setting, did_you_mean, listed,
};
use colocate_policy::{PolicySpec, SpecError};
use std::ffi::OsStr;
use std::fmt::Write;

/// Parser of policies, restricted to the decisions of a command: once or each quantum.
#[derive(Clone, Copy)]
pub enum Policies {
    /// `run`: policies that decide once.
    Once,
    /// `plan`: policies that decide once, also those for described machines only.
    Planned,
    /// `schedule`: policies that decide each quantum.
    EachQuantum,
}

impl Policies {
    fn has(self, row: &PolicyRow) -> bool {
        let decides = match self {
            Self::Once | Self::Planned => row.cadence.once(),
            Self::EachQuantum => row.cadence.each_quantum(),
        };
        decides && row.purpose != Purpose::Simulated
    }

    /// Whether help lists the policy: not if the command rejects it on every real machine.
    fn offers(self, row: &PolicyRow) -> bool {
        self.has(row) && !(matches!(self, Self::Once) && row.prior.contains(&Prior::Speeds))
    }

    /// Parses the policy in `text`.
    pub fn read(self, text: &str) -> Result<PolicySpec, String> {
        let names: Vec<&str> =
            table::rows().filter(|row| self.offers(row)).map(|row| row.name).collect();
        let (when, other) = match self {
            Self::Once | Self::Planned => ("once", "schedule"),
            Self::EachQuantum => ("each quantum", "run"),
        };
        match text.parse::<PolicySpec>() {
            Ok(spec) if self.has(spec.row()) => Ok(spec),
            Ok(spec) if spec.row().purpose == Purpose::Simulated => Err(format!(
                "expected a policy for real machines, {}, found {}, which is for `colocate-study simulate`",
                listed(&names),
                spec.name()
            )),
            Ok(spec) => Err(format!(
                "expected a policy that decides {when}, {}, found {}, which is for `colocate {other}`",
                listed(&names),
                spec.name()
            )),
            Err(SpecError::Name(found)) => {
                let meant = did_you_mean(&found, &names);
                Err(format!("expected {}, found policy {found:?}{meant}", listed(&names)))
            }
            Err(setting) => Err(setting.to_string()),
        }
    }
}

impl TypedValueParser for Policies {
    type Value = PolicySpec;

    fn parse_ref(
        &self,
        cmd: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<PolicySpec, Error> {
        let what = *self;
        TypedValueParser::parse_ref(&move |text: &str| what.read(text), cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let what = *self;
        let rows = table::rows().filter(move |row| what.offers(row));
        Some(Box::new(rows.map(|row| PossibleValue::new(row.name).help(help(row)))))
    }
}

/// Help of `--policy`: the policies by purpose. `default` is appended to the first line.
pub fn by_purpose(of: Policies, default: &str) -> String {
    let mut text = format!("Policy, with its settings as NAME:SETTING=VALUE:...{default}");
    for purpose in Purpose::REAL {
        let _ = write!(text, "\n\n{}:", purpose.heading());
        let rows = table::rows().filter(|row| row.purpose == purpose);
        for row in rows.filter(|row| of.offers(row)) {
            let _ = write!(text, "\n  {:<20}  {}", row.name, help(row));
        }
    }
    text
}

/// Advice on policies for `run` and `attach`, in five lines.
pub const WHICH_ONCE: &str = "\
Which policy:
  auto           servers, pipelines and their clients; in doubt
  mix            programs that compute, on cores with several PUs
  communication  one program whose many threads exchange data
  kmaf           memory on several nodes; with dino threads move, too
  os             the kernel alone, for comparison";

/// Advice on policies for `schedule`.
pub const WHICH_EACH_QUANTUM: &str = "\
Which policy:
  round-robin        more programs than PUs, where nothing is counted
  bas                programs with much traffic to memory; needs counters
  fair               programs that are to come equally far; needs counters
  symbiotic          cores with several PUs; needs counters, and train cpi-model
  parallelism-aware  fast and slow cores";

/// The table of policies as Markdown: one row each, with settings.
pub fn markdown() -> String {
    let mut text = "| policy | what it does | for | decides | has to know | settings | source |\n|---|---|---|---|---|---|---|\n".to_owned();
    for row in table::rows() {
        let settings: Vec<String> = row.settings.iter().map(setting).collect();
        let settings = or_none(settings, "; ");
        let when = match row.cadence {
            Cadence::Once => "once",
            Cadence::EachQuantum => "each quantum",
            Cadence::Either => "either",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {when} | {} | {settings} | {} |",
            row.name,
            row.summary,
            row.purpose.heading().to_lowercase(),
            or_none(row.prior.iter().map(|prior| name_of(*prior).to_owned()).collect(), ", "),
            row.source
        );
    }
    text
}

fn or_none(words: Vec<String>, between: &str) -> String {
    if words.is_empty() { "–".to_owned() } else { words.join(between) }
}

/// Key in a workload file or option with this prior knowledge.
const fn name_of(prior: Prior) -> &'static str {
    match prior {
        Prior::Solo => "`alone`",
        Prior::CpiModel => "`model`",
        Prior::Speeds => "how fast the machine is",
        Prior::Demands => "`demand`",
        Prior::Courses => "simulations only",
    }
}

fn setting(setting: &Setting) -> String {
    let default = setting.default.as_ref();
    let default = default.map_or_else(String::new, |value| format!(", default {value}"));
    format!("`{}`: {}{default}", setting.range(), setting.meaning)
}

/// Summary of a policy, with its settings.
fn help(row: &PolicyRow) -> String {
    let settings: Vec<&str> = row.settings.iter().map(|setting| setting.name).collect();
    match settings[..] {
        [] => row.summary.to_owned(),
        _ => format!("{}; settings: {}", row.summary, settings.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lacks_what_is_always_refused() {
        let listed = |what: Policies| -> Vec<String> {
            what.possible_values().unwrap().map(|value| value.get_name().to_owned()).collect()
        };
        let has = |what, name: &str| listed(what).iter().any(|it| it == name);
        assert!(
            !has(Policies::Once, "symbiosis-model") && has(Policies::Planned, "symbiosis-model")
        );
        assert!(!has(Policies::EachQuantum, "fair-oracle") && has(Policies::EachQuantum, "fair"));
    }

    /// Five lines each, of policies that the command takes.
    #[test]
    fn advice_names_policies_that_are_taken() {
        for (what, advice) in
            [(Policies::Once, WHICH_ONCE), (Policies::EachQuantum, WHICH_EACH_QUANTUM)]
        {
            assert_eq!(advice.lines().count(), 6);
            for line in advice.lines().skip(1) {
                let name = line.split_whitespace().next().unwrap();
                assert!(what.read(name).is_ok_and(|spec| what.offers(spec.row())), "{name}");
            }
        }
    }

    #[test]
    fn each_command_takes_its_own() {
        assert_eq!(Policies::Once.read("mix"), Ok(PolicySpec::named("mix")));
        assert_eq!(Policies::EachQuantum.read("os"), Ok(PolicySpec::named("os")));
        let refused = Policies::Once.read("bas").unwrap_err();
        assert!(
            refused.starts_with("expected a policy that decides once, os, auto, round-robin, ")
        );
        assert!(refused.ends_with(" or kmaf, found bas, which is for `colocate schedule`"));
        let refused = Policies::EachQuantum.read("mix").unwrap_err();
        assert!(refused.ends_with("found mix, which is for `colocate run`"), "{refused}");
    }
}
