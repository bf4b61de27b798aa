//! Instructions of an iteration of each loop, counted from its text.

use crate::kernel::Kernel;

/// Processor architecture of the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Architecture {
    /// Architecture of this build.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };
}

/// Instructions of one iteration, by class.
///
/// An instruction can be in several classes, or in none, such as a move between registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopCounts {
    /// All instructions.
    pub instructions: u32,
    /// Branches, floating-point, integer, loads and stores, in this order.
    pub of: [u32; 5],
}

impl LoopCounts {
    /// Share of each class, in 0 ..= 1: branch, floating-point, integer, load, store.
    #[must_use]
    pub fn shares(&self) -> [f64; 5] {
        self.of.map(|count| f64::from(count) / f64::from(self.instructions))
    }

    const fn add(mut self, other: Self) -> Self {
        self.instructions += other.instructions;
        let mut class = 0;
        while class < 5 {
            self.of[class] += other.of[class];
            class += 1;
        }
        self
    }
}

/// Counts the instructions of `kernel` in one iteration.
///
/// Every iteration has the same counts, on every path through its branches. A call also executes
/// about 50 instructions, negligible after a few thousand iterations.
///
/// Classes are those of the other crates: comparisons, shifts and rotations are integer work; a
/// comparison with memory is also a load; a jump that compares with zero is a branch only.
#[must_use]
pub const fn by_construction(kernel: Kernel, architecture: Architecture) -> LoopCounts {
    let (operations, count_and_stop) = match architecture {
        // inc, mov to memory, cmp, je, cmp with memory, je
        Architecture::X86_64 => (x86_64(kernel), counts(6, [2, 0, 3, 1, 1])),
        // add, str, cmp, b.eq, ldrb, cbz
        Architecture::Aarch64 => (aarch64(kernel), counts(6, [2, 0, 2, 1, 1])),
    };
    operations.add(count_and_stop)
}

const fn counts(instructions: u32, of: [u32; 5]) -> LoopCounts {
    LoopCounts { instructions, of }
}

const fn x86_64(kernel: Kernel) -> LoopCounts {
    match kernel {
        // rol, then eight rounds of mov, shr, test, jz, add or sub, jmp, and, movsxd from memory,
        // add, jmp, four operations, jmp.
        Kernel::Branch => counts(1 + 8 * 15, [8 * 4, 0, 1 + 8 * 9, 8, 0]),
        Kernel::FpAdd | Kernel::FpMul | Kernel::FpDiv => counts(32, [0, 32, 0, 0, 0]),
        Kernel::IntAdd | Kernel::IntMul => counts(32, [0, 0, 32, 0, 0]),
        // Two moves that set up the dividend, and div.
        Kernel::IntDiv | Kernel::IntDivTp => counts(32 * 3, [0, 0, 32, 0, 0]),
        Kernel::LoadDep => counts(32, [0, 0, 0, 32, 0]),
    }
}

