//! Files whose headers claim what their writer likes: reading them takes a bounded number of steps and a bounded amount of
//! memory, whatever they claim.
//!
//! Each file is sparse: a page of headers, and tables of a gigabyte and more that take no space on disk. It is read in a
//! process of its own whose address space is limited, which then says how much of it it has used.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_observe::sample::budget::StepBudget;
use colocate_observe::sample::elf::{MOST_STEPS, Tables};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Most memory that reading a file may take, in KiB. That of an honest file of 8 MB of unwinding is 9 MiB, and as much
/// again is the process itself.
const MOST_KB: u64 = 256 << 10;

/// The limit on the address space of the process that reads, in KiB.
const SPACE_KB: u64 = 2 << 20;

const GIB: u64 = 1 << 30;

/// A table of a file: its name, type, flags, place, length, and what is written at its beginning.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    offset_b: u64,
    length_b: u64,
    content: Vec<u8>,
}

impl Section {
    fn of(name: &'static str, kind: u32, length_b: u64) -> Self {
        Self { name, kind, flags: 2, offset_b: 0x1_0000, length_b, content: Vec::new() }
    }
}

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;
const X86_64_UNWIND: u32 = 0x7000_0001;
const COMPRESSED: u64 = 1 << 11;

/// Where the section headers are.
const HEADERS_B: u64 = 0x1000;
/// Where the code is, which is loaded at the address of its place.
const CODE_B: u64 = 0x2000;

/// Writes an ELF file for x86-64 with one loaded segment and these sections, and `edit` its header.
fn write(path: &Path, sections: &[Section], edit: impl FnOnce(&mut [u8])) {
    let file = File::create(path).unwrap();
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    // Executable, x86-64, version 1; entry, program headers at 64, sections.
    header.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    header.extend([CODE_B, 64, HEADERS_B].map(u64::to_le_bytes).concat());
    let count = u16::try_from(sections.len() + 2).unwrap().to_le_bytes();
    header.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, count[0], count[1], 1, 0]);
    header.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    header.extend([0, 0, 0, 0x1_0000, 0x1_0000, 0x1000].map(u64::to_le_bytes).concat());
    edit(&mut header);
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut headers = vec![0; 64];
    let mut add = |name: usize, kind: u32, flags: u64, offset_b: u64, length_b: u64| {
        headers.extend([u32::try_from(name).unwrap(), kind].map(u32::to_le_bytes).concat());
        let words = [flags, offset_b, offset_b, length_b, 0, 1, 0];
        headers.extend(words.map(u64::to_le_bytes).concat());
    };
    add(1, STRTAB, 0, 0x800, 0x400);
    let mut end = 0x1_0000;
    for section in sections {
        add(names.len(), section.kind, section.flags, section.offset_b, section.length_b);
        names.extend(section.name.bytes().chain([0]));
        file.write_all_at(&section.content, section.offset_b).unwrap();
        end = end.max(section.offset_b.saturating_add(section.length_b).min(64 * GIB));
    }
    file.set_len(end).unwrap();
    file.write_all_at(&header, 0).unwrap();
    file.write_all_at(&names, 0x800).unwrap();
    file.write_all_at(&headers, HEADERS_B).unwrap();
    file.write_all_at(&[0xc3; 16], CODE_B).unwrap();
}

/// What came of reading a file in a process of its own.
#[derive(Debug)]
struct Read {
    functions: Option<usize>,
    steps: u64,
    peak_kb: u64,
}

/// Reads the file that the environment names, and says what came of it. Does nothing where none is named.
#[test]
fn read_the_named_file() {
    let Some(path) = std::env::var_os("HOSTILE_FILE") else { return };
    let file = File::open(path).unwrap();
    let mut budget = StepBudget::of(u64::MAX);
    let tables = Tables::read(&file, &mut budget);
    let functions = tables.map_or(-1, |tables| i64::try_from(tables.functions.len()).unwrap());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb = peak.trim().trim_end_matches(" kB");
    println!("\nread: {functions} {} {peak_kb}", u64::MAX - budget.left());
}

