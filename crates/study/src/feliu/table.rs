//! The study as text for a terminal.

use super::figures::{Figures, Found, Metric, MetricFigures, Order, PolicyFigures};
use super::setup::Show;
use super::shown::{Course, Shown};
use super::{Report, Setup};
use crate::replication::lines;
use crate::simulate::figures::Spread;
use crate::stats;
use crate::table::aligned;
use colocate_machine::printable;
use std::fmt::Write;

/// Most programs of which a matrix is printed. Chosen: a line of 100 characters.
const MOST_IN_MATRIX: usize = 12;
/// Pairs that are named where there is no room for a matrix. Chosen.
const PAIRS: usize = 5;

/// The report as tables and their legend; ends in a newline. `setups` are those of its study.
#[must_use]
pub fn text(report: &Report, setups: &[Setup]) -> String {
    let mut out = String::new();
    let Report { study, machine, draws, seeds, alone_s, quantum_s, .. } = report;
    let machine = printable(machine);
    let _ = writeln!(
        out,
        "{study}, simulated on {machine}: programs of {alone_s} s alone, a quantum of {quantum_s} s; in brackets the\n\
         range over {draws} sets of assumptions and what chance does ({seeds} seeds); ~: not resolved, less than \
         {:.0} % or of\nanother sign under other assumptions",
        report.resolution * 100.0
    );
    programs(&mut out, report);
    for (figures, setup) in report.setups.iter().zip(setups) {
        one(&mut out, report, figures, setup);
    }
    out.push('\n');
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn programs(out: &mut String, report: &Report) {
    let (least, most) = stats::ends(report.programs.iter().map(|program| program.memory));
    let (low, high) = stats::ends(report.programs.iter().map(|program| program.first_cache));
    let _ = writeln!(
        out,
        "{} programs drawn: {least:.1} to {most:.1} t/µs to memory alone, {low:.0} to {high:.0} t/µs to the first cache",
        report.programs.len(),
    );
}

fn one(out: &mut String, report: &Report, figures: &Figures, setup: &Setup) {
    let (least, most) = stats::ends(figures.mixes.iter().map(|mix| mix.traffic));
    let published = setup.traffic.map(|[low, high]| format!(" (drawn for {low:.0} to {high:.0})"));
    let published = published.unwrap_or_default();
    let _ = writeln!(
        out,
        "\n{}: {} mixes that ask for {least:.0} to {most:.0} t/µs{published}",
        figures.name,
        figures.mixes.len()
    );
    for place in 0..setup.metrics.len() {
        metric(out, &figures.policies, place);
    }
    order(out, &figures.order, undecided(report));
    shown(out, &figures.shown, setup.show);
}

fn metric(out: &mut String, policies: &[PolicyFigures], place: usize) {
    let Some(metric) = policies.first().and_then(|policy| policy.metrics.get(place)) else {
        return;
    };
    let metric = metric.metric;
    let over = if in_times(metric) { "of os's, times" } else { "better than os, percent" };
    let unit = if metric == Metric::Turnaround { ", s" } else { "" };
    let mut rows = vec![lines(&["", &format!("{}{unit}", metric.name()), over, "", "published"])];
    rows.extend(policies.iter().map(|policy| row(policy, &policy.metrics[place])));
    out.push_str(&aligned(&rows));
}

/// Whether a ratio is told, not a gain in percent.
fn in_times(metric: Metric) -> bool {
    matches!(metric, Metric::Unfairness | Metric::Antt)
}

fn row(policy: &PolicyFigures, figures: &MetricFigures) -> Vec<String> {
    let ratio = figures.ratio.map(|ratio| gain(figures.metric, ratio));
    let published = figures.published.as_ref().map(|published| published.text.clone());
    vec![
        policy.policy.clone(),
        Spread::or_unended(figures.value, |value| value.text(3)),
        ratio.unwrap_or_default(),
        figures.verdict.mark().to_owned(),
        published.unwrap_or_default(),
    ]
}

/// A ratio, or by how much a time is shorter or a speed greater.
fn gain(metric: Metric, ratio: Spread) -> String {
    if in_times(metric) {
        return ratio.text(3);
    }
    let faster = ratio.map(|ratio| if metric.less_is_better() { 1.0 / ratio } else { ratio });
    faster.percent_more().signed_text(1)
}

/// What is said of an order that is not decided: why, where it is because nobody looked.
fn undecided(report: &Report) -> &'static str {
    match (report.seeds, report.draws) {
        (1, _) => "not decided by one seed",
        (_, 1) => "not decided by one set of assumptions",
        _ => "not decided here",
    }
}

fn order(out: &mut String, orders: &[Order], undecided: &str) {
    let _ = writeln!(out, "the published order");
    let mut rows = Vec::new();
    for each in orders {
        let found = match each.found {
            Found::Same => "the same here",
            Found::Reversed => "the other way round here",
            Found::Open => undecided,
        };
        let small = each.found != Found::Open && !each.resolved;
        let small = if small { ", less than the model can resolve" } else { "" };
        rows.push(vec![
            format!("  {}", each.metric.name()),
            format!("{} better than {}", each.better, each.than),
            Spread::or_unended(each.ratio, |by| gain(each.metric, by)),
            format!("{found}{small}"),
        ]);
    }
    out.push_str(&aligned(&rows));
}

