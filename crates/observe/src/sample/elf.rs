//! Code of an ELF file: loaded segments, and the bounds of functions.
//!
//! # Problem
//! The lengths in a file's headers are the choice of its writer. A sparse file that takes 16 KB on
//! disk can claim four gigabytes of symbols.
//! # Approach
//! Tables are read in pieces into a buffer of fixed size; only kept entries take memory. Each byte
//! is paid for before it is read. The unwind table is parsed in memory, so it has a limit of its
//! own. A file beyond these limits counts as unreadable. A broken or truncated table counts as
//! empty; a table that breaks off keeps its entries up to there.

use super::budget::StepBudget;
use colocate_isa::Isa;
use gimli::UnwindSection;
use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::pod::{Pod, from_bytes, slice_from_bytes};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Budget for the tables of one file. Chosen: eight times the cost of LLVM 22, the largest measured
/// (docs/reference/sampling.md).
pub const MOST_STEPS: u64 = 500_000_000;

/// Length limit of an unwind table, in bytes. Chosen: eight times LLVM 22's, the largest found.
const LARGEST_UNWIND_B: u64 = 1 << 26;

/// Limit of functions by unwind table and by symbols each: 64 MiB. Chosen: 13 times LLVM 22's.
const MOST_FUNCTIONS: usize = 1 << 21;

/// Limit of the CIEs (common information entries) of an unwind table, some 10 MB. Chosen: linkers
/// leave one of each kind, fewer than 100 in all files examined.
const MOST_COMMON: usize = 1 << 16;

/// Length limit of program headers, in bytes: the kernel's own (`load_elf_phdrs`).
const MOST_SEGMENTS_B: u64 = 65_536;

/// Records read at once, 64 KiB of the largest records.
const BURST: u64 = 1024;

/// Budget per byte of a table, and per function with its list entry: measured on LLVM 22.
const STEPS_A_BYTE: u64 = 2;
const STEPS_A_FUNCTION: u64 = 100;

/// Random-access bytes: a file, or a copy of a file.
pub trait ReadAt {
    /// Fills `bytes` from `offset_b` on; `None` if fewer bytes are left.
    fn fill(&self, bytes: &mut [u8], offset_b: u64) -> Option<()>;

    /// Length in bytes; `None` if unknown.
    fn length_b(&self) -> Option<u64>;
}

impl ReadAt for File {
    fn fill(&self, bytes: &mut [u8], offset_b: u64) -> Option<()> {
        self.read_exact_at(bytes, offset_b).ok()
    }

    fn length_b(&self) -> Option<u64> {
        self.metadata().ok().map(|metadata| metadata.len())
    }
}

impl ReadAt for [u8] {
    fn fill(&self, bytes: &mut [u8], offset_b: u64) -> Option<()> {
        let from = usize::try_from(offset_b).ok()?;
        bytes.copy_from_slice(self.get(from..from.checked_add(bytes.len())?)?);
        Some(())
    }

    fn length_b(&self) -> Option<u64> {
        Some(self.len() as u64)
    }
}

/// Loaded part of the file.
#[derive(Debug)]
struct Segment {
    address: u64,
    offset_b: u64,
    length_b: u64,
}

/// Code tables of an ELF file.
#[derive(Debug)]
pub struct Tables {
    /// Instruction set.
    pub isa: Isa,
    segments: Vec<Segment>,
    /// Address ranges of functions: sorted, without overlaps.
    pub functions: Vec<Range<u64>>,
}

impl Tables {
    /// Reads the tables of `file`. `None` if `file` is no 64-bit ELF file, is for an unsupported
    /// instruction set, or exceeds `budget` or the limits of this module.
    #[must_use]
    pub fn read(file: &(impl ReadAt + ?Sized), budget: &mut StepBudget) -> Option<Self> {
        budget.within(MOST_STEPS, |budget| TableReader { file, budget }.tables())
    }

    /// Link-time address of the byte at offset `offset_b` in the file.
    #[must_use]
    pub fn address(&self, offset_b: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            // The sum may overflow: any number can stand in the headers of a foreign file.
            .find(|s| (s.offset_b..s.offset_b.saturating_add(s.length_b)).contains(&offset_b))?;
        segment.address.checked_add(offset_b - segment.offset_b)
    }

