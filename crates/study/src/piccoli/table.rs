//! The report on page migration as text and as a picture.

use super::{BenchmarkFigures, PiccoliReport, SizeFigures};
use crate::curve::{Curves, Series, svg};
use crate::printed::{Printed, with_interval};
use colocate_figures::table::aligned;
use colocate_machine::printable;

impl Printed for PiccoliReport {
    fn text(&self) -> String {
        let mut out = format!(
            "simulated on {}, not measured: 64 threads, all memory on one node at first; speed-up over the default\nunder the default assumptions, \
             (least to greatest) over {} sets of assumptions\n",
            printable(&self.machine),
            self.draws
        );
        for benchmark in &self.benchmarks {
            out += &format!("\n{}; published: {}\n", benchmark.benchmark, benchmark.published);
            out += &table(benchmark);
        }
        out + "\nSPM+lock once more, controller: where no node is farther and links have ample bandwidth; links: where controllers have it;\n\
             distance: where both have it\n"
    }

    /// A picture for each benchmark, a line for each mode.
    fn svg(&self) -> Result<String, String> {
        let curves = self.benchmarks.iter().map(|benchmark| {
            let series = modes(benchmark).enumerate().map(|(at, mode)| {
                let rows = benchmark.sizes.iter();
                let points = rows.map(|row| (f64::from(row.size), row.speedups[at].over_default));
                Series { name: mode.to_owned(), points: points.collect() }
            });
            Curves {
                caption: format!("{}, simulated on {}", benchmark.benchmark, self.machine),
                across: benchmark.unit.clone(),
                up: "speed-up over the default".to_owned(),
                level: Some(1.0),
                series: series.collect(),
            }
        });
        svg(&curves.collect::<Vec<_>>())
    }
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
    cells.extend(row.speedups.iter().map(|it| with_interval(it.over_default, 1.0, 2)));
    let apart = [row.controller_alone, row.links_and_distance, row.distance_alone];
    cells.extend(apart.map(|speedup| format!("{speedup:.2}")));
    cells.extend([list(&row.moved), list(&row.moved_as_published)]);
    cells
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}
