//! The kernel's scheduler as it is simulated: every rule of it can be switched.
//!
//! What is simulated are the rules of Linux's fair class (EEVDF, 6.6 and later; the placement and
//! balancing rules are those that CFS had), as far as they decide where threads run. All threads have the
//! same weight, but for those that fill idle PUs (`crate::filling`). Other classes, cgroups, real-time threads, CPU idle states and the kernel's own threads
//! are not simulated.

use crate::error::{ScenarioError, error};
use colocate_machine::{Bytes, Nanos};
use colocate_model::communication::WakeUpCosts;

/// How the kernel treats threads that are not pinned, and PUs on which several threads are runnable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    /// Time after which a thread gives its PU to another one that waits for it. Never 0.
    pub slice: Nanos,
    /// Into how many parts a slice is divided, a random one of which is where the slices of a PU end, from when
    /// several threads are runnable there. 1: slices that begin together end together, so that with two threads a PU
    /// the same threads run beside each other for ever. Never 0.
    pub stagger: u32,
    /// Where a new thread starts.
    pub fork: Fork,
    /// Where a thread wakes up.
    pub wake: Wake,
    /// Whether a PU that runs out of threads takes a waiting one from another PU at once.
    pub idle_balance: bool,
    /// Whether PUs with few threads, or none, take threads from PUs with many, time and again, and idle cores
    /// take one of two siblings.
    pub periodic_balance: Option<PeriodicBalance>,
    /// Whether pages and threads are moved towards each other (`kernel.numa_balancing`).
    pub numa_balancing: Option<NumaBalancing>,
    /// How long wake-ups take, of threads that take turns.
    pub wake_ups: WakeUpCosts,
    /// How long a thread takes to move a page of 4 KiB, or waits for NUMA balancing that moves one which it touched.
    pub page_copy: Nanos,
}

/// Where a new thread starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// On the PU of its parent, until it is balanced away.
    WithParent,
    /// From the largest part of the machine to the smallest: in the part with the fewest threads for
    /// each PU, the parent's if it is one of them; so on an idle core of a little used node.
    Idlest {
        /// Parts at a greater distance from each other than this are not compared: a new thread stays on
        /// its parent's side.
        reclaim_distance: u32,
    },
}

/// Where a thread wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Where it ran before, whatever happens there.
    Previous,
    /// Where it ran before if that PU is idle; else an idle PU under the same last-level cache, one of
    /// an idle core first if `idle_cores`, then a sibling, then the next; else where it ran before.
    IdleSibling {
        /// Whether PUs of idle cores come first.
        idle_cores: bool,
    },
}

/// How often the load is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicBalance {
    /// Time between two balancings of a part of the machine, for each PU in it: larger parts are balanced less
    /// often. Never 0.
    pub interval_per_pu: Nanos,
    /// How many attempts fail before a thread that runs is moved, not only one that waits.
    pub patience: u32,
    /// By how much longer the time between two balancings is where all PUs are busy.
    pub busy_factor: u32,
    /// How much more load than another one, in percent of it, a full part must have to give some away; above
    /// 100.
    pub percent: u32,
}

/// How pages and threads are moved towards each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaBalancing {
    /// Time between two scans of a thread. Never 0.
    pub period: Nanos,
    /// How much memory is scanned, and moved at most, each time. Never 0.
    pub scan: Bytes,
    /// Whether threads are moved to the node with most of their memory, too.
    pub move_threads: bool,
    /// How long a thread takes for a page of 4 KiB that is scanned: that it is unmapped, and faults.
    pub fault: Nanos,
}

impl Default for Kernel {
    /// Linux as distributions set it up, NUMA balancing on.
    fn default() -> Self {
        Self {
            slice: BASE_SLICE,
            stagger: TICKS,
            fork: Fork::Idlest { reclaim_distance: RECLAIM_DISTANCE },
            wake: Wake::IdleSibling { idle_cores: true },
            idle_balance: true,
            periodic_balance: Some(PeriodicBalance::default()),
            numa_balancing: Some(NumaBalancing::default()),
            wake_ups: WakeUpCosts::default(),
            page_copy: Nanos::ZERO,
        }
    }
}

/// `sysctl_sched_base_slice`: 0.75 ms times 1 + log2 of at most 8 CPUs, so 3 ms from 8 CPUs on
/// (kernel/sched/fair.c, 6.6).
pub(crate) const BASE_SLICE: Nanos = Nanos::from_millis(3);

/// Turns end at ticks, of which a slice has three at 1000 a second (`CONFIG_HZ`), and each CPU began to count at
/// another one.
pub(crate) const TICKS: u32 = 3;

/// `RECLAIM_DISTANCE` (include/linux/topology.h): beyond it, domains do not balance forks. AMD's Zen raised it
/// to 32 from Linux 5.4 on; this is the value of all others and of Zen before that.
pub const RECLAIM_DISTANCE: u32 = 30;

impl Default for PeriodicBalance {
    /// `min_interval` of a domain is a millisecond for each of its CPUs; four failed attempts are
    /// `cache_nice_tries` + 2 and one, with `cache_nice_tries` 1 as most domains have it
    /// (kernel/sched/{topology,fair}.c, 6.6); `busy_factor` 16 and `imbalance_pct` 117 are those of `sd_init`.
    fn default() -> Self {
        let interval_per_pu = Nanos::from_millis(1);
        Self { interval_per_pu, patience: 4, busy_factor: 16, percent: 117 }
    }
}

impl Default for NumaBalancing {
    /// `sysctl_numa_balancing_scan_period_min` and `sysctl_numa_balancing_scan_size`
    /// (kernel/sched/fair.c, 6.6). The kernel makes the period longer where little is gained; here it is
    /// not, and nothing happens to a thread whose memory is all near.
    fn default() -> Self {
        Self {
            period: Nanos::from_secs(1),
            scan: Bytes::mib(256),
            move_threads: true,
            fault: Nanos::ZERO,
        }
    }
}

impl Kernel {
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |expected| Err(error("kernel".to_owned(), expected, "0"));
        if self.slice == Nanos::ZERO {
            return wrong("a slice above 0");
        }
        if self.stagger == 0 {
            return wrong("a slice of at least one part");
        }
        if self.periodic_balance.is_some_and(|each| each.interval_per_pu == Nanos::ZERO) {
            return wrong("an interval above 0 between two balancings");
        }
        if self.numa_balancing.is_some_and(|each| each.period == Nanos::ZERO || each.scan.0 == 0) {
            return wrong("a period and a size above 0 for NUMA balancing");
        }
        Ok(())
    }
}
