//! Latencies and sizes of caches from a curve: the latency of loads over the size of what they are spread over.

/// What a curve says of a level of caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Latency of a hit, in nanoseconds.
    pub latency_ns: f64,
    /// Up to which size in bytes most loads hit: where the latency is half-way, as a ratio, to that of the next level. `None` for
    /// a level that does not show: the next is less than a quarter slower.
    pub size: Option<f64>,
}

/// The levels of caches that are reported to have `sizes`, nearest first, by `curve`: sizes in ascending order, each with the
/// latency of loads in nanoseconds. The last point must be well beyond the last cache.
///
/// A level's latency is read where its part of the curve begins, at twice the size of the level before (half of its own size
/// for the first), since other programs may have the rest of a shared cache. `None` where the curve does not reach.
#[must_use]
pub fn levels(curve: &[(f64, f64)], sizes: &[f64]) -> Vec<Option<Level>> {
    let latency = |index: usize| {
        let from = index
            .checked_sub(1)
            .map_or(sizes[0] / 2.0, |before| (2.0 * sizes[before]).min(sizes[index] / 2.0));
        curve.iter().find(|(size, _)| *size >= from * 0.99).map(|(size, ns)| (*size, *ns))
    };
    let beyond = |index: usize| {
        if index + 1 < sizes.len() {
            latency(index + 1).map(|(_, ns)| ns)
        } else {
            curve.last().map(|(_, ns)| *ns)
        }
    };
    let level = |index: usize| {
        let ((from, latency_ns), next) = (latency(index)?, beyond(index)?);
        let half = (latency_ns * next).sqrt();
        let shows = next >= 1.25 * latency_ns;
        let after = curve.iter().position(|(size, ns)| *size > from && *ns > half);
        let size = after.filter(|_| shows).map(|after| {
            let ((size_a, ns_a), (size_b, ns_b)) = (curve[after - 1], curve[after]);
            let share = ((half / ns_a).ln() / (ns_b / ns_a).ln()).clamp(0.0, 1.0);
            size_a * (size_b / size_a).powf(share)
        });
        Some(Level { latency_ns, size })
    };
    (0..sizes.len()).map(level).collect()
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
        let flat = Level { latency_ns: 5.0, size: None };
        assert_eq!(levels(&curve(|_| 5.0), &[32.0 * KIB]), [Some(flat)]);
        assert_eq!(levels(&[], &[32.0 * KIB]), [None]);
    }
}
