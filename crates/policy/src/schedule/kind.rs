//! Which scheduler, as people write it, and what it has to know beforehand.

use super::Scheduler;
use super::all_fast_first::AllFastFirst;
use super::bas::Bas;
use super::baselines::{Os, Random, RoundRobin};
use super::efficiency::{self, Efficiency};
use super::fair::{Fair, Mixing};
use super::idas::{self, Idas};
use super::l1::{L1Dynamic, L1Static};
use super::mhas::Mhas;
use super::mmas::Mmas;
use super::oracle::Oracle;
use super::parallelism_aware::{self, ParallelismAware};
use super::phases::Hysteresis;
use super::progress::Estimating;
use super::symbiotic::{self, Aim, Symbiotic};
use super::symbiotic_numa::{self, Homes};
use super::utility::Utility;
use colocate_machine::Performance;
use colocate_model::{CpiModel, Phase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is known of a job from runs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Alone {
    /// How long it takes, in seconds.
    pub seconds: f64,
    /// Its requests to main memory on average, in transactions per microsecond.
    pub memory: f64,
    /// Its requests to the first cache on average, in transactions per microsecond, all threads together.
    #[serde(default)]
    pub first_cache: f64,
    /// The share of its speed that it loses for each t/µs that others ask of the memory.
    #[serde(default)]
    pub loss: f64,
}

/// What is known before the first quantum. Only schedulers that need a part look at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knowledge<'a> {
    /// What is known of the jobs alone, by job.
    pub alone: &'a [Alone],
    /// What becomes of CPI stacks on a shared core of this machine; without it
    /// [`CpiModel::built_in`], which is that of another.
    pub cpi: Option<&'a CpiModel>,
    /// What each job demands, by job: for the oracle, and where speed-up factors are asked for.
    pub demands: &'a [Phase],
    /// How fast the machine is, for the same.
    pub performance: Option<&'a Performance>,
}

/// A scheduler with its settings, written `NAME` or `NAME:SETTING=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SchedulerKind {
    /// Lets everything run and leaves it to the kernel.
    Os,
    /// Who has waited longest, PUs far apart first.
    RoundRobin,
    /// Drawn by a seeded generator.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Main-memory bandwidth-aware.
    Mmas,
    /// Memory-hierarchy bandwidth-aware.
    Mhas,
    /// IPC-degradation-aware.
    Idas {
        /// Scale of the penalties, see [`idas`].
        kappa: f64,
    },
    /// First-cache bandwidth-aware by averages of runs alone.
    L1Static,
    /// First-cache bandwidth-aware by the last quantum.
    L1Dynamic,
    /// Bandwidth-aware without anything known beforehand.
    Bas,
    /// Progress-aware: who has come least far runs.
    Fair(Estimating),
    /// Progress-aware for some of the contexts, bandwidth-aware for the others.
    PerfFair {
        /// How both are mixed.
        mixing: Mixing,
        /// As for `fair`.
        estimating: Estimating,
    },
    /// Who shares a core slows each other down least, as CPI stacks foretell.
    Symbiotic(symbiotic::Settings),
    /// The same, with an eye on where memory is.
    SymbioticNuma {
        /// As for `symbiotic`.
        settings: symbiotic::Settings,
        /// How much a longer way to memory counts, see [`symbiotic_numa`].
        away: f64,
    },
    /// The best places that the contention model knows.
    Oracle,
    /// Serial phases on fast cores.
    ParallelismAware(parallelism_aware::Settings),
    /// Fast cores to who gains most from them.
    Efficiency(efficiency::Settings),
    /// Fast cores to who is of most use there, with an eye on how many run beside them.
    Utility(Hysteresis),
    /// Fast cores before slow ones.
    AllFastFirst,
}

const SYMBIOTIC: symbiotic::Settings = symbiotic::Settings::USUAL;

impl SchedulerKind {
    /// Every scheduler with its default settings, in the order of this list.
    pub const ALL: [Self; 18] = [
        Self::Os,
        Self::RoundRobin,
        Self::Random { seed: 0 },
        Self::Mmas,
        Self::Mhas,
        Self::Idas { kappa: idas::KAPPA },
        Self::L1Static,
        Self::L1Dynamic,
        Self::Bas,
        Self::Fair(Estimating::USUAL),
        Self::PerfFair { mixing: Mixing::PERF_FAIR, estimating: Estimating::USUAL },
        Self::Symbiotic(SYMBIOTIC),
        Self::SymbioticNuma { settings: SYMBIOTIC, away: symbiotic_numa::AWAY },
        Self::Oracle,
        Self::ParallelismAware(parallelism_aware::Settings::USUAL),
        Self::Efficiency(efficiency::Settings::USUAL),
        Self::Utility(Hysteresis::USUAL),
        Self::AllFastFirst,
    ];

