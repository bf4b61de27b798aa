//! A file for `object` to read, of which only so much can be read.
//!
//! `object` takes the lengths in a file's headers as they are, and its own cache reads a table of gigabytes into memory.

use object::read::ReadRef;
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use typed_arena::Arena;

/// Maximum number of bytes read of a file. Chosen: nine times the symbols of LLVM 22, which
/// `object` reads whether needed or not.
const MOST_B: u64 = 1 << 26;

/// Bytes of a string, at most.
const LONGEST_STRING_B: u64 = 4096;

/// Input for [`object`], limited to 64 MiB. Reads beyond fail like those beyond the file's end.
pub struct BoundedFile {
    file: File,
    length_b: u64,
    left_b: Cell<u64>,
    pieces: Arena<u8>,
}

impl BoundedFile {
    /// Of a plain file.
    ///
    /// # Errors
    /// If its length cannot be had.
    pub fn of(file: File) -> std::io::Result<Self> {
        let length_b = file.metadata()?.len();
        Ok(Self { file, length_b, left_b: Cell::new(MOST_B), pieces: Arena::new() })
    }
}

impl<'a> ReadRef<'a> for &'a BoundedFile {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length_b)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let end = offset.checked_add(size).ok_or(())?;
        let left = self.left_b.get().checked_sub(size).ok_or(())?;
        if end > self.length_b {
            return Err(());
        }
        self.left_b.set(left);
        let size = usize::try_from(size).map_err(|_| ())?;
        let bytes = self.pieces.alloc_extend(std::iter::repeat_n(0, size));
        self.file.read_exact_at(bytes, offset).map_err(|_| ())?;
        Ok(bytes)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let length_b = range.end.checked_sub(range.start).ok_or(())?.min(LONGEST_STRING_B);
        let bytes = self.read_bytes_at(range.start, length_b)?;
        bytes
            .split(|byte| *byte == delimiter)
            .next()
            // Without a delimiter in these bytes, the string is too long or cut off by the end.
            .filter(|text| text.len() < bytes.len())
            .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_much_is_read() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(b"name\0", 100).unwrap();
        let bounded = BoundedFile::of(file).unwrap();
        assert_eq!((&bounded).read_bytes_at(100, 4), Ok(&b"name"[..]));
        assert_eq!((&bounded).read_bytes_at_until(100..1 << 40, 0), Ok(&b"name"[..]));
        assert_eq!((&bounded).read_bytes_at_until(100..104, 0), Err(()));
        assert_eq!((&bounded).read_bytes_at(0, 1 << 32), Err(()));
        assert_eq!((&bounded).read_bytes_at(u64::MAX, 2), Err(()));
        assert_eq!((&bounded).read_bytes_at((1 << 40) - 1, 2), Err(()));
        assert_eq!((&bounded).read_bytes_at(0, MOST_B / 2).map(<[u8]>::len), Ok(1 << 25));
        assert_eq!((&bounded).read_bytes_at(0, MOST_B / 2), Err(()), "it is spent");
    }
}
