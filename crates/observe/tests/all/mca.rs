//! Runs of the real `llvm-mca`: figures written here by hand are from the processors' manuals and from
//! LLVM's scheduling models, read, not run.

use colocate_observe::mca::{BlockDemand, Mca, McaError, OLDEST, TargetProcessor};
use std::path::Path;

fn target(cpu: &str) -> TargetProcessor {
    TargetProcessor { triple: "x86_64".into(), cpu: cpu.into() }
}

fn analyse(cpu: &str, blocks: &[&str]) -> Vec<Result<BlockDemand, McaError>> {
    let mca = Mca::find().expect("scripts/install test installs llvm");
    mca.analyse(&target(cpu), blocks).expect("it runs")
}

/// Sets and cycles of the only instruction of each text, as `port|port:cycles`.
fn ports(cpu: &str, texts: &[&str]) -> Vec<String> {
    let figures = analyse(cpu, texts);
    let one = |figures: Result<BlockDemand, McaError>| {
        let figures = figures.expect("an instruction of that processor");
        let [instruction] = &figures.instructions[..] else { panic!("one instruction") };
        assert!(instruction.certain, "{instruction:?}");
        let sets = instruction.ports.iter().map(|(set, c)| format!("{}:{c}", set.join("|")));
        sets.collect::<Vec<_>>().join(" ")
    };
    figures.into_iter().map(one).collect()
}

/// AMD family 17h: four integer units, of which the second multiplies and the third divides; two address
/// units; four floating-point pipes, of which the first two multiply, the last two add and the last
/// divides.
#[test]
fn zen() {
    const ALU: &str = "ZnALU0|ZnALU1|ZnALU2|ZnALU3";
    const AGU: &str = "ZnAGU0|ZnAGU1";
    let found = ports(
        "znver1",
        &[
            "addq %rax, %rcx",
            "imulq %rax, %rcx",
            "idivq %rcx",
            "addsd %xmm0, %xmm1",
            "mulsd %xmm0, %xmm1",
            "movq (%rax), %rcx",
            "movq %rcx, (%rax)",
            "addq (%rax), %rcx",
            "mulsd (%rax), %xmm1",
            "nop",
        ],
    );
    let expected = [
        format!("{ALU}:1"),
        "ZnALU1:1 ZnMultiplier:1".into(),
        "ZnALU2:1 ZnDivider:41".into(),
        "ZnFPU2|ZnFPU3:1".into(),
        "ZnFPU0|ZnFPU1:1".into(),
        format!("{AGU}:1"),
        format!("{AGU}:1"),
        format!("{AGU}:1 {ALU}:1"),
        format!("{AGU}:1 ZnFPU0|ZnFPU1:1"),
        String::new(),
    ];
    for (found, expected) in found.iter().zip(&expected) {
        let sorted = |text: &str| {
            let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            words.sort_unstable();
            words
        };
        assert_eq!(sorted(found), sorted(expected));
    }
}

/// Intel's Skylake: four integer ports of which two shift, one multiplies and two compute addresses; a
/// store takes the data port and one of three for its address, and what it reads first one of two.
#[test]
fn skylake() {
    let found = ports("skylake", &["addq %rcx, (%rax)", "shlq $1, %rax", "haddpd %xmm0, %xmm1"]);
    let port = |numbers: &str| {
        let names: Vec<String> = numbers.chars().map(|number| format!("SKLPort{number}")).collect();
        names.join("|")
    };
    let [alu, load, address, data] = ["0156", "23", "237", "4"].map(port);
    assert_eq!(found[0], format!("{alu}:1 {load}:1 {address}:1 {data}:1"));
    assert_eq!(found[1], format!("{}:1", port("06")));
    assert_eq!(found[2], format!("{}:1 {}:2", port("01"), port("5")));
}

