//! The study of Cruz et al. (JPDC 2014): programs with known communication, on simulated coherent
//! caches.

use crate::coherence::{
    CoherenceReport, CoherenceSettings, MappingFigures, MatrixPoint, at, difference, report,
};
use crate::curve::{self, Curves, Series};
use crate::heat::{self, Map};
use crate::printed::Printed;
use colocate_figures::stats::Estimate;
use colocate_figures::table::aligned;
use colocate_machine::{Machine, Nanos, Performance};
use colocate_policy::communication::filter::Rules;
use colocate_policy::communication::matrix::Matrix;
use colocate_sim::coherent::patterns::{Pattern, Synthetic};
use colocate_sim::coherent::replay::task;
use colocate_sim::coherent::{DetectAt, Protocol};
use serde::{Deserialize, Serialize};

/// Version of the study's JSON.
pub const VERSION: u32 = 1;
/// Simulated time between two decisions.
const EVERY: Nanos = Nanos::from_millis(1_000);

/// The study, as read from its TOML file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternDefinition {
    /// Version of the file's form.
    pub version: u32,
    /// Name of the study.
    pub name: String,
    /// Default machine.
    pub machine: String,
    /// Number of random mappings; their mean is the baseline.
    pub seeds: u32,
    /// Threads of each program; at least 2.
    pub threads: usize,
    /// Iterations of each of the four phases.
    pub phase: u32,
    /// Names of the patterns, in the order of the table.
    pub patterns: Vec<String>,
    /// Published figures: program, and its figures over Linux.
    pub published: String,
}

/// All patterns, by name, with this many iterations a phase.
const fn patterns(phase: u32) -> [(&'static str, Pattern); 7] {
    [
        ("producer-consumer", Pattern::ProducerConsumer { phase }),
        ("stencil", Pattern::Stencil),
        ("ring", Pattern::Ring),
        ("all-to-all", Pattern::AllToAll),
        ("reduction", Pattern::Reduction),
        ("master-worker", Pattern::MasterWorker),
        ("none", Pattern::None),
    ]
}

/// Figures of a pattern.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct PatternFigures {
    /// Name of the pattern.
    pub pattern: &'static str,
    /// Pearson's correlation of detected and true communication, over all pairs; `None` where all
    /// pairs are alike.
    pub correlation: Option<f64>,
    /// How unevenly pairs communicate, see [`Matrix::heterogeneity`].
    pub heterogeneity: f64,
    /// Report under all mappings.
    pub report: CoherenceReport,
}

/// Programs of known communication on simulated caches, under several mappings.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct PatternReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// Patterns, in the order of the table.
    pub patterns: Vec<PatternFigures>,
    /// Threads of each program.
    #[serde(skip)]
    pub threads: usize,
    /// Published figures.
    #[serde(skip)]
    pub published: String,
}

/// Simulates all patterns; `seed` is that of the random mappings. A name without a pattern is left
/// out.
///
/// # Errors
/// As of [`report`].
pub fn study(
    definition: &PatternDefinition,
    machine: &Machine,
    performance: &Performance,
    seed: u64,
) -> Result<PatternReport, String> {
    let PatternDefinition { threads, phase, .. } = *definition;
    let settings = CoherenceSettings {
        random: definition.seeds,
        seed,
        every: EVERY,
        protocol: Protocol::Mesi,
        detect: DetectAt::PrivateCache,
        rules: Rules::Ours,
    };
    let known = patterns(phase);
    let chosen = definition.patterns.iter();
    let chosen = chosen.filter_map(|name| known.iter().find(|(known, _)| known == name));
    let rows = chosen.map(|&(name, pattern)| {
        // Four phases, of this many iterations each.
        let program = Synthetic::new(pattern, threads, phase.saturating_mul(4));
        let found = report(machine, performance, &settings, &mut |go| {
            go(&mut program.clone());
            Ok(())
        })?;
        let matrix = detected(&found.matrix);
        Ok(PatternFigures {
            pattern: name,
            correlation: correlation(threads, &matrix, &program.truth()),
            heterogeneity: matrix.heterogeneity(threads),
            report: found,
        })
    });
    let patterns = rows.collect::<Result<_, String>>()?;
    let published = definition.published.clone();
    Ok(PatternReport { version: VERSION, patterns, threads, published })
}

/// Communication of each pair, which rows have twice.
fn detected(rows: &[Vec<f64>]) -> Matrix {
    let amounts = rows.iter().enumerate().flat_map(|(a, row)| {
        row.iter().enumerate().skip(a + 1).map(move |(b, amount)| (task(a), task(b), *amount))
    });
    Matrix::of(amounts)
}

/// Pearson's correlation over all pairs; `None` if either matrix has the same amount for all.
fn correlation(threads: usize, found: &Matrix, truth: &Matrix) -> Option<f64> {
    let pairs = (0..threads).flat_map(|a| (a + 1..threads).map(move |b| (task(a), task(b))));
    let both: Vec<(f64, f64)> =
        pairs.map(|(a, b)| (found.between(a, b), truth.between(a, b))).collect();
    let a = mean(&both, |it| it.0);
    let b = mean(&both, |it| it.1);
    let spread = mean(&both, |it| (it.0 - a).powi(2)) * mean(&both, |it| (it.1 - b).powi(2));
    (spread > 0.0).then(|| mean(&both, |it| (it.0 - a) * (it.1 - b)) / spread.sqrt())
}

