//! Kernels, workloads and their names.

use std::fmt;
use std::str::FromStr;

/// A loop that saturates one execution unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// If-else and switch: eight two-way decisions and eight four-way indirect jumps.
    Branch,
    /// 32 double-precision additions in independent chains.
    FpAdd,
    /// 32 double-precision multiplications in independent chains.
    FpMul,
    /// 32 double-precision divisions in independent chains.
    FpDiv,
    /// 32 integer additions in eight independent chains.
    IntAdd,
    /// 32 integer multiplications in eight independent chains.
    IntMul,
    /// 32 dependent integer divisions: bound by the divider's latency.
    IntDiv,
    /// 32 dependent loads along a circular list.
    LoadDep,
    /// 32 independent integer divisions: bound by the divider's throughput. Not among the paper's
    /// eight.
    IntDivTp,
}

impl Kernel {
    /// All kernels: the paper's eight, then ours.
    pub const ALL: [Self; 9] = [
        Self::Branch,
        Self::FpAdd,
        Self::FpMul,
        Self::FpDiv,
        Self::IntAdd,
        Self::IntMul,
        Self::IntDiv,
        Self::LoadDep,
        Self::IntDivTp,
    ];

    /// The paper's eight kernels, in the order of all tables.
    pub const PAPER: [Self; 8] = {
        let [a, b, c, d, e, f, g, h, _] = Self::ALL;
        [a, b, c, d, e, f, g, h]
    };

    /// Name on command lines and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::FpAdd => "fp-add",
            Self::FpMul => "fp-mul",
            Self::FpDiv => "fp-div",
            Self::IntAdd => "int-add",
            Self::IntMul => "int-mul",
            Self::IntDiv => "int-div",
            Self::LoadDep => "load-dep",
            Self::IntDivTp => "int-div-tp",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kernel {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|kernel| kernel.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        named.ok_or_else(|| format!("unknown kernel \"{text}\": expected one of {names}"))
    }
}

/// Size of the list of `load-dep`, in KiB: 1 to 1,048,576 (1 GiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListSize(u32);

impl ListSize {
    /// The largest size, in KiB.
    const MAX_KIB: u32 = 1 << 20;

    /// Size of `kib` KiB; `None` for 0 and above 1 GiB.
    #[must_use]
    pub const fn from_kib(kib: u32) -> Option<Self> {
        if kib >= 1 && kib <= Self::MAX_KIB { Some(Self(kib)) } else { None }
    }

    /// The size in KiB.
    #[must_use]
    pub const fn kib(self) -> u32 {
        self.0
    }
}

impl Default for ListSize {
    /// 16 KiB: half of the smallest first-level cache in use, so that the lists of two siblings
    /// fit.
    fn default() -> Self {
        Self(16)
    }
}

/// A kernel with its parameter: `fp-add`, `load-dep`, `load-dep:8192`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelSpec {
    /// The kernel.
    pub kernel: Kernel,
    /// Size of the list; used by `load-dep` only.
    pub list: ListSize,
}

impl From<Kernel> for KernelSpec {
    fn from(kernel: Kernel) -> Self {
        Self { kernel, list: ListSize::default() }
    }
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.list == ListSize::default() {
            self.kernel.fmt(f)
        } else {
            f.pad(&format!("{}:{}", self.kernel, self.list.kib()))
        }
    }
}

impl FromStr for KernelSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, size)) = text.split_once(':') else {
            return text.parse().map(Kernel::into);
        };
        let kernel = name.parse()?;
        if kernel != Kernel::LoadDep {
            return Err(format!(
                "{kernel} takes no size, found \":{size}\": only load-dep has a list"
            ));
        }
        let list = size.parse().ok().and_then(ListSize::from_kib);
        let list = list.ok_or_else(|| {
            format!("bad list size \"{size}\": expected KiB from 1 to 1048576, as in load-dep:32")
        })?;
        Ok(Self { kernel, list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_read_back() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.name().parse(), Ok(kernel));
            assert_eq!(kernel.to_string().parse(), Ok(KernelSpec::from(kernel)));
        }
    }

    #[test]
    fn bad_workloads_say_what_is_expected() {
        let message = |text: &str| text.parse::<KernelSpec>().unwrap_err().to_string();
        assert_eq!(
            message("fp-sub"),
            "unknown kernel \"fp-sub\": expected one of branch, fp-add, fp-mul, fp-div, int-add, \
             int-mul, int-div, load-dep, int-div-tp"
        );
        for size in ["", "0", "-1", "x", "1048577", "99999999999"] {
            let expected = format!(
                "bad list size \"{size}\": expected KiB from 1 to 1048576, as in load-dep:32"
            );
            assert_eq!(message(&format!("load-dep:{size}")), expected);
        }
        assert_eq!(
            message("fp-add:32"),
            "fp-add takes no size, found \":32\": only load-dep has a list"
        );
    }

    proptest! {
        #[test]
        fn sizes_are_read_back(kib in 1..=ListSize::MAX_KIB) {
            let list = ListSize::from_kib(kib).unwrap();
            let workload = KernelSpec { kernel: Kernel::LoadDep, list };
            prop_assert_eq!(workload.to_string().parse(), Ok(workload));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<KernelSpec>();
        }
    }
}
