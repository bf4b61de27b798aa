//! The first two questions as pictures.

use super::Report;
use super::figures::{PointFigures, PolicyFigures};
use super::layout::Layout;
use super::points::{Question, SerialBy};
use crate::curve::{self, Curves, Series};
use crate::stats::Estimate;
use colocate_machine::printable;

/// Serial share against speed-up, and below length of phases against what moves cost, as an SVG document.
///
/// # Errors
/// Only if the drawing library fails; its line says how.
pub fn svg(report: &Report) -> Result<String, String> {
    curve::svg_of_all(&[shares(report), migrations(report)])
}

fn shares(report: &Report) -> Curves {
    let points = of(report, Question::Shares);
    let names = points.first().map_or(&[][..], |point| &point.policies);
    let series = (1..names.len()).map(|place| Series {
        name: names[place].policy.clone(),
        points: points
            .iter()
            .filter(|point| point.serial_by == SerialBy::InTurn)
            .filter_map(|point| Some((point.serial * 100.0, gain(&point.policies[place])?)))
            .collect(),
    });
    let across = "serial share of the time on slow cores, percent";
    curves(report, "gain by serial share", across, series.collect())
}

fn migrations(report: &Report) -> Curves {
    let points = of(report, Question::Migrations);
    let mut series = Vec::new();
    for layout in Layout::ALL {
        let of_layout: Vec<&&PointFigures> =
            points.iter().filter(|point| point.layout == layout).collect();
        let names = of_layout.first().map_or(&[][..], |point| &point.policies);
        // Without the baseline and the oracle.
        let schedulers = names.iter().enumerate().take(names.len().saturating_sub(1)).skip(1);
        for (place, policy) in schedulers {
            let at = |point: &&&PointFigures| {
                Some(((point.parallel_s * 1000.0).log10(), gain(&point.policies[place])?))
            };
            series.push(Series {
                name: format!("{}, {}", policy.policy, layout.name()),
                points: of_layout.iter().filter_map(at).collect(),
            });
        }
    }
    let across = "length of phases on slow cores, power of ten of milliseconds";
    curves(report, "what moves cost", across, series)
}

fn curves(report: &Report, what: &str, across: &str, series: Vec<Series>) -> Curves {
    let machine = printable(&report.machine);
    Curves {
        caption: format!("simulated on {machine}, not measured: {what}"),
        across: across.to_owned(),
        up: "faster than os, percent".to_owned(),
        level: Some(0.0),
        series,
    }
}

fn of(report: &Report, question: Question) -> Vec<&PointFigures> {
    report.points.iter().filter(|point| point.question == question).collect()
}

/// In percent.
fn gain(policy: &PolicyFigures) -> Option<Estimate> {
    Some(policy.speedup?.percent_more().into())
}