fn mean(pairs: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    pairs.iter().map(of).fold(0.0, |sum, each| sum + each) / pairs.len() as f64
}

impl Printed for PatternReport {
    fn text(&self) -> String {
        let heading = [
            "pattern",
            "correlation",
            "H",
            "time: communication",
            "oracle",
            "compact",
            "L2 misses: communication",
            "invalidations",
            "moved",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for row in &self.patterns {
            let moved = under(row, "communication").map(|it| format!("{:.0}", it.migrations));
            rows.push(vec![
                row.pattern.to_owned(),
                row.correlation.map_or_else(|| "-".to_owned(), |of| format!("{of:.3}")),
                format!("{:.2}", row.heterogeneity),
                part(row, "communication", |it| it.seconds),
                part(row, "oracle", |it| it.seconds),
                part(row, "compact", |it| it.seconds),
                part(row, "communication", |it| at(&it.misses, 1)),
                part(row, "communication", |it| at(&it.invalidations, 1)),
                moved.unwrap_or_default(),
            ]);
        }
        let Some(first) = self.patterns.first() else { return String::new() };
        let machine = colocate_machine::printable(&first.report.machine);
        let runs = first.report.mappings.first().map_or(0, |figures| figures.runs);
        let head = format!(
            "simulated on {machine}, not measured: {} threads, parts against the mean of {runs} random mappings\n",
            self.threads
        );
        let published = format!("published for {}\n", self.published);
        head + &aligned(&rows) + "oracle: the best one mapping for the whole run\n" + &published
    }

    /// Detected communication of each pattern as heat maps, and the matrix of `communication` over
    /// time as curves.
    fn svg(&self) -> Result<String, String> {
        let patterns = self.patterns.iter();
        let maps: Vec<Map<'_>> =
            patterns.map(|row| (row.pattern, &row.report.matrix[..])).collect();
        let of_what = "heterogeneity H of what communication goes by";
        let over_last = "dynamicity: difference from the decision before";
        let all = [
            curves(self, of_what, |point| point.heterogeneity),
            curves(self, over_last, |point| point.dynamicity),
        ];
        let maps_size =
            heat::size(&maps).map_err(|error| format!("cannot draw the study: {error}"))?;
        let size = (maps_size.0.max(curve::SIZE.0), maps_size.1 + 2 * curve::SIZE.1);
        curve::document("study", size, |root| {
            let (above, below) = root.split_vertically(maps_size.1);
            heat::draw_in(&maps, &above)?;
            let mut areas = all.iter().zip(below.split_evenly((all.len(), 1)));
            areas.try_for_each(|(curves, area)| curve::draw(curves, &area))
        })
    }
}

/// Figures of a pattern under a mapping; `None` if it was not simulated.
fn under<'a>(row: &'a PatternFigures, mapping: &str) -> Option<&'a MappingFigures> {
    row.report.mappings.iter().find(|figures| figures.mapping == mapping)
}

/// Difference of a figure under a mapping to the random mappings, in percent.
fn part(row: &PatternFigures, mapping: &str, figure: impl Fn(&MappingFigures) -> f64) -> String {
    let both = under(row, mapping).zip(under(row, "random"));
    both.map_or_else(|| "?".to_owned(), |(own, base)| difference(figure(own), Some(figure(base))))
}

/// A figure of all patterns over time, in percent of each run, as runs differ in length.
fn curves(study: &PatternReport, caption: &str, figure: fn(&MatrixPoint) -> f64) -> Curves {
    let series = study.patterns.iter().map(|row| {
        let whole = under(row, "communication").map_or(1.0, |figures| figures.seconds);
        let points = row.report.over_time.iter().map(|point| {
            let found = Estimate { value: figure(point), interval: None };
            (100.0 * point.seconds / whole, found)
        });
        Series { name: row.pattern.to_owned(), points: points.collect() }
    });
    Curves {
        caption: caption.to_owned(),
        across: "part of the simulated run, %".to_owned(),
        up: String::new(),
        level: None,
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use crate::testing::machine;

    /// The published signs, and what no mapping can help.
    #[test]
    fn mappings_help_where_they_can() {
        let definition =
            PatternDefinition { seeds: 2, phase: 60, ..files::read("communication").unwrap() };
        let (machine, performance) = machine(&definition.machine);
        let found = study(&definition, &machine, &performance, 0).unwrap();
        assert_eq!(found.patterns.len(), definition.patterns.len());
        for row in &found.patterns {
            let of = |name| {
                let is_it = |figures: &&MappingFigures| figures.mapping == name;
                row.report.mappings.iter().find(is_it).unwrap().seconds
            };
            let part = of("communication") / of("random");
            match row.pattern {
                "producer-consumer" => assert!(part < 0.5, "{part}"),
                "stencil" => assert!(part < 0.9, "{part}"),
                "none" => assert!((0.99..1.01).contains(&part), "{part}"),
                _ => {}
            }
            let least = if row.pattern == "all-to-all" { 0.0 } else { 0.95 };
            assert!(row.correlation.is_none_or(|of| of >= least), "{row:?}");
        }
        let shown = found.text();
        assert_eq!(shown.lines().count(), 11, "{shown}");
        assert_eq!(found.svg().unwrap().matches("master-worker").count(), 3);
    }
}
