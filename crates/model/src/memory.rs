//! Memory controllers and links: waits caused by other traffic.
//!
//! # Approach
//! Each controller or link is a queue. The wait of an access grows with the used share of the
//! bandwidth, without bound as the share approaches 1. Tasks that wait longer send fewer requests.
//! At one wait, requests and wait agree; less than the whole bandwidth is in use then.
//!
//! # Terms
//! - `ρ`: used share of the bandwidth.
//! - `w`: wait, on top of the latency `L` of an access without other traffic.
//! - `w = s · ρ / √(1 − ρ)` with the scale `s = 0.3 · L`.
//!
//! # Source of the curve
//! Fitted to loaded latencies of eight servers (DDR4, one to four nodes, published output of
//! Intel's Memory Latency Checker, reads only), of which five are in the tests. The mean error of
//! the latency is 3 %; for the five it is 3.6 % and at most 15 %. An M/M/1 queue, `ρ / (1 − ρ)`,
//! has 6 % with its own best scale: its wait is too short at half load and too long near full load.
//! All eight servers are Intel's. Others are assumed to be alike, and so are links and caches, each
//! with its own latency. Table: docs/method/memory-model.md.

/// Scale of the wait, as a share of the latency without other traffic. Fitted; see the head of the
/// file.
pub(crate) const WAIT: f64 = 0.3;

/// Wait at a queue with the share `used` of its bandwidth in use, in the unit of `scale`. Infinite
/// from 1.
#[must_use]
pub fn wait(scale: f64, used: f64) -> f64 {
    if used < 1.0 { scale * used.max(0.0) / (1.0 - used).sqrt() } else { f64::INFINITY }
}

/// Share of the bandwidth in use when the wait is `wait`: the inverse of [`wait`]. Below 1.
#[must_use]
pub fn used(scale: f64, wait: f64) -> f64 {
    // The positive root of `(s / w)² ρ² + ρ − 1 = 0`, in the form without cancellation.
    if wait <= 0.0 { 0.0 } else { 2.0 / (1.0 + (1.0 + 4.0 * (scale / wait).powi(2)).sqrt()) }
}

/// Bandwidth of a queue, in the unit of `traffic`, from the latencies without other traffic and
/// `beside` the traffic: traffic over used share. Infinite where accesses do not wait.
#[must_use]
pub fn capacity(latency: f64, beside: f64, traffic: f64) -> f64 {
    traffic / used(WAIT * latency, beside - latency)
}

