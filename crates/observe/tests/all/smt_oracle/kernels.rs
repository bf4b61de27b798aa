//! Loops that the oracle runs: the kernels of SMT-Bench, and random ones. Each can be written with the
//! registers of several threads, which have none in common.

/// The registers of one thread, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    integers: Vec<String>,
    /// Lower halves of the same.
    halves: Vec<String>,
    vectors: Vec<String>,
    counter: String,
    /// Holds an address and is never written, so threads may have it in common.
    base: String,
}

/// How loops are written: for which architecture, with which instructions, for how many threads.
#[derive(Clone, Debug)]
pub struct Code {
    /// LLVM's name of the architecture.
    pub triple: &'static str,
    /// The registers of each thread; none has one in common with another.
    pub threads: Vec<Registers>,
    /// Kinds of instructions that random loops are made of, with their forms.
    kinds: &'static [&'static [&'static str]],
}

impl Code {
    /// For pairs on x86: four integer and eight vector registers each.
    pub fn pairs() -> Self {
        let thread = |integers: &[&str], first_vector| {
            let (of_loop, rest) = integers.split_at(4);
            x86(of_loop, rest[0], rest[1], first_vector..first_vector + 8)
        };
        let threads = vec![
            thread(&["rbx", "rcx", "rsi", "rdi", "rbp", "r8"], 0),
            thread(&["r10", "r11", "r12", "r13", "r14", "r15"], 8),
        ];
        Self { triple: "x86_64", threads, kinds: &KINDS }
    }

    /// For up to four threads on x86: three integer and four vector registers each, no counter.
    pub fn fours() -> Self {
        let integers: [&[&str]; 4] = [
            &["rax", "rbx", "rcx"],
            &["rdx", "rsi", "rdi"],
            &["rbp", "r8", "r9"],
            &["r10", "r11", "r12"],
        ];
        let threads = integers.iter().zip([0, 4, 8, 12]);
        let threads = threads.map(|(integers, first)| x86(integers, "", "r13", first..first + 4));
        Self { triple: "x86_64", threads: threads.collect(), kinds: &KINDS }
    }

    /// For up to four threads on Arm: as many registers as pairs have on x86.
    pub fn arm_fours() -> Self {
        let thread = |at: usize| Registers {
            integers: (4 * at..4 * at + 4).map(|register| format!("x{register}")).collect(),
            halves: (4 * at..4 * at + 4).map(|register| format!("w{register}")).collect(),
            vectors: (8 * at..8 * at + 8).map(|register| register.to_string()).collect(),
            counter: String::new(),
            base: "x28".to_owned(),
        };
        Self { triple: "aarch64", threads: (0..4).map(thread).collect(), kinds: &ARM_KINDS }
    }
}

fn x86(integers: &[&str], counter: &str, base: &str, vectors: std::ops::Range<usize>) -> Registers {
    let named =
        |names: &mut dyn Iterator<Item = String>| names.map(|name| format!("%{name}")).collect();
    Registers {
        integers: named(&mut integers.iter().map(|&name| name.to_owned())),
        halves: named(&mut integers.iter().map(|&name| lower_half(name))),
        vectors: named(&mut vectors.map(|at| format!("xmm{at}"))),
        counter: format!("%{counter}"),
        base: format!("%{base}"),
    }
}

/// A loop. Placeholders in its text: `{i0}` to `{i3}` integer registers, `{n}` a counter, `{b}` an
/// address that is never changed, `{x0}` to `{x7}` vector registers, and with `d` behind it (`{i0d}`)
/// the lower half of an integer register.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    /// Instructions that must stay together come in one entry, since they meet in a register that all
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

    /// Its instructions with these registers; those that stay together in one entry.
    pub fn with(&self, registers: &Registers) -> Vec<Vec<String>> {
        let written = |entry: &String| entry.lines().map(|line| registers.written(line)).collect();
        self.body.iter().map(written).collect()
    }

    /// All of it as assembly text.
    pub fn text(&self, registers: &Registers) -> String {
        self.with(registers).concat().join("\n")
    }
}

impl Registers {
    fn written(&self, line: &str) -> String {
        let numbered = |kind: char, names: &[String], end: &str| -> Vec<(String, String)> {
            let name =
                |(at, name): (usize, &String)| (format!("{{{kind}{at}{end}}}"), name.clone());
            names.iter().enumerate().map(name).collect()
        };
        let mut all = numbered('i', &self.integers, "");
        all.extend(numbered('i', &self.halves, "d"));
        all.extend(numbered('x', &self.vectors, ""));
        all.extend([("{n}".into(), self.counter.clone()), ("{b}".into(), self.base.clone())]);
        all.iter().fold(line.to_owned(), |line, (place, name)| line.replace(place, name))
    }
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
    let arm = |begin: &str| mnemonic.starts_with(begin);
    if arm("ldr") || arm("str") || arm("b.") || (arm("f") && operands.contains("d{")) {
        return [arm("b."), arm("f"), false, arm("ldr"), arm("str")];
    }
    let branch = mnemonic.starts_with('j');
    let float = ["sd", "pd", "ps", "ss"].iter().any(|end| mnemonic.ends_with(end));
    let memory = operands.contains('(') && mnemonic != "leaq";
    let moves = mnemonic.starts_with("mov");
    let stores = memory && operands.ends_with(')') && !mnemonic.starts_with("cmp");
    let loads = memory && !(stores && moves) && !branch;
    let plain = !(moves && memory);
    [branch, float && plain, !branch && !float && plain, loads, stores]
}

