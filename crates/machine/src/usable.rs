//! What a process may use of a machine: its affinity mask, its cpuset, its CPU quota.

use crate::cpulist::PuSet;
use crate::ids::PuIdx;
use crate::machine::Machine;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// CPU time that a control group may use in each period, over all its PUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuQuota {
    /// CPU time per period. Never 0.
    pub time_ns: Nanos,
    /// The period. Never 0.
    pub period_ns: Nanos,
}

impl CpuQuota {
    /// How many PUs the quota keeps busy: 1.5 is one PU and half of another.
    #[must_use]
    pub fn pus(self) -> f64 {
        self.time_ns.as_secs_f64() / self.period_ns.as_secs_f64()
    }

    /// From microseconds, the kernel's unit, -1 for no limit; `None` without a limit.
    #[must_use]
    pub fn from_micros(time: i64, period: u64) -> Option<Self> {
        let nanos = |micros: u64| micros.checked_mul(1_000).filter(|&ns| ns > 0).map(Nanos);
        let time_ns = nanos(u64::try_from(time).ok()?)?;
        Some(Self { time_ns, period_ns: nanos(period)? })
    }

    /// Which quota is the tighter one.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        let cross = |a: Nanos, b: Nanos| u128::from(a.0) * u128::from(b.0);
        cross(self.time_ns, other.period_ns).cmp(&cross(other.time_ns, self.period_ns))
    }
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} PUs ({} every {})", self.pus(), self.time_ns, self.period_ns)
    }
}

/// What a process may use of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usable {
    /// The inherited affinity mask, or `None` if it cannot be read.
    pub affinity: Option<PuSet>,
    /// PUs of the control group's cpuset, or `None` if there is none or it leaves out no PU.
    pub cpuset: Option<PuSet>,
    /// The least CPU quota of the control group and its ancestors, or `None` without one.
    pub quota: Option<CpuQuota>,
    /// The machine's online PUs that mask and cpuset leave, in logical order.
    pub pus: Vec<PuIdx>,
}

impl Usable {
    /// What these limits leave of `machine`.
    #[must_use]
    pub fn within(
        machine: &Machine,
        affinity: Option<PuSet>,
        cpuset: Option<PuSet>,
        quota: Option<CpuQuota>,
    ) -> Self {
        let limits = |set: &PuSet| machine.pus.iter().any(|pu| !set.contains(pu.os));
        let cpuset = cpuset.filter(limits);
        let allowed = |pu: &PuIdx| {
            let os = machine.pus[pu.idx()].os;
            [&affinity, &cpuset].into_iter().flatten().all(|set| set.contains(os))
        };
        let pus = machine.all_pus().filter(allowed).collect();
        Self { affinity, cpuset, quota, pus }
    }
}