/// Wait at which a queue and its users agree, near the wait `at`. At `at` the users would use the
/// share `used`, and `fall` less for each unit of additional wait.
///
/// `1/ρ` is assumed linear in the wait, `a + b·w`: it is linear if all users are alike, and concave
/// otherwise. With `z = √(1 − ρ)` the wait is `s · (1 − z²) / z`, and `z` is the only zero in 0 ..=
/// 1 of `(a·z + b·s·(1 − z²)) · (1 − z²) − z`, which falls from `b·s` to −1.
pub(crate) fn agreed_wait(scale: f64, at: f64, used: f64, fall: f64) -> f64 {
    if used <= 0.0 || scale <= 0.0 {
        return 0.0;
    }
    // The derivative of `1 / ρ` is `−ρ' / ρ²`, and `ρ'` is `−fall`.
    let b = fall / (used * used);
    let a = 1.0 / used - b * at;
    let mut low = 0.0_f64;
    let mut high = 1.0_f64;
    let mut z = (1.0 - self::used(scale, at)).sqrt();
    // Newton's method, kept within bounds. Each step doubles the correct digits, so seven before
    // the last step become more than ten.
    for _ in 0..60 {
        let left = 1.0 - z * z;
        let asked = a * z + b * scale * left;
        let value = asked * left - z;
        let slope = (a - 2.0 * b * scale * z) * left - 2.0 * z * asked - 1.0;
        *(if value > 0.0 { &mut low } else { &mut high }) = z;
        let step = value / slope;
        // Accepted even if rounding puts the step on a bound: the step is right, the midpoint would
        // not be.
        if step.abs() <= 1e-7 * z {
            z -= step;
            break;
        }
        let next = z - step;
        z = if next > low && next < high { next } else { f64::midpoint(low, high) };
    }
    scale * (1.0 - z * z) / z
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_capacity_follows_from_waits() {
        for share in [0.1, 0.5, 0.9] {
            let beside = 80.0 + wait(WAIT * 80.0, share);
            assert!((capacity(80.0, beside, 10.0) - 10.0 / share).abs() < 1e-6, "{share}");
        }
        assert_eq!(capacity(80.0, 79.0, 10.0), f64::INFINITY);
    }

    /// Idle latency in ns, largest bandwidth in MB/s, and loaded latencies by used bandwidth, as
    /// printed by the Memory Latency Checker. Repeated bandwidths, and those below an eighth of the
    /// largest, are left out.
    type Server = (&'static str, f64, f64, &'static [(f64, f64)]);
    const SERVERS: [Server; 5] = [
        // plantegg.github.io, "CPU and memory", version 3.9 of the tool.
        (
            "2x Xeon E5-2682 v4",
            86.67,
            125_258.1,
            &[
                (131.79, 93_700.8),
                (115.01, 64_086.0),
                (109.75, 48_703.6),
                (100.85, 39_328.6),
                (97.97, 28_445.9),
                (90.63, 20_239.2),
            ],
        ),
        // The same page.
        (
            "2x Xeon Platinum 8269CY",
            79.52,
            225_948.2,
            &[
                (131.78, 195_867.9),
                (102.90, 133_820.1),
                (95.40, 101_360.2),
                (91.64, 81_599.5),
                (87.66, 58_799.0),
                (85.62, 41_545.1),
                (84.10, 32_227.5),
            ],
        ),
        // FD.io CSIT, calibration data of the testbeds, version 3.5 of the tool.
        (
            "2x Xeon Skylake-SP, FD.io",
            81.4,
            216_643.0,
            &[
                (121.92, 160_242.9),
                (101.21, 111_587.4),
                (95.48, 85_019.7),
                (94.46, 68_717.3),
                (92.27, 49_742.2),
                (91.03, 35_264.8),
            ],
        ),
        (
            "2x Xeon Haswell-SP, FD.io",
            100.77,
            115_851.5,
            &[
                (206.86, 104_508.1),
                (123.72, 72_873.6),
                (113.35, 52_641.1),
                (108.89, 41_078.9),
                (108.11, 33_699.1),
                (106.19, 24_878.0),
                (104.75, 17_948.1),
            ],
        ),
        (
            "Atom Denverton, FD.io",
            93.43,
            28_419.1,
            &[
                (124.28, 22_616.4),
                (109.40, 14_139.8),
                (104.56, 10_275.1),
                (102.02, 8_120.0),
                (100.38, 6_751.4),
                (98.30, 5_124.9),
                (96.56, 3_852.7),
            ],
        ),
    ];

    #[test]
    fn loaded_latencies_of_real_servers() {
        let mut errors = Vec::new();
        for (name, idle, most, loads) in SERVERS {
            for &(measured, bandwidth) in loads {
                let predicted = idle + wait(WAIT * idle, bandwidth / most);
                let error = (predicted / measured - 1.0).abs();
                assert!(error < 0.16, "{name}: {predicted} for {measured}");
                errors.push(error);
            }
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.04, "mean error {mean}");
    }

    /// 3/4 in use: 10 · 0.75 / √0.25 = 15.
    #[test]
    fn by_hand() {
        assert!((wait(10.0, 0.75) - 15.0).abs() < 1e-12);
        assert!((used(10.0, 15.0) - 0.75).abs() < 1e-12);
        assert_eq!((wait(10.0, 0.0), used(10.0, 0.0)), (0.0, 0.0));
        assert_eq!(wait(10.0, 1.0), f64::INFINITY);
        // Users that would use 3/4 whatever the wait.
        assert!((agreed_wait(10.0, 0.0, 0.75, 0.0) - 15.0).abs() < 1e-9);
        assert_eq!(agreed_wait(10.0, 3.0, 0.0, 0.0), 0.0);
    }

    /// Equal users of 1/(0.23 + 0.13 · w) each: the fourth step is right except for the last digit,
    /// and beyond a bound by rounding.
    #[test]
    fn steps_that_round_are_right() {
        let (scale, at, idle, depends) = (
            10.589_685_218_699_074,
            597.239_291_336_655_5,
            4.301_836_803_218_476,
            0.129_463_431_354_046_56,
        );
        let at_wait = |w: f64| 1.0 / (1.0 / idle + depends * w);
        let wait = agreed_wait(scale, at, at_wait(at), depends * at_wait(at).powi(2));
        assert!((at_wait(wait) / used(scale, wait) - 1.0).abs() < 1e-12, "{wait}");
    }

    proptest! {
        #[test]
        fn wait_and_use_are_inverse(scale in 1e-9_f64..1e-6, share in 0.0_f64..0.999) {
            prop_assert!((used(scale, wait(scale, share)) - share).abs() < 1e-9);
        }

        /// Alike users of 1/(d + g·w) each: what they use at the agreed wait is what the queue says.
        #[test]
        fn agreed_is_exact_for_users_that_are_alike(
            scale in 0.1_f64..100.0, at in 0.0_f64..1e4, idle in 0.01_f64..50.0, depends in 0.01_f64..1.0,
        ) {
            let at_wait = |w: f64| 1.0 / (1.0 / idle + depends * w);
            let fall = depends * at_wait(at).powi(2);
            let wait = agreed_wait(scale, at, at_wait(at), fall);
            prop_assert!((at_wait(wait) / used(scale, wait) - 1.0).abs() < 1e-8, "{wait}");
        }
    }
}
