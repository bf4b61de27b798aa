//! Which threads communicate, as heat maps.

use colocate_figures::plot::Area;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Width and height of a map, in pixels: of one alone, and of several.
const ALONE: usize = 640;
const SEVERAL: usize = 220;
/// Maps beside each other.
const COLUMNS: usize = 4;
/// Left and above of a map, for numbers and its heading, in pixels.
const EDGE: i32 = 48;
/// Right and below of it.
const MARGIN: i32 = 12;
/// Most threads of which each has its number.
const NUMBERED: usize = 64;

/// A matrix and what it is called.
pub type Map<'a> = (&'a str, &'a [Vec<f64>]);

/// Matrices as an SVG document: the darker, the more; white is nothing, black the largest amount of the matrix. Rows from above
/// and columns from the left are threads in the order of creation.
///
/// # Errors
/// If there is no matrix or one without a thread, or the drawing library fails to lay the picture out.
pub fn svg(maps: &[Map<'_>]) -> Result<String, String> {
    if maps.is_empty() || maps.iter().any(|(_, matrix)| matrix.is_empty()) {
        return Err("expected threads to draw, found none".to_owned());
    }
    let mut out = String::new();
    draw(maps, &mut out).map_err(|error| format!("cannot draw the matrix: {error}"))?;
    Ok(out)
}

fn draw(maps: &[Map<'_>], out: &mut String) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::with_string(out, size(maps)?).into_drawing_area();
    root.fill(&WHITE)?;
    draw_in(maps, &root)?;
    root.present()?;
    Ok(())
}

/// Width of each map without its numbers.
const fn width(maps: &[Map<'_>]) -> usize {
    if maps.len() == 1 { ALONE } else { SEVERAL }
}

/// How many maps are in a row, and how many rows there are.
fn shape(maps: &[Map<'_>]) -> (usize, usize) {
    let columns = maps.len().clamp(1, COLUMNS);
    (columns, maps.len().div_ceil(columns))
}

/// Width and height of all, in pixels.
pub(crate) fn size(maps: &[Map<'_>]) -> Result<(u32, u32), Box<dyn Error>> {
    let most = maps.iter().map(|(_, matrix)| matrix.len()).max().unwrap_or(1).max(1);
    let cells = i32::try_from(most * (width(maps) / most).max(1))?;
    let side = u32::try_from(EDGE + MARGIN + cells)?;
    let (columns, rows) = shape(maps);
    Ok((u32::try_from(columns)? * side, u32::try_from(rows)? * side))
}

/// Draws all, none without a thread, beside each other.
pub(crate) fn draw_in(maps: &[Map<'_>], area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let (columns, rows) = shape(maps);
    for ((heading, matrix), area) in maps.iter().zip(area.split_evenly((rows, columns))) {
        draw_map(heading, matrix, i32::try_from((width(maps) / matrix.len()).max(1))?, &area)?;
    }
    Ok(())
}

fn draw_map(
    heading: &str,
    matrix: &[Vec<f64>],
    cell: i32,
    area: &Area<'_>,
) -> Result<(), Box<dyn Error>> {
    let most = matrix.iter().flatten().copied().fold(0.0, f64::max);
    let style = |size: i32, at: HPos| {
        ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(at, VPos::Center))
    };
    area.draw(&Text::new(heading.to_owned(), (EDGE, 14), style(15, HPos::Left)))?;
    for (y, row) in (0..).zip(matrix) {
        for (x, amount) in (0..).zip(row) {
            let from = (EDGE + x * cell, EDGE + y * cell);
            let to = (from.0 + cell, from.1 + cell);
            area.draw(&Rectangle::new([from, to], shade(*amount, most).filled()))?;
        }
        if matrix.len() <= NUMBERED {
            let at = EDGE + y * cell + cell / 2;
            let number = y.to_string();
            area.draw(&Text::new(number.clone(), (EDGE - 6, at), style(12, HPos::Right)))?;
            area.draw(&Text::new(number, (at, EDGE - 10), style(12, HPos::Center)))?;
        }
    }
    let end = EDGE + cell * i32::try_from(matrix.len())?;
    area.draw(&Rectangle::new([(EDGE, EDGE), (end, end)], BLACK.stroke_width(1)))?;
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 255
fn shade(amount: f64, most: f64) -> RGBColor {
    let part = if most > 0.0 { (amount / most).clamp(0.0, 1.0) } else { 0.0 };
    let grey = (255.0 * (1.0 - part)).round() as u8;
    RGBColor(grey, grey, grey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_amount_is_black() {
        let matrix = [vec![0.0, 4.0], vec![2.0, 0.0]];
        let picture = svg(&[("a < b", &matrix)]).unwrap();
        for colour in ["#000000", "#FFFFFF", "#808080"] {
            assert!(picture.contains(colour), "{colour}: {picture}");
        }
        assert!(picture.contains("a &lt; b"));
        assert_eq!(svg(&[]).unwrap_err(), "expected threads to draw, found none");
        assert_eq!(svg(&[("", &[])]).unwrap_err(), "expected threads to draw, found none");
    }

    #[test]
    fn several_stand_beside_each_other() {
        let matrix = [vec![1.0]];
        let picture = svg(&[("map", &matrix[..]); 5]).unwrap();
        assert!(picture.contains("width=\"1120\" height=\"560\""), "{picture}");
        assert_eq!(picture.matches("map").count(), 5);
    }

    #[test]
    fn nothing_is_white() {
        assert!(svg(&[("", &[vec![0.0]])]).unwrap().contains("#FFFFFF"));
        assert_eq!(shade(1.0, 0.0), RGBColor(255, 255, 255));
    }
}