/// A chain waits for its latency, whatever the ports; without one, ports and slots count.
#[test]
fn chains() {
    let chain = "imulq %rax, %rcx";
    let free = "imulq %rax, %rcx\nmovl $1, %ecx";
    let found = analyse("znver1", &[chain, free]);
    let [chain, free] = [0, 1].map(|at| found[at].as_ref().expect("both are read"));
    assert!((chain.dependent_cycles - 4.0).abs() < 0.01, "{chain:?}");
    // One multiplication a cycle, two instructions.
    assert!((free.cycles - 0.5).abs() < 0.01, "{free:?}");
    assert_eq!((chain.slots, free.slots), (2.0, 1.5));
}

/// 60 instructions: six horizontal additions one after the other, 6 · 7 cycles until the last is done
/// (LLVM gives them a latency and no port), and 53 no-operations that are done at once and leave after
/// them. 15 cycles by four slots each; of 192 places in the reorder buffer 3.2 rounds find room, which
/// takes 13 to 14 cycles each, and with half of the places twice that.
#[test]
fn half_of_the_window() {
    let slow = "haddpd %xmm1, %xmm0";
    let lines = ["movaps %xmm7, %xmm0"].into_iter().chain([slow; 6]).chain(["nop"; 53]);
    let text = lines.collect::<Vec<_>>().join("\n");
    let found = analyse("znver1", &[&text]).remove(0).expect("it is read");
    let round = |cycles: f64| cycles * found.instructions.len() as f64;
    let divided = found.dependent_cycles_divided.expect("a no-operation takes no port");
    assert!((15.0..16.5).contains(&round(found.cycles)), "{}", round(found.cycles));
    assert!((23.0..29.0).contains(&round(divided)), "{}", round(divided));
}

/// One bad text leaves the others alone, and says what is wrong with it.
#[test]
fn bad_texts() {
    let found = analyse("znver1", &["addq %rax, %rcx", "adddq %rax, %rcx", "", "imulq %rax, %rcx"]);
    assert!(found[0].is_ok() && found[3].is_ok(), "{found:?}");
    let refused = found[1].as_ref().expect_err("no such instruction").to_string();
    assert!(refused.contains("adddq"), "{refused}");
    assert!(matches!(found[2], Err(McaError::Empty)), "{found:?}");
}

#[test]
fn bad_processors_and_programs() {
    let mca = Mca::find().expect("scripts/install test installs llvm");
    let found = mca.analyse(&target("zen1"), &["nop"]).expect_err("no such processor");
    assert_eq!(
        found.to_string(),
        "llvm-mca: expected the name of a processor (llvm-mca -mcpu=help), found zen1"
    );
    let found = Mca::at(Path::new("/nowhere/llvm-mca")).expect_err("no such program");
    assert!(matches!(found, McaError::Start(..)), "{found}");
    let found = Mca::at(Path::new("true")).expect_err("says no version");
    let expected = format!("true: expected LLVM {OLDEST} or newer, found ");
    assert!(found.to_string().starts_with(&expected), "{found}");
}

/// Versions of LLVM that are here agree on what the manuals say.
#[test]
fn versions_agree() {
    let versions = (OLDEST..30).map(|version| format!("llvm-mca-{version}"));
    let here: Vec<Mca> = versions.filter_map(|name| Mca::at(Path::new(&name)).ok()).collect();
    for mca in here {
        let text = "mulsd (%rax), %xmm1\nimulq %rax, %rcx";
        let found = mca.analyse(&target("znver1"), &[text]).expect("it runs").remove(0);
        let ports = found.expect("it is read").ports;
        let sets: Vec<String> =
            ports.iter().map(|(set, c)| format!("{}:{c}", set.join("|"))).collect();
        let expected = ["ZnAGU0|ZnAGU1:0.5", "ZnALU1:0.5", "ZnFPU0|ZnFPU1:0.5", "ZnMultiplier:0.5"];
        assert_eq!(sets, expected, "{}", mca.version());
    }
}
