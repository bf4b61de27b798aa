//! A comparison as an SVG picture: every run, the means, the ratios, with their intervals.

use crate::comparison::{Comparison, ComparisonVerdict, PolicyFigures};
use crate::stats::Estimate;
use crate::table;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Width of the picture in pixels.
const WIDTH: u32 = 1000;
/// Width of the left column, the policies' names, in pixels.
const NAMES: i32 = 140;
/// Width of the right column, the verdicts, in pixels.
const VERDICTS: i32 = 140;
/// Width of the left chart, the times, in pixels; the right chart fills the rest.
const TIMES: i32 = 400;
/// Height of one policy's row in pixels.
const ROW: u32 = 44;
/// Height of caption and axis together, in pixels.
const FRAME: u32 = 90;

/// Colour of a single run.
const RUN: RGBColor = RGBColor(120, 150, 190);
/// Colour of a mean.
pub const MEAN: RGBColor = RGBColor(20, 40, 90);
/// Colour of a resolved gain.
pub const FASTER: RGBColor = RGBColor(20, 120, 60);
/// Colour of a resolved loss.
pub const SLOWER: RGBColor = RGBColor(170, 50, 30);
/// Colour of a difference that is not resolved.
pub const OPEN: RGBColor = RGBColor(110, 110, 110);

/// Rectangular area of an SVG picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the comparison as an SVG document. Text is not converted to outlines: the viewer picks the
/// font.
///
/// # Errors
/// The message of the drawing library, if the layout fails.
pub fn svg(found: &Comparison) -> Result<String, String> {
    let mut out = String::new();
    draw(found, &mut out).map_err(|error| format!("cannot draw the comparison: {error}"))?;
    Ok(out)
}

fn draw(found: &Comparison, out: &mut String) -> Result<(), Box<dyn Error>> {
    let rows = u32::try_from(found.policies.len()).unwrap_or(u32::MAX).min(1_000);
    let root = SVGBackend::with_string(out, (WIDTH, FRAME + rows * ROW)).into_drawing_area();
    root.fill(&WHITE)?;
    // Three columns: names, two charts, verdicts.
    let (names, rest) = root.split_horizontally(NAMES);
    let (charts, verdicts) = rest.split_horizontally(WIDTH.cast_signed() - NAMES - VERDICTS);
    let (times, ratios) = charts.split_horizontally(TIMES);
    draw_times(found, &times)?;
    let rows = found.policies.iter().map(|figures| RatioRow {
        policy: &figures.policy,
        ratio: figures.ratio,
        verdict: table::verdict(figures),
        colour: colour(figures),
    });
    let rows: Vec<RatioRow<'_>> = rows.collect();
    let caption = format!("time relative to {}", found.settings.baseline);
    draw_ratios(&rows, [&names, &ratios, &verdicts], &caption, "ratio; 95 % interval")?;
    root.present()?;
    Ok(())
}

/// Text of 17 pixels, vertically centred on `place`, in pixels.
pub fn label(
    text: &str,
    place: (i32, i32),
    side: HPos,
    colour: RGBColor,
) -> Text<'static, (i32, i32), String> {
    let style = ("sans-serif", 17).into_font().color(&colour).pos(Pos::new(side, VPos::Center));
    Text::new(text.to_owned(), place, style)
}

/// Middle of a policy's row, on an axis that counts rows downwards from 0.
fn middle(row: usize) -> f64 {
    f64::from(u32::try_from(row).unwrap_or(u32::MAX)) + 0.5
}

/// A chart with two linear axes.
type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// An empty chart with `caption` over an axis from `low` to `high`, one row a policy.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    caption: &str,
    axis: &str,
    (low, high): (f64, f64),
    rows: usize,
) -> Result<Chart<'a, 'b>, Box<dyn Error>>
where
    'b: 'a,
{
    // The vertical axis is turned round: row 0 is at the top.
    let bottom = middle(rows) - 0.5;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 17))
        .margin_right(24)
        .margin_top(8)
        .x_label_area_size(50)
        .build_cartesian_2d(low..high, bottom..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(6)
        .x_desc(axis)
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 14))
        .x_label_formatter(&|value| {
            format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
        })
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(chart)
}

fn draw_times(found: &Comparison, area: &Area) -> Result<(), Box<dyn Error>> {
    let all = found.runs.iter().map(|run| run.slowest().as_secs_f64());
    let means = found.policies.iter().filter_map(|p| p.slowest_seconds).flat_map(|s| ends(s.mean));
    let range = padded(all.chain(means));
    let caption =
        format!("{}: slowest program's time", colocate_machine::printable(&found.settings.name));
    let mut chart = chart(area, &caption, "seconds; dots: runs", range, found.policies.len())?;
    for (row, figures) in found.policies.iter().enumerate() {
        let runs = found.runs.iter().filter(|run| run.policy == figures.policy);
        let dots = runs.map(|run| {
            // Runs lie below the middle of the row, the mean above.
            let place = (run.slowest().as_secs_f64(), middle(row) + 0.16);
            Circle::new(place, 3, RUN.mix(0.7).filled())
        });
        chart.draw_series(dots)?;
        if let Some(summary) = figures.slowest_seconds {
            draw_estimate(&mut chart, summary.mean, middle(row) - 0.12, MEAN)?;
        }
    }
    Ok(())
}

