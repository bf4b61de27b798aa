//! Escaping of untrusted text for display: names of programs, paths and contents of files may
//! contain characters that control a terminal or a viewer.
//!
//! # Properties
//! - **Printable**: no result holds such a character.                    -> test `nothing_unprintable_is_left`
//! - **One line**: a name adds no line to a text, and shifts no column.  -> test `a_name_stays_on_its_line`
//! - **Same value**: JSON parses as the value that was written.        -> test `json_reads_back_as_it_was`
//! - **TOML too**: with any of the quotes of TOML.                      -> test `toml_reads_back_as_it_was`

use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// True if a character controls a terminal or a viewer: C0, DEL and C1 control characters,
/// separators of lines and paragraphs, and Unicode's property `Bidi_Control`, which reorders
/// displayed characters (UAX #9).
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Escapes an untrusted name as a part of a line. Unprintable characters, including line ends and
/// tabs, become `\x1b` or `\u{202e}`.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, is_unprintable, |out, c| {
        let code = u32::from(c);
        if code < 0x100 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") }
    })
}

/// Greatest width of a table cell followed by others, in characters. Chosen: three lines of a
/// terminal.
pub const CELL: usize = 240;

/// Escapes an untrusted name as a table cell: [`printable`], cut to [`CELL`] characters. Rust's own
/// padding panics from 65,536 characters on.
#[must_use]
pub fn cell(name: &str) -> Cow<'_, str> {
    let text = printable(name);
    if text.chars().nth(CELL).is_none() {
        return text;
    }
    Cow::Owned(text.chars().take(CELL - 1).chain(['…']).collect())
}

/// Escapes an untrusted text of several lines as [`printable`]; line ends and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_unprintable(c) && !matches!(c, '\n' | '\t'),
        |out, c| out.write_str(&printable(c.encode_utf8(&mut [0; 4]))),
    )
}

/// Formats a report as JSON text on several lines, ending in a newline.
///
/// # Panics
/// If a field has no JSON form. No report of this project has such a field: the keys of its maps
/// are texts.
#[must_use]
pub fn json(report: &(impl Serialize + ?Sized)) -> String {
    let text = serde_json::to_string_pretty(report).expect("every field has a JSON form");
    in_strings(&text).into_owned() + "\n"
}

/// Formats a report as JSON text on one line, ending in a newline.
///
/// # Panics
/// As [`json`].
#[must_use]
pub fn json_line(report: &impl Serialize) -> String {
    let text = serde_json::to_string(report).expect("every field has a JSON form");
    in_strings(&text).into_owned() + "\n"
}

/// Formats a report as TOML text.
///
/// # Errors
/// If a value has no TOML form, such as a number beyond 63 bits.
pub fn toml(report: &impl Serialize) -> Result<String, toml::ser::Error> {
    let text = toml::to_string(report)?;
    let has_unprintable = text.contains(|c| is_unprintable(c) && c != '\n');
    Ok(if has_unprintable { in_strings(&without_literals(&text)).into_owned() } else { text })
}

/// Rewrites the literal strings of TOML text, which have no escapes, as basic strings, which have
/// the escapes of JSON.
fn without_literals(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(['"', '\'']) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        // Three quotes first, as they begin with a single one.
        let quote =
            ["\"\"\"", "\"", "\'\'\'", "\'"].into_iter().find(|quote| rest.starts_with(quote));
        let quote = quote.expect("one was found");
        let inside = &rest[quote.len()..];
        let is_literal = quote.starts_with('\'');
        let mut places = inside.char_indices().map(|(place, _)| place);
        let end = places.find(|&end| {
            // An even number of backslashes escapes itself, not the quote.
            let escapes = inside[..end].chars().rev().take_while(|&c| c == '\\').count();
            inside[end..].starts_with(quote) && (is_literal || escapes % 2 == 0)
        });
        let mut end = end.expect("what TOML's writer begins it ends");
        // Of more than three quotes, the last three end the string.
        while quote.len() == 3 && inside[end + 1..].starts_with(quote) {
            end += 1;
        }
        let whole = quote.len() + end + quote.len();
        // A line end right after the opening quotes is not part of the string.
        let inside = inside[..end].strip_prefix('\n').unwrap_or(&inside[..end]);
        if is_literal {
            out.push_str(&Value::from(inside).to_string());
        } else {
            out.push_str(&rest[..whole]);
        }
        rest = &rest[whole..];
    }
    out + rest
}