    /// Its name without settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::RoundRobin => "round-robin",
            Self::Random { .. } => "random",
            Self::Mmas => "mmas",
            Self::Mhas => "mhas",
            Self::Idas { .. } => "idas",
            Self::L1Static => "l1-static",
            Self::L1Dynamic => "l1-dynamic",
            Self::Bas => "bas",
            Self::Fair(_) => "fair",
            Self::PerfFair { .. } => "perf-fair",
            Self::Symbiotic(_) => "symbiotic",
            Self::SymbioticNuma { .. } => "symbiotic-numa",
            Self::Oracle => "oracle",
            Self::ParallelismAware(_) => "parallelism-aware",
            Self::Efficiency(_) => "efficiency",
            Self::Utility(_) => "utility",
            Self::AllFastFirst => "all-fast-first",
        }
    }

    /// Whether it lets all jobs run all the time, also more threads than there are PUs.
    #[must_use]
    pub const fn runs_all(self) -> bool {
        match self {
            Self::Os
            | Self::ParallelismAware(_)
            | Self::Efficiency(_)
            | Self::Utility(_)
            | Self::AllFastFirst => true,
            Self::RoundRobin
            | Self::Random { .. }
            | Self::Mmas
            | Self::Mhas
            | Self::Idas { .. }
            | Self::L1Static
            | Self::L1Dynamic
            | Self::Bas
            | Self::Fair(_)
            | Self::PerfFair { .. }
            | Self::Symbiotic(_)
            | Self::SymbioticNuma { .. }
            | Self::Oracle => false,
        }
    }

    /// Whether it has to know the jobs alone, which takes runs beforehand.
    #[must_use]
    pub const fn needs_alone(self) -> bool {
        matches!(self, Self::Mmas | Self::Mhas | Self::Idas { .. } | Self::L1Static)
    }

    /// Whether it looks at coefficients of the machine (`colocate train cpi-model`).
    #[must_use]
    pub const fn needs_cpi_model(self) -> bool {
        matches!(self, Self::Symbiotic(_) | Self::SymbioticNuma { .. })
    }

    /// The scheduler. `alone` is what is known of the jobs alone, by job; only those that need it look at it.
    #[must_use]
    pub fn scheduler(self, alone: &[Alone]) -> Box<dyn Scheduler> {
        self.scheduler_knowing(&Knowledge { alone, ..Knowledge::default() })
    }

    /// The scheduler with all that is known.
    #[must_use]
    pub fn scheduler_knowing(self, known: &Knowledge<'_>) -> Box<dyn Scheduler> {
        let alone = known.alone;
        let demands = || Some((known.performance?.clone(), known.demands.to_vec()));
        let cpi = || Some(known.cpi.cloned().unwrap_or_else(CpiModel::built_in));
        match self {
            Self::Os => Box::new(Os),
            Self::RoundRobin => Box::new(RoundRobin),
            Self::Random { seed } => Box::new(Random::new(seed)),
            Self::Mmas => Box::new(Mmas { alone: alone.to_vec() }),
            Self::Mhas => Box::new(Mhas { alone: alone.to_vec() }),
            Self::Idas { kappa } => Box::new(Idas::new(alone.to_vec(), kappa)),
            Self::L1Static => {
                Box::new(L1Static { rates: alone.iter().map(|job| job.first_cache).collect() })
            }
            Self::L1Dynamic => Box::new(L1Dynamic),
            Self::Bas => Box::new(Bas),
            Self::Fair(estimating) => Box::new(Fair::new(Mixing::FAIR, estimating)),
            Self::PerfFair { mixing, estimating } => Box::new(Fair::new(mixing, estimating)),
            Self::Symbiotic(settings) => Box::new(Symbiotic::new(cpi(), settings)),
            Self::SymbioticNuma { settings, away } => {
                let homes = Homes::new(away);
                Box::new(Symbiotic::with_homes(cpi(), settings, homes))
            }
            Self::Oracle => {
                Box::new(Oracle::new(known.performance.cloned(), known.demands.to_vec()))
            }
            Self::ParallelismAware(settings) => Box::new(ParallelismAware::new(settings)),
            Self::Efficiency(settings) => Box::new(Efficiency::new(settings, demands())),
            Self::Utility(hysteresis) => Box::new(Utility::new(hysteresis, demands())),
            Self::AllFastFirst => Box::<AllFastFirst>::default(),
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Random { seed } => write!(f, ":seed={seed}"),
            Self::Idas { kappa } => write!(f, ":kappa={kappa}"),
            Self::Fair(estimating) => write_estimating(f, estimating),
            Self::PerfFair { mixing, estimating } => {
                write!(f, ":share={}", mixing.share)?;
                if mixing.limit.to_bits() != Mixing::PERF_FAIR.limit.to_bits() {
                    write!(f, ":limit={}", mixing.limit)?;
                }
                write_estimating(f, estimating)
            }
            Self::Symbiotic(settings) => write_symbiotic(f, settings),
            Self::SymbioticNuma { settings, away } => {
                write_symbiotic(f, settings)?;
                let other = away.to_bits() != symbiotic_numa::AWAY.to_bits();
                if other { write!(f, ":away={away}") } else { Ok(()) }
            }
            Self::ParallelismAware(settings) => settings.write(f),
            Self::Efficiency(settings) => settings.write(f),
            Self::Utility(hysteresis) => hysteresis.write(f),
            _ => Ok(()),
        }
    }
}

