//! Miss curves of real programs beside the caches that cachegrind simulates.
//!
//! Two programs, in seconds; `scripts/miss-curves` does the same with eleven.
#![cfg(target_arch = "x86_64")]

use colocate_model::{MissCounts, MissCurve};
use colocate_observe::emulate::{EmulatedCommand, Emulator, profile};
use colocate_testing::emulator::emulator;
use colocate_testing::{need, skip};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

/// Lines of words, some much more frequent than others, from a fixed seed.
fn text() -> String {
    let mut state = 7_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut text = String::new();
    while text.len() < 200_000 {
        let word = next() % (1 + next() % 4000);
        text += &format!(
            "{:x}{}",
            word.wrapping_mul(0x9e37_79b9),
            if next() % 8 == 0 { '\n' } else { ' ' }
        );
    }
    text
}

/// Misses per instruction, counted under QEMU.
fn counted(emulator: &Emulator, words: &[&str], scratch: &Path) -> MissCurve {
    let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
    let path = Path::new(words[0]);
    let (argv, stretches) = (&argv[..], false);
    let command = EmulatedCommand {
        path,
        argv,
        scratch,
        ignores_pipe: false,
        stretches,
        misses: true,
        phases: None,
        trace: None,
    };
    let ran = profile(emulator, command).unwrap();
    assert!(ran.status.success(), "{words:?}");
    let threads: Vec<&MissCounts> = ran.misses.iter().flatten().collect();
    let instructions = ran.profile.unwrap().threads.iter().filter_map(|t| t.instructions).sum();
    MissCounts::together(&threads).unwrap().curve(instructions).unwrap()
}

/// What cachegrind says: instructions, references, and misses of a first and of a last cache.
fn refereed(words: &[&str], first: u32, last: u32, out: &Path) -> [f64; 4] {
    let status = process::Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=yes", "--I1=1048576,16,64"])
        .arg(format!("--D1={first},8,64"))
        .arg(format!("--LL={last},16,64"))
        .arg(format!("--cachegrind-out-file={}", out.display()))
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "{words:?}");
    let text = std::fs::read_to_string(out).unwrap();
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let values: Vec<f64> =
        line("summary: ").split_whitespace().map(|word| word.parse().unwrap()).collect();
    let value = |name: &str| {
        values[line("events: ").split_whitespace().position(|other| other == name).unwrap()]
    };
    let misses = |level: &str| value(&format!("{level}mr")) + value(&format!("{level}mw"));
    [value("Ir"), value("Dr") + value("Dw"), misses("D1"), misses("DL")]
}

fn program(name: &str) -> PathBuf {
    let folders = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    folders.into_iter().find(|path| path.exists()).expect("an essential program")
}

/// The aim is 2 points of miss ratio on average; here every single cache must be that near.
#[test]
fn miss_curves_agree_with_simulated_caches() {
    let emulator = need!(emulator(env!("CARGO_BIN_EXE_colocate")));
    if let Err(why) = process::Command::new("valgrind").arg("--version").output() {
        skip!(Valgrind, "no valgrind: {why}; run scripts/install test");
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("text");
    std::fs::write(&input, text()).unwrap();
    let (gzip, sort, sorted) = (program("gzip"), program("sort"), folder.path().join("sorted"));
    let [gzip, sort, sorted, input] =
        [&gzip, &sort, &sorted, &input].map(|path| path.to_str().unwrap());
    let (mut errors, mut found) = (Vec::new(), Vec::new());
    for words in [&[gzip, "-kf", input][..], &[sort, "--parallel=1", "-o", sorted, input]] {
        let curve = counted(&emulator, words, folder.path());
        for (first, last) in [(4096, 131_072), (32_768, 524_288)] {
            let out = folder.path().join("cachegrind");
            let [instructions, references, missed_first, missed_last] =
                refereed(words, first, last, &out);
            for (size, missed) in [(first, missed_first), (last, missed_last)] {
                let ours = curve.at(f64::from(size)) * instructions;
                errors.push(100.0 * (ours - missed).abs() / references);
                found
                    .push(format!("{words:?} {size}: {ours:.0} of {missed:.0} in {references:.0}"));
            }
        }
    }
    assert!(errors.iter().all(|error| *error <= 2.0), "{errors:?} {found:#?}");
    assert_eq!(errors.len(), 8, "{found:#?}");
}