    /// Function around `address`.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        function.contains(&address).then(|| function.clone())
    }

    /// Bytes of `file` at `addresses` as far as their segment, at most `most_b`.
    #[must_use]
    pub fn bytes(
        &self,
        file: &(impl ReadAt + ?Sized),
        addresses: Range<u64>,
        most_b: u64,
    ) -> Vec<u8> {
        let start = addresses.start;
        let segment = self
            .segments
            .iter()
            .find(|s| (s.address..s.address.saturating_add(s.length_b)).contains(&start));
        let Some(segment) = segment else { return Vec::new() };
        let inside = addresses.start - segment.address;
        let wanted = addresses.end.saturating_sub(addresses.start).min(segment.length_b - inside);
        let mut bytes = vec![0; usize::try_from(wanted.min(most_b)).unwrap_or(0)];
        match file.fill(&mut bytes, segment.offset_b.saturating_add(inside)) {
            Some(()) => bytes,
            // The file was truncated after it was opened.
            None => Vec::new(),
        }
    }
}

/// Position of a table in the file, and its load address.
#[derive(Clone, Copy)]
struct ElfTable {
    offset_b: u64,
    length_b: u64,
    address: u64,
}

/// Tables that describe functions, the first of each kind.
#[derive(Default)]
struct Sections {
    unwind: Option<ElfTable>,
    symbols: Option<ElfTable>,
    dynamic: Option<ElfTable>,
}

/// Reads tables within the budget.
struct TableReader<'a, R: ?Sized> {
    file: &'a R,
    budget: &'a mut StepBudget,
}