/// Those settings that are not as usual.
fn write_symbiotic(f: &mut fmt::Formatter<'_>, settings: &symbiotic::Settings) -> fmt::Result {
    let symbiotic::Settings { aim, weight, gain } = *settings;
    if aim != SYMBIOTIC.aim {
        write!(f, ":cost={}", aim.name())?;
    }
    if weight.to_bits() != SYMBIOTIC.weight.to_bits() {
        write!(f, ":weight={weight}")?;
    }
    if gain.to_bits() != SYMBIOTIC.gain.to_bits() {
        write!(f, ":gain={gain}")?;
    }
    Ok(())
}

/// Those settings that are not as usual.
fn write_estimating(f: &mut fmt::Formatter<'_>, settings: &Estimating) -> fmt::Result {
    let Estimating { valid, soon, at_once, light, apart } = *settings;
    let usual = Estimating::USUAL;
    let quanta = [("valid", valid, usual.valid), ("soon", soon, usual.soon)];
    for (name, value, usual) in quanta.into_iter().chain([("apart", apart, usual.apart)]) {
        if value != usual {
            write!(f, ":{name}={value}")?;
        }
    }
    let shares = [("at-once", at_once, usual.at_once), ("light", light, usual.light)];
    for (name, value, usual) in shares {
        if value.to_bits() != usual.to_bits() {
            write!(f, ":{name}={value}")?;
        }
    }
    Ok(())
}

/// Sets one of the settings; whether there is such a setting and the value can be.
fn set_estimating(settings: &mut Estimating, name: &str, value: &str) -> bool {
    let count: Option<u32> = value.parse().ok();
    let share: Option<f64> = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    match (name, count, share) {
        ("valid", Some(quanta), _) if quanta > 0 => settings.valid = quanta,
        ("soon", Some(quanta), _) => settings.soon = quanta,
        ("apart", Some(quanta), _) if quanta > 0 => settings.apart = quanta,
        ("at-once", _, Some(share)) => settings.at_once = share,
        ("light", _, Some(share)) => settings.light = share,
        _ => return false,
    }
    true
}

/// The same of `perf-fair`.
fn set_mixing(mixing: &mut Mixing, name: &str, value: &str) -> bool {
    match (name, value.parse::<f64>()) {
        ("share", Ok(share)) if (0.0..1.0).contains(&share) => mixing.share = share,
        ("limit", Ok(limit)) if limit >= 1.0 => mixing.limit = limit,
        _ => return false,
    }
    true
}

/// Sets one of the settings; whether there is such a setting and the value can be.
fn set_symbiotic(settings: &mut symbiotic::Settings, name: &str, value: &str) -> bool {
    let number: Option<f64> = value.parse().ok().filter(|number: &f64| number.is_finite());
    match (name, value, number) {
        ("cost", "stp", _) => settings.aim = Aim::Stp,
        ("cost", "antt", _) => settings.aim = Aim::Antt,
        ("weight", _, Some(weight)) if weight > 0.0 && weight <= 1.0 => settings.weight = weight,
        ("gain", _, Some(gain)) if gain >= 0.0 => settings.gain = gain,
        _ => return false,
    }
    true
}

/// Why a text is not a scheduler.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SchedulerError {
    /// None has this name.
    #[error("expected {}, found scheduler {found:?}", names())]
    Name {
        /// What the text says.
        found: String,
    },
    /// It has no such setting.
    #[error("expected {scheduler} with {expected}, found {found:?}")]
    Setting {
        /// The scheduler.
        scheduler: &'static str,
        /// The setting that it has.
        expected: &'static str,
        /// What the text says.
        found: String,
    },
}

