//! The report on page migration as text and as a picture.

use super::modes::Mode;
use super::{Benchmark, Report, Row, Speedup};
use crate::curve::{Curves, Series, svg_of_all};
use colocate_figures::table::aligned;
use colocate_machine::printable;

/// Published results by benchmark, on the real machine, median of ten runs without huge pages.
const PUBLISHED: [(&str, &str); 6] = [
    ("Product", "SPM+lock up to 4.03 (n = 2200), AutoNUMA up to 4.35, interleave about SPM+lock"),
    (
        "LU",
        "SPM+lock up to 5.57 (n = 2000), AutoNUMA up to 5.84, interleave below SPM, eager at most 17 % above SPM",
    ),
    ("Cholesky", "SPM+lock a little below AutoNUMA; no figure in the text"),
    ("Add", "SPM 0.96 or more, SPM+lock 1 or more, AutoNUMA down to 0.82, eager down to 0.50"),
    (
        "partitionStringSearch",
        "SPM+lock up to 3.1 and above AutoNUMA (4096 queries), SPM below 1 with 16 and 32, interleave best with few",
    ),
    (
        "BucketSort",
        "SPM+lock up to 5.34 with the threshold of the caches off, AutoNUMA less; with it only the last size gains",
    ),
];

/// The report as tables, one for each benchmark.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = format!(
        "simulated on {}, not measured: 64 threads, all memory on one node at first; speed-up over the default\nunder the default assumptions, \
         (least to greatest) over {} sets of assumptions\n",
        printable(&report.machine),
        report.draws
    );
    for benchmark in &report.benchmarks {
        let published = PUBLISHED.iter().find(|(name, _)| *name == benchmark.benchmark);
        let published = published.map_or("", |(_, said)| *said);
        out += &format!("\n{}; published: {published}\n", benchmark.benchmark);
        out += &table(benchmark);
    }
    out + "\nSPM+lock once more, controller: where no node is farther and links have ample bandwidth; links: where controllers have it;\n\
         distance: where both have it\n"
}

fn table(benchmark: &Benchmark) -> String {
    let modes = Mode::ALL.iter().skip(1).map(|mode| mode.name());
    let heading = [benchmark.unit, "default, s"].into_iter().chain(modes);
    let heading =
        heading.chain(["controller", "links", "distance", "SPM moves", "published moves"]);
    let mut rows = vec![heading.map(str::to_owned).collect()];
    rows.extend(benchmark.sizes.iter().map(cells));
    aligned(&rows)
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![row.size.to_string(), format!("{:.1}", row.seconds)];
    cells.extend(row.speedups.iter().map(speedup));
    let apart = [row.controller_alone, row.links_and_distance, row.distance_alone];
    cells.extend(apart.map(|speedup| format!("{speedup:.2}")));
    cells.extend([list(&row.moved), list(&row.moved_as_published)]);
    cells
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn speedup(of: &Speedup) -> String {
    let value = format!("{:.2}", of.over_default.value);
    match of.over_default.interval {
        Some(range) => format!("{value} ({:.2}-{:.2})", range.low, range.high),
        None => value,
    }
}

/// A picture for each benchmark, a line for each mode.
///
/// # Errors
/// Only if the drawing library fails; its line says how.
pub fn svg(report: &Report) -> Result<String, String> {
    let curves = report.benchmarks.iter().map(|benchmark| {
        let series = Mode::ALL.iter().skip(1).enumerate().map(|(at, mode)| {
            let rows = benchmark.sizes.iter();
            let points = rows.map(|row| (f64::from(row.size), row.speedups[at].over_default));
            Series { name: mode.name().to_owned(), points: points.collect() }
        });
        Curves {
            caption: format!("{}, simulated on {}", benchmark.benchmark, report.machine),
            across: benchmark.unit.to_owned(),
            up: "speed-up over the default".to_owned(),
            level: Some(1.0),
            series: series.collect(),
        }
    });
    svg_of_all(&curves.collect::<Vec<_>>())
}
