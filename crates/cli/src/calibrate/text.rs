//! A calibration as text.

use crate::date;
use colocate_figures::table::aligned;
use colocate_machine::calibrated::{Calibration, Figure, Quantity};
use colocate_machine::{PuNr, PuSet, printable};
use std::fmt::Write;
use std::mem::discriminant;

/// Most PUs with rows of their own.
const EACH: usize = 8;

/// The figures as a table, each with its method and time, and with its source if `sources`.
pub fn text(found: &Calibration, sources: bool) -> String {
    let begun = date::minute(found.started_unix_s);
    let kernel = found.kernel.as_ref().map(|kernel| format!(", {}", printable(kernel)));
    let kernel = kernel.unwrap_or_default();
    let mut text = format!("measured {begun} in {:.0} s{kernel}\n", found.seconds);
    let head = ["figure", "value", "95 % interval", "source"];
    let mut rows = vec![head[..3 + usize::from(sources)].iter().map(ToString::to_string).collect()];
    for (figure, pus) in rows_of(&found.figures) {
        let Figure { what, unit, value, low, high, source, .. } = &figure;
        let name = pus.map_or_else(|| what.to_string(), |pus| many(what, &pus));
        let mut cells: Vec<String> = vec![
            printable(&name).into_owned(),
            unit.text(*value),
            format!("{} to {}", unit.text(*low), unit.text(*high)),
        ];
        cells.extend(sources.then(|| printable(source).into_owned()));
        rows.push(cells);
    }
    text.push_str(&aligned(&rows));
    for (what, lines) in [("measured otherwise", &found.disagreements), ("absent", &found.absent)] {
        lines.iter().for_each(|line| text += &format!("{what}: {}\n", printable(line)));
    }
    for assumed in found.assumed.iter().filter(|_| sources) {
        let _ =
            writeln!(text, "assumed: {}: {}", printable(&assumed.key), printable(&assumed.source));
    }
    text
}

/// PUs of a figure that each PU has, or each of many pairs of PUs; none for other figures.
fn pus_of(what: &Quantity) -> Vec<PuNr> {
    match what {
        Quantity::Clock { pu }
        | Quantity::Speed { pu }
        | Quantity::SpeedWhileRunning { pu }
        | Quantity::ShareOfPu { pu }
        | Quantity::Away { pu }
        | Quantity::Gap { pu }
        | Quantity::Steal { pu } => vec![*pu],
        Quantity::SharedUnits { pu, other } => vec![*pu, *other],
        _ => Vec::new(),
    }
}

/// A row for each figure, or for the figures of many PUs from the least to the most.
fn rows_of(figures: &[Figure]) -> Vec<(Figure, Option<PuSet>)> {
    let mut rows = Vec::new();
    // Of one kind, maybe of different PUs.
    let groups = figures.chunk_by(|a, b| {
        !pus_of(&a.what).is_empty() && discriminant(&a.what) == discriminant(&b.what)
    });
    for group in groups {
        if group.len() <= EACH {
            rows.extend(group.iter().map(|figure| (figure.clone(), None)));
            continue;
        }
        let mut values: Vec<f64> = group.iter().map(|figure| figure.value).collect();
        values.sort_by(f64::total_cmp);
        let mut figure = group[0].clone();
        figure.low = values[0];
        figure.value = values[values.len() / 2];
        figure.high = values[values.len() - 1];
        let pus = group.iter().flat_map(|figure| pus_of(&figure.what)).collect();
        rows.push((figure, Some(pus)));
    }
    rows
}

/// `clock, PUs 0-127: median, least and most`.
fn many(what: &Quantity, pus: &PuSet) -> String {
    let name = what.to_string();
    // The name of a single PU's figure ends in its PU.
    let name = name.rsplit_once(", PU ").map_or(&*name, |(name, _)| name);
    format!("{name}, PUs {pus}: median, least, most")
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::calibrated::PuDistance;
    use expect_test::expect;

    fn figure(what: Quantity, value: f64) -> Figure {
        let (low, high) = (value * 0.95, value * 1.05);
        Figure { unit: what.unit(), what, value, low, high, unix_s: 1, source: "a loop".into() }
    }

    #[test]
    fn a_table_with_all_that_is_known() {
        let mut figures = vec![
            figure(Quantity::LinePass { pair: PuDistance::SameCache }, 52.0),
            figure(Quantity::WakeUp { pair: PuDistance::SamePu, busy: true }, 2_345.0),
            figure(Quantity::Clock { pu: PuNr(0) }, 3.5e9),
        ];
        figures.extend(
            (0..9_u32).map(|pu| figure(Quantity::Away { pu: PuNr(pu) }, f64::from(pu) / 100.0)),
        );
        let found = Calibration {
            identity: "0".into(),
            kernel: Some("Linux 6.18".into()),
            started_unix_s: 1_764_093_900,
            seconds: 24.2,
            figures,
            assumed: vec![],
            absent: vec!["moving a page: there is one memory node".into()],
            disagreements: vec!["PUs share nothing".into()],
        };
        expect![[r#"
            measured 2025-11-25 18:05 UTC in 24 s, Linux 6.18
            figure                                    value     95 % interval
            line pass, same cache                     52.0 ns   49.4 ns to 54.6 ns
            wake-up, same PU, busy                    2.35 us   2.23 us to 2.46 us
            clock, PU 0                               3.50 GHz  3.33 GHz to 3.68 GHz
            share away, PUs 0-8: median, least, most  0.040     0.00 to 0.080
            measured otherwise: PUs share nothing
            absent: moving a page: there is one memory node
        "#]]
        .assert_eq(&text(&found, false));
        assert!(text(&found, true).contains("  a loop\n"));
    }
}
