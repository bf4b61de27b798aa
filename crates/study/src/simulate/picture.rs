//! Simulated figures as an SVG picture: ratios of all policies to the baseline, metric by metric.

use super::figures::{PolicyFigures, Simulated, SimulatedVerdict};
use super::table;
use crate::curve::document;
use crate::metric::Metric;
use colocate_figures::plot::{Area, FASTER, MEAN, OPEN, RatioRow, SLOWER, draw_ratios, label};
use colocate_figures::stats::Estimate;
use colocate_machine::printable;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

/// Width of the picture in pixels.
const WIDTH: u32 = 1000;
/// Width of the column with the policies' names, in pixels.
const NAMES: i32 = 200;
/// Width of the column with the verdicts, in pixels.
const VERDICTS: i32 = 260;
/// Height of a policy's row in pixels.
const ROW: u32 = 30;
/// Height of a metric's caption and axis together, in pixels.
const FRAME: u32 = 90;
/// Number of metrics.
#[allow(clippy::cast_possible_truncation)] // a handful
const METRICS: u32 = Metric::OF_SCENARIOS.len() as u32;
/// Height of the heading, in pixels.
const HEADING: i32 = 64;

/// The figures as an SVG document. Text is text: the viewer picks the font.
///
/// # Errors
/// Only if the drawing library fails to lay the picture out; its line says how.
pub fn svg(found: &Simulated) -> Result<String, String> {
    // A scenario has at most some dozen policies.
    let policies = u32::try_from(found.policies.len()).unwrap_or(u32::from(u16::MAX));
    let height = HEADING.unsigned_abs() + METRICS * (FRAME + policies * ROW);
    document("figures", (WIDTH, height), |root| draw(found, root))
}

fn draw(found: &Simulated, root: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let settings = &found.settings;
    let lines = [
        format!(
            "simulated on {}, not measured: {}",
            printable(&settings.machine),
            printable(&settings.scenario)
        ),
        format!(
            "ratio to {} under the default assumptions; bars: over {} sets of assumptions and {} seeds",
            settings.baseline, settings.draws, settings.seeds
        ),
    ];
    for (line, y) in lines.iter().zip([22, 46]) {
        root.draw(&label(line, (12, y), HPos::Left, BLACK))?;
    }
    let (_, panels) = root.split_vertically(HEADING);
    let mut areas = panels.split_evenly((Metric::OF_SCENARIOS.len(), 1)).into_iter().enumerate();
    areas.try_for_each(|(place, area)| draw_metric(found, place, &area))
}

fn draw_metric(found: &Simulated, place: usize, area: &Area) -> Result<(), Box<dyn Error>> {
    let (names, rest) = area.split_horizontally(NAMES);
    let (ratios, verdicts) = rest.split_horizontally(WIDTH.cast_signed() - NAMES - VERDICTS);
    let rows = found.policies.iter().map(|policy| RatioRow {
        policy: &policy.policy,
        ratio: policy.metrics[place].ratio.map(Estimate::from),
        verdict: table::verdict(&policy.metrics[place]),
        colour: colour(policy, place),
    });
    let rows: Vec<RatioRow<'_>> = rows.collect();
    let caption = Metric::OF_SCENARIOS[place].title();
    draw_ratios(&rows, [&names, &ratios, &verdicts], caption, "ratio, simulated")
}

fn colour(policy: &PolicyFigures, place: usize) -> RGBColor {
    match policy.metrics[place].verdict {
        SimulatedVerdict::Baseline => MEAN,
        SimulatedVerdict::Better => FASTER,
        SimulatedVerdict::Worse => SLOWER,
        SimulatedVerdict::NotResolved => OPEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::figures::tests::{runs, settings};

    #[test]
    fn every_policy_metric_and_verdict_is_in_the_picture() {
        let settings = settings(&["os", "mix", "<compact>"], 2, 2);
        let runs =
            runs(&settings, |policy, draw, _| [2.0, 1.6, 1.99][policy] + f64::from(draw) * 0.05);
        let drawn = svg(&Simulated::of(settings, &runs)).unwrap();
        for metric in Metric::OF_SCENARIOS {
            assert!(drawn.contains(metric.title()), "{metric:?}");
        }
        for text in ["simulated on 2x Test 1000", "baseline", "20.0 % better", "&lt;compact&gt;"] {
            assert!(drawn.contains(text), "{text} is missing");
        }
        // Two ratios of each of five metrics.
        assert_eq!(drawn.matches("<circle").count(), 10);
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn runs_without_an_end_are_drawn_too() {
        let settings = settings(&["os", "mix"], 1, 1);
        let mut runs = runs(&settings, |_, _, _| 1.0);
        runs.iter_mut().for_each(|run| run.metrics = [None; 5]);
        let drawn = svg(&Simulated::of(settings, &runs)).unwrap();
        assert_eq!(drawn.matches("<circle").count(), 0);
        assert!(drawn.contains("not resolved: runs did not end"));
    }
}