fn names() -> String {
    let names: Vec<&str> = SchedulerKind::ALL.iter().map(|kind| kind.name()).collect();
    let (last, others) = names.split_last().expect("there are some");
    format!("{} or {last}", others.join(", "))
}

impl FromStr for SchedulerKind {
    type Err = SchedulerError;

    fn from_str(text: &str) -> Result<Self, SchedulerError> {
        let (name, setting) = match text.split_once(':') {
            Some((name, setting)) => (name, Some(setting)),
            None => (text, None),
        };
        let kind = Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| SchedulerError::Name { found: name.to_owned() })?;
        setting.map_or(Ok(kind), |setting| kind.with(setting))
    }
}

const SYMBIOTIC_SETTINGS: &str =
    "cost=stp or antt, weight=W above 0 and up to 1, gain=G not below 0, a colon between two";
const NUMA_SETTINGS: &str = "cost=stp or antt, weight=W above 0 and up to 1, gain=G and away=A not below 0, a colon between two";

const FAIR_SETTINGS: &str = "valid=N and apart=N quanta above 0, soon=N quanta, at-once=S and light=S from 0 to 1, a colon between two";
const PERF_FAIR_SETTINGS: &str = "share=F from 0 to less than 1, limit=U not below 1, valid=N and apart=N quanta above 0, soon=N quanta, at-once=S and light=S from 0 to 1, a colon between two";

/// Whether all settings of a text, with a colon between two, could be set.
fn each_setting(text: &str, mut set: impl FnMut(&str, &str) -> bool) -> bool {
    text.split(':').all(|one| one.split_once('=').is_some_and(|(name, value)| set(name, value)))
}

impl SchedulerKind {
    fn with(self, setting: &str) -> Result<Self, SchedulerError> {
        let wrong = |expected| SchedulerError::Setting {
            scheduler: self.name(),
            expected,
            found: setting.to_owned(),
        };
        match (self, setting.split_once('=')) {
            (Self::Random { .. }, Some(("seed", value))) => value
                .parse()
                .map(|seed| Self::Random { seed })
                .map_err(|_| wrong("seed=N, N from 0 to 18446744073709551615")),
            (Self::Random { .. }, _) => Err(wrong("seed=N")),
            (Self::Idas { .. }, Some(("kappa", value))) => value
                .parse()
                .ok()
                .filter(|kappa: &f64| kappa.is_finite() && *kappa >= 0.0)
                .map(|kappa| Self::Idas { kappa })
                .ok_or_else(|| wrong("kappa=K, K not below 0")),
            (Self::Idas { .. }, _) => Err(wrong("kappa=K")),
            (Self::Fair(mut estimating), _) => {
                let set = |name: &str, value: &str| set_estimating(&mut estimating, name, value);
                let done = each_setting(setting, set);
                if done { Ok(Self::Fair(estimating)) } else { Err(wrong(FAIR_SETTINGS)) }
            }
            (Self::PerfFair { mut mixing, mut estimating }, _) => {
                let set = |name: &str, value: &str| {
                    set_mixing(&mut mixing, name, value)
                        || set_estimating(&mut estimating, name, value)
                };
                let done = each_setting(setting, set);
                let kind = Self::PerfFair { mixing, estimating };
                if done { Ok(kind) } else { Err(wrong(PERF_FAIR_SETTINGS)) }
            }
            (Self::Symbiotic(mut settings), _) => {
                let set = |name: &str, value: &str| set_symbiotic(&mut settings, name, value);
                let done = each_setting(setting, set);
                if done { Ok(Self::Symbiotic(settings)) } else { Err(wrong(SYMBIOTIC_SETTINGS)) }
            }
            (Self::SymbioticNuma { mut settings, mut away }, _) => {
                let set = |name: &str, value: &str| match (name, value.parse::<f64>()) {
                    ("away", Ok(found)) if found.is_finite() && found >= 0.0 => {
                        away = found;
                        true
                    }
                    _ => set_symbiotic(&mut settings, name, value),
                };
                let done = each_setting(setting, set);
                let kind = Self::SymbioticNuma { settings, away };
                if done { Ok(kind) } else { Err(wrong(NUMA_SETTINGS)) }
            }
            (Self::ParallelismAware(mut settings), _) => {
                let set = |name: &str, value: &str| settings.set(name, value);
                let done = each_setting(setting, set) && settings.hysteresis.is_valid();
                let expected = parallelism_aware::Settings::EXPECTED;
                if done { Ok(Self::ParallelismAware(settings)) } else { Err(wrong(expected)) }
            }
            (Self::Efficiency(mut settings), _) => {
                let done = each_setting(setting, |name, value| settings.set(name, value));
                let expected = efficiency::Settings::EXPECTED;
                if done { Ok(Self::Efficiency(settings)) } else { Err(wrong(expected)) }
            }
            (Self::Utility(mut hysteresis), _) => {
                let set = |name: &str, value: &str| hysteresis.set(name, value);
                let done = each_setting(setting, set) && hysteresis.is_valid();
                let expected = Hysteresis::EXPECTED;
                if done { Ok(Self::Utility(hysteresis)) } else { Err(wrong(expected)) }
            }
            _ => Err(wrong("no setting")),
        }
    }
}

