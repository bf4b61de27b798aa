//! Figures for people.

use super::mean::Mean;
use colocate_machine::Nanos;

/// Seconds for people.
pub fn seconds(time: Option<Nanos>) -> String {
    time.map_or_else(unknown, |time| format!("{:.2}", time.as_secs_f64()))
}

/// A mean rate for people, marked where it is estimated.
pub fn rate(mean: Mean, estimated: bool) -> String {
    marked(mean.get(), estimated)
}

/// Where most cycles went, for people, marked where it is estimated.
pub fn mostly(most: Option<(&'static str, f64)>, estimated: bool) -> String {
    let mark = if estimated { "~" } else { "" };
    most.map_or_else(unknown, |(part, share)| format!("{mark}{part} {:.0} %", 100.0 * share))
}

/// A rate for people, marked where it is estimated.
pub fn marked(rate: Option<f64>, estimated: bool) -> String {
    let mark = if estimated { "~" } else { "" };
    rate.map_or_else(unknown, |rate| format!("{mark}{rate:.2}"))
}

/// What nobody knows, for people.
pub fn unknown() -> String {
    "?".to_owned()
}
