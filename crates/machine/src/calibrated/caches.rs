//! Cache latencies and sizes from a curve: load latency over the size of the working set.

/// Latency and size of a cache level, read from a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLevel {
    /// Latency of a hit, in nanoseconds.
    pub latency_ns: f64,
    /// Size in bytes up to which most loads hit: the latency is half-way, as a ratio, to the
    /// latency of the next level. `None` if the level does not show in the curve: the next level is
    /// less than a quarter slower.
    pub size: Option<f64>,
}

/// Reads the cache levels from `curve`. `sizes` are the reported cache sizes, nearest level first.
/// The curve has working-set sizes in ascending order, each with the load latency in nanoseconds.
/// The last point must be well beyond the last cache.
///
/// The latency of a level is read at the beginning of its part of the curve, since other programs
/// may use the rest of a shared cache: at twice the size of the level before, for the first level
/// at half of its own size. `None` if the curve does not reach a level.
#[must_use]
pub fn levels(curve: &[(f64, f64)], sizes: &[f64]) -> Vec<Option<MeasuredLevel>> {
    (0..sizes.len()).map(|index| level(curve, sizes, index)).collect()
}

/// First point of the level's part of the curve: size and latency.
fn first_point(curve: &[(f64, f64)], sizes: &[f64], index: usize) -> Option<(f64, f64)> {
    let from = index
        .checked_sub(1)
        // At most half of the level's own size: the level may be hardly larger than the one before.
        .map_or(sizes[0] / 2.0, |before| (2.0 * sizes[before]).min(sizes[index] / 2.0));
    // Tolerates rounding of the size.
    curve.iter().find(|(size, _)| *size >= from * 0.99).copied()
}

fn level(curve: &[(f64, f64)], sizes: &[f64], index: usize) -> Option<MeasuredLevel> {
    let (from, latency_ns) = first_point(curve, sizes, index)?;
    let is_last = index + 1 == sizes.len();
    let next_point =
        if is_last { curve.last().copied() } else { first_point(curve, sizes, index + 1) };
    let (_, next) = next_point?;
    // Halfway by ratio, since latencies differ by factors.
    let half = (latency_ns * next).sqrt();
    let shows = next >= 1.25 * latency_ns;
    let after = curve.iter().position(|(size, ns)| *size > from && *ns > half);
    let size = after.filter(|_| shows).map(|after| {
        // `from` is a point of the curve, so the first larger point has one before.
        let (size_a, ns_a) = curve[after - 1];
        let (size_b, ns_b) = curve[after];
        // Both axes are logarithmic.
        let share = ((half / ns_a).ln() / (ns_b / ns_a).ln()).clamp(0.0, 1.0);
        size_a * (size_b / size_a).powf(share)
    });
    Some(MeasuredLevel { latency_ns, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: f64 = 1024.0;

    /// Sizes from 4 KiB on, two for each doubling.
    fn curve(ns: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let size = |step: i32| 4.0 * KIB * 2_f64.powf(f64::from(step) / 2.0);
        (0..32).map(|step| (size(step), ns(size(step)))).collect()
    }

    /// 32 KiB at 1 ns, 1 MiB at 4 ns, 8 MiB at 15 ns, memory at 120 ns.
    fn machine(size: f64) -> f64 {
        [(32.5, 1.0), (1030.0, 4.0), (8200.0, 15.0)]
            .into_iter()
            .find(|(kib, _)| size <= kib * KIB)
            .map_or(120.0, |(_, ns)| ns)
    }

    #[test]
    fn every_level_is_found() {
        let found = levels(&curve(machine), &[32.0 * KIB, 1024.0 * KIB, 8192.0 * KIB]);
        for (level, (ns, kib)) in found.iter().zip([(1.0, 32.0), (4.0, 1024.0), (15.0, 8192.0)]) {
            let level = level.unwrap();
            assert!((level.latency_ns - ns).abs() < 1e-9, "{level:?}");
            assert!(
                level.size.is_some_and(|size| size >= kib * KIB && size < 1.42 * kib * KIB),
                "{level:?}"
            );
        }
    }

    /// 32 MiB are reported of the last cache, of which others leave 8.
    #[test]
    fn a_part_of_a_shared_cache_is_found() {
        let found = levels(&curve(machine), &[32.0 * KIB, 1024.0 * KIB, 32768.0 * KIB]);
        let last = found[2].unwrap();
        assert!(
            (last.latency_ns - 15.0).abs() < 1e-9 && last.size < Some(12.0 * 1024.0 * KIB),
            "{last:?}"
        );
    }

    #[test]
    fn what_does_not_show_is_absent() {
        let flat = MeasuredLevel { latency_ns: 5.0, size: None };
        assert_eq!(levels(&curve(|_| 5.0), &[32.0 * KIB]), [Some(flat)]);
        assert_eq!(levels(&[], &[32.0 * KIB]), [None]);
    }
}