impl<R: ReadAt + ?Sized> TableReader<'_, R> {
    fn tables(mut self) -> Option<Tables> {
        let mut head = [0; size_of::<FileHeader64<Endianness>>()];
        self.file.fill(&mut head, 0)?;
        let header = FileHeader64::<Endianness>::parse(&head[..]).ok()?;
        let endian = header.endian().ok()?;
        let isa = match header.e_machine(endian) {
            elf::EM_X86_64 => Isa::X86_64,
            elf::EM_AARCH64 => Isa::Aarch64,
            _ => return None,
        };
        let segments = self.segments(header, endian)?;
        let sections = self.sections(header, endian)?;
        let mut functions = match sections.unwind {
            Some(table) => self.unwind_ranges(table, endian)?,
            None => Vec::new(),
        };
        let mut symbols = Vec::new();
        for table in sections.symbols.into_iter().chain(sections.dynamic) {
            self.symbol_ranges(table, endian, &mut symbols)?;
        }
        // Unwind ranges are exact; symbols only fill the gaps.
        reach_to_next(&mut symbols);
        add_between(&mut functions, symbols);
        functions.shrink_to_fit();
        Some(Tables { isa, segments, functions })
    }

    /// Pays for a table of `length_b` bytes.
    fn pay(&mut self, length_b: u64) -> Option<()> {
        self.budget.spend(length_b.saturating_mul(STEPS_A_BYTE))
    }

    /// Whether the file contains the whole table.
    fn holds(&self, table: ElfTable) -> bool {
        let end = table.offset_b.checked_add(table.length_b);
        end.is_some_and(|end| self.file.length_b().is_some_and(|length_b| end <= length_b))
    }

    /// Calls `each` with the records of a table in order, until `each` is over budget. A table
    /// outside the file is taken as empty, and a table that shrinks meanwhile ends there.
    fn records<T: Pod>(
        &mut self,
        table: ElfTable,
        mut each: impl FnMut(&mut Self, &T) -> Option<()>,
    ) -> Option<()> {
        if !self.holds(table) {
            return Some(());
        }
        let record_b = size_of::<T>() as u64;
        let mut piece = Vec::new();
        // An incomplete record at the end is left out.
        let end = table.offset_b + table.length_b / record_b * record_b;
        let mut at = table.offset_b;
        while at < end {
            let length_b = (end - at).min(BURST * record_b);
            self.pay(length_b)?;
            piece.resize(usize::try_from(length_b).ok()?, 0);
            if self.file.fill(&mut piece, at).is_none() {
                return Some(());
            }
            let count = usize::try_from(length_b / record_b).ok()?;
            let Ok((records, _)) = slice_from_bytes::<T>(&piece, count) else { return Some(()) };
            for record in records {
                each(self, record)?;
            }
            at += length_b;
        }
        Some(())
    }

    fn segments(
        &mut self,
        header: &FileHeader64<Endianness>,
        endian: Endianness,
    ) -> Option<Vec<Segment>> {
        let record_b = size_of::<ProgramHeader64<Endianness>>() as u64;
        let length_b = u64::from(header.e_phnum(endian)) * record_b;
        // Object files have no program headers, and give 0 as the size of an entry.
        let fits = length_b == 0
            || (length_b <= MOST_SEGMENTS_B && u64::from(header.e_phentsize(endian)) == record_b);
        let table = ElfTable { offset_b: header.e_phoff(endian), length_b, address: 0 };
        if !fits || !self.holds(table) {
            return None;
        }
        let mut segments = Vec::new();
        self.records(table, |_, record: &ProgramHeader64<Endianness>| {
            if record.p_type(endian) == elf::PT_LOAD {
                segments.push(Segment {
                    address: record.p_vaddr(endian),
                    offset_b: record.p_offset(endian),
                    length_b: record.p_filesz(endian),
                });
            }
            Some(())
        })?;
        Some(segments)
    }

    fn sections(
        &mut self,
        header: &FileHeader64<Endianness>,
        endian: Endianness,
    ) -> Option<Sections> {
        let mut found = Sections::default();
        let record_b = size_of::<SectionHeader64<Endianness>>() as u64;
        let offset_b = header.e_shoff(endian);
        if offset_b == 0 {
            return Some(found);
        }
        if u64::from(header.e_shentsize(endian)) != record_b {
            return None;
        }
        // With 0xff00 sections or more, the first section header holds the count and the index of
        // the names (gABI, SHN_XINDEX).
        let first: SectionHeader64<Endianness> = self.one(offset_b)?;
        let count = match header.e_shnum(endian) {
            0 => first.sh_size(endian),
            count => u64::from(count),
        };
        let names = match header.e_shstrndx(endian) {
            elf::SHN_XINDEX => u64::from(first.sh_link(endian)),
            section => u64::from(section.0),
        };
        let table = ElfTable { offset_b, length_b: count.checked_mul(record_b)?, address: 0 };
        if !self.holds(table) || names >= count {
            return None;
        }
        let names: SectionHeader64<Endianness> = self.one(offset_b + names * record_b)?;
        self.records(table, |reader, record: &SectionHeader64<Endianness>| {
            let table = ElfTable {
                offset_b: record.sh_offset(endian),
                length_b: record.sh_size(endian),
                address: record.sh_addr(endian),
            };
            match record.sh_type(endian) {
                elf::SHT_SYMTAB => found.symbols = found.symbols.or(Some(table)),
                elf::SHT_DYNSYM => found.dynamic = found.dynamic.or(Some(table)),
                elf::SHT_PROGBITS | elf::SHT_X86_64_UNWIND if found.unwind.is_none() => {
                    let name_b = u64::from(record.sh_name(endian));
                    // A compressed section is never loaded, so it is not used for unwinding.
                    let is_plain = !record.sh_flags(endian).contains(elf::SHF_COMPRESSED);
                    if is_plain && reader.is_unwind(names.sh_offset(endian).checked_add(name_b)?)? {
                        found.unwind = Some(table);
                    }
                }
                _ => {}
            }
            Some(())
        })?;
        Some(found)
    }

    /// A single record at `offset_b`.
    fn one<T: Pod + Copy>(&mut self, offset_b: u64) -> Option<T> {
        let mut bytes = vec![0; size_of::<T>()];
        self.pay(bytes.len() as u64)?;
        self.file.fill(&mut bytes, offset_b)?;
        from_bytes::<T>(&bytes).ok().map(|(record, _)| *record)
    }

    /// Whether the name at `offset_b` is `.eh_frame`, the unwind table. `None` if over budget.
    fn is_unwind(&mut self, offset_b: u64) -> Option<bool> {
        const NAME: &[u8] = b".eh_frame\0";
        let mut name = [0; NAME.len()];
        self.budget.spend(STEPS_A_FUNCTION)?;
        Some(self.file.fill(&mut name, offset_b).is_some() && name == NAME)
    }

    /// Ranges in the unwind table: sorted, without overlaps.
    fn unwind_ranges(&mut self, table: ElfTable, endian: Endianness) -> Option<Vec<Range<u64>>> {
        if !self.holds(table) {
            return Some(Vec::new());
        }
        if table.length_b > LARGEST_UNWIND_B {
            // Spends all steps, so the whole file counts as unreadable.
            return self.budget.spend(u64::MAX).and(None);
        }
        self.pay(table.length_b)?;
        let mut bytes = vec![0; usize::try_from(table.length_b).ok()?];
        if self.file.fill(&mut bytes, table.offset_b).is_none() {
            return Some(Vec::new());
        }
        let is_little = endian == Endianness::Little;
        let mut found = unwind_ranges(&bytes, table.address, is_little, self.budget)?;
        drop(bytes);
        cut_overlaps(&mut found);
        Some(found)
    }

    /// Adds the ranges of a symbol table's functions to `found`, empty ones without a size.
    fn symbol_ranges(
        &mut self,
        table: ElfTable,
        endian: Endianness,
        found: &mut Vec<Range<u64>>,
    ) -> Option<()> {
        self.records(table, |reader, symbol: &Sym64<Endianness>| {
            let section = symbol.st_shndx(endian);
            // SHN_XINDEX: the section's number is in a table of its own, so the symbol is defined.
            let is_defined = !section.is_special() || section == elf::SHN_XINDEX;
            let start = symbol.st_value(endian);
            if symbol.st_type() != elf::STT_FUNC || !is_defined || start == 0 {
                return Some(());
            }
            reader.budget.spend(STEPS_A_FUNCTION)?;
            if found.len() >= MOST_FUNCTIONS {
                return reader.budget.spend(u64::MAX);
            }
            found.push(start..start.saturating_add(symbol.st_size(endian)));
            Some(())
        })
    }
}

