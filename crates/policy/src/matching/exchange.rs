//! Exchanging members of groups until no exchange helps.

use colocate_model::Demand;

/// Improves `groups`, lists of places in `demands`, by exchanging members of two groups as long as
/// the overlap within groups falls. Sizes stay. Returns how many exchanges were made.
///
/// The overlap within a group `G` is `(|Σ d|² − Σ |d|²) / 2`, so exchanging `a ∈ G` with `b ∈ H`
/// changes the total by `(b − a) · (ΣG − a) + (a − b) · (ΣH − b)`, from sums alone. A pass looks at
/// all pairs of members, `O(n²)`.
pub fn improve(demands: &[Demand], groups: &mut [Vec<usize>]) -> usize {
    let sum_of = |group: &[usize]| group.iter().fold(Demand::NONE, |sum, &at| sum + demands[at]);
    let mut sums: Vec<Demand> = groups.iter().map(|group| sum_of(group)).collect();
    let mut made = 0;
    loop {
        let before = made;
        for g in 0..groups.len() {
            for h in g + 1..groups.len() {
                made += improve_two(demands, groups, &mut sums, g, h);
            }
        }
        if made == before {
            return made;
        }
    }
}

/// Least fall of the overlap that counts; below it rounding could exchange back and forth for ever.
const WORTH: f64 = 1e-12;

fn improve_two(
    demands: &[Demand],
    groups: &mut [Vec<usize>],
    sums: &mut [Demand],
    g: usize,
    h: usize,
) -> usize {
    let mut made = 0;
    for i in 0..groups[g].len() {
        for j in 0..groups[h].len() {
            let (a, b) = (demands[groups[g][i]], demands[groups[h][j]]);
            let change = b - a;
            let gained = change.overlap(&(sums[g] - a)) - change.overlap(&(sums[h] - b));
            if gained < -WORTH {
                (groups[g][i], groups[h][j]) = (groups[h][j], groups[g][i]);
                sums[g] += change;
                sums[h] = sums[h] - change;
                made += 1;
            }
        }
    }
    made
}
