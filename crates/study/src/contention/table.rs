//! The report on contention as text and as a picture.

use super::{ContentionReport, Curve, LossPoint, PairUnfairness};
use crate::curve::{Curves, Series, svg};
use crate::printed::{Printed, with_interval};
use colocate_figures::stats::{Estimate, Interval};
use colocate_figures::table::aligned;
use colocate_machine::printable;

impl Printed for ContentionReport {
    fn text(&self) -> String {
        let mut out = format!(
            "simulated on {}, not measured: {} programs; values under the default assumptions, (least to greatest) over {} sets of\n\
             assumptions; published: losses of up to {} %\n",
            printable(&self.machine),
            self.programs.len(),
            self.draws,
            self.published.loss
        );
        for curve in &self.curves {
            out += &format!("\n{}\n", title(curve));
            let heading = ["each, t/us", "all reached", "loss, median, %", "greatest, %", "of"];
            let mut rows = vec![heading.map(str::to_owned).to_vec()];
            rows.extend(curve.points.iter().map(cells));
            out += &aligned(&rows);
        }
        out += "\npairs: the greater slowdown over the lesser\n";
        let heading =
            ["cores", "published", "median", "greatest", "as unfair, %", "slower", "beside"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.pairs.iter().map(of_pairs));
        out + &aligned(&rows)
    }

    /// The largest loss over the copies' traffic, a line for each level and number of copies.
    fn svg(&self) -> Result<String, String> {
        // Accesses to the first cache are left out: they are a hundred times as many.
        let curves = self.curves.iter().filter(|curve| curve.level != "L1");
        let series = curves.map(|curve| Series {
            name: title(curve),
            points: curve
                .points
                .iter()
                .map(|point| (point.reached, percent(point.greatest)))
                .collect(),
        });
        svg(&[Curves {
            caption: format!(
                "greatest loss, simulated on {}; published up to {} %",
                self.machine, self.published.loss
            ),
            across: "transactions per us that all copies reach".to_owned(),
            up: "loss, percent".to_owned(),
            level: Some(self.published.loss),
            series: series.collect(),
        }])
    }
}

fn title(curve: &Curve) -> String {
    let copies = if curve.copies == 1 { "copy" } else { "copies" };
    let place = if curve.siblings { "the same core" } else { "other cores" };
    format!("{}, {} {copies} on {place}", curve.level, curve.copies)
}

fn cells(point: &LossPoint) -> Vec<String> {
    vec![
        format!("{:.0}", point.rate),
        format!("{:.1}", point.reached),
        with_interval(point.median, 100.0, 1),
        with_interval(point.greatest, 100.0, 1),
        point.of.clone(),
    ]
}

fn of_pairs(pairs: &PairUnfairness) -> Vec<String> {
    vec![
        if pairs.siblings { "one" } else { "two" }.to_owned(),
        format!("{:.2}", pairs.published),
        with_interval(pairs.median, 1.0, 2),
        with_interval(pairs.greatest, 1.0, 2),
        with_interval(pairs.as_published, 100.0, 0),
        named(&pairs.most_unfair[0]),
        named(&pairs.most_unfair[1]),
    ]
}

fn named((name, traffic): &(String, f64)) -> String {
    format!("{name} ({traffic:.1} t/us)")
}

fn percent(of: Estimate) -> Estimate {
    let interval =
        of.interval.map(|range| Interval { low: range.low * 100.0, high: range.high * 100.0 });
    Estimate { value: of.value * 100.0, interval }
}
