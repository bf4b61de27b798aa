//! Simulated figures as an SVG picture: every policy's ratio to the baseline, metric by metric.

use super::figures::{Metric, PolicyFigures, Simulated, Verdict};
use super::table;
use crate::plot::{Area, FASTER, MEAN, OPEN, SLOWER, chart, draw_estimate, label, middle, padded};
use crate::stats::Estimate;
use colocate_machine::printable;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::error::Error;

/// Width of the picture in pixels.
const WIDTH: u32 = 1000;
/// Width of the column with the policies' names, in pixels.
const NAMES: i32 = 200;
/// Width of the column with what may be said of them, in pixels.
const VERDICTS: i32 = 260;
/// Height of one policy's row in pixels.
const ROW: u32 = 30;
/// Height of a metric's caption and axis together, in pixels.
const FRAME: u32 = 90;
/// Height of the lines above all, in pixels.
const HEADING: i32 = 64;

/// The figures as an SVG document. Text is text: the viewer picks the font.
///
/// # Errors
/// Only if the drawing library fails to lay the picture out; its line says how.
pub fn svg(found: &Simulated) -> Result<String, String> {
    let mut out = String::new();
    draw(found, &mut out).map_err(|error| format!("cannot draw the figures: {error}"))?;
    Ok(out)
}

fn draw(found: &Simulated, out: &mut String) -> Result<(), Box<dyn Error>> {
    let metrics = u32::try_from(Metric::ALL.len())?;
    let panel = FRAME + u32::try_from(found.policies.len())? * ROW;
    let size = (WIDTH, HEADING.unsigned_abs() + metrics * panel);
    let root = SVGBackend::with_string(out, size).into_drawing_area();
    root.fill(&WHITE)?;
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
    for (place, area) in panels.split_evenly((Metric::ALL.len(), 1)).iter().enumerate() {
        draw_metric(found, place, area)?;
    }
    root.present()?;
    Ok(())
}

fn draw_metric(found: &Simulated, place: usize, area: &Area) -> Result<(), Box<dyn Error>> {
    let (names, rest) = area.split_horizontally(NAMES);
    let (ratios, verdicts) = rest.split_horizontally(WIDTH.cast_signed() - NAMES - VERDICTS);
    let estimates: Vec<Option<Estimate>> = found
        .policies
        .iter()
        .map(|policy| policy.metrics[place].ratio.map(Estimate::from))
        .collect();
    let ends = |estimate: &Estimate| {
        let interval = estimate.interval;
        [Some(estimate.value), interval.map(|i| i.low), interval.map(|i| i.high)]
    };
    let all = estimates.iter().flatten().flat_map(ends).flatten();
    let range = padded(all.chain([1.0]));
    let rows = found.policies.len();
    let caption = Metric::ALL[place].name();
    let mut chart = chart(&ratios, caption, "ratio, simulated", range, rows)?;
    let whole = [(1.0, 0.0), (1.0, middle(rows) - 0.5)];
    chart.draw_series([PathElement::new(whole, BLACK.mix(0.5))])?;
    for (row, policy) in found.policies.iter().enumerate() {
        if let Some(estimate) = estimates[row] {
            draw_estimate(&mut chart, estimate, middle(row), colour(policy, place))?;
        }
    }
    for (row, policy) in found.policies.iter().enumerate() {
        let y = chart.backend_coord(&(range.0, middle(row))).1 - names.get_base_pixel().1;
        names.draw(&label(&policy.policy, (NAMES - 8, y), HPos::Right, BLACK))?;
        let said = table::verdict(&policy.metrics[place]);
        verdicts.draw(&label(&said, (0, y), HPos::Left, colour(policy, place)))?;
    }
    Ok(())
}

fn colour(policy: &PolicyFigures, place: usize) -> RGBColor {
    match policy.metrics[place].verdict {
        Verdict::Baseline => MEAN,
        Verdict::Better => FASTER,
        Verdict::Worse => SLOWER,
        Verdict::NotResolved => OPEN,
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
        for metric in Metric::ALL {
            assert!(drawn.contains(metric.name()), "{metric:?}");
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
