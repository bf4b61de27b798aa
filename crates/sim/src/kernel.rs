//! Scheduler settings of the simulated kernel: each of its rules can be switched.
//!
//! The simulated rules are those of Linux's fair class (EEVDF, 6.6 and later; placement and
//! balancing as CFS had them), as far as they decide where threads run. All threads have the same
//! weight, but for fillers of idle PUs (`crate::world::filling`). Other classes, cgroups, real-time
//! threads, CPU idle states and the kernel's own threads are not simulated.

use crate::error::{ScenarioError, refuse};
use colocate_machine::{Bytes, Nanos};
use colocate_model::communication::WakeUpCosts;

/// Scheduling of unpinned threads, and of PUs with several runnable threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelScheduler {
    /// Time slice of a thread while others wait for its PU. Never 0.
    pub slice: Nanos,
    /// Parts of a slice: once several threads are runnable on a PU, its slices end at a random
    /// part. With 1, slices begun together end together: with two threads a PU the same pairs run
    /// side by side for ever. Never 0.
    pub stagger: u32,
    /// PU of a new thread.
    pub fork: Fork,
    /// PU of a woken thread.
    pub wake: Wake,
    /// Whether an emptied PU takes a waiting thread from another PU at once.
    pub idle_balance: bool,
    /// Periodic balancing: PUs with few threads take some from PUs with many, and idle cores take a
    /// sibling's. `None` for none.
    pub periodic_balance: Option<PeriodicBalance>,
    /// Moves of pages and threads towards each other (`kernel.numa_balancing`); `None` if off.
    pub numa_balancing: Option<NumaBalancing>,
    /// Costs of wake-ups, for threads taking turns.
    pub wake_ups: WakeUpCosts,
    /// Time to copy a page of 4 KiB, for a thread moving its memory or waiting for NUMA balancing
    /// at a touched page.
    pub page_copy: Nanos,
}

/// Placement of a new thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// On the PU of its parent, until load balancing.
    WithParent,
    /// From the largest domain to the smallest: the group with the fewest threads for each PU, the
    /// parent's if among these. New threads start on idle cores of little used nodes.
    Idlest {
        /// Domains at a greater distance are not compared: a new thread stays on its parent's side.
        reclaim_distance: u32,
    },
}

/// Placement of a woken thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The PU of its last run, whatever the load.
    Previous,
    /// The target if idle, which is the PU of its last run or, by `affine`, its waker's. Else the PU
    /// of its last run if idle and under the target's last-level cache. Else an idle PU under that
    /// cache: the recent PU if `recent`, one of an idle core if `idle_cores`, a sibling of the PU of
    /// its last run, then the next. Else the target.
    IdleSibling {
        /// Whether PUs of idle cores come first.
        idle_cores: bool,
        /// Whether the PU of an earlier run is tried before the search (`recent_used_cpu`).
        recent: bool,
        /// Whether the waker's PU may be the target; `None` for never.
        affine: Option<WakeAffine>,
    },
}

/// Rules for the waker's PU as the target of a wake-up (`wake_affine`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeAffine {
    /// Whether messages between threads that take turns are synchronous, as over pipes and sockets
    /// (`WF_SYNC`): a waker alone on its PU makes this the target. Wake-ups by futexes are not.
    pub sync: bool,
    /// Whether the waker's PU is the target if its load average is lower (`WA_WEIGHT`).
    pub load: bool,
    /// Whether threads with many partners are left where they ran (`wake_wide`).
    pub wide: bool,
    /// No waker's PU on a node farther from the PU of the last run is the target.
    pub reclaim_distance: u32,
}

/// Periodic load balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicBalance {
    /// Time between two balancings of a domain, for each of its PUs: larger domains are balanced
    /// less often. Never 0.
    pub interval_per_pu: Nanos,
    /// Failed attempts before even a running thread is moved.
    pub patience: u32,
    /// Factor on the time between two balancings where all PUs are busy.
    pub busy_factor: u32,
    /// Load of a full group, in percent of another's, above which a thread moves; above 100.
    pub percent: u32,
}