fn read(path: &Path) -> Read {
    let script = format!(
        "ulimit -v {SPACE_KB}; exec \"$0\" --exact hostile_code::read_the_named_file --nocapture"
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env("HOSTILE_FILE", path)
        .env("RUST_TEST_THREADS", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("read: ")) else {
        panic!("{text}{}", String::from_utf8_lossy(&output.stderr));
    };
    let numbers: Vec<i64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    Read {
        functions: usize::try_from(numbers[0]).ok(),
        steps: numbers[1].cast_unsigned(),
        peak_kb: numbers[2].cast_unsigned(),
    }
}

/// Writes the file and reads it; `expected` is the number of its functions, or that it counts as unreadable.
fn check(
    name: &str,
    expected: Option<usize>,
    sections: &[Section],
    edit: impl FnOnce(&mut [u8]),
) -> Read {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.out");
    write(&path, sections, edit);
    let metadata = path.metadata().unwrap();
    assert!(metadata.blocks() * 512 < 40 << 20, "{name}: the file is not sparse");
    let found = read(&path);
    assert_eq!(found.functions, expected, "{name}: {found:?}");
    assert!(found.steps <= MOST_STEPS, "{name}: {found:?}");
    assert!(found.peak_kb < MOST_KB, "{name}: {found:?}");
    found
}

/// A symbol of a function of 16 bytes at an address.
fn symbol(address: u64) -> Vec<u8> {
    [&[0, 0, 0, 0, 0x12, 0, 2, 0][..], &address.to_le_bytes(), &16_u64.to_le_bytes()].concat()
}

/// An entry that others have in common, with addresses of four bytes relative to themselves, then as many others.
fn unwinding(entries: u32) -> Vec<u8> {
    let mut table = vec![0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 0x10, 1, 0x1b];
    table.resize(24, 0);
    for entry in 0..entries {
        let at = u32::try_from(table.len()).unwrap();
        table.extend([0x10, at + 4, entry * 16, 16].map(u32::to_le_bytes).concat());
        table.extend([0; 4]);
    }
    table
}

#[test]
fn a_small_honest_file_is_read() {
    let symbols = Section { content: symbol(CODE_B), ..Section::of(".symtab", SYMTAB, 24) };
    let found = check("symbols", Some(1), &[symbols], |_| ());
    assert!(found.steps < 10_000, "{found:?}");
    let table = unwinding(100);
    let length_b = table.len() as u64;
    let unwind = Section { content: table, ..Section::of(".eh_frame", X86_64_UNWIND, length_b) };
    check("unwinding", Some(100), &[unwind], |_| ());
}

/// Symbols and unwinding of a gigabyte and more. Most of it is zeros: symbols of nothing, and the end of unwinding.
#[test]
fn tables_that_are_too_large_count_as_unreadable() {
    for length_b in [GIB, 32 * GIB] {
        for (name, kind) in [(".symtab", SYMTAB), (".dynsym", DYNSYM)] {
            let symbols = Section { content: symbol(CODE_B), ..Section::of(name, kind, length_b) };
            check(name, None, &[symbols], |_| ());
        }
        for kind in [PROGBITS, X86_64_UNWIND] {
            check(".eh_frame", None, &[Section::of(".eh_frame", kind, length_b)], |_| ());
        }
        // One entry as long as the table, and one of 64 bits.
        let length = u32::try_from(length_b - 4).unwrap_or(u32::MAX - 16).to_le_bytes();
        let long = [&length[..], &[0, 0, 0, 0, 1, b'z', b'R']].concat();
        let longer = [&[0xff; 4][..], &(length_b - 12).to_le_bytes(), &[0; 8], &[1, b'z']].concat();
        for content in [long, longer] {
            let unwind = Section { content, ..Section::of(".eh_frame", PROGBITS, length_b) };
            check("long entry", None, &[unwind], |_| ());
        }
    }
}

/// Function bounds that are not needed are not read at all.
#[test]
fn other_sections_cost_nothing() {
    let names = [".strtab", ".dynstr", ".eh_frame_hdr", ".debug_info", ".debug_frame", ".note.x"];
    for name in names {
        for kind in [PROGBITS, STRTAB, NOTE] {
            let symbols = Section {
                offset_b: 0x8000,
                content: symbol(CODE_B),
                ..Section::of(".symtab", SYMTAB, 24)
            };
            let other = Section::of(name, kind, 32 * GIB);
            let found = check(name, Some(1), &[symbols, other], |_| ());
            assert!(found.steps < 10_000, "{name}: {found:?}");
        }
    }
}

#[test]
fn a_compressed_table_is_not_unpacked() {
    // Compressed by zlib, a terabyte when unpacked.
    let header = [&1_u64.to_le_bytes()[..], &(1_u64 << 40).to_le_bytes(), &[0; 8]].concat();
    for name in [".eh_frame", ".zdebug_info", ".debug_info"] {
        let section = Section {
            flags: COMPRESSED,
            content: header.clone(),
            ..Section::of(name, PROGBITS, GIB)
        };
        check(name, Some(0), &[section], |_| ());
    }
}

/// A number of sections as the first of them says it: up to all that 64 bits can say.
#[test]
fn numbers_of_sections() {
    for count in [1 << 24, 1 << 32, u64::MAX / 64, u64::MAX] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.out");
        write(&path, &[Section::of(".x", PROGBITS, 32 * GIB)], |header| header[60..62].fill(0));
        let file = File::options().write(true).open(&path).unwrap();
        // The length of the first section.
        file.write_all_at(&count.to_le_bytes(), HEADERS_B + 32).unwrap();
        let found = read(&path);
        assert!(found.steps <= MOST_STEPS && found.peak_kb < MOST_KB, "{count}: {found:?}");
        assert_eq!(found.functions, None, "{count}: {found:?}");
    }
}