/// Escapes unprintable characters of JSON or TOML text as `\u202e`. Outside strings, neither format
/// has unprintable characters except line ends.
fn in_strings(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_unprintable(c) && c != '\n',
        |out, c| write!(out, "\\u{:04x}", u32::from(c)),
    )
}

/// Replaces the characters selected by `wrong` by the output of `escape`.
fn escaped(
    text: &str,
    wrong: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char) -> std::fmt::Result,
) -> Cow<'_, str> {
    let Some(first) = text.find(&wrong) else { return Cow::Borrowed(text) };
    let mut out = text[..first].to_owned();
    for c in text[first..].chars() {
        if wrong(c) {
            // Writing to a string cannot fail.
            let _ = escape(&mut out, c);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character that is not printable, and some that are.
    fn all() -> String {
        (0..=0x2fff).filter_map(char::from_u32).collect::<String>() + "\u{10ffff}"
    }

    #[test]
    fn nothing_unprintable_is_left() {
        let left = |text: &str| text.chars().filter(|&c| is_unprintable(c)).collect::<String>();
        assert_eq!(left(&printable(&all())), "");
        assert_eq!(left(&printable_lines(&all())), "\t\n");
        assert_eq!(left(&json_line(&all())), "\n");
        let wrong = "\0\u{7}\u{8}\r\u{b}\u{1b}\u{7f}\u{80}\u{9b}\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\
                     \u{202e}\u{2066}\u{2069}";
        assert_eq!(left(wrong), wrong);
        assert_eq!(left("aä日 \u{a0}\u{2027}\u{202f}\u{2065}\u{206a}\u{fffd}"), "");
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(printable("a\nb\tc\x1b[2J\u{9b}\u{202e}ä"), r"a\x0ab\x09c\x1b[2J\x9b\u{202e}ä");
        assert_eq!(printable_lines("a\nb\tc\r\x1b"), "a\nb\tc\\x0d\\x1b");
        assert_eq!(format!("{:<7}|", printable("\x1b[m")), "\\x1b[m |");
    }

    #[test]
    fn json_reads_back_as_it_was() {
        for text in [json(&all()), json_line(&[all()])] {
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read.as_str().or(read[0].as_str()), Some(&*all()));
        }
        assert_eq!(json_line(&"\u{7f}\u{202e}"), "\"\\u007f\\u202e\"\n");
    }

    #[test]
    fn toml_reads_back_as_it_was() {
        let quoted = [
            "\u{2028}\"",
            "'\u{2028}\"",
            "a\\\u{2028}",
            "\n\u{2028}\"\"\"",
            "it's \u{2028}",
            "\u{2028}\\\"'\"\"\"\n'",
        ];
        let texts: Vec<String> = quoted.map(str::to_owned).into_iter().chain([all()]).collect();
        for text in texts {
            let report = std::collections::BTreeMap::from([
                ("a", vec![text.clone(), "\"".into()]),
                ("b", vec![text]),
            ]);
            let written = toml(&report).unwrap();
            let read: std::collections::BTreeMap<String, Vec<String>> =
                toml::from_str(&written).unwrap();
            assert!(read.iter().all(|(key, value)| report[&**key] == *value), "{written}");
            assert!(!written.contains(|c| is_unprintable(c) && c != '\n'), "{written:?}");
        }
    }
}
