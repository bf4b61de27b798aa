//! What is kept of a simulated run: a few numbers, however long it was.

use crate::metric::Metric;
use colocate_figures::stats;
use colocate_sim::Outcome;
use serde::{Deserialize, Serialize};

/// What is kept of one simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The metrics, in the order of [`Metric::OF_SCENARIOS`]; `None` if the run did not come to its end.
    pub metrics: [Option<f64>; 5],
    /// Slowdown of each job.
    pub slowdowns: Vec<Option<f64>>,
    /// Progress of each job: the mean of its tasks'.
    pub progress: Vec<Option<f64>>,
    /// How the machine was used; kept under the default assumptions only.
    pub usage: Option<Usage>,
}

/// How the machine was used; parts are between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Part of the time that PUs ran a task, on average.
    pub pus: f64,
    /// Part of the front ends' slots.
    pub slots: f64,
    /// Part of the ports' cycles.
    pub ports: f64,
    /// Part of each memory controller's bandwidth.
    pub controllers: Vec<f64>,
    /// Part of each link's bandwidth.
    pub links: Vec<f64>,
    /// Part of the bandwidth of each level of caches that hold data, nearest first.
    #[serde(default)]
    pub caches: Vec<CacheUsage>,
    /// Ports that do the same or overlapping work, kind by kind of core.
    #[serde(default)]
    pub port_groups: Vec<PortUsage>,
    /// Moves of tasks to another PU, each counted once.
    pub moves: f64,
    /// Those of them to another node.
    pub node_moves: f64,
    /// Bytes of pages that were moved.
    pub page_bytes: f64,
    /// For how much of the run's time tasks of two jobs shared a core, summed over all pairs of tasks:
    /// row by row, one row a job.
    pub together: Vec<Vec<f64>>,
}

/// How a level of caches was used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUsage {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Part of the bandwidth of a cache, on average over all of the level; `None` if the machine's
    /// description does not say how much there is.
    pub used: Option<f64>,
}

/// How ports that do the same or overlapping work were used, on average over all cores of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortUsage {
    /// The kind of core.
    pub kind: String,
    /// Their names in the machine's description.
    pub ports: Vec<String>,
    /// Part of their cycles.
    pub used: f64,
    /// Part of the cycles of the fullest of them, with work spread as evenly as it can be.
    pub fullest: f64,
}

impl Run {
    /// What is kept of `outcome`; with `usage` also how the machine was used.
    #[must_use]
    pub fn of(outcome: &Outcome, usage: bool) -> Self {
        Self {
            metrics: Metric::OF_SCENARIOS.map(|metric| metric.of(outcome)),
            slowdowns: outcome.jobs.iter().map(colocate_sim::JobOutcome::slowdown).collect(),
            progress: progress(outcome),
            usage: usage.then(|| Usage::of(outcome)),
        }
    }
}

/// The mean progress of each job's tasks.
fn progress(outcome: &Outcome) -> Vec<Option<f64>> {
    let mut by_job = vec![Vec::new(); outcome.jobs.len()];
    for task in &outcome.tasks {
        by_job[task.id.job.0 as usize].extend(task.progress());
    }
    by_job.iter().map(|tasks| stats::mean(tasks)).collect()
}

/// Part of the run's time for which tasks of two jobs shared a core, row by row.
pub(crate) fn together(outcome: &Outcome) -> Vec<Vec<f64>> {
    let lasted = outcome.lasted.as_secs_f64();
    let share = |a, b| if lasted > 0.0 { outcome.together.seconds(a, b) / lasted } else { 0.0 };
    square(outcome.jobs.len(), share)
}

/// A value for each two of so many.
fn square(jobs: usize, of: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    (0..jobs).map(|a| (0..jobs).map(|b| of(a, b)).collect()).collect()
}

impl Usage {
    fn of(outcome: &Outcome) -> Self {
        let used = &outcome.used;
        let moves = |count: fn(&colocate_sim::Moves) -> f64| {
            outcome.tasks.iter().map(|task| count(&task.moves)).fold(0.0, |sum, each| sum + each)
        };
        let part = |parts: &[f64]| stats::mean(parts).unwrap_or(0.0);
        #[allow(clippy::cast_precision_loss)] // shown with three digits
        Self {
            pus: part(&used.pus),
            slots: part(&used.slots),
            ports: part(&used.ports),
            controllers: used.controllers.clone(),
            links: used.links.clone(),
            caches: used
                .caches
                .iter()
                .map(|level| CacheUsage { level: level.level, used: level.used })
                .collect(),
            port_groups: used.port_groups.iter().map(PortUsage::of).collect(),
            moves: moves(|moves| f64::from(moves.total())),
            node_moves: moves(|moves| f64::from(moves.other_node)),
            page_bytes: moves(|moves| moves.page_bytes as f64),
            together: together(outcome),
        }
    }

    /// The mean of several; all are of the same machine and jobs.
    pub(super) fn mean(all: &[&Self]) -> Self {
        let of = |get: &dyn Fn(&Self) -> f64| mean(all, get);
        let each = |get: fn(&Self) -> &[f64]| -> Vec<f64> {
            let length = all.first().map_or(0, |first| get(first).len());
            (0..length).map(|place| of(&|usage| get(usage)[place])).collect()
        };
        let jobs = all.first().map_or(0, |first| first.together.len());
        Self {
            pus: of(&|usage| usage.pus),
            slots: of(&|usage| usage.slots),
            ports: of(&|usage| usage.ports),
            controllers: each(|usage| &usage.controllers),
            links: each(|usage| &usage.links),
            caches: caches(all),
            port_groups: port_groups(all),
            moves: of(&|usage| usage.moves),
            node_moves: of(&|usage| usage.node_moves),
            page_bytes: of(&|usage| usage.page_bytes),
            together: square(jobs, |a, b| of(&|usage: &Self| usage.together[a][b])),
        }
    }
}

impl PortUsage {
    fn of(used: &colocate_sim::PortGroupUse) -> Self {
        let colocate_sim::PortGroupUse { kind, ports, used, fullest } = used.clone();
        Self { kind, ports, used, fullest }
    }
}

fn mean(all: &[&Usage], get: &dyn Fn(&Usage) -> f64) -> f64 {
    stats::mean(&all.iter().map(|usage| get(usage)).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// The mean of each level's use.
fn caches(all: &[&Usage]) -> Vec<CacheUsage> {
    let first = all.first().map_or(&[][..], |first| &first.caches);
    let mean = |place: usize| -> Option<f64> {
        let each: Option<Vec<f64>> = all.iter().map(|usage| usage.caches[place].used).collect();
        stats::mean(&each?)
    };
    let one = |(place, level): (usize, &CacheUsage)| CacheUsage { used: mean(place), ..*level };
    first.iter().enumerate().map(one).collect()
}

/// The mean of each group's use.
fn port_groups(all: &[&Usage]) -> Vec<PortUsage> {
    let first = all.first().map_or(&[][..], |first| &first.port_groups);
    let mean = |get: &dyn Fn(&Usage) -> f64| mean(all, get);
    let one = |(place, group): (usize, &PortUsage)| PortUsage {
        used: mean(&|usage| usage.port_groups[place].used),
        fullest: mean(&|usage| usage.port_groups[place].fullest),
        ..group.clone()
    };
    first.iter().enumerate().map(one).collect()
}
