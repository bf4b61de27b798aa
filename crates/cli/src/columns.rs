//! Tables as text.

use colocate_machine::{Nanos, PuNr};

/// A column of a table: its name, whether it is shown, and the cell of a row.
pub type TableColumn<'a, R> = (&'a str, bool, &'a dyn Fn(&R) -> String);

/// Cells of the shown columns, with a heading.
pub fn rows<R>(columns: &[TableColumn<'_, R>], of: &[R]) -> Vec<Vec<String>> {
    let shown = columns.iter().filter(|(_, shown, _)| *shown);
    let head = shown.clone().map(|(name, ..)| (*name).to_owned()).collect();
    let cells = of.iter().map(|row| shown.clone().map(|(.., cell)| cell(row)).collect());
    std::iter::once(head).chain(cells).collect()
}

/// Seconds with two digits; `?` if unknown.
pub fn seconds(time: Option<Nanos>) -> String {
    time.map_or_else(unknown, |time| format!("{:.2}", time.as_secs_f64()))
}

/// Text for an unknown value.
pub fn unknown() -> String {
    "?".to_owned()
}

/// The first four PUs; `…` for the rest.
pub fn few(pus: &[PuNr]) -> String {
    let more = (pus.len() > 4).then(|| "…".to_owned());
    let shown = pus.iter().take(4).map(|pu| pu.0.to_string()).chain(more);
    shown.collect::<Vec<_>>().join(" ")
}

/// `1 thread`, `2 threads`.
pub fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}
