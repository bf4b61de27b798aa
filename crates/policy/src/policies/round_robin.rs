//! `round-robin`: tasks on PUs in hwloc's logical order, the baseline of Serpa et al.
//!
//! # Problem
//! The published gains are against this mapping, so it must be built exactly as it was.
//! # Approach
//! Task `i` goes to the `i`-th usable PU in hwloc's *logical* order. In that order the PUs of a core
//! follow each other, so two threads of one program share each core. The kernel's numbers would
//! not do: on most x86 machines siblings are `i` and `i + n/2` there, and the baseline would spread.
//! # Terms
//! `P`: usable PUs, a count.
//! # Algorithm
//! Task `i`, in the order of IDs, takes PU `i mod P`.
//! # Properties
//! - **Siblings together**: two tasks that follow each other share a core. -> test
//!   `siblings_together`
//! - **Logical order**: the kernel's numbering has no influence. -> test `logical_order`
//! - **Wraps around**: with more tasks than PUs every PU gets ⌊n/P⌋ or ⌈n/P⌉. -> test `wraps_around`

use super::{Placement, fill};
use crate::places::Places;
use crate::plan::Why;

pub(super) fn place(places: &Places<'_>, tasks: usize) -> Placement {
    fill(places, places.pus(), tasks, &Why::NextInOrder { order: "hwloc logical order".to_owned() })
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn siblings_together() {
        check(
            "round-robin",
            "core:4 pu:2",
            "AABB",
            "",
            expect![[r#"
            [A A][B B][_ _][_ _]
        "#]],
        );
    }

    #[test]
    fn logical_order() {
        // Numbered as Linux does on EPYC: siblings are i and i + 4.
        check(
            "round-robin",
            "core:4 pu:2 linux",
            "AABB",
            "",
            expect![[r#"
            [A A][B B][_ _][_ _]
        "#]],
        );
    }

    #[test]
    fn wraps_around() {
        check(
            "round-robin",
            "core:2 pu:2",
            "AAAAAB",
            "",
            expect![[r#"
            [AA AB][A A]
        "#]],
        );
    }
}
