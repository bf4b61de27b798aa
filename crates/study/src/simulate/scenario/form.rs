//! The form of a scenario file: names of its keys, and notation of its values.

use crate::simulate::contender::Contender;
use colocate_machine::cpulist::PuSet;
use colocate_machine::{Bytes, Nanos};
use colocate_model::{Mix, Phase};
use colocate_sim::Method;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;
use toml::Spanned;

/// A scenario file as written. Checked values have their place in the text, for messages.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ScenarioForm {
    pub version: Spanned<u32>,
    pub name: Spanned<String>,
    pub note: Option<String>,
    pub machine: Spanned<String>,
    pub cpus: Option<Spanned<Text<PuSet>>>,
    pub policies: Option<Spanned<Vec<Spanned<Contender>>>>,
    pub baseline: Option<Spanned<Contender>>,
    pub seed: Option<u64>,
    pub seeds: Option<Spanned<u32>>,
    pub draws: Option<Spanned<u32>>,
    pub profiled: Option<bool>,
    pub watch: Option<Spanned<Text<Nanos>>>,
    pub method: Option<Method>,
    pub quantum: Option<Spanned<Text<Nanos>>>,
    pub grain: Option<Text<Nanos>>,
    pub horizon: Option<Spanned<Text<Nanos>>>,
    pub kernel: Option<KernelForm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event: Vec<Spanned<EventForm>>,
    #[serde(default)]
    pub phase: Vec<Spanned<PhaseForm>>,
    #[serde(default)]
    pub job: Vec<Spanned<JobForm>>,
}

/// `[[event]]`: CPUs going offline or coming back.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct EventForm {
    pub at: Text<Nanos>,
    pub offline: Option<Spanned<Text<PuSet>>>,
    pub online: Option<Spanned<Text<PuSet>>>,
}

/// `[[phase]]`: a phase of threads.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PhaseForm {
    pub name: Spanned<String>,
    pub file: Option<Spanned<String>>,
    pub phase: Option<Spanned<String>>,
    pub demand: Option<Spanned<Phase>>,
    pub mix: Option<Mix>,
}

/// `[[job]]`: a program.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct JobForm {
    pub name: Spanned<String>,
    pub copies: Option<Spanned<u32>>,
    pub arrives: Option<Text<Nanos>>,
    pub barrier: Option<Spanned<BarrierForm>>,
    #[serde(default)]
    pub thread: Vec<Spanned<ThreadForm>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<Spanned<MemoryForm>>,
}

/// `[[job.memory]]`: memory shared by the job's threads, or a memory for each.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MemoryForm {
    pub size: Spanned<Text<Bytes>>,
    pub share: f64,
    pub writes: Option<f64>,
    pub each: Option<bool>,
    pub pages: Option<Spanned<String>>,
    pub parts: Option<Spanned<u32>>,
    pub fetch: Option<FetchForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FetchForm {
    Move,
    MoveAndStay,
}

/// `barrier` of a job: how its threads wait for each other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BarrierForm {
    pub wait: WaitForm,
    pub spins: Option<Spanned<String>>,
    pub turns: Option<Spanned<u32>>,
    pub serial: Option<SerialForm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WaitForm {
    Sleep,
    Spin,
    Turns,
    Served,
}

/// `barrier.serial` of a job: work of one thread at a barrier while the others wait.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SerialForm {
    pub phase: Spanned<String>,
    pub instructions: Spanned<u64>,
}

/// `[[job.thread]]`: threads with the same work.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ThreadForm {
    pub name: Option<Spanned<String>>,
    pub copies: Option<Spanned<u32>>,
    pub born: Option<Text<Nanos>>,
    pub phase: Option<Spanned<String>>,
    pub course: Option<Spanned<Vec<Spanned<StretchForm>>>>,
    pub instructions: Option<Spanned<u64>>,
    pub alone_for: Option<Spanned<Text<Nanos>>>,
    pub pages: Option<Spanned<String>>,
    pub resident: Option<Text<Bytes>>,
}

/// An entry of a `course`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StretchForm {
    pub phase: Spanned<String>,
    pub instructions: Spanned<u64>,
    pub sleep: Option<Text<Nanos>>,
    pub barrier: Option<Spanned<bool>>,
}

/// `[kernel]`: scheduling of unpinned threads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KernelForm {
    pub slice: Option<Spanned<Text<Nanos>>>,
    pub stagger: Option<Spanned<u32>>,
    pub fork: Option<ForkForm>,
    pub reclaim_distance: Option<Spanned<u32>>,
    pub wake: Option<WakeForm>,
    pub wake_recent: Option<Spanned<bool>>,
    pub wake_affine: Option<Spanned<bool>>,
    pub wake_sync: Option<Spanned<bool>>,
    pub wake_load: Option<Spanned<bool>>,
    pub wake_wide: Option<Spanned<bool>>,
    pub idle_balance: Option<bool>,
    pub periodic_balance: Option<bool>,
    pub balance_interval_per_pu: Option<Spanned<Text<Nanos>>>,
    pub balance_patience: Option<Spanned<u32>>,
    pub balance_busy_factor: Option<Spanned<u32>>,
    pub balance_percent: Option<Spanned<u32>>,
    pub numa_balancing: Option<bool>,
    pub numa_period: Option<Spanned<Text<Nanos>>>,
    pub numa_scan: Option<Spanned<Text<Bytes>>>,
    pub numa_moves_threads: Option<Spanned<bool>>,
    pub numa_fault: Option<Spanned<Text<Nanos>>>,
    pub page_copy: Option<Text<Nanos>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ForkForm {
    WithParent,
    Idlest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WakeForm {
    Previous,
    IdlePu,
    IdleCore,
}

/// A quantity written as text with its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text<T>(pub T);

impl<'de, T: FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<T: Exactly> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.exactly())
    }
}

/// Exact notation, read again as the same value; notation for people is rounded.
pub(super) trait Exactly {
    fn exactly(&self) -> String;
}

/// `number` in the largest of `units` that divides it; the last unit is 1.
fn in_largest(number: u64, units: &[(u64, &str)]) -> String {
    // 0 is a multiple of every unit; it gets the last one.
    let fitting = units.iter().find(|(scale, _)| number >= *scale && number.is_multiple_of(*scale));
    let (scale, unit) = fitting.or(units.last()).copied().unwrap_or((1, ""));
    format!("{} {unit}", number / scale)
}

impl Exactly for Nanos {
    fn exactly(&self) -> String {
        in_largest(self.0, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
    }
}

impl Exactly for Bytes {
    fn exactly(&self) -> String {
        in_largest(self.0, &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
    }
}

impl Exactly for PuSet {
    fn exactly(&self) -> String {
        self.to_string()
    }
}
