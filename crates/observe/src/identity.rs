//! What tells one executable from another of the same name.

use object::Object;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The identity of the file at `path`: `build-id:HEX` if its linker left one, else `sha256:HEX` of
/// all of it. A script has the latter.
///
/// # Errors
/// If the file cannot be read.
pub fn of_file(path: &Path) -> io::Result<String> {
    Ok(of_content(&std::fs::read(path)?))
}

/// The identity of an executable with this content; see [`of_file`].
#[must_use]
pub fn of_content(content: &[u8]) -> String {
    // A note of no bytes identifies nothing, and a file that is not an executable has no notes.
    let build_id = object::File::parse(content)
        .ok()
        .and_then(|file| file.build_id().ok().flatten())
        .filter(|id| !id.is_empty());
    match build_id {
        Some(id) => hex("build-id:", id),
        None => hex("sha256:", &Sha256::digest(content)),
    }
}

fn hex(kind: &str, bytes: &[u8]) -> String {
    bytes.iter().fold(kind.to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_by_its_content() {
        // FIPS 180-2, appendix B.1: the digest of "abc".
        assert_eq!(
            of_content(b"abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn this_test_is_known_by_something() {
        let own = of_file(&std::env::current_exe().unwrap()).unwrap();
        let (kind, digits) = own.split_once(':').unwrap();
        assert!(matches!(kind, "build-id" | "sha256"), "{own}");
        assert!(digits.len() >= 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }

    #[test]
    fn a_broken_executable_is_known_by_its_content() {
        let cut = [&b"\x7fELF\x02\x01\x01"[..], &[0xff; 90]].concat();
        assert!(of_content(&cut).starts_with("sha256:"));
    }
}
