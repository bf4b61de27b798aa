//! Loops that the oracle runs: the kernels of SMT-Bench, and random ones. Each can be written with two
//! sets of registers that have none in common.

/// Which registers a loop is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of the first thread.
    A,
    /// Of the second.
    B,
}

/// A loop. Placeholders in its text: `{i0}` to `{i3}` integer registers, `{n}` a counter, `{b}` an
/// address that is never changed, `{x0}` to `{x7}` vector registers, and with `d` behind it (`{i0d}`)
/// the lower half of an integer register.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    /// Instructions that must stay together come in one entry, since they meet in a register that both
    /// threads use: flags, or those of a division.
    pub body: Vec<String>,
    /// Instructions of each class, in the order of `colocate_model::Class`: branch, float, int, load,
    /// store. One with a memory operand counts for its operation and for the access.
    pub classes: [u32; 5],
}

impl Kernel {
    fn new(name: impl Into<String>, body: Vec<String>) -> Self {
        let mut classes = [0; 5];
        for line in body.iter().flat_map(|entry| entry.lines()) {
            for (count, here) in classes.iter_mut().zip(classes_of(line)) {
                *count += u32::from(here);
            }
        }
        Self { name: name.into(), body, classes }
    }

    /// Its instructions with the registers of `side`; those that stay together in one entry.
    pub fn on(&self, side: Side) -> Vec<Vec<String>> {
        let written =
            |entry: &String| entry.lines().map(|line| with_registers(line, side)).collect();
        self.body.iter().map(written).collect()
    }

    /// All of it as assembly text.
    pub fn text(&self, side: Side) -> String {
        self.on(side).concat().join("\n")
    }
}

fn with_registers(line: &str, side: Side) -> String {
    let (integers, first_vector) = match side {
        Side::A => (["rbx", "rcx", "rsi", "rdi", "rbp", "r8"], 0),
        Side::B => (["r10", "r11", "r12", "r13", "r14", "r15"], 8),
    };
    let mut line = line.to_owned();
    for (name, register) in ["i0", "i1", "i2", "i3", "n", "b"].iter().zip(integers) {
        line = line.replace(&format!("{{{name}}}"), &format!("%{register}"));
        line = line.replace(&format!("{{{name}d}}"), &format!("%{}", lower_half(register)));
    }
    for at in 0..8 {
        line = line.replace(&format!("{{x{at}}}"), &format!("%xmm{}", first_vector + at));
    }
    line
}

fn lower_half(register: &str) -> String {
    if register.ends_with(|c: char| c.is_ascii_digit()) {
        format!("{register}d")
    } else {
        register.replacen('r', "e", 1)
    }
}

/// Branch, float, int, load, store.
fn classes_of(line: &str) -> [bool; 5] {
    let (mnemonic, operands) = line.split_once(' ').unwrap_or((line, ""));
    let branch = mnemonic.starts_with('j');
    let float = ["sd", "pd", "ps", "ss"].iter().any(|end| mnemonic.ends_with(end));
    let memory = operands.contains('(') && mnemonic != "leaq";
    let moves = mnemonic.starts_with("mov");
    let stores = memory && operands.ends_with(')') && !mnemonic.starts_with("cmp");
    let loads = memory && !(stores && moves) && !branch;
    let plain = !(moves && memory);
    [branch, float && plain, !branch && !float && plain, loads, stores]
}

/// What ends a loop of SMT-Bench: it counts itself, shows its count, ends at a limit or when told to.
const COUNTED: [&str; 4] =
    ["incq {n}", "movq {n}, ({b})", "cmpq $1000000, {n}\nje out", "cmpb $0, 8({b})\nje out"];

/// The kernels of SMT-Bench as `workloads/smt-bench` has them, with four chains of integers instead of
/// eight, so that two threads find registers (four fill four integer units of latency 1 and a multiplier
/// of latency 4), and with the chain of a division in a register of the thread's own.
pub fn smt_bench() -> Vec<Kernel> {
    let times = |times: usize, lines: &[&str]| -> Vec<String> {
        (0..times).flat_map(|_| lines.iter().map(|&line| line.to_owned())).collect()
    };
    let on = |registers: &[&str], operation: &str, by: &str| -> Vec<String> {
        registers.iter().map(|register| format!("{operation} {by}, {{{register}}}")).collect()
    };
    // A number is added to itself, or divides itself, which leaves all eight registers to chains.
    let floats = |operation: &str| -> Vec<String> {
        (0..8).map(|chain| format!("{operation} {{x{chain}}}, {{x{chain}}}")).collect()
    };
    let integers = |operation| on(&["i0", "i1", "i2", "i3"], operation, "{b}");
    let repeated = |lines: Vec<String>, count: usize| -> Vec<String> {
        (0..count).flat_map(|_| lines.clone()).collect()
    };
    let division = "movl {i0d}, %eax\nmovl {i1d}, %edx\ndivl {i2d}\nmovl %edx, {i0d}";
    let free_division = "movl {i0d}, %eax\nmovl {i1d}, %edx\ndivl {i2d}";
    let all = [
        ("branch", [vec!["rolq {i0}".into()], repeated(decision(), 8)].concat()),
        ("fp-add", repeated(floats("addsd"), 4)),
        ("fp-mul", repeated(floats("mulsd"), 4)),
        ("fp-div", repeated(floats("divsd"), 4)),
        ("int-add", repeated(integers("addq"), 8)),
        ("int-mul", repeated(integers("imulq"), 8)),
        ("int-div", times(32, &[division])),
        ("load-dep", times(32, &["movq ({i0}), {i0}"])),
        ("int-div-tp", times(32, &[free_division])),
    ];
    let counted = COUNTED.map(str::to_owned).to_vec();
    all.into_iter()
        .map(|(name, body)| Kernel::new(name, [body, counted.clone()].concat()))
        .collect()
}

