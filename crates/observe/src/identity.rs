//! What distinguishes one executable from another of the same name.

use colocate_files::{LargeFile, open_code};
use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Seek};
use std::path::Path;

/// Bytes searched for a build ID: linkers put notes before the code. Chosen.
const HEAD_B: u64 = 1 << 20;

/// Largest file identified by a hash of its content, in bytes. Chosen: seconds of hashing.
const MOST_B: u64 = 1 << 30;

/// Identity of the regular file at `path`: `build-id:HEX` with a build ID from the linker, else
/// `sha256:HEX` of the whole content, as for scripts.
///
/// # Errors
/// If the file cannot be read, or has no build ID and is larger than a GiB.
pub fn of_file(path: &Path) -> io::Result<String> {
    let LargeFile { mut file, metadata } = open_code(path)?;
    let mut head = Vec::new();
    (&file).take(HEAD_B).read_to_end(&mut head)?;
    let id = build_id::<FileHeader64<Endianness>>(&head);
    if let Some(id) = id.or_else(|| build_id::<FileHeader32<Endianness>>(&head)) {
        return Ok(format!("build-id:{}", hex(id)));
    }
    if metadata.len() > MOST_B {
        let what = format!("expected at most {MOST_B} bytes, found {}", metadata.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    file.rewind()?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    // It may grow meanwhile.
    let mut left = file.take(MOST_B);
    loop {
        match left.read(&mut piece)? {
            0 => return Ok(format!("sha256:{}", hex(&digest.finalize()))),
            length => digest.update(&piece[..length]),
        }
    }
}

/// Build ID in the notes of an executable with the first bytes `head`; not an empty one.
fn build_id<Elf: FileHeader<Endian = Endianness>>(head: &[u8]) -> Option<&[u8]> {
    let header = Elf::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, head).ok()?.iter();
    let mut notes = segments.filter_map(|segment| segment.notes(endian, head).ok().flatten());
    notes.find_map(|mut notes| {
        while let Ok(Some(note)) = notes.next() {
            let is_id = note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
            if is_id && !note.desc().is_empty() {
                return Some(note.desc());
            }
        }
        None
    })
}

/// `bytes` as pairs of hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::skip;

    fn of_content(content: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, content).unwrap();
        of_file(&path).unwrap()
    }

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

    /// A profile names the program that it is of, and can name anything.
    #[test]
    fn neither_devices_nor_huge_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        std::fs::File::create(&path).unwrap().set_len(10 << 30).unwrap();
        assert!(of_file(&path).unwrap_err().to_string().ends_with("found 10737418240"));
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(of_file(&fifo).is_err() && of_file(Path::new("/dev/zero")).is_err());
    }

    /// As another reader has it.
    #[test]
    fn a_build_id_is_that_of_the_library() {
        use object::Object;
        let own = std::env::current_exe().unwrap();
        let content = std::fs::read(&own).unwrap();
        let file = object::File::parse(&content[..]).unwrap();
        let Some(id) = file.build_id().unwrap() else { skip!(BuildIds, "this program has none") };
        assert_eq!(of_file(&own).unwrap(), format!("build-id:{}", hex(id)));
    }
}
