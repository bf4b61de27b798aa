//! Ratios of a study's tables along an axis, as pictures.

use super::report::{CellFigures, PartFigures, StudyReport};
use crate::curve::{self, Curves, Series};
use crate::simulate::figures::Spread;
use colocate_figures::stats::Estimate;
use colocate_machine::printable;

/// Tables with an axis, one below the other, as an SVG document; an error if none has an axis.
pub fn svg(report: &StudyReport) -> Result<String, String> {
    let curves: Vec<Curves> = report.parts.iter().filter_map(|part| curves(report, part)).collect();
    if curves.is_empty() {
        return Err(format!("{} has no picture: write .txt or .json", report.study));
    }
    curve::svg(&curves)
}

fn curves(report: &StudyReport, part: &PartFigures) -> Option<Curves> {
    let picture = part.picture.as_ref()?;
    let base = part.baselines.first()?;
    let mut series: Vec<Series> = Vec::new();
    for row in &part.rows {
        // A mean over cells has no place on the axis.
        let cell = &part.cells[row.cell? as usize];
        for policy in row.policies.iter().filter(|policy| policy.policy != *base) {
            let name =
                [vec![policy.policy.clone()], others(part, cell, &picture.x)].concat().join(", ");
            let ratio = policy.metrics[0].beside.first().and_then(|beside| beside.ratio);
            let Some(ratio) = ratio.map(|ratio| Estimate::from(Spread::percent_more(ratio))) else {
                continue;
            };
            let point = (along(cell, &picture.x), ratio);
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name, points: vec![point] }),
            }
        }
    }
    let machine = printable(&report.machine);
    Some(Curves {
        caption: format!("simulated on {machine}, not measured: {}", picture.title),
        across: picture.axis.clone(),
        up: format!("faster than {base}, percent"),
        level: Some(0.0),
        series,
    })
}

/// Position of a cell along the axis: its serial share in percent, or the power of ten of
/// milliseconds of its phases.
fn along(cell: &CellFigures, x: &str) -> f64 {
    match x {
        "serial" => cell.values["serial"] * 100.0,
        _ => (cell.values["parallel_s"] * 1000.0).log10(),
    }
}

/// Labels of a cell that differ between cells, without the label along the axis.
fn others(part: &PartFigures, cell: &CellFigures, x: &str) -> Vec<String> {
    let others = cell.labels.iter().filter(|(name, label)| {
        let mut labels = part.cells.iter().flat_map(|cell| &cell.labels);
        name != x && labels.any(|(other, another)| other == name && another != label)
    });
    others.map(|(_, label)| label.clone()).collect()
}
