//! `random`: drawn by a seeded generator.
//!
//! # Problem
//! A policy that looks at what tasks do must beat one that looks at nothing.
//! # Approach
//! Draw a random order of the usable PUs. Each of the `P!` orders is equally likely.
//! # Terms
//! `P`: usable PUs, a count. *Seed*: a number; see [`SplitMix64`].
//! # Algorithm
//! Shuffle the PUs; task `i` takes place `i`. When all PUs are taken, shuffle again for the next `P`.
//! # Properties
//! - **Repeatable**: a seed gives the same plan with every version. -> test `repeatable`
//! - **Balanced**: no PU gets two tasks more than another. -> test `balanced` of the crate's
//!   whole-plan tests

use super::{Choice, Placement};
use crate::places::Places;
use crate::plan::{Newborn, Why};
use crate::rng::SplitMix64;

pub(super) fn place(places: &Places<'_>, tasks: usize, seed: u64) -> Placement {
    let mut rng = SplitMix64::new(seed);
    let mut order = places.pus().to_vec();
    rng.shuffle(&mut order);
    let newborn = Newborn::FillInOrder { pus: places.nrs(&order) };
    let mut choices = Vec::with_capacity(tasks);
    while choices.len() < tasks {
        let left = tasks - choices.len();
        let drawn = order.iter().take(left);
        choices.extend(drawn.map(|&pu| Choice { pu: Some(pu), why: Why::Drawn { seed } }));
        rng.shuffle(&mut order);
    }
    Placement { choices, newborn }
}

#[cfg(test)]
mod tests {
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn repeatable() {
        check(
            "random:seed=7",
            "core:4 pu:2",
            "ABCDEFGH",
            "",
            expect![[r#"
            [F A][D G][B C][E H]
        "#]],
        );
        check(
            "random:seed=8",
            "core:4 pu:2",
            "ABCDEFGH",
            "",
            expect![[r#"
            [C F][D A][E B][H G]
        "#]],
        );
    }
}
