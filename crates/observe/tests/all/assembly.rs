//! The text of real programs' instructions is what LLVM's assembler takes.

#![allow(clippy::unwrap_used)] // a helper of the test

use colocate_isa::{Decoder, Isa, assembly};
use colocate_testing::skip;
use object::{Object, ObjectSection};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The newest LLVM's assembler that is installed.
fn assembler() -> Option<String> {
    let versions = (14..=22).rev().map(|version| format!("llvm-mc-{version}"));
    let names = versions.chain(["llvm-mc".to_owned()]);
    names.into_iter().find(|name| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    })
}

/// Each different text of the instructions in the code of `path`, as far as it follows on.
fn texts(path: &Path) -> BTreeSet<String> {
    let content = std::fs::read(path).unwrap();
    let file = object::File::parse(&*content).unwrap();
    let isa = Isa::native().unwrap();
    let code = file.section_by_name(".text").unwrap();
    let (mut bytes, mut ip) = (code.data().unwrap(), code.address());
    let mut found = BTreeSet::new();
    while !bytes.is_empty() {
        let mut decoder = Decoder::new(isa, bytes, ip);
        let mut length = 0;
        for decoded in decoder.by_ref() {
            found.extend(assembly(isa, &bytes[length..], decoded.ip));
            length += usize::from(decoded.len);
        }
        // Data between functions.
        let skip = (length + if isa == Isa::X86_64 { 1 } else { 4 }).min(bytes.len());
        bytes = &bytes[skip..];
        ip += skip as u64;
    }
    found
}

#[test]
fn llvm_takes_the_text_of_real_programs() {
    let (Some(assembler), Some(_)) = (assembler(), Isa::native()) else {
        skip!(Llvm, "no llvm-mc here");
    };
    let own = std::env::current_exe().unwrap();
    let others = ["libc.so.6", "libm.so.6", "libstdc++.so.6"];
    let mut texts = texts(&own);
    let folder = format!("/lib/{}-linux-gnu", std::env::consts::ARCH);
    for path in others.map(|name| Path::new(&folder).join(name)).iter().filter(|path| path.exists())
    {
        texts.extend(self::texts(path));
    }
    assert!(texts.len() > 10_000, "{}", texts.len());
    let (folder, arch) = (tempfile::tempdir().unwrap(), std::env::consts::ARCH);
    let errors = std::fs::File::create(folder.path().join("errors")).unwrap();
    let mut child = Command::new(assembler)
        .args([&format!("--triple={arch}"), "--filetype=null"])
        .stdin(Stdio::piped())
        .stderr(errors)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for text in &texts {
        writeln!(input, "{text}").unwrap();
    }
    drop(input);
    colocate_testing::within("the end of llvm-mc", || child.wait()).unwrap();
    let errors = std::fs::read_to_string(folder.path().join("errors")).unwrap();
    let refused: Vec<&str> = errors.lines().filter(|line| line.contains("error:")).collect();
    // Between functions there is data, which can look like instructions that are never executed.
    let share = refused.len() as f64 / texts.len() as f64;
    assert!(share < 0.001, "{} of {}: {errors}", refused.len(), texts.len());
}
