//! The code in an ELF file: where functions begin and end, and their bytes.
//!
//! Bounds come from the unwind tables (`.eh_frame`), which stripped programs keep because
//! exceptions and backtraces need them; symbols fill the gaps that assembly and Go leave.

use super::file::open_plain;
use colocate_isa::Isa;
use gimli::UnwindSection;
use object::read::ReadCache;
use object::{Architecture, Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Code of one file, opened but read piece by piece.
#[derive(Debug)]
pub struct Image {
    isa: Isa,
    file: File,
    segments: Vec<Segment>,
    /// Addresses of functions: sorted, without overlaps.
    functions: Vec<Range<u64>>,
    /// Of the file, when this was read.
    stamp: Stamp,
}

/// What changes when a file is written to: its length, and when it was last changed (seconds and nanoseconds).
type Stamp = (u64, i64, i64);

#[derive(Debug)]
struct Segment {
    address: u64,
    offset_b: u64,
    length_b: u64,
}

impl Image {
    /// Opens `path` and lists its functions; `None` if it cannot be read, is no ELF file, or is for
    /// an instruction set that we do not decode.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        Self::of(open_plain(path)?.0)
    }

    /// Lists the functions of `file`, as [`Image::open`].
    #[must_use]
    pub fn of(file: File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        // Reading a device or a pipe could block for ever.
        if !metadata.is_file() {
            return None;
        }
        let cache = ReadCache::new(&file);
        let elf = object::File::parse(&cache).ok()?;
        let isa = match elf.architecture() {
            Architecture::X86_64 => Isa::X86_64,
            Architecture::Aarch64 => Isa::Aarch64,
            _ => return None,
        };
        let segments = elf.segments().map(|segment| {
            let (offset_b, length_b) = segment.file_range();
            Segment { address: segment.address(), offset_b, length_b }
        });
        let segments = segments.collect();
        let functions = without_overlaps(unwind_ranges(&elf), symbol_ranges(&elf));
        Some(Self { isa, file, segments, functions, stamp: stamp(&metadata) })
    }

    /// Whether nobody has written to the file since it was opened, which some linkers do.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| stamp(&metadata) == self.stamp)
    }

    /// Whether the file has a name yet. Without one its space on disk is given back once nobody has it open.
    #[must_use]
    pub fn has_name(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The address, as the linker gave it, of the byte `offset_b` bytes into the file.
    #[must_use]
    pub fn address(&self, offset_b: u64) -> Option<u64> {
        let covers =
            |s: &&Segment| (s.offset_b..s.offset_b.saturating_add(s.length_b)).contains(&offset_b);
        let segment = self.segments.iter().find(covers)?;
        segment.address.checked_add(offset_b - segment.offset_b)
    }

    /// The function that `address` is in.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        function.contains(&address).then(|| function.clone())
    }

    /// The bytes at `addresses`, fewer at the end of a segment; none if nothing is there.
    #[must_use]
    pub fn bytes(&self, addresses: Range<u64>) -> Vec<u8> {
        let covers = |s: &&Segment| {
            (s.address..s.address.saturating_add(s.length_b)).contains(&addresses.start)
        };
        let Some(segment) = self.segments.iter().find(covers) else { return Vec::new() };
        let inside = addresses.start - segment.address;
        let wanted = addresses.end.saturating_sub(addresses.start).min(segment.length_b - inside);
        let mut bytes = vec![0; usize::try_from(wanted.min(LONGEST)).unwrap_or(0)];
        match self.file.read_exact_at(&mut bytes, segment.offset_b.saturating_add(inside)) {
            Ok(()) => bytes,
            // The file has been cut short since it was opened.
            Err(_) => Vec::new(),
        }
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// No more than this is read at once. Chosen: 16 times the largest function of Debian's node.
const LONGEST: u64 = 1 << 24;

/// The ranges that the unwind tables name.
fn unwind_ranges<'a>(elf: &impl Object<'a>) -> Vec<Range<u64>> {
    let Some(section) = elf.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.uncompressed_data() else { return Vec::new() };
    let endian = if elf.is_little_endian() {
        gimli::RunTimeEndian::Little
    } else {
        gimli::RunTimeEndian::Big
    };
    let mut unwind = gimli::EhFrame::new(&data, endian);
    unwind.set_address_size(if elf.is_64() { 8 } else { 4 });
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut found = Vec::new();
    let mut entries = unwind.entries(&bases);
    // A broken entry ends the list; what came before it is good.
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset)
        {
            found.push(fde.initial_address()..fde.initial_address().saturating_add(fde.len()));
        }
    }
    found
}

