//! Limits of a process on a machine: affinity mask, cpuset and CPU quota.

use crate::cpulist::PuSet;
use crate::ids::PuIdx;
use crate::machine::Machine;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// CPU quota of a control group: CPU time per period, over all its PUs together.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuQuota {
    /// CPU time per period. Never 0.
    pub time_ns: Nanos,
    /// Length of the period. Never 0.
    pub period_ns: Nanos,
}

impl CpuQuota {
    /// Number of PUs that the quota keeps busy: 1.5 is one and a half.
    #[must_use]
    pub fn pus(self) -> f64 {
        self.time_ns.as_secs_f64() / self.period_ns.as_secs_f64()
    }

    /// Converts from microseconds, the kernel's unit; `None` without a limit, a time of -1.
    #[must_use]
    pub fn from_micros(time: i64, period: u64) -> Option<Self> {
        let [time_ns, period_ns] = [u64::try_from(time).ok()?, period]
            .map(|micros| micros.checked_mul(1_000).filter(|&ns| ns > 0).map(Nanos));
        Some(Self { time_ns: time_ns?, period_ns: period_ns? })
    }

    /// Orders quotas by the number of PUs, tightest first.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        // The ratios are compared exactly, by multiplication across.
        let [time, period] = [self.time_ns, self.period_ns].map(|ns| u128::from(ns.0));
        (time * u128::from(other.period_ns.0)).cmp(&(u128::from(other.time_ns.0) * period))
    }
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} PUs ({} every {})", self.pus(), self.time_ns, self.period_ns)
    }
}

/// Limits of a process and the PUs they leave.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usable {
    /// Inherited affinity mask; `None` if unreadable.
    pub affinity: Option<PuSet>,
    /// Cpuset of the control group; `None` if absent, or if it excludes no PU.
    pub cpuset: Option<PuSet>,
    /// Least CPU quota of the control group and its ancestors; `None` without a quota.
    pub quota: Option<CpuQuota>,
    /// Online PUs in both mask and cpuset, in logical order.
    pub pus: Vec<PuIdx>,
}

impl Usable {
    /// Applies limits to `machine`.
    #[must_use]
    pub fn within(
        machine: &Machine,
        affinity: Option<PuSet>,
        cpuset: Option<PuSet>,
        quota: Option<CpuQuota>,
    ) -> Self {
        // A cpuset that excludes no PU is no limit.
        let cpuset = cpuset.filter(|set| machine.pus.iter().any(|pu| !set.contains(pu.os)));
        let pus = machine.all_pus().filter(|pu| {
            let os = machine.pus[pu.idx()].os;
            [&affinity, &cpuset].into_iter().flatten().all(|set| set.contains(os))
        });
        let pus = pus.collect();
        Self { affinity, cpuset, quota, pus }
    }
}
