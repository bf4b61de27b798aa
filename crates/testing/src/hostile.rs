//! Names that would drive a terminal or forge a line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Clears the screen, forges a line of ours, and begins sequences in eight bits and in Unicode's C1; turns the direction
/// of the text. Short enough to be whole in a thread's name of 15 bytes up to the forged line.
pub const HOSTILE: &str = "e\x1b[2J\nFORGED\r\u{9b}2J\u{7f}\u{202e}\u{2066}\u{2028}x\t\u{7}";

/// The same as the name of a file, which need not be UTF-8: CSI in one byte.
#[must_use]
pub fn file_name() -> OsString {
    OsString::from_vec([HOSTILE.as_bytes(), b"\x9b2J\x9f"].concat())
}

/// The same as the value of a TOML key or a JSON one.
///
/// # Panics
/// Never: text has a JSON form.
#[must_use]
pub fn quoted() -> String {
    serde_json::to_string(HOSTILE).unwrap().replace('\u{7f}', "\\u007f")
}

/// What must not be in anything that is written: the rule of Unicode and ECMA-48, written down a second time.
fn is_wrong(c: char) -> bool {
    let code = u32::from(c);
    let control = code < 0x20 && c != '\n' || (0x7f..0xa0).contains(&code);
    let layout = [0x61c, 0x200e, 0x200f].contains(&code)
        || (0x2028..=0x202e).contains(&code)
        || (0x2066..=0x2069).contains(&code);
    control || layout
}

/// Fails if a text would act on a terminal, or if a name has made a line of its own.
///
/// # Panics
/// With `what` if so.
pub fn check(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes);
    let text = text.unwrap_or_else(|why| panic!("{what}: {why}: {bytes:?}"));
    let found: Vec<char> = text.chars().filter(|&c| is_wrong(c)).collect();
    assert!(found.is_empty(), "{what}: {found:?} in {text:?}");
    if what.ends_with(".toml\"") {
        // TOML writes the end of a line in a string as it is.
        return;
    }
    let forged = text.lines().find(|line| line.starts_with("FORGED"));
    assert!(forged.is_none(), "{what}: {text:?}");
}