fn shown(out: &mut String, shown: &Shown, show: Show) {
    match show {
        Show::Apart => apart(out, shown),
        Show::Together => {
            shown.policies.iter().for_each(|course| together(out, shown, course));
        }
        Show::Progress => progress(out, shown),
    }
}

fn apart(out: &mut String, shown: &Shown) {
    let _ =
        writeln!(out, "mix {}: requests of the shared caches, most less least, t/µs", shown.mix);
    let mut rows = vec![lines(&["", "mean", "median", "nine of ten below"])];
    rows.extend(shown.policies.iter().map(|course| {
        let cells = course.apart.map(|apart| [apart.mean, apart.median, apart.ninth_tenth]);
        let cells =
            cells.map_or(["-"; 3].map(str::to_owned), |it| it.map(|each| format!("{each:.1}")));
        labelled(&course.policy, cells)
    }));
    out.push_str(&aligned(&rows));
}

fn together(out: &mut String, shown: &Shown, course: &Course) {
    let count = shown.programs.len();
    let _ = writeln!(
        out,
        "mix {} under {}: percent of the time for which two share a core",
        shown.mix, course.policy
    );
    let percent = |a: usize, b: usize| format!("{:.0}", course.together[a][b] * 100.0);
    if count > MOST_IN_MATRIX {
        let mut pairs: Vec<(usize, usize)> =
            (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
        pairs.sort_by(|x, y| course.together[y.0][y.1].total_cmp(&course.together[x.0][x.1]));
        let named = pairs.iter().take(PAIRS).map(|&(a, b)| {
            format!("{}+{} {}", shown.programs[a], shown.programs[b], percent(a, b))
        });
        let _ = writeln!(out, "  most often: {}", named.collect::<Vec<_>>().join(", "));
        return;
    }
    let mut rows = vec![[vec![String::new()], shown.programs.clone()].concat()];
    for (a, name) in shown.programs.iter().enumerate() {
        let cells = (0..count).map(|b| if a == b { "-".to_owned() } else { percent(a, b) });
        rows.push(labelled(name, cells));
    }
    out.push_str(&aligned(&rows));
}

/// A row with its label.
fn labelled(label: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    [format!("  {label}")].into_iter().chain(cells).collect()
}

fn progress(out: &mut String, shown: &Shown) {
    let _ = writeln!(
        out,
        "mix {}: percent of its target that the least advanced program has done, at tenths of the time until \
         the first is done",
        shown.mix
    );
    let least = |course: &Course| {
        let cells = course.progress.iter().map(|[least, ..]| format!("{:.0}", least * 100.0));
        labelled(&course.policy, cells)
    };
    out.push_str(&aligned(&shown.policies.iter().map(least).collect::<Vec<_>>()));
    let _ = writeln!(
        out,
        "mix {}: programs that are left, at tenths of the time that os takes, and two more",
        shown.mix
    );
    let left =
        |course: &Course| labelled(&course.policy, course.left.iter().map(ToString::to_string));
    out.push_str(&aligned(&shown.policies.iter().map(left).collect::<Vec<_>>()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the time, whatever is assumed, and 2 % less; nothing is told of the size of what is not decided.
    #[test]
    fn an_order_is_told_with_its_size() {
        let order = |value: f64, found, resolved| Order {
            metric: Metric::Turnaround,
            better: "mmas".to_owned(),
            than: "os".to_owned(),
            ratio: Some(Spread { value, low: value, high: value }),
            found,
            resolved,
            source: String::new(),
        };
        let told = |each: Order| {
            let mut out = String::new();
            super::order(&mut out, &[each], "not decided by one seed");
            out.lines().nth(1).unwrap().rsplit("  ").next().unwrap().to_owned()
        };
        assert_eq!(told(order(0.5, Found::Same, true)), "the same here");
        assert_eq!(
            told(order(1.02, Found::Reversed, false)),
            "the other way round here, less than the model can resolve"
        );
        assert_eq!(told(order(0.5, Found::Open, false)), "not decided by one seed");
    }

    /// 4/5 of the time is a quarter faster; 5/4 of the throughput a quarter more; unfairness is told in times.
    #[test]
    fn gains_are_of_speed() {
        let spread = |value, low, high| Spread { value, low, high };
        let time = spread(0.8, 0.5, 1.0);
        assert_eq!(gain(Metric::Turnaround, time), "+25.0 (+0.0 to +100.0)");
        assert_eq!(gain(Metric::Stp, spread(1.25, 0.9, 1.5)), "+25.0 (-10.0 to +50.0)");
        assert_eq!(gain(Metric::Unfairness, time), "0.800 (0.500 to 1.000)");
    }
}
