//! Figures as text.

use super::mean::Mean;
use colocate_machine::Nanos;

/// Seconds as text.
pub fn seconds(time: Option<Nanos>) -> String {
    time.map_or_else(unknown, |time| format!("{:.2}", time.as_secs_f64()))
}

/// A mean rate as text, marked where it is estimated.
pub fn rate(mean: Mean, estimated: bool) -> String {
    marked(mean.get(), estimated)
}

/// Where most cycles went, as text, marked where it is estimated.
pub fn mostly(most: Option<(&'static str, f64)>, estimated: bool) -> String {
    let mark = if estimated { "~" } else { "" };
    most.map_or_else(unknown, |(part, share)| format!("{mark}{part} {:.0} %", 100.0 * share))
}

/// A rate as text, marked where it is estimated.
pub fn marked(rate: Option<f64>, estimated: bool) -> String {
    let mark = if estimated { "~" } else { "" };
    rate.map_or_else(unknown, |rate| format!("{mark}{rate:.2}"))
}

/// What is unknown, as text.
pub fn unknown() -> String {
    "?".to_owned()
}