/// One way through a two-way and a four-way decision.
fn decision() -> Vec<String> {
    let lines = [
        "movq {i0}, {i1}",
        "shrq $8, {i1}",
        "testl $1, {i1d}\nje out",
        "addq {i1}, {i2}",
        "jmp out",
        "andl $6, {i1d}",
        "movslq 16({b},{i1},2), {i1}",
        "addq {b}, {i1}",
        "jmpq *{i1}",
        "addq {i0}, {i2}",
        "xorq {i0}, {i3}",
        "subq {i0}, {i2}",
        "addq {i0}, {i3}",
        "jmp out",
    ];
    lines.map(str::to_owned).to_vec()
}

/// Kinds of instructions that random loops are made of, with up to four forms each.
const KINDS: [&[&str]; 14] = [
    &["addq {is}, {id}", "subq {is}, {id}", "xorq {is}, {id}", "orq {is}, {id}"],
    &["leaq 8({is},{id}), {id}", "leaq 8({is}), {id}"],
    &["shlq $3, {id}", "sarq $1, {id}", "rolq $7, {id}"],
    &["imulq {is}, {id}"],
    &["movq {off}({b}), {id}", "movl {off}({b}), {idd}"],
    &["addq {off}({b}), {id}", "xorq {off}({b}), {id}"],
    &["movq {is}, {off}({b})", "movsd {xs}, {off}({b})"],
    &["addsd {xs}, {xd}", "subsd {xs}, {xd}", "addpd {xs}, {xd}", "maxsd {xs}, {xd}"],
    &["mulsd {xs}, {xd}", "mulpd {xs}, {xd}"],
    &["divsd {xs}, {xd}", "sqrtsd {xs}, {xd}"],
    &["movsd {off}({b}), {xd}", "addsd {off}({b}), {xd}", "mulsd {off}({b}), {xd}"],
    &["paddd {xs}, {xd}", "pxor {xs}, {xd}", "pand {xs}, {xd}"],
    &["pshufd $27, {xs}, {xd}", "unpcklpd {xs}, {xd}"],
    &["testq {is}, {id}\njne out", "cmpq {is}, {id}\nje out"],
];

/// A random loop: 4 to 24 instructions, with a taste of its own for kinds of instructions and for long
/// or short chains.
pub fn random(random: &mut Random, name: String) -> Kernel {
    let tastes: Vec<f64> = KINDS.iter().map(|_| random.fraction().powi(4)).collect();
    let chains = 1 + random.below(8);
    let length = 4 + random.below(21);
    let body = (0..length).map(|_| {
        let forms = KINDS[random.by_weight(&tastes)];
        let form = forms[random.below(forms.len())];
        let (written, read) = (random.below(chains), random.below(8));
        form.replace("{off}", &(8 * random.below(16)).to_string())
            .replace("{idd}", &format!("{{i{}d}}", written % 4))
            .replace("{id}", &format!("{{i{}}}", written % 4))
            .replace("{is}", &format!("{{i{}}}", read % 4))
            .replace("{xd}", &format!("{{x{written}}}"))
            .replace("{xs}", &format!("{{x{read}}}"))
    });
    let body = body.collect();
    Kernel::new(name, body)
}

/// Numbers that a seed determines: SplitMix64 (Steele, Lea, Flood, 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// 0 to `end`, without `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.fraction() * end as f64) as usize
    }

    fn by_weight(&mut self, weights: &[f64]) -> usize {
        let mut left = self.fraction() * weights.iter().sum::<f64>();
        let found = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        found.unwrap_or(weights.len() - 1)
    }
}

/// No register stands on both sides, and every placeholder is filled.
#[test]
fn sides_have_no_register_in_common() {
    let all =
        smt_bench().into_iter().chain((0..50).map(|at| random(&mut Random(at), String::new())));
    let registers = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '%');
        let full = |name: &str| match name.trim_start_matches('%') {
            name if name.starts_with('e') => name.replacen('e', "r", 1),
            name if name.starts_with('r') => name.trim_end_matches('d').to_owned(),
            name => name.to_owned(),
        };
        words.filter(|word| word.starts_with('%')).map(full).collect()
    };
    for kernel in all {
        let (a, b) = (kernel.text(Side::A), kernel.text(Side::B));
        assert!(!a.contains('{') && !b.contains('{'), "{a}");
        let both: Vec<_> = registers(&a).intersection(&registers(&b)).cloned().collect();
        assert!(both.iter().all(|r| r == "rax" || r == "rdx"), "{a}\n\n{b}\n\n{both:?}");
    }
}