/// NUMA balancing: moves of pages and threads towards each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaBalancing {
    /// Time between two scans of a thread. Never 0.
    pub period: Nanos,
    /// Memory to scan, and to move at most, each time. Never 0.
    pub scan: Bytes,
    /// Whether threads also move to the node with most of their memory.
    pub move_threads: bool,
    /// Time lost by a thread for each scanned page of 4 KiB, to unmapping and the fault.
    pub fault: Nanos,
}

impl Default for KernelScheduler {
    /// Linux as configured by distributions, NUMA balancing on.
    fn default() -> Self {
        Self {
            slice: BASE_SLICE,
            stagger: TICKS,
            fork: Fork::Idlest { reclaim_distance: RECLAIM_DISTANCE },
            wake: Wake::IdleSibling {
                idle_cores: true,
                recent: true,
                affine: Some(WakeAffine::default()),
            },
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

/// Parts of a slice: turns end at ticks, three a slice at 1000 Hz (`CONFIG_HZ`), and the ticks of
/// CPUs are offset.
pub(crate) const TICKS: u32 = 3;

/// `RECLAIM_DISTANCE` (include/linux/topology.h): domains beyond it do not balance forks. For AMD's
/// Zen the value is 32 from Linux 5.4 on; 30 is the value before, and of all other processors.
pub const RECLAIM_DISTANCE: u32 = 30;

impl Default for WakeAffine {
    /// `WA_IDLE` and `WA_WEIGHT` are on (kernel/sched/features.h, 6.12), and `SD_WAKE_AFFINE` is set
    /// up to [`RECLAIM_DISTANCE`] (`sd_init` in kernel/sched/topology.c).
    fn default() -> Self {
        Self { sync: true, load: true, wide: true, reclaim_distance: RECLAIM_DISTANCE }
    }
}

impl Default for PeriodicBalance {
    /// `min_interval` of a domain is a millisecond for each of its CPUs; four failed attempts are
    /// `cache_nice_tries` + 2 and 1, with `cache_nice_tries` 1 as in most domains
    /// (kernel/sched/{topology,fair}.c, 6.6); `busy_factor` 16 and `imbalance_pct` 117 are from
    /// `sd_init`.
    fn default() -> Self {
        let interval_per_pu = Nanos::from_millis(1);
        Self { interval_per_pu, patience: 4, busy_factor: 16, percent: 117 }
    }
}

impl Default for NumaBalancing {
    /// `sysctl_numa_balancing_scan_period_min` and `sysctl_numa_balancing_scan_size`
    /// (kernel/sched/fair.c, 6.6). The kernel makes the period longer where little is gained. Here
    /// the period is constant, and a thread whose memory is all near is not scanned.
    fn default() -> Self {
        Self {
            period: Nanos::from_secs(1),
            scan: Bytes::mib(256),
            move_threads: true,
            fault: Nanos::ZERO,
        }
    }
}

impl KernelScheduler {
    /// Refuses intervals and sizes of 0.
    pub(crate) fn check(&self) -> Result<(), ScenarioError> {
        if self.slice == Nanos::ZERO {
            return refuse("kernel", "a slice above 0", "0");
        }
        if self.stagger == 0 {
            return refuse("kernel", "a slice of at least one part", "0");
        }
        if self.periodic_balance.is_some_and(|each| each.interval_per_pu == Nanos::ZERO) {
            return refuse("kernel", "an interval above 0 between two balancings", "0");
        }
        if self.numa_balancing.is_some_and(|each| each.period == Nanos::ZERO || each.scan.0 == 0) {
            return refuse("kernel", "a period and a size above 0 for NUMA balancing", "0");
        }
        Ok(())
    }
}