/// Tens of thousands of tables in one and the same place: of each kind the first counts.
#[test]
fn overlapping_tables_are_read_once() {
    let table = unwinding(1 << 17);
    let length_b = table.len() as u64;
    let mut sections =
        vec![Section { content: table, ..Section::of(".eh_frame", PROGBITS, length_b) }];
    for _ in 0..20_000 {
        sections.push(Section { offset_b: 0x2_0000, ..Section::of("", SYMTAB, length_b) });
        sections.push(Section { offset_b: 0x2_0000, ..Section::of("", DYNSYM, length_b) });
        sections.push(Section { offset_b: 0x2_0000, ..Section::of("", PROGBITS, length_b) });
    }
    // The headers would lie over the code and the tables, so all of these are behind them.
    let base = 0x100_0000;
    sections.iter_mut().for_each(|section| section.offset_b += base);
    let found = check("overlap", Some(1 << 17), &sections, |_| ());
    assert!(found.steps < MOST_STEPS / 4, "{found:?}");
}

/// Entries that all have the same long entry in common: parsed for each of them, it would take the square of its length.
#[test]
fn a_long_common_entry_is_parsed_once() {
    let mut table = vec![0; 1 << 22];
    let end = table.len() - 16;
    let rest = u32::try_from(table.len() - 4).unwrap();
    table[..4].copy_from_slice(&rest.to_le_bytes());
    table[8] = 1;
    // That it is a signal's can be said any number of times.
    table[9] = b'z';
    table[10..end].fill(b'S');
    let entries: u32 = 1 << 16;
    for entry in 0..entries {
        let at = u32::try_from(table.len()).unwrap();
        table.extend([0x18, at + 4].map(u32::to_le_bytes).concat());
        table.extend([u64::from(entry) * 16 + 16, 16].map(u64::to_le_bytes).concat());
        table.extend([0; 4]);
    }
    let length_b = table.len() as u64;
    let unwind = Section { content: table, ..Section::of(".eh_frame", PROGBITS, length_b) };
    check("common", Some(1 << 16), &[unwind], |_| ());
}

/// More functions than are kept.
#[test]
fn very_many_functions_count_as_unreadable() {
    let table = unwinding(1 << 20);
    let length_b = table.len() as u64;
    let unwind = Section { content: table, ..Section::of(".eh_frame", PROGBITS, length_b) };
    check("a million", Some(1 << 20), &[unwind], |_| ());
    let all: Vec<u8> = (1..3 << 19).flat_map(|at| symbol(at * 16)).collect();
    let length_b = all.len() as u64;
    let symbols = Section { content: all, ..Section::of(".symtab", SYMTAB, length_b) };
    check("symbols", Some((3 << 19) - 1), &[symbols], |_| ());
}

/// More segments than the kernel loads, and headers that lie nowhere.
#[test]
fn program_headers() {
    let symbols =
        || [Section { content: symbol(CODE_B), ..Section::of(".symtab", SYMTAB, GIB / 8) }];
    check("count", None, &symbols(), |header| header[56..58].fill(0xff));
    check("1171", None, &symbols(), |header| {
        header[56..58].copy_from_slice(&1171_u16.to_le_bytes());
    });
    check("far", None, &symbols(), |header| header[32..40].fill(0xff));
    check("small", None, &symbols(), |header| header[54] = 1);
    check("in the tables", Some(1), &symbols(), |header| {
        header[32..40].copy_from_slice(&0x1_0000_u64.to_le_bytes());
    });
}

/// Cut short at every place, it is read or not, and never more than that.
#[test]
fn cut_short_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.out");
    let table = unwinding(40);
    let length_b = table.len() as u64;
    let unwind = Section { content: table, ..Section::of(".eh_frame", PROGBITS, length_b) };
    write(&path, &[unwind], |_| ());
    let whole = std::fs::read(&path).unwrap();
    for length in (0..whole.len()).rev().step_by(13) {
        let mut budget = StepBudget::of(MOST_STEPS);
        let found = Tables::read(&whole[..length], &mut budget);
        assert!(found.is_none_or(|found| found.functions.is_empty()), "{length}");
    }
}