/// A row of the chart of ratios.
pub struct RatioRow<'a> {
    /// Name of the policy.
    pub policy: &'a str,
    /// Ratio to the baseline; `None` if unknown.
    pub ratio: Option<Estimate>,
    /// Verdict in words.
    pub verdict: String,
    /// Colour of the ratio and the verdict.
    pub colour: RGBColor,
}

/// Draws names, a chart of the ratios below `caption`, and verdicts, one row a policy.
///
/// # Errors
/// If the drawing library fails to lay the picture out.
pub fn draw_ratios(
    policies: &[RatioRow<'_>],
    [names, ratios, verdicts]: [&Area; 3],
    caption: &str,
    axis: &str,
) -> Result<(), Box<dyn Error>> {
    let known = policies.iter().filter_map(|row| row.ratio).flat_map(ends);
    // The line of no change is always visible.
    let range = padded(known.chain([1.0]));
    let mut chart = chart(ratios, caption, axis, range, policies.len())?;
    let whole = [(1.0, 0.0), (1.0, middle(policies.len()) - 0.5)];
    chart.draw_series([PathElement::new(whole, BLACK.mix(0.5))])?;
    let right = names.dim_in_pixel().0.cast_signed() - 8;
    for (place, row) in policies.iter().enumerate() {
        if let Some(ratio) = row.ratio {
            draw_estimate(&mut chart, ratio, middle(place), row.colour)?;
        }
        // The names' area does not begin at the top of the picture, which backend_coord counts
        // from.
        let y = chart.backend_coord(&(range.0, middle(place))).1 - names.get_base_pixel().1;
        names.draw(&label(row.policy, (right, y), HPos::Right, BLACK))?;
        verdicts.draw(&label(&row.verdict, (0, y), HPos::Left, row.colour))?;
    }
    Ok(())
}

/// Draws a bar over the interval, if known, and a dot at the value.
fn draw_estimate(
    chart: &mut Chart,
    estimate: Estimate,
    y: f64,
    colour: RGBColor,
) -> Result<(), Box<dyn Error>> {
    if let Some(interval) = estimate.interval {
        let bar = [(interval.low, y), (interval.high, y)];
        let ends = bar
            .map(|(x, y)| PathElement::new([(x, y - 0.1), (x, y + 0.1)], colour.stroke_width(2)));
        chart.draw_series([PathElement::new(bar, colour.stroke_width(2))])?;
        chart.draw_series(ends)?;
    }
    chart.draw_series([Circle::new((estimate.value, y), 5, colour.filled())])?;
    Ok(())
}

fn colour(figures: &PolicyFigures) -> RGBColor {
    match figures.verdict {
        ComparisonVerdict::Baseline => MEAN,
        ComparisonVerdict::Faster | ComparisonVerdict::Better => FASTER,
        ComparisonVerdict::Slower | ComparisonVerdict::Worse => SLOWER,
        ComparisonVerdict::NotResolved => OPEN,
    }
}

/// Ends of the interval, if known, and the value.
pub fn ends(estimate: Estimate) -> impl Iterator<Item = f64> {
    let interval = estimate.interval.map(|interval| [interval.low, interval.high]);
    interval.into_iter().flatten().chain([estimate.value])
}

/// Range of `values` with a margin; 0 to 1 without values.
pub fn padded(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return (0.0, 1.0);
    }
    // One value, or several alike, still need an axis of some length.
    let margin = ((high - low) * 0.08).max(high.abs() * 0.01).max(1e-9);
    (low - margin, high + margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::place;
    use crate::state::StudyState;
    use crate::state::tests::{finished, settings};

    fn picture(state: &StudyState) -> String {
        svg(&Comparison::of(state, place())).unwrap()
    }

    #[test]
    fn every_policy_run_and_verdict_is_in_the_picture() {
        let state = finished(settings(&["os", "mix", "scatter"], 5), |policy, block| {
            policy.len() as u64 * 100 + u64::from(block)
        });
        let drawn = picture(&state);
        for text in ["os", "mix", "scatter", "baseline", "more time", "time relative to os"] {
            assert!(drawn.contains(text), "{text} is missing");
        }
        // 15 runs, 3 means and 2 ratios are circles.
        assert_eq!(drawn.matches("<circle").count(), 20);
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn odd_studies_are_drawn_too() {
        let one = picture(&finished(settings(&["os"], 1), |_, _| 7));
        assert_eq!(one.matches("<circle").count(), 2);
        let none = picture(&StudyState::new(settings(&["os", "mix"], 2)));
        assert_eq!(none.matches("<circle").count(), 0);
        let alike = picture(&finished(settings(&["os", "mix"], 3), |_, _| 7));
        assert!(alike.contains("not resolved"));
    }

    #[test]
    fn markup_in_a_name_is_text() {
        let mut state = finished(settings(&["os"], 1), |_, _| 7);
        // XML has no place for control characters.
        state.settings.name = "<script>\u{1b}".to_owned();
        let drawn = picture(&state);
        assert!(drawn.contains("&lt;script&gt;") && !drawn.contains('\u{1b}'));
    }
}
