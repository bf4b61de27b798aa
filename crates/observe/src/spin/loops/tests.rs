//! Small loops that wait and that work, one instruction a line with what is said of a thread that is seen there.
//!
//! Their machine code is GNU as's. `wait` are those in which every instruction of the loop has to be classed as waiting,
//! `work` those in which none may be, `both` hold a loop of each kind.

use super::*;
use expect_test::{ExpectFile, expect_file};

/// One loop of the corpus.
struct Case {
    title: String,
    code: Vec<u8>,
    /// Address and text of each instruction.
    lines: Vec<(u64, String)>,
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with(' ') {
            cases.push(Case { title: line.into(), code: Vec::new(), lines: Vec::new() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        let (_, rest) = line.split_once(": ").unwrap();
        let (hex, assembly) = rest.split_once(' ').unwrap();
        case.lines.push((case.code.len() as u64, assembly.trim().into()));
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        case.code.extend((0..hex.len()).step_by(2).map(byte));
    }
    cases
}

fn said(isa: Isa, code: &[u8], at: u64) -> CodeVerdict {
    let whole = CodeBytes { isa, start: 0, bytes: code };
    let relaxed = |target: u64| {
        let bytes = usize::try_from(target).ok().and_then(|from| code.get(from..));
        bytes.is_some_and(|bytes| relaxes(CodeBytes { isa, start: target, bytes }))
    };
    let budget = &mut StepBudget::of(1 << 40);
    let mut drawn = AnalysedCode::of(whole, at, budget).unwrap();
    drawn.judge(at, &relaxed, budget).unwrap()
}

fn word(verdict: CodeVerdict) -> String {
    match verdict {
        CodeVerdict::Works(WorkReason::NoLoop) => "-".into(),
        CodeVerdict::Works(why) => format!("{why:?}").to_lowercase(),
        waits => format!("{waits:?}").to_uppercase(),
    }
}

fn check(isa: Isa, text: &str, file: ExpectFile) {
    let mut written = Vec::new();
    for case in cases(text) {
        let mut lines = vec![case.title.clone()];
        let verdict = |(at, _): &(u64, String)| said(isa, &case.code, *at);
        let verdicts: Vec<CodeVerdict> = case.lines.iter().map(verdict).collect();
        for (place, ((at, assembly), verdict)) in case.lines.iter().zip(&verdicts).enumerate() {
            let end = case.lines.get(place + 1).map_or(case.code.len() as u64, |next| next.0);
            let bytes = &case.code[usize::try_from(*at).unwrap()..usize::try_from(end).unwrap()];
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(format!("    {:8} {at:3x}: {hex:20} {assembly}", word(*verdict)));
        }
        written.push(lines.join("\n"));
        let in_loop = || verdicts.iter().filter(|v| **v != CodeVerdict::Works(WorkReason::NoLoop));
        match case.title.split(':').next().unwrap() {
            "wait" => assert!(in_loop().count() > 0 && in_loop().all(|v| v.waits()), "{lines:#?}"),
            "work" => assert!(!verdicts.iter().any(|v| v.waits()), "{lines:#?}"),
            _ => assert!(
                verdicts.iter().any(|v| v.waits()) && in_loop().any(|v| !v.waits()),
                "{lines:#?}"
            ),
        }
    }
    file.assert_eq(&(written.join("\n\n") + "\n"));
}

const X86: &str = include_str!("x86.txt");
const AARCH64: &str = include_str!("aarch64.txt");

#[test]
fn loops_of_x86() {
    check(Isa::X86_64, X86, expect_file!["x86.txt"]);
}

#[test]
fn loops_of_aarch64() {
    check(Isa::Aarch64, AARCH64, expect_file!["aarch64.txt"]);
}

/// `sched_yield` of glibc 2.36, the same with another number, and with a jump before the call.
#[test]
fn functions_that_give_way() {
    let is = |bytes: &[u8]| gives_way(CodeBytes { isa: Isa::X86_64, start: 0x1000, bytes });
    // endbr64; mov eax, N; syscall; cmp rax, -4095; jae …; ret
    let glibc = |number: u8| {
        let rest = [0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x01, 0xc3, 0x90];
        [&[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, number, 0, 0, 0][..], &rest].concat()
    };
    assert!(is(&glibc(24)) && !is(&glibc(35)));
    // test edi, edi; je …; mov eax, 24; syscall; ret
    assert!(!is(&[0x85, 0xff, 0x74, 0x07, 0xb8, 24, 0, 0, 0, 0x0f, 0x05, 0xc3]));
    let words: [u32; 4] = [0xd503_245f, 0xd280_0f88, 0xd400_0001, 0xd65f_03c0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(gives_way(CodeBytes { isa: Isa::Aarch64, start: 0, bytes: &bytes }));
}