impl TryFrom<String> for SchedulerKind {
    type Error = SchedulerError;
    fn try_from(text: String) -> Result<Self, SchedulerError> {
        text.parse()
    }
}

impl From<SchedulerKind> for String {
    fn from(kind: SchedulerKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let settings = symbiotic::Settings { aim: Aim::Antt, weight: 1.0, gain: 0.0 };
        let hysteresis = Hysteresis { serial: 2.0, parallel: 3.5, confirm: 3 };
        let more = [
            SchedulerKind::ParallelismAware(parallelism_aware::Settings {
                hysteresis,
                cost: 0.0,
                spare: false,
            }),
            SchedulerKind::Efficiency(efficiency::Settings { gain: 0.0 }),
            SchedulerKind::Utility(Hysteresis { confirm: 2, ..hysteresis }),
            SchedulerKind::Random { seed: u64::MAX },
            SchedulerKind::Idas { kappa: 0.1 },
            SchedulerKind::Symbiotic(settings),
            SchedulerKind::SymbioticNuma { settings, away: 0.25 },
            SchedulerKind::Fair(Estimating { valid: 1, soon: 0, ..Estimating::USUAL }),
            SchedulerKind::PerfFair {
                mixing: Mixing { share: 0.25, limit: f64::INFINITY },
                estimating: Estimating { at_once: 0.1, light: 0.0, apart: 3, ..Estimating::USUAL },
            },
        ];
        for kind in SchedulerKind::ALL.into_iter().chain(more) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn refuses_with_one_line() {
        let refusal = |text: &str| text.parse::<SchedulerKind>().unwrap_err().to_string();
        assert_eq!(
            refusal("best"),
            "expected os, round-robin, random, mmas, mhas, idas, l1-static, l1-dynamic, bas, fair, perf-fair, symbiotic, symbiotic-numa, oracle, parallelism-aware, efficiency, utility or all-fast-first, found scheduler \"best\""
        );
        assert_eq!(refusal("bas:seed=1"), "expected bas with no setting, found \"seed=1\"");
        assert_eq!(
            refusal("idas:kappa=-1"),
            "expected idas with kappa=K, K not below 0, found \"kappa=-1\""
        );
        let odd = [
            "symbiotic:weight=0",
            "symbiotic:cost=ipc",
            "symbiotic:gain=-1:cost=stp",
            "symbiotic:",
            "symbiotic:away=1",
        ];
        for text in odd {
            let (_, setting) = text.split_once(':').unwrap();
            let wanted = format!("expected symbiotic with {SYMBIOTIC_SETTINGS}, found {setting:?}");
            assert_eq!(refusal(text), wanted);
        }
        for text in ["fair:share=0.5", "fair:valid=0", "fair:light=1.5", "fair:"] {
            let (_, setting) = text.split_once(':').unwrap();
            assert_eq!(
                refusal(text),
                format!("expected fair with {FAIR_SETTINGS}, found {setting:?}")
            );
        }
        for text in ["perf-fair:share=1", "perf-fair:limit=0.9", "perf-fair:limit=NaN"] {
            assert!(refusal(text).starts_with("expected perf-fair with share=F"), "{text}");
        }
        assert!(refusal("symbiotic-numa:away=-1").contains("away=A not below 0"));
        let odd = ["serial=0.5", "serial=2", "confirm=0", "cost=-1", "spare=maybe", ""];
        for setting in odd {
            let said = refusal(&format!("parallelism-aware:{setting}"));
            assert!(said.starts_with("expected parallelism-aware with serial=N"), "{said}");
        }
        for text in
            ["efficiency:gain=-1", "efficiency:serial=1", "utility:cost=1", "utility:serial=9"]
        {
            let (name, _) = text.split_once(':').unwrap();
            assert!(refusal(text).starts_with(&format!("expected {name} with ")), "{text}");
        }
    }
}
