//! Heat maps of communication between threads.

use crate::curve::document;
use colocate_figures::plot::Area;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Width and height of a single map, in pixels.
const ALONE: usize = 640;
/// Width and height of each of several maps, in pixels.
const SEVERAL: usize = 220;
/// Most maps in a row.
const COLUMNS: usize = 4;
/// Space left of and above a map, for numbers and its heading, in pixels.
const EDGE: i32 = 48;
/// Space right of and below a map, in pixels.
const MARGIN: i32 = 12;
/// Most threads with numbers.
const NUMBERED: usize = 64;

/// A matrix with its name.
pub type Map<'a> = (&'a str, &'a [Vec<f64>]);

/// Matrices as an SVG document. White is 0, black the largest amount of the matrix. Rows from above
/// and columns from the left are threads in the order of creation.
///
/// # Errors
/// A line, if there is no matrix, a matrix has no threads, or the drawing library fails.
pub fn svg(maps: &[Map<'_>]) -> Result<String, String> {
    if maps.is_empty() || maps.iter().any(|(_, matrix)| matrix.is_empty()) {
        return Err("expected threads to draw, found none".to_owned());
    }
    let size = size(maps).map_err(|error| format!("cannot draw the matrix: {error}"))?;
    document("matrix", size, |root| draw_in(maps, root))
}

/// Width of each map without its numbers, in pixels.
const fn width(maps: &[Map<'_>]) -> usize {
    if maps.len() == 1 { ALONE } else { SEVERAL }
}

/// Number of maps in a row, and number of rows.
fn shape(maps: &[Map<'_>]) -> (usize, usize) {
    let columns = maps.len().clamp(1, COLUMNS);
    (columns, maps.len().div_ceil(columns))
}

/// Width and height of all maps together, in pixels.
pub(crate) fn size(maps: &[Map<'_>]) -> Result<(u32, u32), Box<dyn Error>> {
    let most = maps.iter().map(|(_, matrix)| matrix.len()).max().unwrap_or(1).max(1);
    // Cells are whole pixels, so a map may be smaller than `width`.
    let cells = i32::try_from(most * (width(maps) / most).max(1))?;
    let side = u32::try_from(EDGE + MARGIN + cells)?;
    let (columns, rows) = shape(maps);
    Ok((u32::try_from(columns)? * side, u32::try_from(rows)? * side))
}

/// Draws maps beside each other; each must have a thread.
pub(crate) fn draw_in(maps: &[Map<'_>], area: &Area<'_>) -> Result<(), Box<dyn Error>> {
    let (columns, rows) = shape(maps);
    for ((heading, matrix), area) in maps.iter().zip(area.split_evenly((rows, columns))) {
        // With more threads than pixels, a cell is one pixel.
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
    area.draw(&label(heading.to_owned(), (EDGE, 14), 15, HPos::Left))?;
    for (y, row) in (0..).zip(matrix) {
        for (x, amount) in (0..).zip(row) {
            let from = (EDGE + x * cell, EDGE + y * cell);
            let to = (from.0 + cell, from.1 + cell);
            area.draw(&Rectangle::new([from, to], shade(*amount, most).filled()))?;
        }
        if matrix.len() <= NUMBERED {
            let at = EDGE + y * cell + cell / 2;
            let number = y.to_string();
            area.draw(&label(number.clone(), (EDGE - 6, at), 12, HPos::Right))?;
            area.draw(&label(number, (at, EDGE - 10), 12, HPos::Center))?;
        }
    }
    let end = EDGE + cell * i32::try_from(matrix.len())?;
    area.draw(&Rectangle::new([(EDGE, EDGE), (end, end)], BLACK.stroke_width(1)))?;
    Ok(())
}

/// A text at a place, in a font size in pixels.
fn label(
    text: String,
    place: (i32, i32),
    size: i32,
    at: HPos,
) -> Text<'static, (i32, i32), String> {
    let font = ("sans-serif", size).into_font();
    Text::new(text, place, font.color(&BLACK).pos(Pos::new(at, VPos::Center)))
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
