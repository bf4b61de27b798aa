//! Printed forms of reports.

use colocate_figures::stats::Estimate;
use serde::Serialize;

/// A report with its printed forms; its JSON is that of [`Serialize`].
pub trait Printed: Serialize {
    /// The report as tables.
    fn text(&self) -> String;

    /// The report as a picture.
    ///
    /// # Errors
    /// If the study has no picture, or the drawing library fails; the line gives the reason.
    fn svg(&self) -> Result<String, String>;
}

/// A figure times a factor, with its interval in brackets.
pub(crate) fn with_interval(of: Estimate, times: f64, digits: usize) -> String {
    let value = format!("{:.digits$}", of.value * times);
    of.interval.map_or(value.clone(), |range| {
        format!("{value} ({:.digits$}-{:.digits$})", range.low * times, range.high * times)
    })
}