/// The ranges of functions in the symbol tables; one without a size reaches to the next symbol.
fn symbol_ranges<'a>(elf: &impl Object<'a>) -> Vec<Range<u64>> {
    let is_code = |symbol: &Range<u64>| symbol.start > 0;
    let mut found: Vec<Range<u64>> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| symbol.address()..symbol.address().saturating_add(symbol.size()))
        .filter(is_code)
        .collect();
    found.sort_by_key(|range| range.start);
    let starts: Vec<u64> = found.iter().map(|range| range.start).collect();
    for range in &mut found {
        if range.is_empty() {
            let next = starts.partition_point(|start| *start <= range.start);
            range.end = starts.get(next).copied().unwrap_or(range.start);
        }
    }
    found
}

/// All of `first`, sorted, and what of `second` fits between; overlapping ones are cut short.
fn without_overlaps(first: Vec<Range<u64>>, second: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let sorted = |mut ranges: Vec<Range<u64>>| {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.dedup_by_key(|range| range.start);
        for place in 1..ranges.len() {
            let next = ranges[place].start;
            ranges[place - 1].end = ranges[place - 1].end.min(next);
        }
        ranges
    };
    let first = sorted(first);
    let free = |range: &Range<u64>| {
        let after = first.partition_point(|other| other.start < range.end);
        after == 0 || first[after - 1].end <= range.start
    };
    let more: Vec<Range<u64>> = second.into_iter().filter(free).collect();
    if more.is_empty() { first } else { sorted([first, more].concat()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Where the code of [`program`] begins in its file, in bytes.
    pub const CODE_B: u64 = 0x1000;

    /// An ELF file of x86-64 with `code` and without functions.
    pub fn program(code: &[u8]) -> Vec<u8> {
        let length = (CODE_B + code.len() as u64).to_le_bytes();
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(16, 0);
        // Executable, x86-64, version 1; entry, program headers at 64, no sections.
        elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        elf.extend([0x10_0000_u64, 64, 0].map(u64::to_le_bytes).concat());
        // Flags, sizes of the header and of one program header.
        elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        // Loaded, readable and executable, from the beginning of the file.
        elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        elf.extend([0, 0x10_0000, 0x10_0000].map(u64::to_le_bytes).concat());
        elf.extend([length, length, 0x1000_u64.to_le_bytes()].concat());
        elf.resize(usize::try_from(CODE_B).unwrap(), 0x90);
        elf.extend(code);
        elf
    }

    /// How many files of a folder this process has open, with and without those that are deleted.
    pub fn open_in(folder: &Path) -> (usize, usize) {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let to = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let of: Vec<_> = to.filter(|to| to.starts_with(folder)).collect();
        let deleted = of.iter().filter(|to| to.to_string_lossy().ends_with(" (deleted)"));
        (of.len(), of.len() - deleted.count())
    }

    #[test]
    fn a_file_that_is_written_to_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, program(&[0x90, 0xc3])).unwrap();
        let image = Image::open(&path).unwrap();
        assert_eq!(image.address(CODE_B + 1), Some(0x10_1001));
        assert!(image.is_unchanged() && image.has_name());
        std::fs::write(&path, program(&[0xc3])).unwrap();
        assert!(!image.is_unchanged() && image.has_name());
        std::fs::remove_file(&path).unwrap();
        assert!(!image.has_name());
    }

    /// The header says where in the file the segment lies: up to the last byte there can be, and then one more.
    #[test]
    fn a_segment_beyond_all_files_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut elf = program(&[0xc3]);
        elf[72..80].copy_from_slice(&(u64::MAX - CODE_B).to_le_bytes());
        std::fs::write(&path, elf).unwrap();
        let image = Image::open(&path).unwrap();
        assert_eq!(image.address(u64::MAX - 1), Some(0x10_0000 + CODE_B - 1));
        assert_eq!(image.address(0), None);
    }

    #[test]
    fn symbols_fill_gaps_only() {
        let unwind = vec![20..30, 10..20, 50..60];
        let symbols = vec![12..14, 30..45, 40..50, 55..70, 70..80];
        let expected = [10..20, 20..30, 30..40, 40..50, 50..60, 70..80];
        assert_eq!(without_overlaps(unwind, symbols), expected);
    }

    #[test]
    fn our_own_functions_are_found() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Some(image.isa()), Isa::native());
        assert!(image.functions.len() > 100);
        assert!(image.functions.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let function = image.functions[image.functions.len() / 2].clone();
        assert_eq!(image.function(function.start), Some(function.clone()));
        assert_eq!(image.bytes(function.clone()).len() as u64, function.end - function.start);
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "#!/bin/sh\n").unwrap();
        assert!(Image::open(&text).is_none());
        assert!(Image::open(Path::new("/dev/null")).is_none());
        assert!(Image::open(&folder.path().join("absent")).is_none());
    }
}
