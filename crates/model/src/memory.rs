//! Memory controllers and links: how long an access waits when others ask, too.
//!
//! # Approach
//! Each is a queue. With the share `ρ` of its bandwidth in use an access waits
//! `q · ρ / (1 − ρ)`, the form of the M/M/1 queue, with `q` as its scale. Tasks that wait longer ask
//! less often, so there is always a `ρ` below 1 at which what is asked for and the wait agree.

/// Scale of the wait, as a share of the latency of an access that waits for nobody.
///
/// Assumed. Loaded-latency measurements of DDR3 and DDR4 servers, as remembered, reach about twice the
/// unloaded latency at 80 to 90 % of the bandwidth that can be had.
pub const WAIT: f64 = 0.15;

/// What an access waits at a queue of which the share `used` is in use; `scale` and the result in the
/// same unit of time. Infinite from 1 on.
#[must_use]
pub fn wait(scale: f64, used: f64) -> f64 {
    if used < 1.0 { scale * used.max(0.0) / (1.0 - used) } else { f64::INFINITY }
}

/// The wait at which a queue and its users agree, near a wait `at`, where they would use the share
/// `used` and `fall` less for each unit of time that the wait grows.
///
/// `1/ρ` is taken to grow with the wait in a straight line, which it does when all users are alike:
/// `1/ρ = a + b·w`. With `ρ = w / (w + q)` this is `b·w² + (a − 1)·w = q`.
#[must_use]
pub fn agreed_wait(scale: f64, at: f64, used: f64, fall: f64) -> f64 {
    if used <= 0.0 {
        return 0.0;
    }
    let b = fall / (used * used);
    let a = 1.0 / used - b * at;
    let half = f64::midpoint(a, -1.0);
    let root = (half * half + b * scale).sqrt();
    // Of the two forms of the root the one that subtracts nothing.
    let wait = if half > 0.0 { scale / (half + root) } else { (root - half) / b };
    if wait.is_finite() { wait } else { at }
}
