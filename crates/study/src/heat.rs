//! Who communicates with whom, as a heat map.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

/// Width and height of the map, in pixels.
const MAP: usize = 640;
/// Left and above of it, for numbers and the heading.
const EDGE: i32 = 48;
/// Most threads of which each has its number.
const NUMBERED: usize = 64;

/// The matrix as an SVG document: the darker, the more; white is nothing, black the largest amount. Rows from above and columns
/// from the left are threads in the order of creation.
///
/// # Errors
/// If there is no thread, or the drawing library fails to lay the picture out.
pub fn svg(matrix: &[Vec<f64>], heading: &str) -> Result<String, String> {
    if matrix.is_empty() {
        return Err("expected threads to draw, found none".to_owned());
    }
    let mut out = String::new();
    draw(matrix, heading, &mut out).map_err(|error| format!("cannot draw the matrix: {error}"))?;
    Ok(out)
}

fn draw(matrix: &[Vec<f64>], heading: &str, out: &mut String) -> Result<(), Box<dyn Error>> {
    let cell = i32::try_from((MAP / matrix.len()).max(1))?;
    let side = EDGE + cell * i32::try_from(matrix.len())?;
    let size = u32::try_from(side + 12)?;
    let root = SVGBackend::with_string(out, (size, size)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = matrix.iter().flatten().copied().fold(0.0, f64::max);
    let style = |size: i32, at: HPos| {
        ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(at, VPos::Center))
    };
    root.draw(&Text::new(heading.to_owned(), (EDGE, 14), style(15, HPos::Left)))?;
    for (y, row) in (0..).zip(matrix) {
        for (x, amount) in (0..).zip(row) {
            let from = (EDGE + x * cell, EDGE + y * cell);
            let to = (from.0 + cell, from.1 + cell);
            root.draw(&Rectangle::new([from, to], shade(*amount, most).filled()))?;
        }
        if matrix.len() <= NUMBERED {
            let at = EDGE + y * cell + cell / 2;
            let number = y.to_string();
            root.draw(&Text::new(number.clone(), (EDGE - 6, at), style(12, HPos::Right)))?;
            root.draw(&Text::new(number, (at, EDGE - 10), style(12, HPos::Center)))?;
        }
    }
    root.draw(&Rectangle::new([(EDGE, EDGE), (side, side)], BLACK.stroke_width(1)))?;
    root.present()?;
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
        let picture = svg(&[vec![0.0, 4.0], vec![2.0, 0.0]], "a < b").unwrap();
        for colour in ["#000000", "#FFFFFF", "#808080"] {
            assert!(picture.contains(colour), "{colour}: {picture}");
        }
        assert!(picture.contains("a &lt; b"));
        assert_eq!(svg(&[], "").unwrap_err(), "expected threads to draw, found none");
    }

    #[test]
    fn nothing_is_white() {
        assert!(svg(&[vec![0.0]], "").unwrap().contains("#FFFFFF"));
        assert_eq!(shade(1.0, 0.0), RGBColor(255, 255, 255));
    }
}
