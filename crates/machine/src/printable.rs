//! Text from outside, made safe to show: names of programs, paths and what files say can hold characters that act on a
//! terminal or on a viewer instead of being shown.
//!
//! # Properties
//! - **Printable**: no result holds such a character.                    -> test `nothing_unprintable_is_left`
//! - **One line**: a name adds no line to a text, and shifts no column.  -> test `a_name_stays_on_its_line`
//! - **Same value**: JSON is read back as the value that was written.    -> test `json_reads_back_as_it_was`

use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character acts on a terminal or a viewer: C0, DEL and C1 control characters, separators of lines and
/// paragraphs, and Unicode's property `Bidi_Control`, which changes the order in which characters are shown (UAX #9).
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || bidi || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A name from outside, as a part of a line: what is not printable, ends of lines and tabs too, is written as `\x1b` or
/// `\u{202e}`.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, is_unprintable, |out, c| {
        let code = u32::from(c);
        if code < 0x100 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") }
    })
}

/// A text of several lines, as [`printable`] writes names; its own ends of lines and tabs stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_unprintable(c) && !matches!(c, '\n' | '\t'),
        |out, c| out.write_str(&printable(c.encode_utf8(&mut [0; 4]))),
    )
}

/// A report as JSON text on several lines, ending in a newline.
///
/// # Panics
/// If a field has no JSON form, which none of our reports has: maps have texts for keys.
#[must_use]
pub fn json(report: &(impl Serialize + ?Sized)) -> String {
    let text = serde_json::to_string_pretty(report).expect("every field has a JSON form");
    in_strings(&text).into_owned() + "\n"
}

/// A report as JSON text on one line, ending in a newline.
///
/// # Panics
/// As [`json`].
#[must_use]
pub fn json_line(report: &impl Serialize) -> String {
    let text = serde_json::to_string(report).expect("every field has a JSON form");
    in_strings(&text).into_owned() + "\n"
}

/// A report as TOML text. A string that TOML's rules have written between single quotes keeps the escapes as its text.
///
/// # Errors
/// If a value has no TOML form, as numbers beyond 63 bits.
pub fn toml(report: &impl Serialize) -> Result<String, toml::ser::Error> {
    toml::to_string(report).map(|text| in_strings(&text).into_owned())
}

/// JSON or TOML text with `\u202e` for what is not printable. Both have such characters only in strings, beside
/// their ends of lines.
fn in_strings(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_unprintable(c) && c != '\n',
        |out, c| write!(out, "\\u{:04x}", u32::from(c)),
    )
}

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
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read.as_str().or(read[0].as_str()), Some(&*all()));
        }
        assert_eq!(json_line(&"\u{7f}\u{202e}"), "\"\\u007f\\u202e\"\n");
    }
}
