//! The program's command with a number of threads.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};

/// Placeholder of the number of threads in CMD.
const PLACE: &[u8] = b"{threads}";

/// The command for `threads` threads.
pub fn prepared(command: &[OsString], threads: u32) -> Command {
    let number = threads.to_string();
    let words: Vec<OsString> = command.iter().map(|word| with_number(word, &number)).collect();
    let mut prepared = Command::new(&words[0]);
    prepared.args(&words[1..]).env("OMP_NUM_THREADS", &number);
    prepared.stdin(Stdio::null()).stdout(Stdio::null());
    prepared
}

/// `word` with every placeholder replaced by the number.
fn with_number(word: &OsStr, number: &str) -> OsString {
    let mut rest = word.as_bytes();
    let mut all = Vec::new();
    while let Some(at) = rest.windows(PLACE.len()).position(|part| part == PLACE) {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(number.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    all.extend_from_slice(rest);
    OsString::from_vec(all)
}

/// Whether CMD has a placeholder.
pub fn has_place(command: &[String]) -> bool {
    command.iter().any(|word| word.as_bytes().windows(PLACE.len()).any(|part| part == PLACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_put_in_its_places() {
        let with = |word: &str| with_number(OsStr::new(word), "12").into_string().unwrap();
        assert_eq!(with("-t{threads}"), "-t12");
        assert_eq!(with("{threads}:{threads}"), "12:12");
        assert_eq!(with("{thread}{threads"), "{thread}{threads");
        assert_eq!(with(""), "");
        assert!(
            has_place(&["a".to_owned(), "-j{threads}".to_owned()]) && !has_place(&["a".to_owned()])
        );
    }
}
