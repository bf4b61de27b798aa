//! The cheapest matching by looking at every set of vertices: for tests, up to 16 vertices.

use super::Costs;

/// The cost of a cheapest perfect matching, `O(2^n · n)`.
pub fn minimum(costs: &Costs) -> i64 {
    let n = costs.vertices();
    assert!(n <= 16 && n.is_multiple_of(2), "{n} vertices");
    let mut cheapest = vec![i64::MAX; 1 << n];
    cheapest[0] = 0;
    // Every set is reached by pairing the first vertex outside a smaller one.
    for set in 0..cheapest.len() {
        let first = (!set).trailing_zeros() as usize;
        if cheapest[set] == i64::MAX || first >= n {
            continue;
        }
        for other in first + 1..n {
            if set & 1 << other == 0 {
                let with = set | 1 << first | 1 << other;
                cheapest[with] = cheapest[with].min(cheapest[set] + costs.of(first, other));
            }
        }
    }
    cheapest[cheapest.len() - 1]
}