/// What ends a loop of SMT-Bench: it counts itself, shows its count, ends at a limit or on request.
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

/// The same for Arm.
const ARM_KINDS: [&[&str]; 13] = [
    &[
        "add {id}, {id}, {is}",
        "sub {id}, {id}, {is}",
        "eor {id}, {id}, {is}",
        "orr {id}, {id}, {is}",
    ],
    &["add {id}, {id}, {is}, lsl #3", "add {id}, {is}, #8"],
    &["lsl {id}, {id}, #3", "asr {id}, {id}, #1", "ror {id}, {id}, #7"],
    &["mul {id}, {id}, {is}"],
    &["ldr {id}, [{b}, #{off}]", "ldr {idd}, [{b}, #{off}]"],
    &["str {is}, [{b}, #{off}]", "str d{xs}, [{b}, #{off}]"],
    &["fadd d{xd}, d{xd}, d{xs}", "fsub d{xd}, d{xd}, d{xs}", "fmax d{xd}, d{xd}, d{xs}"],
    &["fmul d{xd}, d{xd}, d{xs}", "fmadd d{xd}, d{xs}, d{xs}, d{xd}"],
    &["fdiv d{xd}, d{xd}, d{xs}", "fsqrt d{xd}, d{xs}"],
    &["ldr d{xd}, [{b}, #{off}]"],
    &["add v{xd}.4s, v{xd}.4s, v{xs}.4s", "eor v{xd}.16b, v{xd}.16b, v{xs}.16b"],
    &["zip1 v{xd}.4s, v{xd}.4s, v{xs}.4s", "rev64 v{xd}.4s, v{xs}.4s"],
    &["tst {id}, {is}\nb.ne out", "cmp {id}, {is}\nb.eq out"],
];

/// A random loop: 4 to 24 instructions, with a taste of its own for kinds of instructions and for long
/// or short chains, of as many registers as each thread has.
pub fn random(code: &Code, random: &mut Random, name: String) -> Kernel {
    let (integers, vectors) = (code.threads[0].integers.len(), code.threads[0].vectors.len());
    let tastes: Vec<f64> = code.kinds.iter().map(|_| random.fraction().powi(4)).collect();
    let chains = 1 + random.below(vectors);
    let length = 4 + random.below(21);
    let body = (0..length).map(|_| {
        let forms = code.kinds[random.by_weight(&tastes)];
        let form = forms[random.below(forms.len())];
        let (written, read) = (random.below(chains), random.below(vectors));
        form.replace("{off}", &(8 * random.below(16)).to_string())
            .replace("{idd}", &format!("{{i{}d}}", written % integers))
            .replace("{id}", &format!("{{i{}}}", written % integers))
            .replace("{is}", &format!("{{i{}}}", read % integers))
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

/// Threads have no register in common that is ever written, and every placeholder is filled.
#[test]
fn threads_have_no_register_in_common() {
    use std::collections::BTreeSet;
    let registers = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '%' && c != '#');
        let full = |name: &str| match name.trim_start_matches('%') {
            name if name.starts_with('e') => name.replacen('e', "r", 1),
            name if name.starts_with('r') => name.trim_end_matches('d').to_owned(),
            name if name.starts_with('w') => name.replacen('w', "x", 1),
            name if name.starts_with('d') => name.replacen('d', "v", 1),
            name => name.to_owned(),
        };
        let arm =
            |word: &str| word.starts_with(['x', 'w', 'd', 'v']) && word[1..].parse::<u32>().is_ok();
        words.filter(|word| word.starts_with('%') || arm(word)).map(full).collect()
    };
    let random = |code: &Code| -> Vec<Kernel> {
        (0..50).map(|at| random(code, &mut Random(at), String::new())).collect()
    };
    for (code, shared) in [
        (Code::pairs(), &["rax", "rdx"][..]),
        (Code::fours(), &["r13"][..]),
        (Code::arm_fours(), &["x28"][..]),
    ] {
        let bench = if code.threads.len() == 2 { smt_bench() } else { Vec::new() };
        for kernel in bench.into_iter().chain(random(&code)) {
            let mut seen = BTreeSet::new();
            for thread in &code.threads {
                let text = kernel.text(thread);
                let mine = registers(&text);
                assert!(!text.contains('{') && !mine.is_empty(), "{text}");
                for register in mine.iter().filter(|name| !shared.contains(&name.as_str())) {
                    assert!(seen.insert(register.clone()), "{register}: {text}");
                }
            }
        }
    }
}
