//! The report on page migration as text and as a picture.

use super::{BenchmarkFigures, PiccoliReport, SizeFigures, Speedup};
use crate::curve::{Curves, Series, svg_of_all};
use colocate_figures::table::aligned;
use colocate_machine::printable;

/// The report as tables, one for each benchmark.
#[must_use]
pub fn text(report: &PiccoliReport) -> String {
    let mut out = format!(
        "simulated on {}, not measured: 64 threads, all memory on one node at first; speed-up over the default\nunder the default assumptions, \
         (least to greatest) over {} sets of assumptions\n",
        printable(&report.machine),
        report.draws
    );
    for benchmark in &report.benchmarks {
        out += &format!("\n{}; published: {}\n", benchmark.benchmark, benchmark.published);
        out += &table(benchmark);
    }
    out + "\nSPM+lock once more, controller: where no node is farther and links have ample bandwidth; links: where controllers have it;\n\
         distance: where both have it\n"
}

fn table(benchmark: &BenchmarkFigures) -> String {
    let mut heading = vec![benchmark.unit.as_str(), "default, s"];
    heading.extend(modes(benchmark));
    heading.extend(["controller", "links", "distance", "SPM moves", "published moves"]);
    let mut rows = vec![heading.into_iter().map(str::to_owned).collect()];
    rows.extend(benchmark.sizes.iter().map(cells));
    aligned(&rows)
}

/// Names of the modes beside the default.
fn modes(benchmark: &BenchmarkFigures) -> impl Iterator<Item = &str> {
    let first = benchmark.sizes.first();
    first.into_iter().flat_map(|row| row.speedups.iter().map(|speedup| speedup.mode))
}

fn cells(row: &SizeFigures) -> Vec<String> {
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
pub fn svg(report: &PiccoliReport) -> Result<String, String> {
    let curves = report.benchmarks.iter().map(|benchmark| {
        let series = modes(benchmark).enumerate().map(|(at, mode)| {
            let rows = benchmark.sizes.iter();
            let points = rows.map(|row| (f64::from(row.size), row.speedups[at].over_default));
            Series { name: mode.to_owned(), points: points.collect() }
        });
        Curves {
            caption: format!("{}, simulated on {}", benchmark.benchmark, report.machine),
            across: benchmark.unit.clone(),
            up: "speed-up over the default".to_owned(),
            level: Some(1.0),
            series: series.collect(),
        }
    });
    svg_of_all(&curves.collect::<Vec<_>>())
}
