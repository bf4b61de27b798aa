//! Line numbers of figures in the text of a description.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Line of the byte at offset `at`, from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Line of a figure, from 1, by its key, such as `cache[1].size`: the line of its name or of its
/// list entry, or of the enclosing table if the figure is missing. The key does not contain the
/// `value` of figures with a source.
pub(super) fn line_of(text: &str, key: &str) -> usize {
    let Ok(table) = DeTable::parse(text) else { return 1 };
    let mut steps = key.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let mut at = 0;
    let mut value = steps.next().and_then(|step| named(table.get_ref(), step, &mut at));
    for step in steps {
        value = match value.map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => {
                // A figure with its source: the list is the `value` of a table.
                let figure = table.iter().find(|(key, _)| key.get_ref() == "value");
                match figure.map(|(_, figure)| figure.get_ref()) {
                    Some(DeValue::Array(values)) => entry(values, step, &mut at),
                    _ => named(table, step, &mut at),
                }
            }
            Some(DeValue::Array(values)) => entry(values, step, &mut at),
            _ => break,
        };
    }
    line_at(text, at)
}

/// Looks up an entry of a list. Sets `at` to its offset in the text.
fn entry<'t, 'i>(
    values: &'t [Spanned<DeValue<'i>>],
    step: &str,
    at: &mut usize,
) -> Option<&'t Spanned<DeValue<'i>>> {
    let value = step.parse().ok().and_then(|index: usize| values.get(index))?;
    *at = value.span().start;
    Some(value)
}

/// Looks up an entry of a table. Sets `at` to the offset of its name.
fn named<'t, 'i>(
    table: &'t DeTable<'i>,
    name: &str,
    at: &mut usize,
) -> Option<&'t Spanned<DeValue<'i>>> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    *at = key.span().start;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version = 1\n[shape]\npackages = 2\n[[cache]]\nlevel = 1\n[[cache]]\nlevel = 2\n[x]\ny = [\n 1,\n 2,\n]\n[z]\nvalue = [\n 1,\n]\n";

    #[test]
    fn figures_are_found() {
        let lines = [
            ("version", 1),
            ("shape.packages", 3),
            ("cache[0].level", 5),
            ("cache[1].level", 7),
            ("x.y[1]", 11),
            ("x.y", 9),
            ("z[0]", 15),
        ];
        for (key, line) in lines {
            assert_eq!(line_of(TEXT, key), line, "{key}");
        }
    }

    /// A figure that is not there is named where it should be.
    #[test]
    fn what_should_hold_it_is_found() {
        let lines =
            [("shape.nodes", 2), ("cache[1].size", 6), ("cache[7].size", 4), ("nothing", 1)];
        for (key, line) in lines {
            assert_eq!(line_of(TEXT, key), line, "{key}");
        }
    }
}
