//! Processor model of each PU, from `/proc/cpuinfo`.

use colocate_machine::PuNr;
use std::fmt;

/// A processor model, in its vendor's numbering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cpu {
    /// Intel, by the family and model of `CPUID` leaf 1, extended fields included.
    Intel {
        /// Display family; 6 since the Pentium Pro.
        family: u32,
        /// Display model.
        model: u32,
    },
    /// AMD, by the family and model of `CPUID` leaf 1, extended fields included.
    Amd {
        /// Family: 0x17 and 0x19 are Zen.
        family: u32,
        /// Model.
        model: u32,
    },
    /// Arm, by two fields of the register `MIDR_EL1`.
    Arm {
        /// Designer: 0x41 is Arm Limited.
        implementer: u32,
        /// Design of the implementer.
        part: u32,
    },
    /// POWER, by generation.
    Power {
        /// 8 for POWER8, and so on.
        generation: u32,
    },
    /// Another processor, or unknown.
    #[default]
    Other,
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intel { family, model } => write!(f, "Intel family {family} model {model}"),
            Self::Amd { family, model } => write!(f, "AMD family {family:#x} model {model:#x}"),
            Self::Arm { implementer, part } => {
                write!(f, "Arm implementer {implementer:#x} part {part:#x}")
            }
            Self::Power { generation } => write!(f, "POWER{generation}"),
            Self::Other => f.write_str("a processor of unknown make"),
        }
    }
}

/// Processors in the text of `/proc/cpuinfo`, in the file's order, by the kernel's numbers.
///
/// An incomplete block gives [`Cpu::Other`]; no text makes this fail.
#[must_use]
pub fn from_cpuinfo(text: &str) -> Vec<(PuNr, Cpu)> {
    let blocks = text.split("\n\n").map(Fields);
    blocks.filter_map(|block| Some((PuNr(block.number("processor")?), block.cpu()))).collect()
}

/// A block of `name : value` lines.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    }

    fn number(self, name: &str) -> Option<u32> {
        number(self.text(name)?)
    }

    fn cpu(self) -> Cpu {
        self.x86().or_else(|| self.arm()).or_else(|| self.power()).unwrap_or(Cpu::Other)
    }

    fn x86(self) -> Option<Cpu> {
        let (family, model) = (self.number("cpu family")?, self.number("model")?);
        match self.text("vendor_id")? {
            "GenuineIntel" => Some(Cpu::Intel { family, model }),
            "AuthenticAMD" => Some(Cpu::Amd { family, model }),
            _ => None,
        }
    }

    fn arm(self) -> Option<Cpu> {
        let implementer = self.number("CPU implementer")?;
        Some(Cpu::Arm { implementer, part: self.number("CPU part")? })
    }

    fn power(self) -> Option<Cpu> {
        let rest = self.text("cpu")?.strip_prefix("POWER")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(Cpu::Power { generation: digits.parse().ok()? })
    }
}

/// A decimal number, or a hexadecimal number after `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(u32, Cpu)]) {
        let found: Vec<_> = from_cpuinfo(text).iter().map(|l| (l.0.0, l.1)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn intel_and_amd_by_family_and_model() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                     model name\t: Intel(R) Xeon(R) Platinum 8480+\n\n";
        check(intel, &[(0, Cpu::Intel { family: 6, model: 143 })]);
        let amd = "processor\t: 3\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\n";
        check(amd, &[(3, Cpu::Amd { family: 0x19, model: 0x11 })]);
    }

    #[test]
    fn big_and_little_cores_differ() {
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n\n\
                    processor\t: 4\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\n";
        let arm = |part| Cpu::Arm { implementer: 0x41, part };
        check(text, &[(0, arm(0xd03)), (4, arm(0xd08))]);
    }

    #[test]
    fn power_generation() {
        let text = "processor\t: 8\ncpu\t\t: POWER8NVL (raw), altivec supported\n\n";
        check(text, &[(8, Cpu::Power { generation: 8 })]);
        let ten = "processor\t: 0\ncpu\t\t: POWER10 (architected), altivec supported\n\n";
        check(ten, &[(0, Cpu::Power { generation: 10 })]);
    }

    #[test]
    fn unknown_makes_and_noise_do_not_fail() {
        check("processor\t: 0\nhart\t: 0\nisa\t: rv64imafdc\n\n", &[(0, Cpu::Other)]);
        check("processor : 1\nvendor_id : GenuineIntel\nmodel : x\n", &[(1, Cpu::Other)]);
        check("", &[]);
        check("::::\n\n\n:\nprocessor\n", &[]);
    }
}
