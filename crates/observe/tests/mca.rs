//! Runs of the real `llvm-mca`: what stands here by hand is from the processors' manuals and from
//! LLVM's scheduling models, read, not run.

use colocate_observe::mca::{Figures, Mca, McaError, Syntax, Target};

fn target(cpu: &str) -> Target {
    Target { triple: "x86_64".into(), cpu: cpu.into() }
}

fn analyse(cpu: &str, blocks: &[&str]) -> Vec<Result<Figures, McaError>> {
    let mca = Mca::find().expect("scripts/install test installs llvm");
    mca.analyse(&target(cpu), Syntax::Usual, blocks).expect("it runs")
}

/// Sets and cycles of the only instruction of each text, as `port|port:cycles`.
fn ports(cpu: &str, texts: &[&str]) -> Vec<String> {
    let figures = analyse(cpu, texts);
    let one = |figures: Result<Figures, McaError>| {
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
