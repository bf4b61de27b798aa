//! The corpus: instructions and their classes, one a line, and every x86 mnemonic's kind of work.
//!
//! To add an instruction, add a line with its bytes, its text and an empty last field, run with
//! `UPDATE_EXPECT=1` and read what changed.
#![allow(clippy::unwrap_used)] // helpers of tests

use colocate_isa::{Class, Decoded, Flow, Isa, classify, needs_beyond_avx2};
use expect_test::expect_file;

/// Where the instructions of the corpus are said to lie.
const IP: u64 = 0x40_0000;

fn describe(isa: Isa, bytes: &[u8]) -> String {
    let Some(found) = classify(isa, bytes, IP) else { return "unknown".into() };
    assert_eq!(usize::from(found.len), bytes.len(), "length of {bytes:x?}");
    let mut words: Vec<String> = Class::ALL
        .into_iter()
        .filter(|class| found.classes.has(*class))
        .map(|class| class.name().to_owned())
        .collect();
    words.extend(flow_text(found));
    if isa == Isa::X86_64 && needs_beyond_avx2(bytes) {
        words.push("(beyond AVX2)".into());
    }
    if words.is_empty() { "-".into() } else { words.join(" ") }
}

fn flow_text(found: Decoded) -> Option<String> {
    let to = |target: u64| format!("{:+}", target.wrapping_sub(found.ip).cast_signed());
    Some(match found.flow {
        Flow::Next => return None,
        Flow::Conditional { target } => format!("(to {} or next)", to(target)),
        Flow::Jump { target } => format!("(to {})", to(target)),
        Flow::Call { target } => format!("(calls {})", to(target)),
        Flow::IndirectJump => "(anywhere)".into(),
        Flow::IndirectCall => "(calls anything)".into(),
        Flow::Return => "(returns)".into(),
        Flow::Trap => "(traps)".into(),
    })
}

/// Reads lines of `bytes | text | …` and writes them back with the classes that are found.
fn check(isa: Isa, corpus: &str, path: &str, bytes_of: fn(&str) -> Vec<u8>) {
    let mut text = String::new();
    for line in corpus.lines() {
        let mut fields = line.split(" |");
        let (hex, name) = (fields.next().unwrap(), fields.next().unwrap());
        text += &format!("{hex} |{name} | {}\n", describe(isa, &bytes_of(hex)));
    }
    expect_file![path].assert_eq(&text);
}

#[test]
fn x86_corpus() {
    check(Isa::X86_64, include_str!("../x86.txt"), "../x86.txt", |hex| {
        hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    });
}

#[test]
fn aarch64_corpus() {
    check(Isa::Aarch64, include_str!("../aarch64.txt"), "../aarch64.txt", |hex| {
        u32::from_str_radix(hex, 16).unwrap().to_le_bytes().to_vec()
    });
}
