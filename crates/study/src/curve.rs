//! Curves with intervals as an SVG picture, a line for each series.

use colocate_figures::plot::{Area, ends, padded};
use colocate_figures::stats::Estimate;
use colocate_machine::printable;
use plotters::prelude::*;
use std::error::Error;

/// Width and height of a picture in pixels.
pub(crate) const SIZE: (u32, u32) = (900, 520);
/// Half the width of the bar at the end of an interval, as a share of the axis.
const BAR: f64 = 0.006;
/// Colours of the series, in order, again from the front after the last; the first seven are
/// distinct for the colour-blind too (Okabe and Ito).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
    RGBColor(136, 34, 85),
    RGBColor(153, 153, 51),
    RGBColor(51, 34, 136),
    RGBColor(170, 120, 90),
    RGBColor(170, 170, 170),
];

/// A line of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Places along the horizontal axis with their estimates, in the axis' order.
    pub points: Vec<(f64, Estimate)>,
}

/// A picture of curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Heading.
    pub caption: String,
    /// Quantity of the horizontal axis, with its unit.
    pub across: String,
    /// Quantity of the vertical axis, with its unit.
    pub up: String,
    /// Height of a thin line: the value without an effect.
    pub level: Option<f64>,
    /// The lines.
    pub series: Vec<Series>,
}

/// Pictures, one below the other, as an SVG document.
///
/// # Errors
/// Only if the drawing library fails; its line says how.
pub fn svg(all: &[Curves]) -> Result<String, String> {
    let count = all.len().max(1);
    // A document without pictures still needs a height.
    let height = SIZE.1.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    document("curves", (SIZE.0, height), |root| {
        let mut areas = all.iter().zip(root.split_evenly((count, 1)));
        areas.try_for_each(|(curves, area)| draw(curves, &area))
    })
}

/// An SVG document of a size in pixels, drawn on white; `what` it shows is named in an error.
pub(crate) fn document(
    what: &str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn Error>>,
) -> Result<String, String> {
    let mut out = String::new();
    let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
    let drawn = root.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&root));
    let drawn = drawn.and_then(|()| Ok(root.present()?));
    drop(root);
    drawn.map_err(|error| format!("cannot draw the {what}: {error}"))?;
    Ok(out)
}

pub(crate) fn draw(curves: &Curves, area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let points = curves.series.iter().flat_map(|series| &series.points);
    // 0 is always on the axis.
    let across = padded(points.clone().map(|(at, _)| *at).chain([0.0]));
    let up = padded(points.flat_map(|(_, found)| ends(*found)).chain(curves.level));
    let mut chart = ChartBuilder::on(area)
        .caption(printable(&curves.caption), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(50)
        .y_label_area_size(70)
        .build_cartesian_2d(across.0..across.1, up.0..up.1)?;
    chart
        .configure_mesh()
        .x_desc(&curves.across)
        .y_desc(&curves.up)
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    if let Some(level) = curves.level {
        let line = [(across.0, level), (across.1, level)];
        chart.draw_series([PathElement::new(line, BLACK.mix(0.5))])?;
    }
    let reach = (across.1 - across.0) * BAR;
    for (series, colour) in curves.series.iter().zip(COLOURS.into_iter().cycle()) {
        let middle = series.points.iter().map(|(at, found)| (*at, found.value));
        chart
            .draw_series(LineSeries::new(middle.clone(), colour.stroke_width(2)))?
            .label(printable(&series.name))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(middle.map(|place| Circle::new(place, 4, colour.filled())))?;
        let bars = series.points.iter().flat_map(|(at, found)| bars(*at, *found, reach));
        chart.draw_series(bars.map(|bar| PathElement::new(bar, colour.mix(0.7))))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 14))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

/// An interval as a line with a bar at each end, which reaches to both sides; nothing without an
/// interval.
fn bars(at: f64, found: Estimate, reach: f64) -> Vec<[(f64, f64); 2]> {
    let Some(interval) = found.interval else { return Vec::new() };
    let ends = [interval.low, interval.high].map(|end| [(at - reach, end), (at + reach, end)]);
    vec![[(at, interval.low), (at, interval.high)], ends[0], ends[1]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_figures::stats::Interval;

    fn found(value: f64, reach: Option<f64>) -> Estimate {
        let interval = reach.map(|reach| Interval { low: value - reach, high: value + reach });
        Estimate { value, interval }
    }

    fn picture(series: Vec<Series>) -> String {
        let curves = Curves {
            caption: "a <b>\u{1b}".to_owned(),
            across: "t/µs".to_owned(),
            up: "time".to_owned(),
            level: Some(1.0),
            series,
        };
        svg(&[curves]).unwrap()
    }

    #[test]
    fn every_point_and_name_is_in_the_picture() {
        let one = Series {
            name: "1 copy".to_owned(),
            points: vec![(10.0, found(1.0, Some(0.1))), (50.0, found(1.2, None))],
        };
        let two =
            Series { name: "2 copies".to_owned(), points: vec![(20.0, found(1.1, Some(0.05)))] };
        let drawn = picture(vec![one, two]);
        for text in ["1 copy", "2 copies", "t/µs", "time", "a &lt;b&gt;"] {
            assert!(drawn.contains(text), "{text} is missing");
        }
        assert_eq!(drawn.matches("<circle").count(), 3);
        assert!(!drawn.contains('\u{1b}') && drawn.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_found_is_drawn_too() {
        assert!(picture(Vec::new()).starts_with("<svg"));
        let empty = Series { name: "none".to_owned(), points: Vec::new() };
        assert_eq!(picture(vec![empty]).matches("<circle").count(), 0);
    }

    #[test]
    fn several_are_in_one_document() {
        let curves = |caption: &str| Curves {
            caption: caption.to_owned(),
            across: "t/µs".to_owned(),
            up: "time".to_owned(),
            level: None,
            series: vec![Series {
                name: caption.to_owned(),
                points: vec![(1.0, found(1.0, None))],
            }],
        };
        let drawn = svg(&[curves("upper"), curves("lower")]).unwrap();
        assert_eq!((drawn.matches("<svg").count(), drawn.matches("<circle").count()), (1, 2));
        assert!(drawn.contains("upper") && drawn.contains("lower"));
    }

    /// The interval itself and its two ends, each as wide as twice the reach.
    #[test]
    fn bars_by_hand() {
        let drawn = bars(10.0, found(1.0, Some(0.25)), 0.5);
        let expected = [
            [(10.0, 0.75), (10.0, 1.25)],
            [(9.5, 0.75), (10.5, 0.75)],
            [(9.5, 1.25), (10.5, 1.25)],
        ];
        assert_eq!(drawn, expected);
        assert!(bars(10.0, found(1.0, None), 0.5).is_empty());
    }
}