const fn aarch64(kernel: Kernel) -> LoopCounts {
    match kernel {
        // ror, then eight rounds of lsr, tst, b.eq, add or sub, b, ubfx, add, ldrsw, add, br, four
        // operations, b.
        Kernel::Branch => counts(1 + 8 * 15, [8 * 4, 0, 1 + 8 * 10, 8, 0]),
        Kernel::FpAdd | Kernel::FpMul | Kernel::FpDiv => counts(32, [0, 32, 0, 0, 0]),
        Kernel::IntAdd | Kernel::IntMul | Kernel::IntDiv | Kernel::IntDivTp => {
            counts(32, [0, 0, 32, 0, 0])
        }
        Kernel::LoadDep => counts(32, [0, 0, 0, 32, 0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control::Control, list::ListNode, loops};
    use colocate_isa::{Class, ClassCounts, Decoded, Flow, Isa, classify};
    use std::collections::BTreeMap;

    fn address(kernel: Kernel) -> u64 {
        type Plain = fn(&Control, u64) -> f64;
        type Walk = fn(&Control, u64, *const ListNode) -> *const ListNode;
        let function = match kernel {
            Kernel::Branch => loops::branch as Plain as usize,
            Kernel::FpAdd => loops::fp_add as Plain as usize,
            Kernel::FpMul => loops::fp_mul as Plain as usize,
            Kernel::FpDiv => loops::fp_div as Plain as usize,
            Kernel::IntAdd => loops::int_add as Plain as usize,
            Kernel::IntMul => loops::int_mul as Plain as usize,
            Kernel::IntDiv => loops::int_div as Plain as usize,
            Kernel::IntDivTp => loops::int_div_tp as Plain as usize,
            Kernel::LoadDep => loops::load_dep as Walk as usize,
        };
        function as u64
    }

    /// The instruction at an address of our own text.
    fn decode(ip: u64) -> Decoded {
        let isa = Isa::native().unwrap();
        // SAFETY: `ip` is inside a function of this program, which has far more text behind it
        // than one instruction is long.
        let bytes = unsafe { std::slice::from_raw_parts(ip as *const u8, isa.max_len()) };
        classify(isa, bytes, ip).unwrap_or_else(|| panic!("{bytes:02x?} at {ip:#x}"))
    }

    /// First and last instruction of the longest loop in the function at `start`.
    fn longest_loop(start: u64) -> (u64, u64) {
        let mut longest = (start, start);
        let mut ip = start;
        loop {
            let at = decode(ip);
            if let Flow::Conditional { target } = at.flow
                && (start..=ip).contains(&target)
                && ip - target > longest.1 - longest.0
            {
                longest = (target, ip);
            }
            if at.flow == Flow::Return {
                return longest;
            }
            ip = at.next_ip();
        }
    }

    /// Where the switch at `jump` leads: its cases follow it, and each ends with a jump.
    fn cases(jump: Decoded) -> Vec<u64> {
        let mut cases = vec![jump.next_ip()];
        let mut ip = jump.next_ip();
        while cases.len() < 4 {
            let at = decode(ip);
            ip = at.next_ip();
            if matches!(at.flow, Flow::Jump { .. }) {
                cases.push(ip);
            }
        }
        cases
    }

    /// Counts on the way from `head` through `last`. Panics if two ways differ.
    fn counts_of_loop((head, last): (u64, u64)) -> ClassCounts {
        let mut before = BTreeMap::from([(head, ClassCounts::default())]);
        let mut open = vec![head];
        let mut whole = None;
        while let Some(ip) = open.pop() {
            let at = decode(ip);
            let mut counts = before[&ip];
            counts.count(at.classes);
            let next = match at.flow {
                _ if ip == last => {
                    assert_eq!(*whole.get_or_insert(counts), counts);
                    continue;
                }
                Flow::Next => vec![at.next_ip()],
                Flow::Conditional { target } => vec![at.next_ip(), target],
                Flow::Jump { target } => vec![target],
                Flow::IndirectJump => cases(at),
                other => panic!("{other:?} at {ip:#x}"),
            };
            for ip in next.into_iter().filter(|ip| (head..=last).contains(ip)) {
                match before.insert(ip, counts) {
                    Some(known) => assert_eq!(known, counts, "two ways to {ip:#x} differ"),
                    None => open.push(ip),
                }
            }
        }
        whole.expect("the loop closes")
    }

    #[test]
    fn loops_consist_of_what_they_should() {
        for kernel in Kernel::ALL {
            let found = counts_of_loop(longest_loop(address(kernel)));
            let expected = by_construction(kernel, Architecture::HERE);
            let of = Class::ALL.map(|class| u32::try_from(found.of[class as usize]).unwrap());
            let instructions = u32::try_from(found.instructions).unwrap();
            assert_eq!(LoopCounts { instructions, of }, expected, "{kernel}");
        }
    }

    /// 84.2 % floating-point in the floating-point kernels, 26.8 % branches in `branch`.
    #[test]
    fn shares_that_the_paper_prints() {
        let printed = |share: f64| format!("{:.1}", share * 100.0);
        for architecture in [Architecture::X86_64, Architecture::Aarch64] {
            let shares = |kernel| by_construction(kernel, architecture).shares();
            for kernel in [Kernel::FpAdd, Kernel::FpMul, Kernel::FpDiv] {
                assert_eq!(printed(shares(kernel)[1]), "84.2");
            }
            assert_eq!(printed(shares(Kernel::Branch)[0]), "26.8");
        }
    }
}
