//! Reports as JSON text.

use serde::Serialize;

/// A report as JSON text, ending in a newline.
///
/// # Panics
/// If a field has no JSON form, which none of our reports has: maps have texts for keys.
pub fn text(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("every field has a JSON form");
    text.push('\n');
    text
}
