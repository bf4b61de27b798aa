//! Summary of a simulated run: a few numbers, whatever its length.

use crate::metric::Metric;
use colocate_figures::stats;
use colocate_sim::{Outcome, PortGroupUse};
use serde::{Deserialize, Serialize};

/// Summary of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Metrics, in the order of [`Metric::OF_SCENARIOS`]; `None` if the run did not end.
    pub metrics: [Option<f64>; 5],
    /// Slowdown of each job.
    pub slowdowns: Vec<Option<f64>>,
    /// Progress of each job: the mean of its tasks.
    pub progress: Vec<Option<f64>>,
    /// Use of the machine; only under the default assumptions.
    pub usage: Option<Usage>,
}

/// Use of the machine; parts are between 0 and 1.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Mean part of the time in which PUs ran a task.
    pub pus: f64,
    /// Part of the front ends' slots.
    pub slots: f64,
    /// Part of the ports' cycles.
    pub ports: f64,
    /// Part of each memory controller's bandwidth.
    pub controllers: Vec<f64>,
    /// Part of each link's bandwidth.
    pub links: Vec<f64>,
    /// Part of the bandwidth of each level of data caches, nearest first.
    #[serde(default)]
    pub caches: Vec<CacheUsage>,
    /// Use of groups of ports with the same or overlapping work, kind by kind of core.
    #[serde(default)]
    pub port_groups: Vec<PortUsage>,
    /// Moves of tasks to another PU, each counted once.
    pub moves: f64,
    /// Moves of tasks to another node, which are in `moves` too.
    pub node_moves: f64,
    /// Bytes of moved pages.
    pub page_bytes: f64,
    /// Part of the run's time in which tasks of two jobs shared a core, summed over all pairs of
    /// tasks: row by row, a row for each job.
    pub together: Vec<Vec<f64>>,
}

/// Use of a level of caches.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUsage {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Part of the bandwidth, mean over the caches of the level; `None` if the bandwidth is not
    /// described.
    pub used: Option<f64>,
}

/// Use of ports with the same or overlapping work, mean over all cores of a kind.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortUsage {
    /// Kind of core.
    pub kind: String,
    /// Names of the ports, as described.
    pub ports: Vec<String>,
    /// Part of the ports' cycles.
    pub used: f64,
    /// Part of the fullest port's cycles, with work spread as evenly as possible.
    pub fullest: f64,
}

impl RunSummary {
    /// Summary of `outcome`; with `usage` also the use of the machine.
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

/// Mean progress of each job's tasks.
fn progress(outcome: &Outcome) -> Vec<Option<f64>> {
    let mut by_job = vec![Vec::new(); outcome.jobs.len()];
    for task in &outcome.tasks {
        by_job[task.id.job.0 as usize].extend(task.progress());
    }
    by_job.iter().map(|tasks| stats::mean(tasks)).collect()
}

/// Part of the run's time in which tasks of two jobs shared a core, row by row.
pub(crate) fn together(outcome: &Outcome) -> Vec<Vec<f64>> {
    let lasted = outcome.lasted.as_secs_f64();
    square(outcome.jobs.len(), |a, b| {
        if lasted > 0.0 { outcome.together.seconds(a, b) / lasted } else { 0.0 }
    })
}

/// A square of values for pairs of jobs.
fn square(jobs: usize, of: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    (0..jobs).map(|a| (0..jobs).map(|b| of(a, b)).collect()).collect()
}

impl Usage {
    fn of(outcome: &Outcome) -> Self {
        let used = &outcome.used;
        let levels = used.caches.iter();
        let groups = used.port_groups.iter().cloned();
        Self {
            pus: part(&used.pus),
            slots: part(&used.slots),
            ports: part(&used.ports),
            controllers: used.controllers.clone(),
            links: used.links.clone(),
            caches: levels.map(|it| CacheUsage { level: it.level, used: it.used }).collect(),
            port_groups: groups
                .map(|PortGroupUse { kind, ports, used, fullest }| PortUsage {
                    kind,
                    ports,
                    used,
                    fullest,
                })
                .collect(),
            moves: moves(outcome, |moves| f64::from(moves.total())),
            node_moves: moves(outcome, |moves| f64::from(moves.other_node)),
            page_bytes: moves(outcome, |moves| moves.page_bytes as f64),
            together: together(outcome),
        }
    }

    /// Mean of several uses, all of the same machine and jobs.
    pub(super) fn mean(all: &[&Self]) -> Self {
        let jobs = all.first().map_or(0, |first| first.together.len());
        Self {
            pus: mean(all, &|usage| usage.pus),
            slots: mean(all, &|usage| usage.slots),
            ports: mean(all, &|usage| usage.ports),
            controllers: means(all, |usage| &usage.controllers),
            links: means(all, |usage| &usage.links),
            caches: caches(all),
            port_groups: port_groups(all),
            moves: mean(all, &|usage| usage.moves),
            node_moves: mean(all, &|usage| usage.node_moves),
            page_bytes: mean(all, &|usage| usage.page_bytes),
            together: square(jobs, |a, b| mean(all, &|usage| usage.together[a][b])),
        }
    }
}

/// Mean of a list of parts; 0 of an empty list.
fn part(parts: &[f64]) -> f64 {
    stats::mean(parts).unwrap_or(0.0)
}

/// Sum of a count over all tasks.
fn moves(outcome: &Outcome, count: fn(&colocate_sim::Moves) -> f64) -> f64 {
    outcome.tasks.iter().map(|task| count(&task.moves)).fold(0.0, |sum, each| sum + each)
}

/// Mean of a figure over several uses; 0 without any.
fn mean(all: &[&Usage], get: &dyn Fn(&Usage) -> f64) -> f64 {
    stats::mean(&all.iter().map(|usage| get(usage)).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Mean of each place of a list over several uses.
fn means(all: &[&Usage], get: fn(&Usage) -> &[f64]) -> Vec<f64> {
    let length = all.first().map_or(0, |first| get(first).len());
    (0..length).map(|place| mean(all, &|usage| get(usage)[place])).collect()
}

/// Mean use of each level of caches; unknown if any is unknown.
fn caches(all: &[&Usage]) -> Vec<CacheUsage> {
    let first = all.first().map_or(&[][..], |first| &first.caches);
    let levels = first.iter().enumerate().map(|(place, level)| {
        let each: Option<Vec<f64>> = all.iter().map(|usage| usage.caches[place].used).collect();
        CacheUsage { used: each.and_then(|each| stats::mean(&each)), ..*level }
    });
    levels.collect()
}

/// Mean use of each group of ports.
fn port_groups(all: &[&Usage]) -> Vec<PortUsage> {
    let first = all.first().map_or(&[][..], |first| &first.port_groups);
    let groups = first.iter().enumerate().map(|(place, group)| PortUsage {
        used: mean(all, &|usage| usage.port_groups[place].used),
        fullest: mean(all, &|usage| usage.port_groups[place].fullest),
        ..group.clone()
    });
    groups.collect()
}