/// Ranges in `table`, a `.eh_frame` loaded at `address`, in its order. A broken entry ends the
/// list; the ranges before it are kept. `None` if over budget.
pub fn unwind_ranges(
    table: &[u8],
    address: u64,
    is_little_endian: bool,
    budget: &mut StepBudget,
) -> Option<Vec<Range<u64>>> {
    let endian = match is_little_endian {
        true => gimli::RunTimeEndian::Little,
        false => gimli::RunTimeEndian::Big,
    };
    let mut unwind = gimli::EhFrame::new(table, endian);
    unwind.set_address_size(8);
    let bases = gimli::BaseAddresses::default().set_eh_frame(address);
    let mut found = Vec::new();
    // CIEs precede their entries (FDEs). Each is parsed once and kept: parsing it again for each
    // entry would make the work quadratic in the table's length.
    let mut common = HashMap::new();
    let mut entries = unwind.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        budget.spend(STEPS_A_FUNCTION)?;
        match entry {
            gimli::CieOrFde::Cie(_) if common.len() >= MOST_COMMON => {
                return budget.spend(u64::MAX).and(None);
            }
            gimli::CieOrFde::Cie(cie) => {
                common.insert(cie.offset(), cie);
            }
            gimli::CieOrFde::Fde(partial) => {
                let parsed = partial.parse(|_, _, offset: gimli::EhFrameOffset| {
                    common.get(&offset.0).cloned().ok_or(gimli::Error::NotCieId(offset.0 as u64))
                });
                let Ok(fde) = parsed else { continue };
                if found.len() >= MOST_FUNCTIONS {
                    return budget.spend(u64::MAX).and(None);
                }
                let start = fde.initial_address();
                found.push(start..start.saturating_add(fde.len()));
            }
        }
    }
    Some(found)
}

/// Sorts `ranges`, and truncates overlapping ranges.
fn cut_overlaps(ranges: &mut Vec<Range<u64>>) {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by_key(|range| range.start);
    for place in 1..ranges.len() {
        let next = ranges[place].start;
        ranges[place - 1].end = ranges[place - 1].end.min(next);
    }
}

/// Sorts `symbols`; a symbol without a size extends to the next symbol.
fn reach_to_next(symbols: &mut [Range<u64>]) {
    symbols.sort_unstable_by_key(|range| range.start);
    let mut here = None;
    let mut next = None;
    for range in symbols.iter_mut().rev() {
        if here != Some(range.start) {
            next = here;
            here = Some(range.start);
        }
        if range.is_empty() {
            range.end = next.unwrap_or(range.start);
        }
    }
}

/// Adds the ranges of `more` that fit between `ranges`, which are sorted without overlaps.
fn add_between(ranges: &mut Vec<Range<u64>>, mut more: Vec<Range<u64>>) {
    more.retain(|range| {
        let after = ranges.partition_point(|other| other.start < range.end);
        after == 0 || ranges[after - 1].end <= range.start
    });
    if !more.is_empty() {
        ranges.append(&mut more);
        cut_overlaps(ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_fill_gaps_only() {
        let mut ranges = vec![20..30, 10..20, 50..60];
        cut_overlaps(&mut ranges);
        add_between(&mut ranges, vec![12..14, 30..45, 40..50, 55..70, 70..80]);
        assert_eq!(ranges, [10..20, 20..30, 30..40, 40..50, 50..60, 70..80]);
    }

    #[test]
    fn a_symbol_without_a_size_reaches_to_the_next() {
        let mut symbols = vec![30..30, 10..10, 10..12, 20..20, 20..25];
        reach_to_next(&mut symbols);
        symbols.sort_by_key(|range| (range.start, range.end));
        assert_eq!(symbols, [10..12, 10..20, 20..25, 20..30, 30..30]);
    }
}
